"""`inferometer report`, `chart`, `dashboard` and `site`: runs as a report or a chart, and the store as web pages."""

import click

from inferometer.cli.options import json_option, quiet_option, store_option, work_in

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
    help="Format, if the path does not show it.",
)
@quiet_option
@json_option
@store_option
@work_in("inferometer.cli.work.pages:report")
def report() -> None:
    """Write a report: the verdict, the setup, the measurements with confidence intervals, the doubts, and how to
    reproduce it.

    RUN is an id or its prefix, a folder, `latest`, a tag, or a comma-separated list. Two runs are compared, more are
    shown side by side. EXPERIMENT is the id of an experiment. A report is one file and needs no network access; its
    data is aggregated, so it stays small.
    """


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
@work_in("inferometer.cli.work.chart:chart")
def chart() -> None:
    """Draw one chart of a RUN, of several RUNS (comma-separated, or a tag), or of an EXPERIMENT.

    Charts are rendered without a browser and without network access.
    """


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
@work_in("inferometer.cli.work.pages:dashboard")
def dashboard() -> None:
    """Serve the store as a web dashboard until Ctrl-C.

    The address is printed on stdout. The token is read from $INFEROMETER_TOKEN, or generated at each start.
    """


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
@work_in("inferometer.cli.work.pages:site")
def site() -> None:
    """Write the store as a static site, for GitHub Pages or any web server.

    Addresses, host names, commands and environment variables are left out, so the site can be published.
    """
