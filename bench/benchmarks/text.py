"""Sparse text of 50,000 words: memory of a whole fit, and time of the projection step against named alternatives.

Memory is what a fit adds to a process at its peak, from outside, over 4 CSR + W: CSR the rows of all clients as they
came, W the projections of all. Times are of one client's W-step, in the same run.

FMTC_DATA=... python bench/benchmarks/text.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from _data import graph_view
from fmtc import FMTC
from fmtc.kernels import projection
from fmtc.kernels.projection import RidgeFactors
from fmtc.protocol.graph import round as round_phase
from fmtc_bench import datasets

RESULTS = Path(__file__).parent / "results" / "text.json"
WORDS = 50_000


def news() -> datasets.FederatedDataset:
    return datasets.load("20newsgroups")


def silos(data: datasets.FederatedDataset) -> dict[str, Any]:
    return {str(cid): data.X[data.clients == cid] for cid in np.unique(data.clients)}


def nbytes(X: Any) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes


def model(n_clusters: int, **settings: Any) -> FMTC:
    return graph_view(n_clusters, **({"scale": "tfidf", "max_features": WORDS, "random_state": 0} | settings))


def fit_memory() -> dict[str, float]:
    """Bytes that a fit adds to a process that has the rows, and has fitted a few of them before."""
    code = (
        f"import ctypes, json, warnings; from {Path(__file__).stem} import model, nbytes, news, silos\n"
        "data = news(); X, k = silos(data), data.n_clusters; del data\n"
        "warnings.simplefilter('ignore')\n"
        "model(k, max_iter=2, max_features=100).fit({cid: Xt[:100] for cid, Xt in X.items()})\n"
        "ctypes.CDLL(None).malloc_trim(0)\n"  # what reading has freed is not there for the fit to hide in (Linux)
        "open('/proc/self/clear_refs', 'w').write('5')\n"  # nor is the peak of reading
        "lines = lambda: dict(line.split(':') for line in open('/proc/self/status'))\n"
        "status = lambda name: int(lines()[name].split()[0]) * 1024\n"
        "before = status('VmRSS'); fitted = model(k).fit(X); after = status('VmHWM')\n"
        "print(json.dumps([after - before, sum(map(nbytes, X.values())), fitted.consensus_.nbytes, fitted.n_iter_]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    added, csr, W, rounds = json.loads(done.stdout)
    return {
        "bytes added": added,
        "bytes of the CSR matrices": csr,
        "bytes of W, all clients": W,
        "rounds": rounds,
        "added / (4 CSR + W)": added / (4 * csr + W),
    }


def recorded() -> tuple[RidgeFactors, list[tuple[np.ndarray, np.ndarray]]]:
    """The largest client's systems, (F, anchor) of each W-step of a fit."""
    data = news()
    seen: dict[int, list[tuple[RidgeFactors, np.ndarray, np.ndarray]]] = {}

    def record(factors: RidgeFactors, F: np.ndarray, anchor: np.ndarray) -> np.ndarray:
        seen.setdefault(factors.X.shape[0], []).append((factors, F, anchor))
        return projection.update_projection(factors, F, anchor)

    with warnings.catch_warnings(), mock.patch.object(round_phase, "update_projection", record):
        warnings.simplefilter("ignore")
        model(data.n_clusters).fit(data.X, clients=data.clients)
    steps_of_one = seen[max(seen)]
    return steps_of_one[0][0], [(F, anchor) for _, F, anchor in steps_of_one]


def step_ratios() -> dict[str, float]:
    """All W-steps of one client: matrix-free, by a dense factor of the n x n Gram matrix, and by scikit-learn's Ridge.

    Ridge draws to zero, so it is given F - X anchor and solves for W - anchor, to the same tolerance. CPU time of one
    thread.
    """
    factors, systems = recorded()
    assert not factors.direct
    rows, ridge = factors.X, factors.ridge
    X = rows.gamma * rows.X  # neither centred nor weighted: what Ridge is given

    def dense() -> RidgeFactors:
        chosen = RidgeFactors(rows, ridge)
        chosen.direct = True
        return chosen

    def theirs(F: np.ndarray, anchor: np.ndarray) -> np.ndarray:
        tol = float(np.finfo(F.dtype).eps) ** 0.75
        solver = Ridge(ridge, solver="sparse_cg", fit_intercept=False, tol=tol)
        return anchor + solver.fit(X, F - X @ anchor).coef_.T

    def timed(work: Any, these: list[Any]) -> tuple[float, list[np.ndarray]]:
        started = time.process_time()
        found = [work(*system) for system in these]
        return (time.process_time() - started) / len(these), found

    with threadpool_limits(1):
        ours, W = timed(RidgeFactors(rows, ridge).solve, systems)
        started = time.process_time()
        direct = dense()
        direct.solve(*systems[0])
        ready = time.process_time() - started
        each, exact = timed(direct.solve, systems)
        other, W_other = timed(theirs, systems[:8])
    size = max(float(np.abs(A).max()) for A in exact)
    return {
        "rows": rows.shape[0],
        "words kept": rows.shape[1],
        "W-steps": len(systems),
        "ours, seconds each": ours,
        "dense factor, seconds each": each,
        "dense factor, seconds to make it": ready - each,
        "Ridge(solver='sparse_cg'), seconds each": other,
        "ours / dense, all steps and its factor": ours * len(systems) / (each * len(systems) + ready - each),
        "ours / dense, one step": ours / each,
        "ours / Ridge(solver='sparse_cg')": ours / other,
        "largest difference to dense": max(float(np.abs(A - B).max()) for A, B in zip(W, exact, strict=True)) / size,
        "the same of Ridge": max(float(np.abs(A - B).max()) for A, B in zip(W_other, exact[:8], strict=True)) / size,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = {"memory": fit_memory(), "W-step": step_ratios()}
    print(json.dumps(found, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
