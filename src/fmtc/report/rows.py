"""What a page says that cannot be worked out without the rows; computed right after a fit, kept in report.json."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from ..artifacts.runs import SiloResult
from ..estimator import FMTC
from ..linalg.threads import one_thread
from ..metrics import clustering_accuracy
from ..protocol.sums.masking import FEWEST
from ..settings import Privacy

Array = np.ndarray

POINTS = 5000  # rows of each silo that a page shows at most
LANDMARKS = 1500  # of all silos together: the rows that t-SNE lays out; the others go beside the nearest of them
SAMPLE = 2000  # rows of a silo that its silhouette is taken of
FOLDS = 5
FEW_ROWS = 5000  # of all silos together: up to here every row is held out once, beyond it one fifth is
HELD_OUT = 10  # rows below which nothing is said of held-out rows


def study(
    model: FMTC, results: Sequence[SiloResult], *, embeddings: Sequence[Array | None] | None = None, gain: bool = True
) -> dict[str, Any]:
    """What only the rows can tell about a fitted model; `write_run` keeps it under "details" in report.json.

    Fits again on four fifths of the rows, with the settings of the model and with every silo alone, to score both
    on the fifth that neither saw: ten fits where there are few rows, otherwise two.

    Parameters
    ----------
    model : FMTC
        Fitted on the rows of `results`, in their order.
    results : sequence of SiloResult
        Of `runs.results(model, silos, shown=POINTS)`.
    embeddings : sequence of arrays, optional
        F of the rows of each result; by default those of the model, in this order, where it has any.
    gain : bool
        Whether to fit again, to say what joining changed.

    Returns
    -------
    dict
        `silos`, for each silo residual, silhouette and, where it has enough rows, `held_out`; `points`, for the shown
        rows of each silo `probability` and, but for two clusters or fewer, `map_x` and `map_y`.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> from fmtc.report import study
    >>> from fmtc.artifacts.runs import results
    >>> from fmtc.tables import Silo
    >>> rng = np.random.default_rng(0)
    >>> silos = [Silo(name, rng.normal(size=(60, 4)), None, np.arange(60)) for name in ("north", "south")]
    >>> model = FMTC(2, max_iter=2, random_state=0).fit({silo.name: silo.X for silo in silos})
    >>> details = study(model, results(model, silos))
    >>> sorted(details["silos"]["north"])
    ['held_out', 'residual', 'silhouette']
    """
    held_out = _held_out(model, results) if gain else {}
    if embeddings is None:
        F, ends = getattr(model, "embedding_", None), np.cumsum([len(result.labels) for result in results])
        embeddings = [None] * len(results) if F is None else np.split(F, ends[:-1])
    lines = {}
    for result, F in zip(results, embeddings, strict=True):
        lines[result.silo.name] = {
            "residual": None if F is None else _residual(result.silo.X, F, model._models[result.silo.name]),
            "silhouette": _silhouette(result),
            "held_out": held_out.get(result.silo.name),
        }
    return {"silos": lines, "points": _points(model, results)}


def _residual(X: Any, F: Array, model: Any) -> float:
    """Share of the embedding that no multiple of the projection explains: 1 - <F, XW>²/(||F||² ||XW||²)."""
    plain = model.stretch is None or model.lift is not None
    W = model.W if plain else model.W * model.stretch[:, None]
    P = np.asarray(model.scaled(X) @ W, dtype=np.float64)
    if model.mean is not None:
        P -= P.mean(axis=0)
    squares = float(np.square(F, dtype=np.float64).sum() * np.square(P).sum())
    return 1.0 - float(np.einsum("ij,ij->", F, P)) ** 2 / squares if squares else 1.0


def _silhouette(result: SiloResult) -> float | None:
    """Of the shown rows in the space the clusters live in; None where they are all of one cluster."""
    labels = result.labels[result.shown]
    chosen = np.random.default_rng(0).permutation(len(labels))[:SAMPLE]
    if not 1 < len(np.unique(labels[chosen])) < len(chosen):
        return None
    return float(silhouette_score(result.view[chosen], labels[chosen]))


@dataclass(frozen=True, eq=False)
class _Scored:
    """A silo that can spare a fifth of its rows."""

    fold: Array  # n, in which each row is held out
    k: int
    graph: Any  # neighbours among all of its rows
    truth: Sequence[str | None] | None

    def scores(self, labels: Array, fold: int) -> tuple[float, float]:
        """Of the rows of a fold, the share of links that stay in their cluster, and ACC."""
        kept = np.flatnonzero(self.fold == fold)
        return stays(self.graph, labels, kept, self.k), _accuracy(labels, self.truth, kept)


def _scored(model: FMTC, results: Sequence[SiloResult]) -> dict[str, _Scored]:
    """The silos that can spare a fifth of their rows, divided into fifths."""
    rng, settings, found = np.random.default_rng(model.random_state), model._settings(), {}
    for result in results:
        name, n = result.silo.name, len(result.labels)
        k = settings.clusters_of(name)
        if n // FOLDS >= HELD_OUT and n - n // FOLDS - 1 > k:
            fold, graph = rng.permutation(n) % FOLDS, model._neighbors(name, result.silo.X)
            found[name] = _Scored(fold, k, graph, result.silo.labels)
    return found


def _held_out(model: FMTC, results: Sequence[SiloResult]) -> dict[str, dict[str, Any]]:
    """How held-out rows fit in, by silos that learn together and by silos alone; ACC where classes are known.

    A fifth is held out; five times, each row once, where there are few rows, because then scores are noisy. A silo too
    small to spare a fifth learns from all its rows and is not scored. A single silo is not compared.
    """
    rows = {result.silo.name: result.silo.X for result in results}
    scored = _scored(model, results)
    if not scored:
        return {}
    n_folds, found = FOLDS if sum(len(result.labels) for result in results) <= FEW_ROWS else 1, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit on all rows has given the same warnings
        for fold in range(n_folds):
            left = {name: X[scored[name].fold != fold] if name in scored else X for name, X in rows.items()}
            found.append([
                [one.scores(fits[name].predict(rows[name], silos=name), fold) for name, one in scored.items()]
                for fits in _fits(model, left)
            ])  # fmt: skip
    scores, acc = np.moveaxis(np.array(found), -1, 0)  # each fold x model x silo
    mean, right, gains = scores.mean(axis=0), acc.mean(axis=0), scores[:, 0] - scores[:, -1]
    error = gains.std(axis=0, ddof=1) / np.sqrt(n_folds) if n_folds > 1 else np.full(len(scored), np.nan)
    told: dict[str, dict[str, Any]] = {}
    for t, (name, one) in enumerate(scored.items()):
        alone = (mean[1, t], error[t], right[1, t]) if len(results) > 1 else (None, None, None)
        told[name] = {"rows": int((one.fold < n_folds).sum()), "score": mean[0, t], "acc": right[0, t]}
        told[name] |= dict(zip(("alone", "error", "alone_acc"), alone, strict=True))
    return told


def _fits(model: FMTC, rows: Mapping[str, Any]) -> list[Mapping[str, FMTC]]:
    """Models of these rows, by silos that learn together and, where there are several, by each alone.

    All of it happens here: a silo alone needs no privacy, and few held-out rows are no reason to refuse.
    """
    privacy, settings = model.privacy if len(rows) >= FEWEST else None, model._settings()
    if isinstance(privacy, Privacy):
        privacy = replace(privacy, accept_weak=True)
    together = clone(model).set_params(verbose=0, privacy=privacy, n_clusters=model.n_clusters_).fit(rows)
    fits: list[Mapping[str, FMTC]] = [dict.fromkeys(rows, together)]
    if len(rows) > 1:
        alone = {"privacy": None, "clusters_per_silo": None}
        fits.append({
            name: clone(together).set_params(n_clusters=settings.clusters_of(name), **alone).fit({name: X})
            for name, X in rows.items()
        })  # fmt: skip
    return fits


def stays(affinity: Any, labels: Array, kept: Array, k: int) -> float:
    """Share of the links of held-out rows that stay in their cluster, averaged over the clusters that have such rows.

    The links are those of a graph of all rows of the silo, so a few held-out rows are enough. Clusters without any row
    of the silo count as 0, as in `FMTC.score`: putting all rows into one does not pay.

    Parameters
    ----------
    affinity : sparse array of shape (n, n)
    labels : array of int of shape (n,)
        Of all rows, by one model.
    kept : array of int
        Which rows were held out.
    k : int
        Number of clusters.
    """
    links = affinity[kept].tocoo()
    own = labels[kept][links.row]
    weight = np.bincount(own, weights=links.data, minlength=k)
    inside = np.bincount(own, weights=links.data * (own == labels[links.col]), minlength=k)
    share = inside[weight > 0] / weight[weight > 0]
    return float(share.mean() * len(np.unique(labels)) / k) if len(share) else 0.0


def _accuracy(labels: Array, truth: Sequence[str | None] | None, kept: Array) -> float:
    """ACC of the held-out rows that have a known class; NaN where none has."""
    known = [i for i in kept if truth is not None and truth[i] is not None]
    if truth is None or not known:
        return float("nan")
    return clustering_accuracy([truth[i] for i in known], labels[known])


def _points(model: FMTC, results: Sequence[SiloResult]) -> dict[str, dict[str, Any]]:
    """For the shown rows: how sure their cluster is, and a place on a common map of all silos."""
    E = np.vstack([result.view for result in results])
    ends = np.cumsum([len(result.shown) for result in results])[:-1]
    flat = _map(E, model) if model.n_clusters_ > 2 else None
    maps = np.split(flat, ends) if flat is not None else [None] * len(results)
    points: dict[str, dict[str, Any]] = {}
    for result, place in zip(results, maps, strict=True):
        sure = result.probabilities[result.shown, result.labels[result.shown]]
        points[result.silo.name] = {"probability": np.round(sure.astype(np.float64), 3)}
        if place is not None:
            points[result.silo.name] |= {"map_x": np.round(place[:, 0], 3), "map_y": np.round(place[:, 1], 3)}
    return points


def _map(E: Array, model: FMTC) -> Array | None:
    """Rows of all silos in their common frame, laid out in the plane by t-SNE; None where there are too few."""
    n = len(E)
    if n < 50:
        return None
    rng = np.random.default_rng(model.random_state)
    chosen = rng.permutation(n)[:LANDMARKS]
    layout = TSNE(init="pca", perplexity=min(30, len(chosen) / 4), max_iter=500, random_state=0)
    with one_thread("openmp"):
        marks = layout.fit_transform(E[chosen]).astype(np.float64)
    if n <= LANDMARKS:
        flat = np.empty((n, 2))
        flat[chosen] = marks
        return flat
    distance, near = NearestNeighbors(n_neighbors=3).fit(E[chosen]).kneighbors(E)
    weight = 1 / (np.square(distance) + 1e-6)
    return np.einsum("ij,ijk->ik", weight / weight.sum(axis=1, keepdims=True), marks[near])
