"""The list of kept runs: one line each, the newest first."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from inferometer.show.console import plain_table
from inferometer.show.values import VERDICT_STYLES
from inferometer.store.entry import Entry
from inferometer.vocabulary import duration_text, number_text

_NUMBERS = ("TTFT p50", "p99", "tokens/s")
WIDE = 95
OTHERS_NARROW, OTHERS_WIDE = 67, 87  # what all columns but the name take


def runs_table(entries: Iterable[Entry], width: int) -> Table:
    """Id, when, what, how many requests, the headline numbers and the verdict. The id begins with the time in UTC:
    where it is narrow, that has to do."""
    wide = width >= WIDE
    columns = ["run", "when", "what", "sent", *_NUMBERS, "verdict"]
    shown = [name for name in columns if wide or name not in ("when", "sent")]
    table = plain_table(*shown, right=("sent", *_NUMBERS), gap=1)
    for entry in entries:
        cells = dict(zip(columns, _cells(entry, width - (OTHERS_WIDE if wide else OTHERS_NARROW)), strict=True))
        table.add_row(*(cells[name] for name in shown))
    return table


def _cells(entry: Entry, room: int) -> list[str | Text]:
    numbers = entry.headline
    ttft = "ttft_scheduled" if "ttft_scheduled p50" in numbers else "ttft"
    return [
        entry.id,
        when_text(entry.started_at),
        _cut(entry.name or entry.model or entry.target or "", max(room, 8)),
        number_text(entry.requests),
        duration_text(numbers.get(f"{ttft} p50")),
        duration_text(numbers.get(f"{ttft} p99")),
        number_text(numbers.get("output_rate")),
        verdict_word(entry.verdict, entry.state),
    ]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def verdict_word(verdict: str | None, state: str) -> Text:
    """The verdict, or how the run ended where that says more."""
    if verdict is None or state != "complete":
        return Text(state, style="dim")
    return Text(verdict, style=VERDICT_STYLES.get(verdict, ""))


def when_text(started: str) -> str:
    """The local date and time of a run."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%b %d %H:%M}"
    except ValueError:
        return "-"


def entry_document(entry: Entry) -> dict[str, Any]:
    """A line of the list as `list --json` prints it; seconds and per second."""
    return {
        "id": entry.id,
        "started": entry.started_at,
        "state": entry.state,
        "verdict": entry.verdict,
        "name": entry.name,
        "model": entry.model,
        "target": entry.target,
        "requests": entry.requests,
        "headline": entry.headline,
        "folder": str(entry.folder),
    }
