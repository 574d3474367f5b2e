"""Attacks and bounds: right where the answer is known, honest where there is nothing to find."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score, roc_curve

from fmtc.errors import DataError
from fmtc.privacy.accounting import epsilon_of, mu_of
from fmtc_bench.audits.attacks import (
    Observation,
    attacked,
    canary_audit,
    drawn_members,
    epsilon_from_errors,
    epsilon_from_guesses,
    found_below,
    likelihood_ratios,
    membership,
    mu_from_errors,
    roc,
    row_span,
    upper_rate,
)


def shadows(rng, gap, runs=60, records=40, q=3):
    """Statistics that lie `gap` standard deviations higher where the record was in; each record has its own level."""
    members = drawn_members(runs, records)
    level, size = rng.normal(size=(records, q)) * 5, rng.uniform(0.1, 10, (records, q))
    return level + size * (rng.normal(size=(runs, records, q)) + gap * members[:, :, None]), members


# ------------------------------------------------------------------------------------------------------------ scores


def test_a_score_has_not_seen_its_own_run(rng):
    """Whatever a run's own membership is said to be, its scores are the same: the Gaussians come from other runs."""
    S, members = shadows(rng, 0.5)
    scores = likelihood_ratios(S, members)
    other = members.copy()
    other[7] = ~other[7]
    assert_allclose(likelihood_ratios(S, other)[7], scores[7], rtol=1e-9, atol=1e-12)
    assert not np.allclose(likelihood_ratios(S, other)[8], scores[8])


def test_scores_are_those_of_gaussians_fitted_without_the_run(rng):
    S, members = shadows(rng, 0.5, runs=30, records=4, q=2)
    found = likelihood_ratios(S, members)
    run, record = 11, 2
    scale = S.std(axis=0)
    T = ((S - S.mean(axis=0)) / scale)[:, record]
    others = np.arange(30) != run
    inside, outside = T[others & members[:, record]], T[others & ~members[:, record]]
    away = np.vstack([inside - inside.mean(axis=0), outside - outside.mean(axis=0)])
    C = away.T @ away / (len(away) - 2) + (0.01 + 2 / 30) * np.eye(2)
    gap = inside.mean(axis=0) - outside.mean(axis=0)
    expected = np.linalg.solve(C, gap) @ (T[run] - (inside.mean(axis=0) + outside.mean(axis=0)) / 2)
    assert found[run, record] == pytest.approx(expected, rel=1e-6)


def test_more_to_see_is_found_better_and_nothing_is_not_found(rng):
    found = [membership(*shadows(rng, gap, runs=80))[0] for gap in (0.0, 0.5, 2.0)]
    assert found[0].auc.value < found[1].auc.value < found[2].auc.value
    assert abs(found[0].auc.value - 0.5) < 0.05  # 3,200 pairs: seven standard errors
    assert found[0].epsilon_at_least == 0
    assert found[2].auc.value > 0.98
    assert found[2].epsilon_at_least > 1.5


def test_auc_and_tpr_are_those_of_the_curve(rng):
    scores, members = rng.normal(size=(40, 50)).round(1), rng.random((40, 50)) < 0.5  # ties included
    scores[members] += 0.3
    found = attacked(scores, members, bootstraps=50)
    assert found.auc.value == pytest.approx(roc_auc_score(members.ravel(), scores.ravel()))
    fpr, tpr, _ = roc_curve(members.ravel(), scores.ravel(), drop_intermediate=False)
    assert found.tpr.value == pytest.approx(tpr[fpr <= 0.01].max())
    assert found.auc.low < found.auc.value < found.auc.high
    x, y = roc(scores, members)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)


def test_intervals_know_that_runs_and_records_are_shared(rng):
    """Scores that depend on the record only: many runs do not make the interval narrow."""
    members = drawn_members(100, 30)
    level = rng.normal(size=30) * (1 + rng.random(30))
    scores = np.where(members, level, -level) + 0.01 * rng.normal(size=members.shape)
    interval = attacked(scores, members, bootstraps=200).auc
    assert interval.high - interval.low > 0.2


def test_too_few_runs_are_refused(rng):
    with pytest.raises(DataError, match="too few"):
        likelihood_ratios(np.zeros((4, 3, 1)), np.zeros((4, 3), bool))


def test_a_statistic_that_never_changes_is_no_trouble(rng):
    S, members = shadows(rng, 1.0)
    S[:, :, 1] = 3.0
    assert np.isfinite(likelihood_ratios(S, members)).all()


# ------------------------------------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize(("errors", "trials"), [(0, 20), (3, 50), (50, 50), (499, 1000)])
def test_upper_rates_are_those_of_clopper_and_pearson(errors, trials):
    exact = binomtest(errors, trials, alternative="less").proportion_ci(0.95, "exact").high
    assert upper_rate(errors, trials) == pytest.approx(exact)


def test_bounds_approach_the_truth_from_below():
    """Of a mechanism with known errors, the bound is below its epsilon, and near it with many trials."""
    epsilon = 2.0
    error = 1 / (1 + math.exp(epsilon))  # randomised response
    for trials, near in ((100, 0.0), (100_000, 1.9)):
        wrong = round(error * trials)
        assert near <= epsilon_from_errors(wrong, trials, wrong, trials) < epsilon
        assert near <= epsilon_from_guesses(trials - wrong, trials, trials) < epsilon
    mu = 1.5
    wrong = round(100_000 * norm.cdf(-mu / 2))
    assert 1.45 < mu_from_errors(wrong, 100_000, wrong, 100_000) < mu


def test_a_bound_is_wrong_as_rarely_as_it_says(rng):
    """Randomised response at epsilon 1: among 2,000 audits at 95 %, at most 5 % claim more; 7 % is ten errors away."""
    right = rng.binomial(200, math.e / (1 + math.e), size=2000)
    bounds = {value: epsilon_from_guesses(int(value), 200, 200) for value in np.unique(right)}
    assert np.mean([bounds[value] > 1 for value in right]) < 0.07
    assert np.mean([bounds[value] for value in right]) > 0.6


def test_delta_takes_from_a_bound():
    without, small, large = (epsilon_from_guesses(190, 200, 1000, delta) for delta in (0.0, 1e-6, 1e-3))
    assert without >= small > large


def test_no_guess_is_no_bound():
    assert epsilon_from_guesses(0, 0, 100) == 0
    assert epsilon_from_errors(50, 100, 50, 100) == 0
    assert mu_from_errors(100, 100, 0, 100) == 0


# ------------------------------------------------------------------------------------------------------------ canary


def gaussian(rng, mu, share=1.0):
    """A mechanism of three stages with `share` of the noise that makes it mu-GDP."""
    added = [np.array([3.0, 4.0]), np.array([0.0, 1.0, 0.0]), np.array([2.0])]
    sigmas = [np.linalg.norm(part) / (mu / math.sqrt(3)) for part in added]

    def release(inside, number):
        return [
            Observation("stage", base + inside * part + share * sigma * rng.normal(size=part.shape), base, part, sigma)
            for part, sigma in zip(added, sigmas, strict=True)
            for base in [rng.normal(size=part.shape)]
        ]

    return release


def audit(release, epsilon, runs):
    mu = mu_of(epsilon, 1e-5)
    return canary_audit(release, mu=mu, epsilon=epsilon, delta=1e-5, epsilon_of=epsilon_of, runs=runs)


def test_the_canary_finds_half_of_the_noise_and_passes_all_of_it(rng):
    right, broken = audit(gaussian(rng, mu_of(4, 1e-5)), 4, 2000), audit(gaussian(rng, mu_of(4, 1e-5), 0.5), 4, 2000)
    assert not right.caught
    assert right.epsilon_at_least > 2.5  # sharp: the canary adds all that is allowed
    assert right.auc == pytest.approx(right.auc_at_most, abs=0.03)
    assert broken.caught
    assert broken.epsilon_at_least > 4
    assert "caught" in broken.verdict


def test_no_noise_is_found_at_once(rng):
    assert audit(gaussian(rng, mu_of(1, 1e-5), 0.0), 1, 100).caught


def test_an_audit_says_what_it_can_find():
    mu = mu_of(4, 1e-5)
    shares = [found_below(mu, half) for half in (20, 200, 2000)]
    assert shares == sorted(shares)
    assert 0.85 < shares[-1] < 1
    assert found_below(mu_of(1, 1e-5), 20) < shares[0]  # little noise shows sooner


# -------------------------------------------------------------------------------------------------------------- span


def test_the_span_of_few_rows_is_found_and_that_of_more_rounds_sooner(rng):
    X, anchors = rng.normal(size=(12, 50)), [rng.normal(size=(50, 3)) for _ in range(5)]
    sent = [A + X.T @ rng.normal(size=(12, 3)) for A in anchors]
    found = [row_span(X, sent[:rounds], anchors[:rounds]) for rounds in (1, 3, 5)]
    assert [one.found for one in found] == [3, 9, 12]
    assert [one.exact for one in found] == [False, False, True]
    assert found[0].energy < found[1].energy < found[2].energy
    assert found[2].angle < 1e-4
    other = row_span(rng.normal(size=(12, 50)), sent, anchors)  # rows of somebody else
    assert other.angle > 60
    assert not other.exact
