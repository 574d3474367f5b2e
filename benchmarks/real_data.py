"""The README's table: one default setting on every data set, against each client alone.

    FMTC_DATA=folder python benchmarks/real_data.py            # about ten minutes on two cores
    FMTC_DATA=folder python benchmarks/real_data.py --only yale --splits 2 --dry-run

Accuracy (ACC, best one-to-one matching) in percent, mean over clients and then over splits; 80 % of each client's
rows train, 20 % are held out. FMTC has one setting for all data sets, and both betas are shown for
each. How the data are prepared (`_data.py`) was settled while looking at the scores of a few variants; the README says
which.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np

from _data import DATASETS, load
from fmtc import FMTC, score_clients
from fmtc.demo import alone
from readme import README, RESULTS, real_data_part, replace_part

SETTINGS = {
    "unaligned": {"align": "none", "beta": 0.3, "labels_from": "embedding"},
    "beta .15": {},
    "beta .4": {"beta": 0.4},
    "subspace": {"coupling": "subspace"},
}


def run_split(name: str, seed: int) -> dict[str, float]:
    """ACC of every method on one split of one data set; keys are ``method in`` and ``method out``."""
    s = load(name, seed)
    found = {m: (np.empty(len(s.y), int), np.empty(len(s.y_test), int)) for m in ("k-means", "spectral")}
    for cid in np.unique(s.clients):
        mine, new = np.flatnonzero(s.clients == cid), np.flatnonzero(s.clients_test == cid)
        rivals = alone(s.X[mine], s.X_test[new], s.n_clusters)
        for method, rival in (("k-means", "kmeans"), ("spectral", "spectral")):
            found[method][0][mine], found[method][1][new] = rivals[rival]
    for label, setting in SETTINGS.items():
        model = FMTC(s.n_clusters, random_state=0, n_jobs=-1, **setting).fit(s.X, clients=s.clients)
        found[label] = (model.labels_, model.predict(s.X_test, clients=s.clients_test))
    scores = {}
    for method, (inside, outside) in found.items():
        scores[f"{method} in"] = score_clients(s.y, inside, s.clients)["mean"]["acc"]
        scores[f"{method} out"] = score_clients(s.y_test, outside, s.clients_test)["mean"]["acc"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", nargs="*", help=f"some of {', '.join(DATASETS.values())}")
    parser.add_argument("--dry-run", action="store_true", help="print, but leave results and README as they are")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Graph is not fully connected")  # of the rival; FMTC's own are shown
    rows = []
    for title, name in DATASETS.items():
        if args.only and name not in args.only:
            continue
        for seed in range(args.splits):
            started = time.perf_counter()
            rows.append({"data": title, "split": seed, **run_split(name, seed)})
            print(f"{title}, split {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    print(real_data_part(rows))
    if not args.dry_run:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "real_data.json").write_text(json.dumps(rows, indent=1) + "\n")
        README.write_text(replace_part(README.read_text(), "real data", real_data_part(rows)))


if __name__ == "__main__":
    main()
