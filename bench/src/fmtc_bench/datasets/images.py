"""Images and movements as federations: digits, faces, hand-held objects, gestures, skeletons."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.errors import DatasetError

from .base import Archive, FederatedDataset, Source, label_skew
from .download import expect_count, members, only_archive

Array = np.ndarray

CONDITIONS = {  # of the Yale images, in the order of the official file; the client of each is our grouping
    "centerlight": "lighting",
    "glasses": "neutral",
    "happy": "expression",
    "leftlight": "lighting",
    "noglasses": "neutral",
    "normal": "neutral",
    "rightlight": "lighting",
    "sad": "expression",
    "sleepy": "expression",
    "surprised": "expression",
    "wink": "expression",
}
CATEGORIES = (
    *("plug_adapter", "mobile_phone", "scissor", "light_bulb", "can"),
    *("glasses", "ball", "marker", "cup", "remote_control"),
)
ACTIONS = (
    *("swipe left", "swipe right", "wave", "clap", "throw", "arm cross", "basketball shoot", "draw x"),
    *("draw circle clockwise", "draw circle counter clockwise", "draw triangle", "bowling", "boxing", "baseball swing"),
    *("tennis swing", "arm curl", "tennis serve", "push", "knock", "catch", "pickup and throw", "jog", "walk"),
    *("sit to stand", "stand to sit", "lunge", "squat"),
)
ARM, LEG = ("shoulder", "elbow", "wrist", "hand"), ("upper leg", "knee", "ankle", "foot")
JOINTS = (
    *("head", "neck", "spine", "hip"),
    *(f"{side} {part}" for limb in (ARM, LEG) for side in ("left", "right") for part in limb),
)
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


def _dataset(source: Source, X: Array, y: Array, clients: Array, **more: Any) -> FederatedDataset:
    about = {"provenance": source.provenance, "licence": source.licence, "citation": source.citation}
    return FederatedDataset(
        X=X, y=y.astype(np.int64), clients=clients.astype(str), **{"name": source.name} | about | more
    )


def _assigned(source: Source, X: Array, y: Array, deal: tuple[int, float, int], **more: Any) -> FederatedDataset:
    """Rows without a client, assigned to clients class by class."""
    n_clients, concentration, seed = deal
    clients = label_skew(y, n_clients, concentration=concentration, random_state=seed)
    return _dataset(source, X, y, clients, name=f"{source.name}-skew{concentration:g}-seed{seed}", **more)


def _numbered(word: str, n: int) -> tuple[str, ...]:
    return tuple(f"{word}{i + 1}" for i in range(n))


def _pixels(side: int, channels: Iterable[str] = ("",)) -> tuple[str, ...]:
    """Column names of a square image, row by row."""
    return tuple(f"pixel {i},{j}{c}" for i in range(side) for j in range(side) for c in channels)


def _read_digits(
    source: Source, folder: Path, *, n_clients: int = 8, concentration: float = 10.0, seed: int = 0
) -> FederatedDataset:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    names = {"feature_names": _pixels(8), "class_names": tuple("0123456789")}
    return _assigned(source, X / 16, y, (n_clients, concentration, seed), **names)


def _read_yale(source: Source, folder: Path, *, size: int = 32) -> FederatedDataset:
    if size not in (32, 64):
        raise DatasetError(f"yale has images of size 32 and 64, got size={size!r}")
    X, y, clients = stored_arrays(source, folder, "client")
    name = source.name
    if size == 64:
        X, name = stored_arrays(source, folder, "X64")[2], f"{source.name}-64"
    more = {"feature_names": _pixels(size), "class_names": _numbered("person", 15), "recipe": "standardize"}
    return _dataset(source, X / 255, y, clients, name=name, **more)


def _read_orl(
    source: Source, folder: Path, *, n_clients: int = 3, concentration: float = 5.0, seed: int = 0
) -> FederatedDataset:
    return _read_faces(source, folder, 40, (n_clients, concentration, seed))


def _read_yaleb(
    source: Source, folder: Path, *, n_clients: int = 4, concentration: float = 5.0, seed: int = 0
) -> FederatedDataset:
    return _read_faces(source, folder, 38, (n_clients, concentration, seed))


def _read_faces(source: Source, folder: Path, n_persons: int, deal: tuple[int, float, int]) -> FederatedDataset:
    X, y = stored_arrays(source, folder)
    more = {"feature_names": _pixels(32), "class_names": _numbered("person", n_persons), "recipe": "standardize"}
    return _assigned(source, X / 255, y, deal, **more)


def _read_coil20(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    names = {"feature_names": _pixels(32), "class_names": _numbered("object", N_THINGS)}
    return _dataset(source, X / 255, y - 1, clients, recipe="standardize", **names)


def _read_core50(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    names = {"feature_names": _pixels(32, (" red", " green", " blue")), "class_names": CATEGORIES}
    return _dataset(source, X / np.float32(255), y, clients, recipe="standardize", **names)  # half the memory


def _read_keck(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    cells = [f"cell {i},{j}" for i in range(CELLS) for j in range(CELLS)]
    columns = [f"{what} {t + 1} {cell}" for what in ("motion", "shape") for t in range(MOMENTS) for cell in cells]
    names = {"feature_names": tuple(columns), "class_names": _numbered("gesture", N_GESTURES)}
    return _dataset(source, X.astype(np.float64), y, clients, **names)


def _read_utd_mhad(source: Source, folder: Path) -> FederatedDataset:
    X, y, clients = stored_arrays(source, folder, "client")
    columns = [f"moment {t + 1} {joint} {axis}" for t in range(MOMENTS) for joint in JOINTS for axis in "xyz"]
    return _dataset(source, X.astype(np.float64), y, clients, feature_names=tuple(columns), class_names=ACTIONS)


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


def _convert_core50(archives: tuple[Path, ...], folder: Path) -> None:
    """core50_128x128.zip: every 20th frame, reduced to 32 x 32 by means of 4 x 4 pixels, one after the other."""
    path = only_archive(archives, "core50_128x128.zip")
    image = _extra("PIL.Image")
    frame = re.compile(r"(?:^|/)s(\d+)/o(\d+)/C_\d+_\d+_(\d+)\.png$")

    def wanted(name: str) -> bool:
        found = frame.search(name)
        return found is not None and int(found[3]) % STRIDE == 0

    rows = []
    for name, content in members(path, wanted=wanted):
        session, thing, number = map(int, frame.search(name).groups())  # type: ignore[union-attr]
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
    picture = re.compile(r"(?:^|/)obj(\d+)__(\d+)\.png$")
    rows = {}
    for name, content in members(path, wanted=lambda name: picture.search(name) is not None):
        thing, pose = map(int, picture.search(name).groups())  # type: ignore[union-attr]
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
    trial = re.compile(r"(?:^|/)a(\d+)_s(\d+)_t(\d+)_skeleton\.mat$")
    rows = {}
    for name, content in members(path, wanted=lambda name: trial.search(name) is not None):
        action, person, repeat = map(int, trial.search(name).groups())  # type: ignore[union-attr]
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
    frames = _sequences(lists[0]) if lists else None
    video = re.compile(r"person ?(\d+)_gesture ?(\d+)[^/]*\.(?:avi|mp4|mpg|mpeg|mov|wmv)$", re.IGNORECASE)
    rows, n_videos = {}, 0
    for name, content in members(path, wanted=lambda name: video.search(name) is not None, limit=VIDEO_BYTES):
        person, gesture = map(int, video.search(name).groups()[:2])  # type: ignore[union-attr]
        if not 1 <= gesture <= N_GESTURES:
            raise DatasetError(f"{path.name} holds {name}, expected gestures 1 to {N_GESTURES}")
        n_videos += 1
        film = _film(content, f"{name} in {path.name}")
        part = "testing" if "test" in name.lower() else "training"
        if frames is not None and (part, person, gesture) not in frames:
            raise DatasetError(f"{lists[0].name} names no frames of person {person}, gesture {gesture}, {part}")
        for k, (first, last) in enumerate([(0, len(film))] if frames is None else frames[part, person, gesture]):
            rows[person, gesture, part, k + 1] = _motion_and_shape(film[first : last + 1], f"{name} in {path.name}")
    if not rows:
        raise DatasetError(f"{path.name} holds no video like training files/person1_gesture1_1.avi, so it is not Keck")
    expect_count("keck", n_videos, 98, "videos")
    keys = sorted(rows)
    np.savez_compressed(
        folder / "keck.npz",
        X=np.stack([rows[key] for key in keys]).astype(np.float32),
        y=np.array([gesture - 1 for _, gesture, _, _ in keys]),
        client=np.array([f"person{person}" for person, _, _, _ in keys]),
        part=np.array([part for _, _, part, _ in keys]),
        repetition=np.array([k for _, _, _, k in keys]),
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

_CAI = "http://www.cad.zju.edu.cn/home/dengcai/Data"
_ASSIGNED = (
    "Images have no client: those of each person are assigned in Dirichlet proportions, with the seed in the name."
)
_ASSIGNMENT = {
    "n_clients": "number of clients that the rows are assigned to",
    "concentration": "of the Dirichlet proportions: large is even, small is skewed",
    "seed": "of the assignment",
}
_FACES_LICENCE = "Free for research; cite the source."
_CORE50 = Source(
    name="core50",
    title="CORe50, every 20th frame",
    folder="core50",
    files=("core50.npz",),
    modality="images",
    clients="recording session: place and light",
    classes="10 kinds of hand-held objects",
    homepage="https://vlomonaco.github.io/core50/",
    licence="Creative Commons Attribution 4.0 (CC BY 4.0).",
    citation=(
        "V. Lomonaco and D. Maltoni. CORe50: a new dataset and benchmark for continuous object recognition. "
        "Proceedings of the 1st Annual Conference on Robot Learning, PMLR 78:17-26, 2017."
    ),
    provenance=(
        "Every 20th frame (number 0, 20, ...) of each video of 50 objects in 11 sessions, reduced from 128 x 128 to "
        "32 x 32 colour pixels by means and divided by 255: about 8,250 of 164,866 images. The download has about "
        "6 GB. The archive was not available: the converter is tested on its layout only, and none of our results "
        "uses it."
    ),
    read=_read_core50,
    convert=_convert_core50,
    archives=(Archive("http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip"),),
)

SOURCES: tuple[Source, ...] = (
    Source(
        name="yale",
        title="Yale faces",
        folder="yale",
        files=("yale.npz",),
        modality="images",
        clients="lighting, expression or neutral image (our grouping of the 11 conditions)",
        classes="15 persons",
        homepage="http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html",
        licence=_FACES_LICENCE,
        citation=(
            "P. N. Belhumeur, J. P. Hespanha and D. J. Kriegman. Eigenfaces vs. Fisherfaces: recognition using class "
            "specific linear projection. IEEE Transactions on Pattern Analysis and Machine Intelligence 19(7):711-720, "
            "1997."
        ),
        provenance=(
            "Grey images of 15 persons in 11 conditions, in the aligned crops of Deng Cai, divided by 255. The paper "
            "names no clients; ours group the conditions: lighting (3 images of each person), expression (5), "
            "neutral (3)."
        ),
        read=_read_yale,
        convert=_convert_yale,
        archives=(Archive(f"{_CAI}/Yale/Yale_32x32.mat"), Archive(f"{_CAI}/Yale/Yale_64x64.mat")),
        options={"size": "32 or 64, the width of the images in pixels"},
    ),
    _CORE50,
    replace(
        _CORE50,
        name="core50_sample",
        title="CORe50, a sample of 100 images: too small for results",
        folder="core50_sample",
        files=("core50_sample.npz",),
        provenance=(
            "A sample of 100 of the 164,866 images of CORe50, to show the format: about ten from each of ten sessions, "
            "reduced to 32 x 32 colour pixels and divided by 255. Far too small for results; none of our results uses "
            "it."
        ),
        convert=None,
        archives=(),
    ),
    Source(
        name="keck",
        title="Keck gestures",
        folder="keck",
        files=("keck.npz",),
        modality="movements",
        clients="person",
        classes="14 military hand signals",
        homepage="http://www.zhuolin.umiacs.io/Keckgesturedataset.html",
        licence="No licence text is known to us; see the home page before any use.",
        citation=(
            "Z. Jiang, Z. Lin and L. S. Davis. Recognizing human actions by learning and matching shape-motion "
            "prototype trees. IEEE Transactions on Pattern Analysis and Machine Intelligence 34(3):533-547, 2012."
        ),
        provenance=(
            "42 training videos (3 persons, static camera) and 56 test videos (4 persons, moving camera), both used; "
            "one row for each repetition of a gesture that sequences.txt lists. Features are ours: change between "
            "consecutive frames and difference from the median frame, in 8 x 8 cells of the image and 16 intervals of "
            "time. The archive was not available: its layout is taken from public code that reads it, and none of our "
            "results uses it."
        ),
        read=_read_keck,
        convert=_convert_keck,
        archives=(
            Archive("http://www.zhuolin.umiacs.io/PrototypeTree/Keck_Dataset.zip"),
            Archive("http://www.zhuolin.umiacs.io/PrototypeTree/sequences.txt"),
        ),
    ),
    Source(
        name="orl",
        title="ORL faces",
        folder="orl",
        files=("orl.npz",),
        modality="images",
        clients="assigned at random (label skew)",
        classes="40 persons",
        homepage="https://cam-orl.co.uk/facedatabase.html",
        licence=_FACES_LICENCE,
        citation=(
            "F. S. Samaria and A. C. Harter. Parameterisation of a stochastic model for human face identification. "
            "Proceedings of the 2nd IEEE Workshop on Applications of Computer Vision, 138-142, 1994."
        ),
        provenance=(
            f"Ten grey images of each of 40 persons, in the 32 x 32 crops of Deng Cai, divided by 255. {_ASSIGNED}"
        ),
        read=_read_orl,
        convert=_convert_orl,
        archives=(Archive(f"{_CAI}/ORL/ORL_32x32.mat"),),
        options=_ASSIGNMENT,
    ),
    Source(
        name="yaleb",
        title="Extended Yale B faces",
        folder="yaleb",
        files=("yaleb.npz",),
        modality="images",
        clients="assigned at random (label skew)",
        classes="38 persons",
        homepage="http://vision.ucsd.edu/~leekc/ExtYaleDatabase/ExtYaleB.html",
        licence=_FACES_LICENCE,
        citation=(
            "K.-C. Lee, J. Ho and D. J. Kriegman. Acquiring linear subspaces for face recognition under variable "
            "lighting. IEEE Transactions on Pattern Analysis and Machine Intelligence 27(5):684-698, 2005."
        ),
        provenance=(
            "59 to 64 frontal grey images of each of 38 persons in different light, in the 32 x 32 crops of Deng Cai, "
            f"divided by 255. {_ASSIGNED}"
        ),
        read=_read_yaleb,
        convert=_convert_yaleb,
        archives=(Archive(f"{_CAI}/YaleB/YaleB_32x32.mat"),),
        options=_ASSIGNMENT,
    ),
    Source(
        name="coil20",
        title="COIL-20 objects on a turntable",
        folder="coil20",
        files=("coil20.npz",),
        modality="images",
        clients="sector of the camera: view000 (0 to 85 degrees), view090, view180, view270 (our cut)",
        classes="20 objects",
        homepage="https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
        licence=_FACES_LICENCE,
        citation=(
            "S. A. Nene, S. K. Nayar and H. Murase. Columbia Object Image Library (COIL-20). Technical report "
            "CUCS-005-96, Columbia University, 1996."
        ),
        provenance=(
            "A grey image every 5 degrees of each of 20 objects, reduced from 128 x 128 to 32 x 32 pixels and divided "
            "by 255. Clients are our cut of the turn into four sectors, 18 images of each object in each."
        ),
        read=_read_coil20,
        convert=_convert_coil20,
        archives=(
            Archive("https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/coil-20-proc.zip"),
        ),
    ),
    Source(
        name="utd_mhad",
        title="UTD-MHAD skeletons",
        folder="utd_mhad",
        files=("skeleton.npz",),
        modality="movements",
        clients="person",
        classes="27 actions",
        homepage="https://personal.utdallas.edu/~kehtar/UTD-MHAD.html",
        licence=_FACES_LICENCE,
        citation=(
            "C. Chen, R. Jafari and N. Kehtarnavaz. UTD-MHAD: a multimodal dataset for human action recognition "
            "utilizing a depth camera and a wearable inertial sensor. IEEE International Conference on Image "
            "Processing, 168-172, 2015."
        ),
        provenance=(
            "Kinect skeletons of 8 persons who did each action four times (three in three cases): 20 joints x 3 "
            "coordinates relative to the hip, in units of the median distance of the joint farthest from it, at 16 "
            "equidistant times. Similar in kind to the Keck gestures, but not the same data."
        ),
        read=_read_utd_mhad,
        convert=_convert_utd_mhad,
        archives=(Archive("https://personal.utdallas.edu/~kehtar/UTD-MAD/Skeleton.zip"),),
    ),
    Source(
        name="digits",
        title="Handwritten digits of scikit-learn",
        folder="digits",
        files=(),
        modality="images",
        clients="assigned at random (label skew)",
        classes="10 digits",
        homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        licence="Creative Commons Attribution 4.0 (CC BY 4.0).",
        citation=(
            "E. Alpaydin and C. Kaynak. Optical recognition of handwritten digits. UCI Machine Learning Repository, "
            "1998. doi:10.24432/C50P49."
        ),
        provenance=(
            "The 1,797 images of 8 x 8 pixels that come with scikit-learn, divided by 16. The writer of each is not "
            "known: the images of each digit are assigned in Dirichlet proportions, with the seed in the name."
        ),
        read=_read_digits,
        options=_ASSIGNMENT,
    ),
)
