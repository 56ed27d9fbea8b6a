"""The few distributions that intervals and tests need, without scipy; the tests hold them against it."""

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return value


def _not_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY


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
    return bisect(lambda t: t_cdf(t, dof) - p, 0.0, high)


def bisect(rising: Callable[[float], float], low: float, high: float, within: float = 1e-10) -> float:
    """Where a rising function crosses zero between low and high."""
    while high - low > within:
        middle = 0.5 * (low + high)
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


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
    """Largest distance between the sample and a distribution, given the latter's value at each of the sample; from the
    quantile `least` of the distribution on."""
    ordered = np.sort(cdf_values)
    n = len(ordered)
    steps = np.arange(n + 1) / n
    below = int(np.searchsorted(ordered, least, side="right")) if least else 0
    at_least = abs(below / n - least) if least else 0.0
    if below == n:
        return at_least
    return float(max(at_least, np.max((steps[1:] - ordered)[below:]), np.max((ordered - steps[:-1])[below:])))
