"""Tags, baselines, retention, and modified files: reported, not deleted, never lost."""

import json
import os
import shutil
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec  # noqa: F401  its registry keeps what was opened
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from inferometer.cli.group import group
from inferometer.errors import MissingExtra, PlanError, StoreError
from inferometer.record.columns import Records
from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import Rate, Summary
from inferometer.record.verdict import Verdict
from inferometer.store import databases
from inferometer.store import tables as migrations
from inferometer.store.databases import INDEX
from inferometer.store.entry import Entry, flat
from inferometer.store.folder import load_run
from inferometer.store.manifest import MARKS, Marks, marks_bytes
from inferometer.store.save import keep
from inferometer.store.store import open_store
from inferometer.store.upkeep import Rule, chosen, verify

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def kept(store: Path, day: int = 1, **fields: Any) -> Run:
    usual: dict[str, Any] = {
        "kind": "serving",
        "started": datetime(2026, 11, day, tzinfo=UTC),
        "plan": {"name": "n"},
        "environment": Environment(),
        "summary": Summary(rates={"output_rate": Rate(value=1.5)}, outcomes={"ok": 1}),
        "verdict": Verdict(status="valid"),
        "records": Records.of([Record(session=1, scheduled_at=1)]),
    }
    return keep(store, **usual | fields)


def said(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(group, [*arguments, "--store", str(store)], standalone_mode=False)


def test_tags_find_runs_and_survive_the_index(tmp_path: Path) -> None:
    older, newer = kept(tmp_path, 1), kept(tmp_path, 2)
    store = open_store(tmp_path)
    store.tag(older.id, ["nightly", "v0.24"])
    store.tag(newer.id, ["nightly"])
    for file in tmp_path.glob(f"{INDEX}*"):
        file.unlink()
    assert [entry.tags for entry in store.runs()] == [("nightly",), ("nightly", "v0.24")]
    assert store.entry("nightly").id == newer.id
    assert [entry.id for entry in store.runs(tag="v0.24")] == [older.id]
    store.untag(older.id, ["nightly"])
    store.reindex()
    assert [entry.id for entry in store.runs(where=["tag=nightly"])] == [newer.id]


def test_a_baseline_moves_and_the_last_word_counts(tmp_path: Path) -> None:
    first, second = kept(tmp_path, 1), kept(tmp_path, 2)
    store = open_store(tmp_path)
    store.set_baseline("main", first.id)
    store.set_baseline("main", second.id)
    store.reindex()
    assert store.baseline("main").id == second.id
    assert store.find("main") == second.folder
    store.remove_baseline("main")
    store.set_baseline("other", first.id)
    with pytest.raises(StoreError, match="no baseline 'main'; there are other"):
        store.baseline("main")


def test_a_deleted_baseline_is_named(tmp_path: Path) -> None:
    run, _ = kept(tmp_path, 1), kept(tmp_path, 2)
    store = open_store(tmp_path)
    store.set_baseline("main", run.id)
    assert run.folder is not None
    shutil.rmtree(run.folder)
    for ask in (store.baseline, store.find):
        with pytest.raises(StoreError, match=f"baseline 'main' was run {run.id}.*which was deleted") as raised:
            ask("main")
        assert raised.value.hint == "choose another: inferometer store baseline main RUN"


def test_a_run_may_be_kept_with_its_tags(tmp_path: Path) -> None:
    run = kept(tmp_path, files={MARKS: marks_bytes(Marks().tagged("imported", "of-somebody"))})
    store = open_store(tmp_path)
    store.untag(run.id, ["of-somebody"])
    assert store.entry("imported").tags == ("imported",)
    assert dict(verify(store)) == {run.id: []}


def test_words_that_cannot_be_tags(tmp_path: Path) -> None:
    run = kept(tmp_path)
    for word in ("two words", "", "-x", "a,b"):
        with pytest.raises(PlanError, match="is not a valid name"):
            open_store(tmp_path).tag(run.id, [word])


def test_a_case_of_an_experiment(tmp_path: Path) -> None:
    run = kept(tmp_path)
    store = open_store(tmp_path)
    store.set_case(run.id, "sweep-1", "rate=10")
    store.reindex()
    (entry,) = store.runs(experiment="sweep-1")
    assert (entry.id, entry.case) == (run.id, "rate=10")


def test_runs_of_one_identity_are_one_history(tmp_path: Path) -> None:
    stack = {"target": {"server": "vllm", "model": "m"}}
    a = kept(tmp_path, 1, environment=environment_from({"target": {**stack["target"], "version": "1"}}))
    kept(tmp_path, 2, plan={"load": {"rate": 9}}, environment=environment_from(stack))
    b = kept(tmp_path, 3, environment=environment_from({"target": {**stack["target"], "version": "2"}}))
    store = open_store(tmp_path)
    identity = store.entry(a.id).identity
    assert identity is not None
    line = store.history(identity, columns=["output_rate"])
    assert [(entry.id, entry.engine_version, entry.values["output_rate"]) for entry in line] == [
        (a.id, "1", 1.5),
        (b.id, "2", 1.5),
    ]


def entry(day: int, **fields: Any) -> Entry:
    started = datetime(2026, 11, day, tzinfo=UTC).isoformat()
    usual: dict[str, Any] = {"id": f"run-{day}", "started_at": started, "state": "complete", "folder": Path()}
    return Entry(**usual | fields)


def test_what_may_go_and_what_is_spared() -> None:
    entries = [
        entry(14, state="partial"),
        entry(9),
        entry(8, tags=("keep",)),
        entry(7),
        entry(6),
        entry(5, started_at=""),
        entry(4, state="damaged"),
        entry(3, state="partial"),
    ]
    old = chosen(entries, Rule(older_than=timedelta(days=5)), {"run-7"}, NOW)
    assert [each.id for each in old.gone] == ["run-9", "run-6", "run-3"]
    assert {each.id: why for each, why in old.spared} == {
        "run-8": "is tagged keep",
        "run-7": "is a baseline",
        "run-4": "is damaged: inspect it before deleting it",
    }
    last = chosen(entries, Rule(keep_last=6, keep_tagged=False), set(), NOW)
    assert [each.id for each in last.gone] == ["run-3"]
    both = chosen(entries, Rule(keep_last=2, older_than=timedelta(days=8), keep_tagged=False), set(), NOW)
    assert [each.id for each in both.gone] == ["run-6", "run-3"]
    assert [each.id for each in chosen(entries, Rule(keep_last=0), set(), NOW).gone] == [
        "run-9",
        "run-7",
        "run-6",
        "run-5",
        "run-3",
    ]
    with pytest.raises(PlanError, match="no rule selects runs to delete"):
        Rule()


def test_prune_says_first_and_then_deletes(tmp_path: Path) -> None:
    runs = [kept(tmp_path, day) for day in range(1, 5)]
    open_store(tmp_path).set_baseline("main", runs[0].id)
    dry = said(tmp_path, "store", "prune", "--keep-last", "2", "--dry-run")
    assert dry.stdout.splitlines() == [runs[1].id]
    assert "1 run would be deleted" in dry.stderr
    assert len(open_store(tmp_path).runs()) == 4
    said(tmp_path, "store", "prune", "--keep-last", "2")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [runs[0].id, runs[2].id, runs[3].id]
    assert len(open_store(tmp_path).runs()) == 3


# -- not as it was written --------------------------------------------------------------------------------------


def test_a_half_copied_folder_is_refused_listed_and_named(tmp_path: Path) -> None:
    run, whole = kept(tmp_path, 1), kept(tmp_path, 2)
    assert run.folder is not None
    copy = tmp_path / "runs" / "20261101-000000-half-copied"
    shutil.copytree(run.folder, copy)
    (copy / "records.parquet").unlink()
    with pytest.raises(StoreError, match=r"incomplete: records.parquet is missing, it had \d+ bytes"):
        load_run(copy)
    states = {entry.id: entry.state for entry in open_store(tmp_path).runs()}
    assert states == {copy.name: "damaged", run.id: "complete", whole.id: "complete"}
    with (copy / "records.parquet").open("wb") as file:
        file.write((run.folder / "records.parquet").read_bytes()[:-10])
    with pytest.raises(StoreError, match="bytes long, it had"):
        open_store(tmp_path).load(copy.name)
    shutil.copy(run.folder / "records.parquet", copy / "records.parquet")
    assert {entry.state for entry in open_store(tmp_path).runs()} == {"complete"}


def test_a_corrupted_parquet_file_is_named_and_the_rest_of_the_run_is_there(tmp_path: Path) -> None:
    run, fine = kept(tmp_path, 1), kept(tmp_path, 2)
    assert run.folder is not None
    file = run.folder / "records.parquet"
    file.write_bytes(b"\0" * file.stat().st_size)
    again = open_store(tmp_path).load(run.id)
    assert again.summary.outcomes == {"ok": 1}
    with pytest.raises(StoreError, match=r"records.parquet"):
        _ = again.records
    faults = dict(verify(open_store(tmp_path)))
    assert faults[fine.id] == []
    assert faults[run.id] == ["records.parquet was changed: its checksum differs"]
    result = said(tmp_path, "store", "verify")
    assert (result.return_value, result.stdout) == (1, "2 runs read, 1 damaged or changed\n")
    assert "records.parquet was changed" in result.stderr


def test_a_summary_of_another_shape_is_damaged_not_guessed(tmp_path: Path) -> None:
    run = kept(tmp_path, 1)
    assert run.folder is not None
    (run.folder / "manifest.json").unlink()
    (run.folder / "summary.json").write_text('{"schema": "inferometer/summary/1", "measures": [1, 2]}')
    open_store(tmp_path).reindex()
    assert [entry.state for entry in open_store(tmp_path).runs()] == ["damaged"]
    assert said(tmp_path, "store", "reindex").stderr.count("damaged: summary.json: measures: expected") == 1


def test_an_index_of_a_newer_version_is_refused_not_replaced(tmp_path: Path) -> None:
    kept(tmp_path)
    with sqlite3.connect(tmp_path / INDEX) as db:
        db.execute("pragma user_version = 99")
    db.close()
    result = said(tmp_path, "list")
    assert isinstance(result.exception, StoreError) and "version 99" in result.exception.message
    assert not (tmp_path / f"{INDEX}.broken").exists()


def test_an_older_index_takes_the_steps_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)
    assert len(open_store(tmp_path).runs()) == 1  # which makes the index
    steps = [*migrations.STEPS, lambda db: db.execute(text("alter table runs add column more integer default 7"))]
    monkeypatch.setattr(migrations, "STEPS", steps)
    with databases.SqliteIndex(tmp_path).reading() as db:
        assert db.execute(text("select more from runs")).scalars().all() == [7]


def test_what_a_store_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="the index cannot"):
        open_store("s3://bucket/x")
    with pytest.raises(PlanError, match="takes a folder or postgresql"):
        open_store("mysql://x/y")
    with pytest.raises(PlanError, match="takes a folder, s3"):
        open_store(tmp_path, "https://x/y")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match="'postgres'"):
        open_store("postgresql://nobody@nowhere/none", str(tmp_path / "p"))
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # may be open
    with pytest.raises(MissingExtra, match="'s3'"):
        open_store(tmp_path, "s3://one/that-nobody-opened")


def test_run_folders_beside_another_index(tmp_path: Path) -> None:
    store = open_store(tmp_path / "index", tmp_path / "disk")
    (tmp_path / "index").mkdir()
    run = keep(
        store, kind="benchmark", plan={}, environment=Environment(), summary=Summary(), verdict=Verdict(status="valid")
    )
    assert run.folder is not None and run.folder.parent == tmp_path / "disk" / "runs"
    assert store.find(run.id) == run.folder
    assert (tmp_path / "index" / INDEX).exists()


def test_what_a_killed_process_left_half_made_goes_after_a_day(tmp_path: Path) -> None:
    kept(tmp_path)
    old, new = tmp_path / "runs" / ".draft-old", tmp_path / "runs" / ".gone-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (1, 1))
    assert open_store(tmp_path).reindex().runs == 1
    assert (old.exists(), new.exists()) == (False, True)


def test_runs_of_a_batch_are_entered(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(KeyboardInterrupt), store.batch():
        kept(tmp_path, 1)
        kept(tmp_path, 2)
        raise KeyboardInterrupt
    assert len(store.runs()) == 2


# -- commands ---------------------------------------------------------------------------------------------------


def test_the_commands_a_person_types(tmp_path: Path) -> None:
    runs = [kept(tmp_path, day) for day in (1, 2)]
    assert said(tmp_path, "store", "tag", "latest", "nightly").stdout == f"{runs[1].id}: nightly\n"
    assert said(tmp_path, "store", "untag", "nightly", "nightly").stdout == f"{runs[1].id}: no tags\n"
    assert said(tmp_path, "store", "baseline", "main", runs[0].id).stdout == f"main  {runs[0].id}\n"
    assert said(tmp_path, "store", "baseline").stdout == f"main  {runs[0].id}\n"
    assert said(tmp_path, "store", "reindex").stdout == "2 runs in the index\n"
    assert said(tmp_path, "store", "verify").stdout == "2 runs read, all intact\n"
    facts = json.loads(said(tmp_path, "store", "info", "--json").stdout)
    assert (facts["runs"], facts["states"], facts["baselines"]) == (2, {"complete": 2}, {"main": runs[0].id})
    assert "complete 2" in said(tmp_path, "store", "info").stdout
    wrong = said(tmp_path, "store", "untag", "latest", "none")
    assert isinstance(wrong.exception, StoreError) and "no tag none; it has no tags" in wrong.exception.message


def test_lists_as_tables_csv_and_json(tmp_path: Path) -> None:
    runs = [kept(tmp_path, day, plan={"load": {"rate": day}}) for day in (1, 2)]
    columns = ["--columns", "id,output_rate,plan.load.rate,model"]
    table = said(tmp_path, "list", *columns, "--sort", "plan.load.rate").stdout.splitlines()
    assert table[1].split() == [runs[0].id, "1.50", "tok/s", "1", "-"]
    assert said(tmp_path, "list", *columns, "--csv").stdout.splitlines() == [
        "id,output_rate,plan.load.rate,model",
        f"{runs[1].id},1.5,2,",
        f"{runs[0].id},1.5,1,",
    ]
    document = json.loads(said(tmp_path, "list", "--where", "load.rate=1", "--json").stdout)
    assert [(run["id"], run["values"]["output_rate"], run["tags"]) for run in document["runs"]] == [
        (runs[0].id, 1.5, [])
    ]
    assert "output_rate" in said(tmp_path, "list", "--csv").stdout.splitlines()[0]
    nothing = said(tmp_path, "list", "--where", "load.rate=5")
    assert (nothing.stdout, nothing.stderr) == ("", "no runs match\n")


def test_a_plan_as_paths() -> None:
    plan = {"load": {"rate": 10.0, "burst": None}, "limits": ["a", {"b": True}], "headers": {"x.y": 1}}
    assert flat(plan) == {"load.rate": "10", "limits[0]": "a", "limits[1].b": "true", 'headers."x.y"': "1"}
