"""Influence at fixed embedding is the change of a refit without the record, and never takes n x n numbers."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels import influence
from fmtc.kernels.influence import record_influence
from fmtc.kernels.projection import RidgeFactors, Rows


def brute(M, F, anchor, ridge):
    """Change and leverage by n + 1 refits."""

    def fit(M, F):
        return np.linalg.solve(M.T @ M + ridge * np.eye(M.shape[1]), M.T @ F + ridge * anchor)

    W, n = fit(M, F), len(M)
    rest = [np.delete(np.arange(n), i) for i in range(n)]
    change = [np.linalg.norm(W - fit(M[others], F[others])) / np.linalg.norm(W) for others in rest]
    inverse = np.linalg.inv(M.T @ M + ridge * np.eye(M.shape[1]))
    return np.array(change), np.einsum("ij,jk,ik->i", M, inverse, M)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("n", "d"), [(40, 6), (9, 25)])
def test_it_is_the_refit_without_the_record(rng, monkeypatch, kind, centred, n, d):
    monkeypatch.setattr(influence, "BLOCK", 7)  # several blocks, the last one short
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    mean = X.mean(axis=0) if centred else None
    M = 0.3 * (X if mean is None else X - mean)
    F, anchor = rng.normal(size=(n, 3)), rng.normal(size=(d, 3))
    factors = RidgeFactors(Rows(sp.csr_array(X) if kind == "sparse" else X, mean, 0.3), 0.2)
    found = record_influence(factors, F, factors.solve(F, anchor))
    change, h = brute(M, F, anchor, 0.2)
    assert_array_equal(found.rows, np.arange(n))
    assert_allclose(found.change, change, rtol=1e-7)
    assert_allclose(found.leverage, h, rtol=1e-7)
    assert found.top == change.argmax()


def test_where_solves_are_iterative_the_records_with_the_largest_bound_are_looked_at(rng, monkeypatch):
    monkeypatch.setattr(influence, "FEW", 20)
    X = rng.normal(size=(60, 8))
    X[17] *= 12
    F = rng.normal(size=(60, 2))
    factors = RidgeFactors(sp.csr_array(X), 0.5)
    W = factors.solve(F, np.zeros((8, 2)))
    direct = record_influence(factors, F, W)
    iterative = RidgeFactors(sp.csr_array(X), 0.5)
    iterative.direct = False
    found = record_influence(iterative, F, W)
    assert len(found.rows) <= 20
    assert found.top == direct.top
    assert found.leverage.max() == pytest.approx(direct.leverage[17])
    assert_allclose(found.change, direct.change[found.rows], rtol=1e-5)


def test_memory_stays_far_below_n_by_n(rng):
    n = 6000
    factors = RidgeFactors(rng.normal(size=(n, 5)), 0.1)
    F = rng.normal(size=(n, 2))
    W = factors.solve(F, np.zeros((5, 2)))
    tracemalloc.start()
    record_influence(factors, F, W)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8 / 50
