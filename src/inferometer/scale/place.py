"""The interface of the places where shards run: start these jobs, report their progress, return their reports. Each
place is a separate module, listed by name in `PLACES` and imported on use.

A place runs `function` with a job on some host, in a process that can import Inferometer, and returns the result. A job
is plain data. A place lets the shards wait for each other and passes a `Start` that gives the start time on the clock
of the shard's host; jobs without a driver contain the time themselves (`ShardJob.start_at`). Logs are written to the
path in the job, with the clocks of the hosts that wrote them; a place with several hosts adds readings of their clocks,
and `record.gather` merges the logs.
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
    """A shard that ended without a report; the records in its log are valid."""

    shard: int
    why: str
    host: str | None = None  # where it ran, if elsewhere


@dataclass(frozen=True, slots=True)
class ShardsEnd(Generic[Report]):
    """The results of all shards: their reports in order, and the lost shards."""

    reports: list[Report]
    lost: list[LostShard] = field(default_factory=list)


class RunShards(Protocol):
    """The function of a place: runs one shard per job to its end. `function` is importable by its name and calls its
    `Start` when its connections are open. `plan` has the settings of the place."""

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


USED = 0.5  # of the ceiling: at half of it, reads are still timestamped in time
STREAM_EVENTS_PER_S = 100.0  # assumed per stream of a closed loop, whose pace depends on the server
USUAL_TOKENS = 256.0  # assumed length of an answer if the plan sets none
MOST_STREAMS = 1024  # of one worker: the maximum that calibrations test


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """The number of workers, and the reason for it."""

    workers: int
    why: str


def expected_events_per_s(plan: Plan) -> float:
    """The peak rate of events: for an open loop the largest rate times the tokens of an answer, for a closed loop the
    streams times a typical pace; one event per request without streaming."""
    return sum(_events_per_s(traffic, plan.target.stream) for traffic in plan.classes)


def workers_for(plan: Plan, curve: Curve | None, cores: int | None) -> WorkerCount:
    """The number of workers: at most one per core, if the cores are known, and at most the number of slots."""
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
    """The limit of requests in flight, if the plan has one."""
    capped = load.concurrency or load.max_concurrency or 0
    return max(capped, *(stage.concurrency or 0 for stage in load.stages), 0)


def _slots(plan: Plan) -> list[int]:
    """The number of slots to share: every worker needs one."""
    loads = [traffic.load for traffic in plan.classes]
    shared = [slots for load in loads for slots in (load.concurrency, load.max_concurrency, load.sessions_at_once)]
    staged = [stage.concurrency for load in loads for stage in load.stages]
    return [slots for slots in (*shared, *staged) if slots is not None]
