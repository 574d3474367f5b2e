"""New rows, silos that leave, and federations that become one."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC, Privacy, Solver, join_later, load, merge
from fmtc.errors import DataError, InputError
from fmtc.later.models import kit_of
from fmtc.shared import without_client

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of client")

ALL = 6 * np.eye(8)  # where concepts lie
CENTERS = ALL[:3]
VIEWS = {
    "mixture": {"view": "mixture"},
    "graph": {"view": "graph", "scale": "none"},
    "scaled": {"view": "graph", "scale": "global", "solver": Solver(lift=False)},
    "k-means": {"view": "graph", "scale": "none", "solver": Solver(final="kmeans")},
}
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
    return model.predict(CENTERS + shift, clients=client)


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
        model.partial_fit({"north": rows}, keep_last=75)
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
    labels = model.partial_fit(more).labels_
    refit = FMTC(3, random_state=0, **VIEWS[kind]).fit(more).labels_
    assert adjusted_rand_score(labels, refit) > 0.95
    for cid in DATA:
        assert_array_equal(numbers(model, cid), before[cid])


@pytest.mark.parametrize("kind", VIEWS)
def test_a_silo_with_only_its_own_model_goes_on_by_itself(kind, tmp_path):
    late = join_later(kit_of(fitted(kind)), silo(9)[0], name="late", random_state=0)
    meant = numbers(late, "late")
    late = load(late.save(tmp_path / "late"))
    for month in range(1, 5):
        fresh, y = silo(200 + month, shift=0.5 * month)
        late.partial_fit(fresh)
        assert np.mean(meant[y] == late.labels_) > 0.95


def test_a_saved_model_goes_on_as_the_fitted_one_does(tmp_path):
    for kind in ("mixture", "graph"):
        here, rows = fitted(kind), {"north": silo(5, shift=0.3)[0]}
        there = load(here.save(tmp_path / kind))
        here.set_params(random_state=0).partial_fit(rows)
        there.set_params(random_state=0).partial_fit(rows)
        assert_allclose(here.cluster_centers_["north"], there.cluster_centers_["north"])
        again = load(there.save(tmp_path / f"{kind}-again"))
        assert_array_equal(again.predict(rows)["north"], there.labels_)


def test_update_of_what_cannot_be_updated():
    model = fitted("mixture")
    with pytest.raises(DataError, match="unknown client 'moon'; this model has"):
        model.partial_fit({"moon": DATA["north"]})
    with pytest.raises(DataError, match="8 features"):
        model.partial_fit({"north": DATA["north"][:, :5]})
    with pytest.raises(DataError, match="needs at least 4 rows"):
        model.partial_fit({"north": DATA["north"]}, keep_last=2)
    for wrong in (0, -3):
        with pytest.raises(ValueError, match="keep_last must be"):
            model.partial_fit({"north": DATA["north"]}, keep_last=wrong)
    private = FMTC(2, privacy=Privacy(epsilon=200, bounds=(-5, 12), accept_weak=True), random_state=0).fit(
        {name: silo(seed, n=90)[0] for seed, name in enumerate("abc")}
    )
    for call in (lambda: private.partial_fit({"a": DATA["north"]}), lambda: private.leave("a")):
        with pytest.raises(InputError, match="private run cannot go on"):
            call()
    assert_array_equal(numbers(model, "north"), numbers(fitted("mixture"), "north"))


# ----------------------------------------------------------------------------------------------------------- leave


@pytest.mark.parametrize("kind", VIEWS)
def test_a_silo_leaves_and_the_others_stay(kind, tmp_path):
    model = fitted(kind)
    after = model.leave("west")
    assert after.client_ids_ == ["east", "north", "south"] and model.client_ids_ == ["east", "north", "south", "west"]
    assert after._shared.client_ids == ("east", "north", "south")
    for cid in after.client_ids_:
        assert_array_equal(after.predict(DATA[cid], clients=cid), model.predict(DATA[cid], clients=cid))
    again = load(after.save(tmp_path / "after"))
    assert again.client_ids_ == after.client_ids_
    assert after.publish(tmp_path / "kit").is_dir()
    content = b"".join(file.read_bytes() for file in (tmp_path / "after").iterdir())
    assert b"west" not in content.replace(b"'west' left", b"")
    with pytest.raises(DataError, match="unknown client 'west'"):
        after.predict(DATA["west"], clients="west")
    assert after.partial_fit({"north": DATA["north"]}).client_ids_ == after.client_ids_


def test_an_odd_silo_takes_its_part_with_it():
    """The common concepts are nearer to those of a run without it than they were."""
    data = DATA | {"west": silo(2, shift=2.5)[0]}
    options = {"view": "mixture", "random_state": 0, "solver": Solver(contain=False), "scale": "none"}
    model = FMTC(3, **options).fit(data)
    refit = FMTC(3, **options).fit({cid: X for cid, X in data.items() if cid != "west"})
    after = model.leave("west")
    origin = np.zeros(8)

    def places(one):  # in the units of X
        shared = one._shared
        return np.sort((shared.mixture.means + (origin if shared.scaling is None else shared.scaling.shift)).ravel())

    before, now = (np.abs(places(one) - places(refit)).max() for one in (model, after))
    assert now < 0.5 * before


def test_the_step_without_a_silo_keeps_ridge_and_threshold():
    shared, settings = fitted("graph")._shared, fitted("graph").settings()
    after = without_client(shared, "south", settings)
    assert_allclose(after.ridge(settings), shared.ridge(settings))
    assert_allclose(after.beta / after.rho, shared.beta / shared.rho)
    stay = [0, 1, 3]
    T = (shared.Z + shared.Y / shared.rho)[:, :, stay]
    assert_allclose(after.Z + after.Y / after.rho, T, atol=1e-12)  # Eq. 19
    assert after.Z.shape == after.W.shape == T.shape


def test_leaving_that_cannot_be():
    model = fitted("graph")
    with pytest.raises(DataError, match="unknown client 'moon'; this model has 'east', 'north', 'south', 'west'"):
        model.leave("moon")
    for cid in ("north", "south", "east"):
        model = model.leave(cid)
    with pytest.raises(InputError, match="'west' is the last silo: without it there is no model"):
        model.leave("west")
    sums = FMTC(3, view="mixture", privacy="sums", random_state=0).fit(DATA)
    with pytest.raises(InputError, match="saw sums only"):
        sums.leave("west")
    with pytest.raises(NotFittedError):
        FMTC(3).leave("west")


# ----------------------------------------------------------------------------------------------------------- merge

EAST = {"lima": (1, 2, 0), "quito": (2, 0, 1)}


@pytest.mark.parametrize("kind", VIEWS)
def test_two_federations_become_one_numbering(kind, tmp_path):
    first = fitted(kind)
    second = FMTC(3, random_state=3, **VIEWS[kind]).fit({cid: silo(t + 7, n=30)[0] for t, cid in enumerate(EAST)})
    both = merge(first, second)
    assert both.client_ids_ == ["east", "lima", "north", "quito", "south", "west"] and both.n_clusters == 3
    assert len({tuple(numbers(both, cid)) for cid in both.client_ids_}) == 1
    assert_array_equal(numbers(both, "north"), numbers(first, "north"))
    assert all(match.first is not None and match.second is not None and match.likeness > 0.3 for match in both.merged_)
    again = load(both.save(tmp_path / "both"))
    assert_array_equal(numbers(again, "lima"), numbers(both, "lima"))
    for model, cid in ((first, "north"), (second, "lima")):  # nothing is fitted: only numbers change
        X = DATA["north"]
        assert adjusted_rand_score(model.predict(X, clients=cid), both.predict(X, clients=cid)) == pytest.approx(1)


@pytest.mark.parametrize("kind", VIEWS)
def test_concepts_without_a_partner_get_new_numbers(kind):
    """Four concepts each, two of them in common."""
    here, there = (0, 1, 2, 3), (2, 3, 4, 5)
    first = FMTC(4, random_state=0, **VIEWS[kind]).fit({c: silo(s, 30, concepts=here)[0] for s, c in enumerate("ab")})
    second = FMTC(4, random_state=0, **VIEWS[kind]).fit(
        {c: silo(s + 5, 30, concepts=there)[0] for s, c in enumerate("cd")}
    )
    both = merge(first, second)
    assert both.n_clusters == 6 and [match.second is None for match in both.merged_].count(True) == 2
    old, new = both.predict(ALL[list(here)], clients="a"), both.predict(ALL[list(there)], clients="c")
    assert_array_equal(old[2:], new[:2])
    assert len({*old, *new}) == 6
    for cid, own in (("a", old), ("c", new)):
        X = np.random.default_rng(0).normal(size=(200, 8), scale=9)
        P, lacks = both.predict_proba(X, clients=cid), sorted(set(range(6)) - set(own))
        assert P.shape == (200, 6) and P[:, lacks].max() < 1e-12
        assert not np.isin(both.predict(X, clients=cid), lacks).any()


def test_models_that_cannot_be_merged():
    first = fitted("mixture")
    with pytest.raises(InputError, match="both models have a silo called 'east', 'north', 'south', 'west'"):
        merge(first, fitted("graph"))
    other = {"lima": silo(7)[0], "quito": silo(8)[0]}
    with pytest.raises(DataError, match="one model is of the graph view"):
        merge(first, FMTC(3, random_state=0, **VIEWS["graph"]).fit(other))
    with pytest.raises(DataError, match="the first model is of 8 columns and the second of 5"):
        merge(first, FMTC(3, view="mixture", random_state=0).fit({cid: X[:, :5] for cid, X in other.items()}))
    names = [pd.DataFrame(DATA["north"], columns=list(letters)) for letters in ("abcdefgh", "abcdefgz")]
    one, two = (FMTC(3, view="mixture", random_state=0).fit({cid: X}) for cid, X in zip("pq", names, strict=True))
    with pytest.raises(DataError, match="different columns, such as 'h' in one and 'z' in the other"):
        merge(one, two)
    lifted = {"view": "graph", "scale": "global", "solver": Solver(lift=True)}
    with pytest.raises(DataError, match="different random features"):
        merge(FMTC(3, random_state=0, **lifted).fit(DATA), FMTC(3, random_state=1, **lifted).fit(other))


def test_the_atlas_follows_updates_leaving_and_merging():
    """Shares are those of the rows that count now; who left is gone; two federations keep theirs."""
    rng = np.random.default_rng(0)

    def draw(*counts):
        y = np.repeat(range(2), counts)
        return 5 * np.eye(3)[y] + rng.normal(size=(len(y), 3))

    def fitted(names):
        return FMTC(2, view="mixture", random_state=0).fit({name: draw(30, 20) for name in names})

    def shares(model, name):
        return sorted(one.presence[name] for one in model.atlas_.concepts)

    model = fitted("abc")
    both = merge(model, fitted("xyz"))
    assert shares(both, "a")[-2:] == shares(both, "x")[-2:] == [0.4, 0.6]
    gone = model.leave("b")
    assert gone.atlas_.client_ids == ("a", "c") and set(gone._presence) == {"a", "c"}
    model.partial_fit({"a": draw(10, 40)})
    assert shares(model, "a") == [0.2, 0.8] and shares(model, "b") == [0.4, 0.6]


@pytest.mark.parametrize("kind", VIEWS)
def test_sparse_rows_update_a_run_of_dense_ones(kind):
    rows = np.where(DATA["north"] > 1, DATA["north"], 0.0)
    dense, sparse = (fitted(kind).partial_fit({"north": given}) for given in (rows, sp.csr_array(rows)))
    assert adjusted_rand_score(dense.predict(rows, clients="north"), sparse.predict(rows, clients="north")) > 0.99
