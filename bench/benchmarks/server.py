"""The server step of the graph view for a thousand clients: seconds, and memory as a multiple of the stack.

python bench/benchmarks/server.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from _data import resident
from fmtc.linalg.stacks import Workspace
from fmtc.linalg.threads import one_thread
from fmtc.protocol.graph.round import ROUND, Round, server_step
from fmtc.protocol.graph.state import GraphServer
from fmtc.settings import Settings

RESULTS = Path(__file__).parent / "results" / "server.json"
D, K, CLIENTS = 2_000, 10, 1_000
STEPS = ("first", "later")

Federation = tuple[GraphServer, dict[str, Round.Answer], Settings]


def federation(d: int, k: int, m: int) -> Federation:
    """A server before the first round, and answers: common columns, differences of half their size, own frames."""
    rng = np.random.default_rng(0)
    common, settings = rng.normal(size=(d, k)), Settings(n_clusters=k)
    ids = tuple(f"{t:05d}" for t in range(m))
    answers = {}
    for cid in ids:
        frame = np.linalg.qr(rng.normal(size=(k, k)))[0]
        answers[cid] = ROUND.Answer(W=(common + 0.5 * rng.normal(size=(d, k))) @ frame, cut=1.0, misfit=1.0)
    zeros = np.zeros((d, k, m))
    server = GraphServer(
        client_ids=ids, omega=np.full(m, 1 / m), rho=2 * settings.ridge / m, beta=None, scale=1.0, W=zeros, Z=zeros,
        Y=zeros, losses=np.zeros(m),
    )  # fmt: skip
    return server, answers, settings


def later(server: GraphServer) -> dict[str, Round.Answer]:
    """Answers of a later round: near the models that the server has."""
    W = server.W + 0.05 * np.random.default_rng(1).normal(size=server.W.shape)
    return {cid: ROUND.Answer(W=W[:, :, t].copy(), cut=1.0, misfit=1.0) for t, cid in enumerate(server.client_ids)}


def seconds(d: int = D, k: int = K, m: int = CLIENTS) -> dict[str, float]:
    """A first step, and the shortest of three later ones."""
    server, answers, settings = federation(d, k, m)
    with one_thread("blas"):  # as in a run
        started = time.perf_counter()
        server, _ = server_step(server, answers, settings)
        found = {f"{m} clients, first step: seconds": time.perf_counter() - started}
        answers, taken = later(server), []
        for _ in range(3):
            started = time.perf_counter()
            server_step(server, answers, settings)
            taken.append(time.perf_counter() - started)
    return found | {f"{m} clients, later step: seconds": min(taken)}


def grown(step: str, d: int = D, k: int = K, m: int = CLIENTS) -> float:
    """What a step adds to the largest memory of this process, over the size of a stack.

    W, Z and Y are made anew in the first step; the workspace owns W and Y of the state before a later one.
    """
    server, answers, settings = federation(d, k, m)
    server_step(*federation(50, 3, 4))  # imports
    workspace = Workspace()
    if step == "later":
        rng, shape = np.random.default_rng(1), server.W.shape
        W, Y = (workspace.compute(lambda b: rng.normal(size=server.W[b].shape), over=server.W) for _ in range(2))
        server = replace(server, W=W, Z=rng.normal(size=shape), Y=Y, beta=5 * server.rho, round_no=3)
    before = resident("VmHWM")
    server_step(server, answers, settings, workspace=workspace)
    return (resident("VmHWM") - before) / server.W.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-of", choices=STEPS, help="print what this step adds to this process; write nothing")
    given = parser.parse_args()
    if given.memory_of:
        print(grown(given.memory_of))
        return
    memory = {}
    for step in STEPS:  # each in a process of its own, which has held nothing larger before
        done = subprocess.check_output([sys.executable, __file__, "--memory-of", step], text=True)
        memory[f"{step} step / stack"] = float(done)
    found = {"memory": memory, "server step, one thread": seconds()}
    print(json.dumps(found, indent=1))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
