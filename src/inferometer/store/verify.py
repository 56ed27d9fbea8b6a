"""Looking after a store: what there is, and whether every file is as it was written."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, func, select

from inferometer.errors import StoreError
from inferometer.record.parquet import read_parquet, read_samples
from inferometer.store.entry import CHANGING, Entry
from inferometer.store.folder import RECORDS, SAMPLES, load_run
from inferometer.store.manifest import faults, leave_out, read_manifest
from inferometer.store.objects import folders_in
from inferometer.store.store import Store
from inferometer.store.tables import runs, tags, version_of


def facts_of(store: Store) -> dict[str, Any]:
    """Places, counts and what waits for somebody; nothing secret."""
    baselines = store.baselines()
    states, tagged, version = store.answer(
        lambda db: (_counted(db, runs.c.state), _counted(db, tags.c.tag), version_of(db))
    )
    return {
        "index": store.database.shown,
        "index_version": version,
        "run_folders": store.objects.url if store.objects else str(store.home / "runs"),
        "runs": sum(states.values()),
        "states": states,
        "tags": tagged,
        "baselines": baselines,
        **_remote_facts(store),
    }


def _counted(db: Connection, column: Column[str]) -> dict[str, int]:
    rows = db.execute(select(column, func.count()).group_by(column).order_by(column))
    return dict(rows.all())


def _remote_facts(store: Store) -> dict[str, Any]:
    if store.objects is None:
        return {}
    _, half = store.objects.runs()
    waiting = sorted(folders_in(store.home))
    return {"waiting_for_upload": waiting, "half_uploaded": half, "cache": str(store.home / "cache")}


def slim(store: Store, wanted: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """Runs without their requests, samples and logs: every number stays, and what was made from them. Each run with the
    bytes that are free now; those of a bucket and those that are not finished stay as they are."""
    entries = [store.entry(each) for each in wanted] if wanted else store.runs()
    for entry in entries:
        is_ours = entry.state not in CHANGING and store.objects_of(entry.location) is None
        if is_ours and (freed := leave_out(entry.folder, _is_heavy)):
            yield entry.id, freed


def _is_heavy(name: str) -> bool:
    return name in (RECORDS, SAMPLES) or name.endswith(".log")


def verify(store: Store, wanted: Sequence[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Each run with what is wrong with it. Of a run without manifest the files are read, as far as they can be."""
    entries = [store.entry(each) for each in wanted] if wanted else store.runs()
    for entry in entries:
        yield entry.id, _faults(store, entry)


def _faults(store: Store, entry: Entry) -> list[str]:
    try:
        folder = store.find(entry.id)
        found = list(faults(folder))
        if found or entry.state == "partial":
            return found
        load_run(folder)
        return [] if read_manifest(folder) is not None else _read_faults(folder)
    except StoreError as error:
        return [error.message]


def _read_faults(folder: Path) -> list[str]:
    found = []
    for name, read in ((RECORDS, read_parquet), (SAMPLES, read_samples)):
        try:
            if (folder / name).exists():
                read(folder / name)
        except StoreError as error:
            found.append(error.message)
    return found
