"""Time and memory of a fit of one client as its rows become many: how both grow, and what was predicted.

python bench/benchmarks/growth.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "growth.json"
ROWS = (10_000, 20_000, 40_000, 80_000, 160_000)
FEATURES, K = 64, 10

ONE = """
import json, resource, sys, time, tracemalloc
import numpy as np
from scale import silos
from _data import graph_view
from fmtc.kernels.graph import estimate_memory
n, traced = int(sys.argv[1]), sys.argv[2] == "traced"
X = silos(1, n, {features}, {inside})["client000"].astype(np.float64)
model = graph_view({k}, max_iter=20, tol=0, random_state=0, n_jobs=-1, n_neighbors=10)
model.fit(X[:1_000])
if traced:
    tracemalloc.start()
started = time.perf_counter()
model.fit(X)
seconds = time.perf_counter() - started
peak = tracemalloc.get_traced_memory()[1] if traced else 0
print(json.dumps({{"seconds": seconds, "peak": peak,
    "predicted": estimate_memory(n, {features}, {k}, n_neighbors=10)}}))
"""


def one(n: int, inside: int | None, traced: bool) -> dict[str, float]:
    """A fit in a fresh process, timed or with its memory traced: tracing costs time."""
    code = ONE.format(features=FEATURES, k=K, inside=inside)
    command = [sys.executable, "-W", "ignore", "-c", code, str(n), "traced" if traced else "timed"]
    return json.loads(
        subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout
    )


def curve(inside: int | None) -> dict[str, object]:
    """Points over the number of rows, and the exponent of time."""
    points = []
    for n in ROWS:
        point = one(n, inside, traced=False) | {"peak": one(n, inside, traced=True)["peak"]}
        points.append({
            "rows": n,
            "seconds": point["seconds"],
            "bytes added": point["peak"],
            "bytes added / predicted": point["peak"] / (point["predicted"] - n * FEATURES * 8),
            "allowed: 60 bytes an edge and 6 n x k": 60 * 0.85 * 10 * n + 6 * n * K * 8,
        })  # fmt: skip
        print(json.dumps(points[-1]), flush=True)
    exponent = np.polyfit(np.log([p["rows"] for p in points]), np.log([p["seconds"] for p in points]), 1)[0]
    return {"points": points, "exponent of time": float(exponent)}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = {name: curve(inside) for name, inside in (("near ten dimensions", 10), ("balls in all directions", None))}
    found |= {"features": FEATURES, "k": K, "neighbours": 10}
    print(json.dumps(found, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
