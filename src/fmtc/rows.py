"""Rows of several silos in one array or in a mapping: checked, divided by silo, and answered in order."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted, validate_data

from .errors import DataError, RowsWarning, nearest_names
from .schema import MANY, Encoded, Schema
from .wording import ARRAYS, FRAMES

Array = np.ndarray
NAMELESS = {"nan", "None", "<NA>", "NaT", ""}
SINGLE = "all"  # name of the only silo if `silos` is omitted


class SilosMixin:
    """What an estimator with one model per silo needs for `fit(X, silos=)` and `predict(X, silos=)`.

    A fitted estimator has `silos_`, sorted, and `_models`, one for each; and `schema_` where rows came with names
    of columns or with categories.
    """

    takes_missing: ClassVar[bool] = False  # whether NaN, categories and other orders of columns are accepted
    schema_: Schema
    _silo_column: str | None = None  # of the rows of `fit`, which names the silos
    _models: Any  # mapping of silo to model

    @property
    def silos_(self) -> list[str]:
        """Names of the silos, sorted."""
        return list(self._models)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_models")

    def _model_of(self, silo: Any) -> Any:
        try:
            return self._models[silo_name(silo)]
        except KeyError:
            known = ", ".join(map(repr, self.silos_))
            raise DataError(f"unknown silo {silo_name(silo)!r}; this model has {known}") from None

    def _each(self, X: Any, silos: Any, answer: Callable[[Any, Any], Array], **checks: Any) -> Any:
        """Answer for every row with its silo's model, in the order of the rows."""
        check_is_fitted(self)
        parts = self._parts(X, silos, reset=False, **checks)
        found = {cid: answer(Xt, self._models[cid]) for cid, (Xt, _) in parts.items()}
        first = next(iter(found.values()))
        answers = np.empty((sum(map(len, found.values())), *first.shape[1:]), np.result_type(*found.values()))
        for cid, (_, rows) in parts.items():
            answers[rows] = found[cid]
        return self._as_given(X, answers)

    def _as_given(self, X: Any, answers: Array) -> Any:
        """One array for an array; for a mapping of silos, a mapping with the same keys."""
        if not is_mapping(X):
            return answers
        ends = np.cumsum([_n_rows(Xt) for Xt in X.values()])
        return dict(zip(X, np.split(answers, ends[:-1]), strict=True))

    # ----------------------------------------------------------------------------------------------- division

    def _parts(self, X: Any, silos: Any, *, reset: bool, **checks: Any) -> dict[str, tuple[Any, Any]]:
        """Checked rows of each silo and their positions in the input; new silos are accepted only when fitting."""
        checks |= {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        if is_mapping(X):
            parts = self._parts_of_mapping(X, silos, checks, reset)
        else:
            _refuse_tables(X)
            X, silos = self._column_of_silos(X, silos, reset)
            X = self._encoded({"": X}, reset, silos is not None)[""]
            X = self._checked(X, reset=reset, ensure_min_samples=2 if reset else 1, **checks)
            places = self._places(X.shape[0], silos, reset)
            parts = {name: (X[rows] if len(places) > 1 else X, rows) for name, rows in places.items()}
        return self._noted(parts, reset)

    def _places(self, n: int, silos: Any, reset: bool) -> dict[str, Any]:
        """Which of n rows are those of each silo; a slice where all are."""
        if silos is None:
            if not reset and len(self.silos_) > 1:
                known = ", ".join(map(repr, self.silos_))
                raise DataError(f"the silo of these rows is not given: pass silos=; this model has {known}")
            return {SINGLE if reset else self.silos_[0]: slice(None)}
        single = not reset and np.ndim(silos) == 0
        places = {_named(silos): slice(None)} if single else _rows_by_silo(silos, n)
        for name in () if reset else places:
            self._model_of(name)
        return places

    def _parts_of_mapping(
        self, X: Mapping[Any, Any], silos: Any, checks: dict[str, Any], reset: bool
    ) -> dict[str, tuple[Any, Any]]:
        if silos is not None:
            raise TypeError("X is already a mapping of silos; omit silos=")
        if not X:
            raise DataError("X is an empty mapping; give at least one silo")
        given: dict[str, Any] = {}
        for key, rows in X.items():
            name = _named(key)
            if name in given:
                raise DataError(f"two silos are called {name!r}; names must differ as text")
            if not reset:
                self._model_of(name)
            given[name] = _unwrapped(rows)
            if getattr(given[name], "ndim", 2) == 1:
                raise DataError(
                    f"silo {name!r} has a single column and no table: a mapping is of silos to tables. If these "
                    "are the columns of one table, give a data frame, such as pandas.DataFrame(X)"
                )
        parts: dict[str, tuple[Any, Any]] = {}
        begin = 0
        for name, rows in self._encoded(given, reset, True).items():
            Xt = self._checked(rows, f"silo {name!r}: ", reset=reset and not parts, **checks)
            parts[name] = (Xt, slice(begin, begin + Xt.shape[0]))
            begin += Xt.shape[0]
        dtypes = {Xt.dtype for Xt, _ in parts.values()}
        if len(dtypes) > 1:  # one silo in double precision: all compute in double precision
            parts = {name: (Xt.astype(np.float64, copy=False), rows) for name, (Xt, rows) in parts.items()}
        return parts

    def _column_of_silos(self, X: Any, silos: Any, reset: bool) -> tuple[Any, Any]:
        """Rows and the silo of each, where `silos` may be the name of a column, which then is no feature."""
        whole, X = X, _unwrapped(X)
        about = whole.obs if _is_anndata(whole) else X
        names = [str(name) for name in about.columns] if _is_frame(about) else []
        column = self._column(silos, names, reset)
        if reset:
            self._silo_column = column
        if column is not None:
            return _without(X, column) if about is X else X, np.asarray(about[column])
        if reset:
            _check_silos(silos, X if about is X else None, names)
        return X, silos

    def _column(self, silos: Any, names: list[str], reset: bool) -> str | None:
        """The column that names the silos: the one that was asked for or, of a model of several, that of `fit`."""
        if silos is None and not reset and len(self.silos_) > 1:
            silos = self._silo_column
        return silos if isinstance(silos, str) and silos in names and (reset or silos not in self.silos_) else None

    # ------------------------------------------------------------------------------------------------- columns

    def _encoded(self, given: dict[str, Any], reset: bool, divided: bool) -> dict[str, Any]:
        """Rows as numbers: data frames by their schema, which is found when fitting; everything else as it is.

        `divided`: whether it is known which silo each row is from.
        """
        if reset:
            self.__dict__.pop("schema_", None)
        encoded = {name: rows for name, rows in given.items() if isinstance(rows, Encoded)}
        if encoded:
            if reset:
                self.schema_ = next(iter(encoded.values())).schema
            return given | {name: rows.X for name, rows in encoded.items()}
        frames = {name: rows for name, rows in given.items() if _is_frame(rows)}
        if not self.takes_missing or not frames:
            return given
        from .tables.frames import check_plain, encode

        if reset and len(frames) == len(given):
            self._learn_schema(frames, divided)
        elif reset:
            check_plain(frames, next(name for name in given if name not in frames))
        if not hasattr(self, "schema_"):
            return given
        return given | {name: encode(frame, self.schema_, name) for name, frame in frames.items()}

    def _learn_schema(self, frames: dict[str, Any], divided: bool) -> None:
        """Find out what the columns of data frames are, and warn of those that may be no features."""
        from .tables.frames import as_polars, check_frames, infer, is_plain

        if any(not _n_rows(frame) or not len(frame.columns) for frame in frames.values()):
            return  # for the check to refuse
        check_frames(frames)
        names = list(next(iter(frames.values())).columns)
        said: list[str] = []
        plain = all(is_plain(frame) and list(frame.columns) == names for frame in frames.values())
        if plain and len(names) > MANY:
            schema = Schema.of_numbers(names)
        else:
            schema, said = infer({name: as_polars(frame) for name, frame in frames.items()}, joining=divided)
        for sentence in said:
            warnings.warn(sentence, RowsWarning, stacklevel=6)
        if not plain or all(isinstance(name, str) for name in names):
            self.schema_ = schema

    def _checked(self, X: Any, prefix: str = "", **checks: Any) -> Any:
        """scikit-learn's check of rows; what it finds wrong with the values is an error in the data."""
        if self.takes_missing and not sp.issparse(X):
            checks.setdefault("ensure_all_finite", "allow-nan")
        try:
            return validate_data(self, X, **checks)
        except ValueError as error:
            sentence = _bad_cell(X) if self.takes_missing else None
            raise DataError(f"{prefix}{sentence or error}") from error
        except TypeError as error:
            raise TypeError(f"{prefix}{error}") from error

    def _noted(self, parts: dict[str, tuple[Any, Any]], reset: bool) -> dict[str, tuple[Any, Any]]:
        """Warn of values that look wrong, or decide the clusters alone."""
        if not reset or not self.takes_missing or any(sp.issparse(Xt) for Xt, _ in parts.values()):
            return parts
        from .tables.silos import Silo
        from .tables.values import remarks

        names, schema = getattr(self, "feature_names_in_", None), getattr(self, "schema_", None)
        called = None if names is None else tuple(map(str, names))
        silos = [Silo(name, Xt, called, np.arange(len(Xt)), schema=schema) for name, (Xt, _) in parts.items()]
        wording, scaled = ARRAYS if names is None else FRAMES, getattr(self, "scale", "") != "none"
        for remark in remarks(silos, scaled=scaled, wording=wording):
            warnings.warn(remark, RowsWarning, stacklevel=4)
        return parts


# ------------------------------------------------------------------------------------------------------- names


def silo_name(silo: Any) -> str:
    """The name of a silo as text: without surrounding blanks, and a whole number without decimals.

    Examples
    --------
    >>> from fmtc.rows import silo_name
    >>> silo_name(1), silo_name(1.0), silo_name("north ")
    ('1', '1', 'north')
    """
    if isinstance(silo, float | np.floating) and float(silo).is_integer():
        return str(int(silo))
    return str(silo).strip()


def refuse_names(y: Any) -> None:
    """Refuse words in the place of `y`, which is ignored: they are meant to be `silos`.

    Examples
    --------
    >>> from fmtc.rows import refuse_names
    >>> refuse_names([0, 1, 1])
    >>> try:
    ...     refuse_names(["north", "south"])
    ... except ValueError as error:
    ...     print(str(error).partition(";")[0])
    y is ignored, but holds words such as 'north'
    """
    values = [] if y is None else np.asarray(y).ravel()[:100].tolist()
    if words := [value for value in values if isinstance(value, str | bytes)]:
        raise DataError(
            f"y is ignored, but holds words such as {str(words[0])!r}; if they name the silo of each row, write silos="
        )


def refuse_blind_search(caller: FrameType) -> None:
    """Raise `DataError` where a search of scikit-learn passes `silos` to `fit` and will score without them.

    Otherwise every `score` fails, which the search reports as NaN, and then names the best of them.
    """
    about = caller.f_locals if caller.f_code.co_name == "_fit_and_score" else {}
    if type(about.get("scorer")).__name__ == "_PassthroughScorer" and not about.get("score_params"):
        raise DataError(
            "this search passes silos= to fit but not to score: call "
            "sklearn.set_config(enable_metadata_routing=True) first, or give X a column with the silo of each row, and "
            "its name as silos="
        )


@contextmanager
def unchanged_if_it_fails(estimator: Any) -> Iterator[None]:
    """Give an estimator back what it knew, such as columns and models of an earlier fit, if the block does not end."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@dataclass(frozen=True, eq=False)
class Remembered:
    """Rows of others, which are not kept alive: weak references, and the silo of each row as it was given."""

    rows: Any
    silos: Any

    @classmethod
    def of(cls, X: Any, silos: Any) -> Self | None:
        """None for what cannot be referred to weakly, such as a list."""
        try:
            rows = {key: weakref.ref(Xt) for key, Xt in X.items()} if is_mapping(X) else weakref.ref(X)
        except TypeError:
            return None
        return cls(rows, silos)

    def recall(self) -> Any:
        """The rows; None if some are gone."""
        if not isinstance(self.rows, dict):
            return self.rows()
        found = {key: rows() for key, rows in self.rows.items()}
        return None if any(rows is None for rows in found.values()) else found


def is_mapping(X: Any) -> bool:
    """Whether X is a mapping of silos to rows."""
    return isinstance(X, Mapping) and not sp.issparse(X)  # a dok_array is also a dict


def _without(frame: Any, column: str) -> Any:
    return frame.drop(column) if hasattr(frame, "get_column") else frame.drop(columns=column)


def _check_silos(silos: Any, frame: Any, names: list[str]) -> None:
    """Refuse the name of a column that X lacks; warn of a column of the frame X that names the silos as `silos` do."""
    if isinstance(silos, str):
        near = f"; {nearest_names(silos, names)}" if names else ", and X has no names of columns."
        raise DataError(
            f"silos={silos!r} is not a column of X{near} Give one name per row, or, for a single "
            f"silo of this name, fit({{{silos!r}: X}})"
        )
    called = getattr(silos, "name", None)
    if frame is None or called not in names or len(silos) != len(frame):
        return
    if (np.asarray(silos) == np.asarray(frame[called])).all():
        warnings.warn(
            f"the column {called!r} of X names the silos, and is clustered on like any other: write "
            f"silos={called!r}, which sets it aside",
            UserWarning,
            stacklevel=5,
        )


def _n_rows(X: Any) -> int:
    if _is_lazy(X):
        return int(X.collect().height)
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _named(silo: Any) -> str:
    """The name of a silo, which must have one."""
    if (name := silo_name(silo)) in NAMELESS:
        raise DataError(f"a silo has no name: {silo!r}")
    return name


def _rows_by_silo(silos: Any, n: int) -> dict[str, Any]:
    """The rows of each silo, from one name per row; a slice where all are of one."""
    array = np.asarray(silos)
    if array.ndim != 1 or len(array) != n:
        raise DataError(f"silos must hold one name per row: X has {n} rows, silos has shape {array.shape}")
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind == "O":  # numbers among them, as a column of a table may hold
        array = np.array([silo_name(silo) for silo in array])
    words = np.char.strip(array.astype(str))
    values, codes = np.unique(words, return_inverse=True)
    if missing := NAMELESS & set(values.tolist()):
        raise DataError(f"silos has {int(np.isin(words, list(missing)).sum())} rows without a name")
    if len(values) == 1:
        return {str(values[0]): slice(None)}
    order = np.argsort(codes, kind="stable")
    return dict(zip(values.tolist(), np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True))


# ------------------------------------------------------------------------------------------------- kinds of rows


def _is_anndata(X: Any) -> bool:
    return type(X).__name__ == "AnnData" and hasattr(X, "obs") and hasattr(X, "X")


def _is_lazy(X: Any) -> bool:
    return type(X).__name__ == "LazyFrame" and hasattr(X, "collect")


def _is_frame(X: Any) -> bool:
    package = type(X).__module__.partition(".")[0]
    return package in ("pandas", "polars") and type(X).__name__ in ("DataFrame", "LazyFrame")


def _unwrapped(X: Any) -> Any:
    """The rows themselves: the matrix of AnnData, a lazy frame collected, a mask as NaN."""
    if _is_anndata(X):
        X = X.X
    if _is_lazy(X):
        X = X.collect()
    if isinstance(X, np.ma.MaskedArray):
        kind = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
        X = np.ma.filled(X.astype(kind), np.nan)
    return X


def _refuse_tables(X: Any) -> None:
    """Refuse a list of tables, whose silos have no names."""
    if isinstance(X, list | tuple) and X and all(_is_frame(one) or np.ndim(one) == 2 or sp.issparse(one) for one in X):
        raise DataError(
            f"X is a list of {len(X)} tables: give each a name, such as {{'north': tables[0], 'south': tables[1]}}"
        )


def _bad_cell(X: Any) -> str | None:
    """A sentence about the first cell of a dense table that is no number or infinite."""
    try:
        array = np.asarray(X)
    except Exception:
        return None
    if array.ndim != 2 or not array.size:  # a sparse matrix is a single object
        return None
    names = [repr(str(name)) for name in X.columns] if _is_frame(X) else list(range(array.shape[1]))
    if array.dtype.kind in "OUS":
        return _bad_word(array, names)
    if array.dtype.kind != "f" or not np.isinf(array).any():
        return None
    row, column = np.argwhere(np.isinf(array))[0].tolist()
    return f"Input X contains infinity in column {names[column]} (first in row {row}): replace it or remove those rows"


def _bad_word(array: Array, names: list[Any]) -> str | None:
    """A sentence about the first cell that is no number, column by column, if it is a word."""
    for (column, row), value in np.ndenumerate(array.T.astype(object)):
        try:
            float(value)
        except (TypeError, ValueError):
            if not isinstance(value, str):
                return None
            return (
                f"column {names[column]} holds {value!r} in row {row}, which is no number: give a data frame, whose "
                "words become categories"
            )
    return None
