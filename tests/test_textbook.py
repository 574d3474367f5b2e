"""The whole algorithm against a literal one: loops, dense matrices, inverses, full transforms and nothing of fmtc."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from sklearn.cluster import KMeans
from tests.views import graph_view

import fmtc
from fmtc import FMTC
from fmtc.kernels import projection
from fmtc.protocol.base import Message
from fmtc.protocol.graph.opening import HELLO, PREPARE
from fmtc.protocol.graph.round import ROUND, server_step
from fmtc.protocol.graph.view import METHOD
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings, by_view

# ------------------------------------------------------------------------------------------ the textbook


def affinity(X, k, nonmutual_weight):
    """Eq. 1; bandwidth: mean distance over the neighbour pairs; an edge counts less where one row alone has it."""
    n = len(X)
    D = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            D[i, j] = np.sqrt(np.sum((X[i] - X[j]) ** 2))
    near = np.zeros((n, n), dtype=bool)
    for i in range(n):
        others = [j for j in np.argsort(D[i]) if j != i]
        near[i, others[:k]] = True
    sigma = D[near].mean()
    share = np.where(near & near.T, 1, np.where(near | near.T, nonmutual_weight, 0))
    return share * np.exp(-(D**2) / (2 * sigma**2))


def laplacian(A):
    """Eq. 2."""
    D = np.diag(1 / np.sqrt(A.sum(axis=1)))
    return np.eye(len(A)) - D @ A @ D


def bottom_eigenvectors(L, k):
    values, V = np.linalg.eigh(L)
    assert values[1] > 1e-3, "the graph must be connected"
    assert np.diff(values[: k + 1]).min() > 1e-3, "the spectrum must be simple for one answer"
    F = V[:, :k]
    for j in range(k):
        if F[np.abs(F[:, j]).argmax(), j] < 0:
            F[:, j] *= -1
    return F


def polar(M):
    U, _, Vh = np.linalg.svd(M, full_matrices=False)
    return U @ Vh


def w_step(X, F, Z, Y, omega, alpha, rho):
    """Eq. 12."""
    c = 2 * omega * alpha
    return np.linalg.inv(c * X.T @ X + rho * np.eye(X.shape[1])) @ (c * X.T @ F + rho * Z - Y)


def f_step(L, X, F, W, alpha, eta, n_inner, min_move=0.0):
    """Eq. 14-16; ends early where F hardly moves."""
    for _ in range(n_inner):
        before, F = F, polar(F - eta * ((L + alpha * np.eye(len(L))) @ F - alpha * X @ W))
        if far(before, F) < min_move:
            break
    return F


def far(before, F):
    return np.linalg.norm(F - before) / np.linalg.norm(F)


def scalar_prox(s, tau, p):
    """Minimise tau x^p + (x - s)²/2 over x >= 0: zero, or the root of the slope on the convex part."""
    if p == 1:
        return max(s - tau, 0.0)

    def slope(x):
        return x - s + tau * p * x ** (p - 1)

    low = (tau * p * (1 - p)) ** (1 / (2 - p))
    if slope(low) >= 0:
        return 0.0
    x = brentq(slope, low, s, xtol=1e-15)
    return x if tau * x**p + (x - s) ** 2 / 2 < s**2 / 2 else 0.0


def fourier(T, coupling):
    """The matrices whose singular values are summed, and the factor before the sum."""
    m = T.shape[2]
    if coupling == "subspace":
        return [np.hstack([T[:, :, t] for t in range(m)])], 1.0
    That = np.fft.fft(T, axis=2)
    return [That[:, :, i] for i in range(m)], 1 / m


def norm(T, p, coupling):
    matrices, factor = fourier(T, coupling)
    return factor * sum(np.sum(np.linalg.svd(M, compute_uv=False) ** p) for M in matrices)


def z_step(T, tau, p, coupling):
    """Eq. 18."""
    _, k, m = T.shape
    matrices, _ = fourier(T, coupling)
    shrunk = []
    for M in matrices:
        U, s, Vh = np.linalg.svd(M, full_matrices=False)
        shrunk.append(U @ np.diag([scalar_prox(each, tau, p) for each in s]) @ Vh)
    if coupling == "subspace":
        return np.stack([shrunk[0][:, t * k : (t + 1) * k] for t in range(m)], axis=2)
    Z = np.fft.ifft(np.stack(shrunk, axis=2), axis=2)
    assert np.abs(Z.imag).max() < 1e-12
    return Z.real


def first_rotations(W):
    """Generalised Procrustes on slices of norm 1, from the leading left singular vectors of all of them."""
    _, k, m = W.shape
    units = [W[:, :, t] / np.sqrt(np.sum(W[:, :, t] ** 2)) for t in range(m)]
    U, s, _ = np.linalg.svd(np.hstack(units), full_matrices=False)
    for j in range(k):
        if U[np.abs(U[:, j]).argmax(), j] < 0:
            U[:, j] *= -1
    mean, last = U[:, :k] @ np.diag(s[:k]), None
    for _ in range(200):
        R = [polar(unit.T @ mean) for unit in units]
        turned = [unit @ each for unit, each in zip(units, R, strict=True)]
        mean = sum(turned) / m
        spread = sum(np.sum((each - mean) ** 2) for each in turned)
        if last is not None and last - spread <= 1e-8 * last:
            break
        last = spread
    return R


def weight(threshold, p):
    """The tau whose scalar shrinkage is zero up to this threshold, by search in the threshold's own formula."""

    def excess(tau):
        jump = (2 * tau * (1 - p)) ** (1 / (2 - p))
        return jump + (tau * p * jump ** (p - 1) if p < 1 else tau) - threshold

    return brentq(excess, 1e-12, 1e6, xtol=1e-15, rtol=1e-15) if threshold else 0.0


def textbook(
    data, k, *, alpha, beta, ridge=None, rho=None, p, coupling, align, n_neighbors, n_inner, rounds, omega=None,
    nonmutual_weight=0.25, accelerate=True,
):  # fmt: skip
    """Algorithm 1 with clients in sorted order; in absolute units where rho is given, else in normalised ones."""
    ids = sorted(data)
    m = len(ids)
    omega = np.full(m, 1 / m) if omega is None else omega
    L = [laplacian(affinity(data[cid], n_neighbors, nonmutual_weight)) for cid in ids]
    F = [bottom_eigenvectors(each, k) for each in L]
    if rho is None:
        rho = 2 * alpha * ridge / m
        X = [data[cid] - data[cid].mean(axis=0) for cid in ids]
        scale = np.sqrt(sum(len(each) for each in X) / sum(np.sum(each**2) for each in X))
        X = [scale / np.sqrt(len(each)) * each for each in X]
        relative = True
    else:
        X, relative = [data[cid] for cid in ids], False
    d = X[0].shape[1]
    tops = [min(2, np.ceil(8 * np.linalg.eigvalsh(each).max()) / 8) if accelerate else 2 for each in L]
    min_move = 3e-4 if accelerate else 0.0
    Z, Y = np.zeros((d, k, m)), np.zeros((d, k, m))
    history = []
    for round_no in range(rounds):
        W = np.zeros((d, k, m))
        for t in range(m):
            for _ in range(2 if accelerate and round_no >= 2 else 1):
                W[:, :, t] = w_step(X[t], F[t], Z[:, :, t], Y[:, :, t], omega[t], alpha, rho)
                before = F[t]
                F[t] = f_step(L[t], X[t], before, W[:, :, t], alpha, 1 / (tops[t] + alpha), n_inner, min_move)
                if far(before, F[t]) < min_move:
                    break
        R = [np.eye(k)] * m
        if align and round_no == 0:
            R = first_rotations(W)
        elif align:
            R = [polar(W[:, :, t].T @ (Z[:, :, t] + 0.1 * W[:, :, t])) for t in range(m)]
        for t in range(m):
            W[:, :, t] = W[:, :, t] @ R[t]
            F[t] = F[t] @ R[t]
        if relative and round_no == 0:
            matrices, _ = fourier(W, coupling)
            beta = rho * weight(beta * max(np.linalg.svd(M, compute_uv=False).max() for M in matrices), p)
        ahead = 1.8 * W - 0.8 * Z if accelerate and round_no > 0 else W
        Z = z_step(ahead + Y / rho, beta / rho, p, coupling)
        Y = Y + rho * (ahead - Z)  # Eq. 19
        local = sum(
            omega[t] * (np.trace(F[t].T @ L[t] @ F[t]) + alpha * np.sum((F[t] - X[t] @ W[:, :, t]) ** 2))
            for t in range(m)
        )
        history.append(
            (
                local + beta * norm(W, p, coupling),
                local + np.sum(Y * (W - Z)) + rho / 2 * np.sum((W - Z) ** 2) + beta * norm(Z, p, coupling),
            )
        )
    return {"W": W, "Z": Z, "Y": Y, "F": dict(zip(ids, F, strict=True)), "history": np.array(history)}


def same_partition(a, b):
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


FEDERATIONS = {
    "three clients, n > d": {"m": 3, "n": (40, 55, 70), "d": 6},
    "four clients, n < d": {"m": 4, "n": (24, 30, 35, 28), "d": 45},
}


# ---------------------------------------------------------------------------------- (1) ours, (2) the paper's


@pytest.mark.parametrize("shape", FEDERATIONS)
@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"align": False},
        {"p": 0.5},
        {"coupling": "subspace"},
        {"coupling": "subspace", "p": 0.7},
        {"alpha": 20.0, "ridge": 0.5, "beta": 0.4},
        {"nonmutual_weight": 0.7},
    ],
    ids=str,
)
def test_a_run_equals_the_textbook(make_federation, shape, setting):
    data = make_federation(**FEDERATIONS[shape], seed=4)
    setting = {"alpha": 1.0, "beta": 0.15, "ridge": 0.03, "coupling": "tensor", "align": True} | setting
    p = setting.pop("p", 1.0)
    rounds = 8
    settings = Settings(n_clusters=3, schatten_p=p, n_neighbors=8, n_inner=5, max_iter=rounds, tol=0, **setting)
    transport = LocalTransport(data, settings)
    result = fmtc.runtime.driver.run(transport, settings)
    expected = textbook(data, 3, p=p, n_neighbors=8, n_inner=5, rounds=rounds, **setting)
    for name in ("W", "Z", "Y"):
        assert_allclose(getattr(result.server, name), expected[name], atol=1e-8, rtol=0)
    for t, cid in enumerate(sorted(data)):
        assert_allclose(transport.clients[cid].F, expected["F"][cid], atol=1e-8, rtol=0)
        assert_allclose(transport.clients[cid].W, expected["W"][:, :, t], atol=1e-8, rtol=0)
    found = np.array([(record.objective, record.lagrangian) for record in result.history])
    assert_allclose(found, expected["history"], rtol=1e-8)
    assert np.abs(expected["Z"]).max() > 0.01  # the agreement is not one of zeros
    assert np.abs(expected["W"] - expected["Z"]).max() > 1e-6


def test_a_run_with_weights_equals_the_textbook(make_federation):
    data = make_federation(m=3, n=(40, 55, 70), seed=4)
    settings = Settings(n_clusters=3, n_neighbors=8, max_iter=6, tol=0)
    result = fmtc.runtime.driver.run(LocalTransport(data, settings), settings, weights={"a": 1, "b": 2, "c": 5})
    setting = {"alpha": 1.0, "beta": 0.15, "ridge": 0.03, "p": 1.0, "coupling": "tensor", "align": True}
    omega = np.array([1, 2, 5]) / 8
    expected = textbook(data, 3, **setting, n_neighbors=8, n_inner=3, rounds=6, omega=omega)
    for name in ("W", "Z", "Y"):
        assert_allclose(getattr(result.server, name), expected[name], atol=1e-8, rtol=0)
    assert_allclose([r.objective for r in result.history], expected["history"][:, 0], rtol=1e-8)


@pytest.mark.parametrize("shape", FEDERATIONS)
@pytest.mark.parametrize(("p", "alpha", "beta", "rho"), [(1.0, 1.0, 0.02, 0.5), (0.5, 10.0, 0.1, 1.0)])
def test_as_published_equals_algorithm_1(make_federation, shape, p, alpha, beta, rho):
    data = make_federation(**FEDERATIONS[shape], seed=4)
    expected = textbook(
        data,
        3,
        alpha=alpha,
        beta=beta,
        rho=rho,
        p=p,
        coupling="tensor",
        align=False,
        n_neighbors=10,
        n_inner=5,
        rounds=8,
        nonmutual_weight=1,
        accelerate=False,
    )
    model = FMTC.as_published(3, alpha=alpha, beta=beta, rho=rho, schatten_p=p, max_iter=8, tol=0, random_state=0)
    model.fit(data)
    assert model.n_iter_ == 8
    assert_allclose(model.consensus_, expected["Z"], atol=1e-8, rtol=0)
    assert np.abs(expected["Z"]).max() > 1e-3
    ends = np.cumsum([len(X) for X in data.values()])
    embeddings = np.split(model.embedding_, ends[:-1])
    for t, (cid, F, labels) in enumerate(zip(data, embeddings, np.split(model.labels_, ends[:-1]), strict=True)):
        assert_allclose(model.projections_[cid], expected["W"][:, :, t], atol=1e-8, rtol=0)
        assert_allclose(F, expected["F"][cid], atol=1e-8, rtol=0)
        unit = expected["F"][cid] / np.linalg.norm(expected["F"][cid], axis=1, keepdims=True)
        assert same_partition(labels, KMeans(3, n_init=10, random_state=0).fit_predict(unit))
    found = np.array([(record.objective, record.lagrangian) for record in model.run_.rounds])
    assert_allclose(found, expected["history"], rtol=1e-8)


def test_sparse_rows_run_as_the_same_rows_dense(make_federation):
    data = make_federation(m=3, n=40, d=30)
    data = {cid: np.where(np.abs(X) > 1, X, 0) for cid, X in data.items()}
    for center in (True, False):
        settings = Settings(n_clusters=3, max_iter=5, tol=0, center_features=center)
        dense = fmtc.runtime.driver.run(LocalTransport(data, settings), settings).server
        sparse = fmtc.runtime.driver.run(
            LocalTransport({c: sp.csr_array(X) for c, X in data.items()}, settings), settings
        ).server
        for name in ("W", "Z", "Y"):
            assert_allclose(getattr(sparse, name), getattr(dense, name), atol=1e-8)


def test_the_data_are_factored_once_per_client(make_federation, monkeypatch):
    calls = []
    real = projection.cholesky_solver
    monkeypatch.setattr(projection, "cholesky_solver", lambda A: calls.append(1) or real(A))
    graph_view(3, max_iter=7, tol=0, random_state=0).fit(make_federation(m=4))
    assert len(calls) == 4


# ----------------------------------------------------------------------------------------- (3), (4) extremes


def of_equal_scale(data):
    """Every client with mean squared row norm 1 about its mean: the federation's scale is then each one's own."""
    centred = {cid: X - X.mean(axis=0) for cid, X in data.items()}
    return {cid: X / np.sqrt(np.mean(np.sum(X**2, axis=1))) for cid, X in centred.items()}


@pytest.mark.parametrize("coupling", ["tensor", "subspace"])
def test_without_coupling_clients_are_alone(make_federation, coupling):
    data = of_equal_scale(make_federation(m=4, n=(40, 50, 60, 70), distance=4.0))
    setting = {"n_neighbors": 15, "beta": 0, "coupling": coupling, "max_iter": 10, "tol": 0, "random_state": 0}
    for align in (False, True):
        together = graph_view(3, align=align, **setting).fit(data)
        labels = together._as_given(data, together.labels_)
        for cid, X in data.items():
            alone = graph_view(3, align=align, **setting).fit({cid: X})
            W, W_alone = together.projections_[cid], alone.projections_[cid]
            if not align:
                assert_allclose(W, W_alone, atol=1e-10)
            assert_allclose(W @ W.T, W_alone @ W_alone.T, atol=1e-10)
            assert same_partition(labels[cid], alone.labels_)


def test_with_coupling_clients_are_not_alone(make_federation):
    data = of_equal_scale(make_federation(m=3, distance=4.0))
    setting = by_view({"n_neighbors": 15, "align": False, "max_iter": 10, "tol": 0, "random_state": 0})
    W = graph_view(3, beta=0.15, **setting).fit(data).projections_["a"]
    alone = graph_view(3, beta=0.15, **setting).fit({"a": data["a"]}).projections_["a"]
    assert np.abs(W - alone).max() > 0.01


@pytest.mark.parametrize(("align", "coupling"), [(True, "tensor"), (True, "subspace"), (False, "tensor")])
def test_identical_clients_stay_identical(make_federation, align, coupling):
    X = make_federation(m=1, n=60, distance=4.0)["a"]
    model = graph_view(3, coupling=coupling, n_neighbors=15, max_iter=12, tol=0, random_state=0, align=align)
    labels = model.fit_predict(dict.fromkeys("abcd", X))
    for cid in "bcd":
        assert_allclose(model.projections_[cid], model.projections_["a"], atol=1e-10)
        assert_array_equal(labels[cid], labels["a"])
    assert_allclose(model.consensus_, np.repeat(model.consensus_[:, :, :1], 4, axis=2), atol=1e-10)


# --------------------------------------------------------------------------------------------- (5) equivariance

RUN = {"n_clusters": 3, "n_neighbors": 15, "max_iter": 8, "tol": 0}


def run(data, **settings):
    settings = Settings(**(RUN | settings))
    transport = LocalTransport(data, settings)
    return fmtc.runtime.driver.run(transport, settings), transport.clients


def cross_products(W, order=None):
    """All W_s W_tᵀ: the same if and only if two stacks differ by one rotation common to all clients."""
    stacked = np.hstack([W[:, :, t].T for t in (range(W.shape[2]) if order is None else order)])
    return stacked.T @ stacked


def test_cross_products_see_a_rotation_of_one_client(rng):
    W = rng.normal(size=(5, 3, 4))
    R = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert_allclose(cross_products(np.einsum("dkm,kj->djm", W, R)), cross_products(W), atol=1e-12)
    W2 = W.copy()
    W2[:, :, 1] = W[:, :, 1] @ R
    assert np.abs(cross_products(W2) - cross_products(W)).max() > 0.1


@pytest.mark.parametrize("coupling", ["tensor", "subspace"])
def test_an_orthogonal_change_of_features_changes_only_their_names(make_federation, rng, coupling):
    data = make_federation(m=4, distance=4.0)
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    one, clients = run(data, coupling=coupling)
    two, turned = run({cid: X @ Q for cid, X in data.items()}, coupling=coupling)
    for name in ("W", "Z", "Y"):
        expected = np.einsum("de,ekm->dkm", Q.T, getattr(one.server, name))
        assert_allclose(cross_products(getattr(two.server, name)), cross_products(expected), atol=1e-8)
    assert_allclose([r.objective for r in two.history], [r.objective for r in one.history], rtol=1e-9)
    for cid in data:
        assert_array_equal(turned[cid].labels, clients[cid].labels)
        F, G = clients[cid].F, turned[cid].F
        assert_allclose(F @ F.T, G @ G.T, atol=1e-8)


@pytest.mark.parametrize("coupling", ["tensor", "subspace"])
def test_the_order_of_rows_does_not_matter(make_federation, rng, coupling):
    data = make_federation(m=4, distance=4.0)
    order = {cid: rng.permutation(len(X)) for cid, X in data.items()}
    one, clients = run(data, coupling=coupling)
    two, shuffled = run({cid: X[order[cid]] for cid, X in data.items()}, coupling=coupling)
    for name in ("W", "Z", "Y"):
        assert_allclose(getattr(two.server, name), getattr(one.server, name), atol=1e-8)
    for cid in data:
        assert_allclose(shuffled[cid].F, clients[cid].F[order[cid]], atol=1e-8)
        assert_array_equal(shuffled[cid].labels, clients[cid].labels[order[cid]])


def renamed(data, order):
    """The same clients under names that sort in another order: place i holds what was at place order[i]."""
    ids = sorted(data)
    return {ids[i]: data[ids[t]] for i, t in enumerate(order)}


def test_subspace_coupling_does_not_see_the_order_of_clients(make_federation):
    data = make_federation(m=5, n=(40, 50, 60, 70, 80), distance=4.0)
    one, clients = run(data, coupling="subspace")
    for order in ([3, 0, 4, 1, 2], [4, 3, 2, 1, 0]):
        two, others = run(renamed(data, order), coupling="subspace")
        for name in ("W", "Z", "Y"):
            found, expected = getattr(two.server, name), getattr(one.server, name)
            assert_allclose(cross_products(found), cross_products(expected, order), atol=1e-8)
        for place, t in zip(sorted(data), order, strict=True):
            assert same_partition(others[place].labels, clients[sorted(data)[t]].labels)


@pytest.mark.parametrize("order", [[2, 3, 4, 0, 1], [4, 3, 2, 1, 0], [0, 2, 4, 1, 3]])
def test_tensor_coupling_sees_the_circle_of_clients(make_federation, order):
    """Shifted, reversed or in steps that only reorder the frequencies, the run is the same; else it is not."""
    data = make_federation(m=5, n=(40, 50, 60, 70, 80), distance=4.0)
    one, _ = run(data)
    two, _ = run(renamed(data, order))
    for name in ("W", "Z", "Y"):
        found, expected = getattr(two.server, name), getattr(one.server, name)
        assert_allclose(cross_products(found), cross_products(expected, order), atol=1e-8)
    other = [1, 0, 2, 3, 4]
    three, _ = run(renamed(data, other))
    assert np.abs(cross_products(three.server.W) - cross_products(one.server.W, other)).max() > 1e-4


def test_a_cyclic_shift_of_clients_shifts_the_server_step(make_federation):
    """Without alignment exactly: no frame has to be chosen."""
    data = make_federation(m=5, n=(40, 50, 60, 70, 80))
    settings = Settings(**RUN, align=False)
    server = fmtc.runtime.driver.run(LocalTransport(data, settings), settings).server
    transport = LocalTransport(data, settings)
    order = [2, 3, 4, 0, 1]
    start = prepared(transport, settings)
    answers = transport.exchange(questions(ROUND, start, settings, 1)).answers
    state = replace(start, Z=server.Z, Y=server.Y, beta=server.beta, round_no=3)
    after, report = server_step(state, dict(answers), settings)
    shifted = replace(
        state,
        client_ids=tuple(state.client_ids[t] for t in order),
        **{name: getattr(state, name)[..., order] for name in ("W", "Z", "Y", "losses", "omega")},
    )
    shifted_after, shifted_report = server_step(shifted, dict(answers), settings)
    for name in ("W", "Z", "Y", "losses"):
        assert_allclose(getattr(shifted_after, name), getattr(after, name)[..., order], atol=1e-12)
    assert_allclose(shifted_report.objective, report.objective, rtol=1e-12)
    assert_allclose(shifted_report.lagrangian, report.lagrangian, rtol=1e-12)


def questions(phase, server, settings, round_no=0):
    asks = phase.asks(server, settings)
    return {cid: Message(phase.name, ask, round_no, max(0, round_no - 1)) for cid, ask in asks.items()}


def prepared(transport, settings):
    """The server ready for the first round, as its clients are."""
    server = METHOD.open_server(transport.client_ids, settings, None)
    server = HELLO.reduce(server, transport.exchange(questions(HELLO, server, settings)).answers, settings)
    transport.exchange(questions(PREPARE, server, settings))
    return server


def run_from(data, settings, rotations):
    """A run whose clients start from their spectral embedding turned by rotations of their own."""
    transport = LocalTransport(data, settings)
    server = prepared(transport, settings)
    for cid, R in rotations.items():
        client = transport.nodes[cid].client
        transport.nodes[cid].restore(replace(client, F=client.F @ R), 0)
    for round_no in range(1, settings.max_iter + 1):
        answers = transport.exchange(questions(ROUND, server, settings, round_no)).answers
        server, report = server_step(server, answers, settings)
    return server, report


@pytest.mark.parametrize("coupling", ["tensor", "subspace"])
@pytest.mark.parametrize("align", [True, False])
def test_aligned_clients_may_start_in_any_frame(make_federation, rng, coupling, align):
    data = make_federation(m=4, distance=4.0)
    settings = Settings(**RUN, align=align, coupling=coupling)
    own = {cid: np.linalg.qr(rng.normal(size=(3, 3)))[0] for cid in data}
    one, report = run_from(data, settings, {})
    two, turned = run_from(data, settings, own)
    if not align:
        assert np.abs(cross_products(two.W) - cross_products(one.W)).max() > 0.01
    else:
        for name in ("W", "Z", "Y"):
            assert_allclose(cross_products(getattr(two, name)), cross_products(getattr(one, name)), atol=1e-7)
        assert_allclose(turned.objective, report.objective, rtol=1e-8)
    if not align and coupling == "tensor":
        assert abs(turned.objective - report.objective) > 1e-3
    elif not align:  # the value does not see frames; W_t alone is only turned
        assert_allclose(turned.objective, report.objective, rtol=1e-8)
        for t in range(4):
            W, V = one.W[:, :, t], two.W[:, :, t]
            assert_allclose(W @ W.T, V @ V.T, atol=1e-7)


# ---------------------------------------------------------------------------------------------- (7) the end


def test_tol_zero_runs_all_rounds(make_federation):
    result, _ = run(make_federation(), max_iter=23)
    assert [record.round_no for record in result.history] == list(range(1, 24))
    assert not result.converged
    assert "max_iter=23" in result.stopped_because


@pytest.mark.parametrize(
    "setting",
    [{}, {"coupling": "subspace"}, {"schatten_p": 0.5}, {"coupling": "subspace", "schatten_p": 0.5}, {"beta": 0.4}],
    ids=str,
)
def test_a_run_closes_its_residuals_and_says_so(make_federation, setting):
    result, clients = run(make_federation(distance=4.0), max_iter=300, tol=1e-4, ridge=0.3, **setting)
    last = result.history[-1]
    assert result.converged
    assert "tol=0.0001" in result.stopped_because
    assert max(last.primal_residual, last.dual_residual) < 1e-4
    for record in result.history[:-1]:
        assert max(record.primal_residual, record.dual_residual) >= 1e-4
    server = result.server
    assert np.linalg.norm(server.W - server.Z) < 1e-4 * max(np.linalg.norm(server.W), np.linalg.norm(server.Z))
    assert_allclose(last.lagrangian, last.objective, rtol=1e-3)
    for client in clients.values():
        assert_allclose(client.F.T @ client.F, np.eye(3), atol=1e-10)
        assert_array_equal(np.unique(client.labels), [0, 1, 2])


def test_a_converged_run_is_a_stationary_point(make_federation):
    """Eq. 6 itself: the gradient of the local term is minus a subgradient of the coupling, and F is stationary."""
    result, clients = run(make_federation(), max_iter=1000, tol=1e-7, ridge=0.3, n_inner=20)
    assert result.converged
    server = result.server
    for t, cid in enumerate(server.client_ids):
        client, W = clients[cid], server.W[:, :, t]
        X, F, L = client.rows, client.F, client.graph.laplacian
        gradient = 2 * server.omega[t] * (X.T @ (X @ W - F))
        assert_allclose(gradient, -server.Y[:, :, t], atol=1e-6)
        slope = 2 * (L @ F - X @ W)
        along = F.T @ slope
        assert_allclose(along, along.T, atol=1e-6)
        assert_allclose(slope - F @ along, 0, atol=1e-5)
    # Y/beta is a subgradient of the norm at W: it pairs to the norm and has spectral norm 1 at most
    slices = np.moveaxis(np.fft.fft(server.Y / server.beta, axis=2), 2, 0)
    assert np.linalg.svd(slices, compute_uv=False).max() < 1 + 1e-9
    assert_allclose(np.sum(server.Y * server.W), server.beta * norm(server.W, 1.0, "tensor"), rtol=1e-6)
