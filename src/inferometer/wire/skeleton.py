"""The shape that the events of one stream share, so that most need no JSON parser (0.4 µs instead of 2).

Within a stream only the text and the running counts change. The shape is learned from one parsed event and proven by
parsing it with another text; for an event that matches it exactly the result is that of the parser. Any other event (an
escaped character in the text, a finish reason, an error) is parsed.

The streams of a server differ in little else: the id, the second of creation, the length of the prompt. With holes for
these the shape of one stream fits all of them (`Shape`), and the compiled reader recognises events on arrival.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson

from inferometer.wire.compiled import compiled
from inferometer.wire.sse import Spans

JoinedRun = tuple[list[int], list[int], int]
MOST_DIGITS = 15  # of a count: an event with more is parsed

_PROBE = "\u2042probe"
_TEXT = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*')  # in JSON, except for its UTF-8
_COUNTS = re.compile(rb'(?<="completion_tokens":)\d+|(?<="total_tokens":)\d+')


@dataclass(slots=True)
class Skeleton:
    """`prefix`, text, `suffix`; with a running usage followed by two numbers, with fixed bytes `between` and `after`
    them."""

    prefix: bytes
    suffix: bytes
    running: bool = False
    between: bytes = b""
    after: bytes = b""
    completion_first: bool = False

    def read_run(self, events: Sequence[bytes], start: int, stop: int, before: int) -> JoinedRun:
        """Read matching events from `start` on, up to `stop`: for each whether it has text and, with a running usage,
        how much its total exceeds the previous one; and the last total."""
        reader = compiled()
        if reader is not None and isinstance(events, Spans):
            shape = self.prefix, self.suffix, self.running, self.between, self.after, self.completion_first
            spans = events.packed[16 * start : 16 * stop]
            (bears, gains), total = reader.read_run(events.raw, spans, 0, before, *shape)
            return memoryview(bears).cast("q").tolist(), memoryview(gains).cast("q").tolist(), total
        fresh = map(events.__getitem__, range(start, stop))
        return self._running_run(fresh, before) if self.running else self._plain_run(fresh, before)

    def _plain_run(self, events: Iterable[bytes], before: int) -> JoinedRun:
        prefix, suffix = self.prefix, self.suffix
        begin, behind = len(prefix), len(suffix)
        bears: list[int] = []
        for data in events:
            stop = len(data) - behind
            if not (data.startswith(prefix) and data.endswith(suffix)) or _text_end(data, begin) != stop:
                break
            bears.append(1 if stop > begin else 0)
        return bears, [], before

    def _running_run(self, events: Iterable[bytes], before: int) -> JoinedRun:
        prefix, suffix, between, after = self.prefix, self.suffix, self.between, self.after
        begin, behind, tail = len(prefix), len(suffix), -len(after)
        which = 0 if self.completion_first else 2
        bears: list[int] = []
        gains: list[int] = []
        for data in events:
            stop = _text_end(data, begin)
            if not (data.startswith(prefix) and data.startswith(suffix, stop) and data.endswith(after)):
                break
            parts = data[stop + behind : tail].partition(between)
            if not (_is_count(parts[0]) and parts[1] and _is_count(parts[2])):
                break
            total = int(parts[which])
            bears.append(1 if stop > begin else 0)
            gains.append(max(total - before, 0))
            before = total
        return bears, gains, before


def _text_end(data: bytes, begin: int) -> int:
    """Where the text that starts at `begin` ends, if a parser would certainly accept it as one; else -1."""
    match = _TEXT.match(data, begin)
    assert match is not None
    text = match[0]
    return match.end() if text.isascii() or _is_utf8(text) else -1


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_count(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= MOST_DIGITS


def learn(data: bytes, key: bytes, text_of: Callable[[Any], tuple[str, bool]]) -> Skeleton | None:
    """The shape of an event whose text follows `key` (`"text":"`), or None if it cannot be proven."""
    start = data.find(key) + len(key)
    stop = data.find(b'"', start)
    if start < len(key) or stop < 0:
        return None
    prefix, rest = data[:start], data[stop:]
    try:
        probe = orjson.loads(prefix + _PROBE.encode() + rest)
        if text_of(probe) != (_PROBE, False) or probe["choices"][0].get("finish_reason"):
            return None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    if not probe.get("usage"):
        return Skeleton(prefix, rest)
    return _with_running_usage(prefix, rest)


def _with_running_usage(prefix: bytes, rest: bytes) -> Skeleton | None:
    shape = _counts_in(rest)
    return None if shape is None else Skeleton(prefix, shape[0], True, *shape[1:])


@lru_cache(256)
def _counts_in(rest: bytes) -> tuple[bytes, bytes, bytes, bool] | None:
    """The fixed bytes before, between and after the two counts, and whether that of the completion comes first. Cached:
    the first events of many streams are the same."""
    counts = list(_COUNTS.finditer(rest))
    if len(counts) != 2 or not rest.endswith(b"}}"):
        return None
    first, second = counts
    suffix = rest[: first.start()]
    between, after = rest[first.end() : second.start()], rest[second.end() :]
    return suffix, between, after, suffix.endswith(b'"completion_tokens":')


# -- many streams ----------------------------------------------------------------------------------------------------

# What differs between answers: its place in the document, its pattern, and the kind of hole in _reader.c
_HOLES = (
    (("id",), re.compile(rb'(?<="id":")[A-Za-z0-9._:-]{1,200}(?=")'), "s", b"another-id.1:_2"),
    (("created",), re.compile(rb'(?<="created":)(?:0|[1-9][0-9]{0,14})(?=[,}])'), "n", b"1234567"),
    (("usage", "prompt_tokens"), re.compile(rb'(?<="prompt_tokens":)(?:0|[1-9][0-9]{0,14})(?=[,}])'), "n", b"7654321"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A skeleton whose prefix and suffix have holes, each between two parts, for values that differ between answers."""

    prefix: tuple[bytes, ...]
    prefix_holes: str
    suffix: tuple[bytes, ...]
    suffix_holes: str
    running: bool
    between: bytes
    after: bytes
    completion_first: bool


def shape_of(data: bytes, skeleton: Skeleton) -> Shape | None:
    """The shape of all answers like the one with this event, from which the skeleton was learned; proven, as the
    skeleton is, by parsing the event with other values in the holes. None if the proof fails."""
    start = len(skeleton.prefix)
    stop = data.index(b'"', start)  # as in `learn`
    holes = [(match, *hole) for hole in _HOLES if (match := _only(hole[1], data)) is not None]
    holes = [hole for hole in holes if hole[0].end() <= start or stop <= hole[0].start() < stop + len(skeleton.suffix)]
    try:
        expected, other = orjson.loads(data), orjson.loads(_filled(data, holes))
        for _match, path, _pattern, _kind, value in holes:
            place = expected
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = orjson.loads(value) if value.isdigit() else value.decode()
        proven = bool(other == expected)
    except (ValueError, LookupError, TypeError, RecursionError):  # such as documents too deep to be compared
        return None
    if not proven:
        return None
    before = [hole for hole in holes if hole[0].end() <= start]
    behind = [hole for hole in holes if hole not in before]
    return Shape(
        *_parts(data, before, 0, start),
        *_parts(data, behind, stop, stop + len(skeleton.suffix)),
        skeleton.running,
        skeleton.between,
        skeleton.after,
        skeleton.completion_first,
    )


_Hole = tuple[re.Match[bytes], tuple[str, ...], re.Pattern[bytes], str, bytes]


def _only(pattern: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    """Its only match; a value that occurs twice is no hole."""
    matches = list(islice(pattern.finditer(data), 2))
    return matches[0] if len(matches) == 1 else None


def _filled(data: bytes, holes: Sequence[_Hole]) -> bytes:
    """The event with other values in the holes."""
    for match, _path, _pattern, _kind, value in sorted(holes, key=lambda hole: -hole[0].start()):
        data = data[: match.start()] + value + data[match.end() :]
    return data


def _parts(data: bytes, holes: Sequence[_Hole], start: int, stop: int) -> tuple[tuple[bytes, ...], str]:
    """The fixed parts of an event, and the kinds of the holes between them."""
    ordered = sorted(holes, key=lambda hole: hole[0].start())
    edges = [start, *(edge for hole in ordered for edge in hole[0].span()), stop]
    parts = tuple(data[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True))
    return parts, "".join(hole[3] for hole in ordered)
