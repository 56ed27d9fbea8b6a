"""Whether something drifts over a window: the trend test behind "steady"."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from inferometer.measure.distributions import t_cdf
from inferometer.measure.quantiles import Floats

BLOCKS = 20
FEWEST = 8  # blocks with a value: fewer cannot tell a trend from chance
SIGNIFICANT = 0.01
DRIFT = 0.10  # of the mean level over the window: what is less may be real, but changes no conclusion
TEST = (
    "t-test of the slope over 20 block means, with the effective number of blocks by their lag-1 correlation "
    "(Santer et al. 2000); a trend has p < 0.01 and a drift over 10% of the mean"
)

Word = Literal["steady", "drifting", "unknown"]


@dataclass(frozen=True, slots=True)
class Trend:
    """`drift` is the change over the window as a share of the mean level."""

    word: Word
    p: float | None = None
    drift: float | None = None

    @property
    def plain(self) -> dict[str, Any]:
        return asdict(self)


def trend(means: Floats) -> Trend:
    """Of block means in order of time, NaN where a block is empty."""
    where = np.flatnonzero(np.isfinite(means))
    if len(where) < FEWEST:
        return Trend("unknown")
    y = means[where]
    x = where / len(means) - np.mean(where / len(means))
    slope = float(x @ y) / float(x @ x)
    level = abs(float(y.mean()))
    drift = slope / level if level else 0.0
    p = _slope_p(x, y - y.mean() - slope * x, slope)
    return Trend("drifting" if p < SIGNIFICANT and abs(drift) > DRIFT else "steady", p, drift)


def _slope_p(x: Floats, residuals: Floats, slope: float) -> float:
    """Two-sided p of a slope, its standard error and degrees of freedom from the effective number of residuals."""
    square = float(residuals @ residuals)
    if square <= 1e-24 * max(1.0, slope**2):  # a perfect line, or nothing at all
        return 0.0 if abs(slope) > 1e-12 else 1.0
    correlation = max(0.0, float(residuals[1:] @ residuals[:-1]) / square)
    effective = len(x) * (1 - correlation) / (1 + correlation)
    degrees = effective - 2
    if degrees < 1:
        return 1.0
    error = math.sqrt(square / degrees / float(x @ x))
    return 2.0 * t_cdf(-abs(slope / error), degrees)


def together(trends: dict[str, Trend]) -> dict[str, Any]:
    """One word for several series: drifting if any is, steady only if all are."""
    words = {trend.word for trend in trends.values()}
    word = "drifting" if "drifting" in words else "unknown" if "unknown" in words else "steady"
    known = [trend.p for trend in trends.values() if trend.p is not None]
    plain = {name: trend.plain for name, trend in trends.items()}
    return {"word": word, "test": TEST, "p": min(known) if known else None, "of": plain}
