"""Determines which events are new: something failed, something else failed, or it is fine again. Each is sent once,
because the store remembers what was sent."""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, Text, delete, insert, select, text

from inferometer.documents.document import JsonObject
from inferometer.errors import StoreError
from inferometer.judge.check_result import CheckResult
from inferometer.judge.identity import identity, identity_of
from inferometer.measure.verdict import LISTED_FIRST, failures_text
from inferometer.record.environment import Environment
from inferometer.record.files import check_schema, replacing, schema_of, translated_errors
from inferometer.record.run import Run, subject_of
from inferometer.record.sanitize import harmless, one_line
from inferometer.show.about import about_of, page_link
from inferometer.show.notify import Channel, Event, EventKind
from inferometer.show.notify.posting import Delivered
from inferometer.show.notify.posting import deliver as _deliver
from inferometer.store.databases import PostgresIndex
from inferometer.store.experiments import CaseRow
from inferometer.store.store import Store

# -- notebook --------------------------------------------------------------------------------------------------------

NOTEBOOK = "notifications.json"
LOCK_WAIT_S = 30.0  # maximum time of an earlier sender
_POLL_S = 0.05
_TURN = 0x496E666572  # our key for PostgreSQL's advisory locks
_TABLE = Table("notifications", MetaData(), Column("subject", String, primary_key=True), Column("note", Text))


@dataclass(frozen=True)
class Alert:
    """A problem, and which channels have been notified of it."""

    what: tuple[str, ...]  # the failed limits, or the measures that are worse
    channels: tuple[str, ...]  # notified channels
    run: str | None
    since: str


Notes = dict[str, Alert]  # by subject; a subject without an entry is fine


@contextmanager
def notebook(store: Store, until: float | None = None) -> Iterator[Notes]:
    """The notes, to be changed in place; saved when the block ends. Another process that holds them is waited for until
    an instant of the monotonic clock: it may be waiting for a receiver that hangs."""
    end = time.monotonic() + LOCK_WAIT_S if until is None else until
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
            time.sleep(_POLL_S)


def _read(file: Path) -> Notes:
    """A broken file counts as empty: at worst something is sent twice."""
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
    wait_ms = max(1, round(1000 * (until - time.monotonic())))  # 0 would mean without limit
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
    channels = fields["channels"] if "channels" in fields else fields["told"]  # name in version 1
    return Alert(tuple(fields["what"]), tuple(channels), fields.get("run"), str(fields.get("since") or ""))


# -- news ------------------------------------------------------------------------------------------------------------

Deliver = Callable[[Event, Sequence[Channel]], list[Delivered]]


@dataclass(frozen=True)
class SubjectState:
    """The present state of a subject. `what` lists the problems, empty if there are none; `event` has the text."""

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
    finding. If the store cannot save what was sent, it is sent nevertheless: twice is better than never. `until` is an
    instant of the monotonic clock after which no channel is waited for."""
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
    notified = {*note.channels, *(item.channel for item in sent if item.arrived)}
    if notified:  # else no channel was reached: it is still new
        notes[finding.subject] = replace(note, channels=tuple(sorted(notified)))
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


# -- findings ----------------------------------------------------------------------------------------------------------

# Findings of runs, checks, experiments and jobs: their subject, whether they are fine, and their text.

NamedProblem = tuple[str, str]  # the problem: a name that stays the same, and a sentence


def of_run(run: Run, problems: Sequence[NamedProblem]) -> SubjectState:
    """Whether a run of this plan is fine: the target answers, the limits are met, the numbers are valid."""
    lead = other_failures(run) if problems else ""
    return _failure(_planned(run.plan, run.kind), run_name(run), problems, run_facts(run), run.id, lead)


def other_failures(run: Run) -> str:
    """Failures that are no reason for doubt: a few, or as many as a limit of the plan judges."""
    if not run.summary.failures.failed or any(reason.code in LISTED_FIRST for reason in run.doubts):
        return ""
    return failures_text(run.summary)


def of_error(plan: JsonObject, error: str, kind: str = "serving") -> SubjectState:
    """A plan whose execution gave no run."""
    subject = subject_of(plan, Environment())
    name = subject.name or subject.model or "a run"
    return _failure(_planned(plan, kind), name, [("error", error)], {}, None)


def of_check(run: Run, check: CheckResult) -> SubjectState | None:
    """Whether a run is worse than earlier ones; None if that is unclear, which is not reported."""
    name = run_name(run)
    if check.status not in ("worse", "better", "same"):
        return None
    worse = [measure.change for measure in check.with_status("worse")]
    what = tuple(sorted(change.key for change in worse)) if check.status == "worse" else ()
    titles = ", ".join(dict.fromkeys(change.title for change in worse))
    title = f"{name}: worse in {titles}" if what else f"{name}: no longer worse"
    kind: EventKind = "regression" if what else "recovery"
    event = _event(kind, f"regression:{identity(run).key}", title, check.sentences, run_facts(run), run.id)
    return SubjectState(what, event)


def of_experiment(name: str | None, rows: Sequence[CaseRow], id_: str, runs: Sequence[Run] = ()) -> SubjectState:
    """Whether all cases of an experiment went well. What all of its `runs` share is reported as what was measured."""
    called = name or "an experiment"
    wrong = [(row.name, f"{row.name}: {row.error or 'failed'}") for row in rows if row.state == "failed"]
    wrong += [(f"limits of {row.name}", f"{row.name}: a limit failed") for row in rows if row.limits_missed]
    known = [run_facts(run) for run in runs]
    shared = {
        label: value for label, value in (known or [{}])[0].items() if all(facts.get(label) == value for facts in known)
    }
    finding = _failure(
        f"experiment:{_short_hash({'name': called})}", called, wrong, {**shared, "experiment": id_}, None
    )
    page = page_link(id_, os.environ, "experiment")
    return replace(finding, event=replace(finding.event, page=page))


def of_job(name: str, fine: bool, text: str | None = None) -> SubjectState:
    """Whether a CI job ended well, whatever it did."""
    reason = text or f"The job {name} failed."
    return _failure(f"job:{name}", name, [] if fine else [("failed", reason)], {}, None)


def test_event() -> Event:
    return _event(
        "test", "test", "Inferometer test message", ("This is a test of the notification channel.",), {}, None
    )


def _failure(
    subject: str,
    name: str,
    problems: Sequence[NamedProblem],
    facts: dict[str, str],
    run: str | None,
    lead: str = "",
) -> SubjectState:
    what = tuple(sorted({problem for problem, _ in problems}))
    first = (f"{lead}.",) if lead else ()
    sentences = (*first, *(text for _, text in problems)) if what else ("It is back to normal.",)
    kind: EventKind = "failure" if what else "recovery"
    title = f"{name}: failed" if what else f"{name}: recovered"
    return SubjectState(what, _event(kind, f"failure:{subject}", title, sentences, facts, run))


def _event(
    kind: EventKind, subject: str, title: str, sentences: tuple[str, ...], facts: dict[str, str], run: str | None
) -> Event:
    """Names come from plans and servers: channels receive plain text, and a title of one line."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    texts = tuple(dict.fromkeys(map(harmless, sentences)))  # a cause is reported once
    known = {one_line(label): one_line(value) for label, value in facts.items()}
    links = {"link": job_link(os.environ), "page": page_link(run, os.environ)}
    return Event(kind, one_line(subject), one_line(title), texts, known, run, at=now, **links)


def run_name(run: Run) -> str:
    return run.subject.name or run.subject.model or run.kind


def run_facts(run: Run) -> dict[str, str]:
    """What was measured, as far as known."""
    about = about_of(run)
    facts = {
        "model": run.subject.model,
        "engine": about.engine,
        "hardware": about.hardware,
        "workload": about.workload,
        "load": about.load,
        "commit": about.commit,
    }
    return {label: value for label, value in facts.items() if value}


def job_link(environment: Mapping[str, str]) -> str | None:
    """The page of the CI job that this process runs in."""
    server, repository, run = (
        environment.get(name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    )
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environment.get("CI_JOB_URL") or environment.get("BUILD_URL") or None


def _planned(plan: JsonObject, kind: str) -> str:
    """From the plan alone: of a failed run nothing else is known."""
    identity = identity_of(plan, Environment(), kind)
    return f"{identity.workload}-{identity.stack}-{_short_hash(plan.get('name'))}"


def _short_hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
