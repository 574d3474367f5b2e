"""How options of reading are called where a message is read: in Python, on the command line, or beside a data frame."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_FLAGS = {
    "as_types": "--as", "missing_codes": "--missing-code", "header": "--no-header", "silo_column": "--silo-column",
}  # fmt: skip


class Wording:
    """For readers of Python: options are arguments of `fmtc.tables.Reading`, in backticks.

    Examples
    --------
    >>> from fmtc.wording import ARRAYS, FLAGS, FRAMES, PARAMETERS
    >>> [wording.way("drop", "bp", column="bp") for wording in (PARAMETERS, FLAGS, FRAMES, ARRAYS)]
    [' (`drop` bp)', ' (--drop bp)', " (X.drop(columns='bp'))", '']
    >>> [wording.as_missing([-999, "<5"]) for wording in (FLAGS, FRAMES)]
    ["(--missing-code -999 --missing-code '<5')", "(X.replace([-999.0, '<5'], float('nan')))"]
    """

    of_files = True  # whether rows are of files, whose columns can be declared to be features

    def option(self, name: str) -> str:
        """Name of an option."""
        return "`header`=False" if name == "header" else f"`{name}`"

    def way(self, option: str, *values: str, column: str = "") -> str:
        """How to do something about a column, in parentheses after a blank; empty if there is no short way.

        Parameters
        ----------
        option : str
        *values : str
            Each is given with the option.
        column : str
            The column, for those who name no options.
        """
        given = [f"{self.option(option)} {shlex.quote(value)}" for value in values]
        return f" ({' '.join(given or [self.option(option)])})"

    def as_missing(self, codes: Iterable[str | float]) -> str:
        """How to count codes as missing, in parentheses."""
        return self.way("missing_codes", *map(_text, codes)).strip()

    def counted(self, codes: Iterable[str | float]) -> str:
        """What to do about codes of missing values."""
        return f"count them as missing {self.as_missing(codes)}"

    def listed(self, codes: str) -> str:
        """What to do about codes of missing values that are measurements elsewhere."""
        return (
            f"write {codes} into a schema (fmtc check FILES --write-schema schema.toml) and use it{self.way('schema')}"
        )


class Flags(Wording):
    """For the command line."""

    def option(self, name: str) -> str:
        """Name of a flag."""
        return _FLAGS.get(name, "--" + name.replace("_", "-"))


class Frames(Wording):
    """For data frames that are given to `fit`."""

    of_files = False

    def way(self, option: str, *values: str, column: str = "") -> str:
        """What to do in Python."""
        kind = values[0].partition(":")[0] if values else ""
        ways = {
            "scale": f'scale="{kind}"',
            "drop": f"X.drop(columns={column!r})",
            "label_column": f"X.drop(columns={column!r})",
            "silo_column": f"silos={column!r}",
            "text_column": "fmtc.tables.hashed_counts",
            "number": f"pandas.to_numeric(X[{column!r}], errors='coerce')",
            "category": f"X[{column!r}].astype('category')",
        }
        return f" ({ways[kind if option == 'as_types' else option]})"

    def as_missing(self, codes: Iterable[str | float]) -> str:
        """How to count codes as missing, in parentheses."""
        return f"(X.replace({[_value(code) for code in codes]}, float('nan')))"

    def listed(self, codes: str) -> str:
        """What to do about codes of missing values that are measurements elsewhere."""
        return "replace them by NaN"


class Arrays(Frames):
    """For arrays that are given to `fit`."""

    def way(self, option: str, *values: str, column: str = "") -> str:
        """What to do in Python; without names of columns, there is little."""
        return super().way(option, *values) if option == "scale" else ""

    def counted(self, codes: Iterable[str | float]) -> str:
        """What to do about codes of missing values."""
        return "replace them by NaN"


def _text(code: str | float) -> str:
    return code if isinstance(code, str) else f"{code:g}"


def _value(code: str | float) -> str | float:
    return float(code) if re.fullmatch(r"-?\d+(\.\d+)?", str(code)) else code


PARAMETERS, FLAGS, FRAMES, ARRAYS = Wording(), Flags(), Frames(), Arrays()

__all__ = ["ARRAYS", "FLAGS", "FRAMES", "PARAMETERS", "Wording"]
