"""Goodput: requests scheduled in the window that met every limit, and stalls: answers with a gap over the limit."""

import numpy as np

from inferometer.measure.inputs import Answers
from inferometer.measure.quantiles import Floats, share_interval
from inferometer.measure.rates import Span
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.window import Window
from inferometer.plan.limit import Limit
from inferometer.record.columns import Mask
from inferometer.record.summary import Attainment, Basis, Goodput, Stalls
from inferometer.vocabulary import MEASURES

STALL_S = 1.0  # a pause that every reader notices, where the plan names no limit on icl or stall
SCHEDULED = {name: f"{name}_scheduled" for name in ("ttft", "ttfo", "e2e", "done")}


def judged_measure(name: str, open_loop: bool) -> str:
    """In an open loop a limit on a latency is one on the latency since the request was due."""
    return SCHEDULED.get(name, name) if open_loop else name


def request_limits(limits: list[Limit]) -> list[Limit]:
    """The limits that one request can keep or miss: those without a statistic; where there is none, the widest
    for each measure of those with one, because a limit on p50 is not meant for every request."""
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
    """None without a limit that a request can keep. A failure is a miss; an undefined measure is counted apart."""
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
    """For each limit that a request can keep: the share of requests that did, with its interval, and the share that
    the limit asks for. A failure is a miss."""
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
    """`p99 < v` requires that 99% are below, `p1 > v` that 99% are above; without a quantile all have to be."""
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
