"""A run in virtual time with places where a cause can act: the arrivals, the client's sends and reads, the server, the
records and the facts.

The client is not a perfect one: sends leave one after the other, some late by what a scheduler takes, and some reads
are uncertain by a poll. Both runs of a pair have the same client, apart from the cause.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from msgspec import structs

from inferometer.judge.limits import judge_plan
from inferometer.load.answer import new_record
from inferometer.load.arrivals import pace_of
from inferometer.load.clock import Done, Ended, Ticket, Timer, Transport, VirtualClock
from inferometer.load.drive import Drive, is_failure, why_give_up
from inferometer.load.facts import facts_of
from inferometer.load.prime import Primer, primes_of
from inferometer.measure.inputs import Facts
from inferometer.measure.observed import observed
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.measure.window import start_of
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.columns import MISSING, Ints, Records, known
from inferometer.record.environment import CalibrationPoint, Curve
from inferometer.record.log import Note
from inferometer.record.record import Outcome, Record, Sample, Samples
from inferometer.record.summary import HostSummary, Summary
from inferometer.record.verdict import Verdict
from inferometer.simulator.settings import SimulatorSettings, settings_from
from inferometer.simulator.virtual import VirtualTransport
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import Request, Workload, WorkloadContext, workload_of

START_AT = NANOSECONDS
SEND_NS = 20_000  # what handing a request to its socket takes: a burst leaves one after the other
POLL_NS = 400_000  # between two polls of an idle client
UNCERTAIN = 0.2  # share of reads that are uncertain by as much
SCRAPE_S = 1.0
SERVER = "http://simulated/metrics"

# What `inferometer calibrate` finds on an ordinary machine.
CALIBRATION = Curve(
    points=[
        CalibrationPoint(
            streams=streams,
            events_per_s=rate,
            ttft_error_p50=3e-5,
            ttft_error_p99=1e-4 * (1 + streams / 256) * (1 + rate / 40_000),
            read_error_p50=1e-5,
            read_error_p99=5e-5 * (1 + streams / 256) * (1 + rate / 40_000),
            cpu_s_per_million=4.0,
        )
        for streams in (1, 16, 128, 1024)
        for rate in (100.0, 10_000.0, 100_000.0)
    ],
    ceiling_events_per_s=250_000.0,
)


class Cause:
    """What spoils a run, at the place where it acts; this one spoils nothing."""

    def plan(self, mapping: dict[str, Any]) -> dict[str, Any]:
        """The plan that is measured."""
        return mapping

    def paced(self, plan: Plan) -> Plan:
        """The plan whose arrivals really come."""
        return plan

    def asked(self, request: Request, ticket: Ticket) -> Request:
        """The request as the server takes it."""
        return request

    def sends_at(self, at: int, ticket: Ticket) -> int:
        """When a request leaves that could have left at an instant."""
        return at

    def sees_at(self, at: Ints) -> Ints:
        """When the client reads what came at these instants."""
        return at

    def blind_since(self, at: Ints) -> Ints:
        """Since when the client had not looked when it read what came at these instants."""
        return at

    def serve(self, run: "VirtualRun") -> Transport:
        """The server; here also what happens to it on the way."""
        return run.server

    def read(self, records: Records, facts: Facts) -> Records:
        """What the client made of the answers."""
        return records

    def know(self, facts: Facts, records: Records) -> Facts:
        return facts

    def host(self) -> HostSummary | None:
        """What was sampled of the client's machine."""
        return None


SOUND = Cause()


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, judged."""

    plan: Plan
    records: Records
    facts: Facts
    summary: Summary
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Recording:
    """What a run leaves behind: enough to judge it, and to judge it again."""

    plan: Plan
    records: Records
    facts: Facts
    notes: list[Note]
    samples: Samples | None  # of the server's own numbers, where it was watched
    host: HostSummary | None

    def judged(self) -> Measured:
        summary = summarize(self.records, self.plan, self.facts)
        if self.samples is not None:
            start_at = start_of(self.records, self.facts)
            summary = observed(self.samples, self.notes, self.records, self.plan, summary, start_at)
        if self.host is not None:
            summary = structs.replace(summary, host=self.host)
        summary = structs.replace(summary, limits=judge_plan(self.plan, summary))
        return Measured(self.plan, self.records, self.facts, summary, verdict(summary, self.facts, self.plan))


@dataclass(slots=True)
class Scrape:
    at: int
    running: int
    queued: int
    process: int  # which process of the server answered


class Client:
    """Between the drive loop and the server: sends when it comes to it, and sees what came when it looks."""

    def __init__(self, run: "VirtualRun", server: Transport, cause: Cause) -> None:
        self._clock, self._server, self._cause = run.clock, server, cause
        rng = np.random.default_rng([run.plan.seed, 77])
        late_s = rng.lognormal(np.log(60e-6), 0.8, 4096) + (rng.random(4096) < 0.003) * rng.exponential(1e-3, 4096)
        self._late_ns = (late_s * NANOSECONDS).astype(np.int64).tolist()
        self._free_at = 0

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        now = self._clock.now()
        self._free_at = max(now, self._free_at) + SEND_NS
        at = self._free_at + self._late_ns[(ticket.session * 31 + ticket.turn) % len(self._late_ns)]
        passage = Passage(self._clock, self._server, self._cause, request, ticket, ended, done)
        passage.wait(self._cause.sends_at(at, ticket))
        return passage.give_up

    def prepare(self, request: Request, traffic: str, session: int) -> int:
        return self._server.prepare(request, traffic, session)


@dataclass(slots=True)
class Passage:
    """One request on its way through the client."""

    clock: VirtualClock
    server: Transport
    cause: Cause
    request: Request
    ticket: Ticket
    ended: Ended
    done: Done
    timer: Timer | None = None
    end: Callable[[Outcome], None] | None = None
    record: Record | None = None
    text: str = ""
    ended_at: int | None = None
    over: bool = False

    def wait(self, until: int) -> None:
        self.timer = self.clock.call_at(until, self.leave)

    def leave(self) -> None:
        request = self.cause.asked(self.request, self.ticket)
        self.end = self.server.send(request, self.ticket, self.on_ended, self.on_done)

    def on_ended(self, at: int) -> None:
        self.ended_at = at
        self.arrived()

    def on_done(self, record: Record, text: str) -> None:
        self.record, self.text = record, text
        self.arrived()

    def arrived(self) -> None:
        """Both are there: the client notices when it looks."""
        if self.record is None or self.ended_at is None:
            return
        seen_at = int(self.cause.sees_at(np.array([self.ended_at]))[0])
        if seen_at <= self.clock.now():
            self.notice()
        else:
            self.timer = self.clock.call_at(seen_at, self.notice)

    def notice(self) -> None:
        if self.over or self.record is None:
            return
        self.over = True
        self.record.ended_at = self.clock.now()
        if self.ticket.live:
            self.done(self.record, self.text)
            self.ended(self.clock.now())
        else:
            self.ended(self.clock.now())
            self.done(self.record, self.text)

    def give_up(self, outcome: Outcome) -> None:
        if self.record is not None:  # it came, and was not looked at yet
            self.notice()
        elif self.end is not None:
            self.end(outcome)
            self.notice()
        else:
            if self.timer is not None:
                self.timer.cancel()
            self.record = new_record(self.ticket)
            self.record.outcome = outcome
            self.notice()


@dataclass(slots=True)
class VirtualRun:
    """One plan under one cause."""

    plan: Plan
    cause: Cause = SOUND
    watched: bool = False
    clock: VirtualClock = field(init=False)
    settings: SimulatorSettings = field(init=False)
    server: VirtualTransport = field(init=False)
    workloads: list[Workload] = field(init=False)
    start_at: int = field(init=False, default=0)
    process: int = field(init=False, default=0)
    scrapes: list[Scrape] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(START_AT)
        self.settings = settings_from(self.plan.server.args if self.plan.server else {})
        self.server = self.new_server()
        context = WorkloadContext(self.settings.model, max_model_len=self.settings.max_model_len, keep_words=True)
        self.workloads = [
            workload_of(traffic.workload, self.plan.seed, traffic.draw, f"{self.plan.seed:016x}", context)
            for traffic in self.plan.classes
        ]

    def new_server(self) -> VirtualTransport:
        return VirtualTransport(self.clock, self.settings, None, self.plan.target.timeout.request)

    def measure(self) -> Measured:
        return self.recording().judged()

    def recording(self) -> "Recording":
        kept: list[Record] = []
        for traffic, workload in zip(self.plan.classes, self.workloads, strict=True):
            self._prime(traffic.name, workload)
        server = self.cause.serve(self)
        notes = self._drive(Client(self, server, self.cause), kept)
        true = Records.of(kept)
        facts = replace(facts_of(self.plan, true, notes), calibration=CALIBRATION)
        records = self.cause.read(_uncertain(_seen(true, self.cause), self.plan.seed), facts)
        samples = None
        if self.watched:
            samples = Samples.of(self._samples(true))
            notes = [*notes, Note("found", None, {"source": SERVER, "engine": "simulator"})]
        return Recording(self.plan, records, self.cause.know(facts, records), notes, samples, self.cause.host())

    def _prime(self, traffic: str, workload: Workload) -> None:
        primer = Primer(traffic, primes_of(workload, 1), self.clock, self.server, self.clock.stop)
        primer.start()
        if not primer.over:
            self.clock.run()

    def _drive(self, client: Client, kept: list[Record]) -> list[Note]:
        paced = self.cause.paced(self.plan)
        notes: list[Note] = []
        drives: list[Drive] = []

        def keep(record: Record) -> None:
            kept.append(record)
            if len(notes) == 1 and is_failure(record) and (why := why_give_up(drives, self.plan.classes)):
                notes.append(Note("gave up", self.clock.now(), {"why": why}))
                for drive in drives:
                    drive.cut("cancelled")

        drives += [
            Drive(traffic.name, self.workloads[number], pace_of(paced, number), self.clock, client, keep)
            for number, traffic in enumerate(self.plan.classes)
        ]
        self.start_at = self.clock.now()
        notes.append(Note("start", self.start_at))
        if self.watched:
            self._scrape(drives)
        for drive in drives:
            drive.start(self.start_at)
        self._until_over(drives)
        notes.append(Note("ended", self.clock.now(), {"stamps": "kernel"}))
        return notes

    def _until_over(self, drives: Sequence[Drive]) -> None:
        def over() -> None:
            if all(drive.over for drive in drives):
                self.clock.stop()

        for drive in drives:
            drive.on_over = over
        while any(drive.sending for drive in drives):
            self.clock.run(self.clock.now() + NANOSECONDS)
        drain_s = max(traffic.stop.drain for traffic in self.plan.classes)
        if not all(drive.over for drive in drives):
            self.clock.run(self.clock.now() + round(drain_s * NANOSECONDS))
        for drive in drives:
            drive.cut("unfinished")
        if self.watched:
            self._note_scrape()

    # -- what an observer would have read off the server --------------------------------------------------------

    def _scrape(self, drives: Sequence[Drive]) -> None:
        self._note_scrape()
        if not all(drive.over for drive in drives) or len(self.scrapes) < 2:
            self.clock.call_at(self.clock.now() + round(SCRAPE_S * NANOSECONDS), partial(self._scrape, drives))

    def _note_scrape(self) -> None:
        engine = self.server.loop.engine
        self.scrapes.append(Scrape(self.clock.now(), len(engine.running), len(engine.waiting), self.process))

    def _samples(self, records: Records) -> list[Sample]:
        """Counters and gauges at each scrape: the server saw every token when it was made."""
        samples: list[Sample] = []
        # a server counts from when it began, so each of its processes counts its own
        starts: dict[Any, Any] = {}
        for scrape in self.scrapes:
            starts.setdefault(scrape.process, scrape.at)
        ok = records.outcome.mask("ok")
        firsts = records.read_offsets[:-1][records.read_counts() > 0]
        first_at, sent_at = records.read_at[firsts], records.sent_at[records.read_counts() > 0]
        prompts = np.where(known(records.input_tokens), records.input_tokens, 0)
        for scrape in self.scrapes:
            since = starts[scrape.process] if scrape.process else 0
            ended = ok & (records.ended_at > since) & (records.ended_at <= scrape.at)
            made = (records.read_at > since) & (records.read_at <= scrape.at)
            begun = (first_at > since) & (first_at <= scrape.at)
            values = {
                "running": scrape.running,
                "queued": scrape.queued,
                "process_started": 1e9 + (since / NANOSECONDS if scrape.process else 0.0),
                "requests_ok": ended.sum(),
                "prompt_tokens": prompts[ended].sum(),
                "generation_tokens": records.read_tokens[made].sum(),
                "ttft_count": begun.sum(),
                "ttft_sum": (first_at - sent_at)[begun].sum() / NANOSECONDS,
            }
            samples += [Sample(SERVER, name, scrape.at, float(value)) for name, value in values.items()]
        return samples


def _seen(records: Records, cause: Cause) -> Records:
    """What came while the client looked elsewhere is one read when it looks, uncertain back to when it looked last."""
    at = cause.sees_at(records.read_at)
    if at is records.read_at or not len(at):
        return records
    owner = np.repeat(np.arange(len(records)), records.read_counts())
    new = np.ones(len(at), np.bool_)
    new[1:] = (at[1:] != at[:-1]) | (owner[1:] != owner[:-1])
    starts = np.flatnonzero(new)
    tokens = np.add.reduceat(records.read_tokens, starts)
    since = np.maximum(cause.blind_since(records.read_at), records.sent_at[owner])
    since[1:] = np.where(owner[1:] == owner[:-1], np.maximum(since[1:], at[:-1]), since[1:])  # the read before
    slack = np.maximum(at - since, records.read_slack)[starts]
    counts = np.bincount(owner[starts], minlength=len(records))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    visible = records.visible_at.copy()
    there = known(visible)
    visible[there] = cause.sees_at(visible[there])
    return replace(
        records,
        read_offsets=offsets,
        read_at=at[starts],
        read_tokens=tokens,
        read_slack=slack,
        visible_at=visible,
    )


def _uncertain(records: Records, seed: int) -> Records:
    """Some reads are uncertain back to the poll before, never beyond the read before."""
    if not len(records.read_at):
        return records
    rng = np.random.default_rng([seed, 78])
    before = np.concatenate(([0], records.read_at[:-1]))
    firsts = records.read_offsets[:-1][records.read_counts() > 0]
    before[firsts] = records.sent_at[records.read_counts() > 0]
    most = np.minimum(POLL_NS, records.read_at - before)
    chance = rng.random(len(most)) < UNCERTAIN
    return replace(records, read_slack=np.maximum(records.read_slack, np.where(chance, most, 0)))


def planned(mapping: Mapping[str, Any], seed: int, cause: Cause = SOUND) -> Plan:
    server = {"type": "simulator", "args": dict(mapping.get("simulator", {}), seed=seed)}
    rest = {name: value for name, value in mapping.items() if name != "simulator"}
    return plan_from(cause.plan({**rest, "server": server, "seed": seed}))


def virtual_run(mapping: Mapping[str, Any], seed: int, cause: Cause = SOUND, watched: bool = False) -> Measured:
    """A plan, as settings by name and the simulator's under `simulator`, measured in virtual time."""
    return VirtualRun(planned(mapping, seed, cause), cause, watched).measure()


__all__ = ["MISSING", "SOUND", "Cause", "Measured", "VirtualRun", "planned", "virtual_run"]
