"""One large fit end to end on a processor or a GPU, and where its time goes.

python bench/benchmarks/scale.py --device cuda --clients 100 --rows 100000
python bench/benchmarks/scale.py --clients 10 --rows 100000
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from _data import graph_view
from fmtc.kernels import embedding, graph
from fmtc.protocol.graph import finish
from fmtc.protocol.graph import opening as prepare
from fmtc.protocol.graph import round as round_phase

RESULTS = Path(__file__).parent / "results" / "scale.json"
K, ROUNDS = 10, 20


def silos(clients: int, rows: int, features: int, inside: int | None = None) -> dict[str, np.ndarray]:
    """The same ten groups everywhere, in other shares and a little shifted; single precision.

    Balls in all directions, the hardest case for a search for neighbours; with `inside`, near a space of so few
    dimensions, as most real data are.
    """
    rng = np.random.default_rng(0)
    q = inside or features
    centers = rng.normal(size=(K, q)).astype(np.float32)
    spread = np.float32(2.5 if inside is None else 1.0)
    turn = rng.normal(size=(q, features)).astype(np.float32)
    data = {}
    for t in range(clients):
        share = rng.dirichlet(np.full(K, 5.0))
        X = rng.standard_normal((rows, q), dtype=np.float32) * spread
        X += centers[rng.choice(K, rows, p=share)] + 0.1 * rng.normal(size=q).astype(np.float32)
        if inside is not None:
            X = X @ turn + 0.1 * rng.standard_normal((rows, features), dtype=np.float32)
        data[f"client{t:03d}"] = X
    return data


@contextmanager
def stopwatch(device: str) -> Iterator[tuple[dict[str, float], dict[str, int]]]:
    """Seconds spent in each stage while the block runs, and how often; a GPU is waited for at the end of each."""
    spent: dict[str, float] = defaultdict(float)
    times: dict[str, int] = defaultdict(int)
    stages = [
        (graph, "graph_neighbors", "neighbours"),
        (prepare, "build_graph", "graph, with neighbours"),
        (prepare, "spectral_start", "spectral start"),
        (prepare, "largest_eigenvalue", "bound on the spectrum"),
        (round_phase, "update_projection", "W-steps"),
        (round_phase, "update_embedding", "F-steps"),
        (round_phase, "local_terms", "objective"),
        (finish, "unit_centers", "k-means"),
        (embedding, "relative_move", "of them, measuring how far F moved"),
    ]
    kept = [(place, name, getattr(place, name)) for place, name, _ in stages]

    def wait() -> None:
        if device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()

    def timed(work: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @wraps(work)
        def clocked(*args: Any, **kwargs: Any) -> Any:
            wait()
            started = time.perf_counter()
            done = work(*args, **kwargs)
            wait()
            spent[stage] += time.perf_counter() - started
            times[stage] += 1
            return done

        return clocked

    for place, name, stage in stages:
        setattr(place, name, timed(getattr(place, name), stage))
    try:
        yield spent, times
    finally:
        for place, name, work in kept:
            setattr(place, name, work)


def agreement(labels: np.ndarray, data: dict[str, np.ndarray]) -> float:
    """Share of rows that have the label most frequent for their true nearest group; a check, not a score."""
    centers = np.random.default_rng(0).normal(size=(K, next(iter(data.values())).shape[1])).astype(np.float32)
    X = next(iter(data.values()))
    truth = (X @ centers.T - (centers**2).sum(axis=1) / 2).argmax(axis=1)
    table = np.zeros((K, K), int)
    np.add.at(table, (truth, labels[: len(X)]), 1)
    return float(table.max(axis=1).sum() / table.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rows", type=int, default=20_000, help="of each client")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument(
        "--inside", type=int, default=None, help="dimensions that the rows are near to; all unless given"
    )
    parser.add_argument("--neighbors", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stages", action="store_true", help="wait for the device after each stage and tell its time")
    parser.add_argument(
        "--no-own", action="store_true", help="clients do not compare the common model with clusters of their own"
    )
    given = parser.parse_args()
    neighbors = given.neighbors if given.neighbors == "auto" else int(given.neighbors)
    model = graph_view(K, max_iter=ROUNDS, tol=0, n_neighbors=neighbors, random_state=0, n_jobs=-1, device=given.device)
    if given.no_own:
        model.set_params(graph__own=False)
    model.set_params(max_iter=2).fit(silos(1, 2_000, given.features))  # libraries loaded, device awake
    data = silos(given.clients, given.rows, given.features, given.inside)
    model.set_params(max_iter=ROUNDS, n_jobs=1 if given.stages else -1)
    found: dict[str, Any] = vars(given) | {"k": K, "rounds": ROUNDS}
    if given.stages:
        with stopwatch(given.device) as (spent, times):
            started = time.perf_counter()
            model.fit(data)
            found["seconds"] = time.perf_counter() - started
        single_steps = times.pop("of them, measuring how far F moved")
        del spent["of them, measuring how far F moved"]
        found |= {"seconds of stages": dict(spent), "calls": dict(times), "single F-steps": single_steps}
    else:
        started = time.perf_counter()
        model.fit(data)
        found["seconds"] = time.perf_counter() - started
        found["seconds in rounds"] = sum(record.seconds for record in model.run_.rounds)
    found["clients that were held"] = len(model.run_.held)
    found["peak of the process, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    found["input, GB"] = sum(X.nbytes for X in data.values()) / 1e9
    if given.device.startswith("cuda"):
        import torch

        found["peak of the device, GB"] = torch.cuda.max_memory_allocated() / 1e9
        found["device name"] = torch.cuda.get_device_name()
    if given.inside is None:
        found["agreement with the true groups"] = agreement(model.labels_, data)
    print(json.dumps(found, indent=1))
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    name = f"{given.device}, {given.clients} x {given.rows}, {neighbors} neighbours"
    name += f", inside {given.inside}" if given.inside else ""
    name += ", no own" if given.no_own else ""
    kept[name + (", stage by stage" if given.stages else "")] = found
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
