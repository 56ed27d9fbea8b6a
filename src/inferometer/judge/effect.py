"""How much a measure changed between two groups of runs, and how well that is known.

Runs differ by more than their requests tell, so the spread between runs counts: Student's t on one number per run
(Welch's where both sides have repeats), with the spread that earlier runs of the same identity had where there are too
few repeats. The noise of the requests within a run (`judge.bootstrap`) is the least that this spread can be, and all
that is known where there is one run a side: then nothing is claimed. Positive numbers are compared as logarithms, so
that a change is a ratio; shares, and what can be 0, as they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from inferometer.measure.distributions import t_cdf
from inferometer.measure.quantiles import Floats
from inferometer.vocabulary import Direction

ENOUGH_DOF = 8  # five runs a side: from here on the runs themselves tell their spread, and history is not asked
NOISE_DOF = 31  # of the noise within a run: 32 blocks of requests

Basis = Literal["repeats", "pairs", "history", "repeats and history", "none"]


@dataclass(frozen=True, slots=True)
class Sides:
    """One measure: a value per run on each side, and what else is known of its noise."""

    key: str
    title: str
    unit: str
    direction: Direction | None
    before: tuple[float, ...]
    after: tuple[float, ...]
    noise: float | None = None  # variance of after - before of one pair of runs that their requests make, as scaled
    pairs: bool = False  # run i of one side was given the same tape as run i of the other, and each tape once
    history: tuple[tuple[float, ...], ...] = ()  # earlier runs of the same identity, cut where it changed

    @property
    def is_ratio(self) -> bool:
        return self.unit != "share" and all(value > 0 for value in (*self.before, *self.after))


@dataclass(frozen=True, slots=True)
class Effect:
    """`difference` of the sides' means as scaled, its standard `error` and degrees of freedom. Without a `basis` the
    error is that within the runs only, and says too little; None: nothing at all is known."""

    difference: float
    error: float | None
    dof: float
    basis: Basis

    @property
    def p(self) -> float | None:
        """Two-sided; None where the spread between runs is not known."""
        if self.basis == "none" or self.error is None:
            return None
        if self.error == 0:
            return 1.0 if self.difference == 0 else 0.0
        return 2.0 * t_cdf(-abs(self.difference) / self.error, self.dof)


def scaled(values: Sequence[float], is_ratio: bool) -> Floats:
    array = np.asarray(values, np.float64)
    return np.log(array) if is_ratio else array


def effect(sides: Sides) -> Effect:
    """The change of one measure, by the best that is known of its spread."""
    before, after = scaled(sides.before, sides.is_ratio), scaled(sides.after, sides.is_ratio)
    difference = float(after.mean() - before.mean())
    if sides.pairs and len(before) == len(after) > 1:
        gaps = after - before
        variance, dof, basis = float(gaps.var(ddof=1)) / len(gaps), float(len(gaps) - 1), _basis("pairs")
    else:
        variance, dof, basis = _unpaired(before, after, _history(sides))
    least = _least(sides.noise, len(before), len(after))
    if basis == "none":
        return Effect(difference, None if least is None else math.sqrt(least), NOISE_DOF, basis)
    return Effect(difference, math.sqrt(max(variance, least or 0.0)), rounded_dof(dof), basis)


def _basis(word: Basis) -> Basis:
    return word


def _unpaired(before: Floats, after: Floats, history: tuple[float, int]) -> tuple[float, float, Basis]:
    """Variance of the difference of means, its degrees of freedom, and where they are from."""
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
    """Sum of squares about the mean of each stretch, and its degrees of freedom; a 0 has no logarithm."""
    fitting = [part for part in sides.history if len(part) > 1 and (not sides.is_ratio or min(part) > 0)]
    return sum(_squares(scaled(part, sides.is_ratio)) for part in fitting), sum(len(part) - 1 for part in fitting)


def _squares(values: Floats) -> float:
    return float(((values - values.mean()) ** 2).sum())


def _least(noise: float | None, before: int, after: int) -> float | None:
    """What the requests alone make of the difference of the means."""
    return None if noise is None else noise * (1 / before + 1 / after) / 2


def rounded_dof(dof: float) -> float:
    """Down to a tenth, which errs to the safe side and makes quantiles of t worth keeping."""
    return max(1.0, math.floor(dof * 10 + 1e-9) / 10)
