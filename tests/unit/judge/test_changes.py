"""Change points by E-divisive means: compared with the definition, and on the shapes in papers."""

import numpy as np
import pytest
from scipy import stats

from inferometer.judge.changes import ChangePoint, _best_split, _prefix_sums, change_points, regimes, student_p
from inferometer.judge.check import SETTLED
from inferometer.measure.quantiles import Floats
from shapes import AT, POINTS, shaped

SERIES = 100


def energy(left: Floats, right: Floats) -> float:
    """Q of Matteson and James, pair by pair."""
    n, m = len(left), len(right)
    cross = sum(abs(x - y) for x in left for y in right)
    within = [sum(abs(side[i] - side[j]) for i in range(len(side)) for j in range(i)) for side in (left, right)]
    parts = [m / max(n - 1, 1) * within[0], n / max(m - 1, 1) * within[1]]
    return 2 / (n + m) * (cross - sum(parts))


@pytest.mark.parametrize("seed", range(5))
def test_the_best_split_is_that_of_the_definition(seed: int) -> None:
    series = np.random.default_rng(seed).normal(size=12)
    start, end = seed % 3, 12 - seed % 2
    brute = max((energy(series[start:t], series[t:k]), t) for t in range(start + 1, end) for k in range(t + 1, end + 1))
    found = _best_split(_prefix_sums(series), start, end)
    assert found[0] == pytest.approx(brute[0])
    assert found[1] == brute[1]


def test_p_is_students_with_population_deviations() -> None:
    left, right = np.array([1.0, 1.2, 0.9, 1.1]), np.array([1.4, 1.5, 1.3])
    args = (left.mean(), left.std(), len(left), right.mean(), right.std(), len(right))
    assert student_p(left, right) == pytest.approx(stats.ttest_ind_from_stats(*args).pvalue)
    assert student_p(left[:1], right[:1]) == 1.0


def steps(series: Floats) -> list[ChangePoint]:
    """Those that a check tells of."""
    inside = range(SETTLED, POINTS - SETTLED + 1)
    return [point for point in change_points(series.tolist()) if not point.is_drift and point.index in inside]


@pytest.mark.parametrize(("shape", "least"), [("step up", 0.99), ("step down", 0.99), ("small step", 0.93)])
def test_steps_are_found_where_they_are(shape: str, least: float) -> None:
    draw = np.random.default_rng(101)
    found = [steps(shaped(draw, shape)) for _ in range(SERIES)]
    near = [any(abs(point.index - AT) <= 2 for point in points) for points in found]
    assert np.mean(near) >= least
    assert np.mean([len(points) > 1 for points in found]) <= 0.08


@pytest.mark.parametrize("shape", ["spike", "drift", "noise"])
def test_the_rest_is_quiet(shape: str) -> None:
    draw = np.random.default_rng(102)
    assert np.mean([bool(steps(shaped(draw, shape))) for _ in range(SERIES)]) <= 0.05


def test_a_step_says_how_much_and_how_sure() -> None:
    (point,) = change_points(np.r_[np.tile([99.0, 101.0], 20), np.tile([109.0, 111.0], 20)].tolist())
    assert (point.index, point.before, point.after, point.is_drift) == (40, 100.0, 110.0, False)
    assert point.change == pytest.approx(0.1)
    assert point.p < 1e-30


def test_small_changes_are_left_out_by_their_magnitude() -> None:
    series = np.r_[np.tile([99.0, 101.0], 20), np.tile([104.0, 106.0], 20)].tolist()
    assert [point.index for point in change_points(series)] == [40]
    assert change_points(series, magnitude=0.06) == []


def test_two_steps_and_what_lies_between() -> None:
    draw = np.random.default_rng(4)
    series = np.r_[draw.normal(100, 1, 40), draw.normal(120, 1, 30), draw.normal(95, 1, 60)].tolist()
    found = change_points(series)
    assert [point.index for point in found] == [40, 70]
    assert [len(part) for part in regimes(len(series), found)] == [40, 30, 60]


def test_few_or_equal_points_have_none() -> None:
    assert change_points([]) == change_points([1.0]) == change_points([1.0, 2.0]) == []
    assert change_points([5.0] * 80) == []
