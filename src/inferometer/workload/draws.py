"""Random draws as a pure function of (seed, traffic, index), and distributions of lengths and pauses: no state,
independent of the order, the same on every machine."""

import hashlib
import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import RefusedError
from inferometer.errors import PlanError
from inferometer.plan.fields import MOST_TOKENS
from inferometer.plan.workloads.lengths import Lengths, Part, Pause

# -- draws -----------------------------------------------------------------------------------------------------------

Numbers = NDArray[np.uint32]  # one per token

_KEY = struct.Struct("<QIIQ")  # seed, traffic, purpose, index
_FRACTION = 2.0**-53
_NUMBER = np.dtype("<u4")


class Purpose(IntEnum):
    """Separates the random streams of a seed; 1 is used for arrivals."""

    TEXT = 2
    CHOICES = 3
    GROUP_TEXT = 4
    GROUP_LENGTH = 5
    ANSWER = 6
    PIXELS = 7
    ORDER = 8
    VERSES = 9
    BLOCK = 10
    CANCEL = 11


class Draws:
    """The draws of one traffic class."""

    def __init__(self, seed: int, traffic: int) -> None:
        self._seed, self._traffic = seed % 2**64, traffic

    def key(self, purpose: Purpose, index: int) -> bytes:
        return _KEY.pack(self._seed, self._traffic, purpose, index)

    def uniforms(self, purpose: Purpose, index: int, turn: int, count: int) -> list[float]:
        """Numbers in (0, 1), 53 bits each."""
        random = hashlib.shake_128(self.key(purpose, index) + turn.to_bytes(4, "little")).digest(8 * count)
        return [((number >> 11) + 0.5) * _FRACTION for number in struct.unpack(f"<{count}Q", random)]


def numbers(key: bytes, count: int) -> Numbers:
    """Random numbers from SHAKE, which needs no seeding and has any length: 10 us for 1000 tokens (4 kB)."""
    return np.frombuffer(hashlib.shake_128(key).digest(4 * count), _NUMBER)


def numbers_in_turn(first: bytes, fresh: int, then: bytes, rest: int) -> Numbers:
    """The numbers of two keys, concatenated."""
    shake = hashlib.shake_128
    return np.frombuffer(shake(first).digest(4 * fresh) + shake(then).digest(4 * rest), _NUMBER)


# -- lengths ---------------------------------------------------------------------------------------------------------

Quantile = Callable[[float], int]  # of a number in (0, 1)
PauseQuantile = Callable[[float], float]

FAR = 1 - 1e-6  # one draw in a million: the maximum of an unbounded distribution
_STANDARD = NormalDist()


def quantile_of(spec: Part) -> Quantile:
    """The length as a function of a uniform number, clamped to `min` and `max`."""
    match spec.type:
        case "fixed":
            return _constant(spec.value or 1)
        case "uniform":
            return _uniform(spec.min or 1, spec.max or 1)
        case "normal":
            return _bounded(spec, _normal(spec.mean or 0.0, spec.std or 0.0))
        case "lognormal":
            return _bounded(spec, _lognormal(spec.mean or 1.0, spec.std or 0.0))
        case "zipf":
            return _zipf(spec.min or 1, spec.max or 1, spec.alpha or 1.0)
        case "choices":
            return pick(spec.values, spec.weights)
        case "empirical":
            return _bounded(spec, _recorded(spec.file or ""))
    return _mixture(spec)


def longest_of(spec: Part) -> int:
    """The maximum length; for an unbounded distribution, exceeded once in a million draws."""
    return spec.most or quantile_of(spec)(FAR)


def pick(values: Sequence[int], weights: Sequence[float] = ()) -> Quantile:
    """One of the values, in proportion to the weights."""
    if not weights:
        return lambda u: values[int(u * len(values))]
    choose = picker(weights)
    return lambda u: values[choose(u)]


def picker(weights: Sequence[float]) -> Quantile:
    """A random index, in proportion to the weights."""
    sums = list(accumulate(weights))
    total, last = sums[-1], len(sums) - 1
    return lambda u: min(bisect_right(sums, u * total), last)


def zipf_picker(count: int, alpha: float) -> Quantile:
    """A random index, the k-th with a share proportional to 1 / k^alpha."""
    sums = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -alpha)
    total, last = float(sums[-1]), count - 1
    return lambda u: min(int(sums.searchsorted(u * total, side="right")), last)


def pause_quantile(spec: Pause) -> PauseQuantile:
    """The pause in seconds as a function of a uniform number; never negative."""
    low, high = spec.min or 0.0, math.inf if spec.max is None else spec.max
    match spec.type:
        case "fixed":
            value = spec.value or 0.0
            return lambda _u: value
        case "uniform":
            return lambda u: low + u * (high - low)
        case "normal":
            drawn = _normal(spec.mean or 0.0, spec.std or 0.0)
        case "lognormal":
            drawn = _lognormal(spec.mean or 0.0, spec.std or 0.0)
        case _:
            mean = spec.mean or 0.0
            return lambda u: min(max(-mean * math.log1p(-u), low), high)
    return lambda u: min(max(drawn(u), low), high)


def _constant(value: int) -> Quantile:
    return lambda _u: value


def _uniform(least: int, most: int) -> Quantile:
    return lambda u: least + int(u * (most - least + 1))


def _bounded(spec: Part, drawn: Callable[[float], float]) -> Quantile:
    least, most = spec.min or 1, MOST_TOKENS if spec.max is None else spec.max
    return lambda u: int(min(max(round(drawn(u)), least), most))


def _normal(mean: float, std: float) -> Callable[[float], float]:
    return lambda u: mean + std * _STANDARD.inv_cdf(u)


def _lognormal(mean: float, std: float) -> Callable[[float], float]:
    """With the mean m and standard deviation s of the lengths themselves: sigma^2 = ln(1 + s^2 / m^2)."""
    if mean <= 0:
        return lambda _u: 0.0
    variance = math.log1p((std / mean) ** 2)
    middle, sigma = math.log(mean) - variance / 2, math.sqrt(variance)
    return lambda u: math.exp(middle + sigma * _STANDARD.inv_cdf(u))


def _zipf(least: int, most: int, alpha: float) -> Quantile:
    choose = zipf_picker(most - least + 1, alpha)
    return lambda u: least + choose(u)


def _recorded(file: str) -> Callable[[float], float]:
    values = recorded_lengths(file)
    return lambda u: values[int(u * len(values))]


@lru_cache(8)
def recorded_lengths(file: str) -> tuple[int, ...]:
    """The lengths in a file, one per line, in order; a `PlanError` names a bad row."""
    try:
        rows = text_in(file_bytes(Path(file).expanduser())).splitlines()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.sentence if isinstance(error, RefusedError) else str(error)
        raise PlanError(f"{file}: cannot be read: {reason}", "give a text file with a length on each line") from None
    values = [_recorded_length(file, number, row) for number, row in enumerate(rows, 1) if row.strip()]
    if not values:
        raise PlanError(f"{file}: has no lengths in it", "give a text file with a length on each line")
    return tuple(sorted(values))


def _recorded_length(file: str, number: int, row: str) -> int:
    text = row.strip()
    if not text.isdecimal() or len(text) > len(str(MOST_TOKENS)) or not 1 <= int(text) <= MOST_TOKENS:
        raise PlanError(
            f"{file}: row {number} must be a whole number from 1 to {MOST_TOKENS:,}, got {text[:40]}",
            "an empirical distribution has one length a line; for a table see workload type trace",
        )
    return int(text)


def _mixture(spec: Part) -> Quantile:
    """The uniform number chooses the part; its remainder draws from that part."""
    parts = spec.parts if isinstance(spec, Lengths) else []
    draws = [quantile_of(part) for part in parts]
    edges = [0.0, *accumulate(part.weight for part in parts)]
    total, last = edges[-1], len(draws) - 1

    def drawn(u: float) -> int:
        at = u * total
        part = min(bisect_right(edges, at) - 1, last)
        inside = (at - edges[part]) / (edges[part + 1] - edges[part])
        return draws[part](min(max(inside, 1e-12), 1 - 1e-12))

    return drawn
