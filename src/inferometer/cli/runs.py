"""`inferometer list` and `inferometer show`: the stored runs, filtered and sorted, and one of them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, run_argument, slowest_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.store.entry import Entry


MANY = 200  # lines that nobody reads one by one


ENDLESS = 10_000


MOST_DAMAGED = 5


EXAMPLES = """\b
Examples:
  inferometer list --where model=~llama --where 'ttft p99 < 500ms'
      both conditions must hold; =~ matches a regular expression anywhere, ignoring case
  inferometer list --where plan.load.rate=10 --sort -output_rate
      filter by a setting of the plan, highest token throughput first
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
    from inferometer.cli.errors import print_message

    damaged = [entry for entry in entries if entry.damage]
    for entry in damaged[:MOST_DAMAGED]:
        print_message("warning", f"{entry.id}: damaged: {entry.damage}")
        print_message("hint", entry.remedy or "")
    if len(damaged) > MOST_DAMAGED:
        print_message(
            "warning", f"{len(damaged) - MOST_DAMAGED} more runs are damaged; inferometer store verify lists them"
        )


@click.command("list", epilog=EXAMPLES)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Show only matching runs: NAME, then one of = != < <= > >= =~ !~, then a value. Repeatable.",
)
@click.option(
    "--sort", metavar="NAME", help="Sort by any name; -NAME sorts in descending order. [default: newest first]"
)
@click.option("--columns", metavar="NAME,...", help="Columns to show instead of the default ones.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Maximum number of runs."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, in seconds and per second.")
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
        raise click.UsageError("--csv and --json exclude each other")
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
        held = " match" if conditions else f" in {kept_in} yet; create one: inferometer run"
        echo(f"no runs{held}", err=bool(conditions))


@click.command()
@run_argument(required=False)
@click.option("--partial", is_flag=True, help="Compute partial results from the logs of a killed or running run.")
@click.option("--again", is_flag=True, help="Compute numbers and verdict again from the records; stores nothing.")
@click.option("--more", is_flag=True, help="Also show the plan, delivery, server, GPUs and all notes.")
@click.option("--measures", is_flag=True, help="Show every measure with all statistics and confidence intervals.")
@click.option("--slices", is_flag=True, help="Show the numbers over time.")
@click.option(
    "--as",
    "tool",
    metavar="TOOL",
    help="Also compute the numbers as vllm, sglang, guidellm, inference-perf, aiperf or mlperf define them.",
)
@slowest_option
@json_option
@store_option
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
    """Show RUN. Default: the latest run.

    RUN is an id or its prefix, a folder, `latest`, `latest~1`, a tag or a baseline. The id of a search, a sweep or an
    A/B test shows its answer.
    """
    from inferometer.cli.printing import print_experiment, print_run
    from inferometer.errors import StoreError
    from inferometer.record.run import STATES

    kept_in = store_of(store)
    try:
        kept = kept_in.load(run or "latest")
    except StoreError:
        from inferometer.conduct.report import experiment_named, readable_cases

        experiment = experiment_named(run or "", kept_in)
        if experiment is None:
            raise
        print_experiment(experiment, readable_cases(experiment, kept_in), as_json=as_json)
        return
    if partial:
        from inferometer.conduct.run import partial_run

        kept = partial_run(kept, kept_in)
    elif kept.verdict is None:
        hint = f"inferometer show {kept.id} --partial computes partial results from its logs"
        raise StoreError(f"{kept.id}: {STATES[kept.state]}", hint)
    if again:
        from inferometer.conduct.run import measured_again

        kept = measured_again(kept)
    if tool is not None:
        from inferometer.cli.printing import print_rosetta

        print_rosetta(kept, tool, as_json=as_json)
        return
    print_run(kept, as_json=as_json, slowest=slowest, more=more, measures=measures, slices=slices)
