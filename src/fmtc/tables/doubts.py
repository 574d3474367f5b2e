"""What somebody should look at before believing clusters: codes for missing values, units, single columns and rows."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..errors import DataError
from ..kernels.scaling import far_row
from ..wording import PARAMETERS, Wording
from .catalogue import called, explain, sentinels, sentinels_of_silo, words_of
from .columns import Columns
from .findings import ERROR, Finding
from .guess import Doubt, Sentinel, dominant, sentinels_in
from .preflight import compare
from .survey import survey

if TYPE_CHECKING:
    from .silos import Silo

Array = np.ndarray
_UNITS = ("unit", "scale", "coding", "standardised", "negatives")
_COUNTS = 5  # so many columns, nine tenths of all, whose lowest value is 0 are counts, where 0 is no code


def remarks(
    silos: Sequence[Silo],
    *,
    scaled: bool = True,
    accept_units: bool = True,
    files: bool = True,
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
    files : bool
        Whether the rows come from files. Of others, `fit` names rows that are far from all others by itself, and
        columns that are below 0 in few silos only are no remark: they may be centred.
    wording : Wording
        For whom.

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
    numbers = {place: silos[0].column(place) for place in _number_columns(silos[0])}
    doubts = [] if scaled else _outweighing(silos, numbers)
    doubts += [doubt for silo in silos if files for doubt in _far(silo, numbers)]
    said = [sentence] if (sentence := sentinels(_codes(silos, numbers), wording)) else []
    said += [words_of(doubt, wording) for doubt in doubts]
    if len(silos) < 2 or not numbers:
        return said
    columns = {silo.name: _columns(silo, numbers) for silo in silos}
    findings = _units(columns, _UNITS if files else _UNITS[:-1], accept_units)
    if stops := _explained(findings, columns, wording, ERROR):
        raise DataError(". ".join(stops))
    return said + _explained(findings, columns, wording)


def codes_in(columns: Columns, wording: Wording = PARAMETERS) -> str:
    """Codes for missing values that the columns of one silo seem to hold, as part of a sentence; empty if none."""
    content = columns.content
    if not isinstance(content, pl.DataFrame):
        return ""
    plain = [c for c in content.get_columns() if c.dtype.is_numeric() and c.name not in columns.categories]
    return sentinels_of_silo(sentinels_in({c.name: c.cast(pl.Float64).to_numpy() for c in plain}), wording)


def _number_columns(silo: Silo) -> list[int]:
    levels = [0] * silo.X.shape[1] if silo.schema is None else silo.schema.levels
    return [place for place, count in enumerate(levels) if count == 0]


def _codes(silos: Sequence[Silo], numbers: Mapping[int, str | int]) -> list[Sentinel]:
    X = {name: np.concatenate([silo.X[:, j] for silo in silos]).astype(np.float64) for j, name in numbers.items()}
    lowest = sum(bool(np.nanmin(values, initial=np.inf) == 0) for values in X.values())
    return sentinels_in(X, zeros=lowest < max(_COUNTS, 0.9 * len(numbers)))


def _outweighing(silos: Sequence[Silo], numbers: Mapping[int, str | int]) -> list[Doubt]:
    X = np.concatenate([silo.X[:, list(numbers)] for silo in silos]).astype(np.float64)
    if len(numbers) < 2 or not len(X) or np.isnan(X).all(axis=0).any():
        return []
    with np.errstate(all="ignore"):
        variances = np.where(np.nanmax(X, axis=0) == np.nanmin(X, axis=0), 0.0, np.nanvar(X, axis=0))
    found = dominant(variances)
    return [] if found is None else [Doubt("dominant", list(numbers.values())[found[0]], {"share": 100 * found[1]})]


def _far(silo: Silo, numbers: Mapping[int, str | int]) -> list[Doubt]:
    places = list(numbers)
    if (far := far_row(silo.X[:, places])) is None:
        return []
    row, column = far[0], places[far[1]]
    facts = {"row": f"{int(silo.rows[row]) + 1} of {silo.name!r}", "value": silo.X[row, column]}
    return [Doubt("far", numbers[column], facts)]


def _columns(silo: Silo, numbers: Mapping[int, str | int]) -> Columns:
    names = [name if isinstance(name, str) else called(name) for name in numbers.values()]
    return Columns(pl.DataFrame(dict(zip(names, silo.X[:, list(numbers)].T, strict=True))))


def _units(columns: Mapping[str, Columns], codes: Sequence[str], accept_units: bool) -> list[Finding]:
    """Silos whose values look like those of another unit or coding."""
    salt = secrets.token_hex(32)
    surveys = {name: survey(content, salt) for name, content in columns.items()}
    return [f for f in compare(surveys, by_name=True, accept_units=accept_units) if f.code in codes]


def _explained(
    findings: Sequence[Finding], columns: Mapping[str, Columns], wording: Wording, severity: str | None = None
) -> list[str]:
    about = {name: explain(findings, name, columns, severity, wording) for name in columns}
    return [f"{name} {'; '.join(found)}" for name, found in about.items() if found]


__all__ = ["codes_in", "remarks"]
