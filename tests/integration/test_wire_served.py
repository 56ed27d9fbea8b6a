"""The small HTTP server: what it refuses, the order of its answers, and clients that leave."""

import socket
from typing import Any

import pytest
from loops import GET, Loop
from talkers import hello


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
    ],
)
def test_what_the_server_refuses(loop: Loop, request_bytes: bytes, status: int) -> None:
    exchange = loop.fetch(loop.client(loop.serve(hello)), request_bytes)
    assert (exchange.outcome, exchange.head.status) == ("status", status)


def test_requests_in_one_packet_are_answered_in_order(loop: Loop) -> None:
    server = loop.serve(hello)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.send(GET.replace(b"/ ", b"/a ") + GET.replace(b"/ ", b"/b ")[:20])
        client.send(GET.replace(b"/ ", b"/b ")[20:])
        client.setblocking(False)
        got = bytearray()

        def read(_events):
            got.extend(client.recv(9999))

        loop.reactor.watch(client.fileno(), read)
        loop.until(lambda: got.count(b'"path"') == 2)
        loop.reactor.unwatch(client.fileno())
    assert got.index(b'"/a"') < got.index(b'"/b"')


def test_the_server_hears_that_a_client_left(loop: Loop) -> None:
    left, replies = [], []

    def handler(_request, reply):
        reply.start()
        reply.on_close = lambda: left.append(reply.closed)
        replies.append(reply)

    client = loop.client(loop.serve(handler))
    ended: list[Any] = []
    exchange = client.fetch(GET, ended.append)
    loop.until(lambda: exchange.reads_so_far)
    exchange.end("cancelled")
    loop.until(lambda: left)
    assert left == [True]
    replies[0].write(b"into the void")


def test_what_the_socket_does_not_take_is_sent_later(loop: Loop) -> None:
    def handler(_request, reply):
        reply.start(200, {"content-type": "text/plain"})
        for _ in range(20):
            reply.write(b"y" * 500_000)
        reply.end()

    exchange = loop.fetch(loop.client(loop.serve(handler)))
    assert exchange.outcome == "ok"
    assert sum(map(len, exchange.reads)) > 10_000_000
