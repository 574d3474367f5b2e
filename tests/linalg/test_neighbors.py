"""The nearest rows: all ways of looking for them find the same, and the fast ones say when they cannot."""

import importlib.util

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from fmtc.linalg import neighbors
from fmtc.linalg.neighbors import nearest_neighbors


@pytest.fixture
def torch():
    import torch

    return torch


def brute(X, k, X_new=None):
    """All distances in double precision, sorted; of equals the first rows."""
    X = np.asarray(X, dtype=np.float64)
    new = X if X_new is None else np.asarray(X_new, dtype=np.float64)
    D = cdist(new, X)  # from differences
    if X_new is None:
        np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(D, order, axis=1), order


def assert_distinct_others(neighbor, n):
    assert ((neighbor >= 0) & (neighbor < n)).all()
    assert (neighbor != np.arange(n)[:, None]).all()
    assert (np.diff(np.sort(neighbor, axis=1), axis=1) > 0).all()


def true_distances(X, neighbor):
    X = np.asarray(X, dtype=np.float64)
    return np.linalg.norm(X[neighbor] - X[:, None], axis=2)


# ------------------------------------------------------------------------------------------------ by scikit-learn


@pytest.mark.parametrize(("n", "d", "k"), [(40, 2, 5), (40, 30, 39), (7, 3, 1)])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_nearest_rows_are_those_of_brute_force(rng, n, d, k, kind):
    X = rng.normal(size=(n, d))
    distance, neighbor = nearest_neighbors(kind(X), k)
    expected = brute(X, k)
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, expected[0], rtol=1e-10)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_nearest_rows_of_new_ones(rng, kind):
    X, new = rng.normal(size=(40, 4)), rng.normal(size=(6, 4))
    distance, neighbor = nearest_neighbors(kind(X), 5, kind(new))
    expected = brute(X, 5, new)
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, expected[0], rtol=1e-10)


# ------------------------------------------------------------------------------------------- in single precision


@pytest.fixture
def single(monkeypatch):
    """Six hundred rows count as enough for tiles, which are small; says what scikit-learn was asked for."""
    monkeypatch.setattr(neighbors, "SINGLE_FROM", 600)
    monkeypatch.setattr(neighbors, "SINGLE_CORES", 10**6)
    monkeypatch.setattr(neighbors, "SINGLE_WIDTH", 2_048)
    left = []
    by_scikit_learn = neighbors._by_scikit_learn

    def watched(X, k, rows):
        left.append(len(rows))
        return by_scikit_learn(X, k, rows)

    monkeypatch.setattr(neighbors, "_by_scikit_learn", watched)
    return left


@pytest.mark.parametrize(
    ("n", "d", "k", "shift", "dtype"),
    [(600, 16, 1, 0.0, np.float64), (600, 16, 1, 1e4, np.float64), (600, 16, 1, 10.0, np.float32),
     (2_000, 20, 48, 1e4, np.float64), (2_300, 40, 10, 0.0, np.float64), (2_300, 40, 10, 10.0, np.float32)],
)  # fmt: skip
def test_single_precision_finds_the_rows_that_double_precision_finds(rng, single, n, d, k, shift, dtype):
    X = (shift + rng.normal(size=(n, d))).astype(dtype)
    distance, neighbor = neighbors._in_single_precision(X, k)
    expected = brute(X, k)
    assert distance.dtype == dtype
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, expected[0], rtol=4 * np.finfo(dtype).eps)
    assert sum(single) < n / 10


def test_many_columns_are_searched_in_single_precision(rng, single, monkeypatch):
    X, asked = rng.normal(size=(600, 20)), []
    search = neighbors._in_single_precision
    monkeypatch.setattr(neighbors, "_in_single_precision", lambda *args: asked.append(0) or search(*args))
    for rows, k in ((X, 10), (X[:599], 10), (X[:, :15], 10), (X, 49)):
        assert_array_equal(nearest_neighbors(rows, k)[1], brute(rows, k)[1])
    assert_array_equal(nearest_neighbors(X, 5, X[:9])[1], brute(X, 5, X[:9])[1])
    assert len(asked) == 1
    monkeypatch.setattr(neighbors, "SINGLE_CORES", 0)  # as on a machine of many cores
    assert_array_equal(nearest_neighbors(X, 10)[1], brute(X, 10)[1])
    assert len(asked) == 1


@pytest.mark.parametrize("copies", [3, 30])
def test_copies_in_single_precision(rng, single, copies):
    """Of rows that are equally near the first are taken; where there are too many, scikit-learn chooses."""
    X = np.repeat(rng.normal(size=(900 // copies, 20)), copies, axis=0)
    X = X[rng.permutation(900)]
    found = neighbors._in_single_precision(X, 7)
    if copies == 3:
        assert_array_equal(found[1], brute(X, 7)[1])
        assert not single
    else:
        distance, neighbor = nearest_neighbors(X, 7)
        assert found is None
        assert_distinct_others(neighbor, 900)
        assert_allclose(distance, brute(X, 7)[0], atol=1e-6)


def test_rows_of_which_single_precision_is_not_certain_are_searched_again(rng, single):
    """A few tight groups in rows that are far apart: within them distances are below the rounding of products."""
    X = 30 * rng.normal(size=(900, 20))
    X[800:] = X[rng.integers(4, size=100)] + 1e-4 * rng.normal(size=(100, 20))
    X = X[rng.permutation(900)]
    distance, neighbor = neighbors._in_single_precision(X, 6)
    expected = brute(X, 6)
    assert 50 < sum(single) < 300
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, expected[0], rtol=1e-12)


def test_a_row_far_from_all_others_leaves_the_search_to_double_precision(rng, single):
    X = np.vstack([rng.normal(size=(700, 20)), np.full((1, 20), 1e5)])
    assert neighbors._in_single_precision(X, 6) is None
    assert_array_equal(nearest_neighbors(X, 6)[1][:-1], brute(X, 6)[1][:-1])


# ------------------------------------------------------------------------------------------------------- by faiss


MANY = 1_500


@pytest.fixture
def many(monkeypatch):
    """Fifteen hundred rows count as many, for which a search pays."""
    monkeypatch.setattr(neighbors, "EXACT_UP_TO", MANY - 1)
    monkeypatch.setattr(neighbors, "HNSW_ROWS", 0)
    monkeypatch.setattr(neighbors, "ROWS_PER_CANDIDATE", 1)
    answers = []
    search = neighbors._hnsw

    def watched(X, k):
        answers.append(search(X, k))
        return answers[-1]

    monkeypatch.setattr(neighbors, "_hnsw", watched)
    return answers  # of the search, None where it gave up


@pytest.mark.parametrize(
    ("d", "shift", "dtype"), [(2, 0.0, np.float64), (8, 1e4, np.float64), (8, 1e4, np.float32), (40, 0.0, np.float32)]
)
def test_a_search_finds_99_of_100_and_their_true_distances(rng, many, d, shift, dtype):
    X = (shift + rng.normal(size=(MANY, d))).astype(dtype)
    distance, neighbor = nearest_neighbors(X, 12)
    assert many[0][1] is neighbor
    assert_distinct_others(neighbor, MANY)
    exact = brute(X, 12)[1]
    recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(neighbor, exact, strict=True)]) / 12
    assert recall >= 0.99
    assert_allclose(distance, true_distances(X, neighbor), rtol=8 * np.finfo(dtype).eps)
    again = nearest_neighbors(X, 12)
    assert again[0].tobytes() == distance.tobytes()
    assert again[1].tobytes() == neighbor.tobytes()


@pytest.mark.parametrize("copies", [3, 20])
def test_a_search_among_copies(rng, many, copies):
    """Of rows that are equally near any will do; a row that is not told from its copies is still not its own."""
    X = np.repeat(rng.normal(size=(MANY // copies, 5)), copies, axis=0)
    distance, neighbor = nearest_neighbors(X, 10)
    assert many[0][1] is neighbor
    assert_distinct_others(neighbor, MANY)
    expected = brute(X, 10)[0]
    assert (distance <= expected[:, -1:] * (1 + 1e-12)).mean() >= 0.99
    assert_allclose(distance, true_distances(X, neighbor), rtol=1e-12)


def test_copies_do_not_widen_the_search(rng, many, monkeypatch):
    """Judged by numbers of rows and not by distances, it would be as wide as there are rows."""
    monkeypatch.setattr(neighbors, "ROWS_PER_CANDIDATE", MANY // 50)
    X = np.repeat(rng.normal(size=(MANY // 3, 5)), 3, axis=0)
    nearest_neighbors(X, 10)
    assert many[0] is not None


@pytest.mark.parametrize("copied", [30, 1])  # rows, to fifty copies each and to half of all
def test_where_the_search_does_not_get_there_all_rows_are_looked_at(rng, many, copied):
    """So many copies of one row that the links of the search's graph lead nowhere else."""
    X = rng.normal(size=(MANY, 5))
    X[: MANY if copied > 1 else MANY // 2] = np.repeat(X[:copied], MANY // 30 if copied > 1 else MANY // 2, axis=0)
    distance, neighbor = nearest_neighbors(X, 10)
    assert many == [None]
    assert_distinct_others(neighbor, MANY)
    assert_array_equal(distance[: MANY // 2], 0)
    assert_allclose(distance, brute(X, 10)[0], rtol=1e-12)


def test_a_row_that_the_search_does_not_reach_is_not_made_up(rng, many, monkeypatch):
    import faiss

    class Short(faiss.IndexHNSWFlat):
        def search(self, rows, k):
            distance, neighbor = super().search(rows, k)
            if len(rows) == MANY:
                neighbor[7, -2:] = -1  # as faiss says that there are no more
            return distance, neighbor

    monkeypatch.setattr(faiss, "IndexHNSWFlat", Short)
    X = rng.normal(size=(MANY, 5))
    assert_array_equal(nearest_neighbors(X, 10)[1], brute(X, 10)[1])
    assert many == [None]


def test_a_row_that_does_not_find_itself_keeps_its_nearest(rng, many, monkeypatch):
    import faiss

    class Blind(faiss.IndexHNSWFlat):
        def search(self, rows, k):
            distance, neighbor = super().search(rows, k + 1)
            if len(rows) == MANY:
                neighbor[7] = np.append(neighbor[7, 1:], -1)
            return distance[:, :-1], neighbor[:, :-1]

    monkeypatch.setattr(faiss, "IndexHNSWFlat", Blind)
    monkeypatch.setattr(neighbors, "_locality_order", lambda X: np.arange(len(X)))
    X = rng.normal(size=(MANY, 2))
    neighbor = nearest_neighbors(X, 10)[1]
    assert many[0][1] is neighbor
    row = 7 * neighbors.PILOT  # the eighth that joins
    assert_array_equal(neighbor[row], brute(X, 10)[1][row])


@pytest.mark.parametrize("d", [3, 40])
def test_near_rows_follow_each_other(rng, d):
    place = rng.integers(0, 30, size=4_000)
    X = 100 * rng.normal(size=(30, d))[place] + rng.normal(size=(4_000, d))
    order = neighbors._locality_order(X)
    assert_array_equal(np.sort(order), np.arange(4_000))
    assert np.count_nonzero(np.diff(place[order])) < 400 < 3_800 < np.count_nonzero(np.diff(place))


def test_equal_rows_have_an_order(rng):
    assert_array_equal(np.sort(neighbors._locality_order(np.ones((1_000, 3)))), np.arange(1_000))


def test_a_search_that_does_not_pay_is_not_made(rng, many, monkeypatch):
    monkeypatch.setattr(neighbors, "ROWS_PER_CANDIDATE", MANY // 20)  # 20 candidates
    X = rng.normal(size=(MANY, 5))
    assert_array_equal(nearest_neighbors(X, 10)[1], brute(X, 10)[1])
    assert many == [None]


def test_few_sparse_and_new_rows_are_not_searched_for(rng, many):
    X = rng.normal(size=(MANY, 5))
    few, new = X[: MANY - 1], X[:4] + 0.1
    assert_array_equal(nearest_neighbors(few, 3)[1], brute(few, 3)[1])
    assert_array_equal(nearest_neighbors(X, 3, new)[1], brute(X, 3, new)[1])
    assert_array_equal(nearest_neighbors(sp.csr_array(X), 3)[1], brute(X, 3)[1])
    assert many == []


def test_without_faiss_a_warning_says_what_helps_and_the_result_is_exact(rng, many, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    X = rng.normal(size=(MANY, 3))
    with pytest.warns(UserWarning, match=rf"{MANY} rows .*fmtc\[knn\]"):
        distance, neighbor = nearest_neighbors(X, 5)
    expected = brute(X, 5)
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, expected[0], rtol=1e-12)
    assert many == []


# ------------------------------------------------------------------------------------------- in tiles, on a device


HALVES = [("cuda",), ("cuda", "cpu")]  # where half precision comes first: on the processor not, and to try it


@pytest.mark.torch
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    ("n", "d", "k"), [(2, 1, 1), (31, 3, 5), (32, 3, 31), (33, 5, 31), (64, 2, 10), (100, 7, 98), (1_001, 2, 13),
                      (1_500, 40, 30)],
)  # fmt: skip
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_tiles_find_the_rows_that_numpy_finds(torch, rng, monkeypatch, half, n, d, k, shift):
    monkeypatch.setattr(neighbors, "HALF_PRECISION_ON", half)
    X = shift + rng.normal(size=(n, d))
    distance, neighbor = nearest_neighbors(torch.from_numpy(X), k)
    expected = nearest_neighbors(X, k)
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, true_distances(X, expected[1]), rtol=1e-14)


@pytest.mark.torch
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("tile", [1, 5_000])
def test_the_size_of_tiles_does_not_matter(torch, rng, monkeypatch, half, tile):
    monkeypatch.setattr(neighbors, "HALF_PRECISION_ON", half)
    X = rng.normal(size=(200, 3))
    monkeypatch.setattr(neighbors, "CPU_TILE", tile)
    distance, neighbor = nearest_neighbors(torch.from_numpy(X), 6)
    expected = brute(X, 6)
    assert_array_equal(neighbor, expected[1])
    assert_allclose(distance, expected[0], rtol=1e-14)


@pytest.mark.torch
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("rows", "copies", "k"), [(40, 20, 7), (10, 100, 7), (300, 3, 7), (1, 70, 7), (1, 70, 69)])
def test_tiles_of_copies(torch, rng, monkeypatch, half, dtype, rows, copies, k):
    monkeypatch.setattr(neighbors, "HALF_PRECISION_ON", half)
    X = np.repeat(rng.normal(size=(rows, 3)), copies, axis=0).astype(dtype)
    distance, neighbor = map(np.asarray, nearest_neighbors(torch.from_numpy(X), k))
    assert distance.dtype == dtype
    assert_distinct_others(neighbor, rows * copies)
    assert_allclose(distance, brute(X, k)[0], rtol=4 * np.finfo(dtype).eps)


@pytest.mark.torch
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("far", [1e4, 1e7])
def test_tiles_in_single_precision_with_a_row_far_away(torch, rng, monkeypatch, half, far):
    """Norms are then so much larger than distances that products in single precision do not tell neighbours."""
    monkeypatch.setattr(neighbors, "HALF_PRECISION_ON", half)
    X = np.vstack([rng.normal(size=(777, 6)), np.full((1, 6), far)]).astype(np.float32)
    distance, neighbor = map(np.asarray, nearest_neighbors(torch.from_numpy(X), 9))
    assert distance.dtype == np.float32
    expected = brute(X, 9)
    assert_array_equal(neighbor[:-1], expected[1][:-1])  # to the far row many are equally near, as rounded
    assert_allclose(distance, expected[0], rtol=4 * np.finfo(np.float32).eps)


def easy_and_hard(rng):
    """Data, and the share of rows of which half precision is sure: from, to."""
    return {
        "many columns": (rng.normal(size=(1_500, 30)), 1, 1),
        "away from zero": (1e3 + rng.normal(size=(1_500, 30)), 1, 1),
        "plane": (rng.normal(size=(3_000, 2)), 0.05, 0.95),
        "grid": (np.round(rng.normal(size=(1_500, 2)), 1), 0.05, 0.95),
        "outlier": (np.vstack([rng.normal(size=(1_500, 4)), [[12.0, 0.0, 0.0, 0.0]]]), 0.05, 0.95),
        "far outlier": (np.vstack([rng.normal(size=(1_500, 4)), [[1e6, 0.0, 0.0, 0.0]]]), 0, 0.001),
        "small groups": (1e-3 * rng.normal(size=(1_500, 3)) + 10.0 * rng.integers(3, size=(1_500, 1)), 0, 0),
        "constant": (np.full((70, 3), 0.1), 0, 0),
    }


DATA = list(easy_and_hard(np.random.default_rng(0)))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("data", DATA)
def test_half_precision_is_never_sure_and_wrong(torch, rng, dtype, data):
    X, least, most = easy_and_hard(rng)[data]
    X = X.astype(dtype)
    rows, k = torch.arange(3, len(X)), 10
    distance, neighbor, sure = map(np.asarray, neighbors._tiled_pass(torch.from_numpy(X), k, rows, torch.float16))
    right = np.isclose(distance, brute(X, k)[0][3:], rtol=8 * np.finfo(dtype).eps, atol=0).all(axis=1)
    assert right[sure].all()
    assert least <= sure.mean() <= most
    assert (neighbor != np.arange(3, len(X))[:, None]).all()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("data", DATA)
def test_what_half_precision_leaves_open_is_looked_at_again(torch, rng, monkeypatch, dtype, data):
    monkeypatch.setattr(neighbors, "HALF_PRECISION_ON", ("cpu",))
    X, least, most = easy_and_hard(rng)[data]
    X, n = X.astype(dtype), len(X)
    passes = {}
    tiled_pass = neighbors._tiled_pass

    def watched(X, k, rows, dtype):
        passes[dtype] = len(rows) / n
        return tiled_pass(X, k, rows, dtype)

    monkeypatch.setattr(neighbors, "_tiled_pass", watched)
    distance, neighbor = map(np.asarray, nearest_neighbors(torch.from_numpy(X), 10))
    assert_distinct_others(neighbor, n)
    assert_allclose(distance, brute(X, 10)[0], rtol=8 * np.finfo(dtype).eps)
    assert passes[torch.float16] == 1
    assert 1 - most <= passes.get(getattr(torch, dtype.__name__), 0) <= 1 - least


@pytest.mark.torch
def test_new_rows_on_a_device_are_refused_and_not_ignored(rng):
    import torch

    X = torch.from_numpy(rng.normal(size=(50, 3)))
    with pytest.raises(TypeError, match="new rows"):
        nearest_neighbors(X, 5, X[:3])
