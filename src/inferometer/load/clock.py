"""What the drive loop needs from the world: a clock with timers, and a transport; and a clock that jumps, on which an
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
    """Time and timers. `wire.reactor.Reactor` is the real one, `load.virtual.VirtualClock` jumps."""

    def now(self) -> int:
        """Nanoseconds on the monotonic clock."""

    def call_at(self, at: int, action: Callable[[], None]) -> Timer: ...


@dataclass(slots=True)
class Ticket:
    """Who asks, and since when: what the drive loop knows of a request before it is sent."""

    session: int
    turn: int
    turns: int
    traffic: str
    stage: int
    shard: int
    scheduled_at: int
    ready_at: int
    live: bool = False  # the answer is needed at once, for the next turn
    most_tokens: int | None = None  # the request is ended on purpose when so many have come,
    on_most: Callable[[], None] | None = None  # by this


Ended = Callable[[int], None]  # the instant at which the answer was over: the slot is free
Done = Callable[[Record, str], None]  # the finished record, and the answer's text for a live next turn


class Transport(Protocol):
    """Carries one request to the target. Calls `ended` once when it is over, whatever happens, and then `done` once:
    at once or, where the record takes work that can wait, in a quiet moment."""

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        """Start the request now; returns a function that ends it with the given outcome."""

    def prepare(self, request: Request, traffic: str, session: int) -> int:
        """Do ahead of time what can be done for the first turn of a session; returns the bytes that it keeps."""


# -- virtual ---------------------------------------------------------------------------------------------------------


class VirtualTimer:
    """One action to come; cancelling leaves it in the heap, to be skipped."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class VirtualClock:
    """Time stands still while an action runs and jumps to the next one; ties run in the order of their calls."""

    def __init__(self, start_at: int = 0) -> None:
        self._now = start_at
        self._scheduled = 0
        self._heap: list[tuple[int, int, VirtualTimer]] = []
        self._stopped = False

    def now(self) -> int:
        return self._now

    def call_at(self, at: int, action: Callable[[], None]) -> VirtualTimer:
        """An instant that has passed means as soon as possible: time never runs backwards."""
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
        """End `run` after the action that is running."""
        self._stopped = True
