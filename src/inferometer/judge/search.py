"""The search for the most load within limits: which load to try next, and what is known after each try. Pure.

Loads are doubled (or halved) until one keeps the limits and one does not; then the geometric middle of the two is
tried, until they are close. A load in between may be neither for sure: it is then tried again for longer, and after
that all steps near it decide together, by where their shares cross the one that is asked for. One step alone has bad
luck too often: with ten of them on the way, the lowest that missed by chance would be the answer, 2% too low.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inferometer.record.summary import Attainment, LimitResult, Section, Summary

Word = Literal["meets", "misses", "unclear"]
Outcome = Literal["found", "unresolved", "all meet", "none meets"]

NEAR = 1.2  # in log-odds: shares of 73% to 97% where 90% is asked for
FEWEST_LOADS = 3
Z_95 = 1.96
LARGEST_ERROR = 0.3  # of the logarithm of a load: a line that knows its crossing no better knows nothing
CLOSE = 0.45  # of the width that is asked for: on each side of where the line crosses

FACTOR = 2.0  # from one load to the next, as long as the limit lies on one side of all of them


@dataclass(frozen=True, slots=True)
class Attained:
    """One limit at one load: the share of requests that kept it (with its interval) and the share asked for."""

    limit: str
    share: float | None
    low: float | None
    high: float | None
    required: float | None
    met: bool | None

    @property
    def word(self) -> Word:
        """By the interval of the share where there is one; a limit on a mean or a rate by its value alone."""
        if self.required is None or self.low is None or self.high is None:
            return {True: "meets", False: "misses", None: "unclear"}[self.met]  # type: ignore[return-value]
        if self.low >= self.required or (self.required >= 1.0 and self.share == 1.0):
            return "meets"
        return "misses" if self.high < self.required else "unclear"


@dataclass(frozen=True, slots=True)
class Step:
    """One load that was tried."""

    load: float
    attained: tuple[Attained, ...]
    length_s: float
    run: str | None = None
    ended: str | None = None  # why it ended early
    broken: bool = False  # so many requests failed that the load is not served, whatever became of the others
    valid: bool = True  # False: our own sending was at fault, so that a missed limit says nothing
    took_s: float = 0.0  # of the budget: with the drain, the summary and all that is around its load
    values: Mapping[str, float] = field(default_factory=dict)  # what the curve shows

    @property
    def word(self) -> Word:
        words = {each.word for each in self.attained}
        if self.broken:
            return "misses"
        if not self.valid and "misses" in words:
            return "unclear"
        return "misses" if "misses" in words else "unclear" if "unclear" in words or not words else "meets"

    @property
    def guess(self) -> bool:
        """Whether it keeps the limits, as far as one can tell."""
        return self.word == "meets" or (self.word == "unclear" and all(each.met is True for each in self.attained))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a search may do: between which loads, how close, how many steps and seconds."""

    start: float
    least: float
    most: float
    within: float = 0.03
    steps: int = 12
    budget_s: float = math.inf
    whole: bool = False  # loads are whole numbers: a concurrency


@dataclass(frozen=True, slots=True)
class Try:
    """The next load, and how many times as long as usual."""

    load: float
    longer: float = 1.0


def next_try(steps: Sequence[Step], bounds: Bounds) -> Try | None:
    """None when the search is over, one way or the other."""
    if not steps:
        return Try(_fitting(bounds.start, bounds))
    if len(steps) >= bounds.steps or spent_s(steps) >= bounds.budget_s:
        return None
    last = steps[-1]
    if last.word == "unclear" and sum(step.load == last.load for step in steps) == 1 and _matters(steps, bounds):
        return Try(last.load, 2.0)
    low, high = bracket(steps)
    load = _between(low, high, bounds, crossing(steps))
    return None if load is None or any(step.load == load for step in steps) else Try(load)


def spent_s(steps: Sequence[Step]) -> float:
    """Of the budget."""
    return math.fsum(max(step.took_s, step.length_s) for step in steps)


def bracket(steps: Sequence[Step]) -> tuple[float | None, float | None]:
    """The highest load below which all kept the limits, and the lowest that did not. Of several tries of one load the
    last, which was longer, decides; of one that stays unclear, all steps together."""
    final = {step.load: step.guess for step in steps}
    if (crossed := crossing(steps)) is not None:
        unclear = {step.load: step.word == "unclear" and step.valid for step in steps}
        final |= {load: load <= crossed.load for load, doubtful in unclear.items() if doubtful}
    missed = [load for load, met in final.items() if not met]
    high = min(missed, default=None)
    met = [load for load, kept in final.items() if kept and (high is None or load < high)]
    return max(met, default=None), high


@dataclass(frozen=True, slots=True)
class Crossing:
    """The load at which a limit is just kept, and where it lies at 95%."""

    load: float
    low: float
    high: float


def crossing(steps: Sequence[Step]) -> Crossing | None:
    """Where the first limit stops being kept, by all steps near it; None where they do not tell."""
    whole = [step for step in steps if step.valid and step.ended is None and not step.broken]
    found = [
        _limit_crossing([step.attained[at] for step in whole], [step.load for step in whole]) for at in _limits(whole)
    ]
    return min((each for each in found if each is not None), key=lambda each: each.load, default=None)


def _limits(steps: Sequence[Step]) -> range:
    return range(min((len(step.attained) for step in steps), default=0))


def _limit_crossing(attained: Sequence[Attained], loads: Sequence[float]) -> Crossing | None:
    """A line through the log-odds of the share over the logarithm of the load; steps weigh what is known of them."""
    known = [(math.log(load), each) for each, load in zip(attained, loads, strict=True) if _is_known(each)]
    points = [(at, *_log_odds(each)) for at, each in known if _is_near(each)]
    if len({at for at, _, _ in points}) < FEWEST_LOADS:
        return None
    weight = math.fsum(1 / error**2 for _, _, error in points)
    middle = math.fsum(at / error**2 for at, _, error in points) / weight
    level = math.fsum(odds / error**2 for _, odds, error in points) / weight
    spread = math.fsum((at - middle) ** 2 / error**2 for at, _, error in points)
    slope = math.fsum((at - middle) * odds / error**2 for at, odds, error in points) / spread
    if slope >= 0:
        return None
    away = (_odds(known[0][1].required) - level) / slope
    error = math.sqrt(1 / weight + away**2 / spread) / -slope
    at = middle + away
    if error > LARGEST_ERROR or abs(away) > LARGEST_ERROR:
        return None
    return Crossing(math.exp(at), math.exp(at - Z_95 * error), math.exp(at + Z_95 * error))


def _is_known(each: Attained) -> bool:
    """Whether a share says how far from the asked one it is: none of 0 or 1 does."""
    known = each.share is not None and each.low is not None and each.high is not None and each.required is not None
    return known and 0 < each.share < 1 and each.required < 1 and each.high > each.low  # type: ignore[operator]


def _is_near(each: Attained) -> bool:
    """Whether a share is so close to the asked one that a line will do between them."""
    return abs(_odds(each.share) - _odds(each.required)) <= NEAR


def _log_odds(each: Attained) -> tuple[float, float]:
    """And their standard error, from the interval of the share."""
    assert each.share is not None and each.low is not None and each.high is not None
    return _odds(each.share), (each.high - each.low) / 2 / Z_95 / (each.share * (1 - each.share))


def _odds(share: float | None) -> float:
    assert share is not None
    return math.log(share / (1 - share))


def _matters(steps: Sequence[Step], bounds: Bounds) -> bool:
    """Whether a wrong guess could still be corrected: with the last step there is nothing left to decide."""
    return len(steps) + 1 < bounds.steps


def _between(low: float | None, high: float | None, bounds: Bounds, crossed: Crossing | None) -> float | None:
    """The middle or, where the steps know better, close below and above where their line crosses."""
    if high is None:
        assert low is not None
        return None if low >= _fitting(bounds.most, bounds) else _fitting(min(low * FACTOR, bounds.most), bounds)
    if low is None:
        return None if high <= _fitting(bounds.least, bounds) else _fitting(max(high / FACTOR, bounds.least), bounds)
    if high / low - 1 <= bounds.within or (bounds.whole and high - low <= 1):
        return None
    if crossed is not None and not bounds.whole and low < crossed.load < high:
        step = (1 + bounds.within) ** CLOSE
        if low < crossed.load / step:
            return _fitting(crossed.load / step, bounds)
        if crossed.load * step < high:
            return _fitting(crossed.load * step, bounds)
    return _fitting(math.sqrt(low * high), bounds)


def _fitting(load: float, bounds: Bounds) -> float:
    load = min(max(load, bounds.least), bounds.most)
    return float(max(1, round(load))) if bounds.whole else float(f"{load:.5g}")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to: the most load that keeps the limits lies from `low` to below `high`."""

    outcome: Outcome
    low: float | None
    high: float | None
    text: str
    likely: tuple[float, float] | None = None  # where it lies at 95%, by all steps together


def result(steps: Sequence[Step], bounds: Bounds) -> Found:
    low, high = bracket(steps)
    if low is None and high is None:
        return Found("unresolved", None, None, "no load was tried to its end")
    if low is None:
        assert high is not None
        done = high <= _fitting(bounds.least, bounds)
        why = f"the limits are missed even at {_number(high)}, the least that was tried"
        return Found("none meets" if done else "unresolved", None, high, why)
    if high is None:
        done = low >= _fitting(bounds.most, bounds)
        why = f"the limits are kept even at {_number(low)}, the most that was tried"
        return Found("all meet" if done else "unresolved", low, None, why)
    crossed = crossing(steps)
    likely = None if crossed is None else (crossed.low, crossed.high)
    sure = "" if likely is None else f" (95%: {_number(likely[0])} to {_number(likely[1])})"
    between = f"between {_number(low)} and {_number(high)}{sure}"
    if not {step.load: step for step in steps}[high].valid:
        why = (
            f"our own sending was late at {_number(high)}, so that it is not known whether the limits are missed there"
        )
        return Found("unresolved", low, high, f"the answer may be {between}, but {why}", likely)
    if high / low - 1 <= bounds.within or (bounds.whole and high - low <= 1):
        return Found("found", low, high, f"the most load within the limits is {between}", likely)
    why = f"the steps ended with the answer {between}, {high / low - 1:.0%} apart"
    return Found("unresolved", low, high, why, likely)


def _number(load: float | None) -> str:
    return "-" if load is None else f"{load:.4g}"


def attained_of(summary: Summary) -> tuple[Attained, ...]:
    """What a summary says of its limits, of several classes each on its own: a share of requests where that can be,
    else met or not."""
    return tuple(
        _attained(result, _attainment(summary.traffic[result.traffic] if result.traffic else summary, result))
        for result in summary.limits
    )


def _attainment(part: Section, result: LimitResult) -> Attainment | None:
    return next((attainment for attainment in part.attainment if attainment.limit == result.limit), None)


def _attained(result: LimitResult, attainment: Attainment | None) -> Attained:
    if attainment is None:
        return Attained(result.limit, None, None, None, None, result.met)
    low, high = attainment.interval
    met = None if attainment.share is None else attainment.share >= attainment.required
    return Attained(result.limit, attainment.share, low, high, attainment.required, met)


def find(
    try_load: Callable[[Try], Step], bounds: Bounds, on_step: Callable[[Step], None] | None = None
) -> tuple[list[Step], Found]:
    """Try loads until the answer is there, or the steps or the time are used up."""
    steps: list[Step] = []
    while (wanted := next_try(steps, bounds)) is not None:
        step = try_load(wanted)
        steps.append(step)
        if on_step is not None:
            on_step(step)
    return steps, result(steps, bounds)
