"""What the GPUs and the load generator's machine did during the load, and the energy spent per token."""

from collections.abc import Callable
from typing import Any

import numpy as np

from inferometer.measure.telemetry import GPU, HOST, NOT_THROTTLING, throttle_reasons
from inferometer.record.columns import Floats, Ints
from inferometer.record.record import Samples
from inferometer.record.summary import OPEN, Energy, GpusSummary, GpuSummary, HostSummary, Sampled, Value
from inferometer.vocabulary import NANOSECONDS, duration_text, percent_text

# -- gpu -------------------------------------------------------------------------------------------------------------

LONGEST_GAP_S = 3.0  # between two samples of power: beyond it the values in between are unknown
_DESCRIBED = {
    "memory_used_bytes": "bytes",
    "utilization_share": "share",
    "memory_utilization_share": "share",
    "power_w": "W",
    "sm_clock_hz": "Hz",
    "memory_clock_hz": "Hz",
    "temperature_c": "°C",
}

Series = tuple[Ints, Floats]


def gpu_summary(samples: Samples, start_at: int, end_at: int) -> GpusSummary | None:
    """Every GPU from start to end; None if none was sampled. If an exporter named in the plan reports GPUs, those of
    this machine are not counted as well: they may be the same."""
    names = (name for name in samples.source.counts() if name is not None)
    sampled = [name for name in names if name.startswith(GPU)]
    sources = sorted(
        [name for name in sampled if _host(name)] or sampled, key=lambda name: (_host(name) or "", _index(name))
    )
    if not sources:
        return None
    own = samples.by_source()
    gpus = [_gpu(own[source], source, start_at, end_at) for source in sources]
    return GpusSummary(
        gpus=gpus, window_s=(end_at - start_at) / NANOSECONDS, energy=_together([gpu.energy for gpu in gpus])
    )


def _index(source: str) -> int:
    """The index in `gpu:0`, or in `gpu:0@node-1` for a host that an exporter names."""
    number = source.removeprefix(GPU).partition("@")[0]
    return int(number) if number.isdigit() else 0


def _host(source: str) -> str | None:
    return source.partition("@")[2] or None


def _gpu(samples: Samples, source: str, start_at: int, end_at: int) -> GpuSummary:
    described = {name: _sampled(samples.series(name), unit, start_at, end_at) for name, unit in _DESCRIBED.items()}
    _, total = samples.series("memory_total_bytes")
    return GpuSummary(
        index=_index(source),
        host=_host(source),
        samples=max((n for n, _ in described.values()), default=0),
        **{name: sampled for name, (_, sampled) in described.items()},
        memory_total_bytes=float(total[-1]) if len(total) else None,
        throttled=_throttled(samples.series("throttle_reasons"), start_at, end_at),
        energy=energy(samples.series("energy_j"), samples.series("power_w"), start_at, end_at),
    )


def _sampled(series: Series, unit: str, start_at: int, end_at: int) -> tuple[int, Sampled | None]:
    """How many samples lie in the window, and their statistics."""
    at, values = series
    inside = values[(at >= start_at) & (at <= end_at)]
    if not len(inside):
        return 0, None
    mean, least, most = float(inside.mean()), float(inside.min()), float(inside.max())
    return len(inside), Sampled(unit=unit, mean=mean, min=least, max=most)


def _throttled(series: Series, start_at: int, end_at: int) -> dict[str, float]:
    """Share of the samples with each reason for a lower clock; clocks that are set by the user are left out."""
    at, masks = series
    inside = masks[(at >= start_at) & (at <= end_at)].astype(np.int64)
    by_sample = [throttle_reasons(int(mask)) for mask in inside]
    reasons = sorted({reason for active in by_sample for reason in active if reason not in NOT_THROTTLING})
    return {reason: sum(reason in active for active in by_sample) / len(by_sample) for reason in reasons}


def energy(counter: Series, power: Series, start_at: int, end_at: int) -> Energy:
    """Joules from start to end: from the GPU's own energy counter, else from its power. The interval bounds the true
    value."""
    counted = _by_counter(*counter, start_at, end_at)
    return counted if counted is not None else _by_power(*power, start_at, end_at)


def _by_counter(at: Ints, joules: Floats, start_at: int, end_at: int) -> Energy | None:
    """Energy from the counter. It is unknown when between two readings it grew: the value interpolates linearly to the
    window's edges, the lower bound runs from the first reading inside to the last one inside, the upper bound from the
    last reading before to the first one after."""
    if len(at) < 2 or at[0] > start_at or at[-1] < end_at or (np.diff(joules) < 0).any():
        return None
    first_in, last_in = np.searchsorted(at, start_at), np.searchsorted(at, end_at, side="right") - 1
    last_before, first_behind = np.searchsorted(at, start_at, side="right") - 1, np.searchsorted(at, end_at)
    least = max(0.0, float(joules[last_in] - joules[first_in])) if last_in >= first_in else 0.0
    most = float(joules[first_behind] - joules[last_before])
    middle = float(np.interp(end_at, at, joules) - np.interp(start_at, at, joules))
    return Energy(j=middle, interval=(least, most), by="energy counter")


def _by_power(at: Ints, watts: Floats, start_at: int, end_at: int) -> Energy:
    """Trapezoids; the bounds assume that each stretch had its lower or its higher reading all the time."""
    if len(at) < 2 or at[0] > start_at or at[-1] < end_at:
        return Energy(j=None, why="power was not sampled from the window's start to its end")
    inside = at[(at > start_at) & (at < end_at)]
    edges = np.concatenate(([start_at], inside, [end_at]))
    first, last = np.searchsorted(at, start_at, side="right") - 1, np.searchsorted(at, end_at)
    gap_s = float(np.diff(at[first : last + 1]).max()) / NANOSECONDS
    if gap_s > LONGEST_GAP_S:
        return Energy(j=None, why=f"power was not sampled for {duration_text(gap_s)}")
    level = np.interp(edges, at, watts)
    spans = np.diff(edges) / NANOSECONDS
    low, high = np.minimum(level[1:], level[:-1]), np.maximum(level[1:], level[:-1])
    interval = float((low * spans).sum()), float((high * spans).sum())
    return Energy(j=float(((low + high) / 2 * spans).sum()), interval=interval, by="power")


def _together(parts: list[Energy]) -> Energy:
    missing = next((part for part in parts if part.j is None), None)
    if missing is not None:
        return missing
    ends = [part.interval or OPEN for part in parts]
    return Energy(
        j=sum(part.j or 0.0 for part in parts),
        interval=(sum(low or 0.0 for low, _ in ends), sum(high or 0.0 for _, high in ends)),
        by=" and ".join(sorted({part.by or "" for part in parts})),
    )


def gpu_values(gpu: GpusSummary, output_tokens: float | None, requests: float | None) -> dict[str, Value]:
    """Energy per token and request, and power, utilization and memory of the GPUs, as values of the run."""
    power = [of.power_w for of in gpu.gpus]
    memory = [of.memory_used_bytes for of in gpu.gpus]
    used = [of.utilization_share for of in gpu.gpus]
    values = {
        "energy_per_output_token": _per(gpu.energy, output_tokens, "J/token", "Energy per output token"),
        "energy_per_request": _per(gpu.energy, requests, "J/request", "Energy per request"),
        "gpu_power": _of_all([of.mean if of else None for of in power], sum, "W", "GPU power"),
        "gpu_utilization": _of_all([of.mean if of else None for of in used], _mean, "share", "GPU utilization"),
        "gpu_memory_max": _of_all([of.max if of else None for of in memory], sum, "bytes", "GPU memory, maximum"),
    }
    return {name: value for name, value in values.items() if value is not None}


def _per(spent: Energy, n: float | None, unit: str, title: str) -> Value | None:
    if spent.j is None or not n:
        return None
    low, high = spent.interval or OPEN
    interval = None if low is None or high is None else (low / n, high / n)
    return Value(value=spent.j / n, unit=unit, direction="lower", title=title, interval=interval)


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _of_all(values: list[float | None], join: Callable[[list[float]], float], unit: str, title: str) -> Value | None:
    """None if any of the GPUs does not report it."""
    known = [value for value in values if value is not None]
    return Value(value=join(known), unit=unit, title=title) if known and len(known) == len(values) else None


# -- host ------------------------------------------------------------------------------------------------------------

BUSY = 0.95  # of all cores: whatever is done about the client, another process holds the core
STOLEN = 0.02  # of the cores' time: above it, late sends and uncertain reads have a cause outside of our control
_AVERAGED = ("cpu_share", "steal_share", "cpu_pressure_share", "received_bytes_per_s", "sent_bytes_per_s")


def host_summary(samples: Samples, start_at: int, end_at: int) -> HostSummary | None:
    """None if the host was not sampled. A sample covers the time since the previous one: the first sample after the end
    still belongs to the load."""
    if not samples.source.mask(HOST).any():
        return None
    averages: dict[str, float | None] = {}
    for name in (*_AVERAGED, "retransmitted_segments_per_s"):
        at, values = samples.series(name, HOST)
        chosen = values[(at > start_at) & (at <= _first_behind(at, end_at))]
        averages[name] = float(chosen.mean()) if len(chosen) else None
    _, available = samples.series("memory_available_bytes", HOST)
    least = float(available.min()) if len(available) else None
    return HostSummary(**averages, least_memory_available_bytes=least)


def _first_behind(at: Any, end_at: int) -> int:
    later = at[np.searchsorted(at, end_at) :]
    return int(later[0]) if len(later) else end_at


def scarcity(host: HostSummary | None) -> tuple[str, str] | None:
    """(code, text) of what keeps a client from its cores when more workers would not help:
    `the hypervisor took 4.1% of this machine's CPU time`."""
    stolen, busy = (host.steal_share or 0.0, host.cpu_share or 0.0) if host else (0.0, 0.0)
    if stolen > STOLEN:
        return "stolen_cores", f"the hypervisor took {percent_text(stolen)} of this machine's CPU time"
    if busy > BUSY:
        return "busy_machine", f"the cores of this machine were {percent_text(busy)} busy"
    return None
