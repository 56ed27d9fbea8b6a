"""SGLang's bench_serving: as vLLM's, but the output length is the one that was asked for, and a stream ends with
its last line."""

import numpy as np

from inferometer.measure.answers import numbers
from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta.definition import (
    MEDIANS_AND_TAILS,
    MS,
    REQUEST_THROUGHPUT,
    Figure,
    Seen,
    Spread,
    Tool,
    busiest_second,
    gaps_between_messages,
    input_lengths,
    linear,
    most_in_a_second,
    of_each,
    output_lengths,
    per_second,
    per_token_after_first,
    posted_at,
    posted_to_first,
    to_end,
    total,
)


def assumed_lengths(seen: Seen) -> Floats:
    """What was asked for, where that is known: no usage is requested, so the answer's own count seldom comes."""
    asked = numbers(seen.good.records.asked_output)
    return np.where(np.isnan(asked), output_lengths(seen.good), asked)


def latency(seen: Seen) -> Floats:
    return to_end(seen.good, posted_at(seen.good))


def tpot(seen: Seen) -> Floats:
    return per_token_after_first(latency(seen), posted_to_first(seen), assumed_lengths(seen))


def _rate(seen: Seen, tokens: Floats) -> float | None:
    return per_second(total(tokens), seen.duration_s)


TOOL = Tool(
    name="sglang",
    title="sglang bench_serving",
    source="sgl-project/sglang, python/sglang/benchmark/serving.py, calculate_metrics",
    remark="successful requests over the whole run; lengths of answers are those asked for; std divides by n",
    statistics=MEDIANS_AND_TAILS,
    quantile=linear,
    spreads=(
        of_each(
            *("TTFT", "{}_ttft_ms", "ttft"),
            "from the call of the HTTP client to the first line with text",
            "connecting counts, and SGLang opens a connection for every request: its own runs have it in each TTFT",
            posted_to_first,
        ),
        of_each(
            *("TPOT", "{}_tpot_ms", "tpot"),
            "(latency - TTFT) / (asked output length - 1)",
            "an answer that ended early looks faster than it was; the latency runs until the last line, [DONE]",
            tpot,
        ),
        Spread(
            *("ITL", "{}_itl_ms", "itl"),
            "gaps between lines with text of all answers",
            "a line counts as one token; lines that share a read are gaps of nothing",
            lambda seen: gaps_between_messages(seen.good),
            scale=MS,
        ),
        of_each(
            *("E2E latency", "{}_e2e_latency_ms", "e2e"),
            "from the call of the HTTP client to the last line",
            "connecting and the end of the protocol, [DONE], count",
            latency,
        ),
    ),
    figures=(
        REQUEST_THROUGHPUT,
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
