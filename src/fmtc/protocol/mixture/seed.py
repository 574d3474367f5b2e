"""Phase `seed`: steps of k-means over the rows of all clients, for several starts of the mixture at once."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...mixture.bounds import impossible_steps
from ...mixture.pooling import floored
from ...mixture.starts import CATEGORY_WEIGHT, assign_sums, first_common, first_statistics, is_centred, moved, shape
from ...privacy.rules import ClusterSums
from ...server import heard
from ...settings import Settings
from ...state import become, reached
from ..base import Array, Phase, above, array
from .coordinates import fresh_centers, sampled
from .state import Counted, Mixture, MixtureServer, Reading, Seeding, Seeds, category_levels, counted, stacked

STEPS = 8
HANDICAP = 0.2  # log-likelihood per row that a start along one coordinate must gain: structure in all counts more


class Seed(Phase):
    """Sums of the rows nearest to each centre."""

    name = "seed"
    doing = "looking for a start of its mixture"
    protect = ClusterSums("Sums over rows; the policy says what becomes of those over few.")
    sums = True
    turns = STEPS
    persists = True

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Centres of all starts."""

        centers: Array = array("s K p", "centres of each start", "Where the rows of all silos lie densely.")
        weights: Array = array(
            "s p", "coordinates that each start looks at", "Which columns are flat, over all silos.",
            check=above(-1e-300),
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Sums of one client."""

        counts: Array = array(
            "s K", "rows nearest to each centre, of at most 2000", "How many rows of the silo lie near each centre."
        )
        sums: Array = array(
            "s K p", "their sums; in every second start, of deviations from the silo's mean",
            "Where the silo's clusters lie; of a cluster of one row, that row.",
        )  # fmt: skip

    def asks(self, server: Seeding, settings: Settings) -> dict[str, Any]:
        """The same centres for everyone."""
        return dict.fromkeys(server.client_ids, self.Ask(centers=server.seeds.centers, weights=server.seeds.weights))

    def reply(self, client: Any, ask: Ask, settings: Settings, round_no: int) -> tuple[Counted, Answer]:
        """One step; the client keeps its own sums: the mixture begins with the last ones."""
        cells = sampled(reached(client, Reading), settings)
        mean = shape(cells).mean
        origins = np.array([mean if is_centred(start) else np.zeros_like(mean) for start in range(len(ask.centers))])
        counts, sums = assign_sums(cells, ask.centers, origins, ask.weights)
        r = cells.r
        own = [first_statistics(counts[s], sums[s], origins[s], r, origins[s][:r]) for s in range(len(counts))]
        return counted(client, own, np.arange(len(own)), client.round_no), self.Answer(counts=counts, sums=sums)

    def impossible(self, server: Seeding, answers: Mapping[str, Answer], settings: Settings) -> dict[str, str]:
        """Clusters that the client's own moments rule out."""
        found = {}
        for cid, answer in answers.items():
            if cid not in server.told:
                continue
            n, p = int(server.told[cid][0]), answer.sums.shape[2]
            mean, within = server.told[cid][1 : 1 + p], server.told[cid][1 + p :]
            squares = np.array([within + (0 if is_centred(s) else n) * mean**2 for s in range(len(answer.counts))])
            why = impossible_steps(answer.counts, answer.sums, n, squares)
            if why is not None:
                found[cid] = why
        return found

    def reduce(
        self, server: Seeding, answers: MutableMapping[str, Answer], settings: Settings
    ) -> Seeding | MixtureServer:
        """Move the centres; after the last step, begin with common parameters."""
        said = [answers[cid] for cid in heard(server, answers)]
        counts = np.sum([answer.counts for answer in said], axis=0)
        sums = np.sum([answer.sums for answer in said], axis=0)
        seeds = replace(server.seeds, turn=server.seeds.turn + 1)
        if seeds.turn == self.turns:
            return become(server, MixtureServer, mixture=_begin(seeds, counts, sums, settings))
        centers = moved(seeds.centers, counts, sums, fresh_centers(seeds, settings))
        return replace(server, seeds=replace(seeds, centers=centers))


def _begin(seeds: Seeds, counts: Array, sums: Array, settings: Settings) -> Mixture:
    """Common parameters of all starts before the first E-step."""
    levels, mean, weights = category_levels(seeds.axes, settings), seeds.mean, seeds.weights
    r = len(mean) - sum(levels)
    profile, begin = np.array(mean[r:]) / CATEGORY_WEIGHT, 0
    for size in levels:
        part = np.maximum(profile[begin : begin + size], 1e-4)
        profile[begin : begin + size] = part / part.sum()
        begin += size
    given = settings.solver.spread
    handicap = np.where(weights.sum(axis=1) < weights.shape[1], HANDICAP, 0.0)
    found = [
        first_common(counts[s], sums[s], seeds.within if is_centred(s) else seeds.total, r, levels, profile)
        for s in range(len(counts))
    ]
    found = [replace(part, covariance=floored(part.covariance, seeds.floor)) for part in found]
    if given is not None:
        found = [replace(part, spread=np.full_like(part.spread, given)) for part in found]
    return Mixture(
        **stacked(found), keep=np.arange(len(found)), scores=np.zeros(len(found)), handicap=handicap, size=seeds.size,
        axes=seeds.axes, origin=seeds.origin, floor=seeds.floor,
    )  # fmt: skip


SEED = Seed()
