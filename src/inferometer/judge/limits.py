"""The plan's limits, judged on a summary. A failed request counts as infinitely late: nothing passes by failing."""

import math
from collections.abc import Iterable
from typing import Any

from inferometer.measure.goodput import judged_measure
from inferometer.plan.limit import Limit
from inferometer.plan.model import Plan
from inferometer.vocabulary import MEASURES, duration_text, number_text

# {"limit", "value", "met": bool | None, "text"}; met None: it cannot be told, "needed" says how many values would tell
Judgement = dict[str, Any]


def judge_limits(limits: Iterable[Limit], summary: dict[str, Any]) -> list[Judgement]:
    """Each limit on a summary, or on one of its stages or traffic classes."""
    return [_scalar(limit, summary) if MEASURES[limit.measure].scalar else _each(limit, summary) for limit in limits]


def judge_plan(plan: Plan, summary: dict[str, Any]) -> list[Judgement]:
    """Every class's limits on its own part of the summary; with several classes each judgement names its class."""
    if len(plan.classes) == 1:
        return judge_limits(plan.classes[0].limits, summary)
    return [
        {"traffic": traffic.name, **judgement}
        for traffic in plan.classes
        for judgement in judge_limits(traffic.limits, summary["traffic"][traffic.name])
    ]


def _scalar(limit: Limit, summary: dict[str, Any]) -> Judgement:
    value = scalar_value(limit.measure, summary)
    met = None if value is None else limit.met_by(value)
    return _judgement(limit, value, met, _shown(value, limit.measure))


def scalar_value(name: str, summary: dict[str, Any]) -> float | None:
    """A measure that is one number of a run, wherever the summary keeps it."""
    good = summary["goodput"] or {}
    places = {
        "concurrency": summary["concurrency"]["mean"],
        "goodput": good.get("window"),
        "goodput_share": good.get("share"),
        "failure_rate": summary["failures"]["failure_rate"],
        "stall_share": summary["stalls"]["share"],
    }
    value: float | None = places[name] if name in places else summary["rates"][name]["window"]
    return value


def _each(limit: Limit, summary: dict[str, Any]) -> Judgement:
    """A statistic of a measure that each request has; without one, the worst request must keep the limit."""
    name = judged_measure(limit.measure, summary["loop"] != "closed")
    stat = limit.stat or ("max" if limit.op[0] == "<" else "min")
    described = _described(name, summary)
    if described is None:
        return _judgement(limit, None, None, f"{name} was not measured")
    value, (low, high), needed = _statistic(described, stat, MEASURES[name].direction)
    met = limit.met_by(value) if value is not None else _decided(limit, low, high)
    said = _said(name, limit, value, described, needed, low)
    finite = value if value is not None and math.isfinite(value) else None
    judged = _judgement(limit, finite, met, said + _close_call(limit, value, low, high))
    return judged | {"needed": needed} if met is None and needed else judged


def certainly_missed(limit: Limit, summary: dict[str, Any]) -> str | None:
    """A sentence where even the near end of the interval misses the limit; None where it may still be kept."""
    name = judged_measure(limit.measure, summary["loop"] != "closed")
    described = None if MEASURES[limit.measure].scalar or limit.stat is None else _described(name, summary)
    if described is None or limit.stat is None:
        return None
    _, (low, high), _ = _statistic(described, limit.stat, MEASURES[name].direction)
    near = low if limit.op[0] == "<" else high
    if near is None or limit.met_by(near):
        return None
    least = "at least" if limit.op[0] == "<" else "at most"
    return f"{limit} is missed: {name} {limit.stat} is {least} {_shown(near, name)}"


def _described(name: str, summary: dict[str, Any]) -> dict[str, Any] | None:
    of = (summary["sessions"] or {}) if name.startswith("session_") else summary["measures"]
    found: dict[str, Any] | None = of.get(name)
    return found


Ends = tuple[float | None, float | None]


def _statistic(described: dict[str, Any], stat: str, direction: str | None) -> tuple[float | None, Ends, int | None]:
    """Value, interval and, for an unknown quantile, the count it needs; with failures as infinitely late."""
    adjusted = described.get("adjusted")
    if adjusted is not None and stat in ("mean", "max", "min", "std"):
        return _with_failures(described, stat, direction), (None, None), None
    source = described if adjusted is None else adjusted
    low, high = source["intervals"].get(stat, (None, None))
    if stat in source["unknown"]:
        return None, (low, high), source["unknown"][stat]
    value = source.get(stat)
    if value is None and adjusted is not None and stat in adjusted:
        return math.inf, (low, math.inf), None
    return value, (low, high), None


def _with_failures(described: dict[str, Any], stat: str, direction: str | None) -> float | None:
    """A mean or maximum with an infinite value in it is infinite; in a speed a failure is a 0."""
    if direction == "higher":
        count, failed, mean = described["count"], described["adjusted"]["failed"], described["mean"] or 0.0
        slow: dict[str, float | None] = {"min": 0.0, "mean": mean * count / (count + failed)}
        return slow.get(stat, described[stat])
    minimum: float | None = described["min"]
    return minimum if stat == "min" and minimum is not None else math.inf


def _decided(limit: Limit, low: float | None, high: float | None) -> bool | None:
    """An unknown quantile still fails, or passes, when the whole of its interval does."""
    ends = {limit.met_by(-math.inf if low is None else low), limit.met_by(math.inf if high is None else high)}
    return ends.pop() if len(ends) == 1 else None


def _said(
    name: str, limit: Limit, value: float | None, described: dict[str, Any], needed: int | None, low: float | None
) -> str:
    what = f"{name} {limit.stat}" if limit.stat else f"the worst {name}"
    since = " (open loop: since the request was due)" if name != limit.measure else ""
    failed = (described.get("adjusted") or {}).get("failed", 0)
    late = f", {failed} failed requests counted as infinitely late" if failed else ""
    if value is None:
        count = described["count"]
        bound = f", at least {_shown(low, name)}" if low is not None else ""
        need = f": {count} values where {needed} are needed{bound}" if needed else ""
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


def _judgement(limit: Limit, value: float | None, met: bool | None, said: str) -> Judgement:
    word = {True: "met", False: "not met", None: "cannot be told"}[met]
    return {"limit": str(limit), "value": value, "met": met, "text": f"{limit}: {word}, {said}"}
