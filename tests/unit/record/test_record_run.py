"""A run as data, samples as columns, files that are complete or missing."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.errors import StoreError
from inferometer.plan.stored import StoredPlan
from inferometer.record import gather, parquet
from inferometer.record.columns import Records
from inferometer.record.encoding import verdict_from
from inferometer.record.environment import Environment
from inferometer.record.files import check_schema, replacing
from inferometer.record.gather import logs_to_parquet
from inferometer.record.log import LogWriter, Note
from inferometer.record.parquet import (
    HELD_READS,
    read_batches,
    read_parquet,
    read_samples,
    write_parquet,
    write_samples,
)
from inferometer.record.record import Record, Sample, Samples
from inferometer.record.run import Run, document
from inferometer.record.summary import Summary
from inferometer.record.verdict import Verdict

SAMPLES = [
    Sample("gpu:1", "power_w", 20, 410.0),
    Sample("gpu:0", "power_w", 10, 400.0, {"b": "2", "a": "1"}),
    Sample("host", "load", 15, 0.5),
]

VALID = Verdict(status="valid")


def a_run(**fields: Any) -> Run:
    plain: dict[str, Any] = {
        "plan": StoredPlan({"seed": 1}),
        "environment": Environment(),
        "summary": Summary(),
        "verdict": VALID,
    }
    return Run(**{"id": "r", "started_at": "2026-11-15T03:12:07+00:00", **plain, **fields})


def test_the_document_is_what_json_prints(tmp_path: Path) -> None:
    printed = document(a_run(folder=tmp_path, state="interrupted"))
    assert json.loads(json.dumps(printed)) == printed
    assert [*printed] == ["schema", "run", "verdict", "summary", "plan", "environment"]
    assert printed["schema"] == "inferometer/run/2"
    assert printed["run"] == {
        "id": "r",
        "started": "2026-11-15T03:12:07+00:00",
        "folder": str(tmp_path),
        "state": "interrupted",
        "kind": "serving",
    }


def test_the_verdict_has_one_shape_whether_it_was_kept_or_just_made() -> None:
    shape = {"schema": "inferometer/verdict/2", "status": "valid", "doubts": [], "notes": [], "traffic": {}}
    kept = a_run(verdict=verdict_from({"schema": "inferometer/verdict/1", "word": "valid", "reasons": []}))
    assert document(a_run())["verdict"] == document(kept)["verdict"] == shape
    assert document(a_run(verdict=None))["verdict"] is None  # it still runs, or it was killed


def test_a_run_without_records_says_so_and_one_with_reads_them_when_asked() -> None:
    assert a_run().records is None
    assert a_run().samples is None
    empty = Records.of([])
    assert a_run(read_records=lambda: empty).records is empty


def test_samples_are_kept_in_order_of_time(tmp_path: Path) -> None:
    write_samples(Samples.of(SAMPLES), tmp_path / "samples.parquet")
    samples = read_samples(tmp_path / "samples.parquet")
    assert [samples.sample(i) for i in range(len(samples))] == [SAMPLES[1], SAMPLES[2], SAMPLES[0]]
    at, value = samples.series("power_w")
    assert (at.tolist(), value.tolist()) == ([10, 20], [400.0, 410.0])
    assert samples.series("power_w", "gpu:1")[1].tolist() == [410.0]
    assert samples.series("nothing")[0].tolist() == []


def test_no_samples_is_a_file_too(tmp_path: Path) -> None:
    write_samples(Samples.of([]), tmp_path / "samples.parquet")
    assert len(read_samples(tmp_path / "samples.parquet")) == 0


def test_many_row_groups_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "BATCH", 4)
    at = np.arange(3, dtype="<i8").tobytes()
    for shard in range(2):
        with LogWriter(tmp_path / f"log-{shard}.bin", shard=shard) as log:
            for i in range(shard, 10, 2):
                finish = "stop" if i % 3 else f"only here {i}"
                lists: dict[str, Any] = {"read_at": at, "read_tokens": at, "read_slack": at}
                log.append(Record(session=i, scheduled_at=i, finish_reason=finish, **lists))
            log.add(Note("ended"))
    out = tmp_path / "records.parquet"
    found = logs_to_parquet(sorted(tmp_path.glob("log-*.bin")), out)
    assert [header.shard for header in found.headers] == [0, 1]
    assert found.notes == [Note("ended")] * 2
    assert [len(batch) for batch in read_batches(out)] == [4, 4, 2]
    records = read_parquet(out)
    assert records.session.tolist() == [*range(10)]
    assert records.finish_reason[9] == "only here 9"
    assert records.read_at.tolist() == [0, 1, 2] * 10


def test_other_tools_see_nulls_and_lists(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    at = np.array([3, 4], "<i8").tobytes()
    lists: dict[str, Any] = {"read_at": at, "read_tokens": at, "read_slack": at}
    write_parquet(Records.of([Record(session=0, scheduled_at=1, **lists)]), tmp_path / "r.parquet")
    (row,) = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert row["read_at"] == [3, 4]
    assert row["outcome"] == "ok"
    assert (row["sent_at"], row["finish_reason"], row["error"], row["retry_after_s"]) == (None, None, None, None)


def test_a_file_from_before_a_field_existed_has_its_default(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "r.parquet"
    record = Record(session=0, scheduled_at=1, connect_ns=5, counted_tokens=3, outcome="cut", error="x")
    write_parquet(Records.of([record, record]), path)
    dropped = ["connect_ns", "counted_tokens", "outcome", "error"]
    pq.write_table(pq.read_table(path).drop_columns(dropped), path)
    assert read_parquet(path).record(1) == Record(session=0, scheduled_at=1)


@pytest.mark.parametrize("held_reads", [HELD_READS, -1])
def test_columns_of_version_1_have_their_present_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_reads: int
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet, "HELD_READS", held_reads)  # -1: the reads stay in the file
    path = tmp_path / "r.parquet"
    record = Record(session=0, scheduled_at=1, requested_input=100, requested_output=5)
    write_parquet(Records.of([record]), path)
    former = {"requested_input": "asked_input", "requested_output": "asked_output"}
    table = pq.read_table(path)
    assert set(former) <= set(table.column_names)
    old = table.rename_columns([former.get(name, name) for name in table.column_names])
    pq.write_table(old.replace_schema_metadata({"inferometer.schema": "inferometer/records/1"}), path)
    assert read_parquet(path).record(0) == record


def test_a_parquet_file_that_is_not_ours_or_not_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"nothing of the kind, but long enough")
    with pytest.raises(StoreError, match="not a readable Parquet file"):
        read_parquet(tmp_path / "bad.parquet")
    with pytest.raises(StoreError, match="no such file"):
        read_parquet(tmp_path / "none.parquet")
    write_samples(Samples.of([]), tmp_path / "samples.parquet")
    with pytest.raises(StoreError, match="not records"):
        read_parquet(tmp_path / "samples.parquet")
    monkeypatch.setattr(parquet, "schema_of", lambda kind: f"inferometer/{kind}/9")
    write_parquet(Records.of([]), tmp_path / "new.parquet")
    with pytest.raises(StoreError, match="newer Inferometer"):
        read_parquet(tmp_path / "new.parquet")


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path) as draft:
        draft.write_text("half")
        raise KeyError
    with pytest.raises(StoreError, match="is a directory"), replacing(path):
        os.open(tmp_path, os.O_WRONLY)
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("found", [None, "", "inferometer/log/1", "inferometer/run/x", "someone/run/1"])
def test_schemas_of_others_are_refused(found: str | None) -> None:
    with pytest.raises(StoreError, match=r"here: not run of"):
        check_schema("here", "run", found)
