"""The figures about joining later."""

import pytest

from fmtc_bench.compare.concepts import later, part_of
from fmtc_bench.datasets import synthetic


def test_a_row_for_each_newcomer(monkeypatch):
    data = synthetic(n_clients=4, n_clusters=3, n_features=6, seed=0)
    monkeypatch.setattr(later, "load", lambda name, **options: data)
    monkeypatch.setattr(later, "NEWCOMERS", 1)
    monkeypatch.setattr(later, "ROWS", 60)
    said = []
    (row,) = part_of("later").measure([0], said.append, ["digits"])
    assert said == ["digits, seed 0"] and row["newcomer"] in set(data.clients) and row["rows"] <= 60
    assert all(0 <= row[way] <= 100 for way in later.WAYS)
    assert row["auto"] == row["guided"] if row["joined"] else True


def test_the_table_names_the_set_that_gains_least():
    scores = dict.fromkeys(later.WAYS, 50.0)
    rows = [
        {"dataset": "a", "joined": True, **scores, "auto": 60.0},
        {"dataset": "a", "joined": False, **scores, "auto": 50.0},
        {"dataset": "b", "joined": True, **scores, "auto": 48.0},
    ]
    found = later.summary(rows)
    assert found["gain"] == pytest.approx(1.5) and found["worst"] == ("b", pytest.approx(-2.0))
    lines = later.table(rows)
    assert "| a | 50.0 | 50.0 | 50.0 | 55.0 | 50.0 | 50 % |" in lines
    assert lines[-1].endswith("the set that gains least: b (-2.0).")
