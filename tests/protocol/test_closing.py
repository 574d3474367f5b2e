"""Phases after the last round: clusters, a mixture of all of them, common numbers."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from tests.questions import settle_ask

from fmtc.errors import RefusedError
from fmtc.protocol.graph.finish import FINISH, SETTLE, common_numbers
from fmtc.protocol.graph.number import NUMBER
from fmtc.protocol.graph.state import Prepared
from fmtc.protocol.state import Ready, open_client, reached, with_rows
from fmtc.settings import Settings


@pytest.fixture
def finished(make_federation, play):
    """A federation after four rounds and `finish`; the rows of its clients; their answers."""

    def make(**settings):
        data = make_federation(n=(50, 70, 90), distance=4.0)
        game = play(data, Settings(n_clusters=3, n_neighbors=20, **settings)).open().rounds(4)
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
    game = play({"south": two_rows}, Settings(n_clusters=4, center_features=False))
    F = np.linalg.qr(rng.normal(size=(12, 12)))[0][:, :4]
    game.open()
    game.clients["south"] = replace(game.clients["south"], F=F, W=rng.normal(size=(4, 4)))
    with pytest.warns(ConvergenceWarning) as record:  # k-means has its own word on it
        game.ask("finish", {"south": FINISH.Ask()})
    assert any("'south' fills only 2 of 4" in str(each.message) for each in record)
    own = game.clients["south"].own
    assert_array_equal(np.bincount(own.labels, minlength=4), [6, 6, 0, 0])
    assert_array_equal(own.model.assign(two_rows), own.labels)


@pytest.mark.parametrize("labels_from", ["projection", "embedding"])
def test_labels_are_of_the_nearest_centre_and_centres_those_of_k_means(finished, labels_from):
    game, data, _ = finished(labels_from=labels_from, final="kmeans")
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
    game, _, _ = finished(labels_from=labels_from, final="kmeans")
    before, order = dict(game.clients), np.array([1, 2, 0])
    game.ask("number", dict.fromkeys(before, NUMBER.Ask(order=order)))
    for cid, after in game.clients.items():
        own = before[cid].own
        assert_array_equal(after.model.centers, own.model.centers[order])
        assert_array_equal(order[after.labels], own.labels)


def test_the_same_group_has_the_same_number_everywhere(finished):
    game, data, _ = finished()
    game.phase("settle")
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


@pytest.mark.parametrize("setting", [{"final": "kmeans"}, {"align": False}, {"labels_from": "embedding"}], ids=str)
def test_parameters_of_a_mixture_are_refused_where_a_run_ends_with_k_means(finished, setting):
    game, _, _ = finished(**setting)
    assert game.server.mixture is None
    assert list(game.turns("settle")) == []
    ask = settle_ask()
    names = ("means", "covariance", "shares", "spread")
    told = NUMBER.Ask(order=np.arange(3), **{name: getattr(ask, name) for name in names})
    with pytest.raises(RefusedError):
        game.ask("number", {"a": told})


def test_a_round_of_the_mixture_is_answered_twice_alike_and_an_earlier_one_is_refused(finished):
    game, _, _ = finished()
    for step in (0, 1, 2):
        first, again = (game.ask("settle", {"a": settle_ask(step=step)})["a"] for _ in range(2))
        assert_array_equal(first.means, again.means)
        assert_array_equal(first.score, again.score)
    with pytest.raises(RefusedError, match=r"round 1 .* round 2"):
        game.ask("settle", {"a": settle_ask(step=1)})
    begun = game.ask("settle", {"a": settle_ask(step=0)})["a"]  # a server that begins once more
    assert np.abs(begun.means - first.means).max() > 1e-6
    assert_array_equal(game.ask("settle", {"b": settle_ask(step=0)})["b"].score[:, 2], [70])


def test_who_missed_rounds_of_the_mixture_continues_with_what_it_has(finished):
    """With its last sums, or with its k-means clusters where it has missed all; and keeps a model in the end."""
    game, _, _ = finished()

    def answered(*steps):
        client = game.clients["a"]
        for step in steps:
            client, answer = SETTLE.reply(client, settle_ask(0.1 * bool(step), step=step), game.settings, 4)
        return answer.means

    assert_array_equal(answered(0, 4), answered(0, 1))
    assert_array_equal(answered(3), answered(1))
    assert np.abs(answered(0, 4) - answered(4)).max() > 1e-6
    for _ in range(3):  # 'c' is away from all rounds
        game.reduce("settle", game.ask("settle", {cid: ask for cid, ask in game.asks("settle").items() if cid != "c"}))
    game.phase("number")
    assert game.clients["c"].model.shares is not None
    a, c = (  # rows of each group, as the fixture makes them, in each cluster
        [np.bincount(client.labels[g::3], minlength=3) for g in range(3)]
        for client in (game.clients["a"], game.clients["c"])
    )
    assert np.min(np.max(c, axis=1)) >= 28
    assert_array_equal(np.argmax(c, axis=1), np.argmax(a, axis=1))


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


@pytest.mark.parametrize(("name", "lacks"), [("finish", "F"), ("settle", "own"), ("number", "own")])
def test_closing_phases_that_come_too_early_are_refused(make_federation, play, name, lacks):
    game = play(make_federation(m=1), Settings(3))
    if name != "finish":
        game.open().rounds(1)
    ask = {"finish": FINISH.Ask(), "settle": settle_ask(order=np.arange(3)), "number": NUMBER.Ask(order=np.arange(3))}[
        name
    ]
    with pytest.raises(RefusedError, match=rf": {lacks}\b"):
        game.ask(name, {"a": ask})


def test_what_a_reply_needs_is_named():
    state = with_rows(open_client("a", np.eye(5), Settings(2)), Settings(2))
    assert reached(state, Ready) is state
    with pytest.raises(RefusedError, match=r"came too early: .*W, .*graph, .* not there yet"):
        reached(state, Prepared)
