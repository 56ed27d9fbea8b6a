"""Change points of a series by E-divisive means, as Hunter and Otava find them.

Split: in windows that overlap by half, the split that maximises the energy distance Q of Matteson and James (2014,
alpha = 1) is a candidate; it stays, and both halves are searched again, while Student's t over its neighbours is
significant at ten times the level `max_p`. Merge: the weakest candidate is dropped until all are significant at that
level and large enough. Deterministic: the t-test replaces their permutations. Fleming et al., "Hunter: using change
point detection to hunt for performance regressions", ICPE 2023.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np

from inferometer.measure.quantiles import Floats, t_cdf

WINDOW = 50  # points; these three are Otava's defaults
MAX_P = 0.001
MAGNITUDE = 0.0
WEAK_TIMES = 10  # factor on the level in the first pass
WEAK_BELOW = 0.05  # from this level on the factor is only 2
STEP_MARGIN = 8.0  # added to Schwarz's criterion, because a step's place was chosen to fit best


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`index` is the first point of the new level; the means are those of the levels on both sides."""

    index: int
    before: float
    after: float
    p: float
    is_drift: bool = False  # a line fits the two levels better than a step: there is no single point of change

    @property
    def change(self) -> float | None:
        """Relative to before."""
        return self.after / self.before - 1 if self.before else None

    @property
    def magnitude(self) -> float:
        """The larger of the relative changes forward and backward."""
        there = abs(self.after / self.before - 1) if self.before else 0.0
        back = abs(self.before / self.after - 1) if self.after else 0.0
        return max(there, back)


def change_points(
    values: Sequence[float], *, window: int = WINDOW, max_p: float = MAX_P, magnitude: float = MAGNITUDE
) -> list[ChangePoint]:
    """The change points in order. Fewer than three points have none."""
    return list(_change_points(np.asarray(values, np.float64).tobytes(), window, max_p, magnitude))


@lru_cache(maxsize=2048)  # pages and comparisons request the same histories again and again
def _change_points(values: bytes, window: int, max_p: float, magnitude: float) -> tuple[ChangePoint, ...]:
    series = np.frombuffer(values, np.float64)
    weak = max_p * WEAK_TIMES if max_p < WEAK_BELOW else min(max_p * 2, max(max_p, 0.5))
    strong = _merged(series, _split(series, window, weak), max_p, magnitude)
    return tuple(_with_drifts(series, strong))


def _split(series: Floats, window: int, max_p: float) -> list[int]:
    """Candidates of all windows; the next window starts at the last candidate found, or half a window later."""
    points: set[int] = set()
    start = 0
    while start < len(series):
        new = [start + index for index in _divided(series[start : start + window], max_p)]
        points.update(new)
        start = max(new[-1] if new else 0, start + max(1, window // 2))
    return sorted(points)


def _divided(part: Floats, max_p: float) -> list[int]:
    """The best split of each part in turn, until the best one is not significant."""
    points: list[int] = []
    distances = _prefix_sums(part)
    best: dict[tuple[int, int], tuple[float, int]] = {}
    while True:
        stretches = [(a, b) for a, b in pairwise((0, *points, len(part))) if b - a > 1]
        for stretch in stretches:
            if stretch not in best:
                best[stretch] = _best_split(distances, *stretch)
        if not stretches:
            return points
        _, index = max(best[stretch] for stretch in stretches)
        if _p_at(part, sorted([*points, index]), index) > max_p:
            return points
        points = sorted([*points, index])


def _prefix_sums(part: Floats) -> Floats:
    """P[i, j] = sum of |x_a - x_b| over a < i, b < j."""
    sums = np.zeros((len(part) + 1, len(part) + 1))
    sums[1:, 1:] = np.abs(part[:, None] - part[None, :]).cumsum(axis=0).cumsum(axis=1)
    return sums


def _best_split(sums: Floats, start: int, end: int) -> tuple[float, int]:
    """(Q, t) that maximise Q(t, k): how far x[start:t] is from x[t:k], for start < t < k <= end.

    Q = 2/(n+m) * cross - 2m/((n+m)(n-1)) * left - 2n/((n+m)(m-1)) * right, the sums of distances between the two
    parts and within each, over pairs; n = t - start, m = k - t. A part of one point has no distance within.
    """
    t = np.arange(start + 1, end)[:, None]
    k = np.arange(start + 2, end + 1)[None, :]
    n, m = t - start, k - t
    inside = m > 0
    m = np.where(inside, m, 1)
    within_left = (sums[t, t] - 2 * sums[start, t] + sums[start, start]) / 2
    within_right = (sums[k, k] - 2 * sums[t, k] + sums[t, t]) / 2
    cross = sums[t, k] - sums[t, t] - sums[start, k] + sums[start, t]
    left = m / np.maximum(n - 1, 1) * within_left
    right = n / np.maximum(m - 1, 1) * within_right
    q = np.where(inside, 2 * (cross - left - right) / (n + m), -np.inf)
    at, _ = np.unravel_index(int(np.argmax(q)), q.shape)
    return float(q.max()), int(at) + start + 1


def _p_at(series: Floats, points: list[int], index: int) -> float:
    """The p-value of the split at a point, between its neighbouring points."""
    left, right = _sides(series, points, index)
    return student_p(left, right)


def _sides(series: Floats, points: Sequence[int], index: int) -> tuple[Floats, Floats]:
    start = max((point for point in points if point < index), default=0)
    end = min((point for point in points if point > index), default=len(series))
    return series[start:index], series[index:end]


def student_p(left: Floats, right: Floats) -> float:
    """Two-sided p of Student's t with one spread for both sides. As in Otava, that spread is computed from population
    standard deviations, which is slightly too small: with few points, so is p."""
    n, m = len(left), len(right)
    if n + m <= 2:
        return 1.0
    pooled = ((n - 1) * float(left.var()) + (m - 1) * float(right.var())) / (n + m - 2)
    difference = float(right.mean() - left.mean())
    error = math.sqrt(pooled * (1 / n + 1 / m))
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return 2.0 * t_cdf(-abs(difference) / error, n + m - 2)


def _merged(series: Floats, points: list[int], max_p: float, magnitude: float) -> list[int]:
    """The points without the weak ones, dropped weakest first: by p while one is not significant, then by size."""
    while points:
        candidates = [_point(series, points, index) for index in points]
        weakest = max(candidates, key=lambda point: point.p)
        if weakest.p < max_p:
            weakest = min(candidates, key=lambda point: point.magnitude)
            if weakest.magnitude > magnitude:
                break
        points = [index for index in points if index != weakest.index]
    return points


def _point(series: Floats, points: Sequence[int], index: int) -> ChangePoint:
    left, right = _sides(series, points, index)
    return ChangePoint(index, float(left.mean()), float(right.mean()), student_p(left, right))


def _with_drifts(series: Floats, points: list[int]) -> list[ChangePoint]:
    """Consecutive change points in one direction are a drift if a line explains them better."""
    changes = [_point(series, points, index) for index in points]
    edges = [0, *points, len(series)]
    judged: list[ChangePoint] = []
    for _, group in groupby(changes, key=lambda point: point.after > point.before):
        steps = list(group)
        first, last = len(judged), len(judged) + len(steps)
        drift = _is_drift([series[a:b] for a, b in pairwise(edges[first : last + 2])])
        judged += [replace(point, is_drift=drift) for point in steps]
    return judged


def _is_drift(levels: Sequence[Floats]) -> bool:
    """Whether a straight line is the better model of the levels by Schwarz's criterion: each level after the first
    costs two parameters, its mean and its start."""
    whole = np.concatenate(levels)
    n = len(whole)
    steps = sum(float(((level - level.mean()) ** 2).sum()) for level in levels)
    time, height = np.arange(n) - (n - 1) / 2, whole - whole.mean()
    line = float(height @ height - (time @ height) ** 2 / (time @ time))
    if steps <= 0 or line <= 0:
        return line < steps
    return n * math.log(line / steps) < (2 * len(levels) - 3) * math.log(n) + STEP_MARGIN


def regimes(length: int, points: Sequence[ChangePoint]) -> Iterator[range]:
    """The stretches between the steps; a drift does not end a stretch."""
    edges = [0, *(point.index for point in points if not point.is_drift), length]
    return (range(start, end) for start, end in pairwise(edges))
