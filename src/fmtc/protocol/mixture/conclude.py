"""Phase `conclude`: the mixture's last parameters; concepts take their numbers, and each client keeps its model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...mixture import personal
from ...mixture.steps import SMALLEST_SHARE
from ...models import Frame, MixtureModel
from ...settings import Settings
from ..base import Answers, Array, Nothing, Phase, array, number
from ..graph.number import SHARES, Presence, present, with_presence
from ..home import WHEN, chosen, compares, home_of, is_compared, mixture_common, with_calibration
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
            "K", "the concept that takes each number, the largest first", "As `shares`.", kind="int", check=is_order
        )
        compare: bool | None = number(
            "whether the client compares the common model with one of its own",
            "That the server has capped, set aside or refused somebody.", kind="flag", when=WHEN,
        )  # fmt: skip

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
        if is_compared(found, ask.compare, settings):
            found = chosen(found, settings, "mixture")
        known = mixture_common(found, common.ordered(order))  # numbers of folds are those of the model
        found = with_calibration(replace(found, home=home_of(found, known, settings)), settings)
        return found, present(found)

    def reduce(self, server: Any, answers: Answers, settings: Settings) -> Any:
        """Keep who has how much of what, for the atlas."""
        return with_presence(server, answers)


class HomeConclude(Conclude):
    """The same where the server may not learn what one client has."""

    Answer = Nothing

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Any, Any]:
        """The client's own parameters, and its labels; nothing leaves."""
        return super().reply(client, ask, settings, round_no)[0], Nothing()


def _own_shares(shares: Array, k: int) -> Array:
    """Shares of the concepts that a client has, at most k; the others have none."""
    has = shares > SMALLEST_SHARE
    has &= np.argsort(np.argsort(-shares, kind="stable")) < k
    return np.where(has, shares, 0.0) / shares[has].sum()


def _warn_of_equal_rows(client: Counted) -> None:
    """A warning where a client has fewer distinct rows than clusters; that it lacks a concept needs no warning."""
    X, found = client.X, set()
    for row in range(X.shape[0]):
        if sp.issparse(X):
            part = slice(X.indptr[row], X.indptr[row + 1])
            found.add((X.indices[part].tobytes(), X.data[part].tobytes()))
        else:
            found.add(X[row].tobytes())  # missing cells are equal to each other
        if len(found) >= client.k:
            return
    n = len(found)
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"client {client.client_id!r} has only {n} different row{'s' if n > 1 else ''} for {client.k} clusters. "
        "Ask for fewer clusters, or look for duplicate rows.",
        ConvergenceWarning,
        stacklevel=3,
    )


CONCLUDE, HOME_CONCLUDE = Conclude(), HomeConclude()
