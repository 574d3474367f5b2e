import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from tests.views import graph_view
from threadpoolctl import threadpool_limits

from fmtc.metrics import clustering_accuracy as accuracy
from fmtc_bench.baselines import USC, KMeansAlone, KMeansUnion, SklearnSpectral, StSC
from fmtc_bench.baselines.base import SpectralGraph, seed_of, unit_rows
from fmtc_bench.baselines.nystroem import nystroem
from fmtc_bench.baselines.single_task import apart, union

METHODS = [StSC, USC, KMeansAlone, KMeansUnion]
K = 3


def blobs(seed, m=3, n=60, d=5, k=K, distance=10.0, offset=0.0):
    """Rows of each client around common centres, in different shares, and the centre of each row."""
    rng = np.random.default_rng(seed)
    centers = distance * np.linalg.qr(rng.normal(size=(d, d)))[0][:k]
    y = {f"c{t}": rng.permutation(np.arange(n + 5 * t) % k) for t in range(m)}
    X = {
        cid: centers[h] + offset * t * np.ones(d) + rng.normal(size=(len(h), d)) for t, (cid, h) in enumerate(y.items())
    }
    return X, y


def words(seed, n=80, d=50):
    """Two clients of sparse counts, some rows without any, and the topic of each row."""
    rng = np.random.default_rng(seed)
    topics, y = rng.dirichlet(np.full(d, 0.05), size=K), rng.integers(K, size=(2, n))
    counts = np.array([[rng.multinomial(30, topics[j]) for j in h] for h in y], dtype=float)
    counts[:, :3] = 0
    return {"a": sp.csr_array(counts[0]), "b": sp.csr_array(counts[1])}, y


def projector(F):
    return F @ F.T


# -------------------------------------------------------------------------------------------------- what all share


@pytest.mark.parametrize("M", METHODS)
def test_blobs_are_found_and_new_rows_too(M):
    X, y = blobs(0)
    model = M(K, random_state=0)
    labels, (X_new, y_new) = model.fit_predict(X), blobs(0, n=70)
    for cid in X:
        assert accuracy(y[cid], labels[cid]) == 1
        assert accuracy(y_new[cid], model.predict(X_new)[cid]) == 1
        assert_array_equal(model.predict(X)[cid], labels[cid])
    assert model.silos_ == ["c0", "c1", "c2"]
    assert model.bytes_up_ == model.bytes_down_ == 0


@pytest.mark.parametrize("M", METHODS)
def test_runs_repeat_and_the_order_of_clients_does_not_matter(M):
    X, _ = blobs(1, distance=3.0)
    labels = M(K, random_state=4).fit_predict(X)
    again = M(K, random_state=4).fit_predict(dict(reversed(X.items())))
    for cid in X:
        assert_array_equal(labels[cid], again[cid])


@pytest.mark.parametrize(("alone", "together"), [(StSC, USC), (KMeansAlone, KMeansUnion)])
def test_the_union_of_one_client_is_the_client(alone, together):
    X = {"only": blobs(2, distance=2.0)[0]["c0"]}
    labels = [M(K, random_state=0).fit(X).labels_ for M in (alone, together)]
    assert_array_equal(*labels)


@pytest.mark.parametrize("M", [StSC, KMeansAlone])
def test_a_client_alone_does_not_see_the_others(M):
    X, _ = blobs(3, distance=2.0)
    labels = M(K, random_state=0).fit_predict(X)
    assert_array_equal(M(K, random_state=0).fit_predict({"c1": X["c1"]})["c1"], labels["c1"])


@pytest.mark.parametrize("M", METHODS)
def test_sparse_rows_some_of_them_empty(M):
    X, y = words(0)
    model = M(K, random_state=0)
    labels = model.fit_predict(X)
    for cid, truth in zip(X, y, strict=True):
        assert accuracy(truth[3:], labels[cid][3:]) > 0.9
        empty = model.predict(X[cid][:3], silos=cid)  # a new row that is empty has an answer as well
        assert len(np.unique(empty)) == 1
    dense = M(K, random_state=0).fit({cid: part.toarray() for cid, part in X.items()})
    if M in (KMeansAlone, KMeansUnion):  # graphs treat an empty sparse row differently, on purpose
        assert_array_equal(dense.labels_, model.labels_)


@pytest.mark.parametrize("M", METHODS)
def test_single_precision(M):
    X, y = blobs(0)
    labels = M(K, random_state=0).fit_predict({cid: part.astype(np.float32) for cid, part in X.items()})
    assert all(accuracy(y[cid], labels[cid]) == 1 for cid in X)


@pytest.mark.parametrize("M", METHODS)
def test_as_many_clusters_as_rows_and_equal_rows(M):
    X = blobs(0)[0]["c0"]
    assert len(np.unique(M(K, random_state=0).fit({"a": X[:K], "b": X[:7]}).labels_)) == K
    assert M(2, random_state=0).fit({"a": np.ones((6, 2)), "b": np.ones((5, 2))}).labels_.shape == (11,)


ONE_ROW = {"a": np.ones((1, 2)), "b": np.arange(8.0).reshape(4, 2)}


@pytest.mark.parametrize("M", [M for M in METHODS if M is not StSC])
def test_a_client_of_one_row_can_be_one_cluster(M):
    assert_array_equal(M(1, random_state=0).fit_predict(ONE_ROW)["a"], [0])


def test_one_row_has_no_graph():
    with pytest.raises(ValueError, match=r"\b2\b"):
        StSC(1).fit(ONE_ROW)


@pytest.mark.parametrize("parts", ["dense", "sparse"])
def test_union_and_apart(parts):
    X, y = blobs(0)
    X = {cid: sp.csr_array(part) for cid, part in X.items()} if parts == "sparse" else X
    whole = union(X)
    assert sp.issparse(whole) == (parts == "sparse")
    assert whole.shape == (195, 5)
    for cid, h in apart(np.concatenate(list(y.values())), X).items():
        assert_array_equal(h, y[cid])


# ------------------------------------------------------------------------------------------------------------ stSC


def test_eigenvectors_are_the_bottom_ones():
    X = blobs(0, distance=2.0)[0]["c1"]
    graph = SpectralGraph.of(X, 10)
    F, eigenvalues = graph.eigenvectors(4, np.random.default_rng(0))
    lam, V = np.linalg.eigh(graph.graph.laplacian.toarray())
    assert_allclose(eigenvalues, lam[:4], atol=1e-10)
    assert_allclose(projector(F), projector(V[:, :4]), atol=1e-8)


def test_separate_components_have_eigenvalue_zero_and_one_row_each():
    X, y = blobs(0, distance=1000.0)
    model = StSC(K, random_state=0).fit(X)
    for cid in X:
        spectral = model._models[cid]
        assert len(spectral.graph.graph.component_sizes) == K
        assert_allclose(spectral.eigenvalues, 0, atol=1e-12)
        rows = unit_rows(spectral.F)
        for j in range(K):
            assert_allclose(rows[y[cid] == j], np.broadcast_to(rows[y[cid] == j][0], (int((y[cid] == j).sum()), K)))
        assert_allclose(rows @ rows.T, y[cid][:, None] == y[cid], atol=1e-12)


def test_order_of_rows_and_turns_of_features_do_not_matter(rng):
    X = blobs(4, distance=4.0)[0]["c0"]
    labels = StSC(K, random_state=0).fit_predict(X)
    order = rng.permutation(len(X))
    assert adjusted_rand_score(StSC(K, random_state=0).fit_predict(X[order]), labels[order]) == 1
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    assert adjusted_rand_score(StSC(K, random_state=0).fit_predict(X @ turn), labels) == 1


def test_the_embedding_is_that_of_fmtc_without_alpha():
    X, _ = blobs(5, distance=3.0)
    for weight in (1, 0.25):
        model = graph_view(K, alpha=1e-9, max_iter=3, nonmutual_weight=weight, random_state=0).fit(X)
        alone = StSC(K, nonmutual_weight=weight, random_state=0).fit(X)
        begin = 0
        for cid, part in X.items():
            F = model.embedding_[begin : begin + len(part)]
            assert_allclose(projector(alone._models[cid].F), projector(F), atol=1e-6)
            begin += len(part)


def test_k_means_sees_rows_of_unit_length():
    X, _ = blobs(5, distance=2.0)
    model = StSC(K, random_state=0).fit(X)
    for cid, h in apart(model.labels_, X).items():
        spectral = model._models[cid]
        rows = unit_rows(spectral.F)
        assert_allclose(spectral.clusters.centers, [rows[h == j].mean(axis=0) for j in range(K)], atol=1e-10)
        new = unit_rows(spectral.graph.extend(X["c0"], spectral.F, spectral.eigenvalues))
        nearest = ((new[:, None] - spectral.clusters.centers) ** 2).sum(axis=2).argmin(axis=1)
        assert_array_equal(model.predict(X["c0"], silos=cid), nearest)


def test_bandwidth_scale_widens_the_weights():
    X = blobs(0)[0]["c0"]
    narrow, wide = (SpectralGraph.of(X, 10, stretch) for stretch in (1.0, 2.0))
    assert_allclose(wide.bandwidth, 2 * narrow.bandwidth)
    assert_allclose(wide.affinity.data, narrow.affinity.data ** (1 / 4))
    model = StSC(K, bandwidth_scale=2.0, random_state=0).fit(X)
    assert_allclose(model._models["all"].graph.bandwidth, wide.bandwidth)


# --------------------------------------------------------------------------------------------------------- Nyström


@pytest.mark.parametrize("distance", [2.0, 1000.0])  # one component, and three
def test_nystroem_returns_the_rows_of_the_graph_itself(distance):
    graph = SpectralGraph.of(blobs(6, distance=distance)[0]["c2"], 8)
    F, eigenvalues = graph.eigenvectors(5, np.random.default_rng(0))
    assert_allclose(nystroem(graph.affinity, graph.graph.degree, F, eigenvalues), F, atol=1e-10)


def test_nystroem_by_the_formula():
    X, _ = blobs(6, distance=2.0)
    graph, new = SpectralGraph.of(X["c0"], 8), X["c1"][:4]
    F, eigenvalues = graph.eigenvectors(K, np.random.default_rng(0))
    expected = np.empty((4, K))
    for i, x in enumerate(new):
        distance = np.linalg.norm(X["c0"] - x, axis=1)
        near = np.argsort(distance)[:8]
        a = np.exp(-(distance[near] ** 2) / (2 * graph.bandwidth**2))
        scaled = a / np.sqrt(a.sum() * graph.graph.degree[near])
        expected[i] = scaled @ F[near] / (1 - eigenvalues)
    assert_allclose(graph.extend(new, F, eigenvalues), expected, rtol=1e-10)


@pytest.mark.parametrize(("seed", "jitter"), [(0, 0.0), (1, 1e-3), (2, 0.0), (3, 1e-3)])
def test_rows_seen_before_keep_their_clusters_where_a_small_client_has_many(seed, jitter):
    """Eigenvalues near 1, on either side, come with 20 clusters of four rows."""
    rng = np.random.default_rng(seed)
    X = 4 * rng.normal(size=(20, 20))[np.arange(80) % 20] + rng.normal(size=(80, 20))
    model = StSC(20, random_state=0).fit(X)
    assert np.abs(1 - model._models["all"].eigenvalues).min() < 0.05
    assert (model.predict(X + jitter * rng.normal(size=X.shape)) == model.labels_).mean() > 0.9


# ------------------------------------------------------------------------------------------------------------- uSC


def test_equal_clients_gain_from_the_union():
    X, y = blobs(7, m=5, n=30, distance=3.5)
    scores = [
        np.mean([accuracy(y[cid], h) for cid, h in M(K, random_state=0).fit_predict(X).items()]) for M in (USC, StSC)
    ]
    assert scores[0] >= scores[1] - 0.02


def test_far_clients_are_what_the_union_finds():
    X, y = blobs(8, distance=3.0, offset=100.0)
    labels = USC(K, random_state=0).fit_predict(X)
    client = np.repeat(np.arange(3), [len(h) for h in y.values()])
    assert normalized_mutual_info_score(client, np.concatenate(list(labels.values()))) > 0.9
    assert all(accuracy(y[cid], h) > 0.9 for cid, h in StSC(K, random_state=0).fit_predict(X).items())


# --------------------------------------------------------------------------------------------------------- k-means


def test_k_means_of_the_union_and_of_each():
    X, _ = blobs(9, distance=3.0)
    whole = np.concatenate(list(X.values()))
    inertia = dict.fromkeys((KMeansAlone, KMeansUnion), 0.0)
    for M in inertia:
        model = M(K, random_state=0).fit(X)
        for cid, h in apart(model.labels_, X).items():
            centers = model._models[cid].centers
            inertia[M] += ((X[cid] - centers[h]) ** 2).sum()
    best = KMeans(K, n_init=10, random_state=1)
    assert_allclose(inertia[KMeansUnion], best.fit(whole).inertia_, rtol=1e-3)
    assert_allclose(inertia[KMeansAlone], sum(best.fit(part).inertia_ for part in X.values()), rtol=1e-3)


# --------------------------------------------------------------------------------------- scikit-learn's own spectral


def test_scikit_learns_spectral_clustering_is_scikit_learns():
    X, _ = blobs(0)
    model = SklearnSpectral(3, n_neighbors=7, random_state=0).fit(X)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    for cid, rows in X.items():
        solver = SpectralClustering(
            3, affinity="nearest_neighbors", n_neighbors=7, random_state=seed_of(seed, cid, "spectral")
        )
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the blobs are far apart: a graph in parts
            expected = solver.fit(rows).labels_
        found = dict(zip(X, np.split(model.labels_, np.cumsum([len(r) for r in X.values()])[:-1]), strict=True))
        assert_array_equal(found[cid], expected)


def test_new_rows_take_the_vote_of_their_neighbours():
    X, _ = blobs(0)
    model = SklearnSpectral(3, random_state=0).fit(X)
    again = np.concatenate(list(model.predict(X).values()))
    assert np.mean(again == model.labels_) > 0.95
    few = SklearnSpectral(4, random_state=0).fit({"a": np.eye(4), "b": np.arange(12.0).reshape(6, 2).repeat(2, axis=1)})
    assert sorted(few.labels_[:4]) == [0, 1, 2, 3]


def test_neighbours_of_the_union_grow_with_its_rows():
    """The limit of 30 is for clients; the union of 20News does 20 points worse with it."""
    X = np.random.default_rng(0).normal(size=(4000, 2))
    model = USC(2, n_init=1, random_state=0).fit(X, silos=np.arange(4000) % 2)
    assert model._models["0"].graph.n_neighbors == 32
