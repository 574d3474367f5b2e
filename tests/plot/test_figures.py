"""Pictures of a fitted model: what is drawn, not how it looks."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.views import FEW, graph_view

import fmtc
from fmtc import FMTC, advise
from fmtc.describe import Atlas, AtlasCluster
from fmtc.errors import DataError
from fmtc.plot import atlas, embedding, history, plot_k, profiles, shares
from fmtc.report.page import COLOURS

mpl.use("Agg")


@pytest.fixture
def data(make_federation):
    return make_federation(m=2)


@pytest.fixture
def model(data):
    return graph_view(3, max_iter=4, random_state=0).fit(data)


@pytest.fixture(autouse=True)
def closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_every_row_is_a_point_of_its_silo(model, data):
    figure = embedding(model, data, names={1: "severe"})
    assert [ax.get_title().split("\n") for ax in figure.axes] == [["a", "60 rows"], ["b", "60 rows"]]
    for ax in figure.axes:
        assert sum(len(drawn.get_offsets()) for drawn in ax.collections) == 60
    assert "1  severe" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_rows_of_a_model_without_projection_are_drawn_by_their_columns(model, data, monkeypatch):
    monkeypatch.setattr(FMTC, "projections_", None)
    with_holes = {name: np.where(np.arange(6) == 5, rows[:1], rows) for name, rows in data.items()}
    figure = embedding(model, with_holes)
    places = np.vstack([drawn.get_offsets() for ax in figure.axes for drawn in ax.collections])
    assert places.shape == (120, 2)
    assert_allclose(places.mean(axis=0), 0, atol=1e-9)


def test_profiles_show_the_means_that_were_found(model, data):
    told = model.explain(data, names={0: "mild"})
    ax = profiles(told)
    assert ax.get_yticklabels()[0].get_text() == "0  mild"
    written = {text.get_text() for text in ax.texts}
    assert written == {one.values.partition(" against ")[0] for c in told.clusters for one in c.differences}


def test_the_atlas_shows_shares_and_doubts():
    first = AtlasCluster(0, "tall", (), {"a": 0.6, "b": None}, {"a": 0.9, "b": 0.1}, {"a": "matched", "b": "unique"})
    ax = atlas(
        Atlas((first, AtlasCluster(1, "short", (), {"a": 0.4, "b": 0.0}, {"a": 0.4}, {"a": "unsure"})), ("a", "b"))
    )
    assert [text.get_text() for text in ax.texts] == ["60", "< 5 !", "40 ?", "–", "? unsure    ! unique"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0  tall", "1  short"]
    with pytest.raises(DataError, match="nothing to draw: sums"):
        atlas(Atlas((first,), (), ("sums only",)))


def test_a_loaded_model_has_an_atlas_to_draw(model, tmp_path):
    loaded = fmtc.load(model.save(tmp_path / "model"))
    drawn = [[text.get_text() for text in atlas(one).texts] for one in (model, loaded)]
    assert drawn[0] == drawn[1] and len(drawn[0]) >= 6


def test_bars_of_shares_end_at_a_hundred_percent(model, data):
    ax = shares(model, names={2: "none"})
    wide = np.array([[bar.get_width() for bar in part] for part in ax.containers])
    assert_allclose(wide.sum(axis=0), 100)
    assert_allclose(wide[:, 0], 100 * np.bincount(model.labels_[:60], minlength=3) / 60)
    assert_allclose([part[0].get_x() for part in ax.containers], np.cumsum([0, *wide[:2, 0]]))  # one after the other
    assert ax.get_xlim() == (0, 100)
    assert [text.get_text() for text in ax.get_legend().get_texts()][2] == "2  none"
    again = shares(model.explain(data))
    assert_allclose([[bar.get_width() for bar in part] for part in again.containers], wide)


def test_a_loaded_model_needs_rows(model, data, tmp_path):
    loaded = fmtc.load(model.save(tmp_path / "model"))
    with pytest.raises(DataError, match="its explain"):
        shares(loaded)
    assert len(shares(loaded.explain(data)).containers) == 3
    assert "silos: a, b" in loaded._repr_html_()


def test_rounds_are_drawn_with_residuals_where_there_are_any(model):
    ax = history(model)
    (line,) = ax.get_lines()
    assert_allclose(line.get_ydata(), [record.objective for record in model.run_.rounds])
    assert len(ax.figure.axes) == 2
    from dataclasses import replace

    nan = float("nan")
    unknown = tuple(replace(record, primal_residual=nan, dual_residual=nan) for record in model.run_.rounds)
    model.run_ = replace(model.run_, history=unknown, before=0)
    assert len(history(model).figure.axes) == 1
    model.run_ = replace(model.run_, history=(), before=0)
    with pytest.raises(DataError, match="rounds"):
        history(model)


def test_the_given_axes_are_drawn_on(model, data):
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 3)
    told = model.explain(data)
    assert [profiles(told, ax=axes[0]), shares(model, ax=axes[1]), history(model, ax=axes[2])] == list(axes)


def test_colours_are_those_of_the_page():
    from fmtc.plot import figures
    from fmtc.report import page

    css = (page.HERE / "common.css").read_text()
    assert len(figures.COLOURS) == COLOURS
    assert [f"--c{j}: {colour};" in css for j, colour in enumerate(figures.COLOURS)] == [True] * COLOURS


def test_matplotlib_is_imported_only_to_draw(model, data, monkeypatch):
    told = "import sys, fmtc.plot; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True).stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"fmtc\[plot\]"):
        shares(model)


def test_the_evidence_on_the_number_of_clusters_is_drawn_with_its_range(data):
    advice = advise(data, k_range=(2, 6), model=FMTC(random_state=0, mixture=FEW))
    ax = plot_k(advice)
    drawn = {line.get_label(): line for line in ax.get_lines()}
    assert_allclose(drawn["eigengap"].get_xydata(), np.c_[advice.ks, advice.eigengap])
    assert [text.get_text() for text in ax.get_legend().get_texts()][1] == f"range {advice.low} to {advice.high}"
    assert plot_k(advice, ax=ax) is ax
