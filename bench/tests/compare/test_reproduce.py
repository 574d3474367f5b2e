"""Stored fits are run again, and what is no longer so is found."""

import pytest

from fmtc.errors import FileError
from fmtc_bench.compare import evidence, federations
from fmtc_bench.compare.evidence import compact
from fmtc_bench.compare.grid import Cell, Store, run_cells
from fmtc_bench.compare.reproduce import COMPARED, NIGHTLY, UNSEEDED, choose, reproduce

NAME = "synthetic-offset?rows=30"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two methods on two splits, one of which needs more data, kept as results."""
    folder = tmp_path_factory.mktemp("results")
    wanted = [Cell(NAME, "kmeans", split=split) for split in (0, 1)] + [Cell(NAME, "one-cluster")]
    wanted += [Cell("synthetic-offset?n_samples=4", "fmtc")]  # fails, and will again
    rows = run_cells(wanted, Store(folder / "cells.jsonl"))
    assert [row["status"] for row in rows] == ["ok"] * 3 + ["failed"]
    late = {**rows[0], "split": 2, "status": "timeout"}
    (folder / "rows.csv").write_text(compact([*rows, late]))
    return folder


@pytest.fixture
def these(folder, monkeypatch):
    monkeypatch.setattr(evidence, "FEDERATIONS", (NAME, "synthetic-offset?n_samples=4"))
    monkeypatch.setattr(evidence, "here", list)
    return folder


def test_the_same_code_gives_the_same_rows(these):
    lines, left_out = choose(these, cells=10)
    assert (len(lines), left_out) == (4, [])  # what ran out of time is the clock's word
    seen = []
    assert reproduce(lines, progress=lambda cell, row: seen.append(row is None)) == []
    assert sorted(seen) == [False] * 4 + [True] * 4


def test_a_score_that_changed_is_found(these, tmp_path):
    lines, _ = choose(these, cells=10)
    (one,) = [line for line in lines if (line["method"], line["split"]) == ("kmeans", "1")]
    stored = one["ari_out"]
    one["ari_out"] = f"{float(stored) + 1e-5:.5f}"
    one["seconds"] = "99"
    assert reproduce(lines) == [
        {
            "cell": f"{NAME} / kmeans / default / split 1 / seed 0",
            "score": "ari_out",
            "stored": one["ari_out"],
            "now": stored,
        }
    ]
    assert not {"seconds", "peak_mb", "code", "versions"} & set(COMPARED)


def test_a_fit_that_fails_where_it_did_not_is_found(these):
    lines, _ = choose(these, cells=10)
    failed = [line for line in lines if line["status"] == "failed"]
    failed[0]["status"], failed[0]["acc_in"] = "ok", "0.50000"
    assert {line["score"] for line in reproduce(failed)} == {"status", "acc_in"}


def test_fits_are_drawn_by_a_seed_and_those_of_other_machines_are_left_out(these, monkeypatch):
    drawn = [
        [(line["dataset"], line["method"], line["split"]) for line in choose(these, cells=2, seed=seed)[0]]
        for seed in (0, 0, *range(1, 9))
    ]
    assert {len(some) for some in drawn} == {2}
    assert drawn[0] == drawn[1]
    assert any(some != drawn[0] for some in drawn)
    monkeypatch.setattr(evidence, "here", lambda names: [name for name in names if name == NAME])
    lines, left_out = choose(these, cells=10)
    assert {line["dataset"] for line in lines} == {NAME}
    assert left_out == ["synthetic-offset?n_samples=4 is not on this machine"]


def test_noise_that_nobody_can_seed_is_not_drawn(tmp_path, row, few, monkeypatch):
    monkeypatch.setattr(evidence, "here", list)
    (tmp_path / "rows.csv").write_text(compact([row(few[0], name) for name in ("kmeans", *UNSEEDED)]))
    lines, _ = choose(tmp_path, cells=9)
    assert [line["method"] for line in lines] == ["kmeans"]


def test_the_fixed_few_are_of_the_plan_and_take_the_first_split(tmp_path, row, monkeypatch):
    names = [(data, method) for data, methods in NIGHTLY for method in (*methods, "hdbscan")]
    rows = [row(data, method, split=split) for data, method in names for split in (0, 1)]
    (tmp_path / "rows.csv").write_text(compact([*rows, row(NIGHTLY[0][0], "kmeans", trial="1")]))
    looked_at = {f"{name}{',' if '?' in name else '?'}rows={evidence.ROWS_OF_A_SILO}" for name in federations.FIRST}
    assert set(dict(NIGHTLY)) <= {*evidence.DATASETS, *evidence.FEDERATIONS, *looked_at}
    monkeypatch.setattr(evidence, "here", list)
    lines, left_out = choose(tmp_path)
    found = [(line["dataset"], line["method"]) for line in lines]
    assert sorted(found) == sorted(pair for pair in names if pair[1] != "hdbscan")
    assert {(line["split"], line["trial"]) for line in lines} == {("0", "default")}
    assert left_out == []
    monkeypatch.setattr(evidence, "here", lambda _: [])
    lines, left_out = choose(tmp_path)
    assert lines == [] and len(left_out) == len(NIGHTLY)


def test_rows_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(FileError, match="other columns"):
        choose(tmp_path)
