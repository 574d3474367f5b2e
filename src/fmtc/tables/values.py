"""What somebody should look at before believing clusters: missing cells and codes for them, units, columns and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import DataError
from ..kernels.scaling import far_row
from ..schema import MANY
from ..wording import PARAMETERS, Wording
from .catalogue import codes_of, constants_of, explain, missing_of, plain, words_of
from .findings import ERROR, Finding
from .parts import Columns
from .silos import Silo, count_cells
from .survey import compare_columns

Array = np.ndarray
_UNITS = ("unit", "scale", "coding", "standardised", "negatives")
LOOKED_AT = 2_000_000  # cells of arrays at most: of more, every second row, every third, ...
_COUNTS = 5  # so many columns, nine tenths of all, whose lowest value is 0 are counts, where 0 is no code
_CODES = (-1.0, -9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0)
_FEWEST = 3  # cells with a code, and
_SPREAD = 15  # different other values, below which nothing is said
_BEYOND = 3  # ranges of all other values, from which a negative code is far off even among negative numbers


def remarks(
    silos: Sequence[Silo],
    *,
    scaled: bool = True,
    accept_units: bool = True,
    wording: Wording = PARAMETERS,
) -> list[str]:
    """Sentences about values that look wrong; none for sparse rows.

    Parameters
    ----------
    silos : sequence of Silo
    scaled : bool
        Whether the run gives all columns the same weight. Otherwise a column that outweighs all others is a remark.
    accept_units : bool
        Whether a silo may have most of its columns in other units than the others; otherwise `DataError`.
    wording : Wording
        For whom. In files, rows are counted from 1. In arrays and data frames, columns that are below 0 in few silos
        are no remark, as they may be centred, and of many rows only some are looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables import Silo
    >>> from fmtc.tables.values import remarks
    >>> X = np.random.default_rng(0).normal([50, 900], [9, 300], size=(80, 2))
    >>> remarks([Silo("north", X, ("age", "proline"), np.arange(80))], scaled=False)[0].partition(" and ")[0]
    "'proline' is 99.9 % of the variance of all columns"
    """
    if any(sp.issparse(silo.X) for silo in silos):
        return []
    silos, names = _of_numbers(silos)
    files = wording.of_files
    far = [words_of(found, wording) for found in _far(silos, names, files)]
    if not files and len(names) > MANY:
        return far
    step = 1 if files else max(1, -(-sum(silo.X.size for silo in silos) // LOOKED_AT))
    seen = "" if step == 1 else f" (one row in {step} was looked at)"
    some = [replace(silo, X=silo.X[::step]) for silo in silos]
    X = np.concatenate([silo.X for silo in some]).astype(np.float64)
    about = [sentence] if (sentence := codes_of(_codes(dict(zip(names, X.T, strict=True))), wording)) else []
    about += _compared(some, names, scaled, accept_units, wording)
    return [f"{sentence}{seen}" for sentence in about] + far


def _of_numbers(silos: Sequence[Silo]) -> tuple[Sequence[Silo], list[str | int]]:
    """The silos without columns of categories, and how the others are called."""
    first = silos[0]
    places = [j for j in range(first.X.shape[1]) if first.schema is None or not first.schema.levels[j]]
    if len(places) < first.X.shape[1]:
        silos = [replace(silo, X=silo.X[:, places]) for silo in silos]
    return silos, [first.column(place) for place in places]


def gaps(silos: Sequence[Silo]) -> list[str]:
    """Sentences about cells that are missing and columns with one value."""
    where, said = constant_columns(silos), []
    if not any(sp.issparse(silo.X) for silo in silos):
        counts = np.sum([count_cells(silo.X, np.isnan) for silo in silos], axis=0)
        columns = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
        named = {plain(silos[0].column(column)): int(counts[column]) for column in columns}
        said = [missing_of(named, sum(silo.X.size for silo in silos))]
    return [sentence for sentence in (*said, constants_of(where, len(silos))) if sentence]


def constant_columns(silos: Sequence[Silo]) -> dict[str, list[str]]:
    """Columns with the same value in all rows of a silo, and the silos where this is so; most silos first."""
    where: dict[int, list[str]] = {}
    for silo in silos:
        for column in np.flatnonzero(_is_constant(silo.X)).tolist():
            where.setdefault(column, []).append(silo.name)
    columns = sorted(where, key=lambda column: (-len(where[column]), column))
    return {plain(silos[0].column(column)): where[column] for column in columns}


def codes_in(columns: Columns, wording: Wording = PARAMETERS) -> str:
    """Codes for missing values that the columns of one silo seem to hold, as part of a sentence; empty if none."""
    content = columns.content
    if not isinstance(content, pl.DataFrame):
        return ""
    numbers = [c for c in content.get_columns() if c.dtype.is_numeric() and c.name not in columns.categories]
    return codes_of(_codes({c.name: c.cast(pl.Float64).to_numpy() for c in numbers}), wording)


def _is_constant(X: Any) -> Array:
    if sp.issparse(X):
        return (X.max(axis=0).toarray() == X.min(axis=0).toarray()).ravel()
    return (X[0] == X).all(axis=0) | np.isnan(X).all(axis=0)


def _far(silos: Sequence[Silo], names: Sequence[str | int], files: bool) -> Iterator[Finding]:
    for silo in silos:
        if (far := far_row(silo.X)) is not None:
            row, column = far
            of = f" of {silo.name!r}" if files or len(silos) > 1 else ""
            said = f"{int(silo.rows[row]) + files}{of}"
            yield Finding.of_column("far", names[column], row=said, value=silo.X[row, column])


def _compared(
    silos: Sequence[Silo], names: Sequence[str | int], scaled: bool, accept: bool, wording: Wording
) -> list[str]:
    """About a column that outweighs all others, and silos with values like those of another unit or coding.

    Raises `DataError` where most values of a silo are.
    """
    if (len(silos) < 2 and scaled) or not names:
        return []
    called = list(map(plain, names))
    columns = {silo.name: Columns(pl.DataFrame(silo.X, schema=called, orient="row")) for silo in silos}
    findings = compare_columns(columns, scaled=scaled, accept_units=accept)
    heavy = [explain([f], f.silo, columns, wording=wording)[0] for f in findings if f.code == "dominant"][:1]
    findings = [f for f in findings if f.code in (_UNITS if wording.of_files else _UNITS[:-1])]
    stops, notes = (
        [f"{name} {'; '.join(said)}" for name in columns if (said := explain(findings, name, columns, only, wording))]
        for only in (ERROR, None)
    )
    if stops:
        raise DataError(". ".join(stops))
    return heavy + notes


# ------------------------------------------------------------------------------------------------------------ codes


def _codes(columns: Mapping[Any, Array]) -> list[Finding]:
    """Codes for missing values in columns of numbers."""
    lowest = sum(np.nanmin(values, initial=np.inf) == 0 for values in columns.values())
    zeros = lowest < max(_COUNTS, 0.9 * len(columns))  # whether 0 may be a code
    found = {name: code for name, values in columns.items() if (code := sentinel(values)) is not None}
    found = {name: code for name, code in found.items() if zeros or code[0] != 0}

    def alone(code: float) -> bool:
        return all(c in found and found[c][0] == code for c, values in columns.items() if (values == code).any())

    return [
        Finding.of_column("code", name, value=code, n=n, nearest=nearest, alone=alone(code))
        for name, (code, n, nearest) in found.items()
    ]


def sentinel(values: Array) -> tuple[float, int, float] | None:
    """A value that seems to mean "not measured": alone beyond a wide gap, and the same in several rows.

    Parameters
    ----------
    values : ndarray of shape (n,)
        A column; NaN is ignored.

    Returns
    -------
    tuple of float, int, float, or None
        The value, in how many rows it stands, and the nearest other value.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables.values import sentinel
    >>> sentinel(np.r_[np.linspace(85, 500, 200), np.zeros(12)])
    (0.0, 12, 85.0)
    """
    values = values[np.isfinite(values)]
    if len(values) < 20:
        return None
    low, high = float(values.min()), float(values.max())
    for code in dict.fromkeys((low, high)):
        if code != 0 and code not in _CODES:
            continue
        others = np.unique(values[values != code])
        count = int((values == code).sum())
        if count < _FEWEST or len(others) < _SPREAD or 10 * count > 9 * len(values):
            continue
        nearest = float(others[0] if code == low else others[-1])
        if _is_far(code, nearest, others):
            return code, count, nearest
    return None


def _is_far(code: float, nearest: float, others: Array) -> bool:
    """Whether a code lies beyond a wide gap from all other values, which are in order."""
    gap, spread = abs(code - nearest), float(np.quantile(others, 0.95) - np.quantile(others, 0.05))
    step = float(np.median(np.diff(others)))
    if code == 0:
        return nearest > 0 and nearest >= 0.2 * float(np.median(others)) and gap >= 5 * step
    if code > 0:
        return gap >= spread
    wide = nearest >= 0 and gap >= 5 * step and (abs(code) >= 9 or gap >= 0.2 * spread)
    return wide or (abs(code) >= 9 and gap >= _BEYOND * float(others[-1] - others[0]))


__all__ = ["codes_in", "gaps", "remarks", "sentinel"]
