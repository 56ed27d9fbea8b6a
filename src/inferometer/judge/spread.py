"""How much a number differs from run to run where these runs do not tell: assumed, or learned from other lines of
history in the store. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from inferometer.judge.changes import change_points, regimes
from inferometer.measure.values import Quantity

MIDDLE = 0.05  # relative standard deviation of means, medians and rates
TAIL = 0.10  # of p90 and above
OF_SHARE = 0.01  # in points: of a failure rate, of a share of requests
FEWEST_LEARNED = 8  # degrees of freedom with which other lines of history are believed


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation between runs to assume: `learned` by key where the store's other lines of history tell
    it, else by what kind of number it is."""

    middle: float = MIDDLE
    tail: float = TAIL
    learned: Mapping[str, float] = field(default_factory=dict)

    def of(self, quantity: Quantity) -> float:
        if quantity.key in self.learned:
            return self.learned[quantity.key]
        if quantity.unit == "share":
            return OF_SHARE
        return self.tail if is_tail(quantity.statistic) else self.middle


def is_tail(statistic: str | None) -> bool:
    return (statistic is not None and statistic[0] == "p" and float(statistic[1:]) >= 90) or statistic == "max"


def learned_spread(lines: Iterable[Sequence[Mapping[str, float]]], spread: Spread | None = None) -> Spread:
    """From other lines of history, each a list of runs with their numbers by key, oldest first: the pooled relative
    spread within stretches without a change."""
    base = spread or Spread()
    squares: dict[str, float] = {}
    dof: dict[str, int] = {}
    for line in lines:
        for key in dict.fromkeys(key for numbers in line for key in numbers):
            values = [numbers[key] for numbers in line if numbers.get(key, 0.0) > 0]
            for stretch in regimes(len(values), change_points(values)):
                logs = np.log([values[at] for at in stretch])
                if len(logs) > 1:
                    squares[key] = squares.get(key, 0.0) + float(((logs - logs.mean()) ** 2).sum())
                    dof[key] = dof.get(key, 0) + len(logs) - 1
    known = {key: math.sqrt(squares[key] / n) for key, n in dof.items() if n >= FEWEST_LEARNED and squares[key] > 0}
    return Spread(base.middle, base.tail, known)


def weak_text(quantities: Iterable[Quantity]) -> str | None:
    """`TTFT p99 is based on 67 samples (368 needed)` for the weakest, where one is weak."""
    weak = [quantity for quantity in quantities if quantity.needed is not None]
    if not weak:
        return None
    worst = max(weak, key=lambda quantity: quantity.needed or 0)
    samples = "too few samples" if worst.count is None else f"{worst.count:,} samples"
    return f"{worst.title} {worst.statistic} is based on {samples} ({worst.needed:,} needed)"
