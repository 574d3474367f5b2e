"""Time and memory as ratios to named alternatives in the same run (machines are noisy; ratios less so).

python bench/benchmarks/speed.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize

from _data import graph_view
from fmtc.artifacts.onnx import export_onnx

RESULTS = Path(__file__).parent / "results" / "speed.json"
CLIENTS, ROWS, FEATURES, K = 4, 5_000, 50, 10
OUR_TURNS = 3  # of a fit, which takes a second: one turn may meet a machine that is busy


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


def fit_ratio(n: int, spread: float, turns: int) -> dict[str, float]:
    """Whole federated fit of 20 rounds against scikit-learn's spectral clustering of the same clients one by one.

    Of more than 5,000 rows it gets the first client only, and its time is taken as many times as there are clients.
    """
    data = silos(n, spread)
    given = list(data.values())[: None if n <= ROWS else 1]

    def scikit_learn() -> None:
        for X in given:
            SpectralClustering(K, affinity="nearest_neighbors", n_neighbors=10, random_state=0).fit(X)

    def ours(**setting: object) -> Callable[[], object]:
        return lambda: graph_view(K, max_iter=20, tol=0, random_state=0, n_jobs=-1, **setting).fit(data)

    (theirs,) = best_of(turns, scikit_learn)
    default, same_graph = best_of(OUR_TURNS, ours(), ours(n_neighbors=10))
    theirs *= len(data) / len(given)
    return {
        "scikit-learn, seconds": theirs,
        "FMTC default, seconds": default,
        "FMTC with 10 neighbours, seconds": same_graph,
        "FMTC default / scikit-learn": default / theirs,
        "FMTC with 10 neighbours / scikit-learn": same_graph / theirs,
    }


def transcription(data: dict[str, np.ndarray], rounds: int, n_inner: int = 5, ridge: float = 0.03) -> None:
    """The paper line by line: dense Laplacian, an SVD for each projection, an inverse in each round, no alignment."""
    eta, beta, rho = 1 / 3, 0.01, 2 * ridge / len(data)
    X = [(each - each.mean(axis=0)) / np.sqrt(each.size * each.var()) for each in data.values()]
    L = []
    for each in X:
        squares = (each**2).sum(axis=1)
        D = np.sqrt(np.maximum(squares[:, None] + squares - 2 * each @ each.T, 0))
        near = np.zeros_like(D, dtype=bool)
        np.put_along_axis(near, np.argsort(D, axis=1)[:, 1:11], True, axis=1)
        A = np.where(near | near.T, np.exp(-(D**2) / (2 * D[near].mean() ** 2)), 0)
        S = np.diag(1 / np.sqrt(A.sum(axis=1)))
        L.append(np.eye(len(each)) - S @ A @ S)
    F = [np.linalg.eigh(each)[1][:, :K] for each in L]
    d, m = X[0].shape[1], len(X)
    Z, Y = np.zeros((d, K, m)), np.zeros((d, K, m))
    for _ in range(rounds):
        W = np.zeros((d, K, m))
        for t in range(m):
            c = 2 / m
            inverse = np.linalg.inv(c * X[t].T @ X[t] + rho * np.eye(d))
            W[:, :, t] = inverse @ (c * X[t].T @ F[t] + rho * Z[:, :, t] - Y[:, :, t])
            for _ in range(n_inner):
                step = F[t] - eta * ((L[t] + np.eye(len(L[t]))) @ F[t] - X[t] @ W[:, :, t])
                U, _, Vh = np.linalg.svd(step, full_matrices=False)
                F[t] = U @ Vh
        That = np.fft.fft(W + Y / rho, axis=2)
        for i in range(m):
            U, s, Vh = np.linalg.svd(That[:, :, i], full_matrices=False)
            That[:, :, i] = U * np.maximum(s - beta / rho, 0) @ Vh
        Z = np.fft.ifft(That, axis=2).real
        Y = Y + rho * (W - Z)
    for each in F:
        KMeans(K, n_init=10, random_state=0).fit(each / np.linalg.norm(each, axis=1, keepdims=True))


def transcription_ratio(n: int = 3_000) -> dict[str, float]:
    """The same rounds against a literal transcription of the paper."""
    data = silos(n)
    (literal,) = best_of(1, lambda: transcription(data, 20))
    (ours,) = best_of(
        OUR_TURNS, lambda: graph_view(K, max_iter=20, tol=0, random_state=0, n_jobs=-1, n_neighbors=10).fit(data)
    )
    return {"literal, seconds": literal, "FMTC, seconds": ours, "literal / FMTC": literal / ours}


def thread_ratio(n: int = 20_000, turns: int = 7) -> dict[str, float]:
    """Rounds of two clients by one thread and by two, in turn, and what the machine gives two processes at most.

    The processes have nothing in common but the machine, and take products of a sparse matrix, as rounds mostly do.
    """
    data = {name: X for name, X in silos(n).items() if name in ("client0", "client1")}

    def in_rounds(jobs: int) -> float:
        model = graph_view(K, max_iter=20, tol=0, random_state=0, n_jobs=jobs, n_neighbors=10).fit(data)
        return sum(record.seconds for record in model.run_.rounds)

    pairs = [(in_rounds(1), in_rounds(2)) for _ in range(turns)]
    one, two = np.median(pairs, axis=0)
    apart = [(products(1), products(2)) for _ in range(turns)]
    return {
        "one thread, seconds": one,
        "two threads, seconds": two,
        "one / two": one / two,
        "two processes that share nothing": 2 * float(np.divide(*np.median(apart, axis=0))),
    }


def products(processes: int) -> float:
    """Seconds of 200 products of a sparse matrix with ten columns, in so many processes at once; the slowest counts."""
    code = (
        "import sys, time; import numpy as np, scipy.sparse as sp; rng = np.random.default_rng(0)\n"
        "L = sp.random_array((20_000, 20_000), density=17 / 20_000, format='csr', rng=rng)\n"
        "F = rng.normal(size=(20_000, 10)); print(flush=True); sys.stdin.readline(); t = time.perf_counter()\n"
        "for _ in range(200): L @ F\n"
        "print(time.perf_counter() - t)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for each in started:
        each.stdout.readline()  # ready
    for each in started:
        each.stdin.write("\n")
        each.stdin.flush()
    return max(float(each.communicate()[0]) for each in started)


def import_seconds() -> dict[str, float]:
    """Time of ``import fmtc`` after that of what it needs of scikit-learn, in fresh processes."""
    command = (
        "from time import perf_counter as now; begin = now()\n"
        "import sklearn.cluster, sklearn.neighbors; there = now()\n"
        "import fmtc; print(there - begin, now() - there)"
    )
    turns = [subprocess.check_output([sys.executable, "-c", command]).split() for _ in range(5)]
    needed, on_top = np.array(turns, dtype=float).min(axis=0)
    return {"scikit-learn": needed, "fmtc on top": on_top}


def onnx_bytes() -> dict[str, int]:
    """Size of an exported model, and of its matrices alone."""
    data = silos(500)
    model = graph_view(K, max_iter=3, random_state=0).fit(data)
    with tempfile.TemporaryDirectory() as folder:
        size = export_onnx(model, "client0", Path(folder) / "model.onnx").stat().st_size
    return {"bytes": size, "bytes of d x k in single precision": FEATURES * K * 4}


def predict_ratio() -> dict[str, dict[str, float]]:
    """`predict` against the bare product with W and an arg-min, for many rows at once.

    Since a mixture with one covariance ends the graph view, the bare product does less than `predict` has to: the other
    rival is scikit-learn's mixture with one covariance, on the same normalised projections.
    """
    data = silos()
    model = graph_view(K, random_state=0, n_jobs=-1, max_iter=5).fit(data)
    W = model.projections_["client0"]
    mixture = GaussianMixture(K, covariance_type="tied", random_state=0).fit(normalize(data["client0"] @ W))
    found = {}
    for copies in (40, 200):
        X = np.vstack([data["client0"]] * copies)

        def bare(X: np.ndarray = X) -> np.ndarray:
            return (X @ W).argmin(axis=1)

        def ours(X: np.ndarray = X) -> np.ndarray:
            return model.predict(X, silos="client0")

        def by_scikit_learn(X: np.ndarray = X) -> np.ndarray:
            return mixture.predict(normalize(X @ W, copy=False))

        theirs, mixed, taken = best_of(9, bare, by_scikit_learn, ours)
        found[f"{len(X):,} rows"] = {
            "rows per second": len(X) / taken,
            "predict / bare product and arg-min": taken / theirs,
            "predict / scikit-learn's mixture on projections": taken / mixed,
        }
    return found


def peak_memory(n: int) -> int:
    """Bytes that a fit of one client of n rows adds to a process, measured from outside."""
    code = (
        "from benchmarks_speed import silos, K; from _data import graph_view, resident\n"
        f"X = silos({n})['client0']; graph_view(K, max_iter=2, random_state=0).fit(X[:200])\n"
        "before = resident('VmHWM'); graph_view(K, max_iter=5, random_state=0).fit(X)\n"
        "print(resident('VmHWM') - before)"
    )
    code = code.replace("benchmarks_speed", Path(__file__).stem)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def memory() -> dict[str, float]:
    """What a fit adds to a process, and as a share of a matrix that it does not make."""
    found = {}
    for n in (10_000, 20_000, 40_000):
        added = peak_memory(n)
        found[f"{n} rows: bytes added"] = added
        found[f"{n} rows: share of one dense n x n matrix"] = added / (8 * n * n)
    return found


SPREADS = (("far apart", 6.0), ("touching", 10.0), ("overlapping", 12.0))
PARTS: dict[str, Callable[[], dict]] = {
    "memory": memory,  # first: a process starts with the largest memory of the one that started it
    "fit": lambda: {name: fit_ratio(ROWS, spread, 1 + 2 * (spread < 8)) for name, spread in SPREADS},
    "fit of 20,000 rows each": lambda: {name: fit_ratio(4 * ROWS, spread, 1) for name, spread in SPREADS[:2]},
    "literal transcription, 3,000 rows each": transcription_ratio,
    "threads": thread_ratio,
    "predict": predict_ratio,
    "import, seconds": import_seconds,
    "onnx": onnx_bytes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part anew, the others as they were")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of graphs that fall apart, scikit-learn's among them
    found = json.loads(RESULTS.read_text()) if given.only else {}
    found |= {name: work() for name, work in PARTS.items() if name in (given.only or PARTS)}
    print(json.dumps(found, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
