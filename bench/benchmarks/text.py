"""Sparse text of 50,000 words: what a fit adds to a process at its peak, over 4 CSR + W.

CSR are the rows of all clients as they came, W the projections of all. On Linux.

    FMTC_DATA=folder python bench/benchmarks/text.py
"""

from __future__ import annotations

import argparse
import ctypes
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from _data import graph_view, resident
from fmtc import FMTC
from fmtc_bench import datasets

RESULTS = Path(__file__).parent / "results" / "text.json"
NAME, WORDS = "20newsgroups", 50_000


def nbytes(X: Any) -> int:
    """Of the arrays of a sparse matrix."""
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def model(n_clusters: int, **setting: Any) -> FMTC:
    """The graph view of words."""
    return graph_view(n_clusters, **({"scale": "tfidf", "max_features": WORDS, "random_state": 0} | setting))


def memory(name: str = NAME) -> dict[str, float]:
    """Of a fit in this process, which has the rows, and has fitted a few of them before."""
    data = datasets.load(name)
    X, k = {cid: data.X[data.clients == cid] for cid in data.client_ids}, data.n_clusters
    del data
    model(k, max_iter=2, max_features=100).fit({cid: Xt[:100] for cid, Xt in X.items()})
    ctypes.CDLL(None).malloc_trim(0)  # what reading has freed is not there for the fit to hide in
    Path("/proc/self/clear_refs").write_text("5")  # nor is the peak of reading
    before = resident("VmRSS")
    fitted = model(k).fit(X)
    added, csr, W = resident("VmHWM") - before, sum(map(nbytes, X.values())), int(np.asarray(fitted.consensus_).nbytes)
    return {
        "bytes added": added,
        "bytes of the CSR matrices": csr,
        "bytes of W, all clients": W,
        "rounds": fitted.n_iter_,
        "added / (4 CSR + W)": added / (4 * csr + W),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore")
    found = {"memory": memory()}
    print(json.dumps(found, indent=1))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
