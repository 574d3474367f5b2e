"""Ranks of scores among those of calibrated rows, and the tests made of them."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import rankdata

from fmtc.kernels.ranks import RowScores, calibrate, count_test, low_test, ranks, stouffer


def scores(n, rng, shift=0.0):
    return RowScores(rng.normal(size=n) + shift, rng.normal(size=n) + shift, rng.normal(size=n))


def test_a_share_of_new_scores_lies_below_its_quantile_on_average():
    """Also where calibrated rows are few: plain quantiles would leave out 12 of a hundred here, not 10."""
    rng = np.random.default_rng(0)
    shares = [
        np.mean(ranks(rng.normal(size=200), calibrate(scores(40, rng), False).quantiles[0]) < 0.1) for _ in range(300)
    ]
    assert 0.092 < np.mean(shares) < 0.108


def test_confidence_is_uniform_for_rows_like_the_calibrated_ones():
    rng = np.random.default_rng(1)
    known = calibrate(scores(2000, rng), False)
    found = known.confidence(scores(5000, rng))
    assert_allclose(np.quantile(found, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.03)
    assert (known.confidence(scores(500, rng, shift=-3)) < 0.1).mean() > 0.8


def test_long_projections_are_unusual_only_where_rows_are_centred():
    rng = np.random.default_rng(2)
    rows = scores(500, rng)
    long, short = (RowScores(np.zeros(1), np.zeros(1), np.array([length])) for length in (9.0, -9.0))
    both, low = calibrate(rows, False), calibrate(rows, True)
    assert both.fit(long)[0] < both.quantiles[4, 9] and both.fit(short)[0] < both.quantiles[4, 9]
    assert low.fit(long)[0] > low.quantiles[4, 49] and low.fit(short)[0] < low.quantiles[4, 9]


def test_moments_of_the_low_test_are_those_of_all_divisions():
    """The p-value is close to the share of all divisions of the scores with as large a statistic."""
    rng = np.random.default_rng(3)
    new, known = rng.normal(size=6) - 0.4, rng.normal(size=12)
    a = -np.log(rankdata(np.concatenate([new, known])) / 19)
    all_sums = np.array([a[list(some)].sum() for some in combinations(range(18), 6)])
    exact = np.mean(all_sums >= a[:6].sum() - 1e-9)
    assert low_test(new, known) == pytest.approx(exact, abs=0.02)


def test_the_low_test_keeps_its_level_and_sees_a_few_low_rows_sooner_than_mann_whitney():
    from scipy.stats import mannwhitneyu

    rng = np.random.default_rng(4)
    false, seen, by_sum = [], [], []
    for _ in range(400):
        known, new = rng.normal(size=200), rng.normal(size=40)
        false.append(low_test(new, known) <= 0.05)
        new[:6] -= 2.5
        seen.append(low_test(new, known) <= 0.05)
        by_sum.append(mannwhitneyu(new, known, alternative="less").pvalue <= 0.05)
    assert np.mean(false) < 0.08
    assert np.mean(seen) > np.mean(by_sum) + 0.15


def test_scores_that_are_all_alike_prove_nothing():
    assert low_test(np.zeros(5), np.zeros(9)) == 1.0


def test_counts_of_low_rows():
    assert count_test(0, 50, 0.1, 400) == 1.0
    assert count_test(10, 50, 0.1, 400) > count_test(15, 50, 0.1, 400) > count_test(20, 50, 0.1, 400)


def test_many_weak_p_values_make_a_strong_one_and_none_decides_alone():
    assert stouffer([0.1] * 8) < 0.001 < 0.05 < stouffer([0.5] * 8)
    assert stouffer([1.0, 1e-300]) < 0.05 < stouffer([1.0, 0.2])  # clipped: finite in both directions
    assert np.isfinite(stouffer([0.0, 1.0]))
