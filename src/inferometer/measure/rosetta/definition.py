"""What a tool reports and how: a `Tool` is a table of `Definition`s with a way of its own to take quantiles."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from inferometer.measure.quantiles import Floats
from inferometer.measure.rosetta.seen import Seen, Series, defined, per_second
from inferometer.measure.tally import Tally

MS = 1000.0
MEDIANS_AND_TAILS = {"mean": None, "median": 0.5, "std": None, "p90": 0.9, "p95": 0.95, "p99": 0.99}
Some = Series | Tally  # of reads that are not held in memory, a tally
Quantile = Callable[[Some, float], float]  # of a series that is not empty, and a share below 1


@dataclass(frozen=True, slots=True)
class Spread:
    """A number that every request (or gap) has; its statistics are reported."""

    name: str  # as the tool's users call it
    field: str  # where its statistics stand in the tool's result, {} for the statistic
    ours: str | None  # our measure that is nearest to it
    definition: str
    why: str  # why it differs from ours
    series: Callable[[Seen], Some]
    unit: str = "s"
    scale: float = 1.0  # of its field against the unit: 1000 where the tool writes milliseconds


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that the whole run has one of."""

    name: str
    field: str
    ours: str | None
    definition: str
    why: str
    value: Callable[[Seen], float | None]
    unit: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as its users know it. `statistics` gives for each of its own words the share of a quantile, or None for
    `mean` and the like."""

    name: str
    title: str
    source: str  # where the definitions were read
    remark: str  # what holds for all of its numbers
    spreads: tuple[Spread, ...]
    figures: tuple[Figure, ...]
    statistics: Mapping[str, float | None]
    quantile: Quantile


def of_each(
    name: str, field: str, ours: str, definition: str, why: str, value: Callable[[Seen], Floats], scale: float = MS
) -> Spread:
    """A time that every request has, or has not: those that have none are left out."""
    return Spread(name, field, ours, definition, why, lambda seen: defined(value(seen)), scale=scale)


REQUEST_THROUGHPUT = Figure(
    *("requests per second", "request_throughput", "request_rate"),
    "successful requests / time from the start of the run to its last end",
    "the drain is in the time; ours counts what ended inside the window",
    lambda seen: per_second(len(seen.good), seen.duration_s),
    "1/s",
)


def linear(series: Some, share: float) -> float:
    """numpy's default: between two order statistics on a straight line."""
    if isinstance(series, Series):
        return float(np.percentile(series.values, 100 * share))
    place = (series.total - 1) * (100 * share / 100)
    below = math.floor(place)
    low, high = series.ranked(below + 1), series.ranked(min(below + 2, int(series.total)))
    part = place - below
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def by_weight(series: Some, share: float) -> float:
    """The smallest value at which the running share of the weights reaches the one asked for."""
    assert isinstance(series, Series), "one value per request"
    order = np.argsort(series.values, kind="stable")
    running = np.cumsum(_weights(series)[order])
    at = int(np.searchsorted(running / running[-1], share, side="left"))
    return float(series.values[order][min(at, len(order) - 1)])


def by_index(series: Some, share: float) -> float:
    """The value at index n * share of the sorted ones, cut to a whole number."""
    assert isinstance(series, Series), "one value per request"
    return float(np.sort(series.values)[int(len(series.values) * share)])


def statistic(series: Some, word: str, share: float | None, quantile: Quantile) -> float | None:
    """One statistic by the tool's own word for it; None without values, whatever the tool writes then."""
    if not len(series):
        return None
    if share is not None:
        return quantile(series, share)
    return _PLAIN[word](series)


def mean(series: Some) -> float:
    if isinstance(series, Tally):
        return series.sum() / series.total
    return float(np.average(series.values, weights=series.weights))


def population_std(series: Some) -> float:
    """Divided by n, not by n - 1."""
    if isinstance(series, Tally):
        return math.sqrt(series.squares_around(mean(series)) / series.total)
    return float(np.sqrt(np.average((series.values - mean(series)) ** 2, weights=series.weights)))


def _weights(series: Series) -> Floats:
    return np.ones(len(series.values)) if series.weights is None else series.weights


_PLAIN: dict[str, Callable[[Some], float]] = {
    "mean": mean,
    "avg": mean,
    "std": population_std,
    "std_dev": population_std,
    "min": lambda series: series.least,
    "max": lambda series: series.largest,
}
