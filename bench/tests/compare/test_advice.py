"""The evidence about advice: what rows come to, and that labels do not reach it."""

from dataclasses import replace

import numpy as np
import pytest

from fmtc_bench.compare.concepts import advice as part
from fmtc_bench.datasets import synthetic


def row(truth, chosen, low, high, verdict="range", **others):
    said = {"chosen": chosen, "low": low, "high": high, "verdict": verdict, "seconds": 1.0}
    known = {"part": part.AS_IT_IS, "set": "toy", "seed": 0, "rows_per_class": 20.0, "columns": 60, "status": "done"}
    return known | {"truth": truth} | {"advice": said} | others


def test_rows_are_summed_up():
    rows = [row(4, 4, 4, 4, "clear"), row(10, 12, 8, 12), row(4, 8, 5, 9, "clear"), row(5, 10, 2, 12)]
    found = part.summary(rows)
    assert found == {"n": 4, "error": pytest.approx((np.log2(1.2) + 2) / 4), "near": 2, "held": 3}


def test_a_data_set_that_cannot_be_advised_on_is_a_line_all_the_same():
    failed = {
        "part": part.AS_IT_IS,
        "set": "tiny",
        "seed": 0,
        "truth": 9,
        "rows_per_class": 0.5,
        "status": "too few rows",
    }
    lines = part.table([failed, row(4, 4, 4, 4, fit_seconds=2.0)])
    assert any("| tiny | 9 |" in line and "too few rows" in line for line in lines)
    assert any("1.0 s / 2.0 s" in line for line in lines)
    assert "0.50 of a fit" in lines[-1]


def test_labels_are_for_scoring_only(monkeypatch):
    data = synthetic("skew", seed=0)
    told = []
    monkeypatch.setattr(part, "load", lambda name: data)
    (before,) = part.measure([0], told.append, ["toy"], ())
    train = part._few(data.split(part.TEST, 0)[0], 0)
    shuffled = part._advice(replace(train, y=np.random.default_rng(0).permutation(train.y)), data.n_clusters, 0, False)
    for name in ("chosen", "low", "high", "signals"):
        assert shuffled["advice"][name] == before["advice"][name]
    assert before["fit_seconds"] > 0
    assert told == ["toy, seed 0"]
