"""Servers that send without end, too slowly, too much or nonsense: one record for each, in bounded time and memory,
with the compiled reader and with Python's."""

import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hostile import ANSWER, ENDLESS, EVENT, NOT_HTTP, STREAM, await_request, chunk, hostile
from loops import GET, Loop
from talkers import WHOLE, Talker
from test_wire_shard import await_done, child, job_of, log_of, report_of

from inferometer.load.answer import read_answer
from inferometer.record.record import Record
from inferometer.wire import connection
from inferometer.wire.api import api_of
from inferometer.wire.compiled import compiled
from inferometer.wire.http1 import Chunks
from inferometer.wire.origin import READ_SIZE
from inferometer.wire.reactor import now

MEBIBYTE = 1024 * 1024
GENEROUS_S = 10.0  # for what should take a second: other processes have the cores too
MOST_GROWTH = 300 * MEBIBYTE  # of a process whose answers may have 4 MiB
READERS = [
    pytest.param("compiled", marks=pytest.mark.skipif(compiled() is None, reason="the compiled reader was not built")),
    "python",
]


def peak_of(process):
    """The most memory that a process has had so far; 0 when it is gone."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


@pytest.mark.parametrize("what", ENDLESS)
def test_an_answer_without_end_is_ended_when_it_is_too_large(loop: Loop, what):
    with hostile(ENDLESS[what]) as port:
        client = loop.client(port, most_answer=2 * MEBIBYTE)
        exchange = loop.fetch(client)
        assert (exchange.outcome, exchange.error) == ("oversized", "answer larger than 2,097,152 bytes")
        assert exchange.head is not None
        assert 2 * MEBIBYTE < len(exchange.raw) + exchange.dropped < 8 * MEBIBYTE
        assert len(exchange.raw) < MEBIBYTE, "the rest is given back at once"
        assert loop.reactor.held == 0


@pytest.mark.parametrize("what", NOT_HTTP)
def test_framing_without_end_is_no_answer(loop: Loop, what):
    with hostile(NOT_HTTP[what]) as port:
        exchange = loop.fetch(loop.client(port))
    assert exchange.outcome == "bad"
    assert "not an HTTP answer" in exchange.error or "broken chunk framing" in exchange.error


@pytest.mark.parametrize("what", ["one line", "small events", "json", "headers"])
def test_the_time_limit_acts_while_bytes_pour_in(loop: Loop, what: str) -> None:
    """With room for more than can come in that time."""
    slowly = {"headers": "bad"}
    with hostile((ENDLESS | NOT_HTTP)[what]) as port:
        begun_at = now()
        client = loop.client(port, most_answer=1 << 40, request_timeout_s=0.1)
        exchange = loop.fetch(client)
    assert exchange.outcome == slowly.get(what, "timeout")
    assert now() - begun_at < GENEROUS_S * 1e9


def test_a_drip_is_ended_by_the_time_limit(loop: Loop) -> None:
    def drip(connection, _number):
        for byte in STREAM + chunk(EVENT) * 10_000:
            connection.send(bytes([byte]))
            time.sleep(0.0005)

    with hostile(drip) as port:
        exchange = loop.fetch(loop.client(port, request_timeout_s=0.3))
    assert exchange.outcome == "timeout"
    assert exchange.received


def test_all_answers_together_are_bounded_and_the_largest_goes(loop: Loop) -> None:
    """The small one, which is only waited for, is not the one that is ended."""
    small = []

    def behave(connection, number):
        if number == 0:
            connection.sendall(STREAM + chunk(EVENT))
            small.append(connection)
        else:
            ENDLESS["events"](connection, number)

    def end_largest() -> None:
        client.largest().end("oversized", "full")

    loop.reactor.most_held, loop.reactor.on_full = 8 * MEBIBYTE, end_largest
    with hostile(behave) as port:
        client = loop.client(port, most_answer=1 << 40)
        ended: list[Any] = []
        first = client.fetch(GET, ended.append)
        loop.until(lambda: first.reads_so_far)
        second = client.fetch(GET, ended.append)
        loop.until(lambda: ended)
        assert ended == [second]
        assert second.outcome == "oversized"
        assert len(second.raw) + second.dropped < 32 * MEBIBYTE
        small[0].sendall(b"0\r\n\r\n")
        loop.until(lambda: len(ended) == 2)
        assert first.outcome == "ok"
    assert loop.reactor.held == 0


def test_others_are_served_while_one_pours(loop: Loop) -> None:
    """A stream that is always ready has its turn and not more; nothing of the others is left unread."""

    def behave(connection, number):
        if number == 0:
            ENDLESS["events"](connection, number)
        for _ in range(20):
            connection.sendall(ANSWER)
            await_request(connection)

    with hostile(behave) as port:
        client = loop.client(port, most_answer=1 << 34)
        ended: list[Any] = []
        endless = client.fetch(GET, ended.append)
        loop.until(lambda: endless.reads_so_far)
        for _ in range(20):
            assert loop.fetch(client).outcome == "ok"
        assert not ended
        endless.end("cancelled")
    assert client.opened == 2


@pytest.mark.parametrize("size", [1, 3, 4, 7, 20_000, 700_000])
def test_bytes_behind_the_last_chunk(loop: Loop, talker: Talker, size: int) -> None:
    """They end nothing but the connection."""
    talker.deeds = [talker.say(ANSWER + b"x" * size), talker.say(ANSWER)]
    client = loop.client(talker.port, request_timeout_s=GENEROUS_S)
    first = loop.fetch(client)
    assert (first.outcome, first.raw) == ("ok", ANSWER)
    second = loop.fetch(client)
    assert (second.outcome, second.raw, second.retry_ns) == ("ok", ANSWER, 0)
    assert client.opened == 2


def test_bytes_behind_a_body_of_known_length(loop: Loop, talker: Talker) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    talker.deeds = [talker.say(answer + b"more"), talker.say(answer)]
    client = loop.client(talker.port)
    assert [loop.fetch(client).raw for _ in range(2)] == [answer] * 2
    assert client.opened == 2


@pytest.mark.parametrize("answer", [ANSWER, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_unsolicited_answer_is_not_the_next_ones(loop: Loop, talker: Talker, answer, at_once: bool):
    """Whether it comes with the first answer, or lies in the socket when the connection is to be used again."""
    other = ANSWER.replace(b'"x"', b'"y"')
    talker.deeds = [talker.say(answer + other if at_once else answer), talker.say(ANSWER)]
    client = loop.client(talker.port)
    assert loop.fetch(client).raw == answer
    if not at_once:
        talker.open[0].send(other)
    second = loop.fetch(client)
    assert (second.outcome, second.raw, second.retry_ns) == ("ok", ANSWER, 0)
    assert client.opened == 2


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_an_end_inside_of_a_chunk_is_none(loop: Loop, talker: Talker, pieces: int) -> None:
    """The sizes of the chunks say where an answer ends, not what is in them."""
    data = b"data: a\n\r\n0\r\n\r\n"
    raw = STREAM + chunk(data) * pieces
    talker.deeds = [talker.say(raw)]
    client = loop.client(talker.port)
    ended: list[Any] = []
    exchange = client.fetch(GET, ended.append)
    loop.until(lambda: exchange.reads_so_far)
    assert not ended
    talker.open[0].send(chunk(EVENT) + b"0\r\n\r\n")
    loop.until(lambda: ended)
    assert (exchange.outcome, exchange.raw) == ("ok", raw + chunk(EVENT) + b"0\r\n\r\n")


@pytest.mark.parametrize("odd", [b"22;x=1\r\n" + EVENT + b"\r\n", b"0022 \r\n" + EVENT + b"\r\n", b""])
@pytest.mark.parametrize("last", [b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n"])
def test_a_stream_that_turns_odd_is_followed_from_there(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, odd: bytes, last: bytes
) -> None:
    """And not again from its start, which would keep everything else waiting: no more than a read at a time."""
    fed: list[int] = []
    feed = Chunks.feed
    monkeypatch.setattr(Chunks, "feed", lambda chunks, data: (fed.append(len(data)), feed(chunks, data))[1])
    raw = STREAM + chunk(EVENT) * 10_000 + odd + chunk(EVENT) + last
    with hostile(lambda connection, _number: connection.sendall(raw)) as port:
        exchange = loop.fetch(loop.client(port))
    assert (exchange.outcome, exchange.raw == raw) == ("ok", True)
    assert max(fed, default=0) <= READ_SIZE + len(STREAM)


def test_a_read_that_ends_at_an_urgent_byte_has_not_taken_all(loop: Loop) -> None:
    """The kernel tells of what is behind it with what is before: it is told once."""

    def urgent(connection, _number):
        connection.sendall(STREAM + chunk(EVENT))
        connection.send(b"!", socket.MSG_OOB)
        connection.sendall(chunk(EVENT) + b"0\r\n\r\n")

    with hostile(urgent) as port:
        client = loop.client(port, request_timeout_s=GENEROUS_S)
        for _ in range(5):
            exchange = loop.fetch(client)
            assert (exchange.outcome, exchange.raw) == ("ok", STREAM + chunk(EVENT) * 2 + b"0\r\n\r\n")
            client = loop.client(port, request_timeout_s=GENEROUS_S)


def test_what_came_until_the_time_limit_is_taken_in_one_piece(loop: Loop) -> None:
    """An object for each read would be seconds of work where a thousand long streams end at once."""
    raw = STREAM + chunk(EVENT) * 300
    with hostile(lambda connection, _number: connection.sendall(raw)) as port:
        exchange = loop.fetch(loop.client(port, request_timeout_s=0.3))
    assert (exchange.outcome, exchange.raw, exchange.received) == ("timeout", raw, len(raw))
    assert not (exchange.bulk and exchange.reads)
    record = Record(session=0, scheduled_at=0)
    read_answer(record, exchange, api_of("completions"), 0)
    assert (record.outcome, record.status, record.counted_tokens) == ("timeout", 200, 300)
    assert sum(memoryview(record.read_tokens).cast("q")) == 300
    assert loop.reactor.held == 0


def test_an_answer_in_too_many_reads_is_too_large(loop: Loop, talker: Talker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_READS", 3)
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")]
    ended: list[Any] = []
    exchange = loop.client(talker.port).fetch(GET, ended.append)
    for reads in range(1, 4):
        loop.until(lambda reads=reads: exchange.reads_so_far == reads)
        talker.open[0].send(b"x")
    loop.until(lambda: ended)
    assert (exchange.outcome, exchange.error) == ("oversized", "answer in more than 3 reads")


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200OK",
        b"HTTP/1.1 200",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 200 O\nK",
        b"HTTP/1.1 200 O\rK",
        b"HTTP/1.1 200\tOK",
        b"HTTP/1.1 abc OK",
        b"HTTP/2 200 OK",
        b"HTTP/1.1200 OK",
        b"HTTP/1.1 200 \xff\xfe",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1",
    ],
)
def test_odd_status_lines(loop: Loop, talker: Talker, first: bytes) -> None:
    """A reason may be missing or any bytes; all else is no answer, and the next request is served."""
    sound = first in (b"HTTP/1.1 200", b"HTTP/1.1 200 \xff\xfe")
    talker.deeds = [talker.say(ANSWER.replace(b"HTTP/1.1 200 OK", first)), talker.say(ANSWER)]
    client = loop.client(talker.port)
    exchange = loop.fetch(client)
    assert exchange.outcome == ("ok" if sound else "bad")
    assert sound or "not an HTTP answer" in exchange.error
    assert loop.fetch(client).outcome == "ok"


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (b"Content-Length: -1", b"ok"),
        (b"Content-Length: \xb2", b"ok"),
        (b"Content-Length: 2, 2", b"ok"),
        (b"Content-Length: " + b"9" * 5000, b"ok"),
        (b"Transfer-Encoding: chunked", b"-1\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"ffffffffffffffffffffff\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"2\r\nokay\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"5\r\nok\r\n0\r\n\r\n\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\n" + b"a: b\r\n" * 2000, b"0\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_odd_framing(loop: Loop, talker: Talker, fields: bytes, body: bytes, kind: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n" + fields.rstrip() + b"\r\n\r\n"
    talker.deeds = [talker.say(head + body), talker.say(ANSWER)]
    client = loop.client(talker.port)
    assert loop.fetch(client).outcome == "bad"
    assert loop.fetch(client).outcome == "ok"


@pytest.mark.parametrize("fields", [b"transfer-encoding: none", b" transfer-encoding : gzip", b"X: text/event-stream"])
def test_headers_that_contradict_each_other(loop: Loop, talker: Talker, fields: bytes) -> None:
    """Both readers see the same end."""
    raw = WHOLE.replace(b"text/event-stream", b"a/b")[:-2] + fields + b"\r\nX-A: text/event-stream\r\n\r\n"
    talker.deeds = [talker.say(raw + chunk(EVENT) + b"0\r\n\r\n", then_close=True)]
    exchange = loop.fetch(loop.client(talker.port))
    assert (exchange.outcome, exchange.raw) == ("ok", raw + chunk(EVENT) + b"0\r\n\r\n")
    assert b"".join(exchange.reads) == exchange.raw, "it is no event stream: its reads are kept one by one"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", ["one line", "small events", "blank lines", "interim answers"])
def test_a_run_against_it_ends_in_time_and_memory(tmp_path: Path, monkeypatch, reader: str, what: str):
    monkeypatch.setenv("INFEROMETER_READER", reader)
    target = {"timeout": {"request": "2s"}, "bounds": {"answer": "4Mi"}}
    with hostile((ENDLESS | NOT_HTTP)[what]) as port:
        url = f"http://127.0.0.1:{port}"
        job = job_of(tmp_path, url, target=target, load={"concurrency": 2}, stop={"requests": 6})
        with child(job) as process:
            process.stdout.readline()
            before = peak_of(process)
            peak = max(peak_of(process) for _line in process.stdout)
            assert process.wait(GENEROUS_S) == 0
    possible = {"oversized", "timeout"} if what in ENDLESS else {"bad"}  # whichever comes first
    assert {record.outcome for record in log_of(tmp_path).records} <= possible
    assert len(log_of(tmp_path).records) == 6
    assert peak - before < MOST_GROWTH


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", ["one line", "small events"])
def test_an_interrupt_acts_while_bytes_pour_in(tmp_path: Path, monkeypatch, reader: str, what: str):
    """It ends the sending; what is under way ends by its bounds."""
    monkeypatch.setenv("INFEROMETER_READER", reader)
    target = {"timeout": {"request": "600s"}, "bounds": {"answer": "1Gi", "memory": "16Mi"}}
    with hostile(ENDLESS[what]) as port:
        url = f"http://127.0.0.1:{port}"
        job = job_of(tmp_path, url, target=target, load={"concurrency": 2}, stop={"duration": 600})
        with child(job) as process:
            await_done(process, 1)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            report = report_of(process)
            took_s = time.monotonic() - began
    assert report.interrupted
    assert took_s < GENEROUS_S
    records = log_of(tmp_path).records
    assert {record.outcome for record in records} == {"oversized"}
    assert "larger in total than 16,777,216 bytes" in records[0].error


@pytest.mark.parametrize("reader", READERS)
def test_a_second_interrupt_ends_what_comes_without_end(tmp_path: Path, monkeypatch, reader: str):
    """Some 20 MB/s, which would go on for a while."""
    monkeypatch.setenv("INFEROMETER_READER", reader)

    def behave(connection, _number):
        connection.sendall(STREAM)
        while True:
            connection.sendall(chunk(EVENT) * 5000)
            time.sleep(0.01)

    target = {"timeout": {"request": "600s"}, "bounds": {"answer": "4Gi"}}
    with hostile(behave) as port:
        url = f"http://127.0.0.1:{port}"
        job = job_of(tmp_path, url, target=target, load={"concurrency": 1}, stop={"duration": 600})
        with child(job) as process:
            next(line for line in process.stdout if line.startswith("load 0 1"))
            process.send_signal(signal.SIGINT)
            next(line for line in process.stdout if line.startswith("drain"))
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            report_of(process)
            took_s = time.monotonic() - began
    assert took_s < GENEROUS_S
    assert [record.outcome for record in log_of(tmp_path).records] == ["cancelled"]
