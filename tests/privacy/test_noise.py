"""The discrete Gaussian: its exact law, from randomness that nobody can repeat."""

from fractions import Fraction
from math import ceil, sqrt

import numpy as np
import pytest
from scipy.stats import chi2, kstest, norm

from fmtc.privacy import noise
from fmtc.privacy.noise import draw, rational

N = 40_000
SURE = 1e-9  # how unlikely a deviation must be before a test fails: randomness cannot be seeded here


def law(sd):
    """Numbers and their exact probabilities."""
    reach = ceil(9 * sd) + 9
    v = np.arange(-reach, reach + 1)
    p = np.exp(-(v.astype(float) ** 2) / (2 * sd * sd))
    return v, p / p.sum()


@pytest.mark.parametrize("sd", [0.5, 0.7, 1.0, 1.37, 3.3, 20.0])
def test_the_law_is_the_discrete_gaussian(sd):
    v, p = law(sd)
    found = draw(sd, N)
    expected = p * N
    keep = expected >= 10
    observed = np.array([(found == value).sum() for value in v[keep]])
    rest, mass = N - observed.sum(), N - expected[keep].sum()
    statistic = ((observed - expected[keep]) ** 2 / expected[keep]).sum()
    if mass > 10:
        statistic += (rest - mass) ** 2 / mass
    assert statistic < chi2.isf(SURE, keep.sum())


@pytest.mark.parametrize("sd", [300.5, 1e4, 1e8 / 3, 1e12])
def test_wide_ones_are_as_gaussian_as_can_be(sd):
    found = draw(sd, N) / sd
    assert kstest(found, norm.cdf).pvalue > SURE
    assert abs(found.mean()) < 7 / sqrt(N)
    assert abs(found.var() - 1) < 7 * sqrt(2 / N)
    assert abs((found**4).mean() - 3) < 7 * sqrt(96 / N)


@pytest.mark.parametrize("sd", [0.5, 4.2, 1e6])
def test_signs_are_even(sd):
    found = draw(sd, N)
    plus, minus = (found > 0).sum(), (found < 0).sum()
    assert abs(plus - minus) < 7 * sqrt(plus + minus)


def test_no_two_draws_are_alike():
    assert not np.array_equal(draw(1e6, 10), draw(1e6, 10))
    np.random.seed(0)  # noqa: NPY002 - what a seed would do is the point
    first = draw(1e6, 10)
    np.random.seed(0)  # noqa: NPY002
    assert not np.array_equal(first, draw(1e6, 10))


@pytest.mark.parametrize("sd", [0.5, 1 / 3, 7.77, 123456.789, 1e8, 2.0**47])
def test_a_standard_deviation_is_rounded_up_and_hardly(sd):
    a, b = rational(sd)
    assert isinstance(a, int) and isinstance(b, int)
    assert 0 <= Fraction(a, b) - Fraction(sd) <= Fraction(sd) * Fraction(1, 2**31)


def test_what_decides_are_whole_numbers(monkeypatch):
    """No comparison and no array inside the sampler has a floating-point number."""
    real, seen = noise._below, []

    def below(limit, n):
        seen.append(type(limit))
        found = real(limit, n)
        assert found.dtype == np.int64 and (found >= 0).all() and (found < limit).all()
        return found

    monkeypatch.setattr(noise, "_below", below)
    assert draw(2.5, 1000).dtype == np.int64
    assert set(seen) == {int}


def test_sizes_and_values_that_cannot_be():
    assert draw(0.0, 3).tolist() == [0, 0, 0]
    assert len(draw(5.0, 0)) == 0
    assert len(draw(5.0, 1)) == 1
    for sd in (-1.0, np.nan, np.inf, 2.0**48):
        with pytest.raises(ValueError, match="sd"):
            draw(sd, 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 2**31 + 1])
def test_uniform_numbers_are_uniform(limit):
    found = noise._below(limit, N)
    assert found.min() >= 0 and found.max() < limit
    assert abs(found.mean() - (limit - 1) / 2) <= 7 * limit / sqrt(12 * N)
