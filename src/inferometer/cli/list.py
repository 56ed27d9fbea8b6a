"""`inferometer list`: the kept runs."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, store_of, store_option


@click.command("list")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="At most so many."
)
@json_option
@store_option
def list_runs(limit: int, as_json: bool, store: Path | None) -> None:
    """List the kept runs, newest first."""
    from inferometer.cli.printing import print_json
    from inferometer.record.schema import schema_of
    from inferometer.show.console import console, emit
    from inferometer.show.runs import entry_document, runs_table
    from inferometer.store.index import Index

    entries = Index(store_of(store)).runs(limit)
    if as_json:
        print_json({"schema": schema_of("index"), "runs": [entry_document(entry) for entry in entries]})
    elif entries:
        to = console()
        emit(runs_table(entries, to.width), to)
    else:
        click.echo(f"no runs in {store_of(store)} yet; make one: inferometer run")
