"""Tables with one request per line and all times in seconds: InferX's `metrics.csv`, with `gpu_memory.csv` as samples,
and fmperf's CSV, also that of the multi-round QA benchmark."""

import csv
import io
import re
from collections.abc import Iterator

from inferometer.errors import DataError
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import requests_in, started_at
from inferometer.exchange.importing.requests import (
    NOT_CONNECTED,
    NOT_SCHEDULED,
    WITHOUT_READS,
    ImportedRequest,
    records_of,
)
from inferometer.exchange.importing.source import ImportedRun, ImportFormat, ParsedFile, ResultRow, Source
from inferometer.exchange.importing.units import BYTES, number, whole
from inferometer.plan.draft import LoadDraft, WorkloadDraft
from inferometer.record.record import Sample, Samples
from inferometer.vocabulary import NANOSECONDS, duration_text

INFERX_COLUMNS = {"request_id", "enqueue_time", "send_time", "first_byte_time", "end_time", "status"}
INFERX_DEFINITIONS = {
    "ttft": "to the first bytes of the answer, whatever they are; without streaming to its end",
    "tpot": "of the first bytes and the end, for tokens as counted or estimated by the tool",
}
WITHOUT_TOKENS = ("tpot", "ntpot", "user_speed", "output_tokens", "output_rate", "total_rate")
GPU = {  # column: our name, and the factor to our unit
    "mem_used_mb": ("memory_used_bytes", BYTES["MiB"]),
    "mem_total_mb": ("memory_total_bytes", BYTES["MiB"]),
    "gpu_util": ("utilization", 0.01),
    "gpu_mem_util": ("memory_utilization", 0.01),
}


def _fits_inferx(source: Source) -> bool:
    return set(source.columns()) >= INFERX_COLUMNS


def _read_inferx(source: Source) -> ParsedFile:
    requests, broken = requests_in(source, _inferx_request)
    counted = any(request.output_tokens for request in requests)
    first = min((request.scheduled_s or request.sent_s for request in requests), default=0.0)
    run = ImportedRun(
        started=started_at(first),
        plan=fields.plan_of(load=_load(requests)),
        definitions=INFERX_DEFINITIONS,
        records=records_of(requests),
        samples=_samples(source, first),
        underivable=(*NOT_CONNECTED, *WITHOUT_READS, "send_delay", *(() if counted else WITHOUT_TOKENS)),
        notes=() if counted else ("resp_tokens is always empty: there are no per-token measures",),
    )
    return ParsedFile([run] if requests else [], broken)


def _inferx_request(row: ResultRow) -> ImportedRequest:
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
    """The reads: the first bytes and the end, which counts as a read only if it carried a token."""
    assert first is not None
    yield first
    if end is not None and end > first and tokens != 1:
        yield end


def _load(requests: list[ImportedRequest]) -> LoadDraft | None:
    """Poisson arrivals, with the rate of the enqueue times."""
    due = sorted(request.scheduled_s for request in requests if request.scheduled_s is not None)
    if len(due) < 2 or due[-1] <= due[0]:
        return None
    return fields.load(round((len(due) - 1) / (due[-1] - due[0]), 2), None, None)


def _samples(source: Source, first: float) -> Samples | None:
    """GPU samples on the clock of the requests. Megabytes are those of nvidia-smi, which are MiB."""
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


METRICS = ImportFormat("InferX's metrics.csv", _fits_inferx, _read_inferx)


FMPERF_COLUMNS = {"prompt_tokens", "generation_tokens", "ttft", "launch_time", "finish_time"}
FMPERF_DEFINITIONS = {
    "ttft": "from just before the request is posted to the first chunk with content",
    "tpot": "of the first and the last instant; the file has none between them",
    "e2e": "from launch_time to finish_time",
}
_RATE = re.compile(r"(?:output_|qps[_-]?)(\d+(?:\.\d+)?)", re.IGNORECASE)


def _fits_fmperf(source: Source) -> bool:
    return set(source.columns()) >= FMPERF_COLUMNS


def _read_fmperf(source: Source) -> ParsedFile:
    requests, broken = requests_in(source, _fmperf_request)
    first = min((request.sent_s for request in requests), default=0.0)
    rate = _RATE.search(source.name)
    run = ImportedRun(
        started=started_at(first),
        plan=fields.plan_of(
            workload=_lengths(requests),
            load=fields.constant(rate[1]) if rate else None,
        ),
        definitions=FMPERF_DEFINITIONS,
        records=records_of(requests),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED, *WITHOUT_READS),
    )
    return ParsedFile([run] if requests else [], broken)


def _fmperf_request(row: ResultRow) -> ImportedRequest:
    sent, ttft, end = (_seconds(row, name) for name in ("launch_time", "ttft", "finish_time"))
    if not 0 <= ttft <= end - sent + 1e-6:
        apart = f"launch_time and finish_time, {duration_text(end - sent)} apart"
        raise DataError(f"ttft of {duration_text(ttft)} does not lie between {apart}")
    tokens = whole(row.fields["generation_tokens"])
    reads = [sent + ttft, end] if tokens != 1 and end > sent + ttft else [sent + ttft]
    return ImportedRequest(
        sent, reads, end, input_tokens=whole(row.fields["prompt_tokens"]), output_tokens=tokens, status=200
    )


def _seconds(row: ResultRow, name: str) -> float:
    seconds = number(row.fields[name])
    if seconds is None:
        raise DataError(f"{name} must be a number of seconds, got {row.fields[name]!r}")
    return seconds


def _lengths(requests: list[ImportedRequest]) -> WorkloadDraft | None:
    """The mean served lengths."""
    inputs = [request.input_tokens for request in requests if request.input_tokens]
    outputs = [request.output_tokens for request in requests if request.output_tokens]
    means = [sum(tokens) / len(tokens) if tokens else None for tokens in (inputs, outputs)]
    return fields.lengths(*means)


TABLE = ImportFormat("fmperf", _fits_fmperf, _read_fmperf)
