"""Counters and histograms of servers over a run: how much they grew, where they began anew, pooled over replicas."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from inferometer.measure.telemetry import SERVER
from inferometer.record.columns import Floats, Ints
from inferometer.record.sample import Samples

FAR = np.iinfo(np.int64).max

Labels = dict[str, str]
Part = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """The values that one thing of one source had, in order of time."""

    source: str
    name: str
    labels: Labels
    at: Ints
    value: Floats
    late: bool = False  # its source was read before it was there: counters appear with their first count


def all_series(samples: Samples, sources: Sequence[str]) -> list[Series]:
    """Every series of the sources, one per name and labels."""
    chosen = np.flatnonzero(samples.source.mask(*sources))
    if not len(chosen):
        return []
    columns = (samples.source, samples.name, samples.labels)
    codes = np.stack([words.codes[chosen] for words in columns])
    order = np.lexsort((samples.at[chosen], *codes))
    edges = np.flatnonzero(np.any(np.diff(codes[:, order], axis=1), axis=0)) + 1
    first_at = {source: int(samples.at[samples.source.mask(source)].min(initial=FAR)) for source in sources}
    return [_series(samples, chosen[part], first_at) for part in np.split(order, edges)]


def _series(samples: Samples, rows: Ints, first_at: dict[str, int]) -> Series:
    first = samples.sample(int(rows[0]))
    late = first.at > first_at[first.source]
    return Series(first.source, first.name, first.labels, samples.at[rows], samples.value[rows], late)


def growth(values: Floats) -> tuple[float, int]:
    """How much a counter grew, and how often it began anew: after that it counts from 0."""
    steps = np.diff(values)
    resets = steps < 0
    return float(steps[~resets].sum() + values[1:][resets].sum()), int(resets.sum())


@dataclass(slots=True)
class Pooled:
    """A counter, or a part of a histogram, of all replicas together."""

    grown: float = 0.0
    resets: int = 0
    by_source: dict[str, float] = field(default_factory=dict)

    def add(self, source: str, grown: float, resets: int) -> None:
        self.grown += grown
        self.resets += resets
        self.by_source[source] = self.by_source.get(source, 0.0) + grown


def pooled(series: Sequence[Series], name: str, without: Sequence[str] = ()) -> Pooled | None:
    """The growth of a name over all replicas, without series of some finish reasons; None where nobody has it. A series
    that was not there before the load began at 0."""
    chosen = [each for each in series if each.name == name and each.labels.get("finished_reason") not in without]
    if not chosen:
        return None
    total = Pooled()
    for each in chosen:
        late = each.late and each.name != "process_started"
        values = np.concatenate(([0.0], each.value)) if late else each.value
        total.add(each.source, *growth(values))
    return total


@dataclass(frozen=True, slots=True)
class Histogram:
    """What was observed between two scrapes: `counts[i]` values are at most `bounds[i]`, cumulative."""

    count: float
    total: float
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None

    def quantile(self, share: float) -> tuple[float | None, tuple[float, float | None]] | None:
        """(estimate, bounds of its bucket). The buckets tell only the bounds; the estimate lies between them as if the
        values were spread evenly, and is None in the last bucket, which has no end."""
        if not self.counts or self.counts[-1] <= 0:
            return None
        rank = share * self.counts[-1]
        at = next(i for i, reached in enumerate(self.counts) if reached >= rank)
        low, high = (self.bounds[at - 1] if at else 0.0), self.bounds[at]
        if math.isinf(high):
            return None, (low, None)
        before = self.counts[at - 1] if at else 0.0
        inside = self.counts[at] - before
        return low + (high - low) * ((rank - before) / inside if inside else 1.0), (low, high)


def histogram(series: Sequence[Series], name: str) -> Histogram | None:
    """A histogram of all replicas together: sum of sums by sum of counts, buckets at the bounds that all have."""
    assert SERVER[name].kind == "histogram"
    total, count = pooled(series, f"{name}_sum"), pooled(series, f"{name}_count")
    if total is None or count is None:
        return None
    grown = None if total.resets or count.resets else _buckets(series, name)
    if not grown:  # after a restart the buckets before it are lost
        return Histogram(count.grown, total.grown)
    bounds = tuple(sorted(grown))
    counts = tuple(grown[bound] for bound in bounds)
    honest = counts[-1] == count.grown and all(before <= after for before, after in pairwise(counts))
    return Histogram(count.grown, total.grown, bounds, counts) if honest else Histogram(count.grown, total.grown)


def _buckets(series: Sequence[Series], name: str) -> dict[float, float]:
    """Growth by bound. Cumulative counts can be added at any bound that every part has."""
    new = {_part(each) for each in series if each.name == f"{name}_count" and each.late}
    parts: dict[Part, dict[float, float]] = {}
    for each in series:
        bound = _bound(each.labels.get("le")) if each.name == f"{name}_bucket" else None
        if bound is None:
            continue
        if _part(each) in new:  # observed for the first time during the load
            parts.setdefault(_part(each), {})[bound] = float(each.value[-1])
        elif not each.late and len(each.value) > 1:  # seen before and after
            parts.setdefault(_part(each), {})[bound] = float(each.value[-1] - each.value[0])
    if not parts:
        return {}
    common = set.intersection(*(set(part) for part in parts.values()))
    return {bound: sum(part[bound] for part in parts.values()) for bound in common}


def _part(each: Series) -> Part:
    """What a histogram is one of: a source, and labels other than the bound."""
    return each.source, tuple(sorted(item for item in each.labels.items() if item[0] != "le"))


def _bound(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
