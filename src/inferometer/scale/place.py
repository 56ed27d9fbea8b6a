"""Where shards run, as one interface: start these jobs, tell their progress, give their reports. Each place is a module
of its own, found by its name in `PLACES` and imported on use.

A place brings `function` and a job together on some host, in a process that can import Inferometer, and hands back what
it returns. A job is plain data. A place lets the shards wait for each other and passes a `Start` that says when to
begin, on the clock of the shard's host; jobs that nobody drives carry the instant themselves (`ShardJob.start_at`).
Logs end up where the job names them, on the clocks of the hosts that wrote them; a place with several hosts leaves
readings of their clocks beside them, and `record.gather` brings them together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from inferometer.errors import PlanError
from inferometer.plan.model import Plan
from inferometer.scale.frames import Start, Watch
from inferometer.vocabulary import attribute_at

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
        raise PlanError(f"no place {name!r} to run shards at", f"there are {', '.join(PLACES)}")
    place: RunShards = attribute_at(PLACES[name])
    return place
