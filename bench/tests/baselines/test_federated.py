"""Fed-kmeans, FedSpectral+ and SFOMVC: what they find, and what leaves a client on the way."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fmtc.kernels.couplings import schatten_p
from fmtc.metrics import clustering_accuracy
from fmtc.protocol.base import message_bytes, nbytes, pack
from fmtc.runtime.local import LocalTransport
from fmtc_bench.baselines import SFOMVC, FedKMeans, FedSpectral, sfomvc
from fmtc_bench.baselines.anchors import Anchors
from fmtc_bench.baselines.base import kmeans, unit_rows
from fmtc_bench.baselines.fed_kmeans import merge_centers
from fmtc_bench.baselines.sfomvc import (
    Assignment,
    FirstAnswer,
    ProjectionClient,
    ProjectionServer,
    SFOMVCSettings,
    Ties,
    first_stack,
    largest_value,
    prox,
)

HORIZONTAL = [FedKMeans, FedSpectral, SFOMVC]
K, D = 3, 8
SIZES = {"north": 81, "south": 66, "west": 93}  # none is a number of anchors, centres or columns


def blobs(sizes=SIZES, k=K, d=D, *, distance=6.0, offset=2.0, seed=0):
    """Rows of k groups in each client, all shifted by the client's own offset, and the group of each row."""
    rng = np.random.default_rng(seed)
    centers = distance * unit_rows(rng.normal(size=(k, d)))
    X, y = {}, {}
    for cid, n in sizes.items():
        y[cid] = rng.permutation(np.arange(n) % k)
        X[cid] = centers[y[cid]] + rng.normal(size=(n, d)) + offset * unit_rows(rng.normal(size=(1, d)))
    return X, y


X, TRUTH = blobs()


def accuracy(truth, found):
    return np.mean([clustering_accuracy(truth[cid], found[cid]) for cid in truth])


@pytest.fixture
def recorded(monkeypatch):
    """All messages of a fit, as (client, message, answer), and a hook to look at the clients after each exchange."""
    seen, hooks = [], []
    exchange = LocalTransport.exchange

    def listen(self, messages):
        replies = exchange(self, messages)
        seen.extend((cid, messages[cid], answer) for cid, answer in replies.answers.items())
        for hook in hooks:
            hook(self.clients)
        return replies

    monkeypatch.setattr(LocalTransport, "exchange", listen)
    return type("Recorded", (), {"messages": seen, "hooks": hooks})


# -------------------------------------------------------------------------------------------------------- all


@parametrize_with_checks([FedKMeans(3, n_rounds=2, n_init=2, random_state=0)])  # one for all: they share `Baseline`
def test_scikit_learn_has_no_complaint(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", HORIZONTAL)
def test_blobs_are_found_and_new_rows_find_theirs(method):
    model = method(K, random_state=0)
    assert accuracy(TRUTH, model.fit_predict(X)) > 0.97
    new, truth = blobs(dict.fromkeys(SIZES, 50))
    shift = {cid: X[cid].mean(axis=0) - new[cid].mean(axis=0) for cid in X}  # other rows, the same offsets
    assert accuracy(truth, model.predict({cid: new[cid] + shift[cid] for cid in X})) > 0.97


@pytest.mark.parametrize("method", HORIZONTAL)
def test_clusters_have_the_same_numbers_everywhere(method):
    labels = method(K, random_state=0).fit_predict(X)
    assert clustering_accuracy(np.concatenate(list(TRUTH.values())), np.concatenate(list(labels.values()))) > 0.97


@pytest.mark.parametrize("method", HORIZONTAL)
def test_the_seed_decides_and_the_order_of_clients_does_not(method):
    first = method(K, random_state=0).fit(X)
    labels = first.fit_predict(X)
    again = method(K, random_state=0).fit_predict(dict(reversed(X.items())))
    for cid in X:
        assert_array_equal(again[cid], labels[cid])
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X)).repeat(list(SIZES.values()))
    stacked, clients = np.vstack(list(X.values())), np.repeat(list(X), list(SIZES.values()))
    order = np.argsort(order, kind="stable")  # clients in another order, the rows of each as they were
    mixed = method(K, random_state=0).fit(stacked[order], silos=clients[order])
    assert_array_equal(mixed.labels_, np.concatenate(list(labels.values()))[order])
    assert (mixed.bytes_up_, mixed.bytes_down_, mixed.n_rounds_) == (
        first.bytes_up_, first.bytes_down_, first.n_rounds_,
    )  # fmt: skip


@pytest.mark.parametrize("method", HORIZONTAL)
def test_sparse_rows_stay_sparse_and_single_precision_works(method, monkeypatch):
    positive = {cid: np.where(Xt > 2, Xt, 0) for cid, Xt in X.items()}
    dense = method(K, random_state=0).fit_predict(positive)
    sparse = {cid: sp.csr_array(Xt) for cid, Xt in positive.items()}
    with monkeypatch.context() as patch:
        toarray = sp.csr_array.toarray

        def small(self, *args, **kwargs):
            assert self.shape[0] not in SIZES.values()
            return toarray(self, *args, **kwargs)

        patch.setattr(sp.csr_array, "toarray", small)
        model = method(K, random_state=0)
        found = model.fit_predict(sparse)
        assert model.predict(sparse).keys() == X.keys()
    single = method(K, random_state=0).fit_predict({cid: Xt.astype(np.float32) for cid, Xt in positive.items()})
    for cid in X:
        assert adjusted_rand_score(found[cid], dense[cid]) > 0.9
        assert adjusted_rand_score(single[cid], dense[cid]) > 0.9


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        (FedKMeans(K, n_rounds=0), "n_rounds", 0),
        (FedKMeans(K, local_iters=1.5), "local_iters", 1.5),
        (FedKMeans(K, min_count=True), "min_count", True),
        (FedKMeans(K, personalised="yes"), "personalised", "yes"),
        (FedKMeans(K, tol=-1), "tol", -1),
        (FedSpectral(K, n_anchors="many"), "n_anchors", "many"),
        (FedSpectral(K, n_nearest=0), "n_nearest", 0),
        (FedSpectral(K, bandwidth_scale=0), "bandwidth_scale", 0),
        (SFOMVC(K, beta=np.nan), "beta", np.nan),
        (SFOMVC(K, schatten_p=1.5), "schatten_p", 1.5),
        (SFOMVC(K, growth=0.9), "growth", 0.9),
        (SFOMVC(K, start="warm"), "start", "warm"),
        (SFOMVC(K, units="metres"), "units", "metres"),
    ],
)
def test_wrong_settings_are_named(model, name, value):
    with pytest.raises(ValueError, match=rf"{name}.*{value!r}"):
        model.fit(X)


def test_too_few_rows_keep_their_class_of_error():
    with pytest.raises(ValueError, match=r"'b'.*\b2\b.*\b3\b"):
        FedKMeans(K).fit({"a": X["north"], "b": X["south"][:2]})


def test_defaults():
    defaults = {name: p.default for name, p in inspect.signature(FedKMeans).parameters.items()}
    assert defaults == {
        "n_clusters": 8, "n_rounds": 10, "local_iters": 1, "personalised": False, "min_count": 2, "n_init": 10,
        "tol": 1e-6, "random_state": None,
    }  # fmt: skip
    for method in (FedKMeans, FedSpectral, SFOMVC):
        kinds = [p.kind for p in inspect.signature(method).parameters.values()]
        assert set(kinds[1:]) == {inspect.Parameter.KEYWORD_ONLY}
        assert clone(method(4, n_init=3)).get_params()["n_init"] == 3


# -------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "model",
    [
        FedKMeans(K, random_state=0),
        FedKMeans(20, random_state=0),  # many small clusters
        FedKMeans(K, personalised=True, random_state=0),
        FedSpectral(K, random_state=0),
        SFOMVC(K, random_state=0),
        SFOMVC(K, start="global", random_state=0),
    ],
    ids=repr,
)
def test_no_row_leaves_a_client_and_no_count_below_two(model, recorded):
    model.fit(X)
    for cid, _, answer in recorded.messages:
        for name, value in pack(answer).items():
            assert SIZES[cid] not in np.shape(value)
            if name == "counts":
                assert value.min() >= 2
            if name == "centers":  # none is a row
                assert np.abs(value[:, None] - X[cid][None, :, : value.shape[1]]).max(axis=2).min() > 1e-6
    assert model.n_rounds_ == len(recorded.messages) / len(X)
    assert model.bytes_up_ == sum(nbytes(answer) for _, _, answer in recorded.messages)
    assert model.bytes_down_ == sum(message_bytes(message) for _, message, _ in recorded.messages)


def header(phase):
    return len(phase) + 16


def test_bytes_of_federated_kmeans():
    model = FedKMeans(K, n_rounds=4, tol=0, random_state=0).fit(X)
    m, centers = len(X), 8 * K * D
    assert model.n_iter_ == 4
    assert model.bytes_up_ <= m * 5 * (centers + 8 * K)
    assert model.bytes_up_ % (8 * D + 8) == 0  # a centre and its count
    assert model.bytes_down_ == m * (4 * (header("round") + centers) + header("start") + header("finish") + centers)


def test_bytes_of_fed_spectral(recorded):
    model = FedSpectral(K, random_state=0).fit(X)
    m, a = len(X), len(model.anchors_)
    assert 10 * K < a <= sum(len(rows) // 2 for rows in X.values()) < 50 * K
    sent = {}
    for _, message, answer in recorded.messages:
        sent[message.phase] = sent.get(message.phase, 0) + nbytes(answer)
    assert sent["centers"] <= m * max(2 * K, -(-2 * a // m)) * (8 * D + 8)
    assert sent["mass"] == m * a * 8
    assert sent["round"] == model.n_iter_ * m * a * K * 8


def test_bytes_of_sfomvc(recorded):
    model = SFOMVC(K, random_state=0).fit(X)
    m, block = len(X), 8 * len(model.anchors_) * K
    later = [(message, up) for _, message, up in recorded.messages if message.phase in ("start", "round", "finish")]
    assert sum(nbytes(up) for _, up in later) == m * (block + model.n_iter_ * (block + 8))
    assert sum(message_bytes(message) for message, _ in later) == m * (
        header("start") + 8 * K + model.n_iter_ * (header("round") + block + 8) + header("finish")
    )


# ------------------------------------------------------------------------------------------------ Fed-kmeans


def test_one_client_that_has_converged_gets_its_own_centres_back():
    rows = X["north"]
    model = FedKMeans(K, local_iters=100, n_rounds=1, random_state=0).fit(rows)
    own = np.stack([rows[model.labels_ == j].mean(axis=0) for j in range(K)])
    assert_allclose(model.cluster_centers_, own, rtol=1e-10)


def test_the_server_clusters_centres_as_if_each_came_as_often_as_it_has_rows(rng):
    centers, counts = rng.normal(size=(30, 4)), rng.integers(2, 9, size=30)
    _, cost = merge_centers(centers, counts, 3, seed=0, n_init=30)
    central = KMeans(3, n_init=30, random_state=1).fit(centers.repeat(counts, axis=0))
    assert cost == pytest.approx(central.inertia_, rel=1e-9)


def test_clients_with_other_clusters_each_find_all(rng):
    centers = 20 * np.eye(6)
    groups = {"a": [0, 1, 2], "b": [2, 3], "c": [3, 4, 5], "d": [0, 5]}
    truth = {cid: np.repeat(own, 30) for cid, own in groups.items()}
    data = {cid: centers[y] + rng.normal(size=(len(y), 6)) for cid, y in truth.items()}
    model = FedKMeans(6, random_state=0)
    labels = model.fit_predict(data)
    assert adjusted_rand_score(np.concatenate(list(truth.values())), np.concatenate(list(labels.values()))) == 1
    distance = np.linalg.norm(model.cluster_centers_[:, None] - centers, axis=2)
    assert_array_equal(np.sort(distance.argmin(axis=1)), np.arange(6))
    assert distance.min(axis=1).max() < 1


def test_sixteen_blobs_as_well_as_all_rows_in_one_place(rng):
    truth = rng.integers(16, size=1600)
    rows = 5 * np.stack([truth // 4, truth % 4], axis=1) + rng.normal(size=(1600, 2))
    model = FedKMeans(16, random_state=0).fit(rows, silos=rng.integers(5, size=1600).astype(str))
    central = KMeans(16, n_init=10, random_state=0).fit(rows)
    assert adjusted_rand_score(truth, model.labels_) > adjusted_rand_score(truth, central.labels_) - 0.02


def test_personalised_centres_are_the_means_of_the_clients_own_rows():
    model = FedKMeans(K, personalised=True, local_iters=100, random_state=0)
    labels = model.fit_predict(X)
    common = FedKMeans(K, local_iters=100, random_state=0).fit(X)
    assert_allclose(model.cluster_centers_, common.cluster_centers_)
    for cid, rows in X.items():
        own = model._models[cid]
        for center, number in zip(own.centers, own.numbers, strict=True):
            assert_allclose(center, rows[labels[cid] == number].mean(axis=0), rtol=1e-8)


def test_history_is_the_servers_objective_and_a_still_centre_ends_it():
    model = FedKMeans(K, random_state=0).fit(X)
    assert 0 < model.n_iter_ < 10
    assert len(model.history_) == model.n_iter_ + 1
    assert model.history_[-1] == pytest.approx(model.history_[-2], rel=1e-9)


def test_rows_as_many_as_clusters_have_no_centre_to_send():
    with pytest.raises(ValueError, match="min_count"):
        FedKMeans(3, random_state=0).fit({"a": np.eye(3), "b": 2 * np.eye(3)})
    assert len(set(FedKMeans(3, min_count=1, random_state=0).fit_predict({"a": np.eye(3)})["a"])) == 3


# ---------------------------------------------------------------------------------------------- FedSpectral+


def central_embedding(model, data):
    """Left singular vectors and values of B diag(lam)^-1/2 over all rows, and B."""
    B = sp.vstack([model._models[cid].anchors.weights(data[cid]) for cid in sorted(data)]).toarray()
    mass = B.sum(axis=0)
    U, s, _ = np.linalg.svd(B[:, mass > 0] / np.sqrt(mass[mass > 0]), full_matrices=False)
    return U, s, B


def test_weights_of_anchors_sum_to_one_and_far_rows_keep_theirs(rng):
    anchors = Anchors(rng.normal(size=(12, 3)), 4, 0.5)
    rows = np.vstack([rng.normal(size=(20, 3)), [[1e4, 0, 0]]])
    B = anchors.weights(rows)
    assert_allclose(B.sum(axis=1), 1)
    assert np.diff(B.indptr).max() == 4
    distance = np.linalg.norm(rows[:20, None] - anchors.points, axis=2)
    direct = np.exp(-0.5 * (distance / 0.5) ** 2) * (distance <= np.sort(distance, axis=1)[:, 3:4])
    assert_allclose(B[:20].toarray(), direct / direct.sum(axis=1, keepdims=True), atol=1e-10)


def test_federated_subspace_is_the_central_one():
    data, _ = blobs(distance=3.0)
    model = FedSpectral(K, tol=1e-12, max_iter=2000, random_state=0).fit(data)
    U, s, B = central_embedding(model, data)
    assert s[K - 1] < 0.98  # not parts without a link, where all values are 1
    ours = B @ model._models["north"].map
    assert_allclose(ours @ ours.T, U[:, :K] @ U[:, :K].T, atol=1e-8)
    assert_allclose(model.eigenvalues_, s[:K] ** 2, atol=1e-10)
    assert model.eigenvalues_[0] == pytest.approx(1, abs=1e-10)
    assert model.n_iter_ == len(model.history_) < 2000


def test_one_client_is_landmark_spectral_clustering():
    data = {"all": np.vstack(list(X.values()))}
    model = FedSpectral(K, tol=1e-10, random_state=0)
    found = model.fit_predict(data)["all"]
    U, _, _ = central_embedding(model, data)
    _, labels = kmeans(unit_rows(U[:, :K]), K, 0)
    assert adjusted_rand_score(found, labels) > 0.99


def test_fed_spectral_sees_rings_where_kmeans_does_not(rng):
    truth = {cid: np.arange(150) % 2 for cid in "ab"}
    angle = {cid: rng.uniform(0, 2 * np.pi, 150) for cid in "ab"}
    data = {
        cid: (1 + 3 * truth[cid])[:, None] * np.stack([np.cos(angle[cid]), np.sin(angle[cid])], axis=1)
        + 0.1 * rng.normal(size=(150, 2))
        for cid in "ab"
    }
    assert accuracy(truth, FedSpectral(2, random_state=0).fit_predict(data)) > 0.95
    assert accuracy(truth, FedKMeans(2, random_state=0).fit_predict(data)) < 0.8


def test_predict_of_the_rows_is_their_labels():
    for model in (FedKMeans(K, random_state=0), FedSpectral(K, random_state=0)):
        labels = model.fit_predict(X)
        for cid, found in model.predict(X).items():
            assert_array_equal(found, labels[cid])


def test_fewer_centres_than_anchors_are_all_anchors():
    model = FedSpectral(K, n_anchors=500, random_state=0).fit({"a": X["north"][:21], "b": X["south"][:24]})
    assert len(model.anchors_) <= 21 // 2 + 24 // 2
    assert len(np.unique(model.anchors_, axis=0)) == len(model.anchors_)


# ---------------------------------------------------------------------------------------------------- SFOMVC


@pytest.mark.parametrize(("start", "seed"), [("local", 0), ("global", 1), ("local", 2)])
def test_sfomvc_finds_blobs_of_clients_with_offsets(start, seed):
    data, truth = blobs(seed=seed)
    model = SFOMVC(K, start=start, random_state=0)
    assert accuracy(truth, model.fit_predict(data)) > 0.9


def test_a_local_start_does_not_mind_large_offsets():
    data, truth = blobs(offset=20.0)
    assert accuracy(truth, SFOMVC(K, random_state=0).fit_predict(data)) > 0.93


def test_residuals_fall_and_growth_is_what_closes_them():
    data, _ = blobs(distance=3.5, seed=3)
    model = SFOMVC(K, random_state=0).fit(data)
    last = model.history_[-1]
    assert last.consensus < 1e-3
    assert last.indicator < 1e-2
    assert model.n_iter_ == len(model.history_) < 100
    assert last.indicator < model.history_[0].indicator
    assert SFOMVC(K, growth=1.0, random_state=0).fit(data).n_iter_ > model.n_iter_


def test_f_is_orthonormal_after_every_step(recorded):
    looked = []

    def look(clients):
        parts = [client.part for client in clients.values() if client.P is not None]
        looked.extend(np.abs(part.F.T @ part.F - np.eye(K)).max() for part in parts if part.dual.any())

    recorded.hooks.append(look)
    SFOMVC(K, random_state=0).fit(blobs(distance=3.5)[0])
    assert len(looked) > 20
    assert max(looked) < 1e-10


def test_steps_are_minimisers(rng):
    """No neighbour of P lowers the client's smooth objective, none of F on the manifold the augmented one."""
    B = Anchors(rng.normal(size=(10, 4)), 3, 1.0).weights(rng.normal(size=(50, 4)))
    ties = Ties.of(B)
    before = Assignment.of(ties, np.arange(50) % 3, 3, 0.1)
    before = replace(before, dual=0.1 * rng.normal(size=(50, 3)))
    anchor, (rho, mu, gamma, q) = rng.normal(size=(10, 3)), (0.7, 1.3, 0.2, 1.0)
    after = before.step(ties, anchor, rho=rho, mu=mu, gamma=gamma, q=q)
    theta = q / 2 * (np.square(before.P).sum(axis=1) + 1e-8) ** ((q - 2) / 2)

    def cost_of_p(P):
        misfit = np.square(ties.B @ P - before.F).sum()
        return misfit + gamma * theta @ np.square(P).sum(axis=1) + rho / 2 * np.square(P - anchor).sum()

    def cost_of_f(F):
        misfit = np.square(ties.B @ after.P - F).sum()
        return misfit + (before.dual * (F - before.N)).sum() + mu / 2 * np.square(F - before.N).sum()

    def cost_of_n(N):
        return (before.dual * (after.F - N)).sum() + mu / 2 * np.square(after.F - N).sum()

    for size in (1e-3, 1e-1, 1):
        for _ in range(5):
            assert cost_of_p(after.P) <= cost_of_p(after.P + size * rng.normal(size=(10, 3)))
            U, _, Vh = np.linalg.svd(after.F + size * rng.normal(size=(50, 3)), full_matrices=False)
            assert cost_of_f(after.F) <= cost_of_f(U @ Vh) + 1e-12
            assert cost_of_n(after.N) <= cost_of_n(np.maximum(after.N + size * rng.normal(size=(50, 3)), 0)) + 1e-12
    assert_allclose(after.dual, before.dual + mu * (after.F - after.N))


def test_the_fourier_transform_runs_along_clusters(rng):
    T = rng.normal(size=(7, 3, 4))  # anchors, clusters, clients
    turned = T.transpose(0, 2, 1)

    def cost(Z):
        return 0.8 * schatten_p(Z.transpose(0, 2, 1), 1.0) + 0.5 * np.square(Z - T).sum()

    Z = prox(T, 0.8, 1.0)
    assert all(cost(Z) <= cost(Z + s * rng.normal(size=T.shape)) + 1e-10 for s in (1e-3, 1e-1, 1))
    slices = np.fft.fft(turned, axis=2)
    for f in range(3):
        U, s, Vh = np.linalg.svd(slices[:, :, f], full_matrices=False)
        slices[:, :, f] = (U * np.maximum(s - 0.8, 0)) @ Vh
    assert_allclose(Z, np.fft.ifft(slices, axis=2).real.transpose(0, 2, 1), atol=1e-12)
    order = rng.permutation(4)
    assert_allclose(prox(T[:, :, order], 0.8, 1.0), Z[:, :, order], atol=1e-12)  # any order of clients


def after_rounds(clients, settings, rounds=6):
    """Clients after some rounds among themselves, from clusters that keep their numbers."""
    phase = sfomvc.METHOD.loop
    first = {cid: FirstAnswer(P=client.P) for cid, client in clients.items()}
    server = first_stack(ProjectionServer(tuple(clients)), first, settings, None)
    for number in range(1, rounds + 1):
        asks = phase.asks(server, settings)
        replies = {cid: phase.reply(client, asks[cid], settings, number) for cid, client in clients.items()}
        clients = {cid: client for cid, (client, _) in replies.items()}
        server, _ = phase.reduce(server, {cid: answer for cid, (_, answer) in replies.items()}, settings)
    return clients


@pytest.mark.parametrize(("beta", "alone"), [(0.0, True), (0.5, False)])
def test_without_the_tensor_norm_clients_go_their_own_ways(rng, beta, alone):
    data, _ = blobs(distance=3.5)
    settings = SFOMVCSettings(K, beta=beta)
    anchors = Anchors(2 * rng.normal(size=(10, D)), 3, 1.0)
    clients = {}
    for cid, rows in data.items():
        ties = Ties.of(anchors.weights(rows))
        clients[cid] = ProjectionClient(cid, rows, ties=ties).moved_to(
            Assignment.of(ties, kmeans(rows, K, 0)[1], K, settings.gamma)
        )
    together = after_rounds(clients, settings)
    for cid, client in clients.items():
        own = after_rounds({cid: client}, settings)[cid]
        assert np.allclose(own.P, together[cid].P, rtol=0, atol=1e-10) == alone


def test_relative_units_let_rows_leave_the_clusters_of_the_start():
    """Absolute ones hold them there: a start that is half wrong stays so."""
    data, _ = blobs(distance=4.0)
    anchors = Anchors(np.vstack([rows[:10] for rows in data.values()]), 3, 1.0)
    left = {}
    for units, settings in {
        "relative": SFOMVCSettings(K), "absolute": SFOMVCSettings(K, units="absolute", beta=0.1, mu=1.0),
    }.items():  # fmt: skip
        clients, wrong = {}, {}
        for cid, rows in data.items():
            ties, start = Ties.of(anchors.weights(rows)), kmeans(rows, K, 0)[1]
            wrong[cid] = np.where(np.arange(len(rows)) % 4 == 0, (start + 1) % K, start)
            part = Assignment.of(ties, wrong[cid], K, settings.gamma)
            clients[cid] = ProjectionClient(cid, rows, ties=ties).moved_to(part)
        after = after_rounds(clients, settings, 30)
        left[units] = np.mean([np.mean(after[cid].part.score.argmax(axis=1) != wrong[cid]) for cid in data])
    assert left["relative"] > 0.15
    assert left["absolute"] < left["relative"]


def test_relative_units_do_not_depend_on_the_size_of_a_stack(rng):
    T = rng.normal(size=(7, 3, 4))
    for p in (1.0, 0.5):
        unit, larger = (largest_value(c * T) ** (2 - p) for c in (1, 10))
        assert_allclose(prox(10 * T, 0.3 * larger, p), 10 * prox(T, 0.3 * unit, p), rtol=1e-9, atol=1e-9)
    assert np.abs(prox(T, 1.001 * largest_value(T), 1.0)).max() < 1e-12
    assert np.abs(prox(T, 0.999 * largest_value(T), 1.0)).max() > 1e-6
