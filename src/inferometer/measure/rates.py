"""What arrived per second, and how much was in flight: over the window, over the run, and the busiest second."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers, seconds_between
from inferometer.measure.inflight import InFlight
from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.window import Window
from inferometer.record.columns import Mask, known
from inferometer.vocabulary import MEASURES, NANOSECONDS

PEAK_STEP = NANOSECONDS // 100  # the busiest second is looked for in steps of 10 ms

Arrived = tuple[Ints, Floats]  # instants, and how much came with each


def arrived(answers: Answers) -> dict[str, Arrived]:
    """What counts for each rate, and when it counts."""
    records = answers.records
    done = answers.ok & known(records.ended_at)
    prompts = known(answers.first_at) & known(records.input_tokens)
    requests = (records.ended_at[done], np.ones(int(done.sum())))
    inputs = (answers.first_at[prompts], records.input_tokens[prompts].astype(np.float64))
    outputs = (records.read_at, records.read_tokens.astype(np.float64))
    total = (np.concatenate((inputs[0], outputs[0])), np.concatenate((inputs[1], outputs[1])))
    offered = (records.scheduled_at, np.ones(len(records)))
    return {
        "request_rate": requests,
        "input_rate": inputs,
        "output_rate": outputs,
        "total_rate": total,
        "offered_rate": offered,
    }


def rates(answers: Answers, window: Window, run: Window) -> dict[str, Any]:
    return {name: _rate(name, came, window, run) for name, came in arrived(answers).items()}


def _rate(name: str, came: Arrived, window: Window, run: Window) -> dict[str, Any]:
    """Millions of instants: nothing is copied that need not be."""
    at, amount = came
    inside = window.holds(at)
    return {
        "unit": MEASURES[name].unit,
        "window": _per_second(float(amount.sum(where=inside)), window),
        "run": _per_second(float(amount.sum(where=run.holds(at))), run),
        "peak_1s": _busiest_second(at, amount, inside, window),
    }


def _per_second(amount: float, window: Window) -> float | None:
    return amount / window.length_s if window.length_s > 0 else None


def busiest_second(at: Ints, amount: Floats, window: Window) -> float | None:
    """The most that came within one second of the window; None for a shorter window."""
    return _busiest_second(at, amount, window.holds(at), window)


def _busiest_second(at: Ints, amount: Floats, inside: Mask, window: Window) -> float | None:
    steps = (window.end_at - window.start_at) // PEAK_STEP
    if steps < 100:
        return None
    if not inside.all():
        at, amount = at[inside], amount[inside]
    step = at - window.start_at
    step //= PEAK_STEP
    np.minimum(step, steps - 1, out=step)
    running = np.concatenate(([0.0], np.cumsum(np.bincount(step, amount, steps))))
    return float(np.max(running[100:] - running[:-100]))


def concurrency(answers: Answers, window: Window, asked: int | None) -> dict[str, Any]:
    """Time-weighted requests in flight, checked by Little's law."""
    records = answers.records
    flight = InFlight.of(records.sent_at, records.ended_at)
    edges = np.array([window.start_at, window.end_at], np.int64)
    some = window.length_s > 0
    average = float(flight.mean(edges)[0]) if some else None
    return {
        "unit": MEASURES["concurrency"].unit,
        "mean": average,
        "max": flight.peak(window.start_at, window.end_at),
        "asked": asked,
        "little": little(answers, window, average),
    }


def little(answers: Answers, window: Window, in_flight: float | None) -> dict[str, Any] | None:
    """N = X * R: in flight, against requests that ended in the window per second times their time in flight."""
    records = answers.records
    left = window.holds(records.ended_at) & known(records.sent_at)
    if not in_flight or not left.any() or window.length_s <= 0:
        return None
    per_s = float(left.sum()) / window.length_s
    time_s = float(seconds_between(records.sent_at[left], records.ended_at[left]).mean())
    product = per_s * time_s
    return {"n": in_flight, "x_per_s": per_s, "r_s": time_s, "x_times_r": product, "ratio": product / in_flight}


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
