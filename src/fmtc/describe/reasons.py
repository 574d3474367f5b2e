"""Why a row is in its cluster: what each column adds to the first cluster against the second, what would change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..models import ClientModel, Parts
from .documents import Document
from .features import Features
from .words import both_written, percent, signed, with_unit

Array = np.ndarray

TOP = 10  # reasons that are told
CHANGES = 3  # changes that are told
FARTHEST = 10.0  # spreads of a column: a larger change is none
TRIED = 20  # columns that are tried one after the other, where there is no formula
STEPS = np.geomspace(0.02, FARTHEST, 24)  # spreads that are tried then
WORDS = (1, 2, 3, 5, 8)  # times that a word more is tried
BEYOND = 1e-6  # relative step past the border


@dataclass(frozen=True)
class Reason:
    """What a column says for the first cluster against the second; below 0, against it.

    Parameters
    ----------
    column : str
    value : str
        Of the row, as the table has it.
    contribution : float
        To the difference of the two clusters' scores: log-probabilities in the mixture, and in the graph view as far as
        a mixture forms the clusters; else cosines.
    """

    column: str
    value: str
    contribution: float

    def __str__(self) -> str:
        return f"{self.column} {self.value}: {signed(self.contribution)}"


@dataclass(frozen=True)
class Change:
    """The smallest change of one column that leads to another cluster.

    Parameters
    ----------
    column : str
    before, after : float or str
        In the units of the table; levels of a category.
    cluster : int
        The one that it leads to.
    unit : str
    """

    column: str
    before: float | str
    after: float | str
    cluster: int
    unit: str = ""

    def __str__(self) -> str:
        if isinstance(self.before, str) or isinstance(self.after, str):
            before, after = str(self.before), str(self.after)
        elif self.before.is_integer() and self.after.is_integer():
            before, after = f"{self.before:,.0f}", f"{self.after:,.0f}"
        else:
            before, after = both_written(self.before, self.after)
        return f"{self.column} {with_unit(after, self.unit)} in place of {before}: cluster {self.cluster}"


@dataclass(frozen=True)
class RowExplanation(Document):
    """Why a row is in its cluster.

    Parameters
    ----------
    cluster, second : int
        The cluster, and the next one; the same where there is no other.
    probability : float
        Of the cluster.
    margin : float
        Score of the first less that of the second: the sum of `start` and of all contributions, where they are `exact`.
    start : float
        What is there before any column is looked at: sizes of clusters and, in the graph view, what they are to a row
        like the mean of the silo.
    reasons : tuple of Reason
        At most ten, the largest first.
    rest : float
        Contributions of all other columns together.
    changes : tuple of Change
        At most three, the smallest in units of the columns' spread first.
    exact : bool
        Whether contributions add up to the margin. Not where columns were lifted, nor in private runs: there each is
        what the margin loses when the column takes its usual value.
    names : dict of int to str
        Names of the two clusters, where they are known.
    """

    cluster: int
    second: int
    probability: float
    margin: float
    start: float
    reasons: tuple[Reason, ...] = ()
    rest: float = 0.0
    changes: tuple[Change, ...] = ()
    exact: bool = True
    names: dict[int, str] = field(default_factory=dict)

    def title(self, cluster: int) -> str:
        """Number and name of a cluster."""
        name = self.names.get(cluster, "")
        return f"cluster {cluster}{f' ({name})' if name else ''}"

    def __str__(self) -> str:
        lines = [f"{self.title(self.cluster)}, probability {percent(self.probability)}"]
        if self.cluster == self.second:
            return f"{lines[0]}; there is no other"
        lines.append(f"for it, against {self.title(self.second)}: {signed(self.margin)}")
        lines += [f"  {reason}" for reason in self.reasons]
        if self.rest:
            lines.append(f"  all other columns: {signed(self.rest)}")
        if abs(self.start) >= 0.005:
            lines.append(f"  before any column is looked at: {signed(self.start)}")
        if not self.exact:
            lines.append("each is what the whole loses without the column; they do not add up")
        if self.changes:
            lines += ["what would change it", *(f"  {change}" for change in self.changes)]
        else:
            lines.append("no change of one column within its usual range leads to another cluster")
        return "\n".join(lines)


# -------------------------------------------------------------------------------------------------------- explaining


def explain_row(model: ClientModel, X: Any, features: Features) -> RowExplanation:
    """Why one row is in its cluster.

    Parameters
    ----------
    model : ClientModel
    X : array or sparse array of shape (1, d)
        As `predict` takes it.
    features : Features
        What the columns are called.

    Returns
    -------
    RowExplanation
    """
    scores = model.scores(X)[0]
    first = int(model.assign(X)[0])
    probability = float(model.probabilities(X)[0, first])
    others = np.where(np.isfinite(scores), scores, -np.inf)
    others[first] = -np.inf
    if not np.isfinite(others).any():
        return RowExplanation(first, first, probability, 0.0, 0.0)
    second = int(others.argmax())
    table = _Row(model, X, features)
    parts = model.parts(X, first, second)
    by_column = table.replaced(first, second) if parts is None else table.summed(parts)
    order = np.argsort(-np.abs(by_column), kind="stable")
    shown = [int(j) for j in order[:TOP] if by_column[j]]
    names = table.names(shown)
    reasons = tuple(Reason(names[j], table.shown(j), float(by_column[j])) for j in shown)
    rest = float(by_column.sum() - by_column[shown].sum()) if len(shown) < np.count_nonzero(by_column) else 0.0
    start, margin = 0.0 if parts is None else float(parts.start), float(scores[first] - scores[second])
    changes = table.changes(first, by_column)
    return RowExplanation(first, second, probability, margin, start, reasons, rest, changes, exact=parts is not None)


# ---------------------------------------------------------------------------------------------- what would change it


class _Row:
    """One row as its table has it."""

    def __init__(self, model: ClientModel, X: Any, features: Features):
        self.model, self.X, self.features, self.d = model, X, features, X.shape[1]
        self.codes = {j: levels for j, levels in enumerate(features.levels) if levels}
        self.values = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)[0]

    def names(self, columns: list[int]) -> dict[int, str]:
        """Names of some columns; of texts their words."""
        words = self.features.known_words(columns)
        return {j: self.features.name(j, words) for j in columns}

    def shown(self, column: int) -> str:
        """A cell in words."""
        value = self.values[column]
        if not np.isfinite(value):
            return "missing"
        if column in self.codes:
            return self.codes[column][int(value)]
        return with_unit(f"{value:.5g}", self.features.unit(column)).replace("-", "−")

    def _labels(self, column: int, values: Array) -> Array:
        """Cluster of the row with each of some values in a column."""
        rows = np.repeat(self.values[None], len(values), axis=0)
        rows[:, column] = values
        rows = rows.astype(self.X.dtype)
        return self.model.assign(sp.csr_array(rows) if sp.issparse(self.X) else rows)

    def spreads(self) -> Array:
        """About how far each column varies, in the units of the table; 1 where that is not known."""
        found = self._of_numbers(self.model.spreads, 1.0)
        return np.where(found > 0, found, 1.0)

    def _of_numbers(self, known: Array | None, others: float) -> Array:
        """What is known of the columns that are numbers, for each column of the table."""
        found, numbers = np.full(self.d, others), [j for j in range(self.d) if j not in self.codes]
        if known is not None:
            found[numbers] = known[: len(numbers)]
        return found

    def summed(self, parts: Parts) -> Array:
        """What the features of each column add."""
        found = np.zeros(self.d)
        columns = np.array([self.features.place(int(j))[0] for j in parts.features], dtype=np.int64)
        np.add.at(found, columns, parts.contributions)
        return found

    def replaced(self, first: int, second: int) -> Array:
        """What the margin loses when a column takes its usual value: that of a missing cell."""
        usual = self._of_numbers(self.model.usual, np.nan)
        rows = np.repeat(self.values[None], self.d + 1, axis=0)
        rows[np.arange(self.d), np.arange(self.d)] = usual
        scores = self.model.scores(rows.astype(self.X.dtype))
        margins = scores[:, first] - scores[:, second]
        return np.asarray(margins[-1] - margins[:-1])

    def changes(self, first: int, by_column: Array) -> tuple[Change, ...]:
        """Smallest changes of single columns that lead to another cluster, by their size in spreads."""
        spreads = self.spreads()
        found: list[tuple[float, int, float]] = []
        limits = self._borders(first)
        if limits is None:
            tried = np.argsort(-np.abs(by_column), kind="stable")[:TRIED].tolist()
            limits = {j: self._searched(j, first, float(spreads[j])) for j in tried if j not in self.codes}
        for j, step in limits.items():
            size = abs(step) / spreads[j]
            if np.isfinite(step) and (self.features.is_text or size <= FARTHEST):
                found.append((size, j, float(self.values[j] + step)))
        for j, levels in self.codes.items():
            if np.isfinite(self.values[j]):
                labels = self._labels(j, np.arange(len(levels), dtype=float))
                other = np.flatnonzero(labels != first)
                if len(other):
                    found.append((1.0, j, float(other[0])))
        told: list[Change] = []
        for _, j, after in sorted(found):
            if len(told) == CHANGES:
                break
            label = int(self._labels(j, np.array([after]))[0])
            if label == first:
                continue
            before, last = (self.codes[j][int(v)] if j in self.codes else float(v) for v in (self.values[j], after))
            told.append(Change(self.names([j])[j], before, last, label, self.features.unit(j)))
        return tuple(told)

    def _borders(self, first: int) -> dict[int, float] | None:
        """Step of each column that is a number to the nearest border of the cluster; None where no formula knows it."""
        known, found = self.model.borders(self.X, first), {}
        if known is None:
            return None
        for feature, step in zip(*(part.tolist() for part in known), strict=True):
            column, level = self.features.place(feature)
            if level < 0 and np.isfinite(step) and np.isfinite(self.values[column]):
                found[column] = self._whole(column, step)
        return found

    def _whole(self, column: int, step: float) -> float:
        """A step that a table can take: past the border, of words whole, and no fewer than none."""
        if not self.features.is_text:
            return step * (1 + BEYOND)
        whole = (self.values == np.round(self.values)).all()  # counts, not weights
        step = step * (1 + BEYOND) if not whole else float(np.ceil(step) if step > 0 else np.floor(step))
        return step if self.values[column] + step >= 0 else float("nan")

    def _searched(self, column: int, first: int, spread: float) -> float:
        """The same by trying."""
        if not np.isfinite(self.values[column]):
            return float("nan")
        if self.features.is_text:
            steps = np.array([*WORDS, -self.values[column]] if self.values[column] else WORDS, dtype=float)
        else:
            steps = np.concatenate([STEPS, -STEPS]) * spread
        labels = self._labels(column, self.values[column] + steps)
        flips = steps[labels != first]
        if not len(flips):
            return float("nan")
        high = float(flips[np.abs(flips).argmin()])
        if self.features.is_text:
            return high
        smaller = np.abs(steps[(np.sign(steps) == np.sign(high)) & (np.abs(steps) < abs(high))])
        low = float(np.sign(high) * smaller.max()) if len(smaller) else 0.0
        for _ in range(30):
            middle = (low + high) / 2
            inside = self._labels(column, np.array([self.values[column] + middle]))[0] == first
            low, high = (middle, high) if inside else (low, middle)
        return high


__all__ = ["Change", "Reason", "RowExplanation", "explain_row"]
