"""Figures say what the rows say; looks were judged by eye."""

import sys

import numpy as np
import pytest

from fmtc_bench.compare import evidence, plots, results, tables
from fmtc_bench.compare.statistics import friedman_nemenyi
from fmtc_bench.datasets import synthetic

pytest.importorskip("matplotlib")


def words(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")) if text.get_text()]


def test_bars_are_as_long_as_the_scores(all_rows):
    figure = plots.inside_outside(all_rows)
    axes = {ax.get_title(): ax for ax in figure.axes}
    assert {plots.TITLES[name] for name in evidence.DATASETS} <= set(axes)
    bars = sorted(bar.get_width() for bar in axes["Digits"].patches)
    entries = [e for e in tables.summarise(all_rows) if e["dataset"] == "digits" and e["method"] in evidence.COMPARED]
    assert bars == pytest.approx(sorted(100 * e[part] for e in entries for part in ("in", "out")))


def test_the_heat_map_has_every_number(all_rows):
    figure = plots.sensitivity(all_rows, ["webkb4"])
    mine = [r for r in all_rows if (r["dataset"], r["method"]) == ("webkb4", evidence.with_tensor(alpha=0.1, beta=0.0))]
    inside, outside = (np.mean([100 * r[part]["mean"]["acc"] for r in mine]) for part in ("train", "test"))
    assert f"{outside:.1f}" in words(figure)
    assert min(abs(bar.get_height() - inside) for bar in figure.axes[0].patches) < 1e-9  # bars: as in the paper
    assert len([w for w in words(figure) if w.count(".") == 1 and len(w) == 4]) >= 25


def test_convergence_has_a_point_for_each_round_that_was_run(all_rows):
    figure = plots.convergence(all_rows, ["webkb4", "reuters"])
    objective, accuracy = figure.axes[0], figure.axes[4]
    assert len(objective.lines[0].get_xdata()) == 50
    assert objective.lines[0].get_ydata()[1] == pytest.approx(3.5)
    assert list(accuracy.lines[0].get_xdata()) == list(evidence.ROUNDS)
    assert figure.axes[2].get_yscale() == "log"


def test_the_critical_difference_picture_names_every_method_and_group():
    rng = np.random.default_rng(0)
    test = friedman_nemenyi({name: rng.random(9) + 0.1 * j for j, name in enumerate(evidence.COMPARED)})
    figure = plots.critical_difference(test, "ACC")
    assert "FMTC" in " ".join(words(figure))
    assert f"critical difference {test['critical_difference']:.2f}" in words(figure)
    thick = [line for line in figure.axes[0].lines if line.get_linewidth() == 4]
    assert len(thick) == len(test["groups"])


def test_ablations_have_a_panel_each_and_the_default_in_bold(all_rows):
    figure = plots.ablation_dots(all_rows)
    assert {ax.get_title() for ax in figure.axes if ax.get_visible()} == set(plots.WHAT.values())
    (ax,) = (ax for ax in figure.axes if ax.get_title() == "alignment")
    assert [label.get_text() for label in ax.get_yticklabels() if label.get_weight() == "bold"] == ["True"]


def test_clouds_show_all_silos_and_then_some_of_them_alone():
    data = synthetic("subspace", n_clients=2, n_samples=30, n_features=60)
    figure = plots.clouds({"made": data})
    together, *alone, unused = figure.axes
    assert not unused.get_visible()  # there is no third silo
    assert sum(len(dots.get_offsets()) for dots in together.collections) == 60
    assert len(together.collections) == 2  # colours of the silos
    for ax in alone:
        assert sum(len(dots.get_offsets()) for dots in ax.collections) == 30
        assert len(ax.collections) == 3  # colours of the classes
    assert [ax.get_title() for ax in figure.axes[:3]] == [
        "made: 2 silos", *(f"{cid}: 3 classes" for cid in data.client_ids)
    ]  # fmt: skip


def test_gains_are_a_line_for_each_data_set_from_alone_to_ours(few, row):
    level = {"fmtc": (0.6, 0.5, 0.4, 0.8, 0.3), "kmeans": (0.5, 0.4, 0.3, 0.85, 0.0)}
    rows = [row(data, name, ari=ari) for name, line in level.items() for data, ari in zip(few, line, strict=True)]
    (ax,) = plots.gains(rows, "ari").axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["vowel", "letter", "glass"]  # the largest on top
    lines = [line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2]
    assert np.ravel(lines) == pytest.approx([85, 80, 40, 50, 0, 30])


def test_intervals_reach_from_low_to_high_and_references_are_left_out():
    blocks = {"fmtc": "ours", "kmeans": "rivals", "usc": "pooled", "fmtc-average": "variants", "random": "references"}
    lines = [
        {"name": name, "block": block, "mean": 0.5, "ahead": 0.02 * i, "low": 0.02 * i - 0.01, "high": 0.02 * i + 0.03}
        for i, (name, block) in enumerate(blocks.items())
    ]
    (ax,) = plots.intervals({"lines": lines, "title": "ARI", "datasets": 7}).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["uSC", "FMTC, averaging", "k-means alone"]
    drawn = [line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2 and list(line.get_ydata()) != [0, 1]]
    assert np.ravel(drawn) == pytest.approx([3, 7, 5, 9, 1, 5])
    assert "95 % intervals over 7 data sets" in ax.get_xlabel()


def test_all_figures_are_drawn_and_the_same_bytes_twice(all_rows, tmp_path):
    first = [name for name in evidence.FEDERATIONS if name in evidence.first_federations()][:4]
    few = [r for r in all_rows if r["dataset"] in first or r["dataset"].partition("?")[0] in ("webkb4", "digits")]
    names = []
    drawn = results.draw_results(few, tmp_path, kinds=("svg",), progress=names.append)
    figures = ("critical_difference", "gains", "intervals")
    assert names == [
        "convergence", "sensitivity", "inside_outside_acc", "inside_outside_nmi", "inside_outside_ri",
        *(f"{name}_{score}" for score in ("ari", "acc_frozen") for name in figures), "ablations",
    ]  # fmt: skip
    assert set(names) <= set(results.captions(few))
    assert [path.name for path in drawn] == [f"{name}.svg" for name in names]
    for kind in ("svg", "pdf"):
        one, other = (plots.save(plots.gains(few, "ari"), tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
        assert one == other
    assert one.startswith(b"%PDF")
    assert results.draw_results([], tmp_path) == []
    with pytest.raises(ValueError, match=r"a\.jpg"):
        plots.save(plots.gains(few, "ari"), tmp_path / "a.jpg")


def test_without_kmeans_there_are_no_gains_to_draw(all_rows):
    tested = [r for r in all_rows if r["dataset"] in evidence.FEDERATIONS and r["method"] != "kmeans"]
    assert [name for name, _ in results._figures(tested, with_clouds=False)] == [
        f"{name}_{score}" for score in ("ari", "acc_frozen") for name in ("critical_difference", "intervals")
    ]  # fmt: skip


def test_without_matplotlib_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"fmtc\[plot\]"):
        plots.clouds({})
