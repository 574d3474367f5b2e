"""One comparison, the same for everyone: fit on four fifths of each client, score there and on the rest.

Every fitted quantity (words, idf, units, graph, centres) comes from the training rows. FMTC takes missing cells and
categories as they are; methods that do not, get means and indicators in their place. New rows take the method's own
map, else Nyström's formula; the vote of the five nearest training rows is scored as well, to tell good clusters from a
good map. ``default`` is one setting for all data sets; ``oracle`` is the best of as many trials for everyone, picked by
labels, and says so.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fmtc.errors import InputError, nearest_names
from fmtc.estimator import FMTC
from fmtc.kernels.scaling import expanded
from fmtc.metrics import clustering_accuracy, match_classes, score_silos
from fmtc.protocol.state import stream
from fmtc.schema import Encoded

from ..baselines.single_task import Voters
from ..datasets import SOURCES, FederatedDataset, load, locate, synthetic
from ..datasets.simulated import KINDS
from .methods import method_of, settings_of

Array = np.ndarray
SYNTHETIC = "synthetic-"


def dataset(name: str) -> FederatedDataset:
    """A data set by the name it has in a table: one that `load` knows, or ``synthetic-KIND``.

    Options follow a question mark, ``"digits?n_clients=4,rows=50"``: those of the data set, and two for all.
    ``rows`` takes at most so many rows of each client, drawn once and for all: fewer are among the more. ``order``
    permutes the clients' names by this seed, so that the clients have another order.

    Parameters
    ----------
    name : str

    Returns
    -------
    FederatedDataset

    Examples
    --------
    >>> from fmtc_bench.compare.protocol import dataset
    >>> dataset("digits?n_clients=4,rows=50")
    <digits-skew10-seed0: 200 rows x 64 columns, 4 clients, 10 classes>
    """
    base, options, rows, order = _parsed(name)
    try:
        if base.startswith(SYNTHETIC):
            data = synthetic(base.removeprefix(SYNTHETIC), **options)
        else:
            data = load(base, **options)
    except TypeError as error:
        raise InputError(f"{name!r}: {error}") from error
    if rows is not None:
        data = data.take(_first_rows(data, rows))
    return data if order is None else _renamed(data, order)


def check_dataset(name: str) -> None:
    """Refuse the name of a data set that `dataset` could not give, before anything is run; real ones are not read.

    Raises
    ------
    DatasetError
        Where it is known but not on this machine.
    ValueError
        Where there is no such data set or option.
    """
    base, options, *_ = _parsed(name)
    known = [*SOURCES, *(SYNTHETIC + kind for kind in KINDS)]
    if base not in known:
        raise InputError(f"there is no data set {base!r}; {nearest_names(base, known)}")
    if base.startswith(SYNTHETIC):
        dataset(name)
    else:
        try:
            locate(base, options)
        except TypeError as error:
            raise InputError(f"{name!r}: {error}") from error


def _parsed(name: str) -> tuple[str, dict[str, Any], int | None, int | None]:
    """Name, options, rows and order of a data set."""
    base, mark, text = name.partition("?")
    options = settings_of(text, name) if mark else {}
    rows, order = (_count(name, options, key, least) for key, least in (("rows", 1), ("order", 0)))
    return base, options, rows, order


def _count(name: str, options: dict[str, Any], key: str, least: int) -> int | None:
    """Take a whole number out of the options."""
    value = options.pop(key, None)
    if value is not None and (type(value) is not int or value < least):
        raise InputError(f"{name!r}: {key} must be a whole number of {least} or more, got {value!r}")
    return value


def _first_rows(data: FederatedDataset, rows: int) -> Array:
    draws = (stream(0, cid, "rows").permutation(np.flatnonzero(data.clients == cid)) for cid in data.client_ids)
    return np.concatenate([draw[:rows] for draw in draws])


def _renamed(data: FederatedDataset, seed: int) -> FederatedDataset:
    """Clients under each other's names; from four on, others are neighbours on the ring of clients than before."""
    names = np.array(data.client_ids)
    rng = np.random.default_rng(seed)
    if len(names) < 2:
        raise InputError(f"{data.name} has one client, which cannot stand in another order")
    ring = _pairs(np.arange(len(names)))
    while True:
        new = rng.permutation(len(names))
        if (_pairs(new) != ring) if len(names) > 3 else (new != np.arange(len(names))).any():
            return replace(data, clients=names[new][np.searchsorted(names, data.clients)])


def _pairs(ring: Array) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in zip(ring.tolist(), np.roll(ring, 1).tolist(), strict=True)}


def evaluate(
    train: FederatedDataset, test: FederatedDataset, method: str, setting: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Fit one method on the training rows and score it on these and on the test rows.

    Parameters
    ----------
    train, test : FederatedDataset
        Of `FederatedDataset.split`.
    method : str
        As `method_of` reads it.
    setting : mapping
        Parameters of the method; ``trial`` stands for another seed where there is nothing to set.
    seed : int

    Returns
    -------
    dict
        ``train``, ``test`` and ``vote``: the summaries of `score_silos`, and ``clients`` with the scores of each;
        ``test`` also has ``acc_frozen``, with clusters matched to classes on the training rows. What it took:
        ``seconds_fit``, ``seconds_predict``, ``bytes_up``, ``bytes_down``, ``rounds``; ``notes``, the warnings;
        and of FMTC ``history``: round, objective, primal and dual residual of each round.
    """
    values = {name: value for name, value in setting.items() if name != "trial"}
    plain = complete(train, train), complete(train, test)
    model = method_of(method).build(train.n_clusters, random_state=seed + 1000 * setting.get("trial", 0), **values)
    rows = (as_they_come(train), as_they_come(test)) if getattr(model, "takes_missing", False) else plain
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.perf_counter()
        model.fit(rows[0], silos=train.clients)
        fitted = time.perf_counter()
        predicted = model.predict(rows[1], silos=test.clients)
        done = time.perf_counter()
    found = model.labels_
    voted = np.empty_like(predicted)
    frozen = []
    for cid in train.client_ids:
        mine, new = train.clients == cid, test.clients == cid
        voted[new] = vote(plain[0][mine], found[mine], plain[1][new])
        matching = match_classes(train.y[mine], found[mine])
        frozen.append(clustering_accuracy(test.y[new], predicted[new], matching=matching))
    records = model.run_.rounds if isinstance(model, FMTC) else []
    return {
        "train": _scores(train, found),
        "test": _scores(test, predicted) | {"acc_frozen": float(np.mean(frozen))},
        "vote": _scores(test, voted),
        "seconds_fit": fitted - started,
        "seconds_predict": done - fitted,
        "bytes_up": sum(r.bytes_up for r in records) if records else getattr(model, "bytes_up_", 0),
        "bytes_down": sum(r.bytes_down for r in records) if records else getattr(model, "bytes_down_", 0),
        "rounds": getattr(model, "n_iter_", getattr(model, "n_rounds_", 1)),
        "history": [
            [r.round_no, *(float(f"{v:.5g}") for v in (r.objective, r.primal_residual, r.dual_residual))]
            for r in records
            if not r.in_mixture
        ],
        "notes": sorted({str(warning.message) for warning in caught}),
    }


def as_they_come(data: FederatedDataset) -> Any:
    """Rows as FMTC takes them: missing cells are NaN, and the schema says which columns are categories."""
    return data.X if data.schema is None else Encoded(data.X, data.schema)


def complete(train: FederatedDataset, data: FederatedDataset) -> Any:
    """Rows for a method that knows neither missing cells nor categories.

    A missing number takes the mean of the training rows; a category becomes an indicator of each level, all of them 0
    where it is missing.
    """
    if not isinstance(data.X, np.ndarray):
        return data.X
    levels = () if data.schema is None else data.schema.levels
    X, known = expanded(data.X, levels), expanded(train.X, levels)
    holes = np.isnan(X)
    if not holes.any():
        return X
    there = ~np.isnan(known)
    mean = np.where(there, known, 0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    return np.where(holes, mean, X)


def _scores(data: FederatedDataset, labels: Array) -> dict[str, Any]:
    scores = score_silos(data.y, labels, data.clients)
    return {name: scores.pop(name) for name in ("mean", "weighted", "pooled")} | {"clients": scores}


def vote(X: Any, labels: Array, X_new: Any) -> Array:
    """Clusters of new rows by majority among their five nearest training rows."""
    return Voters.of(X, labels).assign(X_new)


def peak_memory() -> int:
    """Most bytes this process has held; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
