"""InferX's `metrics.csv`, one request a line with its instants in seconds; `gpu_memory.csv` beside it as samples.

Columns: enqueue_time, send_time, first_byte_time, end_time, prompt_tokens, resp_tokens, bytes_received, status, error.
The framework itself never fills resp_tokens; where it is empty, nothing is said per token.
"""

import csv
import io
from collections.abc import Iterator

from inferometer.errors import DataError
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import requests_in, started_at
from inferometer.exchange.importing.requests import NOT_CONNECTED, WITHOUT_READS, ImportedRequest, records_of
from inferometer.exchange.importing.source import Format, ImportedRun, ParsedFile, Row, Source
from inferometer.exchange.importing.units import BYTES, number, whole
from inferometer.plan.draft import LoadDraft
from inferometer.record.sample import Sample, Samples
from inferometer.vocabulary import NANOSECONDS

COLUMNS = {"request_id", "enqueue_time", "send_time", "first_byte_time", "end_time", "status"}
DEFINITIONS = {
    "ttft": "to the first bytes of the answer, whatever they are; without streaming to its end",
    "tpot": "of the first bytes and the end, for tokens as counted or estimated by the tool",
}
WITHOUT_TOKENS = ("tpot", "ntpot", "user_speed", "output_tokens", "output_rate", "total_rate")
GPU = {  # its column: our name, and what makes it ours
    "mem_used_mb": ("memory_used_bytes", BYTES["MiB"]),
    "mem_total_mb": ("memory_total_bytes", BYTES["MiB"]),
    "gpu_util": ("utilization", 0.01),
    "gpu_mem_util": ("memory_utilization", 0.01),
}


def _fits(source: Source) -> bool:
    return set(source.columns()) >= COLUMNS


def _read(source: Source) -> ParsedFile:
    requests, broken = requests_in(source, _request)
    counted = any(request.output_tokens for request in requests)
    first = min((request.scheduled_s or request.sent_s for request in requests), default=0.0)
    run = ImportedRun(
        started=started_at(first),
        plan=fields.plan_of(load=_load(requests)),
        definitions=DEFINITIONS,
        records=records_of(requests),
        samples=_samples(source, first),
        underivable=(*NOT_CONNECTED, *WITHOUT_READS, "send_delay", *(() if counted else WITHOUT_TOKENS)),
        notes=() if counted else ("resp_tokens is always empty: there are no per-token measures",),
    )
    return ParsedFile([run] if requests else [], broken)


def _request(row: Row) -> ImportedRequest:
    entry = row.fields
    due, sent, first, end = (number(entry[f"{name}_time"]) for name in ("enqueue", "send", "first_byte", "end"))
    if sent is None and due is None:
        raise DataError("neither enqueue_time nor send_time is a number")
    sent = sent if sent is not None else due or 0.0
    if first is not None and (first < sent or (end is not None and first > end)):
        raise DataError(f"first_byte_time {first} does not lie between send_time and end_time")
    status, tokens = whole(entry.get("status")), whole(entry.get("resp_tokens")) or None
    fine = first is not None and not entry.get("error") and status in (None, 200)
    return ImportedRequest(
        sent,
        list(_reads(first, end, tokens)) if fine else [],
        end,
        scheduled_s=due,
        input_tokens=whole(entry.get("prompt_tokens")),
        output_tokens=tokens,
        status=status,
        error=entry.get("error") or None,
        bytes_received=whole(entry.get("bytes_received")),
    )


def _reads(first: float | None, end: float | None, tokens: int | None) -> Iterator[float]:
    """The first bytes and the end; the end is one only where it brought a token of its own."""
    assert first is not None
    yield first
    if end is not None and end > first and tokens != 1:
        yield end


def _load(requests: list[ImportedRequest]) -> LoadDraft | None:
    """It draws Poisson arrivals: their rate is that of the enqueue times, over as many gaps."""
    due = sorted(request.scheduled_s for request in requests if request.scheduled_s is not None)
    if len(due) < 2 or due[-1] <= due[0]:
        return None
    return fields.load(round((len(due) - 1) / (due[-1] - due[0]), 2), None, None)


def _samples(source: Source, first: float) -> Samples | None:
    """On the clock of the requests. Its megabytes are nvidia-smi's, which are MiB."""
    content = source.sibling("gpu_memory.csv")
    if content is None:
        return None
    samples = []
    for row in csv.DictReader(io.StringIO(content.decode("utf-8", "replace"))):
        at = number(row.get("ts"))
        for column, (name, scale) in GPU.items():
            amount = number(row.get(column))
            if at is not None and amount is not None:
                samples.append(Sample("gpu:0", name, round((at - first) * NANOSECONDS), amount * scale))
    return Samples.of(samples) if samples else None


METRICS = Format("InferX's metrics.csv", _fits, _read)
