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
from typing import Any

from ...models import MixtureModel
from ...settings import EM_ROUNDS, EM_TOL, Settings
from ..base import Phase
from ..graph.view import GraphView, known
from ..state import ClientState, become
from ..units import MOMENTS, RESCALE
from .conclude import CONCLUDE
from .em import COMPARED, EM
from .opening import AXES, COORDINATES, SEED
from .state import Counted, MixtureServer, Reading, Tallied


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
