"""A measure of gaps over chosen requests as a distribution: sorted in memory, or tallied where reads are not held."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from inferometer.measure.answers import Answers, Gaps
from inferometer.measure.quantiles import Distribution, sample
from inferometer.measure.registry import Measure
from inferometer.measure.tally import Tally, Values
from inferometer.record.columns import Mask

_NONE = np.empty(0, np.int64)
_NO_GAPS = Gaps(np.empty(0), _NONE, _NONE, _NONE)


@dataclass(frozen=True, eq=False, slots=True)
class GapValues:
    sample: Distribution
    tokens: int | None  # all weights together, where they are tokens

    def __len__(self) -> int:
        return len(self.sample)


def gap_values(answers: Answers, of: Mask, measure: Measure) -> GapValues:
    assert measure.gaps is not None
    if not answers.records.held:
        tally = gap_tally(answers, of, measure)
        return GapValues(tally, tally.weight if measure.gaps(_NO_GAPS).of_tokens else None)
    series = measure.gaps(answers.gaps)
    values, weights, at = series.values, series.weights, series.at
    if not of.all():
        inside = of[series.owner]
        values, weights, at = values[inside], None if weights is None else weights[inside], at[inside]
    tokens = len(values) if weights is None else int(weights.sum())
    return GapValues(sample(values, weights, at), tokens if series.of_tokens else None)


def gap_tally(answers: Answers, of: Mask, measure: Measure) -> Tally:
    """Of reads that are gone through as often as it takes."""
    return Tally(lambda: gap_batches(answers, of, measure))


def gap_batches(answers: Answers, of: Mask, measure: Measure) -> Iterator[Values]:
    assert measure.gaps is not None
    for series in map(measure.gaps, answers.gap_batches(of)):
        weights = None if series.weights is None else series.weights.astype(np.int64)
        yield Values(series.values, weights, series.at)
