"""The search for the most load: on a curve, on noise, and where the truth is known in closed form."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from inferometer.judge.limits import judge_plan
from inferometer.judge.search import Attained, Bounds, Step, Try, attained_of, bracket, find, next_try, result
from inferometer.measure.precision import decided
from inferometer.measure.summary import summarize
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.scale.goal import FEWEST, LOST_CONFIDENCE, lost
from inferometer.search import plan_at
from inferometer.simulator.rehearsal import rehearse

RATES = Bounds(start=1, least=0.01, most=10_000)


def sharp(truth: float, width: float = 0.0) -> Callable[[Try], Step]:
    """Tries against a limit that is kept up to a load, and is unclear within a share of it."""

    def try_load(wanted: Try) -> Step:
        met = wanted.load <= truth
        unclear = abs(wanted.load / truth - 1) < width / wanted.longer
        share, low, high = (0.99, 0.98, 1.0) if unclear else (1.0, 1.0, 1.0) if met else (0.5, 0.4, 0.6)
        return Step(wanted.load, (Attained("l", share, low, high, 0.99, met),), 1.0)

    return try_load


@pytest.mark.parametrize("truth", [0.4, 1.0, 3.7, 8.0, 31.0])
def test_a_sharp_limit_is_found_within_its_width_and_twelve_steps(truth: float) -> None:
    steps, found = find(sharp(truth), RATES)
    assert found.outcome == "found"
    assert found.low is not None and found.high is not None
    assert found.low <= truth < found.high <= found.low * 1.03
    assert len(steps) <= 12


def test_a_concurrency_is_a_whole_number_and_found_exactly() -> None:
    steps, found = find(sharp(23), Bounds(start=8, least=1, most=512, whole=True))
    assert (found.outcome, found.low, found.high) == ("found", 23, 24)
    assert all(step.load == int(step.load) for step in steps)


def test_a_search_says_when_it_did_not_come_to_an_end() -> None:
    _, found = find(sharp(1000.0), replace(RATES, steps=6))
    assert (found.outcome, found.low, found.high) == ("unresolved", 32, None)
    _, found = find(sharp(5.0), replace(RATES, steps=5))
    assert found.outcome == "unresolved" and "41% apart" in found.text
    _, found = find(sharp(5.0), replace(RATES, budget_s=3))
    assert found.outcome == "unresolved"
    _, found = find(sharp(0.02), replace(RATES, steps=3))
    assert (found.outcome, found.low, found.high) == ("unresolved", None, 0.25)
    assert result([], RATES).outcome == "unresolved"


def test_the_budget_counts_all_that_a_step_takes() -> None:
    quick = sharp(1000.0)
    steps, _ = find(lambda wanted: replace(quick(wanted), took_s=10.0), replace(RATES, budget_s=25))
    assert len(steps) == 3


def test_bounds_that_are_no_round_numbers_are_reached() -> None:
    _, found = find(sharp(1e-9), Bounds(start=20 / 3, least=20 / 3000, most=20_000 / 3, steps=20))
    assert found.outcome == "none meets"
    _, found = find(sharp(1e9), Bounds(start=10 / 3, least=0.1, most=10_000 / 3, steps=20))
    assert found.outcome == "all meet"


def test_limits_that_all_keep_or_none_are_said_to_be_so() -> None:
    _, found = find(sharp(1e9), replace(RATES, most=20))
    assert (found.outcome, found.low) == ("all meet", 20)
    _, found = find(sharp(0.001), replace(RATES, least=0.25))
    assert (found.outcome, found.high) == ("none meets", 0.25)


def test_an_unclear_load_is_tried_once_more_for_longer() -> None:
    steps, found = find(sharp(5.0, width=0.05), RATES)
    assert found.outcome == "found"
    again = [step.load for at, step in enumerate(steps) if at and steps[at - 1].load == step.load]
    assert again  # some were, none more than twice
    assert all([step.load for step in steps].count(load) <= 2 for load in again)


def test_an_answer_that_hangs_on_late_sends_of_ours_is_none() -> None:
    def late(wanted: Try) -> Step:
        return replace(sharp(5.0)(wanted), valid=wanted.load <= 5.0)

    _, found = find(late, RATES)
    assert found.outcome == "unresolved" and "our own sending was late" in found.text
    assert found.low is not None and found.low <= 5.0


def test_the_longer_try_decides() -> None:
    kept, lost = (Attained("l", share, share, share, 0.9, share >= 0.9) for share in (1.0, 0.0))
    steps = [Step(1, (kept,), 1), Step(2, (kept,), 1), Step(2, (lost,), 2)]
    assert bracket(steps) == (1, 2)


def test_an_unlimited_step_or_a_limit_on_a_rate_goes_by_its_value() -> None:
    def at(met: bool | None) -> Step:
        return Step(1, (Attained("output_rate > 5/s", None, None, None, None, met),), 1)

    assert [at(met).word for met in (True, False, None)] == ["meets", "misses", "unclear"]
    assert next_try([at(None)], RATES) == Try(1, 2.0)
    assert result([at(None)], RATES).outcome == "unresolved"  # less was not tried


# An M/D/1 queue: Poisson arrivals at one server that takes D for each. P(wait <= t) is Erlang's sum (1909).
SERVICE_S = 0.010
STEP_S = 150


def waits_at_most(t: float, rate: float) -> float:
    load = rate * SERVICE_S
    if load >= 1:
        return 0.0
    terms = range(int(t / SERVICE_S) + 1)
    return (1 - load) * sum(
        (-rate * (t - k * SERVICE_S)) ** k / math.factorial(k) * math.exp(rate * (t - k * SERVICE_S)) for k in terms
    )


def true_rate(t: float, share: float) -> float:
    low, high = 0.0, 1 / SERVICE_S
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(t, middle) >= share else (low, middle)
    return low


def queue_plan(rate: float, limit: str, seconds: float) -> Plan:
    """One request at a time through the client's cap: the simulator's engine takes the same time for each."""
    step = {"base": SERVICE_S / 2, "prefill_token": 0, "decode_sequence": 0, "context_token": 0}
    engine = {"step_time": step, "frontend": 0}
    return plan_from(
        {
            "server": {"type": "simulator", "args": engine},
            "workload": {"input_tokens": 8, "output_tokens": 2},
            "load": {"type": "poisson", "rate": rate, "max_concurrency": 1},
            "stop": {"duration": seconds},
            "limits": [limit],
        }
    )


@pytest.mark.parametrize(("wait_s", "share", "quantile"), [(0.030, 0.9, "p90"), (0.012, 0.75, "p75")])
def test_it_lands_within_three_percent_of_an_m_d_1_queue(wait_s: float, share: float, quantile: str) -> None:
    limit = f"e2e {quantile} < {wait_s + SERVICE_S + 1e-6}s"

    def try_load(wanted: Try) -> Step:
        plan = queue_plan(wanted.load, limit, STEP_S * wanted.longer)
        records, facts = rehearse(plan)
        summary = summarize(records, plan, facts)
        summary["limits"] = judge_plan(plan, summary)
        return Step(wanted.load, attained_of(summary), STEP_S * wanted.longer)

    steps, found = find(try_load, Bounds(start=5, least=0.1, most=1000))
    assert found.outcome == "found"
    assert found.low is not None and found.high is not None
    assert len(steps) <= 12
    assert math.sqrt(found.low * found.high) == pytest.approx(true_rate(wait_s, share), rel=0.03)


def lost_at(rate: float, limit: str, seed: int) -> float | None:
    """After how many seconds a watcher that looks again and again gives a step of half a minute up."""
    plan = plan_at(queue_plan(rate, limit, 30).model_copy(update={"seed": seed}), "rate", Try(rate), 30)
    records, facts = rehearse(plan)
    start_at, after_s = int(records.scheduled_at.min()), 1.0
    while after_s < 30:
        seen = decided(records.take(records.ended_at <= start_at + round(after_s * 1e9)))
        parts = [summarize(seen, plan.model_copy(update={"confidence": c}), facts) for c in (0.95, LOST_CONFIDENCE)]
        if len(seen) >= FEWEST and lost(*parts, plan.classes[0]):
            return after_s
        after_s *= 1.3
    return None


def test_a_step_is_lost_early_only_for_certain() -> None:
    """A queue has bad spells: one that keeps its limit is not given up for them; one that only grows soon is."""
    limit = f"e2e p75 < {0.012 + SERVICE_S + 1e-6}s"
    kept = 0.95 * true_rate(0.012, 0.75)
    assert [lost_at(kept, limit, seed) for seed in range(4)] == [None] * 4
    gone = [lost_at(1.3 / SERVICE_S, limit, seed) for seed in range(2)]
    assert all(after_s is not None and after_s < 20 for after_s in gone), gone
