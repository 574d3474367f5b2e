"""What a client makes of the public model at home."""

import numpy as np
from numpy.testing import assert_allclose

from fmtc.kernels.graph import knn_affinity, normalized_laplacian
from fmtc.kernels.records import nearest
from fmtc.protocol.private import home


def two_lines(n=60):
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], n)
    X = np.column_stack([np.tile(np.linspace(0, 1, n), 2), truth * 0.5]) + 0.005 * rng.normal(size=(2 * n, 2))
    return X, truth


def test_labels_follow_the_neighbours():
    X, truth = two_lines()
    wrong = truth.copy()
    flipped = np.random.default_rng(1).permutation(len(X))[:20]
    wrong[flipped] = 1 - wrong[flipped]
    found = home.spread(wrong, 2, normalized_laplacian(knn_affinity(X, 6)))
    assert (found == truth).mean() > 0.97


def test_labels_that_agree_with_the_neighbours_stay():
    X, truth = two_lines()
    assert (home.spread(truth, 2, normalized_laplacian(knn_affinity(X, 6))) == truth).all()


def test_own_anchors_hold_no_row_and_keep_public_ones_elsewhere():
    rng = np.random.default_rng(2)
    E = np.vstack([rng.normal(size=(100, 2)) * 0.05 + [0.5, 0], rng.normal(size=(60, 2)) * 0.05 - [0.5, 0]])
    labels = np.repeat([1, 0], [100, 60])
    public = np.array([[0.5, 0], [-0.5, 0], [0, 0.9]])
    anchors, clusters = home.own_anchors(E, labels, public, np.array([0, 1, 2]), 0)
    assert_allclose(anchors[0], public[2])  # nobody is near it here
    assert clusters[0] == 2 and set(clusters) == {0, 1, 2}
    assert len(anchors) <= 1 + 16
    assert not any((anchor == row).all() for anchor in anchors for row in E)
    assert (clusters[nearest(E, anchors, 1)[:, 0]] == labels).all()


def test_closed_clusters_count_beyond_chance():
    X, truth = two_lines()
    judge = home.held_back(len(X), 0)
    assert home.closed(X, truth, judge) > 0.95
    assert abs(home.closed(X, np.random.default_rng(3).integers(2, size=len(X)), judge)) < 0.4
    assert home.closed(X, np.zeros(len(X), int), judge) == 0  # one giant cluster is closed by chance only


def test_the_choice():
    X, truth = two_lines()
    judge = home.held_back(len(X), 0)
    noise = np.random.default_rng(4).integers(2, size=len(X))
    assert home.worth(X, judge, truth, truth) >= home.KEEP
    assert home.worth(X, judge, noise, truth) < 0.5
    assert home.worth(X, judge, truth, noise) >= home.KEEP
    assert home.worth(X, judge, np.zeros(len(X), int), truth) < home.KEEP


def test_merged_clusters_are_noticed():
    """Four groups that the public model takes for two: every neighbour is still in the same cluster."""
    rng = np.random.default_rng(6)
    truth = np.repeat([0, 1, 2, 3], 40)
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])[truth] + 0.02 * rng.normal(size=(160, 2))
    judge = home.held_back(160, 0)
    assert home.closed(X, truth // 2, judge) == 1
    assert home.worth(X, judge, truth // 2, truth) < home.KEEP
    assert home.worth(X, judge, 3 - truth, truth) >= home.KEEP


def test_a_fifth_is_held_back():
    judge = home.held_back(103, 7)
    assert judge.sum() == 20
    assert (judge == home.held_back(103, 7)).all()


def test_own_shares_follow_the_rows():
    rng = np.random.default_rng(5)
    means, share = np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    x = means[(rng.random(400) < 0.9).astype(int)] + 0.3 * rng.normal(size=400)
    scores = np.log(share) - (x[:, None] - means) ** 2 / (2 * 0.09)
    found = home.own_shares(scores, share)
    assert abs(found[1] - 0.9) < 0.05
    assert_allclose(found.sum(), 1)
    assert_allclose(home.own_shares(scores[:0], share), share)
