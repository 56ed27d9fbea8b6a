"""The replicas behind a router: their connections, which stay open between requests, and their known health and load.
Policies choose among them, the proxy sends the requests."""

import errno
import os
import re
import socket
import ssl
from contextlib import suppress
from typing import Protocol

from inferometer.router.policy import Replica
from inferometer.wire.http1 import Head, parse_head
from inferometer.wire.origin import Origin, TlsSession, origin_of
from inferometer.wire.reactor import BROKEN, READ, WRITE, Reactor, ReactorTimer, now
from inferometer.wire.sockets import send_at_once

READ_SIZE = 64 * 1024
MOST_IDLE = 512  # idle connections
KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))  # an unreachable host is detected in 25 s
WAITING = re.compile(rb"^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE)
KV_USAGE = re.compile(
    rb"^(?:vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc|sglang:token_usage)(?:\{[^}]*\})? ([0-9.eE+-]+)",
    re.MULTILINE,
)


class Upstream:
    """One replica, as the router knows it."""

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        url: str,
        connect_timeout_s: float,
        capacity: int | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.reactor = reactor
        self.name = name
        self.origin: Origin = origin_of(url, tls)
        self.addresses = self.origin.addresses()
        self.connect_timeout_s = connect_timeout_s
        self.capacity = capacity
        self.healthy = False
        self.reason = "not checked yet"  # why it is unhealthy
        self.in_flight = 0
        self.tokens_in_flight = 0
        self.waiting: int | None = None
        self.kv_usage: float | None = None
        self._idle: list[UpstreamConnection] = []
        self.open: set[UpstreamConnection] = set()

    def snapshot(self) -> Replica:
        return Replica(
            self.name,
            self.in_flight,
            self.tokens_in_flight,
            self.healthy,
            self.capacity,
            self.waiting,
            self.kv_usage,
        )

    def learn_metrics(self, text: bytes) -> None:
        """Updates the replica's reported queue and cache use."""
        waiting, usage = WAITING.findall(text), KV_USAGE.findall(text)
        with suppress(ValueError):
            self.waiting = round(sum(map(float, waiting))) if waiting else None
            self.kv_usage = max(map(float, usage)) if usage else None

    def send(self, request: bytes, caller: "Caller", fresh: bool = False) -> "UpstreamConnection":
        """Send a request on an idle connection, or on a new one."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.is_quiet():
                connection.send(request, caller, reused=True)
                return connection
            connection.close()
        return UpstreamConnection(self, request, caller)

    def rest(self, connection: "UpstreamConnection") -> None:
        """A connection becomes idle again."""
        if len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def forget(self, connection: "UpstreamConnection") -> None:
        self.open.discard(connection)
        with suppress(ValueError):
            self._idle.remove(connection)

    def close(self) -> None:
        for connection in list(self.open):
            connection.close()


class Caller(Protocol):
    """The sender of a request, called with its outcome."""

    def answered(self, connection: "UpstreamConnection", head: Head, raw: bytes) -> None:
        """The headers have arrived, with the first part of the body. The caller now reads the connection."""

    def failed(self, connection: "UpstreamConnection", reason: str, stale: bool) -> None:
        """No byte of a response arrived. `stale`: the connection was idle and had been closed meanwhile, as servers
        may."""


class SecureSource:
    """Data received over TLS, read like a socket."""

    def __init__(self, sealed: socket.socket, session: TlsSession) -> None:
        self._sealed, self._session = sealed, session

    def fileno(self) -> int:
        return self._sealed.fileno()

    def recv(self, size: int) -> bytes:
        """All data that can be decrypted now; BlockingIOError if there is none, empty at the end."""
        sealed = self._sealed.recv(size)
        data = self._session.open(sealed)
        if sealed and not data and not self._session.ended:
            raise BlockingIOError
        return data


class UpstreamConnection:
    """A socket to a replica: one request at a time, up to the headers of the response. `source` is read for the
    rest."""

    __slots__ = (
        "_caller",
        "_inbox",
        "_opening",
        "_outbox",
        "_reactor",
        "_reused",
        "_socket",
        "_tls",
        "_tried",
        "fd",
        "source",
        "upstream",
    )

    source: socket.socket | SecureSource

    def __init__(self, upstream: Upstream, request: bytes, caller: Caller) -> None:
        self.upstream = upstream
        self._reactor = upstream.reactor
        self._caller: Caller | None = caller
        self._outbox = memoryview(request)
        self._inbox = b""
        self._reused = False
        self._tried = 0
        self._tls: TlsSession | None = None
        self.fd = -1
        upstream.open.add(self)
        deadline = now() + int(upstream.connect_timeout_s * 1e9)
        self._opening: ReactorTimer | None = self._reactor.call_at(deadline, self._too_slow)
        self._connect()

    # -- opening -----------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        family, address = self.upstream.addresses[self._tried]
        self._tried += 1
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # out of descriptors
            reason = _why(error)
            self._reactor.call_at(now(), lambda: self._fail(reason))
            return
        self.fd = self._socket.fileno()
        self._socket.setblocking(False)
        send_at_once(self._socket)
        _keep_alive(self._socket)
        refused = self._socket.connect_ex(address)
        if refused in {0, errno.EINPROGRESS}:
            self._reactor.watch(self.fd, self._connected, WRITE)
        else:  # from the loop: the sender must not be called before it has the connection
            self._reactor.call_at(now(), lambda: self._next_address(refused))

    def _connected(self, _events: int) -> None:
        refused = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if refused:
            self._next_address(refused)
            return
        if self.upstream.origin.tls is None:
            self.source = self._socket
            self._opened()
            self._push()
        else:
            self._tls = session = TlsSession(self.upstream.origin)
            self._reactor.watch(self.fd, lambda _events: self._shake_hands(session))
            self._shake_hands(session)

    def _shake_hands(self, session: TlsSession) -> None:
        try:
            if session.started:
                sealed = self._socket.recv(READ_SIZE)
                if not sealed:
                    self._fail("TLS: it closed the connection during the handshake")
                    return
                session.feed(sealed)
            finished = session.handshake()
            self._socket.sendall(session.outgoing.read())  # a few KB into an empty buffer
        except BlockingIOError:
            return
        except OSError as error:  # also those of ssl
            self._fail(f"TLS: {_why(error)}")
            return
        if finished:
            self.source = SecureSource(self._socket, session)
            self._opened()
            self._outbox = memoryview(session.seal(bytes(self._outbox)))
            self._push()

    def _next_address(self, refused: int) -> None:
        if self._caller is None:
            return
        self._drop_socket()
        if self._tried < len(self.upstream.addresses):
            self._connect()
        else:
            self._fail(os.strerror(refused).lower())

    def _too_slow(self) -> None:
        self._opening = None
        self._fail(f"no connection within {self.upstream.connect_timeout_s:g} s")

    def _opened(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    # -- a request ---------------------------------------------------------------------------------------------------

    def send(self, request: bytes, caller: Caller, reused: bool) -> None:
        self._caller = caller
        self._reused = reused
        self._inbox = b""
        self._outbox = memoryview(request if self._tls is None else self._tls.seal(request))
        self._reactor.watch(self.fd, self._ready)
        self._push()

    def _push(self) -> None:
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError:  # the reader finds the answer that made the server stop reading, or the reason
            sent = len(self._outbox)
        self._outbox = self._outbox[sent:]
        self._reactor.watch(self.fd, self._ready, READ | WRITE if self._outbox else READ)

    def _ready(self, events: int) -> None:
        if events & WRITE and self._outbox:
            self._push()
        if events & (READ | BROKEN) and self._caller is not None:
            self._read()

    def _read(self) -> None:
        try:
            data = self.source.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(_why(error))
            return
        if not data:
            self._fail("it closed the connection" if not self._inbox else "it closed the connection within the headers")
            return
        self._inbox += data
        try:
            head = parse_head(self._inbox)
        except ValueError as error:
            self._fail(str(error))
            return
        if head is not None:
            caller, self._caller = self._caller, None
            assert caller is not None
            caller.answered(self, head, self._inbox)

    def _fail(self, reason: str) -> None:
        """A persistent connection that ends without a byte was closed by the server while idle: that is no failure."""
        caller, self._caller = self._caller, None
        stale = self._reused and not self._inbox
        self.close()
        if caller is not None:
            caller.failed(self, reason, stale)

    # -- rest and end ------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """The response is over; any bytes before the next request end the connection."""
        self._reactor.watch(self.fd, lambda _events: self.close())
        self.upstream.rest(self)

    def is_quiet(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._opened()
        self._caller = None
        self.upstream.forget(self)
        self._drop_socket()

    def _drop_socket(self) -> None:
        if self.fd >= 0:
            self._reactor.unwatch(self.fd)
            self._socket.close()
            self.fd = -1


def _keep_alive(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        with suppress(AttributeError, OSError):  # not Linux
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
