"""Answers without server-sent events that still come piece by piece: lines of JSON, or bare text."""

import codecs
from bisect import bisect_right
from itertools import accumulate, pairwise

import orjson

from inferometer.wire.api import Answer, Api, Piecewise, read_texts, read_whole, reading_events
from inferometer.wire.http1 import Head, body_of
from inferometer.wire.sse import BOM, check_lines, parse_json

Pieces = tuple[Answer, list[int]]  # what they amount to, and the offset behind each one's last byte


def reading_pieces(
    api: Api, reads: list[bytes], head: Head, complete: bool, keep_text: bool = False
) -> Piecewise[Pieces]:
    """One document, lines of JSON, or text: what it is shows in the bytes, servers name it as they like."""
    raw = b"".join(reads)
    body, starts, ahead = body_of(raw, head)
    if complete and _is_json(body.removeprefix(BOM)):
        return read_whole(api, body, keep_text), [len(raw)]
    lines, ends = _lines(body, complete)
    lines[:1] = [line.removeprefix(BOM) for line in lines[:1]]
    if lines and _is_object(lines[0]):
        answer = yield from reading_events(api, lines, keep_text)
        return answer, [end + ahead[bisect_right(starts, end - 1) - 1] for end in ends]
    return _texts(reads, body, starts, ahead, keep_text)


def _is_json(data: bytes) -> bool:
    """A number alone is text: so may be a streamed answer's first word."""
    try:
        return not isinstance(parse_json(data), int | float)
    except orjson.JSONDecodeError:
        return False


def _is_object(line: bytes) -> bool:
    return line.startswith(b"{") and _is_json(line)


def _lines(body: bytes, complete: bool) -> tuple[list[bytes], list[int]]:
    """Lines with anything on them, and where each ends; of a cut answer the last is a fragment."""
    check_lines(body)
    parts = body.split(b"\n")
    ends = list(accumulate(len(part) + 1 for part in parts))
    ends[-1] = len(body)
    whole = list(zip(parts, ends, strict=True))[: None if complete else -1]
    return [part.strip() for part, _ in whole if part.strip()], [end for part, end in whole if part.strip()]


def _texts(reads: list[bytes], body: bytes, starts: list[int], ahead: list[int], keep_text: bool) -> Pieces:
    """The text that each read brought; a character that is split over two belongs to the second."""
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    read_ends = list(accumulate(map(len, reads)))
    raw_starts = [start + gap for start, gap in zip(starts, ahead, strict=True)]
    piece_of = (bisect_right(raw_starts, end) - 1 for end in read_ends)
    limits = [*starts[1:], len(body)]
    cuts = [0 if at < 0 else min(end - ahead[at], limits[at]) for end, at in zip(read_ends, piece_of, strict=True)]
    return read_texts([decode(body[start:end]) for start, end in pairwise([0, *cuts])], keep_text), read_ends
