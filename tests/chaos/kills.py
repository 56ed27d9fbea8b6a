"""Kind 2: kills against the server's truth. The simulator logs which answers it completed; whatever it completed longer
before a kill than the log's flush interval must be in the run's log."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from inferometer.cli.errors import EXIT_CODES
from inferometer.store.folder import load_run

from .commands import Command, Ended, Ground, StoppedError
from .trial import Attempt, Trial

RATE, LOAD_S = 60, 7.0
FLUSHED_S = 1.0  # half a second between two flushes, looked at every quarter; the rest is for a busy machine
BEGUN_S = 30.0  # for a command to begin its load
ENDED_S = 60.0  # for a command to end after a kill
WORKER, OBSERVER, SERVER = "inferometer.scale.worker", "inferometer.observe.watch", "inferometer.simulator"
SETTINGS = {"frontend": 0, "step_time": {"base": 0.005, "prefill_token": 0, "decode_sequence": 0}}
FAILED, INTERRUPTED, TERMINATED = 4, 130, 143

Victims = Callable[[Command, int], list[int]]  # the processes to kill, of a command and of the server that it measures


@dataclass(frozen=True)
class Kill:
    """Who is killed, how, and with which exit codes the command may end."""

    victim: str
    signal: signal.Signals
    codes: frozenset[int]
    own: bool = False  # whether the command started the server itself

    def __str__(self) -> str:
        return f"{self.signal.name} to {self.victim}{' (a server that it started)' if self.own else ''}"


VICTIMS: dict[str, Victims] = {
    "the command": lambda command, _server: [command.pid],
    "a worker": lambda command, _server: [process.pid for process in command.child(WORKER)[:1]],
    "all workers": lambda command, _server: [process.pid for process in command.child(WORKER)],
    "the observer": lambda command, _server: [process.pid for process in command.child(OBSERVER) or command.copies()],
    "the server": lambda _command, server: [server],
    "all at once": lambda command, server: [*(process.pid for process in command.processes()), server],
}
_OWN_END = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGKILL: -signal.SIGKILL}
_WORKER_END = frozenset({FAILED, INTERRUPTED, TERMINATED})  # lost, or it passed the interrupt on
_LOST = frozenset({FAILED, 3})
_NOTHING_LOST = frozenset({0, FAILED})  # whether the short run is valid as a measurement is another matter


def _kills() -> list[Kill]:
    kills = []
    for name in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        gentle = name != signal.SIGKILL
        kills += [
            Kill("the command", name, frozenset({_OWN_END[name]})),
            Kill("a worker", name, _WORKER_END if gentle else _LOST),
            Kill("the observer", name, _NOTHING_LOST),
            Kill("the server", name, _LOST),
        ]
        kills.append(Kill("the command", name, frozenset({_OWN_END[name]}), own=True))
    kills.append(Kill("the server", signal.SIGKILL, _LOST, own=True))
    everything = frozenset({-signal.SIGKILL})
    return [*kills, Kill("all workers", signal.SIGKILL, _LOST), Kill("all at once", signal.SIGKILL, everything)]


def attempts(ground: Ground, seed: int) -> Iterator[Attempt]:
    """Every kill at some moment, then all of them again at others."""
    rng = random.Random(seed)
    kills = _kills()
    for number in itertools.count():
        for kill in rng.sample(kills, len(kills)):
            yield partial(attempt, ground, kill, rng.uniform(0.3, LOAD_S - 1.5), number)


def attempt(ground: Ground, kill: Kill, after_s: float, number: int) -> Trial:
    trial = Trial(f"{kill} after {after_s:.2f} s")
    store = ground.store()
    with ExitStack() as stack:
        url, server = ("", 0) if kill.own else stack.enter_context(_simulator())
        command = stack.enter_context(Command(ground, _run_words(url, store, number)))
        if not _load_begun(command, store):
            trial.judge(command.wait(0.0), EXIT_CODES)
            trial.faults.append(f"no load began within {BEGUN_S:.0f} s")
            return trial
        _sleep(ground, after_s)
        if kill.own:
            url, server = _own_server(command)
        truth = _completed(url)  # before the kill: a server that is killed tells nothing
        pids = VICTIMS[kill.victim](command, server)
        killed_at = time.monotonic()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, kill.signal)
        ended = command.wait(ENDED_S, since_at=killed_at)
    trial.judge(ended, kill.codes)
    if not pids:
        trial.faults.append("there was nobody to kill")
    _judge_run(trial, ground, store, truth, killed_at)
    return trial


def _run_words(url: str, store: Path, seed: int) -> list[str]:
    words = ["run", "--rate", str(RATE), "--duration", f"{LOAD_S:g}s", "--workers", "2"]
    words += ["--input-tokens", "20", "--output-tokens", "8", "--seed", str(seed), "--store", str(store), "-q"]
    words += ["--set", "target.timeout.request=10s", "--set", "stop.drain=5s"]
    own = ["--server", "simulator", "--set", f"server.args={json.dumps(SETTINGS)}"]
    return words + (["--url", url] if url else own)


def _own_server(command: Command) -> tuple[str, int]:
    [process] = command.child(f"-m {SERVER}")
    words = process.command.split()
    return f"http://127.0.0.1:{words[words.index('--port') + 1]}", process.pid


def _load_begun(command: Command, store: Path) -> bool:
    """Whether the logs of both workers hold more than their header."""
    deadline = time.monotonic() + BEGUN_S
    while command.running and time.monotonic() < deadline:
        logs = list((store / "runs").glob("*/log-?.bin"))
        if len(logs) == 2 and all(log.stat().st_size > 2000 for log in logs):
            return True
        _sleep(command.ground, 0.02)
    return False


def _judge_run(trial: Trial, ground: Ground, store: Path, truth: dict[str, float], killed_at: float) -> None:
    folders = list((store / "runs").glob("*"))
    if len(folders) != 1:
        trial.miss(len(truth), f"{len(folders)} run folders where one run was")
        return
    listed = ground.command("list", "--json", "--store", str(store))
    trial.judge(listed, {0})
    if folders[0].name not in listed.out:
        trial.miss(1, "the run is not listed")
    trial.judge(_shown(ground, store, folders[0]), {0})
    try:
        records = load_run(folders[0]).records
    except Exception as error:
        trial.miss(len(truth), f"its records cannot be read: {type(error).__name__}: {error}"[:300])
        return
    kept = set() if records is None else set(records.request_id)
    before = {id_: at for id_, at in truth.items() if at < killed_at - FLUSHED_S}
    lost = [killed_at - at for id_, at in before.items() if id_ not in kept]
    oldest = max(lost, default=0.0)
    trial.miss(
        len(lost), f"{len(lost)} of {len(before)} answers are not in the log, the oldest {oldest:.1f} s before the kill"
    )


def _shown(ground: Ground, store: Path, folder: Path) -> Ended:
    """The way that the state of the run asks for."""
    state = "partial"
    with suppress(OSError, ValueError):
        state = json.loads((folder / "run.json").read_text()).get("state", "partial")
    partial_words = [] if (folder / "summary.json").exists() and state != "partial" else ["--partial"]
    return ground.command("show", "latest", *partial_words, "--json", "--store", str(store))


@contextmanager
def _simulator() -> Iterator[tuple[str, int]]:
    """URL and process id; it outlives the commands that it serves."""
    words = [sys.executable, "-m", SERVER, "--until-stdin-closes", "--settings", json.dumps(SETTINGS)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _completed(url: str) -> dict[str, float]:
    """Ids of the answers that the server completed, and when, in seconds of the monotonic clock."""
    with urllib.request.urlopen(f"{url}/truth", timeout=20) as answer:
        requests: list[dict[str, Any]] = json.load(answer)["requests"]
    return {each["id"]: each["written_at"][-1] / 1e9 for each in requests if each["ending"] == "ok"}


def _sleep(ground: Ground, seconds: float) -> None:
    if ground.stop.wait(seconds):
        raise StoppedError
