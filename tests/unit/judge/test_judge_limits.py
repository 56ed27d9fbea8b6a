"""Limits: failures are infinitely late, open loops use scheduled times, unknown values do not pass."""

import pytest
from measure_rows import closed_plan, failure, many, open_plan, row, steady_load

from inferometer.judge.limits import judge_limits, judge_plan
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.plan.limit import Limit
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.record import Record
from inferometer.record.summary import LimitResult

START = Facts(start_at=0)


def judged(rows: list[Record], limit: str, closed: bool = False) -> LimitResult:
    plan = (closed_plan(1, limits=[limit])) if closed else open_plan(limits=[limit])
    (result,) = judge_plan(plan, summarize(many(rows), plan, START))
    return result


@pytest.mark.parametrize(
    ("limit", "met", "value"),
    [
        ("ttft p99 < 60ms", True, 0.05),
        ("ttft p99 < 50ms", False, 0.05),
        ("ttft p99 <= 50ms", True, 0.05),
        ("ttft mean < 60ms", True, 0.05),
        ("ttft max < 60ms", True, 0.05),
        ("ttft < 60ms", True, 0.05),
        ("itl p90 < 20ms", True, 0.01),
        ("output_tokens min >= 5", True, 5.0),
        ("user_speed p1 > 99/s", True, 100.0),
        ("failure_rate < 1%", True, 0.0),
        ("request_rate > 9/s", True, 10.0),
        ("concurrency < 1", True, None),
        ("stall_share <= 0%", True, 0.0),
    ],
)
def test_by_hand(limit: str, met: bool, value: float | None) -> None:
    result = judged(steady_load(n=401), limit)
    assert result.met is met, result
    assert value is None or result.value == pytest.approx(value)
    assert result.limit in result.text


def test_time_outs_cannot_pass() -> None:
    rows = [failure(i * 100) if i % 20 == 0 else row(i * 100) for i in range(600)]
    result = judged(rows, "ttft p99 < 500ms")
    assert result.met is False and result.value is None
    assert "30 failed requests counted as infinitely late" in result.text
    assert judged(rows, "ttft p50 < 500ms").met is True
    assert judged(rows, "ttft mean < 500ms").met is False
    assert judged(rows, "ttft < 500ms").met is False
    assert judged(rows, "user_speed mean > 1/s").met is False


def test_a_failure_is_a_speed_of_zero() -> None:
    rows = [failure(i * 100) if i % 2 else record for i, record in enumerate(steady_load(n=100))]
    assert judged(rows, "user_speed mean > 49/s").value == pytest.approx(50.0)
    assert judged(rows, "user_speed min > 1/s").met is False


def test_an_open_loop_is_judged_by_schedule() -> None:
    late = [row(i * 100, sent=i * 100 + 70, reads=[i * 100 + 100]) for i in range(60)]
    result = judged(late, "ttft p90 < 50ms")
    assert result.met is False and result.value == pytest.approx(0.1)
    assert "scheduled TTFT p90" in result.text
    assert judged(late, "ttft p90 < 50ms", closed=True).met is True


def test_an_unknown_quantile_is_not_passed_but_may_fail() -> None:
    few = steady_load(n=50)
    result = judged(few, "ttft p99 < 60ms")
    assert result.met is None and "99% required" in result.text
    assert judged(few, "ttft p99 < 40ms").met is False


def test_a_quantile_too_close_to_its_limit_is_unclear() -> None:
    """Its value alone would say met: another run may end otherwise."""
    rows = [row(i * 100, reads=[i * 100 + 50 + (i * 37) % 100]) for i in range(200)]
    result = judged(rows, "ttft p50 < 101ms")
    assert result.met is None and result.value == pytest.approx(0.099)
    assert "51% of requests met it" in result.text and "50% required" in result.text
    assert result.needed is not None and result.needed > 5_000  # a share of 51% against 50%
    assert judged(rows, "ttft p50 < 120ms").met is True
    assert judged(rows, "ttft p50 < 80ms").met is False


def test_a_mean_is_judged_by_its_value_and_a_close_call_is_said() -> None:
    rows = [row(i * 100, reads=[i * 100 + 50 + (i * 37) % 100]) for i in range(200)]
    result = judged(rows, "ttft mean < 100ms")
    assert result.met is True and "both sides" in result.text


def test_what_is_said_to_decide_decides() -> None:
    """A p99 that all requests keep by far: so many requests show it, and not the more that its own interval needs."""
    needed = judged(steady_load(n=100), "ttft p99 < 500ms").needed
    assert needed is not None and 380 <= needed < 520
    assert judged(steady_load(n=needed), "ttft p99 < 500ms").met is True


@pytest.mark.parametrize(
    "limit", ["ttft p99 < 1s", "goodput_share > 90%", "session_time p50 < 1s", "request_rate > 1/s"]
)
def test_what_was_not_measured_cannot_be_told(limit: str) -> None:
    assert judged([], limit).met is None


def test_goodput_without_a_limit_on_requests_says_what_is_missing() -> None:
    missing = judged(steady_load(n=20), "goodput > 1/s")
    assert missing.met is None
    assert missing.text.endswith("counts requests that meet a limit of their own: add one, such as ttft < 500ms")


def test_sessions_and_goodput() -> None:
    rows = [row(i * 1000 + 500 * t, turn=t, turns=2) for i in range(40) for t in range(2)]
    for i, record in enumerate(rows):
        record.session = i // 2
    plan = open_plan(limits=["session_time p50 < 1s", "ttft < 200ms", "goodput_share > 90%"])
    found = judge_plan(plan, summarize(Records.of(rows), plan, START))
    assert [(result.met, result.value) for result in found] == [(True, pytest.approx(0.6)), (True, 0.1), (True, 1.0)]


def test_each_class_by_its_own_limits() -> None:
    classes = [
        {"name": name, "load": {"type": "poisson", "rate": 10}, "limits": [f"ttft p50 < {limit}"]}
        for name, limit in (("a", "200ms"), ("b", "20ms"))
    ]
    plan = Plan.model_validate({"traffic": classes})
    rows = [row(i * 100, traffic=name) for i in range(20) for name in "ab"]
    found = judge_plan(plan, summarize(many(rows), plan, START))
    assert [(result.traffic, result.met) for result in found] == [("a", True), ("b", False)]


def test_a_stage_can_be_judged_alone() -> None:
    plan = Plan.model_validate(
        {"load": {"type": "stages", "stages": [{"duration": 1, "rate": 10}, {"duration": 9, "rate": 10}]}}
    )
    rows = [row(i * 100, reads=[i * 100 + (10 if i < 10 else 90)]) for i in range(30)]
    stages = summarize(many(rows), plan, START).stages
    met = [judge_limits([Limit.model_validate("ttft p50 < 50ms")], stage)[0].met for stage in stages]
    assert met == [True, False]
