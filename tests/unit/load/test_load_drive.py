"""The drive loop in virtual time: what is sent when, what waits, and how it ends."""

from collections import Counter
from itertools import accumulate, count
from typing import Any

import pytest

from inferometer.load.answer import new_record
from inferometer.load.arrivals import Pace, pace_of
from inferometer.load.clock import VirtualClock
from inferometer.load.drive import Drive
from inferometer.load.facts import facts_of
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.log import Note
from inferometer.workload.session import Request, Session

S = 1_000_000_000
START = 100 * S


class Fixed:
    """A transport whose answers all take as long; `fails` ends some of them at once, before `send` returns."""

    def __init__(self, clock, service_s=0.1, fails=lambda _ticket: False):
        self.clock, self.service_ns, self.fails = clock, round(service_s * S), fails
        self.requests = []
        self.depth = self.deepest = 0

    def prepare(self, _request, _traffic, _session):
        return 0

    def send(self, request, ticket, ended, done):
        self.requests.append((ticket.session, ticket.turn, request))
        record = new_record(ticket)
        record.sent_at = self.clock.now()

        def over(outcome="ok"):
            if record.ended_at is not None:
                return
            timer.cancel()
            record.outcome, record.ended_at = outcome, self.clock.now()
            answer = f"answer {ticket.session}.{ticket.turn}"
            if ticket.live:
                done(record, answer)
                ended(record.ended_at)
            else:
                ended(record.ended_at)
                self.clock.call_at(record.ended_at, lambda: done(record, answer))

        timer = self.clock.call_at(self.clock.now() + self.service_ns, over)
        if self.fails(ticket):
            self.depth += 1
            self.deepest = max(self.depth, self.deepest)
            over("connect")
            self.depth -= 1
        return over


class Run:
    """A plan, or a pace of one's own, driven on a clock of its own."""

    def __init__(self, plan=None, pace=None, turns=1, think_s=0.0, live=False, **transport):
        self.clock = VirtualClock(START)
        self.records: list[Any] = []
        self.over: list[Any] = []
        self.stopped: list[Any] = []
        self.transport = Fixed(self.clock, **transport)

        def workload(index):
            return Session([_turn(index, turn, think_s, live) for turn in range(turns)], live=live)

        pace = pace or pace_of(Plan(**plan), 0)
        self.drive = Drive("class", workload, pace, self.clock, self.transport, self.records.append)
        self.drive.on_over = lambda: self.over.append(self.clock.now() - START)
        self.drive.on_stop = lambda: self.stopped.append(self.clock.now() - START)
        self.drive.start(START)

    def to_the_end(self):
        self.clock.run()
        assert self.drive.over
        assert len(self.over) == 1
        assert len(self.stopped) == 1
        return self

    def until(self, after_s):
        self.clock.run(START + round(after_s * S))
        return self

    @property
    def outcomes(self):
        return Counter(record.outcome for record in self.records)


def _turn(index, turn, think_s, live):
    prompt: Any = f"{index}.{turn}"
    if live:
        prompt = [{"role": "user", "content": "q"}, *[{"role": "assistant", "content": "recorded"}] * turn]
    return Request(prompt, think_s=think_s if turn else 0.0)


def in_flight(records):
    """How many are in flight after each change, ends before beginnings."""
    changes = [(record.ended_at, -1) for record in records] + [(record.sent_at, 1) for record in records]
    return list(accumulate(change for _, change in sorted(changes)))


# -- open loop --------------------------------------------------------------------------------------------------------


def test_an_hour_of_load() -> None:
    run = Run({"load": {"type": "constant", "rate": 10}, "stop": {"duration": "1h"}}).to_the_end()
    assert len(run.records) == 36_000
    assert [record.scheduled_at for record in run.records] == [START + number * S // 10 for number in range(36_000)]
    assert all(record.sent_at == record.ready_at == record.scheduled_at for record in run.records)
    assert run.over == [3600 * S]


def test_a_cap_makes_arrivals_wait_and_drops_none() -> None:
    """Ten a second, each takes a second, two at a time: the queue grows, and every wait is there to see."""
    load = {"type": "constant", "rate": 10, "max_concurrency": 2}
    run = Run({"load": load, "stop": {"requests": 20}}, service_s=1).to_the_end()
    assert [record.scheduled_at for record in run.records] == [START + number * S // 10 for number in range(20)]
    waits = [record.ready_at - record.scheduled_at for record in run.records]
    assert waits == [max(0, (number // 2) * S + (number % 2) * S // 10 - number * S // 10) for number in range(20)]
    assert max(in_flight(run.records)) == 2
    assert run.stopped == [19 * S // 10]


def test_the_time_is_up_but_what_waits_is_sent() -> None:
    load = {"type": "constant", "rate": 10, "max_concurrency": 1}
    run = Run({"load": load, "stop": {"duration": 1}}, service_s=0.5).to_the_end()
    assert len(run.records) == 10
    assert run.over == [5 * S]


def test_a_ramp_gets_faster() -> None:
    run = Run({"load": {"type": "ramp", "rate": 1, "to": 99}, "stop": {"duration": 10}, "seed": 3}).to_the_end()
    first = sum(record.scheduled_at < START + 5 * S for record in run.records)
    assert 0.15 < first / len(run.records) < 0.35  # a quarter, a little more for the 1 it begins with
    assert 400 < len(run.records) < 600


def test_a_load_without_arrivals_is_over_at_once() -> None:
    plan = Plan(load={"type": "constant", "rate": 1}, stop={"duration": 1})
    run = Run(pace=pace_of(plan, 0, 1, 2))
    assert run.drive.over
    assert run.over == [0]


# -- closed loop ------------------------------------------------------------------------------------------------------


def test_a_closed_loop_keeps_its_slots_full() -> None:
    run = Run({"load": {"concurrency": 7}, "stop": {"requests": 100}}).to_the_end()
    changes = sorted({at for record in run.records for at in (record.sent_at, record.ended_at)})
    for moment in (before + 1 for before in changes[:-2]):
        assert sum(record.sent_at <= moment < record.ended_at for record in run.records) == 7
    assert all(record.scheduled_at == record.ready_at == record.sent_at for record in run.records)
    assert [record.session for record in run.records] == list(range(100))


def test_a_slot_is_taken_at_the_instant_it_is_free() -> None:
    run = Run({"load": {"concurrency": 1}, "stop": {"requests": 5}}).to_the_end()
    assert [record.scheduled_at - START for record in run.records] == [number * S // 10 for number in range(5)]


def test_stages_of_concurrency() -> None:
    stages = [{"concurrency": 2, "duration": 1}, {"concurrency": 5, "duration": 1}, {"concurrency": 1, "duration": 1}]
    run = Run({"load": {"stages": stages}}, service_s=0.3).to_the_end()
    levels: Counter[tuple[int, int]] = Counter()
    for at in range(0, 3 * S, S // 20):
        moment = START + at + S // 40
        levels[at // S, sum(record.sent_at <= moment < record.ended_at for record in run.records)] += 1
    assert levels[0, 2] == 20
    assert levels[1, 5] == 20
    assert levels[2, 1] >= 13, "what was under way when the stage began finishes first"
    assert {record.stage for record in run.records} == {0, 1, 2}
    assert max(record.sent_at for record in run.records) < START + 3 * S


def test_a_duration_ends_a_closed_loop() -> None:
    run = Run({"load": {"concurrency": 3}, "stop": {"duration": 10}}, service_s=0.25).to_the_end()
    assert len(run.records) == 3 * 40
    assert run.stopped == [10 * S]


# -- warm-up and stop rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [{"concurrency": 4}, {"type": "poisson", "rate": 40}])
@pytest.mark.parametrize("rule", ["requests", "sessions"])
def test_warmup_requests_come_on_top(load, rule: str):
    run = Run({"load": load, "stop": {rule: 30}, "warmup": {"requests": 12}}).to_the_end()
    assert len(run.records) == 42
    assert run.drive.planned in (None, 42)


def test_a_warmup_of_time_comes_on_top() -> None:
    load = {"type": "constant", "rate": 10}
    assert len(Run({"load": load, "stop": {"requests": 30}, "warmup": {"duration": 2}}).to_the_end().records) == 50
    assert len(Run({"load": load, "stop": {"duration": 3}, "warmup": {"duration": 2}}).to_the_end().records) == 50
    closed = {"load": {"concurrency": 1}, "stop": {"requests": 30}, "warmup": {"duration": 2}}
    assert len(Run(closed).to_the_end().records) == 50


def test_facts_know_the_warmup() -> None:
    plan = Plan(load={"type": "constant", "rate": 10}, stop={"requests": 30}, warmup={"duration": 2, "requests": 5})
    run = Run(pace=pace_of(plan, 0)).to_the_end()
    facts = facts_of(plan, Records.of(run.records), [Note("start", START)])
    assert facts.warmup_end_at == START + 2 * S
    assert facts.planned == {"default": 50} == {plan.classes[0].name: len(run.records)}
    assert facts.interrupted, "no word of an end"
    ended = Note("ended", START, {"stamps": "kernel"})
    facts = facts_of(plan, Records.of(run.records), [Note("start", START), ended])
    assert (facts.interrupted, facts.stamps) == (False, "kernel")


def test_stages_end_where_arrivals_change() -> None:
    plan = Plan(load={"stages": [{"duration": 0.1, "rate": 100}, {"duration": 0.2, "rate": 100}]}, seed=1)
    run = Run(pace=pace_of(plan, 0)).to_the_end()
    [ends] = facts_of(plan, Records.of(run.records), [Note("start", START)]).stage_ends_at.values()
    for record in run.records:
        assert record.stage == sum(record.scheduled_at >= end for end in ends)


def test_counts() -> None:
    run = Run({"load": {"concurrency": 2}, "stop": {"requests": 6}}, fails=lambda ticket: ticket.session == 3)
    run.until(0.05)
    assert (run.drive.counts.sent, run.drive.counts.in_flight, run.drive.counts.done) == (2, 2, 0)
    run.to_the_end()
    counts = run.drive.counts
    assert (counts.scheduled, counts.sent, counts.done, counts.failed, counts.in_flight) == (6, 6, 6, 1, 0)


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_turns_follow_each_other_after_thinking() -> None:
    run = Run({"load": {"type": "constant", "rate": 1}, "stop": {"sessions": 3}}, turns=3, think_s=2.5).to_the_end()
    turns = {(record.session, record.turn): record for record in run.records}
    assert len(turns) == len(run.records) == 9
    for (session, turn), record in turns.items():
        if turn:
            assert record.scheduled_at == turns[session, turn - 1].ended_at + 5 * S // 2
            assert record.sent_at == record.scheduled_at
        assert record.turns == 3


def test_requests_count_turns() -> None:
    run = Run({"load": {"concurrency": 1}, "stop": {"requests": 7}}, turns=3).to_the_end()
    assert len(run.records) == 9, "a session that has begun is finished"


def test_without_thinking_a_session_keeps_its_slot() -> None:
    run = Run({"load": {"concurrency": 1}, "stop": {"sessions": 2}}, turns=3).to_the_end()
    assert [(record.session, record.turn) for record in run.records] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert all(record.ready_at == record.scheduled_at for record in run.records)


def test_who_thinks_leaves_the_slot_to_others() -> None:
    run = Run({"load": {"concurrency": 1}, "stop": {"sessions": 3}}, turns=2, think_s=0.15).to_the_end()
    assert max(in_flight(run.records)) == 1
    order = [(record.session, record.turn) for record in sorted(run.records, key=lambda record: record.sent_at)]
    assert order[:3] == [(0, 0), (1, 0), (2, 0)]
    late = next(record for record in run.records if (record.session, record.turn) == (0, 1))
    assert late.ready_at > late.scheduled_at == START + S // 4


def test_a_live_answer_joins_the_next_turn() -> None:
    run = Run({"load": {"concurrency": 2}, "stop": {"sessions": 2}}, turns=3, live=True).to_the_end()
    for session, turn, request in run.transport.requests:
        said = [message["content"] for message in request.prompt if message["role"] == "assistant"]
        assert said[-1:] == ([f"answer {session}.{turn - 1}"] if turn else [])


def test_the_end_of_time_ends_sessions_too() -> None:
    plan = {"load": {"concurrency": 1}, "stop": {"duration": 1}}
    run = Run(plan, turns=100, think_s=0.1).to_the_end()
    assert max(record.scheduled_at for record in run.records) < START + S
    assert run.over[0] <= 1.1 * S


# -- ends -------------------------------------------------------------------------------------------------------------


def test_an_interrupt_lets_finish_what_is_under_way() -> None:
    load = {"type": "constant", "rate": 10, "max_concurrency": 2}
    run = Run({"load": load, "stop": {"requests": 50}}, service_s=1).until(1.05)
    assert (run.drive.counts.in_flight, run.drive.waiting) == (2, 8)
    run.drive.interrupt("cancelled")
    run.to_the_end()
    assert run.outcomes == {"ok": 3, "cancelled": 8}
    unsent = [record for record in run.records if record.outcome == "cancelled"]
    assert all(record.sent_at is None and record.ready_at is None for record in unsent)
    assert [record.scheduled_at for record in unsent] == [START + number * S // 10 for number in range(3, 11)]
    assert all(record.ended_at == START + round(1.05 * S) for record in unsent)


def test_a_second_one_cuts_it() -> None:
    run = Run({"load": {"concurrency": 4}, "stop": {"requests": 50}}, service_s=1).until(2.5)
    run.drive.interrupt("cancelled")
    assert run.over == []
    run.drive.cut("cancelled")
    run.to_the_end()
    assert run.outcomes == {"ok": 8, "cancelled": 4}
    assert run.over == [round(2.5 * S)]


def test_the_drain_deadline_leaves_the_unfinished() -> None:
    run = Run({"load": {"concurrency": 4}, "stop": {"requests": 6}}, service_s=10).until(15)
    run.drive.cut("unfinished")
    run.to_the_end()
    assert run.outcomes == {"ok": 4, "unfinished": 2}


def test_the_last_one_sent_ends_the_sending() -> None:
    """The drain begins then, not when the first slot is free again."""
    run = Run({"load": {"concurrency": 4}, "stop": {"requests": 4}}, service_s=600).until(1)
    assert run.stopped == [0]


def test_who_thinks_does_not_hold_up_the_end() -> None:
    """A session in the middle of an hour's thought when the run is interrupted is not waited for."""
    run = Run({"load": {"concurrency": 1}, "stop": {"sessions": 1}}, turns=2, think_s=3600).until(5)
    assert not run.drive.over
    run.drive.interrupt("cancelled")
    assert run.drive.over
    assert run.over == [5 * S]


def test_an_interrupt_before_the_first_arrival() -> None:
    run = Run({"load": {"type": "constant", "rate": 0.1}, "stop": {"requests": 9}}).until(5)
    run.drive.interrupt("cancelled")
    run.to_the_end()
    assert run.outcomes == {"ok": 1}


@pytest.mark.parametrize("load", [{"concurrency": 3}, {"type": "constant", "rate": 100, "max_concurrency": 3}])
def test_what_fails_at_once_does_not_recurse(load):
    run = Run({"load": load, "stop": {"requests": 5000}}, fails=lambda _ticket: True).to_the_end()
    assert run.outcomes == {"connect": 5000}
    assert run.transport.deepest <= 2


def test_what_fails_at_once_lets_time_go_on() -> None:
    """Every other request fails at once; the rest are answered, and the time limit is heeded."""
    plan = {"load": {"concurrency": 2}, "stop": {"duration": 2}}
    run = Run(plan, fails=lambda ticket: ticket.session % 2 == 0).to_the_end()
    assert run.outcomes["ok"] == 2 * 20
    assert run.stopped == [2 * S]


def test_an_end_that_comes_twice_is_one() -> None:
    run = Run({"load": {"concurrency": 1}, "stop": {"requests": 3}}, service_s=1).until(0.5)
    run.drive.stop()
    run.drive.end()
    run.drive.interrupt("cancelled")
    run.drive.cut("cancelled")
    run.drive.cut("cancelled")
    run.to_the_end()
    assert run.outcomes == {"cancelled": 1}


def test_a_pace_of_ones_own() -> None:
    """No plan is needed: arrivals are any iterator."""
    arrivals = iter([(0, 0, 0), (1, 5, 0), (2, 5, 1)])
    run = Run(pace=Pace(arrivals, count())).to_the_end()
    assert [(record.session, record.scheduled_at - START, record.stage) for record in run.records] == [
        (0, 0, 0),
        (1, 5, 0),
        (2, 5, 1),
    ]


def test_slots_are_shared() -> None:
    plan = Plan(load={"concurrency": 8}, workers=3)
    assert [pace_of(plan, 0, shard, 3).slots[0][1] for shard in range(3)] == [3, 3, 2]
