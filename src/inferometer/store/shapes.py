"""What the files of a run must look like to be used: checked once, where a run folder is read.

Only what everything relies on is described: more keys are fine, and every key may be missing, as in runs of older
versions and of other tools. Numbers have bounds far beyond anything that is measured, so that nobody after this has to
think of infinities; text is valid Unicode; nothing is nested without end.
"""

import math
from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from inferometer.errors import StoreError
from inferometer.record.encoding import summary_from, verdict_from
from inferometer.record.run import Kind, State
from inferometer.record.summary import Summary
from inferometer.record.verdict import Verdict

T = TypeVar("T")

DEEPEST = 60  # levels; a summary has 7
SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1  # of SQLite, PostgreSQL and most readers of JSON
LARGEST = 1e18  # of anything measured: seconds, bytes, tokens, per second

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
BOUNDED = (  # parts of a summary whose numbers are compared, drawn and kept in the index
    *("confidence", "measures", "rates", "values", "concurrency", "goodput", "failures", "stalls", "outcomes"),
    *("attainment", "limits", "errors"),
)
Text = str | None


class About(TypedDict, total=False):
    started: str
    state: State
    kind: Kind
    source: Text


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
    "summary": dict[str, Any],  # what is in them `decoded` checks, by their types
    "verdict": dict[str, Any],
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


def decoded_summary(content: Mapping[str, Any], where: object) -> Summary:
    summary = _decoded(summary_from, content, where)
    if large := large_number({name: content.get(name) for name in BOUNDED}):
        raise StoreError(f"{where}: {large} is out of range, numbers go from -1e18 to 1e18")
    return summary


def decoded_verdict(content: Mapping[str, Any], where: object) -> Verdict:
    return _decoded(verdict_from, content, where)


def _decoded(decode: Callable[[Mapping[str, Any]], T], content: Mapping[str, Any], where: object) -> T:
    """What the content says; else a `StoreError` that names the field."""
    try:
        return decode(content)
    except StoreError as error:
        field, _, what = error.message.rpartition("cannot be read: ")[2].replace("`", "").partition(": ")
        raise StoreError(f"{where}: {field}: {what[:1].lower()}{what[1:]}") from None


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
