"""The search for the highest load: on a curve, with noise, and with a truth in closed form."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from msgspec import structs

from inferometer.conduct.search import plan_at
from inferometer.judge.limits import judge_plan
from inferometer.judge.search import (
    Attained,
    SearchBounds,
    SearchStep,
    Try,
    attained_of,
    bracket,
    crossing,
    find,
    next_try,
    result,
)
from inferometer.measure.inputs import Answers
from inferometer.measure.steadiness import decided
from inferometer.measure.summary import goal_summary, summarize
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.scale.goal import FEWEST, LOST_CONFIDENCE, lost
from inferometer.simulator.metronome_process import true_rate
from inferometer.simulator.virtual import rehearse
from lengths import LONG

RATES = SearchBounds(start=1, least=0.01, most=10_000)


def sharp(truth: float, width: float = 0.0) -> Callable[[Try], SearchStep]:
    """Tries against a limit that is kept up to a load, and is unclear within a share of it."""

    def try_load(wanted: Try) -> SearchStep:
        met = wanted.load <= truth
        unclear = abs(wanted.load / truth - 1) < width / wanted.longer
        share, low, high = (0.99, 0.98, 1.0) if unclear else (1.0, 1.0, 1.0) if met else (0.5, 0.4, 0.6)
        return SearchStep(wanted.load, (Attained("l", share, low, high, 0.99, met),), 1.0)

    return try_load


@pytest.mark.parametrize("truth", [0.4, 1.0, 3.7, 8.0, 31.0])
def test_a_sharp_limit_is_found_within_its_width_and_twelve_steps(truth: float) -> None:
    steps, found = find(sharp(truth), RATES)
    assert found.outcome == "found"
    assert found.low is not None and found.high is not None
    assert found.low <= truth < found.high <= found.low * 1.03
    assert len(steps) <= 12


def test_a_concurrency_is_a_whole_number_and_found_exactly() -> None:
    steps, found = find(sharp(23), SearchBounds(start=8, least=1, most=512, whole=True))
    assert (found.outcome, found.low, found.high) == ("found", 23, 24)
    assert all(step.load == int(step.load) for step in steps)


def test_a_search_says_when_it_did_not_come_to_an_end() -> None:
    _, found = find(sharp(1000.0), replace(RATES, steps=6))
    assert (found.outcome, found.low, found.high) == ("unresolved", 32, None)
    _, found = find(sharp(5.0), replace(RATES, steps=5))
    assert found.outcome == "unresolved" and "41.4% wide" in found.text
    _, found = find(sharp(5.0), replace(RATES, budget_s=3))
    assert found.outcome == "unresolved"
    _, found = find(sharp(0.02), replace(RATES, steps=3))
    assert (found.outcome, found.low, found.high) == ("unresolved", None, 0.25)
    assert result([], RATES).outcome == "unresolved"


def test_the_budget_counts_all_that_a_step_takes() -> None:
    quick = sharp(1000.0)
    steps, _ = find(lambda wanted: structs.replace(quick(wanted), took_s=10.0), replace(RATES, budget_s=25))
    assert len(steps) == 3


def test_bounds_that_are_no_round_numbers_are_reached() -> None:
    _, found = find(sharp(1e-9), SearchBounds(start=20 / 3, least=20 / 3000, most=20_000 / 3, steps=20))
    assert found.outcome == "none meets"
    _, found = find(sharp(1e9), SearchBounds(start=10 / 3, least=0.1, most=10_000 / 3, steps=20))
    assert found.outcome == "all meet"


def test_limits_that_all_keep_or_none_are_said_to_be_so() -> None:
    _, found = find(sharp(1e9), replace(RATES, most=20))
    assert (found.outcome, found.low) == ("all meet", 20)
    _, found = find(sharp(0.001), replace(RATES, least=0.25))
    assert (found.outcome, found.high) == ("none meets", 0.25)


def test_an_unclear_load_is_tried_once_more_for_longer() -> None:
    steps, found = find(sharp(5.0, width=0.02), replace(RATES, steps=20))
    assert found.outcome == "found"
    again = [step.load for at, step in enumerate(steps) if at and steps[at - 1].load == step.load]
    assert again  # some were, none more than three times
    assert all([step.load for step in steps].count(load) <= 3 for load in again)


def test_an_answer_that_hangs_on_late_sends_of_ours_is_none() -> None:
    def late(wanted: Try) -> SearchStep:
        return structs.replace(sharp(5.0)(wanted), valid=wanted.load <= 5.0)

    _, found = find(late, RATES)
    assert found.outcome == "unresolved" and "the load generator sent late" in found.text
    assert found.low is not None and found.low <= 5.0


def test_the_longer_try_decides() -> None:
    kept, lost = (Attained("l", share, share, share, 0.9, share >= 0.9) for share in (1.0, 0.0))
    steps = [SearchStep(1, (kept,), 1), SearchStep(2, (kept,), 1), SearchStep(2, (lost,), 2)]
    assert bracket(steps) == (1, 2)


def test_an_unlimited_step_or_a_limit_on_a_rate_goes_by_its_value() -> None:
    def at(met: bool | None) -> SearchStep:
        return SearchStep(1, (Attained("output_rate > 5/s", None, None, None, None, met),), 1)

    assert [at(met).status for met in (True, False, None)] == ["meets", "misses", "unclear"]
    assert next_try([at(None)], RATES) == Try(1, 2.0)
    assert result([at(None)], RATES).outcome == "unresolved"  # less was not tried


def test_a_guess_is_no_answer() -> None:
    """Few requests that all keep a limit do not show that it is met."""

    def few(wanted: Try) -> SearchStep:
        met = wanted.load <= 5.0
        share, low, high = (1.0, 0.9, 1.0) if met else (0.5, 0.4, 0.6)
        return SearchStep(wanted.load, (Attained("l", share, low, high, 0.99, met),), 1.0)

    steps, found = find(few, replace(RATES, steps=30))
    assert found.outcome == "unresolved" and "unclear whether the limits are met" in found.text
    assert found.low is not None and found.low <= 5.0 < (found.high or 0.0)
    assert [step.load for step in steps].count(found.low) == 3  # tried again for longer before that is said


def test_a_queue_that_grew_keeps_no_limit_for_long() -> None:
    step = structs.replace(sharp(5.0)(Try(4.0)), growing=True)
    assert (step.status, step.meets) == ("unclear", False)
    assert structs.replace(sharp(5.0)(Try(6.0)), growing=True).status == "misses"
    _, found = find(
        lambda wanted: structs.replace(sharp(9.0)(wanted), growing=wanted.load > 5.0), replace(RATES, steps=20)
    )
    assert found.low is not None and found.low <= 5.0


def test_the_range_that_is_sure_is_the_answer_when_the_budget_is_used_up() -> None:
    bounds = replace(RATES, budget_s=6.0)
    _, strict = find(sharp(5.0), bounds)
    _, wide = find(sharp(5.0), replace(bounds, any_width=True))
    assert (strict.outcome, wide.outcome) == ("unresolved", "found")
    assert (wide.low, wide.high) == (strict.low, strict.high)
    assert "budget is used up" in wide.text and "wide" in wide.text
    unclear = SearchStep(5.0, (Attained("l", 0.99, 0.98, 1.0, 0.99, True),), 9.0)
    around = [sharp(5.0)(Try(4.0)), sharp(5.0)(Try(8.0)), unclear]
    known = result(around, replace(bounds, any_width=True))
    assert (known.outcome, known.low, known.high) == ("found", 4.0, 8.0)
    assert "most likely between 5 and 8" in known.text
    assert result(around[1:], replace(bounds, any_width=True)).outcome == "unresolved"  # nothing is known to be met


def test_a_step_for_which_there_is_no_time_ends_the_search() -> None:
    steps, found = find(lambda wanted: sharp(5.0)(wanted) if wanted.load < 4 else None, replace(RATES, budget_s=60))
    assert [step.load for step in steps] == [1, 2]
    assert found.outcome == "unresolved" and "met even at 2" in found.text and "budget" in found.text


def test_bounds_follow_the_first_load() -> None:
    begun = SearchBounds().begun_at(40.0)
    assert (begun.start, begun.least, begun.most) == (40, 0.04, 40_000)
    assert SearchBounds(whole=True).begun_at(8.0).least == 1
    assert SearchBounds(least=50, most=60).begun_at(40.0).start == 50


SERVICE_S = 0.010  # of an M/D/1 queue
STEP_S = 150


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


@pytest.mark.skipif(
    not LONG, reason="test_search_metronome.py shows it with bytes; this form only with INFEROMETER_LONG=1"
)
@pytest.mark.parametrize(("wait_s", "share", "quantile"), [(0.012, 0.75, "p75")])
def test_it_lands_within_three_percent_of_an_m_d_1_queue(wait_s: float, share: float, quantile: str) -> None:
    limit = f"e2e {quantile} < {wait_s + SERVICE_S + 1e-6}s"

    seeds = count()

    def try_load(wanted: Try) -> SearchStep:
        plan = queue_plan(wanted.load, limit, STEP_S * wanted.longer).model_copy(update={"seed": next(seeds)})
        records, facts = rehearse(plan)
        summary = summarize(records, plan, facts)
        summary = structs.replace(summary, limits=judge_plan(plan, summary))
        return SearchStep(wanted.load, attained_of(summary), STEP_S * wanted.longer)

    steps, found = find(try_load, SearchBounds(start=5, least=0.1, most=1000))
    assert found.outcome == "found"
    assert found.low is not None and found.high is not None
    assert len(steps) <= 12
    assert math.sqrt(found.low * found.high) == pytest.approx(true_rate(wait_s, share, SERVICE_S), rel=0.03)


def try_queue(wait_s: float, share: float, step_s: float, seed: int) -> Callable[[Try], SearchStep]:
    """The same queue by Lindley's recursion, each try with arrivals of its own; the interval is Wilson's at as many
    independent requests as blocks of neighbours are worth."""
    tries = count()

    def try_load(wanted: Try) -> SearchStep:
        drawn = np.random.default_rng((seed, next(tries)))
        gaps = drawn.exponential(1 / wanted.load, max(int(wanted.load * step_s * wanted.longer), 100))
        walk = np.concatenate([[0.0], np.cumsum(SERVICE_S - gaps[1:])])
        kept = walk - np.minimum.accumulate(walk) <= wait_s
        blocks = np.array([block.mean() for block in np.array_split(kept, 40)])
        found = float(kept.mean())
        spread = float(blocks.var(ddof=1)) / len(blocks)
        worth = min(max(found * (1 - found) / spread, 5), len(kept)) if spread else len(kept)
        low, high = wilson(found, worth)
        return SearchStep(
            wanted.load, (Attained("l", found, low, high, share, found >= share),), step_s * wanted.longer
        )

    return try_load


def wilson(share: float, count: float, z: float = 1.96) -> tuple[float, float]:
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return middle - half, middle + half


@pytest.mark.parametrize(("wait_s", "share"), [(0.010, 0.75), (0.020, 0.9), (0.050, 0.99)])
def test_all_steps_together_know_the_answer_and_how_well(wait_s: float, share: float) -> None:
    """Steps of 7,000 requests are too short to tell neighbouring loads apart one by one."""
    truth, off, covered = true_rate(wait_s, share, SERVICE_S), [], 0
    for seed in range(40):
        steps, found = find(try_queue(wait_s, share, 130.0, seed), SearchBounds(start=15, least=0.1, most=300))
        assert found.low is not None and found.high is not None and found.likely is not None
        assert len(steps) <= 12
        off.append(math.sqrt(found.low * found.high) / truth - 1)
        covered += found.likely[0] <= truth <= found.likely[1]
    assert np.mean(np.abs(off) <= 0.03) >= 0.95
    assert abs(np.mean(off)) < 0.01
    assert covered >= 34  # of 40, at 95%


def test_no_crossing_is_told_where_shares_do_not_tell_it() -> None:
    def at(load: float, share: float | None, required: float = 0.9) -> SearchStep:
        interval = (None, None) if share is None else (share - 0.01, share + 0.01)
        return SearchStep(load, (Attained("l", share, *interval, required, None),), 1)

    assert crossing([]) is None
    assert crossing([at(10, 0.95), at(11, 0.85)]) is None  # two loads are too few for a line and its error
    assert crossing([at(10, 0.85), at(11, 0.90), at(12, 0.95)]) is None  # rises: something else happened
    assert crossing([at(10, 1.0), at(11, 1.0), at(12, 0.85)]) is None
    assert crossing([at(10, None), at(11, None), at(12, None)]) is None
    assert crossing([at(10, 0.95), at(11, 0.9), at(12, 0.85)]).load == pytest.approx(11, rel=0.01)
    lost = structs.replace(at(13, 0.2), ended="lost")  # was looked at until it looked bad
    assert crossing([at(10, 0.95), at(11, 0.9), at(12, 0.85), lost]).load == pytest.approx(11, rel=0.01)


def lost_at(rate: float, limit: str, seed: int) -> float | None:
    """After how many seconds a watcher that looks again and again gives a step of half a minute up."""
    plan = plan_at(queue_plan(rate, limit, 30).model_copy(update={"seed": seed}), "rate", rate, 30)
    records, facts = rehearse(plan)
    start_at, after_s = int(records.scheduled_at.min()), 1.0
    while after_s < 30:
        seen = decided(records.take(records.ended_at <= start_at + round(after_s * 1e9)))
        part, strict = (
            goal_summary(Answers.of(seen), plan.model_copy(update={"confidence": c}), facts, plan.classes[0].name)
            for c in (0.95, LOST_CONFIDENCE)
        )
        if len(seen) >= FEWEST and lost(part, strict, plan.classes[0]):
            return after_s
        after_s *= 1.3
    return None


def test_a_step_is_lost_early_only_for_certain() -> None:
    """A queue has bad spells: one that keeps its limit is not given up for them; one that only grows soon is."""
    limit = f"e2e p75 < {0.012 + SERVICE_S + 1e-6}s"
    kept = 0.95 * true_rate(0.012, 0.75, SERVICE_S)
    assert [lost_at(kept, limit, seed) for seed in range(4)] == [None] * 4
    gone = [lost_at(1.3 / SERVICE_S, limit, seed) for seed in range(2)]
    assert all(after_s is not None and after_s < 20 for after_s in gone), gone
