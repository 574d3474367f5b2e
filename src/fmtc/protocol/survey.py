"""Phase `survey`: each client describes its columns, before any training, so that differences are found first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..privacy.protection import Protection
from ..tables.findings import LIMIT, Kind
from .base import Array, Nothing, Phase, array, number

IN_THE_CLEAR = "without `privacy`"


def _different(hashes: Any, sizes: Mapping[str, int]) -> str | None:
    if not len(hashes):
        return "names no column"
    return None if len(np.unique(hashes)) == len(hashes) else "holds a hash twice"


def _between(low: float, high: float) -> Any:
    def check(value: Any, sizes: Mapping[str, int]) -> str | None:
        return None if ((low <= value) & (value <= high)).all() else "is out of range"

    return check


class Survey(Phase):
    """What a client's columns are like; answered before the rows are checked for a run."""

    name = "survey"
    doing = "describing its columns"
    protect = Protection("Counts and sums of whole columns, before any training.")
    subject = "table"
    pure = True

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        """Columns of one client; of a column with fewer than ten values only the counts are given."""

        n_samples: int | None = number("number of rows", "Exactly that.", kind="count", when=IN_THE_CLEAR)
        columns: Array = array(
            "D", "64 bits of a salted hash of each column's name, of a category with its levels (of its place, where "
            "there are no names)",
            "Which columns two silos both have. Whoever has the salt can try names until one fits; the coordinator "
            "does not have it, as long as no silo hands it on.", kind="uint64", check=_different,
        )  # fmt: skip
        aliases: Array | None = array(
            "D", "the same of the name without capitals, blanks and signs", "Which names differ in spelling only.",
            kind="uint64", when="where columns have names",
        )  # fmt: skip
        kinds: Array = array(
            "D", "whether a column holds numbers, categories, identifiers, text, nothing or something else",
            "Exactly that.", kind="int8", check=_between(0, len(Kind) - 1),
        )  # fmt: skip
        counts: Array | None = array(
            "D", "how many values are present", "Exactly that.", kind="int64", check=_between(0, np.inf),
            when=IN_THE_CLEAR,
        )  # fmt: skip
        missing: Array | None = array(
            "D", "how many values are missing", "Exactly that; the rest of `n_samples` is infinite or huge.",
            kind="int64", check=_between(0, np.inf), when=IN_THE_CLEAR,
        )  # fmt: skip
        negatives: Array | None = array(
            "D", "how many values are below 0", "Exactly that.", kind="int64", check=_between(0, np.inf),
            when=IN_THE_CLEAR,
        )  # fmt: skip
        means: Array | None = array(
            "D", "column means", "Exactly that; for 0 and 1 the share of ones, for a constant column its value. "
            "Two surveys that differ by one row give that row.", kind="float64", check=_between(-LIMIT, LIMIT),
            when=IN_THE_CLEAR,
        )  # fmt: skip
        squares: Array | None = array(
            "D", "for each column, the sum of squared deviations from its mean",
            "The spread of each column; see [Survey](#survey).", kind="float64", check=_between(0, np.inf),
            when=IN_THE_CLEAR,
        )  # fmt: skip

        def wrong(self) -> str | None:
            """What cannot be true of any columns: counts that do not add up, or some of them without the others."""
            n, counts, missing, negatives, squares = (
                self.n_samples, self.counts, self.missing, self.negatives, self.squares,
            )  # fmt: skip
            if n is None or counts is None or missing is None or negatives is None or squares is None:
                some = any(part is not None for part in (n, counts, missing, negatives, self.means, squares))
                return "some numbers are there, and some are not" if some else None
            for name, value, high in (
                ("counts", counts, n),
                ("missing", missing, n - counts),
                ("negatives", negatives, counts),
                ("squares", squares, 4 * LIMIT**2 * np.maximum(counts, 1)),
            ):
                if not np.all(value <= high):
                    return f"{name} is out of range"
            return None

    def reply(self, table: Any, ask: Nothing, settings: Any, round_no: int) -> tuple[Any, Answer]:
        """Describe the columns of the client's file."""
        return table, self.Answer(**table.survey(settings))


SURVEY = Survey()
