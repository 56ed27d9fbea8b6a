"""`inferometer store`: look after the kept runs."""

from datetime import timedelta

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, run_argument, store_of, store_option

PRUNE_EXAMPLES = """\b
Examples:
  inferometer store prune --older-than 90d --dry-run
  inferometer store prune --older-than 90d --keep-last 1000
      beyond both: old, and not among the last 1000
  inferometer store prune --older-than 7d --where kind=startup
"""
SLIM_EXAMPLES = """\b
Examples:
  inferometer store slim latest
  inferometer store slim --all                before runs go into a branch of git
"""
BASELINE_EXAMPLES = """\b
Examples:
  inferometer store baseline                  the baselines there are
  inferometer store baseline main latest      the latest run becomes `main`
  inferometer store baseline main --remove
"""


@click.group()
def store() -> None:
    """Look after the kept runs: tags, baselines, retention, the index."""


@store.command()
@json_option
@store_option
def info(as_json: bool, store: str | None) -> None:
    """Say where runs are kept, how many there are, and what is wrong with any."""
    from inferometer.cli.printing import print_json
    from inferometer.show.console import console, emit, facts_table
    from inferometer.store.verify import facts_of

    facts = facts_of(store_of(store))
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
    """Make the index anew from the run folders; upload finished runs that wait for it."""
    from inferometer.cli.errors import say

    found = store_of(store).reindex()
    echo(f"{_count(found.runs)} in the index" + (f", {found.uploaded} uploaded now" if found.uploaded else ""))
    for id_, (cause, remedy) in found.damaged.items():
        say("warning", f"{id_}: damaged: {cause}; {remedy}")
    for id_ in found.half_uploaded:
        say("warning", f"{id_}: half uploaded, and not here: its upload ended on another machine")


@store.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
def verify(runs: tuple[str, ...], store: str | None) -> int:
    """Read every file of each RUN and compare it with the checksum it was written with; all runs without one.

    Exit code 1 if a run is not as it was written.
    """
    from inferometer.cli.errors import LIMIT_FAILED, say
    from inferometer.store.verify import verify as verified

    checked = wrong = 0
    for id_, faults in verified(store_of(store), runs):
        checked += 1
        wrong += bool(faults)
        for fault in faults:
            say("error", f"{id_}: {fault}")
    echo(f"{_count(checked)} read, {'all as they were written' if not wrong else f'{wrong} not as written'}")
    return LIMIT_FAILED if wrong else 0


@store.command(epilog=SLIM_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "all_runs", is_flag=True, help="Of all runs.")
@store_option
def slim(runs: tuple[str, ...], all_runs: bool, store: str | None) -> None:
    """Delete the requests, samples and logs of each RUN and keep its numbers.

    What needs single requests, such as new limits on them, is not possible any more; comparing, checking and charts of
    numbers are.
    """
    from inferometer.store.verify import slim as slimmed

    if bool(runs) == all_runs:
        raise click.UsageError("which runs? Name them, or say --all")
    freed = [size for _, size in slimmed(store_of(store), runs)]
    echo(f"{_count(len(freed))} made slim, {sum(freed) / 1e6:,.1f} MB freed")


@store.command()
@run_argument(required=True)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@store_option
def tag(run: str, tags: tuple[str, ...], store: str | None) -> None:
    """Give RUN tags, to find it by: `inferometer list --where tag=nightly`, `inferometer show nightly`."""
    entry = store_of(store).tag(run, tags)
    echo(f"{entry.id}: {', '.join(entry.tags)}")


@store.command()
@run_argument(required=True)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@store_option
def untag(run: str, tags: tuple[str, ...], store: str | None) -> None:
    """Take tags from RUN."""
    from inferometer.errors import StoreError

    kept_in = store_of(store)
    known = kept_in.entry(run)
    if missing := [each for each in tags if each not in known.tags]:
        has = f"it has {', '.join(known.tags)}" if known.tags else "it has none"
        raise StoreError(f"{known.id}: no tag {', '.join(missing)}; {has}")
    entry = kept_in.untag(known.id, tags)
    echo(f"{entry.id}: {', '.join(entry.tags) or 'no tags'}")


@store.command(epilog=BASELINE_EXAMPLES)
@click.argument("name", required=False)
@run_argument(required=False)
@click.option("--remove", is_flag=True, help="Forget the name; the run stays.")
@store_option
def baseline(name: str | None, run: str | None, remove: bool, store: str | None) -> None:
    """Make RUN the baseline NAME, to compare and check others with; list them without arguments."""
    kept_in = store_of(store)
    if name is None:
        for each, id_ in sorted(kept_in.baselines().items()):
            echo(f"{each}  {id_}")
    elif remove:
        kept_in.remove_baseline(name)
        echo(f"{name}: no baseline any more")
    else:
        entry = kept_in.baseline(name) if run is None else kept_in.set_baseline(name, run)
        echo(f"{name}  {entry.id}")


@store.command(epilog=PRUNE_EXAMPLES)
@click.option("--older-than", metavar="TIME", help="Started longer ago than this: 90d, 12h.")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the newest N, however old.")
@click.option("--keep-tagged/--no-keep-tagged", default=True, show_default=True, help="Keep runs that have a tag.")
@click.option("--where", "conditions", multiple=True, metavar="CONDITION", help="Only among these; see list --help.")
@click.option("--dry-run", is_flag=True, help="Say which runs would go, and delete nothing.")
@store_option
def prune(
    older_than: str | None,
    keep_last: int | None,
    keep_tagged: bool,
    conditions: tuple[str, ...],
    dry_run: bool,
    store: str | None,
) -> None:
    """Delete runs that are old. Baselines are never deleted."""
    from inferometer.store.retention import Rule
    from inferometer.store.retention import prune as pruned

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
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
