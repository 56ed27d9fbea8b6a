"""The summary of small runs worked out by hand, and of odd ones: nothing sent, all failed, several classes."""

import json
import time

import msgspec
import numpy as np
import pytest
from measure_rows import MS, closed_plan, failure, many, open_plan, packed, row, steady_load

from inferometer.measure.inputs import Facts
from inferometer.measure.summary import slowest, summarize
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.encoding import summary_document, summary_from
from inferometer.record.environment import Curve
from inferometer.record.record import Record
from inferometer.record.summary import CachedTokens, Difference, ErrorCount, Failures, Stalls, Summary

START = Facts(start_at=0)


def plain(summary: Summary) -> Summary:
    """As JSON keeps it; refuses NaN and infinity."""
    return summary_from(json.loads(json.dumps(summary_document(summary), allow_nan=False)))


def test_shape_and_numbers_of_a_steady_run() -> None:
    summary = plain(summarize(many(steady_load(n=401)), open_plan(), START))
    ttft = summary.measures["ttft"]
    assert summary.window.requests == 401 and summary.window.length_s == 40.0
    assert (ttft.count, ttft.undefined, ttft.unit) == (401, 0, "s")
    assert ttft.mean == pytest.approx(0.05) and ttft.p50 == ttft.p99 == 0.05
    assert ttft.intervals["p99"] == (0.05, 0.05) and ttft.weak == {}
    assert summary.headline[:2] == ["ttft_scheduled", "ttft"] and summary.loop == "open"
    assert summary.window.steady.status == "steady"
    assert summary.outcomes == {"ok": 401}
    assert summary.traffic == {} and summary.stages == [] and summary.sessions is None


def test_every_requested_model_has_its_numbers() -> None:
    rows = [row(i * 100, reads=[i * 100 + (50 if i % 3 else 80)]) for i in range(30)]
    for i, each in enumerate(rows):
        each.model = "sql" if i % 3 else "chat"
    summary = plain(summarize(Records.of(rows), open_plan(), START))
    assert {name: part.window.requests for name, part in summary.models.items()} == {"chat": 10, "sql": 20}
    assert [summary.models[name].measures["ttft"].p50 for name in ("chat", "sql")] == pytest.approx([0.08, 0.05])
    assert plain(summarize(many([row(0)]), open_plan(), START)).models == {}


def test_rates_count_what_arrived_in_the_window() -> None:
    """Window 0..1000 ms. The late answer's reads at 1100 and its end are outside, its first read is inside."""
    rows = [
        row(0, reads=[100, 200], tokens=[1, 3], input_tokens=10),
        row(500, reads=[600, 1100], tokens=[2, 2], input_tokens=20),
        row(1000, reads=[1200], input_tokens=40),
        failure(100, outcome="cut", ended=300),
    ]
    summary = summarize(many(rows), open_plan(), START)
    window = {name: rate.window for name, rate in summary.rates.items()}
    assert window == {
        "request_rate": 1.0,
        "input_rate": 30.0,
        "output_rate": 6.0,
        "total_rate": 36.0,
        "offered_rate": 4.0,
    }
    span = {name: rate.span for name, rate in summary.rates.items()}
    assert span["output_rate"] == pytest.approx(9 / 1.2) and span["request_rate"] == pytest.approx(3 / 1.2)
    assert (summary.rates["request_rate"].basis, summary.rates["request_rate"].value) == ("span", span["request_rate"])


def test_tokens_of_a_failed_stream_arrived_all_the_same() -> None:
    cut = row(0, reads=[100, 200], outcome="cut", output_tokens=None)
    summary = summarize(many([cut, row(1000)]), open_plan(), START)
    assert summary.rates["output_rate"].window == 2.0
    assert summary.measures["ttft"].count == 1


def test_adjusted_quantiles_where_something_failed() -> None:
    rows = [failure(i * 100) if i % 10 == 0 else row(i * 100) for i in range(400)]
    ttft = plain(summarize(many(rows), open_plan(), START)).measures["ttft"]
    assert (ttft.count, ttft.p50, ttft.p90) == (360, 0.1, 0.1)
    assert ttft.adjusted.count == 400 and ttft.adjusted.failed == 40
    assert ttft.adjusted.statistics["p90"] == 0.1
    assert ttft.adjusted.statistics["p95"] is None and "p95" not in ttft.adjusted.weak
    without = summarize(many(steady_load(n=50)), open_plan(), START).measures["ttft"]
    assert without.adjusted is None


def test_censored_requests_are_neither_answered_nor_failed() -> None:
    rows = [row(i * 10) for i in range(50)] + [failure(490, outcome="unfinished"), failure(495, outcome="cancelled")]
    summary = summarize(many(rows), open_plan(), START)
    assert summary.failures == Failures(failure_rate=0.0, failed=0, censored=2)
    assert summary.measures["ttft"].adjusted is None
    assert summary.outcomes == {"ok": 50, "cancelled": 1, "unfinished": 1}


def test_outcomes_by_status_and_top_errors() -> None:
    rows = [row(0), *(failure(i, outcome="status", status=429, error="slow down") for i in range(1, 4))]
    rows += [failure(4, outcome="status", status=503, error="busy"), failure(5, outcome="connect", error="refused")]
    summary = summarize(many(rows), open_plan(), START)
    assert summary.outcomes == {"ok": 1, "connect": 1, "status_429": 3, "status_503": 1}
    assert summary.errors[0] == ErrorCount(message="slow down", count=3)
    assert summary.failures.failure_rate == pytest.approx(5 / 6)
    assert summary.failures.by_outcome["status_429"] == pytest.approx(3 / 6)


def test_quantiles_of_too_few_samples_are_weak() -> None:
    ttft = summarize(many(steady_load(n=40)), open_plan(), START).measures["ttft"]
    assert ttft.p50 is not None and ttft.p90 is not None
    assert ttft.p99 == 0.05 and ttft.interval("p99") == (0.05, None) and ttft.weak == {"p95": 72, "p99": 368}
    assert "p99.9" not in ttft.statistics


def test_a_limit_can_name_any_quantile() -> None:
    plan = open_plan(limits=["ttft p75 < 1s", "user_speed p10 > 5/s"])
    measures = summarize(many(steady_load(n=50)), plan, START).measures
    assert measures["ttft"]["p75"] == measures["ttft_scheduled"]["p75"] == 0.05
    assert measures["user_speed"]["p10"] == pytest.approx(100.0)
    assert "p75" not in measures["e2e"].statistics


def test_itl_is_weighted_by_tokens() -> None:
    rows = [row(i * 100, reads=[i * 100 + 10, i * 100 + 20, i * 100 + 60], tokens=[1, 1, 8]) for i in range(10)]
    measures = summarize(many(rows), open_plan(), START).measures
    assert measures["itl"].mean == pytest.approx((0.010 * 1 + 0.005 * 8) / 9)
    assert measures["itl"].p50 == 0.005 and measures["itl"].tokens == 90 and measures["itl"].count == 20
    assert measures["icl"].mean == pytest.approx(0.025)


def test_undefined_is_counted() -> None:
    rows = [row(i * 10, reads=[i * 10 + 5]) for i in range(5)] + steady_load(n=3, gap=10)
    tpot = summarize(many(rows), open_plan(), START).measures["tpot"]
    assert (tpot.count, tpot.undefined) == (3, 5) and tpot.min > 0


def test_goodput_counts_misses_failures_and_the_undefined() -> None:
    """Met, too slow (by schedule), failed, undefined tpot, undefined tpot but too slow, censored."""
    rows = [
        row(0, reads=[50, 60]),
        row(100, sent=250, reads=[290, 300]),
        failure(200),
        row(300, reads=[350]),
        row(400, reads=[900]),
        failure(1000, outcome="unfinished"),
    ]
    limits = ["ttft < 150ms", "tpot < 20ms"]
    good = summarize(many(rows), open_plan(limits=limits), START).goodput
    assert (good.met, good.missed, good.undefined, good.censored) == (1, 3, 1, 1)
    assert good.window == 1.0 and good.share == 0.25
    closed = summarize(many(rows), closed_plan(1, limits=limits), START).goodput
    assert closed.missed < good.missed
    assert summarize(many(rows), open_plan(), START).goodput is None


def test_goodput_of_limits_on_quantiles_takes_the_widest() -> None:
    plan = open_plan(limits=["ttft p50 < 10ms", "ttft p99 < 60ms", "failure_rate < 1%"])
    good = summarize(many(steady_load(n=20)), plan, START).goodput
    assert good.met == 20 and good.limits == ["ttft p99 < 60ms"]


def test_stalls_over_the_limit() -> None:
    rows = [*steady_load(n=9), row(900, reads=[950, 2500])]
    assert summarize(many(rows), open_plan(), START).stalls == Stalls(over_s=1.0, share=0.1)
    tight = open_plan(limits=["icl p99 < 5ms"])
    assert summarize(many(rows), tight, START).stalls == Stalls(over_s=0.005, share=1.0)


def test_tokens_asked_reported_counted() -> None:
    rows = [
        row(0, reads=[10], tokens=[4], output_tokens=4, requested_output=4, requested_input=10, input_tokens=11),
        row(
            5,
            reads=[15],
            tokens=[4],
            output_tokens=5,
            requested_output=8,
            requested_input=10,
            input_tokens=11,
            cached_tokens=5,
        ),
    ]
    rows[1].tokens_by = "events"
    tokens = summarize(many(rows), open_plan(), START).tokens
    assert tokens.input.requested_against_reported.difference == pytest.approx(0.1)
    assert tokens.output.requested_against_reported == Difference(requests=2, differ=1, fewer=1, difference=-0.25)
    assert tokens.output.reported_against_counted.difference == pytest.approx(-1 / 9)
    assert tokens.output.estimated == 1
    assert tokens.output.counted_by == {"events": 1, "running usage": 1}
    assert tokens.cached == CachedTokens(reported=5, share=5 / 11)
    assert tokens.finish_reasons == {"length": 2}


def test_sessions_of_several_turns() -> None:
    """One complete session (0..900), one whose second turn failed."""
    first = [row(0, reads=[100], turns=2), row(600, reads=[800], ended=900, turn=1, turns=2)]
    second = [row(50, reads=[100], turns=2), failure(700, turn=1, turns=2)]
    for number, records in enumerate((first, second)):
        for record in records:
            record.session = number
    sessions = summarize(Records.of([*second, *first]), open_plan(), START).sessions
    assert (sessions.count, sessions.complete) == (2, 1)
    assert sessions.measures["session_time"].mean == 0.9 and sessions.measures["session_last_answer"].mean == 0.8
    assert sessions.measures["session_turns"].mean == 1.5


def test_stages_have_summaries_of_their_own() -> None:
    stages = [{"duration": 1, "rate": 10}, {"duration": 1, "rate": 20}]
    rows = [row(i * 100, reads=[i * 100 + 20]) for i in range(10)]
    rows += [row(1000 + i * 50, reads=[1000 + i * 50 + 40], stage=1) for i in range(20)] + [failure(1999, stage=1)]
    plan = Plan.model_validate({"load": {"type": "stages", "stages": stages}})
    summary = plain(summarize(many(rows), plan, START))
    low, high = summary.stages
    assert (low.window.requests, high.window.requests) == (10, 21)
    assert low.measures["ttft"].p50 == 0.02 and high.measures["ttft"].p50 == 0.04
    assert low.rates["offered_rate"].window == 10.0
    assert low.outcomes == {"ok": 10} and high.outcomes == {"ok": 20, "timeout": 1}
    assert summary.window.requests == 31


def test_several_classes_each_have_their_own() -> None:
    classes = [
        {"name": "chat", "load": {"type": "poisson", "rate": 10}, "limits": ["ttft < 1s"]},
        {"name": "batch", "load": {"type": "concurrency", "concurrency": 1}},
    ]
    rows = [row(i * 100, traffic="chat") for i in range(20)]
    rows += [row(i * 200, reads=[i * 200 + 199], traffic="batch") for i in range(10)]
    summary = plain(summarize(many(rows), Plan.model_validate({"traffic": classes}), START))
    assert summary.loop == "mixed" and summary.goodput is None
    chat, batch = summary.traffic["chat"], summary.traffic["batch"]
    assert (chat.loop, batch.loop) == ("open", "closed")
    assert chat.goodput.met == 20 and batch.goodput is None
    assert chat.measures["ttft"].count == 20
    assert summary.measures["ttft"].count == 30
    assert batch.concurrency.requested == 1 and chat.delivery.process == "poisson"


def test_slices_add_up() -> None:
    records = many([*steady_load(n=300), failure(100, ended=15_000)])
    summary = summarize(records, open_plan(), START)
    rows, width = summary.slices.rows, summary.slices.width_s
    assert len(rows) <= 120
    assert sum(r.tokens_per_s for r in rows) * width == pytest.approx(1500)
    assert sum(r.offered_per_s for r in rows) * width == pytest.approx(301)
    assert [r.t for r in rows if r.failures] == [15.0]
    assert summary.slices.measure == "ttft_scheduled" and rows[3].ttft_p50 == 0.05


@pytest.mark.parametrize("plan", [open_plan(limits=["ttft p99 < 1s"]), closed_plan(4)])
@pytest.mark.parametrize("rows", [[], [failure(0)], [failure(i * 10) for i in range(30)], [row(0)]])
def test_odd_runs_have_summaries_too(plan: Plan, rows: list[Record]) -> None:
    summary = plain(summarize(many([*rows]), plan))
    assert summary.outcomes["ok"] == sum(r.outcome == "ok" for r in rows)
    if not summary.outcomes["ok"]:
        assert summary.measures["ttft"].mean is None and summary.measures["tpot"].p50 is None


def test_a_record_that_never_was_sent() -> None:
    unsent = failure(100, outcome="unfinished")
    unsent.sent_at = unsent.ended_at = unsent.ready_at = None
    summary = plain(summarize(many([*steady_load(n=10), unsent]), open_plan(), START))
    assert summary.delivery.unsent == 1 and summary.measures["send_delay"].count == 10


def test_slowest_first() -> None:
    rows = [row(i * 10, reads=[i * 10 + 100 + (i * 7) % 10]) for i in range(10)] + [failure(3)]
    found = slowest(many(rows), 3)
    assert [round((r.e2e or 0) * 1000) for r in found] == [109, 108, 107]
    assert found[0].session == 7 and found[0].at_s == 0.07 and found[0].tpot is None
    assert slowest(many([failure(0)]), 5) == []


def test_the_instrument_is_looked_up_a_worker_each() -> None:
    curve = {
        "ceiling_events_per_s": 1000.0,
        "points": [
            {"streams": 1, "events_per_s": 1, "ttft_error_p99": 0.002, "read_error_p99": 0.001, "stamps": "kernel"}
        ],
    }
    rows = steady_load(n=100)
    for record in rows[::2]:
        record.shard = 1
    facts = Facts(start_at=0, calibration=msgspec.convert(curve, Curve), stamps="kernel")
    instrument = summarize(many(rows), open_plan(), facts).instrument
    assert instrument.calibrated and instrument.extrapolated
    assert (instrument.workers, instrument.streams, instrument.events_per_s) == (2, 1, 25.0)
    assert instrument.ttft_error_p99 == pytest.approx(0.05)
    assert instrument.ceiling_share == 0.025
    assert not summarize(many(rows), open_plan(), START).instrument.calibrated


def test_a_million_tokens_in_time() -> None:
    """0.3 s of CPU when written; the bound is generous because other work shares the machine."""
    rng, k = np.random.default_rng(0), 500
    rows = []
    for i in range(2000):
        reads = (i * 20 * MS + np.cumsum(rng.exponential(20 * MS, k))).astype(np.int64)
        rows.append(row(i * 20, reads=[], ended=int(reads[-1]) / MS))
        rows[-1].read_at, rows[-1].read_tokens = reads.astype("<i8").tobytes(), packed([1] * k)
        rows[-1].read_slack = packed([0] * k)
    records = many(rows)
    begin = time.process_time()
    summary = summarize(records, open_plan(50), START)
    assert time.process_time() - begin < 2.0
    assert summary.measures["icl"].count == 2000 * (k - 1)
