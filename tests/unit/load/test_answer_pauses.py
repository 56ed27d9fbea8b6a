"""Whatever a server sends is read with pauses, so that time limits act meanwhile. What is counted is work, not time:
the calls of Python and of C between two pauses."""

import sys
from collections.abc import Iterator
from types import FrameType

import orjson
import pytest

from chaos.dialects import DIALECTS, Content, event_bytes
from inferometer.load import answer as answers
from inferometer.load.answer import reading_answer
from inferometer.record.record import Record
from inferometer.wire import http1, skeleton, sse
from inferometer.wire.api import APIS, api_of
from inferometer.wire.exchange import Exchange
from inferometer.wire.sockets import STAMP, UNPROVEN

AT_ONCE = 4
UNITS = 800  # events, lines or chunks of an answer
MOST_CALLS = 600  # in between: of four events of the slowest dialect; all units without a pause would be at least 800
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
LAST = b"0\r\n\r\n"
TEXT_HEAD = HEAD.replace(b"text/event-stream", b"text/plain")
ERROR_HEAD = HEAD.replace(b"200 OK", b"500 Oh")


def exchange_of(reads: list[bytes], outcome: str) -> Exchange:
    """An answer that came in these reads, one a microsecond."""
    exchange = Exchange(None, b"request", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome = 0, 10**9, outcome
    exchange.reads = reads
    exchange.stamps = [STAMP.pack(0, 1000 * number) for number in range(1, len(reads) + 1)]
    exchange.since = [UNPROVEN] * len(reads)
    exchange.kernel = True
    assert exchange.find_head() is not None
    return exchange


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def in_one_chunk(head: bytes, data: bytes) -> list[bytes]:
    return [head + chunk(data) + LAST]


def events_in(dialect: str, running: bool) -> list[bytes]:
    known = DIALECTS.get(dialect)
    if known is None or known.events is None:
        return [b'data: {"text":"x"}\n\n'] * UNITS
    content = Content(tokens=UNITS, output_tokens=3 * UNITS, running=(lambda number: number) if running else None)
    return [event_bytes(event) for event in known.events(content)]


def events_without_end(dialect: str) -> Iterator[tuple[str, list[bytes]]]:
    events = events_in(dialect, running=False)
    yield "events, one to a chunk", [HEAD + b"".join(map(chunk, events)) + LAST]
    yield "running usage", [HEAD + b"".join(map(chunk, events_in(dialect, running=True))) + LAST]
    yield "events in one chunk", in_one_chunk(HEAD, b"".join(events))
    yield "events until the end", [UNTIL_CLOSE + b"".join(events)]


def no_events() -> Iterator[tuple[str, list[bytes]]]:
    """What is the same in every dialect."""
    yield "blank lines", in_one_chunk(HEAD, b"\n" * 2 * UNITS)
    yield "blank lines of two kinds", in_one_chunk(HEAD, b"\r\n" * 2 * UNITS)
    yield "comments", in_one_chunk(HEAD, b": on and on\n\n" * UNITS)
    yield "errors", in_one_chunk(HEAD, b"event: error\ndata: x\n\n" * UNITS)
    yield "chunks of one byte", [HEAD + chunk(b"x") * UNITS + LAST]
    yield "lines of JSON", in_one_chunk(TEXT_HEAD, b'{"text":"x"}\n' * UNITS)
    yield "lines of text", in_one_chunk(TEXT_HEAD, b"x\n" * UNITS)
    yield "reads of one byte", [TEXT_HEAD + b"%x\r\n" % UNITS, *([b"x"] * UNITS), b"\r\n", LAST]
    yield "an error in chunks of one byte", [ERROR_HEAD + chunk(b"x") * UNITS + LAST]


def most_calls_between_pauses(reads: list[bytes], api: str, outcome: str) -> int:
    """While an answer is read."""
    record = Record(session=0, scheduled_at=0)
    reading = reading_answer(record, exchange_of(reads, outcome), api_of(api), 0)
    calls = most = 0

    def count(_frame: FrameType, what: str, _arg: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    while True:
        calls = 0
        sys.setprofile(count)
        try:
            next(reading)
        except StopIteration:
            assert "Error" not in (record.error or "")  # else less was read
            return max(most, calls)
        finally:
            sys.setprofile(None)
        most = max(most, calls)


def too_long(api: str, hostile: Iterator[tuple[str, list[bytes]]]) -> dict[tuple[str, str], int]:
    """Forms of answers that are read for too long without a pause."""
    calls = {
        (form, outcome): most_calls_between_pauses(reads, api, outcome)
        for form, reads in hostile
        for outcome in ("ok", "timeout")
    }
    return {key: count for key, count in calls.items() if count > MOST_CALLS}


@pytest.fixture(params=["compiled", "python"])
def _reader(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(http1, "AT_ONCE", AT_ONCE)
    if request.param == "python":
        for module in (sse, skeleton, answers):
            monkeypatch.setattr(module, "compiled", lambda: None)


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("api", APIS)
def test_reading_events_without_end_pauses(api: str) -> None:
    assert too_long(api, events_without_end(api)) == {}


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("api", ["chat", "template"])
def test_reading_anything_else_pauses(api: str) -> None:
    assert too_long(api, no_events()) == {}


def test_events_of_many_bytes_are_read_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of them are as much work as thousands of small ones."""
    monkeypatch.setattr(http1, "BYTES_AT_ONCE", 1000)
    event = b'data: {"choices":[],"x":[%b[]]}\n\n' % (b"[]," * 500)
    for reads in ([HEAD + chunk(event) * UNITS + LAST], in_one_chunk(HEAD, event * UNITS)):
        reading = reading_answer(Record(session=0, scheduled_at=0), exchange_of(reads, "ok"), api_of("chat"), 0)
        assert sum(1 for _ in reading) >= UNITS - 1


def test_a_document_that_is_too_dense_makes_the_answer_too_large() -> None:
    dense = b'{"choices":[%b{}]}' % (b"{ }," * sse.MOST_CONTAINERS)
    for reads in (in_one_chunk(HEAD, b"data: %b\n\n" % dense), in_one_chunk(TEXT_HEAD, dense)):
        record = Record(session=0, scheduled_at=0)
        answers.read_answer(record, exchange_of(reads, "ok"), api_of("chat"), 0)
        assert (record.outcome, record.error) == ("oversized", "a document has more than 262,144 lists and objects")


def test_a_document_of_too_many_keys_makes_the_answer_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LARGE_DOCUMENT", 1000)
    monkeypatch.setattr(sse, "MOST_KEYS", 500)
    keys = b",".join(b'"%d":1' % number for number in range(501))
    record = Record(session=0, scheduled_at=0)
    answers.read_answer(record, exchange_of(in_one_chunk(TEXT_HEAD, b"{%b}" % keys), "ok"), api_of("chat"), 0)
    assert (record.outcome, record.error) == ("oversized", "a document has more than 500 keys")


@pytest.mark.parametrize("byte", [b"\x1b", b"x", b"\xff"])
def test_of_an_error_event_that_is_no_json_only_the_beginning_is_read(byte: bytes) -> None:
    """All of it was written as JSON and read again: 3.7 s for 60 MB."""
    for size in (sse.MOST_OF_ERROR, sse.LARGE_DOCUMENT + 1):
        event = b"event: error\ndata: " + byte * size + b"\n\n"
        data, _ends = sse.events_of(UNTIL_CLOSE + event, exchange_of([UNTIL_CLOSE + event], "ok").head)
        assert len(data[0]) < 7 * sse.MOST_OF_ERROR
        record = Record(session=0, scheduled_at=0)
        answers.read_answer(record, exchange_of([UNTIL_CLOSE + event], "ok"), api_of("chat"), 0)
        assert record.outcome == "bad"
        assert record.error.startswith(byte.decode("utf-8", "replace") * 100)


def test_a_run_of_events_that_fit_is_read_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled reader goes through them in one call, so that calls do not tell."""
    monkeypatch.setattr(http1, "AT_ONCE", AT_ONCE)
    document = orjson.dumps({"choices": [{"text": "x"}]})
    reads = [HEAD + chunk(b"data: %b\n\n" % document) * UNITS + LAST]
    reading = reading_answer(Record(session=0, scheduled_at=0), exchange_of(reads, "ok"), api_of("completions"), 0)
    assert sum(1 for _ in reading) >= UNITS // (AT_ONCE + 1) - 1
