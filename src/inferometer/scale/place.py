"""Where shards run, as one interface: start these jobs, report their progress, return their reports. Each place is a
module of its own, found by its name in `PLACES` and imported on use.

A place brings `function` and a job together on some host, in a process that can import Inferometer, and hands back what
it returns. A job is plain data. A place lets the shards wait for each other and passes a `Start` that says when to
begin, on the clock of the shard's host; jobs without a driver carry the instant themselves (`ShardJob.start_at`).
Logs end up where the job names them, on the clocks of the hosts that wrote them; a place with several hosts leaves
with readings of their clocks, and `record.gather` brings them together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from inferometer.errors import PlanError
from inferometer.plan.model import Lengths, Load, Plan, Traffic
from inferometer.record.environment import Curve
from inferometer.scale.frames import Start, Watch
from inferometer.vocabulary import attribute_at, number_text

Job = TypeVar("Job")
Report = TypeVar("Report")

LOCAL = "local"
PLACES = {
    LOCAL: "inferometer.scale.processes:run_shards",
    "ray": "inferometer.scale.ray_place:run_shards",
    "kubernetes": "inferometer.scale.kubernetes.place:run_shards",
}


@dataclass(frozen=True, slots=True)
class LostShard:
    """A shard that ended without a report; what its log has is valid."""

    shard: int
    why: str
    host: str | None = None  # where it ran, if elsewhere


@dataclass(frozen=True, slots=True)
class ShardsEnd(Generic[Report]):
    """What became of the shards: a report of each, in order, but for those that were lost."""

    reports: list[Report]
    lost: list[LostShard] = field(default_factory=list)


class RunShards(Protocol):
    """What a place is: it runs one shard per job to its end. `function` is importable by its name and calls its `Start`
    when its connections stand. `plan` has the settings of the place."""

    def __call__(
        self,
        function: Callable[[Job, Watch, Start], Report],
        jobs: Sequence[Job],
        watch: Watch,
        plan: Plan | None = None,
    ) -> ShardsEnd[Report]: ...


def place_named(name: str = LOCAL) -> RunShards:
    if name not in PLACES:
        raise PlanError(f"unknown place for shards: {name!r}", f"there are {', '.join(PLACES)}")
    place: RunShards = attribute_at(PLACES[name])
    return place


USED = 0.5  # of the ceiling: at half of it reads are still stamped in time
STREAM_EVENTS_PER_S = 100.0  # of an answer under way in a closed loop, whose pace only the server knows
USUAL_TOKENS = 256.0  # of an answer whose length the plan does not set
MOST_STREAMS = 1024  # of one worker: what calibrations try


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """The number, and what it follows from."""

    workers: int
    why: str


def expected_events_per_s(plan: Plan) -> float:
    """At the busiest: of an open loop its largest rate times the tokens of an answer, of a closed one its streams times
    a usual pace; one event per request where nothing is streamed."""
    return sum(_events_per_s(traffic, plan.target.stream) for traffic in plan.classes)


def workers_for(plan: Plan, curve: Curve | None, cores: int | None) -> WorkerCount:
    """At most one per core, where the cores are known, and no more than there are slots to share."""
    events, streams = expected_events_per_s(plan), sum(_streams(traffic.load) for traffic in plan.classes)
    ceiling = curve.ceiling_events_per_s if curve else None
    needed = math.ceil(events / (USED * ceiling)) if ceiling else 1
    needed = max(needed, math.ceil(streams / MOST_STREAMS), 1)
    bounds = [bound for bound in (cores, *_slots(plan)) if bound is not None]
    number = min([needed, *bounds])
    known = f"one keeps up with {number_text(ceiling)}" if ceiling else "this machine is not calibrated"
    short = f"; {needed} would be needed, there are {number} cores or slots" if number < needed else ""
    return WorkerCount(number, f"about {number_text(events)} events/s are expected, {known}{short}")


def _events_per_s(traffic: Traffic, stream: bool) -> float:
    tokens = (traffic.workload.mean_output or USUAL_TOKENS) if stream else 1.0
    rate, slots = _most_rate(traffic.load), _streams(traffic.load)
    turns = getattr(traffic.workload, "turns", None)
    by_rate = rate * tokens * ((turns.mean_value or 1.0) if isinstance(turns, Lengths) else 1.0)
    if rate and slots:
        return min(by_rate, slots * STREAM_EVENTS_PER_S)
    return by_rate or slots * (STREAM_EVENTS_PER_S if stream else 1.0)


def _most_rate(load: Load) -> float:
    return max(load.rate or 0.0, load.to or 0.0, *(max(stage.rate or 0.0, stage.to or 0.0) for stage in load.stages), 0)


def _streams(load: Load) -> int:
    """Requests in flight where the plan bounds them."""
    capped = load.concurrency or load.max_concurrency or 0
    return max(capped, *(stage.concurrency or 0 for stage in load.stages), 0)


def _slots(plan: Plan) -> list[int]:
    """What has to be shared: no worker may be left without any."""
    loads = [traffic.load for traffic in plan.classes]
    shared = [slots for load in loads for slots in (load.concurrency, load.max_concurrency, load.sessions_at_once)]
    staged = [stage.concurrency for load in loads for stage in load.stages]
    return [slots for slots in (*shared, *staged) if slots is not None]
