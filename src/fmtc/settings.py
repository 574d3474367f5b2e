"""Settings of a run: everything that decides it besides the data. Estimator, command line and clients share these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from .kernels.couplings import COUPLINGS

LABEL_SOURCES = ("projection", "embedding")
VIEWS = ("graph", "mixture", "auto")
SCALES = ("auto", "none", "silo", "global", "tfidf")
POOLED_SCALES = ("auto", "global", "tfidf")  # the clients agree on these before the first round
FINALS = ("mixture", "kmeans")
PRIVACIES = ("sums",)
PRIVATE_METHODS = ("auto", "anchors", "mixture")
EM_ROUNDS = 4  # rounds of the mixture for each of `max_iter`: they are smaller
EM_TOL = 1e-3  # relative change of the log-likelihood of a row that ends the mixture, for each unit of `tol`
DEFAULT_BETA = 0.15
LARGEST_SPREAD = 1e12  # 1/kappa for kappa=0
LARGEST_NUMBER = sys.float_info.max
MIN_MOVE = 3e-4  # an embedding that moves by a smaller share of its norm takes no further step in the same round


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Settings of the mixture view. The defaults suit most data; `FMTC` takes one as its parameter `mixture`.

    Parameters
    ----------
    kappa : float, default=None
        Pooling strength: how many rows of its own a silo needs before they outweigh what the others know of a cluster.
        0 leaves each silo's means alone, infinity gives all silos the same, but for a shift of the silo as a whole in
        the mixture view. None estimates it for each cluster.
    n_init : int, default=10
        Restarts of k-means in each silo; the mixture view begins from twice as many starts.
    max_features : int, default=2000
        For ``scale="tfidf"``: number of columns to keep, those in most rows, out of all that occur in at least 2 and at
        most half of the rows.
    contain : bool, default=True
        Limit what one broken or hostile silo can do to the others, from three silos on. The server caps projections
        and sums that are far larger than those of the others, gives a silo that has nothing in common with the rest
        next to no weight, and refuses messages that no rows can give. A run in the paper's units is not contained.
    own : bool, default=True
        Whether silos may have clusters of their own. The mixture also begins from what k-means finds in each silo, and
        keeps that where it explains all rows better. At the end each silo of a mixture, and each silo of many texts,
        compares the common model with clusters of its own on rows left out, and keeps its own where they predict these
        better. Nothing leaves for it. In the graph view of other rows a silo compares where the server had to cap,
        weigh down or refuse a silo, or sees sums only.

    Examples
    --------
    >>> from fmtc import FMTC, Mixture
    >>> model = FMTC(n_clusters=4, mixture=Mixture(kappa=10))
    >>> model.set_params(mixture__kappa=3).mixture.kappa
    3
    """

    kappa: float | None = None
    n_init: int = 10
    max_features: int = 2000
    contain: bool = True
    own: bool = True

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn's estimators give them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as scikit-learn's estimators do."""
        known = [f.name for f in fields(self)]
        if unknown := sorted(set(params) - set(known)):
            raise ValueError(f"{type(self).__name__} has no parameter {', '.join(unknown)}; it has {', '.join(known)}")
        for name, value in params.items():
            object.__setattr__(self, name, value)
        return self

    def check(self) -> None:
        """Raise an error for a value that no run can use."""
        for name in ("n_init", "max_features"):
            check_count(name, getattr(self, name))
        for name in ("contain", "own"):
            check_flag(name, getattr(self, name))
        if self.kappa is not None and self.kappa != float("inf"):
            check_number("kappa", self.kappa, Real, "None or a number of at least 0", lambda v: v >= 0)

    @property
    def spread(self) -> float | None:
        """1/kappa, how far the means of silos may lie from a cluster's common mean; None: to be estimated."""
        if self.kappa is None:
            return None
        kappa = float(self.kappa)
        return 0.0 if kappa >= LARGEST_NUMBER else 1 / max(kappa, 1 / LARGEST_SPREAD)


@dataclass(frozen=True, kw_only=True)
class Graph(Mixture):
    """Settings of the graph view. The defaults suit most data; `FMTC` takes one as its parameter `graph`.

    The last five, from `kappa` on, are those of `Mixture`: the graph view ends with a mixture of projections. With
    ``view="auto"``, give each of them once, to either.

    Parameters
    ----------
    alpha : float, default=1.0
        How firmly the embedding is held to a linear function of the columns.
    beta : float, default=0.15
        Strength of the coupling, as a fraction of the largest singular value of the first stack of projections. 0
        disables coupling, 1 would shrink the first consensus to nothing. Clusters among the projections are still found
        together, unless `final` is "kmeans".
    coupling : {"auto", "tensor", "subspace", "average"}, default="auto"
        What is made low-rank. The d x k x m tensor of projections (the paper), or the matrix of all projections side by
        side, which depends neither on the order of silos nor on rotations. "average" draws all silos to one common
        projection, whatever `beta`. "auto" is "tensor" for dense rows. For texts, which are sparse rows or
        ``scale="tfidf"``, it is "average", and clusters have the same centres everywhere, unless `kappa` is given or
        `beta` is 0: silos have few rows for so many words. With ``view="graph"`` and ``scale="none"`` or "silo", text
        detection is skipped and "tensor" is used.
    n_neighbors : int or "auto", default="auto"
        Neighbours in the graph of each silo; "auto" is sqrt(n)/2, at least 10 and at most 30.
    ridge : float, default=0.03
        Weight of the consensus in a silo's regression, ``rho/(2 omega alpha)``, for data of mean squared row norm 1.
    rho : float, default=None
        A number selects the paper's absolute units: `alpha`, `beta` and `rho` as printed, no scaling of the data,
        `ridge` unused. See `FMTC.as_published`.
    schatten_p : float in (0, 1], default=1.0
        Exponent of the Schatten norm. Below 1, small singular values shrink more and large ones less.
    align : bool, default=True
        Rotate the silos' embeddings to a common frame in every round. False is the paper's method.
    bandwidth : float, default=None
        Width of the Gaussian edge weights, in the units of X. None takes the mean distance to the neighbours.
    nonmutual_weight : float in (0, 1], default=0.25
        Factor on the weight of an edge between two rows when only one of them counts the other among its neighbours.
        1 is the paper's graph. A smaller factor keeps hubs (rows that are near to many others) from linking everything.
    step_size : float, default=None
        The paper's eta. None takes 1/(2 + alpha), with which the objective cannot rise; with `accelerate`, 1/(l +
        alpha), where l bounds the spectrum of the silo's own graph.
    n_inner : int, default=3
        Steps on the embedding for each new projection.
    accelerate : bool, default=True
        Needs about half the rounds: over-relaxed consensus step, longer steps on the embedding where the graph allows
        them, and from the third round on two passes over projection and embedding per round. False is the paper's loop.
    center_features : bool or "auto", default="auto"
        Subtract each silo's own column means. "auto" does so for dense data only.
    lift : bool or "auto", default="auto"
        Replace columns by 256 random Fourier features, the same at all silos, in which a linear projection can follow
        any shape. "auto" does so for at most 10 columns, or two for each cluster, of numbers in common units (`scale`).
        Lifted columns have a `ridge` of their own, 0.001.
    labels_from : {"projection", "embedding"}, default="projection"
        Cluster the rows of XW, so that `predict` on the training rows gives `labels_`; or those of F (the paper).
    final : {"mixture", "kmeans"}, default="mixture"
        How clusters are formed of the projections: a mixture with personal means and a common shape, which silos fit
        together from sums; or k-means in each silo (the paper). Without `align`, or with labels from F, it is k-means.
    message_dtype : {"float32"}, default=None
        Precision of the matrices that silos and server send each other. None sends them as they are. "float32" halves
        the bytes of double precision; both sides still compute in full precision.
    kappa, n_init, max_features, contain, own
        As in `Mixture`.

    Examples
    --------
    >>> from fmtc import FMTC, Graph
    >>> model = FMTC(n_clusters=4, view="graph", graph=Graph(ridge=0.1))
    >>> model.set_params(graph__schatten_p=0.5).graph.schatten_p
    0.5
    """

    alpha: float = 1.0
    beta: float = DEFAULT_BETA
    coupling: str = "auto"
    n_neighbors: int | str = "auto"
    ridge: float = 0.03
    rho: float | None = None
    schatten_p: float = 1.0
    align: bool = True
    bandwidth: float | None = None
    nonmutual_weight: float = 0.25
    step_size: float | None = None
    n_inner: int = 3
    accelerate: bool = True
    center_features: bool | str = "auto"
    lift: bool | str = "auto"
    labels_from: str = "projection"
    final: str = "mixture"
    message_dtype: str | None = None

    def check(self) -> None:
        """Raise an error for a value that no run can use."""
        super().check()
        check_count("n_inner", self.n_inner)
        if not (isinstance(self.n_neighbors, str) and self.n_neighbors == "auto"):
            check_count("n_neighbors", self.n_neighbors, '"auto" or a whole number of at least 1')
        for name in ("alpha", "ridge"):
            check_number(name, getattr(self, name), Real, "a finite number above 0", lambda v: v > 0)
        check_number("beta", self.beta, Real, "a finite number of at least 0", lambda v: v >= 0)
        for name in ("rho", "bandwidth", "step_size"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Real, "None or a finite number above 0", lambda v: v > 0)
        check_number("schatten_p", self.schatten_p, Real, "a number with 0 < p <= 1", lambda v: 0 < v <= 1)
        wanted = "a number above 0 and at most 1"
        check_number("nonmutual_weight", self.nonmutual_weight, Real, wanted, lambda v: 0 < v <= 1)
        for name in ("align", "accelerate"):
            check_flag(name, getattr(self, name))
        for name in ("center_features", "lift"):
            check_flag(name, getattr(self, name), or_auto=True)
        if self.message_dtype not in (None, "float32"):
            raise ValueError(f'message_dtype must be None or "float32", got {self.message_dtype!r}')
        check_choice("coupling", self.coupling, ("auto", *COUPLINGS))
        check_choice("labels_from", self.labels_from, LABEL_SOURCES)
        check_choice("final", self.final, FINALS)

    @property
    def contains(self) -> bool:
        """Whether the server limits what one client can do; in the paper's units it does not."""
        return bool(self.contain) and self.rho is None

    @property
    def mixes(self) -> bool:
        """Whether the graph view ends with a mixture: only projections in a common frame can share one."""
        return self.final == "mixture" and bool(self.align) and self.labels_from == "projection"


@dataclass(frozen=True)
class Privacy:
    """Differential privacy for every record: what `FMTC` takes as ``privacy``, and what it promises.

    Everything that leaves the clients in a run is (epsilon, delta)-differentially private for one record added or
    removed anywhere, against the server and the other clients. docs/privacy.md says what that means and what it costs.

    Parameters
    ----------
    epsilon : float
        How much one record may change the odds of anything that is seen: at most by a factor of exp(epsilon). Infinity
        adds no noise and promises nothing.
    delta : float, default=1e-5
        Chance that this bound fails. No client takes part with a delta above 1/(its rows).
    bounds : pair
        Lowest and highest value of every column of numbers: two numbers for all columns, or two sequences with one
        number for each. They must be public knowledge, such as 0 and 100 for a percentage: never read them from the
        data. Values beyond are clipped.
    colluding : int, default=1
        Clients that may work together against the others without weakening the promise.
    method : {"auto", "anchors", "mixture"}, default="auto"
        What is made of the noisy sums: clusters of anchors, or a mixture with one shape for all clusters. "auto" takes
        what has done better for such columns; see docs/privacy.md.
    rows : int, optional
        Rows of all clients together, as their operators announce it. A run with too few for its epsilon is refused.
    accept_weak : bool, default=False
        Run with half to all of the rows that it needs, where a client alone may do better.

    Examples
    --------
    >>> from fmtc import Privacy
    >>> Privacy(epsilon=4, bounds=(0, 16)).delta
    1e-05
    >>> Privacy(epsilon=-1, bounds=(0, 16))
    Traceback (most recent call last):
    ...
    ValueError: epsilon must be a number above 0, got -1
    """

    epsilon: float
    delta: float = 1e-5
    bounds: Any = None
    colluding: int = 1
    method: str = "auto"
    rows: int | None = None
    accept_weak: bool = False

    def __post_init__(self) -> None:
        if self.epsilon == float("inf"):
            object.__setattr__(self, "epsilon", LARGEST_NUMBER)  # JSON has no infinity
        check_number("epsilon", self.epsilon, Real, "a number above 0", lambda v: v > 0)
        check_number("delta", self.delta, Real, "a number above 0 and below 1", lambda v: 0 < v < 1)
        check_number("colluding", self.colluding, Integral, "a whole number of at least 0", lambda v: v >= 0)
        check_choice("method", self.method, PRIVATE_METHODS)
        if self.rows is not None:
            check_count("rows", self.rows, "None or a whole number of at least 1")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(self, "bounds", _plain_bounds(self.bounds))

    @property
    def noisy(self) -> bool:
        """Whether noise is added at all."""
        return self.epsilon < LARGEST_NUMBER


def _plain_bounds(bounds: Any) -> Any:
    """Bounds as JSON can hold them: None, two numbers, or two tuples of numbers."""
    if bounds is None:
        return None
    wanted = "(low, high): two numbers, or two sequences with one number for each column of numbers"
    try:
        sides = [np.asarray(side, dtype=np.float64) for side in bounds]
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be {wanted}, got {bounds!r}") from None
    if len(sides) != 2 or sides[0].shape != sides[1].shape or sides[0].ndim > 1:
        raise ValueError(f"bounds must be {wanted}, got {len(sides)} entries of shapes {[s.shape for s in sides]}")
    low, high = sides
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ValueError("bounds must be finite numbers, the lower one below the upper one in every column")
    return tuple(float(side) if side.ndim == 0 else tuple(side.tolist()) for side in sides)


@dataclass(frozen=True)
class Settings(Graph):
    """Everything that decides a run besides the data: the settings of both views and those of the run, side by side.

    ``rho=None`` works in normalised units: X'X/n with mean squared row norm 1, ``ridge = rho/(2 omega alpha)`` given
    and ``beta`` a fraction of the largest singular value of the first stack. A number for ``rho`` means the paper's
    absolute units. Checks its own values.

    Examples
    --------
    >>> from fmtc.settings import Settings
    >>> Settings(n_clusters=4, beta=0.4).align
    True
    >>> Settings(n_clusters=4, schatten_p=1.5)
    Traceback (most recent call last):
    ...
    ValueError: schatten_p must be a number with 0 < p <= 1, got 1.5
    """

    coupling: str = field(default="tensor", kw_only=True)
    n_clusters: int = 8  # of the federation, each with one number everywhere
    view: str = "graph"
    scale: str = "none"
    clusters_per_silo: Any = None  # an int for all, or by client; None: all clients have all clusters
    levels: tuple[int, ...] = ()  # of each column that is a category; 0 for numbers; (): all columns are numbers
    max_iter: int = 25
    tol: float = 1e-3
    privacy: Any = None  # None: the server sees each client's answers; "sums": only their sums
    calibrate: bool = False  # each client, after its last message, learns what scores of new rows are worth
    seed: int = 0

    def __post_init__(self) -> None:
        self.check()
        for name in ("n_clusters", "max_iter"):
            check_count(name, getattr(self, name))
        check_number("tol", self.tol, Real, "a finite number of at least 0", lambda v: v >= 0)
        check_choice("view", self.view, VIEWS)
        object.__setattr__(self, "kappa", finite(self.kappa))
        object.__setattr__(self, "levels", tuple(int(size) for size in self.levels))
        if any(size < 0 for size in self.levels):
            raise ValueError(f"levels must hold whole numbers of at least 0, got {self.levels}")
        if any(self.levels) and self.scale == "tfidf":
            raise ValueError('scale="tfidf" takes counts of words, not categories')
        check_choice("scale", self.scale, SCALES)
        self._check_privacy()
        self._check_clusters_per_silo()
        if self.scale == "tfidf" and self.center_features is True:
            raise ValueError(
                'center_features must be False or "auto" with scale="tfidf": rows of unit length are not centred'
            )

    def coupling_of(self, words: bool) -> str:
        """The coupling of the graph view; where it is open, silos share one projection of words, unless beta is 0."""
        if self.coupling != "auto":
            return self.coupling
        return "average" if words and self.beta > 0 else "tensor"

    def spread_of(self, words: bool) -> float | None:
        """1/kappa among projections; where the coupling is open, silos share the means of clusters of words."""
        given, open_to = self.spread, self.coupling == "auto"
        return 0.0 if given is None and open_to and self.coupling_of(words) == "average" else given

    def _check_privacy(self) -> None:
        if isinstance(self.privacy, Mapping):
            object.__setattr__(self, "privacy", Privacy(**self.privacy))  # as JSON has it
        if self.privacy is None:
            return
        if isinstance(self.privacy, Privacy):
            if self.scale not in ("auto", "none"):
                raise ValueError(f'private runs scale columns by their bounds: use scale="auto", not {self.scale!r}')
            return
        if not isinstance(self.privacy, str):
            raise TypeError(f'privacy must be None, "sums" or a fmtc.Privacy, got {self.privacy!r}')
        check_choice("privacy", self.privacy, PRIVACIES)
        if self.view == "mixture":
            return
        if self.coupling != "subspace":
            raise ValueError(
                f'privacy="sums" takes coupling="subspace" or view="mixture"; coupling={self.coupling!r} needs more of '
                "each silo than a sum"
            )
        if self.rho is not None or not self.align:
            raise ValueError('privacy="sums" requires rho=None and align=True')

    def _check_clusters_per_silo(self) -> None:
        own = self.clusters_per_silo
        if own is None:
            return
        numbers = dict(own) if isinstance(own, Mapping) else {"": own}
        for cid, k in numbers.items():
            check_count(f"clusters_per_silo of silo {cid!r}" if cid else "clusters_per_silo", k)
        largest = max(numbers.values(), default=0)
        if largest > self.n_clusters:
            raise ValueError(
                f"n_clusters must be at least the {largest} clusters of a silo, got {self.n_clusters}: it counts the "
                "clusters of all silos together"
            )
        plain = {str(cid): int(k) for cid, k in numbers.items()}
        object.__setattr__(self, "clusters_per_silo", plain if isinstance(own, Mapping) else int(own))
        if self.view == "mixture":
            return
        if self.privacy is not None:
            raise ValueError(
                'privacy needs view="mixture" with clusters_per_silo: other views match clusters one by one, and sums '
                "do not show them"
            )
        if self.rho is not None or not self.align or self.labels_from != "projection":
            raise ValueError(
                'clusters_per_silo needs align=True, labels_from="projection" and rho=None: without a common frame, '
                "clusters of different silos cannot be matched"
            )

    @property
    def has_categories(self) -> bool:
        """Whether any column is a category."""
        return any(self.levels)

    def clusters_of(self, client_id: str) -> int:
        """The number of clusters of a client: that of all concepts, unless it has one of its own."""
        own = self.clusters_per_silo
        return int(own.get(client_id, self.n_clusters) if isinstance(own, Mapping) else own or self.n_clusters)

    def with_clusters(self, client_id: str, k: int) -> Self:
        """The same settings as a client has them that knows its own number of clusters."""
        own = self.clusters_per_silo
        others = dict(own) if isinstance(own, Mapping) else {}
        return replace(self, clusters_per_silo=others | {client_id: k})

    @property
    def min_move(self) -> float:
        """The move of an embedding, as a share of its norm, below which a round takes no further step; 0: no limit.

        Never above `tol`, unless that is 0, which asks for all rounds and not for more exact ones.
        """
        return min(MIN_MOVE, self.tol or MIN_MOVE) if self.accelerate else 0.0


SHARED = tuple(f.name for f in fields(Mixture))  # settings that both views read
OF_VIEWS = tuple(f.name for f in fields(Graph))


def by_view(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of `FMTC` from one flat set of names: settings of the views go into ``graph`` and ``mixture``.

    Settings that both views read go into ``graph`` where that is the view, and into ``mixture`` otherwise.

    Examples
    --------
    >>> from fmtc.settings import by_view
    >>> by_view({"view": "mixture", "kappa": 10})["mixture"].kappa
    10
    """
    found = {name: value for name, value in values.items() if name not in OF_VIEWS}
    mixture = {} if values.get("view") == "graph" else {name: values[name] for name in SHARED if name in values}
    graph = {name: value for name, value in values.items() if name in OF_VIEWS and name not in mixture}
    if graph:
        found["graph"] = replace(found.get("graph") or Graph(), **graph)
    if mixture:
        found["mixture"] = replace(found.get("mixture") or Mixture(), **mixture)
    return found


def flat(view: str, graph: Graph | None, mixture: Mixture | None) -> dict[str, Any]:
    """Settings of both views side by side; those that both read are of the view that is fitted.

    Examples
    --------
    >>> from fmtc import Graph, Mixture
    >>> from fmtc.settings import flat
    >>> flat("auto", Graph(alpha=2), Mixture(kappa=10))["kappa"]
    10
    """
    for name, given, kind in (("graph", graph, Graph), ("mixture", mixture, Mixture)):
        if given is not None and type(given) is not kind:
            raise TypeError(f"{name} must be None or a fmtc.{kind.__name__}, got {given!r}")
    values, others = (graph or Graph()).get_params(), (mixture or Mixture()).get_params()
    if view == "mixture":
        return values | others
    if view != "auto":
        return values
    for name, default in Mixture().get_params().items():
        if values[name] == default:
            values[name] = others[name]
        elif others[name] not in (default, values[name]):
            raise ValueError(
                f'view="auto" takes one {name}, got Graph({name}={values[name]!r}) and Mixture({name}={others[name]!r})'
            )
    return values


def finite(value: float | None) -> float | None:
    """The same, but for infinity the largest number: JSON has no infinity."""
    return LARGEST_NUMBER if value == float("inf") else value


def check_number(name: str, value: Any, kind: Any, wanted: str, holds: Callable[[Any], bool]) -> None:
    """Raise an error unless a value is a finite number of a kind for which `holds` is true."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted}, got {value!r} of type {type(value).__name__}")
    if not (np.isfinite(value) and holds(value)):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_count(name: str, value: Any, wanted: str = "a whole number of at least 1") -> None:
    """Raise an error unless a value is a whole number of at least 1."""
    check_number(name, value, Integral, wanted, lambda v: v >= 1)


def check_flag(name: str, value: Any, *, or_auto: bool = False) -> None:
    """Raise an error unless a value is True or False or, where that is allowed, "auto"."""
    if not (isinstance(value, bool | np.bool_) or (or_auto and isinstance(value, str) and value == "auto")):
        wanted = 'True, False or "auto"' if or_auto else "True or False"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raise an error unless a value is one of the allowed words."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


__all__ = ["Graph", "Mixture", "Privacy", "Settings"]
