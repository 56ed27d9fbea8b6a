"""The curve of a calibration: what this instrument adds to what it measures, load by load."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from inferometer.show.console import plain_table
from inferometer.vocabulary import duration_text, number_text

_COLUMNS = ("streams", "events/s", "TTFT error p50", "p99", "gap error p50", " p99", "CPU s/M")


def curve_table(curve: Mapping[str, Any]) -> Table:
    """One line per point; errors are against the clock of the server that sent the tokens."""
    table = plain_table(*_COLUMNS, "stamps", right=_COLUMNS)
    table.columns[2].header, table.columns[4].header = "TTFT p50", "gap p50"
    for point in curve["points"]:
        table.add_row(
            number_text(point["streams"]),
            number_text(point["events_per_s"]) + ("*" if point.get("metronome_late") else ""),
            *(duration_text(point[f"{what}_error_{q}"]) for what in ("ttft", "read") for q in ("p50", "p99")),
            number_text(point["cpu_s_per_million"]),
            point["stamps"],
        )
    return table


def ceiling_text(curve: Mapping[str, Any]) -> str:
    """How far it can be trusted at all."""
    ceiling = curve["ceiling_events_per_s"]
    if ceiling is None:
        return "it kept up with none of these loads: is something else busy on this machine?"
    least = "at least " if curve.get("ceiling_is_at_least") else ""
    late = any(point.get("metronome_late") for point in curve["points"])
    mark = "\n* the server itself was late there: no limit of the client" if late else ""
    return f"it kept up with {least}{number_text(ceiling)} events/s: errors stayed within a token interval{mark}"
