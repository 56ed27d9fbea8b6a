"""One reactor for the servers and clients of a test, so that no test waits by the clock."""

from typing import Any

from inferometer.wire.client import Client
from inferometer.wire.origin import origin_of
from inferometer.wire.reactor import now
from inferometer.wire.server import HttpServer

PATIENCE_NS = 20 * 10**9
GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


class Loop:
    """One reactor with servers and clients on it, all closed at the end."""

    def __init__(self, reactor, kernel_stamps=True):
        self.reactor, self.kernel_stamps = reactor, kernel_stamps
        self._open = []

    def serve(self, handler):
        """A server on a free port; `handler(request, reply)`."""
        self._open.append(HttpServer(self.reactor, handler))
        return self._open[-1]

    def client(self, where, **settings):
        """A client of a server, a port or a URL."""
        if not isinstance(where, str | int):
            where = where.port
        origin = where if isinstance(where, str) else f"http://127.0.0.1:{where}"
        settings.setdefault("kernel_stamps", self.kernel_stamps)
        made = Client(
            self.reactor, origin_of(origin, settings.pop("tls", None), settings.pop("proxy", None)), **settings
        )
        self._open.append(made)
        return made

    def until(self, condition):
        """Run until it holds; fails when it does not within a generous time."""
        begun = now()

        def look() -> None:
            assert now() - begun < PATIENCE_NS, "nothing happens"
            if condition():
                self.reactor.stop()
            else:
                self.reactor.call_at(now() + 100_000, look)

        if not condition():
            look()
            self.reactor.run()

    def fetch(self, client, request=GET, count=1):
        """Exchanges sent at once, as they are when all are over; asserts that each ends exactly once."""
        ended: list[Any] = []
        exchanges = [client.fetch(request, ended.append) for _ in range(count)]
        self.until(lambda: len(ended) >= count)
        assert len(ended) == count
        return exchanges[0] if count == 1 else exchanges

    def close(self) -> None:
        for each in reversed(self._open):
            each.close()
