"""The pictures; each returns what it has drawn on, so that you can add to it or save it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..artifacts.runs import principal_plane
from ..describe import Atlas, Explanation
from ..errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..advice import Advice
    from ..estimator import FMTC

Array = np.ndarray

# The colours and marks of the report page: eight hues, then the next mark.
COLOURS = ("#00468b", "#ff4600", "#a28b5d", "#a200ff", "#5d8be8", "#741746", "#d174a2", "#464617")
MARKS = ("o", "s", "^", "D")
INK, SOFT = "#1d2a36", "#51606e"
SIDE = 2.6  # inches of a panel
POINTS = 5000  # rows of a silo that are drawn at most
SILOS = 50  # lines of single silos that are drawn at most


def embedding(model: FMTC, X: Any = None, *, silos: Any = None, names: Mapping[int, str] | None = None) -> Figure:
    """Rows of each silo in a plane that all silos have in common, with the number of their cluster.

    The plane is that of the two principal directions of the projected rows; in the mixture view, of the rows in
    coordinates in which clusters are round. A silo has at most 5,000 points.

    Parameters
    ----------
    model : FMTC
        Fitted.
    X, silos
        Rows, as in `FMTC.explain`.
    names : mapping of int to str, optional
        Names of clusters, for the legend.

    Returns
    -------
    matplotlib.figure.Figure
        With one axes for each silo.

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> model = fmtc.FMTC(3, random_state=0).fit(X)
    >>> len(fmtc.plot.embedding(model, X).axes)  # doctest: +SKIP
    1
    """
    plt = _pyplot()
    rows, places, found = model._labelled(X, silos)
    labels = {name: found[places[name]] for name in rows}
    rng = np.random.default_rng(0)
    chosen = {name: np.sort(rng.permutation(len(y))[:POINTS]) for name, y in labels.items()}
    planes = principal_plane([model._models[name].plotted(rows[name][chosen[name]]) for name in rows])
    across = min(4, len(rows))
    down = -(-len(rows) // across)
    figure, grid = plt.subplots(
        down, across, figsize=(SIDE * across, SIDE * down + 0.4), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax in grid.flat[len(rows) :]:
        ax.set_axis_off()
    filled = sorted({int(j) for y in labels.values() for j in np.unique(y)})
    for ax, name, plane in zip(grid.flat, rows, planes, strict=False):
        y = labels[name][chosen[name]]
        for j in np.unique(y).tolist():
            mine = plane[y == j]
            ax.scatter(*mine.T, s=9, alpha=0.85, linewidths=0, **_mark(j))
            ax.annotate(str(j), np.median(mine, axis=0), weight="bold", color=INK, ha="center", va="center")
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"{_short(name, 30)}\n{len(labels[name]):,} rows", size="small")
    if names:
        marks = [plt.Line2D([], [], linestyle="", label=_title(j, names), **_mark(j)) for j in filled]
        figure.legend(handles=marks, loc="outside lower center", ncols=min(2, across), frameon=False)
    return figure


def profiles(explanation: Explanation, *, ax: Axes | None = None) -> Axes:
    """What sets clusters apart: clusters down, columns across, the mean of each where it is among the clearest.

    Red is above the other rows of the silo, blue below, by standard deviations.

    Parameters
    ----------
    explanation : Explanation
        What `FMTC.explain` returned.
    ax : matplotlib axes, optional
        To draw on.

    Returns
    -------
    matplotlib.axes.Axes
    """
    found = [cluster for cluster in explanation.clusters if cluster.rows]
    columns = list(dict.fromkeys(one.what for cluster in found for one in cluster.differences))
    if not columns:
        raise DataError("there is nothing to draw: no column sets any cluster apart")
    ax = _axes(ax, min(1.6 + 0.75 * len(columns), 18), 1.4 + 0.42 * len(found))
    effects = np.full((len(found), len(columns)), np.nan)
    for i, cluster in enumerate(found):
        for one in cluster.differences:
            place = columns.index(one.what)
            effects[i, place] = one.effect if one.agreed else 0.0
            said = one.values.partition(" against ")[0].removesuffix(" by silo")
            ax.text(place, i, said, ha="center", va="center", size="small", color=INK)
    reach = max(1.0, float(np.nanmax(np.abs(effects))))
    ax.imshow(effects, cmap="RdBu_r", vmin=-1.6 * reach, vmax=1.6 * reach, aspect="auto")
    names = [_title(one.cluster, explanation.names) for one in found]
    return _as_table(ax, columns, names, "What sets each cluster apart:\nits mean, or its share of rows")


def shares(what: FMTC | Explanation, *, names: Mapping[int, str] | None = None, ax: Axes | None = None) -> Axes:
    """Share of each cluster in the rows of each silo, as bars from 0 to 100 %.

    Parameters
    ----------
    what : FMTC or Explanation
        A model with the rows that it was fitted on; or what `FMTC.explain` returned.
    names : mapping of int to str, optional
        Names of clusters; by default those of the explanation.
    ax : matplotlib axes, optional
        To draw on.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> model = fmtc.FMTC(3, random_state=0).fit(X)
    >>> fmtc.plot.shares(model).get_xlim()[1]  # doctest: +SKIP
    100.0
    """
    if isinstance(what, Explanation):
        sizes = {name: np.array([one.rows for one in some]) for name, some in what.silos.items()}
        given = what.names | dict(names or {})
    else:
        check_is_fitted(what)
        sizes, given = dict(what._fitted.sizes), dict(names or {})
        if not sizes:
            raise DataError("this model was loaded and knows no rows: draw what its explain(X) returns")
    lines = max(len(sizes), *(len(part) for part in sizes.values()))
    ax = _axes(ax, 10.5 if given else 7.5, 1.3 + 0.32 * lines)
    place = np.arange(len(sizes))
    table = np.array([100 * part / max(int(part.sum()), 1) for part in sizes.values()])
    left = np.zeros(len(sizes))
    for j in range(table.shape[1]):
        hatch = ("", "//", "..", "xx")[j // len(COLOURS) % 4]
        colour = COLOURS[j % len(COLOURS)]
        ax.barh(place, table[:, j], left=left, color=colour, edgecolor="white", hatch=hatch, label=_title(j, given))
        left += table[:, j]
    ax.set_yticks(place, [_short(name) for name in sizes])
    ax.invert_yaxis()
    ax.set(xlim=(0, 100), xlabel="% of the silo's rows")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), title="cluster", alignment="left")
    return ax


def atlas(what: FMTC | Atlas, *, ax: Axes | None = None) -> Axes:
    """Concepts down, silos across: share of the silo's rows, and a mark where silos do not agree. Needs no row.

    Parameters
    ----------
    what : FMTC or Atlas
        A fitted model, also one that was loaded; or its `atlas_`.
    ax : matplotlib axes, optional
        To draw on.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> model = fmtc.FMTC(3, random_state=0).fit({"north": X[:30], "south": X[30:]})
    >>> fmtc.plot.atlas(model).get_title(loc="left")  # doctest: +SKIP
    'Share of each silo in each cluster, %'
    """
    if not isinstance(what, Atlas):
        check_is_fitted(what)
        what = what.atlas_
    silos, concepts = what.silos, what.clusters
    if not silos:
        raise DataError("there is nothing to draw: " + " ".join(what.notes))
    ax = _axes(ax, 4.5 + 0.9 * len(silos), 1.3 + 0.42 * len(concepts))
    shares = np.array([[one.presence.get(cid) or 0.0 for cid in silos] for one in concepts])
    ax.imshow(100 * shares, cmap="Blues", vmin=0, vmax=max(150 * float(shares.max()), 1.0), aspect="auto")
    signs, printed, found = {"unsure": "?", "unique": "!"}, [what.shares(cid) for cid in silos], set()
    for i, one in enumerate(concepts):
        for t, cid in enumerate(silos):
            sign = signs.get(one.flags.get(cid, ""), "")
            found.add(sign)
            said = f"{printed[t][i].removesuffix(' %')} {sign}".strip()
            ax.text(t, i, said, ha="center", va="center", color=INK, weight="bold" if sign else "normal")
    if said := "    ".join(f"{sign} {flag}" for flag, sign in signs.items() if sign in found):
        ax.text(1, 1.02, said, transform=ax.transAxes, ha="right", va="bottom", size="small", color=SOFT)
    names = [_title(one.id, what.names) for one in concepts]
    return _as_table(ax, [_short(cid, 20) for cid in silos], names, "Share of each silo in each cluster, %")


def history(model: FMTC, *, ax: Axes | None = None) -> Axes:
    """Objective by round, and on a second scale the residuals where the run has them.

    Parameters
    ----------
    model : FMTC
        Fitted, with its rounds.
    ax : matplotlib axes, optional
        To draw on.

    Returns
    -------
    matplotlib.axes.Axes
        That of the objective.
    """
    check_is_fitted(model)
    if not model.run_.rounds:
        raise DataError("this model has no rounds to draw: a fit of all silos has, and the coordinator of a federation")
    ax = _axes(ax, 6, 3.2)
    rounds = [record.round_no for record in model.run_.rounds]
    what = "minus log-likelihood per row" if model.view_ == "mixture" else "objective"
    drawn = ax.plot(rounds, [record.objective for record in model.run_.rounds], color=COLOURS[0], label=what)
    ax.set(xlabel="round", ylabel=what)
    residuals = {
        name: np.array([getattr(record, f"{name}_residual") for record in model.run_.rounds], dtype=float)
        for name in ("primal", "dual")
    }
    if any(np.isfinite(values).any() for values in residuals.values()):
        other = ax.twinx()
        for (name, values), style in zip(residuals.items(), ("--", ":"), strict=True):
            drawn += other.semilogy(rounds, values, style, color=COLOURS[1], label=f"{name} residual")
        other.set_ylabel("relative residual")
        other.spines["top"].set_visible(False)
    ax.spines["top"].set_visible(False)
    ax.legend(handles=drawn, frameon=False)
    return ax


def plot_k(advice: Advice, *, ax: Axes | None = None) -> Axes:
    """Evidence on the number of clusters: the eigengap by number, the range shaded.

    Parameters
    ----------
    advice : Advice
        What `FMTC.advise` returned.
    ax : matplotlib axes, optional
        To draw on.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> fmtc.plot.plot_k(fmtc.FMTC().advise(X)).get_xlabel()  # doctest: +SKIP
    'clusters'
    """
    ax, ks = _axes(ax, 6.4, 3.4), advice.ks
    shade = ax.axvspan(advice.low - 0.4, advice.high + 0.4, color=COLOURS[4], alpha=0.18, linewidth=0,
                       label=f"range {advice.low} to {advice.high}")  # fmt: skip
    chosen = ax.axvline(advice.chosen, color=INK, linewidth=1, linestyle=":", label=f"advice: {advice.chosen}")
    drawn = [chosen, shade]
    for silo in list(advice.eigengap_of.values())[:SILOS] if len(advice.eigengap_of) > 1 else []:
        ax.plot(ks, silo, color=COLOURS[0], linewidth=0.6, alpha=0.25)
    drawn += ax.plot(ks, advice.eigengap, color=COLOURS[0], marker="o", markersize=3, label="eigengap")
    ax.set_xlabel("clusters")
    ax.set_ylabel("eigengap, mean of silos", color=COLOURS[0])
    ax.locator_params(axis="x", integer=True)
    ax.spines["top"].set_visible(False)
    ax.set_ylim(bottom=0)
    ax.legend(handles=drawn, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=4, fontsize="small")
    ax.set_title(f"How many clusters: {advice.verdict}", size="medium", loc="left")
    return ax


# ---------------------------------------------------------------------------------------------------------- inside


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("a picture needs matplotlib: pip install 'fmtc[plot]'") from error
    return plt


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """What to draw on: the axes given, or those of a new figure."""
    return _pyplot().subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


def _as_table(ax: Axes, columns: Sequence[str], rows: Sequence[str], title: str) -> Axes:
    """A picture of cells with names at the left and below, and nothing around."""
    ax.set_xticks(range(len(columns)), columns, rotation=35, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title, size="medium", loc="left")
    return ax


def _mark(cluster: int) -> dict[str, Any]:
    return {"color": COLOURS[cluster % len(COLOURS)], "marker": MARKS[cluster // len(COLOURS) % len(MARKS)]}


def _title(cluster: int, names: Mapping[int, str]) -> str:
    return f"{cluster}  {_short(names[cluster], 44)}" if names.get(cluster) else str(cluster)


def _short(name: str, most: int = 34) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


__all__ = ["atlas", "embedding", "history", "plot_k", "profiles", "shares"]
