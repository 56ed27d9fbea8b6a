"""The paged key-value cache, by content: full blocks are known by the hash of all tokens up to their end.

A block is *private* (partly filled, or not published yet), *live* (published and held by at least one sequence)
or *idle* (published, held by nobody: a hit if asked for again, the oldest evicted first when room is needed).
Two sequences that compute the same block share it from then on.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Counts private blocks, holds the hashes of the others. `private + live + idle <= capacity`, always."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.live: dict[int, int] = {}  # hash -> how many hold it
        self.idle: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Blocks that can be had, evicting idle ones if need be."""
        return self.capacity - self.private - len(self.live)

    @property
    def usage(self) -> float:
        """Share of the blocks that sequences hold."""
        return 1 - self.free / self.capacity

    def take(self, blocks: int) -> None:
        """Make so many blocks private; the caller has checked `free`."""
        self.private += blocks
        excess = self.private + len(self.live) + len(self.idle) - self.capacity
        while excess > 0:
            self.idle.popitem(last=False)
            excess -= 1

    def match(self, hashes: Sequence[int]) -> int:
        """How many of the leading blocks are there."""
        for index, block in enumerate(hashes):
            if block not in self.live and block not in self.idle:
                return index
        return len(hashes)

    def idle_among(self, hashes: Iterable[int]) -> int:
        return sum(block in self.idle for block in hashes)

    def hold(self, hashes: Iterable[int]) -> None:
        """Take part in published blocks."""
        live, idle = self.live, self.idle
        for block in hashes:
            if block in live:
                live[block] += 1
            else:
                idle.pop(block, None)
                live[block] = 1

    def publish(self, hashes: Sequence[int]) -> None:
        """Private blocks that are now full become findable."""
        self.private -= len(hashes)
        if self.live.keys().isdisjoint(hashes) and self.idle.keys().isdisjoint(hashes):
            self.live.update(dict.fromkeys(hashes, 1))  # the usual case, at the speed of C
        else:
            self.hold(hashes)

    def release(self, hashes: Sequence[int], private: int) -> None:
        """Let go; the tail becomes idle first, so that it is evicted before the prefix others may share."""
        self.private -= private
        live, idle = self.live, self.idle
        for block in reversed(hashes):
            if live[block] > 1:
                live[block] -= 1
            else:
                del live[block]
                idle[block] = None

    def forget_idle(self) -> None:
        self.idle.clear()
