"""Parsing shared by several formats: times, loads, lengths and results in rows, converted to a plan and an
environment."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from inferometer.documents.document import JsonValue
from inferometer.documents.json_text import LargeObject
from inferometer.errors import DataError
from inferometer.exchange.importing.requests import ImportedRequest
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ParsedFile, ResultRow, Source
from inferometer.exchange.importing.units import is_endless, number, whole
from inferometer.plan.draft import LoadDraft, WorkloadDraft
from inferometer.plan.foreign.common import without_missing
from inferometer.plan.foreign.shapes import bell, load_of, tidy
from inferometer.plan.secrets import redacted_url
from inferometer.record.environment import Environment, MeasuredTarget, ToolVersion

# -- fields ----------------------------------------------------------------------------------------------------------

MADE_UP = ("random", "random-ids", "synthetic", "synthetic_text")  # datasets that are generated, not read
_IN_NAME = re.compile(r"in_?(\d+)_out_?(\d+)")


MOST_GPUS = 100_000  # of one server: more is an error in the file, and each needs an entry in a list


def gpus(name: Any, count: Any) -> list[Any]:
    """The names of all devices, each repeated by its count (1 if the file has none)."""
    total = whole(count) or 1
    if not 1 <= total <= MOST_GPUS:
        raise DataError(f"must have 1 to {MOST_GPUS:,} accelerators, got {count}")
    return [name] * total


def instant(value: Any) -> datetime | None:
    """A wall-clock instant: seconds since 1970, ISO 8601, `20261115-011711`. Without a zone it is read as UTC."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    seconds = number(value) if not isinstance(value, str) else None
    if seconds is not None:
        return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < 1e11 else None
    return _written(value) if isinstance(value, str) else None


def _written(text: str) -> datetime | None:
    for form in ("%Y%m%d-%H%M%S", "%Y-%m-%d %H:%M:%S %Z"):
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def load(rate: Any, cap: Any, requests: int | None, burstiness: Any = 1.0) -> LoadDraft | None:
    """Poisson arrivals at a rate, with an optional cap; an infinite rate is a closed loop."""
    burst = number(burstiness) or 1.0
    slots, pace = whole(cap), number(rate)
    if pace is not None and pace > 0:
        return load_of(pace, slots or None, 0, 1 / math.sqrt(burst))
    if is_endless(rate) and (slots or requests):
        return load_of(None, slots or None, requests or 1)
    return closed(slots)


def constant(rate: Any, cap: Any = None) -> LoadDraft | None:
    pace = number(rate)
    return {"type": "constant", "rate": tidy(pace), "max_concurrency": cap} if pace else None


def closed(concurrency: Any) -> LoadDraft | None:
    slots = whole(concurrency)
    return {"type": "concurrency", "concurrency": slots} if slots and slots > 0 else None


def lengths(inputs: Any, outputs: Any, input_std: Any = None, output_std: Any = None) -> WorkloadDraft | None:
    """A workload of prompts and answers of these lengths; `None` if there are none."""
    workload: WorkloadDraft = {"type": "synthetic"}
    if (length := _length(inputs, input_std)) is not None:
        workload["input_tokens"] = length
    if (length := _length(outputs, output_std)) is not None:
        workload["output_tokens"] = length
    return workload if len(workload) > 1 else None


def _length(mean: Any, std: Any) -> Any:
    middle = number(mean)
    if middle is None or middle < 1:
        return None
    deviation = number(std)
    return bell(middle, deviation, None, None) if deviation else round(middle)


def dataset(name: Any) -> WorkloadDraft | None:
    """A workload of a named dataset."""
    if not isinstance(name, str) or not name or name in MADE_UP:
        return None
    known = {"sharegpt": "sharegpt", "sonnet": "sonnet"}
    return {"type": known.get(name, "prompts"), "path": name}


def lengths_in_name(name: str) -> tuple[int, int] | None:
    """`in_300_out_100.json` names the requested lengths."""
    match = _IN_NAME.search(name)
    return (int(match[1]), int(match[2])) if match else None


def plan_of(
    *,
    name: str | None = None,
    model: Any = None,
    url: Any = None,
    api: str | None = None,
    stream: bool | None = None,
    workload: WorkloadDraft | None = None,
    load: LoadDraft | None = None,
    requests: int | None = None,
    duration_s: float | None = None,
    seed: int | None = None,
) -> ImportedPlan:
    """The plan settings of a file, under our names."""
    address = redacted_url(url) if isinstance(url, str) and url.startswith(("http://", "https://")) else None
    target = {"url": address, "model": str(model) if model else None, "api": api}
    spoken = target if stream is not False else {**target, "stream": False}
    stop = {"requests": requests or None, "duration": f"{duration_s:g}s" if duration_s else None}
    sections = {"name": name, "target": spoken, "workload": workload, "load": load, "stop": stop, "seed": seed or None}
    plan: ImportedPlan = without_missing(sections)
    return plan


def environment_of(
    *,
    engine: JsonValue = None,
    version: JsonValue = None,
    gpus: JsonValue = None,
    hardware: JsonValue = None,
    commit: JsonValue = None,
    description: JsonValue = None,
    stack: Mapping[str, JsonValue] | None = None,
    versions: Mapping[str, JsonValue] | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    tool: ToolVersion | None = None,
) -> Environment:
    """The engine and hardware of a file: any value, as text."""
    target = MeasuredTarget(server=_text(engine), version=_text(version) or None)
    cards = gpus if isinstance(gpus, list) else [] if gpus is None else [gpus]
    return Environment(
        target=target if target != MeasuredTarget() else None,
        gpus=[str(card) for card in cards],
        hardware=_text(hardware),
        commit=_text(commit),
        description=_text(description),
        stack=without_missing(dict(stack or {})),
        versions=without_missing(dict(versions or {})),
        metadata=without_missing(dict(metadata or {})),
        tool=tool,
    )


def _text(value: JsonValue) -> str | None:
    return None if value is None else str(value)


# -- rows ------------------------------------------------------------------------------------------------------------

EPOCH_S = 1e9  # larger times are seconds since 1970, smaller ones are from another clock


def run_per_row(
    source: Source, make: Callable[[ResultRow], ImportedRun], rows: Sequence[ResultRow] | None = None
) -> ParsedFile:
    """One run per row. A single row is the whole file; of several rows each run stores its own."""
    every = source.rows() if rows is None else rows
    runs, broken = [], []
    for row in every:
        try:
            run = make(row)
        except DataError as error:
            broken.append(f"{row.where}: {error.message}".lstrip(": "))
            continue
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            broken.append(f"{row.where}: {type(error).__name__}: {error}".lstrip(": "))
            continue
        runs.append(run if len(every) == 1 else part_of(run, row))
    return ParsedFile(runs, broken)


def requests_in(
    source: Source, make: Callable[[ResultRow], ImportedRequest]
) -> tuple[list[ImportedRequest], list[str]]:
    """One request per row of a run, and the rows that are not requests."""
    requests, broken = [], []
    for row in source.rows():
        try:
            requests.append(make(row))
        except DataError as error:
            broken.append(f"{row.where}: {error.message}")
    return requests, broken


def started_at(first_s: float) -> datetime | None:
    """The start of a run if its times are seconds since 1970, else None."""
    return datetime.fromtimestamp(first_s, UTC) if first_s > EPOCH_S else None


def part_of(run: ImportedRun, row: ResultRow) -> ImportedRun:
    if isinstance(row.fields, LargeObject):
        return replace(run, part=run.part or row.where, original=row.fields.text)
    original = json.dumps(row.fields, indent=1, default=str).encode()
    return replace(run, part=run.part or row.where, original=original)
