"""Whether a window shows a steady state: trends of requests in flight, TTFT and TPOT over it, a part of it with another
level of TPOT, and whether the queue only grows."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from msgspec import structs

from inferometer.measure.describe import describe, share_of
from inferometer.measure.inputs import Answers, Facts, seconds_between
from inferometer.measure.quantiles import Floats, quantile, sample, t_cdf
from inferometer.measure.rates import judged_measure
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.window import InFlight, Window, class_window
from inferometer.plan.limit import Limit, Precision
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import Ints, Mask, Records, known
from inferometer.record.summary import Backlog, LevelsOfPart, PrecisionResult, Steadiness, Trend, TrendStatus
from inferometer.vocabulary import NANOSECONDS

BLOCKS = 20
FEWEST_BLOCKS = 8  # blocks with a value: fewer cannot distinguish a trend from chance
SIGNIFICANT = 0.01
DRIFT = 0.10  # of the mean level over the window: a smaller drift may be real, but changes no conclusion
STATS = ("mean", "p50", "p90", "p99")
TEST = (
    "t-test of slope and bend over 20 block means, with the effective number of blocks by their lag-1 correlation "
    "(Santer et al. 2000); a trend has p < 0.01 and a drift over 10% of the mean"
)


def steadiness(answers: Answers, window: Window, latency: str) -> Steadiness:
    """Requests in flight, the time to the first token and the time per later token must not drift. In an open loop
    (whose headline is the scheduled TTFT) both latencies are compared at equal load: a random load is higher at one
    time than at another, which is no change of the server."""
    if window.length_s <= 0:
        return together({"in_flight": Trend(status="unknown")})
    records, edges = answers.records, block_edges(window, BLOCKS)
    flight = InFlight.of(records.sent_at, records.ended_at)
    offered = Offered.of(answers) if latency == "ttft_scheduled" else None
    trends = {"in_flight": trend(flight.mean(edges)), latency: _drift_of(latency, answers, window, offered)}
    tpot = _drift_of("tpot", answers, window, offered)
    if tpot.status != "unknown":  # answers of one token, or with all tokens in one read
        trends["tpot"] = tpot
    return together(trends)


def together(trends: dict[str, Trend]) -> Steadiness:
    """One status for several series: drifting if any is, steady only if all are."""
    statuses = {trend.status for trend in trends.values()}
    status: TrendStatus = next((worst for worst in _WORST if worst in statuses), "steady")
    known = [trend.p for trend in trends.values() if trend.p is not None]
    return Steadiness(status=status, test=TEST, p=min(known) if known else None, of=trends)


_WORST: tuple[TrendStatus, ...] = ("drifting", "unknown")


def _drift_of(name: str, answers: Answers, window: Window, offered: "Offered | None") -> Trend:
    """The trend of a latency; under a random load it drifts only if it also does so at equal load."""
    values = np.where(answers.ok, request_values(name, answers), np.nan)
    result = _change(name, values, answers, window)
    if result.status != "drifting" or offered is None:
        return result
    load = offered.in_flight(at_arrival=name != "tpot")
    return _change(name, _at_equal_load(values, load, offered.within(window)), answers, window)


def _change(name: str, values: Floats, answers: Answers, window: Window) -> Trend:
    result = _trend_of(values, answers, window)
    return (_phase_of(values, answers, window) or result) if name == "tpot" and result.status == "steady" else result


def _trend_of(values: Floats, answers: Answers, window: Window) -> Trend:
    """A trend over equal times; for a latency that drifts, also its levels after and before the middle, or around the
    middle and elsewhere, whichever differ more."""
    at = answers.records.scheduled_at
    result = trend(block_means(at, values, block_edges(window, BLOCKS)))
    if result.status != "drifting":
        return result
    quarter, middle, last = (window.start_at + n * (window.end_at - window.start_at) // 4 for n in (1, 2, 3))
    parts = [_levels(at, values, window, middle, None), _levels(at, values, window, quarter, last)]
    return structs.replace(result, levels=max(parts, key=lambda levels: levels.difference))


def _phase_of(values: Floats, answers: Answers, window: Window) -> Trend | None:
    """A part of the window with another level of a latency, searched in blocks with equal numbers of requests: a closed
    loop sends few while the server is slow."""
    of = window.holds(answers.records.scheduled_at) & ~np.isnan(values)
    at, values = answers.records.scheduled_at[of], values[of]
    if len(at) < 2 * BLOCKS:
        return None
    order = np.argsort(at, kind="stable")
    cuts = np.linspace(0, len(at), BLOCKS + 1).astype(np.int64)
    sums = np.add.reduceat(values[order], cuts[:-1])
    result, start, end = phase(sums / np.diff(cuts))
    if result.status != "drifting":
        return None
    start_at = int(at[order[cuts[start]]])
    end_at = int(at[order[cuts[end]]]) if end < BLOCKS else None
    return structs.replace(result, levels=_levels(at, values, window, start_at, end_at))


@dataclass(frozen=True, eq=False, slots=True)
class Offered:
    """When each request would be in flight if every token took the same time: the load as the arrivals alone determine
    it, without the effect of the server."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, answers: Answers) -> Self:
        first_s, token_s = (_mean(request_values(name, answers)[answers.ok]) for name in ("ttft", "tpot"))
        stay_s = first_s + token_s * np.nan_to_num(request_values("output_tokens", answers))
        starts = answers.records.scheduled_at
        return cls(starts, starts + (stay_s * NANOSECONDS).astype(np.int64))

    def in_flight(self, *, at_arrival: bool) -> Floats:
        """Requests in flight when each one arrived, or on average during its own flight."""
        flight = InFlight.of(self.starts, self.ends)
        return flight.count(self.starts).astype(np.float64) if at_arrival else flight.during(self.starts, self.ends)

    def within(self, window: Window) -> Mask:
        """Requests that met neither a target that was still filling up nor one that was draining."""
        stay = int((self.ends - self.starts).mean()) if len(self.starts) else 0
        inside: Mask = (self.starts >= window.start_at + stay) & (self.ends <= window.end_at)
        return inside


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def _at_equal_load(values: Floats, load: Floats, within: Mask) -> Floats:
    """Each latency as it would be at the mean load: minus what a linear regression of latency on load explains."""
    of = within & ~np.isnan(values)
    if not of.any():
        return np.full(len(values), np.nan)
    more = load - float(load[of].mean())
    square = float(more[of] @ more[of])
    slope = float(more[of] @ values[of]) / square if square > 0 else 0.0
    return np.where(of, values - max(slope, 0.0) * more, np.nan)


def _levels(at: Ints, values: Floats, window: Window, start_at: int, end_at: int | None) -> LevelsOfPart:
    """The statistics of the requests scheduled in a part of the window, and of all others in it."""
    of = window.holds(at) & ~np.isnan(values)
    there = of & (at >= start_at) & (at < (window.end_at + 1 if end_at is None else end_at))
    return LevelsOfPart(
        start_s=(start_at - window.start_at) / NANOSECONDS,
        end_s=((window.end_at if end_at is None else end_at) - window.start_at) / NANOSECONDS,
        inside=_statistics(values[there]),
        outside=_statistics(values[of & ~there]),
    )


def _statistics(values: Floats) -> dict[str, float]:
    if not len(values):
        return {}
    ordered = sample(values)
    quantiles = {stat: quantile(ordered, share_of(stat)) or 0.0 for stat in STATS[1:]}
    return {"mean": float(values.mean()), **quantiles}


# -- trend -----------------------------------------------------------------------------------------------------------


def trend(means: Floats) -> Trend:
    """The trend of block means in order of time, NaN for an empty block: a line from start to end, or a bend between
    them."""
    where = np.flatnonzero(np.isfinite(means))
    if len(where) < FEWEST_BLOCKS:
        return Trend(status="unknown")
    y = means[where]
    x = where / len(means) - np.mean(where / len(means))
    slope = float(x @ y) / float(x @ x)
    bow = x * x - float((x * x).mean()) - x * (float(x @ (x * x)) / float(x @ x))  # what a line cannot follow
    bend = float(bow @ y) / float(bow @ bow)
    level = abs(float(y.mean()))
    residuals = y - y.mean() - slope * x
    line = slope / level if level else 0.0, _slope_p(x, residuals, slope)
    arc = bend / 4 / level if level else 0.0, 2 * _slope_p(bow, residuals - bend * bow, bend)  # the second of two tests
    bends = _drifts(*arc) and not _drifts(*line)
    drift, p = arc if bends else line
    return Trend(status="drifting" if _drifts(drift, p) else "steady", p=min(p, 1.0), drift=drift, bend=bends)


def _drifts(drift: float, p: float) -> bool:
    return p < SIGNIFICANT and abs(drift) > DRIFT


PHASE = 4  # minimum number of blocks inside a phase, and outside of it
PHASE_EXPLAINS = 0.80  # of the variance of the block means
PHASE_SIZE = 0.15  # of the mean


def phase(means: Floats) -> tuple[Trend, int, int]:
    """A part of the window with another level than the rest, which neither a line nor a bend follows, with its first
    block and the one after its last. Chance produces such parts too, but none that explains nearly all of the
    variance."""
    count, level = len(means), abs(float(means.mean()))
    if count < 2 * PHASE or not level:
        return Trend(status="unknown"), 0, count
    y = means - means.mean()
    running = np.concatenate(([0.0], np.cumsum(y)))
    best, size, where = 0.0, 0.0, (0, count)
    for start in range(count):
        for end in range(start + PHASE, count + 1):
            inside, outside = end - start, count - end + start
            if outside < PHASE:
                continue
            mean = float(running[end] - running[start]) / inside
            explained = mean * mean * inside * count / outside
            if explained > best:
                best, size, where = explained, mean * count / outside, (start, end)
    total = float(y @ y)
    share = best / total if total > 1e-24 * level**2 else 0.0
    drifting = share >= PHASE_EXPLAINS and abs(size) > PHASE_SIZE * level
    return Trend(status="drifting" if drifting else "steady", drift=size / level), *where


def _slope_p(x: Floats, residuals: Floats, slope: float) -> float:
    """Two-sided p of a slope, its standard error and degrees of freedom from the effective number of residuals."""
    square = float(residuals @ residuals)
    if square <= 1e-24 * max(1.0, slope**2):  # a perfect line, or all zeros
        return 0.0 if abs(slope) > 1e-12 else 1.0
    correlation = max(0.0, float(residuals[1:] @ residuals[:-1]) / square)
    effective = len(x) * (1 - correlation) / (1 + correlation)
    degrees = effective - 2
    if degrees < 1:
        return 1.0
    error = math.sqrt(square / degrees / float(x @ x))
    return 2.0 * t_cdf(-abs(slope / error), degrees)


# -- queue -----------------------------------------------------------------------------------------------------------


PROMPT = 3.0  # times the TTFT of a request that met an idle server: longer ones had to wait
FREE_SHARE = 0.05  # of requests, the quickest: they met an idle server, if any did


def backlog(answers: Answers, window: Window, level_since: int | None) -> Backlog | None:
    """Growth of the unfinished requests over the window's second half, when the first answers have had time to finish;
    and whether requests started to wait for good since the load reached its level (None: it is meant to change)."""
    middle_at = (window.start_at + window.end_at) // 2
    half = Window(middle_at, window.end_at, window.rule)
    if half.length_s <= 0:
        return None
    records = answers.records
    waiting = InFlight.of(records.scheduled_at, records.ended_at).mean(block_edges(half, BLOCKS))
    growing = trend(waiting)
    offered = int(half.holds(records.scheduled_at).sum())
    growth = (growing.drift or 0.0) * float(waiting.mean())
    stays_s = seconds_between(records.scheduled_at, records.ended_at)
    longer = trend(block_means(records.scheduled_at, stays_s, block_edges(window, BLOCKS)))
    time_s = stays_s[window.holds(records.scheduled_at)]
    time_s = time_s[~np.isnan(time_s)]
    share, growth_of_wait = (None, None) if level_since is None else _waiting(answers, level_since, window.end_at)
    return Backlog(
        waiting_share=share,
        waiting_growth=growth_of_wait,
        growth=growth,
        growth_share=growth / offered if offered else None,
        p=growing.p,
        status=growing.status,
        time_in_system_s=float(time_s.mean()) if len(time_s) else None,
        time_in_system=longer,
    )


def _waiting(answers: Answers, start_at: int, end_at: int) -> tuple[float | None, float | None]:
    """The share of the load after the last promptly answered request, and the factor by which TTFT grew from the load's
    first half to its last quarter. A queue that only grows never empties, so no later request is served at once."""
    ttft_s, step_s = request_values("ttft_scheduled", answers), np.nan_to_num(request_values("tpot", answers))
    at = answers.records.scheduled_at
    of = answers.ok & ~np.isnan(ttft_s) & (at >= start_at) & (at <= end_at)
    at, ttft_s, step_s = at[of], ttft_s[of], step_s[of]
    if len(at) < 2 * BLOCKS or end_at <= start_at:
        return None, None
    free_s = quantile(sample(ttft_s), FREE_SHARE) or 0.0
    prompt = ttft_s <= PROMPT * (free_s + step_s)
    last_at = int(at[prompt].max()) if prompt.any() else start_at
    elapsed = (at - start_at) / (end_at - start_at)
    first, last = _mean(ttft_s[elapsed < 0.5]), _mean(ttft_s[elapsed >= 0.75])
    return (end_at - last_at) / (end_at - start_at), last / first if first and last else None


# -- blocks ----------------------------------------------------------------------------------------------------------


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


# How precisely a number of a run is known, during and after it; and where a run has settled, so that its warm-up can be
# cut off automatically.

# -- warmup ----------------------------------------------------------------------------------------------------------

BATCH = 5
FEWEST_TO_SETTLE = 10  # batches: fewer cannot distinguish a warm-up from chance


def settled_from(values: Floats) -> int | None:
    """The index of the first value after the run has settled; None if it has not settled, or if there are too few
    values. NaN is ignored."""
    batches = _batch_means(values)
    if len(batches) < FEWEST_TO_SETTLE:
        return None
    errors = _standard_errors(batches)
    best = int(errors.argmin())
    return None if best >= len(batches) // 2 else best * BATCH


def _batch_means(values: Floats) -> Floats:
    """Means of whole batches, without batches that have no value at all."""
    whole = values[: len(values) // BATCH * BATCH].reshape(-1, BATCH)
    there = ~np.isnan(whole)
    counts = there.sum(1)
    sums = np.where(there, whole, 0.0).sum(1)
    means = np.divide(sums, counts, out=np.full(len(whole), np.nan), where=counts > 0)
    return _filled(means)


def _filled(means: Floats) -> Floats:
    """Fills a batch without values with the mean of the previous batch."""
    where = np.where(np.isnan(means), 0, np.arange(len(means)))
    filled: Floats = means[np.maximum.accumulate(where)] if len(means) else means
    return filled[~np.isnan(filled)]


def _standard_errors(batches: Floats) -> Floats:
    """sum (x - mean)^2 / n^2 over the rest, for each number of batches left out up to half (and one beyond, so that a
    minimum at the edge is visible)."""
    centred = batches - batches.mean()  # keeps the difference of large numbers small
    n = np.arange(len(batches), 0, -1)
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum(centred[::-1] ** 2)[::-1]
    errors: Floats = np.maximum(squares - sums**2 / n, 0.0) / n.astype(np.float64) ** 2
    return errors[: len(batches) // 2 + 1]


# -- precision -------------------------------------------------------------------------------------------------------


def precision_of(answers: Answers, plan: Plan, facts: Facts, traffic: Traffic) -> PrecisionResult | None:
    """The precision reached by a class, given its answers; None if no precision was requested."""
    precision = traffic.stop.precision
    if precision is None:
        return None
    chosen = class_window(answers, plan, facts, traffic.name).holds(answers.records.scheduled_at)
    measure = measure_of(precision, traffic)
    named = [] if precision.stat == "mean" else [Limit(measure=measure, stat=precision.stat, value=0.0)]
    measured = describe(answers, chosen, REGISTRY[measure], named, plan.confidence)
    value, interval = measured[precision.stat], measured.interval(precision.stat)
    within = _half_width(value, *interval)
    return PrecisionResult(
        requested=str(precision),
        measure=measure,
        stat=precision.stat,
        value=value,
        interval=interval,
        within=within,
        met=within is not None and within <= precision.within,
    )


def measure_of(precision: Precision, traffic: Traffic) -> str:
    """In an open loop a latency counts from the scheduled time, as everywhere."""
    return judged_measure(precision.measure, traffic.load.open_loop)


def settled_at(answers: Answers, traffic: Traffic) -> int | None:
    """When a class has settled, by the measure whose precision is required: the scheduled time of its first settled
    request."""
    precision, records = traffic.stop.precision, answers.records
    if precision is None or not len(records):
        return None
    order = np.argsort(records.scheduled_at, kind="stable")
    values = _per_request(answers, measure_of(precision, traffic))[order]
    first = settled_from(np.where(answers.ok[order], values, np.nan))
    return None if first is None else int(records.scheduled_at[order[first]])


def _per_request(answers: Answers, name: str) -> Any:
    """Gaps belong to no request, so the mean gap of a request is used instead."""
    return request_values(name if REGISTRY[name].per_request is not None else "tpot", answers)


def decided(records: Records) -> Records:
    """The records of a run in progress that do not depend on requests still in flight: those scheduled at least as long
    ago as the longest answer took. Of the later requests only the quick ones have ended."""
    done = known(records.ended_at)
    if not done.any():
        return records.take(np.zeros(len(records), np.bool_))
    longest = int((records.ended_at[done] - records.scheduled_at[done]).max())
    return records.take(records.scheduled_at <= int(records.ended_at[done].max()) - longest)


def _half_width(value: float | None, low: float | None, high: float | None) -> float | None:
    if value is None or low is None or high is None or value <= 0:
        return None
    return (high - low) / 2 / value
