"""In which order the cases of an experiment are done, and how long they will take. Pure."""

import random
from collections.abc import Sequence

from inferometer.plan.cases import Case
from inferometer.plan.experiment import Order
from inferometer.plan.load import Load
from inferometer.plan.model import Plan, Traffic


def ordered(cases: Sequence[Case], order: Order, seed: int = 0) -> list[Case]:
    """As in `_ordered`; cases whose load waits for others come after these, with every server where one follows the
    other and after all where servers alternate anyway."""
    if not any(case.waits for case in cases):
        return _ordered(cases, order, seed)
    stacks = dict.fromkeys(case.stack for case in cases) if order == "sequential" else [None]
    parts = [
        [case for case in cases if stack in (None, case.stack) and case.waits is waits]
        for stack in stacks
        for waits in (False, True)
    ]
    return [case for part in parts if part for case in _ordered(part, order, seed)]


def _ordered(cases: Sequence[Case], order: Order, seed: int) -> list[Case]:
    """Sequential: all cases of one server, again for every repeat, then those of the next. Shuffled: all at random.
    ABBA: there and back again and again, so that what drifts with time meets all cases alike."""
    if order == "shuffled":
        drawn = list(cases)
        random.Random(seed).shuffle(drawn)
        return drawn
    stacks = list(dict.fromkeys(case.stack for case in cases))
    if order == "sequential":
        return sorted(cases, key=lambda case: (stacks.index(case.stack), case.repeat))
    grouped = sorted(cases, key=lambda case: stacks.index(case.stack))
    repeats = max(case.repeat for case in cases)
    passes = [[case for case in grouped if case.repeat == repeat] for repeat in range(1, repeats + 1)]
    return [case for at, group in enumerate(passes) for case in (group if at % 2 == 0 else reversed(group))]


def server_starts(cases: Sequence[Case], *, restart_every_case: bool) -> int:
    """How often a server is started when they are done in this order."""
    starts, running = 0, ""
    for case in cases:
        if case.stack and case.work == "plan" and (restart_every_case or case.stack != running):
            starts += 1
        running = case.stack
    return starts


def expected_s(case: Case) -> float | None:
    """How long its load lasts, as far as the plan determines it; None if the target decides."""
    if not isinstance(case.plan, Plan):
        return None
    if case.waits:  # its rate is not known: only a duration is an upper bound
        lasts = case.plan.stop.duration
        return None if lasts is None else lasts + case.plan.warmup.duration
    spans = [_span(traffic, case.plan) for traffic in case.plan.classes]
    return None if any(span is None for span in spans) else max(span or 0.0 for span in spans)


def _span(traffic: Traffic, plan: Plan) -> float | None:
    load, stop = traffic.load, traffic.stop
    known = [
        seconds for seconds in (stop.duration, _of_count(load, stop.requests or stop.sessions)) if seconds is not None
    ]
    if load.type == "stages":
        known.append(sum(stage.duration for stage in load.stages))
    if not known:
        return None
    warm = plan.warmup.duration + (_of_count(load, plan.warmup.requests) or 0.0)
    return min(known) + warm


def _of_count(load: Load, requests: int | None) -> float | None:
    return None if not requests or load.type == "ramp" or not load.rate else requests / load.rate
