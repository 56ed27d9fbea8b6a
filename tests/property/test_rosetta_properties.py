"""For any records: no tool's number is NaN, quantiles are ordered, and exports can be read back."""

import json
import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.exchange.exporting.vllm import serve_document
from inferometer.exchange.importing.vllm import imported
from inferometer.measure.rosetta import TOOLS, SeenRequests, fields, statistics, tool_named
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.environment import Environment
from inferometer.record.record import OUTCOMES, Record
from inferometer.record.run import Run
from inferometer.record.summary import Summary

INSTANT = st.integers(0, 10**11)
SPAN = st.integers(1, 10**10)


@st.composite
def a_record(draw, outcomes=tuple(OUTCOMES)):
    outcome = draw(st.sampled_from(outcomes))
    due = draw(INSTANT)
    sent = due + draw(st.integers(0, 10**8))
    gaps = draw(st.lists(SPAN, max_size=8, min_size=1 if outcome == "ok" else 0))
    reads = sent + np.cumsum(np.array(gaps, "<i8"))
    tokens = np.array(draw(st.lists(st.integers(1, 5), min_size=len(gaps), max_size=len(gaps))), "<i8")
    known = draw(st.booleans())
    return Record(
        session=0,
        scheduled_at=due,
        ready_at=due,
        sent_at=sent,
        ended_at=int(reads[-1]) + draw(st.integers(0, 10**6)) if len(gaps) else sent,
        connect_ns=draw(st.integers(0, 10**6)),
        read_at=reads.astype("<i8").tobytes(),
        read_tokens=tokens.tobytes(),
        input_tokens=draw(st.integers(1, 5000)) if known else None,
        requested_input=100,
        requested_output=draw(st.one_of(st.none(), st.integers(1, 50))),
        output_tokens=int(tokens.sum()) if known and len(gaps) else None,
        events=draw(st.integers(0, 40)),
        outcome=outcome,
        error=None if outcome == "ok" else outcome,
    )


@given(st.lists(a_record(), max_size=12), st.sampled_from(sorted(TOOLS)), st.sampled_from(["completions", "chat"]))
def test_numbers_are_finite_and_quantiles_in_order(rows, name, api):
    tool, seen = tool_named(name), SeenRequests.of(Records.of(rows), api)
    assert all(value is None or math.isfinite(value) for value in fields(tool, seen).values())
    shares = sorted((share, word) for word, share in tool.statistics.items() if share is not None)
    for spread in tool.spreads:
        found = statistics(tool, spread, seen)
        ordered = [found[word] for _, word in shares]
        if ordered[0] is not None:
            assert all(a <= b + 1e-9 * abs(b) for a, b in pairwise(ordered))


@given(st.lists(a_record(), min_size=1, max_size=12), st.sampled_from(sorted(TOOLS)), st.randoms())
def test_the_order_of_the_log_does_not_matter(rows, name, random):
    tool = tool_named(name)
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = (fields(tool, SeenRequests.of(Records.of(each))) for each in (rows, shuffled))
    for field, value in one.items():
        same = other[field]
        assert (value is None) == (same is None)
        if value is not None and "per second" not in field and "Completed" not in field:  # ties of the last query
            assert math.isclose(value, same, rel_tol=1e-9, abs_tol=1e-12), field


@settings(max_examples=60)
@given(st.lists(a_record(outcomes=("ok", "timeout", "status")), min_size=1, max_size=10))
def test_what_is_exported_to_vllm_comes_back(rows):
    for row in rows:
        row.connect_ns = 0
    records = Records.of(rows)
    run = Run(
        "x",
        "2026-11-15T03:12:07+00:00",
        StoredPlan({}),
        Environment(),
        Summary(),
        source="test",
        read_records=lambda: records,
    )
    said = json.loads(json.dumps(serve_document(run, detailed=True)))
    again, length_s = imported(said, "x.json").records, said["duration"]
    before, after = (
        fields(tool_named("vllm"), SeenRequests.of(each, duration_s=length_s)) for each in (records, again)
    )
    for field in before:
        if field.startswith("max_"):
            continue  # seconds are counted from the first success, and a failure has no start in the file
        assert (before[field] is None) == (after[field] is None), field
        if before[field] is not None:
            assert math.isclose(before[field], after[field], rel_tol=1e-6, abs_tol=1e-6), field
