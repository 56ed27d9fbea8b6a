"""From exchanges to records: how sure instants are, and what failures say."""

import numpy as np
import orjson
import pytest

from inferometer.load.answer import read_answer
from inferometer.record.log import LogWriter, read_log
from inferometer.record.record import Record
from inferometer.wire.api import api_of
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import parse_head
from inferometer.wire.stamps import STAMP

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


def exchange_of(*reads, at=None, outcome="ok", since=()):
    """Reads with kernel stamps 1000 ns apart, from 1000 on, unless said otherwise."""
    exchange = Exchange(None, b"request", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome = SENT, 10**6, outcome
    exchange.reads = list(reads)
    instants = at or [1000 * (number + 1) for number in range(len(reads))]
    exchange.stamps = [STAMP.pack(*divmod(instant + OFFSET, 10**9)) for instant in instants]
    exchange.since = list(since)
    exchange.kernel = not since
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


def test_a_read_with_one_event_is_exact():
    record = record_of(exchange_of(HEAD, token(), token(), LAST))
    assert (ints(record.read_at), ints(record.read_slack)) == ([2000, 3000], [0, 0])


def test_one_event_is_exact_with_the_head_before_it_and_in_two_reads():
    record = record_of(exchange_of(HEAD + token(), token()[:9], token()[9:], LAST))
    assert (ints(record.read_at), ints(record.read_slack)) == ([1000, 3000], [0, 0])


def test_an_event_whose_chunk_lacks_its_end_is_exact():
    record = record_of(exchange_of(HEAD, token()[:-2], b"\r\n" + token(), LAST))
    assert ints(record.read_slack) == [0, 0]


def test_several_events_may_have_come_since_the_read_before():
    record = record_of(exchange_of(HEAD, token() * 3, LAST, at=[1000, 4000, 5000]))
    assert (ints(record.read_tokens), ints(record.read_slack)) == ([3], [3000])


def test_an_event_with_more_behind_it_may_have_come_since_the_read_before():
    record = record_of(exchange_of(HEAD, token() + token()[:5], token()[5:] + LAST))
    assert ints(record.read_slack) == [1000, 1000]


def test_the_first_read_goes_back_to_the_sending():
    record = record_of(exchange_of(HEAD + token() * 2, LAST))
    assert ints(record.read_slack) == [1000 - SENT]


def test_events_without_tokens_make_nothing_uncertain():
    role = chunk({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    first = chunk({"choices": [{"delta": {"content": "x"}}]})
    record = record_of(exchange_of(HEAD, role + first, LAST), "chat")
    assert (ints(record.read_tokens), ints(record.read_slack)) == ([1], [0])


def test_own_stamps_go_back_to_the_poll_before():
    record = record_of(exchange_of(HEAD, token(), token() * 2, LAST, since=[100, 1700, 2900, 3500]))
    assert ints(record.read_slack) == [300, 100]


def test_a_single_missing_kernel_stamp():
    """Only that read is uncertain back to the poll before."""
    record = record_of(exchange_of(HEAD, token(), token(), LAST, since=[0, 0, 2400]))
    assert ints(record.read_slack) == [0, 600]


def test_a_stamp_before_the_sending_is_not_negative_slack():
    record = record_of(exchange_of(HEAD + token() * 2, LAST, at=[SENT - 50, 2000]))
    assert ints(record.read_slack) == [0]


# -- instants and tokens ----------------------------------------------------------------------------------------------


def test_the_instants_of_a_complete_answer():
    record = record_of(exchange_of(HEAD[:20], HEAD[20:], token(), chunk(b"[DONE]") + LAST))
    assert (record.sent_at, record.headers_at, record.visible_at, record.ended_at) == (SENT, 2000, 3000, 4000)
    assert (record.outcome, record.status, record.events) == ("ok", 200, 2)
    assert record.bytes_sent == len(b"request")


def test_usage_scales_what_was_counted():
    usage = chunk({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
    record = record_of(exchange_of(HEAD, token(), token(), usage + LAST))
    assert (ints(record.read_tokens), record.tokens_by) == ([2, 3], "usage")
    assert (record.counted_tokens, record.output_tokens, record.input_tokens) == (2, 5, 3)


def test_nothing_but_events_to_count():
    record = record_of(exchange_of(HEAD, token(), token(), LAST))
    assert (record.tokens_by, record.output_tokens, record.counted_tokens) == ("events", None, 2)


def test_details_of_the_usage():
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    record = record_of(exchange_of(HEAD, token(), chunk({"choices": [], "usage": usage}) + LAST))
    assert (record.cached_tokens, record.reasoning_tokens) == (4, 1)


def test_reasoning_is_not_visible():
    thought = chunk({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    said = chunk({"choices": [{"delta": {"content": "x"}}]})
    record = record_of(exchange_of(HEAD, thought, said, LAST), "chat")
    assert (ints(record.read_at), record.visible_at) == ([2000, 3000], 3000)


def test_a_whole_answer_comes_with_its_last_byte():
    body = orjson.dumps({"choices": [{"text": "hello"}], "usage": {"completion_tokens": 8}})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    record = record_of(exchange_of(head, body[:9], body[9:]), keep_text=True)
    assert (ints(record.read_at), ints(record.read_tokens), ints(record.read_slack)) == ([3000], [8], [0])
    assert (record.tokens_by, record.answer, record.events) == ("usage", "hello", 1)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_cut_stream_keeps_its_tokens():
    record = record_of(exchange_of(HEAD, token(), token()[:-8], outcome="cut"))
    assert (record.outcome, ints(record.read_tokens), record.ended_at) == ("cut", [1], 10**6)


def test_an_error_in_mid_stream_is_a_bad_answer():
    record = record_of(exchange_of(HEAD, token(), chunk({"error": {"message": "out of memory"}}), LAST))
    assert (record.outcome, record.error) == ("bad", "out of memory")
    assert ints(record.read_tokens) == [1]


def test_no_token_is_a_bad_answer():
    record = record_of(exchange_of(HEAD, chunk({"choices": [{"text": ""}]}), chunk(b"[DONE]"), LAST))
    assert (record.outcome, record.error) == ("bad", "the answer carries no token")


def test_html_instead_of_an_api():
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
def test_a_status_with_retry_after(body, error, after, after_s):
    head = f"HTTP/1.1 429 Too Many\r\nretry-after: {after}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    record = record_of(exchange_of(head + body, outcome="status"))
    assert (record.outcome, record.status, record.error, record.retry_after_s) == ("status", 429, error, after_s)
    assert (record.read_at, record.ended_at) == (b"", 1000)


@pytest.mark.parametrize(("end", "outcome"), [(b"", "cut"), (b"data: [DONE]\n\n", "ok")])
def test_a_stream_that_only_the_connection_ends_needs_its_end_mark(end, outcome):
    event = b'data: {"choices":[{"text":"x"}]}\n\n'
    record = record_of(exchange_of(UNTIL_CLOSE, event, *([end] if end else [])))
    assert record.outcome == outcome
    assert ints(record.read_tokens) == [1]


def test_no_answer_at_all():
    exchange = exchange_of(outcome="connect")
    exchange.sent_at, exchange.error = None, "Connection refused"
    record = record_of(exchange)
    assert (record.outcome, record.error, record.sent_at, record.ended_at) == (
        "connect",
        "Connection refused",
        None,
        10**6,
    )


def test_odd_documents_make_records_that_can_be_read_back(tmp_path):
    """A server may put numbers where texts belong, and the other way round: the log must stay readable."""
    odd = {"id": 7, "choices": [{"text": "x", "finish_reason": 3}], "usage": {"completion_tokens": "many"}}
    usage = {"choices": [], "usage": {"prompt_tokens": 1.5, "completion_tokens": True, "prompt_tokens_details": [1]}}
    record = record_of(exchange_of(HEAD, chunk(odd), chunk(usage), LAST))
    with LogWriter(tmp_path / "log") as log:
        log.append(record)
    [back] = read_log(tmp_path / "log").records
    assert (back.request_id, back.finish_reason, back.output_tokens, back.input_tokens) == ("7", "3", None, None)
