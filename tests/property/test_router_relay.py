"""The compiled and the Python relay forward the same bytes and end the same way, for any framing and reads."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.router.relay import BROKEN, CUT, DONE, SURPLUS, Relayed, compiled, relaying_reactor
from inferometer.wire.http1 import Head, parse_head
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.server import HttpRequest, HttpServer, Reply

CHUNK = st.binary(min_size=1, max_size=40)


@contextmanager
def client_of(reactor: Reactor) -> Iterator[tuple[socket.socket, Reply]]:
    """A client that has sent a request, and the reply that it waits for."""
    replies: list[Reply] = []

    def handle(_request: HttpRequest, reply: Reply) -> None:
        replies.append(reply)
        reactor.stop()

    with closing(HttpServer(reactor, handle)) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        reactor.run()
        yield client, replies[0]


def relayed(allow_compiled: bool, head: bytes, reads: list[bytes], end: bool) -> tuple[int, bytes, int]:
    """How a response that comes in these reads ends; what the client got, and how many bytes were counted."""
    ends: list[tuple[int, Relayed]] = []
    reactor, relay = relaying_reactor(allow_compiled)
    with closing(reactor), client_of(reactor) as (client, reply):
        server, replica = socket.socketpair()
        with server, replica:
            server.setblocking(False)
            reactor.watch(server.fileno(), lambda _events: None)
            parsed = parse_head(head)
            assert isinstance(parsed, Head)

            def ended(flags: int, counted: Relayed) -> None:
                ends.append((flags, counted))
                reactor.unwatch(server.fileno())
                reactor.stop()

            relay.start(server, reply, parsed, head + reads[0], len(head), ended)
            for data in reads[1:]:
                if ends:
                    break
                replica.sendall(data)
                reactor.call_at(now(), reactor.stop)
                reactor.run()
            if not ends and end:
                replica.close()
                reactor.run()
            if not ends:
                reactor.unwatch(server.fileno())
        reply.close()
        reactor.call_at(now(), reactor.stop)
        reactor.run()
        client.settimeout(5)
        got = b"".join(iter(lambda: client.recv(65536), b""))
    flags, counted = ends[0] if ends else (0, Relayed(0, 0, 0, 0))
    return flags, got.removeprefix(head), counted.bytes


def both(head: bytes, reads: list[bytes], end: bool = True) -> tuple[int, bytes, int]:
    if compiled() is None:
        pytest.skip("the compiled relay was not built")
    in_c, in_python = relayed(True, head, reads, end), relayed(False, head, reads, end)
    assert in_c == in_python
    return in_c


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in pairwise(places)] or [b""]


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CUTS = st.lists(st.integers(0, 1000), max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHUNK, max_size=6), CUTS, st.sampled_from([b"", b"x: y\r\n"]), st.sampled_from([b"", b"HTTP/1.1 200"]))
def test_chunks_are_passed_on_as_they_are(chunks: list[bytes], cuts: list[int], trailer: bytes, more: bytes) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer + b"\r\n"
    flags, got, counted = both(CHUNKED, split(body + more, cuts))
    assert (got, counted) == (body, len(body))
    assert flags & DONE
    assert not flags & SURPLUS or more


@settings(max_examples=60, deadline=None)
@given(st.lists(CHUNK, max_size=4), CUTS, st.integers(0, 500), st.integers(0, 255))
def test_broken_and_cut_framing_ends_the_same_way(chunks: list[bytes], cuts: list[int], at: int, byte: int) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    at %= len(body)
    mutated = body[:at] + bytes([byte]) + body[at + 1 :]
    flags, _got, _counted = both(CHUNKED, split(mutated, cuts))
    assert flags & (DONE | BROKEN | CUT)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200), CUTS, st.integers(-20, 20))
def test_a_length_and_the_end_of_the_connection(data: bytes, cuts: list[int], off: int) -> None:
    length = max(len(data) + off, 0)
    flags, got, _counted = both(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length, split(data, cuts))
    assert got == data[:length]
    assert bool(flags & CUT) == (length > len(data))
    flags, got, _counted = both(b"HTTP/1.1 200 OK\r\n\r\n", split(data, cuts))
    assert (flags, got) == (DONE, data)
