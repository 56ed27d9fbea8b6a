"""SGLang's bench_serving: as vLLM's, but the output length is the one that was asked for, and a stream ends with
its last line."""

import numpy as np

from inferometer.measure.answers import numbers
from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta.definition import Figure, Spread, Tool, linear
from inferometer.measure.rosetta.seen import (
    Seen,
    busiest_second,
    defined,
    gaps_between_messages,
    input_lengths,
    most_in_a_second,
    output_lengths,
    per_second,
    per_token_after_first,
    posted_at,
    to_end,
    to_first,
    total,
)

MS = 1000.0


def assumed_lengths(seen: Seen) -> Floats:
    """What was asked for, where that is known: no usage is requested, so the answer's own count seldom comes."""
    asked = numbers(seen.good.records.asked_output)
    return np.where(np.isnan(asked), output_lengths(seen.good), asked)


def ttft(seen: Seen) -> Floats:
    return to_first(seen.good, posted_at(seen.good))


def latency(seen: Seen) -> Floats:
    return to_end(seen.good, posted_at(seen.good))


def tpot(seen: Seen) -> Floats:
    return per_token_after_first(latency(seen), ttft(seen), assumed_lengths(seen))


def _rate(seen: Seen, tokens: Floats) -> float | None:
    return per_second(total(tokens), seen.duration_s)


TOOL = Tool(
    name="sglang",
    title="sglang bench_serving",
    source="sgl-project/sglang, python/sglang/benchmark/serving.py, calculate_metrics",
    remark="successful requests over the whole run; lengths of answers are those asked for; std divides by n",
    statistics={"mean": None, "median": 0.5, "std": None, "p90": 0.9, "p95": 0.95, "p99": 0.99},
    quantile=linear,
    spreads=(
        Spread(
            *("TTFT", "{}_ttft_ms", "ttft"),
            "from the call of the HTTP client to the first line with text",
            "connecting counts, and SGLang opens a connection for every request: its own runs have it in each TTFT",
            lambda seen: defined(ttft(seen)),
            scale=MS,
        ),
        Spread(
            *("TPOT", "{}_tpot_ms", "tpot"),
            "(latency - TTFT) / (asked output length - 1)",
            "an answer that ended early looks faster than it was; the latency runs until the last line, [DONE]",
            lambda seen: defined(tpot(seen)),
            scale=MS,
        ),
        Spread(
            *("ITL", "{}_itl_ms", "itl"),
            "gaps between lines with text of all answers",
            "a line counts as one token; lines that share a read are gaps of nothing",
            lambda seen: gaps_between_messages(seen.good),
            scale=MS,
        ),
        Spread(
            *("E2E latency", "{}_e2e_latency_ms", "e2e"),
            "from the call of the HTTP client to the last line",
            "connecting and the end of the protocol, [DONE], count",
            lambda seen: defined(latency(seen)),
            scale=MS,
        ),
    ),
    figures=(
        Figure(
            *("requests per second", "request_throughput", "request_rate"),
            "successful requests / time from the start of the run to its last end",
            "the drain is in the time; ours counts what ended inside the window",
            lambda seen: per_second(len(seen.good), seen.duration_s),
            "1/s",
        ),
        Figure(
            *("input tokens per second", "input_throughput", "input_rate"),
            "prompt tokens of successful requests / the same time",
            "lengths as the client made them; ours are the server's count inside the window",
            lambda seen: _rate(seen, input_lengths(seen.good)),
            "tokens/s",
        ),
        Figure(
            *("output tokens per second", "output_throughput", "output_rate"),
            "asked output lengths of successful requests / the same time",
            "tokens that were asked for and never came are counted",
            lambda seen: _rate(seen, assumed_lengths(seen)),
            "tokens/s",
        ),
        Figure(
            *("output tokens per second, retokenized", "output_throughput_retokenized", "output_rate"),
            "tokens of the text that came / the same time",
            "a tokenizer's count of the text; here the server's, which it should equal",
            lambda seen: _rate(seen, output_lengths(seen.good)),
            "tokens/s",
        ),
        Figure(
            *("concurrency", "concurrency", "concurrency"),
            "sum of latencies / time from the start of the run to its last end",
            "failures and their time in flight are left out; ours is the integral over the window",
            lambda seen: _rate(seen, latency(seen)),
            "requests",
        ),
        Figure(
            *("busiest second", "max_output_tokens_per_s", None),
            "most lines with text in one of the seconds counted from the first request",
            "lines, not tokens, in fixed seconds; our peak slides over all of them",
            lambda seen: busiest_second(seen.good),
            "tokens/s",
        ),
        Figure(
            *("most requests at once", "max_concurrent_requests", None),
            "most requests that touched one of these seconds",
            "two that follow each other within a second count as two",
            lambda seen: most_in_a_second(seen.good, seen.good.records.ended_at),
            "requests",
        ),
    ),
)
