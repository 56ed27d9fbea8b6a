"""`Document`: a JSON or YAML object from outside, read field by field with the expected type. A field that is missing
or has another type is `None`, or empty: never an error of ours, never a guess.

`JsonValue` is plain data of unknown form: settings as the user wrote them, documents that are only passed on. A type
checker requires testing it before use.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from inferometer.errors import DataError

if TYPE_CHECKING:
    JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
else:
    JsonValue = Any  # pydantic and msgspec need not inspect it
JsonObject: TypeAlias = Mapping[str, JsonValue]


def settings_of(mapping: Mapping[str, object]) -> JsonObject:
    """Settings given in Python, such as those of a plan; anything that is not plain data is reported by the code that
    reads it."""
    return cast(JsonObject, mapping)


MOST_NUMBER = 1e30  # nanoseconds since 1970 are 2e18, 64-bit seeds 2e19; squares of larger numbers overflow
MOST_COUNT = 2**53  # of requests and tokens: exact in every JSON reader and database
MOST_LETTERS = 400  # of a number written as text


def is_unicode(text: str) -> bool:
    """JSON can contain halves of characters, and file names and variables can be any bytes: neither is text that can be
    stored or sent."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Document(Mapping[str, JsonValue]):
    """A mapping over the parsed one, without a copy: its long lists may be read on demand."""

    __slots__ = ("_fields",)

    def __init__(self, fields: JsonObject) -> None:
        self._fields = fields

    @classmethod
    def of(cls, value: JsonValue) -> "Document":
        """From a value that may be something other than an object; then it is empty."""
        return value if isinstance(value, Document) else cls(value if isinstance(value, Mapping) else {})

    def __getitem__(self, name: str) -> JsonValue:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Document({self._fields!r})"

    def text(self, name: str) -> str | None:
        """A text; numbers and booleans as they are written."""
        return text_of(self._fields.get(name))

    def number(self, name: str) -> float | None:
        return number_of(self._fields.get(name))

    def count(self, name: str) -> int | None:
        return count_of(self._fields.get(name))

    def flag(self, name: str) -> bool | None:
        value = self._fields.get(name)
        return value if isinstance(value, bool) else None

    def section(self, *names: str) -> "Document":
        """The object at this path of names; empty if there is none."""
        part = self
        for name in names:
            part = Document.of(part._fields.get(name))
        return part

    def sections(self, name: str) -> "list[Document]":
        """The objects of a list."""
        return [Document.of(entry) for entry in self.values_of(name) if isinstance(entry, Mapping)]

    def has_list(self, name: str) -> bool:
        return is_list(self._fields.get(name))

    def values_of(self, name: str) -> Sequence[JsonValue]:
        """The entries of a list."""
        value = self._fields.get(name)
        return value if is_list(value) else ()

    def texts(self, name: str) -> list[str]:
        """The texts of a list, or a single one."""
        value = self._fields.get(name)
        entries = [value] if isinstance(value, str) else self.values_of(name)
        return [text for entry in entries if (text := text_of(entry)) is not None]

    def numbers(self, name: str) -> list[float]:
        """The numbers of a list; other values are left out."""
        return [number for entry in self.values_of(name) if (number := number_of(entry)) is not None]


def is_list(value: JsonValue) -> TypeGuard[Sequence[JsonValue]]:
    return isinstance(value, list | tuple)


def text_of(value: JsonValue) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def number_of(value: JsonValue) -> float | None:
    """A finite number, also if it is written as text; anything else counts as missing."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(amount):
        return None
    if abs(amount) > MOST_NUMBER:
        raise DataError(f"{amount:g} is too large for a time, a rate or a count", "is the file damaged?")
    return amount


def count_of(value: JsonValue) -> int | None:
    """A count; a fraction is no count."""
    amount = number_of(value)
    if amount is None or amount != int(amount):
        return None
    if abs(amount) > MOST_COUNT:
        raise DataError(f"{amount:g} is too large for a count", "is the file damaged?")
    return int(amount)
