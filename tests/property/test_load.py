"""Records do not depend on how bytes are split into reads, nor the load on the number of shards."""

from bisect import bisect_left
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from streams import HEAD, MOMENT, STEP_NS, chunked, cut, events, exchange_of, sse

from inferometer.load.answer import read_answer
from inferometer.load.arrivals import pace_of, share, warmup_sessions
from inferometer.load.clock import VirtualClock
from inferometer.load.drive import Drive
from inferometer.plan.model import Plan
from inferometer.record.record import Record
from inferometer.wire.api import api_of
from inferometer.workload.session import Request, Session

pytestmark = pytest.mark.usefixtures("reader")

places = st.lists(st.integers(0, 5000), max_size=12)
START = 5_000_000_000


def ints(packed):
    return np.frombuffer(packed, np.int64).tolist()


def record_of(exchange, api="completions"):
    record = Record(session=0, scheduled_at=0)
    read_answer(record, exchange, api_of(api), 0)
    return record


@given(st.booleans().flatmap(lambda chat: st.tuples(st.just(chat), events(chat=chat))), places, places)
def test_tokens_go_to_the_read_that_completed_them(made, chunk_at, read_at):
    chat, row = made
    body = sse([document for document, _ in row])
    framed, behind = chunked(cut(body, chunk_at))
    exchange = exchange_of(HEAD + framed, read_at)
    record = record_of(exchange, "chat" if chat else "completions")

    read_ends = list(accumulate(map(len, exchange.reads)))
    expected, body_at = {}, 0  # type: ignore[var-annotated]
    for document, tokens in row:
        body_at += len(sse([document], done=False))
        read = bisect_left(read_ends, len(HEAD) + behind[body_at - 1])
        expected[read] = expected.get(read, 0) + tokens
    expected = {read: tokens for read, tokens in sorted(expected.items()) if tokens}

    assert ints(record.read_at) == [MOMENT + read * STEP_NS for read in expected]
    assert ints(record.read_tokens) == list(expected.values())
    assert sum(ints(record.read_tokens)) == record.counted_tokens
    assert record.output_tokens in (None, sum(ints(record.read_tokens)))
    assert record.headers_at == MOMENT + exchange.head_read * STEP_NS
    assert record.ended_at == MOMENT + (len(exchange.reads) - 1) * STEP_NS
    assert record.outcome == ("ok" if expected else "bad")


@given(events(), places, st.integers(0, 5000))
def test_a_cut_answer_keeps_what_came(row, chunk_at, length):
    """Any prefix is read without an error, and its tokens are the first ones of the whole."""
    raw = HEAD + chunked(cut(sse([document for document, _ in row]), chunk_at))[0]
    kept = raw[: len(HEAD) + length % (len(raw) - len(HEAD))]
    record = record_of(exchange_of(kept, [len(HEAD)], outcome="cut"))
    assert record.outcome == "cut"
    assert record.ended_at == MOMENT * 2
    whole = [tokens for _, tokens in row]
    assert sum(ints(record.read_tokens)) in {0, *accumulate(whole)}


@given(st.integers(1, 40), st.integers(1, 7))
def test_shares_add_up_and_differ_by_one_at_most(whole, shards):
    shares = [share(whole, shard, shards) for shard in range(shards)]
    assert sum(shares) == whole
    assert max(shares) - min(shares) <= 1
    assert shares == [whole // shards + (shard < whole % shards) for shard in range(shards)]


class Fixed:
    """A transport on a jumping clock: every answer takes as long, or as long as its session asks."""

    def __init__(self, clock, service_ns):
        self.clock, self.service_ns = clock, service_ns

    def prepare(self, _request, _traffic, _session):
        return 0

    def send(self, _request, ticket, ended, done):
        sent_at = self.clock.now()

        def over() -> None:
            ended(self.clock.now())
            done(
                Record(
                    session=ticket.session,
                    shard=ticket.shard,
                    stage=ticket.stage,
                    scheduled_at=ticket.scheduled_at,
                    ready_at=ticket.ready_at,
                    sent_at=sent_at,
                    ended_at=self.clock.now(),
                ),
                "",
            )

        timer = self.clock.call_at(sent_at + self.service_ns, over)
        return lambda _outcome: timer.cancel()


def sent(plan, shards, service_ns=30_000_000):
    """What all shards together send on one clock."""
    clock, records = VirtualClock(START), []  # type: ignore[var-annotated]
    for shard in range(shards):
        pace = pace_of(plan, 0, shard, shards)
        workload = lambda _index: Session([Request("x")])  # noqa: E731
        Drive("", workload, pace, clock, Fixed(clock, service_ns), records.append, shard).start(START)
    clock.run()
    return sorted(records, key=lambda record: record.session)


loads = st.sampled_from(
    [
        {"type": "constant", "rate": 40},
        {"type": "poisson", "rate": 50},
        {"type": "gamma", "rate": 50, "cv": 2},
        {
            "stages": [
                {"duration": 0.4, "rate": 60},
                {"duration": 0.3, "rate": 0},
                {"duration": 0.5, "rate": 10, "to": 90},
            ]
        },
    ]
)
stops = st.sampled_from(
    [{"requests": 1}, {"requests": 7}, {"sessions": 12}, {"duration": 0.5}, {"requests": 9, "duration": 1}]
)
warmups = st.sampled_from([{}, {"requests": 5}, {"duration": 0.21}, {"requests": 3, "duration": 0.1}])


@settings(max_examples=60)
@given(loads, stops, warmups, st.integers(2, 5), st.integers(0, 3))
def test_shards_send_what_one_would(load, stop, warmup, shards, seed):
    """The same sessions at the same instants, whatever the number of shards: also fewer requests than shards."""
    plan = Plan(load=load, stop=stop, warmup=warmup, seed=seed)
    alone, together = sent(plan, 1), sent(plan, shards)
    assert [(each.session, each.scheduled_at, each.sent_at, each.stage) for each in together] == [
        (each.session, each.scheduled_at, each.sent_at, each.stage) for each in alone
    ]
    assert all(each.shard == each.session % shards for each in together)


@given(loads, st.integers(1, 12), warmups, st.integers(0, 3))
def test_stop_counts_behind_the_warmup(load, requests, warmup, seed):
    plan = Plan(load=load, stop={"requests": requests}, warmup=warmup, seed=seed)
    records = sent(plan, 1)
    assume(records and "stages" not in load)
    assert len(records) == requests + warmup_sessions(plan, 0)
    warm = [each for each in records if each.scheduled_at < START + warmup.get("duration", 0) * 1e9]
    assert len(records) - max(len(warm), warmup.get("requests", 0)) == requests


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 60), st.integers(0, 8))
def test_a_closed_loop_sends_as_many_as_asked(concurrency, shards, requests, warm):
    assume(concurrency >= shards)
    plan = Plan(load={"concurrency": concurrency}, stop={"requests": requests}, warmup={"requests": warm})
    records = sent(plan, shards)
    assert [each.session for each in records] == list(range(requests + warm))
    starts = [(each.sent_at, 1) for each in records] + [(each.ended_at, -1) for each in records]
    assert max(accumulate(change for _, change in sorted(starts))) == min(concurrency, requests + warm)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 200), st.integers(0, 3))
def test_a_cap_moves_no_arrival(cap, service_ms, seed):
    """Under a cap the same arrivals are scheduled at the same instants; they only wait, first come first served."""
    load = {"type": "poisson", "rate": 50}
    free = sent(Plan(load=load, stop={"requests": 40}, seed=seed), 1)
    capped = sent(Plan(load=load | {"max_concurrency": cap}, stop={"requests": 40}, seed=seed), 1, service_ms * 10**6)
    assert [each.scheduled_at for each in capped] == [each.scheduled_at for each in free]
    assert all(each.sent_at == each.ready_at >= each.scheduled_at for each in capped)
    assert [each.ready_at for each in capped] == sorted(each.ready_at for each in capped)
    ends = [each.ended_at for each in capped]
    for number, each in enumerate(capped):
        slot_free = sorted(ends[:number])[-cap] if number >= cap else 0
        assert each.ready_at == max(each.scheduled_at, slot_free)
