"""An engine that launches a step ahead: times computed by hand, and invariants for any load."""

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from inferometer.load.clock import Ticket, VirtualClock
from inferometer.record.record import Record
from inferometer.simulator.pipeline import JOINED, TURNS, Frontend, PipelineTime
from inferometer.simulator.settings import SimulatorSettings, settings_from
from inferometer.simulator.virtual import VirtualTransport
from inferometer.workload.session import Request

MS = 1_000_000
STEPS = {"base": "5ms", "decode_sequence": 0, "context_token": 0}
AHEAD = {
    "compute_token": "10us",
    "launch_decode": "1ms",
    "launch_graph": "8ms",
    "launch_eager": "20ms",
    "graph_tokens": 512,
    "tail": "2ms",
    "attention_tokens": 1e12,
}


def engine(**ahead: object) -> SimulatorSettings:
    return settings_from({"frontend": "1ms", "step_time": STEPS, "pipeline": AHEAD | ahead})


def sent(settings: SimulatorSettings, loads: list[tuple[int, int, int]]) -> list[Record]:
    """Requests at (instant in ns, input tokens, output tokens); their records in that order."""
    clock = VirtualClock()
    transport = VirtualTransport(clock, settings)
    records: dict[int, Record] = {}

    def send(number: int, input_tokens: int, output_tokens: int) -> None:
        prompt = " ".join(f"p{number}w{word}" for word in range(input_tokens))
        ticket = Ticket(number, 0, 1, "default", 0, 0, clock.now(), clock.now(), live=True)
        request = Request(prompt, output_tokens, input_tokens)
        transport.send(request, ticket, lambda _: None, lambda record, _: records.update({number: record}))

    for number, (at, input_tokens, output_tokens) in enumerate(loads):
        clock.call_at(at, lambda n=number, i=input_tokens, o=output_tokens: send(n, i, o))  # type: ignore[misc]
    clock.run()
    return [records[number] for number in range(len(loads))]


def reads(record: Record) -> NDArray[np.int64]:
    return np.frombuffer(record.read_at, "<i8")


def test_a_lonely_request_waits_for_its_launch_and_then_decodes() -> None:
    """1 ms of frontend; a launch of 8 ms and its tail of 2 ms; then steps of 5 ms, each launched in time."""
    [record] = sent(engine(), [(0, 100, 4)])
    assert (reads(record) / MS).tolist() == [11, 16, 21, 26]


def test_a_large_prefill_is_launched_kernel_by_kernel_and_a_larger_one_computes_longer() -> None:
    [record] = sent(engine(), [(0, 600, 2)])
    assert reads(record)[0] == (1 + 20 + 2) * MS
    [record] = sent(engine(), [(0, 4000, 2)])
    assert reads(record)[0] == (1 + 40) * MS


def test_a_newcomer_waits_for_the_step_that_is_launched_and_delays_the_one_before_its_own() -> None:
    """The first decodes every 5 ms from 11 ms on. The second reaches the engine at 22 ms: it is scheduled when the
    token of 26 ms comes out, the step launched by then ends at 31 but is seen at 34, when the prefill is launched."""
    first, second = sent(engine(), [(0, 100, 8), (21 * MS, 100, 3)])
    assert (reads(first)[:4] / MS).tolist() == [11, 16, 21, 26]
    assert reads(first)[4] == 34 * MS
    assert reads(second)[0] == reads(first)[5] == 36 * MS
    assert (reads(second)[1:] / MS).tolist() == [41, 46]


def test_requests_are_read_before_prompts_are_tokenized() -> None:
    """Two at once: both are read (1 ms each), then tokenized (2 ms each): the engine has them at 4 and 6 ms, but for
    what of the first was tokenized while the second was read."""
    settings = engine(frontend_request="2ms", frontend_token="20us", frontend_output=0)
    settings = settings.model_copy(update={"frontend": 0.0})
    first, second = sent(settings, [(0, 100, 1), (0, 100, 1)])
    meanwhile = TURNS * MS
    assert (first.headers_at, second.headers_at) == (4 * MS - meanwhile, 6 * MS - meanwhile)


def test_tokens_that_wait_together_cost_little_less() -> None:
    """Their texts are made one by one, and only the writes are saved."""
    frontend = Frontend(engine(frontend_output="3ms"))
    assert frontend.send(0, 1) == 3 * MS
    assert frontend.send(1 * MS, 1) == 6 * MS
    third = frontend.send(2 * MS, 1)  # the one before has not begun yet
    assert third == (6 + 3 * JOINED) * MS
    assert frontend.send(4 * MS, 1) == third + 3 * MS


def test_a_frontend_that_is_asked_for_too_much_lags_ever_more() -> None:
    """Two sequences make 400 tokens/s, of which it sends 1 / 4 ms, or a little more where they wait."""
    last = [reads(record)[-1] for record in sent(engine(frontend_output="4ms"), [(0, 10, 100), (0, 10, 100)])]
    assert max(last) > 200 * JOINED * 4 * MS


@pytest.mark.parametrize("seed", range(4))
def test_every_request_is_answered_in_order_whatever_comes(seed: int) -> None:
    rng = random.Random(seed)
    at, loads = 0, []
    for _ in range(60):
        at += int(rng.expovariate(60) * 1e9)
        loads.append((at, rng.randint(1, 900), rng.randint(1, 60)))
    settings = engine(frontend_request="1ms", frontend_token="2us", frontend_output="50us", launch_jitter=0.3)
    settings = settings.model_copy(update={"blocks": 200, "max_model_len": 1000})  # small: sequences are preempted
    for record, (sent_at, _, output_tokens) in zip(sent(settings, loads), loads, strict=True):
        instants = reads(record)
        assert record.outcome == "ok"
        assert np.frombuffer(record.read_tokens, "<i8").sum() == output_tokens
        assert (np.diff(instants) >= 0).all() and instants[0] > sent_at + 10 * MS
        assert record.ended_at == instants[-1]


def test_the_time_of_a_step_is_reading_or_computing() -> None:
    time = PipelineTime.of(settings_from({"step_time": STEPS | {"context_token": "1us"}, "pipeline": AHEAD}))
    assert time.compute_ns(0, 4, 0, 0.0) == 5 * MS
    assert time.compute_ns(996, 4, 0, 0.0) == 10 * MS
    assert time.compute_ns(0, 4, 1000, 0.0) == 6 * MS
    assert [time.launch_ns(tokens, 4) / MS for tokens in (0, 100, 600)] == [1, 8, 20]
