"""Reduced points keep the shape, and Pareto fronts are not dominated, for any data."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inferometer.show.charts.distributions import quantile_grid, sampled, thinned
from inferometer.show.charts.trade_offs import front
from inferometer.show.report.document import json_script
from inferometer.show.report.writing import plain

VALUES = arrays(np.float64, st.integers(1, 400), elements=st.floats(-1e6, 1e6))
POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)


@given(VALUES, st.integers(1, 60))
def test_thinning_keeps_the_extremes_and_the_order(values: np.ndarray, most: int) -> None:
    at, kept = thinned(np.arange(len(values)), values, most)
    assert len(at) <= 2 * most or len(at) == len(values)
    assert kept.min() == values.min() and kept.max() == values.max()
    assert (np.diff(at) > 0).all() and (values[at] == kept).all()


@given(VALUES)
def test_a_quantile_grid_rises_from_the_least_to_the_largest(values: np.ndarray) -> None:
    shares, grid = quantile_grid(values)
    assert len(shares) <= 200 and (np.diff(grid) >= 0).all()
    assert grid[0] == values.min() and grid[-1] == values.max()


@given(VALUES, st.integers(20, 200))
def test_a_sample_has_the_largest(values: np.ndarray, most: int) -> None:
    index = sampled(values, most)
    assert len(index) <= most and values[index].max() == values.max()


@given(POINTS)
def test_no_point_beats_one_on_the_front_and_one_beats_every_other(points: list[tuple[int, int]]) -> None:
    def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a != b and a[0] >= b[0] and a[1] >= b[1]

    best = {at for at, point in enumerate(points) if not any(beats(other, point) for other in points)}
    assert front(points) == best


@given(st.text())
def test_no_text_leaves_its_place(text: str) -> None:
    inside = json_script({"text": text}).removeprefix('<script type="application/json">').removesuffix("</script>")
    assert "<" not in inside and ">" not in inside
    assert "\n" not in plain(text)
