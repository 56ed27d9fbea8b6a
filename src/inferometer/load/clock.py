"""What the drive loop needs from the world: a clock with timers, and a transport. Real and virtual ones exist."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inferometer.record.record import Outcome, Record
from inferometer.workload.session import Request


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


Ended = Callable[[int], None]  # the instant at which the answer was over: the slot is free
Done = Callable[[Record, str], None]  # the finished record, and the answer's text for a live next turn


class Transport(Protocol):
    """Carries one request to the target. Calls `ended` once when it is over, whatever happens, and then `done` once:
    at once or, where the record takes work that can wait, in a quiet moment."""

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        """Start the request now; returns a function that ends it with the given outcome."""

    def prepare(self, request: Request, traffic: str, session: int) -> int:
        """Do ahead of time what can be done for the first turn of a session; returns the bytes that it keeps."""
