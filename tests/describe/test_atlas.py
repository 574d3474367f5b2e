"""The atlas: clusters from models alone, who has them, and how sure that is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from tests.views import FEW, graph_view

import fmtc
from fmtc import FMTC, Privacy
from fmtc.describe import Atlas, AtlasCluster, Feature, Features
from fmtc.describe.atlas import ALL_ALONE, compare, draw, presence_of
from fmtc.describe.words import held_words
from fmtc.errors import RowsWarning
from fmtc.models import Member
from fmtc.schema import Column, Schema

CENTERS = np.array([[0.0, 0, 0, 0], [6, 0, 0, 0], [0, 6, 0, 0]])


def rows(rng, counts, shift=0.0):
    y = np.repeat(np.arange(len(counts)), counts)
    return CENTERS[y] + shift + rng.normal(size=(len(y), 4))


@pytest.fixture(scope="module")
def silos():
    rng = np.random.default_rng(0)
    return {"a": rows(rng, (40, 20, 20)), "b": rows(rng, (20, 40, 20), 2.0), "c": rows(rng, (30, 30, 3), -1.0)}


@pytest.fixture(scope="module", params=["mixture", "graph"])
def model(request, silos):
    if request.param == "mixture":
        return FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(silos)
    return graph_view(3, max_iter=6, random_state=0, n_neighbors=35).fit(silos)


# --------------------------------------------------------------------------------------------------------- no rows


def test_a_loaded_model_has_the_same_atlas(model, tmp_path):
    """Rows are not there any more: the atlas cannot need them."""
    same = fmtc.load(model.save(tmp_path / "model"))
    assert not hasattr(same, "labels_")
    assert same.atlas_ == model.atlas_
    assert Atlas.from_dict(json.loads(json.dumps(model.atlas_.to_dict()))) == model.atlas_


def test_presence_is_the_share_of_the_labels(model, silos):
    for cid, X in silos.items():
        labels = model._models[cid].assign(X)
        shares = tuple(one.presence[cid] for one in model.atlas_.clusters)
        assert shares == presence_of(labels, 3)


def test_an_old_model_without_shares_has_an_atlas_all_the_same(model, tmp_path):
    folder = model.save(tmp_path / "model")
    about = json.loads((folder / "model.json").read_text())
    for entry in about["clients"].values():
        del entry["presence"]
    (folder / "model.json").write_text(json.dumps(about))
    old = fmtc.load(folder).atlas_
    assert all(not one.presence for one in old.clusters)
    assert [set(one.flags) for one in old.clusters] == [{"a", "b", "c"}] * 3


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.5, 0.5, 1.5], [0.5, 0.5, "many"]])
def test_shares_that_cannot_be_are_refused(model, tmp_path, shares):
    folder = model.save(tmp_path / "model")
    about = json.loads((folder / "model.json").read_text())
    about["clients"]["a"]["presence"] = shares
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(fmtc.errors.FileError, match="damaged"):
        fmtc.load(folder)


def test_a_private_run_tells_of_no_silo(tmp_path, silos):
    model = FMTC(3, privacy=Privacy(16, bounds=(-6, 12)), random_state=0).fit(silos)
    atlas = fmtc.load(model.save(tmp_path / "model")).atlas_
    assert atlas == model.atlas_
    assert "presence" not in (tmp_path / "model" / "model.json").read_text()
    assert atlas.silos == () and not any(one.presence or one.cosine or one.flags for one in atlas.clusters)
    assert "public" in atlas.notes[0]


# ----------------------------------------------------------------------------------------------------- small clusters


@pytest.mark.parametrize("small", [1, 4])
def test_shares_do_not_give_away_a_small_cluster(small):
    """Not as a share, and not as what is missing to the whole: with the number of rows, that would be its size."""
    shares = presence_of(np.repeat([0, 1, 2], [30, 10, small]), 4)
    assert shares == (0.75, 0.25, None, 0.0)
    assert presence_of(np.repeat([0, 1], [30, 5]), 2) == (0.8571, 0.1429)
    assert presence_of(np.repeat([0, 1], [3, small]), 2) == (None, None)


def test_a_small_cluster_is_shown_as_such():
    cluster = AtlasCluster(0, "x", presence={"a": None, "b": 0.0, "c": 0.314})
    assert [cluster.share(cid) for cid in "abcd"] == ["< 5", "–", "31 %", ""]


# ---------------------------------------------------------------------------------------------------------- comparing


def test_a_concept_without_another_member_has_cosine_0():
    S = np.eye(3)
    found = compare([S, S], [(0.5, 0.5, 0.0), (0.0, 0.5, 0.5)])
    assert found.there.tolist() == [[True, True, False], [False, True, True]]
    assert_allclose(found.cosine[found.there], [0, 1, 1, 0], atol=1e-12)
    assert found.flags[found.there].tolist() == [2, 0, 0, 2]


def test_a_silo_is_not_compared_with_itself():
    rng = np.random.default_rng(0)
    S = rng.normal(size=(3, 4, 50))
    cosine = compare(list(S), [None] * 3).cosine
    U = S / np.linalg.norm(S, axis=2, keepdims=True)
    rest = U[1] + U[2]
    assert_allclose(cosine[0], (U[0] * rest).sum(axis=1) / np.linalg.norm(rest, axis=1))
    scaled = compare([7 * S[0], S[1], S[2]], [None] * 3).cosine
    assert_allclose(scaled, cosine)


def test_flags_are_those_of_cosine_and_lead():
    def turned(cosine, other=0.0):
        return [cosine, other, np.sqrt(max(1 - cosine**2 - other**2, 0))]

    others = np.array([[1.0, 0, 0], [0, 1.0, 0]])
    own = np.array([turned(0.29), turned(0.0, 0.49)])
    assert compare([own, others], [None] * 2).flags[0].tolist() == [2, 1]
    own = np.array([turned(0.51, 0.45), turned(0.3, 0.51)])
    assert compare([own, others], [None] * 2).flags[0].tolist() == [1, 0]


def test_small_clusters_do_not_count_for_others():
    S = np.eye(2)
    wrong = -np.eye(2)
    found = compare([S, S, wrong], [(0.5, 0.5), (0.5, 0.5), (1.0, None)])
    assert_allclose(found.cosine[:2, 1], 1)
    assert found.cosine[2, 1] == pytest.approx(-1) and found.flags[2, 1] == 2


def test_one_silo_alone_is_not_compared(silos):
    atlas = FMTC(2, view="mixture", random_state=0, mixture=FEW).fit(silos["a"]).atlas_
    assert not any(one.cosine or one.flags for one in atlas.clusters) and "no other" in atlas.notes[0]


def test_a_silo_of_a_federation_shows_what_it_was_told(silos, tmp_path):
    model = FMTC(2, view="mixture", random_state=0, mixture=FEW).fit(silos["a"])
    (cid,) = model.silos_
    model._fitted = replace(model._fitted, told={cid: [(0.9, "matched"), (0.1, "unique")]})
    atlas = fmtc.load(model.save(tmp_path / "model")).atlas_
    assert [one.flags for one in atlas.clusters] == [{cid: "matched"}, {cid: "unique"}]
    assert atlas == model.atlas_ and atlas.notes == ()


# ----------------------------------------------------------------------------------------------------------- in words


def test_amounts_are_in_the_units_of_the_table(silos):
    """A column in other units has other amounts, and the same weight."""
    model = FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(silos)
    in_grams = {cid: X * [1000, 1, 1, 1] for cid, X in silos.items()}
    other = FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(in_grams)
    for one, two in zip(model.atlas_.clusters, other.atlas_.clusters, strict=True):
        amounts, grams = ({f.column: f for f in c.top_features}["column 0"] for c in (one, two))
        assert grams.amount == pytest.approx(1000 * amounts.amount, rel=1e-3)
        assert grams.weight == pytest.approx(amounts.weight, abs=1e-3)
    first = max(model.atlas_.clusters, key=lambda c: {f.column: f.amount for f in c.top_features}["column 0"])
    means = model.cluster_centers_["a"]
    shares = np.array([one.presence["a"] for one in model.atlas_.clusters])
    assert means[first.id, 0] - shares @ means[:, 0] > 3


def test_categories_are_named_by_the_level_that_says_most():
    schema = Schema((Column("sex", "category", ("female", "male")), Column("age", unit="years")))
    features = Features.of(schema, None)
    assert [features.place(j) for j in range(3)] == [(1, -1), (0, 0), (0, 1)]
    S = np.array([[0.5, -0.8, 0.9], [-0.5, 0.8, -0.9]])
    atlas = draw({"a": Member(S, np.arange(3), (0.5, 0.5), S), "b": Member(S, np.arange(3), (0.5, 0.5), S)}, features)
    assert [str(f) for f in atlas.clusters[0].top_features] == ["sex: male +90 %", "age +0.50 years"]


def test_words_are_those_that_a_concept_has_more_of():
    S = np.array([[0.9, -0.8, 0.3], [-0.9, 0.8, 0.1]])
    columns = np.array([7, 9, 30])
    features = Features(is_text=True, words=lambda wanted: {j: f"word{j}" for j in wanted if j != 30})
    atlas = draw({"a": Member(S, columns), "b": Member(S, columns)}, features)
    assert [[f.column for f in one.top_features] for one in atlas.clusters] == [["word7"], ["word9"]]
    hashed = draw({"a": Member(S, columns), "b": Member(S, columns)}, Features(is_text=True))
    assert [f.column for f in hashed.clusters[0].top_features] == ["column 7", "column 30"]
    assert "hash" in hashed.notes[0]


def test_silos_with_other_words_are_compared_by_all_of_them():
    one, two = Member(np.eye(2), np.array([0, 1])), Member(np.eye(2), np.array([1, 2]))
    atlas = draw({"a": one, "b": two}, Features())
    assert [c.cosine["a"] for c in atlas.clusters] == [0.0, 0.0]


def test_a_cluster_has_the_name_of_explain_and_no_other(model, silos):
    """Weights of a model have no name of their own, which could be another: rows name, here and in plots."""
    told = model.explain(silos)
    assert model.atlas_.names == {}
    assert model.atlas_.renamed(told.names).names == told.names
    assert {cluster.name for own in told.silos.values() for cluster in own} == set(told.names.values())


def test_a_feature_has_no_direction_where_silos_differ_in_it():
    """The mean of three weights is one thing, of three amounts another: one silo has a code in its cells."""
    S = np.array([[0.9, 0.3, 0.1], [-0.9, -0.3, -0.1]])
    units = np.array([[3.0, 1.0, 1.0], [-3.0, -1.0, -1.0]])
    members = {
        "a": Member(S, np.arange(3), None, units),
        "b": Member(S, np.arange(3), None, units),
        "c": Member(S * [1, -1, -0.1], np.arange(3), None, units * [-99, -1, 1]),
    }
    atlas = draw(members, Features(names=list("xyz")))
    assert [str(f) for f in atlas.clusters[0].top_features] == ["x differs by silo", "y differs by silo", "z +1.0"]
    assert Atlas.from_dict(json.loads(json.dumps(atlas.to_dict()))) == atlas
    weights = draw({cid: Member(one.signatures, one.features) for cid, one in members.items()}, Features())
    assert [f.agreed for f in weights.clusters[0].top_features] == [True, False, True]


def test_sparse_rows_are_named_like_words():
    rng = np.random.default_rng(0)
    X = {cid: sp.csr_array(rng.poisson(np.repeat([[3, 3, 0.1, 0.1], [0.1, 0.1, 3, 3]], 20, axis=0)).astype(float))
         for cid in "ab"}  # fmt: skip
    atlas = graph_view(2, random_state=0, max_iter=4).fit(X).atlas_
    words = [{f.column for f in one.top_features[:2]} for one in atlas.clusters]
    assert sorted(map(sorted, words)) == [["column 0", "column 1"], ["column 2", "column 3"]]
    assert all(f.weight > 0 for one in atlas.clusters for f in one.top_features)


def test_lifted_columns_have_no_features(silos):
    atlas = graph_view(3, random_state=0, max_iter=3, lift=True, scale="auto").fit(silos).atlas_
    assert not any(one.top_features or one.name for one in atlas.clusters) and "lift" in atlas.notes[-1]


def test_an_atlas_is_shown_without_markup_of_its_own():
    hostile = "<script>alert(1)</script>"
    cluster = AtlasCluster(0, hostile, (Feature(hostile, 0.5),), {hostile: 0.5}, {hostile: 0.1}, {hostile: "unique"})
    page = Atlas((cluster,), (hostile,), (hostile,))._repr_html_()
    assert "<script" not in page and page.count("&lt;script") == 4


def test_given_names_take_the_place_of_words(model):
    assert model.atlas_.renamed({1: "severe", 2: ""}).names == model.atlas_.names | {1: "severe"}


def test_a_silo_of_one_cluster_is_unsure_and_one_without_overlap_is_named():
    """One cluster has no contrast, which is no sign that nobody else has it; what nobody else has is said once."""
    both = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    other = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    members = {
        "north": Member(both, np.arange(3), (0.5, 0.5, 0.0, 0.0)),
        "south": Member(both, np.arange(3), (0.4, 0.6, 0.0, 0.0)),
        "single": Member(np.zeros((4, 3)), np.arange(3), (1.0, 0.0, 0.0, 0.0)),
        "lone": Member(other, np.arange(3), (0.0, 0.0, 0.5, 0.5)),
    }
    atlas = draw(members, Features())
    assert atlas.clusters[0].flags == {"north": "matched", "south": "matched", "single": "unsure"}
    assert atlas.lone == ("lone",)
    assert atlas.notes[-1].startswith("'lone' has no cluster in common with any other silo")
    members.pop("lone")
    assert draw(members, Features()).notes == ()


# ------------------------------------------------------------------------------------------------ silos set aside


@pytest.fixture(scope="module", params=["mixture", "graph"])
def held(request):
    """A model of four silos, of which one is in other units; and their rows."""
    rng = np.random.default_rng(0)
    data = {cid: rows(rng, (30, 30, 30), 5.0) * (1000 if cid == "d" else 1) for cid in "abcd"}
    plain = FMTC(3, view=request.param, random_state=0, mixture=FEW)
    with (
        pytest.warns(RowsWarning, match="d has values about 1,000 times the others'"),
        pytest.warns(UserWarning, match="The server capped, set aside or refused what 'd' sent"),
    ):
        return plain.fit(data), data


def test_a_silo_that_was_set_aside_is_named_and_not_in_the_atlas(held, tmp_path):
    model, _ = held
    assert model.run_.held == ("d",)
    atlas = model.atlas_
    assert atlas.silos == ("a", "b", "c")
    assert not any("d" in {*one.presence, *one.flags} for one in atlas.clusters)
    (note,) = [note for note in atlas.notes if "'d'" in note]
    assert note == f"{held_words(['d'])} The atlas leaves them out."
    amounts = [abs(f.amount) for one in atlas.clusters for f in one.top_features if f.amount is not None]
    assert max(amounts, default=0) < 100  # in the units of the three others
    same = fmtc.load(model.save(tmp_path / "model"))
    assert same.run_.held == ("d",)
    assert same.atlas_ == atlas


def test_clusters_over_all_silos_are_those_of_silos_with_common_numbers(held):
    model, data = held
    found = model.explain(data)
    assert any("'d'" in note for note in found.notes)
    assert sum(one.rows for one in found.clusters) == sum(len(data[cid]) for cid in "abc")
    assert max(abs(one.inside) for cluster in found.clusters for one in cluster.differences) < 100
    assert set(found.silos) == set("abcd")
    assert found.likeness["d"] == (None,) * 3
    others = {cid: X for cid, X in data.items() if cid != "d"}
    assert found.clusters == model.explain(others).clusters
    assert model.explain(others).notes == ()


def test_a_silo_that_was_set_aside_has_an_atlas_of_its_own():
    own = Member(np.eye(2), np.arange(2), (0.5, 0.5))
    atlas = draw({"d": own}, Features(), held=("d",))
    assert (atlas.silos, atlas.notes) == (("d",), (held_words(["d"]),))
    assert draw({"d": own}, Features()).notes == (ALL_ALONE,)
    whole = draw({"a": own, "b": own, "d": own}, Features(), held=("d",))
    assert [one.flags for one in whole.clusters] == [{"a": "matched", "b": "matched"}] * 2


def test_what_a_silo_kept_is_said():
    kept = {"a": "alone", "b": "federated", "c": "federated"}
    assert held_words(["a", "b"], kept).endswith(
        "A model of its own rows was kept by 'a'. The common model, which may not suit its rows, was kept by 'b'."
    )
