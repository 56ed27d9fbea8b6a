"""Which part of a run is measured: the window, and the requests in flight over time. Records hold everything; the
window is chosen here, afterwards."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.quantiles import Floats
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import MISSING, Ints, Mask, Records, known
from inferometer.vocabulary import NANOSECONDS, percent_text

# -- inflight --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class InFlight:
    """Spans as sorted starts and sorted ends with their running sums: counting does not need to know which end belongs
    to which start."""

    starts: Ints
    ends: Ints
    start_sums: Floats
    end_sums: Floats
    origin: int  # sums are relative to it, so that they stay exact

    @classmethod
    def of(cls, starts: Ints, ends: Ints) -> Self:
        """Spans without a start are left out; one without an end lasts to the last known instant."""
        begun = known(starts)
        starts, ends = starts[begun], ends[begun]
        last = max((int(x.max()) for x in (starts, ends) if len(x)), default=0)
        starts, ends = np.sort(starts), np.sort(np.where(known(ends), ends, last))
        origin = int(starts[0]) if len(starts) else 0
        return cls(starts, ends, _running(starts - origin), _running(ends - origin), origin)

    def mean(self, edges: Ints) -> Floats:
        """Average in flight between each pair of neighbouring edges."""
        return np.diff(self._passed(edges)) / np.maximum(np.diff(edges), 1)

    def during(self, starts: Ints, ends: Ints) -> Floats:
        """Average in flight over each of these spans; for a span without length, the number at its instant."""
        area = self._passed(ends) - self._passed(starts)
        length = ends - starts
        return np.where(length > 0, area / np.maximum(length, 1), self.count(starts))

    def _passed(self, at: Ints) -> Floats:
        return self._area(at, self.starts, self.start_sums) - self._area(at, self.ends, self.end_sums)

    def _area(self, at: Ints, steps: Ints, sums: Floats) -> Floats:
        """Integral up to `at` of the number of steps passed: the sum of (at - step) over them."""
        passed = np.searchsorted(steps, at, side="right")
        return passed * (at - self.origin).astype(np.float64) - sums[passed]

    def count(self, at: Ints) -> Ints:
        """In flight at these instants: a request that ends at the instant is not counted, one that starts there is."""
        begun = np.searchsorted(self.starts, at, side="right")
        return (begun - np.searchsorted(self.ends, at, side="right")).astype(np.int64)

    def peak(self, start_at: int, end_at: int) -> int:
        inside = self.starts[(self.starts >= start_at) & (self.starts <= end_at)]
        at = np.concatenate((np.array([start_at], np.int64), inside))
        return int(self.count(at).max())

    def held(self, level: float, start_at: int | None = None, end_at: int | None = None) -> tuple[int, int] | None:
        """From the first instant (in start_at..end_at) with at least `level` in flight to the last; None if never."""
        if not len(self.starts):
            return None
        start_at = int(self.starts[0]) if start_at is None else start_at
        end_at = int(self.ends[-1]) if end_at is None else end_at
        inside = self.starts[(self.starts > start_at) & (self.starts <= end_at)]
        moments = np.concatenate((np.array([start_at], np.int64), inside))
        reached = moments[self.count(moments) >= level]
        if not len(reached):
            return None
        after = self.ends[int(np.searchsorted(self.ends, reached[-1], side="right")) :]
        below = after[self.count(after) < level]
        return int(reached[0]), min(end_at, int(below[0])) if len(below) else end_at


def _running(values: Ints) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))


# -- window ----------------------------------------------------------------------------------------------------------

HELD_SHARE = 0.95  # of the requested concurrency: below it, the load is not the requested one


@dataclass(frozen=True, slots=True)
class Window:
    """Instants start_at..end_at; `rule` describes how they were chosen."""

    start_at: int
    end_at: int
    rule: str
    closed: bool = True  # whether the end itself belongs to it; with stages, only that of the last one

    @property
    def length_s(self) -> float:
        return (self.end_at - self.start_at) / NANOSECONDS

    def holds(self, at: Ints) -> Mask:
        """Which instants lie inside; a missing one does not."""
        before = at <= self.end_at if self.closed else at < self.end_at
        inside: Mask = known(at) & (at >= self.start_at) & before
        return inside


def start_of(records: Records, facts: Facts) -> int:
    """When the load began: from the facts, else the first instant in the records."""
    if facts.start_at is not None:
        return facts.start_at
    return int(records.scheduled_at.min()) if len(records) else 0


def end_of(records: Records, facts: Facts) -> int:
    """The last instant of the run."""
    columns = (records.scheduled_at, records.sent_at, records.ended_at)
    latest = (int(column.max()) for column in columns if len(column))
    return max([start_of(records, facts), records.last_read_at(), *latest])


def warmup_end(records: Records, plan: Plan, facts: Facts) -> int:
    """From the facts; else after the warm-up's duration and its number of requests, whichever is later."""
    start_at = start_of(records, facts)
    if facts.warmup_end_at is not None:
        return max(start_at, facts.warmup_end_at)
    end_at = start_at + round(plan.warmup.duration * NANOSECONDS)
    skipped = min(plan.warmup.requests, len(records) - 1)
    if skipped > 0:
        end_at = max(end_at, int(np.partition(records.scheduled_at, skipped)[skipped]))
    return end_at


def whole_window(answers: Answers, plan: Plan, facts: Facts) -> Window:
    """The window of the run: the time during which every class has its load."""
    names = [traffic.name for traffic in plan.classes]
    windows = [class_window(of_class(answers, plan, name), plan, facts, name) for name in names]
    if len(windows) == 1:
        return windows[0]
    start_at, end_at = max(w.start_at for w in windows), min(w.end_at for w in windows)
    if start_at < end_at:
        return Window(start_at, end_at, "while every traffic class is in its own window")
    return Window(
        min(w.start_at for w in windows),
        max(w.end_at for w in windows),
        "from the first class's window to the last's end",
    )


def of_class(answers: Answers, plan: Plan, name: str) -> Answers:
    """The answers of one traffic class; with a single class all answers, whatever name the records carry."""
    if len(plan.classes) == 1:
        return answers
    return Answers.of(answers.records.take(answers.records.traffic.mask(name)))


def class_window(answers: Answers, plan: Plan, facts: Facts, name: str) -> Window:
    """The window of one traffic class, given its answers only."""
    records, traffic = answers.records, traffic_named(plan, name)
    begin_at = warmup_end(records, plan, facts)
    if traffic.load.open_loop:
        window = _open(_by_the_clock(records, traffic), facts, name, begin_at)
    else:
        window = _closed(records, traffic, begin_at)
    if window is not None and window.start_at < window.end_at:
        return window
    rule = "the whole run: too few requests for a separate window"
    return Window(min(begin_at, start_of(records, facts)), end_of(records, facts), rule)


def traffic_named(plan: Plan, name: str) -> Traffic:
    return next((traffic for traffic in plan.classes if traffic.name == name), plan.classes[0])


def _by_the_clock(records: Records, traffic: Traffic) -> Ints:
    """The times that the schedule sets: the start of each session and, in a replay, each of its turns."""
    return records.scheduled_at if traffic.load.type == "replay" else records.scheduled_at[records.turn == 0]


def _open(arrivals: Ints, facts: Facts, name: str, begin_at: int) -> Window | None:
    if not len(arrivals):
        return None
    end_at, last = int(arrivals.max()), "scheduled arrival"
    if facts.cut_short and facts.last_arrival_at.get(name, end_at) > end_at:
        last = "arrival before the interrupt"
    return Window(begin_at, end_at, f"open loop: from the end of warm-up to the last {last}")


def _closed(records: Records, traffic: Traffic, begin_at: int) -> Window | None:
    """Slots that open together are filled one by one: the window starts at the scheduled time of the first one."""
    if traffic.load.sessions_at_once is not None and (window := _sessions_held(records, traffic, begin_at)):
        return window
    requested = requested_concurrency(traffic)
    flight = InFlight.of(records.sent_at, records.ended_at)
    held = flight.held(HELD_SHARE * requested)
    rule = f"closed loop: while at least {percent_text(HELD_SHARE)} of concurrency {requested} are in flight"
    if held is None:
        reached = flight.peak(begin_at, int(flight.starts[-1])) if len(flight.starts) else 0
        held = flight.held(max(HELD_SHARE * reached, 1))
        never = f"closed loop: concurrency {requested} was never in flight"
        rule = f"{never}; while at least {percent_text(HELD_SHARE)} of {reached} are"
    if held is None:
        return None
    first_at, end_at = held
    there = known(records.sent_at) & (records.sent_at <= first_at)
    there &= ~known(records.ended_at) | (records.ended_at > first_at)
    due_at = int(records.scheduled_at[there].min())
    return Window(max(begin_at, due_at), end_at, rule)


def _sessions_held(records: Records, traffic: Traffic, begin_at: int) -> Window | None:
    """With `sessions_at_once` the sessions are held constant, not the requests: users may be thinking, with nothing in
    flight."""
    if not len(records):
        return None
    _, first, number = np.unique(records.session, return_index=True, return_inverse=True)
    starts, ends = records.scheduled_at[first].copy(), np.full(len(first), MISSING)
    np.minimum.at(starts, number, records.scheduled_at)
    np.maximum.at(ends, number, records.ended_at)
    load = traffic.load
    requested = min(load.sessions_at_once or 1, load.concurrency or 1) if load.in_turn else load.sessions_at_once or 1
    held = InFlight.of(starts, ends).held(HELD_SHARE * requested)
    rule = f"closed loop: while at least {percent_text(HELD_SHARE)} of {requested} sessions are under way"
    return None if held is None else Window(max(begin_at, held[0]), held[1], rule)


def requested_concurrency(traffic: Traffic) -> int:
    """The requested requests in flight of a closed loop; with stages the smallest of them, so that all count as
    held."""
    if traffic.load.type == "stages":
        return min(stage.concurrency or 1 for stage in traffic.load.stages)
    return traffic.load.concurrency or 1


def stage_windows(answers: Answers, plan: Plan, facts: Facts, name: str, whole: Window) -> list[tuple[int, Window]]:
    """(stage, its window) for each stage of a class that has started: the whole window, cut at the ends of the
    stages."""
    traffic = traffic_named(plan, name)
    ends = facts.stage_ends_at.get(name) or _planned_ends(traffic, start_of(answers.records, facts))
    edges = [min(max(end_at, whole.start_at), whole.end_at) for end_at in (MISSING, *ends[:-1])] + [whole.end_at]
    windows = [
        (stage, Window(start_at, end_at, f"stage {stage + 1} of {whole.rule}", closed=False))
        for stage, (start_at, end_at) in enumerate(pairwise(edges))
        if start_at < end_at
    ]
    if not traffic.load.open_loop:
        return _held_stages(answers.records, traffic, windows)
    return [*windows[:-1], *((stage, replace(window, closed=True)) for stage, window in windows[-1:])]


def _held_stages(records: Records, traffic: Traffic, windows: list[tuple[int, Window]]) -> list[tuple[int, Window]]:
    """For each stage of a closed loop, the part in which its own concurrency is in flight."""
    flight, stages = InFlight.of(records.sent_at, records.ended_at), traffic.load.stages
    kept = []
    for stage, window in windows:
        requested = (stages[stage].concurrency or 1) if stage < len(stages) else 1
        held = flight.held(HELD_SHARE * requested, window.start_at, window.end_at)
        if held is not None and held[0] < held[1]:
            kept.append((stage, replace(window, start_at=held[0], end_at=held[1])))
    return kept


def _planned_ends(traffic: Traffic, start_at: int) -> tuple[int, ...]:
    lengths = np.cumsum([stage.duration for stage in traffic.load.stages])
    return tuple(start_at + round(float(end_s) * NANOSECONDS) for end_s in lengths)
