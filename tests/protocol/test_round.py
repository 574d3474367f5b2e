"""One pass of Algorithm 1 at the clients, and what the server asks them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.errors import RefusedError
from fmtc.kernels import graph
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.graph.state import Clustered, Numbered
from fmtc.settings import Settings


def orthogonal(rng, k):
    return np.linalg.qr(rng.normal(size=(k, k)))[0]


def test_the_anchor_is_the_only_combination_a_client_needs(make_federation, play):
    game = play(make_federation(), Settings(3)).open().rounds(2)
    server = game.server
    for t, (cid, ask) in enumerate(game.asks("round").items()):
        assert_allclose(ask.anchor, server.Z[:, :, t] - server.Y[:, :, t] / server.rho, atol=1e-14)
        assert_array_equal(ask.rotation, server.rotations[cid])


@pytest.mark.parametrize(
    ("alpha", "n_inner", "accelerate"),
    [(0.1, 1, True), (0.1, 5, False), (1.0, 5, True), (30.0, 1, False), (30.0, 5, True)],
)
def test_the_local_objective_falls_within_a_client_step(make_federation, play, alpha, n_inner, accelerate):
    """Its share of the Lagrangian, cut + alpha misfit + alpha ridge ||W - anchor||², after W and after F."""
    game = play(make_federation(), Settings(n_clusters=3, alpha=alpha, n_inner=n_inner, accelerate=accelerate))

    def value(client, F, W, anchor):
        L, X, ridge = client.graph.laplacian, client.rows, client.factors.ridge
        cut, misfit = np.trace(F.T @ (L @ F)), np.square(F - X @ W).sum()
        return cut + alpha * misfit + alpha * ridge * np.square(W - anchor).sum()

    game.open().rounds(1)
    for _ in range(6):
        asks, before = game.asks("round"), dict(game.clients)
        answers = game.ask("round", asks)
        for cid, ask in asks.items():
            R, anchor, client = ask.rotation, ask.anchor, game.clients[cid]
            F0, W0 = before[cid].F @ R, before[cid].W @ R
            steps = [value(client, F, W, anchor) for F, W in ((F0, W0), (F0, client.W), (client.F, client.W))]
            assert steps[0] > steps[2] - 1e-13
            if not accelerate or client.round_no <= 2:  # else W is the second
                assert steps[0] > steps[1] - 1e-13 > steps[2] - 2e-13
            own = answers[cid].cut + alpha * answers[cid].misfit
            rest = alpha * client.factors.ridge * np.square(client.W - anchor).sum()
            assert_allclose(own + rest, steps[2], rtol=1e-12)
        game.reduce("round", answers)


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_client_whose_graph_is_in_another_order_takes_the_same_steps(make_federation, play, monkeypatch, accelerate):
    ends = []
    for order_from in (10**9, 1):
        monkeypatch.setattr(graph, "REORDER_FROM", order_from)
        game = play(make_federation(), Settings(n_clusters=3, accelerate=accelerate)).open().rounds(5)
        ends.append((game.server, game.ask("round"), game.clients))
    (server, answers, clients), (other, others, ordered) = ends
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
def test_a_settled_client_takes_one_step_a_round(make_federation, play, accelerate, still_moving, settled):
    settings = Settings(n_clusters=3, n_inner=4, accelerate=accelerate)
    game = play(make_federation(), settings).open()

    def steps_of_next_round():
        client, ask = game.clients["a"], game.asks("round")["a"]
        laplacian = Counted(client.graph.laplacian)
        client = replace(client, graph=replace(client.graph, laplacian=laplacian))
        ROUND.reply(client, ask, settings, game.server.round_no + 1)
        return laplacian.products - 1  # for the objective

    game.rounds(2)
    assert steps_of_next_round() == still_moving
    game.rounds(300)
    assert steps_of_next_round() == settled


def test_a_rotation_with_a_message_is_a_client_turned_beforehand(make_federation, play, rng):
    game = play(make_federation(), Settings(3)).open().rounds(2)
    client, R = game.clients["a"], orthogonal(rng, 3)
    anchor = rng.normal(size=client.W.shape)
    turned = replace(client, F=client.F @ R, W=client.W @ R)

    def step(client, **ask):
        return ROUND.reply(client, ROUND.Ask(**ask), game.settings, 3)

    told, up = step(client, anchor=anchor, rotation=R)
    did, same = step(turned, anchor=anchor)
    assert_array_equal(told.F, did.F)
    assert_array_equal(told.W, did.W)
    assert_array_equal(up.W, same.W)
    assert told.round_no == 3
    # and rotating everything, the anchor too, only rotates the answer
    both, turned_up = step(turned, anchor=anchor @ R)
    plain, plain_up = step(client, anchor=anchor)
    assert_allclose(both.F, plain.F @ R, atol=1e-10)
    assert_allclose(both.W, plain.W @ R, atol=1e-10)
    assert_allclose([turned_up.cut, turned_up.misfit], [plain_up.cut, plain_up.misfit], rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_messages_may_be_rounded_and_states_are_not(make_federation, play, dtype):
    settings = Settings(n_clusters=3, message_dtype="float32")
    game = play(make_federation(dtype=dtype), settings).open()
    for _ in range(3):
        before, asks = game.server, game.asks("round")
        stacks = {name: getattr(before, name).copy() for name in ("W", "Z", "Y")}  # a round may use them up
        answers = game.ask("round", asks)
        for t, cid in enumerate(before.client_ids):
            anchor = before.Z[:, :, t] - before.Y[:, :, t] / before.rho
            assert asks[cid].anchor.dtype == answers[cid].W.dtype == np.float32
            assert_array_equal(asks[cid].anchor, anchor.astype(np.float32))
            assert (game.clients[cid].W.dtype, game.clients[cid].F.dtype) == (dtype, dtype)
            assert_array_equal(answers[cid].W, game.clients[cid].W.astype(np.float32))
        doubles = {cid: replace(answer, W=answer.W.astype(np.float64)) for cid, answer in answers.items()}
        game.reduce("round", answers)
        assert {getattr(game.server, name).dtype for name in stacks} == {np.dtype(np.float64)}
    full = Settings(3)
    same, _ = ROUND.reduce(replace(before, **stacks), doubles, full)
    assert_array_equal(game.server.Z, same.Z)  # rounded once, on the way, and never again


def test_a_round_before_the_start_is_refused(make_federation, play):
    game = play(make_federation(m=1), Settings(3))
    with pytest.raises(RefusedError, match=r"came too early: .*F, W, .*graph, "):
        game.ask("round", {"a": ROUND.Ask(anchor=np.zeros((6, 3)))})


def test_a_round_does_away_with_what_came_after_the_last(make_federation, play):
    """A run that was finished and goes on: clusters of the old round must not be taken for those of the new."""
    game = play(make_federation(), Settings(3)).open().rounds(2)
    for name in ("finish", "settle", "number"):
        game.phase(name)
    game.rounds(1)
    assert not any(isinstance(client, Clustered | Numbered) for client in game.clients.values())
