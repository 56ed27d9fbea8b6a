"""How well a number of a run is known, while it runs and when it is over."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers
from inferometer.measure.describe import describe
from inferometer.measure.facts import Facts
from inferometer.measure.goodput import judged_measure
from inferometer.measure.registry import REGISTRY, each_of
from inferometer.measure.warmup import settled_from
from inferometer.measure.window import class_window
from inferometer.plan.limit import Limit
from inferometer.plan.model import Plan, Traffic
from inferometer.plan.precision import Precision
from inferometer.record.columns import Records, known

Reached = dict[str, Any]  # {"asked", "measure", "stat", "value", "interval", "within", "met"}


def precision_of(answers: Answers, plan: Plan, facts: Facts, traffic: Traffic) -> Reached | None:
    """What a class's precision came to, given its answers; None where none was asked for."""
    asked = traffic.stop.precision
    if asked is None:
        return None
    chosen = class_window(answers, plan, facts, traffic.name).holds(answers.records.scheduled_at)
    measure = measure_of(asked, traffic)
    named = [] if asked.stat == "mean" else [Limit(measure=measure, stat=asked.stat, value=0.0)]
    said = describe(answers, chosen, REGISTRY[measure], named, plan.confidence)
    value, interval = said.get(asked.stat), said["intervals"].get(asked.stat, [None, None])
    within = _half_width(value, *interval)
    return {
        "asked": str(asked),
        "measure": measure,
        "stat": asked.stat,
        "value": value,
        "interval": list(interval),
        "within": within,
        "met": within is not None and within <= asked.within,
    }


def measure_of(asked: Precision, traffic: Traffic) -> str:
    """In an open loop a latency counts from when the request was due, as everywhere."""
    return judged_measure(asked.measure, traffic.load.open_loop)


def settled_at(answers: Answers, traffic: Traffic) -> int | None:
    """When a class has settled, by the measure that is to be known: the instant its first settled request was due."""
    asked, records = traffic.stop.precision, answers.records
    if asked is None or not len(records):
        return None
    order = np.argsort(records.scheduled_at, kind="stable")
    values = _per_request(answers, measure_of(asked, traffic))[order]
    first = settled_from(np.where(answers.ok[order], values, np.nan))
    return None if first is None else int(records.scheduled_at[order[first]])


def _per_request(answers: Answers, name: str) -> Any:
    """Gaps belong to no request: a request's mean gap has to do."""
    return each_of(name if REGISTRY[name].each is not None else "tpot", answers)


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
