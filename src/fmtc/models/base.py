"""What any fitted model of a silo can say: of new rows, of its clusters, of itself. No model holds a training row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..errors import InputError, NotFiniteError
from ..kernels.lift import Lift
from ..kernels.ranks import Calibration, RowScores
from ..kernels.scaling import Scaling, kept_columns
from ..linalg.arrays import is_tensor, namespace, row_blocks
from ..mixture.cells import posteriors

Array = np.ndarray
Presence = tuple[float | None, ...]  # of one silo, by concept: share of rows, 0 for none, None for fewer than five

LATER = {"optional": True}  # of a field that older files of models do not have: it then has its default
BLOCK = 8_192  # new rows projected at a time: what is made on the way stays in cache, and is worth a thread
TRACE = 1e-6  # share below which a model has no rows in a concept
NOT_CALIBRATED = (
    "the model is not calibrated: call calibrate() on the model that was fitted, with its rows, or fit with "
    "`fmtc fit --calibrate`"
)
NO_CALIBRATION = "models of private runs are not calibrated: they have no confidence, and cannot test for drift"
MOST = 1e6  # log-odds where there is no second cluster


@dataclass(frozen=True, kw_only=True)
class Units:
    """What is done to columns: by a silo's model, or by all clients of a run."""

    scaling: Scaling | None = None
    lift: Lift | None = None  # after that, in the graph view
    axes: Array | None = None  # d x r, coordinates of a mixture of many columns
    origin: Array | None = None  # r

    @property
    def keep(self) -> Array | None:
        """Numbers of the columns that are looked at; None: all."""
        return None if self.scaling is None else self.scaling.keep


@dataclass(frozen=True, eq=False)
class Member:
    """Where the concepts of one silo lie.

    Parameters
    ----------
    signatures : ndarray of shape (k, f)
        Along features, in units that all silos share, the silo's own mean taken out.
    features : ndarray of int of shape (f,)
        Numbers of the features: columns that are numbers, then levels of categories.
    presence : Presence, optional
    amounts : ndarray of shape (k, f), optional
        The same in the units of the table.
    """

    signatures: Array
    features: Array
    presence: Presence | None = None
    amounts: Array | None = None


@dataclass(frozen=True, eq=False)
class Parts:
    """What each feature of a row adds to the score of one cluster less that of another."""

    features: Array  # f, their numbers
    contributions: Array  # f
    start: float


class Steps(NamedTuple):
    """Smallest step of each feature of a row, in the units of the table, that takes it to another cluster's border."""

    features: Array  # f, their numbers
    steps: Array  # f, not finite where there is none


class Drawn(NamedTuple):
    """A model's scores in a file of ONNX operators."""

    scores: str  # name of the output: logarithm of the probabilities but for a row's constant
    columns: int | str  # of X; a name where their number is not known
    missing: str  # what a missing cell counts as, in a sentence
    levels: tuple[int, ...]  # of each column, 0 for numbers; empty where all columns are numbers


class ClientModel(ABC):
    """What a silo keeps for good, and all that others ask of it.

    A new kind of model is one subclass in a file of its own, and one line in `KINDS`. Nobody outside this room asks
    which kind a model is. Dataclass fields are what files hold.
    """

    kind: ClassVar[str]  # name in files
    is_public: ClassVar[bool] = False  # of a private run: no silo's own
    calibration: Calibration | None = None  # of scores of new rows
    shares: Array | None  # of clusters; 0 for a concept that the silo lacks
    centers: Any  # (k, q), in the space of `transform`; of a mixture and of anchors (k, d), in the units of X

    # ------------------------------------------------------------------------------------------------ itself

    @property
    @abstractmethod
    def k(self) -> int:
        """Number of clusters."""

    @abstractmethod
    def fits(self, d: int, k: int) -> bool:
        """Whether the arrays have the shapes that d columns and k clusters need."""

    @property
    def rescales(self) -> bool:
        """Whether columns were brought to a common spread."""
        scaling = self.units.scaling
        return scaling is not None and bool((scaling.stretch != 1).any())

    @property
    @abstractmethod
    def holds_words(self) -> bool:
        """Whether the columns are like words: weighed as these are, or sparse, so that most rows lack each."""

    @property
    def units(self) -> Units:
        """What it does to columns."""
        return Units()

    @property
    def why_final(self) -> str:
        """Why it cannot go on with new rows; empty where it can."""
        return ""

    @abstractmethod
    def renumbered(self, order: Array) -> Any:
        """The same with other numbers: cluster ``order[j]`` takes number j, and -1 is a concept that it lacks."""

    # ---------------------------------------------------------------------------------------------- new rows

    @abstractmethod
    def scaled(self, X: Any) -> Any:
        """New rows in the units that distances between rows are taken in."""

    def weighted(self, X: Any) -> Any:
        """tf-idf weights of texts under the numbers of their columns; the same rows where the model weighs none."""
        weights, keep = self.scaled(X), self.units.keep
        if keep is None or not sp.issparse(weights):
            return weights
        return sp.csr_array((weights.data, keep[weights.indices], weights.indptr), shape=X.shape)

    def columns(self, width: int) -> Array:
        """Numbers of the columns that it looks at, of so many."""
        keep = self.units.keep
        return np.arange(width) if keep is None else keep

    @abstractmethod
    def scores(self, X: Any) -> Array:
        """What the cluster of a row has the largest of, on a scale that rows share; (n, d) -> (n, k)."""

    def assign(self, X: Any) -> Array:
        """Cluster of each new row; (n, d) -> (n,). Row by row: no batch effect."""
        return self.scores(X).argmax(axis=1)

    def probabilities(self, X: Any) -> Array:
        """Probability of each cluster; (n, d) -> (n, k)."""
        return softmax(self.scores(X), X.dtype)

    @abstractmethod
    def transform(self, X: Any) -> Array:
        """Normalised projections; of a mixture or of anchors, distances to the clusters; (n, d) -> (n, k)."""

    def plotted(self, X: Any) -> Array:
        """Rows in the space that tells clusters apart, for pictures."""
        return self.transform(X)

    # -------------------------------------------------------------------------------------------- confidence

    def row_scores(self, X: Any) -> RowScores:
        """Scores of new rows; of one cluster only, the density takes the place of odds; (n, d) -> three times (n,)."""
        raise InputError(NO_CALIBRATION)

    @property
    def low_only(self) -> bool:
        """Whether a long projection is as usual as can be: rows are not centred, so that a model knows 0 least."""
        return False

    def calibrated(self) -> Calibration:
        """The calibration, or an error that says how to get one."""
        if self.calibration is None:
            raise InputError(NO_CALIBRATION if self.is_public else NOT_CALIBRATED)
        return self.calibration

    def confidence(self, X: Any) -> Array:
        """Share of the silo's own rows whose cluster is less certain; (n, d) -> (n,)."""
        return self.calibrated().confidence(self.row_scores(X))

    # ----------------------------------------------------------------------------------------- what clusters are

    @abstractmethod
    def member(self, presence: Presence | None) -> Member:
        """Where its concepts lie along the features."""

    @abstractmethod
    def directions(self) -> tuple[Array, Array]:
        """How each cluster lies along columns in their common units, and the numbers of these; (k, f), (f,)."""

    def presence(self, known: Presence | None) -> Presence | None:
        """What is known of the silo's shares: of its rows or, where it lacks concepts, of its model."""
        if known is not None or self.shares is None or (self.shares > TRACE).all():
            return known
        return tuple(float(share) if share > TRACE else 0.0 for share in self.shares)

    # -------------------------------------------------------------------------------------- why a row is in its own

    def parts(self, x: Any, first: int, second: int) -> Parts | None:
        """What each feature adds to the margin of two clusters; None where scores are no sum over columns."""
        return None

    def borders(self, x: Any, first: int) -> Steps | None:
        """Steps from the first cluster to the next; None where no formula knows them."""
        return None

    @property
    def spreads(self) -> Array | None:
        """About how far columns that are numbers vary, in the units of the table; None where that is not known."""
        return None

    @property
    def usual(self) -> Array | None:
        """What columns that are numbers have where nothing is known of them; None: a cell may be missing."""
        return None

    # ------------------------------------------------------------------------------------------------------ ONNX

    @abstractmethod
    def onnx(self, w: Any, X: str) -> Drawn:
        """Scores as plain operators, which `w` writes; see `fmtc.artifacts.onnx`."""


# ------------------------------------------------------------------------------------------- for all kinds of model


def sizes_of(levels: Array | None) -> tuple[int, ...]:
    """Levels of each column as a tuple; empty where all columns are numbers."""
    return () if levels is None else tuple(int(size) for size in levels)


def have_shapes(of: Any, **shapes: tuple[int, ...]) -> bool:
    """Whether those of the named arrays that there are have these shapes."""
    found = {name: getattr(of, name) for name in shapes}
    return all(array is None or array.shape == shapes[name] for name, array in found.items())


def are_columns(keep: Array | None, d: int) -> bool:
    """Whether these are numbers of some of d columns; None: of all."""
    return keep is None or (keep.dtype.kind == "i" and bool(((keep >= 0) & (keep < d)).all()))


def weights_of(presence: Presence | None, shares: Array | None, k: int) -> Array:
    """Shares that a silo's mean is taken with: of its rows, else of its model, else equal ones; they sum to 1."""
    known = shares if presence is None else np.array([share or 0.0 for share in presence])
    if known is None or not np.sum(known) > 0:
        return np.full(k, 1 / k)
    return np.asarray(known / np.sum(known), dtype=np.float64)


def taken(array: Array, order: Array, missing: float = 0) -> Array:
    """Rows of an array under other numbers: row ``order[j]`` takes place j, `missing` where that is -1."""
    found = np.full((len(order), *array.shape[1:]), missing, array.dtype)
    found[order >= 0] = array[order[order >= 0]]
    return found


def dense_row(x: Any) -> Array:
    """The only row of x, in double precision."""
    return np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float64)[0]


def as_row_scores(scores: Array, density: Array, length: Array | None = None) -> RowScores:
    """Scores of rows by cluster, as a calibration takes them: the largest less the second; of one cluster, density.

    Concepts that a silo lacks have no score, and leave the odds at a large number.
    """
    if scores.shape[1] == 1:
        return RowScores(density, density, length)
    two = np.partition(scores, -2, axis=1)[:, -2:]
    with np.errstate(invalid="ignore"):
        odds = np.minimum(np.nan_to_num(two[:, 1] - two[:, 0], nan=0.0, posinf=MOST), MOST)
    return RowScores(odds, density, length)


def softmax(scores: Array, dtype: Any, scale: Array | float = 1.0) -> Array:
    """Softmax of each row over its scale; the cluster with the largest score, which `assign` takes, has the most."""
    P = posteriors(scores / scale)[0].astype(dtype)
    label = scores.argmax(axis=1)[:, None]
    most = np.take_along_axis(P, label, axis=1)
    tied = most == P
    np.put_along_axis(tied, label, False, axis=1)
    return np.where(tied, np.nextafter(most, P.dtype.type(0)), P)


@np.errstate(invalid="ignore", over="ignore")
def finite(Y: Array) -> Array:
    """The same projections, or an error: NaN and infinity in a row show in every column of its projection."""
    if not np.isfinite(float(Y.sum())) and not namespace(Y).isfinite(Y).all():  # the sum alone may just be too large
        raise NotFiniteError("the rows hold NaN, infinity, or values too large for their number format")
    return Y


def without_infinity(X: Any) -> Any:
    """The same rows, whose missing cells are NaN, or an error where a cell is infinite."""
    if np.isinf(X.data if sp.issparse(X) else X).any():
        raise NotFiniteError("the rows hold infinity, or values too large for their number format")
    return X


def blockwise(X: Any, keep: Array | None, answer: Callable[[Any], Array]) -> Array:
    """Answer for all rows, a block at a time; sparse rows are few bytes each and go in one block."""
    n = X.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):  # `finite` says it better
        if sp.issparse(X) or is_tensor(X) or n <= BLOCK:
            return answer(kept_columns(X, keep))
        return np.concatenate([answer(kept_columns(X[rows], keep)) for rows in row_blocks(n, BLOCK)])


__all__ = ["ClientModel", "Drawn", "Member", "Parts", "Presence", "Steps", "Units"]
