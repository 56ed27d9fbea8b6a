"""A log file as the report of the start in it; the file is read as a stream, however large."""

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from inferometer.errors import DataError
from inferometer.plan.secrets import redacted_text
from inferometer.record.files import told
from inferometer.target.startup.clock import LogClock
from inferometer.target.startup.foreign import engine_of
from inferometer.target.startup.lines import messages
from inferometer.target.startup.physical import PhysicalLines
from inferometer.target.startup.report import report_of, without_log
from inferometer.target.startup.starts import Start, starts_of

SAMPLE = 256 * 1024  # bytes that a foreign log is told by
LONGEST_KEPT = 2000  # letters of a line that is kept: a config line has some thousand
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class StartupLog:
    """What was read of a log: the report of its last start, the lines it was made of, how many starts there were."""

    report: dict[str, Any]
    matched: str
    starts: int
    started_s: float | None  # on the log's clock


def read_startup(log: Path, ready_s: float | None = None) -> StartupLog:
    """The last start in the log. A `DataError` where it is not a log of vLLM."""
    clock = LogClock(_changed_s(log))
    with told(log), _opened(log) as file:
        lines = PhysicalLines(file)
        found = starts_of(messages(lines, clock), lambda settled: setattr(lines, "settled", settled))
    starts = [start for start in found if start.marks]
    if not starts or not any(start.stamped for start in starts):
        raise _foreign(log)
    start = starts[-1]
    return StartupLog(report_of(start, clock.resolution_s, ready_s), _matched(start), len(starts), start.first_at)


def startup_of(log: Path, ready_s: float | None = None) -> dict[str, Any]:
    """`{"values": ..., "startup": ...}` of a server that was started, for the summary of a run. Never fails: of a log
    that says nothing only `ready_s` is told."""
    try:
        return read_startup(log, ready_s).report
    except DataError as error:
        return without_log(ready_s, error.message)
    except Exception as error:  # a run is worth more than the story of its server's start
        return without_log(ready_s, f"{log.name}: {error}")


def _changed_s(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return time.time()


@contextmanager
def _opened(log: Path) -> Iterator[BinaryIO]:
    """Also where it was compressed."""
    with log.open("rb") as file:
        if file.peek(2)[:2] == GZIP:
            with gzip.open(file) as inner:
                yield cast(BinaryIO, BufferedReader(inner))
        else:
            yield file


def _matched(start: Start) -> str:
    """With the numbers of the lines, and what looks like a key starred."""
    lines = (f"{mark.lines[0]}: ({mark.process}) {redacted_text(mark.text)[:LONGEST_KEPT]}\n" for mark in start.marks)
    return "".join(lines)


def _foreign(log: Path) -> DataError:
    with told(log), _opened(log) as file:
        sample = file.read(SAMPLE)
    if not sample.strip():
        return DataError(f"{log}: the log is empty", "give the log of a server: vllm serve MODEL 2>&1 | tee server.log")
    if b"\0" in sample[:4096]:
        return DataError(f"{log}: not a log: it is no text", "give what the server printed")
    engine = engine_of(sample.decode("utf-8", "replace"))
    looks = f"it looks like one of {engine}" if engine else "no line of it is one that vLLM prints while it starts"
    hint = "phases are read from logs of vLLM; of any other server time to ready: inferometer startup --server KIND"
    return DataError(f"{log}: not a log of a vLLM start: {looks}", hint)
