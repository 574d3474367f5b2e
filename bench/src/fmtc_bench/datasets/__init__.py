"""Data sets as federations: those of the paper, some more, and synthetic ones with known answers.

>>> from fmtc_bench.datasets import load, synthetic
>>> load("digits")
<digits-skew10-seed0: 1797 rows x 64 columns, 8 clients, 10 classes>
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fmtc.errors import DatasetError, nearest_names

from . import cuts, images, recipes, tables, text
from .base import FederatedDataset, Source, data_homes, find, label_skew, missing_classes
from .simulated import synthetic

SOURCES: dict[str, Source] = {
    source.name: source for source in (*text.SOURCES, *images.SOURCES, *tables.SOURCES, *recipes.SOURCES, *cuts.SOURCES)
}


def source_of(name: str) -> Source:
    """Facts about a data set that are known without reading it."""
    try:
        return SOURCES[name]
    except KeyError:
        raise DatasetError(f"there is no data set {name!r}; {nearest_names(name, SOURCES)}") from None


def load(name: str, *, data_home: str | Path | None = None, **options: Any) -> FederatedDataset:
    """Read a data set from files on this machine; nothing is downloaded.

    Parameters
    ----------
    name : str
        One of `SOURCES`: webkb4, 20newsgroups, reuters, bbcnews, yale, core50, keck; bbcsport, enron_spam, orl, yaleb,
        coil20, utd_mhad; digits, which comes with scikit-learn. Tables, with a `Schema` and missing cells:
        heart_disease, breast_wisconsin, penguins, gas_drift, wisdm, vowels_h95, pancreas.
    data_home : path, optional
        Folder of data sets. By default those that the environment variable FMTC_DATA names, several of them joined as
        in PATH, then the user's cache.
    **options
        Options of the data set, see ``SOURCES[name].options``.

    Returns
    -------
    FederatedDataset

    Examples
    --------
    >>> from fmtc_bench.datasets import load
    >>> load("digits", n_clients=4, seed=1)
    <digits-skew10-seed1: 1797 rows x 64 columns, 4 clients, 10 classes>
    """
    source, folder = locate(name, options, data_home=data_home)
    return source.read(source, folder, **options)


def locate(name: str, options: Iterable[str] = (), *, data_home: str | Path | None = None) -> tuple[Source, Path]:
    """The source that `load` would read and its folder, with the errors of `load`; nothing is read yet."""
    source = source_of(name)
    unknown = sorted(set(options) - set(source.options))
    if unknown:
        known = ", ".join(source.options) or "none"
        raise TypeError(f"{name} has no option {', '.join(unknown)}; it has {known}")
    folder = find(source, data_home)
    if folder is None:
        looked = " and ".join(str(home / source.folder) for home in data_homes(data_home))
        fetched = source.archives or source.package
        how = f"Get it with `fmtc-bench data fetch {name}`." if fetched else f"It cannot be fetched: {source.title}."
        raise DatasetError(f"{name} is not on this machine: fmtc looked in {looked}. {how}")
    return source, folder


__all__ = [
    "SOURCES",
    "FederatedDataset",
    "Source",
    "label_skew",
    "load",
    "missing_classes",
    "source_of",
    "synthetic",
]
