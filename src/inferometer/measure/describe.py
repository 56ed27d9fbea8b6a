"""Describes one measure over one set of requests as plain data: count, mean, spread, quantiles, their intervals,
failures."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from inferometer.measure import quantiles
from inferometer.measure.inputs import Answers
from inferometer.measure.quantiles import Distribution, Floats
from inferometer.measure.registry import REGISTRY, Measure
from inferometer.measure.tally import Tally, gap_values
from inferometer.plan.limit import Limit
from inferometer.record.columns import Mask
from inferometer.record.summary import Adjusted, Ends, MeasureSummary

ALWAYS = ("p50", "p90", "p95", "p99")
WHEN_KNOWN = ("p99.9",)


def share_of(quantile: str) -> float:
    """`p99.9` as 0.999."""
    return float(quantile[1:]) / 100


def named_quantiles(limits: Iterable[Limit], measure: str) -> tuple[str, ...]:
    """The quantiles that limits name for a measure; a limit on one may be judged on its scheduled counterpart."""
    plain = measure.removesuffix("_scheduled")
    named = {limit.stat for limit in limits if limit.measure in (measure, plain) and limit.stat}
    return tuple(sorted((stat for stat in named if stat[0] == "p"), key=share_of))


def describe_all(answers: Answers, chosen: Mask, limits: list[Limit], confidence: float) -> dict[str, MeasureSummary]:
    """Every measure of a set of requests, by its name."""
    summaries: dict[str, MeasureSummary] = {}
    for name in per_request_names():
        if name == "icl" and "itl" in summaries and _alike(answers, limits):
            summaries[name] = replace(summaries["itl"], tokens=None)
        else:
            summaries[name] = describe(answers, chosen, REGISTRY[name], limits, confidence)
    return summaries


def _alike(answers: Answers, limits: list[Limit]) -> bool:
    """Whether ITL equals ICL, gap by gap, because each read carried one token. Millions of gaps are then sorted only
    once."""
    return named_quantiles(limits, "itl") == named_quantiles(limits, "icl") and answers.one_token_each


def describe(
    answers: Answers, chosen: Mask, measure: Measure, limits: list[Limit], confidence: float
) -> MeasureSummary:
    """The measure over the chosen requests: over the answered ones, or over all that were sent if it concerns our
    sending."""
    requested = tuple(dict.fromkeys((*ALWAYS, *named_quantiles(limits, measure.name.name))))
    if measure.gaps is not None:
        return _described_gaps(answers, chosen, measure, requested, confidence)
    assert measure.per_request is not None
    values = measure.per_request(answers)
    of = chosen & answers.ok if measure.kind == "answered" else chosen & ~np.isnan(values)
    result = described(values[of], measure, requested, confidence)
    failed = chosen & answers.failed
    if measure.failure_value is not None and failed.any():
        late = np.where(failed, measure.failure_value, values)[of | failed]
        return replace(result, adjusted=_adjusted(late, int(failed.sum()), requested, confidence))
    return result


def described(values: Floats, measure: Measure, requested: tuple[str, ...], confidence: float) -> MeasureSummary:
    """Describes values in time order, NaN where undefined."""
    defined = values[~np.isnan(values)]
    missing = len(values) - len(defined)
    return _measured(quantiles.sample(defined), measure, len(defined), missing, requested, confidence)


def _described_gaps(
    answers: Answers, chosen: Mask, measure: Measure, requested: tuple[str, ...], confidence: float
) -> MeasureSummary:
    of = chosen & answers.ok
    values = gap_values(answers, of, measure)
    without = int((of & (answers.records.read_counts() < 2)).sum())
    return _measured(values.sample, measure, len(values), without, requested, confidence, values.tokens)


def _measured(
    of: Distribution,
    measure: Measure,
    count: int,
    undefined: int,
    requested: tuple[str, ...],
    confidence: float,
    tokens: int | None = None,
) -> MeasureSummary:
    some = len(of) > 0
    whole = {
        "mean": quantiles.mean(of),
        "std": quantiles.std(of),
        "min": of.least if some else None,
        "max": of.largest if some else None,
    }
    estimates = _quantiles(of, requested, confidence)
    return MeasureSummary(
        unit=measure.name.unit,
        count=count,
        undefined=undefined,
        tokens=tokens,
        statistics=whole | estimates.values,
        intervals={"mean": quantiles.mean_interval(of, confidence)} | estimates.intervals,
        weak=estimates.weak,
    )


@dataclass(frozen=True, slots=True)
class _Quantiles:
    values: dict[str, float | None] = field(default_factory=dict)
    intervals: dict[str, Ends] = field(default_factory=dict)
    weak: dict[str, int] = field(default_factory=dict)  # number of samples that would make each quantile firm


def _quantiles(of: Distribution, requested: tuple[str, ...], confidence: float) -> _Quantiles:
    estimates = _Quantiles()
    rare = [name for name in WHEN_KNOWN if len(of) >= quantiles.needed_for(share_of(name), confidence)]
    names = sorted({*requested, *rare}, key=share_of)
    if isinstance(of, Tally):
        of.prepare([share_of(name) for name in names], confidence)
    for name in names:
        estimate = quantiles.estimate(of, share_of(name), confidence)
        if estimate.needed is not None and name not in requested:
            continue
        low, high = estimate.interval
        estimates.values[name] = _finite(estimate.value)
        estimates.intervals[name] = _finite(low), _finite(high)
        if estimate.needed is not None and estimate.value is not None:
            estimates.weak[name] = estimate.needed
    return estimates


def _adjusted(late: Floats, failed: int, requested: tuple[str, ...], confidence: float) -> Adjusted:
    """Quantiles that count failures as infinitely late; None stands for infinite."""
    late = late[~np.isnan(late)]
    estimates = _quantiles(quantiles.sample(late), requested, confidence)
    return Adjusted(
        count=len(late), failed=failed, statistics=estimates.values, intervals=estimates.intervals, weak=estimates.weak
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def per_request_names() -> list[str]:
    """Measures that are described for every set of requests, in the vocabulary's order."""
    return [name for name, measure in REGISTRY.items() if measure.kind in ("answered", "sent", "gap")]
