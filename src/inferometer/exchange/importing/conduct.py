"""The conductor of an import: a file is read, recognised, turned into runs, and these are kept."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferometer.errors import DataError
from inferometer.exchange.importing.found import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.known import checksum, one_at_a_time, remember, runs_of
from inferometer.exchange.importing.reading import read_source
from inferometer.exchange.importing.recognise import format_named, recognise
from inferometer.exchange.importing.summing import summary_of, verdict_of
from inferometer.record.run import Run
from inferometer.store.keeping import Unkeepable, keep
from inferometer.store.marks import MARKS, Marks, checked_word, marks_bytes
from inferometer.store.opening import Place, open_store
from inferometer.store.shapes import LARGEST, large_number
from inferometer.store.store import Store


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one file."""

    path: Path
    format: str
    runs: list[Run] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # runs that it had become already
    broken: list[str] = field(default_factory=list)  # rows that are no results, named
    notes: list[str] = field(default_factory=list)  # how something was read that a person should know
    found: int = 0  # results in the file


@dataclass(frozen=True, slots=True)
class Options:
    format: str | None = None
    tags: tuple[str, ...] = ()
    again: bool = False
    dry_run: bool = False


def import_file(
    path: str | Path,
    store: Place,
    *,
    format: str | None = None,  # noqa: A002 - the word that users know
    tags: Iterable[str] = (),
    again: bool = False,
    dry_run: bool = False,
) -> Imported:
    """Keep every result of a file as a run. A file that this store has already is not kept twice, unless `again`."""
    place = open_store(store)
    options = Options(format, tuple(tags), again, dry_run)
    with place.batch():
        return import_one(Path(path), place, options)


def import_one(path: Path, place: Store, options: Options) -> Imported:
    """One of many files: whoever calls it opens a batch of the store around all of them."""
    for tag in options.tags:
        checked_word(tag, "tag")
    source = _source(path)
    name = options.format or recognise(source)
    chosen = format_named(name)
    digest = checksum(source.content)
    if options.dry_run:
        return _new_runs(path, place, options, source, chosen, name, digest)
    with one_at_a_time(place, digest):
        done = _new_runs(path, place, options, source, chosen, name, digest)
        place.share()
        return done


def _source(path: Path) -> Source:
    try:
        return read_source(path)
    except RecursionError:
        raise DataError(f"{path}: nested too deeply for a result") from None
    except ValueError as error:  # a number of more digits than Python converts
        raise DataError(f"{path}: {str(error).partition(';')[0][:200]}") from None


def _new_runs(
    path: Path, place: Store, options: Options, source: Source, chosen: Format, name: str, digest: str
) -> Imported:
    """What a file becomes that is not in the store yet."""
    before = [] if options.again else runs_of(place, digest)
    if before:
        return Imported(path, name, before=before)
    found = _read(chosen, source, path)
    broken = [*source.broken, *found.broken]
    notes = list(dict.fromkeys(note for run in found.runs for note in run.notes))
    if options.dry_run:
        return Imported(path, name, broken=broken, notes=notes, found=len(found.runs))
    marks = Marks().tagged(*(checked_word(tag, "tag") for tag in options.tags))
    about = {"format": name, "file": path.name, "sha256": digest}
    origin = _Origin(name, chosen.title, path, source, about, marks)
    kept = _all_or_none(found.runs, origin, place)
    whole = any(run.original is None for run in found.runs)
    remember(place, digest, [run.id for run in kept], None if whole else (_source_name(path), source.content))
    return Imported(path, name, kept, broken=broken, notes=notes, found=len(kept))


def _read(chosen: Format, source: Any, path: Path) -> Found:
    try:
        found = chosen.read(source)
    except DataError as error:
        raise DataError(f"{path}: {error.message}", error.hint) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{path}: looks like {chosen.title}, but cannot be read as that ({what})") from error
    if not found.runs:
        what = f": {found.broken[0]}" if found.broken else ""
        raise DataError(f"{path}: {chosen.title}, but there is no result in it{what}")
    return found


@dataclass(frozen=True, slots=True)
class _Origin:
    """What all runs of one file share."""

    format: str
    title: str
    path: Path
    source: Source
    about: dict[str, Any]
    marks: Marks


def _all_or_none(runs: list[ImportedRun], origin: _Origin, store: Store) -> list[Run]:
    """Of a file that is imported half way nothing stays, so that it can be imported again."""
    kept: list[Run] = []
    try:
        kept.extend(_kept(run, origin, store) for run in runs)  # one by one: those before an interrupt are in it
    except BaseException:
        for each in kept:
            shutil.rmtree(each.folder or "", ignore_errors=True)
        raise
    return kept


def _kept(run: ImportedRun, origin: _Origin, store: Store) -> Run:
    try:
        summary = summary_of(run)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = f"{run.part}: " if run.part else ""
        raise DataError(f"{origin.path}: {what}its requests cannot be measured: {error}") from error
    started, by = (run.started, {}) if run.started else (_modified(origin.path), {"started_by": "the file's date"})
    about = origin.about | ({"part": run.part} if run.part else {}) | by
    try:
        return _keep(run, origin, store, summary, environment=run.environment | {"imported": about}, started=started)
    except Unkeepable as error:
        field = large_number(_values_of(origin.source))
        what = f"{run.part}: " if run.part else ""
        why = f"{field} is out of range" if field else f"cannot be kept: {error.message}"
        hint = f"the largest number that can be kept is {LARGEST:.0e}" if field else None
        raise DataError(f"{origin.path}: {what}{why}", hint) from error


def _values_of(source: Source) -> Any:
    """As a person finds them in the file: `line 7.completed`."""
    if source.form in ("jsonl", "csv"):
        return {row.where: row.said for row in source.value}
    return source.value


def _keep(run: ImportedRun, origin: _Origin, store: Store, summary: Any, **more: Any) -> Run:
    whole = {_source_name(origin.path): origin.source.content}
    files = whole if run.original is None else {"source.json": run.original}
    return keep(
        store,
        kind=run.kind,
        plan=run.plan,
        summary=summary,
        verdict=verdict_of(run, summary, origin.title),
        source=origin.format,
        records=run.records,
        samples=run.samples,
        files=files | ({MARKS: marks_bytes(origin.marks)} if origin.marks.tags else {}),
        **more,
    )


def _source_name(path: Path) -> str:
    return f"source{path.suffix or '.txt'}"


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
