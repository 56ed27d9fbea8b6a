"""Passing a response body on from a replica to a client as it comes: in C where that was built (`_relay.c`), else in
Python. Both pass bytes on with the read that brought them, framing included, and read no faster than the client
takes them."""

import functools
import os
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from inferometer.wire.http1 import Chunks, Head
from inferometer.wire.reactor import Poller, Reactor, now
from inferometer.wire.server import Reply

VERSION = 1  # as in _relay.c, like all of these
DONE = 1 << 20  # the body is complete
CUT = 1 << 21  # the replica ended before
GONE = 1 << 22  # the client takes nothing any more
BROKEN = 1 << 23  # the framing is none
SURPLUS = 1 << 24  # with DONE: more came behind the body, which was thrown away
ENDED = DONE | CUT | GONE | BROKEN
CHUNKED, LENGTH, UNTIL_CLOSE = 0, 1, 2
READ_SIZE = 64 * 1024


class Relayed(NamedTuple):
    """What was passed on of a body: bytes with their framing, reads, and the instants of the first and last of them."""

    bytes: int
    reads: int
    first_at: int
    last_at: int


OnEnd = Callable[[int, Relayed], None]


class Source(Protocol):
    """What a replica sends: a socket, or what opens the records of TLS."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...


class Relay(Protocol):
    def start(self, source: Source, reply: Reply, head: Head, data: bytes, body_at: int, on_end: OnEnd) -> None:
        """Send `data`, whose body begins at `body_at`, and then all that comes from the source until the body ends.
        Nothing else may watch the source meanwhile; to stop early, unwatch it."""


@functools.cache
def compiled() -> Any | None:
    """The module in C, or None where it is not there or `INFEROMETER_RELAY=python` asks to do without."""
    if os.environ.get("INFEROMETER_RELAY") == "python":
        return None
    try:
        relay = import_module("inferometer.router._relay")
    except ImportError:
        return None
    return relay if getattr(relay, "VERSION", 0) == VERSION else None


def relaying_reactor(allow_compiled: bool = True) -> tuple[Reactor, Relay]:
    """An event loop, and what passes bodies on in it."""
    module = compiled() if allow_compiled else None
    if module is None:
        reactor = Reactor()
        return reactor, PlainRelay(reactor)
    poller: Poller = module.Poller()
    reactor = Reactor(poller=poller)
    return reactor, CompiledRelay(reactor, poller)


def framing_of(head: Head, without_body: bool) -> tuple[int, int]:
    """How the end of a body is known, and its length where it has one."""
    if without_body:
        return LENGTH, 0
    if head.chunked:
        return CHUNKED, 0
    return (UNTIL_CLOSE, 0) if head.length is None else (LENGTH, head.length)


class CompiledRelay:
    """Bodies pass through `_relay.c`, inside the poll of the reactor; Python is called at their end."""

    def __init__(self, reactor: Reactor, poller: Any) -> None:
        self._reactor = reactor
        self._poller = poller
        self._plain = PlainRelay(reactor)

    def start(self, source: Source, reply: Reply, head: Head, data: bytes, body_at: int, on_end: OnEnd) -> None:
        sink = reply.fileno()
        if sink < 0 or not isinstance(source, socket.socket):  # an earlier answer still waits there; or TLS
            self._plain.start(source, reply, head, data, body_at, on_end)
            return
        fd = source.fileno()

        def ended(flags: int) -> None:
            if flags & ENDED:
                on_end(flags, Relayed(*self._poller.take(fd)))

        self._reactor.watch(fd, ended)
        mode, left = framing_of(head, without_body=False)
        flags = self._poller.relay(fd, sink, mode, left, data, body_at)
        if flags:
            ended(flags)


class PlainRelay:
    """The same in Python: three times the CPU time of an event."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def start(self, source: Source, reply: Reply, head: Head, data: bytes, body_at: int, on_end: OnEnd) -> None:
        _PlainPair(self._reactor, source, reply, head, on_end).begin(data, body_at)


class _PlainPair:
    def __init__(self, reactor: Reactor, source: Source, reply: Reply, head: Head, on_end: OnEnd) -> None:
        self._reactor = reactor
        self._source = source
        self._fd = source.fileno()
        self._reply = reply
        self._mode, self._left = framing_of(head, without_body=False)
        self._chunks = Chunks() if head.chunked else None
        self._on_end = on_end
        self._bytes = self._reads = self._first_at = self._last_at = 0
        self._flags = 0  # how it ended, while the client has not taken all of it
        self._over = False

    def begin(self, data: bytes, body_at: int) -> None:
        self._reply.on_drain = self._drained
        body = data[body_at:]
        flags, taken = self._advance(body) if body or (self._mode == LENGTH and not self._left) else (0, 0)
        if flags & BROKEN:
            self._end(flags)
            return
        self._pass_on(data[: body_at + taken], flags)

    def _advance(self, body: bytes) -> tuple[int, int]:
        """How the body ends with these bytes, if it does, and how many of them belong to it."""
        self._last_at = now()
        self._first_at = self._first_at or self._last_at
        taken, done = len(body), False
        if self._chunks is not None:
            try:
                behind = self._chunks.feed(body)
            except ValueError:
                return BROKEN, 0
            done = behind >= 0
            taken -= max(behind, 0)
        elif self._mode == LENGTH:
            taken = min(taken, self._left)
            self._left -= taken
            done = not self._left
        self._bytes += taken
        self._reads += bool(body)
        return (DONE | (SURPLUS if taken < len(body) else 0)) if done else 0, taken

    def _pass_on(self, data: bytes, flags: int) -> None:
        self._reply.raw(data)
        if self._reply.closed:
            self._end(GONE)
        elif self._reply.waiting:
            self._flags = flags
            self._reactor.unwatch(self._fd)
        elif flags:
            self._end(flags)
        else:
            self._reactor.watch(self._fd, self._ready)

    def _drained(self) -> None:
        if self._over:
            return
        if self._flags:
            self._end(self._flags)
        else:
            self._reactor.watch(self._fd, self._ready)

    def _ready(self, _events: int) -> None:
        try:
            data = self._source.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            self._end(CUT)
            return
        if not data:
            self._end(DONE if self._mode == UNTIL_CLOSE else CUT)
            return
        flags, taken = self._advance(data)
        if flags & BROKEN:
            self._end(flags)
        else:
            self._pass_on(data[:taken], flags)

    def _end(self, flags: int) -> None:
        self._over = True
        self._reply.on_drain = None
        self._on_end(flags, Relayed(self._bytes, self._reads, self._first_at, self._last_at))
