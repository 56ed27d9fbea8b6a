"""Writes runs in the formats of other tools."""

import sys
from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.work.stores import store_of
from inferometer.errors import StoreError
from inferometer.exchange import exporting
from inferometer.exchange.exporting import FORMATS
from inferometer.record.run import STATES
from inferometer.show.console import console, emit, plain_table


def export(
    runs: tuple[str, ...],
    name: str | None,
    output: str | None,
    detailed: bool,
    list_formats: bool,
    quiet: bool,
    store: Any,
) -> None:
    if list_formats:
        _print_export_formats()
        return
    if name is None:
        raise click.UsageError("no format given: use --as FORMAT; --list shows the formats")
    exporting.format_named(name)
    kept = _kept(runs or ("latest",), store)
    if output is None and name == "parquet" and sys.stdout.isatty():
        raise click.UsageError("parquet is binary and not printed to a terminal: use -o FILE, or -o - to force it")
    if output is None or output == "-":
        notes = exporting.stream(name, kept, sys.stdout.buffer, detailed=detailed)
        sys.stdout.buffer.flush()
        written: list[Path] = []
    else:
        written, notes = exporting.write(name, kept, _path(output), detailed=detailed)
    if not quiet:
        for note in notes:
            print_message("note", note)
        for path in written:
            echo(f"wrote {path}", err=True)


def _path(output: str) -> Path:
    """A path that ends with a slash is a folder, even if it does not exist yet."""
    path = Path(output).expanduser()
    if output.endswith("/"):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _kept(runs: tuple[str, ...], store: Any) -> list[Any]:
    kept_in = store_of(store)
    loaded = [kept_in.load(name) for name in runs]
    for run in loaded:
        if run.verdict is None:
            raise StoreError(f"{run.id}: {STATES[run.state]}", f"inferometer show {run.id} --partial")
    return loaded


def _print_export_formats() -> None:
    table = plain_table("format", "description", wrap="description")
    for name, format_ in FORMATS.items():
        table.add_row(name, f"{format_.about}{' (a folder)' if format_.folder else ''}")
    emit(table, console())
