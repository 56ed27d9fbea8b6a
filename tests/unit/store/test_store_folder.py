"""The run folder: unique, complete file by file, readable as far as it was written."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError, StoreError, TargetError
from inferometer.record.encoding import environment_document, environment_from
from inferometer.record.files import schema_of
from inferometer.record.log import HostClock, LogWriter, Note
from inferometer.record.record import Record, Sample
from inferometer.record.summary import MeasureSummary, Summary
from inferometer.record.verdict import Verdict
from inferometer.store import folder as folder_room
from inferometer.store.folder import (
    RunFolder,
    check_writable,
    load_partial,
    load_run,
    new_run,
)
from inferometer.store.store import open_store

PLAN: JsonObject = {"name": "übung", "target": {"url": ["http://h:1"]}, "load": {"type": "poisson", "rate": 2.5}}


def with_logs(folder: RunFolder, shards: int = 2) -> RunFolder:
    for shard in range(shards):
        with LogWriter(folder.log_path(shard), shard=shard, clock=HostClock(host="there")) as log:
            log.append(Record(session=shard, scheduled_at=100 - shard, shard=shard))
            log.add(Sample("host", "load", shard, 0.5))
            log.add(Note("ended"))
    return folder


def test_ids_sort_by_time_and_read_aloud(tmp_path: Path) -> None:
    first = new_run(tmp_path, datetime(2026, 11, 15, 3, 12, 7, tzinfo=UTC))
    second = new_run(tmp_path, datetime(2026, 11, 15, 3, 12, 8, tzinfo=UTC))
    assert re.fullmatch(r"20261115-031207-[a-z]+-[a-z]+", first.id)
    assert first.id < second.id
    assert first.started_at == "2026-11-15T03:12:07.000+00:00"


def test_runs_of_the_same_second_never_share_a_folder(tmp_path: Path) -> None:
    """Among 250 draws of 3,900 names, a clash is as good as certain."""
    started = datetime(2026, 11, 15, tzinfo=UTC)
    assert len({new_run(tmp_path, started).id for _ in range(250)}) == 250


def test_a_complete_run_comes_back(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path))
    folder.write_plan(PLAN)
    folder.write_environment(environment_from({"cpu": "x"}))
    _, gathered = folder.gather()
    statistics = {"p50": np.float64(0.5), "p99": float("nan")}
    folder.write_summary(Summary(measures={"ttft": MeasureSummary(statistics=statistics)}))
    folder.write_verdict(Verdict(status="valid"))
    folder.write_state("complete")
    assert len(gathered.samples) == 2

    run = folder.load()
    assert (run.id, run.state, run.folder, run.started_at) == (folder.id, "complete", folder.path, folder.started_at)
    assert (dict(run.plan), environment_document(run.environment)) == (PLAN, {"cpu": "x"})
    assert run.summary == Summary(measures={"ttft": MeasureSummary(statistics={"p50": 0.5, "p99": None})})
    assert run.verdict == Verdict(status="valid")
    records, samples = run.records, run.samples
    assert records is not None and samples is not None
    assert records.session.tolist() == [1, 0]
    assert len(samples) == 2
    names = [
        "environment.json",
        "manifest.json",
        "plan.yaml",
        "records.parquet",
        "run.json",
        "samples.parquet",
        "shards.json",
    ]
    assert sorted(path.name for path in folder.path.iterdir()) == [*names, "summary.json", "verdict.json"]


def test_every_file_carries_its_schema_and_the_plan_stays_a_plan(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path))
    folder.write_plan(PLAN)
    folder.write_summary(Summary())
    folder.gather()
    for file in folder.path.glob("*.json"):
        assert json.loads(file.read_text())["schema"] == schema_of(file.stem)
    text = (folder.path / "plan.yaml").read_text(encoding="utf-8")
    assert text.startswith("# schema: inferometer/plan/1\nname: übung\n")
    assert yaml.safe_load(text) == PLAN


def gathered_shards(folder: RunFolder) -> dict[str, Any]:
    """What the logs said beside records: the shards with their clock facts, truncated logs, and notes."""
    folder.gather()
    said: dict[str, Any] = json.loads((folder.path / "shards.json").read_text())
    return said


def test_what_the_logs_said_beside_records_is_kept(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path))
    said = gathered_shards(folder)
    assert said["shards"] == [{"shard": 0, "clock": {"host": "there"}}, {"shard": 1, "clock": {"host": "there"}}]
    assert [note["what"] for note in said["notes"]] == ["ended", "ended"]
    assert said["truncated"] == []


def test_shards_are_taken_by_number(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path), shards=11)
    assert [shard["shard"] for shard in gathered_shards(folder)["shards"]] == [*range(11)]


def test_a_run_that_was_killed_has_its_logs(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path))
    log = folder.log_path(1)
    log.write_bytes(log.read_bytes()[:-3])
    run = load_run(folder.path)
    assert (run.state, run.summary, run.verdict, dict(run.plan)) == ("partial", Summary(), None, {})
    assert load_partial(folder.path).session.tolist() == [1, 0]
    records = run.records
    assert records is not None and len(records) == 2
    assert gathered_shards(folder)["truncated"] == ["log-1.bin"]


def test_a_run_without_records_has_none(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    assert folder.load().records is None
    with pytest.raises(StoreError, match="no logs"):
        load_partial(folder.path)


def test_logs_stay_when_the_columns_cannot_be_written(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path))
    (folder.path / "records.parquet").mkdir()
    with pytest.raises(StoreError):
        folder.gather()
    assert folder.log_path(0).exists()
    assert folder.log_path(1).exists()


@pytest.mark.parametrize("content", ['{"schema": "inferometer/summary/9"}', "{half", "{}", '{"schema": "x"}'])
def test_a_file_that_we_cannot_read_is_named(tmp_path: Path, content: str) -> None:
    folder = new_run(tmp_path)
    (folder.path / "summary.json").write_text(content)
    with pytest.raises(StoreError, match=r"summary\.json: "):
        load_run(folder.path)


def test_a_plan_from_a_newer_version_or_broken_is_named(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    (folder.path / "plan.yaml").write_text("# schema: inferometer/plan/9\nname: x\n")
    with pytest.raises(StoreError, match="newer Inferometer"):
        load_run(folder.path)
    (folder.path / "plan.yaml").write_text("a: [")
    with pytest.raises(StoreError, match="not YAML"):
        load_run(folder.path)


def test_a_folder_of_something_else_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        load_run(tmp_path)
    with pytest.raises(StoreError, match="not a run folder"):
        load_run(tmp_path / "none")


def test_the_store_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "mine"))
    assert open_store().home == tmp_path / "mine"
    monkeypatch.delenv("INFEROMETER_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert open_store().home == tmp_path / "inferometer"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store().home == tmp_path / ".local/share/inferometer"


def test_a_store_that_cannot_keep_a_run_is_known_before_the_load(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not a directory") as raised:
        check_writable(tmp_path / "file" / "store")
    assert "--store" in (raised.value.hint or "")
    if not Path("/proc/version").exists():
        pytest.skip("no /proc here")
    with pytest.raises(StoreError, match=r"^/proc/nowhere: "):
        new_run(Path("/proc/nowhere"))


def test_a_nearly_full_disk_is_known_before_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_room, "LEAST_FREE", 2**62)
    with pytest.raises(StoreError, match="iB of disk space left, a run needs") as raised:
        check_writable(tmp_path)
    assert "free some disk space" in (raised.value.hint or "")
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_run_refused_before_anything_was_sent_leaves_no_folder(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    (folder.path / "server.log").write_text("listening")
    LogWriter(folder.log_path(0)).close()  # a worker that failed while it made itself ready
    folder.abandon(PlanError("too long"))
    assert not folder.path.exists()


def test_the_log_of_a_server_that_failed_is_kept(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    (folder.path / "server.log").write_text("no GPU here")
    folder.abandon(TargetError("ended before it was ready"))
    assert folder.load().state == "failed"


def test_what_was_logged_before_an_error_is_kept(tmp_path: Path) -> None:
    folder = with_logs(new_run(tmp_path))
    folder.abandon(PlanError("late"))
    assert folder.load().state == "failed" and len(load_partial(folder.path)) == 2


def test_a_store_that_cannot_be_made_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "no such file")  # as below /proc

    monkeypatch.setattr(Path, "mkdir", nowhere)
    with pytest.raises(StoreError) as caught:
        check_writable(tmp_path / "x")
    assert caught.value.hint and "--store" in caught.value.hint


READ_BY_THREADS = """
import sys, threading
from inferometer.store.folder import load_run
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
threads = [threading.Thread(target=lambda: (together.wait(), load_run(sys.argv[1]))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_the_first_runs_of_a_process_can_be_read_by_threads(tmp_path: Path) -> None:
    """The first requests of a dashboard come together; what msgspec learned of a type was half made for the second."""
    folder = new_run(tmp_path)
    folder.write_summary(Summary(measures={"ttft": MeasureSummary(unit="s", count=1, statistics={"p50": 0.1})}))
    folder.write_verdict(Verdict(status="valid"))
    folder.write_state("complete")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", READ_BY_THREADS, str(folder.path)], check=True, timeout=60)
