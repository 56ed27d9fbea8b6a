"""Runs that once had a wrong throughput or verdict, with the old and the current result."""

import numpy as np
import pytest
from measure_rows import closed_plan, many, open_plan, row

from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict

FACTS = Facts(start_at=0, stamps="kernel")


def test_two_hundred_prompts_without_a_rate() -> None:
    """All are sent within 109 ms and served in 1.3 s, 16 at a time. One answer was there when the last was sent: the
    rate in that window was shown."""
    free, rows = [0.0] * 16, []
    for number in range(200):
        due = number * 108.6 / 199
        slot = int(np.argmin(free))
        stay = 105.0 if number == 0 else 112.0 if number < 16 else 99.0
        free[slot] = max(free[slot], due) + stay
        rows.append(row(due, reads=[free[slot] - 50, free[slot]], input_tokens=10))
    rate = summarize(many(rows), open_plan(2000), FACTS).rates["request_rate"]
    assert rate.window == pytest.approx(9.21, abs=0.01)
    assert rate.basis == "span" and rate.value == pytest.approx(153.7, rel=0.01)


def test_a_closed_loop_of_512_in_lockstep() -> None:
    """Every round is answered at once, so the next 512 sends leave one after the other, the last 10 ms late. TTFT is
    since the send and right; that was INVALID for late sends."""
    rows = []
    for wave in range(20):
        for slot in range(512):
            due = wave * 1010.0
            sent = due + slot * 10 / 511
            rows.append(row(due, sent, reads=[sent + 50 + 9.5 * token for token in range(100)], ended=due + 1010.0))
    plan = closed_plan(512)
    records = many(rows)
    summary = summarize(records, plan, FACTS)
    result = verdict(summary, FACTS, plan)
    assert summary.delivery is not None and summary.delivery.lateness.p99 == pytest.approx(0.0099, abs=2e-4)
    assert summary.measures["ttft"].p99 == pytest.approx(0.05)
    assert result.status == "valid", [doubt.text for doubt in result.doubts]
    assert "late_sends" in {note.code for note in result.notes}
