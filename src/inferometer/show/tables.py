"""The tables of a run: measures with mean and quantiles, the run over time, and its slowest requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from inferometer.measure.summary import SlowRequest
from inferometer.record.summary import Adjusted, MeasureSummary, Slices
from inferometer.show.console import first_that_fits, plain_table
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
    """How much of the headline is shown; where it gets narrow, intervals go first, then columns, never digits."""

    stats: tuple[str, ...] = STATS
    spread: bool = True
    short: bool = False  # titles
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
    """The measures that matter most, with intervals in muted form where there is room; where anything failed, the
    first of them once more with failures as endlessly late, as limits see it. None where there is nothing to show."""
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
    """Every measure that has a value, every statistic that has room; failures as endlessly late below each."""
    fewer = tuple(stat for stat in ALL_STATS if stat not in ("std", "min"))
    return first_that_fits((_full(measures, stats) for stats in (ALL_STATS, fewer, STATS, ("p50", "p99"))), width)


def _full(measures: Mapping[str, MeasureSummary], stats: tuple[str, ...]) -> Table:
    table = plain_table("", *stats, right=stats, gap=1)
    for name, measure in measures.items():
        if measure.count:
            cells = (
                number_text(measure.count) if stat == "count" else _short(measure[stat], measure.unit) for stat in stats
            )
            table.add_row(title(name), *cells)
    return table


def adjusted_table(measures: Mapping[str, MeasureSummary]) -> Table:
    """The quantiles as limits see them: with every failed request as endlessly late."""
    table = plain_table("failed as ∞", *STATS[:3], right=STATS)
    for name, measure in measures.items():
        if measure.adjusted:
            table.add_row(title(name), *_adjusted_row(measure.adjusted, measure.unit, STATS[:3])[1:])
    return table


def interval_table(measures: Mapping[str, MeasureSummary], confidence: float, width: int) -> Table:
    """Where each number lies with the plan's confidence."""
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
    """`412 ms ±9`; `~412 ms ≥380` where there are too few values to bound it on both sides; the number alone, with
    its mark, where there is no room."""
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
    """Of a mean nothing can be said when a part is endless; a quantile without a value is endless too."""
    if stat not in adjusted.statistics:
        return Text("")
    value, mark = adjusted.statistics[stat], WEAK_MARK if stat in adjusted.weak else ""
    return Text(f"{mark}{'∞' if value is None else _short(value, unit)}", style="dim")


def _short(value: float | None, unit: str) -> str:
    """The unit of a rate is said once, in the row's title."""
    return value_text(value, "" if unit == "tokens/s" else unit)


def title(name: str) -> str:
    if name not in MEASURES:
        return name
    measure = MEASURES[name]
    return f"{measure.title}, {RATE_UNITS[measure.unit]}" if measure.unit == "tokens/s" else measure.title


# -- over time -------------------------------------------------------------------------------------------------------

_COLUMNS = ("from", "offered/s", "in flight", "tokens/s", "p50", "p90", "failed")


def slices_table(slices: Slices) -> Table:
    """Load, tokens, latency and failures of each slice; p50 and p90 are those of the slice's measure."""
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
    """As `measure.summary.slowest` gives them; `after` counts from the first arrival."""
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
