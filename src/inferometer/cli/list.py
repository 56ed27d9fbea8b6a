"""`inferometer list`: the kept runs, filtered and sorted by anything that is known of them."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.store.entry import Entry

MANY = 200  # lines that nobody reads one by one
ENDLESS = 10_000
MOST_DAMAGED = 5

EXAMPLES = """\b
Examples:
  inferometer list --where model=~llama --where 'ttft p99 < 500ms'
      both must hold; =~ finds a pattern anywhere, small or capital
  inferometer list --where plan.load.rate=10 --sort -output_rate
      by a setting of the plan, the most tokens per second first
  inferometer list --where tag=nightly --where 'started>2026-11-01'
  inferometer list --columns id,model,ttft.p99,output_rate,plan.load.rate --csv > runs.csv
"""


def _print_table(entries: "Sequence[Entry]", columns: list[str]) -> None:
    """Chosen columns are never cut: where they do not fit, lines are longer than the terminal is wide."""
    from inferometer.show.console import console, emit
    from inferometer.show.runs import chosen_grid, grid_lines, grid_table, runs_grid

    to = console()
    grid = chosen_grid(entries, columns) if columns else runs_grid(entries, to.width)
    if len(entries) > MANY:
        echo("\n".join(grid_lines(grid)))
        return
    table = grid_table(grid)
    if columns:
        to.width = max(to.width, console(width=ENDLESS).measure(table).maximum)
    emit(table, to)


def _warn_of_damaged(entries: "Sequence[Entry]") -> None:
    """Why they have no numbers, and what to do."""
    from inferometer.cli.errors import say

    damaged = [entry for entry in entries if entry.damage]
    for entry in damaged[:MOST_DAMAGED]:
        say("warning", f"{entry.id}: damaged: {entry.damage}")
        say("hint", entry.remedy or "")
    if len(damaged) > MOST_DAMAGED:
        say("warning", f"{len(damaged) - MOST_DAMAGED} more are damaged; inferometer store verify names them all")


@click.command("list", epilog=EXAMPLES)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only runs for which this holds: NAME, then one of = != < <= > >= =~ !~, then a value. Repeatable.",
)
@click.option("--sort", metavar="NAME", help="By any name; -NAME has the largest first. [default: the newest first]")
@click.option("--columns", metavar="NAME,...", help="What to show of each run, instead of the usual.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="At most so many."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values; seconds and per second.")
@json_option
@store_option
def list_runs(
    conditions: tuple[str, ...],
    sort: str | None,
    columns: str | None,
    limit: int,
    as_csv: bool,
    as_json: bool,
    store: str | None,
) -> None:
    """List the kept runs, newest first.

    A NAME is a column (id, started, state, kind, source, verdict, name, model, target, engine, engine_version, commit,
    hardware, requests, tag, baseline, experiment, case), a measure with its statistic (ttft.p99, output_rate), or a
    setting of the plan (plan.load.rate).
    """
    from inferometer.cli.printing import print_json
    from inferometer.record.schema import schema_of
    from inferometer.show.runs import csv_rows, entry_document

    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two ways to print: choose one")
    kept_in = store_of(store)
    named = [name.strip() for name in (columns or "").split(",") if name.strip()]
    entries = kept_in.runs(limit, where=conditions, sort=sort, columns=named)
    if as_json:
        print_json({"schema": schema_of("index"), "runs": [entry_document(entry, named) for entry in entries]})
    elif as_csv:
        from csv import writer

        from inferometer.record.sanitize import cell

        writer(sys.stdout, lineterminator="\n").writerows(map(cell, row) for row in csv_rows(entries, named))
    elif entries:
        _print_table(entries, named)
        _warn_of_damaged(entries)
    else:
        held = " for which this holds" if conditions else f" in {kept_in} yet; make one: inferometer run"
        echo(f"no runs{held}", err=bool(conditions))
