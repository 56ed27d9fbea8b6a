"""`Levels`: loads between two ends. The ends are cases that are done first; where the others lie follows from what was
measured of them, and is not known before. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from inferometer.plan.fields import Count, Mistake, Number, Section

LEVEL = "level"  # the parameter that tells these cases apart
LOW, HIGH = "low", "high"
DRAIN = re.compile(r"drain_rate p(\d{1,2}(?:\.\d+)?)")
Spacing = Literal["linear", "geometric", "narrowing"]
Ends = Literal["none", "low", "high", "both"]
End = dict[str, Any] | Number


class Levels(Section):
    """Two ends and what lies between: guidellm's and inference-perf's sweeps, vLLM's workload explorer."""

    path: Literal["load.rate", "load.concurrency"] = Field("load.rate", description="what the levels are of")
    low: End = Field(description="settings of a case that is done first, or a number")
    high: End = Field(description="settings of a case that is done second, or a number")
    count: Count = Field(ge=0, le=1000, description="levels beside these two cases")
    spacing: Spacing = Field(
        "linear", description="even steps, even factors, or steps that shrink by a factor towards the high end"
    )
    ends: Ends = Field("high", description="which of the two is a level too")
    measure: str = Field(
        "request_rate", description="of an end: answers per second of the whole run, or drain_rate p95"
    )
    set: dict[str, Any] = Field({}, description="settings of all levels by their paths")

    def disagreements(self) -> Iterator[Mistake]:
        if not isinstance(self.low, dict) and not isinstance(self.high, dict):
            yield Mistake((), "has two known ends: nothing is to be found, write the values as an axis")
        if self.measure != "request_rate" and not DRAIN.fullmatch(self.measure):
            yield Mistake(("measure",), f"must be request_rate or drain_rate with a percentile, got {self.measure}")
        elif self.measure != "request_rate" and self.path != "load.rate":
            yield Mistake(("measure",), "must be request_rate where the levels are of load.concurrency")
        if self.count == 1 and self.ends == "both":
            yield Mistake(("count",), "must be at least 2 where both ends are levels")

    @property
    def steps(self) -> list[str]:
        """The names of its cases in the order in which they are done."""
        ends = [name for name in (LOW, HIGH) if self.known_end(name) is None]
        return [*ends, *(f"{number} of {self.count}" for number in range(1, self.count + 1))]

    @property
    def measured(self) -> str:
        """`low and high`, or the one of them that is no number."""
        return " and ".join(name for name in (LOW, HIGH) if self.known_end(name) is None)

    def settings(self, step: str, value: float) -> dict[str, Any]:
        """What a case sets: an end its own, a level its value."""
        if step in (LOW, HIGH):
            return dict(getattr(self, step))
        return {**self.set, self.path: value}

    def known_end(self, name: str) -> float | None:
        end = getattr(self, name)
        return None if isinstance(end, dict) else float(end)


def number_of(step: str) -> int | None:
    """`3 of 8` is 3, an end None."""
    return None if step in (LOW, HIGH) else int(step.partition(" ")[0])


def values_between(low: float, high: float, levels: Levels) -> list[float]:
    """The levels in their order: rates with two decimals, small ones with four digits, concurrencies whole."""
    first, last = levels.ends in ("low", "both"), levels.ends in ("high", "both")
    gaps = levels.count + (not first) + (not last) - 1
    numbers = range(0 if first else 1, gaps + last)
    return [_tidy(_at(low, high, number / gaps if gaps else 1.0, levels.spacing), levels.path) for number in numbers]


def _at(low: float, high: float, share: float, spacing: Spacing) -> float:
    """The value at a share of the way; `narrowing` is a geometric way that is walked from the high end."""
    match spacing:
        case "linear":
            return float(low + (high - low) * share)
        case "geometric":
            return float(low * (high / low) ** share)
    return float(low + high - high * (low / high) ** share)


def _tidy(value: float, path: str) -> float:
    if path == "load.concurrency":
        return max(1, round(value))
    return round(value, 2) if value >= 10 else float(f"{value:.4g}")
