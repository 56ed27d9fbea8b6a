"""Concurrent sessions, repeated tapes, sessions generated ahead, and priming requests; in virtual time."""

from itertools import count
from typing import Any

import pytest
from msgspec import structs
from test_load_drive import Fixed, Run  # type: ignore[import-not-found]

from inferometer.load.arrivals import Pace
from inferometer.load.clock import VirtualClock
from inferometer.load.prime import Primer, primes_of
from inferometer.measure.doubts import JudgedRun
from inferometer.measure.doubts.target import hit_rate_off
from inferometer.measure.inputs import Facts
from inferometer.plan.model import Plan
from inferometer.record.summary import CachedTokens
from inferometer.record.verdict import Reason
from inferometer.simulator.virtual import rehearse, simulated_run
from inferometer.workload.session import Ahead, Request, Session

S = 1_000_000_000


def most_at_once(records):
    """The most sessions under way at any instant: from the first request sent to the last answer."""
    spans: dict[Any, Any] = {}
    for each in records:
        start, end = spans.get(each.session, (each.sent_at, each.ended_at))
        spans[each.session] = min(start, each.sent_at), max(end, each.ended_at)
    steps = sorted([(start, 1) for start, _ in spans.values()] + [(end, -1) for _, end in spans.values()])
    level = most = 0
    for _, step in steps:
        level += step
        most = max(most, level)
    return most


@pytest.mark.parametrize("load", [{"concurrency": 8, "sessions_at_once": 5}, {"rate": 50, "sessions_at_once": 5}])
def test_no_more_sessions_are_under_way_than_asked(load):
    run = Run({"load": load, "stop": {"sessions": 40}}, turns=3, think_s=0.5).to_the_end()
    assert len(run.records) == 120
    assert most_at_once(run.records) == 5


def test_without_the_limit_thinking_users_make_room_for_others() -> None:
    run = Run({"load": {"concurrency": 8}, "stop": {"sessions": 40}}, turns=3, think_s=0.5).to_the_end()
    assert most_at_once(run.records) > 8


def test_sessions_at_once_alone_are_that_many_users() -> None:
    plan = Plan(load={"sessions_at_once": 6})
    assert (plan.load.type, plan.load.concurrency, plan.load.sessions_at_once) == ("concurrency", 6, 6)


def test_an_arrival_that_waits_for_a_session_keeps_its_instant() -> None:
    pace = Pace(arrivals=iter([(0, 0, 0), (1, S // 10, 0)]), indices=count(), sessions_at_once=1)
    run = Run(pace=pace, turns=2, think_s=0.2, service_s=0.1).to_the_end()
    second = next(each for each in run.records if each.session == 1)
    assert second.scheduled_at - 100 * S == S // 10
    assert second.ready_at - 100 * S == pytest.approx(0.4 * S)  # two answers of 0.1 s and a pause of 0.2 s


def test_when_the_time_is_up_those_that_wait_for_a_session_are_still_sent() -> None:
    plan = {"load": {"type": "constant", "rate": 10, "sessions_at_once": 1}, "stop": {"duration": 1}}
    run = Run(plan, turns=2, think_s=0.25, service_s=0.1).to_the_end()
    assert {each.session for each in run.records} == set(range(10))
    assert {each.outcome for each in run.records} == {"ok"}


def test_an_interrupt_keeps_those_that_wait_as_cancelled() -> None:
    run = Run({"load": {"type": "constant", "rate": 10, "sessions_at_once": 1}, "stop": {"sessions": 10}}, service_s=5)
    run.until(0.95)
    run.drive.interrupt("cancelled")
    run.clock.run()
    assert sorted(each.outcome for each in run.records) == ["cancelled"] * 9 + ["ok"]


def test_sessions_in_turn_all_begin_before_the_second_turn_of_one_and_pauses_keep_their_slots() -> None:
    load = {"concurrency": 2, "sessions_at_once": 6, "in_turn": True}
    run = Run({"load": load, "stop": {"sessions": 6}}, turns=3, think_s=0.5, service_s=0.1).to_the_end()
    sent = sorted(run.records, key=lambda each: (each.sent_at, each.session))
    assert [each.turn for each in sent] == [0] * 6 + [1] * 6 + [2] * 6
    assert [each.session for each in sent[6:12]] == list(range(6))
    first, second = sent[0], sent[2]  # of one slot: an answer of 0.1 s, and the pause behind it
    assert second.sent_at - first.ended_at == pytest.approx(0.5 * S)


def test_in_turn_needs_to_know_how_many_take_turns() -> None:
    with pytest.raises(ValueError, match="sessions_at_once: how many sessions take turns"):
        Plan(load={"concurrency": 2, "in_turn": True})


@pytest.mark.parametrize("load", [{"concurrency": 5}, {"concurrency": 5, "sessions_at_once": 5, "in_turn": True}])
@pytest.mark.parametrize("think_s", [0.0, 0.5])
def test_the_last_request_may_be_in_the_middle_of_a_session(load: dict[str, Any], think_s: float) -> None:
    stop = {"requests": 12, "whole_sessions": False}
    run = Run({"load": load, "stop": stop}, turns=8, think_s=think_s, service_s=0.1).to_the_end()
    assert len(run.records) == 12
    assert run.drive.planned == 12
    if not think_s:
        assert most_at_once(run.records) == 5  # whole sessions would have been two


def test_so_many_requests_of_open_loops_too_behind_the_warm_up() -> None:
    stop, warmup = {"requests": 7, "whole_sessions": False}, {"requests": 2}
    run = Run({"load": {"type": "constant", "rate": 20}, "stop": stop, "warmup": warmup}, turns=3, service_s=0.1)
    records = run.to_the_end().records
    assert len([each for each in records if each.session >= 2]) == 7


# -- the same tape twice -------------------------------------------------------------------------------------


def test_a_tape_is_sent_twice_and_the_second_time_counts() -> None:
    plan = Plan(warmup={"tape": True}, stop={"requests": 30}, load={"concurrency": 4})
    assert plan.warmup.requests == 30
    records, facts = rehearse(plan)
    assert len(records) == 60
    cached = [int(each) for each in records.cached_tokens[records.session.argsort()]]
    assert not any(cached[:30]) and all(cached[30:])
    assert facts.warmup_end_at == records.scheduled_at[records.session >= 30].min()


def test_a_tape_that_was_warmed_is_not_cached_by_accident() -> None:
    run = simulated_run(Plan(warmup={"tape": True}, stop={"requests": 400}, load={"concurrency": 4}))
    assert "cached" not in {reason.code for reason in run.verdict.doubts}
    assert run.summary.tokens.cached.share > 0.9


@pytest.mark.parametrize(
    "plan",
    [
        {"stop": {"duration": 5}},
        {"stop": {"requests": 9}, "workload": {"turns": 2}},
        {"traffic": [{"stop": {"requests": 9}}, {"stop": {"requests": 10}}]},
    ],
)
def test_a_tape_needs_a_number_of_sessions(plan):
    with pytest.raises(ValueError, match=r"warmup.tape needs an end by sessions"):
        Plan(**plan, warmup={"tape": True})


# -- sessions made ahead -------------------------------------------------------------------------------------


def ahead(workload, indices, most=None):
    return Ahead(workload, ((index, 0, 0) for index in indices), lambda _index, _session: 100, most)


def test_what_is_made_ahead_comes_in_order_and_once() -> None:
    made = []

    def workload(index):
        made.append(index)
        return Session([Request(str(index))])

    queue = ahead(workload, range(5), most=3)
    assert queue.short
    while queue.make_one():
        pass
    assert made == [0, 1, 2]
    assert [queue.take()[1].turns[0].prompt for _ in range(5)] == list("01234")
    assert queue.take() is None and made == [0, 1, 2, 3, 4]


def test_a_session_that_cannot_be_made_is_heard_when_it_is_wanted() -> None:
    def workload(index):
        if index == 1:
            raise ValueError("row 2 is broken")
        return Session([Request(str(index))])

    queue = ahead(workload, range(3))
    while queue.make_one():
        pass
    assert queue.take()[0][0] == 0
    with pytest.raises(ValueError, match="row 2"):
        queue.take()


# -- before the load -------------------------------------------------------------------------------------------


class Primed:
    """A workload that has something to prime."""

    def __call__(self, index):
        return Session([Request("x")])

    def primes(self):
        return (Request(f"beginning {number}", 1) for number in range(20))


def test_every_replica_gets_every_beginning_from_one_of_the_shards() -> None:
    sent = [pair for shard in range(3) for pair in primes_of(Primed(), 2, shard, 3)]
    assert sorted(number for number, _ in sent) == list(range(40))
    assert {(number % 2, request.prompt) for number, request in sent} == {
        (url, f"beginning {number}") for url in range(2) for number in range(20)
    }
    assert list(primes_of(lambda index: Session([]), 1)) == []


def primer_on(clock, **transport):
    over = []
    sender = Fixed(clock, **transport)
    primer = Primer("class", primes_of(Primed(), 1), clock, sender, lambda: over.append(clock.now()))
    primer.start()
    return primer, sender, over


def test_priming_sends_a_few_at_a_time_and_says_when_it_is_over() -> None:
    clock = VirtualClock()
    primer, sender, over = primer_on(clock)
    assert len(sender.requests) == 8
    clock.run()
    assert over == [round(0.3 * S)] and primer.over
    assert (primer.primed.requests, primer.primed.failed) == (20, 0)


def test_priming_counts_what_failed_and_can_be_stopped() -> None:
    clock = VirtualClock()
    primer, _, over = primer_on(clock, fails=lambda ticket: ticket.session % 2)
    clock.run()
    assert (primer.primed.requests, primer.primed.failed, primer.primed.error) == (20, 10, "connect")
    assert len(over) == 1
    primer, sender, over = primer_on(clock)
    primer.stop()
    clock.run()
    assert len(sender.requests) == 8 and len(over) == 1


# -- and after it ------------------------------------------------------------------------------------------------


def prefix_plan(**fields):
    return Plan(
        workload={"input_tokens": 300, "output_tokens": 4, "prefix": {"hit_rate": 0.6, "groups": 4}} | fields,
        load={"rate": 20},
        stop={"requests": 400},
    )


def test_an_asked_hit_rate_is_met_by_an_engine_that_caches() -> None:
    run = simulated_run(prefix_plan())
    assert run.summary.tokens.cached.share == pytest.approx(0.6, abs=0.01)
    assert "hit_rate_off" not in {reason.code for reason in run.verdict.doubts}


def test_a_hit_rate_that_is_off_fails_the_verdict() -> None:
    plan = prefix_plan().model_copy(update={"server": Plan(server={"args": {"prefix_caching": False}}).server})
    run = simulated_run(plan)
    assert run.verdict.status == "invalid"
    (reason,) = (each for each in run.verdict.doubts if each.code == "hit_rate_off")
    assert "0% of prompt tokens came from the prefix cache, 60% were requested" in reason.text


def test_a_hit_rate_that_cannot_be_checked_is_a_doubt() -> None:
    made = simulated_run(prefix_plan())
    (traffic,) = prefix_plan().classes

    def judged(share: float | None, traffic=traffic) -> list[Reason]:
        cached = CachedTokens(share=share, reported=None if share is None else 1)
        tokens = structs.replace(made.summary.tokens, cached=cached)
        part = structs.replace(made.summary, tokens=tokens)
        return list(hit_rate_off(JudgedRun(part, part, traffic, None, Facts(), prefix_plan())))

    (unknown,) = judged(None)
    assert unknown.status == "doubtful" and "reports no cached tokens" in unknown.text
    assert [reason.status for reason in judged(0.9)] == ["invalid"]
    assert judged(0.9, Plan().classes[0]) == []
