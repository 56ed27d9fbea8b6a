"""Recorded streams and errors of a vLLM 0.24 on an H200 are parsed correctly."""

from pathlib import Path

import numpy as np
import pytest

from inferometer.load.answer import read_answer
from inferometer.record.record import Record
from inferometer.wire.api import api_of, error_text, read_events
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import parse_head
from inferometer.wire.sockets import STAMP, UNPROVEN
from inferometer.wire.sse import events_of

DATA = Path(__file__).parent.parent / "data" / "vllm-0.24-h200"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
STREAMS = [
    ("completions", "stream_completions.txt", "cmpl-8cd4333b78565b95", 8, "usage"),
    ("chat", "stream_chat.txt", "chatcmpl-818147b8a6a32e0b", 13, "running usage"),
]


def chunks(name):
    """The events as vLLM's server frames them: one to a chunk."""
    events = [event + b"\n\n" for event in (DATA / name).read_bytes().split(b"\n\n") if event]
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in events]


def exchange_of(reads):
    exchange = Exchange(None, b"", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome, exchange.kernel = 0, 10**12, "ok", True
    exchange.reads = reads
    exchange.stamps = [STAMP.pack(number, 0) for number in range(1, len(reads) + 1)]
    exchange.since = [UNPROVEN] * len(reads)
    exchange.head, exchange.head_read = parse_head(b"".join(reads)), 0
    return exchange


def ints(packed):
    return np.frombuffer(packed, np.int64).tolist()


@pytest.mark.parametrize(("api", "name", "request_id", "prompt_tokens", "tokens_by"), STREAMS)
def test_sixteen_tokens_in_sixteen_reads(
    api: str, name: str, request_id: str, prompt_tokens: int, tokens_by: str
) -> None:
    record = Record(session=0, scheduled_at=0)
    read_answer(record, exchange_of([HEAD, *chunks(name), b"0\r\n\r\n"]), api_of(api), 0)
    assert (record.outcome, record.error, record.status) == ("ok", None, 200)
    assert (record.finish_reason, record.request_id) == ("length", request_id)
    assert (record.input_tokens, record.output_tokens, record.counted_tokens) == (prompt_tokens, 16, 16)
    assert record.tokens_by == tokens_by
    assert ints(record.read_tokens) == [1] * 16
    assert ints(record.read_slack) == [0] * 16
    first = 2 if api == "completions" else 3  # chat has a chunk with only a role before its first token
    assert ints(record.read_at) == [second * 10**9 for second in range(first, first + 16)]
    assert record.visible_at == first * 10**9


@pytest.mark.parametrize("size", [1, 7, 100, 1460, 10**6])
@pytest.mark.parametrize(("api", "name", "request_id", "prompt_tokens", "tokens_by"), STREAMS)
def test_the_same_however_it_is_cut(
    api: str, name: str, request_id: str, prompt_tokens: int, tokens_by: str, size: int
) -> None:
    raw = HEAD + b"".join(chunks(name)) + b"0\r\n\r\n"
    record = Record(session=0, scheduled_at=0)
    text = read_answer(
        record, exchange_of([raw[at : at + size] for at in range(0, len(raw), size)]), api_of(api), 0, True
    )
    assert (record.outcome, record.finish_reason, record.request_id) == ("ok", "length", request_id)
    assert sum(ints(record.read_tokens)) == record.output_tokens == 16
    assert record.tokens_by == tokens_by
    assert text.startswith({"completions": " Deprecatedmyghty", "chat": "substring[-<>+*%&|^/])=?',"}[api])


@pytest.mark.parametrize(("api", "name", "_id", "_prompt", "_by"), STREAMS)
def test_the_learned_shape_reads_it_as_the_parser(api: str, name: str, _id: str, _prompt: int, _by: str) -> None:
    raw = HEAD + b"".join(chunks(name)) + b"0\r\n\r\n"
    data, _ = events_of(raw, parse_head(raw))
    quick, parsed = read_events(api_of(api), data), read_events(api_of(api), data, keep_text=True)
    assert (quick.tokens, quick.usage, quick.done) == (parsed.tokens, parsed.usage, True)
    assert data[-1] == b"[DONE]"


@pytest.mark.parametrize(
    ("name", "text"),
    [("error_400.json", "cannot be greater than"), ("error_404.json", "does not exist")],
)
def test_errors(name: str, text: str) -> None:
    assert text in error_text((DATA / name).read_bytes())
