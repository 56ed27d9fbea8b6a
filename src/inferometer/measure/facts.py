"""`Facts`: what is known of a run beside its plan and records; every one of them may be missing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Facts:
    """Instants are nanoseconds on the records' clock; mappings go by the name of the traffic class."""

    start_at: int | None = None  # when the load began
    warmup_end_at: int | None = None
    stage_ends_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    last_arrival_at: Mapping[str, int] = field(default_factory=dict)  # as planned
    planned: Mapping[str, int] = field(default_factory=dict)  # sessions that were to arrive in an open loop
    interrupted: bool = False
    cpu_shares: tuple[float, ...] = ()  # samples of the busiest load process: CPU seconds per second
    clock_steps_s: tuple[float, ...] = ()  # by how much the real-time clock stepped, each time it did
    calibration: Mapping[str, Any] | None = None  # the instrument-error curve of this machine
    stamps: Literal["kernel", "read"] = "read"
