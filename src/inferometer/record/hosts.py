"""The clocks of several hosts on one: readings of their offsets, taken by whoever drives the workers, and the line
through them by which logs of other hosts are corrected when they are gathered.

A reading says `reference = theirs + ahead`, within half of its round trip. Between two readings the offset is
interpolated, so that a clock that runs fast or slow is followed; before the first and after the last it stays.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from inferometer.record.log import Header, HostClock, LogReader, Note
from inferometer.record.summary import Clocks, HostClockSummary

CLOCKS_LOG = "log-clocks.bin"
READING = "clock reading"
DRIFT = 100e-6  # what a clock gains or loses at most: undisciplined quartz; a reading worse than this implies is unused
JUMP = 500e-6  # the fastest that the kernel slews a clock; what changes faster was a jump, such as a suspended machine
JUMP_NS = 100_000


class ClockReading(msgspec.Struct, frozen=True):
    """The offset of one host's monotonic clock at an instant of the reference clock."""

    clock: HostClock
    at: int  # on the reference clock
    ahead_ns: int  # to add to an instant of theirs to have it on the reference clock
    error_ns: int  # half the round trip: the truth is within

    def as_note(self) -> Note:
        facts = {"host": self.clock.host, "boot": self.clock.boot, "ahead_ns": self.ahead_ns, "error_ns": self.error_ns}
        return Note(READING, self.at, facts)

    @classmethod
    def of(cls, note: Note) -> "ClockReading":
        facts = note.facts
        clock = HostClock(str(facts["host"]), str(facts["boot"]))
        return cls(clock, note.at or 0, int(facts["ahead_ns"]), int(facts["error_ns"]))


class OffsetLine:
    """The offset of one host over the time of a run."""

    def __init__(self, readings: Sequence[ClockReading]) -> None:
        self.readings = _useful(sorted(readings, key=lambda reading: reading.at))
        self._theirs = [reading.at - reading.ahead_ns for reading in self.readings]

    def ahead_at(self, theirs_at: int) -> int:
        """What to add to this instant of theirs."""
        readings = self.readings
        after = bisect_right(self._theirs, theirs_at)
        if after in (0, len(readings)):
            return readings[min(after, len(readings) - 1)].ahead_ns
        begin, end = self._theirs[after - 1], self._theirs[after]
        before, behind = readings[after - 1].ahead_ns, readings[after].ahead_ns
        return before + round((behind - before) * (theirs_at - begin) / (end - begin))

    @property
    def error_ns(self) -> int:
        return max(reading.error_ns for reading in self.readings)

    @property
    def drift_ppm(self) -> float | None:
        """How much faster than the reference it runs."""
        first, last = self.readings[0], self.readings[-1]
        elapsed = last.at - first.at
        return None if elapsed <= 0 else (first.ahead_ns - last.ahead_ns) / elapsed * 1e6

    @property
    def jump_ns(self) -> int | None:
        """The largest change between two readings that no slewing explains."""
        jumps = [
            abs(after.ahead_ns - before.ahead_ns)
            for before, after in pairwise(self.readings)
            if abs(after.ahead_ns - before.ahead_ns)
            > JUMP_NS + before.error_ns + after.error_ns + JUMP * (after.at - before.at)
        ]
        return max(jumps, default=None)


def _useful(readings: list[ClockReading]) -> list[ClockReading]:
    """Without those that say less than their neighbours do: a reading taken while the network or the host was busy has
    a long round trip, and what a good one shows holds for a while. A jump makes the good ones wrong, so one that
    contradicts a neighbour stays."""
    kept = []
    for reading in readings:
        implied = [
            other.error_ns + DRIFT * abs(other.at - reading.at)
            for other in readings
            if abs(other.ahead_ns - reading.ahead_ns)
            <= other.error_ns + reading.error_ns + DRIFT * abs(other.at - reading.at)
        ]
        if reading.error_ns <= min(implied):
            kept.append(reading)
    return kept


@dataclass(frozen=True)
class HostClocks:
    """How instants of any host come to the reference clock."""

    reference: HostClock | None = None  # of the log with the readings; None: there is none
    lines: dict[str, OffsetLine] = field(default_factory=dict)  # by boot, or by host where there is no boot id

    def line_of(self, clock: HostClock) -> OffsetLine | None:
        if self.reference is None or clock.is_clock_of(self.reference):
            return None
        return self.lines.get(_name(clock))


def _name(clock: HostClock) -> str:
    return clock.boot or clock.host


def read_clocks(logs: Iterable[Path]) -> HostClocks:
    """From the log of readings among the logs of a run, as far as it was written."""
    path = next((log for log in logs if log.name == CLOCKS_LOG), None)
    if path is None:
        return HostClocks()
    log = LogReader(path)
    readings: dict[str, list[ClockReading]] = {}
    for entry in log:
        if isinstance(entry, Note) and entry.what == READING:
            reading = ClockReading.of(entry)
            readings.setdefault(_name(reading.clock), []).append(reading)
    return HostClocks(log.header.clock, {name: OffsetLine(taken) for name, taken in readings.items()})


def clocks_summary(hosts: HostClocks, headers: Sequence[Header]) -> Clocks | None:
    """How well the hosts of a run agree on time; None where all shards are on one clock that did not jump."""
    shards = [header for header in headers if header.shard >= 0]
    groups: dict[str, list[Header]] = {}
    for header in shards:
        groups.setdefault(_name(header.clock), []).append(header)
    summaries = [_host(hosts, group) for group in groups.values()]
    if len(groups) < 2 and not any(summary.jump_s for summary in summaries):
        return None
    errors = [summary.uncertainty_s for summary in summaries]
    known = sorted((error for error in errors if error is not None), reverse=True)
    return Clocks(
        hosts=sorted(summaries, key=lambda summary: summary.host),
        uncertainty_s=sum(known[:2]) if None not in errors else None,
    )


def _host(hosts: HostClocks, group: list[Header]) -> HostClockSummary:
    clock = group[0].clock
    line = hosts.line_of(clock)
    if line is None:
        same = hosts.reference is not None and clock.is_clock_of(hosts.reference)
        return HostClockSummary(host=clock.host, workers=len(group), uncertainty_s=0.0 if same else None)
    jump = line.jump_ns
    return HostClockSummary(
        host=clock.host,
        workers=len(group),
        offset_s=-line.readings[0].ahead_ns / 1e9,
        drift_ppm=line.drift_ppm,
        uncertainty_s=line.error_ns / 1e9,
        readings=len(line.readings),
        jump_s=None if jump is None else jump / 1e9,
    )
