"""Answers as servers may send them, and the resulting exchanges of the client, for the tests of `wire` and `load`."""

from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import Any

import orjson
from hypothesis import strategies as st

from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import parse_head
from inferometer.wire.sockets import STAMP, UNPROVEN

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
MOMENT = 1_000_000_000  # when the first read came; each one after it a microsecond later
STEP_NS = 1000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
awkward = st.sampled_from([*list('"\\\n\ré漢🙂\u2028'), "", '\\"', '","text":"', '"}}', "0\r\n\r\n"])
token_texts = st.lists(texts | awkward, min_size=0, max_size=12)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces, none of them empty."""
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in pairwise(at)]


def chunked(pieces: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> tuple[bytes, list[int]]:
    """The pieces as chunks, and for each byte of the body the offset behind it in the framed bytes."""
    raw = bytearray()
    behind: list[Any] = []
    for piece in pieces:
        raw += b"%x%b\r\n" % (len(piece), extension)
        behind += range(len(raw) + 1, len(raw) + len(piece) + 1)
        raw += piece + b"\r\n"
    return bytes(raw) + b"0\r\n" + trailer + b"\r\n", behind


def exchange_of(raw: bytes, places: list[int] | None = None, outcome: str = "ok") -> Exchange:
    """What the client has when these bytes came in reads cut at these places, with kernel stamps."""
    exchange = Exchange(None, b"", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome = MOMENT - STEP_NS, MOMENT * 2, outcome
    exchange.reads = cut(raw, places or [])
    exchange.kernel = True
    for number in range(len(exchange.reads)):
        exchange.stamps.append(STAMP.pack(*divmod(MOMENT + number * STEP_NS, 10**9)))
        exchange.since.append(UNPROVEN)
    exchange.head = parse_head(raw)
    ends = list(accumulate(map(len, exchange.reads)))
    exchange.head_read = bisect_left(ends, exchange.head.end) if exchange.head else -1
    return exchange


@st.composite
def events(draw, chat: bool = False):
    """The JSON documents of a stream, and what they amount to: [(document, tokens)], with or without running usage."""
    running = draw(st.booleans())
    completion_first = draw(st.booleans())
    finish = draw(st.sampled_from([None, "length", "stop"]))
    row, made = [], 0
    given_texts = draw(token_texts)
    for number, text in enumerate(given_texts):
        tokens = draw(st.integers(0, 3)) if running else int(bool(text))
        made += tokens
        reason = finish if number == len(given_texts) - 1 else None
        row.append((_event(chat, text, reason, _usage(made, completion_first) if running else None), tokens))
    if draw(st.booleans()) or not running:
        row.append(({"id": "cmpl-1", "choices": [], "usage": _usage(made, completion_first)}, 0))
    return row


def _usage(made: int, completion_first: bool) -> dict[str, int]:
    counts = {"completion_tokens": made, "total_tokens": 7 + made}
    return {"prompt_tokens": 7} | (counts if completion_first else dict(reversed(counts.items())))


def _event(chat: bool, text: str, reason: str | None, usage: dict[str, int] | None) -> dict:
    content = {"delta": {"content": text}} if chat else {"text": text}
    event = {"id": "cmpl-1", "choices": [{"index": 0} | content | {"logprobs": None, "finish_reason": reason}]}
    return event | ({"usage": usage} if usage else {})


def sse(documents: list[dict], done: bool = True) -> bytes:
    """The usual form: one `data:` line and a blank one for each."""
    body = b"".join(b"data: %b\n\n" % orjson.dumps(document) for document in documents)
    return body + (b"data: [DONE]\n\n" if done else b"")
