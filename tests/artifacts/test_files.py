"""Files that are complete or not there, and what is said of those that are damaged."""

import errno
import json
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from safetensors.numpy import save_file

from fmtc.artifacts import files
from fmtc.errors import FileError, WriteError

# ----------------------------------------------------------------------------------------------------- file names

NAMES = st.text(st.characters(codec="utf-8"), max_size=300)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(NAMES, NAMES)
def test_file_names_are_safe_and_differ_as_the_ids_do(one, other):
    name = files.file_name(one)
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%-_.~")
    assert name not in (".", "..")
    assert len(name) <= 100
    assert (name == files.file_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "A"), ("north/1", "north_1"), ("a b", "a%20b"), (".", "%2E"), ("x" * 200, "x" * 201), ("é" * 90, "é" * 91),
     ("a/b", "a\\b"), ("..", "...")],
)  # fmt: skip
def test_file_names_differ_where_it_is_easy_to_mix_them_up(one, other):
    """Also where the file system does not tell capitals from small letters."""
    names = files.file_names([one, other, "west"])
    assert names[one].lower() != names[other].lower()
    assert names["west"] == "west"


# --------------------------------------------------------------------------------------------------- whole or not


def test_write_file_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    for content in (b"one", b"two"):
        files.write_file(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_failing_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.bin"
    files.write_file(path, b"old")
    with pytest.raises(TypeError):
        files.write_file(path, [b"not", b"bytes"])
    assert path.read_bytes() == b"old"
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError):  # noqa: PT011 (its kind and words are the system's)
        files.write_file(folder, b"a file cannot take a folder's name")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "folder"]


def test_a_full_disk_has_a_name(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as failed:
        files.write_file(tmp_path / "a.json", b"{}")
    assert failed.value.errno == errno.ENOSPC and failed.value.filename == str(tmp_path / "a.json")
    for filename, expected in ((None, tmp_path / "run"), ("b.png", "b.png")):
        with pytest.raises(OSError, match="No space") as failed, files.new_folder(tmp_path / "run"):
            raise OSError(errno.ENOSPC, "No space left on device", filename)
        assert failed.value.filename == str(expected)
    assert not list(tmp_path.iterdir())


def test_what_the_system_refuses_to_write_is_one_error_that_names_what_was_asked_for(tmp_path, small_files):
    """Whoever wrote: the inner file is in a folder that nobody has asked for, and that is gone."""
    a, run = tmp_path / "a.bin", tmp_path / "run"
    a.write_bytes(b"old")
    with small_files():
        with pytest.raises(WriteError, match=r"a\.bin cannot be written: File too large") as failed:
            files.write_file(a, bytes(2000))
        assert (failed.value.exit_code, failed.value.errno) == (2, errno.EFBIG)
        with (
            pytest.raises(WriteError, match=r"/run cannot be written") as failed,
            files.new_folder(run) as folder,
            files.new_folder(folder / "model") as inner,
        ):
            files.write_json(inner / "b.json", list(range(1000)))
        assert failed.value.filename == str(run)
        with pytest.raises(WriteError, match=r"/run cannot be written"), files.new_folder(run) as folder:
            (folder / "plain").write_bytes(bytes(2000))
        with pytest.raises(WriteError, match=r"/run cannot be written"), files.new_folder(run) as folder:
            shutil.copyfile(files.__file__, folder / "copy")  # the system names what was copied
    assert a.read_bytes() == b"old" and list(tmp_path.iterdir()) == [a]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG])
@pytest.mark.parametrize("place", ["tempfile.mkstemp", "os.fsync", "os.replace"])
@pytest.mark.parametrize("relative", [False, True])
def test_wherever_the_system_refuses_to_write(tmp_path, monkeypatch, code, place, relative):
    def refuse(*args, **_):
        raise OSError(code, os.strerror(code), *(["./.a.json-xyz"] if place != "os.fsync" else []))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, refuse)
    with pytest.raises(WriteError, match=rf"a\.json cannot be written: {os.strerror(code)}"):
        files.write_json(Path("a.json") if relative else tmp_path / "a.json", {})
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_meanwhile_is_not_taken_for_it(tmp_path):
    with pytest.raises(PermissionError) as failed, files.new_folder(tmp_path / "run"):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "rows.csv"))
    assert not isinstance(failed.value, WriteError)
    with pytest.raises(OSError, match="Input/output") as failed, files.new_folder(tmp_path / "run"):
        raise OSError(errno.EIO, "Input/output error")  # of the disk, and not of what was asked for
    assert not isinstance(failed.value, WriteError) and failed.value.filename == str(tmp_path / "run")


def test_new_folder_appears_at_the_end(tmp_path):
    path = tmp_path / "far" / "away"
    with files.new_folder(path) as part:
        (part / "file").write_text("content")
        assert not path.exists()
        assert part.parent == path.parent  # same file system: the last step is a rename
    assert [p.name for p in path.parent.iterdir()] == ["away"]
    assert (path / "file").read_text() == "content"
    assert os.access(path, os.R_OK | os.W_OK | os.X_OK)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("overwrite", [False, True])
def test_new_folder_leaves_nothing_of_a_failure(tmp_path, overwrite):
    path = tmp_path / "model"
    if overwrite:
        path.mkdir()
        (path / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), files.new_folder(path, overwrite=overwrite) as part:  # noqa: PT012
        (part / "half").write_text("half")
        raise KeyboardInterrupt
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["model", "model/old"] * overwrite


def test_new_folder_overwrites_only_when_told(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(FileExistsError, match="model "), files.new_folder(path):
        pytest.fail("the block must not run")
    with files.new_folder(path, overwrite=True) as part:
        (part / "new").touch()
        assert (path / "old").exists()
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["model", "model/new"]


# ----------------------------------------------------------------------------------------------------------- files

ARRAYS = {
    "W": np.random.default_rng(0).normal(size=(9, 4)),
    "turned": np.arange(12, dtype=np.float32).reshape(3, 4).T,  # not contiguous
    "order": np.arange(3),
    "none": np.zeros((0, 4)),
}
ABOUT = {"kind": "test", "schema": 1, "name": "Zürich", "numbers": (1, np.float64(0.1), float("nan"))}


@pytest.fixture
def tensors(tmp_path):
    path = tmp_path / "t.safetensors"
    files.write_tensors(path, ARRAYS, ABOUT)
    return path


def test_tensors_come_back_as_they_went(tensors):
    arrays, about = files.read_tensors(tensors)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert_array_equal(arrays[name], array)
    assert about == {"kind": "test", "schema": 1, "name": "Zürich", "numbers": [1, 0.1, None]}


def test_a_damaged_byte_does_not_go_unnoticed(tensors):
    whole = tensors.read_bytes()
    for i in range(0, len(whole), 7):
        tensors.write_bytes(whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :])
        with pytest.raises(FileError, match=r"t\.safetensors "):
            files.read_tensors(tensors)


@pytest.mark.parametrize("read", [files.read_tensors, files.read_json])
def test_a_file_cut_short_is_refused_wherever_it_is_cut(read, tmp_path):
    path = tmp_path / "file"
    if read is files.read_tensors:
        files.write_tensors(path, ARRAYS, ABOUT)
    else:
        files.write_json(path, {"list": list(range(500))})
    whole = path.read_bytes()
    for size in [*range(0, len(whole) - 2, 97), len(whole) - 2]:
        path.write_bytes(whole[:size])
        with pytest.raises(FileError, match="file "):
            read(path)


@pytest.mark.parametrize("read", [files.read_tensors, files.read_json])
@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 50, b"\xff" * 50, b"{", b"PK\x03\x04 a zip file, say", "Zürich".encode("latin-1")]
)
def test_a_file_of_something_else_is_refused(read, content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("read", [files.read_tensors, files.read_json])
def test_a_missing_file_and_a_folder_are_refused(read, tmp_path):
    with pytest.raises(FileError, match="nowhere "):
        read(tmp_path / "nowhere")
    with pytest.raises(FileError, match=f"{tmp_path.name} cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"fmtc": "[1, 2]"}])
def test_tensors_of_others_are_refused(metadata, tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"weight": np.ones(3)}, path, metadata=metadata)
    with pytest.raises(FileError, match=r"other\.safetensors "):
        files.read_tensors(path)


@pytest.mark.parametrize(
    ("about", "mentioned"),
    [
        ({"kind": "test", "schema": 3}, r"3.* 2\b.*Upgrade"),
        ({"kind": "test", "schema": 1}, r"1.* 2\b.*older"),
        ({"kind": "test"}, "None"),
        ({"kind": "test", "schema": "2"}, r"2.* 2\b"),
        ({"kind": "other", "schema": 1}, "'other'.* 'test'"),
        ({}, "None.* 'test'"),
    ],
)
def test_schema_of_another_kind_or_another_version(about, mentioned, tmp_path):
    with pytest.raises(FileError, match=f"{tmp_path / 'f'} .*{mentioned}"):
        files.check_schema(tmp_path / "f", about, "test", 2)


def test_schema_that_is_known(tmp_path):
    files.check_schema(tmp_path, {"kind": "test", "schema": 2}, "test", 2)


# ------------------------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.arange(3), [0, 1, 2]),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1.0, np.nan, np.inf]), [1.0, None, None]),
        ((1, "a", None, -np.inf), [1, "a", None, None]),
        ({1: {"x": np.int64(2)}, "y": []}, {"1": {"x": 2}, "y": []}),
        (np.array(["a", "é"], dtype=object), ["a", "é"]),
    ],
)
def test_jsonable(value, expected, tmp_path):
    found = files.jsonable(value)
    assert found == expected
    json.dumps(found, allow_nan=False)
    files.write_json(tmp_path / "f.json", value)
    assert files.read_json(tmp_path / "f.json") == expected
