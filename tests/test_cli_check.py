"""`fmtc check`: what it prints, its JSON, and the code it exits with."""

import json
import re

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from fmtc.cli import main_group
from fmtc.cli.check import Comparison
from fmtc.cli.words import Words
from fmtc.tables import Columns, Finding, Reading, read_silos


def check(*args, **env):
    plain = {"NO_COLOR": "1", "TERM": "dumb", "FMTC_DEBUG": None, "FORCE_COLOR": None, "COLUMNS": "80"}
    done = CliRunner().invoke(main_group, ["check", *map(str, args)], prog_name="fmtc", env=plain | env)
    assert "Traceback" not in done.stderr
    return done


def patients(seed, n=60):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "patient": [f"{seed}-{i}" for i in range(n)],
            "height": rng.normal(1.7, 0.1, n),
            "weight": rng.normal(70, 9, n),
            "[red]": rng.normal(5, 1, n),
        }
    )


@pytest.fixture
def home(tmp_path):
    """Three files that agree."""
    for seed, name in enumerate(("north", "south", "west")):
        patients(seed).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def files(home):
    return sorted(home.glob("*.csv"))


ID = ("--id-column", "patient")


def test_silos_that_agree(home):
    done = check(*files(home), *ID)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "north (60 rows, 3 columns): agrees",
        "south (60 rows, 3 columns): agrees",
        "west (60 rows, 3 columns): agrees",
        "",
        "3 silos agree: nothing stops a run",
    ]


def test_what_differs_is_said_of_each_silo_with_names(home):
    odd = patients(7).drop("[red]").with_columns(pl.col("weight") * 1000, pl.lit("?").alias("dose"))
    odd.with_columns(
        pl.when(pl.col("patient") == "7-3").then(None).otherwise(pl.col("height")).alias("height")
    ).write_csv(home / "south.csv")
    done = check(*files(home), *ID)
    assert (done.exit_code, done.stdout) == (3, "")
    north, south, *said, west, _, summary = done.stderr.splitlines()
    assert (north, west) == ("north (60 rows, 3 columns): agrees", "west (60 rows, 3 columns): agrees")
    assert south == "south (60 rows, 3 columns): 2 errors, 3 notes"
    mentioned = [r"error: .*'\[red\]'", "error: .*'dose'", "note: .*'dose'", r"note: .*'height' \(1\)",
                 "note: .*1,000 times .*'weight': grams for kilograms"]  # fmt: skip
    assert all(re.match(f"  {words}", line) for words, line in zip(mentioned, said, strict=True))
    assert summary.startswith("1 of 3 silos")


def test_notes_alone_do_not_stop(home):
    patients(1).with_columns(pl.col("height") * 100).write_csv(home / "south.csv")
    done = check(*files(home), *ID)
    assert done.exit_code == 0
    assert "south (60 rows, 3 columns): 1 note" in done.stderr
    assert done.stderr.endswith("nothing stops a run, but read the notes about south first\n")
    assert "south (60 rows, 3 columns): agrees" not in done.stderr


def test_an_order_that_fit_puts_right_is_a_note(home):
    patients(1).select("patient", "weight", "height", "[red]").write_csv(home / "south.csv")
    done = check(*files(home), *ID)
    assert done.exit_code == 0
    assert re.search("note: .*'weight' is column 0, there 1", done.stderr)
    with pytest.warns(UserWarning, match="'south'"):
        read_silos(files(home), Reading(id_column="patient"))


def test_too_few_rows_for_the_clusters(home):
    assert check(*files(home), *ID, "-k", 59).exit_code == 0
    done = check(*files(home), *ID, "-k", 60)
    assert done.exit_code == 3
    assert re.search(r"\b60 rows.* 61$", done.stderr, re.MULTILINE)


def test_json(home):
    patients(1).with_columns(pl.col("height") * 100).drop("weight").write_csv(home / "south.csv")
    done = check(*files(home), *ID, "--json")
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    north, south, west = document["silos"]
    assert (document["agree"], north["errors"], west["findings"]) == (False, [], [])
    assert (south["silo"], south["rows"], south["columns"]) == ("south", 60, ["height", "[red]"])
    assert ["'weight'" in sentence for sentence in south["errors"]] == [True]
    assert south["findings"][1] == {
        "silo": "south", "code": "unit", "severity": "note", "column": 0, "other": "north", "place": 0, "number": 100.0,
    }  # fmt: skip
    (home / "south.csv").unlink()
    done = check(*files(home), *ID, "--json")
    assert (done.exit_code, json.loads(done.stdout)["agree"]) == (0, True)


def test_one_file_of_all_silos(home):
    frames = {file.stem: pl.read_csv(file) for file in files(home)}
    frames["west"] = frames["west"].with_columns(pl.lit(3.0).alias("weight"))
    pl.concat([frame.with_columns(pl.lit(name).alias("site")) for name, frame in frames.items()]).write_parquet(
        home / "all.parquet"
    )
    done = check(home / "all.parquet", "--silo-column", "site", *ID)
    assert done.exit_code == 0
    assert "west (60 rows, 3 columns): 1 note" in done.stderr
    assert re.search("note: .*'weight'", done.stderr)


def test_a_single_silo(home):
    done = check(home / "north.csv", *ID)
    assert (done.exit_code, "nothing to compare it with" in done.stderr) == (0, True)
    done = check(home / "north.csv")  # names of patients are set aside
    assert (done.exit_code, "'patient' names the rows" in done.stderr) == (0, True)


def test_matrices(tmp_path, rng):
    for name, width in (("a", 5), ("b", 5), ("c", 4)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(30, width)))
    done = check(*sorted(tmp_path.glob("*.npy")))
    assert done.exit_code == 3
    assert re.search("^  error: .*column 4", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(("arguments", "words"), [
    (["north.csv", "elsewhere/north.csv"], "'north'.* --silo-column"),
    (["north.csv", "nowhere.csv"], r"nowhere\.csv"),
    (["north.csv", "broken.parquet"], r"broken\.parquet"),
    (["north.csv", "south.csv", "--drop", "weigth"], "--drop: .*'weight' or 'height'"),
])  # fmt: skip
def test_files_that_cannot_be_read(home, monkeypatch, arguments, words):
    monkeypatch.chdir(home)
    (home / "elsewhere").mkdir()
    patients(0).write_csv(home / "elsewhere" / "north.csv")
    (home / "broken.parquet").write_bytes(b"PAR1 and no more")
    done = check(*arguments)
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1
    assert re.search(words, done.stderr)


def test_colours_and_indented_lines_on_a_terminal(home):
    patients(1).with_columns(pl.col("height") * 100).write_csv(home / "south.csv")
    done = check(*files(home), *ID, NO_COLOR=None, FORCE_COLOR="1", TERM="xterm", COLUMNS="60")
    assert "\x1b[32magrees" in done.stderr
    lines = done.stderr.splitlines()
    first = next(place for place, line in enumerate(lines) if "about 100 times" in line)
    assert lines[first].startswith("  ")
    assert lines[first + 1].startswith("  ")


def test_findings_without_columns_at_hand(capsys):
    """As a coordinator shows them."""
    findings = [Finding("b", "missing", "error", 4, number=2.0), Finding("a", "constant", "note", 1)]
    found = Comparison(["a", "b", "c"], findings)
    found.show(Words())
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "a: 1 note"
    assert (said[2], said[4]) == ("b: 1 error", "c: agrees")
    assert "column 4 (2)" in said[3]
    assert found.stops
    assert not Comparison(["a"], findings[1:]).stops
    assert found.to_dict()["silos"][1]["rows"] is None
    assert Comparison(["b"], findings, {"b": Columns(np.zeros((3, 5)))}).to_dict()["silos"][0]["rows"] == 3


def test_dates_are_called_dates_and_flags_are_flags(tmp_path):
    rows = patients(0, 30)
    days = pl.date_range(pl.date(2021, 1, 3), pl.date(2021, 2, 1), eager=True).cast(pl.String)
    rows.with_columns(visit=days).write_csv(tmp_path / "north.csv")
    done = check(tmp_path / "north.csv")
    assert done.exit_code == 3
    assert "error: column 'visit' holds dates (such as 2021-01-03)" in done.output
    assert "omit it (--drop visit), or write what matters about it as a number, such as days since" in done.output
