"""The versions of the index: from none to the present in one go, from an older one step by step; in one transaction,
once, whoever comes first.

A step is written in SQL against the tables as they were then, and never changes afterwards.
"""

from collections.abc import Callable

from sqlalchemy import Connection, inspect, text

from inferometer.errors import StoreError
from inferometer.store import tables

SCHEMA = "inferometer"  # of PostgreSQL: its database may hold other tools' tables, which like to be named runs too
OLDEST = 2  # version 1 was a single table of SQLite, with nothing in it that the run folders do not say
_LOCK = 0x1F0E7E12  # any number that nobody else locks

Step = Callable[[Connection], None]


def _add_damage_and_imports(db: Connection) -> None:
    """Version 3: why a run cannot be read, and which file one was imported from."""
    for column in ("damage", "remedy", "imported_from"):
        db.execute(text(f"alter table runs add column {column} text"))
    db.execute(text("create index if not exists runs_by_imported_from on runs (imported_from)"))
    db.execute(text("update runs set state = 'damaged' where state = 'unreadable'"))


STEPS: list[Step] = [_add_damage_and_imports]  # the first leads from OLDEST to the version after it


def newest() -> int:
    return OLDEST + len(STEPS)


def version_of(db: Connection) -> int:
    """0 where there is no index yet."""
    if db.dialect.name == "sqlite":
        return int(db.execute(text("pragma user_version")).scalar_one())
    if not inspect(db).has_table("version", schema=SCHEMA):
        return 0
    return int(db.execute(text(f"select number from {SCHEMA}.version")).scalar_one())


def is_current(db: Connection) -> bool:
    """Refuses an index that a newer Inferometer made: what it means by its columns cannot be known here."""
    version = version_of(db)
    if version > newest():
        raise StoreError(
            f"the index of the store has version {version}, this Inferometer knows {newest()}",
            "update Inferometer: pip install --upgrade inferometer",
        )
    return version == newest()


def migrate(db: Connection) -> None:
    """Inside a transaction that nobody else writes in."""
    if db.dialect.name != "sqlite":
        db.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        db.execute(text(f"create schema if not exists {SCHEMA}"))
    if is_current(db):  # somebody else did it while we waited
        return
    version = version_of(db)
    if version < OLDEST:
        tables.metadata.drop_all(db)  # whatever has these names: all that counts is in the run folders
        tables.metadata.create_all(db)
    for step in STEPS[version - OLDEST :] if version >= OLDEST else []:
        step(db)
    _write_version(db)


def _write_version(db: Connection) -> None:
    if db.dialect.name == "sqlite":  # where also older versions of ours look
        db.execute(text(f"pragma user_version = {newest()}"))
        return
    db.execute(text(f"create table if not exists {SCHEMA}.version (number integer not null)"))
    db.execute(text(f"delete from {SCHEMA}.version"))
    db.execute(text(f"insert into {SCHEMA}.version (number) values (:number)"), {"number": newest()})
