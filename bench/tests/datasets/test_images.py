"""Pictures and movements: the official archives in miniature, the compact form, and the real files where they are."""

import io
import os
import re
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

from fmtc.errors import DatasetError, InputError
from fmtc_bench.datasets import load, source_of
from fmtc_bench.datasets.download import import_archives
from fmtc_bench.datasets.images import (
    ACTIONS,
    CATEGORIES,
    CONDITIONS,
    HIP,
    JOINTS,
    SOURCES,
    _matlab,
    _movement,
    _thumbnail,
)

BY_NAME = {source.name: source for source in SOURCES}
HOME = os.environ.get("FMTC_DATA", "").split(os.pathsep)[0]
real_data = pytest.mark.skipif(not HOME or not Path(HOME).is_dir(), reason="FMTC_DATA names no folder with data sets")
incomplete = pytest.mark.filterwarnings("ignore:.*the official archive has")


def convert(name, home, *archives):
    """Archives into the compact form, and that into a data set."""
    folder = home / BY_NAME[name].folder
    folder.mkdir(exist_ok=True)
    BY_NAME[name].convert(archives, folder)
    return load(name, data_home=home)


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def mat(path, pictures, y, **more):
    """A face file as Matlab writes it: each row a picture, column after column."""
    columns = np.stack([picture.ravel(order="F") for picture in pictures])
    savemat(path, {"fea": columns.astype(np.float64), "gnd": np.asarray(y, dtype=np.float64)[:, None] + 1} | more)
    return path


# ---------------------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_sources_say_what_one_has_to_know(source):
    for text in (source.licence, source.provenance, source.citation):
        assert text.endswith(".") and "\n" not in text
    assert all(isinstance(meaning, str) for meaning in source.options.values())
    if source.name in ("core50", "core50_sample", "keck"):
        assert "none of our results uses it" in source.provenance


# ------------------------------------------------------------------------------------------------------------ faces


@pytest.fixture
def yale(rng):
    """Pictures of 15 persons x 11 conditions, and persons."""
    return rng.integers(0, 256, (165, 32, 32)), np.repeat(np.arange(15), 11)


def test_yale_pictures_stand_upright_and_know_their_condition(tmp_path, yale):
    pictures, y = yale
    data = convert("yale", tmp_path, mat(tmp_path / "Yale_32x32.mat", pictures, y))
    assert_allclose(data.X.reshape(-1, 32, 32) * 255, pictures)
    assert_array_equal(data.y, y)
    assert_array_equal(data.clients, np.tile(list(CONDITIONS.values()), 15))
    assert data.feature_names[33] == "pixel 1,1" and data.class_names[-1] == "person15"
    with np.load(tmp_path / "yale" / "yale.npz") as stored:
        assert_array_equal(stored["condition"][:11], list(CONDITIONS))


def test_yale_in_both_sizes(tmp_path, yale, rng):
    pictures, y = yale
    large = rng.integers(0, 256, (165, 64, 64))
    paths = [mat(tmp_path / "Yale_64x64.mat", large, y), mat(tmp_path / "Yale_32x32.mat", pictures, y)]
    data = convert("yale", tmp_path, *paths)
    assert data.X.shape == (165, 1024) and data.name == "yale"
    data = load("yale", data_home=tmp_path, size=64)
    assert_allclose(data.X.reshape(-1, 64, 64) * 255, large)
    assert data.name == "yale-64"
    with pytest.raises(DatasetError, match=r"32 and 64, .*size=48"):
        load("yale", data_home=tmp_path, size=48)


def test_yale_by_import(tmp_path, yale):
    import_archives(source_of("yale"), [mat(tmp_path / "Yale_32x32.mat", *yale)], tmp_path / "home")
    assert load("yale", data_home=tmp_path / "home").X.shape == (165, 1024)


def test_yale_without_its_large_pictures_says_what_is_missing(tmp_path, yale):
    convert("yale", tmp_path, mat(tmp_path / "Yale_32x32.mat", *yale))
    with pytest.raises(DatasetError, match=r"X64 .* Yale_64x64\.mat"):
        load("yale", data_home=tmp_path, size=64)


@pytest.mark.parametrize("seed", range(5))
def test_split_of_yale_has_rows_of_every_client_on_both_sides(tmp_path, yale, seed):
    data = convert("yale", tmp_path, mat(tmp_path / "Yale_32x32.mat", *yale))
    train, test = data.split(test_size=0.2, seed=seed)
    assert len(train.y) + len(test.y) == 165
    assert train.client_ids == test.client_ids == ["expression", "lighting", "neutral"]
    assert {cid: len(part.y) for cid, part in test.by_client().items()} == {
        "expression": 15,
        "lighting": 9,
        "neutral": 9,
    }
    assert_allclose(train.X.mean(axis=0), 0, atol=1e-9)  # of the training rows, not of all
    assert np.abs(test.X.mean(axis=0)).max() > 0.1


def test_yale_refuses_what_is_not_eleven_pictures_of_each(tmp_path, yale):
    pictures, y = yale
    short = mat(tmp_path / "short.mat", pictures[:-1], y[:-1])
    with pytest.raises(DatasetError, match=r"164 .* 15 persons, expected 11"):
        convert("yale", tmp_path, short)
    large = mat(tmp_path / "Yale_64x64.mat", np.zeros((165, 64, 64)), y)
    with pytest.raises(DatasetError, match=r"Yale_64x64\.mat, .*Yale_32x32\.mat"):
        convert("yale", tmp_path, large)
    with pytest.warns(UserWarning, match="yale: .*2 persons.* 15"):
        convert("yale", tmp_path, mat(tmp_path / "two.mat", pictures[:22], y[:22]))


@incomplete
def test_orl_and_yaleb_are_dealt_out_by_seed(tmp_path, rng):
    y = np.repeat(np.arange(4), 10)
    pictures = rng.integers(0, 256, (40, 32, 32))
    shuffled = rng.permutation(40)
    orl = convert("orl", tmp_path, mat(tmp_path / "ORL_32x32.mat", pictures[shuffled], y[shuffled]))
    assert orl.name == "orl-skew5-seed0" and orl.client_ids == ["silo1", "silo2", "silo3"]
    assert_array_equal(np.bincount(orl.y), [10] * 4)
    where = {picture.tobytes(): person for picture, person in zip(pictures, y, strict=True)}
    back = np.rint(orl.X * 255).astype(pictures.dtype).reshape(-1, 32, 32)
    assert [where[picture.tobytes()] for picture in back] == orl.y.tolist()
    with np.load(tmp_path / "orl" / "orl.npz") as stored:
        assert_array_equal(stored["shot"], np.tile(np.arange(10), 4))
    other = load("orl", data_home=tmp_path, seed=1, concentration=0.5)
    assert other.name == "orl-skew0.5-seed1" and np.any(other.clients != orl.clients)
    with pytest.raises(InputError, match=r"class 0 has 10 rows.* 4 clients"):
        load("orl", data_home=tmp_path, n_clients=4)

    yaleb = convert("yaleb", tmp_path, mat(tmp_path / "YaleB_32x32.mat", np.tile(pictures, (2, 1, 1)), np.tile(y, 2)))
    assert yaleb.name == "yaleb-skew5-seed0" and len(yaleb.client_ids) == 4


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"fea": np.zeros((4, 900)), "gnd": np.ones(4)}, "4 x 900 numbers"),
        ({"fea": np.full((4, 1024), 0.5), "gnd": np.ones(4)}, "4 x 1024 numbers"),
        ({"fea": np.full((4, 1024), 256.0), "gnd": np.ones(4)}, "0 to 255"),
        ({"fea": np.zeros((4, 1024)), "gnd": np.ones(3)}, "3 persons for 4 "),
        ({"fea": np.zeros((4, 1024)), "gnd": np.array([1, 1, 3, 3])}, "4 persons for 4 "),
        ({"fea": np.zeros((4, 1024))}, "fea and gnd"),
        ({"fea": np.array([[np.zeros(3), "x"]], dtype=object), "gnd": np.ones(4)}, "fea and gnd"),
        (b"MATLAB no more", "Matlab"),
        (b"", "Matlab"),
    ],
)
def test_other_matlab_files_are_refused_in_a_sentence(tmp_path, content, why):
    path = tmp_path / "ORL_32x32.mat"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        savemat(path, content)
    with pytest.raises(DatasetError, match=rf"ORL_32x32\.mat.*{why}"):
        convert("orl", tmp_path, path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "bool"])
def test_matlab_files_give_what_was_written(rng, kind, packed):
    shapes = {"a": (1, 1), "bc": (3, 1), "def": (1, 7), "longer": (4, 5), "cube": (2, 3, 4), "none": (0, 3)}
    arrays = {name: (100 * rng.random(shape)).astype(kind) for name, shape in shapes.items()}
    file = io.BytesIO()
    savemat(file, arrays | {"word": "text", "deep": {"x": 1}, "wave": np.ones(3) * 1j}, do_compression=packed)
    for name, array in arrays.items():
        (found,) = _matlab(file.getvalue(), "file", name)
        assert_array_equal(found, array, strict=kind != "bool")
    for name in ("word", "deep", "wave"):
        with pytest.raises(DatasetError, match=rf"\b{name}$"):
            _matlab(file.getvalue(), "file", name)


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_matlab_files_never_do_worse_than_a_sentence(rng, packed):
    file = io.BytesIO()
    savemat(file, {"fea": np.ones((4, 16)), "gnd": np.ones(4)}, do_compression=packed)
    whole = np.frombuffer(file.getvalue(), dtype=np.uint8)
    refused = 0
    for _ in range(500):
        damaged = whole[: rng.integers(1, len(whole) + 1)].copy()
        damaged[rng.integers(0, len(damaged), 3)] = rng.integers(0, 256, 3)
        try:
            _matlab(damaged.tobytes(), "file", "fea", "gnd")
        except DatasetError:
            refused += 1
    assert refused > 250


def test_one_archive_where_one_is_needed(tmp_path):
    for name in ("orl", "yaleb", "core50", "utd_mhad"):
        with pytest.raises(DatasetError, match=r"\b2$"):
            convert(name, tmp_path, tmp_path / "one", tmp_path / "two")


# ------------------------------------------------------------------------------------------------------------ CORe50


def png(pixels):
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_core50_takes_every_twentieth_frame_and_shrinks_it(tmp_path, rng):
    small = {key: rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for key in ((10, 50), (2, 1), (2, 6))}
    files = {"core50_128x128/readme.txt": b"pictures"}
    for (session, thing), pixels in small.items():
        for frame in (0, 1, 19, 20, 21, 40):
            name = f"core50_128x128/s{session}/o{thing}/C_{session:02}_{thing:02}_{frame:03}.png"
            files[name] = png(pixels.repeat(4, axis=0).repeat(4, axis=1)) if frame % 20 == 0 else b"not looked at"
    with pytest.warns(UserWarning, match="core50") as caught:
        data = convert("core50", tmp_path, zipped(tmp_path / "core50_128x128.zip", files))
    numbers = [re.findall(r"^core50|\d+ \w+|\d+$", str(w.message)) for w in caught]
    assert numbers == [["core50", "2 sessions", "11"], ["core50", "3 objects", "50"]]
    assert_array_equal(data.y, [0] * 3 + [1] * 3 + [9] * 3)
    assert_array_equal(data.clients, ["s2"] * 6 + ["s10"] * 3)
    assert data.class_names == CATEGORIES and data.X.dtype == np.float32
    expected = np.repeat([small[key].ravel() for key in ((2, 1), (2, 6), (10, 50))], 3, axis=0)
    assert_allclose(data.X * 255, expected, rtol=1e-6)
    assert data.feature_names[3 * 33 + 2] == "pixel 1,1 blue"


def test_core50_shrinks_by_means(tmp_path, rng):
    pixels = rng.integers(0, 256, (128, 128, 3), dtype=np.uint8)
    path = zipped(tmp_path / "core50.zip", {"core50_128x128/s1/o1/C_01_01_000.png": png(pixels)})
    with pytest.warns(UserWarning, match="core50"):
        data = convert("core50", tmp_path, path)
    means = pixels.reshape(32, 4, 32, 4, 3).mean(axis=(1, 3)).ravel()
    assert_allclose(data.X[0] * 255, means, atol=1.01)  # rounded twice, first along rows


@pytest.mark.parametrize(
    ("name", "side", "why"),
    [
        ("core50_350x350/s1/o1/C_01_01_000.png", 350, "350 x 350 .* 128 x 128"),
        ("core50_128x128/s12/o1/C_12_01_000.png", 128, "s12.* s1 to s11"),
        ("core50_128x128/s1/o51/C_01_51_000.png", 128, "o51.* o1 to o50"),
        ("pictures/cat.png", 128, r"core50_128x128\.zip"),
        ("core50_128x128/s1/o1/C_01_01_000.png", 0, r"C_01_01_000\.png"),
    ],
)
def test_core50_refuses_other_archives(tmp_path, name, side, why):
    whole = png(np.zeros((side or 128, side or 128, 3), dtype=np.uint8))
    path = zipped(tmp_path / "core50_128x128.zip", {name: whole if side else whole[:60]})
    with pytest.raises(DatasetError, match=why):
        convert("core50", tmp_path, path)


# -------------------------------------------------------------------------------------------------------- skeletons


def skeleton(rng, n_frames=30, size=1.0, place=0.0):
    """A body that stands, with one hand going up; 20 joints x 3 x frames."""
    body = rng.normal(size=(20, 3)) * 0.2
    body[JOINTS.index("left foot")] = body[HIP] + [0, -1.0, 0]
    film = np.repeat(body[:, :, None], n_frames, axis=2)
    film[JOINTS.index("right hand"), 1] += np.linspace(0, 0.5, n_frames)
    return film * size + place


def matlab(**arrays):
    file = io.BytesIO()
    savemat(file, arrays)
    return file.getvalue()


@incomplete
def test_skeletons_do_not_depend_on_place_size_or_length(tmp_path, rng):
    state = rng.bit_generator.state
    films = []
    for options in ({}, {"place": 3.0}, {"size": 1.3}, {"n_frames": 91}):
        rng.bit_generator.state = state
        films.append(matlab(d_skel=skeleton(rng, **options)))
    names = ["a2_s1_t1", "a2_s10_t1", "a1_s2_t1", "a27_s2_t4"]
    files = {f"Skeleton/{name}_skeleton.mat": film for name, film in zip(names, films, strict=True)}
    data = convert("utd_mhad", tmp_path, zipped(tmp_path / "Skeleton.zip", files | {"Skeleton/.DS_Store": b""}))
    assert_array_equal(data.y, [0, 1, 1, 26])
    assert_array_equal(data.clients, ["subject2", "subject1", "subject10", "subject2"])
    assert data.class_names == ACTIONS and data.X.dtype == np.float64
    assert_allclose(data.X, data.X[[0]].repeat(4, axis=0), atol=2e-3)
    joints = data.X.reshape(4, 16, 20, 3)
    assert_allclose(joints[:, :, HIP], 0)
    hand = dict(zip(data.feature_names, data.X[0], strict=True))
    rise = [hand[f"moment {t} right hand y"] - hand["moment 1 right hand y"] for t in range(1, 17)]
    assert_allclose(rise, np.linspace(0, 0.5, 16), atol=2e-3)


@pytest.mark.parametrize(
    ("name", "arrays", "why"),
    [
        ("a1_s1_t1_skeleton.mat", {"d_skel": np.zeros((25, 3, 9))}, r"\(25, 3, 9\).* 20 joints"),
        ("a1_s1_t1_skeleton.mat", {"d_skel": np.zeros((20, 3, 9))}, "size 0"),
        ("a1_s1_t1_skeleton.mat", {"d_skel": np.full((20, 3, 9), np.nan)}, "size nan"),
        ("a1_s1_t1_skeleton.mat", {"d_iner": np.zeros((20, 3, 9))}, "d_skel"),
        ("a28_s1_t1_skeleton.mat", {"d_skel": np.ones((20, 3, 9))}, "a28.* a1 to a27"),
        ("a1_s1_t1_inertial.mat", {"d_iner": np.ones((20, 6))}, r"Skeleton\.zip"),
    ],
)
def test_other_skeletons_are_refused_in_a_sentence(tmp_path, name, arrays, why):
    with pytest.raises(DatasetError, match=why):
        convert("utd_mhad", tmp_path, zipped(tmp_path / "Skeleton.zip", {f"Skeleton/{name}": matlab(**arrays)}))


# ----------------------------------------------------------------------------------------------------------- COIL-20


@incomplete
def test_coil20_pictures_are_cut_into_sectors(tmp_path, rng):
    image = pytest.importorskip("PIL.Image")

    def png(pixels):
        file = io.BytesIO()
        image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
        return file.getvalue()

    small = {key: rng.integers(0, 256, (32, 32)) for key in ((20, 0), (1, 71), (1, 17), (1, 18), (2, 36))}
    files = {
        f"coil-20-proc/obj{thing}__{pose}.png": png(pixels.repeat(4, 0).repeat(4, 1))
        for (thing, pose), pixels in small.items()
    }
    path = zipped(tmp_path / "coil-20-proc.zip", files)
    data = convert("coil20", tmp_path, path)
    assert_array_equal(data.clients, ["view000", "view090", "view270", "view180", "view000"])
    assert_array_equal(data.y, [0, 0, 0, 1, 19])
    assert data.class_names[19] == "object20"
    assert_allclose(data.X * 255, [small[key].ravel() for key in sorted(small)])
    with np.load(tmp_path / "coil20" / "coil20.npz") as stored:
        assert_array_equal(stored["angle"], [85, 90, 355, 180, 0])
    with pytest.raises(DatasetError, match=r"obj21__0.* 1 to 20"):
        convert("coil20", tmp_path, zipped(tmp_path / "other.zip", {"obj21__0.png": b""}))
    with pytest.raises(DatasetError, match=r"obj1__0\.png.* not COIL-20"):
        convert("coil20", tmp_path, zipped(tmp_path / "other.zip", {"a.png": b""}))


@real_data
def test_real_coil20():
    data = load("coil20", data_home=HOME)
    assert data.X.shape == (1440, 1024) and data.X.min() == 0 and data.X.max() == 1
    assert {cid: set(row.values()) for cid, row in data.class_counts().items()} == {
        f"view{angle:03d}": {18} for angle in (0, 90, 180, 270)
    }


# -------------------------------------------------------------------------------------------------------------- Keck


def video(place, n_frames=24, kind="avi", light=255):
    """A small block that moves down or to the side over a grey ground."""
    av = pytest.importorskip("av")
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as film:
        stream = film.add_stream("mpeg4", rate=Fraction(15))
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 128, 96, "yuv420p", 2_000_000
        for t in range(n_frames):
            frame = np.full((96, 128, 3), 90, dtype=np.uint8)
            row, column = place(t / n_frames)
            frame[int(row) : int(row) + 16, int(column) : int(column) + 16] = light
            film.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        film.mux(stream.encode())
    return file.getvalue()


def down(t):
    return 70 * t, 20


def across(t):
    return 40, 100 * t


LIST = """Training set:
person 1_gesture1_train frames 0-11, 12-23
person 1_gesture14_train frames 2-20

Testing set:
person 1_gesture1_test frames 0-23
person 4_gesture14_test frames 0-23
"""


@pytest.fixture
def keck(tmp_path):
    return zipped(
        tmp_path / "Keck_Dataset.zip",
        {
            "Keck Dataset/training files/person1_gesture1_train.avi": video(down),
            "Keck Dataset/training files/person1_gesture14_train.avi": video(across),
            "Keck Dataset/testingfiles/person1_gesture1_test.avi": video(down, light=180),
            "Keck Dataset/testingfiles/person4_gesture14_test.avi": video(across, light=180),
            "Keck Dataset/notes.doc": b"",
        },
    )


@incomplete
def test_keck_videos_of_one_gesture_are_alike(tmp_path, keck):
    data = convert("keck", tmp_path, keck)
    assert_array_equal(data.y, [0, 0, 13, 13])
    assert_array_equal(data.clients, ["person1"] * 3 + ["person4"])
    assert data.X.shape == (4, 2048) and data.class_names[-1] == "gesture14"
    alike = data.X @ data.X.T / 2
    assert_allclose(np.diag(alike), 1, rtol=1e-6)
    assert min(alike[0, 1], alike[2, 3]) > 0.9 > 0.5 > alike[:2, 2:].max()


@incomplete
def test_keck_columns_say_when_and_where_something_moved(tmp_path, keck):
    data = convert("keck", tmp_path, keck)
    motion = data.X[2, :1024].reshape(16, 8, 8)  # across: in the middle rows, from left to right
    assert motion.sum(axis=(0, 2)).argmax() in (3, 4)
    column = motion.sum(axis=1).argmax(axis=1)
    assert column[0] <= 1 and column[-1] >= 6 and np.all(np.diff(column) >= -1)
    assert data.feature_names[64 * 15 + 8 * 3 + 7] == "motion 16 cell 3,7"


@incomplete
def test_keck_list_of_frames_makes_a_row_of_each_repetition(tmp_path, keck):
    sequences = tmp_path / "sequences.txt"
    sequences.write_text(LIST)
    data = convert("keck", tmp_path, sequences, keck)
    assert_array_equal(data.y, [0, 0, 0, 13, 13])
    with np.load(tmp_path / "keck" / "keck.npz") as stored:
        assert_array_equal(stored["part"], ["testing", "training", "training", "training", "testing"])
        assert_array_equal(stored["repetition"], [1, 1, 2, 1, 1])
    motion = data.X[1:3, :1024].reshape(2, 16, 8, 8).sum(axis=(1, 3))
    assert motion[0].argmax() < motion[1].argmax()  # the upper half of the way, then the lower


def test_keck_counts_videos(tmp_path, keck):
    with pytest.warns(UserWarning, match="keck: .*4 videos.* 98"):
        convert("keck", tmp_path, keck)


@incomplete
def test_keck_refuses_what_it_cannot_place(tmp_path, keck):
    sequences = tmp_path / "sequences.txt"
    sequences.write_text("frames are elsewhere")
    with pytest.raises(DatasetError, match=r"sequences\.txt"):
        convert("keck", tmp_path, keck, sequences)
    sequences.write_text(LIST.replace("person 4", "person 3"))
    with pytest.raises(DatasetError, match=r"sequences\.txt .*person 4, gesture 14, testing"):
        convert("keck", tmp_path, keck, sequences)
    sequences.write_text(LIST.replace("2-20", "60-90"))
    with pytest.raises(DatasetError, match=r"gesture14_train\.avi .* 0 frames"):
        convert("keck", tmp_path, keck, sequences)
    for name, content, why in [
        ("person1_gesture15_1.avi", b"", "gesture15.* 1 to 14"),
        ("person1_gesture1_1.avi", b"no film", r"person1_gesture1_1\.avi"),
        ("wave.avi", b"", r"other\.zip"),
    ]:
        with pytest.raises(DatasetError, match=why):
            convert("keck", tmp_path, zipped(tmp_path / "other.zip", {name: content}))


@pytest.mark.parametrize(
    ("name", "module", "inside"), [("core50", "PIL.Image", "x"), ("keck", "av", "person1_gesture1_.avi")]
)
def test_readers_that_are_not_installed(tmp_path, monkeypatch, name, module, inside):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'fmtc-bench\[data\]'"):
        convert(name, tmp_path, zipped(tmp_path / "some.zip", {inside: b""}))


# ------------------------------------------------------------------------------------------------ the compact form


def broken(path, how):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 1024), dtype=np.uint8)
    whole = {"X": pixels, "y": np.repeat([0, 1], 2), "client": np.array(["a", "a", "b", "b"])}
    if how == "cut short":
        np.savez_compressed(path, **whole)
        path.write_bytes(path.read_bytes()[:-40])
    elif how == "bytes":
        np.savez_compressed(path, **whole)
        content = bytearray(path.read_bytes())
        content[60:90] = b"\xff" * 30
        path.write_bytes(content)
    elif how == "one array":
        with path.open("wb") as file:
            np.save(file, whole["X"])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        changed = {
            "no y": {"X": whole["X"], "client": whole["client"]},
            "pickle": whole | {"X": np.array([[None]])},
            "words": whole | {"y": np.array(["a", "b", "c", "d"])},
            "cube": whole | {"X": np.zeros((4, 32, 32))},
            "short y": whole | {"y": np.array([0, 0, 1])},
            "class 99": whole | {"y": np.array([0, 0, 1, 99])},
            "width": whole | {"X": np.zeros((4, 900), dtype=np.uint8)},
        }
        np.savez(path, **changed[how])


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("cut short", r"yale\.npz"),
        ("bytes", r"yale\.npz"),
        ("one array", r"yale\.npz"),
        ("empty", r"yale\.npz"),
        ("no y", r"yale\.npz .*: y "),
        ("pickle", r"yale\.npz"),
        ("words", r"yale\.npz .*<U1"),
        ("cube", r"yale\.npz .*\(4, 32, 32\)"),
        ("short y", "4 x 1024 .* 3 classes"),
        ("class 99", "15 classes"),
        ("width", "4 x 900 .* 1024"),
    ],
)
def test_damaged_files_are_told_in_a_sentence(tmp_path, how, why):
    folder = tmp_path / "yale"
    folder.mkdir()
    broken(folder / "yale.npz", how)
    with pytest.raises(DatasetError, match=why):
        load("yale", data_home=tmp_path)


# --------------------------------------------------------------------------------------------------- the real files


def test_digits_are_always_there(tmp_path):
    data = load("digits", data_home=tmp_path)
    assert data.name == "digits-skew10-seed0" and data.X.shape == (1797, 64) and data.X.max() == 1
    assert len(data.client_ids) == 8 and min(min(c.values()) for c in data.class_counts().values()) >= 3
    assert load("digits", n_clients=3, seed=4).name == "digits-skew10-seed4"


@real_data
@pytest.mark.parametrize(
    ("name", "shape", "n_classes", "n_clients"),
    [
        ("yale", (165, 1024), 15, 3),
        ("orl", (400, 1024), 40, 3),
        ("yaleb", (2414, 1024), 38, 4),
        ("core50_sample", (100, 3072), 10, 10),
        ("utd_mhad", (861, 960), 27, 8),
    ],
)
def test_real_files(name, shape, n_classes, n_clients):
    data = load(name, data_home=HOME)
    assert data.X.shape == shape
    assert_array_equal(np.unique(data.y), np.arange(n_classes))
    assert data.n_clusters == n_classes and len(data.client_ids) == n_clients
    if data.recipe == "standardize":
        assert data.X.min() >= 0 and 0.9 < data.X.max() <= 1
    for seed in range(3):
        train, test = data.split(seed=seed)
        assert len(train.y) + len(test.y) == len(data.y) and np.all(np.isfinite(train.X))


@real_data
def test_real_yale():
    data = load("yale", data_home=HOME)
    sizes = {cid: set(counts.values()) for cid, counts in data.class_counts().items()}
    assert sizes == {"lighting": {3}, "expression": {5}, "neutral": {3}}
    assert load("yale", data_home=HOME, size=64).X.shape == (165, 4096)
    # upright: a face is nearly its own mirror image, left and right, where light comes from the front
    normal = data.X.reshape(15, 11, 32, 32)[:, list(CONDITIONS).index("normal")]
    across, down = np.abs(normal - normal[:, :, ::-1]).mean(), np.abs(normal - normal[:, ::-1]).mean()
    assert across < 0.7 * down


@real_data
def test_real_faces_survive_the_official_form(tmp_path):
    with np.load(Path(HOME) / "yale" / "yale.npz") as stored:
        small, large, y = stored["X"].reshape(-1, 32, 32), stored["X64"].reshape(-1, 64, 64), stored["y"]
    paths = mat(tmp_path / "Yale_32x32.mat", small, y), mat(tmp_path / "Yale_64x64.mat", large, y)
    ours, theirs = convert("yale", tmp_path, *paths), load("yale", data_home=HOME)
    assert_array_equal(ours.X, theirs.X)
    assert_array_equal(ours.clients, theirs.clients)


@real_data
def test_real_skeletons_have_our_unit():
    """Rows that were converted already do not change much when converted again from their 16 moments."""
    X = load("utd_mhad", data_home=HOME).X
    again = np.stack([_movement(np.moveaxis(row.reshape(16, 20, 3), 0, 2), "row") for row in X])
    assert np.abs(again - X).max() < 0.05 and np.median(np.abs(again - X).max(axis=1)) < 2e-3


@real_data
def test_real_sample_of_core50_was_shrunk_as_we_do():
    from PIL import Image

    with np.load(Path(HOME) / "core50_sample" / "core50_sample.npz") as stored:
        whole, small, names = stored["images128"], stored["X"], stored["class_names"]
    assert_array_equal(np.stack([_thumbnail(Image, png(pixels), "picture") for pixels in whole]), small)
    assert tuple(names) == CATEGORIES
