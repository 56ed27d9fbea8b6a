"""fmperf's CSV, also that of the multi-round QA benchmark it runs: one request a line, all times in seconds.

Columns: prompt_tokens, generation_tokens, ttft, generation_time, user_id, question_id, launch_time, finish_time
(fmperf-project/fmperf; vllm-project/production-stack, benchmarks/multi-round-qa). Only the first and the last token
have an instant, so that there are no gaps between tokens to be had: `itl` in llm-d's conversion is its TPOT.
"""

import re

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
from inferometer.exchange.importing.source import Format, ImportedRun, ParsedFile, Row, Source
from inferometer.exchange.importing.units import number, whole
from inferometer.plan.draft import WorkloadDraft
from inferometer.vocabulary import duration_text

COLUMNS = {"prompt_tokens", "generation_tokens", "ttft", "launch_time", "finish_time"}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first chunk with content",
    "tpot": "of the first and the last instant; the file has none between them",
    "e2e": "from launch_time to finish_time",
}
_RATE = re.compile(r"(?:output_|qps[_-]?)(\d+(?:\.\d+)?)", re.IGNORECASE)


def _fits(source: Source) -> bool:
    return set(source.columns()) >= COLUMNS


def _read(source: Source) -> ParsedFile:
    requests, broken = requests_in(source, _request)
    first = min((request.sent_s for request in requests), default=0.0)
    rate = _RATE.search(source.name)
    run = ImportedRun(
        started=started_at(first),
        plan=fields.plan_of(
            workload=_lengths(requests),
            load=fields.constant(rate[1]) if rate else None,
        ),
        definitions=DEFINITIONS,
        records=records_of(requests),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED, *WITHOUT_READS),
    )
    return ParsedFile([run] if requests else [], broken)


def _request(row: Row) -> ImportedRequest:
    sent, ttft, end = (_seconds(row, name) for name in ("launch_time", "ttft", "finish_time"))
    if not 0 <= ttft <= end - sent + 1e-6:
        apart = f"launch_time and finish_time, {duration_text(end - sent)} apart"
        raise DataError(f"ttft of {duration_text(ttft)} does not lie between {apart}")
    tokens = whole(row.fields["generation_tokens"])
    reads = [sent + ttft, end] if tokens != 1 and end > sent + ttft else [sent + ttft]
    return ImportedRequest(
        sent, reads, end, input_tokens=whole(row.fields["prompt_tokens"]), output_tokens=tokens, status=200
    )


def _seconds(row: Row, name: str) -> float:
    seconds = number(row.fields[name])
    if seconds is None:
        raise DataError(f"{name} must be a number of seconds, got {row.fields[name]!r}")
    return seconds


def _lengths(requests: list[ImportedRequest]) -> WorkloadDraft | None:
    """The means of what was served."""
    inputs = [request.input_tokens for request in requests if request.input_tokens]
    outputs = [request.output_tokens for request in requests if request.output_tokens]
    means = [sum(tokens) / len(tokens) if tokens else None for tokens in (inputs, outputs)]
    return fields.lengths(*means)


TABLE = Format("fmperf", _fits, _read)
