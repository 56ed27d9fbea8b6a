"""Which runs may go: older than so long, beyond the last so many. Baselines stay, tagged runs unless told otherwise."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from inferometer.errors import PlanError, StoreError
from inferometer.store.entry import DAMAGED, Entry
from inferometer.store.store import Store

STILL_RUNNING = timedelta(days=1)  # a partial run younger than that may be one that runs


@dataclass(frozen=True)
class Rule:
    keep_last: int | None = None
    older_than: timedelta | None = None
    keep_tagged: bool = True

    def __post_init__(self) -> None:
        if self.keep_last is None and self.older_than is None:
            raise PlanError("prune: which runs may go is not said", "give --older-than 90d, --keep-last 100, or both")


@dataclass(frozen=True)
class Pruned:
    gone: list[Entry]
    spared: list[tuple[Entry, str]]  # would have gone, and why they did not


def chosen(entries: Sequence[Entry], rule: Rule, baselines: Collection[str], now: datetime | None = None) -> Pruned:
    """Of entries, the newest first; with both limits a run must be beyond both."""
    now = now or datetime.now(UTC)
    beyond = [entry for at, entry in enumerate(entries) if _is_beyond(at, entry, rule, now)]
    spared = [(entry, why) for entry in beyond if (why := _spared(entry, rule, baselines, now))]
    kept = {entry.id for entry, _ in spared}
    return Pruned([entry for entry in beyond if entry.id not in kept], spared)


def prune(store: Store, rule: Rule, where: Sequence[str] = (), *, dry_run: bool = False) -> Pruned:
    """Delete the folders of runs that may go. One that cannot be deleted from here is spared and named."""
    wanted = chosen(store.runs(where=where), rule, set(store.baselines().values()))
    if dry_run:
        return wanted
    gone, spared = [], list(wanted.spared)
    for entry in wanted.gone:
        try:
            store.remove(entry)
            gone.append(entry)
        except StoreError as error:
            spared.append((entry, error.message))
    return Pruned(gone, spared)


def _is_beyond(at: int, entry: Entry, rule: Rule, now: datetime) -> bool:
    by_count = rule.keep_last is None or at >= rule.keep_last
    age = _age(entry, now)
    by_age = rule.older_than is None or (age is not None and age > rule.older_than)
    return by_count and by_age


def _spared(entry: Entry, rule: Rule, baselines: Collection[str], now: datetime) -> str | None:
    if entry.id in baselines:
        return "is a baseline"
    if entry.tags and rule.keep_tagged:
        return f"is tagged {', '.join(entry.tags)}"
    if entry.state == DAMAGED:
        return "is damaged: look at it before it goes"
    age = _age(entry, now)
    return "may still be running" if entry.state == "partial" and (age is None or age <= STILL_RUNNING) else None


def _age(entry: Entry, now: datetime) -> timedelta | None:
    try:
        return now - datetime.fromisoformat(entry.started_at).astimezone(UTC)
    except ValueError:
        return None
