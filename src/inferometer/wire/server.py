"""A small HTTP/1.1 server on the reactor: keep-alive, chunked streaming, and control over every byte that is sent,
so that the simulator can be exact and can misbehave on purpose.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from inferometer.wire.http1 import Chunks, Excessive, dechunked, whole
from inferometer.wire.reactor import BROKEN, READ, WRITE, Reactor, now
from inferometer.wire.sockets import ANCILLARY_SIZE, ClockPair, ask_for_stamps, kernel_stamps, send_at_once, stamp_ns

READ_SIZE = 256 * 1024
MAX_HEAD = 64 * 1024
LONGEST_WAIT_NS = 10_000_000_000  # older timestamps are ignored


@dataclass(slots=True)
class HttpRequest:
    """A received request; header names are lower case."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]
    body: bytes
    received_at: int  # when its last byte arrived; by the kernel's timestamp if the server enables them
    head: bytes = b""  # request line and headers as received, without the empty line after them


Handler = Callable[[HttpRequest, "Reply"], None]


class Reply:
    """The answer to one request. Use either `respond`, or `start`, `write`..., `end`."""

    __slots__ = ("_chunked", "_connection", "closed", "done", "keep_alive", "on_close", "on_drain")

    def __init__(self, connection: "_Connection", keep_alive: bool) -> None:
        self._connection = connection
        self.keep_alive = keep_alive
        self._chunked = False
        self.done = False  # nothing more may be written
        self.closed = False  # the client has disconnected
        self.on_close: Callable[[], None] | None = None  # called if the client disconnects before the end
        self.on_drain: Callable[[], None] | None = None  # called when the socket has taken all waiting bytes

    def respond(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send the whole answer at once."""
        fields = {"content-type": "application/json"} | (headers or {}) | {"content-length": str(len(body))}
        self.raw(head(status, fields, self.keep_alive) + body)
        self._finish()

    def start(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Begin a chunked stream."""
        self._chunked = True
        fields = {"content-type": "text/event-stream; charset=utf-8"} | (headers or {})
        self.raw(head(status, fields | {"transfer-encoding": "chunked"}, self.keep_alive))

    def write(self, data: bytes) -> None:
        """Send one chunk of the stream."""
        self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))

    def raw(self, data: bytes) -> None:
        """Send bytes unchanged, including framing."""
        self._connection.send(data)

    @property
    def send_now(self) -> Callable[[bytes], int]:
        """The socket's own `send`, for callers that need speed and handle partial sends and errors."""
        return self._connection.send_now

    def fileno(self) -> int:
        """The socket's descriptor, for direct use; -1 if it is closed, or while bytes are waiting."""
        return self._connection.fileno()

    @property
    def waiting(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._connection.waiting

    @property
    def peer(self) -> str:
        """The client's address; empty if it has disconnected."""
        return self._connection.peer()

    def end(self, data: bytes = b"") -> None:
        """Send bytes unchanged, and the last chunk."""
        if self._chunked:
            self.raw(data + b"0\r\n\r\n")
        self._finish()

    def close(self) -> None:
        """Close the connection after the written bytes, without notice to the client."""
        self.done = True
        self._connection.close_when_sent()

    def abort(self) -> None:
        """Reset the connection at once."""
        self.done = True
        self._connection.reset()

    def _finish(self) -> None:
        self.done = True
        if self.keep_alive:
            self._connection.next_request()
        else:
            self._connection.close_when_sent()


def head(status: int, headers: dict[str, str], keep_alive: bool = True) -> bytes:
    """Status line and headers of an answer."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    ending = "" if keep_alive else "connection: close\r\n"
    return f"HTTP/1.1 {status} {phrase}\r\n{fields}{ending}\r\n".encode("latin-1")


class HttpServer:
    """Listens on a port and calls the handler for each request; port 0 takes a free one. With `stamps` the arrival time
    of a request is the kernel's, not the moment the server read it. Several processes can listen on a `shared` port:
    the kernel distributes the clients. A body of more than `most_body` bytes is refused."""

    def __init__(
        self,
        reactor: Reactor,
        handler: Handler,
        host: str = "127.0.0.1",
        port: int = 0,
        stamps: bool = False,
        shared: bool = False,
        most_body: int | None = None,
    ) -> None:
        self.reactor = reactor
        self.most_body = most_body
        self.handler = handler
        self.clocks = ClockPair() if stamps and kernel_stamps() else None
        self.connections: set[_Connection] = set()
        self._socket = socket.create_server((host, port), backlog=4096, reuse_port=shared)
        self._socket.setblocking(False)
        send_at_once(self._socket)  # accepted sockets inherit it
        self.port: int = self._socket.getsockname()[1]
        reactor.watch(self._socket.fileno(), self._accept)

    def _accept(self, _events: int) -> None:
        while True:
            try:
                client, _address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors: the client waits in the backlog
                return
            client.setblocking(False)
            self.connections.add(_Connection(self, client))

    def stop_listening(self) -> None:
        """Accept no more clients and drop idle ones; the others are still served."""
        if self._socket.fileno() >= 0:
            self.reactor.unwatch(self._socket.fileno())
            self._socket.close()
        for connection in list(self.connections):
            connection.drop_idle()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.drop()


class _Connection:
    """One client: reads requests one after the other, buffers what the socket does not take."""

    __slots__ = (
        "_chunks",
        "_closing",
        "_fd",
        "_followed",
        "_inbox",
        "_outbox",
        "_reply",
        "_server",
        "_socket",
        "_stamped",
    )

    def __init__(self, server: HttpServer, client: socket.socket) -> None:
        self._server = server
        self._socket = client
        self._fd = client.fileno()
        self._inbox = b""
        self._chunks: Chunks | None = None  # of the request being received, if its body is chunked
        self._followed = 0  # bytes of the inbox already processed for chunks
        self._outbox = bytearray()
        self._reply: Reply | None = None
        self._closing = False
        self._stamped = server.clocks is not None and ask_for_stamps(client)
        server.reactor.watch(self._fd, self._ready)

    def send(self, data: bytes) -> None:
        """Hand bytes to the socket; bytes that it does not take are queued."""
        if self._fd < 0:
            return
        if self._outbox:
            self._outbox += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.drop()
            return
        if sent < len(data):
            self._outbox += data[sent:]
            self._server.reactor.watch(self._fd, self._ready, READ | WRITE)

    @property
    def send_now(self) -> Callable[[bytes], int]:
        return self._socket.send

    def fileno(self) -> int:
        return -1 if self._outbox else self._fd

    @property
    def waiting(self) -> int:
        return len(self._outbox)

    def peer(self) -> str:
        try:
            return str(self._socket.getpeername()[0])
        except OSError:
            return ""

    def next_request(self) -> None:
        """The answer is complete: process what the client may have sent meanwhile."""
        self._reply = None
        if self._inbox:
            self._take(now())

    def close_when_sent(self) -> None:
        self._closing = True
        if not self._outbox:
            self.drop()

    def reset(self) -> None:
        if self._fd >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.drop()

    def drop_idle(self) -> None:
        if self._reply is None and not self._inbox:
            self.close_when_sent()

    def drop(self) -> None:
        """Close at once and notify an unfinished answer that its client has disconnected."""
        if self._fd < 0:
            return
        self._server.reactor.unwatch(self._fd)
        self._server.connections.discard(self)
        self._socket.close()
        self._fd = -1
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.closed = True
            if not reply.done and reply.on_close is not None:
                reply.on_close()

    def _ready(self, events: int) -> None:
        if events & WRITE and self._outbox:
            self._flush()
        if events & (READ | BROKEN) and self._fd >= 0:
            self._read()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            return
        except OSError:
            self.drop()
            return
        del self._outbox[:sent]
        if not self._outbox:
            self._server.reactor.watch(self._fd, self._ready, READ)
            if self._closing:
                self.drop()
            elif self._reply is not None and self._reply.on_drain is not None:
                self._reply.on_drain()

    def _read(self) -> None:
        try:
            data, received_at = self._stamped_read() if self._stamped else (self._socket.recv(READ_SIZE), now())
        except BlockingIOError:
            return
        except OSError:
            data, received_at = b"", now()
        if not data:
            self.drop()
            return
        self._inbox = self._inbox + data if self._inbox else data
        if self._reply is None:
            self._take(received_at)

    def _stamped_read(self) -> tuple[bytes, int]:
        """The received bytes and their arrival time; our own time if the kernel gave none, or an implausible one."""
        data, ancillary, _flags, _address = self._socket.recvmsg(READ_SIZE, ANCILLARY_SIZE)
        moment, clocks = now(), self._server.clocks
        if not ancillary or clocks is None:
            return data, moment
        received_at = clocks.monotonic(stamp_ns(ancillary[0][2]))
        if not 0 <= moment - received_at < LONGEST_WAIT_NS:  # the real-time clock was set
            clocks.refresh()
            return data, moment
        return data, received_at

    def _take(self, received_at: int) -> None:
        """Take the next complete request from the inbox and have it answered."""
        end = self._inbox.find(b"\r\n\r\n")
        if end < 0:
            if len(self._inbox) > MAX_HEAD:
                self._refuse(431)
            return
        parsed = _parse_head(self._inbox[:end])
        if parsed is None:
            self._refuse(400)
            return
        method, target, version, headers = parsed
        framed = "transfer-encoding" in headers
        stop = self._chunks_end(headers, end + 4) if framed else self._stated_end(headers, end + 4)
        if headers.get("expect", "").lower() == "100-continue" and len(self._inbox) == end + 4 and not self._closing:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if stop is None or len(self._inbox) < stop:
            return
        body = self._inbox[end + 4 : stop]
        if framed:
            try:
                body = whole(dechunked(body, 0))[0]
            except Excessive:
                self._refuse(413)
                return
        path, _, query = target.partition("?")
        request = HttpRequest(method, path, query, headers, body, received_at, self._inbox[:end])
        self._inbox = self._inbox[stop:]
        wish = headers.get("connection", "").lower()
        keep_alive = wish != "close" and (version != "HTTP/1.0" or wish == "keep-alive")
        self._reply = Reply(self, keep_alive)
        self._server.handler(request, self._reply)

    def _stated_end(self, headers: dict[str, str], start: int) -> int | None:
        """The end of the request with its body at `start`, from its content-length; None if the request was refused."""
        length, most = headers.get("content-length", "0"), self._server.most_body
        if not (length.isascii() and length.isdigit()):
            self._refuse(400)
        elif most is not None and int(length) > most:
            self._refuse(413)
        else:
            return start + int(length)
        return None

    def _chunks_end(self, headers: dict[str, str], start: int) -> int | None:
        """Its end from its chunks; None if they are incomplete, or the request was refused. A request with both a
        length and chunks is refused, because that is how request smuggling works."""
        if headers["transfer-encoding"].lower() != "chunked":
            self._refuse(501)
            return None
        if "content-length" in headers:
            self._refuse(400)
            return None
        if self._chunks is None:
            self._chunks, self._followed = Chunks(), start
        try:
            behind = self._chunks.feed(self._inbox[self._followed :])
        except ValueError:
            self._refuse(400)
            return None
        self._followed = len(self._inbox)
        most, stop = self._server.most_body, len(self._inbox) - max(behind, 0)
        if most is not None and stop - start > most:
            self._refuse(413)
            return None
        if behind < 0:
            return None
        self._chunks = None
        return stop

    def _refuse(self, status: int) -> None:
        self.send(head(status, {"content-length": "0"}, keep_alive=False))
        self.close_when_sent()


def _parse_head(data: bytes) -> tuple[str, str, str, dict[str, str]] | None:
    first, _, rest = data.decode("latin-1").partition("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    headers = {}
    for line in rest.split("\r\n") if rest else []:
        name, colon, value = line.partition(":")
        if not colon:
            return None
        headers[name.strip().lower()] = value.strip()
    return parts[0], parts[1], parts[2], headers
