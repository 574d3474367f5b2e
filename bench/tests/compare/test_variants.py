"""Methods with settings and data sets with options, by name."""

import numpy as np
import pytest

from fmtc import FMTC, Graph
from fmtc_bench.compare import protocol
from fmtc_bench.compare.grid import Cell, Store, cells, run_cells
from fmtc_bench.compare.methods import METHODS, defaults_of, method_of, settings_of
from fmtc_bench.compare.summary import mean_ranks, summarise
from fmtc_bench.datasets import load


def test_a_method_with_settings_is_the_method_with_these_parameters():
    plain, other = method_of("fmtc"), method_of("fmtc/align=False,beta=0.4,n_neighbors=auto,center_features=False")
    assert plain is METHODS["fmtc"]
    expected = FMTC(4, random_state=3, graph=Graph(beta=0.4, align=False, center_features=False))
    assert defaults_of(other.build(4, random_state=3)) == defaults_of(expected)
    assert plain.build(4, random_state=3).get_params() == FMTC(4, random_state=3).get_params()
    assert (other.group, other.shares) == (plain.group, plain.shares)
    assert other.title == "FMTC align=False, beta=0.4, n_neighbors=auto, center_features=False"
    assert method_of("fmtc-published/alpha=10").build(3).graph.rho == 1.0
    assert method_of("fmtc-alone/ridge=0.1").build(3).graph == Graph(beta=0.0, final="kmeans", ridge=0.1)


def test_trials_of_a_variant_have_its_settings_and_differ():
    fixed = method_of("stsc/n_neighbors=7,nonmutual_weight=0.5")
    assert len({line["bandwidth_scale"] for line in fixed.grid if "trial" not in line}) == 6  # all there are
    assert all((line["n_neighbors"], line["nonmutual_weight"]) == (7, 0.5) for line in fixed.grid)
    assert [line["trial"] for line in fixed.grid if "trial" in line] == [1, 2, 3, 4, 5, 6]
    other = method_of("fmtc/align=False")
    assert other.grid == tuple(line | {"align": False} for line in METHODS["fmtc"].grid)  # the same draws


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fmt/beta=1", "'fmt'; did you mean 'fmtc'"),
        ("fmtc/bta=1", "'bta'; did you mean 'beta'"),
        ("fmtc/rige=1", "'rige'; did you mean 'ridge'"),
        ("fmtc/reweigh=10", "'reweigh'"),
        ("fmtc/graph=1", "'graph'"),
        ("fmtc/", "'fmtc/'"),
        ("fmtc/beta", "'beta'"),
        ("fmtc/beta=1,beta=2", "beta"),
        ("fmtc/beta=1+", r"'1\+'"),
        ("fmtc/n_clusters=3", "'n_clusters'"),
        ("fmtc-alone/beta=1", "fmtc-alone"),
    ],
)
def test_nonsense_about_methods_is_refused(name, words):
    with pytest.raises(ValueError, match=words):
        method_of(name)


def test_values_are_read_as_python_writes_them():
    found = settings_of("a=1,b=2.5,c=none,d=None,e=[1,2],f=(3,4),g=two-words,h='two words',i=True", "")
    assert list(found.values()) == [1, 2.5, "none", None, [1, 2], (3, 4), "two-words", "two words", True]


def test_a_cell_of_a_variant_runs_is_stored_and_summarised(tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    names = ["kmeans", "fmtc", "fmtc/view=graph,align=False,max_iter=3,tol=0"]
    wanted = cells(["synthetic-offset?n_clients=3,rows=40"], names)
    rows = run_cells(wanted, store)
    assert [row["status"] for row in rows] == ["ok"] * 3, rows
    assert [row["method"] for row in rows] == names
    assert rows[2]["rounds"] == 3
    assert len({cell.key for cell in wanted}) == 3
    assert list(mean_ranks(summarise(rows))) == ["fmtc", "kmeans", names[2]]
    assert Cell("digits", names[2], "1").setting["align"] is False


def test_the_history_of_fmtc_is_in_its_row():
    train, test = protocol.dataset("synthetic-offset").split()
    row = protocol.evaluate(train, test, "fmtc/view=graph,max_iter=4,tol=0", {}, seed=0)
    assert [line[0] for line in row["history"]] == [1, 2, 3, 4]
    assert all(len(line) == 4 and np.isfinite(line).all() for line in row["history"])
    assert protocol.evaluate(train, test, "fedkmeans", {}, seed=0)["history"] == []


# ------------------------------------------------------------------------------------------------------ data sets


def rows_of(data, cid):
    return {row.tobytes() for row in data.X[data.clients == cid]}


def test_options_are_those_of_the_loader():
    assert protocol.dataset("digits?n_clients=4,seed=1").name == load("digits", n_clients=4, seed=1).name
    data = protocol.dataset("synthetic-offset?n_samples=[50,60],n_clients=2,distance=3.0")
    assert np.unique(data.clients, return_counts=True)[1].tolist() == [50, 60]


def test_fewer_rows_are_among_more_rows():
    whole, many, few = (protocol.dataset(name) for name in ("digits", "digits?rows=100", "digits?rows=30"))
    for cid in whole.client_ids:
        assert rows_of(few, cid) < rows_of(many, cid) < rows_of(whole, cid)
        assert (few.clients == cid).sum() == 30
    assert (protocol.dataset("digits?rows=30").X == few.X).all()
    assert protocol.dataset("digits?rows=9999").X.shape == whole.X.shape


def neighbours(data, whole):
    """Pairs of clients that stand side by side on the ring of names, told by their rows."""
    place = {frozenset(rows_of(whole, cid)): i for i, cid in enumerate(whole.client_ids)}
    ring = [place[frozenset(rows_of(data, cid))] for cid in data.client_ids]
    return {frozenset(pair) for pair in zip(ring, ring[1:] + ring[:1], strict=True)}


@pytest.mark.parametrize("seed", range(2))
def test_another_order_is_the_same_clients_under_other_names(seed):
    whole = protocol.dataset("digits")
    data = protocol.dataset(f"digits?order={seed}")
    assert data.client_ids == whole.client_ids
    assert neighbours(data, whole) != neighbours(whole, whole)
    assert (data.X == whole.X).all()
    train, again = (part.split(seed=1)[0] for part in (whole, data))
    assert {frozenset(rows_of(train, cid)) for cid in train.client_ids} == {
        frozenset(rows_of(again, cid)) for cid in again.client_ids
    }


@pytest.mark.parametrize("seed", range(6))
def test_four_clients_never_keep_their_ring(seed):
    """A third of all permutations would, and the tensor norm does not see those."""
    whole, data = (protocol.dataset(f"synthetic-offset?n_samples=12{more}") for more in ("", f",order={seed}"))
    assert neighbours(data, whole) != neighbours(whole, whole)


def test_two_clients_change_places():
    whole, data = (protocol.dataset(f"synthetic-offset?n_clients=2{more}") for more in ("", ",order=0"))
    assert rows_of(data, "silo1") == rows_of(whole, "silo2")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digits?rows=0", "rows .*0"),
        ("digits?rows=2.5", r"rows .*2\.5"),
        ("digits?order=-1", "order .*-1"),
        ("digits?order=x", "order .*'x'"),
        ("digits?n_client=4", "n_client.*n_clients"),
        ("digits?", r"digits\?"),
        ("synthetic-offset?sise=4", "sise"),
        ("synthetic-offset?n_clients=1,order=1", "one client"),
        ("nothing?rows=3", "'nothing'"),
    ],
)
def test_nonsense_about_data_sets_is_refused(name, words):
    with pytest.raises(ValueError, match=words):
        protocol.dataset(name)
