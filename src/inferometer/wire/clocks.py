"""How the real-time clock, on which the kernel stamps reads, stands to the monotonic one, on which instants are
kept; and whether somebody set it meanwhile.

Frequency corrections act on both clocks alike, so that on Linux the offset changes only when the time is set.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

TRIES = 9  # a triple takes about 0.2 us; one in the middle of a preemption is not among the best
STEP_NS = 100_000  # smaller changes are drift of platforms whose two clocks run apart; larger ones were set

ClockSource = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Step:
    """The real-time clock was set: noticed at this instant, forward by so much."""

    at: int
    by_ns: int


@dataclass(frozen=True, slots=True)
class Offset:
    """Real time minus monotonic time, read at `at`; the truth is within `error_ns` of `ns`."""

    at: int
    ns: int
    error_ns: int


class ClockPair:
    """The offset between the two clocks as last read, and every step seen. Refresh it about once a second."""

    def __init__(self, monotonic: ClockSource = time.monotonic_ns, real: ClockSource = time.time_ns) -> None:
        self._monotonic, self._real = monotonic, real
        self.steps: list[Step] = []
        self.last = read_offset(monotonic, real)
        self.offset_ns = self.last.ns

    def refresh(self) -> Step | None:
        """Read the offset anew; returns the step if there was one since the last time."""
        before, self.last = self.last, read_offset(self._monotonic, self._real)
        self.offset_ns = self.last.ns
        change = self.last.ns - before.ns
        if abs(change) <= STEP_NS + self.last.error_ns + before.error_ns:
            return None
        step = Step(self.last.at, change)
        self.steps.append(step)
        return step

    def monotonic(self, real_at: int) -> int:
        """An instant of the real-time clock on the monotonic one."""
        return real_at - self.offset_ns


def read_offset(monotonic: ClockSource = time.monotonic_ns, real: ClockSource = time.time_ns) -> Offset:
    """The best of several readings: the closer the two monotonic ones, the less it can be wrong."""
    return min((_reading(monotonic, real) for _ in range(TRIES)), key=lambda offset: offset.error_ns)


def _reading(monotonic: ClockSource, real: ClockSource) -> Offset:
    before, between, after = monotonic(), real(), monotonic()
    middle = (before + after) // 2
    return Offset(middle, between - middle, (after - before + 1) // 2)
