"""Runs that end by Ctrl-C, fail because of a local resource, or use an endpoint that does not stream."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dying_servers import LONG, FailingServer, always, failing_server

import command_line
from inferometer.conduct.instrument import curve_of, keep_curve

ANSWERED = 60  # requests of the load; one more came before it, to try the endpoint
SMALL = ("--input-tokens", "16", "--output-tokens", "2", "--json")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    keep_curve(curve_of([]), tmp_path / "store")
    return tmp_path / "store"


def environment(store: Path) -> dict[str, str]:
    return {**os.environ, "INFEROMETER_STORE": str(store), "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}


def command(store: Path, server: FailingServer, *words: str, files: int | None = None) -> Any:
    """A run on the server, as (exit code, document or None, stderr); with so many open files at most."""
    run = ("run", "--url", server.url, *words)
    done = command_line.command(*run, store=store) if files is None else limited_command(store, files, *run)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def limited_command(store: Path, files: int, *words: str) -> "subprocess.CompletedProcess[str]":
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return subprocess.run(
        [sys.executable, "-m", "inferometer", *words],
        env=environment(store),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limited,
    )


def codes(document: dict[str, Any], kind: str = "doubts") -> set[str]:
    return {reason["code"] for reason in document["verdict"][kind]}


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


def lines_of(fd: int) -> Iterator[str]:
    """What comes through a pipe or a terminal, line by line, until its other end is closed."""
    pending = b""
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:  # how a terminal says it
            data = b""
        if not data:
            yield pending.decode()
            return
        *whole, pending = (pending + data).split(b"\n")
        yield from (line.decode() for line in whole)


def interrupted_twice(store: Path, workers: int, terminal: bool, hold: bool = False) -> tuple[dict[str, Any], str]:
    """The document of such a run and what stderr says after the first Ctrl-C. With `hold`, one of the workers hears of
    neither before both were sent."""
    near, far = pty.openpty() if terminal else os.pipe()
    load = ("--concurrency", "6", "--workers", str(workers), "--duration", "60s", *SMALL)
    with failing_server(lambda number: "ok" if number <= ANSWERED else "hang", counting=True) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "inferometer", "run", "--url", server.url, *load],
            env=environment(store),
            stdout=subprocess.PIPE,
            stderr=far,
            text=True,
            start_new_session=True,
        )
        os.close(far)
        server.await_hanging(6)
        held = workers_of(process.pid)[:1] if hold else []
        for worker in held:
            os.kill(worker, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        stderr = lines_of(near)
        assert any("note: finishing 6 requests; interrupt again to stop now" in line for line in stderr)
        process.send_signal(signal.SIGINT)
        for worker in held:
            await_pending(worker)
            os.kill(worker, signal.SIGCONT)
        out, _ = process.communicate(timeout=60)
        rest = "\n".join(stderr)
    os.close(near)
    document = json.loads(out)
    assert (process.returncode, document["run"]["state"]) == (130, "interrupted"), rest
    return document, rest


def workers_of(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"inferometer.scale.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def await_pending(pid: int) -> None:
    """Wait until two different signals lie before a stopped process."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if int(status["ShdPnd"], 16).bit_count() == 2:
            return
        time.sleep(0.01)
    raise AssertionError(f"signals of {pid} never came")


def test_a_worker_that_hears_both_at_once_keeps_what_it_cancelled(store: Path) -> None:
    """The kernel merges equal signals: a second SIGINT is lost on a process that has not heard the first."""
    document, _ = interrupted_twice(store, workers=2, terminal=False, hold=True)
    assert document["summary"]["outcomes"] == {"ok": ANSWERED, "cancelled": 6}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("terminal", [False, True])
def test_the_first_says_what_is_waited_for_and_the_second_stops_at_once(
    store: Path, workers: int, terminal: bool
) -> None:
    """The server counts a request as it comes: those that we cancelled are not somebody else's."""
    document, rest = interrupted_twice(store, workers, terminal)
    assert document["summary"]["outcomes"] == {"ok": ANSWERED, "cancelled": 6}
    assert "interrupted; the measurements so far are stored" in rest and "finishing" not in rest
    conserved = document["summary"]["server"]["conservation"]["requests"]
    assert (conserved["client"], conserved["unsure"], conserved["server"], conserved["agree"]) == (
        *(ANSWERED, 6, ANSWERED + 6, True),
    )
    assert "interrupted" in codes(document) and "not_conserved" not in codes(document)


# -- what this machine has not ---------------------------------------------------------------------------------------


def test_more_connections_than_open_files_are_refused_before_the_load(store: Path) -> None:
    with failing_server(always("ok")) as server:
        code, document, stderr = command(store, server, "--concurrency", "100", *SMALL, files=96)
        assert server.asked == 0
    assert (code, document) == (2, None)
    assert "error: 100 connections at once need 132 open files, and this process may have 96" in stderr
    assert "hint: raise nofile" in stderr and "--workers 2" in stderr


def test_the_soft_limit_is_raised_as_far_as_needed(store: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard})); "
        "from inferometer.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    with failing_server(always("ok")) as server:
        words = ("run", "--url", server.url, "--concurrency", "80", "--requests", "160", *SMALL)
        done = subprocess.run(
            [sys.executable, "-c", few, *words],
            env=environment(store),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert json.loads(done.stdout)["summary"]["outcomes"] == {"ok": 160}, done.stderr


def test_what_fails_here_is_not_the_servers_failure(store: Path) -> None:
    """An open loop on a server that keeps all connections: nobody knows before how many it takes."""
    load = ("--rate", "200", "--requests", "160", "--set", "target.preconnect=false", "--set", "stop.drain=1s")
    kept = ("--limit", "failure_rate < 1%")
    with failing_server(lambda number: "ok" if number <= ANSWERED else "hang") as server:
        code, document, stderr = command(store, server, *load, *kept, *SMALL, files=64)
    outcomes = document["summary"]["outcomes"]
    assert outcomes["client"] > 20 and outcomes["ok"] == ANSWERED and set(outcomes) <= {"ok", "client", "unfinished"}
    assert document["summary"]["failures"]["failure_rate"] == 0
    assert (code, document["verdict"]["status"]) == (4, "invalid"), stderr
    first = document["verdict"]["doubts"][0]
    assert first["code"] == "client_failed" and "failed on this machine, not at the server" in first["text"]
    assert "Too many open files" in first["text"] and "ulimit -n" in first["remedy"]
    assert "failed_requests" not in codes(document) | codes(document, "notes")


# -- an endpoint that does not stream --------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["whole", "one event"])
@pytest.mark.parametrize(
    ("limit", "status", "code"), [("ttft p50 < 10s", "invalid", 4), ("e2e p50 < 10s", "doubtful", 0)]
)
def test_an_endpoint_that_ignores_stream(store: Path, answer: str, limit: str, status: str, code: int) -> None:
    load = ("--concurrency", "2", "--requests", "60", "--limit", limit, "--input-tokens", "16", "--json")
    with failing_server(always(answer)) as server:
        ended, document, stderr = command(store, server, *load, "--output-tokens", str(LONG))
    doubt = next(reason for reason in document["verdict"]["doubts"] if reason["code"] == "not_streamed")
    assert doubt["status"] == status
    if codes(document) == {"not_streamed"}:  # a busy machine may add doubts of its own
        assert (ended, document["verdict"]["status"]) == (code, status), stderr
    assert "TTFT is not a measurement here, it equals E2E" in doubt["text"]
    measures = document["summary"]["measures"]
    assert measures["ttft"]["mean"] == measures["e2e"]["mean"] and not measures["tpot"]["count"]


def test_a_stream_that_was_not_requested_is_no_doubt(store: Path) -> None:
    load = ("--concurrency", "2", "--requests", "60", "--set", "target.stream=false", "--input-tokens", "16", "--json")
    with failing_server(always("whole")) as server:
        _, document, _ = command(store, server, *load, "--output-tokens", str(LONG))
    assert "not_streamed" not in codes(document)
