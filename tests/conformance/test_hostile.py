"""A hostile or broken silo is contained: every attack, one silo in three and one in eight, in both views.

The attacks are those of `bench/benchmarks/attacks.py`, which measures them on real data.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC
from fmtc.errors import ClientError
from fmtc.settings import by_view

_attacks = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "benchmarks" / "_attacks.py"))
Attack, ATTACKS, fit_hostile = (_attacks[name] for name in ("Attack", "ATTACKS", "fit_hostile"))

pytestmark = pytest.mark.filterwarnings(
    "ignore:The server capped, set aside or refused"
)  # tests/describe/test_atlas.py
K, D, N = 3, 12, 45
ROUNDS, ENDS = ("round", "em"), ("hello", "moments", "coordinates", "seed", "finish", "settle")


def federation(m, seed=0):
    """Silos with the same three groups, shifted a little; and the groups."""
    rng = np.random.default_rng(seed)
    centers = 3.0 * np.linalg.qr(rng.normal(size=(D, K)))[0].T
    y = {f"s{t}": rng.integers(K, size=N) for t in range(m)}
    X = {cid: centers[own] + 0.7 * rng.normal(size=(N, D)) + 0.2 * rng.normal(size=D) for cid, own in y.items()}
    return X, y


def model(view, **solver):
    solver = {"n_init": 2, "lift": False, **solver}
    rounds = 10 if view == "graph" else 5  # a round of a mixture is several of its steps
    return FMTC(K, max_iter=rounds, random_state=0, **by_view({"view": view, **solver}))


def agreement(found, X, y, hostile):
    """How well the honest silos' clusters are their groups: the worst of them."""
    honest = [cid for cid in X if cid != hostile]
    return min(adjusted_rand_score(y[cid], found.predict(X[cid], silos=cid)) for cid in honest)


SCENES = {  # how many silos there are, and in which phases one of them is hostile
    "one in three, rounds": (3, ROUNDS),
    "one in eight, ends": (8, ENDS),
    "one in eight, rounds": (8, ROUNDS),
    "one in three, ends": (3, ENDS),
}
CASES = [  # any two of attack, view, size and phases meet somewhere: of two views the second has all else the other way
    (attack, view, list(SCENES)[turn])
    for i, attack in enumerate(ATTACKS)
    for view, turn in (("graph", i % 4), ("mixture", i % 4 ^ 1))
]


@pytest.mark.parametrize(("attack", "view", "scene"), CASES)
def test_honest_silos_keep_their_clusters(attack, view, scene):
    m, phases = SCENES[scene]
    X, y = federation(m)
    hostile = f"s{m - 1}"
    found = fit_hostile(model(view), X, None, {hostile: Attack(attack)}, phases)
    assert agreement(found, X, y, hostile) > 0.85


@pytest.mark.parametrize("view", ["graph", "mixture"])
@pytest.mark.parametrize("m", [3, 8])
def test_without_containment_an_attack_succeeds(view, m):
    """Else the tests above would prove nothing."""
    X, y = federation(m)
    hostile, off = f"s{m - 1}", {"contain": False, "own": False}
    phases = ROUNDS if view == "graph" else None
    try:
        found = fit_hostile(model(view, **off), X, None, {hostile: Attack("scaled")}, phases)
    except (ClientError, ValueError):
        return  # nobody gets a model at all
    assert agreement(found, X, y, hostile) < 0.6


@pytest.mark.parametrize("view", ["graph", "mixture"])
@pytest.mark.parametrize("m", [2, 3, 8])
def test_nothing_changes_where_nobody_is_hostile(view, m):
    X, _ = federation(m)
    on, off = (model(view, own=False, contain=contain).fit(X) for contain in (True, False))
    assert_array_equal(on.labels_, off.labels_)
    for cid in X:
        assert_array_equal(on.cluster_centers_[cid], off.cluster_centers_[cid])
    assert on.run_.held == ()
    assert set(on.run_.choices.values()) == {"federated"}


def test_the_history_says_who_was_held_and_when():
    X, _ = federation(8)
    found = fit_hostile(model("graph"), X, None, {"s7": Attack("random_scaled")}, ROUNDS)
    assert found.run_.held == ("s7",)
    assert all(record.capped == ("s7",) for record in found.run_.rounds)
    assert found.run_.rounds[0].odd == ()  # before clients were drawn together, nobody is judged by directions
    assert all(record.odd == ("s7",) for record in found.run_.rounds[3:])
    assert found.run_.rounds[-1].affinity["s7"] < 0.5 * found.run_.rounds[-1].affinity["s0"]
    place = found.run_.client_ids.index("s7")
    others = [t for t in range(8) if t != place]
    assert found.run_.influence.shape == (8, 8)
    assert found.run_.influence[others][:, place].max() < found.run_.influence[np.ix_(others, others)].max()


def test_what_no_rows_can_give_is_refused_with_one_sentence_and_the_others_go_on(caplog):
    X, y = federation(4)
    found = fit_hostile(model("mixture"), X, None, {"s3": Attack("flipped")}, ("coordinates",))
    assert found.silos_ == ["s0", "s1", "s2"]
    assert found.run_.held == ("s3",)
    assert "'s3' failed reading its rows as a mixture" in caplog.text
    assert "what came has" in caplog.text
    assert agreement(found, {cid: X[cid] for cid in found.silos_}, y, "s3") > 0.85


def test_refusals_end_a_run_where_too_few_are_left():
    X, _ = federation(3)
    with pytest.raises(ClientError, match="holds NaN"):
        fit_hostile(model("graph"), X, None, {cid: Attack("not_finite") for cid in ("s1", "s2")}, ROUNDS)


# ---------------------------------------------------------------------------------------------------------- at home


def test_a_silo_leaves_a_model_that_cuts_its_neighbours_apart():
    """With no server defence at all, each silo still has what it has alone, under the numbers of the common model."""
    X, _ = federation(8, seed=1)  # with seed 0 the attack misses half of the silos on some processors, and they stay
    found = fit_hostile(model("graph", contain=False), X, None, {"s7": Attack("scaled")}, ROUNDS)
    assert set(found.run_.choices.values()) == {"alone"}
    for cid, rows in X.items():
        labels = found.labels_[N * int(cid[1]) :][:N]
        assert adjusted_rand_score(labels, model("graph").fit({cid: rows}).labels_) == pytest.approx(1)
        assert_array_equal(found.predict(rows, silos=cid), labels)


def test_good_models_are_kept():
    X, _ = federation(3)
    for view in ("graph", "mixture"):
        found = model(view).fit(X)
        assert set(found.run_.choices.values()) == {"federated"}
        without = model(view, own=False).fit(X)
        if view == "graph":
            assert_array_equal(found.labels_, without.labels_)
        else:  # which may begin from clusters of the silos' own, and differs by a row or two
            assert np.count_nonzero(found.labels_ != without.labels_) <= 2


def test_a_silo_that_compares_does_not_build_the_same_graph_again(monkeypatch):
    from fmtc.protocol.graph import opening as prepare

    built, build_graph = [], prepare.build_graph
    monkeypatch.setattr(prepare, "build_graph", lambda *args: built.append(0) or build_graph(*args))
    X, _ = federation(3)
    found = {own: model("graph", contain=False, own=own).set_params(scale="none").fit(X) for own in (True, False)}
    assert len(built) == 6
    assert_array_equal(found[True].labels_, found[False].labels_)


# -------------------------------------------------------------------------------------------------- many honest silos


def honest(m, n, seed):
    """Silos with the same three groups in other shares, shifted a little."""
    rng = np.random.default_rng(seed)
    centers = 4.0 * rng.normal(size=(K, 6))
    shares = [rng.dirichlet(np.full(K, 5.0)) for _ in range(m)]
    return {
        f"s{t:03d}": centers[rng.choice(K, n, p=share)] + rng.normal(size=(n, 6)) + 0.1 * rng.normal(size=6)
        for t, share in enumerate(shares)
    }


@pytest.mark.filterwarnings("ignore:the neighbour graph of silo")
@pytest.mark.parametrize(("m", "n", "rounds", "seed"), [(8, 100, 10, 2), (20, 100, 10, 0), (100, 60, 4, 0)])
def test_honest_silos_are_not_held_however_many_they_are(m, n, rounds, seed):
    """Somebody's k-means is unlucky; this is no reason to name it, nor for everybody to fit a model alone."""
    found = model("graph").set_params(max_iter=rounds).fit(honest(m, n, seed))
    assert found.run_.held == ()


@pytest.mark.filterwarnings("ignore:the neighbour graph of silo")
def test_a_wild_silo_among_many_is_named_and_no_other():
    X = honest(40, 30, 0)
    found = fit_hostile(model("graph").set_params(max_iter=1), X, None, {"s012": Attack("shifted")}, ("settle",))
    assert found.run_.held == ("s012",)
