"""Fewer points that look the same: quantile grids, extremes per pixel, samples that keep their ends."""

from itertools import pairwise

import numpy as np

from inferometer.record.columns import Floats, Ints

PIXELS = 400  # columns of a chart that can be told apart, two values each


def quantile_grid(values: Floats, weights: Floats | None = None, most: int = 200) -> tuple[Floats, Floats]:
    """Shares and values of a distribution: even steps, and finer ones toward the tail, as far as there are values."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    mass = np.ones(len(ordered)) if weights is None else weights[order]
    upto = np.cumsum(mass) / mass.sum()
    tail = 1 - np.geomspace(0.05, max(1e-5, 1 / (len(ordered) + 1)), most // 4)
    shares = np.unique(np.concatenate((np.linspace(0, 1, most - len(tail)), tail)))
    at = np.minimum(np.searchsorted(upto, shares - 1e-12), len(ordered) - 1)
    return shares, ordered[at]


def thinned(at: Ints, values: Floats, most: int = PIXELS) -> tuple[Ints, Floats]:
    """The least and the largest value of each pixel, in the order in which they came: no spike is lost."""
    if len(at) <= 2 * most:
        return at, values
    edges = np.linspace(0, len(at), most + 1).astype(np.int64)
    chosen: list[int] = []
    for start, end in pairwise(edges.tolist()):
        part = values[start:end]
        chosen += sorted({int(start + part.argmin()), int(start + part.argmax())})
    index = np.array(chosen, np.int64)
    return at[index], values[index]


def sampled(values: Floats, most: int) -> Ints:
    """Indices of at most so many values: every k-th by place, and always the largest few."""
    n = len(values)
    if n <= most:
        return np.arange(n)
    few = max(1, most // 20)
    largest = np.argpartition(values, n - few)[n - few :]
    even = np.linspace(0, n - 1, most - few).astype(np.int64)
    return np.unique(np.concatenate((even, largest)))
