"""When sessions arrive in an open loop: pure, seeded, in blocks. The drive loop starts them.

A process is a sequence of gaps of mean 1 and their sums S(n). The rate of a stretch of length L has the integral R(t) =
r0 t + (r1 - r0) t^2 / 2L, and arrival n comes at R^-1(S(n)), which covers constant rates and ramps alike.
"""

import math
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from itertools import count, repeat, takewhile

import numpy as np
from numpy.typing import NDArray

from inferometer.errors import PlanError
from inferometer.plan.load import Cancel
from inferometer.plan.model import Load, Plan, Stop, Traffic, Warmup
from inferometer.plan.workloads import TraceFile
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.draws import Draws, Purpose
from inferometer.workload.session import Workload

BLOCK = 1024  # computed in about 30 us, so that no arrival waits for it
PURPOSE = 1  # separates these random numbers from those that workloads draw with the same seed
COUNTABLE = 2_000_000  # arrivals that are counted in advance, which takes a fifth of a second

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Arrival = tuple[int, int, int]  # index, ns after the start of the load, stage


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stage of a load as a process and a rate that changes linearly from `rate` to `to`."""

    stage: int
    begins_s: float
    length_s: float  # inf: no end of its own
    rate_per_s: float
    to_per_s: float
    process: str  # "constant", "poisson" or "gamma"
    cv: float = 1.0

    @property
    def expected(self) -> float:
        """R(L): the expected number of arrivals."""
        mean = (self.rate_per_s + self.to_per_s) / 2
        return mean * self.length_s if mean else 0.0


@dataclass(frozen=True, slots=True)
class ArrivalBlock:
    """Consecutive arrivals of one stage; `at` is in nanoseconds after the start of the load."""

    first: int  # index of the first
    at: Ints
    stage: int


class Replay:
    """The sessions of a recording for one shard, each with its instant (nanoseconds after the start)."""

    def __init__(self, at: Ints, shard: int = 0, shards: int = 1) -> None:
        self._at = at[shard::shards]
        self._stream: Iterator[Arrival] = zip(count(shard, shards), self._at.tolist(), repeat(0), strict=False)

    def __iter__(self) -> Iterator[Arrival]:
        return self._stream

    def __next__(self) -> Arrival:
        return next(self._stream)

    def count(self) -> int:
        return len(self._at)


def replayed(at: Ints, speed: float) -> Ints:
    """Recorded instants on the clock of the replay."""
    return at if speed == 1 else np.rint(at / speed).astype(np.int64)


class Arrivals:
    """The arrivals of one shard, as `(index, ns after the start, stage)` in order. `duration_s` ends any load and is
    the length of a ramp. The union over all shards is the same process for any number of shards."""

    def __init__(
        self,
        load: Load,
        seed: int,
        traffic: int = 0,
        shard: int = 0,
        shards: int = 1,
        duration_s: float | None = None,
    ) -> None:
        self._stretches = stretches(load, duration_s)
        self._seed, self._traffic = seed, traffic
        self._shard, self._shards = shard, shards
        self._stream = self._arrivals()

    def __iter__(self) -> Iterator[Arrival]:
        return self._stream

    def __next__(self) -> Arrival:
        return next(self._stream)

    def count(self) -> int | None:
        """How many arrivals this shard has in total; None if there is no end, or if there are too many to count in
        advance."""
        if sum(stretch.expected for stretch in self._stretches) > COUNTABLE:
            return None
        return sum(len(shard_of(block.at, block.first, self._shard, self._shards)) for block in self._blocks())

    def _blocks(self) -> Iterator[ArrivalBlock]:
        return blocks(self._stretches, self._seed, self._traffic)

    def _arrivals(self) -> Iterator[Arrival]:
        shard, shards = self._shard, self._shards
        for block in self._blocks():
            mine = shard_of(block.at, block.first, shard, shards)
            first = block.first + (shard - block.first) % shards
            yield from zip(range(first, first + shards * len(mine), shards), mine.tolist(), repeat(block.stage))


def length_s(load: Load, stop: Stop, warmup: Warmup | None = None) -> float | None:
    """The length of the load in seconds, including warm-up; None if it ends only after a number of requests, or by an
    interrupt."""
    warmup = warmup or Warmup()
    if load.type == "stages":
        whole = sum(stage.duration for stage in load.stages)
        return whole if stop.duration is None else min(whole, stop.duration + warmup.duration)
    if stop.duration is not None:
        return stop.duration + warmup.duration
    if load.type != "ramp":
        return None
    return _ramp_length_s(load, stop.sessions or stop.requests, warmup.requests)


def _ramp_length_s(load: Load, planned: int | None, extra: int) -> float:
    """A ramp that ends after n requests lasts as long as those take: n = L (r0 + r1) / 2."""
    if planned is None:
        raise PlanError("load: a ramp needs an end, got neither stop.duration nor stop.requests")
    assert load.rate is not None and load.to is not None
    return 2 * (planned + extra) / (load.rate + load.to)


def stretches(load: Load, duration_s: float | None = None) -> list[Stretch]:
    """The stages of an open-loop load, cut at `duration_s`."""
    if not load.open_loop or load.type == "replay":
        raise ValueError(f"a load of type {load.type} has no arrivals of its own")
    end_s = math.inf if duration_s is None else duration_s
    if load.type == "stages":
        return _stages(load, end_s)
    assert load.rate is not None
    if load.type == "ramp":
        if duration_s is None:
            raise PlanError("load: a ramp needs an end, got no duration")
        assert load.to is not None
        return [Stretch(0, 0.0, duration_s, load.rate, load.to, "poisson")]
    return [Stretch(0, 0.0, end_s, load.rate, load.rate, load.type, load.cv)]


def _stages(load: Load, end_s: float) -> list[Stretch]:
    parts, begins_s = [], 0.0
    for number, stage in enumerate(load.stages):
        if begins_s >= end_s:
            break
        rate = stage.rate or 0.0
        to = rate if stage.to is None else stage.to
        length = min(stage.duration, end_s - begins_s)
        to = rate + (to - rate) * length / stage.duration  # a ramp that is cut short keeps its slope
        parts.append(Stretch(number, begins_s, length, rate, to, stage.process, stage.cv))
        begins_s += stage.duration
    return parts


def blocks(loads: list[Stretch], seed: int, traffic: int = 0) -> Iterator[ArrivalBlock]:
    """All arrivals in order. Each stage has its own random stream and starts from zero when it begins."""
    first = 0
    for stretch in loads:
        draw = generator(seed, traffic, stretch.stage)
        for at in _stretch_blocks(stretch, draw):
            yield ArrivalBlock(first, at, stretch.stage)
            first += len(at)


def generator(seed: int, traffic: int, stage: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed % 2**64, traffic, PURPOSE, stage])))


def shard_of(at: Ints, first: int, shard: int, shards: int) -> Ints:
    """The arrivals with index shard, shard + shards, ... of a block whose first arrival has index `first`."""
    return at[(shard - first) % shards :: shards]


def _stretch_blocks(stretch: Stretch, draw: np.random.Generator) -> Iterator[Ints]:
    begins = round(stretch.begins_s * NANOSECONDS)
    ends = stretch.length_s * NANOSECONDS
    if stretch.expected == 0:  # a pause
        return
    for sums in _sums(stretch, draw):
        after_ns = np.rint(_inverse(stretch, sums) * NANOSECONDS)
        inside = after_ns[: int(np.searchsorted(after_ns, ends))]
        if len(inside):
            yield inside.astype(np.int64) + begins
        if len(inside) < len(sums):
            return


def _sums(stretch: Stretch, draw: np.random.Generator) -> Iterator[Floats]:
    """S(n) in blocks, without end. A constant process starts with an arrival at 0, the others with a gap."""
    if stretch.process == "constant":
        for first in range(0, 2**62, BLOCK):
            yield np.arange(first, first + BLOCK, dtype=np.float64)
    so_far = 0.0
    while True:
        gaps = _gaps(stretch, draw)
        gaps[0] += so_far
        sums = np.cumsum(gaps)
        so_far = float(sums[-1])
        yield sums


def _gaps(stretch: Stretch, draw: np.random.Generator) -> Floats:
    """Gaps of mean 1; a gamma distribution of shape k = 1 / cv^2 and scale 1 / k has coefficient of variation cv."""
    if stretch.process == "poisson":
        return draw.standard_exponential(BLOCK)
    shape = 1 / stretch.cv**2
    return draw.standard_gamma(shape, BLOCK) / shape


def _inverse(stretch: Stretch, sums: Floats) -> Floats:
    """R^-1: the root of r0 t + a t^2 / 2 = s, a = (r1 - r0) / L, as 2 s / (r0 + sqrt(r0^2 + 2 a s)), which is
    numerically stable for small a. Sums that the rate never reaches map to infinity."""
    r0 = stretch.rate_per_s
    slope = 0.0 if math.isinf(stretch.length_s) else (stretch.to_per_s - r0) / stretch.length_s
    if slope == 0:
        return sums / r0
    square = np.maximum(r0**2 + 2 * slope * sums, 0.0)
    below = r0 + np.sqrt(square)
    at_s = np.divide(2 * sums, below, out=np.zeros_like(sums), where=below > 0)
    at_s[sums > stretch.expected] = np.inf
    return at_s


@dataclass(frozen=True, slots=True)
class Cancelling:
    """Requests that are cancelled on purpose: a given time after they were sent, or after a given number of tokens."""

    share: float
    after_ns: int | None
    after_tokens: int | None
    draws: Draws

    def chosen(self, session: int, turn: int) -> bool:
        """Depends only on session and turn, so the same requests are chosen for any number of shards."""
        return bool(self.draws.uniforms(Purpose.CANCEL, session, turn, 1)[0] < self.share)


@dataclass(frozen=True, slots=True)
class Pace:
    """When sessions start: by `arrivals` (open loop) or whenever fewer than `slots` requests are in flight.

    Each entry of `slots` sets the cap from an instant on: (ns after the start, requests in flight, stage); no entries
    mean no cap.
    """

    arrivals: Iterator[Arrival] | None
    indices: Iterator[int]  # sessions of a closed loop
    slots: tuple[tuple[int, int, int], ...] = ()
    ends_ns: int | None = None  # nothing is scheduled after this time
    requests: int | None = None  # no new session after this many requests after the warm-up
    sessions: int | None = None  # no new session after this many sessions after it
    warmup_requests: int = 0
    warmup_ns: int = 0
    sessions_at_once: int | None = None
    in_turn: bool = False  # all sessions start before the second turn of any, and think time keeps the slot
    whole_sessions: bool = True  # False: the last request ends the load, even within a session
    tape: int | None = None  # the sessions repeat after this many: the first pass is warm-up
    speed: float | None = None  # in a replay: turns are sent at their recorded times, sped up by this factor
    cancel: Cancelling | None = None

    @property
    def most_sessions(self) -> int | None:
        """The maximum number of sessions, if the load ends after a number of sessions or requests."""
        ends = [count for count in (self.requests, self.sessions) if count is not None]
        return min(ends) + self.warmup_requests if ends else None


def pace_of(plan: Plan, number: int, shard: int = 0, shards: int = 1, workload: Workload | None = None) -> Pace:
    """The pace of the traffic class with this number, for one shard. A workload that is sent only once limits it."""
    traffic = plan.classes[number]
    load, stop = traffic.load, traffic.stop
    length = length_s(load, stop, plan.warmup)
    warm = warmup_sessions(plan, number)
    most = len(workload) if traffic.workload.is_finite and isinstance(workload, Sized) else None
    arrivals = iter(arrivals_of(plan, number, shard, shards)) if load.open_loop else None
    return Pace(
        arrivals=arrivals if arrivals is None or most is None else takewhile(lambda at: at[0] < most, arrivals),
        indices=count(shard, shards) if most is None else iter(range(shard, most, shards)),
        slots=_slots(traffic, shard, shards),
        ends_ns=None if length is None else round(length * NANOSECONDS),
        requests=_share_between(warm, stop.requests, shard, shards),
        sessions=_share_between(warm, stop.sessions, shard, shards),
        warmup_requests=warm,
        warmup_ns=round(plan.warmup.duration * NANOSECONDS),
        sessions_at_once=None if load.sessions_at_once is None else share(load.sessions_at_once, shard, shards),
        in_turn=load.in_turn,
        whole_sessions=stop.whole_sessions,
        tape=plan.warmup.requests if plan.warmup.tape else None,
        speed=load.speed if load.type == "replay" else None,
        cancel=None if load.cancel is None else _cancelling(load.cancel, Draws(plan.seed, traffic.draw)),
    )


def _cancelling(cancel: Cancel, draws: Draws) -> Cancelling:
    after_ns = None if cancel.after is None else round(cancel.after * NANOSECONDS)
    return Cancelling(cancel.share, after_ns, cancel.after_tokens, draws)


def arrivals_of(plan: Plan, number: int, shard: int = 0, shards: int = 1) -> Arrivals | Replay:
    """When the sessions of an open-loop class start, for one shard."""
    traffic = plan.classes[number]
    length = length_s(traffic.load, traffic.stop, plan.warmup)
    if traffic.load.type != "replay":
        return Arrivals(traffic.load, plan.seed, traffic.draw, shard, shards, length)
    at = replay_starts(traffic)
    within = at if length is None else at[: int(np.searchsorted(at, length * NANOSECONDS))]
    return Replay(within, shard, shards)


def replay_starts(traffic: Traffic) -> Ints:
    """When the recorded sessions of a class start, in nanoseconds after the start of the load."""
    assert isinstance(traffic.workload, TraceFile)
    from inferometer.workload.traces import recording_of  # reads files, which most loads do not need

    return replayed(recording_of(traffic.workload).starts, traffic.load.speed)


def warmup_sessions(plan: Plan, number: int) -> int:
    """The number of warm-up sessions of a class; in an open loop a warm-up duration is converted to a number too, so
    that all shards leave out the same sessions."""
    traffic, warmup = plan.classes[number], plan.warmup
    if not traffic.load.open_loop or not warmup.duration:
        return warmup.requests
    limit_ns, sessions = round(warmup.duration * NANOSECONDS), 0
    if traffic.load.type == "replay":
        return max(warmup.requests, int(np.searchsorted(replay_starts(traffic), limit_ns)))
    for block in blocks(stretches(traffic.load, length_s(traffic.load, traffic.stop, warmup)), plan.seed, traffic.draw):
        inside = int(np.searchsorted(block.at, limit_ns))
        sessions += inside
        if inside < len(block.at):
            break
    return max(warmup.requests, sessions)


def share(whole: int, shard: int, shards: int) -> int:
    """The share of worker i of k; also how many of the first `whole` indices belong to it."""
    return whole // shards + (shard < whole % shards)


def _share_between(first: int, length: int | None, shard: int, shards: int) -> int | None:
    """How many of the indices from `first` on belong to this shard, so that all shards together have `length`."""
    return None if length is None else share(first + length, shard, shards) - share(first, shard, shards)


def _slots(traffic: Traffic, shard: int, shards: int) -> tuple[tuple[int, int, int], ...]:
    load = traffic.load
    if load.open_loop:
        cap = load.max_concurrency
        return () if cap is None else ((0, share(cap, shard, shards), 0),)
    if load.type == "concurrency":
        assert load.concurrency is not None
        return ((0, share(load.concurrency, shard, shards), 0),)
    slots, after_s = [], 0.0
    for number, stage in enumerate(load.stages):
        assert stage.concurrency is not None
        slots.append((round(after_s * NANOSECONDS), share(stage.concurrency, shard, shards), number))
        after_s += stage.duration
    return tuple(slots)
