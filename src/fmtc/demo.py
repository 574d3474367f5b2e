"""The first thing a newcomer runs: handwritten digits in eight silos, each alone and then together.

The data ship with scikit-learn. Labels are used to deal out the silos and to score, never to fit. The number of silos
and how uneven they are was one of eleven dealings tried: where silos hardly share classes there is no gain to show.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from .datasets.base import label_skew
from .estimator import FMTC
from .kernels.graph import resolve_neighbors
from .metrics import clustering_accuracy
from .runtime.driver import Callback

Array = np.ndarray

METHODS = ("kmeans", "spectral", "fmtc")


@dataclass(frozen=True)
class Silos:
    """Rows with the silo and class of each, divided into training and held-out rows inside every silo."""

    X: Array
    y: Array
    clients: Array
    train: Array  # row numbers
    test: Array


@dataclass(frozen=True)
class DemoResult:
    """What the demo prints and draws."""

    rows: list[dict[str, Any]]  # one per silo, then their mean; accuracies from 0 to 1
    model: FMTC
    silos: Silos
    seconds: float


def example_tables() -> dict[str, pl.DataFrame]:
    """Files to try the command line on: three silos of 300 images, and 100 new ones without their digit.

    Examples
    --------
    >>> from fmtc.demo import example_tables
    >>> {name: table.shape for name, table in example_tables().items()}
    {'north.csv': (300, 66), 'south.csv': (300, 66), 'west.csv': (300, 66), 'new.csv': (100, 65)}
    """
    digits = load_digits()
    table = pl.DataFrame(digits.data, schema=digits.feature_names).with_columns(
        pl.Series("image", range(len(digits.data))), pl.Series("digit", digits.target)
    )
    silos = {f"{name}.csv": table[300 * i : 300 * (i + 1)] for i, name in enumerate(("north", "south", "west"))}
    return silos | {"new.csv": table[900:1000].drop("digit")}


def digits_silos(random_state: int = 0) -> Silos:
    """Eight silos of digits with different sizes and different mixes of the ten digits; a quarter of each held out."""
    X, y = load_digits(return_X_y=True)
    clients = label_skew(y, 8, concentration=10.0, random_state=random_state)
    train, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=random_state, stratify=clients)
    return Silos(X / 16, y, clients, train, test)


def alone(X: Any, X_new: Any, n_clusters: int, *, random_state: int = 0) -> dict[str, tuple[Array, Array]]:
    """Both baselines on one silo alone, k-means and spectral clustering: labels of its rows and of new rows.

    Spectral clustering cannot predict; its new rows take the vote of their five nearest training rows.
    """
    kmeans = KMeans(n_clusters, n_init=10, random_state=random_state).fit(X)
    neighbors = resolve_neighbors("auto", X.shape[0])  # the same rule as for FMTC
    spectral = SpectralClustering(
        n_clusters, affinity="nearest_neighbors", n_neighbors=neighbors, random_state=random_state
    ).fit(X)
    metric = "cosine" if sp.issparse(X) else "euclidean"  # an empty document is near to all others, but for its angle
    vote = KNeighborsClassifier(5, metric=metric).fit(X, spectral.labels_)
    return {
        "kmeans": (kmeans.labels_, kmeans.predict(X_new)),
        "spectral": (spectral.labels_, vote.predict(X_new)),
    }


def run_demo(*, random_state: int = 0, n_jobs: int | None = None, callbacks: Iterable[Callback] = ()) -> DemoResult:
    """Cluster the silos alone (k-means, spectral clustering) and together (FMTC with its defaults), and score all.

    Parameters
    ----------
    random_state : int
        Deals the silos, splits them and seeds every method.
    n_jobs : int, optional
    callbacks : iterable of callables
        Passed on to `FMTC.fit`.
    """
    started = time.perf_counter()
    silos = digits_silos(random_state)
    X, y, clients, train, test = silos.X, silos.y, silos.clients, silos.train, silos.test
    model = FMTC(n_clusters=10, random_state=random_state, n_jobs=n_jobs)
    model.fit(X[train], clients=clients[train], callbacks=callbacks)
    predicted = model.predict(X[test], clients=clients[test])
    rows: list[dict[str, Any]] = []
    for cid in model.client_ids_:
        mine, new = clients[train] == cid, clients[test] == cid
        found = alone(X[train][mine], X[test][new], 10, random_state=random_state)
        found["fmtc"] = (model.labels_[mine], predicted[new])
        row: dict[str, Any] = {"silo": cid, "n_train": int(mine.sum()), "n_test": int(new.sum())}
        for method in METHODS:
            row[f"{method}_in"] = clustering_accuracy(y[train][mine], found[method][0])
            row[f"{method}_out"] = clustering_accuracy(y[test][new], found[method][1])
        rows.append(row)
    mean: dict[str, Any] = {"silo": "mean", "n_train": len(train), "n_test": len(test)}
    for name in set(rows[0]) - set(mean):
        mean[name] = float(np.mean([row[name] for row in rows]))
    return DemoResult([*rows, mean], model, silos, time.perf_counter() - started)


def draw_demo(result: DemoResult, path: Path) -> Path:
    """What the clusters are, accuracy by silo, and the silos' rows in their common frame, as one PNG.

    A cluster is shown as the mean image of its rows: its number would be taken for a digit. Needs matplotlib.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.offsetbox import AnnotationBbox, OffsetImage
    except ImportError as error:
        raise ImportError("the picture needs matplotlib: pip install 'fmtc[plot]'") from error
    from sklearn.manifold import TSNE

    model, silos = result.model, result.silos
    ids, k = model.client_ids_, model.n_clusters
    X, clients = silos.X[silos.train], silos.clients[silos.train]
    ink, quiet, accent = "#22313f", "#8a97a3", "#0b7285"
    palette = mpl.colormaps["tab10"]
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": quiet, "axes.labelcolor": ink, "text.color": ink}):
        figure = Figure(figsize=(12, 9.6), layout="constrained", facecolor="white")
        halves: Any = figure.subfigures(2, 1, height_ratios=[1, 1.9])
        top, bottom = halves
        left, right = top.subfigures(1, 2, width_ratios=[1, 1.35])

        left.suptitle("What the clusters are: mean image of their rows, and share")
        for j, ax in enumerate(left.subplots(2, (k + 1) // 2).flat):
            mine = model.labels_ == j
            ax.set(xticks=[], yticks=[])
            if not mine.any():
                ax.set_axis_off()
                continue
            ax.imshow(X[mine].mean(axis=0).reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            ax.set_xlabel(f"{100 * mine.mean():.0f} %")
            for side in ax.spines.values():
                side.set(color=palette(j), linewidth=3)

        bars = right.subplots()
        place = np.arange(len(result.rows))
        styles = {
            "kmeans": ("k-means alone", "#ced4da"),
            "spectral": ("spectral alone", quiet),
            "fmtc": ("FMTC", accent),
        }
        for offset, (method, (name, color)) in zip((-0.27, 0, 0.27), styles.items(), strict=True):
            height = [100 * row[f"{method}_out"] for row in result.rows]
            bars.bar(place + offset, height, 0.27, label=name, color=color)
        bars.set_xticks(place, [row["silo"].replace("silo", "") for row in result.rows])
        bars.set(title="Held-out rows in the right cluster, %", xlabel="silo", ylim=(0, 118), yticks=range(0, 101, 20))
        bars.legend(frameon=False, ncols=3, loc="upper left")
        bars.spines[["top", "right"]].set_visible(False)

        E = model.transform(X, clients=clients)
        flat = TSNE(init="pca", max_iter=500, random_state=0).fit_transform(E)
        bottom.suptitle("Rows of each silo in their common frame: the same colour is the same cluster everywhere")
        axes = bottom.subplots(2, (len(ids) + 1) // 2, sharex=True, sharey=True)
        for ax, cid in zip(axes.flat, ids, strict=True):
            mine = clients == cid
            labels = model.labels_[mine]
            ax.scatter(*flat.T, s=2, color="#e9ecef")
            ax.scatter(*flat[mine].T, s=9, color=palette(labels % 10))
            for j in np.unique(labels):
                image = OffsetImage(X[mine][labels == j].mean(axis=0).reshape(8, 8), zoom=1.7, cmap="gray_r")
                frame = {"edgecolor": palette(j % 10), "linewidth": 1.5, "boxstyle": "square,pad=0"}
                spot = np.median(flat[mine][labels == j], axis=0)
                ax.add_artist(AnnotationBbox(image, spot, pad=0.05, bboxprops=frame))
            ax.set_title(f"{cid}, {mine.sum()} rows", size=9)
            ax.set(xticks=[], yticks=[])
        figure.savefig(path, dpi=130, format="png")
    return path
