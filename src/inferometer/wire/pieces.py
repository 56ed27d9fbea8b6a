"""Answers that are streamed without server-sent events: lines of JSON, or plain text."""

import codecs
from bisect import bisect_right
from itertools import accumulate

import orjson

from inferometer.wire import http1
from inferometer.wire.api import Answer, Api, read_texts, read_whole, reading_events, tokens_by_length
from inferometer.wire.http1 import Body, Head, Piecewise, reading_body
from inferometer.wire.sse import BOM, check_lines, offsets_in_answer, parse_json

Pieces = tuple[Answer, list[int]]  # the combined answer, and the offset after the last byte of each piece


def reading_pieces(
    api: Api, reads: list[bytes], head: Head, complete: bool, keep_text: bool = False
) -> Piecewise[Pieces]:
    """One document, lines of JSON, or text: detected from the bytes, because servers use various content types."""
    raw = b"".join(reads)
    body, starts, ahead = yield from reading_body(raw, head)
    if complete and _is_json(body.removeprefix(BOM)):
        return read_whole(api, body, keep_text), [len(raw)]
    lines, ends = yield from _splitting_lines(body, complete)
    lines[:1] = [line.removeprefix(BOM) for line in lines[:1]]
    if lines and _is_object(lines[0]):
        answer = yield from reading_events(api, lines, keep_text)
        return answer, (yield from offsets_in_answer(ends, starts, ahead))
    return (yield from _reading_texts(reads, (body, starts, ahead), keep_text))


def _is_json(data: bytes) -> bool:
    """A bare number counts as text: it may be the first word of a streamed answer."""
    try:
        return not isinstance(parse_json(data), int | float)
    except orjson.JSONDecodeError:
        return False


def _is_object(line: bytes) -> bool:
    return line.startswith(b"{") and _is_json(line)


def _splitting_lines(body: bytes, complete: bool) -> Piecewise[tuple[list[bytes], list[int]]]:
    """Non-empty lines, and where each ends; in a cut answer the last is a fragment."""
    check_lines(body)
    parts = body.split(b"\n")
    if not complete:
        parts.pop()
    lines: list[bytes] = []
    ends: list[int] = []
    end = 0
    for number, part in enumerate(parts, 1):
        end += len(part) + 1
        if line := part.strip():
            lines.append(line)
            ends.append(min(end, len(body)))  # the last one may lack its line feed
        if not number % http1.AT_ONCE:
            yield
    return lines, ends


def _reading_texts(reads: list[bytes], place: Body, keep_text: bool) -> Piecewise[Pieces]:
    """The text of each read; a character split over two reads belongs to the second."""
    body, starts, ahead = place
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    raw_starts = [start + gap for start, gap in zip(starts, ahead, strict=True)]
    limits = [*starts[1:], len(body)]
    read_ends = list(accumulate(map(len, reads)))
    texts: list[str] = []
    tokens: list[int] = []
    before = 0
    for end in read_ends:
        piece = bisect_right(raw_starts, end) - 1
        cut = 0 if piece < 0 else min(end - ahead[piece], limits[piece])
        text = decode(body[before:cut])
        texts.append(text)
        tokens.append(tokens_by_length(text) if text else 0)
        before = cut
        if not len(texts) % http1.AT_ONCE:
            yield
    return read_texts(texts, tokens, keep_text), read_ends
