"""The list of stored runs: one line each, newest first."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from rich.table import Table
from rich.text import Text

from inferometer.documents.document import JsonObject
from inferometer.measure.values import canonical
from inferometer.show.console import VERDICT_STYLES, plain_table
from inferometer.store.entry import Entry
from inferometer.vocabulary import MEASURES, WEAK_MARK, duration_text, number_text, value_text

MOST_NUMBERS = 3
LONGEST_HEADING = 24
ROOM_FOR_NUMBERS = 27
WIDE = 95
OTHERS_NARROW, OTHERS_WIDE = 67, 87  # width of all columns except the name


Cells = list[str | Text]


@dataclass(frozen=True)
class ListColumn:
    """A column of the list: which of a run's numbers it shows, and in which format."""

    heading: str
    keys: tuple[str, ...]  # the first that the run has: TTFT from the scheduled time, as in an open loop
    text: Callable[[float | None], str] = number_text

    def of(self, entry: Entry) -> str:
        key = next((key for key in self.keys if key in entry.values), None)
        return "-" if key is None else marked(entry, key, self.text(entry.values[key]))


def marked(entry: Entry, key: str, text: str) -> str:
    """`~412 ms` for a percentile of too few samples."""
    return f"{WEAK_MARK}{text}" if key in entry.weak_keys else text


_SERVING = [
    ListColumn("TTFT p50", ("ttft_scheduled.p50", "ttft.p50"), duration_text),
    ListColumn("p99", ("ttft_scheduled.p99", "ttft.p99"), duration_text),
    ListColumn("tok/s", ("output_rate",)),
]
_OF_KIND = {
    "serving": _SERVING,
    "startup": [ListColumn("ready after", ("time_to_ready",), duration_text)],
    "throughput": [
        ListColumn("req/s", ("request_rate",)),
        ListColumn("tok/s", ("output_rate",)),
        ListColumn("took", ("elapsed",), duration_text),
    ],
}


def _numbers(entries: Sequence[Entry]) -> list[ListColumn]:
    """The usual columns, TTFT and tokens; if no run has such numbers, those that the runs do have."""
    kinds = dict.fromkeys(entry.kind for entry in entries if entry.values)
    if not kinds or "serving" in kinds:
        return _SERVING
    of_all = {number.heading: number for kind in kinds for number in _OF_KIND.get(kind) or _own(kind, entries)}
    widths = accumulate(_width(number) for number in of_all.values())
    return [number for number, width in zip(of_all.values(), widths, strict=True) if width <= ROOM_FOR_NUMBERS]


def _width(number: ListColumn) -> int:
    return 1 + max(len(number.heading), len("123 ms"))


def _own(kind: str, entries: Sequence[Entry]) -> Iterator[ListColumn]:
    """Latencies by batch size, or the numbers of a benchmark: first those that most of the runs have."""
    common = Counter(key for entry in entries if entry.kind == kind for key in entry.values)
    text = duration_text if kind == "latency" else number_text
    for at, (key, _) in enumerate(common.most_common(MOST_NUMBERS)):
        heading = key.removesuffix(".mean").replace("_", " ")
        shorter = heading.removeprefix("latency ") if at else heading
        yield ListColumn(_cut(shorter, LONGEST_HEADING), (key,), text)


@dataclass(frozen=True)
class Grid:
    """Rows under headings, before layout."""

    columns: list[str]
    rows: list[Cells]
    right: tuple[str, ...]
    gap: int


def runs_grid(entries: Sequence[Entry], width: int) -> Grid:
    """Id, time, name, number of requests, headline numbers and verdict. The id starts with the time in UTC, so the time
    column is dropped if there is little room."""
    names = short_names(entries)
    needed = max((len(name) for name in names.values()), default=0)
    wide, numbers = width >= WIDE and needed <= max(width - OTHERS_WIDE, 8), _numbers(entries)
    headings = [number.heading for number in numbers]
    columns = ["run", "when", "what", "sent", *headings, "verdict"]
    hidden = set() if wide else {"when", "sent"}
    if all(entry.requests is None for entry in entries):
        hidden.add("sent")
    shown = [at for at, name in enumerate(columns) if name not in hidden]
    room = width - (OTHERS_WIDE if wide else OTHERS_NARROW)
    rows = [[cells[at] for at in shown] for cells in (_cells(entry, room, numbers, names) for entry in entries)]
    return Grid([columns[at] for at in shown], rows, ("sent", *headings), 1)


def chosen_grid(entries: Iterable[Entry], columns: Sequence[str]) -> Grid:
    """The requested columns, each number in the unit of its measure."""
    numbers = tuple(name for name in columns if canonical(name) not in PLAIN and not _is_setting(name))
    rows = [[_chosen_text(entry, name) for name in columns] for entry in entries]
    return Grid(list(columns), rows, (*numbers, "requests"), 2)


def runs_table(entries: Sequence[Entry], width: int) -> Table:
    return grid_table(runs_grid(entries, width))


def grid_table(grid: Grid) -> Table:
    table = plain_table(*grid.columns, right=grid.right, gap=grid.gap)
    for cells in grid.rows:
        table.add_row(*cells)
    return table


def grid_lines(grid: Grid) -> Iterator[str]:
    """The same without colours, for thousands of lines: a rich table takes half a millisecond for each."""
    rows = [grid.columns, *([str(cell) for cell in cells] for cells in grid.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    to_right = [name in grid.right for name in grid.columns]
    for row in rows:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, to_right, strict=True)
        ]
        yield (" " * grid.gap).join(cells).rstrip()


def _chosen_text(entry: Entry, column: str) -> str | Text:
    value = cell(entry, column)
    if column == "verdict":
        return verdict_text(entry.verdict, entry.state)
    if column == "started":
        return when_text(entry.started_at)
    if isinstance(value, float):
        measure = MEASURES.get(canonical(column).partition(".")[0])
        return marked(entry, canonical(column), value_text(value, measure.unit if measure else ""))
    return "-" if value is None else str(value)


def cell(entry: Entry, column: str) -> str | float | int | None:
    """The value of an entry in a column, as it is stored: seconds and per second; missing is None."""
    match column:
        case "started":
            return entry.started_at
        case "tags" | "tag":
            return ",".join(entry.tags) or None
        case "folder":
            return str(entry.folder)
        case _ if column in PLAIN:
            value: str | int | None = getattr(entry, column)
            return value
    if (path := column.removeprefix("plan.")) in entry.parameters:
        return entry.parameters[path]
    return entry.values.get(canonical(column))


def _is_setting(column: str) -> bool:
    return column.startswith("plan.")


PLAIN = (
    *("id", "started", "state", "kind", "source", "verdict", "name", "model", "target", "engine", "engine_version"),
    *("commit", "hardware", "requests", "workload_id", "stack_id", "hardware_id", "identity", "tags", "tag"),
    *("experiment", "case", "folder", "location", "damage", "remedy"),
)
USUAL = ("id", "started", "state", "kind", "verdict", "name", "model", "target", "engine", "engine_version", "requests")


def short_names(entries: Iterable[Entry]) -> dict[str, str]:
    """What distinguishes the names of imported files: their paths without the common folders and without the suffix,
    and for a part of a file such as `stage 3` only its label."""
    names = [*dict.fromkeys(entry.name for entry in entries if entry.source and entry.name)]
    paths = [name.split("/") for name in names]
    while all(len(path) > 1 for path in paths) and len({path[0] for path in paths}) == 1:
        paths = [path[1:] for path in paths]
    while all(len(path) > 2 for path in paths) and len({path[-2] for path in paths}) == 1:
        paths = [[*path[:-2], path[-1]] for path in paths]
    for last in (_label, _stem):
        short = ["/".join((*path[:-1], last(path[-1]))) for path in paths]
        if len({*short}) == len(names):
            return dict(zip(names, short, strict=True))
    return {}


def _stem(file: str) -> str:
    return re.sub(r"\.(json|jsonl|csv|yaml|yml|txt)(\.gz)?(?= |$)", "", file)


def _label(file: str) -> str:
    """`stage_3_lifecycle_metrics.json stage 3` is stage 3."""
    return _stem(file).partition(" ")[2] or _stem(file)


def _cells(entry: Entry, room: int, numbers: Sequence[ListColumn], names: Mapping[str, str]) -> Cells:
    return [
        entry.id,
        when_text(entry.started_at),
        _what(entry, max(room, 8), names),
        number_text(entry.requests),
        *(number.of(entry) for number in numbers),
        verdict_text(entry.verdict, entry.state),
    ]


def _what(entry: Entry, room: int, names: Mapping[str, str]) -> str:
    """The name; for an imported file its distinguishing part, shortened in the middle if there is no room."""
    text = entry.name or entry.model or entry.target or ""
    if entry.is_predicted:
        text = f"predicted: {text}"
    if entry.source and entry.name:
        text = names.get(text, text)
        end = max(room // 2, 1)
        return text if len(text) <= room else f"{text[: room - end - 1]}…{text[-end:]}"
    return _cut(text, room)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def verdict_text(verdict: str | None, state: str) -> Text:
    """The verdict, or how the run ended if that is more important."""
    if verdict is None or state != "complete":
        return Text(state, style="dim")
    return Text(verdict, style=VERDICT_STYLES.get(verdict, ""))


def when_text(started: str) -> str:
    """The local date and time of a run."""
    try:
        return f"{datetime.fromisoformat(started).astimezone():%b %d %H:%M}"
    except ValueError:
        return "-"


def entry_document(entry: Entry, columns: Sequence[str] = ()) -> JsonObject:
    """A line of the list as `list --json` prints it; seconds and per second. With columns, only these and the id."""
    if columns:
        return {"id": entry.id} | {name: cell(entry, name) for name in columns}
    plain = [name for name in PLAIN if name not in ("tags", "tag", "folder", "started", "id")]
    return {
        "id": entry.id,
        "started": entry.started_at,
        **{name: getattr(entry, name) for name in plain},
        "tags": list(entry.tags),
        "values": entry.values,
        "weak": sorted(entry.weak_keys & entry.values.keys()),
        "folder": str(entry.folder),
    }


def csv_rows(entries: Sequence[Entry], columns: Sequence[str]) -> Iterator[list[str | float | None]]:
    """A heading and a row per run; without columns, the data of all of them."""
    if not columns:
        known = dict.fromkeys(key for entry in entries for key in entry.values)
        columns = [*USUAL, "tags", *known]
    yield list(columns)
    for entry in entries:
        yield [cell(entry, name) for name in columns]
