"""Each measure on an answer small enough to work out by hand."""

from typing import Any

import numpy as np
import pytest
from measure_rows import MS, failure, many, row

from inferometer.measure.inputs import Answers
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.vocabulary import MEASURES


@pytest.fixture
def answers() -> Answers:
    """Due at 10, ready at 12, connect 3 and TLS 1, sent at 20; reads of 2, 1 and 4 tokens; usage says 7."""
    told: dict[str, Any] = {"ready_at": 12 * MS, "connect_ns": 3 * MS, "tls_ns": 1 * MS, "visible_at": 170 * MS}
    return Answers.of(many([row(10, sent=20, reads=[120, 170, 290], tokens=[2, 1, 4], ended=300, **told)]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft", 0.100),
        ("ttft_scheduled", 0.110),
        ("ttfo", 0.150),
        ("ttfo_scheduled", 0.160),
        ("tpot", 0.170 / 5),
        ("ntpot", 0.270 / 7),
        ("e2e", 0.270),
        ("e2e_scheduled", 0.280),
        ("done", 0.280),
        ("done_scheduled", 0.290),
        ("stall", 0.120),
        ("queue_wait", 0.002),
        ("send_delay", 0.004),
        ("connect", 0.003),
        ("tls", 0.001),
        ("output_tokens", 7.0),
        ("user_speed", 5 / 0.170),
    ],
)
def test_by_hand(answers: Answers, name: str, expected: float) -> None:
    assert request_values(name, answers).tolist() == [pytest.approx(expected, rel=1e-12)]


def test_gaps_by_hand(answers: Answers) -> None:
    icl, itl = REGISTRY["icl"].gaps(answers.gaps), REGISTRY["itl"].gaps(answers.gaps)
    assert icl.values.tolist() == [0.05, 0.12] and icl.weights is None
    assert itl.values.tolist() == [0.05, 0.03] and itl.weights.tolist() == [1.0, 4.0]


def test_gaps_do_not_cross_requests() -> None:
    answers = Answers.of(many([row(0, reads=[10, 30]), failure(1), row(2, reads=[500, 501, 505])]))
    assert REGISTRY["icl"].gaps(answers.gaps).values.tolist() == [0.020, 0.001, 0.004]
    np.testing.assert_array_equal(request_values("stall", answers), [0.020, np.nan, 0.004])


@pytest.mark.parametrize(
    ("reads", "tokens", "reported"),
    [([50], [1], 1), ([50], [8], 8), ([50, 90], [4, 4], 4), ([50], [1], 5)],
)
def test_tpot_is_undefined_not_zero(reads: list[float], tokens: list[int], reported: int) -> None:
    """One token, one read with all, a usage not above the first read, a usage above the only read."""
    answers = Answers.of(many([row(0, reads=reads, tokens=tokens, output_tokens=reported)]))
    assert np.isnan(request_values("tpot", answers)).all()
    assert np.isnan(request_values("user_speed", answers)).all()


def test_without_usage_the_reads_count_and_nothing_is_zero() -> None:
    answers = Answers.of(many([row(0, reads=[10, 20], tokens=[1, 2], output_tokens=None), failure(5)]))
    np.testing.assert_array_equal(request_values("output_tokens", answers), [3.0, np.nan])
    for name in ("input_tokens", "cached_tokens", "reasoning_tokens", "connect", "tls"):
        assert np.isnan(request_values(name, answers)).all(), name


def test_not_streaming_ttft_equals_e2e() -> None:
    answers = Answers.of(many([row(0, reads=[400], tokens=[64])]))
    assert request_values("ttft", answers) == request_values("e2e", answers) == 0.4


def test_a_read_scaled_to_no_token_has_no_pace() -> None:
    itl = REGISTRY["itl"].gaps(Answers.of(many([row(0, reads=[10, 20, 40], tokens=[1, 0, 2])])).gaps)
    assert itl.values.tolist() == [0.010] and itl.weights.tolist() == [2.0]


def test_every_measure_is_explained() -> None:
    assert set(REGISTRY) == set(MEASURES)
    for name, measure in REGISTRY.items():
        assert measure.name.name == name
        assert "[" in measure.formula and measure.sentence.endswith(".")
        assert (measure.kind == "scalar") == measure.name.scalar


def test_what_a_failure_counts_as() -> None:
    assert REGISTRY["ttft"].failure_value == float("inf")
    assert REGISTRY["user_speed"].failure_value == 0.0
    assert REGISTRY["send_delay"].failure_value is None
    assert REGISTRY["output_tokens"].failure_value is None
