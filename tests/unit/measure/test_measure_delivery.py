"""The test of delivery: correct arrivals pass, wrong ones are detected."""

from typing import Any

import numpy as np
import pytest
from measure_rows import many, open_plan, row

from inferometer.measure.delivery import delivery
from inferometer.measure.inputs import Answers, Facts
from inferometer.plan.model import Plan
from inferometer.record.summary import Delivery


def arriving(at_s: np.ndarray, plan: Plan, stage: np.ndarray | None = None, **facts: Any) -> Delivery:
    stages = np.zeros(len(at_s), int) if stage is None else stage
    records = many([row(t * 1000, stage=int(s)) for t, s in zip(at_s, stages, strict=True)])
    return delivery(Answers.of(records), plan, plan.classes[0], Facts(start_at=0, **facts))


def poisson(rate: float, n: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


def test_poisson_is_recognised() -> None:
    found = arriving(poisson(20, 2000), open_plan(20))
    assert found.process == "poisson" and found.gaps == 1999
    assert found.gap_mean == pytest.approx(1, abs=0.1) and found.gap_cv == pytest.approx(1, abs=0.1)
    assert found.dispersion == pytest.approx(1, abs=0.3) and found.ks.p > 0.01


@pytest.mark.parametrize("rate", [15, 30])
def test_another_rate_is_not(rate: float) -> None:
    assert arriving(poisson(rate, 2000), open_plan(20)).ks.p < 1e-6


def test_even_arrivals_are_not_poisson_but_constant() -> None:
    even = np.arange(500) / 20
    assert arriving(even, open_plan(20)).ks.p < 1e-6
    found = arriving(even, open_plan(20, load={"type": "constant"}))
    assert found.ks is None and found.gap_cv == pytest.approx(0, abs=1e-6) and found.gap_cv_named == 0.0
    assert found.dispersion == pytest.approx(0, abs=0.01)


def test_gamma_by_its_coefficient_of_variation() -> None:
    gaps = np.random.default_rng(1).gamma(0.25, 4 / 20, 3000)
    bursty = np.cumsum(gaps)
    found = arriving(bursty, open_plan(20, load={"type": "gamma", "cv": 2.0}))
    assert found.ks.p > 0.01 and found.gap_cv == pytest.approx(2, abs=0.2) and found.gap_cv_named == 2.0
    assert found.dispersion > 2
    assert arriving(bursty, open_plan(20)).ks.p < 1e-6


def test_a_ramp_is_rescaled() -> None:
    """Rate 10 to 50 over 60 s: R(t) = 10 t + t²/3."""
    sums = np.cumsum(np.random.default_rng(2).exponential(1, 1700))
    at = (-10 + np.sqrt(100 + 4 / 3 * sums)) / (2 / 3)
    plan = open_plan(10, load={"type": "ramp", "to": 50}, stop={"duration": 60})
    found = arriving(at, plan)
    assert found.ks.p > 0.01 and found.gap_mean == pytest.approx(1, abs=0.1)
    assert arriving(at, open_plan(28)).ks.p < 0.001  # gaps alone tell a ramp from its mean rate only so well


def test_stages_are_tested_together_without_the_gap_between() -> None:
    stages = [{"duration": 50, "rate": 10}, {"duration": 100, "rate": 0}, {"duration": 50, "rate": 40}]
    plan = Plan.model_validate({"load": {"type": "stages", "stages": stages}})
    first, last = poisson(10, 400), 150 + poisson(40, 1500, seed=9)
    at = np.concatenate((first, last))
    found = arriving(at, plan, np.repeat([0, 2], [400, 1500]))
    assert found.gaps == 1898 and found.ks.p > 0.01 and found.gap_mean == pytest.approx(1, abs=0.1)


def test_late_sends_spoil_the_process_except_under_a_cap() -> None:
    at = poisson(20, 500)
    bunched = np.ceil(at * 2) / 2 + np.arange(500) * 1e-6
    records = many([row(t * 1000, sent=s * 1000) for t, s in zip(at, bunched, strict=True)])
    for capped, sound in ((None, False), (64, True)):
        plan = open_plan(20, load={"max_concurrency": capped})
        found = delivery(Answers.of(records), plan, plan.classes[0], Facts(start_at=0))
        assert (found.ks.p > 0.001) == sound
    assert found.lateness.max == pytest.approx((bunched - at).max(), abs=1e-6)


def test_shortfall() -> None:
    found = arriving(poisson(10, 90), open_plan(), planned={"default": 100})
    assert (found.planned, found.sent, found.shortfall) == (100, 90, 10)
    assert arriving(poisson(10, 90), open_plan()).shortfall is None


def test_what_was_sent_again_on_a_new_connection_is_counted() -> None:
    rows = [row(t, retry_ns=t % 2) for t in range(10)]
    plan = open_plan()
    assert delivery(Answers.of(many(rows)), plan, plan.classes[0], Facts(start_at=0)).resent == 5


def test_few_gaps_are_not_tested() -> None:
    found = arriving(poisson(10, 5), open_plan())
    assert found.gaps == 4 and found.ks is None and found.dispersion is None
