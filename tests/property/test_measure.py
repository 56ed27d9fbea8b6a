"""Properties for any records: order does not matter, totals are sums, shards merge, stages partition."""

import json
import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.measure import quantiles
from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.registry import request_values
from inferometer.measure.summary import summarize
from inferometer.measure.window import InFlight
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.encoding import summary_document, summary_from
from inferometer.record.record import OUTCOMES, Record
from inferometer.record.summary import Summary

MS = 1_000_000
OPEN = Plan.model_validate({"load": {"type": "poisson", "rate": 10}, "limits": ["ttft < 200ms", "tpot p90 < 9ms"]})
CLOSED = Plan.model_validate({"load": {"type": "concurrency", "concurrency": 3}})
STAGED = Plan.model_validate(
    {"load": {"type": "stages", "stages": [{"duration": d, "rate": 5} for d in (1, 2, 1.5, 60)]}}
)
START = Facts(start_at=0)


@st.composite
def requests(draw: st.DrawFn, session: int) -> Record:
    scheduled = draw(st.integers(0, 10_000)) * MS
    ready = scheduled + draw(st.integers(0, 50)) * MS
    sent = ready + draw(st.integers(0, 5)) * MS
    outcome = draw(st.sampled_from(["ok", "ok", "ok", "ok", *OUTCOMES]))
    gaps = draw(st.lists(st.integers(0, 300), min_size=int(outcome == "ok"), max_size=6))
    reads = np.array(sent + np.cumsum(gaps) * MS, "<i8")
    tokens = np.array(draw(st.lists(st.integers(0, 4), min_size=len(gaps), max_size=len(gaps))), "<i8")
    usage = draw(st.sampled_from([None, int(tokens.sum()), int(tokens.sum()) + 1]))
    ended = int(reads[-1]) if len(reads) else sent + draw(st.integers(0, 100)) * MS
    return Record(
        session=session,
        scheduled_at=scheduled,
        ready_at=ready,
        sent_at=draw(st.sampled_from([sent, sent, sent, None])) if outcome != "ok" else sent,
        ended_at=draw(st.sampled_from([ended, ended, ended, None])) if outcome != "ok" else ended,
        read_at=reads.tobytes(),
        read_tokens=tokens.tobytes(),
        output_tokens=usage,
        input_tokens=draw(st.none() | st.integers(1, 50)),
        shard=session % 3,
        outcome=outcome,
        status=draw(st.sampled_from([429, 500])) if outcome == "status" else 200,
    )


@st.composite
def logs(draw: st.DrawFn, max_size: int = 25) -> list[Record]:
    return [draw(requests(number)) for number in range(draw(st.integers(0, max_size)))]


def plain(records: list[Record] | Records, plan: Plan = OPEN) -> Summary:
    """Through JSON, which refuses NaN and infinity."""
    columns = records if isinstance(records, Records) else Records.of(records)
    document = summary_document(summarize(columns, plan, START))
    return summary_from(json.loads(json.dumps(document, allow_nan=False)))


@settings(max_examples=25, deadline=None)
@given(logs(), st.randoms(use_true_random=False), st.sampled_from([OPEN, CLOSED, STAGED]))
def test_order_of_records_does_not_matter(log: list[Record], random: Any, plan: Plan) -> None:
    shuffled = [*log]
    random.shuffle(shuffled)
    assert plain(log, plan) == plain(shuffled, plan)


@settings(max_examples=25, deadline=None)
@given(logs())
def test_shards_merge_to_the_whole(log: list[Record]) -> None:
    shards = [Records.of([r for r in log if r.shard == shard]) for shard in range(3)]
    assert plain(Records.concat(shards)) == plain(log)


@settings(max_examples=30, deadline=None)
@given(logs(), st.sampled_from([OPEN, CLOSED]))
def test_totals_are_sums(log: list[Record], plan: Plan) -> None:
    summary = plain(log, plan)
    assert sum(summary.outcomes.values()) == len(log)
    counted = sum(int(np.frombuffer(r.read_tokens, "<i8").sum()) for r in log)
    spans = {name: rate.span or 0.0 for name, rate in summary.rates.items()}
    assert math.isclose(spans["total_rate"], spans["input_rate"] + spans["output_rate"], abs_tol=1e-6)
    if summary.slices:
        width = summary.slices.width_s
        assert math.isclose(sum(r.tokens_per_s for r in summary.slices.rows) * width, counted, abs_tol=1e-6)
        assert len(summary.slices.rows) <= 120


@settings(max_examples=30, deadline=None)
@given(logs())
def test_goodput_and_failures_count_every_request_once(log: list[Record]) -> None:
    summary = plain(log)
    good, planned = summary.goodput, summary.window.requests
    assert good.met + good.missed + good.undefined + good.censored == planned
    failures = summary.failures
    assert good.censored == failures.censored and good.missed >= failures.failed


@settings(max_examples=30, deadline=None)
@given(logs(), st.sampled_from([OPEN, CLOSED, STAGED]))
def test_statistics_are_in_order(log: list[Record], plan: Plan) -> None:
    for described in plain(log, plan).measures.values():
        if not described.count:
            assert described.mean is described.min is described.p50 is None
            continue
        known = [described[q] for q in ("min", "p50", "p90", "p95", "p99", "max") if described[q] is not None]
        assert known == sorted(known)
        slack = 1e-9 * max(1.0, abs(described.max))
        assert described.min - slack <= described.mean <= described.max + slack
        for quantile, (low, high) in described.intervals.items():
            value = described[quantile]
            if value is not None and low is not None and high is not None:
                assert low - slack <= value <= high + slack


@settings(max_examples=30, deadline=None)
@given(logs())
def test_stages_partition_the_window(log: list[Record]) -> None:
    summary = plain(log, STAGED)
    stages = summary.stages
    if stages:
        assert sum(stage.window.requests for stage in stages) == summary.window.requests
        assert math.isclose(sum(s.window.length_s for s in stages), summary.window.length_s, rel_tol=1e-9)


@settings(max_examples=30, deadline=None)
@given(logs())
def test_values_of_requests_make_sense(log: list[Record]) -> None:
    answers = Answers.of(Records.of(log))
    tpot = request_values("tpot", answers)
    undefined = answers.output_tokens <= answers.first_tokens
    assert np.isnan(tpot[undefined]).all()
    ttft, e2e, scheduled = (request_values(name, answers) for name in ("ttft", "e2e", "ttft_scheduled"))
    known = ~np.isnan(ttft)
    assert (ttft[known] <= e2e[known]).all() and (ttft[known] <= scheduled[known]).all()


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=30))
def test_in_flight_integral_is_the_sum_of_spans(spans: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([start + length for start, length in spans], np.int64)
    flight = InFlight.of(starts, ends)
    edges = np.array([0, 500, 2000], np.int64)
    area = flight.mean(edges) * np.diff(edges)
    assert math.isclose(float(area.sum()), float((ends - starts).sum()), abs_tol=1e-6)
    assert 0 <= flight.peak(0, 2000) <= len(spans)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200),
    st.floats(0.01, 0.99),
)
def test_a_quantile_is_one_of_the_values(values: list[float], q: float) -> None:
    drawn = quantiles.sample(np.array(values))
    found = quantiles.quantile(drawn, q)
    assert found in values
    assert sum(v <= found for v in values) >= q * len(values) - 1e-6
    estimate = quantiles.estimate(drawn, q)
    low, high = estimate.interval
    assert low is None or low <= found
    assert high is None or high >= found
    assert (estimate.value is None) == (len(values) == 0)
