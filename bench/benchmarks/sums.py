"""privacy="sums" against the same run in the clear: equal projections, labels, accuracy, bytes; and what masks cost.

python bench/benchmarks/sums.py            # three minutes on one core; needs FMTC_DATA
python bench/benchmarks/sums.py --quick    # digits only

`parity` compares, after 25 rounds of the subspace coupling, W Wᵀ of every silo (largest difference, relative to its
largest entry), the labels before common centres (adjusted Rand index), and the accuracy at the end: of each silo by
itself, and with one numbering for all. `masks` is one message of a round: bytes, and processor milliseconds of a silo
to mask it and of the server to open the sum.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from fmtc import FMTC, Graph
from fmtc.metrics import clustering_accuracy
from fmtc.privacy.identity import SelfSigned
from fmtc.privacy.keys import Keys
from fmtc.protocol.base import Message
from fmtc.protocol.method import view_method
from fmtc.protocol.sums.cards import Card
from fmtc.protocol.sums.graph import SPARE, TOTAL_ROUND
from fmtc.protocol.sums.masking import Masking, opened
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings
from fmtc_bench.datasets import load

RESULTS = Path(__file__).parent / "results" / "sums.json"
Array = np.ndarray
SETS = ("digits", "gas_drift", "wisdm", "vowels_h95", "coil20", "bbcnews")
METHOD = "fmtc-sums"
MOST_SILOS, MOST_ROWS = 8, 200


class Watched(LocalTransport):
    """The local transport; remembers labels before common centres, and bytes up."""

    before: dict[str, Array]
    bytes_up = 0

    def exchange(self, messages: Any) -> Any:
        """Deliver, and look."""
        replies = super().exchange(messages)
        self.bytes_up += replies.bytes_up
        if next(iter(messages.values())).phase == "finish":
            self.before = {cid: np.asarray(node.client.own.labels) for cid, node in self.nodes.items()}
        return replies


def silos(name: str) -> tuple[dict[str, Any], dict[str, Array], int]:
    """Rows and classes of each silo, and the number of classes."""
    if name == "digits":
        digits = load_digits()
        order = np.random.default_rng(0).permutation(len(digits.data))
        parts = {f"silo{t}": order[t::8][:170] for t in range(8)}
        return {c: digits.data[p] for c, p in parts.items()}, {c: digits.target[p] for c, p in parts.items()}, 10
    data = load(name).prepared()
    rng, X, y = np.random.default_rng(0), {}, {}
    for cid in sorted(set(data.clients))[:MOST_SILOS]:
        rows = np.flatnonzero(data.clients == cid)
        rows = np.sort(rng.permutation(rows)[:MOST_ROWS])
        X[str(cid)], y[str(cid)] = data.X[rows], data.y[rows]
    return X, y, data.n_clusters


def fitted(X: dict[str, Any], k: int, privacy: str | None, view: str = "graph") -> tuple[Watched, float]:
    model = FMTC(k, view=view, privacy=privacy, tol=0, random_state=0, graph=Graph(coupling="subspace"))
    settings = model._settings()
    method = view_method(settings.view, settings.privacy)
    transport, started = Watched(X, settings, method=method), time.process_time()
    run(transport, settings, method=method)
    return transport, time.process_time() - started


def parity(name: str) -> dict[str, Any]:
    X, y, k = silos(name)
    (ours, seconds), (clear, before) = fitted(X, k, "sums"), fitted(X, k, None)
    gaps, rands = [], []
    for cid in X:
        G, H = (np.asarray(run.clients[cid].W, dtype=np.float64) for run in (ours, clear))
        H = H @ H.T
        gaps.append(float(np.abs(G @ G.T - H).max() / np.abs(H).max()))
        rands.append(adjusted_rand_score(ours.before[cid], clear.before[cid]))
    classes = np.concatenate(list(y.values()))

    def scored(transport: Watched) -> tuple[float, float]:
        labels = {cid: result.labels for cid, result in transport.results().items()}
        own = float(np.mean([clustering_accuracy(y[cid], labels[cid]) for cid in X]))
        return own, clustering_accuracy(classes, np.concatenate([labels[cid] for cid in X]))

    return {
        "data": name, "silos": len(X), "gap": max(gaps), "ari_before_centres": min(rands),
        "acc": scored(ours)[0], "acc_clear": scored(clear)[0],
        "acc_one_numbering": scored(ours)[1], "acc_one_numbering_clear": scored(clear)[1],
        "mbytes_up_a_silo": ours.bytes_up / len(X) / 1e6, "mbytes_up_a_silo_clear": clear.bytes_up / len(X) / 1e6,
        "seconds": seconds, "seconds_clear": before,
    }  # fmt: skip


def masks(d: int, m: int, k: int = 10) -> dict[str, Any]:
    """One message of a round, of a silo and of the server."""
    settings = Settings(n_clusters=k, coupling="subspace", privacy="sums")
    phase = Masking(TOTAL_ROUND)
    names = [f"silo{t:02d}" for t in range(m)]
    keys = {name: Keys(SelfSigned(name), "run", METHOD, name) for name in names}
    cards = {name: Card(*one.card(settings)) for name, one in keys.items()}
    started = time.process_time()
    keys[names[0]].accept(cards, settings)
    setup = time.process_time() - started
    for name in names[1:]:
        keys[name].accept(cards, settings)
    width = min(d * (k * m + SPARE), d * (d + 1) // 2)
    answer = TOTAL_ROUND.Answer(
        gram=np.linspace(-1, 1, width), loss=1.0, gap=1.0, own=1.0, common=1.0, moved=1.0, dual=1.0
    )
    message = Message("round", TOTAL_ROUND.Ask(sketch=0), 2, 1)
    keys[names[0]].seal(phase, message, answer, settings)  # imports
    spent = []
    for _ in range(3):
        started = time.process_time()
        sealed = keys[names[0]].seal(phase, message, answer, settings)
        spent.append(time.process_time() - started)
    everybody = {name: keys[name].seal(phase, message, answer, settings) for name in names}
    started = time.process_time()
    opened(phase.inner, everybody)
    return {
        "d": d, "silos": m, "bytes": int(sealed.words.nbytes), "ms_mask": 1e3 * min(spent),
        "ms_open": 1e3 * (time.process_time() - started), "ms_setup": 1e3 * setup, "bytes_clear": 8 * d * k,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="digits only, and nothing is written")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, list[dict[str, Any]]] = {"parity": [], "masks": []}
    for name in SETS[:1] if args.quick else SETS:
        found["parity"].append(parity(name))
        print(json.dumps(found["parity"][-1]), flush=True)
    for d in (64, 500, 2000):
        for m in (3, 10, 50) if d < 2000 or not args.quick else (3,):
            found["masks"].append(masks(d, m))
            print(json.dumps(found["masks"][-1]), flush=True)
    if not args.quick:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
