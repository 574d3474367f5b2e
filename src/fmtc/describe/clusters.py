"""What a cluster is, in words and in the table's own units: real differences of rows, never weights of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..kernels.alignment import has_direction, likeness
from .contrasts import TOP, Contrasts, Table, counted
from .documents import Document
from .features import Features, Named
from .words import FEW, HASHED, UNMATCHED, both_written, held_words, html_table, percent, percents, with_unit

Array = np.ndarray

CLEAR = 0.5  # standard deviations from which a column is worth a place in the name
_PLAIN = {"sex", "gender", "species", "country"}  # columns whose levels say what they are


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
class Difference(Named):
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
    >>> from fmtc.describe import Difference
    >>> print(Difference("thalach", "number", 129.2, 150.1, -0.9, unit="bpm"))
    thalach 129 bpm against 150
    >>> print(Difference("sex", "category", 0.83, 0.62, 0.4, level="male"))
    sex: male 83 % against 62 %
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
    def values(self) -> str:
        """Such as ``129 bpm against 150`` or ``83 % against 62 %``."""
        if not self.agreed:
            return "differs by silo"
        if self.kind == "number":
            inside, outside = both_written(self.inside, self.outside)
            return f"{with_unit(inside, self.unit)} against {outside}"
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
        is_plain = self.column.lower() in _PLAIN and len(self.level) > 1
        what = self.level if is_plain else f"{self.column} {self.level}"
        if more:
            return f"{'mostly' if self.inside >= 0.5 else 'more'} {what}"
        return f"{'hardly any' if self.inside < 0.05 else 'less'} {what}"


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

    def told(self, share: str) -> str:
        """Title and differences, a line each; `share` as it is printed."""
        rows = f"{self.size} rows ({share})" if self.rows else "no rows"
        title = f"cluster {self.cluster}{': ' + self.name if self.name else ''}, {rows}"
        return "\n".join([title, *(f"  {difference}" for difference in self.differences)])

    def __str__(self) -> str:
        return self.told(percent(self.share))


@dataclass(frozen=True)
class Explanation(Document):
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
    >>> from fmtc.describe import Features
    >>> from fmtc.describe.clusters import explain_silos
    >>> X = np.column_stack([np.repeat([150.0, 129.0], 20) + np.tile([-4.0, 4.0], 20), np.tile([1.0, 2.0], 20)])
    >>> print(explain_silos({"all": X}, {"all": np.repeat([0, 1], 20)}, Features(["thalach", "slope"])))
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

    def of(self, silo: Any) -> tuple[Cluster, ...]:
        """The clusters of one silo."""
        if str(silo) not in self.silos:
            raise DataError(f"there is no silo {str(silo)!r} here; there are {', '.join(map(repr, self.silos))}")
        return self.silos[str(silo)]

    def renamed(self, names: Mapping[int, str]) -> Explanation:
        """The same with given names; an empty one takes a name back."""
        unknown = sorted(set(names) - {cluster.cluster for cluster in self.clusters})
        if unknown:
            raise DataError(f"there is no cluster {unknown[0]}; clusters are 0 to {len(self.clusters) - 1}")

        def with_names(clusters: Sequence[Cluster]) -> tuple[Cluster, ...]:
            return tuple(replace(one, given=names.get(one.cluster, one.given)) for one in clusters)

        silos = {silo: with_names(clusters) for silo, clusters in self.silos.items()}
        return replace(self, clusters=with_names(self.clusters), silos=silos)

    def __str__(self) -> str:
        rows = sum(cluster.rows for cluster in self.clusters)
        where = f" in {len(self.silos)} silos" if len(self.silos) > 1 else ""
        told = (one.told(share) for one, share in zip(self.clusters, percents_of(self.clusters), strict=True))
        return "\n".join([f"{rows:,} rows{where}, {len(self.clusters)} clusters", *told, *self.notes])

    def _repr_html_(self) -> str:
        """A table for notebooks; everything in it is escaped."""
        heads = [("cluster", False), ("name", True), ("rows", False), ("share", False), ("what sets it apart", True)]
        lines = [
            (str(c.cluster), c.name, c.size, share, "; ".join(map(str, c.differences)))
            for c, share in zip(self.clusters, percents_of(self.clusters), strict=True)
        ]
        return html_table(heads, lines, self.notes)


def percents_of(clusters: Sequence[Cluster]) -> list[str]:
    """Printed shares of all clusters of a silo, or of all silos."""
    return percents([cluster.share for cluster in clusters])


# ------------------------------------------------------------------------------------------------------- explaining


def explain_silos(
    rows: Mapping[str, Any],
    labels: Mapping[str, Any],
    features: Features,
    *,
    n_clusters: int | None = None,
    names: Mapping[int, str] | None = None,
    matched: bool = True,
    held: Collection[str] = (),
) -> Explanation:
    """What the clusters of several silos are, in each of them and over all.

    Parameters
    ----------
    rows : mapping of silo to array or sparse array of shape (n_samples, n_features)
        As the table has it: numbers, codes of categories, NaN where a cell is missing; of texts tf-idf weights.
    labels : mapping of silo to array of int of shape (n_samples,)
    features : Features
        What columns are called. Of texts whose words are not known, a note says so.
    n_clusters : int, optional
        Number of clusters, those without rows included; by default up to the largest label.
    names : mapping of int to str, optional
        Names that somebody gave to clusters.
    matched : bool
        Whether the same number means the same cluster in all silos.
    held : collection of str
        Silos that the server has limited, see `held_words`: they have no part in what is said over all, unless there
        are no others.

    Returns
    -------
    Explanation
    """
    y = {silo: np.asarray(labels[silo]).astype(np.int64, copy=False) for silo in rows}
    k = n_clusters or 1 + max((int(part.max(initial=0)) for part in y.values()), default=0)
    common = [silo for silo in rows if silo not in held] or list(rows)
    table = Table.of(rows, features)
    parts = {silo: table.contrasts(X, y[silo], k) for silo, X in rows.items()}
    own = {silo: parts[silo] for silo in common}
    whole = Contrasts.averaged(list(own.values()), features.is_text)
    found = _Found.of(table, parts | {ALL: whole}, rows, y, common)
    clusters = found.clusters(ALL)
    words = [one.words for one in clusters] if matched else None
    silos = {silo: found.clusters(silo, words if silo in common else None) for silo in rows}
    alike: dict[str, tuple[float | None, ...]] = dict.fromkeys(rows, (None,) * k)
    alike |= _likeness(own)
    notes = _notes(features, matched or len(rows) < 2, [silo for silo in rows if silo in held])
    return Explanation(clusters, silos, alike, notes).renamed(names or {})


def _notes(features: Features, comparable: bool, limited: Sequence[str]) -> tuple[str, ...]:
    """What must be known to read an explanation."""
    said = [HASHED] if features.is_hashed else []
    said += [] if comparable else [UNMATCHED]
    return (*said, *([held_words(limited)] if limited else []))


ALL = ""  # in place of a silo's name: all of them together


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found of each silo and of all together, and what it takes to say it."""

    table: Table
    parts: Mapping[str, Contrasts]
    picks: Mapping[str, list[list[int]]]  # features of each cluster
    words: Mapping[int, str]
    edges: Mapping[int, Array]
    counts: Mapping[str, Mapping[int, Array]]  # by column, k x bins; of texts none

    @classmethod
    def of(
        cls, table: Table, parts: Mapping[str, Contrasts], rows: Mapping[str, Any], labels: Mapping[str, Array],
        common: Sequence[str],
    ) -> _Found:  # fmt: skip
        """Features that are worth telling, and how columns are spread."""
        picks = {silo: table.picked(part) for silo, part in parts.items()}
        chosen = np.unique([i for some in picks.values() for picked in some for i in picked]).astype(np.int64)
        columns = np.unique(table.columns[chosen]).tolist()
        words = table.features.known_words(columns)
        edges = {} if table.features.is_text else table.edges({silo: rows[silo] for silo in common}, columns)
        counts = {silo: counted(X, labels[silo], len(parts[ALL].sizes), edges) for silo, X in rows.items()}
        counts[ALL] = {j: np.sum([counts[silo][j] for silo in common], axis=0) for j in edges}
        return cls(table, parts, picks, words, edges, counts)

    def clusters(self, silo: str, words: Sequence[str] | None = None) -> tuple[Cluster, ...]:
        """The clusters of a silo, or of all; `words` are those of all."""
        n, is_text, columns = self.parts[silo].sizes, self.table.features.is_text, self.table.columns
        differences = [
            tuple(self._difference(silo, j, i) for i in some if not is_text or int(columns[i]) in self.words)
            for j, some in enumerate(self.picks[silo])
        ]
        shares, words = n / max(int(n.sum()), 1), _names(differences, n) if words is None else words
        return tuple(Cluster(j, int(n[j]), float(shares[j]), differences[j], words[j]) for j in range(len(n)))

    def _difference(self, silo: str, j: int, i: int) -> Difference:
        """What sets cluster j apart in feature i."""
        part, features, column = self.parts[silo], self.table.features, int(self.table.columns[i])
        levels, level, histogram = features.levels_of(column), int(self.table.level[i]), None
        if column in self.counts[silo]:
            counts = self.counts[silo][column]
            edges = () if levels else tuple(self.edges[column].tolist())
            outside = counts.sum(axis=0) - counts[j]
            histogram = Histogram(tuple(counts[j].tolist()), tuple(outside.tolist()), edges, levels)
        inside, outside, effect = (float(getattr(part, name)[j, i]) for name in ("inside", "outside", "effect"))
        return Difference(
            features.name(column, self.words), features.kind(column), inside, outside, float(np.nan_to_num(effect)),
            features.level(column, level), features.unit(column), histogram, bool(part.agreed[j, i]),
        )  # fmt: skip


def _likeness(parts: Mapping[str, Contrasts]) -> dict[str, tuple[float | None, ...]]:
    """Cosine of the differences of each cluster with the mean of those of the same number in the other silos."""
    large = np.array([part.sizes >= FEW for part in parts.values()])
    signatures = np.where(large[:, :, None], np.nan_to_num([part.effect for part in parts.values()]), 0.0)
    found = likeness(signatures, large)
    told = np.where(has_direction(signatures) & found.met, found.cosine, np.nan)
    return {
        silo: tuple(None if np.isnan(value) else float(value) for value in row)
        for silo, row in zip(parts, told, strict=True)
    }


def _names(differences: Sequence[Sequence[Difference]], sizes: Array) -> list[str]:
    """Short names in words; two clusters with the same get more words."""
    names = [_clearest(some, 2) for some in differences]
    for many in range(3, TOP + 1):
        often = Counter(map(frozenset, names))
        names = [
            _clearest(differences[j], many) if often[frozenset(name)] > 1 else name for j, name in enumerate(names)
        ]
    unnamed = "no clear difference" if any(differences) else ""
    return [", ".join(name) or (unnamed if size >= FEW else "") for name, size in zip(names, sizes, strict=True)]


def _clearest(differences: Sequence[Difference], many: int) -> tuple[str, ...]:
    """So many of the clearest differences in two words or three each; of words one more."""
    some = [one for one in differences if one.agreed] or differences
    clear = [one for one in some if abs(one.effect) >= CLEAR or one.kind == "word"] or some[:1]
    return tuple(one.short for one in clear[: many + (bool(some) and some[0].kind == "word")])


__all__ = ["Cluster", "Difference", "Explanation", "Histogram", "explain_silos", "percents_of"]
