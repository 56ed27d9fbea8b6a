"""Custom benchmarks, really run: commands, functions, timeouts, and the stored results."""

import json
import sys
from pathlib import Path

import pytest

from inferometer.cli import execute
from inferometer.conduct.benchmark import run_benchmark
from inferometer.conduct.compare import check_run, compare_runs, history_of
from inferometer.conduct.prepare import begin, prepare
from inferometer.conduct.sweep import sweep
from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError, TargetError
from inferometer.measure.values import quantities
from inferometer.plan.benchmark import Benchmark
from inferometer.store.store import open_store
from inferometer.target.process import birth

ENTRY = {"name": "decode", "value": 8.0, "unit": "ms", "direction": "lower"}


def command(code, **more):
    return Benchmark(name="mine", command=[sys.executable, "-S", "-c", code], **more)


def printing(*entries, then=""):
    return command(f"print({json.dumps(json.dumps(list(entries)))}); {then}")


def test_a_command_is_a_run_like_any_other(tmp_path: Path) -> None:
    code = "import sys; print('about to', file=sys.stderr); print('log'); print(sys.argv[1])"
    made = run_benchmark(
        command(code).model_copy(update={"command": [sys.executable, "-c", code, json.dumps(ENTRY)]}), tmp_path
    )
    kept = open_store(tmp_path).load(made.id)
    assert (kept.kind, kept.state, kept.status) == ("benchmark", "complete", "valid")
    assert quantities(kept.summary)["decode"].value == 0.008
    assert kept.environment.benchmark.exit_code == 0 and kept.environment.machine.cores
    assert (kept.folder / "stderr.log").read_text() == "about to\n" and "log" in (
        kept.folder / "stdout.log"
    ).read_text()
    assert open_store(tmp_path).runs()[0].name == "mine"


def test_a_file_that_it_writes_and_a_stale_one(tmp_path: Path) -> None:
    code = f"import json; json.dump({ENTRY!r}, open('r.json', 'w'))"
    made = run_benchmark(command(code, output="r.json", folder=str(tmp_path)), tmp_path / "store")
    assert made.status == "valid"
    stale = run_benchmark(command("pass", output="r.json", folder=str(tmp_path)), tmp_path / "store")
    assert stale.state == "failed" and "was not written" in stale.doubts[0].text


def test_a_function(tmp_path: Path, monkeypatch):
    (tmp_path / "mybench.py").write_text(
        "import numpy as np\n"
        "def decode(batch=1):\n"
        "    print('log')\n"
        "    yield {'name': 'decode', 'value': np.float32(batch), 'unit': 's', 'direction': 'lower'}\n"
        "def broken():\n    raise RuntimeError('no luck')\n"
    )
    made = run_benchmark(Benchmark(python="mybench:decode", args={"batch": 4}, folder=str(tmp_path)), tmp_path / "s")
    assert quantities(made.summary)["decode"].value == 4 and made.plan["name"] == "decode"
    broken = run_benchmark(Benchmark(python="mybench:broken", folder=str(tmp_path)), tmp_path / "s")
    assert broken.state == "failed" and "RuntimeError: no luck" in broken.doubts[0].text
    with pytest.raises(PlanError, match="mybench:none: there is no such function"):
        run_benchmark(Benchmark(python="mybench:none", folder=str(tmp_path)), tmp_path / "s")


def test_an_exit_code_is_kept_with_what_it_measured(tmp_path: Path) -> None:
    made = run_benchmark(printing(ENTRY, then="raise SystemExit(3)"), tmp_path)
    assert (made.state, made.status, made.environment.benchmark.exit_code) == ("failed", "invalid", 3)
    assert "exit status 3" in made.doubts[0].text and quantities(made.summary)["decode"]


def test_bad_output_says_what_was_expected_and_what_was_printed(tmp_path: Path) -> None:
    made = run_benchmark(command("print('42 tokens')"), tmp_path)
    text = made.doubts[0].text
    assert 'expected JSON such as {"name"' in text and "42 tokens" in text


def test_a_time_limit_ends_the_whole_family(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; sleep = [sys.executable, '-S', '-c', 'import time; time.sleep(600)']; "
        "print(subprocess.Popen(sleep, start_new_session=True).pid, flush=True); time.sleep(600)"
    )
    made = run_benchmark(command(code, timeout=1.0), tmp_path)
    assert made.state == "failed" and "took longer than 1 s and was stopped" in made.doubts[0].text
    child = int((made.folder / "stdout.log").read_text())
    assert birth(child) is None


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="none-such: could not be started"):
        run_benchmark(Benchmark(command=["none-such"]), tmp_path)
    with pytest.raises(TargetError, match="does not exist"):
        run_benchmark(Benchmark(command=["true"], folder="none-such"), tmp_path)


def test_history_comparison_and_check(tmp_path: Path) -> None:
    """A command whose numbers are told by a file, so that its history is one line."""
    file = tmp_path / "value"
    entry = "dict(name='d', value=v, unit='s', direction='lower')"
    code = f"import json; v = float(open({str(file)!r}).read()); print(json.dumps({entry}))"
    runs = []
    for value in (1.0, 1.02, 0.99, 1.01, 1.0, 0.98, 1.01, 1.3):
        file.write_text(str(value))
        runs.append(run_benchmark(command(code), tmp_path / "s"))
    assert len(history_of(runs[-1], tmp_path / "s")) == 7
    assert check_run(runs[-1].id, tmp_path / "s").status == "worse"
    (change,) = compare_runs(",".join(r.id for r in runs[:7]), runs[-1].id, tmp_path / "s").changes
    assert change.status == "worse" and change.direction == "lower"


def test_a_case_of_an_experiment(tmp_path: Path) -> None:
    said: JsonObject = {
        "benchmark": {
            "name": "sized",
            "command": [
                sys.executable,
                "-S",
                "-c",
                'import sys; print(\'[{"name": "n", "value": %s, "unit": ""}]\' % sys.argv[1])',
                "{size}",
            ],
            "args": {"size": 1},
        },
        "axes": {"args.size": [2, 4]},
    }
    prepared = prepare(said)
    sweep(prepared, begin(prepared, tmp_path), store=tmp_path)
    store = open_store(tmp_path)
    found = [quantities(store.load(entry.id).summary)["n"].value for entry in store.runs()]
    assert sorted(found) == [2, 4]


def cli(capsys, *words):
    code = execute(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_line(tmp_path: Path, capsys):
    store = ("--store", str(tmp_path))
    code, _, told = cli(capsys, "benchmark", "--name", "mine", *store)
    assert code == 2 and "needs a command or a function" in told
    code, out, _ = cli(capsys, "benchmark", "--json", *store, "--", "echo", json.dumps(ENTRY))
    document = json.loads(out)
    assert code == 0 and document["run"]["kind"] == "benchmark"
    assert document["summary"]["values"]["decode"]["value"] == 0.008
    code, out, _ = cli(capsys, "show", "latest", *store)
    assert code == 0 and "decode" in out and "8 ms" in out
    _, out, _ = cli(capsys, "rerun", "latest", "--json", *store)
    assert json.loads(out)["summary"]["values"]["decode"]["value"] == 0.008
    code, out, told = cli(capsys, "benchmark", "--json", *store, "--", "echo", "nothing")
    assert code == 4 and "expected JSON" in told and json.loads(out)["run"]["state"] == "failed"
