"""What arrived per second, and how much was in flight: over the window, over the run, and the busiest second."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from inferometer.measure.answers import Answers, seconds_between
from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.window import InFlight, Window
from inferometer.record.columns import Mask, known
from inferometer.record.summary import Concurrency, Little, Rate
from inferometer.vocabulary import MEASURES, NANOSECONDS

PEAK_STEP = NANOSECONDS // 100  # the busiest second is looked for in steps of 10 ms

Arrived = tuple[Ints, Floats]  # instants, and how much came with each


def arrived(answers: Answers) -> dict[str, Arrived]:
    """What counts for each rate, and when it counts: all of it at once, for reads that are held in memory."""
    records, others = answers.records, _arrived_once(answers)
    inputs, outputs = others["input_rate"], (records.read_at, records.read_tokens.astype(np.float64))
    total = (np.concatenate((inputs[0], outputs[0])), np.concatenate((inputs[1], outputs[1])))
    return {**others, "output_rate": outputs, "total_rate": total}


def _arrived_once(answers: Answers) -> dict[str, Arrived]:
    """What comes once for each request."""
    records = answers.records
    done = answers.ok & known(records.ended_at)
    prompts = known(answers.first_at) & known(records.input_tokens)
    return {
        "request_rate": (records.ended_at[done], np.ones(int(done.sum()))),
        "input_rate": (answers.first_at[prompts], records.input_tokens[prompts].astype(np.float64)),
        "offered_rate": (records.scheduled_at, np.ones(len(records))),
    }


def rates(answers: Answers, window: Window, run: Window) -> dict[str, Rate]:
    """Amounts are whole numbers: their sums are the same in any order and in any pieces."""
    once = _arrived_once(answers)
    batches = answers.records.read_batches(None, ("read_at", "read_tokens"))
    inputs = _Amounts.of([once["input_rate"]], window, run)
    outputs = _Amounts.of(((reads.at, reads.tokens) for reads in batches), window, run)
    return {
        "request_rate": _rate("request_rate", _Amounts.of([once["request_rate"]], window, run), window, run),
        "input_rate": _rate("input_rate", inputs, window, run),
        "output_rate": _rate("output_rate", outputs, window, run),
        "total_rate": _rate("total_rate", inputs + outputs, window, run),
        "offered_rate": _rate("offered_rate", _Amounts.of([once["offered_rate"]], window, run), window, run),
    }


@dataclass(frozen=True, eq=False, slots=True)
class _Amounts:
    """What arrived in the window and in the run, and in each of the window's steps of 10 ms."""

    window: float
    run: float
    steps: Floats

    @classmethod
    def of(cls, pieces: Iterable[tuple[Ints, Any]], window: Window, run: Window) -> Self:
        in_window = in_run = 0.0
        count = _steps(window)
        steps = np.zeros(count)
        for at, amount in pieces:
            inside = window.holds(at)
            in_run += float(amount.sum(where=run.holds(at)))
            if not inside.any():
                continue
            in_window += float(amount.sum(where=inside))
            if count:
                first, sums = _by_step(at, amount, inside, window, count)
                steps[first : first + len(sums)] += sums
        return cls(in_window, in_run, steps)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.window + other.window, self.run + other.run, self.steps + other.steps)


def _rate(name: str, came: _Amounts, window: Window, run: Window) -> Rate:
    return Rate(
        unit=MEASURES[name].unit,
        window=_per_second(came.window, window),
        run=_per_second(came.run, run),
        peak_1s=_busiest(came.steps),
    )


def _per_second(amount: float, window: Window) -> float | None:
    return amount / window.length_s if window.length_s > 0 else None


def busiest_second(at: Ints, amount: Floats, window: Window) -> float | None:
    """The most that came within one second of the window; None for a shorter window."""
    return _busiest(_Amounts.of([(at, amount)], window, window).steps)


def _busiest(steps: Floats) -> float | None:
    if not len(steps):
        return None
    running = np.concatenate(([0.0], np.cumsum(steps)))
    seconds = running[100:]  # a day has 8.6 million steps: no more arrays of them than need be
    seconds -= running[:-100].copy()
    return float(seconds.max())


def _steps(window: Window) -> int:
    """How many steps of 10 ms the window has; none where it is shorter than a second."""
    steps = (window.end_at - window.start_at) // PEAK_STEP
    return steps if steps >= 100 else 0


def _by_step(at: Ints, amount: Any, inside: Mask, window: Window, steps: int) -> tuple[int, Floats]:
    """The first step in which anything came, and what came in it and in those behind it."""
    if not inside.all():
        at, amount = at[inside], amount[inside]
    step = at - window.start_at
    step //= PEAK_STEP
    np.minimum(step, steps - 1, out=step)
    first = int(step.min())
    step -= first
    return first, np.bincount(step, amount).astype(np.float64, copy=False)


def concurrency(answers: Answers, window: Window, asked: int | None) -> Concurrency:
    """Time-weighted requests in flight, checked by Little's law."""
    records = answers.records
    flight = InFlight.of(records.sent_at, records.ended_at)
    edges = np.array([window.start_at, window.end_at], np.int64)
    some = window.length_s > 0
    average = float(flight.mean(edges)[0]) if some else None
    return Concurrency(
        unit=MEASURES["concurrency"].unit,
        mean=average,
        max=flight.peak(window.start_at, window.end_at),
        requested=asked,
        little=little(answers, window, average),
    )


def little(answers: Answers, window: Window, in_flight: float | None) -> Little | None:
    """N = X * R: in flight, against requests that ended in the window per second times their time in flight."""
    records = answers.records
    left = window.holds(records.ended_at) & known(records.sent_at)
    if not in_flight or not left.any() or window.length_s <= 0:
        return None
    per_s = float(left.sum()) / window.length_s
    time_s = float(seconds_between(records.sent_at[left], records.ended_at[left]).mean())
    product = per_s * time_s
    return Little(n=in_flight, x_per_s=per_s, r_s=time_s, x_times_r=product, ratio=product / in_flight)


def block_edges(window: Window, blocks: int) -> Ints:
    return np.linspace(window.start_at, window.end_at, blocks + 1).astype(np.int64)


def block_means(at: Ints, values: Floats, edges: Ints) -> Floats:
    """Mean of the values whose instant lies in each block, NaN for an empty block."""
    fine: Mask = ~np.isnan(values) & (at >= edges[0]) & (at <= edges[-1])
    blocks = len(edges) - 1
    block = np.clip(np.searchsorted(edges, at[fine], side="right") - 1, 0, blocks - 1)
    counts = np.bincount(block, minlength=blocks)
    sums = np.bincount(block, values[fine], blocks)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
