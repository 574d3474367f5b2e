"""What attacks find: membership inference on what a server sees, and a planted record against private noise.

python bench/benchmarks/audit.py              # about ten minutes on one core
python bench/benchmarks/audit.py --quick      # a fifth of the runs

Digits of scikit-learn (64 columns, divided by 16, bounds 0 and 1), k = 10. Members: 200 records of one silo, each in by
a fair coin, so about 100 rows; the other silos have 100 rows each and are the same in all runs. The graph view takes
eight rounds. Every number comes from messages of whole runs through `LocalTransport`. Canary: the noise is broken on
purpose by drawing less, or by patching the sensitivity that stages declare.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_digits

from fmtc import Privacy
from fmtc.privacy.noise import draw
from fmtc.protocol.private import view as private
from fmtc.settings import Settings
from fmtc_bench.audits.runs import audit_canary, audit_members

RESULTS = Path(__file__).parent / "results" / "audit.json"
GRAPH: dict[str, Any] = {"view": "graph", "scale": "none", "max_iter": 8, "tol": 0, "final": "kmeans"}
MIXTURE: dict[str, Any] = {"view": "mixture", "scale": "none", "max_iter": 8}
BOX = {"bounds": (0, 1)}

CASES: dict[str, tuple[dict[str, Any], int, int, int]] = {  # settings, silos, candidates, runs
    "plain, graph view": (GRAPH, 3, 200, 100),
    "plain, graph view, 400 rows": (GRAPH, 3, 800, 40),
    "plain, mixture view": (MIXTURE, 3, 200, 60),
    "sums over 3, graph view": (GRAPH | {"coupling": "subspace", "privacy": "sums"}, 3, 200, 100),
    "sums over 10, graph view": (GRAPH | {"coupling": "subspace", "privacy": "sums"}, 10, 200, 60),
    "sums over 3, mixture view": (MIXTURE | {"privacy": "sums"}, 3, 200, 60),
    "sums over 10, mixture view": (MIXTURE | {"privacy": "sums"}, 10, 200, 40),
    "anchors without noise": ({"privacy": Privacy(epsilon=float("inf"), method="anchors", **BOX)}, 3, 200, 100),
    "private mixture without noise": ({"privacy": Privacy(epsilon=float("inf"), method="mixture", **BOX)}, 3, 200, 100),
    "anchors, epsilon 8": ({"privacy": Privacy(epsilon=8, method="anchors", **BOX)}, 3, 200, 100),
    "private mixture, epsilon 8": ({"privacy": Privacy(epsilon=8, method="mixture", **BOX)}, 3, 200, 100),
    "anchors, epsilon 1": ({"privacy": Privacy(epsilon=1, method="anchors", **BOX)}, 3, 200, 100),
    "private mixture, epsilon 1": ({"privacy": Privacy(epsilon=1, method="mixture", **BOX)}, 3, 200, 100),
}


def silos(count: int, candidates: int) -> dict[str, np.ndarray]:
    """The audited silo `target` and the others."""
    X = load_digits().data / 16
    order = np.random.default_rng(0).permutation(len(X))
    others = np.resize(order[candidates:], 100 * (count - 1)).reshape(count - 1, 100)
    return {"target": X[order[:candidates]], **{f"other{t}": X[rows] for t, rows in enumerate(others)}}


def keep(kind: str, case: str, found: dict[str, Any]) -> None:
    """Add a measurement to the results; those of other cases stay."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results.setdefault(kind, {})[case] = found
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def members(share: float, only: list[str]) -> None:
    """The attack on each kind of run."""
    for name, (changed, count, candidates, runs) in CASES.items():
        if only and name not in only:
            continue
        found = audit_members(
            silos(count, candidates), Settings(10, **changed), "target", runs=max(16, int(share * runs))
        )
        attack = found.attack
        print(f"{name}: AUC {attack.auc}, TPR {attack.tpr}, epsilon >= {attack.epsilon_at_least:.2f} "
              f"(error rates {attack.epsilon_indication:.2f})", flush=True)  # fmt: skip
        if share == 1:
            keep("members", name, found.to_dict())


def halved(factor: float) -> Callable[[float, int], np.ndarray]:
    """A source of noise that is too small."""
    return lambda sd, size: draw(factor * sd, size)


def insensitive() -> ExitStack:
    """All stages declare half of their sensitivity."""
    stack = ExitStack()
    for phase in (private.MEAN, private.RADIUS, private.GRAM, *private.ANCHORS, private.LINKS):
        wrong = replace(phase.stage, sensitivity=phase.stage.sensitivity / 2)
        stack.enter_context(patch.object(phase, "stage", wrong))
    return stack


BROKEN = {"as specified": None, "halved": halved(0.5), "off": halved(0.0), "sensitivity halved": None}
CANARIES = {
    f"epsilon {epsilon:g}, {kind}": (epsilon, kind)
    for epsilon, kinds in ((4.0, list(BROKEN)), (8.0, list(BROKEN)[:2]), (1.0, list(BROKEN)[:2]))
    for kind in kinds
}


def canaries(share: float, only: list[str]) -> None:
    """Right and broken noise against the claim."""
    for name, (epsilon, kind) in CANARIES.items():
        if only and name not in only:
            continue
        runs = int(share * (200 if kind == "off" else 1000))
        privacy = Privacy(epsilon=epsilon, method="anchors", colluding=0, **BOX)
        with insensitive() if kind == "sensitivity halved" else ExitStack():
            found = audit_canary(privacy, runs=runs, noise=BROKEN[kind])
        print(f"{name}: AUC {found.auc:.3f} (at most {found.auc_at_most:.3f}), epsilon >= "
              f"{found.epsilon_at_least:.2f}, {found.verdict}", flush=True)  # fmt: skip
        if share == 1:
            keep("canary", name, found.to_dict())


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], metavar="CASE", help=f"of {[*CASES, *CANARIES]}")
    options = parser.parse_args()
    share = 0.2 if options.quick else 1.0
    members(share, options.only)
    canaries(share, options.only)


if __name__ == "__main__":
    main()
