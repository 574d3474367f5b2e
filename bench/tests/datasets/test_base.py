"""A data set as a federation: what it refuses, how it is split, where it is looked for."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.errors import DatasetError, InputError
from fmtc.schema import Column, Schema
from fmtc_bench.datasets import SOURCES, FederatedDataset, label_skew, load, source_of, synthetic
from fmtc_bench.datasets.base import data_homes, find


def make(n=60, d=4, recipe="none", sizes=(40, 20), k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 5 + 2
    clients = np.repeat(["b", "a"], sizes)
    return FederatedDataset("made", X, np.arange(n) % k, clients, tuple("wxyz"[:d]), ("p", "q", "r"), recipe)


def test_what_does_not_fit_together_is_refused():
    X, y, clients = np.zeros((3, 2)), np.zeros(3, int), np.array(["a"] * 3)
    for bad in (
        (X, y[:2], clients),
        (X, y, clients[:2]),
        (X[:, :1], y, clients),
        (X, y + 1, clients),
        (X, y - 1, clients),
    ):
        with pytest.raises(DatasetError, match="made: "):
            FederatedDataset("made", *bad, ("f", "g"), ("c",))
    with pytest.raises(DatasetError, match=r"none, standardize, tfidf, .*'zca'"):
        FederatedDataset("made", X, y, clients, ("f", "g"), ("c",), "zca")


def test_a_split_is_inside_each_client_and_by_class():
    data = make()
    train, test = data.split(test_size=0.25, seed=3)
    assert train.client_ids == test.client_ids == data.client_ids == ["a", "b"]
    for cid, size in (("a", 5), ("b", 10)):
        part = test.by_client()[cid]
        assert len(part.y) == size
        assert np.ptp(np.bincount(part.y, minlength=3)) <= 1
    together = np.concatenate([train.X, test.X])
    assert_array_equal(np.sort(together, axis=0), np.sort(data.X, axis=0))
    again, _ = data.split(test_size=0.25, seed=3)
    assert_array_equal(again.X, train.X)
    other, _ = data.split(test_size=0.25, seed=4)
    assert not np.array_equal(other.X, train.X)


def test_few_rows_of_many_classes_are_split_all_the_same():
    data = FederatedDataset(
        "made", np.eye(9), np.arange(9), np.array(["a"] * 9), tuple("abcdefghi"), tuple("abcdefghi")
    )
    train, test = data.split(seed=0)
    assert (len(train.y), len(test.y)) == (7, 2)
    two = FederatedDataset("made", np.eye(2), np.arange(2), np.array(["a"] * 2), ("a", "b"), ("a", "b"))
    assert [len(part.y) for part in two.split(test_size=0.9)] == [1, 1]
    with pytest.raises(DatasetError, match="one row"):
        two.take(np.array([0])).split()
    for size in (0, 1, -0.2):
        with pytest.raises(InputError, match=f"test_size .*{size}"):
            two.split(test_size=size)


def test_units_come_from_the_training_rows():
    data = make(recipe="standardize")
    train, test = data.split(seed=0)
    assert_allclose(train.X.mean(axis=0), 0, atol=1e-12)
    assert_allclose(train.X.std(axis=0), 1, rtol=1e-12)
    assert np.abs(test.X.mean(axis=0)).min() > 1e-3
    assert train.recipe == test.recipe == "none"
    assert_allclose(data.prepared().X.std(axis=0), 1, rtol=1e-12)
    assert make().prepared().X is not None


def table(n=60, missing=0.2, seed=0):
    """Numbers, a category, a constant and a column that is never filled, with cells missing."""
    rng = np.random.default_rng(seed)
    columns = (
        Column("age", unit="years", lower=0),
        Column("sex", "category", ("female", "male")),
        Column("dose", unit="mg"),
        Column("void"),
    )
    X = np.column_stack([rng.normal(50, 9, n), np.arange(n) % 2, np.full(n, 3.3), np.full(n, np.nan)])
    X[rng.random(X.shape) < missing] = np.nan
    schema = Schema(columns)
    y, clients = np.arange(n) % 3, np.repeat(["b", "a"], n // 2)
    return FederatedDataset("made", X, y, clients, schema.names, ("p", "q", "r"), "standardize", schema=schema)


def test_numbers_of_a_table_are_scaled_and_categories_are_not():
    data = table()
    train, test = data.split(seed=0)
    assert data.n_missing == train.n_missing + test.n_missing == np.isnan(data.X).sum() > 60
    age = train.X[:, 0]
    assert_allclose([np.nanmean(age), np.nanstd(age)], [0, 1], atol=1e-12)
    assert abs(np.nanmean(test.X[:, 0])) > 1e-3  # from the training rows
    for part in (train, test, data.prepared()):
        assert set(part.X[~np.isnan(part.X[:, 1]), 1]) == {0.0, 1.0}
        assert_array_equal(part.X[~np.isnan(part.X[:, 2]), 2], 0)  # the constant: without its mean, not divided
        assert np.isnan(part.X[:, 3]).all()
        assert part.schema.levels == (0, 2, 0, 0) and part.schema.columns[1].levels == ("female", "male")
        assert part.schema.columns[0] == Column("age")  # no longer years
    assert data.take(np.arange(4)).schema is data.schema
    assert data.by_client()["a"].schema is data.schema


def test_missing_cells_without_a_schema_are_left_out_of_the_units():
    data = make(recipe="standardize")
    holes = data.X.copy()
    holes[3, 1] = np.nan
    data = FederatedDataset("made", holes, data.y, data.clients, data.feature_names, data.class_names, "standardize")
    prepared = data.prepared()
    assert prepared.n_missing == 1 and prepared.schema is None
    assert_allclose(np.nanstd(prepared.X, axis=0), 1, rtol=1e-12)


def test_a_schema_of_other_columns_is_refused():
    data = make()
    with pytest.raises(DatasetError, match=r"made: .*schema"):
        FederatedDataset(
            "made", data.X, data.y, data.clients, data.feature_names, data.class_names,
            schema=Schema.of_numbers(("x", "w", "y", "z")),
        )  # fmt: skip


def test_words_come_from_the_training_rows():
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((50, 8)) * (rng.random((50, 8)) < 0.3))
    names = tuple(f"word{j}" for j in range(8))
    data = FederatedDataset("made", X, np.zeros(50, int), np.repeat(["a", "b"], 25), names, ("c",), "tfidf")
    train, test = data.split(seed=1)
    assert sp.issparse(train.X)
    assert train.feature_names == test.feature_names
    lengths = np.sqrt(np.ravel(train.X.power(2).sum(axis=1)))
    assert_allclose(lengths[lengths > 0], 1, rtol=1e-12)


def test_counts_and_clients():
    data = make(sizes=(59, 1))
    assert data.class_counts() == {"a": {"p": 0, "q": 0, "r": 1}, "b": {"p": 20, "q": 20, "r": 19}}
    assert repr(data) == "<made: 60 rows x 4 columns, 2 clients, 3 classes>"


def test_everyone_gets_three_rows_of_each_class():
    y = np.repeat([0, 1, 2], [30, 200, 40])
    for concentration in (0.05, 1.0, 1000.0):
        clients = label_skew(y, 5, concentration=concentration, random_state=1)
        table = np.array([[np.sum((clients == f"silo{t}") & (y == c)) for c in range(3)] for t in range(1, 6)])
        assert table.min() >= 3
        assert_array_equal(table.sum(axis=0), [30, 200, 40])
    assert np.ptp(table[:, 1]) < 15  # nearly equal shares
    with pytest.raises(InputError, match=r"class 0 has 30 rows.* 11 clients"):
        label_skew(y, 11, concentration=1.0, random_state=0)
    for bad in ({"n_clients": 0}, {"concentration": 0.0}, {"concentration": float("nan")}):
        with pytest.raises(InputError, match=f"{next(iter(bad))}={next(iter(bad.values()))}"):
            label_skew(y, **({"n_clients": 2, "concentration": 1.0, "random_state": 0} | bad))


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setattr("fmtc_bench.datasets.base.cache_home", lambda: cache)
    monkeypatch.setenv("FMTC_DATA", str(tmp_path / "env"))
    assert list(data_homes()) == [tmp_path / "env", cache]
    assert list(data_homes(tmp_path)) == [tmp_path]
    monkeypatch.setenv("FMTC_DATA", "")
    assert list(data_homes()) == [cache]
    source = source_of("yale")
    assert find(source) is None
    monkeypatch.setenv("FMTC_DATA", str(tmp_path / "env"))
    for home in (cache, tmp_path / "env", tmp_path / "given"):
        folder = home / source.folder
        folder.mkdir(parents=True)
        for name in source.files:
            (folder / name).touch()
    assert find(source) == tmp_path / "env" / "yale"
    assert find(source, tmp_path / "given") == tmp_path / "given" / "yale"
    (tmp_path / "env" / "yale" / source.files[0]).unlink()
    assert find(source) == cache / "yale"


def test_a_data_set_that_is_not_there_says_where_it_was_looked_for(tmp_path):
    for name in ("webkb4", "core50_sample"):
        with pytest.raises(DatasetError) as refused:
            load(name, data_home=tmp_path)
        assert str(tmp_path / name) in str(refused.value)
        assert (f"fmtc-bench data fetch {name}" in str(refused.value)) == bool(source_of(name).archives)


def test_unknown_names_and_options():
    with pytest.raises(DatasetError, match="'webkb4'"):
        load("webkb")
    with pytest.raises(DatasetError, match="'webkb4', '20newsgroups'"):
        load("zzz")
    with pytest.raises(TypeError, match=r"digits .* colour.*n_clients"):
        load("digits", colour="red")


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_tells_what_one_has_to_know(name):
    source = SOURCES[name]
    for words in (source.title, source.licence, source.citation, source.provenance, source.clients, source.classes):
        assert len(words) > 3
    assert source.homepage.startswith("http")
    for sentence in (source.licence, source.citation, source.provenance):
        assert sentence.endswith(".")
    assert all(archive.url.startswith("http") and archive.file_name for archive in source.archives)
    assert not source.archives or source.convert is not None


def test_splits_of_a_synthetic_federation_go_to_a_model():
    from fmtc import FMTC

    train, test = synthetic("offset", seed=0).split()
    model = FMTC(train.n_clusters, random_state=0, max_iter=3).fit(train.X, silos=train.clients)
    assert model.predict(test.X, silos=test.clients).shape == test.y.shape
