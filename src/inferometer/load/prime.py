"""Requests that are sent once before the load, to fill a prefix cache. They leave no records, only counts of their
outcomes."""

from collections.abc import Callable, Iterator

import msgspec

from inferometer.load.clock import Clock, Ticket, Transport
from inferometer.record.record import Record
from inferometer.workload.session import Request, Workload

AT_ONCE = 8  # enough to finish soon, few enough not to fill a queue


class Primed(msgspec.Struct):
    """Result of the priming."""

    requests: int = 0
    failed: int = 0
    tokens: int = 0  # of the prompts, as the server counted them
    error: str | None = None


def primes_of(workload: Workload, urls: int, shard: int = 0, shards: int = 1) -> Iterator[tuple[int, Request]]:
    """(number, request) of this shard's share; every replica receives each request, because the number determines the
    URL."""
    make: Callable[[], Iterator[Request]] | None = getattr(workload, "primes", None)
    for number, request in enumerate(make() if make is not None else ()):
        if number % shards == shard:
            yield from ((number * urls + url, request) for url in range(urls))


class Primer:
    """Sends requests, a few at a time, and calls `on_over` when all are answered or `stop` was called."""

    def __init__(
        self,
        traffic: str,
        requests: Iterator[tuple[int, Request]],
        clock: Clock,
        transport: Transport,
        on_over: Callable[[], None],
    ) -> None:
        self.primed = Primed()
        self._traffic, self._requests = traffic, requests
        self._clock, self._transport = clock, transport
        self._on_over: Callable[[], None] | None = on_over
        self._open = 0  # sent and not over
        self._unread = 0  # sent and without a record
        self._no_more = False

    @property
    def over(self) -> bool:
        return self._on_over is None

    def start(self) -> None:
        for _ in range(AT_ONCE):
            self._send_next()
        self._check_over()

    def stop(self) -> None:
        """Send no more."""
        self._no_more = True

    def _send_next(self) -> None:
        following = None if self._no_more else next(self._requests, None)
        if following is None:
            self._no_more = True
            return
        number, request = following
        at = self._clock.now()
        ticket = Ticket(number, 0, 1, self._traffic, 0, 0, at, at)
        self._open += 1
        self._unread += 1
        self._transport.send(request, ticket, self._ended, self._done)

    def _ended(self, _at: int) -> None:
        self._open -= 1
        self._clock.call_at(self._clock.now(), self._go_on)  # not inside the callback of the answer that just ended

    def _go_on(self) -> None:
        self._send_next()
        self._check_over()

    def _done(self, record: Record, _text: str) -> None:
        self._unread -= 1
        primed = self.primed
        primed.requests += 1
        primed.tokens += record.input_tokens or 0
        if record.outcome != "ok":
            primed.failed += 1
            primed.error = primed.error or record.error or record.outcome
        self._check_over()

    def _check_over(self) -> None:
        if self._no_more and not self._open and not self._unread and self._on_over is not None:
            on_over, self._on_over = self._on_over, None
            on_over()
