"""The functions behind the measures: each gives one value per request, NaN where undefined, or one per gap."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferometer.measure.answers import Answers, Gaps, numbers, seconds_between
from inferometer.measure.quantiles import Floats, Ints
from inferometer.vocabulary import NANOSECONDS

Each = Callable[[Answers], Floats]


@dataclass(frozen=True, eq=False, slots=True)
class GapSeries:
    """One value per gap with its weight (None: all 1), when it ended and the index of its request."""

    values: Floats
    weights: Floats | None
    at: Ints
    owner: Ints
    of_tokens: bool = False  # whether the weights are tokens


def span(start: str, end: str) -> Each:
    """The time from one instant to another, by their names."""

    def between(answers: Answers) -> Floats:
        return seconds_between(_column(answers, start), _column(answers, end))

    return between


def amount(name: str) -> Each:
    """A count that each request has, by its name."""

    def counted(answers: Answers) -> Floats:
        return numbers(_column(answers, name))

    return counted


def spent(name: str) -> Each:
    """A span in nanoseconds that is 0 where it was not needed: undefined there."""

    def positive(answers: Answers) -> Floats:
        span_ns = _column(answers, name)
        return np.where(span_ns > 0, span_ns, np.nan) / NANOSECONDS

    return positive


def _column(answers: Answers, name: str) -> Ints:
    """What is derived goes before what is recorded: output tokens are those of the usage or of the reads."""
    derived = name in ("first_at", "last_at", "output_tokens")
    column: Ints = getattr(answers if derived else answers.records, name)
    return column


def tpot(answers: Answers) -> Floats:
    """Undefined with a single read too, whatever the server reports: there is no pace in one instant."""
    length = seconds_between(answers.first_at, answers.last_at)
    after_first = numbers(answers.output_tokens) - numbers(answers.first_tokens)
    return _ratio(length, np.where(answers.records.read_counts() > 1, after_first, np.nan))


def ntpot(answers: Answers) -> Floats:
    return _ratio(seconds_between(answers.records.sent_at, answers.last_at), numbers(answers.output_tokens))


def user_speed(answers: Answers) -> Floats:
    return _ratio(np.ones(len(answers)), tpot(answers))


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below where below is positive, NaN elsewhere."""
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
    """A read whose scaled estimate came to no token has no pace of its own."""
    if gaps.one_token_each:
        return GapSeries(gaps.length_s, None, gaps.ended_at, gaps.owner, of_tokens=True)
    some = gaps.tokens > 0
    if some.all():
        tokens = gaps.tokens.astype(np.float64)
        return GapSeries(gaps.length_s / tokens, tokens, gaps.ended_at, gaps.owner, of_tokens=True)
    tokens = gaps.tokens[some].astype(np.float64)
    return GapSeries(gaps.length_s[some] / tokens, tokens, gaps.ended_at[some], gaps.owner[some], of_tokens=True)
