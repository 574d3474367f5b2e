"""fmtc advise-k, and -k auto: what they say, write and refuse."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from fmtc.cli import main_group


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("silos")
    centers = rng.normal(size=(4, 60)).repeat(20, axis=0)
    for name in ("east", "north", "south"):
        np.save(folder / f"{name}.npy", centers + 0.8 * rng.normal(size=centers.shape))
    return sorted(folder.glob("*.npy"))


def fmtc_run(*args):
    env = {"NO_COLOR": "1", "TERM": "dumb", "FMTC_DEBUG": None, "FORCE_COLOR": None, "COLUMNS": "120"}
    return CliRunner().invoke(main_group, list(map(str, args)), prog_name="fmtc", env=env)


def test_the_advice_is_printed(files):
    done = fmtc_run("advise-k", *files, "--range", "2..7")
    assert done.exit_code == 0, done.output
    assert "Advice: 4 clusters. Verdict: not clear." in done.stdout
    assert "may not be the one that you want" in done.stdout
    assert "3 silos, 240 rows, 60 features" in done.stderr


def test_json_and_a_picture(files, tmp_path):
    picture = tmp_path / "k.png"
    done = fmtc_run("advise-k", *files, "--range", "2..6", "--json", "--plot", picture, "-q")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["chosen"], document["verdict"]) == (4, "range")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert fmtc_run("advise-k", *files, "--plot", picture).exit_code == 2  # not replaced


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--range", "1..4"], 2, "begins at 2"),
        (["--range", "9..3"], 2, "smaller number first"),
        (["--range", "few"], 2, "3..12"),
        (["--range", "2..40"], 3, "80 rows"),
        (["--privacy", "sums"], 2, "give a number"),
        (["--plot", "k.txt"], 2, ".png"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(files, args, code, words):
    done = fmtc_run("advise-k", *files, *args)
    assert done.exit_code == code, done.output
    assert words in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_files_or_a_kit_are_needed():
    assert "--kit" in fmtc_run("advise-k").stderr


def test_a_fit_takes_the_advice(files, tmp_path):
    done = fmtc_run("fit", *files, "-k", "2..6", "--view", "graph", "--max-iter", "2", "--out", tmp_path / "run", "-q",
                    "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["settings"]["n_clusters"] == 4
    assert {"spectrum"} <= {row["phase"] for row in report["sent"]}
    assert fmtc_run("outbox", "verify", tmp_path / "run").exit_code == 0


@pytest.mark.parametrize(("k", "words"), [("1..3", "begins at 2"), ("lots", "neither a whole number")])
def test_a_fit_refuses_other_words(files, tmp_path, k, words):
    done = fmtc_run("fit", *files, "-k", k, "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())
