"""fmperf's CSV, also that of the multi-round QA benchmark it runs: one request a line, all times in seconds.

Columns: prompt_tokens, generation_tokens, ttft, generation_time, user_id, question_id, launch_time, finish_time
(fmperf-project/fmperf; vllm-project/production-stack, benchmarks/multi-round-qa). Only the first and the last token
have an instant, so that there are no gaps between tokens to be had: `itl` in llm-d's conversion is its TPOT.
"""

import re

from inferometer.errors import DataError
from inferometer.exchange.importing import fields as sayings
from inferometer.exchange.importing.fields import requests_in, started_at
from inferometer.exchange.importing.requests import NOT_CONNECTED, NOT_SCHEDULED, WITHOUT_READS, Told, records_of
from inferometer.exchange.importing.source import Format, Found, ImportedRun, Row, Source
from inferometer.exchange.importing.units import number, whole

COLUMNS = {"prompt_tokens", "generation_tokens", "ttft", "launch_time", "finish_time"}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first chunk with content",
    "tpot": "of the first and the last instant; the file has none between them",
    "e2e": "from launch_time to finish_time",
}
_RATE = re.compile(r"(?:output_|qps[_-]?)(\d+(?:\.\d+)?)", re.IGNORECASE)


def _fits(source: Source) -> bool:
    return set(source.columns()) >= COLUMNS


def _read(source: Source) -> Found:
    requests, broken = requests_in(source, _request)
    first = min((each.sent_s for each in requests), default=0.0)
    rate = _RATE.search(source.name)
    run = ImportedRun(
        started=started_at(first),
        plan=sayings.plan_of(
            workload=_lengths(requests),
            load=sayings.constant(rate[1]) if rate else None,
        ),
        definitions=DEFINITIONS,
        records=records_of(requests),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED, *WITHOUT_READS),
    )
    return Found([run] if requests else [], broken)


def _request(row: Row) -> Told:
    sent, ttft, end = (_seconds(row, name) for name in ("launch_time", "ttft", "finish_time"))
    if not 0 <= ttft <= end - sent + 1e-6:
        raise DataError(f"ttft of {ttft:g} s does not lie between launch_time and finish_time, {end - sent:g} s apart")
    tokens = whole(row.said["generation_tokens"])
    reads = [sent + ttft, end] if tokens != 1 and end > sent + ttft else [sent + ttft]
    return Told(sent, reads, end, input_tokens=whole(row.said["prompt_tokens"]), output_tokens=tokens, status=200)


def _seconds(row: Row, name: str) -> float:
    found = number(row.said[name])
    if found is None:
        raise DataError(f"{name} must be a number of seconds, got {row.said[name]!r}")
    return found


def _lengths(requests: list[Told]) -> dict[str, object] | None:
    """The means of what was served."""
    inputs = [each.input_tokens for each in requests if each.input_tokens]
    outputs = [each.output_tokens for each in requests if each.output_tokens]
    means = [sum(each) / len(each) if each else None for each in (inputs, outputs)]
    return sayings.lengths(*means)


TABLE = Format("fmperf", _fits, _read)
