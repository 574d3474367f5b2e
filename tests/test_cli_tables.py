"""From tables as people have them to labels: columns set aside, missing cells, schemas, and back to the table."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import adjusted_rand_score

import fmtc
from fmtc import FMTC
from fmtc.cli import main_group
from fmtc.report import summarise
from fmtc.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")


def run(*args, code=0):
    env = {"NO_COLOR": "1", "TERM": "dumb", "FMTC_DEBUG": None, "FORCE_COLOR": None, "COLUMNS": "80"}
    done = CliRunner().invoke(main_group, [str(arg) for arg in args], prog_name="fmtc", env=env)
    assert code is None or done.exit_code == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def notes(done):
    """What was said about the table."""
    said = [line.removeprefix("note: ") for line in done.stderr.splitlines() if line.startswith("note: ")]
    return [note for note in said if not note.startswith("the neighbour graph")]


def patients(seed, n=50):
    """Two groups, sick and well, with an identifier, a category and a constant."""
    rng = np.random.default_rng(seed)
    sick = np.arange(n) % 2
    return pl.DataFrame(
        {
            "patient_id": rng.permutation(10**6)[:n],
            "age": 40 + 20 * sick + rng.normal(size=n),
            "dose": 3 * sick + rng.normal(size=n) / 2,
            "sex": np.where(rng.random(n) < 0.5, "f", "m"),
            "ward": ["W1"] * n,
        }
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("north", "south")):
        patients(seed).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


SHORT = ("--max-iter", 2, "--set", "n_init=1")
FIT = ("fit", "north.csv", "south.csv", "-k", 2, "--max-iter", 1, "--scale", "global", "--set", "n_init=2")


def test_fit_says_what_it_did_in_few_lines(home):
    done = run(*FIT, "--out", "run")
    assert notes(done) == [
        "'patient_id' names the rows and is no feature; 'ward' dropped: one value in all rows",
        "categories: 'sex' (2 levels)",
    ]
    labels = pl.read_csv("run/labels/north.csv")
    assert labels.columns == ["patient_id", "cluster", "probability"]
    assert labels["patient_id"].to_list() == pl.read_csv("north.csv")["patient_id"].to_list()
    assert json.loads((home / "run" / "report.json").read_text())["feature_names"] == ["age", "dose", "sex"]
    schema = Schema.read("run/schema.toml")
    assert (schema.names, schema.levels, schema.id_column) == (("age", "dose", "sex"), (0, 0, 2), "patient_id")


def test_a_schema_is_used_again(home):
    run(*FIT, "--out", "run")
    frame = patients(0)[:9].drop("ward").with_columns(pl.lit("f").alias("sex"), pl.Series("new", range(9)))
    frame.select("sex", "dose", "age", "patient_id", "new").write_csv("north.csv")
    done = run(*FIT[:2], *FIT[3:], "--schema", "run/schema.toml", "--out", "again")
    assert notes(done)[0] == "columns that the schema does not know are ignored: 'new'"
    assert Schema.read("again/schema.toml") == Schema.read("run/schema.toml")
    frame.drop("dose").write_csv("north.csv")
    done = run(*FIT, "--schema", "run/schema.toml", "--out", "third", code=3)
    assert "north.csv lacks 'dose' of the schema" in done.stderr
    assert "--schema" in run(*FIT, "--schema", "run/schema.toml", "--columns", "age", "--out", "third", code=2).stderr


def test_bounds_of_a_schema_make_codes_missing(home):
    frame = pl.read_csv("north.csv")
    frame = frame.with_columns(pl.when(pl.arange(0, 50) < 4).then(-999).otherwise(pl.col("age")).alias("age"))
    frame.write_csv("north.csv")
    done = run(*FIT, "--out", "run")
    (note,) = [note for note in notes(done) if "-999" in note]  # once, though `fit` says it as well
    assert note.startswith("codes for missing values? 'age' is -999 in 4 rows")
    text = (home / "run" / "schema.toml").read_text().replace('name = "age"', 'name = "age"\nlower = 0')
    (home / "schema.toml").write_text(text)
    done = run(*FIT, "--schema", "schema.toml", "--missing", "drop", "--out", "again")
    assert "silo 'north': values outside the bounds count as missing: 'age' (4)" in notes(done)
    assert "rows with missing cells omitted: 4 of 'north'" in notes(done)
    labels = pl.read_csv("again/labels/north.csv")
    assert labels["patient_id"].to_list() == frame["patient_id"].to_list()[4:]


def test_columns_kinds_and_names(home):
    run(*FIT, "--columns", "age,dose", "--out", "a")
    assert Schema.read("a/schema.toml").names == ("age", "dose")
    run(*FIT, "--drop", "ward", "--drop", "sex", "--as", "number:patient_id", "--out", "b")
    assert Schema.read("b/schema.toml").names == ("patient_id", "age", "dose")
    assert pl.read_csv("b/labels/north.csv").columns[0] == "row"
    run(*FIT, "--id", "sex", "--out", "c")
    assert pl.read_csv("c/labels/north.csv").columns[0] == "sex"
    assert (
        "no file has a column 'agee'; did you mean 'age'" in run(*FIT, "--columns", "agee", "--out", "d", code=3).stderr
    )
    assert "category:NAMES" in run(*FIT, "--as", "date:age", "--out", "d", code=2).stderr


@pytest.mark.parametrize("missing", ["em", "drop", "refuse"])
def test_missing_cells(home, missing):
    frame = pl.read_csv("north.csv").with_columns(
        pl.when(pl.arange(0, 50) == 7).then(None).otherwise("age").alias("age")
    )
    frame = frame.with_columns(pl.when(pl.arange(0, 50) == 7).then(None).otherwise(pl.col("dose")).alias("age"))
    frame.write_csv("north.csv")
    if missing == "em" and not FMTC.takes_missing:
        pytest.skip("the method does not take missing values yet")
    done = run(*FIT, "--missing", missing, "--append", "--out", "run", code=3 if missing == "refuse" else 0)
    if missing == "refuse":
        assert "silo 'north' in 'age' (1); the first in line 9 of north.csv" in done.stderr
        return
    table = pl.read_csv("run/tables/north.csv")
    assert table.columns == [*frame.columns, "cluster", "probability"]
    assert table["cluster"].null_count() == (missing == "drop")
    assert (table["cluster"][7] is None) == (missing == "drop")
    labels = pl.read_csv("run/labels/north.csv")
    joined = table.join(labels, on="patient_id", suffix="_too")
    assert joined.height == labels.height == 50 - (missing == "drop")
    assert (joined["cluster"] == joined["cluster_too"]).all()


# ------------------------------------------------------------------------------------------------ back to the table


def test_labels_come_back_to_the_table(home):
    run(*FIT, "--append", "--out", "run")
    joined = run("explain", "run", "--join", "north.csv").stdout
    assert joined == (home / "run" / "tables" / "north.csv").read_text()
    every = pl.read_csv(run("explain", "--show", "labels", "run").stdout.encode())
    assert every.columns == ["silo", "patient_id", "cluster", "probability"]
    assert every["silo"].to_list() == ["north"] * 50 + ["south"] * 50
    pl.read_csv("north.csv").reverse().rename({"patient_id": "mrn"})[:3].write_csv("few.csv")
    done = run("explain", "run", "--join", "few.csv", "--silo", "north", "--id", "mrn", "--out", "few-labels.csv")
    few = pl.read_csv("few-labels.csv")
    expected = dict(every.filter(pl.col("silo") == "north").select("patient_id", "cluster").iter_rows())
    assert few["cluster"].to_list() == [expected[name] for name in few["mrn"]]
    assert "3 rows" in done.stderr
    assert "no column 'patient_id'" in run("explain", "run", "--join", "few.csv", "--silo", "north", code=3).stderr
    pl.read_csv("north.csv").with_columns(pl.lit(5).alias("cluster"), patient_id=1).write_csv("other.csv")
    done = run("explain", "run", "--join", "other.csv", "--silo", "north")
    assert notes(done) == ["50 rows of other.csv without a label in run"]
    assert pl.read_csv(done.stdout.encode()).columns[-2:] == ["fmtc_cluster", "probability"]
    assert "holds no labels" in run("explain", "--show", "labels", "run/model", code=3).stderr


def test_labels_by_place_where_there_are_no_identifiers(home):
    run(*FIT, "--drop", "patient_id", "--append", "--out", "run")
    assert run("explain", "run", "--join", "south.csv").stdout == (home / "run" / "tables" / "south.csv").read_text()
    pl.read_csv("south.csv").write_csv("other.csv")
    assert "rows of which silo?" in run("explain", "run", "--join", "other.csv", code=3).stderr
    assert "omit the identifier" in run("explain", "run", "--join", "south.csv", "--id", "age", code=3).stderr


def test_one_file_of_all_silos_comes_back_in_its_order(home):
    both = [pl.read_csv(f"{name}.csv").with_columns(pl.lit(name).alias("site")) for name in ("north", "south")]
    mixed = pl.concat(both).sample(fraction=1, shuffle=True, seed=0)
    mixed.write_parquet("all.parquet")
    run("fit", "all.parquet", "--silo-column", "site", *FIT[3:], "--append", "--out", "run")
    table = pl.read_csv("run/tables/all.csv")
    assert table["patient_id"].to_list() == mixed["patient_id"].to_list()
    joined = run("explain", "run", "--join", "all.parquet", "--silo-column", "site").stdout
    assert pl.read_csv(joined.encode())["cluster"].to_list() == table["cluster"].to_list()


# ---------------------------------------------------------------------------------------------------------- predict


def test_predict_takes_the_whole_table(home):
    """Identifiers and the answer among the columns, another order: as in the README."""
    run(*FIT, "--out", "run")
    new = pl.read_csv("north.csv").with_columns(pl.lit("?").alias("remark"))
    new.select(reversed(new.columns)).write_csv("new.csv")
    done = run("predict", "run", "new.csv", "--silo", "north")
    assert done.stdout == (home / "run" / "labels" / "north.csv").read_text()
    assert notes(done) == ["columns that the model does not know are ignored: 'remark', 'ward'"]
    assert run("predict", "run", "north.csv").stdout == done.stdout  # called after its silo
    table = pl.read_csv(run("predict", "run", "new.csv", "--silo", "north", "--append").stdout.encode())
    assert table.columns == [*reversed(new.columns), "cluster", "probability"]
    assert "--proba" in run("predict", "run", "new.csv", "--silo", "north", "--append", "--proba", code=2).stderr


def test_identifiers_name_rows_whatever_columns_are_asked_for(home):
    done = run(*FIT, "--columns", "age,dose", "--out", "run")
    assert notes(done) == ["'patient_id' names the rows and is no feature"]
    assert pl.read_csv("run/labels/north.csv").columns == ["patient_id", "cluster", "probability"]
    done = run(*FIT, "--columns", "age,patient_id", "--out", "asked")  # who insists gets it
    assert pl.read_csv("asked/labels/north.csv").columns == ["row", "cluster", "probability"]


def test_names_of_clusters_stand_beside_new_labels(home):
    run(*FIT, "--out", "run")
    assert "cluster_name" not in run("predict", "run", "north.csv").stdout
    run("explain", "run", "--rename", "1=sick")
    table = pl.read_csv(run("predict", "run", "north.csv").stdout.encode())
    name = json.loads((home / "run" / "explanation.json").read_text())["clusters"][0]["words"]
    assert set(zip(table["cluster"], table["cluster_name"], strict=True)) == {(0, name), (1, "sick")} and name


def test_predict_marks_rows_that_are_far_from_all_clusters(home):
    """Probabilities compare clusters with each other: a row of a million is sure of one, and of none at all."""
    run(*FIT, "--out", "run")
    new = pl.read_csv("north.csv").head(3).with_columns(age=pl.Series([1e6, 60.0, 40.0]))
    new.write_csv("new.csv")
    done = run("predict", "run", "new.csv", "--silo", "north")
    assert "outlier" not in done.stdout
    assert any(note.startswith("1 of 3 rows is far from all clusters") and "--outliers" in note for note in notes(done))
    for more in ((), ("--append",), ("--proba",)):
        done = run("predict", "run", "new.csv", "--silo", "north", "--outliers", *more)
        assert pl.read_csv(done.stdout.encode())["outlier"].to_list() == [True, False, False]
    run(*FIT, "--view", "graph", "--out", "graph")
    assert "--view mixture" in run("predict", "graph", "new.csv", "--silo", "north", "--outliers", code=2).stderr


def test_predict_of_an_unknown_level_or_silo(home):
    run(*FIT, "--out", "run")
    pl.read_csv("north.csv").with_columns(pl.lit("x").alias("sex")).write_csv("new.csv")
    if FMTC.takes_missing:
        done = run("predict", "run", "new.csv", "--silo", "north")
        assert "silo 'new': levels that are not known count as missing: 'sex' ('x')" in notes(done)
    pl.read_csv("north.csv").with_columns(pl.lit("east").alias("site")).write_csv("new.csv")
    done = run("predict", "run", "new.csv", "--silo-column", "site", code=3)
    assert "rows of 'east', and the model is of silos 'north', 'south'" in done.stderr


# ----------------------------------------------------------------------------------------------------- what is noted


def test_identifiers_of_real_patients_do_not_decide(home):
    data = load_breast_cancer()
    frame = pl.DataFrame(data.data, schema=list(data.feature_names))
    ids = pl.Series("patient_id", 842000 + 37 * np.arange(len(frame)))
    for name, part in (("north", slice(0, 300)), ("south", slice(300, 569))):
        frame.with_columns(ids).select("patient_id", *frame.columns)[part].write_csv(f"{name}.csv")
    done = run("check", "north.csv", "south.csv")
    assert "'patient_id' names the rows and is no feature" in done.stderr
    run(*FIT, "--out", "run")
    truth = data.target[:300]
    assert adjusted_rand_score(pl.read_csv("run/labels/north.csv")["cluster"], truth) > 0.5


def test_a_column_that_decides_alone_is_noted(home):
    data = load_wine()
    pl.DataFrame(data.data, schema=list(data.feature_names)).write_csv("wine.csv")
    done = run("fit", "wine.csv", "-k", 3, *SHORT, "--scale", "none", "--out", "run")
    assert any(
        re.match(r"'proline' is 99\.\d % of the variance .*--scale global.*--drop", note) for note in notes(done)
    )
    done = run("fit", "wine.csv", "-k", 3, *SHORT, "--scale", "global", "--out", "run2")
    assert not any("variance" in note for note in notes(done))
    assert "99.8 % of the variance" in run("check", "wine.csv", "--scale", "none").stderr
    assert "variance" not in run("check", "wine.csv").stderr


def test_units_and_codes_are_noted_by_fit_and_preflight(home):
    files = ("north.csv", "south.csv", "west.csv")
    pl.read_csv("south.csv").with_columns(pl.col("age") * 12).write_csv("south.csv")
    patients(3).write_csv("west.csv")
    expected = "has values about 12 times the others' in 'age': months for years?"
    assert f"south {expected}" in notes(run("fit", *files, *FIT[3:], "--out", "run"))
    assert f"note: {expected}" in run("check", *files).stderr
    coded = patients(1).with_columns(pl.when(pl.arange(0, 50) < 5).then(-9).otherwise(pl.col("age")).alias("age"))
    coded.write_csv("south.csv")
    found = notes(run("fit", *files, *FIT[3:], "--out", "run2"))
    assert any(note.startswith("codes for missing values? 'age' is -9 in 5 rows") for note in found)
    assert "south: codes for missing values? 'age' is -9 in 5 rows" in run("check", *files).stderr


@pytest.fixture
def other_units(home):
    """Three silos, one of which has milligrams where the others have grams, in every column."""
    for seed, name in enumerate(("north", "south", "west")):
        table = patients(seed).with_columns(pl.col("dose") + 5).drop("sex", "ward")
        table = table.with_columns(pl.col("age", "dose") * (1000 if name == "west" else 1))
        table.write_csv(home / f"{name}.csv")
    return home


def test_a_silo_in_other_units_stops_fit(other_units):
    done = run(*FIT, "west.csv", "--out", "run", code=3)
    assert re.search(r"Error: west .* 1,000 times .*'age', 'dose': .*multiply them by 0.001, or .*--accept-units",
                     done.stderr)  # fmt: skip
    assert not (other_units / "run").exists()
    assert run("check", "north.csv", "south.csv", "west.csv", code=3).stderr.count("error:") == 1


def test_a_silo_in_other_units_is_named_where_results_are(other_units):
    done = run(*FIT, "west.csv", "--out", "run", "--accept-units")
    (said,) = [note for note in notes(done) if note.startswith("The server")]
    assert "'west'" in said
    report = json.loads((other_units / "run" / "report.json").read_text())
    lines = {line["silo"]: line for line in report["trust"]["clients"]}
    assert {name: line["held"] for name, line in lines.items()} == {"north": False, "south": False, "west": True}
    kept = "A model of its own rows" if lines["west"]["kept"] == "alone" else "The common model"
    assert f"{kept}" in said
    assert "50 % of all rows of the other silos" in done.stderr
    atlas = run("explain", "run", "--show", "atlas").stdout
    assert "'west'" in atlas
    assert "The atlas leaves them out" in atlas
    assert "'west'" in run("explain", "run").stderr
    words = summarise(other_units / "run")["words"]
    assert said in words
    run("report", "run")
    page = (other_units / "run" / "report.html").read_text()
    assert "50 %</b> of all rows of the other silos: 50, in 2 of 3 silos" in page
    assert not any("every silo" in sentence for sentence in words)


def test_a_row_far_from_all_others_is_noted_once(home):
    ages = pl.read_csv("north.csv")["age"].to_list()
    pl.read_csv("north.csv").with_columns(age=pl.Series([*ages[:7], 1e15, *ages[8:]])).write_csv("north.csv")
    (note,) = [note for note in notes(run(*FIT, "--out", "run")) if "far from all others" in note]
    assert note.startswith("row 8 of 'north' has 1e+15 in 'age'")


def test_no_header(home):
    for name in ("north", "south"):
        text = (home / f"{name}.csv").read_text().partition("\n")[2].replace(",W1", ",3")
        (home / f"{name}.csv").write_text(text)
    assert "--no-header" in run(*FIT, "--out", "run", code=3).stderr
    assert "--no-header" in run("check", "north.csv", "south.csv", code=3).stderr
    run(*FIT, "--no-header", "--id", "column_1", "--out", "run")
    labels = pl.read_csv("run/labels/north.csv")
    assert (labels.columns[0], labels.height) == ("column_1", 50)
    assert run("predict", "run", "north.csv", "--no-header").stdout == (home / "run/labels/north.csv").read_text()


def test_the_command_that_writes_a_schema(home):
    done = run("check", "north.csv", "south.csv", "--as", "number:ward", "--write-schema", "new/schema.toml", "--json")
    schema = Schema.from_toml(Path("new/schema.toml").read_text())
    assert (schema.names, schema.id_column) == (("age", "dose", "sex", "ward"), "patient_id")
    assert Schema.from_dict(json.loads(done.stdout)["schema"]) == schema
    assert "exists" in run("check", "north.csv", "--write-schema", "new/schema.toml", code=2).stderr
    np.save("a.npy", np.ones((3, 2)))
    assert "without column names" in run("check", "a.npy", "--write-schema", "a.toml", code=2).stderr
    assert "a coordinator has none" in run("check", "--kit", "k", "--write-schema", "a.toml", code=2).stderr


def test_preflight_reads_categories_and_finds_other_levels(home):
    done = run("check", "north.csv", "south.csv")
    assert "categories: 'sex' (2 levels)" in done.stderr
    assert done.stderr.endswith("2 silos agree: nothing stops a run\n") or "read the notes" in done.stderr
    pl.read_csv("south.csv").with_columns(pl.lit("2021-01-05").alias("seen")).write_csv("south.csv")
    assert (
        "error: column 'seen' holds dates (such as 2021-01-05)" in run("check", "north.csv", "south.csv", code=3).stderr
    )


def test_the_number_of_clusters_is_asked_for_with_a_way_to_find_it(home):
    done = run("fit", "north.csv", "--out", "run", code=2)
    assert "such as -k 4" in done.stderr and "fmtc explain" in done.stderr
    (home / "fit.toml").write_text('[fit]\nn_clusters = 2\nout = "run"\nmax_iter = 2\n')
    run("fit", "north.csv", "--config", "fit.toml")


def test_python_loads_the_folder_of_a_run(home):
    run(*FIT, "--out", "run")
    table = pl.read_csv("north.csv").drop("patient_id", "ward")
    labels = pl.read_csv("run/labels/north.csv")["cluster"].to_list()
    for folder in ("run", "run/model"):
        assert fmtc.load(folder).predict(table, silos="north").tolist() == labels


# ------------------------------------------------------------------------------- codes of missing values, advice taken


def advised(text):
    """The flags that a message names, as a shell would hand them over."""
    return shlex.split(" ".join(re.findall(r"\((--[^()]*)\)", text)))


@pytest.fixture
def coded(home):
    """An age of -999 in some rows, and a dose below what can be measured in others."""
    for seed, name in enumerate(("north", "south")):
        row = pl.arange(0, 50)
        patients(seed).with_columns(
            pl.when(row < 6).then(-999).otherwise(pl.col("age")).alias("age"),
            pl.when(row > 45).then(pl.lit("<0.5")).otherwise(pl.col("dose").cast(pl.String)).alias("dose"),
        ).write_csv(home / f"{name}.csv")
    return home


def test_advice_about_codes_works_word_by_word(coded):
    refused = run(*FIT, "--out", "a", code=3)
    words = next(re.findall(r"\((--as number:\S+)\)", refused.stderr) for _ in "a")[0].split()
    assert words == ["--as", "number:dose"]
    noted = run(*FIT, *words, "--out", "a")
    (note,) = [note for note in notes(noted) if note.startswith("codes for missing values? 'age' is -999 in 12 rows")]
    assert advised(note) == ["--missing-code", "-999"]
    done = run(*FIT, *words, *advised(note), "--out", "b")
    assert any(note.startswith("missing cells: 20 of 300, in 'age' (12), 'dose' (8)") for note in notes(done))
    assert not any("codes for missing values" in note for note in notes(done))
    labels = (coded / "b/labels/north.csv").read_text()
    same = run(*FIT, "--missing-code", "-999", "--missing-code", "<0.5", "--out", "c")
    assert (coded / "c/labels/north.csv").read_text() == labels
    assert "missing cells: 20 of 300" in same.stderr
    again = run(*FIT, "--schema", "a/schema.toml", "--missing-code", "-999", "--as", "number:dose", "--out", "d")
    assert (coded / "d/labels/north.csv").read_text() == labels, again.stderr
    assert Schema.read("d/schema.toml") == Schema.read("b/schema.toml")
    assert run("check", "north.csv", "south.csv", *words, *advised(note)).exit_code == 0
    why = run(*FIT, "--schema", "a/schema.toml", "--as", "category:dose", "--out", "e", code=3).stderr
    assert "says that 'dose' is a category, and the schema a number" in why


def test_preflight_gives_advice_about_codes_that_works(coded):
    refused = run("check", "north.csv", "south.csv", code=3).stderr
    assert "error: column 'dose' holds numbers, but '<0.5' in line 48 of north.csv" in refused
    note = next(line for line in refused.splitlines() if "codes for missing" in line)
    assert advised(note) == ["--missing-code", "-999"]
    error = next(line for line in refused.splitlines() if "count such words" in line)
    words = advised(error)[:2]
    assert words == ["--missing-code", "<0.5"]
    done = run("check", "north.csv", "south.csv", *advised(note), *words)
    assert "codes for missing" not in done.stderr and "error" not in done.stderr


def test_a_run_remembers_its_codes(coded):
    """At predict, explain, update and join-later time, on files as they came."""
    rows = pl.read_csv("south.csv")
    rows.write_csv("east.csv")
    files = ("north.csv", "south.csv", "east.csv")
    run("fit", *files, *FIT[3:], "--missing-code", "-999", "--as", "number:dose", "--out", "run")
    assert json.loads((coded / "run/report.json").read_text())["reading"]["missing_codes"] == ["-999"]
    text = (coded / "run/schema.toml").read_text()
    assert "missing = [-999]\n\n[[columns]]" in text and "words_missing = true" in text
    predicted = run("predict", "run", "north.csv")
    assert predicted.stdout == (coded / "run/labels/north.csv").read_text()
    assert "-999" not in run("explain", "run", "--row", rows["patient_id"][0], "--silo", "south").stdout
    run("update", "run", *files, "--out", "later")
    assert Schema.read("later/schema.toml") == Schema.read("run/schema.toml")
    run("publish", "run", "--out", "kit")
    rows.write_csv("west.csv")
    run("join-later", "--kit", "kit", "--data", "west.csv", "--out", "west")
    assert Schema.read("west/schema.toml").columns[0].missing == ("-999",)
    frame = pl.read_csv("north.csv").select("age", pl.col("dose").replace("<0.5", None).cast(pl.Float64), "sex")
    loaded = fmtc.load("run")
    assert loaded.predict(frame, silos="north").tolist() == pl.read_csv("run/labels/north.csv")["cluster"].to_list()


def test_a_code_that_others_hold_is_for_the_schema(home):
    """A blood pressure of 0 is missing; doses and grades of 0 are not."""
    for seed, name in enumerate(("north", "south")):
        rows = patients(seed).with_columns(grade=pl.arange(0, 50) % 3, pressure=120 + 9 * pl.col("dose"))
        rows.with_columns(pl.when(pl.arange(0, 50) < 5).then(0).otherwise("pressure").alias("pressure")).write_csv(
            home / f"{name}.csv"
        )
    (note,) = [note for note in notes(run(*FIT, "--out", "a")) if "codes for missing" in note]
    assert note.endswith(
        "write missing = [0] for 'pressure' into a schema (fmtc check FILES --write-schema schema.toml) and use it "
        "(--schema)"
    )
    run("check", "north.csv", "south.csv", "--write-schema", "schema.toml")
    text = Path("schema.toml").read_text()
    (home / "schema.toml").write_text(text.replace('name = "pressure"', 'name = "pressure"\nmissing = [0]'))
    done = run(*FIT, "--schema", "schema.toml", "--out", "b")
    assert any(note.startswith("missing cells: 10 of 500, in 'pressure' (10)") for note in notes(done))


def test_codes_are_for_tables(home):
    np.save("a.npy", np.ones((9, 2)))
    done = run("fit", "a.npy", "-k", 2, "--missing-code", "-999", "--out", "x", code=3)
    assert "a.npy is a matrix, where --missing-code cannot be used" in done.stderr


# ----------------------------------------------------------------------------------------------- texts and answers


@pytest.fixture
def tickets(home):
    rng = np.random.default_rng(0)
    topics = np.array(["mail", "print", "vpn"])[rng.integers(0, 3, 120)]
    pl.DataFrame(
        {
            "what happened": [f"the {topic} at desk {i} is broken since monday" for i, topic in enumerate(topics)],
            "office": np.array(["ulm", "bonn"])[rng.integers(0, 2, 120)],
            "topic": topics,
            "wait": rng.normal(size=120),
        }
    ).write_csv(home / "tickets.csv")
    return home


def test_free_text_is_not_dropped_in_silence(tickets):
    done = run("fit", "tickets.csv", "-k", 3, "--out", "run", code=3)
    assert "column 'what happened' holds free text (such as 'the" in done.stderr
    assert not (tickets / "run").exists()
    text, drop = (shlex.split(found) for found in re.findall(r"\((--[^()]*)\)", done.stderr))
    assert (text, drop) == (["--text-column", "what happened"], ["--drop", "what happened"])
    seen = run("check", "tickets.csv", code=3).stderr
    assert "error: column 'what happened' holds free text" in seen and advised(seen)[-4:] == [*text, *drop]
    assert run("check", "tickets.csv", *drop).exit_code == 0
    others = ("--drop", "office", "--drop", "wait", "--label-column", "topic")
    assert run("check", "tickets.csv", *text, *others).exit_code == 0
    done = run("fit", "tickets.csv", "-k", 3, *text, *others, *SHORT, "--out", "run")
    assert not notes(done)
    with pytest.raises(fmtc.errors.DataError, match=r"holds free text .*hashed_counts.*drop\(columns='what happened'"):
        FMTC(3).fit(pl.read_csv("tickets.csv"))


def test_the_answer_is_asked_for(tickets):
    command = ("fit", "tickets.csv", "-k", 2, *SHORT, "--drop", "what happened", "--out", "run", "--force")
    (question,) = [note for note in notes(run(*command)) if note.startswith("is 'topic' the answer?")]
    leave, keep = (shlex.split(found) for found in re.findall(r"\((--[^()]*)\)", question))
    assert not any("answer" in note for note in notes(run(*command, *keep)))
    assert Schema.read("run/schema.toml").names == ("office", "topic", "wait")
    assert not any("answer" in note for note in notes(run(*command, *leave)))
    assert Schema.read("run/schema.toml").names == ("office", "wait")


# ----------------------------------------------------------------------------------------------- all problems at once


def test_fit_reports_all_problems_in_the_words_of_preflight(home):
    (home / "broken.csv").write_text("")
    days = pl.date_range(pl.date(2021, 1, 1), pl.date(2021, 2, 19), eager=True)
    forms = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y")
    mixed = [day.strftime(forms[place % 3]) for place, day in enumerate(days)]
    pl.read_csv("south.csv").drop("dose").with_columns(seen=pl.Series(mixed)).write_csv("south.csv")
    text = (home / "north.csv").read_text().replace("W1", "one bed of many,W1", 1)
    (home / "north.csv").write_text(text.replace(",W1", "", 1))
    done = run(*FIT, "nowhere.csv", "broken.csv", "--out", "run", code=3).stderr
    lines = done.splitlines()
    assert any(line.startswith("Error: nowhere.csv does not exist") for line in lines)
    begin = next(place for place, line in enumerate(lines) if line.startswith("All "))
    found = [line.strip() for line in lines[begin + 1 :]]
    assert lines[begin] == f"All {len(found)} problems that stop this run:"
    assert found[0] == "nowhere.csv does not exist; check the name and the current folder"
    assert found[1] == "broken.csv is empty (0 bytes)"
    seen = run("check", "north.csv", "south.csv", code=3).stderr
    errors, silo = [], ""
    for line in seen.splitlines():
        silo = line.partition(" (")[0] if re.match(r"\w+ \(", line) else silo
        errors += [f"{silo}: {line.partition('error: ')[2]}"] if line.startswith("  error: ") else []
    assert found[2:] == errors and len(errors) >= 3
    assert any("column 'seen' holds dates (such as 2021-01-01)" in line for line in errors)
    assert not (home / "run").exists()


def test_fit_reports_all_silos_with_too_few_rows(home):
    for name, rows in {"north": 4, "south": 3}.items():
        pl.read_csv(f"{name}.csv").head(rows).write_csv(f"{name}.csv")
    done = run("fit", "north.csv", "south.csv", "-k", 5, "--drop", "ward", "--out", "run", code=3).stderr
    assert "needs at least 6 rows in every silo" in done
    assert "All 2 problems that stop this run:\n  north: has 4 rows, but needs at least 6\n" in done
    assert "\n  south: has 3 rows, but needs at least 6" in done


def test_one_problem_is_said_as_before(home):
    assert "Error: nowhere.csv does not exist" in run(*FIT, "nowhere.csv", "--out", "run", code=3).stderr
