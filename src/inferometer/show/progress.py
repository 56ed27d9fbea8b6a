"""Live progress: one hand-drawn line on the terminal for a run, a table that is redrawn after every case of an
experiment; in a pipe, such as the log of a CI job, a line every ten seconds of a run."""

import math
import os
import select
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TextIO

from inferometer.load.progress import BEFORE_LOAD, PHASES, Phase, Progress
from inferometer.show.console import console
from inferometer.vocabulary import NANOSECONDS, duration_text, number_text, percent_text

if TYPE_CHECKING:
    from inferometer.store.experiments import CaseRow

# -- counts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardTotals:
    """The sum over the shards; `share` is the finished share of the load, if it can be known."""

    at: int
    phase: Phase
    done: int
    failed: int
    in_flight: int
    waiting: int
    output_tokens: int
    planned: int | None
    ends_at: int | None
    share: float | None

    def left_s(self, before: "ShardTotals") -> float | None:
        """Until the load ends: by its duration if it has one, else by the pace since `before`."""
        if self.phase not in ("connect", "load"):
            return None
        clock_s = (self.ends_at - self.at) / NANOSECONDS if self.ends_at is not None else None
        pace = (self.done - before.done) / (self.at - before.at) if self.at > before.at else 0.0
        paced_s = (self.planned - self.done) / pace / NANOSECONDS if self.planned and pace else None
        known = [max(0.0, left) for left in (clock_s, paced_s) if left is not None]
        return min(known) if known else None


def merged(shards: Iterable[Progress], started_at: int | None = None) -> ShardTotals:
    """Combines all shards: counts are summed, the slowest shard determines the phase."""
    shards = list(shards)
    at = max(shard.at for shard in shards)
    planned = _total([shard.planned for shard in shards])
    done = sum(shard.done for shard in shards)
    ends = [shard.ends_at for shard in shards if shard.ends_at is not None]
    ends_at = max(ends) if ends else None
    return ShardTotals(
        at=at,
        phase=min((shard.phase for shard in shards), key=PHASES.index),
        done=done,
        failed=sum(shard.failed for shard in shards),
        in_flight=sum(shard.in_flight for shard in shards),
        waiting=sum(shard.waiting for shard in shards),
        output_tokens=sum(shard.output_tokens for shard in shards),
        planned=planned,
        ends_at=ends_at,
        share=_share(at, started_at, ends_at, done, planned),
    )


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _share(at: int, started_at: int | None, ends_at: int | None, done: int, planned: int | None) -> float | None:
    shares = [done / planned] if planned else []
    if ends_at is not None and started_at is not None and ends_at > started_at:
        shares.append((at - started_at) / (ends_at - started_at))
    return min(1.0, max(shares)) if shares else None


# -- progress --------------------------------------------------------------------------------------------------------

REDRAW_NS = NANOSECONDS // 5
RECENT_NS = 5 * NANOSECONDS  # rates and TTFT cover the last seconds, as users expect
RECENT_TTFTS = 200
LINE_NS = 10 * NANOSECONDS  # between two lines if there is no terminal
BAR_CELLS = (20, 10, 0)


class ProgressLine:
    """Watches the shards of a run and draws the progress; call `clear` before anything else is printed.

    Without a terminal, at most `lines` lines are written instead, one every ten seconds.
    """

    def __init__(
        self, terminal: TextIO | None = None, now: Callable[[], int] = time.monotonic_ns, lines: float = 0
    ) -> None:
        self._terminal = sys.stderr if terminal is None else terminal
        self._lines_left = lines
        self._line_at: int | None = None  # when the next line is due
        self._live = self._terminal.isatty() and os.environ.get("TERM") != "dumb"
        self._now = now
        self._shards: dict[int, Progress] = {}
        self._ttfts: deque[float] = deque(maxlen=RECENT_TTFTS)
        self._history: deque[ShardTotals] = deque()
        self._drawn_at = 0
        self._started_at: int | None = None
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        """A shard's message. Called from inside the load: stores the message and rarely draws."""
        if not self._live and self._lines_left <= 0:
            return
        self._shards[progress.shard] = progress
        self._ttfts.extend(progress.ttft_s)
        now = self._now()
        if not self._live:
            self._write_line_when_due(now)
        elif now - self._drawn_at >= REDRAW_NS:
            self._drawn_at = now
            self._draw()

    def message(self, text: str) -> None:
        """Shows the current activity in place of the previous one; nothing is written to a pipe."""
        if self._live:
            self._write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            self._shown = True

    def clear(self) -> None:
        """Remove the line, so that later output starts on an empty one."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write_line_when_due(self, now: int) -> None:
        """`load 43%, 34 s left, 10.1/s, 12 in flight`: rates cover the time since the previous line."""
        self._note_start()
        if self._line_at is None:
            self._line_at = now + LINE_NS
            self._counts()
        elif now >= self._line_at:
            self._line_at = now + LINE_NS
            self._lines_left -= 1
            counts = self._counts()
            share = "" if counts.share is None else f" {percent_text(round(counts.share, 2))}"
            parts = [part for part in _parts(counts, self._history[0], list(self._ttfts)) if part]
            self._write(f"progress: {', '.join([counts.phase + share, *parts])}\n")
            self._ttfts.clear()

    def _note_start(self) -> None:
        """The load starts when the last shard has started it."""
        if self._started_at is None and all(shard.phase not in BEFORE_LOAD for shard in self._shards.values()):
            self._started_at = max(shard.at for shard in self._shards.values())

    def _counts(self) -> ShardTotals:
        """The present counts, stored for later rates."""
        self._note_start()
        counts = merged(self._shards.values(), self._started_at)
        self._remember(counts)
        return counts

    def _draw(self) -> None:
        counts = self._counts()
        width = shutil.get_terminal_size().columns
        text = line(counts, self._history[0], list(self._ttfts), width - 1)
        self._write(f"\r{text}\x1b[K")
        self._shown = True

    def _remember(self, counts: ShardTotals) -> None:
        self._history.append(counts)
        while len(self._history) > 2 and counts.at - self._history[0].at > RECENT_NS:
            self._history.popleft()

    def _write(self, text: str) -> None:
        """Drops the text if the terminal or the reader of a pipe is stalled: the load must not wait for it."""
        try:
            fd = self._terminal.fileno()
        except OSError:  # not a file: used by tests or notebooks in place of stderr
            self._terminal.write(text)
            return
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, text.encode())


def line(now: ShardTotals, before: ShardTotals, ttfts: list[float], width: int) -> str:
    """`load ━━━━━──── 43%  34 s left  10.1 req/s  12 in flight  TTFT 412 ms  1,204 tok/s  2 failed`, fitted to a width:
    first the bar gets shorter, then the least important parts are dropped."""
    parts = [part for part in _parts(now, before, ttfts) if part]
    while True:
        for cells in BAR_CELLS:
            text = "  ".join([f"{now.phase:<7} {_bar(now.share, cells)}".rstrip(), *parts])
            if len(text) <= width:
                return text
        if not parts:
            return text[:width]
        parts.pop()


def _parts(now: ShardTotals, before: ShardTotals, ttfts: list[float]) -> list[str]:
    """Most important first: what does not fit is dropped from the end."""
    left_s = now.left_s(before)
    span_s = (now.at - before.at) / NANOSECONDS
    return [
        f"{duration_text(math.ceil(left_s))} left" if left_s is not None else "",
        f"{now.failed:,} failed" if now.failed else "",
        f"{number_text((now.done - before.done) / span_s)} req/s" if span_s > 0 else "",
        f"{now.in_flight:,} in flight",
        f"{now.waiting:,} waiting" if now.waiting else "",
        f"TTFT {duration_text(median(ttfts))}" if ttfts else "",
        f"{number_text((now.output_tokens - before.output_tokens) / span_s)} tok/s" if span_s > 0 else "",
        f"{now.done:,} done" if now.share is None else "",
    ]


def _bar(share: float | None, cells: int) -> str:
    if share is None:
        return ""
    full = round(share * cells)
    return f"{'━' * full}{'─' * (cells - full)} {share:4.0%}"


# -- live table ------------------------------------------------------------------------------------------------------

ROOM = 4  # lines of the terminal that are left free


class LiveTable:
    """Shows nothing if there is no terminal."""

    def __init__(self, total: int, terminal: TextIO | None = None) -> None:
        self._terminal = sys.stderr if terminal is None else terminal
        self._live = self._terminal.isatty() and os.environ.get("TERM") != "dumb"
        self._line = ProgressLine(self._terminal)
        self._total = total
        self._lines = 0
        self.rows: list[CaseRow] = []

    def begin(self, name: str, done: int) -> None:
        """Start of the next case."""
        self._line = ProgressLine(self._terminal)
        self._line.message(f"case {done + 1} of {self._total}: {name}")

    def __call__(self, progress: Progress) -> None:
        self._line(progress)

    def add(self, row: "CaseRow") -> None:
        self.rows.append(row)
        self._line.clear()
        self._erase()
        self._draw(self.rows)

    def note(self, write: Callable[[], None]) -> None:
        """Writes something above the table."""
        self._line.clear()
        self._erase()
        write()
        self._draw(self.rows)

    def close(self) -> None:
        """Remove the table: the final one is printed to the normal output."""
        self._line.clear()
        self._erase()

    def _draw(self, rows: "Sequence[CaseRow]") -> None:
        if not self._live or not rows:
            return
        size = shutil.get_terminal_size()
        labels = list(dict.fromkeys(row.label for row in rows))[-max(size.lines - ROOM, 1) :]
        to = console(self._terminal)
        with to.capture() as captured:
            from inferometer.show.experiment import cases_table  # its imports are not needed for a run

            to.print(cases_table([row for row in rows if row.label in labels], to.width))
        self._lines = captured.get().count("\n")
        self._terminal.write(captured.get())
        self._terminal.flush()

    def _erase(self) -> None:
        if self._lines:
            self._terminal.write(f"\x1b[{self._lines}A\x1b[J")
            self._terminal.flush()
            self._lines = 0
