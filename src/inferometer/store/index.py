"""The index of a store, in SQLite or PostgreSQL: used by `list` and for finding runs; rebuilt from the run folders when
needed."""

import difflib
import math
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from sqlalchemy import Connection, Table, and_, delete, func, insert, or_, select, text

from inferometer.errors import StoreError
from inferometer.record.run import Run
from inferometer.store.databases import Broken
from inferometer.store.entry import (
    CHANGING,
    DAMAGED,
    Entry,
    IndexRow,
    Listing,
    damaged_listing,
    listing_at,
    listing_of,
    number_of,
)
from inferometer.store.folder import RECORDS, SAMPLES, load_run, logs_of
from inferometer.store.manifest import Files, Marks
from inferometer.store.objects import Objects, folders_in, remove_leftovers
from inferometer.store.query import Clause, Name, tagged
from inferometer.store.shapes import LARGEST_INT, SMALLEST_INT, damaged_by
from inferometer.store.tables import baselines, experiments, followed, parameters, quantities, runs, tags

if TYPE_CHECKING:
    from inferometer.store.store import Store


# -- index -----------------------------------------------------------------------------------------------------------

AT_ONCE = 200  # runs entered per statement, and ids requested by name
_LOCK = 0x1F0E7E13


def one_writer(db: Connection) -> None:
    """In PostgreSQL writers take turns as in SQLite: entering a run means deleting and inserting it."""
    if db.dialect.name != "sqlite":
        db.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def enter(db: Connection, listings: Iterable[Listing]) -> None:
    """Enter or update runs. Their tags stay, and those in their folders are added."""
    one_writer(db)
    for part in _parts(listings):
        forget(db, [listing.row.id for listing in part])
        rows = [_storable_row(listing.row) for listing in part]
        made = db.execute(insert(runs).returning(runs.c.id, runs.c.number), rows)
        numbers: dict[str, int] = dict(made.all())
        _enter_details(db, [(numbers[listing.row.id], listing) for listing in part])
        for listing in part:
            enter_marks(db, listing.row.id, listing.marks)


def _storable_row(row: IndexRow) -> dict[str, str | int | None]:
    headline = {key: value for key, value in row.headline.items() if _storable(value) is not None}
    columns = {column.name: _storable(getattr(row, column.name)) for column in fields(row) if column.name != "headline"}
    return columns | {"headline": orjson.dumps(headline).decode()}


def _storable(value: Any) -> Any:
    """Values that both databases can hold: finite 64-bit numbers, text without NUL. Run folders are checked when they
    are read; the index must not fail in any case."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _enter_details(db: Connection, numbered: Sequence[tuple[int, Listing]]) -> None:
    values = [
        (number, _storable(key), quantity.value, *map(_storable, quantity.interval or (None, None)))
        for number, listing in numbered
        for key, quantity in listing.quantities.items()
        if _storable(quantity.value) is not None
    ]
    settings = [
        (number, _storable(path), _storable(setting), number_of(setting))
        for number, listing in numbered
        for path, setting in listing.parameters.items()
    ]
    _insert_many(db, quantities, values)
    _insert_many(db, parameters, settings)


def _insert_many(db: Connection, table: Table, rows: list[tuple[Any, ...]]) -> None:
    """Inserts complete rows in the fastest form for each driver: a run has 150 of them."""
    columns = ", ".join(table.columns.keys())
    if rows and db.dialect.name == "sqlite":
        marks = ", ".join("?" * len(table.columns))
        db.exec_driver_sql(f"insert into {table.name} ({columns}) values ({marks})", rows)
    elif rows:
        driver: Any = db.connection.dbapi_connection
        with driver.cursor() as cursor, cursor.copy(f"copy {table.name} ({columns}) from stdin") as copy:
            for row in rows:
                copy.write_row(row)


def enter_marks(db: Connection, run: str, marks: Marks) -> None:
    """Adds the marks of a folder to the index; a baseline belongs to the last run it was set for."""
    if not (marks.tags or marks.baselines or marks.experiment):
        return
    for tag in sorted(marks.tags - set(tags_of(db, run))):
        db.execute(insert(tags), {"run": run, "tag": tag})
    for name, set_at in marks.baselines.items():
        _, known_at = baseline_of(db, name) or (None, "")
        if set_at > known_at:
            set_baseline(db, name, run, set_at)
    if marks.experiment is not None:
        db.execute(delete(experiments).where(experiments.c.run == run))
        db.execute(insert(experiments), {"run": run, "experiment": marks.experiment, "case": marks.case})


def set_baseline(db: Connection, name: str, run: str, set_at: str) -> None:
    db.execute(delete(baselines).where(baselines.c.name == name))
    db.execute(insert(baselines), {"name": name, "run": run, "set_at": set_at})


def baseline_of(db: Connection, name: str) -> tuple[str, str] | None:
    """The run, and when it became the baseline."""
    row = db.execute(select(baselines.c.run, baselines.c.set_at).where(baselines.c.name == name)).first()
    return None if row is None else (row.run, row.set_at)


def tags_of(db: Connection, run: str) -> list[str]:
    return list(db.execute(select(tags.c.tag).where(tags.c.run == run).order_by(tags.c.tag)).scalars())


def forget(db: Connection, ids: Sequence[str]) -> None:
    """Removes the runs; their marks stay until the runs are reported as deleted."""
    for part in _parts(ids):
        numbers = list(db.execute(select(runs.c.number).where(runs.c.id.in_(part))).scalars())
        for column in (quantities.c.run, parameters.c.run, runs.c.number) if numbers else ():
            db.execute(delete(column.table).where(column.in_(numbers)))


def forget_all(db: Connection) -> None:
    """Clears complete tables: SQLite then drops their pages instead of searching for each row."""
    for table in (quantities, parameters, runs):
        db.execute(delete(table))


def forget_marks(db: Connection, ids: Sequence[str]) -> None:
    for part in _parts(ids):
        for table in (tags, experiments):
            db.execute(delete(table).where(table.c.run.in_(part)))


def followed_at(db: Connection, place: str) -> int | None:
    """The modification time of the folder when all of its entries were entered."""
    return db.execute(select(followed.c.changed_at).where(followed.c.place == place)).scalar()


def set_followed(db: Connection, place: str, changed_at: int | None) -> None:
    db.execute(delete(followed).where(followed.c.place == place))
    if changed_at is not None:
        db.execute(insert(followed), {"place": place, "changed_at": changed_at})


def known_runs(db: Connection, changing_only: bool = False) -> dict[str, tuple[str, str]]:
    """State and location of each run, or only of those that are not finished or could not be read."""
    question = select(runs.c.id, runs.c.state, runs.c.location)
    rows = db.execute(question.where(runs.c.state.in_(CHANGING)) if changing_only else question)
    return {id_: (state, location) for id_, state, location in rows}


def imported_from(db: Connection, digest: str) -> list[str]:
    """The runs imported from a file with this checksum."""
    return list(db.execute(select(runs.c.id).where(runs.c.imported_from == digest).order_by(runs.c.id)).scalars())


def count(db: Connection) -> int:
    return int(db.execute(select(func.count()).select_from(runs)).scalar_one())


def entries(
    db: Connection, home: Path, clauses: Sequence[Clause], order: Sequence[Any], limit: int | None
) -> list[tuple[int, Entry]]:
    """Entries with their numbers from the index."""
    question = select(runs.c.number, runs.c.headline, *(runs.c[name] for name in _PLAIN))
    rows = db.execute(question.where(*clauses).order_by(*order).limit(limit)).all()
    names = [row.id for row in rows]
    known_tags, cases = _tags(db, names), _cases(db, names)
    try:
        return [(row[0], _entry(row[1], row[2:], home, known_tags, cases)) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Broken(f"the index has a damaged row: {error}") from error


def _entry(
    headline: str,
    plain: Sequence[Any],
    home: Path,
    known_tags: dict[str, list[str]],
    cases: dict[str, tuple[str, str | None]],
) -> Entry:
    columns = dict(zip(_FIELDS, plain, strict=True))
    id_ = columns["id"]
    experiment, case = cases.get(id_, (None, None))
    values = orjson.loads(headline)
    _check_types(columns, values)
    return Entry(
        **columns,
        values=values,
        tags=tuple(sorted(known_tags.get(id_, ()))),
        experiment=experiment,
        case=case,
        folder=folder_at(columns["location"], id_, home),
    )


def _check_types(row: Mapping[str, Any], values: Any) -> None:
    """SQLite accepts any type in any column, and another program may have written one."""
    for name, value in row.items():
        if value is not None and type(value) is not (int if name == "requests" else str):
            raise TypeError(f"{name} is {value!r}")
    if not isinstance(values, dict) or not all(isinstance(value, (int, float)) for value in values.values()):
        raise TypeError(f"headline is {str(values)[:40]}")


_PLAIN = [name for name in runs.columns.keys() if name not in ("number", "started", "headline", "imported_from")]  # noqa: SIM118
_FIELDS = ["started_at" if name == "started_as" else name for name in _PLAIN]


def folder_at(location: str, id_: str, home: Path) -> Path:
    """Location of the folder; for a run in an object store, its location after it is fetched."""
    if location.startswith("file://"):
        return Path("/" + location.removeprefix("file://").partition("/")[2])
    return home / "cache" / id_ if "://" in location else home / location


class Details(NamedTuple):
    """Quantities and settings of a run that were requested in addition to the headline."""

    values: dict[str, float]
    settings: dict[str, str]


def details_of(db: Connection, names: Sequence[Name], numbers: Sequence[int]) -> dict[int, Details]:
    """Details by the number of the run."""
    details = {number: Details({}, {}) for number in numbers}
    keys = [name.name for name in names if name.kind == "quantity"]
    paths = [name.name for name in names if name.kind == "parameter"]
    chosen = select(quantities.c.run, quantities.c.key, quantities.c.value).where(quantities.c.key.in_(keys))
    settings = select(parameters.c.run, parameters.c.path, parameters.c.text).where(parameters.c.path.in_(paths))
    few = len(numbers) <= AT_ONCE
    for number, key, value in (
        db.execute(chosen.where(quantities.c.run.in_(numbers)) if few else chosen) if keys else ()
    ):
        if number in details:
            details[number].values[key] = value
    texts = settings.where(parameters.c.run.in_(numbers)) if few else settings
    for number, path, setting in db.execute(texts) if paths else ():
        if number in details:
            details[number].settings[path] = setting
    return details


def numbers_of(db: Connection, keys: Sequence[str], ids: Sequence[str]) -> dict[str, dict[str, float]]:
    """Quantities by run id."""
    question = select(runs.c.id, quantities.c.key, quantities.c.value).where(
        runs.c.number == quantities.c.run, quantities.c.key.in_(keys)
    )
    values: dict[str, dict[str, float]] = {id_: {} for id_ in ids}
    for id_, key, value in db.execute(question.where(runs.c.id.in_(ids)) if len(ids) <= AT_ONCE else question):
        if id_ in values:
            values[id_][key] = value
    return values


def stamp(db: Connection) -> int:
    states = db.execute(select(runs.c.id, runs.c.state, runs.c.verdict).order_by(runs.c.id))
    cases = db.execute(select(experiments.c.run).order_by(experiments.c.run)).scalars()
    return hash((tuple(map(tuple, states)), tuple(cases)))


def _tags(db: Connection, ids: Sequence[str]) -> dict[str, list[str]]:
    question = select(tags.c.run, tags.c.tag)
    by_run: dict[str, list[str]] = {}
    for run, tag in db.execute(question.where(tags.c.run.in_(ids)) if len(ids) <= AT_ONCE else question):
        by_run.setdefault(run, []).append(tag)
    return by_run


def _cases(db: Connection, ids: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    question = select(experiments.c.run, experiments.c.experiment, experiments.c.case)
    few = question.where(experiments.c.run.in_(ids)) if len(ids) <= AT_ONCE else question
    return {run: (experiment, case) for run, experiment, case in db.execute(few)}


def _parts(things: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(things)
    while part := list(islice(rest, AT_ONCE)):
        yield part


# -- reindexing ------------------------------------------------------------------------------------------------------


class Reindexed(NamedTuple):
    """Result of rebuilding the index."""

    runs: int
    uploaded: int  # of those, uploads that were pending
    damaged: dict[str, tuple[str, str]]  # by id: the problem, and how to fix it
    half_uploaded: list[str]  # by another machine


def reindexed(store: "Store") -> Reindexed:
    remove_leftovers(store.home)
    folders = folders_in(store.home)
    listings = [entry for path in folders.values() if (entry := listing_at(path, store.location_of(path)))]
    waiting = [listing.row.id for listing in listings if store.objects and listing.row.state not in CHANGING]
    remote, half = store.objects.runs() if store.objects else ([], [])
    there = [_remote_listing(store, store.objects, id_) for id_ in remote if id_ not in folders and store.objects]

    def write(db: Connection) -> None:
        one_writer(db)
        _forget_ours(store, db)
        enter(db, [*listings, *there])

    store.change(write)
    for id_ in waiting:
        store.add(load_run(folders[id_]))
    damaged = {
        listing.row.id: (listing.row.damage or "", listing.row.remedy or "")
        for listing in [*listings, *there]
        if listing.row.state == DAMAGED
    }
    return Reindexed(len(listings) + len(there), len(waiting), damaged, [id_ for id_ in half if id_ not in folders])


def _forget_ours(store: "Store", db: Connection) -> None:
    """Removes everything that will be read again from folders; not the entries of other machines. Baselines stay, so
    that one with a deleted run can be reported as such."""
    known = known_runs(db)
    ours = [id_ for id_, (_, location) in known.items() if _is_ours(store, id_, location)]
    if len(ours) == len(known):
        forget_all(db)
    else:
        forget(db, ours)
    forget_marks(db, ours)


def _is_ours(store: "Store", id_: str, location: str) -> bool:
    return (store.objects is not None and location == store.objects.at(id_)) or store.was_here(id_, location)


def _remote_listing(store: "Store", objects: Objects, id_: str) -> Listing:
    location, folder = objects.at(id_), store.home / "cache" / id_
    try:
        files = objects.fetch(location, folder, whole=False)
        return listing_of(load_run(folder, files_elsewhere=files), location)
    except StoreError as error:
        return damaged_listing(damaged_by(error, folder), location)


# Finds a run (by id, the start of one, its name, `latest`, a baseline or a tag), and its folder: on this machine, or in
# an object store and then in the cache.

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
    raise StoreError(f"no run {wanted!r}; did you mean {_nearest(db, wanted)}?", "inferometer list shows all runs")


def _exact(db: Connection, wanted: str) -> list[RunMatch]:
    return [RunMatch(*row) for row in db.execute(_BY_ID.where(runs.c.id == wanted))]


def _by_id(db: Connection, wanted: str) -> list[RunMatch]:
    starts = [RunMatch(*row) for row in db.execute(_BY_ID.where(runs.c.id.startswith(wanted, autoescape=True)))]
    ends = _BY_ID.where(runs.c.id.endswith(f"-{wanted}", autoescape=True))
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
    """The newest run with this tag."""
    return [RunMatch(*row) for row in db.execute(_BY_ID.where(tagged(wanted)).limit(1))]


def _nth(db: Connection, back: int, home: Path) -> RunMatch:
    """Among runs that can be shown, if there are any: a run that failed before anything was sent has no numbers, and a
    damaged folder, or an unrelated one, must not hide the others."""
    sound = runs.c.state != DAMAGED
    has_numbers = or_(runs.c.state != "failed", runs.c.requests.is_not(None))
    shown = and_(sound, has_numbers)
    kept = db.execute(_BY_ID.where(shown).limit(back + 1)).all()
    failed = db.execute(_BY_ID.where(sound, ~has_numbers)).all()
    logged = [row for row in failed if logs_of(folder_at(row.location, row.id, home))]
    others = failed or db.execute(_BY_ID.where(~sound)).all()
    candidates = sorted({*kept, *logged}, key=lambda row: str(row.id), reverse=True) or others
    if back >= len(candidates):
        total = len(db.execute(_BY_ID.where(shown)).all()) + len(logged) or len(others)
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


_BY_ID = select(runs.c.id, runs.c.location).order_by(runs.c.id.desc())

# -- fetching --------------------------------------------------------------------------------------------------------


def whole_folder(store: "Store", place: RunMatch) -> Path:
    """The folder with all its files."""
    objects = store.objects_of(place.location)
    if objects is None:
        return _local(store, place)
    folder = folder_at(place.location, place.id, store.home)
    objects.fetch(place.location, folder, whole=True)
    return folder


def lazy_run(store: "Store", place: RunMatch) -> Run:
    """Its large files are fetched on request."""
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
    """None if the run has no such file."""

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
