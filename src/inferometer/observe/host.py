"""The machine that the load runs on, from /proc: how busy it was, and what its hypervisor took away."""

import time
from pathlib import Path

from inferometer.measure.telemetry import HOST
from inferometer.record.sample import Sample

_BUSY = ("user", "nice", "system", "irq", "softirq")
_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # of /proc/stat, in its order


class HostSampler:
    """Shares and rates cover the time since the sample before; the first one has none of them. What the system does
    not tell (no /proc, or one that is empty) is not sampled."""

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
        """Nothing is held."""

    def _counts(self) -> dict[str, float]:
        """What only grows."""
        return self._cpu() | self._network() | self._tcp() | self._pressure()

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""

    def _cpu(self) -> dict[str, float]:
        words = self._text("stat").partition("\n")[0].split()
        if not words or words[0] != "cpu":
            return {}
        return {name: float(ticks) for name, ticks in zip(_FIELDS, words[1:], strict=False)}

    def _network(self) -> dict[str, float]:
        """All interfaces but loopback."""
        rows = [line.partition(":") for line in self._text("net/dev").splitlines()[2:]]
        fields = [rest.split() for name, _, rest in rows if name.strip() != "lo"]
        fields = [each for each in fields if len(each) > 8]
        if not fields:
            return {}
        return {"received": sum(float(each[0]) for each in fields), "sent": sum(float(each[8]) for each in fields)}

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
        kib = {words[0].rstrip(":"): float(words[1]) for words in lines if len(words) > 1}
        names = {"MemTotal": "memory_total_bytes", "MemAvailable": "memory_available_bytes"}
        return {ours: kib[name] * 1024 for name, ours in names.items() if name in kib}

    def _load(self) -> dict[str, float]:
        words = self._text("loadavg").split()
        return {"load_1min": float(words[0])} if words else {}


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
