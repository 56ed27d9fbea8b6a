"""Our records under other tools' definitions, one module per tool. A `Tool` describes what a tool reports and how: a
table of `Definition`s over `SeenRequests`, the data that tool would have had, with the tool's own method for
quantiles."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np

from inferometer.errors import PlanError
from inferometer.measure.inputs import Answers, numbers, seconds_between
from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.tally import Tally, Values
from inferometer.measure.values import Quantity, quantities
from inferometer.record.columns import Reads, Records, known
from inferometer.record.summary import Summary
from inferometer.vocabulary import NANOSECONDS, attribute_at

# -- seen ------------------------------------------------------------------------------------------------------------

_OFTEN_USED = (0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.99, 0.999)  # quantiles that are computed in one go


@dataclass(frozen=True, eq=False, slots=True)
class SeenRequests:
    """All requests after the warm-up and, separately, those that succeeded; failed or cut-off ones do not count as
    successes."""

    every: Answers
    good: Answers
    api: str  # as in a plan: "completions", "chat", ...
    duration_s: float  # from the first scheduled request to the last end, draining included
    gap_s: float = 0.0  # the mean gap of an open loop, if the duration starts with the first request
    on_one_clock: bool = True  # else the send times are unknown, and no overlap can be computed

    @classmethod
    def of(
        cls,
        records: Records,
        api: str = "completions",
        begin_at: int | None = None,
        duration_s: float | None = None,
        gap_s: float = 0.0,
        *,
        on_one_clock: bool = True,
    ) -> Self:
        """`begin_at` is the end of the warm-up, `duration_s` the length of the run if it is known more exactly."""
        if begin_at is not None:
            records = records.take(records.scheduled_at >= begin_at)
        every = Answers.of(records)
        good = Answers.of(every.records.take(every.ok & known(every.records.sent_at)))
        if duration_s is not None:
            return cls(every, good, api, duration_s, on_one_clock=on_one_clock)
        return cls(every, good, api, _length_s(every), gap_s, on_one_clock)


@dataclass(frozen=True, eq=False, slots=True)
class WeightedValues:
    """Values with their weights (None: all 1), without the undefined ones."""

    values: Floats
    weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def least(self) -> float:
        return float(self.values.min())

    @property
    def largest(self) -> float:
        return float(self.values.max())


def _length_s(answers: Answers) -> float:
    if not len(answers):
        return 0.0
    last_at = max(int(answers.records.ended_at.max()), int(answers.records.scheduled_at.max()))
    return (last_at - int(answers.records.scheduled_at.min())) / NANOSECONDS


def defined(values: Floats) -> WeightedValues:
    return WeightedValues(values[~np.isnan(values)])


def weighted(values: Floats, weights: Floats) -> WeightedValues:
    there = ~np.isnan(values) & ~np.isnan(weights) & (weights > 0)
    return WeightedValues(values[there], weights[there])


def posted_at(answers: Answers) -> Ints:
    """When a client calls its HTTP library: the time to connect comes after that."""
    records = answers.records
    return records.sent_at - records.connect_ns - records.tls_ns - records.retry_ns


def output_lengths(answers: Answers) -> Floats:
    """Tokens of each answer: the server's usage, else the tokens in its reads."""
    return numbers(answers.output_tokens)


def input_lengths(answers: Answers) -> Floats:
    """Tokens of each prompt: the server's usage, else the requested length."""
    records = answers.records
    return numbers(np.where(known(records.input_tokens), records.input_tokens, records.requested_input))


def to_first(answers: Answers, start_at: Ints) -> Floats:
    return seconds_between(start_at, answers.first_at)


def posted_to_first(seen: SeenRequests) -> Floats:
    return to_first(seen.good, posted_at(seen.good))


def to_last(answers: Answers, start_at: Ints) -> Floats:
    return seconds_between(start_at, answers.last_at)


def to_end(answers: Answers, start_at: Ints) -> Floats:
    return seconds_between(start_at, answers.records.ended_at)


def per_token_after_first(length_s: Floats, first_s: Floats, tokens: Floats) -> Floats:
    """(latency - TTFT) / (n - 1), undefined with a single token."""
    return (length_s - first_s) / np.where(tokens > 1, tokens - 1, np.nan)


def messages(answers: Answers, reads: Reads) -> Ints:
    """How many messages each read held: one per token if the answer has enough events for that, else one. A record
    keeps when tokens arrived, not how they were packed into events."""
    one_per_token = (answers.records.events >= answers.read_tokens)[reads.owner]
    return np.where(np.repeat(one_per_token, reads.counts()), np.maximum(reads.tokens, 1), 1)


def gaps_between_messages(answers: Answers) -> WeightedValues | Tally:
    """The gaps seen by a client that timestamps each message as it is parsed: messages in the same read follow at once,
    and count as gaps of 0."""
    return gaps_with_zeros(answers, lambda reads: messages(answers, reads))


def gaps_with_zeros(answers: Answers, stamps: Callable[[Reads], Ints]) -> WeightedValues | Tally:
    """The gaps between reads, plus a gap of 0 for every timestamp after the first of the same read."""
    batches = answers.records.read_batches(None, ("read_at", "read_tokens"))
    at_once = sum(int(stamps(reads).sum()) for reads in batches) - int(answers.records.read_offsets[-1])
    return _gap_lengths(answers, max(at_once, 0))


def gap_lengths(answers: Answers) -> WeightedValues | Tally:
    return _gap_lengths(answers, 0)


def _gap_lengths(answers: Answers, zeros: int) -> WeightedValues | Tally:
    if answers.records.held:
        return WeightedValues(np.concatenate((answers.gaps.length_s, np.zeros(zeros))))

    def values() -> Iterator[Values]:
        for gaps in answers.gap_batches(np.ones(len(answers), np.bool_)):
            yield Values(gaps.length_s)
        if zeros:
            yield Values(np.zeros(1), np.array([zeros]))

    tally = Tally(values)
    tally.keep_near(_OFTEN_USED)
    return tally


def busiest_second(answers: Answers) -> float | None:
    """The most messages in one of the seconds counted from the first request."""
    if not len(answers) or not answers.records.read_offsets[-1]:
        return None
    start_at, by_second = posted_at(answers).min(), np.zeros(0, np.float64)
    for reads in answers.records.read_batches(None, ("read_at", "read_tokens")):
        second = np.maximum((reads.at - start_at) // NANOSECONDS, 0)
        counts = np.bincount(second, messages(answers, reads), len(by_second)).astype(np.float64, copy=False)
        counts[: len(by_second)] += by_second
        by_second = counts
    return float(by_second.max())


def most_in_a_second(answers: Answers, end_at: Ints) -> float | None:
    """The most requests active at any time within one second: this counts more than were ever in flight at the same
    time."""
    if not len(answers):
        return None
    start_at = posted_at(answers)
    first = (start_at - start_at.min()) // NANOSECONDS
    last = np.maximum((np.where(known(end_at), end_at, start_at) - start_at.min()) // NANOSECONDS, first)
    steps = np.zeros(int(last.max()) + 2)
    np.add.at(steps, first, 1)
    np.add.at(steps, last + 1, -1)
    return float(np.cumsum(steps).max())


def total(values: Floats) -> float:
    return float(np.nansum(values))


def per_second(amount: float, duration_s: float) -> float | None:
    return amount / duration_s if duration_s > 0 else None


# -- definition ------------------------------------------------------------------------------------------------------

MS = 1000.0
MEDIANS_AND_TAILS = {"mean": None, "median": 0.5, "std": None, "p90": 0.9, "p95": 0.95, "p99": 0.99}
Some = WeightedValues | Tally  # a tally if the reads are not held in memory
Quantile = Callable[[Some, float], float]  # of a non-empty series, and a share below 1


@dataclass(frozen=True, slots=True)
class RequestSpread:
    """A number with one value per request (or gap); its statistics are reported."""

    name: str  # the name that the tool's users know
    field: str  # the path of its statistics in the tool's result, {} for the statistic
    ours: str | None  # our measure that is nearest to it
    definition: str
    why: str  # why it differs from ours
    series: Callable[[SeenRequests], Some]
    unit: str = "s"
    scale: float = 1.0  # of its field relative to the unit: 1000 if the tool writes milliseconds


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with a single value for the whole run."""

    name: str
    field: str
    ours: str | None
    definition: str
    why: str
    value: Callable[[SeenRequests], float | None]
    unit: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as its users know it. `statistics` maps each of its names for a statistic to the share of a quantile, or
    to None for `mean` and the like."""

    name: str
    title: str
    source: str  # the source of the definitions
    remark: str  # a remark that applies to all of its numbers
    spreads: tuple[RequestSpread, ...]
    figures: tuple[Figure, ...]
    statistics: Mapping[str, float | None]
    quantile: Quantile


def per_request(
    name: str,
    field: str,
    ours: str,
    definition: str,
    why: str,
    value: Callable[[SeenRequests], Floats],
    scale: float = MS,
) -> RequestSpread:
    """A time per request; requests that have none are left out."""
    return RequestSpread(name, field, ours, definition, why, lambda seen: defined(value(seen)), scale=scale)


REQUEST_THROUGHPUT = Figure(
    *("requests per second", "request_throughput", "request_rate"),
    "successful requests / time from the start of the run to its last end",
    "the time includes the drain; Inferometer counts requests that ended inside the window",
    lambda seen: per_second(len(seen.good), seen.duration_s),
    "1/s",
)


def linear(series: Some, share: float) -> float:
    """numpy's default: linear interpolation between two order statistics."""
    if isinstance(series, WeightedValues):
        return float(np.percentile(series.values, 100 * share))
    place = (series.total - 1) * (100 * share / 100)
    below = math.floor(place)
    low, high = series.ranked(below + 1), series.ranked(min(below + 2, int(series.total)))
    part = place - below
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def by_weight(series: Some, share: float) -> float:
    """The smallest value at which the cumulative share of the weights reaches the requested one."""
    assert isinstance(series, WeightedValues), "one value per request"
    order = np.argsort(series.values, kind="stable")
    running = np.cumsum(_weights(series)[order])
    at = int(np.searchsorted(running / running[-1], share, side="left"))
    return float(series.values[order][min(at, len(order) - 1)])


def by_index(series: Some, share: float) -> float:
    """The value at index n * share of the sorted ones, truncated to a whole number."""
    assert isinstance(series, WeightedValues), "one value per request"
    return float(np.sort(series.values)[int(len(series.values) * share)])


def statistic(series: Some, name: str, share: float | None, quantile: Quantile) -> float | None:
    """One statistic by the tool's own name for it; None without values, even if the tool reports something then."""
    if not len(series):
        return None
    if share is not None:
        return quantile(series, share)
    return _PLAIN[name](series)


def mean(series: Some) -> float:
    if isinstance(series, Tally):
        return series.sum() / series.total
    return float(np.average(series.values, weights=series.weights))


def population_std(series: Some) -> float:
    """Divided by n, not by n - 1."""
    if isinstance(series, Tally):
        return math.sqrt(series.squares_around(mean(series)) / series.total)
    return float(np.sqrt(np.average((series.values - mean(series)) ** 2, weights=series.weights)))


def _weights(series: WeightedValues) -> Floats:
    return np.ones(len(series.values)) if series.weights is None else series.weights


_PLAIN: dict[str, Callable[[Some], float]] = {
    "mean": mean,
    "avg": mean,
    "std": population_std,
    "std_dev": population_std,
    "min": lambda series: series.least,
    "max": lambda series: series.largest,
}


_HERE = "inferometer.measure.rosetta"
TOOLS: dict[str, str] = {
    "vllm": f"{_HERE}.vllm:VLLM",
    "sglang": f"{_HERE}.vllm:SGLANG",
    "guidellm": f"{_HERE}.guidellm:TOOL",
    "inference-perf": f"{_HERE}.inference_perf:TOOL",
    "aiperf": f"{_HERE}.aiperf:TOOL",
    "mlperf": f"{_HERE}.mlperf:TOOL",
}
_OUR_STATISTICS = {"median": "p50", "avg": "mean", "std_dev": "std"}


class TranslatedNumber(msgspec.Struct, frozen=True):
    """What a number of the tool means, and why ours differs."""

    name: str  # the name that the tool's users know
    field: str
    unit: str
    our_measure: str | None
    definition: str
    why: str


class TranslatedMeasure(TranslatedNumber, frozen=True):
    count: int
    theirs: dict[str, float | None]  # by the tool's own names
    ours: dict[str, float | None] | None


class TranslatedValue(TranslatedNumber, frozen=True):
    theirs: float | None
    ours: float | None


class CountedRequests(msgspec.Struct, frozen=True):
    successful: int
    all: int


class Translation(msgspec.Struct, frozen=True):
    """A run under another tool's definitions, in seconds; missing is None. Its JSON is that of `show --as`."""

    tool: str
    title: str
    source: str
    remark: str
    requests: CountedRequests
    duration_s: float
    measures: list[TranslatedMeasure]
    values: list[TranslatedValue]


def tool_named(name: str) -> Tool:
    if name not in TOOLS:
        raise PlanError(f"the definitions of {name!r} are not known", f"there are {', '.join(TOOLS)}")
    tool: Tool = attribute_at(TOOLS[name])
    return tool


def translated(tool: Tool, seen: SeenRequests, summary: Summary) -> Translation:
    """Every number of the tool with ours next to it."""
    ours = quantities(summary)
    return Translation(
        tool=tool.name,
        title=tool.title,
        source=tool.source,
        remark=tool.remark,
        requests=CountedRequests(len(seen.good), len(seen.every)),
        duration_s=seen.duration_s,
        measures=[_spread(tool, number, seen, ours) for number in tool.spreads],
        values=[_figure(number, seen, ours) for number in tool.figures],
    )


def statistics(tool: Tool, spread: RequestSpread, seen: SeenRequests) -> dict[str, float | None]:
    """The statistics by the tool's own names, in seconds."""
    return _statistics(tool, spread.series(seen))


def _statistics(tool: Tool, series: Some) -> dict[str, float | None]:
    return {name: statistic(series, name, share, tool.quantile) for name, share in tool.statistics.items()}


def fields(tool: Tool, seen: SeenRequests) -> dict[str, float | None]:
    """The result under the names and in the units of the tool itself."""
    values: dict[str, float | None] = {}
    for spread in tool.spreads:
        for name, value in statistics(tool, spread, seen).items():
            values[spread.field.format(name)] = None if value is None else value * spread.scale
    return values | {figure.field: figure.value(seen) for figure in tool.figures}


def our_statistic(name: str) -> str:
    """`median` is our `p50`, `99.00` our `p99`."""
    if name[0].isdigit():
        return f"p{float(name):g}"
    return _OUR_STATISTICS.get(name, name)


def _spread(tool: Tool, spread: RequestSpread, seen: SeenRequests, ours: Mapping[str, Quantity]) -> TranslatedMeasure:
    series = spread.series(seen)
    theirs = _statistics(tool, series)
    our_values = {name: _value(ours, f"{spread.ours}.{our_statistic(name)}") for name in theirs} if spread.ours else {}
    count = series.weight if isinstance(series, Tally) else len(series)
    return TranslatedMeasure(*_definition(spread), count, theirs, our_values or None)


def _figure(figure: Figure, seen: SeenRequests, ours: Mapping[str, Quantity]) -> TranslatedValue:
    return TranslatedValue(*_definition(figure), figure.value(seen), _value(ours, figure.ours or ""))


def _definition(number: RequestSpread | Figure) -> tuple[str, str, str, str | None, str, str]:
    return number.name, number.field, number.unit, number.ours, number.definition, number.why


def _value(ours: Mapping[str, Quantity], key: str) -> float | None:
    quantity = ours.get(key)
    return None if quantity is None else quantity.value
