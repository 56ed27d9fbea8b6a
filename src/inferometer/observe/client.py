"""The load generator watched by itself: a busy core or a process that is often pushed aside makes doubtful numbers."""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inferometer.record.sample import Sample

SOURCE = "client"
_STATM = Path("/proc/self/statm")
LEAST_NS = 100_000_000  # a share of less time tells of one piece of work, not of how busy the process is
_KIB = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there


@dataclass(frozen=True, slots=True)
class _Usage:
    """What the process had used up to an instant."""

    at: int
    cpu_s: float
    waits: int  # voluntary context switches: it had nothing to do
    pushed_aside: int  # involuntary ones: it had, and another process got the core


class ClientSampler:
    """Samples of our own process, each over the time since the one before. Costs about 20 us; once a second or two
    is enough. `lag_s` is asked for the worst lateness of the loop since it was last asked, where one is offered."""

    def __init__(self, shard: int = 0, lag_s: Callable[[], float | None] | None = None) -> None:
        self._labels = {"shard": str(shard)}
        self._lag_s = lag_s
        self.begin()

    def begin(self) -> None:
        """The load begins now: what was used to get ready is no part of it."""
        self._before = _usage(time.monotonic_ns())

    def sample(self, at: int) -> list[Sample]:
        """At least 100 ms after the one before, else nothing is returned and the next sample covers this time too."""
        before = self._before
        if at - before.at < LEAST_NS:
            return []
        self._before = usage = _usage(at)
        wall_s = (usage.at - before.at) / 1e9
        values = {
            "cpu_share": (usage.cpu_s - before.cpu_s) / wall_s,  # of one core
            "waits_per_s": (usage.waits - before.waits) / wall_s,
            "pushed_aside_per_s": (usage.pushed_aside - before.pushed_aside) / wall_s,
            "memory_bytes": float(memory_bytes()),
        }
        lag_s = self._lag_s() if self._lag_s is not None else None
        if lag_s is not None:
            values["lag_s"] = lag_s
        return [Sample(SOURCE, name, at, value, self._labels) for name, value in values.items()]

    __call__ = sample


def _usage(at: int) -> _Usage:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return _Usage(at, used.ru_utime + used.ru_stime, used.ru_nvcsw, used.ru_nivcsw)


def memory_bytes() -> int:
    """Memory of this process now; at its peak where the system tells no more."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
