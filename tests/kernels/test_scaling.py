import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from fmtc.kernels import scaling
from fmtc.kernels.scaling import FEW_COLUMNS, Moments, Scaling, in_one_unit, moments, pool, standardize


@pytest.fixture(params=[5, 4096], ids=["blocks", "one block"])
def block(request, monkeypatch):
    monkeypatch.setattr(scaling, "BLOCK", request.param)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("block")
def test_moments_of_one_client(rng, dtype):
    X = (rng.normal(size=(33, 4)) * [1, 10, 0.1, 1] + [0, 5, -3, 100]).astype(dtype)
    found, Y = moments(X), X.astype(np.float64)
    assert found.n == 33
    assert found.means.dtype == found.squares.dtype == np.float64
    assert_allclose(found.means, Y.mean(axis=0), rtol=1e-13)
    assert_allclose(found.squares, np.square(Y - Y.mean(axis=0)).sum(axis=0), rtol=1e-13)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    cuts=st.lists(st.integers(1, 199), max_size=5, unique=True),
    offset=st.sampled_from([0.0, 1.0, -1e4, 1e8]),
    seed=st.integers(0, 99),
)
def test_moments_of_parts_pool_to_those_of_the_whole(cuts, offset, seed):
    """Also about an offset of 1e8, where the difference of large squares would have lost every digit."""
    X = np.random.default_rng(seed).normal(size=(200, 3)) * [1, 30, 0.5] + offset
    whole = pool(moments(part) for part in np.split(X, sorted(cuts)))
    exact = X - X[0]  # no rounding about the offset
    assert whole.n == 200
    assert_allclose(whole.means, X[0] + exact.mean(axis=0), rtol=1e-15, atol=1e-13)
    variance = exact.var(axis=0)
    assert_allclose(whole.squares / 200, variance, rtol=1e-9 if offset < 1e8 else 1e-6)
    naive = (X**2).mean(axis=0) - X.mean(axis=0) ** 2
    assert (np.abs(naive / variance - 1).max() > 0.5) == (offset == 1e8)


def test_pooling_does_not_depend_on_the_order_beyond_rounding(rng):
    parts = [moments(rng.normal(size=(n, 3)) + n) for n in (5, 50, 500)]
    for some in (parts[::-1], [parts[1], parts[0], parts[2]]):
        assert_allclose(pool(some).squares, pool(parts).squares, rtol=1e-13)


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e6 + 0.1, -1e8])
@pytest.mark.usefixtures("block")
def test_standardised_columns_are_those_of_scikit_learn(rng, offset):
    X = rng.normal(size=(40, 4)) * [1, 100, 1e-3, 1] + offset
    X[:, 3] = offset  # constant
    scaler = StandardScaler().fit(X)
    parts = [moments(part) for part in np.split(X, [7, 25])]
    found = standardize(pool(parts))
    assert_allclose(found.shift, scaler.mean_, rtol=1e-12)
    assert_allclose(found.stretch, scaler.scale_, rtol=1e-6 if abs(offset) > 1e3 else 1e-12)
    assert found.stretch[3] == 1
    assert pool(parts).squares[3] == 0  # exactly, though the mean of equal numbers need not be that number


def test_a_column_of_rounding_errors_counts_as_constant():
    X = np.full((50, 2), 0.3)
    X[::2, 1] += np.spacing(0.3)
    assert_array_equal(standardize(moments(X)).stretch, [1, 1])
    assert_array_equal(StandardScaler().fit(X).scale_, [1, 1])
    X[::2, 1] += 1e-9
    assert standardize(moments(X)).stretch[1] < 1e-8


def test_sparse_columns_have_root_mean_square_one(rng):
    X = np.where(rng.random((60, 5)) < 0.3, rng.normal(size=(60, 5)) + 2, 0)
    X[:, 4] = 0
    parts = [moments(sp.csr_array(part)) for part in np.split(X, [10, 35])]
    assert all(part.means is None for part in parts)
    found = standardize(pool(parts))
    assert found.shift is None
    assert_allclose(found.stretch[:4], np.sqrt(np.square(X[:, :4]).mean(axis=0)), rtol=1e-13)
    assert found.stretch[4] == 1
    mixed = pool([moments(X[:20]), moments(sp.csr_array(X[20:]))])  # one client dense: nobody is shifted
    assert mixed.means is None
    assert_allclose(mixed.squares, np.square(X).sum(axis=0), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.usefixtures("block")
def test_apply_gives_a_scaled_copy(rng, dtype, shift):
    X = (rng.normal(size=(23, 3)) + np.array([0, 1e4, 5])).astype(dtype)
    before = X.copy()
    how = Scaling(np.array([1.0, 0.5, 4.0]), np.array([0.0, 1e4, 5.0]) if shift else None)
    S = how.apply(X)
    assert (S.dtype, S.shape) == (dtype, X.shape)
    exact = (X.astype(np.float64) - (how.shift if shift else 0)) / how.stretch
    assert_array_equal(S, exact.astype(dtype))
    assert_array_equal(X, before)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_apply_leaves_sparse_rows_sparse(rng, dtype, kind, monkeypatch):
    dense = np.where(rng.random((20, 4)) < 0.4, rng.normal(size=(20, 4)), 0).astype(dtype)
    X, stretch = kind(dense), np.array([1.0, 0.5, 4.0, 10.0])
    with monkeypatch.context() as patch:
        patch.setattr(kind, "toarray", lambda *_, **__: pytest.fail("made dense"))
        S = Scaling(stretch).apply(X)
        moments(X)
    assert (type(S), S.dtype, S.nnz) == (kind, dtype, X.nnz)
    assert_allclose(S.toarray(), dense / stretch, rtol=1e-6)
    assert_array_equal(X.toarray(), dense)
    with pytest.raises(ValueError, match="sparse"):
        Scaling(stretch, np.ones(4)).apply(X)


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_fold_moves_the_scaling_into_the_model(rng, shift, centred):
    X, W = rng.normal(size=(30, 4)) * 7 + 3, rng.normal(size=(4, 2))
    how = Scaling(rng.random(4) + 0.5, rng.normal(size=4) if shift else None)
    mean = rng.normal(size=4) if centred else None
    expected = (how.apply(X) - (0 if mean is None else mean)) @ W
    raw_W, raw_mean = how.fold(W, mean)
    assert (raw_mean is None) == (not shift and not centred)
    assert_allclose((X - (0 if raw_mean is None else raw_mean)) @ raw_W, expected, atol=1e-12)
    for dtype in (np.float32, np.float64):
        single, centre = how.fold(W.astype(dtype), None if mean is None else mean.astype(dtype))
        assert single.dtype == dtype
        assert centre is None or centre.dtype == dtype


def test_one_part_is_the_whole(rng):
    own = moments(rng.normal(size=(9, 2)))
    assert isinstance(own, Moments)
    assert_array_equal(pool([own]).squares, own.squares)


def _wide(rng, n=200, d=80):
    return rng.poisson(0.5, size=(n, d)).astype(float)


def test_counts_rows_of_length_1_and_ink_share_a_unit(rng):
    counts = _wide(rng)
    assert in_one_unit(counts)
    assert in_one_unit(sp.csr_array(counts))
    unit = rng.normal(size=(50, 4))
    assert in_one_unit(unit / np.linalg.norm(unit, axis=1, keepdims=True))


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X[:, :FEW_COLUMNS],  # few columns
        lambda X: X - 0.1,  # negative numbers
        lambda X: X + 1,  # no zeros
        lambda X: X * np.r_[1000.0, np.ones(X.shape[1] - 1)],  # one column that varies far more
    ],
    ids=["few", "negative", "no zeros", "one column"],
)
def test_what_shares_no_unit(rng, change):
    assert not in_one_unit(change(_wide(rng)))


def test_missing_cells_are_no_zeros(rng):
    X = _wide(rng)
    X[X == 0] = np.nan
    assert not in_one_unit(X)


def test_no_columns_hold_nothing_far():
    assert scaling.far_row(np.empty((200, 0))) is None
