"""JSON within limits (depth, 64-bit numbers, duplicate keys), with the reason and the place if a document cannot be
read; the caller adds the name of the file."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, SupportsIndex, overload

import msgspec

# -- refused ---------------------------------------------------------------------------------------------------------

MOST_DEPTH = 100  # levels of lists and mappings: real files have up to 20, and later code recurses
LEAST_INT, MOST_INT = -(2**63), 2**63 - 1  # the range of databases, Parquet files and other languages


class RefusedError(ValueError):
    """The text continues after `file:3:7: `; line and column count from 1 and may be unknown."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None, hint: str | None = None) -> None:
        super().__init__(text)
        self.text, self.line, self.column, self.hint = text, line, column, hint

    def at(self, text: str, position: int) -> "RefusedError":
        """Returns itself with the line and column of a position in the text."""
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        return RefusedError(self.text, line, column, self.hint)

    @property
    def position(self) -> str:
        """`:3:7`, as compilers write it; empty if unknown."""
        return "".join(f":{number}" for number in (self.line, self.column) if number is not None)

    @property
    def sentence(self) -> str:
        """`line 3 column 7: what is wrong`."""
        named = (("line", self.line), ("column", self.column))
        place = " ".join(f"{name} {number}" for name, number in named if number is not None)
        return f"{place}: {self.text}" if place else self.text


class NumberError(RefusedError):
    """A number that cannot be stored, with its original text."""

    def __init__(self, text: str, written: str) -> None:
        super().__init__(text)
        self.written = written


def bounded_int(text: str) -> int:
    """An integer within 64 bits; Python itself would accept millions of digits."""
    if len(text) > 20 + text.count("_"):
        digits = text.lstrip("+-").lstrip("0_")
        if len(digits) > 24:
            raise NumberError(f"a number of {len(digits):,} digits is beyond 64 bits", text)
    value = int(text)
    if not LEAST_INT <= value <= MOST_INT:
        raise NumberError(f"{value} is beyond 64 bits", text)
    return value


# -- json text -------------------------------------------------------------------------------------------------------

_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_TURN = {"[": 1, "{": 1, "]": -1, "}": -1}


def json_value(text: str) -> tuple[Any, list[str]]:
    """The parsed value, and duplicate keys, of which the last counts."""
    twice: dict[str, None] = {}

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        whole = dict(pairs)
        if len(whole) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice.update((name, None) for name, count in counts.items() if count > 1)
        return whole

    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=mapping, parse_int=bounded_int), list(twice)
    except NumberError as error:  # the parser does not report the place
        raise error.at(text, text.find(error.written)) from None
    except json.JSONDecodeError as error:
        raise RefusedError(_complaint(error, text), error.lineno, error.colno) from None
    except RecursionError:
        raise RefusedError("is nested too deeply") from None


def _complaint(error: json.JSONDecodeError, text: str) -> str:
    plain = f"{error.msg[0].lower()}{error.msg[1:]}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"{plain}: it ends early, was it copied while it was written?"
    return plain


def _check_depth(text: str) -> None:
    """Checked before parsing: a recursive parser would exceed its own limit first."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    bare = _STRINGS.sub("", text)
    if max(accumulate(_TURN[bracket] for bracket in _BRACKETS.findall(bare)), default=0) > MOST_DEPTH:
        raise RefusedError(f"is nested deeper than {MOST_DEPTH} levels")


LARGE = 16 * 2**20  # bytes from which a document counts as large
PARSED = 2**20  # shorter values are parsed immediately
_NOT_JSON = re.compile(rb"(?<=[\s,:\[])(?:NaN|-?Infinity)(?=[\s,\]}])")  # Python writes them; they are not in JSON
_INSTEAD = {b"NaN": b"null", b"Infinity": b"1e999", b"-Infinity": b"-1e999"}
_MARK = b"\xef\xbb\xbf"
_DEEPEST = 20  # nesting of large values: the file itself, a benchmark, its requests


class Entries(list[Any]):
    """The entries of a long list, each parsed on access and not kept."""

    def __init__(self, kept: Iterable[Any], parse: Callable[[Any], Any]) -> None:
        super().__init__(kept)
        self._parse = parse

    def __iter__(self) -> Iterator[Any]:
        return map(self._parse, super().__iter__())

    @overload
    def __getitem__(self, at: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        entry = super().__getitem__(at)
        return Entries(entry, self._parse) if isinstance(at, slice) else self._parse(entry)

    def as_rows(self, row: Callable[[str, Any], Any]) -> "Entries":
        """The objects among them, each with its name."""
        kept = [(at, raw) for at, raw in enumerate(list.__iter__(self)) if _first(raw) == b"{"]
        return Entries(kept, lambda item: row(f"entry {item[0]}", self._parse(item[1])))


class LargeObject(dict[str, Any]):
    """An object whose long lists are `Entries`, and its text as in the file, except for `NaN`."""

    def __init__(self, members: dict[str, Any], text: memoryview) -> None:
        super().__init__(members)
        self.text = text


def large_value(content: Any) -> Any:
    """The content of a large document. Raises a `RefusedError` with the reason if it is not JSON."""
    view = memoryview(content)
    view = view[len(_MARK) :] if bytes(view[: len(_MARK)]) == _MARK else view
    try:
        return _value(msgspec.Raw(view), 0)
    except msgspec.DecodeError:
        if _NOT_JSON.search(view) is None:
            raise
    return _value(msgspec.Raw(_NOT_JSON.sub(lambda match: _INSTEAD[match[0]], view)), 0)


def large_lines(content: Any, row: Callable[[str, Any], Any]) -> tuple[Entries, list[str]] | None:
    """JSON lines with an object each; and a description of the other lines. None if the first line is no object."""
    view = memoryview(content)
    kept: list[tuple[int, memoryview]] = []
    broken: list[str] = []
    for number, (start, end) in enumerate(_line_spans(content), 1):
        line = view[start:end]
        if not bytes(line[:64]).strip() and not bytes(line).strip():
            continue
        try:
            _check_object(line)
        except RefusedError as error:
            if not kept:
                return None
            broken.append(f"line {number}: {error.text}")
            continue
        kept.append((number, line))
    return Entries(kept, lambda item: row(f"line {item[0]}", large_value(item[1]))), broken


def _check_object(line: memoryview) -> None:
    try:
        _members(msgspec.Raw(line))
    except msgspec.MsgspecError:
        try:
            value = _small(line)  # accepted by Python's parser only, or gives a better error message
        except RefusedError as error:
            raise RefusedError(f"not JSON: {error.text}") from None
        if not isinstance(value, dict):
            raise RefusedError("must be an object") from None


def _line_spans(content: Any) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield start, end
        start = end + 1


def _first(raw: Any) -> bytes:
    return bytes(memoryview(raw)[:64]).lstrip()[:1]


def _value(raw: msgspec.Raw, depth: int) -> Any:
    view = memoryview(raw)
    if len(view) <= PARSED or depth > _DEEPEST:
        return _small(view)
    match _first(raw):
        case b"{":
            return LargeObject({name: _value(part, depth + 1) for name, part in _members(raw).items()}, view)
        case b"[":
            parts = msgspec.json.decode(raw, type=list[msgspec.Raw])
            if parts and _first(parts[0]) in (b"[", b"{", b'"'):
                return Entries(parts, lambda part: _value(part, depth + 1))
    return _small(view)


class _Key(str):
    """A type of its own, so that every key is reported to us, including duplicates."""


def _members(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    names: list[str] = []

    def seen(_kind: type, name: str) -> _Key:
        names.append(name)
        return _Key(name)

    members = msgspec.json.decode(raw, type=dict[_Key, msgspec.Raw], dec_hook=seen)
    if len(members) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise RefusedError(f"{twice} is given twice")
    return {str(name): part for name, part in members.items()}


def _small(view: memoryview) -> Any:
    """Parsed completely; lists of numbers, which have no keys, by the faster parser."""
    content = bytes(view)
    if content.lstrip()[:1] == b"[" and b"{" not in content:
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            pass  # with a better message below
    try:
        value, twice = json_value(content.decode())
    except UnicodeDecodeError:
        raise RefusedError("is not text in UTF-8") from None
    if twice:
        raise RefusedError(f"{twice[0]} is given twice")
    return value
