"""Commands of private runs: bounds, plan, budget, and the flags of fit."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from fmtc.cli import main_group
from fmtc.cli.settings import read_bounds
from fmtc.errors import DataError, FileError
from fmtc.privacy.budget import Budget


def fmtc(*words):
    return CliRunner().invoke(main_group, [str(word) for word in words])


@pytest.fixture
def tables(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for name in ("north", "south", "east"):
        kind = rng.integers(2, size=200)
        frame = pl.DataFrame(
            {
                "age": np.round(20 + 50 * kind + 5 * rng.normal(size=200), 2),
                "dose": np.round(kind * 7.77 + rng.normal(size=200), 3),
                "sex": rng.choice(["f", "m"], size=200),
            }
        )
        files.append(tmp_path / f"{name}.csv")
        frame.write_csv(files[-1])
    return files


def test_the_template_names_columns_and_holds_no_value(tables, tmp_path):
    result = fmtc("check", *tables, "--write-bounds", tmp_path / "bounds.toml")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "bounds.toml").read_text()
    assert '"age" = ["low", "high"]' in text and '"dose"' in text and "sex" not in text
    values = {cell for file in tables for line in file.read_text().splitlines()[1:] for cell in line.split(",")[:2]}
    assert not [value for value in values if value in text]
    assert "fill in the bounds of 2 columns" in result.stderr


def test_a_template_must_be_filled_in(tables, tmp_path):
    assert fmtc("check", *tables, "--write-bounds", tmp_path / "bounds.toml").exit_code == 0
    assert fmtc("check", *tables, "--write-bounds", tmp_path / "bounds.toml").exit_code == 2  # not replaced
    result = fmtc(
        "fit", *tables, "-k", 2, "--epsilon", 8, "--bounds", tmp_path / "bounds.toml", "--out", tmp_path / "run"
    )
    assert result.exit_code == 3 and "lowest and highest" in result.output
    assert not (tmp_path / "run").exists()


def test_fit_with_bounds(tables, tmp_path):
    (tmp_path / "bounds.toml").write_text('"dose" = [-5, 15]\n"age" = [0, 110]\n')  # in any order
    words = ["fit", *tables, "-k", 2, "--epsilon", 8, "--bounds", tmp_path / "bounds.toml", "--out", tmp_path / "run"]
    result = fmtc(*words, "--colluding", 2)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["view"] == "anchors" and report["settings"]["privacy"]["epsilon"] == 8
    assert report["settings"]["privacy"]["colluding"] == 2
    assert report["settings"]["privacy"]["bounds"] == [[0, -5], [110, 15]]
    assert fmtc("explain", "--show", "model", tmp_path / "run").exit_code == 0
    pulls = fmtc("explain", "--show", "influence", tmp_path / "run")
    assert pulls.exit_code == 0 and pulls.output.count("common model") == 3, pulls.output
    answers = fmtc("predict", tmp_path / "run", tables[0], "--silo", "north", "--out", tmp_path / "p.csv")
    assert answers.exit_code == 0, answers.output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--epsilon", 8], 2, "needs --bounds"),
        (["--delta", 1e-6], 2, "give --epsilon"),
        (["--colluding", 2], 2, "give --epsilon"),
        (["--epsilon", 8, "--colluding", 3, "--bounds", "B"], 4, "work together"),
        (["--epsilon", -1, "--bounds", "B"], 2, "epsilon must be"),
        (["--epsilon", 0.1, "--bounds", "B"], 4, "rows"),
        (["--epsilon", 0.1, "--bounds", "B", "--rows", 600], 4, "600 rows"),
        (["--epsilon", 8, "--delta", 0.1, "--bounds", "B"], 4, "1/200"),
        (["--epsilon", 8, "--bounds", "missing.toml"], 3, "missing"),
    ],
)
def test_refusals_have_one_sentence_and_a_code(tables, tmp_path, words, code, said):
    file = tmp_path / "bounds.toml"
    file.write_text('"*" = [-5, 110]\n')
    result = fmtc(
        "fit", *tables, "-k", 2, "--out", tmp_path / "run", *[file if word == "B" else word for word in words]
    )
    assert result.exit_code == code, result.output
    assert said in result.output.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_two_silos_are_too_few(tables, tmp_path):
    (tmp_path / "bounds.toml").write_text('"*" = [-5, 110]\n')
    flags = ["--epsilon", 8, "--bounds", tmp_path / "bounds.toml", "--out", tmp_path / "run"]
    result = fmtc("fit", *tables[:2], "-k", 2, *flags)
    assert result.exit_code == 3 and "at least 3" in result.output


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('"age" = [0, 1]', "no bounds for 'dose'"),
        ('"age" = [0, 1]\n"dose" = [1, 1]', "'dose'"),
        ('"age" = [0, 1]\n"dose" = [0, inf]', "'dose'"),
        ('"age" = [0, 1]\n"dose" = [0, 1]\n"other" = [0, 1]', "'other'"),
        ('"age" = 3', "'age'"),
        ("age = [", "cannot be read"),
        ("age = " + 5000 * "[", "nested too deeply"),
    ],
)
def test_bounds_that_cannot_be_used(tmp_path, text, error):
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises((DataError, FileError), match=error):
        read_bounds(tmp_path / "b.toml", ["age", "dose"])


def test_one_pair_stands_for_all_others(tmp_path):
    (tmp_path / "b.toml").write_text('"dose" = [0, 9]\n"*" = [0, 1]')
    assert read_bounds(tmp_path / "b.toml", ["age", "dose"]) == ((0, 0), (1, 9))
    (tmp_path / "b.toml").write_text('"*" = [0, 1]')
    assert read_bounds(tmp_path / "b.toml", ["age", "dose"]) == (0, 1)
    (tmp_path / "b.toml").write_text('"dose" = [0, 9]\n"age" = [0, 1]')
    assert read_bounds(tmp_path / "b.toml") == ((0, 0), (9, 1))


def test_the_plan():
    words = ["federation", "epsilon", "--rows", 5000, "--silos", 10, "--features", 64, "-k", 10]
    found = json.loads(fmtc(*words, "--json").stdout)
    assert [line["verdict"] for line in found["plans"]] == ["weak", "yes", "yes", "yes", "yes"]
    assert found["plans"][2]["ratio"] == pytest.approx(2.09, abs=0.01)
    shown = fmtc(*words)
    assert shown.exit_code == 0 and "1,200" in shown.output and "weak" in shown.output
    few = fmtc("federation", "epsilon", "--rows", 5000, "--silos", 2, "--features", 64, "-k", 10)
    assert "at least 3" in few.output


def test_the_budget_of_a_kit(tmp_path):
    (tmp_path / "startup").mkdir()
    assert "no private answer" in fmtc("outbox", "budget", tmp_path).output
    Budget(tmp_path / "budget.json").charge("abcdef0123456789", 0.25, 1e-5)
    told = json.loads(fmtc("outbox", "budget", tmp_path, "--json").stdout)
    assert told["spent"][0]["epsilon"] == pytest.approx(2.0, abs=0.05) and told["budget"] is None
    assert "abcdef012345" in fmtc("outbox", "budget", tmp_path).output
    assert fmtc("outbox", "budget", tmp_path / "nothing").exit_code == 3
