"""Findings about the columns of clients: what they are, and how to say them to people."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SHOWN, joined
from .columns import Columns, column_kind, example_of
from .guess import clipped, counted_missing, date_in, strays_in, text_in
from .kinds import LIMIT

FORMS = ("a table with column names", "a dense matrix without column names", "a sparse matrix")

ERROR, NOTE = "error", "note"


@dataclass(frozen=True)
class Finding:
    """One finding about one client. An error would stop a run or make it meaningless; a note would not.

    `column` is a position in the client's table, -1 if the finding is not about a single column. `other` is a client it
    was compared with, and `place` the position of the column there. The meaning of `number` depends on the code: how
    many values are missing, the ratio of the values to those of the others, and so on.

    Examples
    --------
    >>> from fmtc.tables import Finding, explain
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
class Unit:
    """Values in the unit `here` are `factor` times those in the unit `there`, plus `shift`.

    `names` are how words in names of columns begin that hold such values; `of` says what these are, if only they do.
    """

    here: str
    there: str
    factor: float
    shift: float = 0.0
    names: tuple[str, ...] = ()
    of: str = ""

    @property
    def numbers(self) -> tuple[float, float]:
        """Number of a finding about values in the unit `here`, and about values in the unit `there`."""
        return (self.shift, -self.shift) if self.factor == 1 else (float(self.factor), 1 / self.factor)


UNITS = (
    Unit("milligrams", "kilograms", 1e6),
    Unit("seconds", "hours", 3600),
    Unit("grams", "kilograms", 1000),
    Unit("days", "years", 365.25),
    Unit("centimetres or per cent", "metres or shares", 100, names=("height", "length", "percent")),
    Unit("µmol/L", "mg/dL", 88.42, names=("crea", "krea"), of="creatinine"),
    Unit("minutes", "hours", 60),
    Unit("mg/dL", "mmol/L", 38.67, names=("chol", "ldl", "hdl"), of="cholesterol"),
    Unit("centimetres", "feet", 30.48),
    Unit("hours", "days", 24),
    Unit("mg/dL", "mmol/L", 18.016, names=("gluc", "sugar"), of="glucose"),
    Unit("µmol/L", "mg/dL", 17.1, names=("bili",), of="bilirubin"),
    Unit("months", "years", 12),
    Unit("millimetres", "centimetres", 10),
    Unit("mmHg", "kPa", 7.5006),
    Unit("kilojoules", "kilocalories", 4.184),
    Unit("feet", "metres", 3.2808),
    Unit("centimetres", "inches", 2.54),
    Unit("pounds", "kilograms", 2.2046),
    Unit("kilometres", "miles", 1.6093),
    Unit("degrees Fahrenheit", "degrees Celsius", 1.8, 32),
    Unit("kelvins", "degrees Celsius", 1, 273.15),
    Unit("the other sign", "the sign there", -1),
)
NAMED = (
    *UNITS,
    Unit("mg/dL", "mmol/L", 88.57, names=("trig", "tg"), of="triglycerides"),
)  # as far as a name tells them
_ALIKE = 0.35  # distance of the logarithms of two factors that silos may make up for


def explain(
    findings: Iterable[Finding], silo: str, columns: Mapping[str, Columns] | None = None, severity: str | None = None
) -> list[str]:
    """The findings about one client as sentences without a subject, in the order of `findings`.

    Parameters
    ----------
    findings : iterable of Finding
        About any clients.
    silo : str
        The client.
    columns : mapping of client to its Columns, optional
        Those that are available, for names. Other columns are named by their position, counted from 0.
    severity : {"error", "note"}, optional
        Omit findings of the other severity.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables import Columns, Finding, explain
    >>> found = [Finding("north", "missing", "error", column=1, number=3)]
    >>> explain(found, "north")
    ['has missing values in column 1 (3): fill them, or omit those rows or columns']
    >>> explain(found, "north", {"north": Columns(pl.DataFrame({"height": [170.0], "dose": [None]}))})
    ["has missing values in 'dose' (3): fill them, or omit those rows or columns"]
    """
    grouped: dict[tuple[str, str, float, Any], list[Finding]] = {}
    for f in findings:
        if f.silo == silo and severity in (None, f.severity):
            shared = 0.0 if f.code in ("missing", "infinite", "negatives", "scale", "shift") else f.number
            kind: Any = ""
            if f.code == "text":
                shared, kind = bool(shared), _words_of((columns or {}).get(silo), f.column)[0]
            if f.code == "unit":
                kind = _unit_of(f.number, _called(columns or {}, silo, f.column))
            grouped.setdefault((f.severity, f.code, shared, kind), []).append(f)
    return [_sentence(code, number, group, columns or {}) for (_, code, number, _), group in grouped.items()]


def _sentence(code: str, number: float, group: Sequence[Finding], columns: Mapping[str, Columns]) -> str:
    """One sentence about findings with the same code and, if the sentence contains it, the same number."""
    first = group[0]
    here = {f.column: _called(columns, f.silo, f.column) for f in group}
    listed = joined(list(here.values()))
    counted = joined([f"{here[f.column]} ({f.number:,.0f})" for f in group])
    if code == "form":
        return f"is {FORMS[int(number)]}, unlike the others ({FORMS[first.place]}): save all in one form"
    if code == "few rows":
        return f"has {number:.0f} row{'s' if number != 1 else ''}, but needs at least {first.place}"
    if code == "lacks":
        lacking = joined([_called(columns, f.other, f.place) for f in group])
        return f"lacks {lacking}, which others have" if first.other in columns else f"lacks {lacking} of the others"
    if code == "extra":
        return f"has {listed}, which {'no other client has' if number == 1 else f'only {number:.0f} clients have'}"
    if code == "spelling":
        pairs = [
            here[f.column] + (f" for {_called(columns, f.other, f.place)}" if f.other in columns else "") for f in group
        ]
        return f"spells names differently (case, blanks or punctuation): {joined(pairs)}"
    if code == "no name":
        return "has a column without a name (perhaps row numbers): give it a name, or omit it"
    if code == "text":
        return _text_sentence(number, group, here, columns.get(first.silo))
    if code == "empty":
        return f"has no value at all in {listed}" + (": omit the column everywhere" if first.severity == ERROR else "")
    if code == "missing":
        advice = ": fill them, or omit those rows or columns" if first.severity == ERROR else ""
        return f"has missing values in {counted}{advice}"
    if code == "infinite":
        return f"has values that are infinite or above {LIMIT:.0e} in {counted}: replace them"
    if code == "order":
        places = joined([f"{here[f.column]} is column {f.column}, there {f.place}" for f in group], "; ")
        effect = "a federation uses columns as they are, so give all clients the same order"
        if first.severity == NOTE:
            effect = "a run on files reorders them, a federation does not"
        return f"has its columns in another order than the others ({places}): {effect}"
    if code == "unit":
        unit = _unit_of(number, here[first.column])
        way = f" Most of its columns differ so: multiply them by {1 / bounded(number):.4g}, {_ALLOWED}"
        return _unit_sentence(unit, number, listed) + (way if first.severity == ERROR else "")
    if code == "scale":
        sizes = joined([f"{here[f.column]} ({_times(f.number)})" for f in group])
        way = f" Most of its columns differ so: bring them to the units of the others, {_ALLOWED}"
        return f"has values of another magnitude than the others in {sizes}: another unit?" + (
            way if first.severity == ERROR else ""
        )
    if code == "shift":
        sides = [f"{here[f.column]} ({abs(f.number):.0f} {'above' if f.number > 0 else 'below'})" for f in group]
        return f"has values many standard deviations from the others' in {joined(sides)}: another unit or scale?"
    if code == "standardised":
        where = "here but not elsewhere" if number > 0 else "elsewhere but not here"
        return f"has {listed} with mean 0 and standard deviation 1 {where}: were they standardised only there?"
    if code == "coding":
        step = f"{abs(number):.0f} {'higher' if number > 0 else 'lower'}"
        guess = "1 and 2 for 0 and 1" if number > 0 else "0 and 1 for 1 and 2"
        return f"has two values in {listed}, {step} than the two of the others: perhaps {guess}?"
    if code == "negatives":
        return f"has values below 0 in {counted}, but the others have none: codes for missing values, or another sign?"
    if code == "levels":
        return f"has other levels in {listed}, or takes it for something else: give all clients the same schema"
    if code == "identifier":
        ways = "name it as `id_column`, omit it (`drop`), or say in a schema that it is a number"
        return f"has {listed}, which seem{'s' if len(group) == 1 else ''} to name rows: {ways}"
    if code == "dominant":
        return f"has {number:.1f} % of the variance of all columns in {listed}: give columns the same weight (`scale`)"
    where = "every client" if number else "this client"
    return f"has the same value in all rows of {where} in {listed}, which cannot help there"


_ALLOWED = "or start the run with `accept_units`"


def fold_of(finding: Finding) -> float:
    """Factor, at least 1, between the values of a client and those of the others; 1 where the finding is no factor."""
    if finding.code == "unit":
        return abs(_unit_of(finding.number, "").factor)
    return max(finding.number, 1 / bounded(finding.number)) if finding.code == "scale" else 1.0


def _unit_of(number: float, name: str) -> Unit:
    """The unit of a finding: among those whose factors are much alike, the one that the column is named after."""
    unit = min(UNITS, key=lambda unit: min(abs(np.subtract(unit.numbers, number))))
    if unit.shift or number <= 0:
        return unit
    words = re.findall(r"[^\W\d_]+", name.casefold())
    near = {u: abs(abs(math.log(number)) - math.log(u.factor)) for u in NAMED if u.factor > 1 and not u.shift}
    known = [u for u, off in near.items() if off < _ALIKE and any(word.startswith(u.names) for word in words)]
    return min(known, default=unit, key=lambda unit: near[unit])


def _unit_sentence(unit: Unit, number: float, listed: str) -> str:
    if unit.factor == -1:
        return f"has values of the same magnitude as the others but of the other sign in {listed}"
    turned = number < 0 if unit.shift and unit.factor == 1 else number < 1
    there, here = (unit.here, unit.there) if turned else (unit.there, unit.here)
    guess = f"{here} for {there}{f' ({unit.of})' if unit.of else ''}?"
    if unit.shift:
        return f"has values like the others' in another unit in {listed}: {guess}"
    return f"has values {_times(1 / unit.factor if turned else unit.factor)} the others' in {listed}: {guess}"


def bounded(number: float) -> float:
    """The number, limited in magnitude so that its inverse is finite."""
    return math.copysign(min(max(abs(number), 1e-99), 1e99), number)


def _times(number: float) -> str:
    large = max(number, 1 / bounded(number))
    shown = f"{large:.3g}" if large < 100 else f"{large:,.0f}"
    return f"about {shown} times" if number >= 1 else f"about 1/{shown} of"


def _called(columns: Mapping[str, Columns], silo: str, place: int) -> str:
    names = columns[silo].names if silo in columns else None
    return f"column {place}" if names is None else repr(names[place])


DATES, TEXTS, STRAYS = "dates", "texts", "strays"


def _words_of(columns: Columns | None, place: int) -> tuple[str, str]:
    """What a column without numbers holds, if that is known, and a value in parentheses, if the column is available."""
    if columns is None or columns.names is None:
        return "", ""
    column = columns.content.to_series(place)
    if (date := date_in(column)) is not None:
        return DATES, f" (dates, such as {date})"
    if (text := text_in(column)) is not None:
        return TEXTS, f" (such as {clipped(text)!r})"
    if column_kind(column) != "text":
        return "", f" ({column_kind(column)})"
    return STRAYS if strays_in(column) else "", f" (such as {example_of(column)!r})"


def _text_sentence(number: float, group: Sequence[Finding], here: Mapping[int, str], columns: Columns | None) -> str:
    """One sentence about columns that hold no numbers but the same kind of words."""
    samples = [here[f.column] + _words_of(columns, f.column)[1] for f in group]
    why = "but others have numbers there" if number else "but only numbers can be clustered"
    way = (
        "convert them to numbers, omit them, or give all clients a schema (fmtc check FILES --write-schema schema.toml)"
    )
    kind = _words_of(columns, group[0].column)[0]
    if kind == DATES:
        way = "write what matters about them as a number, such as days since an event, or omit them (`drop`)"
    if kind and columns is not None and columns.names is not None:
        names = [shlex.quote(columns.names[f.column]) for f in group]
        if kind == TEXTS:
            its, it = ("its words", "it") if len(names) == 1 else ("the words of one", "them")
            return (
                f"has free text in {joined(samples)}: cluster by {its} (`text_column` {names[0]}), or omit {it} "
                f"(`drop` {' `drop` '.join(names)})"
            )
        if kind == STRAYS:
            words = dict.fromkeys(w for f in group for w in strays_in(columns.content.to_series(f.column)))
            kinds = shlex.quote("number:" + ",".join(columns.names[f.column] for f in group))
            flags = f"by a schema: fmtc check FILES --as {kinds} --write-schema schema.toml"
            flags = counted_missing(words) if len(words) <= SHOWN else flags
            way = f"correct such words, or count them as missing ({flags})"
            return f"has words among the numbers in {joined(samples)}: {way}"
    return f"has cells that are no numbers in {joined(samples)}, {why}: {way}"


__all__ = ["Finding", "explain"]
