"""The list of kept runs: one line each, the newest first."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from inferometer.measure.values import canonical
from inferometer.show.console import plain_table
from inferometer.show.values import VERDICT_STYLES, value_text
from inferometer.store.entry import Entry
from inferometer.vocabulary import MEASURES, duration_text, number_text

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


def chosen_table(entries: Iterable[Entry], columns: Sequence[str]) -> Table:
    """The columns that were asked for, each number in the unit of its measure."""
    numbers = tuple(name for name in columns if canonical(name) not in PLAIN and not _is_setting(name))
    table = plain_table(*columns, right=(*numbers, "requests"))
    for entry in entries:
        table.add_row(*(_chosen_text(entry, name) for name in columns))
    return table


def _chosen_text(entry: Entry, column: str) -> str | Text:
    value = cell(entry, column)
    if column == "verdict":
        return verdict_word(entry.verdict, entry.state)
    if column == "started":
        return when_text(entry.started_at)
    if isinstance(value, float):
        measure = MEASURES.get(canonical(column).partition(".")[0])
        return value_text(value, measure.unit if measure else "")
    return "-" if value is None else str(value)


def cell(entry: Entry, column: str) -> str | float | int | None:
    """What an entry has in a column, as it is kept: seconds and per second; missing is None."""
    match column:
        case "started":
            return entry.started_at
        case "tags" | "tag":
            return ",".join(entry.tags) or None
        case "folder":
            return str(entry.folder)
        case _ if column in PLAIN:
            said: str | int | None = getattr(entry, column)
            return said
    if (path := column.removeprefix("plan.")) in entry.parameters:
        return entry.parameters[path]
    return entry.values.get(canonical(column))


def _is_setting(column: str) -> bool:
    return column.startswith("plan.")


PLAIN = (
    *("id", "started", "state", "kind", "source", "verdict", "name", "model", "target", "engine", "engine_version"),
    *("commit", "hardware", "requests", "workload_id", "stack_id", "hardware_id", "identity", "tags", "tag"),
    *("experiment", "case", "folder", "location"),
)
USUAL = ("id", "started", "state", "kind", "verdict", "name", "model", "target", "engine", "engine_version", "requests")


def _cells(entry: Entry, room: int) -> list[str | Text]:
    numbers = entry.values
    ttft = "ttft_scheduled" if "ttft_scheduled.p50" in numbers else "ttft"
    return [
        entry.id,
        when_text(entry.started_at),
        _cut(entry.name or entry.model or entry.target or "", max(room, 8)),
        number_text(entry.requests),
        duration_text(numbers.get(f"{ttft}.p50")),
        duration_text(numbers.get(f"{ttft}.p99")),
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


def entry_document(entry: Entry, columns: Sequence[str] = ()) -> dict[str, Any]:
    """A line of the list as `list --json` prints it; seconds and per second. With columns, these and the id alone."""
    if columns:
        return {"id": entry.id} | {name: cell(entry, name) for name in columns}
    plain = [name for name in PLAIN if name not in ("tags", "tag", "folder", "started", "id")]
    return {
        "id": entry.id,
        "started": entry.started_at,
        **{name: getattr(entry, name) for name in plain},
        "tags": list(entry.tags),
        "values": entry.values,
        "folder": str(entry.folder),
    }


def csv_rows(entries: Sequence[Entry], columns: Sequence[str]) -> Iterator[list[str | float | None]]:
    """A heading and a row per run; without columns, what is known of all of them."""
    if not columns:
        known = dict.fromkeys(key for entry in entries for key in entry.values)
        columns = [*USUAL, "tags", *known]
    yield list(columns)
    for entry in entries:
        yield [cell(entry, name) for name in columns]
