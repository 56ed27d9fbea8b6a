"""A server over loopback with a thread per connection: every second request is answered as it should be, the others
are attacked by one function of the catalogue."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

from .dialects import Content, Dialect, event_bytes

HEALTHY_INPUT = 4321  # the prompt length that only right answers state: so their records are known
MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "chaos"}]}).encode()
EVENTS = "text/event-stream"
Place = Literal["answer", "models", "metrics", "tokenize"]
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER for no time: close sends RST


class Caller:
    """A connection of the client, and the request that it awaits an answer to."""

    def __init__(self, connection: "_Patient", server: "HostileServer") -> None:
        self.socket, self.server = connection, server
        self.dialect, self.streams = server.dialect, server.streams
        self.stop = server.stop
        self.closed = False
        self._pending = b""

    # -- what attacks are made of ------------------------------------------------------------------------------

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def flood(self, first: bytes, piece: bytes) -> None:
        """Send without end: until the client goes away, or the attack is over."""
        self.send(first)
        piece *= max(1, 65536 // len(piece))
        while not self.stop.is_set():
            self.send(piece)
        self.close()

    def drip(self, data: bytes, gap_s: float = 0.05) -> None:
        for byte in data:
            self.send(bytes([byte]))
            if self.stop.wait(gap_s):
                break

    def hold(self) -> None:
        """Say nothing more until the client goes away."""
        while not self.stop.is_set():
            with suppress(TimeoutError):
                if not self.socket.recv(65536):
                    break
        self.close()

    def close(self) -> None:
        self.closed = True
        self.socket.close()

    def half_close(self) -> None:
        """Nothing more will come; the client may go on."""
        self.socket.shutdown(socket.SHUT_WR)

    def send_urgently(self, data: bytes) -> None:
        """Out of band, which TLS does not have: reads of what comes in band end there."""
        with suppress(ValueError):
            self.socket.send(data, socket.MSG_OOB)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    # -- right answers -----------------------------------------------------------------------------------------

    def head(self, *lines: str, status: str = "200 OK", kind: str | None = None) -> bytes:
        """Of an answer; without lines about its length it is chunked."""
        kind = kind or (EVENTS if self.streams else "application/json")
        length = lines or ("transfer-encoding: chunked",)
        return "\r\n".join([f"HTTP/1.1 {status}", f"content-type: {kind}", *length, "", ""]).encode("latin-1")

    def body(self, content: Content | None = None) -> list[bytes]:
        """In pieces: the events of a stream, or one document."""
        content = content or Content()
        if self.streams and self.dialect.events:
            return [event_bytes(event) for event in self.dialect.events(content)]
        return [json.dumps(self.dialect.whole(content)).encode()]

    def chunked(self, pieces: Iterable[bytes]) -> bytes:
        return b"".join(map(chunk, pieces)) + b"0\r\n\r\n"

    def good(self, content: Content | None = None) -> bytes:
        return self.head() + self.chunked(self.body(content))

    # -- requests ----------------------------------------------------------------------------------------------

    def next_request(self) -> tuple[str, str, int] | None:
        """Method and path of the next one and the size of its body, which is read and forgotten; None at the end."""
        while b"\r\n\r\n" not in self._pending:
            if not self._receive():
                return None
        head, _, self._pending = self._pending.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
        length = int(fields.get("content-length", 0))
        while len(self._pending) < length:
            if not self._receive():
                return None
        self._pending = self._pending[length:]
        method, path, *_ = lines[0].split(" ")
        return method, path, length

    def _receive(self) -> bool:
        while not self.stop.is_set():
            with suppress(TimeoutError):
                data = self.socket.recv(1 << 20)
                self._pending += data
                return bool(data)
        return False


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def every_second(number: int) -> bool:
    return number % 2 == 1


@dataclass(frozen=True, slots=True)
class Attack:
    """`expected` are the outcomes that a request attacked so may have; empty: any that is documented."""

    name: str
    act: Callable[[Caller], None]
    expected: frozenset[str] = frozenset()
    at: Place = "answer"
    only: Literal["streams", "whole", ""] = ""
    tokens: int | None = None  # that an attacked answer with outcome ok must have
    hits: Callable[[int], bool] = every_second  # which requests for an answer are attacked, counted from 1
    requests: int = 6  # of the run
    is_text: bool = False  # any text is an answer to the API `template`, whatever it says
    listens: bool = True
    accepts_after_s: float = 0.0


class HostileServer:
    """Listens while it is entered."""

    def __init__(self, attack: Attack, dialect: Dialect, streams: bool, tls: ssl.SSLContext | None = None) -> None:
        self.attack, self.dialect, self.streams, self._tls = attack, dialect, streams, tls
        self.stop = threading.Event()
        self.requests = self.healthy = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.5)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        if self.attack.listens:
            self._threads[0].start()
        else:
            self._listener.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._listener.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(10)

    def die(self) -> None:
        """Listen no more; connections that are open go on."""
        self._listener.close()

    def _accept(self) -> None:
        while not self.stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.stop.wait(self.attack.accepts_after_s)
            connection.settimeout(0.5)
            thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _converse(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            caller = Caller(_Patient(connection, self.stop), self)
            while not caller.closed and (request := caller.next_request()):
                self._answer(caller, *request)
        with suppress(OSError):
            connection.close()

    def _answer(self, caller: Caller, method: str, path: str, size: int) -> None:
        place = _place_of(method, path)
        if place == self.attack.at and (place != "answer" or self._attacked()):
            self.attack.act(caller)
        elif place == "answer":
            with self._lock:
                self.healthy += size > 0  # a POST without a body asks whether the path is there: no record of that
            caller.send(caller.good(Content(id=f"healthy-{self.healthy}", input_tokens=HEALTHY_INPUT)))
        elif path.endswith("/models"):
            caller.send(caller.head(f"content-length: {len(MODELS)}", kind="application/json"), MODELS)
        else:
            caller.send(caller.head("content-length: 2", status="404 Not Found", kind="text/plain"), b"no")

    def _attacked(self) -> bool:
        with self._lock:
            self.requests += 1
            return self.attack.hits(self.requests)


def _place_of(method: str, path: str) -> Place:
    if method == "POST":
        return "tokenize" if path.endswith("/tokenize") else "answer"
    return "metrics" if path == "/metrics" else "models"


class _Patient:
    """A socket whose reads look every half second whether the attack is over; its sends end with the attack too."""

    def __init__(self, connection: socket.socket, stop: threading.Event) -> None:
        self._connection, self._stop = connection, stop
        self.recv, self.close, self.setsockopt = connection.recv, connection.close, connection.setsockopt
        self.send, self.shutdown = connection.send, connection.shutdown

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if self._stop.is_set():
                raise ConnectionAbortedError
            with suppress(TimeoutError):
                rest = rest[self._connection.send(rest) :]
