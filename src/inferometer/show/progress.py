"""Live progress of a run: one hand-written line on the terminal, nothing in a pipe.

The load may run in this very process, so a message costs microseconds and a redraw (at most five a second) well
below a millisecond; a library that lays out a page of text costs several. A terminal that does not take
characters (Ctrl-S, a stalled ssh) is skipped, not waited for.
"""

import math
import os
import select
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import TextIO

from inferometer.load.progress import BEFORE_LOAD, Progress
from inferometer.show.counts import Counts, merged
from inferometer.vocabulary import NANOSECONDS, duration_text, number_text

REDRAW_NS = NANOSECONDS // 5
RECENT_NS = 5 * NANOSECONDS  # rates and TTFT are of the last seconds, as a person watching expects
RECENT_TTFTS = 200
BAR_CELLS = (20, 10, 0)


class ProgressLine:
    """Watches the shards of a run and draws how it goes; `clear` it before anything else is printed."""

    def __init__(self, terminal: TextIO | None = None, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._terminal = sys.stderr if terminal is None else terminal
        self._live = self._terminal.isatty() and os.environ.get("TERM") != "dumb"
        self._now = now
        self._shards: dict[int, Progress] = {}
        self._ttfts: deque[float] = deque(maxlen=RECENT_TTFTS)
        self._history: deque[Counts] = deque()
        self._drawn_at = 0
        self._started_at: int | None = None
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        """A shard's message. Called from inside the load: keeps what was said and rarely draws."""
        if not self._live:
            return
        self._shards[progress.shard] = progress
        self._ttfts.extend(progress.ttft_s)
        now = self._now()
        if now - self._drawn_at >= REDRAW_NS:
            self._drawn_at = now
            self._draw()

    def message(self, text: str) -> None:
        """What goes on now, in place of what went on before; a pipe gets nothing."""
        if self._live:
            self._write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            self._shown = True

    def clear(self) -> None:
        """Take the line away, so that what follows starts on a clean one."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _draw(self) -> None:
        if self._started_at is None and all(each.phase not in BEFORE_LOAD for each in self._shards.values()):
            self._started_at = max(each.at for each in self._shards.values())
        counts = merged(self._shards.values(), self._started_at)
        self._remember(counts)
        width = shutil.get_terminal_size().columns
        text = line(counts, self._history[0], list(self._ttfts), width - 1)
        self._write(f"\r{text}\x1b[K")
        self._shown = True

    def _remember(self, counts: Counts) -> None:
        self._history.append(counts)
        while len(self._history) > 2 and counts.at - self._history[0].at > RECENT_NS:
            self._history.popleft()

    def _write(self, text: str) -> None:
        fd = self._terminal.fileno()
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, text.encode())


def line(now: Counts, before: Counts, ttfts: list[float], width: int) -> str:
    """`load ━━━━━──── 43%  34 s left  10.1/s  12 in flight  TTFT 412 ms  1,204 tokens/s  2 failed`, to a width: first
    the bar gets shorter, then the least important parts go."""
    parts = [part for part in _parts(now, before, ttfts) if part]
    while True:
        for cells in BAR_CELLS:
            text = "  ".join([f"{now.phase:<7} {_bar(now.share, cells)}".rstrip(), *parts])
            if len(text) <= width:
                return text
        if not parts:
            return text[:width]
        parts.pop()


def _parts(now: Counts, before: Counts, ttfts: list[float]) -> list[str]:
    """The most important first: what does not fit is left out from the end."""
    left_s = now.left_s(before)
    span_s = (now.at - before.at) / NANOSECONDS
    return [
        f"{duration_text(math.ceil(left_s))} left" if left_s is not None else "",
        f"{now.failed:,} failed" if now.failed else "",
        f"{number_text((now.done - before.done) / span_s)}/s" if span_s > 0 else "",
        f"{now.in_flight:,} in flight",
        f"{now.waiting:,} waiting" if now.waiting else "",
        f"TTFT {duration_text(median(ttfts))}" if ttfts else "",
        f"{number_text((now.output_tokens - before.output_tokens) / span_s)} tokens/s" if span_s > 0 else "",
        f"{now.done:,} done" if now.share is None else "",
    ]


def _bar(share: float | None, cells: int) -> str:
    if share is None:
        return ""
    full = round(share * cells)
    return f"{'━' * full}{'─' * (cells - full)} {share:4.0%}"
