"""Scores of the atlas: the measure itself, on the digits that come with scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp

from fmtc.describe import Atlas, AtlasCluster, Feature
from fmtc_bench.compare.concepts import atlas, part_of
from fmtc_bench.datasets import FederatedDataset


def test_a_part_measures_and_tells(monkeypatch):
    monkeypatch.setattr(atlas, "FULL", ("digits",))
    monkeypatch.setattr(atlas, "ROWS", 60)
    heard = []
    (row,) = part_of("atlas").measure([0], heard.append, parts=("full",))
    assert heard == ["atlas of digits, seed 0"]
    assert 50 < row["matching"] <= 100 and row["words"] is None and len(row["names"]) == 10
    assert f"| digits | {row['matching']:.1f} |" in atlas.table([row])[-1]


def test_silos_that_lack_classes_are_measured(monkeypatch):
    monkeypatch.setattr(atlas, "DEALT", {"digits": (4, 6)})
    monkeypatch.setattr(atlas, "ROWS", 150)
    monkeypatch.setattr(atlas, "SINGLE", 1)
    missing, unique = part_of("atlas").measure([0], lambda line: None, parts=("missing", "unique"))
    assert 50 < missing["matching"] <= 100 and 50 < missing["matched"] <= 100
    assert unique["found"] == 100 and unique["false_flags"] < 50
    assert unique["cosine_single"] < unique["cosine_others"] - 0.3
    headings = [line for line in atlas.table([missing, unique]) if "one class in one silo" in line or "lack" in line]
    assert len(headings) == 2


def test_words_are_typical_of_the_class_of_their_concept():
    X = sp.csr_array(np.repeat(np.eye(2, 120), 5, axis=0))
    names = tuple(f"w{j}" for j in range(120))
    data = FederatedDataset("toy", X, np.repeat([0, 1], 5), np.array(["a", "b"] * 5), names, ("x", "y"))
    right = Atlas(
        (AtlasCluster(0, "", (Feature("w0", 1.0),)), AtlasCluster(1, "", (Feature("w1", 1.0), Feature("w0", 0.5))))
    )
    assert atlas._words(right, data, {0: 0, 1: 1}) == pytest.approx(75.0)
