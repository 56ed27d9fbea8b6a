"""The engine as a transport in virtual time."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from inferometer.load.clock import Ticket, VirtualClock
from inferometer.record.record import Record
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.virtual import VirtualTransport
from inferometer.workload.session import Request

MS = 1_000_000


def ignore(_at: int) -> None: ...


def ticket(session: int, at: int) -> Ticket:
    return Ticket(session, 0, 1, "default", 0, 0, scheduled_at=at, ready_at=at, live=True)


def prompt(number: int, words: int) -> str:
    return " ".join(f"p{number}w{word}" for word in range(words))


def poisson(
    rate_per_s: float, requests: int, input_tokens: int, output_tokens: int, settings: SimulatorSettings
) -> tuple[list[Record], VirtualTransport]:
    clock, rng = VirtualClock(), random.Random(5)
    transport, records = VirtualTransport(clock, settings), []

    def arrive(number: int) -> None:
        request = Request(prompt(number, input_tokens), output_tokens, input_tokens)
        transport.send(request, ticket(number, clock.now()), ignore, lambda record, _: records.append(record))
        if number + 1 < requests:
            clock.call_at(clock.now() + int(rng.expovariate(rate_per_s) * 1e9), lambda: arrive(number + 1))

    clock.call_at(0, lambda: arrive(0))
    clock.run()
    return records, transport


def reads(record: Record) -> np.ndarray:
    return np.frombuffer(record.read_at, "<i8")


def test_a_lonely_request_takes_what_the_model_says() -> None:
    settings = SimulatorSettings.model_validate(
        {
            "frontend": "2ms",
            "step_time": {"base": "10ms", "prefill_token": "10us", "decode_sequence": 0, "context_token": 0},
        }
    )
    [record], _ = poisson(1, 1, 100, 5, settings)
    assert record.headers_at == 2 * MS
    assert reads(record).tolist() == [13 * MS, 23 * MS, 33 * MS, 43 * MS, 53 * MS]
    assert (record.sent_at, record.visible_at, record.ended_at) == (0, 13 * MS, 53 * MS)
    assert np.frombuffer(record.read_tokens, "<i8").tolist() == [1] * 5
    assert np.frombuffer(record.read_slack, "<i8").tolist() == [0] * 5
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (100, 5, 0)
    assert (record.outcome, record.status, record.finish_reason, record.tokens_by) == (
        "ok",
        200,
        "length",
        "running usage",
    )


def test_minutes_of_load_keep_little_s_law_and_every_promise() -> None:
    records, transport = poisson(10, 1200, 120, 60, SimulatorSettings())
    assert len(records) == 1200
    assert {record.outcome for record in records} == {"ok"}
    assert {record.output_tokens for record in records} == {60}
    for record in records:
        assert record.sent_at < record.headers_at < record.visible_at
        assert (np.diff(reads(record)) > 0).all()
        assert reads(record)[-1] == record.ended_at
    assert transport.loop.engine.pool.free == transport.loop.engine.pool.capacity
    tpot_s = np.mean([(reads(record)[-1] - reads(record)[0]) / 59 / 1e9 for record in records])
    assert tpot_s == pytest.approx(0.0052, rel=0.1)


def test_overload_waits_in_the_queue_first_come_first_served() -> None:
    settings = SimulatorSettings(max_sequences=4)
    records, _ = poisson(1000, 40, 16, 20, settings)
    assert [record.session for record in records] == sorted(record.session for record in records)
    assert records[-1].visible_at - records[-1].sent_at > 8 * (records[0].visible_at - records[0].sent_at)


def test_cancelling_keeps_what_came_and_calls_back_once() -> None:
    clock = VirtualClock()
    transport, done, ended = VirtualTransport(clock, SimulatorSettings(frontend=0.0)), [], []  # type: ignore[var-annotated]
    cancels: list[Callable[[str], None]] = []
    request = Request(prompt(1, 10), 100, 10)
    clock.call_at(
        0,
        lambda: cancels.append(
            transport.send(request, ticket(0, 0), ended.append, lambda record, text: done.append((record, text)))  # type: ignore[arg-type]
        ),
    )
    clock.call_at(50 * MS, lambda: cancels[0]("cancelled"))
    clock.call_at(51 * MS, lambda: cancels[0]("cancelled"))
    clock.run()
    [(record, text)] = done
    assert record.outcome == "cancelled"
    assert [record.ended_at] == ended == [50 * MS]
    assert len(reads(record)) == len(text.split()) == 10  # about 4.8 ms each
    assert reads(record)[-1] <= 50 * MS
    assert record.output_tokens is None
    assert transport.loop.engine.pool.free == transport.loop.engine.pool.capacity


def test_cancelling_before_the_engine_has_it() -> None:
    clock, done = VirtualClock(), []
    transport = VirtualTransport(clock, SimulatorSettings(frontend=0.01))
    cancel = transport.send(Request("a b", 5), ticket(0, 0), ignore, lambda record, _: done.append(record))
    cancel("unfinished")
    clock.run()
    assert [(record.outcome, record.read_at, record.headers_at) for record in done] == [("unfinished", b"", None)]


def test_what_is_too_long_is_refused_with_a_status() -> None:
    records, transport = poisson(1, 2, 9000, 10, SimulatorSettings())
    assert [(record.outcome, record.status) for record in records] == [("status", 400)] * 2
    assert "maximum context length is 8192" in str(records[0].error)
    assert transport.loop.engine.step == 0


def test_a_callback_may_send_the_next_turn() -> None:
    clock, records = VirtualClock(), []
    transport = VirtualTransport(clock, SimulatorSettings(frontend=0.0))
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt(0, 40)}]

    def next_turn(record: Record, text: str) -> None:
        records.append(record)
        if len(records) < 4:
            messages.extend([{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}])
            transport.send(Request(messages, 32), ticket(0, clock.now()), ignore, next_turn)

    transport.send(Request(messages, 32), ticket(0, 0), ignore, next_turn)
    clock.run()
    assert [record.cached_tokens for record in records] == [0, 64, 112, 144]
    assert all(later.sent_at == earlier.ended_at for earlier, later in pairwise(records))


def test_the_same_seed_gives_the_same_hour() -> None:
    settings = SimulatorSettings.model_validate({"step_time": {"jitter": 0.3}, "seed": 9})
    once, again = (poisson(20, 200, 50, 20, settings)[0] for _ in range(2))
    assert once == again
