"""What a federation of real processes costs against the same run in one process; writes results/federation.json.

For 3, 10 and 20 silos on this machine (2,000 features, 10 clusters: 160 kB each way and silo in float64): seconds a
round above those of the local transport, bytes on the wire against 2 d k itemsize, memory of a silo's processes, and
the time from command to first round. Then what float32 messages do to labels and projections.

    python bench/benchmarks/federation.py            (about five minutes)
    python bench/benchmarks/federation.py 3          (three silos only)
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sklearn.metrics import adjusted_rand_score

from _data import graph_view
from _digits import digits_silos
from fmtc import __version__
from fmtc.artifacts.files import read_json, write_json
from fmtc.runtime.driver import run
from fmtc.runtime.flare.local import LocalFederation
from fmtc.runtime.kitclient import ClientSource
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

sys.path.append(str(Path(__file__).parents[2]))
from tests.federation.proxy import Proxy

RESULTS = Path(__file__).parent / "results" / "federation.json"
D, K, ROWS, ROUNDS = 2_000, 10, 120, 20
TARGETS = {3: 0.3, 10: 0.9, 20: 1.6}


class Counted(LocalFederation):
    """A federation whose silos dial through a relay that counts bytes."""

    proxy: Proxy

    def start(self, cid: str) -> None:
        """Point a silo to the relay, then start it."""
        if not hasattr(self, "proxy"):
            self.proxy = Proxy(self.kits[cid].plan.port)
        file = self.kits[cid].startup / "fed_client.json"
        config = read_json(file)
        config["servers"][0]["service"]["target"] = f"localhost:{self.proxy.port}"
        write_json(file, config)
        super().start(cid)


def silos(m: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(K, D))
    return {f"s{t:02d}": centers[rng.integers(K, size=ROWS)] + rng.normal(size=(ROWS, D)) for t in range(m)}


def measure(m: int) -> dict[str, float]:
    data, settings = silos(m), Settings(n_clusters=K, max_iter=ROUNDS, tol=0)
    times: dict[str, float] = {}
    marks: dict[int, tuple[int, int]] = {}
    memory: list[float] = []

    def listen(event: Mapping[str, Any]) -> None:
        times.setdefault(event["event"], time.perf_counter())
        if event["event"] == "round":
            times["last round"] = time.perf_counter()
            marks[event["record"]["round_no"]] = (federation.proxy.up, federation.proxy.down)
        if event["event"] == "done":
            for process in federation.processes.values():
                parent = psutil.Process(process.process.pid)
                memory.append(sum(p.memory_info().rss for p in [parent, *parent.children(recursive=True)]))

    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for cid, X in data.items():
            np.save(Path(folder) / f"{cid}.npy", X)
            sources.append(ClientSource(cid, str(Path(folder) / f"{cid}.npy")))
        began = time.perf_counter()
        with Counted(sources, lost_after=30.0) as federation:
            outcome = federation.run(settings, listen=listen, wait=180.0)
        ended = time.perf_counter()
    local = run(LocalTransport(data, settings), settings)
    assert np.array_equal(local.server.Z, outcome.common["consensus"]), "the two transports differ"
    there = float(np.median([record.seconds for record in outcome.history[1:]]))
    here = float(np.median([record.seconds for record in local.history[1:]]))
    first, last = min(marks), max(marks)
    wire = sum(marks[last]) - sum(marks[first])
    payload = (last - first) * m * 2 * D * K * 8
    return {
        "silos": m,
        "seconds_round": there,
        "seconds_round_local": here,
        "overhead": there - here,
        "mark": TARGETS[m],
        "wire_over_payload": wire / payload,
        "megabytes_per_silo": float(np.median(memory)) / 1e6,
        "seconds_to_first_round": times["round"] - began,
        "seconds_in_all": ended - began,
        "cpus": psutil.cpu_count(),
    }


def float32_messages() -> dict[str, float]:
    """Half the bytes: how many labels change, and by how much the projections do."""
    digits = digits_silos()
    full = graph_view(10, random_state=0).fit(digits.X, silos=digits.clients)
    half = graph_view(10, random_state=0, message_dtype="float32").fit(digits.X, silos=digits.clients)
    drift = max(
        float(np.linalg.norm(full.projections_[c] - half.projections_[c]) / np.linalg.norm(full.projections_[c]))
        for c in full.silos_
    )
    return {
        "labels_changed": float((full.labels_ != half.labels_).mean()),
        "adjusted_rand": float(adjusted_rand_score(full.labels_, half.labels_)),
        "largest_relative_change_of_W": drift,
        "bytes_up": sum(r.bytes_up for r in half.run_.rounds) / sum(r.bytes_up for r in full.run_.rounds),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    sizes = [int(word) for word in sys.argv[1:]] or list(TARGETS)
    rows = []
    for m in sizes:
        rows.append(measure(m))
        print(json.dumps(rows[-1], indent=1), flush=True)
    result = {
        "command": "python bench/benchmarks/federation.py",
        "versions": {"fmtc": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "setting": {"features": D, "clusters": K, "rows": ROWS, "rounds": ROUNDS},
        "silos": rows,
        "float32_messages": float32_messages(),
    }
    print(json.dumps(result["float32_messages"], indent=1))
    if sizes == list(TARGETS):
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
