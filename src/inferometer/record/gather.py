"""From the logs of the shards to the records of the run: merged in memory, left in the logs, or streamed to a Parquet
file. Instants of logs from other hosts are brought to one clock: by the readings of their offsets (`record.hosts`)
where there are any, else to the first log's by the real-time offsets in their headers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from inferometer.record.columns import BATCH_READS, Records
from inferometer.record.hosts import CLOCKS_LOG, HostClocks, clocks_summary, read_clocks
from inferometer.record.log import UNREADABLE, Entry, Header, HostClock, LogReader, Note
from inferometer.record.parquet import write_batches
from inferometer.record.record import Record
from inferometer.record.sample import Sample
from inferometer.record.streamed import HELD_READS, Piece, StreamedRecords
from inferometer.record.summary import Clocks

INSTANTS = ("scheduled_at", "ready_at", "sent_at", "headers_at", "visible_at", "ended_at")
BATCH = 50_000  # records in memory at a time, or about `BATCH_READS` reads


@dataclass(frozen=True)
class Gathered:
    """What the logs hold beside records, which of them broke off, and in which entries could not be read: a note says
    so for each."""

    headers: list[Header] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    truncated: list[Path] = field(default_factory=list)
    skipped: dict[Path, int] = field(default_factory=dict)
    hosts: HostClocks = field(default_factory=HostClocks)
    stored_clocks: Clocks | None = None  # of a stored run, whose logs are gone

    @property
    def clocks(self) -> Clocks | None:
        """How well the hosts agree on the time; None where there is one."""
        return self.stored_clocks or clocks_summary(self.hosts, self.headers)

    @property
    def clock(self) -> HostClock:
        """What all instants are on: the clock of the readings, else of the first log that names its offset."""
        if self.hosts.reference is not None:
            return self.hosts.reference
        known = (log.clock for log in self.headers if log.clock.real_minus_monotonic_ns is not None)
        return next(known, HostClock())


def read_logs(paths: Iterable[Path]) -> tuple[Records, Gathered]:
    """The records of all logs, merged in order; of many the reads stay in the logs."""
    logs = [*paths]
    gathered = Gathered(hosts=read_clocks(logs))
    parts: list[Records] = []
    kept, held = 0, True
    sizes: list[int] = []
    for log in logs:
        before = sum(map(len, parts))
        for batch in _batches(_records([log], gathered)):
            kept += len(batch.read_at)
            parts.append(batch if held else _without_reads(batch))
            if held and kept > HELD_READS:
                held, parts = False, [_without_reads(part) for part in parts]
        sizes.append(sum(map(len, parts)) - before)
    if held:
        return Records.concat(parts), gathered
    hosts, clock = gathered.hosts, gathered.clock
    pieces = lambda columns, _wanted: _log_pieces(logs, sizes, columns, hosts, clock)  # noqa: E731
    return StreamedRecords.joined(parts, pieces), gathered


def logs_to_parquet(paths: Iterable[Path], out: Path) -> Gathered:
    """Row group by row group, each in order; `read_parquet` orders the whole."""
    logs = [*paths]
    gathered = Gathered(hosts=read_clocks(logs))
    batches = _batches(_records(logs, gathered), at_least_one=True)
    write_batches((Records.concat([batch]) for batch in batches), out)
    return gathered


def _records(paths: Iterable[Path], gathered: Gathered, clock: HostClock | None = None) -> Iterator[Record]:
    """With all instants on one clock, by default the one that `gathered` names."""
    for path in paths:
        if path.name == CLOCKS_LOG:  # read before all others
            continue
        log = LogReader(path)
        gathered.headers.append(log.header)
        ahead = _ahead(log.header.clock, gathered.hosts, clock or gathered.clock)
        for entry in (moved(entry, ahead(_instant(entry))) for entry in log) if ahead else log:
            if isinstance(entry, Record):
                yield entry
            elif isinstance(entry, Sample):
                gathered.samples.append(entry)
            else:
                gathered.notes.append(entry)
        if log.truncated:
            gathered.truncated.append(path)
        if log.skipped:
            gathered.skipped[path] = log.skipped
            gathered.notes.append(Note(UNREADABLE, facts={"log": path.name, "entries": log.skipped}))


def _ahead(theirs: HostClock, hosts: HostClocks, clock: HostClock) -> Callable[[int], int] | None:
    """What to add to an instant of a log to have it on the clock of all; None: nothing."""
    if (line := hosts.line_of(theirs)) is not None:
        return line.ahead_at
    ahead_ns = theirs.ahead_of(clock)
    return (lambda _at: ahead_ns) if ahead_ns else None


def _instant(entry: Entry) -> int:
    """The one by which an entry is moved as a whole: what lies between two of its instants, one clock measured."""
    return entry.scheduled_at if isinstance(entry, Record) else entry.at or 0


def moved(entry: Entry, by_ns: int) -> Entry:
    """Every instant later by so much; those among a note's facts are told by their names."""
    if isinstance(entry, Record):
        reads = np.frombuffer(entry.read_at, "<i8") + by_ns
        own = {name: at + by_ns for name in INSTANTS if (at := getattr(entry, name)) is not None}
        return msgspec.structs.replace(entry, read_at=reads.tobytes(), **own)
    if isinstance(entry, Sample):
        return msgspec.structs.replace(entry, at=entry.at + by_ns)
    instants = {name: at + by_ns for name, at in entry.facts.items() if name.endswith("_at") and type(at) is int and at}
    at = None if entry.at is None else entry.at + by_ns
    return msgspec.structs.replace(entry, at=at, facts=entry.facts | instants)


def _batches(records: Iterator[Record], at_least_one: bool = False) -> Iterator[Records]:
    """As the log has them; with `at_least_one`, so that a file without records has its columns too."""
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
    """Its own columns, and how many reads each record has."""
    none = np.empty(0, np.int64)
    return replace(records, read_at=none, read_tokens=none, read_slack=none)


def _log_pieces(
    logs: Iterable[Path], sizes: Iterable[int], columns: Sequence[str], hosts: HostClocks, clock: HostClock
) -> Iterator[Piece]:
    """A log that is still written to is read as far as it was read before."""
    row = 0
    for log, size in zip(logs, sizes, strict=True):
        for batch in _batches(islice(_records([log], Gathered(hosts=hosts), clock), size)):
            yield Piece(row, batch.read_counts(), {name: getattr(batch, name) for name in columns})
            row += len(batch)
