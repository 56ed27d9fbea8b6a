"""What the files of a run must look like to be used: checked once, where a run folder is read.

Only what everything relies on is described: more keys are fine, and every key may be missing, as in runs of older
versions and of other tools. Numbers have bounds far beyond anything that is measured, so that nobody after this has to
think of infinities; text is valid Unicode; nothing is nested without end.
"""

import math
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np
from msgspec import Meta

from inferometer.errors import StoreError
from inferometer.record.run import Kind, State

DEEPEST = 60  # levels; a summary has 7
SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1  # of SQLite, PostgreSQL and most readers of JSON
LARGEST = 1e18  # of anything measured: seconds, bytes, tokens, per second

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Interval = list[Number | None]
Text = str | None


class About(TypedDict, total=False):
    started: str
    state: State
    kind: Kind
    source: Text


class Measure(TypedDict, total=False):
    unit: Text
    direction: Text
    title: Text
    count: Number | None
    undefined: Number | None
    mean: Number | None
    std: Number | None
    min: Number | None
    max: Number | None
    p50: Number | None
    p90: Number | None
    p95: Number | None
    p99: Number | None
    intervals: dict[str, Interval | None] | None
    unknown: dict[str, Any] | None


class Rate(TypedDict, total=False):
    unit: Text
    direction: Text
    title: Text
    window: Number | None
    run: Number | None
    peak_1s: Number | None
    interval: Interval | None


class Value(TypedDict, total=False):
    unit: Text
    direction: Text
    title: Text
    value: Number | str | bool | None
    interval: Interval | None


class Concurrency(TypedDict, total=False):
    mean: Number | None
    max: Number | None
    asked: Number | None


class Goodput(TypedDict, total=False):
    window: Number | None
    share: Number | None


class Failures(TypedDict, total=False):
    failure_rate: Number | None
    failed: Number | None
    censored: Number | None
    by_outcome: dict[str, Number] | None


class Stalls(TypedDict, total=False):
    over_s: Number | None
    share: Number | None


class Limit(TypedDict, total=False):
    limit: str
    text: Text
    value: Number | None
    met: bool | None


class Failed(TypedDict, total=False):
    message: str
    count: Number


class Summary(TypedDict, total=False):
    loop: Text
    confidence: Number | None
    headline: list[str] | None
    headline_quantiles: list[str] | None
    window: dict[str, Any] | None
    measures: dict[str, Measure] | None
    rates: dict[str, Rate] | None
    values: dict[str, Value] | None
    concurrency: Concurrency | None
    goodput: Goodput | None
    failures: Failures | None
    stalls: Stalls | None
    outcomes: dict[str, Number] | None
    limits: list[Limit] | None
    errors: list[Failed] | None
    tokens: dict[str, Any] | None
    instrument: dict[str, Any] | None
    delivery: dict[str, Any] | None
    definitions: dict[str, str] | None
    stages: list[dict[str, Any]] | None
    traffic: dict[str, dict[str, Any]] | None
    startup: dict[str, Any] | None
    cases: list[dict[str, Any]] | None


class Reason(TypedDict, total=False):
    word: Text
    code: Text
    text: str


class VerdictFile(TypedDict, total=False):
    word: Annotated[str, Meta(max_length=40)]  # a column of every list
    reasons: list[Reason]
    traffic: dict[str, Any] | None


class Imported(TypedDict, total=False):
    format: Text
    file: Text
    sha256: Text
    part: Text
    started_by: Text


class Environment(TypedDict, total=False):
    target: dict[str, Any] | None
    machine: dict[str, Any] | None
    git: dict[str, Any] | None
    stack: dict[str, Any] | None
    imported: Imported | None
    gpus: list[Any] | None
    command: Text


class FileFacts(TypedDict):
    bytes: Annotated[int, Meta(ge=0)]
    sha256: str


class Manifest(TypedDict):
    files: dict[str, FileFacts]


class MarksFile(TypedDict, total=False):
    tags: list[str] | None
    baselines: dict[str, str] | None
    experiment: Text
    case: Text


class ExperimentFile(TypedDict, total=False):
    kind: str
    name: Text
    started: str
    definition: dict[str, Any]
    earlier: list[Any]


class ExperimentCase(TypedDict, total=False):
    name: str
    label: Text
    parameters: dict[str, Any] | None
    repeat: int
    state: Text
    run: Text
    error: Text
    wall_s: Number | None


SHAPES: dict[str, Any] = {
    "run": About,
    "plan": dict[str, Any],
    "environment": Environment,
    "summary": Summary,
    "verdict": VerdictFile,
    "manifest": Manifest,
    "marks": MarksFile,
    "experiment": ExperimentFile,
    "case": ExperimentCase,
}


def checked(content: Any, kind: str, where: object) -> dict[str, Any]:
    """The content as it is, if it can be used as that; else a `StoreError` that names the field."""
    if wrong := unusable(content):
        raise StoreError(f"{where}: {wrong}")
    try:
        msgspec.convert(content, SHAPES[kind])
    except msgspec.ValidationError as error:
        raise StoreError(f"{where}: {_sentence(error)}") from None
    result: dict[str, Any] = content
    return result


def unusable(value: Any, path: str = "", depth: int = 0) -> str | None:
    """What in plain data no file, index or page of ours could hold, with its place; None where all is well."""
    if depth > DEEPEST:
        return f"{path.split('.')[0]}: nested more than {DEEPEST} levels deep"
    if isinstance(value, Mapping):
        parts = ((unusable(name, path, depth + 1), name, part) for name, part in value.items())
        found = (
            wrong or unusable(part, f"{path}.{name}" if path else str(name), depth + 1) for wrong, name, part in parts
        )
        return next(filter(None, found), None)
    if isinstance(value, list | tuple):
        found = (unusable(part, f"{path}[{at}]", depth + 1) for at, part in enumerate(value))
        return next(filter(None, found), None)
    wrong = _wrong_scalar(value)
    return f"{path}: {wrong}" if wrong and path else wrong


def _wrong_scalar(value: Any) -> str | None:
    if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
        return f"{_number_text(value)} is out of range, whole numbers go from -2^63 to 2^63-1"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "text that is not valid Unicode"
        return None
    known = value is None or isinstance(value, bool | int | float | date | np.generic | np.ndarray)
    return None if known else f"a {type(value).__name__} where text, a number, a list or a mapping is expected"


def large_number(value: Any, path: str = "", depth: int = 0) -> str | None:
    """The first number in plain data that is too large to be kept, with its place."""
    if isinstance(value, Mapping) and depth <= DEEPEST:
        parts = ((f"{path}.{name}" if path else str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple) and depth <= DEEPEST:
        parts = ((f"{path}[{at}]", part) for at, part in enumerate(value))
    else:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{path}: {_number_text(value)}" if is_number and LARGEST < abs(value) < math.inf else None
    return next(filter(None, (large_number(part, place, depth + 1) for place, part in parts)), None)


def _number_text(value: float) -> str:
    if isinstance(value, float):
        return str(value)
    digits = int(value.bit_length() * 0.30103) + 1
    return str(value) if digits <= 40 else f"a number of {digits:,} digits"


def _sentence(error: msgspec.ValidationError) -> str:
    """`summary.measures.ttft.p50: expected float, got str`."""
    what, _, path = str(error).replace("`", "").partition(" - at ")
    place = path.removeprefix("$").removeprefix(".")
    what = what[:1].lower() + what[1:]
    return f"{place}: {what}" if place else what
