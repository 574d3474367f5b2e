"""What clusters of their own are worth where silos differ: made federations, in which every silo has other means.

    .venv/bin/python bench/benchmarks/own.py

Prints the adjusted Rand index of held-out rows in percent, mean of silos: FMTC without and with clusters of the silos'
own, k-means and a Gaussian mixture of each silo alone. Nothing is stored; docs/explanation/views.md quotes it.
"""

from __future__ import annotations

import numpy as np

from fmtc_bench.compare.protocol import dataset, evaluate

KINDS = ("subspace", "rotated")  # means of each silo's own; the same means, turned
SIZES = ((30, 40, 4, 3), (12, 60, 5, 5), (20, 100, 10, 6), (4, 100, 20, 3))  # silos, rows of each, columns, clusters
SEEDS = range(2)
COMPARED = {
    "own=False": ("fmtc", {"own": False}),
    "default": ("fmtc", {}),
    "k-means alone": ("kmeans", {}),
    "mixture alone": ("gmm", {}),
}


def main() -> None:
    """Print one line for each kind and size, and their mean without the last size."""
    print(f"{'silos x rows x columns, clusters':42}" + "".join(f"{name:>15}" for name in COMPARED))
    lines = []
    for kind in KINDS:
        for m, n, d, k in SIZES:
            found = []
            for seed in SEEDS:
                sizes = f"n_clients={m},n_samples={n},n_features={d},n_clusters={k},seed={seed}"
                train, test = dataset(f"synthetic-{kind}?{sizes}").split(seed=0)
                rows = [evaluate(train, test, method, setting, 0) for method, setting in COMPARED.values()]
                found.append([100 * row["test"]["mean"]["ari"] for row in rows])
            lines.append(np.mean(found, axis=0))
            name = f"{kind}, {m} x {n} x {d}, {k}"
            print(f"{name:42}" + "".join(f"{value:15.1f}" for value in lines[-1]), flush=True)
    few = [line for line, (*_, d, _) in zip(lines, SIZES * len(KINDS), strict=True) if d < SIZES[-1][2]]
    print(f"{'mean of at most 10 columns':42}" + "".join(f"{value:15.1f}" for value in np.mean(few, axis=0)))


if __name__ == "__main__":
    main()
