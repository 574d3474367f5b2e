"""Figures say what the rows say; looks were judged by eye."""

import sys

import numpy as np
import pytest

from fmtc.bench import evidence, plots, results, tables
from fmtc.bench.statistics import friedman_nemenyi
from fmtc.datasets import synthetic

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
    mine = [r for r in all_rows if (r["dataset"], r["method"]) == ("webkb4", evidence.fmtc_with(alpha=0.1, beta=0.0))]
    mean = np.mean([100 * r["test"]["mean"]["acc"] for r in mine])
    assert f"{mean:.1f}" in words(figure)
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


def test_clouds_show_some_rows_of_every_client_and_class():
    data = synthetic("subspace", n_clients=2, n_samples=30, n_features=60)
    figure = plots.clouds({"made": data})
    left, right = figure.axes
    assert sum(len(dots.get_offsets()) for dots in left.collections) == 60
    assert (len(left.collections), len(right.collections)) == (2, 3)
    assert "t-SNE of 60 of 60 rows" in words(figure)


def test_all_figures_are_drawn_and_the_same_bytes_twice(all_rows, tmp_path):
    few = [r for r in all_rows if r["dataset"].partition("?")[0] in ("webkb4", "digits")]
    names = []
    drawn = results.draw_results(few, tmp_path, kinds=("svg",), progress=names.append)
    assert names == [
        "convergence", "sensitivity", "inside_outside_acc", "inside_outside_nmi", "inside_outside_ri",
        *(f"critical_difference_{score}_{part}" for score in ("acc", "nmi") for part in ("in", "out")), "ablations",
    ]  # fmt: skip
    assert [path.name for path in drawn] == [f"{name}.svg" for name in names]
    before = drawn[-1].read_bytes()
    assert plots.save(plots.ablation_dots(few), drawn[-1]).read_bytes() == before
    assert results.draw_results([], tmp_path) == []
    with pytest.raises(ValueError, match=r"a\.pdf"):
        plots.save(plots.ablation_dots(few), tmp_path / "a.pdf")


def test_without_matplotlib_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"fmtc\[plot\]"):
        plots.clouds({})
