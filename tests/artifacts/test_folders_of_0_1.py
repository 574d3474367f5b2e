"""Folders that fmtc 0.1 wrote, before it was built anew: they are read, and say what they said."""

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

import fmtc
from fmtc.artifacts.runs import model_folder
from fmtc.cli import main_group
from fmtc.report.summary import summarise

# models of silos about three centres, NAME.npz with rows and answers of then; a run of `fmtc fit` on tables/, its kit
ARCHIVE = Path(__file__).parents[1] / "data" / "written-by-0.1.zip"
VIEWS = {
    "lifted": "graph", "calibrated": "graph", "published": "graph", "lacking": "graph", "words": "graph",
    "private_anchors": "anchors", "private_mixture": "anchors",
}  # fmt: skip


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def tables(old):
    return {name: pd.read_csv(old / "tables" / f"{name}.csv") for name in ("north", "south", "west")}


def output(*line):
    done = CliRunner().invoke(main_group, list(map(str, line)))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", VIEWS)
def test_models_answer_as_they_did(old, name):
    model = fmtc.load(old / name)
    answers = np.load(old / f"{name}.npz")
    assert model.view_ == VIEWS[name]
    for cid in model.silos_:
        X = answers[f"{cid} rows"]
        X = sp.csr_array(X) if name == "words" else X
        assert_array_equal(model.predict(X, silos=cid), answers[f"{cid} labels"])
        assert_allclose(model.predict_proba(X, silos=cid), answers[f"{cid} probabilities"], atol=1e-6)


def test_a_model_that_was_written_calibrated_still_is(old):
    model = fmtc.load(old / "calibrated")
    rows = {cid: np.load(old / "calibrated.npz")[f"{cid} rows"] for cid in model.silos_}
    sure = model.confidence(rows)
    assert all(((found >= 0) & (found <= 1)).all() for found in sure.values())
    assert model.drift({cid: X + 20 for cid, X in rows.items()}).alarm


def test_a_model_is_written_again_as_it_was(old, tmp_path):
    for name in VIEWS:
        model = fmtc.load(old / name)
        assert fmtc.load(model.save(tmp_path / name)).get_params() == model.get_params()


def test_a_run_predicts_its_own_labels(old, tables):
    model = fmtc.load(old / "run")
    assert model.view_ == "mixture"
    for cid, table in tables.items():
        written = pd.read_csv(old / "run" / "labels" / f"{cid}.csv")
        columns = list(model.schema_.names)
        assert_array_equal(model.predict(table[columns], silos=cid), written["cluster"])


def test_commands_read_a_run(old):
    run, table = old / "run", old / "tables" / "north.csv"
    assert "high pressure" in output("explain", run)
    assert "3 silos" in output("explain", run, "--show", "model")
    assert "cluster" in output("predict", run, table)
    assert "silo north, run local" in output("outbox", "show", run)
    assert "high pressure" in output("explain", run, "--show", "atlas")
    assert "all as they were written" in output("outbox", "verify", run)


def test_the_page_of_a_run_can_be_made_again(old):
    assert len(summarise(old / "run")["silos"]) == 3


def test_a_newcomer_joins_with_an_old_kit(old, tables):
    model = fmtc.load(old / "run")
    late = pd.read_csv(old / "tables" / "late.csv")[list(model.schema_.names)]
    newcomer = fmtc.join_later(old / "kit", late, name="late", random_state=0)
    assert newcomer.run_.joined.guided
    assert (newcomer.labels_ == newcomer.predict(late)).mean() > 0.9


def test_a_run_goes_on_with_new_rows(old, tables):
    model = fmtc.load(model_folder(old / "run"))
    columns = list(model.schema_.names)
    before = model.predict(tables["north"][columns], silos="north")
    model.update({"north": tables["north"][columns]})
    assert (model.labels_ == before).mean() > 0.9
