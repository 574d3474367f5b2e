"""Cells: run once, kept for good, never a hole."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc import FMTC
from fmtc.errors import FileError
from fmtc.schema import Column, Schema
from fmtc_bench.baselines import KMeansAlone
from fmtc_bench.compare import grid, protocol
from fmtc_bench.compare.grid import Cell, Store, cells, run_cells
from fmtc_bench.compare.methods import GROUPS, METHODS, TRIALS, defaults_of
from fmtc_bench.datasets import FederatedDataset, synthetic

QUICK = ["kmeans", "random"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "deep" / "cells.jsonl")


def test_cells_are_all_combinations():
    found = cells(["a", "b"], ["kmeans", "fmtc"], splits=range(2), seeds=range(3), trials=1)
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 3 * 2
    assert found[0] == Cell("a", "kmeans", "default", 0, 0)
    with pytest.raises(ValueError, match=r"12.* 13"):
        cells(["a"], ["kmeans"], trials=13)


def test_everyone_may_try_equally_many_settings():
    assert {len(method.grid) for method in METHODS.values()} == {TRIALS}
    for method in METHODS.values():
        assert len({json.dumps(setting) for setting in method.grid}) == TRIALS
        for setting in method.grid:
            values = {name: value for name, value in setting.items() if name != "trial"}
            params = defaults_of(method.build(3, random_state=0, **values))
            assert {name: params[name] for name in values} == values


def test_no_trial_is_the_default_again():
    for method in METHODS.values():
        default = defaults_of(method.build(3))
        for setting in method.grid:
            assert setting.get("trial", 0) > 0 or any(default[name] != value for name, value in setting.items())


def test_trials_are_draws_that_vary_every_parameter():
    for method in METHODS.values():
        for name, values in method.space.items():
            tried = {json.dumps(setting[name]) for setting in method.grid if name in setting}
            assert len(tried) >= min(2, len(values)), (method.name, name)
    drawn = METHODS["fedkmeans"].grid[:2]  # the same on every machine
    assert drawn == (
        {"n_rounds": 30, "local_iters": 10, "personalised": True},
        {"n_rounds": 100, "local_iters": 3, "personalised": False},
    )
    few = cells(["a"], ["fmtc"], trials=3)
    assert [cell.trial for cell in few] == ["default", "0", "1", "2"]


def test_methods_that_pool_rows_are_marked():
    assert {method.group for method in METHODS.values()} == set(GROUPS)
    assert [name for name, method in METHODS.items() if method.group == "pooled"] == ["usc", "kmeans-union"]
    assert {name for name, method in METHODS.items() if method.pooled} == {"usc", "kmeans-union", "smkc", "mtsc"}
    assert METHODS["fmtc"].build(5).get_params() == FMTC(5).get_params()


def test_a_rerun_is_served_from_the_stored_cells(store):
    wanted = cells(["synthetic-offset"], QUICK, splits=range(2))
    first = run_cells(wanted, store, jobs=2)
    assert [(r["method"], r["split"], r["status"]) for r in first] == [(c.method, c.split, "ok") for c in wanted]
    content = store.path.read_bytes()
    seen = []
    again = run_cells(wanted, Store(store.path), progress=lambda cell, row: seen.append(cell))
    assert seen == []
    assert store.path.read_bytes() == content
    assert [row["train"] for row in again] == [row["train"] for row in first]


def test_only_missing_cells_are_run(store):
    run_cells(cells(["synthetic-offset"], ["random"]), store)
    ran = []
    rows = run_cells(
        cells(["synthetic-offset"], QUICK), store, progress=lambda cell, row: row and ran.append(cell.method)
    )
    assert ran == ["kmeans"]
    assert [row["method"] for row in rows] == QUICK


def test_a_failed_cell_is_a_row_and_can_be_tried_again(store, tmp_path, monkeypatch):
    monkeypatch.setenv("FMTC_DATA", str(tmp_path))
    monkeypatch.setattr("fmtc_bench.datasets.base.cache_home", lambda: tmp_path / "cache")
    wanted = [Cell("webkb4", "kmeans"), Cell("synthetic-offset", "random")]
    rows = run_cells(wanted, store)
    assert [row["status"] for row in rows] == ["failed", "ok"]
    assert "webkb4 is not on this machine" in rows[0]["error"]
    ran = []
    run_cells(wanted, store, progress=lambda cell, row: row and ran.append(cell.dataset))
    assert ran == []
    run_cells(wanted, store, retry=True, progress=lambda cell, row: row and ran.append(cell.dataset))
    assert ran == ["webkb4"]


def test_what_goes_wrong_inside_a_method_is_told(store):
    (row,) = run_cells([Cell("synthetic-offset", "no-such-method")], store)
    assert row["status"] == "failed"
    assert "no-such-method" in row["error"]
    assert "Traceback" in row["traceback"]


def test_a_cell_that_takes_too_long_is_given_up(store):
    started = time.monotonic()
    (row,) = run_cells([Cell("digits", "fmtc")], store, time_limit=0.05)
    assert row["status"] == "timeout"
    assert "not done after" in row["error"]
    assert time.monotonic() - started < 30


def test_a_process_that_dies_is_told(store, monkeypatch):
    class Dead:
        def recv(self):
            raise EOFError

        def close(self):
            pass

    class Process:
        exitcode = -9

        def join(self):
            pass

    worker = grid._Worker(Cell("synthetic-offset", "random"), Process(), Dead(), time.monotonic() + 60)
    monkeypatch.setattr(grid, "wait", lambda answers, timeout: answers)
    busy = [worker]
    grid._collect(busy, store, lambda cell, row: None)
    assert busy == []
    assert "exit code -9" in store.rows[worker.cell.key]["error"]


def test_a_line_cut_off_at_the_end_is_forgotten_and_one_in_the_middle_is_not(store):
    wanted = cells(["synthetic-offset"], QUICK)
    run_cells(wanted, store)
    whole = store.path.read_text()
    store.path.write_text(whole[:-1])  # even if nothing but the end of the line is missing
    assert len(Store(store.path).rows) == 1
    store.path.write_text(whole[:-20])
    cut = Store(store.path)
    assert len(cut.rows) == 1
    run_cells(wanted, cut)
    assert len(store.path.read_text().splitlines()) == len(Store(store.path).rows) == 2
    store.path.write_text("no cell\n" + whole)
    with pytest.raises(FileError, match="line 1 "):
        Store(store.path)


def test_another_setting_is_another_cell():
    keys = {Cell("digits", "stsc", trial).key for trial in ("default", "0", "1")}
    assert len(keys) == 3
    assert Cell("digits", "stsc", "1").setting == METHODS["stsc"].grid[1] != {}


def test_rows_of_trials_that_changed_are_not_current(store, monkeypatch):
    wanted = cells(["synthetic-offset"], QUICK, trials=1)
    run_cells(wanted, store)
    assert len(store.current()) == len(store.rows) == 4
    changed = replace(METHODS["kmeans"], space={"n_init": [1, 2, 3]})
    monkeypatch.setitem(METHODS, "kmeans", changed)
    monkeypatch.delitem(METHODS, "random")
    assert [(row["method"], row["trial"]) for row in store.current()] == [("kmeans", "default")]


def test_a_row_holds_what_a_reader_needs(store):
    (row,) = run_cells([Cell("synthetic-offset", "fmtc")], store)
    for part in ("train", "test", "vote"):
        assert row[part]["mean"]["acc"] == pytest.approx(
            np.mean([line["acc"] for line in row[part]["clients"].values()]), rel=1e-12
        )
        assert set(row[part]) >= {"mean", "weighted", "pooled", "clients"}
    assert row["bytes_up"] > 0
    assert row["peak_memory"] >= 0
    assert row["versions"]["numpy"] == np.__version__
    assert row["setting"] == {}
    assert row["error"] is None


def test_a_table_reaches_each_method_as_it_can_take_it(monkeypatch):
    """FMTC gets missing cells and codes of categories, others means of the training rows and indicators."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(5, 2, 80), np.arange(80) % 3])
    X[::9] = np.nan
    schema = Schema((Column("age"), Column("cp", "category", ("a", "b", "c"))))
    data = FederatedDataset(
        "made", X, np.arange(80) % 2, np.repeat(["a", "b"], 40), schema.names, ("p", "q"), "standardize", schema=schema
    )
    train, test = data.split(seed=0)
    assert train.n_missing + test.n_missing == 18
    seen = {}
    for kind in (FMTC, KMeansAlone):

        def watched(self, X, fit=kind.fit, **how):
            seen[type(self)] = X
            return fit(self, X, **how)

        monkeypatch.setattr(kind, "fit", watched)
    for method in ("fmtc", "kmeans"):
        row = protocol.evaluate(train, test, method, {}, seed=0)
        assert {row[part]["mean"]["acc"] > 0.4 for part in ("train", "test", "vote")} == {True}
    assert seen[FMTC].X is train.X and seen[FMTC].schema is train.schema
    given, holes = seen[KMeansAlone], np.isnan(train.X)
    assert given.shape == (64, 4)
    assert_allclose(given[holes[:, 0], 0], 0, atol=1e-12)  # the mean of standardised training rows
    assert_array_equal(given[~holes[:, 0], 0], train.X[~holes[:, 0], 0])
    assert_array_equal(given[holes[:, 1], 1:], 0)
    assert_array_equal(given[~holes[:, 1], 1:].argmax(axis=1), train.X[~holes[:, 1], 1])
    raw = replace(data, recipe="none")
    assert_allclose(protocol.complete(raw, raw)[0, 0], np.nanmean(X[:, 0]))


def test_evaluate_scores_the_fit_and_the_map():
    train, test = synthetic("offset", noise=0.1, seed=1).split(seed=0)
    row = protocol.evaluate(train, test, "kmeans", {}, seed=0)
    assert row["train"]["mean"]["acc"] == row["test"]["mean"]["acc"] == row["vote"]["mean"]["acc"] == 1
    assert row["test"]["acc_frozen"] == 1
    random = protocol.evaluate(train, test, "random", {"trial": 3}, seed=0)
    assert random["test"]["acc_frozen"] < random["test"]["mean"]["acc"]  # matched anew, chance looks better
    one = protocol.evaluate(train, test, "one-cluster", {}, seed=0)
    assert one["train"]["mean"]["ri"] == pytest.approx(one["train"]["mean"]["ri_one_cluster"])


def test_the_vote_is_that_of_the_nearest_rows():
    X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    labels = np.array([0, 0, 0, 1, 1, 1])
    assert protocol.vote(X, labels, np.array([[1.5], [10.5]])).tolist() == [0, 1]
    assert protocol.vote(X[:2], labels[:2], X[3:4]).tolist() == [0]  # fewer rows than voters
