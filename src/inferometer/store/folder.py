"""The folder of a run, `<store>/runs/<id>`: created once and filled file by file; each file is either complete or
missing."""

import functools
import os
import random
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import orjson
import yaml

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import StoreError, TargetError
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.encoding import environment_document, summary_document, verdict_document
from inferometer.record.environment import Environment
from inferometer.record.files import check_schema, replacing, schema_of, translated_errors
from inferometer.record.gather import Gathered, logs_to_parquet, read_logs
from inferometer.record.log import LogReader
from inferometer.record.parquet import HELD_READS, read_parquet, read_samples, write_parquet, write_samples
from inferometer.record.record import Samples
from inferometer.record.run import Run, RunKind, State
from inferometer.record.sanitize import is_harmless, json_text
from inferometer.record.summary import Summary
from inferometer.record.verdict import Verdict
from inferometer.store.manifest import MANIFEST, check_whole, manifest_bytes, manifest_of
from inferometer.store.shapes import (
    Damaged,
    RunFile,
    Settings,
    ShardsFile,
    checked,
    damaged_by,
    decoded,
    decoded_environment,
    decoded_summary,
    decoded_verdict,
    file_bytes,
    is_there,
)
from inferometer.vocabulary import size_text

# -- names -----------------------------------------------------------------------------------------------------------

_FIRST = """
    amber ample azure balmy basil brave brisk bronze calm cedar civil clear coral cosmic crisp dapper deft dusky
    eager early ember fable fern fleet frank fresh gentle gilt glad golden grand green hazel honest ivory jade
    jolly keen kind lemon lilac linen lively lunar maple mellow mild mint misty noble olive opal pearl plum
    proud quick quiet royal rustic sable sage solar
"""
_SECOND = """
    alder badger beaver bison bream brook canyon comet condor crane curlew delta dingo dove dune eagle egret
    ermine falcon finch fjord fox gecko gibbon glade grebe gull harbor hare heron ibex ibis jackal jay kite lark
    lemur linnet lynx magpie marten meadow mole moose newt ocelot orca osprey otter panda petrel plover puffin
    quail raven robin seal sparrow stoat stork tapir tern wren
"""


def run_id(started: datetime) -> str:
    """Seconds in UTC and one of 3,900 names: ids of the same second may collide, and are then drawn again."""
    draw = random.SystemRandom()
    return f"{_second(started)}-{draw.choice(_FIRST.split())}-{draw.choice(_SECOND.split())}"


def _second(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%d-%H%M%S}"


_ID = re.compile(r"\d{8}-\d{6}-\w+-\w+")


def is_run_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


# -- folder ----------------------------------------------------------------------------------------------------------

PLAN, RECORDS, SAMPLES = "plan.yaml", "records.parquet", "samples.parquet"
OBSERVER_LOG = "log-observer.bin"
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C: five times as fast
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LARGEST_IN_MEMORY = 25 * HELD_READS  # bytes of logs; a read takes 24 or slightly more
FOLDERS_READ: deque[Path] = deque(maxlen=1000)  # the last ones read by this process
LEAST_FREE = 16 * 2**20  # bytes; a run of 10,000 requests of 100 tokens has a log of 25 MB


@dataclass(frozen=True)
class RunFolder:
    """A run being written."""

    path: Path
    started_at: str
    kind: RunKind = "serving"
    source: str | None = None

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def store(self) -> Path:
        """The folder that contains this run and others."""
        return self.path.parent.parent

    def log_path(self, shard: int) -> Path:
        return self.path / f"log-{shard}.bin"

    @property
    def observer_log(self) -> Path:
        """The samples during the load; read together with the logs of the shards."""
        return self.path / OBSERVER_LOG

    def write_plan(self, plan: JsonObject) -> None:
        """As a plan that can be run again; the schema version is a comment, because a plan has no field for it."""
        self._write_file(PLAN, plan_bytes(plan))

    def write_environment(self, environment: Environment) -> None:
        self._write("environment", environment_document(environment))

    def write_summary(self, summary: Summary) -> None:
        self._write("summary", summary_document(summary))

    def write_verdict(self, verdict: Verdict) -> None:
        self._write("verdict", verdict_document(verdict))

    def write_state(self, state: State) -> None:
        """`partial` until the run has a final state."""
        self._write("run", about_run(self.started_at, state, self.kind, self.source))
        if state != "partial":
            self._write_file(MANIFEST, manifest_bytes(manifest_of(self.path)))

    def gather(self) -> tuple[Records, Gathered]:
        """Turns the shards' logs into columns: read once and written from memory, or streamed if they are large. They
        are removed once everything in them is stored elsewhere."""
        logs = logs_of(self.path)
        with translated_errors(self.path):
            small = sum(log.stat().st_size for log in logs) <= LARGEST_IN_MEMORY
        records, gathered = read_logs(logs) if small else (None, Gathered())
        if records is not None and records.held:
            write_parquet(records, self.path / RECORDS)
        else:
            gathered = logs_to_parquet(logs, self.path / RECORDS)
            records = read_parquet(self.path / RECORDS)
        if gathered.samples:
            write_samples(Samples.of(gathered.samples), self.path / SAMPLES)
        self._write("shards", _shards(gathered))
        with translated_errors(self.path):
            for log in logs:
                log.unlink()
        return records, gathered

    def observed(self) -> Gathered:
        """The observer's log of a load that we did not send."""
        return read_logs([self.observer_log])[1] if self.observer_log.is_file() else Gathered()

    def write_observed(self, records: Records | None, gathered: Gathered) -> None:
        """For records and samples that do not come from logs of shards."""
        if records is not None:
            write_parquet(records, self.path / RECORDS)
        if gathered.samples:
            write_samples(Samples.of(gathered.samples), self.path / SAMPLES)
        self._write("shards", _shards(gathered))
        with translated_errors(self.path):
            self.observer_log.unlink(missing_ok=True)

    def abandon(self, because: BaseException | None = None) -> None:
        """The run ended with an error: keep files worth looking at, or leave nothing behind. A server's output is only
        worth keeping if the server caused the error."""
        blamed = isinstance(because, TargetError) and any(self.path.glob("*.log"))
        loaded = [log for log in logs_of(self.path) if log.name != OBSERVER_LOG]
        if blamed or any(map(_has_entries, loaded)):
            with suppress(StoreError):
                self.write_state("failed")
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def load(self) -> Run:
        return load_run(self.path)

    def _write(self, kind: str, content: JsonObject) -> None:
        self._write_file(f"{kind}.json", json_bytes(kind, content))

    def _write_file(self, name: str, content: bytes) -> None:
        with translated_errors(self.path):
            (self.path / MANIFEST).unlink(missing_ok=True)  # the content changes: the manifest is written at the end
        with replacing(self.path / name) as draft:
            draft.write_bytes(content)


def plan_bytes(plan: JsonObject) -> bytes:
    text = yaml.dump(dict(plan), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    if not is_harmless(text):  # such characters are stored as escapes, and read back unchanged
        text = yaml.dump(dict(plan), Dumper=_Dumper, sort_keys=False, allow_unicode=False)
    return f"# schema: {schema_of('plan')}\n{text}".encode()


def json_bytes(kind: str, content: JsonObject) -> bytes:
    """With NaN as null: missing is never a number."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return json_text({"schema": schema_of(kind), **content}, options).encode()


def about_run(started_at: str, state: State, kind: RunKind, source: str | None) -> dict[str, JsonValue]:
    imported = {} if source is None else {"source": source}
    return {"started": started_at, "state": state, "kind": kind, **imported}


def data_folder() -> Path:
    """`inferometer` in the user's data folder."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "inferometer"


def check_writable(store: Path) -> None:
    """Whether a run could be stored there, tested before the load starts and not after it."""
    try:
        disk = _tried(store)
    except StoreError as error:
        raise StoreError(
            error.message, error.hint or "use a store in which folders can be created: --store FOLDER"
        ) from error
    free = disk.f_bavail * disk.f_frsize
    if free < LEAST_FREE:
        hint = "free some disk space, or use another store: --store FOLDER"
        raise StoreError(
            f"{store}: only {size_text(free)} of disk space left, a run needs at least {size_text(LEAST_FREE)}", hint
        )


def _tried(store: Path) -> os.statvfs_result:
    with translated_errors(store):
        runs = store / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=runs) as probe:
            probe.write(bytes(4096))  # on a full disk empty files can still be created
        return os.statvfs(runs)


def new_run(
    store: Path, started: datetime | None = None, kind: RunKind = "serving", source: str | None = None
) -> RunFolder:
    """A new folder for a run that starts now."""
    check_writable(store)
    started = started or datetime.now(UTC)
    folder = RunFolder(
        made_folder(store, started, is_latest=True), started.isoformat(timespec="milliseconds"), kind, source
    )
    folder.write_state("partial")
    return folder


def load_run(path: str | Path, files_elsewhere: Collection[str] = ()) -> Run:
    """A run from its folder; a `DamagedError` names the problem if it cannot be read."""
    read = read_run(Path(path), files_elsewhere)
    if isinstance(read, Damaged):
        raise read.error
    return read


def read_run(path: Path, files_elsewhere: Collection[str] = ()) -> Run | Damaged:
    """A run from its folder, as far as it was written, or what is wrong with it; records are read on request. The
    folder's name is the id, so that a copy is a run of its own. Files in `files_elsewhere` may be missing here. This is
    the only place where a run folder is read: its results have the form that all other code relies on."""
    if not _is_run(path):
        raise StoreError(f"{path}: not a run folder", "inferometer list shows the stored runs")
    try:
        run = _read_run(path, files_elsewhere)
    except StoreError as error:
        return damaged_by(error, path)
    if path not in FOLDERS_READ:
        FOLDERS_READ.append(path)
    return run


def _is_run(path: Path) -> bool:
    try:
        return path.is_dir() and any(is_there(path / name) for name in ("run.json", PLAN, "summary.json"))
    except (OSError, StoreError):
        return True  # something exists, but access is denied


def _read_run(path: Path, files_elsewhere: Collection[str]) -> Run:
    check_whole(path, files_elsewhere)
    about = decoded(_read(path, "run"), RunFile, path / "run.json")
    summary, verdict = _read_summary(path), _read_verdict(path)
    if summary is not None and not is_there(path / "run.json"):
        raise StoreError(f"{path}: run.json is missing, although there is a summary")
    if summary is not None and verdict is None:
        if about.state != "partial":
            raise StoreError(f"{path}: verdict.json is missing, although there is a summary")
        summary = None  # killed between the two: as if neither was written
    return Run(
        id=_id_of(path),
        started_at=about.started,
        plan=StoredPlan(_read_plan(path / PLAN)),
        environment=decoded_environment(_read(path, "environment"), path / "environment.json"),
        summary=summary or Summary(),
        verdict=verdict,
        state=about.state,
        kind=about.kind,
        source=about.source,
        folder=path,
        by_older_rules=verdict is not None and _is_older(path / "verdict.json", "verdict"),
        **readers(path),
    )


def _is_older(file: Path, kind: str) -> bool:
    """Written by a version with an older schema."""
    return bool(orjson.loads(file_bytes(file)).get("schema") != schema_of(kind))


def _id_of(path: Path) -> str:
    try:
        return path.resolve().name
    except (OSError, RuntimeError):  # a link that leads to itself
        return path.name


def load_partial(path: Path) -> Records:
    """The records of a killed run, from the complete part of its logs."""
    logs = logs_of(path)
    if not logs:
        raise StoreError(f"{path}: it has no logs, so nothing can be recovered")
    return read_logs(logs)[0]


DRAWS = 100  # tries before ids of the next second are used
AHEAD = timedelta(minutes=1)  # ids further in the future come from a wrong clock


def made_folder(store: Path, started: datetime, *, is_latest: bool = False) -> Path:
    """Creates a folder with a new id; `is_latest`: an id after all others of its time, because `latest` follows ids."""
    first, last = _second(started), _second(started + AHEAD)
    names = [path.name for path in (store / "runs").iterdir()] if is_latest else []
    newest = max((name for name in names if first <= name <= last), default="")
    draws = 0
    while True:
        path = store / "runs" / run_id(started + timedelta(seconds=draws // DRAWS))
        draws += 1
        if path.name <= newest:
            continue
        with translated_errors(path), suppress(FileExistsError):  # another process has it: draw again
            path.mkdir()
            return path


class RunReaders(TypedDict):
    """The fields of a `Run` that read from its folder."""

    read_records: Callable[[], Records] | None
    read_samples: Callable[[], Samples] | None


def readers(path: Path) -> RunReaders:
    """Functions that read records and samples on request."""
    samples = _reader(path, lambda: read_samples(path / SAMPLES)) if is_there(path / SAMPLES) else None
    return {"read_records": _records_of(path), "read_samples": samples}


def _records_of(path: Path) -> Callable[[], Records] | None:
    if is_there(path / RECORDS):
        return _reader(path, lambda: read_parquet(path / RECORDS))
    return _reader(path, lambda: load_partial(path)) if logs_of(path) else None


def _reader(path: Path, read: Callable[[], Any]) -> Callable[[], Any]:
    """Reads once. Any error in the file counts as damage, because Parquet libraries raise many kinds of errors."""

    @functools.cache
    def read_once() -> Any:
        try:
            for name in (RECORDS, SAMPLES):
                _check_plain(path / name)
            return read()
        except (StoreError, OSError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged_by(error, path).error from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "pyarrow":
                raise
            raise damaged_by(error, path).error from error

    return read_once


def _check_plain(file: Path) -> None:
    """Reading a pipe in place of a file would block for ever."""
    if is_there(file) and not file.is_file():
        raise StoreError(f"{file}: not a plain file")


def logs_of(path: Path) -> list[Path]:
    """The existing logs of the shards and of the observer, in order."""
    return sorted((log for log in path.glob("log-*.bin") if log.is_file()), key=lambda log: (len(log.name), log.name))


def _has_entries(log: Path) -> bool:
    """Whether a shard reached the load."""
    try:
        reader = LogReader(log)
        return next(iter(reader), None) is not None or reader.skipped > 0
    except StoreError:
        return True  # broken, so something was written


def gathered_of(run: Run) -> Gathered:
    """The notes and samples of a stored run, as written by its shards."""
    document, samples = _read(run.folder, "shards") if run.folder else {}, run.samples
    shards = decoded(document, ShardsFile, (run.folder or Path()) / "shards.json")
    gathered = Gathered(stored_clocks=shards.clocks)
    gathered.notes.extend(shards.notes)
    if samples is not None:
        gathered.samples.extend(samples.sample(number) for number in range(len(samples)))
    return gathered


def _shards(gathered: Gathered) -> dict[str, JsonValue]:
    shards = [
        {"shard": log.shard, "clock": msgspec.to_builtins(log.clock)} for log in gathered.headers if log.shard >= 0
    ]
    broken = [log.name for log in gathered.truncated]
    return {
        "shards": shards,
        "clocks": msgspec.to_builtins(gathered.clocks),
        "truncated": broken,
        "skipped": {log.name: entries for log, entries in gathered.skipped.items()},
        "notes": [msgspec.to_builtins(note) for note in gathered.notes],
    }


def _read(path: Path, kind: str) -> Settings:
    file = path / f"{kind}.json"
    return read_json(file, kind) if is_there(file) else {}


def _read_summary(path: Path) -> Summary | None:
    content = _read(path, "summary")
    return decoded_summary(content, path / "summary.json") if content else None


def _read_verdict(path: Path) -> Verdict | None:
    file = path / "verdict.json"
    return decoded_verdict(read_json(file, "verdict"), file) if is_there(file) else None


def read_json(file: Path, kind: str) -> Settings:
    """A file of ours as plain data, without its schema."""
    try:
        content = orjson.loads(file_bytes(file))
    except orjson.JSONDecodeError as error:
        raise StoreError(f"{file}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{file}: expected a JSON object, got {type(content).__name__}")
    check_schema(file, kind, content.pop("schema", None))
    return checked(content, file)


def _read_plan(file: Path) -> Settings:
    if not is_there(file):
        return {}
    try:
        text = file_bytes(file).decode()
        plan = yaml.load(text, Loader=_Loader) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StoreError(f"{file}: not YAML: {error}") from error
    first_line = text.partition("\n")[0]
    if first_line.startswith("# schema: "):
        check_schema(file, "plan", first_line.removeprefix("# schema: "))
    if not isinstance(plan, dict):
        raise StoreError(f"{file}: expected settings, got {type(plan).__name__}")
    return checked(plan, file)
