"""Phases `em` and `settle`: rounds of the mixture, over columns and over the projections of the graph view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import RefusedError
from ...kernels.containment import MOST_SLICES
from ...mixture import Cells, e_step, personal, summed
from ...mixture.bounds import impossible_sums, limited
from ...mixture.pooling import Pool, added, floored, pooled, pulls, weighted
from ...mixture.steps import Common, Personal, Statistics, Sums, packed, unpacked
from ...privacy.rules import MixtureSums
from ...settings import EM_ROUNDS, Settings
from ..base import RESTARTS, Answers, Array, Content, Phase, above, array, entries, how_many, pack
from ..state import RoundReport, become, heard, noted, reached, row_weights, stream
from .opening import SAMPLE, sampled
from .own import APART, OWN, own_start
from .state import STACKED, Counted, Mixture, MixtureServer, Tallied, category_levels, common_of, counted, stacked

COMPARED = {10: 3, 20: 1}  # after so many rounds, so many starts go on
# After so many rounds starts of the silos' own clusters join those that go on. Not in principal axes: of eleven
# visible federations of many columns they changed the scores of two, by -7 and -2 points of ARI.
OWN_FROM = 10
Begin = Callable[[Cells, Common], Personal]
PROTECT = MixtureSums("Sums over rows; the policy says what becomes of those over few.")
CLOSE = 8.0, 4.0  # distance and scatter of one client's projections, in medians: they are in a common frame


def is_order(order: Any, sizes: Mapping[str, int]) -> str | None:
    """Accept orders of 0, 1, 2, ..."""
    right = np.array_equal(np.sort(order), np.arange(len(order)))
    return None if right else f"is not an order of {len(order)} clusters"


def _positive_definite(S: Any, sizes: Mapping[str, int]) -> str | None:
    try:
        np.linalg.cholesky(S)
    except np.linalg.LinAlgError:
        return "is not positive definite"
    return None


def _are_shares(P: Any, sizes: Mapping[str, int]) -> str | None:
    return None if (P > 0).all() and np.allclose(P.sum(axis=-1), 1) else "does not hold shares above 0"


class Ask(Content):
    """Common parameters of each start."""

    keep: Array = array(
        "s",
        "numbers of the starts that go on, below 0 if silos begin with clusters of their own",
        "Which starts suit all silos.",
        kind="int",
    )
    means: Array = array(
        "s K r", "common means of the clusters",
        "Where the clusters of all silos lie; with two silos, roughly the other's.",
    )  # fmt: skip
    covariance: Array = array(
        "s r r", "common covariance within clusters", "How columns vary together within clusters, over all silos.",
        check=_positive_definite,
    )  # fmt: skip
    shares: Array = array(
        "s K", "shares of the clusters in all rows", "How common each cluster is; with two silos, at the other.",
        check=_are_shares,
    )  # fmt: skip
    spread: Array = array(
        "s K", "1/kappa: how far silos' means lie from the common one", "How alike the silos are.", check=above(-1e-300)
    )
    drift: Array = array("s", "the same for silos as a whole", "How far silos are shifted.", check=above(-1e-300))
    profiles: Array | None = array(
        "s K l", "shares of the levels of categories in each cluster", "As `shares`, for categories.",
        when="where columns are categories", check=above(0),
    )  # fmt: skip


class Answer(Content):
    """Sums over one client's rows; the server adds them up over clients."""

    counts: Array = array("s K", "rows of each cluster", "Exactly that.")
    weights: Array = array("s K", "1/(1/counts + spread)", "Nothing besides `counts`.")
    means: Array = array(
        "s K r", "weights times the mean row of each cluster, less the silo's shift",
        "Where the silo's clusters lie; of a cluster with one row, that row.",
    )  # fmt: skip
    scatter: Array = array(
        "s h", "products of deviations from the silo's means, and of the weighted means",
        "How the silo's columns vary together within clusters.",
    )  # fmt: skip
    spread: Array = array(
        "s 2 K", "the silo's part in the estimate of spread", "How far its means lie from the common."
    )
    drift: Array = array("s 2", "the silo's part in the estimate of drift", "How far it is shifted as a whole.")
    score: Array = array(
        "s 3", "log-likelihood of the rows less penalties, the same integrated over the silo's means, number of rows",
        "How well the clusters of all silos suit this one.",
    )  # fmt: skip
    level_weights: Array | None = array(
        "s K q", "as weights, of rows that have the category", "How often categories are missing.",
        when="where columns are categories",
    )  # fmt: skip
    levels: Array | None = array(
        "s K l", "those weights times the shares of the levels",
        "How often each level occurs in the silo's clusters; of a cluster with one row, its levels.",
        when="where columns are categories",
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------- what both phases do


def asked(mixture: Mixture) -> Ask:
    """The question of a round."""
    return become(mixture, Ask, profiles=mixture.profiles if mixture.profiles.shape[2] else None)


def among(common: Common, has: Array | None) -> Common:
    """Common parameters as a client takes them that has some of the concepts only: the others have no share."""
    if has is None or has.all():
        return common
    shares = np.where(has, common.shares, 0.0)
    return replace(common, shares=shares / shares.sum())


def one_round(
    cells: Cells, ask: Ask, before: Sequence[Statistics | None], pool: Pool, has: Array | None = None,
    begin: Begin | None = None,
) -> tuple[list[Statistics], Answer]:  # fmt: skip
    """E-step of every start, and the sums that leave.

    `has` says which of the concepts the client has, and `begin` makes its own parameters of a start that is None.
    """
    after, sums = [], []
    for s, own in enumerate(before):
        common = among(common_of(ask, s), has)
        mine = parameters(cells, common, own, pool, begin)
        found = e_step(cells, mine, common.covariance)
        statistics, part = summed(common, own or no_statistics(common), mine, found, cells.levels, cells.n)
        after.append(statistics)
        sums.append(part)
    triangle = np.tril_indices(cells.r)
    said = {name: np.array([getattr(part, name) for part in sums]) for name in entries(Answer)}
    if not cells.levels:
        del said["level_weights"], said["levels"]
    return after, Answer(**said | {"scatter": np.array([part.scatter[triangle] for part in sums])})


def parameters(
    cells: Cells, common: Common, own: Statistics | None, pool: Pool, begin: Begin | None = None
) -> Personal:
    """A client's own parameters, from its last sums; where it has none, from what it begins with."""
    if own is not None:
        return personal(common, own, cells.levels, pool.concentration, cells.never, lean=pool.lean)
    if begin is None:
        raise RefusedError("a start of the mixture is not one of those that went on")
    return begin(cells, common)


def next_round(
    server: Any, answers: Mapping[str, Answer], pool: Pool, settings: Settings, levels: tuple[int, ...] = ()
) -> tuple[Any, RoundReport]:
    """The server with common parameters after a round; its value is that of the best start, for each row."""
    weights, mixture = row_weights(server) or {}, server.mixture
    said = {cid: answers[cid] for cid in heard(server, answers)}
    count = how_many(answers) - (len(answers) - len(said))
    starts = list(zip(*map(_unpacked, said.values()), strict=True))
    found, scores, capped, each = [], [], set[str](), []
    for s, parts in enumerate(map(list, starts)):
        common = mixture.common(s)
        if settings.contains:
            close = {"far_at": CLOSE[0], "wide_at": CLOSE[1]} if pool.even else {}
            parts, touched = limited(parts, common, levels, **close)
            if mixture.keep[s] >= 0 or len(starts) == 1:  # silos' own clusters may well be far from each other
                capped |= {cid for cid, is_far in zip(said, touched, strict=True) if is_far}
        if len(starts) == 1 and 2 <= len(said) <= MOST_SLICES and not pool.even:
            server = replace(server, influence=_for_all(server.client_ids, list(said), pulls(parts, common)))
        sums = added(weighted(part, weights.get(cid, 1.0)) for cid, part in zip(said, parts, strict=True))
        found.append(pooled(common, sums, pool, levels, mixture.size, count, mixture.floor_of(s)))
        scores.append(float(sums.score[1] / sums.score[2]))
        each.append(parts)
    mixture = replace(mixture, **stacked(found), scores=np.array(scores), rounds=mixture.rounds + 1)
    if set(said) <= set(server.client_ids):  # else only the sum over clients is known
        last = {cid: packed(part) for cid, part in zip(said, each[mixture.leader], strict=True)}
        server = replace(server, parts={**server.parts, **last})
    report = RoundReport(objective=-max(scores), capped=tuple(sorted(capped)))
    return replace(server, mixture=mixture, held=noted(server.held, report.capped)), report


def impossible_round(
    mixture: Mixture, answer: Answer, levels: tuple[int, ...] = (), told: tuple[int, ...] = ()
) -> str | None:
    """Why no rows can give these sums; `told`: how many rows there may be."""
    r = mixture.means.shape[2]
    for name, size in (("scatter", r * (r + 1) // 2), ("level_weights", len(levels)), ("levels", sum(levels))):
        value = getattr(answer, name)
        if (0 if value is None else value.shape[-1]) != size:
            return f"has {name} of another size than {size}"
    every = (impossible_sums(sums, mixture.common(s), levels, told) for s, sums in enumerate(_unpacked(answer)))
    return next((why for why in every if why is not None), None)


def _unpacked(answer: Answer) -> list[Sums]:
    """The sums of each start."""
    n_starts, k, r = answer.means.shape
    rows, columns = np.tril_indices(r)
    scatter = np.zeros((n_starts, r, r))
    scatter[:, rows, columns] = answer.scatter
    scatter += np.tril(scatter, -1).swapaxes(1, 2)
    none = dict.fromkeys(("level_weights", "levels"), np.zeros((n_starts, k, 0)))
    said = none | pack(answer) | {"scatter": scatter}
    return [Sums(**{name: value[s] for name, value in said.items()}) for s in range(n_starts)]


def known_parameters(
    mixture: Mixture, parts: Mapping[str, Array], levels: tuple[int, ...], pool: Pool
) -> dict[str, Personal]:
    """The clients' own parameters, as the server can know them: all but a shift of the silo as a whole."""
    common, found = mixture.best(1).common(0), {}
    (k, r), owner = common.means.shape, np.repeat(np.arange(len(levels)), levels)
    for cid, numbers in parts.items():
        sums = unpacked(numbers, k, r, levels)
        n, w = sums.counts, np.where(sums.weights > 0, sums.weights, np.inf)
        b = np.where(sums.weights > 0, 1 / w - 1 / np.maximum(n, 1e-300), 0.0)[:, None]
        rows = 1 / np.maximum(1 - sums.level_weights * b, 1e-12)  # for each unit of weight
        own = Statistics(n, (n / w)[:, None] * sums.means, sums.levels * rows[:, owner], np.zeros(r))
        found[cid] = personal(common, own, levels, pool.concentration)
    return found


def statistics_of(client: Tallied, keep: Array) -> list[Statistics | None]:
    """What the client kept of its last E-step, for the starts with these numbers; None: it has to begin its own."""
    place = {int(number): s for s, number in enumerate(client.starts)}
    gone = [int(number) for number in keep if int(number) not in place and number >= 0]
    if gone:
        raise RefusedError(f"start {gone[0]} of the mixture is not one of those that went on")
    kept = (client.counts, client.sums, client.tallies, client.shifts)
    places = [place.get(int(number)) for number in keep]
    return [None if s is None else Statistics(*(values[s] for values in kept)) for s in places]


def no_statistics(common: Personal) -> Statistics:
    """What a client knows before its first E-step: nothing."""
    shares, means, profiles = (np.zeros_like(values) for values in (common.shares, common.means, common.profiles))
    return Statistics(shares, means, profiles, means[0])


def own_of(client: Counted, settings: Settings) -> Begin:
    """How a client begins from its own clusters."""

    def begin(cells: Cells, common: Common) -> Personal:
        seed = int(stream(settings.seed, client.client_id, "own").integers(2**31))
        return own_start(cells, common, client.k, settings.n_init, seed)

    return begin


def with_own(mixture: Mixture, n: int) -> Mixture:
    """The mixture, and beside its starts two of the silos' own clusters, which begin in the shape of the best.

    In the second columns do not covary. It is ahead by what an information criterion takes for the covariances of the
    others: half the logarithm of the number of rows, n, for each.
    """
    best = mixture.best(1)
    parts = {name: [getattr(mixture, name), *(2 * [getattr(best, name)])] for name in STACKED}
    added: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
    added["covariance"][-1] = floored(added["covariance"][-1], mixture.apart)
    saved = np.count_nonzero(np.triu(best.covariance[0])) - np.count_nonzero(added["covariance"][-1])
    added["keep"][-2:], added["handicap"][-2:] = (OWN, APART), (0.0, -0.5 * saved * np.log(n) / n)
    return replace(mixture, **added)


def pool_of(settings: Settings) -> Pool:
    """How the mixture over columns is pooled; where silos may lack concepts, they drop those they have few rows of."""
    return Pool(spread=settings.spread, lean=settings.clusters_per_silo is not None)


# ------------------------------------------------------------------------------------------------- mixture of columns


class _EM(Phase):
    """A round of the mixture over columns."""

    name = "em"
    doing = "in a round of its mixture"
    protect = PROTECT
    sums = True
    resumes = True
    persists = True
    Ask = Ask
    Answer = Answer

    def limit(self, settings: Settings) -> int:
        """All rounds, and as many as a run that is started again may repeat."""
        return EM_ROUNDS * settings.max_iter + RESTARTS

    def ask(self, server: MixtureServer, settings: Settings) -> Any:
        """The common parameters."""
        return asked(server.mixture)

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Counted, Any]:
        """The client's own parameters, E-step, sums."""
        client = reached(client, Counted)
        before = statistics_of(client, ask.keep)
        rows = client.cells if len(before) == 1 else sampled(client, settings)
        after, answer = one_round(rows, ask, before, pool_of(settings), begin=own_of(client, settings))
        return counted(client, after, np.array(ask.keep), round_no), answer

    def impossible(self, server: MixtureServer, client_id: str, answer: Any, settings: Settings) -> str | None:
        """Sums of no rows, or of other rows than before."""
        known, levels = server.told.get(client_id), category_levels(server.mixture.axes, settings)
        told = () if known is None else (int(known[0]), min(int(known[0]), SAMPLE))
        return impossible_round(server.mixture, answer, levels, told)

    def reduce(self, server: MixtureServer, answers: Answers, settings: Settings) -> tuple[MixtureServer, RoundReport]:
        """Add up, pool, and let the best starts go on."""
        levels = category_levels(server.mixture.axes, settings)
        server, report = next_round(server, answers, pool_of(settings), settings, levels)
        rounds = server.mixture.rounds
        mixture = server.mixture.best(COMPARED.get(rounds, len(server.mixture.keep)))
        begins = rounds == OWN_FROM and settings.own and mixture.axes is None
        return replace(server, mixture=with_own(mixture, server.n_samples) if begins else mixture), report


def _for_all(client_ids: tuple[str, ...], some: list[str], influence: Array) -> Array:
    """Who pulls whom among all clients; those that had no part pull nobody."""
    place = [client_ids.index(cid) for cid in some]
    found = np.zeros((len(client_ids), len(client_ids)))
    found[np.ix_(place, place)] = influence
    return found


EM = _EM()
