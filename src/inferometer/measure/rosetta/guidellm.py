"""GuideLLM: TPOT includes the first token, per-request means are weighted by tokens, and rates are taken between the
first and the last token."""

import numpy as np

from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta import (
    MS,
    Figure,
    RequestSpread,
    SeenRequests,
    Tool,
    WeightedValues,
    by_weight,
    defined,
    input_lengths,
    output_lengths,
    per_request,
    per_second,
    to_end,
    to_first,
    to_last,
    total,
    weighted,
)
from inferometer.record.columns import Ints, known
from inferometer.vocabulary import NANOSECONDS


def _ttft(seen: SeenRequests) -> Floats:
    return to_first(seen.good, seen.good.records.sent_at)


def _latency(seen: SeenRequests) -> Floats:
    return to_end(seen.good, seen.good.records.sent_at)


def _tpot(seen: SeenRequests) -> WeightedValues:
    tokens = output_lengths(seen.good)
    return weighted(to_last(seen.good, seen.good.records.sent_at) / tokens, tokens)


def _itl(seen: SeenRequests) -> WeightedValues:
    tokens = output_lengths(seen.good)
    between = to_last(seen.good, seen.good.first_at)
    after = np.where(tokens > 1, tokens - 1, np.nan)
    return weighted(between / after, after)


def _span_s(*instants: Ints) -> float:
    """From the first of the instants to the last."""
    there = np.concatenate([at[known(at)] for at in instants])
    return float(there.max() - there.min()) / NANOSECONDS if len(there) else 0.0


def _requests_per_s(seen: SeenRequests) -> float | None:
    """The window is the run: from the first send to the last end."""
    records = seen.every.records
    return per_second(len(seen.good), _span_s(records.sent_at, records.ended_at))


def _output_per_s(seen: SeenRequests) -> float | None:
    return per_second(total(output_lengths(seen.good)), _span_s(seen.good.first_at, seen.good.last_at))


def _tokens_per_s(seen: SeenRequests) -> float | None:
    tokens = total(output_lengths(seen.good)) + total(input_lengths(seen.good))
    return per_second(tokens, _span_s(seen.good.first_at, seen.good.last_at))


def _concurrency(seen: SeenRequests) -> float | None:
    records = seen.every.records
    return per_second(total(_latency(seen)), _span_s(records.sent_at, records.ended_at))


TOOL = Tool(
    name="guidellm",
    title="GuideLLM",
    source="vllm-project/guidellm, src/guidellm/schemas/request_stats.py and statistics.py",
    remark="successful requests, others by status; a percentile is the value at which the "
    "cumulative weight reaches it; std divides by n",
    statistics={"mean": None, "median": 0.5, "std_dev": None, "p90": 0.9, "p95": 0.95, "p99": 0.99},
    quantile=by_weight,
    spreads=(
        per_request(
            *("TTFT", "time_to_first_token_ms.successful.{}", "ttft"),
            "from the first header byte written to the first iteration with tokens",
            "the same timestamps, on the wall clock, for the requests of the whole run",
            _ttft,
        ),
        RequestSpread(
            *("TPOT", "time_per_output_token_ms.successful.{}", "tpot"),
            "(last token - start) / n, weighted by the n tokens of the request",
            "includes the wait for the first token: Inferometer's NTPOT, weighted by answer length",
            _tpot,
            scale=MS,
        ),
        RequestSpread(
            *("ITL", "inter_token_latency_ms.successful.{}", "itl"),
            "(last token - first token) / (n - 1) of each request, weighted by n - 1",
            "a mean per request hides a stall inside an answer; Inferometer uses every gap",
            _itl,
            scale=MS,
        ),
        RequestSpread(
            *("request latency", "request_latency.successful.{}", "e2e"),
            "from the first header byte written to the close of the stream",
            "includes the end of the protocol; in seconds, unlike its other latencies",
            lambda seen: defined(_latency(seen)),
        ),
        RequestSpread(
            *("output tokens", "output_token_count.successful.{}", "output_tokens"),
            "tokens of each answer: the usage, else its iterations",
            "the same count; over the whole run",
            lambda seen: defined(output_lengths(seen.good)),
            unit="tokens",
        ),
    ),
    figures=(
        Figure(
            *("requests per second", "requests_per_second.successful.mean", "request_rate"),
            "successful requests / time from the first send to the last end",
            "the time includes the drain",
            _requests_per_s,
            "1/s",
        ),
        Figure(
            *("output tokens per second", "output_tokens_per_second.successful.mean", "output_rate"),
            "output tokens of successful requests / time from the first token to the last",
            "excludes the wait for the first token of the run, includes the drain",
            _output_per_s,
            "tokens/s",
        ),
        Figure(
            *("tokens per second", "tokens_per_second.successful.mean", "total_rate"),
            "input and output tokens / the same time; a prompt counts when its first token comes",
            "as for output tokens",
            _tokens_per_s,
            "tokens/s",
        ),
        Figure(
            *("concurrency", "request_concurrency.successful.mean", "concurrency"),
            "time-weighted successful requests in flight, from the first send to the last end",
            "includes ramp and drain, excludes failures",
            _concurrency,
            "requests",
        ),
    ),
)
