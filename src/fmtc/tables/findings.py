"""What can be found about columns and rows, and the units that columns may be in; `catalogue` has the sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

ERROR, NOTE = "error", "note"
IDENTIFIER, CONSTANT, UNCLEAR = "identifier", "constant", "unclear"  # what columns are, besides numbers and categories
SMALLEST = 10  # no sum over fewer values than this leaves a silo
LIMIT = 1e148  # larger values cannot be squared and summed


class Kind(IntEnum):
    """What a column can hold, as it is sent."""

    NUMBERS = 0
    TEXT = 1
    NOTHING = 2
    OTHER = 3
    SPARSE = 4  # numbers of a sparse matrix
    NAMELESS = 5
    CATEGORY = 6  # codes of its levels
    IDENTIFIERS = 7


WIDTH = 5  # numbers in a finding on the wire: code, whether an error, column, place, number


@dataclass(frozen=True)
class Finding:
    """One finding. An error would stop a run or make it meaningless; a note would not.

    Parameters
    ----------
    silo : str
        The silo that it is about; empty for all.
    code : str
        One of `catalogue.CODES`, of a comparison of silos, or of `catalogue.DOUBTS`.
    severity : {"error", "note"}
        Of a comparison.
    column : int or str
        A position in the silo's table or, where it is known, a name; -1 if the finding is not about a single column.
    other, place
        A silo it was compared with, and the position of the column there.
    number : float
        Its meaning depends on the code: how many values are missing, the ratio of the values to those of the others,
        and so on.
    facts : mapping
        What else its sentence is made of; never sent.

    Examples
    --------
    >>> from fmtc.tables import Finding, explain
    >>> found = Finding("north", "unit", "note", column=2, number=2.54)
    >>> explain([found], "north")
    ["has values about 2.54 times the others' in column 2: centimetres for inches?"]
    """

    silo: str
    code: str
    severity: str
    column: Any = -1
    other: str = ""
    place: int = -1
    number: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_column(cls, code: str, column: int | str, **facts: Any) -> Finding:
        """What is odd about a column or a value of it, in whatever silo."""
        return cls("", code, NOTE, column, facts=facts)

    def to_dict(self) -> dict[str, Any]:
        """What is sent and printed."""
        return {name: value for name, value in asdict(self).items() if name != "facts"}


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
ALIKE = 0.35  # distance of the logarithms of two factors that silos may make up for


def fold_of(finding: Finding) -> float:
    """Factor, at least 1, between the values of a silo and those of the others; 1 where the finding is no factor."""
    if finding.code == "unit":
        return abs(nearest_unit(finding.number).factor)
    return max(finding.number, 1 / bounded(finding.number)) if finding.code == "scale" else 1.0


def nearest_unit(number: float) -> Unit:
    """The unit whose finding has the nearest number."""
    return min(UNITS, key=lambda unit: min(abs(np.subtract(unit.numbers, number))))


def bounded(number: float) -> float:
    """The number, limited in magnitude so that its inverse is finite."""
    return math.copysign(min(max(abs(number), 1e-99), 1e99), number)


__all__ = ["Finding", "Unit", "bounded", "fold_of"]
