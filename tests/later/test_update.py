"""New rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from tests.views import FEW

from fmtc import FMTC, Graph, Privacy, join_later, load
from fmtc.errors import DataError, InputError
from fmtc.later.publish import kit_of

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

ALL = 6 * np.eye(8)  # where concepts lie
CENTERS = ALL[:3]
VIEWS = {
    "mixture": {"view": "mixture", "mixture": FEW},
    "graph": {"view": "graph", "scale": "none"},
    "scaled": {"view": "graph", "scale": "global", "graph": Graph(lift=False)},
    "k-means": {"view": "graph", "scale": "none", "graph": Graph(final="kmeans")},
}
VIEWS = {kind: {"max_iter": 5} | view for kind, view in VIEWS.items()}
MODELS = {}


def silo(seed, n=25, shift=0.0, concepts=(0, 1, 2)):
    """Rows of some concepts, and the concept of each."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(concepts, n))
    return ALL[y] + shift + rng.normal(size=(len(y), 8)), y


DATA = {name: silo(seed)[0] for seed, name in enumerate(("north", "south", "west", "east"))}


def fitted(kind):
    """A new copy of a model that is fitted once."""
    if kind not in MODELS:
        MODELS[kind] = FMTC(3, random_state=0, **VIEWS[kind]).fit(DATA)
    found = clone(MODELS[kind])
    found.__dict__ |= MODELS[kind].__dict__
    return found


def numbers(model, client, shift=0.0):
    return model.predict(CENTERS + shift, silos=client)


# ---------------------------------------------------------------------------------------------------------- update


@pytest.mark.parametrize("kind", VIEWS)
def test_concepts_keep_their_numbers_over_ten_updates_with_drift(kind):
    """Each month the rows lie half a step further, and a window forgets the oldest: 5 steps in all, of 8.5 between."""
    model, rows = fitted(kind), DATA["north"]
    meant = numbers(model, "north")
    others = {cid: model._models[cid] for cid in ("south", "west", "east")}
    for month in range(1, 11):
        fresh, y = silo(100 + month, shift=0.5 * month)
        rows = np.vstack([rows, fresh])[-150:]
        model.update({"north": rows}, keep_last=75)
        assert_array_equal(numbers(model, "north", 0.5 * month), meant)
        assert np.mean(meant[y] == model.labels_[-75:]) > 0.95
    assert model.n_iter_ <= 10 and len(model.labels_) == 150
    assert all(model._models[cid] is own for cid, own in others.items())
    assert_array_equal(numbers(model, "south"), meant)


@pytest.mark.parametrize("kind", VIEWS)
def test_an_update_of_all_silos_goes_on_from_the_run(kind):
    model = fitted(kind)
    more = {cid: np.vstack([X, silo(50 + t)[0]]) for t, (cid, X) in enumerate(DATA.items())}
    before = {cid: numbers(model, cid) for cid in DATA}
    labels = model.update(more).labels_
    refit = FMTC(3, random_state=0, **VIEWS[kind]).fit(more).labels_
    assert adjusted_rand_score(labels, refit) > 0.95
    for cid in DATA:
        assert_array_equal(numbers(model, cid), before[cid])


def test_few_new_rows_turn_nothing_over():
    """In lifted columns, where twelve rows by themselves say next to nothing."""
    model = FMTC(3, view="graph", max_iter=5, random_state=0).fit(DATA)
    before = model.predict(DATA)
    model.update({cid: silo(303 + 10 * t, n=4)[0] for t, cid in enumerate(DATA)})
    assert all(np.mean(now == before[cid]) > 0.95 for cid, now in model.predict(DATA).items())


@pytest.mark.parametrize("kind", VIEWS)
def test_a_silo_with_only_its_own_model_goes_on_by_itself(kind, tmp_path):
    late = join_later(kit_of(fitted(kind)), silo(9)[0], name="late", random_state=0)
    meant = numbers(late, "late")
    late = load(late.save(tmp_path / "late"))
    for month in range(1, 5):
        fresh, y = silo(200 + month, shift=0.5 * month)
        late.update(fresh)
        assert np.mean(meant[y] == late.labels_) > 0.95


def test_a_saved_model_goes_on_as_the_fitted_one_does(tmp_path):
    for kind in ("mixture", "graph"):
        here, rows = fitted(kind), {"north": silo(5, shift=0.3)[0]}
        there = load(here.save(tmp_path / kind))
        here.set_params(random_state=0).update(rows)
        there.set_params(random_state=0).update(rows)
        assert_allclose(here.cluster_centers_["north"], there.cluster_centers_["north"])
        again = load(there.save(tmp_path / f"{kind}-again"))
        assert_array_equal(again.predict(rows)["north"], there.labels_)


def test_update_of_what_cannot_be_updated():
    model = fitted("mixture")
    with pytest.raises(DataError, match="unknown silo 'moon'; this model has"):
        model.update({"moon": DATA["north"]})
    with pytest.raises(DataError, match="8 features"):
        model.update({"north": DATA["north"][:, :5]})
    with pytest.raises(DataError, match="needs at least 4 rows"):
        model.update({"north": DATA["north"]}, keep_last=2)
    for wrong in (0, -3):
        with pytest.raises(ValueError, match="keep_last must be"):
            model.update({"north": DATA["north"]}, keep_last=wrong)
    private = FMTC(2, max_iter=2, privacy=Privacy(epsilon=200, bounds=(-5, 12), accept_weak=True), random_state=0).fit(
        {name: silo(seed, n=90)[0] for seed, name in enumerate("abc")}
    )
    with pytest.raises(InputError, match="cannot go on: each step of a private run"):
        private.update({"a": DATA["north"]})
    assert_array_equal(numbers(model, "north"), numbers(fitted("mixture"), "north"))


def test_the_atlas_follows_updates():
    """Shares are those of the rows that count now."""
    rng = np.random.default_rng(0)

    def draw(*counts):
        y = np.repeat(range(2), counts)
        return 5 * np.eye(3)[y] + rng.normal(size=(len(y), 3))

    model = FMTC(2, view="mixture", random_state=0, mixture=FEW).fit({name: draw(30, 20) for name in "abc"})
    model.update({"a": draw(10, 40)})
    shares = {name: sorted(one.presence[name] for one in model.atlas_.clusters) for name in "ab"}
    assert shares == {"a": [0.2, 0.8], "b": [0.4, 0.6]}


@pytest.mark.parametrize("kind", VIEWS)
def test_sparse_rows_update_a_run_of_dense_ones(kind):
    rows = np.where(DATA["north"] > 1, DATA["north"], 0.0)
    dense, sparse = (fitted(kind).update({"north": given}) for given in (rows, sp.csr_array(rows)))
    assert adjusted_rand_score(dense.predict(rows, silos="north"), sparse.predict(rows, silos="north")) > 0.99
