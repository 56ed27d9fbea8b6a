"""Requests in flight over time: the integral, the peak, and the spans where a level is held. Exact, no sampling."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from inferometer.measure.quantiles import Floats, Ints
from inferometer.record.columns import known


@dataclass(frozen=True, eq=False, slots=True)
class InFlight:
    """Spans as sorted starts and sorted ends with their running sums: counting needs no pairing."""

    starts: Ints
    ends: Ints
    start_sums: Floats
    end_sums: Floats
    origin: int  # sums are taken from here, so that they stay exact

    @classmethod
    def of(cls, starts: Ints, ends: Ints) -> Self:
        """Spans without a start are left out; one without an end lasts to the last instant there is."""
        begun = known(starts)
        starts, ends = starts[begun], ends[begun]
        last = max((int(x.max()) for x in (starts, ends) if len(x)), default=0)
        starts, ends = np.sort(starts), np.sort(np.where(known(ends), ends, last))
        origin = int(starts[0]) if len(starts) else 0
        return cls(starts, ends, _running(starts - origin), _running(ends - origin), origin)

    def mean(self, edges: Ints) -> Floats:
        """Average in flight between each two neighbouring edges."""
        area = self._area(edges, self.starts, self.start_sums) - self._area(edges, self.ends, self.end_sums)
        return np.diff(area) / np.maximum(np.diff(edges), 1)

    def _area(self, at: Ints, steps: Ints, sums: Floats) -> Floats:
        """Integral up to `at` of how many steps have been passed: the sum of (at - step) over them."""
        passed = np.searchsorted(steps, at, side="right")
        return passed * (at - self.origin).astype(np.float64) - sums[passed]

    def count(self, at: Ints) -> Ints:
        """In flight at these instants; a request that ends there is gone, one that starts there has come."""
        begun = np.searchsorted(self.starts, at, side="right")
        return (begun - np.searchsorted(self.ends, at, side="right")).astype(np.int64)

    def peak(self, start_at: int, end_at: int) -> int:
        inside = self.starts[(self.starts >= start_at) & (self.starts <= end_at)]
        at = np.concatenate((np.array([start_at], np.int64), inside))
        return int(self.count(at).max())

    def held(self, level: float, start_at: int | None = None, end_at: int | None = None) -> tuple[int, int] | None:
        """From the first instant (in start_at..end_at) with at least `level` in flight to the last; None if never."""
        if not len(self.starts):
            return None
        start_at = int(self.starts[0]) if start_at is None else start_at
        end_at = int(self.ends[-1]) if end_at is None else end_at
        inside = self.starts[(self.starts > start_at) & (self.starts <= end_at)]
        moments = np.concatenate((np.array([start_at], np.int64), inside))
        reached = moments[self.count(moments) >= level]
        if not len(reached):
            return None
        after = self.ends[int(np.searchsorted(self.ends, reached[-1], side="right")) :]
        below = after[self.count(after) < level]
        return int(reached[0]), min(end_at, int(below[0])) if len(below) else end_at


def _running(values: Ints) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
