"""The precision of a number, and where a run has settled."""

import numpy as np
import pytest
from pydantic import ValidationError

from inferometer.errors import PlanError
from inferometer.measure.steadiness import BATCH, settled_from
from inferometer.plan.limit import Precision
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping


def test_a_precision_reads_as_people_write_it() -> None:
    said = Precision.model_validate("TTFT median within 5%")
    assert (said.measure, said.stat, said.within) == ("ttft", "p50", 0.05)
    assert str(Precision.model_validate("tpot.p99.9 within 0.5%")) == "tpot p99.9 within 0.5%"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("ttft p99", "must be a precision such as"),
        ("output_rate p50 within 5%", "takes no p50|each request has"),
        ("ttft max within 5%", "no interval"),
        ("ttft p99 within much", "percentage"),
        ("tfft p99 within 5%", "did you mean ttft"),
        ("ttft p99 within 0%", "greater than 0"),
    ],
)
def test_what_is_wrong_with_it_is_said(text: str, wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        Precision.model_validate(text)


def test_a_plan_with_a_precision_ends_at_most_after_ten_minutes_and_reads_back() -> None:
    plan = plan_from({"load": {"rate": 5}, "stop": {"precision": "ttft p99 within 5%"}})
    assert plan.stop.duration == 600
    written = to_mapping(plan)
    assert written["stop"] == {"precision": "ttft p99 within 5%"}
    assert plan_from(written) == plan
    assert plan_from({"stop": {"precision": "ttft p99 within 5%", "at_most": "2min"}}).stop.duration == 120


def test_at_most_belongs_to_a_precision_and_a_duration_does_not() -> None:
    with pytest.raises(PlanError, match=r"stop\.at_most needs a precision"):
        plan_from({"stop": {"at_most": "2min"}})
    with pytest.raises(PlanError, match=r"stop\.duration must be left out"):
        plan_from({"stop": {"precision": "ttft p99 within 5%", "duration": "1min"}})


def transient(length: int, n: int = 2000) -> np.ndarray:
    """A queue that fills: an exponential approach to a level of 1 with noise of 5%."""
    draws = np.random.default_rng(7)
    return 1 - 0.8 * np.exp(-np.arange(n) / max(length, 1e-9)) + 0.05 * draws.standard_normal(n)


def test_the_beginning_of_a_transient_is_cut_off_and_little_else() -> None:
    for length in (20, 50, 100):
        first = settled_from(transient(length))
        assert first is not None
        assert 1.5 * length <= first <= 8 * length
        assert abs(transient(length)[first:].mean() - 1) < 0.01


def test_a_run_that_was_settled_from_the_start_keeps_almost_all() -> None:
    cut = [settled_from(1 + 0.05 * np.random.default_rng(seed).standard_normal(1000)) for seed in range(50)]
    assert sum(first is not None and first < 250 for first in cut) >= 45


def test_what_drifts_to_the_end_or_is_too_short_has_not_settled() -> None:
    assert settled_from(np.linspace(0, 1, 500)) is None
    assert settled_from(np.ones(9 * BATCH)) is None
    assert settled_from(np.full(500, np.nan)) is None
    assert settled_from(np.ones(500)) == 0


def test_requests_without_a_value_change_nothing() -> None:
    values = transient(50)
    holes = values.copy()
    holes[::7] = np.nan
    whole, with_holes = settled_from(values), settled_from(holes)
    assert whole is not None and with_holes is not None
    assert abs(whole - with_holes) <= 10 * BATCH
