"""`inferometer report` and `inferometer chart`: runs as one file to read, or as one chart."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, quiet_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.show.charts.chart import Chart
    from inferometer.store.store import Store


REPORT_EXAMPLES = """\b
Examples:
  inferometer report
      the latest run as report-<id>.html: one file that opens anywhere
  inferometer report latest~1 latest -o change.html
      compare two runs, with confidence intervals
  inferometer report nightly,latest -o nightly.md
      every run with the tag nightly and the latest run, as Markdown with images
  inferometer report latest -o charts/
      one image per chart
  inferometer report latest -o numbers.xlsx
  inferometer report latest -f csv -o - | head
"""


@click.command(epilog=REPORT_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN|EXPERIMENT]...")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Output file: .html, .md, .png, .csv or .xlsx, or a folder for one image per chart; - means stdout. "
    "[default: report-<id>.html]",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["html", "md", "png", "csv", "xlsx"]),
    help="Format, if it does not follow from the path.",
)
@quiet_option
@json_option
@store_option
def report(runs: tuple[str, ...], output: str | None, form: str | None, quiet: bool, as_json: bool, store: Any) -> None:
    """Write a report: the verdict, the setup, the measurements with confidence intervals, the doubts, and how to
    reproduce it.

    RUN is an id or its prefix, a folder, `latest`, a tag, or a comma-separated list. Two runs are compared, more are
    shown side by side. EXPERIMENT is the id of an experiment. A report is one file and needs no network access; its
    data is aggregated, so it stays small.
    """
    from inferometer.conduct.report import build_report, name_of
    from inferometer.show.report.writing import write_report

    kept_in = store_of(store)
    what = build_report(runs or ("latest",), kept_in)
    if output == "-":
        _stream(what, form)
        return
    path = _path(output, form, name_of(what, runs))
    written = write_report(what, path)
    if as_json:
        from inferometer.cli.printing import print_json

        print_json({"written": [str(file) for file in written], "verdict": what.report.verdict.status}, "report")
    elif not quiet:
        echo(f"wrote {_files_text(written)}", err=True)


def _path(output: str | None, form: str | None, name: str) -> Path:
    """A path that ends with a slash is a folder, even one that is not there yet."""
    if output is None:
        return Path(f"report-{name}.{form or 'html'}")
    path = Path(output).expanduser()
    if output.endswith("/"):
        path.mkdir(parents=True, exist_ok=True)
    return path if form is None or path.suffix == f".{form}" else path.with_name(f"{path.name}.{form}")


def _files_text(written: list[Path]) -> str:
    return str(written[0]) if len(written) == 1 else f"{written[0]} and {len(written) - 1} more files"


def _stream(what: Any, form: str | None) -> None:
    """To stdout, in one piece; what is for eyes only is not poured into a terminal."""
    from tempfile import TemporaryDirectory

    from inferometer.show.report.writing import write_report

    form = form or "html"
    if sys.stdout.isatty() and form in ("png", "xlsx", "html"):
        raise click.UsageError(f"{form} is not printed to a terminal: use -o FILE, or redirect stdout")
    with TemporaryDirectory() as folder:
        written = write_report(what, Path(folder) / f"report.{form}")
        sys.stdout.buffer.write(written[0].read_bytes())
        sys.stdout.buffer.flush()


CHART_EXAMPLES = """\b
Examples:
  inferometer chart latest ttft_cdf -o ttft.svg
  inferometer chart latest requests -o lanes.png --theme dark
  inferometer chart latest~1,latest comparison -o change.svg
  inferometer chart nightly history --measure ttft.p99 -o ttft-over-time.png
      a measure over all runs with the tag nightly, with its change points
  inferometer chart latest in_flight -o in_flight.json
      the Vega-Lite specification, for your own page or notebook
  inferometer chart --list
"""


MEASURE = "ttft.p50"


@click.command(epilog=CHART_EXAMPLES)
@click.argument("run", required=False, metavar="[RUN|RUNS|EXPERIMENT]")
@click.argument("name", required=False)
@click.option("-o", "--output", metavar="FILE", help="Output file: .svg, .png or .json; - writes SVG to stdout.")
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="Colour theme.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help=f"Measure of history and experiment charts. Repeatable for history. [default: {MEASURE}]",
)
@click.option("--list", "list_charts", is_flag=True, help="List the charts and what each needs, then exit.")
@quiet_option
@store_option
def chart(
    run: str | None,
    name: str | None,
    output: str | None,
    theme: Any,
    measures: tuple[str, ...],
    list_charts: bool,
    quiet: bool,
    store: Any,
) -> None:
    """Draw one chart of a RUN, of several RUNS (comma-separated, or a tag), or of an EXPERIMENT.

    Charts are rendered without a browser and without network access.
    """
    if list_charts:
        _print_list()
        return
    if run is None or name is None:
        raise click.UsageError("a run and a chart are needed: inferometer chart RUN NAME; --list shows the charts")
    made = _drawn(run, name, measures, store_of(store))
    if output in (None, "-"):
        from inferometer.show.charts.rendering import render_svg

        echo(render_svg(made.spec, theme))
        return
    path = Path(str(output)).expanduser()
    write_chart(made, path, theme)
    if not quiet:
        echo(f"wrote {path}", err=True)


def _drawn(subject: str, name: str, measures: Sequence[str], store: "Store") -> "Chart":
    from inferometer.conduct.report import chart_of
    from inferometer.errors import StoreError
    from inferometer.show.charts.chart import Cannot

    try:
        return chart_of(subject, name, measures or [MEASURE], store)
    except Cannot as lacking:
        raise StoreError(
            f"{subject}: no chart {name}: {lacking}", "inferometer chart --list shows what each chart needs"
        ) from None


def write_chart(made: "Chart", path: Path, theme: Any) -> None:
    from inferometer.record.files import replacing, write_text
    from inferometer.show.charts.rendering import SCHEMA, render_png, render_svg

    match path.suffix.lower():
        case ".svg":
            write_text(path, render_svg(made.spec, theme))
        case ".png":
            with replacing(path) as draft:
                draft.write_bytes(render_png(made.spec, theme))
        case ".json":
            import orjson

            content = {"$schema": SCHEMA, **made.spec}
            write_text(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())
        case suffix:
            raise click.UsageError(f"unknown chart format {suffix or '(no suffix)'}: use .svg, .png or .json")


def _print_list() -> None:
    from inferometer.show.charts.registry import CHARTS
    from inferometer.show.console import console, emit, plain_table

    to = console(width=None if sys.stdout.isatty() else 120)
    table = plain_table("chart", "of", "shows", "needs", wrap="shows")
    for name, definition in CHARTS.items():
        table.add_row(name, definition.of, definition.title, definition.needs)
    emit(table, to)
