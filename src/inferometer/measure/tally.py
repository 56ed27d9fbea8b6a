"""Exact quantiles and intervals of more values than fit into memory, which are iterated several times instead; and a
measure of gaps as a distribution, sorted in memory or tallied."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from inferometer.measure.inputs import Answers, Gaps
from inferometer.measure.quantiles import (
    MOST_REPEATED,
    Distribution,
    Floats,
    Ints,
    Side,
    block_count,
    estimate,
    sample,
)
from inferometer.measure.registry import Measure
from inferometer.record.columns import Mask

# -- tally -----------------------------------------------------------------------------------------------------------

_MANTISSA = 52  # mantissa bits of a float
_COARSE, _FINE = 8, 12  # mantissa bits that distinguish buckets: a bucket is 2^-8 or 2^-12 of a value wide
_LOWEST = int(np.float64(2.0**-30).view(np.int64)) >> _MANTISSA  # 1 ns; shorter ones are in the first bucket
_OCTAVES = 48  # up to 2^18 s, three days; longer ones are in the last
_BUCKETS = _OCTAVES << _COARSE
_MOST_KEPT = 1 << 20  # kept values before equal ones are joined


@dataclass(frozen=True, eq=False, slots=True)
class Values:
    """Some values with their whole-number weights (None: all 1), and their instants, which define the blocks, or the
    blocks themselves (None: blocks do not matter)."""

    values: Floats
    weights: Ints | None = None
    at: Ints | None = None
    block: Ints | None = None


Source = Callable[[], Iterator[Values]]  # iterates all values, from the start on each call


class Tally:
    """The distribution of a source's values; `blocks` is the number of blocks if the values name theirs."""

    def __init__(self, source: Source, blocks: int | None = None) -> None:
        self._source = source
        self._reach = _Reach.of(source())
        self.blocks = blocks or (block_count(len(self)) if self._reach.first_at is not None else 1)
        self._counts = np.zeros((_BUCKETS, self.blocks), np.int64)
        self._sums = np.zeros(self.blocks)
        self._kept: dict[int, _Kept] = {}
        if len(self):
            self._count()
        self._upto = np.cumsum(self._counts.sum(1))

    def __len__(self) -> int:
        return self._reach.n

    @property
    def block_weights(self) -> Floats:
        weights: Floats = self._counts.sum(0).astype(np.float64)
        return weights

    @property
    def total(self) -> float:
        return float(len(self) if self._reach.alike else self._reach.weight)

    @property
    def least(self) -> float:
        return self._reach.least

    @property
    def largest(self) -> float:
        return self._reach.largest

    @property
    def weight(self) -> int:
        """The sum of all weights, also if all are equal."""
        return self._reach.weight

    @property
    def squared_weights(self) -> float | None:
        return None if self._reach.alike else float(self._reach.squares)

    def prepare(self, shares: Collection[float], confidence: float) -> None:
        """Keep in one pass the values that the quantiles of these shares and their intervals will likely need."""
        if not len(self):
            return
        coarse, wanted = _Coarse(self), set[int]()
        for share in shares:
            rough = estimate(coarse, share, confidence)
            wanted.add(int(coarse.value_at(share)))
            for end in rough.interval:
                wanted |= set() if end is None else {int(end) - 1, int(end), int(end) + 1}
        self._keep(wanted)

    def keep_near(self, shares: Collection[float]) -> None:
        """Keep in one pass the values on both sides of these shares."""
        if len(self):
            ranks = [math.floor((self.total - 1) * share) + more for share in shares for more in (1, 2)]
            self._keep({*np.searchsorted(self._upto, ranks).tolist()})

    def value_at(self, share: float) -> float:
        return self.ranked(self._rank(share))

    def ranked(self, rank: int) -> float:
        """The value with this rank, counted from 1."""
        bucket = int(np.searchsorted(self._upto, rank))
        kept = self._in(bucket)
        place = np.searchsorted(kept.upto, rank - self._before(bucket))
        return float(kept.values[place])

    def count_up_to(self, value: float, side: Side) -> int:
        return int(self.sums_up_to(value, side).sum())

    def share_up_to(self, value: float, side: Side) -> float:
        return self.count_up_to(value, side) / self.total

    def sums_up_to(self, value: float, side: Side) -> Floats:
        bucket = int(_buckets(np.array([value]))[0])
        kept = self._in(bucket)
        end = int(np.searchsorted(kept.values, value, side=side))
        inside = np.bincount(kept.block[:end], kept.weights[:end], self.blocks)
        sums: Floats = self._counts[:bucket].sum(0) + inside
        return sums

    def block_sums(self) -> Floats:
        return self._sums

    def drawn_quantiles(self, drawn: Floats, q: float) -> Floats:
        """A quantile of each resample: a row of `drawn` says how often it holds each block."""
        some = np.flatnonzero(self._counts.any(1))
        upto = (drawn @ self._counts[some].T).cumsum(axis=1)
        wanted = q * upto[:, -1] * (1 - 1e-12)
        places = (upto >= wanted[:, None]).argmax(axis=1)
        self._keep(some[places].tolist())
        quantiles = np.empty(len(drawn))
        for row, place in enumerate(places):
            kept = self._kept[some[place]]
            within = (drawn[row, kept.block] * kept.weights).cumsum()
            before = upto[row, place - 1] if place else 0.0
            at = int(np.searchsorted(before + within, wanted[row]))
            quantiles[row] = kept.values[min(at, len(kept.values) - 1)]
        return quantiles

    def sum(self) -> float:
        return self._reach.sum

    def squares_around(self, middle: float) -> float:
        total = 0.0
        for batch in self._source():
            squares = (batch.values - middle) ** 2
            weights = self._weights(batch)
            total += float(squares.sum() if weights is None else squares @ weights)
        return total

    def _rank(self, share: float) -> int:
        """As `Sample` does it: 1e-9 or 1e-12 allow for rounding."""
        n = int(self.total)
        repeated = self._reach.alike or n <= MOST_REPEATED * len(self)
        rank = math.ceil(share * n - 1e-9) if repeated else math.ceil(share * n * (1 - 1e-12))
        return min(n, max(1, rank))

    def _before(self, bucket: int) -> int:
        return int(self._upto[bucket - 1]) if bucket else 0

    def _weights(self, batch: Values) -> Ints | None:
        return None if self._reach.alike else batch.weights

    def _block(self, batch: Values) -> Ints | None:
        """The batch's own blocks, or blocks of equal time as `Sample` makes them."""
        if batch.block is not None or batch.at is None or self.blocks == 1:
            return batch.block
        assert self._reach.first_at is not None
        span = self._reach.last_at - self._reach.first_at + 1
        block = ((batch.at - self._reach.first_at) * (self.blocks / span)).astype(np.int64)
        return np.minimum(block, self.blocks - 1, out=block)

    def _count(self) -> None:
        counts = self._counts.reshape(-1)
        for batch in self._source():
            place, block, weights = _buckets(batch.values), self._block(batch), self._weights(batch)
            weighted = batch.values if weights is None else batch.values * weights
            if block is None:
                self._sums += weighted.sum()
            else:
                self._sums += np.bincount(block, weighted, self.blocks)
                place *= self.blocks
                place += block
            counts += np.bincount(place, weights, len(counts)).astype(np.int64, copy=False)

    def _in(self, bucket: int) -> "_Kept":
        self._keep({bucket})
        return self._kept[bucket]

    def _keep(self, wanted: Iterable[int]) -> None:
        """Iterate the values once more and keep those in these buckets."""
        missing = [bucket for bucket in sorted(wanted) if 0 <= bucket < _BUCKETS and bucket not in self._kept]
        if not missing:
            return
        inside = np.zeros(_BUCKETS, np.bool_)
        inside[missing] = self._counts[missing].any(1)
        parts: list[_Kept] = []
        if inside.any():
            for batch in self._source():
                chosen = np.flatnonzero(inside[_buckets(batch.values)])
                parts.append(self._kept_of(batch, chosen))
                if sum(len(part.values) for part in parts) > _MOST_KEPT and len(parts) > 1:
                    parts = [_Kept.joined(parts)]
        whole = _Kept.joined(parts)
        place = _buckets(whole.values)
        for bucket in missing:
            start, end = np.searchsorted(place, (bucket, bucket + 1))
            part = _Kept(whole.values[start:end], whole.weights[start:end], whole.block[start:end])
            self._kept[bucket] = part

    def _kept_of(self, batch: Values, chosen: Ints) -> "_Kept":
        weights, block = self._weights(batch), self._block(batch)
        return _Kept(
            batch.values[chosen],
            np.ones(len(chosen), np.int64) if weights is None else weights[chosen],
            np.zeros(len(chosen), np.int64) if block is None else block[chosen],
        )


def condensed(batches: Iterable[Values]) -> tuple[Floats, Floats]:
    """Values accurate to 0.012%, each with the weight of all values that close to it: enough for a chart."""
    counts = np.zeros(_OCTAVES << _FINE, np.float64)
    for batch in batches:
        counts += np.bincount(_buckets(batch.values, _FINE), batch.weights, len(counts))
    some = np.flatnonzero(counts)
    ends = [((some + (_LOWEST << _FINE) + more) << (_MANTISSA - _FINE)).view(np.float64) for more in (0, 1)]
    return (ends[0] + ends[1]) / 2, counts[some]


def _buckets(values: Floats, bits: int = _COARSE) -> Ints:
    """Bits of floats sort like the floats themselves; those of negative floats are negative."""
    place = np.ascontiguousarray(values).view(np.int64) >> (_MANTISSA - bits)
    place -= _LOWEST << bits
    return np.clip(place, 0, (_OCTAVES << bits) - 1, out=place)


@dataclass(eq=False, slots=True)
class _Reach:
    """Number of values, their total weight, and the range of values and instants."""

    n: int = 0
    weight: int = 0
    squares: int = 0
    lightest: int = 1
    heaviest: int = 1
    sum: float = 0.0
    least: float = math.inf
    largest: float = -math.inf
    first_at: int | None = None
    last_at: int = 0

    @property
    def alike(self) -> bool:
        return self.lightest == self.heaviest

    @classmethod
    def of(cls, batches: Iterable[Values]) -> "_Reach":
        reach = cls()
        sums = [reach._add(batch) for batch in batches if len(batch.values)]
        reach.sum = math.fsum(part if not reach.alike else plain for part, plain in sums)
        return reach

    def _add(self, batch: Values) -> tuple[float, float]:
        """The sum of the values with and without their weights."""
        values, weights, at = batch.values, batch.weights, batch.at
        light, heavy = (1, 1) if weights is None else (int(weights.min()), int(weights.max()))
        self.lightest = light if not self.n else min(self.lightest, light)
        self.heaviest = heavy if not self.n else max(self.heaviest, heavy)
        self.n += len(values)
        self.weight += len(values) if weights is None else int(weights.sum())
        self.squares += len(values) if weights is None else int(weights @ weights)
        self.least, self.largest = min(self.least, float(values.min())), max(self.largest, float(values.max()))
        if at is not None:
            first, last = int(at.min()), int(at.max())
            self.last_at = last if self.first_at is None else max(self.last_at, last)
            self.first_at = first if self.first_at is None else min(self.first_at, first)
        plain = float(values.sum())
        return plain if weights is None else float((values * weights).sum()), plain


class _Kept:
    """Values in order, equal ones of a block joined."""

    def __init__(self, values: Floats, weights: Ints, block: Ints) -> None:
        self.values, self.weights, self.block = values, weights, block

    @property
    def upto(self) -> Ints:
        return np.cumsum(self.weights)

    @classmethod
    def joined(cls, parts: Iterable["_Kept"]) -> "_Kept":
        kept = [*parts]
        if not kept:
            return cls(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
        values, weights, block = (
            np.concatenate([getattr(part, name) for part in kept]) for name in ("values", "weights", "block")
        )
        order = np.lexsort((block, values))
        values, weights, block = values[order], weights[order], block[order]
        if not len(values):
            return cls(values, weights, block)
        new = np.concatenate(([True], (values[1:] != values[:-1]) | (block[1:] != block[:-1])))
        starts = np.flatnonzero(new)
        return cls(values[starts], np.add.reduceat(weights, starts), block[starts])


class _Coarse:
    """A tally as if all values of a bucket were equal: locates its quantiles before any values are kept."""

    def __init__(self, of: Tally) -> None:
        self._of = of
        self.blocks, self.block_weights, self.total = of.blocks, of.block_weights, of.total
        self.squared_weights = of.squared_weights
        some = np.flatnonzero(of._counts.any(1))
        self.least, self.largest = float(some[0]), float(some[-1])

    def __len__(self) -> int:
        return len(self._of)

    def value_at(self, share: float) -> float:
        return float(np.searchsorted(self._of._upto, self._of._rank(share)))

    def share_up_to(self, value: float, side: Side) -> float:
        return float(self.sums_up_to(value, side).sum()) / self.total

    def sums_up_to(self, value: float, side: Side) -> Floats:
        sums: Floats = self._of._counts[: int(value) + (side == "right")].sum(0).astype(np.float64)
        return sums

    def block_sums(self) -> Floats:
        return self._of.block_sums()

    def sum(self) -> float:
        return self._of.sum()

    def squares_around(self, middle: float) -> float:
        return self._of.squares_around(middle)


# -- gaps ------------------------------------------------------------------------------------------------------------

_NONE = np.empty(0, np.int64)
_NO_GAPS = Gaps(np.empty(0), _NONE, _NONE, _NONE)


@dataclass(frozen=True, eq=False, slots=True)
class GapValues:
    sample: Distribution
    tokens: int | None  # all weights together, if they are tokens

    def __len__(self) -> int:
        return len(self.sample)


def gap_values(answers: Answers, of: Mask, measure: Measure) -> GapValues:
    assert measure.gaps is not None
    if not answers.records.held:
        tally = gap_tally(answers, of, measure)
        return GapValues(tally, tally.weight if measure.gaps(_NO_GAPS).of_tokens else None)
    series = measure.gaps(answers.gaps)
    values, weights, at = series.values, series.weights, series.at
    if not of.all():
        inside = of[series.owner]
        values, weights, at = values[inside], None if weights is None else weights[inside], at[inside]
    tokens = len(values) if weights is None else int(weights.sum())
    return GapValues(sample(values, weights, at), tokens if series.of_tokens else None)


def gap_tally(answers: Answers, of: Mask, measure: Measure) -> Tally:
    """For reads that are iterated as often as necessary."""
    return Tally(lambda: gap_batches(answers, of, measure))


def gap_batches(answers: Answers, of: Mask, measure: Measure, block: Ints | None = None) -> Iterator[Values]:
    """`block` gives the block of each request."""
    assert measure.gaps is not None
    for series in map(measure.gaps, answers.gap_batches(of)):
        weights = None if series.weights is None else series.weights.astype(np.int64)
        yield Values(series.values, weights, series.at, None if block is None else block[series.owner])
