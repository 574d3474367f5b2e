import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from fmtc_bench.baselines import MBC, SMBC, SMKC, bregman
from fmtc_bench.baselines.bregman import Mercer, Points, alternate, own_clusters, plus_plus, seeds, transport

K = 3
SETTINGS = {"task_weight": 0.5, "marginals": "proportional", "max_iter": 100, "tol": 1e-6}


def federation(seed, m=3, n=60, k=K, d=4, spread=1.5, skew=2.0):
    """Overlapping clusters, shifted and in different shares from client to client."""
    rng = np.random.default_rng(seed)
    centers = 3 * rng.normal(size=(k, d))
    y = {f"c{t}": rng.choice(k, n + 7 * t, p=rng.dirichlet(np.full(k, skew))) for t in range(m)}
    return {cid: centers[h] + rng.normal(size=d) + spread * rng.normal(size=(len(h), d)) for cid, h in y.items()}


def words(seed, m=3, n=50, d=40):
    """Counts of words, sparse, with a row that has none."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(d, 0.1), size=K)
    rows = {f"c{t}": [rng.multinomial(30, topics[h]) for h in rng.integers(K, size=n)] for t in range(m)}
    rows["c0"][0][:] = 0
    return {cid: sp.csr_array(np.array(X, dtype=float)) for cid, X in rows.items()}


def rings(seed, m=3, n=60, inner=1.0):
    """Two rings around one point, in every client, and which row is of which."""
    rng = np.random.default_rng(seed)
    angle, y = rng.uniform(0, 2 * np.pi, size=(m, 2 * n)), np.repeat([0, 1], n)
    radius = np.where(y == 0, inner, 3.0) + 0.05 * rng.normal(size=(m, 2 * n))
    X = radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return {f"c{t}": X[t] for t in range(m)}, y


def started(data, space=None, seed=0, k=K):
    space = space or Points(list(data.values()))
    return space, seeds(space, list(data), k, seed, 0)


def lloyd(X, mu, n_iter=100):
    """Plain k-means, a loop per cluster; the loss after each pass."""
    labels = ((X[:, None] - mu) ** 2).sum(axis=2).argmin(axis=1)
    losses = []
    for _ in range(n_iter):
        mu = np.array([X[labels == j].mean(axis=0) if (labels == j).any() else mu[j] for j in range(len(mu))])
        D = ((X[:, None] - mu) ** 2).sum(axis=2)
        labels = D.argmin(axis=1)
        losses.append(D.min(axis=1).mean())
    return mu, labels, np.array(losses)


def local_loss(X, centers, labels):
    return float(((X - centers[labels]) ** 2).sum(axis=1).mean())


def shares(labels, k=K):
    return np.bincount(labels, minlength=k) / len(labels)


# ----------------------------------------------------------------------------------------------------- divergence


def test_kl_divergence_by_its_definition():
    X = words(0)["c0"]
    mu = np.random.default_rng(0).random((5, X.shape[1]))
    x, c = X.toarray()[:, None] + bregman.SMOOTHING, mu + bregman.SMOOTHING
    expected = (x * np.log(x / c) - x + c).sum(axis=2)
    for rows in (X, X.toarray()):
        assert_allclose(Points([rows], "kl").to_rows(0, mu), expected, rtol=1e-10)
    assert_allclose(Points([X], "kl").between(X.toarray(), mu), expected, rtol=1e-10)


@pytest.mark.parametrize("divergence", ["euclidean", "kl"])
def test_mean_is_the_best_centroid(divergence):
    X = words(1)["c1"]
    space, rng = Points([X], divergence), np.random.default_rng(0)
    mean = X.mean(axis=0)
    best = space.to_rows(0, mean[None]).sum()
    for size in (1e-3, 1e-1, 1.0):
        assert best < space.to_rows(0, np.maximum(mean + size * rng.normal(size=mean.shape), 0)[None]).sum()


def test_a_far_origin_costs_no_digits():
    data = federation(0)
    far = {cid: X + 1e7 for cid, X in data.items()}
    near_model, far_model = (MBC(K, n_init=3, random_state=0).fit(rows) for rows in (data, far))
    assert_array_equal(near_model.labels_, far_model.labels_)
    assert_allclose(near_model.objective_, far_model.objective_, rtol=1e-6)


@pytest.mark.parametrize("kernel", [False, True])
def test_starts_are_as_good_as_those_of_scikit_learn(kernel):
    X = federation(0, k=6)["c0"]
    space = Mercer(X @ X.T, [len(X)]) if kernel else Points([X])
    ours = [space.to_rows(0, plus_plus(space, 0, 6, np.random.default_rng(i))).min(axis=1).sum() for i in range(40)]
    theirs = [
        euclidean_distances(X, kmeans_plusplus(X, 6, random_state=i)[0], squared=True).min(axis=1).sum()
        for i in range(40)
    ]
    assert np.mean(ours) < 1.05 * np.mean(theirs)
    assert (np.abs(Points([X]).to_rows(0, plus_plus(Points([X]), 0, 6, np.random.default_rng(0)))) < 1e-9).sum() == 6


# ------------------------------------------------------------------------------------------------------- transport


@pytest.mark.parametrize("seed", range(5))
def test_transport_is_the_cheapest_assignment_of_single_rows(seed):
    rng = np.random.default_rng(seed)
    n, k, problems = 24, 5, 4
    rows, columns = (rng.integers(k, size=(problems, n)) for _ in range(2))  # some clusters may be empty
    cost = rng.random((problems, k, k)) * np.array([1e-6, 1, 1, 1e6])[:, None, None]
    a, b = (np.array([shares(h, k) for h in part]) for part in (rows, columns))
    plans = transport(cost, a, b)
    assert (plans >= 0).all()
    assert_allclose(plans.sum(axis=2), a, atol=1e-12)
    assert_allclose(plans.sum(axis=1), b, atol=1e-12)
    for C, G, r, c in zip(cost, plans, rows, columns, strict=True):
        one_by_one = C[np.ix_(r, c)]
        assert_allclose((G * C).sum(), one_by_one[linear_sum_assignment(one_by_one)].sum() / n, rtol=1e-9)


@pytest.mark.parametrize(("marginals", "seed"), [("proportional", 0), ("uniform", 1), ("proportional", 2)])
def test_relations_have_their_marginals(marginals, seed):
    data = federation(seed)
    model = MBC(K, marginals=marginals, n_init=3, random_state=0)
    labels = model.fit_predict(data)
    for (a, b), G in model.relations_.items():
        row = shares(labels[a]) if marginals == "proportional" else np.full(K, 1 / K)
        assert_allclose(G.sum(axis=1), row, atol=1e-9)
        assert_array_equal(G, model.relations_[b, a].T)
    assert len(model.relations_) == 6


def test_equal_clients_are_related_by_a_permutation():
    X = federation(0, m=1)["c0"]
    space = Points([X, X])
    mu = seeds(space, ["a"], K, 0, 0)[0]
    run = alternate(space, np.stack([mu, mu[[2, 0, 1]]]), **SETTINGS | {"marginals": "uniform", "tol": 1e-14})
    assert_allclose(run.plans[0, 1], np.eye(K)[[1, 2, 0]] / K, atol=1e-12)
    assert_allclose(run.mu[0], run.mu[1][[1, 2, 0]], atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- MBC


@pytest.mark.parametrize(("seed", "compare"), [(0, None), (1, "own"), (2, "means")])
def test_without_weight_it_is_k_means(seed, compare):
    data = federation(seed)
    space, start = started(data, seed=seed)
    run = alternate(space, start, **SETTINGS | {"task_weight": 0.0, "tol": 0.0, "compare": compare})
    for t, X in enumerate(data.values()):
        mu, labels, losses = lloyd(X, start[t])
        assert_allclose(run.mu[t], mu, rtol=0, atol=1e-12)
        assert_array_equal(run.labels[t], labels)
        assert len(losses) == 100


def test_one_iteration_by_the_formula():
    data = federation(3, m=2)
    space, start = started(data)
    weight = SETTINGS["task_weight"]
    h = [space.to_rows(t, start[t]).argmin(axis=1) for t in range(2)]
    cost = ((start[1][:, None] - start[0]) ** 2).sum(axis=2)
    G = transport(cost[None], shares(h[1])[None], shares(h[0])[None])[0]  # clusters of client 1 x those of client 0
    means = [
        np.array([X[labels == j].mean(axis=0) for j in range(K)]) for X, labels in zip(data.values(), h, strict=True)
    ]
    mu0 = (means[0] + 2 * weight * (G.T @ start[1]) / shares(h[0])[:, None]) / (1 + 2 * weight)
    mu1 = (means[1] + 2 * weight * (G @ mu0) / shares(h[1])[:, None]) / (1 + 2 * weight)  # sees the new mu0
    run = alternate(space, start, **SETTINGS | {"max_iter": 1})
    assert_allclose(run.mu, [mu0, mu1], atol=1e-12)
    for t in range(2):
        assert_array_equal(run.labels[t], space.to_rows(t, run.mu[t]).argmin(axis=1))


@pytest.mark.parametrize(("seed", "weight"), [(0, 0.1), (1, 1.0), (2, 10.0), (3, 1.0)])
def test_uniform_marginals_never_raise_the_objective(seed, weight):
    data = federation(seed)
    space, start = started(data, seed=seed)
    history = alternate(
        space, start, **SETTINGS | {"marginals": "uniform", "task_weight": weight, "tol": 1e-12}
    ).history
    assert len(history) > 2
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(history))


def test_shares_of_rows_can_raise_the_objective_and_the_best_iterate_is_kept():
    rises = 0
    for seed in range(10):
        space, start = started(federation(seed, skew=0.5), seed=seed)
        run = alternate(space, start, **SETTINGS | {"task_weight": 2.0})
        rises += any(after > before * (1 + 1e-3) for before, after in pairwise(run.history))
        assert run.objective == min(run.history)
    assert rises > 0


def test_a_huge_weight_makes_the_centroids_of_all_clients_one_set():
    model = MBC(K, task_weight=1e6, marginals="uniform", n_init=2, random_state=0).fit(federation(1))
    first, *others = model.cluster_centers_.values()
    for centers in others:
        assert ((centers - first) ** 2).sum(axis=1).max() < 1e-9


@pytest.mark.parametrize("M", [MBC, SMBC])
def test_the_objective_is_what_the_fitted_attributes_say(M):
    data = federation(2)
    model = M(K, task_weight=0.4, n_init=3, random_state=0)
    labels = model.fit_predict(data)
    ids, mu = model.silos_, model.cluster_centers_
    local = np.mean([local_loss(data[cid], mu[cid], labels[cid]) for cid in ids])
    coupling = sum(
        (model.relations_[a, b] * ((mu[a][:, None] - mu[b]) ** 2).sum(axis=2)).sum()
        for i, a in enumerate(ids)
        for b in ids[:i]
    )
    assert_allclose(model.objective_, local + 0.4 * 2 / 6 * coupling, rtol=1e-10)
    assert len(model.history_) == model.n_iter_
    assert model.objective_ in model.history_


def test_more_starts_never_raise_the_objective():
    found = [MBC(K, init="client", n_init=n, random_state=0).fit(federation(4)).objective_ for n in (1, 3, 9)]
    assert found == sorted(found, reverse=True)


def test_every_client_starts_from_its_own_best_k_means():
    """Of many starts for each client by itself; one start for all of them would have to suit all at once."""
    data = federation(4)
    space = Points(list(data.values()))

    def losses(n_init):
        start = own_clusters(space, list(data), K, 0, n_init)
        return [bregman._assigned(space, t, mu).loss for t, mu in enumerate(start)]

    few, many = losses(1), losses(9)
    assert all(b <= a for a, b in zip(few, many, strict=True))
    assert sum(many) < sum(few)
    alone = MBC(K, task_weight=0, n_init=9, random_state=0)
    alone._fit(data, 0)
    assert_allclose(alone.objective_, np.mean(many), rtol=1e-9)


def test_a_run_that_goes_round_in_a_circle_ends(monkeypatch):
    """Plans follow labels and labels follow plans: J rises and falls for ever."""
    rounds = {"n": 0}
    real = bregman.relate

    def relate(space, mu, labels, marginals):
        rounds["n"] += 1
        plans, cost = real(space, mu, labels, marginals)
        return plans, cost + rounds["n"] % 2

    monkeypatch.setattr(bregman, "relate", relate)
    space = Points(list(federation(0).values()))
    start = own_clusters(space, list("abc"), K, 0, 3)
    run = alternate(space, start, **SETTINGS | {"max_iter": 50})
    assert len(run.history) < 20
    assert run.objective == min(run.history)


@pytest.mark.parametrize(("better_by", "kept"), [(1e-13, 0), (-1e-13, 0), (1e-6, 1)])
def test_rounding_does_not_choose_between_starts(monkeypatch, better_by, kept):
    data = federation(0)
    objectives = iter([1.0, 1.0 - better_by])
    real = bregman.alternate
    runs = []

    def alternate(*args, **settings):
        runs.append(replace(real(*args, **settings), objective=next(objectives)))
        return runs[-1]

    monkeypatch.setattr(bregman, "alternate", alternate)
    assert MBC(K, init="client", n_init=2, random_state=0).fit(data).objective_ == runs[kept].objective


def test_clusters_of_all_clients_have_the_numbers_of_the_first():
    rng = np.random.default_rng(0)
    centers, y = 10 * rng.normal(size=(K, 5)), rng.integers(K, size=(4, 50))
    data = {f"c{t}": centers[h] + 20 * t + rng.normal(size=(50, 5)) for t, h in enumerate(y)}  # offset: no matter
    assert adjusted_rand_score(y.ravel(), MBC(K, task_weight=1e-4, random_state=0).fit(data).labels_) == 1


@pytest.mark.parametrize(
    ("M", "divergence", "init"),
    [(MBC, "euclidean", "kmeans"), (MBC, "kl", "union"), (SMBC, "euclidean", "client"), (SMBC, "kl", "kmeans")],
)
def test_sparse_rows_give_what_dense_rows_give(M, divergence, init, monkeypatch):
    data = words(0)
    dense = {cid: X.toarray() for cid, X in data.items()}
    expected = M(K, divergence=divergence, init=init, n_init=3, random_state=0).fit(dense)
    monkeypatch.setattr(sp.csr_array, "toarray", None)
    model = M(K, divergence=divergence, init=init, n_init=3, random_state=0).fit(data)
    assert adjusted_rand_score(model.labels_, expected.labels_) == 1
    assert_allclose(model.objective_, expected.objective_, rtol=1e-8)
    assert_array_equal(np.concatenate(list(model.predict(data).values())), model.labels_)


def test_topics_are_found_by_either_divergence():
    rng = np.random.default_rng(5)
    topics, y = rng.dirichlet(np.full(60, 0.1), size=K), rng.integers(K, size=(3, 60))
    data = {f"c{t}": np.array([rng.multinomial(40, topics[j]) for j in h], float) for t, h in enumerate(y)}
    for divergence in ("euclidean", "kl"):
        assert adjusted_rand_score(y.ravel(), MBC(K, divergence=divergence, random_state=0).fit(data).labels_) > 0.95


def test_an_emptied_cluster_stays_where_it_was():
    space = Points([np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])])
    start = np.array([[[0.0], [50.0]], [[0.0], [1.0]]])
    run = alternate(space, start, **SETTINGS)
    assert run.mu[0, 1, 0] == 50.0
    assert np.isfinite(run.objective)


# ------------------------------------------------------------------------------------------------------ smart rule


@pytest.mark.parametrize(("seed", "weight"), [(0, 0.05), (1, 0.5), (2, 5.0), (3, 0.5)])
def test_no_iteration_leaves_a_client_worse_than_k_means(seed, weight):
    data = federation(seed)
    space, start = started(data, seed=seed)
    for n_iter in (1, 2, 3, 5, 100):
        run = alternate(space, start, **SETTINGS | {"task_weight": weight, "compare": "own", "max_iter": n_iter})
        for t, X in enumerate(data.values()):
            _, _, losses = lloyd(X, start[t], n_iter)
            assert local_loss(X, run.mu[t], run.labels[t]) <= losses[-1] * (1 + 1e-12)


def test_comparing_means_compares_partitions():
    data = federation(0)
    space, start = started(data)
    run = alternate(space, start, **SETTINGS | {"compare": "means"})
    for t, X in enumerate(data.values()):
        means = np.array([X[run.labels[t] == j].mean(axis=0) for j in range(K)])
        assert local_loss(X, means, run.labels[t]) <= lloyd(X, start[t])[2][-1] * (1 + 1e-12)


def test_comparing_means_lets_more_clients_be_coupled():
    coupled = {"own": 0, "means": 0}
    for seed in range(4):
        data = federation(seed)
        space, start = started(data, seed=seed)
        for compare in coupled:
            run = alternate(space, start, **SETTINGS | {"compare": compare})
            for X, mu, h in zip(data.values(), run.mu, run.labels, strict=True):
                coupled[compare] += not np.allclose(mu, [X[h == j].mean(axis=0) for j in range(K)])
    assert coupled["means"] > coupled["own"]


def private_cluster():
    """Two clients with the same clusters, and one that has a cluster of its own far away."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 30)
    common = np.array([[0.0, 0], [10, 0], [0, 10]])
    private = np.array([[0.0, 0], [10, 0], [40, 40]])
    places = {"a": common, "b": common, "c": private}
    return {cid: centers[y] + rng.normal(size=(90, 2)) for cid, centers in places.items()}, y


def test_a_private_cluster_is_pulled_by_mbc_and_left_alone_by_smbc():
    data, y = private_cluster()
    truth = data["c"][y == 2].mean(axis=0)
    moved = {}
    for model in (MBC(3, random_state=0), SMBC(3, compare="own", random_state=0)):
        centers = model.fit(data).cluster_centers_["c"]
        moved[type(model)] = np.linalg.norm(centers - truth, axis=1).min()
    assert moved[MBC] > 5
    assert moved[SMBC] < 1e-9
    assert adjusted_rand_score(SMBC(3, random_state=0).fit_predict(data)["c"], y) == 1  # partitions are compared


# ------------------------------------------------------------------------------------------------------------ SMKC


@pytest.mark.parametrize(
    ("compare", "marginals"), [(None, "proportional"), (None, "uniform"), ("own", "uniform"), ("means", "proportional")]
)
def test_linear_kernel_repeats_the_run_among_rows(compare, marginals):
    data = federation(2)
    whole = np.concatenate(list(data.values()))
    space, start = started(data)
    kernel_space, kernel_start = started(data, Mercer(whole @ whole.T, space.sizes))
    settings = SETTINGS | {"compare": compare, "marginals": marginals}
    run, kernel_run = alternate(space, start, **settings), alternate(kernel_space, kernel_start, **settings)
    assert_allclose(kernel_run.history, run.history, rtol=1e-10)
    for h, kernel_h in zip(run.labels, kernel_run.labels, strict=True):
        assert_array_equal(h, kernel_h)
    coefficients = Mercer.split(kernel_run.mu.reshape(-1, kernel_run.mu.shape[2]))[0]
    assert_allclose(coefficients @ whole, run.mu.reshape(-1, whole.shape[1]), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_uniform_marginals_never_raise_the_kernel_objective(seed):
    data = federation(seed)
    whole = np.concatenate(list(data.values()))
    space, start = started(data, Mercer(rbf_kernel(whole, gamma=0.05), [len(X) for X in data.values()]), seed)
    history = alternate(space, start, **SETTINGS | {"marginals": "uniform", "tol": 1e-12}).history
    assert len(history) > 2
    assert all(after <= before + 1e-12 for before, after in pairwise(history))


def test_products_stay_those_of_the_coefficients():
    data = federation(0)
    kernel = rbf_kernel(np.concatenate(list(data.values())), gamma=0.05)
    space, start = started(data, Mercer(kernel, [len(X) for X in data.values()]))
    for mu in alternate(space, start, **SETTINGS | {"tol": 0.0}).mu:
        coefficients, products = space.split(mu)
        assert_allclose(products, coefficients @ kernel, atol=1e-12)


def test_rings():
    data, y = rings(0)
    model = SMKC(2, bandwidth_scale=0.5, random_state=0).fit(data)
    for found in (model.predict(data), model.predict(rings(1)[0])):
        assert all(adjusted_rand_score(y, h) == 1 for h in found.values())
    assert all(adjusted_rand_score(y, h) < 0.1 for h in MBC(2, random_state=0).fit_predict(data).values())


def test_a_small_ring_is_found_without_spectral_clustering(monkeypatch):
    data, y = rings(0, inner=0.5)
    monkeypatch.setattr(bregman, "spectral_clustering", lambda X, k, **_: (None, np.arange(len(X)) % k))
    model = SMKC(2, bandwidth_scale=0.5, random_state=0).fit(data)
    assert adjusted_rand_score(np.tile(y, 3), model.labels_) == 1


def test_the_kernel_is_a_gaussian_of_the_median_distance(monkeypatch):
    kept = []
    monkeypatch.setattr(bregman, "Mercer", lambda kernel, sizes: kept.append(kernel) or Mercer(kernel, sizes))
    data = federation(0)
    whole = np.concatenate(list(data.values()))
    D = np.sqrt(((whole[:, None] - whole) ** 2).sum(axis=2))
    for scale in (0.5, 2.0):
        model = SMKC(K, bandwidth_scale=scale, n_init=1, random_state=0).fit(data)
        assert_allclose(model.bandwidth_, scale * np.median(D[np.triu_indices_from(D, 1)]))
        assert_allclose(kept[-1], np.exp(-(D**2) / (2 * model.bandwidth_**2)), atol=1e-12)
        assert np.linalg.eigvalsh(kept[-1] + 1e-10 * np.eye(len(whole)))[0] >= 0


def test_nystroems_features_of_all_rows_give_the_exact_answer(monkeypatch):
    data = federation(0, spread=0.3)
    exact = SMKC(K, n_init=3, random_state=0).fit(data)
    monkeypatch.setattr(bregman, "EXACT_UP_TO", 50)
    monkeypatch.setattr(bregman, "N_COMPONENTS", sum(map(len, data.values())))
    mapped = SMKC(K, n_init=3, random_state=0).fit(data)
    assert_allclose(mapped.objective_, exact.objective_, rtol=1e-6)
    assert adjusted_rand_score(mapped.labels_, exact.labels_) == 1
    assert_array_equal(np.concatenate(list(mapped.predict(data).values())), mapped.labels_)
    monkeypatch.setattr(bregman, "N_COMPONENTS", 40)
    assert adjusted_rand_score(SMKC(K, n_init=3, random_state=0).fit(data).labels_, exact.labels_) > 0.95


def test_kernels_with_known_features():
    data = words(0)
    unit = {
        cid: X.toarray() / np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-12)
        for cid, X in data.items()
    }
    auto = SMKC(K, n_init=3, random_state=0).fit(data)
    cosine = SMKC(K, kernel="cosine", n_init=3, random_state=0).fit(data)
    linear = SMKC(K, kernel="linear", n_init=3, random_state=0).fit(unit)
    assert auto.objective_ == cosine.objective_
    assert auto.bandwidth_ is None
    assert_allclose(linear.objective_, cosine.objective_, rtol=1e-10)
    assert SMKC(K, n_init=1, random_state=0).fit(unit).bandwidth_ > 0


def test_one_start_is_spectral_clustering(monkeypatch):
    data = federation(0)
    labels = {cid: np.arange(len(X)) % K for cid, X in data.items()}
    monkeypatch.setattr(bregman, "spectral_clustering", lambda X, k, *, name, **_: (None, labels[name]))
    first = next(SMKC(K)._starts(Points(list(data.values())), data, 0))
    expected = [[X[labels[cid] == j].mean(axis=0) for j in range(K)] for cid, X in data.items()]
    assert_allclose(first, expected, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- face

METHODS = [MBC(K, n_init=2), SMBC(K, n_init=2), SMKC(K, n_init=2), SMKC(K, n_init=2, kernel="cosine")]


@pytest.mark.parametrize("model", METHODS, ids=str)
def test_predict_on_the_training_rows_gives_the_labels(model):
    data = federation(0)
    labels = model.set_params(random_state=0).fit_predict(data)
    again = pickle.loads(pickle.dumps(model)).predict(data)
    for cid in data:
        assert_array_equal(again[cid], labels[cid])


@pytest.mark.parametrize("model", METHODS, ids=str)
def test_the_order_of_clients_and_the_run_do_not_matter(model):
    data = federation(0)
    labels = model.set_params(random_state=3).fit_predict(data)
    again = model.fit_predict(dict(reversed(data.items())))
    for cid in data:
        assert_array_equal(again[cid], labels[cid])


@pytest.mark.parametrize("model", METHODS, ids=str)
def test_single_precision(model):
    data = federation(0)
    double = model.set_params(random_state=0).fit(data)
    expected = double.labels_, double.objective_
    model.fit({cid: X.astype(np.float32) for cid, X in data.items()})
    assert adjusted_rand_score(expected[0], model.labels_) > 0.95
    assert_allclose(model.objective_, expected[1], rtol=1e-2)
    if isinstance(model, MBC):
        assert all(C.dtype == np.float32 for C in model.cluster_centers_.values())


@pytest.mark.parametrize("model", METHODS, ids=str)
def test_one_client_equal_rows_and_as_many_clusters_as_rows(model):
    X = federation(0)["c0"]
    assert model.set_params(random_state=0).fit(X).relations_ == {}
    assert model.fit({"a": np.ones((5, 2)), "b": np.ones((4, 2))}).objective_ == pytest.approx(0, abs=1e-12)
    assert len(np.unique(model.fit({"a": X[:K], "b": X[K : 2 * K]}).labels_)) == K
    assert_array_equal(clone(model).set_params(n_clusters=1).fit({"a": X[:1], "b": X[:2]}).labels_, [0, 0, 0])


@pytest.mark.parametrize(
    ("M", "wrong"),
    [
        (MBC, {"task_weight": -1}),
        (MBC, {"task_weight": "much"}),
        (MBC, {"divergence": "cosine"}),
        (MBC, {"marginals": "equal"}),
        (MBC, {"init": "random"}),
        (MBC, {"n_init": 0}),
        (MBC, {"max_iter": 2.5}),
        (MBC, {"tol": np.inf}),
        (SMBC, {"compare": "both"}),
        (SMKC, {"compare": "both"}),
        (SMKC, {"kernel": "poly"}),
        (SMKC, {"bandwidth_scale": 0}),
    ],
)
def test_wrong_values_are_named(M, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name}.*{value!r}"):
        M(K, **wrong).fit(federation(0))


def test_kl_takes_no_negative_entries():
    with pytest.raises(ValueError, match="'c0'"):
        MBC(K, divergence="kl").fit(federation(0))
    model = MBC(K, divergence="kl", n_init=1, random_state=0).fit(words(0))
    with pytest.raises(ValueError, match=r"\b0\b"):
        model.predict({"c0": -np.ones((1, 40))})
