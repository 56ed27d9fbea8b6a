"""What people have been told, kept with the store: a file beside the runs, or a table where a team shares PostgreSQL.
One process at a time reads it, tells, and writes it again."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, Text, delete, insert, select, text

from inferometer.errors import StoreError
from inferometer.record.files import replacing, told
from inferometer.record.schema import check_schema, schema_of
from inferometer.store.databases import PostgresIndex
from inferometer.store.store import Store

NOTEBOOK = "notifications.json"
TURN_S = 30.0  # as long as somebody before us may tell
_NAP_S = 0.05
_TURN = 0x496E666572  # of PostgreSQL's advisory locks, ours
_TABLE = Table("notifications", MetaData(), Column("subject", String, primary_key=True), Column("note", Text))


@dataclass(frozen=True)
class Note:
    """Something is wrong, and who has heard of it."""

    what: tuple[str, ...]  # the limits that failed, the measures that are worse
    told: tuple[str, ...]  # channels
    run: str | None
    since: str


Notes = dict[str, Note]  # by subject; what is not in it is fine


@contextmanager
def notebook(store: Store, until: float | None = None) -> Iterator[Notes]:
    """The notes, to be changed in place; kept when the block ends. Whoever has them now is waited for until an instant
    of the monotonic clock: they may be waiting for a receiver that hangs."""
    end = time.monotonic() + TURN_S if until is None else until
    if isinstance(store.database, PostgresIndex):
        with store.database.writing() as db:
            yield from _in_table(db, end)
    else:
        yield from _in_file(store.home, end)


def _in_file(home: Path, until: float) -> Iterator[Notes]:
    file = home / NOTEBOOK
    with told(file):
        home.mkdir(parents=True, exist_ok=True)
        lock = os.open(home / f".{NOTEBOOK}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _await_turn(lock, file, until)
        notes = _read(file)
        before = dict(notes)
        yield notes
        if notes != before:
            _write(file, notes)
    finally:
        os.close(lock)


def _await_turn(lock: int, file: Path, until: float) -> None:
    with told(file):
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreError(f"{file}: another command is telling people for too long") from None
            time.sleep(_NAP_S)


def _read(file: Path) -> Notes:
    """A broken file is as good as none: at worst something is told twice."""
    if not file.exists():
        return {}
    with told(file):
        content = file.read_text(encoding="utf-8")
    try:
        said = json.loads(content)
        check_schema(file, "notifications", said.get("schema"))
        return {subject: _note(note) for subject, note in said["notes"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(file: Path, notes: Notes) -> None:
    content = {"schema": schema_of("notifications"), "notes": {key: asdict(note) for key, note in notes.items()}}
    with replacing(file) as draft:
        draft.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _in_table(db: Connection, until: float) -> Iterator[Notes]:
    wait_ms = max(1, round(1000 * (until - time.monotonic())))  # 0 would be for ever
    db.execute(text("select set_config('lock_timeout', :wait, true)"), {"wait": f"{wait_ms}ms"})
    db.execute(text("select pg_advisory_xact_lock(:turn)"), {"turn": _TURN})
    _TABLE.metadata.create_all(db)
    notes = {subject: _note(json.loads(note)) for subject, note in db.execute(select(_TABLE))}
    before = dict(notes)
    yield notes
    changed = [subject for subject in {*notes, *before} if notes.get(subject) != before.get(subject)]
    if changed:
        db.execute(delete(_TABLE).where(_TABLE.c.subject.in_(changed)))
    rows = [{"subject": key, "note": json.dumps(asdict(notes[key]))} for key in changed if key in notes]
    if rows:
        db.execute(insert(_TABLE), rows)


def _note(said: Any) -> Note:
    return Note(tuple(said["what"]), tuple(said["told"]), said.get("run"), str(said.get("since") or ""))
