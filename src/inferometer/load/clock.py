"""The interfaces that the drive loop needs: a clock with timers, and a transport. Also a virtual clock, on which an
hour of load takes seconds."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inferometer.record.record import Outcome, Record
from inferometer.workload.session import Request

# -- clock -----------------------------------------------------------------------------------------------------------


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time and timers. `wire.reactor.Reactor` is the real one, `VirtualClock` the virtual one."""

    def now(self) -> int:
        """Nanoseconds on the monotonic clock."""

    def call_at(self, at: int, action: Callable[[], None]) -> Timer: ...


@dataclass(slots=True)
class Ticket:
    """What the drive loop knows of a request before it is sent: its session, turn and times."""

    session: int
    turn: int
    turns: int
    traffic: str
    stage: int
    shard: int
    scheduled_at: int
    ready_at: int
    live: bool = False  # the next turn needs the answer at once
    most_tokens: int | None = None  # the request is cancelled on purpose after this many tokens,
    on_most: Callable[[], None] | None = None  # by calling this


Ended = Callable[[int], None]  # the instant at which the answer ended: the slot is free
Done = Callable[[Record, str], None]  # the finished record, and the answer's text if the next turn needs it


class Transport(Protocol):
    """Carries one request to the target. Calls `ended` once when the request is over, whatever happens, and then `done`
    once: immediately, or later in an idle moment if building the record is work that can wait."""

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        """Start the request now; returns a function that ends it with the given outcome."""

    def prepare(self, request: Request, traffic: str, session: int) -> int:
        """Prepare the first turn of a session ahead of time as far as possible; returns the bytes of memory this
        keeps."""


# -- virtual ---------------------------------------------------------------------------------------------------------


class VirtualTimer:
    """A pending action; cancelling leaves it in the heap, to be skipped."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class VirtualClock:
    """Time stands still while an action runs and then jumps to the next action; simultaneous actions run in the order
    of their calls."""

    def __init__(self, start_at: int = 0) -> None:
        self._now = start_at
        self._scheduled = 0
        self._heap: list[tuple[int, int, VirtualTimer]] = []
        self._stopped = False

    def now(self) -> int:
        return self._now

    def call_at(self, at: int, action: Callable[[], None]) -> VirtualTimer:
        """A past instant means as soon as possible: time never runs backwards."""
        timer = VirtualTimer(action)
        self._scheduled += 1
        heapq.heappush(self._heap, (max(at, self._now), self._scheduled, timer))
        return timer

    def run(self, until: int | None = None) -> None:
        """Run all actions due up to and including `until`, or until none is left or `stop` was called."""
        heap, pop = self._heap, heapq.heappop
        self._stopped = False
        while heap and not self._stopped and (until is None or heap[0][0] <= until):
            at, _, timer = pop(heap)
            if timer.action is not None:
                self._now = at
                timer.action()
        if until is not None and not self._stopped:
            self._now = max(self._now, until)

    def stop(self) -> None:
        """End `run` after the current action."""
        self._stopped = True
