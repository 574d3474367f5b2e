"""What each rival's fit takes, against the operation of a named library that its method cannot do without.

    python bench/benchmarks/baselines.py            # about two minutes on two cores

Four clients x 2,000 rows x 50 features, 10 clusters; one thread for all. The operation is done as often as the
method did it, so a ratio of 1 means that all else is free.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

from fmtc.kernels.graph import knn_affinity, normalized_laplacian, resolve_neighbors
from fmtc_bench import baselines
from fmtc_bench.baselines import bregman
from readme import BASELINES, RESULTS, baselines_part, replace_part
from speed import best_of, silos

K, ROWS = 10, 2_000
Data = Mapping[str, np.ndarray]


def kmeans(data: Data, n_clusters: int = K, n_init: int = 10) -> None:
    """scikit-learn's k-means of each client."""
    for X in data.values():
        KMeans(n_clusters, n_init=n_init, random_state=0).fit(X)


def spectral(data: Data) -> None:
    """scikit-learn's spectral clustering of each client, on a graph of the same size."""
    for X in data.values():
        n = resolve_neighbors("auto", len(X))
        SpectralClustering(K, affinity="nearest_neighbors", n_neighbors=n, random_state=0).fit(X)


def coupled_steps(data: Data, counts: Counter[str], kernel: bool = False) -> None:
    """Steps of k-means as often as they were done, and SciPy's solution of as many transport problems."""
    clients = list(data.values())
    rows = np.concatenate(clients)
    matrix = rbf_kernel(rows) if kernel else None
    for step in range(counts["steps"]):
        t = step % len(clients)
        X = clients[t] if matrix is None else matrix[t * ROWS : (t + 1) * ROWS]
        labels = (clients[t] @ rows[:K].T).argmax(axis=1)
        (labels == np.arange(K)[:, None]).astype(float) @ X
    m = len(clients) * (len(clients) - 1) // 2
    cost, share = np.random.default_rng(0).random((m, K, K)), np.full((m, K), 1 / K)
    for _ in range(counts["transports"]):
        bregman.transport(cost, share, share)


def eigenvectors(data: Data, n_times: int) -> None:
    """Bottom eigenvectors of each client's Laplacian, by SciPy's Lanczos on 2I - L; then k-means."""
    for X in data.values():
        L = normalized_laplacian(knn_affinity(X))
        flipped = 2 * sp.eye_array(len(X), format="csr") - L
        for _ in range(n_times):
            eigsh(flipped, k=K, which="LA", tol=1e-7)
    kmeans({cid: X[:, :K] for cid, X in data.items()})


def anchored(data: Data) -> None:
    """scikit-learn's k-means of each client, for the clusters and for the anchors."""
    kmeans(data)
    kmeans(data, 10 * K * 2 // len(data), 1)


def cases(data: Data) -> dict[str, tuple[str, Any, Callable[[Any, Counter[str]], object]]]:
    """For each baseline: the operation in words, the estimator, and the operation, as often as in a fit."""
    union = {"all": np.concatenate(list(data.values()))}
    b = baselines
    steps = "its steps of k-means, and its transport problems by SciPy"
    return {
        "stSC": ("scikit-learn's spectral clustering", b.StSC, lambda m, n: spectral(data)),
        "uSC": ("scikit-learn's spectral clustering of the union", b.USC, lambda m, n: spectral(union)),
        "MBC": (steps, b.MBC, lambda m, n: coupled_steps(data, n)),
        "SMBC": (steps, b.SMBC, lambda m, n: coupled_steps(data, n)),
        "SMKC": ("the same with scikit-learn's kernel", b.SMKC, lambda m, n: coupled_steps(data, n, kernel=True)),
        "MTSC": ("its eigenvectors by SciPy, then k-means", b.MTSC, lambda m, n: eigenvectors(data, m.n_iter_)),
        "SFOMVC-H": ("scikit-learn's k-means for start and anchors", b.SFOMVC, lambda m, n: anchored(data)),
        "Fed-kmeans": ("scikit-learn's k-means of each client", b.FedKMeans, lambda m, n: kmeans(data)),
        "FedSpectral+": ("scikit-learn's k-means of each client", b.FedSpectral, lambda m, n: kmeans(data)),
        "k-means alone": ("scikit-learn's k-means of each client", b.KMeansAlone, lambda m, n: kmeans(data)),
        "SEC alone": ("scikit-learn's spectral clustering", b.SEC, lambda m, n: spectral(data)),
    }


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often the coupled methods take a step and solve their transport problems."""
    with (
        patch.object(bregman, "_assigned", wraps=bregman._assigned) as steps,
        patch.object(bregman, "relate", wraps=bregman.relate) as relations,
    ):
        counts: Counter[str] = Counter()
        yield counts
        counts.update(steps=steps.call_count, transports=relations.call_count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="print, but leave results and docs as they are")
    args = parser.parse_args()
    data, rows = silos(ROWS), []
    for name, (words, build, operation) in cases(data).items():
        with counted() as counts:
            model = build(K, random_state=0).fit(data)
        with threadpool_limits(1):
            ours, theirs = best_of(2, partial(build(K, random_state=0).fit, data), partial(operation, model, counts))
        rows.append({"method": name, "operation": words, "seconds": ours, "ratio": ours / theirs})
        print(f"{name}: {ours:.2f} s, {ours / theirs:.2f} x {words}", flush=True)
    if not args.dry_run:
        (RESULTS / "baselines.json").write_text(json.dumps(rows, indent=1) + "\n")
        BASELINES.write_text(replace_part(BASELINES.read_text(), "baselines", baselines_part(rows)))


if __name__ == "__main__":
    main()
