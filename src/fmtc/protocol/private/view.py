"""FMTC with `Privacy`: noisy sums over records, clusters made of them, and a choice at home.

mean      rows in the unit ball of public bounds, summed
radius    how far rows lie from the mean
gram      their second moments, from which the coordinates come
anchors1  three steps of k-means with several anchors for each cluster
anchors2
anchors3
links     how many rows lie between two anchors                     the server then clusters the anchors
mixture1  in place of the last three: steps of a mixture with one shape for all clusters
...
home      the public model to everybody; each client follows its own neighbours, or stays alone. Nothing leaves

Each answer is a sum over records of vectors of bounded length (`stages`), noise is added before it is masked,
and only the noisy total is seen. Every phase is answered once in a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf, sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...errors import DataError, RefusedError, TrustError
from ...kernels.graph import knn_affinity, normalized_laplacian
from ...kernels.records import Box, Public, coordinates, nearest
from ...kernels.scaling import expanded_width
from ...models import AnchorModel, GraphModel
from ...privacy.accounting import Plan, epsilon_of, honest, mu_of, raised, without_colluders
from ...privacy.protection import Protection
from ...refit import Refitted, Silo, numbered, refit
from ...settings import Settings
from ..base import Answers, Array, Content, Nothing, Phase, Weights, above, array, number
from ..graph.view import known
from ..method import Method
from ..state import Cards, ClientState, Kept, RoundReport, become, refuse_weights
from ..sums.cards import CARDS, ROSTER
from ..sums.masking import Masking
from ..sums.view import refuse_few
from . import home, released
from .stages import MIXTURE_STAGES, STAGES, Stage

LARGEST_RELEASE = 2**20  # numbers of one stage; what rounding adds to a sensitivity is counted for so many
NO_BOX = Box(np.empty(0), np.empty(0))  # the server needs no bounds
MIXTURE_CLUSTERS = 7  # up to so many clusters "auto" takes the mixture, beyond the anchors; see docs/privacy.md


@dataclass(frozen=True)
class PrivateServer:
    """The server between messages: the public state, and what it was made of."""

    client_ids: tuple[str, ...]
    round_no: int = 0
    cards: Cards | None = None
    why: str = ""
    kind: str = "anchors"  # or "mixture"
    planned: bool = True  # whether a run of too few rows for its epsilon ends; an audit needs no useful clusters
    n_samples: float = 0.0  # with noise
    public: Public = field(default_factory=lambda: Public(NO_BOX))
    variances: Any = None  # r, of coordinates; from `gram` on
    cells: released.Cells | None = None  # the last step of k-means
    clusters: Array | None = None  # K, of the public centers, at the end


def mu_of_run(settings: Settings) -> float:
    """μ of everything that leaves in a run; infinity without noise."""
    privacy = settings.privacy
    return mu_of(privacy.epsilon, privacy.delta) if privacy.noisy else inf


def method_kind(settings: Settings) -> str:
    """Anchors or mixture: as the settings say, else by the number of clusters, which is public."""
    if settings.privacy.method != "auto":
        return str(settings.privacy.method)
    return "mixture" if settings.n_clusters <= MIXTURE_CLUSTERS else "anchors"


# ----------------------------------------------------------------------------------------------------------- stages


class State(Content):
    """What the server has made of the totals before: nothing but these, so that it tells no more than they do."""

    mean: Array | None = array("d", "mean of the rows in the unit ball", "As the total before it.", when="after `mean`")
    radius: float | None = number(
        "median length of rows about the mean", "As the total.", when="after `radius`", check=above(0)
    )
    basis: Array | None = array("d r", "from rows to coordinates", "As the total of `gram`.", when="after `gram`")
    size: float | None = number(
        "length of coordinates that becomes 1", "As the total of `gram`.", when="after `gram`", check=above(0)
    )
    centers: Array | None = array("a r", "anchors, or means of a mixture", "As the totals.", when="after `gram`")
    precision: Array | None = array("r r", "common shape of a mixture", "As the totals.", when="of a mixture")
    shares: Array | None = array("a", "shares of a mixture", "As the totals.", when="of a mixture")


SHOWN = tuple(f.name for f in fields(State))


class StagePhase(Phase):
    """One noisy sum over records."""

    protect = Protection("Noise for the sensitivity of the sum, and a mask.")
    sums = True
    pure = True
    limbs = 1
    fraction = 24
    Ask = State

    class Answer(Content):
        """The sum over one client's records."""

        total: Array = array(
            "t", "a sum over records of vectors of bounded length; see `fmtc.protocol.private.stages`",
            "With noise and masks, together with all else that leaves in the run: what (epsilon, delta) differential "
            "privacy allows.", kind="float64",
        )  # fmt: skip

    def __init__(self, stage: Stage, kinds: tuple[str, ...], read: Callable[..., PrivateServer]):
        self.stage, self.kinds, self.read = stage, kinds, read
        self.name = stage.name  # type: ignore[misc]
        self.doing = f"adding up its records for {stage.name!r}"  # type: ignore[misc]

    def times(self, server: PrivateServer, settings: Settings) -> int:
        """Once, in the methods that have it."""
        return int(server.kind in self.kinds)

    def limit(self, settings: Settings) -> int:
        """Once: another question would be another release, and nobody has paid for that."""
        return 1

    def noise(self, ask: State, settings: Settings) -> dict[str, float]:
        """Gaussian noise for the sensitivity, with what rounding to the grid may add."""
        mu = mu_of_run(settings)
        if mu == inf:
            return {}
        return {"total": raised(self.stage.sensitivity, LARGEST_RELEASE) / (mu * sqrt(self.stage.share))}

    def charge(self, settings: Settings) -> float:
        """The stage's share of the squared μ; without noise there is no promise that could be used up."""
        mu = mu_of_run(settings)
        return 0.0 if mu == inf else mu * mu * self.stage.share

    def ask(self, server: PrivateServer, settings: Settings) -> State:
        """What the stage needs of the public state."""
        return self.Ask(**{name: getattr(server.public, name) for name in self.stage.needs})

    def reply(self, client: ClientState, ask: State, settings: Settings, round_no: int) -> tuple[Any, Any]:
        """Add up the records; stages of the other kind are not part of what the run may cost."""
        if method_kind(settings) not in self.kinds:
            raise RefusedError(f"{self.name}: this run is one of {method_kind(settings)}, which has no such stage")
        public = public_of(ask, box_of(client, settings))
        public.check(*self.stage.needs)
        numbers = self.stage.numbers(public)
        if numbers > LARGEST_RELEASE:
            raise DataError(
                f"{public.box.width} columns would release {numbers} numbers at once, more than {LARGEST_RELEASE}. "
                "Bring the columns to at most 1,400, for example by a public random projection."
            )
        return client, self.Answer(total=self.stage.total(client.X, public))

    def reduce(self, server: PrivateServer, answers: Answers, settings: Settings) -> Any:
        """Add up, and make the public state of the total."""
        total = sum(answer.total for answer in answers.values())
        sd = self.noise(self.Ask(), settings).get("total", 0.0)
        server = self.read(server, np.asarray(total), sd, settings, self)
        if self not in LOOPS:
            return server
        return server, RoundReport(objective=float("nan"), primal_residual=0.0, dual_residual=0.0)


def public_of(ask: State, box: Box) -> Public:
    """The public state that a question carries."""
    return Public(box, **{name: value for name in SHOWN if (value := getattr(ask, name)) is not None})


def box_of(client: ClientState, settings: Settings) -> Box:
    """The public bounds."""
    return Box.of(settings.privacy.bounds, client.X.shape[1], settings.levels)


def gate(settings: Settings, n_rows: float, n_columns: int) -> None:
    """Raise `TrustError` where rows are too few for the promise; warn where that was accepted."""
    privacy = settings.privacy
    weak = Plan(n_rows, n_columns, settings.n_clusters, privacy.epsilon, privacy.delta).gate(privacy.accept_weak)
    if weak:
        warnings.warn(weak, UserWarning, stacklevel=2)


def _read_mean(server: PrivateServer, total: Array, sd: float, settings: Settings, phase: Any) -> PrivateServer:
    public, n = released.read_mean(server.public, total)
    if sd and server.planned:  # the number of rows has noise as well: to look at it costs nothing
        gate(settings, n, len(total) - 1)
    return replace(server, public=public, n_samples=n)


def _read_radius(server: PrivateServer, total: Array, sd: float, settings: Settings, phase: Any) -> PrivateServer:
    return replace(server, public=released.read_radius(server.public, total))


def _read_gram(server: PrivateServer, total: Array, sd: float, settings: Settings, phase: Any) -> PrivateServer:
    k = settings.n_clusters
    public, variances = released.read_gram(server.public, total, server.n_samples, sd, k)
    K = released.number_of_anchors(server.n_samples, LINKS.noise(State(), settings).get("total", 0.0), k)
    if server.kind == "mixture":
        K = min(K, released.MIXTURE_STARTS * k)
    centers = released.first_anchors(variances, public.size, K, settings.seed)
    return replace(server, public=replace(public, centers=centers), variances=variances)


def _read_anchors(server: PrivateServer, total: Array, sd: float, settings: Settings, phase: Any) -> PrivateServer:
    cells = released.read_cells(total, server.public.centers, sd)
    if server.kind == "mixture":
        n, k = server.n_samples, settings.n_clusters
        return replace(
            server, public=released.first_mixture(server.public, cells, _second(server), n, k, settings.seed)
        )
    centers = cells.centers if phase is ANCHORS[-1] else released.revived(cells, settings.seed)
    return replace(server, public=replace(server.public, centers=centers), cells=cells)


def _read_links(server: PrivateServer, total: Array, sd: float, settings: Settings, phase: Any) -> PrivateServer:
    cells, k = server.cells, settings.n_clusters
    assert cells is not None
    clusters = released.clusters_of_anchors(cells, total, sd, server.n_samples, k, settings.seed)
    alive = cells.lives if cells.lives.any() else np.ones_like(cells.lives)
    return replace(
        server, clusters=clusters[alive], public=replace(server.public, centers=cells.centers[alive]),
        why=f"{int(alive.sum())} anchors of about {server.n_samples:.0f} rows, clustered by their links",
    )  # fmt: skip


def _read_mixture(server: PrivateServer, total: Array, sd: float, settings: Settings, phase: Any) -> PrivateServer:
    cells = released.read_cells(total, server.public.centers, sd)
    public = released.next_mixture(server.public, cells, _second(server), server.n_samples, sd)
    return replace(
        server, public=public, clusters=np.arange(len(public.centers)),
        why=f"a mixture with one shape for all clusters, of about {server.n_samples:.0f} rows",
    )  # fmt: skip


def _second(server: PrivateServer) -> Array:
    """Mean squares of the coordinates as the stages see them."""
    return server.variances / server.public.size**2


_BOTH = ("anchors", "mixture")
MEAN = StagePhase(STAGES[0], _BOTH, _read_mean)
RADIUS = StagePhase(STAGES[1], _BOTH, _read_radius)
GRAM = StagePhase(STAGES[2], _BOTH, _read_gram)
ANCHORS = tuple(StagePhase(stage, ("anchors",), _read_anchors) for stage in STAGES[3:6])
LINKS = StagePhase(STAGES[6], ("anchors",), _read_links)
BEGIN = StagePhase(replace(MIXTURE_STAGES[3], name="anchors0"), ("mixture",), _read_anchors)
MIXTURE = tuple(StagePhase(stage, ("mixture",), _read_mixture) for stage in MIXTURE_STAGES[4:])
LOOPS = (LINKS, MIXTURE[-1])


# ------------------------------------------------------------------------------------------------------------ at home


class Home(Phase):
    """The public model to everybody. Each client follows its own neighbours with it, or stays alone; nothing leaves."""

    name = "home"
    doing = "making its model of the public one"
    concludes = True
    threads = True

    class Ask(State):
        """The public model."""

        clusters: Array = array("a", "cluster of each anchor", "As the totals.", kind="int", check=above(-1))

    def ask(self, server: PrivateServer, settings: Settings) -> Ask:
        """The public model."""
        assert server.clusters is not None
        return self.Ask(**{name: getattr(server.public, name) for name in SHOWN}, clusters=server.clusters)

    def reply(self, client: ClientState, ask: Ask, settings: Settings, round_no: int) -> tuple[Any, Nothing]:
        """Personalise, and choose."""
        public = public_of(ask, box_of(client, settings))
        public.check(
            "mean", "radius", "basis", "size", "centers", *(["precision"] if ask.precision is not None else [])
        )
        if (ask.clusters >= client.k).any():
            raise RefusedError(f"{self.name}: there are {client.k} clusters")
        model = public_model(client, public, ask.clusters)
        if keeps(client, model, settings):
            model = personal(client, model, settings)
            return become(client, Kept, model=model, labels=model.assign(client.X), choice="public"), Nothing()
        own = alone(client.client_id, client.X, settings)
        own = numbered(own, model.assign(client.X), client.k)  # as far as it can, numbers mean the same
        return become(client, Kept, model=own.model, labels=own.labels, choice="alone"), Nothing()


def public_model(client: ClientState, public: Public, clusters: Array) -> AnchorModel:
    """The public model with the client's own width of an anchor, which only its probabilities need."""
    E = coordinates(client.X, public)
    box = public.box
    levels = np.array(box.levels, np.int64) if box.levels else None
    return AnchorModel(
        np.array(box.low), np.array(box.high), levels, public.mean, public.radius, public.basis, public.size,
        public.centers, np.asarray(clusters, np.int64), client.k, width_of(E, public.centers),
        public.precision, public.shares,
    )  # fmt: skip


def width_of(E: Array, anchors: Array) -> float:
    """Root mean square distance of rows to the nearest anchor."""
    gap = E - anchors[nearest(E, anchors, 1)[:, 0]]
    return max(sqrt(float((gap * gap).sum(axis=1).mean())), 1e-6)


def personal(client: ClientState, model: AnchorModel, settings: Settings) -> AnchorModel:
    """Own anchors in place of public ones, made of the client's rows; their labels follow its neighbour graph.

    A mixture takes the client's own shares.
    """
    if model.shares is not None:
        return replace(model, shares=home.own_shares(model.scores(client.X), model.shares))
    if len(client.X) <= client.k + 1:
        return model
    labels = model.assign(client.X)
    affinity = knn_affinity(model.scaled(client.X), settings.n_neighbors, nonmutual_weight=settings.nonmutual_weight)
    labels = home.spread(labels, client.k, normalized_laplacian(affinity))
    E = model.coordinates(client.X)
    anchors, clusters = home.own_anchors(E, labels, model.anchors, model.clusters, settings.seed)
    return replace(model, anchors=anchors, clusters=clusters, width=width_of(E, anchors))


def keeps(client: ClientState, model: AnchorModel, settings: Settings) -> bool:
    """Whether the public model does nearly as well as one alone on a fifth of the rows, which neither saw."""
    judge = home.held_back(len(client.X), settings.seed)
    if judge.sum() <= max(client.k, home.NEIGHBORS) or (~judge).sum() <= client.k + 1:
        return True
    try:
        own = alone(client.client_id, client.X[~judge], settings).model
    except DataError:  # rows that are all equal: the public model does no harm
        return True
    X = client.X
    return home.worth(model.scaled(X), judge, model.assign(X), own.assign(X)) >= home.KEEP


def alone(client_id: str, X: Array, settings: Settings) -> Refitted:
    """The graph view of one client that learns from nobody."""
    own = replace(settings, view="graph", beta=0.0, coupling="tensor", scale="auto", final="kmeans")
    return refit(Silo(client_id, own.n_clusters, own), None, X)


HOME = Home()


# --------------------------------------------------------------------------------------------------------- methods


class Anchors(Method):
    """Private anchors without masks and noise: a method to compare with."""

    name = "anchors"
    opening: tuple[Phase, ...] = (MEAN, RADIUS, GRAM, *ANCHORS, BEGIN, *MIXTURE[:-1])
    loop: Phase = LINKS
    loops: tuple[Phase, ...] = LOOPS  # the last sum of either kind: what is known after it is kept in a checkpoint
    closing: tuple[Phase, ...] = (HOME,)
    settings_type = Settings
    model_types: tuple[type, ...] = (AnchorModel, GraphModel)  # a client may stay alone
    changeable: tuple[str, ...] = ()

    def open_client(self, client_id: str, X: Any, settings: Settings, device: str) -> ClientState:
        """A client at rest, its rows checked."""
        privacy, n, k = settings.privacy, X.shape[0], settings.n_clusters
        if sp.issparse(X):
            raise DataError(
                f"silo {client_id!r} has sparse rows, which no bounds clip well: bring them to some hundred dense "
                "columns by a public random projection (20News in 100 such columns: 33 % right, chance 25 %)."
            )
        if privacy.bounds is None:
            raise TrustError(
                "a private run needs public bounds of the columns, such as Privacy(bounds=(0, 100)); it never reads "
                "them from the data."
            )
        if privacy.noisy and privacy.delta > 1 / max(n, 1):
            raise TrustError(
                f"silo {client_id!r} has {n} rows and delta={privacy.delta:g} is above 1/{n}, which lets a whole "
                f"record leak; use a delta below {1 / max(n, 1):.1g}."
            )
        if n <= k:
            raise DataError(f"silo {client_id!r} has {n} rows; n_clusters={k} needs at least {k + 1} in every silo.")
        client = ClientState(client_id, np.ascontiguousarray(X), settings.n_clusters)
        box_of(client, settings)  # refuses bounds that do not fit
        return client

    def open_server(self, client_ids: Sequence[str], settings: Settings, weights: Weights) -> PrivateServer:
        """The server before the first message; all records count alike."""
        refuse_weights(weights)
        return PrivateServer(tuple(sorted(client_ids)), kind=method_kind(settings))

    def sizes(self, client: ClientState, settings: Settings) -> dict[str, int]:
        """Columns as they came (D) and in the unit ball (d), clusters (k)."""
        return {"D": client.X.shape[1], "d": box_of(client, settings).width, "k": client.k}

    def stop_reason(self, history: Sequence[Any], settings: Settings) -> tuple[bool, str] | None:
        """After one round: every sum is released once."""
        return (True, "all noisy sums released" if settings.privacy.noisy else "all sums released") if history else None

    def common(self, server: PrivateServer) -> dict[str, Any]:
        """The public model."""
        public = server.public
        return known(mean=public.mean, basis=public.basis, centers=public.centers, clusters=server.clusters)


MASKED: dict[Phase, Masking] = {
    phase: Masking(phase) for phase in (MEAN, RADIUS, GRAM, *ANCHORS, BEGIN, *MIXTURE, LINKS)
}


class Private(Anchors):
    """Private anchors: noise, masks, and a plan before anything leaves."""

    name = "fmtc-private"
    opening = (CARDS, ROSTER, *(MASKED[phase] for phase in Anchors.opening))
    loop = MASKED[LINKS]
    loops = tuple(MASKED[phase] for phase in LOOPS)

    def open_server(self, client_ids: Sequence[str], settings: Settings, weights: Weights) -> PrivateServer:
        """The server before the first message; refuses too few clients, and a plan that cannot work."""
        refuse_few(client_ids)
        if not settings.privacy.noisy:
            raise TrustError('a private run needs a finite epsilon; without noise, use privacy="sums"')
        honest(len(client_ids), settings.privacy.colluding)  # refuses too few
        return super().open_server(client_ids, settings, weights)


def promise(settings: Settings, n_clients: int | None, n_features: int) -> dict[str, Any]:
    """What a private run promises and what it released, in what JSON knows.

    Parameters
    ----------
    settings : Settings
    n_clients : int, optional
        Of the run; left out, nothing is said of clients that work together.
    n_features : int
        Columns of the table.
    """
    privacy, mu = settings.privacy, mu_of_run(settings)
    kind = method_kind(settings)
    stages = [phase for phase in PLAIN.phases if isinstance(phase, StagePhase) and kind in phase.kinds]
    m = n_clients or 0
    colluding = {c: epsilon_of(without_colluders(mu, m, privacy.colluding, c), privacy.delta) for c in range(min(m, 4))}
    n_columns = expanded_width(settings.levels, n_features)
    return {
        "epsilon": privacy.epsilon, "delta": privacy.delta, "mu": mu, "unit": "record",
        "relation": "one record added or removed", "epsilon_replaced": epsilon_of(2 * mu, privacy.delta),
        "epsilon_if_colluding": colluding, "method": kind,
        "stages": [
            {
                "name": phase.name, "share": phase.stage.share, "sensitivity": phase.stage.sensitivity,
                "sigma": phase.noise(State(), settings).get("total", 0.0),
            }
            for phase in stages
        ],
        "need": Plan(1, n_columns, settings.n_clusters, privacy.epsilon, privacy.delta).need if privacy.noisy else 0,
    }  # fmt: skip


PLAIN, METHOD = Anchors(), Private()
