"""One request on its way through the router: sent to the replica that was chosen, tried again elsewhere before the
first byte, its response passed on."""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from inferometer.router.policy import Decision, Query, Replica, tokens_of
from inferometer.router.relay import CUT, DONE, GONE, SURPLUS, UNTIL_CLOSE, Relay, Relayed, framing_of
from inferometer.router.upstream import Upstream, UpstreamConnection
from inferometer.wire.http1 import ROUTED_TO, Head
from inferometer.wire.reactor import now
from inferometer.wire.server import HttpRequest, Reply

EXPLAIN = "x-inferometer-explain"
DECISION = "x-inferometer-decision"
MOST_EXPLAINED = 2048  # characters of the matched text in a header; /router/decisions has more of it
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"proxy-authenticate"})
NOT_SENT = HOP_BY_HOP | {b"host", b"expect", b"proxy-authorization", b"x-forwarded-for"}
NOT_SENT |= {b"content-length", b"transfer-encoding", b"trailer"}  # a body in chunks goes on with its length


class PassageRouter(Protocol):
    """What a passage needs of the proxy that it belongs to."""

    relay: Relay

    def dispatch(self, passage: "Passage") -> None: ...
    def refused(self, passage: "Passage", upstream: Upstream, reason: str) -> bool: ...
    def over(self, passage: "Passage", outcome: str, relayed: Relayed | None) -> None: ...
    def may_retry(self, passage: "Passage", status: int | None = None) -> bool: ...


class Passage:
    """A request from its arrival to the last byte of its response. `upstream` is where it is now, if anywhere."""

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
        self.failures: list[str] = []  # why those that were tried did not take it
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
        """Done with the replica that it was at, for whatever reason."""
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

    def explanation(self, most_chars: int) -> dict[str, object]:
        """Why it went where it went."""
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
        else:  # only the end of the connection can tell the client
            self.reply.abort()

    # -- what the client does ----------------------------------------------------------------------------------------

    def _client_left(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._router.over(self, "client_left", None)


def is_ambiguous(head: bytes) -> bool:
    """Whether another server might see other headers in this than we do, and so another request: it has bare CR or LF,
    or folded lines."""
    ends = head.count(b"\r\n")
    return head.count(b"\n") != ends or head.count(b"\r") != ends or b"\r\n " in head or b"\r\n\t" in head


def request_bytes(request: HttpRequest, upstream: Upstream, peer: str) -> bytes:
    """The request as the replica gets it: its own headers, but for those of the connection that it came on."""
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
    """Status line and headers as the client gets them, without the empty line behind them."""
    first, *lines = raw.split(b"\r\n")
    _version, _, status = first.partition(b" ")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in HOP_BY_HOP]
    if not keep_alive:
        kept.append(b"connection: close")
    return b"\r\n".join([b"HTTP/1.1 " + status, *kept, b""])
