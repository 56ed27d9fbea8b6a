"""Arrivals per second and requests in flight: over the window, over the run, and in the busiest second."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from inferometer.measure.inputs import Answers, seconds_between
from inferometer.measure.quantiles import Floats, Ints, share_interval
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.window import InFlight, Window
from inferometer.plan.limit import Limit
from inferometer.record.columns import MISSING, Mask, known
from inferometer.record.summary import Attainment, Basis, Concurrency, Goodput, Little, Rate, Stalls
from inferometer.vocabulary import MEASURES, NANOSECONDS

PEAK_STEP = NANOSECONDS // 100  # the busiest second is searched in steps of 10 ms

Arrived = tuple[Ints, Floats]  # instants, and the amount that arrived with each


def arrived(answers: Answers, name: str) -> Iterator[Arrived]:
    """The amounts that a rate counts and their instants, in pieces; empty if the name is no rate of requests or
    tokens."""
    once = _arrived_once(answers)
    if name in once:
        yield once[name]
    if name == "total_rate":
        yield once["input_rate"]
    if name in ("output_rate", "total_rate"):
        for reads in answers.records.read_batches(None, ("read_at", "read_tokens")):
            yield reads.at, reads.tokens.astype(np.float64)


def _arrived_once(answers: Answers) -> dict[str, Arrived]:
    """Amounts that occur once per request."""
    records = answers.records
    done = answers.ok & known(records.ended_at)
    prompts = known(answers.first_at) & known(records.input_tokens)
    return {
        "request_rate": (records.ended_at[done], np.ones(int(done.sum()))),
        "input_rate": (answers.first_at[prompts], records.input_tokens[prompts].astype(np.float64)),
        "offered_rate": (records.scheduled_at, np.ones(len(records))),
    }


LONG_ENOUGH = 20  # mean stays: a window counts about one stay too much or too little, 5% of a window this long
AT_ONCE = 0.01  # of a mean stay: requests all scheduled within so short a time arrived at once


@dataclass(frozen=True, eq=False, slots=True)
class Span:
    """The measured part of a run as a stopwatch would take it: from the first request sent to the last token
    received."""

    start_at: int
    end_at: int
    requests: Mask  # the requests it covers

    @property
    def length_s(self) -> float:
        return (self.end_at - self.start_at) / NANOSECONDS


def span_of(answers: Answers, requests: Mask) -> Span:
    """The span of the requests after the warm-up, or of a stage's requests."""
    records = answers.records
    sent = records.sent_at[requests & known(records.sent_at)]
    start_at = int(sent.min()) if len(sent) else 0
    ends = np.where(known(answers.last_at), answers.last_at, np.where(answers.ok, records.ended_at, MISSING))[requests]
    return Span(start_at, max(start_at, int(ends.max()) if len(ends) else start_at), requests)


def basis_for(answers: Answers, window: Window, chosen: Mask) -> Basis:
    """Which rate is the headline: the window's, if the window is so long that its edges matter little."""
    records = answers.records
    stays = seconds_between(records.sent_at, np.where(known(answers.last_at), answers.last_at, records.ended_at))
    of = chosen & answers.ok & ~np.isnan(stays)
    if not of.any():
        return "span"
    stay_s, due_at = float(stays[of].mean()), records.scheduled_at[of]
    at_once = int(due_at.max() - due_at.min()) / NANOSECONDS <= AT_ONCE * stay_s and int(of.sum()) > 1
    return "window" if window.length_s >= LONG_ENOUGH * stay_s and not at_once else "span"


def rates(answers: Answers, window: Window, span: Span, basis: Basis) -> dict[str, Rate]:
    """The rates of a window. Amounts are whole numbers, so their sums do not depend on order or batching."""
    once = _arrived_once(answers)
    batches = answers.records.read_batches(None, ("read_at", "read_tokens"))
    inputs = _Amounts.of([once["input_rate"]], window)
    outputs = _Amounts.of(((reads.at, reads.tokens) for reads in batches), window)
    arrived = {
        "request_rate": _Amounts.of([once["request_rate"]], window),
        "input_rate": inputs,
        "output_rate": outputs,
        "total_rate": inputs + outputs,
    }
    whole = _over_span(answers, span)
    offered = _Amounts.of([once["offered_rate"]], window)
    return {
        **{name: _rate(name, came, window, whole[name], basis) for name, came in arrived.items()},
        "offered_rate": _rate("offered_rate", offered, window, None, "window"),
    }


def _over_span(answers: Answers, span: Span) -> dict[str, float | None]:
    """Rates per second of the span, from the amounts of its requests."""
    records, of = answers.records, span.requests
    answered = of & answers.ok & known(records.ended_at)
    prompts = of & known(answers.first_at) & known(records.input_tokens)
    inputs, outputs = float(records.input_tokens[prompts].sum()), float(answers.read_tokens[of].sum())
    amounts = {
        "request_rate": float(answered.sum()),
        "input_rate": inputs,
        "output_rate": outputs,
        "total_rate": inputs + outputs,
    }
    return {name: amount / span.length_s if span.length_s > 0 else None for name, amount in amounts.items()}


@dataclass(frozen=True, eq=False, slots=True)
class _Amounts:
    """What arrived in the window, and in each of its steps of 10 ms."""

    window: float
    steps: Floats

    @classmethod
    def of(cls, pieces: Iterable[tuple[Ints, Any]], window: Window) -> Self:
        in_window = 0.0
        count = _steps(window)
        steps = np.zeros(count)
        for at, amount in pieces:
            inside = window.holds(at)
            if not inside.any():
                continue
            in_window += float(amount.sum(where=inside))
            if count:
                first, sums = _by_step(at, amount, inside, window, count)
                steps[first : first + len(sums)] += sums
        return cls(in_window, steps)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.window + other.window, self.steps + other.steps)


def _rate(name: str, came: _Amounts, window: Window, over_span: float | None, basis: Basis) -> Rate:
    over_window = _per_second(came.window, window)
    return Rate(
        unit=MEASURES[name].unit,
        value=over_window if basis == "window" else over_span,
        basis=basis,
        window=over_window,
        span=over_span,
        peak_1s=_busiest(came.steps),
    )


def _per_second(amount: float, window: Window) -> float | None:
    return amount / window.length_s if window.length_s > 0 else None


def busiest_second(at: Ints, amount: Floats, window: Window) -> float | None:
    """The largest amount within one second of the window; None for a shorter window."""
    return _busiest(_Amounts.of([(at, amount)], window).steps)


def _busiest(steps: Floats) -> float | None:
    if not len(steps):
        return None
    running = np.concatenate(([0.0], np.cumsum(steps)))
    seconds = running[100:]  # a day has 8.6 million steps, so allocate no more arrays of them than necessary
    seconds -= running[:-100].copy()
    return float(seconds.max())


def _steps(window: Window) -> int:
    """How many steps of 10 ms the window has; 0 if it is shorter than a second."""
    steps = (window.end_at - window.start_at) // PEAK_STEP
    return steps if steps >= 100 else 0


def _by_step(at: Ints, amount: Any, inside: Mask, window: Window, steps: int) -> tuple[int, Floats]:
    """The first step in which anything arrived, and the amounts in it and in the following steps."""
    if not inside.all():
        at, amount = at[inside], amount[inside]
    step = at - window.start_at
    step //= PEAK_STEP
    np.minimum(step, steps - 1, out=step)
    first = int(step.min())
    step -= first
    return first, np.bincount(step, amount).astype(np.float64, copy=False)


def concurrency(answers: Answers, window: Window, span: Span, basis: Basis, requested: int | None) -> Concurrency:
    """Time-weighted requests in flight; checked by Little's law if the window is long compared with a stay."""
    records = answers.records
    flight = InFlight.of(records.sent_at, records.ended_at)
    in_window, in_span = (
        float(flight.mean(np.array([part.start_at, part.end_at], np.int64))[0]) if part.length_s > 0 else None
        for part in (window, span)
    )
    return Concurrency(
        unit=MEASURES["concurrency"].unit,
        mean=in_window if basis == "window" else in_span,
        window=in_window,
        max=flight.peak(window.start_at, window.end_at),
        requested=requested,
        little=little(answers, window, in_window) if basis == "window" else None,
    )


def little(answers: Answers, window: Window, in_flight: float | None) -> Little | None:
    """N = X * R: requests in flight, against requests completed per second in the window times their time in flight."""
    records = answers.records
    left = window.holds(records.ended_at) & known(records.sent_at)
    if not in_flight or not left.any() or window.length_s <= 0:
        return None
    per_s = float(left.sum()) / window.length_s
    time_s = float(seconds_between(records.sent_at[left], records.ended_at[left]).mean())
    product = per_s * time_s
    return Little(n=in_flight, x_per_s=per_s, r_s=time_s, x_times_r=product, ratio=product / in_flight)


# -- goodput -----------------------------------------------------------------------------------------------------------

# Goodput: requests scheduled in the window that met every limit, and stalls: answers with a gap over the limit.

STALL_S = 1.0  # a pause that every reader notices, used if the plan has no limit on icl or stall
SCHEDULED = {name: f"{name}_scheduled" for name in ("ttft", "ttfo", "e2e", "done")}


def judged_measure(name: str, open_loop: bool) -> str:
    """In an open loop a limit on a latency applies to the latency since the scheduled time."""
    return SCHEDULED.get(name, name) if open_loop else name


def request_limits(limits: list[Limit]) -> list[Limit]:
    """The limits that a single request can meet or miss: those without a statistic. Without any, the widest limit with
    a statistic for each measure, because a limit on p50 is not meant for every request."""
    fitting = [limit for limit in limits if REGISTRY[limit.measure].per_request is not None]
    plain = [limit for limit in fitting if limit.stat is None]
    if plain:
        return plain
    widest: dict[tuple[str, str], Limit] = {}
    for limit in fitting:
        key = (limit.measure, limit.op[0])
        widest[key] = max((limit, widest.get(key, limit)), key=_width)
    return list(widest.values())


def _width(limit: Limit) -> float:
    return limit.value if limit.op[0] == "<" else -limit.value


def goodput(
    answers: Answers, chosen: Mask, window: Window, span: Span, basis: Basis, limits: list[Limit], open_loop: bool
) -> Goodput | None:
    """None without a limit that a request can meet. A failure is a miss; an undefined measure is counted separately."""
    used = request_limits(limits)
    if not used:
        return None
    missed, undefined = answers.failed.copy(), np.zeros(len(answers), np.bool_)
    for limit in used:
        values = request_values(judged_measure(limit.measure, open_loop), answers)
        undefined |= np.isnan(values)
        missed |= ~np.isnan(values) & ~_meets(limit, values)
    judged = chosen & ~answers.censored
    good = ~answers.censored & ~missed & ~undefined
    met, lost = int((chosen & good).sum()), int((judged & missed).sum())
    in_window = met / window.length_s if window.length_s > 0 else None
    in_span = int((span.requests & good).sum()) / span.length_s if span.length_s > 0 else None
    return Goodput(
        unit=MEASURES["goodput"].unit,
        value=in_window if basis == "window" else in_span,
        window=in_window,
        span=in_span,
        share=met / (met + lost) if met + lost else None,
        met=met,
        missed=lost,
        undefined=int((judged & ~missed & undefined).sum()),
        censored=int((chosen & answers.censored).sum()),
        limits=[str(limit) for limit in used],
    )


def attainments(
    answers: Answers, chosen: Mask, limits: list[Limit], open_loop: bool, confidence: float
) -> list[Attainment]:
    """For each limit that a single request can meet: the share of requests that did, with its interval, and the share
    that the limit requires. A failure is a miss."""
    return [
        _attainment(answers, chosen & ~answers.censored, limit, open_loop, confidence)
        for limit in limits
        if REGISTRY[limit.measure].per_request is not None and (limit.stat is None or limit.stat[0] == "p")
    ]


def _attainment(answers: Answers, judged: Mask, limit: Limit, open_loop: bool, confidence: float) -> Attainment:
    values = request_values(judged_measure(limit.measure, open_loop), answers)
    defined = ~np.isnan(values)
    kept = (defined & _meets(limit, values) & ~answers.failed)[judged & (defined | answers.failed)]
    share, required = share_interval(kept.astype(np.float64), confidence), _required(limit)
    return Attainment(
        limit=str(limit),
        share=share.value,
        interval=share.interval,
        required=required,
        needed=share.needed(required, confidence),
    )


def _required(limit: Limit) -> float:
    """`p99 < v` requires that 99% are below, `p1 > v` that 99% are above; without a quantile all requests have to meet
    it."""
    if limit.stat is None:
        return 1.0
    share = float(limit.stat[1:]) / 100
    return share if limit.op[0] == "<" else 1 - share


def _meets(limit: Limit, values: Floats) -> Mask:
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[limit.op]
    met: Mask = compare(values, limit.value)
    return met


def stalls(answers: Answers, chosen: Mask, limits: list[Limit]) -> Stalls:
    over_s = max((limit.value for limit in limits if limit.measure in ("icl", "stall")), default=STALL_S)
    longest = request_values("stall", answers)[chosen & answers.ok]
    longest = longest[~np.isnan(longest)]
    share = float((longest > over_s).mean()) if len(longest) else None
    return Stalls(over_s=over_s, share=share)
