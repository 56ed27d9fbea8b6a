"""Whether replicas respond: checks at an interval, immediately after a failed request, and their reported load if a
policy needs it. Also requests that are sent to every replica."""

from collections.abc import Callable, Sequence

from inferometer.router.relay import request_bytes
from inferometer.router.settings import RouterSettings
from inferometer.router.upstream import Upstream, UpstreamConnection
from inferometer.wire.http1 import Chunks, Head
from inferometer.wire.reactor import ReactorTimer, now
from inferometer.wire.server import HttpRequest

MOST_BODY = 16 << 20  # maximum bytes of metrics
RECHECK_NS = 50_000_000  # until the first check of a replica after a request failed there
READ_SIZE = 64 * 1024
REFUSED = "refused"  # part of a connection error that means that the process is gone


class HealthExchange:
    """A small request of the router's own, read to its end; `done` receives status and body, or None and the reason."""

    def __init__(self, upstream: Upstream, request: bytes, done: Callable[[int | None, bytes, str], None]) -> None:
        self._upstream = upstream
        self._done: Callable[[int | None, bytes, str], None] | None = done
        self._request = request
        self._body = b""
        self._head: Head | None = None
        self._chunks: Chunks | None = None
        self._connection: UpstreamConnection | None = upstream.send(request, self)

    def failed(self, connection: UpstreamConnection, reason: str, stale: bool) -> None:
        if self._done is None:
            return
        if stale:
            self._connection = self._upstream.send(self._request, self, fresh=True)
        else:
            self._finish(None, reason)

    def answered(self, connection: UpstreamConnection, head: Head, raw: bytes) -> None:
        self._connection, self._head = connection, head
        self._chunks = Chunks() if head.chunked else None
        self._upstream.reactor.watch(connection.fd, self._ready)
        self._take(raw[head.end :])

    def _ready(self, _events: int) -> None:
        assert self._connection is not None
        try:
            data = self._connection.source.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(None, (error.strerror or str(error)).lower())
            return
        if data:
            self._take(data)
        else:
            self._end(reusable=False)

    def _take(self, data: bytes) -> None:
        self._body += data
        assert self._head is not None
        try:
            behind = self._chunks.feed(data) if self._chunks is not None and data else -1
        except ValueError as error:
            self._finish(None, str(error))
            return
        whole = self._head.length is not None and len(self._body) >= self._head.length
        if behind >= 0 or whole or len(self._body) > MOST_BODY:
            self._end(self._head.keep_alive and not behind > 0 and len(self._body) <= MOST_BODY)

    def _end(self, reusable: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if reusable:
                connection.rest()
            else:
                connection.close()
        assert self._head is not None
        done, self._done = self._done, None
        if done is not None:
            done(self._head.status, self._body, "")

    def _finish(self, status: int | None, reason: str) -> None:
        done, self._done = self._done, None
        self.cancel()
        if done is not None:
            done(status, b"", reason)

    def cancel(self) -> None:
        self._done = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class HealthCheck:
    """Health check of one replica. Two consecutive checks without an answer in time make it unhealthy, a refused
    connection at once; any status below 500 counts as an answer, because not every server has the path."""

    def __init__(
        self,
        upstream: Upstream,
        settings: RouterSettings,
        reads_metrics: bool,
        changed: Callable[[Upstream, bool], None],
    ) -> None:
        self._upstream, self._settings, self._changed = upstream, settings, changed
        self._reads_metrics = reads_metrics
        self._exchange: HealthExchange | None = None
        self._timer: ReactorTimer | None = None
        self._late = 0  # consecutive checks not answered in time
        self._gone = False  # nothing listens there any more: its process has ended, and its cache is lost
        self.checked = 0
        self._request = _get(upstream, settings.health_path)
        self._metrics_request = _get(upstream, "/metrics")

    def start(self) -> None:
        self._again(0)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None

    def suspect(self, reason: str) -> None:
        """A request failed there: nothing more is sent to it until a check succeeds."""
        self._become(False, reason, process_is_gone=REFUSED in reason)
        self.stop()
        self._again(RECHECK_NS)

    def _again(self, after_ns: int) -> None:
        self._timer = self._upstream.reactor.call_at(now() + after_ns, self._check)

    def _check(self) -> None:
        if self._exchange is not None:  # a request for metrics not answered since the last check
            self._exchange.cancel()
        timeout = now() + int(self._settings.health_timeout_s * 1e9)
        self._timer = self._upstream.reactor.call_at(timeout, self._too_late)
        self._exchange = HealthExchange(self._upstream, self._request, self._answered)

    def _too_late(self) -> None:
        self.stop()
        self._late += 1
        self.checked += 1
        if self._late > 1 or not self._upstream.healthy:
            reason = f"{self._settings.health_path} did not answer within {self._settings.health_timeout_s:g} s"
            self._become(False, reason, process_is_gone=False)
        self._again(0)

    def _answered(self, status: int | None, _body: bytes, reason: str) -> None:
        self.stop()
        self.checked += 1
        self._late = 0
        if status is not None and status < 500:
            self._become(True, "", process_is_gone=False)
        else:
            text = reason or f"{self._settings.health_path} answered {status}"
            self._become(False, text, process_is_gone=REFUSED in text)
        if self._reads_metrics and self._upstream.healthy:
            self._exchange = HealthExchange(self._upstream, self._metrics_request, self._learn)
        self._again(int(self._settings.health_interval_s * 1e9))

    def _learn(self, status: int | None, body: bytes, _reason: str) -> None:
        self._exchange = None
        if status == 200:
            self._upstream.learn_metrics(body)

    def _become(self, healthy: bool, reason: str, process_is_gone: bool) -> None:
        changes = healthy != self._upstream.healthy or (process_is_gone and not self._gone)
        self._upstream.healthy, self._upstream.reason, self._gone = healthy, reason, process_is_gone
        if changes:
            self._changed(self._upstream, process_is_gone)


def _get(upstream: Upstream, path: str) -> bytes:
    origin = upstream.origin
    return f"GET {origin.path}{path} HTTP/1.1\r\nhost: {origin.authority}\r\naccept: */*\r\n\r\n".encode("latin-1")


class Broadcast:
    """One request to several replicas; `done` receives the failures."""

    def __init__(
        self, upstreams: Sequence[Upstream], request: HttpRequest, peer: str, done: Callable[[list[str]], None]
    ) -> None:
        self._left = len(upstreams)
        self._failures: list[str] = []
        self._done = done
        for upstream in upstreams:
            HealthExchange(upstream, request_bytes(request, upstream, peer), self._on_answer(upstream.name))
        if not upstreams:
            done(["no replica is healthy"])

    def _on_answer(self, name: str) -> Callable[[int | None, bytes, str], None]:
        def answered(status: int | None, _body: bytes, reason: str) -> None:
            if status is None or not 200 <= status < 300:
                self._failures.append(f"{name}: {reason or f'status {status}'}")
            self._left -= 1
            if not self._left:
                self._done(self._failures)

        return answered
