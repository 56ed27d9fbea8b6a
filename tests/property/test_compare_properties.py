"""Properties of any comparison and any series."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.judge.changes import change_points, regimes
from inferometer.judge.check import baseline
from inferometer.judge.effect import Change, Sides, changes, holm

VALUES = st.lists(st.floats(0.001, 1000), min_size=1, max_size=6).map(tuple)
SHARES = st.floats(0, 1)


def one(before: tuple[float, ...], after: tuple[float, ...], direction: str = "lower") -> Change:
    (found,) = changes([Sides("x", "X", "s", direction, before, after)])  # type: ignore[arg-type]
    return found


@given(VALUES, VALUES)
def test_turning_the_direction_or_the_sides_turns_the_word(before: tuple[float, ...], after: tuple[float, ...]) -> None:
    turned = {"better": "worse", "worse": "better"}
    word = one(before, after).status
    assert one(before, after, "higher").status == turned.get(word, word)
    if word in turned:
        assert one(after, before).status == turned[word]


@given(VALUES, VALUES, st.floats(0.01, 100))
def test_the_unit_does_not_matter(before: tuple[float, ...], after: tuple[float, ...], times: float) -> None:
    found = one(before, after)
    scaled = one(tuple(x * times for x in before), tuple(x * times for x in after))
    assert math.isclose(found.change, scaled.change, rel_tol=1e-6, abs_tol=1e-9)
    if found.p is not None and scaled.p is not None and not 0.04 < found.p < 0.06:
        assert (found.p < 0.05) == (scaled.p < 0.05) or found.p < 1e-6


@given(VALUES, VALUES)
def test_the_interval_holds_the_change(before: tuple[float, ...], after: tuple[float, ...]) -> None:
    found = one(before, after)
    if found.interval is not None:
        low, high = found.interval
        assert low <= found.change * (1 + 1e-9) + 1e-9 and found.change <= high * (1 + 1e-9) + 1e-9


@given(st.lists(SHARES, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_less_than_without_and_at_least_as_much_as_bonferroni(found: list[float], alpha: float) -> None:
    corrected = holm(found, alpha)
    for p, each in zip(found, corrected, strict=True):
        assert p <= each.p <= 1
        assert each.rejected <= (p <= alpha)
        assert each.rejected >= (p <= alpha / len(found))
        assert each.rejected == (p <= each.level)


@settings(max_examples=50)
@given(st.lists(st.floats(1, 1000), max_size=70))
def test_change_points_lie_inside_in_order_and_regimes_cover_all(values: list[float]) -> None:
    found = change_points(values)
    places = [point.index for point in found]
    assert places == sorted(set(places))
    assert all(0 < place < len(values) for place in places)
    assert [at for part in regimes(len(values), found) for at in part] == list(range(len(values)))


@settings(max_examples=50)
@given(st.lists(st.floats(1, 1000), min_size=1, max_size=70), st.sampled_from(["lower", "higher", None]))
def test_a_baseline_is_never_empty_and_never_what_was_left_out(values: list[float], direction: str | None) -> None:
    found = baseline(values, direction)  # type: ignore[arg-type]
    assert found.kept
    assert not set(found.kept) & set(found.left_out)
