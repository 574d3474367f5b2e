from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import eigsh
from sklearn.exceptions import ConvergenceWarning

from fmtc.kernels import graph as graphs
from fmtc.kernels.embedding import (
    large_parts,
    largest_eigenvalue,
    nearest_orthonormal,
    relative_move,
    spectral_start,
    update_embedding,
)
from fmtc.kernels.graph import build_graph, graph_of
from fmtc.linalg import eigen
from fmtc.linalg.arrays import asarray_like, to_device, to_numpy
from fmtc.linalg.eigen import DENSE_UP_TO

ABOVE = DENSE_UP_TO + 150


def orthonormal(rng, n, k):
    return np.linalg.qr(rng.normal(size=(n, k)))[0]


def polar(M):
    U, _, Vh = np.linalg.svd(M, full_matrices=False)
    return U @ Vh


# ---------------------------------------------------------------------------------- nearest orthonormal matrix


def test_nearest_orthonormal_is_the_nearest(rng):
    M = rng.normal(size=(20, 4))
    best = np.linalg.norm(M - nearest_orthonormal(M))
    for size in (1e-3, 1e-1, 10.0):
        for _ in range(20):
            assert best <= np.linalg.norm(M - polar(nearest_orthonormal(M) + size * rng.normal(size=M.shape)))


# ------------------------------------------------------------------------------------------------- the F-step


@pytest.fixture
def problem(rng):
    graph = build_graph(rng.normal(size=(60, 3)), 6)
    return graph.laplacian, orthonormal(rng, 60, 4), 0.3 * rng.normal(size=(60, 4))


def value(L, F, target, alpha):
    return np.trace(F.T @ (L @ F)) + alpha * np.square(F - target).sum()


@pytest.mark.parametrize("alpha", [0, 0.1, 1, 100])
def test_f_step_never_raises_its_objective(problem, alpha):
    L, F, target = problem
    values = [value(L, F, target, alpha)]
    for _ in range(60):
        F = update_embedding(L, F, target, alpha=alpha, eta=None, n_inner=1)
        assert_allclose(F.T @ F, np.eye(4), atol=1e-10)
        values.append(value(L, F, target, alpha))
    assert (np.diff(values) <= 1e-12 * max(values)).all()
    assert values[-1] < values[0] * (1 - 1e-3)


@pytest.mark.parametrize("alpha", [0.1, 1, 100])
def test_f_step_is_monotone_at_the_largest_safe_step(problem, alpha):
    L, F, target = problem
    eta = 1 / (np.linalg.eigvalsh(L.toarray())[-1] + alpha)
    values = [value(L, F, target, alpha)]
    for _ in range(40):
        F = update_embedding(L, F, target, alpha=alpha, eta=eta, n_inner=1)
        values.append(value(L, F, target, alpha))
    assert (np.diff(values) <= 1e-12 * max(values)).all()


def test_a_step_beyond_the_bound_can_raise_the_objective(problem):
    L, F, target = problem
    best = update_embedding(L, F, 0.1 * target, alpha=1, eta=None, n_inner=300)
    after = update_embedding(L, best, 0.1 * target, alpha=1, eta=2.0, n_inner=5)
    assert value(L, after, 0.1 * target, 1) > value(L, best, 0.1 * target, 1) + 0.1


@pytest.mark.parametrize("alpha", [0, 0.1, 1, 100])
def test_default_step_is_generalised_power_iteration(problem, alpha):
    L, F, target = problem
    expected = F
    for _ in range(5):
        expected = polar(2 * expected - L @ expected + alpha * target)
    assert_allclose(update_embedding(L, F, target, alpha=alpha, eta=None, n_inner=5), expected, atol=1e-12)


@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_a_given_step_is_eq_14_to_16(problem, eta):
    L, F, target = problem
    alpha = 0.7
    gradient = (L + alpha * np.eye(60)) @ F - alpha * target
    expected = polar(F - eta * gradient)
    assert_allclose(update_embedding(L, F, target, alpha=alpha, eta=eta, n_inner=1), expected, atol=1e-12)


def test_without_a_target_it_finds_the_bottom_eigenspace(rng):
    X = np.repeat([[0.0], [3.0], [6.0]], 20, axis=0) + rng.normal(size=(60, 2))
    L = build_graph(X, 10).laplacian
    E = np.linalg.eigh(L.toarray())[1][:, :3]
    F = update_embedding(L, orthonormal(rng, 60, 3), np.zeros((60, 3)), alpha=0, eta=None, n_inner=500)
    assert_allclose(F @ F.T, E @ E.T, atol=1e-8)
    assert_allclose(update_embedding(L, E, np.zeros((60, 3)), alpha=0, eta=None, n_inner=10), E, atol=1e-10)


def test_a_strong_target_is_reached_at_once(problem):
    L, F, target = problem
    assert_allclose(update_embedding(L, F, target, alpha=1e10, eta=None, n_inner=1), polar(target), atol=1e-8)


def test_f_step_carries_rotations_along(problem, rng):
    L, F, target = problem
    Q = orthonormal(rng, 4, 4)
    turned = update_embedding(L, F @ Q, target @ Q, alpha=1, eta=None, n_inner=5)
    assert_allclose(turned, update_embedding(L, F, target, alpha=1, eta=None, n_inner=5) @ Q, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 1])
def test_f_step_ends_where_the_gradient_vanishes_on_the_manifold(problem, alpha):
    L, F, target = problem
    F = update_embedding(L, F, target, alpha=alpha, eta=None, n_inner=5000)
    gradient = 2 * (L @ F - alpha * target)
    along = F.T @ gradient
    assert_allclose(along, along.T, atol=1e-7)
    assert_allclose(gradient - F @ along, 0, atol=1e-7)


def test_f_step_without_steps_or_in_single_precision(problem):
    L, F, target = problem
    assert update_embedding(L, F, target, alpha=1, eta=None, n_inner=0) is F
    single = update_embedding(
        L.astype(np.float32), F.astype(np.float32), target.astype(np.float32), alpha=1.0, eta=None, n_inner=5
    )
    assert single.dtype == np.float32
    assert_allclose(single, update_embedding(L, F, target, alpha=1, eta=None, n_inner=5), atol=1e-5)


def test_f_steps_end_with_the_first_that_hardly_moves(problem):
    L, F, target = problem
    step = {"alpha": 1.0, "eta": None}
    path = [F]
    for _ in range(12):
        path.append(update_embedding(L, path[-1], target, n_inner=1, **step))
    moves = [np.linalg.norm(after - before) / 2 for before, after in pairwise(path)]  # of four columns: norm 2
    assert_allclose([relative_move(*pair) for pair in pairwise(path)], moves, rtol=1e-12)
    assert moves[3] > 1.01 * moves[4] > 1.02 * moves[5]
    few = update_embedding(L, F, target, n_inner=12, min_move=(moves[3] + moves[4]) / 2, **step)
    assert_array_equal(few, path[5])
    assert_array_equal(update_embedding(L, F, target, n_inner=12, min_move=0.0, **step), path[12])


# ------------------------------------------------------------------------------------------ the spectral start


def chain(rng, sizes, *, apart, groups=1, d=3):
    """One graph per entry of sizes: `apart` decides whether the parts are linked; each has `groups` lumps."""
    rows = []
    for i, size in enumerate(sizes):
        lump = np.arange(size) % groups
        X = rng.normal(size=(size, d))
        X[:, 0] += apart * i
        X[:, 1] += 4 * lump
        rows.append(X)
    return build_graph(np.vstack(rows)[rng.permutation(sum(sizes))], 10)


def check_start(graph, F, atol=1e-6):
    """Orthonormal, signed, and the bottom eigenspace of a dense decomposition."""
    k = F.shape[1]
    assert_allclose(F.T @ F, np.eye(k), atol=1e-10)
    assert (F[np.abs(F).argmax(axis=0), np.arange(k)] > 0).all()
    lam, V = np.linalg.eigh(graph.laplacian.toarray().astype(float))
    assert lam[k] - lam[k - 1] > 1e-3, "these data do not define the eigenspace"
    assert_allclose(F @ F.T, V[:, :k] @ V[:, :k].T, atol=atol)
    assert_allclose(np.diag(F.T @ (graph.laplacian @ F)), lam[:k], atol=1e-9)  # in the order of the spectrum


@pytest.mark.parametrize(("n", "k"), [(60, 1), (60, 4), (DENSE_UP_TO, 2), (DENSE_UP_TO + 1, 2), (ABOVE, 1), (ABOVE, 4)])
def test_start_of_a_connected_graph(rng, n, k):
    graph = chain(rng, [n], apart=0, groups=4)
    assert len(graph.component_sizes) == 1
    F = spectral_start(graph, k, np.random.default_rng(0))
    check_start(graph, F)
    assert_allclose(F[:, 0], np.sqrt(graph.degree / graph.degree.sum()), atol=1e-10)


@pytest.mark.parametrize(("parts", "n"), [(2, ABOVE), (3, 240), (6, 240), (6, ABOVE)])
def test_start_of_a_graph_in_parts(rng, parts, n):
    sizes = np.full(parts, n // parts) + 3 * np.arange(parts)
    graph = chain(rng, sizes, apart=1000, groups=2)
    assert len(graph.component_sizes) == parts
    F = spectral_start(graph, 2 * parts, np.random.default_rng(0))  # every part is then cut in two
    check_start(graph, F)
    assert_allclose(graph.laplacian @ F[:, :parts], 0, atol=1e-10)
    F = spectral_start(graph, parts, np.random.default_rng(0))
    check_start(graph, F)


@pytest.mark.parametrize(("k", "n"), [(1, 240), (2, ABOVE), (4, 240)])
def test_with_more_parts_than_clusters_the_largest_count(rng, k, n):
    sizes = np.full(6, n // 6) + 5 * np.arange(6)
    graph = chain(rng, sizes, apart=1000)
    F = spectral_start(graph, k, np.random.default_rng(0))
    assert_allclose(F.T @ F, np.eye(k), atol=1e-12)
    assert_allclose(graph.laplacian @ F, 0, atol=1e-12)
    for j in range(k):
        inside = graph.component == j
        assert inside.sum() == sizes[::-1][j]
        assert_array_equal(F[~inside, j], 0)
        assert (F[inside, j] > 0).all()


@pytest.mark.parametrize("n", [60, ABOVE])
def test_start_is_deterministic_for_a_generator(rng, n):
    graph = chain(rng, [n], apart=0, groups=4)
    first, again, other = (spectral_start(graph, 4, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert_allclose(other, first, atol=1e-6)


@pytest.mark.parametrize("n", [60, ABOVE])
def test_start_in_single_precision(rng, n):
    X = (4 * (np.arange(n) % 3)[:, None] + rng.normal(size=(n, 3))).astype(np.float32)
    graph = build_graph(X, 10)
    F = spectral_start(graph, 3, np.random.default_rng(0))
    assert F.dtype == np.float32
    E = np.linalg.eigh(graph.laplacian.toarray().astype(float))[1][:, :3]
    assert_allclose(F @ F.T, E @ E.T, atol=1e-5)


@pytest.mark.parametrize(
    ("n", "k", "rows"), [(10, 2, "equal"), (12, 3, "equidistant"), (200, 3, "equal"), (200, 2, "equidistant")]
)
def test_start_of_a_complete_graph(n, k, rows):
    """All eigenvalues but one are equal: any orthonormal completion will do, but there must be one."""
    graph = build_graph(np.full((n, 3), 0.1) if rows == "equal" else np.eye(n), n - 1)
    F = spectral_start(graph, k, np.random.default_rng(0))
    assert_allclose(F.T @ F, np.eye(k), atol=1e-10)
    assert_allclose(np.trace(F.T @ (graph.laplacian @ F)), (k - 1) * n / (n - 1), rtol=1e-10)


@pytest.mark.parametrize("pairs", [1, 2, 3, 5, 8])
def test_start_of_separate_pairs(pairs):
    """Spectrum 0 and 2 only: the completion must not fall back on the vectors known already."""
    X = np.repeat(100.0 * np.arange(pairs), 2)[:, None] + np.tile([0.0, 1.0], pairs)[:, None]
    graph = build_graph(X, 1)
    for k in range(1, 2 * pairs):
        F = spectral_start(graph, k, np.random.default_rng(0))
        assert_allclose(F.T @ F, np.eye(k), atol=1e-10)
        assert_allclose(np.trace(F.T @ (graph.laplacian @ F)), 2 * max(0, k - pairs), atol=1e-10)


@pytest.mark.parametrize("groups", [1, 4])
def test_start_reaches_its_aim_on_a_long_chain(rng, groups):
    """Eigenvalues from 1e-5 on, close together: only many products at a time tell them apart."""
    X = np.arange(6 * ABOVE)[:, None] * 0.1 + 0.01 * rng.normal(size=(6 * ABOVE, 1))
    graph = build_graph(X, 4)
    F = spectral_start(graph, 4, np.random.default_rng(groups))
    lam = np.linalg.eigvalsh(F.T @ (graph.laplacian @ F))
    assert_allclose(lam, eigsh(graph.laplacian, 4, sigma=-1e-3)[0], atol=1e-8)


def uneven(n, tiny, neighbors=10, link=1e-6):
    """A large cluster without structure and a few of three rows in a line, each held by a thread."""
    rng = np.random.default_rng(0)
    i, j = np.repeat(np.arange(n), neighbors), rng.integers(n, size=n * neighbors)
    first = n + 3 * np.arange(tiny)
    i = np.concatenate([i, first, first + 1, first])
    j = np.concatenate([j, first + 1, first + 2, rng.integers(n, size=tiny)])
    weight = np.repeat([1.0, 1.0, 0.9, link], [n * neighbors, tiny, tiny, tiny])
    A = sp.csr_array((weight[i != j], (i[i != j], j[i != j])), shape=(n + 3 * tiny,) * 2)
    return graph_of(sp.csr_array(A + A.T))


@pytest.mark.parametrize(("tiny", "k"), [(5, 12), (1, 5), (8, 9)])
def test_clusters_of_three_rows_beside_a_large_one(tiny, k):
    """A filter strong enough for the large one's eigenvectors must not drown them in those of the small ones."""
    graph = uneven(1500, tiny)
    F = spectral_start(graph, k, np.random.default_rng(0))
    lam = np.linalg.eigvalsh(graph.laplacian.toarray())
    assert_allclose(F.T @ F, np.eye(k), atol=1e-10)
    assert_allclose(np.linalg.eigvalsh(F.T @ (graph.laplacian @ F)), lam[:k], atol=1e-8)


@pytest.mark.parametrize("n", [90, ABOVE])
def test_another_solver_takes_over_where_eigenvalues_do_not_converge(rng, monkeypatch, n):
    graph = chain(rng, [n], apart=0, groups=4)
    F = spectral_start(graph, 4, np.random.default_rng(0))
    calls = []

    def fails(*args, **_):
        calls.append(args)
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", fails)
    monkeypatch.setattr(np.linalg, "svd", fails)
    G = spectral_start(graph, 4, np.random.default_rng(0))
    assert calls
    assert_allclose(G, F, atol=1e-6)


def failing(times):
    """A solver that fails so many times."""
    real, calls = np.linalg.eigh, []

    def fails(A, *args, **_):
        calls.append(A.shape)
        if len(calls) <= times:
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        return real(A)

    return fails, calls


@pytest.mark.parametrize("n", [90, ABOVE])
@pytest.mark.parametrize("how", ["raises", "not finite"])
def test_where_every_solver_fails_there_is_still_a_start_and_a_warning(rng, monkeypatch, n, how):
    graph = chain(rng, [n], apart=0, groups=4)
    F = spectral_start(graph, 4, np.random.default_rng(0))
    fails, calls = failing(10**6) if how == "raises" else (lambda A: (np.full(len(A), np.nan), A * np.nan), [0])
    monkeypatch.setattr(eigen, "eigh", fails)
    monkeypatch.setattr(np.linalg, "svd", failing(10**6)[0])
    monkeypatch.setattr(scipy.linalg, "svd", failing(10**6)[0])
    with pytest.warns(ConvergenceWarning, match=f"{n} rows"):
        G = spectral_start(graph, 4, np.random.default_rng(0))
    assert calls
    assert_allclose(G.T @ G, np.eye(4), atol=1e-10)
    apart = np.linalg.norm(G - F @ (F.T @ G))
    assert apart < 0.6  # a random start is 1.7 away: three directions of many, orthogonal to all of F but the first


def test_without_a_bound_on_the_spectrum_the_one_that_always_holds(rng, monkeypatch):
    graph = chain(rng, [60], apart=0)
    assert largest_eigenvalue(graph, np.random.default_rng(0)) < 2
    monkeypatch.setattr(scipy.linalg, "eigh_tridiagonal", failing(1)[0])
    assert largest_eigenvalue(graph, np.random.default_rng(0)) == 2


def test_when_the_solver_does_not_get_there_it_says_so_and_goes_on(rng, monkeypatch):
    graph = chain(rng, [ABOVE], apart=0, groups=4)
    monkeypatch.setattr(eigen, "MAX_FILTERS", 1)
    with pytest.warns(ConvergenceWarning, match=rf"{ABOVE}.*n_neighbors"):
        F = spectral_start(graph, 4, np.random.default_rng(0))
    assert_allclose(F.T @ F, np.eye(4), atol=1e-10)


@pytest.mark.parametrize(("n", "parts"), [(60, 1), (60, 3), (ABOVE, 1)])
def test_bound_on_the_spectrum(rng, n, parts):
    graph = chain(rng, [n // parts] * parts, apart=1000)
    top = eigsh(graph.laplacian, 1)[0][0]
    bound = largest_eigenvalue(graph, np.random.default_rng(0))
    assert bound == min(2, np.ceil(8 * top) / 8)


def test_bound_on_the_spectrum_of_pairs_is_2():
    X = np.repeat(100.0 * np.arange(4), 2)[:, None] + np.tile([0.0, 1.0], 4)[:, None]
    assert largest_eigenvalue(build_graph(X, 1), np.random.default_rng(0)) == 2


@pytest.mark.torch
@pytest.mark.parametrize("n", [60, ABOVE])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-10), (np.float32, 1e-5)])
def test_embedding_of_tensors(rng, n, dtype, atol):
    X = (4 * (np.arange(n) % 3)[:, None] + rng.normal(size=(n, 3))).astype(dtype)
    graph, on_device = build_graph(X, 10), build_graph(to_device(X, "torch"), 10)
    F, G = (spectral_start(g, 3, np.random.default_rng(0)) for g in (graph, on_device))
    assert_allclose(to_numpy(G), F, atol=atol)
    target = rng.normal(size=F.shape).astype(dtype) / np.sqrt(n)
    steps = {"alpha": 0.7, "eta": None, "n_inner": 5}
    expected = update_embedding(graph.laplacian, F, target, **steps)
    found = update_embedding(on_device.laplacian, asarray_like(F, G), asarray_like(target, G), **steps)
    assert_allclose(to_numpy(found), expected, atol=atol)
    bounds = [largest_eigenvalue(g, np.random.default_rng(0)) for g in (graph, on_device)]
    assert_allclose(bounds[1], bounds[0], rtol=atol)


@pytest.mark.parametrize("n", [60, ABOVE])
def test_start_follows_a_permutation_of_rows(rng, n):
    X = 4.0 * (np.arange(n) % 3)[:, None] + rng.normal(size=(n, 3))
    order = rng.permutation(n)
    F = spectral_start(build_graph(X), 3, np.random.default_rng(0))
    assert_allclose(spectral_start(build_graph(X[order]), 3, np.random.default_rng(0)), F[order], atol=1e-6)


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_of_a_start_are_the_clients_own_in_any_order_of_the_graph(rng, monkeypatch, parts):
    X = rng.normal(size=(700, 3)) + 40 * (np.arange(700) % parts)[:, None]
    graph = build_graph(X, 10)
    monkeypatch.setattr(graphs, "REORDER_FROM", 1)
    ordered = build_graph(X, 10)
    assert (np.diff(ordered.order) != 1).any()
    F, G = (spectral_start(each, 4, np.random.default_rng(0)) for each in (graph, ordered))
    assert_allclose(G, F, atol=1e-6)
    top, same = (largest_eigenvalue(each, np.random.default_rng(0)) for each in (graph, ordered))
    assert top == same


# ---------------------------------------------------------------------------------- large parts


def parts_of(X, e=12):
    """Number of large parts of the graph of these rows."""
    graph = build_graph(X, nonmutual_weight=0.25)
    F = spectral_start(graph, e, np.random.default_rng(0))
    return large_parts(F, np.einsum("ij,ij->j", F, graph.laplacian @ F))


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([100], 1),
        ([100, 100], 2),
        ([100] * 7, 7),
        ([400, 100], 2),
        ([700, 100, 30], 2),  # the third is less than a quarter of an equal share
    ],
)
def test_large_parts_are_no_outliers(sizes, parts):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.uniform(size=(n, 3)) + 9 * place for place, n in enumerate(sizes)])
    assert parts_of(X) == parts
    order = rng.permutation(len(X))
    assert parts_of(sp.csr_array(X[order])) == parts
    alone = np.zeros((20, 3))  # each further away than all before: nobody's neighbour
    alone[:, 0] = 2.0 ** np.arange(10, 30)
    assert parts_of(np.vstack([X, alone])) == parts


@pytest.mark.parametrize(("between", "parts"), [(0, 2), (2, 2), (80, 1)])
def test_parts_may_have_a_few_links(between, parts):
    """Two squares of 200 points, and points on a line from one to the other: a thread does not make them one."""
    rng = np.random.default_rng(1)
    squares = rng.uniform(size=(400, 2)) + np.repeat([[0, 0], [1.5, 0]], 200, axis=0)
    thread = np.column_stack([np.linspace(1, 1.5, between + 2)[1:-1], np.full(between, 0.5)])
    assert parts_of(np.vstack([squares, thread])) == parts


@pytest.mark.parametrize("n", [150, 600, 1200])
def test_one_piece_is_one_part(n):
    rng = np.random.default_rng(2)
    turn = np.linspace(0, 2 * np.pi, n, endpoint=False)
    square = rng.uniform(size=(n, 2))
    for X in (np.column_stack([np.cos(turn), np.sin(turn)]), square, square * [4, 1], rng.normal(size=(n, 10))):
        assert parts_of(X) == 1
