"""Images and movements as federations: digits, faces, hand-held objects, gestures, skeletons."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.errors import DatasetError

from .base import FederatedDataset, Source, label_skew
from .catalogue import Code, facts, source
from .download import expect_count, members, only_archive

Array = np.ndarray

FACTS = facts("images")
CONDITIONS: dict[str, str] = FACTS["yale"]["conditions"]  # in the order of the file; the client of each is our grouping
CATEGORIES: tuple[str, ...] = tuple(FACTS["core50"]["categories"])
ACTIONS: tuple[str, ...] = tuple(FACTS["utd_mhad"]["actions"])
JOINTS: list[str] = FACTS["utd_mhad"]["joints"]
HIP = JOINTS.index("hip")
N_GESTURES = 14
N_THINGS, N_POSES = 20, 72  # of COIL-20: a picture every 5 degrees

STRIDE = 20  # every 20th frame of CORe50: one per second
MOMENTS = 16  # of a movement
CELLS, CELL = 8, 8  # a frame of a video is 8 x 8 cells of 8 x 8 grey pixels
VIDEO_BYTES = 64 * 2**30

MAT_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MAT_ARRAY, MAT_COMPRESSED = 14, 15
MAT_BYTES = 2**28  # of one array


# -------------------------------------------------------------------------------------------- reading the compact form


def stored_arrays(source: Source, folder: Path, *names: str, labels: str = "ui") -> list[Array]:
    """Arrays of the compact form: rows X, classes y (integers, or text where labels is "U"), and those named."""
    path = folder / source.files[0]
    again = f"Get {' and '.join(a.file_name for a in source.archives) or 'the file'} again."
    try:
        with zipfile.ZipFile(path):  # np.load also accepts other files
            pass
        with np.load(path) as data:
            arrays = [data[name] for name in ("X", "y", *names)]
    except KeyError as error:
        raise DatasetError(f"{path} is incomplete: {error.args[0]}. {again}") from None
    except Exception as error:  # a damaged file makes the readers fail in many ways
        raise DatasetError(f"{path} is damaged: {error}. {again}") from None
    X, y = arrays[:2]
    kind = "names" if labels == "U" else "integers"
    if X.ndim != 2 or X.dtype.kind not in "uif" or y.ndim != 1 or y.dtype.kind not in labels:
        raise DatasetError(
            f"{path} is damaged: rows X of shape {X.shape} and type {X.dtype}, classes y of shape {y.shape} and type "
            f"{y.dtype}, expected numbers in two dimensions and {kind} in one. {again}"
        )
    return arrays


def _assigned(source: Source, X: Array, y: Array, deal: tuple[int, float, int], **more: Any) -> FederatedDataset:
    """Rows without a client, assigned to clients class by class."""
    n_clients, concentration, seed = deal
    clients = label_skew(y, n_clients, concentration=concentration, random_state=seed)
    return source.dataset(X, y, clients, mark=f"-skew{concentration:g}-seed{seed}", **more)


def _names(word: str, n: int) -> tuple[str, ...]:
    return tuple(f"{word}{i + 1}" for i in range(n))


def _pixels(side: int, channels: Iterable[str] = ("",)) -> tuple[str, ...]:
    """Column names of a square image, row by row."""
    return tuple(f"pixel {i},{j}{c}" for i in range(side) for j in range(side) for c in channels)


def _read_digits(
    source: Source, folder: Path, *, n_clients: int = 8, concentration: float = 10.0, seed: int = 0
) -> FederatedDataset:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    names: dict[str, Any] = {"feature_names": _pixels(8), "class_names": tuple("0123456789")}
    return _assigned(source, X / 16, y, (n_clients, concentration, seed), **names)


def _read_yale(source: Source, folder: Path, *, size: int = 32) -> FederatedDataset:
    if size not in (32, 64):
        raise DatasetError(f"yale has images of size 32 and 64, got size={size!r}")
    X, y, clients = stored_arrays(source, folder, "client")
    if size == 64:
        X = stored_arrays(source, folder, "X64")[2]
    more: dict[str, Any] = {
        "feature_names": _pixels(size),
        "class_names": _names("person", 15),
        "recipe": "standardize",
    }
    return source.dataset(X / 255, y, clients, mark="-64" * (size == 64), **more)


def _read_faces(
    source: Source, folder: Path, *, n_clients: int, concentration: float = 5.0, seed: int = 0, n_persons: int
) -> FederatedDataset:
    X, y = stored_arrays(source, folder)
    more: dict[str, Any] = {
        "feature_names": _pixels(32),
        "class_names": _names("person", n_persons),
        "recipe": "standardize",
    }
    return _assigned(source, X / 255, y, (n_clients, concentration, seed), **more)


_read_orl = partial(_read_faces, n_clients=3, n_persons=40)
_read_yaleb = partial(_read_faces, n_clients=4, n_persons=38)


def _read_coil20(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    names: dict[str, Any] = {"feature_names": _pixels(32), "class_names": _names("object", N_THINGS)}
    return source.dataset(X / 255, y - 1, clients, recipe="standardize", **names)


def _read_core50(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    names: dict[str, Any] = {"feature_names": _pixels(32, (" red", " green", " blue")), "class_names": CATEGORIES}
    return source.dataset(X / np.float32(255), y, clients, recipe="standardize", **names)  # half the memory


def _read_keck(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    cells = [f"cell {i},{j}" for i in range(CELLS) for j in range(CELLS)]
    columns = [f"{what} {t + 1} {cell}" for what in ("motion", "shape") for t in range(MOMENTS) for cell in cells]
    names: dict[str, Any] = {"feature_names": tuple(columns), "class_names": _names("gesture", N_GESTURES)}
    return source.dataset(X.astype(np.float64), y, clients, **names)


def _read_utd_mhad(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    columns = [f"moment {t + 1} {joint} {axis}" for t in range(MOMENTS) for joint in JOINTS for axis in "xyz"]
    return source.dataset(X.astype(np.float64), y, clients, feature_names=tuple(columns), class_names=ACTIONS)


# --------------------------------------------------------------------------------------------- the official archives


def _extra(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(f"this archive needs {module.partition('.')[0]}: pip install 'fmtc-bench[data]'") from None


def _matlab(content: bytes, name: str, *variables: str) -> list[Array]:
    """Numeric arrays of a Matlab file of version 5 to 7.2; SciPy's reader crashes Python on damaged files."""
    try:
        if content[124:128] != b"\x00\x01IM":
            raise ValueError("the marker at byte 124 is missing")
        found = dict(_matlab_arrays(memoryview(content)[128:]))
    except (ValueError, KeyError, IndexError, TypeError, struct.error, zlib.error) as error:
        raise DatasetError(f"{name} is not a Matlab file of version 5 to 7.2, or damaged: {error}") from None
    if not set(variables) <= set(found):
        raise DatasetError(f"{name} lacks the numeric arrays {' and '.join(variables)}")
    return [found[variable] for variable in variables]


def _matlab_arrays(data: memoryview) -> Iterator[tuple[str, Array]]:
    """Name and numbers of each dense real array; everything else is skipped."""
    for kind, body in _matlab_elements(data):
        if kind == MAT_COMPRESSED:
            unpacked = zlib.decompressobj().decompress(body, MAT_BYTES)
            ((kind, body),) = _matlab_elements(memoryview(unpacked))
        if kind == MAT_ARRAY:
            (_, flags), (_, shape), (_, name), *parts = _matlab_elements(body)
            sort = struct.unpack_from("<I", flags)[0]
            if 6 <= sort & 0xFF <= 15 and not sort & 0x800:  # a real numeric type
                numbers = np.frombuffer(parts[0][1], f"<{MAT_TYPES[parts[0][0]]}")
                yield bytes(name).decode("latin-1"), numbers.reshape(np.frombuffer(shape, "<i4"), order="F")


def _matlab_elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of consecutive elements; up to four bytes are stored in the header of an element."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        short = kind >> 16
        begin, size, kind = (at + 4, short, kind & 0xFFFF) if short else (at + 8, size, kind)
        end = begin + size
        if end > len(data):
            raise ValueError("it is truncated")
        yield kind, data[begin:end]
        at = end if kind == MAT_COMPRESSED else at + 8 if short else end + -size % 8


def _faces(path: Path) -> tuple[Array, Array]:
    """Upright images in row order and persons from 0; the file is in column order and counts from 1."""
    fea, gnd = _matlab(path.read_bytes(), path.name, "fea", "gnd")
    y = gnd.ravel()
    side = {(1024,): 32, (4096,): 64}.get(fea.shape[1:])
    pixels = fea.astype(np.uint8) if fea.size and fea.min() >= 0 and fea.max() <= 255 else None
    persons = np.unique(y)
    if side is None or pixels is None or np.any(pixels != fea):
        raise DatasetError(
            f"{path.name} has {' x '.join(map(str, fea.shape))} numbers, expected grey images of 1024 or 4096 integers "
            "from 0 to 255 each"
        )
    if len(y) != len(fea) or not np.array_equal(persons, np.arange(len(persons)) + 1):
        raise DatasetError(
            f"{path.name} has {len(y)} persons for {len(fea)} images, expected one of 1, 2, ... for each"
        )
    by_person = np.argsort(y, kind="stable")
    upright = pixels.reshape(-1, side, side).swapaxes(1, 2).reshape(pixels.shape)
    return upright[by_person], y[by_person].astype(np.int64) - 1


def _convert_yale(archives: tuple[Path, ...], folder: Path) -> None:
    """Yale_32x32.mat, with or without Yale_64x64.mat."""
    faces = {pixels.shape[1]: (pixels, y) for pixels, y in map(_faces, archives)}
    if 1024 not in faces or len(faces) != len(archives):
        raise DatasetError(
            f"got {', '.join(p.name for p in archives)}, expected Yale_32x32.mat, and Yale_64x64.mat once"
        )
    X, y = faces[1024]
    n = y.max() + 1
    if any(not np.array_equal(persons, np.repeat(np.arange(n), len(CONDITIONS))) for _, persons in faces.values()):
        raise DatasetError(f"yale: {len(y)} images of {n} persons, expected 11 of each in the same order of conditions")
    expect_count("yale", n, 15, "persons")
    more: dict[str, Any] = {"X64": faces[4096][0]} if 4096 in faces else {}
    conditions, clients = np.tile(list(CONDITIONS), n), np.tile(list(CONDITIONS.values()), n)
    np.savez_compressed(folder / "yale.npz", X=X, y=y, condition=conditions, client=clients, **more)


def _convert_orl(archives: tuple[Path, ...], folder: Path) -> None:
    """ORL_32x32.mat."""
    X, y = _faces(only_archive(archives, "ORL_32x32.mat"))
    expect_count("orl", len(X), 400, "images")
    np.savez_compressed(folder / "orl.npz", X=X, y=y, shot=np.arange(len(y)) - np.searchsorted(y, y))


def _convert_yaleb(archives: tuple[Path, ...], folder: Path) -> None:
    """YaleB_32x32.mat."""
    X, y = _faces(only_archive(archives, "YaleB_32x32.mat"))
    expect_count("yaleb", len(X), 2414, "images")
    np.savez_compressed(folder / "yaleb.npz", X=X, y=y)


def _numbered(
    path: Path, pattern: str, wanted: Callable[..., bool] = lambda *numbers: True, limit: int = 2 * 2**30
) -> Iterator[tuple[tuple[int, ...], str, bytes]]:
    """Files of an archive whose names match: the numbers in the name, the name, the content."""

    found: dict[str, tuple[int, ...]] = {}

    def is_one(name: str) -> bool:
        match = re.search(pattern, name)
        found[name] = () if match is None else tuple(map(int, match.groups()))
        return match is not None and wanted(*found[name])

    for name, content in members(path, wanted=is_one, limit=limit):
        yield found[name], name, content


def _convert_core50(archives: tuple[Path, ...], folder: Path) -> None:
    """core50_128x128.zip: every 20th frame, reduced to 32 x 32 by means of 4 x 4 pixels, one after the other."""
    path = only_archive(archives, "core50_128x128.zip")
    image = _extra("PIL.Image")
    frames_of = r"(?:^|/)s(\d+)/o(\d+)/C_\d+_\d+_(\d+)\.png$"
    rows = []
    for (session, thing, number), name, content in _numbered(path, frames_of, lambda _, __, k: k % STRIDE == 0):
        if not (1 <= session <= 11 and 1 <= thing <= 50):
            raise DatasetError(f"{path.name} holds {name}, expected sessions s1 to s11 and objects o1 to o50")
        rows.append((session, thing, number, _thumbnail(image, content, f"{name} in {path.name}")))
    if not rows:
        raise DatasetError(f"{path.name} holds no image like core50_128x128/s1/o1/C_01_01_000.png, so it is not CORe50")
    rows.sort(key=lambda row: row[:3])
    sessions, things, frames = np.array([row[:3] for row in rows]).T
    expect_count("core50", len(np.unique(sessions)), 11, "sessions")
    expect_count("core50", len(np.unique(things)), 50, "objects")
    np.savez_compressed(
        folder / "core50.npz",
        X=np.stack([row[3] for row in rows]),
        y=(things - 1) // 5,
        client=np.char.add("s", sessions.astype(str)),
        object=things,
        frame=frames,
        class_names=np.array(CATEGORIES),
    )


def _convert_coil20(archives: tuple[Path, ...], folder: Path) -> None:
    """coil-20-proc.zip: obj1__0.png to obj20__71.png, reduced to 32 x 32 by means of 4 x 4 pixels."""
    path = only_archive(archives, "coil-20-proc.zip")
    image = _extra("PIL.Image")
    rows = {}
    for (thing, pose), name, content in _numbered(path, r"(?:^|/)obj(\d+)__(\d+)\.png$"):
        if not (1 <= thing <= N_THINGS and pose < N_POSES):
            raise DatasetError(
                f"{path.name} holds {name}, expected objects 1 to {N_THINGS} and poses 0 to {N_POSES - 1}"
            )
        rows[thing, pose] = _thumbnail(image, content, f"{name} in {path.name}", "L")
    if not rows:
        raise DatasetError(f"{path.name} holds no image like coil-20-proc/obj1__0.png, so it is not COIL-20")
    expect_count("coil20", len(rows), N_THINGS * N_POSES, "images")
    keys = sorted(rows)
    things, angles = np.array(keys).T * [[1], [360 // N_POSES]]
    np.savez_compressed(
        folder / "coil20.npz",
        X=np.stack([rows[key] for key in keys]),
        y=things,
        angle=angles,
        client=np.array([f"view{angle // 90 * 90:03d}" for angle in angles.tolist()]),
    )


def _thumbnail(image: Any, content: bytes, name: str, mode: str = "RGB") -> Array:
    """An image of 128 x 128 pixels as a row of 32 x 32 numbers, or 32 x 32 x 3 in mode "RGB"."""
    try:
        with image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            size = picture.size
            small = picture.convert(mode).resize((32, 32), image.Resampling.BOX) if size == (128, 128) else None
    except (OSError, SyntaxError, ValueError) as error:
        raise DatasetError(f"{name} is damaged: {error}") from None
    if small is None:
        raise DatasetError(f"{name} has {size[0]} x {size[1]} pixels, expected 128 x 128")
    return np.asarray(small).ravel()


def _even(series: Array, n: int = MOMENTS) -> Array:
    """A series at n equidistant times from its first entry to its last; (T, ...) -> (n, ...)."""
    at = np.linspace(0, len(series) - 1, n)
    before = at.astype(int)
    after = np.minimum(before + 1, len(series) - 1)
    share = (at - before).reshape(-1, *[1] * (series.ndim - 1))
    return (1 - share) * series[before] + share * series[after]


def _convert_utd_mhad(archives: tuple[Path, ...], folder: Path) -> None:
    """Skeleton.zip: d_skel (20 joints, 3 coordinates, frames) of each aN_sN_tN_skeleton.mat."""
    path = only_archive(archives, "Skeleton.zip")
    rows = {}
    for (action, person, repeat), name, content in _numbered(path, r"(?:^|/)a(\d+)_s(\d+)_t(\d+)_skeleton\.mat$"):
        (skeleton,) = _matlab(content, f"{name} in {path.name}", "d_skel")
        if not 1 <= action <= len(ACTIONS):
            raise DatasetError(f"{path.name} holds {name}, expected actions a1 to a{len(ACTIONS)}")
        rows[action, person, repeat] = _movement(skeleton, f"{name} in {path.name}")
    if not rows:
        raise DatasetError(f"{path.name} holds no file like Skeleton/a1_s1_t1_skeleton.mat, so it is not UTD-MHAD")
    expect_count("utd_mhad", len(rows), 861, "movements")
    keys = sorted(rows)
    np.savez_compressed(
        folder / "skeleton.npz",
        X=np.stack([rows[key] for key in keys]).astype(np.float16),
        y=np.array([action - 1 for action, _, _ in keys]),
        client=np.array([f"subject{person}" for _, person, _ in keys]),
        id=np.array([f"a{action}_s{person}_t{repeat}" for action, person, repeat in keys]),
        class_names=np.array(ACTIONS),
    )


def _movement(skeleton: Array, name: str) -> Array:
    """Joints relative to the hip, in units of body size, at equidistant times; (20, 3, T) -> (960,).

    The unit is the largest distance of a joint from the hip, usually of a foot: its median over the frames.
    """
    if skeleton.ndim != 3 or skeleton.shape[:2] != (len(JOINTS), 3) or not skeleton.shape[2]:
        raise DatasetError(f"{name} has d_skel of shape {skeleton.shape}, expected 20 joints x 3 coordinates x frames")
    about_hip = np.moveaxis(skeleton - skeleton[HIP], 2, 0)
    unit = np.median(np.linalg.norm(about_hip, axis=2).max(axis=1))
    if not 0 < unit < np.inf:
        raise DatasetError(f"{name} has a body of size {unit}, expected a number above 0")
    return _even(about_hip / unit).ravel()


def _convert_keck(archives: tuple[Path, ...], folder: Path) -> None:
    """Keck_Dataset.zip, with or without sequences.txt, which lists the frames of each repetition of the gesture.

    The layout is taken from public code that reads the archive, since we have no copy: ``Keck Dataset/training files``
    and ``Keck Dataset/testingfiles`` hold videos called ``person1_gesture1_...``, and the list has lines such as
    ``person 1_gesture1_... frames 12-70, 84-130`` below ``Training set:`` and ``Testing set:``. Any archive of videos
    with person and gesture (1 to 14) in their names works; a path with "test" in it belongs to the second part. With
    the list each repetition is a row, without it each video.
    """
    lists = [path for path in archives if path.suffix == ".txt"]
    path = only_archive(tuple(p for p in archives if p not in lists), "Keck_Dataset.zip, besides sequences.txt")
    frames = _sequences(lists[0]) if lists else {}
    video = r"(?i)person ?(\d+)_gesture ?(\d+)[^/]*\.(?:avi|mp4|mpg|mpeg|mov|wmv)$"
    rows, n_videos = {}, 0
    for (person, gesture), name, content in _numbered(path, video, limit=VIDEO_BYTES):
        if not 1 <= gesture <= N_GESTURES:
            raise DatasetError(f"{path.name} holds {name}, expected gestures 1 to {N_GESTURES}")
        n_videos += 1
        film = _film(content, f"{name} in {path.name}")
        part = "testing" if "test" in name.lower() else "training"
        if lists and (part, person, gesture) not in frames:
            raise DatasetError(f"{lists[0].name} names no frames of person {person}, gesture {gesture}, {part}")
        for k, (first, last) in enumerate(frames.get((part, person, gesture), [(0, len(film))])):
            rows[person, gesture, part, k + 1] = _motion_and_shape(film[first : last + 1], f"{name} in {path.name}")
    if not rows:
        raise DatasetError(f"{path.name} holds no video like training files/person1_gesture1_1.avi, so it is not Keck")
    expect_count("keck", n_videos, 98, "videos")
    keys = sorted(rows)
    persons, gestures, parts, repetitions = zip(*keys, strict=True)
    np.savez_compressed(
        folder / "keck.npz",
        X=np.stack([rows[key] for key in keys]).astype(np.float32),
        y=np.array(gestures) - 1,
        client=np.array([f"person{person}" for person in persons]),
        part=np.array(parts),
        repetition=np.array(repetitions),
    )


def _sequences(path: Path) -> dict[tuple[str, int, int], list[tuple[int, int]]]:
    """First and last frame of each repetition, by part, person and gesture."""
    frames, part = {}, "training"
    entry = re.compile(r"\s*person ?(\d+)_gesture ?(\d+)(?!\d).*frames([-\d,\s]+)", re.IGNORECASE)
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.lower().startswith("testing set"):
            part = "testing"
        elif found := entry.match(line):
            pairs = re.findall(r"(\d+)\s*-\s*(\d+)", found[3])
            frames[part, int(found[1]), int(found[2])] = [(int(first), int(last)) for first, last in pairs]
    if not frames:
        raise DatasetError(f"{path.name} has no line like 'person 1_gesture1_... frames 12-70, 84-130'")
    return frames


def _film(content: bytes, name: str) -> Array:
    """Frames of a video as small grey images; (T, 64, 64)."""
    av = _extra("av")
    side = CELLS * CELL
    try:
        with av.open(io.BytesIO(content)) as video:
            frames = [
                frame.reformat(side, side, "gray", interpolation="AREA").to_ndarray() for frame in video.decode(video=0)
            ]
    except (av.FFmpegError, IndexError) as error:
        raise DatasetError(f"{name} is damaged or not a video: {error}") from None
    return np.array(frames, dtype=np.uint8).reshape(-1, side, side)


def _motion_and_shape(film: Array, name: str) -> Array:
    """Change between consecutive frames, and difference from the median frame; (T, 64, 64) -> (2048,).

    Both as means over 8 x 8 cells of a frame and over 16 equal intervals of time, each with unit norm.
    """
    if len(film) < 2:
        raise DatasetError(f"{name} has {len(film)} frames of the gesture, expected at least 2")
    film = film.astype(np.float32)
    halves = []
    for change in (np.abs(np.diff(film, axis=0)), np.abs(film - np.median(film, axis=0))):
        cells = change.reshape(-1, CELLS, CELL, CELLS, CELL).mean(axis=(2, 4)).reshape(len(change), -1)
        so_far = np.vstack([np.zeros(CELLS**2), np.cumsum(cells, axis=0, dtype=np.float64)])
        half = np.diff(_even(so_far, MOMENTS + 1), axis=0).ravel()
        halves.append(half / (np.linalg.norm(half) or 1.0))
    return np.concatenate(halves)


# -------------------------------------------------------------------------------------------------------- the sources

CODE: dict[str, Code] = {
    "yale": (_read_yale, _convert_yale),
    "core50": (_read_core50, _convert_core50),
    "core50_sample": (_read_core50, None),
    "keck": (_read_keck, _convert_keck),
    "orl": (_read_orl, _convert_orl),
    "yaleb": (_read_yaleb, _convert_yaleb),
    "coil20": (_read_coil20, _convert_coil20),
    "utd_mhad": (_read_utd_mhad, _convert_utd_mhad),
    "digits": (_read_digits, None),
}
SOURCES = tuple(source(name, FACTS[name], code) for name, code in CODE.items())
