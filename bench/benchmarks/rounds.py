"""Rounds until the objective that the plain loop reaches in 20, on the ten data sets of the tables.

FMTC_DATA=... python bench/benchmarks/rounds.py [--splits 5]
"""

from __future__ import annotations

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np

from _data import graph_view
from fmtc_bench import datasets

RESULTS = Path(__file__).parent / "results" / "rounds.json"
SETS = ("20newsgroups", "utd_mhad", "yaleb", "bbcnews", "webkb4", "reuters", "yale", "orl", "digits", "bbcsport")
PLAIN, CLOSE = 20, 1e-3


def objectives(train: datasets.FederatedDataset, seed: int, **setting: object) -> np.ndarray:
    model = graph_view(train.n_clusters, max_iter=PLAIN, tol=0, random_state=seed, **setting)
    return np.array([record.objective for record in model.fit(train.X, silos=train.clients).run_.rounds])


def first_below(values: np.ndarray, target: float) -> int | None:
    """The first round from which on all values are at most 1e-3 above the target."""
    above = np.flatnonzero(values > target * (1 + CLOSE))
    first = int(above[-1]) + 2 if len(above) else 1
    return first if first <= len(values) else None


def count(job: tuple[str, int]) -> dict[str, object]:
    """Rounds of both loops on one split of one data set."""
    name, split = job
    warnings.simplefilter("ignore")  # of graphs that fall apart
    train, _ = datasets.load(name).split(test_size=0.2, seed=split)
    plain = objectives(train, split, accelerate=False, n_inner=5)
    fast = objectives(train, split)
    return {
        "data": name,
        "split": split,
        "plain": first_below(plain, plain[-1]),
        "accelerated": first_below(fast, plain[-1]),
        "objective after 20 rounds, relative to plain": float(fast[-1] / plain[-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=None, help="processes; all cores unless given")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(count, product(SETS, range(given.splits))))
    print(json.dumps({name: [row["accelerated"] for row in rows if row["data"] == name] for name in SETS}, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
