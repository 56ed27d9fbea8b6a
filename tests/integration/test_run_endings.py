"""Every way a run can end, from the outside: state, status and exit code by the table of docs/concepts/verdict.md."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dying_servers import Behaviour, after, always, every, failing_server, mostly

import command_line
from inferometer.conduct.instrument import curve_of, keep_curve

OURS = {"late_sends", "own_error", "uncertain_reads"}  # what a machine under the load of other tests may add
VALID, INVALID = {"valid", "doubtful"}, {"invalid"}
DYING_SERVER = """
import os, sys
sys.argv[0] = "x"
from inferometer.simulator import server as module
join = module.SimulatorServer._join
def dying(self, answer):
    if self._number > 20:
        print("RuntimeError: CUDA error", flush=True)
        os._exit(3)
    join(self, answer)
module.SimulatorServer._join = dying
from inferometer.simulator.__main__ import main
main()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    keep_curve(curve_of([]), tmp_path / "store")
    return tmp_path / "store"


def environment(store: Path) -> dict[str, str]:
    return {**os.environ, "INFEROMETER_STORE": str(store), "NO_COLOR": "1", "COLUMNS": "200"}


def command(store: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return command_line.command(*words, store=store)


def limit(text: str) -> tuple[str, ...]:
    return ("--limit", text)


@dataclass(frozen=True)
class Ending:
    """A server's behaviour and how a run on it must end."""

    behaviour: Behaviour
    state: str
    statuses: set[str]
    code: int
    words: tuple[str, ...] = ()
    says: tuple[str, ...] = ()  # on stderr, although -q
    codes: set[str] = field(default_factory=set)  # of the verdict's reasons, among others


ENDINGS = {
    "measured": Ending(always("ok"), "complete", VALID, 0),
    "limits met": Ending(always("ok"), "complete", VALID, 0, limit("ttft p50 < 10s")),
    "limit broken": Ending(
        always("ok"), "complete", VALID, 1, limit("ttft p50 < 1us"), ("a limit failed: ttft p50 < 1us",)
    ),
    "limit broken by failures": Ending(
        every(5, "503"), "complete", INVALID, 1, limit("ttft p90 < 10s"), ("a limit failed",), {"failed_requests"}
    ),
    "limit on failures broken": Ending(
        every(5, "503"), "complete", VALID, 1, limit("failure_rate < 5%"), ("a limit failed: failure_rate < 5%",)
    ),
    "limit on failures met": Ending(every(5, "503"), "complete", VALID, 0, limit("failure_rate < 50%")),
    "limit on failures met, another broken": Ending(
        every(5, "503"), "complete", VALID, 1, (*limit("failure_rate < 50%"), *limit("ttft p90 < 10s"))
    ),
    "limit undecided": Ending(
        always("ok"), "complete", VALID, 4, limit("ttft p99.9 < 10s"), ("hint: about", "would decide it")
    ),
    "few failed": Ending(
        every(30, "503"), "complete", {"doubtful"}, 0, (), ("the model is on fire",), {"failed_requests"}
    ),
    "many failed": Ending(
        every(5, "503"),
        "complete",
        INVALID,
        4,
        (),
        ("% of requests failed (", " × HTTP 503; first error: the model is on fire"),
    ),
    "most failed": Ending(
        mostly(20, "503"), "complete", INVALID, 4, (), ("% of requests failed", "first error: "), {"failed_requests"}
    ),
    "all failed": Ending(always("503"), "complete", INVALID, 4, (), ("None of 60 requests",), {"nothing_answered"}),
    "all failed, which a limit judges": Ending(always("503"), "complete", INVALID, 1, limit("failure_rate < 5%")),
    "given up": Ending(
        always("503"), "failed", INVALID, 4, ("--set", "stop.errors=10"), ("stop.errors is 10",), {"ended_early"}
    ),
    "server lost": Ending(
        after(30, "die"), "failed", INVALID, 4, (), ("The server was lost during the run", "refused"), {"server_lost"}
    ),
    "server lost, with a limit on failures": Ending(
        after(30, "die"), "failed", INVALID, 4, limit("failure_rate < 1%"), ("The server was lost",), {"server_lost"}
    ),
    "server lost at once": Ending(
        always("die"), "failed", INVALID, 3, (), ("The server was lost", "no request was answered"), {"server_lost"}
    ),
    "never reached": Ending(always("close"), "complete", INVALID, 3, (), ("no request was answered",)),
    "unfinished": Ending(
        after(40, "slow"), "complete", {*VALID, *INVALID}, 0, ("--set", "stop.drain=50ms", "--set", "stop.duration=1s")
    ),
}


def spoilt_by_us(verdict: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in verdict["doubts"] if reason["status"] == "invalid"} & OURS


@pytest.mark.parametrize("name", ENDINGS)
def test_run(store: Path, name: str) -> None:
    wanted = ENDINGS[name]
    with failing_server(wanted.behaviour) as server:
        size = () if name == "unfinished" else ("--requests", "60")
        load = ("--concurrency", "4", *size, "--input-tokens", "4", "--output-tokens", "2")
        done = command(store, "run", "--url", server.url, *load, *wanted.words, "--json", "-q")
    document = json.loads(done.stdout)
    verdict = document["verdict"]
    found = {reason["code"] for reason in verdict["doubts"]}
    spoilt = spoilt_by_us(verdict)
    assert document["run"]["state"] == wanted.state
    assert wanted.codes <= found
    if name == "unfinished":  # what we ended ourselves has not failed
        assert document["summary"]["outcomes"]["unfinished"] and "failed_requests" not in found
        assert document["summary"]["failures"]["failure_rate"] == 0
        return
    if not spoilt:
        assert verdict["status"] in wanted.statuses, verdict
        assert done.returncode == wanted.code, done.stderr
        assert all(text in done.stderr for text in wanted.says), done.stderr
    assert (done.returncode == 0) <= (document["run"]["state"] == "complete")


def test_what_failed_leads_the_summary(store: Path) -> None:
    with failing_server(every(5, "503")) as server:
        load = ("--url", server.url, "--requests", "40", "--concurrency", "4", "--output-tokens", "2")
        invalid = command(store, "run", *load, "-q").stdout.splitlines()
        judged = command(store, "run", *load, "-q", *limit("failure_rate < 50%")).stdout.splitlines()
    text = re.compile(r"% of requests failed \(\d+ of \d+\): \d+ × HTTP 503; first error: the model is on fire")
    assert any(map(text.search, invalid[:4])), invalid[:4]
    assert any(map(text.search, judged[:2])), judged[:4]


def test_nothing_is_there(store: Path) -> None:
    with failing_server(always("ok")) as server:
        server.die()
        done = command(store, "run", "--url", server.url, "--requests", "5", "-q")
    assert done.returncode == 3 and "refused the connection" in done.stderr


@pytest.mark.parametrize("words", [("--rate", "-2"), ("--set", "load.nothing=1"), ("--no-such-flag",)])
def test_wrong_use(store: Path, words: tuple[str, ...]) -> None:
    assert command(store, "run", *words).returncode == 2


def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert command(tmp_path / "file", "run", "--requests", "2", "-q").returncode == 2


def test_our_own_server_dies(store: Path, tmp_path: Path) -> None:
    quick = json.dumps({"frontend": 0, "step_time": {"base": 0.001}})
    words = [sys.executable, "-c", DYING_SERVER, "--port", "{port}", "--settings", quick]
    plan = {
        "server": {"type": "command", "command": words},
        "workload": {"input_tokens": 16, "output_tokens": 2},
        "load": {"concurrency": 2},
        "stop": {"requests": 80},
    }
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    done = command(store, "run", str(tmp_path / "plan.yaml"), "--json", "-q")
    document = json.loads(done.stdout)
    assert (done.returncode, document["run"]["state"], document["verdict"]["status"]) == (4, "failed", "invalid")
    assert "ended with exit status 3" in done.stderr and "CUDA error" in done.stderr
    again = command(store, "rerun", document["run"]["id"], "--json", "-q")
    assert again.returncode == 4


def started(store: Path, *words: str) -> "tuple[subprocess.Popen[str], Path]":
    """A run on the simulator, once it has logged something."""
    quick = json.dumps({"frontend": 0, "step_time": {"base": 0.005}})
    load = ("--rate", "100", "--input-tokens", "16", "--output-tokens", "2", "--json", "-q")
    server = ("--server", "simulator", "--set", f"server.args={quick}")
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    process = subprocess.Popen(
        [sys.executable, "-m", "inferometer", "run", *server, *load, *words], env=environment(store), **pipes
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        logs = [*store.glob("runs/*/log-[0-9].bin")]
        if logs and all(log.stat().st_size > 5_000 for log in logs):
            return process, logs[0].parent
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"the run logged nothing: {process.communicate()}")


def children(pid: int, word: str) -> list[int]:
    """Those of a process whose command line has this word."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in listed if word in Path(f"/proc/{each}/cmdline").read_text()]


def test_a_lost_worker_is_named(store: Path) -> None:
    process, _ = started(store, "--workers", "2", "--duration", "4s")
    os.kill(children(process.pid, "inferometer.scale.worker")[-1], signal.SIGKILL)
    out, said = process.communicate(timeout=60)
    document = json.loads(out)
    assert (process.returncode, document["run"]["state"], document["verdict"]["status"]) == (4, "failed", "invalid")
    assert "error: Worker 1 of 2: its process ended with SIGKILL" in said
    assert document["verdict"]["doubts"][0]["code"] == "worker_lost"


def test_all_workers_lost(store: Path) -> None:
    process, _ = started(store, "--workers", "2", "--duration", "30s")
    for pid in children(process.pid, "inferometer.scale.worker"):
        os.kill(pid, signal.SIGKILL)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert json.loads(out)["run"]["state"] == "failed" and "Worker 0 of 2" in said and "Worker 1 of 2" in said


@pytest.mark.parametrize(("workers", "number", "code"), [(2, signal.SIGINT, 130), (1, signal.SIGTERM, 143)])
def test_interrupted(store: Path, workers: int, number: signal.Signals, code: int) -> None:
    process, folder = started(store, "--workers", str(workers), "--duration", "60s")
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    document = json.loads(out)
    assert (process.returncode, document["run"]["state"]) == (code, "interrupted"), said
    assert document["run"]["id"] == folder.name and document["summary"]["outcomes"]["ok"] > 0
    assert "interrupted" in {reason["code"] for reason in document["verdict"]["doubts"]}
    assert document["verdict"]["status"] == "doubtful" or spoilt_by_us(document["verdict"])
    assert "interrupted; the measurements so far are stored" in said


# -- everything else that makes runs -------------------------------------------------------------------------------

SHORT = ("--input-tokens", "4", "--output-tokens", "2")


def faulty(**shares: float) -> tuple[str, ...]:
    named = {name.replace("_", "="): share for name, share in shares.items()}
    return ("--set", "server.type=simulator", "--set", f"server.args.faults.shares={json.dumps(named)}")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (faulty(status_503=0.05), 0),
        (faulty(status_503=0.5), 4),
        (faulty(status_503=1.0), 4),
        ((*faulty(status_503=0.5), *limit("failure_rate < 5%")), 1),
        ((*faulty(status_503=0.5), *limit("failure_rate < 90%")), 0),
        ((*faulty(cut_1=0.5), *limit("ttft p90 < 10s")), 1),
        (limit("ttft p99.99 < 10s"), 4),
        ((*faulty(status_503=0.5), "--set", "stop.errors=5"), 4),
    ],
)
def test_simulate(store: Path, words: tuple[str, ...], code: int) -> None:
    done = command(store, "simulate", "--rate", "50", "--requests", "400", *SHORT, *words, "--json")
    assert done.returncode == code, done.stderr


def test_a_search_counts_failures_as_broken_and_ends_when_the_server_is_lost(store: Path) -> None:
    search = ("search", "--over", "concurrency", *SHORT, "--step", "400ms", "--concurrency", "2", "-q", "--json")
    keeps = limit("ttft p50 < 10s")
    with failing_server(every(5, "503")) as server:
        broken = command(store, *search, "--url", server.url, *keeps, "--steps", "2", "--least", "1")
    document = json.loads(broken.stdout)
    assert (broken.returncode, document["outcome"]) == (1, "none meets"), broken.stderr
    assert {step["status"] for step in document["steps"]} == {"misses"} and document["steps"][0]["broken"]
    with failing_server(after(60, "die")) as server:
        lost = command(store, *search, "--url", server.url, *keeps, "--steps", "12", "--most", "64")
    assert lost.returncode == 4 and "error: The server was lost during the run" in lost.stderr


def test_a_sweep_with_failing_cases(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    with ExitStack() as stack:
        good, bad = (stack.enter_context(failing_server(each)).url for each in (always("ok"), mostly(20, "503")))
        work = {"workload": {"input_tokens": 4, "output_tokens": 2}, "load": {"concurrency": 2}, "stop": 40}
        file.write_text(json.dumps({"plan": {"target": good, **work}, "axes": {"target.url": [good, bad]}}))
        done = command(store, "sweep", str(file), "-q")
    assert (
        done.returncode == 4
        and "not valid as a measurement, or a limit could not be decided, in 1 of 2 cases" in done.stderr
    )


def test_ab_with_a_server_that_is_lost(store: Path) -> None:
    with failing_server(always("ok")) as a, failing_server(after(40, "die")) as b:
        sides = ("--a", a.url, "--b", b.url, "--blocks", "3", "--block", "500ms", "--concurrency", "2")
        done = command(store, "ab", *sides, *SHORT, "-q")
    assert done.returncode == 4 and "The server was lost during the run" in done.stderr


def test_ci_says_the_same(store: Path) -> None:
    def ended(behaviour: Behaviour, *words: str) -> tuple[int, int]:
        with failing_server(behaviour) as server:
            load = ("--url", server.url, "--requests", "120", "--concurrency", "4", *SHORT)
            made = command(store, "run", *load, *words, "-q", "--json")
        return made.returncode, command(store, "ci", "--check", "none").returncode

    assert ended(mostly(20, "503")) == (4, 4)
    assert ended(after(20, "die")) == (4, 4)
    assert ended(every(5, "503"), *limit("ttft p90 < 10s")) == (1, 1)
    assert ended(every(5, "503"), *limit("failure_rate < 5%")) == (1, 1)
