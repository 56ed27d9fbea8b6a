"""Our distribution functions compared with scipy."""

import math

import numpy as np
import pytest
from scipy import special, stats

from inferometer.measure import quantiles


@pytest.mark.parametrize("a", [0.5, 1, 3.7, 40, 2500])
@pytest.mark.parametrize("b", [0.5, 1, 8, 900.5])
@pytest.mark.parametrize("x", [0.0, 1e-6, 0.1, 0.5, 0.77, 0.999, 1.0])
def test_beta(a: float, b: float, x: float) -> None:
    assert quantiles.beta_cdf(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dof", [1, 2.5, 7, 31, 1000])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.975, 0.9995])
def test_student_t(dof: float, p: float) -> None:
    assert quantiles.t_quantile(p, dof) == pytest.approx(stats.t.ppf(p, dof), rel=1e-7, abs=1e-8)
    assert quantiles.t_cdf(1.7, dof) == pytest.approx(stats.t.cdf(1.7, dof), rel=1e-9)


@pytest.mark.parametrize("shape", [0.04, 0.25, 1.0, 4.0, 100.0])
def test_gamma(shape: float) -> None:
    x = np.concatenate(([0.0], np.geomspace(1e-4, 300, 500)))
    np.testing.assert_allclose(quantiles.gamma_cdf(shape, x), stats.gamma.cdf(x, shape), rtol=1e-9, atol=1e-12)


def test_gamma_of_nothing() -> None:
    assert len(quantiles.gamma_cdf(1.0, np.empty(0))) == 0


@pytest.mark.parametrize("n", [30, 300, 5000])
@pytest.mark.parametrize("scaled", [0.1, 0.3, 0.8, 1.36, 1.9, 2.2])
def test_kolmogorov(n: int, scaled: float) -> None:
    """Stephens' correction is made for the tail, where we decide; in the body it is off by up to 0.013 at n = 30."""
    ours, exact = quantiles.kolmogorov_p(scaled / n**0.5, n), stats.kstwo.sf(scaled / n**0.5, n)
    assert ours == (pytest.approx(exact, rel=0.15) if exact < 0.1 else pytest.approx(exact, abs=0.015))


def test_ks_statistic() -> None:
    uniform = np.random.default_rng(5).random(200)
    expected = stats.kstest(uniform, "uniform").statistic
    assert quantiles.ks_statistic(uniform) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("power", [1, 3, 0.2])
@pytest.mark.parametrize("root", [1e-6, 0.3, 7.0, 9.999])
def test_crossings_are_found(power: float, root: float) -> None:
    def rising(x: float) -> float:
        return math.copysign(abs(x - root) ** power, x - root)

    assert quantiles.crossing(rising, 0.0, 10.0, 1e-9) == pytest.approx(root, abs=2e-9)


def test_a_crossing_outside_is_the_nearer_end() -> None:
    assert quantiles.crossing(lambda x: x - 11, 0.0, 10.0) == 10.0
    assert quantiles.crossing(lambda x: x + 1, 0.0, 10.0) == 0.0
