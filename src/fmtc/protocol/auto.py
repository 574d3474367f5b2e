"""FMTC, the view chosen without labels: run the mixture, decide, and perhaps run the graph view after it.

The decision is that of `choice`. Where columns and rows do not decide, phase `probe` asks each silo in which view its
rows look better, judged by neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..kernels.lift import NEIGHBORS, shows_shapes
from ..privacy.protection import Protection
from ..refit import Silo, refit
from ..settings import Settings
from . import choice
from .base import Answers, Array, Content, Phase, how_many, number
from .graph.view import METHOD as GRAPH
from .graph.view import GraphView
from .home import closed_share
from .mixture.state import Counted, MixtureServer
from .mixture.view import CONCLUDE
from .mixture.view import METHOD as MIXTURE
from .state import ClientState, ServerState, reached, some_rows

# ---------------------------------------------------------------------------------------------------------------- probe


SHAPE_ROWS, MANY_ROWS = 1000, 400  # rows of a silo that are looked at: for shapes, and where columns are many


class Probe(Phase):
    """Each silo compares the mixture with its own graph view, on some of its rows."""

    name = "probe"
    doing = "comparing the two views"
    protect = Protection("Three numbers about all rows that are looked at.")
    sums = True
    resumes = True
    pure = True
    Ask = CONCLUDE.Ask  # the mixture's parameters

    class Answer(Content):
        """How one client's rows look in both views."""

        shapes: bool = number(
            "whether rows fall into parts that hardly touch and that no ellipse follows, such as rings",
            "Exactly that.", kind="flag",
        )  # fmt: skip
        gain: float = number(
            "share of neighbours in the same cluster, beyond chance: mixture less graph view",
            "In which view the silo's clusters are closed.",
        )  # fmt: skip
        entropy: float = number(
            "of the sizes of the clusters that the silo has in the mixture, 1 for equal ones",
            "How uneven its clusters are.",
        )

    def ask(self, server: MixtureServer, settings: Settings) -> Any:
        """The mixture as it stands."""
        return CONCLUDE.ask(server, settings)

    def reply(self, client: Any, ask: Any, settings: Settings, round_no: int) -> tuple[Counted, Answer]:
        """Cluster some rows in both ways."""
        client = reached(client, Counted)
        judged, _ = CONCLUDE.reply(replace(client, on_trial=True), ask, settings, round_no)
        many = client.axes is not None
        rows = _looked_at(client, settings, MANY_ROWS if many else SHAPE_ROWS)
        if len(rows) <= client.k:  # hardly any is complete
            return client, self.Answer(shapes=False, gain=0.0, entropy=1.0)
        X = client.X[rows]
        mixed = judged.model.assign(X)
        sizes = np.bincount(mixed) / len(mixed)
        sizes = sizes[sizes > 0]  # a silo may lack clusters
        entropy = float(-(sizes * np.log(sizes)).sum() / np.log(len(sizes))) if len(sizes) > 1 else float(client.k == 1)
        shapes, gain = False, 0.0
        try:
            # with plain k-means at the end, and with the units of the run, `MIN_GAIN` was chosen
            silo = Silo(client.client_id, client.k, replace(settings, view="graph", final="kmeans"))
            alone = refit(silo, None, X, units=client.units)
        except DataError:  # rows that are all equal: they speak for neither view
            pass
        else:
            assert alone.client.rows is not None
            graphed, points = alone.labels, alone.client.rows.X
            shapes = not many and shows_shapes(points, graphed, mixed)
            gain = closed_share(points, mixed, NEIGHBORS) - closed_share(points, graphed, NEIGHBORS) if many else 0.0
        return client, self.Answer(shapes=bool(shapes), gain=float(gain), entropy=entropy)

    def impossible(self, server: ServerState, client_id: str, answer: Answer, settings: Settings) -> str | None:
        """Shares beyond 1."""
        if abs(answer.gain) <= 4 and -1e-6 <= answer.entropy <= 1 + 1e-6:
            return None
        return f"has gain {answer.gain:g} and entropy {answer.entropy:g}, which are no shares"

    def reduce(self, server: ServerState, answers: Answers, settings: Settings) -> ServerState:
        """Decide."""
        said = [answers[cid] for cid in sorted(answers)]
        view, why = choice.by_answers(server, said, how_many(answers), settings)
        return replace(server, view=view, why=why)


def _looked_at(client: Counted, settings: Settings, limit: int) -> Array:
    """Numbers of the rows that are compared, at most `limit`; where columns are few, complete rows only.

    The graph view fills missing cells with the mean, which makes parts of such rows that are no shapes.
    """
    rows = np.arange(client.X.shape[0])
    if client.axes is None:
        rows = np.flatnonzero(~np.isnan(client.X).any(axis=1))
    return rows[some_rows(len(rows), limit, settings.seed, client.client_id, "probe")]


PROBE = Probe()


# ----------------------------------------------------------------------------------------------------------------- view


class AutoView(GraphView):
    """A plan of two views: which of their phases come, what the server knows so far decides (`choice`).

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


METHOD = AutoView(MIXTURE, GRAPH, PROBE)
