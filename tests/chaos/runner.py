"""Runs the attempts of one kind, two at a time, until all are done or the time is up."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib import import_module
from statistics import mean

from .commands import Ground
from .trial import Attempt, Attempts, Tally, Trial

KINDS = {
    "servers": ("hostile servers", "servers:attempts", 0.55),
    "kills": ("kills against the server's truth", "kills:attempts", 0.16),
    "stores": ("damaged stores", "stores:attempts", 0.07),
    "answers": ("mutated answers", "mutated:answers", 0.06),
    "inputs": ("mutated inputs", "mutated:inputs", 0.16),
}  # by name: title, where its attempts are made, share of the time
Report = Callable[[Tally, Trial], None]


def attempts_of(kind: str) -> Attempts:
    module, _, attribute = KINDS[kind][1].partition(":")
    attempts: Attempts = getattr(import_module(f".{module}", __package__), attribute)
    return attempts


def run_kind(
    kind: str,
    ground: Ground,
    seconds: float,
    seed: int,
    *,
    at_once: int = 2,
    most: int | None = None,
    matching: str = "",
    report: Report | None = None,
) -> Tally:
    """No attempt begins that would not end in time if it took as long as those before it, nor after so many; those
    under way are awaited. On a busy machine an attempt takes ten times as long: without that, the first kinds would
    leave no time to the last ones. Each kind has its first attempts in any case."""
    tally = Tally(KINDS[kind][0])
    began_at = time.monotonic()
    durations_s: list[float] = []
    attempts = _chosen(attempts_of(kind)(ground, seed), matching, most)
    pool = ThreadPoolExecutor(at_once)
    running: dict[Future[Trial], float] = {}  # when it began

    def has_time() -> bool:
        if len(running) + len(durations_s) < at_once:
            return True
        usual_s = mean(durations_s) if durations_s else 0.0
        return time.monotonic() + usual_s < began_at + seconds

    try:
        while True:
            while len(running) < at_once and has_time() and (attempt := next(attempts, None)):
                running[pool.submit(attempt)] = time.monotonic()
            if not running:
                return tally
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)  # wakes up for Ctrl-C
            for future in done:
                durations_s.append(time.monotonic() - running.pop(future))
                tally.trials.append(future.result())
                if report is not None:
                    report(tally, tally.trials[-1])
    except BaseException:
        ground.stop.set()  # commands under way are killed, and raise StoppedError in their threads
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _chosen(attempts: Iterator[Attempt], matching: str, most: int | None) -> Iterator[Attempt]:
    """Those whose arguments name what was asked for."""
    count = 0
    for attempt in attempts:
        if most is not None and count >= most:
            return
        if not matching or matching in str(getattr(attempt, "args", "")):
            count += 1
            yield attempt
