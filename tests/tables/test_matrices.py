"""Files of AnnData: clusters of a run go into obs."""

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from numpy.testing import assert_array_equal

from fmtc.artifacts.labels import read_labels
from fmtc.cli import main_group
from fmtc.tables import Reading, read_silos
from fmtc.tables.matrices import read_obs


def obs_as(path, version):
    """A file as AnnData 0.7 ("0.1.0") or later ("0.2.0") writes it: 60 cells of three kinds in two batches."""
    h5py = pytest.importorskip("h5py")
    rng, text = np.random.default_rng(0), h5py.string_dtype()
    X = 5 * np.eye(3)[np.arange(60) % 3] + rng.normal(size=(60, 3))
    with h5py.File(path, "w") as file:
        file["X"] = X
        for name, key, words in (("obs", "cell", [f"=cell{i}" for i in range(60)]), ("var", "gene", ["A", "B", "C"])):
            group = file.create_group(name)
            group.attrs["encoding-type"], group.attrs["encoding-version"] = "dataframe", version
            group.attrs["_index"] = key
            group.create_dataset(key, data=words, dtype=text)
            group.attrs.create("column-order", ["batch"] if name == "obs" else [], dtype=text)
        codes = np.arange(60, dtype=np.int8) // 30
        if version == "0.1.0":
            kept = file["obs"].create_group("__categories").create_dataset("batch", data=["one", "two"], dtype=text)
            file["obs"].create_dataset("batch", data=codes).attrs["categories"] = kept.ref
        else:
            batch = file["obs"].create_group("batch")
            batch["categories"], batch["codes"] = ["one", "two"], codes
        file["uns/what"] = "kept"
    return X


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
@pytest.mark.parametrize("flags", [(), ("--silo-column", "batch")])
def test_clusters_go_into_obs_of_a_copy(tmp_path, version, flags):
    """In the encoding that the file has, listed in `column-order`, beside what was there; the input stays as it is."""
    h5py, file, out = pytest.importorskip("h5py"), tmp_path / "cells.h5ad", tmp_path / "new.h5ad"
    X = obs_as(file, version)
    before = file.read_bytes()

    def call(*words):
        return CliRunner().invoke(main_group, [str(word) for word in words])

    assert (
        call(
            "fit", file, "-k", 3, *flags, "--max-iter", 3, "--set", "n_init=2", "--out", tmp_path / "run", "-q"
        ).exit_code
        == 0
    )
    assert call("explain", tmp_path / "run", "--rename", "1==ill").exit_code == 0
    done = call("explain", tmp_path / "run", "--join", file, "--out", out, *flags)
    assert done.exit_code == 0, done.output
    assert file.read_bytes() == before
    wanted = pl.concat(read_labels(tmp_path / "run").values())
    wanted = dict(wanted.select(wanted.columns[0], pl.col("cluster").cast(pl.String)).iter_rows())
    with h5py.File(out) as made:
        obs, new = made["obs"], ["cluster", "cluster_name", "probability"]
        assert list(obs.attrs["column-order"]) == ["batch", *new]
        assert made["uns/what"].asstr()[()] == "kept"
        assert_array_equal(made["X"][:], X)
        if version == "0.1.0":
            levels, codes = made[obs["cluster"].attrs["categories"]], obs["cluster"]
            assert levels.name == "/obs/__categories/cluster"
            assert "ordered" in levels.attrs
        else:
            levels, codes = obs["cluster/categories"], obs["cluster/codes"]
            assert dict(obs["cluster"].attrs) == {
                "encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False,
            }  # fmt: skip
            assert (levels.attrs["encoding-type"], codes.attrs["encoding-type"]) == ("string-array", "array")
        words = levels.asstr()[:]
        assert [words[code] for code in codes[:]] == [wanted[name] for name in obs["cell"].asstr()[:]]
        assert np.all((obs["probability"][:] > 0.3) & (obs["probability"][:] <= 1))
    ids, about = read_obs(out)
    assert set(about.filter(pl.col("cluster") == "1")["cluster_name"]) == {"=ill"}  # no CSV, so as it is
    assert ids[0] == "=cell0"
    (whole,) = read_silos([out], Reading(label_column="cluster"))  # and it is a file of AnnData as before
    assert whole.labels == [wanted[name] for name in whole.ids]
    again = call("explain", tmp_path / "run", "--join", out, "--out", tmp_path / "third.h5ad", *flags)
    assert again.exit_code == 0, again.output
    assert "fmtc_cluster" in read_obs(tmp_path / "third.h5ad")[1].columns


def test_what_keeps_clusters_out_of_obs(tmp_path):
    h5py, file, run = pytest.importorskip("h5py"), tmp_path / "cells.h5ad", tmp_path / "run"
    obs_as(file, "0.2.0")

    def call(*words):
        done = CliRunner().invoke(main_group, [str(word) for word in words])
        assert "--append, " in done.stderr or "--append" not in done.stderr
        return done.exit_code, " ".join(done.stderr.split())

    assert call("fit", file, "-k", 3, "--max-iter", 3, "--set", "n_init=2", "--out", run, "-q")[0] == 0
    code, words = call("explain", run, "--join", file)
    assert (code, "--out new.h5ad" in words) == (2, True)
    code, words = call("predict", run, file, "--append")
    assert (code, "omit --append, and write clusters into obs afterwards" in words) == (2, True)
    np.save(tmp_path / "rows.npy", np.ones((3, 3)))
    code, words = call("explain", run, "--join", tmp_path / "rows.npy")
    assert (code, "give a table" in words) == (2, True)
    for content, why in ((b"x", "damaged or not a .h5ad file"), (file.read_bytes()[:3000], "damaged")):
        (tmp_path / "bad.h5ad").write_bytes(content)
        code, words = call("explain", run, "--join", tmp_path / "bad.h5ad", "--out", tmp_path / "new.h5ad")
        assert (code, why in words) == (3, True), words
    with h5py.File(tmp_path / "old.h5ad", "w") as old:
        old["obs"] = np.array([(b"a", 1)], dtype=[("index", "S1"), ("age", int)])
    code, words = call("explain", run, "--join", tmp_path / "old.h5ad", "--out", tmp_path / "new.h5ad")
    assert (code, "AnnData 0.7 or later" in words) == (3, True)
    assert sorted(path.name for path in tmp_path.iterdir() if "new" in path.name) == []
