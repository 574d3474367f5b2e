import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels.graph import build_graph
from fmtc.metrics import clustering_accuracy
from fmtc.protocol.base import Nothing
from fmtc.runtime.local import LocalTransport
from fmtc_bench.baselines import MTSC, SEC, FedMTSC, StSC, mtsc
from fmtc_bench.baselines.base import SpectralGraph
from fmtc_bench.baselines.mtsc import EPS, bottom_eigenvectors


def orthogonal(rng, k):
    return np.linalg.qr(rng.normal(size=(k, k)))[0]


@pytest.fixture
def tall(make_federation):
    """More rows than features."""
    return make_federation(m=3, n=(60, 50, 70), d=6)


@pytest.fixture
def wide(make_federation):
    """Fewer rows than features."""
    return make_federation(m=3, n=(40, 30, 50), d=90, distance=9.0)


@pytest.fixture(params=["tall", "wide"])
def data(request):
    return request.getfixturevalue(request.param)


def literal_objective(data, model, rotate=None, eps=EPS):
    """The objective in the paper's units from what a fitted model shows."""
    total, stack = 0.0, []
    for cid, X in data.items():
        F, W, b = model.embedding_[cid], model.projections_[cid], model.intercepts_[cid]
        if rotate is not None:
            F, W, b = F @ rotate[cid], W @ rotate[cid], b @ rotate[cid]
        L = build_graph(X, model.n_neighbors).laplacian.toarray()
        total += np.trace(F.T @ L @ F) + model.alpha * np.linalg.norm(X @ W + b - F) ** 2
        stack.append(W)
    rows = np.linalg.norm(np.hstack(stack), axis=1)
    return total + model.gamma * ((rows**2 + eps) ** (model.row_power / 2)).sum()


def assert_same_bytes(one, other):
    assert one.history_ == other.history_
    assert_array_equal(one.labels_, other.labels_)
    for name in ("embedding_", "projections_", "intercepts_", "cluster_centers_"):
        for cid, array in getattr(one, name).items():
            assert array.tobytes() == getattr(other, name)[cid].tobytes()


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0),
        ("gamma", np.inf),
        ("row_power", 2.5),
        ("units", "metric"),
        ("n_neighbors", "many"),
        ("bandwidth_scale", -1.0),
        ("nonmutual_weight", 1.5),
        ("max_iter", 0),
        ("tol", -1e-3),
        ("n_init", True),
    ],
)
def test_a_bad_value_is_named(tall, name, value):
    with pytest.raises(ValueError, match=rf"{name}.*{value!r}"):
        MTSC(3, **{name: value}).fit(tall)


# ----------------------------------------------------------------------------------------------------- the objective


@pytest.mark.parametrize(("row_power", "units"), [(0.5, "relative"), (1.0, "absolute"), (1.5, "relative")])
def test_the_objective_never_rises(data, row_power, units):
    model = MTSC(3, row_power=row_power, units=units, tol=0, max_iter=25, n_init=1, random_state=0).fit(data)
    assert model.n_iter_ == len(model.history_) >= 3  # then rounding decides when two values are equal
    assert (np.diff(model.history_) <= 1e-10 * model.history_[0]).all()
    assert model.history_[-1] < model.history_[0] * (1 - 1e-5)


@pytest.mark.parametrize(("row_power", "iterations"), [(0.5, 4), (1.0, 1), (1.5, 4), (2.0, 1)])
def test_history_is_the_objective_as_it_stands(data, row_power, iterations):
    model = MTSC(3, alpha=0.7, gamma=0.3, row_power=row_power, units="absolute", tol=0, max_iter=iterations, n_init=1)
    model.fit(data)
    assert_allclose(model.history_[-1], literal_objective(data, model), rtol=1e-10)


def test_a_rotation_of_each_client_is_free(rng, wide):
    model = MTSC(3, gamma=0.3, units="absolute", max_iter=4, n_init=1).fit(wide)
    turns = {cid: orthogonal(rng, 3) for cid in wide}
    assert_allclose(literal_objective(wide, model, turns), model.history_[-1], rtol=1e-10)


def test_it_ends_where_no_change_of_a_map_helps(rng, tall):
    model = MTSC(3, gamma=0.1, row_power=1.5, units="absolute", tol=0, max_iter=200, n_init=1).fit(tall)
    least = literal_objective(tall, model)
    for size in (1e-4, 1e-2):
        for _ in range(10):
            moved = {cid: W + size * rng.normal(size=W.shape) for cid, W in model.projections_.items()}
            other = MTSC(3, gamma=0.1, row_power=1.5, units="absolute", n_neighbors="auto")
            other.embedding_, other.projections_, other.intercepts_ = model.embedding_, moved, model.intercepts_
            assert literal_objective(tall, other) >= least - 1e-9


def test_it_stops_by_the_tolerance(tall):
    model = MTSC(3, tol=1e-3, n_init=1).fit(tall)
    assert 1 < model.n_iter_ < 50
    assert abs(model.history_[-2] - model.history_[-1]) <= 1e-3 * model.history_[-1]
    assert MTSC(3, tol=0, max_iter=2, n_init=1).fit(tall).n_iter_ == 2


# ----------------------------------------------------------------------------------------------- what it is made of


@pytest.mark.parametrize("shape", [(60, 6), (40, 90)])
def test_p_2_and_one_client_is_spectral_embedded_clustering(rng, shape):
    X, alpha, gamma, k = rng.normal(size=shape), 0.8, 2.0, 3
    n, d = shape
    H = np.eye(n) - 1 / n
    Q = X.T @ H @ X + gamma / alpha * np.eye(d)
    M = build_graph(X).laplacian.toarray() + alpha * (H - H @ X @ np.linalg.solve(Q, X.T @ H))
    F = np.linalg.eigh(M)[1][:, :k]
    model = MTSC(k, alpha=alpha, gamma=gamma, row_power=2, units="absolute", random_state=0).fit(X)
    assert model.n_iter_ == 1
    ours, W = model.embedding_["all"], model.projections_["all"]
    assert_allclose(ours @ ours.T, F @ F.T, atol=1e-8)
    assert_allclose(W, np.linalg.solve(Q, X.T @ H @ ours), atol=1e-10)
    assert_allclose(model.intercepts_["all"], (ours - X @ W).mean(axis=0), atol=1e-12)
    assert_same_bytes(SEC(k, alpha=alpha, gamma=gamma, units="absolute", random_state=0).fit(X), model)


def test_with_p_2_every_client_is_alone(data):
    together = SEC(3, random_state=0).fit(data)
    assert_same_bytes(MTSC(3, row_power=2, random_state=0).fit(data), together)
    for cid, X in data.items():
        alone = SEC(3, random_state=0).fit({cid: X})
        assert_array_equal(together.projections_[cid], alone.projections_[cid])
        assert_array_equal(together.predict({cid: X})[cid], alone.predict(X))


def test_with_p_below_2_the_others_count(data):
    first = next(iter(data))
    together, alone = (MTSC(3, n_init=1).fit(part) for part in (data, {first: data[first]}))
    assert np.abs(together.projections_[first] - alone.projections_[first]).max() > 1e-3


@pytest.mark.parametrize("row_power", [1.0, 2.0])
def test_without_alpha_it_is_spectral_clustering(rng, row_power):
    X = 4.0 * (np.arange(60) % 3)[:, None] + rng.normal(size=(60, 5))
    F = MTSC(3, alpha=1e-8, row_power=row_power, max_iter=5, random_state=0).fit(X).embedding_["all"]
    E = StSC(3, random_state=0).fit(X)._models["all"].F
    assert_allclose(F @ F.T, E @ E.T, atol=1e-6)


def test_the_graph_is_the_one_asked_for(tall):
    model = SEC(3, alpha=1e-9, n_neighbors=4, bandwidth_scale=0.5, nonmutual_weight=0.3, random_state=0).fit(tall)
    for cid, X in tall.items():
        L = SpectralGraph.of(X, 4, 0.5, 0.3).graph.laplacian.toarray()
        assert_allclose(
            model.embedding_[cid].T @ L @ model.embedding_[cid], np.diag(np.linalg.eigvalsh(L)[:3]), atol=1e-6
        )


# --------------------------------------------------------------------------------------------------- relative units


def test_relative_units_do_not_see_the_units_of_the_rows(data):
    model = MTSC(3, max_iter=8, random_state=0).fit(data)
    factors = dict(zip(data, (1e-3, 1.0, 5e4), strict=True))
    other = MTSC(3, max_iter=8, random_state=0).fit({cid: factors[cid] * X for cid, X in data.items()})
    assert_allclose(other.history_, model.history_, rtol=1e-8)
    assert_array_equal(other.labels_, model.labels_)
    for cid in data:
        assert_allclose(factors[cid] * other.projections_[cid], model.projections_[cid], atol=1e-6)


def test_relative_units_do_not_see_features_that_never_vary(data):
    model = MTSC(3, max_iter=8, random_state=0).fit(data)
    more = {cid: np.hstack([X, np.ones((len(X), 40))]) for cid, X in data.items()}
    other = MTSC(3, max_iter=8, random_state=0).fit(more)
    assert_array_equal(other.labels_, model.labels_)
    assert_allclose(other.feature_weights_[:-40], model.feature_weights_, atol=1e-6)
    assert_allclose(other.feature_weights_[-40:], 0, atol=1e-8)


def test_first_iteration_is_the_same_for_every_power(wide):
    first = [MTSC(3, row_power=p, max_iter=1, random_state=0).fit(wide).projections_["a"] for p in (0.5, 1.0, 2.0)]
    assert_array_equal(first[0], first[1])
    assert_array_equal(first[0], first[2])


def test_equal_rows_in_a_client_do_no_harm(tall):
    data = {**tall, "flat": np.full((20, 6), 0.1)}
    model = MTSC(3, random_state=0).fit(data)
    assert np.isfinite(model.history_).all()
    assert_allclose(model.projections_["flat"], 0, atol=1e-12)


# -------------------------------------------------------------------------------------------------- what it is good for


@pytest.fixture
def few_useful_features():
    """Clients whose centres differ in 4 features, the same for all, and 116 more of noise; rows to test with."""
    rng = np.random.default_rng(0)
    centers = np.zeros((3, 120))
    centers[:, :4] = 2 * np.array([[1, 1, 0, 0], [0, -1, 1, 0], [-1, 0, 0, 1.5]])

    def draw(n):
        y = np.arange(n) % 3
        return centers[y] + rng.normal(size=(n, 120)), y

    return {cid: draw(60) for cid in "abcd"}, {cid: draw(100) for cid in "abcd"}


def accuracy(truth, found):
    return np.mean([clustering_accuracy(truth[cid][1], found[cid]) for cid in truth])


def test_all_clients_drop_the_same_features_and_new_rows_gain(few_useful_features):
    train, test = few_useful_features
    model, alone = (kind(3, random_state=0).fit({cid: X for cid, (X, _) in train.items()}) for kind in (MTSC, SEC))
    shared, own = (each.feature_weights_ / each.feature_weights_[:4].mean() for each in (model, alone))
    assert shared[:4].min() > 10 * np.median(shared[4:])
    assert np.median(own[4:]) > 3 * np.median(shared[4:])
    rows = {cid: X for cid, (X, _) in test.items()}
    assert accuracy(test, model.predict(rows)) > 0.95 > accuracy(test, alone.predict(rows))


@pytest.mark.parametrize("kind", [MTSC, SEC])
def test_separate_groups_are_found_and_the_map_knows_them(rng, kind):
    y = np.arange(80) % 4
    X = 8.0 * np.eye(10)[y] + rng.normal(size=(80, 10)) + 5
    model = kind(4, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) == 1
    assert_array_equal(model.predict(X), model.labels_)
    new = 8.0 * np.eye(10)[y] + rng.normal(size=(80, 10)) + 5
    assert clustering_accuracy(y, model.predict(new)) == 1


# ------------------------------------------------------------------------------------------------------- federated


def recorded(monkeypatch):
    """All messages of the runs to come."""
    down, up = [], []
    real = LocalTransport.exchange

    def exchange(self, messages):
        replies = real(self, messages)
        down.append(messages)
        up.append(replies.answers)
        return replies

    monkeypatch.setattr(LocalTransport, "exchange", exchange)
    return down, up


@pytest.mark.parametrize(("row_power", "units"), [(0.5, "relative"), (1.0, "absolute"), (2.0, "relative")])
def test_federated_and_central_are_the_same(data, row_power, units):
    settings = {"row_power": row_power, "units": units, "max_iter": 6, "random_state": 3}
    central, federated = (kind(3, **settings).fit(data) for kind in (MTSC, FedMTSC))
    assert_same_bytes(federated, central)
    for cid, X in data.items():
        assert_array_equal(federated.predict({cid: X})[cid], central.predict({cid: X})[cid])
    assert central.bytes_up_ == central.bytes_down_ == 0


def test_nothing_but_row_norms_leaves_a_client(data, monkeypatch):
    down, up = recorded(monkeypatch)
    model = FedMTSC(3, max_iter=5, tol=0, random_state=0).fit(data)
    d, m, rounds = next(iter(data.values())).shape[1], len(data), model.n_iter_
    phases = ["prepare", *["round"] * rounds, "finish"]
    assert [{message.phase for message in each.values()} for each in down] == [{name} for name in phases]
    for answers in (up[0], up[-1]):
        assert answers == dict.fromkeys(data, Nothing())
    for answers in up[1:-1]:
        assert set(answers) == set(data)
        for answer in answers.values():
            assert vars(answer).keys() == {"squares", "loss"}
            assert answer.squares.shape == (d,)
            assert isinstance(answer.loss, float)
    assert all(message.ask.theta is None for message in down[1].values())
    assert all(message.ask.theta.shape == (d,) for each in down[2:-1] for message in each.values())
    assert model.n_rounds_ == rounds + 2
    assert model.bytes_up_ == m * rounds * (8 * d + 8)
    assert model.bytes_down_ == m * ((rounds - 1) * 8 * d + sum(len(name) + 16 for name in phases))


@pytest.mark.parametrize("alpha", [1e-8, 1.0])
def test_a_feature_of_typical_weight_has_weight_one(data, monkeypatch, alpha):
    down, up = recorded(monkeypatch)
    FedMTSC(3, alpha=alpha, max_iter=2, tol=0, n_init=1, random_state=0).fit(data)
    squares = sum(answer.squares for answer in up[1].values())
    typical = (squares**2).sum() / squares.sum()
    assert_allclose(down[2]["a"].ask.theta, np.sqrt(typical / squares), rtol=1e-4)


def test_the_server_needs_sums_alone(data, monkeypatch):
    """Masks that cancel in the sum, as secure summation has them, change nothing but rounding."""
    real = LocalTransport.exchange
    rng = np.random.default_rng(0)

    def masked(self, messages):
        replies = real(self, messages)
        if messages["a"].phase == "round":
            mask = rng.normal(size=replies.answers["a"].squares.shape)
            for cid, sign in (("a", 1), ("b", -1)):
                answer = replies.answers[cid]
                masked = replace(answer, squares=answer.squares + sign * mask, loss=answer.loss + sign * mask[0])
                replies.answers[cid] = masked
        return replies

    settings = {"row_power": 1.5, "max_iter": 4, "random_state": 0}
    plain = FedMTSC(3, **settings).fit(data)
    monkeypatch.setattr(LocalTransport, "exchange", masked)
    assert_allclose(FedMTSC(3, **settings).fit(data).history_, plain.history_, rtol=1e-8)


def test_a_failing_client_is_not_passed_over(data, monkeypatch):
    def fails(*_):
        raise FileNotFoundError("no disk")

    monkeypatch.setattr(mtsc.Round, "reply", fails)
    with pytest.raises(FileNotFoundError):
        FedMTSC(3).fit(data)


# ----------------------------------------------------------------------------------------------- sparse, single, large


def thinned(data, seed=0):
    rng = np.random.default_rng(seed)
    kept = {cid: rng.random(X.shape) < np.r_[1, np.full(X.shape[1] - 1, 0.4)] for cid, X in data.items()}
    return {cid: np.where(kept[cid], X, 0.0) for cid, X in data.items()}


def test_sparse_rows_give_the_result_of_the_same_rows_dense(data):
    dense = thinned(data)
    model = MTSC(3, max_iter=6, random_state=0).fit(dense)
    sparse = {cid: sp.csr_array(X) for cid, X in dense.items()}
    other = MTSC(3, max_iter=6, random_state=0).fit(sparse)
    assert_allclose(other.history_, model.history_, rtol=1e-9)
    assert_array_equal(other.labels_, model.labels_)
    assert_array_equal(other.predict(sparse)["a"], model.predict(dense)["a"])


def test_sparse_rows_are_never_made_dense():
    X = sp.random_array((150, 100_000), density=2e-3, format="csr", rng=np.random.default_rng(0))  # dense: 120 MB
    tracemalloc.start()
    MTSC(3, max_iter=3, n_init=1, random_state=0).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_single_precision_is_close(data):
    model = MTSC(3, max_iter=5, random_state=0).fit(data)
    single = MTSC(3, max_iter=5, random_state=0).fit({cid: X.astype(np.float32) for cid, X in data.items()})
    assert_allclose(single.history_, model.history_, rtol=1e-4)
    assert_array_equal(single.labels_, model.labels_)


@pytest.mark.parametrize(("way", "d"), [("block", 300), ("lanczos", 8)])
def test_large_clients_are_solved_by_iteration(rng, monkeypatch, way, d):
    X = 2.0 * np.eye(d)[np.arange(220) % 4] + 0.3 * rng.normal(size=(220, d))
    model = MTSC(4, max_iter=5, random_state=0).fit(X)
    if way == "lanczos":
        monkeypatch.setattr(mtsc, "lobpcg", lambda operator, start, **_: (np.zeros(4), np.linalg.qr(start)[0]))
    sizes = []
    real = mtsc.LinearOperator
    monkeypatch.setattr(mtsc, "LinearOperator", lambda *args, **kwargs: sizes.append(args) or real(*args, **kwargs))
    monkeypatch.setattr(mtsc, "DENSE_UP_TO", 100)
    other = MTSC(4, max_iter=5, random_state=0).fit(X)
    assert len(sizes) == 5
    assert_allclose(other.history_, model.history_, rtol=1e-6)
    assert (np.diff(other.history_) < 0).all()
    assert_array_equal(other.labels_, model.labels_)


def test_no_square_matrix_is_made_of_many_rows(rng):
    X = 3.0 * np.eye(5)[np.arange(5000) % 3] + rng.normal(size=(5000, 5))  # 5000 x 5000: 200 MB
    tracemalloc.start()
    SEC(3, n_init=1, random_state=0).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_bottom_eigenvectors_of_many_and_few(rng, monkeypatch):
    A = rng.normal(size=(120, 120))
    lam, U = np.linalg.eigh(A @ A.T)
    M = (U * (lam / lam[-1])) @ U.T
    for dense_up_to in (700, 50):
        monkeypatch.setattr(mtsc, "DENSE_UP_TO", dense_up_to)
        V = bottom_eigenvectors(lambda V: M @ V, rng.normal(size=(120, 3)))
        assert_allclose(V.T @ V, np.eye(3), atol=1e-10)
        assert_allclose(np.trace(V.T @ M @ V), lam[:3].sum() / lam[-1], atol=1e-8)


def test_a_run_can_be_repeated(wide):
    one, again = (MTSC(3, max_iter=5, random_state=7).fit(wide) for _ in range(2))
    assert_same_bytes(one, again)
