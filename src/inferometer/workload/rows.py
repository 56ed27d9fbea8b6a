"""The rows of a file. One pass over its bytes finds their offsets, and rows are read one by one through this index: the
file is never in memory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from inferometer.errors import DataError
from inferometer.workload.cache import cached_path, fingerprint, kept_arrays, replacing

# -- scan ------------------------------------------------------------------------------------------------------------

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Scan = Callable[[IO[bytes]], tuple[Ints, Ints]]  # start and end offset of each row

PIECE = 4 << 20
_NEWLINE, _QUOTE, _BACKSLASH, _COMMA = (ord(character) for character in '\n"\\,')
_TURNS = np.zeros(256, np.int8)  # the change of JSON depth by a byte, outside of strings
_TURNS[[ord("["), ord("{")]] = 1
_TURNS[[ord("]"), ord("}")]] = -1
_STRUCTURAL = (_TURNS != 0) | np.isin(np.arange(256), [_QUOTE, _BACKSLASH, _COMMA])


class NotAnArrayError(ValueError):
    """The file is not a JSON array, or it is truncated; the message has the reason and the offset."""


def lines(file: IO[bytes]) -> tuple[Ints, Ints]:
    """Every line including empty ones, so that line numbers are those of an editor."""
    return _spans(file, lambda piece: np.flatnonzero(piece == _NEWLINE))


def csv_rows(file: IO[bytes]) -> tuple[Ints, Ints]:
    """Rows of CSV: lines, but a line end between quotes belongs to the row."""
    open_quotes = 0

    def ends(piece: Bytes) -> Ints:
        nonlocal open_quotes
        marks = np.flatnonzero((piece == _NEWLINE) | (piece == _QUOTE))
        quotes = piece[marks] == _QUOTE
        before = np.cumsum(quotes) + open_quotes
        open_quotes = (open_quotes + int(quotes.sum())) % 2
        return np.asarray(marks[~quotes & (before % 2 == 0)])

    return _spans(file, ends)


def _spans(file: IO[bytes], ends_in: Callable[[Bytes], Ints]) -> tuple[Ints, Ints]:
    parts, at = [], 0
    while piece := file.read(PIECE):
        parts.append(ends_in(np.frombuffer(piece, np.uint8)) + at)
        at += len(piece)
    ends = np.concatenate([*parts, np.zeros(0, np.int64)])
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    ends = np.append(ends, at)
    return (starts, ends) if starts[-1] < at else (starts[:-1], ends[:-1])


def array_elements(file: IO[bytes]) -> tuple[Ints, Ints]:
    """The elements of the JSON array in a file, found by their commas without parsing them."""
    depth, inside, at = 0, False, 0
    starts: list[Ints] = []
    ends: list[Ints] = []
    for piece in _whole_escapes(file):
        marks, is_text = _outside_text(piece, inside)
        turns = _TURNS[piece[marks]].astype(np.int64)
        after = np.cumsum(turns) + depth
        begins = (turns == 1) & (after == 1)
        commas = (turns == 0) & (after == 1)
        closes = (turns == -1) & (after == 0)
        starts.append(marks[begins | commas] + at + 1)
        ends.append(marks[commas | closes] + at)
        depth = int(after[-1]) if len(after) else depth
        inside, at = is_text, at + len(piece)
    return _checked(file, np.concatenate([*starts, [0]])[:-1], np.concatenate([*ends, [0]])[:-1], depth or inside)


def _whole_escapes(file: IO[bytes]) -> Iterator[Bytes]:
    """Chunks of a file; an escaped character is in the same chunk as its backslash."""
    while piece := file.read(PIECE):
        while piece.endswith(b"\\") and (more := file.read(1)):
            piece += more
        yield np.frombuffer(piece, np.uint8)


def _outside_text(piece: Bytes, inside: bool) -> tuple[Ints, bool]:
    """Positions of brackets and commas outside of strings, and whether the chunk ends inside a string."""
    marks = np.flatnonzero(_STRUCTURAL[piece])
    kinds = piece[marks]
    quotes = kinds == _QUOTE
    quotes[quotes] = ~np.isin(marks[quotes], _escaped(marks[kinds == _BACKSLASH]))
    within = (np.cumsum(quotes) + inside) % 2 == 1
    plain = (kinds != _QUOTE) & (kinds != _BACKSLASH) & ~within
    return marks[plain], bool(within[-1]) if len(within) else inside


def _escaped(backslashes: Ints) -> Ints:
    """The positions after an odd number of consecutive backslashes."""
    first = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(np.append(first, len(backslashes)))
    odd = lengths % 2 == 1
    return np.asarray(backslashes[first[odd]] + lengths[odd])


def _checked(file: IO[bytes], starts: Ints, ends: Ints, unfinished: int | bool) -> tuple[Ints, Ints]:
    if unfinished or len(starts) != len(ends):
        text = f"the array is not closed: after row {len(ends):,} it breaks off, or a quote or bracket is missing"
        raise NotAnArrayError(text)
    if len(starts) == 1:
        file.seek(int(starts[0]))
        if not file.read(int(ends[0] - starts[0])).strip():
            return starts[:0], ends[:0]
    return starts, ends


# -- rows ------------------------------------------------------------------------------------------------------------

_SCANS: dict[str, Scan] = {"lines": lines, "csv": csv_rows, "array": array_elements}
_BOM = b"\xef\xbb\xbf"


class RowError(ValueError):
    """An error in one row; its text continues `file: row 17`."""


MISSING = object()


def reached(row: dict[str, Any], name: str) -> Any:
    """The value of a column; `a|b` is the first existing one, `a.0.b` a nested value."""
    for option in name.split("|"):
        value: Any = row.get(option, MISSING)
        if value is MISSING and "." in option:
            value = _inside(row, option.split("."))
        if value is not MISSING and not (value is None and "|" in name):
            return value
    return MISSING


def _inside(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


class Rows(Protocol):
    """Rows by number, from 0. `facts` change when the rows change; `name` is the displayed file name."""

    name: str
    facts: tuple[Any, ...]

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Any:
        """The decoded row; `RowError` if it cannot be decoded."""

    def where(self, number: int) -> str:
        """`file: row 17`, counted from 1."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Start and end offsets of the rows of a file: 16 bytes per row."""

    starts: Ints
    ends: Ints


class FileRows:
    """The rows of a file, each decoded by `decode` when it is requested."""

    def __init__(self, path: Path, kind: str, decode: Callable[[bytes], Any], name: str, first: int = 0) -> None:
        self.name = name
        self.facts = (*fingerprint(path), kind)
        self._unit = "line" if kind == "lines" else "row"
        self._offsets = offsets_of(path, kind)
        self._decode = decode
        self._first = first  # number of header rows
        self._file = path.open("rb")

    def __len__(self) -> int:
        return max(len(self._offsets.starts) - self._first, 0)

    def __getitem__(self, number: int) -> Any:
        return self._decode(self.raw(number + self._first))

    def raw(self, number: int) -> bytes:
        """The bytes of a row of the file, counting header rows."""
        start, end = int(self._offsets.starts[number]), int(self._offsets.ends[number])
        data = os.pread(self._file.fileno(), end - start, start)
        return data.removeprefix(_BOM) if start == 0 else data

    def where(self, number: int) -> str:
        return f"{self.name}: {self._unit} {number + self._first + 1}"


def offsets_of(path: Path, kind: str) -> Offsets:
    """The index of a file: made once, kept in the cache, and made again when the file changes."""
    place = cached_path("index", f"{path.name}.npz", kind, *fingerprint(path))
    if (kept := kept_arrays(place)) is not None:
        return Offsets(kept["starts"], kept["ends"])
    with path.open("rb") as file:
        starts, ends = _scanned(file, kind, path)
    with replacing(place) as kept_file:
        np.savez(kept_file, starts=starts, ends=ends)
    return Offsets(starts, ends)


def _scanned(file: IO[bytes], kind: str, path: Path) -> tuple[Ints, Ints]:
    try:
        return _SCANS[kind](file)
    except NotAnArrayError as error:
        raise DataError(
            f"{path}: {error}", "is the file complete? `python -m json.tool FILE` names the place"
        ) from None


def json_row(data: bytes) -> Any:
    """A row of JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RowError("is empty" if not data.strip() else f"is not JSON: {error}") from None


def text_row(data: bytes) -> str:
    """A line of text without its end."""
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise RowError(f"is not text in UTF-8 (byte {error.start + 1})") from None


def numbered_rows(rows: Rows, numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
    """Rows with their numbers; bad rows are returned as `RowError`."""
    for number in numbers:
        try:
            yield number, rows[number]
        except RowError as error:
            yield number, error
