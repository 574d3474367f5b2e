"""Rows as figures. Needs matplotlib; colours suit every kind of colour vision; shapes or words say the same."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.artifacts.files import write_file

from ..datasets import FederatedDataset
from . import comparison, federations
from .evidence import ALPHAS, BETAS, COMPARED, DATASETS, ROUNDS, Row, at_round, with_tensor
from .methods import METHODS
from .summary import PARTS, summarise
from .tables import ablation_entries, of_tables

Array = np.ndarray

INK, QUIET, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6b4c9a", "#444444")  # Okabe and Ito, most
INSIDE, OUTSIDE = "#0072B2", "#E69F00"
MARKERS = "osD^vPX*<>ph"
TITLES = {
    "webkb4": "WebKB4", "20newsgroups": "20 Newsgroups", "reuters": "Reuters", "keck": "Keck", "core50": "CORe50",
    "bbcnews": "BBC News", "yale": "Yale", "bbcsport": "BBC Sport", "orl": "ORL", "yaleb": "Extended Yale B",
    "utd_mhad": "UTD-MHAD", "digits": "Digits",
}  # fmt: skip
WHAT = {
    "align": "alignment", "coupling": "coupling", "schatten_p": "Schatten p", "beta": "beta",
    "labels_from": "labels from", "final": "last stage", "nonmutual_weight": "weight of non-mutual edges",
    "n_neighbors": "neighbours", "max_iter": "rounds at most",
    "order": "order of clients, drawn", "n_clients": "number of clients", "rows": "rows per client",
}  # fmt: skip
SHOWN_ROWS = 250  # of each client in a cloud
SHOWN_SILOS = 3
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same rows give the same bytes


def style() -> AbstractContextManager[Any]:
    """Fonts and lines of all figures; the door to matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'fmtc[plot]'") from error
    return mpl.rc_context({
        "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.edgecolor": QUIET,
        "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False, "axes.axisbelow": True, "grid.color": GRID, "legend.frameon": False,
        "svg.hashsalt": "fmtc", "svg.fonttype": "none",
    })  # fmt: skip


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.08, h_pad=0.08)
    return figure


def _panels(n: int, most: int, size: Callable[[int, int], tuple[float, float]], *, sharey: bool = True) -> Any:
    """A figure with n panels of horizontal lines, at most so many beside each other, and all its axes."""
    columns = min(most, max(1, n))
    lines = -(-n // columns)
    figure = _figure(*size(lines, columns))
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=sharey)
    for i, ax in enumerate(axes.flat):
        ax.set_visible(i < n)
        ax.tick_params(axis="y", length=0)
        ax.tick_params(labelbottom=True)
        ax.grid(axis="x")
    return figure, axes


def save(figure: Any, path: Path) -> Path:
    """Write a figure as the suffix says: .png, .svg or .pdf.

    Parameters
    ----------
    figure : matplotlib Figure
    path : Path

    Returns
    -------
    Path
    """
    kind = path.suffix.removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"a figure is written as .png, .svg or .pdf, got {path.name}")
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=kind, dpi=150, metadata=NO_DATE.get(kind))
    write_file(path, content.getvalue())
    return path


def _title(name: str) -> str:
    return TITLES.get(name, name)


def _scores(rows: Sequence[Row], dataset: str, method: str, score: str, part: str) -> Array:
    """One number for each split that worked, in percent."""
    inside = next(key for key, name in PARTS.items() if name == part)
    return np.array([
        100 * row[inside]["mean"][score]
        for row in rows
        if (row["dataset"], row["method"], row["trial"], row["status"]) == (dataset, method, "default", "ok")
    ])  # fmt: skip


def _spread(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


# --------------------------------------------------------------------------------------------- t-SNE of the data


def clouds(datasets: Mapping[str, FederatedDataset]) -> Any:
    """Rows of data sets in the plane of t-SNE: all together coloured by silo, then some silos alone by class.

    Parameters
    ----------
    datasets : mapping of name to FederatedDataset

    Returns
    -------
    matplotlib Figure
        A line for each data set. What a silo shows alone is what its own model has to find.
    """
    with style():
        figure = _figure(3.1 * (1 + SHOWN_SILOS), 3.3 * len(datasets))
        axes = figure.subplots(len(datasets), 1 + SHOWN_SILOS, squeeze=False)
        for (name, data), line in zip(datasets.items(), axes, strict=True):
            everyone = data.prepared().take(_some_rows(data, SHOWN_ROWS))
            parts = [everyone, *(everyone.take(everyone.clients == cid) for cid in data.client_ids[:SHOWN_SILOS])]
            for i, (ax, part) in enumerate(zip(line, parts, strict=False)):
                groups = np.searchsorted(data.client_ids, part.clients) if i == 0 else part.y
                flat = _flat(part.X)
                for j in np.unique(groups):
                    ax.scatter(*flat[groups == j].T, s=11, alpha=0.75, linewidths=0, color=COLORS[j % len(COLORS)],
                               marker=MARKERS[(j // len(COLORS)) % len(MARKERS)])  # fmt: skip
                ax.set(xticks=[], yticks=[])
                ax.spines[["left", "bottom"]].set_visible(False)
                n = len(np.unique(groups))
                words = f"{_title(name)}: {n} silos" if i == 0 else f"{data.client_ids[i - 1]}: {n} classes"
                ax.set_title(words, weight="bold" if i == 0 else "normal")
            for ax in line[len(parts) :]:
                ax.set_visible(False)
        return figure


def _some_rows(data: FederatedDataset, rows: int) -> Array:
    """At most so many rows of each client."""
    rng = np.random.default_rng(0)
    parts = (rng.permutation(np.flatnonzero(data.clients == cid))[:rows] for cid in data.client_ids)
    return np.concatenate(list(parts))


def _flat(X: Any) -> Array:
    """Places of rows in the plane."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.manifold import TSNE

    if X.shape[1] > 50:
        X = TruncatedSVD(min(50, X.shape[0] - 1), random_state=0).fit_transform(X)
    found: Array = TSNE(init="pca", perplexity=min(30.0, (X.shape[0] - 1) / 3), random_state=0).fit_transform(X)
    return found


# ------------------------------------------------------------------------------------------------- convergence


def convergence(rows: Sequence[Row], datasets: Sequence[str]) -> Any:
    """Objective, residuals and ACC of FMTC by round, a column for each data set.

    Parameters
    ----------
    rows : sequence of dict
        With FMTC stopped after each of `fmtc_bench.compare.evidence.ROUNDS`.
    datasets : sequence of str

    Returns
    -------
    matplotlib Figure
        Lines are means over splits; bands and bars are standard deviations.
    """
    with style():
        figure = _figure(3.7 * len(datasets) + 0.5, 8)
        axes = figure.subplots(3, len(datasets), squeeze=False, sharex=True)
        for name, (objective, residuals, accuracy) in zip(datasets, axes.T, strict=True):
            last = at_round(ROUNDS[-1])
            runs = [
                row["history"] for row in rows if (row["dataset"], row["method"]) == (name, last) and row.get("history")
            ]
            if runs:
                history = np.array([run[: min(map(len, runs))] for run in runs], dtype=float)  # splits, rounds, 4
                _band(objective, history[:, :, [0, 1]], "objective", "-", COLORS[0], "o", log=False)
                _band(residuals, history[:, :, [0, 2]], "primal", "-", COLORS[0], "o", log=True)
                _band(residuals, history[:, :, [0, 3]], "dual", "--", COLORS[1], "s", log=True)
                residuals.set_yscale("log")
            for part, label, color, marker in (
                ("in", "training rows", INSIDE, "o"), ("out", "held-out rows", OUTSIDE, "s")
            ):  # fmt: skip
                found = {r: _scores(rows, name, at_round(r), "acc", part) for r in ROUNDS}
                seen = [r for r in ROUNDS if len(found[r])]
                accuracy.errorbar(seen, [found[r].mean() for r in seen], [_spread(found[r]) for r in seen], color=color,
                                  marker=marker, markersize=5, capsize=2, elinewidth=0.8, label=label)  # fmt: skip
            objective.set_title(_title(name))
            accuracy.set_xlabel("round")
            for ax in (objective, residuals, accuracy):
                ax.grid(axis="y")
        for ax, label in zip(axes[:, 0], ("objective", "relative residual", "ACC, %"), strict=True):
            ax.set_ylabel(label)
        for ax in axes[1:, -1]:
            if ax.get_legend_handles_labels()[0]:
                ax.legend(loc="best")
        figure.align_ylabels(axes[:, 0])
        return figure


def _band(ax: Any, curves: Array, label: str, dash: str, color: str, marker: str, *, log: bool) -> None:
    """Mean of curves of shape (splits, rounds, 2), and one standard deviation to both sides; by their logarithms."""
    x, y = curves[0, :, 0], curves[:, :, 1]
    y = np.log(np.maximum(y, 1e-12)) if log else y
    mean, spread = y.mean(axis=0), y.std(axis=0)
    low, middle, high = (np.exp(v) if log else v for v in (mean - spread, mean, mean + spread))
    ax.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    ax.plot(x, middle, dash, color=color, label=label, marker=marker, markersize=4, markevery=max(1, len(x) // 8))


# ------------------------------------------------------------------------------------------------- sensitivity


def sensitivity(rows: Sequence[Row], datasets: Sequence[str]) -> Any:
    """ACC over (alpha, beta): bars for training rows, as in the paper, and a heat map for held-out rows.

    Parameters
    ----------
    rows : sequence of dict
        With FMTC at each of `fmtc_bench.compare.evidence.ALPHAS` and `BETAS`.
    datasets : sequence of str

    Returns
    -------
    matplotlib Figure
    """
    with style():
        import matplotlib as mpl

        figure = _figure(11.5, 3.9 * len(datasets))
        axes = figure.subplots(len(datasets), 2, squeeze=False, width_ratios=[1.5, 1])
        shades = mpl.colormaps["viridis"](np.linspace(0.05, 0.92, len(ALPHAS)))
        for name, (bars, heat) in zip(datasets, axes, strict=True):
            inside, outside = (
                [[_scores(rows, name, with_tensor(alpha=a, beta=b), "acc", part) for b in BETAS] for a in ALPHAS]
                for part in ("in", "out")
            )
            width = 0.84 / len(ALPHAS)
            for i, (alpha, line) in enumerate(zip(ALPHAS, inside, strict=True)):
                place = np.arange(len(BETAS)) + (i - (len(ALPHAS) - 1) / 2) * width
                bars.bar(place, _means(line), 0.92 * width, yerr=list(map(_spread, line)), color=shades[i],
                         label=f"{alpha:g}", error_kw={"elinewidth": 0.8, "ecolor": INK})  # fmt: skip
            bars.set_xticks(range(len(BETAS)), [f"{b:g}" for b in BETAS])
            bars.set(xlabel="beta", ylabel="ACC on training rows, %", ylim=(0, 100), title=_title(name))
            bars.legend(title="alpha", ncols=len(ALPHAS), loc="upper center", columnspacing=1, handlelength=1)
            bars.grid(axis="y")
            picture = _heat(heat, np.array(list(map(_means, outside))))
            figure.colorbar(picture, ax=heat, label="ACC on held-out rows, %").outline.set_visible(False)
        return figure


def _means(line: Sequence[Array]) -> Array:
    return np.array([values.mean() if len(values) else np.nan for values in line])


def _heat(ax: Any, mean: Array) -> Any:
    """A number for each alpha and beta; the default is framed."""
    from matplotlib.patches import Rectangle

    top = np.nanmax(mean)
    low = min(np.nanmin(mean), top - 10)  # a difference of a point should not look like one of ten
    picture = ax.imshow(mean, cmap="viridis", aspect="auto", vmin=low, vmax=top)
    for i, j in np.argwhere(np.isfinite(mean)):
        color = "white" if mean[i, j] < (low + top) / 2 else "black"
        ax.text(j, i, f"{mean[i, j]:.1f}", ha="center", va="center", color=color)
    ax.set_xticks(range(len(BETAS)), [f"{b:g}" for b in BETAS])
    ax.set_yticks(range(len(ALPHAS)), [f"{a:g}" for a in ALPHAS])
    ax.set(xlabel="beta", ylabel="alpha")
    for i, j in np.argwhere([[with_tensor(alpha=a, beta=b) == with_tensor() for b in BETAS] for a in ALPHAS]):
        ax.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, ec="white", lw=2.5))
        ax.set_title("framed: the default", weight="normal", size=10)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return picture


# ----------------------------------------------------------------------------------------- training and new rows


def inside_outside(rows: Sequence[Row], score: str = "acc") -> Any:
    """Bars of every method on training and on held-out rows, a panel for each data set.

    Parameters
    ----------
    rows : sequence of dict
        Of the tables; only defaults are shown.
    score : str

    Returns
    -------
    matplotlib Figure
    """
    entries = {
        (e["dataset"], e["method"]): e
        for e in summarise(of_tables(rows), score=score)
        if e["mode"] == "default" and e["method"] in COMPARED
    }
    seen = {name for cell in entries for name in cell}
    sets, shown = ([name for name in names if name in seen] for names in (DATASETS, COMPARED))
    with style():
        figure, axes = _panels(len(sets), 5, lambda n, m: (2.5 * m + 1.6, (0.36 * len(shown) + 1.0) * n + 0.5))
        place = np.arange(len(shown))
        for ax, name in zip(axes.flat, sets, strict=False):
            mine = [entries.get((name, method), {}) for method in shown]
            for part, offset, color, label in (
                ("in", -0.19, INSIDE, "training rows"), ("out", 0.19, OUTSIDE, "held-out rows")
            ):  # fmt: skip
                ax.barh(place + offset, _percent(mine, part), 0.36, color=color, label=label,
                        xerr=np.nan_to_num(_percent(mine, f"{part}_sd")),
                        error_kw={"elinewidth": 0.8, "ecolor": INK})  # fmt: skip
            ax.set_title(_title(name))
            ax.set(xlim=(0, 100), ylim=(len(shown) - 0.4, -0.6), xticks=range(0, 100, 20))
            ax.set_yticks(place, [METHODS[method].title for method in shown])
        for label in (text for ax in axes[:, 0] for text in ax.get_yticklabels() if text.get_text() == "FMTC"):
            label.set_weight("bold")
        if sets:
            figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        figure.supxlabel(f"{score.upper()}, %; bars are means over splits, lines standard deviations", size=10)
        return figure


def _percent(entries: Sequence[Mapping[str, Any]], key: str) -> Array:
    return np.array([100 * entry.get(key, np.nan) for entry in entries])


# ------------------------------------------------------------------------------------------ critical difference


def critical_difference(test: Mapping[str, Any], title: str = "") -> Any:
    """Mean ranks on a line; methods under one bar do not differ by more than the critical difference.

    Parameters
    ----------
    test : dict
        Of `fmtc_bench.compare.statistics.friedman_nemenyi`.
    title : str

    Returns
    -------
    matplotlib Figure
    """
    names, ranks = list(test["ranks"]), list(test["ranks"].values())
    k, half = len(names), -(-len(names) // 2)
    step, top = 0.3, 0.42 + 0.2 * len(test["groups"])
    low, high = 1, k
    with style():
        figure = _figure(9.5, 1.5 + top + step * half)
        ax = figure.subplots()
        ax.set_axis_off()
        margin = 0.42 * (high - low)
        ax.set(xlim=(low - margin, high + margin), ylim=(-top - step * half, 1.05))
        ax.plot([low, high], [0, 0], color=INK, lw=1.2)
        for rank in range(low, high + 1):
            ax.plot([rank, rank], [0, 0.1], color=INK, lw=1.2)
            ax.text(rank, 0.16, str(rank), ha="center", va="bottom")
        ax.plot([low, low + test["critical_difference"]], [0.62, 0.62], color=INK, lw=2, marker="|", markersize=9)
        ax.text(low + test["critical_difference"] / 2, 0.7, f"critical difference {test['critical_difference']:.2f}",
                ha="center", va="bottom", size=9)  # fmt: skip
        for i, group in enumerate(test["groups"]):
            ends = [test["ranks"][group[0]] - 0.05, test["ranks"][group[-1]] + 0.05]
            ax.plot(ends, [-0.22 - 0.2 * i] * 2, color=COLORS[1], lw=4, solid_capstyle="round")
        for j, (name, rank) in enumerate(zip(names, ranks, strict=True)):
            left = j < half
            level = -top - step * (j if left else k - 1 - j)
            edge = low - 0.05 * (high - low) if left else high + 0.05 * (high - low)
            weight = {"color": COLORS[0], "weight": "bold"} if name == "fmtc" else {"color": INK}
            ax.plot([rank, rank, edge], [0, level, level], color=weight["color"], lw=1.6 if name == "fmtc" else 0.9)
            words = METHODS[name].title if name in METHODS else name
            ax.text(edge + (-0.06 if left else 0.06), level, f"{words}  {rank:.2f}" if left else f"{rank:.2f}  {words}",
                    ha="right" if left else "left", va="center", **weight)  # fmt: skip
        if title:
            ax.set_title(f"{title}: mean rank over {test['n']} data sets, 1 is best", pad=8)
        return figure


# ----------------------------------------------------------------------------------------------- test federations


def gains(rows: Sequence[Row], score: str) -> Any:
    """FMTC and k-means of each silo alone on each data set, with a line between them; the largest gain on top.

    Parameters
    ----------
    rows : sequence of dict
        Of the test federations.
    score : str
        One of `fmtc_bench.compare.comparison.SCORES`.

    Returns
    -------
    matplotlib Figure
    """
    sets = comparison.by_dataset(comparison.by_federation(rows, score))
    ours, alone = sets[comparison.OURS], sets[comparison.ALONE]
    order = sorted(ours, key=lambda name: ours[name] - alone[name])
    kinds = list(dict.fromkeys(federations.KIND[name] for name in ours))
    with style():
        figure = _figure(7.6, 0.27 * len(order) + 1.5)
        ax = figure.subplots()
        for i, name in enumerate(order):
            color = COLORS[kinds.index(federations.KIND[name]) % len(COLORS)]
            ax.plot([100 * alone[name], 100 * ours[name]], [i, i], color=color, lw=2, alpha=0.55)
            ax.plot(100 * alone[name], i, marker="o", color="white", markeredgecolor=color, markersize=6)
            ax.plot(100 * ours[name], i, marker="o", color=color, markersize=7)
        ax.set_yticks(range(len(order)), [federations.title(name) for name in order])
        ax.tick_params(axis="y", length=0)
        ax.set(xlabel=f"{comparison.SCORES[score][0]}, %", ylim=(-0.7, len(order) - 0.3))
        ax.grid(axis="x")
        from matplotlib.lines import Line2D

        keys = [Line2D([], [], marker="o", color=COLORS[j % len(COLORS)], ls="", label=k) for j, k in enumerate(kinds)]
        keys.append(Line2D([], [], marker="o", color=INK, ls="", label="FMTC"))
        keys.append(Line2D([], [], marker="o", color="white", markeredgecolor=INK, ls="", label="k-means alone"))
        figure.legend(handles=keys, loc="outside upper center", ncols=4, columnspacing=1.2, handletextpad=0.2)
        return figure


def intervals(entry: Mapping[str, Any]) -> Any:
    """By how much FMTC is ahead of each method, with intervals of 95 % over data sets.

    Parameters
    ----------
    entry : dict
        Of `fmtc_bench.compare.comparison.compare`.

    Returns
    -------
    matplotlib Figure
    """
    blocks = ("rivals", "variants", "pooled")
    lines = [line for line in entry["lines"] if line["block"] in blocks]
    lines.sort(key=lambda line: (blocks.index(line["block"]), -line["mean"]), reverse=True)
    with style():
        figure = _figure(7.6, 0.27 * len(lines) + 1.4)
        ax = figure.subplots()
        for i, line in enumerate(lines):
            color = COLORS[blocks.index(line["block"])]
            ax.plot([100 * line["low"], 100 * line["high"]], [i, i], color=color, lw=2)
            ax.plot(100 * line["ahead"], i, marker="osD"[blocks.index(line["block"])], color=color, markersize=6)
        ax.axvline(0, color=INK, lw=1)
        ax.set_yticks(range(len(lines)), [METHODS[line["name"]].title for line in lines])
        ax.tick_params(axis="y", length=0)
        ax.set(xlabel=f"FMTC ahead by, points of {entry['title']}; 95 % intervals over {entry['datasets']} data sets")
        ax.grid(axis="x")
        from matplotlib.lines import Line2D

        words = ("do not pool rows", "variants of FMTC", "pool all rows")
        keys = [Line2D([], [], marker="osD"[j], color=COLORS[j], label=word) for j, word in enumerate(words)]
        figure.legend(handles=keys, loc="outside upper center", ncols=3)
        return figure


# ----------------------------------------------------------------------------------------------------- ablations


def ablation_dots(rows: Sequence[Row]) -> Any:
    """What each change of the default brings or costs, in ACC on held-out rows.

    A dot for each data set, with one standard deviation.

    Parameters
    ----------
    rows : sequence of dict

    Returns
    -------
    matplotlib Figure
        The black line is the mean over data sets; deviations are over splits.
    """
    entries = ablation_entries(rows)
    panels = list(dict.fromkeys(entry["what"] for entry in entries))
    sets = list(dict.fromkeys(entry["dataset"] for entry in entries))
    with style():
        figure, axes = _panels(len(panels), 4, lambda n, m: (3.1 * m, 2.35 * n + 0.9), sharey=False)
        for ax, what in zip(axes.flat, panels, strict=False):
            mine = [entry for entry in entries if entry["what"] == what]
            values = list(dict.fromkeys(entry["value"] for entry in mine))
            for i, value in enumerate(values):
                _dots(ax, i, [entry for entry in mine if entry["value"] == value and not entry["default"]], sets)
            defaults = {entry["value"] for entry in mine if entry["default"]}
            ax.set_yticks(range(len(values)), values)
            for label in ax.get_yticklabels():
                label.set_weight("bold" if label.get_text() in defaults else "normal")
            ax.set(ylim=(len(values) - 0.4, -0.6), title=WHAT.get(what, what))
            ax.axvline(0, color=QUIET, lw=0.9, zorder=0)
            ax.locator_params(axis="x", nbins=5)
        from matplotlib.lines import Line2D

        keys = [Line2D([], [], marker=MARKERS[j], color=COLORS[j], ls="", label=_title(n)) for j, n in enumerate(sets)]
        if len(sets) > 1:
            keys.append(Line2D([], [], color=INK, lw=2.2, label="mean"))
        figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), columnspacing=1.2, handletextpad=0.3)
        figure.supxlabel("change of ACC on held-out rows against the default (in bold), percent points", size=10)
        return figure


def _dots(ax: Any, place: int, entries: Sequence[Mapping[str, Any]], sets: Sequence[str]) -> None:
    """One value of a setting: a dot for each data set and their mean; hollow for the default."""
    if not entries:
        ax.plot(0, place, marker="o", color="white", markeredgecolor=INK, markersize=7)
        return
    if len(sets) > 1:
        ax.plot([np.mean([entry["gain"] for entry in entries])] * 2, [place - 0.36, place + 0.36], color=INK, lw=2.2)
    shift = np.linspace(-0.25, 0.25, len(sets)) if len(sets) > 1 else [0.0]
    for entry in entries:
        j = sets.index(entry["dataset"])
        ax.errorbar(entry["gain"], place + shift[j], xerr=np.nan_to_num(entry["gain_sd"]), color=COLORS[j],
                    marker=MARKERS[j], markersize=5, elinewidth=0.9)  # fmt: skip
