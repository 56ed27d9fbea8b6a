"""Runs a whole plan in virtual time: the same drive loop, workload and arrivals with the simulated engine. An hour of
load takes seconds and gives ordinary records."""

from array import array
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from msgspec import structs

from inferometer.errors import PlanError
from inferometer.judge.limits import judge_plan
from inferometer.load.answer import new_record
from inferometer.load.arrivals import pace_of
from inferometer.load.clock import Clock, Done, Ended, Ticket, Timer, Transport, VirtualClock
from inferometer.load.drive import Drive, is_failure, why_give_up
from inferometer.load.facts import facts_of
from inferometer.load.prime import Primer, primes_of
from inferometer.measure.inputs import Facts
from inferometer.measure.observed import observed
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.measure.window import start_of
from inferometer.plan.model import Plan
from inferometer.plan.secrets import redacted
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.environment import Environment, MeasuredTarget
from inferometer.record.log import Note
from inferometer.record.record import Outcome, Record, Samples
from inferometer.record.run import Run
from inferometer.simulator.engine import Sequence
from inferometer.simulator.pipeline import loop_of
from inferometer.simulator.requests import Generation, sequence_for, too_long
from inferometer.simulator.settings import (
    HEADER,
    NONE,
    Faults,
    Instants,
    SimulatorSettings,
    not_virtual,
    parse_faults,
    settings_from,
)
from inferometer.simulator.tokens import answer_text, tokens_of
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import NOWHERE, Request, Workload, WorkloadContext, new_nonce, workload_of

# -- virtual ---------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def _ones(count: int) -> bytes:
    """A shared array of ones per length: otherwise an hour of load would fill the memory with ones."""
    return np.ones(count, "<i8").tobytes()


@lru_cache(4096)
def _zeros(count: int) -> bytes:
    return bytes(8 * count)


class SimulatedReads(NamedTuple):
    """The reads of a client: their times and tokens, and the earliest end of the answer."""

    at: Instants
    tokens: Instants
    over_at: int


def delivered(made: Instants, faults: Faults, length: int) -> SimulatedReads:
    """The reads for tokens generated at these times, collected into chunks and delayed by a stall in the middle of the
    `length` tokens, as the simulator's server sends them. Without usage a chunk counts as one token."""
    at, tokens = array("q"), array("q")
    size, free_at = faults.tokens_per_chunk, 0
    for start in range(0, len(made), size):
        end = min(start + size, len(made))
        if end - start < size and end < length:  # not written yet
            break
        read_at, count = max(made[end - 1], free_at), 1 if faults.no_usage else end - start
        if len(at) and at[-1] == read_at:
            tokens[-1] += count
        else:
            at.append(read_at)
            tokens.append(count)
        if start <= length // 2 < end:
            free_at = read_at + round(faults.stall_s * NANOSECONDS)
    return SimulatedReads(at, tokens, max(free_at, at[-1] if len(at) else 0))


class VirtualTransport:
    """Sends requests to a simulated engine; every token is a separate read, at the end of its step. `faults` are those
    that a traffic class requests by a header; others are drawn by the shares of the settings."""

    def __init__(
        self,
        clock: Clock,
        settings: SimulatorSettings | None = None,
        faults: Mapping[str, str] | None = None,
        time_limit_s: float | None = None,
        name: str = "simulator",
        on_sequence: Callable[[Sequence, Instants], None] | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings or SimulatorSettings()
        self.name = name
        self._on_sequence = on_sequence  # gets every finished sequence and the times of its tokens
        self._requested_faults = {name: _requested_faults(text) for name, text in (faults or {}).items()}
        if mistakes := not_virtual(self.settings.faults.shares, "server.args.faults"):
            raise PlanError(mistakes, IN_REAL_TIME)
        self._draw_faults = self.settings.faults.drawer()
        self._time_limit_s = time_limit_s
        self.loop = loop_of(self.settings, clock, self._finished)
        self._number = 0

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        self._number += 1
        flight = _Flight(self, request, ticket, ended, done, self._number, self._faults_of(request, ticket.traffic))
        flight.begin()
        return flight.give_up

    def _faults_of(self, request: Request, traffic: str) -> Faults:
        """As in the server: faults are drawn for every request, and those of a header have priority."""
        drawn = self._draw_faults()
        own = next((text for name, text in request.headers.items() if name.lower() == HEADER), None)
        return self._requested_faults.get(traffic, drawn) if own is None else _requested_faults(own)

    def prepare(self, _request: Request, _traffic: str, _session: int) -> int:
        """Does nothing: virtual time does not pass while requests are generated."""
        return 0

    def _finished(self, sequence: Sequence) -> None:
        if not sequence.aborted:
            made = self.loop.instants(sequence)
            if self._on_sequence is not None:
                self._on_sequence(sequence, made)
            sequence.waiter.computed(made)


IN_REAL_TIME = "use real time: inferometer run --server simulator with the same settings"


def _requested_faults(text: str) -> Faults:
    try:
        faults = parse_faults(text)
    except ValueError as error:
        raise PlanError(f"the header {HEADER}: {error}") from None
    if mistakes := not_virtual([text], f"the header {HEADER}"):
        raise PlanError(mistakes, IN_REAL_TIME)
    return faults


class _Flight:
    """One request in flight."""

    __slots__ = (
        "_done",
        "_ended",
        "_faults",
        "_leave",
        "_leaves_after",
        "_length",
        "_limit",
        "_live",
        "_made",
        "_number",
        "_over",
        "_reason",
        "_record",
        "_request",
        "_sequence",
        "_transport",
    )

    def __init__(
        self,
        transport: VirtualTransport,
        request: Request,
        ticket: Ticket,
        ended: Ended,
        done: Done,
        number: int,
        faults: Faults,
    ) -> None:
        self._transport = transport
        self._request = request
        self._ended = ended
        self._live = ticket.live  # the next turn needs the answer first
        self._leaves_after, self._leave = ticket.most_tokens, ticket.on_most
        self._done = done
        self._number = number
        self._faults = faults
        self._length = 0  # of the whole answer, which a fault may cut
        self._limit: Timer | None = None
        self._made: Instants | None = None  # when everything is computed
        self._over = False
        self._record = _record(request, ticket, transport)

    def begin(self) -> None:
        """Spend the frontend's time, then join the engine's queue, or be rejected."""
        settings = self._transport.settings
        generation = generation_of(self._request)
        self._sequence, self._reason = sequence_for(generation, settings)
        self._length = len(self._sequence.answer)
        if self._leaves_early:
            self._sequence = Sequence(self._sequence.prompt, self._sequence.answer[: self._leaves_after])
        elif self._faults is not NONE and self._is_cut:
            self._sequence = Sequence(self._sequence.prompt, self._sequence.answer[: self._cut_after])
        self._sequence.waiter = self
        refusal = too_long(generation, settings)
        extra_ns, action = 0, self._arrive
        if self._faults.status is not None:
            action = partial(self._refuse, self._faults.status, "simulated fault")
        elif refusal is not None:
            action = partial(self._refuse, 400, refusal)
        elif self._faults.slow_headers_s or self._faults.stall_s:
            extra_ns = round(self._faults.slow_headers_s * NANOSECONDS)
            self._limit_time()
        self._transport.loop.admit(len(generation.tokens), action, extra_ns)

    @property
    def _is_cut(self) -> bool:
        return self._faults.cut is not None and self._faults.cut <= self._length

    @property
    def _leaves_early(self) -> bool:
        """Whether the client closes the connection before the answer ends, so that only the received tokens are
        generated."""
        if self._leaves_after is None:
            return False
        return self._leaves_after < (self._cut_after if self._is_cut else self._length)

    @property
    def _cut_after(self) -> int:
        """The tokens sent before the connection is closed, in whole chunks."""
        assert self._faults.cut is not None
        size = self._faults.tokens_per_chunk
        return min(-(-self._faults.cut // size) * size, self._length)

    def _limit_time(self) -> None:
        """Apply the plan's timeout to requests that a fault delays; without faults, virtual time has no timeouts."""
        limit_s = self._transport._time_limit_s
        if limit_s is not None:
            at = self._transport.clock.now() + round(limit_s * NANOSECONDS)
            self._limit = self._transport.clock.call_at(at, partial(self._time_out, limit_s))

    def _time_out(self, limit_s: float) -> None:
        self._record.error = f"no complete answer within {limit_s:g} s"
        self.give_up("timeout")

    def _arrive(self) -> None:
        if self._over:
            return
        self._record.headers_at = self._transport.clock.now()
        self._record.status = 200
        if self._is_cut and self._cut_after == 0:
            self._end("cut", array("q"))
        else:
            self._transport.loop.add(self._sequence)

    def _refuse(self, status: int, why: str) -> None:
        if self._over:
            return
        self._record.status = status
        self._record.headers_at = self._transport.clock.now()
        self._record.error = why
        self._record.retry_after_s = self._faults.retry_after_s
        self.finish("status", array("q"))

    def computed(self, made: Instants) -> None:
        """The engine has finished it. Reads delayed by a fault arrive later, and the answer ends after them."""
        outcome: Outcome = "cancelled" if self._leaves_early else "cut" if self._is_cut else "ok"
        if self._faults is NONE or not self._faults.stall_s:
            self._end(outcome, made)
            return
        self._made = made
        reads = delivered(made, self._faults, self._length)
        over_at = reads.over_at if outcome == "ok" else reads.at[-1]
        self._transport.clock.call_at(over_at, partial(self._end, outcome, made))

    def _end(self, outcome: Outcome, made: Instants) -> None:
        if outcome == "cut" and not self._over:
            self._record.error = "the server closed the connection"
        if outcome == "cancelled" and self._leave is not None:
            self._made = made
            self._leave()  # it calls `give_up`
        else:
            self.finish(outcome, made)

    def give_up(self, outcome: Outcome) -> None:
        """Cancelled by the drive loop: the reads so far are kept."""
        if self._over:
            return
        made = self._made
        if made is None:
            made = self._transport.loop.instants_so_far(self._sequence)
            self._transport.loop.abort(self._sequence)
        self.finish(outcome, made)

    def finish(self, outcome: Outcome, instants: Instants) -> None:
        if self._over:
            return
        self._over = True
        if self._limit is not None:
            self._limit.cancel()
        self._sequence.waiter = None  # avoids a reference cycle
        record = self._record
        record.outcome = outcome
        record.ended_at = self._transport.clock.now()
        if len(instants):
            self._fill(record, instants)
        if outcome == "ok":
            self._account(record)
        if self._live:
            self._done(record, answer_text(self._sequence.answer[: len(instants)]))
        self._ended(record.ended_at)
        if not self._live:
            self._done(record, "")

    def _fill(self, record: Record, instants: Instants) -> None:
        if self._faults is not NONE:
            self._fill_as_delivered(record, instants)
            return
        tokens = len(instants)
        record.request_id = f"cmpl-{self._number:016x}"
        record.visible_at = instants[0]
        record.read_at = np.array(instants, "<i8").tobytes()
        record.read_tokens = _ones(tokens)
        record.read_slack = _zeros(tokens)
        record.tokens_by = "running usage"
        record.events = tokens

    def _fill_as_delivered(self, record: Record, instants: Instants) -> None:
        """The same for a faulty answer, as far as it arrived."""
        reads = delivered(instants, self._faults, self._length)
        came = sum(at <= self._transport.clock.now() for at in reads.at)
        record.request_id = f"cmpl-{self._number:016x}"
        if not came:
            return
        tokens = reads.tokens[:came]
        record.visible_at = reads.at[0]
        record.read_at = np.array(reads.at[:came], "<i8").tobytes()
        record.read_tokens = np.array(tokens, "<i8").tobytes()
        record.read_slack = _zeros(came)
        record.events = came + self._faults.role_only
        record.tokens_by = "events" if self._faults.no_usage else "running usage"
        record.counted_tokens = sum(tokens)
        if not self._faults.no_usage:  # every chunk has the count so far
            record.input_tokens, record.output_tokens = len(self._sequence.prompt), sum(tokens)

    def _account(self, record: Record) -> None:
        """The server's usage for a complete answer."""
        record.finish_reason = self._reason
        if self._faults.no_usage:
            return
        record.input_tokens = len(self._sequence.prompt)
        record.output_tokens = self._sequence.made
        record.cached_tokens = self._sequence.cached


def generation_of(request: Request) -> Generation:
    """The generation of a request: a requested length is exact, as with `ignore_eos`, unless the body disables that."""
    body, length = request.body, request.output_tokens
    return Generation(
        tokens=tokens_of(request.prompt),
        max_tokens=length if length is not None else body.get("max_tokens"),
        min_tokens=int(body.get("min_tokens") or 0),
        ignore_eos=bool(body.get("ignore_eos", length is not None)),
    )


def _record(request: Request, ticket: Ticket, transport: VirtualTransport) -> Record:
    record = new_record(ticket)
    record.replica, record.model = transport.name, request.model
    record.sent_at = transport.clock.now()
    record.requested_input, record.requested_output = request.input_tokens, request.output_tokens
    return record


# -- rehearsal -------------------------------------------------------------------------------------------------------

START_AT = NANOSECONDS  # not 0, which would look like a missing time


MakeTransport = Callable[[VirtualClock], Transport]


def simulated_run(plan: Plan, note: Callable[[str], None] = NOWHERE.note) -> Run:
    """A simulated run, measured and judged like any other, but not stored. The target's address is removed; `note`
    receives notes on the workload for the user."""
    started = datetime.now(UTC)
    plan = without_address(plan)
    settings = settings_of(plan)
    if plan.target.timeout.idle is not None and settings.faults.shares:
        note("target.timeout.idle is ignored in virtual time; target.timeout.request applies to faulty answers")
    records, facts = rehearse(plan, settings, note)
    return finished_run(plan, records, facts, settings, started)


def without_address(plan: Plan) -> Plan:
    return plan.model_copy(update={"target": plan.target.model_copy(update={"url": [], "model": None})})


def finished_run(
    plan: Plan,
    records: Records,
    facts: Facts,
    settings: SimulatorSettings,
    started: datetime,
    samples: Samples | None = None,
) -> Run:
    """The run of these records, with its measures, limits and verdict."""
    summary = summarize(records, plan, facts)
    if samples is not None:
        summary = observed(samples, [], records, plan, summary, start_of(records, facts))
    summary = structs.replace(summary, limits=judge_plan(plan, summary))
    judged = verdict(summary, facts, plan)
    summary = structs.replace(summary, instrument=None)  # virtual time has none
    return Run(
        id="simulated",
        started_at=started.isoformat(timespec="milliseconds"),
        plan=StoredPlan(redacted(plan).model_dump(mode="json")),
        environment=_environment(settings),
        summary=summary,
        verdict=judged,
        state="complete" if facts.gave_up is None else "failed",
        read_records=lambda: records,
        read_samples=None if samples is None else lambda: samples,
    )


def _environment(settings: SimulatorSettings) -> Environment:
    target = None
    if settings.predicts is not None:
        target = MeasuredTarget(model=settings.model, server=settings.predicts, time="virtual")
    return Environment(model=settings.model, time="virtual", target=target)


def rehearse(
    plan: Plan,
    settings: SimulatorSettings | None = None,
    note: Callable[[str], None] = NOWHERE.note,
    *,
    transport_of: MakeTransport | None = None,
    nonce: str | None = None,
) -> tuple[Records, Facts]:
    """All records of the plan in virtual time, with further data. `transport_of` can replace the single simulator, for
    example by a fleet."""
    records: list[Record] = []
    settings = settings or settings_of(plan)
    clock = VirtualClock(START_AT)
    transport: Transport
    if transport_of is not None:
        transport = transport_of(clock)
    else:
        transport = VirtualTransport(clock, settings, planned_faults(plan), plan.target.timeout.request)
    workloads = workloads_of(plan, settings, note, nonce or new_nonce())
    for traffic, workload in zip(plan.classes, workloads, strict=True):
        prime(traffic.name, workload, clock, transport)
    start_at = clock.now()
    notes = [Note("start", start_at)]
    drives: list[Drive] = []

    def keep(record: Record) -> None:
        records.append(record)
        if len(notes) == 1 and is_failure(record) and (why := why_give_up(drives, plan.classes)):
            notes.append(Note("gave up", clock.now(), {"why": why}))
            for drive in drives:
                drive.cut("cancelled")

    drives += _drives(plan, workloads, clock, transport, keep)
    for drive in drives:
        drive.start(start_at)
    run_drives(clock, drives, max(traffic.stop.drain for traffic in plan.classes))
    made = Records.of(records)
    notes.append(Note("ended", clock.now(), {"stamps": "kernel"}))
    return made, facts_of(plan, made, notes)


def planned_faults(plan: Plan) -> dict[str, str]:
    """The faults that the requests of each class request by their headers."""
    headers = {traffic.name: {**plan.target.headers, **traffic.headers} for traffic in plan.classes}
    return {name: text for name, own in headers.items() for header, text in own.items() if header.lower() == HEADER}


def settings_of(plan: Plan) -> SimulatorSettings:
    """The simulator settings of the plan's server."""
    return settings_from(plan.server.args if plan.server and plan.server.type == "simulator" else {})


def workloads_of(plan: Plan, settings: SimulatorSettings, note: Callable[[str], None], nonce: str) -> list[Workload]:
    room = settings.max_model_len
    context = WorkloadContext(settings.model, api=plan.target.api, max_model_len=room, note=note, keep_words=True)
    return [workload_of(traffic.workload, plan.seed, traffic.draw, nonce, context) for traffic in plan.classes]


def prime(traffic: str, workload: Workload, clock: VirtualClock, transport: Transport) -> None:
    """Send the priming requests, which take virtual time too."""
    primer = Primer(traffic, primes_of(workload, 1), clock, transport, clock.stop)
    primer.start()
    if not primer.over:
        clock.run()


def _drives(
    plan: Plan,
    workloads: list[Workload],
    clock: VirtualClock,
    transport: Transport,
    keep: Callable[[Record], None],
) -> list[Drive]:
    return [
        Drive(
            traffic.name,
            workloads[number],
            pace_of(plan, number, workload=workloads[number]),
            clock,
            transport,
            keep,
        )
        for number, traffic in enumerate(plan.classes)
    ]


def run_drives(clock: VirtualClock, drives: list[Drive], drain_s: float) -> None:
    """Run until all requests are answered, or until the drain deadline after the last send."""

    def over() -> None:
        if all(drive.over for drive in drives):
            clock.stop()

    for drive in drives:
        drive.on_over = over
    while any(drive.sending for drive in drives):
        clock.run(clock.now() + NANOSECONDS)
    clock.run(clock.now() + round(drain_s * NANOSECONDS))
    for drive in drives:
        drive.cut("unfinished")
