"""How fast one shard may go: a plan's load and stop rules, reduced to the share of worker i of k."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from inferometer.load.arrivals import Arrival, Arrivals, length_s
from inferometer.plan.model import Plan, Traffic
from inferometer.vocabulary import NANOSECONDS


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


def pace_of(plan: Plan, number: int, shard: int = 0, shards: int = 1) -> Pace:
    """The pace of the traffic class with this number, for one shard."""
    traffic = plan.classes[number]
    load, stop = traffic.load, traffic.stop
    length = length_s(load, stop, plan.warmup)
    warm = plan.warmup.requests
    return Pace(
        arrivals=iter(Arrivals(load, plan.seed, number, shard, shards, length)) if load.open_loop else None,
        indices=count(shard, shards),
        slots=_slots(traffic, shard, shards),
        ends_ns=None if length is None else round(length * NANOSECONDS),
        requests=_share_between(warm, stop.requests, shard, shards),
        sessions=_share_between(warm, stop.sessions, shard, shards),
        warmup_requests=warm,
        warmup_ns=round(plan.warmup.duration * NANOSECONDS),
    )


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
