"""Maintains the store: index, checksums, tags, baselines, retention."""

from datetime import timedelta

import click
import msgspec

from inferometer import vocabulary
from inferometer.cli.errors import LIMIT_FAILED, echo, print_message
from inferometer.cli.work.stores import store_of
from inferometer.errors import StoreError
from inferometer.show.console import console, emit, facts_table, print_json
from inferometer.store.upkeep import Rule, facts_of
from inferometer.store.upkeep import prune as pruned
from inferometer.store.upkeep import slim as slimmed
from inferometer.store.upkeep import verify as verified
from inferometer.vocabulary import size_text


def info(as_json: bool, store: str | None) -> None:
    facts = msgspec.to_builtins(facts_of(store_of(store)))
    if as_json:
        print_json(facts, "store")
        return
    table = facts_table()
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _text(value))
    emit(table, console())


def reindex(store: str | None) -> None:
    result = store_of(store).reindex()
    echo(f"{_count(result.runs)} in the index" + (f", {result.uploaded} uploaded now" if result.uploaded else ""))
    for id_, (cause, remedy) in result.damaged.items():
        print_message("warning", f"{id_}: damaged: {cause}; {remedy}")
    for id_ in result.half_uploaded:
        print_message("warning", f"{id_}: incomplete upload, interrupted on another machine")


def verify(runs: tuple[str, ...], store: str | None) -> int:
    checked = wrong = 0
    for id_, faults in verified(store_of(store), runs):
        checked += 1
        wrong += bool(faults)
        for fault in faults:
            print_message("error", f"{id_}: {fault}")
    echo(f"{_count(checked)} read, {'all intact' if not wrong else f'{wrong} damaged or changed'}")
    return LIMIT_FAILED if wrong else 0


def slim(runs: tuple[str, ...], all_runs: bool, store: str | None) -> None:
    if bool(runs) == all_runs:
        raise click.UsageError("no runs given: name them, or use --all")
    freed = [size for _, size in slimmed(store_of(store), runs)]
    echo(f"{_count(len(freed))} slimmed, {size_text(sum(freed))} freed")


def remeasure(runs: tuple[str, ...], store: str | None) -> None:
    from inferometer.conduct.run import remeasure as remeasured  # the conductor of runs: only here

    done = 0
    for result in remeasured(store_of(store), runs):
        if result.skipped is not None:
            print_message("warning", f"{result.id}: unchanged: {result.skipped}")
            continue
        done += 1
        echo(f"{result.id}: {result.before}" + ("" if result.after == result.before else f", now {result.after}"))
    echo(f"{_count(done)} recomputed" if done or runs else "no run was measured by an older version")


def tag(run: str, tags: tuple[str, ...], store: str | None) -> None:
    entry = store_of(store).tag(run, tags)
    echo(f"{entry.id}: {', '.join(entry.tags)}")


def untag(run: str, tags: tuple[str, ...], store: str | None) -> None:
    kept_in = store_of(store)
    known = kept_in.entry(run)
    if missing := [tag for tag in tags if tag not in known.tags]:
        has = f"its tags are {', '.join(known.tags)}" if known.tags else "it has no tags"
        raise StoreError(f"{known.id}: no tag {', '.join(missing)}; {has}")
    entry = kept_in.untag(known.id, tags)
    echo(f"{entry.id}: {', '.join(entry.tags) or 'no tags'}")


def baseline(name: str | None, run: str | None, remove: bool, store: str | None) -> None:
    kept_in = store_of(store)
    if name is None:
        named = sorted(kept_in.baselines().items())
        for baseline_name, id_ in named:
            echo(f"{baseline_name}  {id_}")
        if not named:
            echo("no baselines; set one: inferometer store baseline main latest", err=True)
    elif remove:
        kept_in.remove_baseline(name)
        echo(f"{name}: baseline removed")
    else:
        entry = kept_in.baseline(name) if run is None else kept_in.set_baseline(name, run)
        echo(f"{name}  {entry.id}")


def prune(
    older_than: str | None,
    keep_last: int | None,
    keep_tagged: bool,
    conditions: tuple[str, ...],
    dry_run: bool,
    store: str | None,
) -> None:
    rule = Rule(keep_last, _time(older_than), keep_tagged)
    done = pruned(store_of(store), rule, conditions, dry_run=dry_run)
    for entry in done.gone:
        echo(entry.id)
    for entry, why in done.spared:
        echo(f"kept: {entry.id} {why}", err=True)
    echo(f"{_count(len(done.gone))} {'would be deleted' if dry_run else 'deleted'}", err=True)


def _time(text: str | None) -> timedelta | None:
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
