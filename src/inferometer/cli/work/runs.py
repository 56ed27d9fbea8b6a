"""Lists the stored runs, and shows one of them."""

import sys
from collections.abc import Sequence
from csv import writer
from pathlib import Path

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.work.printing import print_experiment, print_rosetta, print_run
from inferometer.cli.work.stores import store_of
from inferometer.errors import StoreError
from inferometer.record.files import schema_of
from inferometer.record.run import STATES
from inferometer.record.sanitize import cell
from inferometer.show.console import console, emit, print_json
from inferometer.show.runs import chosen_grid, csv_rows, entry_document, grid_lines, grid_table, runs_grid
from inferometer.store.entry import Entry

MANY = 200  # more lines than people read one by one


ENDLESS = 10_000


MOST_DAMAGED = 5


def _print_table(entries: Sequence[Entry], columns: list[str]) -> None:
    """Chosen columns are never truncated: lines may be longer than the terminal is wide."""
    to = console()
    grid = chosen_grid(entries, columns) if columns else runs_grid(entries, to.width)
    if len(entries) > MANY:
        echo("\n".join(grid_lines(grid)))
        return
    table = grid_table(grid)
    if columns:
        to.width = max(to.width, console(width=ENDLESS).measure(table).maximum)
    emit(table, to)


def _warn_of_damaged(entries: Sequence[Entry]) -> None:
    """Prints why damaged runs have no numbers, and what to do."""
    damaged = [entry for entry in entries if entry.damage]
    for entry in damaged[:MOST_DAMAGED]:
        print_message("warning", f"{entry.id}: damaged: {entry.damage}")
        print_message("hint", entry.remedy or "")
    if len(damaged) > MOST_DAMAGED:
        print_message(
            "warning", f"{len(damaged) - MOST_DAMAGED} more runs are damaged; inferometer store verify lists them"
        )


def list_runs(
    conditions: tuple[str, ...],
    sort: str | None,
    columns: str | None,
    limit: int,
    as_csv: bool,
    as_json: bool,
    store: str | None,
) -> None:
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    kept_in = store_of(store)
    named = [name.strip() for name in (columns or "").split(",") if name.strip()]
    entries = kept_in.runs(limit, where=conditions, sort=sort, columns=named)
    if as_json:
        print_json({"schema": schema_of("index"), "runs": [entry_document(entry, named) for entry in entries]})
    elif as_csv:
        writer(sys.stdout, lineterminator="\n").writerows(map(cell, row) for row in csv_rows(entries, named))
    elif entries:
        _print_table(entries, named)
        _warn_of_damaged(entries)
    else:
        held = " match" if conditions else f" in {kept_in} yet; create one: inferometer run"
        echo(f"no runs{held}", err=bool(conditions))


def show(
    run: str | None,
    partial: bool,
    again: bool,
    more: bool,
    measures: bool,
    slices: bool,
    tool: str | None,
    slowest: int,
    as_json: bool,
    store: Path | None,
) -> None:
    kept_in = store_of(store)
    try:
        kept = kept_in.load(run or "latest")
    except StoreError:
        from inferometer.conduct.report import experiment_named, readable_cases  # loads pages and charts

        experiment = experiment_named(run or "", kept_in)
        if experiment is None:
            raise
        print_experiment(experiment, readable_cases(experiment, kept_in), as_json=as_json)
        return
    if kept.verdict is None and not partial:
        hint = f"inferometer show {kept.id} --partial computes partial results from its logs"
        raise StoreError(f"{kept.id}: {STATES[kept.state]}", hint)
    if partial or again:
        from inferometer.conduct.run import measured_again, partial_run  # the conductor of runs: 80 modules

        kept = partial_run(kept, kept_in) if partial else kept
        kept = measured_again(kept) if again else kept
    if tool is not None:
        print_rosetta(kept, tool, as_json=as_json)
        return
    print_run(kept, as_json=as_json, slowest=slowest, more=more, measures=measures, slices=slices)
