"""A run from the coordinator's side over clients in kits: what it counts, and what `join` and `coordinate` write."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from tests.views import graph_view

import fmtc
from fmtc.artifacts.files import read_json
from fmtc.cli.federation import _write_consensus, _write_silo
from fmtc.cli.words import Words
from fmtc.estimator import load_atlas
from fmtc.privacy.ledger import LEDGER, read_lines, totals
from fmtc.report import summarise
from fmtc.runtime.conductor import RESULT, Spec, conduct, read_result
from fmtc.runtime.kitclient import ENDED, SALT, STATES, ClientSource, read_client_result
from fmtc.runtime.kitclient import RESULT as CLIENT_RESULT
from fmtc.schema import Column, Schema

from .kits import KitTransport, make_kits

MODEL = graph_view(3, max_iter=4, tol=0, n_neighbors=20, random_state=5, ridge=0.1, n_init=2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return {cid: rng.normal(size=(40, 5)) + 3 * rng.integers(2, size=(40, 1)) for cid in ("north", "south")}


@pytest.fixture(scope="module")
def home(data, tmp_path_factory):
    """A run of two silos after a comparison of columns: kits, and the coordinator's folder."""
    home = tmp_path_factory.mktemp("home")
    settings = MODEL.settings()
    transport = KitTransport(make_kits(data, home / "kits"), settings, random_state=5)
    (home / "run").mkdir()
    events = []
    conduct(transport, Spec("r", settings, home / "run", preflight="first"), lambda event, **_: events.append(event))
    assert events[-1] == "ended"
    return home


def test_the_coordinator_counts_what_the_clients_recorded(home):
    """Also what the comparison of columns has received, which is no part of the rounds."""
    result, _ = read_result(home / "run" / RESULT)
    lines = [line for cid in ("north", "south") for line in read_lines(home / "kits" / cid / LEDGER)]
    assert {(line.phase, line.field): (line.times, line.bytes) for line in result.received} == {
        (total.phase, total.field): (total.times, total.bytes) for total in totals(lines)
    }
    assert {line.phase for line in result.received} == {"survey", "hello", "round", "finish", "settle", "number"}


def test_what_join_writes_is_what_fit_finds(home, data, tmp_path):
    kit, words = home / "kits" / "south", Words(quiet=True)
    event = {"run": "r", "converged": False, "result": read_client_result(kit / STATES / "r" / CLIENT_RESULT)}
    report = _write_silo(words, ClientSource.read(kit), kit, event, tmp_path / "ours", False)
    fitted = MODEL.fit(data)
    labels = pl.read_csv(tmp_path / "ours" / "labels" / "south.csv")["cluster"].to_numpy()
    assert_array_equal(labels, fitted.labels_[40:])
    model = fmtc.load(tmp_path / "ours" / "model")
    assert model.get_params() == MODEL.get_params()
    assert (model.client_ids_, model.n_iter_, model.converged_, model.history_) == (["south"], 4, False, [])
    assert_array_equal(model.projections_["south"], fitted.projections_["south"])
    own = totals(read_lines(kit / LEDGER))
    assert {(row["phase"], row["field"]): (row["times"], row["bytes"]) for row in report["sent"]} == {
        (total.phase, total.field): (total.times, total.bytes) for total in own
    }
    summary = summarise(tmp_path / "ours")
    assert summary["sent"] == report["sent"]
    assert not (tmp_path / "ours" / "outbox").exists()  # it is in the kit


def test_the_atlas_of_a_silo_has_what_the_server_told(home, data, tmp_path):
    """Its own shares and features; cosines and flags are those of the model with all silos."""
    kit, words = home / "kits" / "south", Words(quiet=True)
    folder = kit / STATES / "r"
    event = {"run": "r", "result": read_client_result(folder / CLIENT_RESULT), **read_json(folder / ENDED)}
    _write_silo(words, ClientSource.read(kit), kit, event, tmp_path / "ours", False)
    atlas, whole = load_atlas(tmp_path / "ours"), MODEL.fit(data).atlas_
    assert atlas.client_ids == ("south",)
    for one, same in zip(atlas.concepts, whole.concepts, strict=True):
        assert one.presence == {"south": same.presence["south"]}
        assert one.flags == {"south": same.flags["south"]}
        assert one.cosine["south"] == pytest.approx(same.cosine["south"], abs=2e-4)
    assert fmtc.load(tmp_path / "ours").atlas_.to_dict()["concepts"][0]["flags"] == atlas.concepts[0].flags


def test_the_atlas_of_the_coordinator_is_that_of_all_silos(home, data, tmp_path):
    _write_consensus(Words(quiet=True), tmp_path / "out", False, MODEL, False, "study", home / "run" / RESULT, 0.0)
    atlas, whole = load_atlas(tmp_path / "out"), MODEL.fit(data).atlas_
    assert [(one.presence, one.flags) for one in atlas.concepts] == [
        (one.presence, one.flags) for one in whole.concepts
    ]
    assert len(summarise(tmp_path / "out")["atlas"]["rows"]) == 3


def test_what_coordinate_writes(home, tmp_path):
    _write_consensus(Words(quiet=True), tmp_path / "out", False, MODEL, False, "study", home / "run" / RESULT, 0.0)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["settings"]["solver"] == MODEL.solver.get_params()
    assert (report["client_ids"], report["missing"], report["n_iter"]) == (["north", "south"], [], 4)
    assert report["sent"][0]["phase"] == "survey"
    assert all(row["what"] and row["tells"] for row in report["sent"])
    assert summarise(tmp_path / "out")["n_clusters"] == 3


def test_a_coordinator_without_the_schema_of_the_clients_hears_it_at_once(data, tmp_path):
    """They have categories, which the coordinator learns from no file of its own."""
    schema = Schema((*(Column(f"column_{j}") for j in range(4)), Column("sex", "category", ("0", "1"))))
    for cid, X in data.items():
        (tmp_path / cid / "local").mkdir(parents=True)
        (tmp_path / cid / SALT).write_text("5a" * 32)
        frame = pl.DataFrame(np.c_[X[:, :4], np.arange(40) % 2], schema=list(schema.names))
        frame.write_csv(tmp_path / f"{cid}.csv")
        ClientSource(cid, str(tmp_path / f"{cid}.csv"), schema=schema.to_dict()).write(tmp_path / cid)
    (tmp_path / "run").mkdir()
    events = {}
    settings = fmtc.FMTC(2, random_state=0).settings()
    transport = KitTransport({cid: tmp_path / cid for cid in data}, settings, random_state=0)
    spec = Spec("r", settings, tmp_path / "run", preflight="first")
    conduct(transport, spec, lambda event, **about: events.update({event: about}))
    assert "1 column of categories, and the coordinator knows of 0" in events["refused data"]["why"]
    assert "moments" not in {message.phase for _, message in transport.seen}
