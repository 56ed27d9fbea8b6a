"""A few dozen short runs over real sockets: the same verdict on a real client, against a metronome and the simulator's
server on loopback. What the machine does meanwhile is in them: on a busy one sound runs are rightly doubted."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import inferometer
from inferometer.record.run import Run
from inferometer.simulator.metronome_process import running_metronome

from .spoilt import Settings, merged
from .table import Result, failures, sound_table, spoilt_table
from .truth import shifts

FIRST_S, INTERVAL_S = 0.05, 0.0054
WORKLOAD: Settings = {"input_tokens": 64, "output_tokens": 32}
SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A cause over sockets: what changes the plan, and what goes on in this process meanwhile."""

    codes: frozenset[str]
    base: Settings
    change: Settings
    meanwhile: Callable[[], AbstractContextManager[None]] = nullcontext
    queue: bool = False  # against a server that does one after the other


# -- meanwhile -------------------------------------------------------------------------------------------------------


@contextmanager
def busy_thread(interval_s: float) -> Iterator[None]:
    """Another thread of our process computes, and lets go of the interpreter once in a while only."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(10_000))

    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)


@contextmanager
def busy_core(others: int) -> Iterator[None]:
    """We share one core with so many processes that compute."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    code = "while True: pass"
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(others)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()
        os.sched_setaffinity(0, before)


# -- cases -----------------------------------------------------------------------------------------------------------

OPEN: Settings = {"load": {"type": "poisson", "rate": 40}, "stop": {"duration": 4}}
CLOSED: Settings = {"load": {"concurrency": 16}, "stop": {"duration": 4}}

SOUND: dict[str, Settings] = {
    "poisson 20/s": merged(OPEN, {"load": {"rate": 20}}),
    "poisson 100/s": merged(OPEN, {"load": {"rate": 100}}),
    "constant 40/s": merged(OPEN, {"load": {"type": "constant"}}),
    "one by one": merged(CLOSED, {"load": {"concurrency": 1}}),
    "closed loop of 16": CLOSED,
    "closed loop of 128": merged(CLOSED, {"load": {"concurrency": 128}}),
    "ten requests": {"load": {"concurrency": 1}, "stop": {"requests": 10}},
}
FAULTS: Settings = {"server": {"type": "simulator", "args": {}}}


def _failing(share: float) -> Settings:
    return {"server": {"args": {"faults": {"shares": {"status=500": share}}}}}


SPOILT: dict[str, list[Spoilt]] = {
    "late client": [
        Spoilt(frozenset({"late_sends", "uncertain_reads"}), base, {}, lambda s=interval_s: busy_thread(s))  # type: ignore[misc]
        for base in (OPEN, CLOSED)
        for interval_s in (0.005, 0.05)
    ],
    "starved cores": [
        Spoilt(
            frozenset({"late_sends", "uncertain_reads", "busy_machine", "busy_client"}),
            base,
            {},
            lambda n=others: busy_core(n),  # type: ignore[misc]
        )
        for base in (OPEN, CLOSED)
        for others in (3, 6)
    ],
    "cap": [Spoilt(frozenset({"held_back"}), OPEN, {"load": {"max_concurrency": most}}) for most in (4, 8)],
    "growing queue": [
        Spoilt(
            frozenset({"unbounded_queue"}), merged(OPEN, {"load": {"rate": 15}}), {"load": {"rate": rate}}, queue=True
        )
        for rate in (30, 45)
    ],
    "failing requests": [
        Spoilt(frozenset({"failed_requests"}), merged(CLOSED, FAULTS), _failing(share)) for share in (0.1, 0.4)
    ],
    "ended at the drain": [
        Spoilt(frozenset({"unfinished"}), merged(OPEN, {"stop": {"duration": 1}}), {"stop": {"drain": 0}})
    ],
}

# -- runs ------------------------------------------------------------------------------------------------------------


def _measured(settings: Settings, seed: int, url: str, store: Path) -> Run:
    plan: dict[str, Any] = {"workload": WORKLOAD, **settings, "seed": seed}
    return inferometer.run(plan if "server" in plan else {**plan, "target": {"url": url}}, store=store)


def _result(cause: str, name: str, seed: int, run: Run, **more: Any) -> Result:
    texts = tuple(doubt.text for doubt in run.doubts)
    return Result(cause, name, seed, run.status or "none", tuple(doubt.code for doubt in run.doubts), texts, **more)


def _sound(url: str, store: Path) -> list[Result]:
    return [
        _result("sound, sockets", name, seed, _measured(settings, seed, url, store))
        for name, settings in SOUND.items()
        for seed in SEEDS
    ]


def _spoilt(url: str, queue_url: str, store: Path, only: str | None) -> list[Result]:
    results = []
    for cause, cases in SPOILT.items():
        if only not in (None, cause, "spoilt"):
            continue
        for number, case in enumerate(cases):
            for seed in SEEDS:
                at = queue_url if case.queue else url
                twin = _measured(case.base, seed, at, store)
                with case.meanwhile():
                    run = _measured(merged(case.base, case.change), seed, at, store)
                first, codes = shifts(run.summary, twin.summary)[0], {doubt.code for doubt in run.doubts}
                moved = f"{first.number} {first.share:+.0%}" if first.counts else None
                results.append(_result(cause, f"case {number}", seed, run, moved=moved, right=bool(codes & case.codes)))
    return results


def sockets(only: str | None, list_failures: bool) -> int:
    """Prints the table of these runs."""
    began_at = time.monotonic()
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corpora-")))
        url = f"http://127.0.0.1:{stack.enter_context(running_metronome(FIRST_S, INTERVAL_S)).port}"
        one_at_a_time = stack.enter_context(running_metronome(0.0, 0.0005, service_s=0.05))
        fine = _sound(url, store) if only in (None, "sound") else []
        bad = _spoilt(url, f"http://127.0.0.1:{one_at_a_time.port}", store, only)
    tables = [sound_table(fine)] if fine else []
    print("\n\n".join([*tables, *([spoilt_table(bad)] if bad else [])]))
    if list_failures:
        print("\n" + "\n".join(failures([*fine, *bad])))
    print(f"{time.monotonic() - began_at:.0f} s", file=sys.stderr)
    return 0
