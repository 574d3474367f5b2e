"""The page of a run: its numbers without a browser. What a browser makes of it is in tests/browser."""

import json
import re
import sys
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from tests.describe.test_clusters import assert_names_agree
from tests.views import FEW, graph_view

import fmtc
from fmtc import FMTC, Graph, Privacy, write_report
from fmtc.artifacts import runs
from fmtc.artifacts.files import write_json
from fmtc.cli import main_group
from fmtc.cli.leading import write_consensus
from fmtc.cli.words import Words
from fmtc.describe import Explanation
from fmtc.describe.words import empty_clusters_sentence
from fmtc.errors import FileError
from fmtc.loading import load_atlas
from fmtc.privacy.ledger import Total
from fmtc.protocol.auto import METHOD
from fmtc.protocol.base import LETTERS, entries
from fmtc.protocol.method import view_method
from fmtc.report import page, render, study, summarise
from fmtc.report.rows import _residual, stays
from fmtc.report.summary import _balance
from fmtc.report.words import _share_words, atlas_words, verdict
from fmtc.report.words import has as has_cluster
from fmtc.runtime.conductor import RESULT, write_record
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings
from fmtc.tables import Reading, Silo, read_silos

HOSTILE = "<script>alert(1)</script>"
COLUMNS = ["height", HOSTILE, "age", '"><img src=x onerror=alert(1)>']


def fmtc_run(*args):
    return CliRunner().invoke(main_group, [str(a) for a in args], prog_name="fmtc", env={"NO_COLOR": "1"})


def fmtc_ok(*args):
    done = fmtc_run(*args)
    assert done.exit_code == 0, done.output
    return done


def write_silos(folder, m=3, n=60, seed=0):
    rng = np.random.default_rng(seed)
    files = []
    for name in [f"silo{t}" for t in range(m)]:
        y = rng.integers(3, size=n)
        X = 4 * np.eye(4)[y] + rng.normal(size=(n, 4))
        frame = pl.DataFrame(X, schema=COLUMNS).with_columns(pl.Series("class", y), pl.Series("id", range(n)))
        frame.write_csv(folder / f"{name}.csv")
        files.append(folder / f"{name}.csv")
    return files


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three silos of three groups and the folders of runs: with what a page needs, one of each view, and without."""
    folder = tmp_path_factory.mktemp("home")
    files = write_silos(folder)
    fit = ["fit", *files, "-k", 3, "--id-column", "id", "--label-column", "class", *ROUNDS, "-q", "--out"]
    fmtc_ok(*fit, folder / "run", "--report", "--calibrate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmtc.report.rows.FEW_ROWS", 0)  # a fifth is held out once, not five times
        fmtc_ok(*fit, folder / "graph", "--report", *GRAPH)
    fmtc_ok(*fit, folder / "plain")
    return folder


ROUNDS = ("--max-iter", 4, "--set", "n_init=2")
GRAPH = ("--view", "graph", "--scale", "none", "--set", "lift=false")  # `graph_view` of tests/views.py


@pytest.fixture(scope="module")
def summary(home):
    return summarise(home / "run")


@pytest.fixture(scope="module", params=["run", "graph"])
def either(request, home):
    """The folder of a run and its summary; in the mixture view, then in the graph view."""
    return home / request.param, summarise(home / request.param)


class Page(HTMLParser):
    """Elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem:
            self.scripts[-1] += data
        else:
            self.words.append(data)


# ----------------------------------------------------------------------------------------------------- summary


def test_the_numbers_are_those_of_the_run(either):
    folder, summary = either
    report = json.loads((folder / "report.json").read_text())
    assert summary["view"] == report["view"] == ("mixture" if folder.name == "run" else "graph")
    assert re.findall(r"[\d,]+", summary["words"][0]) == ["3", "180", "4", "3"]
    assert [line["silo"] for line in summary["silos"]] == ["silo0", "silo1", "silo2"]
    for line, kept in zip(summary["silos"], report["silos"], strict=True):
        assert (line["rows"], line["score"], line["acc"]) == (kept["rows"], kept["score"], kept["acc"])
        more = report["details"]["silos"][line["silo"]]
        held = more["held_out"]
        assert line["gain"] == held["score"] - held["alone"]
        assert (held["rows"], line["held_out"]) == (60 if folder.name == "run" else 12, held["score"])
        assert line["held_out_acc"] == held["acc"] > 0.9
        assert (line["residual"], line["silhouette"]) == (more["residual"], more["silhouette"])
        assert 0.4 < line["silhouette"] < 1
        assert line["residual"] is None if summary["view"] == "mixture" else 0 < line["residual"] < 0.4
    for cluster in summary["clusters"]:
        sizes = report["silos"][int(cluster["silo"][-1])]["cluster_sizes"]
        assert cluster["rows"] == sizes[cluster["cluster"]]
    assert sum(cluster["rows"] for cluster in summary["clusters"]) == summary["n_rows"] == 180
    assert summary["bytes_up"] == sum(line["bytes_up"] for line in json.loads((folder / "history.json").read_text()))
    assert json.loads(json.dumps(summary)) == summary
    (classed,) = [sentence for sentence in summary["words"] if "known classes" in sentence]
    acc = 100 * np.mean([line["held_out_acc"] for line in summary["silos"]])
    assert f"{acc:.1f} %" in classed


def test_the_page_says_which_view_it_is_and_why(either):
    folder, summary = either
    words = " ".join("".join(Page(render(summary)).words).split())
    report = json.loads((folder / "report.json").read_text())
    if summary["view"] == "mixture":
        assert f"The mixture view was chosen: {report['view_reason']}." in words
    else:
        assert "The graph view was used." in words
    assert ("Log-likelihood per row" in words) == (summary["view"] == "mixture")
    assert ("Primal residual" in words) == (summary["view"] == "graph")
    data = json.loads(Page(render(summary)).scripts[1])
    assert data["calibrated"] == (summary["view"] == "mixture")
    history = json.loads((folder / "history.json").read_text())
    assert [line["likelihood"] for line in data["rounds"]] == [-line["objective"] for line in history]


def test_points_lie_where_clusters_are_told_apart(either, home):
    """On the principal axes of the projections, or of the rows in coordinates in which clusters are round."""
    folder, summary = either
    silos = read_silos(sorted(home.glob("silo*.csv")), Reading(id_column="id", label_column="class"))
    model = fmtc.load(folder / "model")
    E = np.vstack([model._models[silo.name].plotted(silo.X) for silo in silos])
    s = np.linalg.svd(E - E.mean(axis=0), compute_uv=False)
    plane = np.vstack([np.c_[shown["x"], shown["y"]] for shown in summary["points"].values()])
    assert_allclose(np.linalg.svd(plane, compute_uv=False), s[:2], rtol=1e-9)


def test_clusters_of_a_mixture_are_drawn_round(rng):
    """Plain distances to the centres are those of the model, in units of the clusters' shape; holes lie at the mean."""
    groups, mix = np.array([[0, 0], [12, 0], [0, 12]]), np.array([[2.0, 0], [1.5, 1.0]])
    X = groups[rng.integers(3, size=300)] + rng.normal(size=(300, 2)) @ mix.T
    model = FMTC(3, view="mixture", random_state=0, mixture=FEW).fit(X)
    (own,) = model._models.values()
    root = np.linalg.cholesky(own.covariance)
    centers = np.linalg.solve(root, own.means.T).T
    E = own.plotted(X)
    assert_allclose(np.linalg.norm(E[:, None] - centers, axis=2), model.transform(X), rtol=1e-9)
    X[0] = np.nan
    assert_allclose(own.plotted(X[:1])[0], np.linalg.solve(root, own.shares @ own.means))


def test_clusters_are_told_by_what_their_rows_are(home, summary):
    """Numbers, shares and values of the page are those of the files and their labels."""
    assert [one["cluster"] for one in summary["found"]] == [0, 1, 2]
    assert any("the same number means the same cluster in every silo" in sentence for sentence in summary["words"])
    frames = [
        pl.read_csv(file, new_columns=[*COLUMNS, "class", "id"])
        .join(pl.read_csv(home / "run" / "labels" / file.name), on="id")
        .with_columns(silo=pl.lit(name))
        for file, name in ((home / f"silo{t}.csv", f"silo{t}") for t in range(3))
    ]
    for one in summary["found"]:
        mine = pl.concat(frames).filter(pl.col("cluster") == one["cluster"])
        group = mine["class"].mode()[0]
        assert one["rows"] == len(mine)
        first = one["differences"][0]  # group j is far out in column j
        assert (first["what"], first["effect"] > 0) == (COLUMNS[group], True)
        assert one["name"].startswith(f"high {COLUMNS[group]}")
        assert sum(first["histogram"]["inside"]) == len(mine)
        assert sum(first["histogram"]["outside"]) == 180 - len(mine)
    for one in summary["clusters"]:
        frame = frames[int(one["silo"][-1])]
        inside = frame.filter(pl.col("cluster") == one["cluster"])
        for difference in one["differences"]:
            own, rest = (part[difference["what"]].mean() for part in (inside, frame.join(inside, on="id", how="anti")))
            assert difference["effect"] * (own - rest) > 0
            said = [float(word.replace("−", "-")) for word in difference["amounts"].split(" against ")]
            assert said == pytest.approx([own, rest], abs=0.06)


def test_the_code_on_the_page_gives_the_same_labels(home, summary, monkeypatch):
    """Also for files in other folders, which are as they were given."""
    monkeypatch.chdir(home)
    names = {}
    exec(summary["code"].replace('"model"', '"again"'), names)
    assert f"{(home / 'silo0.csv').as_posix()!r}" in summary["code"]
    kept = [pl.read_csv(home / "run" / "labels" / f"silo{t}.csv")["cluster"].to_list() for t in range(3)]
    assert names["model"].labels_.tolist() == [label for labels in kept for label in labels]
    assert (names["model"].confidence(names["X"]["silo0"], silos="silo0") > 0).all()  # calibrated, as the run
    assert "calibrate" not in summarise(home / "plain")["code"]


def test_an_old_run_gives_a_page_with_what_it_has(home):
    plain = summarise(home / "plain")
    assert "--report" in plain["absent"]["details"]
    assert {line["gain"] for line in plain["silos"]} == {line["silhouette"] for line in plain["silos"]} == {None}
    assert len(plain["found"]) == 3
    assert list(plain["points"]) == ["silo0", "silo1", "silo2"]
    assert "label_column='class'" in plain["code"]
    text = render(plain)
    assert plain["absent"]["details"] in text
    assert "Silhouette</button>" not in text.replace("<span", "</button><span")


def test_a_silo_that_joined_has_no_rounds(home, tmp_path):
    silos = read_silos([home / "silo0.csv"], Reading(id_column="id", drop=["class"]))
    model = FMTC(3, max_iter=3, random_state=0, mixture=FEW).fit({"silo0": silos[0].X})
    model.run_ = replace(model.run_, history=(), before=0)
    results = runs.results(model, silos)
    report = runs.report(model, results, files=[], as_published=False, seconds=1.0, notes=[])
    runs.write_run(tmp_path / "run", False, model, results, report)
    summary = summarise(tmp_path / "run")
    assert summary["bytes_up"] is None
    assert re.findall(r"\d+", summary["words"][0]) == ["1", "60", "4", "3"]
    assert not any(cluster["unlike"] for cluster in summary["clusters"])
    assert summary["absent"]["history"] in render(summary)


@pytest.fixture(params=["graph", "mixture", "auto"])
def consensus(make_federation, tmp_path, request):
    """The folder that `fmtc coordinate` leaves, of three silos of which one was lost."""
    settings = Settings(n_clusters=3, max_iter=4, view=request.param, scale="global")
    method = view_method(settings.view)
    result = run(LocalTransport(make_federation(), settings, method=method), settings, method=method)
    survey = Total("survey", "means", (6,), 3, 3 * 6 * 8)
    result = replace(result, missing=("c",), received=(survey, *result.received))
    write_record(RunSpec("1", settings, tmp_path, method_name=method.name), result)
    folder, model = tmp_path / "consensus", FMTC(3, max_iter=4, view=request.param, scale="global")
    write_consensus(Words(quiet=True), folder, False, model, tmp_path / RESULT, {"federation": "study"})
    return folder


def test_the_coordinator_of_a_private_run_has_a_page(tmp_path, rng):
    data = {name: rng.uniform(-1, 1, size=(200, 3)) for name in "abc"}
    model = FMTC(2, privacy=Privacy(8.0, bounds=(-1, 1), accept_weak=True), random_state=0)
    settings = model._settings()
    method = view_method(settings.view, settings.privacy)
    result = run(LocalTransport(data, settings, method=method), settings, method=method)
    write_record(RunSpec("1", settings, tmp_path, method_name=method.name), result)
    write_consensus(Words(quiet=True), tmp_path / "led", False, model, tmp_path / RESULT, {"federation": "study"})
    summary = summarise(tmp_path / "led")
    assert summary["words"][0] == "3 silos were divided into 2 clusters."
    assert summary["absent"]["points"] in render(summary)


def test_the_atlas_is_a_table_of_concepts_by_silos(either):
    folder, summary = either
    atlas = load_atlas(folder)
    assert [row["concept"] for row in summary["atlas"]["rows"]] == [0, 1, 2]
    for row, one in zip(summary["atlas"]["rows"], atlas.clusters, strict=True):
        assert [cell["share"] for cell in row["cells"]] == [atlas.shares(cid)[one.id] for cid in atlas.silos]
        assert all(0 <= cell["shade"] <= 4 for cell in row["cells"])
    page = Page(render(summary))
    cells = [attrs for tag, attrs in page.elements if tag == "td" and "cosine" in (attrs.get("title") or "")]
    assert len(cells) == sum(len(one.cosine) for one in atlas.clusters)
    assert "Atlas of clusters" in page.words


@pytest.mark.parametrize(
    ("has", "said"),
    [
        ([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1]],
         ["Each silo has 4 of the 6 clusters; none of them is in all silos."]),
        ([[2, 1, 1, 1, 0, 0], [8, 0, 0, 0, 1, 1]],
         ["Shares differ most for cluster 0: it has 80 % of the rows of silo 1 and 40 % of those of silo 0.",
          "Each silo has 3 to 4 of the 6 clusters; 1 of them is in all silos."]),
        ([[1, 1, 1], [1, 1, 0]],
         ["Shares differ most for cluster 0: it has 50 % of the rows of silo 1 and 34 % of those of silo 0.",
          "Cluster 2 has no rows in silo 1."]),
        ([[500, 420, 80], [520, 480, 3]],  # as in the finding: not "nearly the same shares of each cluster"
         ["The silos have nearly the same shares of the clusters that all of them have.",
          "Cluster 2 has hardly any rows in silo 1 (< 5 of 1,003)."]),
        ([[500, 300, 200], [500, 500, 0], [500, 500, 1], [9000, 9000, 80], [4, 4, 4], [50, 50, 0], [50, 50, 0]],
         ["Shares differ most for cluster 1: it has 50 % of the rows of silo 1 and 30 % of those of silo 0.",
          "Cluster 2 has no rows in silo 1, silo 5 and silo 6 and hardly any rows in silo 2 (< 5 of 1,001) and silo 3 "
          "(80 of 18,080)."]),
        ([[5, 5, 9]] + 4 * [[5, 5, 0]],
         ["Shares differ most for cluster 0: it has 50 % of the rows of silo 1 and 26 % of those of silo 0.",
          "Cluster 2 has no rows in 4 of 5 silos."]),
    ],
)  # fmt: skip
def test_what_silos_lack_is_one_sentence(has, said):
    """A cluster that a silo lacks is not where shares differ; many of them are counted, not listed."""
    shares = np.array(has) / np.sum(has, axis=1, keepdims=True)
    silos = [{"silo": f"silo {t}", "shares": row, "rows": sum(has[t])} for t, row in enumerate(shares.tolist())]
    counts = [sum(has_cluster(row[j], sum(row)) for row in has) for j in range(len(has[0]))]
    found = [{"cluster": j, "name": "", "silos": n} for j, n in enumerate(counts)]
    assert _share_words({"silos": silos, "found": found, "clusters": []}) == said


def words_of_page(folder):
    """The text of a page, as a reader gets it."""
    return " ".join(" ".join(Page(render(summarise(folder))).words).split())


def test_the_page_names_the_silo_that_nearly_lacks_a_cluster(tmp_path):
    """Three of 1,003 rows strayed there: shares are not nearly the same, and the cluster is not in two of two silos."""
    rng = np.random.default_rng(0)
    for name, counts in (("north", (500, 440, 60)), ("south", (520, 480, 3))):
        y = np.repeat([0, 1, 2], counts)
        X = 9 * np.eye(3)[y] + rng.normal(size=(len(y), 3))
        pl.DataFrame(X, schema=["a", "b", "c"]).write_csv(tmp_path / f"{name}.csv")
    fmtc_ok(
        "fit",
        tmp_path / "north.csv",
        tmp_path / "south.csv",
        "-k",
        3,
        "--set",
        "n_init=2",
        "-q",
        "--out",
        tmp_path / "run",
    )
    page = words_of_page(tmp_path / "run")
    assert "hardly any rows in south (< 5 of 1,003)" in page and "in 1 of 2 silos" in page
    assert "nearly the same shares of each cluster" not in page


def named_on(part):
    """Numbers and names of clusters in a part of a page."""
    found = re.findall(r'<span class="number">(\d)</span> (?:<bdi>(.*?)</bdi>|[<c])', part)
    return {int(number): name for number, name in found if name}


@pytest.mark.parametrize(("seed", "view"), [(0, "mixture"), (1, "graph")])
def test_a_cluster_has_one_name_which_agrees_with_its_numbers(tmp_path, seed, view):
    """On cards, in the atlas and by `explain`, also after --rename; −999 stays in one silo, four rows are few."""
    rng, files = np.random.default_rng(seed), [tmp_path / f"{name}.csv" for name in ("north", "south", "west")]
    for file in files:
        y = np.repeat([0, 1, 2], (60, 50, 4 if file.stem == "north" else 0))
        X = np.array([[0, 0, 0], [3, 2, 0], [0, 9, 9]])[y] + rng.normal(size=(len(y), 3))
        if file.stem == "west":
            X[rng.random(len(y)) < 0.02 + 0.1 * (y == 1), 0] = -999
        pl.DataFrame(X, schema=["a", "b", "c"]).write_csv(file)
    fmtc_ok("fit", *files, "-k", 3, "--set", "n_init=2", "-q", "--view", view, "--out", tmp_path / "run")
    for renamed in ((), ("--rename", "0=mild"), ("--rename", "0=", "--rename", "2=odd")):
        fmtc_ok("explain", tmp_path / "run", *renamed)
        told = Explanation.from_dict(json.loads(fmtc_ok("explain", tmp_path / "run", "--json").stdout))
        assert_names_agree(told)  # those of silos are the same
        assert load_atlas(tmp_path / "run").names == told.names
        page = render(summarise(tmp_path / "run"))
        cards, atlas = page.partition('id="atlas"')[0].split('<li class="card"')[1:], page.partition('id="atlas"')[2]
        assert named_on("".join(cards)) == named_on(atlas.partition("</table>")[0]) == told.names
        for one, card in zip(told.clusters, cards, strict=True):
            amounts = re.findall(r'<bdi>([abc])</bdi> <span class="values">(.*?)</span>', card)
            assert amounts == [(difference.what, difference.values) for difference in one.differences]


def test_clusters_without_rows_are_named(tmp_path):
    """Two groups in four clusters: the screen of `fit`, `explain` and the page say which are empty, and what to do."""
    rng = np.random.default_rng(0)
    files = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for file in files:
        frame = pl.DataFrame({"a": rng.integers(2, size=60).astype(float), "b": np.ones(60), "id": range(60)})
        frame.write_csv(file)
    out = tmp_path / "run"
    screen = fmtc_ok(
        "fit", *files, "--id-column", "id", "-k", 4, "--set", "n_init=2", "--view", "mixture", "--out", out
    ).stderr
    lines = json.loads((out / "report.json").read_text())["silos"]
    assert sum(n == 0 for n in np.sum([line["cluster_sizes"] for line in lines], axis=0)) == 2
    said = empty_clusters_sentence([line["cluster_sizes"] for line in lines])
    assert "have no rows: fit again with fewer clusters (2 of 4 have rows)" in said
    told, page = fmtc_ok("explain", out), words_of_page(out)
    assert screen.count(said) == told.stderr.count(said) == page.count(said[1:]) == 1
    assert told.stdout.count("no rows") == page.count("No rows") == 2 and " 0 %" not in told.stdout + page


def test_flags_of_the_atlas_are_told_in_a_sentence():
    assert atlas_words({"matched": 6}).startswith("All 6 clusters")
    assert atlas_words({"matched": 4, "unsure": 2, "unique": 1}) == (
        "4 of 7 clusters of single silos are like those of the same cluster elsewhere, 2 may belong to another cluster "
        "and 1 is like nothing in the other silos."
    )
    assert atlas_words({}) == ""


def test_the_coordinator_has_a_page_without_rows(consensus):
    summary = summarise(consensus)
    assert len(summary["atlas"]["silos"]) == 3 and all(cell["share"] for cell in summary["atlas"]["rows"][0]["cells"])
    assert summary["points"] == {}
    assert [line["lost"] for line in summary["silos"]] == [False, False, True]
    assert any(sentence.startswith("c ") for sentence in summary["words"])
    assert re.findall(r"\d+", summary["words"][0]) == ["3", "6", "3"]
    assert summary["sent"][0]["phase"] == "survey"
    assert len(summary["history"]) == summary["n_iter"]
    assert [line["round_no"] for line in summary["history"]] == list(range(1, summary["n_iter"] + 1))
    assert any(f"The {summary['view']} view" in sentence for sentence in summary["run_words"])
    assert summary["absent"]["points"] in render(summary)
    assert str(consensus / "report.html") in fmtc_ok("report", consensus).stderr


# ----------------------------------------------------------------------------------------------- what left a silo


def test_sparse_rows_send_no_means(tmp_path, rng):
    for name in "ab":
        sp.save_npz(tmp_path / f"{name}.npz", sp.csr_array(rng.poisson(0.5, size=(40, 6)).astype(float)))
    fmtc_ok("fit", tmp_path / "a.npz", tmp_path / "b.npz", "-k", 2, "--view", "graph", "--scale", "global",
            "--max-iter", 2, "-q", "--out", tmp_path / "run")  # fmt: skip
    summary = summarise(tmp_path / "run")
    assert [line["field"] for line in summary["sent"] if line["phase"] == "moments"] == ["n_samples", "squares"]
    assert {d["what"][:7] for one in summary["clusters"] for d in one["differences"]} == {"column "}


@pytest.mark.parametrize(
    "more", [[], GRAPH, [*GRAPH, "--set", "message_dtype=float32"], [*GRAPH, "--scale", "global"]], ids=str
)
def test_bytes_of_the_rounds_are_those_that_were_counted(home, tmp_path, more):
    files = sorted(home.glob("silo*.csv"))
    drop = ["--drop", "id", "--drop", "class"]
    fmtc_ok("fit", *files, *drop, "-k", 3, *ROUNDS, "-q", *more, "--out", tmp_path / "run")
    summary = summarise(tmp_path / "run")
    first, loop = ("hello", "round") if more else ("coordinates", "em")
    in_rounds = sum(line["bytes"] for line in summary["sent"] if line["phase"] == loop)
    assert in_rounds == summary["bytes_up"]
    assert ("moments" in {line["phase"] for line in summary["sent"]}) == (not more or "global" in more)
    assert {line["times"] for line in summary["sent"] if line["phase"] == first} == {3}


def test_the_page_says_what_each_field_can_tell(either):
    _, summary = either
    words = " ".join("".join(Page(render(summary)).words).split())
    phases = {
        "mixture": {"moments", "coordinates", "seed", "em", "probe", "conclude"},
        "graph": {"hello", "round", "finish", "settle", "number"},
    }
    assert {line["phase"] for line in summary["sent"]} == phases[summary["view"]]
    for line in summary["sent"]:
        entry = entries(METHOD.phase(line["phase"]).Answer)[line["field"]]
        assert line["shape"] == entry.size
        for part in (line["what"], line["tells"], line["shape"]):
            assert " ".join(part.split()) in words
    shapes = {letter for line in summary["sent"] for letter in line["shape"].split(" × ")}
    assert set(summary["letters"]) == shapes & set(LETTERS)
    assert "K" in shapes
    for letter, what in summary["letters"].items():
        assert f"{letter} stands for {what}" in words


def test_settings_are_those_of_fmtc_and_then_of_its_views(home, tmp_path):
    files = sorted(home.glob("silo*.csv"))
    fmtc_ok("fit", *files, "--drop", "id", "--drop", "class", "-k", 3, "--max-iter", 2, "--set", "ridge=0.5", "-q",
            "--as-published", "--out", tmp_path / "run")  # fmt: skip
    summary = summarise(tmp_path / "run")
    names = {(line["of"], line["name"]) for line in summary["settings"]}
    plain = set(FMTC().get_params()) - {"graph", "mixture"} | {"as_published"}
    assert names == {("FMTC", name) for name in plain} | {("Graph", name) for name in Graph().get_params()}
    changed = {line["name"] for line in summary["settings"] if line["changed"]}
    assert {"n_clusters", "max_iter", "ridge", "align", "rho", "as_published"} <= changed
    assert "schatten_p" not in changed
    published = FMTC.as_published(3, ridge=0.5, max_iter=2, random_state=0)
    (line,) = [line for line in summary["code"].splitlines() if line.startswith("model = ")]
    assert eval(line.partition(" = ")[2], {"FMTC": FMTC, "Graph": Graph}).get_params() == published.get_params()


@pytest.mark.parametrize(
    "view",
    [(), ("--view", "graph"), ("--view", "graph", "--set", "coupling=tensor"), ("--view", "mixture")],
    ids=["auto", "graph", "tensor", "mixture"],
)
def test_texts_send_the_counts_of_their_words(tmp_path, view):
    words = [["red", "green", "blue", "apple", "pear"], ["one", "two", "three", "four", "five"]]
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        texts = [" ".join(rng.choice(words[i % 2], 4)) for i in range(30)]
        pl.DataFrame({"notes": texts}).write_csv(tmp_path / f"{name}.csv")
    fmtc_ok("fit", tmp_path / "a.csv", tmp_path / "b.csv", "--text-column", "notes", "-k", 2, "--max-iter", 3, "-q",
            "--out", tmp_path / "run", "--report", *view)  # fmt: skip
    summary = summarise(tmp_path / "run")
    assert [line["field"] for line in summary["sent"] if line["phase"] == "moments"] == ["n_samples", "document_counts"]
    loop = "round" if summary["view"] == "graph" else "em"
    assert loop in {line["phase"] for line in summary["sent"]}
    averages = loop == "round" and "coupling=tensor" not in view
    assert any("Rows are texts: all silos share one projection." in said for said in summary["run_words"]) == averages
    report = (tmp_path / "run" / "report.json").read_text()
    assert json.loads(report, parse_constant=pytest.fail)["coupling"] == ("average" if averages else None)
    assert "explanation" not in summary["absent"]
    assert "text_column='notes'" in summary["code"]
    told = [{d["what"] for d in one["differences"]} for one in summary["found"]]
    assert sorted(map(sorted, told)) == sorted(map(sorted, words))  # five words each, in words


# ------------------------------------------------------------------------------------------------- small things


def fitted(make_federation):
    return graph_view(3, max_iter=5, random_state=0).fit(make_federation())


def test_small_words_and_numbers():
    assert _balance([5, 5, 5]) == pytest.approx(1)
    assert _balance([15, 0, 0]) == 0
    assert [page.written(x, "%+.3f") for x in (-0.0001, 0.02, -0.5)] == ["0.000", "+0.020", "−0.500"]
    assert (page.written(12345, "%d"), page.written(1e-3, "%.1e")) == ("12,345", "1.0e-03")
    line = {"gain": 0.02, "gain_error": 0.004}
    assert (verdict(line), verdict(line | {"gain_error": 0.011}), verdict({"gain": -0.02, "gain_error": None})) == (
        "up", "", "down")  # fmt: skip
    assert verdict({"gain": None, "gain_error": None}) == ""
    assert page.heights([0, 5, 10, 1000]) == [0.0, 0.8, 0.8, 26.0]
    assert page.spoken([0.6, 0.0, 0.4]) == "cluster 0 60 %, cluster 2 40 %"
    assert [part["left"] for part in page.stacked([0.6, 0.0, 0.4])] == [0.0, 0.6]
    assert len({page.mark(j) for j in range(32)}) == 32


# ------------------------------------------------------------------------------------------------------- study


def test_the_residual_is_what_the_projection_leaves(make_federation, rng):
    model, X = fitted(make_federation)._models["a"], make_federation()["a"]
    P = (X - X.mean(axis=0)) @ model.W
    assert _residual(X, 0.3 * P, model) == pytest.approx(0, abs=1e-12)
    other = rng.normal(size=P.shape)
    other -= P * (other * P).sum() / (P * P).sum()
    assert _residual(X, other, model) == pytest.approx(1)
    both = P / np.linalg.norm(P) + other / np.linalg.norm(other)
    assert _residual(X, both, model) == pytest.approx(0.5)


def of(model, X, **options):
    silos = [Silo(name, rows, None, np.arange(len(rows))) for name, rows in X.items()]
    return study(model, runs.results(model, silos), **options)


def test_who_stays_alone_gains_nothing(make_federation):
    X = make_federation(m=2, n=(60, 40), distance=1.0)
    own = {"final": "kmeans", "max_iter": 3, "n_init": 2, "random_state": 0}
    alone, coupled = (of(graph_view(3, beta=beta, **own).fit(X), X)["silos"] for beta in (0.0, 0.6))
    held, other = alone["a"]["held_out"], coupled["a"]["held_out"]
    assert held["score"] == held["alone"]  # uncoupled silos come to what each comes to in a fit of its own
    assert other["score"] != other["alone"]
    assert held["error"] == 0 < other["error"]
    assert alone["b"]["held_out"] is None  # 8 rows say nothing
    mixed = of(graph_view(3, beta=0.0, **own | {"final": "mixture"}).fit(X), X)["silos"]["a"]["held_out"]
    assert mixed["alone"] != mixed["score"]  # a mixture over the projections of all is company, too


def test_one_silo_is_not_compared_and_two_clusters_need_no_map(make_federation):
    X = make_federation(m=1, k=2)
    details = of(FMTC(2, max_iter=3, random_state=0, mixture=FEW).fit(X), X)
    assert details["silos"]["a"]["held_out"]["alone"] is None
    assert np.isnan(details["silos"]["a"]["held_out"]["acc"])  # no classes were given
    assert set(details["points"]["a"]) == {"probability"}


def test_held_out_rows_are_judged_on_the_graph_of_all_rows():
    """Two pairs of rows, linked within and across: the share of links that stay, not of links among held-out rows."""
    links = sp.csr_array(np.array([[0, 3, 1, 0], [3, 0, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]], dtype=float))
    y = np.array([0, 0, 1, 1])
    assert stays(links, y, np.array([0, 3]), 2) == pytest.approx((3 / 4 + 1) / 2)
    assert stays(links, y, np.array([0]), 2) == pytest.approx(3 / 4)  # one row is enough
    assert stays(links, np.zeros(4, dtype=int), np.arange(4), 2) == 0.5  # all in one cluster does not pay


def test_small_silos_are_not_frightening(make_federation):
    """Eighty rows of eight clusters: the number for unseen rows is near the score, as it means the same."""
    X = make_federation(m=3, k=8, n=(80, 80, 80), d=12)
    model = FMTC(8, max_iter=2, random_state=0, mixture=FEW).fit(X)
    details = of(model, X)["silos"]
    for name, rows in X.items():
        assert details[name]["held_out"]["score"] > 0.5 * model.score(rows, silos=name)


def test_a_map_has_a_place_for_every_row(make_federation, monkeypatch):
    monkeypatch.setattr("fmtc.report.rows.LANDMARKS", 60)
    X = make_federation(m=2)
    model = FMTC(3, max_iter=2, random_state=0, mixture=FEW).fit(X)
    points = of(model, X, gain=False)["points"]
    assert {len(points[name]["map_x"]) for name in "ab"} == {60}
    assert all(np.isfinite(points[name]["map_y"]).all() for name in "ab")


# ------------------------------------------------------------------------------------------------------ in Python


def shown(path):
    """Words of a page, and its data."""
    parsed = Page(path.read_text(encoding="utf-8"))
    return " ".join("".join(parsed.words).split()), json.loads(parsed.scripts[1])


@pytest.mark.parametrize("make", [partial(FMTC, mixture=FEW), graph_view], ids=["mixture", "graph"])
def test_a_fitted_model_writes_its_page(make_federation, tmp_path, make):
    data = make_federation()
    model = make(3, max_iter=4, random_state=0).fit(data)
    path = write_report(model, tmp_path / "pages" / "study.html", data, names={1: "severe"})
    words, kept = shown(path)
    assert words.index("study") < words.index("severe") < words.index("How the run went")
    assert [one["n"] for one in kept["points"]] == [60, 60, 60]
    told = model.explain(data)
    for one in told.clusters[0].differences:
        assert str(one) in words
    if model.view_ == "graph":
        assert "Share of the embedding that a linear" in words  # these are the rows it was fitted on
    assert "What joining changed" not in words
    X, clients = np.vstack(list(data.values())), np.repeat(list(data), 60)
    shuffled = np.random.default_rng(0).permutation(180)
    again = make(3, max_iter=4, random_state=0).fit(X[shuffled], silos=clients[shuffled])
    _, other = shown(write_report(again, tmp_path / "again.html", X[shuffled], silos=clients[shuffled]))
    assert [one["shares"] for one in other["silos"]] == [one["shares"] for one in kept["silos"]]


def test_the_code_on_a_page_has_no_generator(make_federation, tmp_path):
    """Nobody can begin again where a generator stood before the fit, and its `repr` is no code."""
    model = graph_view(3, max_iter=2, random_state=np.random.RandomState(0)).fit(make_federation(m=2))
    words, _ = shown(write_report(model, tmp_path / "page.html", make_federation(m=2)))
    assert "max_iter=2" in words
    assert "RandomState" not in words
    assert isinstance(model.random_state, np.random.RandomState)


def test_a_page_of_other_rows_has_no_residual_and_may_have_a_gain(make_federation, tmp_path):
    data = make_federation(m=2)
    model = graph_view(3, max_iter=2, random_state=0).fit(data)
    other = {name: rows[::-1] for name, rows in data.items()}
    words, _ = shown(write_report(model, tmp_path / "page.html", other))
    assert "Share of the embedding" not in words
    assert "Unseen rows" not in words
    words, _ = shown(write_report(model, tmp_path / "page.html", other, gain=True))
    assert "what joining changed" in words


def test_a_mixture_with_holes_and_categories_has_a_page(tmp_path, monkeypatch, rng):
    """Rounds have a likelihood only, probabilities are said, columns are told as levels."""
    monkeypatch.setattr("fmtc.report.rows.FEW_ROWS", 0)
    tables = {}
    for name in ("north", "south"):
        y = rng.integers(3, size=60)
        X = 4 * np.eye(3)[y] + rng.normal(size=(60, 3))
        X[rng.random(X.shape) < 0.1] = np.nan
        ward = [None if rng.random() < 0.1 else f"w{v}" for v in y]
        tables[name] = pl.DataFrame(X, schema=list("abc")).fill_nan(None).with_columns(ward=pl.Series(ward))
    model = FMTC(3, random_state=0, mixture=FEW).fit(tables)
    assert model.view_ == "mixture"
    words, kept = shown(write_report(model, tmp_path / "page.html", tables, gain=True))
    assert kept["calibrated"]
    assert [one["n"] for one in kept["points"]] == [60, 60]
    assert "Log-likelihood per row" in words
    assert "Primal residual" not in words
    assert "what joining changed" in words
    assert re.search(r"ward: w[012] \d+ % against", words)
    assert {line["primal_residual"] for line in kept["rounds"]} == {None}
    likelihood = [line["likelihood"] for line in kept["rounds"]]
    assert likelihood[-1] > likelihood[0]


# -------------------------------------------------------------------------------------------------------- page


def test_hostile_names_are_text_and_nothing_is_fetched(summary):
    text = render(summary)
    parsed = Page(text)
    assert HOSTILE not in text
    assert {tag for tag, _ in parsed.elements if tag in ("img", "iframe", "object", "embed")} == set()
    assert [attrs.get("src") for tag, attrs in parsed.elements if tag == "script"] == [None, None]
    assert not [
        attrs for _, attrs in parsed.elements if any(name.startswith("on") or name == "style" for name in attrs)
    ]
    links = {attrs["href"] for _, attrs in parsed.elements if "href" in attrs}
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert HOSTILE in "".join(parsed.words)


def test_the_policy_lets_in_this_style_and_script_only(summary):
    parsed = Page(render(summary))
    (policy,) = [attrs["content"] for tag, attrs in parsed.elements if attrs.get("http-equiv")]
    style, data, script = parsed.scripts
    assert "default-src 'none'" in policy
    assert f"style-src '{page._hash(style)}'" in policy
    assert f"script-src '{page._hash(script)}'" in policy
    shown = json.loads(data)
    assert [points["n"] for points in shown["points"]] == [60, 60, 60]
    assert shown["views"] == ["map", "plane"]


def test_the_data_cannot_end_their_element():
    text = page._embedded({"</script>": "<!-- & \u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script>": "<!-- & \u2028"}


def test_the_page_says_what_the_summary_says(summary):
    words = " ".join("".join(Page(render(summary)).words).split())
    for sentence in (*summary["words"], *summary["run_words"]):
        assert sentence in words
    for one in summary["found"]:
        assert one["name"] in words
    assert words.index(summary["found"][0]["name"]) < words.index("How the run went")
    for line in summary["settings"]:
        assert line["name"] in words
    assert " ".join(summary["code"].split()) in words


def test_every_list_of_features_and_every_link_has_its_place(summary):
    parsed = Page(render(summary))
    ids = [attrs["id"] for _, attrs in parsed.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in parsed.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attrs.get(name, ids[0]) in ids
        if attrs.get("href", "").startswith("#"):
            assert attrs["href"][1:] in ids


# ------------------------------------------------------------------------------------------------------ colours


def themes():
    css = (Path(page.__file__).parent / "common.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in re.findall(r"\{([^}]*)\}", css)[:2])
    return {"light": light, "dark": light | dark}


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    a, b = sorted((linear(colour) @ [0.2126, 0.7152, 0.0722] for colour in (a, b)), reverse=True)
    return (a + 0.05) / (b + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_can_be_read(theme):
    colour = themes()[theme]
    for ink in ("ink", "soft", "accent", "good", "bad", "warn"):
        for ground in ("ground", "surface", "raised"):
            assert contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)
    assert contrast(colour["on-accent"], colour["accent"]) >= 4.5
    assert all(contrast(colour[f"c{i}"], colour["surface"]) >= 3 for i in range(page.COLOURS))


# Machado, Oliveira and Fernandes (2009), full strength: protanopia, deuteranopia, tritanopia.
SIGHT = [
    np.eye(3),
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
]


def lab(rgb):
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = rgb @ np.transpose(to_xyz) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT, ids=["all colours", "no red", "no green", "no blue"])
def test_marks_differ_for_every_kind_of_colour_vision(theme, sight):
    rgb = np.array([linear(themes()[theme][f"c{i}"]) for i in range(page.COLOURS)])
    seen = lab(np.clip(rgb @ np.transpose(sight), 0, 1))
    distance = np.linalg.norm(seen[:, None] - seen, axis=2) + 1e3 * np.eye(len(seen))
    assert distance.min() > 25


# ------------------------------------------------------------------------------------------------- command line


def test_fit_writes_the_page_that_report_writes(home):
    fitted = (home / "run" / "report.html").read_text()
    before = sorted(file.name for file in (home / "run").iterdir())
    done = fmtc_ok("report", home / "run")
    assert done.stdout == ""
    assert (home / "run" / "report.html").read_text() == fitted
    assert sorted(file.name for file in (home / "run").iterdir()) == before
    assert fitted.startswith("<!doctype html>")


def test_report_writes_elsewhere_and_tells_as_json(home, tmp_path, summary):
    out = tmp_path / "pages" / "study.html"
    done = fmtc_ok("report", home / "run", "--out", out, "--json")
    assert json.loads(done.stdout) == {"out": str(out), **summary}
    refused = fmtc_run("report", home / "run", "--out", out)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    fmtc_ok("report", home / "run", "--out", out, "--force")


def test_report_opens_a_browser_when_asked(home, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    fmtc_ok("report", home / "run", "--open")
    assert opened == [(home / "run" / "report.html").as_uri()]


def test_what_is_no_run_is_refused(home, tmp_path):
    done = fmtc_run("report", home / "run" / "model")
    assert done.exit_code == 3
    assert "report.json" in done.stderr
    broken = tmp_path / "run"
    fmtc.load(home / "run" / "model").save(broken / "model")
    for report in ([], {"kind": "fmtc report", "schema": 1}, {"kind": "fmtc report", "schema": 9}, {"kind": "x"}):
        write_json(broken / "report.json", report)
        with pytest.raises(FileError, match=r"report\.json"):
            summarise(broken)


def test_without_jinja_nothing_is_begun(home, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for command in (
        ["fit", home / "silo0.csv", "-k", 3, "--report", "--out", tmp_path / "run"],
        ["report", home / "run"],
    ):
        done = fmtc_run(*command)
        assert done.exit_code == 1
        assert "fmtc[report]" in done.stderr
    assert not (tmp_path / "run").exists()


def test_points_of_a_page_are_no_more_than_five_thousand(tmp_path, monkeypatch):
    monkeypatch.setattr("fmtc.report.rows.POINTS", 50)
    monkeypatch.setattr("fmtc.report.rows.FEW_ROWS", 0)
    files = write_silos(tmp_path, m=2)
    done = fmtc_ok("fit", *files, "-k", 3, "--drop", "id", "--drop", "class", *ROUNDS, "--json", "--report",
                   "--out", tmp_path / "run")  # fmt: skip
    assert "details" not in json.loads(done.stdout)
    shown = summarise(tmp_path / "run")["points"]["silo0"]
    assert {len(values) for values in shown.values()} == {50}
    labels = pl.read_csv(tmp_path / "run" / "labels" / "silo0.csv")
    assert_array_equal(labels["cluster"].to_numpy()[shown["row"]], shown["cluster"])
    assert_allclose(labels["probability"].to_numpy()[shown["row"]], shown["probability"], atol=6e-4)
