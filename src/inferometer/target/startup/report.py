"""A start as plain data: `startup` with its phases, processes and what was not found, and `values`, its numbers by the
names that lists, histories and comparisons know them by."""

from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.target.startup.clock import text
from inferometer.target.startup.facts import facts_of, sizes_of, sleeps_of
from inferometer.target.startup.phases import PHASES, Found, Phase, found_phases
from inferometer.target.startup.starts import Start
from inferometer.target.startup.wordings import WORDINGS

_EAGER = ("compile", "dynamo", "graph_capture")  # do not take place with --enforce-eager
_SIZES = {
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
_SLEEPS = {
    "sleep_time": ("seconds", "fall asleep", "s", "lower"),
    "wake_time": ("wake_seconds", "wake up", "s", "lower"),
    "sleep_freed": ("freed_bytes", "freed by sleep", "bytes", "higher"),
    "sleep_in_use": ("in_use_bytes", "in use asleep", "bytes", "lower"),
}


def report_of(start: Start, resolution_s: float | None, ready_s: float | None = None) -> dict[str, Any]:
    """`ready_s` is what whoever started the server measured; without it the log's own stamps have to do."""
    found, facts = found_phases(start), facts_of(start)
    ready = _ready(start, facts["serves"])
    log_s = _between(start.first_at, ready)
    startup = {
        **facts,
        "state": "complete" if ready is not None or ready_s is not None else "partial",
        "started_at": _text(start.first_at),
        "ready_at": _text(ready),
        "resolution_s": resolution_s,
        "ready_in_log_s": log_s,
        "before_log_s": _between(log_s, ready_s),
        "unexplained_s": _unexplained(found, start.first_at, ready),
        "processes": [_process(each.name, each.first_at) for each in start.processes.values()],
        "phases": [_phase(each, start, resolution_s) for each in found],
        "unmatched": [_unmatched(phase) for phase in _missing(found, facts)],
        "not_run": [phase.name for phase in PHASES if _is_not_run(phase, facts)],
        "sleeps": sleeps_of(start),
    }
    return {"values": _values(start, startup, found, ready_s), "startup": startup}


def without_log(ready_s: float | None, why: str) -> dict[str, Any]:
    """Of a server whose log says nothing that we know: only how long it took."""
    values = {} if ready_s is None else {"time_to_ready": _value(ready_s, "s", "lower", "time to ready")}
    startup = {
        "engine": None,
        "state": "partial" if ready_s is None else "complete",
        "phases": [],
        "unmatched": [_unmatched(phase) for phase in PHASES if phase.expected],
        "why": why,
    }
    return {"values": values, "startup": startup}


def _ready(start: Start, serving: bool) -> float | None:
    """When the first request could be answered: the API's start, or the engine's where it has no API."""
    for names in (("api_ends",), ("routes",)) if serving else (("engine_ready",), ("engine_ends",)):
        marks = start.of(*names)
        if marks:
            return marks[0].at
    return None


def _phase(found: Found, start: Start, resolution_s: float | None) -> dict[str, Any]:
    phase = {
        "name": found.phase.name,
        "title": found.phase.title,
        "inside": found.phase.inside,
        "process": process_name(found.process, start),
        "seconds": found.seconds,
        "interval": _interval(found, resolution_s),
        "by": found.by,
        "began_at": _text(found.began_at),
        "began_s": _between(start.first_at, found.began_at),
        "lines": found.lines,
        "wording": found.marks[-1].wording.text,
        "versions": found.versions,
    }
    size = found.marks[-1].values.get("size")
    return phase if size is None else phase | {"size_bytes": size}


def _interval(found: Found, resolution_s: float | None) -> list[float] | None:
    """Two stamps that were cut to seconds are up to one second wrong together."""
    if found.by == "said" or resolution_s is None:
        return None
    return [max(0.0, found.seconds - resolution_s), found.seconds + resolution_s]


def process_name(process: str, start: Start) -> str:
    """Its pid only where another process has the same name."""
    name = process.partition(" pid=")[0]
    return name if sum(each.partition(" pid=")[0] == name for each in start.processes) == 1 else process


def _process(name: str, first: float | None) -> dict[str, Any]:
    bare, _, pid = name.partition(" pid=")
    return {"name": bare, "pid": int(pid) if pid else None, "first_at": _text(first)}


def _missing(found: list[Found], facts: Mapping[str, Any]) -> Iterator[Phase]:
    """Told apart from those that did not take place."""
    names = {each.phase.name for each in found}
    for phase in PHASES:
        if phase.expected and phase.name not in names and not _is_not_run(phase, facts):
            yield phase


def _is_not_run(phase: Phase, facts: Mapping[str, Any]) -> bool:
    if phase.name == "api_start":
        return not facts["serves"]
    if phase.name == "profiling":
        return bool(facts["device"] == "cpu")  # its cache is as large as asked for: there is nothing to find out
    return bool(facts["eager"]) and phase.name in _EAGER


def _unmatched(phase: Phase) -> dict[str, Any]:
    """With the words that would have told of its end."""
    marks = {*phase.said, *(end for _begin, end in phase.spans)}
    words = [f"{wording.text} ({wording.versions})" for wording in WORDINGS if wording.mark in marks]
    return {"name": phase.name, "title": phase.title, "looked_for": words}


def _unexplained(found: list[Found], first: float | None, ready: float | None) -> float | None:
    """Time until ready that no phase covers, in the stamps of the log."""
    if first is None or ready is None:
        return None
    timed = [(each.began_at, each.ended_at) for each in found if not each.phase.total]
    spans = [(begin, end) for begin, end in timed if begin is not None and end is not None]
    covered, until = 0.0, first
    for begin, end in sorted((max(begin, first), min(end, ready)) for begin, end in spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return round(max(0.0, ready - first - covered), 6)


# -- numbers -----------------------------------------------------------------------------------------------------


def _values(start: Start, startup: dict[str, Any], found: list[Found], ready_s: float | None) -> dict[str, Any]:
    resolution, log_s = startup["resolution_s"], startup["ready_in_log_s"]
    values: dict[str, Any] = {}
    if ready_s is not None:
        values["time_to_ready"] = _value(ready_s, "s", "lower", "time to ready")
    elif log_s is not None:
        around = None if resolution is None else [max(0.0, log_s - resolution), log_s + resolution]
        values["time_to_ready"] = _value(log_s, "s", "lower", "time to ready", around)
    values |= _phase_values(found, resolution)
    sizes = sizes_of(start)
    for name, size in sizes.items():
        title, unit, direction = _SIZES[name]
        values[name] = _value(size, unit, direction, title)
    return values | _rates(values) | _sleep_values(startup["sleeps"])


def _phase_values(found: list[Found], resolution_s: float | None) -> dict[str, Any]:
    """The slowest process decides: the others wait for it."""
    slowest: dict[str, Found] = {}
    for each in found:
        known = slowest.get(each.phase.name)
        if known is None or each.seconds > known.seconds:
            slowest[each.phase.name] = each
    return {
        f"{name}_time": _value(each.seconds, "s", "lower", _long_title(each.phase), _interval(each, resolution_s))
        for name, each in slowest.items()
    }


def _long_title(phase: Phase) -> str:
    """A part of `compile` says so; what is inside of the whole engine's start needs no word for it."""
    return f"{phase.inside}: {phase.title}" if phase.inside in ("weights", "compile") else phase.title


def _rates(values: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes per second of all workers together."""
    made: dict[str, Any] = {}
    for name, (size, time, title) in _RATES.items():
        if size in values and values.get(time, {}).get("value"):
            made[name] = _value(values[size]["value"] / values[time]["value"], "bytes/s", "higher", title)
    return made


def _sleep_values(sleeps: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several sleeps the last one that says it."""
    values = {}
    for name, (field, title, unit, direction) in _SLEEPS.items():
        said = [sleep[field] for sleep in sleeps if sleep[field] is not None]
        if said:
            values[name] = _value(said[-1], unit, direction, title)
    return values


def _value(
    value: float, unit: str, direction: str | None, title: str, interval: list[float] | None = None
) -> dict[str, Any]:
    return {"value": value, "unit": unit, "direction": direction, "title": title, "interval": interval}


def _between(first: float | None, last: float | None) -> float | None:
    """None also where the clock of the log was set back in between."""
    return None if first is None or last is None or last < first else round(last - first, 6)


def _text(at: float | None) -> str | None:
    return None if at is None else text(at)
