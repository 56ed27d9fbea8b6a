"""`Facts`: what is known of a run apart from its plan and records; every one of them may be missing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from inferometer.record.calibration import Curve
from inferometer.record.summary import Clocks, Goal


class CoreUse(NamedTuple):
    """A sample of a load process: the CPU seconds it used per second, over how many seconds."""

    share: float
    over_s: float
    shard: str = "0"


class WorkerFacts(NamedTuple):
    """What is known of one worker: when it began, and how it was lost, if it was."""

    worker: int
    late_start_s: float = 0.0
    host: str | None = None
    lost: str | None = None
    planned: Mapping[str, int] = MappingProxyType({})  # of a lost one: sessions of its share, by traffic class


@dataclass(frozen=True, slots=True)
class Facts:
    """Instants are nanoseconds on the records' clock; mappings go by the name of the traffic class."""

    start_at: int | None = None  # when the load began
    warmup_end_at: int | None = None
    stage_ends_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    last_arrival_at: Mapping[str, int] = field(default_factory=dict)  # as planned
    planned: Mapping[str, int] = field(default_factory=dict)  # sessions that were to arrive in an open loop
    interrupted: bool = False
    interrupted_by: str | None = None  # the name of the signal
    lost_workers: tuple[str, ...] = ()  # which, and how they ended
    workers: tuple[WorkerFacts, ...] = ()  # all that began, and those that were lost
    clocks: Clocks | None = None  # of workers on several hosts
    lost_server: str | None = None  # how it is known that the server did not outlive the load
    goals: Mapping[str, Goal] = field(default_factory=dict)  # classes that ended because theirs was reached
    gave_up: str | None = None  # why the run ended itself early: stop.errors, or nothing but failures
    core_use: tuple[CoreUse, ...] = ()  # of all load processes
    unreadable: int = 0  # entries of the logs that could not be read and are missing here
    clock_steps_s: tuple[float, ...] = ()  # by how much the real-time clock stepped, each time it did
    calibration: Curve | None = None  # the instrument-error curve of this machine
    stamps: Literal["kernel", "read"] = "read"

    @property
    def cut_short(self) -> bool:
        """Whether less was sent than the plan asks for, and we know why."""
        return self.interrupted or self.gave_up is not None or bool(self.lost_workers) or self.lost_server is not None
