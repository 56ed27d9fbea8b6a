"""AIPerf: its ITL is a mean per request, what others call TPOT; gaps are called ICL; speed per user is its inverse."""

import numpy as np

from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta import (
    MS,
    Figure,
    RequestSpread,
    SeenRequests,
    Tool,
    WeightedValues,
    defined,
    gap_lengths,
    linear,
    output_lengths,
    per_request,
    per_second,
    per_token_after_first,
    posted_at,
    posted_to_first,
    to_last,
    total,
)
from inferometer.record.columns import known
from inferometer.vocabulary import NANOSECONDS


def _latency(seen: SeenRequests) -> Floats:
    return to_last(seen.good, posted_at(seen.good))


def _itl(seen: SeenRequests) -> Floats:
    return per_token_after_first(_latency(seen), posted_to_first(seen), output_lengths(seen.good))


def _per_user(seen: SeenRequests) -> WeightedValues:
    itl = _itl(seen)
    return defined(1 / np.where(itl > 0, itl, np.nan))


def _ttst(seen: SeenRequests) -> WeightedValues:
    """The second response of each answer, after its first."""
    gap_s = np.full(len(seen.good), np.nan)
    for reads in seen.good.records.read_batches(None, ("read_at",)):
        several = reads.counts() > 1
        first = reads.offsets[:-1][several]
        gap_s[reads.owner[several]] = (reads.at[first + 1] - reads.at[first]) / NANOSECONDS
    return defined(gap_s)


def _duration_s(seen: SeenRequests) -> float:
    """From the first request to the last response of those that are valid."""
    last_at = seen.good.last_at[known(seen.good.last_at)]
    if not len(last_at):
        return 0.0
    return float(int(last_at.max()) - int(posted_at(seen.good).min())) / NANOSECONDS


TOOL = Tool(
    name="aiperf",
    title="AIPerf",
    source="ai-dynamo/aiperf, aiperf/metrics/types",
    remark="valid requests over the whole run; output tokens by a tokenizer by default: here by the "
    "server's usage; std divides by n",
    statistics={"avg": None, "p50": 0.5, "std": None, "p90": 0.9, "p95": 0.95, "p99": 0.99},
    quantile=linear,
    spreads=(
        per_request(
            *("TTFT", "time_to_first_token.{}", "ttft"),
            "from the start of the request to the first response with content",
            "connecting counts; all requests, not those of a window",
            posted_to_first,
        ),
        RequestSpread(
            *("TTST", "time_to_second_token.{}", None),
            "second response - first response",
            "Inferometer has no such measure: it is one of many gaps",
            _ttst,
            scale=MS,
        ),
        per_request(
            *("ITL", "inter_token_latency.{}", "tpot"),
            "(request latency - TTFT) / (output length - 1), a value per request",
            "it is a TPOT; Inferometer's TPOT divides by the tokens after the first read",
            _itl,
        ),
        RequestSpread(
            *("ICL", "inter_chunk_latency.{}", "icl"),
            "gaps between responses of all answers",
            "one timestamp per network chunk, like Inferometer; all requests",
            lambda seen: gap_lengths(seen.good),
            scale=MS,
        ),
        per_request(
            *("request latency", "request_latency.{}", "e2e"),
            "from the start of the request to its last response with content",
            "connecting counts",
            _latency,
        ),
        RequestSpread(
            *("output tokens/s per user", "output_token_throughput_per_user.{}", "user_speed"),
            "1 / ITL of each request",
            "too high if the first response had several tokens",
            _per_user,
            unit="tokens/s",
        ),
        RequestSpread(
            *("output tokens", "output_sequence_length.{}", "output_tokens"),
            "tokens of each answer, reasoning included",
            "the same count; over the whole run",
            lambda seen: defined(output_lengths(seen.good)),
            unit="tokens",
        ),
    ),
    figures=(
        Figure(
            *("requests per second", "request_throughput.avg", "request_rate"),
            "valid requests / time from the first request to the last response",
            "the time includes the drain",
            lambda seen: per_second(len(seen.good), _duration_s(seen)),
            "1/s",
        ),
        Figure(
            *("output tokens per second", "output_token_throughput.avg", "output_rate"),
            "output tokens of valid requests / the same time",
            "tokens of failed and unfinished answers are left out, the drain is included",
            lambda seen: per_second(total(output_lengths(seen.good)), _duration_s(seen)),
            "tokens/s",
        ),
    ),
)
