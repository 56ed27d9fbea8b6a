"""A clock that jumps: the drive loop and the simulator run an hour of load in seconds on it."""

import heapq
from collections.abc import Callable


class VirtualTimer:
    """One action to come; cancelling leaves it in the heap, to be skipped."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class VirtualClock:
    """Time stands still while an action runs and jumps to the next one; ties run in the order they were asked."""

    def __init__(self, start_at: int = 0) -> None:
        self._now = start_at
        self._asked = 0
        self._heap: list[tuple[int, int, VirtualTimer]] = []
        self._stopped = False

    def now(self) -> int:
        return self._now

    def call_at(self, at: int, action: Callable[[], None]) -> VirtualTimer:
        """An instant that has passed means as soon as possible: time never runs backwards."""
        timer = VirtualTimer(action)
        self._asked += 1
        heapq.heappush(self._heap, (max(at, self._now), self._asked, timer))
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
