"""FMTC, the view chosen without labels: the mixture, a comparison, and the graph view if it suits better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..client import ClientState
from ..models import GraphModel, MixtureModel
from ..server import ServerState
from ..settings import Settings
from .base import Phase, required
from .conclude import CONCLUDE
from .em import EM, em_stops
from .graph import GraphView
from .method import ClientResult
from .mixture import METHOD as MIXTURE
from .probe import PROBE


class AutoView(GraphView):
    """The mixture view, and where rows say so the graph view after it."""

    name = "fmtc-auto"
    opening = MIXTURE.opening
    saved = (*MIXTURE.saved, *GraphView.saved)
    view = None
    closing = (*GraphView.closing, CONCLUDE)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those of both views, and the comparison between them."""
        own = [phase for phase in GraphView.opening if phase not in MIXTURE.opening]
        return (*MIXTURE.opening, EM, PROBE, *own, self.loop, *self.closing)

    @property
    def model_types(self) -> tuple[type, ...]:
        """Those of both views."""
        return GraphModel, MixtureModel

    @property
    def loops(self) -> tuple[Phase, ...]:
        """Rounds of the mixture, then rounds of the graph view."""
        return EM, self.loop

    def loop_stops(self, loop: Phase, history: Sequence[Any], settings: Settings) -> tuple[bool, str] | None:
        """As in the view that the loop belongs to."""
        return em_stops(history, settings) if loop is EM else self.stop_reason(history, settings)

    def common(self, server: ServerState) -> dict[str, Any]:
        """What the chosen view has in common."""
        return MIXTURE.common(server) if server.view == "mixture" else super().common(server)

    def result(self, client: ClientState) -> ClientResult:
        """Model and labels of a client after the run."""
        (model,) = required(client, "model")
        return super().result(client) if hasattr(model, "W") else MIXTURE.result(client)


METHOD = AutoView()
