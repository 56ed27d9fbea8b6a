"""Rebuilds records from another tool's data per request, so that all our measures can be computed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferometer.errors import DataError
from inferometer.exchange.importing.units import MOST_COUNT
from inferometer.record.columns import Records, offsets_of, read_cuts
from inferometer.record.parquet import HELD_READS, set_aside
from inferometer.record.record import Outcome, Record
from inferometer.vocabulary import NANOSECONDS

# Other tools do not store when a request was due, and do not separate their own delays from the server's.
NOT_SCHEDULED = ("ttft_scheduled", "ttfo_scheduled", "e2e_scheduled", "done_scheduled", "queue_wait", "send_delay")
NOT_CONNECTED = ("connect", "tls", "ttfo")
WITHOUT_READS = ("itl", "icl", "stall")  # if only the first and the last token have timestamps
MOST_SPAN_S = 100 * 86400.0  # of one run
_STATUS = re.compile(r"\b([45]\d\d)\b")
Reads = Sequence[float] | NDArray[np.float64]  # instants


@dataclass(frozen=True, slots=True)
class ImportedRequest:
    """One request in seconds on any clock. `reads` are the times at which data arrived."""

    sent_s: float
    reads_s: Reads = ()
    ended_s: float | None = None
    scheduled_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    read_tokens: Sequence[int] | NDArray[np.int32] | None = None  # tokens of each read, if known
    status: int | None = None
    error: str | None = None
    cancelled: bool = False
    bytes_received: int | None = None
    session: int | None = None
    turn: int = 0
    stage: int = 0
    request_id: str | None = None


def records_of(requests: Iterable[ImportedRequest]) -> Records:
    """Records in the file's order, on a clock that starts with the first. With many requests, reads are not kept in
    memory."""
    all_requests = list(requests)
    origin = min((_due(request) for request in all_requests), default=0.0)
    _check_span(all_requests, origin)
    records = (_record(number, request, origin) for number, request in enumerate(all_requests))
    counts = np.fromiter((len(request.reads_s) for request in all_requests), np.int64, len(all_requests))
    if counts.sum() <= HELD_READS:
        return Records.of([*records])
    cuts = read_cuts(offsets_of(counts))
    return set_aside(Records.of([*islice(records, end - start)]) for start, end in cuts)


def _check_span(requests: Sequence[ImportedRequest], origin: float) -> None:
    """Check the time span: rates and slices are computed over all of it."""
    last = max((_last(request, origin) for request in requests), default=origin)
    if not last - origin <= MOST_SPAN_S:
        text = f"its requests lie {(last - origin) / 86400:,.0f} days apart, at most {MOST_SPAN_S / 86400:.0f} are read"
        raise DataError(text, "is one of the times wrong, or in another unit?")


def _last(request: ImportedRequest, origin: float) -> float:
    reads = np.asarray(request.reads_s, np.float64)
    if not np.isfinite(reads).all():
        raise DataError("the instant of a read is not a number")
    return max(request.sent_s, request.ended_s or origin, float(reads.max(initial=origin)))


def _due(request: ImportedRequest) -> float:
    return request.sent_s if request.scheduled_s is None else min(request.scheduled_s, request.sent_s)


def _record(number: int, request: ImportedRequest, origin: float) -> Record:
    sent_at = _at(request.sent_s, origin)
    last_s = float(request.reads_s[-1]) if len(request.reads_s) else None
    ended_s = last_s if request.ended_s is None else request.ended_s
    tokens = _tokens(request)
    reads = np.rint((np.asarray(request.reads_s, np.float64) - origin) * NANOSECONDS).astype("<i8")
    due_at = sent_at if request.scheduled_s is None else _at(request.scheduled_s, origin)
    return Record(
        session=number if request.session is None else request.session,
        turn=request.turn,
        stage=request.stage,
        scheduled_at=due_at,
        ready_at=None if request.scheduled_s is None else sent_at,
        sent_at=sent_at,
        ended_at=None if ended_s is None else _at(ended_s, origin),
        read_at=reads.tobytes(),
        read_tokens=np.array(tokens, "<i8").tobytes(),
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        tokens_by=None if request.output_tokens is None else "usage",
        events=len(reads),
        bytes_received=request.bytes_received or 0,
        status=request.status,
        outcome=_outcome(request),
        error=str(request.error) if request.error else None,
        request_id=None if request.request_id is None else str(request.request_id),
    )


def _at(instant_s: float, origin: float) -> int:
    return round((instant_s - origin) * NANOSECONDS)


def _tokens(request: ImportedRequest) -> NDArray[np.int64]:
    """Tokens of each read: as recorded; else the first read has one and the others share the rest, earlier ones getting
    more. With more reads than tokens some have none; their times are kept, because gaps are computed from them."""
    if request.read_tokens is not None:
        return np.array(request.read_tokens, np.int64)
    reads = len(request.reads_s)
    if request.output_tokens is None or reads == 0:
        return np.ones(reads, np.int64)
    if not 0 <= request.output_tokens <= MOST_COUNT:  # also refuses NaN
        raise DataError(f"a request has {request.output_tokens} output tokens")
    if reads == 1:
        return np.array([request.output_tokens], np.int64)
    share, left = divmod(max(request.output_tokens - 1, 0), reads - 1)
    return np.concatenate(([1], share + (np.arange(reads - 1) < left))).astype(np.int64)


def _outcome(request: ImportedRequest) -> Outcome:
    """The outcome of a request, as far as its error shows it."""
    text = str(request.error or "").lower()
    if request.cancelled:
        return "cancelled"
    if request.status is not None and request.status != 200:
        return "status"
    if not text:
        return "ok" if len(request.reads_s) or request.status == 200 else "bad"  # an empty answer is one
    if "timeout" in text or "timed out" in text:
        return "timeout"
    if "connect" in text or "refused" in text:
        return "connect"
    return "status" if _STATUS.search(text) else "bad"


def status_in(error: Any) -> int | None:
    """The HTTP status that an error message names."""
    match = _STATUS.search(error) if isinstance(error, str) else None
    return int(match[1]) if match else None
