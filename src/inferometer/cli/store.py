"""`inferometer list`, `show` and `store`: list the stored runs, show one, and maintain the store."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from inferometer.cli.errors import LIMIT_FAILED, echo, print_message
from inferometer.cli.options import json_option, run_argument, slowest_option, store_of, store_option
from inferometer.errors import StoreError
from inferometer.record.files import schema_of
from inferometer.record.sanitize import cell
from inferometer.show.console import console, emit, facts_table
from inferometer.vocabulary import size_text

if TYPE_CHECKING:
    from inferometer.store.entry import Entry


PRUNE_EXAMPLES = """\b
Examples:
  inferometer store prune --older-than 90d --dry-run
  inferometer store prune --older-than 90d --keep-last 1000
      runs that are old and not among the last 1000
  inferometer store prune --older-than 7d --where kind=startup
"""
SLIM_EXAMPLES = """\b
Examples:
  inferometer store slim latest
  inferometer store slim --all                before committing runs to a git branch
"""
REMEASURE_EXAMPLES = """\b
Examples:
  inferometer store remeasure                 all runs that an older version measured
  inferometer store remeasure latest
  inferometer show latest --again             the same for one run, without storing it
"""
BASELINE_EXAMPLES = """\b
Examples:
  inferometer store baseline                  list the baselines
  inferometer store baseline main latest      make the latest run the baseline `main`
  inferometer store baseline main --remove
"""


@click.group()
def store() -> None:
    """Manage the stored runs: tags, baselines, retention, the index."""


@store.command()
@json_option
@store_option
def info(as_json: bool, store: str | None) -> None:
    """Show where runs are stored, how many there are, and any problems."""
    from inferometer.cli.printing import print_json
    from inferometer.store.upkeep import facts_of

    facts = msgspec.to_builtins(facts_of(store_of(store)))
    if as_json:
        print_json(facts, "store")
        return
    table = facts_table()
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _text(value))
    emit(table, console())


@store.command()
@store_option
def reindex(store: str | None) -> None:
    """Rebuild the index from the run folders; upload finished runs that are pending."""

    result = store_of(store).reindex()
    echo(f"{_count(result.runs)} in the index" + (f", {result.uploaded} uploaded now" if result.uploaded else ""))
    for id_, (cause, remedy) in result.damaged.items():
        print_message("warning", f"{id_}: damaged: {cause}; {remedy}")
    for id_ in result.half_uploaded:
        print_message("warning", f"{id_}: incomplete upload, interrupted on another machine")


@store.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
def verify(runs: tuple[str, ...], store: str | None) -> int:
    """Verify the checksum of every file of each RUN. Default: all runs.

    Exit code 1 if a run is damaged or was changed.
    """
    from inferometer.store.upkeep import verify as verified

    checked = wrong = 0
    for id_, faults in verified(store_of(store), runs):
        checked += 1
        wrong += bool(faults)
        for fault in faults:
            print_message("error", f"{id_}: {fault}")
    echo(f"{_count(checked)} read, {'all intact' if not wrong else f'{wrong} damaged or changed'}")
    return LIMIT_FAILED if wrong else 0


@store.command(epilog=SLIM_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "all_runs", is_flag=True, help="Apply to all runs.")
@store_option
def slim(runs: tuple[str, ...], all_runs: bool, store: str | None) -> None:
    """Delete the records, samples and logs of each RUN and keep its summary.

    Whatever needs single requests, such as new limits, is no longer possible; comparisons, checks and charts of
    summary numbers still work.
    """
    from inferometer.store.upkeep import slim as slimmed

    if bool(runs) == all_runs:
        raise click.UsageError("no runs given: name them, or use --all")
    freed = [size for _, size in slimmed(store_of(store), runs)]
    echo(f"{_count(len(freed))} slimmed, {size_text(sum(freed))} freed")


@store.command(epilog=REMEASURE_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
def remeasure(runs: tuple[str, ...], store: str | None) -> None:
    """Compute the numbers and the verdict of each RUN again from its records, by the present definitions. Default: all
    runs that an older version measured.

    The first numbers stay in the run folder, as older-summary.json and older-verdict.json.
    """
    from inferometer.conduct.run import remeasure as remeasured

    done = 0
    for result in remeasured(store_of(store), runs):
        if result.skipped is not None:
            print_message("warning", f"{result.id}: left as it is: {result.skipped}")
            continue
        done += 1
        echo(f"{result.id}: {result.before}" + ("" if result.after == result.before else f", now {result.after}"))
    echo(f"{_count(done)} measured again" if done or runs else "no run was measured by an older version")


@store.command()
@run_argument(required=True)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@store_option
def tag(run: str, tags: tuple[str, ...], store: str | None) -> None:
    """Add tags to RUN, to find it with `inferometer list --where tag=nightly`, `inferometer show nightly`."""
    entry = store_of(store).tag(run, tags)
    echo(f"{entry.id}: {', '.join(entry.tags)}")


@store.command()
@run_argument(required=True)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@store_option
def untag(run: str, tags: tuple[str, ...], store: str | None) -> None:
    """Remove tags from RUN."""

    kept_in = store_of(store)
    known = kept_in.entry(run)
    if missing := [tag for tag in tags if tag not in known.tags]:
        has = f"its tags are {', '.join(known.tags)}" if known.tags else "it has no tags"
        raise StoreError(f"{known.id}: no tag {', '.join(missing)}; {has}")
    entry = kept_in.untag(known.id, tags)
    echo(f"{entry.id}: {', '.join(entry.tags) or 'no tags'}")


@store.command(epilog=BASELINE_EXAMPLES)
@click.argument("name", required=False)
@run_argument(required=False)
@click.option("--remove", is_flag=True, help="Remove the baseline name; the run is kept.")
@store_option
def baseline(name: str | None, run: str | None, remove: bool, store: str | None) -> None:
    """Make RUN the baseline NAME for comparisons and checks; without arguments, list the baselines."""
    kept_in = store_of(store)
    if name is None:
        for baseline_name, id_ in sorted(kept_in.baselines().items()):
            echo(f"{baseline_name}  {id_}")
    elif remove:
        kept_in.remove_baseline(name)
        echo(f"{name}: baseline removed")
    else:
        entry = kept_in.baseline(name) if run is None else kept_in.set_baseline(name, run)
        echo(f"{name}  {entry.id}")


@store.command(epilog=PRUNE_EXAMPLES)
@click.option("--older-than", metavar="TIME", help="Delete runs older than this: 90d, 12h.")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the newest N runs, regardless of age.")
@click.option("--keep-tagged/--no-keep-tagged", default=True, show_default=True, help="Keep tagged runs.")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION", help="Delete only matching runs; see list --help."
)
@click.option("--dry-run", is_flag=True, help="Show which runs would be deleted; delete nothing.")
@store_option
def prune(
    older_than: str | None,
    keep_last: int | None,
    keep_tagged: bool,
    conditions: tuple[str, ...],
    dry_run: bool,
    store: str | None,
) -> None:
    """Delete old runs. Baselines are never deleted."""
    from inferometer.store.upkeep import Rule
    from inferometer.store.upkeep import prune as pruned

    rule = Rule(keep_last, _time(older_than), keep_tagged)
    done = pruned(store_of(store), rule, conditions, dry_run=dry_run)
    for entry in done.gone:
        echo(entry.id)
    for entry, why in done.spared:
        echo(f"kept: {entry.id} {why}", err=True)
    echo(f"{_count(len(done.gone))} {'would be deleted' if dry_run else 'deleted'}", err=True)


def _time(text: str | None) -> timedelta | None:
    from inferometer import vocabulary

    try:
        return None if text is None else timedelta(seconds=vocabulary.seconds(text))
    except (ValueError, OverflowError):
        raise click.UsageError(f"--older-than must be a duration such as 90d or 12h, got {text}") from None


def _count(number: int) -> str:
    return f"{number:,} run{'' if number == 1 else 's'}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


MANY = 200  # more lines than a person reads one by one


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
    """List the stored runs, newest first.

    A NAME is a column (id, started, state, kind, source, verdict, name, model, target, engine, engine_version, commit,
    hardware, requests, tag, baseline, experiment, case), a measure with its statistic (ttft.p99, output_rate), or a
    setting of the plan (plan.load.rate).
    """
    from inferometer.cli.printing import print_json
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
