"""Phase `conclude`: the mixture's last parameters; concepts take their numbers, and each client keeps its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...errors import warn_not_converged
from ...mixture import personal
from ...mixture.steps import SMALLEST_SHARE
from ...models import Frame, MixtureModel, Units
from ...refit import MixtureCommon
from ...settings import Settings
from ..base import Answers, Array, Nothing, Phase, array
from ..graph.number import SHARES, Presence, present, with_presence
from ..home import COMPARE, chosen_and_calibrated, compares
from ..state import become, reached
from .em import Ask as Parameters
from .em import asked, is_order, pool_of, statistics_of
from .state import Concluded, Counted, MixtureServer, common_of


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

    def ask(self, server: MixtureServer, settings: Settings) -> Ask:
        """The last parameters."""
        mixture = server.mixture.best(1)
        return self.Ask(**vars(asked(mixture)), order=mixture.order, compare=compares(server, settings))

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Any, Any]:
        """The client's own parameters, and its labels by the very code of predict."""
        client = reached(client, Counted)
        cells = client.cells
        (own, *_), common = statistics_of(client, ask.keep), common_of(ask)
        pool, order = pool_of(settings), ask.order
        mine = personal(common, own, cells.levels, pool.concentration, cells.never, lean=pool.lean)
        if pool.lean:
            mine = replace(mine, shares=_own_shares(mine.shares, client.k))
        frame = Frame.of(client.scaling, settings.levels, client.axes, client.origin)
        model = MixtureModel(frame, mine.means[order], common.covariance, mine.shares[order], mine.profiles[order])
        labels = model.assign(client.X)
        if not client.on_trial and len(np.unique(labels)) < client.k:
            _warn_of_equal_rows(client)
        found = become(client, Concluded, model=model, labels=labels)
        units = Units(scaling=client.scaling, axes=client.axes, origin=client.origin)
        known = MixtureCommon(units, common.ordered(order), ~model.lacks)  # numbers of folds are those of the model
        found = chosen_and_calibrated(found, ask.compare, known, settings)
        return found, present(found, self)

    def reduce(self, server: Any, answers: Answers, settings: Settings) -> Any:
        """Keep who has how much of what, for the atlas."""
        return with_presence(server, answers)


class HomeConclude(Conclude):
    """The same where the server may not learn what one client has: nothing leaves."""

    Answer = Nothing


def _own_shares(shares: Array, k: int) -> Array:
    """Shares of the concepts that a client has, at most k; the others have none."""
    has = shares > SMALLEST_SHARE
    has &= np.argsort(np.argsort(-shares, kind="stable")) < k
    return np.where(has, shares, 0.0) / shares[has].sum()


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
