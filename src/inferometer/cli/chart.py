"""`inferometer chart`: one chart as a picture, or as its specification."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import quiet_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.show.charts.chart import Chart
    from inferometer.store.store import Store

EXAMPLES = """\b
Examples:
  inferometer chart latest ttft_cdf -o ttft.svg
  inferometer chart latest requests -o lanes.png --theme dark
  inferometer chart latest~1,latest comparison -o change.svg
  inferometer chart nightly history --measure ttft.p99 -o ttft-over-time.png
      a measure of all runs with the tag nightly, with where its level changed
  inferometer chart latest in_flight -o in_flight.json
      the Vega-Lite specification, for a page or a notebook of your own
  inferometer chart --list
"""
MEASURE = "ttft.p50"


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False, metavar="[RUN|RUNS|EXPERIMENT]")
@click.argument("name", required=False)
@click.option("-o", "--output", metavar="FILE", help="What to write: .svg, .png or .json; - for SVG on stdout.")
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="The colours.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help=f"What history and experiment charts show. Repeatable for history. [default: {MEASURE}]",
)
@click.option("--list", "list_charts", is_flag=True, help="List the charts, what each needs, and end.")
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
    """Draw one chart of a RUN, of several RUNS (with commas between them, or a tag), or of an EXPERIMENT.

    Pictures are made without a browser and without the network.
    """
    if list_charts:
        _print_list()
        return
    if run is None or name is None:
        raise click.UsageError("which chart of which run? inferometer chart RUN NAME; --list shows the charts")
    made = _drawn(run, name, measures, store_of(store))
    if output in (None, "-"):
        from inferometer.show.charts.rendering import render_svg

        echo(render_svg(made.spec, theme))
        return
    path = Path(str(output)).expanduser()
    _write(made, path, theme)
    if not quiet:
        echo(f"wrote {path}", err=True)


def _drawn(said: str, name: str, measures: Sequence[str], store: "Store") -> "Chart":
    from inferometer.conduct.report import chart_of
    from inferometer.errors import StoreError
    from inferometer.show.charts.chart import Cannot

    try:
        return chart_of(said, name, measures or [MEASURE], store)
    except Cannot as lacking:
        raise StoreError(
            f"{said}: no chart {name}: {lacking}", "inferometer chart --list tells what each needs"
        ) from None


def _write(made: "Chart", path: Path, theme: Any) -> None:
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
            raise click.UsageError(f"no chart ends in {suffix or 'nothing'}: .svg, .png or .json")


def _print_list() -> None:
    from inferometer.show.charts.registry import CHARTS
    from inferometer.show.console import console, emit, plain_table

    to = console(width=None if sys.stdout.isatty() else 120)
    table = plain_table("chart", "of", "shows", "needs", wrap="shows")
    for name, definition in CHARTS.items():
        table.add_row(name, definition.of, definition.title, definition.needs)
    emit(table, to)
