"""The table of measures: rows are measures, columns are mean and quantiles, each with how well it is known."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from inferometer.show.console import plain_table
from inferometer.show.values import count_text, interval_text, spread_text, value_text
from inferometer.vocabulary import MEASURES

STATS = ("mean", "p50", "p90", "p99")
ALL_STATS = ("count", "mean", "std", "min", "p50", "p90", "p95", "p99", "max")
ALL_STATS_WIDTH = 95


def headline_table(measures: Mapping[str, Any], names: Iterable[str]) -> Table:
    """The measures that matter most, with intervals in muted form; where anything failed, the first of them once
    more with failures as endlessly late, as limits see it."""
    table = plain_table("", *STATS, right=STATS)
    shown = [name for name in names if (measures.get(name) or {}).get("count")]
    for name in shown:
        table.add_row(title(name), *(cell(measures[name], stat) for stat in STATS))
        if name == shown[0] and measures[name].get("adjusted"):
            table.add_row(*_adjusted_row(measures[name]))
    return table


def full_table(measures: Mapping[str, Any], width: int) -> Table:
    """Every measure that has a value, every statistic that has room; failures as endlessly late below each."""
    stats = ALL_STATS if width >= ALL_STATS_WIDTH else tuple(stat for stat in ALL_STATS if stat not in ("std", "min"))
    table = plain_table("", *stats, right=stats, gap=1)
    for name, measure in measures.items():
        if measure["count"]:
            units = ("" if stat == "count" else measure["unit"] for stat in stats)
            cells = (_short(measure.get(stat), unit) for stat, unit in zip(stats, units, strict=True))
            table.add_row(title(name), *cells)
    return table


def adjusted_table(measures: Mapping[str, Any]) -> Table:
    """The quantiles as limits see them: with every failed request as endlessly late."""
    table = plain_table("failed as ∞", *STATS[1:], right=STATS)
    for name, measure in measures.items():
        if measure.get("adjusted"):
            table.add_row(title(name), *_adjusted_row(measure)[2:])
    return table


def interval_table(measures: Mapping[str, Any], confidence: float) -> Table:
    """Where each number lies with the plan's confidence."""
    table = plain_table(f"{confidence:.0%} interval", *STATS, right=STATS, gap=1)
    for name, measure in measures.items():
        if measure["count"]:
            intervals, unit = measure.get("intervals", {}), measure["unit"]
            unit = "" if unit == "tokens/s" else unit
            table.add_row(title(name), *(interval_text(intervals.get(stat), unit) for stat in STATS))
    return table


def cell(measure: Mapping[str, Any], stat: str) -> Text:
    """`412 ms ±9`, or `- (needs 368)` where there are too few values to know."""
    value, unit = measure.get(stat), measure["unit"]
    if value is None and (needed := measure.get("unknown", {}).get(stat)):
        return Text.assemble("- ", (f"(needs {count_text(needed)})", "dim"))
    spread = spread_text(value, measure.get("intervals", {}).get(stat), unit)
    return Text.assemble(_short(value, unit), (f" {spread}" if spread else "", "dim"))


def _adjusted_row(measure: Mapping[str, Any]) -> list[Text]:
    cells = (_adjusted_cell(measure["adjusted"], measure["unit"], stat) for stat in STATS)
    return [Text("  failed as ∞", style="dim"), *cells]


def _adjusted_cell(adjusted: Mapping[str, Any], unit: str, stat: str) -> Text:
    """Of a mean nothing can be said when a part is endless; a quantile that is none is endless too."""
    if stat not in adjusted:
        return Text("")
    if adjusted[stat] is None:
        needed = adjusted["unknown"].get(stat)
        return Text(f"- (needs {count_text(needed)})" if needed else "∞", style="dim")
    return Text(_short(adjusted[stat], unit), style="dim")


def _short(value: float | None, unit: str) -> str:
    """The unit of a rate is said once, in the row's title."""
    return value_text(value, "" if unit == "tokens/s" else unit)


def title(name: str) -> str:
    if name not in MEASURES:
        return name
    measure = MEASURES[name]
    return f"{measure.title}, {measure.unit}" if measure.unit == "tokens/s" else measure.title
