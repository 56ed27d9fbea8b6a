"""Where a search begins and how long each of its steps is: from a short probe of the target, from what the limits need
to be decided, and from the time that is left. Pure.

A step that cannot decide its limits is wasted, so that it gets the time that takes first; what is left of the budget is
shared by the steps that are still expected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from inferometer.judge.search import FACTOR, SearchBounds, SearchStep, Try, bracket, spent_s
from inferometer.plan.limit import Limit
from inferometer.record.summary import ClassSummary, StageSummary

PROBE = ((1, 0.5), (4, 0.5), (16, 1.0))  # requests in flight, and for how long: two seconds in all

LONGEST_S = 60.0  # of a step, by default
SHORTEST_S = 5.0  # of one that only has to show on which side of the answer it lies
LEAST_S = 2.0  # with less than that left, no further step is begun
STAYS = 5.0  # a load begins with an empty server, and takes some stays to fill it
Z_95 = 1.96
FEWEST_REQUESTS = 40.0
FAILING = 0.10  # share of failed requests above which a load is not served
HARDLY_SLOWER = 1.5  # with four times as many requests in flight


# -- the probe -------------------------------------------------------------------------------------------------------


class ProbeLevel(msgspec.Struct, frozen=True):
    """What a probe saw with so many requests in flight."""

    concurrency: int
    requests: int
    stay_s: float | None  # mean time of an answered request; None where none was answered
    failed: float  # share of the requests
    kept: bool  # the limits, as far as so few requests show

    @property
    def served_per_s(self) -> float | None:
        """By Little's law: completions in half a second are too few to count."""
        return self.concurrency / self.stay_s if self.stay_s else None


class Probe(msgspec.Struct, frozen=True):
    """A short closed loop before a search, and the load that it suggests for the first step."""

    levels: tuple[ProbeLevel, ...]
    start: float | None  # None: nothing was served
    run: str | None = None
    length_s: float = 0.0
    took_s: float = 0.0

    @property
    def stay_s(self) -> float:
        """The longest mean stay that was seen; of unanswered requests, at least the probe's own length."""
        stays = [level.stay_s for level in self.levels if level.stay_s is not None]
        return max(stays, default=self.length_s if self.levels else 0.0)


def levels_of(summary: ClassSummary, concurrencies: Sequence[int]) -> tuple[ProbeLevel, ...]:
    """The stages of a closed loop; one that never had its requests in flight is left out."""
    return tuple(_level(stage, concurrencies[stage.stage]) for stage in summary.stages)


def _level(stage: StageSummary, concurrency: int) -> ProbeLevel:
    e2e = stage.measures.get("e2e")
    kept = all(limit.share is None or limit.share >= limit.required for limit in stage.attainment)
    failed = stage.failures.failure_rate or 0.0
    return ProbeLevel(concurrency, sum(stage.outcomes.values()), e2e.mean if e2e else None, failed, kept)


def first_load(levels: Sequence[ProbeLevel], *, whole: bool) -> float | None:
    """The largest load of the probe that kept the limits: requests per second or (`whole`) in flight. Twice as much
    where the target hardly noticed it, half of the least where no load kept them; None where nothing was served."""
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
    """What the length of a step depends on, apart from the steps before it."""

    step_s: float | None = None  # as the user wants it; None: as long as the limits and the budget ask for
    requests: float = FEWEST_REQUESTS  # that can decide the limits
    stay_s: float = 0.0  # of a request
    around_s: float = 0.0  # what a run takes in addition to its load, before any step shows it


def requests_for(limits: Sequence[Limit]) -> float:
    """So many requests show that a limit is met if all of them keep it: the lower end of Wilson's interval,
    n / (n + z^2), reaches the share q from n = z^2 q / (1 - q) on. 380 for a p99, 35 for a p90."""
    stats = [limit.stat for limit in limits if limit.stat is not None and limit.stat[0] == "p"]
    shares = [max(share, 1 - share) for share in (float(stat[1:]) / 100 for stat in stats)]
    return max((Z_95**2 * share / (1 - share) for share in shares if share < 1), default=0.0) * 1.1 + FEWEST_REQUESTS


def length_s(wanted: Try, steps: Sequence[SearchStep], bounds: SearchBounds, pace: StepPace) -> float | None:
    """Of the next step; None where the budget has no room for one. The first step is always done."""
    left_s = bounds.budget_s - spent_s(steps)
    overhead_s = around_s(steps, pace) + stay_s(steps, pace)
    room_s = left_s - overhead_s
    usual_s = pace.step_s if pace.step_s is not None else _usual_s(wanted, steps, bounds, pace)
    before_s = max((step.length_s for step in steps if step.load == wanted.load), default=0.0)
    least_s = max(min(usual_s, LEAST_S), before_s)  # a second try that is shorter than the first one shows nothing new
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
    half_s = left_s / 2 - overhead_s  # a search of one step knows nothing
    return max(min(usual_s, max(share_s, min(decisive_s, half_s))), min(LEAST_S, usual_s))


def expected_steps(steps: Sequence[SearchStep], bounds: SearchBounds) -> int:
    """How many are still to come: halvings of the range, the loads before there is one, and one that is unclear."""
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
    """What a run takes in addition to its load, by the latest steps."""
    return max((step.took_s - step.length_s for step in steps[-2:] if step.took_s), default=pace.around_s)


def stay_s(steps: Sequence[SearchStep], pace: StepPace) -> float:
    """For which the last answers of a step are waited."""
    kept = [step.values["e2e.p50"] for step in steps if step.status != "misses" and "e2e.p50" in step.values]
    return kept[-1] if kept else pace.stay_s
