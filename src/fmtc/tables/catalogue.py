"""The sentences about columns and values: what was found, and what to do about it in the words of who reads it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..errors import joined, listed
from ..schema import CATEGORY
from ..wording import PARAMETERS, Wording
from .findings import ALIKE, CONSTANT, ERROR, IDENTIFIER, LIMIT, NAMED, NOTE, Finding, Unit, bounded, nearest_unit

if TYPE_CHECKING:
    from .guess import Judged
    from .parts import Columns

# ------------------------------------------------------------------------------------------------ one column or row

DOUBTS = {
    "durations": "column {column} holds durations: omit it{drop_it}, or write them as numbers: "
    'table["{name}"].dt.total_seconds()',
    "dates": "column {column} holds dates (such as {example}), and a date is no quantity: omit it{drop_it}, or write "
    'what matters about it as a number, such as days since an event: (pandas.to_datetime(table["{name}"]) - '
    'pandas.Timestamp("2020-01-01")).dt.days',
    "type": "column {column} holds values of type {kind}, neither numbers nor words: omit it{drop}",
    "text": "column {column} holds free text (such as {example!r}): cluster by its words{words_of_it}, or omit "
    "it{drop_it}",
    "strays": "column {column} holds numbers, but {word!r} in {at}: correct it, count such words as "
    "missing{number}, take the column as a category{category}, or omit it{drop}",
    "codes": "column {column} holds numbers, but {word!r} in {at}: correct it, count such words as missing {codes}, or "
    "omit it{drop}",
    "words": "column {column} holds {n} different words (such as {example!r}), too many for a category: omit it{drop}, "
    "cluster by its words{words_of}, or insist{category}",
    "names rows": "column {column} holds {n} different words, which name rows: omit it, or make it the index",
    "no numbers": "column {column} holds words (such as {example!r}), where only numbers can be clustered: convert "
    "them to numbers, omit it{drop}, name it as {roles}, or give all silos a schema (fmtc check FILES --write-schema "
    "schema.toml)",
    "no name": "a column has no name (perhaps row numbers): give it a name, or omit it{drop_it}",
    "dominant": "{column} is {share:.1f} % of the variance of all columns and decides the clusters alone: give columns "
    "the same weight{scale}, or omit it{drop}",
    "far": "row {row} has {value:.3g} in {column}, far from all others, and may become a cluster of its own: correct "
    "or remove it",
}


def words_of(doubt: Finding, wording: Wording = PARAMETERS) -> str:
    """A doubt as a sentence.

    Examples
    --------
    >>> from fmtc.tables.catalogue import words_of
    >>> from fmtc.tables.findings import Finding
    >>> from fmtc.wording import FLAGS, FRAMES
    >>> doubt = Finding.of_column("type", "bp", kind="List")
    >>> words_of(doubt, FLAGS)
    "column 'bp' holds values of type List, neither numbers nor words: omit it (--drop)"
    >>> words_of(doubt, FRAMES)
    "column 'bp' holds values of type List, neither numbers nor words: omit it (X.drop(columns='bp'))"
    """
    name, way = str(doubt.column), wording.way
    facts = {
        "drop": way("drop", column=name),
        "drop_it": way("drop", name, column=name),
        "words_of": way("text_column", column=name),
        "words_of_it": way("text_column", name, column=name),
        "number": way("as_types", f"number:{name}", column=name),
        "category": way("as_types", f"category:{name}", column=name),
        "codes": wording.as_missing(doubt.facts.get("words", ())),
        "scale": way("scale", "global"),
        "roles": " or ".join(map(wording.option, ("id_column", "label_column", "silo_column"))),
        "column": called(doubt.column),
        "name": name,
    }
    return DOUBTS[doubt.code].format(**{**facts, **doubt.facts})


def called(column: str | int) -> str:
    """A column by its name or, where it has none, by its position."""
    return f"column {column}" if isinstance(column, int) else repr(column)


def plain(column: str | int) -> str:
    """The same without quotation marks."""
    return f"column {column}" if isinstance(column, int) else column


def codes_of(found: Sequence[Finding], wording: Wording = PARAMETERS) -> str:
    """A sentence about codes for missing values; empty if there are none.

    What helps is an option, which is for all columns, or a schema, where other columns hold such values too.
    """
    if not found:
        return ""
    shown = "{} is {value:g} in {n:,} rows and else from {nearest:g} on"
    columns = joined([shown.format(called(one.column), **one.facts) for one in found], "; ")
    alone = list(dict.fromkeys(one.facts["value"] for one in found if one.facts["alone"]))
    others = {one.column: one.facts["value"] for one in found if not one.facts["alone"]}
    ways = [wording.counted(alone)] if alone else []
    if others:
        ways.append(wording.listed(joined([f"missing = [{code:g}] for {plain(n)!r}" for n, code in others.items()])))
    return f"codes for missing values? {columns}: {', and '.join(ways)}"


def missing_of(counts: Mapping[str, int], n_cells: int) -> str:
    """A sentence about missing cells, by column, among so many; empty if there are none."""
    shown = joined([f"{name!r} ({n:,})" for name, n in counts.items()])
    return f"missing cells: {sum(counts.values()):,} of {n_cells:,}, in {shown}" if counts else ""


def constants_of(where: Mapping[str, Sequence[str]], n_silos: int) -> str:
    """A sentence about columns with one value, and the silos where this is so; empty if there are none."""
    among = {name: "every silo" if len(silos) == n_silos else ", ".join(silos) for name, silos in where.items()}
    shown = [name if n_silos == 1 else f"{name} ({among[name]})" for name in where]
    count = f"{len(shown)} column{'s' if len(shown) != 1 else ''}"
    said = "with one value or none in all rows of a silo, which cannot help there"
    return f"{count} {said}: {joined(shown)}" if shown else ""


# ------------------------------------------------------------------------------------------------ what was decided


def done_with(judged: Judged, wording: Wording = PARAMETERS, left: Collection[str] = ()) -> list[str]:
    """What was done with columns, in two lines, and questions; constant columns among `left` were left alone.

    Examples
    --------
    >>> import polars as pl
    >>> from fmtc.tables.catalogue import done_with
    >>> from fmtc.tables.guess import judge
    >>> rows = pl.DataFrame({"patient": [f"P{i:03}" for i in range(12)], "sex": ["f", "m"] * 6, "age": [40.5, 61] * 6})
    >>> done_with(judge({"north": rows}))
    ["'patient' names the rows and is no feature", "categories: 'sex' (2 levels)"]
    """
    aside = [name for name in judged.of_kind(IDENTIFIER) if name != judged.id_column]
    constant = [name for name in judged.of_kind(CONSTANT) if name not in left]
    parts = []
    if judged.id_column in judged.of_kind(IDENTIFIER):
        parts.append(f"{judged.id_column!r} names the rows and is no feature")
    if "" in aside:
        aside.remove("")
        parts.append("the column without a name set aside, as numbers of rows")
    if aside:
        parts.append(f"{listed(aside)} set aside as identifiers")
    if constant:
        parts.append(f"{listed(constant)} dropped: one value in all rows")
    lines = ["; ".join(parts)] if parts else []
    shown = [f"{name!r} ({len(judged.guesses[name].levels)} levels)" for name in judged.of_kind(CATEGORY)]
    lines += [f"categories: {joined(shown)}"] if shown else []
    return lines + questions_about(judged, wording)


def questions_about(
    judged: Judged,
    wording: Wording = PARAMETERS,
    *,
    joining: bool = False,
    kinds: Collection[str] = ("answer", "silos"),
) -> list[str]:
    """What to ask about features whose names are those of an answer or of silos; with `joining`, of one silo."""
    lines = []
    for name, asked in judged.questioned().items():
        if asked not in kinds:
            continue
        way = partial(wording.way, column=name)
        if asked == "answer":
            what, ways = f"is {name!r} the answer?", [f"leave it out{way('label_column', name)}"]
        else:
            divide = [] if joining else [f"divide rows by it{way('silo_column', name)}"]
            what, ways = f"does {name!r} name silos?", [*divide, f"omit it{way('drop', name)}"]
        if wording.of_files and not joining:
            ways.append(f"keep it{way('as_types', f'{judged.guesses[name].kind}:{name}')}")
        *first, last = ways
        lines.append(f"{what} It is clustered on: {', '.join([*first, f'or {last}'] if first else [last])}")
    return lines


def named_rows(names: Sequence[str]) -> str:
    """Columns of numbers that seem to name rows."""
    seem = "seems to name rows, and is" if len(names) == 1 else "seem to name rows, and are"
    return f"{listed(names)} {seem} clustered on like a measurement: omit such columns"


# ------------------------------------------------------------------------------------------ differences between silos


def differences(names: Mapping[str, Sequence[str]]) -> str:
    """Which columns of the first silo each lacks, and which it has besides, a line each; empty if none."""
    first, wanted = next(iter(names.items()))
    known, lines = set(wanted), []
    for silo, own in names.items():
        mine = set(own)
        ways = {"lacks": [n for n in wanted if n not in mine], "also has": [n for n in own if n not in known]}
        said = [f"{verb} {listed(found)}" for verb, found in ways.items() if found]
        lines += [f"{silo}: {'; '.join(said)}"] if said else []
    return f"the columns differ from those of {first!r}:\n  " + joined(lines, "\n  ", " silos") if lines else ""


FORMS = ("a table with column names", "a dense matrix without column names", "a sparse matrix")


@dataclass(frozen=True)
class _Group:
    """Findings about one silo that make one sentence."""

    findings: Sequence[Finding]
    columns: Mapping[str, Columns]
    wording: Wording

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def number(self) -> float:
        return self.first.number

    @property
    def name(self) -> str | int:
        return _name(self.columns, self.first.silo, self.first.column)

    @property
    def listed(self) -> str:
        return joined([self.here(f) for f in self.findings])

    @property
    def there(self) -> str:
        return joined([_called(self.columns, f.other, f.place) for f in self.findings])

    @property
    def counted(self) -> str:
        return self.each(lambda f: f"({f.number:,.0f})")

    def here(self, finding: Finding) -> str:
        return _called(self.columns, finding.silo, finding.column)

    def each(self, said: Callable[[Finding], str], separator: str = ", ") -> str:
        """The columns, and something about each."""
        return joined([f"{self.here(f)} {said(f)}" for f in self.findings], separator)

    def stops(self, advice: str) -> str:
        """What to do, where the findings stop a run."""
        return advice if self.first.severity == ERROR else ""

    def most(self, advice: str) -> str:
        allowed = f"or start the run with {self.wording.option('accept_units')}"
        return self.stops(f" Most of its columns differ so: {advice}, {allowed}")


def _text_sentence(group: _Group) -> str:
    if isinstance(group.name, str):
        return words_of(group.columns[group.first.silo].doubt(group.first.column), group.wording)
    why = "others have numbers there" if group.number else "only numbers can be clustered"
    return (
        f"has cells that are no numbers in {group.listed}, but {why}: convert them to numbers, omit "
        f"them{group.wording.way('drop')}, or give all silos a schema"
    )


def _spelling_sentence(group: _Group) -> str:
    def there(f: Finding) -> str:
        return f" for {_called(group.columns, f.other, f.place)}" if f.other in group.columns else ""

    shown = joined([group.here(f) + there(f) for f in group.findings])
    return f"spells names differently (case, blanks or punctuation): {shown}"


def _order_sentence(group: _Group) -> str:
    places = group.each(lambda f: f"is column {f.column}, there {f.place}", "; ")
    effect = "a federation uses columns as they are, so give all silos the same order"
    if group.first.severity == NOTE:
        effect = "a run on files reorders them, a federation does not"
    return f"has its columns in another order than the others ({places}): {effect}"


def _unit_sentence(group: _Group) -> str:
    unit, number = unit_of(group.number, group.here(group.first)), group.number
    turned = number < 0 if unit.shift and unit.factor == 1 else number < 1
    there, here = (unit.here, unit.there) if turned else (unit.there, unit.here)
    guess = f"{group.listed}: {here} for {there}{f' ({unit.of})' if unit.of else ''}?"
    if unit.factor == -1:
        said = f"of the same magnitude as the others but of the other sign in {group.listed}"
    elif unit.shift:
        said = f"like the others' in another unit in {guess}"
    else:
        said = f"{_times(1 / unit.factor if turned else unit.factor)} the others' in {guess}"
    return f"has values {said}{group.most(f'multiply them by {1 / bounded(number):.4g}')}"


# What a comparison can find. The position here is the number of a code on the wire.
SENTENCES: dict[str, Callable[[_Group], str]] = {
    "form": lambda g: f"is {FORMS[int(g.number)]}, unlike the others ({FORMS[g.first.place]}): save all in one form",
    "few rows": lambda g: f"has {g.number:.0f} row{'s' if g.number != 1 else ''}, but needs at least {g.first.place}",
    "lacks": lambda g: (
        f"lacks {g.there}, which others have" if g.first.other in g.columns else f"lacks {g.there} of the others"
    ),
    "extra": lambda g: (
        f"has {g.listed}, which {'no other silo has' if g.number == 1 else f'only {g.number:.0f} silos have'}"
    ),
    "spelling": _spelling_sentence,
    "no name": lambda g: words_of(Finding.of_column("no name", ""), g.wording),
    "text": _text_sentence,
    "empty": lambda g: f"has no value at all in {g.listed}{g.stops(': omit the column everywhere')}",
    "missing": lambda g: f"has missing values in {g.counted}{g.stops(': fill them, or omit those rows or columns')}",
    "infinite": lambda g: f"has values that are infinite or above {LIMIT:.0e} in {g.counted}: replace them",
    "order": _order_sentence,
    "unit": _unit_sentence,
    "scale": lambda g: (
        f"has values of another magnitude than the others in {g.each(lambda f: f'({_times(f.number)})')}: another unit?"
        + g.most("bring them to the units of the others")
    ),
    "shift": lambda g: (
        f"has values many standard deviations from the others' in {g.each(_side)}: another unit or scale?"
    ),
    "standardised": lambda g: (
        f"has {g.listed} with mean 0 and standard deviation 1 "
        f"{'here but not elsewhere' if g.number > 0 else 'elsewhere but not here'}: were they standardised only there?"
    ),
    "coding": lambda g: (
        f"has two values in {g.listed}, {abs(g.number):.0f} {'higher' if g.number > 0 else 'lower'} than the two "
        f"of the others: perhaps {'1 and 2 for 0 and 1' if g.number > 0 else '0 and 1 for 1 and 2'}?"
    ),
    "negatives": lambda g: (
        f"has values below 0 in {g.counted}, but the others have none: codes for missing values, or another sign?"
    ),
    "constant": lambda g: (
        f"has the same value in all rows of {'every silo' if g.number else 'this silo'} in {g.listed}, which "
        "cannot help there"
    ),
    "levels": lambda g: (
        f"has other levels in {g.listed}, or takes it for something else: give all silos the same schema"
    ),
    "identifier": lambda g: (
        f"has {g.listed}, which seem{'s' if len(g.findings) == 1 else ''} to name rows: name it as "
        f"{g.wording.option('id_column')}, omit it{g.wording.way('drop')}, or say in a schema that it is a number"
    ),
    "dominant": lambda g: words_of(Finding.of_column("dominant", g.name, share=g.number), g.wording),
}
CODES = tuple(SENTENCES)


def explain(
    findings: Iterable[Finding],
    silo: str,
    columns: Mapping[str, Columns] | None = None,
    severity: str | None = None,
    wording: Wording = PARAMETERS,
) -> list[str]:
    """The findings about one silo as sentences without a subject, in the order of `findings`.

    Parameters
    ----------
    findings : iterable of Finding
        About any silos.
    silo : str
        The silo.
    columns : mapping of silo to its Columns, optional
        Those that are available, for names. Other columns are named by their position, counted from 0.
    severity : {"error", "note"}, optional
        Omit findings of the other severity.
    wording : Wording
        For whom.

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
    known, groups = columns or {}, dict[Hashable, list[Finding]]()
    for f in findings:
        if f.silo == silo and severity in (None, f.severity):
            groups.setdefault((f.severity, f.code, _in_common(f, known)), []).append(f)
    return [SENTENCES[group[0].code](_Group(group, known, wording)) for group in groups.values()]


def _in_common(finding: Finding, columns: Mapping[str, Columns]) -> Hashable:
    """What findings of one code have in common that make one sentence."""
    if finding.code in ("missing", "infinite", "negatives", "scale", "shift"):  # of each column its own number
        return None
    number, name = finding.number, _name(columns, finding.silo, finding.column)
    if finding.code == "text":
        return name if isinstance(name, str) else bool(number)
    return (number, unit_of(number, called(name))) if finding.code == "unit" else number


def _name(columns: Mapping[str, Columns], silo: str, place: int) -> str | int:
    names = columns[silo].names if silo in columns else None
    return place if names is None else names[place]


def _called(columns: Mapping[str, Columns], silo: str, place: int) -> str:
    return called(_name(columns, silo, place))


def unit_of(number: float, name: str) -> Unit:
    """The unit of a finding: among those whose factors are much alike, the one that the column is named after."""
    unit = nearest_unit(number)
    if unit.shift or number <= 0:
        return unit
    words = re.findall(r"[^\W\d_]+", name.casefold())
    near = {u: abs(abs(math.log(number)) - math.log(u.factor)) for u in NAMED if u.factor > 1 and not u.shift}
    known = [u for u, off in near.items() if off < ALIKE and any(word.startswith(u.names) for word in words)]
    return min(known, default=unit, key=lambda unit: near[unit])


def _times(number: float) -> str:
    large = max(number, 1 / bounded(number))
    shown = f"{large:.3g}" if large < 100 else f"{large:,.0f}"
    return f"about {shown} times" if number >= 1 else f"about 1/{shown} of"


def _side(finding: Finding) -> str:
    return f"({abs(finding.number):.0f} {'above' if finding.number > 0 else 'below'})"


__all__ = ["done_with", "explain", "questions_about", "words_of"]
