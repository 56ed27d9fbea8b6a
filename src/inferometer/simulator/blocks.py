"""The paged key-value cache, by content: full blocks are known by the hash of all tokens up to their end.

A block is *private* (partly filled, or not published yet), *live* (published and held by at least one sequence)
or *idle* (published, held by nobody: a hit if asked for again, the oldest evicted first when room is needed).
Two sequences that compute the same block share it from then on.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Run:
    """Blocks that follow each other and are held by the same sequences; kept together, because an hour of load
    moves millions of blocks and nearly all of them alone."""

    hashes: list[int]
    holders: int


class BlockPool:
    """Counts private blocks and keeps the others in runs. `private + live + idle <= capacity`, always.

    A run is split where sequences part. Whoever holds a run holds all before it, and lets go of the last one first:
    so no run is evicted before those that continue it, and what is not found has no continuation either.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.live = 0
        self.idle = 0
        self._runs: dict[int, Run] = {}  # by the hash of the first block
        self._idle_runs: OrderedDict[Run, None] = OrderedDict()  # the oldest first

    @property
    def free(self) -> int:
        """Blocks that can be had, evicting idle ones if need be."""
        return self.capacity - self.private - self.live

    @property
    def usage(self) -> float:
        """Share of the blocks that sequences hold."""
        return 1 - self.free / self.capacity

    def take(self, blocks: int) -> None:
        """Make so many blocks private; the caller has checked `free`."""
        self.private += blocks
        excess = self.private + self.live + self.idle - self.capacity
        while excess > 0:
            excess -= self._evict(excess)

    def _evict(self, most: int) -> int:
        """Up to so many blocks off the end of the oldest idle run."""
        run = next(iter(self._idle_runs))
        count = min(most, len(run.hashes))
        if count == len(run.hashes):
            del self._idle_runs[run], self._runs[run.hashes[0]]
        del run.hashes[-count:]
        self.idle -= count
        return count

    def match(self, hashes: list[int]) -> tuple[int, int]:
        """How many of the leading blocks are there, and how many of these are idle."""
        found = idle = 0
        for run, common in self._along(hashes):
            found += common
            idle += 0 if run.holders else common
        return found, idle

    def _along(self, hashes: list[int]) -> Iterator[tuple[Run, int]]:
        """The runs that these blocks begin with, and how many blocks of each they have."""
        at = 0
        while at < len(hashes) and (run := self._runs.get(hashes[at])) is not None:
            common = _common(run.hashes, hashes, at)
            whole = common == len(run.hashes)
            yield run, common
            at += common
            if not whole:
                return

    def hold(self, hashes: list[int]) -> None:
        """Take part in blocks that are there."""
        for found, common in self._along(hashes):
            run = found
            if common < len(run.hashes):
                run = self._split_off(run, common)
            elif not run.holders:
                del self._idle_runs[run]
            if not run.holders:
                self.idle -= common
                self.live += common
            run.holders += 1

    def _split_off(self, run: Run, blocks: int) -> Run:
        """The beginning of a run as one of its own; the rest keeps its place among the idle."""
        head = Run(run.hashes[:blocks], run.holders)
        del run.hashes[:blocks]
        self._runs[head.hashes[0]] = head
        self._runs[run.hashes[0]] = run
        return head

    def publish(self, hashes: list[int]) -> None:
        """Private blocks that are now full become findable; the caller holds all before them."""
        self.private -= len(hashes)
        known, _ = self.match(hashes)
        if known:
            self.hold(hashes[:known])
        if known < len(hashes):
            self._runs[hashes[known]] = Run(hashes[known:], 1)
            self.live += len(hashes) - known

    def release(self, hashes: list[int], private: int) -> None:
        """Let go; the tail becomes idle first, so that it is evicted before the prefix others may share."""
        self.private -= private
        for run, blocks in reversed(list(self._along(hashes))):
            run.holders -= 1
            if not run.holders:
                self._idle_runs[run] = None
                self.live -= blocks
                self.idle += blocks

    def forget_idle(self) -> None:
        for run in self._idle_runs:
            del self._runs[run.hashes[0]]
        self._idle_runs.clear()
        self.idle = 0


def _common(run: list[int], hashes: list[int], at: int) -> int:
    """How many blocks of `run` are those of `hashes` from `at`; where two hashes agree, so do all before them."""
    most = min(len(run), len(hashes) - at)
    if run[most - 1] == hashes[at + most - 1]:
        return most
    return bisect_left(range(most), True, key=lambda index: run[index] != hashes[at + index])
