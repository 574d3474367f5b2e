"""Tables: the official files in miniature, the compact form, and the real files where they are."""

import bz2
import gzip
import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc.errors import DatasetError, InputError
from fmtc_bench.datasets import SOURCES, load
from fmtc_bench.datasets import tables as module
from fmtc_bench.datasets.download import fetch_archives, import_archives


def import_archive(name, *paths, data_home, force=False):
    return import_archives(SOURCES[name], paths, data_home, force=force)


NAMES = [source.name for source in module.SOURCES]
HOME = os.environ.get("FMTC_DATA", "").split(os.pathsep)[0]
real_data = pytest.mark.skipif(not HOME or not Path(HOME).is_dir(), reason="FMTC_DATA names no folder with data sets")
incomplete = pytest.mark.filterwarnings("ignore:.*the official")


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def column(data, name):
    return data.X[:, data.feature_names.index(name)]


def words(data, name):
    """Levels of a category by name, None where missing."""
    levels = data.schema.columns[data.feature_names.index(name)].levels
    return [None if np.isnan(code) else levels[int(code)] for code in column(data, name)]


@pytest.mark.parametrize("source", module.SOURCES, ids=NAMES)
def test_sources_say_what_one_has_to_know(source):
    for text in (source.licence, source.provenance, source.citation):
        assert text.endswith(".") and "\n" not in text and "  " not in text
    assert source.modality == "table" and source.convert is not None
    for archive in source.archives:
        assert archive.url.startswith("http") and archive.file_name
        assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32


# ------------------------------------------------------------------------------------------------------------- heart

HEART = {
    "cleveland": "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0,2.3,3.0,0.0,6.0,0\n67.0,0,4,0,286.0,0,0,0,1,1.5,2,9,3.0,2\n",
    "hungarian": "28,1,2,130,132,0,2,185,0,0,?,?,?,0\n",
    "switzerland": "32,1,1,95,0,?,0,127,0,.7,1,?,?,1\n",
    "va": "63,1,4,140,260,0,1,112,1,-2.6,2,?,7,4\r\n",
}


@pytest.fixture
def heart(tmp_path):
    return [
        tmp_path / f"processed.{name}.data" for name in HEART if write(tmp_path / f"processed.{name}.data", HEART[name])
    ]


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@incomplete
def test_hospitals_keep_types_units_and_what_is_missing(tmp_path, heart):
    import_archive("heart_disease", *heart, data_home=tmp_path / "home")
    data = load("heart_disease", data_home=tmp_path / "home")
    assert_array_equal(data.clients, ["cleveland", "cleveland", "hungarian", "switzerland", "va"])
    assert [data.class_names[k] for k in data.y] == ["healthy", "diseased", "healthy", "diseased", "diseased"]
    assert data.schema.levels == (0, 2, 4, 0, 0, 2, 3, 0, 2, 0, 3, 0, 3)
    assert [c.unit for c in data.schema.columns][:5] == ["years", "", "", "mm Hg", "mg/dl"]
    assert words(data, "cp") == ["typical angina", "asymptomatic", "atypical angina", "typical angina", "asymptomatic"]
    assert words(data, "sex") == ["male", "female", "male", "male", "male"]
    assert words(data, "thal") == ["fixed defect", "normal", None, None, "reversible defect"]
    assert words(data, "slope") == ["downsloping", "flat", None, "upsloping", "flat"]
    assert words(data, "fbs") == [
        "above 120 mg/dl",
        "at most 120 mg/dl",
        "at most 120 mg/dl",
        None,
        "at most 120 mg/dl",
    ]
    assert_array_equal(column(data, "chol"), [233, 286, 132, np.nan, 260])  # 0 was not measured
    assert_array_equal(column(data, "trestbps"), [145, np.nan, 130, 95, 140])
    assert_array_equal(column(data, "thalach"), [150, np.nan, 185, 127, 112])
    assert_array_equal(column(data, "oldpeak"), [2.3, 1.5, 0, 0.7, -2.6])  # below 0 is a measurement here
    assert_array_equal(column(data, "ca"), [0, np.nan, np.nan, np.nan, np.nan])
    grades = load("heart_disease", data_home=tmp_path / "home", grades=True)
    assert_array_equal(grades.y, [0, 2, 0, 1, 4])
    assert grades.name == "heart_disease-grades" and grades.class_names[4] == "num 4"


@pytest.mark.filterwarnings("ignore:heart_disease")
def test_hospitals_from_an_archive_and_altered_copies(tmp_path, heart):
    path = zipped(
        tmp_path / "heart+disease.zip", {f"heart/{p.name}": p.read_bytes() for p in heart} | {"heart/new.data": b""}
    )
    with pytest.warns(UserWarning, match=r"not the official content: processed\.cleveland\.data, "):
        import_archive("heart_disease", path, data_home=tmp_path / "home")
    assert load("heart_disease", data_home=tmp_path / "home").X.shape == (5, 13)
    for files, why in (
        (heart[:3], r"did not yield processed\.va\.data"),
        ([write(tmp_path / "notes.txt", "a")], r"notes\.txt is not processed\.cleveland\.data"),
        ([zipped(tmp_path / "a.zip", {"a": b""})], r"a\.zip holds no file like processed"),
    ):
        with pytest.raises(DatasetError, match=why):
            import_archive("heart_disease", *files, data_home=tmp_path / "other")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("63,1,5,145,233,1,2,150,0,2.3,3,0,6,0", r"cleveland\.data, line 1: cp is '5', expected one of 1, 2, 3, 4"),
        ("63,1,1,high,233,1,2,150,0,2.3,3,0,6,0", r"line 1: trestbps is 'high', expected a number"),
        ("63,1,1,145,233,1,2,150,0,2.3,3,0,6,7", r"class '7', expected 0, 1"),
        ("63,1,1,145,233,1,2,150,0,2.3,3,0,6", "line 1, has 13 fields, expected 14"),
        ("", "is empty"),
    ],
)
@incomplete
def test_damaged_hospitals_are_refused_in_a_sentence(tmp_path, heart, line, why):
    import_archive("heart_disease", *heart, data_home=tmp_path / "home")
    write(tmp_path / "home" / "heart_disease" / "processed.cleveland.data", line)
    with pytest.raises(DatasetError, match=why):
        load("heart_disease", data_home=tmp_path / "home")


# ------------------------------------------------------------------------------------------------- breast and penguins


def test_breast_clients_come_from_the_order_of_the_rows(tmp_path):
    rows = [f"{1000 + i},5,1,1,1,2,{'?' if i == 400 else 1},3,1,{i % 10 + 1},{2 + 2 * (i % 2)}\n" for i in range(699)]
    path = write(tmp_path / "breast-cancer-wisconsin.data", "".join(rows))
    import_archive("breast_wisconsin", path, data_home=tmp_path)
    data = load("breast_wisconsin", data_home=tmp_path)
    assert data.X.shape == (699, 9) and data.n_missing == 1 and np.isnan(column(data, "bare_nuclei")[400])
    sizes = {cid: len(part.y) for cid, part in data.by_client().items()}
    assert sizes == module.COLLECTED and data.clients[366:368].tolist() == ["group1", "group2"]
    assert_array_equal(data.y, np.arange(699) % 2)
    assert_array_equal(column(data, "mitoses"), np.arange(699) % 10 + 1)
    for change, why in ((rows[:-1], "698 rows, expected 699"), ([*rows[:-1], rows[-1][:-2] + "3\n"], "class '3'")):
        with pytest.raises(DatasetError, match=why):
            import_archive("breast_wisconsin", write(path, "".join(change)), data_home=tmp_path, force=True)


PENGUINS = """studyName,Species,Region,Island,Stage,Date Egg,Culmen Length (mm),Culmen Depth (mm),Flipper Length (mm),\
Body Mass (g),Sex,Delta 15 N (o/oo),Delta 13 C (o/oo),Comments
PAL0708,Adelie Penguin (P. adeliae),Anvers,Torgersen,"Adult, 1 Egg",2007-11-11,39.1,18.7,181,3750,MALE,NA,NA,"no, alas"
PAL0910,Gentoo penguin (P. papua),Anvers,Biscoe,"Adult, 1 Egg",2009-11-11,NA,17.4,186,3800,.,8.9,-24.6,NA
PAL0809,Chinstrap penguin (P. antarctica),Anvers,Dream,"Adult, 1 Egg",2008-11-16,40.3,18,195,3250,FEMALE,8.3,-25.3,NA
"""


def test_penguins_leave_their_island_out(tmp_path):
    path = write(tmp_path / "penguins_raw.csv", PENGUINS)
    with pytest.warns(UserWarning, match=r"penguins: .*3 birds.* 344"):
        import_archive("penguins", path, data_home=tmp_path)
    data = load("penguins", data_home=tmp_path)
    assert_array_equal(data.clients, ["year2007", "year2009", "year2008"])
    assert [data.class_names[k] for k in data.y] == ["adelie", "gentoo", "chinstrap"]
    assert data.feature_names[:2] == ("culmen_length", "culmen_depth") and "island" not in data.feature_names
    assert data.schema.columns[0].unit == "mm" and data.schema.levels == (0, 0, 0, 0, 2, 0, 0)
    assert words(data, "sex") == ["male", None, "female"]
    assert_array_equal(column(data, "culmen_length"), [39.1, np.nan, 40.3])
    assert data.n_missing == 4
    with_island = load("penguins", data_home=tmp_path, island=True)
    assert words(with_island, "island") == ["Torgersen", "Biscoe", "Dream"] and with_island.name == "penguins-island"
    for old, new, why in (
        ("PAL0708", "XYZ", "'XYZ', expected one like PAL0708"),
        ("Body Mass (g)", "Mass", r"lacks the column 'Body Mass \(g\)'"),
        (",3750,", ",heavy,", "'heavy' for body_mass"),
    ):
        with pytest.raises(DatasetError, match=why):
            import_archive("penguins", write(path, PENGUINS.replace(old, new)), data_home=tmp_path, force=True)


# ----------------------------------------------------------------------------------------------------- gas and phones


def gas_line(gas, value):
    return f"{gas};10.000000 " + " ".join(f"{j}:{value * j:.6f}" for j in range(1, 129)) + "\n"


@incomplete
def test_batches_say_which_are_missing(tmp_path):
    files = {"Dataset/batch10.dat": gas_line(6, 1.5), "Dataset/batch2.dat": gas_line(1, 1) + gas_line(3, 2)}
    import_archive("gas_drift", zipped(tmp_path / "gas.zip", files), data_home=tmp_path)
    data = load("gas_drift", data_home=tmp_path)
    assert_array_equal(data.clients, ["batch2", "batch2", "batch10"])
    assert [data.class_names[k] for k in data.y] == ["ethanol", "ammonia", "toluene"]
    assert_allclose(data.X, np.outer([1, 2, 1.5], np.arange(1, 129)))
    assert data.feature_names[:3] == ("s1_DR", "s1_absDR", "s1_EMAi0.001") and data.feature_names[-1] == "s16_EMAd0.1"
    assert "Missing from this copy: batch 1 and 3 and 4" in data.provenance
    for line in (
        "7" + gas_line(1, 1)[1:],
        gas_line(1, 1).replace("2:", "3:", 1),
        "1 1:3\n",
        "\n",
        gas_line(1, 1).replace("64.0", "x"),
    ):
        bad = zipped(tmp_path / "bad.zip", {"batch1.dat": gas_line(1, 1) + line})
        with pytest.raises(DatasetError, match=r"batch1\.dat, line 2, is not a gas"):
            import_archive("gas_drift", bad, data_home=tmp_path, force=True)


def arff(rows):
    """As in the official file: number, user, 43 features, activity; with comments and missing cells."""
    head = "@relation person_activity_recognition\n\n" + "".join(
        f'@attribute "{name}" numeric\n' for name in ("UNIQUE_ID", "user", *module.MOVES)
    )
    lines = (
        f'{i},{user},{",".join(map(str, values))},"{activity}"\n' for i, (user, values, activity) in enumerate(rows)
    )
    return head + '@attribute "class" { "Walking" , "Jogging" }\n\n@data\n' + "".join(lines)


def packed(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@incomplete
def test_users_with_one_activity_are_omitted(tmp_path):
    rows = [(33, range(43), "Jogging"), (33, [0.5] * 33 + ["?"] + [1] * 9, "Walking"), (9, [0] * 43, "Walking")]
    file = {"WISDM_ar_v1.1/WISDM_ar_v1.1_transformed.arff": arff(rows).encode(), "WISDM_ar_v1.1/readme.txt": b""}
    import_archive("wisdm", packed(tmp_path / "WISDM_ar_latest.tar.gz", file), data_home=tmp_path)
    data = load("wisdm", data_home=tmp_path)
    assert data.clients.tolist() == ["user33", "user33"] and data.class_names == ("Jogging", "Walking")
    assert_array_equal(data.X[0], np.arange(43))
    assert data.n_missing == 1 and np.isnan(column(data, "XPEAK")[1])
    units = {c.name: c.unit for c in data.schema.columns}
    assert (units["X0"], units["XPEAK"], units["YAVG"]) == ("share of samples", "ms", "m/s2")
    every = load("wisdm", data_home=tmp_path, min_classes=1)
    assert every.client_ids == ["user09", "user33"] and every.name == "wisdm-min1"
    with pytest.raises(InputError, match="min_classes must be from 1 to 6, got 0"):
        load("wisdm", data_home=tmp_path, min_classes=0)


# ---------------------------------------------------------------------------------------------------- vowels and cells

VOWDATA = """(c) 1995 James Hillenbrand
Column 1: filename; 2: duration; 3-7: f0 and F1-F4 at "steady state"

m01ae  323 174  663 2012 2659 3691  669 2008 2671  671 2003 2661  660 1995 2671
g21uw  200 250  400 1200    0    0  400 1200    0  400 1200    0  400 1200    0
b11er  150 220  500 1500 2000    0  500 1500 2000  500 1500 2000  500 1500 2000
"""


@incomplete
def test_vowels_in_logarithms_of_hertz(tmp_path):
    import_archive("vowels_h95", write(tmp_path / "vowdata.dat", VOWDATA.replace("\n", "\r\n")), data_home=tmp_path)
    data = load("vowels_h95", data_home=tmp_path)
    assert data.clients.tolist() == ["men", "girls", "boys"]
    assert [data.class_names[k] for k in data.y] == ["{ (had)", "u (who'd)", "3' (heard)"]
    assert data.feature_names == ("duration", "log f0", "log f1", "log f2", "log f3")
    assert_allclose(data.X[0], [323, *np.log([174, 663, 2012, 2659])], rtol=1e-6)
    assert data.n_missing == 1 and np.isnan(data.X[1, 4])  # 0: not measurable
    hertz = load("vowels_h95", data_home=tmp_path, log=False)
    assert_array_equal(hertz.X[2], [150, 220, 500, 1500, 2000])
    assert hertz.schema.columns[1].unit == "Hz" and hertz.name == "vowels_h95-hz"
    with pytest.raises(DatasetError, match="no line like 'm01ae"):
        import_archive("vowels_h95", write(tmp_path / "vowdata.dat", "m01xx 1 2"), data_home=tmp_path, force=True)


class Save:
    """What R's save() writes, version 2 of its portable binary form."""

    def __init__(self):
        self.symbols = []

    def int(self, *values):
        return struct.pack(f">{len(values)}i", *values)

    def text(self, word):
        return self.int(9 | 0x40000, len(word)) + word.encode()

    def symbol(self, name):
        if name in self.symbols:
            return self.int((self.symbols.index(name) + 1) << 8 | 255)
        self.symbols.append(name)
        return self.int(1) + self.text(name)

    def pairs(self, **things):
        parts = [self.int(2 | 0x400) + self.symbol(name) + thing() for name, thing in things.items()]
        return b"".join(parts) + self.int(254)

    def texts(self, *items):
        return self.int(16, len(items)) + b"".join(map(self.text, items))

    def integers(self, items):
        return self.int(13, len(items), *items)

    def reals(self, items):
        return self.int(14, len(items)) + struct.pack(f">{len(items)}d", *items)

    def listed(self, **items):
        parts = b"".join(item() for item in items.values())
        return self.int(19 | 0x200, len(items)) + parts + self.pairs(names=lambda: self.texts(*items))

    def sparse(self, dense, genes):
        rows, columns = dense.shape
        where = [np.flatnonzero(dense[:, j]).tolist() for j in range(columns)]
        names = lambda: self.int(19, 2) + self.texts(*genes) + self.texts(*(f"cell{j}" for j in range(columns)))  # noqa: E731
        return self.int(25 | 0x200 | 0x100) + self.pairs(
            i=lambda: self.integers([i for cell in where for i in cell]),
            p=lambda: self.integers([0, *np.cumsum([len(cell) for cell in where]).tolist()]),
            Dim=lambda: self.integers([rows, columns]),
            Dimnames=names,
            x=lambda: self.reals([dense[i, j] for j, cell in enumerate(where) for i in cell]),
        )

    def example(self, wang, xin):
        body = self.pairs(
            scClassify_example=lambda: self.listed(
                exprsMat_wang_subset=lambda: self.sparse(*wang[:2]),
                wang_cellTypes=lambda: self.texts(*wang[2]),
                exprsMat_xin_subset=lambda: self.sparse(*xin[:2]),
                xin_cellTypes=lambda: self.texts(*xin[2]),
            )
        )
        return b"RDX2\nX\n" + self.int(2, 0x30601, 0x20300) + body


WANG = (np.array([[1.5, 0], [0, 2], [3, 4]]), ("B", "C", "A"), ("alpha", "beta"))
XIN = (np.array([[5, 0, 7], [0, 8.5, 0]]), ("A", "C"), ("beta", "beta", "delta"))


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress, bytes])
@incomplete
def test_cells_with_the_genes_of_both_laboratories(tmp_path, compress):
    path = write(tmp_path / "scClassify_example.rda", compress(Save().example(WANG, XIN)))
    import_archive("pancreas", path, data_home=tmp_path)
    data = load("pancreas", data_home=tmp_path)
    assert data.feature_names == ("A", "C") and data.class_names == ("alpha", "beta", "delta")
    assert_array_equal(data.X, [[3, 0], [4, 2], [5, 0], [0, 8.5], [7, 0]])
    assert_array_equal(data.y, [0, 1, 1, 1, 2])
    assert data.clients.tolist() == ["wang"] * 2 + ["xin"] * 3
    assert data.recipe == "none" and not data.schema.levels[0]


def test_files_that_r_did_not_write_are_refused_in_a_sentence(tmp_path):
    whole = Save().example(WANG, XIN)
    path = tmp_path / "scClassify_example.rda"
    cut = [whole[:n] for n in range(0, len(whole), 7)]
    nested = whole[:19] + struct.pack(">i", 2) * 4000
    huge = whole.replace(struct.pack(">2i", 13, 2), struct.pack(">2i", 13, 2**31 - 1))
    for content in (*cut, b"BZh9" + whole, b"\x1f\x8b" + whole, whole.replace(b"xin_", b"xyz_"), nested, huge):
        with pytest.raises(DatasetError, match=r"scClassify_example\.rda is not"):
            import_archive("pancreas", write(path, content), data_home=tmp_path)


@incomplete
def test_a_damaged_compact_file_is_refused_in_a_sentence(tmp_path):
    path = write(tmp_path / "scClassify_example.rda", Save().example(WANG, XIN))
    file = import_archive("pancreas", path, data_home=tmp_path) / "pancreas.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    for change in (
        {"feature_names": arrays["feature_names"][:1]},
        {"client": arrays["client"][:2]},
        {"y": arrays["X"][:, 0]},
    ):
        np.savez(file, **arrays | change)
        with pytest.raises(DatasetError, match=r"pancreas\.npz is damaged"):
            load("pancreas", data_home=tmp_path)
    write(file, b"not a file of numpy")
    with pytest.raises(DatasetError, match=r"pancreas\.npz is damaged"):
        load("pancreas", data_home=tmp_path)


# ------------------------------------------------------------------------------------------------------------ real data

COUNTS = {
    "heart_disease": {"cleveland": [164, 139], "hungarian": [188, 106], "switzerland": [8, 115], "va": [51, 149]},
    "breast_wisconsin": {
        f"group{k + 1}": list(row)
        for k, row in enumerate(zip((200, 57, 22, 14, 36, 40, 17, 72), (167, 13, 9, 3, 12, 9, 14, 14), strict=True))
    },
    "penguins": {"year2007": [50, 26, 34], "year2008": [50, 18, 46], "year2009": [52, 24, 44]},
    "gas_drift": {
        "batch1": [30, 70, 83, 90, 98, 74],
        "batch2": [109, 532, 100, 164, 334, 5],
        "batch3": [240, 275, 216, 365, 490, 0],
        "batch4": [30, 12, 12, 64, 43, 0],
        "batch5": [46, 63, 20, 28, 40, 0],
        "batch6": [29, 606, 110, 514, 574, 467],
        "batch8": [33, 143, 40, 30, 30, 18],
        "batch9": [75, 78, 100, 61, 55, 101],
    },
    "vowels_h95": {cid: [n] * 12 for cid, n in (("boys", 27), ("girls", 19), ("men", 45), ("women", 48))},
    "pancreas": {"wang": [5, 206, 118, 10, 96, 21, 45], "xin": [0, 285, 261, 49, 0, 79, 0]},
}
MISSING = {"heart_disease": 1759 + 123 + 49 + 1, "breast_wisconsin": 16, "penguins": 46, "wisdm": 615}


@real_data
@pytest.mark.parametrize("name", NAMES)
def test_real_counts(name):
    data = load(name, data_home=HOME)
    if name != "wisdm":
        assert {cid: list(row.values()) for cid, row in data.class_counts().items()} == COUNTS[name]
    assert data.n_missing == MISSING.get(name, 0)
    train, test = data.split(seed=1)
    assert train.client_ids == test.client_ids == data.client_ids
    assert train.n_missing + test.n_missing == data.n_missing
    numbers = [j for j, levels in enumerate(data.schema.levels) if not levels]
    if data.recipe == "standardize":
        assert_allclose(np.nanmean(train.X[:, numbers], axis=0), 0, atol=1e-8)
    categories = [j for j, levels in enumerate(data.schema.levels) if levels]
    assert_array_equal(np.nanmax(data.X[:, categories], axis=0), np.array(data.schema.levels)[categories] - 1)


@real_data
def test_real_users():
    data = load("wisdm", data_home=HOME)
    assert len(data.client_ids) == 35 and "user09" not in data.client_ids
    every = load("wisdm", data_home=HOME, min_classes=1)
    assert np.bincount(every.y).tolist() == [528, 1625, 306, 246, 632, 2081]
    assert list(every.by_client()["user09"].class_counts()["user09"].values()) == [0, 0, 0, 0, 0, 64]
    assert not column(every, "XAVG").any()


@real_data
def test_real_hospitals_are_the_official_files(tmp_path, recwarn):
    """Byte for byte, so that importing them warns of nothing; and five grades."""
    folder = Path(HOME) / "heart_disease"
    import_archive("heart_disease", *sorted(folder.glob("*.data")), data_home=tmp_path)
    assert not recwarn.list
    for archive in SOURCES["heart_disease"].archives:
        assert (tmp_path / "heart_disease" / archive.file_name).stat().st_size == archive.size
    counts = load("heart_disease", data_home=tmp_path, grades=True).class_counts()
    assert {cid: list(row.values()) for cid, row in counts.items()} == module.HOSPITALS


@real_data
def test_real_breast_samples_survive_the_way_through_the_official_file(tmp_path):
    """Written as the archive has them, with its size and checksum, and converted: the same bytes."""
    theirs = Path(HOME) / "breast_wisconsin" / "breast_wisconsin.csv"
    codes = {name: code for code, name in module.DIAGNOSES.items()}
    rows = [line.split(",") for line in theirs.read_text().splitlines()[1:]]
    path = tmp_path / "breast-cancer-wisconsin.data"
    path.write_text("".join(",".join([*row[1:-1], codes[row[-1]]]) + "\n" for row in rows), newline="\n")
    fetch_home = tmp_path / "home"
    (fetch_home / "downloads").mkdir(parents=True)
    (fetch_home / "downloads" / path.name).write_bytes(path.read_bytes())
    folder = fetch_archives(SOURCES["breast_wisconsin"], fetch_home)  # accepts what is there already, after checking it
    assert (folder / "breast_wisconsin.csv").read_bytes() == theirs.read_bytes()
