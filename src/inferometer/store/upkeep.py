"""Maintenance of a store: its content, whether every file is unchanged, which runs may be deleted, and whether an
unexpected error is due to a damaged run or to a bug of ours."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import structs
from sqlalchemy import Column, Connection, func, select

from inferometer.errors import InferometerError, PlanError, StoreError
from inferometer.record.parquet import read_parquet, read_samples
from inferometer.store.entry import CHANGING, DAMAGED, Entry
from inferometer.store.folder import FOLDERS_READ, RECORDS, SAMPLES, load_run
from inferometer.store.manifest import faults, leave_out, read_manifest
from inferometer.store.objects import folders_in
from inferometer.store.shapes import Damaged, DamagedError, damaged_by
from inferometer.store.store import Store
from inferometer.store.tables import runs, tags, version_of


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Places, counts and pending uploads of a store; no secrets. The last three are for object stores."""

    index: str
    index_version: int
    run_folders: str
    runs: int
    states: dict[str, int]
    tags: dict[str, int]
    baselines: dict[str, str]
    waiting_for_upload: list[str] | None = None
    half_uploaded: list[str] | None = None
    cache: str | None = None


def facts_of(store: Store) -> StoreFacts:
    baselines = store.baselines()
    states, tagged, version = store.answer(
        lambda db: (_counted(db, runs.c.state), _counted(db, tags.c.tag), version_of(db))
    )
    facts = StoreFacts(
        index=store.database.shown,
        index_version=version,
        run_folders=store.objects.url if store.objects else str(store.home / "runs"),
        runs=sum(states.values()),
        states=states,
        tags=tagged,
        baselines=baselines,
    )
    if store.objects is None:
        return facts
    _, half = store.objects.runs()
    waiting, cache = sorted(folders_in(store.home)), str(store.home / "cache")
    return structs.replace(facts, waiting_for_upload=waiting, half_uploaded=list(half), cache=cache)


def _counted(db: Connection, column: Column[str]) -> dict[str, int]:
    rows = db.execute(select(column, func.count()).group_by(column).order_by(column))
    return dict(rows.all())


def slim(store: Store, wanted: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """Removes requests, samples and logs of runs: every number stays, and everything computed from them. Yields each
    run with the freed bytes; unfinished runs and those in a bucket stay unchanged."""
    entries = [store.entry(name) for name in wanted] if wanted else store.runs()
    for entry in entries:
        is_ours = entry.state not in CHANGING and store.objects_of(entry.location) is None
        if is_ours and (freed := leave_out(entry.folder, _is_heavy)):
            yield entry.id, freed


def _is_heavy(name: str) -> bool:
    return name in (RECORDS, SAMPLES) or name.endswith(".log")


def verify(store: Store, wanted: Sequence[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Each run with its problems. For a run without manifest the files are read, as far as possible."""
    entries = [store.entry(name) for name in wanted] if wanted else store.runs()
    for entry in entries:
        yield entry.id, _faults(store, entry)


def _faults(store: Store, entry: Entry) -> list[str]:
    try:
        folder = store.find(entry.id)
        problems = list(faults(folder))
        if problems or entry.state == "partial":
            return problems
        load_run(folder)
        return [] if read_manifest(folder) is not None else _read_faults(folder)
    except StoreError as error:
        return [error.message]


def _read_faults(folder: Path) -> list[str]:
    problems = []
    for name, read in ((RECORDS, read_parquet), (SAMPLES, read_samples)):
        try:
            if (folder / name).exists():
                read(folder / name)
        except StoreError as error:
            problems.append(error.message)
    return problems


STILL_RUNNING = timedelta(days=1)  # a younger partial run may still be running


@dataclass(frozen=True)
class Rule:
    keep_last: int | None = None
    older_than: timedelta | None = None
    keep_tagged: bool = True

    def __post_init__(self) -> None:
        if self.keep_last is None and self.older_than is None:
            raise PlanError("prune: no rule selects runs to delete", "give --older-than 90d, --keep-last 100, or both")


@dataclass(frozen=True)
class Pruned:
    gone: list[Entry]
    spared: list[tuple[Entry, str]]  # selected, but kept, with the reason


def chosen(entries: Sequence[Entry], rule: Rule, baselines: Collection[str], now: datetime | None = None) -> Pruned:
    """Selects from entries, newest first; with both limits a run must exceed both."""
    now = now or datetime.now(UTC)
    beyond = [entry for at, entry in enumerate(entries) if _is_beyond(at, entry, rule, now)]
    spared = [(entry, why) for entry in beyond if (why := _spared(entry, rule, baselines, now))]
    kept = {entry.id for entry, _ in spared}
    return Pruned([entry for entry in beyond if entry.id not in kept], spared)


def prune(store: Store, rule: Rule, where: Sequence[str] = (), *, dry_run: bool = False) -> Pruned:
    """Delete the folders of the selected runs. One that cannot be deleted from here is kept and reported."""
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
        return "is damaged: inspect it before deleting it"
    age = _age(entry, now)
    return "may still be running" if entry.state == "partial" and (age is None or age <= STILL_RUNNING) else None


def _age(entry: Entry, now: datetime) -> timedelta | None:
    try:
        return now - datetime.fromisoformat(entry.started_at).astimezone(UTC)
    except ValueError:
        return None


FINISHED = ("complete", "interrupted")


def damaged_runs(because: Exception) -> list[Damaged]:
    """The damaged ones among the runs that this process has read."""
    return [damaged for folder in FOLDERS_READ if (damaged := changed_since_written(folder, because))]


@contextmanager
def blaming(folder: Path) -> Iterator[None]:
    """An unexpected error in the processing of one run of many becomes a `DamagedError`, if the run is the cause."""
    try:
        yield
    except InferometerError:
        raise
    except Exception as error:
        if (damaged := changed_since_written(folder, error)) is None:
            raise
        raise damaged.error from error


def changed_since_written(folder: Path, because: Exception) -> Damaged | None:
    if not folder.is_dir():  # deleted since
        return None
    try:
        wrong = next(faults(folder), None)
        if wrong is None and read_manifest(folder) is None and load_run(folder).state in FINISHED:
            wrong = "its manifest.json is missing"
    except DamagedError as error:
        return error.damaged
    except StoreError as error:
        return damaged_by(error, folder)
    if wrong is None:
        return None
    return damaged_by(StoreError(f"{wrong} ({type(because).__name__}: {because})"), folder)
