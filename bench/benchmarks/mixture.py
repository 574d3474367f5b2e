"""The mixture view against scikit-learn's GaussianMixture, with missing cells, and its probabilities on new rows.

python bench/benchmarks/mixture.py            # a minute on one core
python bench/benchmarks/mixture.py --device cuda

`step` is a million rows in ten silos: processor seconds of one round of EM, of both on the same rows, one thread each,
and the memory that the fit adds to the rows. `missing` and `calibration` are silos drawn from the model itself, so that
the best possible answer is known: the posterior under the true parameters.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from _data import resident
from fmtc import FMTC
from fmtc.metrics import clustering_accuracy, match_classes

RESULTS = Path(__file__).parent / "results" / "mixture.json"
Array = np.ndarray


@dataclass(frozen=True)
class Drawn:
    """Silos with personal means and shares, a common shape, and what drew them."""

    X: dict[str, Array]  # of each silo, n x d
    y: dict[str, Array]
    means: dict[str, Array]  # k x d
    shares: dict[str, Array]
    covariance: Array

    def posterior(self, name: str, X: Array) -> Array:
        """Probability of each concept under the true parameters, from the filled cells; (n, d) -> (n, k)."""
        scores = np.tile(np.log(self.shares[name]), (len(X), 1))
        filled = ~np.isnan(X)
        for pattern in np.unique(filled, axis=0):
            rows = np.flatnonzero((filled == pattern).all(axis=1))
            if pattern.any():
                S, Z = self.covariance[np.ix_(pattern, pattern)], X[np.ix_(rows, pattern)]
                for j, mean in enumerate(self.means[name]):
                    scores[rows, j] += multivariate_normal.logpdf(Z, mean[pattern], S)
        return softmax(scores, axis=1)


def drawn(silos: int, rows: int, d: int, k: int, *, gap: float, spread: float = 0.05, seed: int = 0) -> Drawn:
    """Concepts about `gap` standard deviations apart; personal means differ by the variance `spread`."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    covariance = A @ A.T / d + 0.5 * np.eye(d)
    L = np.linalg.cholesky(covariance)
    common = gap / np.sqrt(2 * d) * rng.normal(size=(k, d)) @ L.T
    found = Drawn({}, {}, {}, {}, covariance)
    for name in (f"silo{t}" for t in range(silos)):
        found.shares[name] = rng.dirichlet(np.full(k, 5.0))
        found.means[name] = common + np.sqrt(spread) * rng.normal(size=(k, d)) @ L.T
        found.y[name] = rng.choice(k, rows, p=found.shares[name])
        found.X[name] = found.means[name][found.y[name]] + rng.normal(size=(rows, d)) @ L.T
    return found


def step(device: str) -> dict[str, float]:
    """One round of EM over a million rows in ten silos, and one iteration of scikit-learn on the same rows."""
    d, k = 20, 10
    data = drawn(10, 100_000, d, k, gap=6.0)
    model = FMTC(k, view="mixture", scale="none", random_state=0, device=device)
    model.fit({name: X[:1000] for name, X in data.X.items()})  # imports, and a device that wakes up
    before = resident("VmHWM")
    clock = time.process_time if device == "cpu" else time.perf_counter
    stamps = [clock()]
    model.fit(data.X, callbacks=[lambda record: stamps.append(clock())])
    whole = clock() - stamps[0]
    added = (resident("VmHWM") - before) / 2**20
    ours = float(np.median(np.diff(stamps)[-3:]))  # all rows, one start
    found = {"seconds of a fit": whole, "rounds": float(model.n_iter_), "seconds of a round over all rows": ours,
             "megabytes added": added}  # fmt: skip
    if device != "cpu":
        return found
    rows = np.concatenate(list(data.X.values()))
    spent = []
    for steps in (1, 5):
        rival = GaussianMixture(k, covariance_type="tied", max_iter=steps, tol=0, init_params="random_from_data",
                                random_state=0)  # fmt: skip
        started = clock()
        rival.fit(rows)
        spent.append(clock() - started)
    theirs = (spent[1] - spent[0]) / 4
    return found | {"seconds of an iteration of GaussianMixture": theirs, "ratio": ours / theirs}


def missing() -> list[dict[str, float]]:
    """ACC in percent, complete and with 30 % of the cells removed at random, and that of the true parameters."""
    found = []
    for gap in (6.0, 8.0):
        line: dict[str, list[float]] = {}
        for seed in range(3):
            data = drawn(8, 250, 12, 4, gap=gap, seed=seed)
            for share in (0.0, 0.3):
                rng = np.random.default_rng(seed)
                X = {name: np.where(rng.random(rows.shape) < share, np.nan, rows) for name, rows in data.X.items()}
                model = FMTC(4, view="mixture", random_state=seed).fit(X)
                labels = dict(zip(X, np.split(model.labels_, len(X)), strict=True))
                true = {name: data.posterior(name, X[name]).argmax(axis=1) for name in X}
                for who, said in (("fmtc", labels), ("true parameters", true)):
                    scores = [clustering_accuracy(y, said[name]) for name, y in data.y.items()]
                    line.setdefault(f"{who}, {share:.0%} missing", []).append(100 * float(np.mean(scores)))
        found.append({"gap": gap} | {name: float(np.mean(values)) for name, values in line.items()})
    return found


def calibration(bins: int = 10) -> dict[str, Any]:
    """How often the chosen cluster of new rows is right, against the probability that the model gave it."""
    said, right = [], []
    for seed in range(3):
        data = drawn(8, 400, 6, 4, gap=3.0, seed=seed)
        train, new = ({name: X[part] for name, X in data.X.items()} for part in (slice(200), slice(200, None)))
        model = FMTC(4, view="mixture", random_state=seed).fit(train)
        y = np.concatenate([data.y[name][:200] for name in train])
        concept = match_classes(y, model.labels_)
        for name, X in new.items():
            P = model.predict_proba(X, silos=name)
            said.append(P.max(axis=1))
            named = np.array([concept.get(j, -1) for j in P.argmax(axis=1).tolist()])
            right.append(named == data.y[name][200:])
    p, ok = np.concatenate(said), np.concatenate(right)
    edges = np.linspace(0, 1, bins + 1)
    where = np.clip(np.digitize(p, edges) - 1, 0, bins - 1)
    curve = [
        {"probability": float(p[some].mean()), "right": float(ok[some].mean()), "rows": int(some.sum())}
        for some in (where == b for b in range(bins))
        if some.sum() >= 50
    ]
    error = sum(abs(point["probability"] - point["right"]) * point["rows"] for point in curve) / len(p)
    return {"curve": curve, "expected calibration error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if device != "cpu":
            print(json.dumps(step(device), indent=1))
            return
        found = {"step": step(device), "missing": missing(), "calibration": calibration()}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
