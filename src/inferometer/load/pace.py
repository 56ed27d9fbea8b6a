"""How fast one shard may go: a plan's load and stop rules, reduced to the share of worker i of k."""

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from inferometer.load.arrivals import Arrival, Arrivals, Ints, Replay, blocks, length_s, replayed, stretches
from inferometer.plan.load import Cancel
from inferometer.plan.model import Plan, Traffic
from inferometer.plan.workloads import TraceFile
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.draws import Draws, Purpose
from inferometer.workload.session import Workload


@dataclass(frozen=True, slots=True)
class Cancelling:
    """Requests that are ended on purpose: a time after they were sent, or when so many tokens have come."""

    share: float
    after_ns: int | None
    after_tokens: int | None
    draws: Draws

    def chosen(self, session: int, turn: int) -> bool:
        """The same requests for every number of shards: by session and turn alone."""
        return bool(self.draws.uniforms(Purpose.CANCEL, session, turn, 1)[0] < self.share)


@dataclass(frozen=True, slots=True)
class Pace:
    """When sessions start: by `arrivals` (open loop) or whenever fewer than `slots` requests are in flight.

    `slots` gives the cap from an instant on: (ns after the start, requests in flight, stage); none is no cap.
    """

    arrivals: Iterator[Arrival] | None
    indices: Iterator[int]  # sessions of a closed loop
    slots: tuple[tuple[int, int, int], ...] = ()
    ends_ns: int | None = None  # nothing new is scheduled after so long
    requests: int | None = None  # no new session after so many requests behind the warm-up
    sessions: int | None = None  # nor after so many sessions behind it
    warmup_requests: int = 0
    warmup_ns: int = 0
    sessions_at_once: int | None = None
    tape: int | None = None  # after so many sessions the same come again: the first time is warm-up
    speed: float | None = None  # in a replay: turns come at their recorded times, so many times as fast
    cancel: Cancelling | None = None

    @property
    def most_sessions(self) -> int | None:
        """How many sessions may begin, where a count ends the load."""
        ends = [count for count in (self.requests, self.sessions) if count is not None]
        return min(ends) + self.warmup_requests if ends else None


def pace_of(plan: Plan, number: int, shard: int = 0, shards: int = 1, workload: Workload | None = None) -> Pace:
    """The pace of the traffic class with this number, for one shard. A workload that is sent once ends it."""
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
        tape=plan.warmup.requests if plan.warmup.tape else None,
        speed=load.speed if load.type == "replay" else None,
        cancel=None if load.cancel is None else _cancelling(load.cancel, Draws(plan.seed, traffic.draw)),
    )


def _cancelling(cancel: Cancel, draws: Draws) -> Cancelling:
    after_ns = None if cancel.after is None else round(cancel.after * NANOSECONDS)
    return Cancelling(cancel.share, after_ns, cancel.after_tokens, draws)


def arrivals_of(plan: Plan, number: int, shard: int = 0, shards: int = 1) -> Arrivals | Replay:
    """When the sessions of an open-loop class begin, for one shard."""
    traffic = plan.classes[number]
    length = length_s(traffic.load, traffic.stop, plan.warmup)
    if traffic.load.type != "replay":
        return Arrivals(traffic.load, plan.seed, traffic.draw, shard, shards, length)
    at = replay_starts(traffic)
    within = at if length is None else at[: int(np.searchsorted(at, length * NANOSECONDS))]
    return Replay(within, shard, shards)


def replay_starts(traffic: Traffic) -> Ints:
    """When the recorded sessions of a class begin, in nanoseconds after the start."""
    assert isinstance(traffic.workload, TraceFile)
    from inferometer.workload.recording import recording_of  # readers of files, which most loads do without

    return replayed(recording_of(traffic.workload).starts, traffic.load.speed)


def warmup_sessions(plan: Plan, number: int) -> int:
    """The sessions of a class that are warm-up by their number; in an open loop its time is turned into one too,
    so that all shards leave out the same ones."""
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
    """What worker i of k gets: also how many of the first `whole` indices are its own."""
    return whole // shards + (shard < whole % shards)


def _share_between(first: int, length: int | None, shard: int, shards: int) -> int | None:
    """How many of the indices from `first` on are this shard's, so that the shards together have `length`."""
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
