"""Phases after the last round: clusters, shared centres, common numbers."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fmtc import Settings
from fmtc.client import Clusters, open_client
from fmtc.errors import RefusedError
from fmtc.inference import ClientModel, assign
from fmtc.kernels.centers import leave_one_out_distance, mean_distance
from fmtc.protocol.base import Nothing, required
from fmtc.protocol.finish import FINISH, common_numbers
from fmtc.protocol.gather import GATHER, GATHER_STEPS
from fmtc.protocol.number import NUMBER


@pytest.fixture
def finished(make_federation, play):
    """A federation after four rounds and `finish`; the rows of its clients; their answers."""

    def make(**settings):
        data = make_federation(n=(50, 70, 90), distance=4.0)
        game = play(data, Settings.of(n_clusters=3, n_neighbors=20, **settings)).open().rounds(4)
        answers = game.ask("finish")
        game.reduce("finish", answers)
        return game, data, answers

    return make


def test_the_last_rotation_reaches_the_client_at_the_end(make_federation, play):
    game = play(make_federation(), Settings(3)).open().rounds(3)
    before = game.clients["b"]
    game.ask("finish")
    after, rotation = game.clients["b"], game.server.rotations["b"]
    assert_array_equal(after.own.model.W, before.W @ rotation)
    assert_allclose(after.own.model.W, game.server.W[:, :, 1], atol=1e-12)
    assert_array_equal(after.F, before.F @ rotation)
    assert_array_equal(after.W, before.W @ rotation)


def test_unfilled_clusters_are_reported(rng, play):
    two_rows = np.repeat(rng.normal(size=(2, 4)), 6, axis=0)
    game = play({"south": two_rows}, Settings.of(n_clusters=4, center_features=False))
    F = np.linalg.qr(rng.normal(size=(12, 12)))[0][:, :4]
    game.clients["south"] = replace(game.clients["south"], F=F, W=rng.normal(size=(4, 4)))
    with pytest.warns(ConvergenceWarning) as record:  # k-means has its own word on it
        game.ask("finish", {"south": FINISH.Ask()})
    assert any("'south' fills only 2 of 4" in str(each.message) for each in record)
    own = game.clients["south"].own
    assert_array_equal(np.bincount(own.labels, minlength=4), [6, 6, 0, 0])
    assert_array_equal(assign(two_rows, own.model), own.labels)


@pytest.mark.parametrize("labels_from", ["projection", "embedding"])
def test_labels_are_of_the_nearest_centre_and_centres_those_of_k_means(finished, labels_from):
    game, data, _ = finished(labels_from=labels_from, shared_centers=False)
    game.phase("number")
    for cid, X in data.items():
        model, labels = game.clients[cid].model, game.clients[cid].labels
        E = game.clients[cid].F if labels_from == "embedding" else (X - X.mean(axis=0)) @ model.W
        E = E / np.linalg.norm(E, axis=1, keepdims=True)
        gaps = np.linalg.norm(E[:, None, :] - model.centers, axis=2)
        assert_array_equal(gaps.argmin(axis=1), labels)
        assert_allclose(model.spread, np.mean(gaps.min(axis=1) ** 2), rtol=1e-10)
        means = KMeans(3, n_init=10, random_state=5).fit(E).cluster_centers_
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        match = (model.centers @ means.T).argmax(axis=1)
        assert_allclose(model.centers, means[match], atol=1e-8)


def test_clusters_of_a_client_come_largest_first(finished):
    game, _, _ = finished()
    for client in game.clients.values():
        assert (np.diff(np.bincount(client.own.labels, minlength=3)) <= 0).all()


@pytest.mark.parametrize("labels_from", ["projection", "embedding"])
def test_numbering_renames_labels_and_centres_together(finished, labels_from):
    game, _, _ = finished(labels_from=labels_from, shared_centers=False)
    before, order = dict(game.clients), np.array([1, 2, 0])
    game.ask("number", dict.fromkeys(before, NUMBER.Ask(order=order)))
    for cid, after in game.clients.items():
        own = before[cid].own
        assert_array_equal(after.model.centers, own.model.centers[order])
        assert_array_equal(order[after.labels], own.labels)


def test_the_same_group_has_the_same_number_everywhere(finished):
    game, data, _ = finished()
    game.phase("number")
    group = {cid: np.arange(len(X)) % 3 for cid, X in data.items()}  # how the fixture makes them
    number = {
        cid: [int(np.bincount(game.clients[cid].labels[group[cid] == g]).argmax()) for g in range(3)] for cid in data
    }
    assert sorted(number["a"]) == [0, 1, 2]
    assert number["a"] == number["b"] == number["c"]


def test_without_alignment_every_client_keeps_its_own_order(finished):
    game, _, _ = finished(align=False)
    before = dict(game.clients)
    for order in game.server.orders.values():
        assert_array_equal(order, [0, 1, 2])
    game.phase("number")
    for cid, client in game.clients.items():
        assert_array_equal(client.labels, before[cid].own.labels)


def test_numbering_leaves_out_a_client_that_did_not_finish(finished):
    game, _, answers = finished()
    orders = common_numbers(game.server, {cid: answers[cid].centers for cid in "bc"}, game.settings)
    assert set(orders) == {"b", "c"}
    for order in orders.values():
        assert_array_equal(np.sort(order), [0, 1, 2])


def test_more_features_than_columns_do_not_change_the_numbers(finished, rng):
    """W enters by the products between its columns alone: features are turned, and many empty ones added."""
    game, _, answers = finished()
    centers = {cid: answer.centers for cid, answer in answers.items()}
    W = game.server.W
    many = np.zeros((40, *W.shape[1:]))
    many[: len(W)] = W
    turned = np.einsum("ij,jkm->ikm", np.linalg.qr(rng.normal(size=(40, 40)))[0], many)
    few = common_numbers(game.server, centers, game.settings)
    found = common_numbers(replace(game.server, W=turned), centers, game.settings)
    for cid, order in few.items():
        assert_array_equal(found[cid], order)


# ---------------------------------------------------------------------------------------------------- shared centres


def client_of(E, labels, settings):
    """A client whose rows are their own projections, after finish."""
    k = settings.n_clusters
    centers = np.array([E[labels == j].mean(axis=0) for j in range(k)])
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    own = Clusters(E, ClientModel(np.eye(k), centers, 0.0, None), labels)
    return replace(open_client("here", E, settings), own=own)


@pytest.mark.parametrize(("sign", "zeros"), [(1, 0), (-1, 4)])
def test_a_client_takes_shared_centres_unless_its_own_are_clearly_nearer(rng, sign, zeros):
    """Centres as good as nine tenths of the way decide; rows of zeros are as far from all."""
    settings = Settings.of(n_clusters=2, center_features=False)
    labels = np.arange(40) % 2
    angle = labels * np.pi / 2 + 0.2 * rng.normal(size=40)
    E = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    E, labels = np.vstack([E, np.zeros((zeros, 2))]), np.append(labels, np.zeros(zeros, int))
    client = client_of(E, labels, settings)
    full = E.any(axis=1)
    own = leave_one_out_distance(E[full], labels[full], 2)

    def turned(by):
        return np.array([[np.cos(by), np.sin(by)], [-np.sin(by), np.cos(by)]])

    edge = brentq(lambda by: 0.9 * mean_distance(E[full], turned(by)) - own, 0.0, 0.6 * sign)
    always = Settings.of(n_clusters=2, center_features=False, shared_centers=True)
    for by, takes in ((0.0, True), (0.98 * edge, True), (1.02 * edge, False)):
        ask = NUMBER.Ask(order=np.arange(2), centers=turned(by))
        after, answer = NUMBER.reply(client, ask, settings, 1)
        assert answer == Nothing()  # which centres it took stays with the client
        assert_array_equal(after.model.centers, turned(by) if takes else client.own.model.centers)
        assert after.own is None
        assert_array_equal(NUMBER.reply(client, ask, always, 1)[0].model.centers, turned(by))


def test_shared_centres_bring_their_own_labels_numbers_and_spread(rng):
    settings = Settings.of(n_clusters=3, center_features=False, shared_centers=True)
    labels = np.arange(30) % 3
    E = np.eye(3)[labels] + 0.1 * rng.normal(size=(30, 3))
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    ask = NUMBER.Ask(order=np.array([2, 0, 1]), centers=np.eye(3)[[0, 0, 1]])  # nobody is at the third axis
    after, _ = NUMBER.reply(client_of(E, labels, settings), ask, settings, 1)
    assert_array_equal(after.labels[labels == 0], 0)
    assert_array_equal(after.labels[labels == 1], 2)
    assert_array_equal(after.labels, assign(E, after.model))
    assert_allclose(after.model.spread, np.square(E - ask.centers[after.labels]).sum(axis=1).mean(), rtol=1e-12)


@pytest.mark.parametrize("setting", [{"shared_centers": False}, {"align": False}], ids=str)
def test_shared_centres_are_refused_where_clients_keep_their_own(rng, setting):
    settings = Settings.of(n_clusters=3, **setting)
    client = client_of(np.eye(3)[np.arange(9) % 3], np.arange(9) % 3, settings)
    with pytest.raises(RefusedError):
        NUMBER.reply(client, NUMBER.Ask(order=np.arange(3), centers=np.eye(3)), settings, 1)


def test_shared_centres_come_from_everybody(make_federation, play):
    """The server's part, against k-means over the rows of all clients."""
    game = play(make_federation(n=(50, 70, 90), distance=3.0), Settings(3, n_neighbors=20)).open().rounds(4)
    answers = game.ask("finish")
    game.reduce("finish", answers)
    orders = game.server.orders
    matched = np.mean([answers[cid].centers[orders[cid]] for cid in "abc"], axis=0)
    assert_allclose(game.server.centers, matched / np.linalg.norm(matched, axis=1, keepdims=True), atol=1e-12)
    assert GATHER.times(game.server, game.settings) == GATHER_STEPS == 3
    game.phase("gather")
    centers, total = game.server.centers, np.zeros((3, 3))
    for client in game.clients.values():
        E = client.own.E
        nearest = (E @ centers.T).argmax(axis=1)
        total += np.array([E[nearest == j].sum(axis=0) for j in range(3)]) / len(E)
    assert_allclose(total / np.linalg.norm(total, axis=1, keepdims=True), centers, atol=1e-2)  # all but settled
    game.phase("number")
    assert all(np.array_equal(client.model.centers, centers) for client in game.clients.values())


def test_sums_are_of_the_rows_nearest_to_each_centre(finished, rng):
    game, _, _ = finished()
    centers = rng.normal(size=(3, 3))
    answer = game.ask("gather", {"a": GATHER.Ask(centers=centers)})["a"]
    E = game.clients["a"].own.E
    nearest = (E @ centers.T).argmax(axis=1)
    assert_allclose(answer.sums, [E[nearest == j].sum(axis=0) / len(E) for j in range(3)], atol=1e-12)


@pytest.mark.parametrize(("name", "lacks"), [("finish", "F"), ("gather", "own"), ("number", "own")])
def test_closing_phases_that_come_too_early_are_refused(make_federation, play, name, lacks):
    game = play(make_federation(m=1), Settings(3))
    if name != "finish":
        game.open().rounds(1)
    ask = {
        "finish": FINISH.Ask(), "gather": GATHER.Ask(centers=np.eye(3)), "number": NUMBER.Ask(order=np.arange(3)),
    }[name]  # fmt: skip
    with pytest.raises(RefusedError, match=rf": {lacks}\b"):
        game.ask(name, {"a": ask})


def test_what_a_reply_needs_is_named():
    state = open_client("a", np.eye(5), Settings(2))
    assert required(state, "client_id", "round_no") == ("a", 0)
    with pytest.raises(RefusedError, match="graph, W"):
        required(state, "client_id", "graph", "W")
