"""Where a run has settled: the warm-up cut off automatically.

MSER-5 (White 1997): of all beginnings that could be left out, the one that makes the standard error of the mean of the
rest least, on means of 5 values each. A beginning beyond half of the run is none: it has not settled yet.
"""

import numpy as np

from inferometer.measure.quantiles import Floats

BATCH = 5
FEWEST = 10  # batches: fewer cannot tell a beginning from chance


def settled_from(values: Floats) -> int | None:
    """The number of the first value that belongs to the settled run; None where it has not settled, or too little is
    known. NaN counts for nothing."""
    batches = _batch_means(values)
    if len(batches) < FEWEST:
        return None
    errors = _standard_errors(batches)
    best = int(errors.argmin())
    return None if best >= len(batches) // 2 else best * BATCH


def _batch_means(values: Floats) -> Floats:
    """Of whole batches, without those that have no value at all."""
    whole = values[: len(values) // BATCH * BATCH].reshape(-1, BATCH)
    there = ~np.isnan(whole)
    counts = there.sum(1)
    sums = np.where(there, whole, 0.0).sum(1)
    means = np.divide(sums, counts, out=np.full(len(whole), np.nan), where=counts > 0)
    return _filled(means)


def _filled(means: Floats) -> Floats:
    """A batch without a value is as the one before it."""
    where = np.where(np.isnan(means), 0, np.arange(len(means)))
    filled: Floats = means[np.maximum.accumulate(where)] if len(means) else means
    return filled[~np.isnan(filled)]


def _standard_errors(batches: Floats) -> Floats:
    """sum (x - mean)^2 / n^2 over the rest, for each number of batches left out up to half (one is looked at beyond,
    so that a minimum at the edge shows)."""
    centred = batches - batches.mean()  # keeps the difference of large numbers small
    n = np.arange(len(batches), 0, -1)
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum(centred[::-1] ** 2)[::-1]
    errors: Floats = np.maximum(squares - sums**2 / n, 0.0) / n.astype(np.float64) ** 2
    return errors[: len(batches) // 2 + 1]
