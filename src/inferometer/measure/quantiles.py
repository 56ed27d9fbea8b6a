"""Quantiles as order statistics, means, and their intervals from blocks of consecutive values.

Requests are not independent: a slow minute is slow for all. So the precision of a number is estimated from the spread
of block averages, not of single values. A quantile's interval is Woodruff's (1952): the share of values at or below it
is averaged over blocks, which gives the number of independent values that would spread as much (Korn & Graubard 1998,
with their correction for few blocks), and the bounds are the exact binomial ranks of the order statistics at that
number. A mean's interval is that of batch means with Student's t. Both are wider if neighbouring blocks are correlated;
a mean's is also wider upwards if blocks are skewed (Skart, 2011). No random numbers are used: the same values give the
same interval.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# -- distributions -----------------------------------------------------------------------------------------------------

# The few distributions that intervals and tests need, without scipy; our tests compare them with scipy.

_TINY = 1e-300
_CLOSE = 1e-14
_MOST_TERMS = 20_000
_NORMAL = NormalDist()


def normal_quantile(p: float) -> float:
    return _NORMAL.inv_cdf(p)


def beta_cdf(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz & Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror image converges fast
        return 1.0 - beta_cdf(b, a, 1.0 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction of I_x(a, b)."""
    c, d = 1.0, 1.0 / ((1.0 - (a + b) * x / (a + 1)) or _TINY)
    value = d
    for m in range(1, _MOST_TERMS):
        twice = a + 2 * m
        even = m * (b - m) * x / ((twice - 1) * twice)
        odd = -(a + m) * (a + b + m) * x / (twice * (twice + 1))
        d = 1.0 / ((1.0 + even * d) or _TINY)
        c = (1.0 + even / c) or _TINY
        value *= c * d
        d = 1.0 / ((1.0 + odd * d) or _TINY)
        c = (1.0 + odd / c) or _TINY
        step = c * d
        value *= step
        if abs(step - 1.0) < _CLOSE:
            break
    return value


def t_cdf(t: float, dof: float) -> float:
    """Student's t with `dof` degrees of freedom, which need not be whole."""
    tail = 0.5 * beta_cdf(dof / 2, 0.5, dof / (dof + t * t))
    return tail if t < 0 else 1.0 - tail


@lru_cache(maxsize=256)
def t_quantile(p: float, dof: float) -> float:
    if p < 0.5:
        return -t_quantile(1.0 - p, dof)
    high = 2.0
    while t_cdf(high, dof) < p:
        high *= 2
    return crossing(lambda t: t_cdf(t, dof) - p, 0.0, high)


def crossing(rising: Callable[[float], float], low: float, high: float, within: float = 1e-10) -> float:
    """The point where a rising function crosses zero between low and high, or the end nearer to the crossing, by
    Chandrupatla's method (1997): inverse quadratic interpolation if three points lie on a smooth curve, else bisection.
    It needs a third of the steps of bisection alone."""
    before, here = low, high
    at_before, at_here = rising(low), rising(high)
    if at_here < 0 or at_before >= 0:
        return high if at_here < 0 else low
    part = at_here / (at_here - at_before)  # linear interpolation
    while abs(here - before) > within and at_here != 0.0:
        between = here + part * (before - here)
        value = rising(between)
        if (value < 0) == (at_here < 0):
            third, at_third = here, at_here
        else:
            third, at_third, before, at_before = before, at_before, here, at_here
        here, at_here = between, value
        part = _step(before, here, third, at_before, at_here, at_third)
        least = min(0.5, 0.5 * within / abs(here - before)) if here != before else 0.5  # so that both ends move
        part = min(max(part, least), 1 - least)
    return here if at_here == 0.0 else 0.5 * (before + here)


def _step(before: float, here: float, third: float, at_before: float, at_here: float, at_third: float) -> float:
    """The fraction of the way from `here` to `before` at which to try next."""
    if before in (third, here) or at_before == at_third:
        return 0.5
    along, up = (here - before) / (third - before), (at_here - at_before) / (at_third - at_before)
    if not (1 - math.sqrt(1 - along) < up < math.sqrt(along) if 0 <= along <= 1 else False):
        return 0.5
    slope = at_here / (at_before - at_here) * at_third / (at_before - at_third)
    return slope + (third - here) / (before - here) * at_here / (at_third - at_here) * at_before / (
        at_third - at_before
    )


def gamma_cdf(shape: float, x: Floats) -> Floats:
    """Regularised lower incomplete gamma function P(shape, x), each x by the expansion that converges there."""
    x = np.maximum(x, 0.0)
    result = np.zeros_like(x)
    small = (x > 0) & (x < shape + 1)
    large = x >= shape + 1
    with np.errstate(divide="ignore"):
        front = np.exp(shape * np.log(x) - x - math.lgamma(shape))
    result[small] = front[small] * _gamma_series(shape, x[small])
    result[large] = 1.0 - front[large] * _gamma_fraction(shape, x[large])
    return result


def _gamma_series(shape: float, x: Floats) -> Floats:
    term = np.full_like(x, 1.0 / shape)
    total = term.copy()
    for k in range(1, _MOST_TERMS):
        term *= x / (shape + k)
        total += term
        if not len(x) or float(np.max(term / total)) < _CLOSE:
            break
    return total


def _gamma_fraction(shape: float, x: Floats) -> Floats:
    """Lentz's evaluation of the continued fraction of the upper incomplete gamma function."""
    b = x + 1.0 - shape
    c, d = np.full_like(x, 1.0 / _TINY), 1.0 / b
    value = d.copy()
    for k in range(1, _MOST_TERMS):
        term = -k * (k - shape)
        b += 2.0
        d = 1.0 / (term * d + b)
        c = b + term / c
        value *= c * d
        if not len(x) or float(np.max(np.abs(c * d - 1.0))) < _CLOSE:
            break
    return value


def kolmogorov_p(statistic: float, n: int) -> float:
    """p-value of a one-sample Kolmogorov-Smirnov statistic, with Stephens' (1970) correction for a finite n."""
    root = math.sqrt(n)
    x = (root + 0.12 + 0.11 / root) * statistic
    if x < 0.2:  # below this the series alternates without settling; the probability is 1 to 12 digits
        return 1.0
    total = math.fsum((1 if k % 2 else -1) * math.exp(-2.0 * k * k * x * x) for k in range(1, 101))
    return min(1.0, max(0.0, 2.0 * total))


def ks_statistic(cdf_values: Floats, least: float = 0.0) -> float:
    """Largest distance between the sample and a distribution, given the distribution's value at each sample point;
    counted from the distribution's quantile `least` upwards."""
    ordered = np.sort(cdf_values)
    n = len(ordered)
    steps = np.arange(n + 1) / n
    below = int(np.searchsorted(ordered, least, side="right")) if least else 0
    at_least = abs(below / n - least) if least else 0.0
    if below == n:
        return at_least
    return float(max(at_least, np.max((steps[1:] - ordered)[below:]), np.max((ordered - steps[:-1])[below:])))


# -- quantiles and intervals -------------------------------------------------------------------------------------------

Mask = NDArray[np.bool_]

MOST_BLOCKS = 32  # more would be shorter than the memory of a queue; 31 degrees of freedom cost 4% of width
FEWEST_BLOCKS = 8  # with fewer, Student's t is too wide to be useful
VALUES_PER_BLOCK = 10  # below this, blocks are no better than single values
MERGE_ABOVE = 1.28  # merge blocks while their lag-1 correlation is positive at the one-sided 10% level
# The largest correlation of a block with the next one that is taken into account: three times the variance of a mean,
# twice that of a share. Above it, medians of short runs have no bounds at all, and hardly more intervals hold
# (bench/coverage.py).
MEMORY_OF_MEANS, MEMORY_OF_SHARES = 0.5, 1 / 3
MOST_REPEATED = 2  # times as many as there are values
CUTS = (0.48, 0.52, 0.89, 0.91, 0.94, 0.96, 0.985)  # around p50, p90, p95 and p99
NEAR = 64  # the neighbourhood of a rank is this share of all values, on both sides
WORTH_CUTTING = 50_000  # values; fewer are sorted in 2 ms
FEW = 0.25  # of the values: it is faster to choose them than to weight all with 0 or 1
NORMAL_ABOVE = 50.0  # n q (1-q) from which binomial ranks by Cornish-Fisher are right to one rank
RANK_WITHIN = 1e-3  # of a rank, before it is rounded outwards

Interval = tuple[float | None, float | None]  # None: no bound on that side


@dataclass(frozen=True, slots=True)
class Estimate:
    """A quantile. With `needed` set it is weak: there are fewer values than `needed`, and its interval is open on one
    side."""

    value: float | None  # None if there are no values
    interval: Interval
    needed: int | None = None


Side = Literal["left", "right"]


class Distribution(Protocol):
    """Weighted values, each in a block of values that are neighbours in time: what quantiles, means and intervals
    need."""

    @property
    def blocks(self) -> int: ...
    @property
    def block_weights(self) -> Floats: ...
    @property
    def total(self) -> float: ...
    @property
    def least(self) -> float: ...
    @property
    def largest(self) -> float: ...
    @property
    def squared_weights(self) -> float | None:
        """Their sum; None if all values have the same weight."""

    def __len__(self) -> int: ...
    def value_at(self, share: float) -> float:
        """The ordered value at which the cumulative share is first reached."""

    def share_up_to(self, value: float, side: Side) -> float:
        """The share of values below this one ("left"), or up to it ("right")."""

    def sums_up_to(self, value: float, side: Side) -> Floats:
        """The same as the summed weight in each block."""

    def block_sums(self) -> Floats:
        """Values times weights, summed by block."""

    def sum(self) -> float: ...
    def squares_around(self, middle: float) -> float:
        """Sum of (value - middle)^2 times weight."""


class Ordered:
    """Values in ascending order, of which only the neighbourhoods of requested ranks are sorted: for the usual
    quantiles with their intervals this takes half the time of sorting all values."""

    __slots__ = ("_ends", "_near", "_sorted", "_starts", "_values")

    def __init__(self, values: Floats) -> None:
        n = len(values)
        cuts = [int(share * n) for share in CUTS] if n >= WORTH_CUTTING else []
        self._values: Floats = np.partition(values, cuts) if cuts else np.sort(values)
        self._ends = [0, *cuts, n]  # of parts: each value is at least as large as all values in earlier parts
        self._starts: list[float] = self._values[cuts].tolist()  # the least value of each part but the first
        self._sorted = [not cuts] * (len(cuts) + 1)
        self._near = n // NEAR

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rank: int) -> float:
        part = self._part_of(rank)
        if not self._sorted[part] and self._ends[part + 1] - self._ends[part] > 4 * self._near:
            self._cut(part, rank)
            part = self._part_of(rank)
        return float(self._sorted_part(part)[rank - self._ends[part]])

    def count_up_to(self, value: float, side: Side) -> int:
        """The number of values below this one ("left"), or up to it ("right")."""
        part = (bisect_left if side == "left" else bisect_right)(self._starts, value)
        return self._ends[part] + int(np.searchsorted(self._sorted_part(part), value, side=side))

    def least(self) -> float:
        return float(self._values[: self._ends[1]].min())

    def largest(self) -> float:
        return float(self._values[self._ends[-2] :].max())

    def _part_of(self, rank: int) -> int:
        return bisect_right(self._ends, rank) - 1

    def _cut(self, part: int, rank: int) -> None:
        """Divides a large part before and after the neighbourhood of a rank."""
        start, end = self._ends[part], self._ends[part + 1]
        cuts = [cut for cut in (rank - self._near, rank + self._near) if start < cut < end]
        self._values[start:end].partition([cut - start for cut in cuts])
        self._ends[part + 1 : part + 1] = cuts
        self._starts[part:part] = self._values[cuts].tolist()
        self._sorted[part : part + 1] = [False] * (len(cuts) + 1)

    def _sorted_part(self, part: int) -> Floats:
        values = self._values[self._ends[part] : self._ends[part + 1]]
        if not self._sorted[part]:
            values.sort()
            self._sorted[part] = True
        return values


@dataclass(frozen=True, eq=False, slots=True)
class SortedSample:
    """A distribution held in memory and ordered once for all of its quantiles."""

    values: Floats
    weights: Floats | None  # None: all 1
    block: Ints
    blocks: int
    block_weights: Floats
    ordered: Ordered | Floats  # a value of weight 3 occurs three times, unless there is `cumulative`
    cumulative: Floats | None  # weights up to and including each ordered value
    squared_weights: float | None = None  # their sum; None: all 1

    def __len__(self) -> int:
        return len(self.values)

    @property
    def total(self) -> float:
        return float(len(self.ordered)) if self.cumulative is None else float(self.cumulative[-1])

    @property
    def least(self) -> float:
        return self.ordered.least() if isinstance(self.ordered, Ordered) else float(self.ordered[0])

    @property
    def largest(self) -> float:
        return self.ordered.largest() if isinstance(self.ordered, Ordered) else float(self.ordered[-1])

    def value_at(self, share: float) -> float:
        return float(self.ordered[_rank_at(self, share)])

    def share_up_to(self, value: float, side: Side) -> float:
        if isinstance(self.ordered, Ordered):
            return self.ordered.count_up_to(value, side) / len(self.ordered)
        assert self.cumulative is not None
        index = int(np.searchsorted(self.ordered, value, side=side))
        return float(self.cumulative[index - 1]) / self.total if index else 0.0

    def sums_up_to(self, value: float, side: Side) -> Floats:
        below = self.values < value if side == "left" else self.values <= value
        if self.cumulative is None:  # counts, so that differences of sums are exact
            count = np.count_nonzero(below)
            if count < FEW * len(below):
                return self._chosen(below)
            if count > (1 - FEW) * len(below):
                return self.block_weights - self._chosen(~below)
        return _by_block(self.block, below if self.weights is None else self.weights * below, self.blocks)

    def _chosen(self, which: Mask) -> Floats:
        return _by_block(self.block[which], None if self.weights is None else self.weights[which], self.blocks)

    def block_sums(self) -> Floats:
        return _by_block(self.block, self._weighted(), self.blocks)

    def sum(self) -> float:
        return float(self._weighted().sum())

    def squares_around(self, middle: float) -> float:
        squares = (self.values - middle) ** 2
        return float(squares.sum() if self.weights is None else squares @ self.weights)

    def _weighted(self) -> Floats:
        return self.values if self.weights is None else self.values * self.weights


def sample(values: Floats, weights: Floats | None = None, at: Ints | None = None) -> SortedSample:
    """Takes values in time order; with `at`, values at these instants in any order, in blocks of equal time."""
    blocks = block_count(len(values))
    block = _even_blocks(len(values), blocks) if at is None else _time_blocks(at, blocks)
    if weights is None or (len(weights) and float(weights.min()) == float(weights.max())):
        sizes = _by_block(block, None, blocks)
        return SortedSample(values, None, block, blocks, sizes, Ordered(values), None)
    sizes, squares = _by_block(block, weights, blocks), float(weights @ weights)
    return SortedSample(values, weights, block, blocks, sizes, *_ordered(values, weights), squares)


def _ordered(values: Floats, weights: Floats) -> tuple[Ordered | Floats, Floats | None]:
    """Sorted values with their cumulative weights; or each value repeated by its weight, which is sorted eight times as
    fast and takes hardly more memory if few weights exceed 1."""
    counts = weights.astype(np.int64)
    if counts.sum() <= MOST_REPEATED * len(values) and bool((counts == weights).all()):
        return Ordered(np.repeat(values, counts)), None
    order = np.argsort(values)
    return values[order], np.cumsum(weights[order])


def _by_block(block: Ints, amounts: Floats | Mask | None, blocks: int) -> Floats:
    return np.bincount(block, amounts, blocks).astype(np.float64)


def block_count(n: int) -> int:
    return max(1, min(n, MOST_BLOCKS, max(FEWEST_BLOCKS, n // VALUES_PER_BLOCK)))


def _even_blocks(n: int, blocks: int) -> Ints:
    return np.arange(n, dtype=np.int64) * blocks // max(n, 1)


def _time_blocks(at: Ints, blocks: int) -> Ints:
    first = int(at.min()) if len(at) else 0
    span = (int(at.max()) - first + 1) if len(at) else 1
    block = ((at - first) * (blocks / span)).astype(np.int64)
    return np.minimum(block, blocks - 1, out=block)


def needed_for(q: float, confidence: float = 0.95) -> int:
    """Number of independent values below which an order statistic bounds the quantile on neither side: 368 for p99 at
    95%."""
    rarer = max(q, 1.0 - q)
    return math.ceil(math.log((1.0 - confidence) / 2) / math.log(rarer))


def quantile(of: Distribution, q: float) -> float | None:
    """The smallest value that at least a share q of the total weight does not exceed."""
    return of.value_at(q) if len(of) else None


def middle_of(values: Floats) -> float:
    """The median; numpy's own function imports masked arrays, which takes longer than most medians."""
    half = len(values) // 2
    ranks = (half,) if len(values) % 2 else (half - 1, half)
    return float(np.partition(values, ranks)[ranks[0] : half + 1].mean())


def values_at(values: Floats, shares: Sequence[float]) -> list[float]:
    """As `quantile` for a sample of equal weights, without sorting it."""
    ranks = [_rank_of(len(values), share) for share in shares]
    ordered = np.partition(values, ranks)
    return [float(ordered[rank]) for rank in ranks]


def _rank_of(n: int, share: float) -> int:
    return min(n - 1, max(0, math.ceil(share * n - 1e-9) - 1))


def _rank_at(of: SortedSample, share: float) -> int:
    """Index of the ordered value at which the cumulative share is first reached (1e-9 forgives rounding)."""
    n = len(of.ordered)
    if of.cumulative is None:
        return _rank_of(n, share)
    return min(n - 1, int(np.searchsorted(of.cumulative, share * of.total * (1 - 1e-12), side="left")))


def estimate(of: Distribution, q: float, confidence: float = 0.95) -> Estimate:
    """The quantile with its interval, and the number of values needed to bound it on both sides. Values may be +inf."""
    middle = quantile(of, q)
    if middle is None:
        return Estimate(None, (None, None), needed_for(q, confidence))
    n = _equal_weights(of)
    effective, degrees = _effective_count(of, q, middle, n)
    needed = needed_for(q, confidence) * n / effective
    interval = _interval(of, q, effective * _few_blocks(confidence, degrees), confidence)
    if n < needed - 1e-9:
        return Estimate(middle, interval, math.ceil(needed * len(of) / n - 1e-9))
    low, high = interval
    return Estimate(middle, (_or(low, of.least), _or(high, of.largest)))


def _or(bound: float | None, extreme: float) -> float:
    return float(extreme) if bound is None else bound


def _equal_weights(of: Distribution) -> float:
    """Kish's count: the number of equally weighted values with the same precision."""
    squares = of.squared_weights
    return float(len(of)) if squares is None else of.total**2 / squares


def _effective_count(of: Distribution, q: float, middle: float, n: float) -> tuple[float, int]:
    """Independent values whose share below `middle` would vary as much as the blocks do, at most n."""
    share, variance, degrees = _block_mean(of, of.sums_up_to(middle, _side(of, q, middle)), MEMORY_OF_SHARES)
    if variance <= 0:
        return n, degrees
    spread = max(share * (1 - share), q * (1 - q) / 4)
    return min(n, max(spread / variance * n / max(n - 1, 1.0), 1.0)), degrees


def _side(of: Distribution, q: float, middle: float) -> Side:
    """Whether to count values below the quantile or up to it. With many equal values one of the two may be 0 or 1,
    which tells nothing about clustering; otherwise the one whose share is nearer to q."""
    less, at_most = of.share_up_to(middle, "left"), of.share_up_to(middle, "right")
    strict = at_most == 1.0 or (less > 0.0 and abs(less - q) < abs(at_most - q))
    return "left" if strict else "right"


def _few_blocks(confidence: float, degrees: int) -> float:
    """Korn and Graubard's factor on the effective count for a variance estimated from few blocks only."""
    upper = 0.5 + confidence / 2
    return float((normal_quantile(upper) / t_quantile(upper, degrees)) ** 2)


def _interval(of: Distribution, q: float, n: float, confidence: float) -> Interval:
    tail = (1.0 - confidence) / 2
    low, high = lower_rank(n, q, tail), upper_rank(n, q, tail)
    below = None if low is None else of.value_at(low / n)
    above = None if high is None else of.value_at(high / n)
    return below, above


@lru_cache(maxsize=1024)  # measures of the same requests need the same ranks
def lower_rank(n: float, q: float, tail: float) -> float | None:
    """Largest rank k of n with P(x_(k) > quantile) <= tail; None when even the smallest value may lie above."""
    if (1.0 - q) ** n > tail:
        return None
    if n * q * (1 - q) > NORMAL_ABOVE:
        return math.floor(_normal_rank(n, q, normal_quantile(tail)))
    # P(x_(k) <= quantile) = P(Bin(n, q) >= k) = I_q(k, n-k+1), falling in k
    k = _crossing(lambda k: (1.0 - tail) - beta_cdf(k, n - k + 1, q), n, _normal_rank(n, q, normal_quantile(tail)))
    return max(1.0, math.floor(k + RANK_WITHIN))


@lru_cache(maxsize=1024)
def upper_rank(n: float, q: float, tail: float) -> float | None:
    """Smallest rank k of n with P(x_(k) <= quantile) <= tail; None when even the largest value may lie below."""
    if q**n > tail:
        return None
    if n * q * (1 - q) > NORMAL_ABOVE:
        return math.ceil(_normal_rank(n, q, normal_quantile(1 - tail)) + 1)
    k = _crossing(lambda k: tail - beta_cdf(k, n - k + 1, q), n, _normal_rank(n, q, normal_quantile(1 - tail)))
    return min(n, math.ceil(k - RANK_WITHIN))


def _crossing(rising: Callable[[float], float], n: float, near: float) -> float:
    """The rank at which the function crosses zero, searched first around a good guess."""
    for reach in (0.5, 4.0):
        low, high = max(1e-9, near - reach), min(n, near + reach)
        if low < high:
            rank = crossing(rising, low, high, RANK_WITHIN)
            if low < rank < high:
                return rank
    return crossing(rising, 1e-9, n, RANK_WITHIN)


def _normal_rank(n: float, q: float, z: float) -> float:
    """Binomial quantile by Cornish and Fisher's expansion: n q + z s + (1 - 2q)(z² - 1)/6."""
    return n * q + z * math.sqrt(n * q * (1 - q)) + (1 - 2 * q) * (z * z - 1) / 6


def mean(of: Distribution) -> float | None:
    return of.sum() / of.total if len(of) else None


def std(of: Distribution) -> float | None:
    """Sample standard deviation; weights are counts."""
    middle = mean(of)
    if middle is None or of.total < 2:
        return None
    return math.sqrt(of.squares_around(middle) / (of.total - 1))


def mean_interval(of: Distribution, confidence: float = 0.95) -> Interval:
    """Batch means: mean ± t * standard error, with one degree of freedom fewer than blocks and t corrected for skewed
    blocks."""
    if len(of) < 2 or of.blocks < 2 or not math.isfinite(of.largest):
        return (None, None)
    sums = of.block_sums()
    middle, variance, degrees = _block_mean(of, sums, MEMORY_OF_MEANS)
    t, error = t_quantile(0.5 + confidence / 2, degrees), math.sqrt(variance)
    filled = of.block_weights > 0
    skew = _skewness(sums[filled] / of.block_weights[filled]) / (6 * math.sqrt(of.blocks))
    low, high = middle - _unskewed(t, skew) * error, middle - _unskewed(-t, skew) * error
    if of.blocks < 2 * FEWEST_BLOCKS:  # with so few values the true mean may lie beyond all of them
        return (low, high)
    return (max(low, of.least), min(high, of.largest))


def _skewness(values: Floats) -> float:
    """The skewness of the values; 0 if there are too few of them."""
    n, deviations = len(values), values - values.mean()
    spread = math.sqrt(float(deviations @ deviations) / max(n - 1, 1))
    if n < 2 * FEWEST_BLOCKS or spread <= abs(float(values.mean())) * 1e-9:  # all equal, except for rounding
        return 0.0
    return float(((deviations / spread) ** 3).sum()) * n / ((n - 1) * (n - 2))


def _unskewed(t: float, skew: float) -> float:
    """Hall's transformation (1992) by Willink (2005): a mean of values that are skewed to the right, as waiting times
    near saturation are, is more often far below the truth than far above it. `skew` is skewness / (6 sqrt(n))."""
    if abs(skew) < 1e-3:
        return t
    return float(np.cbrt(1 + 6 * skew * (t - skew)) - 1) / (2 * skew)


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its interval, the number of values, and the number of independent values they are worth."""

    value: float | None = None
    interval: Interval = (None, None)
    count: int = 0
    independent: float = 0.0

    def needed(self, required: float, confidence: float = 0.95) -> int | None:
        """How many values are needed to show on which side of `required` the share is, if it stays as it is; None if no
        number would. Wilson's interval excludes `required` when the score test rejects it."""
        if self.value is None or not self.count or not 0 < required < 1 or self.value == required:
            return None
        z = float(normal_quantile(0.5 + confidence / 2))
        independent = z * z * required * (1 - required) / (self.value - required) ** 2
        return math.ceil(independent * self.count / self.independent)


def share_interval(hits: Floats, confidence: float = 0.95) -> Share:
    """The share of ones among zeros and ones in time order, with Wilson's interval at the number of independent
    values that spread as much as the blocks do."""
    of = sample(hits)
    share = mean(of)
    if share is None:
        return Share()
    middle, variance, degrees = _block_mean(of, _by_block(of.block, of.values, of.blocks), MEMORY_OF_SHARES)
    n = float(len(of))
    effective = min(n, middle * (1 - middle) / variance) if variance > 0 else n
    few = _few_blocks(confidence, degrees) if variance > 0 else 1.0  # if all are equal, no spread was estimated
    effective = max(effective * few, 1.0)
    z = float(normal_quantile(0.5 + confidence / 2))
    centre = (share + z * z / (2 * effective)) / (1 + z * z / effective)
    half = z / (1 + z * z / effective) * math.sqrt(share * (1 - share) / effective + (z / (2 * effective)) ** 2)
    return Share(share, (max(0.0, centre - half), min(1.0, centre + half)), len(of), effective)


def _block_mean(of: Distribution, sums: Floats, most_memory: float) -> tuple[float, float, int]:
    """The mean of something summed by block, the variance of that mean (a ratio estimator), and the degrees of
    freedom."""
    weights = of.block_weights
    middle = float(sums.sum() / weights.sum())
    residuals = sums - middle * weights
    while len(residuals) >= 2 * FEWEST_BLOCKS and _neighbours_alike(residuals):
        residuals = np.add.reduceat(residuals, np.arange(0, len(residuals), 2))
    b = len(residuals)
    if b < 2:
        return middle, 0.0, 1
    memory = min(most_memory, _memory(residuals))
    variance = float(residuals @ residuals) * b / (b - 1) / float(weights.sum()) ** 2
    return middle, variance * (1 + memory) / (1 - memory), b - 1


def _memory(residuals: Floats) -> float:
    """The correlation of neighbouring blocks that remains after merging, corrected for its bias (Kendall 1954), as in
    the procedure Skart (Tafazzoli, Wilson et al. 2011)."""
    correlation = _correlation(residuals)
    return correlation + (1 + 3 * correlation) / len(residuals) if correlation > 0 else 0.0


def _neighbours_alike(residuals: Floats) -> bool:
    """Whether blocks are still correlated with the block before them, and so too short to count as independent."""
    return _correlation(residuals) > MERGE_ABOVE / math.sqrt(len(residuals))


def _correlation(residuals: Floats) -> float:
    """The correlation of each block with the next one."""
    square = float(residuals @ residuals)
    return 0.0 if square == 0 else float(residuals[1:] @ residuals[:-1]) / square
