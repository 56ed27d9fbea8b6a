"""Which run is meant (an id, the start of one, its name, `latest`, a baseline, a tag), and its folder from wherever it
is: on this machine, or in an object store and then in the cache."""

import difflib
import platform
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, or_, select

from inferometer.errors import StoreError
from inferometer.record.run import Run
from inferometer.store.folder import RECORDS, SAMPLES, load_run, logs_of
from inferometer.store.index import baseline_of, folder_at
from inferometer.store.manifest import Files
from inferometer.store.objects import Objects
from inferometer.store.query import tagged
from inferometer.store.tables import baselines, runs, tags

# -- find ------------------------------------------------------------------------------------------------------------

_LATEST = re.compile(r"latest(?:~([0-9]+))?")


class RunMatch(NamedTuple):
    id: str
    location: str


def find_run(db: Connection, wanted: str, store: str, home: Path) -> RunMatch:
    if db.execute(select(runs.c.id).limit(1)).first() is None:
        raise StoreError(f"{store}: no runs in it yet", "create one: inferometer run")
    if latest := _LATEST.fullmatch(wanted):
        return _nth(db, int(latest[1] or 0), home)
    fitting = _exact(db, wanted) or _by_id(db, wanted) or _of_baseline(db, wanted) or _of_tag(db, wanted)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        ids = [match.id for match in fitting]
        raise StoreError(f"{wanted!r} fits {len(ids)} runs: {_listed(ids)}", "give more of the id")
    raise StoreError(f"no run {wanted!r}; the nearest is {_nearest(db, wanted)}", "inferometer list shows them all")


def _exact(db: Connection, wanted: str) -> list[RunMatch]:
    return [RunMatch(*row) for row in db.execute(_SOUGHT.where(runs.c.id == wanted))]


def _by_id(db: Connection, wanted: str) -> list[RunMatch]:
    starts = [RunMatch(*row) for row in db.execute(_SOUGHT.where(runs.c.id.startswith(wanted, autoescape=True)))]
    ends = _SOUGHT.where(runs.c.id.endswith(f"-{wanted}", autoescape=True))
    return starts or [RunMatch(*row) for row in db.execute(ends)]


def _of_baseline(db: Connection, wanted: str) -> list[RunMatch]:
    run, _ = baseline_of(db, wanted) or (None, "")
    if run is None:
        return []
    if not (kept := _exact(db, run)):
        hint = f"choose another: inferometer store baseline {wanted} RUN"
        raise StoreError(f"baseline {wanted!r} was run {run}, which was deleted", hint)
    return kept


def _of_tag(db: Connection, wanted: str) -> list[RunMatch]:
    """The newest run that has it."""
    return [RunMatch(*row) for row in db.execute(_SOUGHT.where(tagged(wanted)).limit(1))]


def _nth(db: Connection, back: int, home: Path) -> RunMatch:
    """Of those that can be shown, if there are any: a run that failed before anything was sent has no numbers."""
    shown = or_(runs.c.state != "failed", runs.c.requests.is_not(None))
    kept = db.execute(_SOUGHT.where(shown).limit(back + 1)).all()
    failed = db.execute(_SOUGHT.where(~shown)).all()
    logged = [row for row in failed if logs_of(folder_at(row.location, row.id, home))]
    candidates = sorted({*kept, *logged}, key=lambda row: str(row.id), reverse=True) or failed
    if back >= len(candidates):
        total = len(db.execute(_SOUGHT.where(shown)).all()) + len(logged) or len(failed)
        raise StoreError(f"latest~{back}: the store has {total} run{'s' * (total != 1)}")
    return RunMatch(*candidates[back])


def _nearest(db: Connection, wanted: str) -> str:
    ids = list(db.execute(select(runs.c.id)).scalars())
    labels = [*db.execute(select(tags.c.tag).distinct()).scalars(), *db.execute(select(baselines.c.name)).scalars()]
    names = ["-".join(id_.split("-")[2:]) for id_ in ids]
    return str(difflib.get_close_matches(wanted, [*ids, *names, *labels], n=1, cutoff=0.0)[0])


def _listed(ids: list[str]) -> str:
    rest = len(ids) - 5
    return ", ".join(ids[:5]) + (f" and {rest} more" if rest > 0 else "")


_SOUGHT = select(runs.c.id, runs.c.location).order_by(runs.c.id.desc())

# -- fetching --------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from inferometer.store.store import Store


def whole_folder(store: "Store", place: RunMatch) -> Path:
    """With all its files."""
    objects = store.objects_of(place.location)
    if objects is None:
        return _local(store, place)
    folder = folder_at(place.location, place.id, store.home)
    objects.fetch(place.location, folder, whole=True)
    return folder


def lazy_run(store: "Store", place: RunMatch) -> Run:
    """Its large files come when they are asked for."""
    objects = store.objects_of(place.location)
    if objects is None:
        return load_run(_local(store, place))
    folder = folder_at(place.location, place.id, store.home)
    files = objects.fetch(place.location, folder, whole=False)
    run = load_run(folder, files_elsewhere=files)
    records = _reading(objects, place, folder, files, RECORDS, lambda run: run.records)
    samples = _reading(objects, place, folder, files, SAMPLES, lambda run: run.samples)
    return replace(run, read_records=records, read_samples=samples)


def _reading(
    objects: Objects, place: RunMatch, folder: Path, files: Files, name: str, ask: Callable[[Run], Any]
) -> Callable[[], Any] | None:
    """None where the run has no such file."""

    def read() -> Any:
        objects.fetch_file(place.location, folder, name, files)
        return ask(load_run(folder, files_elsewhere=files))

    return read if name in files else None


def _local(store: "Store", place: RunMatch) -> Path:
    folder, here = folder_at(place.location, place.id, store.home), platform.node()
    host = place.location.removeprefix("file://").partition("/")[0] if "://" in place.location else here
    if host != here and not folder.is_dir():
        hint = "open it there, or store runs where all machines can read them: --records s3://... or a shared folder"
        raise StoreError(f"{place.id}: its folder is on {host}, at {folder}", hint)
    return folder
