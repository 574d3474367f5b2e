"""The comparison of columns before a run: what a silo says about its own, what differs, and what each is told.

Each silo reads its file without checks (`fmtc.tables.read_columns`) and describes its columns by hashes, counts and
sums (`survey`). The coordinator, which knows no name of a column, compares all descriptions (`compare`) and sends each
silo the findings about it (`as_numbers`). The silo turns them into words with its own column names (`from_verdict`,
`fmtc.tables.explain`).
"""

from __future__ import annotations

import hmac
import math
import secrets
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, TypeVar

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..schema import is_number
from .catalogue import CODES
from .findings import ERROR, LIMIT, NOTE, SMALLEST, UNITS, WIDTH, Finding, Kind, Unit, bounded, fold_of
from .parts import Columns

Array = np.ndarray
Key = TypeVar("Key")


@dataclass(frozen=True)
class Surveyed:
    """What a silo says about its columns: the fields of the phase `survey`; one entry for each column."""

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
        """What may be said where only sums over silos may be seen: names, as hashes, and types of columns."""
        return replace(self, n_samples=None, counts=None, missing=None, means=None, squares=None, negatives=None)


def survey(columns: Columns, salt: str) -> Surveyed:
    """Hashes of the names of columns, their types, counts, means and sums of squared deviations.

    For a column with fewer than `SMALLEST` values there are only counts. The result does not depend on the order of the
    rows, to the last bit.

    Parameters
    ----------
    columns : Columns
    salt : str
        A secret of the silos. Without it a hash only tells whether two names are equal.

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
    counts, missing, means, squares, negatives = zip(*_lines(columns), strict=True)
    return Surveyed(
        n_samples=columns.n_rows,
        columns=_hashes(words, salt),
        aliases=None if names is None else _hashes([f"alias {_plain(name)}" for name in names], salt),
        kinds=np.array(columns.kinds, np.int8),
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


_Line = tuple[int, int, float, float, int]  # count, missing, mean, squares, negatives of a column


def _lines(columns: Columns) -> Iterator[_Line]:
    content: Any = columns.content
    n = content.shape[0]
    if isinstance(content, pl.DataFrame):
        for kind, column in zip(columns.kinds, content.get_columns(), strict=True):
            if is_number(column) and kind in (Kind.NUMBERS, Kind.NAMELESS):
                yield _sums(column.cast(pl.Float64).to_numpy())  # null becomes nan
            else:
                yield n - column.null_count(), column.null_count(), 0.0, 0.0, 0
    elif sp.issparse(content):
        content = sp.csc_array(content)
        for begin, end in pairwise(content.indptr.tolist()):
            yield _sums(content.data[begin:end], zeros=n - (end - begin))
    else:
        for place in range(content.shape[1]):
            yield _sums(content[:, place])


def _sums(values: Array, zeros: int = 0) -> _Line:
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


# ------------------------------------------------------------------------------------------------------ differences


def compare(
    surveys: Mapping[str, Surveyed],
    *,
    by_name: bool = False,
    n_clusters: int = 1,
    complete: bool = False,
    scaled: bool = True,
    accept_units: bool = False,
) -> list[Finding]:
    """What differs between silos, and what in a silo could not be clustered; without any name of a column.

    Where silos differ, the finding is about those that disagree with more silos than they agree with; of two, about
    both.

    Parameters
    ----------
    surveys : mapping of silo to Surveyed
        What `survey` returned for each silo.
    by_name : bool
        Whether the run matches columns by name, as it does for files on one machine: names must then agree, and their
        order need not. In a federation each silo uses its columns as they are: then it is the other way round.
    n_clusters : int
        Number of clusters of the run; every silo needs more rows than that.
    complete : bool
        Whether missing values stop the run.
    scaled : bool
        Whether the run gives all columns the same weight; otherwise one that outweighs all others is a finding.
    accept_units : bool
        Whether a silo may have most of its columns in other units than the others: a note then, else an error.

    Returns
    -------
    list of Finding
        By silo, errors first.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.tables import Columns, compare, explain
    >>> from fmtc.tables.survey import survey
    >>> rows = np.random.default_rng(0).normal(70, 10, size=(150, 2))
    >>> silos = {"a": rows[:50], "b": rows[50:100], "c": rows[100:] * [1, 1000]}
    >>> findings = compare({name: survey(Columns(X), salt="a secret") for name, X in silos.items()})
    >>> [(f.silo, f.code, f.column, f.number) for f in findings]
    [('c', 'unit', 1, 1000.0)]
    >>> explain(findings, "c")
    ["has values about 1,000 times the others' in column 1: grams for kilograms?"]

    Most columns of a silo in other units are an error:

    >>> silos["c"] = rows[100:] * 1000
    >>> findings = compare({name: survey(Columns(X), salt="a secret") for name, X in silos.items()})
    >>> [(f.silo, f.severity, f.column) for f in findings]
    [('c', 'error', 0), ('c', 'error', 1)]
    """
    surveys = {silo: surveys[silo] for silo in sorted(surveys)}
    findings = [found for silo, said in surveys.items() for found in _by_itself(silo, said, n_clusters, complete)]
    forms = {silo: _form(said) for silo, said in surveys.items()}
    findings += [
        Finding(silo, "form", ERROR, other=other, place=forms[other], number=float(forms[silo]))
        for silo, other in _odd(forms).items()
    ]
    for form in set(forms.values()):
        peers = {silo: said for silo, said in surveys.items() if forms[silo] == form}
        groups = _match(peers)
        findings += _columns_differ(peers, groups, by_name)
        findings += _values_differ(peers, groups, accept_units) + ([] if scaled else _outweighed(peers, groups))
    return sorted(findings, key=lambda f: (f.silo, f.severity != ERROR, CODES.index(f.code), f.column, f.place))


def compare_columns(columns: Mapping[str, Columns], **options: Any) -> list[Finding]:
    """The same for silos whose columns are here, as they would describe them to others; `options` as in `compare`."""
    salt = secrets.token_hex(32)
    return compare({silo: survey(content, salt) for silo, content in columns.items()}, by_name=True, **options)


def _form(said: Surveyed) -> int:
    return 0 if said.aliases is not None else 2 if (said.kinds == Kind.SPARSE).all() else 1


def _odd(answers: Mapping[Key, Hashable]) -> dict[Key, Key]:
    """Silos that disagree with more others than they agree with, each with a silo of the commonest other answer."""
    count = Counter(answers.values())
    odd = {}
    for silo, answer in answers.items():
        if len(answers) - count[answer] > count[answer] - 1:
            (common, _), *_ = [pair for pair in count.most_common() if pair[0] != answer]
            odd[silo] = next(other for other, theirs in answers.items() if theirs == common)
    return odd


def _by_itself(silo: str, said: Surveyed, n_clusters: int, complete: bool) -> Iterator[Finding]:
    """What would stop a run, whatever the others have."""
    kinds, gaps = said.kinds, ERROR if complete else NOTE
    found = [
        ("no name", ERROR, kinds == Kind.NAMELESS, kinds),
        ("identifier", ERROR, kinds == Kind.IDENTIFIERS, kinds),
    ]
    if said.counts is None or said.missing is None:  # a run with privacy: only names and types of columns are known
        found.append(("empty", gaps, kinds == Kind.NOTHING, kinds))
    else:
        n, counts, missing, needed = said.n_samples or 0, said.counts, said.missing, max(2, n_clusters + 1)
        if n < needed:
            yield Finding(silo, "few rows", ERROR, place=needed, number=float(n))
        numbers = (kinds == Kind.NUMBERS) | (kinds == Kind.SPARSE)
        empty, infinite = (kinds == Kind.NOTHING) | (numbers & (missing == n)), n - counts - missing
        found += [
            ("empty", gaps, empty, missing),
            ("missing", gaps, (numbers | (kinds == Kind.CATEGORY)) & ~empty & (missing > 0), missing),
            ("infinite", ERROR, numbers & (infinite > 0), infinite),
        ]
    for code, severity, where, number in found:
        for place in np.flatnonzero(where).tolist():
            yield Finding(silo, code, severity, place, number=float(number[place]))


_Group = dict[str, int]  # the silos that have a column, and its position in each


def _match(peers: Mapping[str, Surveyed]) -> list[_Group]:
    """Which columns of the silos are the same: those of the same name or, if it is unambiguous, of similar names."""
    groups: dict[int, _Group] = {}
    alike: dict[int, list[int]] = {}
    for silo, said in peers.items():
        keys = said.columns.tolist()
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


def _columns_differ(peers: Mapping[str, Surveyed], groups: Sequence[_Group], by_name: bool) -> list[Finding]:
    """Columns that some silos lack, that differ in name or position, or that do not hold numbers."""
    found = []
    for where in groups:
        has, first = len(where), next(iter(where))
        if 2 * has >= len(peers):
            found += [Finding(s, "lacks", ERROR, other=first, place=where[first]) for s in peers if s not in where]
        if 2 * has <= len(peers):
            found += [Finding(s, "extra", ERROR, where[s], number=float(has)) for s in where]
        found += _column_differs(peers, where, by_name)
    common = [where for where in groups if len(where) == len(peers)]
    orders = {silo: tuple(np.argsort([where[silo] for where in common]).tolist()) for silo in peers}
    for silo, other in _odd(orders).items():
        for mine, theirs in zip(orders[silo], orders[other], strict=True):
            if mine != theirs:
                where = common[mine]
                found.append(Finding(silo, "order", NOTE if by_name else ERROR, where[silo], other, where[other]))
    return found


def _column_differs(peers: Mapping[str, Surveyed], where: _Group, by_name: bool) -> Iterator[Finding]:
    """A column that is spelt in two ways, has other levels, or does not hold numbers."""
    calls = {silo: int(peers[silo].columns[place]) for silo, place in where.items()}
    holds = {silo: int(peers[silo].kinds[place]) for silo, place in where.items()}
    for silo, other in _odd(calls).items():
        severity, code = ERROR if by_name else NOTE, "spelling"
        if Kind.CATEGORY in (holds[silo], holds[other]):  # its levels are part of the hash
            severity, code = ERROR, "levels"
        yield Finding(silo, code, severity, where[silo], other, where[other])
    numbers = sum(kind in (Kind.NUMBERS, Kind.SPARSE) for kind in holds.values())
    for silo, kind in holds.items():
        if kind in (Kind.TEXT, Kind.OTHER):
            yield Finding(silo, "text", ERROR, where[silo], number=float(numbers))


def _outweighed(peers: Mapping[str, Surveyed], groups: Sequence[_Group]) -> list[Finding]:
    """A column that has more than nine tenths of the variance of all, over the silos together."""
    common = [where for where in groups if len(where) == len(peers)]
    sums = _collect(peers, common)
    live = sums.there.all(axis=0)
    if any((said.kinds == Kind.SPARSE).any() for said in peers.values()):
        return []
    n, mean = sums.n[:, live], sums.mean[:, live]
    middle = (n * mean).sum(axis=0) / n.sum(axis=0)
    with np.errstate(over="ignore"):
        variances = (n * (sums.sd[:, live] ** 2 + (mean - middle) ** 2)).sum(axis=0) / n.sum(axis=0)
    constant = (sums.sd[:, live] == 0).all(axis=0) & (mean == mean[0]).all(axis=0)
    if constant.sum() > live.sum() - 2:
        return []
    variances[constant] = 0.0
    total, heaviest = float(variances.sum()), int(np.argmax(variances))
    if not 0 < total < np.inf or variances[heaviest] <= 0.9 * total:
        return []
    where, share = common[int(np.flatnonzero(live)[heaviest])], 100 * float(variances[heaviest] / total)
    return [Finding(silo, "dominant", NOTE, place, number=share) for silo, place in where.items()]


# --------------------------------------------------------------------------------------------------------- values

# Silos differ for good reasons, so only differences that no other population can explain are findings.
_GAP = 5.0  # distance of two means, in the smaller standard deviation, from which the units may differ
_FAR = 10.0  # distance of two means, in the larger standard deviation, that counts as far apart
_TIMES = 20.0  # ratio of means and spreads that is a finding even if no unit explains it
_CHANCE = 1e-4  # probability that the others have no value below 0 where this silo has some
# More than half of a silo's comparable columns, and at least two, apart by such a factor stop a run. Chosen on 28
# federations: no silo has more than 4 of 128 such columns, and each of 64 silos multiplied by 100 has enough.
_LARGE, _MOST = 10.0, 0.5


_Column = tuple[float, float, float]  # rows, mean, standard deviation


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of g columns of m silos; each array is m x g."""

    n: Array
    mean: Array
    sd: Array
    negatives: Array
    there: Array  # whether the silo sent them

    @property
    def fit(self) -> Array:
        """Whether magnitudes can be compared: if nearly all values are 0, mean and spread vary freely."""
        share = self.negatives / self.n
        placed: Array = (np.abs(self.mean) >= self.sd / 3) | ((share > 0.05) & (share < 0.95))
        return self.there & (self.sd > 0) & placed

    def of(self, row: int, column: int) -> _Column:
        return float(self.n[row, column]), float(self.mean[row, column]), float(self.sd[row, column])


def _collect(peers: Mapping[str, Surveyed], groups: Sequence[_Group]) -> _Sums:
    sums = np.zeros((5, len(peers), len(groups)))
    for row, (silo, said) in enumerate(peers.items()):
        if said.counts is not None:
            columns = [column for column, where in enumerate(groups) if silo in where]
            at = [groups[column][silo] for column in columns]
            told = np.isin(said.kinds, (Kind.NUMBERS, Kind.SPARSE)) & (said.counts >= SMALLEST)
            each = (said.counts, said.means, said.squares, said.negatives, told)
            sums[:, row, columns] = [np.asarray(numbers)[at] for numbers in each]
    n, mean, squares, negatives, there = sums
    n = np.maximum(n, 1)
    return _Sums(n, mean, np.sqrt(squares / n), negatives, there > 0)


_Difference = tuple[int, int, str, int, float]  # silo, column, code, a silo to compare with, number


def _values_differ(peers: Mapping[str, Surveyed], groups: Sequence[_Group], accept_units: bool) -> list[Finding]:
    """Columns whose values do not look like the same thing in the same unit or coding.

    Notes, except for a silo with most of its columns in other units: the server would set it aside.
    """
    silos, sums = list(peers), _collect(peers, groups)
    found: dict[tuple[int, int], Finding] = {}  # by silo and column; the first finding counts
    for row, column, code, other, number in (*_codings_differ(sums), *_sizes_differ(sums), *_signs_differ(sums)):
        here, there = silos[row], silos[other]
        finding = Finding(here, code, NOTE, groups[column][here], there, groups[column][there], number)
        found.setdefault((row, column), finding)
    comparable = (sums.fit & (sums.fit.sum(axis=0) > 1)).sum(axis=1)
    for row in range(0 if accept_units else len(silos)):
        apart = [key for key, finding in found.items() if key[0] == row and fold_of(finding) >= _LARGE]
        if len(apart) > max(1, _MOST * comparable[row]):
            found |= {key: replace(found[key], severity=ERROR) for key in apart}
    return list(found.values())


def _codings_differ(sums: _Sums) -> Iterator[_Difference]:
    """Columns that are constant, standardised, or hold two consecutive integers."""
    n, mean, sd = sums.n, sums.mean, sums.sd
    constant = sums.there & (sd == 0)
    everywhere = constant.all(axis=0) & (len(n) > 1)
    for row, column in np.argwhere(constant).tolist():
        yield row, column, "constant", row, float(everywhere[column])
    live = sums.there & (sd > 0)
    off = np.minimum(np.abs(sd - 1), np.abs(sd * np.sqrt(n / np.maximum(n - 1, 1)) - 1))
    standard = live & (np.abs(mean) < 2e-4) & (off < 2e-4)
    low = np.floor(mean)
    # values that are all low or low + 1 have this variance, and hardly any other values do
    coded = live & (np.abs(sd**2 - (mean - low) * (low + 1 - mean)) < 1e-9)
    plain = live & ((np.abs(mean) > 0.5) | (np.abs(sd - 1) > 0.5)) & standard.any(axis=0)
    for code, rows, answers in (("standardised", standard | plain, standard), ("coding", coded, low)):
        for column in np.flatnonzero(rows.any(axis=0)).tolist():
            said = {row: float(answers[row, column]) for row in np.flatnonzero(rows[:, column]).tolist()}
            for row, other in _odd(said).items():
                yield row, column, code, other, said[row] - said[other]


def _signs_differ(sums: _Sums) -> Iterator[_Difference]:
    """Columns with values below 0 in few silos, and more of them than chance explains."""
    some, none = sums.there & (sums.negatives > 0), sums.there & (sums.negatives == 0)
    odd = some & (some.sum(axis=0) <= none.sum(axis=0))
    for row, column in np.argwhere(odd).tolist():
        others = np.flatnonzero(none[:, column])
        share = sums.negatives[row, column] / (sums.n[row, column] + 1)
        if sums.n[others, column].sum() * np.log1p(-share) < np.log(_CHANCE):
            yield row, column, "negatives", int(others[0]), float(sums.negatives[row, column])


def _sizes_differ(sums: _Sums) -> Iterator[_Difference]:
    """Columns whose mean and spread differ in magnitude from those of most others."""
    fit = sums.fit
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
            # the median: what most say, if most say the same
            code, number, other = sorted(against)[(len(against) - 1) // 2]
            yield row, column, code, other, number


def _size(x: _Column, y: _Column) -> tuple[str, float, float] | None:
    """Code, number for the first and number for the second, if two columns differ in magnitude."""
    (_, mean, sd), (_, other, spread) = x, y
    gap, times = abs(mean - other), bounded(sd / spread)
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
        far = bounded((mean - other) / max(sd, spread))
        return "shift", far, -far
    return None


def _doubt(unit: Unit, x: _Column, y: _Column) -> float:
    """Distance of x from y in another unit; up to 1, chance and ordinary differences between silos explain it.

    The larger the factor, the more silos may differ otherwise: nobody is a thousand times as heavy.
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


# ---------------------------------------------------------------------------------------------------- what is told


def as_numbers(findings: Iterable[Finding], silos: Iterable[str]) -> dict[str, Array]:
    """For each silo the findings about it, one per row: code, whether an error, column, place, number."""
    lines: dict[str, list[tuple[float, ...]]] = {silo: [] for silo in silos}
    for f in findings:
        lines[f.silo].append((CODES.index(f.code), f.severity == ERROR, f.column, f.place, f.number))
    return {silo: np.array(rows, np.float64).reshape(-1, WIDTH) for silo, rows in lines.items()}


def from_verdict(findings: Array, silo: str) -> list[Finding]:
    """The findings about a silo, from the numbers in its verdict; the silos it was compared with are omitted.

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


__all__ = ["Surveyed", "as_numbers", "compare", "compare_columns", "from_verdict", "survey"]
