"""One request on its way through the router: sent to the chosen replica, retried elsewhere before the first byte, its
response passed on."""

import functools
import json
import os
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from inferometer.documents.document import JsonValue
from inferometer.router.policy import Decision, Query, Replica, tokens_of
from inferometer.router.upstream import Upstream, UpstreamConnection
from inferometer.wire.http1 import ROUTED_TO, Chunks, Head
from inferometer.wire.reactor import Poller, Reactor, now
from inferometer.wire.server import HttpRequest, Reply

# -- bytes from a replica to a client ----------------------------------------------------------------------------------

# Passes a response body from a replica to a client as it arrives: in C if that was built (`_relay.c`), else in Python.
# Both pass bytes on immediately after each read, including the framing, and read no faster than the client accepts
# them.

VERSION = 1  # as in _relay.c, like all of these
DONE = 1 << 20  # the body is complete
CUT = 1 << 21  # the replica ended early
GONE = 1 << 22  # the client has disconnected
BROKEN = 1 << 23  # the framing is invalid
SURPLUS = 1 << 24  # with DONE: surplus bytes arrived after the body and were discarded
ENDED = DONE | CUT | GONE | BROKEN
CHUNKED, LENGTH, UNTIL_CLOSE = 0, 1, 2
READ_SIZE = 64 * 1024


class Relayed(NamedTuple):
    """What was passed on of a body: bytes with their framing, number of reads, and the instants of the first and last
    of them."""

    bytes: int
    reads: int
    first_at: int
    last_at: int


OnEnd = Callable[[int, Relayed], None]


class Source(Protocol):
    """The data of a replica: a socket, or a source that decrypts TLS records."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...


class Relay(Protocol):
    def start(self, source: Source, reply: Reply, head: Head, data: bytes, body_at: int, on_end: OnEnd) -> None:
        """Send `data`, whose body starts at `body_at`, and then everything from the source until the body ends. Nothing
        else may watch the source meanwhile; to stop early, unwatch it."""


@functools.cache
def compiled() -> Any | None:
    """The C module, or None if it was not built or `INFEROMETER_RELAY=python` disables it."""
    if os.environ.get("INFEROMETER_RELAY") == "python":
        return None
    try:
        relay = import_module("inferometer.router._relay")
    except ImportError:
        return None
    return relay if getattr(relay, "VERSION", 0) == VERSION else None


def relaying_reactor(allow_compiled: bool = True) -> tuple[Reactor, Relay]:
    """An event loop, and the relay that passes bodies on in it."""
    module = compiled() if allow_compiled else None
    if module is None:
        reactor = Reactor()
        return reactor, PlainRelay(reactor)
    poller: Poller = module.Poller()
    reactor = Reactor(poller=poller)
    return reactor, CompiledRelay(reactor, poller)


def framing_of(head: Head, without_body: bool) -> tuple[int, int]:
    """How the end of a body is determined, and its length if it has one."""
    if without_body:
        return LENGTH, 0
    if head.chunked:
        return CHUNKED, 0
    return (UNTIL_CLOSE, 0) if head.length is None else (LENGTH, head.length)


class CompiledRelay:
    """Bodies are passed on by `_relay.c`, inside the poll of the reactor; Python is called at their end."""

    def __init__(self, reactor: Reactor, poller: Any) -> None:
        self._reactor = reactor
        self._poller = poller
        self._plain = PlainRelay(reactor)

    def start(self, source: Source, reply: Reply, head: Head, data: bytes, body_at: int, on_end: OnEnd) -> None:
        sink = reply.fileno()
        if sink < 0 or not isinstance(source, socket.socket):  # part of an earlier answer is still unsent; or TLS
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
    """The same in Python, with three times the CPU time per event."""

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
        self._flags = 0  # how it ended, while the client has not taken everything
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


# -- the passage of a request ------------------------------------------------------------------------------------------

EXPLAIN = "x-inferometer-explain"
DECISION = "x-inferometer-decision"
MOST_EXPLAINED = 2048  # characters of the matched text in a header; /router/decisions has more
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"proxy-authenticate"})
NOT_SENT = HOP_BY_HOP | {b"host", b"expect", b"proxy-authorization", b"x-forwarded-for"}
NOT_SENT |= {b"content-length", b"transfer-encoding", b"trailer"}  # a chunked body is forwarded with its length


class PassageRouter(Protocol):
    """What a passage needs from its proxy."""

    relay: Relay

    def dispatch(self, passage: "Passage") -> None: ...
    def refused(self, passage: "Passage", upstream: Upstream, reason: str) -> bool: ...
    def over(self, passage: "Passage", outcome: str, relayed: Relayed | None) -> None: ...
    def may_retry(self, passage: "Passage", status: int | None = None) -> bool: ...


class Passage:
    """A request from its arrival to the last byte of its response. `upstream` is its present replica, if any."""

    __slots__ = (
        "_connection",
        "_router",
        "_sent",
        "considered",
        "decision",
        "explains",
        "failures",
        "is_generation",
        "query",
        "reply",
        "request",
        "since",
        "tokens",
        "tried",
        "upstream",
    )

    def __init__(
        self, router: PassageRouter, request: HttpRequest, reply: Reply, query: Query, is_generation: bool
    ) -> None:
        self._router = router
        self.request, self.reply, self.query = request, reply, query
        self.is_generation = is_generation
        self.tokens = tokens_of(query)
        self.since = now()
        self.upstream: Upstream | None = None
        self.decision: Decision | None = None
        self.considered: tuple[Replica, ...] = ()
        self.tried: list[str] = []
        self.failures: list[str] = []  # why the replicas tried did not take it
        self.explains = request.headers.get(EXPLAIN, "0") not in {"0", "false", ""}
        self._connection: UpstreamConnection | None = None
        self._sent = b""
        reply.on_close = self._client_left

    def send_to(self, upstream: Upstream, decision: Decision, considered: Iterable[Replica]) -> None:
        self.upstream, self.decision, self.considered = upstream, decision, tuple(considered)
        self.tried.append(upstream.name)
        upstream.in_flight += 1
        upstream.tokens_in_flight += self.tokens
        self._sent = request_bytes(self.request, upstream, self.reply.peer)
        self._connection = upstream.send(self._sent, self)

    def leave(self) -> None:
        """Leave the present replica, for whatever reason."""
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.in_flight -= 1
            upstream.tokens_in_flight -= self.tokens

    # -- what the replica does ---------------------------------------------------------------------------------------

    def failed(self, connection: UpstreamConnection, reason: str, stale: bool) -> None:
        upstream = connection.upstream
        self._connection = None
        if stale:
            self._connection = upstream.send(self._sent, self, fresh=True)
            return
        self.failures.append(f"{upstream.name}: {reason}")
        if self._router.refused(self, upstream, reason):
            self._router.dispatch(self)

    def answered(self, connection: UpstreamConnection, head: Head, raw: bytes) -> None:
        if self._router.may_retry(self, head.status):
            connection.close()
            self._connection = None
            self.failures.append(f"{connection.upstream.name}: status {head.status}")
            if self._router.refused(self, connection.upstream, f"status {head.status}"):
                self._router.dispatch(self)
            return
        self._pass_on(connection, head, raw)

    def _pass_on(self, connection: UpstreamConnection, head: Head, raw: bytes) -> None:
        without_body = self.request.method == "HEAD"
        mode, _ = framing_of(head, without_body)
        if mode == UNTIL_CLOSE:
            self.reply.keep_alive = False
        before = raw.rfind(b"\r\n\r\n", 0, head.end - 4) + 4 if raw[9:10] == b"1" else 0  # interim responses
        fields = client_head(raw[before : head.end - 4], self.reply.keep_alive)
        sent = b"%b%b\r\n" % (fields, self._own_headers())
        keeps = head.keep_alive and mode != UNTIL_CLOSE

        def ended(flags: int, relayed: Relayed) -> None:
            self._ended(connection, flags, relayed, keeps)

        if without_body:
            self.reply.raw(sent)
            ended(DONE, Relayed(0, 0, 0, 0))
        else:
            self._router.relay.start(connection.source, self.reply, head, sent + raw[head.end :], len(sent), ended)

    def _own_headers(self) -> bytes:
        assert self.decision is not None
        fields = f"{ROUTED_TO}: {self.decision.replica}\r\n"
        if self.explains:
            fields += f"{DECISION}: {json.dumps(self.explanation(MOST_EXPLAINED))}\r\n"
        return fields.encode("latin-1", "replace")

    def explanation(self, most_chars: int) -> dict[str, JsonValue]:
        """Why this replica was chosen."""
        decision = self.decision
        assert decision is not None
        text = self.query.text[: min(decision.matched_chars, most_chars)]
        return {
            "replica": decision.replica,
            "kind": decision.kind,
            "matched_chars": decision.matched_chars,
            "match_rate": round(decision.match_rate, 6),
            "matched_text": text,
            "candidates": [
                {"replica": candidate.replica, "score": candidate.score} for candidate in decision.candidates
            ],
            "in_flight": {replica.name: replica.in_flight for replica in self.considered},
            "tried": self.tried,
            "failures": self.failures,
        }

    def _ended(self, connection: UpstreamConnection, flags: int, relayed: Relayed, keeps: bool) -> None:
        self._connection = None
        if keeps and flags & DONE and not flags & SURPLUS:
            connection.rest()
        else:
            connection.close()
        self.reply.on_close = None
        outcome = "ok" if flags & DONE else "client_left" if flags & GONE else "cut" if flags & CUT else "bad"
        self._router.over(self, outcome, relayed)
        if flags & DONE:
            self.reply.end()
        else:  # only the end of the connection can inform the client
            self.reply.abort()

    # -- what the client does ----------------------------------------------------------------------------------------

    def _client_left(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._router.over(self, "client_left", None)


def is_ambiguous(head: bytes) -> bool:
    """Whether another server might read other headers from this, and so another request: it has bare CR or LF, or
    folded lines."""
    ends = head.count(b"\r\n")
    return head.count(b"\n") != ends or head.count(b"\r") != ends or b"\r\n " in head or b"\r\n\t" in head


def request_bytes(request: HttpRequest, upstream: Upstream, peer: str) -> bytes:
    """The request for the replica: the client's headers without those of its connection."""
    first, *lines = request.head.split(b"\r\n")
    method, target, _version = first.split(b" ", 2)
    origin = upstream.origin
    named = request.headers.get("connection", "").lower().encode("latin-1")
    dropped = NOT_SENT | {name.strip() for name in named.split(b",")} if named else NOT_SENT
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in dropped]
    through = request.headers.get("x-forwarded-for")
    forwarded = f"{through}, {peer}" if through else peer
    own = f"host: {origin.authority}\r\nx-forwarded-for: {forwarded}\r\n"
    if request.body or not request.headers.keys().isdisjoint(("content-length", "transfer-encoding")):
        own += f"content-length: {len(request.body)}\r\n"
    start = b"%b %b%b HTTP/1.1" % (method, origin.path.encode("latin-1"), target)
    return (
        b"%b\r\n%b\r\n%b\r\n%b" % (start, b"\r\n".join(kept), own.encode("latin-1"), request.body)
        if kept
        else (b"%b\r\n%b\r\n%b" % (start, own.encode("latin-1"), request.body))
    )


@lru_cache(256)
def client_head(raw: bytes, keep_alive: bool) -> bytes:
    """Status line and headers for the client, without the empty line after them."""
    first, *lines = raw.split(b"\r\n")
    _version, _, status = first.partition(b" ")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in HOP_BY_HOP]
    if not keep_alive:
        kept.append(b"connection: close")
    return b"\r\n".join([b"HTTP/1.1 " + status, *kept, b""])
