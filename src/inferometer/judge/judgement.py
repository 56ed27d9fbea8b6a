"""The word on each measure: better, worse, same or unclear, corrected for how many were asked about at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from inferometer.judge.effect import Basis, Effect, Sides, effect, scaled
from inferometer.judge.multiplicity import Corrected, holm
from inferometer.measure.distributions import t_quantile
from inferometer.vocabulary import Direction

ALPHA = 0.05
MARGIN = 0.05  # a change that is surely smaller than this is none: "same"
SHARE_MARGIN = 0.01  # of a share, in points
POWER = 0.8  # of the smallest change that could have been seen

Word = Literal["better", "worse", "same", "changed", "unclear"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """One measure before and after. `change`, `interval` and `smallest` are shares of `before` where `relative`, else
    in the measure's unit. `changed` is the word for a measure of which neither way is better."""

    key: str
    title: str
    unit: str
    direction: Direction | None
    word: Word
    before: float
    after: float
    change: float
    relative: bool
    interval: Interval | None  # at the level at which Holm tested it; of `within_only` too narrow
    smallest: float | None  # smallest change that these runs could have seen, with a power of 80%
    p: float | None  # corrected
    level: float
    basis: Basis
    runs: tuple[int, int]
    spread: float | None  # standard deviation between runs, relative where `relative`
    why: str | None = None  # it is unclear

    @property
    def within_only(self) -> bool:
        return self.basis == "none"

    def document(self) -> dict[str, Any]:
        """As `--json` prints it; stable."""
        return {
            **{name: getattr(self, name) for name in ("key", "title", "unit", "direction", "word", "before", "after")},
            **{name: getattr(self, name) for name in ("change", "relative", "smallest", "p", "basis", "spread", "why")},
            "interval": None if self.interval is None else list(self.interval),
            "confidence": 1 - self.level,
            "runs": list(self.runs),
        }


def changes(measures: Sequence[Sides], alpha: float = ALPHA, margin: float = MARGIN) -> list[Change]:
    """Every measure with its word; those that could not have changed, all runs alike to the last digit, are not among
    the tests that are corrected for."""
    effects = [effect(sides) for sides in measures]
    tested = [at for at, found in enumerate(effects) if found.p is not None and (found.error or found.difference)]
    family = holm([effects[at].p or 0.0 for at in tested], alpha)
    corrected = dict(zip(tested, family, strict=True))
    untested = Corrected(1.0, alpha / max(1, len(measures) if not tested else len(tested)), False)
    return [_change(sides, effects[at], corrected.get(at, untested), margin) for at, sides in enumerate(measures)]


def _change(sides: Sides, found: Effect, test: Corrected, margin: float) -> Change:
    before, after = _middle(sides.before, sides.is_ratio), _middle(sides.after, sides.is_ratio)
    relative = sides.unit != "share" and before > 0
    scale = _Scale(sides.is_ratio, relative, before)
    interval = _interval(found, test.level)
    shown = None if interval is None else (scale.shown(interval[0]), scale.shown(interval[1]))
    word = _word(sides, found, test, shown, _margin(sides, relative, margin))
    return Change(
        **{name: getattr(sides, name) for name in ("key", "title", "unit", "direction")},
        word=word,
        before=before,
        after=after,
        change=scale.shown(found.difference),
        relative=relative,
        interval=shown,
        smallest=_smallest(found, test.level, scale),
        p=None if found.p is None else test.p,
        level=test.level,
        basis=found.basis,
        runs=(len(sides.before), len(sides.after)),
        spread=_spread(found, sides, scale),
        why=_why(found, word),
    )


def _margin(sides: Sides, relative: bool, margin: float) -> float:
    """Of what was 0 there is no percentage: only what did not move at all is the same."""
    if sides.unit == "share":
        return SHARE_MARGIN
    return margin if relative else 0.0


@dataclass(frozen=True, slots=True)
class _Scale:
    """From the scale in which numbers are compared to the one in which they are shown."""

    is_ratio: bool
    relative: bool
    before: float

    def shown(self, difference: float) -> float:
        if self.is_ratio:
            return math.expm1(min(difference, 700.0))
        return difference / self.before if self.relative else difference


def _middle(values: Sequence[float], is_ratio: bool) -> float:
    """The geometric mean where ratios are compared, so that before, after and change fit together."""
    if min(values) == max(values):
        return values[0]
    middle = float(scaled(values, is_ratio).mean())
    return math.exp(middle) if is_ratio else middle


def _interval(found: Effect, level: float) -> Interval | None:
    if found.error is None:
        return None
    half = t_quantile(1 - level / 2, found.dof) * found.error
    return found.difference - half, found.difference + half


def _smallest(found: Effect, level: float, scale: _Scale) -> float | None:
    if found.error is None or found.basis == "none":
        return None
    return scale.shown((t_quantile(1 - level / 2, found.dof) + t_quantile(POWER, found.dof)) * found.error)


def _spread(found: Effect, sides: Sides, scale: _Scale) -> float | None:
    if found.error is None or found.basis == "none":
        return None
    shares = 1 / len(sides.before) + 1 / len(sides.after)
    return scale.shown(found.error / float(np.sqrt(shares)))


def _word(sides: Sides, found: Effect, test: Corrected, interval: Interval | None, margin: float) -> Word:
    if found.p is None:
        return "unclear"
    if test.rejected:
        if sides.direction is None:
            return "changed"
        return "better" if (found.difference < 0) == (sides.direction == "lower") else "worse"
    close = interval is not None and ((-margin < interval[0] and interval[1] < margin) or interval == (0.0, 0.0))
    return "same" if close else "unclear"


def _why(found: Effect, word: Word) -> str | None:
    if word != "unclear":
        return None
    if found.basis == "none":
        return "one run a side: how much runs differ from each other is not known"
    return "the runs differ too much among themselves to tell"
