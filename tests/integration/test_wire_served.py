"""The small HTTP server: what it refuses, the order of its answers, and disconnecting clients."""

import socket
from typing import Any

import pytest
from loops import GET, Loop
from talkers import hello

from inferometer.wire.server import HttpRequest, Reply


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
    ],
)
def test_what_the_server_refuses(loop: Loop, request_bytes: bytes, status: int) -> None:
    exchange = loop.fetch(loop.client(loop.serve(hello)), request_bytes)
    assert (exchange.outcome, exchange.head.status) == ("status", status)


CHUNKED = b"POST /v1 HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_body_in_chunks_is_one_body_and_the_next_request_begins_behind_it(loop: Loop, size: int) -> None:
    bodies: list[tuple[str, bytes]] = []

    def note(request: HttpRequest, reply: Reply) -> None:
        bodies.append((request.path, request.body))
        reply.respond(200, b"")

    sent = CHUNKED + b"5;a=b\r\nhello\r\nC\r\n 0\r\n\r\nworld!\r\n0\r\nx: y\r\n\r\n" + GET.replace(b"/ ", b"/next ")
    server = loop.serve(note)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        for at in range(0, len(sent), size):
            client.sendall(sent[at : at + size])
            polls = iter(range(3))
            loop.until(lambda polls=polls: next(polls) == 2)
        loop.until(lambda: len(bodies) == 2)
    assert bodies == [("/v1", b"hello 0\r\n\r\nworld!"), ("/next", b"")]


def test_a_client_that_waits_for_leave_to_send_its_chunks_gets_it_once(loop: Loop) -> None:
    bodies: list[bytes] = []

    def note(request: HttpRequest, reply: Reply) -> None:
        bodies.append(request.body)
        reply.respond(200, b"")

    server = loop.serve(note)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        client.setblocking(False)
        got = bytearray()
        loop.reactor.watch(client.fileno(), lambda _events: got.extend(client.recv(9999)))
        loop.until(lambda: got)
        client.sendall(b"2\r\nok\r\n")
        client.sendall(b"0\r\n\r\n")
        loop.until(lambda: b"200 OK" in got)
        loop.reactor.unwatch(client.fileno())
    assert bodies == [b"ok"] and got.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") and got.count(b"100 Continue") == 1


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
