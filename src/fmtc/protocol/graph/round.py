"""Phase `round`: one pass of Algorithm 1. W-step and F-step at the clients, consensus and dual step at the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...kernels.alignment import generalized_procrustes, rotate, turn_towards
from ...kernels.containment import MOST_SLICES, Judged, judge, pulls
from ...kernels.couplings import COUPLINGS, Coupling, update_dual, weight_of_threshold
from ...kernels.couplings.partial import Partial
from ...kernels.embedding import relative_move, update_embedding
from ...kernels.objective import augmented_lagrangian, global_objective, local_objective, local_terms, residuals
from ...kernels.projection import update_projection
from ...linalg.arrays import asarray_like, contiguous, to_numpy
from ...linalg.stacks import Workspace, blocks
from ...privacy.protection import FIRST, Protection
from ...settings import Settings
from ..base import Answers, Array, Content, Phase, array, number
from ..state import RoundReport, become, noted
from .state import Finished, GraphServer, Prepared, prepared, rotated

# ------------------------------------------------------------------------------------------------------------ consensus


OVER_RELAXED = 1.8  # how far the consensus step looks past a client's model, seen from the consensus before


def coupling_of(server: GraphServer, settings: Settings) -> Coupling:
    """The coupling of the run, over the concepts that each client has."""
    whole = COUPLINGS[settings.coupling_of(server.words)]
    return whole if server.has is None else Partial(whole, server.has)


def server_step(
    server: GraphServer, answers: Answers, settings: Settings, *, workspace: Workspace | None = None
) -> tuple[GraphServer, RoundReport]:
    """Stack the W, align them, shrink towards a common structure (Eq. 18), dual step (Eq. 19).

    A client that did not answer keeps its last slice, and its rotation if it has not confirmed it.

    With a `workspace`, the step uses up what it is given: it empties `answers` once the answers are stacked, and writes
    over those stacks of the old state that the workspace owns. Without, neither changes.
    """
    memory = Workspace() if workspace is None else workspace
    W = _stacked(server, answers, settings, memory)
    present = [t for t, cid in enumerate(server.client_ids) if cid in answers]
    judged = _contained(server, W, present, settings)
    losses = server.losses.copy()
    for t, cid in enumerate(server.client_ids):
        if cid in answers:
            losses[t] = local_objective(answers[cid].cut, answers[cid].misfit, settings.alpha)
    rotations: Mapping[str, Array] = {cid: R for cid, R in server.rotations.items() if cid not in answers}
    among = slice(None) if len(present) == W.shape[2] else present
    if workspace is not None:
        answers.clear()
    R = _rotations(server, W, present, settings)
    if R is not None:
        for b in blocks(W):
            W[b][:, :, among] = rotate(W[b][:, :, among], R)
        turned = {server.client_ids[t]: _own_rotation(server, R[:, :, i], t) for i, t in enumerate(present)}
        rotations = {**rotations, **turned}
    rho, p, coupling = server.rho, settings.schatten_p, coupling_of(server, settings)
    beta = server.beta
    if beta is None:  # a fraction of the largest singular value of the first stack, in the units of Eq. 18
        beta = rho * weight_of_threshold(settings.beta * coupling.critical_threshold(W), p)
    T = memory.compute(_target(server, W, judged, settings), over=server.Y, dtype=W.dtype)
    consensus = coupling.prox(T, beta / rho, p).separate_from(T)  # Eq. 18
    Z = consensus.Z
    Y = memory.compute(lambda b: update_dual(0, T[b], Z[b], rho), over=T)  # Eq. 19; T, used up here, has the old dual
    primal, dual = residuals(W, Z, server.Z, Y, rho)
    report = RoundReport(
        objective=global_objective(losses, server.omega, W, beta=beta, p=p, coupling=coupling),
        lagrangian=augmented_lagrangian(losses, server.omega, W, Z, Y, rho=rho, penalty=beta * consensus.value),
        primal_residual=primal,
        dual_residual=dual,
        rank=consensus.rank,
        capped=_named(server, judged.capped),
        odd=_named(server, judged.odd),
        affinity={cid: round(float(a), 4) for cid, a in zip(server.client_ids, judged.affinity, strict=True) if a == a}
        or None,
    )
    server = replace(
        server, W=W, Z=Z, Y=Y, beta=beta, losses=losses, rotations=rotations,
        round_no=server.round_no + 1, held=noted(server.held, report.capped, report.odd),
        aside=noted((), report.capped, report.odd),
    )  # fmt: skip
    return server, report


def _target(server: GraphServer, W: Array, judged: Judged, settings: Settings) -> Callable[[slice], Array]:
    """What the consensus is the nearest of: T = W + Y/rho, W seen past the consensus before (docs/paper.md#rounds)."""
    accelerate = settings.accelerate and bool(server.Z.any())

    def target(b: slice) -> Array:
        T = OVER_RELAXED * W[b] + (1 - OVER_RELAXED) * server.Z[b] if accelerate else W[b]
        T = T + server.Y[b] / server.rho
        if judged.odd.any():
            T[:, :, judged.odd] = W[b][:, :, judged.odd]  # nor does what it said before count
        return T

    return target


JUDGED_AFTER = 3  # rounds: before, honest clients may have little in common, if they come to have it


def _contained(server: GraphServer, W: Array, present: list[int], settings: Settings) -> Judged:
    """Judge the slices of this round, and scale those down that are too large or odd, in place."""
    pulled = settings.beta > 0 or not COUPLINGS[settings.coupling_of(server.words)].shrinks  # else by nobody
    if not (settings.contains and pulled):
        return judge(W, [])
    if server.has is not None:  # a client that has other concepts than most is not odd
        judged = judge(W, present, compare=False, widths=np.maximum(server.has.sum(axis=0), 1))
    else:
        judged = judge(W, present, compare=server.round_no >= JUDGED_AFTER)
    for t in np.flatnonzero(judged.factors != 1):
        for b in blocks(W):
            W[b][:, :, t] *= judged.factors[t]
    return judged


def with_influence(server: Finished, settings: Settings) -> Finished:
    """The server after its last round, with who pulls whom in its consensus; T of Eq. 18 is Z + Y/rho (Eq. 19)."""
    if not 2 <= len(server.client_ids) <= MOST_SLICES or server.beta is None or server.has is not None:
        return server
    coupling = COUPLINGS[settings.coupling_of(server.words)]
    tau, p = server.beta / server.rho, settings.schatten_p
    T = server.Z + server.Y / server.rho
    found = pulls(T, server.Z, lambda part: coupling.prox(part, tau, p).Z, drop=not coupling.shrinks)
    return replace(server, influence=found)


def _named(server: GraphServer, chosen: Array) -> tuple[str, ...]:
    return tuple(cid for cid, is_chosen in zip(server.client_ids, chosen, strict=True) if is_chosen)


def _stacked(server: GraphServer, answers: Mapping[str, Any], settings: Settings, memory: Workspace) -> Array:
    """The projections of all clients, those of the last round for clients that did not answer; (d, k, m)."""
    slices = [
        _widened(server, np.asarray(answers[cid].W), t) if cid in answers else server.W[:, :, t]
        for t, cid in enumerate(server.client_ids)
    ]
    rounded = settings.message_dtype is not None  # W came so, but sums keep all digits
    dtype = np.dtype(np.float64) if rounded else np.result_type(*{s.dtype for s in slices})
    return memory.compute(lambda b: np.moveaxis(np.array([s[b] for s in slices]), 0, 2), over=server.W, dtype=dtype)


def _widened(server: GraphServer, W: Array, t: int) -> Array:
    """The projection of client t with a column for each concept, zero for those it lacks; (d, k) -> (d, K)."""
    if server.has is None:
        return W
    wide = np.zeros((len(W), len(server.has)), W.dtype)
    wide[:, server.columns_of(t)] = W
    return wide


def _own_rotation(server: GraphServer, R: Array, t: int) -> Array:
    """The rotation of client t as it takes it; (K, K) -> (k, k)."""
    columns = server.columns_of(t)
    return np.ascontiguousarray(R[columns][:, columns])


def _rotations(server: GraphServer, W: Array, present: list[int], settings: Settings) -> Array | None:
    """Rotations of the clients that answered; None without alignment; (k, k, present)."""
    if not settings.align:
        return None
    if server.has is not None:
        return _partial_rotations(server, W, present)
    if server.round_no == 0:
        return generalized_procrustes(W if len(present) == W.shape[2] else W.take(present, axis=2))
    return turn_towards(W, server.Z)[:, :, present]


def _partial_rotations(server: GraphServer, W: Array, present: list[int]) -> Array | None:
    """Rotations among the columns that a client has; None in the first round, which begins in the common frame."""
    if server.round_no == 0:
        return None
    R = np.zeros((W.shape[1], W.shape[1], len(present)))
    for i, t in enumerate(present):
        columns = server.columns_of(t)
        R[np.ix_(columns, columns, [i])] = turn_towards(W[:, columns, t], server.Z[:, columns, t])[:, :, None]
    return R


# ---------------------------------------------------------------------------------------------------------------- round


SECOND_PASS_AFTER = 2  # rounds; which of several solutions the run approaches is decided in the first ones


def is_rotation(R: Any, sizes: Mapping[str, int]) -> str | None:
    """Accept orthogonal matrices."""
    gap = R.T @ R
    gap.flat[:: len(R) + 1] -= 1
    error = float(np.abs(gap).max())
    return None if error <= 1e-3 else f"is not a rotation: R'R differs from I by {error:.1e}"


BEFORE = partial(
    number, "rounds of the mixture before the first of these", "How long the mixture took.", kind="count",
    when="where the view was chosen on the way",
)  # fmt: skip


class Round(Phase):
    """One d x k matrix each way."""

    name = "round"
    doing = "in a round"
    protect = Protection("A person is told of few rows, or of one that dominates.", few_rows=True, dominance=FIRST)
    resumes = True
    persists = True

    class Ask(Content):
        """What the client's projection is drawn towards."""

        anchor: Array = array(
            "d k", "Z − Y/rho, this silo's slice of the consensus: the only combination that Eq. 12 needs",
            "A mixture of everybody's `W`; with two silos, or with many that agree, a silo can work out roughly "
            "what the others' `W` are.",
        )  # fmt: skip
        rotation: Array | None = array(
            "k k", "turns F and W to the common frame", "How the silo's columns lie to those of the others.",
            when="after the first round, with `align`", check=is_rotation,
        )  # fmt: skip
        before: int | None = BEFORE()

    class Answer(Content):
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

    def impossible(self, server: Any, client_id: str, answer: Any, settings: Settings) -> str | None:
        """Another number of columns than the client has clusters."""
        k, said = answer.W.shape[1], server.clusters.get(client_id)
        return None if said in (None, k) else f"has {k} columns, and its silo has said {said} clusters"

    def reduce(self, server: GraphServer, answers: Answers, settings: Settings) -> tuple[GraphServer, RoundReport]:
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
    graph, factors, rows = client.graph, client.factors, client.rows
    anchor, F = asarray_like(anchor, client.F), graph.to_graph_order(client.F)
    alpha, eta, n_inner, min_move = settings.alpha, client.eta, settings.n_inner, settings.min_move
    for _ in range(2 if settings.accelerate and number > SECOND_PASS_AFTER else 1):
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
    return np.ascontiguousarray(A, dtype=settings.message_dtype or A.dtype)


ROUND = Round()
