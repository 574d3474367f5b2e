import numpy as np
import pytest
from numpy.testing import assert_allclose

from fmtc.kernels.couplings import COUPLINGS, schatten_p
from fmtc.kernels.graph import build_graph
from fmtc.kernels.objective import augmented_lagrangian, global_objective, local_objective, local_terms, residuals
from fmtc.linalg import stacks


def test_local_terms_by_loops(rng):
    X = rng.normal(size=(12, 3))
    graph = build_graph(X, 4)
    F = np.linalg.qr(rng.normal(size=(12, 2)))[0]
    target = rng.normal(size=(12, 2))
    A = np.eye(12) - graph.laplacian.toarray()  # D^-1/2 A D^-1/2
    degree = graph.degree
    edges = 0.5 * sum(
        A[i, j] * np.sqrt(degree[i] * degree[j]) * np.square(F[i] / degree[i] ** 0.5 - F[j] / degree[j] ** 0.5).sum()
        for i in range(12)
        for j in range(12)
    )
    cut, misfit = local_terms(graph.laplacian, F, target)
    assert_allclose(cut, edges, rtol=1e-12)
    assert_allclose(misfit, sum((F[i, j] - target[i, j]) ** 2 for i in range(12) for j in range(2)), rtol=1e-12)
    assert_allclose(local_objective(cut, misfit, 0.3), edges + 0.3 * misfit, rtol=1e-12)


def test_local_terms_do_not_see_a_rotation(rng):
    graph = build_graph(rng.normal(size=(20, 3)), 4)
    F, target = rng.normal(size=(2, 20, 4))
    R = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert_allclose(
        local_terms(graph.laplacian, F @ R, target @ R), local_terms(graph.laplacian, F, target), rtol=1e-10
    )


def test_single_precision_terms_are_summed_in_double(rng):
    graph = build_graph(rng.normal(size=(2000, 3)).astype(np.float32), 4)
    F = rng.normal(size=(2000, 8)).astype(np.float32)
    target = F + np.float32(1e-3)
    cut, misfit = local_terms(graph.laplacian, F, target)
    exact = np.square(F.astype(float) - target.astype(float)).sum()
    assert_allclose(misfit, exact, rtol=1e-6)
    F64 = F.astype(float)
    assert_allclose(cut, np.sum(F64 * (graph.laplacian.astype(float) @ F64)), rtol=1e-5)
    assert isinstance(cut, float)
    assert isinstance(misfit, float)


@pytest.mark.parametrize(("coupling", "p"), [("tensor", 1.0), ("subspace", 0.5), ("average", 1.0)])
def test_objective_and_lagrangian_term_by_term(rng, coupling, p):
    W, Z, Y = rng.normal(size=(3, 5, 3, 4))
    losses, omega = rng.random(4), rng.random(4)
    beta, rho = 0.7, 0.2
    local = sum(omega[t] * losses[t] for t in range(4))
    value = global_objective(losses, omega, W, beta=beta, p=p, coupling=COUPLINGS[coupling])
    assert_allclose(value, local + beta * schatten_p(W, p, coupling), rtol=1e-12)
    terms = [
        np.trace(Y[:, :, t].T @ (W - Z)[:, :, t]) + rho / 2 * np.linalg.norm((W - Z)[:, :, t]) ** 2 for t in range(4)
    ]
    lagrangian = augmented_lagrangian(losses, omega, W, Z, Y, rho=rho, penalty=0.3)
    assert_allclose(lagrangian, local + sum(terms) + 0.3, rtol=1e-12)


def test_lagrangian_of_a_closed_splitting_is_the_objective(rng):
    W, Y = rng.normal(size=(2, 5, 3, 4))
    losses, omega = rng.random(4), np.full(4, 0.25)
    setting = {"beta": 0.4, "p": 1.0, "coupling": COUPLINGS["tensor"]}
    assert_allclose(
        augmented_lagrangian(losses, omega, W, W, Y, rho=3.0, penalty=0.4 * schatten_p(W, 1.0)),
        global_objective(losses, omega, W, **setting),
        rtol=1e-13,
    )


def test_residuals(rng):
    W, Z, before, Y = rng.normal(size=(4, 5, 3, 4))
    norm = np.linalg.norm
    primal, dual = residuals(W, 3 * Z, before, Y, 0.7)
    assert_allclose(primal, norm(W - 3 * Z) / norm(3 * Z), rtol=1e-12)
    assert_allclose(residuals(3 * W, Z, before, Y, 0.7)[0], norm(3 * W - Z) / norm(3 * W), rtol=1e-12)
    assert_allclose(dual, 0.7 * norm(3 * Z - before) / norm(Y), rtol=1e-12)
    assert residuals(W, W, W, Y, 0.7) == (0, 0)


def test_residuals_do_not_change_with_the_units(rng):
    W, Z, before, Y = rng.normal(size=(4, 5, 3, 4))
    assert_allclose(residuals(10 * W, 10 * Z, 10 * before, 5 * Y, 0.7 / 2), residuals(W, Z, before, Y, 0.7), rtol=1e-12)


def test_dual_residual_without_a_dual(rng):
    W, before = rng.normal(size=(2, 5, 3, 4))
    primal, dual = residuals(W, W, before, 0 * W, 0.7)
    assert primal == 0
    assert_allclose(dual, np.linalg.norm(W - before) / np.linalg.norm(W), rtol=1e-12)


def test_residuals_of_nothing_are_zero():
    assert residuals(*np.zeros((4, 2, 2, 2)), 1.0) == (0, 0)


def test_the_size_of_a_block_does_not_matter(rng, monkeypatch):
    W, Z, before, Y = rng.normal(size=(4, 7, 3, 4))

    def values():
        found = augmented_lagrangian(np.ones(4), np.ones(4), W, Z, Y, rho=0.3, penalty=0.0)
        return *residuals(W, Z, before, Y, 0.7), found

    whole = values()
    monkeypatch.setattr(stacks, "BLOCK", 24)
    assert_allclose(values(), whole, rtol=1e-13)


def test_single_precision_stacks_are_summed_in_double(rng):
    W, Z, before, Y = (1 + 1e-3 * rng.normal(size=(4, 300, 10, 40))).astype(np.float32)
    gap = (W - Z).astype(np.float64)
    exact = np.sqrt(np.square(gap).sum()) / np.sqrt(max(np.square(S, dtype=np.float64).sum() for S in (W, Z)))
    assert_allclose(residuals(W, Z, before, Y, 0.7)[0], exact, rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-10), ("float32", 1e-5)])
def test_tensors_as_arrays(rng, dtype, digits):
    torch = pytest.importorskip("torch")
    W, Z, before, Y = rng.normal(size=(4, 6, 3, 4)).astype(dtype)
    losses, omega = rng.random(4), np.full(4, 0.25)
    L = rng.normal(size=(6, 6)).astype(dtype)
    setting = {"beta": 0.4, "p": 0.5, "coupling": COUPLINGS["tensor"]}

    def values(L, W, Z, before, Y):
        return (
            *local_terms(L, W[:, :, 0], Z[:, :, 0]),
            *residuals(W, Z, before, Y, 0.7),
            global_objective(losses, omega, W, **setting),
            augmented_lagrangian(losses, omega, W, Z, Y, rho=0.3, penalty=0.1),
        )

    mine, theirs = values(L, W, Z, before, Y), values(*map(torch.from_numpy, (L, W, Z, before, Y)))
    assert all(isinstance(each, float) for each in (*mine, *theirs))
    assert_allclose(theirs, mine, rtol=digits)
