"""Rows as `run_cells` gives them, without running anything."""

import numpy as np
import pytest

from fmtc_bench.compare import comparison, evidence, federations

LETTER = ("letter?dealing=even,rows=300", "letter?dealing=skewed,rows=300", "letter?dealing=missing,rows=300")
FEW = (*LETTER, "vowel?rows=300", "glass?dealing=even,rows=300")
KINDS = {"letter": "tables", "glass": "tables", "vowel": "speech"}


def make_row(dataset="digits", method="fmtc", acc=0.5, *, trial="default", split=0, status="ok", rounds=0, **more):
    def part(value):
        return {"mean": {"acc": value, "nmi": value / 2, "ri": 0.9, "ari": value / 4, "ri_one_cluster": 0.1}}

    about = {"dataset": dataset, "method": method, "trial": trial, "split": split, "seed": 0, "status": status}
    about |= {"seconds": 2.0, "machine": "some machine", "code": "0123", "versions": {"fmtc": "1"}, "error": None}
    if status != "ok":
        return about | {"error": "it broke"}
    scores = {"train": part(acc), "test": part(acc - 0.02) | {"acc_frozen": acc - 0.05}, "vote": part(acc - 0.01)}
    history = [[r, 3 + 1 / r, 1 / r**2, 0.5 / r] for r in range(1, rounds + 1)]
    cost = {"seconds_fit": 1.5, "peak_memory": 3_000_000, "bytes_up": 10, "bytes_down": 20, "rounds": 5}
    row = about | scores | cost | {"history": history}
    if "ari" in more:  # on held-out rows; inside: on training rows
        row["test"]["mean"]["ari"] = more["ari"]
        row["train"]["mean"]["ari"] = more.get("inside", more["ari"])
    return row


@pytest.fixture
def row():
    return make_row


@pytest.fixture
def few(monkeypatch):
    """Five test federations of three data sets, in place of all."""
    monkeypatch.setattr(evidence, "FEDERATIONS", FEW)
    monkeypatch.setattr(comparison, "FEDERATIONS", FEW)
    monkeypatch.setattr(federations, "KIND", KINDS)
    return FEW


@pytest.fixture(scope="session")
def all_rows():
    """Two splits of everything that figures and tables show, with invented scores."""
    rng = np.random.default_rng(0)
    tested = (*evidence.COMPARED, "fmtc-average", "random")
    names = {(cell, method) for cell in evidence.DATASETS for method in evidence.COMPARED}
    names |= {(name, method) for name in evidence.FEDERATIONS for method in tested}
    names |= {(name, method) for name in evidence.FIRST[:3] for method in ("fmtc", "kmeans")}
    names |= {(name, evidence.at_round(r)) for name in evidence.CONVERGENCE for r in evidence.ROUNDS}
    grid = [evidence.with_tensor(alpha=a, beta=b) for a in evidence.ALPHAS for b in evidence.BETAS]
    names |= {(name, method) for name in evidence.SENSITIVITY for method in grid}
    names |= {(data, method) for name in evidence.TRIED for _, _, data, method in evidence.ablations(name)}
    rows = []
    for data, method in sorted(names):
        acc = rng.uniform(0.4, 0.8) + 0.15 * (method == "fmtc")
        rounds = 50 if "max_iter=50,tol" in method else 0
        rows += [make_row(data, method, acc + rng.normal(0, 0.01), split=s, rounds=rounds) for s in range(2)]
    for data in evidence.first_federations():
        rows += [
            make_row(data, method, rng.uniform(0.4, 0.8), trial=str(trial))
            for method in ("fmtc", "stsc")
            for trial in range(3)
        ]
    return rows
