"""Failing exchanges: connections that die, are refused or stay silent, and invalid answers."""

import errno
import resource
import socket
from contextlib import closing
from typing import Any

import pytest
from loops import GET, Loop
from talkers import EVENT, WHOLE, Talker, hello, unused_port

from inferometer.wire.reactor import now


def test_a_connection_that_died_after_its_answer_is_not_used(loop: Loop) -> None:
    server = loop.serve(hello)
    client = loop.client(server)
    loop.fetch(client)
    for connection in list(server.connections):
        connection.drop()
    loop.until(lambda: not client._idle)
    exchange = loop.fetch(client)
    assert (exchange.outcome, exchange.retry_ns, client.opened) == ("ok", 0, 2)


def test_a_connection_that_dies_as_the_next_request_comes_is_replaced_once(loop: Loop, talker: Talker) -> None:
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, talker.hang_up, fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    exchange = loop.fetch(client)
    assert exchange.outcome == "ok"
    assert exchange.retry_ns > 0
    assert client.opened == 2
    assert exchange.started_at + exchange.retry_ns <= exchange.sent_at, "of the attempt that was answered"
    assert exchange.connect_ns > 0


def test_one_reset_as_the_next_request_comes_too(loop: Loop, talker: Talker) -> None:
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, talker.say(b"", reset=True), fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    exchange = loop.fetch(client)
    assert (exchange.outcome, exchange.retry_ns > 0) == ("ok", True)


def test_a_second_death_is_a_failure(loop: Loop, talker: Talker) -> None:
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, talker.hang_up, talker.hang_up, fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    exchange = loop.fetch(client)
    assert (exchange.outcome, exchange.error) == ("connect", "the server closed the connection")
    assert exchange.retry_ns > 0


def test_a_fresh_connection_that_dies_is_not_tried_again(loop: Loop, talker: Talker) -> None:
    talker.deeds = [talker.hang_up]
    exchange = loop.fetch(loop.client(talker.port))
    assert (exchange.outcome, exchange.retry_ns, talker.connections) == ("connect", 0, 1)


def test_refused(loop: Loop) -> None:
    exchange = loop.fetch(loop.client(unused_port()))
    assert (exchange.outcome, exchange.error, exchange.sent_at) == ("connect", "Connection refused", None)
    assert exchange.connect_ns > 0


def test_the_next_address_is_tried(loop: Loop) -> None:
    server = loop.serve(hello)
    client = loop.client(server)
    client.addresses = [(socket.AF_INET, ("127.0.0.1", unused_port())), *client.addresses]
    assert loop.fetch(client).outcome == "ok"


def test_no_connection_in_time(loop: Loop) -> None:
    """A listener whose queue is full does not answer."""
    with socket.socket() as listener, closing(socket.socket()) as first, closing(socket.socket()) as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        client = loop.client(listener.getsockname()[1], connect_timeout_s=0.05)
        exchanges = loop.fetch(client, count=3)
        assert {(each.outcome, each.error) for each in exchanges} == {("connect", "no connection within 0.05 s")}


def test_out_of_descriptors(loop: Loop) -> None:
    """What fails at once fails from the loop, and others go on."""
    server = loop.serve(hello)
    client = loop.client(server)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        limit = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        exchange = loop.fetch(client)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (exchange.outcome, exchange.error) == ("client", "Too many open files")
    assert loop.fetch(client).outcome == "ok"


def test_ended_before_a_failure_was_told(loop: Loop, monkeypatch):
    """Whoever gives up while a failure is on its way hears of one end, not of two."""

    class NoSocket(socket.socket):
        def connect_ex(self, _address):
            return errno.ENETUNREACH

    monkeypatch.setattr(socket, "socket", NoSocket)
    ended: list[Any] = []
    exchange = loop.client("http://127.0.0.1:9").fetch(GET, ended.append)
    assert ended == []
    exchange.end("cancelled")
    loop.reactor.call_at(now() + 2_000_000, loop.reactor.stop)
    loop.reactor.run()
    assert [each.outcome for each in ended] == ["cancelled"]


def test_a_request_that_takes_too_long(loop: Loop) -> None:
    def handler(request, reply):
        if request.path == "/slow":
            reply.start()
            reply.write(EVENT)
        else:
            hello(request, reply)

    client = loop.client(loop.serve(handler), request_timeout_s=0.06)
    exchange = loop.fetch(client, GET.replace(b"/ ", b"/slow "))
    assert (exchange.outcome, exchange.error) == ("timeout", "no complete answer within 0.06 s")
    assert exchange.ended_at - exchange.started_at >= 60_000_000
    assert exchange.received
    assert loop.fetch(client).outcome == "ok"
    assert client.opened == 2, "the connection of the late answer is not used again"


def test_time_limits_expire_one_by_one(loop: Loop) -> None:
    """The first timer is for the oldest; the others follow, also after the oldest was answered."""
    replies: list[Any] = []

    def handler(request, reply):
        if len(replies) == 0:
            hello(request, reply)
        replies.append(reply)

    client = loop.client(loop.serve(handler), request_timeout_s=0.25)
    exchanges = loop.fetch(client, count=3)
    assert sorted(each.outcome for each in exchanges) == ["ok", "timeout", "timeout"]


def test_silence(loop: Loop) -> None:
    """Of two streams the one that falls silent is ended, the one that goes on is not."""

    def handler(request, reply):
        reply.start()
        if request.path == "/silent":
            return

        def go_on(left):
            reply.write(EVENT)
            if left:
                loop.reactor.call_at(now() + 10_000_000, lambda: go_on(left - 1))
            else:
                reply.end()

        go_on(30)

    client = loop.client(loop.serve(handler), idle_timeout_s=0.1)
    ended: list[Any] = []
    silent = client.fetch(GET.replace(b"/ ", b"/silent "), ended.append)
    steady = client.fetch(GET, ended.append)
    loop.until(lambda: len(ended) == 2)
    assert (silent.outcome, silent.error) == ("timeout", "silent for 0.1 s")
    assert steady.outcome == "ok"


def test_a_cut_stream(loop: Loop) -> None:
    def handler(_request, reply):
        reply.start()
        reply.write(EVENT)
        reply.close()

    exchange = loop.fetch(loop.client(loop.serve(handler)))
    assert (exchange.outcome, exchange.error) == ("cut", "the server closed the connection")
    assert EVENT in b"".join(exchange.reads)


def test_a_cut_in_a_body_of_known_length(loop: Loop, talker: Talker) -> None:
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", then_close=True)]
    assert loop.fetch(loop.client(talker.port)).outcome == "cut"


def test_a_reset_stream(loop: Loop) -> None:
    def handler(_request, reply):
        reply.start()
        reply.write(EVENT)
        loop.reactor.call_at(now() + 3_000_000, reply.abort)

    exchange = loop.fetch(loop.client(loop.serve(handler)))
    assert exchange.outcome == "cut"
    assert exchange.error in ("Connection reset by peer", "the server closed the connection")


def test_half_a_head_is_no_answer(loop: Loop, talker: Talker) -> None:
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-", then_close=True)]
    assert loop.fetch(loop.client(talker.port)).outcome == "connect"


@pytest.mark.parametrize("data", [b"220 smtp.example ESMTP\r\n", b"\x16\x03\x01\x02", b"SSH-2.0-OpenSSH_9\r\n"])
def test_not_http(loop: Loop, talker: Talker, data: bytes) -> None:
    talker.deeds = [talker.say(data)]
    exchange = loop.fetch(loop.client(talker.port))
    assert exchange.outcome == "bad"
    assert "not an HTTP answer" in exchange.error


def test_broken_framing_ends_the_exchange_at_once(loop: Loop, talker: Talker) -> None:
    talker.deeds = [talker.say(WHOLE + b"5\r\nhello\r\nno size\r\nhello\r\n\r\n")]
    exchange = loop.fetch(loop.client(talker.port))
    assert exchange.outcome == "bad"
    assert "broken chunk framing" in exchange.error


def test_words_that_nobody_asked_for_close_the_connection(loop: Loop, talker: Talker) -> None:
    """Such as the 408 of a server that got tired of an idle connection."""
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    talker.open[0].send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    loop.until(lambda: not client._idle)
    assert loop.fetch(client).outcome == "ok"
    assert client.opened == 2


def test_ending_is_once_and_for_all(loop: Loop) -> None:
    client = loop.client(loop.serve(lambda _request, reply: reply.start()))
    ended: list[Any] = []
    exchange = client.fetch(GET, ended.append)
    loop.until(lambda: exchange.reads_so_far)
    exchange.end("cancelled")
    exchange.end("timeout", "late")
    client.close()
    assert (len(ended), exchange.outcome, exchange.error) == (1, "cancelled", None)


def test_closing_the_client_ends_what_is_under_way(loop: Loop) -> None:
    client = loop.client(loop.serve(lambda _request, reply: reply.start()), request_timeout_s=5, idle_timeout_s=5)
    ended: list[Any] = []
    exchanges = [client.fetch(GET, ended.append) for _ in range(3)]
    loop.until(lambda: all(each.reads_so_far for each in exchanges))
    client.close()
    assert [each.outcome for each in ended] == ["cancelled"] * 3
