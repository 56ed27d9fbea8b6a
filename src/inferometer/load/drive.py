"""The drive loop of one traffic class: starts sessions when their time comes or a slot is free, turn by turn.

It knows neither bytes nor real time: clock and transport come in as arguments, so that the same loop drives a real
server and, on a jumping clock, the simulator. No arrival is dropped or moved: under a cap it waits, and the wait shows.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from inferometer.load.answer import new_record
from inferometer.load.clock import Clock, Ticket, Timer, Transport
from inferometer.load.pace import Pace
from inferometer.record.record import CENSORED, Outcome, Record
from inferometer.workload.session import Request, Session, Workload


@dataclass(slots=True)
class Counts:
    """What has happened so far."""

    scheduled: int = 0
    sent: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    output_tokens: int = 0


class _Visit:
    """A session under way: which turn is next, and since when it is wanted."""

    __slots__ = ("answer", "index", "scheduled_at", "session", "stage", "turn")

    def __init__(self, index: int, session: Session, stage: int, scheduled_at: int) -> None:
        self.index = index
        self.session = session
        self.stage = stage
        self.turn = 0
        self.scheduled_at = scheduled_at
        self.answer = ""


class Drive:
    """Sends the sessions of one traffic class and hands every record to `keep`."""

    def __init__(
        self,
        name: str,
        workload: Workload,
        pace: Pace,
        clock: Clock,
        transport: Transport,
        keep: Callable[[Record], None],
        shard: int = 0,
    ) -> None:
        self.name = name
        self.counts = Counts()
        self._workload = workload
        self._pace = pace
        self._clock = clock
        self._transport = transport
        self._keep = keep
        self._shard = shard
        self._cap: int | None = None
        self._stage = 0
        self._waiting: deque[_Visit] = deque()
        self._thinking = 0
        self._unkept = 0  # ended, but the record is not made yet
        self._under_way: dict[Callable[[Outcome], None], None] = {}
        self._next: tuple[_Visit, int] | None = None
        self._timer: Timer | None = None
        self._no_more = False  # no new session begins
        self._no_turns = False  # nor a further turn of one under way
        self._start_at = 0
        self._counted = 0
        self._counted_sessions = 0
        self.on_over: Callable[[], None] | None = None  # called when nothing is left to send or to await
        self.on_stop: Callable[[], None] | None = None  # called when no new session will begin

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    @property
    def planned(self) -> int | None:
        """Requests it will send, where a count ends it."""
        return None if self._pace.requests is None else self._pace.requests + self.counts.scheduled - self._counted

    @property
    def ends_at(self) -> int | None:
        """When the clock ends it, where the clock does."""
        return None if self._pace.ends_ns is None else self._start_at + self._pace.ends_ns

    @property
    def over(self) -> bool:
        """Nothing more will be sent, nothing is awaited."""
        return self._no_more and not (self.counts.in_flight or self._waiting or self._thinking or self._unkept)

    @property
    def sending(self) -> bool:
        """Whether new sessions are still to come."""
        return not self._no_more

    def start(self, start_at: int) -> None:
        """Begin at an instant of the clock."""
        self._start_at = start_at
        for after_ns, slots, stage in self._pace.slots:
            self._clock.call_at(start_at + after_ns, partial(self._set_cap, slots, stage))
        if self._pace.ends_ns is not None:
            self._clock.call_at(start_at + self._pace.ends_ns, self.end)
        if self._pace.arrivals is not None:
            self._await_arrival()

    def stop(self) -> None:
        """Begin no new session; those under way go on to their last turn."""
        if not self._no_more:
            self._no_more = True
            if self._timer is not None:
                self._timer.cancel()
            self._next = None
            if self.on_stop is not None:
                self.on_stop()
        self._check_over()

    def end(self) -> None:
        """The time is up: schedule nothing more. What waits for a slot was scheduled in time and is still sent."""
        self._no_turns = True
        self.stop()

    def interrupt(self, outcome: Outcome) -> None:
        """Send nothing more, not even what waits; what is in flight may finish."""
        self._no_turns = True
        waiting, self._waiting = self._waiting, deque()
        for visit in waiting:
            self._keep_unsent(visit, outcome)
        self.stop()

    def cut(self, outcome: Outcome) -> None:
        """End everything now."""
        self.interrupt(outcome)
        for end in list(self._under_way):
            end(outcome)

    # -- open loop -------------------------------------------------------------------------------------------

    def _await_arrival(self) -> None:
        """Make the next session ahead of time and wait for its instant."""
        assert self._pace.arrivals is not None
        arrival = next(self._pace.arrivals, None)
        if arrival is None or self._no_more:
            self._next = None
            self.stop()
            return
        index, after_ns, stage = arrival
        at = self._start_at + after_ns
        self._next = (_Visit(index, self._workload(index), stage, at), at)
        self._timer = self._clock.call_at(at, self._arrive)

    def _arrive(self) -> None:
        if self._next is None:
            return
        visit, at = self._next
        self._count(visit)
        self._admit(visit, at)
        if self._enough():
            self.stop()
        else:
            self._await_arrival()

    def _admit(self, visit: _Visit, at: int) -> None:
        """A turn whose time has come: send it, or let it wait for a slot."""
        if self._cap is not None and self.counts.in_flight >= self._cap:
            self._waiting.append(visit)
        else:
            self._launch(visit, at)

    def _enough(self) -> bool:
        requests, sessions = self._pace.requests, self._pace.sessions
        return (requests is not None and self._counted >= requests) or (
            sessions is not None and self._counted_sessions >= sessions
        )

    def _count(self, visit: _Visit) -> None:
        """A session that begins: its turns count once the warm-up is over."""
        self.counts.scheduled += len(visit.session.turns)
        warm = visit.index < self._pace.warmup_requests or visit.scheduled_at < self._start_at + self._pace.warmup_ns
        if not warm:
            self._counted += len(visit.session.turns)
            self._counted_sessions += 1

    # -- closed loop, and slots under a cap ------------------------------------------------------------------

    def _set_cap(self, slots: int, stage: int) -> None:
        self._cap = slots
        self._stage = stage
        self._fill(self._clock.now())

    def _fill(self, at: int) -> None:
        """Use free slots: first for turns that wait, then, in a closed loop, for new sessions."""
        while self._cap is None or self.counts.in_flight < self._cap:
            if self._waiting:
                self._launch(self._waiting.popleft(), at)
            elif self._pace.arrivals is not None or self._no_more or not self._begin_session(at):
                return

    def _begin_session(self, at: int) -> bool:
        index = next(self._pace.indices, None)
        if index is None or self._enough():
            self.stop()
            return False
        visit = _Visit(index, self._workload(index), self._stage, at)
        self._count(visit)
        self._launch(visit, at)
        return True

    # -- one request -----------------------------------------------------------------------------------------

    def _launch(self, visit: _Visit, ready_at: int) -> None:
        request = self._request(visit)
        ticket = self._ticket(visit, max(ready_at, visit.scheduled_at))
        self.counts.sent += 1
        self.counts.in_flight += 1
        self._unkept += 1
        end: Callable[[Outcome], None] | None = None

        def ended(at: int) -> None:
            nonlocal end
            self.counts.in_flight -= 1
            if end is not None:
                self._under_way.pop(end, None)
            end = _already_over
            self._turn_over(visit, at)

        def done(record: Record, answer: str) -> None:
            visit.answer = answer
            self._done(record)

        sent = self._transport.send(request, ticket, ended, done)
        if end is None:  # it may have been over at once
            end = sent
            self._under_way[sent] = None

    def _ticket(self, visit: _Visit, ready_at: int) -> Ticket:
        turns = len(visit.session.turns)
        live = visit.session.live and visit.turn + 1 < turns
        return Ticket(
            visit.index, visit.turn, turns, self.name, visit.stage, self._shard, visit.scheduled_at, ready_at, live
        )

    def _request(self, visit: _Visit) -> Request:
        request = visit.session.turns[visit.turn]
        if visit.session.live and visit.turn and isinstance(request.prompt, list):
            _answer_in_history(request.prompt, visit.answer)
        return request

    def _turn_over(self, visit: _Visit, at: int) -> None:
        """The answer is over: the next turn follows after its think time, the slot is free."""
        visit.turn += 1
        if visit.turn < len(visit.session.turns) and not self._no_turns:
            self._think(visit, at)
        self._fill(at)
        self._check_over()

    def _think(self, visit: _Visit, at: int) -> None:
        visit.scheduled_at = at + int(visit.session.turns[visit.turn].think_s * 1e9)
        self._thinking += 1

        def wanted() -> None:
            self._thinking -= 1
            if not self._no_turns:
                self._admit(visit, visit.scheduled_at)
            self._check_over()

        self._clock.call_at(visit.scheduled_at, wanted)

    def _done(self, record: Record) -> None:
        self._unkept -= 1
        self.counts.done += 1
        if record.outcome != "ok" and record.outcome not in CENSORED:
            self.counts.failed += 1
        self.counts.output_tokens += record.output_tokens or record.counted_tokens or 0
        self._keep(record)
        self._check_over()

    def _keep_unsent(self, visit: _Visit, outcome: Outcome) -> None:
        record = new_record(self._ticket(visit, visit.scheduled_at))
        record.ready_at = None
        record.outcome = outcome
        record.ended_at = self._clock.now()
        self._keep(record)

    def _check_over(self) -> None:
        if self.over and self.on_over is not None:
            on_over, self.on_over = self.on_over, None
            on_over()


def _already_over(_outcome: Outcome) -> None:
    """What ends a request that has ended."""


def _answer_in_history(messages: list[Any], answer: str) -> None:
    """Put the live answer where the recorded one stands: in the last assistant message."""
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "assistant":
            message["content"] = answer
            return
