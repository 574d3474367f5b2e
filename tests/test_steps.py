import warnings
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fmtc import FMTC, steps
from fmtc.kernels import graph
from fmtc.kernels.alignment import generalized_procrustes, rotate, turn_towards
from fmtc.kernels.centers import leave_one_out_distance, mean_distance
from fmtc.kernels.couplings import COUPLINGS
from fmtc.kernels.graph import knn_affinity
from fmtc.linalg.stacks import Workspace
from fmtc.steps import (
    LEAST_WEIGHT,
    ClientModel,
    Downlink,
    Hyper,
    Uplink,
    assign,
    client_reply,
    client_step,
    downlinks,
    feature_weights,
    finish_client,
    finishes,
    first_centers,
    gatherings,
    memberships,
    next_centers,
    numbering,
    numbers,
    open_client,
    open_server,
    preparations,
    project,
    server_step,
    without_clients,
)


def orthogonal(rng, k):
    return np.linalg.qr(rng.normal(size=(k, k)))[0]


def exchange(clients, messages, hyper):
    answers = {cid: client_reply(clients[cid], message, hyper) for cid, message in messages.items()}
    clients.update({cid: client for cid, (client, _) in answers.items()})
    return {cid: uplink for cid, (_, uplink) in answers.items()}


def open_all(data, hyper, weights=None):
    """Clients and server ready for the first round."""
    clients = {cid: open_client(cid, X, hyper) for cid, X in data.items()}
    server = open_server(exchange(clients, {cid: Downlink("hello") for cid in clients}, hyper), hyper, weights)
    exchange(clients, preparations(server, hyper), hyper)
    return clients, server


def rounds(clients, server, hyper, n):
    for _ in range(n):
        server, _ = server_step(server, exchange(clients, downlinks(server, hyper), hyper), hyper)
    return server


# -------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("name", ["n_clusters", "n_inner", "max_iter", "n_init", "n_neighbors", "max_features"])
def test_whole_numbers_of_at_least_one(name):
    for value in (1, np.int32(3)):
        assert getattr(Hyper(**{name: value}), name) == value
    for value in (0, -2):
        with pytest.raises(ValueError, match=rf"^{name} must be .*at least 1, got {value}$"):
            Hyper(**{name: value})
    for value in (2.0, "2", None, True, [3]):
        with pytest.raises(TypeError, match=f"^{name} must be .*at least 1, got "):
            Hyper(**{name: value})


@pytest.mark.parametrize("name", ["alpha", "ridge", "rho", "bandwidth", "step_size"])
def test_numbers_above_zero(name):
    for value in (1, 1e-9, np.float32(2.5)):
        assert getattr(Hyper(**{name: value}), name) == value
    for value in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"^{name} must be .*above 0, got "):
            Hyper(**{name: value})
    for value in ("1", False, [1.0], 1j):
        with pytest.raises(TypeError, match=f"^{name} must be .*above 0, got "):
            Hyper(**{name: value})


@pytest.mark.parametrize("name", ["rho", "bandwidth", "step_size"])
def test_numbers_that_may_be_left_out(name):
    assert getattr(Hyper(**{name: None}), name) is None


@pytest.mark.parametrize("name", ["alpha", "ridge", "beta", "tol", "schatten_p"])
def test_numbers_that_may_not_be_left_out(name):
    with pytest.raises(TypeError, match=f"^{name} must be .* of type NoneType"):
        Hyper(**{name: None})


@pytest.mark.parametrize("name", ["beta", "tol"])
def test_numbers_from_zero(name):
    assert getattr(Hyper(**{name: 0}), name) == 0
    for value in (-1e-9, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"^{name} must be .*a finite number of at least 0, got "):
            Hyper(**{name: value})
    with pytest.raises(TypeError, match=f"^{name} must be .* of type str"):
        Hyper(**{name: "0"})


def test_schatten_p_lies_in_its_interval():
    assert Hyper(schatten_p=0.01).schatten_p == 0.01
    for value in (0, -0.5, 1.001, np.nan):
        with pytest.raises(ValueError, match=r"^schatten_p must be a number with 0 < p <= 1"):
            Hyper(schatten_p=value)
    with pytest.raises(TypeError, match=r"^schatten_p must be a number with 0 < p <= 1, got 'half' of type str"):
        Hyper(schatten_p="half")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("coupling", ("tensor", "subspace", "average")),
        ("align", ("loop", "init", "none")),
        ("scale", ("none", "client", "global", "tfidf")),
        ("labels_from", ("projection", "embedding")),
    ],
)
def test_choices_are_listed(name, options):
    for option in options:
        assert getattr(Hyper(**{name: option}), name) == option
    for value in ("other", None, True):
        with pytest.raises(ValueError, match=f"^{name} must be one of {', '.join(map(repr, options))}, got "):
            Hyper(**{name: value})


def test_center_and_neighbours_choices():
    for value in (True, False, "auto", np.bool_(True)):
        assert Hyper(center=value).center == value
    for value in ("yes", None, 1.5):
        with pytest.raises(ValueError, match=r'^center must be True, False or "auto", got '):
            Hyper(center=value)
    assert Hyper(n_neighbors="auto").n_neighbors == "auto"
    with pytest.raises(TypeError, match=r'^n_neighbors must be "auto" or a whole number'):
        Hyper(n_neighbors="all")


# ---------------------------------------------------------------------------------------------------- client


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 3), (5, 8)])
def test_too_few_rows_are_refused(rng, n, k):
    with pytest.raises(ValueError, match=rf"client 'x' has {n} sample.*n_clusters={k} needs at least {max(2, k + 1)}"):
        open_client("x", rng.normal(size=(n, 4)), Hyper(n_clusters=k))


def test_centring_follows_the_setting(rng):
    X = rng.normal(size=(20, 4)) + 5
    for given, center, centred in [
        (X, "auto", True),
        (sp.csr_array(X), "auto", False),
        (X, False, False),
        (sp.csr_array(X), True, True),
    ]:
        mean = open_client("x", given, Hyper(n_clusters=2, center=center)).rows.mean
        if centred:
            assert_allclose(mean, X.mean(axis=0), rtol=1e-12)
        else:
            assert mean is None


def test_an_unknown_phase_is_refused(rng):
    hyper = Hyper(n_clusters=2)
    client = open_client("x", rng.normal(size=(20, 4)), hyper)
    with pytest.raises(
        ValueError, match="unknown phase 'dump'; this client knows moments, rescale, hello, prepare, round, finish"
    ):
        client_reply(client, Downlink("dump"), hyper)


def test_what_leaves_a_client_in_each_phase(make_federation):
    hyper = Hyper(n_clusters=3)
    data = make_federation(m=2, n=(50, 70), d=5)
    clients = {cid: open_client(cid, X, hyper) for cid, X in data.items()}

    def filled(uplinks):
        assert all(type(uplink) is Uplink for uplink in uplinks.values())
        return [{f.name for f in fields(u) if getattr(u, f.name) is not None} for u in uplinks.values()]

    hellos = exchange(clients, {cid: Downlink("hello") for cid in clients}, hyper)
    assert filled(hellos) == 2 * [{"n_samples", "n_features", "energy"}]
    assert (hellos["b"].n_samples, hellos["b"].n_features) == (70, 5)
    assert_allclose(hellos["b"].energy, np.square(data["b"] - data["b"].mean(axis=0)).sum(), rtol=1e-12)
    server = open_server(hellos, hyper)
    assert filled(exchange(clients, preparations(server, hyper), hyper)) == 2 * [set()]
    uplinks = exchange(clients, downlinks(server, hyper), hyper)
    assert filled(uplinks) == 2 * [{"W", "cut", "misfit"}]
    assert uplinks["a"].W.shape == (5, 3)
    server, _ = server_step(server, uplinks, hyper)
    finished = exchange(clients, finishes(server), hyper)
    assert filled(finished) == 2 * [{"centers"}]
    assert finished["a"].centers.shape == (3, 3)
    orders = numbering(server, finished, hyper)
    centers = first_centers(orders, finished)
    gathered = exchange(clients, gatherings(centers, orders, 1), hyper)
    assert filled(gathered) == 2 * [{"sums"}]
    assert gathered["a"].sums.shape == (3, 3)
    assert filled(exchange(clients, numbers(orders, next_centers(centers, gathered)), hyper)) == 2 * [set()]
    assert {f.name for f in fields(Uplink)} == {
        "n_samples", "n_features", "energy", "means", "squares", "document_counts", "W", "cut", "misfit",
        "centers", "score", "sums", "columns", "aliases", "kinds", "counts", "missing", "negatives", "error",
    }  # fmt: skip


def test_rows_get_mean_squared_norm_one_over_the_federation(make_federation):
    data = make_federation(m=3, n=(30, 60, 90))
    clients, server = open_all(data, Hyper(n_clusters=3))
    total = sum(np.square(c.rows @ np.eye(6)).sum() * len(c.rows.X) for c in clients.values())
    assert_allclose(total, sum(map(len, data.values())), rtol=1e-12)
    for c in clients.values():
        assert_allclose(c.rows.gamma, server.scale / np.sqrt(len(c.rows.X)), rtol=1e-12)


def test_in_absolute_units_rows_are_left_alone(make_federation):
    clients, server = open_all(make_federation(), Hyper(n_clusters=3, rho=0.5, beta=2.0, center=False))
    assert all(c.rows.gamma == 1 and c.rows.mean is None for c in clients.values())
    assert (server.rho, server.beta) == (0.5, 2.0)
    assert all(c.factors.ridge == pytest.approx(0.5 * 3 / 2) for c in clients.values())


def test_the_local_objective_falls_within_a_client_step(make_federation):
    """Its share of the Lagrangian, cut + alpha misfit + alpha ridge ||W - guide||², after W and after F."""
    for alpha, n_inner, accelerate in product((0.1, 1.0, 30.0), (1, 5), (True, False)):
        hyper = Hyper(n_clusters=3, alpha=alpha, n_inner=n_inner, accelerate=accelerate)
        clients, server = open_all(make_federation(), hyper)

        def value(client, F, W, guide, alpha=alpha):
            L, X, ridge = client.graph.laplacian, client.rows, client.factors.ridge
            return (
                np.trace(F.T @ (L @ F))
                + alpha * np.square(F - X @ W).sum()
                + alpha * ridge * np.square(W - guide).sum()
            )

        server = rounds(clients, server, hyper, 1)
        for _ in range(6):
            messages = downlinks(server, hyper)
            before = dict(clients)
            uplinks = exchange(clients, messages, hyper)
            for cid, message in messages.items():
                R, guide = message.rotation, message.guide
                F0, W0 = before[cid].F @ R, before[cid].W @ R
                F1, W1 = clients[cid].F, clients[cid].W
                steps = [value(clients[cid], F, W, guide) for F, W in ((F0, W0), (F0, W1), (F1, W1))]
                assert steps[0] > steps[2] - 1e-13
                if not accelerate or message.round_no <= 2:  # else W1 is the second
                    assert steps[0] > steps[1] - 1e-13 > steps[2] - 2e-13
                own = uplinks[cid].cut + alpha * uplinks[cid].misfit
                ridge = clients[cid].factors.ridge
                assert_allclose(own + alpha * ridge * np.square(W1 - guide).sum(), steps[2], rtol=1e-12)
            server, _ = server_step(server, uplinks, hyper)


@pytest.mark.parametrize(
    "setting",
    [{}, {"coupling": "subspace"}, {"coupling": "average"}, {"beta": 0.0}, {"message_dtype": "float32"}],
    ids=str,
)
def test_a_server_with_a_workspace_comes_to_the_same_in_the_memory_it_owns(make_federation, setting):
    hyper, workspace = Hyper(n_clusters=3, **setting), Workspace()
    clients, server = open_all(make_federation(), hyper)
    assert server.W is server.Z is server.Y
    for round_no in range(5):
        uplinks = exchange(clients, downlinks(server, hyper), hyper)
        if round_no == 3:
            del uplinks["b"]  # keeps its slice
        before = {name: getattr(server, name).copy() for name in ("W", "Z", "Y")}
        pure, report = server_step(server, uplinks, hyper)
        for name in ("W", "Z", "Y"):
            assert_array_equal(getattr(server, name), before[name])
        assert len(uplinks) == (2 if round_no == 3 else 3)
        after, same = server_step(server, uplinks, hyper, workspace=workspace)
        assert report == same
        assert not uplinks  # the answers are released
        for name in ("W", "Z", "Y"):
            assert_array_equal(getattr(after, name), getattr(pure, name))
        # the first stack is not the workspace's own; later W and Y are, and Z of the round before is never touched
        assert [getattr(after, name) is getattr(server, name) for name in ("W", "Y")] == [round_no > 0] * 2
        assert_array_equal(server.Z, before["Z"])
        assert not np.shares_memory(after.W, after.Y)
        assert not np.shares_memory(after.Z, after.Y)
        server = after


def test_a_workspace_takes_over_the_stacks_it_is_handed(make_federation):
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server, _ = server_step(server, exchange(clients, downlinks(server, hyper), hyper), hyper)
    uplinks = exchange(clients, downlinks(server, hyper), hyper)
    expected, _ = server_step(server, uplinks, hyper)
    after, _ = server_step(server, uplinks, hyper, workspace=Workspace(server.W, server.Y))
    assert after.W is server.W
    assert after.Y is server.Y
    assert_array_equal(after.Z, expected.Z)


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_client_whose_graph_is_in_another_order_takes_the_same_steps(make_federation, monkeypatch, accelerate):
    hyper = Hyper(n_clusters=3, accelerate=accelerate)
    ends = []
    for order_from in (10**9, 1):
        monkeypatch.setattr(graph, "REORDER_FROM", order_from)
        clients, server = open_all(make_federation(), hyper)
        server = rounds(clients, server, hyper, 5)
        ends.append((clients, server, exchange(clients, downlinks(server, hyper), hyper)))
    (clients, server, answers), (ordered, other, others) = ends
    assert_allclose(other.W, server.W, atol=1e-8)
    for cid in clients:
        assert clients[cid].graph.order is None
        assert (np.diff(ordered[cid].graph.order) != 1).any()
        assert_allclose(ordered[cid].F, clients[cid].F, atol=1e-8)
        assert_allclose(others[cid].W, answers[cid].W, atol=1e-8)
        assert_allclose((others[cid].cut, others[cid].misfit), (answers[cid].cut, answers[cid].misfit), rtol=1e-8)


class Counted:
    """A Laplacian that counts the products taken with it."""

    def __init__(self, laplacian):
        self.laplacian, self.products, self.dtype = laplacian, 0, laplacian.dtype

    def __matmul__(self, F):
        self.products += 1
        return self.laplacian @ F


@pytest.mark.parametrize(("accelerate", "still_moving", "settled"), [(True, 2 * 4, 1), (False, 4, 4)])
def test_a_settled_client_takes_one_step_a_round(make_federation, accelerate, still_moving, settled):
    hyper = Hyper(n_clusters=3, n_inner=4, accelerate=accelerate)
    clients, server = open_all(make_federation(), hyper)

    def steps_of_next_round():
        message = downlinks(server, hyper)["a"]
        client = clients["a"]
        laplacian = Counted(client.graph.laplacian)
        client_step(replace(client, graph=replace(client.graph, laplacian=laplacian)), message, hyper)
        return laplacian.products - 1  # for the objective

    server = rounds(clients, server, hyper, 2)
    assert steps_of_next_round() == still_moving
    server = rounds(clients, server, hyper, 300)
    assert steps_of_next_round() == settled


def test_a_rotation_with_a_message_is_a_client_turned_beforehand(make_federation, rng):
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server = rounds(clients, server, hyper, 2)
    client, R = clients["a"], orthogonal(rng, 3)
    guide = rng.normal(size=client.W.shape)
    turned = replace(client, F=client.F @ R, W=client.W @ R)
    told, up = client_step(client, Downlink("round", 3, guide=guide, rotation=R), hyper)
    did, same = client_step(turned, Downlink("round", 3, guide=guide), hyper)
    assert_array_equal(told.F, did.F)
    assert_array_equal(told.W, did.W)
    assert_array_equal(up.W, same.W)
    assert told.round_no == 3
    # and rotating everything, the guide too, only rotates the answer
    both, turned_up = client_step(turned, Downlink("round", 3, guide=guide @ R), hyper)
    plain, plain_up = client_step(client, Downlink("round", 3, guide=guide), hyper)
    assert_allclose(both.F, plain.F @ R, atol=1e-10)
    assert_allclose(both.W, plain.W @ R, atol=1e-10)
    assert_allclose([turned_up.cut, turned_up.misfit], [plain_up.cut, plain_up.misfit], rtol=1e-9)


def test_the_last_rotation_reaches_the_client_at_the_end(make_federation):
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server = rounds(clients, server, hyper, 3)
    before = clients["b"]
    exchange(clients, finishes(server), hyper)
    assert_array_equal(clients["b"].W, before.W @ server.rotations["b"])
    assert_allclose(clients["b"].W, server.W[:, :, 1], atol=1e-12)
    assert_array_equal(clients["b"].F, before.F @ server.rotations["b"])
    assert clients["b"].model.W is clients["b"].W


def test_a_graph_in_parts_is_reported_with_its_meaning(rng):
    place = np.repeat([0, 1, 2], [25, 20, 15])
    X = 1000.0 * place[:, None] + rng.normal(size=(60, 3))
    for k, words in ((4, "3 of the 4 clusters start as parts"), (2, "only the 2 largest parts shape the embedding")):
        hyper = Hyper(n_clusters=k, n_neighbors=5)
        client = open_client("north", X, hyper)
        with pytest.warns(UserWarning, match=rf"client 'north' falls into 3 parts.* 25, 20, 15 rows.*{words}"):
            client_reply(client, Downlink("prepare", scale=1.0, ridge=0.1), hyper)


def test_many_parts_are_not_all_listed(rng):
    X = 1000.0 * np.repeat(np.arange(10), 4)[:, None] + rng.normal(size=(40, 3))
    hyper = Hyper(n_clusters=2, n_neighbors=3)
    with pytest.warns(UserWarning, match=r"into 10 parts without a link, of 4, 4, 4, 4, 4, 4, 4, 4, \.\.\. rows"):
        client_reply(open_client("x", X, hyper), Downlink("prepare", scale=1.0, ridge=0.1), hyper)


def test_unfilled_clusters_are_reported(rng):
    two_rows = np.repeat(rng.normal(size=(2, 4)), 6, axis=0)
    hyper = Hyper(n_clusters=4, center=False)
    client = replace(open_client("south", two_rows, hyper), F=orthogonal(rng, 12)[:, :4], W=rng.normal(size=(4, 4)))
    with pytest.warns(ConvergenceWarning) as record:  # k-means has its own word on it
        client, _ = finish_client(client, hyper)
    assert any("client 'south' fills only 2 of 4 clusters" in str(each.message) for each in record)
    assert_array_equal(np.bincount(client.labels, minlength=4), [6, 6, 0, 0])
    assert_array_equal(assign(two_rows, client.model), client.labels)


@pytest.fixture
def fitted(make_federation):
    """Clients after a short run, numbered, with the data they were fitted on."""

    def fit(**settings):
        hyper = Hyper(n_clusters=3, n_neighbors=20, **settings)
        data = make_federation(n=(50, 70, 90), distance=4.0)
        clients, server = open_all(data, hyper)
        server = rounds(clients, server, hyper, 4)
        finished = exchange(clients, finishes(server), hyper)
        before = dict(clients)
        messages = numbers(numbering(server, finished, hyper), None)
        exchange(clients, messages, hyper)
        return clients, data, before, messages

    return fit


def test_assigning_training_rows_gives_their_labels(fitted):
    clients, data, _, _ = fitted()
    for cid, X in data.items():
        assert_array_equal(assign(X, clients[cid].model), clients[cid].labels)
        assert_array_equal(np.unique(clients[cid].labels), [0, 1, 2])


def test_labels_are_of_the_nearest_centre_and_centres_those_of_k_means(fitted):
    for labels_from in ("projection", "embedding"):
        clients, data, _, _ = fitted(labels_from=labels_from)
        for cid, X in data.items():
            model, labels = clients[cid].model, clients[cid].labels
            E = clients[cid].F if labels_from == "embedding" else (X - X.mean(axis=0)) @ model.W
            E = E / np.linalg.norm(E, axis=1, keepdims=True)
            distance = np.linalg.norm(E[:, None, :] - model.centers, axis=2)
            assert_array_equal(distance.argmin(axis=1), labels)
            assert_allclose(model.spread, np.mean(distance.min(axis=1) ** 2), rtol=1e-10)
            means = KMeans(3, n_init=10, random_state=5).fit(E).cluster_centers_
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            match = (model.centers @ means.T).argmax(axis=1)
            assert_allclose(model.centers, means[match], atol=1e-8)


def test_clusters_of_a_client_come_largest_first(fitted):
    _, _, before, _ = fitted()
    for client in before.values():
        assert (np.diff(np.bincount(client.labels, minlength=3)) <= 0).all()


@pytest.mark.parametrize("labels_from", ["projection", "embedding"])
def test_numbering_renames_labels_and_centres_together(fitted, labels_from):
    _, _, before, _ = fitted(labels_from=labels_from)
    hyper = Hyper(n_clusters=3, labels_from=labels_from)
    order = np.array([1, 2, 0])
    for client in before.values():
        after, _ = client_reply(client, Downlink("number", order=order), hyper)
        assert_array_equal(after.model.centers, client.model.centers[order])
        assert_array_equal(order[after.labels], client.labels)


def test_the_same_group_has_the_same_number_everywhere(fitted):
    clients, data, _, _ = fitted()
    group = {cid: np.arange(len(X)) % 3 for cid, X in data.items()}  # how the fixture makes them
    number = {cid: [int(np.bincount(clients[cid].labels[group[cid] == g]).argmax()) for g in range(3)] for cid in data}
    assert sorted(number["a"]) == [0, 1, 2]
    assert number["a"] == number["b"] == number["c"]


def test_without_alignment_every_client_keeps_its_own_order(fitted):
    clients, _, before, messages = fitted(align="none")
    for cid in clients:
        assert_array_equal(messages[cid].order, [0, 1, 2])
        assert_array_equal(clients[cid].labels, before[cid].labels)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_a_trial_holds_another_fifth_back_in_each_fold_and_leaves_the_client_alone(rng, kind):
    hyper = Hyper(n_clusters=2, beta="auto", center=False)
    X = rng.normal(size=(53, 3)) + 3
    client = open_client("a", kind(X), hyper)
    back = []
    for fold in range(5):
        after, uplink = client_reply(client, Downlink("hello", trial=fold), hyper)
        assert uplink.n_samples == after.trial.client.X.shape[0]
        seen, held = (
            np.asarray(A.todense() if sp.issparse(A) else A) for A in (after.trial.client.X, after.trial.held_back)
        )
        assert_array_equal(np.sort(np.vstack([seen, held]), axis=0), np.sort(X, axis=0))
        assert after.X is client.X
        assert after.W is None
        back.append(held)
    assert [len(held) for held in back] == [11, 11, 11, 10, 10]
    assert_array_equal(np.sort(np.vstack(back), axis=0), np.sort(X, axis=0))
    prepared, _ = client_reply(after, Downlink("prepare", scale=1.0, ridge=0.1), hyper)
    assert prepared.trial is None


def test_a_trial_takes_no_more_rows_than_it_needs(rng, monkeypatch):
    monkeypatch.setattr(steps, "TRIAL_ROWS", 20)
    hyper = Hyper(n_clusters=2, beta="auto")
    after, _ = client_reply(open_client("a", rng.normal(size=(500, 3)), hyper), Downlink("hello", trial=0), hyper)
    assert (after.trial.client.X.shape, after.trial.held_back.shape) == ((16, 3), (4, 3))


def test_the_score_of_a_trial_is_of_rows_that_were_held_back(rng):
    """1 - Ncut/k of predicted clusters and smoothness of the projection, on their own graph of five neighbours."""
    hyper = Hyper(n_clusters=2, beta="auto", scale="client")
    X = rng.normal(size=(100, 3)) + np.outer(np.arange(100) % 2, [4.0, 0, 0])
    client = open_client("a", X, hyper)
    for message in (
        Downlink("hello"),
        Downlink("prepare", scale=1.0, ridge=0.1),
        Downlink("round", 1, guide=np.zeros((3, 2))),
        Downlink("finish", 1, 1),
        Downlink("number", order=np.arange(2)),
    ):
        client, _ = client_reply(client, replace(message, trial=3), hyper)
    client, uplink = client_reply(client, Downlink("score", trial=3), hyper)
    held, model = client.trial.held_back, client.trial.client.model
    scaled = (held - X.mean(axis=0)) / X.std(axis=0)
    A = knn_affinity(scaled, 5).toarray()
    labels = assign(held, model)
    inside = np.mean([A[labels == j][:, labels == j].sum() / A[labels == j].sum() for j in range(2)])
    E = project(held, model.W, model.mean)
    L = np.eye(20) - A / np.sqrt(np.outer(A.sum(axis=1), A.sum(axis=1)))
    assert_allclose(uplink.score, (inside + 1 - np.trace(E.T @ L @ E) / 20) / 2, rtol=1e-10)
    assert {f.name for f in fields(uplink) if getattr(uplink, f.name) is not None} == {"score"}


@pytest.mark.parametrize(("n", "k"), [(4, 3), (5, 4), (6, 5)])
def test_too_few_rows_for_a_trial_are_said(rng, n, k):
    hyper = Hyper(n_clusters=k, beta="auto")
    with pytest.raises(
        ValueError, match=rf"client 'a' has {n} rows, too few to hold a fifth back and to find {k} clus"
    ):
        client_reply(open_client("a", rng.normal(size=(n, 3)), hyper), Downlink("hello", trial=0), hyper)


def test_a_graph_of_some_rows_may_fall_apart_in_silence(rng):
    X = np.vstack([rng.normal(size=(30, 2)), rng.normal(size=(30, 2)) + 1000])
    hyper = Hyper(n_clusters=2, beta="auto", n_neighbors=5)
    client, _ = client_reply(open_client("a", X, hyper), Downlink("hello", trial=0), hyper)
    message = Downlink("prepare", scale=1.0, ridge=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client_reply(client, replace(message, trial=0), hyper)
    with pytest.warns(UserWarning, match="falls into 2 parts"):
        client_reply(client, message, hyper)


def test_a_message_of_a_trial_needs_one(rng):
    hyper = Hyper(n_clusters=2)
    client = open_client("a", rng.normal(size=(9, 3)), hyper)
    with pytest.raises(RuntimeError, match="client 'a' is in no trial"):
        client_reply(client, Downlink("score", trial=0), hyper)


@pytest.mark.parametrize("setting", [{"rho": 1.0}, {"coupling": "average"}], ids=str)
def test_nothing_to_choose_is_said(setting):
    with pytest.raises(ValueError, match='beta="auto" has nothing to choose from'):
        Hyper(beta="auto", **setting)


@pytest.mark.parametrize("beta", ["strong", -0.1, np.nan, True, None])
def test_a_beta_that_is_none_is_refused(beta):
    with pytest.raises((TypeError, ValueError), match='beta must be "auto" or a finite number of at least 0, got'):
        Hyper(beta=beta)


def finished_client(E, labels, hyper):
    """A client whose rows are their own projections, after finish."""
    k = hyper.n_clusters
    centers = np.array([E[labels == j].mean(axis=0) for j in range(k)])
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    client = open_client("here", E, hyper)
    return replace(client, E=E, labels=labels, model=ClientModel(np.eye(k), centers, 0.0, None))


@pytest.mark.parametrize("zeros", [0, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_client_takes_common_centres_unless_its_own_are_clearly_nearer(rng, sign, zeros):
    """Centres as good as nine tenths of the way decide; rows of zeros are as far from all."""
    hyper = Hyper(n_clusters=2, center=False)
    labels = np.arange(40) % 2
    angle = labels * np.pi / 2 + 0.2 * rng.normal(size=40)
    E = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    E, labels = np.vstack([E, np.zeros((zeros, 2))]), np.append(labels, np.zeros(zeros, int))
    client = finished_client(E, labels, hyper)
    full = E.any(axis=1)
    own = leave_one_out_distance(E[full], labels[full], 2)

    def turned(by):
        return np.array([[np.cos(by), np.sin(by)], [-np.sin(by), np.cos(by)]])

    edge = brentq(lambda by: 0.9 * mean_distance(E[full], turned(by)) - own, 0.0, 0.6 * sign)
    for by, takes in ((0.0, True), (0.98 * edge, True), (1.02 * edge, False)):
        message = Downlink("number", order=np.arange(2), centers=turned(by))
        after, uplink = client_reply(client, message, hyper)
        assert uplink == Uplink()  # what it chose stays at home
        assert_array_equal(after.model.centers, turned(by) if takes else client.model.centers)
        assert after.E is None
        kept = client_reply(client, message, replace(hyper, centers="common"))[0]
        assert_array_equal(kept.model.centers, turned(by))


def test_common_centres_bring_their_own_labels_numbers_and_spread(rng):
    hyper = Hyper(n_clusters=3, center=False, centers="common")
    labels = np.arange(30) % 3
    E = np.eye(3)[labels] + 0.1 * rng.normal(size=(30, 3))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    client = finished_client(E, labels, hyper)
    message = Downlink("number", order=np.array([2, 0, 1]), centers=np.eye(3)[[0, 0, 1]])  # nobody is at the third axis
    after, _ = client_reply(client, message, hyper)
    assert_array_equal(after.labels[labels == 0], 0)
    assert_array_equal(after.labels[labels == 1], 2)
    assert_array_equal(after.labels, assign(E, after.model))
    assert_allclose(after.model.spread, np.square(E - message.centers[after.labels]).sum(axis=1).mean(), rtol=1e-12)


def test_common_centres_come_from_everybody(make_federation):
    """The server's part, against k-means over the rows of all clients."""
    hyper = Hyper(n_clusters=3, n_neighbors=20)
    clients, server = open_all(make_federation(n=(50, 70, 90), distance=3.0), hyper)
    server = rounds(clients, server, hyper, 4)
    finished = exchange(clients, finishes(server), hyper)
    orders = numbering(server, finished, hyper)
    matched = np.mean([finished[cid].centers[orders[cid]] for cid in "abc"], axis=0)
    centers = first_centers(orders, finished)
    assert_allclose(centers, matched / np.linalg.norm(matched, axis=1, keepdims=True), atol=1e-12)
    for turn in (1, 2, 3):
        messages = gatherings(centers, orders, turn)
        assert [(m.phase, m.round_no) for m in messages.values()] == 3 * [("gather", turn)]
        centers = next_centers(centers, exchange(clients, messages, hyper))
    total = np.zeros((3, 3))
    for client in clients.values():
        nearest = (client.E @ centers.T).argmax(axis=1)
        total += np.array([client.E[nearest == j].sum(axis=0) for j in range(3)]) / len(client.E)
    assert_allclose(total / np.linalg.norm(total, axis=1, keepdims=True), centers, atol=1e-2)  # all but settled
    exchange(clients, numbers(orders, centers), hyper)
    assert all(np.array_equal(client.model.centers, centers) for client in clients.values())


def test_sums_are_told_three_times_and_in_runs_that_need_them_only(make_federation):
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server = rounds(clients, server, hyper, 1)
    exchange(clients, finishes(server), hyper)
    message, *others = (gatherings(np.eye(3) + i, "a", i + 1) for i in range(4))
    with pytest.raises(ValueError, match="client 'a' tells sums about common centres to nobody in a run like this"):
        exchange(clients, message, replace(hyper, centers="own"))
    for each in (message, message, *others[:2], message):  # told twice, it is answered alike
        exchange(clients, each, hyper)
    with pytest.raises(ValueError, match="client 'a' tells sums about common centres 3 times and no more"):
        exchange(clients, others[2], hyper)
    exchange(clients, finishes(replace(server, rotations={})), hyper)
    exchange(clients, others[2], hyper)  # a new end, a new count


@pytest.mark.parametrize(
    ("setting", "shares"),
    [
        ({}, True),
        ({"centers": "common"}, True),
        ({"align": "init"}, True),
        ({"centers": "own"}, False),
        ({"align": "none"}, False),
        ({"labels_from": "embedding"}, False),
    ],
    ids=str,
)
def test_centres_are_common_in_a_common_frame_only(setting, shares):
    assert Hyper(**setting).shares_centers is shares


@pytest.mark.parametrize("setting", [{"align": "none"}, {"labels_from": "embedding"}], ids=str)
def test_common_centres_without_a_common_frame_are_refused(setting):
    with pytest.raises(ValueError, match=r"centers=\"common\" needs the frame that all clients share"):
        Hyper(centers="common", **setting)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_memberships_sum_to_one_and_agree_with_the_labels(fitted, rng, dtype):
    clients, data, _, _ = fitted()
    model = clients["a"].model
    model = ClientModel(model.W.astype(dtype), model.centers.astype(dtype), model.spread, model.mean.astype(dtype))
    X = np.vstack([data["a"], 10 * rng.normal(size=(300, 6)), model.mean[None]]).astype(dtype)
    P = memberships(X, model)
    assert P.dtype == dtype
    assert (P >= 0).all()
    assert_allclose(P.sum(axis=1), 1, rtol=10 * np.finfo(dtype).eps)
    assert_array_equal(P.argmax(axis=1), assign(X, model))


def test_memberships_are_those_of_round_gaussians(fitted):
    clients, data, _, _ = fitted()
    model = clients["b"].model
    E = project(data["b"], model.W, model.mean)
    variance = model.spread / 3  # per coordinate
    density = np.exp(-np.square(E[:, None] - model.centers).sum(axis=2) / (2 * variance))
    assert_allclose(memberships(data["b"], model), density / density.sum(axis=1, keepdims=True), atol=1e-12)


def test_memberships_of_a_client_without_spread(rng):
    model = ClientModel(np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]]), 0.0, None)
    P = memberships(np.array([[2.0, 0.0], [0.1, 0.3], [1.0, 1.0]]), model)
    assert_allclose(P, [[1, 0], [0, 1], [0.5, 0.5]], atol=1e-12)


def test_new_rows_are_projected_row_by_row(rng):
    W, mean = rng.normal(size=(5, 3)), rng.normal(size=5)
    X = rng.normal(size=(20, 5))
    E = project(X, W, mean)
    assert_allclose(np.linalg.norm(E, axis=1), 1, rtol=1e-12)
    assert_allclose(project(mean + 7 * (X - mean), W, mean), E, atol=1e-12)  # only the direction counts
    assert_allclose(project(sp.csr_array(X), W, mean), E, atol=1e-12)
    assert_array_equal(project(mean[None], W, mean), np.zeros((1, 3)))  # a row at the mean has none
    assert_allclose(np.vstack([project(X[[i]], W, mean) for i in range(20)]), E, atol=1e-13)


# ---------------------------------------------------------------------------------------------------- server


HELLO = Uplink(n_samples=10, n_features=4, energy=40.0)


def test_clients_with_other_features_are_refused():
    with pytest.raises(ValueError, match=r"'a' has 4, 'b' has 5.*one shared feature space"):
        open_server({"a": HELLO, "b": replace(HELLO, n_features=5)}, Hyper())


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 0.3, 1e6 + 0.1])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n", [15, 1000])
def test_a_constant_client_is_refused(rng, value, kind, n):
    """Also where the mean of equal numbers is not quite that number."""
    hyper = Hyper(n_clusters=2, center=True)
    data = {"a": kind(np.full((n, 3), value)), "b": kind(rng.normal(size=(20, 3)))}
    clients = {cid: open_client(cid, X, hyper) for cid, X in data.items()}
    hellos = exchange(clients, {cid: Downlink("hello") for cid in clients}, hyper)
    with pytest.raises(ValueError, match="every feature is constant in client 'a': there is nothing to cluster"):
        open_server(hellos, hyper)


def test_a_small_spread_about_a_large_mean_is_not_constant(rng):
    hyper = Hyper(n_clusters=2)
    client = open_client("a", 1e6 + rng.normal(size=(20, 3)), hyper)
    open_server({"a": client_reply(client, Downlink("hello"), hyper)[1]}, hyper)


def test_scale_rho_and_weights_agreed_at_the_start():
    hellos = {"b": Uplink(30, 4, 60.0), "a": Uplink(10, 4, 100.0)}
    server = open_server(hellos, Hyper(n_clusters=3, alpha=2.0, ridge=0.1))
    assert server.client_ids == ("a", "b")
    assert_allclose(server.scale, np.sqrt(40 / 160))
    assert_allclose(server.omega, [0.5, 0.5])
    assert_allclose(server.rho / (2 * server.omega * 2.0), 0.1)  # the ridge that was asked for
    assert server.beta is None
    assert server.W.shape == server.Z.shape == server.Y.shape == (4, 3, 2)
    assert not server.Z.any()
    assert not server.Y.any()


def test_weights_are_normalised_and_decide_the_ridge():
    hellos = {"a": HELLO, "b": HELLO}
    hyper = Hyper(ridge=0.1)
    server = open_server(hellos, hyper, {"b": 3, "a": 1})
    assert_allclose(server.omega, [0.25, 0.75])
    ridges = {cid: message.ridge for cid, message in preparations(server, hyper).items()}
    assert_allclose([ridges["a"], ridges["b"]], [0.2, 0.1 / 1.5])  # rho/(2 omega alpha): twice and 2/3 of the average


@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "c": 1}, {}])
def test_weights_name_each_client_once(weights):
    with pytest.raises(ValueError, match=r"client_weights must name each client once; missing: .*unknown: "):
        open_server({"a": HELLO, "b": HELLO}, Hyper(), weights)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_weights_are_above_zero(bad):
    with pytest.raises(ValueError, match="client_weights must be finite numbers above 0"):
        open_server({"a": HELLO, "b": HELLO}, Hyper(), {"a": 1.0, "b": bad})


def test_without_clients(rng):
    weights = {"a": 1, "b": 2, "c": 5}
    server = open_server(dict.fromkeys("abc", HELLO), Hyper(), weights)
    server = replace(server, W=rng.normal(size=server.W.shape), losses=np.arange(3.0))
    rest = without_clients(server, {"b"})
    assert rest.client_ids == ("a", "c")
    assert_array_equal(rest.W, server.W[:, :, [0, 2]])
    assert rest.Z.shape == rest.Y.shape == rest.W.shape
    assert_array_equal(rest.losses, [0, 2])
    assert_array_equal(rest.omega, [1 / 8, 5 / 8])
    same = without_clients(server, set())
    assert same.client_ids == server.client_ids
    assert_array_equal(same.W, server.W)


@pytest.fixture
def running(make_federation):
    """Clients and server in the middle of a run, and the answers of one more round."""
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server = rounds(clients, server, hyper, 2)
    return server, exchange(clients, downlinks(server, hyper), hyper), hyper


def test_the_guide_is_the_only_combination_a_client_needs(running):
    server, _, hyper = running
    for t, (cid, message) in enumerate(downlinks(server, hyper).items()):
        assert_allclose(message.guide, server.Z[:, :, t] - server.Y[:, :, t] / server.rho, atol=1e-14)
        assert_array_equal(message.rotation, server.rotations[cid])
        assert message.round_no == server.round_no + 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_messages_may_be_rounded_and_states_are_not(make_federation, dtype):
    hyper = Hyper(n_clusters=3, message_dtype="float32")
    clients, server = open_all(make_federation(dtype=dtype), hyper)
    for _ in range(3):
        messages = downlinks(server, hyper)
        uplinks = exchange(clients, messages, hyper)
        for t, cid in enumerate(server.client_ids):
            guide = server.Z[:, :, t] - server.Y[:, :, t] / server.rho
            assert messages[cid].guide.dtype == uplinks[cid].W.dtype == np.float32
            assert_array_equal(messages[cid].guide, guide.astype(np.float32))
            assert (clients[cid].W.dtype, clients[cid].F.dtype) == (dtype, dtype)
            assert_array_equal(uplinks[cid].W, clients[cid].W.astype(np.float32))
        before = server
        server, _ = server_step(server, uplinks, hyper)
        assert {server.W.dtype, server.Z.dtype, server.Y.dtype} == {np.dtype(np.float64)}
    doubles = {cid: replace(uplink, W=uplink.W.astype(np.float64)) for cid, uplink in uplinks.items()}
    same, _ = server_step(before, doubles, replace(hyper, message_dtype=None))
    assert_array_equal(server.Z, same.Z)  # rounded once, on the way, and never again


def test_first_round_aligns_all_and_fixes_beta(make_federation):
    for coupling in ("tensor", "subspace"):
        hyper = Hyper(n_clusters=3, beta=0.2, coupling=coupling)
        clients, server = open_all(make_federation(), hyper)
        uplinks = exchange(clients, downlinks(server, hyper), hyper)
        W = np.stack([uplinks[cid].W for cid in "abc"], axis=2)
        R = generalized_procrustes(W)
        after, _ = server_step(server, uplinks, hyper)
        assert_allclose(after.W, rotate(W, R), atol=1e-12)
        for t, cid in enumerate("abc"):
            assert_allclose(after.rotations[cid], R[:, :, t], atol=1e-12)
        largest = COUPLINGS[coupling].critical_threshold(rotate(W, R))
        assert_allclose(after.beta, 0.2 * server.rho * largest, rtol=1e-10)
        assert rounds(clients, after, hyper, 1).beta == after.beta


def test_later_rounds_turn_each_client_towards_its_consensus(running):
    server, uplinks, hyper = running
    after, _ = server_step(server, uplinks, hyper)
    for t, cid in enumerate(server.client_ids):
        R = turn_towards(uplinks[cid].W, server.Z[:, :, t])
        assert_allclose(after.rotations[cid], R, atol=1e-12)
        assert_allclose(after.W[:, :, t], uplinks[cid].W @ R, atol=1e-12)


def test_alignment_at_the_start_only_or_never(make_federation):
    for align in ("init", "none"):
        hyper = Hyper(n_clusters=3, align=align)
        clients, server = open_all(make_federation(), hyper)
        server = rounds(clients, server, hyper, 1)
        assert bool(server.rotations) == (align == "init")
        uplinks = exchange(clients, downlinks(server, hyper), hyper)
        server, _ = server_step(server, uplinks, hyper)
        assert not server.rotations
        assert_array_equal(server.W, np.stack([uplinks[cid].W for cid in "abc"], axis=2))


def test_beta_one_leaves_nothing_of_the_first_consensus(make_federation):
    for coupling in ("tensor", "subspace"):
        for beta, nothing in ((1.0, True), (0.99, False)):
            hyper = Hyper(n_clusters=3, beta=beta, coupling=coupling)
            clients, server = open_all(make_federation(), hyper)
            server = rounds(clients, server, hyper, 1)
            assert (np.abs(server.Z).max() < 1e-14) == nothing


def test_an_absent_client_keeps_its_slice_loss_and_rotation(running):
    server, uplinks, hyper = running
    after, _ = server_step(server, {cid: uplinks[cid] for cid in "ac"}, hyper)
    assert_array_equal(after.W[:, :, 1], server.W[:, :, 1])
    assert after.losses[1] == server.losses[1]
    assert after.losses[0] == uplinks["a"].cut + hyper.alpha * uplinks["a"].misfit
    assert_array_equal(after.rotations["b"], server.rotations["b"])
    assert after.round_no == server.round_no + 1
    assert set(after.rotations) == {"a", "b", "c"}
    assert_array_equal(downlinks(after, hyper)["b"].rotation, server.rotations["b"])
    # it still takes part in the consensus, with what it sent last
    rho = server.rho
    ahead = 1.8 * after.W - 0.8 * server.Z
    assert_allclose(after.Y - server.Y, rho * (ahead - after.Z), atol=1e-14)
    assert np.abs(after.Z[:, :, 1] - server.Z[:, :, 1]).max() > 0


def test_absence_and_return_equal_the_turn_the_client_missed(make_federation):
    """The rotation it gets late is the one its slice on the server has had."""
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server = rounds(clients, server, hyper, 2)
    held = clients["b"]
    messages = downlinks(server, hyper)
    uplinks = exchange(clients, {cid: messages[cid] for cid in "ac"}, hyper)
    server, _ = server_step(server, uplinks, hyper)
    assert clients["b"] is held
    assert_allclose(held.W @ downlinks(server, hyper)["b"].rotation, server.W[:, :, 1], atol=1e-12)


def test_a_client_may_keep_its_losses_to_itself(running):
    server, uplinks, hyper = running
    silent = {cid: replace(u, cut=None, misfit=None) if cid == "b" else u for cid, u in uplinks.items()}
    after, report = server_step(server, silent, hyper)
    same, _ = server_step(server, uplinks, hyper)
    assert np.isnan(after.losses[1])
    assert np.isnan(report.objective)
    assert_array_equal(after.Z, same.Z)


def test_a_step_leaves_the_state_before_it_alone(running):
    server, uplinks, hyper = running
    before = {name: getattr(server, name).copy() for name in ("W", "Z", "Y", "losses", "omega")}
    sent = {cid: uplink.W.copy() for cid, uplink in uplinks.items()}
    once, _ = server_step(server, uplinks, hyper)
    twice, _ = server_step(server, uplinks, hyper)
    assert_array_equal(once.Z, twice.Z)
    for name, value in before.items():
        assert_array_equal(getattr(server, name), value)
    for cid, W in sent.items():
        assert_array_equal(uplinks[cid].W, W)


@pytest.mark.parametrize(("coupling", "largest"), [("tensor", 3), ("subspace", 6)])
def test_reported_rank(make_federation, coupling, largest):
    ranks = []
    for beta in (0.0, 0.6, 0.999):
        hyper = Hyper(n_clusters=3, beta=beta, coupling=coupling)
        clients, server = open_all(make_federation(), hyper)
        ranks.append(server_step(server, exchange(clients, downlinks(server, hyper), hyper), hyper)[1].rank)
    assert ranks[0] == largest  # k columns in a slice; d = 6 rows of the matrix of all
    assert ranks[0] > ranks[1] >= ranks[2] == 1


def test_numbering_leaves_out_a_client_that_did_not_finish(make_federation):
    hyper = Hyper(n_clusters=3)
    clients, server = open_all(make_federation(), hyper)
    server = rounds(clients, server, hyper, 2)
    finished = exchange(clients, finishes(server), hyper)
    orders = numbering(server, {cid: finished[cid] for cid in "bc"}, hyper)
    assert set(orders) == {"b", "c"}
    for order in orders.values():
        assert_array_equal(np.sort(order), [0, 1, 2])


@pytest.mark.parametrize("answer", [assign, memberships, lambda X, model: project(X, model.W, model.mean)])
def test_answers_do_not_depend_on_the_size_of_a_block(monkeypatch, rng, answer):
    X = rng.normal(size=(53, 4))
    model = FMTC(3, random_state=0, max_iter=3).fit(X)._models["all"]
    whole = answer(X, model)
    monkeypatch.setattr(steps, "BLOCK", 7)
    assert_allclose(answer(X, model), whole, rtol=0, atol=1e-13)


# ------------------------------------------------------------------------------------------------ weights of columns


def test_weights_of_columns_see_no_rotation_order_or_size_of_the_stack(rng):
    W = (1 + 0.1 * rng.normal(size=(6, 3, 4))) * np.arange(1, 7)[:, None, None]
    weights = feature_weights(W)
    assert weights.shape == (6,)
    assert (np.diff(weights) > 0).all()
    turned = np.stack([W[:, :, t] @ np.linalg.qr(rng.normal(size=(3, 3))).Q for t in range(4)], axis=2)
    assert_allclose(feature_weights(turned), weights, rtol=1e-12)
    assert_allclose(feature_weights(7 * W[:, :, [2, 0, 3, 1]]), weights, rtol=1e-12)


def test_a_typical_column_has_weight_one_and_nobody_less_than_the_least(rng):
    assert_allclose(feature_weights(np.ones((5, 2, 3))), 1 + LEAST_WEIGHT, rtol=1e-12)
    sparse = np.zeros((5, 2, 3))
    sparse[0] = 1
    assert_allclose(feature_weights(sparse), [1.3, 0.31, 0.31, 0.31, 0.31], atol=1e-12)
    assert_allclose(feature_weights(0 * sparse), 0.31, rtol=1e-12)


def test_weights_that_do_not_fit_are_refused(make_federation):
    client = open_client("a", make_federation(m=1)["a"], Hyper(n_clusters=3))
    for bad in (np.ones(5), np.array([1, 1, 1, 1, 1, 0.0]), np.array([1, 1, 1, 1, 1, np.nan])):
        with pytest.raises(ValueError, match="do not fit 6 columns"):
            client_reply(client, Downlink("hello", weights=bad), Hyper(n_clusters=3))


def test_a_second_hello_tells_the_energy_of_weighted_rows_and_keeps_the_graph(make_federation):
    hyper, X = Hyper(n_clusters=3), make_federation(m=1)["a"]
    client = open_client("a", X, hyper)
    client, hello = client_reply(client, Downlink("hello"), hyper)
    client, _ = client_reply(client, Downlink("prepare", scale=1.0, ridge=0.1), hyper)
    again, second = client_reply(client, Downlink("hello", weights=np.full(6, 2.0)), hyper)
    assert_allclose(second.energy, 4 * hello.energy, rtol=1e-12)
    ready, _ = client_reply(again, Downlink("prepare", scale=0.5, ridge=0.1), hyper)
    assert ready.graph is client.graph
    assert ready.F is client.F
    assert ready.factors is not client.factors
