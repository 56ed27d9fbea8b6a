"""The sequences that decode, as a whole: each gets a token in every step, so sums do until one joins or leaves."""

import heapq

from inferometer.simulator.sequence import Sequence


class Decoding:
    """Knows when the first is finished, how much context they read and when they need blocks.

    A sequence takes a new block in the steps where `length % block_size == 1`. As length and step grow together,
    `(length - step) % block_size` stays the same while it decodes: its phase.
    """

    def __init__(self, block_size: int) -> None:
        self.members: dict[Sequence, None] = {}  # in the order of joining
        self.context = 0  # tokens of theirs in the cache
        self._block_size = block_size
        self._phases = [0] * block_size  # how many have each phase
        self._finishes: list[tuple[int, int, Sequence]] = []  # a heap; entries of those who left are stale
        self._joined = 0

    def join(self, sequence: Sequence, step: int) -> None:
        sequence.settled = step
        self.members[sequence] = None
        self.context += sequence.computed
        self._phases[(sequence.length - step) % self._block_size] += 1
        self._joined += 1
        heapq.heappush(self._finishes, (step + sequence.left, self._joined, sequence))

    def leave(self, sequence: Sequence, step: int) -> None:
        sequence.catch_up(step, self._block_size)
        del self.members[sequence]
        self.context -= sequence.computed
        self._phases[(sequence.length - step) % self._block_size] -= 1

    def advance(self, steps: int) -> None:
        self.context += len(self.members) * steps

    def first_finish(self) -> int:
        """The step at whose end, counted from 1, the first of them has its last token."""
        while self._is_stale(self._finishes[0]):
            heapq.heappop(self._finishes)
        return self._finishes[0][0]

    def finished(self, step: int) -> list[Sequence]:
        """Those who have all their tokens after `step` steps."""
        done = []
        while self._finishes and self._finishes[0][0] <= step:
            entry = heapq.heappop(self._finishes)
            if not self._is_stale(entry):
                done.append(entry[2])
        return done

    def _is_stale(self, entry: tuple[int, int, Sequence]) -> bool:
        finish, _, sequence = entry
        return sequence not in self.members or finish != sequence.settled + sequence.left

    def blocks_for(self, first_step: int, steps: int) -> int:
        """How many blocks they take in so many steps."""
        size = self._block_size
        if steps <= 1:  # of nearly every second question
            return self._phases[(1 - first_step) % size] if steps else 0
        rounds, rest = divmod(steps, size)
        some = sum([self._phases[(1 - step) % size] for step in range(first_step, first_step + rest)])
        return rounds * len(self.members) + some
