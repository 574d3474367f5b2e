"""The numbers behind the choices in docs/paper.md: rotation, neighbours, source of the labels.

    FMTC_DATA=folder python bench/benchmarks/choices.py          # a few minutes on two cores

Labels only score; nothing here picks a setting. Mean over three 80/20 splits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from sklearn.neighbors import NearestNeighbors

from _data import graph_view, load
from fmtc.kernels import graph
from fmtc.kernels.alignment import procrustes
from fmtc.metrics import score_silos
from fmtc.protocol.graph import round as consensus
from fmtc.protocol.graph.state import GraphServer
from fmtc.settings import Settings
from readme import RESULTS

SPLITS = 3
PLAIN = {"accelerate": False, "n_inner": 5, "max_iter": 50}  # the loop in which the choices were made


def measure(name: str, **setting: object) -> dict[str, float]:
    """ACC on training and held-out rows and the last primal residual, mean over splits."""
    found = []
    for seed in range(SPLITS):
        s = load(name, seed)
        setting = PLAIN | setting
        model = graph_view(s.n_clusters, random_state=0, n_jobs=-1, **setting).fit(s.X, silos=s.clients)
        predicted = model.predict(s.X_test, silos=s.clients_test)
        found.append(
            {
                "primal residual": model.run_.rounds[-1].primal_residual,
                "ACC": 100 * score_silos(s.y, model.labels_, s.clients)["mean"]["acc"],
                "ACC, held out": 100 * score_silos(s.y_test, predicted, s.clients_test)["mean"]["acc"],
            }
        )
    return {key: round(float(np.mean([f[key] for f in found])), 4) for key in found[0]}


@contextmanager
def exact_rotation() -> Iterator[None]:
    """Turn clients towards Z - Y/rho, the exact minimiser of the augmented Lagrangian over a rotation."""
    ours = consensus._rotations

    def exact(server: GraphServer, W: np.ndarray, present: list[int], settings: Settings) -> np.ndarray | None:
        if server.round_no == 0:
            return ours(server, W, present, settings)
        anchor = server.Z - server.Y / server.rho
        return np.stack([procrustes(W[:, :, t], anchor[:, :, t]) for t in present], axis=2)

    with patch.object(consensus, "_rotations", exact):
        yield


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found: dict[str, object] = {}
    for name in ("bbcnews", "utd_mhad"):
        strong = {"beta": 0.4, "max_iter": 20, "tol": 0}
        found[f"{name}, towards Z + 0.1 W"] = measure(name, **strong)
        with exact_rotation():
            found[f"{name}, towards Z - Y/rho"] = measure(name, **strong)
    for name in ("webkb4", "bbcnews", "reuters", "yale", "utd_mhad"):
        for source in ("projection", "embedding"):
            found[f"{name}, labels from {source}"] = measure(name, labels_from=source, final="kmeans")
    found["20newsgroups, 10 neighbours"] = measure("20newsgroups", n_neighbors=10)
    with patch.object(graph, "graph_neighbors", lambda X, k: NearestNeighbors(n_neighbors=k).fit(X).kneighbors()):
        found["20newsgroups, 10 neighbours, empty documents among them"] = measure("20newsgroups", n_neighbors=10)
        found["20newsgroups, automatic, empty documents among them"] = measure("20newsgroups")
    found["20newsgroups, automatic"] = measure("20newsgroups")
    print(json.dumps(found, indent=1))
    (RESULTS / "choices.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
