"""The search behind the metronome, on virtual time: an M/D/1 queue whose answers are bytes that the wire reads.

Over real sockets `bench/search.py` does the same, where the machine's own noise is in it.
"""

import json
import math
from itertools import count

import pytest
from msgspec import structs

from inferometer.judge.limits import judge_plan
from inferometer.judge.search import SearchBounds, SearchStep, Try, attained_of, find
from inferometer.load.answer import new_record, read_answer
from inferometer.load.arrivals import pace_of
from inferometer.load.clock import VirtualClock
from inferometer.load.drive import Drive
from inferometer.load.facts import facts_of
from inferometer.measure.summary import summarize
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.record.log import Note
from inferometer.simulator import metronome as module
from inferometer.simulator.metronome import Beat, Metronome
from inferometer.simulator.metronome_process import true_rate
from inferometer.wire.api import api_of
from inferometer.wire.exchange import Exchange
from inferometer.wire.server import HttpRequest
from inferometer.wire.sockets import STAMP, UNPROVEN
from inferometer.workload.session import workload_of
from lengths import LONG

SERVICE_NS = 10_000_000
SLOT_NS = 10_000  # of the metronome: a first token waits for the next one
START_AT = 10**9


class Reply:
    """The connection of one request: every send is a read at the same instant."""

    def __init__(self, clock, over):
        self.clock, self.over = clock, over
        self.exchange = Exchange(None, b"", lambda _exchange: None)
        self.exchange.sent_at = clock.now()
        self.exchange.kernel = True
        self.on_close = None

    def send_now(self, data):
        self.raw(data)
        return len(data)

    def fileno(self):
        return -1

    def raw(self, data):
        self.exchange.reads.append(data)
        self.exchange.stamps.append(STAMP.pack(*divmod(self.clock.now(), 10**9)))
        self.exchange.since.append(UNPROVEN)

    def end(self) -> None:
        self.exchange.find_head()
        self.exchange.outcome, self.exchange.ended_at = "ok", self.clock.now()
        self.over(self.exchange)


class BehindTheMetronome:
    """Carries requests to a metronome without sockets; its answers are read as any."""

    def __init__(self, clock):
        self.clock = clock
        self.metronome = Metronome(clock, Beat(0, SLOT_NS, SERVICE_NS))

    def send(self, request, ticket, ended, done):
        def over(exchange):
            record = new_record(ticket)
            read_answer(record, exchange, api_of("completions"), 0)
            ended(exchange.ended_at)
            done(record, "")

        body = {"stream": True, "max_tokens": request.output_tokens, "stream_options": {"include_usage": True}}
        asked = HttpRequest("POST", "/v1/completions", "", {}, json.dumps(body).encode(), self.clock.now())
        self.metronome.answer(asked, Reply(self.clock, over))  # type: ignore[arg-type]
        return lambda _outcome: None

    def prepare(self, _request, _traffic, _session):
        return 0


def measured(plan):
    """The summary of a plan behind the metronome."""
    clock, records = VirtualClock(START_AT), []  # type: ignore[var-annotated]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "now", clock.now)
        workload = workload_of(plan.workload, plan.seed, 0, "nonce")
        drive = Drive("main", workload, pace_of(plan, 0, 0, 1), clock, BehindTheMetronome(clock), records.append)
        drive.start(START_AT)
        clock.run()
    made = Records.of(records)
    notes = [Note("start", START_AT), Note("ended", clock.now(), {"stamps": "kernel"})]
    summary = summarize(made, plan, facts_of(plan, made, notes))
    return structs.replace(summary, limits=judge_plan(plan, summary))


@pytest.mark.parametrize(("share", "services", "step_s"), [(0.9, 3.0, 60), *([(0.75, 1.2, 100)] if LONG else [])])
def test_it_lands_within_three_percent_behind_the_metronome(share: float, services: float, step_s: float) -> None:
    service_s = SERVICE_NS / 1e9
    limit_s = (1 + services) * service_s + SLOT_NS / 1e9
    seeds = count()

    def try_load(wanted: Try) -> SearchStep:
        plan = plan_from(
            {
                "target": "http://127.0.0.1:1",
                "workload": {"input_tokens": 8, "output_tokens": 1},
                "load": {"type": "poisson", "rate": wanted.load},
                "stop": {"duration": step_s * wanted.longer},
                "limits": [f"ttft p{share * 100:g} < {limit_s}s"],
                "seed": next(seeds),
            }
        )
        return SearchStep(wanted.load, attained_of(measured(plan)), step_s * wanted.longer)

    steps, found = find(try_load, SearchBounds(start=10, least=0.1, most=90))
    truth = true_rate(services * service_s, share, service_s)
    assert found.outcome == "found" and found.likely is not None
    assert len(steps) <= 12
    assert math.sqrt(found.low * found.high) == pytest.approx(truth, rel=0.03)
