"""The shape that the events of one stream share, so that most need no JSON parser (0.4 µs instead of 2).

Within a stream only the text and the running counts change. The shape is learned from one parsed event and proven by
parsing it with another text; an event that fits it exactly then says the same as the parser would. Any other event (a
quote in the text, a finish reason, an error) is parsed.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson

from inferometer.wire.compiled import compiled
from inferometer.wire.sse import Spans

Run = tuple[list[int], list[int], int]
MOST_DIGITS = 15  # of a count: with more it is parsed, as a number that cannot be

_PROBE = "\u2042probe"
_COUNTS = re.compile(rb'(?<="completion_tokens":)\d+|(?<="total_tokens":)\d+')


@dataclass(slots=True)
class Skeleton:
    """`prefix`, text, `suffix`; with a running usage two numbers follow, `between` and `after` them what is fixed."""

    prefix: bytes
    suffix: bytes
    running: bool = False
    between: bytes = b""
    after: bytes = b""
    completion_first: bool = False

    def read_run(self, events: Sequence[bytes], start: int, before: int) -> Run:
        """Read events from `start` on as long as they fit: for each whether it bears text and, with a running usage,
        how many tokens its total is more than the one before; and the last total."""
        reader = compiled()
        if reader is not None and isinstance(events, Spans):
            shape = self.prefix, self.suffix, self.running, self.between, self.after, self.completion_first
            (bears, gains), total = reader.read_run(events.raw, events.packed, start, before, *shape)
            return memoryview(bears).cast("q").tolist(), memoryview(gains).cast("q").tolist(), total
        return self._running_run(events, start, before) if self.running else self._plain_run(events, start, before)

    def _plain_run(self, events: Sequence[bytes], start: int, before: int) -> Run:
        prefix, suffix = self.prefix, self.suffix
        begin, fixed = len(prefix), len(prefix) + len(suffix)
        bears: list[int] = []
        for data in islice(events, start, None):
            length = len(data) - fixed
            if length < 0 or not (data.startswith(prefix) and data.endswith(suffix)):
                break
            if data.find(b'"', begin, begin + length) >= 0:
                break
            bears.append(1 if length else 0)
        return bears, [], before

    def _running_run(self, events: Sequence[bytes], start: int, before: int) -> Run:
        prefix, suffix, between, after = self.prefix, self.suffix, self.between, self.after
        begin, behind, tail = len(prefix), len(suffix), -len(after)
        which = 0 if self.completion_first else 2
        bears: list[int] = []
        gains: list[int] = []
        for data in islice(events, start, None):
            stop = data.find(b'"', begin)
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


def _is_count(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= MOST_DIGITS


def learn(data: bytes, key: bytes, text_of: Callable[[Any], tuple[str, bool]]) -> Skeleton | None:
    """The shape of an event whose text is behind `key` (`"text":"`), or None where it cannot be proven."""
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
    """What stands before, between and behind the two counts, and whether that of the completion comes first. Kept: it
    is the same in the first events of many streams."""
    counts = list(_COUNTS.finditer(rest))
    if len(counts) != 2 or not rest.endswith(b"}}"):
        return None
    first, second = counts
    suffix = rest[: first.start()]
    between, after = rest[first.end() : second.start()], rest[second.end() :]
    return suffix, between, after, suffix.endswith(b'"completion_tokens":')
