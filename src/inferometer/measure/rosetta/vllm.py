"""`vllm bench serve`: TPOT by the client's clock, ITL by message, rates over the whole run, failures left out."""

import numpy as np

from inferometer.measure.inputs import numbers
from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta import (
    MEDIANS_AND_TAILS,
    MS,
    REQUEST_THROUGHPUT,
    Figure,
    RequestSpread,
    SeenRequests,
    Tool,
    WeightedValues,
    busiest_second,
    gaps_between_messages,
    input_lengths,
    linear,
    most_in_a_second,
    output_lengths,
    per_request,
    per_second,
    per_token_after_first,
    posted_at,
    posted_to_first,
    to_end,
    to_last,
    total,
)
from inferometer.measure.tally import Tally


def e2el(seen: SeenRequests) -> Floats:
    """Completions end with the last message that has choices, chat with the very last message (the usage)."""
    return (to_end if seen.api == "chat" else to_last)(seen.good, posted_at(seen.good))


def tpot(seen: SeenRequests) -> Floats:
    return per_token_after_first(e2el(seen), posted_to_first(seen), output_lengths(seen.good))


def _itl(seen: SeenRequests) -> WeightedValues | Tally:
    return gaps_between_messages(seen.good)


def _most_at_once(seen: SeenRequests) -> float | None:
    if not seen.on_one_clock:
        return None
    end_at = posted_at(seen.good) + np.nan_to_num(e2el(seen) * 1e9).astype(np.int64)
    return most_in_a_second(seen.good, end_at)


def lasted_s(seen: SeenRequests) -> float:
    """n requests at a rate r start within n / r seconds: the tool also waits a gap before the first one."""
    return seen.duration_s + seen.gap_s


def _rate(seen: SeenRequests, *, inputs: bool, outputs: bool) -> float | None:
    tokens = inputs * total(input_lengths(seen.good)) + outputs * total(output_lengths(seen.good))
    return per_second(tokens, lasted_s(seen))


VLLM = Tool(
    name="vllm",
    title="vllm bench serve",
    source="vllm-project/vllm, vllm/benchmarks/serve.py, calculate_metrics",
    remark="means and percentiles of successful requests over the whole run; std divides by n; rates include the drain",
    statistics=MEDIANS_AND_TAILS,
    quantile=linear,
    spreads=(
        per_request(
            *("TTFT", "{}_ttft_ms", "ttft"),
            "from the call of the HTTP client to its first message with choices",
            "includes connecting and an empty first message of a chat, which records do not have; all requests",
            posted_to_first,
        ),
        per_request(
            *("TPOT", "{}_tpot_ms", "tpot"),
            "(latency - TTFT) / (output length - 1), of answers with more than one token",
            "assumes one token in the first message; Inferometer divides by the tokens after the first read",
            tpot,
        ),
        RequestSpread(
            *("ITL", "{}_itl_ms", "itl"),
            "gaps between messages of all answers",
            "a message counts as one token, gaps of 0 within a read; Inferometer divides the gap by its tokens",
            _itl,
            scale=MS,
        ),
        per_request(
            *("E2EL", "{}_e2el_ms", "e2e"),
            "from the call of the HTTP client to its last message",
            "includes connecting; in a chat also the wait for the usage after the last token",
            e2el,
        ),
    ),
    figures=(
        Figure(
            *("requests per second", "request_throughput", "request_rate"),
            "successful requests / time from a gap of the open loop before the first request to the last end",
            "the time includes that gap and the drain; Inferometer counts requests that ended inside the window",
            lambda seen: per_second(len(seen.good), lasted_s(seen)),
            "1/s",
        ),
        Figure(
            *("output tokens per second", "output_throughput", "output_rate"),
            "output tokens of successful requests / the same time",
            "includes ramp and drain, excludes failures; Inferometer counts tokens that arrived inside the window",
            lambda seen: _rate(seen, inputs=False, outputs=True),
            "tokens/s",
        ),
        Figure(
            *("tokens per second", "total_token_throughput", "total_rate"),
            "input and output tokens of successful requests / the same time",
            "as for output tokens",
            lambda seen: _rate(seen, inputs=True, outputs=True),
            "tokens/s",
        ),
        Figure(
            *("busiest second", "max_output_tokens_per_s", None),
            "most messages in one of the seconds counted from the first request",
            "messages, not tokens, in fixed seconds; Inferometer uses a sliding second",
            lambda seen: busiest_second(seen.good) if seen.on_one_clock else None,
            "tokens/s",
        ),
        Figure(
            *("most requests at once", "max_concurrent_requests", None),
            "most requests that touched one of these seconds",
            "two that follow each other within a second count as two; Inferometer counts requests in flight at once",
            _most_at_once,
            "requests",
        ),
    ),
)


def assumed_lengths(seen: SeenRequests) -> Floats:
    """The requested length, if it is known: no usage is requested, so the answer's own count is seldom available."""
    requested = numbers(seen.good.records.requested_output)
    return np.where(np.isnan(requested), output_lengths(seen.good), requested)


def latency(seen: SeenRequests) -> Floats:
    return to_end(seen.good, posted_at(seen.good))


def sglang_tpot(seen: SeenRequests) -> Floats:
    return per_token_after_first(latency(seen), posted_to_first(seen), assumed_lengths(seen))


def _sglang_rate(seen: SeenRequests, tokens: Floats) -> float | None:
    return per_second(total(tokens), seen.duration_s)


SGLANG = Tool(
    name="sglang",
    title="sglang bench_serving",
    source="sgl-project/sglang, python/sglang/benchmark/serving.py, calculate_metrics",
    remark="successful requests over the whole run; output lengths are the requested ones; std divides by n",
    statistics=MEDIANS_AND_TAILS,
    quantile=linear,
    spreads=(
        per_request(
            *("TTFT", "{}_ttft_ms", "ttft"),
            "from the call of the HTTP client to the first line with text",
            "includes connecting; SGLang opens a connection per request, so every TTFT of its own runs has it",
            posted_to_first,
        ),
        per_request(
            *("TPOT", "{}_tpot_ms", "tpot"),
            "(latency - TTFT) / (requested output length - 1)",
            "an answer that ended early looks too fast; the latency ends with the last line, [DONE]",
            sglang_tpot,
        ),
        RequestSpread(
            *("ITL", "{}_itl_ms", "itl"),
            "gaps between lines with text of all answers",
            "a line counts as one token; lines in the same read have gaps of 0",
            lambda seen: gaps_between_messages(seen.good),
            scale=MS,
        ),
        per_request(
            *("E2E latency", "{}_e2e_latency_ms", "e2e"),
            "from the call of the HTTP client to the last line",
            "includes connecting and the end of the protocol, [DONE]",
            latency,
        ),
    ),
    figures=(
        REQUEST_THROUGHPUT,
        Figure(
            *("input tokens per second", "input_throughput", "input_rate"),
            "prompt tokens of successful requests / the same time",
            "lengths as generated by the client; Inferometer uses the server's count inside the window",
            lambda seen: _sglang_rate(seen, input_lengths(seen.good)),
            "tokens/s",
        ),
        Figure(
            *("output tokens per second", "output_throughput", "output_rate"),
            "requested output lengths of successful requests / the same time",
            "counts tokens that were requested but never arrived",
            lambda seen: _sglang_rate(seen, assumed_lengths(seen)),
            "tokens/s",
        ),
        Figure(
            *("output tokens per second, retokenized", "output_throughput_retokenized", "output_rate"),
            "tokens of the text that came / the same time",
            "a tokenizer's count of the text; here the server's, which it should equal",
            lambda seen: _sglang_rate(seen, output_lengths(seen.good)),
            "tokens/s",
        ),
        Figure(
            *("concurrency", "concurrency", "concurrency"),
            "sum of latencies / time from the start of the run to its last end",
            "excludes failures; Inferometer integrates over the window",
            lambda seen: _sglang_rate(seen, latency(seen)),
            "requests",
        ),
        Figure(
            *("busiest second", "max_output_tokens_per_s", None),
            "most lines with text in one of the seconds counted from the first request",
            "lines, not tokens, in fixed seconds; Inferometer uses a sliding second",
            lambda seen: busiest_second(seen.good) if seen.on_one_clock else None,
            "tokens/s",
        ),
        Figure(
            *("most requests at once", "max_concurrent_requests", None),
            "most requests that touched one of these seconds",
            "two requests that follow each other within a second count as two",
            lambda seen: most_in_a_second(seen.good, seen.good.records.ended_at) if seen.on_one_clock else None,
            "requests",
        ),
    ),
)
