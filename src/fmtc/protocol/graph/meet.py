"""Phase `meet`: which clusters of which clients are the same, before the rounds, where clients may lack concepts.

Columns of projections can be coupled only if they mean the same. Where all clients have all concepts, rotations see to
that. Where they do not, each client first finds clusters by itself; the server matches them, and gives each client
axes that are concepts.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...client import stream
from ...kernels.alignment import match_concepts, nearest_orthogonal, numbers_of, propose_concepts
from ...kernels.centers import row_norms, unit_centers
from ...linalg.arrays import namespace, to_numpy
from ...models import GraphModel
from ...privacy.rules import Centres
from ...settings import Settings
from ...state import become
from ..base import Array, Nothing, Phase, array
from .finish import not_of_unit_length
from .round import ROUND, one_pass
from .state import Clustered, Clusters, GraphServer, Proposed, prepared

PASSES = 3  # over projection and embedding, before clusters are compared


class Meet(Phase):
    """Clusters of each client alone."""

    name = "meet"
    doing = "finding clusters to compare"
    protect = Centres("No centre is one row; the policy says what becomes of small clusters.")
    persists = True

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Projection and centres of one client."""

        W: Array = array("d k", "the projection, learnt alone", "As `W` in `round`.")
        centers: Array = array(
            "k k", "cluster centres among normalised projections, largest cluster first", "As `centers` in `finish`."
        )

    def times(self, server: GraphServer, settings: Settings) -> int:
        """Once, where a client has fewer clusters than there are concepts."""
        return int(any(k < settings.n_clusters for k in server.clusters.values()))

    def reply(self, client: Any, ask: Nothing, settings: Settings, round_no: int) -> tuple[Clustered, Answer]:
        """A few passes without an anchor, then k-means on the normalised rows of X W."""
        client = prepared(client)
        nothing = np.zeros((client.rows.shape[1], client.k))
        for number in range(1, PASSES + 1):
            client, _, _ = one_pass(client, nothing, settings, number)
        E = client.rows @ client.W
        E = E / row_norms(E)
        seed = int(stream(settings.seed, client.client_id, "meet").integers(2**31))
        found = unit_centers(E, client.k, settings.solver.n_init, seed)
        labels = (E @ found.T).argmax(axis=1)
        sizes = to_numpy(namespace(labels).bincount(labels, minlength=client.k))
        centers, W = to_numpy(found), np.ascontiguousarray(to_numpy(client.W))
        order = np.lexsort((-np.linalg.norm(centers @ W.T, axis=1), -sizes))
        own = Clusters(E, GraphModel(W, centers[order], 0.0, None), np.argsort(order)[to_numpy(labels)])
        return become(client, Clustered, own=own), self.Answer(W=W, centers=centers[order])

    def impossible(self, server: Any, answers: Mapping[str, Any], settings: Settings) -> dict[str, str]:
        """Another number of clusters than before, or centres that are not of length 1."""
        return dict(ROUND.impossible(server, answers, settings)) | not_of_unit_length(answers)

    def reduce(self, server: GraphServer, answers: MutableMapping[str, Any], settings: Settings) -> GraphServer:
        """Match clusters to concepts; the axes of each client become those of its concepts."""
        ids = [cid for cid in server.client_ids if cid in answers]
        signatures = [answers[cid].centers @ answers[cid].W.T for cid in ids]
        orders = match_concepts(signatures, settings.n_clusters, settings.seed)
        has, rotations = np.zeros((settings.n_clusters, len(server.client_ids)), bool), {}
        for cid, order in zip(ids, orders, strict=True):
            has[:, server.client_ids.index(cid)] = order >= 0
            axes = nearest_orthogonal(np.asarray(answers[cid].centers, dtype=np.float64).T)
            rotations[cid] = np.ascontiguousarray(
                axes[:, np.argsort(numbers_of(order))]
            )  # columns in order of concepts
        return replace(server, has=has, rotations=rotations)


class Propose(Meet):
    """How many concepts there may be, from the clusters of each client alone."""

    def times(self, server: GraphServer, settings: Settings) -> int:
        """Once."""
        return 1

    def reduce(self, server: GraphServer, answers: MutableMapping[str, Any], settings: Settings) -> Proposed:
        """Count groups of clusters that are alike."""
        found = propose_concepts([answer.centers @ answer.W.T for _, answer in sorted(answers.items())])
        return become(server, Proposed, proposed=max(found, *server.clusters.values()))


MEET, PROPOSE = Meet(), Propose()
