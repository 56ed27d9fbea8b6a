"""`Evidence`: the requests of a run that a comparison can resample, and the noise of each of its numbers. Consecutive
requests are drawn in blocks, because a slow second is slow for all of them."""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from inferometer.judge.changes import change_points, regimes
from inferometer.measure.describe import share_of
from inferometer.measure.inputs import Answers
from inferometer.measure.quantiles import Floats, Ints, block_count
from inferometer.measure.rates import arrived
from inferometer.measure.registry import REGISTRY, Measure
from inferometer.measure.tally import Tally, gap_batches
from inferometer.measure.values import Quantity
from inferometer.measure.window import Window
from inferometer.record.columns import Mask
from inferometer.record.run import Run
from inferometer.vocabulary import NANOSECONDS, MeasureName

# -- bootstrap -------------------------------------------------------------------------------------------------------

RESAMPLES = 200  # the standard error of a standard error is then 5%
MOST_BINS = 2048  # distinct ranks in which a resampled quantile is located

Statistic = Callable[[Floats], Floats]


@lru_cache(maxsize=16)  # measures of the same requests use the same draws
def draws(blocks: int, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """How often each block is drawn, `blocks` in total in each resample."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(blocks, np.full(blocks, 1 / blocks), resamples).astype(np.float64)


def quantile_of(values: Floats, block: Ints, blocks: int, q: float, weights: Floats | None = None) -> Statistic:
    """A quantile of values that each belong to a block; as an order statistic, of at most 2,048 ranks."""
    order = np.argsort(values, kind="stable")
    bins = min(len(values), MOST_BINS)
    bin_of = np.arange(len(values)) * bins // max(len(values), 1)
    cell = block[order] * bins + bin_of
    table = np.bincount(cell, None if weights is None else weights[order], blocks * bins).reshape(blocks, bins)
    last = np.searchsorted(bin_of, np.arange(bins), side="right") - 1
    top = values[order][last]

    def resampled(drawn: Floats) -> Floats:
        running = (drawn @ table).cumsum(axis=1)
        reached = running >= q * running[:, -1:] * (1 - 1e-12)
        quantiles: Floats = top[reached.argmax(axis=1)]
        return quantiles

    return resampled


def mean_of(values: Floats, block: Ints, blocks: int, weights: Floats | None = None) -> Statistic:
    amounts = values if weights is None else values * weights
    above, below = np.bincount(block, amounts, blocks), np.bincount(block, weights, blocks)
    return ratio_of(above.astype(np.float64), below.astype(np.float64))


def ratio_of(above: Floats, below: Floats) -> Statistic:
    """The ratio of two sums, both by block: means, shares and rates."""

    def resampled(drawn: Floats) -> Floats:
        bottom = drawn @ below
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios: Floats = np.where(bottom > 0, (drawn @ above) / bottom, np.nan)
        return ratios

    return resampled


def variance(values: Floats, is_ratio: bool) -> float | None:
    """Variance of resampled values, or of their logarithms if ratios are compared; None if too few are defined."""
    fine = values[np.isfinite(values) & (values > 0)] if is_ratio else values[np.isfinite(values)]
    if len(fine) < max(2, len(values) // 2):
        return None
    return float(np.var(np.log(fine) if is_ratio else fine, ddof=1))


def difference_variance(before: Floats, after: Floats, is_ratio: bool) -> float | None:
    """Variance of after - before over the same draws."""
    fine = np.isfinite(before) & np.isfinite(after)
    if is_ratio:
        fine &= (before > 0) & (after > 0)
        before, after = np.log(before[fine]), np.log(after[fine])
    else:
        before, after = before[fine], after[fine]
    return float(np.var(after - before, ddof=1)) if len(before) >= max(2, len(fine) // 2) else None


# -- evidence --------------------------------------------------------------------------------------------------------

NOT_DRAWN = -1  # block of a request that is not drawn: outside of the window, or unmatched
LEAST_SHARED = 0.5  # of the smaller run's requests: below it, two runs do not count as the same tape
REQUESTED_ALIKE = 0.95  # of the shared requests that must request the same lengths
INTERVAL_WIDTH = 2 * 1.96  # standard errors in a 95% interval


@dataclass(frozen=True, eq=False)
class Evidence:
    """The answers of a run, the block of each request, and the window."""

    answers: Answers
    block: Ints
    blocks: int
    window: Window
    _tallies: dict[MeasureName, Tally] = field(default_factory=dict)

    def tally(self, measure: Measure, drawn: Mask) -> Tally:
        """A tally of gaps that are not held in memory; cached, because several numbers use the same one."""
        if measure.name not in self._tallies:
            self._tallies[measure.name] = Tally(
                lambda: gap_batches(self.answers, drawn, measure, self.block), self.blocks
            )
        return self._tallies[measure.name]


def evidence(run: Run) -> Evidence | None:
    """None for a run without records: an offline batch, a startup, an imported table."""
    records = run.records
    about = run.summary.window
    if records is None or not len(records) or about.start_s is None or about.end_s is None:
        return None
    answers = Answers.of(records)
    run_start_at = int(answers.records.scheduled_at.min())
    start_at, end_at = (run_start_at + round(end_s * NANOSECONDS) for end_s in (about.start_s, about.end_s))
    window = Window(start_at, end_at, about.rule)
    return _blocked(answers, window.holds(answers.records.scheduled_at), window)


def _blocked(answers: Answers, chosen: Mask, window: Window) -> Evidence:
    count = int(chosen.sum())
    blocks = block_count(count)
    block = np.full(len(answers), NOT_DRAWN, np.int64)
    block[chosen] = np.arange(count) * blocks // max(count, 1)
    return Evidence(answers, block, blocks, window)


def on_one_tape(one: Evidence, other: Evidence) -> tuple[Evidence, Evidence] | None:
    """Both with the same blocks of the same requests (traffic, session, turn); None if they were sent different
    requests."""
    keys = _keys(one), _keys(other)
    shared, here, there = np.intersect1d(*keys, assume_unique=False, return_indices=True)
    here, there = here[shared >= 0], there[shared >= 0]
    fewest = min(int((side.block >= 0).sum()) for side in (one, other))
    if not fewest or len(here) < LEAST_SHARED * fewest or not _requested_alike(one.answers, here, other.answers, there):
        return None
    order = np.argsort(here, kind="stable")  # the records of a run are in time order
    here, there = here[order], there[order]
    blocks = block_count(len(here))
    number = np.arange(len(here)) * blocks // len(here)
    return _renumbered(one, here, number, blocks), _renumbered(other, there, number, blocks)


def _keys(of: Evidence) -> Ints:
    """One number per drawn request, the same in every run: 14 bits for its class, then its session and its turn;
    negative for the others."""
    records = of.answers.records
    checksums = [zlib.crc32(name.encode()) & 0x3FFF for name in (*records.traffic.categories, "")]
    traffic = np.array(checksums, np.int64)[records.traffic.codes]
    return np.where(of.block >= 0, (traffic << 48) | (records.session << 16) | records.turn, NOT_DRAWN)


def _requested_alike(one: Answers, here: Ints, other: Answers, there: Ints) -> bool:
    same = np.ones(len(here), np.bool_)
    for name in ("requested_input", "requested_output"):
        same &= getattr(one.records, name)[here] == getattr(other.records, name)[there]
    return bool(len(same)) and float(same.mean()) >= REQUESTED_ALIKE


def _renumbered(of: Evidence, index: Ints, number: Ints, blocks: int) -> Evidence:
    block = np.full(len(of.answers), NOT_DRAWN, np.int64)
    block[index] = number
    return Evidence(of.answers, block, blocks, of.window)


def statistic(of: Evidence, quantity: Quantity) -> Statistic | None:
    """How a number of the run is computed from resampled requests; None if it does not depend on them."""
    measure = REGISTRY.get(quantity.name)
    if measure is None:
        return None
    if measure.per_request is not None:
        return _per_request(of, measure, quantity.statistic)
    if measure.gaps is not None:
        return _gaps(of, measure, quantity.statistic)
    if quantity.name == "failure_rate":
        return _share(of, of.answers.failed, of.answers.ok | of.answers.failed)
    if quantity.name == "structure_valid":
        checked, ok = of.answers.records.structure, of.answers.ok
        return _share(of, checked.mask("valid") & ok, checked.mask("valid", "invalid") & ok)
    return _rate(of, quantity.name)


def _per_request(of: Evidence, measure: Measure, wanted: str | None) -> Statistic | None:
    assert measure.per_request is not None
    values = measure.per_request(of.answers)
    drawn = (of.block >= 0) & ~np.isnan(values) & (of.answers.ok | (measure.kind == "sent"))
    return _of_values(values[drawn], of.block[drawn], of.blocks, wanted)


def _gaps(of: Evidence, measure: Measure, wanted: str | None) -> Statistic | None:
    assert measure.gaps is not None
    drawn = (of.block >= 0) & of.answers.ok
    if not of.answers.records.held:
        return _of_tally(of.tally(measure, drawn), wanted)
    series = measure.gaps(of.answers.gaps)
    inside = drawn[series.owner]
    weights = None if series.weights is None else series.weights[inside]
    return _of_values(series.values[inside], of.block[series.owner[inside]], of.blocks, wanted, weights)


def _of_tally(tally: Tally, wanted: str | None) -> Statistic | None:
    """A statistic of values that are not held in memory."""
    if not len(tally) or wanted is None:
        return None
    if wanted == "mean":
        return ratio_of(tally.block_sums(), tally.block_weights)
    return partial(tally.drawn_quantiles, q=share_of(wanted)) if _is_quantile(wanted) else None


def _of_values(
    values: Floats, block: Ints, blocks: int, wanted: str | None, weights: Floats | None = None
) -> Statistic | None:
    if not len(values) or wanted is None:
        return None
    if wanted == "mean":
        return mean_of(values, block, blocks, weights)
    return quantile_of(values, block, blocks, share_of(wanted), weights) if _is_quantile(wanted) else None


def _is_quantile(wanted: str) -> bool:
    return wanted[0] == "p" and wanted[1:].replace(".", "", 1).isdigit()


def _share(of: Evidence, part: Mask, whole: Mask) -> Statistic:
    drawn = of.block >= 0
    above, below = (np.bincount(of.block[drawn & mask], minlength=of.blocks) for mask in (part, whole))
    return ratio_of(above.astype(np.float64), below.astype(np.float64))


def _rate(of: Evidence, name: str) -> Statistic | None:
    """A rate from the amounts in blocks of time."""
    length = of.window.end_at - of.window.start_at
    if length <= 0:
        return None
    sums: Floats | None = None
    for at, amount in arrived(of.answers, name):
        inside = of.window.holds(at)
        block = np.minimum((at[inside] - of.window.start_at) * of.blocks // length, of.blocks - 1)
        came = np.bincount(block, amount[inside], of.blocks).astype(np.float64)
        sums = came if sums is None else sums + came
    return None if sums is None else ratio_of(sums, np.full(of.blocks, length / NANOSECONDS / of.blocks))


EvidencePair = tuple[Evidence, Evidence]


def noise(pairs: Sequence[EvidencePair], quantity: Quantity, is_ratio: bool, one_tape: bool) -> float | None:
    """Variance of after - before for one pair of runs, as caused by their requests, averaged over pairs. Rates depend
    on time and not on requests: they are never paired."""
    paired = one_tape and quantity.statistic is not None
    return _mean((_together if paired else _apart)(one, other, quantity, is_ratio) for one, other in pairs)


def _apart(one: Evidence, other: Evidence, quantity: Quantity, is_ratio: bool) -> float | None:
    parts = [_alone(side, quantity, is_ratio, seed) for seed, side in enumerate((one, other))]
    return None if None in parts else sum(part or 0.0 for part in parts)


def _alone(of: Evidence, quantity: Quantity, is_ratio: bool, seed: int) -> float | None:
    made = statistic(of, quantity)
    return None if made is None else variance(made(draws(of.blocks, seed=seed)), is_ratio)


def _together(one: Evidence, other: Evidence, quantity: Quantity, is_ratio: bool) -> float | None:
    """For runs that `on_one_tape` has matched."""
    drawn = draws(one.blocks)
    made = statistic(one, quantity), statistic(other, quantity)
    if made[0] is None or made[1] is None:
        return None
    return difference_variance(made[0](drawn), made[1](drawn), is_ratio)


def from_intervals(before: Iterable[Quantity], after: Iterable[Quantity], is_ratio: bool) -> float | None:
    """The same without records: from the 95% intervals stored with the runs."""
    parts = [_mean(_from_interval(quantity, is_ratio) for quantity in side) for side in (before, after)]
    return None if None in parts else sum(part or 0.0 for part in parts)


def _from_interval(quantity: Quantity, is_ratio: bool) -> float | None:
    low, high = quantity.interval or (None, None)
    if low is None or high is None or (is_ratio and low <= 0):
        return None
    width = np.log(high / low) if is_ratio else high - low
    return float(width / INTERVAL_WIDTH) ** 2


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


MIDDLE = 0.05  # relative standard deviation of means, medians and rates
TAIL = 0.10  # of p90 and above
OF_SHARE = 0.01  # in percentage points: of a failure rate, of a share of requests
FEWEST_LEARNED = 8  # degrees of freedom required to use the spread of other histories


@dataclass(frozen=True, slots=True)
class RunSpread:
    """The standard deviation between runs to assume: `learned` by key if the store's other histories show it, else by
    the kind of number."""

    middle: float = MIDDLE
    tail: float = TAIL
    learned: Mapping[str, float] = field(default_factory=dict)

    def of(self, quantity: Quantity) -> float:
        if quantity.key in self.learned:
            return self.learned[quantity.key]
        if quantity.unit == "share":
            return OF_SHARE
        return self.tail if is_tail(quantity.statistic) else self.middle


def is_tail(statistic: str | None) -> bool:
    return (statistic is not None and statistic[0] == "p" and float(statistic[1:]) >= 90) or statistic == "max"


def learned_spread(lines: Iterable[Sequence[Mapping[str, float]]], spread: RunSpread | None = None) -> RunSpread:
    """The spread learned from other histories, each a list of runs with their numbers by key, oldest first: the pooled
    relative spread within stretches without a change."""
    base = spread or RunSpread()
    squares: dict[str, float] = {}
    dof: dict[str, int] = {}
    for line in lines:
        for key in dict.fromkeys(key for numbers in line for key in numbers):
            values = [numbers[key] for numbers in line if numbers.get(key, 0.0) > 0]
            for stretch in regimes(len(values), change_points(values)):
                logs = np.log([values[at] for at in stretch])
                if len(logs) > 1:
                    squares[key] = squares.get(key, 0.0) + float(((logs - logs.mean()) ** 2).sum())
                    dof[key] = dof.get(key, 0) + len(logs) - 1
    known = {key: math.sqrt(squares[key] / n) for key, n in dof.items() if n >= FEWEST_LEARNED and squares[key] > 0}
    return RunSpread(base.middle, base.tail, known)


def weak_text(quantities: Iterable[Quantity]) -> str | None:
    """`TTFT p99 is based on 67 samples (368 needed)` for the weakest quantity, if any is weak."""
    weak = [quantity for quantity in quantities if quantity.needed is not None]
    if not weak:
        return None
    worst = max(weak, key=lambda quantity: quantity.needed or 0)
    samples = "too few samples" if worst.count is None else f"{worst.count:,} samples"
    return f"{worst.title} {worst.statistic} is based on {samples} ({worst.needed:,} needed)"
