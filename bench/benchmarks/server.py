"""The server step for very many clients: time as a ratio to an SVD of every slice, memory as a multiple of the stack.

python bench/benchmarks/server.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fmtc.kernels.couplings import COUPLINGS
from fmtc.linalg.threads import one_thread
from fmtc.protocol.graph.consensus import OVER_RELAXED, server_step
from fmtc.protocol.graph.round import ROUND, Round
from fmtc.protocol.graph.state import GraphServer
from fmtc.settings import Settings

RESULTS = Path(__file__).parent / "results" / "server.json"
D, K, CLIENTS, FEWER = 2_000, 10, 1_000, 100
LARGE = {"k m = 2000": (100_000, 10, 200), "k m = 10000": (100_000, 10, 1_000)}


def federation(d: int, k: int, m: int) -> tuple[GraphServer, dict[str, Round.Answer], Settings]:
    """A server before the first round, and answers: common columns, differences of half their size, own frames."""
    rng = np.random.default_rng(0)
    common, settings = rng.normal(size=(d, k)), Settings(n_clusters=k)
    ids = tuple(f"{t:05d}" for t in range(m))
    found = {}
    for cid in ids:
        frame = np.linalg.qr(rng.normal(size=(k, k)))[0]
        found[cid] = ROUND.Answer(W=(common + 0.5 * rng.normal(size=(d, k))) @ frame, cut=1.0, misfit=1.0)
    zeros = np.zeros((d, k, m))
    server = GraphServer(
        ids, omega=np.full(m, 1 / m), rho=2 * settings.solver.ridge / m, beta=None, scale=1.0, W=zeros, Z=zeros,
        Y=zeros, losses=np.zeros(m),
    )  # fmt: skip
    return server, found, settings


def later_answers(server: GraphServer) -> dict[str, Round.Answer]:
    """Those of a later round: near the models that the server has."""
    rng = np.random.default_rng(1)
    W = server.W + 0.05 * rng.normal(size=server.W.shape)
    return {cid: ROUND.Answer(W=W[:, :, t].copy(), cut=1.0, misfit=1.0) for t, cid in enumerate(server.client_ids)}


def by_svd(server: GraphServer, answers: dict[str, Round.Answer], settings: Settings) -> np.ndarray:
    """The formulas of a later round as they are printed: client by client, whole stacks, all slices decomposed."""
    rho, tau = server.rho, server.beta / server.rho
    W = np.stack([answers[cid].W for cid in server.client_ids], axis=2)
    for t in range(W.shape[2]):
        U, _, Vh = np.linalg.svd(W[:, :, t].T @ (server.Z[:, :, t] + 0.1 * W[:, :, t]))
        W[:, :, t] = W[:, :, t] @ U @ Vh
    ahead = OVER_RELAXED * W + (1 - OVER_RELAXED) * server.Z
    U, s, Vh = np.linalg.svd(np.moveaxis(np.fft.rfft(ahead + server.Y / rho, axis=2), 2, 0), full_matrices=False)
    slices = (U * np.maximum(s - tau, 0)[:, None, :]) @ Vh
    Z = np.fft.irfft(np.moveaxis(slices, 0, 2), n=W.shape[2], axis=2)
    Y = server.Y + rho * (ahead - Z)
    for stack in (W, Z, Z):  # objective, Lagrangian, rank
        np.linalg.svd(np.moveaxis(np.fft.rfft(stack, axis=2), 2, 0), compute_uv=False)
    for stack in (W, Z, Y, W - Z, Z - server.Z, Y * (W - Z)):
        np.linalg.norm(stack)
    return Z


def timed(work: object, *args: object, n: int = 3) -> tuple[float, float]:
    """Shortest wall and processor time of n turns."""
    walls, cpus = [], []
    for _ in range(n):
        wall, cpu = time.perf_counter(), time.process_time()
        work(*args)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def seconds() -> dict[str, float]:
    """First and later steps, and a later one against decompositions of all slices."""
    found = {}
    for m in (CLIENTS, FEWER):
        server, answers, settings = federation(D, K, m)
        wall, cpu = timed(server_step, server, answers, settings, n=1)
        found |= {f"{m} clients, first step: seconds": wall, f"{m} clients, first step: of processors": cpu}
        server, _ = server_step(server, answers, settings)
        answers = later_answers(server)
        wall, cpu = timed(server_step, server, answers, settings)
        found |= {f"{m} clients, later step: seconds": wall, f"{m} clients, later step: of processors": cpu}
    Z = server_step(server, answers, settings)[0].Z
    error = np.linalg.norm(Z - by_svd(server, answers, settings)) / np.linalg.norm(Z)
    assert error < 1e-10, error
    plain, plain_cpu = timed(by_svd, server, answers, settings, n=1)
    found[f"{FEWER} clients, decomposed: seconds"] = plain
    found[f"{FEWER} clients, decomposed: of processors"] = plain_cpu
    found["later step / decomposed, of processors"] = cpu / plain_cpu
    return found


def grown(work: str) -> float:
    """What a piece of work adds to the largest memory of a process, as a multiple of the variable `size`."""
    code = (
        "import resource; from dataclasses import replace; import numpy as np; from server import *\n"
        "from fmtc.linalg.stacks import Workspace\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n" + work
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def memory() -> dict[str, float]:
    """Beyond the old state and the answers: W, Z and Y are made anew in the first step, Z alone in the later ones."""
    first = (
        f"server, answers, settings = federation({D}, {K}, {CLIENTS})\n"
        "server_step(*federation(50, 3, 4)); size = server.W.nbytes\n"
        "before = peak()\n"
        "after, _ = server_step(server, answers, settings, workspace=Workspace()); print((peak() - before) / size)"
    )
    later = (
        f"server, answers, settings = federation({D}, {K}, {CLIENTS}); rng = np.random.default_rng(1)\n"
        "server_step(*federation(50, 3, 4)); size = server.W.nbytes\n"
        "W, Z, Y = (rng.normal(size=server.W.shape) for _ in range(3))\n"
        "server = replace(server, W=W, Z=Z, Y=Y, beta=5 * server.rho, round_no=3); before = peak()\n"
        "after, _ = server_step(server, answers, settings, workspace=Workspace(W, Y)); print((peak() - before) / size)"
    )
    return {"first step / stack": grown(first), "later step / stack": grown(later)}


def large_matrix(d: int, k: int, m: int) -> dict[str, float]:
    """[W_1 ... W_m] with both sides long, single precision: twelve strong directions, ten of them above 0.15."""
    rng = np.random.default_rng(0)
    T = np.empty((d, k, m), np.float32)
    right = rng.standard_normal((12, k * m), np.float32) * np.linspace(1, 0.1, 12, dtype=np.float32)[:, None]
    for begin in range(0, d, 2_000):
        left = rng.standard_normal((2_000, 12), np.float32)
        noise = rng.standard_normal((2_000, k * m), np.float32)
        T[begin : begin + 2_000] = (left @ right + 0.3 * noise).reshape(2_000, k, m)
    largest = float(np.sqrt(d * k * m))
    wall, cpu = timed(COUPLINGS["subspace"].prox, T, 0.15 * largest, 1.0, n=1)
    return {"shrunk: seconds": wall, "shrunk: of processors": cpu, "bytes": T.nbytes}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = {"memory": memory()}  # first: a process starts with the largest memory of the one that started it
    with one_thread("blas"):  # as in a run
        found["server step, one thread"] = seconds()
    found["subspace, d = 100000"] = {name: large_matrix(*shape) for name, shape in LARGE.items()}
    print(json.dumps(found, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
