"""Stores a run that is complete from the start: an offline batch, a startup, an imported result, a user's own
benchmark."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import orjson

from inferometer.documents.document import JsonObject
from inferometer.documents.files import Content, pieces_of
from inferometer.errors import StoreError
from inferometer.plan.stored import stored
from inferometer.record.columns import Records
from inferometer.record.encoding import environment_document, summary_document, verdict_document
from inferometer.record.environment import Environment
from inferometer.record.files import sync, translated_errors
from inferometer.record.parquet import write_parquet, write_samples
from inferometer.record.record import Samples
from inferometer.record.run import Run, RunKind, State
from inferometer.record.summary import Summary
from inferometer.record.verdict import Verdict
from inferometer.store.entry import Entry
from inferometer.store.folder import (
    PLAN,
    RECORDS,
    SAMPLES,
    about_run,
    json_bytes,
    load_run,
    made_folder,
    plan_bytes,
    readers,
)
from inferometer.store.manifest import MANIFEST, MARKS, facts_of, manifest_bytes, manifest_of, replace_files
from inferometer.store.shapes import checked, decoded_environment, decoded_summary, decoded_verdict, unusable
from inferometer.store.store import Place, Store, open_store

DRAFT = ".draft-"


def keep(
    store: Place,
    *,
    kind: RunKind,
    plan: JsonObject,
    environment: Environment,
    summary: Summary,
    verdict: Verdict,
    started: datetime | None = None,
    state: State = "complete",
    source: str | None = None,
    records: Records | None = None,
    samples: Samples | None = None,
    files: Mapping[str, Content] | None = None,
) -> Run:
    """Write the folder of a run with known numbers, and enter it in the index. `files` are stored with it unchanged: a
    log, the result of another tool. The folder appears complete or not at all."""
    kept_in = open_store(store)
    started = started or datetime.now(UTC)
    about = about_run(started.isoformat(timespec="milliseconds"), state, kind, source)
    parts = {
        "environment": environment_document(environment),
        "summary": summary_document(summary),
        "verdict": verdict_document(verdict),
        "run": about,
    }
    contents = {f"{name}.json": content for name, content in _contents(plan, parts).items()}
    with _draft(kept_in.home) as draft:
        if records is not None:
            write_parquet(records, draft / RECORDS)
        if samples is not None:
            write_samples(samples, draft / SAMPLES)
        _write(draft, {PLAN: plan_bytes(plan), **contents, **(files or {})}, to_disk=source is None)
        folder = _placed(draft, kept_in.home, started)
    kept = _run(folder, plan, contents)
    with suppress(StoreError):  # the index follows the folders by itself
        return kept_in.add(kept)
    return kept


OLDER = {"summary.json": "older-summary.json", "verdict.json": "older-verdict.json"}


def replace_numbers(store: Store, entry: Entry, run: Run) -> None:
    """Rewrite summary and verdict of a stored run; the original ones are kept next to them, under the names in
    `OLDER`."""
    if store.objects_of(entry.location) is not None or not entry.folder.is_dir():
        raise StoreError(f"{entry.id}: its folder is not on this machine", f"inferometer show {entry.id} --again")
    assert run.verdict is not None
    parts = {"summary": summary_document(run.summary), "verdict": verdict_document(run.verdict)}
    contents = {f"{name}.json": content for name, content in _contents(run.plan, parts).items()}
    replace_files(entry.folder, contents, OLDER)
    store.enter(load_run(entry.folder))


class Unkeepable(StoreError):
    """Its content cannot be stored in our files or index; nothing was stored."""


def _contents(plan: JsonObject, parts: Mapping[str, JsonObject]) -> dict[str, bytes]:
    """The files of a run, if they can be read again as such: invalid content is refused before anything is written."""
    contents = {}
    try:
        checked(dict(plan), "plan")
        for name, part in parts.items():
            if wrong := unusable(part):
                raise StoreError(f"{name}: {wrong}")
            contents[name] = json_bytes(name, part)
            content = checked(orjson.loads(contents[name]), name)
            if name == "summary":
                decoded_summary(content, name)
            elif name == "verdict":
                decoded_verdict(content, name)
            elif name == "environment":
                decoded_environment(content, name)
    except StoreError as error:
        raise Unkeepable(error.message) from error
    return contents


@contextmanager
def _draft(home: Path) -> Iterator[Path]:
    """A hidden folder, deleted if it was not moved into place."""
    with translated_errors(home):
        (home / "runs").mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=DRAFT, dir=home / "runs"))
    try:
        yield path
    finally:
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)


def _write(draft: Path, contents: Mapping[str, Content], *, to_disk: bool) -> None:
    """Writes all files, and the manifest. Imported files are not synced: after a power cut they can be imported again,
    and the manifest shows whether they have to be."""
    facts = manifest_of(draft) | {name: facts_of(content) for name, content in contents.items() if name != MARKS}
    for name, content in {**contents, MANIFEST: manifest_bytes(facts)}.items():
        with translated_errors(draft / name):
            with (draft / name).open("wb") as file:
                file.writelines(pieces_of(content))
            if to_disk:
                sync(draft / name)


def _placed(draft: Path, home: Path, started: datetime) -> Path:
    """Under a new id: the empty folder with that name belongs to this process alone."""
    with translated_errors(draft):
        draft.chmod(0o755 & ~_umask())
        path = made_folder(home, started)
        draft.replace(path)
    return path


def _run(folder: Path, plan: JsonObject, contents: Mapping[str, bytes]) -> Run:
    """As it would be read from its folder."""
    parts = {name.removesuffix(".json"): orjson.loads(content) for name, content in contents.items()}
    about = parts.pop("run")
    for part in parts.values():
        del part["schema"]
    return Run(
        id=folder.name,
        started_at=about["started"],
        plan=stored(plan),
        environment=decoded_environment(parts["environment"], folder),
        summary=decoded_summary(parts["summary"], folder),
        verdict=decoded_verdict(parts["verdict"], folder),
        state=about["state"],
        kind=about["kind"],
        source=about.get("source"),
        folder=folder,
        **readers(folder),
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
