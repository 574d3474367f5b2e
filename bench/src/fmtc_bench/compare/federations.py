"""The federations of the comparisons: those the method was developed on, and those kept for one look at the end.

A data set counts as development as soon as anybody fitted a method on it, under whatever client or class. There were
two comparisons: what was looked at in the first is development for the second. Test sets were loaded and counted before
the run, and never clustered. Of the second, a forest was asked whether columns determine the classes, see
``bench/benchmarks/worthwhile.py``. Sets with natural silos are one federation; the rows of others are dealt in three
ways, in two where there are only two classes and none can be missing.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from ..datasets.catalogue import text_beside


@dataclass(frozen=True)
class TestSet:
    """A data set nobody had fitted before its comparison."""

    name: str  # as `fmtc_bench.datasets.load` reads it
    kind: str  # tables, sensors, cells, speech, pictures or text
    n_classes: int
    origin: str  # where the rows come from, in one line
    natural: bool = False  # silos of the source; otherwise rows are dealt
    comparison: int = 1  # the one it was kept for

    __test__ = False  # not for pytest

    @property
    def federations(self) -> tuple[str, ...]:
        """Names as `fmtc_bench.compare.protocol.dataset` reads them."""
        if self.natural:
            return (self.name,)
        ways = ("even", "skewed", "missing") if self.n_classes > 2 else ("even", "skewed")
        return tuple(f"{self.name}?dealing={way}" for way in ways)


FACTS = tomllib.loads(text_beside(__package__, "federations.toml"))
FIRST_SETS, TEST_SETS = (
    tuple(TestSet(name, comparison=place, **about) for name, about in FACTS[key].items())
    for place, key in ((1, "first"), (2, "second"))
)

FIRST = tuple(name for found in FIRST_SETS for name in found.federations)
TEST = tuple(name for found in TEST_SETS for name in found.federations)
KIND = {found.name: found.kind for found in TEST_SETS}
HELD_OUT = frozenset(KIND)  # nobody but the comparison may fit them


def title(name: str) -> str:
    """A federation or a data set in words.

    Examples
    --------
    >>> from fmtc_bench.compare.federations import title
    >>> title("olive_oils?dealing=skewed,rows=300"), title("hawks")
    ('olive oils, skewed', 'hawks')
    """
    base, _, options = name.partition("?")
    words = base.replace("_", " ")
    dealing = next((part.removeprefix("dealing=") for part in options.split(",") if part.startswith("dealing=")), "")
    return f"{words}, {dealing}" if dealing else words


DEVELOPMENT = {name: why for why, names in FACTS["development"].items() for name in names} | {
    found.name: "test set of the first comparison" for found in FIRST_SETS
}  # why each counts
