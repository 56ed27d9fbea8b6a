"""What is news: something that was fine is not, something else is wrong now, or it is fine again; once each, because
what people were notified of is kept with the store."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, Text, delete, insert, select, text

from inferometer.errors import StoreError
from inferometer.record.files import check_schema, replacing, schema_of, translated_errors
from inferometer.show.notify.channels import Channel, Event
from inferometer.show.notify.delivery import Delivered
from inferometer.show.notify.delivery import deliver as _deliver
from inferometer.store.databases import PostgresIndex
from inferometer.store.store import Store

# -- notebook --------------------------------------------------------------------------------------------------------

NOTEBOOK = "notifications.json"
TURN_S = 30.0  # how long an earlier sender may take
_NAP_S = 0.05
_TURN = 0x496E666572  # of PostgreSQL's advisory locks, ours
_TABLE = Table("notifications", MetaData(), Column("subject", String, primary_key=True), Column("note", Text))


@dataclass(frozen=True)
class Alert:
    """Something is wrong, and which channels have been notified."""

    what: tuple[str, ...]  # the limits that failed, the measures that are worse
    channels: tuple[str, ...]  # channels
    run: str | None
    since: str


Notes = dict[str, Alert]  # by subject; what is not in it is fine


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
    with translated_errors(file):
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
    with translated_errors(file):
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreError(f"{file}: another command has been sending notifications for too long") from None
            time.sleep(_NAP_S)


def _read(file: Path) -> Notes:
    """A broken file counts as none: at worst something is sent twice."""
    if not file.exists():
        return {}
    with translated_errors(file):
        content = file.read_text(encoding="utf-8")
    try:
        document = json.loads(content)
        check_schema(file, "notifications", document.get("schema"))
        return {subject: _note(note) for subject, note in document["notes"].items()}
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


def _note(fields: Any) -> Alert:
    channels = fields["channels"] if "channels" in fields else fields["told"]  # as version 1 calls them
    return Alert(tuple(fields["what"]), tuple(channels), fields.get("run"), str(fields.get("since") or ""))


# -- news ------------------------------------------------------------------------------------------------------------

Deliver = Callable[[Event, Sequence[Channel]], list[Delivered]]


@dataclass(frozen=True)
class SubjectState:
    """How a subject is now. `what` is wrong, empty when nothing is; `event` has the text."""

    what: tuple[str, ...]
    event: Event

    @property
    def subject(self) -> str:
        return self.event.subject


def deliver_finding(
    store: Store,
    finding: SubjectState,
    channels: Sequence[Channel],
    deliver: Deliver | None = None,
    *,
    until: float | None = None,
) -> list[Delivered]:
    """Notify the channels that have not been notified; one that could not be reached is tried again with the next
    finding. Where the store cannot remember, it is sent nevertheless: twice is better than never. `until` is an instant
    of the monotonic clock after which no channel is waited for."""
    send = deliver or partial(_deliver, until=until)
    sent: list[Delivered] = []
    try:
        with notebook(store, until) as notes:
            sent += _deliver_news(notes, finding, channels, send)
    except StoreError:
        if finding.what and not sent:
            sent += send(finding.event, channels)
    return sent


def _deliver_news(
    notes: Notes, finding: SubjectState, channels: Sequence[Channel], deliver: Deliver
) -> list[Delivered]:
    known = notes.get(finding.subject)
    if not finding.what:
        return _recovered(notes, finding, known, channels, deliver) if known else []
    if known and set(finding.what) <= set(known.what):
        due = [item for item in channels if item.name not in known.channels]
        note = known
    else:
        due = list(channels)
        since = known.since if known else finding.event.at
        what = tuple(sorted({*finding.what, *(known.what if known else ())}))
        note = Alert(what, (), finding.event.run, since)
    sent = deliver(finding.event, due) if due else []
    heard = {*note.channels, *(item.channel for item in sent if item.arrived)}
    if heard:  # else no channel has it: it is still new
        notes[finding.subject] = replace(note, channels=tuple(sorted(heard)))
    return sent


def _recovered(
    notes: Notes, finding: SubjectState, known: Alert, channels: Sequence[Channel], deliver: Deliver
) -> list[Delivered]:
    """Channels that were notified of the problem are notified that it is over."""
    due = [item for item in channels if item.name in known.channels]
    sent = deliver(finding.event, due) if due else []
    waiting = tuple(item.channel for item in sent if not item.arrived)
    if waiting:
        notes[finding.subject] = replace(known, channels=waiting)
    else:
        del notes[finding.subject]
    return sent
