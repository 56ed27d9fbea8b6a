"""Imports a file: detects its format, makes runs with summary and verdict, and stores them once, even if the file is
imported again."""

import fcntl
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from msgspec.structs import replace
from pydantic import ValidationError

from inferometer.documents.document import settings_of
from inferometer.documents.files import GZIP, Content, pieces_of, release
from inferometer.errors import DataError, StoreError
from inferometer.exchange.importing.recognise import check_format, format_named, read_source, recognise
from inferometer.exchange.importing.source import (
    BrokenResult,
    ImportedPlan,
    ImportedRun,
    ImportFormat,
    ParsedFile,
    SiblingError,
    Source,
)
from inferometer.exchange.importing.units import contradictions
from inferometer.measure.doubts import TOLERATED
from inferometer.measure.doubts.target import FAILED_DOUBTFUL, FAILED_INVALID
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import HEADLINE, HEADLINE_OPEN, summarize
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.environment import ImportOrigin
from inferometer.record.files import translated_errors
from inferometer.record.run import Run
from inferometer.record.sanitize import harmless
from inferometer.record.summary import (
    Concurrency,
    Failures,
    Loop,
    MeasureSummary,
    Rate,
    Reported,
    Slices,
    Summary,
    WindowSummary,
)
from inferometer.record.verdict import Reason, Status, Verdict, judged
from inferometer.store.manifest import MARKS, Marks, checked_label, facts_of, marks_bytes
from inferometer.store.save import Unkeepable, keep
from inferometer.store.shapes import LARGEST, large_number
from inferometer.store.store import Place, Store, open_store
from inferometer.vocabulary import MEASURES, duration_text, percent_text

# -- known -----------------------------------------------------------------------------------------------------------

FOLDER = "imports"


def checksum(content: Content) -> str:
    return facts_of(content).sha256


def runs_of(store: Store, digest: str) -> list[str]:
    """The existing runs of a file, by the note on this disk and by a shared index."""
    entry = store.home / FOLDER / digest / "runs.json"
    try:
        ids = orjson.loads(entry.read_bytes())["runs"] if entry.is_file() else []
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        ids = []  # a broken note does not prevent the import: the index has the runs too
    noted = [id_ for id_ in map(str, ids) if _exists(store, id_)]
    return noted or store.imported_from(digest)


@contextmanager
def one_at_a_time(store: Store, digest: str) -> Iterator[None]:
    """A lock, so that of several simultaneous imports of a file only the first stores it: lookup and storing happen
    inside. It is a file lock on this disk, and a lock in a shared index; both end with the process, also after a
    crash."""
    folder = store.home / FOLDER
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{digest[:2]}.lock").open("ab")  # 256 locks: digests with the same beginning share one
    with lock, store.database.held(int(digest[:15], 16)):
        with translated_errors(folder):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _exists(store: Store, id_: str) -> bool:
    """Whether a run exists, in its folder or in the index."""
    if (store.home / "runs" / id_).is_dir():
        return True
    with suppress(StoreError):
        return store.entry(id_).id == id_
    return False


def remember(store: Store, digest: str, runs: list[str], original: tuple[str, Content] | None) -> None:
    """Write a note of a file's runs; `original` is stored if no single run contains it."""
    folder = store.home / FOLDER / digest
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Content] = {"runs.json": orjson.dumps({"runs": [*runs_of(store, digest), *runs]})}
    for name, content in (files | dict([original] if original else [])).items():
        with translated_errors(folder / name):  # no fsync: at worst the file is imported again
            draft = folder / f".{name}.{os.getpid()}.tmp"
            with draft.open("wb") as file:
                file.writelines(pieces_of(content))
            draft.replace(folder / name)


# -- summing ---------------------------------------------------------------------------------------------------------

RULE = "as chosen by the tool"
DIFFERS = 0.02  # relative difference above which a mean in the file contradicts its records
_COMPARED = ("ttft", "tpot", "e2e")


def summary_of(run: ImportedRun) -> Summary:
    """The summary; data that the file lacks is missing."""
    return _of_records(run) if run.records is not None and len(run.records) else _of_file(run)


def verdict_of(run: ImportedRun, summary: Summary, title: str) -> Verdict:
    """The verdict from the data in the file. A note says that neither the delivery of the load nor the tool's error was
    measured."""
    stated = contradictions(run.measures) if run.records is not None else []
    reasons = [*run.doubts, *contradictions(summary.measures), *stated, *_disagreements(run, summary), *_negative(run)]
    if summary.outcomes.get("ok") == 0:
        reasons.insert(0, ("nothing_answered", "No request was answered, so its times mean nothing."))
    text = f"Imported from {title}: how the load was delivered and the tool's own error are not known."
    judgements = [Reason(status=_status(code), code=code, text=text) for code, text in reasons]
    return judged([*_failed(summary), *judgements, Reason(status="valid", code="imported", text=text)])


def _failed(summary: Summary) -> list[Reason]:
    """A doubt about failures, as for our own runs: latencies cover only answered requests."""
    share = summary.failures.failure_rate
    if not share or summary.outcomes.get("ok") == 0:
        return []
    status: Status = "invalid" if share > FAILED_INVALID else "doubtful" if share > FAILED_DOUBTFUL else "valid"
    return [Reason(status=status, code="failed_requests", text=f"{percent_text(share)} of requests failed.")]


def _status(code: str) -> Status:
    if code == "differs_little":
        return "valid"
    return "invalid" if code in ("nothing_answered", "said_invalid") else "doubtful"


def _disagreements(run: ImportedRun, summary: Summary) -> list[tuple[str, str]]:
    """Doubts if the file's own numbers differ from those of its requests."""
    doubts = []
    counted = summary.outcomes.get("ok", 0)
    if run.records is not None and run.answered is not None and abs(counted - run.answered) > DIFFERS * counted:
        text = f"{run.answered:,} requests were answered as stated in the file, but {counted:,} of those in it were."
        doubts.append(("disagrees", text))
    for name in _COMPARED if run.records is not None else ():
        theirs, ours = (part[name].mean if name in part else None for part in (run.measures, summary.measures))
        if theirs and name == "ttft" and run.empty and run.answered:
            theirs *= run.answered / max(run.answered - run.empty, 1)
        if theirs and ours and abs(ours / theirs - 1) > DIFFERS:
            text = f"Mean {MEASURES[name].title} is {duration_text(theirs)} as stated in the file, but"
            code = "disagrees" if abs(ours / theirs - 1) > TOLERATED else "differs_little"
            which = "in our window of its requests" if run.arrivals_known else "over all requests in it"
            doubts.append((code, f"{text} {duration_text(ours)} {which}."))
    return doubts


def _negative(run: ImportedRun) -> Iterator[tuple[str, str]]:
    """Doubts about impossible negative values."""
    if run.duration_s is not None and run.duration_s < 0:
        yield "out_of_range", f"The duration is negative ({run.duration_s:g} s)."
    for outcome, count in (("answered", run.answered), ("failed", run.failed), ("unfinished", run.unfinished)):
        if count is not None and count < 0:
            yield "out_of_range", f"The number of {outcome} requests is negative ({count:,})."
    for name, rate in run.rates.items():
        if (value := rate.value) is not None and value < 0:
            yield "out_of_range", f"{MEASURES[name].title} is negative ({value:g}), which is impossible."
    for named in run.values.values():
        if named.value is not None and named.value < 0:
            yield "out_of_range", f"{named.title} is negative ({named.value:g}), which is impossible."
    if run.records is not None and (backwards := _backwards(run.records)):
        text = f"{backwards:,} requests have a read before the one before it, or before they were sent."
        yield "out_of_range", text


def _backwards(records: Records) -> int:
    """Requests with a negative duration between two timestamps."""
    count = 0
    for reads in records.read_batches(columns=("read_at",)):
        gaps = np.diff(reads.at, prepend=reads.at[:1])
        begins = reads.offsets[:-1][reads.counts() > 0]
        gaps[begins] = reads.at[begins] - records.sent_at[reads.owner[reads.counts() > 0]]
        count += len(np.unique(np.repeat(reads.owner, reads.counts())[gaps < 0]))
    return count


def _of_file(run: ImportedRun) -> Summary:
    """The numbers of the file, and nothing else."""
    outcomes = {"ok": run.answered, "failed": run.failed, "cancelled": run.unfinished}
    return Summary(
        loop=_loop(run.plan),
        headline=_headline(run.measures),
        headline_quantiles=["p50", "p90"],
        window=WindowSummary(length_s=run.duration_s, run_s=run.duration_s, rule=RULE, requests=run.answered),
        measures=run.measures,
        rates=run.rates,
        values=run.values,
        concurrency=_concurrency(run),
        outcomes={outcome: n for outcome, n in outcomes.items() if n is not None and (n or outcome == "ok")},
        failures=_failures(run),
        definitions=run.definitions,
        notes=list(run.notes),
    )


def _of_records(run: ImportedRun) -> Summary:
    """Our numbers from the records, without measures that they do not allow; the file's numbers are stored too."""
    assert run.records is not None
    summary = summarize(run.records, _plan(run) if run.arrivals_known else _ONE_BY_ONE, Facts())
    if not run.arrivals_known:
        summary = _without_times(summary, run)
    kept = {name: measure for name, measure in summary.measures.items() if name not in run.underivable}
    return replace(
        summary,
        measures=kept | {name: measure for name, measure in run.measures.items() if name not in summary.measures},
        rates={
            name: _stated(rate, run.rates.get(name))
            for name, rate in (summary.rates or run.rates).items()
            if name not in run.underivable
        },
        headline=_headline(kept),
        instrument=None,
        delivery=None,
        slices=_slices(summary.slices, run.underivable),
        stalls=None if "stall" in run.underivable else summary.stalls,
        goodput=None,
        values=run.values,
        reported=Reported(measures=run.measures, rates=run.rates),
        definitions=run.definitions,
        notes=list(run.notes),
    )


def _without_times(summary: Summary, run: ImportedRun) -> Summary:
    """Records with unknown send times have durations but no common clock: numbers that depend on one are
    removed."""
    return replace(
        summary,
        loop=_loop(run.plan),
        window=WindowSummary(
            length_s=run.duration_s, run_s=run.duration_s, rule=RULE, requests=summary.window.requests
        ),
        rates={},
        concurrency=Concurrency(unit=MEASURES["concurrency"].unit),
        slices=None,
    )


_ONE_BY_ONE = Plan.model_validate({"load": {"type": "concurrency", "concurrency": 1}})


def _stated(ours: Rate, theirs: Rate | None) -> Rate:
    """The headline numbers; those that the file states take priority."""
    if theirs is None or theirs.value is None:
        return ours
    return replace(ours, value=theirs.value, basis="file")


def _slices(slices: Slices | None, underivable: tuple[str, ...]) -> Slices | None:
    """Slices; without a schedule, requests are due when they are sent, so the unscheduled measures are used."""
    if slices is None:
        return None
    name = "ttft" if slices.measure in underivable else slices.measure
    without_tokens = "output_rate" in underivable
    rows = [replace(row, tokens_per_s=None) for row in slices.rows] if without_tokens else slices.rows
    return replace(slices, measure=name, rows=rows)


def _plan(run: ImportedRun) -> Plan:
    """The plan that determines the measurement window; an unknown load has none."""
    try:
        return Plan.model_validate(run.plan)
    except ValidationError:
        return Plan()


def _headline(measures: Mapping[str, MeasureSummary]) -> list[str]:
    own = [name for name in measures if name not in MEASURES]
    usual = dict.fromkeys((*HEADLINE_OPEN, *HEADLINE, "ntpot", "input_tokens"))
    return [name for name in usual if name in measures] + own


def _loop(plan: ImportedPlan) -> Loop:
    load = plan.get("load") or {}
    return "closed" if load.get("type", "concurrency") == "concurrency" else "open"


def _concurrency(run: ImportedRun) -> Concurrency:
    requested = (run.plan.get("load") or {}).get("concurrency")
    return Concurrency(unit=MEASURES["concurrency"].unit, mean=run.concurrency, requested=requested)


def _failures(run: ImportedRun) -> Failures:
    """The failures; without a kind if the file has none."""
    decided = (run.answered or 0) + (run.failed or 0)
    rate = run.failed / decided if run.failed is not None and run.answered is not None and decided else None
    return Failures(failure_rate=rate, failed=run.failed)


# -- conduct ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of importing one file."""

    path: Path
    format: str
    runs: list[Run] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # runs of an earlier import
    broken: list[str] = field(default_factory=list)  # names of rows that are not results
    notes: list[str] = field(default_factory=list)  # notes for the user
    results: int = 0  # results in the file


@dataclass(frozen=True, slots=True)
class Options:
    format: str | None = None
    tags: tuple[str, ...] = ()
    again: bool = False
    dry_run: bool = False
    below: Path | None = None  # the imported folder: the path in it distinguishes results

    def shown(self, path: Path) -> str:
        """The file's path in the imported folder."""
        if self.below is None:
            return path.name
        return harmless(str(path.relative_to(self.below)))


def import_file(
    path: str | Path,
    store: Place,
    *,
    format: str | None = None,  # noqa: A002 - the word that users know
    tags: Iterable[str] = (),
    again: bool = False,
    dry_run: bool = False,
) -> Imported:
    """Store every result of a file as a run. A file that is already in this store is skipped, unless `again`."""
    place = open_store(store)
    options = Options(format, tuple(tags), again, dry_run)
    with place.batch():
        return import_one(Path(path), place, options)


def read_result(path: Path, name: str) -> ParsedFile:
    """The content of a file of a known format; nothing is stored."""
    source = _source(path)
    check_format(name, source)
    return _read(format_named(name), source, path)


def import_one(path: Path, place: Store, options: Options) -> Imported:
    """One of many files: the caller opens a batch of the store around all of them."""
    for tag in options.tags:
        checked_label(tag, "tag")
    source = _source(path)
    name = options.format or recognise(source)
    chosen = format_named(name)
    if options.format is not None:
        check_format(name, source)
    digest = checksum(source.content)
    if options.dry_run:
        return _new_runs(path, place, options, source, chosen, name, digest)
    with one_at_a_time(place, digest):
        done = _new_runs(path, place, options, source, chosen, name, digest)
        place.share()
        return done


_RESULTS = (".json", ".jsonl", ".csv", ".gz")
_NAMES = (
    rb"ttft|tpot|itl|e2e|latenc|throughput|first_token|tokens_per|duration|elapsed|request|completed|failed|benchmark"
)
_WORDS = re.compile(_NAMES)
_HEAD = 2**18  # a damaged result has one of these words in its first bytes


def _source(path: Path) -> Source:
    try:
        return read_source(path)
    except DataError as error:
        if (
            path.suffix in _RESULTS and path.is_file() and _may_be_result(path)
        ):  # damaged or truncated: its kind is unknown
            raise BrokenResult(error.message, error.hint) from None
        raise
    except RecursionError:
        raise BrokenResult(f"{path}: nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python converts
        raise BrokenResult(f"{path}: {str(error).partition(';')[0][:200]}") from None


def _may_be_result(path: Path) -> bool:
    """Whether an unreadable file begins like a result, or has no words at all; otherwise it belongs to another
    program."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head.startswith(GZIP):
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except (OSError, zlib.error):
        return True
    text = head.replace(b"\0", b"").lower()  # works for UTF-16 too
    return re.search(rb"[a-z]", text) is None or _WORDS.search(text) is not None


def _new_runs(
    path: Path, place: Store, options: Options, source: Source, chosen: ImportFormat, name: str, digest: str
) -> Imported:
    """The runs of a file that is not in the store yet."""
    before = [] if options.again else runs_of(place, digest)
    if before:
        return Imported(path, name, before=before)
    parsed = _read(chosen, source, path)
    broken = [*source.broken, *parsed.broken]
    notes = list(dict.fromkeys(note for run in parsed.runs for note in run.notes))
    if options.dry_run:
        return Imported(path, name, broken=broken, notes=notes, results=len(parsed.runs))
    marks = Marks().tagged(*(checked_label(tag, "tag") for tag in options.tags))
    about = ImportOrigin(format=name, file=options.shown(path), sha256=digest)
    origin = _Origin(name, chosen.title, path, source, about, marks)
    kept = _all_or_none(parsed.runs, origin, place)
    whole = any(run.original is None for run in parsed.runs)
    remember(place, digest, [run.id for run in kept], None if whole else (_source_name(path), source.content))
    return Imported(path, name, kept, broken=broken, notes=notes, results=len(kept))


def _read(chosen: ImportFormat, source: Source, path: Path) -> ParsedFile:
    try:
        parsed = chosen.read(source)
        release(source.content)
    except SiblingError:
        raise
    except DataError as error:
        raise BrokenResult(f"{path}: {error.message}", error.hint) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise BrokenResult(f"{path}: looks like {chosen.title}, but cannot be read as that ({what})") from error
    if not parsed.runs:
        what = f": {parsed.broken[0]}" if parsed.broken else ""
        raise BrokenResult(f"{path}: {chosen.title}, but there is no result in it{what}")
    return parsed


@dataclass(frozen=True, slots=True)
class _Origin:
    """Data shared by all runs of one file."""

    format: str
    title: str
    path: Path
    source: Source
    about: ImportOrigin
    marks: Marks


def _all_or_none(runs: list[ImportedRun], origin: _Origin, store: Store) -> list[Run]:
    """If the import fails half way, remove its runs, so that the file can be imported again."""
    kept: list[Run] = []
    try:
        kept.extend(_kept(run, origin, store) for run in runs)  # one by one: the list is right after an interrupt
    except BaseException:
        for run in kept:
            shutil.rmtree(run.folder or "", ignore_errors=True)
        raise
    return kept


def _kept(run: ImportedRun, origin: _Origin, store: Store) -> Run:
    try:
        summary = summary_of(run)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = f"{run.part}: " if run.part else ""
        raise BrokenResult(f"{origin.path}: {what}its requests cannot be measured: {error}") from error
    started, by = (run.started, None) if run.started else (_modified(origin.path), "the file's date")
    environment = replace(run.environment, imported=replace(origin.about, part=run.part or None, started_by=by))
    try:
        return _keep(run, origin, store, summary, environment=environment, started=started)
    except Unkeepable as error:
        field = large_number(_values_of(origin.source))
        what = f"{run.part}: " if run.part else ""
        why = f"{field} is out of range" if field else f"cannot be stored: {error.message}"
        hint = f"the largest supported number is {LARGEST:.0e}" if field else None
        raise BrokenResult(f"{origin.path}: {what}{why}", hint) from error


def _values_of(source: Source) -> Any:
    """Values by their place in the file: `line 7.completed`."""
    if source.form in ("jsonl", "csv"):
        return {row.where: row.fields for row in source.value}
    return source.value


def _keep(run: ImportedRun, origin: _Origin, store: Store, summary: Summary, **more: Any) -> Run:
    whole = {_source_name(origin.path): origin.source.content}
    files: dict[str, Content] = {**whole} if run.original is None else {"source.json": run.original}
    return keep(
        store,
        kind=run.kind,
        plan=settings_of(run.plan),
        summary=summary,
        verdict=verdict_of(run, summary, origin.title),
        source=origin.format,
        records=run.records,
        samples=run.samples,
        files=files | ({MARKS: marks_bytes(origin.marks)} if origin.marks.tags else {}),
        **more,
    )


def _source_name(path: Path) -> str:
    """The name of the stored source file, which is not compressed."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return f"source{plain.suffix or '.txt'}"


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
