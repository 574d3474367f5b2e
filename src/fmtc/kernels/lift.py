"""A lift for tables with few columns: shared random Fourier features, in which a linear projection can follow shapes.

Labels of the graph view are a linear function of a row's columns. With few columns that is too little: no line
separates two rings, and four clusters on one axis have no direction each. The lift replaces the columns by cosines and
sines of random frequencies, whose inner products approximate a Gaussian kernel (Rahimi and Recht, 2007). All clients
draw the same features from the seed of the run and from column moments that add up over clients. Nothing else is
shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, sqrt

import numpy as np

from ..linalg.arrays import Array, cast, double, is_tensor, namespace, row_blocks, to_device_of
from ..linalg.neighbors import nearest_neighbors
from .scaling import Moments

FEATURES = 256  # lifted columns; 128 are enough for two columns, more columns need more
WIDTH = 0.38  # of the kernel, see `bandwidth`
RIDGE = 1e-3  # for the regression on lifted columns; 0.03, the default elsewhere, smooths two moons to an ARI of 0.8
FEW_COLUMNS = 10  # that are always lifted
BLOCK = 4096  # rows lifted at a time

# The limits of `shows_shapes` were chosen with the data sets of docs/explanation/views.md in view.
NEIGHBORS = 10  # of `cut_share`
MAX_CUT = 0.02  # of the graph view's clusters: parts that hardly touch
MAX_CUT_RATIO = 0.6  # of that to the mixture's
MAX_AGREEMENT = 0.8  # adjusted Rand index above which both views found the same clusters
MIN_SHARE = 0.25  # of the smallest cluster, relative to clusters of equal size


@dataclass(frozen=True)
class Lift:
    """The map ``x -> sqrt(2/D) [cos((x - shift) frequencies), sin((x - shift) frequencies)]``.

    Lifted rows have norm 1, and the product of two of them is about ``exp(-|x - y|^2/(2 bandwidth^2))``. They should
    *not* be centred afterwards: a large cluster near the mean would lose its direction.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.kernels.lift import draw
    >>> from fmtc.kernels.scaling import moments
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    >>> lift = draw(moments(X), seed=0)
    >>> lift.apply(X).shape
    (3, 256)
    """

    frequencies: Array  # d x D/2, already divided by the bandwidth
    shift: Array  # d, a common origin: the kernel does not depend on it, rounding does

    @property
    def n_features(self) -> int:
        """Number of lifted columns, D."""
        return 2 * self.frequencies.shape[1]

    def apply(self, X: Array) -> Array:
        """Lifted rows in the precision of X, on its device; (n, d) -> (n, D). Row by row: no batch effect.

        A row with NaN or infinity is NaN throughout.
        """
        xp, half = namespace(X), self.frequencies.shape[1]
        omega, shift = (to_device_of(A, double(X[:0])) for A in (self.frequencies, self.shift))
        place = {"device": X.device} if is_tensor(X) else {}
        lifted = xp.empty((X.shape[0], 2 * half), dtype=X.dtype, **place)
        for rows in row_blocks(X.shape[0], BLOCK):
            with np.errstate(invalid="ignore", over="ignore"):
                phase = (double(X[rows]) - shift) @ omega
                lifted[rows, :half] = cast(xp.cos(phase) / sqrt(half), X.dtype)
                lifted[rows, half:] = cast(xp.sin(phase) / sqrt(half), X.dtype)
        return lifted


def lifts(n_columns: int, n_clusters: int) -> bool:
    """Whether the graph view should lift a table of numbers: at most 10 columns, or two for each cluster.

    A table with categories, or with numbers that take two values only, should not be lifted: such a column falls into
    parts of its own, which the kernel separates better than the clusters.

    Examples
    --------
    >>> from fmtc.kernels.lift import lifts
    >>> lifts(2, 2), lifts(43, 6), lifts(16, 10)
    (True, False, True)
    """
    return n_columns <= max(FEW_COLUMNS, 2 * n_clusters)


def bandwidth(rows: Moments) -> float:
    """Width of the kernel from the pooled moments of all clients: ``0.38 d^(1/4)`` times their root total variance.

    For standardised columns that is ``0.38 d^(3/4)``. With more columns rows are further from their neighbours relative
    to all distances, and the kernel has to be wider. 1 for rows that are all equal.
    """
    if rows.means is None:
        raise ValueError("sparse rows are not lifted: their moments are about zero")
    total = float(np.sum(rows.squares)) / rows.n
    return WIDTH * len(rows.squares) ** 0.25 * sqrt(total) or 1.0


def draw(rows: Moments, seed: int) -> Lift:
    """The lift that all clients of a run have in common; the same for the same arguments.

    Frequencies are quasi-random: normal quantiles of a Sobol' sequence (Joe and Kuo's numbers, first point omitted)
    with a random shift. The approximation of the kernel is more even than with independent draws, so fewer are enough.

    Parameters
    ----------
    rows : Moments
        Of the rows of all clients together (`scaling.pool`), in the units that will be lifted.
    seed : int
        Of the run.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc  # slow to load

    width, d, half = bandwidth(rows), len(rows.squares), FEATURES // 2
    # not scipy's own scrambling: it may change with the version, and clients need not have the same one
    points = qmc.Sobol(d, scramble=False).random_base2(ceil(log2(half + 1)))[1 : half + 1]
    points = (points + np.random.default_rng(seed).random(d)) % 1.0
    frequencies = ndtri(np.clip(points, 1e-9, 1 - 1e-9)) / width
    return Lift(np.ascontiguousarray(frequencies.T), np.asarray(rows.means, dtype=np.float64))


def cut_share(X: np.ndarray, labels: np.ndarray, n_neighbors: int = NEIGHBORS) -> float:
    """Share of the nearest neighbours of all rows that have another label than their row; (n, d), (n,) -> 0 to 1."""
    neighbor = nearest_neighbors(X, min(n_neighbors, X.shape[0] - 1))[1]
    return float(np.mean(labels[neighbor] != labels[:, None]))


def shows_shapes(X: np.ndarray, graph_labels: np.ndarray, mixture_labels: np.ndarray) -> bool:
    """Whether rows fall into parts that hardly touch and that no mixture of equal ellipses follows, such as two rings.

    All of these have to hold: at most 2 % of neighbour pairs join two clusters of the graph view, at most 0.6 times as
    many as join two clusters of the mixture; the two clusterings differ (adjusted Rand index below 0.8); and the
    smallest cluster of the graph view has at least a quarter of an equal share, so that outliers are no shape.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of one client, about 300 to 1000 of them. With fewer, neighbours reach across gaps, and the answer is no.
    graph_labels, mixture_labels : array of shape (n,)
        Clusters of these rows by the graph view, lifted, and by a Gaussian mixture with one covariance for all
        clusters; both with the same number of clusters, fitted to these rows alone.
    """
    from sklearn.metrics import adjusted_rand_score

    sizes = np.bincount(graph_labels)
    k = max(len(sizes), int(mixture_labels.max()) + 1)
    if len(sizes) < k or sizes.min() < MIN_SHARE * len(graph_labels) / k:
        return False
    cut = cut_share(X, graph_labels)
    if cut > MAX_CUT or cut > MAX_CUT_RATIO * cut_share(X, mixture_labels):
        return False
    return bool(adjusted_rand_score(graph_labels, mixture_labels) < MAX_AGREEMENT)
