"""The machine that sends the load, from /proc, and the load generator's own process: how busy they were, and how much
CPU time the hypervisor took."""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inferometer.measure.telemetry import HOST
from inferometer.record.record import Sample

# -- host ------------------------------------------------------------------------------------------------------------

_BUSY = ("user", "nice", "system", "irq", "softirq")
_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # of /proc/stat, in its order


class HostSampler:
    """Shares and rates cover the time since the previous sample; the first one has none of them. Values that the system
    does not report (no /proc, or an empty one) are not sampled."""

    source = HOST

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before: tuple[int, dict[str, float]] | None = None

    def read(self) -> list[Sample]:
        at = time.monotonic_ns()
        counts = self._counts()
        values = self._memory() | self._load()
        if self._before is not None and at > self._before[0]:
            values |= _since(self._before[1], counts, (at - self._before[0]) / 1e9)
        self._before = (at, counts)
        return [Sample(HOST, name, at, value) for name, value in values.items()]

    def close(self) -> None:
        """Nothing to release."""

    def _counts(self) -> dict[str, float]:
        """Values that only increase."""
        return self._cpu() | self._network() | self._tcp() | self._pressure()

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""

    def _cpu(self) -> dict[str, float]:
        fields = self._text("stat").partition("\n")[0].split()
        if not fields or fields[0] != "cpu":
            return {}
        return {name: float(ticks) for name, ticks in zip(_FIELDS, fields[1:], strict=False)}

    def _network(self) -> dict[str, float]:
        """All interfaces except loopback."""
        rows = [line.partition(":") for line in self._text("net/dev").splitlines()[2:]]
        fields = [rest.split() for name, _, rest in rows if name.strip() != "lo"]
        fields = [counters for counters in fields if len(counters) > 8]
        if not fields:
            return {}
        return {
            "received": sum(float(counters[0]) for counters in fields),
            "sent": sum(float(counters[8]) for counters in fields),
        }

    def _tcp(self) -> dict[str, float]:
        lines = [line.split() for line in self._text("net/snmp").splitlines() if line.startswith("Tcp:")]
        if len(lines) != 2 or "RetransSegs" not in lines[0]:
            return {}
        return {"retransmitted": float(lines[1][lines[0].index("RetransSegs")])}

    def _pressure(self) -> dict[str, float]:
        """Microseconds in which some process waited for a core."""
        for line in self._text("pressure/cpu").splitlines():
            if line.startswith("some ") and "total=" in line:
                return {"waited_us": float(line.rpartition("total=")[2])}
        return {}

    def _memory(self) -> dict[str, float]:
        lines = (line.split() for line in self._text("meminfo").splitlines())
        kib = {fields[0].rstrip(":"): float(fields[1]) for fields in lines if len(fields) > 1}
        names = {"MemTotal": "memory_total_bytes", "MemAvailable": "memory_available_bytes"}
        return {ours: kib[name] * 1024 for name, ours in names.items() if name in kib}

    def _load(self) -> dict[str, float]:
        fields = self._text("loadavg").split()
        return {"load_1min": float(fields[0])} if fields else {}


def _since(before: dict[str, float], now: dict[str, float], span_s: float) -> dict[str, float]:
    grown = {name: max(0.0, now[name] - before[name]) for name in now if name in before}
    values = {}
    ticks = sum(grown.get(name, 0.0) for name in _FIELDS)
    if ticks > 0:
        values["cpu_share"] = sum(grown.get(name, 0.0) for name in _BUSY) / ticks  # of all cores
        values["steal_share"] = grown.get("steal", 0.0) / ticks
    if "waited_us" in grown:
        values["cpu_pressure_share"] = min(1.0, grown["waited_us"] / 1e6 / span_s)
    rates = {"received": "received_bytes", "sent": "sent_bytes", "retransmitted": "retransmitted_segments"}
    values |= {f"{ours}_per_s": grown[name] / span_s for name, ours in rates.items() if name in grown}
    return values


# -- client ----------------------------------------------------------------------------------------------------------

SOURCE = "client"
_STATM = Path("/proc/self/statm")
LEAST_NS = 100_000_000  # the share over less time shows a single piece of work, not how busy the process is
_KIB = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there


@dataclass(frozen=True, slots=True)
class _Usage:
    """The resources that the process had used up to an instant."""

    at: int
    cpu_s: float
    waits: int  # voluntary context switches: it had nothing to do
    pushed_aside: int  # involuntary ones: it had work, and another process got the core


class ClientSampler:
    """Samples of our own process, each over the time since the previous one. A sample costs about 20 us; once a second
    or two is enough. `lag_s`, if given, returns the largest lateness of the loop since its last call."""

    def __init__(self, shard: int = 0, lag_s: Callable[[], float | None] | None = None) -> None:
        self._labels = {"shard": str(shard)}
        self._lag_s = lag_s
        self.begin()

    def begin(self) -> None:
        """The load starts now: resources used for the preparation are excluded."""
        self._before = _usage(time.monotonic_ns())

    def sample(self, at: int) -> list[Sample]:
        """At least 100 ms after the previous one; otherwise nothing is returned and the next sample covers this time
        too."""
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
    """Memory of this process now, or at its peak if the system reports only that."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
