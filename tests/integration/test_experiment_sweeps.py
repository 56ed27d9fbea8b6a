"""Experiments over sockets with the simulator: interrupted, resumed, failing, on a full disk."""

import csv
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.conduct import prepare as resources
from inferometer.conduct.prepare import begin, prepare, resume
from inferometer.conduct.sweep import sweep
from inferometer.documents.document import JsonObject
from inferometer.errors import StoreError
from inferometer.plan.cases import server_starts
from inferometer.show.experiment import csv_text
from inferometer.store.experiments import (
    ExperimentFolder,
    SweepDefinition,
    SweepResult,
    experiments_of,
    find_experiment,
    new_experiment,
    rows_of,
)
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import open_store
from inferometer.target.offline import open_engine
from measured import assert_ran

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAN: JsonObject = {
    "server": {"type": "simulator", "args": {"speed": 50}},
    "workload": {"input_tokens": 20, "output_tokens": 4},
    "load": {"rate": 60},
    "stop": {"requests": 12, "drain": "2s"},
    "observe": "off",
}


@pytest.fixture
def store(tmp_path: Path):
    return tmp_path / "store"


def written(folder, **said):
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump({"plan": PLAN, **said}))
    return file


def command(*words):
    return CliRunner().invoke(group, ["sweep", *map(str, words)], standalone_mode=False)


def values_of(done):
    return [(case["name"], case["parameters"], case["state"]) for case in json.loads(done.stdout)["cases"]]


def test_a_sweep_restarts_its_server_only_when_that_changes(tmp_path: Path, store):
    file = written(tmp_path, axes={"load.rate": [60, 90], "server.args.max_sequences": [8, 16]}, name="four")
    done = command(file, "--store", store, "--json", "--csv", tmp_path / "out.csv")
    assert done.exception is None, done.output
    assert_ran(done.return_value, done.output)  # a busy machine may make a case invalid, which is exit code 4
    (kept,) = experiments_of(store)
    rows = rows_of(kept, open_store(store))
    assert [row.state for row in rows] == ["complete"] * 4
    assert len(list(kept.folder.glob("server-*.log"))) == 2
    entries = open_store(store).runs(experiment=kept.id)
    assert {(entry.id, entry.case) for entry in entries} == {(row.run, row.name) for row in rows}
    lines = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [line["load.rate"] for line in lines] == ["60", "60", "90", "90"]  # as written, not as done
    assert {line["run"] for line in lines} == {row.run for row in rows}
    assert all(float(line["output_rate"]) > 0 for line in lines)
    served = [open_store(store).load(row.run).environment.server for row in rows]
    assert [(each.run_number, each.prefix_cache_reset) for each in served] == [(1, None), (2, True)] * 2


def test_killed_and_resumed_is_as_if_it_had_not_been(tmp_path: Path, store):
    said = {"axes": {"load.rate": [60, 70, 80]}, "set": {"stop.requests": 20}}
    file = written(tmp_path, **said)
    words = [sys.executable, "-m", "inferometer", "sweep", str(file), "--store", str(store)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not any(b"\n" in file.read_bytes() for file in store.glob("experiments/*/cases.jsonl")):
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
            time.sleep(0.01)
        process.kill()  # in the middle of the second case
    (lines,) = store.glob("experiments/*/cases.jsonl")
    with lines.open("ab") as half:
        half.write(b'{"name": "rate=70", "parame')  # as if it had been killed while it wrote
    dry = command(file, "--resume", "--dry-run", "--store", store)
    assert "2 cases, 1 start of a server" in dry.output
    resumed = command(file, "--resume", "--store", store, "--json")
    assert resumed.exception is None, resumed.output
    whole = command(file, "--store", store, "--json", "--fresh")
    assert values_of(resumed) == values_of(whole)
    first, second = (experiments_of(store)[at] for at in (1, 0))
    assert [case.key for case in first.latest] == [case.key for case in second.latest]
    for kept in (first, second):
        runs = [open_store(store).load(case.run) for case in kept.latest]
        assert [run.summary.outcomes for run in runs] == [{"ok": 20}] * 3
        assert isinstance(kept.result, SweepResult) and kept.result.cases == {"complete": 3}
    again = command(file, "--resume", "--store", store)
    assert "no unfinished experiment" in str(again.exception)


# slow enough that a stall of this machine does not turn the ends around
SLOW_SERVER = {"type": "simulator", "args": {"speed": 2}}
EXPLORED = {
    "low": {"load": {"concurrency": 1}, "stop.requests": 10},
    "high": {"load": {"concurrency": 24}},
    "count": 2,
    "set": {"load": {"type": "constant"}},
}


def test_levels_follow_from_what_the_ends_measured_also_when_resumed(tmp_path: Path, store):
    """The kill comes after the first end; what is found is the same whether or not it was interrupted."""
    slower = {"server": SLOW_SERVER, "workload.output_tokens": 20, "stop.requests": 40}
    file = written(tmp_path, levels=EXPLORED, set=slower)
    prepared = prepare(file)
    folder = begin(prepared, store)

    def killed(case, done):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(prepared, folder, store=store, on_begin=killed)
    assert [case.name for case in folder.load().cases] == ["low", "high", "rate 1 of 2"]
    again = command(file, "--resume", "--store", store, "--json")
    assert again.exception is None, again.output
    cases = json.loads(again.stdout)["cases"]
    assert [case["state"] for case in cases] == ["complete"] * 4
    ends = [open_store(store).load(case["run"]).summary.rates["request_rate"].span for case in cases[:2]]
    middle, top = (case["parameters"]["load.rate"] for case in cases[2:])
    assert (middle, top) == (pytest.approx(sum(ends) / 2, rel=1e-3), pytest.approx(ends[1], rel=1e-3))
    asked = [open_store(store).load(case["run"]).plan.section("load") for case in cases[2:]]
    assert [load["rate"] for load in asked] == [middle, top]
    result = experiments_of(store)[0].result
    assert isinstance(result, SweepResult) and result.cases == {"complete": 4}


def test_a_level_is_not_done_where_an_end_failed(tmp_path: Path, store):
    broken = {**EXPLORED, "high": {"server": {"type": "command", "command": ["false"], "port": 1}}}
    file = written(tmp_path, levels=broken)
    done = command(file, "--store", store, "--json", "--set", "budget.failures=2")
    assert done.return_value == 4, done.output
    cases = json.loads(done.stdout)["cases"]
    assert [case["state"] for case in cases] == ["complete", "failed", "failed", "failed"]
    assert cases[3]["error"] == "not run: its high end was not measured"


def test_another_tools_command_line_is_swept_and_resumed(tmp_path: Path, store):
    words = shlex.split("guidellm benchmark run --target http://h:1 --data prompt_tokens=20,output_tokens=20")
    words = ["--", *words, "--rate-type", "sweep", "--rate", "3", "--max-requests", "12"]
    server = f"server={json.dumps(SLOW_SERVER)}"
    changes = ["--set", "target={}", "--set", server, "--set", "observe=off", "--store", store]
    ended = command(*changes, "--set", "budget.time=1us", *words)
    assert ended.return_value == 4 and "would exceed the time budget" in ended.stderr, ended.output
    done = command(*changes, "--resume", "--json", "--set", "budget.time=1h", *words)
    assert done.exception is None, done.output
    cases = json.loads(done.stdout)["cases"]
    assert [(case["name"], case["state"]) for case in cases] == [
        *(("low", "complete"), ("high", "complete"), ("rate 1 of 1", "complete")),
    ]
    assert len(experiments_of(store)) == 1


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, store):
    file = written(tmp_path, axes={"load.rate": [60, 61]}, set={"stop": "30s"})
    words = [sys.executable, "-m", "inferometer", "sweep", str(file), "--store", str(store)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not any(log.stat().st_size > 4000 for log in store.glob("runs/*/log-0.bin")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "2 of 2 cases are left" in err and "--resume" in err
    assert "interrupted" in out
    (kept,) = experiments_of(store)
    assert [case.state for case in kept.cases] == ["interrupted"]
    assert open_store(store).load(kept.cases[0].run).state == "interrupted"


SLOW = 'import time; time.sleep(1.2); print(\'{"name": "n", "value": 1, "unit": "s", "direction": "lower"}\')'


def test_a_case_of_untold_length_is_expected_to_last_as_long_as_those_before(tmp_path: Path, store):
    """One takes more than half of the budget, so that there is no room for a second."""
    file = tmp_path / "experiment.yaml"
    benchmark = {"name": "slow", "command": [sys.executable, "-c", SLOW], "args": {"size": 1}}
    said = {"benchmark": benchmark, "axes": {"args.size": [1, 2, 3]}, "budget": {"time": "2s"}}
    file.write_text(yaml.safe_dump(said))
    done = command(file, "--store", store)
    assert done.return_value == 4 and "would exceed the time budget of 2 s" in done.stderr, done.stderr
    (kept,) = experiments_of(store)
    assert [case.state for case in kept.cases] == ["complete"]


def test_an_edited_experiment_is_not_resumed_silently(tmp_path: Path, store):
    said = {"latency": {"iters": 2, "warmup": 0}, "axes": {"batch_size": [1, 2]}}
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump({**said, "budget": {"time": "1us"}}))
    ended = command(file, "--store", store)
    assert ended.return_value == 4 and "would exceed the time budget" in ended.stderr
    file.write_text(yaml.safe_dump({**said, "axes": {"batch_size": [1, 4]}}))
    refused = command(file, "--resume", "--store", store)
    assert "axes.batch_size[1]: was 2, is 4" in str(refused.exception)
    assert "--force" in refused.exception.hint
    forced = command(file, "--resume", "--force", "--store", store, "--json")
    assert values_of(forced) == [
        ("batch_size=1", {"batch_size": 1}, "complete"),
        ("batch_size=4", {"batch_size": 4}, "complete"),
    ]


def test_a_forced_resume_keeps_the_cases_that_are_the_same(tmp_path: Path, store):
    first = prepare({"latency": {"iters": 2, "warmup": 0}, "axes": {"batch_size": [1, 2]}})
    folder = begin(first, store)
    sweep(first, folder, store=store)
    second = prepare({"latency": {"iters": 2, "warmup": 0}, "axes": {"batch_size": [2, 3]}})
    done = sweep(second, resume(second, folder.load(), force=True), store=store)
    assert [row.name for row in done.rows] == ["batch_size=2", "batch_size=3"]
    assert [case.name for case in folder.load().cases] == ["batch_size=1", "batch_size=2", "batch_size=3"]


def test_a_failing_case_is_kept_and_the_rest_go_on(tmp_path: Path, store):
    broken = {"name": "broken", "set": {"server": {"type": "command", "command": ["false"], "port": 1}}}
    file = written(tmp_path, cases=[broken, {"name": "good"}], repeats=2)
    done = command(file, "--store", store, "--json")
    assert done.return_value == 4
    cases = json.loads(done.stdout)["cases"]
    assert [(case["name"], case["state"]) for case in cases] == [
        *(("broken #1", "failed"), ("broken #2", "failed"), ("good #1", "complete"), ("good #2", "complete")),
    ]
    assert "ended" in cases[0]["error"]
    assert "not run: the server did not start for case broken #1" in cases[1]["error"]
    few = command(file, "--store", store, "--fresh", "--set", "budget.failures=1")
    assert few.return_value == 4 and "1 cases failed, which is the maximum" in few.stderr
    assert "3 of 4 cases are left" in few.stderr


def test_a_case_is_one_line_of_the_file_whatever_its_error_says(store):
    prepared = prepare({"benchmark": "printf 'one\\ntwo\\n'", "repeats": 2})
    done = sweep(prepared, begin(prepared, store), store=store)
    assert [row.state for row in done.rows] == ["failed", "failed"] and "\n" in done.rows[0].error
    head, *lines = csv_text(done.rows).splitlines()
    assert head.startswith("name,repeat,run,state") and [line[:7] for line in lines] == ["plan,1,", "plan,2,"]


def test_a_command_of_ones_own_is_a_case(tmp_path: Path, store):
    own = 'echo \'{"name": "speed", "value": {x}, "unit": "1/s", "direction": "higher"}\''
    said: JsonObject = {"benchmark": own, "axes": {"args.x": [3, 5]}}
    prepared = prepare(said)
    done = sweep(prepared, begin(prepared, store), store=store)
    assert [(row.state, row.error, row.values["speed"].value) for row in done.rows] == [
        ("complete", None, 3.0),
        ("complete", None, 5.0),
    ]


FULL = """
import resource, signal, sys
from inferometer.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
sys.argv = ["inferometer", "sweep", *sys.argv[1:]]
sys.exit(main())
"""


def test_a_store_that_fills_up_half_way_loses_nothing(tmp_path: Path, store):
    """By a limit on the size of files, which the lines of the cases outgrow; a full disk says the same."""
    said: dict[str, Any] = {
        "benchmark": 'echo \'{"name": "speed", "value": 1, "unit": ""}\'',
        "axes": {"args.text": []},
    }
    said["axes"]["args.text"] = [letter * 20_000 for letter in "abcdefghij"]
    prepared = prepare(said)
    folder = begin(prepared, store)
    words = ["--resume", folder.id, "--store", str(store)]
    done = subprocess.run([sys.executable, "-c", FULL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert f"continue where it stopped: inferometer sweep --resume {folder.id}" in done.stderr
    before = folder.load().cases
    assert 1 <= len(before) < 10
    resumed = command(*words, "--json")
    assert [case["state"] for case in json.loads(resumed.stdout)["cases"]] == ["complete"] * 10
    after = folder.load().cases
    assert after[: len(before)] == before and len(after) == 10


def test_half_a_line_is_taken_away_before_the_next(tmp_path: Path) -> None:
    prepared = prepare({"latency": {}})
    folder = begin(prepared, tmp_path)
    folder.add(ExperimentCase(name="a", state="complete"))
    with (folder.path / "cases.jsonl").open("ab") as file:
        file.write(b'{"name": "b", "st')
    folder.add(ExperimentCase(name="c", state="complete"))
    assert [case.name for case in ExperimentFolder(folder.path).load().cases] == ["a", "c"]


def test_half_an_id_that_means_two_is_not_guessed(tmp_path: Path) -> None:
    first, second = (new_experiment(tmp_path, "sweep", name, SweepDefinition()) for name in ("one", "two"))
    assert find_experiment(tmp_path, "one").id == first.id
    assert find_experiment(tmp_path, second.id).id == second.id
    with pytest.raises(StoreError, match="means 2 experiments"):
        find_experiment(tmp_path, first.id[:4])


def test_two_processes_do_not_do_the_same_experiment(tmp_path: Path) -> None:
    prepared = prepare({"latency": {}})
    folder = begin(prepared, tmp_path)
    with folder.held(), pytest.raises(StoreError, match="another process"):
        sweep(prepared, ExperimentFolder(folder.path), store=tmp_path)


SHORTER = {
    "latency-over-batch-sizes": (),
    "online-pairs": ("--set", "stop.minutes=0.004"),
    "concurrency-and-cost": ("--set", "zip=[{load.concurrency: [1, 8], stop.requests: [10, 80]}]"),
}


@pytest.mark.parametrize("name", SHORTER)
def test_the_examples_run(name, store):
    done = command(EXAMPLES / f"{name}.yaml", "--store", store, *SHORTER[name], "--json", "--quiet")
    assert done.exception is None, done.output
    assert_ran(done.return_value, done.output)  # a busy machine may make a case invalid, which is exit code 4
    cases = json.loads(done.stdout)["cases"]
    assert {case["state"] for case in cases} == {"complete"}
    for case in cases:
        match name:
            case "latency-over-batch-sizes":
                assert case["values"]["latency.mean"] > 0
            case "online-pairs":
                assert case["values"]["input_tokens.mean"] == case["parameters"]["workload.input_tokens"]
            case _:
                rate, cost = case["values"]["throughput_per_gpu"], case["values"]["cost_per_million_tokens"]
                assert cost == pytest.approx(2 * 1e6 / (rate * 3600))
                assert case["values"]["tokens_per_s_user"] == pytest.approx(1 / case["values"]["tpot.mean"])


def test_one_engine_serves_all_batch_sizes(store, monkeypatch):
    opened = []
    monkeypatch.setattr(resources, "open_engine", lambda *asked: opened.append(asked) or open_engine(*asked))
    prepared = prepare({"latency": {"iters": 2, "warmup": 0}, "axes": {"batch_size": [1, 2, 4]}})
    done = sweep(prepared, begin(prepared, store), store=store)
    means = [row.values["latency.mean"].value for row in done.rows]
    assert len(opened) == 1 and means == sorted(means)


def test_a_server_and_an_engine_are_not_kept_side_by_side(store, monkeypatch):
    """They want the memory of the same GPU; and what the dry run says of starts holds."""
    closed = []
    close = resources.Servers.close
    monkeypatch.setattr(resources.Servers, "close", lambda self: closed.append(self._server is not None) or close(self))
    offline: JsonObject = {"name": "offline", "latency": {"iters": 2, "warmup": 0}}
    prepared = prepare({"plan": PLAN, "cases": [{"name": "served"}, offline], "repeats": 2, "order": "abba"})
    folder = begin(prepared, store)
    done = sweep(prepared, folder, store=store)
    assert [row.state for row in done.rows] == ["complete"] * 4
    assert len(list(folder.path.glob("server-*.log"))) == server_starts(prepared.cases, restart_every_case=False) == 2
    assert closed.count(True) == 2


def test_what_a_class_does_to_the_others(tmp_path: Path, store):
    """A batch of long prompts fills every step of a slow engine: without it the people wait less."""
    plan = {
        "server": {"type": "simulator", "args": {"speed": 5}},
        "stop": "700ms",
        "observe": "off",
        "traffic": [
            {"name": "people", "workload": {"input_tokens": 20, "output_tokens": 5}, "load": {"rate": 40}},
            {
                "name": "batch",
                "workload": {"input_tokens": 4000, "output_tokens": 2},
                "load": {"concurrency": 6},
            },
        ],
    }
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(plan))
    done = command("--switch-off", file, "--store", store, "--set", "repeats=2")
    assert done.exception is None, done.output
    assert "people without batch" in done.output and "batch without people" in done.output
    (kept,) = experiments_of(store)
    order = [case.parameters["without"] for case in kept.cases]
    assert order == [None, "people", "batch", "batch", "people", None]
    assert isinstance(kept.result, SweepResult)
    effects = {(effect.off, effect.of): effect.comparison.changes for effect in kept.result.effects}
    assert effects.keys() == {("people", "batch"), ("batch", "people")}
    people = {change.key: change for change in effects["batch", "people"]}
    assert people["ttft_scheduled.p50"].change < -0.2
    assert people["ttft_scheduled.p50"].interval is not None


def test_the_table_lives_on_a_terminal_and_leaves_it_clean(tmp_path: Path, store):
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump({"latency": {"iters": 2, "warmup": 0}, "axes": {"batch_size": [1, 2]}}))
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "inferometer", "sweep", str(file), "--store", str(store)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}
    with subprocess.Popen(words, stderr=theirs, stdout=subprocess.PIPE, env=env) as process:
        out = process.stdout.read().decode()
        process.wait(60)
    os.close(theirs)
    seen = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "case 2 of 2: batch_size=2" in seen
    assert seen.count("\x1b[J") == 2  # drawn after each case, taken away before the next and at the end
    assert out.splitlines()[0].split() == ["batch_size", "mean", "p50", "p90", "p99"]
    assert "\x1b" not in out
