"""What somebody should look at before believing clusters: codes for missing values, units, single columns and rows."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import DataError, joined
from ..kernels.scaling import far_row
from .columns import Columns
from .findings import ERROR, explain
from .guess import dominant, sentinel
from .preflight import compare
from .survey import survey

if TYPE_CHECKING:
    from .silos import Silo

Array = np.ndarray
_UNITS = ("unit", "scale", "coding", "standardised", "negatives")
_COUNTS = 5  # so many columns, nine tenths of all, whose lowest value is 0 are counts, where 0 is no code


def remarks(silos: Sequence[Silo], *, scaled: bool = True, accept_units: bool = True, files: bool = True) -> list[str]:
    """Sentences about values that look wrong; none for sparse rows.

    Parameters
    ----------
    silos : sequence of Silo
    scaled : bool
        Whether the run gives all columns the same weight. Otherwise a column that outweighs all others is a remark.
    accept_units : bool
        Whether a silo may have most of its columns in other units than the others; otherwise `DataError`.
    files : bool
        Whether the rows come from files. Of others, `fit` names rows that are far from all others by itself, and
        columns that are below 0 in few silos only are no remark: they may be centred.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables import Silo
    >>> from fmtc.tables.doubts import remarks
    >>> X = np.random.default_rng(0).normal([50, 900], [9, 300], size=(80, 2))
    >>> remarks([Silo("north", X, ("age", "proline"), np.arange(80))], scaled=False)[0].partition(" and ")[0]
    "'proline' is 99.9 % of the variance of all columns"
    """
    if any(sp.issparse(silo.X) for silo in silos):
        return []
    numbers = _number_columns(silos[0])
    found = [*_sentinels(silos, numbers), *_dominant(silos, numbers, scaled)]
    for silo in silos if files else ():
        if (far := far_row(silo.X[:, numbers])) is not None:
            row, column = far[0], numbers[far[1]]
            found.append(
                f"row {int(silo.rows[row]) + 1} of {silo.name!r} has {silo.X[row, column]:.3g} in "
                f"{_name(silo, column)}, far from all others, and may become a cluster of its own: correct or remove it"
            )
    return found + _units(silos, numbers, _UNITS if files else _UNITS[:-1], accept_units)


def _number_columns(silo: Silo) -> list[int]:
    levels = [0] * silo.X.shape[1] if silo.schema is None else silo.schema.levels
    return [place for place, count in enumerate(levels) if count == 0]


def _name(silo: Silo, column: int) -> str:
    return f"column {column}" if silo.feature_names is None else repr(silo.feature_names[column])


def _sentinels(silos: Sequence[Silo], numbers: Sequence[int]) -> list[str]:
    X = {column: np.concatenate([silo.X[:, column] for silo in silos]).astype(np.float64) for column in numbers}
    found = {column: code for column, values in X.items() if (code := sentinel(values)) is not None}
    lowest = sum(bool(np.nanmin(values, initial=np.inf) == 0) for values in X.values())
    if lowest >= max(_COUNTS, 0.9 * len(numbers)):
        found = {column: code for column, code in found.items() if code[0] != 0}
    if not found:
        return []
    shown = [f"{_name(silos[0], c)} is {code:g} in {n:,} rows and else from {nearest:g} on"
             for c, (code, n, nearest) in found.items()]  # fmt: skip
    names = {column: _name(silos[0], column).strip("'") for column in found}
    return [f"codes for missing values? {joined(shown, '; ')}: {_as_missing(X, found, names)}"]


def _as_missing(
    values: Mapping[Any, Array], found: Mapping[Any, tuple[float, int, float]], names: Mapping[Any, str]
) -> str:
    """What to do about codes: a flag, which is for all columns, or where others hold such values as well, a schema."""
    everywhere = {
        code: all((one := found.get(c)) is not None and one[0] == code for c, x in values.items() if (x == code).any())
        for code, _, _ in found.values()
    }
    flags = " ".join(f"`missing_codes` {code:g}" for code, alone in everywhere.items() if alone)
    listed = [f"missing = [{code:g}] for {names[c]!r}" for c, (code, _, _) in found.items() if not everywhere[code]]
    ways = [f"count them as missing ({flags})"] if flags else []
    if listed:
        ways.append(
            f"write {joined(listed)} into a schema (fmtc check FILES --write-schema schema.toml) and use it (`schema`)"
        )
    return ", and ".join(ways)


def _dominant(silos: Sequence[Silo], numbers: Sequence[int], scaled: bool) -> list[str]:
    if scaled or len(numbers) < 2:
        return []
    X = np.concatenate([silo.X[:, numbers] for silo in silos]).astype(np.float64)
    with np.errstate(all="ignore"):
        spread = np.nanmax(X, axis=0) - np.nanmin(X, axis=0) if len(X) and not np.isnan(X).all(axis=0).any() else None
        variances = np.nanvar(X, axis=0) if spread is not None else np.zeros(X.shape[1])
    if spread is not None:
        variances[spread == 0] = 0.0
    found = dominant(variances)
    if found is None:
        return []
    return [
        f"{_name(silos[0], numbers[found[0]])} is {100 * found[1]:.1f} % of the variance of all columns and decides "
        "the clusters alone: give columns the same weight (`scale` global), or omit it (`drop`)"
    ]


def _units(silos: Sequence[Silo], numbers: Sequence[int], codes: Sequence[str], accept_units: bool) -> list[str]:
    """Clients whose values look like those of another unit or coding."""
    if len(silos) < 2 or not numbers:
        return []
    salt, columns = secrets.token_hex(32), {}
    for silo in silos:
        names = [_name(silo, column).strip("'") if silo.feature_names is None else silo.feature_names[column]
                 for column in numbers]  # fmt: skip
        columns[silo.name] = Columns(pl.DataFrame(dict(zip(names, silo.X[:, numbers].T, strict=True))))
    said: Mapping[str, Columns] = columns
    surveys = {name: survey(content, salt) for name, content in said.items()}
    findings = [f for f in compare(surveys, by_name=True, accept_units=accept_units) if f.code in codes]

    def sentences(severity: str | None = None) -> list[str]:
        about = {silo.name: explain(findings, silo.name, said, severity) for silo in silos}
        return [f"{name} {'; '.join(found)}" for name, found in about.items() if found]

    if stops := sentences(ERROR):
        raise DataError(". ".join(stops))
    return sentences()


def codes_in(columns: Columns) -> str:
    """Codes for missing values that the columns of one client seem to hold, as part of a sentence; empty if none."""
    content = columns.content
    if not isinstance(content, pl.DataFrame):
        return ""
    X = {c.name: c.cast(pl.Float64).to_numpy() for c in content.get_columns()
         if c.dtype.is_numeric() and c.name not in columns.categories}  # fmt: skip
    found = {name: code for name, values in X.items() if (code := sentinel(values)) is not None}
    shown = [f"{c!r} ({code:g} in {n:,} rows, else from {nearest:g} on)" for c, (code, n, nearest) in found.items()]
    way = _as_missing(X, found, {name: name for name in found})
    return f"seems to hold codes for missing values in {joined(shown)}: {way}" if shown else ""


__all__ = ["remarks"]
