"""What the clocks of several hosts make of the numbers that combine them: window edges, rates, requests in flight, the
common start.

Instants of one host may lie wrong by u against another's, so that at each edge of a window of length L what belongs to
u may be on the wrong side: rates and the mean in flight are off by 2 u / L of themselves at most. Durations within a
request are one clock's and have no such error.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import structs

from inferometer.record.summary import Clocks, Section, Summary

Part = TypeVar("Part", bound=Section)


def with_clock_errors(summary: Summary, clocks: Clocks, late_starts_s: Iterable[float] = ()) -> Summary:
    """The summary with its clocks, and with their error in every part of it; unknown stays unknown. A worker knows how
    late it started by its own clock, on which the common start is as uncertain as the clock is."""
    off_s = clocks.uncertainty_s
    if off_s is None:
        return structs.replace(summary, clocks=clocks)
    known = structs.replace(
        summary, clocks=structs.replace(clocks, start_spread_s=max(late_starts_s, default=0.0) + off_s)
    )
    if not off_s:
        return known
    return structs.replace(
        _with_errors(known, off_s),
        stages=[_with_errors(stage, off_s) for stage in known.stages],
        traffic={
            name: structs.replace(
                _with_errors(part, off_s), stages=[_with_errors(stage, off_s) for stage in part.stages]
            )
            for name, part in known.traffic.items()
        },
    )


def _with_errors(part: Part, off_s: float) -> Part:
    window, concurrency = part.window, part.concurrency
    share = 2 * off_s / window.length_s if window.length_s else None

    def of(value: float | None) -> float | None:
        return None if value is None or share is None else value * share

    return structs.replace(
        part,
        window=structs.replace(window, clock_error_s=off_s),
        rates={name: structs.replace(rate, clock_error=of(rate.value)) for name, rate in part.rates.items()},
        concurrency=structs.replace(concurrency, clock_error=of(concurrency.mean)),
    )
