"""The paper's data sets and some more as federations, and synthetic ones with known answers.

>>> from fmtc.datasets import load, synthetic
>>> load("digits")
<digits-skew10-seed0: 1797 rows x 64 columns, 8 clients, 10 classes>
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..tables.reading import nearest_names
from . import images, text
from .base import DatasetError, FederatedDataset, Source, data_homes, find, label_skew
from .download import fetch_archives, import_archives
from .simulated import synthetic

SOURCES: dict[str, Source] = {source.name: source for source in (*text.SOURCES, *images.SOURCES)}


def source_of(name: str) -> Source:
    """What is known of a data set before it is read."""
    try:
        return SOURCES[name]
    except KeyError:
        raise DatasetError(f"there is no data set {name!r}; {nearest_names(name, SOURCES)}") from None


def load(name: str, *, data_home: str | Path | None = None, **options: Any) -> FederatedDataset:
    """Read a data set from the files on this machine; nothing is downloaded.

    Parameters
    ----------
    name : str
        One of `SOURCES`: webkb4, 20newsgroups, reuters, bbcnews, yale, core50, keck; bbcsport, orl, yaleb, utd_mhad;
        digits, which comes with scikit-learn.
    data_home : path, optional
        Folder that holds the data sets. Left out, the one that the variable FMTC_DATA names, then the user's cache.
    **options
        What the data set lets one choose; ``SOURCES[name].options`` tells.

    Returns
    -------
    FederatedDataset

    Examples
    --------
    >>> from fmtc.datasets import load
    >>> load("digits", n_clients=4, seed=1)
    <digits-skew10-seed1: 1797 rows x 64 columns, 4 clients, 10 classes>
    """
    source, folder = locate(name, options, data_home=data_home)
    return source.read(source, folder, **options)


def locate(name: str, options: Iterable[str] = (), *, data_home: str | Path | None = None) -> tuple[Source, Path]:
    """What `load` would read and the folder it is in, with the errors of `load`; nothing is read yet."""
    source = source_of(name)
    unknown = sorted(set(options) - set(source.options))
    if unknown:
        known = ", ".join(source.options) or "none"
        raise TypeError(f"{name} has no option {', '.join(unknown)}; it has {known}")
    folder = find(source, data_home)
    if folder is None:
        looked = " and ".join(str(home / source.folder) for home in data_homes(data_home))
        how = (
            f"Get it with `fmtc data fetch {name}`."
            if source.archives
            else f"There is nothing to fetch: {source.title}."
        )
        raise DatasetError(f"{name} is not on this machine: looked in {looked}. {how}")
    return source, folder


def fetch(name: str, *, data_home: str | Path | None = None, force: bool = False, **how: Any) -> Path:
    """Download a data set from its home page, check it and keep it in the compact form that `load` reads.

    Parameters
    ----------
    name : str
    data_home : path, optional
        Where to keep it. Left out, the user's cache.
    force : bool
        Fetch again what is there already.
    **how
        Passed on to `fmtc.datasets.download.fetch_archives`: a callback for progress, another base address.

    Returns
    -------
    Path
        Folder of the data set.
    """
    return fetch_archives(source_of(name), data_home, force=force, **how)


def import_archive(name: str, *paths: str | Path, data_home: str | Path | None = None, force: bool = False) -> Path:
    """Keep an archive that you downloaded yourself in the compact form that `load` reads.

    Parameters
    ----------
    name : str
    *paths : path
        The official archive, or all of them where the home page offers several.
    data_home, force
        As for `fetch`.

    Returns
    -------
    Path
        Folder of the data set.
    """
    return import_archives(source_of(name), tuple(Path(path) for path in paths), data_home, force=force)


__all__ = [
    "SOURCES",
    "DatasetError",
    "FederatedDataset",
    "Source",
    "fetch",
    "import_archive",
    "label_skew",
    "load",
    "source_of",
    "synthetic",
]
