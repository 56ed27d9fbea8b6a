"""Lengths: within their bounds, with the requested mean and spread, a pure function of a uniform number."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.errors import PlanError
from inferometer.plan.workloads.lengths import Lengths, Pause
from inferometer.plan.workloads.synthetic import Synthetic
from inferometer.workload.draws import Draws, Purpose, longest_of, pause_quantile, picker, quantile_of, zipf_picker
from inferometer.workload.session import workload_of

bounds = st.tuples(st.integers(1, 500), st.integers(0, 500)).map(lambda pair: (pair[0], sum(pair)))
shapes = st.one_of(
    st.integers(1, 5000),
    bounds.map(lambda each: {"min": each[0], "max": each[1]}),
    st.tuples(st.floats(1, 500), st.floats(0, 300), bounds).map(
        lambda each: {"mean": each[0], "std": each[1], "min": each[2][0], "max": each[2][1]}
    ),
    st.tuples(st.floats(1, 500), st.floats(0, 300), bounds).map(
        lambda each: {"type": "lognormal", "mean": each[0], "std": each[1], "min": each[2][0], "max": each[2][1]}
    ),
    st.tuples(st.floats(0.1, 3), bounds).map(lambda each: {"alpha": each[0], "min": each[1][0], "max": each[1][1]}),
    st.lists(st.integers(1, 999), min_size=1, max_size=9),
)
units = st.floats(0, 1, exclude_min=True, exclude_max=True)
many = (np.arange(20_000) + 0.5) / 20_000


@settings(deadline=None)
@given(shape=shapes, u=units)
def test_a_draw_lies_within_the_bounds(shape, u):
    spec = Lengths.of(shape)
    drawn = quantile_of(spec)(u)
    assert type(drawn) is int
    assert spec.least <= drawn <= spec.most == longest_of(spec)


@settings(deadline=None)
@given(parts=st.lists(shapes.filter(lambda each: isinstance(each, dict)), min_size=1, max_size=4), u=units)
def test_a_mixture_draws_from_its_parts(parts, u):
    spec = Lengths.of({"parts": parts})
    assert spec.least <= quantile_of(spec)(u) <= spec.most


@settings(deadline=None)
@given(shape=shapes, pair=st.tuples(units, units).map(sorted))
def test_more_of_the_uniform_number_is_no_less_of_a_distribution(shape, pair):
    if not isinstance(shape, list):
        draw = quantile_of(Lengths.of(shape))
        assert draw(pair[0]) <= draw(pair[1])


@pytest.mark.parametrize(
    "shape, mean, std",
    [
        ("100-300", 200, 201 / math.sqrt(12)),
        ({"mean": 500, "std": 50}, 500, 50),
        ({"type": "lognormal", "mean": 800, "std": 400}, 800, 400),
        ({"values": [100, 400], "weights": [3, 1]}, 175, 130),
        ({"parts": [{"value": 100, "weight": 3}, {"value": 400}]}, 175, 130),
    ],
)
def test_mean_and_standard_deviation_are_as_asked(shape, mean: int, std):
    draw = quantile_of(Lengths.of(shape))
    drawn = np.array([draw(float(u)) for u in many])
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert drawn.std() == pytest.approx(std, rel=0.02)


def test_zipf_gives_the_kth_a_share_like_one_over_k_to_the_alpha() -> None:
    draw = zipf_picker(10, 1.0)
    counts = np.bincount([draw(float(u)) for u in many], minlength=10) / len(many)
    wanted = 1 / np.arange(1, 11)
    assert counts == pytest.approx(wanted / wanted.sum(), abs=0.001)


def test_weights_are_proportions() -> None:
    choose = picker([1, 0, 3])
    counts = np.bincount([choose(float(u)) for u in many], minlength=3) / len(many)
    assert counts == pytest.approx([0.25, 0, 0.75], abs=0.001)


def test_empirical_lengths_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("10\n\n20\n40\n")
    draw = quantile_of(Lengths.of({"file": str(file)}))
    assert {draw(float(u)) for u in many} == {10, 20, 40}


@pytest.mark.parametrize(
    "text, said",
    [("10\nten\n", "row 2 must be a whole number from 1 to 10,000,000, got ten"), ("\n", "has no lengths in it")],
)
def test_a_bad_file_of_lengths_names_the_row(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text(text)
    with pytest.raises(PlanError, match=said):
        quantile_of(Lengths.of({"file": str(file)}))


def test_a_missing_file_of_lengths_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nowhere.txt: cannot be read"):
        quantile_of(Lengths.of({"file": str(tmp_path / "nowhere.txt")}))


@pytest.mark.parametrize(
    "pause, mean", [("2s", 2), ("1s-3s", 2), ({"mean": "5s"}, 5), ({"type": "lognormal", "mean": "2s", "std": "1s"}, 2)]
)
def test_pauses_have_the_mean_they_were_asked_for(pause, mean: int):
    draw = pause_quantile(Pause.model_validate(pause))
    assert np.mean([draw(float(u)) for u in many]) == pytest.approx(mean, rel=0.01)


@given(u=units)
def test_no_pause_is_negative(u):
    assert pause_quantile(Pause.model_validate({"mean": "1s", "std": "5s"}))(u) >= 0


@settings(deadline=None)
@given(seed=st.integers(0, 2**63), index=st.integers(0, 2**40))
def test_draws_are_a_function_of_seed_traffic_and_index(seed: int, index: int) -> None:
    first, again, other = (Draws(seed, traffic).uniforms(Purpose.CHOICES, index, 0, 4) for traffic in (0, 0, 1))
    assert first == again != other
    assert all(0 < each < 1 for each in first)


def test_the_lengths_of_a_tape_have_the_distribution_that_was_asked_for() -> None:
    tape = workload_of(Synthetic(input_tokens={"mean": 50, "std": 10}, output_tokens="10-20"), 7, 0, "nonce")
    requests = [tape(index).turns[0] for index in range(4000)]
    inputs, outputs = (
        np.array([getattr(each, name) for each in requests]) for name in ("input_tokens", "output_tokens")
    )
    assert inputs.mean() == pytest.approx(50, rel=0.02) and inputs.std() == pytest.approx(10, rel=0.05)
    assert set(outputs) == set(range(10, 21))
    assert abs(np.corrcoef(inputs, outputs)[0, 1]) < 0.05
    assert [len(each.prompt.split()) for each in requests] == inputs.tolist()
