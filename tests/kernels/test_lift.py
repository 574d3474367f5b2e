import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from tests.views import graph_view

from fmtc.kernels import lift as module
from fmtc.kernels.lift import RIDGE, bandwidth, cut_share, draw, lifts, shows_shapes
from fmtc.kernels.scaling import moments, pool, standardize


def standardised(X):
    return standardize(moments(X)).apply(X)


def gaussian_kernel(X, width):
    squares = np.square(X[:, None] - X[None]).sum(axis=2)
    return np.exp(-squares / (2 * width**2))


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_products_of_lifted_rows_approximate_the_gaussian_kernel(rng, d, monkeypatch):
    X = rng.normal(size=(80, d))
    rows = moments(X)
    exact = gaussian_kernel(X, bandwidth(rows))

    def error(n_features):
        monkeypatch.setattr(module, "FEATURES", n_features)
        P = draw(rows, 0).apply(X)
        return np.sqrt(np.mean((P @ P.T - exact) ** 2))

    assert error(256) < 0.05
    assert error(4096) < error(256) / 3


def test_quasi_random_frequencies_are_more_exact_than_independent_ones(rng):
    X = rng.normal(size=(80, 2))
    rows = moments(X)
    width, exact = bandwidth(rows), gaussian_kernel(X, bandwidth(rows))
    ours, independent = [], []
    for seed in range(10):
        lift = draw(rows, seed)
        omega = np.random.default_rng(seed).normal(size=lift.frequencies.shape) / width
        for lifted, errors in ((lift, ours), (module.Lift(omega, lift.shift), independent)):
            P = lifted.apply(X)
            errors.append(np.square(P @ P.T - exact).mean())
    assert np.mean(ours) < np.mean(independent) / 3


def test_lifted_rows_have_norm_1_wherever_they_are(rng):
    X = rng.normal(size=(30, 3)) * 100 + 1e6
    P = draw(moments(X), 1).apply(X)
    assert P.shape == (30, 256)
    assert_allclose(np.linalg.norm(P, axis=1), 1, rtol=1e-12)


def test_same_seed_same_features(rng):
    rows = moments(rng.normal(size=(40, 4)))
    first, again, other = draw(rows, 3), draw(rows, 3), draw(rows, 4)
    assert_array_equal(first.frequencies, again.frequencies)
    assert np.abs(first.frequencies - other.frequencies).max() > 0.1
    assert first.n_features == 256
    assert len(np.unique(first.frequencies.round(9), axis=1).T) == 128  # none is drawn twice


def test_clients_agree_however_the_rows_are_dealt(rng):
    """What a lift needs to know of the rows adds up over clients."""
    X = rng.normal(size=(60, 3)) * [1, 5, 0.2] + 7
    whole = draw(moments(X), 0)
    dealt = draw(pool(moments(part) for part in np.split(X, [11, 25])), 0)
    assert_allclose(dealt.frequencies, whole.frequencies, rtol=1e-10)
    assert_allclose(dealt.shift, whole.shift, rtol=1e-10)


def test_rows_one_at_a_time_or_in_blocks_give_the_same(rng, monkeypatch):
    X = rng.normal(size=(23, 3))
    lift = draw(moments(X), 0)
    at_once = lift.apply(X)
    assert_allclose(np.vstack([lift.apply(X[i : i + 1]) for i in range(23)]), at_once, atol=1e-12)
    monkeypatch.setattr(module, "BLOCK", 5)
    assert_allclose(lift.apply(X), at_once, atol=1e-12)
    assert lift.apply(X[:0]).shape == (0, 256)


def test_the_kernel_does_not_depend_on_place_and_unit(rng):
    X = rng.normal(size=(40, 3))
    moved = 1000 * X + [5, -1e5, 3e6]
    P, Q = draw(moments(X), 0).apply(X), draw(moments(moved), 0).apply(moved)
    assert_allclose(P, Q, atol=1e-8)


def test_single_precision_stays_and_keeps_deviations_from_an_offset(rng):
    X = (rng.normal(size=(40, 2)) + 4096).astype(np.float32)
    lift = draw(moments(X), 0)
    P = lift.apply(X)
    assert P.dtype == np.float32
    assert_allclose(P, lift.apply(X.astype(np.float64)), atol=1e-6)


def test_bandwidth_of_standardised_columns():
    for d in (1, 2, 5, 16):
        X = np.random.default_rng(d).normal(size=(500, d))
        assert_allclose(bandwidth(moments(standardised(X))), 0.38 * d**0.75, rtol=1e-12)


def test_rows_that_are_all_equal_have_one_image():
    X = np.full((7, 2), 3.0)
    P = draw(moments(X), 0).apply(X)
    assert np.isfinite(P).all()
    assert_allclose(P, P[:1].repeat(7, axis=0))


def test_a_row_that_is_not_finite_says_so_in_every_column(rng):
    X = rng.normal(size=(5, 2))
    lift = draw(moments(X), 0)
    X[1, 0], X[3, 1] = np.nan, np.inf
    assert_array_equal(np.isnan(lift.apply(X)).all(axis=1), [False, True, False, True, False])
    assert_array_equal(np.isnan(lift.apply(X)).any(axis=1), [False, True, False, True, False])


def test_sparse_rows_are_refused():
    import scipy.sparse as sp

    with pytest.raises(ValueError, match="sparse rows are not lifted"):
        draw(moments(sp.csr_array(np.eye(4))), 0)


def test_which_tables_are_lifted():
    assert all(lifts(d, 2) for d in range(1, 11))
    assert not lifts(11, 2)
    assert lifts(24, 12)
    assert not lifts(25, 12)


@pytest.mark.torch
def test_tensors_give_the_same(rng):
    torch = pytest.importorskip("torch")
    X = rng.normal(size=(30, 3))
    lift = draw(moments(X), 0)
    P = lift.apply(torch.from_numpy(X))
    assert isinstance(P, torch.Tensor)
    assert P.dtype == torch.float64
    assert_allclose(P.numpy(), lift.apply(X), atol=1e-12)
    assert lift.apply(torch.from_numpy(X.astype(np.float32))).dtype == torch.float32


def moons(n, seed):
    return make_moons(n, noise=0.05, random_state=seed)


def circles(n, seed):
    return make_circles(n, noise=0.05, factor=0.5, random_state=seed)


def line(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    return 8 * y[:, None] + rng.normal(size=(n, 1)), y


def uneven(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=np.array([500, 60, 40]) / 600)
    return np.array([[0, 0], [8, 0], [0, 8]])[y] + rng.normal(size=(n, 2)), y


@pytest.mark.filterwarnings(
    "ignore:the neighbour graph", "ignore:silo 'all' fills only 2 of 4 clusters", "ignore:the labels of 'all'",
    "ignore:clusters 2 and 3 have no rows",
)  # fmt: skip
@pytest.mark.parametrize(("make", "k"), [(moons, 2), (circles, 2), (line, 4), (uneven, 3)])
def test_a_linear_projection_of_lifted_rows_follows_shapes(make, k):
    """Training and new rows; without the lift the graph view is below 0.7 on each of them."""
    (X, y), (X_new, y_new) = make(400, 0), make(400, 1)
    scaling = standardize(moments(X))
    lift = draw(moments(scaling.apply(X)), 0)
    model = graph_view(k, ridge=RIDGE, center_features=False, random_state=0)
    model.fit(lift.apply(scaling.apply(X)))
    assert adjusted_rand_score(y, model.labels_) >= 0.95
    assert adjusted_rand_score(y_new, model.predict(lift.apply(scaling.apply(X_new)))) >= 0.95
    plain = graph_view(k, scale="global", final="kmeans", random_state=0).fit(X)
    assert adjusted_rand_score(y, plain.labels_) < 0.7


def test_cut_share_counts_neighbours_across():
    X = np.array([[0.0], [1.0], [2.1], [10.0], [11.0], [12.1]])
    assert cut_share(X, np.array([0, 0, 0, 1, 1, 1]), n_neighbors=2) == 0
    assert_allclose(cut_share(X, np.array([0, 0, 1, 1, 1, 1]), n_neighbors=2), 4 / 12)
    assert_allclose(cut_share(X, np.array([0, 0, 0, 1, 1, 1]), n_neighbors=99), 18 / 30)


@pytest.mark.parametrize("make", [moons, circles])
def test_shapes_are_seen(make):
    X, y = make(400, 0)
    assert shows_shapes(X, y, KMeans(2, n_init=3, random_state=0).fit_predict(X))
    assert not shows_shapes(X, KMeans(2, n_init=3, random_state=0).fit_predict(X), y)  # the wrong way round


def test_what_is_no_shape(rng):
    X, y = line(400, 0)
    almost = np.where(np.arange(400) % 20 == 0, (y + 1) % 4, y)
    assert not shows_shapes(X, y, almost)  # the mixture finds nearly the same
    assert shows_shapes(X, y, rng.permutation(y))
    cloud = rng.normal(size=(400, 2))
    left, low = (cloud[:, 0] > 0).astype(int), (cloud[:, 1] > 0).astype(int)
    assert not shows_shapes(cloud, left, low)  # the parts touch
    assert not shows_shapes(cloud, left, rng.integers(2, size=400))  # also where the mixture is much worse
    cloud[:8] += 30
    outliers = (np.arange(400) >= 8).astype(int)
    assert not shows_shapes(cloud, outliers, low)  # eight rows are outliers
    assert not shows_shapes(cloud, np.zeros(400, int), low)  # one part
