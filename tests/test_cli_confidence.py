"""Commands: fit --calibrate, predict --abstain, drift."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from fmtc.cli import main_group


def fmtc(*words):
    return CliRunner().invoke(main_group, [str(word) for word in words])


def table(n, seed, at=(0.0, 8.0)):
    rng = np.random.default_rng(seed)
    middle = rng.choice(at, size=n)
    columns = {f"c{j}": middle * (j % 2) + rng.normal(size=n) for j in range(4)}
    return pl.DataFrame({"patient": [f"p{seed}-{i:03}" for i in range(n)]} | columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("confidence")
    for seed, name in enumerate(("north", "south")):
        table(90, seed).write_csv(path / f"{name}.csv")
    for name, options in (("run", ["--calibrate"]), ("plain", [])):
        done = fmtc("fit", path / "north.csv", path / "south.csv", "-k", 2, "--out", path / name,
                    "--random-state", 0, "--set", "n_init=2", *options)  # fmt: skip
        assert done.exit_code == 0, done.output
    table(120, 5).write_csv(path / "new.csv")
    table(120, 6, at=(0.0, 4.0)).write_csv(path / "other.csv")
    return path


def test_the_least_certain_rows_get_no_cluster(folder):
    done = fmtc("predict", folder / "run", folder / "new.csv", "--silo", "north", "--abstain", 0.1, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    cluster, sure = np.array(found["columns"]["cluster"]), np.array(found["columns"]["confidence"])
    assert ((cluster == -1) == (sure < 0.1)).all() and 0 < (cluster == -1).mean() < 0.3
    assert f"{(cluster == -1).sum()} of 120 rows" in " ".join(found["notes"])


def test_a_whole_table_and_names_of_clusters(folder, tmp_path):
    assert fmtc("explain", folder / "run", "--rename", "0=sick").exit_code == 0
    done = fmtc("predict", folder / "run", folder / "new.csv", "--silo", "north", "--abstain", 0.3, "--append",
                "--out", tmp_path / "with.csv")  # fmt: skip
    assert done.exit_code == 0, done.output
    with_labels = pl.read_csv(tmp_path / "with.csv")
    left = with_labels.filter(pl.col("cluster") == -1)
    assert 0 < left.height < 80
    assert left.get_column("cluster_name").null_count() == left.height  # no name either
    assert (left.get_column("confidence") < 0.3).all()
    assert fmtc("explain", folder / "run", "--rename", "0=").exit_code == 0


def test_drift_has_an_exit_code_of_its_own(folder, tmp_path):
    calm = fmtc("drift", folder / "run", folder / "new.csv", "--silo", "north", "--level", 0.001)
    assert calm.exit_code == 0 and "north: no drift (p = " in calm.stdout, calm.output
    alarm = fmtc("drift", folder / "run", folder / "other.csv", "--silo", "north", "--json")
    assert alarm.exit_code == 7, alarm.output
    found = json.loads(alarm.stdout)
    assert found["verdict"] == "drift" and found["silos"][0]["share_low"] > 0.2 and found["level"] == 0.05
    (tmp_path / "north.json").write_text(alarm.stdout)
    both = fmtc("drift", "--combine", tmp_path / "north.json", "0.04")
    assert both.exit_code == 7 and "2 silos together: drift" in both.stdout
    assert fmtc("drift", "--combine", "0.5", "0.7").exit_code == 0


def test_several_silos_of_one_file(folder, tmp_path):
    parts = [table(60, seed).with_columns(site=pl.lit(name)) for seed, name in ((7, "north"), (8, "south"))]
    pl.concat(parts).write_csv(tmp_path / "all.csv")
    done = fmtc("drift", folder / "run", tmp_path / "all.csv", "--silo-column", "site", "--level", 0.0001)
    assert done.exit_code == 0 and "all 2 silos together: no drift" in done.stdout, done.output


def test_what_cannot_be_done_is_said_in_a_sentence(folder, tmp_path):
    for words in (("predict", "--abstain", 0.1), ("drift",)):
        done = fmtc(words[0], folder / "plain", folder / "new.csv", "--silo", "north", *words[1:])
        assert done.exit_code == 3 and "fmtc fit --calibrate" in done.output.replace("\n", " ")
    assert fmtc("predict", folder / "run", folder / "new.csv", "--silo", "north", "--abstain", 1.5).exit_code == 2
    assert fmtc("drift", folder / "run").exit_code == 2
    assert fmtc("drift", "--combine", "nowhere.json").exit_code == 2
    assert fmtc("drift", "--combine", "1.5", "0.1").exit_code == 3
    (tmp_path / "other.json").write_text('{"p": 1}')
    assert fmtc("drift", "--combine", tmp_path / "other.json").exit_code == 3
