"""From the logs of the shards to the records of the run: merged in memory, or streamed to a Parquet file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from inferometer.record.columns import Records
from inferometer.record.log import UNREADABLE, Header, LogReader, Note
from inferometer.record.parquet import write_batches
from inferometer.record.record import Record
from inferometer.record.sample import Sample

BATCH = 50_000  # records in memory at a time: about 250 MB at 200 reads each


@dataclass(frozen=True)
class Gathered:
    """What the logs hold beside records, which of them broke off, and in which entries could not be read: a note says
    so for each."""

    headers: list[Header] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    truncated: list[Path] = field(default_factory=list)
    skipped: dict[Path, int] = field(default_factory=dict)


def read_logs(paths: Iterable[Path]) -> tuple[Records, Gathered]:
    """The records of all logs, merged in order."""
    gathered = Gathered()
    return Records.concat(_batches(_records(paths, gathered))), gathered


def logs_to_parquet(paths: Iterable[Path], out: Path) -> Gathered:
    """Row group by row group, each in order; `read_parquet` orders the whole."""
    gathered = Gathered()
    write_batches(_batches(_records(paths, gathered)), out)
    return gathered


def _records(paths: Iterable[Path], gathered: Gathered) -> Iterator[Record]:
    for path in paths:
        log = LogReader(path)
        gathered.headers.append(log.header)
        for entry in log:
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


def _batches(records: Iterator[Record]) -> Iterator[Records]:
    """At least one, so that a file without records has its columns too."""
    yield Records.concat([Records.of([*islice(records, BATCH)])])
    while batch := [*islice(records, BATCH)]:
        yield Records.concat([Records.of(batch)])
