"""How much a measure changed between two groups of runs, how precisely that is known, and the resulting status: better,
worse, same or unclear, corrected for the number of measures compared at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from inferometer.measure.quantiles import Floats, t_cdf, t_quantile
from inferometer.vocabulary import Direction

# -- effect ----------------------------------------------------------------------------------------------------------

ENOUGH_DOF = 8  # five runs per side: from here on the runs themselves show their spread, and history is not needed
NOISE_DOF = 31  # of the noise within a run: 32 blocks of requests

ASSUMED_DOF = 31  # of the assumed spread between runs: treated as known
PRIOR_DOF = 16  # degrees of freedom that the assumed spread is worth if there are hardly any repeats
FEW_DOF = 3

Basis = Literal["repeats", "pairs", "history", "repeats and history", "assumed", "repeats and assumed", "none"]


@dataclass(frozen=True, slots=True)
class Sides:
    """One measure: a value per run on each side, and other information about its noise."""

    key: str
    title: str
    unit: str
    direction: Direction | None
    before: tuple[float, ...]
    after: tuple[float, ...]
    noise: float | None = None  # variance of after - before for one pair of runs, from their requests, as scaled
    pairs: bool = False  # whether run i of both sides had the same tape, and each tape was run once
    history: tuple[tuple[float, ...], ...] = ()  # earlier runs of the same identity, cut at change points
    assumed: float | None = None  # standard deviation between runs, relative; in points of a share
    weak: str | None = None  # set if a side is a quantile of too few samples: which, and how many are needed

    @property
    def is_ratio(self) -> bool:
        return self.unit != "share" and all(value > 0 for value in (*self.before, *self.after))


@dataclass(frozen=True, slots=True)
class Effect:
    """`difference` of the sides' means as scaled, its standard `error` and degrees of freedom. Without a `basis` the
    error covers only the noise within the runs, which is too small; None: nothing is known."""

    difference: float
    error: float | None
    dof: float
    basis: Basis

    @property
    def p(self) -> float | None:
        """Two-sided; None if the spread between runs is unknown."""
        if self.basis == "none" or self.error is None:
            return None
        if self.error == 0:
            return 1.0 if self.difference == 0 else 0.0
        return 2.0 * t_cdf(-abs(self.difference) / self.error, self.dof)


def scaled(values: Sequence[float], is_ratio: bool) -> Floats:
    array = np.asarray(values, np.float64)
    return np.log(array) if is_ratio else array


def effect(sides: Sides) -> Effect:
    """The change of one measure, with the best available estimate of its spread."""
    before, after = scaled(sides.before, sides.is_ratio), scaled(sides.after, sides.is_ratio)
    difference = float(after.mean() - before.mean())
    if sides.pairs and len(before) == len(after) > 1:
        gaps = after - before
        variance, dof, basis = float(gaps.var(ddof=1)) / len(gaps), float(len(gaps) - 1), _basis("pairs")
    else:
        variance, dof, basis = _unpaired(before, after, _history(sides))
    least = _least(sides.noise, len(before), len(after))
    if sides.assumed is not None and basis != "pairs" and dof < FEW_DOF:
        return _with_assumption(sides, difference, (variance, dof), least or 0.0)
    if basis == "none":
        return Effect(difference, None if least is None else math.sqrt(least), NOISE_DOF, basis)
    return Effect(difference, math.sqrt(max(variance, least or 0.0)), rounded_dof(dof), basis)


def _with_assumption(sides: Sides, difference: float, known: tuple[float, float], within: float) -> Effect:
    """For a spread between runs that is hardly known: the assumed one, in quadrature with the noise within the runs; a
    few repeats are weighted by their degrees of freedom."""
    variance, dof = known
    shares = 1 / len(sides.before) + 1 / len(sides.after)
    scale = 1.0 if sides.is_ratio or sides.unit == "share" else abs(float(np.mean(sides.before)))
    assumed = ((sides.assumed or 0.0) * scale) ** 2 * shares
    if dof < 1:
        return Effect(difference, math.sqrt(assumed + within), ASSUMED_DOF, "assumed")
    pooled = (variance * dof + assumed * PRIOR_DOF) / (dof + PRIOR_DOF)
    return Effect(difference, math.sqrt(pooled + within), rounded_dof(dof + PRIOR_DOF), "repeats and assumed")


def _basis(basis: Basis) -> Basis:
    return basis


def _unpaired(before: Floats, after: Floats, history: tuple[float, int]) -> tuple[float, float, Basis]:
    """Variance of the difference of means, its degrees of freedom, and their basis."""
    squares, own = _squares(before) + _squares(after), len(before) + len(after) - 2
    past_squares, past = history
    shares = 1 / len(before) + 1 / len(after)
    if past and own < ENOUGH_DOF:
        pooled = (squares + past_squares) / (own + past)
        return pooled * shares, own + past, "repeats and history" if own else "history"
    if len(before) > 1 and len(after) > 1:
        return (*_welch(before, after), "repeats")
    if own:
        return squares / own * shares, own, "repeats"
    return 0.0, 0.0, "none"


def _welch(before: Floats, after: Floats) -> tuple[float, float]:
    """Each side with its own spread; degrees of freedom by Welch and Satterthwaite."""
    parts = [float(side.var(ddof=1)) / len(side) for side in (before, after)]
    below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True))
    total = sum(parts)
    return total, total**2 / below if below else float(len(before) + len(after) - 2)


def _history(sides: Sides) -> tuple[float, int]:
    """Sum of squares around the mean of each stretch, and its degrees of freedom; zeros are left out, having no
    logarithm."""
    fitting = [part for part in sides.history if len(part) > 1 and (not sides.is_ratio or min(part) > 0)]
    return sum(_squares(scaled(part, sides.is_ratio)) for part in fitting), sum(len(part) - 1 for part in fitting)


def _squares(values: Floats) -> float:
    return float(((values - values.mean()) ** 2).sum())


def _least(noise: float | None, before: int, after: int) -> float | None:
    """The part of the variance of the difference that the requests alone cause."""
    return None if noise is None else noise * (1 / before + 1 / after) / 2


def rounded_dof(dof: float) -> float:
    """Rounded down to a tenth, which errs on the safe side and makes quantiles of t worth caching."""
    return max(1.0, math.floor(dof * 10 + 1e-9) / 10)


# -- multiplicity ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corrected:
    """A p-value after correction for several tests: `p`, and the level at which this one was tested."""

    p: float
    level: float
    rejected: bool


def holm(p_values: Sequence[float], alpha: float) -> list[Corrected]:
    """Holm's correction, in the given order. The smallest of m is tested at alpha/m, the next at alpha/(m-1), ... until
    one fails; all later ones keep its level, so that an interval at 1 - level excludes zero exactly when the test
    rejects."""
    m = len(p_values)
    corrected: dict[int, Corrected] = {}
    worst, level, rejecting = 0.0, alpha, True
    for step, at in enumerate(sorted(range(m), key=lambda at: p_values[at])):
        if rejecting:
            level = alpha / (m - step)
            rejecting = p_values[at] <= level
        worst = max(worst, min(1.0, p_values[at] * (m - step)))
        corrected[at] = Corrected(worst, level, rejecting)
    return [corrected[at] for at in range(m)]


# -- judgement -------------------------------------------------------------------------------------------------------

ALPHA = 0.05
MARGIN = 0.05  # a change that is certainly smaller than this counts as none: "same"
SHARE_MARGIN = 0.01  # of a share, in points
POWER = 0.8  # of the smallest change that could have been detected

ChangeStatus = Literal["better", "worse", "same", "changed", "unclear"]
Interval = tuple[float, float]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One measure before and after. `change`, `interval` and `smallest` are shares of `before` if `relative`, else in
    the measure's unit. `changed` is the status of a measure that has no better direction."""

    key: str
    title: str
    unit: str
    direction: Direction | None
    status: ChangeStatus
    before: float
    after: float
    change: float
    relative: bool = False
    smallest: float | None = None  # smallest change that these runs could have detected, with a power of 80%
    p: float | None = None  # corrected
    basis: Basis
    spread: float | None = None  # standard deviation between runs, relative if `relative`
    why: str | None = None  # why it is unclear
    interval: Interval | None = None  # at the level at which Holm tested it; too narrow if `within_only`
    confidence: float = 1 - ALPHA  # of the interval
    runs: tuple[int, int] = (0, 0)

    @property
    def within_only(self) -> bool:
        return self.basis == "none"


def changes(measures: Sequence[Sides], alpha: float = ALPHA, margin: float = MARGIN) -> list[Change]:
    """Every measure with its status; those that could not have changed, because all runs are identical to the last
    digit, do not count among the tests that are corrected for."""
    effects = [effect(sides) for sides in measures]
    tested = [
        at
        for at, (sides, result) in enumerate(zip(measures, effects, strict=True))
        if sides.weak is None and result.p is not None and (result.error or result.difference)
    ]
    family = holm([effects[at].p or 0.0 for at in tested], alpha)
    corrected = dict(zip(tested, family, strict=True))
    untested = Corrected(1.0, alpha / max(1, len(measures) if not tested else len(tested)), False)
    return [_change(sides, effects[at], corrected.get(at, untested), margin) for at, sides in enumerate(measures)]


def _change(sides: Sides, estimate: Effect, test: Corrected, margin: float) -> Change:
    before, after = _middle(sides.before, sides.is_ratio), _middle(sides.after, sides.is_ratio)
    relative = sides.unit != "share" and before > 0
    scale = _Scale(sides.is_ratio, relative, before)
    interval = _interval(estimate, test.level)
    shown = None if interval is None else (scale.shown(interval[0]), scale.shown(interval[1]))
    status = _status(sides, estimate, test, shown, _margin(sides, relative, margin))
    return Change(
        **{name: getattr(sides, name) for name in ("key", "title", "unit", "direction")},
        status=status,
        before=before,
        after=after,
        change=scale.shown(estimate.difference),
        relative=relative,
        interval=shown,
        smallest=_smallest(estimate, test.level, scale),
        p=None if estimate.p is None else test.p,
        confidence=1 - test.level,
        basis=estimate.basis,
        runs=(len(sides.before), len(sides.after)),
        spread=_spread(estimate, sides, scale),
        why=_why(sides, estimate, status),
    )


def _margin(sides: Sides, relative: bool, margin: float) -> float:
    """A value of 0 has no percentage: it counts as the same only if it did not change at all."""
    if sides.unit == "share":
        return SHARE_MARGIN
    return margin if relative else 0.0


@dataclass(frozen=True, slots=True)
class _Scale:
    """Converts from the scale in which numbers are compared to the one in which they are shown."""

    is_ratio: bool
    relative: bool
    before: float

    def shown(self, difference: float) -> float:
        if self.is_ratio:
            return math.expm1(min(difference, 700.0))
        return difference / self.before if self.relative else difference


def _middle(values: Sequence[float], is_ratio: bool) -> float:
    """The geometric mean if ratios are compared, so that before, after and change fit together."""
    if min(values) == max(values):
        return values[0]
    middle = float(scaled(values, is_ratio).mean())
    return math.exp(middle) if is_ratio else middle


def _interval(estimate: Effect, level: float) -> Interval | None:
    if estimate.error is None:
        return None
    half = t_quantile(1 - level / 2, estimate.dof) * estimate.error
    return estimate.difference - half, estimate.difference + half


def _smallest(estimate: Effect, level: float, scale: _Scale) -> float | None:
    if estimate.error is None or estimate.basis == "none":
        return None
    return scale.shown((t_quantile(1 - level / 2, estimate.dof) + t_quantile(POWER, estimate.dof)) * estimate.error)


def _spread(estimate: Effect, sides: Sides, scale: _Scale) -> float | None:
    if estimate.error is None or estimate.basis == "none":
        return None
    shares = 1 / len(sides.before) + 1 / len(sides.after)
    return scale.shown(estimate.error / float(np.sqrt(shares)))


def _status(sides: Sides, estimate: Effect, test: Corrected, interval: Interval | None, margin: float) -> ChangeStatus:
    if estimate.p is None or sides.weak is not None:
        return "unclear"
    if test.rejected:
        if sides.direction is None:
            return "changed"
        return "better" if (estimate.difference < 0) == (sides.direction == "lower") else "worse"
    close = interval is not None and ((-margin < interval[0] and interval[1] < margin) or interval == (0.0, 0.0))
    return "same" if close else "unclear"


def _why(sides: Sides, estimate: Effect, status: ChangeStatus) -> str | None:
    if status != "unclear":
        return None
    if sides.weak is not None:
        return sides.weak
    if estimate.basis == "none":
        return "one run per side: run-to-run variation is unknown"
    if estimate.basis == "assumed":
        return "the assumed run-to-run variation is too large to decide; more runs would show the real one"
    return "the run-to-run variation is too large to decide"
