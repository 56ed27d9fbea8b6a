"""Imports a file: reads and recognises it, makes runs with summary and verdict, and stores them once, even if it is
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
    """The runs that were made of a file and still exist: by the note on this disk, and by a shared index."""
    entry = store.home / FOLDER / digest / "runs.json"
    try:
        ids = orjson.loads(entry.read_bytes())["runs"] if entry.is_file() else []
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        ids = []  # a broken note is no reason not to import: the index knows it too
    noted = [id_ for id_ in map(str, ids) if _exists(store, id_)]
    return noted or store.imported_from(digest)


@contextmanager
def one_at_a_time(store: Store, digest: str) -> Iterator[None]:
    """Whoever imports a file first keeps it, and others that import it at the same time find it kept: what is looked up
    and what is kept inside belong together. On this disk by a lock on a file, in a shared index by a lock in it; both
    end with the process, however it ends."""
    folder = store.home / FOLDER
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{digest[:2]}.lock").open("ab")  # 256 of them: files with the same beginning take turns
    with lock, store.database.held(int(digest[:15], 16)):
        with translated_errors(folder):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _exists(store: Store, id_: str) -> bool:
    """In its place, or wherever the index knows it."""
    if (store.home / "runs" / id_).is_dir():
        return True
    with suppress(StoreError):
        return store.entry(id_).id == id_
    return False


def remember(store: Store, digest: str, runs: list[str], original: tuple[str, Content] | None) -> None:
    """Note what a file became; `original` is kept where no single run holds it."""
    folder = store.home / FOLDER / digest
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Content] = {"runs.json": orjson.dumps({"runs": [*runs_of(store, digest), *runs]})}
    for name, content in (files | dict([original] if original else [])).items():
        with translated_errors(
            folder / name
        ):  # not waited for until it is on disk: the worst is that a file is imported again
            draft = folder / f".{name}.{os.getpid()}.tmp"
            with draft.open("wb") as file:
                file.writelines(pieces_of(content))
            draft.replace(folder / name)


# -- summing ---------------------------------------------------------------------------------------------------------

RULE = "as chosen by the tool"
DIFFERS = 0.02  # between a mean of the file and ours of its records: more, and they are not about the same thing
_COMPARED = ("ttft", "tpot", "e2e")


def summary_of(run: ImportedRun) -> Summary:
    """A summary like that of any run, without what the file does not have."""
    return _of_records(run) if run.records is not None and len(run.records) else _of_file(run)


def verdict_of(run: ImportedRun, summary: Summary, title: str) -> Verdict:
    """By what the file shows. A note says that neither the delivery of the load nor the tool's own error was
    measured."""
    stated = contradictions(run.measures) if run.records is not None else []
    reasons = [*run.doubts, *contradictions(summary.measures), *stated, *_disagreements(run, summary), *_negative(run)]
    if summary.outcomes.get("ok") == 0:
        reasons.insert(0, ("nothing_answered", "No request was answered, so its times mean nothing."))
    text = f"Imported from {title}: how the load was delivered and the tool's own error are not known."
    judgements = [Reason(status=_status(code), code=code, text=text) for code, text in reasons]
    return judged([*_failed(summary), *judgements, Reason(status="valid", code="imported", text=text)])


def _failed(summary: Summary) -> list[Reason]:
    """As of a run of our own: the latencies are those of the answered."""
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
    """Where the file's own numbers are not those of the requests in it."""
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
    """What no run can have, and what a number computed with it is."""
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
    """Requests with a negative time between two instants."""
    count = 0
    for reads in records.read_batches(columns=("read_at",)):
        gaps = np.diff(reads.at, prepend=reads.at[:1])
        begins = reads.offsets[:-1][reads.counts() > 0]
        gaps[begins] = reads.at[begins] - records.sent_at[reads.owner[reads.counts() > 0]]
        count += len(np.unique(np.repeat(reads.owner, reads.counts())[gaps < 0]))
    return count


def _of_file(run: ImportedRun) -> Summary:
    """What the file contains, and nothing else."""
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
    """Ours of the records, without the measures that these cannot give; the file's own numbers are kept too."""
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
    """Records that follow each other, because their send times are unknown, have times of their own but no common
    clock: nothing that depends on one is kept."""
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
    """The headline is what the file states, where it does."""
    if theirs is None or theirs.value is None:
        return ours
    return replace(ours, value=theirs.value, basis="file")


def _slices(slices: Slices | None, underivable: tuple[str, ...]) -> Slices | None:
    """Where nothing is known of a schedule, requests are due when they are sent: the measure is the plain one."""
    if slices is None:
        return None
    name = "ttft" if slices.measure in underivable else slices.measure
    without_tokens = "output_rate" in underivable
    rows = [replace(row, tokens_per_s=None) for row in slices.rows] if without_tokens else slices.rows
    return replace(slices, measure=name, rows=rows)


def _plan(run: ImportedRun) -> Plan:
    """The plan in whose window the records are measured. An unknown load has no window of its own."""
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
    """They have no kind if the file has none."""
    decided = (run.answered or 0) + (run.failed or 0)
    rate = run.failed / decided if run.failed is not None and run.answered is not None and decided else None
    return Failures(failure_rate=rate, failed=run.failed)


# -- conduct ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one file."""

    path: Path
    format: str
    runs: list[Run] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # runs that it had become already
    broken: list[str] = field(default_factory=list)  # rows that are no results, named
    notes: list[str] = field(default_factory=list)  # how something was read that a person should know
    results: int = 0  # results in the file


@dataclass(frozen=True, slots=True)
class Options:
    format: str | None = None
    tags: tuple[str, ...] = ()
    again: bool = False
    dry_run: bool = False
    below: Path | None = None  # the folder that was given: the path below it distinguishes results

    def shown(self, path: Path) -> str:
        """The file's name, with the folders between it and the one that was given."""
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
    """Keep every result of a file as a run. A file that this store has already is not kept twice, unless `again`."""
    place = open_store(store)
    options = Options(format, tuple(tags), again, dry_run)
    with place.batch():
        return import_one(Path(path), place, options)


def read_result(path: Path, name: str) -> ParsedFile:
    """What a file of a known format holds; nothing is kept."""
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
_HEAD = 2**18  # bytes of a damaged file in which a result has at least one of these words


def _source(path: Path) -> Source:
    try:
        return read_source(path)
    except DataError as error:
        if (
            path.suffix in _RESULTS and path.is_file() and _may_be_result(path)
        ):  # damaged, or cut off: its kind is unknown
            raise BrokenResult(error.message, error.hint) from None
        raise
    except RecursionError:
        raise BrokenResult(f"{path}: nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python converts
        raise BrokenResult(f"{path}: {str(error).partition(';')[0][:200]}") from None


def _may_be_result(path: Path) -> bool:
    """Whether a file that cannot be read begins like a result, or has no words at all. Other programs' files are no
    damaged results."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head.startswith(GZIP):
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except (OSError, zlib.error):
        return True
    text = head.replace(b"\0", b"").lower()  # also of UTF-16
    return re.search(rb"[a-z]", text) is None or _WORDS.search(text) is not None


def _new_runs(
    path: Path, place: Store, options: Options, source: Source, chosen: ImportFormat, name: str, digest: str
) -> Imported:
    """What a file becomes that is not in the store yet."""
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
    """What all runs of one file share."""

    format: str
    title: str
    path: Path
    source: Source
    about: ImportOrigin
    marks: Marks


def _all_or_none(runs: list[ImportedRun], origin: _Origin, store: Store) -> list[Run]:
    """Of a file that is imported half way nothing stays, so that it can be imported again."""
    kept: list[Run] = []
    try:
        kept.extend(_kept(run, origin, store) for run in runs)  # one by one: those before an interrupt are in it
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
    """As a person finds them in the file: `line 7.completed`."""
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
    """It is kept unpacked, as it was read."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return f"source{plain.suffix or '.txt'}"


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
