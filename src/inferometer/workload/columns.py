"""Named columns of a file as numbers, read once, row by row: what is wrong with a row is kept, with the row."""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from inferometer.errors import DataError
from inferometer.workload.rows import RowError, Rows

Ints = NDArray[np.int64]
Read = Callable[[Any], int]  # a value as a number; ValueError with what it must be

UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
MISSING = -1  # of a column that a file need not have
_MOST = 2**62
_ZONE = re.compile(r"[0-9]\s*(Z|[+-][0-9]{2}:?[0-9]{2})$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file: what it is for, its name there, and how its values are read."""

    use: str
    name: str
    read: Read
    needed: bool = True


@dataclass(slots=True)
class LeftOut:
    """Rows that are not used: how many for each reason, and the first of them."""

    reasons: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, where: str, reason: str) -> None:
        kind = reason.partition(", got")[0]
        count, first = self.reasons.get(kind, (0, f"{where} {reason}"))
        self.reasons[kind] = (count + 1, first)

    def __len__(self) -> int:
        return sum(count for count, _ in self.reasons.values())

    def lines(self, name: str, rows: int) -> Iterator[str]:
        """A line for people, for each reason."""
        for count, first in self.reasons.values():
            like = "" if count == 1 else f" and {count - 1:,} like it"
            yield f"{name}: {count:,} of {rows:,} rows are skipped: {first.removeprefix(f'{name}: ')}{like}"


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by their use, a number for each row that could be read; `rows` has its row in the file."""

    rows: Ints
    values: dict[str, Ints]


def read_columns(rows: Rows, wanted: Iterable[Column], left_out: LeftOut) -> Columns:
    """Rows that cannot be read are left out and counted; where none can be, that is an error."""
    columns = list(wanted)
    arrays = [array("q") for _ in columns]
    kept = array("q")
    for number in range(len(rows)):
        try:
            row = rows[number]
            values = [_value(row, column) for column in columns]
        except RowError as error:
            left_out.add(rows.where(number), str(error))
            continue
        kept.append(number)
        for place, value in zip(arrays, values, strict=True):
            place.append(value)
    if not kept:
        raise _nothing(rows, columns, left_out)
    return Columns(_ints(kept), {column.use: _ints(place) for column, place in zip(columns, arrays, strict=True)})


def _ints(values: "array[int]") -> Ints:
    return np.frombuffer(values, np.int64) if values else np.empty(0, np.int64)


def _value(row: Any, column: Column) -> int:
    if not isinstance(row, Mapping):
        raise RowError(f"must be a row with names, got {str(row)[:40]}")
    value = row.get(column.name)
    if value is None or value == "":
        if column.needed:
            raise RowError(f"has no {column.name}")
        return MISSING
    try:
        return column.read(value)
    except (ValueError, OverflowError) as error:
        raise RowError(f"{column.name} {error}, got {str(value)[:40]}") from None


def _nothing(rows: Rows, columns: list[Column], left_out: LeftOut) -> DataError:
    if not len(rows):
        return DataError(f"{rows.name}: has no rows", "is the file complete?")
    names = _names(rows)
    missing = [column.name for column in columns if column.needed and column.name not in names]
    if names and missing:
        text = f"{rows.name}: has no column {', '.join(missing)}, it has {', '.join(names)}"
        return DataError(text, "is workload.type right? A file of another kind: type: trace, with workload.columns")
    first = next(iter(left_out.reasons.values()))[1]
    return DataError(f"{first}; no usable row", "is workload.type right, and the file complete?")


def _names(rows: Rows) -> list[str]:
    try:
        row = rows[0]
    except RowError:
        return []
    return list(row) if isinstance(row, Mapping) else []


def tokens(value: Any) -> int:
    """A number of tokens, as a number or as text."""
    number = _number(value)
    if number is None or number != int(number) or not 0 <= number < _MOST:
        raise ValueError("must be a whole number of tokens")
    return int(number)


def seconds(value: Any) -> int:
    """A span in seconds, as nanoseconds."""
    number = _number(value)
    if number is None or not 0 <= number < _MOST / 10**9:
        raise ValueError("must be a number of seconds")
    return round(number * 10**9)


def instant(unit: str | None) -> Read:
    """Reads a time as nanoseconds: a number in this unit or, without one, a date."""
    if unit is None:
        return _date
    scale = UNITS_NS[unit]

    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value * scale
        number = _number(value)
        if number is None or not abs(number) < _MOST / scale:
            raise ValueError(f"must be a number of {unit}")
        return round(number * scale)

    return read


def _date(value: Any) -> int:
    """`2023-11-16 18:17:03.9799600`, with or without a zone; without one all rows are in the same."""
    if not isinstance(value, str):
        raise ValueError("must be a date (a number needs workload.unit: s, ms, us or ns)")
    text = value.strip()
    try:
        if _ZONE.search(text):
            return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
        return int(np.datetime64(text, "ns").astype(np.int64))
    except ValueError:
        raise ValueError("must be a date such as 2023-11-16 18:17:03.97 (a number needs workload.unit)") from None


def _number(value: Any) -> float | int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if value == value and abs(value) != float("inf") else None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number and abs(number) != float("inf") else None


def names_as_numbers() -> Read:
    """Reads any value as the number of its first occurrence: equal values, equal numbers."""
    known: dict[str, int] = {}

    def read(value: Any) -> int:
        return known.setdefault(str(value), len(known))

    return read


@dataclass(slots=True)
class Lists:
    """Lists of whole numbers, one behind the other; a row's value is the number of its list."""

    flat: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q", [0]))

    def read(self, value: Any) -> int:
        numbers = _parsed(value) if isinstance(value, str) else value
        if not isinstance(numbers, list) or not all(type(number) is int and abs(number) < _MOST for number in numbers):
            raise ValueError("must be a list of whole numbers")
        self.flat.extend(numbers)
        self.ends.append(len(self.flat))
        return len(self.ends) - 2


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
