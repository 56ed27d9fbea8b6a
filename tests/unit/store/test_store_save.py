"""Saving complete runs."""

from pathlib import Path

from inferometer.record.environment import Environment
from inferometer.record.run import document
from inferometer.record.summary import Summary, Value
from inferometer.record.verdict import Verdict
from inferometer.store.folder import load_run
from inferometer.store.save import keep
from inferometer.store.store import open_store
from plain_data import at


def test_a_run_in_one_piece_is_kept_with_its_kind_source_and_files(tmp_path: Path) -> None:
    kept = keep(
        tmp_path,
        kind="latency",
        source="vllm-bench-latency",
        plan={"name": "batch"},
        environment=Environment(),
        summary=Summary(values={"avg": Value(value=1.0, unit="s", direction="lower")}),
        verdict=Verdict(status="valid"),
        files={"source.json": b"{}"},
    )
    assert kept.folder is not None
    again = load_run(kept.folder)
    assert (again.kind, again.source, again.state, again.records) == (
        *("latency", "vllm-bench-latency", "complete"),
        None,
    )
    assert (kept.folder / "source.json").read_bytes() == b"{}"
    assert at(document(again), "run", "kind") == "latency"
    assert open_store(tmp_path).find("latest") == kept.folder


def test_a_run_of_before_there_were_kinds_served(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "inferometer/run/1", "started": "", "state": "complete"}')
    assert (load_run(tmp_path).kind, load_run(tmp_path).source) == ("serving", None)
