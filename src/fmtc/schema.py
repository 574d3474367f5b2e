"""What the columns of a table hold, agreed by all silos: numbers or categories, levels, units and bounds."""

from __future__ import annotations

import json
import math
import re
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .errors import DataError, joined, listed, nearest_names
from .wording import PARAMETERS, Wording

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    Array = np.ndarray

NUMBER, CATEGORY = "number", "category"
MISSING_WORDS = ("", ".", "?", "-", "na", "n/a", "nan", "null", "none", "<na>")
FILE = "schema.toml"  # beside a run
MANY = 500  # columns of numbers above which nobody asks what they are
FORMAT = 1
_OPENING = """\
# What the columns of a table hold. Give this file to every silo (--schema schema.toml).
# kind: "number" or "category". Of a number you may add unit, lower and upper; what lies outside counts as missing.
# Of a category: levels, in any order, the same for all silos.
# missing = [-999, "<5"] lists codes of missing values: of one column or, above the columns, of all.
"""


@dataclass(frozen=True)
class Column:
    """One column.

    Parameters
    ----------
    name : str
    kind : {"number", "category"}
    levels : tuple of str
        Of a category, in order: the code of a level is its place here. Empty for a number.
    unit : str
        Of a number, for people to read; empty if not known.
    lower, upper : float, optional
        Of a number: what lies outside is not a measurement and counts as missing.
    missing : tuple of str
        Codes of missing values: cells that are one of these words or numbers count as missing.
    words_missing : bool
        Of a number: whether words count as missing; otherwise they are refused.
    """

    name: str
    kind: str = NUMBER
    levels: tuple[str, ...] = ()
    unit: str = ""
    lower: float | None = None
    upper: float | None = None
    missing: tuple[str, ...] = ()
    words_missing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "missing", tuple(sorted(set(map(_code, self.missing)))))
        if self.kind not in (NUMBER, CATEGORY):
            raise DataError(f"column {self.name!r} has kind {self.kind!r}; it must be {NUMBER!r} or {CATEGORY!r}")
        if (self.kind == CATEGORY) != bool(self.levels):
            raise DataError(f"column {self.name!r}: a category has levels, a number has none")
        if len(set(self.levels)) < len(self.levels):
            raise DataError(f"column {self.name!r} names a level twice")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise DataError(f"column {self.name!r}: lower ({self.lower:g}) lies above upper ({self.upper:g})")
        if both := {level.casefold() for level in self.levels} & {code.casefold() for code in self.missing}:
            raise DataError(f"column {self.name!r}: {listed(sorted(both))} cannot be a level and a missing value")
        if self.words_missing and self.kind == CATEGORY:
            raise DataError(f"column {self.name!r} is a category, whose words are levels: omit words_missing")

    def outside(self, numbers: Array) -> Array:
        """Which numbers lie outside the bounds."""
        low = -math.inf if self.lower is None else self.lower
        high = math.inf if self.upper is None else self.upper
        return (numbers < low) | (numbers > high)


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    Rows are computed with as one float matrix: a number as it is, a category as the code of its level (0, 1, ...),
    NaN where a cell is missing, a number lies outside its bounds or a level is not known.

    Parameters
    ----------
    columns : tuple of Column
    id_column : str
        Column that names each row, which is not among `columns`; empty if there is none.

    Examples
    --------
    >>> from fmtc.schema import Column, Schema
    >>> schema = Schema((Column("age", unit="years"), Column("sex", "category", ("female", "male"))))
    >>> schema.names, schema.levels
    (('age', 'sex'), (0, 2))
    >>> import polars as pl
    >>> schema.encode(pl.DataFrame({"sex": ["male", None], "age": [31, 52]}))
    array([[31.,  1.],
           [52., nan]])
    """

    columns: tuple[Column, ...]
    id_column: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if len(set(self.names)) < len(self.columns):
            raise DataError("a schema names a column twice")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of levels of each column; 0 for a column of numbers."""
        return tuple(len(column.levels) for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers."""
        return not any(self.levels)

    @property
    def recodes(self) -> bool:
        """Whether it changes rows that are numbers already: codes of levels, bounds or codes of missing values."""
        return any(c.levels or c.missing or c.lower is not None or c.upper is not None for c in self.columns)

    def with_missing(self, codes: Sequence[str | float]) -> Self:
        """The same schema, with these codes of missing values in all columns.

        Examples
        --------
        >>> from fmtc.schema import Schema
        >>> import polars as pl
        >>> Schema.of_numbers(["crp"]).with_missing([-999, "<5"]).encode(pl.DataFrame({"crp": ["7", "<5", "-999.0"]}))
        array([[ 7.],
               [nan],
               [nan]])
        """
        return replace(self, columns=tuple(replace(c, missing=(*c.missing, *map(_code, codes))) for c in self.columns))

    def with_kinds(self, kinds: Mapping[str, str], wording: Wording = PARAMETERS) -> Self:
        """The same schema, where words in columns that are said to be numbers count as missing.

        Parameters
        ----------
        kinds : mapping of column to {"number", "category"}
            A `DataError` is raised for a kind that is not that of the schema.
        wording : Wording
            For whom that error is.
        """
        option = wording.option("as_types")
        known = {column.name: column for column in self.columns}
        for name, kind in kinds.items():
            if name not in known:
                raise DataError(f"{option}: the schema has no column {name!r}; {nearest_names(name, known)}")
            if kind != known[name].kind:
                raise DataError(f"{option} says that {name!r} is a {kind}, and the schema a {known[name].kind}")
        said = {name for name, kind in kinds.items() if kind == NUMBER}
        return replace(
            self, columns=tuple(replace(c, words_missing=c.words_missing or c.name in said) for c in self.columns)
        )

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Self:
        """Columns of numbers with these names."""
        return cls(tuple(Column(str(name)) for name in names))

    # ------------------------------------------------------------------------------------------------- rows

    def encode(
        self,
        frame: pl.DataFrame,
        where: str = "",
        *,
        place: Callable[[int], str] = lambda row: f"row {row + 1}",
        wording: Wording = PARAMETERS,
    ) -> Array:
        """The rows of a table as numbers; columns are found by name, and others are ignored.

        Parameters
        ----------
        frame : polars.DataFrame of n rows
            Cells may be text: a column of numbers then holds their words.
        where : str
            What the rows are, to begin an error with, such as ``"silo 'north': "``.
        place : callable
            Where a row stands, in words, for errors.
        wording : Wording
            For whom errors are.

        Returns
        -------
        ndarray of shape (n, d)
            In single precision if all columns are.

        Raises
        ------
        DataError
            If a column is not there, or holds what is not a number.
        """
        import numpy as np
        import polars as pl

        known = {cells.name: cells for cells in frame.get_columns()}
        lacking = [name for name in self.names if name not in known]
        if lacking:
            raise DataError(f"{where}there is no column {listed(lacking)}; {nearest_names(lacking[0], known)}")
        single = self.is_plain and {known[name].dtype for name in self.names} == {pl.Float32}
        X = np.empty((frame.height, len(self.columns)), np.float32 if single else np.float64)
        unknown, outside = [], []
        for j, column in enumerate(self.columns):
            cells = without_codes(known[column.name].alias("x"), column.missing)
            if column.kind == CATEGORY:
                X[:, j], strange = _codes(cells, column.levels)
                unknown += [f"{column.name!r} ({joined(strange)})"] if strange else []
                continue
            X[:, j] = _numbers(cells, column, where, place, wording)
            out = column.outside(X[:, j])
            X[out, j] = np.nan
            outside += [f"{column.name!r} ({int(out.sum())})"] if out.any() else []
        for what, names in (("levels that are not known", unknown), ("values outside the bounds", outside)):
            if names:
                warnings.warn(f"{where}{what} count as missing: {joined(names)}", UserWarning, stacklevel=2)
        return X

    # ------------------------------------------------------------------------------------------------ documents

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        columns = [asdict(column) for column in self.columns]
        return {"columns": columns} | ({"id_column": self.id_column} if self.id_column else {})

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return cls(tuple(Column(**column) for column in document["columns"]), document.get("id_column", ""))

    def to_toml(self) -> str:
        """As a file for people: what `from_toml` reads.

        Examples
        --------
        >>> from fmtc.schema import Column, Schema
        >>> print(Schema((Column("age", unit="years", lower=0),)).to_toml().partition("[[")[2])
        columns]]
        name = "age"
        kind = "number"
        unit = "years"
        lower = 0
        <BLANKLINE>
        """
        first = self.columns[0].missing if self.columns else ()
        common = tuple(code for code in first if all(code in c.missing for c in self.columns))
        lines = [_OPENING + f"format = {FORMAT}", *_settings({"id_column": self.id_column, "missing": common})]
        for column in self.columns:
            own = tuple(code for code in column.missing if code not in common)
            about = asdict(column) | {"missing": own}
            lines += ["", "[[columns]]", *_settings(about)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, file: str = FILE) -> Self:
        """Read what `to_toml` wrote or a person did; a `DataError` says what is wrong with it."""
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{file} is not TOML: {error}") from None
        known = ("format", "id_column", "missing", "columns")
        if document.get("format", FORMAT) != FORMAT:
            raise DataError(f"{file} has format {document['format']!r}; this version of fmtc reads format {FORMAT}")
        for key in document.keys() - {*known}:
            raise DataError(f"{file}: there is no setting {key!r}; {nearest_names(key, known)}")
        tables = document.get("columns")
        if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
            raise DataError(f"{file} describes no column; begin each with a line [[columns]] and its name")
        id_column = document.get("id_column", "")
        if not isinstance(id_column, str):
            raise DataError(f"{file}: id_column must be the name of a column, got {id_column!r}")
        try:
            codes = _setting("missing", document.get("missing", []), "")
            return cls(tuple(_column(table) for table in tables), id_column).with_missing(codes)
        except DataError as error:
            raise DataError(f"{file}: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a schema.toml."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise DataError(f"{path} is not UTF-8 text; save it with that encoding") from None
        return cls.from_toml(text, str(path))


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows that a schema has encoded, for `fit` and `predict`: the columns are known and need no second look.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    schema : Schema of d columns
    """

    X: Any
    schema: Schema

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return tuple(self.X.shape)

    def __len__(self) -> int:
        return int(self.X.shape[0])


# ------------------------------------------------------------------------------------------------------- cells


def is_text(cells: pl.Series) -> bool:
    """Whether a column holds words."""
    import polars as pl

    return cells.dtype in (pl.String, pl.Categorical, pl.Enum)


def is_number(cells: pl.Series) -> bool:
    """Whether a column holds numbers or truths."""
    import polars as pl

    return cells.dtype.is_numeric() or cells.dtype == pl.Boolean


def numbers_in(cells: pl.Series, *, truths: bool = False) -> tuple[pl.Series, pl.Series]:
    """Words as numbers, null where one is missing or is no number; and where words mean neither.

    With `truths`, the words true and false are 1 and 0.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.schema import numbers_in
    >>> numbers, strange = numbers_in(pl.Series([" 7", "n/a", "<5", None]))
    >>> numbers.to_list(), strange.to_list()
    ([7.0, None, None, None], [False, False, True, False])
    """
    import polars as pl

    words = cells.alias("x").cast(pl.String).str.strip_chars().str.to_lowercase()
    if truths:
        words = words.replace({"true": "1", "false": "0"})
    numbers = words.cast(pl.Float64, strict=False)
    return numbers, numbers.is_null() & words.is_not_null() & ~words.is_in(MISSING_WORDS)


def with_numbers(cells: pl.Series, *, truths: bool = True) -> pl.Series:
    """A column of words as numbers, if each cell is a number, or a truth, or means a missing one; else as it is."""
    if not is_text(cells):
        return cells
    numbers, strange = numbers_in(cells, truths=truths)
    return cells if strange.any() else numbers


def level_words(cells: pl.Series) -> pl.Series:
    """Cells of a category as the names of levels: without surrounding blanks, 1.0 as 1, null where one is missing.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.schema import level_words
    >>> level_words(pl.Series([1.0, 2.5, None])).to_list(), level_words(pl.Series([" F", "?"])).to_list()
    (['1', '2.5', None], ['F', None])
    """
    import polars as pl

    cells = cells.alias("x")
    if cells.dtype.is_float():
        whole = cells.is_finite() & (cells == cells.round()) & (cells.abs() < 2**53)
        short = cells.cast(pl.Int64, strict=False).cast(pl.String)
        return short.zip_with(whole, cells.fill_nan(None).cast(pl.String))
    words = cells.cast(pl.String).str.strip_chars().str.replace(r"^([+-]?\d+)\.0+$", "${1}")
    return words.set(words.str.to_lowercase().is_in(MISSING_WORDS), None)


def without_codes(cells: pl.Series, codes: Sequence[str | float]) -> pl.Series:
    """Cells with null where one is a code of a missing value: as a number or, without case and blanks, as a word.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.schema import without_codes
    >>> without_codes(pl.Series([1.5, -999.0]), ["-999", "<5"]).to_list()
    [1.5, None]
    """
    import polars as pl

    text = is_text(cells)
    if not codes or not (text or cells.dtype.is_numeric()):
        return cells
    known = [_code(code) for code in codes]
    values = pl.Series(known).cast(pl.Float64, strict=False).drop_nulls()
    if text:
        words = cells.cast(pl.String).str.strip_chars().str.to_lowercase()
        gone = words.is_in([code.lower() for code in known]) | words.cast(pl.Float64, strict=False).is_in(values)
    else:
        kind = pl.Float32 if cells.dtype == pl.Float32 else pl.Float64
        gone = cells.cast(kind).is_in(values.cast(kind))
    return pl.select(pl.when(gone.fill_null(False)).then(None).otherwise(cells).alias(cells.name)).to_series()


def _code(code: str | float) -> str:
    """A code of a missing value as text; a whole number without a point."""
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    return str(code).strip()


def _codes(cells: pl.Series, levels: Sequence[str]) -> tuple[Array, list[str]]:
    """Code of each cell, NaN where it is missing or its level unknown, and the unknown levels, quoted."""
    import polars as pl

    words = level_words(cells)
    codes = {level: float(code) for code, level in enumerate(levels)}
    folded: dict[str, float | None] = {}
    for level, code in codes.items():  # another case is the same level, where that is clear
        folded[level.casefold()] = None if level.casefold() in folded else code
    found = {
        word: codes.get(word, folded.get(word.casefold())) for word in words.drop_nulls().unique(maintain_order=True)
    }
    strange = [repr(word) for word, code in found.items() if code is None]
    return words.replace_strict(found, default=None, return_dtype=pl.Float64).to_numpy(), strange


def _numbers(cells: pl.Series, column: Column, where: str, place: Callable[[int], str], wording: Wording) -> Array:
    import polars as pl

    if is_number(cells) or cells.dtype == pl.Null:
        return cells.cast(pl.Float64).to_numpy()
    said = f"{where}column {column.name!r} must hold numbers, but holds"
    if not is_text(cells):
        known = cells.drop_nulls()
        example = f", such as {known[0]}" if len(known) else ""
        raise DataError(f"{said} values of type {cells.dtype}{example}")
    numbers, strange = numbers_in(cells, truths=True)
    bad = strange.arg_true()
    if len(bad) and not column.words_missing:
        first = str(cells[int(bad[0])]).strip()
        more = f", and words in {len(bad) - 1} more" if len(bad) > 1 else ""
        raise DataError(
            f"{said} {first!r} in {place(int(bad[0]))}{more}: correct {'them' if more else 'it'}, or count such words "
            f"as missing {wording.as_missing([first])}"
        )
    return numbers.to_numpy()


# ---------------------------------------------------------------------------------------------------------- TOML


def _settings(values: Mapping[str, Any]) -> list[str]:
    """A line for each setting that says something."""
    said = {name: value for name, value in values.items() if value not in ("", (), None) and value is not False}
    return [f"{name} = {_written(value, plain=name == 'missing')}" for name, value in said.items()]


def _written(value: Any, *, plain: bool = False) -> str:
    """A value as TOML; with `plain`, texts that are numbers are written as such."""
    if isinstance(value, tuple):
        return f"[{', '.join(_written(one, plain=plain) for one in value)}]"
    if isinstance(value, str):
        number = plain and re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value)
        return value if number else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "true" if value is True else f"{value:.17g}"


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str | int | float) for one in value)


def _is_bound(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_SETTINGS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of a column, besides its name: what it must be
    "kind": (lambda value: isinstance(value, str), "a text"),
    "unit": (lambda value: isinstance(value, str), "a text"),
    "levels": (_is_list, 'a list, such as ["female", "male"]'),
    "lower": (_is_bound, "a number"),
    "upper": (_is_bound, "a number"),
    "missing": (lambda value: _is_list(value) and bool not in map(type, value), 'a list, such as [-999, "<5"]'),
    "words_missing": (lambda value: isinstance(value, bool), "true or false"),
}


def _setting(name: str, value: Any, where: str) -> Any:
    """A value in a file, if it is of the right type."""
    is_right, words = _SETTINGS[name]
    if not is_right(value):
        raise DataError(f"{where}{name} must be {words}, got {value!r}")
    return float(value) if is_right is _is_bound else value


def _column(table: Mapping[str, Any]) -> Column:
    """A column from a table of a file."""
    given = dict(table)
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise DataError('a column has no name; write name = "..." below [[columns]]')
    for key in given.keys() - _SETTINGS.keys():
        raise DataError(f"column {name!r} has no setting {key!r}; {nearest_names(key, ['name', *_SETTINGS])}")
    values = {key: _setting(key, value, f"column {name!r}: ") for key, value in given.items()}
    if levels := [str(level).lower() if isinstance(level, bool) else str(level) for level in values.get("levels", ())]:
        values = {"kind": CATEGORY, **values, "levels": tuple(levels)}
    return Column(name, **values)


__all__ = ["Column", "Encoded", "Schema"]
