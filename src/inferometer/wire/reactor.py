"""The event loop of the load generator, the simulator and the router: sockets, timers with microsecond deadlines,
signals. A custom loop, because kernel receive timestamps need `recvmsg` at the moment a socket is readable, which
asyncio does not offer, and because an event must not cost more than one dict look-up."""

import ctypes
import errno
import functools
import heapq
import os
import select
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

from inferometer.wire.compiled import compiled
from inferometer.wire.skeleton import Shape
from inferometer.wire.sse import Taken

READ = 1  # the values of EPOLLIN and EPOLLOUT, used on every platform
WRITE = 4
BROKEN = 8 | 16  # EPOLLERR, EPOLLHUP
COMPLETE = 1 << 16  # the answer on an attached descriptor is a complete event stream: take it
LOOK = 1 << 17  # it is something else, or its chunks are irregular
SURPLUS = 1 << 18  # with COMPLETE: bytes arrived after the last chunk
TOO_LARGE = 1 << 19  # it exceeds its size limit

BATCH = 1024  # events taken from one poll
TURN = 8  # events after which timers are checked: a burst of requests must not delay due timers
QUIET_NS = 100_000, 500_000  # free time that a piece of idle work needs before the next timer, minimum and maximum
QUIET_TIMES = 3  # multiple of the time that recent pieces took
NAP_OVERRUN_NS = 150_000  # a nap lasts up to this much longer than requested
FAR_NS = 1 << 62
MANY = 4  # descriptors ready at once: with this many a longer nap costs no accuracy and saves polls
LONGEST_NAP_S = 0.0015  # docs/decisions/nap-length.md
NAP_PARTS = 500  # of the time that answers take: each slot of a closed loop loses half a nap when its answer ends
BUSY_BATCH = 64  # a poll that returned this many events is behind: no nap follows
MOST_AT_ONCE = 4 * 1024 * 1024  # bytes that the compiled reader reads before timers are checked: a millisecond
LOOK_AGAIN_S = 0.001  # maximum length of a poll while answers are awaited, so that later bytes are at most this old,
QUIET_PARTS = 32  # or as old as this part of the time without data (as in _reader.c)
MOST_HELD = 4 * 1024**3  # bytes of answers in progress

OnReady = Callable[[int], None]
now = time.monotonic_ns


class ReactorTimer:
    """A pending action; cancelling it leaves a dead entry in the heap, which is dropped when its time comes."""

    __slots__ = ("action", "at")

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Reactor:
    """Runs callbacks when sockets are ready or instants are reached. `nap_s` lets ready sockets accumulate between
    polls: with kernel timestamps a read may wait without becoming less exact, and fewer polls cost less. Timers are
    checked after every `turn` ready sockets and at least every `most_at_once` bytes. While answers in progress hold
    more than `most_held` bytes, `on_full` is called in every round. `poller` can replace the default epoll."""

    def __init__(
        self,
        nap_s: float = 0.0,
        allow_compiled: bool = True,
        turn: int = TURN,
        most_at_once: int = MOST_AT_ONCE,
        most_held: int = MOST_HELD,
        poller: "Poller | None" = None,
    ) -> None:
        self._poller = poller or _poller(allow_compiled, most_at_once)
        self.most_held = most_held
        self.held = 0  # bytes of memory used by answers in progress, except in the compiled reader
        self._held = 0  # as of the last poll, including the compiled reader
        self.on_full: Callable[[], None] | None = None
        self._ready: dict[int, OnReady] = {}
        self._timers: list[tuple[int, int, ReactorTimer]] = []
        self._sequence = 0
        self._running = False
        self._alarm = _alarm()
        self.nap_s = nap_s
        self._turn = turn
        self.polled_at = self._called_at = now()  # what is readable now arrived after `polled_at`, unless a read left
        # it: the call time of the last poll before this one that was neither full nor interrupted
        self._whole = False  # whether the last poll was neither full nor interrupted
        self._origins = -1
        self.awaited = 0  # answers in progress, whose instants depend on the time since the last poll
        self.stamps_itself = False  # True if a connection has no kernel timestamps and depends on `polled_at`
        self.idle: Callable[[], bool] | None = None  # idle work; returns whether more is left
        self._all_done = False  # no idle work was left, and nothing happened since that could add some
        self._piece_ns = 0.0  # recent duration of a piece of idle work
        self._answer_ns = 0.0  # recent duration of answers
        if self._alarm is not None:
            self.watch(self._alarm.fileno(), self._alarm.clear)

    now = staticmethod(now)

    def call_at(self, at: int, action: Callable[[], None]) -> ReactorTimer:
        """Call `action` at an instant of the monotonic clock, or at once when it has passed."""
        timer = ReactorTimer(at, action)
        self._sequence += 1
        heapq.heappush(self._timers, (at, self._sequence, timer))
        return timer

    def watch(self, fd: int, on_ready: OnReady, events: int = READ) -> None:
        """Call `on_ready(events)` while the descriptor is ready; a second call replaces callback and events."""
        if fd in self._ready:
            self._poller.modify(fd, events)
        else:
            self._poller.register(fd, events)
        self._ready[fd] = on_ready

    def unwatch(self, fd: int) -> None:
        """Stop watching the descriptor; must be called before it is closed."""
        if self._ready.pop(fd, None) is not None:
            self._poller.unregister(fd)

    @functools.cached_property
    def attach(self) -> Callable[[int, int, int, int, int, int], None] | None:
        """With the compiled reader: the function that lets it collect the answer that arrives on a descriptor.
        Arguments: the bytes left of a chunk if the headers of an event stream were already read, or -1 to start at the
        headers; a mode of acknowledging from `wire.sockets`; the maximum number of bytes; the number of an event shape
        (-1 for none); and a server's number from `new_origin`. The descriptor's callback then receives `COMPLETE`,
        `LOOK` or `TOO_LARGE`, and `take` returns the collected data."""
        return getattr(self._poller, "attach", None)

    @functools.cached_property
    def begin(self) -> Callable[[int, bytes, int, int, int, int], tuple[int, int] | None] | None:
        """Likewise: send a request on an idle connection and attach its answer, in one call. Returns the instant just
        before the send and the number of bytes sent, or the error as a negative number; if not all bytes were sent,
        nothing is attached. None if bytes had arrived on the connection: then nothing was done."""
        return getattr(self._poller, "begin", None)

    def new_origin(self) -> int:
        """A number for a server, for use with `attach`."""
        self._origins += 1
        return self._origins

    def expect(self, shape: Shape) -> int:
        """Have the compiled reader recognise events of this shape; returns its number for `attach`, -1 if it has too
        many."""
        poller: Any = self._poller
        holes = shape.prefix, shape.prefix_holes, shape.suffix, shape.suffix_holes
        number: int = poller.expect(*holes, shape.running, shape.between, shape.after, shape.completion_first)
        return number

    def take(self, fd: int, before: bytes = b"", shape: int = -1) -> tuple[bytes, bytes, int, int, Taken | None, int]:
        """The data collected on an attached descriptor: the bytes, after those given as `before`; for each read three
        int64: the number of bytes received with it, its timestamp on the real-time clock, and whether that is our own;
        the number of our own timestamps; whether the server was observed to send without waiting for acknowledgements;
        data on recognised events, whose bytes are then left out; and the start of the last chunk size line reached, 0
        for none. `shape` is the number of an event shape that was not known at `attach`. Afterwards the callback reads
        again."""
        poller: Any = self._poller
        taken: tuple[bytes, bytes, int, int, Taken | None, int] = poller.take(fd, before, shape)
        return taken

    def heard(self, fd: int) -> tuple[int, int]:
        """Number of reads on an attached descriptor so far, and their bytes."""
        heard: tuple[int, int] = self._poller.heard(fd)  # type: ignore[attr-defined]
        return heard

    def on_signal(self, number: int, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` inside the loop each time the signal arrives; returns a function that undoes it. Only the main
        thread receives signals: in other threads this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        inbox, outbox = socket.socketpair()
        for end in (inbox, outbox):
            end.setblocking(False)

        def arrived(_number: int, _frame: FrameType | None) -> None:
            with suppress(BlockingIOError):  # so many that one more makes no difference
                outbox.send(b"!")

        def deliver(_events: int) -> None:
            for _ in inbox.recv(64):
                action()

        before = signal.signal(number, arrived)
        self.watch(inbox.fileno(), deliver)

        def undo() -> None:
            signal.signal(number, before)
            self.unwatch(inbox.fileno())
            inbox.close()
            outbox.close()

        return undo

    def stop(self) -> None:
        self._running = False

    def close(self) -> None:
        if self._alarm is not None:
            self.unwatch(self._alarm.fileno())
            self._alarm.close()
        self._poller.close()

    def run(self) -> None:
        """Serve sockets and timers until `stop`."""
        self._running = True
        ready, turn = self._ready, self._turn
        self._taken = 0
        while self._running:
            events = self._wait()
            if self.stamps_itself:
                events = self._polled_again(events)
            if events:
                self._all_done = False
            for number, (fd, what) in enumerate(events, 1):
                on_ready = ready.get(fd)
                if on_ready is not None:
                    on_ready(what)
                if not number % turn or what >= COMPLETE:  # an answer collected by the compiled reader may be large
                    self._fire()
            self._fire()
            if self._held > self.most_held and self.on_full is not None:
                self.on_full()
            if self.nap_s and self._taken < BUSY_BATCH:
                self._rest()

    def _polled_again(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Ready descriptors from a second poll at a known instant: anything else arrived after it. A poll that blocked
        checked at some instant before it returned, which is unknown if the process lost its core in between. Reports of
        the compiled reader occur only once, so they are kept."""
        polled_at = self.polled_at
        again = self._poll(0)
        self.polled_at = polled_at  # the events of the first poll existed before the second
        named = {fd for fd, _ in again}
        return again + [event for event in events if event[0] not in named]

    def _wait(self) -> list[tuple[int, int]]:
        """Ready descriptors; blocks until there is one or a timer is due, unless idle work is waiting."""
        left = self._time_left()
        if self._room_for_quiet_work(left):
            events = self._poll(0)
            if events or self._taken or self._work_quietly():
                return events
            left = self._time_left()  # the idle work may have set a timer
        if not self._running:
            return []
        return self._poll(self._patience(left))

    def _poll(self, timeout: float) -> list[tuple[int, int]]:
        if self.attach is None:
            events = self._poll_again(timeout)
            self._taken, self._held = len(events), self.held
        else:
            poller: Any = self._poller
            events = poller.poll(timeout, BATCH, int(LOOK_AGAIN_S * 1e3) if self.awaited else -1)
            self.polled_at = poller.since
            self._taken = poller.taken
            self._held = self.held + poller.held
        return events

    def _poll_again(self, timeout: float) -> list[tuple[int, int]]:
        """As the compiled reader polls: repeatedly while answers are awaited. Python itself repeats a poll that a
        signal interrupts."""
        waited = 0.0
        while True:
            look = max(LOOK_AGAIN_S, waited / QUIET_PARTS)
            wait = look if self.awaited and not 0 <= timeout <= look else timeout
            if self._whole:
                self.polled_at = self._called_at
            self._called_at = now()
            events = self._poller.poll(wait, BATCH)
            self._whole = len(events) < BATCH
            waited += wait
            if timeout >= 0:
                timeout = max(timeout - wait, 0)
            if events or timeout == 0:
                return events

    def _time_left(self) -> int:
        """Nanoseconds until the next timer."""
        timers = self._timers
        while timers and timers[0][2].action is None:
            heapq.heappop(timers)
        return timers[0][0] - now() if timers else FAR_NS

    def _patience(self, left: int) -> float:
        """How long a poll may block, in seconds; -1 means without limit."""
        if left <= 0:
            return 0
        if left >= FAR_NS:
            return -1
        if self._alarm is None:
            return left / 1e9
        self._alarm.set(self._timers[0][0])
        return -1

    def _fire(self) -> None:
        """Run the timers that are due; those that become due meanwhile wait until the sockets were served."""
        timers, moment = self._timers, now()
        while timers and timers[0][0] <= moment:
            action = heapq.heappop(timers)[2].action
            if action is not None:
                self._all_done = False
                action()

    def _room_for_quiet_work(self, left: int) -> bool:
        least, most = QUIET_NS
        return (
            self.idle is not None and not self._all_done and left > min(max(QUIET_TIMES * self._piece_ns, least), most)
        )

    def work_on(self) -> bool:
        """Run a piece of idle work, then whatever is ready or due, without waiting; returns whether there was a
        piece."""
        worked = self.idle is not None and self._work_quietly()
        for fd, what in self._poll(0):
            on_ready = self._ready.get(fd)
            if on_ready is not None:
                on_ready(what)
        self._fire()
        return worked

    def _work_quietly(self) -> bool:
        """Run one piece; returns whether there was one."""
        assert self.idle is not None
        begun_at = now()
        worked = self.idle()
        self._all_done = not worked
        if worked:
            self._piece_ns += (now() - begun_at - self._piece_ns) / 16
        return worked

    def answered(self, took_ns: int) -> None:
        """Record that an answer ended that took this long."""
        self._answer_ns += (took_ns - self._answer_ns) / 16

    def _rest(self) -> None:
        """Let ready sockets accumulate: during idle work if there is some, else during a nap."""
        left, nap_s = self._time_left(), self.next_nap_s(self._taken)
        until = now() + int(nap_s * 1e9)
        while self._room_for_quiet_work(left) and self._work_quietly():
            left = self._time_left()
            if now() >= until:
                return
        nap_s = min((until - now()) / 1e9, (left - NAP_OVERRUN_NS) / 1e9)
        if nap_s >= self.nap_s / 2:
            time.sleep(nap_s)

    def next_nap_s(self, taken: int) -> float:
        """Longer if the last poll returned many descriptors, but limited to a small part of the time that answers
        take."""
        if taken < MANY:
            return self.nap_s
        return max(2 * self.nap_s, min(self._answer_ns / 1e9 / NAP_PARTS, LONGEST_NAP_S))


class Poller(Protocol):
    """The part of `select.epoll` that we use."""

    def register(self, fd: int, events: int, /) -> None: ...
    def modify(self, fd: int, events: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, most: int, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


def _poller(allow_compiled: bool, most_at_once: int = MOST_AT_ONCE) -> Poller:
    reader = compiled() if allow_compiled else None
    if reader is not None:
        made: Poller = reader.Poller(most_at_once)
        return made
    return select.epoll() if hasattr(select, "epoll") else _Selector()


class _Selector:
    """The same for platforms without epoll (macOS: kqueue), through `selectors`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, events: int) -> None:
        self._selector.register(fd, _selector_mask(events))

    def modify(self, fd: int, events: int) -> None:
        self._selector.modify(fd, _selector_mask(events))

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout: float, _most: int) -> list[tuple[int, int]]:
        wait = None if timeout < 0 else timeout
        return [
            (key.fd, READ * bool(mask & selectors.EVENT_READ) | WRITE * bool(mask & selectors.EVENT_WRITE))
            for key, mask in self._selector.select(wait)
        ]

    def close(self) -> None:
        self._selector.close()


def _selector_mask(events: int) -> int:
    return selectors.EVENT_READ * bool(events & READ) | selectors.EVENT_WRITE * bool(events & WRITE)


class _Alarm:
    """A timerfd: epoll's own timeout has a resolution of a millisecond, too coarse to pace requests."""

    _MONOTONIC = 1
    _NONBLOCK = 0o4000
    _ABSOLUTE = 1

    def __init__(self, libc: Any) -> None:
        self._settime = libc.timerfd_settime
        self._fd = libc.timerfd_create(self._MONOTONIC, self._NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = (ctypes.c_long * 4)()  # interval s, ns; value s, ns
        self._at = 0

    def fileno(self) -> int:
        return int(self._fd)

    def set(self, at: int) -> None:
        """Become readable at an instant of the monotonic clock."""
        if at == self._at:
            return
        self._at = at
        self._spec[2], self._spec[3] = divmod(at, 1_000_000_000)
        self._settime(self._fd, self._ABSOLUTE, self._spec, None)

    def clear(self, _events: int) -> None:
        self._at = 0
        try:
            os.read(self._fd, 8)
        except BlockingIOError as error:  # it was set again between the poll and this read
            assert error.errno == errno.EAGAIN

    def close(self) -> None:
        os.close(self._fd)


def _alarm() -> _Alarm | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return _Alarm(ctypes.CDLL(None, use_errno=True))
    except (OSError, AttributeError):
        return None
