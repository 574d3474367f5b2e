"""FMTC, the mixture view: the phases of a run in their order.

moments      each client sums up its columns
rescale      columns take the common units
axes         principal axes, where columns are many
coordinates  each client reads its rows as the mixture does, and sums up their moments
seed         steps of k-means from several starts at once
em           E-step and sums, then the common parameters       until the likelihood hardly changes
conclude     concepts take their numbers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...errors import warn_not_converged
from ...mixture import Cells, Personal, Pool
from ...mixture.steps import SMALLEST_SHARE, Common
from ...models import Frame, MixtureModel, Units
from ...refit import MixtureCommon, em_at_home
from ...settings import EM_ROUNDS, EM_TOL, Settings
from ..base import Answers, Array, Nothing, Phase, array
from ..graph.number import SHARES, Presence, present, with_presence
from ..graph.view import GraphView, known
from ..home import COMPARE, DOUBT, chosen_and_calibrated, compares
from ..state import ClientState, become, reached
from ..units import MOMENTS, RESCALE
from .em import COMPARED, EM, asked, is_order, own_of, parameters, pool_of, statistics_of
from .em import Ask as Parameters
from .opening import AXES, COORDINATES, SEED
from .state import Concluded, Counted, MixtureServer, Reading, Tallied, common_of

# ------------------------------------------------------------------------------------------------------------ conclude


class Conclude(Phase):
    """The last message of a mixture."""

    name = "conclude"
    doing = "finishing its mixture"
    protect = SHARES
    resumes = True
    concludes = True
    Answer: ClassVar[type] = Presence

    class Ask(Parameters):
        """Common parameters, and the numbers of the concepts."""

        order: Array = array(
            "K", "the cluster that takes each number, the largest first", "As `shares`.", kind="int", check=is_order
        )
        compare: bool | None = COMPARE()
        doubt: bool | None = DOUBT()

    def ask(self, server: MixtureServer, settings: Settings) -> Ask:
        """The last parameters."""
        mixture = server.mixture.best(1)
        return self.Ask(
            **vars(asked(mixture)), order=mixture.order, compare=compares(server), doubt=bool(server.held) or None
        )

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Any, Any]:
        """The client's own parameters, and its labels by the very code of predict."""
        client = reached(client, Counted)
        cells = client.cells
        (own, *_), common = statistics_of(client, ask.keep), common_of(ask)
        pool, order = pool_of(settings), ask.order
        mine = parameters(cells, common, own, pool, own_of(client, settings))
        if pool.lean:
            mine = _at_most(client.k, mine, common, cells, pool)
        frame = Frame.of(client.scaling, settings.levels, client.axes, client.origin)
        model = MixtureModel(frame, mine.means[order], common.covariance, mine.shares[order], mine.profiles[order])
        labels = model.assign(client.X)
        if not client.on_trial and len(np.unique(labels)) < client.k:
            _warn_of_equal_rows(client)
        found = become(client, Concluded, model=model, labels=labels)
        units = Units(scaling=client.scaling, axes=client.axes, origin=client.origin)
        known = MixtureCommon(units, common.ordered(order), ~model.lacks)  # numbers of folds are those of the model
        found = chosen_and_calibrated(found, ask, known, settings)
        return found, present(found, self)

    def reduce(self, server: Any, answers: Answers, settings: Settings) -> Any:
        """Keep who has how much of what, for the atlas."""
        return with_presence(server, answers)


class HomeConclude(Conclude):
    """The same where the server may not learn what one client has: nothing leaves."""

    Answer = Nothing


def _at_most(k: int, mine: Personal, common: Common, cells: Cells, pool: Pool) -> Personal:
    """The client with at most k concepts, fitted at home where some had to go; those that it lacks have no share."""
    has = mine.shares > SMALLEST_SHARE
    if has.sum() > k:
        has[np.argsort(-mine.shares, kind="stable")[k:]] = False
        mine, _ = em_at_home(cells, common, pool, [_only(mine, has)])
        has &= mine.shares > SMALLEST_SHARE
    return _only(mine, has)


def _only(mine: Personal, has: Array) -> Personal:
    shares = np.where(has, mine.shares, 0.0)
    return replace(mine, shares=shares / shares.sum())


def _warn_of_equal_rows(client: Counted) -> None:
    """A warning where a client has fewer distinct rows than clusters; that it lacks a concept needs no warning."""
    rows = (client.X[[row]] for row in range(client.X.shape[0]))  # missing cells are equal to each other
    n = len({(row.indices.tobytes(), row.data.tobytes()) if sp.issparse(row) else row.tobytes() for row in rows})
    if n < client.k:
        warn_not_converged(
            f"silo {client.client_id!r} has only {n} different row{'s' if n > 1 else ''} for {client.k} clusters. "
            "Ask for fewer clusters, or look for duplicate rows."
        )


CONCLUDE, HOME_CONCLUDE = Conclude(), HomeConclude()


# ---------------------------------------------------------------------------------------------------------------- view


class MixtureView(GraphView):
    """A Gaussian mixture with partial pooling."""

    name = "fmtc-mixture"
    opening: tuple[Phase, ...] = (MOMENTS, RESCALE, AXES, COORDINATES, SEED)
    loop: Phase = EM
    closing = (CONCLUDE,)
    model_types = (MixtureModel,)
    saved = ("starts", "counts", "sums", "tallies", "shifts")
    changeable = ("max_iter", "tol", "calibrate")
    view: str | None = "mixture"

    def stop_reason(self, history: Sequence[Any], settings: Settings) -> tuple[bool, str] | None:
        """A likelihood that hardly changes any more, or all rounds done."""
        rounds, most, tol = len(history), EM_ROUNDS * settings.max_iter, EM_TOL * settings.tol
        last = history[-1].objective if rounds else float("inf")
        change = abs(last - history[-2].objective) if rounds > 1 else float("inf")
        if rounds > max(COMPARED) + 2 and change < tol * max(1.0, abs(last)):
            return True, f"log-likelihood per row changed by less than {tol:g} after {rounds} rounds"
        if rounds >= most:
            return False, (
                f"{most} rounds of the mixture done (4 max_iter); log-likelihood per row still changed by {change:.1e}"
            )
        return None

    def restored(self, client: ClientState, round_no: int, arrays: Mapping[str, Any]) -> Any:
        """The client as it was after a round; it reads its rows as a mixture if it did."""
        return become(client, Counted if isinstance(client, Reading) else Tallied, round_no=round_no, **arrays)

    def common(self, server: MixtureServer) -> dict[str, Any]:
        """Common parameters of the concepts."""
        mixture = server.mixture.best(1)
        found = {"means": mixture.means[0], "covariance": mixture.covariance[0]}
        return found | known(kappa=server.kappa, influence=server.influence)


METHOD = MixtureView()
