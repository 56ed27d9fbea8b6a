"""A router as a process, from listening to the last request after a signal."""

import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from inferometer.errors import TargetError
from inferometer.router.proxy import RouterProxy, down_text
from inferometer.router.relay import relaying_reactor
from inferometer.router.settings import RouterSettings
from inferometer.wire.origin import UnknownHostError, origin_of
from inferometer.wire.reactor import Reactor, now

POLL_NS = 20_000_000
RESOLVE_RETRY_S = 0.5  # interval of retries to resolve a name
COLLECT_AFTER = (100_000, 50, 1000)


def run_router(
    settings: RouterSettings,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    ready_s: float = 0.0,
    on_ready: Callable[[RouterProxy], None] = lambda router: None,
    notify: Callable[[str], None] = lambda text: None,
    until_stdin_closes: bool = False,
) -> int | None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight; a second signal ends at once. Returns the signal.

    Raises a `TargetError` if no replica answers within `ready_s`, or the port is taken.
    """
    ready_by = time.monotonic() + ready_s
    _await_names(settings, ready_by, notify)
    reactor, relay = relaying_reactor()
    _allow_open_files()
    try:
        router = RouterProxy(reactor, relay, settings, host, port)
    except OSError as error:
        reactor.close()
        raise cannot_listen(host, port, error) from None
    run = _Run(reactor, router, settings, notify)
    undo = [reactor.on_signal(number, partial(run.signalled, number)) for number in run.SIGNALS]
    if until_stdin_closes:
        run.stop_with_stdin()
    run.await_replicas(ready_by, on_ready)
    gc.freeze()  # a full collection must not stop every stream to scan what was imported
    gc.set_threshold(*COLLECT_AFTER)  # nor to scan the nodes of a large tree: freeing them needs no collection
    try:
        reactor.run()
    finally:
        for restore in undo:
            restore()
        router.close()
        reactor.close()
    if run.error is not None:
        raise run.error
    return run.signal


def _await_names(settings: RouterSettings, until: float, notify: Callable[[str], None]) -> None:
    """In a cluster, a name may become resolvable some seconds after its object was created."""
    tls, reported = settings.tls_context(), set[str]()
    for upstream in settings.upstreams:
        while True:
            try:
                origin_of(upstream.url, tls).addresses()
                break
            except UnknownHostError as error:
                if time.monotonic() >= until:
                    raise
                if upstream.url not in reported:
                    reported.add(upstream.url)
                    notify(f"{error.message}; it is looked up again until --ready is over")
                time.sleep(RESOLVE_RETRY_S)


def cannot_listen(host: str, port: int, error: OSError) -> TargetError:
    """Why listening on the address fails, and which part of it to change."""
    if error.errno in {errno.EADDRINUSE, errno.EACCES}:
        reason, hint = os.strerror(error.errno).lower(), "choose another port with --port"
        if error.errno == errno.EADDRINUSE:
            hint = f"stop the process that uses it, or {hint}"
        return TargetError(f"port {port} of {host}: {reason}", hint)
    reason = (error.strerror or str(error)).lower()
    return TargetError(f"--host {host}: {reason}", "an address of this machine; 0.0.0.0 is all of them")


class _Run:
    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(
        self, reactor: Reactor, router: RouterProxy, settings: RouterSettings, notify: Callable[[str], None]
    ) -> None:
        self._reactor, self._router, self._settings, self._notify = reactor, router, settings, notify
        self.signal: int | None = None
        self.error: TargetError | None = None

    def await_replicas(self, until: float, on_ready: Callable[[RouterProxy], None]) -> None:
        """Ready when one replica is ready; an error if all were checked and none is ready in time."""
        if any(upstream.healthy for upstream in self._router.upstreams):
            on_ready(self._router)
        elif self._router.all_checked and time.monotonic() >= until:
            text = f"no replica is ready ({down_text(self._router.upstreams)})"
            self.error = TargetError(text, "start the replicas first, or wait for them with --ready 60s")
            self._reactor.stop()
        else:
            self._reactor.call_at(now() + POLL_NS, lambda: self.await_replicas(until, on_ready))

    def signalled(self, number: int) -> None:
        if self.signal is not None:
            self._reactor.stop()
            return
        self.signal = number
        left = len(self._router.under_way)
        self._router.on_idle = self._reactor.stop
        self._reactor.call_at(now() + int(self._settings.drain_s * 1e9), self._reactor.stop)
        self._router.drain()
        if left:
            self._notify(f"finishing {left} request{'' if left == 1 else 's'}; interrupt again to stop now")

    def stop_with_stdin(self) -> None:
        """The parent process holds the other end: when it exits, so does the router."""
        fd = sys.stdin.fileno()

        def readable(_events: int) -> None:
            if not os.read(fd, 4096):
                self._reactor.stop()

        self._reactor.watch(fd, readable)


def _allow_open_files() -> None:
    """A stream needs two sockets, so raise the limit as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
