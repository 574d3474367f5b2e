"""Silos from files: CSV, TSV, Parquet, .npy and .npz, each refused with one clear sentence where it cannot be used."""

from __future__ import annotations

import csv
import math
import os
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from rich.filesize import decimal

from .text import N_BUCKETS, SALT, hashed_counts

Array = np.ndarray

SEPARATORS = {".csv": ",", ".tsv": "\t"}
EXTENSIONS = (*SEPARATORS, ".parquet", ".npy", ".npz")
MISSING_WORDS = ("", ".", "?", "-", "na", "n/a", "null", "none")  # besides nan, which reads as a number
INFLATED = 2**30  # bytes that any archive may grow to in memory
INFLATION = 100  # times its own size, to which a larger one may
SHOWN = 5  # names listed in a message before "and ... more"


class DataError(ValueError):
    """Input that cannot be clustered as it is; the message says what came in and what would work."""


@dataclass(frozen=True, eq=False)
class Silo:
    """The rows of one client, as numbers.

    `X` is a float array or a sparse ``csr_array`` of shape (n, d); `rows` tells where each row stood in its file,
    counted from 0.
    """

    name: str
    X: Any
    feature_names: tuple[str, ...] | None
    rows: Array
    ids: list[str | None] | None = None
    labels: list[str | None] | None = None


def read_silos(
    paths: Iterable[str | Path],
    *,
    client_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    text_column: str | None = None,
    salt: str = SALT,
    n_buckets: int = N_BUCKETS,
) -> list[Silo]:
    """Read one silo per file, named after the file, or with `client_column` one per value of it in a single file.

    Columns in another order than the first silo's are put in its order, with a warning that says so.

    Parameters
    ----------
    paths : iterable of paths
        Tables (``.csv``, ``.tsv``, ``.parquet``) or matrices without column names (``.npy``; ``.npz`` with one
        2-D array, with one under the key ``X``, or written by ``scipy.sparse.save_npz``).
    client_column, label_column, id_column : str, optional
        Columns that are no features: silo, known class and identifier of each row.
    drop : sequence of str
        Further columns to leave out.
    features : sequence of str, optional
        The columns of a model, which the silos must have; left out, all must have those of the first.
    text_column : str, optional
        Column of texts, whose words are counted: `X` is then `fmtc.tables.text.hashed_counts` of it, and there are no
        other features. A missing text has no words.
    salt, n_buckets
        For the words of texts, as in `hashed_counts`.

    Raises
    ------
    DataError
        Where a file is missing, damaged, empty or of another kind, and where what it holds is not one number per
        cell, the same columns in every silo.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables.reading import read_silos
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("name,height,weight\\nAda,170,60\\nBob,180,80.5\\n")
    ...     (silo,) = read_silos([file], id_column="name")
    >>> silo.name, silo.feature_names, silo.ids
    ('north', ('height', 'weight'), ['Ada', 'Bob'])
    >>> silo.X
    array([[170. ,  60. ],
           [180. ,  80.5]])
    """
    files = _by_name([Path(path) for path in paths])
    if client_column is not None and len(files) > 1:
        raise DataError(f"--client-column splits one file into silos, but {len(files)} files were given: give one")
    roles = {"--client-column": client_column, "--label-column": label_column, "--id-column": id_column}
    roles["--text-column"] = text_column
    named = {flag: column for flag, column in roles.items() if column is not None}
    contents = {name: _read(path) for name, path in files.items()}
    kinds = {name: _kind(content) for name, content in contents.items()}
    if len(set(kinds.values())) > 1:
        listed = _joined([f"{files[name].name} is {kind}" for name, kind in kinds.items()])
        raise DataError(f"the files are of different kinds: {listed}. Save all silos in one kind.")
    if "a table" not in kinds.values():
        if named or drop:
            flag = next(iter(named), "--drop")
            file = next(iter(files.values())).name
            raise DataError(
                f"{file} has no column names, so {flag} cannot be used; save a table (.csv, .tsv, .parquet) instead"
            )
        silos = [Silo(name, X, None, np.arange(X.shape[0])) for name, X in contents.items()]
        _check_widths(silos)
    else:
        _check_columns({files[name].name: table.columns for name, table in contents.items()}, named, drop)
        parts = _split(contents, files, client_column)
        others = {*named.values(), *drop}
        if text_column is not None:
            return [
                Silo(
                    name,
                    hashed_counts(_only_texts(name, part.frame, text_column, others), salt, n_buckets),
                    None,
                    part.rows,
                    *_said_of_rows(part, id_column, label_column),
                )
                for name, part in parts.items()
            ]
        tables = _same_columns({name: part.features(others) for name, part in parts.items()}, features)
        _check_numbers(tables)
        silos = [
            Silo(
                name,
                _as_matrix(table),
                tuple(table.columns),
                parts[name].rows,
                *_said_of_rows(parts[name], id_column, label_column),
            )
            for name, table in tables.items()
        ]
    _check_values(silos)
    return silos


def constant_columns(silos: Sequence[Silo]) -> dict[str, list[str]]:
    """Columns with one value in all rows of a silo, and the silos where that is so; most silos first."""
    where: dict[int, list[str]] = {}
    for silo in silos:
        for column in np.flatnonzero(_is_constant(silo.X)).tolist():
            where.setdefault(column, []).append(silo.name)
    columns = sorted(where, key=lambda column: (-len(where[column]), column))
    return {_column_name(silos[0], column): where[column] for column in columns}


def nearest_names(name: str, names: Iterable[str]) -> str:
    """A clause with the names most like one that is not there, or with the first of those that are."""
    names = list(names)
    folded = {other.casefold(): other for other in names}
    near = [folded[match] for match in get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there is {_listed(names)}."


# ------------------------------------------------------------------------------------------------------- files

_PLAIN = "x"  # Polars takes a name such as ^a$ or * for a pattern, so it computes with plain names
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def _by_name(paths: list[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in paths:
        if path.stem in files:
            raise DataError(
                f"{files[path.stem]} and {path} would both be silo {path.stem!r}, as silos are named after their "
                "files: rename one, or put both in one file and use --client-column"
            )
        files[path.stem] = path
    if not files:
        raise DataError("no file was given; give one file per silo, or one file and --client-column")
    return files


def _kind(content: Any) -> str:
    if isinstance(content, pl.DataFrame):
        return "a table"
    return "a sparse matrix" if sp.issparse(content) else "a dense matrix without column names"


def _read(path: Path) -> Any:
    """Content of one file: a frame, a float array or a csr_array, with at least one row and one column."""
    suffix = path.suffix.lower()
    if suffix not in EXTENSIONS:
        raise DataError(f"{path} is of no kind that fmtc reads; it reads {', '.join(EXTENSIONS)}")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the name, or the folder you are in")
    if not path.is_file():
        raise DataError(f"{path} is not a file; give the files in it one by one")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty: it has no byte in it")
        if suffix in SEPARATORS:
            content: Any = _read_delimited(path, SEPARATORS[suffix])
        elif suffix == ".parquet":
            content = _read_parquet(path)
        else:
            content = _read_array(path)
    except DataError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # whatever NumPy, SciPy, zlib and Polars raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} cannot be read, it is damaged or not a {suffix} file: {reason}") from error
    if content.shape[0] == 0:
        raise DataError(f"{path} has {content.shape[1]} columns but no rows")
    if content.shape[1] == 0:
        raise DataError(f"{path} has {content.shape[0]} rows but no columns")
    return content


def _read_delimited(path: Path, separator: str) -> pl.DataFrame:
    """All cells are read as text and then turned to numbers here, so that no guess from the first rows decides."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = next((line for line in csv.reader(stream, delimiter=separator) if line), [])
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8; save it in that encoding") from None
    names = [name.strip() for name in header]
    if not any(names):
        raise DataError(f"{path} has no header; its first line must name the columns")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has more than one column called {_listed(twice)}; give each its own name")
    frame = pl.read_csv(path, separator=separator, infer_schema=False, has_header=True)
    frame.columns = [str(place) for place in range(frame.width)]
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    frame = frame.head(0 if filled.is_empty() else int(filled[-1]) + 1)  # empty lines at the end are no rows
    frame.columns = names
    if frame.width == 1 and frame.height:
        line = str(frame.item(0, 0))
        mark = next((mark for mark in _MARKS if mark != separator and mark in names[0] and mark in line), None)
        if mark is not None:
            raise DataError(
                f"{path} seems to be separated by {_MARKS[mark]}: it has the single column {names[0]!r}. "
                "Write a .csv with commas or a .tsv with tabs, and decimal points."
            )
    return frame


def _numbers(column: pl.Series) -> pl.Series:
    """A column of words as numbers, if each is one or stands for a missing one; else without blanks around them."""
    words = column.alias(_PLAIN).str.strip_chars()
    numbers = words.cast(pl.Float64, strict=False)
    strange = words.filter(numbers.is_null() & words.is_not_null()).str.to_lowercase().unique()
    if strange.is_empty():
        return numbers
    meaning = {"true": 1.0, "false": 0.0} | dict.fromkeys(MISSING_WORDS)
    if strange.is_in(list(meaning)).all():
        known = words.str.to_lowercase().replace_strict(meaning, default=None, return_dtype=pl.Float64)
        return pl.select(pl.coalesce(numbers, known)).to_series()
    return words


def _read_parquet(path: Path) -> pl.DataFrame:
    table = pl.scan_parquet(path, hive_partitioning=False)
    _check_memory(path, table.select(pl.len()).collect().item() * len(table.collect_schema()) * 8)
    return table.collect()


def _read_array(path: Path) -> Any:
    """The matrix of an .npy or .npz file; its size is held against the file and the memory before it is read."""
    if path.suffix.lower() == ".npy":
        with path.open("rb") as stream:
            _check_memory(path, _Header.read(stream, path.stat().st_size).in_memory)
            stream.seek(0)
            return _as_numbers(path, np.load(stream, allow_pickle=False))
    with zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        is_sparse = {"format", "shape", "data"} <= set(keys)
        headers = {}
        for key in ["X"] if "X" in keys and not is_sparse else keys:
            with archive.open(f"{key}.npy") as stream:
                headers[key] = _Header.read(stream, archive.getinfo(f"{key}.npy").file_size)
    if is_sparse:
        return _as_numbers(path, _read_sparse(path, headers))
    flat = [key for key, header in headers.items() if len(header.shape) == 2 or key == "X"]
    if len(flat) != 1:
        raise DataError(
            f"{path} holds {len(flat)} 2-D arrays (keys: {_listed(keys)}); give an .npz with exactly one, with one "
            "called 'X', or one written by scipy.sparse.save_npz"
        )
    _check_inflated(path, headers[flat[0]].in_memory)
    with np.load(path, allow_pickle=False) as arrays:
        return _as_numbers(path, arrays[flat[0]])


def _read_sparse(path: Path, headers: Mapping[str, _Header]) -> sp.csr_array:
    """The matrix that `scipy.sparse.save_npz` wrote; its shape alone asks for a number for each row and column."""
    _check_inflated(path, sum(header.n_bytes for header in headers.values()))
    with np.load(path, allow_pickle=False) as arrays:
        shape = [int(side) for side in arrays["shape"].ravel()]
    if len(shape) != 2 or min(shape) < 0:
        raise DataError(f"{path} holds an array of shape {tuple(shape)}; a silo is 2-D, one line per row")
    _check_inflated(path, 8 * sum(shape))
    X = sp.csr_array(sp.load_npz(path))
    X.check_format(full_check=True)
    X.sum_duplicates()
    return X


@dataclass(frozen=True)
class _Header:
    """What an array in a file says of itself."""

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def read(cls, stream: IO[bytes], size: int) -> _Header:
        """The header of an array whose file has `size` bytes, if these are as many as it says."""
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        header, there = cls(shape, dtype), size - stream.tell()
        if min(shape, default=0) < 0 or (header.n_bytes > there and not dtype.hasobject):
            raise ValueError(
                f"its header promises {' x '.join(map(str, shape))} values of type {dtype}, {decimal(header.n_bytes)}, "
                f"and {decimal(there)} are there"
            )
        return header

    @property
    def n_bytes(self) -> int:
        """In the file."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def in_memory(self) -> int:
        """Bytes of the numbers it becomes."""
        return math.prod(self.shape) * (4 if self.dtype == np.float32 else 8)


def _check_memory(path: Path, n_bytes: int) -> None:
    """Refuse what this machine cannot hold."""
    if n_bytes > _memory():
        raise DataError(
            f"{path} needs {decimal(n_bytes)}, and this machine has {decimal(int(_memory()))} of memory: leave out "
            "rows or columns, or take a larger machine"
        )


def _check_inflated(path: Path, n_bytes: int) -> None:
    """Refuse an archive that is so much larger in memory that it is hardly an honest one."""
    _check_memory(path, n_bytes)
    size = path.stat().st_size
    if n_bytes > max(INFLATED, INFLATION * size):
        raise DataError(
            f"{path} has {decimal(size)} and would take {decimal(n_bytes)} of memory: above {decimal(INFLATED)}, a "
            f"file may grow {INFLATION} times. If you trust it, save it without compression (numpy.save), or a sparse "
            "matrix without its empty rows and columns"
        )


def _memory() -> float:
    """Bytes of memory of this machine; no bound where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _as_numbers(path: Path, X: Any) -> Any:
    if X.ndim != 2:
        raise DataError(f"{path} holds an array of shape {X.shape}; a silo is 2-D, one line per row")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{path} holds values of type {X.dtype}; a silo holds real numbers")
    return X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)


# ----------------------------------------------------------------------------------------------------- columns


def _check_columns(columns: Mapping[str, Sequence[str]], named: Mapping[str, str], drop: Sequence[str]) -> None:
    """Columns asked for by name: the named ones must be in every file, a dropped one in some file."""
    for flag, column in named.items():
        for file, names in columns.items():
            if column not in names:
                raise DataError(f"{flag}: {file} has no column {column!r}; {nearest_names(column, names)}")
    everywhere = list(dict.fromkeys(name for names in columns.values() for name in names))
    for column in drop:
        if column not in everywhere:
            raise DataError(f"--drop: no file has a column {column!r}; {nearest_names(column, everywhere)}")


@dataclass(frozen=True, eq=False)
class _Part:
    """The lines of one silo as they stand in its file."""

    frame: pl.DataFrame
    rows: Array
    typed: bool  # False where all cells are words still

    def features(self, others: set[str]) -> pl.DataFrame:
        columns = {column.name: column for column in self.frame.get_columns() if column.name not in others}
        return pl.DataFrame(columns if self.typed else {name: _numbers(column) for name, column in columns.items()})


def _split(
    frames: Mapping[str, pl.DataFrame], files: Mapping[str, Path], client_column: str | None
) -> dict[str, _Part]:
    typed = {name: files[name].suffix.lower() not in SEPARATORS for name in frames}
    if client_column is None:
        return {name: _Part(frame, np.arange(frame.height), typed[name]) for name, frame in frames.items()}
    ((name, frame),) = frames.items()
    clients = _names(frame, client_column)
    if clients.null_count():
        raise DataError(
            f"--client-column: {clients.null_count()} rows of {files[name].name} have no value in {client_column!r}"
        )
    parts = {}
    for client in clients.unique(maintain_order=True):
        rows = (clients == client).arg_true()
        parts[client] = _Part(frame[rows], rows.to_numpy(), typed[name])
    return parts


def _said_of_rows(
    part: _Part, id_column: str | None, label_column: str | None
) -> tuple[list[str | None] | None, list[str | None] | None]:
    """Identifiers and known classes of the rows."""
    return (
        None if id_column is None else _words(part.frame, id_column).to_list(),
        None if label_column is None else _names(part.frame, label_column).to_list(),
    )


def _only_texts(name: str, frame: pl.DataFrame, text_column: str, others: set[str]) -> list[str | None]:
    """The column of texts, which must be the only one that is not set aside."""
    extra = [column for column in frame.columns if column not in others]
    if extra:
        raise DataError(
            f"silo {name!r} has {_listed(extra)} besides the texts in {text_column!r}, and words and numbers are not "
            "clustered together: leave such columns out with --drop, or name them by --id-column, --label-column or "
            "--client-column"
        )
    return _words(frame, text_column).to_list()


def _words(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as text; missing values stay null."""
    column = frame.get_column(name).alias(_PLAIN)
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise DataError(f"column {name!r} holds values of type {column.dtype}, which name nothing") from None


def _names(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as text without blanks around it; where nothing is left, null."""
    return _words(frame, name).str.strip_chars().replace("", None)


def _same_columns(tables: dict[str, pl.DataFrame], features: Sequence[str] | None) -> dict[str, pl.DataFrame]:
    """The tables with the same columns of the same types in the same order, or a readable difference."""
    first = next(iter(tables))
    if features is None:
        reference, kinds = repr(first), {c.name: _column_kind(c) for c in tables[first]}
    else:
        reference, kinds = "the model", dict.fromkeys(features, "numbers")
    differences = {name: found for name, table in tables.items() if (found := _difference(table, kinds, reference))}
    if differences:
        lines = _joined([f"{name}: {found}" for name, found in differences.items()], "\n  ", " silos")
        raise DataError(
            f"the columns differ from those of {reference}:\n  {lines}\n"
            "Bring every silo to the same columns, or leave some out with --drop, --id-column or --label-column."
        )
    turned = [name for name, table in tables.items() if table.columns != list(kinds)]
    if turned:
        warnings.warn(f"{_listed(turned)}: columns put in the order of {reference}", UserWarning, stacklevel=3)
    return {name: pl.DataFrame({c: table.get_column(c) for c in kinds}) for name, table in tables.items()}


def _difference(table: pl.DataFrame, kinds: Mapping[str, str], reference: str) -> str:
    columns = table.schema
    missing = [name for name in kinds if name not in columns]
    extra = [name for name in columns if name not in kinds]
    found = [f"lacks {_listed(missing)}"] if missing else []
    if extra:
        found.append(f"has {_listed(extra)} besides")
    for column in table:
        kind, wanted = _column_kind(column), kinds.get(column.name, "nothing")
        if kind != wanted and "nothing" not in (kind, wanted):
            example = f" (such as {_example(column)!r})" if kind == "text" else ""
            found.append(f"{column.name!r} holds {kind}{example}, and {wanted} in {reference}")
    return "; ".join(found)


def _column_kind(column: pl.Series) -> str:
    if column.null_count() == len(column):
        return "nothing"
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return "numbers"
    return "text" if column.dtype in (pl.String, pl.Categorical, pl.Enum) else f"values of type {column.dtype}"


def _example(column: pl.Series) -> str:
    """A value that is not a number, if there is one."""
    words = column.alias(_PLAIN).cast(pl.String).drop_nulls()
    strange = words.filter(
        words.cast(pl.Float64, strict=False).is_null() & ~words.str.to_lowercase().is_in(MISSING_WORDS)
    )
    return str((strange if len(strange) else words)[0])


def _check_numbers(tables: Mapping[str, pl.DataFrame]) -> None:
    for name, table in tables.items():
        if "" in table.columns:
            raise DataError(
                f"silo {name!r} has a column without a name (row numbers written along?); give it a name, or leave it "
                'out with --drop ""'
            )
        kinds = {column.name: _column_kind(column) for column in table}
        others = [
            f"{c!r} ({kind}{f', such as {_example(table.get_column(c))!r}' if kind == 'text' else ''})"
            for c, kind in kinds.items()
            if kind not in ("numbers", "nothing")
        ]
        if others:
            raise DataError(
                f"only numbers can be clustered, but silo {name!r} has {_joined(others)}; leave such columns out "
                "with --drop, or name them by --id-column, --label-column or --client-column"
            )
        if table.width == 0:
            raise DataError(f"silo {name!r} has no column of numbers left to cluster")


def _as_matrix(table: pl.DataFrame) -> Array:
    dtype = pl.Float32 if set(table.dtypes) == {pl.Float32} else pl.Float64
    plain = pl.DataFrame({str(place): column for place, column in enumerate(table)})
    return np.ascontiguousarray(plain.cast(dtype).to_numpy())  # null becomes nan


# ------------------------------------------------------------------------------------------------------ values


def _check_widths(silos: Sequence[Silo]) -> None:
    width = silos[0].X.shape[1]
    others = [f"{s.name!r} has {s.X.shape[1]}" for s in silos if s.X.shape[1] != width]
    if others:
        raise DataError(
            f"the silos differ in their number of columns: {silos[0].name!r} has {width}, {_joined(others)}. "
            "Bring every silo to the same columns."
        )


def _check_values(silos: Sequence[Silo]) -> None:
    for what, advice, bad in (
        ("missing", "fill them or remove those rows", np.isnan),
        ("infinite", "replace them or remove those rows", np.isinf),
    ):
        found = {}
        for silo in silos:
            counts = _count(silo.X, bad)
            columns = np.flatnonzero(counts).tolist()
            if columns:
                found[silo.name] = _joined([f"{_column_name(silo, c)!r} ({counts[c]})" for c in columns])
        if found:
            listed = _joined([f"silo {name!r} in {columns}" for name, columns in found.items()], "; ", " silos")
            raise DataError(
                f"there are {what} values: {listed}. FMTC needs a number in every cell: {advice}, or leave the "
                "columns out with --drop."
            )


def _count(X: Any, bad: Any) -> Array:
    """How many entries of each column are bad; shape (d,)."""
    if sp.issparse(X):
        return np.bincount(X.indices[bad(X.data)], minlength=X.shape[1])
    return np.count_nonzero(bad(X), axis=0)


def _is_constant(X: Any) -> Array:
    if sp.issparse(X):
        return (X.max(axis=0).toarray() == X.min(axis=0).toarray()).ravel()
    return (X[0] == X).all(axis=0)


# ------------------------------------------------------------------------------------------------------- words


def _column_name(silo: Silo, column: int) -> str:
    return f"column {column}" if silo.feature_names is None else silo.feature_names[column]


def _joined(items: Sequence[str], separator: str = ", ", noun: str = "") -> str:
    """The first few items, and how many more there are."""
    more = [f"and {len(items) - SHOWN} more{noun}"] if len(items) > SHOWN else []
    return separator.join([*items[:SHOWN], *more])


def _listed(names: Iterable[str]) -> str:
    return _joined([repr(name) for name in names])


__all__ = ["DataError", "Silo", "constant_columns", "nearest_names", "read_silos"]
