"""The client with correct and misbehaving servers, over loopback."""

import socket
from typing import Any

import pytest
from loops import GET, Loop
from talkers import EVENT, Talker, hello, stream, unused_port

from inferometer.load.answer import kernel_stamped, read_answer, read_ends_of, stamps_of
from inferometer.record.record import Record
from inferometer.wire.api import api_of
from inferometer.wire.origin import READ_SIZE
from inferometer.wire.reactor import now
from inferometer.wire.sockets import LEFT, MARK, SO_TIMESTAMPNS, UNPROVEN, kernel_stamps, read_offset


def test_answers_are_kept_byte_for_byte(loop: Loop) -> None:
    client = loop.client(loop.serve(stream(200)))
    exchange = loop.fetch(client)
    assert exchange.outcome == "ok"
    assert exchange.raw.endswith(b"\r\n0\r\n\r\n")
    assert exchange.raw.count(EVENT) == 200
    assert len(stamps_of(exchange, 0)) == len(read_ends_of(exchange))
    assert read_ends_of(exchange)[-1] == len(exchange.raw)


def test_a_connection_is_used_again(loop: Loop) -> None:
    server = loop.serve(stream())
    client = loop.client(server)
    assert {loop.fetch(client).outcome for _ in range(5)} == {"ok"}
    assert client.opened == 1
    assert len(server.connections) == 1


def test_only_the_first_pays_for_the_connection(loop: Loop) -> None:
    client = loop.client(loop.serve(hello))
    first, second = loop.fetch(client), loop.fetch(client)
    assert first.connect_ns > 0
    assert (second.connect_ns, second.tls_ns, second.retry_ns) == (0, 0, 0)


def test_many_at_once(loop: Loop) -> None:
    client = loop.client(loop.serve(stream(10)))
    exchanges = loop.fetch(client, count=50)
    assert {exchange.outcome for exchange in exchanges} == {"ok"}
    assert client.opened == 50


def test_connections_opened_ahead_are_used(loop: Loop) -> None:
    server = loop.serve(hello)
    client = loop.client(server)
    standing = []
    client.open(3, lambda: standing.append(1))
    loop.until(lambda: len(standing) == 3)
    exchanges = loop.fetch(client, count=3)
    assert client.opened == 3
    assert all(exchange.connect_ns == 0 for exchange in exchanges)


def test_opening_ahead_tells_of_failures_too(loop: Loop) -> None:
    told = []
    client = loop.client(unused_port())
    client.open(2, lambda: told.append(1))
    loop.until(lambda: len(told) == 2)


def test_the_instants_are_in_order_and_within_the_exchange(loop: Loop) -> None:
    client = loop.client(loop.serve(stream(5)))
    before = now()
    exchange = loop.fetch(client)
    instants = stamps_of(exchange, read_offset().ns).tolist()
    slack = 200_000  # the two clocks are read one after the other
    assert before <= exchange.started_at <= exchange.sent_at <= exchange.ended_at <= now()
    assert exchange.sent_at - slack <= instants[0] <= instants[-1] <= exchange.ended_at + slack
    assert instants == sorted(instants)


def test_who_stamps(loop: Loop) -> None:
    exchange = loop.fetch(loop.client(loop.serve(stream())))
    if loop.kernel_stamps and kernel_stamps():
        assert (exchange.kernel, exchange.own) == (True, set())
    else:
        assert not exchange.kernel
        assert exchange.own == set(range(len(exchange.reads)))
    marks = MARK.iter_unpack(exchange.bulk[1]) if exchange.bulk else []
    since = exchange.since + [since for _, _, _, since in marks]
    assert len(since) == len(read_ends_of(exchange))
    assert all(since == UNPROVEN or exchange.started_at - 10**9 < since <= exchange.ended_at for since in since)


def test_what_a_read_left_behind_may_be_as_old_as_what_it_took(loop: Loop, talker: Talker) -> None:
    """A poll proves that a socket was empty only if the read before it took all there was."""
    body = b"x" * 60_000
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)]
    exchange = loop.fetch(loop.client(talker.port))
    sizes = [len(read) for read in exchange.reads]
    assert sizes[0] == READ_SIZE, "it came in one piece"
    left = [since == LEFT for since in exchange.since]
    assert left == [False] + [size == READ_SIZE for size in sizes[:-1]]


def test_stamps_that_stay_away(loop: Loop) -> None:
    """The kernel rarely gives none: then we stamp, and only those reads are less sure."""
    replies = []

    def handler(_request, reply):
        replies.append(reply)
        reply.start()

    client = loop.client(loop.serve(handler))
    ended: list[Any] = []
    exchange = client.fetch(GET, ended.append)
    for number in range(1, 5):
        loop.until(lambda number=number: exchange.reads_so_far == number)
        if number == 3:
            exchange.connection._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 0)
        replies[0].write(EVENT)
    loop.until(lambda: exchange.reads_so_far == 5)
    replies[0].end()
    loop.until(lambda: ended)
    assert exchange.outcome == "ok"
    assert len(stamps_of(exchange, 0)) == len(read_ends_of(exchange)) == 6
    stamped = loop.kernel_stamps and kernel_stamps()
    collected = [bool(own) for _, _, own, _ in MARK.iter_unpack(exchange.bulk[1])] if exchange.bulk else []
    mine = [number in exchange.own for number in range(len(exchange.reads))]
    assert mine + collected == [not stamped] * 3 + [True] * 3
    assert not kernel_stamped(exchange)
    record = Record(session=0, scheduled_at=0)
    read_answer(record, exchange, api_of("completions"), read_offset().ns)
    assert (record.outcome, record.counted_tokens) == ("ok", 4)


def test_answers_awaited_are_counted(loop: Loop) -> None:
    client = loop.client(loop.serve(stream(2)))
    client.fetch(GET, lambda _exchange: None)
    assert loop.reactor.awaited == 1
    loop.fetch(client, count=3)
    loop.until(lambda: loop.reactor.awaited == 0)


def test_a_known_length(loop: Loop, talker: Talker) -> None:
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")] * 2
    client = loop.client(talker.port)
    assert [loop.fetch(client).outcome for _ in range(2)] == ["ok", "ok"]
    assert talker.connections == 1


def test_an_empty_body(loop: Loop, talker: Talker) -> None:
    talker.deeds = [
        talker.say(b"HTTP/1.1 204 No Content\r\n\r\n"),
        talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ]
    client = loop.client(talker.port)
    assert [loop.fetch(client).outcome for _ in range(2)] == ["status", "ok"]


def test_a_body_until_the_end_of_the_connection(loop: Loop, talker: Talker) -> None:
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\n\r\n" + EVENT * 2, then_close=True)] * 2
    client = loop.client(talker.port)
    for _ in range(2):
        exchange = loop.fetch(client)
        assert (exchange.outcome, exchange.retry_ns) == ("ok", 0)
    assert client.opened == 2


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_http_1_0_and_connection_close(loop: Loop, talker: Talker, version: bytes) -> None:
    fields = b"" if version == b"1.0" else b"Connection: close\r\n"
    answer = b"HTTP/%b 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % (version, fields)
    talker.deeds = [talker.say(answer), talker.say(answer)]
    client = loop.client(talker.port)
    assert [loop.fetch(client).outcome for _ in range(2)] == ["ok", "ok"]
    assert client.opened == 2, "not kept alive"


def test_continue_comes_before_the_answer(loop: Loop) -> None:
    server = loop.serve(hello)
    body = b"x" * 10
    request = b"POST /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"
    client = loop.client(server)
    ended: list[Any] = []
    exchange = client.fetch(request, ended.append)
    loop.until(lambda: exchange.reads_so_far)
    assert exchange.reads == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    assert exchange.head is None
    exchange.connection._push(body)
    loop.until(lambda: ended)
    assert (exchange.outcome, exchange.head.status) == ("ok", 200)  # type: ignore[attr-defined]


def test_a_large_request_goes_out_in_parts(loop: Loop) -> None:
    """20 MB do not fit into any socket's buffer."""
    sizes = []

    def handler(request, reply):
        sizes.append((len(request.body), request.body[:3], request.body[-3:]))
        stream()(request, reply)

    client = loop.client(loop.serve(handler))
    body = b"abc" + b"x" * 20_000_000 + b"xyz"
    request = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(2):
        assert loop.fetch(client, request).outcome == "ok"
    assert sizes == [(len(body), b"abc", b"xyz")] * 2
    assert client.opened == 1


@pytest.mark.parametrize("hangs_up", [False, True])
def test_an_answer_before_the_whole_request_was_sent(loop: Loop, talker: Talker, hangs_up: bool) -> None:
    """A server that refuses what is too large answers, hangs up, and the answer counts."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhuge"
    talker.deeds = [talker.say(refusal, then_close=hangs_up)] * 20
    client = loop.client(talker.port)
    body = b"x" * 20_000_000
    exchange = loop.fetch(client, b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (exchange.outcome, exchange.head.status) == ("status", 413)
    assert loop.fetch(client).head.status == 413, "on a connection of its own"
    assert client.opened == 2
