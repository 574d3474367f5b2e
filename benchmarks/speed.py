"""Time and memory as ratios to named rivals in the same run (machines are noisy; ratios less so).

python benchmarks/speed.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_blobs

from fmtc import FMTC

RESULTS = Path(__file__).parent / "results" / "speed.json"
CLIENTS, ROWS, FEATURES, K = 4, 5_000, 50, 10


def silos(n: int = ROWS, spread: float = 10.0) -> dict[str, np.ndarray]:
    """Clients with the same groups, which are far apart at a spread of 6, touch at 10 and overlap at 12."""
    X, _ = make_blobs(CLIENTS * n, FEATURES, centers=K, cluster_std=spread, random_state=0)
    return {f"client{t}": X[t::CLIENTS] for t in range(CLIENTS)}


def best_of(n: int, *works: Callable[[], object]) -> list[float]:
    """Shortest time of each piece of work over n turns, taken in turn so that noise hits all alike."""
    times = [[] for _ in works]
    for _ in range(n):
        for work, taken in zip(works, times, strict=True):
            started = time.perf_counter()
            work()
            taken.append(time.perf_counter() - started)
    return [min(taken) for taken in times]


def fit_ratio(spread: float) -> dict[str, float]:
    """Whole federated fit against scikit-learn's spectral clustering of the same clients one by one."""
    data = silos(spread=spread)

    def rival() -> None:
        for X in data.values():
            SpectralClustering(K, affinity="nearest_neighbors", random_state=0).fit(X)

    def ours(**setting: object) -> Callable[[], object]:
        return lambda: FMTC(K, random_state=0, n_jobs=-1, **setting).fit(data)

    theirs, default, same_graph = best_of(2, rival, ours(), ours(n_neighbors=10))
    return {
        "scikit-learn, seconds": theirs,
        "FMTC default, seconds": default,
        "FMTC with 10 neighbours, seconds": same_graph,
        "FMTC default / scikit-learn": default / theirs,
        "FMTC with 10 neighbours / scikit-learn": same_graph / theirs,
    }


def predict_ratio() -> dict[str, float]:
    """`predict` against the bare product with W and an arg-min."""
    data = silos()
    model = FMTC(K, random_state=0, n_jobs=-1, max_iter=5).fit(data)
    X = np.vstack([data["client0"]] * 40)
    W = model.projections_["client0"]
    bare, ours = best_of(7, lambda: (X @ W).argmin(axis=1), lambda: model.predict(X, clients="client0"))
    return {"rows": len(X), "rows per second": len(X) / ours, "predict / bare product and arg-min": ours / bare}


def peak_memory(n: int) -> int:
    """Bytes that a fit of one client of n rows adds to a process, measured from outside."""
    code = (
        "import resource, sys; from benchmarks_speed import silos, K; from fmtc import FMTC\n"
        f"X = silos({n})['client0']; FMTC(K, max_iter=2, random_state=0).fit(X[:200])\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak(); FMTC(K, max_iter=5, random_state=0).fit(X); print(peak() - before)"
    )
    code = code.replace("benchmarks_speed", Path(__file__).stem)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    memory = {}
    for n in (10_000, 20_000, 40_000):
        added = peak_memory(n)
        memory[f"{n} rows: bytes added"] = added
        memory[f"{n} rows: share of one dense n x n matrix"] = added / (8 * n * n)
    fit = {name: fit_ratio(spread) for name, spread in (("far apart", 6.0), ("touching", 10.0), ("overlapping", 12.0))}
    found = {"fit": fit, "predict": predict_ratio(), "memory": memory}
    print(json.dumps(found, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
