"""The tables of the index, the same in SQLite and in PostgreSQL, and the migrations that bring older
ones to this form."""

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
)

from inferometer.errors import StoreError

# -- tables ----------------------------------------------------------------------------------------------------------

metadata = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only if the type is INTEGER

runs = Table(
    "runs",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),  # short, because the tables below repeat it often
    Column("id", String, nullable=False, unique=True),
    Column("started", String, nullable=False),  # UTC, so that it sorts; "" if unknown
    Column("started_as", String, nullable=False),  # as stored in the run, with its time zone
    Column("state", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("source", String),
    Column("verdict", String),
    Column("name", Text),
    Column("model", Text),
    Column("target", Text),
    Column("engine", Text),
    Column("engine_version", Text),
    Column("commit", Text),
    Column("hardware", Text),  # as text
    Column("requests", BigInteger),
    Column("workload_id", String),  # the three hashes of `judge.identity`
    Column("stack_id", String),
    Column("hardware_id", String),
    Column("headline", Text, nullable=False),  # JSON: the quantities shown by every list
    Column("weak", Text),  # keys of percentiles of too few samples, separated by blanks
    Column("location", Text, nullable=False),  # `runs/<id>` in the store, file://host/path, s3://bucket/path
    Column("damage", Text),  # why the folder cannot be read, if so
    Column("remedy", Text),
    Column("imported_from", String),  # the SHA-256 of the imported file
    Index("runs_of_identity", "workload_id", "stack_id", "hardware_id"),
    Index("runs_of_state", "state"),
    Index("runs_by_imported_from", "imported_from"),
)


def _of_run() -> Column[int]:
    """No foreign key: 150 checks per run took PostgreSQL longer than everything else, and only `index.forget`
    deletes."""
    return Column("run", _NUMBER, primary_key=True, autoincrement=False)


quantities = Table(
    "quantities",
    metadata,
    _of_run(),
    Column("key", String, primary_key=True),  # named as in `measure.values`: ttft.p99
    Column("value", Float(53), nullable=False),
    Column("low", Float(53)),
    Column("high", Float(53)),
    Index("quantities_by_value", "key", "value"),
    sqlite_with_rowid=False,
)

parameters = Table(
    "parameters",
    metadata,
    _of_run(),
    Column("path", String, primary_key=True),  # of the plan: load.rate
    Column("text", Text, nullable=False),
    Column("number", Float(53)),  # if it is one: 60 for 60s
    Index("parameters_by_path", "path", "number"),
    sqlite_with_rowid=False,
)

# By the run's id and not by its number: they survive when a run is entered again.
tags = Table(
    "tags",
    metadata,
    Column("run", String, primary_key=True),
    Column("tag", String, primary_key=True),
    Index("tags_by_tag", "tag"),
)

baselines = Table(
    "baselines",
    metadata,
    Column("name", String, primary_key=True),
    Column("run", String, nullable=False),
    Column("set_at", String, nullable=False),
)

# When a folder of runs was last checked: while no entry was added or removed, it need not be read again.
followed = Table(
    "followed",
    metadata,
    Column("place", String, primary_key=True),
    Column("changed_at", BigInteger, nullable=False),  # of the folder, nanoseconds
)

experiments = Table(
    "experiments",
    metadata,
    Column("run", String, primary_key=True),
    Column("experiment", String, nullable=False),
    Column("case", Text),
    Index("experiments_by_experiment", "experiment"),
)

# -- migrations ------------------------------------------------------------------------------------------------------

SCHEMA = "inferometer"  # in PostgreSQL: the database may contain other tools' tables, which may also be named runs
OLDEST = 2  # version 1 was a single table in SQLite that contained nothing beyond the run folders
_LOCK = 0x1F0E7E12  # an arbitrary key that no other program uses

Step = Callable[[Connection], None]


def _add_damage_and_imports(db: Connection) -> None:
    """Version 3: why a run cannot be read, and the file it was imported from."""
    for column in ("damage", "remedy", "imported_from"):
        db.execute(text(f"alter table runs add column {column} text"))
    db.execute(text("create index if not exists runs_by_imported_from on runs (imported_from)"))
    db.execute(text("update runs set state = 'damaged' where state = 'unreadable'"))


def _add_weak(db: Connection) -> None:
    """Version 4: which percentiles have too few samples; unknown for runs entered before, until a reindex."""
    db.execute(text("alter table runs add column weak text"))


STEPS: list[Step] = [_add_damage_and_imports, _add_weak]  # the first leads from OLDEST to the next version


def newest() -> int:
    return OLDEST + len(STEPS)


def version_of(db: Connection) -> int:
    """0 if there is no index yet."""
    if db.dialect.name == "sqlite":
        return int(db.execute(text("pragma user_version")).scalar_one())
    if not inspect(db).has_table("version", schema=SCHEMA):
        return 0
    return int(db.execute(text(f"select number from {SCHEMA}.version")).scalar_one())


def is_current(db: Connection) -> bool:
    """Refuses an index created by a newer Inferometer: the meaning of its columns is unknown here."""
    version = version_of(db)
    if version > newest():
        raise StoreError(
            f"the index of the store has version {version}, this Inferometer knows {newest()}",
            "update Inferometer: pip install --upgrade inferometer",
        )
    return version == newest()


def migrate(db: Connection) -> None:
    """Must be called inside a transaction with a write lock."""
    if db.dialect.name != "sqlite":
        db.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        db.execute(text(f"create schema if not exists {SCHEMA}"))
    if is_current(db):  # another process did it while we waited
        return
    version = version_of(db)
    if version < OLDEST:
        metadata.drop_all(db)  # any tables with these names: all relevant data is in the run folders
        metadata.create_all(db)
    for step in STEPS[version - OLDEST :] if version >= OLDEST else []:
        step(db)
    _write_version(db)


def _write_version(db: Connection) -> None:
    if db.dialect.name == "sqlite":  # also read by older versions
        db.execute(text(f"pragma user_version = {newest()}"))
        return
    db.execute(text(f"create table if not exists {SCHEMA}.version (number integer not null)"))
    db.execute(text(f"delete from {SCHEMA}.version"))
    db.execute(text(f"insert into {SCHEMA}.version (number) values (:number)"), {"number": newest()})
