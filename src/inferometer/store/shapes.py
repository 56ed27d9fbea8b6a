"""The form that the files of a run must have: checked once, when a run folder is read.

Only what all other code relies on is described: additional keys are allowed, and every key may be missing, as in runs
of older versions and of other tools. Numbers have bounds far beyond any measurement, so that later code need not handle
infinities; text is valid Unicode; nesting is limited.
"""

import errno
import math
import os
import shlex
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from inferometer.documents.document import JsonObject, JsonValue, is_unicode
from inferometer.errors import StoreError
from inferometer.record.encoding import converted, environment_from, summary_from, verdict_from
from inferometer.record.environment import Environment
from inferometer.record.files import translated_errors
from inferometer.record.log import Note
from inferometer.record.run import RunKind, State
from inferometer.record.summary import Clocks, Summary
from inferometer.record.verdict import Verdict
from inferometer.vocabulary import size_text

T = TypeVar("T")

DEEPEST = 60  # levels; a summary has 7
SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1  # of SQLite, PostgreSQL and most readers of JSON
LARGEST = 1e18  # of anything measured: seconds, bytes, tokens, per second

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
BOUNDED = (  # parts of a summary whose numbers are compared, drawn and indexed
    *("confidence", "measures", "rates", "values", "concurrency", "goodput", "failures", "stalls", "outcomes"),
    *("structure", "attainment", "limits", "errors"),
)
Text = str | None
Settings = dict[str, JsonValue]  # of a plan or experiment as the user wrote it; documents before they are decoded


class RunFile(msgspec.Struct, frozen=True):
    """`run.json`."""

    started: str = ""
    state: State = "partial"
    kind: RunKind = "serving"
    source: Text = None


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a finished run, as listed in the manifest."""

    bytes: Annotated[int, Meta(ge=0)]
    sha256: str
    left_out: bool = False  # deleted on purpose since


class ManifestFile(msgspec.Struct, frozen=True):
    """`manifest.json`."""

    files: dict[str, FileFacts]


class MarksFile(msgspec.Struct, frozen=True):
    """`marks.json`."""

    tags: list[str] | None = None
    baselines: dict[str, str] | None = None
    experiment: Text = None
    case: Text = None


class ExperimentFile(msgspec.Struct, frozen=True):
    """`experiment.json`. The definition is an experiment's file as the user wrote it."""

    kind: Literal["sweep", "search", "ab"] = "sweep"
    name: Text = None
    started: str = ""
    definition: JsonObject = {}


class ExperimentCase(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `cases.jsonl`: a finished case, with its run if there is one."""

    name: str
    label: Text = None
    repeat: int = 1
    parameters: JsonObject | None = None
    key: Text = None
    run: Text = None
    state: Text = None
    error: Text = None
    wall_s: Number | None = None


class ShardsFile(msgspec.Struct, frozen=True):
    """The parts of `shards.json` that are read again."""

    notes: list[Note] = []
    clocks: Clocks | None = None


def checked(content: Any, where: object) -> Settings:
    """The content unchanged, if files, index and pages can store it; else a `StoreError` that names the field."""
    if not _is_plain(content) and (wrong := unusable(content)):
        raise StoreError(f"{where}: {wrong}")
    if not isinstance(content, dict):
        raise StoreError(f"{where}: expected a JSON object, got {type(content).__name__}")
    return content


def decoded(content: Any, kind: type[T], where: object) -> T:
    """A file of ours decoded as its type; else a `StoreError` that names the field."""
    try:
        return converted(checked(content, where), kind)
    except msgspec.ValidationError as error:
        raise StoreError(f"{where}: {_sentence(error)}") from None


def decoded_summary(content: Settings, where: object) -> Summary:
    summary = _decoded(summary_from, content, where)
    if not _is_plain(content, LARGEST) and (large := large_number({name: content.get(name) for name in BOUNDED})):
        raise StoreError(f"{where}: {large} is out of range, numbers go from -1e18 to 1e18")
    return summary


def decoded_verdict(content: Settings, where: object) -> Verdict:
    return _decoded(verdict_from, content, where)


def decoded_environment(content: Settings, where: object) -> Environment:
    return _decoded(environment_from, content, where)


def _decoded(decode: Callable[[Settings], T], content: Settings, where: object) -> T:
    """The content decoded as this type; else a `StoreError` that names the field."""
    try:
        return decode(content)
    except StoreError as error:
        field, _, what = error.message.rpartition("cannot be read: ")[2].replace("`", "").partition(": ")
        raise StoreError(f"{where}: {field}: {what[:1].lower()}{what[1:]}") from None


def _is_plain(content: Any, most: float = math.inf) -> bool:
    """Whether all of it is valid JSON data with ASCII text and small numbers, as in nearly every file: a quick test,
    because most of the time of reading a run would otherwise be spent on the names of places without errors. No number
    is larger than `most`."""
    smallest, largest = max(SMALLEST_INT, -most), min(LARGEST_INT, most)
    parts: list[Any] = [content]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for part in parts:
            kind = type(part)
            if kind is dict:
                inner += part.keys()
                inner += part.values()
            elif kind is list:
                inner += part
            elif kind is str:
                if not part.isascii():
                    return False
            elif kind is int:
                if not smallest <= part <= largest:
                    return False
            elif kind is float:
                if abs(part) > most:
                    return False
            elif part is not None and kind is not bool:
                return False
        if not inner:
            return True
        parts = inner
    return False


def unusable(value: Any, path: str = "", depth: int = 0) -> str | None:
    """The first value that no file, index or page of ours can store, with its place; None if there is none."""
    if depth > DEEPEST:
        return f"{path.split('.')[0]}: nested more than {DEEPEST} levels deep"
    if isinstance(value, Mapping):
        parts = ((unusable(name, path, depth + 1), name, part) for name, part in value.items())
        problems = (
            wrong or unusable(part, f"{path}.{name}" if path else str(name), depth + 1) for wrong, name, part in parts
        )
        return next(filter(None, problems), None)
    if isinstance(value, list | tuple):
        problems = (unusable(part, f"{path}[{at}]", depth + 1) for at, part in enumerate(value))
        return next(filter(None, problems), None)
    wrong = _wrong_scalar(value)
    return f"{path}: {wrong}" if wrong and path else wrong


def _wrong_scalar(value: Any) -> str | None:
    if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
        return f"{_number_text(value)} is out of range, whole numbers go from -2^63 to 2^63-1"
    if isinstance(value, str):
        return None if is_unicode(value) else "text that is not valid Unicode"
    known = value is None or isinstance(value, bool | int | float | date | np.generic | np.ndarray)
    return None if known else f"a {type(value).__name__} where text, a number, a list or a mapping is expected"


def large_number(value: Any, path: str = "", depth: int = 0) -> str | None:
    """The first number that is too large to be stored, with its place."""
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


LARGEST_FILE = 512 * 2**20  # bytes of one JSON or YAML file: larger ones are not ours


@dataclass(frozen=True)
class Damaged:
    """Returned in place of a run or experiment that cannot be read."""

    id: str
    folder: Path
    cause: str  # "summary.json: not JSON: unexpected end of data at line 1 column 120"
    remedy: str  # a command to type

    @property
    def error(self) -> "DamagedError":
        return DamagedError(self)


class DamagedError(StoreError):
    """Raised if a single run or experiment is requested and cannot be read."""

    def __init__(self, damaged: Damaged) -> None:
        super().__init__(f"{damaged.folder}: damaged: {damaged.cause}", damaged.remedy)
        self.damaged = damaged


def damaged_by(error: BaseException, folder: Path) -> Damaged:
    """Describes the damage of a folder after an error while reading it."""
    message = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
    cause = message.removeprefix(f"{folder}/").removeprefix(f"{folder}: ")
    hint = error.hint if isinstance(error, StoreError) else None
    denied = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EACCES, errno.EPERM)
    if denied:
        hint = f"no permission to read it: chmod -R u+rX {shlex.quote(str(folder))}"
    away = f"move it out of the store: mv {shlex.quote(str(folder))} /tmp/"
    return Damaged(folder.name, folder, " ".join(cause.split())[:400], hint or f"restore it from a copy, or {away}")


def file_bytes(file: Path) -> bytes:
    """Content of a regular file; reading a pipe in its place would block for ever."""
    with translated_errors(file):
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        try:
            about = os.fstat(opened)
            if not stat.S_ISREG(about.st_mode):
                raise StoreError(f"{file}: not a plain file")
            if about.st_size > LARGEST_FILE:
                raise StoreError(f"{file}: {size_text(about.st_size)} is too large for it")
            with os.fdopen(opened, "rb", closefd=False) as content:
                return content.read()
        finally:
            os.close(opened)


def is_there(file: Path) -> bool:
    """Whether anything has that name: a broken link is not the same as nothing."""
    with translated_errors(file):
        try:
            file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
