"""YAML as people write it, within bounds, without YAML 1.1's surprises.

Only `true` and `false` are booleans (`model: no` is a name), `1e3` is a number, `010` is ten, `1:30` and dates are
text, as in YAML 1.2. Values are built from the parser's events and not by PyYAML's loader, which limits neither
recursion nor nested aliases.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from inferometer.documents.json_text import MOST_DEPTH, RefusedError, bounded_int

MOST_VALUES = 4_000_000  # with every alias expanded: ten lines of nested aliases make a billion
INT = re.compile(r"[-+]?(?:[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)")
FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)"
)
_NUMERIC_START = frozenset("-+.0123456789")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_TAG = "tag:yaml.org,2002:"
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C: ten times as fast


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been reached."""

    event: Any
    is_mapping: bool
    items: list[tuple[Any, int]] = field(default_factory=list)  # values (for a mapping keys and values) with lines
    size: int = 1  # number of values in it, with aliases expanded
    height: int = 1  # levels in it, including itself
    merges: set[int] = field(default_factory=set)  # which of the items are the key `<<`


def yaml_value(text: str) -> tuple[Any, list[str]]:
    """The parsed value, `None` for an empty text, and a sentence for each duplicate key."""
    if (wrong := _UNREADABLE.search(text)) is not None:
        refused = RefusedError(f"holds a character that YAML does not allow, U+{ord(wrong[0]):04X}")
        raise refused.at(text, wrong.start())
    try:
        return _Document().read(yaml.parse(text, Loader=_Parser))
    except yaml.MarkedYAMLError as error:
        raise RefusedError(_complaint(error, text), *_position(error, text), "see https://yaml.org for YAML") from None
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        raise RefusedError(f"is not YAML: {' '.join(str(error).split())}") from None


class _Document:
    """One document, built from events; every value has its size, so that aliases can be counted."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # value, size, height
        self._unfinished: set[str] = set()
        self._twice: list[str] = []
        self._size = 0
        self._root: list[Any] = []

    def read(self, events: Iterator[Any]) -> tuple[Any, list[str]]:
        for event in events:
            match event:
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end()
                case yaml.AliasEvent():
                    self._alias(event)
                case yaml.DocumentStartEvent() if self._root:
                    raise _refused(event, "expected a single document in the stream, but there is another one")
        return (self._root[0] if self._root else None), self._twice

    def _scalar(self, event: Any) -> None:
        is_merge = event.value == "<<" and event.implicit[0] and not event.style
        value = _scalar(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1, 0)
        self._add(value, 1, 0, event, is_merge)

    def _begin(self, event: Any) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        kind = "map" if is_mapping else "seq"
        if event.tag not in (None, "!", f"{_TAG}{kind}"):
            raise _unknown_tag(event)
        self._check_depth(1, event)
        if self._open and self._open[-1].is_mapping and len(self._open[-1].items) % 2 == 0:
            raise _refused(event, "a key must be a single value, not a list or a mapping")
        if event.anchor:
            self._unfinished.add(event.anchor)
        self._open.append(_Open(event, is_mapping))

    def _end(self) -> None:
        done = self._open.pop()
        value = self._mapping(done) if done.is_mapping else [item for item, _ in done.items]
        if done.event.anchor:
            self._unfinished.discard(done.event.anchor)
            self._anchors[done.event.anchor] = (value, done.size, done.height)
        self._add(value, done.size, done.height, done.event)

    def _alias(self, event: Any) -> None:
        if event.anchor in self._unfinished:
            raise _refused(event, f"*{event.anchor} is part of itself: an anchor must not contain its own alias")
        if event.anchor not in self._anchors:
            raise _refused(event, f"*{event.anchor} has no anchor &{event.anchor} before it")
        value, size, height = self._anchors[event.anchor]
        self._check_depth(height, event)
        self._size += size
        self._add(value, size, height, event)

    def _check_depth(self, height: int, event: Any) -> None:
        if len(self._open) + height > MOST_DEPTH:
            raise _refused(event, f"is nested deeper than {MOST_DEPTH} levels")

    def _add(self, value: Any, size: int, height: int, event: Any, is_merge: bool = False) -> None:
        self._size += 1
        if self._size > MOST_VALUES:
            raise _refused(event, f"has more than {MOST_VALUES:,} values, aliases written out")
        if not self._open:
            self._root.append(value)
            return
        parent = self._open[-1]
        is_key = parent.is_mapping and len(parent.items) % 2 == 0
        if is_key and isinstance(value, list | dict):
            raise _refused(event, "a key must be a single value, not a list or a mapping")
        if is_key and is_merge:
            parent.merges.add(len(parent.items))
        parent.items.append((value, event.start_mark.line + 1))
        parent.size += size
        parent.height = max(parent.height, height + 1)

    def _mapping(self, done: _Open) -> dict[Any, Any]:
        whole: dict[Any, Any] = {}
        lines: dict[tuple[type, Any], int] = {}  # `1` and `true` are different keys in YAML, but equal in a dict
        merged: dict[Any, Any] = {}
        for at in range(0, len(done.items), 2):
            (key, line), (value, _) = done.items[at], done.items[at + 1]
            if at in done.merges:
                merged = {**self._merged(value, done.event, line), **merged}
                continue
            name = (type(key), key)
            if name in lines:
                self._twice.append(f"{key} is given twice, on lines {lines[name]} and {line}")
            lines.setdefault(name, line)
            whole[key] = value
        return {**merged, **whole} if merged else whole

    def _merged(self, value: Any, event: Any, line: int) -> dict[Any, Any]:
        """The content of `<<`: a mapping, or several of which the first takes precedence."""
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise RefusedError("<< must be followed by a mapping or a list of mappings", line)
        whole: dict[Any, Any] = {}
        for part in parts:
            whole = {**part, **whole}
            self._size += len(part)
        if self._size > MOST_VALUES:
            raise _refused(event, f"has more than {MOST_VALUES:,} values, aliases written out")
        return whole


def _scalar(event: Any) -> Any:
    tag, text = event.tag, event.value
    try:
        if tag is None:
            return plain(text) if event.implicit[0] else text
        if tag in _TAGGED:
            return _TAGGED[tag](text)
    except RefusedError as error:
        raise _refused(event, error.text) from None
    except (ValueError, LookupError):
        raise _refused(event, f"{text[:40]} does not fit its tag, {_written(tag)}") from None
    raise _unknown_tag(event)


def plain(text: str) -> Any:
    """The value of a text without quotes: a boolean, null, a number, or the text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMERIC_START:
        if INT.fullmatch(text):
            return _int(text)
        if FLOAT.fullmatch(text):
            return _float(text)
    return text


def _int(text: str) -> int:
    bare = text.replace("_", "")
    if not re.match(r"[-+]?0[ox]", bare):
        return bounded_int(bare)
    if len(bare) > 40:
        raise RefusedError(f"a number of {len(bare) - 2:,} digits is beyond 64 bits")
    return bounded_int(str(int(bare, 0)))


def _float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_TAGGED: dict[str, Callable[[str], Any]] = {
    "!": str,
    f"{_TAG}str": str,
    f"{_TAG}int": _int,
    f"{_TAG}float": _float,
    f"{_TAG}bool": _boolean,
    f"{_TAG}null": lambda _text: None,
}


def _written(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


def _unknown_tag(event: Any) -> RefusedError:
    return _refused(event, f"the tag {_written(event.tag)[:60]} has no meaning here", "write the value without it")


def _refused(event: Any, text: str, hint: str | None = None) -> RefusedError:
    return RefusedError(text, event.start_mark.line + 1, event.start_mark.column + 1, hint)


def _position(error: yaml.MarkedYAMLError, text: str) -> tuple[int | None, int | None]:
    """Line and column; if the text ends early, the position after its last character."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return None, None
    rows = text.splitlines()
    return (mark.line + 1, mark.column + 1) if mark.line < len(rows) else (len(rows), len(rows[-1]) + 1)


def _complaint(error: yaml.MarkedYAMLError, text: str) -> str:
    complaint = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark
    rows = text.splitlines()
    if mark and mark.line < len(rows) and rows[mark.line][: mark.column + 1].endswith("\t"):
        return f"{complaint}, '\\t' (YAML is indented with spaces, not tabs)"
    return complaint
