"""The rules of the verdict: doubts about the load and the load generator (`load`) and about the target (`target`). This
module holds what all rules share: the data a run is judged by, and how far a cause must shift a headline number to be a
doubt. Everything else worth reporting is a note, which never changes the status."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from inferometer.measure.inputs import Facts
from inferometer.plan.model import Plan, Traffic
from inferometer.record.summary import ClassSummary, LevelsOfPart, Summary, SummarySection
from inferometer.record.verdict import Move, Reason, Status
from inferometer.vocabulary import MEASURES, change_size_text, value_text

TOLERATED = 0.05  # share of a number: two runs differ by this much anyway
INVALID_SHARE = 0.50  # a number that may be off by half is no measurement
LATENCIES = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, eq=False, slots=True)
class JudgedRun:
    """A run, or one of its traffic classes, as the rules see it."""

    summary: Summary  # of the whole run
    part: ClassSummary  # of the class
    traffic: Traffic
    name: str | None  # of the class, if there are several
    facts: Facts
    plan: Plan

    def doubt(
        self,
        code: str,
        text: str,
        remedy: str | None = None,
        *,
        moves: list[Move] | None = None,
        direction: str | None = None,
        invalid: bool = False,
    ) -> Reason:
        """With a direction, a separate sentence after the text names the number that is shifted most."""
        if moves and direction:
            moved = moved_text(moves, direction)
            text = f"{text} {moved[0].upper()}{moved[1:]}."
        return self._reason("invalid" if invalid else "doubtful", code, text, remedy, moves or [])

    def note(self, code: str, text: str, remedy: str | None = None) -> Reason:
        return self._reason("valid", code, text, remedy, [])

    def _reason(self, status: Status, code: str, text: str, remedy: str | None, moves: list[Move]) -> Reason:
        shown = text if self.name is None else f"{self.name}: {text}"
        return Reason(status=status, code=code, text=shown, remedy=remedy, moves=moves, traffic=self.name)


DoubtRule = Callable[[JudgedRun], Iterator[Reason]]


TOO_HIGH, TOO_LOW, EITHER = "too high", "too low", "off"


def value_and_interval(section: SummarySection, key: str) -> tuple[float, float, float] | None:
    """A headline number and the ends of its interval; an open end is infinite."""
    name, _, stat = key.partition(".")
    if not stat:
        rate = section.rates.get(name)
        return None if rate is None or not rate.value else (rate.value, rate.value, rate.value)
    measure = section.measures.get(name)
    value = measure[stat] if measure else None
    if measure is None or not value:
        return None
    low, high = measure.interval(stat)
    return value, -math.inf if low is None else min(low, value), math.inf if high is None else max(high, value)


def telling(
    section: SummarySection,
    moves: Mapping[str, float],
    direction: str = EITHER,
    *,
    shares: bool = False,
    unknown: float = 0.0,
) -> list[Move]:
    """The moves that are larger than 5% of the number and take it out of its own interval, largest first. If a number
    is too high, the true one is smaller: the 5% refer to that smaller one, and the lower end of the interval counts,
    also for a weak percentile, whose interval is open above. With `shares` the moves are shares of their number. A move
    known only up to a share (`unknown`) may be larger by that share."""
    large = []
    for key, by in moves.items():
        known = value_and_interval(section, key)
        if known is None:
            continue
        value, low, high = known
        width = {TOO_HIGH: value - low, TOO_LOW: high - value}.get(direction, max(value - low, high - value))
        amount = by * value if shares else by
        most = amount * (1 + unknown)
        true = value - most if direction == TOO_HIGH else value
        if most > max(TOLERATED * true, width):
            large.append(Move(key=key, by=amount, share=amount / value))
    return sorted(large, key=lambda move: -(move.share or 0.0))


def shares_of(section: SummarySection, share: float, *keys: str) -> list[Move]:
    """A cause that may change these numbers by a share of them; numbers without a value are left out."""
    known = {key: value_and_interval(section, key) for key in keys}
    return [Move(key=key, by=share * value[0], share=share) for key, value in known.items() if value and share]


def lacking(section: SummarySection, share: float, *keys: str) -> list[Move]:
    """A cause by which a share of the whole is missing from these numbers. Without it each would be value / (1 -
    share): with nine tenths missing, a number is ten times too low, not nine tenths of itself too low."""
    return shares_of(section, share / (1 - share), *keys) if share < 1 else []


def differing(section: SummarySection, name: str, levels: LevelsOfPart) -> list[Move]:
    """The latency statistics that, in one of the two parts of the window, lie outside their own interval and are off by
    over 5%: they depend on how long that part lasted."""
    large: dict[str, Move] = {}
    for level in (levels.inside, levels.outside):
        for stat, other in level.items():
            key = f"{name}.{stat}"
            known = value_and_interval(section, key)
            if known is None:
                continue
            value, low, high = known
            by = abs(other - value)
            if by > TOLERATED * value and not low <= other <= high and by > (large[key].by if key in large else 0.0):
                large[key] = Move(key=key, by=by, share=by / value)
    return sorted(large.values(), key=lambda move: -(move.share or 0.0))


def is_invalid(moves: list[Move]) -> bool:
    """Whether the middle of a number is off by half: a wrong tail alone leaves the rest usable."""
    return any((move.share or 0.0) > INVALID_SHARE and not move.key.endswith(("p90", "p99")) for move in moves)


def moved_text(moves: list[Move], direction: str = EITHER) -> str:
    """The number that is shifted most: `TTFT p99 may be 14 ms (23%) too high`."""
    more = f" (and {len(moves) - 1} more)" if len(moves) > 1 else ""
    return f"{number_name(moves[0])}{more} may be {amount_text(moves[0])} {direction}"


def number_name(move: Move) -> str:
    """`scheduled TTFT p99`, `request throughput`."""
    name, _, stat = move.key.partition(".")
    return f"{MEASURES[name].phrase} {stat}".rstrip()


def amount_text(move: Move) -> str:
    """`14 ms (23%)`."""
    share = "" if move.share is None else f" ({change_size_text(move.share)})"
    return f"{value_text(move.by, MEASURES[move.key.partition('.')[0]].unit)}{share}"
