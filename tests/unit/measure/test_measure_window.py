"""Windows: the measured part of a run; requests in flight; drift."""

from typing import Any

import numpy as np
import pytest
from measure_rows import MS, closed_plan, failure, many, open_plan, row, steady_load
from scipy import stats

from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.rates import busiest_second, concurrency, span_of
from inferometer.measure.steadiness import trend
from inferometer.measure.window import InFlight, Window, class_window, stage_windows, whole_window
from inferometer.plan.model import Plan


def slots(concurrency: int, rounds: int, length: float = 100.0) -> list:
    """A closed loop: each slot sends the next request as the last is answered, later slots a little later."""
    return [row(r * length + s, reads=[r * length + s + length]) for r in range(rounds) for s in range(concurrency)]


def test_open_loop_ends_with_the_last_arrival() -> None:
    answers = Answers.of(many(steady_load(n=11)))
    window = class_window(answers, open_plan(), Facts(start_at=0), "default")
    assert (window.start_at, window.end_at) == (0, 1000 * MS)
    assert "last scheduled arrival" in window.rule


def test_later_turns_do_not_stretch_the_window() -> None:
    answers = Answers.of(many([row(0), row(1000), row(9000, turn=1, turns=2)]))
    assert class_window(answers, open_plan(), Facts(), "default").end_at == 1000 * MS


@pytest.mark.parametrize(
    ("warmup", "facts", "start"),
    [
        ({"duration": 0.25}, Facts(start_at=0), 250),
        ({"requests": 3}, Facts(start_at=0), 300),
        ({"requests": 3, "duration": 0.1}, Facts(start_at=0), 300),
        ({"duration": 0.25}, Facts(start_at=0, warmup_end_at=420 * MS), 420),
        ({}, Facts(start_at=-50 * MS), -50),
    ],
)
def test_warmup_is_left_out(warmup: dict, facts: Facts, start: float) -> None:
    answers = Answers.of(many(steady_load(n=11)))
    assert class_window(answers, open_plan(warmup=warmup), facts, "default").start_at == start * MS


def test_closed_loop_holds_its_concurrency() -> None:
    """Two slots, from when they opened until the first of the last two answers: 0..501."""
    answers = Answers.of(many([row(0, sent=0.5, reads=[100]), *slots(2, 5)[1:], row(500, reads=[530])]))
    window = class_window(answers, closed_plan(2), Facts(), "default")
    assert (window.start_at, window.end_at) == (0, 501 * MS)


def test_closed_loop_that_never_had_its_concurrency_says_so() -> None:
    window = class_window(Answers.of(many(slots(2, 3))), closed_plan(16), Facts(), "default")
    assert "was never in flight" in window.rule and "of 2 are" in window.rule
    assert window.length_s == pytest.approx(0.3, abs=0.002)


def test_as_many_requests_as_slots_still_have_a_window_with_them_all() -> None:
    answers = Answers.of(many([row(0, sent=i * 0.01, reads=[100 + i]) for i in range(8)]))
    window = class_window(answers, closed_plan(8), Facts(), "default")
    assert window.holds(answers.records.scheduled_at).all() and window.end_at == 100 * MS


@pytest.mark.parametrize("plan", [open_plan(), closed_plan()])
def test_one_request_or_none_is_the_whole_run(plan: Plan) -> None:
    one = class_window(Answers.of(many([row(5)])), plan, Facts(start_at=0), "default")
    assert one.length_s > 0
    none = class_window(Answers.of(many([])), plan, Facts(), "default")
    assert none.length_s == 0


def test_an_interrupted_run_has_a_window() -> None:
    facts = Facts(start_at=0, interrupted=True, last_arrival_at={"default": 60_000 * MS})
    window = class_window(Answers.of(many(steady_load(n=5))), open_plan(), facts, "default")
    assert window.end_at == 400 * MS and "before the interrupt" in window.rule


def staged(**facts: Any) -> tuple[Window, list[tuple[int, Window]]]:
    stages = [{"duration": 0.5, "rate": 10}, {"duration": 0.3, "rate": 10}, {"duration": 9, "rate": 10}]
    plan = Plan.model_validate({"load": {"type": "stages", "stages": stages}, "warmup": {"duration": "200ms"}})
    answers = Answers.of(many(steady_load(n=21)))
    whole = class_window(answers, plan, Facts(start_at=0), "default")
    return whole, stage_windows(answers, plan, Facts(start_at=0, **facts), "default", whole)


def test_stages_cut_the_whole_window() -> None:
    whole, windows = staged()
    edges = [(stage, w.start_at // MS, w.end_at // MS) for stage, w in windows]
    assert edges == [(0, 200, 500), (1, 500, 800), (2, 800, 2000)]
    at = np.arange(0, 2100, 100) * MS
    held = sum(window.holds(at).astype(int) for _, window in windows)
    assert (held == whole.holds(at)).all()


def test_told_stage_ends_go_before_planned_ones() -> None:
    _, windows = staged(stage_ends_at={"default": (700 * MS, 900 * MS, 2000 * MS)})
    assert [w.start_at // MS for _, w in windows] == [200, 700, 900]


def test_a_stage_that_never_began_has_no_window() -> None:
    _, windows = staged(stage_ends_at={"default": (700 * MS, 5000 * MS, 9000 * MS)})
    assert [stage for stage, _ in windows] == [0, 1]


def test_closed_stages_are_held_each_at_its_own_level() -> None:
    two = [{"duration": 0.4, "concurrency": 1}, {"duration": 0.5, "concurrency": 3}]
    plan = Plan.model_validate({"load": {"type": "stages", "stages": two}})
    lone = [row(i * 100, reads=[i * 100 + 100]) for i in range(9)]
    more = [row(450 + s, stage=1, reads=[800 + s]) for s in range(2)]
    answers = Answers.of(many([*lone, *more]))
    whole = class_window(answers, plan, Facts(start_at=0), "default")
    windows = dict(stage_windows(answers, plan, Facts(start_at=0), "default", whole))
    assert windows[0].end_at == 400 * MS
    assert (windows[1].start_at, windows[1].end_at) == (451 * MS, 800 * MS)


def test_several_classes_are_measured_while_all_have_their_load() -> None:
    classes = [{"name": n, "load": {"type": "poisson", "rate": 10}} for n in ("a", "b")]
    rows = [row(t, traffic="a") for t in range(0, 1000, 100)] + [row(t, traffic="b") for t in range(0, 600, 100)]
    window = whole_window(Answers.of(many(rows)), Plan.model_validate({"traffic": classes}), Facts(start_at=0))
    assert (window.start_at, window.end_at) == (0, 500 * MS)


def test_in_flight_is_an_integral() -> None:
    """One from 0 to 10, one from 4 to 6: 1, then 2, then 1, then none."""
    flight = InFlight.of(np.array([0, 4]), np.array([10, 6]))
    assert flight.mean(np.array([0, 4, 6, 10, 20])).tolist() == [1.0, 2.0, 1.0, 0.0]
    assert flight.mean(np.array([0, 10])).tolist() == [1.2]
    assert flight.count(np.array([-1, 0, 5, 6, 10])).tolist() == [0, 1, 2, 1, 0]
    assert flight.peak(0, 10) == 2 and flight.peak(7, 9) == 1
    assert flight.held(2) == (4, 6) and flight.held(3) is None


def test_what_was_never_sent_is_not_in_flight() -> None:
    rows = [row(0, reads=[10]), row(0, reads=[], outcome="cancelled")]
    rows[1].sent_at = None
    records = many(rows)
    assert InFlight.of(records.sent_at, records.ended_at).peak(0, 10 * MS) == 1


def test_little() -> None:
    """20 requests a second of 100 ms each: 2 in flight."""
    answers = Answers.of(many([row(i * 50, reads=[i * 50 + 100]) for i in range(400)]))
    span = span_of(answers, np.ones(len(answers), np.bool_))
    found = concurrency(answers, Window(1000 * MS, 19_000 * MS, ""), span, "window", None)
    assert found.mean == pytest.approx(2.0) and found.max == 2
    assert found.little.r_s == pytest.approx(0.1)
    assert found.little.ratio == pytest.approx(1.0, abs=0.01)


def test_busiest_second_slides() -> None:
    """Ten at 900 ms and ten at 1100 ms fall into one second, though not into one of the clock."""
    at = np.array([900] * 10 + [1100] * 10 + [2500], np.int64) * MS
    assert busiest_second(at, np.ones(21), Window(0, 5000 * MS, "")) == 20.0
    assert busiest_second(at, np.ones(21), Window(0, 500 * MS, "")) is None


def test_trend_is_found_and_chance_is_not() -> None:
    noise = np.random.default_rng(0).standard_normal(20) * 0.02
    assert trend(1 + noise).status == "steady"
    rising = trend(1 + noise + np.linspace(0, 0.5, 20))
    assert rising.status == "drifting" and rising.drift == pytest.approx(0.5 / 1.25 * 20 / 19, rel=0.1)
    assert not rising.bend
    hill = trend(1 + noise - 4 * np.linspace(-0.5, 0.5, 20) ** 2)
    assert hill.status == "drifting" and hill.bend and hill.drift < -1, "it neither rises nor falls from end to end"
    assert trend(np.full(20, 4.0)) == trend(np.full(20, 4.0)) and trend(np.full(20, 4.0)).p == 1.0
    assert trend(np.array([1.0, np.nan] * 5)).status == "unknown"


def test_trend_against_scipy_when_blocks_are_independent() -> None:
    y = 1 + np.tile([0.1, -0.1], 10) + np.linspace(0, 0.2, 20)  # negative correlation: no correction
    expected = stats.linregress(np.arange(20), y).pvalue
    assert trend(y).p == pytest.approx(expected, rel=1e-6)


def test_trend_rarely_cries_wolf_on_a_wandering_series() -> None:
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(300):
        series = np.cumsum(rng.standard_normal(2000) * 0.02)
        series -= np.convolve(series, np.ones(200) / 200, "same")  # wanders, and comes back
        alarms += trend(1 + series.reshape(20, 100).mean(axis=1)).status == "drifting"
    assert alarms <= 6


def test_failures_take_their_time_in_flight() -> None:
    answers = Answers.of(many([failure(0, ended=100), row(0, reads=[50])]))
    span = span_of(answers, np.ones(len(answers), np.bool_))
    found = concurrency(answers, Window(0, 100 * MS, ""), span, "window", 2)
    assert found.mean == found.window == pytest.approx(1.5)
