"""The report of the start in a log file: its phases, processes and facts, and its numbers under the names that lists,
histories and comparisons use."""

import ast
import gzip
import os
import re
import stat
import time
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import structs

from inferometer.documents.files import opened
from inferometer.documents.json_text import RefusedError
from inferometer.errors import DataError
from inferometer.plan.redactor import REDACTED
from inferometer.plan.secrets import is_secret, redacted_text
from inferometer.record.files import translated_errors
from inferometer.record.summary import Ends, MissingRanks, Phase, Process, Sleep, Startup, Unmatched, Value
from inferometer.target.startup.log import WORDINGS, LogClock, PhysicalLines, engine_of, messages, text
from inferometer.target.startup.phases import PHASES, Mark, PhaseTiming, Start, phase_timings, starts_of
from inferometer.target.startup.phases import PhaseRule as PhaseRule
from inferometer.vocabulary import Direction

# -- facts -----------------------------------------------------------------------------------------------------------

_CONFIG = re.compile(r"\b(model|load_format|dtype|quantization|tensor_parallel_size|pipeline_parallel_size"
                     r"|data_parallel_size|enforce_eager|device_config)=('[^']*'|[^,\s)]+)")  # fmt: skip
_OBJECT = re.compile(r"<[^<>]*>|\b[A-Za-z_][\w.]*\([^()]*\)")  # reprs that are not literals


def facts_of(start: Start) -> Startup:
    """The facts that the log contains."""
    config, arguments = config_of(start), arguments_of(start)
    load_format = config.get("load_format") or arguments.get("load_format")
    return Startup(
        engine="vLLM",
        version=first_value(start, "version"),
        platform=first_value(start, "platform"),
        model=config.get("model") or arguments.get("model") or first_value(start, "model"),
        load_format=_bare(load_format),
        parallel={name.removesuffix("_parallel_size"): int(config[name]) for name in config if "parallel" in name},
        arguments=arguments,
        device=config.get("device_config"),
        eager=str(config.get("enforce_eager", arguments.get("enforce_eager"))) == "True",
        serves=serves(start),
        cache=cache_status(start),
    )


def first_value(start: Start, name: str) -> Any:
    return next((mark.values[name] for mark in start.marks if name in mark.values), None)


def serves(start: Start) -> bool:
    """Whether it is a server: an engine inside a user's script has no API to start."""
    if start.of("server_version", "api_begins", "routes", "api_ends"):
        return True
    return any(name.lower().startswith("apiserver") for name in start.processes)


def cache_status(start: Start) -> str | None:
    """Whether compiled graphs came from the cache."""
    if start.of("cache_read"):
        return "hit" if not start.of("inductor") else "partly"
    return "miss" if start.of("inductor") else None


def config_of(start: Start) -> dict[str, str]:
    """From the line that the engine prints when it starts."""
    text = str(first_value(start, "config") or "")
    config: dict[str, str] = {}
    for name, value in _CONFIG.findall(text):
        config.setdefault(name, value.strip("'"))
    return config


def arguments_of(start: Start) -> dict[str, Any]:
    """Arguments that differ from their defaults, with secrets replaced by stars; {} if the line cannot be parsed."""
    text = str(first_value(start, "arguments") or "")
    text = text.partition("}")[0] + "}" if text.startswith("{") and "{" not in text[1:] else text
    for attempt in (text, _OBJECT.sub(lambda match: repr(match[0]), text)):
        try:
            arguments = ast.literal_eval(attempt)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return (
            {str(name): _harmless(str(name), value) for name, value in arguments.items()}
            if isinstance(arguments, dict)
            else {}
        )
    return {}


def _harmless(name: str, value: Any) -> Any:
    if is_secret(name):
        return REDACTED
    if isinstance(value, dict):
        return {str(inner): _harmless(str(inner), part) for inner, part in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless("", part) for part in value]
    return redacted_text(value) if isinstance(value, str) else value


def _bare(load_format: object) -> str | None:
    """`safetensors`, also if an old version wrote `LoadFormat.SAFETENSORS`."""
    return None if load_format is None else str(load_format).rpartition(".")[2].lower()


_RANKED = {  # quantities that every worker reports for its own part
    "weights_size": ("weights_end", "size"),
    "stream_size": ("streamed", "size"),
    "kv_cache_size": ("cache_memory", "size"),
    "graph_size": ("captured", "size"),
    "free_before": ("free_before", "size"),
    "free_after": ("free_after", "size"),
}
_PER_ENGINE = {"kv_cache_tokens": ("cache_tokens", "tokens"), "kv_cache_blocks": ("cache_blocks", "blocks")}


def sizes_of(start: Start) -> dict[str, float]:
    """Bytes and tokens, summed over processes, because each worker has its part. A sum with missing parts is left out,
    and `missing_ranks` names the reason."""
    partial = {missing.name for missing in missing_ranks(start)}
    sizes = {name: _summed(start.of(mark), value) for name, (mark, value) in (_RANKED | _PER_ENGINE).items()}
    return {name: value for name, value in sizes.items() if value is not None and name not in partial}


def missing_ranks(start: Start) -> list[MissingRanks]:
    """Quantities that fewer workers report than there are: in newer versions one rank reports for its node, Ray shows
    one of several similar lines, and each node may have its own log."""
    config = config_of(start)
    tensor, pipeline, data = (int(config.get(f"{kind}_parallel_size", 1)) for kind in ("tensor", "pipeline", "data"))
    missing = []
    for expected, named in ((tensor * pipeline * data, _RANKED), (data, _PER_ENGINE)):
        for name, (mark, value) in named.items():
            marks = [other for other in start.of(mark) if value in other.values]
            reporting = len({other.process for other in marks})
            hidden = sum(other.repeats - 1 for other in marks)
            if marks and (reporting < expected or hidden):
                missing.append(MissingRanks(name=name, reporting=reporting, expected=expected, hidden=hidden))
    return missing


def _summed(marks: list[Mark], value: str) -> float | None:
    """The last value of each process counts."""
    last = {mark.process: mark.values[value] for mark in marks if value in mark.values}
    return sum(float(amount) for amount in last.values()) if last else None


def sleeps_of(start: Start) -> list[Sleep]:
    """How long falling asleep took, what it freed, and how long waking up took, for each sleep. Each worker reports
    what was freed, and does so before the time it took."""
    sleeps: list[Sleep] = []
    freed: list[Mark] = []
    for mark in start.of("freed", "asleep", "awake"):
        match mark.name:
            case "freed":
                freed.append(mark)
            case "asleep":
                sleeps.append(_sleep(freed, seconds=float(mark.values["seconds"])))
                freed = []
            case "awake" if sleeps and sleeps[-1].wake_seconds is None:
                sleeps[-1] = structs.replace(sleeps[-1], wake_seconds=float(mark.values["seconds"]))
            case "awake":
                sleeps.append(_sleep(freed, wake_seconds=float(mark.values["seconds"])))
                freed = []
    if freed:
        sleeps.append(_sleep(freed))
    return sleeps


def _sleep(freed: list[Mark], seconds: float | None = None, wake_seconds: float | None = None) -> Sleep:
    return Sleep(
        seconds=seconds,
        wake_seconds=wake_seconds,
        freed_bytes=_summed(freed, "freed"),
        in_use_bytes=_summed(freed, "in_use"),
    )


# -- report ----------------------------------------------------------------------------------------------------------

_EAGER = ("compile", "dynamo", "graph_capture")  # do not occur with --enforce-eager
SIZES: dict[str, tuple[str, str, Direction | None]] = {
    "weights_size": ("weights, size", "bytes", None),
    "stream_size": ("weights streamed", "bytes", None),
    "kv_cache_size": ("KV cache", "bytes", "higher"),
    "kv_cache_tokens": ("KV cache, tokens", "tokens", "higher"),
    "kv_cache_blocks": ("KV cache, blocks", "blocks", "higher"),
    "graph_size": ("graphs, size", "bytes", "lower"),
    "free_before": ("free memory before profiling", "bytes", None),
    "free_after": ("free memory after profiling", "bytes", None),
}
_RATES = {
    "weights_rate": ("weights_size", "weights_time", "load weights, rate"),
    "weights_read_rate": ("weights_size", "weights_read_time", "read weights, rate"),
    "stream_rate": ("stream_size", "weights_stream_time", "stream weights, rate"),
}
_SLEEPS: dict[str, tuple[str, str, str, Direction]] = {
    "sleep_time": ("seconds", "fall asleep", "s", "lower"),
    "wake_time": ("wake_seconds", "wake up", "s", "lower"),
    "sleep_freed": ("freed_bytes", "freed by sleep", "bytes", "higher"),
    "sleep_in_use": ("in_use_bytes", "in use asleep", "bytes", "lower"),
}


@dataclass(frozen=True, slots=True)
class StartupReport:
    """A start, and its numbers under the names that lists, histories and comparisons use."""

    startup: Startup
    values: dict[str, Value]


def report_of(start: Start, resolution_s: float | None, ready_s: float | None = None) -> StartupReport:
    """`ready_s` was measured by the process that started the server; without it the log's own timestamps are used."""
    timings, facts = phase_timings(start), facts_of(start)
    ready = _ready(start, bool(facts.serves))
    log_s = _between(start.first_at, ready)
    startup = structs.replace(
        facts,
        state="complete" if ready is not None or ready_s is not None else "partial",
        started_at=_text(start.first_at),
        ready_at=_text(ready),
        resolution_s=resolution_s,
        ready_in_log_s=log_s,
        before_log_s=_between(log_s, ready_s),
        unexplained_s=_unexplained(timings, start.first_at, ready),
        processes=[_process(process.name, process.first_at) for process in start.processes.values()],
        phases=[_phase(timing, start, resolution_s) for timing in timings],
        unmatched=[_unmatched(phase) for phase in _missing(timings, facts)],
        not_run=[phase.name for phase in PHASES if _is_not_run(phase, facts)],
        sleeps=sleeps_of(start),
        missing_ranks=missing_ranks(start),
    )
    return StartupReport(startup, _values(start, startup, timings, ready_s))


def without_log(ready_s: float | None, why: str) -> StartupReport:
    """For a server whose log has no known line: only the total time."""
    values = {} if ready_s is None else {"time_to_ready": _value(ready_s, "s", "lower", "time to ready")}
    startup = Startup(
        state="partial" if ready_s is None else "complete",
        unmatched=[_unmatched(phase) for phase in PHASES if phase.expected],
        why=why,
    )
    return StartupReport(startup, values)


def _ready(start: Start, serving: bool) -> float | None:
    """When the first request could be answered: the API's start, or the engine's if it has no API."""
    for names in (("api_ends",), ("routes",)) if serving else (("engine_ready",), ("engine_ends",)):
        marks = start.of(*names)
        if marks:
            return marks[0].at
    return None


def _phase(timing: PhaseTiming, start: Start, resolution_s: float | None) -> Phase:
    size = timing.marks[-1].values.get("size")
    return Phase(
        name=timing.phase.name,
        title=timing.phase.title,
        inside=timing.phase.inside,
        process=process_name(timing.process, start),
        seconds=timing.seconds,
        interval=_interval(timing, resolution_s),
        by=timing.by,
        began_at=_text(timing.began_at),
        began_s=_between(start.first_at, timing.began_at),
        lines=timing.lines,
        wording=timing.marks[-1].wording.text,
        versions=timing.versions,
        size_bytes=None if size is None else float(size),
    )


def _interval(timing: PhaseTiming, resolution_s: float | None) -> tuple[float, float] | None:
    """The difference of two timestamps truncated to seconds is off by up to one second."""
    if timing.by == "stated" or resolution_s is None:
        return None
    return (max(0.0, timing.seconds - resolution_s), timing.seconds + resolution_s)


def process_name(process: str, start: Start) -> str:
    """With its pid only if another process has the same name."""
    name = process.partition(" pid=")[0]
    return name if sum(other.partition(" pid=")[0] == name for other in start.processes) == 1 else process


def _process(name: str, first: float | None) -> Process:
    bare, _, rest = name.partition(" pid=")
    pid, _, host = rest.partition(" ip=")
    return Process(name=bare, pid=int(pid) if pid else None, host=host or None, first_at=_text(first))


def _missing(timings: list[PhaseTiming], facts: Startup) -> Iterator[PhaseRule]:
    """Phases that occurred but are missing in the log, as opposed to those that did not occur."""
    names = {timing.phase.name for timing in timings}
    for phase in PHASES:
        if phase.expected and phase.name not in names and not _is_not_run(phase, facts):
            yield phase


def _is_not_run(phase: PhaseRule, facts: Startup) -> bool:
    if phase.name == "api_start":
        return not facts.serves
    if phase.name == "profiling":
        return facts.device == "cpu"  # its cache size is as requested: nothing to determine
    return bool(facts.eager) and phase.name in _EAGER


def _unmatched(phase: PhaseRule) -> Unmatched:
    """With the log lines that would have marked its end."""
    marks = {*phase.reported_by, *(end for _begin, end in phase.spans)}
    wordings = [f"{wording.text} ({wording.versions})" for wording in WORDINGS if wording.mark in marks]
    return Unmatched(name=phase.name, title=phase.title, looked_for=wordings)


def _unexplained(timings: list[PhaseTiming], first: float | None, ready: float | None) -> float | None:
    """Time until ready that no phase covers, by the timestamps of the log."""
    if first is None or ready is None:
        return None
    timed = [(timing.began_at, timing.ended_at) for timing in timings if not timing.phase.total]
    spans = [(begin, end) for begin, end in timed if begin is not None and end is not None]
    covered, until = 0.0, first
    for begin, end in sorted((max(begin, first), min(end, ready)) for begin, end in spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return round(max(0.0, ready - first - covered), 6)


# -- numbers -----------------------------------------------------------------------------------------------------


def _values(start: Start, startup: Startup, timings: list[PhaseTiming], ready_s: float | None) -> dict[str, Value]:
    resolution, log_s = startup.resolution_s, startup.ready_in_log_s
    values: dict[str, Value] = {}
    if ready_s is not None:
        values["time_to_ready"] = _value(ready_s, "s", "lower", "time to ready")
    elif log_s is not None:
        around = None if resolution is None else (max(0.0, log_s - resolution), log_s + resolution)
        values["time_to_ready"] = _value(log_s, "s", "lower", "time to ready", around)
    values |= _phase_values(timings, resolution)
    sizes = sizes_of(start)
    for name, size in sizes.items():
        title, unit, direction = SIZES[name]
        values[name] = _value(size, unit, direction, title)
    return values | _rates(values) | _sleep_values(startup.sleeps)


def _phase_values(timings: list[PhaseTiming], resolution_s: float | None) -> dict[str, Value]:
    """The slowest process determines the time: the others wait for it."""
    slowest: dict[str, PhaseTiming] = {}
    for timing in timings:
        known = slowest.get(timing.phase.name)
        if known is None or timing.seconds > known.seconds:
            slowest[timing.phase.name] = timing
    return {
        f"{name}_time": _value(timing.seconds, "s", "lower", _long_title(timing.phase), _interval(timing, resolution_s))
        for name, timing in slowest.items()
    }


def _long_title(phase: PhaseRule) -> str:
    """Names of parts of `compile` include it; parts of the whole start need no prefix."""
    return f"{phase.inside}: {phase.title}" if phase.inside in ("weights", "compile") else phase.title


def _rates(values: Mapping[str, Value]) -> dict[str, Value]:
    """Bytes per second of all workers together."""
    rates: dict[str, Value] = {}
    for name, (size_name, time_name, title) in _RATES.items():
        size, time_s = (values[key].value if key in values else None for key in (size_name, time_name))
        if size is not None and time_s:
            rates[name] = _value(size / time_s, "bytes/s", "higher", title)
    return rates


def _sleep_values(sleeps: list[Sleep]) -> dict[str, Value]:
    """With several sleeps, the last one that reports the value."""
    values = {}
    for name, (field, title, unit, direction) in _SLEEPS.items():
        known = [value for sleep in sleeps if (value := getattr(sleep, field)) is not None]
        if known:
            values[name] = _value(known[-1], unit, direction, title)
    return values


def _value(value: float, unit: str, direction: Direction | None, title: str, interval: Ends | None = None) -> Value:
    return Value(value=value, unit=unit, direction=direction, title=title, interval=interval)


def _between(first: float | None, last: float | None) -> float | None:
    """None also if the clock of the log was set back in between."""
    return None if first is None or last is None or last < first else round(last - first, 6)


def _text(at: float | None) -> str | None:
    return None if at is None else text(at)


# -- reading ---------------------------------------------------------------------------------------------------------

SAMPLE = 256 * 1024  # bytes by which the log of another engine is recognised
LONGEST_KEPT = 2000  # maximum characters of a stored line: a config line has some thousand
GZIP = b"\x1f\x8b"
MOST_UTF16 = 64 * 2**20  # bytes; such a log is converted as a whole


@dataclass(frozen=True, slots=True)
class StartupLog:
    """The result of reading a log: the report of its last start, the lines used, and the number of starts."""

    report: StartupReport
    matched: str
    starts: int
    started_s: float | None  # on the log's clock


def read_startup(log: Path, ready_s: float | None = None) -> StartupLog:
    """The last start in the log. Raises a `DataError` if it is not a log of vLLM."""
    clock = LogClock(_changed_s(log))
    with translated_errors(log), _opened(log) as file:
        lines = PhysicalLines(file)
        all_starts = starts_of(messages(lines, clock), lambda settled: setattr(lines, "settled", settled))
    starts = [start for start in all_starts if start.marks]
    if not starts or not any(start.stamped for start in starts):
        raise _foreign(log)
    start = starts[-1]
    return StartupLog(report_of(start, clock.resolution_s, ready_s), _matched(start), len(starts), start.first_at)


def startup_of(log: Path, ready_s: float | None = None) -> StartupReport:
    """The startup of a server that we started, for the summary of a run. Never fails: for a log without known lines
    only `ready_s` is reported."""
    try:
        return read_startup(log, ready_s).report
    except DataError as error:
        return without_log(ready_s, error.message)
    except Exception as error:  # a run is worth more than the report of its server's start
        return without_log(ready_s, f"{log.name}: {error}")


def _changed_s(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return time.time()


@contextmanager
def _opened(log: Path) -> Iterator[BinaryIO]:
    """Supports compressed logs too."""
    try:
        file = opened(log)
    except RefusedError as error:
        raise DataError(f"{log}: {error.text}") from None
    with file:
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):  # /dev/zero does not end
            raise DataError(f"{log}: is a device, not a log")
        beginning = file.peek(4)[:4]
        if beginning[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) and 0 in beginning[2:]:  # as written by PowerShell's `>`
            text = file.read(MOST_UTF16 + 1)
            if len(text) > MOST_UTF16:
                raise DataError(
                    f"{log}: is UTF-16 and larger than 64 MiB", f"iconv -f utf-16 -t utf-8 {log} > utf8.log"
                )
            yield BytesIO(text.decode("utf-16", "replace").encode())
            return
        if beginning[:2] != GZIP:
            yield file
            return
        try:
            with gzip.open(file) as inner:
                yield cast(BinaryIO, BufferedReader(inner))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{log}: is damaged gzip: {error}") from None


def _matched(start: Start) -> str:
    """The lines with their numbers, with anything that looks like a key replaced by stars."""
    lines = (f"{mark.lines[0]}: ({mark.process}) {redacted_text(mark.text)[:LONGEST_KEPT]}\n" for mark in start.marks)
    return "".join(lines)


def _foreign(log: Path) -> DataError:
    with translated_errors(log), _opened(log) as file:
        sample = file.read(SAMPLE)
    if not sample.strip():
        return DataError(f"{log}: the log is empty", "give the log of a server: vllm serve MODEL 2>&1 | tee server.log")
    if b"\0" in sample[:4096]:
        return DataError(f"{log}: not a text file", "give what the server printed")
    engine = engine_of(sample.decode("utf-8", "replace"))
    looks = f"it looks like a log of {engine}" if engine else "no line matches vLLM's startup messages"
    hint = "phases are read from vLLM logs only; for other servers: inferometer startup --server KIND"
    return DataError(f"{log}: not a log of a vLLM start: {looks}", hint)
