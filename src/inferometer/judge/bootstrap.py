"""The noise that the requests of a run make in its numbers: consecutive requests are drawn again in blocks, because a
slow second is slow for all of them.

A statistic is a function from draws, how often each block was drawn (one row per resample), to its value in each
resample. Two runs of one tape get the same draws for the same requests: what the tape does to both cancels.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from inferometer.measure.quantiles import Floats, Ints

RESAMPLES = 200  # the standard error of a standard error is then 5%
MOST_BINS = 2048  # distinct ranks that a resampled quantile is looked up in

Statistic = Callable[[Floats], Floats]


@lru_cache(maxsize=16)  # measures of the same requests are drawn alike
def draws(blocks: int, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """How often each block is drawn, `blocks` in all in each resample."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(blocks, np.full(blocks, 1 / blocks), resamples).astype(np.float64)


def quantile_of(values: Floats, block: Ints, blocks: int, q: float, weights: Floats | None = None) -> Statistic:
    """A quantile of values that each lie in a block; as an order statistic, of at most 2,048 ranks."""
    order = np.argsort(values, kind="stable")
    bins = min(len(values), MOST_BINS)
    bin_of = np.arange(len(values)) * bins // max(len(values), 1)
    cell = block[order] * bins + bin_of
    table = np.bincount(cell, None if weights is None else weights[order], blocks * bins).reshape(blocks, bins)
    last = np.searchsorted(bin_of, np.arange(bins), side="right") - 1
    top = values[order][last]

    def resampled(drawn: Floats) -> Floats:
        running = (drawn @ table).cumsum(axis=1)
        reached = running >= q * running[:, -1:] * (1 - 1e-12)
        found: Floats = top[reached.argmax(axis=1)]
        return found

    return resampled


def mean_of(values: Floats, block: Ints, blocks: int, weights: Floats | None = None) -> Statistic:
    amounts = values if weights is None else values * weights
    above, below = np.bincount(block, amounts, blocks), np.bincount(block, weights, blocks)
    return ratio_of(above.astype(np.float64), below.astype(np.float64))


def ratio_of(above: Floats, below: Floats) -> Statistic:
    """The sum of one thing over the sum of another, both by block: means, shares and rates."""

    def resampled(drawn: Floats) -> Floats:
        bottom = drawn @ below
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Floats = np.where(bottom > 0, (drawn @ above) / bottom, np.nan)
        return found

    return resampled


def variance(values: Floats, is_ratio: bool) -> float | None:
    """Of resampled values, of their logarithms where ratios are compared; None where too few are defined."""
    fine = values[np.isfinite(values) & (values > 0)] if is_ratio else values[np.isfinite(values)]
    if len(fine) < max(2, len(values) // 2):
        return None
    return float(np.var(np.log(fine) if is_ratio else fine, ddof=1))


def difference_variance(before: Floats, after: Floats, is_ratio: bool) -> float | None:
    """Of after - before over the same draws."""
    fine = np.isfinite(before) & np.isfinite(after)
    if is_ratio:
        fine &= (before > 0) & (after > 0)
        before, after = np.log(before[fine]), np.log(after[fine])
    else:
        before, after = before[fine], after[fine]
    return float(np.var(after - before, ddof=1)) if len(before) >= max(2, len(fine) // 2) else None
