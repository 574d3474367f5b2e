"""What is run: test federations, the paper's tables and figures, ablations; and its rows in a compact form."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from fmtc.artifacts.labels import as_csv
from fmtc.errors import FileError
from fmtc.estimator import FMTC

from ..datasets import SOURCES
from ..datasets.base import find
from . import federations, paper
from .grid import Cell, cells
from .methods import METHODS, TRIALS, defaults_of
from .summary import PARTS as HALVES
from .summary import SCORES

Row = Mapping[str, Any]

PARTS = ("test", "figures", "tables", "ablations", "first", "draws")  # in the order in which they are run
SPLITS = 3
ROWS_OF_A_SILO = 300  # at most, of a test federation
TIME_LIMIT = 120  # seconds of one fit
FEDERATIONS = tuple(f"{name}{',' if '?' in name else '?'}rows={ROWS_OF_A_SILO}" for name in federations.TEST)
FIRST = tuple(f"{name}{',' if '?' in name else '?'}rows={ROWS_OF_A_SILO}" for name in federations.FIRST)
AGAIN = ("fmtc", "fmtc-tensor", "fedkmeans", "kmeans", "gmm", "stsc")  # on the federations of the first comparison
REFERENCES = ("random", "one-cluster")  # what a score is worth; not compared
VARIANTS = tuple(name for name in METHODS if name.startswith("fmtc-") and name != "fmtc-subspace")  # of ours
SIDE = ("sec", "fmtc-subspace")  # questions of development only
RIVALS = tuple(name for name in METHODS if name not in (*REFERENCES, *VARIANTS, *SIDE, "fmtc"))
DRAWN = (
    "fmtc",
    *(name for name in RIVALS if name not in ("anchors-noise", "fed-mtsc") and METHODS[name].group != "pooled"),
)  # twelve draws
DATASETS = (*paper.DATASETS, "bbcsport", "orl", "yaleb", "utd_mhad", "digits")
COMPARED = (*paper.METHODS, "kmeans")  # FMTC, the paper's methods, and the one that a user would try first
TRIED = ("webkb4", "bbcnews", "reuters", "20newsgroups", "yale", "digits", "utd_mhad")  # where ablations are run
CONVERGENCE = ("webkb4", "20newsgroups", "reuters")
SENSITIVITY = ("webkb4", "20newsgroups")
CLOUDS = ("webkb4", "20newsgroups", "reuters", "utd_mhad")  # the paper's last one is Keck
ROUNDS = (1, 2, 3, 5, 8, 12, 20, 30, 50)
ALPHAS, BETAS = (0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.05, 0.15, 0.4, 0.8)

SETTINGS: dict[str, tuple[Any, ...]] = {  # one by one, all else as in the default
    "align": (False, True),
    "coupling": ("auto", "tensor", "subspace", "average"),
    "schatten_p": (1.0, 0.5),
    "beta": (0, 0.05, 0.15, 0.4),
    "labels_from": ("projection", "embedding"),
    "final": ("mixture", "kmeans"),
    "nonmutual_weight": (1.0, 0.5, 0.25),
    "n_neighbors": (5, 10, 20),
    "max_iter": (5, 12, 25, 50),
}
FORMS: dict[str, tuple[int, ...]] = {  # of the data
    "order": (1, 2),
    "n_clients": (2, 4, 8, 12),
    "rows": (50, 100, 200),
}


# ---------------------------------------------------------------------------------------------------- what is run


def here(names: Iterable[str]) -> list[str]:
    """Those of the data sets that are on this machine."""
    return [name for name in names if find(SOURCES[name.partition("?")[0]]) is not None]


def fmtc_with(**setting: Any) -> str:
    """Name of FMTC with this setting: ``"fmtc"`` itself where that is its default.

    Examples
    --------
    >>> from fmtc_bench.compare.evidence import fmtc_with
    >>> fmtc_with(align=False), fmtc_with(align=True)
    ('fmtc/align=False', 'fmtc')
    """
    default = defaults_of(FMTC())
    other = {name: value for name, value in setting.items() if default[name] != value}
    return "/".join(["fmtc", *([",".join(f"{name}={value}" for name, value in other.items())] if other else [])])


def with_tensor(**setting: Any) -> str:
    """FMTC with this setting and the paper's coupling, whatever its rows: what the paper's figures show."""
    return fmtc_with(coupling="tensor", **setting)


def at_round(r: int) -> str:
    """FMTC with the paper's coupling, stopped after r rounds, converged or not."""
    return with_tensor(max_iter=r, tol=0)


def ablations(dataset: str) -> Iterator[tuple[str, str, str, str]]:
    """What is varied, its value, the data set and the method of each ablation on a data set; the default among them."""
    default = defaults_of(FMTC())
    for what, values in SETTINGS.items():
        for value in dict.fromkeys((*values, default[what])):
            yield what, str(value), dataset, fmtc_with(**{what: value})
    for what, values in FORMS.items():
        if what != "n_clients" or "n_clients" in SOURCES[dataset].options:
            for value in values:
                yield what, str(value), f"{dataset}?{what}={value}", "fmtc"


def first_federations() -> list[str]:
    """One test federation of each data set, the even or natural one: where settings are drawn."""
    return list({name.partition("?")[0]: name for name in reversed(FEDERATIONS)}.values())[::-1]


def plan(part: str, *, splits: int = SPLITS, everywhere: bool = False) -> list[Cell]:
    """All cells of a part on the data sets that are here, in the order in which they are run.

    Parameters
    ----------
    part : {"test", "figures", "tables", "ablations", "first", "draws", "all"}
        Test federations with defaults; the paper's figures and its two tables, our ablations and the federations of the
        first comparison, all of them development data; test federations with twelve draws of the settings.
    splits : int
        Draws have one.
    everywhere : bool
        Data sets that are not on this machine, too.

    Returns
    -------
    list of Cell
        Those with the same rows stand together in each part.
    """
    if part not in (*PARTS, "all"):
        raise ValueError(f"part must be one of {', '.join(PARTS)} or all, got {part!r}")
    there = list if everywhere else here
    found: dict[Cell, None] = {}
    for each in PARTS if part == "all" else (part,):
        found |= dict.fromkeys(_together(_cells_of(each, range(splits), there)))
    return list(found)


def _cells_of(part: str, ways: range, there: Callable[[Iterable[str]], list[str]]) -> Iterator[Cell]:
    """Cells of one part."""
    if part == "test":
        yield from cells(there(FEDERATIONS), [name for name in METHODS if name not in SIDE], splits=ways)
    elif part == "draws":
        yield from cells(there(first_federations()), DRAWN, trials=TRIALS)
    elif part == "tables":
        yield from cells(there(DATASETS), METHODS, splits=ways)
    elif part == "first":
        yield from cells(there(FIRST), AGAIN, splits=ways)
    elif part == "figures":
        yield from cells(there(CONVERGENCE), map(at_round, ROUNDS), splits=ways)
        grid = [with_tensor(alpha=alpha, beta=beta) for alpha in ALPHAS for beta in BETAS]
        yield from cells(there(SENSITIVITY), grid, splits=ways)
    else:
        for name in there(TRIED):
            for _, _, data, method in ablations(name):
                yield from cells([data], ["fmtc", method], splits=ways)


def _together(found: Iterable[Cell]) -> list[Cell]:
    """Cells of the same rows beside each other."""
    listed = list(dict.fromkeys(found))
    order = {place: i for i, place in enumerate(dict.fromkeys((cell.dataset, cell.split) for cell in listed))}
    return sorted(listed, key=lambda cell: order[cell.dataset, cell.split])


# ------------------------------------------------------------------------------------------------- rows, compactly


ABOUT = ("dataset", "method", "trial", "split", "seed", "status")
COSTS = ("seconds", "peak_mb", "bytes_up", "bytes_down", "rounds")
SCORED = tuple(f"{score}_{name}" for name in HALVES.values() for score in SCORES)
MADE_BY = ("code", "versions")
COLUMNS = (*ABOUT, *SCORED, "acc_frozen", "ri_one_cluster", *COSTS, *MADE_BY)


def compact(rows: Iterable[Row]) -> str:
    """Rows of `run_cells` as CSV, a line each: means over clients and what it took; sorted, small enough to keep."""
    lines = []
    for row in sorted(rows, key=_place):
        line = {name: row[name] for name in ABOUT} | {"code": row["code"], "versions": _told(row["versions"])}
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
        lines.append({name: None if value in ("", None) else str(value) for name, value in line.items()})
    return as_csv(pl.DataFrame(lines, schema=dict.fromkeys(COLUMNS, pl.String))).decode()


def _told(versions: Mapping[str, Any] | str) -> str:
    """Versions in a few words: fmtc 0.1.0, python 3.11.7, ..."""
    if isinstance(versions, str):
        return versions
    return ", ".join(f"{name} {version}" for name, version in versions.items() if isinstance(version, str))


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
    return [_opened(line) for line in read_lines(path)]


def read_lines(path: Path) -> list[dict[str, str]]:
    """Lines of a ``rows.csv`` as they are written."""
    if not path.is_file():
        raise FileError(f"{path} is not there; `fmtc-bench paper` writes it")
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise FileError(f"{path} has other columns than rows of results; write it again from the stored cells")
        return list(reader)


def _opened(line: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {**line, "split": int(line["split"]), "seed": int(line["seed"])}
    if row["status"] == "ok":
        for part, name in HALVES.items():
            row[part] = {"mean": {score: float(line[f"{score}_{name}"]) for score in SCORES}}
        row["test"]["acc_frozen"] = float(line["acc_frozen"])
        row["train"]["mean"]["ri_one_cluster"] = float(line["ri_one_cluster"])
        row["seconds_fit"] = float(line["seconds"])
    return row
