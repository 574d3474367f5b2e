"""The folder a run leaves behind, as any caller writes it."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.views import FEW, graph_view

import fmtc
from fmtc import FMTC
from fmtc.artifacts import labels, runs
from fmtc.cli import main_group
from fmtc.privacy.ledger import read_lines, totals, verify
from fmtc.protocol.base import entries
from fmtc.protocol.units import MOMENTS
from fmtc.tables import Reading, read_silos

FEATURES = ["height", "weight", "age"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two silos of three groups, with an identifier and a class for each row."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, n in (("north", 40), ("south", 30)):
        y = np.arange(n) % 3
        frame = pl.DataFrame(4 * np.eye(3)[y] + rng.normal(size=(n, 3)), schema=FEATURES)
        frame.with_columns(pl.Series("class", y), pl.Series("id", range(n))).write_csv(folder / f"{name}.csv")
    return [folder / "north.csv", folder / "south.csv"]


def silos_of(files):
    return read_silos(files, Reading(silo_column=None, label_column="class", id_column="id", drop=()))


def write(out, files, model, silos):
    results = runs.results(model, silos)
    report = runs.report(model, results, files=files, as_published=False, seconds=1.5, notes=["a note"])
    runs.write_run(out, False, model, results, report)
    return report


def test_a_caller_of_these_functions_leaves_the_folder_of_fit(files, tmp_path):
    silos = silos_of(files)
    model = FMTC(3, max_iter=5, random_state=0, mixture=FEW).fit({silo.name: silo.X for silo in silos})
    report = write(tmp_path / "mine", files, model, silos)
    ids = ["--id-column", "id", "--label-column", "class"]
    fit = ["fit", *files, *ids, "-k", 3, "--max-iter", 5, "--set", "n_init=2", "--out"]
    done = CliRunner().invoke(main_group, [str(word) for word in [*fit, tmp_path / "fit"]])
    assert done.exit_code == 0, done.output
    kept = {file.relative_to(tmp_path / "fit") for file in (tmp_path / "fit").glob("**/*")}
    assert {file.relative_to(tmp_path / "mine") for file in (tmp_path / "mine").glob("**/*")} == kept
    for name in ("labels/north.csv", "labels/south.csv", "model/north.safetensors", "model/south.safetensors"):
        assert (tmp_path / "mine" / name).read_bytes() == (tmp_path / "fit" / name).read_bytes()
    mine, theirs = (json.loads((tmp_path / run / "report.json").read_text()) for run in ("mine", "fit"))
    assert list(mine) == list(theirs) == [*report, "projection"]
    # rounds and lines of ledgers are timed; only the command knows how it read
    differ = ("seconds", "notes", "reading", "trust")
    assert {k: v for k, v in mine.items() if k not in differ} == {k: v for k, v in theirs.items() if k not in differ}
    heads = [set(found["trust"].pop("heads")) for found in (mine, theirs)]
    assert heads == [{"north", "south"}] * 2
    assert mine["trust"] == theirs["trust"]
    assert (mine["seconds"], mine["notes"], mine["files"]) == (1.5, ["a note"], [str(file) for file in files])
    for run in ("mine", "fit"):
        assert runs.is_run(tmp_path / run)
        assert fmtc.load(runs.model_folder(tmp_path / run)).feature_names_in_.tolist() == FEATURES


def test_one_silo_without_history(files, tmp_path):
    """As at the end of a federation, where a silo has its own model and never saw the rounds."""
    silos = silos_of(files[:1])
    model = FMTC(3, max_iter=2, random_state=0, mixture=FEW).fit({silo.name: silo.X for silo in silos})
    model.run_ = replace(model.run_, history=(), before=0)
    write(tmp_path / "run", files[:1], model, silos)
    assert json.loads((tmp_path / "run" / "history.json").read_text()) == []
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert [line["silo"] for line in report["silos"]] == list(report["projection"]) == ["north"]
    assert report["mean"]["acc"] == report["silos"][0]["acc"]
    folder = runs.model_folder(tmp_path / "run")
    assert folder == tmp_path / "run" / "model"
    saved = fmtc.load(folder)
    assert (saved.silos_, saved.run_.rounds) == (["north"], [])


def test_silos_with_models_of_several_kinds_are_shown_together(files, tmp_path):
    """As in a private run, where a silo may keep a model of its own."""
    silos = silos_of(files)
    rows = {silo.name: silo.X for silo in silos}
    model = FMTC(2, view="mixture", max_iter=2, random_state=0).fit(rows)
    model._models["north"] = graph_view(2, max_iter=2, random_state=0).fit({"north": rows["north"]})._models["north"]
    widths = {model._models[name].plotted(X).shape[1] for name, X in rows.items()}
    assert len(widths) == 2
    assert {one.view.shape[1] for one in runs.results(model, silos)} == {max(widths)}
    write(tmp_path / "run", files, model, silos)


def test_a_run_is_told_from_other_folders(files, tmp_path):
    silos = silos_of(files[:1])
    model = FMTC(3, max_iter=1, random_state=0).fit({silo.name: silo.X for silo in silos})
    model.save(tmp_path / "model")
    assert not runs.is_run(tmp_path)  # a model, but no report
    assert not runs.is_run(tmp_path / "model")
    assert runs.model_folder(tmp_path) == runs.model_folder(tmp_path / "model") == tmp_path / "model"
    with pytest.raises(fmtc.errors.FileError, match="absent"):
        runs.model_folder(tmp_path / "absent")


def test_what_left_is_in_the_report_and_in_the_ledgers(files, tmp_path):
    """The rows of the report are the totals of the ledgers, with the words of the declarations."""
    silos = silos_of(files)
    model = graph_view(3, max_iter=4, tol=0, scale="global", random_state=0).fit({silo.name: silo.X for silo in silos})
    report = write(tmp_path / "run", files, model, silos)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["sent"] == report["sent"]
    ledgers = [tmp_path / "run" / "outbox" / f"{name}.jsonl" for name in ("north", "south")]
    assert [verify(path) for path in ledgers] == [[], []]
    left = totals(line for path in ledgers for line in read_lines(path))
    assert {(row["phase"], row["field"]): (row["times"], row["bytes"]) for row in report["sent"]} == {
        (total.phase, total.field): (total.times, total.bytes) for total in left
    }
    rows = {(row["phase"], row["field"]): row for row in report["sent"]}
    W = rows["round", "W"]
    assert (W["shape"], W["size"], W["times"], W["bytes"]) == ("d × k", [3, 3], 2 * 4, 2 * 4 * 9 * 8)
    declared = entries(MOMENTS.Answer)["means"]
    assert rows["moments", "means"]["what"] == declared.what
    assert rows["moments", "means"]["shape"] == "d"
    assert all(row["what"] and row["tells"] for row in report["sent"])
    model.save(tmp_path / "model")
    assert fmtc.load(tmp_path / "model").run_.received == ()  # a saved model does not say what left


IMPORT = """
import sys
from pathlib import Path
import sklearn.cluster, sklearn.metrics, polars, fmtc
before = set(sys.modules)
import fmtc.artifacts.runs
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_runs_need_neither_command_line_nor_engine():
    added = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
    assert {"click", "rich", "nvflare", "onnx", "matplotlib"}.isdisjoint(added)


# ----------------------------------------------------------------------------------------- what a spreadsheet would run

HARMFUL = ["=cmd|'/C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''=1", "=1,5", "-"]
HARMLESS = ["-5", "+5", "-1.5e-3", "-1,5", "a-b", "'quoted'", "'-5", "", "x@y", "O'Neil", "5"]


def test_no_text_of_a_csv_is_run_by_a_spreadsheet_and_all_come_back():
    texts = HARMFUL + HARMLESS
    table = pl.DataFrame(
        {"=id": texts, "number": range(-5, len(texts) - 5), "kind": pl.Series(texts, dtype=pl.Categorical)}
    )
    written = pl.read_csv(labels.as_csv(table), infer_schema=False)
    assert written.columns == ["'=id", "number", "kind"]
    assert written["number"].to_list()[:2] == ["-5", "-4"]
    for name in ("'=id", "kind"):
        assert written[name].to_list() == [f"'{text}" for text in HARMFUL] + HARMLESS
    assert labels.without_quotes(written)["=id"].to_list() == texts


def test_there_is_no_other_writer_of_csv():
    """Every CSV of the package passes `as_csv`; the page in the browser has the same rule."""
    home = Path(fmtc.__file__).parent
    makers = re.compile(r"write_csv|sink_csv|to_csv|csv\.writer|DictWriter|savetxt")
    found = [path.name for path in home.rglob("*.py") if makers.search(path.read_text(encoding="utf-8"))]
    assert found == ["labels.py"]
    page = (home / "report" / "page.js").read_text(encoding="utf-8")
    assert page.count("text/csv") == 1
    assert "[inert(panel.silo), panel.row[i], j, one ? inert(one.name) : " in page


def test_identifiers_and_names_that_a_spreadsheet_would_run(tmp_path):
    """They are harmless in every CSV of a run, and rows are still found by them."""
    rng = np.random.default_rng(0)
    ids = [f"{sign}p{i}" for i, sign in enumerate("=+-@'\t" * 10)]
    table = pl.DataFrame(4 * np.eye(3)[np.arange(60) % 3] + rng.normal(size=(60, 3)), schema=FEATURES)
    table = table.with_columns(pl.Series("=id", ids), pl.Series("note", ["-", "=1+1", "+49 89"] * 20))
    table.write_csv(tmp_path / "north.csv")

    def call(*words):
        done = CliRunner().invoke(main_group, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout_bytes

    run, file = tmp_path / "run", tmp_path / "north.csv"
    call("fit", file, "-k", 3, "--id", "=id", "--drop", "note", "--append", "--max-iter", 2, "--out", run, "-q")
    call("explain", run, "--rename", "0==HYPERLINK(1)")
    again = call("explain", run, "--rename", "1=@SUM(1)")
    assert again
    joined = call("explain", run, "--join", file)
    made = [
        joined,
        call("explain", "--show", "labels", run),
        call("predict", run, file),
        call("predict", run, file, "--append"),
    ]
    made += [path.read_bytes() for path in run.rglob("*.csv")]
    assert len(made) == 6
    for content in made:
        cells = [cell for column in pl.read_csv(content, infer_schema=False) for cell in column if cell is not None]
        assert not [cell for cell in cells if re.match(r"[=+@\t\r]|-(?!\d)", cell)]
    rows = pl.read_csv(joined, infer_schema=False)
    assert rows["cluster"].null_count() == 0
    assert set(rows.filter(pl.col("cluster") == "0")["cluster_name"]) == {"'=HYPERLINK(1)"}
    assert set(rows.filter(pl.col("cluster") == "1")["cluster_name"]) == {"'@SUM(1)"}
    assert labels.read_labels(run)["north"].columns[0] == "=id"
    assert labels.read_labels(run)["north"]["=id"].to_list() == ids
