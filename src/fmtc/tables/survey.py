"""Do the silos hold the same columns? Found out before any training, through salted hashes, counts and sums only.

Each silo reads its file leniently (`read_columns`) and says what its columns are like (`survey`). Who gets all answers
finds what differs (`compare`), without a name, and tells each silo what concerns it (`verdicts`). With its own names at
hand a silo puts that into words (`from_verdict`, `explain`).
"""

from __future__ import annotations

import hmac
import math
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import scipy.sparse as sp

from .reading import DataError, _by_name, _check_columns, _column_kind, _example, _joined, _read, _split

Array = np.ndarray
Key = TypeVar("Key")

KINDS = ("numbers", "text", "nothing", "values of another type", "numbers of a sparse matrix", "no name")
_NUMBERS, _TEXT, _NOTHING, _OTHER, _SPARSE, _NAMELESS = range(len(KINDS))
FORMS = ("a table with column names", "a dense matrix without column names", "a sparse matrix")
SMALLEST = 10  # of fewer values than this, no sum leaves a silo
LIMIT = 1e148  # larger values cannot be squared and summed

# What can be found; the place in this list is a code's number on the wire.
CODES = (
    "form",  # another kind of file
    "few rows",
    "lacks",  # a column that others have
    "extra",  # a column that others lack
    "spelling",  # the same name but for capitals, blanks and signs
    "no name",
    "text",  # or anything else that is no number
    "empty",  # no value in any row
    "missing",
    "infinite",
    "order",  # columns stand in another order
    "unit",  # a known factor between here and the others
    "scale",  # a large factor
    "shift",  # far above or below
    "standardised",  # mean 0 and standard deviation 1 either here or there
    "coding",  # two neighbouring whole numbers, other ones than at the others
    "negatives",  # values below 0 here alone
    "constant",
)
ERROR, NOTE = "error", "note"
WIDTH = 5  # of a finding on the wire: code, whether an error, column, place, number


# -------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, eq=False)
class Columns:
    """What a silo's columns hold, whether or not it can be clustered: a data frame, or a float or sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables.survey import Columns
    >>> silo = Columns(np.zeros((5, 2)))
    >>> silo.names, silo.n_rows, silo.width
    (None, 5, 2)
    """

    content: Any

    def with_lengths(self, column: str) -> Columns:
        """The same with the lengths of texts in place of the texts."""
        return Columns(self.content.with_columns(self.content.get_column(column).cast(pl.String).str.len_chars()))

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, where they have any."""
        return tuple(self.content.columns) if isinstance(self.content, pl.DataFrame) else None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.content.shape[0])

    @property
    def width(self) -> int:
        """How many columns there are."""
        return int(self.content.shape[1])


def read_columns(
    paths: Iterable[str | Path],
    *,
    client_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
) -> dict[str, Columns]:
    """The features of silos as `read_silos` reads them, but refusing only what cannot be read at all.

    Parameters
    ----------
    paths : iterable of paths
        One file per silo, which is named after it; or a single file, with `client_column`.
    client_column, label_column, id_column : str, optional
        Columns that are no features.
    drop : sequence of str
        Further columns to leave out.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fmtc.tables.survey import read_columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "north.csv"
    ...     _ = file.write_text("name,height,dose\\nAda,170,low\\nBob,,high\\n")
    ...     silos = read_columns([file], id_column="name")
    >>> silos["north"].names
    ('height', 'dose')
    """
    files = _by_name([Path(path) for path in paths])
    if client_column is not None and len(files) > 1:
        raise DataError(f"--client-column splits one file into silos, but {len(files)} files were given: give one")
    roles = {"--client-column": client_column, "--label-column": label_column, "--id-column": id_column}
    named = {flag: column for flag, column in roles.items() if column is not None}
    contents = {name: _read(path) for name, path in files.items()}
    tables = {name: content for name, content in contents.items() if isinstance(content, pl.DataFrame)}
    if not tables and (named or drop):
        file, flag = next(iter(files.values())).name, next(iter(named), "--drop")
        raise DataError(
            f"{file} has no column names, so {flag} cannot be used; save a table (.csv, .tsv, .parquet) instead"
        )
    _check_columns({files[name].name: table.columns for name, table in tables.items()}, named, drop)
    parts = _split(tables, files, client_column) if tables else {}
    others = {*named.values(), *drop}
    silos = {name: part.features(others) for name, part in parts.items()}
    if client_column is None:
        silos = {name: silos.get(name, content) for name, content in contents.items()}
    for name, content in silos.items():
        if content.shape[1] == 0:
            raise DataError(f"silo {name!r} has no column left to cluster")
    return {name: Columns(content) for name, content in silos.items()}


# ---------------------------------------------------------------------------------------------------------- sums


@dataclass(frozen=True)
class Surveyed:
    """What a silo says of its columns: the fields of the phase `survey`."""

    n_samples: int
    columns: Array  # d, salted hashes of the columns' names
    aliases: Array | None  # d, the same without capitals, blanks and signs; None where there are no names
    kinds: Array  # d, what the columns hold, as numbers of `KINDS`
    counts: Array  # d, how many values are present
    missing: Array  # d, how many are not
    means: Array  # d
    squares: Array  # d, sums of squared deviations from the means
    negatives: Array  # d, how many values are below 0


def survey(columns: Columns, salt: str) -> Surveyed:
    """What a silo says of its columns: hashes of their names, counts, means and sums of squared deviations.

    Of a column with fewer than `SMALLEST` values only the counts are told. The answer is the same, to the last bit, in
    any order of the rows.

    Parameters
    ----------
    columns : Columns
    salt : str
        A secret of the silos: who does not have it learns nothing from a hash but whether two are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables.survey import Columns, survey
    >>> said = survey(Columns(np.arange(30.0).reshape(10, 3)), salt="a secret")
    >>> said.n_samples, said.means, said.missing
    (10, array([13.5, 14.5, 15.5]), array([0, 0, 0]))
    """
    if not salt:
        raise ValueError("salt is empty: anybody could then try out names until a hash fits")
    names = columns.names
    words = [f"place {place}" for place in range(columns.width)] if names is None else [f"name {n}" for n in names]
    kinds, counts, missing, means, squares, negatives = zip(*_lines(columns.content), strict=True)
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
    """Letters and digits of a name, without capitals: 'Height (cm)' and 'height_cm' are the same."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(sign for sign in folded if sign.isalnum()) or folded


_Line = tuple[int, int, int, float, float, int]  # kind, count, missing, mean, squares, negatives of a column


def _lines(content: Any) -> Iterator[_Line]:
    n = content.shape[0]
    if isinstance(content, pl.DataFrame):
        known = {"numbers": _NUMBERS, "text": _TEXT, "nothing": _NOTHING}
        for column in content.get_columns():
            word = _column_kind(column)
            kind = known.get(word, _OTHER) if column.name else _NAMELESS
            if word == "numbers":
                yield kind, *_sums(column.cast(pl.Float64).to_numpy())  # null becomes nan
            else:
                yield kind, n - column.null_count(), column.null_count(), 0.0, 0.0, 0
    elif sp.issparse(content):
        content = sp.csc_array(content)
        for begin, end in pairwise(content.indptr.tolist()):
            yield _SPARSE, *_sums(content.data[begin:end], zeros=n - (end - begin))
    else:
        for place in range(content.shape[1]):
            yield _NUMBERS, *_sums(content[:, place])


def _sums(values: Array, zeros: int = 0) -> tuple[int, int, float, float, int]:
    """Count, missing, mean, squared deviations and negatives of values and as many zeros besides."""
    missing = int(np.isnan(values).sum())
    values = values.astype(np.float64)
    values = np.sort(values[np.abs(values) <= LIMIT])  # sorted: the order of rows does not show in the last digit
    count = len(values) + zeros
    if count < SMALLEST:
        return count, missing, 0.0, 0.0, 0
    base = 0.0 if zeros else values[0]  # equal values then have squares of exactly 0
    mean = float(base + (values - base).sum() / count)
    squares = float(np.square(values - mean).sum()) + zeros * mean**2
    return count, missing, mean, squares, int((values < 0).sum())


# ------------------------------------------------------------------------------------------------------- findings


@dataclass(frozen=True)
class Finding:
    """One thing about one silo: an error would stop a run or make it meaningless, a note would not.

    `column` is a place in the silo, -1 where the finding is about no single column. `other` is a silo it was compared
    with, and `place` the column's place there. What `number` means depends on the code: how many values are missing,
    how many times the others' values these are, and so on.

    Examples
    --------
    >>> from fmtc.tables.survey import Finding, explain
    >>> found = Finding("north", "unit", "note", column=2, number=2.54)
    >>> explain([found], "north")
    ["has values about 2.54 times the others' in column 2: centimetres for inches?"]
    """

    silo: str
    code: str  # one of CODES
    severity: str  # ERROR or NOTE
    column: int = -1
    other: str = ""
    place: int = -1
    number: float = 0.0


@dataclass(frozen=True)
class _Unit:
    """Values in the unit `here` are `factor` times those in the unit `there`, plus `shift`."""

    here: str
    there: str
    factor: float
    shift: float = 0.0

    @property
    def numbers(self) -> tuple[float, float]:
        """What a finding says of it: where values are in the unit `here`, and where they are in the unit `there`."""
        return (self.shift, -self.shift) if self.factor == 1 else (float(self.factor), 1 / self.factor)


UNITS = (
    _Unit("milligrams", "kilograms", 1e6),
    _Unit("seconds", "hours", 3600),
    _Unit("grams", "kilograms", 1000),
    _Unit("days", "years", 365.25),
    _Unit("centimetres or per cent", "metres or shares", 100),
    _Unit("µmol/l", "mg/dl (creatinine)", 88.42),
    _Unit("minutes", "hours", 60),
    _Unit("mg/dl", "mmol/l (cholesterol)", 38.67),
    _Unit("centimetres", "feet", 30.48),
    _Unit("hours", "days", 24),
    _Unit("mg/dl", "mmol/l (glucose)", 18.016),
    _Unit("months", "years", 12),
    _Unit("millimetres", "centimetres", 10),
    _Unit("mmHg", "kPa", 7.5006),
    _Unit("kilojoules", "kilocalories", 4.184),
    _Unit("feet", "metres", 3.2808),
    _Unit("centimetres", "inches", 2.54),
    _Unit("pounds", "kilograms", 2.2046),
    _Unit("kilometres", "miles", 1.6093),
    _Unit("degrees Fahrenheit", "degrees Celsius", 1.8, 32),
    _Unit("kelvins", "degrees Celsius", 1, 273.15),
    _Unit("the other sign", "the sign there", -1),
)


def compare(surveys: Mapping[str, Any], *, by_name: bool = False, n_clusters: int = 1) -> list[Finding]:
    """What differs between silos, and what in a silo could not be clustered; without a name of a column.

    Where silos differ, those are told that disagree with more silos than they agree with; of two, both.

    Parameters
    ----------
    surveys : mapping of silo to what `survey` said there
    by_name : bool
        Whether the run brings columns together by name, as `fmtc fit` does: names must then agree and their order need
        not. In a federation each silo takes its columns as they stand: then it is the other way round.
    n_clusters : int
        How many clusters will be asked for; every silo needs more rows than that.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables.survey import Columns, compare, explain, survey
    >>> rows = np.random.default_rng(0).normal(70, 10, size=(150, 2))
    >>> silos = {"a": rows[:50], "b": rows[50:100], "c": rows[100:] * [1, 1000]}
    >>> findings = compare({name: survey(Columns(X), salt="a secret") for name, X in silos.items()})
    >>> [(f.silo, f.code, f.column, f.number) for f in findings]
    [('c', 'unit', 1, 1000.0)]
    >>> explain(findings, "c")
    ["has values about 1,000 times the others' in column 1: grams for kilograms?"]
    """
    surveys = {silo: surveys[silo] for silo in sorted(surveys)}
    findings = [found for silo, said in surveys.items() for found in _by_itself(silo, said, n_clusters)]
    forms = {silo: _form(said) for silo, said in surveys.items()}
    findings += [
        Finding(silo, "form", ERROR, other=other, place=forms[other], number=float(forms[silo]))
        for silo, other in _odd(forms).items()
    ]
    for form in set(forms.values()):
        peers = {silo: said for silo, said in surveys.items() if forms[silo] == form}
        groups = _match(peers)
        findings += _columns_differ(peers, groups, by_name) + _values_differ(peers, groups)
    return sorted(findings, key=lambda f: (f.silo, f.severity != ERROR, CODES.index(f.code), f.column, f.place))


def _form(said: Surveyed) -> int:
    return 0 if said.aliases is not None else 2 if (_known(said.kinds) == _SPARSE).all() else 1


def _known(array: Array | None) -> Array:
    assert array is not None  # `survey` fills it, and `guard.check_uplink` sees to it
    return array


def _odd(answers: Mapping[Key, Hashable]) -> dict[Key, Key]:
    """Silos that disagree with more silos than they agree with, and a silo each with the commonest other answer."""
    count = Counter(answers.values())
    odd = {}
    for silo, answer in answers.items():
        if len(answers) - count[answer] > count[answer] - 1:
            (common, _), *_ = [pair for pair in count.most_common() if pair[0] != answer]
            odd[silo] = next(other for other, theirs in answers.items() if theirs == common)
    return odd


def _by_itself(silo: str, said: Surveyed, n_clusters: int) -> Iterator[Finding]:
    """What would stop a run whatever the others hold."""
    n, kinds, counts, missing = said.n_samples or 0, _known(said.kinds), _known(said.counts), _known(said.missing)
    needed = max(2, n_clusters + 1)
    if n < needed:
        yield Finding(silo, "few rows", ERROR, place=needed, number=float(n))
    numbers = (kinds == _NUMBERS) | (kinds == _SPARSE)
    empty = (kinds == _NOTHING) | (numbers & (missing == n))
    for code, where, number in (
        ("no name", kinds == _NAMELESS, kinds),
        ("empty", empty, missing),
        ("missing", numbers & ~empty & (missing > 0), missing),
        ("infinite", numbers & (n - counts - missing > 0), n - counts - missing),
    ):
        for place in np.flatnonzero(where).tolist():
            yield Finding(silo, code, ERROR, place, number=float(number[place]))


_Group = dict[str, int]  # the silos that have a column, and its place in each


def _match(peers: Mapping[str, Any]) -> list[_Group]:
    """Which columns of the silos are the same: of one name or, where that leaves no doubt, of names much alike."""
    groups: dict[int, _Group] = {}
    alike: dict[int, list[int]] = {}
    for silo, said in peers.items():
        keys = _known(said.columns).tolist()
        aliases = [None] * len(keys) if said.aliases is None else said.aliases.tolist()
        for place, (key, alias) in enumerate(zip(keys, aliases, strict=True)):
            if key not in groups and alias is not None:
                alike.setdefault(alias, []).append(key)
            groups.setdefault(key, {})[silo] = place
    for first, *others in alike.values():
        where = [silo for key in (first, *others) for silo in groups[key]]
        if len(set(where)) == len(where):
            for key in others:
                groups[first] |= groups.pop(key)
    return list(groups.values())


def _columns_differ(peers: Mapping[str, Any], groups: Sequence[_Group], by_name: bool) -> list[Finding]:
    """Columns that not all have, that are not called or do not stand alike, or that hold no numbers."""
    found = []
    kinds = {silo: _known(said.kinds).tolist() for silo, said in peers.items()}
    hashes = {silo: _known(said.columns).tolist() for silo, said in peers.items()}
    for where in groups:
        has, first = len(where), next(iter(where))
        if 2 * has >= len(peers):
            found += [Finding(s, "lacks", ERROR, other=first, place=where[first]) for s in peers if s not in where]
        if 2 * has <= len(peers):
            found += [Finding(s, "extra", ERROR, where[s], number=float(has)) for s in where]
        calls = {silo: hashes[silo][place] for silo, place in where.items()}
        for silo, other in _odd(calls).items():
            severity = ERROR if by_name else NOTE
            found.append(Finding(silo, "spelling", severity, where[silo], other, where[other]))
        holds = {silo: kinds[silo][place] for silo, place in where.items()}
        numbers = [silo for silo, kind in holds.items() if kind in (_NUMBERS, _SPARSE)]
        for silo, kind in holds.items():
            if kind in (_TEXT, _OTHER):
                found.append(Finding(silo, "text", ERROR, where[silo], number=float(len(numbers))))
    common = [where for where in groups if len(where) == len(peers)]
    orders = {silo: tuple(np.argsort([where[silo] for where in common]).tolist()) for silo in peers}
    for silo, other in _odd(orders).items():
        for mine, theirs in zip(orders[silo], orders[other], strict=True):
            if mine != theirs:
                where = common[mine]
                found.append(Finding(silo, "order", NOTE if by_name else ERROR, where[silo], other, where[other]))
    return found


# --------------------------------------------------------------------------------------------------------- values

# Silos differ for good reasons, so only what no mixture of people explains is told.
_GAP = 5.0  # smaller standard deviations between the means of what may be two units
_FAR = 10.0  # larger standard deviations between means that are far apart
_TIMES = 20.0  # factor in mean and spread that is told without a unit to explain it
_CHANCE = 1e-4  # that the others have no value below 0 where this silo has some


_Column = tuple[float, float, float]  # rows, mean, standard deviation


@dataclass(frozen=True, eq=False)
class _Sums:
    """Of g columns in m silos each, (m, g)."""

    n: Array
    mean: Array
    sd: Array
    negatives: Array
    there: Array  # where they were sent

    def of(self, row: int, column: int) -> _Column:
        return float(self.n[row, column]), float(self.mean[row, column]), float(self.sd[row, column])


def _collect(peers: Mapping[str, Any], groups: Sequence[_Group]) -> _Sums:
    n, mean, squares, negatives, there = np.zeros((5, len(peers), len(groups)))
    for row, (silo, said) in enumerate(peers.items()):
        columns = [column for column, where in enumerate(groups) if silo in where]
        at = [groups[column][silo] for column in columns]
        n[row, columns], negatives[row, columns] = _known(said.counts)[at], _known(said.negatives)[at]
        mean[row, columns], squares[row, columns] = _known(said.means)[at], _known(said.squares)[at]
        there[row, columns] = np.isin(_known(said.kinds)[at], (_NUMBERS, _SPARSE)) & (n[row, columns] >= SMALLEST)
    n = np.maximum(n, 1)
    return _Sums(n, mean, np.sqrt(squares / n), negatives, there > 0)


_Difference = tuple[int, int, str, int, float]  # silo, column, code, a silo to compare with, number


def _values_differ(peers: Mapping[str, Any], groups: Sequence[_Group]) -> list[Finding]:
    """Columns whose values do not look like the same thing in the same unit or coding; all notes."""
    silos, sums = list(peers), _collect(peers, groups)
    found: dict[tuple[int, int], Finding] = {}  # by silo and column; what was found first counts
    for row, column, code, other, number in (*_codings_differ(sums), *_sizes_differ(sums), *_signs_differ(sums)):
        here, there = silos[row], silos[other]
        finding = Finding(here, code, NOTE, groups[column][here], there, groups[column][there], number)
        found.setdefault((row, column), finding)
    return list(found.values())


def _codings_differ(sums: _Sums) -> Iterator[_Difference]:
    """Columns that are constant, standardised, or of two neighbouring whole numbers."""
    n, mean, sd = sums.n, sums.mean, sums.sd
    constant = sums.there & (sd == 0)
    everywhere = constant.all(axis=0) & (len(n) > 1)
    for row, column in np.argwhere(constant).tolist():
        yield row, column, "constant", row, float(everywhere[column])
    live = sums.there & (sd > 0)
    off = np.minimum(np.abs(sd - 1), np.abs(sd * np.sqrt(n / np.maximum(n - 1, 1)) - 1))
    standard = live & (np.abs(mean) < 2e-4) & (off < 2e-4)
    low = np.floor(mean)
    # values that are all low or low + 1 have this variance, and hardly any others do
    coded = live & (np.abs(sd**2 - (mean - low) * (low + 1 - mean)) < 1e-9)
    plain = live & ((np.abs(mean) > 0.5) | (np.abs(sd - 1) > 0.5)) & standard.any(axis=0)
    for code, rows, answers in (("standardised", standard | plain, standard), ("coding", coded, low)):
        for column in np.flatnonzero(rows.any(axis=0)).tolist():
            said = {row: float(answers[row, column]) for row in np.flatnonzero(rows[:, column]).tolist()}
            for row, other in _odd(said).items():
                yield row, column, code, other, said[row] - said[other]


def _signs_differ(sums: _Sums) -> Iterator[_Difference]:
    """Columns with values below 0 in few silos, and with too many for chance alone."""
    some, none = sums.there & (sums.negatives > 0), sums.there & (sums.negatives == 0)
    odd = some & (some.sum(axis=0) <= none.sum(axis=0))
    for row, column in np.argwhere(odd).tolist():
        others = np.flatnonzero(none[:, column])
        share = sums.negatives[row, column] / (sums.n[row, column] + 1)
        if sums.n[others, column].sum() * np.log1p(-share) < np.log(_CHANCE):
            yield row, column, "negatives", int(others[0]), float(sums.negatives[row, column])


def _sizes_differ(sums: _Sums) -> Iterator[_Difference]:
    """Columns whose mean and spread are not of the size of most others'."""
    share = sums.negatives / sums.n
    # where nearly all values are 0, mean and spread vary freely
    fit = sums.there & (sums.sd > 0) & ((np.abs(sums.mean) >= sums.sd / 3) | ((share > 0.05) & (share < 0.95)))
    heard: dict[tuple[int, int], list[tuple[str, float, int]]] = {}  # by silo and column
    for a, b in combinations(range(len(fit)), 2):
        small, large = np.minimum(sums.sd[a], sums.sd[b]), np.maximum(sums.sd[a], sums.sd[b])
        apart = (np.abs(sums.mean[a] - sums.mean[b]) >= _GAP * small) | (large >= _TIMES * small)
        for column in np.flatnonzero(fit[a] & fit[b] & apart).tolist():
            if (found := _size(sums.of(a, column), sums.of(b, column))) is not None:
                code, number, back = found
                heard.setdefault((a, column), []).append((code, number, b))
                heard.setdefault((b, column), []).append((code, back, a))
    for (row, column), against in heard.items():
        if 2 * len(against) > fit[:, column].sum() - 1:
            # the middle one: what most say, if most say the same
            code, number, other = sorted(against)[(len(against) - 1) // 2]
            yield row, column, code, other, number


def _size(x: _Column, y: _Column) -> tuple[str, float, float] | None:
    """Code, number of the first and number of the second, where two columns are of different size."""
    (_, mean, sd), (_, other, spread) = x, y
    gap, times = abs(mean - other), _within(sd / spread)
    if gap >= _GAP * min(sd, spread):
        doubts = [(_doubt(unit, x, y), *unit.numbers) for unit in UNITS]
        doubts += [(_doubt(unit, y, x), *unit.numbers[::-1]) for unit in UNITS]
        doubt, forth, back = min(doubts)
        if doubt < 1:
            return "unit", forth, back
    centred = abs(mean) < sd / 3 and abs(other) < spread / 3
    ratio = times if centred else abs(mean / other) if other else math.inf
    if min(times, ratio) >= _TIMES or max(times, ratio) <= 1 / _TIMES:
        return "scale", times, 1 / times
    if gap >= _FAR * max(sd, spread):
        far = _within((mean - other) / max(sd, spread))
        return "shift", far, -far
    return None


def _within(number: float) -> float:
    """Not so large or small that it could not be turned."""
    return math.copysign(min(max(abs(number), 1e-99), 1e99), number)


def _doubt(unit: _Unit, x: _Column, y: _Column) -> float:
    """How far x is from y in another unit; 1 is as far as chance and a difference between silos may bring it.

    The larger the factor, the more silos may differ besides: nobody is a thousand times as heavy.
    """
    (n, mean, sd), (n_other, other, spread) = x, y
    want, spread = unit.factor * other + unit.shift, abs(unit.factor) * spread
    if mean * want <= 0:
        return math.inf
    slack = max(0.03, 0.05 * math.log(abs(unit.factor)))
    chance = 3 * math.hypot(sd / abs(mean) / math.sqrt(n), spread / abs(want) / math.sqrt(n_other))
    if chance > 0.4:
        return math.inf
    off_mean = abs(math.log(abs(mean)) - math.log(abs(want))) / (slack + chance)
    off_sd = abs(math.log(sd) - math.log(spread)) / (2 * slack + 1.5 * math.sqrt(1 / n + 1 / n_other))
    return max(off_mean, off_sd)


# ------------------------------------------------------------------------------------------------- verdicts, words


def encoded(findings: Iterable[Finding], silos: Iterable[str]) -> dict[str, Array]:
    """For each silo what was found about it, as numbers; `from_verdict` undoes it.

    Examples
    --------
    >>> from fmtc.tables.survey import Finding, encoded, from_verdict
    >>> found = [Finding("north", "missing", "error", column=2, number=7)]
    >>> numbers = encoded(found, ["north", "south"])
    >>> len(numbers["south"])
    0
    >>> from_verdict(numbers["north"], "north") == found
    True
    """
    lines: dict[str, list[tuple[float, ...]]] = {silo: [] for silo in silos}
    for f in findings:
        lines[f.silo].append((CODES.index(f.code), f.severity == ERROR, f.column, f.place, f.number))
    return {silo: np.array(rows, np.float64).reshape(-1, WIDTH) for silo, rows in lines.items()}


def from_verdict(findings: Array, silo: str) -> list[Finding]:
    """What was found about a silo, from the `findings` of its verdict; the silos it was compared with are left out.

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


def explain(
    findings: Iterable[Finding], silo: str, columns: Mapping[str, Columns] | None = None, severity: str | None = None
) -> list[str]:
    """What was found about a silo, as sentences without a subject; errors first if `findings` are in that order.

    Parameters
    ----------
    findings : iterable of Finding
        Of any silos.
    silo : str
        The one in question.
    columns : mapping of silo to its Columns, optional
        Those at hand, from which names are taken; other columns are named by their place, counted from 0.
    severity : {"error", "note"}, optional
        Leaves out the others.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables.survey import Columns, Finding, explain
    >>> found = [Finding("north", "missing", "error", column=1, number=3)]
    >>> explain(found, "north")
    ['has missing values in column 1 (3): fill them, or leave out those rows or columns']
    >>> explain(found, "north", {"north": Columns(pl.DataFrame({"height": [170.0], "dose": [None]}))})
    ["has missing values in 'dose' (3): fill them, or leave out those rows or columns"]
    """
    grouped: dict[tuple[str, str, float], list[Finding]] = {}
    for f in findings:
        if f.silo == silo and severity in (None, f.severity):
            shared = 0.0 if f.code in ("missing", "infinite", "negatives", "scale", "shift") else f.number
            grouped.setdefault((f.severity, f.code, bool(shared) if f.code == "text" else shared), []).append(f)
    return [_sentence(code, number, group, columns or {}) for (_, code, number), group in grouped.items()]


def _sentence(code: str, number: float, group: Sequence[Finding], columns: Mapping[str, Columns]) -> str:
    """One sentence about findings of one code, and of one number where that is in the sentence."""
    first = group[0]
    here = {f.column: _called(columns, f.silo, f.column) for f in group}
    listed = _joined(list(here.values()))
    counted = _joined([f"{here[f.column]} ({f.number:,.0f})" for f in group])
    if code == "form":
        return f"is {FORMS[int(number)]}, where the others are not ({FORMS[first.place]}): save all in one form"
    if code == "few rows":
        return f"has {number:.0f} row{'s' if number != 1 else ''}, and needs at least {first.place}"
    if code == "lacks":
        lacking = _joined([_called(columns, f.other, f.place) for f in group])
        return f"lacks {lacking}, which others have" if first.other in columns else f"lacks {lacking} of the others"
    if code == "extra":
        return f"has {listed}, which {'no other silo has' if number == 1 else f'only {number:.0f} silos have'}"
    if code == "spelling":
        pairs = [
            here[f.column] + (f" for {_called(columns, f.other, f.place)}" if f.other in columns else "") for f in group
        ]
        return f"spells names unlike the others (capitals, blanks or signs): {_joined(pairs)}"
    if code == "no name":
        return "has a column without a name (row numbers written along?): give it a name, or leave it out"
    if code == "text":
        samples = [here[f.column] + _sample(columns.get(f.silo), f.column) for f in group]
        why = "where others hold numbers" if number else "and only numbers can be clustered"
        return f"holds no numbers in {_joined(samples)}, {why}: make them numbers, or leave them out"
    if code == "empty":
        return f"has no value at all in {listed}: leave the column out everywhere"
    if code == "missing":
        return f"has missing values in {counted}: fill them, or leave out those rows or columns"
    if code == "infinite":
        return f"has values that are infinite or beyond {LIMIT:.0e} in {counted}: replace them"
    if code == "order":
        places = _joined([f"{here[f.column]} is column {f.column}, there {f.place}" for f in group], "; ")
        effect = "a federation takes columns as they stand, so bring them into one order"
        if first.severity == NOTE:
            effect = "`fmtc fit` puts that right, a federation does not"
        return f"has its columns in another order than the others ({places}): {effect}"
    if code == "unit":
        return _unit_sentence(number, listed)
    if code == "scale":
        sizes = _joined([f"{here[f.column]} ({_times(f.number)})" for f in group])
        return f"has values of another size than the others in {sizes}: another unit?"
    if code == "shift":
        sides = [f"{here[f.column]} ({abs(f.number):.0f} {'above' if f.number > 0 else 'below'})" for f in group]
        return f"has values many standard deviations away from the others' in {_joined(sides)}: another unit or scale?"
    if code == "standardised":
        where = "here and not at the others" if number > 0 else "at the others and not here"
        return f"has {listed} with mean 0 and standard deviation 1 {where}: were they standardised there alone?"
    if code == "coding":
        step = f"{abs(number):.0f} {'higher' if number > 0 else 'lower'}"
        guess = "1 and 2 for 0 and 1" if number > 0 else "0 and 1 for 1 and 2"
        return f"has two values in {listed}, {step} than the others' two: such as {guess}?"
    if code == "negatives":
        return (
            f"has values below 0 in {counted}, where the others have none: codes for missing values, or another sign?"
        )
    where = "every silo" if number else "this silo"
    return f"has one value in all rows of {where} in {listed}, which cannot help there"


def _unit_sentence(number: float, listed: str) -> str:
    unit = min(UNITS, key=lambda unit: min(abs(np.subtract(unit.numbers, number))))
    if unit.factor == -1:
        return f"has values of the others' size and of the other sign in {listed}"
    forth, back = np.abs(np.subtract(unit.numbers, number))
    guess = f"{unit.here} for {unit.there}?" if forth < back else f"{unit.there} for {unit.here}?"
    if unit.shift:
        return f"has values like the others' in another unit in {listed}: {guess}"
    return f"has values {_times(number)} the others' in {listed}: {guess}"


def _times(number: float) -> str:
    large = max(number, 1 / _within(number))
    shown = f"{large:.3g}" if large < 100 else f"{large:,.0f}"
    return f"about {shown} times" if number >= 1 else f"about 1/{shown} of"


def _called(columns: Mapping[str, Columns], silo: str, place: int) -> str:
    names = columns[silo].names if silo in columns else None
    return f"column {place}" if names is None else repr(names[place])


def _sample(columns: Columns | None, place: int) -> str:
    """A word of a column of text, for those who have the column."""
    if columns is None or columns.names is None:
        return ""
    column = columns.content.to_series(place)
    return f" (such as {_example(column)!r})" if _column_kind(column) == "text" else f" ({_column_kind(column)})"


__all__ = ["Columns", "Finding", "compare", "encoded", "explain", "from_verdict", "read_columns", "survey"]
