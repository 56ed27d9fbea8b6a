"""A report as a file, in HTML, Markdown, CSV or a workbook, by the suffix of the path."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from markupsafe import Markup
from msgspec.structs import asdict

from inferometer import __version__
from inferometer.errors import MissingExtra, PlanError
from inferometer.measure.values import alike, quantities
from inferometer.record.files import replacing, translated_errors, write_text
from inferometer.record.run import Run
from inferometer.record.sanitize import cell, harmless
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.registry import contact_sheet, has_charts, render_png
from inferometer.show.report.document import (
    Bullets,
    Charts,
    Code,
    Report,
    ReportBlock,
    ReportTable,
    ReportText,
    Tiles,
    chart_scripts,
    chart_themes,
    figure,
    page,
    templates,
)

# -- markdown --------------------------------------------------------------------------------------------------------

Picture = Callable[[Chart], str | None]  # the path for a link to a chart's picture; None if there is none

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~])")


def as_markdown(report: Report, picture: Picture = lambda _chart: None) -> str:
    return "\n\n".join(part for part in _parts(report, picture) if part) + "\n"


def _parts(report: Report, picture: Picture) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield plain(report.subtitle)
    yield " ".join(filter(None, [f"**{plain(report.verdict.status.upper())}**", plain(report.verdict.text)]))
    yield _bullets(report.verdict.reasons)
    for section in report.sections:
        yield f"## {plain(section.title)}"
        for block in section.blocks:
            yield _block(block, picture)


def _block(block: ReportBlock, picture: Picture) -> str:
    match block:
        case ReportText():
            return plain(block.text)
        case Bullets():
            return _bullets(block.items)
        case ReportTable():
            return _table(block)
        case Code():
            return "\n\n".join(filter(None, [plain(block.title), _fenced(block.text)]))
        case Tiles():
            return ""  # the tables below have the same numbers
        case Charts():
            return "\n\n".join(_chart(chart, picture(chart)) for chart in block.charts)


def _bullets(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {plain(item)}" for item in items)


def _chart(chart: Chart, path: str | None) -> str:
    return f"- {plain(chart.title)}" if path is None else f"![{plain(chart.title)}]({path})"


def _table(block: ReportTable) -> str:
    """Markdown has no tables without a heading."""
    width = max((len(row) for row in block.rows), default=len(block.head))
    head = block.head or ("",) * width
    rule = ["--:" if at in block.right else ":--" for at in range(width)]
    rows = [[plain(name) for name in head], rule, *([_cell(cell.text) for cell in row] for row in block.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return plain(text)


def _fenced(text: str) -> str:
    """A fence longer than any in the text, so that the text cannot end it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def plain(text: str) -> str:
    """Text without markup, on one line."""
    return _SIGNS.sub(r"\\\1", " ".join(str(text).split()))


# -- numbers ---------------------------------------------------------------------------------------------------------

HEAD = ("run", "name", "started", "verdict", "key", "measure", "statistic", "value", "unit", "low", "high", "better")


def rows_of(runs: Sequence[Run]) -> Iterator[tuple[Any, ...]]:
    """A line for each number of each run; seconds, bytes and shares, as in the data."""
    for run in runs:
        name, status = run.plan.name, run.status
        about = (run.id, None if name is None else str(name), run.started_at, status)
        for quantity in quantities(run.summary).values():
            low, high = quantity.interval or (None, None)
            fields = (
                quantity.key,
                quantity.title,
                quantity.statistic,
                quantity.value,
                quantity.unit,
                low,
                high,
                quantity.direction,
            )
            yield (*about, *fields)


def as_csv(runs: Sequence[Run]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows([cell(value) for value in row] for row in rows_of(runs))
    return text.getvalue()


def write_workbook(runs: Sequence[Run], path: Path) -> None:
    """Sheets: every number, the numbers side by side, and each run over time."""
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
    by_run = alike([run.summary for run in runs])
    yield ["key", "unit", *(run.id for run in runs)]
    for key in dict.fromkeys(key for numbers in by_run for key in numbers):
        unit = next(numbers[key].unit for numbers in by_run if key in numbers)
        yield [key, unit, *(numbers[key].value if key in numbers else None for numbers in by_run)]


def _slices(runs: Sequence[Run]) -> Iterator[list[Any]]:
    """A line for each slice of each run, with the name of the measure of its quantiles."""
    rows = [
        {"run": run.id, "measure": cut.measure, **asdict(row)}
        for run in runs
        if (cut := run.summary.slices)
        for row in cut.rows
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


# -- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class ReportWithRuns:
    """A report and its runs; numbers for programs are computed from the runs."""

    report: Report
    runs: Sequence[Run]


def write_report(what: ReportWithRuns, path: Path) -> list[Path]:
    """Returns all written files. A folder gets a picture of each chart."""
    if not path.suffix or path.is_dir():
        return _pictures(what.report.charts, path)
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise PlanError(f"{path}: unknown report format {path.suffix}", f"there are {', '.join(WRITERS)}, and folders")
    with translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return writer(what, path)


def _html(what: ReportWithRuns, path: Path) -> list[Path]:

    write_text(path, as_html(what.report))
    return [path]


def _markdown(what: ReportWithRuns, path: Path) -> list[Path]:
    folder = path.with_name(f"{path.stem}_files")
    drawn = _pictures(what.report.charts, folder) if what.report.charts and has_charts() else []
    names = {picture.stem: f"{folder.name}/{picture.name}".replace(" ", "%20") for picture in drawn}
    write_text(path, harmless(as_markdown(what.report, lambda chart: names.get(chart.name))))
    return [path, *drawn]


def _png(what: ReportWithRuns, path: Path) -> list[Path]:
    charts = _some(what.report.charts, path)
    with replacing(path) as draft:
        draft.write_bytes(contact_sheet(charts))
    return [path]


def _csv(what: ReportWithRuns, path: Path) -> list[Path]:
    write_text(path, as_csv(what.runs))
    return [path]


def _xlsx(what: ReportWithRuns, path: Path) -> list[Path]:
    with replacing(path) as draft:
        write_workbook(what.runs, draft)
    return [path]


def _pictures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """One PNG per chart, with the chart's name."""
    written = []
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for chart in _some(charts, folder):
        path = folder / f"{chart.name}.png"
        with replacing(path) as draft:
            draft.write_bytes(render_png(chart.spec))
        written.append(path)
    return written


def _some(charts: Sequence[Chart], path: Path) -> Sequence[Chart]:
    if not charts:
        raise PlanError(
            f"{path}: no chart can be drawn from this", "write the report as .html or .md: it shows the reason"
        )
    return charts


WRITERS: dict[str, Callable[[ReportWithRuns, Path], list[Path]]] = {
    ".html": _html,
    ".md": _markdown,
    ".png": _png,
    ".csv": _csv,
    ".xlsx": _xlsx,
}

# -- html ------------------------------------------------------------------------------------------------------------

_NAMES: dict[type[ReportBlock], str] = {  # in the template; a block without a name is an error, not an empty section
    ReportText: "text",
    Bullets: "bullets",
    Tiles: "tiles",
    ReportTable: "table",
    Code: "code",
    Charts: "charts",
}
WITHOUT = "This report has no charts: they need the extra 'charts' (pip install 'inferometer[charts]')."


def as_html(report: Report) -> str:
    drawn = bool(report.charts) and has_charts()
    body = (
        templates()
        .get_template("report.html")
        .render(
            report=report,
            version=__version__,
            name_of=lambda block: _NAMES[type(block)],
            figures=lambda block: figures(block) if drawn else Markup("<p>{}</p>").format(WITHOUT),
        )
    )
    themes = chart_themes() if drawn else Markup("")
    return page(f"{report.title}: {report.verdict.status}", Markup(body) + themes, chart_scripts() if drawn else [])


def figures(block: Charts) -> Markup:
    return Markup('<div class="charts">{}</div>').format(Markup("\n").join(figure(chart) for chart in block.charts))
