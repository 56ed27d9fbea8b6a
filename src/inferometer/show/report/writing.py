"""A report as files: which form by the suffix of the path."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.record.files import replacing, told, write_text
from inferometer.record.harmless import harmless
from inferometer.record.run import Run
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.rendering import has_charts, render_png
from inferometer.show.charts.sheet import contact_sheet
from inferometer.show.report.document import Report
from inferometer.show.report.markdown import as_markdown
from inferometer.show.report.numbers import as_csv, write_workbook


@dataclass(frozen=True, eq=False, slots=True)
class Told:
    """A report and the runs that it is of; numbers for programs are made of the runs."""

    report: Report
    runs: Sequence[Run]


def write_report(what: Told, path: Path) -> list[Path]:
    """Everything that was written. A folder gets a picture of each chart."""
    if not path.suffix or path.is_dir():
        return _pictures(what.report.charts, path)
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise PlanError(f"{path}: no report ends in {path.suffix}", f"there are {', '.join(WRITERS)}, and folders")
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return writer(what, path)


def _html(what: Told, path: Path) -> list[Path]:
    from inferometer.show.report.html import as_html

    write_text(path, as_html(what.report))
    return [path]


def _markdown(what: Told, path: Path) -> list[Path]:
    folder = path.with_name(f"{path.stem}_files")
    drawn = _pictures(what.report.charts, folder) if what.report.charts and has_charts() else []
    names = {picture.stem: f"{folder.name}/{picture.name}".replace(" ", "%20") for picture in drawn}
    write_text(path, harmless(as_markdown(what.report, lambda chart: names.get(chart.name))))
    return [path, *drawn]


def _png(what: Told, path: Path) -> list[Path]:
    charts = _some(what.report.charts, path)
    with replacing(path) as draft:
        draft.write_bytes(contact_sheet(charts))
    return [path]


def _csv(what: Told, path: Path) -> list[Path]:
    write_text(path, as_csv(what.runs))
    return [path]


def _xlsx(what: Told, path: Path) -> list[Path]:
    with replacing(path) as draft:
        write_workbook(what.runs, draft)
    return [path]


def _pictures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """One PNG per chart, named as the chart."""
    written = []
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for chart in _some(charts, folder):
        path = folder / f"{chart.name}.png"
        with replacing(path) as draft:
            draft.write_bytes(render_png(chart.spec))
        written.append(path)
    return written


def _some(charts: Sequence[Chart], path: Path) -> Sequence[Chart]:
    if not charts:
        raise PlanError(f"{path}: there is no chart of this to draw", "write the report as .html or .md: it says why")
    return charts


WRITERS: dict[str, Callable[[Told, Path], list[Path]]] = {
    ".html": _html,
    ".md": _markdown,
    ".png": _png,
    ".csv": _csv,
    ".xlsx": _xlsx,
}
