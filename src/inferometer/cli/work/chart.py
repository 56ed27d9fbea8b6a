"""Draws one chart of runs or of an experiment into a file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from inferometer.cli.errors import echo
from inferometer.cli.reports import MEASURE
from inferometer.cli.work.stores import store_of
from inferometer.errors import StoreError
from inferometer.record.files import replacing, write_text
from inferometer.show.charts.chart import Cannot, Chart
from inferometer.show.charts.registry import CHARTS, SCHEMA, render_png, render_svg
from inferometer.show.console import console, emit, plain_table
from inferometer.store.store import Store


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
    if list_charts:
        _print_list()
        return
    if run is None or name is None:
        raise click.UsageError("a run and a chart are needed: inferometer chart RUN NAME; --list shows the charts")
    made = _drawn(run, name, measures, store_of(store))
    if output in (None, "-"):
        echo(render_svg(made.spec, theme))
        return
    path = Path(str(output)).expanduser()
    write_chart(made, path, theme)
    if not quiet:
        echo(f"wrote {path}", err=True)


def _drawn(subject: str, name: str, measures: Sequence[str], store: Store) -> Chart:
    from inferometer.conduct.report import chart_of  # loads pages: not for --list

    try:
        return chart_of(subject, name, measures or [MEASURE], store)
    except Cannot as lacking:
        raise StoreError(
            f"{subject}: no chart {name}: {lacking}", "inferometer chart --list shows what each chart needs"
        ) from None


def write_chart(made: Chart, path: Path, theme: Any) -> None:
    match path.suffix.lower():
        case ".svg":
            write_text(path, render_svg(made.spec, theme))
        case ".png":
            with replacing(path) as draft:
                draft.write_bytes(render_png(made.spec, theme))
        case ".json":
            content = {"$schema": SCHEMA, **made.spec}
            write_text(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())
        case suffix:
            raise click.UsageError(f"unknown chart format {suffix or '(no suffix)'}: use .svg, .png or .json")


def _print_list() -> None:
    to = console(width=None if sys.stdout.isatty() else 120)
    table = plain_table("chart", "of", "shows", "needs", wrap="shows")
    for name, definition in CHARTS.items():
        table.add_row(name, definition.of, definition.title, definition.needs)
    emit(table, to)
