"""Tables and texts with named columns: pickled data frames (read without pandas, without running them) and text files.

A pickle is a program. `read_pickle` lets one use the few names that rebuild numpy arrays and the frames of pandas, and
refuses every other; frames come back as plain arrays by column.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import pickle
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fmtc.errors import DatasetError
from fmtc.schema import Column

from .packaged import Rows, Texts, coded, numbers

Array = np.ndarray
Frame = dict[str, Array]  # cells of each column: numbers, or words

PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\xfd7zXZ": lzma.decompress,
    b"BZh": bz2.decompress,
    b"\x1f\x8b": gzip.decompress,
}
MISSING = ("", "?", "NA")  # cells of a text file
LINK = re.compile(r"https?://\S+")


# ------------------------------------------------------------------------------------------------------------ pickles


class _Frame:
    """Takes what a data frame is rebuilt from."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        (names, _), blocks = state["_mgr"]
        self.columns: Frame = {}
        for values, places in blocks:
            for name, cells in zip(names[places].tolist(), values, strict=True):
                self.columns[name] = cells
        self.columns = {name: self.columns[name] for name in names.tolist()}


def _buffer(content: bytes, kind: np.dtype[Any], shape: tuple[int, ...], order: Any) -> Array:
    return np.frombuffer(content, dtype=kind).reshape(shape, order=order)


def _array(kind: type, *_: Any) -> Array:
    return np.ndarray.__new__(np.ndarray, (0,), "b")  # filled by its own __setstate__


KNOWN: dict[tuple[str, str], Any] = {
    ("builtins", "slice"): slice,
    ("_codecs", "encode"): lambda text, _: text.encode("latin-1"),  # how old pickles write bytes
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): lambda blocks, axes: (axes, blocks),
    ("pandas._libs.internals", "_unpickle_block"): lambda values, places, _: (values, places),
    ("pandas.core.indexes.base", "_new_Index"): lambda _, state: state.get("data"),
    ("pandas.core.indexes.base", "Index"): None,
    ("pandas.core.indexes.range", "RangeIndex"): None,
} | {
    (f"numpy.{core}.{module}", name): made
    for core in ("core", "_core")
    for module, name, made in (
        ("numeric", "_frombuffer", _buffer),
        ("multiarray", "_reconstruct", _array),
        ("multiarray", "scalar", lambda kind, content: np.frombuffer(content, dtype=kind)[0]),
    )
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """One of the few names that arrays and frames need."""
        try:
            return KNOWN[module, name]
        except KeyError:
            raise DatasetError(f"a pickle that uses {module}.{name} is not read; it may run anything") from None


def read_pickle(content: bytes) -> Any:
    """Arrays, lists and dictionaries of a pickle; a data frame becomes a `Frame`.

    Parameters
    ----------
    content : bytes
        As it is, or packed by xz, bzip2 or gzip.

    Returns
    -------
    object

    Raises
    ------
    DatasetError
        For a pickle that uses anything but arrays and frames, or is damaged.

    Examples
    --------
    >>> import pickle
    >>> from fmtc_bench.datasets.frames import read_pickle
    >>> read_pickle(pickle.dumps({"rows": [1, 2]}))
    {'rows': [1, 2]}
    """
    try:
        found = _Reader(io.BytesIO(unpacked(content))).load()
    except DatasetError:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise DatasetError(f"this is no pickle of arrays or of a data frame: {error}") from None
    return found.columns if isinstance(found, _Frame) else found


def unpacked(content: bytes) -> bytes:
    """Content as it was before xz, bzip2 or gzip; unchanged if it was packed by none of them."""
    for mark, undo in PACKED.items():
        if content.startswith(mark):
            return undo(content)
    return content


def read_lines(content: bytes, *, delimiter: str = ",", skipped: int = 0) -> Frame:
    """Columns of a text file with a header, without so many lines below it; words that are all numbers become numbers.

    Examples
    --------
    >>> from fmtc_bench.datasets.frames import read_lines
    >>> read_lines(b"size,kind\\n1.5,a\\n?,b\\n")
    {'size': array([1.5, nan]), 'kind': array(['a', 'b'], dtype=object)}
    """
    text = unpacked(content).decode("utf-8-sig")
    lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter) if any(line)]
    names, cells = lines[0], np.array(lines[1 + skipped :], dtype=object)
    return {name: _numbers_or_words(cells[:, j]) for j, name in enumerate(names)}


def _numbers_or_words(cells: Array) -> Array:
    try:
        return np.array([np.nan if cell in MISSING else float(cell) for cell in cells])
    except ValueError:
        return cells


# ------------------------------------------------------------------------------------------------- columns to rows


@dataclass(frozen=True, kw_only=True)
class Named:
    """A file with named columns: which of them say class and silo, and which rows are used.

    Parameters
    ----------
    label : str or sequence of str
        Column with the class, or several whose words are joined.
    classes : mapping, optional
        Its codes in words; rows of other classes are left out.
    client, clients
        The same of the silo. Without a column, rows are dealt.
    lines : mapping, optional
        The file is text: options of `read_lines`. Left out, it is a pickled data frame.
    """

    label: str | Sequence[str]
    classes: Mapping[str, str] | None = None
    client: str = ""
    clients: Mapping[str, str] | None = None
    lines: Mapping[str, Any] | None = None

    def read(self, content: bytes) -> Frame:
        """Columns by name."""
        found: Frame = read_pickle(content) if self.lines is None else read_lines(content, **self.lines)
        return found

    def known(self, labels: Sequence[str], silos: Sequence[str] | None) -> Array:
        """Rows of known classes and silos."""
        kept = np.array([self.classes is None or word in self.classes for word in labels])
        if silos is not None and self.clients is not None:
            kept &= np.array([word in self.clients for word in silos])
        return kept


@dataclass(frozen=True, kw_only=True)
class NamedRows(Named):
    """Rows of a table with named columns; called with the content of its file.

    Parameters
    ----------
    without : sequence of str
        Columns that are left out, as are those with one value.
    columns : sequence of Column
        Units and bounds of some columns; the others are numbers, or categories where there are words.
    levels : mapping
        Words for the codes of some columns, which are then categories. Other cells count as missing.
    prefix : str
        What names of columns begin with and lose.
    measured : sequence of str
        Rows in which all of these cells are missing are left out.
    """

    without: Sequence[str] = ("rownames",)
    columns: Sequence[Column] = ()
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prefix: str = ""
    measured: Sequence[str] = ()

    def __call__(self, content: bytes) -> Rows:
        """Rows of the file."""
        found = self.read(content)
        told = (self.label,) if isinstance(self.label, str) else self.label
        labels = [" ".join(cells) for cells in zip(*(_words(found[name]) for name in told), strict=True)]
        silos = _words(found[self.client]) if self.client else None
        kept = self.known(labels, silos)
        if self.measured:
            kept &= np.any([~np.isnan(found[name]) for name in self.measured], axis=0)
        taken = {*told, self.client, *self.without}
        made = [self._column(name, cells) for name, cells in found.items() if name not in taken]
        several = [(x[kept], column) for x, column in made if len(np.unique(x[kept & ~np.isnan(x)])) > 1]
        return Rows(
            np.column_stack([x for x, _ in several]),
            _of(labels, kept, self.classes),
            [column for _, column in several],
            None if silos is None else _of(silos, kept, self.clients),
        )

    def _column(self, name: str, cells: Array) -> tuple[Array, Column]:
        short = name.removeprefix(self.prefix)
        codes = self.levels.get(short) or _codes(cells)
        known = next((column for column in self.columns if column.name == short), Column(short))
        return coded(_words(cells) if codes else cells, known, codes)


@dataclass(frozen=True, kw_only=True)
class NamedTexts(Named):
    """Texts of a table with named columns, without links and without accents; called with the content of its file.

    Parameters
    ----------
    text : str
        The column with the texts.
    only : mapping
        What cells of other columns must be.
    least : int
        Words that a text has at least.
    letters : int, optional
        So many letters of a cell are the silo: 7 of a time is the month.
    """

    text: str
    only: Mapping[str, str] = field(default_factory=dict)
    least: int = 1
    letters: int | None = None

    def __call__(self, content: bytes) -> Texts:
        """Texts of the file."""
        found = {name: _words(cells) for name, cells in self.read(content).items()}
        labels, silos = found[str(self.label)], [word[: self.letters] for word in found[self.client]]
        texts = [_plain(LINK.sub("", words)) for words in found[self.text]]
        kept = self.known(labels, silos) & np.array([len(words.split()) >= self.least for words in texts])
        for name, cell in self.only.items():
            kept &= np.array(found[name]) == cell
        return Texts(_of(texts, kept), _of(labels, kept, self.classes), _of(silos, kept, self.clients))


def _of(words: Sequence[str], kept: Array, names: Mapping[str, str] | None = None) -> list[str]:
    """Words that are kept, by their names."""
    return [(names or {}).get(word, word) for word, here in zip(words, kept, strict=True) if here]


def _words(cells: Array) -> list[str]:
    """Cells as words: whole numbers without a point, and "" for what is missing."""
    if cells.dtype.kind == "f":
        return ["" if np.isnan(cell) else f"{cell:g}" for cell in cells]
    return ["" if cell is None or cell != cell or cell in MISSING else str(cell) for cell in cells.tolist()]


def _codes(cells: Array) -> dict[str, str]:
    """Levels of a column of words, none for numbers."""
    if cells.dtype.kind in "fiub":
        return {}
    return {word: word for word in sorted({*_words(cells)} - {""})}


def _plain(words: str) -> str:
    """Letters without their accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", words) if not unicodedata.combining(c))


# ------------------------------------------------------------------------------------------------------------- a watch

WINDOW = 200  # readings, four seconds


def watch(content: bytes, *, classes: Mapping[str, str]) -> Rows:
    """Windows of a watch's readings during exercises; persons are the clients.

    Of each window and channel: the mean, the standard deviation, and the root mean square of the steps.
    """
    found = read_pickle(content[content.index(b"\n") + 1 :]).item()  # a .npy file of one object
    X, labels, clients = [], [], []
    for readings, kind, person in zip(found["X"], found["y"], found["subject"], strict=True):
        for start in range(0, len(readings) - WINDOW + 1, WINDOW):
            part = readings[start : start + WINDOW]
            steps = np.sqrt((np.diff(part, axis=0) ** 2).mean(axis=0))
            X.append(np.concatenate([part.mean(axis=0), part.std(axis=0), steps]))
            labels.append(classes[found["y_labels"][kind]])
            clients.append(f"person{int(person):02d}")
    names = [f"{what} of {channel}" for what in ("mean", "deviation", "steps") for channel in found["X_labels"]]
    return Rows(np.array(X), labels, numbers(names), clients)
