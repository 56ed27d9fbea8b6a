"""The rolling baseline of one measure: its last runs, without those that a regression made.

A history is cut into regimes where it changed. A regime that is worse than the baseline is left out of it, however
long it lasts, until somebody accepts it or it is over; one that is better is the new baseline. So a regression cannot
creep into what it is measured by.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from inferometer.judge.changes import MAGNITUDE, MAX_P, WINDOW, ChangePoint, change_points, student_p
from inferometer.measure.quantiles import Floats
from inferometer.vocabulary import Direction

SETTLED = 4  # runs on a side without which a step is not told: two or three may be a bad day
OUTLIER = 5.0  # robust standard deviations: a spike says nothing of how much runs differ
FEWEST_TO_TRIM = 8
MAD_TO_SD = 1.4826


@dataclass(frozen=True, slots=True)
class Baseline:
    """Indices into the history: what is in the baseline, what was left out as worse, and where the newest stretch
    that is worse and not accepted began, if it has not ended."""

    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    worse_since: int | None
    steps: tuple[ChangePoint, ...]
    drifts: bool


def baseline(
    values: Sequence[float],
    direction: Direction | None,
    accepted: Collection[int] = (),
    *,
    max_p: float = MAX_P,
    magnitude: float = MAGNITUDE,
    window: int = WINDOW,
) -> Baseline:
    """Of values in order of time; `accepted` are indices from which on what is measured was said to be all right."""
    series = np.asarray(values, np.float64)
    points = change_points(series.tolist(), window=window, max_p=max_p, magnitude=magnitude)
    steps = _told(points, series, max_p)
    kept: list[int] = []
    left_out: list[int] = []
    worse_since: int | None = None
    for start, end in pairwise(sorted({0, len(series), *(point.index for point in steps), *accepted})):
        regime = list(range(start, end))
        word = "better" if not kept or start in accepted else _word(series[kept], series[regime], direction, max_p)
        if word == "worse":
            left_out += regime
            worse_since = start if worse_since is None else worse_since
            continue
        worse_since = None
        left_out = [] if start in accepted else left_out  # what led there is accepted with it
        kept = regime if word == "better" else kept + regime
    return Baseline(
        kept=tuple(_without_spikes(series, kept)[-window:]),
        left_out=tuple(left_out),
        worse_since=worse_since,
        steps=tuple(steps),
        drifts=any(point.is_drift for point in points),
    )


def _told(points: Sequence[ChangePoint], series: Floats, max_p: float) -> list[ChangePoint]:
    """Steps with enough runs before them, and behind them too unless they are the newest, that no single run makes."""
    steps = [point for point in points if not point.is_drift and point.index >= SETTLED]
    edges = [0, *(point.index for point in steps), len(series)]
    stretches = zip(steps, edges, edges[2:], strict=False)
    return [point for point, start, end in stretches if _holds(series, start, point.index, end, max_p)]


def _holds(series: Floats, start: int, index: int, end: int, max_p: float) -> bool:
    """Of a step at `index` between those beside it."""
    if end - index < SETTLED:
        return end == len(series)
    return not _is_spike(series[start:index], series[index:end], max_p)


def _is_spike(before: Floats, after: Floats, max_p: float) -> bool:
    """Whether one run makes the step: without the run that is farthest from those before, there is none."""
    farthest = int(np.argmax(np.abs(after - before.mean())))
    return student_p(before, np.delete(after, farthest)) >= max_p


def _word(before: Floats, after: Floats, direction: Direction | None, max_p: float) -> str:
    """At the level of change points, divided by the places where this one could have been: the place was chosen."""
    if direction is None:
        return "better"
    if student_p(before, after) >= max_p / (len(before) + len(after)):
        return "same"
    return "worse" if (after.mean() > before.mean()) == (direction == "lower") else "better"


def _without_spikes(series: Floats, kept: list[int]) -> list[int]:
    """Far from the median of all by the median distance from it; with few runs none is far."""
    if len(kept) < FEWEST_TO_TRIM:
        return kept
    distance = np.abs(series[kept] - np.median(series[kept]))
    spread = MAD_TO_SD * float(np.median(distance))
    return [at for at, far in zip(kept, distance, strict=True) if not spread or far <= OUTLIER * spread]
