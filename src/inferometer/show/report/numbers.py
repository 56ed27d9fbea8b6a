"""The numbers of runs as tables for other programs: CSV, and a workbook."""

import csv
import io
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from inferometer.errors import MissingExtra
from inferometer.measure.values import quantities
from inferometer.record.harmless import cell, harmless
from inferometer.record.run import Run

HEAD = ("run", "name", "started", "verdict", "key", "measure", "statistic", "value", "unit", "low", "high", "better")


def rows_of(runs: Sequence[Run]) -> Iterator[tuple[Any, ...]]:
    """A line for each number of each run; seconds, bytes and shares, as in the data."""
    for run in runs:
        name, word = run.plan.get("name"), run.verdict.get("word")
        about = (run.id, None if name is None else str(name), run.started_at, word)
        for each in quantities(run.summary).values():
            low, high = each.interval or (None, None)
            told = (each.key, each.title, each.statistic, each.value, each.unit, low, high, each.direction)
            yield (*about, *told)


def as_csv(runs: Sequence[Run]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows([cell(value) for value in row] for row in rows_of(runs))
    return text.getvalue()


def write_workbook(runs: Sequence[Run], path: Path) -> None:
    """Sheets: every number, the numbers side by side, and how each run went over time."""
    options = {"strings_to_formulas": False, "strings_to_urls": False, "nan_inf_to_errors": True}
    book = _xlsxwriter().Workbook(str(path), options)
    try:
        bold = book.add_format({"bold": True})
        _fill(book, "numbers", [HEAD, *rows_of(runs)], bold)
        _fill(book, "side by side", list(_wide(runs)), bold)
        slices = list(_slices(runs))
        if len(slices) > 1:
            _fill(book, "over time", slices, bold)
    finally:
        book.close()


def _fill(book: Any, name: str, rows: Sequence[Sequence[Any]], bold: Any) -> None:
    sheet = book.add_worksheet(name)
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            if value is not None:
                shown = harmless(value) if isinstance(value, str) else value
                sheet.write(at, column, shown, bold if at == 0 else None)
    sheet.freeze_panes(1, 0)
    widths = [
        max((len(str(row[column])) for row in rows[:200] if column < len(row)), default=0)
        for column in range(len(rows[0]))
    ]
    for column, width in enumerate(widths):
        sheet.set_column(column, column, min(max(width, 6) + 2, 48))


def _wide(runs: Sequence[Run]) -> Iterator[list[Any]]:
    found = [quantities(run.summary) for run in runs]
    yield ["key", "unit", *(run.id for run in runs)]
    for key in dict.fromkeys(key for each in found for key in each):
        unit = next(each[key].unit for each in found if key in each)
        yield [key, unit, *(each[key].value if key in each else None for each in found)]


def _slices(runs: Sequence[Run]) -> Iterator[list[Any]]:
    """A line for each slice of each run; the measure whose quantiles it has is named."""
    rows = [
        {"run": run.id, "measure": cut.get("measure"), **row}
        for run in runs
        if (cut := run.summary.get("slices"))
        for row in cut["rows"]
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    yield names
    for row in rows:
        yield [row.get(name) for name in names]


def _xlsxwriter() -> Any:
    try:
        return import_module("xlsxwriter")
    except ImportError:
        raise MissingExtra("a workbook", "xlsx") from None
