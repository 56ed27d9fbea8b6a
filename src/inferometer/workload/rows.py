"""The rows of a file, read one by one through an index of their offsets: the file itself is never held."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import orjson

from inferometer.errors import DataError
from inferometer.workload.cache import cached_path, fingerprint, kept_arrays, replacing
from inferometer.workload.scan import Ints, NotAnArrayError, Scan, array_elements, csv_rows, lines

_SCANS: dict[str, Scan] = {"lines": lines, "csv": csv_rows, "array": array_elements}
_BOM = b"\xef\xbb\xbf"


class RowError(ValueError):
    """What is wrong with one row: it goes on where `file: row 17` stopped."""


class Rows(Protocol):
    """Rows by their number, from 0. `facts` change when the rows do; `name` is what people call the file."""

    name: str
    facts: tuple[Any, ...]

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Any:
        """The row, decoded; `RowError` where that is not possible."""

    def where(self, number: int) -> str:
        """`file: row 17`, counted as people count."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the rows of a file begin and end: 16 bytes for each."""

    starts: Ints
    ends: Ints


class FileRows:
    """The rows of a file, each decoded by `decode` when it is asked for."""

    def __init__(self, path: Path, kind: str, decode: Callable[[bytes], Any], name: str, first: int = 0) -> None:
        self.name = name
        self.facts = (*fingerprint(path), kind)
        self._word = "line" if kind == "lines" else "row"
        self._offsets = offsets_of(path, kind)
        self._decode = decode
        self._first = first  # rows that are a heading
        self._file = path.open("rb")

    def __len__(self) -> int:
        return max(len(self._offsets.starts) - self._first, 0)

    def __getitem__(self, number: int) -> Any:
        return self._decode(self.raw(number + self._first))

    def raw(self, number: int) -> bytes:
        """The bytes of a row of the file, headings counted."""
        start, end = int(self._offsets.starts[number]), int(self._offsets.ends[number])
        data = os.pread(self._file.fileno(), end - start, start)
        return data.removeprefix(_BOM) if start == 0 else data

    def where(self, number: int) -> str:
        return f"{self.name}: {self._word} {number + self._first + 1}"


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


def each(rows: Rows, numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
    """Rows with their numbers; a bad one comes as its `RowError`."""
    for number in numbers:
        try:
            yield number, rows[number]
        except RowError as error:
            yield number, error
