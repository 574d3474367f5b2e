"""What the columns of tables are, judged by names and values: numbers, categories, identifiers, constants, dates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ..errors import SHOWN
from ..schema import CATEGORY, NUMBER, Column, Schema, is_number, is_text, level_words, with_numbers
from .findings import CONSTANT, IDENTIFIER, UNCLEAR, Finding

Array = np.ndarray

MOST_LEVELS = 50  # of a column of words that is taken for a category
_ID_WORDS = {"id", "ids", "uid", "pid", "mrn", "uuid", "guid", "idx", "index", "identifier", "accession", "barcode"}
_ROW_WORDS = _ID_WORDS | {
    "patient", "subject", "participant", "person", "sample", "specimen", "case", "record", "row", "number", "no", "nr",
    "num", "name", "key", "code", "image", "visit", "unnamed", "encounter", "cell",
}  # fmt: skip
_ANSWERS = {
    "class", "label", "labels", "target", "diagnosis", "outcome", "species", "truth", "topic", "answer", "cluster", "y",
}  # fmt: skip
_SILOS = {"client", "site", "hospital", "silo", "center", "centre", "institution", "batch"}
_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_DATE_FORMS = (
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d", "%d %b %Y", "%d-%b-%Y",
    "%b %d, %Y",
)  # fmt: skip
_WORD = r"(?:^|\s)\S*\p{L}{2}\S*"  # at least two letters of any script, between blanks
_DIFFERENT = 0.8  # share of different cells from which words of a sentence are a text and no category
Place = Callable[[str, int], str]  # where the row of a silo stands, in words, for messages


@dataclass(frozen=True)
class Guess:
    """What a column is, and why it cannot be used if it cannot."""

    kind: str
    levels: tuple[str, ...] = ()
    doubt: Finding | None = None
    is_code: bool = False  # whether numbers are few whole ones, which may stand for something else
    words_missing: bool = False  # whether words among numbers count as missing


@dataclass(frozen=True)
class Judged:
    """What the columns of tables are.

    Parameters
    ----------
    guesses : mapping of column to Guess
        In the order of the tables.
    id_column : str, optional
        The column that names the rows: the one that was asked for, or the first that looks like it.
    given : frozenset of str
        Columns that the user has called features.
    """

    guesses: Mapping[str, Guess]
    id_column: str | None = None
    given: frozenset[str] = frozenset()

    def of_kind(self, *kinds: str) -> list[str]:
        """Names of the columns of some kinds."""
        return [name for name, guess in self.guesses.items() if guess.kind in kinds]

    @property
    def doubts(self) -> list[Finding]:
        """Why columns cannot be used."""
        return [guess.doubt for guess in self.guesses.values() if guess.doubt is not None]

    @property
    def schema(self) -> Schema:
        """The columns that are features."""
        columns = tuple(
            Column(name, guess.kind, guess.levels, words_missing=guess.words_missing)
            for name, guess in self.guesses.items()
            if guess.kind in (NUMBER, CATEGORY)
        )
        return Schema(columns, self.id_column or "")

    def questioned(self) -> dict[str, str]:
        """Features whose names are those of an answer or of silos, which nobody has called features."""
        asked = {}
        for name, guess in self.guesses.items():
            if name not in self.given and (guess.kind == CATEGORY or guess.is_code):
                tokens = _tokens(name)
                asked[name] = "answer" if tokens & _ANSWERS else "silos" if tokens & _SILOS else ""
        return {name: kind for name, kind in asked.items() if kind}


def row_of(silo: str, row: int) -> str:
    """Where a row stands, in words."""
    return f"row {row + 1} of silo {silo!r}"


def judge(
    tables: Mapping[str, pl.DataFrame],
    *,
    as_types: Mapping[str, str] | None = None,
    index: Sequence[str] = (),
    id_column: str | None = None,
    wanted: Sequence[str] = (),
    place: Place = row_of,
) -> Judged:
    """What each column is, over the tables of all silos that have it.

    Parameters
    ----------
    tables : mapping of silo to polars.DataFrame
        Cells may be text.
    as_types : mapping of column to {"number", "category"}, optional
        What was said about columns; it is not questioned.
    index : sequence of str
        Columns that a file declares to be names of rows.
    id_column : str, optional
        Column that names the rows, which is not in the tables.
    wanted : sequence of str
        The only features, if there are any: of these, identifiers and constants are taken for numbers.
    place : callable
        Where the row of a silo stands, in words, for messages.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables.guess import judge
    >>> rows = pl.DataFrame({"patient": [f"P{i:03}" for i in range(12)], "sex": ["f", "m"] * 6, "age": [40.5, 61] * 6})
    >>> found = judge({"north": rows})
    >>> {name: guess.kind for name, guess in found.guesses.items()}
    {'patient': 'identifier', 'sex': 'category', 'age': 'number'}
    """
    as_types = dict(as_types or {})
    kinds = dict.fromkeys(index, IDENTIFIER) | as_types
    columns: dict[str, dict[str, pl.Series]] = {}  # by silo
    for silo, table in tables.items():
        for column in table.get_columns():
            columns.setdefault(column.name, {})[silo] = column.alias("x")
    guesses = {
        name: _known(kinds[name], cells) if name in kinds else _guess(name, cells, place)
        for name, cells in columns.items()
    }
    if id_column is None:
        likely = _names_of_rows(guesses, index)
        id_column = None if likely in wanted else likely
    given = frozenset({*as_types, *wanted})
    if wanted:
        guesses = {name: guess for name, guess in guesses.items() if name in wanted or name == id_column}
        unlike = [name for name, guess in guesses.items() if guess.kind in (IDENTIFIER, CONSTANT)]
        guesses |= {name: Guess(NUMBER) for name in given - {*as_types} if name in unlike}
    return Judged(guesses, id_column, given)


def _names_of_rows(guesses: Mapping[str, Guess], index: Sequence[str]) -> str | None:
    """The column of identifiers that names the rows: the first that is called so or, failing that, the first."""
    named = [name for name, guess in guesses.items() if guess.kind == IDENTIFIER and name]
    return min(named, key=lambda name: not (_ID_WORDS & _tokens(name) or name in index), default=None)


def levels_in(columns: Iterable[pl.Series]) -> tuple[str, ...]:
    """Levels of a category over several columns: in order, each in its most frequent spelling."""
    counts: Counter[str] = Counter()
    for cells in columns:
        words = level_words(cells).drop_nulls()
        counts.update(dict(words.value_counts().iter_rows()))
    spelt: dict[str, str] = {}
    for word, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        spelt.setdefault(word.casefold(), word.lower() if word.casefold() in ("true", "false") else word)
    levels = sorted(spelt.values())
    try:
        return tuple(sorted(levels, key=float))
    except ValueError:
        return tuple(levels)


def odd(name: str, cells: Mapping[str, pl.Series], place: Place) -> Finding | None:
    """Why a column can be neither numbers nor a category: other types, dates, free text, or words among numbers.

    Cells are free text where nearly all differ and most have three words or more. Words are among numbers where these
    are at least half of all different cells.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables.guess import odd, row_of
    >>> for words in (["no fever today", "cough for a week", "well"], ["7", "8.5", "<5", "n/a"], ["P 1", "P 2"]):
    ...     found = odd("note", {"north": pl.Series(words)}, row_of)
    ...     print(found and (found.code, dict(found.facts)))
    ('text', {'example': 'no fever today'})
    ('strays', {'word': '<5', 'at': "row 3 of silo 'north'", 'words': ['<5']})
    None
    """
    if (found := _of_type(name, cells.values())) is not None:
        return found
    words = {silo: level_words(column) for silo, column in cells.items()}
    filled = pl.concat([column.drop_nulls() for column in words.values()])
    distinct = filled.unique(maintain_order=True)
    some = distinct.head(2000)
    if (date := _as_date(some)) is not None:
        return Finding.of_column("dates", name, example=date)
    long = some.filter(some.str.count_matches(_WORD) >= 3)
    if len(filled) >= 3 and 2 * len(long) >= len(some) and len(distinct) >= _DIFFERENT * len(filled):
        return Finding.of_column("text", name, example=clipped(str(long[0])))
    strays = distinct.filter(distinct.cast(pl.Float64, strict=False).is_null())
    if not 0 < 2 * len(strays) <= len(distinct):
        return None
    silo, row = next((silo, row) for silo, column in words.items() for row in (column == strays[0]).arg_true())
    return Finding.of_column("strays", name, word=strays[0], at=place(silo, row), words=strays[:SHOWN].to_list())


def clipped(text: str) -> str:
    """The beginning of a text, for a message."""
    return text if len(text) <= 40 else text[:39] + "…"


# -------------------------------------------------------------------------------------------------------- one column


def _tokens(name: str) -> set[str]:
    return {token.lower() for token in _TOKEN.findall(name)}


def _of_type(name: str, cells: Iterable[pl.Series]) -> Finding | None:
    for column in cells:
        if column.dtype == pl.Duration:
            return Finding.of_column("durations", name)
        if column.dtype.is_temporal():
            return Finding.of_column("dates", name, example=column.drop_nulls().first())
        if not (is_number(column) or is_text(column)):
            return Finding.of_column("type", name, kind=column.dtype)
    return None


def _known(kind: str, cells: Mapping[str, pl.Series]) -> Guess:
    """A column that was said to be of some kind."""
    return _category(cells, fewest=1) if kind == CATEGORY else Guess(kind, words_missing=kind == NUMBER)


def _guess(name: str, cells: Mapping[str, pl.Series], place: Place) -> Guess:
    filled = {silo: column for silo, column in cells.items() if column.null_count() < len(column)}
    if (doubt := _of_type(name, filled.values())) is not None:
        return Guess(UNCLEAR, doubt=doubt)
    if not filled:
        return Guess(CONSTANT)
    if all(column.dtype == pl.Boolean for column in filled.values()):
        return _category(filled)
    read = [with_numbers(column, truths=False) for column in filled.values()]
    if any(map(is_text, read)):
        return _of_words(name, filled, place)
    numbers = [column.cast(pl.Float64).fill_nan(None) for column in read]
    return _of_numbers(name, numbers, any(_is_padded(column) for column in filled.values()))


def _of_numbers(name: str, cells: Sequence[pl.Series], padded: bool) -> Guess:
    values = [column.drop_nulls().to_numpy() for column in cells]
    together = np.concatenate(values)
    n = len(together)
    if not n or (n > 2 and (together == together[0]).all()):
        return Guess(CONSTANT)
    whole = np.isfinite(together).all() and (together == np.round(together)).all()
    if not whole or any(column.null_count() for column in cells):
        return Guess(NUMBER)
    distinct = sum(len(np.unique(rows)) for rows in values)
    repeats = distinct < n or n < 10
    if _names_rows(name, distinct, n) or (not repeats and _count_rows(name, values, padded)):
        return Guess(IDENTIFIER)
    return Guess(NUMBER, is_code=repeats and len(np.unique(together)) <= MOST_LEVELS)


def _names_rows(name: str, distinct: int, n: int) -> bool:
    """Whether a column is called an identifier and has enough different values for one."""
    return bool(_ID_WORDS & _tokens(name)) and (distinct > 20 or 2 * distinct > n)


def _count_rows(name: str, values: list[Array], padded: bool) -> bool:
    """Whether whole numbers, which differ in all rows of a silo, do so beyond chance, or are called so."""
    if padded or name == "" or _tokens(name) & _ROW_WORDS:
        return True
    together = np.concatenate(values)
    # evenly spread over their range, some would have met
    met = sum(len(rows) ** 2 / (2 * (np.ptp(rows) + 1)) for rows in values if len(rows))
    ordered = len(together) >= 20 and all(len(rows) >= 10 and (np.diff(rows) > 0).all() for rows in values)
    digits = {len(f"{abs(value):.0f}") for value in together[:1000].tolist()}
    long = len(together) >= 20 and len(digits) == 1 and min(digits) >= 6
    return bool(met >= 4 or ordered or long)


def _of_words(name: str, cells: Mapping[str, pl.Series], place: Place) -> Guess:
    filled = [level_words(column).drop_nulls() for column in cells.values()]
    together = pl.concat(filled)
    n, distinct = len(together), together.n_unique()
    if distinct <= 1:
        return Guess(CONSTANT)
    if (doubt := odd(name, cells, place)) is not None:
        return Guess(UNCLEAR, doubt=doubt)
    unique = n == sum(column.n_unique() for column in filled)
    if _names_rows(name, distinct, n) or (unique and n >= 3):
        return Guess(IDENTIFIER)
    if distinct <= MOST_LEVELS:
        return _category(cells)
    return Guess(UNCLEAR, doubt=Finding.of_column("words", name, n=distinct, example=together[0]))


def _category(cells: Mapping[str, pl.Series], fewest: int = 2) -> Guess:
    levels = levels_in(cells.values())
    return Guess(CATEGORY, levels) if len(levels) >= fewest else Guess(CONSTANT)


def _is_padded(cells: pl.Series) -> bool:
    return is_text(cells) and bool(cells.cast(pl.String).str.strip_chars().str.contains(r"^0\d+$").any())


def _as_date(words: pl.Series) -> str | None:
    """A word, if nearly all words are dates, in whatever forms."""
    days = words.str.replace(r"[T ]\d{1,2}:\d{2}.*$", "")
    dates = [days.str.to_date(form, strict=False) for form in _DATE_FORMS]
    read = pl.select(pl.coalesce(dates).is_not_null()).to_series()
    return str(words.filter(read)[0]) if len(read) and read.sum() >= 0.9 * len(read) else None


__all__ = ["Guess", "Judged", "judge", "levels_in", "odd"]
