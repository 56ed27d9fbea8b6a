"""What can spoil a run, each at the place where it acts. Where virtual time has no such place, it acts on the records
or the facts, and its doc string says so."""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from inferometer.load.answer import new_record
from inferometer.load.clock import Done, Ended, Ticket, Transport
from inferometer.measure.inputs import Facts
from inferometer.plan.model import Plan
from inferometer.record.columns import Ints, Records
from inferometer.record.environment import CalibrationPoint, Curve
from inferometer.record.record import Outcome, Record
from inferometer.record.summary import HostSummary
from inferometer.simulator.loop import EngineLoop
from inferometer.simulator.settings import Instants, StepTime
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import Request

from .virtual import Cause, VirtualRun


def _ns(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


# -- the client ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LateClient(Cause):
    """Every send waits for something else in our process first."""

    late_s: float  # on average
    seed: int

    def sends_at(self, at: int, ticket: Ticket) -> int:
        return at + _ns(np.random.default_rng([self.seed, ticket.session, ticket.turn]).exponential(self.late_s))


@dataclass(frozen=True, slots=True)
class PausingClient(Cause):
    """Nothing leaves for a while, again and again: a collector of garbage, a disk that is written."""

    pause_s: float
    every_s: float

    def sends_at(self, at: int, ticket: Ticket) -> int:
        since = at % _ns(self.every_s)
        return at + max(0, _ns(self.pause_s) - since)


@dataclass(frozen=True, slots=True)
class StarvedCores(Cause):
    """The client runs for a part of each period only: it sends and reads when it has the core again. That the host
    was busy is told to the summary: virtual time has no host."""

    away: float  # share of the time
    period_s: float

    def _back_at(self, at: Ints) -> Ints:
        period = _ns(self.period_s)
        since = at % period
        return np.where(since < self.away * period, at - since + round(self.away * period), at)

    def sends_at(self, at: int, ticket: Ticket) -> int:
        return int(self._back_at(np.array(at)))

    def sees_at(self, at: Ints) -> Ints:
        return self._back_at(at)

    def blind_since(self, at: Ints) -> Ints:
        since = at % _ns(self.period_s)
        return np.where(since < self.away * _ns(self.period_s), at - since, at)

    def know(self, facts: Facts, records: Records) -> Facts:
        return replace(facts, stamps="read")

    def host(self) -> HostSummary:
        return HostSummary(cpu_share=0.99, steal_share=0.0, cpu_pressure_share=self.away)


@dataclass(frozen=True, slots=True)
class MergedReads(Cause):
    """The client looks at its sockets once in a while: what came in between is one read."""

    every_s: float

    def sees_at(self, at: Ints) -> Ints:
        every = _ns(self.every_s)
        return -(-at // every) * every

    def blind_since(self, at: Ints) -> Ints:
        return (-(-at // _ns(self.every_s)) - 1) * _ns(self.every_s)

    def know(self, facts: Facts, records: Records) -> Facts:
        return replace(facts, stamps="read")


@dataclass(frozen=True, slots=True)
class NearCeiling(Cause):
    """All events pass through one reader that takes as long for each: they queue. On the records, for what comes late
    changes nothing that is sent (open loops only); its calibration knows the ceiling, and the error below it."""

    busy: float  # mean events/s as a share of what can be read
    event_rate_per_s: float

    @property
    def _event_s(self) -> float:
        return self.busy / self.event_rate_per_s

    def read(self, records: Records, facts: Facts) -> Records:
        order = np.argsort(records.read_at, kind="stable")
        cost = _ns(self._event_s) * np.arange(len(order))
        read_at = np.empty_like(records.read_at)
        read_at[order] = np.maximum.accumulate(records.read_at[order] - cost) + cost
        slack = np.maximum(records.read_slack, read_at - records.read_at)
        ends = records.read_offsets[1:][records.read_counts() > 0] - 1
        ended_at = records.ended_at.copy()
        ended_at[records.read_counts() > 0] = np.maximum(ended_at[records.read_counts() > 0], read_at[ends])
        return replace(records, read_at=read_at, read_slack=slack, ended_at=ended_at)

    def know(self, facts: Facts, records: Records) -> Facts:
        ceiling = 1 / self._event_s
        points = [
            CalibrationPoint(
                streams=streams,
                events_per_s=share * ceiling,
                ttft_error_p50=self._event_s * share / (1 - share) / 2,
                ttft_error_p99=self._event_s * math.log(100) * share / (1 - share) / 2,
                read_error_p50=self._event_s * share / (1 - share) / 2,
                read_error_p99=self._event_s * math.log(100) * share / (1 - share) / 2,
                cpu_s_per_million=self._event_s * 1e6,
            )
            for streams in (1, 1024)
            for share in (0.1, 0.5, 0.8, 0.95)
        ]
        return replace(facts, stamps="read", calibration=Curve(points=points, ceiling_events_per_s=ceiling))


@dataclass(frozen=True, slots=True)
class SteppedClock(Cause):
    """The real-time clock is set while kernel stamps are used: until the offset is read anew, a second later, reads
    are off. On the records: virtual time has one clock."""

    by_s: float
    times: int

    def read(self, records: Records, facts: Facts) -> Records:
        first, last = int(records.sent_at.min()), int(records.ended_at.max())
        read_at = records.read_at.copy()
        for number in range(self.times):
            step_at = first + (number + 1) * (last - first) // (self.times + 1)
            off = (records.read_at >= step_at) & (records.read_at < step_at + NANOSECONDS)
            read_at[off] += _ns(self.by_s)
        # a stamp from before the send, or before the read before it, is not believed
        owner = np.repeat(np.arange(len(records)), records.read_counts())
        read_at = np.where(read_at < records.sent_at[owner], records.read_at, read_at)
        new = np.concatenate(([True], owner[1:] != owner[:-1]))
        base = np.repeat(np.flatnonzero(new), np.diff(np.append(np.flatnonzero(new), len(owner))))
        span = int(read_at.max() - read_at.min()) + 1
        ordered = np.maximum.accumulate(read_at - read_at.min() + base * span) - base * span + read_at.min()
        return replace(records, read_at=ordered)

    def know(self, facts: Facts, records: Records) -> Facts:
        return replace(facts, clock_steps_s=(self.by_s,) * self.times, stamps="kernel")


@dataclass(frozen=True, slots=True)
class LostTokens(Cause):
    """Something between the server and us drops events: on the records, which hold fewer reads than the usage says."""

    share: float
    seed: int

    def read(self, records: Records, facts: Facts) -> Records:
        kept = np.random.default_rng([self.seed, 5]).random(len(records.read_at)) >= self.share
        owner = np.repeat(np.arange(len(records)), records.read_counts())
        firsts = records.read_offsets[:-1][records.read_counts() > 0]
        kept[firsts] = True
        counts = np.bincount(owner[kept], minlength=len(records))
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        reads = {name: getattr(records, name)[kept] for name in ("read_at", "read_tokens", "read_slack")}
        return replace(records, read_offsets=offsets, **reads)


# -- the load --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrongProcess(Cause):
    """Arrivals that are not those that the plan names."""

    type: str
    cv: float = 1.0

    def paced(self, plan: Plan) -> Plan:
        return plan.model_copy(update={"load": plan.load.model_copy(update={"type": self.type, "cv": self.cv})})


@dataclass(frozen=True, slots=True)
class Changed(Cause):
    """The plan itself is what spoils: a cap, a rate above capacity, a window too short, no drain, faults of the
    server."""

    change: Callable[[dict[str, Any]], dict[str, Any]]

    def plan(self, mapping: dict[str, Any]) -> dict[str, Any]:
        return self.change(mapping)


# -- the server ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class DriftingStepTime:
    """Steps that take longer by a factor that depends on when they begin."""

    inner: StepTime
    factor: Callable[[Ints], "np.ndarray[Any, np.dtype[np.float64]]"]

    def ends(self, at: int, prefill_tokens: int, sequences: int, context: int, steps: int, first_step: int) -> Instants:
        ends = np.array(self.inner.ends(at, prefill_tokens, sequences, context, steps, first_step))
        lengths = np.diff(np.concatenate(([at], ends)))
        slower = np.maximum((lengths * self.factor(ends)).astype(np.int64), 1).cumsum() + at
        return _instants(slower)


def _instants(values: Ints) -> Instants:
    return array("q", values.astype("<i8").tobytes())


@dataclass(frozen=True, slots=True)
class Drift(Cause):
    """A server that becomes slower over the run (heat, memory, another tenant who comes), to a factor at its end."""

    factor: float
    over_s: float

    def serve(self, run: VirtualRun) -> Transport:
        begin_at = run.clock.now()
        _slow(run, lambda at: 1 + (self.factor - 1) * np.clip((at - begin_at) / _ns(self.over_s), 0.0, 1.0))
        return run.server


@dataclass(frozen=True, slots=True)
class SlowPhase(Cause):
    """A server that is slower for a while."""

    factor: float
    begin_s: float
    end_s: float

    def serve(self, run: VirtualRun) -> Transport:
        begin_at, end_at = run.clock.now() + _ns(self.begin_s), run.clock.now() + _ns(self.end_s)
        _slow(run, lambda at: np.where((at >= begin_at) & (at < end_at), self.factor, 1.0))
        return run.server


def _slow(run: VirtualRun, factor: Callable[[Ints], Any]) -> None:
    loop = run.server.loop
    assert isinstance(loop, EngineLoop)
    loop.step_time = DriftingStepTime(loop.step_time, factor)  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class WarmCache(Cause):
    """Some of the prompts were sent before, in another run with the same tape."""

    share: float
    sessions: int

    def serve(self, run: VirtualRun) -> Transport:
        [workload], step = run.workloads, max(1, round(1 / self.share))
        for number in range(0, self.sessions, step) if self.share < 1 else range(self.sessions):
            prompt = workload(number).turns[0].prompt
            ticket = Ticket(number, 0, 1, run.plan.classes[0].name, 0, 0, run.clock.now(), run.clock.now())
            run.server.send(Request(prompt, 1), ticket, _ignored, _ignored_too)
            run.clock.run()
        return run.server


def _ignored(_at: int) -> None: ...


def _ignored_too(_record: Record, _text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ShortOutputs(Cause):
    """A server that ends some answers when it likes, whatever was asked."""

    share: float
    seed: int

    def asked(self, request: Request, ticket: Ticket) -> Request:
        if np.random.default_rng([self.seed, 9, ticket.session]).random() >= self.share:
            return request
        return replace(request, body={**request.body, "ignore_eos": False})


@dataclass(slots=True)
class Restart(Cause):
    """The server's process ends: what it works on is cut, and until the next one is there nobody answers. Its counters
    and its cache begin anew."""

    at_s: float
    down_s: float
    failing: bool = True  # else somebody in front of it holds requests back until it is there again
    slower: float = 1.0  # the next process by this factor: another model
    _run: VirtualRun | None = field(default=None, init=False)
    _under_way: dict[Callable[[Outcome], None], Record | None] = field(default_factory=dict, init=False)
    _up_at: int = field(default=0, init=False)

    def serve(self, run: VirtualRun) -> Transport:
        self._run = run
        run.clock.call_at(run.clock.now() + _ns(self.at_s), self._end)
        return self

    def prepare(self, _request: Request, _traffic: str, _session: int) -> int:
        return 0

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        run = self._run
        assert run is not None
        now = run.clock.now()
        if now >= self._up_at:
            return self._carry(request, ticket, ended, done)
        if self.failing:
            run.clock.call_at(now + 1_000_000, partial(_refuse, run, ticket, now, ended, done))
            return _nothing
        ends: list[Callable[[Outcome], None]] = []
        sent_at = now

        def late(record: Record, text: str) -> None:
            record.sent_at = sent_at
            done(record, text)

        run.clock.call_at(self._up_at, lambda: ends.append(self._carry(request, ticket, ended, late)))
        return lambda outcome: ends[0](outcome) if ends else None

    def _carry(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        assert self._run is not None
        holder: list[Callable[[Outcome], None]] = []

        def over(record: Record, text: str) -> None:
            for end in holder:
                self._under_way.pop(end, None)
            if record.outcome == "cut":
                record.error = "the server closed the connection"
            done(record, text)

        end = self._run.server.send(request, ticket, ended, over)
        holder.append(end)
        self._under_way[end] = None
        return end

    def _end(self) -> None:
        run = self._run
        assert run is not None
        if self.failing:
            for end in list(self._under_way):
                end("cut")
        run.server = run.new_server()  # where nothing was cut, the one before still finishes what it has
        run.process += 1
        if self.slower != 1.0:
            _slow(run, lambda at: np.full(np.shape(at), self.slower))
        self._up_at = run.clock.now() + _ns(self.down_s)


def _refuse(run: VirtualRun, ticket: Ticket, sent_at: int, ended: Ended, done: Done) -> None:
    record = new_record(ticket)
    record.sent_at, record.ended_at = sent_at, run.clock.now()
    record.outcome, record.error = "connect", "Connection refused"
    ended(run.clock.now())
    done(record, "")


def _nothing(_outcome: Outcome) -> None: ...
