"""The graph view where the server sees sums only: the subspace coupling, whose consensus step needs no more.

Slice t of the consensus is P T_t, and P depends on the sum of T_s T_sᵀ over all clients alone. The server sends P to
all, and each client takes the steps of Eq. 18 and 19 for its own slice. What else needed everybody's W follows by sums,
too: the common frame, and which clusters are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import DataError, RefusedError, TrustError
from ...kernels.alignment import procrustes, same_place, turn_towards
from ...kernels.couplings.spectrum import rank, shrink, weight_of_threshold
from ...kernels.couplings.subspace import directions, directions_from_sketch
from ...kernels.objective import local_objective
from ...linalg.arrays import asarray_like, to_numpy
from ...settings import Settings
from ..base import Answers, Array, Content, Nothing, Phase, above, array, how_many, number
from ..graph.finish import FINISH, first_mixture
from ..graph.opening import Hello, rho_of, rounds_before
from ..graph.round import BEFORE, OVER_RELAXED, one_pass
from ..graph.state import Clustered, Embedded, Prepared, Scaled, prepared, rotated
from ..mixture.state import Mixing
from ..state import ClientState, Ready, RoundReport, ServerState, become, reached, refuse_flat
from .masking import ONLY_SUM

NO_SUM = 1e-6  # a negative eigenvalue of a sum of squares, relative to the largest, that rounding cannot explain
SPARE = 8  # columns of a sketch beyond the rank of what is sketched
FRAMES = 8  # that clusters are matched to: the best of them counts


@dataclass(frozen=True, kw_only=True)
class Directions(Scaled):
    """The server of rounds: it knows the sum over clients of what they have in common."""

    basis: Array  # d x r, directions that the consensus keeps
    ratio: Array  # r, how far it shrinks each of them
    reference: Array  # d x k, mean of the projections in the common frame


@dataclass(frozen=True, kw_only=True)
class Framed(Directions, Mixing):
    """The server after the rounds: it looks for which clusters are the same."""

    frames: Array  # g x k x k, centres that clusters are matched to; after the last turn, one frame
    matched: int = 0  # turns of that

    @property
    def numbers(self) -> Mapping[str, Mapping[str, Any]]:
        """What each client is told of the common numbers of its clusters."""
        return {cid: {"frame": self.frames[0]} for cid in self.client_ids}


class TotalHello(Hello):
    """Sizes and scale of all clients together."""

    protect = ONLY_SUM
    sums = True
    limbs = 4  # squares may be in any unit
    fraction = 128

    def reply(self, client: ClientState, ask: Nothing, settings: Settings, round_no: int) -> tuple[Ready, Any]:
        """Count; in a sum, nobody would see rows that are all equal."""
        ready, answer = super().reply(client, ask, settings, round_no)
        refuse_flat([] if answer.sum_of_squares else [ready.client_id])
        return ready, answer

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> Any:
        """Agree on columns and scale; nothing else is kept of anybody."""
        m = how_many(answers)
        (total,) = answers.values()
        if not total.sum_of_squares > 0:
            raise TrustError("hello: the sum of sum_of_squares is not above 0, so one silo sent no honest answer")
        d, over = divmod(total.n_features, m)
        if over:
            raise DataError("silos disagree on the number of features. Bring every silo to the same columns.")
        return become(
            server, Scaled, n_features=d, omega=np.full(m, 1 / m), rho=rho_of(server, settings, m), beta=None,
            scale=float(np.sqrt(total.n_samples / total.sum_of_squares)), before=rounds_before(server),
        )  # fmt: skip


class TotalRound(Phase):
    """One pass of Algorithm 1; each client takes the consensus step for its own slice, from what the sum says."""

    name = "round"
    protect = ONLY_SUM
    doing = "in a round"
    resumes = True
    persists = True
    sums = True
    limbs = 1
    fraction = 40

    class Ask(Content):
        """The consensus step, the same for all."""

        sketch: int = number(
            "columns of the sketch of the sum; 0: the sum itself is asked for", "How many silos there are.",
            kind="count",
        )  # fmt: skip
        basis: Array | None = array(
            "d r", "directions that the consensus keeps, from the sum of the last round",
            "Which combinations of columns the projections of all silos have in common.",
            when="after the first round",
        )  # fmt: skip
        ratio: Array | None = array(
            "r", "how far each of them is shrunk", "How strong each of them is.", when="as `basis`", check=above(0)
        )
        before: int | None = BEFORE()

        def wrong(self) -> str | None:
            """What no server can mean: one of two."""
            return None if (self.basis is None) == (self.ratio is None) else "basis and ratio come together"

    class Answer(Content):
        """What the server adds up."""

        gram: Array = array(
            "t", "T Tᵀ of T = W + Y/rho, entries on and above the diagonal; or its product with a random matrix",
            "In the sum: the subspace that the projections of all silos share, and its spectrum.",
        )  # fmt: skip
        loss: float = number("the silo's part of the objective", "In the sum: the objective.")
        gap: float = number("‖W − Z‖² of the last round", "In the sum: a residual.")
        own: float = number("‖W‖² of the last round", "In the sum: the size of the projections.")
        common: float = number("‖Z‖² of the last round", "In the sum: the size of the consensus.")
        moved: float = number("‖Z − Z before‖² of the last round", "In the sum: a residual.")
        dual: float = number("‖Y/rho‖² of the last round", "In the sum: the size of the dual.")

    def ask(self, server: Scaled, settings: Settings) -> Ask:
        """The directions that the consensus keeps."""
        known = {"basis": server.basis, "ratio": server.ratio} if isinstance(server, Directions) else {}
        return self.Ask(sketch=_sketch_width(server, settings), before=server.before, **known)

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Prepared, Answer]:
        """Z and Y of the last round (Eq. 18, 19), then W and F (Eq. 12, 14-16), and T of this round."""
        client = prepared(client)
        d, k = client.rows.shape[1], client.k
        if ask.basis is None or ask.ratio is None:  # Z = Y = 0 (Algorithm 1, initialisation)
            W, T, Z, before = (np.zeros((d, k)) for _ in range(4))
        elif client.T is None or client.Z is None:
            raise RefusedError("a message came too early: T, Z is not there yet")
        else:
            W, T, before = (to_numpy(part) for part in (client.W, client.T, client.Z))
            Z = ask.basis @ (ask.ratio[:, None] * (ask.basis.T @ T))  # P T, the client's slice of Eq. 18
        dual = T - Z  # Y/rho (Eq. 19)
        parts = {"gap": W - Z, "own": W, "common": Z, "moved": Z - before, "dual": dual}
        norms = {name: float(np.square(part, dtype=np.float64).sum()) for name, part in parts.items()}
        client, cut, misfit = one_pass(client, Z - dual, settings, round_no - (ask.before or 0))
        W = to_numpy(client.W)
        if ask.basis is not None:
            client = rotated(client, turn_towards(W, asarray_like(Z, W)))
            W = to_numpy(client.W)
        ahead = OVER_RELAXED * W + (1 - OVER_RELAXED) * Z if settings.accelerate and Z.any() else W
        T = np.asarray(ahead + dual, dtype=np.float64)
        client = replace(client, T=T, Z=Z, round_no=round_no)
        loss = local_objective(cut, misfit, settings.alpha)
        gram = T @ (T.T @ omega(d, ask.sketch, settings.seed)) if ask.sketch else (T @ T.T)[np.triu_indices(d)]
        return client, self.Answer(gram=gram.ravel(), loss=loss, **norms)

    def reduce(self, server: Scaled, answers: Answers, settings: Settings) -> tuple[Directions, RoundReport]:
        """Directions and sizes of the sum, shrunk (Eq. 18)."""
        (total,) = answers.values()
        d, k, m = server.n_features, settings.n_clusters, how_many(answers)
        width = _sketch_width(server, settings)
        if width:
            U, s, negative = directions_from_sketch(total.gram.reshape(d, width), omega(d, width, settings.seed))
        else:
            G = np.zeros((d, d))
            G[np.triu_indices(d)] = total.gram
            U, s, negative = directions(G + np.triu(G, 1).T)
        if negative > NO_SUM:
            raise TrustError("the sum of a round is no sum of squares: one of the silos sent no honest answer")
        p, beta = settings.schatten_p, server.beta
        if beta is None:
            beta = server.rho * weight_of_threshold(settings.beta * float(s.max()), p)
        x = shrink(s, beta / server.rho, p)
        kept = x > 0
        reference = np.zeros((d, k))
        reference[:, : min(k, U.shape[1])] = U[:, :k]
        size = np.sqrt(max(total.own, total.common, np.finfo(float).tiny))
        primal, dual = np.sqrt(max(total.gap, 0.0)) / size, np.sqrt(max(total.moved, 0.0))
        dual /= np.sqrt(total.dual) if total.dual > 0 else size
        first = not isinstance(server, Directions)  # nothing is known yet of a consensus
        report = RoundReport(
            objective=total.loss / m + beta * float((x**p).sum() if p < 1 else x.sum()),
            primal_residual=1.0 if first else float(primal),
            dual_residual=1.0 if first else float(dual),
            rank=rank(x[None]) if kept.any() else 0,
        )
        found = become(
            server, Directions, basis=np.ascontiguousarray(U[:, kept]), ratio=x[kept] / s[kept], beta=beta,
            reference=reference, round_no=server.round_no + 1,
        )  # fmt: skip
        return found, report


def _sketch_width(server: Scaled, settings: Settings) -> int:
    """Columns of the sketch of a d x d sum; 0 where its triangle is no longer."""
    width = settings.n_clusters * len(server.client_ids) + SPARE
    return 0 if (server.n_features + 1) / 2 <= width else width


def omega(d: int, width: int, seed: int) -> Array:
    """The random matrix of a sketch, which server and clients draw alike; (d, width), orthonormal columns."""
    return np.linalg.qr(np.random.default_rng([seed, 3]).normal(size=(d, width)))[0]


# -------------------------------------------------------------------------------------------- frame, numbers, mixture


class Frame(Phase):
    """Generalised Procrustes analysis by sums: each client turns its columns towards the mean, and adds them to it."""

    name = "frame"
    protect = ONLY_SUM
    doing = "turning to the common frame"
    turns = 8
    pure = True
    resumes = True
    sums = True

    class Ask(Content):
        """The mean so far."""

        reference: Array = array("d k", "mean of the projections in the common frame", "What they have in common.")

    class Answer(Content):
        """The client's part of the next mean."""

        turned: Array = array(
            "d k", "W in the common frame, scaled to norm 1", "In the sum: the mean of the projections of all silos."
        )

    def ask(self, server: Directions, settings: Settings) -> Ask:
        """The mean so far."""
        return self.Ask(reference=server.reference)

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Embedded, Answer]:
        """Turn the columns."""
        client = reached(client, Embedded)
        W = to_numpy(client.W)
        turned = W @ procrustes(W, ask.reference)
        return client, self.Answer(turned=turned / (np.linalg.norm(W) or 1.0))

    def reduce(self, server: Directions, answers: Answers, settings: Settings) -> Directions:
        """The mean."""
        turned = np.sum([answer.turned for answer in answers.values()], axis=0)
        return replace(server, reference=turned / how_many(answers))


class HomeFinish(Phase):
    """k-means in the common frame at each client; nothing leaves."""

    name = "finish"
    doing = FINISH.doing
    resumes = True
    Ask = Frame.Ask

    def ask(self, server: Directions, settings: Settings) -> Any:
        """The last mean."""
        return FRAME.ask(server, settings)

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Clustered, Nothing]:
        """Turn to the common frame for good, and find clusters there."""
        R = procrustes(to_numpy(reached(client, Embedded).W), ask.reference)
        return FINISH.reply(client, FINISH.Ask(rotation=R), settings, round_no)[0], Nothing()

    def reduce(self, server: Directions, answers: Answers, settings: Settings) -> Framed:
        """Public frames to begin with."""
        k, rng = settings.n_clusters, np.random.default_rng([settings.seed, 4])
        frames = np.array([np.linalg.qr(rng.normal(size=(k, k)))[0] for _ in range(FRAMES)])
        return become(server, Framed, frames=frames, mixture=None)


class Match(Phase):
    """Which clusters are the same: each client matches its centres to public frames, which move to the mean."""

    name = "match"
    protect = ONLY_SUM
    doing = "comparing its clusters with the others'"
    turns = 8
    pure = True
    sums = True

    class Ask(Content):
        """Frames so far."""

        frames: Array = array("g k k", "centres to match to", "Where clusters lie in the common frame.")

    class Answer(Content):
        """The client's part of the next frames."""

        matched: Array = array(
            "g k k", "the silo's centres, in the order that fits each frame",
            "In the sum: where the clusters of all silos lie in the common frame.",
        )  # fmt: skip
        ranks: Array = array(
            "g k", "their places in the silo's own order, the largest first",
            "In the sum: which clusters are large at most silos.",
        )  # fmt: skip

    def ask(self, server: Framed, settings: Settings) -> Ask:
        """The frames so far."""
        return self.Ask(frames=server.frames)

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Clustered, Answer]:
        """Match at home."""
        client = reached(client, Clustered)
        centers = client.own.model.centers
        orders = np.array([same_place(centers, frame) for frame in ask.frames])
        return client, self.Answer(matched=centers[orders].astype(np.float64), ranks=orders.astype(np.float64))

    def reduce(self, server: Framed, answers: Answers, settings: Settings) -> Framed:
        """Means of the matched centres; after the last turn, the frame on which clients agree most."""
        m = how_many(answers)
        frames = np.sum([answer.matched for answer in answers.values()], axis=0) / m
        if server.matched + 1 < self.turns:
            return replace(server, frames=frames, matched=server.matched + 1)
        best = int(np.square(frames).sum(axis=(1, 2)).argmax())
        ranks = np.sum([answer.ranks[best] for answer in answers.values()], axis=0) / m
        frame = frames[best][np.argsort(ranks, kind="stable")]
        mixes = settings.mixes and settings.n_clusters > 1
        mixture = first_mixture([frame], settings, server.words) if mixes else None
        return replace(server, frames=frame[None], mixture=mixture)


TOTAL_HELLO, TOTAL_ROUND, FRAME = TotalHello(), TotalRound(), Frame()
HOME_FINISH, MATCH = HomeFinish(), Match()
