"""The engine in virtual time, as a transport of the drive loop: an hour of load in seconds, with records as real."""

from array import array
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from inferometer.load.answer import new_record
from inferometer.load.clock import Clock, Done, Ended, Ticket
from inferometer.record.record import Outcome, Record
from inferometer.simulator.asked import Asked, sequence_for, too_long
from inferometer.simulator.loop import EngineLoop
from inferometer.simulator.sequence import Sequence
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.steptime import Instants
from inferometer.simulator.tokens import answer_text, tokens_of
from inferometer.workload.session import Request


@lru_cache(4096)
def _ones(count: int) -> bytes:
    """The same object for all records of one length: an hour of load would fill memory with ones."""
    return np.ones(count, "<i8").tobytes()


@lru_cache(4096)
def _zeros(count: int) -> bytes:
    return bytes(8 * count)


class VirtualTransport:
    """Carries requests to a simulated engine; every token is a read of its own, at the end of its step."""

    def __init__(self, clock: Clock, settings: SimulatorSettings | None = None) -> None:
        self.clock = clock
        self.settings = settings or SimulatorSettings()
        self.loop = EngineLoop(clock, self.settings.build_engine(), self.settings.build_step_time(), self._finished)
        self._frontend_ns = self.settings.frontend_ns
        self._number = 0

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        self._number += 1
        flight = _Flight(self, request, ticket, ended, done, self._number)
        flight.begin()
        return flight.give_up

    def prepare(self, _request: Request, _traffic: str, _session: int) -> int:
        """Nothing: time stands still while requests are made."""
        return 0

    def _finished(self, sequence: Sequence) -> None:
        if not sequence.aborted:
            sequence.waiter.finish("ok", self.loop.instants(sequence))


class _Flight:
    """One request under way."""

    __slots__ = (
        "_done",
        "_ended",
        "_live",
        "_number",
        "_over",
        "_reason",
        "_record",
        "_request",
        "_sequence",
        "_transport",
    )

    def __init__(
        self, transport: VirtualTransport, request: Request, ticket: Ticket, ended: Ended, done: Done, number: int
    ) -> None:
        self._transport = transport
        self._request = request
        self._ended = ended
        self._live = ticket.live  # the next turn needs the answer first
        self._done = done
        self._number = number
        self._over = False
        self._record = _record(request, ticket, transport.clock.now())

    def begin(self) -> None:
        """Take the time of the frontend, then join the engine's queue, or be refused."""
        clock, settings = self._transport.clock, self._transport.settings
        asked = asked_by(self._request)
        self._sequence, self._reason = sequence_for(asked, settings)
        self._sequence.waiter = self
        refusal = too_long(asked, settings)
        action = self._arrive if refusal is None else lambda: self._refuse(str(refusal))
        clock.call_at(clock.now() + self._transport._frontend_ns, action)

    def _arrive(self) -> None:
        if not self._over:
            self._record.headers_at = self._transport.clock.now()
            self._record.status = 200
            self._transport.loop.add(self._sequence)

    def _refuse(self, why: str) -> None:
        self._record.status = 400
        self._record.headers_at = self._transport.clock.now()
        self._record.error = why
        self.finish("status", array("q"))

    def give_up(self, outcome: Outcome) -> None:
        """The drive loop ends it: what has come so far is kept."""
        if not self._over:
            instants = self._transport.loop.instants_so_far(self._sequence)
            self._transport.loop.abort(self._sequence)
            self.finish(outcome, instants)

    def finish(self, outcome: Outcome, instants: Instants) -> None:
        if self._over:
            return
        self._over = True
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
        tokens = len(instants)
        record.request_id = f"cmpl-{self._number:016x}"
        record.visible_at = instants[0]
        record.read_at = np.array(instants, "<i8").tobytes()
        record.read_tokens = _ones(tokens)
        record.read_slack = _zeros(tokens)
        record.tokens_by = "running usage"
        record.events = tokens

    def _account(self, record: Record) -> None:
        """What the server's usage says of a complete answer."""
        record.input_tokens = len(self._sequence.prompt)
        record.output_tokens = self._sequence.made
        record.cached_tokens = self._sequence.cached
        record.finish_reason = self._reason


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
