"""Strategies compared over seeds: the same seeds for all of them, so that differences are taken seed by seed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inferometer.measure.distributions import t_quantile
from inferometer.vocabulary.formats import change_text

CONFIDENCE = 0.95
NOTHING_SHOWN = "no difference shown"


@dataclass(frozen=True, slots=True)
class PairedChange:
    """How much a number of one strategy differs from another's, as share of it: mean over seeds and interval."""

    change: float
    low: float
    high: float
    seeds: int

    @property
    def is_shown(self) -> bool:
        """Whether the interval excludes no change at all."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if not self.is_shown:
            return f"{NOTHING_SHOWN} ({change_text(self.low)} to {change_text(self.high)})"
        return f"{change_text(self.change)} ({change_text(self.low)} to {change_text(self.high)})"


def paired_change(
    before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE
) -> PairedChange | None:
    """The geometric mean of after / before over the seeds, less 1, with Student's t on the logarithms; None with fewer
    than two seeds, or where a value is not above 0.

    Ratios are taken within a seed: what its tape costs all strategies alike cancels.
    """
    old, new = np.asarray(before, float), np.asarray(after, float)
    if len(old) != len(new):
        raise ValueError("both strategies need the same seeds")
    if len(old) < 2 or not all(np.isfinite(values).all() and (values > 0).all() for values in (old, new)):
        return None
    ratios = np.log(new / old)
    mean, error = float(ratios.mean()), float(ratios.std(ddof=1)) / len(ratios) ** 0.5
    half = t_quantile(0.5 + confidence / 2, len(ratios) - 1) * error
    change, low, high = (float(np.expm1(value)) for value in (mean, mean - half, mean + half))
    return PairedChange(change, low, high, len(ratios))


@dataclass(frozen=True, slots=True)
class Winner:
    """The strategy with the lowest mean, and those that it is not shown to be better than."""

    best: str
    ties: tuple[str, ...]

    def __str__(self) -> str:
        return self.best if not self.ties else f"{self.best} ({NOTHING_SHOWN}: {', '.join(self.ties)})"


def winner(values: Mapping[str, Sequence[float]], confidence: float = CONFIDENCE) -> Winner:
    """Of strategies by their numbers over the same seeds, lower is better. With k strategies every comparison is made
    at a level of (1 - confidence) / (k - 1), so that all of them together hold."""
    best = min(values, key=lambda name: float(np.mean(values[name])))
    others = [name for name in values if name != best]
    level = 1 - (1 - confidence) / max(len(others), 1)
    changes = {name: paired_change(values[best], values[name], level) for name in others}
    ties = [name for name, change in changes.items() if change is None or change.low <= 0]
    return Winner(best, tuple(sorted(ties, key=lambda name: float(np.mean(values[name])))))
