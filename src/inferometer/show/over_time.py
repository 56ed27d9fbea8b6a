"""How a run went over time: one line per slice."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from inferometer.show.console import plain_table
from inferometer.show.headline import title
from inferometer.vocabulary import duration_text, number_text

_COLUMNS = ("from", "offered/s", "in flight", "tokens/s", "p50", "p90", "failed")


def slices_table(slices: Mapping[str, Any]) -> Table:
    """Load, tokens, latency and failures of each slice; p50 and p90 are those of the slice's measure."""
    table = plain_table(*_COLUMNS, right=_COLUMNS)
    table.columns[4].header = f"{title(slices['measure'])} p50"
    for row in slices["rows"]:
        table.add_row(
            duration_text(row["t"]),
            number_text(row["offered_per_s"]),
            number_text(row["in_flight"]),
            number_text(row["tokens_per_s"]),
            duration_text(row["ttft_p50"]),
            duration_text(row["ttft_p90"]),
            f"{row['failures']:,}" if row["failures"] else "",
        )
    return table
