"""What is run for the paper's tables, figures and ablations, and its rows in a compact form."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..datasets import SOURCES
from ..datasets.base import find
from ..errors import FileError
from ..estimator import FMTC
from ..settings import Solver
from . import paper
from .grid import Cell, cells
from .methods import METHODS
from .summary import PARTS as HALVES
from .summary import SCORES

Row = Mapping[str, Any]

PARTS = ("tables", "figures", "ablations")
DATASETS = (*paper.DATASETS, "bbcsport", "orl", "yaleb", "utd_mhad", "digits")
TEN = tuple(name for name, method in METHODS.items() if method.group != "control")
COMPARED = (*TEN, "kmeans")  # FMTC and every method that might be better
TRIED = ("webkb4", "bbcnews", "reuters", "yale", "digits", "utd_mhad")  # where ablations are run
CONVERGENCE = ("webkb4", "20newsgroups", "reuters")
SENSITIVITY = ("webkb4", "20newsgroups")
CLOUDS = ("webkb4", "20newsgroups", "reuters", "utd_mhad")  # the paper's last one is Keck
ROUNDS = (1, 2, 3, 5, 8, 12, 20, 30, 50)
ALPHAS, BETAS = (0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.05, 0.15, 0.4, 0.8)

SETTINGS: dict[str, tuple[Any, ...]] = {  # one by one, all else as in the default
    "align": (False, True),
    "coupling": ("tensor", "subspace", "average"),
    "schatten_p": (1.0, 0.8, 0.5, 0.3),
    "beta": (0, 0.05, 0.15, 0.4),
    "labels_from": ("projection", "embedding"),
    "final": ("mixture", "kmeans"),
    "nonmutual_weight": (1.0, 0.5, 0.25, 0.1),
    "n_neighbors": (5, 10, 20, 40),
    "max_iter": (5, 10, 15, 25, 50),
    "accelerate": (True, False),
}
FORMS: dict[str, tuple[int, ...]] = {  # of the data
    "order": (1, 2, 3, 4, 5),
    "n_clients": (2, 4, 8, 12),
    "rows": (50, 100, 200),
}


# ---------------------------------------------------------------------------------------------------- what is run


def here(names: Iterable[str]) -> list[str]:
    """Those of the data sets that are on this machine."""
    return [name for name in names if find(SOURCES[name]) is not None]


def fmtc_with(**setting: Any) -> str:
    """Name of FMTC with this setting: ``"fmtc"`` itself where that is its default.

    Examples
    --------
    >>> from fmtc.bench.evidence import fmtc_with
    >>> fmtc_with(align=False), fmtc_with(align=True)
    ('fmtc/align=False', 'fmtc')
    """
    default = _defaults()
    other = {name: value for name, value in setting.items() if default[name] != value}
    return "/".join(["fmtc", *([",".join(f"{name}={value}" for name, value in other.items())] if other else [])])


def _defaults() -> dict[str, Any]:
    """Settings of FMTC and of its solver, by name."""
    return FMTC().get_params() | Solver().get_params()


def at_round(r: int) -> str:
    """FMTC stopped after r rounds, converged or not."""
    return f"fmtc/max_iter={r},tol=0"


def ablations(dataset: str) -> Iterator[tuple[str, str, str, str]]:
    """What is varied, its value, the data set and the method of each ablation on a data set; the default among them."""
    default = _defaults()
    for what, values in SETTINGS.items():
        for value in dict.fromkeys((*values, default[what])):
            yield what, str(value), dataset, fmtc_with(**{what: value})
    for what, values in FORMS.items():
        if what != "n_clients" or "n_clients" in SOURCES[dataset].options:
            for value in values:
                yield what, str(value), f"{dataset}?{what}={value}", "fmtc"


def plan(part: str, *, splits: int, trials: int = 0) -> list[Cell]:
    """All cells of a part on the data sets that are here; those with the same rows stand together.

    Parameters
    ----------
    part : {"tables", "figures", "ablations", "all"}
    splits : int
    trials : int
        Settings for the oracle of the tables, for FMTC and the methods of the paper.

    Returns
    -------
    list of Cell
    """
    ways = range(splits)
    found: dict[Cell, None] = {}
    if part in ("tables", "all"):
        sets = here(DATASETS)
        found |= dict.fromkeys(cells(sets, METHODS, splits=ways))
        found |= dict.fromkeys(cells(sets, TEN, splits=ways, trials=trials))
    if part in ("figures", "all"):
        found |= dict.fromkeys(cells(here(CONVERGENCE), map(at_round, ROUNDS), splits=ways))
        grid = [fmtc_with(alpha=alpha, beta=beta) for alpha in ALPHAS for beta in BETAS]
        found |= dict.fromkeys(cells(here(SENSITIVITY), grid, splits=ways))
    if part in ("ablations", "all"):
        for name in here(TRIED):
            for _, _, data, method in ablations(name):
                found |= dict.fromkeys(cells([data], ["fmtc", method], splits=ways))
    if part not in (*PARTS, "all"):
        raise ValueError(f"part must be one of {', '.join(PARTS)} or all, got {part!r}")
    places = {(cell.dataset, cell.split): None for cell in found}
    order = {place: i for i, place in enumerate(places)}
    return sorted(found, key=lambda cell: order[cell.dataset, cell.split])


# ------------------------------------------------------------------------------------------------- rows, compactly


ABOUT = ("dataset", "method", "trial", "split", "seed", "status")
COSTS = ("seconds", "peak_mb", "bytes_up", "bytes_down", "rounds")
SCORED = tuple(f"{score}_{name}" for name in HALVES.values() for score in SCORES)
COLUMNS = (*ABOUT, *SCORED, "acc_frozen", "ri_one_cluster", *COSTS)


def compact(rows: Iterable[Row]) -> str:
    """Rows of `run_cells` as CSV, a line each: means over clients and what it took; sorted, small enough to keep."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=_place):
        line = {name: row[name] for name in ABOUT}
        if row["status"] == "ok":
            for part, name in HALVES.items():
                line |= {f"{score}_{name}": f"{row[part]['mean'][score]:.5f}" for score in SCORES}
            line |= {
                "acc_frozen": f"{row['test']['acc_frozen']:.5f}",
                "ri_one_cluster": f"{row['train']['mean']['ri_one_cluster']:.5f}",
                "seconds": f"{row['seconds_fit']:.2f}",
                "peak_mb": round(row["peak_memory"] / 1e6),
                **{name: row[name] for name in ("bytes_up", "bytes_down", "rounds")},
            }
        writer.writerow(line)
    return file.getvalue()


def _place(row: Row) -> tuple[Any, ...]:
    return row["dataset"], row["method"], row["trial"].zfill(3), row["split"], row["seed"]


def read_compact(path: Path) -> list[dict[str, Any]]:
    """Undo `compact`, as far as `summarise` needs it.

    Parameters
    ----------
    path : Path
        A file ``rows.csv``.

    Returns
    -------
    list of dict
        As of `run_cells`, with the mean over clients only.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise FileError(f"{path} has other columns than rows of results; write it again from the stored cells")
        return [_opened(line) for line in reader]


def _opened(line: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {**line, "split": int(line["split"]), "seed": int(line["seed"])}
    if row["status"] == "ok":
        for part, name in HALVES.items():
            row[part] = {"mean": {score: float(line[f"{score}_{name}"]) for score in SCORES}}
        row["test"]["acc_frozen"] = float(line["acc_frozen"])
        row["train"]["mean"]["ri_one_cluster"] = float(line["ri_one_cluster"])
        row["seconds_fit"] = float(line["seconds"])
    return row
