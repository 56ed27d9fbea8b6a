"""The index of a store: what `list` shows and `show` finds, in SQLite.

It holds nothing that the run folders do not: it follows them, and is made anew where it is missing or broken.
"""

import difflib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.record.files import told
from inferometer.record.run import Run
from inferometer.record.schema import VERSIONS
from inferometer.store.entry import Entry, entry_at, entry_of
from inferometer.store.folder import logs_of

INDEX = "index.sqlite"
BUSY_S = 20.0  # how long a writer waits for the others

_TABLE = """
create table runs (
    id text primary key, started text not null, state text not null, verdict text, name text, model text,
    target text, requests integer, headline text not null, folder text not null
)"""
_COLUMNS = "id, started, state, verdict, name, model, target, requests, headline, folder"
_UPSERT = f"insert or replace into runs ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NEWEST = f"select {_COLUMNS} from runs order by id desc limit ?"
_LATEST = re.compile(r"latest(?:~([0-9]+))?")


class Index:
    """Opened for each question, so that any number of processes can use the store at once."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def add(self, run: Run) -> None:
        """Enter a run, or what is new about it."""
        with self._opened() as db:
            db.execute(_UPSERT, self._row(entry_of(run, run.folder or self.store / "runs" / run.id)))

    def runs(self, limit: int | None = None) -> list[Entry]:
        """The newest first."""
        try:
            with self._opened() as db:
                return self._newest(db, limit)
        except StoreError as error:
            if not _is_unwritable(error.__cause__):
                raise
        with closing(_in_memory()) as db:  # a full disk is no reason not to look at what is on it
            return self._newest(db, limit)

    def find(self, wanted: str) -> Path:
        """The folder of the run that is meant by an id, the start or the name of one, `latest`, `latest~2` or a
        path."""
        path = Path(wanted).expanduser()
        if os.sep in wanted or (path / "run.json").exists():
            return path
        entries = self.runs()
        if not entries:
            raise StoreError(f"{self.store}: no runs in it yet", "make one: inferometer run")
        if latest := _LATEST.fullmatch(wanted):
            return _nth([entry for entry in entries if _can_be_shown(entry)] or entries, int(latest[1] or 0)).folder
        return _matching(entries, wanted).folder

    def reindex(self) -> int:
        """Make the index anew from the run folders; how many runs there are."""
        with self._opened() as db:
            db.execute("delete from runs")
            self._follow_folders(db)
            (count,) = db.execute("select count(*) from runs").fetchone()
        return int(count)

    def _newest(self, db: sqlite3.Connection, limit: int | None) -> list[Entry]:
        self._follow_folders(db)
        return [self._entry(row) for row in db.execute(_NEWEST, (-1 if limit is None else limit,))]

    def _follow_folders(self, db: sqlite3.Connection) -> None:
        """Enter runs that are not there yet or were not done, forget those whose folder is gone."""
        known = dict(db.execute("select id, state from runs"))
        folders = _run_folders(self.store)
        changing = [folders[id_] for id_ in folders if known.get(id_, "unreadable") in ("unreadable", "partial")]
        entries = [entry for folder in changing if (entry := entry_at(folder))]
        gone = [(id_,) for id_ in known if id_ not in folders]
        with _writing(db):
            db.executemany(_UPSERT, map(self._row, entries))
            db.executemany("delete from runs where id = ?", gone)

    def _row(self, entry: Entry) -> tuple[object, ...]:
        """Folders relative to the store, so that it can be moved."""
        folder = entry.folder.relative_to(self.store) if entry.folder.is_relative_to(self.store) else entry.folder
        return (
            *(entry.id, entry.started_at, entry.state, entry.verdict, entry.name, entry.model, entry.target),
            *(entry.requests, orjson.dumps(entry.headline).decode(), str(folder)),
        )

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        *plain, headline, folder = row
        values = [*plain, orjson.loads(headline), self.store / folder]
        return Entry(*values)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        file = self.store / INDEX
        try:
            with closing(_connect(file)) as db:
                yield db
        except sqlite3.Error as error:
            raise StoreError(f"{file}: {error}", "it can be deleted: it is made anew from the runs") from error


def _connect(file: Path) -> sqlite3.Connection:
    """The index file; in memory where there is no store yet or it is read-only, so that reading always works."""
    if not (file.parent / "runs").is_dir() or not os.access(file.parent, os.W_OK):
        return _in_memory()
    try:
        return _prepared(sqlite3.connect(file, timeout=BUSY_S, isolation_level=None))
    except sqlite3.OperationalError:
        raise  # locked or full: the file itself is fine
    except sqlite3.DatabaseError:
        _set_aside(file)
        return _prepared(sqlite3.connect(file, timeout=BUSY_S, isolation_level=None))


def _in_memory() -> sqlite3.Connection:
    return _prepared(sqlite3.connect(":memory:", isolation_level=None))


def _is_unwritable(error: BaseException | None) -> bool:
    """Whether SQLite could not write: the disk is full, read-only or broken. A lock is another matter."""
    codes = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    try:
        if _version(db) < VERSIONS["index"]:
            with suppress(sqlite3.OperationalError):  # locked: somebody else is just switching it on
                db.execute("pragma journal_mode = wal")
            _make_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection) -> int:
    version = int(db.execute("pragma user_version").fetchone()[0])
    if version > VERSIONS["index"]:
        raise StoreError(
            f"the index of the store has version {version}, this Inferometer knows {VERSIONS['index']}",
            "update Inferometer: pip install --upgrade inferometer",
        )
    return version


def _make_tables(db: sqlite3.Connection) -> None:
    """Of an older version nothing is taken over: the folders have it all."""
    with _writing(db):
        if _version(db) < VERSIONS["index"]:  # nobody else did it while we waited for our turn
            db.execute("drop table if exists runs")
            db.execute(_TABLE)
            db.execute(f"pragma user_version = {VERSIONS['index']}")


def _set_aside(file: Path) -> None:
    """Keep a broken index for whoever wonders; everything in it is in the folders too."""
    with told(file):
        file.replace(file.with_name(f"{file.name}.broken"))
        for tail in ("-wal", "-shm"):
            file.with_name(file.name + tail).unlink(missing_ok=True)


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction that takes its turn among the writers at once, instead of failing half way."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def _run_folders(store: Path) -> dict[str, Path]:
    runs = store / "runs"
    if not runs.is_dir():
        return {}
    with told(runs):
        return {path.name: path for path in runs.iterdir() if path.is_dir() and not path.name.startswith(".")}


def _can_be_shown(entry: Entry) -> bool:
    """A run that failed before anything was sent has no numbers and no logs."""
    return entry.state != "failed" or entry.requests is not None or bool(logs_of(entry.folder))


def _nth(entries: list[Entry], back: int) -> Entry:
    if back >= len(entries):
        raise StoreError(f"latest~{back}: there are only {len(entries)} runs")
    return entries[back]


def _matching(entries: list[Entry], wanted: str) -> Entry:
    """By whole id, start of the id, or its name (`plum-otter`), whichever fits first."""
    by_id = {entry.id: entry for entry in entries}
    starts = [id_ for id_ in by_id if id_.startswith(wanted)]
    names = [id_ for id_ in by_id if id_.endswith(f"-{wanted}")]
    fitting = [wanted] if wanted in by_id else starts or names
    if len(fitting) == 1:
        return by_id[fitting[0]]
    if fitting:
        raise StoreError(f"{wanted!r} fits {len(fitting)} runs: {_listed(fitting)}", "write more of the id")
    near = difflib.get_close_matches(wanted, [*by_id, *map(_name, by_id)], n=1, cutoff=0.0)
    raise StoreError(f"no run {wanted!r}; the nearest is {near[0]}", "inferometer list shows them all")


def _name(id_: str) -> str:
    return "-".join(id_.split("-")[2:])


def _listed(ids: list[str]) -> str:
    rest = len(ids) - 5
    return ", ".join(ids[:5]) + (f" and {rest} more" if rest > 0 else "")
