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
SCALES = ("auto", "none", "client", "global", "tfidf")
POOLED_SCALES = ("auto", "global", "tfidf")  # the clients agree on these before the first round
FINALS = ("mixture", "kmeans")
CALIBRATIONS = ("none", "folds")
PRIVACIES = ("sums",)
PRIVATE_METHODS = ("auto", "anchors", "mixture")
EM_ROUNDS = 4  # rounds of the mixture for each of `max_iter`: they are smaller
EM_TOL = 1e-3  # relative change of the log-likelihood of a row that ends the mixture, for each unit of `tol`
DEFAULT_BETA = 0.15
LARGEST_SPREAD = 1e12  # 1/kappa for kappa=0
LARGEST_NUMBER = sys.float_info.max
MIN_MOVE = 3e-4  # an embedding that moves by a smaller share of its norm takes no further step in the same round


@dataclass
class Solver:
    """Details of the solver. The defaults suit most data; `FMTC` takes one as its parameter `solver`.

    Parameters
    ----------
    n_neighbors : int or "auto", default="auto"
        Neighbours in the graph of each client; "auto" is sqrt(n)/2, at least 10 and at most 30.
    ridge : float, default=0.03
        Weight of the consensus in a client's regression, ``rho/(2 omega alpha)``, for data of mean squared row norm 1.
    rho : float, default=None
        A number selects the paper's absolute units: `alpha`, `beta` and `rho` as printed, no scaling of the data,
        `ridge` unused. See `FMTC.as_published`.
    schatten_p : float in (0, 1], default=1.0
        Exponent of the Schatten norm. Below 1, small singular values shrink more and large ones less.
    align : bool, default=True
        Rotate the clients' embeddings to a common frame in every round. False is the paper's method.
    bandwidth : float, default=None
        Width of the Gaussian edge weights, in the units of X. None takes the mean distance to the neighbours.
    nonmutual_weight : float in (0, 1], default=0.25
        Factor on the weight of an edge between two rows when only one of them counts the other among its neighbours.
        1 is the paper's graph. A smaller factor keeps hubs (rows that are near to many others) from linking everything.
    step_size : float, default=None
        The paper's eta. None takes 1/(2 + alpha), with which the objective cannot rise; with `accelerate`, 1/(l +
        alpha), where l bounds the spectrum of the client's own graph.
    n_inner : int, default=3
        Steps on the embedding for each new projection.
    accelerate : bool, default=True
        Needs about half the rounds: over-relaxed consensus step, longer steps on the embedding where the graph allows
        them, and from the third round on two passes over projection and embedding per round. False is the paper's loop.
    center_features : bool or "auto", default="auto"
        Subtract each client's own column means. "auto" does so for dense data only.
    lift : bool or "auto", default="auto"
        Graph view: replace columns by 256 random Fourier features, the same at all clients, in which a linear
        projection can follow any shape. "auto" does so for at most 10 columns, or two for each cluster, of numbers in
        common units (`scale`). Lifted columns have a `ridge` of their own, 0.001.
    max_features : int, default=2000
        For ``scale="tfidf"``: number of columns to keep, those in most rows, out of all that occur in at least 2 and at
        most half of the rows.
    labels_from : {"projection", "embedding"}, default="projection"
        Cluster the rows of XW, so that `predict` on the training rows gives `labels_`; or those of F (the paper).
    final : {"mixture", "kmeans"}, default="mixture"
        How the graph view forms clusters of the projections: a mixture with personal means and a common shape, which
        clients fit together from sums; or k-means in each client (the paper). Without `align`, or with labels from F,
        it is k-means.
    kappa : float, default=None
        Pooling strength of the mixture: how many rows of its own outweigh what the others know of a concept. 0 leaves
        each client's means alone, infinity gives all clients the same, but for a shift of the client as a whole in the
        mixture view. None estimates it for each concept.
    n_init : int, default=10
        Restarts of k-means in each client; the mixture view begins from twice as many starts.
    message_dtype : {"float32"}, default=None
        Precision of the matrices that clients and server send each other. None sends them as they are. "float32"
        halves the bytes of double precision; both sides still compute in full precision.
    contain : bool, default=True
        Limit what one broken or hostile client can do to the others, from three clients on. The server caps projections
        and sums that are far larger than those of the others, gives a client that has nothing in common with the rest
        next to no weight, and refuses messages that no rows can give. A run in the paper's units is not contained.
    exit : bool or "auto", default="auto"
        Whether each client compares the common model with one that it fits alone, and keeps its own where the common
        one cuts clearly more neighbours apart. "auto" compares where the server had to cap, weigh down or refuse
        somebody.
    calibration : {"none", "folds"}, default="none"
        Whether each client, after its last message, fits its model again to four fifths of its rows, five times, and
        keeps the scores of the others: what confidence, abstaining and the test for drift need. Nothing leaves. A model
        that was fitted in this process can be calibrated later, see `FMTC.calibrate`.

    Examples
    --------
    >>> from fmtc import FMTC, Solver
    >>> model = FMTC(n_clusters=4, solver=Solver(ridge=0.1))
    >>> model.set_params(solver__schatten_p=0.5).solver.schatten_p
    0.5
    """

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
    max_features: int = 2000
    labels_from: str = "projection"
    final: str = "mixture"
    kappa: float | None = None
    n_init: int = 10
    message_dtype: str | None = None
    contain: bool = True
    exit: bool | str = "auto"
    calibration: str = "none"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn's estimators give them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as scikit-learn's estimators do."""
        unknown = sorted(set(params) - {f.name for f in fields(self)})
        if unknown:
            known = ", ".join(f.name for f in fields(self))
            raise ValueError(f"Solver has no parameter {', '.join(unknown)}; it has {known}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def check(self) -> None:
        """Raise an error for a value that no run can use."""
        for name in ("n_inner", "n_init", "max_features"):
            check_number(name, getattr(self, name), Integral, "a whole number of at least 1", lambda v: v >= 1)
        if not (isinstance(self.n_neighbors, str) and self.n_neighbors == "auto"):
            wanted = '"auto" or a whole number of at least 1'
            check_number("n_neighbors", self.n_neighbors, Integral, wanted, lambda v: v >= 1)
        check_number("ridge", self.ridge, Real, "a finite number above 0", lambda v: v > 0)
        for name in ("rho", "bandwidth", "step_size"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Real, "None or a finite number above 0", lambda v: v > 0)
        check_number("schatten_p", self.schatten_p, Real, "a number with 0 < p <= 1", lambda v: 0 < v <= 1)
        wanted = "a number above 0 and at most 1"
        check_number("nonmutual_weight", self.nonmutual_weight, Real, wanted, lambda v: 0 < v <= 1)
        for name in ("align", "accelerate", "contain"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("center_features", "lift", "exit"):
            value = getattr(self, name)
            if not (isinstance(value, bool | np.bool_) or (isinstance(value, str) and value == "auto")):
                raise ValueError(f'{name} must be True, False or "auto", got {value!r}')
        if self.kappa is not None and self.kappa != float("inf"):
            check_number("kappa", self.kappa, Real, "None or a number of at least 0", lambda v: v >= 0)
        if self.message_dtype not in (None, "float32"):
            raise ValueError(f'message_dtype must be None or "float32", got {self.message_dtype!r}')
        check_choice("labels_from", self.labels_from, LABEL_SOURCES)
        check_choice("final", self.final, FINALS)
        check_choice("calibration", self.calibration, CALIBRATIONS)

    @property
    def spread(self) -> float | None:
        """1/kappa, how far the means of clients may lie from a concept's common mean; None: to be estimated."""
        if self.kappa is None:
            return None
        kappa = float(self.kappa)
        return 0.0 if kappa >= LARGEST_NUMBER else 1 / max(kappa, 1 / LARGEST_SPREAD)

    def portable(self) -> Self:
        """A copy that JSON can hold, which has no infinity: the largest number means the same."""
        return replace(self, kappa=LARGEST_NUMBER if self.kappa == float("inf") else self.kappa)

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
            check_number("rows", self.rows, Integral, "None or a whole number of at least 1", lambda v: v >= 1)
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
class Settings:
    """Everything that decides a run besides the data. Checks its own values.

    ``solver.rho=None`` works in normalised units: X'X/n with mean squared row norm 1, ``ridge = rho/(2 omega alpha)``
    given and ``beta`` a fraction of the largest singular value of the first stack. A number for ``rho`` means the
    paper's absolute units.

    Examples
    --------
    >>> from fmtc import Settings
    >>> Settings(n_clusters=4, beta=0.4).solver.align
    True
    >>> Settings.of(n_clusters=4, schatten_p=1.5)
    Traceback (most recent call last):
    ...
    ValueError: schatten_p must be a number with 0 < p <= 1, got 1.5
    """

    n_clusters: int = 8  # of the federation: concepts, each with one number everywhere
    view: str = "graph"
    alpha: float = 1.0
    beta: float = DEFAULT_BETA
    coupling: str = "tensor"
    scale: str = "none"
    own_clusters: Any = None  # of a client: an int for all, or by client; None: all clients have all concepts
    levels: tuple[int, ...] = ()  # of each column that is a category; 0 for numbers; (): all columns are numbers
    max_iter: int = 25
    tol: float = 1e-3
    solver: Solver = field(default_factory=Solver)
    privacy: Any = None  # None: the server sees each client's answers; "sums": only their sums
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.solver, Solver):
            raise TypeError(f"solver must be None or a fmtc.Solver, got {self.solver!r}")
        self.solver.check()
        object.__setattr__(self, "solver", self.solver.portable())  # ours: nobody else can change it
        for name in ("n_clusters", "max_iter"):
            check_number(name, getattr(self, name), Integral, "a whole number of at least 1", lambda v: v >= 1)
        check_number("alpha", self.alpha, Real, "a finite number above 0", lambda v: v > 0)
        for name in ("tol", "beta"):
            check_number(name, getattr(self, name), Real, "a finite number of at least 0", lambda v: v >= 0)
        check_choice("view", self.view, VIEWS)
        check_choice("coupling", self.coupling, ("auto", *COUPLINGS))
        object.__setattr__(self, "levels", tuple(int(size) for size in self.levels))
        if any(size < 0 for size in self.levels):
            raise ValueError(f"levels must hold whole numbers of at least 0, got {self.levels}")
        if any(self.levels) and self.scale == "tfidf":
            raise ValueError('scale="tfidf" takes counts of words, not categories')
        check_choice("scale", self.scale, SCALES)
        self._check_privacy()
        self._check_own_clusters()
        if self.scale == "tfidf" and self.solver.center_features is True:
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
        given, open_to = self.solver.spread, self.coupling == "auto"
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
                "each client than a sum"
            )
        if self.solver.rho is not None or not self.solver.align:
            raise ValueError('privacy="sums" takes no rho of your own, and needs align=True')

    def _check_own_clusters(self) -> None:
        own = self.own_clusters
        if own is None:
            return
        wanted = "a whole number of at least 1"
        numbers = dict(own) if isinstance(own, Mapping) else {"": own}
        for cid, k in numbers.items():
            check_number(
                f"n_clusters of client {cid!r}" if cid else "n_clusters", k, Integral, wanted, lambda v: v >= 1
            )
        largest = max(numbers.values(), default=0)
        if largest > self.n_clusters:
            raise ValueError(
                f"n_concepts must be at least the {largest} clusters of a client, got {self.n_clusters}: two clusters "
                "of a client are two concepts"
            )
        plain = {str(cid): int(k) for cid, k in numbers.items()}
        object.__setattr__(self, "own_clusters", plain if isinstance(own, Mapping) else int(own))
        if self.view == "mixture":
            return
        if self.privacy is not None:
            raise ValueError(
                'privacy needs view="mixture" where clients have numbers of clusters of their own: other views match '
                "their clusters one by one, and sums do not show them"
            )
        if self.solver.rho is not None or not self.solver.align or self.solver.labels_from != "projection":
            raise ValueError(
                'numbers of clusters of their own need align=True, labels_from="projection" and no rho: without a '
                "common frame, clusters of different clients cannot be matched"
            )

    @property
    def sums_only(self) -> bool:
        """Whether the server sees sums over clients, and nothing of a single one."""
        return self.privacy is not None

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Settings from one flat set of names, the solver's among them. An unknown name is an error."""
        return cls(**split_solver(values))

    @property
    def has_categories(self) -> bool:
        """Whether any column is a category."""
        return any(self.levels)

    def clusters_of(self, client_id: str) -> int:
        """The number of clusters of a client: that of all concepts, unless it has one of its own."""
        own = self.own_clusters
        return int(own.get(client_id, self.n_clusters) if isinstance(own, Mapping) else own or self.n_clusters)

    def with_clusters(self, client_id: str, k: int) -> Self:
        """The same settings as a client has them that knows its own number of clusters."""
        own = self.own_clusters
        others = dict(own) if isinstance(own, Mapping) else {}
        return replace(self, own_clusters=others | {client_id: k})

    @property
    def min_move(self) -> float:
        """The move of an embedding, as a share of its norm, below which a round takes no further step; 0: no limit.

        Never above `tol`, unless that is 0, which asks for all rounds and not for more exact ones.
        """
        return min(MIN_MOVE, self.tol or MIN_MOVE) if self.solver.accelerate else 0.0


def split_solver(values: Mapping[str, Any]) -> dict[str, Any]:
    """One flat set of parameters as a constructor takes it: the solver's own collected in ``solver``."""
    own = {f.name for f in fields(Solver)}
    others = {name: value for name, value in values.items() if name not in own}
    details = {name: value for name, value in values.items() if name in own}
    if not details:
        return others
    given = others.get("solver")
    return others | {"solver": (Solver() if given is None else replace(given)).set_params(**details)}


def check_number(name: str, value: Any, kind: Any, wanted: str, holds: Callable[[Any], bool]) -> None:
    """Raise an error unless a value is a finite number of a kind for which `holds` is true."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted}, got {value!r} of type {type(value).__name__}")
    if not (np.isfinite(value) and holds(value)):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raise an error unless a value is one of the allowed words."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


__all__ = ["Privacy", "Settings", "Solver"]
