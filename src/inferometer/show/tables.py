"""The tables of a run: measures with mean and quantiles, the run over time, its slowest requests; what servers and GPUs
reported during the load, and whether it agrees with our records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from inferometer.measure.hardware import BUSY, STOLEN
from inferometer.measure.summary import SlowRequest
from inferometer.measure.telemetry import PICKER, SERVER
from inferometer.record.summary import (
    OPEN,
    Adjusted,
    Conservation,
    GpusSummary,
    GpuSummary,
    HistogramSummary,
    HostSummary,
    MeasureSummary,
    MetricsSource,
    Sampled,
    ServerSummary,
    Slices,
    Summary,
    Value,
)
from inferometer.show.console import facts_table, first_that_fits, plain_table
from inferometer.vocabulary import (
    MEASURES,
    RATE_UNITS,
    WEAK_MARK,
    bound_text,
    duration_text,
    interval_text,
    number_text,
    percent_text,
    spread_text,
    value_text,
)

# -- headline --------------------------------------------------------------------------------------------------------

STATS = ("p50", "p90", "p99", "mean")
ALL_STATS = ("count", "mean", "std", "min", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class _Look:
    """How much of the headline is shown; with less room first intervals are dropped, then columns, never digits."""

    stats: tuple[str, ...] = STATS
    spread: bool = True
    short: bool = False  # short titles
    gap: int = 2


_LOOKS = (
    _Look(),
    _Look(gap=1),
    _Look(short=True, gap=1),
    _Look(spread=False),
    _Look(spread=False, short=True, gap=1),
    _Look(STATS[:3], spread=False, short=True, gap=1),
    _Look(("p50", "p99"), spread=False, short=True, gap=1),
)


def headline_table(measures: Mapping[str, MeasureSummary], names: Iterable[str], width: int) -> Table | None:
    """The most important measures, with muted intervals if there is room; if anything failed, the first of them is
    repeated with failures as infinitely late, as limits count them. None if there is nothing to show."""
    shown = [name for name in names if name in measures and measures[name].count]
    return first_that_fits((_headline(measures, shown, look) for look in _LOOKS), width) if shown else None


def _headline(measures: Mapping[str, MeasureSummary], shown: list[str], look: _Look) -> Table:
    table = plain_table("", *look.stats, right=look.stats, gap=look.gap)
    for name in shown:
        label = title(name).replace(", scheduled", ", sched.") if look.short else title(name)
        table.add_row(label, *(cell(measures[name], stat, look.spread) for stat in look.stats))
        if name == shown[0] and (adjusted := measures[name].adjusted):
            table.add_row(*_adjusted_row(adjusted, measures[name].unit, look.stats))
    return table


def full_table(measures: Mapping[str, MeasureSummary], width: int) -> Table:
    """Every measure with a value, and every statistic that fits; below each, failures counted as infinitely late."""
    fewer = tuple(stat for stat in ALL_STATS if stat not in ("std", "min"))
    return first_that_fits((_full(measures, stats) for stats in (ALL_STATS, fewer, STATS, ("p50", "p99"))), width)


def _full(measures: Mapping[str, MeasureSummary], stats: tuple[str, ...]) -> Table:
    table = plain_table("", *stats, right=stats, gap=1)
    for name, measure in measures.items():
        if measure.count:
            cells = (number_text(measure.count) if stat == "count" else cell(measure, stat, False) for stat in stats)
            table.add_row(title(name), *cells)
    return table


def adjusted_table(measures: Mapping[str, MeasureSummary]) -> Table:
    """The quantiles as limits count them: with every failed request as infinitely late."""
    table = plain_table("failed as ∞", *STATS[:3], right=STATS)
    for name, measure in measures.items():
        if measure.adjusted:
            table.add_row(title(name), *_adjusted_row(measure.adjusted, measure.unit, STATS[:3])[1:])
    return table


def interval_table(measures: Mapping[str, MeasureSummary], confidence: float, width: int) -> Table:
    """The interval of each number at the plan's confidence level."""
    tables = (_intervals(measures, confidence, stats) for stats in (STATS, STATS[:3], ("p50", "p99"), ("p50",)))
    return first_that_fits(tables, width)


def _intervals(measures: Mapping[str, MeasureSummary], confidence: float, stats: tuple[str, ...]) -> Table:
    table = plain_table(f"{percent_text(confidence)} interval", *stats, right=stats, gap=1)
    for name, measure in measures.items():
        if measure.count:
            unit = "" if measure.unit == "tokens/s" else measure.unit
            table.add_row(title(name), *(interval_text(measure.interval(stat), unit) for stat in stats))
    return table


def cell(measure: MeasureSummary, stat: str, spread: bool = True) -> Text:
    """`412 ms ±9`; `~412 ms ≥380` if there are too few values to bound it on both sides; only the number with its mark
    if there is no room."""
    value, unit = measure[stat], measure.unit
    mark = WEAK_MARK if value is not None and stat in measure.weak else ""
    if not spread:
        return Text(f"{mark}{_short(value, unit)}")
    margin = bound_text(value, measure.interval(stat), unit) if mark else ""
    margin = margin or spread_text(value, measure.interval(stat), unit)
    return Text.assemble(f"{mark}{_short(value, unit)}", (f" {margin}" if margin else "", "dim"))


def _adjusted_row(adjusted: Adjusted, unit: str, stats: tuple[str, ...]) -> list[Text]:
    cells = (_adjusted_cell(adjusted, unit, stat) for stat in stats)
    return [Text("  failed as ∞", style="dim"), *cells]


def _adjusted_cell(adjusted: Adjusted, unit: str, stat: str) -> Text:
    """A mean with an infinite part is undefined; a quantile without a value is infinite too."""
    if stat not in adjusted.statistics:
        return Text("")
    value, mark = adjusted.statistics[stat], WEAK_MARK if stat in adjusted.weak else ""
    return Text(f"{mark}{'∞' if value is None else _short(value, unit)}", style="dim")


def _short(value: float | None, unit: str) -> str:
    """The unit of a rate is written once, in the title of the row."""
    return value_text(value, "" if unit == "tokens/s" else unit)


def title(name: str) -> str:
    if name not in MEASURES:
        return name
    measure = MEASURES[name]
    return f"{measure.title}, {RATE_UNITS[measure.unit]}" if measure.unit == "tokens/s" else measure.title


# -- over time -------------------------------------------------------------------------------------------------------

_COLUMNS = ("from", "offered req/s", "in flight", "tok/s", "p50", "p90", "failed")


def slices_table(slices: Slices) -> Table:
    """Load, tokens, latency and failures of each slice; p50 and p90 are those of the slices' measure."""
    table = plain_table(*_COLUMNS, right=_COLUMNS)
    table.columns[4].header = f"{title(slices.measure)} p50"
    for row in slices.rows:
        table.add_row(
            duration_text(row.t),
            number_text(row.offered_per_s),
            number_text(row.in_flight),
            number_text(row.tokens_per_s),
            duration_text(row.ttft_p50),
            duration_text(row.ttft_p90),
            f"{row.failures:,}" if row.failures else "",
        )
    return table


# -- slowest ---------------------------------------------------------------------------------------------------------

_DURATIONS = {"after": "at_s", "E2E": "e2e", "TTFT": "ttft", "stall": "stall", "queued": "queue_wait"}
_COUNTS = {"input": "input_tokens", "output": "output_tokens"}


def slowest_table(requests: Iterable[SlowRequest]) -> Table:
    """As returned by `measure.summary.slowest`; `after` counts from the first arrival."""
    numbers = ("session", *_DURATIONS, *_COUNTS)
    table = plain_table(*numbers, "request id", right=numbers, wrap="request id", gap=1)
    for request in requests:
        table.add_row(
            f"{request.session}.{request.turn}" if request.turn else str(request.session),
            *(duration_text(getattr(request, name)) for name in _DURATIONS.values()),
            *(number_text(getattr(request, name)) for name in _COUNTS.values()),
            request.request_id or "-",
        )
    return table


# -- server ----------------------------------------------------------------------------------------------------------

_MEANS = ("ttft", "queue_time", "prefill_time", "decode_time", "tpot", "itl", "e2e")
MOST_PROBLEMS = 5


def server_table(summary: Summary) -> Table | None:
    """None if there is nothing to show: an endpoint that the plan does not name may be missing without a message."""
    server, host = summary.server, summary.host
    rows = [*(_facts(server) if server else ()), *(_machine(host) if host else ()), *_problems(summary)]
    if not rows:
        return None
    table = facts_table()
    for name, text in rows:
        table.add_row(name, text)
    return table


def _facts(server: ServerSummary) -> Iterator[tuple[str, str]]:
    if engines := [source for source in server.sources if source.scrapes and source.engine != PICKER]:
        yield "server", _who(engines)
    if means := _means(server.histograms):
        yield "", f"means by its own clock: {means}"
    if state := _state(server):
        yield "", state
    if server.conservation and (agreement := _agreement(server.conservation)):
        yield "", agreement
    if chosen := _choices(server):
        yield PICKER, chosen


def _machine(host: HostSummary) -> Iterator[tuple[str, str]]:
    """Of the load generator, if it was short of cores."""
    busy, stolen = host.cpu_share or 0.0, host.steal_share or 0.0
    if busy > BUSY or stolen > STOLEN:
        taken = f", {percent_text(stolen)} stolen by the hypervisor" if stolen > STOLEN else ""
        yield "machine", f"its cores were {percent_text(busy)} busy{taken}"


def _problems(summary: Summary) -> Iterator[tuple[str, str]]:
    """Problems with requested sources, and with sources that answered at least once."""
    sources = summary.server.sources if summary.server else []
    answered = {source.url for source in sources if source.scrapes}
    problems = summary.observer.problems if summary.observer else []
    wanted = [problem for problem in problems if problem.wanted or problem.source in answered]
    for problem in wanted[:MOST_PROBLEMS]:
        times = f" ({problem.count} times)" if problem.count and problem.count > 1 else ""
        yield "observe", f"{problem.source}: {problem.text}{times}"


def _choices(server: ServerSummary) -> str:
    """`3 ready pods, one chosen in 1.2 ms, prefix hit ratio 61%, 400 requests, 2 errors`; for an endpoint picker."""
    gauges, histograms = server.gauges, server.histograms
    parts = []
    if "picker_pods" in gauges:
        parts.append(f"{number_text(gauges['picker_pods'].mean)} ready pods")
    if "picker_time" in histograms:
        parts.append(f"one chosen in {duration_text(histograms['picker_time'].mean)}")
    if "picker_hit_ratio" in histograms:
        parts.append(f"prefix hit ratio {percent_text(round(histograms['picker_hit_ratio'].mean or 0.0, 4))}")
    for name, title in (("picker_running", "running"), ("picker_queued", "queued")):
        if name in gauges:
            parts.append(f"{number_text(gauges[name].mean)} {title} per pod")
    for name, title in (("picker_requests", "requests"), ("picker_errors", "errors")):
        if name in server.counters and (name == "picker_requests" or server.counters[name].grown):
            parts.append(f"{number_text(server.counters[name].grown)} {title}")
    return ", ".join(parts)


def _who(sources: Sequence[MetricsSource]) -> str:
    engines = " and ".join(dict.fromkeys(source.engine for source in sources if source.engine))
    where = sources[0].url if len(sources) == 1 else f"{len(sources)} endpoints"
    scrapes = sum(source.scrapes for source in sources)
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
    """` (38.1% to 52.6% by replica)` if there are several."""
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
    """One line per GPU; `-` for what it does not report."""
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
