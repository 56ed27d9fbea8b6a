"""Small servers on a test's loop: event streams, and raw bytes for a test."""

import socket
from contextlib import suppress

EVENT = b'data: {"choices":[{"text":"x"}]}\n\n'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def stream(events=3):
    """A handler that streams some events and keeps the connection."""

    def handler(_request, reply):
        reply.start()
        for _ in range(events):
            reply.write(EVENT)
        reply.end()

    return handler


def hello(request, reply):
    reply.respond(200, b'{"path": "%b"}' % request.path.encode())


class Talker:
    """A server of raw bytes: does with each connection, at its first request, what it is told next."""

    def __init__(self, loop, *deeds):
        self.loop, self.deeds, self.connections = loop, list(deeds), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.open = []
        loop.reactor.watch(self.listener.fileno(), self._accept)

    def _accept(self, _events):
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self.connections += 1
        self.open.append(connection)
        self.loop.reactor.watch(connection.fileno(), lambda _events: self._heed(connection))

    def _heed(self, connection):
        try:
            data = connection.recv(1 << 20)
        except OSError:
            data = b""
        if data and self.deeds:
            self.deeds.pop(0)(connection)
        if not data or connection.fileno() < 0:
            self.hang_up(connection)

    def hang_up(self, connection):
        if connection in self.open:
            self.open.remove(connection)
            fd = connection.fileno()
            if fd >= 0:
                self.loop.reactor.unwatch(fd)
                connection.close()

    def close(self) -> None:
        self.loop.reactor.unwatch(self.listener.fileno())
        self.listener.close()
        for connection in list(self.open):
            self.hang_up(connection)

    def say(self, data, then_close=False, reset=False):
        def deed(connection):
            with suppress(ConnectionError):
                connection.send(data)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            if then_close or reset:
                self.hang_up(connection)

        return deed


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
