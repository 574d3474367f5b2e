"""Why a row is in its cluster: contributions that add up, and changes that change."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from tests.views import FEW, graph_view

from fmtc import FMTC, Privacy
from fmtc.describe import Features
from fmtc.describe.reasons import explain_row
from fmtc.errors import DataError

CHECKED = range(0, 90, 9)


@pytest.fixture(scope="module")
def silos():
    rng = np.random.default_rng(0)
    found = {}
    for cid in ("a", "b", "c"):
        y = np.repeat([0, 1, 2], 30)
        X = np.column_stack([4.0 * (y == 1), 4.0 * (y == 2), 0 * y, 0 * y]) + rng.normal(size=(90, 4))
        found[cid] = X
    return found


@pytest.fixture(scope="module")
def frames(silos):
    """The same as tables with a category and missing cells."""
    rng = np.random.default_rng(1)
    found = {}
    for cid, X in silos.items():
        sex = np.where(rng.random(90) < np.repeat([0.2, 0.2, 0.9], 30), "m", "f")
        X = np.where(rng.random(X.shape) < 0.1, np.nan, X)
        frame = pl.DataFrame(X, schema=["dose", "age", "size", "noise"]).fill_nan(None)
        found[cid] = frame.insert_column(1, pl.Series("sex", [None if i % 13 == 0 else s for i, s in enumerate(sex)]))
    return found


def total(why):
    return why.start + why.rest + sum(reason.contribution for reason in why.reasons)


@pytest.fixture(scope="module", params=["kmeans", "settled"])
def graph(request, silos):
    final = {"final": "kmeans"} if request.param == "kmeans" else {}
    return graph_view(3, max_iter=5, random_state=0, scale="global", **final).fit(silos)


def test_contributions_add_up_in_the_graph_view(graph, silos):
    for i in CHECKED:
        why = graph.explain(row=silos["a"][i], silos="a")
        scores = graph._models["a"].scores(silos["a"][[i]])[0]
        order = np.argsort(-scores)
        assert (why.cluster, why.second) == (order[0], order[1])
        assert why.cluster == graph.predict(silos["a"][[i]], silos="a")[0]
        assert why.exact and total(why) == pytest.approx(why.margin) == pytest.approx(
            scores[order[0]] - scores[order[1]]
        )


def test_the_border_of_the_graph_view_is_where_it_is_said_to_be(graph, silos):
    """Just before it the cluster is the old one, just after it the new one."""
    told = 0
    for i in CHECKED:
        x = silos["a"][i]
        for change in graph.explain(row=x, silos="a").changes:
            column, told = int(change.column.split()[1]), told + 1
            moved = np.repeat(x[None], 2, axis=0)
            moved[:, column] = x[column] + (change.after - x[column]) * np.array([0.999, 1.001])
            before, after = graph.predict(moved, silos="a")
            assert before == graph.predict(x[None], silos="a")[0] != after
            assert change.before == pytest.approx(x[column])
    assert told > len(CHECKED)


def test_no_smaller_change_of_a_column_leads_away(graph, silos):
    x = silos["b"][40]
    why = graph.explain(row=x, silos="b")
    for change in why.changes:
        column = int(change.column.split()[1])
        moved = np.repeat(x[None], 401, axis=0)
        moved[:, column] += np.linspace(-0.999, 0.999, 401) * abs(change.after - x[column])
        assert (graph.predict(moved, silos="b") == why.cluster).all()


@pytest.fixture(scope="module")
def mixture(frames):
    return FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(frames)


def test_contributions_add_up_in_the_mixture(mixture, frames):
    """With categories, and with cells that are missing: these say nothing."""
    missing = 0
    for i in CHECKED:
        row = frames["a"][i : i + 1]
        why = mixture.explain(row=row, silos="a")
        assert why.cluster == mixture.predict(row, silos="a")[0]
        assert why.exact and total(why) == pytest.approx(why.margin)
        empty = [name for name in row.columns if row[name][0] is None]
        missing += len(empty)
        assert not {reason.column for reason in why.reasons} & set(empty)
        assert not {change.column for change in why.changes} & set(empty)
    assert missing


def test_changes_of_the_mixture_change_the_cluster(mixture, frames):
    kinds = set()
    for i in range(90):
        row = frames["a"][i : i + 1]
        why = mixture.explain(row=row, silos="a")
        for change in why.changes:
            moved = row.with_columns(pl.lit(change.after).alias(change.column))
            assert mixture.predict(moved, silos="a")[0] == change.cluster != why.cluster
            if change.column != "sex":
                near = change.before + 0.999 * (change.after - change.before)
                same = row.with_columns(pl.lit(near).alias(change.column))
                assert mixture.predict(same, silos="a")[0] == why.cluster
            kinds.add(change.column)
    assert {"dose", "age"} <= kinds


def test_many_columns_add_up_too(silos):
    rng = np.random.default_rng(1)
    turn = rng.normal(size=(4, 60))
    wide = {cid: X @ turn + 0.1 * rng.normal(size=(90, 60)) for cid, X in silos.items()}
    model = FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(wide)
    assert model._models["a"].frame.axes is not None
    why = model.explain(row=wide["a"][5], silos="a")
    assert why.exact and total(why) == pytest.approx(why.margin) and len(why.reasons) == 10
    for change in why.changes:
        moved = wide["a"][[5]]
        moved[0, int(change.column.split()[1])] = change.after
        assert model.predict(moved, silos="a")[0] == change.cluster != why.cluster


def test_words_are_added_and_taken_away_whole():
    rng = np.random.default_rng(0)
    means = np.repeat([[2, 2, 0.05, 0.05, 1], [0.05, 0.05, 2, 2, 1]], 25, axis=0)
    X = {cid: sp.csr_array(rng.poisson(means).astype(float)) for cid in "ab"}
    model = graph_view(2, max_iter=4, random_state=0, scale="tfidf").fit(X)
    x = X["a"][[0]]
    why = explain_row(model._models["a"], x, Features(is_text=True, words=lambda wanted: {j: f"w{j}" for j in wanted}))
    assert why.reasons[0].column in ("w0", "w1") and total(why) == pytest.approx(why.margin)
    for change in why.changes:
        assert change.after == round(change.after) >= 0
        moved = x.toarray()
        moved[0, int(change.column[1:])] = change.after
        assert model._models["a"].assign(sp.csr_array(moved))[0] == change.cluster != why.cluster
    assert why.changes


@pytest.mark.parametrize("kind", ["lift", "private"])
def test_where_scores_are_no_sums_columns_are_left_out_one_by_one(kind, silos):
    if kind == "lift":
        model = graph_view(3, max_iter=3, random_state=0, scale="global", lift=True).fit(silos)
    else:
        model = FMTC(3, privacy=Privacy(8, bounds=(-6, 12)), random_state=0).fit(silos)
    x = silos["a"][40]
    why = model.explain(row=x, silos="a")
    assert not why.exact and why.cluster == model.predict(x[None], silos="a")[0]
    if kind == "lift":
        assert why.reasons[0].column == "column 0"  # what this cluster is about
    for change in why.changes:
        moved = x.copy()
        moved[int(change.column.split()[1])] = change.after
        assert model.predict(moved[None], silos="a")[0] == change.cluster != why.cluster
    assert why.changes


def test_a_single_cluster_needs_no_reason(silos):
    model = FMTC(1, view="mixture", random_state=0, mixture=FEW).fit(silos["a"])
    why = model.explain(row=silos["a"][0])
    assert (why.cluster, why.second, why.reasons, why.changes) == (0, 0, (), ())
    assert str(why) == "cluster 0, probability 100 %; there is no other"


def test_it_takes_one_row(graph, silos):
    with pytest.raises(DataError, match="one row"):
        graph.explain(row=silos["a"][:2], silos="a")


def test_it_is_told_in_words_and_in_json(mixture, frames):
    why = replace(mixture.explain(row=frames["a"][40:41], silos="a"), names={0: "mild", 1: "severe", 2: "other"})
    text = str(why)
    assert f"cluster {why.cluster} ({why.names[why.cluster]})" in text
    assert f"{why.changes[0].column} " in text and "in place of" in text
    again = json.loads(json.dumps(why.to_dict()))
    assert again["reasons"][0]["contribution"] == why.reasons[0].contribution
    assert again["names"]["1"] == "severe"


def test_names_and_rows_beside_a_row_are_not_forgotten(mixture, frames):
    row = frames["a"][:1]
    why = mixture.explain(row=row, silos="a")
    named = mixture.explain(row=row, silos="a", names={why.cluster: "mild"})
    assert "mild" in str(named) and "mild" not in str(why)
    with pytest.raises(TypeError, match="row= takes the place of X"):
        mixture.explain(frames["a"], row=row, silos="a")
