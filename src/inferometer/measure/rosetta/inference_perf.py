"""inference-perf: every token of a chunk gets the chunk's time, so that most gaps between tokens are 0; latency lasts
until the answer was processed."""

import numpy as np

from inferometer.measure.inputs import seconds_between
from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.rosetta import (
    Figure,
    RequestSpread,
    SeenRequests,
    Tool,
    WeightedValues,
    defined,
    gaps_with_zeros,
    input_lengths,
    linear,
    output_lengths,
    per_second,
    per_token_after_first,
    posted_at,
    to_end,
    to_first,
    to_last,
    total,
)
from inferometer.measure.tally import Tally
from inferometer.record.columns import known
from inferometer.vocabulary import NANOSECONDS


def _streamed(seen: SeenRequests, values: Floats) -> WeightedValues:
    """TTFT and TPOT are undefined with fewer than two tokens."""
    return defined(np.where(seen.good.read_tokens > 1, values, np.nan))


def _ttft(seen: SeenRequests) -> WeightedValues:
    return _streamed(seen, to_first(seen.good, posted_at(seen.good)))


def _tpot(seen: SeenRequests) -> WeightedValues:
    start_at = posted_at(seen.good)
    first, last = to_first(seen.good, start_at), to_last(seen.good, start_at)
    return _streamed(seen, per_token_after_first(last, first, output_lengths(seen.good)))


def _ntpot(seen: SeenRequests) -> WeightedValues:
    """An answer without tokens has 0, as in the tool."""
    tokens = np.nan_to_num(output_lengths(seen.good))
    latency = to_end(seen.good, posted_at(seen.good))
    return defined(np.divide(latency, tokens, out=np.zeros(len(tokens)), where=tokens > 0))


def _itl(seen: SeenRequests) -> WeightedValues | Tally:
    return gaps_with_zeros(seen.good, lambda reads: reads.tokens)


def _time_s(seen: SeenRequests) -> float:
    """From the first start to the last end, of all requests."""
    start_at, end_at = _started(seen), seen.every.records.ended_at
    if not len(start_at) or not known(end_at).any():
        return 0.0
    return float(int(end_at.max()) - int(start_at.min())) / NANOSECONDS


def _started(seen: SeenRequests) -> Ints:
    """When each request that was sent at all was started."""
    return posted_at(seen.every)[known(seen.every.records.sent_at)]


def _rate(seen: SeenRequests, amount: float) -> float | None:
    return per_second(amount, _time_s(seen))


def _schedule_delay(seen: SeenRequests) -> WeightedValues:
    sent = known(seen.every.records.sent_at)
    return WeightedValues(seconds_between(seen.every.records.scheduled_at, posted_at(seen.every))[sent])


TOOL = Tool(
    name="inference-perf",
    title="inference-perf",
    source="kubernetes-sigs/inference-perf, inference_perf/reportgen/base.py, summarize_requests",
    remark="successful requests of a stage, or of all; output tokens by a tokenizer by default: here by "
    "the server's usage; seconds everywhere",
    statistics={"mean": None, "min": None, "median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": None},
    quantile=linear,
    spreads=(
        RequestSpread(
            *("TTFT", "successes.latency.time_to_first_token.{}", "ttft"),
            "from the call of the HTTP client to the first token, of answers with at least two",
            "includes connecting; ignores reasoning, so it is the first visible token",
            _ttft,
        ),
        RequestSpread(
            *("TPOT", "successes.latency.time_per_output_token.{}", "tpot"),
            "(last token - first token) / (n - 1)",
            "assumes one token in the first chunk",
            _tpot,
        ),
        RequestSpread(
            *("ITL", "successes.latency.inter_token_latency.{}", "itl"),
            "gaps between tokens of all answers; tokens of one chunk have the same time",
            "a chunk of k tokens is one gap and k - 1 zeros; Inferometer divides the gap by k",
            _itl,
        ),
        RequestSpread(
            *("NTPOT", "successes.latency.normalized_time_per_output_token.{}", "ntpot"),
            "request latency / n; 0 for an answer without tokens",
            "includes the end of the protocol; Inferometer ends with the last token, undefined without tokens",
            _ntpot,
        ),
        RequestSpread(
            *("request latency", "successes.latency.request_latency.{}", "e2e"),
            "from the call of the HTTP client until the answer was processed",
            "includes connecting, the end of the protocol and, in its own runs, tokenizing the answer",
            lambda seen: defined(to_end(seen.good, posted_at(seen.good))),
        ),
        RequestSpread(
            *("schedule delay", "load_summary.schedule_delay.{}", "send_delay"),
            "start - scheduled time, of all requests",
            "includes waits for a slot or an earlier turn; Inferometer counts only late sending",
            _schedule_delay,
        ),
    ),
    figures=(
        Figure(
            *("requests per second", "successes.throughput.requests_per_sec", "request_rate"),
            "successful requests / time from the first start to the last end",
            "the time includes the drain",
            lambda seen: _rate(seen, len(seen.good)),
            "1/s",
        ),
        Figure(
            *("input tokens per second", "successes.throughput.input_tokens_per_sec", "input_rate"),
            "prompt tokens of successful requests / the same time",
            "as for requests",
            lambda seen: _rate(seen, total(input_lengths(seen.good))),
            "tokens/s",
        ),
        Figure(
            *("output tokens per second", "successes.throughput.output_tokens_per_sec", "output_rate"),
            "output tokens of successful requests / the same time",
            "tokens of failed and unfinished answers are left out, the drain is included",
            lambda seen: _rate(seen, total(output_lengths(seen.good))),
            "tokens/s",
        ),
        Figure(
            *("tokens per second", "successes.throughput.total_tokens_per_sec", "total_rate"),
            "input and output tokens of successful requests / the same time",
            "as for output tokens",
            lambda seen: _rate(seen, total(input_lengths(seen.good)) + total(output_lengths(seen.good))),
            "tokens/s",
        ),
    ),
)
