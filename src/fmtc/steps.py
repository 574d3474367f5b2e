"""Algorithm 1 as pure functions over small frozen dataclasses: a step takes a state and returns the next one.

Server and clients exchange two kinds of message only, `Downlink` and `Uplink`. A federation goes through these
phases, the first two only where columns are scaled by what all clients have::

    moments  each client sums up its columns                   -> n_samples; means and squares, or document_counts
    rescale  columns take the common units                     -> nothing
    hello    each client counts its rows                       -> n_samples, n_features, energy
    prepare  graph, spectral start, factor of the data         -> nothing
    round    W-step and F-step with the server's guide (many)  -> W, two numbers for the log
    finish   k-means in the common frame                       -> centers
    gather   rows look for the nearest common centre (thrice)  -> sums
    number   clusters take the common numbers, and centres     -> nothing
             common or the client's own

With ``reweigh``, hello and prepare come once more after some rounds, with weights for the columns. With ``beta="auto"``
all phases from hello on are gone through in small before the first prepare, on some rows of each client, and end with::

    score    the rows held back are labelled                   -> score
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from .errors import DataError, InputError, NotFiniteError
from .kernels.alignment import generalized_procrustes, match_clusters, rotate, turn_towards
from .kernels.centers import (
    cluster_sums,
    common_start,
    common_step,
    distance,
    distance_left_out,
    norms,
    unit_centers,
)
from .kernels.consensus import (
    COUPLINGS,
    blocks,
    prox_and_values,
    singular_values,
    sum_of_powers,
    update_dual,
    weight_of_threshold,
)
from .kernels.embedding import largest_eigenvalue, moved, spectral_start, update_embedding
from .kernels.graph import Graph, association, build_graph, knn_affinity, normalized_laplacian
from .kernels.objective import augmented_lagrangian, dot, global_objective, local_objective, local_terms, residuals
from .kernels.projection import RidgeFactors, Rows, column_means, update_projection
from .kernels.scaling import Moments, Scaling, document_counts, kept_columns, moments, pool, standardize, tfidf
from .linalg.arrays import HOST, beside, contiguous, is_tensor, like, namespace, put, to_numpy

Array = np.ndarray

ALIGNMENTS = ("loop", "init", "none")
LABEL_SOURCES = ("projection", "embedding")
CENTERS = ("auto", "own", "common")
SCALES = ("none", "client", "global", "tfidf")
POOLED = ("global", "tfidf")  # scales that the clients agree on before they say hello
LEAST_WEIGHT = 0.3  # of a column that no projection uses
GATHERINGS = 3  # steps of k-means over the rows of all clients
BETAS = (0.0, 0.05, 0.15, 0.4)  # tried by "auto", each from where the one before ended
DEFAULT_BETA = 0.15
TRIAL_ROWS = 2500  # of a client at most, a fifth of them held back
TRIAL_ROUNDS = 10  # with each beta
FEW_ROWS = 100  # below, half of the clients have so few held back that three trials are made
OVER_RELAXED = 1.8  # how far the consensus step looks past a client's model, seen from the consensus before
SECOND_PASS_AFTER = 2  # rounds; which of several solutions is drawn near is decided in the first ones
STILL = 3e-4  # share of its norm that an embedding has to move by for another step, or pass, in the same round
CLEARLY = 0.9  # own centres are taken where rows are nearer to them than this part of the way to the common ones
PHASES = ("moments", "rescale", "hello", "prepare", "round", "finish", "gather", "number", "score")


# ---------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Hyper:
    """Everything that decides a run besides the data; the fields are the parameters of `FMTC`. Checks its own values.

    ``rho=None`` works in normalised units: X'X/n with mean squared row norm 1, ``ridge = rho/(2 omega alpha)`` given
    and ``beta`` a fraction of the largest singular value of the first stack. A number for ``rho`` means the paper's
    absolute units.

    Examples
    --------
    >>> from fmtc import Hyper
    >>> Hyper(n_clusters=4, beta=0.4).align
    'loop'
    >>> Hyper(n_clusters=4, schatten_p=1.5)
    Traceback (most recent call last):
    ...
    ValueError: schatten_p must be a number with 0 < p <= 1, got 1.5
    """

    n_clusters: int = 8
    alpha: float = 1.0
    beta: float | str = DEFAULT_BETA
    ridge: float = 0.03
    rho: float | None = None
    schatten_p: float = 1.0
    coupling: str = "tensor"
    align: str = "loop"
    n_neighbors: int | str = "auto"
    bandwidth: float | None = None
    one_sided: float = 0.25
    step_size: float | None = None
    n_inner: int = 3
    accelerate: bool = True
    max_iter: int = 25
    tol: float = 1e-3
    scale: str = "none"
    max_features: int = 2000
    center: bool | str = "auto"
    reweigh: int = 0
    labels_from: str = "projection"
    centers: str = "auto"
    n_init: int = 10
    message_dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_inner", "max_iter", "n_init", "max_features"):
            _check_number(name, getattr(self, name), Integral, "a whole number of at least 1", lambda v: v >= 1)
        wanted = "a whole number of at least 0"
        _check_number("reweigh", self.reweigh, Integral, wanted, lambda v: v >= 0)
        for name in ("alpha", "ridge"):
            _check_number(name, getattr(self, name), Real, "a finite number above 0", lambda v: v > 0)
        _check_number("tol", self.tol, Real, "a finite number of at least 0", lambda v: v >= 0)
        if self.beta != "auto":
            _check_number("beta", self.beta, Real, '"auto" or a finite number of at least 0', lambda v: v >= 0)
        elif self.rho is not None or self.coupling == "average":
            raise ValueError('beta="auto" has nothing to choose from with rho or coupling="average"; give a number')
        for name in ("rho", "bandwidth", "step_size"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), Real, "None or a finite number above 0", lambda v: v > 0)
        _check_number("schatten_p", self.schatten_p, Real, "a number with 0 < p <= 1", lambda v: 0 < v <= 1)
        _check_number("one_sided", self.one_sided, Real, "a number above 0 and at most 1", lambda v: 0 < v <= 1)
        if self.n_neighbors != "auto":
            wanted = '"auto" or a whole number of at least 1'
            _check_number("n_neighbors", self.n_neighbors, Integral, wanted, lambda v: v >= 1)
        if not isinstance(self.accelerate, bool | np.bool_):
            raise ValueError(f"accelerate must be True or False, got {self.accelerate!r}")
        if not (isinstance(self.center, bool | np.bool_) or self.center == "auto"):
            raise ValueError(f'center must be True, False or "auto", got {self.center!r}')
        if self.message_dtype not in (None, "float32"):
            raise ValueError(f'message_dtype must be None or "float32", got {self.message_dtype!r}')
        choices = {
            "coupling": COUPLINGS, "align": ALIGNMENTS, "scale": SCALES, "labels_from": LABEL_SOURCES,
            "centers": CENTERS,
        }  # fmt: skip
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                options = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} must be one of {options}, got {getattr(self, name)!r}")
        if self.scale == "tfidf" and self.center not in (False, "auto"):
            raise ValueError('center must be False or "auto" with scale="tfidf": rows of unit length are not centred')
        if self.centers == "common" and not self.shares_centers:
            raise ValueError(
                'centers="common" needs the frame that all clients share: take align="loop" or "init" and '
                'labels_from="projection"'
            )

    @property
    def still(self) -> float:
        """The move of an embedding, as a share of its norm, below which a round takes no further step; 0: none is idle.

        Never above `tol`, unless that is 0, which asks for all rounds and not for more exact ones.
        """
        return min(STILL, self.tol or STILL) if self.accelerate else 0.0

    @property
    def shares_centers(self) -> bool:
        """Whether clients look for common centres: only projections in a common frame can have some."""
        return self.centers != "own" and self.align != "none" and self.labels_from == "projection"


def _check_number(name: str, value: Any, kind: Any, wanted: str, holds: Callable[[Any], bool]) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted}, got {value!r} of type {type(value).__name__}")
    if not (np.isfinite(value) and holds(value)):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


# ---------------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True)
class Uplink:
    """Everything a client ever sends. Add a field only with a line in docs/privacy.md."""

    n_samples: int | None = None  # moments, hello
    n_features: int | None = None  # hello
    energy: float | None = None  # hello: sum of squared entries of the (centred) rows, for the common scale
    means: Array | None = None  # moments: d; left out where rows are sparse
    squares: Array | None = None  # moments: d, sum of squared deviations from the means; of entries where sparse
    document_counts: Array | None = None  # moments of words: D, in how many rows each column is filled
    W: Array | None = None  # round: d x k
    cut: float | None = None  # round: Tr(FᵀLF), for the log
    misfit: float | None = None  # round: ||F - XW||², for the log
    centers: Array | None = None  # finish: k x k, in the client's order of cluster size
    score: float | None = None  # score: how well the rows held back in a trial are labelled
    sums: Array | None = None  # gather: k x k, sums of the normalised projections nearest to each common centre, over n
    columns: Array | None = None  # survey: d, salted hashes of the columns' names
    aliases: Array | None = None  # survey: d, the same without capitals, blanks and signs; left out where no names
    kinds: Array | None = None  # survey: d, what the columns hold, as numbers of `survey.KINDS`
    counts: Array | None = None  # survey: d, how many values are there
    missing: Array | None = None  # survey: d, how many are not
    negatives: Array | None = None  # survey: d, how many are below 0
    error: str | None = None  # the kind of error a client ran into; the sentence stays in its own log


@dataclass(frozen=True)
class Downlink:
    """Everything the server ever sends to one client."""

    phase: str
    round_no: int = 0
    last_round: int = 0  # round, finish: the round of this client's last answer that counted; it goes on from there
    trial: int | None = None  # all from hello to score, with beta="auto": which fifth of some rows is held back
    shift: Array | None = None  # rescale: d, subtracted from the columns; left out where any client's rows are sparse
    stretch: Array | None = None  # rescale: d, what the columns are divided by then
    keep: Array | None = None  # rescale of words: numbers of the columns that are kept, d of D
    weights: Array | None = (
        None  # hello, once more after some rounds: d, what the columns are multiplied by from then on
    )
    scale: float | None = None  # prepare: common factor that gives the rows mean squared norm 1
    ridge: float | None = None  # prepare: rho/(2 omega alpha) of this client
    guide: Array | None = None  # round: Z - Y/rho, d x k
    rotation: Array | None = None  # round, finish: k x k, turns F and W to the common frame
    centers: Array | None = None  # gather, number: k x k, common centres; left out where every client keeps its own
    order: Array | None = None  # number: the client's cluster that takes each common number, k
    findings: Array | None = None  # verdict: f x 5, how this client's columns differ from the others'
    converged: bool | None = None  # end: whether the residuals fell below the tolerance


# ------------------------------------------------------------------------------------------------------ client


@dataclass(frozen=True)
class ClientModel:
    """What a client keeps for good: enough to label new rows as they come, and no training row."""

    W: Array  # d x k, in the units of the rows as they came
    centers: Array  # k x k, row j the unit centre of cluster j among normalised projections
    spread: float  # mean squared distance of a training row to its centre
    mean: Array | None  # d, subtracted from rows first; None where rows are not centred
    stretch: Array | None = None  # d, what columns were divided by; W has it inside, distances between rows need it
    keep: Array | None = None  # d, numbers of the columns of a row that the model looks at; None: all

    def scaled(self, X: Any) -> Any:
        """New rows in the units the model was made in, up to a shift: their distances are those of the graph."""
        return X if self.stretch is None else Scaling(self.stretch, keep=self.keep).apply(X)


@dataclass(frozen=True)
class ClientState:
    """One client between messages. Nothing of it leaves but what `client_reply` puts in an `Uplink`."""

    client_id: str
    X: Any  # n x d, as it came
    rows: Rows  # as they are computed with: scaled, if they are, and on a device, if there is one
    scaling: Scaling | None = None  # from X to the rows; None: they are X
    graph: Graph | None = None
    factors: RidgeFactors | None = None
    eta: float | None = None  # step size of the embedding
    F: Array | None = None  # n x k
    W: Array | None = None  # d x k
    round_no: int = 0
    E: Array | None = None  # n x k, normalised projections, from finish to number
    gathered: tuple[Array, ...] = ()  # centres it has told sums about since then
    model: ClientModel | None = None
    labels: Array | None = None  # n
    trial: Trial | None = None  # only while settings are tried
    device: str = HOST


@dataclass(frozen=True)
class Trial:
    """A client with some of the rows, to try settings on, and rows that it has not seen."""

    client: ClientState
    held_back: Any  # rows as they came


def open_client(client_id: str, X: Any, hyper: Hyper, device: str = HOST) -> ClientState:
    """A client at rest: its rows, checked for what this run asks of them, and where they are computed with."""
    n, _ = X.shape
    needed = max(2, hyper.n_clusters + 1)
    if n < needed:
        raise DataError(
            f"client {client_id!r} has {n} sample{'s' if n != 1 else ''} (n_samples={n}); "
            f"n_clusters={hyper.n_clusters} needs at least {needed} rows in every client. "
            "Ask for fewer clusters or leave this client out."
        )
    entries, limits = X.data if sp.issparse(X) else X, np.finfo(X.dtype)
    peak = float(max(entries.max(initial=0), -entries.min(initial=0)))
    if peak and not np.sqrt(limits.tiny) < peak < np.sqrt(limits.max / X.shape[0] / X.shape[1]):
        raise DataError(
            f"client {client_id!r} has entries up to {peak:.1e}, too {'large' if peak > 1 else 'small'} to be squared "
            f"in {X.dtype}. Rescale the features of all clients."
        )
    if hyper.scale == "tfidf" and entries.min(initial=0) < 0:
        raise DataError(f'client {client_id!r} has entries below 0; scale="tfidf" takes counts of words')
    if device != HOST and sp.issparse(X):
        raise DataError(
            f"client {client_id!r} has sparse rows, which device={device!r} does not take; leave device out for them"
        )
    scaling = standardize(moments(X)) if hyper.scale == "client" else None
    return ClientState(client_id, X, _rows(X, scaling, hyper, device), scaling, device=device)


def _rows(X: Any, scaling: Scaling | None, hyper: Hyper, device: str) -> Rows:
    """The rows to compute with; the only copy of X where it is scaled."""
    S = put(X if scaling is None else scaling.apply(X), device)
    centre = (not sp.issparse(S) and hyper.scale != "tfidf") if hyper.center == "auto" else hyper.center
    return Rows(S, column_means(S) if centre else None)


def client_reply(client: ClientState, message: Downlink, hyper: Hyper) -> tuple[ClientState, Uplink]:
    """Answer one message of the server: the only way data leaves a client."""
    if message.trial is not None:
        return _reply_in_trial(client, message, hyper)
    if message.phase in ("moments", "rescale") and hyper.scale not in POOLED:
        raise ValueError(f"phase {message.phase!r} is not part of a run with scale={hyper.scale!r}")
    if message.phase == "moments" and hyper.scale == "tfidf":
        return client, Uplink(n_samples=client.X.shape[0], document_counts=document_counts(client.X))
    if message.phase == "moments":
        own = moments(client.X)
        return client, Uplink(n_samples=own.n, means=own.means, squares=own.squares)
    if message.phase == "rescale":
        return _rescale(client, message, hyper), Uplink()
    if hyper.scale in POOLED and client.scaling is None:
        raise RuntimeError(f"client {client.client_id!r} has not been told the common units of the columns")
    if message.phase == "hello":
        client = _weigh(client, message.weights)
        n, d = client.rows.shape
        return client, Uplink(n_samples=n, n_features=d, energy=client.rows.energy())
    if message.phase == "prepare":
        return _prepare(client, message, hyper), Uplink()
    if message.phase == "round":
        return client_step(client, message, hyper)
    if message.phase == "finish":
        return finish_client(_turn(client, message.rotation), hyper)
    if message.phase == "gather":
        return _gather(client, message, hyper)
    if message.phase == "number":
        return _number(client, message, hyper), Uplink()
    raise ValueError(f"unknown phase {message.phase!r}; this client knows {', '.join(PHASES)}")


def _reply_in_trial(client: ClientState, message: Downlink, hyper: Hyper) -> tuple[ClientState, Uplink]:
    """The same answers, by a client that has some of the rows; a new one for each hello."""
    assert message.trial is not None
    trial = _open_trial(client, message.trial, hyper) if message.phase == "hello" else client.trial
    if trial is None:
        raise RuntimeError(f"client {client.client_id!r} is in no trial")
    if message.phase == "score":
        return client, Uplink(score=_trial_score(trial, hyper))
    message = replace(message, trial=None)
    if message.phase == "prepare":  # a graph of some rows may well fall apart: the run itself tells of its own
        small, uplink = _prepare(trial.client, message, hyper, quiet=True), Uplink()
    else:
        small, uplink = client_reply(trial.client, message, hyper)
    return replace(client, trial=replace(trial, client=small)), uplink


def _open_trial(client: ClientState, fold: int, hyper: Hyper) -> Trial:
    """Hold a fifth of some rows back, drawn once and for all."""
    X, n = client.X, client.X.shape[0]
    drawn = stream(hyper.seed, client.client_id, "trial").permutation(n)[:TRIAL_ROWS]
    back = drawn[fold::5]
    seen = np.setdiff1d(drawn, back)
    if len(seen) <= hyper.n_clusters or len(back) < 2:
        raise DataError(
            f"client {client.client_id!r} has {n} rows, too few to hold a fifth back and to find {hyper.n_clusters} "
            'clusters in the rest; beta="auto" needs more. Give a number for beta, or leave this client out.'
        )
    rows = _rows(X[seen], client.scaling, hyper, client.device)
    small = ClientState(client.client_id, X[seen], rows, client.scaling, device=client.device)
    return Trial(small, X[np.sort(back)])


def _trial_score(trial: Trial, hyper: Hyper) -> float:
    """How well rows that had no part in it are clustered, without labels: at most 1, higher is better.

    On the graph of their five nearest neighbours: the share of edges that stay inside predicted clusters (1 - Ncut/k),
    and how smooth the projection is there (1 - Tr(EᵀLE)/Tr(EᵀE)); the mean of the two.
    """
    model, X = trial.client.model, trial.held_back
    assert model is not None
    affinity = knn_affinity(model.scaled(X), 5)
    E = project(X, model.W, model.mean, model.keep).astype(np.float64)
    rough = float(np.vdot(E, normalized_laplacian(affinity) @ E)) / max(float(np.vdot(E, E)), 1e-300)
    return (association(affinity, assign(X, model), hyper.n_clusters) + 1 - rough) / 2


def _rescale(client: ClientState, message: Downlink, hyper: Hyper) -> ClientState:
    """Bring the rows, as they came, to the common units."""
    d, shift, stretch, keep = client.X.shape[1], message.shift, message.stretch, message.keep
    columns = np.arange(d) if keep is None else keep
    if (
        (keep is None) == (hyper.scale == "tfidf")
        or not np.isin(columns, np.arange(d)).all()
        or not (np.diff(columns) > 0).all()
        or stretch is None
        or stretch.shape != columns.shape
        or not (stretch > 0).all()
        or not (shift is None or shift.shape == columns.shape)
    ):
        raise ValueError(f"the common units do not fit {d} columns")
    scaling = Scaling(stretch, shift, keep)
    return replace(client, rows=_rows(client.X, scaling, hyper, client.device), scaling=scaling)


def _weigh(client: ClientState, weights: Array | None) -> ClientState:
    """Give each column its weight in the projection; distances between rows, and so the graph, stay as they are."""
    if weights is None:
        return client
    d = client.rows.shape[1]
    if weights.shape != (d,) or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(f"the weights of the columns do not fit {d} columns")
    return replace(client, rows=replace(client.rows, weights=like(weights, client.rows.X)), factors=None)


def _prepare(client: ClientState, message: Downlink, hyper: Hyper, *, quiet: bool = False) -> ClientState:
    """Graph, spectral start and factor of the data, all made once per fit."""
    assert message.scale is not None and message.ridge is not None
    rows, k = client.rows, hyper.n_clusters
    n = rows.shape[0]
    graph = client.graph or build_graph(rows.X, hyper.n_neighbors, hyper.bandwidth, hyper.one_sided)
    sizes = graph.component_sizes
    if len(sizes) > 1 and client.graph is None and not quiet:
        warnings.warn(_components_message(client.client_id, sizes, k), UserWarning, stacklevel=2)
    # Working on X/sqrt(n) is the same as scaling F by sqrt(n): a client's size no longer decides
    # (docs/paper.md#scales).
    gamma = message.scale / np.sqrt(n) if hyper.rho is None else 1.0
    rows = replace(rows, gamma=float(gamma))
    factors = RidgeFactors(rows, message.ridge)
    F = spectral_start(graph, k, stream(hyper.seed, client.client_id, "start")) if client.F is None else client.F
    eta = hyper.step_size
    if eta is None and hyper.accelerate:
        top = largest_eigenvalue(graph, stream(hyper.seed, client.client_id, "bound"))
        eta = 1 / (top + hyper.alpha)
    return replace(client, rows=rows, graph=graph, factors=factors, F=F, eta=eta, trial=None)


def _components_message(client_id: str, sizes: Array, k: int) -> str:
    shown = ", ".join(map(str, sizes[:8])) + (", ..." if len(sizes) > 8 else "")
    effect = (
        f"Each part gets a direction of its own before any is divided: {len(sizes)} of the {k} clusters start as parts"
        if len(sizes) <= k
        else f"With more parts than clusters ({k}), only the {k} largest parts shape the embedding"
    )
    return (
        f"the neighbour graph of client {client_id!r} falls into {len(sizes)} parts without a link, of {shown} rows. "
        f"{effect}. If that is not what the data mean, raise n_neighbors."
    )


def client_step(client: ClientState, message: Downlink, hyper: Hyper) -> tuple[ClientState, Uplink]:
    """One round at one client: turn to the common frame, then W (Eq. 12) and F (Eq. 14-16)."""
    client = _turn(client, message.rotation)
    rows, graph, factors, F = client.rows, client.graph, client.factors, client.F
    assert graph is not None and factors is not None and F is not None and message.guide is not None
    client = replace(client, F=None)  # to be let go of as soon as there is another
    guide, F = like(message.guide, F), graph.arranged(F)
    alpha, eta, n_inner, still = hyper.alpha, client.eta, hyper.n_inner, hyper.still
    for _ in range(2 if hyper.accelerate and message.round_no > SECOND_PASS_AFTER else 1):
        W = update_projection(factors, graph.as_they_came(F), guide)
        target, before = graph.arranged(rows @ W), F
        F = update_embedding(graph.laplacian, F, target, alpha=alpha, eta=eta, n_inner=n_inner, still=still)
        if still and moved(before, F) < still:
            break
    cut, misfit = local_terms(graph.laplacian, F, target)
    # rows side by side in memory, as they come back from a file or a wire: other layouts may sum in another order
    F, W = contiguous(graph.as_they_came(F)), contiguous(W)
    client = replace(client, F=F, W=W, round_no=message.round_no)
    return client, Uplink(W=_to_send(to_numpy(W), hyper), cut=cut, misfit=misfit)


def _to_send(A: Array, hyper: Hyper) -> Array:
    """A d x k matrix as it travels: rounded, where the run says so; who sends it goes on with all digits."""
    return np.ascontiguousarray(A, dtype=hyper.message_dtype or A.dtype)


def _turn(client: ClientState, rotation: Array | None) -> ClientState:
    if rotation is None or client.F is None or client.W is None:
        return client
    rotation = like(rotation, client.F)
    return replace(client, F=client.F @ rotation, W=client.W @ rotation)


def finish_client(client: ClientState, hyper: Hyper) -> tuple[ClientState, Uplink]:
    """k-means on the normalised rows of X W (of F for a run as published): labels and centres are born here."""
    X, F, k = _rows_as_they_came(client), client.F, hyper.n_clusters
    assert F is not None and client.W is not None
    W = signature = to_numpy(client.W)  # of clusters, in the units that all clients share
    mean = None if client.rows.mean is None else to_numpy(client.rows.mean)
    if client.rows.weights is not None:
        W = (to_numpy(client.rows.weights)[:, None] * W).astype(W.dtype)
    if client.scaling is not None:
        W, mean = client.scaling.fold(W, mean)
    stretch, keep = (None, None) if client.scaling is None else (client.scaling.stretch, client.scaling.keep)
    E = F / norms(F) if hyper.labels_from == "embedding" else project(X, W, mean, keep)
    seed = int(stream(hyper.seed, client.client_id, "kmeans").integers(2**31))
    found = unit_centers(E, k, hyper.n_init, seed)
    centers = to_numpy(found)
    model = ClientModel(W, centers, 0.0, mean, stretch, keep)
    labels = (E @ found.T).argmax(axis=1) if hyper.labels_from == "embedding" else assign(X, model)
    sizes = to_numpy(namespace(labels).bincount(labels, minlength=k))
    if (sizes == 0).any():
        warnings.warn(
            f"client {client.client_id!r} fills only {np.count_nonzero(sizes)} of {k} clusters: its rows have too few "
            "distinct projections. Ask for fewer clusters, or look for duplicate rows.",
            ConvergenceWarning,
            stacklevel=2,
        )
    # largest first; equal sizes by the norm of W c, which no order of rows and no rotation changes
    order = np.lexsort((-np.linalg.norm(centers @ signature.T, axis=1), -sizes))
    centers = centers[order]
    labels = like(np.argsort(order), labels)[labels]
    client = replace(client, E=E, gathered=(), model=replace(model, centers=centers), labels=labels)
    return client, Uplink(centers=centers)


def _rows_as_they_came(client: ClientState) -> Any:
    """The rows of X; where they were not scaled, those that are computed with, on the device if there is one."""
    return client.rows.X if client.scaling is None else client.X


def _gather(client: ClientState, message: Downlink, hyper: Hyper) -> tuple[ClientState, Uplink]:
    """Sums about common centres, no more often than a run needs: the difference of two may be a single row's share."""
    E, centers, gathered = client.E, message.centers, client.gathered
    assert E is not None and centers is not None
    if not any(np.array_equal(centers, known) for known in gathered):  # the same message may come twice
        gathered = (*gathered, centers)
    if not hyper.shares_centers or len(gathered) > GATHERINGS:
        raise ValueError(
            f"client {client.client_id!r} tells sums about common centres "
            + (f"{GATHERINGS} times and no more" if hyper.shares_centers else "to nobody in a run like this")
        )
    return replace(client, gathered=gathered), Uplink(sums=to_numpy(cluster_sums(E, beside(centers, E))))


def _number(client: ClientState, message: Downlink, hyper: Hyper) -> ClientState:
    """Take the common numbers; of the centres, the common ones unless the client's own are clearly nearer."""
    E, labels = client.E, client.labels
    assert client.model is not None and E is not None and labels is not None and message.order is not None
    model = replace(client.model, centers=client.model.centers[message.order])
    labels = like(np.argsort(message.order), labels)[labels]
    common = message.centers
    if common is not None and (hyper.centers == "common" or _prefers(E, labels, beside(common, E))):
        model = replace(model, centers=common.astype(model.W.dtype))
    if hyper.labels_from == "projection":  # the very code of predict, so that equal centres are told apart the same way
        labels = assign(_rows_as_they_came(client), model)
    gap = E - beside(model.centers, E)[labels]
    spread = dot(gap, gap) / len(E)
    return replace(client, E=None, gathered=(), model=replace(model, spread=spread), labels=to_numpy(labels))


def _prefers(E: Array, labels: Array, common: Array) -> bool:
    """Whether common centres suit these rows: own ones must be clearly nearer, to rows they were not made of."""
    seen = (E != 0).any(axis=1)  # a row of zeros is as far from all centres
    return distance_left_out(E[seen], labels[seen], len(common)) >= CLEARLY * distance(E[seen], common)


def stream(seed: int, client_id: str, purpose: str) -> np.random.Generator:
    """One stream per client and purpose: order, threads and newcomers do not matter."""
    return np.random.default_rng([seed, crc32(client_id.encode()), crc32(purpose.encode())])


# ---------------------------------------------------------------------------------------------------- new rows


BLOCK = 32_768  # new rows projected at a time: what is made on the way stays in cache, and is worth a thread


def _finite(Y: Array) -> Array:
    """The same projections, or an error: NaN and infinity in a row show in every column of its projection."""
    if not np.isfinite(float(Y.sum())) and not namespace(Y).isfinite(Y).all():  # the sum alone may just be too large
        raise NotFiniteError("the rows hold NaN, infinity, or values too large for their number format")
    return Y


def _blockwise(X: Any, keep: Array | None, answer: Callable[[Any], Array]) -> Array:
    """Answer for all rows, a block at a time; sparse rows are few bytes each and go in one block."""
    n = X.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):  # `_finite` says it better
        if sp.issparse(X) or is_tensor(X) or n <= BLOCK:
            return answer(kept_columns(X, keep))
        return np.concatenate([answer(kept_columns(X[b : b + BLOCK], keep)) for b in range(0, n, BLOCK)])


def project(X: Any, W: Array, mean: Array | None, keep: Array | None = None) -> Array:
    """Normalised rows of (X - mean) W: the space the centres live in; (n, d), (d, k) -> (n, k)."""

    W, mean = beside(W, X), None if mean is None else beside(mean, X)

    def answer(block: Any) -> Array:
        Y = _finite(Rows(block, mean) @ W)
        return Y / norms(Y)

    return _blockwise(X, keep, answer)


def assign(X: Any, model: ClientModel) -> Array:
    """Cluster of each new row: project, normalise, nearest centre; (n, d) -> (n,). Row by row: no batch effect.

    Centres have unit norm, so the nearest one has the largest product with the row, whatever the row's own norm:
    one product with the d x k matrix W Cᵀ decides.
    """
    V = beside(model.W @ model.centers.T, X)
    mean = None if model.mean is None else beside(model.mean, X)
    return _blockwise(X, model.keep, lambda block: _finite(Rows(block, mean) @ V).argmax(axis=1))


def memberships(X: Any, model: ClientModel) -> Array:
    """Probability of each cluster, as if clusters were equally likely round Gaussians; (n, d) -> (n, k).

    Their common variance per coordinate is the training rows' mean squared distance to their centre over k.
    """
    V = model.W @ model.centers.T
    variance = max(model.spread / len(model.centers), 1e-12)

    def answer(block: Any) -> Array:
        rows = Rows(block, model.mean)
        score = (rows @ V).astype(np.float64)  # cosine to each centre, times the row's norm
        gap = (score - score.max(axis=1, keepdims=True)) / norms(_finite(rows @ model.W))
        # of two centres as near as numbers can tell, the one that `assign` takes has more
        tie = 1 - 4 * float(np.finfo(V.dtype).eps)
        P = np.where(gap == 0, 1.0, np.minimum(np.exp(gap / variance), tie))
        return (P / P.sum(axis=1, keepdims=True)).astype(V.dtype, copy=False)

    return _blockwise(X, model.keep, answer)


# ------------------------------------------------------------------------------------------------------ server


@dataclass(frozen=True)
class ServerState:
    """The server between rounds; slice t of every stack belongs to ``client_ids[t]``."""

    client_ids: tuple[str, ...]
    omega: Array  # m
    rho: float
    beta: float | None  # in the units of Eq. 18; None until the first stack gives a relative beta its scale
    scale: float
    W: Array  # d x k x m
    Z: Array
    Y: Array
    rotations: Mapping[str, Array]  # not yet confirmed by an answer
    losses: Array  # m, last local objectives
    answered: Array  # m, the round of each client's last answer
    round_no: int = 0
    scaling: Scaling | None = None  # what all clients were told to do to their columns
    weights: Array | None = None  # d, of the columns in the projections; None: all 1
    chosen_beta: float | None = None  # by "auto", relative


@dataclass(frozen=True)
class RoundReport:
    """Where the iteration stands after one server step."""

    objective: float
    lagrangian: float
    primal_residual: float
    dual_residual: float
    rank: int  # largest rank of a Fourier slice of Z (tensor), rank of [Z_1 ... Z_m] (subspace)


def pooled_scaling(uplinks: Mapping[str, Uplink], hyper: Hyper) -> Scaling:
    """Common units for the columns of all clients, from what each says of its own."""
    said = {cid: uplinks[cid] for cid in sorted(uplinks)}
    name = "document_counts" if hyper.scale == "tfidf" else "squares"
    sums: dict[str, Array] = {cid: getattr(up, name) for cid, up in said.items()}
    rows = {cid: up.n_samples or 0 for cid, up in said.items()}
    width = _shared_width({cid: len(of_columns) for cid, of_columns in sums.items()})
    if hyper.scale == "tfidf":
        return tfidf(sum(rows.values()), sum(sums.values(), np.zeros(width, int)), hyper.max_features)
    return standardize(pool(Moments(rows[cid], up.means, sums[cid]) for cid, up in said.items()))


def rescalings(scaling: Scaling, client_ids: Iterable[str]) -> dict[str, Downlink]:
    """One `rescale` message per client, the same for all."""
    message = Downlink("rescale", shift=scaling.shift, stretch=scaling.stretch, keep=scaling.keep)
    return dict.fromkeys(client_ids, message)


def _shared_width(features: Mapping[str, int]) -> int:
    """The number of features that all clients have."""
    if len(set(features.values())) > 1:
        listed = ", ".join(f"{cid!r} has {d}" for cid, d in features.items())
        raise DataError(
            f"clients disagree on the number of features: {listed}. FMTC needs one shared feature space: "
            "bring every client to the same columns before fitting."
        )
    return next(iter(features.values()))


def open_server(
    hellos: Mapping[str, Uplink],
    hyper: Hyper,
    weights: Mapping[str, float] | None = None,
    scaling: Scaling | None = None,
) -> ServerState:
    """Agree on features, scale and weights from the clients' hellos; Z = Y = 0 (Algorithm 1, initialisation)."""
    ids = tuple(sorted(hellos))
    d = _shared_width({cid: hellos[cid].n_features or 0 for cid in ids})
    k, m = hyper.n_clusters, len(ids)
    omega = _client_weights(ids, weights)
    energy = {cid: hellos[cid].energy or 0.0 for cid in ids}
    flat = [cid for cid in ids if energy[cid] == 0]
    if flat:
        raise DataError(
            f"every feature is constant in client {', '.join(map(repr, flat))}: there is nothing to cluster. "
            "Leave that client out, or check how its rows were read."
        )
    scale = _common_scale({cid: hellos[cid] for cid in ids})
    if hyper.rho is None:  # ridge = rho/(2 omega alpha) for a client of average weight
        rho, beta = 2 * hyper.alpha * hyper.ridge / m, None
    else:
        assert not isinstance(hyper.beta, str)
        rho, beta = hyper.rho, hyper.beta
    empty = np.zeros((d, k, m))
    return ServerState(
        ids, omega, rho, beta, scale, empty, empty, empty, {}, np.zeros(m), np.zeros(m, int), scaling=scaling
    )


def _client_weights(ids: tuple[str, ...], weights: Mapping[str, float] | None) -> Array:
    """The paper's omega in the order of the ids, summing to 1; 1/m each unless given."""
    if weights is None:
        return np.full(len(ids), 1 / len(ids))
    unknown, missing = sorted(set(weights) - set(ids)), sorted(set(ids) - set(weights))
    if unknown or missing:
        raise InputError(
            f"client_weights must name each client once; missing: {missing or 'none'}, unknown: {unknown or 'none'}"
        )
    given: list[Any] = list(weights.values())
    for weight in given:
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 < float(weight) < float("inf"):
            raise InputError(f"client_weights must be finite numbers above 0, got {dict(weights)}")
    omega = np.array([weights[cid] for cid in ids], dtype=float)
    return omega / omega.sum()


def without_clients(server: ServerState, absent: set[str]) -> ServerState:
    """The server of the remaining clients, before the first round; weights stay as agreed."""
    if absent.isdisjoint(server.client_ids):
        return server  # no copies of what is still one stack of zeros
    stay = [t for t, cid in enumerate(server.client_ids) if cid not in absent]
    return replace(
        server,
        client_ids=tuple(server.client_ids[t] for t in stay),
        omega=server.omega[stay],
        **{name: getattr(server, name)[..., stay] for name in ("W", "Z", "Y", "losses", "answered")},
    )


def feature_weights(W: Array) -> Array:
    """How much all clients' projections use each column, for the next start; (d, k, m) -> (d,).

    The square root of the norm of a column's row in [W_1 ... W_m], 1 for a typical one, and 0.3 for everyone: one step
    of the reweighting by which a penalty on these norms is minimised, so that all clients leave the same columns aside.
    No rotation of a client changes it.
    """
    squares = np.square(W).sum(axis=(1, 2))
    typical = float(np.square(squares).sum() / squares.sum()) if squares.any() else 1.0
    return np.maximum(squares / typical, 1e-8) ** 0.25 + LEAST_WEIGHT


def weighings(weights: Array, client_ids: Iterable[str]) -> dict[str, Downlink]:
    """One `hello` per client that tells the weights of the columns, the same for all."""
    return dict.fromkeys(client_ids, Downlink("hello", weights=weights))


def reweighed(server: ServerState, hellos: Mapping[str, Uplink], weights: Array, hyper: Hyper) -> ServerState:
    """The server of the clients that took the weights, at the same round with the consensus to be found anew."""
    server = without_clients(server, set(server.client_ids) - set(hellos))
    empty = np.zeros_like(server.W)
    beta = None if hyper.rho is None else server.beta
    return replace(server, W=empty, Z=empty, Y=empty, beta=beta, scale=_common_scale(hellos), weights=weights)


def _common_scale(hellos: Mapping[str, Uplink]) -> float:
    """The factor that gives the rows of all clients mean squared norm 1."""
    rows = sum(hello.n_samples or 0 for hello in hellos.values())
    return float(np.sqrt(rows / sum(hello.energy or 0.0 for hello in hellos.values())))


def preparations(server: ServerState, hyper: Hyper) -> dict[str, Downlink]:
    """One `prepare` message per client: the common scale and its own ridge."""
    ridge = server.rho / (2 * server.omega * hyper.alpha)
    return {
        cid: Downlink("prepare", scale=server.scale, ridge=float(r))
        for cid, r in zip(server.client_ids, ridge, strict=True)
    }


def downlinks(server: ServerState, hyper: Hyper) -> dict[str, Downlink]:
    """Cut each client its slice of ``guide = Z - Y/rho`` for the next round."""
    d, k, m = server.Z.shape
    guides = np.empty((m, d, k), server.Z.dtype)
    for b in blocks(server.Z):
        guides[:, b] = np.moveaxis(server.Z[b] - server.Y[b] / server.rho, 2, 0)
    return {
        cid: Downlink(
            "round",
            round_no=server.round_no + 1,
            last_round=int(server.answered[t]),
            guide=_to_send(guides[t], hyper),
            rotation=server.rotations.get(cid),
        )
        for t, cid in enumerate(server.client_ids)
    }


def server_step(
    server: ServerState, uplinks: MutableMapping[str, Uplink], hyper: Hyper, *, reuse: bool = False
) -> tuple[ServerState, RoundReport]:
    """Stack the W, align them, shrink towards a common structure (Eq. 18), dual step (Eq. 19).

    A client that did not answer keeps its last slice, and its rotation if one is on the way. With `reuse` answers and
    state are used up: answers are let go of once they are stacked, and the old stacks become those of the next state,
    unless they are the one that all are at first.
    """
    slices = [
        np.asarray(uplinks[cid].W) if cid in uplinks else server.W[:, :, t] for t, cid in enumerate(server.client_ids)
    ]
    rounded = hyper.message_dtype is not None  # W came so, but sums keep all digits
    dtype = np.dtype(np.float64) if rounded else np.result_type(*{s.dtype for s in slices})
    write_over = reuse and server.W is not server.Y and server.W.dtype == dtype and server.W.flags.writeable
    W = server.W if write_over else np.empty(server.W.shape, dtype)
    for b in blocks(W):
        W[b] = np.moveaxis(np.array([s[b] for s in slices]), 0, 2)
    del slices
    losses = server.losses.copy()
    for t, cid in enumerate(server.client_ids):
        if cid in uplinks:
            cut, misfit = uplinks[cid].cut, uplinks[cid].misfit
            losses[t] = np.nan if cut is None or misfit is None else local_objective(cut, misfit, hyper.alpha)
    rotations: Mapping[str, Array] = {cid: R for cid, R in server.rotations.items() if cid not in uplinks}
    present = [t for t, cid in enumerate(server.client_ids) if cid in uplinks]
    among = slice(None) if len(present) == W.shape[2] else present
    answered = server.answered.copy()
    answered[present] = server.round_no + 1
    if reuse:
        uplinks.clear()
    R = _rotations(server, W, present, hyper)
    if R is not None:
        for b in blocks(W):
            W[b][:, :, among] = rotate(W[b][:, :, among], R)
        turned = {server.client_ids[t]: np.ascontiguousarray(R[:, :, i]) for i, t in enumerate(present)}
        rotations = {**rotations, **turned}
    beta, rho = server.beta, server.rho
    if beta is None:
        beta = absolute_beta(relative_beta(server, hyper), W, rho, hyper)
    p, coupling = hyper.schatten_p, hyper.coupling
    accelerate = hyper.accelerate and bool(server.Z.any())

    def ahead(b: slice) -> Array:  # docs/paper.md#rounds
        return OVER_RELAXED * W[b] + (1 - OVER_RELAXED) * server.Z[b] if accelerate else W[b]

    # by blocks of features, and no more stacks: first T, then the new dual
    Y = server.Y if write_over else np.empty_like(W)
    for b in blocks(W):
        Y[b] = ahead(b) + server.Y[b] / rho
    Z, s, weight = prox_and_values(Y, beta / rho, p, coupling)
    Z = Z.copy() if Z is Y else np.ascontiguousarray(Z)
    for b in blocks(W):
        Y[b] = update_dual(0, Y[b], Z[b], rho)  # the old dual is in T
    primal, dual = residuals(W, Z, server.Z, Y, rho)
    report = RoundReport(
        objective=global_objective(losses, server.omega, W, beta=beta, p=p, coupling=coupling),
        lagrangian=augmented_lagrangian(
            losses, server.omega, W, Z, Y, beta=beta, rho=rho, p=p, coupling=coupling, norm=sum_of_powers(s, weight, p)
        ),
        primal_residual=primal,
        dual_residual=dual,
        rank=int((s > 1e-6 * max(float(s.max()), np.finfo(s.dtype).tiny)).sum(axis=-1).max()),
    )
    server = replace(
        server, W=W, Z=Z, Y=Y, beta=beta, losses=losses, rotations=rotations, answered=answered,
        round_no=server.round_no + 1,
    )  # fmt: skip
    return server, report


def relative_beta(server: ServerState, hyper: Hyper) -> float:
    """The beta that was given or chosen, as a fraction of the largest singular value of the first stack."""
    if server.chosen_beta is not None:
        return server.chosen_beta
    return DEFAULT_BETA if isinstance(hyper.beta, str) else hyper.beta


def absolute_beta(relative: float, W: Array, rho: float, hyper: Hyper) -> float:
    """The same in the units of Eq. 18, for this first stack of projections."""
    largest = float(singular_values(W, hyper.coupling)[0].max())
    return rho * weight_of_threshold(relative * largest, hyper.schatten_p)


def _rotations(server: ServerState, W: Array, present: list[int], hyper: Hyper) -> Array | None:
    """Rotations of the clients that answered, or None where this round has none; (k, k, present)."""
    if hyper.align == "none" or (hyper.align == "init" and server.round_no > 0):
        return None
    if server.round_no == 0:
        return generalized_procrustes(W if len(present) == W.shape[2] else W.take(present, axis=2))
    return turn_towards(W, server.Z)[:, :, present]


def finishes(server: ServerState) -> dict[str, Downlink]:
    """One `finish` message per client, with its rotation if it has not had it."""
    return {
        cid: Downlink(
            "finish",
            round_no=server.round_no,
            last_round=int(server.answered[t]),
            rotation=server.rotations.get(cid),
        )
        for t, cid in enumerate(server.client_ids)
    }


def numbering(server: ServerState, uplinks: Mapping[str, Uplink], hyper: Hyper) -> dict[str, Array]:
    """Which cluster of each client takes each number, so that the same concept has the same number everywhere.

    Clusters are compared by W_t c, their centre seen from the features, which no rotation changes. Without
    alignment every client keeps its own order, largest cluster first.
    """
    ids = [cid for cid in server.client_ids if cid in uplinks]
    centers = [np.asarray(uplinks[cid].centers) for cid in ids]
    if hyper.align == "none":
        orders = [np.arange(len(C)) for C in centers]
    else:
        place = {cid: t for t, cid in enumerate(server.client_ids)}
        W = _in_few_features(server.W)
        orders = match_clusters([C @ W[:, :, place[cid]].T for cid, C in zip(ids, centers, strict=True)])
    return dict(zip(ids, orders, strict=True))


def _in_few_features(W: Array) -> Array:
    """A stack with the same products between columns, of all clients, and no more features than there are columns."""
    d, k, m = W.shape
    if d <= k * m:
        return W
    columns = W.reshape(d, k * m)
    lam, V = np.linalg.eigh(columns.T @ columns)
    return (np.sqrt(np.maximum(lam, 0))[:, None] * V.T).reshape(k * m, k, m)


def first_centers(orders: Mapping[str, Array], uplinks: Mapping[str, Uplink]) -> Array:
    """Common centres to begin with: the mean of the centres that got the same number."""
    return common_start([np.asarray(uplinks[cid].centers)[order] for cid, order in orders.items()])


def gatherings(centers: Array, client_ids: Iterable[str], turn: int) -> dict[str, Downlink]:
    """One `gather` message per client, the same for all; `turn` tells one from the next."""
    return dict.fromkeys(client_ids, Downlink("gather", round_no=turn, centers=centers))


def next_centers(centers: Array, uplinks: Mapping[str, Uplink]) -> Array:
    """Common centres after a step of k-means over the rows of all clients that answered."""
    return common_step(centers, [np.asarray(uplinks[cid].sums) for cid in sorted(uplinks)])


def numbers(orders: Mapping[str, Array], centers: Array | None) -> dict[str, Downlink]:
    """One `number` message per client: its order, and the common centres if there are any."""
    return {cid: Downlink("number", order=order, centers=centers) for cid, order in orders.items()}
