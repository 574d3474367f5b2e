"""publish, join-later, update, leave and merge on the command line."""

import json
import socket

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from fmtc.cli import main_group

CENTERS = 7 * np.eye(4)[:3]
COLUMNS = ["age", "dose", "mass", "size"]


def table(seed, n=20, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([0, 1, 2], n))
    X = CENTERS[y] + shift + rng.normal(size=(len(y), 4))
    return pl.DataFrame({"id": [f"p{seed}-{i}" for i in range(len(y))], **dict(zip(COLUMNS, X.T, strict=True))})


def fmtc(*arguments, code=0):
    done = CliRunner().invoke(main_group, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run of three silos, and the kit of it."""
    folder = tmp_path_factory.mktemp("home")
    for seed, name in enumerate(("north", "south", "west", "late", "more")):
        table(seed).write_csv(folder / f"{name}.csv")
    files = [folder / f"{name}.csv" for name in ("north", "south", "west")]
    fmtc("fit", *files, "-k", 3, "--set", "n_init=2", "--out", folder / "run", "-q")
    fmtc("explain", folder / "run", "--rename", "1=severe")
    fmtc("publish", folder / "run", "--out", folder / "kit")
    return folder


def test_join_later_without_a_network(home, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    out = tmp_path / "ours"
    done = fmtc("join-later", "--kit", home / "kit", "--data", home / "late.csv", "--out", out, "--json")
    report = json.loads(done.stdout)
    assert report["joined"]["guided"] and report["sent"] == []
    assert ": joined" in done.stderr
    labels = pl.read_csv(out / "labels" / "late.csv")
    assert labels.columns == ["id", "cluster", "cluster_name", "probability"]
    assert set(labels.filter(pl.col("cluster") == 1)["cluster_name"]) == {"severe"}
    here = fmtc("predict", out, home / "north.csv").stdout
    there = fmtc("predict", home / "run", home / "north.csv", "--silo", "north").stdout
    numbers = [[line.split(",")[1] for line in text.splitlines()] for text in (here, there)]
    assert numbers[0] == numbers[1]  # the same concept has the same number
    assert "severe" in fmtc("explain", out).stdout
    assert fmtc("explain", "--show", "model", out).stdout
    assert json.loads(fmtc("report", out, "--json").stdout)


def test_words_about_the_rows_of_others_do_not_travel(home, tmp_path):
    """A name that somebody gave does; "high age" would stand beside the newcomer's own numbers, which may be lower."""
    fmtc("join-later", "--kit", home / "kit", "--data", home / "late.csv", "--out", tmp_path / "ours")
    told = json.loads(fmtc("explain", tmp_path / "ours", "--json").stdout)
    assert [one["given"] for one in told["clusters"]] == ["", "severe", ""]
    assert all(one["words"] for one in told["clusters"])
    assert "of this silo alone" in told["notes"][0]


def test_a_kit_with_other_columns_writes_nothing(home, tmp_path):
    pl.read_csv(home / "late.csv").drop("dose").write_csv(tmp_path / "ours.csv")
    done = fmtc("join-later", "--kit", home / "kit", "--data", tmp_path / "ours.csv", "--out", tmp_path / "o", code=3)
    assert "lacks 'dose'" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ours.csv"]
    done = fmtc("join-later", "--kit", home / "run", "--data", home / "late.csv", "--out", tmp_path / "o", code=3)
    assert "join.json is missing" in done.stderr


def test_two_silos_publish_nothing(home, tmp_path):
    fmtc("fit", home / "north.csv", home / "south.csv", "-k", 3, "--set", "n_init=2", "--out", tmp_path / "two", "-q")
    done = fmtc("publish", tmp_path / "two", "--out", tmp_path / "kit", code=4)
    assert "a run of 2 silos cannot be published" in done.stderr and not (tmp_path / "kit").exists()


def test_update_appends_and_forgets(home, tmp_path):
    out = tmp_path / "run-2"
    files = (home / "north.csv", home / "more.csv")
    done = fmtc("update", home / "run", *files, "--silo", "north", "--keep-last", 70, "--out", out)
    assert "no rows of 'south', 'west'" in done.stderr
    labels = pl.read_csv(out / "labels" / "north.csv")
    assert labels.height == 70 and labels["id"][-1] == "p4-59"
    before = pl.read_csv(home / "run" / "labels" / "north.csv")
    both = before.join(labels, on="id")
    assert both.height == 10 and (both["cluster"] == both["cluster_right"]).all()
    assert fmtc("predict", out, home / "south.csv", "--silo", "south").stdout
    done = fmtc("update", home / "run", home / "more.csv", "--out", tmp_path / "no", code=2)
    assert "give --silo" in done.stderr and not (tmp_path / "no").exists()


def test_a_row_of_an_update_is_found_in_all_files_of_its_silo(home, tmp_path):
    out, files = tmp_path / "run-2", (home / "north.csv", home / "more.csv")
    fmtc("update", home / "run", *files, "--silo", "north", "--out", out, "-q")
    labels = dict(pl.read_csv(out / "labels" / "north.csv").select("id", "cluster").iter_rows())
    for row, flags in (("p0-5", []), ("p4-5", []), ("p4-5", ["--silo", "north"])):
        why = json.loads(fmtc("explain", out, "--row", row, *flags, "--json").stdout)
        assert why["row"] == f"id {row} of north" and why["cluster"] == labels[row]
    done = fmtc("explain", out, "--row", "p0-5", "--silo", "west", code=3)  # keeps its model, and has no rows here
    assert "no rows of 'west'" in done.stderr


def test_update_with_dense_and_sparse_files_of_one_silo(tmp_path):
    for seed, name in enumerate(("north", "south", "west")):
        np.save(tmp_path / f"{name}.npy", table(seed).select(COLUMNS).to_numpy())
    sp.save_npz(tmp_path / "january.npz", sp.coo_array(table(5).select(COLUMNS).to_numpy()))
    run, files = tmp_path / "run", [tmp_path / f"{name}.npy" for name in ("north", "south", "west")]
    fmtc("fit", *files, "-k", 3, "--view", "graph", "--scale", "global", "--out", run, "-q")
    both = files[0], tmp_path / "january.npz"
    for place, given in enumerate((both, both[::-1], both[1:])):
        fmtc("update", run, *given, "--silo", "north", "--out", tmp_path / f"run-{place}", "-q")
        n_rows = 60 * len(given)
        assert pl.read_csv(tmp_path / f"run-{place}" / "labels" / "north.csv").height == n_rows
