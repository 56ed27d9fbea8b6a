"""One long run at a moderate event rate, watched from the outside: does memory, the number of open files or our own
delay grow with time?"""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from inferometer.record.columns import known
from inferometer.simulator.metronome_process import running_metronome
from inferometer.store.folder import load_run

from .commands import Command, Ground, StoppedError
from .kills import OBSERVER

INTERVAL_S = 0.02  # between two tokens of a stream
TOKENS = 200  # of an answer
SUMMARY_S = 600.0  # for what follows the load
GROWTH_SHARE, GROWTH_MB, GROWTH_FILES = 0.05, 8.0, 4  # from the second quarter to the last: less is flat
GROWTH_DELAY_S = 0.005


@dataclass(frozen=True, slots=True)
class Look:
    """One process at one moment."""

    at_s: float
    rss_mb: float
    files: int
    threads: int


def soak(ground: Ground, minutes: float, events_per_s: float) -> int:
    streams = max(1, round(events_per_s * INTERVAL_S))
    store = ground.store()
    words = ["run", "--concurrency", str(streams), "--duration", f"{minutes * 60:g}s", "--output-tokens", str(TOKENS)]
    words += ["--input-tokens", "100", "--store", str(store), "-q"]
    print(f"{streams} streams, {events_per_s:g} events/s, {minutes:g} min", file=sys.stderr)
    with ExitStack() as stack:
        metronome = stack.enter_context(running_metronome(interval_s=INTERVAL_S))
        command = stack.enter_context(Command(ground, [*words, "--url", metronome.url]))
        looks = _watched(command, store, minutes)
        ended = command.wait(minutes * 60 + SUMMARY_S)
    growing = [_judged(name, seen) for name, seen in looks.items() if len(seen) >= 8]
    folders = list((store / "runs").glob("*"))
    late = _delay_grows(folders[0]) if len(folders) == 1 and ended.code in (0, 4) else True
    print(f"the command ended with {ended.code} after {ended.took_s:.0f} s; most memory {ended.peak_rss_mb:.0f} MB")
    if ended.code != 0:
        print(f"    {ended.last_words()}")
    for folder in folders:
        _print_verdict(folder)
    if ended.left:
        print(f"left running: {'; '.join(ended.left)}")
    fine = ended.code in (0, 4) and not ended.left and not late and not any(growing) and bool(growing)
    print("flat" if fine else "NOT FLAT, or it failed")
    return 0 if fine else 1


def _watched(command: Command, store: Path, minutes: float) -> dict[str, list[Look]]:
    """Looks at every process of the command while it sends load; what follows is the summary, whose peak counts."""
    every_s = max(0.5, minutes * 60 / 360)
    looks: dict[str, list[Look]] = {}
    began_at = None
    while command.running and (began_at is None or time.monotonic() < began_at + minutes * 60 - every_s):
        if began_at is None and any((store / "runs").glob("*/log-0.bin")):
            began_at = time.monotonic()
        for name, pid in _processes(command) if began_at is not None else ():
            with suppress(OSError, ValueError):
                looks.setdefault(name, []).append(_look(pid, time.monotonic() - began_at))
        _tell(looks)
        if command.ground.stop.wait(every_s):
            raise StoppedError
    return looks


def _processes(command: Command) -> list[tuple[str, int]]:
    """One worker drives the load in the command itself."""
    observer = [("observer", process.pid) for process in command.child(OBSERVER)]
    return [("command", command.pid), *observer]


def _look(pid: int, at_s: float) -> Look:
    folder = Path(f"/proc/{pid}")
    facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    files = sum(1 for _ in (folder / "fd").iterdir())
    return Look(at_s, int(facts["VmRSS"].split()[0]) / 1024, files, int(facts["Threads"]))


def _tell(looks: dict[str, list[Look]]) -> None:
    """A line about every tenth look."""
    seen = looks.get("command", [])
    if len(seen) % 10 == 1:
        text = ", ".join(f"{name} {all_[-1].rss_mb:.0f} MB {all_[-1].files} files" for name, all_ in looks.items())
        print(f"{seen[-1].at_s:6.0f} s: {text}", file=sys.stderr)


def _judged(name: str, seen: Sequence[Look]) -> bool:
    """Prints what became of a process; True where it grew."""
    quarter = len(seen) // 4
    early, late = seen[quarter : 2 * quarter], seen[-quarter:]
    rss = [median(look.rss_mb for look in part) for part in (early, late)]
    files = [median(look.files for look in part) for part in (early, late)]
    threads = [median(look.threads for look in part) for part in (early, late)]
    grew = rss[1] - rss[0] > max(GROWTH_MB, GROWTH_SHARE * rss[0])
    grew = grew or files[1] - files[0] > GROWTH_FILES or threads[1] - threads[0] > GROWTH_FILES
    hours = (median(look.at_s for look in late) - median(look.at_s for look in early)) / 3600
    print(
        f"{name}: {'GROWING' if grew else 'flat'}: {rss[0]:.1f} MB in the second quarter, {rss[1]:.1f} MB in the last "
        f"({(rss[1] - rss[0]) / hours:+.0f} MB per hour); open files {files[0]:.0f} and {files[1]:.0f}, "
        f"threads {threads[0]:.0f} and {threads[1]:.0f}"
    )
    return grew


def _print_verdict(folder: Path) -> None:
    for reason in load_run(folder).doubts:
        print(f"    {reason.text}")


def _delay_grows(folder: Path) -> bool:
    """Our own delay before a request was sent, early and late in the run."""
    records = load_run(folder).records
    if records is None or len(records) < 8:
        print("delay: too few requests")
        return True
    sent = known(records.sent_at) & known(records.ready_at)
    order = np.argsort(records.sent_at[sent])
    delay_s = ((records.sent_at - records.ready_at - records.connect_ns)[sent][order]) / 1e9
    quarter = len(delay_s) // 4
    parts = delay_s[quarter : 2 * quarter], delay_s[-quarter:]
    p50 = [float(np.quantile(part, 0.5)) * 1e3 for part in parts]
    p99 = [float(np.quantile(part, 0.99)) * 1e3 for part in parts]
    failed = sum(records.outcome[i] not in ("ok", "cancelled", "unfinished") for i in range(len(records)))
    grew = p50[1] - p50[0] > GROWTH_DELAY_S * 1e3
    print(
        f"delay: {'GROWING' if grew else 'flat'}: sends late by {p50[0]:.3f} ms (p99 {p99[0]:.2f}) in the second "
        f"quarter, {p50[1]:.3f} ms (p99 {p99[1]:.2f}) in the last; {len(records):,} requests, {failed} failed, "
        f"{len(records.read_at):,} reads"
    )
    return grew or failed > 0
