"""From exchanges to records: the uncertainty of timestamps, and outcomes of failures."""

import tracemalloc
from pathlib import Path

import numpy as np
import orjson
import pytest

from inferometer.load import answer
from inferometer.load.answer import StreamTokens, read_answer
from inferometer.record.gather import read_logs
from inferometer.record.log import LogWriter, read_log
from inferometer.record.record import Record
from inferometer.wire.api import APIS, api_of
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import parse_head
from inferometer.wire.sockets import LEFT, STAMP, UNPROVEN

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
LAST = b"0\r\n\r\n"
OFFSET = 7_000_000_000  # of the real-time clock
SENT = 500


def chunk(document):
    data = b"data: %b\n\n" % (document if isinstance(document, bytes) else orjson.dumps(document))
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(text="x"):
    return chunk({"choices": [{"text": text}]})


def exchange_of(*reads, at=None, outcome="ok", since=None, own=()):
    """Reads with kernel stamps 1000 ns apart, from 1000 on, and no poll that proves anything, unless said otherwise."""
    exchange = Exchange(None, b"request", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome = SENT, 10**6, outcome
    exchange.reads = list(reads)
    instants = at or [1000 * (number + 1) for number in range(len(reads))]
    exchange.stamps = [STAMP.pack(*divmod(instant + OFFSET, 10**9)) for instant in instants]
    exchange.since = list(since or [UNPROVEN] * len(reads))
    exchange.own = set(own)
    exchange.kernel = not own
    ends = np.cumsum([len(read) for read in reads])
    exchange.head = parse_head(b"".join(reads))
    exchange.head_read = int(np.searchsorted(ends, exchange.head.end)) if exchange.head else -1
    return exchange


def record_of(exchange, api="completions", keep_text=False):
    record = Record(session=0, scheduled_at=0)
    record.answer = read_answer(record, exchange, api_of(api), OFFSET, keep_text)
    return record


def ints(packed):
    return np.frombuffer(packed, np.int64).tolist()


# -- how sure an instant is -------------------------------------------------------------------------------------------


def test_a_read_with_one_event_is_exact() -> None:
    record = record_of(exchange_of(HEAD, token(), token(), LAST))
    assert (ints(record.read_at), ints(record.read_slack)) == ([2000, 3000], [0, 0])


def test_one_event_is_exact_with_the_head_before_it_and_in_two_reads() -> None:
    record = record_of(exchange_of(HEAD + token(), token()[:9], token()[9:], LAST))
    assert (ints(record.read_at), ints(record.read_slack)) == ([1000, 3000], [0, 0])


def test_an_event_whose_chunk_lacks_its_end_is_exact() -> None:
    record = record_of(exchange_of(HEAD, token()[:-2], b"\r\n" + token(), LAST))
    assert ints(record.read_slack) == [0, 0]


def test_several_events_may_have_come_since_the_read_before() -> None:
    record = record_of(exchange_of(HEAD, token() * 3, LAST, at=[1000, 4000, 5000]))
    assert (ints(record.read_tokens), ints(record.read_slack)) == ([3], [3000])


def test_an_event_with_more_behind_it_may_have_come_since_the_read_before() -> None:
    record = record_of(exchange_of(HEAD, token() + token()[:5], token()[5:] + LAST))
    assert ints(record.read_slack) == [1000, 1000]


def test_the_first_read_goes_back_to_the_sending() -> None:
    record = record_of(exchange_of(HEAD + token() * 2, LAST))
    assert ints(record.read_slack) == [1000 - SENT]


def test_events_without_tokens_make_nothing_uncertain() -> None:
    role = chunk({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    first = chunk({"choices": [{"delta": {"content": "x"}}]})
    record = record_of(exchange_of(HEAD, role + first, LAST), "chat")
    assert (ints(record.read_tokens), ints(record.read_slack)) == ([1], [0])


def test_own_stamps_go_back_to_the_poll_before() -> None:
    record = record_of(exchange_of(HEAD, token(), token() * 2, LAST, since=[100, 1700, 2900, 3500], own=range(4)))
    assert ints(record.read_slack) == [300, 100]


def test_a_stamp_of_our_own_bounds_nothing() -> None:
    """It is later than the bytes, so that what came with the next read may be older: back to what bounds that read."""
    reads = HEAD, token(), token() * 2, LAST
    record = record_of(exchange_of(*reads, since=[100, 1700, UNPROVEN, UNPROVEN], own=range(4)))
    assert ints(record.read_slack) == [300, 1300]
    record = record_of(exchange_of(*reads, since=[100, 1700, UNPROVEN, UNPROVEN], own=[1]))
    assert ints(record.read_slack) == [300, 1300]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_poll_that_proves_that_nothing_came(compiled: bool, monkeypatch):
    """Two tokens at once are uncertain back to that poll, and no longer to the read before or to the sending."""
    if not compiled:
        monkeypatch.setattr(answer, "compiled", lambda: None)
    record = record_of(exchange_of(HEAD + token() * 2, token() * 2, LAST, since=[900, 1950, UNPROVEN]))
    assert (ints(record.read_at), ints(record.read_slack)) == ([1000, 2000], [100, 50])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_poll_proves_nothing_about_a_stamp_that_is_older(compiled: bool, monkeypatch):
    if not compiled:
        monkeypatch.setattr(answer, "compiled", lambda: None)
    record = record_of(exchange_of(HEAD, token() * 2, token() * 2, LAST, since=[900, 2001, 2000, UNPROVEN]))
    assert ints(record.read_slack) == [1000, 1000], (
        "the first falls back to the read before, the second's poll is earlier"
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_full_read_left_may_be_as_old_as_its_own_bytes(compiled: bool, monkeypatch):
    """The kernel stamps the newest byte that it has joined with others, read or not."""
    if not compiled:
        monkeypatch.setattr(answer, "compiled", lambda: None)
    record = record_of(exchange_of(HEAD, token(), token() * 2, token(), LAST, since=[900, 1800, LEFT, LEFT, UNPROVEN]))
    assert ints(record.read_slack) == [200, 1200, 0]


def test_a_single_missing_kernel_stamp() -> None:
    """Only that read is uncertain back to the poll before."""
    record = record_of(exchange_of(HEAD, token(), token(), LAST, since=[0, 0, 2400, 3000], own=[2]))
    assert ints(record.read_slack) == [0, 600]


def test_a_stamp_before_the_sending_is_not_negative_slack() -> None:
    record = record_of(exchange_of(HEAD + token() * 2, LAST, at=[SENT - 50, 2000]))
    assert ints(record.read_slack) == [0]


# -- instants and tokens ----------------------------------------------------------------------------------------------


def test_the_instants_of_a_complete_answer() -> None:
    record = record_of(exchange_of(HEAD[:20], HEAD[20:], token(), chunk(b"[DONE]") + LAST))
    assert (record.sent_at, record.headers_at, record.visible_at, record.ended_at) == (SENT, 2000, 3000, 4000)
    assert (record.outcome, record.status, record.events) == ("ok", 200, 2)
    assert record.bytes_sent == len(b"request")


def test_usage_scales_what_was_counted() -> None:
    usage = chunk({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
    record = record_of(exchange_of(HEAD, token(), token(), usage + LAST))
    assert (ints(record.read_tokens), record.tokens_by) == ([2, 3], "usage")
    assert (record.counted_tokens, record.output_tokens, record.input_tokens) == (2, 5, 3)


def test_nothing_but_events_to_count() -> None:
    record = record_of(exchange_of(HEAD, token(), token(), LAST))
    assert (record.tokens_by, record.output_tokens, record.counted_tokens) == ("events", None, 2)


def test_details_of_the_usage() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    record = record_of(exchange_of(HEAD, token(), chunk({"choices": [], "usage": usage}) + LAST))
    assert (record.cached_tokens, record.reasoning_tokens) == (4, 1)


def test_reasoning_is_not_visible() -> None:
    thought = chunk({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    said = chunk({"choices": [{"delta": {"content": "x"}}]})
    record = record_of(exchange_of(HEAD, thought, said, LAST), "chat")
    assert (ints(record.read_at), record.visible_at) == ([2000, 3000], 3000)


def test_a_whole_answer_comes_with_its_last_byte() -> None:
    body = orjson.dumps({"choices": [{"text": "hello"}], "usage": {"completion_tokens": 8}})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    record = record_of(exchange_of(head, body[:9], body[9:]), keep_text=True)
    assert (ints(record.read_at), ints(record.read_tokens), ints(record.read_slack)) == ([3000], [8], [0])
    assert (record.tokens_by, record.answer, record.events) == ("usage", "hello", 1)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_cut_stream_keeps_its_tokens() -> None:
    record = record_of(exchange_of(HEAD, token(), token()[:-8], outcome="cut"))
    assert (record.outcome, ints(record.read_tokens), record.ended_at) == ("cut", [1], 10**6)


def test_an_error_in_mid_stream_is_a_bad_answer() -> None:
    record = record_of(exchange_of(HEAD, token(), chunk({"error": {"message": "out of memory"}}), LAST))
    assert (record.outcome, record.error) == ("bad", "out of memory")
    assert ints(record.read_tokens) == [1]


def test_no_token_is_a_bad_answer() -> None:
    record = record_of(exchange_of(HEAD, chunk({"choices": [{"text": ""}]}), chunk(b"[DONE]"), LAST))
    assert (record.outcome, record.error) == ("bad", "the answer carries no token")


def test_html_instead_of_an_api() -> None:
    page = b"<html>Welcome</html>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)
    record = record_of(exchange_of(head + page))
    assert record.outcome == "bad"
    assert "<html>" in record.error


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error":{"message":"slow down"}}', "slow down"),
        (b"<html>busy</html>", "<html>busy</html>"),
        (b"", None),
    ],
)
@pytest.mark.parametrize(("after", "after_s"), [("2", 2.0), ("1.5", 1.5), ("Wed, 21 Oct 2026 07:28:00 GMT", None)])
def test_a_status_with_retry_after(body: bytes, error: str | None, after: str, after_s: float | None) -> None:
    head = f"HTTP/1.1 429 Too Many\r\nretry-after: {after}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    record = record_of(exchange_of(head + body, outcome="status"))
    assert (record.outcome, record.status, record.error, record.retry_after_s) == ("status", 429, error, after_s)
    assert (record.read_at, record.ended_at) == (b"", 1000)


@pytest.mark.parametrize(("end", "outcome"), [(b"", "cut"), (b"data: [DONE]\n\n", "ok")])
def test_a_stream_that_only_the_connection_ends_needs_its_end_mark(end: bytes, outcome: str) -> None:
    event = b'data: {"choices":[{"text":"x"}]}\n\n'
    record = record_of(exchange_of(UNTIL_CLOSE, event, *([end] if end else [])))
    assert record.outcome == outcome
    assert ints(record.read_tokens) == [1]


def test_no_answer_at_all() -> None:
    exchange = exchange_of(outcome="connect")
    exchange.sent_at, exchange.error = None, "Connection refused"
    record = record_of(exchange)
    assert (record.outcome, record.error, record.sent_at, record.ended_at) == (
        "connect",
        "Connection refused",
        None,
        10**6,
    )


def test_odd_documents_make_records_that_can_be_read_back(tmp_path: Path) -> None:
    """A server may put numbers where texts belong, and the other way round: the log must stay readable."""
    odd = {"id": 7, "choices": [{"text": "x", "finish_reason": 3}], "usage": {"completion_tokens": "many"}}
    usage = {"choices": [], "usage": {"prompt_tokens": 1.5, "completion_tokens": True, "prompt_tokens_details": [1]}}
    record = record_of(exchange_of(HEAD, chunk(odd), chunk(usage), LAST))
    with LogWriter(tmp_path / "log") as log:
        log.append(record)
    [back] = read_log(tmp_path / "log").records
    assert (back.request_id, back.finish_reason, back.output_tokens, back.input_tokens) == ("7", "3", None, None)


# -- what no server should send ---------------------------------------------------------------------------------------

DEEP = b"[" * 300 + b"]" * 300
DEEPER = b"[" * 1000 + b"]" * 1000


def running(total, text="x"):
    usage = b'{"prompt_tokens":1,"total_tokens":%d,"completion_tokens":%d}' % (total, total)
    return chunk(b'{"choices":[{"text":"%b","finish_reason":null}],"usage":%b}' % (text.encode(), usage))


def kept(tmp_path: Path, record):
    """As it comes back from the log, beside another one."""
    with LogWriter(tmp_path / "log") as log:
        log.append(record)
        log.append(Record(session=1, scheduled_at=0))
    back, other = read_log(tmp_path / "log").records
    assert other.session == 1
    assert len(read_logs([tmp_path / "log"])[0]) == 2
    return back


@pytest.mark.parametrize("keep_text", [False, True])
@pytest.mark.parametrize(
    "totals",
    [
        [2**62, 1, 2**62, 1] * 20,
        [10**15 - 1, 0] * 10_000,  # each one fits, their sum does not
        [2**64 - 1] * 20,
        [1, 2, 3, 10**14] + [10**14] * 20,
    ],
    ids=["larger than a count", "sum", "unsigned", "one"],
)
def test_a_running_usage_that_overflows_is_one_bad_record(tmp_path: Path, totals, keep_text: bool):
    record = record_of(exchange_of(HEAD, *map(running, totals), LAST), keep_text=keep_text)
    assert (record.outcome, record.read_at, record.counted_tokens) == ("bad", b"", 0)
    assert "more than any answer has" in record.error
    assert kept(tmp_path, record).outcome == "bad"


@pytest.mark.parametrize(
    ("api", "event", "error"),
    [
        ("completions", b'{"choices":[{"text":"x","finish_reason":["stop"]}]}', "is a list"),
        ("chat", b'{"choices":[{"delta":{"content":"x"},"finish_reason":{"a":1}}]}', "is an object"),
        ("anthropic", b'{"type":"message_delta","delta":{"stop_reason":["x"]}}', "is a list"),
        ("tgi", b'{"token":{"text":"x"},"details":{"finish_reason":["eos"]}}', "is a list"),
        ("template", b'{"text":"x","done_reason":["stop"]}', "is a list"),
        ("template", b'{"token":{"text":["x"]}}', "a text is a list"),
        ("completions", b'{"id":%b,"choices":[{"text":"x"}]}' % DEEPER, "a finish reason or an id is a list"),
        ("completions", b'{"choices":[{"text":7}]}', '"text":7'),
        ("chat", b'{"choices":[{"delta":{"content":["x"]}}]}', '"content":["x"]'),
        ("anthropic", b'{"type":"content_block_start","content_block":{"text":7}}', "a text is a number"),
        ("responses", b'{"type":"response.output_text.delta","delta":{}}', '"delta":{}'),
        ("chat", DEEP, "nested too deep"),
        ("chat", b'{"error":%b}' % DEEP, "nested too deep"),
        ("template", b'{"error":{"message":%b}}' % DEEPER, "nested too deep"),
        ("chat", b"[" * 10_000, "not JSON"),
    ],
)
def test_an_event_of_another_form_is_one_bad_record(tmp_path: Path, api: str, event, error: str):
    record = record_of(exchange_of(HEAD, chunk(event), LAST), api, keep_text=True)
    assert record.outcome == "bad"
    assert error in record.error
    assert kept(tmp_path, record) == record


def test_a_document_that_is_nested_is_searched_as_far_as_makes_sense() -> None:
    event = b'{"a":' * 900 + b'"x"' + b"}" * 900
    record = record_of(exchange_of(HEAD, chunk(event), chunk(b'{"text":"x"}'), LAST), "template")
    assert (record.outcome, ints(record.read_tokens)) == ("ok", [1])


def test_an_error_body_that_is_nested_without_end() -> None:
    body = b'{"error":%b}' % DEEP
    head = b"HTTP/1.1 500 Oh\r\nretry-after: \xb2\r\ncontent-length: %d\r\n\r\n" % len(body)
    record = record_of(exchange_of(head + body, outcome="status"))
    assert (record.outcome, record.status, record.retry_after_s) == ("status", 500, None)
    assert "nested too deep" in record.error


def test_a_finish_reason_and_an_id_have_a_length(tmp_path: Path) -> None:
    event = {"id": "i" * 10**6, "choices": [{"text": "x", "finish_reason": "r" * 10**6}]}
    record = record_of(exchange_of(HEAD, chunk(event), LAST))
    assert (record.outcome, len(record.request_id), len(record.finish_reason)) == ("ok", 1000, 1000)


def test_a_dialect_that_fails_ends_no_run() -> None:
    """Even one with a mistake of ours: here its last word on an answer is no text."""

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError(f"no {name}")

    record = Record(session=0, scheduled_at=0)
    assert read_answer(record, exchange_of(HEAD, token(), LAST), Broken(), OFFSET) == ""  # type: ignore[arg-type]
    assert (record.outcome, record.status) == ("bad", 200)
    assert record.error.startswith("RuntimeError: no ")
    cancelled = Record(session=0, scheduled_at=0)
    read_answer(cancelled, exchange_of(HEAD, token(), outcome="cancelled"), Broken(), OFFSET)  # type: ignore[arg-type]
    assert (cancelled.outcome, cancelled.error) == ("cancelled", None)


@pytest.mark.parametrize("kind", [b"text/event-stream", b"Text/Event-Stream", b"TEXT/EVENT-STREAM;charset=UTF-8"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_stream_by_another_spelling_is_read_as_one(kind: bytes, start: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\n" % kind
    events = [b'data: {"choices":[{"text":"%d"}]}\n\n' % number for number in range(3)]
    record = record_of(exchange_of(head, start + events[0], *events[1:], b"data: [DONE]\n\n"), keep_text=True)
    assert (record.outcome, record.answer, record.events) == ("ok", "012", 4)
    assert (ints(record.read_at), ints(record.read_tokens)) == ([2000, 3000, 4000], [1, 1, 1])


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_document_with_a_mark_of_its_byte_order(kind: str) -> None:
    body = b'\xef\xbb\xbf{"text":"hello","choices":[{"text":"hello"}]}'
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    for api in ("completions", "template"):
        assert record_of(exchange_of(head, body), api, keep_text=True).answer == "hello"


FAILED = [
    b'data: {"error":{"message":"out of memory","code":500}}\n\n',
    b'data: {"error":"out of memory"}\n\n',
    b'event: error\ndata: {"message":"out of memory"}\n\n',
    b'event:error\ndata: {"error":{"message":"out of memory"}}\n\n',
    b"event: error\ndata: out of memory\n\n",
    b'error: {"code":500,"message":"out of memory"}\n\n',  # llama.cpp
    # OpenRouter: with choices beside it
    b'data: {"id":"g","error":{"message":"out of memory"},"choices":[{"index":0,"text":"x","delta":{"content":"x"},'
    b'"finish_reason":"error"}],"type":"ping","token":{"text":"x"}}\n\n',
]


@pytest.mark.parametrize("failed", FAILED)
@pytest.mark.parametrize("api", [name for name in APIS if api_of(name).generates])
@pytest.mark.parametrize("outcome", ["ok", "cut"])
def test_a_stream_that_says_that_it_failed_is_a_failure(api, failed: bytes, outcome: str):
    """In every dialect, though the end mark follows, and though the connection breaks behind it."""
    reads = [HEAD, b"%x\r\n%b\r\n" % (len(failed), failed), chunk(b"[DONE]"), LAST]
    record = record_of(exchange_of(*reads[: None if outcome == "ok" else 2], outcome=outcome), api)
    assert (record.outcome, record.error) == ("bad", "out of memory")


def test_the_failure_that_a_server_tells_comes_before_what_is_odd() -> None:
    odd, failed = chunk(b"<oops>"), chunk({"error": {"message": "out of memory"}})
    assert record_of(exchange_of(HEAD, odd, failed, failed, LAST)).error == "out of memory"
    assert record_of(exchange_of(HEAD, failed, odd, LAST)).error == "out of memory"


def test_an_error_that_is_none_is_no_failure() -> None:
    event = {"error": None, "choices": [{"text": "x"}]}
    assert record_of(exchange_of(HEAD, chunk(event), LAST)).outcome == "ok"
    words = b'data: {"choices":[{"text":"error: event: error"}]}\n\n'
    assert record_of(exchange_of(UNTIL_CLOSE, b"event: token\n" + words, b"data: [DONE]\n\n")).outcome == "ok"


# -- tokens counted on the way ---------------------------------------------------------------------------------------


def reached_with(reads, most):
    """The number of the read with which so many tokens had come, as a connection asks."""
    counting, exchange = StreamTokens(api_of("completions")), exchange_of(reads[0])
    for number in range(len(reads)):
        exchange.reads = list(reads[: number + 1])
        exchange.head = parse_head(b"".join(exchange.reads))
        if counting.reaches(exchange, most):
            return number
    return None


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_tokens_are_counted_however_the_stream_is_cut_into_reads(size: int) -> None:
    empty = chunk({"choices": [{"text": ""}]})
    head, third = HEAD + empty + token() * 2, token()
    data = head + third + token() * 5 + LAST
    reads = [data[at : at + size] for at in range(0, len(data), size)]
    assert reached_with(reads, 3) == (len(head + third.removesuffix(b"\r\n")) - 1) // size
    assert reached_with(reads, 9) is None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_tokens_are_counted_in_any_framing(size: int, chunked: bool, end: str) -> None:
    events = (b'data: {"choices":[{"text":"x"}]}\n\n' * 5).replace(b"\n", end.encode()) + b": the end"
    data = HEAD + b"%x;a=b\r\n%b\r\n" % (len(events), events) + LAST if chunked else UNTIL_CLOSE + events
    reads = [data[at : at + size] for at in range(0, len(data), size)]
    assert reached_with(reads, 5) is not None
    assert reached_with(reads, 6) is None


@pytest.mark.parametrize("framing", [b"100000\r\n%b\r\n", b"a\r\n{{{{{{{{{{\r\n" * (1 << 16) + b"%.0b"])
def test_counting_keeps_nothing_of_an_event_without_end(framing: bytes) -> None:
    """What is kept is looked at again with every read: in endless events, more and more of it."""
    counting, exchange = StreamTokens(api_of("completions")), exchange_of(HEAD + b"7\r\ndata: {\r\n")
    piece = framing % (b"{" * (1 << 20))
    tracemalloc.start()
    try:
        for _ in range(12):
            exchange.reads.append(piece)
            assert not counting.reaches(exchange, 1)
        kept, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3 << 20


def test_running_usage_counts_several_tokens_of_an_event_and_a_finished_answer_stays() -> None:
    three = chunk({"choices": [{"text": "a b c"}], "usage": {"prompt_tokens": 1, "completion_tokens": 3}})
    last = chunk({"choices": [{"text": "d", "finish_reason": "stop"}], "usage": {"completion_tokens": 4}})
    assert reached_with([HEAD, three, last], 3) == 1
    assert reached_with([HEAD, three, last], 4) is None


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_a_compressed_answer_is_named_as_such(kind: bytes) -> None:
    body = b"\x1f\x8b\x08" + bytes(range(200))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-encoding: gzip\r\n" % kind
    record = record_of(exchange_of(head + b"content-length: %d\r\n\r\n%b" % (len(body), body)))
    assert (record.outcome, record.error) == ("bad", "the answer is compressed (gzip), which was not requested")
