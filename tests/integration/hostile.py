"""Servers on threads of their own that send what no server should, as fast as they can or as slowly as they like."""

import socket
import threading
from contextlib import contextmanager, suppress
from typing import Any

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"text":"x"}]}\n\n'
ANSWER = STREAM + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)


@contextmanager
def hostile(behave):
    """A server that does `behave(connection, number)` at the first request of its connection with that number; yields
    its port. What it says to a client that has gone is nobody's concern."""
    open_ones: list[Any] = []

    def serve(connection, number):
        try:
            await_request(connection)
            behave(connection, number)
            while connection.recv(1 << 16):  # until the client leaves
                pass
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_ones.append(connection)
            threading.Thread(target=serve, args=(connection, len(open_ones) - 1), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in open_ones:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()


def await_request(connection):
    """One request; its body is as long as it says."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += _more(connection)


def _more(connection):
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionError
    return data


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def without_end(first, more):
    """Says something, and then the same for ever."""

    def behave(connection, _number):
        connection.sendall(first)
        block = more * max(1, (1 << 18) // len(more))
        while True:
            connection.sendall(block)

    return behave


ENDLESS = {
    "one line": without_end(STREAM + b"fffffffffffffff\r\ndata: ", b"x" * 4096),
    "one line in many chunks": without_end(STREAM + chunk(b"data: "), chunk(b"x" * 4096)),
    "events": without_end(STREAM, chunk(EVENT)),
    "small events": without_end(STREAM, chunk(b"data: 1\n\n")),
    "blank lines": without_end(STREAM, chunk(b"\n" * 4096)),
    "chunks of a byte": without_end(STREAM, chunk(b"x")),
    "json": without_end(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"[" * 4096)),
    "a body until the end": without_end(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096),
    "a body of known length": without_end(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 4096),
    "an error": without_end(b"HTTP/1.1 503 No\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 4096),
}
NOT_HTTP = {
    "headers": without_end(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "one header": without_end(b"HTTP/1.1 200 OK\r\na: ", b"b" * 4096),
    "a status line": without_end(b"HTTP/1.1 200 ", b"O" * 4096),
    "interim answers": without_end(b"", b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n"),
    "a chunk extension": without_end(STREAM + b"5;", b"a=b;"),
    "a chunk size": without_end(STREAM, b"0"),
    "a trailer": without_end(STREAM + chunk(EVENT) + b"0\r\n", b"a: b\r\n"),
}
