"""The true effect of a cause: how far a spoilt run's headline numbers are from those of its sound twin."""

from collections.abc import Iterator
from dataclasses import dataclass

from inferometer.record.summary import OPEN, Basis, Ends, Summary

SMALL = 0.05  # what two runs differ by anyway
STATISTICS = {
    "ttft_scheduled": ("mean", "p50", "p90", "p99"),
    "ttft": ("mean", "p50", "p90", "p99"),
    "tpot": ("mean", "p50", "p99"),
    "e2e": ("p50", "p99"),
}
RATES = ("request_rate", "output_rate")


@dataclass(frozen=True, slots=True)
class Shift:
    """A number of a spoilt run against that of its twin, as a share of the twin's."""

    number: str
    share: float
    counts: bool  # it lies beyond 5% and beyond the interval printed with it


def shifts(spoilt: Summary, twin: Summary) -> list[Shift]:
    """The largest first, those that count before those that do not."""
    basis = _common_basis(spoilt, twin)
    there = _numbers(twin, basis)
    both = [(name, *here, there[name][0]) for name, here in _numbers(spoilt, basis).items() if name in there]
    compared = [_shift(name, value, interval, true) for name, value, interval, true in both if true > 0]
    return sorted(compared, key=lambda shift: (not shift.counts, -abs(shift.share)))


def _common_basis(*summaries: Summary) -> Basis:
    """As in every comparison of rates: a window and a span differ by the edges of the run, whatever the cause."""
    windows = all(
        summary.rates[name].basis == "window" for summary in summaries for name in RATES if name in summary.rates
    )
    return "window" if windows else "span"


def _numbers(summary: Summary, basis: Basis) -> dict[str, tuple[float, Ends]]:
    return {name: (value, interval) for name, value, interval in _all_numbers(summary, basis) if value is not None}


def _all_numbers(summary: Summary, basis: Basis) -> Iterator[tuple[str, float | None, Ends]]:
    for measure, statistics in STATISTICS.items():
        if measure == "ttft_scheduled" and summary.loop == "closed":
            continue  # a closed loop does not headline it
        described = summary.measures.get(measure)
        for statistic in statistics if described else ():
            yield f"{measure} {statistic}", described[statistic], described.interval(statistic)
    for name in RATES:
        if name in summary.rates:
            rate = summary.rates[name]
            value = rate.over(basis)
            yield name, value, (value, value) if rate.interval is None or basis != rate.basis else rate.interval


def _shift(name: str, value: float, interval: Ends, true: float) -> Shift:
    """An interval that is open on the side of the truth promises nothing there."""
    low, high = interval if interval != OPEN else (None, None)
    beyond = (low is not None and true < low) or (high is not None and true > high)
    share = (value - true) / true
    return Shift(name, share, beyond and abs(share) > SMALL)
