"""What servers and GPUs reported during the load, whether it agrees with what we saw, and what could not be watched."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from inferometer.measure.hardware import BUSY, STOLEN
from inferometer.measure.telemetry import SERVER
from inferometer.record.summary import (
    OPEN,
    Conservation,
    GpusSummary,
    GpuSummary,
    HistogramSummary,
    HostSummary,
    MetricsSource,
    Sampled,
    ServerSummary,
    Summary,
    Value,
)
from inferometer.show.console import facts_table, first_that_fits, plain_table
from inferometer.vocabulary import duration_text, interval_text, number_text, percent_text, value_text

# -- server ----------------------------------------------------------------------------------------------------------

_MEANS = ("ttft", "queue_time", "prefill_time", "decode_time", "tpot", "itl", "e2e")
MOST_PROBLEMS = 5


def server_table(summary: Summary) -> Table | None:
    """None where there is nothing to tell: an endpoint that nobody named may be missing without a word."""
    server, host = summary.server, summary.host
    rows = [*(_facts(server) if server else ()), *(_machine(host) if host else ()), *_problems(summary)]
    if not rows:
        return None
    table = facts_table()
    for name, text in rows:
        table.add_row(name, text)
    return table


def _facts(server: ServerSummary) -> Iterator[tuple[str, str]]:
    if server.counters or server.gauges:
        yield "server", _who(server.sources)
    if means := _means(server.histograms):
        yield "", f"means by its own clock: {means}"
    if state := _state(server):
        yield "", state
    if server.conservation and (agreement := _agreement(server.conservation)):
        yield "", agreement


def _machine(host: HostSummary) -> Iterator[tuple[str, str]]:
    """Of the load generator, where it was short of cores."""
    busy, stolen = host.cpu_share or 0.0, host.steal_share or 0.0
    if busy > BUSY or stolen > STOLEN:
        taken = f", {percent_text(stolen)} stolen by the hypervisor" if stolen > STOLEN else ""
        yield "machine", f"its cores were {percent_text(busy)} busy{taken}"


def _problems(summary: Summary) -> Iterator[tuple[str, str]]:
    """What went wrong with what was asked for, or with what answered at least once."""
    sources = summary.server.sources if summary.server else []
    answered = {source.url for source in sources if source.scrapes}
    problems = summary.observer.problems if summary.observer else []
    wanted = [problem for problem in problems if problem.wanted or problem.source in answered]
    for problem in wanted[:MOST_PROBLEMS]:
        times = f" ({problem.count} times)" if problem.count and problem.count > 1 else ""
        yield "observe", f"{problem.source}: {problem.text}{times}"


def _who(sources: Sequence[MetricsSource]) -> str:
    answered = [source for source in sources if source.scrapes]
    engines = " and ".join(dict.fromkeys(source.engine for source in answered if source.engine))
    where = answered[0].url if len(answered) == 1 else f"{len(answered)} endpoints"
    scrapes = sum(source.scrapes for source in answered)
    return f"{where}, metrics of {engines or 'an engine'}, read {scrapes:,} times"


def _means(histograms: Mapping[str, HistogramSummary]) -> str:
    return ", ".join(
        f"{SERVER[name].title} {duration_text(histograms[name].mean)}" for name in _MEANS if name in histograms
    )


def _state(server: ServerSummary) -> str:
    gauges, preemptions = server.gauges, server.counters.get("preemptions")
    parts = [
        f"{number_text(gauges[name].mean)} {SERVER[name].title} (most {number_text(gauges[name].max)})"
        for name in ("running", "queued")
        if name in gauges
    ]
    if "kv_usage" in gauges:
        parts.append(f"KV cache at most {percent_text(gauges['kv_usage'].max)} full")
    if server.prefix_hit_rate is not None:
        parts.append(f"prefix hits {percent_text(round(server.prefix_hit_rate, 4))}{_by_replica(server.sources)}")
    if (speculation := server.speculation) is not None:
        rate, length = speculation.acceptance_rate, speculation.acceptance_length
        accepted = "" if rate is None else f"{percent_text(round(rate, 4))} of drafted tokens accepted, "
        parts.append(f"{accepted}{number_text(length)} tokens per step")
    if preemptions and preemptions.grown:
        parts.append(f"{number_text(preemptions.grown)} preemptions")
    return ", ".join(parts)


def _by_replica(sources: Sequence[MetricsSource]) -> str:
    """` (38.1% to 52.6% by replica)` where there are several."""
    rates = [source.prefix_hit_rate for source in sources if source.prefix_hit_rate is not None]
    if len(rates) < 2:
        return ""
    least, most = (percent_text(round(rate, 4)) for rate in (min(rates), max(rates)))
    return f" ({least} to {most} by replica)"


def _agreement(conservation: Conservation) -> str:
    """`same counts as the client: 400 requests, 102,400 prompt tokens; network and front end add 0.8 ms to TTFT`."""
    compared = {
        "requests": conservation.requests,
        "prompt tokens": conservation.prompt_tokens,
        "generated tokens": conservation.generation_tokens,
    }
    known = {what: counts for what, counts in compared.items() if counts.agree is not None}
    agreed = ", ".join(f"{number_text(counts.server)} {what}" for what, counts in known.items() if counts.agree)
    parts = [f"same counts as the client: {agreed}"] if agreed else []
    parts += [
        f"counted {value_text(counts.server, '')} {what}, the client {value_text(counts.client, '')}"
        for what, counts in known.items()
        if not counts.agree
    ]
    if conservation.ttft:
        parts.append(f"network and front end add {duration_text(conservation.ttft.wire)} to TTFT")
    return "; ".join(parts)


# -- gpu -------------------------------------------------------------------------------------------------------------

_GIB = 2.0**30


def gpu_table(gpu: GpusSummary, width: int) -> Table:
    """One line per GPU; what it did not tell is `-`."""
    columns = ("use", "memory", "power", "SM clock", "hottest", "energy", "throttled")
    fewer = (columns, columns[:-2], columns[:3])
    return first_that_fits((_gpus(gpu.gpus, chosen) for chosen in fewer), width)


def _gpus(gpus: Sequence[GpuSummary], columns: tuple[str, ...]) -> Table:
    table = plain_table("GPU", *columns, right=tuple(column for column in columns if column != "throttled"))
    for gpu in gpus:
        cells = _cells(gpu)
        where = f"{gpu.index} {gpu.host}" if gpu.host else str(gpu.index)
        table.add_row(where, *(cells[column] for column in columns))
    return table


def _cells(gpu: GpuSummary) -> dict[str, str]:
    used, total = _max(gpu.memory_used_bytes), gpu.memory_total_bytes
    of_total = f" of {number_text(total / _GIB)}" if total else ""
    throttled = ", ".join(f"{reason} {percent_text(share)}" for reason, share in gpu.throttled.items())
    return {
        "use": percent_text(_mean(gpu.utilization_share)),
        "memory": "-" if used is None else f"{number_text(used / _GIB)}{of_total} GiB",
        "power": value_text(_mean(gpu.power_w), "W"),
        "SM clock": value_text(_scaled(_mean(gpu.sm_clock_hz), 1e-6), "MHz"),
        "hottest": value_text(_max(gpu.temperature_c), "°C"),
        "energy": value_text(gpu.energy.j, "J"),
        "throttled": throttled or "no",
    }


def energy_table(values: Mapping[str, Value], gpu: GpusSummary) -> Table | None:
    rows = list(_energy(values, gpu))
    if not rows:
        return None
    table = facts_table()
    for name, text in rows:
        table.add_row(name, text)
    return table


def _energy(values: Mapping[str, Value], gpu: GpusSummary) -> Iterator[tuple[str, str]]:
    token, request = values.get("energy_per_output_token"), values.get("energy_per_request")
    if token is not None:
        per_request = f", {_joules(request)} per request" if request is not None else ""
        yield "energy", f"{_joules(token)} per output token{per_request}, by {gpu.energy.by}"
    elif gpu.energy.j is None:
        yield "energy", f"unknown: {gpu.energy.why}"


def _joules(value: Value) -> str:
    low, high = value.interval or OPEN
    return f"{value_text(value.value, 'J')} ({interval_text((low, high), '')})"


def _mean(series: Sampled | None) -> float | None:
    return None if series is None else series.mean


def _max(series: Sampled | None) -> float | None:
    return None if series is None else series.max


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
