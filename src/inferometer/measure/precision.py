"""How well a number of a run is known, while it runs and when it is over; and where a run has settled, so that its
warm-up can be cut off automatically."""

from typing import Any

import numpy as np

from inferometer.measure.describe import describe
from inferometer.measure.goodput import judged_measure
from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.quantiles import Floats
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.window import class_window
from inferometer.plan.limit import Limit, Precision
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import Records, known
from inferometer.record.summary import PrecisionResult

# -- warmup ----------------------------------------------------------------------------------------------------------

BATCH = 5
FEWEST_TO_SETTLE = 10  # batches: fewer cannot distinguish a beginning from chance


def settled_from(values: Floats) -> int | None:
    """The number of the first value that belongs to the settled run; None where it has not settled, or too little is
    known. NaN counts for nothing."""
    batches = _batch_means(values)
    if len(batches) < FEWEST_TO_SETTLE:
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


# -- precision -------------------------------------------------------------------------------------------------------


def precision_of(answers: Answers, plan: Plan, facts: Facts, traffic: Traffic) -> PrecisionResult | None:
    """What a class's precision came to, given its answers; None where none was requested."""
    precision = traffic.stop.precision
    if precision is None:
        return None
    chosen = class_window(answers, plan, facts, traffic.name).holds(answers.records.scheduled_at)
    measure = measure_of(precision, traffic)
    named = [] if precision.stat == "mean" else [Limit(measure=measure, stat=precision.stat, value=0.0)]
    measured = describe(answers, chosen, REGISTRY[measure], named, plan.confidence)
    value, interval = measured[precision.stat], measured.interval(precision.stat)
    within = _half_width(value, *interval)
    return PrecisionResult(
        requested=str(precision),
        measure=measure,
        stat=precision.stat,
        value=value,
        interval=interval,
        within=within,
        met=within is not None and within <= precision.within,
    )


def measure_of(precision: Precision, traffic: Traffic) -> str:
    """In an open loop a latency counts from when the request was due, as everywhere."""
    return judged_measure(precision.measure, traffic.load.open_loop)


def settled_at(answers: Answers, traffic: Traffic) -> int | None:
    """When a class has settled, by the measure that is to be known: the instant its first settled request was due."""
    precision, records = traffic.stop.precision, answers.records
    if precision is None or not len(records):
        return None
    order = np.argsort(records.scheduled_at, kind="stable")
    values = _per_request(answers, measure_of(precision, traffic))[order]
    first = settled_from(np.where(answers.ok[order], values, np.nan))
    return None if first is None else int(records.scheduled_at[order[first]])


def _per_request(answers: Answers, name: str) -> Any:
    """Gaps belong to no request: a request's mean gap has to do."""
    return request_values(name if REGISTRY[name].per_request is not None else "tpot", answers)


def decided(records: Records) -> Records:
    """Of a run under way, the records that do not depend on what is still in flight: those due before the longest
    answer so far would have begun. Later ones are there only if they were quick."""
    done = known(records.ended_at)
    if not done.any():
        return records.take(np.zeros(len(records), np.bool_))
    longest = int((records.ended_at[done] - records.scheduled_at[done]).max())
    return records.take(records.scheduled_at <= int(records.ended_at[done].max()) - longest)


def _half_width(value: float | None, low: float | None, high: float | None) -> float | None:
    if value is None or low is None or high is None or value <= 0:
        return None
    return (high - low) / 2 / value
