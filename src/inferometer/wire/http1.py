"""HTTP/1.1 answers: where the headers end, when the body is complete, and the body without its chunk framing."""

import re
from dataclasses import dataclass
from functools import lru_cache

MAX_HEAD = 256 * 1024
MOST_KEPT_HEAD = 2048  # bytes
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;|\Z)")
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\Z")

_Facts = tuple[int, dict[str, str], bool, bool, int | None, bool]  # as they come first in `Head`


@dataclass(slots=True)
class Head:
    """Status and headers of an answer; `end` is where its body starts."""

    status: int
    headers: dict[str, str]  # names in lower case; not to be changed, other answers have the same
    keep_alive: bool
    chunked: bool
    length: int | None
    sse: bool
    end: int
    scanned: int  # how far the chunk framing has been followed, from the start of the answer
    scanned_reads: int = 0  # reads that lie wholly before that point
    scanned_bytes: int = 0  # and their bytes

    @property
    def until_close(self) -> bool:
        return not self.chunked and self.length is None


def parse_head(raw: bytes) -> Head | None:
    """The head of an answer, or None while it is incomplete. Interim answers (100 Continue) are passed over."""
    start = 0
    while True:
        end = raw.find(b"\r\n\r\n", start)
        if end < 0:
            if not raw[start : start + 5] == b"HTTP/"[: len(raw) - start] or len(raw) - start > MAX_HEAD:
                raise ValueError(f"not an HTTP answer: it begins with {raw[start : start + 40]!r}")
            return None
        head = _read_head(raw[start:end], end + 4)
        if head.status >= 200:
            return head
        start = end + 4


def _read_head(data: bytes, end: int) -> Head:
    """Many answers have the same headers, often all within a second: those are read once."""
    if end > MOST_KEPT_HEAD:
        return Head(*_facts(data), end, end)
    return Head(*_kept_facts(data), end, end)


def _facts(data: bytes) -> _Facts:
    first, _, rest = data.partition(b"\r\n")
    match = _STATUS.fullmatch(first)
    if match is None:
        raise ValueError(f"not an HTTP answer: it begins with {first[:40]!r}")
    headers = {}
    for line in rest.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    status = int(match[2])
    wishes = {wish.strip() for wish in headers.get("connection", "").lower().split(",")}
    keep_alive = "close" not in wishes and (match[1] == b"1" or "keep-alive" in wishes)
    chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
    stated = headers.get("content-length", "")
    length = 0 if status in {204, 304} else int(stated) if stated.isdigit() and not chunked else None
    return status, headers, keep_alive, chunked, length, "event-stream" in headers.get("content-type", "").lower()


_kept_facts = lru_cache(64)(_facts)


def chunks_complete(reads: list[bytes], head: Head) -> bool:
    """Whether the last chunk has come. In an event stream its bytes cannot be anything else (a payload has no bare
    line of `0`), so a look at the end decides; elsewhere the framing is followed from where it was left. ValueError
    says that it is broken."""
    if head.sse and reads[-1].endswith(b"\n\r\n0\r\n\r\n"):
        return True
    raw = b"".join(reads[head.scanned_reads :])
    at, complete = _follow(raw, head.scanned - head.scanned_bytes)
    head.scanned = head.scanned_bytes + at
    while head.scanned_bytes + len(reads[head.scanned_reads]) <= head.scanned:
        head.scanned_bytes += len(reads[head.scanned_reads])
        head.scanned_reads += 1
        if head.scanned_reads == len(reads):
            break
    return complete


def _follow(raw: bytes, at: int) -> tuple[int, bool]:
    """Walk the chunks from a chunk's start: the start of the first incomplete one, and whether the last was seen."""
    while True:
        line = raw.find(b"\r\n", at)
        if line < 0:
            return at, False
        size = _size(raw[at:line])
        if size == 0:
            return at, raw.find(b"\r\n\r\n", line) >= 0
        if line + 2 + size + 2 > len(raw):
            return at, False
        at = line + 2 + size + 2


def _size(line: bytes) -> int:
    match = _CHUNK_SIZE.match(line)
    if match is None:
        raise ValueError(f"broken chunk framing: {line[:20]!r} is not a chunk's size")
    return int(match[1], 16)


def body_of(raw: bytes, head: Head) -> tuple[bytes, list[int], list[int]]:
    """The body without framing, and where its pieces lie: for each piece its start in the body and how far the raw
    bytes run ahead of it. A cut answer gives what there is; broken framing raises ValueError."""
    if not head.chunked:
        stop = len(raw) if head.length is None else head.end + head.length
        return raw[head.end : stop], [0], [head.end]
    pieces, starts, ahead = [], [], []
    at, length = head.end, 0
    while (line := raw.find(b"\r\n", at)) >= 0:
        size = _size(raw[at:line])
        if size == 0:
            break
        piece = raw[line + 2 : line + 2 + size]
        pieces.append(piece)
        starts.append(length)
        ahead.append(line + 2 - length)
        length += len(piece)
        at = line + 2 + size + 2
    return b"".join(pieces), starts, ahead
