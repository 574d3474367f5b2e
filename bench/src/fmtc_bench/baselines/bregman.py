"""Clusters that attract those of other clients: multitask Bregman clustering (MBC), its smart forms SMBC and SMKC.

All three run one loop (`alternate`). A space defines what a centroid is: a point among the rows (`Points`), or a
combination of rows in the feature space of a kernel (`Mercer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment, linprog
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import FunctionTransformer, Normalizer
from sklearn.utils import gen_batches

from fmtc.protocol.state import stream

from .base import (
    Array,
    Baseline,
    Centers,
    Data,
    Model,
    check_choice,
    check_number,
    check_positive,
    check_whole,
    seed_of,
)
from .single_task import UNION, spectral_clustering, union

EXACT_UP_TO = 10_000  # rows of all clients with a kernel matrix; beyond it, Nyström's features
N_COMPONENTS = 500  # of those features
SAMPLE = 1000  # rows that the median distance is taken from
BLOCK = 4096  # new rows compared with all others at a time
ROUNDING = 1e-9  # starts whose objectives differ by a smaller share have found the same
SMOOTHING = 1e-9  # added to entries before a logarithm is taken


# -------------------------------------------------------------------------------------------------------- spaces


class Space(Protocol):
    """Where centroids live. A set of k centroids is an array of k rows, and sums of centroids are sums of rows."""

    sizes: list[int]  # rows of each client

    def combine(self, t: int, S: Array) -> Array:
        """Weighted sums of the rows of client t; (k, n_t) -> (k, p)."""
        ...

    def at_rows(self, t: int, rows: Array) -> Array:
        """Centroids at some rows of client t; (k,) -> (k, p)."""
        ...

    def to_rows(self, t: int, mu: Array) -> Array:
        """Divergence of each row of client t from each centroid; (k, p) -> (n_t, k)."""
        ...

    def between(self, nu: Array, mu: Array) -> Array:
        """Divergence of centroids nu from centroids mu; (j, p), (k, p) -> (j, k)."""
        ...


# of a divergence D(x, mu) = phi(x) - phi(mu) - <grad phi(mu), x - mu>: phi of one entry, and its derivative
DIVERGENCES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "euclidean": (np.square, lambda v: 2 * v),
    "kl": (lambda v: (v + SMOOTHING) * (np.log(v + SMOOTHING) - 1), lambda v: np.log(v + SMOOTHING)),
}


class Points:
    """Centroids among the rows, with a Bregman divergence; sparse rows stay sparse."""

    def __init__(self, parts: Sequence[Any], divergence: str = "euclidean"):
        self.phi, self.slope = DIVERGENCES[divergence]
        self.parts = parts
        self.sizes = [X.shape[0] for X in parts]
        self.potentials = [self._potential(X) for X in parts]

    def combine(self, t: int, S: Array) -> Array:
        """`Space.combine`."""
        X = self.parts[t]
        return (S.astype(X.dtype) @ X).astype(np.float64)

    def at_rows(self, t: int, rows: Array) -> Array:
        """`Space.at_rows`."""
        return self.combine(t, (rows[:, None] == np.arange(self.sizes[t])).astype(np.float64))

    def to_rows(self, t: int, mu: Array) -> Array:
        """`Space.to_rows`."""
        return self._divergence(self.parts[t], self.potentials[t], mu)

    def between(self, nu: Array, mu: Array) -> Array:
        """`Space.between`."""
        return self._divergence(nu, self._potential(nu), mu)

    def _divergence(self, X: Any, potential: Array, mu: Array) -> Array:
        slope = self.slope(mu)
        constant = np.einsum("kj,kj->k", slope, mu) - self._potential(mu)
        return np.maximum(potential[:, None] + constant - X @ slope.T.astype(X.dtype), 0)

    def _potential(self, X: Any) -> Array:
        if sp.issparse(X):  # phi(0) for every entry, and what the others have more
            zero = float(self.phi(np.zeros(1))[0])
            more = self.phi(X.data.astype(np.float64)) - zero
            return sp.csr_array((more, X.indices, X.indptr), shape=X.shape).sum(axis=1) + X.shape[1] * zero
        return self.phi(X).sum(axis=1, dtype=np.float64)


class Mercer:
    """Centroids in the feature space of a kernel, of which the matrix for the rows of all clients is known.

    A centroid is ``sum_i a_i phi(x_i)``, kept as its coefficients a and its products K a with all rows, side by side:
    sums of centroids carry both along, and no step but a client's own sums has to multiply by the kernel matrix.
    """

    def __init__(self, kernel: Array, sizes: Sequence[int]):
        ends = np.cumsum(sizes)
        self.kernel = kernel
        self.sizes = list(sizes)
        self.places = [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]
        self.square_norms = np.diagonal(kernel)

    def combine(self, t: int, S: Array) -> Array:
        """`Space.combine`."""
        rows = self.kernel[self.places[t]]
        mu = np.zeros((len(S), 2 * rows.shape[1]))
        coefficients, products = self.split(mu)
        coefficients[:, self.places[t]] = S
        products[:] = S.astype(rows.dtype) @ rows
        return mu

    def at_rows(self, t: int, rows: Array) -> Array:
        """`Space.at_rows`."""
        places = self.places[t].start + rows
        return np.hstack([places[:, None] == np.arange(len(self.kernel)), self.kernel[places]]).astype(np.float64)

    def to_rows(self, t: int, mu: Array) -> Array:
        """`Space.to_rows`."""
        place = self.places[t]
        products = self.split(mu)[1][:, place]
        return np.maximum(self.square_norms[place][:, None] - 2 * products.T + self.norms(mu), 0)

    def between(self, nu: Array, mu: Array) -> Array:
        """`Space.between`."""
        products = self.split(nu)[0] @ self.split(mu)[1].T
        return np.maximum(self.norms(nu)[:, None] - 2 * products + self.norms(mu), 0)

    def norms(self, mu: Array) -> Array:
        """Squared norms of centroids; (k, 2n) -> (k,)."""
        return np.einsum("ki,ki->k", *self.split(mu))

    @staticmethod
    def split(mu: Array) -> tuple[Array, Array]:
        """Coefficients and products of centroids; (k, 2n) -> (k, n), (k, n)."""
        n = mu.shape[1] // 2
        return mu[:, :n], mu[:, n:]


# --------------------------------------------------------------------------------------------------- the relation


def transport(cost: Array, a: Array, b: Array) -> Array:
    """Cheapest plans with row sums a and column sums b, of several problems at once.

    All problems make one linear programme of separate blocks, which the simplex method solves exactly: most of the
    time of a small programme goes into starting the solver.

    Parameters
    ----------
    cost : array of shape (problems, k, k)
    a, b : arrays of shape (problems, k)
        Each row sums to 1.

    Returns
    -------
    array of shape (problems, k, k)
    """
    if len(cost) == 0:
        return cost
    size = cost.max(axis=(1, 2), keepdims=True)
    answer = linprog(
        (cost / np.where(size > 0, size, 1)).ravel(),
        A_eq=_constraints(*cost.shape[:2]),
        b_eq=np.hstack([a, b[:, :-1]]).ravel(),
        method="highs-ds",
        options={"presolve": False},
    )
    if answer.x is None:
        raise RuntimeError(f"the transport problem between clusters was not solved: {answer.message}")
    return np.maximum(answer.x, 0).reshape(cost.shape)


@cache
def _constraints(problems: int, k: int) -> sp.csc_array:
    """Row sums and all but one of the column sums of `problems` k x k plans."""
    ones, eye = np.ones((1, k)), sp.eye_array(k)
    one = sp.vstack([sp.kron(eye, ones), sp.kron(ones, eye, format="csr")[:-1]])
    return sp.csc_array(sp.kron(sp.eye_array(problems), one))


def relate(space: Space, mu: Array, labels: Sequence[Array], marginals: str) -> tuple[Array, float]:
    """Plan between the clusters of each two clients, and what all plans cost; (m, k, p) -> (m, m, k, k), float.

    ``plans[t, s]`` has a row for each cluster of client t, and ``plans[s, t]`` is its transpose.
    """
    m, k, p = mu.shape
    plans = np.zeros((m, m, k, k))
    s, t = np.triu_indices(m, 1)
    centroids = mu.reshape(m * k, p)
    cost = space.between(centroids, centroids).reshape(m, k, m, k)[s, :, t, :].transpose(0, 2, 1)
    if marginals == "uniform":  # some cheapest plan is a permutation (Birkhoff)
        found = np.zeros(cost.shape)
        for plan, C in zip(found, cost, strict=True):
            plan[linear_sum_assignment(C)] = 1 / k
    else:
        share = np.array([np.bincount(h, minlength=k) / len(h) for h in labels])
        found = transport(cost, share[t], share[s])
    plans[t, s], plans[s, t] = found, found.transpose(0, 2, 1)
    return plans, float((found * cost).sum())


# ------------------------------------------------------------------------------------------------------- the loop


@dataclass(frozen=True)
class Partition:
    """Clusters of one client."""

    mu: Array  # k x p
    labels: Array  # n_t, the nearest centroid of each row
    loss: float  # mean divergence of a row from its centroid


@dataclass(frozen=True)
class Run:
    """The best iterate of one start, and the objective after each iteration."""

    mu: Array  # m x k x p
    labels: list[Array]
    plans: Array  # m x m x k x k
    objective: float
    history: list[float]


def _assigned(space: Space, t: int, mu: Array) -> Partition:
    D = space.to_rows(t, mu)
    labels = D.argmin(axis=1)
    return Partition(mu, labels, float(np.take_along_axis(D, labels[:, None], axis=1).mean()))


def _centroids(
    space: Space, t: int, labels: Array, before: Array, pull: Array | float = 0.0, weight: Any = 0.0
) -> Array:
    """(sum of rows / (m n_t) + pull) / (share of rows / m + weight) for each cluster; where that is 0/0, as before."""
    scale = len(space.sizes) * space.sizes[t]
    own = (np.arange(len(before))[:, None] == labels).astype(np.float64)
    total = own.sum(axis=1) / scale + weight
    return np.divide(space.combine(t, own) / scale + pull, total[:, None], out=before.copy(), where=total[:, None] > 0)


def _loss_at_means(space: Space, t: int, found: Partition) -> float:
    """What the partition would cost with each centroid at the mean of its rows."""
    D = space.to_rows(t, _centroids(space, t, found.labels, found.mu))
    return float(np.take_along_axis(D, found.labels[:, None], axis=1).mean())


def _coupled(space: Space, t: int, labels: Array, mu: Array, plans: Array) -> Partition:
    """Clusters of one client pulled at by those of the others; (m, k, p), (m, k, k)."""
    m, k, p = mu.shape
    G = plans.transpose(1, 0, 2).reshape(k, m * k)  # from each cluster of t to all of all others
    return _assigned(space, t, _centroids(space, t, labels, mu[t], G @ mu.reshape(m * k, p), G.sum(axis=1)))


@dataclass(frozen=True)
class _Plain:
    """Clusters of one client by k-means from the same start, which the smart rule keeps along."""

    part: Partition
    settled: bool

    def after(self, space: Space, t: int) -> _Plain:
        """After one more step."""
        if self.settled:
            return self
        part = _assigned(space, t, _centroids(space, t, self.part.labels, self.part.mu))
        return _Plain(part, np.array_equal(self.part.labels, part.labels))


def _better(space: Space, t: int, coupled: Partition, plain: Partition, compare: str) -> Partition:
    """The smart rule: the plain clusters where the coupled ones are worse."""
    losses = [part.loss if compare == "own" else _loss_at_means(space, t, part) for part in (coupled, plain)]
    return plain if losses[0] > losses[1] else coupled


def alternate(
    space: Space,
    start: Array,
    *,
    task_weight: float,
    marginals: str,
    max_iter: int,
    tol: float,
    compare: str | None = None,
) -> Run:
    """Relation, centroids and labels in turn, client after client, until the objective settles.

    Parameters
    ----------
    space : Space
    start : array of shape (m, k, p)
        Centroids of each client.
    task_weight, marginals, max_iter, tol
        As in `MBC`.
    compare : {"own", "means"}, optional
        The smart rule of `SMBC`. Left out, every client takes its coupled centroids.

    Returns
    -------
    Run
        The iterate with the lowest objective; with the smart rule, of those after plain k-means has settled.
    """
    m = len(start)
    gain = 2 * task_weight / (m * (m - 1)) if m > 1 else 0.0
    chosen = [_assigned(space, t, mu) for t, mu in enumerate(start)]
    plain = [_Plain(part, settled=compare is None) for part in chosen]
    mu = start.copy()
    plans, _ = relate(space, mu, [part.labels for part in chosen], marginals)
    history: list[float] = []
    best = Run(mu, [], plans, np.inf, history)
    seen: dict[bytes, list[float]] = {}  # J wherever all rows had these labels
    for _ in range(max_iter):
        keep_best = all(one.settled for one in plain)
        for t in range(m):
            chosen[t] = _coupled(space, t, chosen[t].labels, mu, gain * plans[t])
            plain[t] = plain[t].after(space, t)
            if compare is not None:
                chosen[t] = _better(space, t, chosen[t], plain[t].part, compare)
            mu[t] = chosen[t].mu
        labels = [part.labels for part in chosen]
        plans, cost = relate(space, mu, labels, marginals)
        objective = float(np.mean([part.loss for part in chosen])) + gain * cost
        history.append(objective)
        if not keep_best or objective < best.objective:
            best = Run(mu.copy(), labels, plans, objective, history)
        if keep_best:  # plans and labels may go round in a circle
            before = seen.setdefault(b"".join(map(np.ndarray.tobytes, labels)), [])
            if (np.abs(np.array([*history[-2:-1], *before]) - objective) <= tol * objective).any():
                break
            before.append(objective)
    return best


def _number_alike(space: Space, run: Run) -> Run:
    """Give clusters of all clients the numbers of the first client's, at the least total divergence."""
    orders = np.array([linear_sum_assignment(space.between(run.mu[0], mu))[1] for mu in run.mu])
    plans = np.array(
        [[G[o][:, u] for G, u in zip(row, orders, strict=True)] for row, o in zip(run.plans, orders, strict=True)]
    )
    return replace(
        run,
        mu=np.take_along_axis(run.mu, orders[:, :, None], axis=1),
        labels=[np.argsort(order)[h] for order, h in zip(orders, run.labels, strict=True)],
        plans=plans,
    )


def plus_plus(space: Space, t: int, k: int, rng: np.random.Generator) -> Array:
    """Centroids at rows of client t, drawn by the greedy k-means++ rule with the divergence of the space; (k, p)."""
    n, trials = space.sizes[t], 2 + int(np.log(k))
    mu = space.at_rows(t, rng.integers(n, size=1))
    nearest = space.to_rows(t, mu)
    for _ in range(1, k):
        ladder = np.cumsum(nearest)
        picked = np.minimum(np.searchsorted(ladder, rng.random(trials) * ladder[-1], side="right"), n - 1)
        candidates = space.at_rows(t, picked)
        after = np.minimum(nearest, space.to_rows(t, candidates))
        best = int(after.sum(axis=0).argmin())
        mu, nearest = np.vstack([mu, candidates[best]]), after[:, best : best + 1]
    return mu


# ----------------------------------------------------------------------------------------------------- estimators


@dataclass(frozen=True)
class DivergenceCenters:
    """Clusters as centres among the rows, nearest by a Bregman divergence."""

    centers: Array  # k x d
    divergence: str

    def assign(self, X: Any) -> Array:
        """Number of the nearest centre of each row; (n, d) -> (n,)."""
        _check_rows({"new": X}, self.divergence)
        return Points([X], self.divergence).to_rows(0, self.centers).argmin(axis=1)


@dataclass(frozen=True)
class KernelCenters:
    """Clusters as centres in the feature space of a Gaussian kernel: combinations of the rows of all clients."""

    X: Any  # n x d
    gamma: float
    coefficients: Array  # k x n
    norms: Array  # k, squared norms of the centres

    def assign(self, X: Any) -> Array:
        """Number of the nearest centre of each row; (n_new, d) -> (n_new,)."""
        A = self.coefficients.T.astype(X.dtype)
        blocks = gen_batches(X.shape[0], BLOCK)
        return np.concatenate(
            [(self.norms - 2 * (rbf_kernel(X[rows], self.X, self.gamma) @ A)).argmin(axis=1) for rows in blocks]
        )


@dataclass(frozen=True)
class MappedCenters:
    """Clusters as centres among features that a fitted transformer makes of rows."""

    transformer: Any
    clusters: Centers

    def assign(self, X: Any) -> Array:
        """Number of the nearest centre of each row; (n, d) -> (n,)."""
        return self.clusters.assign(self.transformer.transform(X))


@dataclass(repr=False, eq=False, kw_only=True)
class _Coupled(Baseline):
    """What MBC, SMBC and SMKC have in common: settings of the loop and what a run leaves behind."""

    task_weight: float = 0.25
    marginals: str = "proportional"
    n_init: int = 10
    max_iter: int = 100
    tol: float = 1e-6

    @property
    def _compare(self) -> str | None:
        """The smart rule, of those that have one."""
        return getattr(self, "compare", None)

    def _check(self) -> None:
        check_number(task_weight=self.task_weight, tol=self.tol)
        check_whole(n_init=self.n_init, max_iter=self.max_iter)
        check_choice(("proportional", "uniform"), marginals=self.marginals)
        if self._compare is not None:
            check_choice(("own", "means"), compare=self._compare)

    def _run(self, space: Space, starts: Iterable[Array], ids: Sequence[str]) -> Run:
        """Best of all starts by the objective; of those that differ by rounding alone, the first."""
        settings = {name: getattr(self, name) for name in ("task_weight", "marginals", "max_iter", "tol")}
        runs = (alternate(space, start, **settings, compare=self._compare) for start in starts)
        best = reduce(lambda a, b: b if b.objective < a.objective * (1 - ROUNDING) else a, runs)
        run = _number_alike(space, best)
        self.objective_ = run.objective
        self.history_ = run.history
        self.n_iter_ = len(run.history)
        self.relations_ = {(a, b): run.plans[t, s] for t, a in enumerate(ids) for s, b in enumerate(ids) if a != b}
        return run


@dataclass(repr=False, eq=False, kw_only=True)
class MBC(_Coupled):
    """Multitask Bregman clustering (Zhang and Zhang, AAAI 2010): k-means per client, centroids pulled together.

    Minimises over centroids mu, labels h and relations G::

        J = (1/m) sum_t (1/n_t) sum_i D(x_i, mu^t_h(i))
            + task_weight 2/(m(m-1)) sum_{s<t} sum_kl G^ts_kl D(mu^s_l, mu^t_k)

    D is a Bregman divergence. The relation G^ts between the clusters of clients t and s is the cheapest transport plan
    whose row and column sums are the shares of rows in the clusters of t and of s. Relations, centroids (client after
    client) and labels are updated in turn; the iterate with the lowest J of all starts is kept.

    With ``marginals="uniform"`` and the squared distance no step raises J. With the shares of the published form it
    can rise: new labels change the sums that plans must have, and where clients differ in their shares, a cluster is
    tied to one that it has nothing to do with. That is the harm `SMBC` was made against. With the KL divergence the
    centroid is a mean as well, which is the exact minimiser only for the clients it is compared with as D's second
    argument.

    Only centroids and shares are needed from other clients. New rows take the nearest centroid of their client.
    The transport problems of all pairs are solved exactly, as one linear programme in each iteration.

    Provenance: objective, alternation and the mean as centroid from the papers' summaries and from memory (AAAI 2010,
    Neurocomputing 2011); the scale of the two terms, uniform marginals, starts and the stopping rule are ours. It
    stops by J alone: when labels have settled, centroids of coupled clients still move.

    Parameters
    ----------
    n_clusters : int
    task_weight : float
        Weight of the second term, lambda. 0 is k-means for each client.
    divergence : {"euclidean", "kl"}
        Squared distance, or ``sum x log(x/mu) - x + mu`` for rows without negative entries.
    marginals : {"proportional", "uniform"}
        Row and column sums of a relation: shares of rows, or 1/n_clusters.
    init : {"kmeans", "client", "union"}
        First centroids. "kmeans": each client's own k-means, the best of `n_init` by its own loss. "client": k-means++
        draws them from each client's rows. "union": k-means++ draws them from all rows, the same for everyone.
    n_init : int
        Number of starts: of each client's k-means, or, for the others, of the whole method, of which the lowest J is
        kept. A start of the whole method is good where all clients were lucky at once, which is rare with many.
    max_iter : int
    tol : float
        Stop when J changes by no more than this fraction, or comes back to the same clusters with the same J.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Numbers of clusters are matched to those of the first client.
    cluster_centers_ : dict of str to ndarray of shape (n_clusters, n_features)
    relations_ : dict of (str, str) to ndarray of shape (n_clusters, n_clusters)
        Plan between the clusters of two clients, rows for the first.
    objective_ : float
    history_ : list of float
        J after each iteration of the start that was kept.
    n_iter_ : int

    Examples
    --------
    >>> from fmtc_bench.baselines import MBC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("offset", seed=0)
    >>> model = MBC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> model.relations_["silo1", "silo2"].shape
    (3, 3)
    """

    divergence: str = "euclidean"
    init: str = "kmeans"

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Model], Mapping[str, Array]]:
        self._check()
        check_choice(tuple(DIVERGENCES), divergence=self.divergence)
        check_choice(("kmeans", "client", "union"), init=self.init)
        _check_rows(data, self.divergence)
        rows, shift = _centred(data) if self.divergence == "euclidean" else (data, 0.0)
        space = Points(list(rows.values()), self.divergence)
        run = self._run(space, self._starts(space, rows, seed), list(data))
        dtype = next(iter(data.values())).dtype
        self.cluster_centers_ = dict(zip(data, (run.mu + shift).astype(dtype), strict=True))
        models: dict[str, Model] = {
            cid: Centers(C) if self.divergence == "euclidean" else DivergenceCenters(C, self.divergence)
            for cid, C in self.cluster_centers_.items()
        }
        return models, dict(zip(data, run.labels, strict=True))

    def _starts(self, space: Space, rows: Data, seed: int) -> Iterator[Array]:
        if self.init == "kmeans":
            return iter([own_clusters(space, list(rows), self.n_clusters, seed, self.n_init)])
        if self.init == "client":
            return (seeds(space, list(rows), self.n_clusters, seed, start) for start in range(self.n_init))
        whole = Points([union(rows)], self.divergence)
        alike = (seeds(whole, [UNION], self.n_clusters, seed, start) for start in range(self.n_init))
        return (np.repeat(mu, len(rows), axis=0) for mu in alike)


@dataclass(repr=False, eq=False, kw_only=True)
class SMBC(MBC):
    """Smart multitask Bregman clustering (Zhang and Zhang, AAAI 2013): `MBC` for those clients that it does not harm.

    Next to the coupled clusters of `MBC` every client keeps the plain ones of k-means from the same start. After each
    iteration it compares what its rows cost in either, and takes the plain clusters where the coupled ones are worse;
    only what was taken pulls on others. So no client ends with a worse partition than k-means from the same start gives
    it. With ``compare="own"``, the published rule read to the letter, that is a high bar: coupled centroids are not the
    means of their rows, and from the clusters of k-means they hardly ever win.

    Provenance: the rule from the papers' summaries (AAAI 2013; with Liu, TKDD 2015); how the two sets of clusters are
    kept along is ours, and so is looking for the lowest J only after plain k-means has settled.

    Parameters
    ----------
    n_clusters, task_weight, divergence, marginals, init, n_init, max_iter, tol, random_state
        As in `MBC`.
    compare : {"own", "means"}
        Whether a client compares mean divergences of rows from the centroids as they are, or partitions: with all
        centroids at the means of their rows.

    Examples
    --------
    >>> from fmtc_bench.baselines import SMBC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("skew", seed=0)
    >>> model = SMBC(data.n_clusters, random_state=0).fit(data.X, silos=data.clients)
    >>> len(model.cluster_centers_)
    4
    """

    compare: str = "means"


@dataclass(repr=False, eq=False, kw_only=True)
class SMKC(_Coupled):
    """Smart multitask kernel clustering (Zhang and Zhang, AAAI 2013): `SMBC` in the feature space of a kernel.

    The objective is `MBC`'s with the squared distance between images of rows. A centroid is a combination of rows of
    all clients, so their rows are needed in one place. Where the features of a kernel can be written down, rows of
    features are clustered by the same loop, which gives the same answer: the rows themselves (linear), rows of unit
    length (cosine), and, for a Gaussian kernel on more than 10 000 rows, 500 features by Nyström's approximation.
    Otherwise the kernel matrix is made once. New rows take the nearest centroid of their client in feature space.

    Provenance: the rule from the papers' summaries (AAAI 2013; with Liu, TKDD 2015), whose solver updates
    non-negative partition matrices; labels and coefficients here are the exact kernel form of `MBC`'s steps. Starts
    and kernels are ours.

    Parameters
    ----------
    n_clusters, task_weight, marginals, compare, max_iter, tol, random_state
        As in `SMBC`.
    kernel : {"auto", "rbf", "linear", "cosine"}
        "auto" is cosine for sparse rows and rbf for dense ones. For rows of unit length cosine is linear; a Gaussian
        kernel was no better over six collections of texts.
    bandwidth_scale : float
        Width of the rbf kernel as a multiple of the median distance between rows (of at most 1000, drawn at random).
    n_init : int
        Starts of each client's k-means in feature space, of which the best by its own loss is kept. The method runs
        twice, from these clusters and from those of spectral clustering of each client; the lower J is kept.

    Attributes
    ----------
    labels_, relations_, objective_, history_, n_iter_
        As in `MBC`.
    bandwidth_ : float or None
        Of the rbf kernel.

    Examples
    --------
    >>> from fmtc_bench.baselines import SMKC
    >>> from fmtc_bench.datasets import synthetic
    >>> data = synthetic("rings", n_clusters=2, seed=0)
    >>> model = SMKC(2, n_init=3, random_state=0).fit(data.X, silos=data.clients)
    >>> model.predict(data.X[:5], silos=data.clients[:5]).shape
    (5,)
    """

    kernel: str = "auto"
    bandwidth_scale: float = 1.0
    compare: str = "means"

    def _fit(self, data: Data, seed: int) -> tuple[Mapping[str, Model], Mapping[str, Array]]:
        self._check()
        check_choice(("auto", "rbf", "linear", "cosine"), kernel=self.kernel)
        check_positive(bandwidth_scale=self.bandwidth_scale)
        whole, sizes = union(data), [X.shape[0] for X in data.values()]
        kernel = self.kernel
        if kernel == "auto":
            kernel = "cosine" if sp.issparse(whole) else "rbf"
        self.bandwidth_ = self.bandwidth_scale * _median_distance(whole, seed) if kernel == "rbf" else None
        if self.bandwidth_ is not None:
            gamma = 1 / (2 * self.bandwidth_**2)
            if sum(sizes) <= EXACT_UP_TO:
                space = Mercer(rbf_kernel(whole, gamma=gamma), sizes)
                run = self._run(space, self._starts(space, data, seed), list(data))
                models: dict[str, Model] = {
                    cid: KernelCenters(whole, gamma, space.split(mu)[0], space.norms(mu))
                    for cid, mu in zip(data, run.mu, strict=True)
                }
                return models, dict(zip(data, run.labels, strict=True))
            transformer = Nystroem(gamma=gamma, n_components=N_COMPONENTS, random_state=seed_of(seed, UNION, "kernel"))
        else:
            transformer = Normalizer() if kernel == "cosine" else FunctionTransformer()
        transformer.fit(whole)
        features = {cid: transformer.transform(X) for cid, X in data.items()}
        rows, shift = _centred(features)
        points = Points(list(rows.values()))
        run = self._run(points, self._starts(points, features if kernel == "cosine" else data, seed), list(data))
        models = {
            cid: MappedCenters(transformer, Centers((mu + shift).astype(whole.dtype)))
            for cid, mu in zip(data, run.mu, strict=True)
        }
        return models, dict(zip(data, run.labels, strict=True))

    def _starts(self, space: Space, data: Data, seed: int) -> Iterator[Array]:
        """Centroids of spectral clusters, then of k-means; `data` is what neighbours are looked for in."""
        first = seeds(space, list(data), self.n_clusters, seed, 0)
        for t, (cid, X) in enumerate(data.items()):
            if X.shape[0] > 1:
                _, labels = spectral_clustering(
                    X, self.n_clusters, n_neighbors="auto", bandwidth_scale=1.0, n_init=10, seed=seed, name=cid
                )
                first[t] = _centroids(space, t, labels, first[t])
        yield first
        yield own_clusters(space, list(data), self.n_clusters, seed, self.n_init)


def seeds(space: Space, ids: Sequence[str], k: int, seed: int, start: int) -> Array:
    """First centroids of each client from its own rows, with its own stream; (m, k, p)."""
    return np.stack([plus_plus(space, t, k, stream(seed, cid, f"start {start}")) for t, cid in enumerate(ids)])


def own_clusters(space: Space, ids: Sequence[str], k: int, seed: int, n_init: int) -> Array:
    """Centroids of each client's own k-means, the best of `n_init` by its own loss; (m, k, p)."""
    return np.stack([_own_best(space, t, cid, k, seed, n_init).mu for t, cid in enumerate(ids)])


def _own_best(space: Space, t: int, client_id: str, k: int, seed: int, n_init: int) -> Partition:
    """k-means of one client, from as many k-means++ starts as asked for."""
    firsts = (plus_plus(space, t, k, stream(seed, client_id, f"start {start}")) for start in range(n_init))
    found = (_lloyd(space, t, _assigned(space, t, mu)) for mu in firsts)
    return reduce(lambda a, b: b if b.loss < a.loss * (1 - ROUNDING) else a, found)


def _lloyd(space: Space, t: int, part: Partition, max_iter: int = 100) -> Partition:
    """k-means of one client until its labels settle."""
    for _ in range(max_iter):
        before, part = part, _assigned(space, t, _centroids(space, t, part.labels, part.mu))
        if np.array_equal(before.labels, part.labels):
            break
    return part


def _centred(data: Data) -> tuple[Data, Array | float]:
    """Dense rows less the mean of all of them, for the digits of their distances, and that mean; sparse rows stay."""
    if any(map(sp.issparse, data.values())):
        return data, 0.0
    total = sum(X.sum(axis=0, dtype=np.float64) for X in data.values())
    shift = (total / sum(X.shape[0] for X in data.values())).astype(next(iter(data.values())).dtype)
    return {cid: X - shift for cid, X in data.items()}, shift


def _median_distance(X: Any, seed: int) -> float:
    """Median distance between different rows of a sample; 1 where it is 0."""
    n = X.shape[0]
    sample = X[stream(seed, UNION, "bandwidth").permutation(n)[:SAMPLE]]
    D = pairwise_distances(sample)
    return float(np.median(D[np.triu_indices_from(D, 1)])) or 1.0


def _check_rows(data: Data, divergence: str) -> None:
    for cid, X in data.items():
        if divergence == "kl" and (X.data if sp.issparse(X) else X).min(initial=0) < 0:
            raise ValueError(f'client {cid!r} has entries below 0; divergence="kl" takes counts and the like')
