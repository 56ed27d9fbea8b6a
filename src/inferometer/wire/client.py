"""The HTTP/1.1 client of the load: requests, their time limits, and a pool of connections to one origin."""

from collections import deque
from collections.abc import Callable
from functools import partial

from inferometer.wire.connection import Connection
from inferometer.wire.exchange import Exchange
from inferometer.wire.origin import Origin
from inferometer.wire.reactor import Reactor, ReactorTimer, now
from inferometer.wire.skeleton import Shape, shape_of
from inferometer.wire.sockets import Acknowledging

SWEEPS_PER_IDLE_LIMIT = 8  # how often silent connections are checked for within the allowed time
MOST_SHAPES = 8  # of events: a server with more different answers is read one event after the other
LESSONS = 3  # answers from which a shape is learned before they are read, while none is known
MOST_ANSWER = 64 * 1024 * 1024  # bytes


class Client:
    """Connections to one origin. The most recently used idle one is reused; a new one is opened if there is none."""

    def __init__(
        self,
        reactor: Reactor,
        origin: Origin,
        *,
        connect_timeout_s: float = 10.0,
        request_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        most_answer: int = MOST_ANSWER,
        kernel_stamps: bool = True,
    ) -> None:
        self.reactor = reactor
        self.origin = origin
        self.addresses = origin.addresses()
        self.connect_timeout_s = connect_timeout_s
        self.most_answer = most_answer
        self.kernel_stamps = kernel_stamps
        self.acks = Acknowledging()
        self.number = reactor.new_origin()
        self.shape = -1  # the event shape that the compiled reader expects in answers that start now
        self._shapes: dict[Shape, int] = {}
        self._lessons = LESSONS if reactor.attach is not None else 0
        self.opened = 0  # number of connections opened, for the record
        self._request_timeout_ns = int(request_timeout_s * 1e9) if request_timeout_s else None
        self._idle_timeout_ns = int(idle_timeout_s * 1e9) if idle_timeout_s else None
        self._idle: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self._in_flight: dict[Exchange, None] = {}  # in the order they started, so that the first one expires first
        self._expiry: ReactorTimer | None = None
        self._sweep: ReactorTimer | None = None

    def open(self, count: int, on_open: Callable[[], None]) -> None:
        """Open connections in advance; `on_open` is called for each one when it is open or has failed."""
        for _ in range(count):
            Connection(self, None, on_open)

    def fetch(
        self,
        request: bytes,
        on_end: Callable[[Exchange], None],
        recognise: bool = False,
        on_read: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """Send the bytes of a request; `on_end` is called once, when its answer is over. `recognise`: events may be
        recognised on arrival, because their text is not needed. `on_read` is called after every read of the answer."""
        exchange = Exchange(self, request, on_end)
        if on_read is not None:
            exchange.on_read = partial(on_read, exchange)
        exchange.recognise = recognise
        self._in_flight[exchange] = None
        self.reactor.awaited += 1
        self._arm()
        while self._idle:
            if self._idle.pop().reuse(exchange):
                return exchange
        Connection(self, exchange)
        return exchange

    def largest(self) -> Exchange | None:
        """The exchange in progress with the largest answer so far."""
        return max(self._in_flight, key=lambda exchange: exchange.size, default=None)

    def finish(self, exchange: Exchange, outcome: str, error: str | None = None) -> None:
        """The exchange is over: call its `on_end`."""
        exchange.outcome = outcome
        exchange.error = error
        exchange.ended_at = now()
        exchange.connection = None
        self.reactor.answered(exchange.ended_at - exchange.started_at)
        if outcome == "oversized":  # it will not be read, and others need the memory
            exchange.keep_beginning()
        if exchange in self._in_flight:
            del self._in_flight[exchange]
            self.reactor.awaited -= 1
        exchange.on_end(exchange)

    def retry(self, exchange: Exchange) -> None:
        """Send it again on a fresh connection: the server had closed the kept-alive one before it was used."""
        exchange.retry_ns = now() - (exchange.sent_at or exchange.started_at)
        exchange.sent_at = None
        exchange.forget_answer()
        Connection(self, exchange)

    def teaches(self, exchange: Exchange) -> bool:
        """Whether the shape of events should be learned from an answer before it is read, as none is known yet: the
        compiled reader then recognises the events of answers in progress."""
        readable = exchange.recognise and exchange.bulk is not None and exchange.outcome == "ok"
        if self.shape >= 0 or not self._lessons or not readable:
            return False
        self._lessons -= 1
        return True

    def learn_shape(self, exchange: Exchange) -> None:
        """An answer was read one event after the other: the next ones are expected to have the same shape."""
        if exchange.learned is None or not exchange.recognise or exchange.shape != self.shape:
            return  # nothing was learned, or another answer was faster
        if self.reactor.attach is not None and len(self._shapes) < MOST_SHAPES:
            shape = shape_of(*exchange.learned)
            if shape is not None and shape not in self._shapes:
                self._shapes[shape] = self.reactor.expect(shape)
                self.shape = self._shapes[shape]

    def delay_acks(self) -> int:
        """How a stream that starts now is acknowledged."""
        return self.acks.delay(len(self._in_flight))

    def rest(self, connection: Connection) -> None:
        self._idle.append(connection)

    def add(self, connection: Connection) -> None:
        self._connections.add(connection)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close every connection; exchanges in progress end as cancelled."""
        for exchange in list(self._in_flight):
            exchange.end("cancelled")
        for connection in list(self._connections):
            connection.drop()
        for timer in (self._expiry, self._sweep):
            if timer is not None:
                timer.cancel()

    def _arm(self) -> None:
        if self._expiry is None and self._request_timeout_ns is not None:
            oldest = next(iter(self._in_flight))
            self._expiry = self.reactor.call_at(oldest.started_at + self._request_timeout_ns, self._expire)
        if self._sweep is None and self._idle_timeout_ns is not None:
            at = now() + self._idle_timeout_ns // SWEEPS_PER_IDLE_LIMIT
            self._sweep = self.reactor.call_at(at, self._end_silent)

    def _expire(self) -> None:
        self._expiry = None
        assert self._request_timeout_ns is not None
        before = now() - self._request_timeout_ns
        while self._in_flight and (oldest := next(iter(self._in_flight))).started_at <= before:
            oldest.end("timeout", f"no complete answer within {self._request_timeout_ns / 1e9:g} s")
        if self._in_flight:
            self._arm()

    def _end_silent(self) -> None:
        self._sweep = None
        assert self._idle_timeout_ns is not None
        moment = now()
        for exchange in list(self._in_flight):
            if exchange.reads_so_far != exchange.heard or not exchange.quiet_since:
                exchange.heard = exchange.reads_so_far
                exchange.quiet_since = moment
            elif moment - exchange.quiet_since >= self._idle_timeout_ns:
                exchange.end("timeout", f"silent for {self._idle_timeout_ns / 1e9:g} s")
        if self._in_flight:
            self._arm()
