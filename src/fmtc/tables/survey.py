"""The comparison of columns as messages: what a client says about its columns, and what it is told about them.

Each client reads its file without checks (`fmtc.tables.read_columns`) and describes its columns by hashes, counts and
sums (`survey`). The coordinator compares all descriptions (`fmtc.tables.compare`) and sends each client the findings
about it (`as_numbers`). The client turns them into words with its own column names (`from_verdict`,
`fmtc.tables.explain`).
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from .columns import Columns
from .findings import CODES, ERROR, LIMIT, NOTE, SMALLEST, WIDTH, Finding, Kind
from .parts import column_kind

Array = np.ndarray


@dataclass(frozen=True)
class Surveyed:
    """What a client says about its columns: the fields of the phase `survey`; one entry for each column."""

    n_samples: int | None
    columns: Array  # salted hashes of the names, of a category with its levels
    aliases: Array | None  # the same without capitals, blanks and signs; None for a matrix
    kinds: Array  # what the columns hold
    counts: Array | None  # how many values are present; None: it is not said, nor is what follows
    missing: Array | None  # how many are not
    means: Array | None
    squares: Array | None  # sums of squared deviations from the means
    negatives: Array | None  # how many values are below 0

    def without_numbers(self) -> Surveyed:
        """What may be said where only sums over clients may be seen: names, as hashes, and types of columns."""
        return replace(self, n_samples=None, counts=None, missing=None, means=None, squares=None, negatives=None)


def survey(columns: Columns, salt: str) -> Surveyed:
    """Hashes of the names of columns, their types, counts, means and sums of squared deviations.

    For a column with fewer than `SMALLEST` values there are only counts. The result does not depend on the order of the
    rows, to the last bit.

    Parameters
    ----------
    columns : Columns
    salt : str
        A secret of the clients. Without it a hash only tells whether two names are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables import Columns
    >>> from fmtc.tables.survey import survey
    >>> said = survey(Columns(np.arange(30.0).reshape(10, 3)), salt="a secret")
    >>> said.n_samples, said.means, said.missing
    (10, array([13.5, 14.5, 15.5]), array([0, 0, 0]))
    """
    if not salt:
        raise ValueError("salt is empty: anybody could then guess names until a hash matches")
    names = columns.names
    words = (
        [f"place {place}" for place in range(columns.width)]
        if names is None
        else [f"name {n}" + "".join(f"\0{level}" for level in columns.categories.get(n, ())) for n in names]
    )
    kinds, counts, missing, means, squares, negatives = zip(*_lines(columns), strict=True)
    return Surveyed(
        n_samples=columns.n_rows,
        columns=_hashes(words, salt),
        aliases=None if names is None else _hashes([f"alias {_plain(name)}" for name in names], salt),
        kinds=np.array(kinds, np.int8),
        counts=np.array(counts, np.int64),
        missing=np.array(missing, np.int64),
        means=np.array(means, np.float64),
        squares=np.array(squares, np.float64),
        negatives=np.array(negatives, np.int64),
    )


def _hashes(words: Iterable[str], salt: str) -> Array:
    digests = (hmac.digest(salt.encode(), word.encode(), "sha256") for word in words)
    return np.array([int.from_bytes(digest[:8], "big") for digest in digests], np.uint64)


def _plain(name: str) -> str:
    """Letters and digits of a name in lower case: 'Height (cm)' and 'height_cm' are the same."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(sign for sign in folded if sign.isalnum()) or folded


_Line = tuple[int, int, int, float, float, int]  # kind, count, missing, mean, squares, negatives of a column


def _lines(columns: Columns) -> Iterator[_Line]:
    content: Any = columns.content
    n = content.shape[0]
    if isinstance(content, pl.DataFrame):
        known = {"numbers": Kind.NUMBERS, "text": Kind.TEXT, "nothing": Kind.NOTHING}
        for column in content.get_columns():
            word = column_kind(column)
            kind = known.get(word, Kind.OTHER) if column.name else Kind.NAMELESS
            if column.name in columns.categories or column.name in columns.identifiers:
                kind = Kind.CATEGORY if column.name in columns.categories else Kind.IDENTIFIERS
                yield kind, n - column.null_count(), column.null_count(), 0.0, 0.0, 0
            elif word == "numbers":
                yield kind, *_sums(column.cast(pl.Float64).to_numpy())  # null becomes nan
            else:
                yield kind, n - column.null_count(), column.null_count(), 0.0, 0.0, 0
    elif sp.issparse(content):
        content = sp.csc_array(content)
        for begin, end in pairwise(content.indptr.tolist()):
            yield Kind.SPARSE, *_sums(content.data[begin:end], zeros=n - (end - begin))
    else:
        for place in range(content.shape[1]):
            yield Kind.NUMBERS, *_sums(content[:, place])


def _sums(values: Array, zeros: int = 0) -> tuple[int, int, float, float, int]:
    """Count, missing, mean, squared deviations and negatives of the values and of this many additional zeros."""
    missing = int(np.isnan(values).sum())
    values = values.astype(np.float64)
    values = np.sort(values[np.abs(values) <= LIMIT])  # sorted: the order of rows does not matter
    count = len(values) + zeros
    if count < SMALLEST:
        return count, missing, 0.0, 0.0, 0
    base = 0.0 if zeros else values[0]  # equal values then have squares of exactly 0
    mean = float(base + (values - base).sum() / count)
    squares = float(np.square(values - mean).sum()) + zeros * mean**2
    return count, missing, mean, squares, int((values < 0).sum())


def as_numbers(findings: Iterable[Finding], silos: Iterable[str]) -> dict[str, Array]:
    """For each client the findings about it, one per row: code, whether an error, column, place, number."""
    lines: dict[str, list[tuple[float, ...]]] = {silo: [] for silo in silos}
    for f in findings:
        lines[f.silo].append((CODES.index(f.code), f.severity == ERROR, f.column, f.place, f.number))
    return {silo: np.array(rows, np.float64).reshape(-1, WIDTH) for silo, rows in lines.items()}


def from_verdict(findings: Array, silo: str) -> list[Finding]:
    """The findings about a client, from the numbers in its verdict; the clients it was compared with are omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables.survey import from_verdict
    >>> (found,) = from_verdict(np.array([[8.0, 1.0, 3.0, -1.0, 12.0]]), "north")
    >>> found.code, found.severity, found.column, found.number
    ('missing', 'error', 3, 12.0)
    """
    return [
        Finding(silo, CODES[int(code)], ERROR if error else NOTE, int(column), "", int(place), number)
        for code, error, column, place, number in findings.tolist()
    ]


__all__ = ["Surveyed", "as_numbers", "from_verdict", "survey"]
