"""A large JSON document or JSON lines: long lists stay text, and an entry is parsed each time it is looked at, so that
a file of 200 MB does not become a gigabyte of Python objects."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, overload

import msgspec

from inferometer.documents.json_text import RefusedError, json_value

LARGE = 16 * 2**20  # from here on
PARSED = 2**20  # what is shorter than this is parsed at once
_NOT_JSON = re.compile(rb"(?<=[\s,:\[])(?:NaN|-?Infinity)(?=[\s,\]}])")  # Python writes them; they are not in JSON
_INSTEAD = {b"NaN": b"null", b"Infinity": b"1e999", b"-Infinity": b"-1e999"}
_MARK = b"\xef\xbb\xbf"
_DEEPEST = 20  # large values within large values: the file itself, a benchmark, its requests


class Entries(list[Any]):
    """The entries of a long list, each parsed when it is looked at and forgotten after that."""

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
    """An object whose long lists are `Entries`, and its text as it is in the file, but for a `NaN`."""

    def __init__(self, members: dict[str, Any], text: memoryview) -> None:
        super().__init__(members)
        self.text = text


def large_value(content: Any) -> Any:
    """What a large document says. `RefusedError` where it is not JSON, with what is wrong."""
    view = memoryview(content)
    view = view[len(_MARK) :] if bytes(view[: len(_MARK)]) == _MARK else view
    try:
        return _value(msgspec.Raw(view), 0)
    except msgspec.DecodeError:
        if _NOT_JSON.search(view) is None:
            raise
    return _value(msgspec.Raw(_NOT_JSON.sub(lambda match: _INSTEAD[match[0]], view)), 0)


def large_lines(content: Any, row: Callable[[str, Any], Any]) -> tuple[Entries, list[str]] | None:
    """JSON lines, each an object; and the lines that are none, named. None where the first line is no object."""
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
            value = _small(line)  # what is not in JSON but in Python's, or a better word for what is wrong
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
    """Its own type, so that every key is shown to us, also one that is given twice."""


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
    """Parsed whole; lists of numbers, which have no keys, by the faster parser."""
    content = bytes(view)
    if content.lstrip()[:1] == b"[" and b"{" not in content:
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            pass  # said better below
    try:
        value, twice = json_value(content.decode())
    except UnicodeDecodeError:
        raise RefusedError("is not text in UTF-8") from None
    if twice:
        raise RefusedError(f"{twice[0]} is given twice")
    return value
