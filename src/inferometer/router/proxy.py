"""The streaming proxy: a policy chooses a replica for each incoming request, and the response is passed on as it
arrives. Built on the wire's event loop, HTTP server and HTTP parsing; `router.relay` handles a single request."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import orjson

from inferometer.documents.document import JsonValue
from inferometer.router.feed import PATH as JOURNAL
from inferometer.router.feed import Choice, Feed
from inferometer.router.health import Broadcast, HealthCheck
from inferometer.router.metrics import CONTENT_TYPE, RouterMetrics
from inferometer.router.policies.load import LeastLoaded, LeastLoadedSettings
from inferometer.router.policy import NoReplicaError, Query, policy_named
from inferometer.router.relay import Passage, Relay, Relayed, is_ambiguous
from inferometer.router.settings import RouterSettings, query_of
from inferometer.router.upstream import Upstream
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.server import HttpRequest, HttpServer, Reply

RESETS = ("/reset_prefix_cache", "/flush_cache")  # sent to all replicas, and applied to the policy's memory of them
MOST_DECISIONS = 1000  # number kept for /router/decisions
MOST_KEPT = 16_384  # characters of the matched text kept for each
EVICT_NS = 1_000_000_000
RETRY_AFTER_S = 1


class RouterProxy:
    """Listens from its creation; serves while its reactor runs."""

    def __init__(
        self, reactor: Reactor, relay: Relay, settings: RouterSettings, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.reactor, self.relay, self.settings = reactor, relay, settings
        self.policy = policy_named(settings.policy, settings.settings, settings.seed)
        self._by_load = LeastLoaded(LeastLoadedSettings(), settings.seed)
        tls = settings.tls_context()
        self.upstreams = [
            Upstream(reactor, address.name, address.url, settings.connect_timeout_s, settings.max_in_flight, tls)
            for address in settings.upstreams
        ]
        self._named = {upstream.name: upstream for upstream in self.upstreams}
        self._checks = {
            upstream.name: HealthCheck(upstream, settings, self.policy.needs_metrics, self._changed)
            for upstream in self.upstreams
        }
        self._waiting: deque[Passage] = deque()
        self._number = 0
        self.under_way: set[Passage] = set()
        self._decisions: deque[dict[str, JsonValue]] = deque(maxlen=MOST_DECISIONS)
        self.metrics = RouterMetrics(self.upstreams, self.policy.state, lambda: len(self._waiting))
        self.feed = Feed()
        self._draining = False
        self.on_idle: Callable[[], None] | None = None  # called when the last request is over while draining
        self._routes: dict[tuple[str, str], Callable[[HttpRequest, Reply], None]] = {
            ("GET", "/metrics"): self._metrics,
            ("GET", "/router/metrics"): self._metrics,
            ("GET", "/router/state"): self._state,
            ("GET", "/router/decisions"): self._send_decisions,
            ("GET", JOURNAL): self._journal,
            ("GET", "/health"): self._health,
            **{("POST", path): partial(self._reset, path) for path in RESETS},
        }
        self.http = HttpServer(reactor, self._handle, host, port, most_body=settings.most_body)
        self.port = self.http.port
        for check in self._checks.values():
            check.start()
        reactor.call_at(now() + EVICT_NS, self._evict)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _handle(self, request: HttpRequest, reply: Reply) -> None:
        if self._draining:
            reply.keep_alive = False
        if is_ambiguous(request.head):
            respond_error(reply, 400, "the headers have folded lines or bare line ends")
            return
        route = self._routes.get((request.method, request.path))
        if route is not None:
            route(request, reply)
            return
        self._number += 1
        is_generation = request.method == "POST" and bool(request.body)
        if is_generation:
            query = query_of(request.body, request.headers, self.settings.session_headers, self._number)
        else:
            query = Query(id=self._number)
        passage = Passage(self, request, reply, query, is_generation)
        self.under_way.add(passage)
        self.dispatch(passage)

    def dispatch(self, passage: Passage) -> None:
        """Choose a replica and send; or queue the request, if every remaining replica is full."""
        left = [upstream.snapshot() for upstream in self.upstreams if upstream.name not in passage.tried]
        policy = self.policy if passage.is_generation else self._by_load
        began, now_s = now(), time.monotonic()
        try:
            decision = policy.choose(passage.query, left, now_s)
        except NoReplicaError as error:
            self._nobody(passage, str(error), any(replica.healthy for replica in left))
            return
        upstream = self._named[decision.replica]
        if passage.is_generation:
            chosen = now()
            self.policy.sent(passage.query, upstream.name, now_s)
            done, number = now(), passage.query.id
            took_s, insert_s = (chosen - began) / 1e9, (done - chosen) / 1e9
            self.metrics.decided(decision, (done - began) / 1e9, (began - passage.since) / 1e9)
            self.feed.add(
                Choice(
                    began,
                    number,
                    upstream.name,
                    decision.kind,
                    decision.match_rate,
                    None,
                    None,
                    len(left),
                    took_s,
                    insert_s,
                )
            )
        passage.send_to(upstream, decision, left)
        if passage.explains:
            self._decisions.append(passage.explanation(MOST_KEPT))

    def _nobody(self, passage: Passage, reason: str, any_healthy: bool) -> None:
        if any_healthy and len(self._waiting) < self.settings.queue_limit:
            self._waiting.append(passage)
            return
        states = [f"{upstream.name}: {upstream.reason}" for upstream in self.upstreams if not upstream.healthy]
        details = "; ".join(passage.failures or states)
        text = f"{reason} ({details})" if details else reason
        self.refuse(passage, 503 if any_healthy or not passage.failures else 502, text)

    def refuse(self, passage: Passage, status: int, text: str) -> None:
        passage.reply.on_close = None
        self.over(passage, "refused", None)
        respond_error(passage.reply, status, text)

    # -- what passages report ----------------------------------------------------------------------------------------

    def may_retry(self, passage: Passage, status: int | None = None) -> bool:
        if status is not None and status not in self.settings.retry_statuses:
            return False
        others = any(upstream.healthy and upstream.name not in passage.tried for upstream in self.upstreams)
        return others and len(passage.tried) <= self.settings.retries

    def refused(self, passage: Passage, upstream: Upstream, reason: str) -> bool:
        """An attempt failed before its first byte; returns whether there will be another one. A missing answer counts
        against the replica, a status does not."""
        self._leave(passage)
        self.metrics.retried(upstream.name)
        if not reason.startswith("status"):
            self._checks[upstream.name].suspect(reason)
        if self.may_retry(passage):
            return True
        self.refuse(passage, 502, f"no replica answered ({'; '.join(passage.failures)})")
        return False

    def over(self, passage: Passage, outcome: str, relayed: Relayed | None) -> None:
        """A passage has ended in any way; the next request in the queue takes its place."""
        where = passage.upstream.name if passage.upstream else (passage.tried[-1] if passage.tried else "")
        self._leave(passage)
        self.under_way.discard(passage)
        self.metrics.ended(where, outcome, relayed, passage.since, now())
        if passage in self._waiting:
            self._waiting.remove(passage)
        self._serve_waiting()
        if self._draining and not self.under_way and self.on_idle is not None:
            self.on_idle()

    def _leave(self, passage: Passage) -> None:
        upstream = passage.upstream
        if upstream is None:
            return
        passage.leave()
        if passage.is_generation:
            self.policy.finished(passage.query, upstream.name, time.monotonic())

    def _serve_waiting(self) -> None:
        """Dispatch waiting requests in order of arrival, as long as there is room."""
        while self._waiting and any(upstream.snapshot().is_available for upstream in self.upstreams):
            before = len(self._waiting)
            self.dispatch(self._waiting.popleft())
            if len(self._waiting) == before:  # it is queued again: every possible replica is full
                self._waiting.rotate(1)
                return

    @property
    def all_checked(self) -> bool:
        """Whether the health of every replica is known."""
        return all(check.checked for check in self._checks.values())

    # -- health and memory -------------------------------------------------------------------------------------------

    def _changed(self, upstream: Upstream, process_is_gone: bool) -> None:
        if upstream.healthy:
            self.policy.added(upstream.name)
            self._serve_waiting()
            return
        if process_is_gone:
            self.policy.removed(upstream.name)
        if not any(upstream.healthy for upstream in self.upstreams):
            for passage in list(self._waiting):
                self._waiting.remove(passage)
                self.dispatch(passage)

    def _evict(self) -> None:
        """Once a second: evict from the policy's memory, and record the present state for an observer."""
        began = now()
        evictions = self.policy.evict(time.monotonic())
        if evictions:
            self.feed.evicted(began, evictions, (now() - began) / 1e9)
        self.feed.state(now(), {upstream.name: upstream.in_flight for upstream in self.upstreams}, self.policy.state())
        self.reactor.call_at(now() + EVICT_NS, self._evict)

    def drain(self) -> None:
        """Accept no more clients; `on_idle` is called when the last request is over."""
        self._draining = True
        self.http.stop_listening()
        if not self.under_way and self.on_idle is not None:
            self.on_idle()

    def close(self) -> None:
        for check in self._checks.values():
            check.stop()
        self.http.close()
        for upstream in self.upstreams:
            upstream.close()

    # -- the router's own answers ------------------------------------------------------------------------------------

    def _metrics(self, _request: HttpRequest, reply: Reply) -> None:
        reply.respond(200, self.metrics.exposition(), {"content-type": CONTENT_TYPE})

    def _health(self, _request: HttpRequest, reply: Reply) -> None:
        if any(upstream.healthy for upstream in self.upstreams):
            reply.respond(200, b"")
        else:
            respond_error(reply, 503, down_text(self.upstreams))

    def _state(self, _request: HttpRequest, reply: Reply) -> None:
        replicas = [
            {"name": upstream.name, "url": upstream.origin.url, "healthy": upstream.healthy}
            | ({} if upstream.healthy else {"reason": upstream.reason})
            | {"in_flight": upstream.in_flight, "tokens_in_flight": upstream.tokens_in_flight}
            | {"waiting": upstream.waiting, "kv_usage": upstream.kv_usage}
            for upstream in self.upstreams
        ]
        settings = self.policy.settings
        policy = {
            "name": self.settings.policy,
            "settings": {f: getattr(settings, f) for f in settings.__struct_fields__},
        }
        state = self.policy.state()
        memory = {field: getattr(state, field) for field in state.__struct_fields__}
        body = {"policy": policy, "replicas": replicas, "queued": len(self._waiting), "memory": memory}
        reply.respond(200, orjson.dumps(body, option=orjson.OPT_INDENT_2))

    def _journal(self, request: HttpRequest, reply: Reply) -> None:
        """New entries for an observer: `?since=N`, with N from the last reply."""
        since = request.query.removeprefix("since=")
        if not since.isdigit():
            respond_error(reply, 400, f"since must be a number, got {request.query!r}")
            return
        reply.respond(200, msgspec.json.encode(self.feed.page(int(since), now())))

    def _send_decisions(self, _request: HttpRequest, reply: Reply) -> None:
        """The latest decisions on requests that asked for an explanation."""
        text = orjson.dumps(list(self._decisions), option=orjson.OPT_INDENT_2)
        reply.respond(200, text)

    def _reset(self, path: str, request: HttpRequest, reply: Reply) -> None:
        """Sent to all replicas: resetting the cache of only some would be no reset."""

        def done(failures: list[str]) -> None:
            for upstream in self.upstreams:
                self.policy.removed(upstream.name)
                self.policy.added(upstream.name)
            if failures:
                respond_error(reply, 502, f"{path}: {'; '.join(failures)}")
            else:
                reply.respond(200, b"")

        Broadcast([upstream for upstream in self.upstreams if upstream.healthy], request, reply.peer, done)


def respond_error(reply: Reply, status: int, text: str) -> None:
    """An error in the form of OpenAI's API."""
    kind = {502: "BadGatewayError", 503: "ServiceUnavailableError"}.get(status, "Error")
    body = {"error": {"message": text, "type": kind, "param": None, "code": status}, "object": "error"}
    reply.respond(status, orjson.dumps(body), {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {})


def down_text(upstreams: Sequence[Upstream]) -> str:
    """Which replicas are down, and why."""
    return "; ".join(f"{upstream.origin.url}: {upstream.reason}" for upstream in upstreams if not upstream.healthy)
