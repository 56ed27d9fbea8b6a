"""Several measures at once: Holm's step-down correction, and for each the level its interval has to be read at."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corrected:
    """A p-value among others: `p` after the correction, and the level at which this one was tested."""

    p: float
    level: float
    rejected: bool


def holm(p_values: Sequence[float], alpha: float) -> list[Corrected]:
    """In the order given. The smallest of m is tested at alpha/m, the next at alpha/(m-1), ... until one fails; those
    behind it keep its level, so that an interval at 1 - level leaves out zero exactly where the test rejects."""
    m = len(p_values)
    found: dict[int, Corrected] = {}
    worst, level, rejecting = 0.0, alpha, True
    for step, at in enumerate(sorted(range(m), key=lambda at: p_values[at])):
        if rejecting:
            level = alpha / (m - step)
            rejecting = p_values[at] <= level
        worst = max(worst, min(1.0, p_values[at] * (m - step)))
        found[at] = Corrected(worst, level, rejecting)
    return [found[at] for at in range(m)]
