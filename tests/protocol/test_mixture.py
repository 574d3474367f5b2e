"""Phases of the mixture and of the choice between the views: sums that add up, what is refused, who decides."""

from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc import FMTC
from fmtc.errors import DataError, RefusedError
from fmtc.mixture import Personal, e_step, personal
from fmtc.mixture.starts import CATEGORY_WEIGHT, is_centred
from fmtc.protocol.auto import PROBE
from fmtc.protocol.base import Nothing, dropped, pack
from fmtc.protocol.choice import MIN_ENTROPY, MIN_GAIN
from fmtc.protocol.method import view_method
from fmtc.protocol.mixture.em import EM, pool_of, statistics_of
from fmtc.protocol.mixture.opening import AXES, COORDINATES, SEED, SEED_STEPS, n_axes
from fmtc.protocol.mixture.state import MixtureServer, Seeding, common_of
from fmtc.protocol.mixture.view import CONCLUDE
from fmtc.protocol.state import ServerState
from fmtc.protocol.units import MOMENTS, RESCALE
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

SIZES = {"a": 40, "b": 55, "c": 30}
LEVELS = (0, 0, 3, 0, 2)


def rows(n, seed, d=4, shift=0.0):
    """Three groups in d columns."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 4 * np.eye(3, d)[rng.integers(3, size=n)] + shift


def mixed(n, seed):
    """Numbers and two categories, with missing cells."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rows(n, seed, 3)[:, :2], rng.integers(3, size=n), rng.normal(size=n), rng.integers(2, size=n)])
    X[rng.random(X.shape) < 0.15] = np.nan
    return X


def wide(n, seed, shift=0.0):
    """Sixty columns whose variances fall from one direction to the next."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(99).normal(size=(60, 60)))[0]
    return (rng.normal(size=(n, 60)) * 0.7 ** np.arange(60)) @ turn.T + shift


PLAIN = {cid: rows(n, seed, shift=0.4 * seed) for seed, (cid, n) in enumerate(SIZES.items())}
MIXED = {cid: mixed(n, seed) for seed, (cid, n) in enumerate(SIZES.items())}
WIDE = {cid: wide(n, seed, shift=10.0 * seed) for seed, (cid, n) in enumerate(SIZES.items())}
SPARSE = {cid: sp.csr_array(np.where(X > 0.2, X, 0)) for cid, X in WIDE.items()}
TABLES = {
    "numbers": (PLAIN, {}),
    "categories and missing cells": (MIXED, {"levels": LEVELS}),
    "many columns": (WIDE, {}),
    "sparse": (SPARSE, {}),
}
each_table = pytest.mark.parametrize("table", TABLES)


class Game:
    """A federation by hand, up to some phase of a view."""

    def __init__(self, data, view="mixture", weights=None, **changed):
        self.settings = Settings(**{"n_clusters": 3, "view": view, "scale": "auto", "n_init": 2} | changed)
        self.method = view_method(view)
        self.clients = {cid: self.method.open_client(cid, X, self.settings, "cpu") for cid, X in data.items()}
        self.server = self.method.open_server(tuple(data), self.settings, weights)
        self.n_rounds = 0

    def ask(self, phase):
        """Answers of all clients, which take the step."""
        answers = {}
        for cid, ask in phase.asks(self.server, self.settings).items():
            phase.check_ask(ask, self.method.sizes(self.clients[cid], self.settings))
            self.clients[cid], answers[cid] = phase.reply(self.clients[cid], ask, self.settings, self.n_rounds + 1)
            phase.check_answer(answers[cid], ask, self.method.sizes(self.clients[cid], self.settings))
        return answers

    def reduce(self, phase, answers):
        """The server takes the step."""
        found = phase.reduce(self.server, dict(answers), self.settings)
        self.server = found[0] if phase is EM else found
        self.n_rounds += phase is EM

    def before(self, last, rounds=0):
        """All phases before one; `rounds` of the mixture, where it is the loop."""
        for phase in self.method.phases:
            if phase is last:
                return self
            turn = 0
            while turn < (rounds if phase is EM else phase.times(self.server, self.settings)):
                self.reduce(phase, self.ask(phase))
                turn += 1
        raise AssertionError("there is no such phase")


def game_of(table, **changed):
    data, settings = TABLES[table]
    return Game(data, **settings | changed)


def total(parts):
    """One answer with the sums of several."""
    kind, packed = type(parts[0]), [pack(part) for part in parts]
    return kind(**{name: sum(values[name] for values in packed) for name in packed[0]})


def nothing(answer):
    return type(answer)(**{name: 0 * value for name, value in pack(answer).items()})


def assert_same_server(one, other, rtol=1e-9):
    assert type(one) is type(other)
    if isinstance(one, MixtureServer):
        one, other = one.mixture, other.mixture
    elif isinstance(one, Seeding):
        one, other = one.seeds, other.seeds
    for f in fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if isinstance(a, np.ndarray):
            assert_allclose(a, b, rtol=rtol, atol=rtol, err_msg=f.name)
        else:
            assert a == b or a == pytest.approx(b, rel=rtol), f.name


# ------------------------------------------------------------------------------------------------------- sums, no more


@each_table
@pytest.mark.parametrize("phase", [AXES, COORDINATES, SEED, EM], ids=lambda phase: phase.name)
def test_the_server_needs_nothing_but_the_sum_of_the_answers(phase, table):
    """Who sent what, and in which order, makes no difference: as when sums are all that the server can open.

    Nobody can be compared with others then.
    """
    if phase is AXES and table in ("numbers", "categories and missing cells"):
        pytest.skip("columns are few")
    game = game_of(table).before(phase)
    answers = game.ask(phase)
    (first, *others) = answers.values()
    summed = {"a": nothing(first), "b": total([first, *others]), "c": nothing(first)}
    settings = replace(game.settings, contain=False)

    def reduced(said):
        found = phase.reduce(game.server, said, settings)
        return found[0] if phase is EM else found

    expected = reduced(dict(answers))
    assert_same_server(reduced(summed), expected)
    assert_same_server(reduced(dict(reversed(answers.items()))), expected, rtol=0)


@each_table
@pytest.mark.parametrize("phase", [COORDINATES, SEED, EM, CONCLUDE], ids=lambda phase: phase.name)
def test_the_same_question_has_the_same_answer(phase, table):
    """A reply leaves the state it started from as it was."""
    game = game_of(table).before(phase)
    for cid, ask in phase.asks(game.server, game.settings).items():
        (one, said), (other, again) = (phase.reply(game.clients[cid], ask, game.settings, 1) for _ in range(2))
        for name, value in pack(said).items():
            assert_array_equal(value, pack(again)[name])
        for name in ("starts", "counts", "sums", "tallies", "shifts", "labels"):
            if hasattr(one, name):
                assert_array_equal(getattr(one, name), getattr(other, name))


# --------------------------------------------------------------------------------------------------------------- axes


def test_axes_are_those_of_the_covariance_about_the_silos_means():
    """Whatever lies between the silos: one of them is far from the others, and the axes do not look there."""
    game = Game(WIDE).before(COORDINATES)
    axes = game.server.axes[:, : n_axes(game.settings)]
    scaled = [(X - game.server.scaling.shift) / game.server.scaling.stretch for X in WIDE.values()]
    within = sum((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) for X in scaled)
    expected = np.linalg.eigh(within)[1][:, ::-1][:, : axes.shape[1]]
    assert_allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=1e-12)
    cosines = np.abs((axes * expected).sum(axis=0))
    assert cosines[:5].min() > 1 - 1e-6
    assert cosines.min() > 0.99
    peaks = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    assert (peaks > 0).all()  # a sign that no rounding decides
    union = np.vstack(scaled)
    assert abs(np.linalg.eigh(union.T @ union)[1][:, -1] @ axes[:, 0]) < 0.5  # where all rows vary most


def test_axes_of_sparse_rows_are_about_their_mean_as_well():
    game = Game(SPARSE).before(COORDINATES)
    dense = {cid: X.toarray() for cid, X in SPARSE.items()}
    within = sum((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) for X in dense.values())
    expected = np.linalg.eigh(within)[1][:, -1]
    assert abs(game.server.axes[:, 0] @ expected) > 1 - 1e-6
    union = np.vstack(list(dense.values()))
    assert_allclose(game.server.origin, union.mean(axis=0) @ game.server.axes, atol=1e-10)
    assert game.ask(COORDINATES)["a"].sums.shape == (n_axes(game.settings),)
    cells = np.vstack([game.clients[cid].cells.Z for cid in SPARSE])
    assert_allclose(cells.mean(axis=0), 0, atol=1e-10)  # rows begin at the common mean


def test_a_run_of_few_columns_has_no_axes():
    assert AXES.times(Game(PLAIN).before(AXES).server, Settings(3, view="mixture")) == 0
    game = Game(SPARSE).before(AXES)
    assert AXES.times(game.server, game.settings) > 0
    basis = {cid: ask.basis for cid, ask in AXES.asks(game.server, game.settings).items()}
    assert basis["a"] is basis["b"]
    assert_allclose(basis["a"].T @ basis["a"], np.eye(basis["a"].shape[1]), atol=1e-12)
    other = replace(game.settings, seed=5)
    assert np.abs(AXES.asks(game.server, other)["a"].basis - basis["a"]).max() > 0.1


# -------------------------------------------------------------------------------------------------------- coordinates


def in_coordinates(game, data):
    """Rows as the starts see them: numbers in common units with gaps at the mean, then levels; and the silo of each."""
    shift, stretch = game.server.scaling.shift, game.server.scaling.stretch
    found = []
    for X in data.values():
        levels = game.settings.levels or (0,) * X.shape[1]
        numbers = [j for j, size in enumerate(levels) if not size]
        Z = (X[:, numbers] - shift[: len(numbers)]) / stretch[: len(numbers)]
        codes = [CATEGORY_WEIGHT * (X[:, [j]] == np.arange(size)) for j, size in enumerate(levels) if size]
        found.append(np.hstack([np.nan_to_num(Z), *codes]))
    return found


@pytest.mark.parametrize("table", ["numbers", "categories and missing cells"])
def test_moments_of_coordinates_are_those_of_all_rows(table):
    game = game_of(table).before(SEED)
    parts, mixture = in_coordinates(game, TABLES[table][0]), game.server.seeds
    union = np.vstack(parts)
    assert game.server.n_samples == len(union)
    assert_allclose(mixture.mean, union.mean(axis=0), atol=1e-12)
    assert_allclose(mixture.total, np.cov(union.T, bias=True), atol=1e-12)
    about_own = np.vstack([part - part.mean(axis=0) for part in parts])
    assert_allclose(mixture.within, np.cov(about_own.T, bias=True), atol=1e-12)


def test_sparse_rows_without_axes_are_refused():
    game = Game(SPARSE).before(COORDINATES)
    with pytest.raises(RefusedError, match="principal axes"):
        COORDINATES.reply(game.clients["a"], COORDINATES.Ask(), game.settings, 0)


def test_columns_that_never_vary_are_refused():
    game = Game({cid: rows(n, 0)[:, :3] for cid, n in SIZES.items()})
    for cid, client in game.clients.items():  # a silo refuses such rows at home
        game.clients[cid] = replace(client, X=np.ones_like(client.X))
    game.before(COORDINATES)
    with pytest.raises(DataError, match="constant in all silos"):
        game.reduce(COORDINATES, game.ask(COORDINATES))


# ------------------------------------------------------------------------------------------------------------- starts


@pytest.mark.parametrize("table", ["numbers", "categories and missing cells"])
def test_a_step_of_the_starts_is_one_of_k_means_over_all_rows(table):
    """Every second start sees rows about the mean of their own silo."""
    game = game_of(table).before(SEED)
    parts, seeds = in_coordinates(game, TABLES[table][0]), game.server.seeds
    views = [np.vstack(parts), np.vstack([part - part.mean(axis=0) for part in parts])]
    game.reduce(SEED, game.ask(SEED))
    for s, centers in enumerate(seeds.centers):
        X, weight = views[is_centred(s)], np.sqrt(seeds.weights[s])
        gaps = np.linalg.norm((X[:, None] - centers) * weight, axis=2)
        labels = gaps.argmin(axis=1)
        for j in np.unique(labels):
            assert_allclose(game.server.seeds.centers[s, j], X[labels == j].mean(axis=0), atol=1e-10)


def test_starts_end_in_parameters_that_an_e_step_can_take():
    game = game_of("categories and missing cells").before(EM)
    mixture = game.server.mixture
    assert len(mixture.keep) >= 4
    assert np.linalg.eigvalsh(mixture.covariance).min() > 0
    assert_allclose(mixture.shares.sum(axis=1), 1)
    assert_allclose(mixture.profiles[..., :3].sum(axis=2), 1)
    for client in game.clients.values():
        assert_allclose(client.counts.sum(axis=1), len(client.X))
        assert_array_equal(client.starts, mixture.keep)
    assert SEED.times(game.server, game.settings) == SEED_STEPS


# ---------------------------------------------------------------------------------------------------------- the rounds


def test_a_client_that_missed_rounds_goes_on_with_the_right_start():
    """Starts keep their numbers: it does not matter when a client heard that some were dropped."""
    game = Game(PLAIN).before(CONCLUDE, rounds=3)
    client, ask = game.clients["b"], EM.asks(game.server, game.settings)["b"]
    some = replace(ask, **{name: value[[1, 3]] for name, value in pack(ask).items()})
    knows = replace(client, **{name: getattr(client, name)[[1, 3]] for name in
                               ("starts", "counts", "sums", "tallies", "shifts")})  # fmt: skip
    (after, one), (_, other) = (EM.reply(state, some, game.settings, 4) for state in (client, knows))
    assert_array_equal(one.means, other.means)
    assert_array_equal(one.score, other.score)
    assert_array_equal(after.starts, [1, 3])
    last = replace(some, **{name: value[1:] for name, value in pack(some).items()})
    assert_array_equal(statistics_of(after, last.keep)[0].sums, after.sums[1])
    with pytest.raises(RefusedError, match="start 0 "):
        EM.reply(after, replace(last, keep=np.array([0])), game.settings, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"covariance": np.array([[[1.0, 2.0], [2.0, 1.0]]])},
        {"shares": np.array([[0.5, 0.6]])},
        {"shares": np.array([[1.0, 0.0]])},
        {"spread": np.array([[-0.1, 0.1]])},
        {"drift": np.array([-1.0])},
        {"means": np.zeros((1, 3, 2))},
        {"means": np.full((1, 2, 2), np.nan)},
        {"covariance": np.eye(3)[None]},
        {"keep": np.array([0, 1])},
        {"keep": np.array([0.0])},
        {"profiles": np.zeros((1, 2, 3))},
    ],
    ids=lambda wrong: f"{next(iter(wrong))} {next(iter(wrong.values())).shape}",
)
def test_parameters_that_are_none_are_refused(wrong):
    good = {
        "keep": np.array([0]), "means": np.zeros((1, 2, 2)), "covariance": np.eye(2)[None],
        "shares": np.array([[0.4, 0.6]]), "spread": np.full((1, 2), 0.1), "drift": np.ones(1),
    }  # fmt: skip
    EM.check_ask(EM.Ask(**good), {"k": 2})
    with pytest.raises(RefusedError):
        EM.check_ask(EM.Ask(**good | wrong), {"k": 2})
    order = np.arange(2)
    CONCLUDE.check_ask(CONCLUDE.Ask(**good, order=order), {"k": 2})
    with pytest.raises(RefusedError):
        CONCLUDE.check_ask(CONCLUDE.Ask(**good | wrong, order=order), {"k": 2})


@pytest.mark.parametrize("order", [[0, 0], [0], [1, 2], [0, 1, 2]])
def test_numbers_of_concepts_are_an_order(order):
    good = {
        "keep": np.array([0]), "means": np.zeros((1, 2, 2)), "covariance": np.eye(2)[None],
        "shares": np.array([[0.4, 0.6]]), "spread": np.full((1, 2), 0.1), "drift": np.ones(1),
    }  # fmt: skip
    with pytest.raises(RefusedError, match="order"):
        CONCLUDE.check_ask(CONCLUDE.Ask(**good, order=np.array(order)), {"k": 2})


@pytest.mark.parametrize(("phase", "lacks"), [(SEED, "cells"), (EM, "cells"), (CONCLUDE, "cells")])
def test_phases_of_the_mixture_that_come_too_early_are_refused(phase, lacks):
    game = Game(PLAIN).before(phase)
    fresh = game.method.open_client("a", PLAIN["a"], game.settings, "cpu")
    with pytest.raises(RefusedError, match=f"came too early: .*{lacks}"):
        phase.reply(fresh, phase.asks(game.server, game.settings)["a"], game.settings, 1)
    if phase is not SEED:
        begun = Game(PLAIN).before(SEED).clients["a"]
        with pytest.raises(RefusedError, match=": starts, counts"):
            phase.reply(begun, phase.asks(game.server, game.settings)["a"], game.settings, 1)


@pytest.mark.parametrize("table", ["numbers", "categories and missing cells"])
def test_a_weight_counts_the_rows_of_a_client_so_many_times(table):
    """In what is common, not in the client's own parameters; equal weights change nothing."""
    data, settings = TABLES[table]
    game = Game(data, **settings).before(CONCLUDE, rounds=1)
    answers = game.ask(EM)
    weighed = replace(game.server, weights={"a": 4.0, "b": 1.0, "c": 1.0})
    found = EM.reduce(weighed, dict(answers), game.settings)[0]
    factors = {"a": 2.0, "b": 0.5, "c": 0.5}  # 1 on average
    times = {
        cid: type(answer)(**{name: factors[cid] * value for name, value in pack(answer).items()})
        for cid, answer in answers.items()
    }
    expected = EM.reduce(game.server, times, game.settings)[0]
    assert_same_server(found, expected, rtol=1e-12)
    plain = EM.reduce(game.server, dict(answers), game.settings)[0]
    assert np.abs(plain.mixture.means - found.mixture.means).max() > 1e-3
    alike = replace(game.server, weights=dict.fromkeys("abc", 0.3))
    assert_same_server(EM.reduce(alike, dict(answers), game.settings)[0], plain, rtol=0)


def test_rounds_end_where_the_likelihood_hardly_changes_and_say_so():
    noise = {cid: np.random.default_rng(seed).normal(size=(n, 4)) for seed, (cid, n) in enumerate(SIZES.items())}
    model = FMTC(4, view="mixture", random_state=1).fit(noise)
    assert model.converged_
    assert 25 < model.n_iter_ < 100  # the comparison of starts is long over
    assert "log-likelihood per row changed by less than 1e-06" in model.run_.stopped_because
    last, before = model.run_.rounds[-1].objective, model.run_.rounds[-2].objective
    assert abs(last - before) < 1e-6 * max(1, abs(last))
    assert abs(before - model.run_.rounds[-3].objective) >= 1e-6 * max(1, abs(before))
    short = FMTC(3, view="mixture", max_iter=2, random_state=0).fit(PLAIN)
    assert (short.n_iter_, short.converged_) == (8, False)
    assert "8 rounds of the mixture done" in short.run_.stopped_because


def test_answers_of_other_shapes_than_the_tables_are_dropped_and_do_not_end_the_run():
    """Sizes that only the server knows are not those of a declaration."""
    table = "categories and missing cells"
    game = game_of(table).before(COORDINATES)
    said = game.ask(COORDINATES)["a"]
    short = {name: value[..., :-1] for name, value in pack(said).items() if isinstance(value, np.ndarray)}
    short |= {name: short[name][:-1] for name in ("within", "between")}
    game = game_of(table).before(EM)
    found, cut = game.ask(EM)["a"], lambda name: {name: getattr(found, name)[..., :-1]}
    wrong = [cut("scatter"), cut("level_weights"), {"level_weights": None}, {"levels": None, "level_weights": None}]
    cases = [(EM, game.server, replace(found, **change)) for change in wrong]
    for phase, server, answer in [
        *cases,
        (COORDINATES, game_of(table).before(COORDINATES).server, replace(said, **short)),
    ]:
        phase.check_answer(answer, Nothing(), {})
        why = dropped(phase, server, {"*": answer}, game.settings)  # a silo may have any name
        assert "has" in why["*"]
    assert not dropped(EM, game.server, {"a": found}, game.settings)


# ------------------------------------------------------------------------------------------------------------- the end


def test_a_run_that_ends_before_starts_are_compared_takes_the_best():
    seen = set()
    for seed in range(6):
        game = Game(PLAIN, seed=seed, n_clusters=5).before(CONCLUDE, rounds=4)
        mixture = game.server.mixture
        best = int(np.argmax(mixture.scores - mixture.handicap))
        seen.add(best)
        ask = CONCLUDE.asks(game.server, game.settings)["a"]
        assert_array_equal(ask.means, mixture.means[[best]])
        assert_array_equal(ask.keep, mixture.keep[[best]])
        game.ask(CONCLUDE)
        assert_array_equal(game.clients["a"].model.covariance, mixture.covariance[best])
        assert_array_equal(game.server.kappa, 1 / mixture.spread[best])
        assert_array_equal(game.method.common(game.server)["means"], mixture.means[best])
    assert seen != {0}


def test_concepts_are_numbered_by_size_and_models_label_as_predict_does():
    game = Game(MIXED, levels=LEVELS).before(CONCLUDE, rounds=25)
    shares = game.server.mixture.shares[0]
    ask = CONCLUDE.asks(game.server, game.settings)["a"]
    assert (np.diff(shares[ask.order]) <= 0).all()
    game.ask(CONCLUDE)
    for cid, client in game.clients.items():
        assert_array_equal(client.model.assign(MIXED[cid]), client.labels)
        assert_allclose(client.model.shares.sum(), 1)
        assert client.model.fits(5, 3)
        assert not client.model.fits(4, 3)


def test_a_client_of_few_clusters_fits_those_it_keeps_again_at_home():
    game = game_of("numbers", n_clusters=6, clusters_per_silo=3, own=False).before(CONCLUDE, rounds=25)
    client, ask = game.clients["a"], CONCLUDE.asks(game.server, game.settings)["a"]
    pool, (own, *_) = pool_of(game.settings), statistics_of(client, ask.keep)
    before = personal(common_of(ask), own, (), pool.concentration, lean=True)
    assert (before.shares > 0.01).sum() > client.k
    kept = CONCLUDE.reply(client, ask, game.settings, 30)[0].model
    assert (~kept.lacks).sum() == client.k
    dropped = np.where(kept.lacks, 0, before.shares[ask.order])
    dropped = replace(before, means=before.means[ask.order], shares=dropped / dropped.sum())
    refitted = Personal(kept.means, kept.shares, dropped.profiles)
    likely = [e_step(client.cells, one, kept.covariance).log_likelihood for one in (refitted, dropped)]
    assert likely[0] > likely[1] + 1


# ---------------------------------------------------------------------------------------------------- choosing the view


def said(shapes=False, gain=0.0, entropy=1.0):
    return PROBE.Answer(shapes=shapes, gain=gain, entropy=entropy)


FEW = ServerState(("a", "b"), n_features=3, lifted=True)
MANY = ServerState(("a", "b"), n_features=80, wide=True)


@pytest.mark.parametrize(
    ("server", "answers", "view", "why"),
    [
        (FEW, (said(), said()), "mixture", "3 columns, and no shapes"),
        (FEW, (said(shapes=True), said()), "graph", "rows of 1 of 2 silos"),
        (FEW, (said(gain=0.5), said(gain=0.5)), "mixture", "no shapes"),
        (MANY, (said(gain=MIN_GAIN), said(gain=MIN_GAIN)), "mixture", "80 columns, but in the mixture 5 % more"),
        (MANY, (said(gain=0.12), said(gain=0.0)), "mixture", "6 % more"),
        (MANY, (said(gain=0.2, entropy=MIN_ENTROPY - 0.01),) * 2, "graph", "one giant cluster"),
        (MANY, (said(gain=-0.3), said(gain=0.1)), "graph", "10 % fewer"),
        (MANY, (said(gain=0.04), said(gain=0.04)), "graph", "4 % more"),
        (MANY, (said(shapes=True),) * 2, "graph", "as many neighbours"),
    ],
)
def test_who_decides_the_view(server, answers, view, why):
    after = PROBE.reduce(server, dict(zip("ab", answers, strict=True)), Settings(3, view="auto"))
    assert after.view == view
    assert why in after.why


@pytest.mark.parametrize(
    "wrong", [{"shapes": 1}, {"gain": np.nan}, {"entropy": None}, {"gain": "0"}], ids=lambda wrong: next(iter(wrong))
)
def test_verdicts_that_are_none_are_refused(wrong):
    PROBE.check_answer(said(), Nothing(), {})
    with pytest.raises(RefusedError):
        PROBE.check_answer(PROBE.Answer(**{"shapes": True, "gain": 0.0, "entropy": 1.0} | wrong), Nothing(), {})


class Phases(LocalTransport):
    """Real clients; keeps the names of the phases they were asked."""

    def exchange(self, messages):
        self.seen = [*getattr(self, "seen", []), next(iter(messages.values())).phase]
        return super().exchange(messages)


def phases(data, **changed):
    settings = Settings(**{"n_clusters": 3, "view": "auto", "scale": "auto", "max_iter": 2, "n_init": 1} | changed)
    method = view_method("auto")
    transport = Phases(data, settings, method=method)
    result = run(transport, settings, method=method)
    return list(dict.fromkeys(transport.seen)), result.server


@pytest.mark.filterwarnings("ignore:the labels of .* do not follow")
def test_only_what_the_choice_needs_is_asked():
    opening, graph = ["moments", "rescale"], ["hello", "prepare", "round", "finish", "settle", "number"]
    seen, server = phases(MIXED, levels=LEVELS)  # categories: nothing to choose
    assert seen == [*opening, "coordinates", "seed", "em", "conclude"]
    assert (server.view, server.why) == ("mixture", "a table of 5 columns")
    seen, server = phases({cid: X[:12] for cid, X in WIDE.items()})  # too few rows for a mixture
    assert seen == [*opening, *graph]
    assert server.view == "graph"
    assert "needs more than 4 rows of a silo for each cluster" in server.why
    seen, server = phases(PLAIN)  # few numbers: are there shapes?
    assert seen == [*opening, "coordinates", "seed", "em", "probe", "conclude"]
    seen, server = phases(WIDE)
    assert seen[:7] == [*opening, "axes", "coordinates", "seed", "em", "probe"]
    assert seen[7:] == (graph if server.view == "graph" else ["conclude"])


def test_a_comparison_changes_nothing_and_warns_nobody():
    """A silo with parts far apart, and one whose rows are all equal, which speaks for neither view."""
    islands = np.vstack([rows(30, 0) + far for far in (0, 300, 600)])
    game = Game({"a": islands, "flat": rows(40, 0)}, "auto")
    game.clients["flat"] = replace(game.clients["flat"], X=np.full((40, 4), 7.0))  # no silo opens with such rows
    game.before(PROBE, rounds=3)
    assert PROBE.times(game.server, game.settings) == 1
    before = dict(game.clients)
    answers = game.ask(PROBE)
    assert all(game.clients[cid] is before[cid] for cid in before)
    assert (answers["flat"].shapes, answers["flat"].gain) == (False, 0.0)
    assert MOMENTS.times(game.server, game.settings) == RESCALE.times(game.server, game.settings) == 1
