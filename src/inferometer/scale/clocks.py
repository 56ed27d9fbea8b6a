"""Reads the clocks of other hosts while workers run there: the offset by the least round trip of many tries, before,
during and after the load. What the readings mean is left to `record.hosts`."""

import threading
from collections.abc import Callable
from pathlib import Path

from inferometer.record.hosts import CLOCKS_LOG, ClockReading
from inferometer.record.log import HostClock, LogWriter, clock_here
from inferometer.wire.reactor import now

TRIES = 40  # before and after the load
TRIES_DURING = 20
PERIOD_S = 10.0  # between readings during the load: at 100 ppm a clock is off by 1 ms after that

RemoteNow = Callable[[], int]  # asks another host for its monotonic clock


def read_clock(clock: HostClock, remote_now: RemoteNow, tries: int, here: Callable[[], int] = now) -> ClockReading:
    """The best of several tries. The answer was made at some moment of the round trip: its middle is wrong by half of
    it at most, whatever the two ways take."""
    return min((_try(clock, remote_now, here) for _ in range(tries)), key=lambda reading: reading.error_ns)


def _try(clock: HostClock, remote_now: RemoteNow, here: Callable[[], int]) -> ClockReading:
    before = here()
    theirs = remote_now()
    after = here()
    middle = (before + after) // 2
    return ClockReading(clock, middle, middle - theirs, (after - before + 1) // 2)


class ClockLog:
    """The readings of a run, in its folder as soon as they are taken, and the newest offset of every host."""

    def __init__(self, folder: Path) -> None:
        self.here = clock_here()
        self._log = LogWriter(folder / CLOCKS_LOG, shard=-1, clock=self.here)
        self._newest: dict[str, ClockReading] = {}
        self._writing = threading.Lock()

    def is_here(self, clock: HostClock) -> bool:
        """Whether a worker's clock is ours: then there is nothing to read."""
        return clock.is_clock_of(self.here)

    def read(self, clock: HostClock, remote_now: RemoteNow, tries: int = TRIES) -> ClockReading:
        reading = read_clock(clock, remote_now, tries)
        with self._writing:
            self._newest[clock.boot or clock.host] = reading
            self._log.add(reading.as_note())
            self._log.flush()
        return reading

    def ahead_ns(self, clock: HostClock) -> int:
        """What to add to an instant of that host to have it on our clock, as last read."""
        reading = self._newest.get(clock.boot or clock.host)
        return 0 if reading is None or self.is_here(clock) else reading.ahead_ns

    def close(self) -> None:
        self._log.close()
