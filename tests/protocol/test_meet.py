"""Clients that lack concepts: who has which, what a client answers, and what the whole run makes of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score
from tests.views import FEW

from fmtc import FMTC, Graph, join_later, load
from fmtc.artifacts.onnx import export_onnx
from fmtc.errors import TrustError
from fmtc.protocol.graph.opening import HELLO, MEET
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.graph.state import GraphServer
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings, by_view

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph")  # of clear clusters

K, D = 4, 20
HELD = {"east": (0, 1, 2), "north": (1, 2, 3), "south": (0, 3), "west": (0, 2, 3)}
CENTERS = 4 * np.random.default_rng(7).normal(size=(K, D)) / np.sqrt(D)


def silo(seed, classes, n=24):
    rng = np.random.default_rng(seed)
    y = np.repeat(classes, n)
    return CENTERS[y] + 0.5 * rng.normal(size=(len(y), D)), y


SILOS = {cid: silo(seed, classes) for seed, (cid, classes) in enumerate(HELD.items())}
DATA, TRUTH = {cid: X for cid, (X, _) in SILOS.items()}, {cid: y for cid, (_, y) in SILOS.items()}
OWN = {cid: len(classes) for cid, classes in HELD.items()}


def fitted(own=OWN, concepts=K, data=DATA, **changed):
    given = {"view": "graph", "scale": "none", "max_iter": 6, "random_state": 0, "mixture": FEW} | changed
    return FMTC(concepts, clusters_per_silo=own, **by_view(given)).fit(data)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.mark.parametrize("changed", [{}, {"coupling": "subspace"}, {"coupling": "average"},
                                     {"graph": Graph(final="kmeans")}], ids=str)  # fmt: skip
def test_a_number_means_the_same_in_all_silos(changed):
    found = fitted(**changed).predict(DATA)
    together = np.concatenate([found[cid] for cid in DATA])
    assert adjusted_rand_score(np.concatenate(list(TRUTH.values())), together) == 1
    assert {cid: len(np.unique(labels)) for cid, labels in found.items()} == OWN


def test_training_rows_get_their_labels_again_and_lacking_concepts_no_probability(model):
    found, P = model.predict(DATA), model.predict_proba(DATA)
    assert_array_equal(np.concatenate(list(found.values())), model.labels_)
    for cid in DATA:
        assert P[cid].shape[1] == K == model.n_clusters_
        lacking = np.setdiff1d(np.arange(K), np.unique(found[cid]))
        assert len(lacking) == K - OWN[cid]
        assert (P[cid][:, lacking] == 0).all()
        assert_allclose(P[cid].sum(axis=1), 1)
        assert_array_equal(P[cid].argmax(axis=1), found[cid])


@pytest.mark.parametrize("final", ["mixture", "kmeans"])
def test_a_saved_model_and_onnx_say_the_same(tmp_path, final):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = fitted(graph=Graph(final=final))
    same = load(model.save(tmp_path / "model"))
    assert same.n_clusters == K and same.clusters_per_silo == OWN
    file = export_onnx(model, "south", tmp_path / "south.onnx", dtype=np.float64)
    label, P = onnxruntime.InferenceSession(file).run(None, {"X": DATA["south"]})
    for found in (label, same.predict(DATA["south"], silos="south")):
        assert_array_equal(found, model.predict(DATA["south"], silos="south"))
    assert_allclose(P, model.predict_proba(DATA["south"], silos="south"), atol=1e-9)


def test_stacks_have_a_column_for_each_concept_that_a_client_has(model):
    settings = model._settings()
    transport = LocalTransport(DATA, settings)
    server = run(transport, settings).server
    assert server.has.shape == (K, len(DATA))
    assert_array_equal(server.has.sum(axis=0), list(OWN.values()))
    for name in ("W", "Z", "Y"):
        stack = getattr(server, name)
        assert stack.shape == (D, K, len(DATA))
        assert not stack[:, ~server.has].any()
        assert stack[:, server.has].any(axis=0).all()


def test_nobody_lacks_a_concept_then_it_is_the_run_of_before():
    every = {cid: silo(seed, range(K))[0] for seed, cid in enumerate(HELD)}
    for coupling in ("tensor", "subspace"):
        plain = fitted(None, K, every, coupling=coupling)
        for own in (dict.fromkeys(every, K), K, "auto"):
            same = fitted(own, K, every, coupling=coupling)
            assert_array_equal(same.labels_, plain.labels_)
            assert_array_equal(same.consensus_, plain.consensus_)


def test_the_order_of_clients_and_of_rows_changes_no_cluster(model):
    names = dict(zip(DATA, ["d", "c", "b", "a"], strict=True))
    other = fitted({names[cid]: k for cid, k in OWN.items()}, data={names[cid]: X for cid, X in DATA.items()})
    found = other.predict({names[cid]: X for cid, X in DATA.items()})
    together = np.concatenate([found[names[cid]] for cid in DATA])
    assert adjusted_rand_score(together, model.labels_) == 1


def test_concepts_are_proposed_with_a_warning_where_nobody_says_how_many():
    with pytest.warns(UserWarning, match="look like 4 clusters"):
        found = fitted(concepts="auto")
    assert found.n_clusters_ == K


def test_one_number_below_that_of_concepts():
    two = {
        cid: silo(seed, classes)[0] for seed, (cid, classes) in enumerate([("a", (0, 1)), ("b", (1, 2)), ("c", (0, 2))])
    }
    found = fitted(2, 3, two).predict(two)
    assert [len(np.unique(labels)) for labels in found.values()] == [2, 2, 2]
    assert len(np.unique(np.concatenate(list(found.values())))) == 3


BAD = {
    "fewer concepts than clusters": (OWN, 2, "n_clusters must be at least the 3 clusters"),
    "a silo is missing": ({"east": 3}, K, "missing: \\['north', 'south', 'west'\\]"),
    "an unknown silo": (OWN | {"mars": 2}, K, "unknown: \\['mars'\\]"),
    "no silo": ({}, K, "missing: \\['east', 'north', 'south', 'west'\\]"),
    "no number": (OWN | {"east": 0}, K, "'east' must be a whole number of at least 1"),
    "more clusters than rows": (OWN | {"east": 80}, 80, "'east' has 72 samples"),
}


@pytest.mark.parametrize(("own", "concepts", "sentence"), BAD.values(), ids=BAD)
def test_bad_numbers_get_one_sentence(own, concepts, sentence):
    with pytest.raises(ValueError, match=sentence):
        fitted(own, concepts)


@pytest.mark.parametrize("changed", [{"privacy": "sums"}, {"graph": Graph(align=False)},
                                     {"graph": Graph(labels_from="embedding")}], ids=str)  # fmt: skip
def test_what_cannot_match_clusters_is_refused(changed):
    with pytest.raises(ValueError, match="clusters"):
        fitted(**changed)


def test_a_mixture_by_sums_takes_them():
    silos = {cid: X[:, :3] for cid, X in DATA.items()}
    found = FMTC(K, clusters_per_silo=OWN, view="mixture", privacy="sums", max_iter=2, random_state=0, mixture=FEW).fit(
        silos
    )
    assert found.n_clusters_ == K


def table(seed, classes, n=30):
    rng = np.random.default_rng(seed)
    y = np.repeat(classes, n)
    X = 6 * np.eye(K, 3)[y] + 4.0 * (y == 3)[:, None] + rng.normal(size=(len(y), 3))
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y


def test_a_mixture_finds_out_which_concepts_a_silo_lacks(tmp_path):
    """The user need not say how many clusters a silo has; saved models and ONNX agree."""
    onnxruntime = pytest.importorskip("onnxruntime")
    silos = {cid: table(seed, classes) for seed, (cid, classes) in enumerate(HELD.items())}
    rows = {cid: X for cid, (X, _) in silos.items()}
    model = FMTC(K, clusters_per_silo=K, view="mixture", random_state=0, mixture=FEW).fit(rows)
    found = model.predict(rows)
    assert {cid: len(np.unique(labels)) for cid, labels in found.items()} == OWN
    truth = np.concatenate([y for _, y in silos.values()])
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    P = model.predict_proba(rows["south"], silos="south")
    assert ((P == 0).all(axis=0)).sum() == K - 2
    far = 100 * np.eye(3)
    assert set(model.predict(far, silos="south")) <= set(found["south"])
    assert model.outliers(far, silos="south").all()
    assert_array_equal(load(model.save(tmp_path / "model")).predict(rows)["south"], found["south"])
    file = export_onnx(model, "south", tmp_path / "south.onnx", dtype=np.float64)
    label, Q = onnxruntime.InferenceSession(file).run(None, {"X": rows["south"]})
    assert_array_equal(label, found["south"])
    assert_allclose(Q, P, atol=1e-9)


def test_a_mixture_gives_a_silo_no_more_concepts_than_it_says():
    rows = {cid: table(seed, range(K))[0] for seed, cid in enumerate(HELD)}
    found = FMTC(
        K, clusters_per_silo={"east": 2, "north": 4, "south": 4, "west": 4}, view="mixture", random_state=0, mixture=FEW
    ).fit(rows)
    used = {cid: len(np.unique(labels)) for cid, labels in found.predict(rows).items()}
    assert used == {"east": 2, "north": 4, "south": 4, "west": 4}


def test_the_server_refuses_another_width_than_was_said():
    stacks = dict.fromkeys("WZY", np.zeros((D, 4, 2)))
    omega, losses = np.full(2, 0.5), np.zeros(2)
    server = GraphServer(("a", "b"), omega=omega, rho=1.0, beta=None, scale=1.0, losses=losses,
                         clusters={"a": 2, "b": 3}, **stacks)  # fmt: skip
    settings, answer = Settings(4, clusters_per_silo={}), ROUND.Answer(W=np.ones((D, 3)), cut=0.0, misfit=0.0)
    assert "said 2 clusters" in ROUND.impossible(server, "a", answer, settings)
    assert ROUND.impossible(server, "b", answer, settings) is None
    hello = HELLO.Answer(n_samples=9, n_features=D, sum_of_squares=1.0, n_clusters=5)
    assert "asks for 5 clusters" in HELLO.impossible(server, "a", hello, settings)
    assert MEET.times(server, Settings(4, clusters_per_silo={})) == 1
    assert MEET.times(server, Settings(2, clusters_per_silo={})) == 0


@pytest.mark.parametrize("final", ["mixture", "kmeans"])
def test_rows_of_silos_that_lack_concepts_have_a_confidence(final):
    model = fitted(graph=Graph(final=final)).calibrate()
    for cid, X in DATA.items():
        found = model.predict(X, silos=cid, abstain=0.2)
        assert set(found) - {-1} == set(model.predict(X, silos=cid))
        assert (found == -1).mean() < 0.5
        assert ((found == -1) | (found == model.predict(X, silos=cid))).all()
    odd = np.tile(CENTERS[1] + CENTERS[2], (30, 1)) + np.random.default_rng(0).normal(size=(30, D))
    assert model.drift({"south": odd}).silos[0].p_value < 0.01  # two concepts that south lacks


def test_what_comes_after_a_run_knows_who_lacks_what(model, tmp_path):
    with pytest.raises(ValueError, match="lacks clusters"):
        model.update({"east": DATA["east"]})
    with pytest.raises(TrustError, match="fewer than 3 silos have cluster"):  # south and north only have two of them
        model.publish(tmp_path / "kit")
    five = {**DATA, "middle": silo(9, range(K))[0]}
    kit = fitted(OWN | {"middle": K}, data=five).publish(tmp_path / "kit")
    newcomer = join_later(kit, silo(10, (0, 1, 3))[0])
    y = silo(10, (0, 1, 3))[1]
    assert adjusted_rand_score(y, newcomer.labels_) > 0.8


def test_the_atlas_shows_who_lacks_what(model):
    atlas = model.atlas_
    assert len(atlas.clusters) == K
    for concept in atlas.clusters:
        held = {cid for cid, share in concept.presence.items() if share}
        assert held == {cid for cid in DATA if concept.id in set(model.predict(DATA[cid], silos=cid))}
        assert all(concept.cosine[cid] > 0.5 for cid in held)


def test_a_silo_without_overlap_is_named():
    apart = {"a": silo(0, (0, 1))[0], "b": silo(1, (0, 1))[0], "stranger": silo(2, (2, 3))[0]}
    with pytest.warns(UserWarning, match="'stranger' has no cluster in common with any other silo"):
        found = fitted(2, 4, apart)
    assert not set(found.predict(apart["stranger"], silos="stranger")) & set(found.predict(apart["a"], silos="a"))
