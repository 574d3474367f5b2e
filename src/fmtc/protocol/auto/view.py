"""FMTC, the view chosen without labels: run the mixture, decide, and perhaps run the graph view after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...client import ClientState
from ...server import ServerState
from ...settings import Settings
from ..base import Phase
from ..graph.state import Numbered
from ..graph.view import METHOD as GRAPH
from ..graph.view import GraphView
from ..method import ClientResult
from ..mixture.view import METHOD as MIXTURE
from . import choice
from .probe import PROBE


class AutoView(GraphView):
    """A plan of two views: which of their phases come, what the server knows so far decides (`fmtc.protocol.choice`).

    Parameters
    ----------
    mixture, graph : GraphView
        The two views.
    probe : Phase
        The comparison between them.
    """

    name = "fmtc-auto"
    view = None

    def __init__(self, mixture: GraphView, graph: GraphView, probe: Phase):
        self.views = {choice.MIXTURE: mixture, choice.GRAPH: graph}
        self.opening, self.loop, self.loops = mixture.opening, graph.loop, (mixture.loop, graph.loop)
        self.closing = (*graph.closing, *mixture.closing)
        self.saved = (*mixture.saved, *graph.saved)
        self.undecided = (*mixture.opening, mixture.loop, probe)
        own = [phase for phase in graph.opening if phase not in mixture.opening]
        self.phases = (*self.undecided, *own, graph.loop, *self.closing)
        self.model_types = (*graph.model_types, *mixture.model_types)

    def times(self, phase: Phase, server: ServerState, settings: Settings) -> int:
        """As the phase says, if it is one of the chosen view; until there is one, of the mixture and the comparison."""
        due = self.undecided if server.view is None else self.views[server.view].phases
        return phase.times(server, settings) if phase in due else 0

    def restored(self, client: ClientState, round_no: int, arrays: Mapping[str, Any]) -> Any:
        """As in the view whose round it was."""
        return self.views[choice.GRAPH if "F" in arrays else choice.MIXTURE].restored(client, round_no, arrays)

    def loop_stops(self, loop: Phase, history: Sequence[Any], settings: Settings) -> tuple[bool, str] | None:
        """As in the view that the loop belongs to."""
        (view,) = (view for view in self.views.values() if view.loop is loop)
        return view.stop_reason(history, settings)

    def common(self, server: ServerState) -> dict[str, Any]:
        """What the chosen view has in common."""
        return self.views[str(server.view)].common(server)

    def result(self, client: Any) -> ClientResult:
        """Model and labels of a client after the run."""
        return self.views[choice.GRAPH if isinstance(client, Numbered) else choice.MIXTURE].result(client)


METHOD = AutoView(MIXTURE, GRAPH, PROBE)
