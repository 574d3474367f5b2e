"""The server between messages: weights, the stacks of all clients, and the consensus step."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.kernels.alignment import generalized_procrustes, rotate, turn_towards
from fmtc.kernels.couplings import COUPLINGS
from fmtc.linalg.stacks import Workspace
from fmtc.protocol.graph.opening import HELLO
from fmtc.protocol.graph.round import server_step
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.mixture.state import Mixture
from fmtc.protocol.state import ServerState
from fmtc.runtime.driver import RoundRecord
from fmtc.settings import Settings

HERE = HELLO.Answer(n_samples=10, n_features=4, sum_of_squares=40.0)


def opened(answers, settings, weights=None):
    return HELLO.reduce(ServerState(tuple(sorted(answers)), weights), answers, settings)


def test_clients_with_other_features_are_refused():
    with pytest.raises(ValueError, match="'a' has 4, 'b' has 5"):
        opened({"a": HERE, "b": replace(HERE, n_features=5)}, Settings())


@pytest.mark.parametrize(
    ("value", "kind", "n"),
    [
        (0.0, sp.csr_array, 15),
        (1.0, np.asarray, 15),
        (0.1, np.asarray, 1000),
        (0.3, sp.csr_array, 1000),
        (1e6 + 0.1, np.asarray, 15),
    ],
)
def test_a_constant_client_is_refused(rng, play, value, kind, n):
    """Also where the mean of equal numbers is not quite that number."""
    data = {"a": kind(np.full((n, 3), value)), "b": kind(rng.normal(size=(20, 3)))}
    with pytest.raises(ValueError, match="silo 'a':"):
        play(data, Settings(n_clusters=2, center_features=True)).phase("hello")


def test_a_small_spread_about_a_large_mean_is_not_constant(rng, play):
    play({"a": 1e6 + rng.normal(size=(20, 3))}, Settings(2)).phase("hello")


def test_scale_rho_and_weights_agreed_at_the_start():
    answers = {
        "b": HELLO.Answer(n_samples=30, n_features=4, sum_of_squares=60.0),
        "a": HELLO.Answer(n_samples=10, n_features=4, sum_of_squares=100.0),
    }
    server = opened(answers, Settings(n_clusters=3, alpha=2.0, ridge=0.1))
    assert server.client_ids == ("a", "b")
    assert_allclose(server.scale, np.sqrt(40 / 160))
    assert_allclose(server.omega, [0.5, 0.5])
    assert_allclose(server.rho / (2 * server.omega * 2.0), 0.1)  # the ridge that was asked for
    assert server.beta is None
    assert server.W.shape == server.Z.shape == server.Y.shape == (4, 3, 2)
    assert not server.Z.any()
    assert not server.Y.any()


def test_weights_are_normalised_and_decide_the_ridge(play, make_federation):
    game = play(make_federation(m=2), Settings(n_clusters=3, ridge=0.1), {"b": 3, "a": 1})
    game.phase("hello")
    assert_allclose(game.server.omega, [0.25, 0.75])
    ridges = {cid: ask.ridge for cid, ask in game.asks("prepare").items()}
    assert_allclose([ridges["a"], ridges["b"]], [0.2, 0.1 / 1.5])  # rho/(2 omega alpha): twice and 2/3 of the average


@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "c": 1}, {}])
def test_weights_name_each_client_once(weights):
    with pytest.raises(ValueError, match=r"^silo_weights"):
        opened({"a": HERE, "b": HERE}, Settings(), weights)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf, True, "1"])
def test_weights_are_above_zero(bad):
    with pytest.raises(ValueError, match=r"^silo_weights"):
        opened({"a": HERE, "b": HERE}, Settings(), {"a": 1.0, "b": bad})


def test_without_clients(rng):
    server = opened(dict.fromkeys("abc", HERE), Settings(), {"a": 1, "b": 2, "c": 5})
    server = replace(server, W=rng.normal(size=server.W.shape), losses=np.arange(3.0))
    rest = METHOD.without(server, {"b"})
    assert rest.client_ids == ("a", "c")
    assert_array_equal(rest.W, server.W[:, :, [0, 2]])
    assert rest.Z.shape == rest.Y.shape == rest.W.shape
    assert_array_equal(rest.losses, [0, 2])
    assert_array_equal(rest.omega, [1 / 8, 5 / 8])
    assert METHOD.without(server, {"x"}) is server
    assert METHOD.without(ServerState(("a", "b", "c")), {"a"}).client_ids == ("b", "c")  # before anything is known


# -------------------------------------------------------------------------------------------------- consensus step


@pytest.fixture
def running(make_federation, play):
    """Clients and server in the middle of a run, and the answers of one more round."""
    game = play(make_federation(), Settings(3)).open().rounds(2)
    return game.server, game.ask("round"), game.settings


@pytest.mark.parametrize(
    "setting", [{}, {"coupling": "subspace"}, {"beta": 0.0}, {"message_dtype": "float32"}], ids=str
)
def test_a_server_that_reuses_its_stacks_comes_to_the_same(make_federation, play, setting):
    settings = Settings(n_clusters=3, **setting)
    game = play(make_federation(), settings).open()
    for round_no in range(5):
        answers = game.ask("round")
        if round_no == 3:
            del answers["b"]  # keeps its slice
        given = replace(game.server, **{name: getattr(game.server, name).copy() for name in ("W", "Z", "Y")})
        pure, report = server_step(game.server, answers, settings)
        for name in ("W", "Z", "Y"):
            assert_array_equal(getattr(game.server, name), getattr(given, name))
        assert len(answers) == (2 if round_no == 3 else 3)
        workspace = Workspace()
        W, Y = (workspace.compute(lambda rows, A=A: A[rows], over=A) for A in (given.W, given.Y))
        given = replace(given, W=W, Y=Y)
        reused, other = server_step(given, answers, settings, workspace=workspace)
        assert report == other
        assert not answers  # let go of
        for name in ("W", "Z", "Y"):
            assert_array_equal(getattr(reused, name), getattr(pure, name))
        taken_over = [np.shares_memory(getattr(reused, name), getattr(given, name)) for name in ("W", "Y", "Z")]
        assert taken_over == [True, True, False]
        game.server = reused


def test_the_first_stack_of_a_server_is_not_written_to(make_federation, play):
    game = play(make_federation(), Settings(3)).open()
    server = game.server
    assert server.W is server.Z is server.Y
    game.phase("round")
    assert not server.W.any()
    assert game.server.W is not game.server.Y


def test_first_round_aligns_all_and_fixes_beta(make_federation, play):
    for coupling in ("tensor", "subspace"):
        game = play(make_federation(), Settings(3, beta=0.2, coupling=coupling)).open()
        answers = game.ask("round")
        W = np.stack([answers[cid].W for cid in "abc"], axis=2)
        R = generalized_procrustes(W)
        rho = game.server.rho
        game.reduce("round", answers)
        after = game.server
        assert_allclose(after.W, rotate(W, R), atol=1e-12)
        for t, cid in enumerate("abc"):
            assert_allclose(after.rotations[cid], R[:, :, t], atol=1e-12)
        assert_allclose(after.beta, 0.2 * rho * COUPLINGS[coupling].critical_threshold(rotate(W, R)), rtol=1e-10)
        assert game.rounds(1).server.beta == after.beta


def test_later_rounds_turn_each_client_towards_its_consensus(running):
    server, answers, settings = running
    after, _ = server_step(server, answers, settings)
    for t, cid in enumerate(server.client_ids):
        R = turn_towards(answers[cid].W, server.Z[:, :, t])
        assert_allclose(after.rotations[cid], R, atol=1e-12)
        assert_allclose(after.W[:, :, t], answers[cid].W @ R, atol=1e-12)


def test_without_alignment_nobody_is_turned(make_federation, play):
    game = play(make_federation(), Settings(n_clusters=3, align=False)).open().rounds(1)
    assert not game.server.rotations
    answers = game.ask("round")
    stacked = np.stack([answers[cid].W for cid in "abc"], axis=2)
    game.reduce("round", answers)
    assert not game.server.rotations
    assert_array_equal(game.server.W, stacked)


def test_beta_one_leaves_nothing_of_the_first_consensus(make_federation, play):
    for coupling, beta, nothing in (("tensor", 1.0, True), ("tensor", 0.99, False), ("subspace", 1.0, True)):
        game = play(make_federation(), Settings(3, beta=beta, coupling=coupling)).open().rounds(1)
        assert (np.abs(game.server.Z).max() < 1e-14) == nothing


def test_an_absent_client_keeps_its_slice_loss_and_rotation(running):
    server, answers, settings = running
    after, _ = server_step(server, {cid: answers[cid] for cid in "ac"}, settings)
    assert_array_equal(after.W[:, :, 1], server.W[:, :, 1])
    assert after.losses[1] == server.losses[1]
    assert after.losses[0] == answers["a"].cut + settings.alpha * answers["a"].misfit
    assert_array_equal(after.rotations["b"], server.rotations["b"])
    assert after.round_no == server.round_no + 1
    assert set(after.rotations) == {"a", "b", "c"}
    # it still takes part in the consensus, with what it sent last
    ahead = 1.8 * after.W - 0.8 * server.Z
    assert_allclose(after.Y - server.Y, server.rho * (ahead - after.Z), atol=1e-14)
    assert np.abs(after.Z[:, :, 1] - server.Z[:, :, 1]).max() > 0


def test_absence_and_return_equal_the_turn_the_client_missed(make_federation, play):
    """The rotation it gets late is the one its slice on the server has had."""
    game = play(make_federation(), Settings(3)).open().rounds(2)
    held, asks = game.clients["b"], game.asks("round")
    game.reduce("round", game.ask("round", {cid: asks[cid] for cid in "ac"}))
    assert game.clients["b"] is held
    assert_allclose(held.W @ game.asks("round")["b"].rotation, game.server.W[:, :, 1], atol=1e-12)


def test_a_step_leaves_the_state_before_it_alone(running):
    server, answers, settings = running
    before = {name: getattr(server, name).copy() for name in ("W", "Z", "Y", "losses", "omega")}
    sent = {cid: answer.W.copy() for cid, answer in answers.items()}
    once, _ = server_step(server, answers, settings)
    twice, _ = server_step(server, answers, settings)
    assert_array_equal(once.Z, twice.Z)
    for name, value in before.items():
        assert_array_equal(getattr(server, name), value)
    for cid, W in sent.items():
        assert_array_equal(answers[cid].W, W)


@pytest.mark.parametrize(("coupling", "largest"), [("tensor", 3), ("subspace", 6)])
def test_reported_rank(make_federation, play, coupling, largest):
    ranks = []
    for beta in (0.0, 0.6, 0.999):
        game = play(make_federation(), Settings(3, beta=beta, coupling=coupling)).open()
        ranks.append(game.reduce("round", game.ask("round")).rank)
    assert ranks[0] == largest  # k columns in a slice; d = 6 rows of the matrix of all
    assert ranks[0] > ranks[1] >= ranks[2] == 1


def test_in_principal_axes_a_start_is_not_ahead_for_uneven_concepts_alone():
    even, uneven = np.full(4, 0.25), np.array([0.97, 0.01, 0.01, 0.01])  # entropies 1.386 and 0.168
    starts = Mixture(
        np.zeros((2, 4, 1)), np.ones((2, 1, 1)), np.array([uneven, even]), np.zeros((2, 4, 0)), np.ones((2, 4)),
        np.ones(2), keep=np.array([5, 3]), scores=np.array([-1.0, -2.0]), handicap=np.zeros(2),
    )  # fmt: skip
    assert_array_equal(starts.ranking, [0, 1])
    assert starts.leader == 0 and starts.best(1).keep == [5]
    wide = replace(starts, axes=np.ones((9, 1)))
    assert_array_equal(wide.ranking, [1, 0])
    assert wide.leader == 1 and wide.best(1).keep == [3]
    assert_array_equal(replace(wide, scores=np.array([-1.0, -2.3])).ranking, [0, 1])  # more than shares can explain
    assert_array_equal(replace(wide, handicap=np.array([0.0, 0.3])).ranking, [0, 1])
    gone = replace(wide, shares=np.array([uneven, [0.5, 0.5, 0.0, 0.0]]))  # a concept without rows has no share
    assert_array_equal(gone.ranking, [0, 1])


def test_who_was_capped_in_a_few_rounds_is_not_held_at_the_end():
    """Silos that an early round of a start has capped have common numbers like all others."""
    capped = [("early", "often", "last")] * 4 + [("often",)] * 2 + [()] * 5 + [("last",)]
    history = [RoundRecord(n, *[0.0] * 4, 0, 0, 0, 0.0, capped=some) for n, some in enumerate(capped, start=1)]
    held = ("aside", "early", "last", "often", "refused")
    server = ServerState(held, held=held, aside=("aside",))
    assert METHOD.ended(server, history).held == ("aside", "last", "often", "refused")
