"""The drive loop of one traffic class: starts sessions when they are scheduled or when a slot is free, turn by turn."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from inferometer.load.answer import new_record
from inferometer.load.arrivals import Arrival, Pace
from inferometer.load.clock import Clock, Ticket, Timer, Transport
from inferometer.plan.model import Traffic
from inferometer.record.record import AS_PLANNED, CENSORED, Outcome, Record
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import Ahead, Request, Session, Workload

# -- visit -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """Counts so far."""

    scheduled: int = 0
    sent: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    output_tokens: int = 0


class Visit:
    """A session in progress: its next turn, and since when that turn is due."""

    __slots__ = ("answer", "began_at", "graph", "index", "scheduled_at", "session", "stage", "turn")

    def __init__(self, index: int, session: Session, stage: int, scheduled_at: int) -> None:
        self.index = index
        self.session = session
        self.stage = stage
        self.turn = 0
        self.scheduled_at = self.began_at = scheduled_at
        self.answer = ""
        self.graph = Graph(session) if session.is_graph else None

    def branch(self, turn: int, at: int) -> "Visit":
        """Another turn of the same session, run in parallel."""
        other = Visit.__new__(Visit)
        other.index, other.session, other.stage, other.graph = self.index, self.session, self.stage, self.graph
        other.turn, other.scheduled_at, other.began_at, other.answer = turn, at, self.began_at, ""
        return other


class Graph:
    """The turns of a session that depend on several others: their open dependencies, and the turns in flight."""

    __slots__ = ("open", "waits")

    def __init__(self, session: Session) -> None:
        self.waits = [set(turn.after or ()) for turn in session.turns]
        self.open = 1  # the first turn, and other turns that are due

    @property
    def roots(self) -> list[int]:
        """Turns that depend on no other, except the first."""
        return [turn for turn, waits in enumerate(self.waits) if turn and not waits]

    def over(self, turn: int) -> list[int]:
        """Marks a turn as over; returns the turns whose last dependency it was."""
        ready = []
        for number, waits in enumerate(self.waits):
            if turn in waits:
                waits.discard(turn)
                if not waits:
                    ready.append(number)
        return ready


def answer_in_history(messages: list[Any], answer: str) -> None:
    """Replaces the recorded answer by the live one in the last assistant message. The turns of a session share their
    messages, so it appears in all later turns. A recorded tool call stays, because the tool's recorded output belongs
    to it."""
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "assistant":
            if not message.get("tool_calls"):
                message["content"] = answer
            return


# -- drive -----------------------------------------------------------------------------------------------------------

FILL_AT_ONCE = 32  # slots, if many are free
HOPELESS = 100  # the run is given up once this many requests were answered and all of them failed


class Drive:
    """Sends the sessions of one traffic class and passes every record to `keep`."""

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
        self._ahead = Ahead(self._session, self._coming(), self._prepared, pace.most_sessions)
        self._clock = clock
        self._transport = transport
        self._keep = keep
        self._shard = shard
        self._cap: int | None = None
        self._stage = 0
        self._waiting: deque[Visit] = deque()  # turns that wait for a slot
        self._lobby: deque[Visit] = deque()  # sessions that wait until another one is over
        self._sessions = 0  # started and not over
        self._thinking: dict[Visit, Timer] = {}
        self._resting = 0  # slots kept during think time
        self._opening = False
        self._filling = False
        self._fill_again = False  # scheduled for the next round of the clock
        self._unkept = 0  # ended, but without a record yet
        self._under_way: dict[Callable[[Outcome], None], None] = {}
        self._next: tuple[Visit, int] | None = None
        self._held: tuple[Arrival, Session] | None = None  # the first after the warm-up, until the warm-up is answered
        self._arrived_at = 0  # scheduled time of the last session
        self._timer: Timer | None = None
        self._no_more = False  # no new sessions are started
        self._no_turns = False  # nor further turns of sessions in progress
        self._start_at = 0
        self._counted = 0
        self._counted_sessions = 0
        self.on_over: Callable[[], None] | None = None  # called when nothing is left to send or in flight
        self.on_stop: Callable[[], None] | None = None  # called when nothing more will be started

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting) + len(self._lobby)

    @property
    def planned(self) -> int | None:
        """The number of requests it will send, if a count ends it."""
        if self._pace.requests is None:
            return None
        begun = self.counts.scheduled if self._pace.whole_sessions else self.counts.sent
        return self._pace.requests + begun - self._counted

    @property
    def ends_at(self) -> int | None:
        """When its time ends, if it has a time limit."""
        return None if self._pace.ends_ns is None else self._start_at + self._pace.ends_ns

    @property
    def over(self) -> bool:
        """Whether nothing more will be sent and nothing is in flight."""
        return self._no_more and not (self.counts.in_flight or self.waiting or self._thinking or self._unkept)

    @property
    def sending(self) -> bool:
        """Whether more requests will follow: new sessions, or turns of sessions in progress."""
        return not self._no_more or (not self._no_turns and self.counts.scheduled > self.counts.sent + self.waiting)

    def start(self, start_at: int) -> None:
        """Start at an instant of the clock."""
        self._start_at = start_at
        for after_ns, slots, stage in self._pace.slots:
            self._clock.call_at(start_at + after_ns, partial(self._set_cap, slots, stage))
        if self._pace.ends_ns is not None:
            self._clock.call_at(start_at + self._pace.ends_ns, self.end)
        if self._pace.arrivals is not None:
            self._await_arrival()

    def stop(self) -> None:
        """Start no new session; sessions in progress continue to their last turn."""
        if not self._no_more:
            self._no_more = True
            if self._timer is not None:
                self._timer.cancel()
            self._next = None
        self._check_sent()
        self._check_over()

    def end(self) -> None:
        """The time is up: schedule nothing more. Requests that wait for a slot were scheduled in time and are still
        sent."""
        self._end_turns()
        self.stop()
        self._fill(self._clock.now())  # sessions that waited for one of those to end

    def interrupt(self, outcome: Outcome) -> None:
        """Send nothing more, not even waiting requests; requests in flight may finish."""
        self._end_turns()
        waiting = [*self._waiting, *self._lobby]
        self._waiting.clear()
        self._lobby.clear()
        for visit in waiting:
            self._keep_unsent(visit, outcome)
        self.stop()

    def cut(self, outcome: Outcome) -> None:
        """End everything now."""
        self.interrupt(outcome)
        for end in list(self._under_way):
            end(outcome)

    def _end_turns(self) -> None:
        """Drop the turns that will no longer be sent."""
        self._no_turns = True
        for timer in self._thinking.values():
            timer.cancel()
        for visit in self._thinking:
            if visit.graph is not None:
                visit.graph.open -= 1
            self._sessions -= visit.graph is None or not visit.graph.open
        self._thinking.clear()
        self._resting = 0

    # -- sessions, made ahead of time ------------------------------------------------------------------------

    @property
    def short(self) -> bool:
        """Whether only few prepared sessions are left."""
        return not self._no_more and self._ahead.short

    def make_one(self) -> bool:
        """Prepare one more session, in an idle moment; False if enough are prepared."""
        return not self._no_more and self._ahead.make_one()

    def _coming(self) -> Iterator[Arrival]:
        """The sessions of this shard, in order; in a closed loop they have no scheduled time."""
        if self._pace.arrivals is not None:
            return self._pace.arrivals
        return ((index, 0, 0) for index in self._pace.indices)

    def _session(self, index: int) -> Session:
        tape = self._pace.tape
        return self._workload(index % tape if tape else index)

    def _prepared(self, index: int, session: Session) -> int:
        return self._transport.prepare(session.turns[0], self.name, index)

    # -- open loop -------------------------------------------------------------------------------------------

    def _await_arrival(self) -> None:
        """Prepare the next session and wait for its scheduled time."""
        assert self._pace.arrivals is not None
        made, self._held = self._held or self._ahead.take(), None
        if made is not None and self._is_early(made[0][0]):
            self._held = made
            return
        if made is None or self._no_more or self._enough(made[0][0], self._start_at + made[0][1]):
            self._next = None
            self.stop()
            return
        (index, after_ns, stage), session = made
        at = self._start_at + after_ns
        self._next = (Visit(index, session, stage, at), at)
        self._timer = self._clock.call_at(at, self._arrive)

    def _arrive(self) -> None:
        if self._next is None:
            return
        visit, at = self._next
        self._arrived_at = at
        self._count(visit)
        if self._full:
            self._lobby.append(visit)
        else:
            self._sessions += 1
            self._admit(visit, at)
            self._branch_roots(visit, at)
        self._await_arrival()

    def _is_early(self, index: int) -> bool:
        """Whether a session has to wait for the warm-up: a tape is sent again once all its answers have arrived."""
        behind = self._pace.tape is not None and index >= self._pace.tape
        return behind and self._counted == 0 and bool(self.counts.in_flight or self.waiting or self._thinking)

    def _warmed_up(self, at: int) -> None:
        """The last answer of the warm-up has arrived: arrivals continue as if no time had passed since the last one."""
        if self._held is None or self._is_early(self._held[0][0]):
            return
        if self._pace.arrivals is not None:
            self._start_at += max(0, at - self._arrived_at)
            self._await_arrival()

    @property
    def _full(self) -> bool:
        """Whether the maximum number of sessions is in progress."""
        most = self._pace.sessions_at_once
        return most is not None and self._sessions >= most

    @property
    def _no_slot(self) -> bool:
        return self._cap is not None and self.counts.in_flight + self._resting >= self._cap

    def _admit(self, visit: Visit, at: int) -> None:
        """A turn is due: send it, or let it wait for a slot."""
        if self._no_slot:
            self._waiting.append(visit)
        else:
            self._launch(visit, at)

    def _enough(self, index: int, at: int) -> bool:
        """Whether a session exceeds the planned number. Warm-up sessions never do, even if a shard has no others."""
        return not self._warm(index, at) and self._all_counted

    @property
    def _all_counted(self) -> bool:
        requests, sessions = self._pace.requests, self._pace.sessions
        return (requests is not None and self._counted >= requests) or (
            sessions is not None and self._counted_sessions >= sessions
        )

    def _warm(self, index: int, at: int) -> bool:
        return index < self._pace.warmup_requests or at < self._start_at + self._pace.warmup_ns

    def _count(self, visit: Visit) -> None:
        """Count a session that starts: its turns count once the warm-up is over."""
        self.counts.scheduled += len(visit.session.turns)
        if not self._warm(visit.index, visit.scheduled_at):
            self._counted += len(visit.session.turns) if self._pace.whole_sessions else 0
            self._counted_sessions += 1

    def _count_one(self, visit: Visit) -> None:
        """Count a request that is sent, if the last one ends the load: waiting requests are not sent after it."""
        if self._pace.whole_sessions or self._warm(visit.index, visit.began_at):
            return
        self._counted += 1
        requests = self._pace.requests
        if requests is not None and self._counted >= requests:
            self._waiting.clear()
            self._lobby.clear()
            self._end_turns()
            self.stop()

    # -- closed loop, and slots under a cap ------------------------------------------------------------------

    def _set_cap(self, slots: int, stage: int) -> None:
        """New slots are opened one after the other, as fast as possible: each counts as free from the time it is
        opened."""
        self._cap = slots
        self._stage = stage
        self._fill(self._clock.now(), opening=True)

    def _fill(self, at: int, opening: bool = False) -> None:
        """Use free slots. A slot that a request frees immediately is reused through the clock, to avoid recursion and
        stalls. The same holds for further slots if many are free, so that the answers of the first ones can be read."""
        if self._filling:
            self._fill_soon(at, self._opening)
            return
        self._filling, self._opening = True, opening
        try:
            for _ in range(FILL_AT_ONCE):
                if self._fill_again or not self._use_slot(at):
                    break
            else:
                self._fill_soon(at, opening)
        finally:
            self._filling = self._opening = False

    def _fill_soon(self, at: int, opening: bool) -> None:
        if not self._fill_again:
            self._fill_again = True
            self._clock.call_at(at, partial(self._refill, at, opening))

    def _refill(self, at: int, opening: bool) -> None:
        self._fill_again = False
        self._fill(at, opening)

    def _use_slot(self, at: int) -> bool:
        """Used first for waiting turns, then for waiting sessions, then, in a closed loop, for new ones. With
        `in_turn`, all sessions start before the second turn of any."""
        if self._no_slot:
            return False
        if self._pace.in_turn and not self._full and not self._no_more and self._begin_session(at):
            return True
        if self._waiting:
            self._launch(self._waiting.popleft(), at)
            return True
        if self._full:
            return False
        if self._lobby:
            self._sessions += 1
            visit = self._lobby.popleft()
            self._launch(visit, at)
            self._branch_roots(visit, at)
            return True
        return self._pace.arrivals is None and not self._no_more and self._begin_session(at)

    def _begin_session(self, at: int) -> bool:
        made, self._held = self._held or self._ahead.take(), None
        if made is not None and self._is_early(made[0][0]):
            self._held = made
            return False
        if made is None or self._enough(made[0][0], at):
            self.stop()
            return False
        if self._opening:
            at = self._clock.now()
        visit = Visit(made[0][0], made[1], self._stage, at)
        self._count(visit)
        self._sessions += 1
        self._launch(visit, at)
        self._branch_roots(visit, at)
        if self._enough(visit.index, at):  # it was the last: the drain starts now, not when the next slot is free
            self.stop()
        return True

    # -- one request -----------------------------------------------------------------------------------------

    def _launch(self, visit: Visit, ready_at: int) -> None:
        request = self._request(visit)
        ticket = self._ticket(visit, max(ready_at, visit.scheduled_at))
        self.counts.sent += 1
        if self._no_more:
            self._check_sent()
        self.counts.in_flight += 1
        self._unkept += 1
        self._count_one(visit)
        end: Callable[[Outcome], None] | None = None
        cancelling = self._pace.cancel
        if cancelling is not None and not cancelling.chosen(visit.index, visit.turn):
            cancelling = None
        timer: Timer | None = None
        as_planned = False

        def cancel() -> None:
            nonlocal as_planned
            if end is not None and end is not _already_over:
                as_planned = True
                end("cancelled")

        def ended(at: int) -> None:
            nonlocal end
            self.counts.in_flight -= 1
            if timer is not None:
                timer.cancel()
            if end is not None:
                self._under_way.pop(end, None)
            end = _already_over
            self._turn_over(visit, at)

        def done(record: Record, answer: str) -> None:
            visit.answer = answer
            if as_planned and record.outcome == "cancelled":
                record.error = AS_PLANNED
            self._done(record)

        if cancelling is not None and cancelling.after_tokens is not None:
            ticket.most_tokens, ticket.on_most = cancelling.after_tokens, cancel
        sent = self._transport.send(request, ticket, ended, done)
        if end is None:  # it may have ended already
            end = sent
            self._under_way[sent] = None
            if cancelling is not None and cancelling.after_ns is not None:
                timer = self._clock.call_at(self._clock.now() + cancelling.after_ns, cancel)

    def _ticket(self, visit: Visit, ready_at: int) -> Ticket:
        turns = len(visit.session.turns)
        live = (visit.session.live and visit.turn + 1 < turns) or bool(visit.session.turns[visit.turn].fills)
        return Ticket(
            visit.index, visit.turn, turns, self.name, visit.stage, self._shard, visit.scheduled_at, ready_at, live
        )

    def _request(self, visit: Visit) -> Request:
        request = visit.session.turns[visit.turn]
        if visit.session.live and visit.turn and isinstance(request.prompt, list):
            answer_in_history(request.prompt, visit.answer)
        return request

    def _turn_over(self, visit: Visit, at: int) -> None:
        """An answer has ended: the next turn follows after its think time, and the slot is free."""
        if visit.graph is not None:
            self._branch_over(visit, visit.graph, at)
            return
        visit.turn += 1
        if visit.turn < len(visit.session.turns) and not self._no_turns:
            self._think(visit, at)
        else:
            self._sessions -= 1
        self._warmed_up(at)
        self._fill(at)
        self._check_over()

    def _branch_roots(self, visit: Visit, at: int) -> None:
        """Start the turns of a graph that have no dependency, together with the first."""
        if visit.graph is None:
            return
        for turn in visit.graph.roots:
            visit.graph.open += 1
            self._launch(visit.branch(turn, at), at)

    def _branch_over(self, visit: Visit, graph: Graph, at: int) -> None:
        """A turn of a graph is over: its answer is inserted, and turns whose last dependency it was are due. A cap does
        not delay turns of a session: it counts sessions."""
        turn = visit.session.turns[visit.turn]
        if visit.answer:
            for message in turn.fills:
                message["content"] = visit.answer
        graph.open -= 1
        for number in graph.over(visit.turn) if not self._no_turns else ():
            graph.open += 1
            wanted_at = at + round(visit.session.turns[number].think_s * NANOSECONDS)
            branch = visit.branch(number, wanted_at)
            self._thinking[branch] = self._clock.call_at(wanted_at, partial(self._branch_due, branch))
        if not graph.open:
            self._sessions -= 1
        self._fill(at)
        self._check_over()

    def _branch_due(self, visit: Visit) -> None:
        del self._thinking[visit]
        self._launch(visit, visit.scheduled_at)
        self._check_over()

    def _think(self, visit: Visit, at: int) -> None:
        """Without think time the next turn is first in line for the slot that its predecessor frees."""
        visit.scheduled_at = self._wanted_at(visit, visit.session.turns[visit.turn], at)
        if visit.scheduled_at <= at:
            self._waiting.append(visit)
        else:
            self._resting += self._pace.in_turn
            self._thinking[visit] = self._clock.call_at(visit.scheduled_at, partial(self._thought, visit))

    def _wanted_at(self, visit: Visit, turn: Request, at: int) -> int:
        """When a turn is due: after its think time, at its time since the start of the session, or, in a replay, at its
        recorded time, which may be before the answer arrived."""
        speed = self._pace.speed
        if turn.due_s is not None:
            return max(at, visit.began_at + round(turn.due_s * NANOSECONDS))
        if speed is None or turn.at_s is None:
            return at + round(turn.think_s * NANOSECONDS)
        return self._start_at + round(turn.at_s / speed * NANOSECONDS)

    def _thought(self, visit: Visit) -> None:
        del self._thinking[visit]
        if self._pace.in_turn:  # after the others
            self._resting -= 1
            self._waiting.append(visit)
            self._fill(visit.scheduled_at)
        else:
            self._admit(visit, visit.scheduled_at)
        self._check_over()

    def _done(self, record: Record) -> None:
        self._unkept -= 1
        self.counts.done += 1
        if is_failure(record):
            self.counts.failed += 1
        self.counts.output_tokens += record.output_tokens or record.counted_tokens or 0
        self._keep(record)
        self._check_over()

    def _keep_unsent(self, visit: Visit, outcome: Outcome) -> None:
        record = new_record(self._ticket(visit, visit.scheduled_at))
        record.ready_at = None
        record.outcome = outcome
        record.ended_at = self._clock.now()
        self._keep(record)

    def _check_sent(self) -> None:
        """Report once that nothing more will be sent. Turns recorded for later still count: the drain waits for
        them."""
        if self.on_stop is not None and not self.sending:
            on_stop, self.on_stop = self.on_stop, None
            on_stop()

    def _check_over(self) -> None:
        if self.over and self.on_over is not None:
            on_over, self.on_over = self.on_over, None
            on_over()


def is_failure(record: Record) -> bool:
    """True also for our own failures: a run without any answer is not worth continuing, whatever the cause."""
    return record.outcome == "client" or (record.outcome != "ok" and record.outcome not in CENSORED)


def why_give_up(drives: Sequence[Drive], classes: Sequence[Traffic]) -> str | None:
    """Why the run should be given up: a class has reached the number of failures that its plan allows, or all results
    were failures."""
    for drive, traffic in zip(drives, classes, strict=True):
        if traffic.stop.errors is not None and drive.counts.failed >= traffic.stop.errors:
            return f"{drive.counts.failed} requests failed, stop.errors is {traffic.stop.errors}"
    failed, done = (sum(getattr(drive.counts, name) for drive in drives) for name in ("failed", "done"))
    return f"all of the first {failed} requests failed" if done >= HOPELESS and failed == done else None


def _already_over(_outcome: Outcome) -> None:
    """Used to end a request that has already ended."""
