"""What a cluster is, in words and in the table's own units: real differences of rows, never weights of a model."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .errors import DataError, listed
from .schema import Schema

Array = np.ndarray
Lookup = Callable[[Sequence[int]], Mapping[int, str]]

FEW = 5  # a cluster with fewer rows is not described, and its size is not shown
TOP = 5  # columns named for each cluster
BINS = 12
LEAST = 0.2  # standard deviations: a smaller difference is none
CLEAR = 0.5  # standard deviations from which a column is worth a place in the name
CANDIDATES = 5000  # columns of sparse rows that are looked at: those filled most often
BLOCK = 65_536  # rows at a time
SAMPLE = 200_000  # values of a column that its bins are taken from

HASHED = (
    "The columns are words under a keyed hash, and this run does not know which: it cannot say what its clusters are "
    "about."
)
UNMATCHED = (
    "The numbers of the silos' clusters were not matched (align=False): the same number may mean something else in "
    "another silo. Read each silo by itself."
)


def held_words(held: Sequence[str], kept: Mapping[str, str | None] | None = None) -> str:
    """Say which silos the server has limited, that their cluster numbers are not common, and which model they kept.

    Parameters
    ----------
    held : sequence of str
        Silos that were capped, set aside or refused.
    kept : mapping of silo to str, optional
        Which model each kept, "alone" or a common one, where that is known.

    Examples
    --------
    >>> from fmtc.concepts import held_words
    >>> for sentence in held_words(["north"], {"north": "alone"}).split(". "):
    ...     print(sentence)
    The server capped, set aside or refused what 'north' sent: it is unlike what the other silos sent
    Do not take cluster numbers there for those of the other silos, and check columns and units there
    A model of its own rows was kept by 'north'.
    """
    said = (
        f"The server capped, set aside or refused what {listed(held)} sent: it is unlike what the other silos sent. "
        "Do not take cluster numbers there for those of the other silos, and check columns and units there."
    )
    known = {cid: word for cid in held if (word := (kept or {}).get(cid))}
    for what, some in (
        ("A model of its own rows", [cid for cid, word in known.items() if word == "alone"]),
        ("The common model, which may not suit its rows,", [cid for cid, word in known.items() if word != "alone"]),
    ):
        said += f" {what} was kept by {listed(some)}." if some else ""
    return said


@dataclass(frozen=True)
class Histogram:
    """Counts of a column in a cluster and in the other rows of the same silos.

    `edges` has one value more than there are bins, and the outer bins also hold what lies beyond; a category has
    `levels` instead.
    """

    inside: tuple[int, ...]
    outside: tuple[int, ...]
    edges: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """A column in which a cluster differs from the other rows of its silo.

    Parameters
    ----------
    column : str
    kind : {"number", "category", "word"}
    inside, outside : float
        Mean of a number, share of the rows at `level` of a category, share of the rows with a word: in the cluster, and
        in the other rows of the silo. Missing cells do not count.
    effect : float
        The difference in standard deviations of the silo's rows; for words, the difference of the mean tf-idf weights.
    level : str
        Of a category: the level whose share differs most.
    unit : str
    histogram : Histogram, optional
    agreed : bool
        Whether it has a direction. Not where silos that have the cluster clearly differ in it, or where the mean of
        their effects and that of their numbers have different signs.

    Examples
    --------
    >>> from fmtc.concepts import Difference
    >>> print(Difference("thalach", "number", 129.2, 150.1, -0.9, unit="bpm"))
    thalach 129 bpm against 150
    >>> print(Difference("sex", "category", 0.83, 0.62, 0.4, level="male"))
    sex: male 83 % against 62 %
    >>> Difference("age", "number", 61.3, 53.0, 0.9).phrase
    'older (mean 61.3 against 53.0)'
    >>> print(Difference("age", "number", 61.3, 53.0, 0.9, agreed=False))
    age differs by silo
    """

    column: str
    kind: str
    inside: float
    outside: float
    effect: float
    level: str = ""
    unit: str = ""
    histogram: Histogram | None = None
    agreed: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.values}"

    @property
    def what(self) -> str:
        """The column, and the level of a category."""
        return f"{self.column}: {self.level}" if self.kind == "category" else self.column

    @property
    def values(self) -> str:
        """Such as ``129 bpm against 150`` or ``83 % against 62 %``."""
        if not self.agreed:
            return "differs by silo"
        if self.kind == "number":
            inside, outside = both_written(self.inside, self.outside)
            return f"{inside}{' ' + self.unit if self.unit else ''} against {outside}"
        return f"{percent(self.inside)} against {percent(self.outside)}"

    @property
    def short(self) -> str:
        """In two words or three: ``low thalach``, ``mostly male``; which way is that of the numbers in `values`."""
        if not self.agreed:
            return str(self)
        if self.kind == "word":
            return self.column
        more = self.inside > self.outside
        if self.kind == "number":
            return f"{'high' if more else 'low'} {self.column}"
        what = _level(self.column, self.level)
        if more:
            return f"{'mostly' if self.inside >= 0.5 else 'more'} {what}"
        return f"{'hardly any' if self.inside < 0.05 else 'less'} {what}"

    @property
    def phrase(self) -> str:
        """As part of a sentence: ``older (mean 61 against 53)``, ``more often male (83 % against 62 %)``."""
        if not self.agreed:
            return str(self)
        more = self.inside > self.outside
        if self.kind == "word":
            return f"{self.column} in {percent(self.inside)} of the rows against {percent(self.outside)}"
        if self.kind == "category":
            return f"{'more' if more else 'less'} often {_level(self.column, self.level)} ({self.values})"
        if self.column.lower() in _COMPARED:
            return f"{_COMPARED[self.column.lower()][not more]} (mean {self.values})"
        return str(self)


_PLAIN = {"sex", "gender", "species", "country"}  # columns whose levels say what they are
_COMPARED = {"age": ("older", "younger"), "height": ("taller", "shorter"), "weight": ("heavier", "lighter")}


def _level(column: str, level: str) -> str:
    return level if column.lower() in _PLAIN and len(level) > 1 else f"{column} {level}"


@dataclass(frozen=True)
class Cluster:
    """One cluster of one silo, or of all silos together.

    Parameters
    ----------
    cluster : int
        Its number: the same in labels, pages and plots.
    rows : int
    share : float
        Of all rows of the silo.
    differences : tuple of Difference
        The columns that set it apart, the strongest first; none for a cluster of fewer than five rows.
    words : str
        Made of the differences; of a cluster of one silo, those of the same number over all silos.
    given : str
        The name that somebody gave it.
    """

    cluster: int
    rows: int
    share: float
    differences: tuple[Difference, ...] = ()
    words: str = ""
    given: str = ""

    @property
    def name(self) -> str:
        """The name that somebody gave it, or else its words."""
        return self.given or self.words

    @property
    def size(self) -> str:
        """Rows, as people may see them: few are not counted."""
        return f"< {FEW}" if 0 < self.rows < FEW else f"{self.rows:,}"

    @property
    def sentence(self) -> str:
        """What sets it apart, in the table's own terms; empty where nothing does.

        Examples
        --------
        >>> from fmtc.concepts import Cluster, Difference
        >>> sex = Difference("sex", "category", 0.83, 0.62, 0.4, level="male")
        >>> Cluster(0, 40, 0.2, (Difference("age", "number", 61.3, 53.0, 0.9), sex)).sentence
        'Older (mean 61.3 against 53.0), more often male (83 % against 62 %).'
        """
        said = ", ".join(difference.phrase for difference in self.differences)
        first = self.differences[0] if self.differences else None
        starts = first is not None and not said.startswith(first.column)  # a name of a column keeps its letters
        return f"{said[:1].upper() if starts else said[:1]}{said[1:]}." if said else ""

    def counted(self, share: str) -> str:
        """Such as ``40 rows (20 %)``; `share` as it is printed."""
        return f"{self.size} rows ({share})" if self.rows else "no rows"

    def told(self, share: str) -> str:
        """Title and differences, a line each; `share` as it is printed."""
        title = f"cluster {self.cluster}{': ' + self.name if self.name else ''}, {self.counted(share)}"
        return "\n".join([title, *(f"  {difference}" for difference in self.differences)])

    def __str__(self) -> str:
        return self.told(percent(self.share))


@dataclass(frozen=True)
class Explanation:
    """What the clusters of a model are.

    Parameters
    ----------
    clusters : tuple of Cluster
        Number by number over all silos: differences are taken within each silo and then averaged, weighted by the rows
        of the cluster, so that a shift between silos is not taken for one between clusters. A name is made here and
        nowhere else; silos, atlas and page take it over.
    silos : dict of str to tuple of Cluster
    likeness : dict of str to tuple of float or None
        For each cluster of each silo, the cosine between its differences and those of the same number in the other
        silos: near 1 where the number means the same there. None where it cannot be told.
    notes : tuple of str

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.concepts import explain
    >>> X = np.column_stack([np.repeat([150.0, 129.0], 20) + np.tile([-4.0, 4.0], 20), np.tile([1.0, 2.0], 20)])
    >>> print(explain(X, np.repeat([0, 1], 20), feature_names=["thalach", "slope"]))
    40 rows, 2 clusters
    cluster 0: high thalach, 20 rows (50 %)
      thalach 150 against 129
    cluster 1: low thalach, 20 rows (50 %)
      thalach 129 against 150
    """

    clusters: tuple[Cluster, ...]
    silos: dict[str, tuple[Cluster, ...]]
    likeness: dict[str, tuple[float | None, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        """Name of each cluster that has one, given or in words."""
        return {cluster.cluster: cluster.name for cluster in self.clusters if cluster.name}

    def of(self, client: Any) -> tuple[Cluster, ...]:
        """The clusters of one silo."""
        if str(client) not in self.silos:
            raise DataError(f"there is no silo {str(client)!r} here; there are {', '.join(map(repr, self.silos))}")
        return self.silos[str(client)]

    def renamed(self, names: Mapping[int, str]) -> Explanation:
        """The same with given names; an empty one takes a name back."""
        unknown = sorted(set(names) - {cluster.cluster for cluster in self.clusters})
        if unknown:
            raise DataError(f"there is no cluster {unknown[0]}; clusters are 0 to {len(self.clusters) - 1}")

        def with_names(clusters: Sequence[Cluster]) -> tuple[Cluster, ...]:
            return tuple(replace(one, given=names.get(one.cluster, one.given)) for one in clusters)

        silos = {client: with_names(clusters) for client, clusters in self.silos.items()}
        return replace(self, clusters=with_names(self.clusters), silos=silos)

    def __str__(self) -> str:
        rows = sum(cluster.rows for cluster in self.clusters)
        where = f" in {len(self.silos)} silos" if len(self.silos) > 1 else ""
        told = (one.told(share) for one, share in zip(self.clusters, percents_of(self.clusters), strict=True))
        return "\n".join([f"{rows:,} rows{where}, {len(self.clusters)} clusters", *told, *self.notes])

    def _repr_html_(self) -> str:
        """A table for notebooks; everything in it is escaped."""
        lines = "".join(
            f"<tr><td>{c.cluster}</td><td style='text-align:left'>{html.escape(c.name)}</td><td>{c.size}</td>"
            f"<td>{share}</td>"
            f"<td style='text-align:left'>{html.escape('; '.join(map(str, c.differences)))}</td></tr>"
            for c, share in zip(self.clusters, percents_of(self.clusters), strict=True)
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return (
            "<table><thead><tr><th>cluster</th><th style='text-align:left'>name</th><th>rows</th><th>share</th>"
            f"<th style='text-align:left'>what sets it apart</th></tr></thead><tbody>{lines}</tbody></table>{notes}"
        )

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return {
            "clusters": [asdict(cluster) for cluster in self.clusters],
            "silos": {client: [asdict(cluster) for cluster in clusters] for client, clusters in self.silos.items()},
            "likeness": {client: list(values) for client, values in self.likeness.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return cls(
            tuple(map(_cluster, document["clusters"])),
            {client: tuple(map(_cluster, clusters)) for client, clusters in document["silos"].items()},
            {client: tuple(values) for client, values in document["likeness"].items()},
            tuple(document["notes"]),
        )


def _cluster(document: Mapping[str, Any]) -> Cluster:
    return Cluster(**{**document, "differences": tuple(map(_difference, document["differences"]))})


def _difference(document: Mapping[str, Any]) -> Difference:
    kept = document["histogram"]
    histogram = None if kept is None else Histogram(**{name: tuple(values) for name, values in kept.items()})
    return Difference(**{**document, "histogram": histogram})


# ------------------------------------------------------------------------------------------------------- explaining


def explain(
    X: Any,
    labels: Any,
    *,
    schema: Schema | None = None,
    feature_names: Sequence[str] | None = None,
    client: str = "all",
    n_clusters: int | None = None,
    names: Mapping[int, str] | None = None,
) -> Explanation:
    """What the clusters of one silo are.

    Parameters
    ----------
    X : array or sparse array of shape (n_samples, n_features)
        As the table has it: numbers, codes of categories where `schema` says so, NaN where a cell is missing.
    labels : array of int of shape (n_samples,)
    schema : Schema, optional
        What the columns hold. Without it all are numbers.
    feature_names : sequence of str, optional
        Names of the columns where there is no schema; without either they are counted.
    client : str
        Name of the silo.
    n_clusters : int, optional
        Number of clusters, those without rows included; by default up to the largest label.
    names : mapping of int to str, optional
        Names that somebody gave to clusters.

    Returns
    -------
    Explanation
    """
    return explain_silos(
        {client: X}, {client: labels}, schema=schema, feature_names=feature_names, n_clusters=n_clusters, names=names
    )


def explain_silos(
    rows: Mapping[str, Any],
    labels: Mapping[str, Any],
    *,
    schema: Schema | None = None,
    feature_names: Sequence[str] | None = None,
    n_clusters: int | None = None,
    names: Mapping[int, str] | None = None,
    words: Lookup | None = None,
    is_text: bool = False,
    matched: bool = True,
    held: Collection[str] = (),
) -> Explanation:
    """What the clusters of several silos are, in each of them and over all.

    Parameters
    ----------
    rows, labels : mapping of client to array
        As in `explain`, for each silo. Sparse rows of texts are tf-idf weights.
    schema, feature_names, n_clusters, names
        As in `explain`.
    is_text : bool
        Whether columns are words.
    words : callable, optional
        Where columns are words: gets numbers of columns, returns the word of each that it knows. Without it the words
        are not known, and a note says so.
    matched : bool
        Whether the same number means the same cluster in all silos.
    held : collection of str
        Silos that the server has limited, see `held_words`: they have no part in what is said over all, unless there
        are no others.

    Returns
    -------
    Explanation
    """
    y = {client: np.asarray(labels[client]).astype(np.int64, copy=False) for client in rows}
    for client, X in rows.items():
        if X.shape[0] != len(y[client]):
            raise DataError(f"client {client!r} has {X.shape[0]} rows and {len(y[client])} labels")
    k = n_clusters or 1 + max((int(part.max(initial=0)) for part in y.values()), default=0)
    table = _Table.of(rows, schema, feature_names, is_text)
    sizes = {client: np.bincount(part, minlength=k) for client, part in y.items()}
    notes = [HASHED] if is_text and words is None else []
    if not matched and len(rows) > 1:
        notes.append(UNMATCHED)
    parts = {client: table.contrasts(X, y[client], k) for client, X in rows.items()}
    found = {client: _picked(table, part, sizes[client]) for client, part in parts.items()}
    if limited := [client for client in rows if client in held]:
        notes.append(held_words(limited))
    common = {client: X for client, X in rows.items() if client not in held} or rows
    total = np.sum([sizes[client] for client in common], axis=0)
    average = _averaged([parts[client] for client in common], [sizes[client] for client in common], is_text)
    overall = _picked(table, average, total)
    wanted = sorted({pick.column for picks in (overall, *found.values()) for some in picks for pick in some})
    known = words(wanted) if words is not None else {}
    edges = {} if is_text else table.bins(common, wanted)
    counts = {client: {} if is_text else table.counts(X, y[client], k, wanted, edges) for client, X in rows.items()}
    whole = {column: np.sum([counts[client][column] for client in common], axis=0) for column in wanted if not is_text}

    def told(
        picks: Sequence[Sequence[_Pick]], n: Array, counted: Mapping[int, Array], named: Sequence[str] | None = None
    ) -> tuple[Cluster, ...]:
        differences = [
            tuple(
                _told(table, pick, j, counted, edges, known)
                for pick in some
                if not table.is_text or pick.column in known
            )
            for j, some in enumerate(picks)
        ]
        shares = n / max(int(n.sum()), 1)
        named = _names(differences, n) if named is None else named
        return tuple(Cluster(j, int(n[j]), float(shares[j]), differences[j], named[j]) for j in range(k))

    clusters = told(overall, total, whole)
    named = [one.words for one in clusters] if matched else None
    explained = Explanation(
        clusters,
        {
            client: told(found[client], sizes[client], counts[client], named if client in common else None)
            for client in rows
        },
        dict.fromkeys(rows, (None,) * k) | _likeness({client: parts[client] for client in common}, sizes),
        tuple(notes),
    )
    return explained.renamed(names or {})


@dataclass(frozen=True, eq=False)
class _Contrasts:
    """Of one silo, for each cluster and feature: mean inside and outside, and their difference in deviations; k x f."""

    inside: Array
    outside: Array
    effect: Array
    opposed: Array | bool = False  # where silos clearly differ in the direction

    @property
    def agreed(self) -> Array:
        """Where there is a direction, and numbers show it."""
        return (np.sign(self.inside - self.outside) == np.sign(self.effect)) & ~np.asarray(self.opposed)


@dataclass(frozen=True)
class _Pick:
    feature: int
    column: int
    inside: float
    outside: float
    effect: float
    agreed: bool


@dataclass(frozen=True, eq=False)
class _Table:
    """Columns and the features made of them: a number is one, a category one for each level, a word one."""

    names: Sequence[str] | None
    kinds: Sequence[str]  # of the columns of `columns`
    columns: Array  # numbers of the columns that are looked at
    levels: Mapping[int, tuple[str, ...]]  # of categories, by column
    units: Mapping[int, str]
    place: Array  # f, which of `columns` a feature is of
    level: Array  # f, level of a category, else -1
    is_text: bool

    @classmethod
    def of(cls, rows: Mapping[str, Any], schema: Schema | None, names: Sequence[str] | None, is_text: bool) -> _Table:
        first = next(iter(rows.values()))
        d, sparse = first.shape[1], any(sp.issparse(X) for X in rows.values())
        if schema is not None and len(schema.columns) != d:
            raise DataError(f"the schema has {len(schema.columns)} columns, the rows have {d}")
        columns = np.arange(d)
        if sparse and d > CANDIDATES:
            filled = sum(np.bincount(sp.csr_array(X).indices, minlength=d) for X in rows.values())
            columns = np.sort(np.argsort(-filled, kind="stable")[:CANDIDATES])
        of = () if schema is None else schema.columns
        levels = {j: column.levels for j, column in enumerate(of) if column.levels}
        place = np.concatenate([np.full(max(1, len(levels.get(int(j), ()))), i) for i, j in enumerate(columns)])
        level = np.concatenate([np.arange(len(levels[j])) if j in levels else [-1] for j in columns.tolist()])
        kinds = ["word" if is_text else "category" if int(j) in levels else "number" for j in columns]
        return cls(
            schema.names if schema is not None else names, kinds, columns, levels,
            {j: column.unit for j, column in enumerate(of) if column.unit}, place, level, is_text,
        )  # fmt: skip

    def name(self, column: int) -> str:
        return f"column {column}" if self.names is None else str(self.names[column])

    def contrasts(self, X: Any, y: Array, k: int) -> _Contrasts:
        """Each cluster against the other rows of the silo; NaN where either side has no known cell."""
        if sp.issparse(X):
            return self._sparse_contrasts(X, y, k)
        f = len(self.place)
        known, sums, squares = np.zeros((k, f)), np.zeros((k, f)), np.zeros((k, f))
        numbers = self.level < 0
        with np.errstate(invalid="ignore"):
            centre = np.nan_to_num(_column_means(X))
        for begin in range(0, len(y), BLOCK):
            block = np.asarray(X[begin : begin + BLOCK], dtype=np.float64)
            H = sp.csr_array((np.ones(len(block)), (y[begin : begin + BLOCK], np.arange(len(block)))), (k, len(block)))
            values = np.empty((len(block), f))
            values[:, numbers] = (block - centre)[:, self.columns[self.place[numbers]]]
            for i in np.flatnonzero(~numbers):
                codes = block[:, self.columns[self.place[i]]]
                values[:, i] = np.where(np.isfinite(codes), codes == self.level[i], np.nan)
            there = np.isfinite(values)
            values = np.where(there, values, 0.0)
            known += H @ there.astype(np.float64)
            sums += H @ values
            squares += H @ np.square(values)
        shift = np.where(numbers, centre[self.columns[self.place]], 0.0)
        return _contrast(known, sums, squares, shift)

    def _sparse_contrasts(self, X: Any, y: Array, k: int) -> _Contrasts:
        X = sp.csr_array(X)[:, self.columns]
        n = np.bincount(y, minlength=k).astype(np.float64)
        H = sp.csr_array((np.ones(len(y)), (y, np.arange(len(y)))), (k, len(y)))
        sums = np.asarray((H @ X).todense(), dtype=np.float64)
        if not self.is_text:
            squares = np.asarray((H @ X.multiply(X)).todense(), dtype=np.float64)
            found = _contrast(np.repeat(n[:, None], sums.shape[1], axis=1), sums, squares, np.zeros(sums.shape[1]))
            rare = np.bincount(X.indices, minlength=X.shape[1]) < FEW
            return replace(found, effect=np.where(rare, 0.0, found.effect))
        filled = sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), X.shape)
        there = np.asarray((H @ filled).todense())
        rest = n.sum() - n
        with np.errstate(invalid="ignore", divide="ignore"):
            inside, outside = there / n[:, None], (there.sum(axis=0) - there) / rest[:, None]
            effect = sums / n[:, None] - (sums.sum(axis=0) - sums) / rest[:, None]
        return _Contrasts(inside, outside, effect)

    def bins(self, rows: Mapping[str, Any], columns: Sequence[int]) -> dict[int, Array]:
        """Edges of the bins of these columns of numbers, the same for all silos."""
        return {j: _edges([_values(X, j) for X in rows.values()]) for j in columns if j not in self.levels}

    def counts(self, X: Any, y: Array, k: int, columns: Sequence[int], edges: Mapping[int, Array]) -> dict[int, Array]:
        """Rows of each cluster in each bin of these columns; k x bins."""
        found = {}
        for j in columns:
            values = _values(X, j)
            there = np.isfinite(values)
            if j in self.levels:
                bins, size = values[there].astype(np.int64), len(self.levels[j])
            else:
                bins, size = np.searchsorted(edges[j][1:-1], values[there], side="right"), len(edges[j]) - 1
            found[j] = np.bincount(y[there] * size + bins, minlength=k * size).reshape(k, size)
        return found


def _values(X: Any, column: int) -> Array:
    """One column, in double precision."""
    return np.asarray(X[:, [column]].todense()).ravel() if sp.issparse(X) else np.asarray(X[:, column], dtype=float)


def _edges(parts: Sequence[Array]) -> Array:
    """Bins of equal width between the 1st and the 99th percentile; one for each value where there are few."""
    step = max(1, sum(map(len, parts)) // SAMPLE)
    values = np.concatenate([part[::step] for part in parts])
    values = values[np.isfinite(values)]
    different = np.unique(values)
    if len(different) < 2:
        middle = float(different[0]) if len(different) else 0.0
        return np.array([middle - 0.5, middle + 0.5])
    if len(different) <= BINS:
        middles = (different[1:] + different[:-1]) / 2
        return np.concatenate([[different[0]], middles, [different[-1]]])
    low, high = np.quantile(values, [0.01, 0.99])
    if high - low <= 0:  # nearly all are equal
        low, high = different[0], different[-1]
    return np.linspace(low, high, BINS + 1)


def _column_means(X: Array) -> Array:
    total, known = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for begin in range(0, len(X), BLOCK):
        block = np.asarray(X[begin : begin + BLOCK], dtype=np.float64)
        there = np.isfinite(block)
        total += np.where(there, block, 0.0).sum(axis=0)
        known += there.sum(axis=0)
    return np.divide(total, known, out=np.zeros_like(total), where=known > 0)


def _contrast(known: Array, sums: Array, squares: Array, shift: Array) -> _Contrasts:
    """From sums by cluster of values less `shift`; all of shape (k, f)."""
    n, total = known.sum(axis=0), sums.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside, outside = sums / known, (total - sums) / (n - known)
        variance = squares.sum(axis=0) / n - np.square(total / n)
        noise = 1e-12 * (np.square(shift) + squares.sum(axis=0) / n)
        effect = np.where(variance > noise, (inside - outside) / np.sqrt(np.maximum(variance, noise)), 0.0)
    effect = np.where(np.isfinite(inside) & np.isfinite(outside), effect, np.nan)
    return _Contrasts(inside + shift, outside + shift, effect)


def _averaged(parts: Sequence[_Contrasts], sizes: Sequence[Array], is_text: bool) -> _Contrasts:
    """Over silos, weighted by the rows of the cluster there; silos with few of them do not count."""
    weight = np.stack([np.where(n >= FEW, n, 0) for n in sizes]).astype(np.float64)[:, :, None]
    effect = np.stack([part.effect for part in parts])
    weight = np.where(np.isfinite(effect), weight, 0.0)
    whole = weight.sum(axis=0)

    def mean(values: Array) -> Array:
        there = np.where(weight > 0, values, 0.0)
        return np.divide((weight * there).sum(axis=0), whole, out=np.full(whole.shape, np.nan), where=whole > 0)

    inside, outside = (np.stack([getattr(part, side) for part in parts]) for side in ("inside", "outside"))
    clear = _in_deviations(inside - outside, mean(inside), mean(outside)) if is_text else effect
    clear = np.where(np.abs(clear) >= np.stack([_least(n)[:, None] for n in sizes]), clear, 0.0)
    opposed = np.asarray((clear > 0).any(axis=0) & (clear < 0).any(axis=0))
    return _Contrasts(mean(inside), mean(outside), mean(effect), opposed)


def _in_deviations(gap: Array, inside: Array, outside: Array) -> Array:
    """A difference of shares in standard deviations."""
    p = (inside + outside) / 2
    return np.divide(gap, np.sqrt(p * (1 - p)), out=np.zeros_like(gap), where=(p > 0) & (p < 1))


def _least(sizes: Array) -> Array:
    """Of each cluster of a silo, the effect from which a column is told: beyond two standard errors."""
    rest = sizes.sum() - sizes
    with np.errstate(divide="ignore"):
        least = np.maximum(LEAST, 2 * np.sqrt(1 / sizes + 1 / rest))
    return np.where(sizes < FEW, np.inf, least)


def _picked(table: _Table, found: _Contrasts, sizes: Array) -> list[list[_Pick]]:
    """For each cluster the columns that set it apart, strongest first; a category by its level that differs most."""
    picks: list[list[_Pick]] = []
    for j, least in enumerate(_least(sizes).tolist()):
        inside, outside, effect = found.inside[j], found.outside[j], np.nan_to_num(found.effect[j])
        agreed = found.agreed[j]
        usable = (effect > 0) & agreed & np.isfinite(least) if table.is_text else np.abs(effect) >= least
        gap = np.where(table.level >= 0, np.abs(np.nan_to_num(inside - outside)), np.abs(effect))
        gap = gap * (1 + 1e-6 * (effect > 0))  # of two levels, the one that the cluster has more of
        best: dict[int, int] = {}
        for i in np.flatnonzero(usable).tolist():
            place = int(table.place[i])
            if place not in best or gap[i] > gap[best[place]]:
                best[place] = i
        order = sorted(best.values(), key=lambda i: -abs(effect[i]))[:TOP]
        picks.append(
            [
                _Pick(
                    i, int(table.columns[table.place[i]]), float(inside[i]), float(outside[i]), float(effect[i]),
                    bool(agreed[i]),
                )
                for i in order
            ]
        )  # fmt: skip
    return picks


def _told(
    table: _Table,
    pick: _Pick,
    j: int,
    counts: Mapping[int, Array],
    edges: Mapping[int, Array],
    known: Mapping[int, str],
) -> Difference:
    """A difference with its names and counts."""
    kind = table.kinds[int(table.place[pick.feature])]
    histogram, level = None, ""
    if pick.column in counts:
        inside = counts[pick.column][j]
        outside = counts[pick.column].sum(axis=0) - inside
        names = table.levels.get(pick.column, ())
        ends = () if names else tuple(edges[pick.column].tolist())
        histogram = Histogram(tuple(inside.tolist()), tuple(outside.tolist()), ends, tuple(names))
    if kind == "category":
        level = table.levels[pick.column][int(table.level[pick.feature])]
    name = known[pick.column] if kind == "word" else table.name(pick.column)
    unit = table.units.get(pick.column, "")
    return Difference(name, kind, pick.inside, pick.outside, pick.effect, level, unit, histogram, pick.agreed)


def _names(differences: Sequence[Sequence[Difference]], sizes: Array) -> list[str]:
    """Short names in words; two clusters with the same get more words."""

    def made(some: Sequence[Difference], many: int) -> tuple[str, ...]:
        some = [one for one in some if one.agreed] or some
        clear = [one for one in some if abs(one.effect) >= CLEAR or one.kind == "word"] or list(some[:1])
        return tuple(one.short for one in clear[: many + (bool(some) and some[0].kind == "word")])

    names = [made(some, 2) for some in differences]
    for many in range(3, TOP + 1):
        often = Counter(map(frozenset, names))
        names = [made(differences[j], many) if often[frozenset(name)] > 1 else name for j, name in enumerate(names)]
    told = any(differences)
    return [
        ", ".join(name) if name else "no clear difference" if told and size >= FEW else ""
        for name, size in zip(names, sizes.tolist(), strict=True)
    ]


def _likeness(parts: Mapping[str, _Contrasts], sizes: Mapping[str, Array]) -> dict[str, tuple[float | None, ...]]:
    """Cosine of the differences of each cluster with the mean of those of the same number in the other silos."""
    if len(parts) < 2:
        return {client: (None,) * len(sizes[client]) for client in parts}
    units = {}
    for client, part in parts.items():
        U = np.where((sizes[client] >= FEW)[:, None], np.nan_to_num(part.effect), 0.0)
        norm = np.linalg.norm(U, axis=1, keepdims=True)
        units[client] = np.divide(U, norm, out=np.zeros_like(U), where=norm > 0)
    whole = np.sum(list(units.values()), axis=0)
    found = {}
    for client, U in units.items():
        rest = whole - U
        norm = np.linalg.norm(rest, axis=1)
        cosine = np.divide((U * rest).sum(axis=1), norm, out=np.full(len(U), np.nan), where=norm > 1e-9)
        cosine[~U.any(axis=1)] = np.nan
        found[client] = tuple(None if np.isnan(value) else float(value) for value in cosine)
    return found


# ----------------------------------------------------------------------------------------------------------- words


def both_written(inside: float, outside: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see their difference."""
    largest, gap = max(abs(inside), abs(outside)), abs(inside - outside)
    if not largest or not gap:
        return f"{inside:.3g}", f"{outside:.3g}"
    digits = max(0, 1 - int(np.floor(np.log10(gap))))
    if largest >= 1e7 or digits > 6:
        return f"{inside:.3g}", f"{outside:.3g}"
    both = [f"{value:,.{digits}f}" for value in (inside, outside)]
    both = [text.lstrip("-") if not text.strip("-0.") else text.replace("-", "−") for text in both]
    return both[0], both[1]


def written(value: float) -> str:
    """One number with as many digits as it takes to read it."""
    size = abs(value)
    if not size or size >= 1e7 or size < 1e-3:
        return f"{value:.2g}"
    return f"{value:,.{max(0, 1 - int(np.floor(np.log10(size))))}f}"


def percent(share: float) -> str:
    """A share as people write it; a small one is not called nothing."""
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def percents(shares: Sequence[float]) -> list[str]:
    """Shares of one whole as `percent`, rounded so that they add up as printed.

    Examples
    --------
    >>> from fmtc.concepts import percents
    >>> percents([0.574, 0.423, 0.003]), percents([1 / 3, 1 / 3, 1 / 3])
    (['58 %', '42 %', '< 1 %'], ['34 %', '33 %', '33 %'])
    """
    exact = 100 * np.asarray(shares, dtype=np.float64)
    whole = np.floor(exact + 1e-9)
    rest = round(float(exact.sum() - whole.sum()))
    whole[np.argsort(whole - exact, kind="stable")[:rest]] += 1
    return ["< 1 %" if share > 0 and not n else f"{n:.0f} %" for share, n in zip(shares, whole, strict=True)]


def percents_of(clusters: Sequence[Cluster]) -> list[str]:
    """Printed shares of all clusters of a silo, or of all silos."""
    return percents([cluster.share for cluster in clusters])


def empty_clusters_sentence(sizes: Iterable[Sequence[int] | Array], *, all_silos: bool = True) -> str:
    """Which clusters have no row, and what to do; empty where there is none.

    Parameters
    ----------
    sizes : iterable of array-like of shape (k,)
        Of each silo, the rows of each cluster.
    all_silos : bool
        Whether these are all silos of the run; other silos may have what one lacks.

    Examples
    --------
    >>> from fmtc.concepts import empty_clusters_sentence
    >>> empty_clusters_sentence([[30, 12, 0, 0], [20, 0, 0, 0]])
    'clusters 2 and 3 have no rows: fit again with fewer clusters (2 of 4 have rows)'
    >>> empty_clusters_sentence([[30, 12, 0]], all_silos=False)
    'cluster 2 has no rows in this silo'
    """
    total = np.sum([np.asarray(counts) for counts in sizes], axis=0)
    empty = [str(j) for j in np.flatnonzero(total == 0)]
    if not empty:
        return ""
    listed = empty if len(empty) <= 6 else [*empty[:5], f"{len(empty) - 5} more"]
    names = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
    said = f"cluster{'s' if len(empty) > 1 else ''} {names} {'have' if len(empty) > 1 else 'has'} no rows"
    if not all_silos:
        return f"{said} in this silo"
    return f"{said}: fit again with fewer clusters ({len(total) - len(empty)} of {len(total)} have rows)"


__all__ = [
    "Cluster",
    "Difference",
    "Explanation",
    "Histogram",
    "both_written",
    "empty_clusters_sentence",
    "explain",
    "explain_silos",
    "held_words",
    "percent",
    "percents",
    "percents_of",
    "written",
]
