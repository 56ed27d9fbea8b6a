"""`inferometer export`: kept runs in other tools' formats."""

import sys
from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import echo, say
from inferometer.cli.options import quiet_option, store_of, store_option

EXAMPLES = """\b
Examples:
  inferometer export latest --as vllm -o result.json
      the JSON that vllm bench serve writes, under vLLM's definitions
  inferometer export latest --as vllm --detailed -o -
      with every request in it, to stdout
  inferometer export latest --as github-action-benchmark -o bench/
      bigger.json, smaller.json and observe.json
  inferometer export latest latest~1 --as openmetrics -o runs.om
      several runs in one text
  inferometer export --list
      the formats there are
"""


@click.command(epilog=EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--as", "name", metavar="FORMAT", help="Which format; --list shows them.")
@click.option("-o", "--output", metavar="PATH", help="A file, or a folder where there are several; - for stdout.")
@click.option("--detailed", is_flag=True, help="With every request, where the format has a place for it (vllm).")
@click.option("--list", "list_formats", is_flag=True, help="List the formats and end.")
@quiet_option
@store_option
def export(
    runs: tuple[str, ...],
    name: str | None,
    output: str | None,
    detailed: bool,
    list_formats: bool,
    quiet: bool,
    store: Any,
) -> None:
    """Write RUNs in another tool's format.

    RUN is an id, the beginning of one, a folder, `latest` or `latest~1`; the latest without any.
    """
    from inferometer.exchange.exporting import registry

    if list_formats:
        _print_formats()
        return
    if name is None:
        raise click.UsageError("which format? --as FORMAT; --list shows the formats there are")
    registry.format_named(name)
    kept = _kept(runs or ("latest",), store)
    if output is None and name == "parquet" and sys.stdout.isatty():
        raise click.UsageError("parquet is not for a terminal: -o FILE, or -o - if you mean it")
    if output is None or output == "-":
        notes = registry.stream(name, kept, sys.stdout.buffer, detailed=detailed)
        sys.stdout.buffer.flush()
        written: list[Path] = []
    else:
        written, notes = registry.write(name, kept, _path(output), detailed=detailed)
    if not quiet:
        for note in notes:
            say("note", note)
        for path in written:
            echo(f"wrote {path}", err=True)


def _path(output: str) -> Path:
    """A path that ends with a slash is a folder, even one that is not there yet."""
    path = Path(output).expanduser()
    if output.endswith("/"):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _kept(runs: tuple[str, ...], store: Any) -> list[Any]:
    from inferometer.errors import StoreError
    from inferometer.record.run import STATES

    kept_in = store_of(store)
    found = [kept_in.load(each) for each in runs]
    for run in found:
        if run.verdict is None:
            raise StoreError(f"{run.id}: {STATES[run.state]}", f"inferometer show {run.id} --partial")
    return found


def _print_formats() -> None:
    from inferometer.exchange.exporting.registry import FORMATS
    from inferometer.show.console import console, emit, plain_table

    table = plain_table("format", "what it is", wrap="what it is")
    for name, each in FORMATS.items():
        table.add_row(name, f"{each.about}{' (a folder)' if each.folder else ''}")
    emit(table, console())
