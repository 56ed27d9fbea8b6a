"""The headline throughput equals a stopwatch's, and that of `vllm bench serve` on the same records."""

import numpy as np
import pytest
from measure_rows import closed_plan, many, open_plan, row

from inferometer.exchange.exporting import seen_by_others
from inferometer.measure.inputs import Facts
from inferometer.measure.rosetta import tool_named, translated
from inferometer.measure.summary import summarize
from inferometer.measure.values import common_basis, quantities
from inferometer.plan.model import Plan
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.environment import Environment
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import Summary

FACTS = Facts(start_at=0)


def by_vllm(records: Records, plan: Plan, summary: Summary) -> float:
    """`request_throughput` of `vllm bench serve` for the same records."""
    run = Run("r", "2026-11-17T00:00:00+00:00", StoredPlan(plan.model_dump(mode="json")), Environment(), summary)
    translation = translated(tool_named("vllm"), seen_by_others(run, records), summary)
    return next(value.theirs for value in translation.values if value.our_measure == "request_rate")


def served(due_ms: list[float], slots: int, stay_ms: float) -> list[Record]:
    """By a server of so many slots, each of which serves one request for `stay_ms`."""
    free, rows = [0.0] * slots, []
    for due in due_ms:
        slot = int(np.argmin(free))
        begun = max(free[slot], due)
        free[slot] = begun + stay_ms
        rows.append(row(due, reads=[begun + stay_ms / 2, begun + stay_ms], input_tokens=10))
    return rows


def test_a_burst() -> None:
    """`--num-prompts 200` without a rate: all at once, on 16 slots of 100 ms: 13 rounds, 1.3 s."""
    records, plan = many(served([0.0] * 200, 16, 100.0)), open_plan(1000)
    summary = summarize(records, plan, FACTS)
    rate = summary.rates["request_rate"]
    assert rate.basis == "span" and rate.value == pytest.approx(200 / 1.3)
    assert rate.value == pytest.approx(by_vllm(records, plan, summary), rel=0.01)
    assert summary.concurrency.little is None


def test_a_short_closed_loop() -> None:
    """256 in flight, 512 requests of about a second."""
    rng = np.random.default_rng(3)
    free, rows = [0.0] * 256, []
    for _ in range(512):
        slot = int(np.argmin(free))
        due, stay = free[slot], float(rng.normal(1000, 30))
        free[slot] = due + stay
        rows.append(row(due, reads=[due + 100, due + stay], input_tokens=10))
    records, plan = many(rows), closed_plan(256)
    summary = summarize(records, plan, FACTS)
    rate = summary.rates["request_rate"]
    assert rate.basis == "span" and rate.value == pytest.approx(512 / (max(free) / 1000), rel=0.001)
    assert rate.value == pytest.approx(by_vllm(records, plan, summary), rel=0.01)


def test_a_steady_hour() -> None:
    due = (1000 * np.cumsum(np.random.default_rng(1).exponential(0.2, 18_000))).tolist()
    records, plan = many(served(due, 64, 800.0)), open_plan(5)
    summary = summarize(records, plan, FACTS)
    rate = summary.rates["request_rate"]
    assert rate.basis == "window" and rate.value == pytest.approx(18_000 / (due[-1] / 1000), rel=0.001)
    assert rate.value == pytest.approx(by_vllm(records, plan, summary), rel=0.01)
    assert summary.concurrency.little is not None


def test_the_warm_up_is_not_in_the_span() -> None:
    rows = [row(i * 100, reads=[i * 100 + 50]) for i in range(20)]
    plan = open_plan(10, warmup={"requests": 10})
    rate = summarize(many(rows), plan, FACTS).rates["request_rate"]
    assert rate.span == pytest.approx(10 / 0.95)


def test_runs_are_compared_on_one_basis() -> None:
    """One headlines its window and one its span: the span of both."""
    hour = summarize(many(served([i * 200.0 for i in range(2000)], 64, 800.0)), open_plan(5), FACTS)
    burst = summarize(many(served([0.0] * 200, 16, 100.0)), open_plan(1000), FACTS)
    basis = common_basis([hour, burst])
    assert basis == "span" and common_basis([hour, hour]) == "window"
    assert quantities(hour, basis)["request_rate"].value == hour.rates["request_rate"].span
    assert quantities(hour)["request_rate"].value == hour.rates["request_rate"].window
