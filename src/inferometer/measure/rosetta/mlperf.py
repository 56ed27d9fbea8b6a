"""MLPerf LoadGen, scenario Server with token latencies: everything from the scheduled time, in whole nanoseconds."""

import numpy as np

from inferometer.measure.inputs import numbers
from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta import (
    Figure,
    SeenRequests,
    Tool,
    by_index,
    output_lengths,
    per_request,
    per_second,
    per_token_after_first,
    to_end,
    to_first,
    total,
)
from inferometer.record.columns import known
from inferometer.vocabulary import NANOSECONDS

NS = float(NANOSECONDS)


def _latency(seen: SeenRequests) -> Floats:
    return to_end(seen.good, seen.good.records.scheduled_at)


def _first_token(seen: SeenRequests) -> Floats:
    return to_first(seen.good, seen.good.records.scheduled_at)


def _per_token(seen: SeenRequests) -> Floats:
    """Truncated to whole nanoseconds, since LoadGen computes with integers."""
    exact = per_token_after_first(_latency(seen), _first_token(seen), output_lengths(seen.good))
    return np.floor(exact * NS) / NS


def _done_s(seen: SeenRequests) -> float:
    """When the query that was scheduled last was done, from the start of the test."""
    records = seen.good.records
    if not len(records) or not known(records.ended_at[-1:]).all():
        return 0.0
    return float(numbers(records.ended_at)[-1] - seen.every.records.scheduled_at[0]) / NS


def _scheduled_s(seen: SeenRequests) -> float:
    scheduled_at = seen.every.records.scheduled_at
    return float(scheduled_at[-1] - scheduled_at[0]) / NS if len(scheduled_at) else 0.0


TOOL = Tool(
    name="mlperf",
    title="MLPerf LoadGen, Server",
    source="mlcommons/inference, loadgen/results.cc and logging.cc",
    remark="every latency from the scheduled time; a percentile is the sorted value at index n * p; a failed request "
    "makes its own run invalid: here it is left out",
    statistics={"mean": None, "min": None, "50.00": 0.5, "90.00": 0.9, "97.00": 0.97, "99.00": 0.99, "max": None},
    quantile=by_index,
    spreads=(
        per_request(
            *("latency", "{} latency (ns)", "e2e_scheduled"),
            "completion - scheduled time",
            "includes the end of the protocol; Inferometer ends with the last token",
            _latency,
            scale=NS,
        ),
        per_request(
            *("first token latency", "{} first token latency (ns)", "ttft_scheduled"),
            "first token - scheduled time",
            "the same timestamps; all requests, and other percentiles",
            _first_token,
            scale=NS,
        ),
        per_request(
            *("time per output token", "{} time to output token (ns)", "tpot"),
            "(latency - first token latency) / (n - 1)",
            "assumes one token in the first chunk; until the completion, not the last token",
            _per_token,
            scale=NS,
        ),
    ),
    figures=(
        Figure(
            *("completed samples per second", "Completed samples per second", "request_rate"),
            "(samples - 1) / time until the query that was scheduled last was done",
            "the first sample starts the clock and is not counted; samples that end after the last query are",
            lambda seen: per_second(max(len(seen.good) - 1, 0), _done_s(seen)),
            "1/s",
        ),
        Figure(
            *("completed tokens per second", "Completed tokens per second", "output_rate"),
            "output tokens / the same time",
            "as for samples",
            lambda seen: per_second(total(output_lengths(seen.good)), _done_s(seen)),
            "tokens/s",
        ),
        Figure(
            *("scheduled samples per second", "Scheduled samples per second", "offered_rate"),
            "(samples - 1) / scheduled time of the last query",
            "Inferometer counts every arrival in the window",
            lambda seen: per_second(max(len(seen.every) - 1, 0), _scheduled_s(seen)),
            "1/s",
        ),
    ),
)
