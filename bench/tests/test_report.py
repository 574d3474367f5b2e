"""The page of a comparison: its numbers without a browser. What a browser makes of it is in tests/browser."""

import base64
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fmtc.artifacts.files import write_json
from fmtc.errors import FileError
from fmtc.report import page
from fmtc_bench.compare import comparison, freeze, paper, results, tables
from fmtc_bench.compare.evidence import COLUMNS, DATASETS, FEDERATIONS, TRIED, ablations, compact, first_federations
from fmtc_bench.compare.federations import title
from fmtc_bench.compare.grid import Cell, Store
from fmtc_bench.compare.methods import METHODS
from fmtc_bench.compare.results import write_results
from fmtc_bench.compare.summary import mean_ranks, summarise
from fmtc_bench.report import page as own_page
from fmtc_bench.report.page import FIGURES, render_results, summarise_results

HERE = Path(own_page.__file__).parent

HOSTILE = "<script>alert(1)</script>"
PNG = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for kind, body in (
        (b"IHDR", struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(b"\0abc" * 2)), (b"IEND", b"")
    )
)  # fmt: skip


def row(dataset, method, acc=0.5, *, trial="default", split=0, status="ok", seconds=1.5):
    """A row as `run_cells` gives it."""

    def part(value):
        return {"mean": {"acc": value, "nmi": value / 2, "ri": 0.9, "ari": value / 4, "ri_one_cluster": 0.1}}

    cell = Cell(dataset, method, trial, split)
    about = {"dataset": dataset, "method": method, "trial": trial, "split": split, "seed": 0, "status": status}
    about |= {"seconds": 2.0, "machine": "a machine", "code": "0123", "versions": {"fmtc": "1"}, "error": None}
    about |= {"key": cell.key if trial == "default" and method in METHODS else ""}
    if status != "ok":
        return about | {"error": f"ValueError: {method} broke on {dataset}"}
    scores = {"train": part(acc), "test": part(acc - 0.02) | {"acc_frozen": acc - 0.05}, "vote": part(acc - 0.01)}
    cost = {"seconds_fit": seconds, "peak_memory": 3_000_000, "bytes_up": 10, "bytes_down": 20, "rounds": 5}
    return about | scores | cost


def keep(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.csv").write_text(compact(rows), encoding="utf-8")
    return folder


def store(folder, rows):
    for one in rows:
        Store(folder / "cells.jsonl").add(one)
    return folder


@pytest.fixture(scope="module")
def rows():
    """Two splits of five methods on the data sets of the tables and on test federations; ablations; a draw."""
    rng = np.random.default_rng(0)
    level = {"fmtc": 0.8, "stsc": 0.6, "usc": 0.62, "kmeans": 0.5, "random": 0.3}
    found = [
        row(data, method, acc + rng.normal(0, 0.04), split=split, seconds=1 + split)
        for data in (*DATASETS, *FEDERATIONS) for method, acc in level.items() for split in (0, 1)
    ]  # fmt: skip
    for name in TRIED[:2]:
        for what, _value, data, method in ablations(name):
            if what in ("align", "rows") and (data, method) != (name, "fmtc"):
                found += [row(data, method, 0.7 + rng.normal(0, 0.01), split=split) for split in (0, 1)]
    return [*found, row("digits", "stsc", 0.95, trial="3")]


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    """What `fmtc-bench paper` leaves, with pictures."""
    folder = tmp_path_factory.mktemp("home") / "results"
    write_results(rows, folder, "fmtc-bench paper --splits 2")
    (folder / "figures").mkdir()
    for name in ("clouds", "of_ours", "gains_ari", "critical_difference_ari", "inside_outside_acc"):
        (folder / "figures" / f"{name}.png").write_bytes(PNG)
    return folder


@pytest.fixture(scope="module")
def summary(folder):
    return summarise_results(folder)


class Page(HTMLParser):
    """Elements of a page with their attributes, the text of its scripts, and its words."""

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


def cell_of(summary, dataset, method, mode="default"):
    (found,) = [
        cell for cell in summary["table"]["cells"]
        if (cell["dataset"], cell["method"], cell["mode"]) == (dataset, method, mode)
    ]  # fmt: skip
    return found


# ------------------------------------------------------------------------------------------------------- numbers


def test_cells_are_those_of_the_summary_beside_those_of_the_paper(rows, summary):
    for score in ("acc", "nmi", "ri", "ari"):
        for entry in summarise(rows, score=score):
            cell = cell_of(summary, entry["dataset"], entry["method"], entry["mode"])
            for part in ("in", "out"):
                mean, spread, printed = cell[score][part]
                assert mean == pytest.approx(entry[part], abs=2e-5)
                told = None if np.isnan(entry[part + "_sd"]) else pytest.approx(entry[part + "_sd"], abs=2e-5)
                assert spread == told
                assert printed == paper.printed(entry["dataset"], entry["method"], score, part)
    assert cell_of(summary, "webkb4", "fmtc")["acc"]["out"][2] == 0.6467
    assert cell_of(summary, "webkb4", "fmtc")["seconds"] == 1.5
    assert cell_of(summary, "digits", "stsc", "oracle")["trial"] == "3"
    assert summary["table"]["modes"].keys() == {"default", "oracle"}
    assert json.loads(json.dumps(summary)) == summary


def test_frozen_accuracy_is_that_of_the_matching_of_the_training_rows(rows, summary):
    for data in ("yale", FEDERATIONS[0]):
        mine = [r for r in rows if (r["dataset"], r["method"], r["trial"]) == (data, "stsc", "default")]
        cell = cell_of(summary, data, "stsc")
        assert cell["frozen"]["out"][0] == pytest.approx(np.mean([r["test"]["acc_frozen"] for r in mine]), abs=2e-5)
        assert cell["frozen"]["in"][:2] == cell["acc"]["in"][:2]
        assert cell["frozen"]["out"][2] is None  # the paper has no such score


def test_test_federations_are_no_variants_and_are_shown_first(summary):
    table = summary["table"]
    assert (table["scopes"], table["scope"], table["score"]) == (["test", "plain", "all"], "test", "ari")
    kinds = {line["name"]: line["kind"] for line in table["datasets"]}
    assert {name for name, kind in kinds.items() if kind == "test"} == set(FEDERATIONS)
    assert {name for name, kind in kinds.items() if kind == "plain"} == set(DATASETS)
    assert [line["title"] for line in table["datasets"][: len(FEDERATIONS)]] == [title(name) for name in FEDERATIONS]
    view = table["views"]["test default ari out"]
    assert view["n"] == len(FEDERATIONS)
    assert min(view["ranks"], key=view["ranks"].get) == "fmtc"


def test_ranks_and_the_best_are_of_plain_methods_unless_asked(rows, summary):
    plain = [entry for entry in summarise(tables.of_tables(rows)) if entry["mode"] == "default"]
    view = summary["table"]["views"]["plain default acc out"]
    assert view["ranks"] == mean_ranks(plain, "out")
    assert view["n"] == len(DATASETS)
    for name in DATASETS:
        best = max(entry["out"] for entry in plain if entry["dataset"] == name)
        assert view["best"][name] == pytest.approx(best, abs=2e-5)
    everything = summary["table"]["views"]["all default acc out"]
    assert everything["n"] == 2  # those of the ablations
    assert "fmtc/align=False" in everything["ranks"]
    assert {line["name"] for line in summary["table"]["datasets"] if line["kind"] == "variant"} == {
        f"{name}?rows={n}" for name in TRIED[:2] for n in (50, 100, 200)
    }


def test_data_sets_that_not_all_were_run_on_do_not_rank(tmp_path):
    rows = [row(data, method, acc) for data in ("yale", "digits") for method, acc in (("fmtc", 0.7), ("kmeans", 0.6))]
    summary = summarise_results(keep(tmp_path, [*rows, row("yale", "random", 0.9)]))
    view = summary["table"]["views"]["all default acc in"]
    assert (view["n"], view["ranks"]) == (1, {"random": 1.0, "fmtc": 2.0, "kmeans": 3.0})
    assert (summary["findings"][0]["first"], summary["findings"][0]["significant"]) == ("random", None)
    assert re.findall(r"\d[\d.]*", summary["findings"][0]["sentence"]) == ["1.00", "3", "1"]
    apart = summarise_results(keep(tmp_path / "apart", [row("yale", "fmtc"), row("digits", "kmeans")]))
    assert apart["table"]["views"]["all default acc in"] == {"best": {"yale": 0.5, "digits": 0.5}, "ranks": {}, "n": 0}
    assert apart["findings"] == []


def test_a_score_that_is_no_number_is_nobody_s_best(tmp_path):
    rows = [row("yale", "fmtc", np.nan, seconds=np.nan), row("yale", "kmeans", 0.5)]
    summary = summarise_results(keep(tmp_path, rows))
    assert summary["about"]["seconds"] == 1.5
    assert cell_of(summary, "yale", "fmtc")["acc"]["in"][0] is None
    view = summary["table"]["views"]["all default acc in"]
    assert (view["best"], view["ranks"]) == ({"yale": 0.5}, {"fmtc": 2.0, "kmeans": 1.0})
    rows += [row("no-such", name, status="failed") for name in ("fmtc", "kmeans")]
    assert summarise_results(keep(tmp_path, rows))["table"]["views"]["all default acc in"] == view  # all failed there
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_variants_are_shown_where_there_is_little_else(tmp_path):
    rows = [row("digits", "fmtc"), row("digits", "fmtc/beta=0.4", 0.6)]
    table = summarise_results(keep(tmp_path, rows))["table"]
    assert (table["scopes"], table["scope"]) == (["plain", "all"], "all")
    assert table["views"]["all default acc in"]["ranks"] == {"fmtc": 2.0, "fmtc/beta=0.4": 1.0}
    assert [(line["title"], line["group"]) for line in table["methods"]] == [
        ("FMTC", "ours"),
        ("FMTC beta=0.4", "ours"),
    ]
    assert summarise_results(keep(tmp_path / "one", rows[1:]))["table"]["scopes"] == ["all"]


# --------------------------------------------------------------------------------------------------------- words


def test_the_words_count_and_say_who_is_first(rows, summary):
    sets = len({*DATASETS, *(name.partition("?")[0] for name in FEDERATIONS)})
    assert summary["title"] == f"5 methods on {sets} data sets"
    plain = 5 * 2 * (len(DATASETS) + len(FEDERATIONS))
    assert [re.findall(r"\d+", sentence) for sentence in summary["words"]] == [
        [*(str(len(rows)) if len(rows) < 1000 else f"{len(rows):,}").split(","), "5", str(sets), "2"],
        [str(len(FEDERATIONS))], [str(len(rows) - plain - 1)], ["1"],
    ]  # fmt: skip
    assert [found["score"] for found in summary["findings"]] == list(comparison.PRIMARY)
    assert {found["first"] for found in summary["findings"]} == {"fmtc"}


def scored(tmp_path, ours, *, average=None):
    """A summary of a few methods on one test federation of each data set; FMTC by these scores, others as below."""
    places = first_federations()
    gaps = 0.01 + 0.001 * np.arange(len(places))  # no two alike: ties cost scipy seconds
    rows = [row(data, "fmtc", ours(i) + gap) for i, (data, gap) in enumerate(zip(places, gaps, strict=True))]
    rows += [
        row(data, name, level) for data in places for name, level in (("stsc", 0.5), ("kmeans", 0.4), ("usc", 0.9))
    ]
    rows += [row(data, "fmtc-average", average) for data in places if average]
    return summarise_results(keep(tmp_path, rows))


def test_the_first_finding_is_who_is_first_and_by_how_much_fmtc_is_ahead(tmp_path):
    summary = scored(tmp_path, lambda i: 0.7)
    found, entry = summary["findings"][0], summary["test"]["scores"][0]
    assert (found["score"], found["first"], found["second"]) == ("ari", "fmtc", "stsc")  # uSC pools rows
    (line,) = [line for line in entry["lines"] if line["name"] == "stsc"]
    n = len(first_federations())
    assert (
        f"over {n} test federations (ARI, held-out rows): 1.00 among 3 methods that do not pool rows"
        in found["sentence"]
    )
    assert f"{100 * line['ahead']:.1f} points ahead of stSC" in found["sentence"]
    assert f"{100 * line['low']:+.1f} to {100 * line['high']:+.1f}" in found["sentence"]
    assert f"p\u00a0=\u00a0{line['p_holm']:.2g})" in found["sentence"]
    assert found["significant"] == (line["p_holm"] < 0.05)
    assert line["p_holm"] == pytest.approx(min(1, 3 * 0.5 ** (n - 1)))  # all differences have one sign; three rivals


def test_a_difference_that_goes_both_ways_is_not_significant_and_a_loss_is_called_one(tmp_path):
    both = scored(tmp_path / "a", lambda i: 0.7 if i % 2 else 0.26)
    assert both["findings"][0]["significant"] is False
    behind = scored(tmp_path / "b", lambda i: 0.3, average=0.45)
    found, *_, differ = behind["findings"]
    assert found["first"] == "stsc"
    assert "points behind stSC, the best of the others" in found["sentence"]
    assert re.search(
        r"Where silos (differ|are alike), FMTC is \d+\.\d points behind plain averaging", differ["sentence"]
    )


def test_without_test_federations_ranks_are_told_and_nothing_is_tested(tmp_path):
    rows = [row(data, name, acc) for data in DATASETS for name, acc in (("fmtc", 0.7), ("stsc", 0.6), ("kmeans", 0.5))]
    summary = summarise_results(keep(tmp_path, rows))
    assert summary["test"] == {}
    assert [(found["score"], found["part"]) for found in summary["findings"]] == [
        ("acc", "in"), ("acc", "out"), ("nmi", "in"), ("nmi", "out")
    ]  # fmt: skip
    assert {found["significant"] for found in summary["findings"]} == {None}
    assert f"1.00 among 3 methods, over {len(DATASETS)} data sets; not tested." in summary["findings"][0]["sentence"]
    assert 'id="ranks"' not in render_results(summary)


def test_ties_share_the_best_rank(tmp_path):
    summary = summarise_results(keep(tmp_path, [row("digits", name) for name in ("fmtc", "kmeans")]))
    assert summary["findings"][0]["sentence"].startswith("FMTC and k-means alone ")
    assert summary["findings"][0]["significant"] is None
    alone = summarise_results(keep(tmp_path / "one", [row("digits", "fmtc")]))
    assert alone["findings"] == []
    assert [re.findall(r"\d+", sentence) for sentence in alone["words"]] == [["1", "1", "1", "1"]]
    assert "Save all fits" in render_results(alone)


# ------------------------------------------------------------------------------------------ ablations and failures


def test_ablations_are_those_of_the_tables(rows, summary, tmp_path):
    for part in ("in", "out"):
        lines = {(line["what"], line["value"]): line for line in summary["ablations"][part]["lines"]}
        assert {what for what, _ in lines} == {"align", "rows"}
        for entry in tables.ablation_entries(rows, "acc", part):
            if entry["what"] in ("align", "rows"):
                found = lines[entry["what"], entry["value"]]["gains"][entry["dataset"]]
                assert found["gain"] == pytest.approx(entry["gain"], abs=2e-3)
                assert found["default"] == entry["default"]
        without = lines["align", "False"]
        gains = [without["gains"][name] for name in TRIED[:2]]
        assert without["mean"] == pytest.approx(np.mean([gain["gain"] for gain in gains]))
        assert {gain["verdict"] for gain in gains} <= {"", "down"}
    assert summarise_results(keep(tmp_path, tables.of_tables(rows)))["ablations"] == {}


def test_failed_cells_are_listed_with_what_is_known(tmp_path):
    rows = [row("yale", "fmtc", 0.7), row("yale", "mbc", status="timeout"), row("yale", "smkc", 0.6)]
    rows += [row("yale", "smkc", split=1, status="failed")]
    plain = summarise_results(keep(tmp_path, rows))
    assert [(line["method"], line["status"], line["error"]) for line in plain["failed"]] == [
        ("mbc", "timeout", None), ("smkc", "failed", None)
    ]  # fmt: skip
    assert [re.findall(r"\d+", sentence) for sentence in plain["words"]] == [["4", "3", "1", "2", "2"]]
    assert (cell_of(plain, "yale", "mbc")["n"], cell_of(plain, "yale", "smkc")["failed"]) == (0, 1)
    view = plain["table"]["views"]["all default acc in"]
    assert view["ranks"] == {"fmtc": 1, "smkc": 2}  # mbc never succeeded
    assert view["best"] == {"yale": 0.7}
    assert "not kept" in render_results(plain)
    known = summarise_results(store(tmp_path, rows))
    assert [line["error"] for line in known["failed"]] == [
        "ValueError: mbc broke on yale", "ValueError: smkc broke on yale"
    ]  # fmt: skip
    assert "ValueError: mbc broke on yale" in render_results(known)
    assert known["notes"] == []


# ------------------------------------------------------------------------------------------------- what is read


def test_stored_cells_alone_are_enough(tmp_path):
    rows = [row("yale", name, acc) for name, acc in (("fmtc", 0.7), ("kmeans", 0.6))]
    summary = summarise_results(store(tmp_path, rows))
    assert summary["files"] == {"rows.csv": compact(rows)}
    assert summary["about"] == {
        "command": "", "machines": ["a machine"], "code": ["0123"], "versions": [{"fmtc": "1"}], "seconds": 4.0,
        "protocol": {},
    }  # fmt: skip
    assert "about.json" in render_results(summary)
    more = summarise_results(keep(tmp_path, rows[:1]))
    assert more["counts"]["cells"] == 1
    assert "1 cell " in more["notes"][0]


def test_how_it_was_made_is_told(folder, summary, tmp_path):
    assert summary["about"]["command"] == "fmtc-bench paper --splits 2"
    assert summary["about"]["seconds"] == 2.0 * summary["counts"]["cells"]
    text = render_results(summary)
    assert '<code id="code">fmtc-bench paper --splits 2</code>' in text
    assert "a machine" in text
    plain = summarise_results(keep(tmp_path, [row("yale", "fmtc"), row("yale", "kmeans")]))
    assert plain["about"] == {
        "command": "", "machines": [], "code": ["0123"], "versions": [], "seconds": 3.0, "protocol": {}
    }  # fmt: skip
    write_json(tmp_path / "about.json", {"command": "x", "versions": [{"fmtc": "1", "extras": {}}]})
    keep(tmp_path, [row("yale", "fmtc"), row("yale", "kmeans") | {"code": "4567"}])
    told = summarise_results(tmp_path)
    assert told["about"]["versions"] == [{"fmtc": "1"}]
    assert " 2 " in told["notes"][0]


def test_the_page_says_what_the_protocol_was_fixed_for(tmp_path):
    keep(tmp_path, [row("yale", "fmtc"), row("yale", "kmeans")])
    facts = {"code": "0123", "commit": "c" * 40, "plan": "p", "data": {}, "versions": {}}
    (tmp_path / "protocol.md").write_text(f"# Protocol\n{freeze.FENCE}{json.dumps(facts)}\n```\n")
    same = summarise_results(tmp_path)
    assert same["about"]["protocol"] == {"code": "0123", "commit": "c" * 40, "plan": "p"}
    assert same["notes"] == []
    assert f"<code>{'c' * 12}</code>" in render_results(same)
    keep(tmp_path, [row("yale", "fmtc"), row("yale", "kmeans") | {"code": "4567"}])
    assert any(
        "fixed for code 0123; these cells were run by 0123 and 4567" in note
        for note in summarise_results(tmp_path)["notes"]
    )
    (tmp_path / "protocol.md").write_text("nothing")
    with pytest.raises(FileError, match=r"protocol\.md"):
        summarise_results(tmp_path)


GOOD = compact([row("yale", "fmtc"), row("yale", "kmeans")])
HEAD, FIRST, SECOND = GOOD.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "a,b\n1,2\n"),
        ("rows.csv", ""),
        ("rows.csv", HEAD),
        ("rows.csv", HEAD + FIRST[:30]),
        ("rows.csv", HEAD + FIRST[: FIRST.rindex(",")]),
        ("rows.csv", HEAD + FIRST.rstrip("\n") + ",1\n"),
        ("rows.csv", GOOD.replace("0.50000", "half", 1)),
        ("rows.csv", HEAD.encode() + b"\xff" + FIRST.encode()),
        ("cells.jsonl", ""),
        ("cells.jsonl", "no cell\n{}\n"),
        ("cells.jsonl", '{"key": 1}\n'),
        ("about.json", "["),
        ("about.json", "[1]"),
        ("about.json", '{"seconds_of_all_cells": "long"}'),
        ("about.json", '{"versions": [1]}'),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path, name, content):
    if name == "about.json":
        (tmp_path / "rows.csv").write_text(GOOD)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileError, match=name) as caught:
        summarise_results(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_folders_are_no_results(tmp_path):
    (tmp_path / "else.csv").write_text(GOOD)
    with pytest.raises(FileError, match=r"rows\.csv"):
        summarise_results(tmp_path)
    with pytest.raises(FileError, match="nowhere"):
        summarise_results(tmp_path / "nowhere")


# ------------------------------------------------------------------------------------------------------- figures


def test_all_figures_are_inside_with_captions(rows, folder, summary, tmp_path):
    assert [figure["name"] for figure in summary["figures"]] == [
        "critical_difference_ari", "gains_ari", "inside_outside_acc", "clouds", "of_ours"
    ]  # fmt: skip
    assert [figure["ranks"] for figure in summary["figures"]] == [True, True, False, False, False]
    first, gains, bars, _, last = summary["figures"]
    ranks = summary["test"]["scores"][0]["friedman"]["ranks"]
    told = ", ".join(f"{METHODS[name].title} {rank:.2f}" for name, rank in ranks.items())
    assert first["alt"].endswith(f": {told}.")
    captions = results.captions(rows)
    assert (gains["caption"], bars["caption"]) == (captions["gains_ari"], captions["inside_outside_acc"])
    assert set(captions) <= set(FIGURES)
    assert (last["caption"], last["alt"], last["width"], last["height"]) == ("of ours.", "Figure of ours.", 3, 2)
    parsed = Page(render_results(summary))
    images = [attrs for tag, attrs in parsed.elements if tag == "img"]
    assert [attrs["alt"] for attrs in images] == [figure["alt"] for figure in summary["figures"]]
    for attrs in images:
        assert base64.b64decode(attrs["src"].removeprefix("data:image/png;base64,")) == PNG
    words = "".join(parsed.words)
    assert all(figure["caption"] in words for figure in summary["figures"])


def test_pictures_that_are_none_are_left_out_and_others_may_be_svg(tmp_path):
    keep(tmp_path, [row("yale", "fmtc"), row("yale", "kmeans")])
    assert 'id="figures"' not in render_results(summarise_results(tmp_path))
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "broken.png").write_bytes(b"no picture")
    for name in ("drawn.svg", "both.svg"):
        (tmp_path / "figures" / name).write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "figures" / "both.png").write_bytes(PNG)
    summary = summarise_results(tmp_path)
    assert [figure["file"] for figure in summary["figures"]] == ["figures/both.png", "figures/drawn.svg"]
    (note,) = summary["notes"]
    assert "figures/broken.png" in note
    assert 'src="data:image/svg+xml;base64,' in render_results(summary)


# ---------------------------------------------------------------------------------------------------------- page


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    rows = [row(data, method) for data in (HOSTILE, "yale") for method in (HOSTILE, "kmeans")]
    rows += [row(HOSTILE, "fmtc", status=HOSTILE)]
    keep(folder, rows)
    write_json(folder / "about.json", {"command": HOSTILE, "machines": [HOSTILE], "versions": [{"fmtc": HOSTILE}]})
    (folder / "figures").mkdir()
    (folder / "figures" / "<b>bold.png").write_bytes(PNG)
    return folder


def test_hostile_names_are_text_and_nothing_is_fetched(hostile):
    text = render_results(summarise_results(hostile))
    parsed = Page(text)
    assert HOSTILE not in text
    assert "<b>bold" not in text
    assert [attrs.get("src") for tag, attrs in parsed.elements if tag == "script"] == [None, None]
    assert {tag for tag, _ in parsed.elements if tag in ("iframe", "object", "embed", "form")} == set()
    assert not [
        attrs for _, attrs in parsed.elements if any(name.startswith("on") or name == "style" for name in attrs)
    ]
    links = {attrs["href"] for _, attrs in parsed.elements if "href" in attrs}
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert set(re.findall(r"https?://", text)) == set()
    words = "".join(parsed.words)
    assert words.count(HOSTILE) >= 4  # the command, a machine, its version, a failed cell
    data = json.loads(parsed.scripts[1])
    assert HOSTILE in {line["title"] for line in data["table"]["datasets"]}
    assert data["table"]["methods"][-1] == {
        "name": HOSTILE, "title": HOSTILE, "group": "other", "shares": "", "variant": True
    }  # fmt: skip


def test_the_policy_lets_in_this_style_and_script_only_and_all_pages_share_theirs(folder, summary):
    parsed = Page(render_results(summary))
    (policy,) = [attrs["content"] for tag, attrs in parsed.elements if attrs.get("http-equiv")]
    style, data, script = parsed.scripts
    assert policy.startswith("default-src 'none'; ")
    assert f"style-src '{page._hash(style)}'" in policy
    assert f"script-src '{page._hash(script)}'" in policy
    for kind, content in (("css", style), ("js", script)):
        common, own = (f.read_text(encoding="utf-8") for f in (page.HERE / f"common.{kind}", HERE / f"bench.{kind}"))
        assert content == common + own
    assert json.loads(data)["rows"].encode() == (folder / "rows.csv").read_bytes()


def test_the_page_says_what_the_summary_says(summary):
    parsed = Page(render_results(summary))
    words = " ".join("".join(parsed.words).split())
    for sentence in (*summary["words"], *(found["sentence"] for found in summary["findings"])):
        assert " ".join(sentence.split()) in words
    for entry in summary["test"]["scores"]:
        for line in entry["lines"]:
            shown = [100 * line["mean"]] + ([] if line["block"] == "ours" else [100 * line["low"], 100 * line["high"]])
            assert all(f"{abs(value):.1f}" in words for value in shown)
        assert all(f"{rank:.2f}" in words for rank in entry["friedman"]["ranks"].values())
    assert "split" not in words.partition("Mean ranks")[2].partition("Ablations")[0].replace("then of splits", "")
    ids = [attrs["id"] for _, attrs in parsed.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {"summary", "scores", "ranks", "ablations", "figures", "made"} <= set(ids)
    assert "failed" not in ids
    for _, attrs in parsed.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attrs.get(name, ids[0]) in ids
        if attrs.get("href", "").startswith("#"):
            assert attrs["href"][1:] in ids


def test_sections_without_content_are_left_out(tmp_path):
    summary = summarise_results(keep(tmp_path, [row("yale", "fmtc"), row("yale", "kmeans", status="failed")]))
    ids = {attrs.get("id") for _, attrs in Page(render_results(summary)).elements}
    assert {"summary", "scores", "failed", "made"} <= ids
    assert not {"ranks", "ablations", "figures", "copy"} & ids


def test_the_same_results_give_the_same_page(folder, summary):
    assert render_results(summarise_results(folder)) == render_results(summary)
    assert len(COLUMNS) == len(HEAD.split(","))
    assert [page.lasted(s) for s in (0.4, 99, 100, 5999, 6877)] == ["0 s", "99 s", "2 min", "100 min", "1.9 h"]
