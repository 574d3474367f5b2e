"""Eigenvectors by a dense solver, by filtered iteration, and a bound on the spectrum."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fmtc.linalg import eigen
from fmtc.linalg.eigen import DENSE_UP_TO, eigh, lanczos_bound, largest_eigenvectors, polar_factor, uniform_noise


def orthonormal(rng, n, k):
    return np.linalg.qr(rng.normal(size=(n, k)))[0]


def polar(M):
    U, _, Vh = np.linalg.svd(M, full_matrices=False)
    return U @ Vh


# -------------------------------------------------------------------------------------------------- polar factor


@pytest.mark.parametrize(("n", "k"), [(40, 5), (40, 1), (5, 5)])
def test_polar_by_gram_equals_polar_by_svd(rng, n, k):
    for condition in (1.0, 30.0, 1e3, 1e7):  # on both sides of where the Gram matrix is used
        M = orthonormal(rng, n, k) * np.geomspace(1, 1 / condition, k) @ orthonormal(rng, k, k)
        F = polar_factor(M)
        assert_allclose(F.T @ F, np.eye(k), atol=1e-10)
        if condition < 1e7:  # beyond, the polar factor itself is known to eps * condition only
            assert_allclose(F, polar(M), atol=1e-10)


@pytest.mark.parametrize(("rank", "dtype"), [(0, np.float64), (1, np.float32), (3, np.float64), (3, np.float32)])
def test_rank_deficient_input_still_gives_orthonormal_columns(rng, rank, dtype):
    M = (rng.normal(size=(30, rank)) @ rng.normal(size=(rank, 4))).astype(dtype)
    F = polar_factor(M)
    assert F.dtype == dtype
    assert_allclose(F.T @ F, np.eye(4), atol=1e-10 if dtype == np.float64 else 1e-5)
    # and it still is a nearest one: <F, M> reaches the sum of singular values
    assert_allclose(np.sum(F * M), np.linalg.svd(M, compute_uv=False).sum(), rtol=1e-5, atol=1e-12)


def test_polar_of_single_precision(rng):
    M = rng.normal(size=(60, 5)).astype(np.float32)
    F = polar_factor(M)
    assert F.dtype == np.float32
    assert_allclose(F.T @ F, np.eye(5), atol=1e-5)
    assert_allclose(F, polar(M.astype(float)), atol=1e-5)


def test_polar_carries_rotations_along_and_ignores_scale(rng):
    M, Q = rng.normal(size=(20, 4)), orthonormal(rng, 4, 4)
    assert_allclose(polar_factor(M @ Q), polar_factor(M) @ Q, atol=1e-12)
    assert_allclose(polar_factor(1e-9 * M), polar_factor(M), atol=1e-12)


def test_another_solver_takes_over_where_the_fast_one_does_not_converge(rng, monkeypatch):
    A = rng.normal(size=(6, 6))
    A, M = A + A.T, orthonormal(rng, 40, 3) * [1, 1e-3, 1e-7]
    lam, V = eigh(A)
    F, calls = polar_factor(M), []

    def fails(*args, **_):
        calls.append(args)
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", fails)
    monkeypatch.setattr(np.linalg, "svd", fails)
    again, W = eigh(A)
    assert_allclose(again, lam, atol=1e-12)
    assert_allclose(np.abs(np.sum(V * W, axis=0)), 1, atol=1e-10)
    assert_allclose(polar_factor(M), F, atol=1e-6)
    assert len(calls) == 3


# -------------------------------------------------------------------------------------- operators by their products


def operator(A):
    """A symmetric matrix as `largest_eigenvectors` takes it."""

    def apply(V, gain=1.0, shift=0.0, minus=None):
        return gain * (A @ V) + shift * V - (0 if minus is None else minus)

    return apply


@pytest.mark.parametrize("n", [40, DENSE_UP_TO + 100])
def test_largest_eigenvectors(rng, n):
    Q = orthonormal(rng, n, n)
    values = np.concatenate([[1.9, 1.8, 1.7], np.linspace(1.0, 0.0, n - 3)])
    A = Q * values @ Q.T
    V, residual = largest_eigenvectors(operator(A), n, 3, 1e-16, np.random.default_rng(0), A)
    assert_allclose(np.abs(np.sum(V * Q[:, :3], axis=0)), 1, atol=1e-10)  # in order
    assert (residual > 0) == (n > DENSE_UP_TO)
    assert_allclose(np.linalg.norm(A @ V - V * values[:3], axis=0).max(), residual, atol=1e-9)
    assert residual <= 1e-7


def test_a_search_that_ends_too_early_has_a_large_residual(rng, monkeypatch):
    monkeypatch.setattr(eigen, "MAX_FILTERS", 1)
    n = DENSE_UP_TO + 100
    Q = orthonormal(rng, n, n)
    A = Q * np.linspace(2, 0, n) @ Q.T  # no gap
    V, residual = largest_eigenvectors(operator(A), n, 4, 1e-16, np.random.default_rng(0), A)
    assert_allclose(V.T @ V, np.eye(4), atol=1e-10)
    assert residual > 1e-4


def test_many_eigenvectors_of_few_rows_are_found_at_once(rng):
    n = DENSE_UP_TO + 50
    Q = orthonormal(rng, n, n)
    A = Q * np.linspace(2, 0, n) @ Q.T
    V, residual = largest_eigenvectors(operator(A), n, n // 5, 1e-16, np.random.default_rng(0), A)
    assert residual == 0
    assert_allclose(A @ V, V * np.linspace(2, 0, n)[: n // 5], atol=1e-10)


@pytest.mark.parametrize(("n", "steps"), [(60, 30), (5, 30), (1, 3)])
def test_bound_on_the_spectrum(rng, n, steps):
    A = rng.normal(size=(n, n))
    A = A + A.T
    top = np.linalg.eigvalsh(A)[-1]
    bound = lanczos_bound(lambda v: A @ v, uniform_noise(rng, (n, 1), A), steps)
    assert top - 1e-10 <= bound <= top + 0.1 * abs(top)


def test_noise_is_the_same_in_every_number_format():
    single, double = (uniform_noise(np.random.default_rng(3), (50, 2), np.zeros(1, dtype)) for dtype in ("f4", "f8"))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert (single == double).all()
    assert -0.5 <= double.min() < -0.4 < 0.4 < double.max() < 0.5


@pytest.mark.torch
def test_tensors_as_arrays(rng):
    torch = pytest.importorskip("torch")
    M = rng.normal(size=(20, 4))
    assert_allclose(polar_factor(torch.from_numpy(M)).numpy(), polar_factor(M), atol=1e-12)
    M[:, 3] = M[:, 2]
    F = polar_factor(torch.from_numpy(M))
    assert_allclose((F.T @ F).numpy(), np.eye(4), atol=1e-10)
