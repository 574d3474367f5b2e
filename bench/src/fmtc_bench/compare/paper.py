"""The numbers printed in the paper, as data to compare with, and arithmetic on them.

In-sample and out-of-sample scores are kept as whole hundredths of a percent, exactly as printed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping

from ..datasets.catalogue import text_beside

FACTS = tomllib.loads(text_beside(__package__, "paper.toml"))
SCORES = ("acc", "nmi", "ri")
CLASS_SIZES: dict[str, list[int]] = FACTS["class_sizes"]
GAINS: dict[str, int] = FACTS["gains"]

Printed = Mapping[tuple[str, str, str], int]  # (data set, method, score) to hundredths of a percent


def _read(table: str) -> Iterator[tuple[tuple[str, str, str], list[int]]]:
    score, methods = "", []
    for line in table.strip().splitlines():
        name, *values = line.split()
        if name in SCORES:
            score, methods = name, values
        else:
            for method, value in zip(methods, values, strict=True):
                yield (name, method, score), [int(number.replace(".", "")) for number in value.split("/")]


IN_SAMPLE: Printed = {cell: value for cell, (value,) in _read(FACTS["tables"]["1"])}
AGAIN: Printed = {cell: pair[0] for cell, pair in _read(FACTS["tables"]["2"])}  # as Table 2 repeats them
OUT_OF_SAMPLE: Printed = {cell: pair[1] for cell, pair in _read(FACTS["tables"]["2"])}
DATASETS = tuple(dict.fromkeys(name for name, _, _ in IN_SAMPLE))
METHODS = tuple(dict.fromkeys(name for _, name, _ in IN_SAMPLE))


def printed(dataset: str, method: str, score: str, part: str = "in") -> float | None:
    """A number of the paper between 0 and 1, or None where it has none.

    Parameters
    ----------
    dataset, method : str
        By our names.
    score : {"acc", "nmi", "ri"}
    part : {"in", "out"}
        Table 1, or the held-out column of Table 2.

    Examples
    --------
    >>> from fmtc_bench.compare.paper import printed
    >>> printed("webkb4", "fmtc", "acc"), printed("webkb4", "fmtc", "acc", "out"), printed("digits", "fmtc", "acc")
    (0.7811, 0.6467, None)
    """
    value = (IN_SAMPLE if part == "in" else OUT_OF_SAMPLE).get((dataset, method, score))
    return None if value is None else value / 10_000
