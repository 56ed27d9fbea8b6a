"""`inferometer store`: look after the kept runs."""

from datetime import timedelta

import click
import msgspec

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, run_argument, store_of, store_option

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
    from inferometer.show.console import console, emit, facts_table
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
    from inferometer.cli.errors import print_message

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
    from inferometer.cli.errors import LIMIT_FAILED, print_message
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
    from inferometer.vocabulary import size_text

    if bool(runs) == all_runs:
        raise click.UsageError("no runs given: name them, or use --all")
    freed = [size for _, size in slimmed(store_of(store), runs)]
    echo(f"{_count(len(freed))} slimmed, {size_text(sum(freed))} freed")


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
    from inferometer.errors import StoreError

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
