"""Phases of every method: `survey` and `verdict` before a run, `end` after it.

survey   each client describes its columns, before any training, so that differences are found first
verdict  each client learns how its columns differ from those of the others
end      the run is over, and how it ended
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..describe.atlas import FLAGS
from ..privacy.protection import Protection
from ..tables.catalogue import CODES
from ..tables.findings import LIMIT, WIDTH, Kind
from .base import Array, Content, Nothing, Phase, array, number

# --------------------------------------------------------------------------------------------------------------- survey


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

    class Answer(Content):
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


# -------------------------------------------------------------------------------------------------------------- verdict


def _are_findings(found: Any, sizes: Mapping[str, int]) -> str | None:
    code, column, place = found[:, 0], found[:, 2], found[:, 3]
    right = np.isin(code, range(len(CODES))) & np.isin(column, range(-1, sizes["D"])) & (place >= -1)
    return None if right.all() else f"are not about {sizes['D']} columns"


class Verdict(Phase):
    """Findings about one client, as numbers; it puts them into words with its own column names."""

    name = "verdict"
    doing = "reading what was found about its columns"
    subject = "table"

    class Ask(Content):
        """Findings about this client."""

        findings: Array = array(
            f"f {WIDTH}", "how this silo's columns differ from the others': a code, whether it stops a run, the "
            "column's place here and there, a number",
            "Where its columns stand at the others, which it lacks, and by which factor the others' values differ from "
            "its own.", check=_are_findings,
        )  # fmt: skip

    def reply(self, table: Any, ask: Ask, settings: Any, round_no: int) -> tuple[Any, Nothing]:
        """Keep the findings for the person at the client."""
        table.hear(ask.findings, settings)
        return table, Nothing()


VERDICT = Verdict()


# ------------------------------------------------------------------------------------------------------------------ end


WHEN = "where the server has compared the silos' clusters"


LACKS = len(FLAGS)  # in place of the number of a flag: the silo lacks the concept


def told(atlas: Mapping[str, Any] | None, client: str, held: Collection[str] = ()) -> dict[str, Any]:
    """What `end` says to one silo: cosines and flags of its clusters, as the atlas has them, and whether it is held."""
    clusters = [] if atlas is None else atlas["clusters"]
    if client in held:
        return {"held": True}
    if not any(client in one["flags"] for one in clusters):
        return {}
    flags = [FLAGS.index(one["flags"][client]) if client in one["flags"] else LACKS for one in clusters]
    cosine = [one["cosine"].get(client, 0.0) for one in clusters]
    return {"cosine": np.array(cosine, dtype=np.float64), "flags": np.array(flags, dtype=np.uint8)}


def heard(cosine: Array | None, flags: Array | None) -> dict[str, list[Any]] | None:
    """What a silo keeps of `told`, in what JSON knows; None where it was told nothing."""
    if cosine is None or flags is None:
        return None
    return {"cosine": cosine.tolist(), "flags": ["" if code >= LACKS else FLAGS[code] for code in flags.tolist()]}


class End(Phase):
    """The last message of a run."""

    name = "end"
    doing = "ending the run"
    subject = "run"

    class Ask(Content):
        """How the run ended."""

        converged: bool = number("whether the residuals fell below the tolerance", "Nothing else.", kind="flag")
        cosine: Array | None = array(
            "K", "how alike the silo's clusters are to the same clusters elsewhere, as a cosine",
            "Whether other silos have what this one has.", when=WHEN,
        )  # fmt: skip
        flags: Array | None = array(
            "K", "0 matched, 1 unsure, 2 unique to this silo, 3 a cluster that it lacks", "As `cosine`.",
            kind="uint8", when=WHEN,
        )  # fmt: skip
        held: bool | None = number(
            "that the server has capped this silo, set it aside or refused an answer of it",
            "That it is unlike the others.", kind="flag", when="where it has",
        )  # fmt: skip

    def reply(self, run: Any, ask: Ask, settings: Any, round_no: int) -> tuple[Any, Nothing]:
        """Note that the run is over."""
        run.end(ask.converged, heard(ask.cosine, ask.flags), bool(ask.held))
        return run, Nothing()


END = End()
