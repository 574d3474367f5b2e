"""Systems with a symmetric, positive definite matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fmtc.linalg import solve
from fmtc.linalg.solve import cholesky_solver, conjugate_gradients


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_factor_solves_for_many_right_hand_sides(rng, dtype):
    A = rng.normal(size=(20, 20))
    A = (A @ A.T + np.eye(20)).astype(dtype)
    solver = cholesky_solver(A.copy())
    for _ in range(2):
        B = rng.normal(size=(20, 3)).astype(dtype)
        V = solver(B)
        assert V.dtype == dtype
        assert_allclose(A @ V, B, atol=1e-10 if dtype == np.float64 else 1e-3)


def test_conjugate_gradients_take_one_step_for_each_eigenvalue(rng):
    a = np.repeat([1.0, 3.0, 7.0], 20)[:, None]
    B = rng.normal(size=(60, 4))
    calls = []
    V, excess = conjugate_gradients(lambda P: calls.append(P.shape) or a * P, B)
    assert_allclose(V, B / a, rtol=1e-12)
    assert calls == [(60, 4)] * 3
    assert excess <= 1


def test_columns_that_have_converged_cost_no_more(rng):
    a = np.repeat([1.0, 3.0, 7.0], 20)[:, None]
    easy, two = np.zeros((60, 1)), rng.normal(size=(60, 1))
    easy[5] = 2.0  # an eigenvector
    two[40:] = 0  # of two eigenvectors
    B = np.hstack([np.zeros((60, 1)), rng.normal(size=(60, 1)), easy, two])
    widths = []
    V, _ = conjugate_gradients(lambda P: widths.append(P.shape[1]) or a * P, B)
    assert_allclose(V, B / a, rtol=1e-12)
    assert widths == [3, 2, 1]


def test_right_hand_sides_of_very_different_sizes_are_solved_alike(rng):
    a = np.linspace(1, 9, 50)[:, None]
    B = rng.normal(size=(50, 3)) * [1e-9, 1.0, 1e9]
    V, _ = conjugate_gradients(lambda P: a * P, B)
    assert (np.linalg.norm(a * V - B, axis=0) < 1e-11 * np.linalg.norm(B, axis=0)).all()


def test_what_is_missing_is_reported_where_it_does_not_converge(rng, monkeypatch):
    monkeypatch.setattr(solve, "STEPS_PER_ROW", 1)
    a, B = np.logspace(0, 12, 30)[:, None], rng.normal(size=(30, 2))
    calls = []
    V, excess = conjugate_gradients(lambda P: calls.append(1) or a * P, B)
    assert len(calls) == 30
    residual = np.linalg.norm(a * V - B, axis=0) / np.linalg.norm(B, axis=0)
    assert_allclose(excess, residual.max() / np.finfo(float).eps ** 0.75, rtol=0.1)
    assert excess > 1


def test_what_is_not_a_number_does_not_become_one(rng):
    a, B = np.linspace(1, 9, 50)[:, None], rng.normal(size=(50, 2))
    B[3, 0] = np.nan
    V, _ = conjugate_gradients(lambda P: a * P, B)
    assert np.isnan(V[3, 0])
    assert_allclose(V[:, 1], B[:, 1] / a[:, 0], atol=1e-11)


@pytest.mark.torch
def test_a_factor_of_a_tensor(rng):
    torch = pytest.importorskip("torch")
    A = rng.normal(size=(20, 20))
    A, B = A @ A.T + np.eye(20), rng.normal(size=(20, 3))
    V = cholesky_solver(torch.from_numpy(A))(torch.from_numpy(B))
    assert_allclose(V.numpy(), np.linalg.solve(A, B), atol=1e-10)
