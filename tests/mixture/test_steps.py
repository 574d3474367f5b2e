"""E-step, limits of pooling, and what the likelihood may not do."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from fmtc.mixture import Cells, Pool, e_step, personal, summed
from fmtc.mixture.cells import BLOCK, level_parts
from fmtc.mixture.steps import Common, Personal, Statistics, kept_rows, row_scores

from .simulate import FREE, begin, rounds, silos

KINDS = {
    "complete": {},
    "missing": {"missing": 0.3},
    "categories": {"levels": (2, 3)},
    "both": {"levels": (2, 3), "missing": 0.3},
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def parameters(rng, k, r, levels):
    A = rng.normal(size=(r, r))
    profiles = np.hstack([rng.dirichlet(np.ones(size), size=k) for size in levels]) if levels else np.zeros((k, 0))
    return Personal(rng.normal(size=(k, r)), rng.dirichlet(np.ones(k)), profiles), A @ A.T + np.eye(r)


def row_by_row(cells, own, covariance):
    """What the E-step sums up, one row and one concept at a time."""
    k, r = own.means.shape
    counts, sums, second = np.zeros(k), np.zeros((k, r)), np.zeros((r, r))
    levels, total = np.zeros((k, sum(cells.levels))), 0.0
    for x, codes in zip(np.asarray(cells.Z[:]), cells.codes, strict=True):
        o, m = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        Soo, Smo = covariance[np.ix_(o, o)], covariance[np.ix_(m, o)]
        score = np.log(own.shares)
        for j in range(k):
            if len(o):
                score[j] += multivariate_normal(own.means[j, o], Soo).logpdf(x[o])
            for c, code in enumerate(codes):
                score[j] += np.log(own.profiles[j, level_parts(cells.levels)[c].start + code]) if code >= 0 else 0
        total += logsumexp(score)
        q = np.exp(score - logsumexp(score))
        for j in range(k):
            full, cov = x.copy(), np.zeros((r, r))
            B = Smo @ np.linalg.inv(Soo) if len(o) else np.zeros((len(m), 0))
            full[m] = own.means[j, m] + B @ (x[o] - own.means[j, o])
            cov[np.ix_(m, m)] = covariance[np.ix_(m, m)] - B @ Smo.T
            counts[j] += q[j]
            sums[j] += q[j] * full
            second += q[j] * (np.outer(full, full) + cov)
            for c, code in enumerate(codes):
                if code >= 0:
                    levels[j, level_parts(cells.levels)[c].start + code] += q[j]
    return counts, sums, second, levels, total


@pytest.mark.parametrize("kind", KINDS)
def test_the_e_step_sums_up_what_each_row_gives(kind, rng):
    ((cells, _), *_), _, _ = silos(rng, sizes=(40,), **KINDS[kind])
    if kind == "missing":
        cells.Z[3] = np.nan  # a row without any number
    own, covariance = parameters(rng, 3, cells.r, cells.levels)
    found = e_step(cells, own, covariance)
    for got, expected in zip(
        (found.counts, found.sums, found.second, found.levels, found.log_likelihood),
        row_by_row(cells, own, covariance),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_blocks_of_rows_do_not_matter(rng):
    X = rng.normal(size=(2 * BLOCK + 17, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    cells = Cells(X, np.zeros((len(X), 0), np.int64))
    own, covariance = parameters(rng, 2, 3, ())
    whole = e_step(cells, own, covariance)
    parts = [e_step(cells.take(rows), own, covariance) for rows in np.array_split(np.arange(len(X)), 5)]
    np.testing.assert_allclose(whole.counts, sum(part.counts for part in parts), rtol=1e-10)
    np.testing.assert_allclose(whole.second, sum(part.second for part in parts), rtol=1e-10)
    assert whole.log_likelihood == pytest.approx(sum(part.log_likelihood for part in parts), rel=1e-12)


@pytest.mark.parametrize("n", [60, 900])
def test_rows_are_worked_on_with_rows_that_lack_about_as_many_cells(n, rng):
    """Every row once, with its own missing cells; a row that lacks one cell does not wait for one that lacks forty."""
    X = rng.normal(size=(n, 45))
    X[rng.random(X.shape) < rng.choice([0.05, 0.4, 0.9], size=(n, 1))] = np.nan
    cells = Cells(X, np.zeros((n, 0), np.int64))
    found = {}
    for rows, hidden in cells.scattered:
        n_hidden = (hidden < cells.r).sum(axis=1)
        assert n_hidden.max() == hidden.shape[1] <= max(8, 2 * n_hidden.min())
        found |= dict(zip(rows.tolist(), hidden.tolist(), strict=True))
    assert len(found) == sum(len(rows) for rows, _ in cells.scattered)
    for row, hidden in found.items():
        assert [j for j in hidden if j < cells.r] == np.flatnonzero(np.isnan(X[row])).tolist()
    assert set(range(n)) - set(found) == set(np.flatnonzero(~np.isnan(X).any(axis=1)).tolist())
    own, covariance = parameters(rng, 2, cells.r, ())
    some = cells.take(np.arange(0, n, n // 60))
    for got, expected in zip(astuple(e_step(some, own, covariance)), row_by_row(some, own, covariance), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_scores_of_rows_are_log_densities(rng):
    ((cells, _),), _, _ = silos(rng, sizes=(30,), missing=0.2, levels=(3,))
    own, covariance = parameters(rng, 3, cells.r, cells.levels)
    scores, constant = row_scores(cells, own, covariance)
    total = float((logsumexp(scores, axis=1) + constant).sum())
    assert total == pytest.approx(e_step(cells, own, covariance).log_likelihood, rel=1e-10)


# ------------------------------------------------------------------------------------------------- known answers


def test_one_silo_is_scikit_learns_mixture_with_tied_covariance(rng):
    ((cells, y),), _, _ = silos(rng, sizes=(500,), gap=3.0)
    X = np.asarray(cells.Z)
    start = rng.integers(3, size=len(X))
    start[: len(X) // 2] = y[: len(X) // 2]
    common, own = begin([cells], [start], 3, spread=np.inf)
    common, own, _ = rounds([cells], common, own, FREE, 30)
    means = np.array([X[start == j].mean(axis=0) for j in range(3)])
    theirs = GaussianMixture(
        3, covariance_type="tied", reg_covar=0, tol=0, max_iter=30, means_init=means,
        weights_init=np.bincount(start) / len(start), precisions_init=np.eye(cells.r),
    )  # fmt: skip
    with pytest.warns(Warning, match="converge"):
        theirs.fit(X)
    mine = personal(common, own[0], (), 0.0)
    np.testing.assert_allclose(mine.means, theirs.means_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(common.covariance, theirs.covariances_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(mine.shares, theirs.weights_, rtol=1e-6)


def plain_em(parts, labels, k, n, *, common_means):
    """EM of rows of several silos with one covariance; means and shares of all silos together, or of each."""
    groups = [np.vstack(parts)] if common_means else parts
    starts = [np.concatenate(labels)] if common_means else labels
    q = [np.eye(k)[y] for y in starts]
    S = np.eye(groups[0].shape[1])
    means = [qt.T @ X / qt.sum(axis=0)[:, None] for X, qt in zip(groups, q, strict=True)]
    shares = [qt.mean(axis=0) for qt in q]
    for _ in range(n):
        P = np.linalg.inv(S)
        S = 0
        for t, X in enumerate(groups):
            score = (
                np.log(shares[t]) - 0.5 * np.array([np.einsum("ir,rs,is->i", X - mu, P, X - mu) for mu in means[t]]).T
            )
            q = np.exp(score - logsumexp(score, axis=1, keepdims=True))
            means[t], shares[t] = q.T @ X / q.sum(axis=0)[:, None], q.mean(axis=0)
            for j in range(k):
                S = S + (X - means[t][j]).T @ (q[:, j, None] * (X - means[t][j]))
        S = S / sum(map(len, groups))
    return means, shares, S


def test_silos_that_share_everything_are_one_mixture_of_all_rows(rng):
    found, _, _ = silos(rng)
    cells, labels = [c for c, _ in found], [rng.permutation(y) * (rng.random(len(y)) < 0.3) + y * 0 for _, y in found]
    labels = [np.where(rng.random(len(y)) < 0.5, y, start) for start, (_, y) in zip(labels, found, strict=True)]
    common, own = begin(cells, labels, 3, spread=0.0)
    pool = Pool(spread=0.0, drift=0.0, concentration=np.inf, shrinkage=0.0)
    common, _, _ = rounds(cells, common, own, pool, 25)
    means, shares, S = plain_em([np.asarray(c.Z) for c in cells], labels, 3, 25, common_means=True)
    np.testing.assert_allclose(common.means, means[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(common.covariance, S, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(common.shares, shares[0], rtol=1e-8)


def test_silos_that_share_nothing_but_the_shape_are_mixtures_of_their_own(rng):
    found, _, _ = silos(rng)
    cells = [c for c, _ in found]
    labels = [np.where(rng.random(len(y)) < 0.6, y, rng.integers(3, size=len(y))) for _, y in found]
    common, own = begin(cells, labels, 3, spread=np.inf)
    pool = Pool(spread=np.inf, drift=0.0, concentration=0.0, shrinkage=0.0)
    common, own, _ = rounds(cells, common, own, pool, 25)
    means, shares, S = plain_em([np.asarray(c.Z) for c in cells], labels, 3, 25, common_means=False)
    np.testing.assert_allclose(common.covariance, S, rtol=1e-8, atol=1e-8)
    for t, statistics in enumerate(own):
        mine = personal(common, statistics, (), 0.0)
        np.testing.assert_allclose(mine.means, means[t], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(mine.shares, shares[t], rtol=1e-8)


@pytest.mark.parametrize("kappa", [1e-2, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("drift", [0.0, 0.5])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_penalised_likelihood_never_falls(kappa, drift, missing, rng):
    found, _, _ = silos(rng, spread=0.3, drift=0.3, missing=missing, gap=2.0)
    cells, labels = [c for c, _ in found], [rng.integers(3, size=len(y)) for _, y in found]
    common, own = begin(cells, labels, 3, spread=1 / kappa, drift=drift)
    pool = Pool(spread=1 / kappa, drift=drift, concentration=0.0, shrinkage=0.0)
    _, _, scores = rounds(cells, common, own, pool, 60)
    steps = np.diff(scores[:, 0])
    assert steps.min() > -1e-8 * abs(scores[-1, 0])
    assert steps.max() > 1  # and it has risen


def test_means_are_recovered_to_their_sampling_error(rng):
    found, means, covariance = silos(rng, sizes=(2000, 1500, 1000, 500), spread=0.0, gap=5.0)
    cells, labels = [c for c, _ in found], [y for _, y in found]
    common, own = begin(cells, labels, 3)
    common, _, _ = rounds(cells, common, own, Pool(shrinkage=0.0), 40)
    n = sum(np.bincount(y, minlength=3) for y in labels)
    gap = (common.means - means) / np.sqrt(np.diag(covariance) / n[:, None])
    assert np.abs(gap).max() < 4
    np.testing.assert_allclose(common.covariance, covariance, rtol=0.1, atol=0.06)


@pytest.mark.parametrize("spread", [0.003, 0.05, 0.5])
def test_pooling_strength_is_that_of_the_silos(spread, rng):
    found, _, _ = silos(rng, k=3, r=6, sizes=[150] * 30, spread=spread, gap=6.0)
    cells, labels = [c for c, _ in found], [y for _, y in found]
    common, own = begin(cells, labels, 3)
    common, _, _ = rounds(cells, common, own, Pool(), 40)
    assert np.exp(np.log(common.spread).mean()) == pytest.approx(spread, rel=0.35)


def test_a_shift_of_a_whole_silo_is_no_difference_between_concepts(rng):
    found, _, _ = silos(rng, k=4, r=3, sizes=[200] * 12, spread=0.001, drift=2.0, gap=8.0)
    cells, labels = [c for c, _ in found], [y for _, y in found]
    common, own = begin(cells, labels, 4, drift=1.0)
    common, _, _ = rounds(cells, common, own, Pool(), 80)
    assert common.drift == pytest.approx(2.0, rel=0.6)
    assert common.spread.mean() < 0.02


def test_a_concept_that_a_silo_lacks_gets_almost_no_share(rng):
    found, _, _ = silos(rng, k=3, sizes=(300, 300, 300), gap=8.0, spread=0.0)
    cells, labels = [c for c, _ in found], [y for _, y in found]
    some = np.flatnonzero(labels[0] != 2)
    cells[0], labels[0] = cells[0].take(some), labels[0][some]
    common, own = begin(cells, labels, 3)
    common, own, _ = rounds(cells, common, own, Pool(), 30)
    mine = personal(common, own[0], (), Pool().concentration)
    assert mine.shares[2] < 0.02
    np.testing.assert_allclose(mine.means[2], common.means[2], atol=0.3)  # what it is, the others know


def test_a_silo_lacks_what_not_half_a_row_speaks_for():
    np.testing.assert_array_equal(kept_rows(np.array([0.0, 0.4, 0.5, 3.0])), [0, 0, 0, 2.5])


def test_a_small_concept_that_touches_large_ones_keeps_its_rows(rng):
    """Step by step: what a concept loses to its neighbours in one is missing from its share in the next."""
    means = np.array([[x, y] for x in (-3.2, 0.0, 3.2) for y in (-3.2, 0.0, 3.2)])
    sizes = np.array([120, 120, 120, 120, 10, 120, 120, 0, 120])
    cells = Cells(np.repeat(means, sizes, axis=0) + rng.normal(size=(sizes.sum(), 2)), np.zeros((sizes.sum(), 0), int))
    common = Common(means, np.full(9, 1 / 9), np.zeros((9, 0)), np.eye(2), np.full(9, 0.01), 0.0)
    own, mine = Statistics(np.zeros(9), np.zeros((9, 2)), np.zeros((9, 0)), np.zeros(2)), common
    for _ in range(200):
        own, _ = summed(common, own, mine, e_step(cells, mine, common.covariance), (), cells.n)
        mine = personal(common, own, (), Pool().concentration, lean=True)
    assert own.counts[4] > 5
    assert mine.shares[7] < 0.01


def test_a_column_that_one_silo_never_measured(rng):
    found, means, _ = silos(rng, sizes=(400, 400), spread=0.0, gap=6.0)
    cells, labels = [c for c, _ in found], [y for _, y in found]
    cells[1].Z[:, 1] = np.nan
    common, own = begin(cells, labels, 3)
    common, own, _ = rounds(cells, common, own, Pool(), 40)
    mine = personal(common, own[1], (), Pool().concentration, cells[1].never)
    np.testing.assert_allclose(mine.means[:, 1], means[:, 1], atol=0.8)
    scores, _ = row_scores(cells[1], mine, common.covariance)
    assert (scores.argmax(axis=1) == labels[1]).mean() > 0.95
