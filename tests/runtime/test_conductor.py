"""A run from the coordinator's side over clients in kits: what it counts, and what `join` and `coordinate` write."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from numpy.testing import assert_array_equal
from tests.views import FEW, graph_view

import fmtc
from fmtc.artifacts.files import fingerprint
from fmtc.artifacts.runs import read_explanation
from fmtc.cli import main_group
from fmtc.cli.flags import Output
from fmtc.cli.joining import write_silo
from fmtc.cli.leading import write_consensus
from fmtc.cli.words import Words, show_run
from fmtc.describe.words import held_words
from fmtc.loading import load_atlas
from fmtc.privacy.ledger import LEDGER, read_lines, totals
from fmtc.protocol.method import ClientResult, view_method
from fmtc.report import render, summarise
from fmtc.runtime.conductor import RESULT, conduct, read_record
from fmtc.runtime.events import EVENTS, at_coordinator
from fmtc.runtime.kitclient import RESULT as CLIENT_RESULT
from fmtc.runtime.kitclient import SALT, STATES, ClientSource, KeptResult, read_client_result
from fmtc.runtime.spec import RunSpec
from fmtc.schema import Column, Schema
from fmtc.tables import Reading

from .kits import KitTransport, how_it_ended, make_kits, told

MODEL = graph_view(3, max_iter=4, tol=0, n_neighbors=20, random_state=5, ridge=0.1, n_init=2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return {cid: rng.normal(size=(40, 5)) + 3 * rng.integers(2, size=(40, 1)) for cid in ("north", "south")}


@pytest.fixture(scope="module")
def home(data, tmp_path_factory):
    """A run of two silos after a comparison of columns: kits, and the coordinator's folder."""
    home = tmp_path_factory.mktemp("home")
    settings = MODEL._settings()
    transport = KitTransport(make_kits(data, home / "kits"), settings, random_state=5)
    (home / "run").mkdir()
    events = at_coordinator(home / "run")
    conduct(transport, RunSpec("r", settings, home / "run", preflight="first"), events)
    assert events.news()[-1]["event"] == "ended"
    return home


def test_the_coordinator_counts_what_the_clients_recorded(home):
    """Also what the comparison of columns has received, which is no part of the rounds."""
    result, _ = read_record(home / "run" / RESULT)
    lines = [line for cid in ("north", "south") for line in read_lines(home / "kits" / cid / LEDGER)]
    assert {(line.phase, line.field): (line.times, line.bytes) for line in result.received} == {
        (total.phase, total.field): (total.times, total.bytes) for total in totals(lines)
    }
    assert {line.phase for line in result.received} == {"survey", "hello", "round", "finish", "settle", "number"}


def test_what_join_writes_is_what_fit_finds(home, data, tmp_path):
    kit, words = home / "kits" / "south", Words(quiet=True)
    event = {"run": "r", "converged": False, "result": read_client_result(kit / STATES / "r" / CLIENT_RESULT)}
    report = write_silo(words, ClientSource.read(kit), kit, event, Output(tmp_path / "ours"))
    fitted = MODEL.fit(data)
    labels = pl.read_csv(tmp_path / "ours" / "labels" / "south.csv")["cluster"].to_numpy()
    assert_array_equal(labels, fitted.labels_[40:])
    model = fmtc.load(tmp_path / "ours" / "model")
    assert model.get_params() == MODEL.get_params()
    assert (model.silos_, model.n_iter_, model.converged_, model.run_.rounds) == (["south"], 4, False, [])
    assert_array_equal(model.projections_["south"], fitted.projections_["south"])
    own = totals(read_lines(kit / LEDGER))
    assert {(row["phase"], row["field"]): (row["times"], row["bytes"]) for row in report["sent"]} == {
        (total.phase, total.field): (total.times, total.bytes) for total in own
    }
    summary = summarise(tmp_path / "ours")
    assert summary["sent"] == report["sent"]
    assert not (tmp_path / "ours" / "outbox").exists()  # it is in the kit


def test_a_row_of_what_join_wrote_is_found_by_its_identifier(home, data, tmp_path):
    kit, file = home / "kits" / "south", tmp_path / "ours.csv"
    columns = {f"c{j}": column for j, column in enumerate(data["south"].T)}
    pl.DataFrame({"patient": [f"p{i}" for i in range(40)], **columns}).write_csv(file, float_precision=17)
    source = replace(ClientSource.read(kit), data=str(file), reading=Reading(id_column="patient"))
    kept = read_client_result(kit / STATES / "r" / CLIENT_RESULT)
    kept = replace(kept, data=fingerprint(source.rows(kit).X, source.rows(kit).ids))
    write_silo(Words(quiet=True), source, kit, {"run": "r", "converged": False, "result": kept}, Output(tmp_path / "o"))
    done = CliRunner().invoke(main_group, ["explain", str(tmp_path / "o"), "--row", "p17"])
    assert done.exit_code == 0 and "patient p17 of south: cluster" in done.output, done.output


def test_a_silo_of_texts_reads_words_and_no_numbers_of_columns(tmp_path):
    """The texts are at the silo, so that what its clusters are can be said in words, as by `fmtc fit`."""
    texts = [f"{word} the patient number{i}" for word in ("cough fever", "broken bone") for i in range(15)]
    file, kit = tmp_path / "south.csv", tmp_path / "south"
    pl.DataFrame({"notes": texts}).write_csv(file)
    (kit / "local").mkdir(parents=True)
    (kit / SALT).write_text("5a" * 32)
    source = ClientSource("south", str(file), Reading(text_column="notes"))
    source.write(kit)
    silo = source.rows(kit)
    model = fmtc.FMTC(2, view="graph", scale="tfidf", random_state=0).fit({"south": silo.X})
    settings = {name: value for name, value in asdict(model._settings()).items() if name not in ("seed", "levels")}
    kept = KeptResult(
        ClientResult(model._models["south"], model.labels_), (), fingerprint(silo.X, silo.ids), 3,
        settings | {"random_state": 0}, 1.0, "r", "",
    )  # fmt: skip
    write_silo(Words(quiet=True), source, kit, {"run": "r", "converged": True, "result": kept}, Output(tmp_path / "o"))
    explained = str(read_explanation(tmp_path / "o"))
    assert any(word in explained for word in ("cough", "fever", "broken", "bone")), explained


def test_a_silo_says_that_it_counts_its_own_rows(home, tmp_path, capsys):
    """On the screen of `join`, on its page and in `explain`: shares are not those of all rows of the run."""
    kit = home / "kits" / "south"
    event = {"run": "r", "converged": False, "result": read_client_result(kit / STATES / "r" / CLIENT_RESULT)}
    report = write_silo(Words(quiet=True), ClientSource.read(kit), kit, event, Output(tmp_path / "ours"))
    show_run(Words(), report, tmp_path / "ours")
    screen = capsys.readouterr().err
    page = render(summarise(tmp_path / "ours"))
    told = CliRunner().invoke(main_group, ["explain", str(tmp_path / "ours")], prog_name="fmtc").output
    assert "of this silo's rows" in screen and "of this silo&#39;s rows" in page
    assert "of all rows" not in screen + page
    assert "those of this silo alone" in " ".join(told.split()) and "those of this silo alone" in page
    assert fewer(report) == ("no rows in this silo" in screen) == ("no rows in this silo" in told)


def fewer(report):
    """Whether a silo lacks a cluster."""
    return 0 in [int(n) for line in report["silos"] for n in line["cluster_sizes"]]


def test_the_atlas_of_a_silo_has_what_the_server_told(home, data, tmp_path):
    """Its own shares and features; cosines and flags are those of the model with all silos."""
    kit, words = home / "kits" / "south", Words(quiet=True)
    folder = kit / STATES / "r"
    event = {"run": "r", "result": read_client_result(folder / CLIENT_RESULT), **how_it_ended(kit)}
    write_silo(words, ClientSource.read(kit), kit, event, Output(tmp_path / "ours"))
    atlas, whole = load_atlas(tmp_path / "ours"), MODEL.fit(data).atlas_
    assert atlas.silos == ("south",)
    for one, same in zip(atlas.clusters, whole.clusters, strict=True):
        assert one.presence == {"south": same.presence["south"]}
        assert one.flags == {"south": same.flags["south"]}
        assert one.cosine["south"] == pytest.approx(same.cosine["south"], abs=2e-4)
    assert fmtc.load(tmp_path / "ours").atlas_.to_dict()["clusters"][0]["flags"] == atlas.clusters[0].flags


def test_the_atlas_of_the_coordinator_is_that_of_all_silos(home, data, tmp_path):
    write_consensus(Words(quiet=True), tmp_path / "out", False, MODEL, home / "run" / RESULT, {"federation": "study"})
    atlas, whole = load_atlas(tmp_path / "out"), MODEL.fit(data).atlas_
    assert [(one.presence, one.flags) for one in atlas.clusters] == [
        (one.presence, one.flags) for one in whole.clusters
    ]
    assert len(summarise(tmp_path / "out")["atlas"]["rows"]) == 3


def test_what_coordinate_writes(home, tmp_path):
    write_consensus(Words(quiet=True), tmp_path / "out", False, MODEL, home / "run" / RESULT, {"federation": "study"})
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert MODEL.graph.get_params().items() <= report["settings"].items()
    assert (report["client_ids"], report["missing"], report["n_iter"]) == (["north", "south"], [], 4)
    assert report["sent"][0]["phase"] == "survey"
    assert all(row["what"] and row["tells"] for row in report["sent"])
    assert summarise(tmp_path / "out")["n_clusters"] == 3


# ------------------------------------------------------------------------------------------- a silo in other units


VIEWS = {"mixture": fmtc.FMTC(3, view="mixture", random_state=0, mixture=FEW), "graph": MODEL}


@pytest.fixture
def three():
    """Three silos with the same clusters, the last in other units."""
    rng = np.random.default_rng(1)
    X = {
        cid: rng.normal(size=(60, 4)) + 9 + 6 * np.eye(4)[rng.integers(3, size=60)] for cid in ("east", "north", "west")
    }
    return X | {"west": 1000 * X["west"]}


def conducted(three, home, model, **more):
    """Events of a run of silos in kits, and the transport; the coordinator's folder is `run`."""
    settings = model._settings()
    method = view_method(settings.view)
    kits = {cid: home / cid for cid in three} if (home / "run").exists() else make_kits(three, home)
    transport = KitTransport(kits, settings, method=method.name, random_state=0)
    (home / "run").mkdir(exist_ok=True)
    spec = RunSpec("r", settings, home / "run", method_name=method.name, preflight="first", **more)
    events = at_coordinator(spec.folder)
    conduct(transport, spec, events)
    return {event["event"]: event for event in events.news()}, transport


def test_a_silo_in_other_units_ends_the_run_before_it_begins_and_hears_why(three, tmp_path):
    events, transport = conducted(three, tmp_path, VIEWS["mixture"])
    assert {"surveyed", "differ", "ended"} == set(events)
    assert {message.phase for _, message in transport.seen} == {"survey", "verdict"}
    said = {cid: told(transport.kits[cid], "preflight")[-1] for cid in three}
    assert [said[cid][what] for cid in ("north", "east") for what in ("error", "note")] == [[], [], [], []]
    assert "multiply them by 0.001, or start the run with --accept-units" in said["west"]["error"][0]


@pytest.mark.parametrize("view", VIEWS)
def test_a_silo_that_was_set_aside_and_its_coordinator_are_told(three, tmp_path, view):
    model = VIEWS[view]
    events, transport = conducted(three, tmp_path, model, accept_units=True)
    assert "differ" not in events
    for _ in range(2):  # also where the coordinator was lost before it could tell
        assert {cid: "held" in transport.ended(cid) for cid in three} == {"east": False, "north": False, "west": True}
        for folder in (*transport.kits.values(), tmp_path / "run"):
            (folder / EVENTS).unlink()
        transport = conducted(three, tmp_path, model, accept_units=True)[1]

    words = Words(quiet=True)
    write_consensus(words, tmp_path / "out", False, model, tmp_path / "run" / RESULT, {"federation": "study"})
    assert words.notes == [held_words(["west"])]
    atlas = load_atlas(tmp_path / "out")
    assert atlas.silos == ("east", "north")
    assert any("'west'" in note for note in atlas.notes)
    assert held_words(["west"]) in summarise(tmp_path / "out")["words"]

    for cid in three:
        words, kit, out = Words(quiet=True), tmp_path / cid, tmp_path / f"{cid}'s"
        folder = transport.folder(cid)
        event = {"run": "r", "result": read_client_result(folder / CLIENT_RESULT), **how_it_ended(kit)}
        with words.warnings_as_notes():
            report = write_silo(words, ClientSource.read(kit), kit, event, Output(out))
        (line,) = report["trust"]["clients"]
        assert line["held"] is (cid == "west")
        assert line["kept"] == (event["result"].client.choice or "federated")
        sentence = held_words([cid], {cid: line["kept"]})
        held = cid == "west"
        assert (sentence in words.notes) is (sentence in summarise(out)["words"]) is held
        assert sentence not in summarise(out)["notes"]  # it is a finding, and said once
        assert (held_words([cid]) in read_explanation(out).notes) is held
        assert (held_words([cid]) in load_atlas(out).notes) is held
        assert fmtc.load(out).run_.held == (("west",) if held else ())


def test_a_coordinator_without_the_schema_of_the_clients_hears_it_at_once(data, tmp_path):
    """They have categories, which the coordinator learns from no file of its own."""
    schema = Schema((*(Column(f"column_{j}") for j in range(4)), Column("sex", "category", ("0", "1"))))
    for cid, X in data.items():
        (tmp_path / cid / "local").mkdir(parents=True)
        (tmp_path / cid / SALT).write_text("5a" * 32)
        frame = pl.DataFrame(np.c_[X[:, :4], np.arange(40) % 2], schema=list(schema.names))
        frame.write_csv(tmp_path / f"{cid}.csv")
        ClientSource(cid, str(tmp_path / f"{cid}.csv"), Reading(schema=schema)).write(tmp_path / cid)
    (tmp_path / "run").mkdir()
    settings = fmtc.FMTC(2, random_state=0, mixture=FEW)._settings()
    transport = KitTransport({cid: tmp_path / cid for cid in data}, settings, random_state=0)
    events = at_coordinator(tmp_path / "run")
    conduct(transport, RunSpec("r", settings, tmp_path / "run", preflight="first"), events)
    assert "1 column of categories, and the coordinator knows of 0" in events.news()[-1]["why"]
    assert "moments" not in {message.phase for _, message in transport.seen}
