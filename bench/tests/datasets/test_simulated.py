"""Synthetic federations: the answers they promise are there."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC
from fmtc.errors import InputError
from fmtc.metrics import clustering_accuracy
from fmtc_bench.datasets import synthetic
from fmtc_bench.datasets.simulated import KINDS, _rotation

GAUSSIAN = [kind for kind in KINDS if kind != "rings"]


def middles(data):
    """Class means of each client: (m, k, d)."""
    return np.stack(
        [
            np.stack([part.X[part.y == c].mean(axis=0) for c in range(part.n_clusters)])
            for part in data.by_client().values()
        ]
    )


def nearest(points):
    return min(np.linalg.norm(a - b) for i, a in enumerate(points) for b in points[:i])


def alone(data, cluster):
    """Accuracy of a method in each client by itself."""
    return [clustering_accuracy(part.y, cluster(part.X)) for part in data.by_client().values()]


def kmeans(k):
    return lambda X: KMeans(k, n_init=10, random_state=0).fit_predict(X)


# ------------------------------------------------------------------------------------------------------- all kinds


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_names(kind):
    data = synthetic(kind, n_clients=3, n_samples=[40, 30, 50], n_features=7, n_clusters=4, seed=5)
    assert data.X.shape == (120, 7) and np.isfinite(data.X).all()
    assert data.name == f"synthetic-{kind}-seed5"
    assert [len(part.y) for part in data.by_client().values()] == [40, 30, 50]
    assert data.client_ids == ["silo1", "silo2", "silo3"]
    assert len(data.feature_names) == 7 and len(data.class_names) == 4
    assert all((np.diff(part.y) < 0).sum() > 5 for part in data.by_client().values())  # in no order
    assert all(min(counts.values()) > 0 for counts in data.class_counts().values())
    assert data.recipe == "none" and "Drawn at random with seed 5" in data.provenance
    assert data.licence and data.citation


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes(kind):
    one, two, other = (synthetic(kind, n_samples=30, seed=seed) for seed in (3, 3, 4))
    assert one.X.tobytes() == two.X.tobytes() and one.y.tobytes() == two.y.tobytes()
    assert not np.isclose(one.X, other.X).any()


@pytest.mark.parametrize("kind", KINDS)
def test_one_client_more_leaves_the_others_as_they_are(kind):
    few = synthetic(kind, n_clients=2, n_samples=30)
    many = synthetic(kind, n_clients=3, n_samples=[30, 30, 90])
    assert_array_equal(few.X, many.X[:60])
    assert_array_equal(few.y, many.y[:60])


@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_its_size_and_no_more(kind):
    clean, noisy = (synthetic(kind, n_samples=500, noise=noise) for noise in (0, 2.0))
    assert_array_equal(clean.y, noisy.y)
    E = noisy.X - clean.X
    assert abs(E.std() - 2) < 0.05 and np.abs(E.mean(axis=0)).max() < 0.3
    assert np.abs(np.corrcoef(E.T) - np.eye(clean.X.shape[1])).max() < 0.15


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_separation_is_that_of_the_nearest_two(kind):
    for M in middles(synthetic(kind, noise=0, separation=7.0, n_clusters=5)):
        assert_allclose(nearest(M), 7.0)


@pytest.mark.parametrize("kind", sorted({*GAUSSIAN} - {"skew"}))
def test_classes_have_as_many_rows(kind):
    for counts in synthetic(kind, n_samples=[100, 7, 9, 50]).class_counts().values():
        assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("kind", ["subspace", "rotated", "offset"])
def test_solvable_but_not_trivial(kind):
    mean = np.mean([alone(synthetic(kind, seed=seed), kmeans(3)) for seed in range(2)])
    assert 0.85 < mean < 0.98


# -------------------------------------------------------------------------------------------------- one by one


@pytest.mark.parametrize(("options", "rank"), [({}, 3), ({"rank": 2}, 2), ({"rank": 5}, 5), ({"n_features": 2}, 2)])
def test_subspace_has_the_rank_and_clients_differ(options, rank):
    M = middles(synthetic("subspace", noise=0, **options))
    s = np.linalg.svd(M.reshape(-1, M.shape[2]), compute_uv=False)
    assert (s > 1e-8 * s[0]).sum() == rank
    assert all(np.abs(M[0] - other).max() > 0.5 for other in M[1:])
    distances = [np.linalg.norm(m[:, None] - m[None], axis=2) for m in M]
    assert not np.allclose(distances[0], distances[1], rtol=0.01)


def test_rotated_clusters_are_copies():
    M = middles(synthetic("rotated", noise=0, n_clusters=4))
    gram = M @ M.transpose(0, 2, 1)
    assert_allclose(gram, np.broadcast_to(gram[0], gram.shape), atol=1e-9)
    s = np.linalg.svd(M.reshape(-1, M.shape[2]), compute_uv=False)
    assert (s > 1e-8 * s[0]).sum() == 4
    assert all(np.abs(M[i] - M[j]).max() > 0.5 for i in range(4) for j in range(i))


def test_rotations_do_not_mirror():
    """In a plane, the signed area of three middles keeps its sign."""
    M = middles(synthetic("rotated", noise=0, n_features=2, rank=2, n_clients=12))
    areas = np.linalg.det(M[:, 1:] - M[:, :1])
    assert_allclose(areas, areas[0])


def test_rotations_prefer_no_direction(rng):
    R = np.stack([_rotation(rng, 3) for _ in range(2000)])
    assert_allclose(R @ R.transpose(0, 2, 1), np.broadcast_to(np.eye(3), R.shape), atol=1e-9)
    assert np.abs(R.mean(axis=0)).max() < 0.06


def test_skew_proportions_differ_and_each_class_is_everywhere():
    data = synthetic("skew", n_clients=6, concentration=0.3, noise=0)
    counts = np.array([list(of.values()) for of in data.class_counts().values()])
    assert counts.min() >= 3 and (counts.sum(axis=1) == 100).all()
    assert np.ptp(counts, axis=0).min() > 20
    M = middles(data)
    assert_allclose(M, np.broadcast_to(M[0], M.shape), atol=1e-9)


def test_a_large_concentration_is_even():
    counts = synthetic("skew", n_samples=3000, concentration=1e5).class_counts()
    assert np.ptp([list(of.values()) for of in counts.values()]) < 200


def test_offsets_are_the_means():
    data = synthetic("offset", n_samples=99, noise=0, distance=30.0)
    shifts = np.array([part.X.mean(axis=0) for part in data.by_client().values()])
    assert_allclose(np.linalg.norm(shifts, axis=1), 30.0)
    M = middles(data) - shifts[:, None]
    assert_allclose(M, np.broadcast_to(M[0], M.shape), atol=1e-9)
    assert nearest(shifts) > 5


def test_no_offset():
    M = middles(synthetic("offset", noise=0, distance=0))
    assert_allclose(M, np.broadcast_to(M[0], M.shape), atol=1e-9)


def test_rings_have_their_radii_in_one_plane():
    data = synthetic("rings", noise=0, spacing=8.0, n_clusters=4, n_features=6)
    assert_allclose(np.linalg.norm(data.X, axis=1), 8 * (data.y + 0.5))
    s = np.linalg.svd(data.X, compute_uv=False)
    assert s[1] > 1 and s[2] < 1e-8 * s[0]
    assert data.class_names == ("ring1", "ring2", "ring3", "ring4")


def test_rings_are_evenly_filled():
    data = synthetic("rings", n_clients=1, n_samples=300, noise=0)
    plane = np.linalg.svd(data.X, full_matrices=False)[2][:2]
    for c in range(3):
        x, y = (data.X[data.y == c] @ plane.T).T
        angles = np.sort(np.arctan2(y, x))
        gaps = np.diff(np.append(angles, angles[0] + 2 * np.pi))
        assert gaps.max() < 2.1 * gaps.mean()


@pytest.mark.parametrize(("k", "n", "neighbors"), [(2, 100, 10), (3, 100, 5), (3, 300, 10)])
@pytest.mark.filterwarnings("ignore:Graph is not fully connected:UserWarning")
def test_rings_are_for_spectral_clustering(k, n, neighbors):
    data = synthetic("rings", n_clients=2, n_samples=n, n_clusters=k)
    spectral = SpectralClustering(k, affinity="nearest_neighbors", n_neighbors=neighbors, random_state=0)
    assert min(alone(data, spectral.fit_predict)) == 1
    assert max(alone(data, kmeans(k))) < 0.7


@pytest.mark.parametrize(("k", "view"), [(2, "graph"), (3, "graph"), (2, "auto")])
@pytest.mark.filterwarnings("ignore:the neighbour graph of:UserWarning")
def test_rings_as_they_come_are_for_the_graph_view(k, view):
    for seed in range(3):
        data = synthetic("rings", n_clients=3, n_clusters=k, seed=seed)
        labels = FMTC(k, view=view, random_state=seed).fit(data.X, silos=data.clients).labels_
        assert [adjusted_rand_score(data.y[data.clients == c], labels[data.clients == c]) for c in data.client_ids] == (
            pytest.approx([1] * 3, abs=0.05)
        )


# --------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("subspaces", {}, "'subspaces'.* 'subspace'"),
        ("xyz", {}, "'subspace', 'rotated', 'skew', 'offset', 'rings'"),
        ("subspace", {"n_samples": 2}, "n_samples .*n_clusters=3.* 2$"),
        ("subspace", {"n_samples": [9, 9]}, "n_samples .*2 .* 4 clients"),
        ("subspace", {"noise": -1}, "noise .* -1$"),
        ("subspace", {"noise": np.nan}, "noise .* nan$"),
        ("subspace", {"n_clients": 0}, "n_clients=0"),
        ("subspace", {"n_clusters": 1}, "n_clusters=1"),
        ("subspace", {"n_features": 0}, "n_features=0"),
        ("subspace", {"seed": -1}, "seed=-1"),
        ("subspace", {"rank": 0}, "1 to n_features=20 .* 0$"),
        ("subspace", {"rank": 21}, "1 to n_features=20 .* 21$"),
        ("subspace", {"separation": 0}, "separation .* 0$"),
        ("rotated", {"rank": 1}, "2 to n_features=20 .* 1$"),
        ("skew", {"n_samples": 8}, "'skew' .*3 rows .*3 clusters.* 8 rows"),
        ("skew", {"concentration": 0}, "concentration .* 0$"),
        ("offset", {"distance": -1}, "distance .* -1$"),
        ("rings", {"spacing": np.inf}, "spacing .* inf$"),
        ("rings", {"n_features": 1}, "n_features=1 .* 2$"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(kind, options, words):
    with pytest.raises(InputError, match=words) as error:
        synthetic(kind, **options)
    assert "\n" not in str(error.value)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match=r"'rings' .*rank.* spacing"):
        synthetic("rings", rank=2)


def test_every_kind_and_option_is_explained():
    doc = inspect.getdoc(synthetic)
    for kind, (draw, _) in KINDS.items():
        assert f'``"{kind}"``' in doc
        assert all(option in doc for option in list(inspect.signature(draw).parameters)[4:])
