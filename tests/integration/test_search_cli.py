"""A search on the simulator, over sockets, from the command line."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.store.experiments import experiments_of, load_experiment
from inferometer.store.store import open_store

SLOW = ["--set", "server.args.step_time.base=20ms", "--server", "simulator", "--output-tokens", "8"]


def test_a_search_keeps_its_steps_as_runs_and_itself_as_an_experiment(tmp_path: Path) -> None:
    words = ["search", *SLOW, "--limit", "e2e p50 < 400ms", "--over", "concurrency", "--concurrency", "2"]
    more = ["--set", "server.args.max_sequences=4", "--step", "1s", "--steps", "5", "--store", str(tmp_path), "--json"]
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
    assert {case.run for case in kept.cases} == {entry.id for entry in runs}
    assert {entry.experiment for entry in runs} == {kept.id}


def test_a_search_begins_with_a_probe_and_ends_within_its_budget(tmp_path: Path) -> None:
    words = ["search", *SLOW, "--limit", "e2e p50 < 400ms", "--set", "server.args.max_sequences=4"]
    more = ["--budget", "20s", "--steps", "3", "--set", "observe=off", "--store", str(tmp_path), "--json", "--quiet"]
    done = CliRunner().invoke(group, [*words, *more], standalone_mode=False)
    assert done.exception is None, done.output
    found = json.loads(done.stdout)
    probe, steps = found["probe"], found["steps"]
    assert [level["concurrency"] for level in probe["levels"]] == [1, 4, 16]
    # an engine of 4 sequences and 9 steps of 20 ms serves 22 per second; a closed loop of 16 is beyond its limit
    assert 1 < probe["start"] < 60 and steps[0]["load"] == pytest.approx(probe["start"])
    assert probe["took_s"] + sum(step["took_s"] for step in steps) < 20 + 10  # a busy machine may hold a step up
    assert found["low"] is None or found["low"] < 60
    (kept,) = experiments_of(tmp_path)
    assert kept.cases[0].name == "probe" and kept.cases[0].run == probe["run"]
    assert {case.run for case in kept.cases} == {entry.id for entry in open_store(tmp_path).runs()}


def test_a_target_that_fails_in_the_probe_is_searched_from_the_plan_s_own_load(tmp_path: Path) -> None:
    faults = ["--set", "server.args.faults.shares={status=503: 0.5}"]
    words = ["search", *SLOW, *faults, "--limit", "e2e p50 < 400ms", "--over", "concurrency", "--set", "observe=off"]
    more = ["--step", "500ms", "--steps", "1", "--set", "load.concurrency=3", "--store", str(tmp_path), "--json"]
    done = CliRunner().invoke(group, [*words, *more, "--quiet"], standalone_mode=False)
    found = json.loads(done.stdout)
    assert found["probe"]["start"] is None
    (step,) = found["steps"]
    assert (step["load"], step["status"], step["broken"]) == (3, "misses", True)


def test_a_search_without_a_limit_says_what_to_add(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["search", "--store", str(tmp_path)], standalone_mode=False)
    assert "needs at least one limit" in str(done.exception)


def test_bounds_that_make_no_search_are_refused(tmp_path: Path) -> None:
    words = ["search", "--limit", "ttft p90 < 1s", "--store", str(tmp_path), "--least", "9", "--most", "5"]
    done = CliRunner().invoke(group, [*words, "--step", "0s", "--within", "0%"], standalone_mode=False)
    told = str(done.exception)
    assert "--least must be below --most, got 9 and 5" in told
    assert "--step must be" in told and "--within must be" in told
    assert not (tmp_path / "experiments").exists()


def test_ctrl_c_ends_a_search_with_what_it_knows(tmp_path: Path) -> None:
    words = [*SLOW, "--limit", "e2e p50 < 60s", "--rate", "20", "--step", "60s", "--store", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "inferometer", "search", *words, "--set", "observe=off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not any(log.stat().st_size > 4000 for log in tmp_path.glob("runs/*/log-0.bin")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert (found["outcome"], found["interrupted"], found["steps"]) == ("unresolved", True, [])
    (kept,) = experiments_of(tmp_path)
    assert [open_store(tmp_path).load(case.run).state for case in kept.cases] == ["interrupted"]
