"""Clusters of the silos' own in the mixture view: as starts of all, and at home in place of the common ones."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC, Mixture
from fmtc.artifacts import runs
from fmtc.mixture import Cells
from fmtc.mixture.steps import Common
from fmtc.protocol.mixture.em import EM, with_own
from fmtc.protocol.mixture.own import APART, OWN, own_start
from fmtc.protocol.mixture.state import MixtureServer
from fmtc.protocol.mixture.view import CONCLUDE
from fmtc.report import summarise
from fmtc.tables import Silo

from .test_mixture import game_of

CENTERS = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def blobs(rng, n, centers=CENTERS):
    y = rng.integers(len(centers), size=n)
    return centers[y] + rng.normal(size=(n, centers.shape[1])), y


def cells_of(X, codes=None, levels=()):
    return Cells(X, np.zeros((len(X), 0), np.int64) if codes is None else codes, levels)


def common_at(means, profiles=None):
    k = len(means)
    profiles = np.zeros((k, 0)) if profiles is None else profiles
    return Common(means, np.full(k, 1 / k), profiles, np.eye(means.shape[1]), np.ones(k), 1.0)


def differing(m, n, seed=0):
    """Silos with means of their own; and the groups."""
    rng = np.random.default_rng(seed)
    found = {f"s{t:02d}": blobs(rng, n, 3.5 * rng.normal(size=(3, 4))) for t in range(m)}
    return {cid: X for cid, (X, _) in found.items()}, {cid: y for cid, (_, y) in found.items()}


def agreement(labels, y):
    return np.mean([adjusted_rand_score(y[cid], labels[cid]) for cid in y])


# ------------------------------------------------------------------------------------------------------------- a start


def test_own_clusters_take_the_numbers_of_the_nearest_common_ones():
    X, y = blobs(np.random.default_rng(0), 200)
    order = [2, 0, 1]
    mine = own_start(cells_of(X), common_at(CENTERS[order] + 1.0), 3, 4, 0)
    assert_allclose(mine.means, [X[y == j].mean(axis=0) for j in order], atol=0.15)
    assert mine.shares.sum() == pytest.approx(1)


def test_a_silo_of_fewer_clusters_lacks_the_others():
    X, _ = blobs(np.random.default_rng(0), 200, CENTERS[:2])
    mine = own_start(cells_of(X), common_at(CENTERS), 2, 4, 0)
    assert_allclose(mine.means[2], CENTERS[2])
    assert mine.shares[2] < 1e-9 < mine.shares[:2].min()


def test_categories_make_clusters_too():
    codes = np.repeat([[0], [1]], 30, axis=0)
    profiles = np.array([[0.2, 0.8], [0.8, 0.2]])
    mine = own_start(cells_of(np.zeros((60, 0)), codes, (2,)), common_at(np.zeros((2, 0)), profiles), 2, 2, 0)
    assert_allclose(mine.profiles.sum(axis=1), 1)
    assert mine.profiles[0, 1] > 0.95 and mine.profiles[1, 0] > 0.95


def test_two_starts_of_the_silos_own_join_after_ten_rounds_and_one_start_is_left_after_twenty():
    game = game_of("numbers").before(CONCLUDE, rounds=10)
    mixture = game.server.mixture
    assert_array_equal(mixture.keep[-2:], [OWN, APART])
    assert len(mixture.keep) == 5
    for _ in range(3):
        game.reduce(EM, game.ask(EM))
    apart_now, whole = game.server.mixture.covariance[-1], game.server.mixture.covariance[-2]
    assert_allclose(apart_now, np.diag(np.diag(apart_now)))
    assert np.abs(whole - np.diag(np.diag(whole))).max() > 0.01
    for _ in range(7):
        game.reduce(EM, game.ask(EM))
    assert len(game.server.mixture.keep) == 1


@pytest.mark.parametrize(("table", "changed"), [("numbers", {"own": False}), ("many columns", {})])
def test_no_such_start_where_it_is_not_wanted_or_axes_are_principal(table, changed):
    game = game_of(table, **changed).before(CONCLUDE, rounds=11)
    assert (game.server.mixture.keep >= 0).all()


def test_the_start_without_covariances_is_ahead_by_an_information_criterion():
    mixture = game_of("numbers").before(CONCLUDE, rounds=10).server.mixture
    common = replace(mixture, **{name: getattr(mixture, name)[:3] for name in ("keep", "scores", "handicap")})
    common = replace(common, **{name: getattr(mixture, name)[:3] for name in vars(mixture.common(0))})
    handicap = with_own(common, 400).handicap
    assert_allclose(handicap[-2:], [0.0, -0.5 * 6 * np.log(400) / 400])  # six covariances of four columns
    floor = np.array([0.0, 0.5, 0.0, 0.0])
    assert_allclose(with_own(replace(common, floor=floor), 400).handicap[-1] * 400 / np.log(400), -3.0)
    assert replace(common, floor=floor).apart[1] == 0.5


def test_a_start_that_spends_its_clusters_on_a_few_rows_must_be_that_much_better():
    mixture = game_of("numbers").before(CONCLUDE, rounds=10).server.mixture
    two = replace(mixture, **{name: getattr(mixture, name)[[0, 3]] for name in ("keep", "scores", "handicap")})
    two = replace(two, **{name: getattr(mixture, name)[[0, 3]] for name in vars(mixture.common(0))})
    shares = np.array([[0.4, 0.35, 0.25], [0.98, 0.01, 0.01]])
    assert two.keep.tolist()[1] == OWN
    lone = replace(two, shares=shares, scores=np.array([-5.0, -4.5]))
    assert lone.leader == 0
    assert replace(lone, scores=np.array([-5.0, -3.5])).leader == 1
    assert replace(lone, shares=shares[[0, 0]]).leader == 1


def test_a_silo_that_heard_nothing_of_its_start_begins_it_when_it_is_asked():
    game = game_of("numbers").before(CONCLUDE, rounds=10)
    before = dict(game.clients)
    game.reduce(EM, game.ask(EM))
    cid, *_ = game.clients
    own = replace(game.server, mixture=replace(game.server.mixture, scores=np.array([0.0, 0, 0, 99, 0])))
    game.server, game.clients[cid] = replace(own, mixture=own.mixture.best(1)), before[cid]
    assert_array_equal(game.server.mixture.keep, [OWN])
    assert isinstance(game.server, MixtureServer)
    after, _ = CONCLUDE.reply(before[cid], CONCLUDE.asks(game.server, game.settings)[cid], game.settings, 12)
    assert len(np.unique(after.labels)) == 3
    game.reduce(EM, game.ask(EM))  # and in a round


@pytest.mark.parametrize("privacy", [None, "sums"])
def test_silos_that_differ_are_clustered_as_each_alone(privacy):
    X, y = differing(8, 50)
    found, without = (
        FMTC(3, view="mixture", privacy=privacy, random_state=0, mixture=Mixture(own=own, n_init=3)).fit_predict(X)
        for own in (True, False)
    )
    assert agreement(found, y) > 0.93
    assert agreement(without, y) < agreement(found, y) - 0.05


# ------------------------------------------------------------------------------------------------------------- at home


def odd_one_out():
    """Clusters of one silo in four lie side by side the other way, and means are to be the same everywhere.

    The run ends before the silos' own starts join.
    """
    rng, line = np.random.default_rng(1), np.array([[-7.0, 0.0], [0.0, 0.0], [7.0, 0.0]])
    X = {cid: blobs(rng, 90, line)[0] for cid in ("east", "north", "south")}
    X["west"], y = blobs(rng, 90, line[:, ::-1])
    return X, y, FMTC(3, view="mixture", random_state=0, max_iter=2, mixture=Mixture(kappa=np.inf, n_init=3))


@pytest.mark.filterwarnings("ignore:The server capped")
def test_a_silo_keeps_clusters_of_its_own_that_predict_its_rows_better():
    X, y, model = odd_one_out()
    labels = model.fit_predict(X)
    assert model.run_.choices == {"east": "federated", "north": "federated", "south": "federated", "west": "alone"}
    assert adjusted_rand_score(y, labels["west"]) > 0.95
    assert_array_equal(model.predict(X)["west"], labels["west"])
    assert set(np.unique(labels["west"])) == {0, 1, 2}
    common = model.set_params(mixture__own=False).fit_predict(X)
    assert set(model.run_.choices.values()) == {"federated"}
    assert adjusted_rand_score(y, common["west"]) < 0.8
    for cid in ("east", "north", "south"):
        assert adjusted_rand_score(common[cid], labels[cid]) == 1


@pytest.mark.filterwarnings("ignore:The server capped")
@pytest.mark.parametrize("contain", [True, False])
def test_one_silo_that_differs_from_many_that_are_alike_is_clustered_as_alone(contain):
    """Where most silos agree, pooling is strong; the odd one would be drawn to clusters that it does not have."""
    X, y, _ = odd_one_out()
    model = FMTC(3, view="mixture", random_state=0, mixture=Mixture(n_init=3, contain=contain))
    assert adjusted_rand_score(y, model.fit_predict(X)["west"]) > 0.95


@pytest.mark.filterwarnings("ignore:The server capped", "ignore::fmtc.errors.RowsWarning")
def test_a_silo_in_other_units_keeps_what_it_finds_alone():
    rng = np.random.default_rng(2)
    found = {cid: blobs(rng, 80) for cid in ("east", "north", "south", "west")}
    X = {cid: rows * (1000 if cid == "west" else 1) for cid, (rows, _) in found.items()}
    model = FMTC(3, view="mixture", random_state=0, mixture=Mixture(n_init=3))
    labels = model.fit_predict(X)
    assert model.run_.held == ("west",)
    assert model.run_.choices["west"] == "alone"
    assert all(adjusted_rand_score(y, labels[cid]) > 0.95 for cid, (_, y) in found.items())


def test_one_silo_has_nothing_to_compare_with():
    X, _ = blobs(np.random.default_rng(0), 100)
    assert FMTC(3, view="mixture", random_state=0).fit({"only": X}).run_.choices == {"only": "federated"}


def test_explanations_and_pages_begin_with_who_differs(tmp_path):
    rng = np.random.default_rng(0)
    X = {cid: blobs(rng, 40)[0] for cid in ("east", "west")}
    model = FMTC(3, view="mixture", random_state=0, mixture=Mixture(n_init=2)).fit(X)
    model.run_ = replace(model.run_, choices={"east": "federated", "west": "alone"})
    said = "'west' differs: its own clusters predict its rows better than the common ones, so it keeps its own."
    assert model.explain(X).notes == (said,)
    assert model.explain({"east": X["east"]}).notes == ()
    silos = [Silo(cid, rows, None, np.arange(len(rows))) for cid, rows in X.items()]
    results = runs.results(model, silos)
    report = runs.report(model, results, files=[], as_published=False, seconds=1.0, notes=[])
    runs.write_run(tmp_path / "run", False, model, results, report)
    assert summarise(tmp_path / "run")["words"][0] == said
