"""Splits an answer's bytes into server-sent events: each event's data, and where in the bytes it was complete.

An event named `error` is also marked in its data, so that every reader of the data sees it. Events do not depend on how
the bytes were cut into reads and chunks (a property test shows it).
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import methodcaller
from typing import Any, overload

import orjson

from inferometer.wire import http1
from inferometer.wire.compiled import compiled
from inferometer.wire.http1 import Excessive, Head, Piecewise, reading_body, whole

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_SIZE = re.compile(rb"\r\n([0-9a-fA-F]{1,15})\r\n")
_LF, _CR = b"\n\r"  # as numbers they are found in a line ten times faster than as bytes
_LINE = re.compile(rb"\r\n|\n|\r")
_BLANK_LF = re.compile(rb"\n\n")
_LF_LINES = methodcaller("split", b"\n")
_ERROR_LINE = re.compile(rb"event: ?error\Z|error:")  # the second form is llama.cpp's: `error: {...}`
BOM = b"\xef\xbb\xbf"

# A server that sends nonsense without end must neither keep us busy after its time limit nor fill the memory, so only
# the beginning of an incomplete answer is read: more events than a model writes, or this many bytes; fewer if there is
# not one event per chunk, so that every line has to be examined.
MOST_EVENTS = 1 << 17
MOST_OF_INCOMPLETE = 32 * 1024 * 1024
MOST_OF_INCOMPLETE_LINES = 1024 * 1024
MOST_LINES = 1 << 20  # eight for each token of the longest existing answers
MOST_EVENT_LINES = 1 << 16  # of one event, which is read in one piece
MOST_OF_ERROR = 1 << 16  # bytes of an error that is only text: more than is ever shown, even after removing secrets

LARGE_DOCUMENT = 1 << 20  # bytes; smaller ones are parsed in milliseconds whatever their content
# One document is parsed in one piece, and often twice, so it is limited to what takes 0.2 s:
MOST_CONTAINERS = 1 << 18  # lists and objects, 0.7 µs each; 20 logprobs for each of 12,000 tokens
MOST_VALUES = 1 << 21  # 0.1 µs each; 512 embeddings of 4096 numbers
MOST_KEYS = 3 * MOST_CONTAINERS  # 0.3 µs each if all differ; as many as in those logprobs

Events = tuple[Sequence[bytes], Sequence[int]]  # the data of each event, and the offset after its last byte


class Spans(Sequence[bytes]):
    """Parts of an answer's bytes, copied on access: most are only read in place, in C."""

    __slots__ = ("_at", "packed", "raw")

    def __init__(self, raw: bytes, packed: bytes) -> None:
        self.raw = raw
        self.packed = packed  # int64: start and end of each
        self._at = memoryview(packed).cast("q")

    def __len__(self) -> int:
        return len(self._at) // 2

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        return self.raw[self._at[2 * number] : self._at[2 * number + 1]]


class Recognised:
    """The events of an answer most of which the compiled reader recognised on arrival. The others are parsed; only
    their bytes are kept."""

    __slots__ = ("bears", "data", "ends", "gains", "odd", "running", "runs", "size")

    def __init__(self, data: bytes, taken: "Taken") -> None:
        self.data = data  # the headers and the events to be parsed
        self.odd, self.runs, (bears, gains, ends), self.size, self.running = taken
        self.bears = memoryview(bears).cast("q")  # for each event whether it has text,
        self.gains = memoryview(gains).cast("q")  # how much it adds to the running total
        self.ends = memoryview(ends).cast("q")  # and the offset after its last byte

    def __len__(self) -> int:
        return len(self.ends)


Taken = tuple[
    list[tuple[int, int, int]],  # events to be parsed: number, and start and end in the data
    list[tuple[int, int, int, int]],  # those between: first, one after the last, first and last running total
    tuple[bytearray, bytearray, bytes],
    int,
    bool,
]


def events_of(raw: bytes, head: Head, complete: bool = True) -> Events:
    """`splitting_events` without pauses."""
    return whole(splitting_events(raw, head, complete))


def splitting_events(raw: bytes, head: Head, complete: bool = True) -> Piecewise[Events]:
    """All events of an answer. Servers almost always send one `data:` line per chunk: that form is split in one step
    and checked chunk by chunk; any other is read line by line."""
    if head.chunked:
        reader = compiled()
        closed = raw if complete else _closed(raw[: head.end + MOST_OF_INCOMPLETE])
        if reader is None:
            plain = yield from _one_event_per_chunk(closed, head.end)
        else:
            plain = spans_of_chunks(reader, closed, head.end)
        if plain is not None:
            return plain if complete else _first(plain)
    if not complete:
        raw = raw[: head.end + MOST_OF_INCOMPLETE_LINES]
    body, starts, ahead = yield from reading_body(raw, head)
    data, ends = yield from _reading_lines(body, complete)
    return data, (yield from offsets_in_answer(ends, starts, ahead))


def offsets_in_answer(ends: Sequence[int], starts: list[int], ahead: list[int]) -> Piecewise[list[int]]:
    """Converts end offsets in the body to offsets in the answer, including framing."""
    offsets: list[int] = []
    for number, end in enumerate(ends, 1):
        offsets.append(end + ahead[bisect_right(starts, end - 1) - 1])
        if not number % http1.AT_ONCE:
            yield
    return offsets


def _closed(raw: bytes) -> bytes:
    """An incomplete answer up to its last complete event, so that the fast path can read it too; unchanged if another
    event could follow."""
    end = raw.rfind(b"\n\n\r\n") + 4
    _, _, begun = raw[end:].partition(b"\r\n")
    return raw if end < 4 or b"\n" in begun or b"\r" in begun else raw[:end] + b"0\r\n\r\n"


def _first(events: Events) -> Events:
    data, ends = events
    if isinstance(data, Spans):
        return Spans(data.raw, data.packed[: 16 * MOST_EVENTS]), ends[:MOST_EVENTS]
    return data[:MOST_EVENTS], ends[:MOST_EVENTS]


def _one_event_per_chunk(raw: bytes, start: int) -> Piecewise[Events | None]:
    """Events of a body in which every chunk is exactly `data: ...\\n\\n`; None for any other body."""
    at = start - 2  # the head ends as a chunk does, with a line end
    if raw.count(b"\n\n", at) > MOST_LINES:
        return None
    parts = raw[at:].split(b"\n\n")
    if parts.pop() != b"\r\n0\r\n\r\n":
        return None
    data: list[bytes] = []
    ends: list[int] = []
    try:
        for part in parts:
            begin = part.find(b"data: ")
            line = part[begin + 6 :]
            if _chunk_size(part[:begin]) != len(line) + 8 or _LF in line or _CR in line:
                return None
            data.append(line)
            at += len(part) + 2
            ends.append(at)
            if not len(ends) % http1.AT_ONCE:
                yield
    except ValueError:
        return None
    return data, ends


def spans_of_chunks(reader: Any, raw: bytes, start: int) -> Events | None:
    """The same by the compiled reader."""
    split = reader.split_events(raw, start)
    return None if split is None else (Spans(raw, split[0]), memoryview(split[1]).cast("q"))


@functools.lru_cache(maxsize=4096)
def _chunk_size(between: bytes) -> int:
    """The size of the chunk that starts after these bytes; ValueError if they contain anything else."""
    match = _SIZE.fullmatch(between)
    if match is None:
        raise ValueError(between)
    return int(match[1], 16)


def parse_json(data: bytes) -> Any:
    """Parses a document of a server; ValueError if it is not JSON, `Excessive` if parsing would delay everything
    else."""
    if len(data) > LARGE_DOCUMENT:
        if data.count(b"[") + data.count(b"{") > MOST_CONTAINERS:
            raise Excessive(f"a document has more than {MOST_CONTAINERS:,} lists and objects")
        if data.count(b",") >= MOST_VALUES:
            raise Excessive(f"a document has more than {MOST_VALUES:,} values")
        if data.count(b":") > MOST_KEYS:
            raise Excessive(f"a document has more than {MOST_KEYS:,} keys")
    return orjson.loads(data)


def check_lines(body: bytes) -> None:
    """Reading this many lines one by one takes half a second, and would delay everything else."""
    if body.count(b"\n") + body.count(b"\r") > MOST_LINES:
        raise Excessive(f"the answer has more than {MOST_LINES:,} lines")


def _reading_lines(body: bytes, complete: bool) -> Piecewise[Events]:
    data: list[bytes] = []
    ends: list[int] = []
    check_lines(body)
    start = len(BOM) if body.startswith(BOM) else 0
    one_kind = b"\r" not in body  # of line ends, nearly always: an event takes 5 µs instead of 7
    blank_line, lines_of = (_BLANK_LF, _LF_LINES) if one_kind else (_BLANK_LINE, _LINE.split)
    for number, blank in enumerate(blank_line.finditer(body), 1):
        _add_event(lines_of(body[start : blank.start()]), blank.end(), data, ends)
        start = blank.end()
        if not number % http1.AT_ONCE:
            yield
    if complete:  # the last event may then lack its blank line; else it is a fragment
        _add_event(lines_of(body[start:]), len(body), data, ends)
    return data, ends


def _add_event(lines: list[bytes], end: int, data: list[bytes], ends: list[int]) -> None:
    if len(lines) > MOST_EVENT_LINES:
        raise Excessive(f"an event has more than {MOST_EVENT_LINES:,} lines")
    payload = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if len(lines) > len(payload) and any(map(_ERROR_LINE.match, lines)):
        payload += [line[6:].removeprefix(b" ") for line in lines if line.startswith(b"error:")]
        data.append(_as_error(b"\n".join(payload)))
        ends.append(end)
    elif payload:
        data.append(b"\n".join(payload))
        ends.append(end)


def _as_error(payload: bytes) -> bytes:
    """The data of an event named `error`, as an object with that key: most servers use only one of the two. Text that
    is not JSON is not kept whole: 60 MB of it took 3.7 s to be written as JSON and read again."""
    try:
        document = _beginning(payload) if len(payload) > LARGE_DOCUMENT else parse_json(payload)
    except ValueError:
        document = _beginning(payload)
    if isinstance(document, dict) and document.get("error"):
        return payload
    if not document:
        return b'{"error":"an error event without a message"}'
    return b'{"error":%b}' % (orjson.dumps(document) if isinstance(document, str) else payload)


def _beginning(payload: bytes) -> str:
    return payload[:MOST_OF_ERROR].decode("utf-8", "replace")
