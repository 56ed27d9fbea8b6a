"""HTTP/1.1 answers: where the headers end, when the body is complete, and the body without its chunk framing."""

import re
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Piecewise = Generator[None, None, T]

AT_ONCE = 4096  # events, lines or chunks between two pauses: some 40 ms with the slowest API
BYTES_AT_ONCE = 1 << 18  # of JSON, likewise: up to 60 ms if all of it is empty lists


def whole(work: Piecewise[T]) -> T:
    """The result of a piecewise computation, without pauses."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


ROUTED_TO = "x-inferometer-replica"  # header in which our router names the replica that sent a response
MAX_HEAD = 64 * 1024  # bytes of the headers, including those of interim answers; as in _reader.c
MOST_FIELDS = 1000  # header fields
MOST_INTERIM = 32  # 1xx answers before the final one
MAX_SIZE_LINE = 4096  # bytes of a chunk's size with its extensions
MAX_TRAILER = 64 * 1024
MOST_KEPT_HEAD = 2048  # bytes
MOST_LENGTH_DIGITS = 18
MOST_CHUNKS = 1 << 19  # of one answer: four times the longest existing answers; more take over a second to read


class Excessive(ValueError):
    """More than the client accepts: the outcome is "oversized"."""


_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;|\Z)")  # as many digits as in _reader.c
_BEGUN_SIZE = re.compile(rb"(?:[0-9a-fA-F]{1,15}(?:[ \t]+|[ \t]*;.*)?\r?)?", re.DOTALL)
_FOLD = re.compile(rb"[ \t]*\r\n[ \t]+")  # replaced by one space (RFC 9112, section 5.2)
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\Z")

_Facts = tuple[int, dict[str, str], bool, bool, int | None, bool]  # the first fields of `Head`


@dataclass(slots=True)
class Head:
    """Status and headers of an answer; `end` is where its body starts."""

    status: int
    headers: dict[str, str]  # names in lower case; do not modify, they are shared between answers
    keep_alive: bool
    chunked: bool
    length: int | None
    sse: bool
    end: int

    @property
    def until_close(self) -> bool:
        return not self.chunked and self.length is None


def parse_head(raw: bytes) -> Head | None:
    """The head of an answer, or None while it is incomplete. Interim answers (100 Continue) are skipped; ValueError if
    it is not a valid head or too long."""
    start = 0
    for _ in range(MOST_INTERIM + 1):
        end = raw.find(b"\r\n\r\n", start, MAX_HEAD)
        if end < 0:
            if not raw[start : start + 5] == b"HTTP/"[: len(raw) - start]:
                raise ValueError(f"not an HTTP answer: it begins with {raw[start : start + 40]!r}")
            if len(raw) >= MAX_HEAD:
                raise ValueError(f"not an HTTP answer: its headers have more than {MAX_HEAD:,} bytes")
            return None
        head = _read_head(raw[start:end], end + 4)
        if head.status >= 200:
            return head
        start = end + 4
    raise ValueError(f"not an HTTP answer: more than {MOST_INTERIM} interim answers (1xx) came before it")


def _read_head(data: bytes, end: int) -> Head:
    """Many answers have the same headers, often all within a second: equal headers are parsed once."""
    return Head(*(_facts(data) if end > MOST_KEPT_HEAD else _kept_facts(data)), end)


def _facts(data: bytes) -> _Facts:
    first, _, rest = data.partition(b"\r\n")
    match = _STATUS.fullmatch(first)
    if match is None:
        raise ValueError(f"not an HTTP answer: it begins with {first[:40]!r}")
    if b"\r\n " in rest or b"\r\n\t" in rest:
        rest = _FOLD.sub(b" ", rest)
    lines = rest.decode("latin-1").split("\r\n")
    if len(lines) > MOST_FIELDS:
        raise ValueError(f"not an HTTP answer: it has more than {MOST_FIELDS:,} headers")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    status = int(match[2])
    wishes = {wish.strip() for wish in headers.get("connection", "").lower().split(",")}
    keep_alive = "close" not in wishes and (match[1] == b"1" or "keep-alive" in wishes)
    without_body = status in {204, 304}
    chunked = not without_body and headers.get("transfer-encoding", "").lower().endswith("chunked")
    length = 0 if without_body else None if chunked else _length(headers.get("content-length"))
    return status, headers, keep_alive, chunked, length, "event-stream" in headers.get("content-type", "").lower()


def _length(stated: str | None) -> int | None:
    if stated is None:
        return None
    if not (stated.isascii() and stated.isdigit() and len(stated) <= MOST_LENGTH_DIGITS):
        raise ValueError(f"not an HTTP answer: its content-length is {stated[:40]!r}")
    return int(stated)


_kept_facts = lru_cache(64)(_facts)


class Chunks:
    """Follows the chunks of a body from read to read: only the chunk sizes determine where it ends, whatever the data
    contains."""

    __slots__ = ("_begun", "_inside", "_missing")

    def __init__(self) -> None:
        self._missing = 0  # bytes of a chunk's data not yet received
        self._inside = False  # whether inside a chunk's data or line end; else a size line is next
        self._begun = b""  # framing received only in part

    @property
    def left(self) -> int | None:
        """Bytes left of a chunk and its line end, 0 if a size line is next; None inside of framing."""
        return None if self._begun else self._missing + 2 if self._inside else 0

    def feed(self, data: bytes) -> int:
        """Process the bytes of a read: -1 while the body is incomplete, else the number of bytes after its end. A
        ValueError means that the framing is broken."""
        if self._begun:
            data, self._begun = self._begun + data, b""
        at = self._missing  # position of the next framing
        while True:
            if self._inside:
                end = data[at : at + 2]
                if end != b"\r\n":
                    return self._wait_for_end(end, at - len(data))
                at += 2
                self._inside = False
            line = data.find(b"\r\n", at, at + MAX_SIZE_LINE)
            if line < 0:
                return self._wait_for_size(data[at:])
            size = _size(data[at:line])
            if not size:
                return self._find_last(data, at, line)
            at = line + 2 + size
            self._inside = True

    def _wait_for_end(self, end: bytes, missing: int) -> int:
        if end not in (b"", b"\r"):
            raise ValueError(f"broken chunk framing: {end!r} is not the end of a chunk")
        self._begun, self._missing = end, max(missing, 0)
        return -1

    def _wait_for_size(self, line: bytes) -> int:
        if len(line) >= MAX_SIZE_LINE or not _BEGUN_SIZE.fullmatch(line):
            raise ValueError(f"broken chunk framing: {line[:20]!r} is not a chunk's size")
        self._begun, self._missing = line, 0
        return -1

    def _find_last(self, data: bytes, at: int, line: int) -> int:
        """A size of 0 is followed by trailer lines and an empty line."""
        end = data.find(b"\r\n\r\n", line, line + MAX_TRAILER)
        if end >= 0:
            return len(data) - end - 4
        if len(data) - line >= MAX_TRAILER:
            raise ValueError(f"broken chunk framing: the trailer has more than {MAX_TRAILER:,} bytes")
        self._begun, self._missing = data[at:], 0
        return -1


@lru_cache(1024)
def _size(line: bytes) -> int:
    match = _CHUNK_SIZE.match(line)
    if match is None:
        raise ValueError(f"broken chunk framing: {line[:20]!r} is not a chunk's size")
    return int(match[1], 16)


Body = tuple[bytes, list[int], list[int]]


def body_of(raw: bytes, head: Head) -> Body:
    """`reading_body` without pauses."""
    return whole(reading_body(raw, head))


def reading_body(raw: bytes, head: Head) -> Piecewise[Body]:
    """The body without framing, and its pieces: for each piece its start in the body and how many bytes of framing
    precede it in the raw bytes. For a cut answer the part received; broken framing raises ValueError."""
    if not head.chunked:
        stop = len(raw) if head.length is None else head.end + head.length
        return raw[head.end : stop], [0], [head.end]
    return (yield from dechunked(raw, head.end))


def dechunked(raw: bytes, at: int) -> Piecewise[Body]:
    """The same for a chunked body that starts at `at`."""
    pieces: list[bytes] = []
    starts: list[int] = []
    ahead: list[int] = []
    length = 0
    while (line := raw.find(b"\r\n", at)) >= 0:
        if len(pieces) >= MOST_CHUNKS:
            raise Excessive(f"the answer has more than {MOST_CHUNKS:,} chunks")
        size = _size(raw[at:line])
        if size == 0:
            break
        piece = raw[line + 2 : line + 2 + size]
        pieces.append(piece)
        starts.append(length)
        ahead.append(line + 2 - length)
        length += len(piece)
        at = line + 2 + size + 2
        if not len(pieces) % AT_ONCE:
            yield
    return b"".join(pieces), starts, ahead
