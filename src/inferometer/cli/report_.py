"""`inferometer report`: what runs tell, as one file to read, keep and send."""

import sys
from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, quiet_option, store_of, store_option

EXAMPLES = """\b
Examples:
  inferometer report
      the latest run as report-<id>.html: one file that opens anywhere
  inferometer report latest~1 latest -o change.html
      two runs: what changed, with intervals
  inferometer report nightly,latest -o nightly.md
      every run with the tag nightly and the latest, as Markdown with pictures
  inferometer report latest -o charts/
      one picture for each chart
  inferometer report latest -o numbers.xlsx
  inferometer report latest -f csv -o - | head
"""


@click.command(epilog=EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN|EXPERIMENT]...")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="What to write: .html, .md, .png, .csv or .xlsx, or a folder for one picture of each chart; - for stdout. "
    "[default: report-<id>.html]",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["html", "md", "png", "csv", "xlsx"]),
    help="The form, where the path does not tell.",
)
@quiet_option
@json_option
@store_option
def report(runs: tuple[str, ...], output: str | None, form: str | None, quiet: bool, as_json: bool, store: Any) -> None:
    """Write a report: the verdict first, then what was done, what was measured with intervals, what to doubt and how
    to do it again.

    RUN is an id, the beginning of one, a folder, `latest`, a tag, or several with commas between them. Two of them are
    compared, more are shown side by side. EXPERIMENT is the id of one. A report is one file and needs no network: its
    data is aggregated, so it stays small.
    """
    from inferometer.conduct.report import name_of, told_of
    from inferometer.show.report.writing import write_report

    kept_in = store_of(store)
    what = told_of(runs or ("latest",), kept_in)
    if output == "-":
        _stream(what, form)
        return
    path = _path(output, form, name_of(what, runs))
    written = write_report(what, path)
    if as_json:
        from inferometer.cli.printing import print_json

        print_json({"written": [str(each) for each in written], "verdict": what.report.verdict.word}, "report")
    elif not quiet:
        echo(f"wrote {_told(written)}", err=True)


def _path(output: str | None, form: str | None, name: str) -> Path:
    """A path that ends with a slash is a folder, even one that is not there yet."""
    if output is None:
        return Path(f"report-{name}.{form or 'html'}")
    path = Path(output).expanduser()
    if output.endswith("/"):
        path.mkdir(parents=True, exist_ok=True)
    return path if form is None or path.suffix == f".{form}" else path.with_name(f"{path.name}.{form}")


def _told(written: list[Path]) -> str:
    return str(written[0]) if len(written) == 1 else f"{written[0]} and {len(written) - 1} more files"


def _stream(what: Any, form: str | None) -> None:
    """To stdout, in one piece; what is for eyes only is not poured into a terminal."""
    from tempfile import TemporaryDirectory

    from inferometer.show.report.writing import write_report

    form = form or "html"
    if sys.stdout.isatty() and form in ("png", "xlsx", "html"):
        raise click.UsageError(f"{form} is not for a terminal: -o FILE, or send it somewhere")
    with TemporaryDirectory() as folder:
        written = write_report(what, Path(folder) / f"report.{form}")
        sys.stdout.buffer.write(written[0].read_bytes())
        sys.stdout.buffer.flush()
