"""The first thing a newcomer runs: hospitals with a table each, what their patients share, what joining changed.

`hospitals` deals scikit-learn's breast cancer data to four hospitals. The dealing is ours: sizes, mixes and empty cells
were written down before any gain was seen, and changed once since (the smallest hospital got 60 patients instead of 49,
because gains are told from ten held-out rows a fold on).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.datasets import load_breast_cancer

from .describe import Explanation
from .describe.words import listing
from .errors import InputError, nearest_names
from .schema import Schema

Array = np.ndarray

DEALT = {"university": (125, 125), "city": (124, 41), "county": (66, 28), "island": (42, 18)}  # benign, malignant
EMPTIED = 0.1  # share of the cells that are removed, at random
LITTLE = 3  # a change of fewer percentage points is called none
LATER = 10  # patients that the example's last table holds back


@dataclass(frozen=True)
class Story:
    """Tables of hospitals, and what a reader has to know about them.

    Parameters
    ----------
    about : str
        What the rows are, in a sentence or two.
    tables : dict of str to polars.DataFrame
        Of each hospital, with a column `patient` that names the row.
    label_column : str
        What is known about each patient, for scoring only.
    n_clusters : int
    schema : Schema, optional
        Types, levels and units, where they are known.
    """

    about: str
    tables: dict[str, pl.DataFrame]
    label_column: str
    n_clusters: int
    schema: Schema | None = None


def hospitals(random_state: int = 0) -> dict[str, pl.DataFrame]:
    """Tables of four hospitals that differ in size and mix: scikit-learn's breast cancer data, a tenth of it removed.

    Parameters
    ----------
    random_state : int
        Deals the rows, and chooses the cells that are removed.

    Returns
    -------
    dict of str to polars.DataFrame
        30 measurements of the nuclei of cells from a needle biopsy, `patient`, and the `diagnosis`.

    Examples
    --------
    >>> from fmtc.demo import hospitals
    >>> {name: table.shape for name, table in hospitals().items()}
    {'university': (250, 32), 'city': (165, 32), 'county': (94, 32), 'island': (60, 32)}
    """
    source = load_breast_cancer()
    rng = np.random.default_rng(random_state)
    X = np.where(rng.random(source.data.shape) < EMPTIED, np.nan, source.data)
    names = [str(name).replace(" ", "_") for name in source.feature_names]
    benign, malignant = (rng.permutation(np.flatnonzero(source.target == code)) for code in (1, 0))
    tables, b, m = {}, 0, 0
    for hospital, (some, others) in DEALT.items():
        rows = rng.permutation(np.concatenate([benign[b : b + some], malignant[m : m + others]]))
        b, m = b + some, m + others
        patients = pl.Series("patient", [f"{hospital}-{i + 1:03}" for i in range(len(rows))])
        diagnosis = pl.Series("diagnosis", source.target_names[source.target[rows]].tolist())
        table = pl.DataFrame(X[rows], schema=names).fill_nan(None)
        tables[hospital] = pl.DataFrame([patients, *table, diagnosis])
    return tables


def breast_cancer(random_state: int = 0) -> Story:
    """The story of `hospitals`."""
    return Story(
        "569 women with a lump in the breast; 30 measurements of cell nuclei from a needle biopsy. Real patients "
        "(scikit-learn's breast cancer data). The four hospitals are ours: we dealt the rows out and removed a tenth "
        "of the cells.",
        hospitals(random_state),
        "diagnosis",
        2,
    )


def story_of(name: str, random_state: int = 0) -> Story:
    """The story of this name: `breast_cancer`, or one that an installed package adds (entry points, `fmtc.stories`)."""
    told = {point.name: point for point in entry_points(group="fmtc.stories")}
    if name not in ("breast_cancer", *told):
        raise InputError(f"there is no demo of {name!r}; {nearest_names(name, ('breast_cancer', *told))}")
    tell: Callable[[int], Story] = breast_cancer if name == "breast_cancer" else told[name].load()
    return tell(random_state)


# ------------------------------------------------------------------------------------------------- what joining changed


@dataclass(frozen=True)
class Gain:
    """Share of the held-out patients of a hospital who are grouped with their own diagnosis, by two models."""

    hospital: str
    patients: int
    alone: float
    together: float

    @property
    def change(self) -> float:
        """What joining changed."""
        return self.together - self.alone

    @property
    def points(self) -> int:
        """The same in percentage points, as tables show it: of the numbers that they print."""
        return round(100 * self.together) - round(100 * self.alone)


def gains(report: Mapping[str, Any]) -> list[Gain]:
    """What joining changed, from the report.json of a run with --report; hospitals that are too small are left out."""
    found = {name: line["held_out"] for name, line in report["details"]["silos"].items()}
    return [
        Gain(name, int(line["rows"]), float(line["alone_acc"]), float(line["acc"]))
        for name, line in found.items()
        if line is not None and line["alone_acc"] is not None
    ]


def verdict(lines: Sequence[Gain]) -> str:
    """Who gained by joining, who lost, and for whom it changed little, in a sentence or two."""
    kinds = {
        "Joining helped": [line for line in lines if line.points >= LITTLE],
        "It cost": [line for line in lines if line.points <= -LITTLE],
    }
    said = []
    for opening, some in kinds.items():
        if some:
            each = [
                f"{line.hospital} ({100 * line.alone:.0f} to {100 * line.together:.0f} %)"
                for line in sorted(some, key=lambda line: -abs(line.change))
            ]
            said.append(f"{opening} {listing(each)}.")
    if rest := [line.hospital for line in lines if abs(line.points) < LITTLE]:
        said.append(f"It changed little for {listing(rest)}.")
    return " ".join(said)


def draw_demo(explanation: Explanation, lines: Sequence[Gain], path: Path) -> Path:
    """What the clusters are, each hospital's share of them, and held-out patients alone and together, as one PNG.

    Needs matplotlib.
    """
    from .plot import profiles, shares
    from .plot.figures import _pyplot

    plt = _pyplot()
    with plt.rc_context({"font.size": 10}):
        figure = plt.Figure(figsize=(11, 7.2), layout="constrained", facecolor="white")
        top, bottom = np.ravel(np.asarray(figure.subfigures(2, 1, height_ratios=[1, 1.1])))
        profiles(explanation, ax=top.subplots())
        left, right = bottom.subplots(1, 2)
        shares(explanation, ax=left)
        left.set_title("Share of each hospital's patients", size="medium", loc="left")
        handles, _ = left.get_legend_handles_labels()
        left.legend(handles, [f"cluster {j}" for j in range(len(handles))], frameon=False, ncols=len(handles),
                    loc="upper left", bbox_to_anchor=(0, -0.2))  # fmt: skip
        place = np.arange(len(lines))
        for offset, name, colour in ((-0.2, "alone", "#b8c2cc"), (0.2, "together", "#0b7285")):
            height = [100 * getattr(line, name) for line in lines]
            bars = right.bar(place + offset, height, 0.38, label=name, color=colour)
            right.bar_label(bars, fmt="%.0f", padding=1)
        right.set_xticks(place, [f"{line.hospital}\n{line.patients} patients" for line in lines])
        right.set(ylim=(0, 118), yticks=range(0, 101, 20))
        right.set_title("Held-out patients grouped with their diagnosis, %", size="medium", loc="left")
        right.legend(frameon=False, ncols=2, loc="upper left")
        right.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=130, format="png")
    return path


def example_tables() -> dict[str, pl.DataFrame]:
    """Files to try the command line on: the tables of `hospitals`, ten patients of the largest held back as new.

    Examples
    --------
    >>> from fmtc.demo import example_tables
    >>> for name, table in example_tables().items():
    ...     print(name, table.shape)
    university.csv (240, 32)
    city.csv (165, 32)
    county.csv (94, 32)
    island.csv (60, 32)
    new.csv (10, 31)
    """
    tables = hospitals()
    largest, whole = next(iter(tables.items()))
    tables[largest] = whole[:-LATER]
    found = {f"{hospital}.csv": table for hospital, table in tables.items()}
    return found | {"new.csv": whole[-LATER:].drop("diagnosis")}
