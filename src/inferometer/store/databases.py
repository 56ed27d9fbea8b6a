"""The two databases of an index, SQLite and PostgreSQL, opened for each query, so that any number of processes can use
it at the same time."""

import os
import shlex
import sqlite3
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool

from inferometer.errors import MissingExtra, StoreError
from inferometer.record.files import translated_errors
from inferometer.store.query import regexp
from inferometer.store.tables import SCHEMA, is_current, migrate

INDEX = "index.sqlite"
ATTEMPT_S = 1.0  # how long one attempt waits for another process, before a message is printed
LOCKED_S = 60.0  # how long we wait in total
PAUSE_S = 0.05  # between attempts: some are refused immediately
CONNECT_S = 10  # PostgreSQL answers within this time, or it is not reachable
_WRITES = "inferometer_writes"
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT)
_OTHER_TABLES = ("no such table", "no such column", "has no column", "duplicate column", "already exists", "malformed")
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)


class Database(Protocol):
    """The location of the tables."""

    @property
    def shown(self) -> str:
        """Its location in a form that may be printed."""

    def reading(self) -> Any:
        """A context with a connection that sees a consistent snapshot."""

    def writing(self) -> Any:
        """A context with a connection whose changes are applied together, or not at all."""

    def held(self, key: int) -> Any:
        """A context that only one process at a time can enter, among all that use this index with this key."""

    def discard(self) -> None:
        """Drop invalid content: the next query finds an empty index, to be filled from the folders."""

    def close(self) -> None:
        """Close until the next query."""


class Unwritable(StoreError):
    """The disk is full, read-only or broken, or another process holds a lock: the existing data can still be read."""


class Broken(StoreError):
    """The content of the index is invalid; everything in it is also in the folders."""


class SqliteIndex:
    """A file next to the run folders, recreated if it is missing or broken. It stays open between queries: SQLite
    cleans up when the last connection is closed, which takes longer than adding a run."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.file = folder / INDEX
        self._runs = (home or folder) / "runs"  # without it there is no store: no run was made yet
        self._engine: Engine | None = None
        self._opened_as: tuple[int, int] | None = None

    @property
    def shown(self) -> str:
        return str(self.file)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._translated_errors(), self._connected(writes=False) as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Queues for the write lock at the start, instead of failing half way."""
        with self._translated_errors(), self._connected(writes=True) as db, db.begin():
            yield db

    def held(self, key: int) -> Any:
        """Processes that share the file share the disk, and use file locks on it."""
        return nullcontext()

    def discard(self) -> None:
        """Set aside for inspection, unless another process has already done so."""
        if self._engine is not None:
            self._engine.dispose()
        if self._opened_as is None or self._seen() == self._opened_as:
            try:
                _set_aside(self.file)
            except StoreError as error:
                raise Unwritable(error.message, error.hint) from error

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    @contextmanager
    def _connected(self, writes: bool) -> Iterator[Connection]:
        if not self._runs.is_dir() or not os.access(self.file.parent, os.W_OK):
            raise Unwritable(f"{self.file}: there is no store, or it is read-only")
        engine = self._prepared()
        with engine.connect().execution_options(**{_WRITES: writes}) as db:
            yield db

    def _prepared(self) -> Engine:
        """The file may have been deleted, replaced or damaged since the last query."""
        if os.path.lexists(self.file) and not self.file.is_file():  # a folder, a pipe, a broken link
            _set_aside(self.file)
        engine = self._open()
        self._opened_as = self._seen() or self._opened_as
        try:
            _prepare(engine)
        except (DBAPIError, UnicodeDecodeError) as error:
            if isinstance(error, DBAPIError) and not _is_broken(error):
                raise
            self.discard()
            _prepare(engine)
        self._opened_as = self._seen()
        return engine

    def _open(self) -> Engine:
        if self._engine is None:
            self._engine = sqlite_engine(f"sqlite:///{self.file}")
            weakref.finalize(self, self._engine.dispose)
        elif self._seen() != self._opened_as:
            self._engine.dispose(close=self._opened_as is not None and os.getpid() == self._opened_as[0])
        return self._engine

    def _seen(self) -> tuple[int, int] | None:
        """Identifies the file and this process: a connection must not be shared with a forked process."""
        try:
            return os.getpid(), self.file.stat().st_ino
        except OSError:
            return None

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._error(error) from error
        except UnicodeDecodeError as error:  # in the names of its tables, or in their definitions
            raise Broken(f"{self.file}: {error}", "rebuild it from the runs: inferometer store reindex") from error

    def _error(self, error: DBAPIError) -> StoreError:
        what = f"{self.file}: {error.orig}"
        if _code(error) in _BUSY:
            hint = f"wait for it or stop it; to find it: fuser {shlex.quote(str(self.file))}"
            return Unwritable(f"{self.file}: another process has not released the index for {LOCKED_S:.0f} s", hint)
        if _is_broken(error):
            return Broken(what, "rebuild it from the runs: inferometer store reindex")
        if _code(error) in _UNWRITABLE:
            return Unwritable(what, "free disk space, or get write permission")
        return StoreError(what)


class MemoryIndex:
    """In memory, for a store that cannot be written: it is rebuilt from the folders each time."""

    shown = "memory"

    def __init__(self) -> None:
        self._engine = sqlite_engine("sqlite://")
        _prepare(self._engine)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._engine.connect() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._engine.begin() as db:
            yield db

    def held(self, key: int) -> Any:
        """Only this process uses it."""
        return nullcontext()

    def discard(self) -> None:
        """Nothing to do: it is new each time."""

    def close(self) -> None:
        self._engine.dispose()


class PostgresIndex:
    """One index for a team, by URL."""

    def __init__(self, url: str) -> None:
        from inferometer.plan.secrets import redacted_url  # imports the whole plan

        self.shown = redacted_url(url)
        self._engine = _postgres_engine(url, self.shown)
        self._is_prepared = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._translated_errors(), self._prepared().connect() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._translated_errors(), self._prepared().begin() as db:
            yield db

    @contextmanager
    def held(self, key: int) -> Iterator[None]:
        """For the whole session and not for a transaction, because the code inside has transactions of its own."""
        with (
            self._translated_errors(),
            self._prepared().connect().execution_options(isolation_level="AUTOCOMMIT") as db,
        ):
            db.execute(text("select pg_advisory_lock(:key)"), {"key": key})
            try:
                yield
            finally:
                db.execute(text("select pg_advisory_unlock(:key)"), {"key": key})

    def discard(self) -> None:
        """A team's index is not ours to delete."""
        raise StoreError(f"{self.shown}: the index is damaged", "rebuild it: inferometer store reindex")

    def close(self) -> None:
        self._engine.dispose()

    def _prepared(self) -> Engine:
        if not self._is_prepared:
            _prepare(self._engine)
            self._is_prepared = True
        return self._engine

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreError(f"{self.shown}: {_sentence(error)}", _postgres_hint(error)) from error


def sqlite_engine(url: str) -> Engine:
    pool: Any = StaticPool if url == "sqlite://" else QueuePool
    engine = create_engine(url, poolclass=pool, connect_args={"timeout": ATTEMPT_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are started explicitly, see below
        connection.execute("pragma synchronous = normal")  # kill -9 safe; what a power cut loses is in the folders
        connection.execute("pragma cache_size = -65536")  # KiB, used when needed: 10,000 runs have 1.4 million numbers
        connection.execute("pragma wal_autocheckpoint = 8000")  # pages: every 30 MB instead of every dozen runs
        connection.create_function("regexp", 2, regexp, deterministic=True)  # linear time, unlike SQLAlchemy's own

    @event.listens_for(engine, "begin")
    def begun(db: Connection) -> None:
        writes = db.get_execution_options().get(_WRITES)
        if writes:
            _waiting_for(db, lambda: db.exec_driver_sql("begin immediate"))
        else:
            db.exec_driver_sql("begin")
            _waiting_for(db, lambda: db.exec_driver_sql("select 1 from sqlite_master limit 1").all())

    return engine


def _waiting_for(db: Connection, attempt: Callable[[], Any]) -> None:
    """Waits for another process that is writing, and prints a message."""
    until, is_silent = time.monotonic() + LOCKED_S, True
    while True:
        try:
            attempt()
            return
        except DBAPIError as error:
            if _code(error) not in _BUSY or time.monotonic() > until:
                raise
        if is_silent:
            print(f"waiting for another process to release the index {db.engine.url.database} ...", file=sys.stderr)
            is_silent = False
        time.sleep(PAUSE_S)


def _code(error: DBAPIError) -> int:
    """SQLite's error code, without its extended part."""
    return int(getattr(error.orig, "sqlite_errorcode", None) or 0) & 0xFF


def _is_broken(error: DBAPIError) -> bool:
    """Whether the file or its tables are invalid; a full disk or a lock does not mean that."""
    if not isinstance(error.orig, sqlite3.Error):
        return False
    text = str(error.orig).lower()
    return (
        _code(error) in _BROKEN
        or any(phrase in text for phrase in _OTHER_TABLES)
        or "could not decode" in text
        or (_code(error) == 0 and isinstance(error.orig, sqlite3.DatabaseError) and "not a database" in text)
    )


def _prepare(engine: Engine) -> None:
    """Creates or migrates the tables of this version."""
    with engine.connect() as db:
        if is_current(db):
            return
    if engine.dialect.name == "sqlite" and engine.url.database:
        _switch_on_wal(engine)
    with engine.connect().execution_options(**{_WRITES: True}) as db, db.begin():
        migrate(db)


def _switch_on_wal(engine: Engine) -> None:
    raw = engine.raw_connection()
    try:
        with suppress(sqlite3.OperationalError):  # locked: another process is switching it on
            raw.cursor().execute("pragma journal_mode = wal")
    finally:
        raw.close()


def _set_aside(file: Path) -> None:
    """Keep a broken index for inspection; everything in it is also in the folders."""
    if not os.path.lexists(file):
        return
    aside = file.with_name(f"{file.name}.broken")
    if aside.is_dir() or (file.is_dir() and os.path.lexists(aside)):  # neither can replace the other
        aside = file.with_name(f"{file.name}.broken-{time.time_ns()}")
    with translated_errors(file):
        file.replace(aside)
        for tail in ("-wal", "-shm"):
            file.with_name(file.name + tail).unlink(missing_ok=True)


def _postgres_engine(url: str, shown: str) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("a store in PostgreSQL", "postgres") from None
    try:
        parsed = make_url(url).set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, pool_size=2, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_S})
    except (ArgumentError, NoSuchModuleError, ValueError):
        hint = "write postgresql://user@host:5432/database"
        raise StoreError(f"{shown}: not a PostgreSQL URL", hint) from None

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        was, connection.autocommit = connection.autocommit, True
        connection.execute(f"set search_path to {SCHEMA}")
        connection.autocommit = was

    return engine


def _sentence(error: DBAPIError) -> str:
    """The driver's message on one line; it contains host and user, never the password."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return "; ".join(lines[:2]) or type(error.orig).__name__


def _postgres_hint(error: DBAPIError) -> str | None:
    message = str(error.orig).lower()
    if "password" in message or "authentication" in message or "role" in message:
        return "give user and password in the URL, in PGUSER and PGPASSWORD, or in ~/.pgpass"
    if "does not exist" in message and "database" in message:
        return "create it first: createdb NAME; Inferometer creates the tables"
    if "permission denied" in message:
        return f"the user must be allowed to create the schema {SCHEMA}, or to write in it"
    if getattr(error, "connection_invalidated", False) or "connect" in message:
        return "is it running and reachable from here? A store without a server: --store FOLDER"
    return None


def ping(database: Database) -> None:
    """Whether it answers, tested before a run starts and not after it."""
    with database.reading() as db:
        db.execute(text("select 1"))
