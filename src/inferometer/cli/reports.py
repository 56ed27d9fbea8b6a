"""`inferometer report`, `chart`, `dashboard` and `site`: runs as a file to read or as a chart, and the store as web
pages."""

import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.options import json_option, quiet_option, store_of, store_option
from inferometer.errors import StoreError
from inferometer.record.files import replacing, write_text
from inferometer.show.console import console, emit, plain_table

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
        from inferometer.show.charts.registry import render_svg

        echo(render_svg(made.spec, theme))
        return
    path = Path(str(output)).expanduser()
    write_chart(made, path, theme)
    if not quiet:
        echo(f"wrote {path}", err=True)


def _drawn(subject: str, name: str, measures: Sequence[str], store: "Store") -> "Chart":
    from inferometer.conduct.report import chart_of
    from inferometer.show.charts.chart import Cannot

    try:
        return chart_of(subject, name, measures or [MEASURE], store)
    except Cannot as lacking:
        raise StoreError(
            f"{subject}: no chart {name}: {lacking}", "inferometer chart --list shows what each chart needs"
        ) from None


def write_chart(made: "Chart", path: Path, theme: Any) -> None:
    from inferometer.show.charts.registry import SCHEMA, render_png, render_svg

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

    to = console(width=None if sys.stdout.isatty() else 120)
    table = plain_table("chart", "of", "shows", "needs", wrap="shows")
    for name, definition in CHARTS.items():
        table.add_row(name, definition.of, definition.title, definition.needs)
    emit(table, to)


EVERYWHERE = ("0.0.0.0", "::")


DASHBOARD_EXAMPLES = """\b
Examples:
  inferometer dashboard
      at http://127.0.0.1:8765/, reachable only from this machine, read-only
  inferometer dashboard --port 0 --open
      use any free port and open the browser
  inferometer dashboard --host 0.0.0.0
      reachable from other machines: a token is generated and printed with the address
  inferometer dashboard --write
      allow pages to set tags and baselines and to delete runs
"""


@click.command(epilog=DASHBOARD_EXAMPLES)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 means all interfaces."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 means any free port."
)
@click.option(
    "--token",
    "require_token",
    is_flag=True,
    help="Require a token on this machine too. Other addresses always require one.",
)
@click.option("--write", is_flag=True, help="Allow pages to set tags and baselines and to delete runs.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in the browser.")
@store_option
def dashboard(host: str, port: int, require_token: bool, write: bool, opens: bool, store: str | None) -> int:
    """Serve the store as a web dashboard until Ctrl-C.

    The address is printed on stdout. The token is read from $INFEROMETER_TOKEN, or generated at each start.
    """
    from inferometer.conduct.report import new_token, serve_dashboard
    from inferometer.show.dashboard.access import is_loopback

    kept_in = store_of(store)
    given = os.environ.get("INFEROMETER_TOKEN") or None
    token = given or new_token() if require_token or not is_loopback(host) else None

    def ready(address: str) -> None:
        shown = f"{address}?token={token}" if token and not given else address
        print_message("note", f"{kept_in}, {'pages can change it' if write else 'read-only'}; Ctrl-C stops it")
        if host in EVERYWHERE:
            print_message(
                "note",
                f"from other machines use this machine's name, for example {socket.gethostname()}, and the same port",
            )
        if token and given:
            print_message("note", "log in with the token of $INFEROMETER_TOKEN")
        echo(shown)
        if opens:
            click.launch(shown)

    serve_dashboard(kept_in, host=host, port=port, token=token, write=write, ready=ready)
    _leave()
    return 0


def _leave() -> None:
    """At once: a thread that still makes an answer cannot be stopped, and Python would wait for it."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


SITE_EXAMPLES = """\b
Examples:
  inferometer site -o public/
      repeat after each run: only changed files are written
  inferometer site -o public/ --where tag=nightly
      only some runs, selected as in inferometer list
  python -m http.server --directory public
      view the site; opening public/index.html from disk works too
"""


@click.command(epilog=SITE_EXAMPLES)
@click.option(
    "--output", "-o", default="public", show_default=True, metavar="FOLDER", help="Folder to write the site to."
)
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION", help="Include only matching runs. Repeatable."
)
@click.option(
    "--charts",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Draw run charts for the N newest runs; histories are always drawn.",
)
@json_option
@quiet_option
@store_option
def site(output: str, conditions: tuple[str, ...], charts: int, as_json: bool, quiet: bool, store: str | None) -> None:
    """Write the store as a static site, for GitHub Pages or any web server.

    Addresses, host names, commands and environment variables are left out, so the site can be published.
    """
    from inferometer.cli.printing import print_json
    from inferometer.conduct.report import site as write_site

    built = write_site(Path(output).expanduser(), store_of(store), where=conditions, charts=charts)
    if as_json:
        print_json(built.document(), "site")
    elif not quiet:
        echo(f"{built.path}: {built.runs:,} runs; {len(built.written)} files written, {len(built.removed)} removed")
    if built.unreadable:
        some = ", ".join(built.unreadable[:3]) + (", ..." if len(built.unreadable) > 3 else "")
        many = "run" if len(built.unreadable) == 1 else "runs"
        print_message("warning", f"{len(built.unreadable)} {many} could not be read and are not shown: {some}")
