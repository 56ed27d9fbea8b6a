"""The search for the most load within limits: which load to try next, and the result after each try. Pure.

Loads are doubled (or halved) until one meets the limits and one does not; then the geometric mean of the two is tried,
until they are close. If the result of a load in between is unclear, it is tried again for longer; after that all steps
near it decide together, by the load at which their shares cross the required one. A single step misses by chance too
often: with ten of them in a search, the lowest that missed by chance would be the answer, 2% too low.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import msgspec

from inferometer.plan.limit import Limit
from inferometer.record.summary import Attainment, ClassSummary, LimitResult, StageSummary, Summary, SummarySection
from inferometer.vocabulary import number_text, percent_text

StepStatus = Literal["meets", "misses", "unclear"]
SearchEnd = Literal["found", "unresolved", "all meet", "none meets"]

NEAR = 1.2  # in log-odds: shares of 73% to 97% if 90% is required
FEWEST_LOADS = 3
Z_95 = 1.96
LARGEST_ERROR = 0.3  # of the logarithm of a load: a fit with a larger error of its crossing is useless
CLOSE = 0.45  # of the requested width: on each side of the crossing

WITHIN = 0.03
MOST_TRIES = 3  # of one load, each twice as long as the previous one

FACTOR = 2.0  # from one load to the next, while all are on the same side of the limit


class Attained(msgspec.Struct, frozen=True):
    """One limit at one load: the share of requests that met it (with its interval) and the required share."""

    limit: str
    share: float | None = None
    low: float | None = None
    high: float | None = None
    required: float | None = None
    met: bool | None = None

    @property
    def status(self) -> StepStatus:
        """From the interval of the share, if there is one; for a limit on a mean or a rate from its value alone."""
        if self.required is None or self.low is None or self.high is None:
            return {True: "meets", False: "misses", None: "unclear"}[self.met]  # type: ignore[return-value]
        if self.low >= self.required or (self.required >= 1.0 and self.share == 1.0):
            return "meets"
        return "misses" if self.high < self.required else "unclear"


class SearchStep(msgspec.Struct, frozen=True):
    """One load that was tried."""

    DERIVED: ClassVar = ("status", "meets")

    load: float
    attained: tuple[Attained, ...]
    length_s: float
    run: str | None = None
    ended: str | None = None  # why it ended early
    broken: bool = False  # so many requests failed that the load is not sustained, whatever happened to the others
    valid: bool = True  # False: our own sending was at fault, so a missed limit shows nothing
    growing: bool = False  # more requests arrived than were completed: limits met now would not be met for long
    took_s: float = 0.0  # time taken from the budget: includes drain, summary and all other work around the load
    values: dict[str, float] = {}  # values shown by the curve

    @property
    def status(self) -> StepStatus:
        statuses = {limit.status for limit in self.attained}
        if self.broken:
            return "misses"
        if not self.valid and "misses" in statuses:
            return "unclear"
        if "misses" in statuses:
            return "misses"
        return "unclear" if "unclear" in statuses or not statuses or self.growing else "meets"

    @property
    def meets(self) -> bool:
        """Whether it meets the limits, as far as the measurement shows."""
        if self.status != "unclear":
            return self.status == "meets"
        return not self.growing and all(limit.met is True for limit in self.attained)


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """The bounds of a search: the range of loads, how close, how many steps and seconds."""

    start: float | None = None  # None until it is chosen
    least: float = 0.0
    most: float = math.inf
    within: float = WITHIN
    steps: int = 12
    budget_s: float = math.inf
    whole: bool = False  # loads are whole numbers: a concurrency
    any_width: bool = False  # a certain range counts as an answer, however wide, once the budget is used up

    def begun_at(self, start: float) -> "SearchBounds":
        """With a first load, and ends a thousand times lower and higher if none are given."""
        least = self.least or (1.0 if self.whole else start / 1000)
        most = self.most if math.isfinite(self.most) else start * 1000
        return replace(self, start=min(max(start, least), most), least=least, most=most)


@dataclass(frozen=True, slots=True)
class Try:
    """The next load, and the factor on the usual length of a step."""

    load: float
    longer: float = 1.0


def next_try(steps: Sequence[SearchStep], bounds: SearchBounds) -> Try | None:
    """None when the search is over, with or without an answer."""
    if not steps:
        assert bounds.start is not None
        return Try(_fitting(bounds.start, bounds))
    if len(steps) >= bounds.steps or spent_s(steps) >= bounds.budget_s:
        return None
    last = steps[-1]
    if last.status == "unclear" and sum(step.load == last.load for step in steps) == 1 and _matters(steps, bounds):
        return Try(last.load, 2.0)
    low, high = bracket(steps)
    if low is not None and high is not None and _is_close(low, high, bounds):
        return _again(steps, bounds)
    load = _between(low, high, bounds, crossing(steps))
    return None if load is None or any(step.load == load for step in steps) else Try(load)


def _is_close(low: float, high: float, bounds: SearchBounds) -> bool:
    return high / low - 1 <= bounds.within or (bounds.whole and high - low <= 1)


def _again(steps: Sequence[SearchStep], bounds: SearchBounds) -> Try | None:
    """Retries, for longer, an end of the range that is only guessed; None if both are certain."""
    tries = {load: sum(step.load == load for step in steps) for load in undecided(steps)}
    load = min(tries, key=lambda load: tries[load], default=None)
    return None if load is None or tries[load] >= MOST_TRIES else Try(load, 2.0 ** tries[load])


def undecided(steps: Sequence[SearchStep]) -> list[float]:
    """The ends of the range that neither their own requests nor all steps together put on one side of the answer. A
    quantile of few samples never shows that a limit is met."""
    if crossing(steps) is not None:
        return []
    final = {step.load: step for step in steps}
    return [load for load in bracket(steps) if load is not None and final[load].status == "unclear"]


def spent_s(steps: Sequence[SearchStep]) -> float:
    """Time used of the budget."""
    return math.fsum(max(step.took_s, step.length_s) for step in steps)


def bracket(steps: Sequence[SearchStep]) -> tuple[float | None, float | None]:
    """The highest load below which all loads met the limits, and the lowest that did not. Among several tries of one
    load the last one, which was longer, decides; if a load stays unclear, all steps together decide."""
    final = {step.load: step.meets for step in steps}
    if (crossed := crossing(steps)) is not None:
        unclear = {step.load: step.status == "unclear" and step.valid and not step.growing for step in steps}
        final |= {load: load <= crossed.load for load, doubtful in unclear.items() if doubtful}
    missed = [load for load, met in final.items() if not met]
    high = min(missed, default=None)
    met = [load for load, kept in final.items() if kept and (high is None or load < high)]
    return max(met, default=None), high


@dataclass(frozen=True, slots=True)
class Crossing:
    """The load at which a limit is just met, and its 95% interval."""

    load: float
    low: float
    high: float


def crossing(steps: Sequence[SearchStep]) -> Crossing | None:
    """The load at which the first limit stops being met, from all steps near it; None if they do not show it."""
    whole = [step for step in steps if step.valid and step.ended is None and not step.broken and not step.growing]
    crossings = [
        _limit_crossing([step.attained[at] for step in whole], [step.load for step in whole]) for at in _limits(whole)
    ]
    return min((point for point in crossings if point is not None), key=lambda point: point.load, default=None)


def _limits(steps: Sequence[SearchStep]) -> range:
    return range(min((len(step.attained) for step in steps), default=0))


def _limit_crossing(attained: Sequence[Attained], loads: Sequence[float]) -> Crossing | None:
    """A line fitted to the log-odds of the share over the logarithm of the load; steps are weighted by their
    precision."""
    known = [(math.log(load), limit) for limit, load in zip(attained, loads, strict=True) if _is_known(limit)]
    points = [(at, *_log_odds(limit)) for at, limit in known if _is_near(limit)]
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


def _is_known(attained: Attained) -> bool:
    """Whether a share shows its distance from the required one: 0 and 1 do not."""
    known = (
        attained.share is not None
        and attained.low is not None
        and attained.high is not None
        and attained.required is not None
    )
    return known and 0 < attained.share < 1 and attained.required < 1 and attained.high > attained.low  # type: ignore[operator]


def _is_near(attained: Attained) -> bool:
    """Whether a share is so close to the required one that linear interpolation is good enough between them."""
    return abs(_odds(attained.share) - _odds(attained.required)) <= NEAR


def _log_odds(attained: Attained) -> tuple[float, float]:
    """The log-odds and their standard error, from the interval of the share."""
    assert attained.share is not None and attained.low is not None and attained.high is not None
    return _odds(attained.share), (attained.high - attained.low) / 2 / Z_95 / (attained.share * (1 - attained.share))


def _odds(share: float | None) -> float:
    assert share is not None
    return math.log(share / (1 - share))


def _matters(steps: Sequence[SearchStep], bounds: SearchBounds) -> bool:
    """Whether a wrong guess could still be corrected: after the last step there is nothing left to decide."""
    return len(steps) + 1 < bounds.steps


def _between(low: float | None, high: float | None, bounds: SearchBounds, crossed: Crossing | None) -> float | None:
    """The middle of the range or, if the steps allow a better estimate, loads just below and above the crossing of
    their line."""
    if high is None:
        assert low is not None
        return None if low >= _fitting(bounds.most, bounds) else _fitting(min(low * FACTOR, bounds.most), bounds)
    if low is None:
        return None if high <= _fitting(bounds.least, bounds) else _fitting(max(high / FACTOR, bounds.least), bounds)
    if crossed is not None and not bounds.whole and low < crossed.load < high:
        step = (1 + bounds.within) ** CLOSE
        if low < crossed.load / step:
            return _fitting(crossed.load / step, bounds)
        if crossed.load * step < high:
            return _fitting(crossed.load * step, bounds)
    return _fitting(math.sqrt(low * high), bounds)


def _fitting(load: float, bounds: SearchBounds) -> float:
    load = min(max(load, bounds.least), bounds.most)
    return float(max(1, round(load))) if bounds.whole else float(f"{load:.5g}")


class SearchResult(msgspec.Struct, frozen=True):
    """The result of a search: the highest load that meets the limits lies from `low` to below `high`."""

    outcome: SearchEnd
    low: float | None
    high: float | None
    text: str
    likely: tuple[float, float] | None = None  # its 95% interval, from all steps together


def sure_bracket(steps: Sequence[SearchStep]) -> tuple[float, float] | None:
    """The same range, only from loads whose own requests show on which side they are; None if an end has no such
    load."""
    final = {step.load: step for step in steps}
    high = min((load for load, step in final.items() if step.status == "misses"), default=math.inf)
    low = max((load for load, step in final.items() if step.status == "meets" and load < high), default=0.0)
    return (low, high) if low and math.isfinite(high) else None


def result(steps: Sequence[SearchStep], bounds: SearchBounds) -> SearchResult:
    plain = _result(steps, bounds)
    if plain.outcome != "unresolved" or not bounds.any_width or (sure := sure_bracket(steps)) is None:
        return plain
    low, high = sure
    apart = f"{percent_text(high / low - 1)} wide{_used_up(steps, bounds)}"
    text = f"the highest load within the limits is between {number_text(low)} and {number_text(high)}, {apart}"
    guessed = [load for load in (plain.low, plain.high) if load is not None and load not in sure]
    if guessed and plain.low and plain.high:
        text += f"; most likely between {number_text(plain.low)} and {number_text(plain.high)}"
    return SearchResult("found", low, high, text, plain.likely)


def _result(steps: Sequence[SearchStep], bounds: SearchBounds) -> SearchResult:
    low, high = bracket(steps)
    if low is None and high is None:
        return SearchResult("unresolved", None, None, "no step was completed")
    if low is None:
        assert high is not None
        done = high <= _fitting(bounds.least, bounds) and not undecided(steps)
        missed = {step.load: step for step in steps}[high].status == "misses"
        are = "the limits are missed even" if missed else "it is unclear whether the limits are met"
        why = f"{are} at {number_text(high)}, the lowest load tried"
        return SearchResult(
            "none meets" if done else "unresolved", None, high, why if done else why + _ended(steps, bounds)
        )
    if high is None:
        done = low >= _fitting(bounds.most, bounds) and not undecided(steps)
        why = f"the limits are met even at {number_text(low)}, the highest load tried"
        return SearchResult(
            "all meet" if done else "unresolved", low, None, why if done else why + _ended(steps, bounds)
        )
    return _result_between(low, high, steps, bounds)


def _result_between(low: float, high: float, steps: Sequence[SearchStep], bounds: SearchBounds) -> SearchResult:
    crossed = crossing(steps)
    likely = None if crossed is None else (crossed.low, crossed.high)
    sure = "" if likely is None else f" (95%: {number_text(likely[0])} to {number_text(likely[1])})"
    between = f"between {number_text(low)} and {number_text(high)}{sure}"
    if not {step.load: step for step in steps}[high].valid:
        late = f"the load generator sent late at {number_text(high)}"
        why = f"{late}, so it is unknown whether the limits are missed there"
        return SearchResult(
            "unresolved", low, high, f"the highest load within the limits may be {between}, but {why}", likely
        )
    if not _is_close(low, high, bounds):
        is_ = "may be" if undecided(steps) else "is"
        width = f"a range {percent_text(high / low - 1)} wide"
        why = f"the highest load within the limits {is_} {between}, {width}{_ended(steps, bounds)}"
        return SearchResult("unresolved", low, high, why, likely)
    if unsure := undecided(steps):
        why = (
            f"the highest load within the limits may be {between}, but {_unsure_text(unsure)}{_used_up(steps, bounds)}"
        )
        return SearchResult("unresolved", low, high, why, likely)
    return SearchResult("found", low, high, f"the highest load within the limits is {between}", likely)


def _ended(steps: Sequence[SearchStep], bounds: SearchBounds) -> str:
    """What kept the search from a more exact answer."""
    unsure = undecided(steps)
    return _used_up(steps, bounds) or (f", but {_unsure_text(unsure)}" if unsure else "")


def _unsure_text(loads: Sequence[float]) -> str:
    at = " and ".join(number_text(load) for load in loads)
    return f"at {at} it is unclear whether the limits are met: longer steps would decide it"


def _used_up(steps: Sequence[SearchStep], bounds: SearchBounds) -> str:
    if len(steps) >= bounds.steps:
        return f"; all {bounds.steps} steps were used"
    return "; the budget is used up" if math.isfinite(bounds.budget_s) else ""


def attained_of(summary: Summary) -> tuple[Attained, ...]:
    """The limit results of a summary, for several classes each on its own: a share of requests if possible, else met or
    not."""
    return tuple(
        _attained(result, _attainment(summary.traffic[result.traffic] if result.traffic else summary, result))
        for result in summary.limits
    )


def _attainment(part: SummarySection, result: LimitResult) -> Attainment | None:
    return next((attainment for attainment in part.attainment if attainment.limit == result.limit), None)


def _attained(result: LimitResult, attainment: Attainment | None) -> Attained:
    if attainment is None:
        return Attained(result.limit, None, None, None, None, result.met)
    low, high = attainment.interval
    met = None if attainment.share is None else attainment.share >= attainment.required
    return Attained(result.limit, attainment.share, low, high, attainment.required, met)


def find(
    try_load: Callable[[Try], SearchStep | None],
    bounds: SearchBounds,
    on_step: Callable[[SearchStep], None] | None = None,
) -> tuple[list[SearchStep], SearchResult]:
    """Tries loads until the answer is known, or until the steps or the time are used up: a load for which there is no
    time left gives no step."""
    steps: list[SearchStep] = []
    while (wanted := next_try(steps, bounds)) is not None:
        step = try_load(wanted)
        if step is None:
            break
        steps.append(step)
        if on_step is not None:
            on_step(step)
    return steps, result(steps, bounds)


# -- how long a step is, and the first rate ----------------------------------------------------------------------------

# The first load of a search and the length of each step: from a short probe of the target, from the number of requests
# needed to decide the limits, and from the time that is left. Pure. # A step that cannot decide its limits is wasted,
# so it first gets the time needed for that; the rest of the budget is shared by the steps that are still expected.

PROBE = ((1, 0.5), (4, 0.5), (16, 1.0))  # requests in flight, and for how long: two seconds in total

LONGEST_S = 60.0  # of a step, by default
SHORTEST_S = 5.0  # of one that only has to show on which side of the answer it lies
LEAST_S = 2.0  # with less than that left, no further step is started
STAYS = 5.0  # a load starts with an empty server and takes some stays to fill it
FEWEST_REQUESTS = 40.0
FAILING = 0.10  # share of failed requests above which a load is not sustained
HARDLY_SLOWER = 1.5  # with four times as many requests in flight


# -- the probe -------------------------------------------------------------------------------------------------------


class ProbeLevel(msgspec.Struct, frozen=True):
    """The result of the probe with this many requests in flight."""

    concurrency: int
    requests: int
    stay_s: float | None  # mean time of an answered request; None if none was answered
    failed: float  # share of the requests
    kept: bool  # whether the limits are met, as far as so few requests show

    @property
    def served_per_s(self) -> float | None:
        """Computed by Little's law: completions in half a second are too few to count."""
        return self.concurrency / self.stay_s if self.stay_s else None


class Probe(msgspec.Struct, frozen=True):
    """A short closed loop before a search, and the first load it suggests."""

    levels: tuple[ProbeLevel, ...]
    start: float | None  # None: no request was answered
    run: str | None = None
    length_s: float = 0.0
    took_s: float = 0.0

    @property
    def stay_s(self) -> float:
        """The longest mean stay measured; if requests were not answered, at least the probe's own length."""
        stays = [level.stay_s for level in self.levels if level.stay_s is not None]
        return max(stays, default=self.length_s if self.levels else 0.0)


def levels_of(summary: ClassSummary, concurrencies: Sequence[int]) -> tuple[ProbeLevel, ...]:
    """The stages of a closed loop; a stage that never reached its concurrency is left out."""
    return tuple(_level(stage, concurrencies[stage.stage]) for stage in summary.stages)


def _level(stage: StageSummary, concurrency: int) -> ProbeLevel:
    e2e = stage.measures.get("e2e")
    kept = all(limit.share is None or limit.share >= limit.required for limit in stage.attainment)
    failed = stage.failures.failure_rate or 0.0
    return ProbeLevel(concurrency, sum(stage.outcomes.values()), e2e.mean if e2e else None, failed, kept)


def first_load(levels: Sequence[ProbeLevel], *, whole: bool) -> float | None:
    """The largest load of the probe that met the limits: requests per second or (`whole`) in flight. Twice as much if
    the target hardly slowed down, half of the smallest if no load met them; None if nothing was answered."""
    served = [level for level in levels if level.stay_s and level.failed <= FAILING]
    if not served:
        return None
    kept = [level for level in served if level.kept]
    if not kept:
        return 1.0 if whole else _rounded(_load(served[0], whole) / FACTOR)
    best = kept[-1]
    before = kept[-2].stay_s if len(kept) > 1 else None
    unnoticed = best is levels[-1] and before is not None and (best.stay_s or math.inf) <= HARDLY_SLOWER * before
    return _rounded(_load(best, whole) * (FACTOR if unnoticed else 1.0))


def _load(level: ProbeLevel, whole: bool) -> float:
    return float(level.concurrency) if whole else level.served_per_s or 0.0


def _rounded(load: float) -> float:
    return float(f"{load:.2g}")


# -- how long a step is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepPace:
    """The inputs to the length of a step other than the steps before it."""

    step_s: float | None = None  # as set by the user; None: as long as the limits and the budget require
    requests: float = FEWEST_REQUESTS  # number that can decide the limits
    stay_s: float = 0.0  # of a request
    around_s: float = 0.0  # time a run takes in addition to its load, before any step has measured it


def requests_for(limits: Sequence[Limit]) -> float:
    """The number of requests that show that a limit is met if all of them meet it: the lower end of Wilson's interval,
    n / (n + z^2), reaches the share q from n = z^2 q / (1 - q) on. 380 for a p99, 35 for a p90."""
    stats = [limit.stat for limit in limits if limit.stat is not None and limit.stat[0] == "p"]
    shares = [max(share, 1 - share) for share in (float(stat[1:]) / 100 for stat in stats)]
    return max((Z_95**2 * share / (1 - share) for share in shares if share < 1), default=0.0) * 1.1 + FEWEST_REQUESTS


def length_s(wanted: Try, steps: Sequence[SearchStep], bounds: SearchBounds, pace: StepPace) -> float | None:
    """Length of the next step; None if the budget has no room for one. The first step always runs."""
    left_s = bounds.budget_s - spent_s(steps)
    overhead_s = around_s(steps, pace) + stay_s(steps, pace)
    room_s = left_s - overhead_s
    usual_s = pace.step_s if pace.step_s is not None else _usual_s(wanted, steps, bounds, pace)
    before_s = max((step.length_s for step in steps if step.load == wanted.load), default=0.0)
    least_s = max(min(usual_s, LEAST_S), before_s)  # a second try that is shorter than the first one adds nothing
    chosen_s = min(usual_s * wanted.longer, room_s)
    if chosen_s >= least_s:
        return chosen_s
    return None if steps else least_s


def _usual_s(wanted: Try, steps: Sequence[SearchStep], bounds: SearchBounds, pace: StepPace) -> float:
    stay = stay_s(steps, pace)
    per_s = wanted.load / stay if bounds.whole and stay else wanted.load
    decisive_s = max(pace.requests / per_s, STAYS * stay)
    climbing = None in bracket(steps)
    usual_s = min(max(decisive_s, SHORTEST_S), LONGEST_S) if climbing else LONGEST_S
    left_s, overhead_s = bounds.budget_s - spent_s(steps), around_s(steps, pace) + stay
    share_s = left_s / expected_steps(steps, bounds) - overhead_s
    half_s = left_s / 2 - overhead_s  # a search of a single step gives no range
    return max(min(usual_s, max(share_s, min(decisive_s, half_s))), min(LEAST_S, usual_s))


def expected_steps(steps: Sequence[SearchStep], bounds: SearchBounds) -> int:
    """How many steps are still to come: halvings of the range, the loads before there is a range, and one unclear
    load."""
    low, high = bracket(steps)
    if low is None or high is None:
        count = 3 + _halvings(1.0, FACTOR, bounds)
    else:
        count = 1 + _halvings(low, high, bounds)
    return max(1, min(count, bounds.steps - len(steps)))


def _halvings(low: float, high: float, bounds: SearchBounds) -> int:
    width = max(bounds.within, 1 / low if bounds.whole and low > 1 else 0.0)
    return max(0, math.ceil(math.log2(math.log(high / low) / math.log1p(width))))


def around_s(steps: Sequence[SearchStep], pace: StepPace) -> float:
    """The time a run takes in addition to its load, from the latest steps."""
    return max((step.took_s - step.length_s for step in steps[-2:] if step.took_s), default=pace.around_s)


def stay_s(steps: Sequence[SearchStep], pace: StepPace) -> float:
    """How long to wait for the last answers of a step."""
    kept = [step.values["e2e.p50"] for step in steps if step.status != "misses" and "e2e.p50" in step.values]
    return kept[-1] if kept else pace.stay_s
