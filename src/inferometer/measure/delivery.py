"""The proof that the offered load was delivered: nothing missing, nothing late, and the planned arrival process.

Arrivals are rescaled to a clock that runs at the planned rate (time rescaling, Brown et al. 2002): on that clock the
gaps of a constant rate, of a ramp and of stages all have mean 1, so one test covers them all.
"""

import math
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from inferometer.measure.inputs import Answers, Facts, WorkerFacts
from inferometer.measure.quantiles import Floats, Ints, gamma_cdf, kolmogorov_p, ks_statistic, quantile, sample
from inferometer.measure.registry import request_values
from inferometer.measure.window import start_of
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import known
from inferometer.record.summary import Delivery, Kolmogorov, Lateness, WorkerDelivery
from inferometer.vocabulary import NANOSECONDS

FEWEST_GAPS = 20
ALIKE_S = 0.001
COUNTED_OVER = 10.0  # bin width of the index of dispersion, in mean gaps
FEWEST_BINS = 10
LATE_START_S = 0.010  # after the common start: a process takes less than this to wake up
LAGS_S = 0.005  # send delay p99: below it no worker counts as lagging
LAGS = 3.0  # times the median of the workers


@dataclass(frozen=True, slots=True)
class RatePiece:
    """A stage of an open loop: the rate goes from `rate` to `to` over `length_s` (inf: no end)."""

    begins_s: float
    length_s: float
    rate: float
    to: float
    process: str
    cv: float

    def passed(self, at_s: Floats) -> Floats:
        """Expected arrivals from the start of the stage to each instant: r0 t + (r1 - r0) t² / 2L."""
        t = at_s - self.begins_s
        slope = 0.0 if math.isinf(self.length_s) else (self.to - self.rate) / self.length_s
        return self.rate * t + slope * t * t / 2


def delivery(answers: Answers, plan: Plan, traffic: Traffic, facts: Facts) -> Delivery:
    """The delivery of one traffic class. `lateness` is the send delay of everything that was sent, including
    warm-up."""
    records = answers.records
    arrivals = int((records.turn == 0).sum())
    sent = int(known(records.sent_at).sum())
    planned = facts.planned.get(traffic.name)
    result = Delivery(
        planned=planned,
        arrivals=arrivals,
        sent=sent,
        unsent=len(records) - sent,
        resent=int((records.retry_ns > 0).sum()),  # the kept-alive connection turned out to be closed
        shortfall=max(0, planned - arrivals) if planned is not None else None,
        lateness=_lateness(answers),
        workers=workers_behind(answers, traffic, facts),
    )
    return _with_process(result, answers, plan, traffic, facts) if traffic.load.open_loop else result


def _lateness(answers: Answers) -> Lateness:
    delays = request_values("send_delay", answers)
    of = sample(delays[~np.isnan(delays)])
    largest = of.largest if len(of) else None
    return Lateness(p50=quantile(of, 0.5), p99=quantile(of, 0.99), max=largest)


def workers_behind(answers: Answers, traffic: Traffic, facts: Facts) -> list[WorkerDelivery]:
    """The workers that started late, were lost, or sent much later than the others."""
    records = answers.records
    delays = request_values("send_delay", answers)
    shards = sorted(set(records.shard.tolist()))  # `np.unique` imports masked arrays
    late_s = {shard: _p99(delays[records.shard == shard]) for shard in shards} if len(shards) > 1 else {}
    usual_s = float(np.median([late for late in late_s.values() if late is not None])) if any(late_s.values()) else 0.0
    known = {worker.worker: worker for worker in facts.workers}
    behind = []
    for number in sorted({*known, *shards}):
        worker, own_s = known.get(number, WorkerFacts(number)), late_s.get(number)
        lags = own_s is not None and own_s > max(LAGS_S, LAGS * usual_s)
        if worker.lost is None and worker.late_start_s <= LATE_START_S and not lags:
            continue
        behind.append(
            WorkerDelivery(
                worker=number,
                status="lost" if worker.lost else "lagging" if lags else "late start",
                host=worker.host,
                why=worker.lost,
                planned=worker.planned.get(traffic.name),
                arrivals=int(((records.turn == 0) & (records.shard == number)).sum()),
                late_start_s=worker.late_start_s,
                send_delay_p99_s=own_s,
            )
        )
    return behind


def _p99(delays: Floats) -> float | None:
    return quantile(sample(delays[~np.isnan(delays)]), 0.99)


def _with_process(of: Delivery, answers: Answers, plan: Plan, traffic: Traffic, facts: Facts) -> Delivery:
    """How the gaps between arrivals compare with the planned process: as sent, or, under a cap, as scheduled."""
    capped = traffic.load.max_concurrency is not None
    pieces = planned_pieces(traffic, plan)
    gaps, stage = _rescaled_gaps(answers, pieces, start_of(answers.records, facts), capped)
    named = replace(of, process=_name(pieces), gaps_of="scheduled_at" if capped else "sent_at", gaps=len(gaps))
    if len(gaps) < FEWEST_GAPS or traffic.load.type == "replay":  # a recording is no process: the plan is its times
        return named
    middle = float(gaps.mean())
    return replace(
        named,
        gap_mean=middle,
        gap_cv=float(gaps.std()) / middle if middle > 0 else None,
        gap_cv_named=_named_cv(pieces),
        dispersion=_dispersion(gaps),
        ks=_ks(gaps, stage, pieces),
    )


def planned_pieces(traffic: Traffic, plan: Plan) -> list[RatePiece]:
    load = traffic.load
    if load.type == "stages":
        ends = np.cumsum([0.0, *(stage.duration for stage in load.stages)])
        return [
            RatePiece(float(begin), stage.duration, rate, rate if stage.to is None else stage.to, stage.process, cv)
            for begin, stage in zip(ends, load.stages, strict=False)
            for rate, cv in [(stage.rate or 0.0, _cv(stage.process, stage.cv))]
        ]
    rate = load.rate or 0.0
    if load.type == "ramp":
        return [RatePiece(0.0, _ramp_length_s(traffic, plan), rate, load.to or 0.0, "poisson", 1.0)]
    return [RatePiece(0.0, math.inf, rate, rate, load.type, _cv(load.type, load.cv))]


def _ramp_length_s(traffic: Traffic, plan: Plan) -> float:
    """A ramp lasts as long as the load; if the load ends after n requests, that takes n = L (r0 + r1) / 2."""
    stop, load = traffic.stop, traffic.load
    if stop.duration is not None:
        return stop.duration + plan.warmup.duration
    planned = (stop.sessions or stop.requests or 0) + plan.warmup.requests
    return 2 * planned / ((load.rate or 0.0) + (load.to or 0.0)) or math.inf


def _cv(process: str, cv: float) -> float:
    return {"constant": 0.0, "poisson": 1.0}.get(process, cv)


def _name(pieces: list[RatePiece]) -> str:
    return " then ".join(dict.fromkeys(piece.process for piece in pieces))


def _named_cv(pieces: list[RatePiece]) -> float | None:
    cvs = {piece.cv for piece in pieces}
    return cvs.pop() if len(cvs) == 1 else None


def _rescaled_gaps(answers: Answers, pieces: list[RatePiece], start_at: int, capped: bool) -> tuple[Floats, Ints]:
    """Gaps in units of the planned mean gap, and the stage of each; a gap that spans two stages belongs to neither."""
    records = answers.records
    instants = records.scheduled_at if capped else records.sent_at
    first = (records.turn == 0) & known(instants)
    at, stage = instants[first], np.clip(records.stage[first], 0, len(pieces) - 1)
    order = np.argsort(at, kind="stable")
    at_s, stage = (at[order] - start_at) / NANOSECONDS, stage[order]
    passed = np.zeros(len(at_s))
    for number, piece in enumerate(pieces):
        passed[stage == number] = piece.passed(at_s[stage == number])
    same = stage[1:] == stage[:-1]
    return np.diff(passed)[same], stage[1:][same]


def _dispersion(gaps: Floats) -> float | None:
    """Variance by mean of arrivals per bin of 10 planned gaps: 0 evenly spaced, 1 Poisson, about cv² in general."""
    at = np.cumsum(gaps)
    bins = int(at[-1] // COUNTED_OVER)
    if bins < FEWEST_BINS:
        return None
    _, counts = np.unique(at[at < bins * COUNTED_OVER] // COUNTED_OVER, return_counts=True)
    mean = counts.sum() / bins  # most bins of a load that paused for years are empty: they are counted, not allocated
    squares = float(np.square(counts - mean).sum() + (bins - len(counts)) * mean**2)
    return float(squares / (bins - 1) / mean) if mean else None


def _ks(gaps: Floats, stage: Ints, pieces: list[RatePiece]) -> Kolmogorov | None:
    """Kolmogorov-Smirnov: transformed by its own planned distribution, each gap gives a uniform number if the process
    is the planned one. Gaps below a millisecond count as equal: bursts have many, and no two requests are sent, or
    served, closer than that."""
    uniform, least = [], 0.0
    for number, piece in enumerate(pieces):
        if piece.cv > 0:
            shape = piece.cv**-2  # Poisson is the gamma of cv 1
            uniform.append(gamma_cdf(shape, gaps[stage == number] * shape))
            shortest = np.array([ALIKE_S * max(piece.rate, piece.to) * shape])
            least = max(least, float(gamma_cdf(shape, shortest)[0]))
    values = np.concatenate([*uniform, np.empty(0)])
    if len(values) < FEWEST_GAPS:
        return None
    statistic = ks_statistic(values, least)
    return Kolmogorov(statistic=statistic, p=kolmogorov_p(statistic, len(values)))
