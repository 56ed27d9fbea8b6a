"""The first load of a search, and the length of its steps."""

from dataclasses import replace

import pytest

from inferometer.conduct.search import probe_plan
from inferometer.judge.search import (
    LONGEST_S,
    SHORTEST_S,
    Attained,
    Probe,
    ProbeLevel,
    SearchBounds,
    SearchStep,
    StepPace,
    Try,
    expected_steps,
    find,
    first_load,
    length_s,
    levels_of,
    requests_for,
    spent_s,
)
from inferometer.plan.limit import Limit
from inferometer.plan.reading import plan_from
from inferometer.simulator.virtual import simulated_run

RATES = SearchBounds(start=20, least=0.02, most=20_000)


def level(at_once: int, stay_s: float | None, *, kept: bool = True, failed: float = 0.0) -> ProbeLevel:
    return ProbeLevel(at_once, at_once, stay_s, failed, kept)


@pytest.mark.parametrize(
    ("levels", "rate", "at_once"),
    [
        ([level(1, 0.5), level(4, 0.5), level(16, 0.5)], 64, 32),  # not noticed: twice as much
        ([level(1, 0.5), level(4, 0.5), level(16, 1.0)], 16, 16),
        ([level(1, 0.5), level(4, 0.8), level(16, 1.0, kept=False)], 5, 4),
        ([level(1, 9.0, kept=False), level(4, 0.8), level(16, 1.0, kept=False)], 5, 4),  # the first one warmed it up
        ([level(1, 0.5, kept=False), level(4, 1.0, kept=False)], 1, 1),  # half of one at a time
        ([level(1, 0.5), level(4, 0.5), level(16, 0.1, failed=0.9)], 8, 4),  # most of those were turned away
        ([level(1, None), level(4, None)], None, None),
        ([level(1, 0.1, failed=1.0)], None, None),
        ([], None, None),
    ],
)
def test_the_first_load_is_what_the_probe_saw_served(
    levels: list[ProbeLevel], rate: float | None, at_once: float | None
) -> None:
    assert first_load(levels, whole=False) == rate
    assert first_load(levels, whole=True) == at_once


@pytest.mark.parametrize("output_tokens", [8, 100, 1000])
def test_the_probe_of_the_simulator_finds_its_speed(output_tokens: int) -> None:
    """In virtual time; answers of 1,000 tokens take longer than the whole probe."""
    plan = plan_from(
        {
            "server": {"type": "simulator"},
            "workload": {"input_tokens": 300, "output_tokens": output_tokens},
            "limits": ["ttft p99 < 2s"],
        }
    )
    probe = probe_plan(plan, SearchBounds())
    levels = levels_of(simulated_run(probe).summary, [stage.concurrency or 1 for stage in probe.load.stages])
    alone = simulated_run(plan.model_copy(update={"stop": plan.stop.model_copy(update={"requests": 20})}))
    assert [seen.concurrency for seen in levels] == [1, 4, 16]
    assert levels[0].stay_s == pytest.approx(alone.summary.measures["e2e"].mean, rel=0.5)
    start, served_per_s = first_load(levels, whole=False), levels[2].served_per_s
    assert start is not None and served_per_s is not None
    assert any(start == pytest.approx(factor * served_per_s, rel=0.05) for factor in (1, 2))


def test_a_probe_stays_within_caps() -> None:
    plan = plan_from({"target": "http://127.0.0.1:1", "load": {"rate": 5, "max_concurrency": 6}, "warmup": "10s"})
    probe = probe_plan(plan, SearchBounds(budget_s=60))
    assert [stage.concurrency for stage in probe.load.stages] == [1, 4]
    assert probe.stop.drain == 6 and probe.warmup.duration == 0
    assert [stage.concurrency for stage in probe_plan(plan, SearchBounds(most=3, whole=True)).load.stages] == [1]


def test_a_probe_without_answers_is_as_slow_as_it_was_long() -> None:
    assert Probe((level(1, None),), None, length_s=12.0).stay_s == 12
    assert Probe((level(1, 2.0), level(4, 3.0)), 1.0, length_s=12.0).stay_s == 3


@pytest.mark.parametrize(("text", "least", "most"), [("ttft p99 < 1s", 380, 500), ("ttft p50 < 1s", 4, 60)])
def test_a_quantile_needs_requests(text: str, least: float, most: float) -> None:
    assert least <= requests_for([Limit.model_validate(text)]) <= most


def kept(load: float, took_s: float, truth: float = 50.0) -> SearchStep:
    share = 1.0 if load <= truth else 0.2
    limit = Attained("l", share, share, share, 0.9, load <= truth)
    return SearchStep(load, (limit,), took_s - 2, took_s=took_s)


def test_without_a_budget_a_step_on_the_way_is_short_and_one_near_the_answer_long() -> None:
    pace = StepPace(requests=460, stay_s=0.5)
    assert length_s(Try(20), [], RATES, pace) == pytest.approx(23)  # 460 requests
    assert length_s(Try(460), [], RATES, pace) == SHORTEST_S
    assert length_s(Try(0.1), [], RATES, pace) == LONGEST_S
    assert length_s(Try(60), [kept(40, 10), kept(80, 10)], RATES, pace) == LONGEST_S
    assert length_s(Try(60, 2.0), [kept(40, 10), kept(80, 10)], RATES, pace) == 2 * LONGEST_S
    assert length_s(Try(20), [], RATES, replace(pace, step_s=7.0)) == 7  # as the user says


def test_no_load_is_tried_again_for_less_time_than_before() -> None:
    unclear = SearchStep(50, (Attained("l", 0.9, 0.8, 0.95, 0.9, True),), 10.0, took_s=12.0)
    steps, pace = [kept(40, 12), kept(80, 12), unclear], StepPace(requests=460, stay_s=0.5)
    longer_s = length_s(Try(50, 2.0), steps, replace(RATES, budget_s=60), pace)
    assert longer_s is not None and 10 < longer_s <= 21.5  # what is left
    assert length_s(Try(50, 2.0), steps, replace(RATES, budget_s=45), pace) is None
    assert length_s(Try(55), steps, replace(RATES, budget_s=45), pace) is not None


def test_a_slow_target_has_time_to_fill() -> None:
    slow = StepPace(requests=40, stay_s=4.0)
    assert length_s(Try(100), [], RATES, slow) == 20
    at_once = SearchBounds(start=8, least=1, most=64, whole=True)
    assert length_s(Try(8), [], at_once, replace(slow, requests=80)) == 40  # 8 at once are 2 per second


@pytest.mark.parametrize("budget_s", [1.0, 15.0, 60.0, 120.0, 600.0])
@pytest.mark.parametrize("truth", [0.5, 50.0, 900.0])
@pytest.mark.parametrize("step_s", [None, 20.0])
def test_a_budget_binds(budget_s: float, truth: float, step_s: float | None) -> None:
    bounds, pace = replace(RATES, budget_s=budget_s), StepPace(step_s, 460, stay_s=0.5, around_s=2.0)
    steps: list[SearchStep] = []

    def try_load(wanted: Try) -> SearchStep | None:
        chosen_s = length_s(wanted, steps, bounds, pace)
        return None if chosen_s is None else kept(wanted.load, chosen_s + 2.0, truth)

    _, found = find(try_load, bounds, steps.append)
    assert steps  # one at least, however short the time
    assert spent_s(steps) <= max(budget_s, 2.0 + 2.0)
    if budget_s >= 120 and step_s is None and truth > 1:
        assert found.low is not None and found.high is not None and found.low <= truth < found.high


def test_fewer_steps_are_expected_as_the_range_narrows() -> None:
    climbing = expected_steps([kept(20, 10)], RATES)
    halving = [expected_steps([kept(40, 10), kept(high, 10)], RATES) for high in (80, 56, 52)]
    assert climbing > halving[0] > halving[1] >= halving[2] >= 1
    assert expected_steps([kept(20, 10)] * 11, RATES) == 1  # of twelve
    assert expected_steps([kept(8, 1), kept(9, 1, truth=8)], SearchBounds(start=8, least=1, most=64, whole=True)) >= 1
