"""Phases before the first round: sums of columns, common units, sizes, graph."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from fmtc.errors import RefusedError
from fmtc.protocol.base import Nothing, pack
from fmtc.protocol.graph.opening import HELLO, PREPARE
from fmtc.protocol.units import MOMENTS, RESCALE
from fmtc.settings import Settings

GLOBAL, WORDS = Settings(2, scale="global"), Settings(2, scale="tfidf")


def test_what_leaves_a_client_in_each_phase(make_federation, play):
    data = make_federation(m=2, n=(50, 70), d=5)
    game = play(data, Settings(3))
    left = {}
    for phase in game.method.phases:
        for _ in game.turns(phase.name):
            answers = game.ask(phase.name)
            assert all(type(answer) is phase.Answer for answer in answers.values())
            left[phase.name] = [
                {name: getattr(value, "shape", ()) for name, value in pack(answer).items()}
                for answer in answers.values()
            ]
            game.reduce(phase.name, answers)
    numbers = {"n_samples": (), "n_features": (), "sum_of_squares": ()}
    assert left == {
        "hello": 2 * [numbers],
        "prepare": 2 * [{}],
        "round": 2 * [{"W": (5, 3), "cut": (), "misfit": ()}],
        "finish": 2 * [{"centers": (3, 3)}],
        "settle": 2 * [{
            "counts": (1, 3), "weights": (1, 3), "means": (1, 3, 3), "scatter": (1, 6), "spread": (1, 2, 3),
            "drift": (1, 2), "score": (1, 3),
        }],
        "number": 2 * [{"shares": (3,)}],
    }  # fmt: skip


def test_hello_says_three_numbers(make_federation, play):
    X = make_federation(m=1, n=50, d=5)["a"]
    answer = play({"a": X}, Settings(3)).ask("hello")["a"]
    assert (answer.n_samples, answer.n_features) == X.shape
    assert_allclose(answer.sum_of_squares, np.square(X - X.mean(axis=0)).sum(), rtol=1e-12)


# ------------------------------------------------------------------------------------------------------ common units


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_moments_are_those_of_the_client_and_units_those_of_all(make_federation, play, kind):
    data = make_federation(n=(20, 30, 40))
    game = play({cid: kind(X) for cid, X in data.items()}, replace(GLOBAL, n_clusters=3))
    answers = game.ask("moments")
    for cid, X in data.items():
        assert answers[cid].n_samples == len(X)
        if kind is np.asarray:
            assert_allclose(answers[cid].means, X.mean(axis=0), rtol=1e-12)
            assert_allclose(answers[cid].squares, np.square(X - X.mean(axis=0)).sum(axis=0), rtol=1e-12)
        else:
            assert answers[cid].means is None
            assert_allclose(answers[cid].squares, np.square(X).sum(axis=0), rtol=1e-12)
    game.reduce("moments", answers)
    whole = np.vstack(list(data.values()))
    ask = game.asks("rescale")["b"]
    if kind is np.asarray:
        assert_allclose(ask.shift, whole.mean(axis=0), rtol=1e-12)
        assert_allclose(ask.stretch, whole.std(axis=0), rtol=1e-12)
    else:
        assert ask.shift is None
        assert_allclose(ask.stretch, np.sqrt(np.square(whole).mean(axis=0)), rtol=1e-12)


def test_sums_of_another_kind_are_refused(play):
    """A client that sends what this scale does not need must not be added up with the others."""
    counted = MOMENTS.Answer(n_samples=3, document_counts=np.arange(4))
    summed = MOMENTS.Answer(n_samples=3, means=np.ones(4), squares=np.ones(4))
    game = play({}, GLOBAL)
    with pytest.raises(RefusedError, match="'b'"):
        MOMENTS.reduce(game.server, {"a": summed, "b": counted}, GLOBAL)
    with pytest.raises(RefusedError, match="'a'"):
        MOMENTS.reduce(game.server, {"a": summed, "b": counted}, WORDS)


@pytest.mark.parametrize(
    ("settings", "ask"),
    [
        (GLOBAL, RESCALE.Ask(stretch=np.ones(3))),  # of four columns
        (GLOBAL, RESCALE.Ask(stretch=np.ones(2), keep=np.array([0, 3]))),  # columns are kept in a run of words only
        (WORDS, RESCALE.Ask(stretch=np.ones(4))),
        (Settings(2), RESCALE.Ask(stretch=np.ones(4))),
    ],
    ids=["too few", "kept", "not kept", "no common units"],
)
def test_units_that_do_not_fit_the_run_are_refused(rng, play, settings, ask):
    game = play({"a": rng.normal(size=(20, 4)) ** 2}, settings)
    with pytest.raises(RefusedError):
        game.ask("rescale", {"a": ask})


def test_nobody_sums_up_columns_in_a_run_that_does_not_ask_for_it(rng, play):
    game = play({"a": rng.normal(size=(20, 4))}, Settings(2))
    assert (MOMENTS.times(game.server, game.settings), RESCALE.times(game.server, game.settings)) == (0, 0)
    with pytest.raises(RefusedError):
        game.ask("moments", {"a": Nothing()})


def test_units_come_before_what_needs_them(rng, play):
    game = play({"a": rng.normal(size=(20, 4))}, GLOBAL)
    for phase, ask in ((HELLO, Nothing()), (PREPARE, PREPARE.Ask(scale=1.0, ridge=0.1))):
        with pytest.raises(RefusedError, match="scaling"):
            game.ask(phase.name, {"a": ask})
    with pytest.raises(RuntimeError):
        game.asks("rescale")  # and the server cannot send them before it has them


def test_other_units_need_another_graph(rng, play):
    game = play({"a": rng.normal(size=(20, 4))}, GLOBAL)
    game.open()
    before = game.clients["a"]
    game.ask("rescale", {"a": RESCALE.Ask(stretch=np.array([1.0, 1.0, 100.0, 100.0]))})
    game.phase("prepare")
    assert (game.clients["a"].graph.laplacian != before.graph.laplacian).nnz > 0


# ------------------------------------------------------------------------------------------------------------- graph


def test_a_graph_in_parts_is_reported_with_its_meaning(rng, play):
    place = np.repeat([0, 1, 2], [25, 20, 15])
    X = 1000.0 * place[:, None] + rng.normal(size=(60, 3))
    for k in (4, 2):
        game = play({"north": X}, Settings(n_clusters=k, n_neighbors=5))
        with pytest.warns(UserWarning, match=r"silo 'north' .*25, 20, 15") as caught:
            game.open()
        numbers = [int(word) for word in re.findall(r"\d+", str(caught[0].message))]
        assert numbers == ([3, 25, 20, 15, 3, 4] if k == 4 else [3, 25, 20, 15, 2, 2])


def test_many_parts_are_not_all_listed(rng, play):
    X = 1000.0 * np.repeat(np.arange(10), 4)[:, None] + rng.normal(size=(40, 3))
    with pytest.warns(UserWarning, match=r" 10 .* 4, 4, 4, 4, 4, 4, 4, 4, \.\.\. rows"):
        play({"x": X}, Settings(n_clusters=2, n_neighbors=3)).open()


def test_a_second_start_keeps_graph_and_embedding(make_federation, play):
    game = play(make_federation(m=1), Settings(3)).open()
    before = game.clients["a"]
    game.ask("prepare", {"a": PREPARE.Ask(scale=0.5, ridge=0.1)})
    after = game.clients["a"]
    assert after.graph is before.graph
    assert after.F is before.F
    assert after.factors is not before.factors
