"""Strategies over seeds: paired changes and their intervals, and when there is a winner."""

import numpy as np
import pytest

from inferometer.judge.compare import paired_change, winner


def test_what_a_seed_costs_both_cancels() -> None:
    tapes = np.array([100.0, 180.0, 140.0, 90.0, 250.0])
    change = paired_change(tapes.tolist(), (tapes * 0.7).tolist())
    assert change is not None
    assert change.change == pytest.approx(-0.3)
    assert change.low == pytest.approx(-0.3) and change.high == pytest.approx(-0.3)
    assert str(change).startswith("−30.0%")


def test_an_interval_that_includes_zero_shows_no_difference() -> None:
    change = paired_change([100, 100, 100, 100], [90, 112, 95, 108])
    assert change is not None
    assert not change.is_shown
    assert str(change).startswith("no difference shown (")


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Of 400 comparisons of ten noisy seeds, about 95% of the intervals hold the truth."""
    draw, held = np.random.default_rng(3), 0
    for _ in range(400):
        before = draw.lognormal(0, 0.3, 10)
        change = paired_change(before.tolist(), (before * 0.8 * draw.lognormal(0, 0.1, 10)).tolist())
        assert change is not None
        held += change.low <= -0.2 <= change.high
    assert 0.91 <= held / 400 <= 0.985


def test_what_cannot_be_compared_is_none() -> None:
    assert paired_change([1.0], [2.0]) is None
    assert paired_change([0.0, 1.0], [1.0, 1.0]) is None
    assert paired_change([1.0, float("nan")], [1.0, 1.0]) is None
    with pytest.raises(ValueError, match="the same seeds"):
        paired_change([1.0, 2.0], [1.0])


def test_a_winner_names_those_that_it_is_not_shown_to_beat() -> None:
    seeds = np.array([10.0, 12, 9, 11, 10, 13, 9, 12, 11, 10])
    near = seeds * np.array([1.01, 0.98, 1.03, 1.0, 0.99, 1.02, 1.01, 0.97, 1.02, 1.0])
    chosen = winner({"far": (seeds * 2).tolist(), "near": near.tolist(), "best": seeds.tolist()})
    assert chosen.best == "best"
    assert chosen.ties == ("near",)
    assert winner({"far": (seeds * 2).tolist(), "best": seeds.tolist()}).ties == ()
