"""The paged key-value cache, by content: a full block is known by its tokens and all before them.

A block is *private* (partly filled, or not published yet), *live* (published and held by at least one sequence)
or *idle* (published, held by nobody: a hit if asked for again, the oldest evicted first when room is needed).
Two sequences that compute the same block share it from then on.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from inferometer.simulator.tokens import Tokens


@dataclass(slots=True, eq=False)
class BlockRun:
    """Blocks that follow each other and are held by the same sequences; kept together, because an hour of load
    moves millions of blocks and nearly all of them alone. Of its tokens only the first `blocks` blocks are there."""

    tokens: Tokens
    blocks: int
    holders: int = 0
    before: Self | None = None  # the run that it continues
    behind: dict[Tokens, Self] = field(default_factory=dict)  # those that continue it, by their first block


class BlockPool:
    """Counts private blocks and keeps the others as a tree of runs. `private + live + idle <= capacity`, always.

    A run is split where sequences part. Whoever holds a run holds all before it, and lets go of the last one first:
    so no run is evicted before those that continue it.
    """

    def __init__(self, capacity: int, block_size: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.live = 0
        self.idle = 0
        self._size = block_size
        self._root = BlockRun((), 0)
        self._idle_runs: OrderedDict[BlockRun, None] = OrderedDict()  # the oldest first

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
        count = min(most, run.blocks)
        run.blocks -= count
        self.idle -= count
        if not run.blocks:
            del self._idle_runs[run]
            self._unlink(run)
        return count

    def _unlink(self, run: BlockRun) -> None:
        assert run.before is not None
        del run.before.behind[run.tokens[: self._size]]

    def match(self, tokens: Tokens) -> tuple[int, int]:
        """How many of the leading blocks are there, and how many of these are idle."""
        present = idle = 0
        for run, common in self._along(tokens, self._root):
            present += common
            idle += 0 if run.holders else common
        return present, idle

    def _along(self, tokens: Tokens, run: BlockRun) -> Iterator[tuple[BlockRun, int]]:
        """The runs behind this one that the tokens go along, and how many blocks of each they have."""
        at, size = 0, self._size
        while (follower := run.behind.get(tokens[at : at + size])) is not None:
            run, common = follower, self._common(follower, tokens, at)
            whole = common == run.blocks
            yield run, common
            at += common * size
            if not whole:
                return

    def _common(self, run: BlockRun, tokens: Tokens, at: int) -> int:
        """How many blocks the run has in common with the tokens from `at`; at least one."""
        size = self._size
        most = min(run.blocks, (len(tokens) - at) // size)

        def differ(blocks: int) -> bool:
            return run.tokens[: blocks * size] != tokens[at : at + blocks * size]

        return most if not differ(most) else bisect_right(range(1, most), False, key=differ)

    def hold(self, tokens: Tokens, behind: BlockRun | None = None) -> BlockRun | None:
        """Take part in the blocks that are there, behind a run that is held; returns the last one held."""
        for follower, common in self._along(tokens, behind or self._root):
            run = follower
            if common < run.blocks:
                run = self._split_off(run, common)
            elif not run.holders:
                del self._idle_runs[run]
            if not run.holders:
                self.idle -= common
                self.live += common
            run.holders += 1
            behind = run
        return behind

    def _split_off(self, run: BlockRun, blocks: int) -> BlockRun:
        """The beginning of a run as one of its own; the rest is what those who hold it know, and keeps its place."""
        at = blocks * self._size
        head = BlockRun(run.tokens[:at], blocks, run.holders, run.before)
        run.tokens = run.tokens[at:]
        run.blocks -= blocks
        self._link(head)
        run.before = head
        self._link(run)
        return head

    def _link(self, run: BlockRun) -> None:
        assert run.before is not None
        run.before.behind[run.tokens[: self._size]] = run

    def publish(self, tokens: Tokens, behind: BlockRun | None) -> BlockRun | None:
        """Private blocks that are now full become findable, behind the last run that the caller holds; returns the new
        last one."""
        self.private -= len(tokens) // self._size
        known = sum(common for _, common in self._along(tokens, behind or self._root)) * self._size
        last = self.hold(tokens[:known], behind) if known else behind
        if known == len(tokens):
            return last
        run = BlockRun(tokens[known:], (len(tokens) - known) // self._size, 1, last or self._root)
        self._link(run)
        self.live += run.blocks
        return run

    def release(self, last: BlockRun | None, private: int) -> None:
        """Let go of a run and all before it; the tail becomes idle first, so that it is evicted before a prefix that
        others may share."""
        self.private -= private
        run = last
        while run is not None and run.before is not None:
            run.holders -= 1
            if not run.holders:
                self._idle_runs[run] = None
                self.live -= run.blocks
                self.idle += run.blocks
            run = run.before

    def forget_idle(self) -> None:
        for run in self._idle_runs:
            self._unlink(run)
        self._idle_runs.clear()
        self.idle = 0
