"""The commands as people call them: real runs of the simulator over loopback; as real processes where they end by
signals, closed pipes and full disks."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import command_line
from command_line import NOTHING
from inferometer.cli.errors import INVALID
from inferometer.conduct.instrument import curve_of, keep_curve
from measured import assert_ran

QUICK = ("--server", "simulator", "--set", "server.args.speed=20", "--output-tokens", "8", "--input-tokens", "16")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all: with a calibration in it, so that no run makes one first."""
    folder = tmp_path_factory.mktemp("store")
    keep_curve(curve_of([]), folder)
    return folder


def command(store: Path, *arguments: str, environ: Mapping[str, str] = NOTHING) -> subprocess.CompletedProcess[str]:
    return command_line.command(*arguments, store=store, environ=environ)


def environment(store: Path) -> dict[str, str]:
    return {**os.environ, "INFEROMETER_STORE": str(store), "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def kept(store: Path) -> dict[str, Any]:
    """A run as `--json` prints it."""
    made = command(store, "run", *QUICK, "--rate", "200", "--requests", "200", "--json", "--slowest", "2")
    assert_ran(made.returncode, made.stderr)
    document: dict[str, Any] = json.loads(made.stdout)  # one document and nothing else
    return document


def test_json_has_what_it_promises(kept: dict[str, Any]) -> None:
    assert {"schema", "run", "verdict", "summary", "plan", "environment", "slowest"} <= kept.keys()
    assert kept["verdict"]["status"] in ("valid", "doubtful", "invalid")
    summary = kept["summary"]
    wanted = {"unit", "count", "mean", "std", "min", "max", "p50", "p90", "p95", "p99"}
    for name in ("ttft", "ttft_scheduled", "tpot", "itl", "icl", "ntpot", "e2e", "queue_wait", "send_delay"):
        assert wanted <= summary["measures"][name].keys(), name
    assert summary["outcomes"]["ok"] == 200
    assert summary["rates"] and summary["stages"] == []
    assert len(kept["slowest"]) == 2


def test_show_list_and_rerun_know_the_run(store: Path, kept: dict[str, Any]) -> None:
    id_ = kept["run"]["id"]
    shown = command(store, "show", id_, "--more")
    assert shown.returncode == 0
    assert shown.stdout.startswith(kept["verdict"]["status"].upper())
    assert str(kept["run"]["folder"]) in shown.stdout
    again = json.loads(command(store, "show", id_.split("-", 2)[2], "--json").stdout)
    assert again == {name: value for name, value in kept.items() if name != "slowest"}
    listed = json.loads(command(store, "list", "--json").stdout)["runs"]
    assert id_ in [entry["id"] for entry in listed]
    assert id_ in command(store, "list").stdout
    done = command(store, "rerun", id_, "--json", "-q")
    assert_ran(done.returncode, done.stderr)
    rerun = json.loads(done.stdout)
    assert rerun["run"]["id"] != id_
    assert rerun["plan"] == kept["plan"]
    assert json.loads(command(store, "show", "--json").stdout)["run"]["id"] == rerun["run"]["id"]


def test_a_failed_limit_ends_with_1(store: Path) -> None:
    made = command(store, "run", *QUICK, "--requests", "100", "--limit", "ttft p50 < 1us")
    assert "✗ ttft p50 < 1us: not met" in made.stdout
    if made.returncode == 1:
        assert "error: a limit failed: ttft p50 < 1us" in made.stderr
    else:
        assert made.returncode == INVALID
        assert_ran(made.returncode, made.stderr)


def test_the_simulator_is_started_and_said_so(store: Path) -> None:
    made = command(store, "run", "--requests", "20", "--output-tokens", "4")
    assert_ran(made.returncode, made.stderr)
    assert "note: no --url and no --server: measuring the built-in simulator" in made.stderr
    assert "\x1b" not in made.stdout + made.stderr and "\r" not in made.stderr  # quiet in a pipe


def test_requests_that_all_fail_end_with_4(store: Path) -> None:
    """The server was reached and answered, if only with errors: 3 is for one that was never reached."""
    made = command(store, "run", *QUICK, "--requests", "20", "--set", "target.headers.x-simulate-fault=status=503")
    assert made.returncode == 4, made.stderr
    assert "error: not valid as a measurement" in made.stderr
    assert "None of 20 requests was answered (20 × HTTP 503); most often: simulated fault" in made.stdout
    assert "20 of 20 requests (100%)" in made.stdout


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # bound and not listening: nobody else takes it, nobody answers
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_an_unreachable_target_ends_with_3(store: Path, closed_port: int) -> None:
    made = command(store, "run", "--url", f"http://127.0.0.1:{closed_port}")
    assert made.returncode == 3
    assert made.stderr.startswith(f"error: http://127.0.0.1:{closed_port} refused the connection")
    assert "hint:" in made.stderr and made.stdout == ""


def test_a_store_that_cannot_be_written_is_known_before_the_load(tmp_path: Path) -> None:
    """Not by permissions: root may write everywhere."""
    (tmp_path / "file").write_text("in the way")
    refused = command(tmp_path / "file" / "store", "run", *QUICK, "--requests", "5")
    assert refused.returncode == 2
    assert "not a directory" in refused.stderr
    assert "--store" in refused.stderr
    assert "started" not in refused.stderr


def test_a_full_disk_loses_nothing_that_was_written(store: Path) -> None:
    """A limit on the size of files stands for the disk: the log breaks off, what it has is valid."""
    load = ("--rate", "200", "--requests", "2000", "--quiet")
    limited = f"ulimit -f 256; exec {sys.executable} -m inferometer run {' '.join((*QUICK, *load))}"
    broken = subprocess.run(
        ["bash", "-c", limited], env=environment(store), capture_output=True, text=True, timeout=60, check=False
    )
    assert broken.returncode == 2, broken.stderr
    assert "error: " in broken.stderr
    assert "Traceback" not in broken.stderr
    shown = command(store, "show", "--partial", "--json")
    assert json.loads(shown.stdout)["summary"]["outcomes"]["ok"] > 20


def test_every_mistake_of_a_plan_at_once(store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "load: {type: poisson, rate: -2}\ntarget: {url: ftp://x}\nworkloads: 1\nseed: x\nwarmup: {requests: -1}\n"
    )
    for arguments in (["plan", "check", str(plan)], ["run", str(plan)]):
        made = command(store, *arguments)
        assert made.returncode == 2
        assert len(re.findall("^error: ", made.stderr, re.MULTILINE)) == 5
        assert "load.rate must be greater than 0, got -2" in made.stderr


def test_plan_check_show_and_schema(store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("load: {rate: 5}\nstop: 60s\n")
    assert command(store, "plan", "check", str(plan)).stdout == f"{plan}: ok\n"
    whole = tmp_path / "whole.yaml"
    whole.write_text(command(store, "plan", "show", str(plan)).stdout)
    assert "input_tokens: 256" in whole.read_text()
    assert command(store, "plan", "show", str(whole)).stdout == whole.read_text()
    assert json.loads(command(store, "plan", "schema").stdout)["title"] == "Inferometer plan"


def test_a_dry_run_is_a_plan_and_a_curl_command_without_secrets(store: Path, tmp_path: Path) -> None:
    made = command(
        store,
        *("run", "--dry-run", "--url", "http://me:pass@localhost:8000/v1", "--api", "chat", "--model", "m"),
        *("--set", "target.headers.X-Api-Key=hidden", "--set", 'target.headers.X-Name=a"b$c'),
        *("--set", "sampling.extra.password=hidden"),
        environ={"OPENAI_API_KEY": "hidden"},
    )
    assert made.returncode == 0
    assert "hidden" not in made.stdout and "pass@" not in made.stdout
    curl = "\n".join(line[2:] for line in made.stdout.split("# the first request:")[1].splitlines()[1:])
    echo = subprocess.run(
        ["sh", "-c", curl.replace("curl", "printf '%s\\n'", 1)],
        env={"OPENAI_API_KEY": "sk-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = echo.stdout.splitlines()
    assert "http://***@localhost:8000/v1/chat/completions" in words
    assert "Authorization: Bearer sk-1" in words and 'X-Name: a"b$c' in words
    body = json.loads(words[-1])
    assert body["model"] == "m" and body["stream"] is True and body["messages"]
    plan = tmp_path / "plan.yaml"
    plan.write_text(made.stdout)
    assert command(store, "plan", "check", str(plan)).returncode == 0


def test_nobody_reads_the_rest(store: Path, kept: dict[str, Any]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "inferometer", "show", kept["run"]["id"], "--measures"],
        env=environment(store),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert said == b""


def test_help_into_a_closed_pipe_is_no_failed_limit(store: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "inferometer", "run", "--help"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 141


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_standard_files_get_nothing_of_ours(store: Path, closed: str) -> None:
    words = f"{sys.executable} -m inferometer run {' '.join(QUICK)} --requests 20 --rate 200 {closed}"
    ended = subprocess.run(["sh", "-c", words], env=environment(store), capture_output=True, text=True)
    assert ended.returncode in (0, INVALID), ended.stderr  # whatever the machine was busy with
    assert "Traceback" not in ended.stderr
    logs = [file for run in (store / "runs").iterdir() for file in run.iterdir() if file.suffix in (".json", ".log")]
    assert not any(b"see more" in file.read_bytes() for file in logs)  # printed into a file that had number 1


def test_bytes_that_are_no_text_are_a_mistake(store: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\xffb")
    (tmp_path / "plan.json").write_text('{"name": "\\ud800x", "load": {"\\udfff": 1}}')
    for words, environ in (
        (("list", odd), NOTHING),
        (("run", "--name", odd), NOTHING),
        (("list",), {"INFEROMETER_STORE": odd}),
    ):
        refused = command_line.command(*words, environ=environ)
        assert refused.returncode == 2 and "UTF-8" in refused.stderr, refused.stderr
    refused = command(store, "plan", "check", str(tmp_path / "plan.json"))
    assert refused.returncode == 2
    assert "name must be text in UTF-8, got \\ud800x" in refused.stderr
    assert "load must have names in UTF-8, got \\udfff" in refused.stderr


def test_a_secret_of_any_bytes_is_no_obstacle(store: Path) -> None:
    ended = command(store, "run", *QUICK, "--requests", "9", environ={"HF_TOKEN": os.fsdecode(b"\xff\xfe") + "x" * 20})
    assert_ran(ended.returncode, ended.stderr)


def started_run(store: Path, *more: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A long run, once it has logged something."""
    (store / "runs").mkdir(exist_ok=True)
    before = set((store / "runs").iterdir())
    load = ("--rate", "200", "--duration", "60s", "--json", "-q")
    process = subprocess.Popen(
        [sys.executable, "-m", "inferometer", "run", *QUICK, *load, *more],
        env=environment(store),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        new = set((store / "runs").iterdir()) - before
        if new and any(log.stat().st_size > 20_000 for log in next(iter(new)).glob("log-[0-9]*.bin")):
            return process, new.pop()
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the run logged nothing")


def test_a_killed_run_is_shown_as_far_as_it_came(store: Path) -> None:
    process, folder = started_run(store)
    process.kill()
    process.communicate(timeout=60)
    plain = command(store, "show", folder.name)
    assert plain.returncode == 2 and "--partial" in plain.stderr
    partial = command(store, "show", folder.name, "--partial", "--json")
    assert partial.returncode == 0, partial.stderr
    assert json.loads(partial.stdout)["summary"]["outcomes"]["ok"] > 0
    assert command(store, "show", folder.name, "--partial").stdout.count("partial") >= 1


def test_a_killed_run_of_several_workers_has_no_failures_that_were_none(store: Path) -> None:
    """The workers cancel what is in flight; the simulator, which lost the same parent, must not end before that."""
    slow = ("--set", "server.args.speed=1", "--set", "server.args.step_time.base=20ms", "--output-tokens", "50")
    process, folder = started_run(store, "--workers", "2", *slow)
    process.kill()
    process.communicate(timeout=60)  # the workers hold its stdout until they end
    assert _awaited(lambda: all(b"ended" in log.read_bytes()[-2000:] for log in folder.glob("log-[0-9]*.bin")))
    outcomes = json.loads(command(store, "show", folder.name, "--partial", "--json").stdout)["summary"]["outcomes"]
    assert outcomes.get("cancelled")
    assert {word for word, n in outcomes.items() if n} <= {"ok", "cancelled"}


def _awaited(done: Callable[[], bool], within_s: float = 15) -> bool:
    deadline = time.monotonic() + within_s
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)
    return done()


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    listed = command(tmp_path, "list")
    assert listed.returncode == 0 and "create one: inferometer run" in listed.stdout
    shown = command(tmp_path, "show")
    assert shown.returncode == 2 and "inferometer run" in shown.stderr


def test_an_hour_of_simulated_load(store: Path) -> None:
    made = command(store, "simulate", "--rate", "0.5", "--duration", "1h", "--output-tokens", "20", "--json")
    document = json.loads(made.stdout)
    assert document["summary"]["window"]["length_s"] == pytest.approx(3600, rel=0.01)
    assert document["summary"]["outcomes"]["ok"] == pytest.approx(1800, rel=0.1)
    assert document["run"]["folder"] is None


def test_run_ids_complete(store: Path, kept: dict[str, Any]) -> None:
    words = {"_INFEROMETER_COMPLETE": "bash_complete", "COMP_WORDS": "inferometer show 2", "COMP_CWORD": "2"}
    called = [sys.executable, "-m", "inferometer"]
    made = subprocess.run(called, env=environment(store) | words, capture_output=True, text=True, check=False)
    assert kept["run"]["id"] in made.stdout
