"""A search on the simulator, over the wire, as a person does it."""

import json
from pathlib import Path

from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.store.experiments import experiments_of, load_experiment
from inferometer.store.opening import open_store

SLOW = ["--set", "server.args.step_time.base=20ms", "--server", "simulator", "--output-tokens", "8"]


def test_a_search_keeps_its_steps_as_runs_and_itself_as_an_experiment(tmp_path: Path) -> None:
    words = ["search", *SLOW, "--limit", "e2e p50 < 400ms", "--over", "concurrency", "--concurrency", "2"]
    more = ["--set", "server.args.max_sequences=4", "--step", "1s", "--steps", "8", "--store", str(tmp_path), "--json"]
    done = CliRunner().invoke(group, [*words, *more, "--quiet"], standalone_mode=False)
    assert done.exception is None, done.output
    found = json.loads(done.stdout)
    assert found["axis"] == "concurrency"
    assert found["limits"] == ["e2e p50 < 400ms"]
    # 9 steps of 20 ms in an engine of 4 sequences: up to 8 at once two rounds, 360 ms and some; with more, three
    assert found["low"] is not None and 2 <= found["low"] <= 10
    (kept,) = experiments_of(tmp_path)
    assert (kept.kind, kept.id) == ("search", found["id"])
    assert kept.folder is not None and load_experiment(kept.folder).result is not None
    runs = open_store(tmp_path).runs()
    assert {case["run"] for case in kept.cases} == {entry.id for entry in runs}
    assert {entry.experiment for entry in runs} == {kept.id}


def test_a_search_without_a_limit_says_what_to_add(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["search", "--store", str(tmp_path)], standalone_mode=False)
    assert "needs a limit" in str(done.exception)
