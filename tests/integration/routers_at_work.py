"""A router in a thread, and replicas that send raw bytes as a test requires."""

import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from inferometer.router.proxy import RouterProxy
from inferometer.router.relay import relaying_reactor
from inferometer.router.settings import router_settings

WAIT_S = 10.0
Script = Callable[["Visit"], None]


class Visit:
    """A connection to a replica with one request read from it."""

    def __init__(self, connection: socket.socket, head: bytes, body: bytes) -> None:
        self.connection, self.head, self.body = connection, head, body

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def respond(self, body: bytes = b"ok", status: bytes = b"200 OK", headers: bytes = b"") -> None:
        self.send(b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(body), body))

    def closed_by_peer(self) -> bool:
        """Whether the other side goes away now."""
        self.connection.settimeout(WAIT_S)
        with suppress(ConnectionError):
            return self.connection.recv(1) == b""
        return True


class ScriptedReplica:
    """Answers health checks itself and hands every other request to the script, each connection in a thread."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script, self._tls = script, tls
        self.visits: queue.Queue[Visit] = queue.Queue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.healthy = True
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._meet, args=(connection,), daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        with suppress(OSError):
            self._serve(self._tls.wrap_socket(connection, server_side=True) if self._tls else connection)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            held = b""
            while True:
                while b"\r\n\r\n" not in held:
                    data = connection.recv(65536)
                    if not data:
                        return
                    held += data
                head, _, held = held.partition(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                length = int(fields.get(b"content-length", b"0"))
                while len(held) < length:
                    held += connection.recv(65536)
                visit = Visit(connection, head, held[:length])
                held = held[length:]
                if head.startswith(b"GET /health "):
                    visit.respond(b"", b"200 OK" if self.healthy else b"500 Sick")
                else:
                    self.visits.put(visit)
                    self.script(visit)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or whoever accepts would hold the port open
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class RunningRouter:
    """A router whose loop runs in a thread of its own."""

    def __init__(self, allow_compiled: bool, settings: dict[str, Any]) -> None:
        self._reactor, relay = relaying_reactor(allow_compiled)
        self.proxy = RouterProxy(self._reactor, relay, router_settings(settings))
        self.port = self.proxy.port
        self._thread = threading.Thread(target=self._reactor.run, daemon=True)
        self._thread.start()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def call(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = self.connection()
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.msg
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.call("/router/state")[1])
        return state

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        lines = self.call("/metrics")[1].decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0].split(" ")[0] == name)

    def close(self) -> None:
        self._reactor.call_at(0, self._reactor.stop)
        with suppress(OSError):  # the loop may sleep: anything wakes it
            socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(WAIT_S)
        self.proxy.close()
        self._reactor.close()


def until(is_so: Callable[[], bool]) -> None:
    """Ask again and again, without a pause of our own: every question goes through the router."""
    from time import monotonic

    latest = monotonic() + WAIT_S
    while not is_so():
        assert monotonic() < latest, "it did not come to be"


@contextmanager
def routing(
    allow_compiled: bool, scripts: list[Script], tls: ssl.SSLContext | None = None, **settings: Any
) -> Iterator[tuple[RunningRouter, list[ScriptedReplica]]]:
    """A router over one replica for every script, r0, r1, ...; ready when all are healthy."""
    replicas = [ScriptedReplica(script, tls) for script in scripts]
    upstreams = [{"name": f"r{at}", "url": replica.url} for at, replica in enumerate(replicas)]
    fields = {"policy": "round_robin", "health_interval_s": 0.05} | settings | {"upstreams": upstreams}
    router = RunningRouter(allow_compiled, fields)
    try:
        until(lambda: all(replica["healthy"] for replica in router.state()["replicas"]))
        yield router, replicas
    finally:
        router.close()
        for replica in replicas:
            replica.close()
