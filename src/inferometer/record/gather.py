"""Turns the logs of the shards into the records of the run: merged in memory, left in the logs, or streamed to a
Parquet file. Timestamps of logs from other hosts are converted to one clock: by the measured offsets of the hosts'
clocks, or, if there are none, by the real-time offsets in the headers of the logs."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path

import msgspec
import numpy as np

from inferometer.documents.document import JsonObject
from inferometer.record.columns import BATCH_READS, Mask, Records, SampleColumns
from inferometer.record.log import UNREADABLE, Entry, Header, HostClock, LogReader, Note
from inferometer.record.parquet import (
    HELD_READS,
    ReadsPiece,
    ReadSums,
    StreamedRecords,
    SummedRecords,
    write_batches,
)
from inferometer.record.record import Record, Sample
from inferometer.record.summary import Clocks, HostClockSummary

CLOCKS_LOG = "log-clocks.bin"
READING = "clock reading"
DRIFT = 100e-6  # maximum clock drift: undisciplined quartz; readings less exact than this implies are unused
JUMP = 500e-6  # the fastest that the kernel slews a clock; a faster change is a jump, such as a suspended machine
JUMP_NS = 100_000


class ClockReading(msgspec.Struct, frozen=True):
    """The offset of one host's monotonic clock at an instant of the reference clock."""

    clock: HostClock
    at: int  # on the reference clock
    ahead_ns: int  # added to an instant of the other host to convert it to the reference clock
    error_ns: int  # half the round trip: the true offset is within

    def as_note(self) -> Note:
        facts: JsonObject = {
            "host": self.clock.host,
            "boot": self.clock.boot,
            "ahead_ns": self.ahead_ns,
            "error_ns": self.error_ns,
        }
        return Note(READING, self.at, facts)

    @classmethod
    def of(cls, note: Note) -> "ClockReading":
        facts = note.known
        clock = HostClock(facts.text("host") or "", facts.text("boot") or "")
        return cls(clock, note.at or 0, facts.count("ahead_ns") or 0, facts.count("error_ns") or 0)


@dataclass(slots=True)
class Extent:
    """The range of the entries of one host's logs, on the reference clock: the start of the last one, and the longest
    one."""

    last_at: int = 0
    longest_ns: int = 0

    def include(self, entry: Entry) -> None:
        begin = _instant(entry)
        end = entry.ended_at if isinstance(entry, Record) else None
        self.last_at = max(self.last_at, begin)
        self.longest_ns = max(self.longest_ns, (end or begin) - begin)


class OffsetLine:
    """The offset of one host over the time of a run."""

    def __init__(self, readings: Sequence[ClockReading]) -> None:
        self.readings = _useful(sorted(readings, key=lambda reading: reading.at))
        self._theirs = [reading.at - reading.ahead_ns for reading in self.readings]

    def ahead_at(self, theirs_at: int) -> int:
        """The offset to add to this instant of the other host."""
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

    def error_within(self, extent: "Extent") -> float:
        """The error in ns over all instants of a host's logs: between readings it is that of the readings; after the
        last one the drift is unknown; and an entry is moved as a whole, by the offset at its start."""
        beyond_ns = max(0, extent.last_at - self.readings[-1].at)
        drift = min(DRIFT, abs(self.drift_ppm or 0.0) * 1e-6)  # a jump is reported separately
        return self.error_ns + DRIFT * beyond_ns + drift * extent.longest_ns

    @property
    def drift_ppm(self) -> float | None:
        """By how much it runs faster than the reference."""
        first, last = self.readings[0], self.readings[-1]
        elapsed = last.at - first.at
        return None if elapsed <= 0 else (first.ahead_ns - last.ahead_ns) / elapsed * 1e6

    @property
    def jump_ns(self) -> int | None:
        """The largest change between two readings that is too fast for slewing."""
        jumps = [
            abs(after.ahead_ns - before.ahead_ns)
            for before, after in pairwise(self.readings)
            if abs(after.ahead_ns - before.ahead_ns)
            > JUMP_NS + before.error_ns + after.error_ns + JUMP * (after.at - before.at)
        ]
        return max(jumps, default=None)


def _useful(readings: list[ClockReading]) -> list[ClockReading]:
    """The readings without those less exact than their neighbours: a reading taken while the network or the host was
    busy has a long round trip, and a good one stays valid for a while. After a jump the good ones are wrong, so a
    reading that contradicts a neighbour stays."""
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
    """Converts instants of any host to the reference clock."""

    reference: HostClock | None = None  # of the log with the readings; None if there is none
    lines: dict[str, OffsetLine] = field(default_factory=dict)  # by boot, or by host if there is no boot id

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


def clocks_summary(hosts: HostClocks, headers: Sequence[Header], extents: Mapping[str, Extent]) -> Clocks | None:
    """How well the hosts of a run agree on the time; None if all shards are on one clock that did not jump."""
    shards = [header for header in headers if header.shard >= 0]
    groups: dict[str, list[Header]] = {}
    for header in shards:
        groups.setdefault(_name(header.clock), []).append(header)
    summaries = [_host(hosts, group, extents.get(name, Extent())) for name, group in groups.items()]
    if len(groups) < 2 and not any(summary.jump_s for summary in summaries):
        return None
    errors = [summary.uncertainty_s for summary in summaries]
    known = sorted((error for error in errors if error is not None), reverse=True)
    return Clocks(
        hosts=sorted(summaries, key=lambda summary: summary.host),
        uncertainty_s=sum(known[:2]) if None not in errors else None,
    )


def _host(hosts: HostClocks, group: list[Header], extent: Extent) -> HostClockSummary:
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
        uncertainty_s=line.error_within(extent) / 1e9,
        readings=len(line.readings),
        jump_s=None if jump is None else jump / 1e9,
    )


INSTANTS = ("scheduled_at", "ready_at", "sent_at", "headers_at", "visible_at", "ended_at")
BATCH = 50_000  # records in memory at a time, or about `BATCH_READS` reads


@dataclass(frozen=True)
class Gathered:
    """The contents of the logs other than records, which logs are truncated, and which contain unreadable entries: each
    is reported in a note."""

    headers: list[Header] = field(default_factory=list)
    samples: SampleColumns = field(default_factory=SampleColumns)
    notes: list[Note] = field(default_factory=list)
    truncated: list[Path] = field(default_factory=list)
    skipped: dict[Path, int] = field(default_factory=dict)
    hosts: HostClocks = field(default_factory=HostClocks)
    extents: dict[str, Extent] = field(default_factory=dict)  # of the logs of other hosts, by the name of the clock
    stored_clocks: Clocks | None = None  # of a stored run, whose logs are gone

    @property
    def clocks(self) -> Clocks | None:
        """How well the hosts agree on the time; None if there is only one."""
        return self.stored_clocks or clocks_summary(self.hosts, self.headers, self.extents)

    @property
    def clock(self) -> HostClock:
        """The clock of all instants: that of the readings, else of the first log that states its offset."""
        if self.hosts.reference is not None:
            return self.hosts.reference
        known = (log.clock for log in self.headers if log.clock.real_minus_monotonic_ns is not None)
        return next(known, HostClock())


def read_logs(paths: Iterable[Path]) -> tuple[Records, Gathered]:
    """The records of all logs, merged in order; if there are many, the reads stay in the logs."""
    logs = [*paths]
    gathered = Gathered(hosts=read_clocks(logs))
    parts: list[Records] = []
    kept, held = 0, True
    stretches: list[_Stretch] = []
    for log in logs:
        before = sum(map(len, parts))
        for batch in _batches(_records([log], gathered)):
            kept += len(batch.read_at)
            parts.append(batch if held else _without_reads(batch))
            if held and kept > HELD_READS:
                held, parts = False, [_without_reads(part) for part in parts]
        stretches.append(_Stretch(log, 0, sum(map(len, parts)) - before))
    if held:
        return Records.concat(parts), gathered
    hosts, clock = gathered.hosts, gathered.clock
    pieces = lambda columns, _wanted: _stretch_pieces(stretches, columns, hosts, clock)  # noqa: E731
    return StreamedRecords.joined(parts, pieces), gathered


class GrowingLogs:
    """The logs of a run in progress, in a folder: each call to `look` reads what was added since the previous one.
    `sums_of` computes the columns that stay in memory instead of the reads, which remain in the logs."""

    def __init__(self, folder: Path, sums_of: Callable[[Records], ReadSums]) -> None:
        self._folder, self._sums_of = folder, sums_of
        self._logs: dict[Path, int] = {}  # bytes of each log read so far
        self._parts: list[Records] = []
        self._sums: list[ReadSums] = []
        self._stretches: list[_Stretch] = []  # of the logs, in the order of the parts
        self.gathered = Gathered()

    def size(self) -> int:
        """Bytes of all logs."""
        return sum(log.stat().st_size for log in self._paths())

    def look(self) -> Records:
        """All records so far, each on the common clock as it was known when the record was read."""
        self.gathered = replace(self.gathered, hosts=read_clocks(self._folder.glob(CLOCKS_LOG)))
        for path in self._paths():
            reader = LogReader(path, self._logs.get(path, 0))
            if path not in self._logs:
                self.gathered.headers.append(reader.header)
            stretch = _Stretch(path, reader.end)
            for batch in _batches(_records_of(reader, self.gathered)):
                stretch.records += len(batch)
                self._sums.append(self._sums_of(batch))
                self._parts.append(_without_reads(batch))
            self._logs[path] = reader.end
            self._stretches.append(stretch)
        if not self._parts:
            return Records.of([])
        return SummedRecords.joined([*self._parts], self._pieces).with_sums(ReadSums.joined(self._sums))

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("log-[0-9]*.bin"))

    def _pieces(self, columns: Sequence[str], _wanted: Mask | None) -> Iterator[ReadsPiece]:
        return _stretch_pieces([*self._stretches], columns, self.gathered.hosts, self.gathered.clock)


def logs_to_parquet(paths: Iterable[Path], out: Path) -> Gathered:
    """Writes row group by row group, each in order; `read_parquet` orders the whole."""
    logs = [*paths]
    gathered = Gathered(hosts=read_clocks(logs))
    batches = _batches(_records(logs, gathered), at_least_one=True)
    write_batches((Records.concat([batch]) for batch in batches), out)
    return gathered


def _records(paths: Iterable[Path], gathered: Gathered, clock: HostClock | None = None) -> Iterator[Record]:
    """With all instants on one clock, by default the clock of `gathered`."""
    for path in paths:
        if path.name == CLOCKS_LOG:  # read before all others
            continue
        log = LogReader(path)
        gathered.headers.append(log.header)
        yield from _records_of(log, gathered, clock)
        if log.truncated:
            gathered.truncated.append(path)
        if log.skipped:
            gathered.skipped[path] = log.skipped
            gathered.notes.append(Note(UNREADABLE, facts={"log": path.name, "entries": log.skipped}))


def _records_of(log: LogReader, gathered: Gathered, clock: HostClock | None = None) -> Iterator[Record]:
    ahead = _ahead(log.header.clock, gathered.hosts, clock or gathered.clock)
    extent = gathered.extents.setdefault(_name(log.header.clock), Extent()) if ahead else None
    for entry in (moved(entry, ahead(_instant(entry))) for entry in log) if ahead else log:
        if extent is not None:
            extent.include(entry)
        if isinstance(entry, Record):
            yield entry
        elif isinstance(entry, Sample):
            gathered.samples.append(entry)
        else:
            gathered.notes.append(entry)


def _ahead(theirs: HostClock, hosts: HostClocks, clock: HostClock) -> Callable[[int], int] | None:
    """The offset to add to an instant of a log to convert it to the common clock; None: nothing."""
    if (line := hosts.line_of(theirs)) is not None:
        return line.ahead_at
    ahead_ns = theirs.ahead_of(clock)
    return (lambda _at: ahead_ns) if ahead_ns else None


def _instant(entry: Entry) -> int:
    """The instant that determines the offset for the whole entry: the differences within an entry were measured by one
    clock."""
    return entry.scheduled_at if isinstance(entry, Record) else entry.at or 0


def moved(entry: Entry, by_ns: int) -> Entry:
    """Moves every instant by an offset; those among a note's facts are recognised by their names."""
    if isinstance(entry, Record):
        reads = np.frombuffer(entry.read_at, "<i8") + by_ns
        own = {name: at + by_ns for name in INSTANTS if (at := getattr(entry, name)) is not None}
        return msgspec.structs.replace(entry, read_at=reads.tobytes(), **own)
    if isinstance(entry, Sample):
        return msgspec.structs.replace(entry, at=entry.at + by_ns)
    instants = {name: at + by_ns for name, at in entry.facts.items() if name.endswith("_at") and type(at) is int and at}
    at = None if entry.at is None else entry.at + by_ns
    return msgspec.structs.replace(entry, at=at, facts={**entry.facts, **instants})


def _batches(records: Iterator[Record], at_least_one: bool = False) -> Iterator[Records]:
    """In the order of the log; with `at_least_one` there is a batch even without records, so that the file has its
    columns."""
    if at_least_one:
        yield Records.of(_some(records))
    while batch := _some(records):
        yield Records.of(batch)


def _some(records: Iterator[Record]) -> list[Record]:
    batch: list[Record] = []
    size = 0
    for record in islice(records, BATCH):
        batch.append(record)
        size += len(record.read_at)
        if size >= BATCH_READS * 8:
            break
    return batch


def _without_reads(records: Records) -> Records:
    """The columns without reads, and how many reads each record has."""
    none = np.empty(0, np.int64)
    return replace(records, read_at=none, read_tokens=none, read_slack=none)


@dataclass(slots=True)
class _Stretch:
    """A part of a log from a byte offset on, and its number of records."""

    log: Path
    start: int
    records: int = 0


def _stretch_pieces(
    stretches: Iterable[_Stretch], columns: Sequence[str], hosts: HostClocks, clock: HostClock
) -> Iterator[ReadsPiece]:
    """A log that is still being written is read only as far as it was read before."""
    row = 0
    for stretch in stretches:
        log = LogReader(stretch.log, stretch.start)
        for batch in _batches(islice(_records_of(log, Gathered(hosts=hosts), clock), stretch.records)):
            yield ReadsPiece(row, batch.read_counts(), {name: getattr(batch, name) for name in columns})
            row += len(batch)
