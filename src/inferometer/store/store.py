"""`Store`: stores and finds runs, opened by the values of `--store` and `--records`. The run folders are authoritative;
the index answers queries, and follows the folders of this machine by itself."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.documents.document import is_unicode
from inferometer.errors import PlanError, StoreError
from inferometer.judge.identity import Identity
from inferometer.record.run import Run, RunKind
from inferometer.store.entry import CHANGING, DAMAGED, Entry, Listing, damaged_listing, listing_at, listing_of
from inferometer.store.folder import RunFolder, check_writable, data_folder, load_run, new_run
from inferometer.store.manifest import Marks, checked_label, marks_bytes, read_marks, write_marks
from inferometer.store.objects import Objects, changed_of, folders_in, is_folder_of_run, is_object_store, remove_folder
from inferometer.store.shapes import Damaged, DamagedError

# -- store -----------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    import sqlalchemy as sql
    from sqlalchemy import Connection

    from inferometer.store import databases, index, query, tables
else:

    class _OnUse:
        """A module that is imported on first use. SQLAlchemy takes as long to import as everything else in a short run,
        and a run does not query the index."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self._name), name)

    sql = _OnUse("sqlalchemy")
    databases, index, query, tables = (
        _OnUse(f"inferometer.store.{name}") for name in ("databases", "index", "query", "tables")
    )

Answer = TypeVar("Answer")


class Store:
    def __init__(
        self,
        home: Path,
        open_database: Callable[[], databases.Database],
        objects: Objects | None = None,
        folder: Path | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.home = home  # run folders of this machine are in home/runs, fetched ones in home/cache
        self._open_database = open_database  # on request: a run on this disk never needs it
        self.objects = objects
        self.warnings = list(warnings)
        self._batch: list[Listing] | None = None
        self._moves_with_us = folder == home  # then locations are relative: the store can be moved

    def close(self) -> None:
        """Close the index; the next query opens it again."""
        if "database" in vars(self):
            self.database.close()

    @functools.cached_property
    def database(self) -> databases.Database:
        return self._open_database()

    def __str__(self) -> str:
        return str(self.home) if self._moves_with_us else self.database.shown

    # -- keeping ------------------------------------------------------------------------------------------------

    def new_run(
        self, started: datetime | None = None, kind: RunKind = "serving", source: str | None = None
    ) -> RunFolder:
        """A new folder for a run that starts now, after checking that its store is writable."""
        self._check_servers()
        return new_run(self.home, started, kind, source)

    def check_writable(self) -> None:
        """Whether a run could be stored, tested before the load starts and not after it."""
        check_writable(self.home)
        self._check_servers()

    def _check_servers(self) -> None:
        if not self._moves_with_us:
            databases.ping(self.database)
        if self.objects is not None:
            self.objects.check_writable()

    def add(self, run: Run) -> Run:
        """Add a finished run to the index, after its upload if there is an object store. Returns the run with its
        present location.

        A run whose folder is next to the index is entered by the next query, which checks the folders in any case: so
        no query can miss it, and measuring does not wait for a database.
        """
        if self.objects is None and self._moves_with_us and self._batch is None:
            return run
        folder = run.folder or self.home / "runs" / run.id
        location = self.location_of(folder)
        if self.objects is not None and run.state != "partial":
            location, run = self._uploaded(run, folder)
        listing = listing_of(run, location)
        if self._batch is not None:
            self._batch.append(listing)
            self._enter_batch(index.AT_ONCE)
        else:
            self._enter([listing])
        return run

    def enter(self, run: Run) -> None:
        """Enter a run in the index with the present content of its folder."""
        self._enter([listing_of(run, self.location_of(run.folder or self.home / "runs" / run.id))])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Runs that are added inside are entered many at a time; if the block ends early, the index finds them
        itself."""
        self._batch = []
        try:
            yield
        finally:
            self._enter_batch(1)
            self._batch = None

    def share(self) -> None:
        """Enter the runs that other machines could not see otherwise: all except folders on a shared disk."""
        if self.objects is not None or not self._moves_with_us:
            self._enter_batch(1)

    def imported_from(self, digest: str) -> list[str]:
        """The runs imported from the file with this SHA-256, from an index shared with others; runs on this disk are
        entered first."""
        if self.objects is None and self._moves_with_us:
            return []
        return self.answer(lambda db: index.imported_from(db, digest))

    def _enter_batch(self, at_least: int) -> None:
        if self._batch is not None and len(self._batch) >= at_least:
            self._enter(self._batch)
            self._batch = []

    def _enter(self, listings: Sequence[Listing]) -> None:
        self.change(lambda db: index.enter(db, listings))

    def _uploaded(self, run: Run, folder: Path) -> tuple[str, Run]:
        """An uploaded run becomes part of the cache; until then it waits in its place."""
        assert self.objects is not None
        location = self.objects.upload(folder)
        cached = self.home / "cache" / run.id
        cached.parent.mkdir(parents=True, exist_ok=True)
        if cached != folder:
            remove_folder(cached)
            folder.replace(cached)
        return location, load_run(cached)

    def objects_of(self, location: str) -> Objects | None:
        """The object store that contains a location, if any: not always the one for new runs."""
        if "://" not in location or location.startswith("file://"):
            return None
        base = location.rpartition("/runs/")[0]
        return self.objects if self.objects and self.objects.url == base else Objects(base)

    def location_of(self, folder: Path) -> str:
        if self._moves_with_us and folder.is_relative_to(self.home):
            return str(folder.relative_to(self.home))
        return f"file://{platform.node()}{folder.resolve()}"

    # -- asking -------------------------------------------------------------------------------------------------

    def runs(
        self,
        limit: int | None = None,
        *,
        where: Sequence[str | query.Condition] = (),
        sort: str | None = None,
        columns: Sequence[str] = (),
        numbers: Sequence[str] = (),
        kind: str | None = None,
        tag: str | None = None,
        identity: str | Identity | None = None,
        experiment: str | None = None,
    ) -> list[Entry]:
        """Newest first, or in the order of `sort` (`-output_rate`). `columns` are names of quantities and settings, as
        users write them, to include in addition to the headline; `numbers` are keys of quantities to include, if a run
        has them."""
        conditions = [query.condition(given) if isinstance(given, str) else given for given in where]
        conditions += [query.Condition("kind", "=", kind)] if kind else []
        conditions += [query.Condition("experiment", "=", experiment)] if experiment else []
        more = [query.tagged(tag)] if tag else []
        if identity is not None:
            more.append(query.of_identity(identity if isinstance(identity, str) else identity.key))

        def question(db: Connection) -> list[Entry]:
            clauses = [*(query.clause(db, wanted) for wanted in conditions), *more]
            return self._entries(db, clauses, query.ordering(db, sort), limit, columns, numbers)

        return self.answer(question)

    def numbers(self, keys: Sequence[str], ids: Sequence[str]) -> dict[str, dict[str, float]]:
        """The quantities with these keys for these runs, without the rest of their entries."""
        return self.answer(lambda db: index.numbers_of(db, keys, ids))

    def count(self) -> int:
        """The number of runs."""
        return self.answer(index.count)

    def stamp(self) -> int:
        """A number that changes when a run is added, removed or finished, or becomes the case of an experiment."""
        return self.answer(index.stamp)

    def history(self, identity: str | Identity, columns: Sequence[str] = (), limit: int | None = None) -> list[Entry]:
        """The runs of one identity, oldest first; if there are more than `limit`, the last ones."""
        return self.runs(limit, identity=identity, columns=columns)[::-1]

    def entry(self, wanted: str) -> Entry:
        """The run with this id, start of an id or name, `latest`, `latest~2`, a baseline or a tag."""

        def question(db: Connection) -> Entry:
            id_ = index.find_run(db, wanted, str(self), self.home).id
            return self._entries(db, [tables.runs.c.id == id_], [tables.runs.c.id], None)[0]

        return self.answer(question)

    def find(self, wanted: str) -> Path:
        """The folder of a run with all files; a path is returned unchanged."""
        place = self._find(wanted)
        return place if isinstance(place, Path) else index.whole_folder(self, place)

    def load(self, wanted: str) -> Run:
        """A run, with records and samples fetched on request."""
        place = self._find(wanted)
        if isinstance(place, Path):
            return load_run(place)
        try:
            return index.lazy_run(self, place)
        except DamagedError as error:
            self._note_damage(error.damaged, place.location)
            raise

    def _note_damage(self, damaged: Damaged, location: str) -> None:
        """From now on it is listed as damaged, until it can be read again."""
        with suppress(StoreError):
            self._enter([damaged_listing(damaged, location)])

    def _find(self, wanted: str) -> index.RunMatch | Path:
        path = Path(wanted).expanduser()
        if "/" in wanted or (path / "run.json").exists():
            return path
        return self.answer(lambda db: index.find_run(db, wanted, str(self), self.home))

    def _entries(
        self,
        db: Connection,
        clauses: Sequence[query.Clause],
        order: Sequence[Any],
        limit: int | None,
        columns: Sequence[str] = (),
        numbers: Sequence[str] = (),
    ) -> list[Entry]:
        names = [name for name in query.names_of(db, columns) if name.kind in ("quantity", "parameter")]
        names += [query.Name("quantity", key) for key in numbers]
        numbered = index.entries(db, self.home, clauses, order, limit)
        if not names:
            return [entry for _, entry in numbered]
        more = index.details_of(db, names, [number for number, _ in numbered])
        for number, entry in numbered:  # just created and not shared
            entry.values.update(more[number].values)
            entry.parameters.update(more[number].settings)
        return [entry for _, entry in numbered]

    # -- marks: tags, baselines ----------------------------------------------------------------------------------

    def tag(self, wanted: str, labels: Sequence[str]) -> Entry:
        checked = [checked_label(label, "tag") for label in labels]
        return self._mark(wanted, lambda marks: marks.tagged(*checked))

    def untag(self, wanted: str, labels: Sequence[str]) -> Entry:
        return self._mark(wanted, lambda marks: marks.untagged(*labels))

    def set_case(self, wanted: str, experiment: str, case: str | None = None) -> Entry:
        """Mark the run as a case of an experiment."""
        return self._mark(wanted, lambda marks: marks.as_case(experiment, case))

    def set_baseline(self, name: str, wanted: str) -> Entry:
        """Make the run the baseline of that name, instead of the previous one."""
        baseline, now = checked_label(name, "baseline"), datetime.now(UTC).isoformat()
        before = self.baselines().get(baseline)
        entry = self._mark(wanted, lambda marks: marks.as_baseline(baseline, now))
        if before not in (None, entry.id):
            self._unmark(str(before), baseline)
        return entry

    def remove_baseline(self, name: str) -> None:
        run, _ = self.answer(lambda db: index.baseline_of(db, name)) or (None, "")
        if run is None:
            raise self._no_baseline(name)
        self._unmark(run, name)
        self.change(lambda db: db.execute(sql.delete(tables.baselines).where(tables.baselines.c.name == name)))

    def _unmark(self, run: str, baseline: str) -> None:
        with suppress(StoreError):  # the run may have been deleted, its name is removed nevertheless
            self._mark(run, lambda marks: marks.not_baseline(baseline))

    def baseline(self, name: str) -> Entry:
        """The baseline run of that name; an error if it was deleted."""
        run, set_at = self.answer(lambda db: index.baseline_of(db, name)) or (None, "")
        if run is None:
            raise self._no_baseline(name)
        kept = self.answer(lambda db: self._entries(db, [tables.runs.c.id == run], [tables.runs.c.id], 1))
        if not kept:
            hint = f"choose another: inferometer store baseline {name} RUN"
            raise StoreError(f"baseline {name!r} was run {run} since {set_at[:10]}, which was deleted", hint)
        return kept[0]

    def baselines(self) -> dict[str, str]:
        """Names to run ids, including deleted runs."""
        return self.answer(
            lambda db: dict(db.execute(sql.select(tables.baselines.c.name, tables.baselines.c.run)).all())
        )

    def _no_baseline(self, name: str) -> StoreError:
        known = ", ".join(sorted(self.baselines()))
        there = f"there are {known}" if known else "there is none yet"
        return StoreError(f"no baseline {name!r}; {there}", f"set it: inferometer store baseline {name} RUN")

    def _mark(self, wanted: str, change: Any) -> Entry:
        """In the folder of the run, which is authoritative, and in the index. If the folder is on another machine, only
        in the index."""
        entry = self.entry(wanted)
        marks = change(self._marks(entry))
        if (objects := self.objects_of(entry.location)) is not None:
            objects.write_marks(entry.location, marks_bytes(marks))
        if entry.folder.is_dir():
            write_marks(entry.folder, marks)

        def enter(db: Connection) -> None:
            index.one_writer(db)
            db.execute(sql.delete(tables.tags).where(tables.tags.c.run == entry.id))
            index.enter_marks(db, entry.id, marks)

        self.change(enter)
        return self.entry(entry.id)

    def _marks(self, entry: Entry) -> Marks:
        objects = self.objects_of(entry.location)
        if objects is not None:
            objects.fetch(entry.location, entry.folder, whole=False)
        marks = read_marks(entry.folder) if entry.folder.is_dir() else Marks()
        all_known = marks.tagged(*entry.tags)
        return all_known.as_case(entry.experiment, entry.case) if entry.experiment else all_known

    # -- following the folders ----------------------------------------------------------------------------------

    def answer(self, question: Callable[[Connection], Answer]) -> Answer:
        """Queries the index, after bringing it up to date. An invalid index is rebuilt from the folders; if it cannot
        be written it is rebuilt in memory: a full disk must not prevent reading."""
        try:
            try:
                return self._ask(self.database, question)
            except databases.Broken:
                self.database.discard()
                return self._ask(self.database, question)
        except (databases.Broken, databases.Unwritable):
            return self._ask(databases.MemoryIndex(), question)

    def _ask(self, database: databases.Database, question: Callable[[Connection], Answer]) -> Answer:
        self._follow(database)
        with database.reading() as db:
            return question(db)

    def change(self, what: Callable[[Connection], object]) -> None:
        """Applied completely, or not at all; an invalid index is rebuilt first."""
        try:
            with self.database.writing() as db:
                what(db)
            return
        except databases.Broken:
            self.database.discard()
        self._follow(self.database)
        with self.database.writing() as db:
            what(db)

    def _follow(self, database: databases.Database) -> None:
        """Enters runs that are new or were not finished, and removes those whose folder was deleted. If no folder was
        added or removed since the last time, only unfinished runs are read."""
        runs_here = self.home / "runs"
        place, changed_at = self.location_of(runs_here), changed_of(runs_here)
        with database.reading() as db:
            is_quiet = changed_at is not None and index.followed_at(db, place) == changed_at
            known = index.known_runs(db, changing_only=is_quiet)
        seen = {id_: runs_here / id_ for id_ in known} if is_quiet else folders_in(self.home)
        folders = {id_: path for id_, path in seen.items() if not is_quiet or is_folder_of_run(path)}
        changing = [id_ for id_ in folders if known.get(id_, _UNKNOWN)[0] in CHANGING]
        gone = [id_ for id_, (_, location) in known.items() if id_ not in folders and self.was_here(id_, location)]
        listings = [entry for id_ in changing if (entry := listing_at(folders[id_], self.location_of(folders[id_])))]
        if listings or gone or (not is_quiet and changed_at is not None):
            with database.writing() as db:
                index.enter(db, listings)
                index.forget(db, gone)
                index.forget_marks(db, gone)
                index.set_followed(db, place, changed_at)

    def was_here(self, id_: str, location: str) -> bool:
        """Whether a run without a folder belonged to this machine: those of other machines must not be removed."""
        return location == self.location_of(self.home / "runs" / id_)

    def reindex(self) -> index.Reindexed:
        """Rebuild the index from the run folders, including those in the object store; upload pending runs."""
        return index.reindexed(self)

    def remove(self, entry: Entry) -> None:
        """Delete the folder, and the entry in the index."""
        objects = self.objects_of(entry.location)
        if objects is not None:
            objects.delete(entry.location)
        elif not entry.folder.is_dir():
            raise StoreError(f"{entry.id}: its folder is not here: {entry.location}")
        remove_folder(entry.folder)

        def forget(db: Connection) -> None:
            index.one_writer(db)
            index.forget(db, [entry.id])
            index.forget_marks(db, [entry.id])

        self.change(forget)


_UNKNOWN = (DAMAGED, "")


# -- opening ---------------------------------------------------------------------------------------------------------

Place = Store | Path | str | None  # accepted by every function that stores or finds runs


def open_store(where: Place = None, records: str | Path | None = None) -> Store:
    """A folder, or `postgresql://user@host/database` with the run folders at `records`: a folder, `s3://...` or
    `gs://...`. Without arguments the default: `$INFEROMETER_STORE` and `$INFEROMETER_RECORDS`."""
    if isinstance(where, Store):
        return where
    chosen = str(where or os.environ.get("INFEROMETER_STORE") or data_folder())
    kept_at = str(records or os.environ.get("INFEROMETER_RECORDS") or "").removeprefix("file://")
    if is_object_store(chosen):
        hint = f"put the index into a folder or PostgreSQL: --store FOLDER --records {chosen}"
        raise PlanError(f"--store {chosen}: run folders can be stored there, the index cannot", hint)
    for name, place in (("--store", chosen), ("--records", kept_at)):
        if not is_unicode(place):
            raise PlanError(f"{name} {place!a}: must be a path in UTF-8")
        if "://" in place and not (_is_postgres(place) if name == "--store" else is_object_store(place)):
            takes = "a folder or postgresql://..." if name == "--store" else "a folder, s3://... or gs://..."
            raise PlanError(f"{name}: takes {takes}, not {place.partition('://')[0]}://")
    return _opened(chosen, kept_at)


@functools.lru_cache(maxsize=16)
def _opened(where: str, records: str) -> Store:
    objects = Objects(records) if is_object_store(records) else None
    if _is_postgres(where):
        return _of_team(where, records, objects)
    folder = Path(where).expanduser()
    home = Path(records).expanduser() if records and objects is None else folder
    for place in (folder, home / "runs"):  # else the store would seem empty until a run has to be stored
        if place.exists() and not place.is_dir():
            raise StoreError(f"{place}: not a folder", "use another store: --store FOLDER")
    return Store(home, lambda: databases.SqliteIndex(folder, home), objects, folder)


def _is_postgres(where: str) -> bool:
    return where.startswith(("postgresql:", "postgres:", "postgresql+psycopg:"))


def _of_team(url: str, records: str, objects: Objects | None) -> Store:
    """Runs to be uploaded to an object store wait in a separate folder."""
    if objects is not None:
        home = data_folder() / "outgoing" / hashlib.sha256(objects.url.encode()).hexdigest()[:12]
    else:
        home = Path(records).expanduser() if records else data_folder()
    warnings = []
    if not records:
        warnings.append(
            f"run folders stay on this machine, in {home}: --records s3://... or a shared folder for a team"
        )
    database = databases.PostgresIndex(url)
    return Store(home, lambda: database, objects, warnings=warnings)
