"""The plan's limits, judged on a summary. A failed request counts as infinitely late: nothing passes by failing."""

import math
from collections.abc import Iterable

from msgspec.structs import replace

from inferometer.measure.goodput import judged_measure
from inferometer.plan.limit import Limit
from inferometer.plan.model import Plan
from inferometer.record.summary import OPEN, Ends, LimitResult, MeasureSummary, Section, Summary
from inferometer.vocabulary import MEASURES, duration_text, number_text


def judge_limits(limits: Iterable[Limit], summary: Section) -> list[LimitResult]:
    """Each limit on a summary, or on one of its stages or traffic classes."""
    return [_scalar(limit, summary) if MEASURES[limit.measure].scalar else _each(limit, summary) for limit in limits]


def judge_plan(plan: Plan, summary: Summary) -> list[LimitResult]:
    """Every class's limits on its own part of the summary; with several classes each result names its class."""
    if len(plan.classes) == 1:
        return judge_limits(plan.classes[0].limits, summary)
    return [
        replace(result, traffic=traffic.name)
        for traffic in plan.classes
        for result in judge_limits(traffic.limits, summary.traffic[traffic.name])
    ]


def _scalar(limit: Limit, summary: Section) -> LimitResult:
    value = scalar_value(limit.measure, summary)
    met = None if value is None else limit.met_by(value)
    return _result(limit, value, met, _shown(value, limit.measure))


def scalar_value(name: str, summary: Section) -> float | None:
    """A measure that is one number of a run, wherever the summary keeps it."""
    good, stalls = summary.goodput, summary.stalls
    places = {
        "concurrency": summary.concurrency.mean,
        "goodput": good.window if good else None,
        "goodput_share": good.share if good else None,
        "failure_rate": summary.failures.failure_rate,
        "stall_share": stalls.share if stalls else None,
    }
    return places[name] if name in places else summary.rates[name].window


def _each(limit: Limit, summary: Section) -> LimitResult:
    """A statistic of a measure that each request has; without one, the worst request must keep the limit."""
    name = judged_measure(limit.measure, summary.loop != "closed")
    stat = limit.stat or ("max" if limit.op[0] == "<" else "min")
    measure = _measure(name, summary)
    if measure is None:
        return _result(limit, None, None, f"{name} was not measured")
    value, (low, high), needed = _statistic(measure, stat, MEASURES[name].direction)
    met = limit.met_by(value) if value is not None else _decided(limit, low, high)
    text = _value_text(name, limit, value, measure, needed, low)
    finite = value if value is not None and math.isfinite(value) else None
    result = _result(limit, finite, met, text + _close_call(limit, value, low, high))
    return replace(result, needed=needed) if met is None and needed else result


def certainly_missed(limit: Limit, summary: Section) -> str | None:
    """A sentence where even the near end of the interval misses the limit; None where it may still be kept."""
    name = judged_measure(limit.measure, summary.loop != "closed")
    measure = None if MEASURES[limit.measure].scalar or limit.stat is None else _measure(name, summary)
    if measure is None or limit.stat is None:
        return None
    _, (low, high), _ = _statistic(measure, limit.stat, MEASURES[name].direction)
    near = low if limit.op[0] == "<" else high
    if near is None or limit.met_by(near):
        return None
    least = "at least" if limit.op[0] == "<" else "at most"
    return f"{limit} is missed: {name} {limit.stat} is {least} {_shown(near, name)}"


def _measure(name: str, summary: Section) -> MeasureSummary | None:
    if name.startswith("session_"):
        return summary.sessions.measures.get(name) if summary.sessions else None
    return summary.measures.get(name)


def _statistic(measure: MeasureSummary, stat: str, direction: str | None) -> tuple[float | None, Ends, int | None]:
    """Value, interval and, for an unknown quantile, the count it needs; with failures as infinitely late."""
    adjusted = measure.adjusted
    if adjusted is not None and stat in ("mean", "max", "min", "std"):
        return _with_failures(measure, adjusted.failed, stat, direction), OPEN, None
    source = measure if adjusted is None else adjusted
    low, high = source.intervals.get(stat, OPEN)
    if stat in source.unknown:
        return None, (low, high), source.unknown[stat]
    value = source.statistics.get(stat)
    if value is None and adjusted is not None and stat in adjusted.statistics:
        return math.inf, (low, math.inf), None
    return value, (low, high), None


def _with_failures(measure: MeasureSummary, failed: int, stat: str, direction: str | None) -> float | None:
    """A mean or maximum with an infinite value in it is infinite; in a speed a failure is a 0."""
    if direction == "higher":
        count, mean = measure.count or 0, measure.mean or 0.0
        slow: dict[str, float | None] = {"min": 0.0, "mean": mean * count / (count + failed)}
        return slow.get(stat, measure[stat])
    return measure.min if stat == "min" and measure.min is not None else math.inf


def _decided(limit: Limit, low: float | None, high: float | None) -> bool | None:
    """An unknown quantile still fails, or passes, when the whole of its interval does."""
    ends = {limit.met_by(-math.inf if low is None else low), limit.met_by(math.inf if high is None else high)}
    return ends.pop() if len(ends) == 1 else None


def _value_text(
    name: str, limit: Limit, value: float | None, measure: MeasureSummary, needed: int | None, low: float | None
) -> str:
    what = f"{name} {limit.stat}" if limit.stat else f"the worst {name}"
    since = " (open loop: since the request was due)" if name != limit.measure else ""
    failed = measure.adjusted.failed if measure.adjusted else 0
    late = f", {failed} failed requests counted as infinitely late" if failed else ""
    if value is None:
        bound = f", at least {_shown(low, name)}" if low is not None else ""
        need = f": {measure.count} values where {needed} are needed{bound}" if needed else ""
        return f"{what}{since} is unknown{need}{late}"
    return f"{what}{since} is {_shown(value, name)}{late}"


def _close_call(limit: Limit, value: float | None, low: float | None, high: float | None) -> str:
    """Said when the interval lies on both sides of the limit: another run may end otherwise."""
    if value is None or low is None or high is None or limit.met_by(low) == limit.met_by(high):
        return ""
    return f"; its interval {_shown(low, limit.measure)}..{_shown(high, limit.measure)} lies on both sides of the limit"


def _shown(value: float | None, name: str) -> str:
    if value is not None and math.isinf(value):
        return "infinite"
    unit = MEASURES[name].unit
    if unit == "s":
        return duration_text(value)
    if unit == "share" and value is not None:
        return f"{value:.3g}" if value and abs(value) < 1e-4 else f"{100 * value:.4g}%"
    return number_text(value) + ({"1/s": "/s", "tokens/s": " tokens/s"}.get(unit, "") if value is not None else "")


def _result(limit: Limit, value: float | None, met: bool | None, text: str) -> LimitResult:
    word = {True: "met", False: "not met", None: "cannot be told"}[met]
    return LimitResult(limit=str(limit), value=value, met=met, text=f"{limit}: {word}, {text}")
