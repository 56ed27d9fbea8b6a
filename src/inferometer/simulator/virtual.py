"""The engine in virtual time, as a transport of the drive loop: an hour of load in seconds, with records as real."""

from array import array
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from inferometer.errors import PlanError
from inferometer.load.answer import new_record
from inferometer.load.clock import Clock, Done, Ended, Ticket, Timer
from inferometer.record.record import Outcome, Record
from inferometer.simulator.asked import Asked, sequence_for, too_long
from inferometer.simulator.faults import HEADER, NONE, Faults, not_virtual, parse_faults
from inferometer.simulator.loop import EngineLoop
from inferometer.simulator.sequence import Sequence
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.steptime import Instants
from inferometer.simulator.tokens import answer_text, tokens_of
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import Request


@lru_cache(4096)
def _ones(count: int) -> bytes:
    """The same object for all records of one length: an hour of load would fill memory with ones."""
    return np.ones(count, "<i8").tobytes()


@lru_cache(4096)
def _zeros(count: int) -> bytes:
    return bytes(8 * count)


class Reads(NamedTuple):
    """What a client would see of the tokens made so far: when it reads how many, and when the answer may end."""

    at: Instants
    tokens: Instants
    over_at: int


def delivered(made: Instants, faults: Faults, length: int) -> Reads:
    """Tokens that were made at these instants, collected into chunks and held up by a stall in the middle of the
    `length` tokens, as the simulator's server writes them. Without usage a chunk counts as one token."""
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
    return Reads(at, tokens, max(free_at, at[-1] if len(at) else 0))


class VirtualTransport:
    """Carries requests to a simulated engine; every token is a read of its own, at the end of its step. `faults` are
    those that the requests of a traffic class ask for by a header; others happen by the shares of the settings."""

    def __init__(
        self,
        clock: Clock,
        settings: SimulatorSettings | None = None,
        faults: Mapping[str, str] | None = None,
        time_limit_s: float | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings or SimulatorSettings()
        self._asked_faults = {name: _asked_faults(text) for name, text in (faults or {}).items()}
        if mistakes := not_virtual(self.settings.faults.shares, "server.args.faults"):
            raise PlanError(mistakes, IN_REAL_TIME)
        self._draw_faults = self.settings.faults.drawer()
        self._time_limit_s = time_limit_s
        self.loop = EngineLoop(clock, self.settings.build_engine(), self.settings.build_step_time(), self._finished)
        self._frontend_ns = self.settings.frontend_ns
        self._number = 0

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        self._number += 1
        flight = _Flight(self, request, ticket, ended, done, self._number, self._faults_of(request, ticket.traffic))
        flight.begin()
        return flight.give_up

    def _faults_of(self, request: Request, traffic: str) -> Faults:
        """As the server has it: one is drawn for every request, and what a header asks for goes before it."""
        drawn = self._draw_faults()
        own = next((text for name, text in request.headers.items() if name.lower() == HEADER), None)
        return self._asked_faults.get(traffic, drawn) if own is None else _asked_faults(own)

    def prepare(self, _request: Request, _traffic: str, _session: int) -> int:
        """Nothing: time stands still while requests are made."""
        return 0

    def _finished(self, sequence: Sequence) -> None:
        if not sequence.aborted:
            sequence.waiter.computed(self.loop.instants(sequence))


IN_REAL_TIME = "in real time they happen: inferometer run --server simulator with the same settings"


def _asked_faults(text: str) -> Faults:
    try:
        found = parse_faults(text)
    except ValueError as error:
        raise PlanError(f"the header {HEADER}: {error}") from None
    if mistakes := not_virtual([text], f"the header {HEADER}"):
        raise PlanError(mistakes, IN_REAL_TIME)
    return found


class _Flight:
    """One request under way."""

    __slots__ = (
        "_done",
        "_ended",
        "_faults",
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
        self._done = done
        self._number = number
        self._faults = faults
        self._length = 0  # of the whole answer; a fault may cut it
        self._limit: Timer | None = None
        self._made: Instants | None = None  # once all is computed
        self._over = False
        self._record = _record(request, ticket, transport.clock.now())

    def begin(self) -> None:
        """Take the time of the frontend, then join the engine's queue, or be refused."""
        clock, settings = self._transport.clock, self._transport.settings
        asked = asked_by(self._request)
        self._sequence, self._reason = sequence_for(asked, settings)
        self._length = len(self._sequence.answer)
        if self._faults is not NONE and self._is_cut:
            self._sequence = Sequence(self._sequence.prompt, self._sequence.answer[: self._cut_after])
        self._sequence.waiter = self
        refusal = too_long(asked, settings)
        after_ns, action = self._transport._frontend_ns, self._arrive
        if self._faults.status is not None:
            action = partial(self._refuse, self._faults.status, "simulated fault")
        elif refusal is not None:
            action = partial(self._refuse, 400, refusal)
        elif self._faults.slow_headers_s or self._faults.stall_s:
            after_ns += round(self._faults.slow_headers_s * NANOSECONDS)
            self._limit_time()
        clock.call_at(clock.now() + after_ns, action)

    @property
    def _is_cut(self) -> bool:
        return self._faults.cut is not None and self._faults.cut <= self._length

    @property
    def _cut_after(self) -> int:
        """Tokens that are sent before the connection is closed: whole chunks."""
        assert self._faults.cut is not None
        size = self._faults.tokens_per_chunk
        return min(-(-self._faults.cut // size) * size, self._length)

    def _limit_time(self) -> None:
        """The plan's time limit, for requests that a fault delays: without any, virtual time has always waited."""
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
        """The engine is done with it. What a fault holds up comes later, and the answer ends only then."""
        outcome: Outcome = "cut" if self._is_cut else "ok"
        if self._faults is NONE or not self._faults.stall_s:
            self._end(outcome, made)
            return
        self._made = made
        reads = delivered(made, self._faults, self._length)
        over_at = reads.at[-1] if outcome == "cut" else reads.over_at
        self._transport.clock.call_at(over_at, partial(self._end, outcome, made))

    def _end(self, outcome: Outcome, made: Instants) -> None:
        if outcome == "cut" and not self._over:
            self._record.error = "the server closed the connection"
        self.finish(outcome, made)

    def give_up(self, outcome: Outcome) -> None:
        """The drive loop ends it: what has come so far is kept."""
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
        self._sequence.waiter = None  # no cycle: the garbage collector would have to look for it
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
        """The same for a faulty answer, as far as it came."""
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
        if not self._faults.no_usage:  # every chunk says how many there are by then
            record.input_tokens, record.output_tokens = len(self._sequence.prompt), sum(tokens)

    def _account(self, record: Record) -> None:
        """What the server's usage says of a complete answer."""
        record.finish_reason = self._reason
        if self._faults.no_usage:
            return
        record.input_tokens = len(self._sequence.prompt)
        record.output_tokens = self._sequence.made
        record.cached_tokens = self._sequence.cached


def asked_by(request: Request) -> Asked:
    """An asked length is kept to, as with `ignore_eos`, unless the body says otherwise."""
    body, length = request.body, request.output_tokens
    return Asked(
        tokens=tokens_of(request.prompt),
        max_tokens=length if length is not None else body.get("max_tokens"),
        min_tokens=int(body.get("min_tokens") or 0),
        ignore_eos=bool(body.get("ignore_eos", length is not None)),
    )


def _record(request: Request, ticket: Ticket, now: int) -> Record:
    record = new_record(ticket)
    record.replica = "simulator"
    record.sent_at = now
    record.asked_input, record.asked_output = request.input_tokens, request.output_tokens
    return record
