"""The registry of measures: each name of the vocabulary with its definition, a one-sentence description and its
function.

A function returns one value per request, NaN if undefined, or one per gap between reads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from inferometer.errors import InferometerError
from inferometer.measure.inputs import Answers, Gaps, numbers, seconds_between
from inferometer.measure.quantiles import Floats, Ints
from inferometer.record.columns import SCALARS, Records
from inferometer.record.parquet import records_table
from inferometer.vocabulary import MEASURES, NANOSECONDS, MeasureName

# -- formulas --------------------------------------------------------------------------------------------------------

PerRequest = Callable[[Answers], Floats]


@dataclass(frozen=True, eq=False, slots=True)
class GapSeries:
    """One value per gap with its weight (None: all 1), when it ended and the index of its request."""

    values: Floats
    weights: Floats | None
    at: Ints
    owner: Ints
    of_tokens: bool = False  # whether the weights are tokens


def span(start: str, end: str) -> PerRequest:
    """The function for the time between two instants, given their names."""

    def between(answers: Answers) -> Floats:
        return seconds_between(_column(answers, start), _column(answers, end))

    return between


def amount(name: str) -> PerRequest:
    """The function for a count that each request has, given its name."""

    def counted(answers: Answers) -> Floats:
        return numbers(_column(answers, name))

    return counted


def spent(name: str) -> PerRequest:
    """The function for a span in nanoseconds that is 0 if it was not needed: the value is then undefined."""

    def positive(answers: Answers) -> Floats:
        span_ns = _column(answers, name)
        return np.where(span_ns > 0, span_ns, np.nan) / NANOSECONDS

    return positive


def _column(answers: Answers, name: str) -> Ints:
    """Derived columns take precedence over recorded ones: output tokens come from the usage or from the reads."""
    derived = name in ("first_at", "last_at", "output_tokens")
    column: Ints = getattr(answers if derived else answers.records, name)
    return column


def tpot(answers: Answers) -> Floats:
    """Undefined with a single read too, whatever the server reports: one instant has no pace."""
    length = seconds_between(answers.first_at, answers.last_at)
    after_first = numbers(answers.output_tokens) - numbers(answers.first_tokens)
    return _ratio(length, np.where(answers.records.read_counts() > 1, after_first, np.nan))


def ntpot(answers: Answers) -> Floats:
    return _ratio(seconds_between(answers.records.sent_at, answers.last_at), numbers(answers.output_tokens))


def user_speed(answers: Answers) -> Floats:
    return _ratio(np.ones(len(answers)), tpot(answers))


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below if below is positive, else NaN."""
    result = np.full(len(above), np.nan)
    fine = below > 0
    result[fine] = above[fine] / below[fine]
    return result


def stall(answers: Answers) -> Floats:
    return numbers(answers.longest_gap) / NANOSECONDS


def send_delay(answers: Answers) -> Floats:
    records = answers.records
    connecting = (records.connect_ns + records.tls_ns + records.retry_ns) / NANOSECONDS
    return seconds_between(records.ready_at, records.sent_at) - connecting


def icl(gaps: Gaps) -> GapSeries:
    return GapSeries(gaps.length_s, None, gaps.ended_at, gaps.owner)


def itl(gaps: Gaps) -> GapSeries:
    """A read whose scaled estimate is zero tokens has no pace of its own."""
    if gaps.one_token_each:
        return GapSeries(gaps.length_s, None, gaps.ended_at, gaps.owner, of_tokens=True)
    some = gaps.tokens > 0
    if some.all():
        tokens = gaps.tokens.astype(np.float64)
        return GapSeries(gaps.length_s / tokens, tokens, gaps.ended_at, gaps.owner, of_tokens=True)
    tokens = gaps.tokens[some].astype(np.float64)
    return GapSeries(gaps.length_s[some] / tokens, tokens, gaps.ended_at[some], gaps.owner[some], of_tokens=True)


# -- registry --------------------------------------------------------------------------------------------------------

# If one of these gets worse, a check fails; all others are only reported.
_ALERTING = {
    *("ttft", "ttft_scheduled", "ttfo", "ttfo_scheduled", "tpot", "itl", "icl", "ntpot", "e2e", "e2e_scheduled"),
    *("done", "done_scheduled", "stall", "user_speed", "session_time", "session_last_answer"),
    *("request_rate", "input_rate", "output_rate", "total_rate"),
    *("goodput", "goodput_share", "failure_rate", "stall_share", "structure_valid"),
}

# What a measure has values for: answered requests; all requests sent; gaps between reads; sessions; the whole run.
MeasureKind = Literal["answered", "sent", "gap", "session", "scalar"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure and its computation. `each` gives a value per request, `gaps` one per gap of some requests; sessions
    and scalars are computed together with their section of the summary."""

    name: MeasureName
    kind: MeasureKind
    formula: str  # symbols are the fields of a record; n output tokens, k1 of them in the first read; unit in []
    sentence: str
    per_request: PerRequest | None = None
    gaps: Callable[[Gaps], GapSeries] | None = None

    @property
    def alerts(self) -> bool:
        """Whether a regression of the measure fails a check, or is only reported."""
        return self.name.name in _ALERTING

    @property
    def failure_value(self) -> float | None:
        """The value that a failed request counts as in limits: infinitely late, or infinitely slow; None: it does not
        count."""
        if self.kind != "answered" or self.name.direction is None:
            return None
        return math.inf if self.name.direction == "lower" else 0.0


REGISTRY: dict[str, Measure] = {}


def _answered(name: str, per_request: PerRequest, formula: str, sentence: str) -> None:
    REGISTRY[name] = Measure(MEASURES[name], "answered", formula, sentence, per_request=per_request)


def _sent(name: str, per_request: PerRequest, formula: str, sentence: str) -> None:
    REGISTRY[name] = Measure(MEASURES[name], "sent", formula, sentence, per_request=per_request)


def _gap(name: str, gaps: Callable[[Gaps], GapSeries], formula: str, sentence: str) -> None:
    REGISTRY[name] = Measure(MEASURES[name], "gap", formula, sentence, gaps=gaps)


def _session(name: str, formula: str, sentence: str) -> None:
    REGISTRY[name] = Measure(MEASURES[name], "session", formula, sentence)


def _scalar(name: str, formula: str, sentence: str) -> None:
    REGISTRY[name] = Measure(MEASURES[name], "scalar", formula, sentence)


def request_values(name: str, answers: Answers) -> Floats:
    """The values of a measure that is defined per request, NaN if undefined."""
    per_request = REGISTRY[name].per_request
    assert per_request is not None, f"{name} has no value per request"
    return per_request(answers)


_answered(
    "ttft",
    span("sent_at", "first_at"),
    "first_at - sent_at [s]",
    "Time from sending to the first read that carried a token.",
)
_answered(
    "ttft_scheduled",
    span("scheduled_at", "first_at"),
    "first_at - scheduled_at [s]",
    "Time to first token since the request was due: what a user waits, including queueing and late sending.",
)
_answered(
    "ttfo",
    span("sent_at", "visible_at"),
    "visible_at - sent_at [s]",
    "Time from sending to the first visible (non-reasoning) token.",
)
_answered(
    "ttfo_scheduled",
    span("scheduled_at", "visible_at"),
    "visible_at - scheduled_at [s]",
    "Time to first visible token since the request was due.",
)
_answered(
    "tpot",
    tpot,
    "(last_at - first_at) / (n - k1) [s/token]",
    "Time per output token after the first read; undefined when n <= k1, never 0.",
)
_gap(
    "itl",
    itl,
    "(read_at[i+1] - read_at[i]) / k, weight k = read_tokens[i+1] [s/token]",
    "Inter-token latency: each gap divided by the k tokens that ended it, counted k times.",
)
_gap(
    "icl",
    icl,
    "read_at[i+1] - read_at[i] [s]",
    "Inter-chunk latency: gap between reads that carried tokens, as a user sees it.",
)
_answered(
    "ntpot",
    ntpot,
    "(last_at - sent_at) / n [s/token]",
    "End-to-end latency divided by the number of output tokens, including prefill.",
)
_answered(
    "e2e",
    span("sent_at", "last_at"),
    "last_at - sent_at [s]",
    "Time from sending to the last read that carried a token.",
)
_answered(
    "e2e_scheduled",
    span("scheduled_at", "last_at"),
    "last_at - scheduled_at [s]",
    "Time to the last token since the request was due.",
)
_answered(
    "done",
    span("sent_at", "ended_at"),
    "ended_at - sent_at [s]",
    "Time from sending to the end of the stream, including the end of the protocol.",
)
_answered(
    "done_scheduled",
    span("scheduled_at", "ended_at"),
    "ended_at - scheduled_at [s]",
    "Time to the end of the stream since the request was due.",
)
_answered(
    "stall",
    stall,
    "max over i of (read_at[i+1] - read_at[i]) [s]",
    "Longest gap in an answer; undefined with a single read.",
)
_sent(
    "queue_wait",
    span("scheduled_at", "ready_at"),
    "ready_at - scheduled_at [s]",
    "Wait for a free slot under a cap or for the previous turn; not caused by the load generator.",
)
_sent(
    "send_delay",
    send_delay,
    "sent_at - ready_at - connect - tls - retry [s]",
    "Lateness of the load generator: from when the request could be sent until it was, without connecting.",
)
_sent(
    "connect",
    spent("connect_ns"),
    "connect [s]",
    "Time to open the connection; undefined if an open one was reused.",
)
_sent("tls", spent("tls_ns"), "tls [s]", "Time of the TLS handshake; undefined if there was none.")
_answered(
    "input_tokens",
    amount("input_tokens"),
    "usage.prompt_tokens [tokens]",
    "Prompt tokens as counted by the server.",
)
_answered(
    "output_tokens",
    amount("output_tokens"),
    "n = usage.completion_tokens, else sum of read_tokens [tokens]",
    "Output tokens: the server's count, else the tokens in the reads; never the requested length.",
)
_answered(
    "cached_tokens",
    amount("cached_tokens"),
    "usage.prompt_tokens_details.cached_tokens [tokens]",
    "Prompt tokens that came from the server's prefix cache.",
)
_answered(
    "reasoning_tokens",
    amount("reasoning_tokens"),
    "usage.completion_tokens_details.reasoning_tokens [tokens]",
    "Reasoning tokens of the answer, as counted by the server.",
)
_answered(
    "user_speed",
    user_speed,
    "1 / tpot [tokens/s]",
    "Tokens per second that one user sees after the first token.",
)
_session(
    "session_time",
    "ended_at of the last turn - scheduled_at of the first [s]",
    "Total time of a session whose turns were all answered, including think time.",
)
_session(
    "session_last_answer",
    "last_at of the last turn - scheduled_at of the first [s]",
    "Time from a session's start to the last token of its last answer.",
)
_session("session_turns", "count of answered turns [turns]", "Turns of a session that were answered.")
# The headline of these four is over the window if that is 20 mean stays long, else over the span from the first request
# sent to the last token.
_scalar(
    "request_rate",
    "answers with ended_at in the window / window, or answers / span [1/s]",
    "Request throughput: answers completed per second of the window, or from the first request to the last token.",
)
_scalar(
    "input_rate",
    "sum of input tokens with first_at in the window / window, or all / span [tokens/s]",
    "Prompt tokens processed per second: a prompt counts when its first output token arrives.",
)
_scalar(
    "output_rate",
    "sum of read_tokens with read_at in the window / window, or all / span [tokens/s]",
    "Output token throughput: tokens that arrived per second of the window, or from first request to last token.",
)
_scalar("total_rate", "input_rate + output_rate [tokens/s]", "Prompt and output tokens per second.")
_scalar(
    "offered_rate",
    "requests with scheduled_at in the window / window [1/s]",
    "Requests offered per second of the window, whatever their outcome.",
)
_scalar(
    "concurrency",
    "integral of requests in flight (sent_at..ended_at) / window [requests]",
    "Mean number of requests in flight over the window.",
)
_scalar(
    "goodput",
    "requests scheduled in the window that met every limit / window [1/s]",
    "Requests per second that met every limit; a failed request misses, an undefined measure is counted separately.",
)
_scalar("goodput_share", "met / (met + missed) [share]", "Share of requests that met every limit.")
_scalar(
    "failure_rate",
    "failed / (answered + failed) [share]",
    "Share of the window's requests that failed; cancelled, unfinished and our own ones are not among them.",
)
_scalar(
    "stall_share",
    "answers with stall > limit / answers with a gap [share]",
    "Share of answers with a gap over the limit on icl or stall (without one: over 1 s).",
)
_scalar(
    "structure_valid",
    "valid / (valid + invalid) [share]",
    "Share of complete answers that have the requested structure: JSON by a schema, a regular expression, a choice.",
)


# -- tables for other libraries ----------------------------------------------------------------------------------------

# Records as tables for other libraries: one row per request, with the raw instants and its measures in seconds.

Table = Any  # pyarrow.Table


def to_arrow(records: Records) -> Table:
    """All fields of the records, then a column for every per-request measure, in order of the schedule. Undefined
    values are null, as are measures of answers if the request was not answered."""
    import pyarrow as pa

    answers = Answers.of(records)
    table = records_table(answers.records)
    for name in measure_columns():
        values = request_values(name, answers)
        if REGISTRY[name].kind == "answered":
            values = np.where(answers.ok, values, np.nan)
        table = table.append_column(name, pa.array(values, mask=np.isnan(values)))
    return table


def measure_columns() -> list[str]:
    """Measures with a value per request, except those that are already a field of the record."""
    return [name for name, measure in REGISTRY.items() if measure.per_request is not None and name not in SCALARS]


def to_pandas(records: Records) -> Any:
    try:
        import pandas  # noqa: F401 - only whether it is there
    except ImportError:
        raise InferometerError("records as a pandas table need pandas", "pip install pandas") from None
    return to_arrow(records).to_pandas()


def to_polars(records: Records) -> Any:
    try:
        import polars
    except ImportError:
        raise InferometerError("records as a polars table need polars", "pip install polars") from None
    return polars.from_arrow(to_arrow(records))
