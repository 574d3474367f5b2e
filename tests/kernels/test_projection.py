import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from fmtc import FMTC
from fmtc.kernels import projection
from fmtc.kernels.projection import RidgeFactors, Rows, column_means, update_projection
from fmtc.linalg import solve

KINDS = ["dense", "dense centred", "sparse", "sparse centred"]


def make_rows(rng, n, d, kind, gamma=1.0, mean=2.0):
    """The same matrix as `Rows` and, literally, as a dense array."""
    X = rng.normal(size=(n, d)) + mean
    if "sparse" in kind:
        X *= rng.random((n, d)) < 0.4
    centre = X.mean(axis=0) if "centred" in kind else None
    literal = gamma * (X if centre is None else X - centre)
    return Rows(sp.csr_array(X) if "sparse" in kind else X, centre, gamma), literal


# ------------------------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize(("kind", "gamma"), [*zip(KINDS, [0.3, 1.0, 0.3, 0.3], strict=True)])
def test_rows_behave_as_the_matrix_they_stand_for(rng, kind, gamma):
    rows, M = make_rows(rng, 30, 7, kind, gamma)
    W, F = rng.normal(size=(7, 3)), rng.normal(size=(30, 3))
    assert rows.shape == M.shape
    assert_allclose(rows @ W, M @ W, atol=1e-12)
    assert_allclose(rows.T @ F, M.T @ F, atol=1e-12)
    assert_allclose(rows.gram("d"), M.T @ M, atol=1e-11)
    assert_allclose(rows.gram("n"), M @ M.T, atol=1e-11)
    assert_allclose(rows.sum_of_squares(), np.square(M / gamma).sum(), rtol=1e-12)  # in the units of X


@pytest.mark.parametrize("kind", KINDS)
def test_using_rows_does_not_change_the_data(rng, kind):
    rows, _ = make_rows(rng, 12, 5, kind, 0.5)
    before = rows.X.copy()
    rows @ np.ones((5, 2))
    rows.T @ np.ones((12, 2))
    rows.gram("d")
    rows.gram("n")
    rows.sum_of_squares()
    difference = rows.X - before
    assert_array_equal(difference.toarray() if sp.issparse(difference) else difference, 0)


def test_rows_of_many_blocks(rng, monkeypatch):
    rows, M = make_rows(rng, 50, 4, "dense centred", 0.7)
    monkeypatch.setattr(projection, "BLOCK", 16)  # three full blocks and a rest
    assert_allclose(rows.gram("d"), M.T @ M, atol=1e-12)
    assert_allclose(rows.sum_of_squares(), np.square(M / 0.7).sum(), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_column_means(rng, kind, dtype):
    X = (rng.normal(size=(40, 5)) + 3).astype(dtype)
    means = column_means(kind(X))
    assert means.shape == (5,)
    assert means.dtype == dtype
    assert_allclose(means, X.astype(float).mean(axis=0), rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_means_of_many_single_precision_rows_are_summed_in_double(kind):
    X = np.full((300_000, 1), 0.1, dtype=np.float32)
    assert_array_equal(column_means(kind(X)), X[0])


def test_a_large_mean_costs_no_precision(rng):
    spread = rng.normal(size=(200, 6))
    X = spread + 1e6
    rows = Rows(X, column_means(X))
    M = spread - spread.mean(axis=0)
    W, F = rng.normal(size=(6, 3)), np.linalg.qr(rng.normal(size=(200, 3)))[0]
    # X itself is rounded at 1e-10
    assert_allclose(rows.gram("d"), M.T @ M, atol=1e-7)
    assert_allclose(rows.gram("n"), M @ M.T, atol=1e-7)
    assert_allclose(rows.sum_of_squares(), np.square(M).sum(), rtol=1e-9)
    assert_allclose(rows @ W, M @ W, atol=1e-8)
    assert_allclose(rows.T @ F, M.T @ F, atol=1e-7)
    anchor = rng.normal(size=(6, 3))
    expected = np.linalg.solve(M.T @ M + 0.1 * np.eye(6), M.T @ F + 0.1 * anchor)
    assert_allclose(RidgeFactors(rows, 0.1).solve(F, anchor), expected, atol=1e-8)


@pytest.mark.parametrize("shape", [(40, 60_000), (60_000, 40)])
@pytest.mark.parametrize("centred", [False, True])
def test_sparse_rows_are_never_made_dense(rng, shape, centred):
    X = sp.random_array(shape, density=5e-3, format="csr", rng=rng)  # dense: 19 MB
    F, anchor = rng.normal(size=(shape[0], 2)), np.zeros((shape[1], 2))
    tracemalloc.start()
    rows = Rows(X, column_means(X) if centred else None)
    rows.sum_of_squares()
    RidgeFactors(rows, 1.0).solve(F, anchor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


@pytest.mark.parametrize("shape", [(3000, 9000), (9000, 3000)])
@pytest.mark.parametrize("centred", [False, True])
def test_no_large_gram_matrix_of_sparse_rows_is_formed(rng, shape, centred):
    X = sp.random_array(shape, density=1e-3, format="csr", rng=rng)  # 0.4 MB; of the smaller side: 72 MB
    F, anchor = rng.normal(size=(shape[0], 2)), np.zeros((shape[1], 2))
    tracemalloc.start()
    RidgeFactors(Rows(X, column_means(X) if centred else None), 1.0).solve(F, anchor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5e6


def test_squares_of_many_single_precision_rows_are_summed_in_double():
    X = np.full((300_000, 1), 0.1, dtype=np.float32)
    expected = 300_000 * float(X[0, 0]) ** 2
    for storage in (np.asarray, sp.csr_array):
        assert_allclose(Rows(storage(X)).sum_of_squares(), expected, rtol=1e-11)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_rows_that_do_not_vary_have_no_squares(storage):
    X = storage(np.full((23, 3), 0.1) * [1, 2, 3])  # rounded means: not these numbers
    assert Rows(X, column_means(X)).sum_of_squares() == 0
    assert Rows(X).sum_of_squares() > 0


# ------------------------------------------------------------------------------------------------- the W-step


def literal_eq_12(X, F, Z, Y, omega, alpha, rho):
    c = 2 * omega * alpha
    return np.linalg.inv(c * X.T @ X + rho * np.eye(X.shape[1])) @ (c * X.T @ F + rho * Z - Y)


@pytest.mark.parametrize(("kind", "gamma"), [*zip(KINDS, [0.3, 1.0, 0.3, 0.3], strict=True)])
@pytest.mark.parametrize("route", ["d", "n", "iterative tall", "iterative wide"])
def test_every_route_is_the_inverse_of_eq_12(rng, monkeypatch, kind, gamma, route):
    n, d = (40, 9) if route in ("d", "iterative tall") else (9, 40)
    rows, M = make_rows(rng, n, d, kind, gamma)
    F, Z, Y = rng.normal(size=(n, 3)), rng.normal(size=(d, 3)), rng.normal(size=(d, 3))
    omega, alpha, rho = 0.25, 1.7, 0.4
    factors = RidgeFactors(rows, rho / (2 * omega * alpha))
    assert factors.side == ("d" if n > d else "n")
    assert factors.direct
    if "iterative" in route:
        factors.direct = False
        monkeypatch.delattr(Rows, "gram")
    W = update_projection(factors, F, Z - Y / rho)
    assert_allclose(W, literal_eq_12(M, F, Z, Y, omega, alpha, rho), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("n", "d", "ridge"), [(40, 9, 1e-6), (40, 9, 1e6), (9, 40, 1e-6), (9, 40, 1e6), (12, 12, 1.0)])
def test_gradient_is_zero_at_the_solution(rng, n, d, ridge):
    X, F, anchor = rng.normal(size=(n, d)), rng.normal(size=(n, 3)), rng.normal(size=(d, 3))
    W = RidgeFactors(X, ridge).solve(F, anchor)
    gradient = X.T @ (X @ W - F) + ridge * (W - anchor)
    assert np.abs(gradient).max() < 1e-8 * max(1, ridge)


def test_solution_beats_its_neighbours(rng):
    X, F, anchor = rng.normal(size=(20, 5)), rng.normal(size=(20, 3)), rng.normal(size=(5, 3))

    def cost(W):
        return np.square(F - X @ W).sum() + 0.3 * np.square(W - anchor).sum()

    W = RidgeFactors(X, 0.3).solve(F, anchor)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            assert cost(W) < cost(W + size * rng.normal(size=W.shape))


def test_extreme_ridges(rng):
    X, F, anchor = rng.normal(size=(20, 5)), rng.normal(size=(20, 3)), rng.normal(size=(5, 3))
    assert_allclose(RidgeFactors(X, 1e12).solve(F, anchor), anchor, atol=1e-9)
    assert_allclose(RidgeFactors(X, 1e-12).solve(F, anchor), np.linalg.lstsq(X, F)[0], atol=1e-9)


def test_an_anchor_that_fits_is_kept(rng):
    for n, d in ((20, 5), (5, 20)):
        X, anchor = rng.normal(size=(n, d)), rng.normal(size=(d, 3))
        assert_allclose(RidgeFactors(X, 0.5).solve(X @ anchor, anchor), anchor, atol=1e-11)


def test_solutions_follow_rotations_of_features_and_columns(rng):
    X, F, anchor = rng.normal(size=(20, 5)), rng.normal(size=(20, 3)), rng.normal(size=(5, 3))
    Q, R = np.linalg.qr(rng.normal(size=(5, 5)))[0], np.linalg.qr(rng.normal(size=(3, 3)))[0]
    W = RidgeFactors(X, 0.5).solve(F, anchor)
    assert_allclose(RidgeFactors(X @ Q, 0.5).solve(F, Q.T @ anchor), Q.T @ W, atol=1e-12)
    assert_allclose(RidgeFactors(X, 0.5).solve(F @ R, anchor @ R), W @ R, atol=1e-12)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("n", "d"), [(40, 9), (9, 40)])
def test_single_precision_stays(rng, direct, n, d):
    X, F, anchor = (rng.normal(size=size) for size in ((n, d), (n, 3), (d, 3)))
    mean = X.mean(axis=0)
    factors = RidgeFactors(Rows(*(a.astype(np.float32) for a in (X, mean)), 0.5), 0.5)
    factors.direct = direct
    W = factors.solve(F.astype(np.float32), anchor.astype(np.float32))
    assert W.dtype == np.float32
    assert_allclose(W, RidgeFactors(Rows(X, mean, 0.5), 0.5).solve(F, anchor), atol=1e-5)


def test_data_are_factored_once_and_only_when_needed(rng, monkeypatch):
    calls = []
    real = projection.cholesky_solver
    monkeypatch.setattr(projection, "cholesky_solver", lambda A: calls.append(1) or real(A))
    X = rng.normal(size=(20, 5))
    factors = RidgeFactors(X, 0.5)
    assert not calls
    for _ in range(4):
        factors.solve(rng.normal(size=(20, 3)), rng.normal(size=(5, 3)))
    assert len(calls) == 1


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("shape", [(30, 7), (7, 30)])
def test_rows_are_the_matrix_they_stand_for(rng, storage, centred, shape):
    X = rng.normal(size=shape) * (rng.random(shape) < 0.7)
    mean = X.mean(axis=0) if centred else None
    rows = Rows(storage(X), mean, 0.5)
    whole = 0.5 * (X - (0 if mean is None else mean))
    W, F = rng.normal(size=(shape[1], 3)), rng.normal(size=(shape[0], 3))
    assert_allclose(rows @ W, whole @ W, atol=1e-12)
    assert_allclose(rows.T @ F, whole.T @ F, atol=1e-12)
    assert_allclose(rows.gram("d"), whole.T @ whole, atol=1e-12)
    assert_allclose(rows.gram("n"), whole @ whole.T, atol=1e-12)
    assert_allclose(rows.sum_of_squares(), 4 * np.square(whole).sum(), rtol=1e-12)  # gamma is no part of it
    solved = update_projection(RidgeFactors(rows, 0.3), F, W)
    normal = whole.T @ whole + 0.3 * np.eye(shape[1])
    assert_allclose(solved, np.linalg.solve(normal, whole.T @ F + 0.3 * W), atol=1e-10)


# ------------------------------------------------------------------------------------- with or without a factor


def test_a_factor_is_made_where_it_is_no_larger_than_the_rows():
    full = np.ones((1001, 1002))
    full[:, 1001] = 0  # as many entries as the Gram matrix of the rows
    assert RidgeFactors(full, 1.0).direct
    assert RidgeFactors(np.broadcast_to(0.0, (20_000, 20_000)), 1.0).direct  # dense: always
    assert RidgeFactors(sp.csr_array(full), 1.0).direct
    full[0, 0] = 0
    for X in (sp.csr_array(full), sp.csr_array(full.T)):
        assert not RidgeFactors(X, 1.0).direct
    for shape in ((1000, 5000), (5000, 1000)):
        assert RidgeFactors(sp.csr_array(shape), 1.0).direct  # small, whatever X has


def test_a_whole_fit_does_not_depend_on_the_route(rng, monkeypatch):
    k, m, n, words = 3, 3, 120, 400
    topics = (rng.dirichlet(np.full(words, 0.05), size=k) + 1 / words) / 2
    counts = np.vstack([rng.multinomial(30, topics[i % k]) for i in range(m * n)]).astype(float)
    X, clients = sp.csr_array(counts), np.repeat(np.arange(m), n)

    def fitted():
        model = FMTC(k, scale="tfidf", max_iter=12, tol=0, random_state=0).fit(X, silos=clients)
        assert model.n_iter_ == 12
        return model

    direct = fitted()
    monkeypatch.setattr(projection, "DIRECT_UP_TO", 0)
    monkeypatch.delattr(Rows, "gram")
    iterative = fitted()
    assert_array_equal(iterative.labels_, direct.labels_)
    assert_allclose(iterative.embedding_, direct.embedding_, atol=1e-10)
    assert_allclose(iterative.consensus_, direct.consensus_, atol=1e-10 * np.abs(direct.consensus_).max())


def test_a_projection_that_does_not_converge_is_reported(rng, monkeypatch):
    monkeypatch.setattr(solve, "STEPS_PER_ROW", 1)
    factors = RidgeFactors(rng.normal(size=(40, 30)) * np.logspace(0, 6, 30), 1e-6)
    factors.direct = False
    with pytest.warns(ConvergenceWarning, match="ridge"):
        factors.solve(rng.normal(size=(40, 2)), np.zeros((30, 2)))


# ------------------------------------------------------------------------------------------------------ tensors


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-5)])
@pytest.mark.parametrize(("shape", "centred"), [((50, 8), True), ((50, 8), False), ((8, 50), True)])
def test_tensors_give_what_arrays_give(rng, monkeypatch, dtype, tolerance, shape, centred):
    import torch

    monkeypatch.setattr(projection, "BLOCK", 16)
    n, d = shape
    X = (rng.normal(size=shape) + 2).astype(dtype)
    W, F = rng.normal(size=(d, 3)).astype(dtype), rng.normal(size=(n, 3)).astype(dtype)

    def answers(convert):
        A = convert(X)
        rows = Rows(A, column_means(A) if centred else None, 0.2)
        return {
            "means": column_means(A),
            "rows @ W": rows @ convert(W),
            "rows.T @ F": rows.T @ convert(F),
            "gram d": rows.gram("d"),
            "gram n": rows.gram("n"),
            "solution": update_projection(RidgeFactors(rows, 0.3), convert(F), convert(W)),
            "sum of squares": rows.sum_of_squares(),
        }

    expected, found = answers(np.array), answers(torch.from_numpy)
    for name, value in found.items():
        if name == "sum of squares":
            assert isinstance(value, float)
        else:
            assert value.dtype == torch.from_numpy(X).dtype
        assert_allclose(value, expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.torch
def test_sums_over_many_single_precision_rows_of_a_tensor_are_made_in_double():
    import torch

    X = torch.full((300_000, 1), 0.1, dtype=torch.float32)
    assert torch.equal(column_means(X), X[0])
    assert_allclose(Rows(X).sum_of_squares(), 300_000 * float(X[0, 0]) ** 2, rtol=1e-11)
    assert Rows(X, column_means(X)).sum_of_squares() == 0


@pytest.mark.torch
def test_a_tensor_is_factored_once_and_stays_as_it_was(rng, monkeypatch):
    import torch

    calls = []
    real = projection.cholesky_solver
    monkeypatch.setattr(projection, "cholesky_solver", lambda A: calls.append(1) or real(A))
    X = torch.from_numpy(rng.normal(size=(20, 5)))
    before = X.clone()
    factors = RidgeFactors(X, 0.5)
    for _ in range(3):
        factors.solve(torch.from_numpy(rng.normal(size=(20, 3))), torch.from_numpy(rng.normal(size=(5, 3))))
    assert calls == [1]
    assert torch.equal(X, before)
