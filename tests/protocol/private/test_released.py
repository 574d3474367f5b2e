"""What the server makes of noisy sums: right without noise, and never broken by it."""

from math import sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fmtc.kernels.records import Box, Public, centred, coordinates, nearest
from fmtc.protocol.private import released
from fmtc.protocol.private.stages import BINS, STAGES

PUBLIC = Public(Box.of((-1, 1), 2))


def blobs(rng, n=1200, k=4, d=6, gap=0.5):
    """Rows around well-separated centres inside [-1, 1]."""
    centers = rng.uniform(-1, 1, size=(k, d)) * gap
    labels = rng.integers(k, size=n)
    return np.clip(centers[labels] + 0.05 * rng.normal(size=(n, d)), -1, 1), labels


def released_run(X, k, sd=0.0, seed=0):
    """All stages by hand, with noise of one size everywhere."""
    rng = np.random.default_rng(seed)
    by_name = {stage.name: stage for stage in STAGES}

    def total(name, public):
        found = by_name[name].total(X, public)
        return found + sd * rng.normal(size=found.shape)

    public = Public(Box.of((-1, 1), X.shape[1]))
    public, n = released.read_mean(public, total("mean", public))
    public = released.read_radius(public, total("radius", public))
    public, variances = released.read_gram(public, total("gram", public), n, sd, k)
    centers = released.first_anchors(variances, public.size, released.number_of_anchors(n, sd, k), seed)
    for step in (1, 2, 3):
        public = Public(public.box, public.mean, public.radius, public.basis, public.size, centers)
        cells = released.read_cells(total(f"anchors{step}", public), centers, sd)
        centers = cells.centers if step == 3 else released.revived(cells, seed)
    public = Public(public.box, public.mean, public.radius, public.basis, public.size, centers)
    links = total("links", public)
    clusters = released.clusters_of_anchors(cells, links, sd, n, k, seed)
    return public, cells, clusters, n


@pytest.mark.parametrize("seed", range(3))
def test_blobs_are_found_without_noise_and_with_a_little(seed):
    X, labels = blobs(np.random.default_rng(seed))
    for sd in (0.0, 1.0):
        public, cells, clusters, n = released_run(X, 4, sd, seed)
        assert n == pytest.approx(len(X), abs=8 * sd + 1e-6)
        near = nearest(coordinates(X, public), np.where(cells.lives[:, None], public.centers, 1e3), 1)[:, 0]
        assert adjusted_rand_score(labels, clusters[near]) > 0.9
        sizes = np.bincount(clusters[near], minlength=4)
        assert sizes[0] >= sizes.max() - 100  # the largest has number 0


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_breaks_nothing(seed):
    rng = np.random.default_rng(seed)
    public, cells, clusters, n = released_run(rng.uniform(-1, 1, size=(40, 5)), 3, 200.0, seed)
    for value in (public.mean, public.basis, public.centers, cells.counts):
        assert np.isfinite(value).all()
    assert public.radius > 0 and public.size > 0 and n >= 1
    assert clusters.shape == (len(public.centers),) and (clusters >= 0).all() and (clusters < 3).all()


def test_the_radius_is_the_median_within_half_an_octave():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)) * 0.2
    public = Public(Box.of((-1, 1), 4), mean=np.zeros(4))
    found = released.read_radius(public, STAGES[1].total(X, public)).radius
    median = np.median(np.linalg.norm(public.box.unit(X), axis=1))
    assert median / sqrt(sqrt(2)) <= found <= median * sqrt(sqrt(2)) * 1.001
    assert released.read_radius(public, np.full(BINS, -5.0)).radius > 0


def test_the_gram_matrix_comes_back():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(80, 5))
    public = Public(Box.of((-1, 1), 5), mean=np.full(5, 0.1), radius=0.4)
    Y = centred(X, public)
    assert_allclose(released.unpacked(STAGES[2].total(X, public), 5), Y.T @ Y, atol=1e-12)


def test_few_coordinates_where_noise_covers_the_rest():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 12)) * np.array([0.5, 0.4, *[0.01] * 10])
    public = Public(Box.of((-1, 1), 12), mean=np.zeros(12), radius=0.2)
    total = STAGES[2].total(X, public)
    wide = released.read_gram(public, total, 2000, 0.0, 10)[0]
    narrow = released.read_gram(public, total, 2000, 40.0, 10)[0]
    assert wide.basis.shape == (12, 10)
    assert narrow.basis.shape == (12, 2)


def test_anchors_cover_the_gaussian_and_do_not_depend_on_luck():
    variances = np.array([1.0, 0.5, 0.1])
    size = sqrt(variances.sum())
    rows = np.random.default_rng(0).normal(size=(3000, 3)) * np.sqrt(variances)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), size)

    def error(centers):
        return np.square(rows - centers[nearest(rows, centers, 1)[:, 0]]).sum(axis=1).mean()

    errors = [error(released.first_anchors(variances, size, 20, seed)) for seed in range(4)]
    assert max(errors) < 1.1 * min(errors)
    drawn = [error(rows[np.random.default_rng(seed).permutation(3000)[:20]]) for seed in range(4)]
    assert max(errors) < min(drawn)


def test_a_dead_anchor_stays_until_it_moves_beside_a_full_one():
    centers = np.array([[0.0, 0.0], [0.5, 0.5], [0.9, -0.9]])
    total = np.array([[10.0, 20.0, 50.0], [0.1, 0.2, 0.4], [-30.0, 3.0, 30.0]]).ravel()
    cells = released.read_cells(total, centers, sd=2.0)
    assert cells.lives.tolist() == [True, False, True]
    assert_allclose(cells.centers, [[0.1, 0.2], [0.5, 0.5], [-0.5, 0.05]])
    moved = released.revived(cells, 0)
    assert_allclose(moved[[0, 2]], cells.centers[[0, 2]])
    assert np.linalg.norm(moved[1] - moved[0]) < 0.2


def test_islands_of_noise_are_no_clusters():
    """Two chains of anchors with weak noise between them: the chains are found, at any scale of links."""
    centers = np.array([[x, side] for side in (-0.5, 0.5) for x in np.linspace(-0.8, 0.8, 8)])
    cells = released.Cells(centers, np.full(16, 100.0), np.ones(16, bool))
    A = np.zeros((16, 16))
    for side in (0, 8):
        for j in range(7):
            A[side + j + 1, side + j] = 60.0
    above, below = np.tril_indices(16, -1)
    noise = np.random.default_rng(0).normal(size=len(above))
    labels = released.clusters_of_anchors(cells, A[above, below] + noise, 1.0, 1600, 2, 0)
    assert adjusted_rand_score([0] * 8 + [1] * 8, labels) == 1


def test_few_links_mean_where_anchors_lie():
    centers = np.array([[-0.5, 0], [-0.45, 0], [0.5, 0], [0.55, 0.0]])
    cells = released.Cells(centers, np.full(4, 100.0), np.ones(4, bool))
    labels = released.clusters_of_anchors(cells, np.zeros(6), 1.0, 400, 2, 0)
    assert labels[0] == labels[1] != labels[2] == labels[3]


def test_dead_anchors_take_the_cluster_of_the_nearest_living_one():
    centers = np.array([[-0.5, 0], [-0.45, 0], [0.5, 0], [0.55, 0.0], [0.6, 0.0]])
    cells = released.Cells(centers, np.array([100.0, 100, 100, 100, 0]), np.array([True] * 4 + [False]))
    labels = released.clusters_of_anchors(cells, np.zeros(10), 1.0, 400, 2, 0)
    assert labels[4] == labels[3]


def test_a_mixture_from_released_sums_is_that_of_the_rows():
    """Without noise, one step is the M-step, and the common covariance that of the rows about the means."""
    rng = np.random.default_rng(3)
    means = np.array([[-0.4, 0.0], [0.4, 0.0]])  # the total is diagonal, as it is in coordinates
    labels = rng.integers(2, size=4000)
    E = means[labels] + rng.normal(size=(4000, 2)) * [0.1, 0.05]
    one = np.eye(2)[labels]
    total = np.column_stack([one.T @ E, 0.5 * one.sum(axis=0)]).ravel()
    cells = released.read_cells(total, means, 0.0)
    second = (E**2).mean(axis=0)
    found = released.next_mixture(PUBLIC, cells, second, 4000, 0.0)
    largest = np.argsort(-np.bincount(labels))
    assert_allclose(found.centers, [E[labels == j].mean(axis=0) for j in largest])
    within = sum(np.cov(E[labels == j].T, bias=True) * (labels == j).mean() for j in (0, 1))
    assert_allclose(np.diag(np.linalg.inv(found.precision)), np.diag(within), rtol=0.1)
    assert found.shares.sum() == pytest.approx(1)


def test_a_mixture_of_noise_has_a_shape():
    rng = np.random.default_rng(4)
    cells = released.Cells(rng.normal(size=(3, 2)), np.array([-5.0, 0, 3]), np.zeros(3, bool))
    found = released.first_mixture(PUBLIC, cells, np.array([0.2, 0.1]), 1.0, 3, 0)
    assert np.linalg.eigvalsh(found.precision).min() > 0
    assert (found.shares > 0).all()
