"""FMTC with a number of clusters that is to be found: `advise`, and n_clusters="auto"."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_circles, make_moons
from tests.views import FEW

import fmtc
from fmtc import FMTC, advise
from fmtc.errors import DataError
from fmtc.settings import Privacy, by_view

K = 4


@pytest.fixture(scope="module")
def silos():
    """Three silos with four clear groups in many columns."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(K, 60)).repeat(20, axis=0)
    return {name: centers + 0.8 * rng.normal(size=centers.shape) for name in ("east", "north", "south")}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    centers = 6 * rng.normal(size=(3, 5)).repeat(25, axis=0)
    return {name: centers + rng.normal(size=centers.shape) for name in ("east", "north")}


def auto(n_clusters="auto", **others):
    return FMTC(n_clusters, **by_view({"view": "graph", "max_iter": 3, "random_state": 0, **others}))


@pytest.fixture(scope="module")
def fitted(silos):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return auto("2..7").fit(silos)


def test_clear_groups_are_found_and_fitted(silos, fitted):
    assert fitted.n_clusters_ == fitted.run_.advice.chosen == K
    assert fitted.run_.advice.verdict == "range"
    assert fitted.n_clusters == "2..7"  # as it was given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        given = auto(K).fit(silos)
    assert_array_equal(fitted.labels_, given.labels_)  # the search changes nothing else
    assert given.n_clusters_ == K
    assert given.run_.advice is None


def test_the_number_is_found_where_silos_may_have_fewer(silos):
    """At most this many clusters of a silo, or as many as are found in all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = {own: auto("2..7", clusters_per_silo=own).fit(silos) for own in (2, 7)}
    assert {own: model.n_clusters_ for own, model in found.items()} == {2: K, 7: K}
    assert {own: model._settings().clusters_per_silo for own, model in found.items()} == {2: 2, 7: K}


def test_a_number_that_is_not_clear_comes_with_a_warning(table):
    with pytest.warns(UserWarning, match=r"not clear: Advice: \d clusters.* Verdict: not clear\."):
        model = auto("2..6", view="auto").fit(table)
    assert model.run_.advice.verdict == "range"
    assert model.run_.advice.low <= model.n_clusters_ <= model.run_.advice.high


def test_what_left_for_the_advice_is_in_the_ledger_and_in_what_was_received(fitted):
    lines = fitted.run_.ledgers["north"].lines()
    assert [line["run"] for line in lines] == sorted(line["run"] for line in lines)  # "advice", then "local"
    assert {line["phase"] for line in lines if line["run"] == "advice"} >= {"hello", "spectrum"}
    rows = {(row["phase"], row["field"]): row for row in fitted._sent()}
    assert rows["spectrum", "parts"]["what"]
    assert rows["round", "W"]["what"]


def test_a_model_keeps_the_number_and_not_the_question(fitted, silos, tmp_path):
    again = fmtc.load(fitted.save(tmp_path / "model"))
    assert again.n_clusters == again.n_clusters_ == K
    assert_array_equal(again.predict(silos["north"], silos="north"), fitted.predict(silos["north"], silos="north"))
    assert pickle.loads(pickle.dumps(fitted)).run_.advice.chosen == K
    assert clone(fitted).n_clusters == "2..7"
    assert f"{K} clusters" in fitted._html_repr()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_interrupted_fit_is_resumed_with_the_same_number(silos, tmp_path):
    def stop(record):
        if record.round_no == 2:
            raise KeyboardInterrupt

    whole = auto("2..7").fit(silos)
    with pytest.raises(KeyboardInterrupt):
        auto("2..7").fit(silos, callbacks=[stop], checkpoint=tmp_path / "point")
    resumed = auto("2..7").fit(silos, checkpoint=tmp_path / "point", resume=True)
    assert_array_equal(resumed.labels_, whole.labels_)
    assert_array_equal(resumed.consensus_, whole.consensus_)


def test_advice_leaves_the_estimator_as_it_is(silos):
    model = auto("2..7")
    before = dict(vars(model))
    advice = advise(silos, model=model)
    assert vars(model) == before
    assert advice.ks.tolist() == [2, 3, 4, 5, 6, 7]  # those of n_clusters
    assert advise(silos, k_range=(3, 5), model=model).ks.tolist() == [3, 4, 5]
    rows, clients = np.vstack(list(silos.values())), np.repeat(list(silos), len(silos["east"]))
    assert (
        advise(rows, silos=clients, k_range=(2, 7), model=FMTC(8, view="graph", random_state=0)).signals
        == advice.signals
    )
    assert advise(silos, model=FMTC(8, random_state=0, mixture=FEW)).ks.tolist() == list(range(2, 21))  # four rows each


def test_one_silo_is_enough(silos):
    advice = advise(silos["north"], k_range=(2, 7), model=FMTC(random_state=0, mixture=FEW))
    assert (advice.chosen, advice.verdict) == (K, "range")


def shapes(kind, n, seed):
    """Rows, and how many large parts they have."""
    if kind == "moons":
        return make_moons(n, noise=0.05, random_state=seed)[0], 2
    if kind == "circles":
        return make_circles(n, noise=0.04, factor=0.45, random_state=seed)[0], 2
    return make_blobs(n, centers=10 * np.eye(4), random_state=seed)[0], 4


@pytest.mark.parametrize(("noise", "least"), [(0.08, 6), (0.1, 3)])
def test_moons_that_a_few_links_join_are_two(noise, least):
    """Where mutual neighbours alone counted: 5 and 1 of these 8."""
    moons = [make_moons(300, noise=noise, random_state=seed)[0] for seed in range(8)]
    assert sum(advise(X, model=FMTC(random_state=0, mixture=FEW)).chosen == 2 for X in moons) >= least


@pytest.mark.parametrize("kind", ["moons", "circles", "blobs"])
def test_rows_in_large_parts_get_as_many_clusters(kind):
    for seed, n in enumerate((200, 300, 400)):
        X, parts = shapes(kind, n, seed)
        advice = advise(X, model=FMTC(random_state=seed, mixture=FEW))
        assert (advice.chosen, advice.low, advice.high, advice.signals["parts"]) == (parts,) * 4
        assert "range of" not in advice.sentences[0]
        assert f"{parts} large parts" in str(advice)
    assert advise({"a": X, "b": shapes(kind, 200, 9)[0]}, model=FMTC(random_state=0, mixture=FEW)).chosen == parts


def test_parts_that_the_range_leaves_out_are_not_advised():
    X = shapes("blobs", 300, 0)[0]
    for k_range in ((2, 3), (5, 9)):
        advice = advise(X, k_range=k_range, model=FMTC(random_state=0, mixture=FEW))
        assert k_range[0] <= advice.chosen <= k_range[1]
        assert "parts" not in advice.signals


def test_flowers_that_touch_are_one_part():
    assert advise(load_iris().data, model=FMTC(random_state=0, mixture=FEW)).chosen == 2  # setosa, and the two others


def test_missing_cells_and_categories_are_taken(table):
    import polars as pl

    rows = {cid: X.copy() for cid, X in table.items()}
    rows["east"][0, 0] = np.nan
    assert advise(rows, k_range=(2, 5), model=FMTC(random_state=0, mixture=FEW)).ks.tolist() == [2, 3, 4, 5]
    frames = {
        cid: pl.DataFrame(X, schema=list("vwxyz")).with_columns(sex=pl.Series(np.tile(["f", "m", "f"], 25)))
        for cid, X in table.items()
    }
    assert advise(frames, k_range=(2, 5), model=FMTC(random_state=0, mixture=FEW)).ks.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("n_clusters", "others", "kind", "words"),
    [
        ("1..4", {}, ValueError, "begins at 2"),
        ("7..3", {}, ValueError, "smaller number first"),
        ("some", {}, TypeError, "3..12"),
        ("2..40", {}, DataError, "80 rows.*ends at 20"),
        ("auto", {"privacy": "sums"}, ValueError, "give a number"),
        ("auto", {"privacy": Privacy(4, bounds=(-9, 9))}, ValueError, "give a number"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(silos, n_clusters, others, kind, words):
    with pytest.raises(kind, match=words):
        auto(n_clusters, **others).fit(silos)


def test_too_few_rows_for_any_comparison_are_refused(silos):
    with pytest.raises(DataError, match="too few to compare"):
        advise({cid: X[::9] for cid, X in silos.items()})
