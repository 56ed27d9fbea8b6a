"""The verdict: a sound run is valid, and every possible problem is detected and reported."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from measure_rows import MS, closed_plan, failure, many, open_plan, row

from inferometer.measure.accuracy import MOST_NAMED
from inferometer.measure.inputs import CoreUse, Facts
from inferometer.measure.quantiles import share_interval
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import CLASS_RULES, RUN_RULES, verdict
from inferometer.plan.model import Plan
from inferometer.record.environment import Curve
from inferometer.record.record import Record
from inferometer.record.summary import Gauge, ServerSummary
from inferometer.record.verdict import STATUSES, Status, Verdict

START = Facts(start_at=0)
RATE = 20.0


def arrivals(n: int = 800, seed: int = 0) -> list[float]:
    return (1000 * np.cumsum(np.random.default_rng(seed).exponential(1 / RATE, n))).tolist()


def sound(n: int = 800, **changes: Any) -> list[Record]:
    """A Poisson run in which every answer takes 100 ms and has 5 tokens, as asked."""
    told = {"requested_output": 5, "requested_input": 100, "input_tokens": 102, "cached_tokens": 0} | changes
    return [row(t, sent=t + 0.05, reads=[t + 60 + 10 * j for j in range(5)], **told) for t in arrivals(n)]


def judged(rows: list[Record], plan: Plan | None = None, facts: Facts = START) -> Verdict:
    plan = plan or open_plan(RATE)
    return verdict(summarize(many(rows), plan, facts), facts, plan)


def codes(found: Verdict) -> set[str]:
    return {reason.code for reason in found.doubts}


def notes(result: Verdict) -> set[str]:
    return {reason.code for reason in result.notes}


def test_a_sound_run_is_valid() -> None:
    assert judged(sound(), open_plan(RATE, limits=["ttft p99 < 1s"])) == Verdict(status="valid")


def changed(change: Callable[[int, Record], object], n: int = 800) -> list[Record]:
    rows = sound(n)
    for number, record in enumerate(rows):
        change(number, record)
    return rows


def late(by: float, every: int = 1) -> Callable[[int, Record], object]:
    def change(number: int, record: Record) -> None:
        if number % every == 0:
            assert record.sent_at is not None
            record.sent_at += round(by * MS)

    return change


@pytest.mark.parametrize(
    ("by", "every", "status"),
    [
        *((0.5, 1, "valid"), (2, 10, "valid"), (10, 9, "doubtful"), (45, 9, "doubtful"), (75, 1, "invalid")),
        *((2.6, 1, "valid"), (2.9, 1, "doubtful")),  # 4.3% and 4.8% of 60 ms: known to a tenth
    ],
)
def test_late_sends(by: float, every: int, status: Status) -> None:
    """Requests take 60 ms to their first token, 100 ms in all, since they were due: what is late is part of that."""
    rows = changed(late(by, every))
    for record in rows[::every]:
        record.read_at = (np.frombuffer(record.read_at, "<i8") + round(by * MS)).tobytes()
    result = judged(rows)
    assert result.status == status
    assert codes(result) == (set() if status == "valid" else {"late_sends"})
    assert ("late_sends" in notes(result)) == (status == "valid" and by > 1)
    if result.doubts:
        first = result.doubts[0]
        assert first.moves[0].by == pytest.approx(by / 1000, rel=0.1) and "too high" in first.text


def test_the_wait_under_a_cap_is_not_our_lateness() -> None:
    def wait(_: int, record: Record) -> None:
        assert record.sent_at is not None
        record.ready_at = record.sent_at = record.sent_at + 30 * MS

    capped = open_plan(RATE, load={"max_concurrency": 500})
    assert codes(judged(changed(wait), capped)) == {"held_back"}


def test_not_the_process_named() -> None:
    assert codes(judged(sound(), open_plan(30))) == {"not_the_process"}
    assert codes(judged(sound(), open_plan(RATE, load={"type": "constant"}))) == {"not_the_process"}


@pytest.mark.parametrize(("planned", "status"), [(800, "valid"), (820, "valid"), (860, "doubtful"), (1000, "invalid")])
def test_shortfall(planned: int, status: Status) -> None:
    assert judged(sound(), facts=Facts(start_at=0, planned={"default": planned})).status == status


def slack(position: int, by: float, every: int) -> Callable[[int, Record], object]:
    def change(number: int, record: Record) -> None:
        values = np.zeros(5, "<i8")
        values[position] = by * MS if number % every == 0 else 0
        record.read_slack = values.tobytes()

    return change


def test_uncertain_reads() -> None:
    assert codes(judged(changed(slack(0, 10, 5)))) == {"uncertain_reads"}
    assert codes(judged(changed(slack(0, 1, 1)))) == set()
    assert codes(judged(changed(slack(2, 8, 2)))) == {"uncertain_reads"}
    assert codes(judged(changed(slack(2, 8, 500)))) == set()


def test_one_uncertain_read_makes_no_doubt() -> None:
    assert "uncertain_reads" not in codes(judged(changed(slack(0, 10, 69), n=69)))


def test_last_reads_come_with_the_end_and_are_told_apart() -> None:
    """Every last token came with the usage and [DONE], so it may have come a gap of 10 ms earlier."""
    rows = changed(slack(4, 10, 1))
    assert {move.key.partition(".")[0] for move in judged(rows).doubts[0].moves} == {"tpot", "e2e"}
    found = summarize(many(rows), open_plan(RATE), START).uncertainty
    assert found.read.large == 0 and found.last_read.p50 == pytest.approx(0.010)
    ends = judged(changed(slack(4, 30, 1)))
    assert codes(ends) == {"uncertain_reads"} and ends.doubts[0].moves[0].key.startswith("tpot")


def test_tokens_that_came_together_are_told_apart_from_an_uncertain_instant() -> None:
    """Joined before they reached us, they make no instant uncertain."""

    def join(_: int, record: Record) -> None:
        record.read_tokens = np.array([3, 1, 1, 1, 1], "<i8").tobytes()

    together = changed(join)
    result = summarize(many(together), open_plan(RATE), START).uncertainty
    assert result.first_read.large == 0
    assert (result.first_tokens.several_share, result.first_tokens.most) == (1.0, 3)
    result = summarize(many(changed(slack(0, 10, 50))), open_plan(RATE), START).uncertainty
    assert result.first_read.large > 0
    assert (result.first_tokens.several, result.first_tokens.most) == (0, 1)


def curve(ttft: float, read: float, ceiling: float = 1e6) -> Facts:
    point = {"streams": 100, "events_per_s": 1e4, "ttft_error_p99": ttft, "read_error_p99": read, "stamps": "read"}
    return Facts(start_at=0, calibration=msgspec.convert({"points": [point], "ceiling_events_per_s": ceiling}, Curve))


def used(*shares: float, shard: str = "0") -> tuple[CoreUse, ...]:
    return tuple(CoreUse(share, 1.0, shard) for share in shares)


@pytest.mark.parametrize(
    ("facts", "status", "code"),
    [
        (curve(0.001, 0.0001), "valid", set()),
        (curve(0.010, 0.0001), "doubtful", {"own_error"}),
        (curve(0.050, 0.0001), "doubtful", {"own_error"}),
        (curve(0.001, 0.005), "doubtful", {"own_error"}),
        (curve(0.001, 0.0001, ceiling=150), "valid", set()),
        (Facts(start_at=0, core_use=used(0.2, 0.95, 0.97)), "valid", set()),
        (Facts(start_at=0, core_use=used(0.95, *[0.3] * 30)), "valid", set()),
        (Facts(start_at=0, core_use=(CoreUse(1.0, 0.345),)), "valid", set()),  # too short to say anything
        (Facts(start_at=0, core_use=(CoreUse(1.0, 0.2), CoreUse(0.3, 5.0))), "valid", set()),  # half of them, 4% of it
        (Facts(start_at=0, core_use=(*used(1.0), *used(*[0.1] * 30, shard="1"))), "valid", set()),
        (Facts(start_at=0, gave_up="3 requests failed, stop.errors is 3"), "invalid", {"ended_early"}),
        (Facts(start_at=0, gave_up="x", planned={"default": 2000}), "invalid", {"ended_early"}),
        (Facts(start_at=0, clock_steps_s=(0.5,), stamps="kernel"), "doubtful", {"clock_stepped"}),
        (Facts(start_at=0, clock_steps_s=(0.5,)), "valid", set()),
        (Facts(start_at=0, interrupted=True), "doubtful", {"interrupted"}),
        (Facts(start_at=0, lost_workers=("1 of 2: killed",), planned={"default": 2000}), "invalid", {"worker_lost"}),
        (Facts(start_at=0, lost_server="it ended with SIGKILL"), "invalid", {"server_lost"}),
        (Facts(start_at=0, unreadable=1), "doubtful", {"unreadable_entries"}),
    ],
)
def test_what_is_known_beside_the_records(facts: Facts, status: Status, code: set[str]) -> None:
    found = judged(sound(), facts=facts)
    assert found.status == status and codes(found) == code, found


def test_a_queue_without_bound() -> None:
    """Answers come at 15 a second, requests at 20."""
    rows, free = [], 0.0
    for t in arrivals():
        free = max(free, t) + 1000 / 15
        rows.append(row(t, sent=t + 0.05, reads=[free - 5, free]))
    found = judged(rows)
    assert found.status == "invalid" and "unbounded_queue" in codes(found)
    assert any(reason.remedy == "lower the rate" for reason in found.doubts)


def test_the_queue_before_our_cap_is_not_in_the_servers_own() -> None:
    """The server has nothing waiting: without a cap there is no queue then; behind one the requests wait with us."""
    rows, free = [], 0.0
    for t in arrivals():
        free = max(free, t)
        done = free + 1000 / 15
        rows.append(row(t, sent=free + 0.05, reads=[done - 5, done], ready_at=round(free * MS)))
        free = done
    idle = ServerSummary(
        sources=[], counters={}, finished={}, histograms={}, prefix_hit_rate=None, complete=True, restarted=False,
        gauges={"queued": Gauge(unit="requests", mean=0.0, max=0.0)},
    )  # fmt: skip
    for cap in (None, 1):
        plan = open_plan(RATE, load={"max_concurrency": cap})
        summary = msgspec.structs.replace(summarize(many(rows), plan, START), server=idle)
        queues = [doubt for doubt in verdict(summary, START, plan).doubts if doubt.code == "unbounded_queue"]
        assert len(queues) == (cap or 0)
    assert "a cap of 1 requests" in queues[0].text and queues[0].remedy == "lower the rate, or raise max_concurrency"


def test_a_queue_of_which_nothing_left_is_not_known_to_be_without_bound() -> None:
    """All still in flight at the drain deadline: slower than the run is long, which is not overload."""
    rows = [row(t, reads=[], ended=45_000, outcome="unfinished") for t in arrivals()]
    found = judged(rows)
    assert found.status == "invalid" and codes(found) == {"nothing_answered"}


def test_a_busy_queue_with_a_bound_is_not() -> None:
    rows, free = [], 0.0
    for t in arrivals(4000):
        free = max(free, t) + 1000 / 28
        rows.append(row(t, sent=t + 0.05, reads=[free - 5, free]))
    assert "unbounded_queue" not in codes(judged(rows))


def test_a_queue_that_grows_slowly_is_found_by_waits_that_never_end() -> None:
    """Answers come at 19 a second, requests at 20: little joins the backlog, but nobody is served at once any more."""
    rows, free = [], 0.0
    for t in arrivals(1200, seed=3):
        free = max(free, t) + 1000 / 19
        rows.append(row(t, sent=t + 0.05, reads=[free - 5, free]))
    backlog = summarize(many(rows), open_plan(RATE), START).window.backlog
    assert backlog is not None and (backlog.growth_share or 0.0) < 0.2
    assert (backlog.waiting_share or 0.0) > 0.5 and (backlog.waiting_growth or 0.0) > 1.3
    assert "unbounded_queue" in codes(judged(rows))


def test_what_is_missing_from_a_throughput_is_measured_by_what_is_left() -> None:
    """Three of four failed: without them throughput were four times as high, which is three times more."""
    rows = [failure(t) if n % 4 else row(t, sent=t + 0.05, reads=[t + 60, t + 100]) for n, t in enumerate(arrivals())]
    reason = next(reason for reason in judged(rows).doubts if reason.code == "failed_requests")
    assert reason.moves[0].share == pytest.approx(3.0, rel=0.1)


def test_a_drift_is_found_and_a_ramp_is_meant() -> None:
    rows = [row(t, sent=t + 0.05, reads=[t + 60 + t / 500, t + 100 + t / 500]) for t in arrivals()]
    found = judged(rows)
    assert "not_steady" in codes(found) and "not_the_process" not in codes(found)
    ramp = open_plan(RATE, load={"type": "ramp", "to": RATE}, stop={"duration": 40})
    assert codes(judged(rows, ramp)) == set()


def test_weak_percentiles_are_a_note() -> None:
    result = judged(sound(100), open_plan(RATE, limits=["ttft p99 < 1s"]))
    assert (result.status, codes(result), notes(result)) == ("valid", set(), {"weak_quantiles"})
    assert "is based on 100 samples (368 needed)" in result.notes[0].text


def test_output_that_is_not_as_asked() -> None:
    def shorter(_: int, record: Record) -> None:
        record.requested_output, record.finish_reason = 8, "stop"

    rows = changed(shorter)
    assert (codes(judged(rows)), notes(judged(rows))) == ({"short_output"}, {"odd_finish"})
    free = open_plan(RATE, sampling={"ignore_eos": False})
    assert codes(judged(rows, free)) == set()
    formed = open_plan(RATE, sampling={"structured": {"json_object": True}})  # the form ends the answer
    assert codes(judged(rows, formed)) == set()
    assert codes(judged(sound(finish_reason="content_filter"), free)) == {"odd_finish"}


def test_another_finish_reason_in_every_answer_is_counted_and_listed_within_bounds() -> None:
    def named(number: int, record: Record) -> None:
        record.finish_reason = f"reason {number}" if number % 2 else "content_filter"

    rows = changed(named)
    result = judged(rows, open_plan(RATE, sampling={"ignore_eos": False}))
    text = next(reason.text for reason in result.doubts if reason.code == "odd_finish")
    assert f"{(len(rows) + 1) // 2} 'content_filter'" in text and len(text) < 300 and "others" in text
    reasons = summarize(many(rows), open_plan(RATE), START).tokens.finish_reasons
    assert len(reasons) <= MOST_NAMED + 1 and sum(reasons.values()) > len(rows) // 2


def test_tokens_that_do_not_add_up() -> None:
    assert codes(judged(sound(output_tokens=6, requested_output=6))) == {"tokens_disagree"}
    assert (codes(judged(sound(input_tokens=150))), notes(judged(sound(input_tokens=150)))) == (
        set(),
        {"input_differs"},
    )
    assert codes(judged(sound(cached_tokens=50))) == {"cached"}


def test_nothing_answered() -> None:
    found = judged([failure(t, outcome="connect", error="refused") for t in arrivals(50)])
    assert found.status == "invalid" and found.doubts[0].code == "nothing_answered"
    assert "50 × connection failed" in found.doubts[0].text and "refused" in found.doubts[0].text
    assert judged([]).status == "invalid"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("Too many open files", "ulimit -n"),
        ("Cannot assign requested address", "ip_local_port_range"),
        ("No buffer space available", "tcp_mem"),
        ("Cannot allocate memory", "more free memory"),
    ],
)
def test_what_failed_here_is_not_the_servers(error: str, remedy: str) -> None:
    rows = sound()
    for number in range(0, 800, 10):
        rows[number] = failure(rows[number].scheduled_at / MS, outcome="client", error=error, sent=None)
    judging = open_plan(RATE, limits=["failure_rate < 1%"])
    for plan in (None, judging):  # a limit on the server's failures does not judge ours
        result = judged(rows, plan)
        first = result.doubts[0]
        assert (result.status, first.code) == ("invalid", "client_failed")
        assert "10% of requests (80 of 800) failed on this machine" in first.text and error in first.text
        assert remedy in (first.remedy or "")
    assert "failed_requests" not in codes(result) | notes(result)


def test_a_handful_that_failed_here_is_a_note() -> None:
    rows = sound()
    rows[5] = failure(rows[5].scheduled_at / MS, outcome="client", error="Too many open files")
    assert judged(rows).status == "valid" and "client_failed" in notes(judged(rows))


@pytest.mark.parametrize("rest", ["client", "cancelled"])
def test_nothing_but_our_own_failures_is_not_blamed_on_the_address(rest: str) -> None:
    """Also where the load was ended for it, and what was under way cancelled."""
    rows = [failure(t, outcome="client", error="Too many open files") for t in arrivals(50)]
    rows[25:] = [failure(row.scheduled_at / MS, outcome=rest, error=None) for row in rows[25:]]
    doubts = judged(rows).doubts
    assert [doubt.code for doubt in doubts][:2] == ["client_failed", "nothing_answered"]
    assert not any("model's name" in (doubt.remedy or "") for doubt in doubts)


@pytest.mark.parametrize("stamps", ["kernel", "read"])
def test_a_busy_client_is_a_note_with_any_kind_of_stamps(stamps: Literal["kernel", "read"]) -> None:
    """What it moves is in the uncertainty of its reads and in its late sends, which say how much."""
    facts = Facts(start_at=0, core_use=used(0.2, 0.95, 0.97), stamps=stamps)
    assert "busy_client" in {note.code for note in judged(sound(), facts=facts).notes}


def pieces(events: int, tokens: list[int]) -> list[Record]:
    """Answers of 20 tokens in so many events; the first read comes after 100 ms."""
    return [row(t, reads=[t + 100.0 + i for i in range(len(tokens))], tokens=tokens, events=events) for t in arrivals()]


@pytest.mark.parametrize(
    ("events", "tokens", "streamed"),
    [(1, [20], False), (3, [20], False), (21, [20], True), (4, [10, 10], True), (20, [1] * 20, True), (1, [4], True)],
)
def test_answers_in_one_piece(events: int, tokens: list[int], streamed: bool) -> None:
    """A stream that the network merged into one read was one, and a short answer may fit into one event."""
    assert ("not_streamed" in codes(judged(pieces(events, tokens)))) != streamed


@pytest.mark.parametrize(
    ("limit", "status"), [("ttft p99 < 1s", "invalid"), ("tpot < 1s", "invalid"), ("e2e p99 < 1s", "doubtful")]
)
def test_a_limit_on_what_only_a_stream_shows(limit: str, status: Status) -> None:
    rows = pieces(1, [20])
    assert judged(rows, open_plan(RATE, limits=[limit])).status == status
    assert judged(rows, open_plan(RATE, limits=[limit], target={"stream": False})).status == "valid"


def test_concurrency_that_was_not_held() -> None:
    """Between two requests a slot is left empty for as long as they take."""
    gaps = [row(i * 100, reads=[i * 100 + 50]) for i in range(100)]
    assert codes(judged(gaps, closed_plan(1))) == {"concurrency_not_held"}
    full = [row(i * 100, reads=[i * 100 + 100]) for i in range(100)]
    assert codes(judged(full, closed_plan(1))) == set()
    assert "concurrency_not_held" in codes(judged(full, closed_plan(4)))


def test_each_class_is_judged_and_named() -> None:
    classes = [{"name": n, "load": {"type": "poisson", "rate": RATE}} for n in ("a", "b")]
    rows = [row(t, reads=[t + 50, t + 60], traffic="a") for t in arrivals()]
    rows += [row(t, sent=t + 30, reads=[t + 80, t + 90], traffic="b") for t in arrivals(seed=1)]
    found = judged(rows, Plan.model_validate({"traffic": classes}))
    assert found.traffic == {"a": "valid", "b": found.status} and found.status != "valid"
    assert codes(found) == {"late_sends"} and found.doubts[0].text.startswith("b: ")


def test_worst_reasons_come_first_and_read_as_sentences() -> None:
    facts = Facts(start_at=0, interrupted=True, core_use=used(1.0), clock_steps_s=(1.0,), stamps="kernel")
    found = judged([failure(t) for t in arrivals(10)], facts=facts)
    statuses = [reason.status for reason in found.doubts]
    assert statuses == sorted(statuses, key=["invalid", "doubtful"].index) and len(statuses) >= 2
    for reason in found.doubts:
        assert reason.text[0].isupper() and reason.text.endswith(".")


def test_no_rule_breaks_on_an_odd_run() -> None:
    for rows in ([], [row(0)], [failure(0)], [row(0), row(0)]):
        for plan in (open_plan(), closed_plan()):
            assert judged([*rows], plan, Facts()).status in STATUSES
    assert len({*RUN_RULES, *CLASS_RULES}) == len(RUN_RULES) + len(CLASS_RULES)


def test_a_limit_that_every_request_met_is_judged_by_their_number_alone() -> None:
    """Forty answers that all met a limit on p90: no spread was estimated, so none is corrected for few blocks."""
    share = share_interval(np.ones(42))
    assert share.interval[0] > 0.9 and share.independent == 42
