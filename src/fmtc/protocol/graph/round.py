"""Phase `round`: one pass of Algorithm 1. W-step and F-step at the clients, consensus and dual step at the server."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...kernels.embedding import relative_move, update_embedding
from ...kernels.objective import local_terms
from ...kernels.projection import update_projection
from ...linalg.arrays import asarray_like, contiguous, to_numpy
from ...linalg.stacks import blocks
from ...privacy.protection import FIRST, Protection
from ...server import RoundReport
from ...settings import Settings
from ...state import become
from ..base import Array, Phase, array, number
from .consensus import server_step
from .state import GraphServer, Prepared, prepared, rotated

SECOND_PASS_AFTER = 2  # rounds; which of several solutions the run approaches is decided in the first ones


def is_rotation(R: Any, sizes: Mapping[str, int]) -> str | None:
    """Accept orthogonal matrices."""
    gap = R.T @ R
    gap.flat[:: len(R) + 1] -= 1
    error = float(np.abs(gap).max())
    return None if error <= 1e-3 else f"is not a rotation: R'R differs from I by {error:.1e}"


class Round(Phase):
    """One d x k matrix each way."""

    name = "round"
    doing = "in a round"
    protect = Protection("A person is told of few rows, or of one that dominates.", few_rows=True, dominance=FIRST)
    resumes = True
    persists = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """What the client's projection is drawn towards."""

        anchor: Array = array(
            "d k", "Z − Y/rho, this client's slice of the consensus: the only combination that Eq. 12 needs",
            "A mixture of everybody's `W`; with two clients, or with many that agree, a client can work out roughly "
            "what the others' `W` are.",
        )  # fmt: skip
        rotation: Array | None = array(
            "k k", "turns F and W to the common frame", "How the client's columns lie to those of the others.",
            when="after the first round, with `align`", check=is_rotation,
        )  # fmt: skip
        before: int | None = number(
            "rounds of the mixture before the first of these", "How long the mixture took.", kind="count",
            when="where the view was chosen on the way",
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """The client's projection, and two numbers for the log."""

        W: Array = array(
            "d k", "the projection, one weight for each feature and cluster",
            "A combination of the silo's rows, and a good deal about them; see [W](#w).",
        )  # fmt: skip
        cut: float = number(
            "Tr(FᵀLF), how well the embedding keeps neighbours together", "How clearly the silo falls into k groups."
        )
        misfit: float = number(
            "‖F − XW‖², how well the features explain the embedding",
            "How well the groups follow the features linearly.",
        )

    def asks(self, server: GraphServer, settings: Settings) -> dict[str, Any]:
        """Cut each client its slice of Z - Y/rho."""
        d, K, m = server.Z.shape
        anchors = np.empty((m, d, K), server.Z.dtype)
        for b in blocks(server.Z):
            anchors[:, b] = np.moveaxis(server.Z[b] - server.Y[b] / server.rho, 2, 0)
        return {
            cid: self.Ask(
                anchor=_as_sent(anchors[t][:, server.columns_of(t)], settings),
                rotation=server.rotations.get(cid),
                before=server.before,
            )
            for t, cid in enumerate(server.client_ids)
        }

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Prepared, Answer]:
        """Turn to the common frame, then W (Eq. 12) and F (Eq. 14-16)."""
        turned = rotated(prepared(client), ask.rotation)
        client, cut, misfit = one_pass(turned, ask.anchor, settings, round_no - (ask.before or 0))
        client = replace(client, round_no=round_no)
        return client, self.Answer(W=_as_sent(to_numpy(client.W), settings), cut=cut, misfit=misfit)

    def impossible(self, server: Any, answers: Mapping[str, Any], settings: Settings) -> dict[str, str]:
        """Another number of columns than the client has clusters."""
        return {
            cid: f"has {answer.W.shape[1]} columns, and its client has said {server.clusters[cid]} clusters"
            for cid, answer in answers.items()
            if cid in server.clusters and answer.W.shape[1] != server.clusters[cid]
        }

    def reduce(
        self, server: GraphServer, answers: MutableMapping[str, Answer], settings: Settings
    ) -> tuple[GraphServer, RoundReport]:
        """Align, prox (Eq. 18), dual step (Eq. 19)."""
        return server_step(server, answers, settings, workspace=server.workspace)


def one_pass(client: Prepared, anchor: Array, settings: Settings, number: int) -> tuple[Prepared, float, float]:
    """The client after its W-step and F-step of a round, and the two terms of its objective.

    Parameters
    ----------
    client : Prepared
    anchor : array of shape (d, k)
        Z - Y/rho.
    settings : Settings
    number : int
        Which round this is, the first being 1.
    """
    graph, factors, rows, solver = client.graph, client.factors, client.rows, settings.solver
    anchor, F = asarray_like(anchor, client.F), graph.to_graph_order(client.F)
    alpha, eta, n_inner, min_move = settings.alpha, client.eta, solver.n_inner, settings.min_move
    for _ in range(2 if solver.accelerate and number > SECOND_PASS_AFTER else 1):
        W = update_projection(factors, graph.to_client_order(F), anchor)
        target, before = graph.to_graph_order(rows @ W), F
        F = update_embedding(graph.laplacian, F, target, alpha=alpha, eta=eta, n_inner=n_inner, min_move=min_move)
        if min_move and relative_move(before, F) < min_move:
            break
    cut, misfit = local_terms(graph.laplacian, F, target)
    # rows side by side in memory, as they come back from a file or a wire: other layouts may sum in another order
    F, W = contiguous(graph.to_client_order(F)), contiguous(W)
    return become(client, Prepared, F=F, W=W, anchor=anchor), cut, misfit


def _as_sent(A: Array, settings: Settings) -> Array:
    """A d x k matrix as it travels: rounded, where the run says so; the sender continues with all digits."""
    return np.ascontiguousarray(A, dtype=settings.solver.message_dtype or A.dtype)


ROUND = Round()
