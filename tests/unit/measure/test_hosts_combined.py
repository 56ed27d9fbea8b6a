"""Numbers over several hosts include the uncertainty of their clocks, and lagging workers are named."""

from typing import Any

import numpy as np
import pytest
from measure_rows import MS, many, open_plan, row

from inferometer.load.facts import facts_of
from inferometer.measure.inputs import Facts, WorkerFacts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.record.log import Note
from inferometer.record.record import Record
from inferometer.record.summary import Clocks, HostClockSummary, Summary
from inferometer.record.verdict import Verdict

RATE, REQUESTS = 20.0, 800


def clocks(uncertainty_s: float | None, jump_s: float | None = None) -> Clocks:
    here = HostClockSummary(host="a", workers=1, uncertainty_s=0.0)
    there = HostClockSummary(host="b", workers=1, offset_s=5.0, uncertainty_s=uncertainty_s, jump_s=jump_s)
    return Clocks(hosts=[here, there], uncertainty_s=uncertainty_s)


def rows(workers: int = 2, **late_ms: float) -> list[Record]:
    """Worker i takes every k-th request; those of `w1` are sent so much late."""
    arrivals = 1000 * np.cumsum(np.random.default_rng(0).exponential(1 / RATE, REQUESTS))
    made = []
    for number, at in enumerate(arrivals.tolist()):
        sent = at + 0.05 + late_ms.get(f"w{number % workers}", 0.0)
        reads = [sent + 60 + 10 * j for j in range(5)]
        made.append(row(at, sent=sent, reads=reads, requested_output=5, shard=number % workers))
    return made


def judged(records: list[Record], facts: Facts) -> tuple[Summary, Verdict]:
    plan = open_plan(RATE)
    summary = summarize(many(records), plan, facts)
    return summary, verdict(summary, facts, plan)


def codes(reasons: Any) -> set[str]:
    return {reason.code for reason in reasons}


def test_edges_rates_and_concurrency_are_off_by_the_clocks_and_latencies_are_not() -> None:
    alone, _ = judged(rows(), Facts(start_at=0))
    summary, result = judged(rows(), Facts(start_at=0, clocks=clocks(0.0006)))
    length_s = summary.window.length_s
    assert length_s is not None and alone.window.clock_error_s is None
    assert summary.window.clock_error_s == 0.0006
    for name in ("request_rate", "output_rate"):
        rate = summary.rates[name]
        assert rate.value is not None
        assert rate.clock_error == pytest.approx(rate.value * 2 * 0.0006 / length_s)
    assert summary.concurrency.mean is not None
    assert summary.concurrency.clock_error == pytest.approx(summary.concurrency.mean * 2 * 0.0006 / length_s)
    assert summary.measures == alone.measures
    assert result.status == "valid" and "clocks" in codes(result.notes)
    (note,) = [note for note in result.notes if note.code == "clocks"]
    text = "Workers ran on 2 hosts, whose clocks agree within 600 µs, and started within 600 µs of each other."
    assert note.text == text


def test_the_common_start_is_uncertain_by_the_clocks_and_by_who_was_late() -> None:
    workers = (WorkerFacts(0, 0.0001), WorkerFacts(1, 0.002))
    summary, _ = judged(rows(), Facts(start_at=0, clocks=clocks(0.0006), workers=workers))
    assert summary.clocks is not None
    assert summary.clocks.start_spread_s == pytest.approx(0.0026)
    unknown, _ = judged(rows(), Facts(start_at=0, clocks=clocks(None), workers=workers))
    assert unknown.clocks is not None and unknown.clocks.start_spread_s is None


def test_clocks_that_move_a_rate_by_more_than_five_percent_are_a_doubt() -> None:
    _, result = judged(rows(), Facts(start_at=0, clocks=clocks(2.0)))
    assert result.status == "doubtful"
    (doubt,) = [doubt for doubt in result.doubts if doubt.code == "clocks_disagree"]
    assert {move.key for move in doubt.moves} >= {"request_rate", "output_rate"}
    assert "process_unchecked" in codes(result.notes)  # gaps of 50 ms between clocks that differ by seconds


def test_a_clock_that_jumped_is_named() -> None:
    _, result = judged(rows(), Facts(start_at=0, clocks=clocks(0.0006, jump_s=3.0)))
    (doubt,) = [doubt for doubt in result.doubts if doubt.code == "clocks_disagree"]
    assert "the clock of b jumped by 3 s" in doubt.text


def test_clocks_that_nobody_compared_are_a_note() -> None:
    summary, result = judged(rows(), Facts(start_at=0, clocks=clocks(None)))
    assert summary.rates["request_rate"].clock_error is None
    assert {"clocks_unmeasured", "process_unchecked"} <= codes(result.notes)


def test_a_worker_that_lags_is_named() -> None:
    summary, result = judged(rows(3, w1=12.0), Facts(start_at=0))
    assert summary.delivery is not None
    (worker,) = summary.delivery.workers
    assert (worker.worker, worker.status) == (1, "lagging")
    assert worker.send_delay_p99_s == pytest.approx(0.012, abs=1e-4)
    (note,) = [note for note in result.notes if note.code == "lagging_worker"]
    assert note.text.startswith("Worker 1 lagged: 1 of its requests in 100 was sent more than 12")


def test_a_worker_that_started_late_is_named() -> None:
    facts = Facts(start_at=0, workers=(WorkerFacts(0, 0.0001), WorkerFacts(1, 0.25)))
    summary, result = judged(rows(), facts)
    assert summary.delivery is not None
    assert [(worker.worker, worker.status) for worker in summary.delivery.workers] == [(1, "late start")]
    assert "Worker 1 started 250 ms after the others." in [note.text for note in result.notes]


def test_late_and_lagging_workers_are_named_with_their_host_where_there_are_several() -> None:
    def starts(*hosts: str) -> list[Note]:
        return [
            Note("start", 0, {"shard": shard, "late_s": 0.25 * shard, "host": host}) for shard, host in enumerate(hosts)
        ]

    plan, records = open_plan(RATE), many(rows())
    apart, alone = (facts_of(plan, records, starts(*hosts)) for hosts in (("a", "b"), ("a", "a")))
    assert [worker.host for worker in apart.workers] == ["a", "b"]
    assert [worker.host for worker in alone.workers] == [None, None]
    result = verdict(summarize(records, plan, apart), apart, plan)
    assert "Worker 1 on b started 250 ms after the others." in [note.text for note in result.notes]


def test_a_lost_worker_has_what_it_sent_of_its_share() -> None:
    kept = [record for record in rows() if record.shard == 0 or record.scheduled_at < 10_000 * MS]
    lost = WorkerFacts(1, 0.0, "b", "its actor was lost", {"default": 400})
    facts = Facts(
        start_at=0,
        workers=(WorkerFacts(0), lost),
        lost_workers=("1 of 2 on b: its actor was lost",),
        planned={"default": REQUESTS},
    )
    summary, result = judged(kept, facts)
    sent = sum(record.shard == 1 for record in kept)
    assert summary.delivery is not None
    assert summary.delivery.shortfall == 400 - sent
    (worker,) = [worker for worker in summary.delivery.workers if worker.status == "lost"]
    assert (worker.planned, worker.arrivals, worker.host) == (400, sent, "b")
    (doubt,) = [doubt for doubt in result.doubts if doubt.code == "worker_lost"]
    text = f"Worker 1 of 2 on b: its actor was lost; its records so far are stored, {sent} of its 400 planned requests"
    assert doubt.text == f"{text} were sent."


def test_one_that_never_came_has_sent_nothing() -> None:
    kept = [record for record in rows() if record.shard == 0]
    never = WorkerFacts(1, lost="it did not start within 60 s", planned={"default": 400})
    facts = Facts(
        start_at=0, workers=(never,), lost_workers=("1 of 2: it did not start",), planned={"default": REQUESTS}
    )
    summary, result = judged(kept, facts)
    assert summary.delivery is not None and summary.delivery.shortfall == 400
    assert "0 of its 400 planned requests were sent" in result.doubts[0].text
