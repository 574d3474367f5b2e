"""Tables as federations: hospitals, times of collection, seasons, batches, phone users, speakers, laboratories."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.errors import DatasetError, InputError
from fmtc.schema import Column, Schema

from .base import Archive, FederatedDataset, Source
from .download import expect_count, members, only_archive
from .images import stored_arrays

Array = np.ndarray
Codes = Mapping[float | str, int]  # what stands in the file for each level of a category

MISSING = ("?", "NA", "")


# ------------------------------------------------------------------------------------------------- what the columns are


def _category(name: str, **levels: float) -> tuple[Column, Codes]:
    """A category and the code of each level in the file; an underscore in a level stands for a blank."""
    words = tuple(level.replace("_", " ") for level in levels)
    return Column(name, "category", words), {code: k for k, code in enumerate(levels.values())}


def _number(name: str, unit: str = "", lower: float | None = None, upper: float | None = None) -> tuple[Column, Codes]:
    return Column(name, unit=unit, lower=lower, upper=upper), {}


HOSPITALS = {  # rows with num = 0, 1, 2, 3, 4
    "cleveland": (164, 55, 36, 35, 13),
    "hungarian": (188, 106, 0, 0, 0),
    "switzerland": (8, 48, 32, 30, 5),
    "va": (51, 56, 41, 42, 10),
}
HEART = dict(
    (
        _number("age", "years"),
        _category("sex", female=0, male=1),
        _category("cp", typical_angina=1, atypical_angina=2, **{"non-anginal_pain": 3}, asymptomatic=4),
        _number("trestbps", "mm Hg", lower=1),
        _number("chol", "mg/dl", lower=1),
        _category("fbs", **{"at_most_120_mg/dl": 0, "above_120_mg/dl": 1}),
        _category("restecg", normal=0, **{"ST-T_abnormality": 1}, left_ventricular_hypertrophy=2),
        _number("thalach", "beats/min", lower=1),
        _category("exang", no=0, yes=1),
        _number("oldpeak", "mm"),
        _category("slope", upsloping=1, flat=2, downsloping=3),
        _number("ca", "vessels", lower=0, upper=3),
        _category("thal", normal=3, fixed_defect=6, reversible_defect=7),
    )
)
HEART_BYTES = {  # size and SHA-256 of each official file
    "cleveland": (18461, "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8"),
    "hungarian": (10263, "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796"),
    "switzerland": (4109, "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314"),
    "va": (6737, "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
}

GRADES = (
    *("clump_thickness", "cell_size_uniformity", "cell_shape_uniformity", "marginal_adhesion", "epithelial_cell_size"),
    *("bare_nuclei", "bland_chromatin", "normal_nucleoli", "mitoses"),
)
COLLECTED = {
    "group1": 367,
    "group2": 70,
    "group3": 31,
    "group4": 17,
    "group5": 48,
    "group6": 49,
    "group7": 31,
    "group8": 86,
}
DIAGNOSES = {"2": "benign", "4": "malignant"}

SPECIES = ("adelie", "chinstrap", "gentoo")
ISLANDS = ("Biscoe", "Dream", "Torgersen")
PENGUINS: dict[
    str, tuple[tuple[Column, Codes], str]
] = {  # column of the compact form: what it holds, and its name in the official file
    "island": ((Column("island", "category", ISLANDS), {name: k for k, name in enumerate(ISLANDS)}), "Island"),
    "culmen_length_mm": (_number("culmen_length", "mm"), "Culmen Length (mm)"),
    "culmen_depth_mm": (_number("culmen_depth", "mm"), "Culmen Depth (mm)"),
    "flipper_length_mm": (_number("flipper_length", "mm"), "Flipper Length (mm)"),
    "body_mass_g": (_number("body_mass", "g"), "Body Mass (g)"),
    "sex": ((Column("sex", "category", ("female", "male")), {"female": 0, "male": 1}), "Sex"),
    "delta_15_n": (_number("delta_15_n", "per mille"), "Delta 15 N (o/oo)"),
    "delta_13_c": (_number("delta_13_c", "per mille"), "Delta 13 C (o/oo)"),
}

GASES = ("ethanol", "ethylene", "ammonia", "acetaldehyde", "acetone", "toluene")  # 1, 2, ... in the official files
BATCHES = 10
SENSORS = tuple(
    f"s{sensor}_{feature}"
    for sensor in range(1, 17)
    for feature in ("DR", "absDR", *(f"EMA{way}{a}" for way in "id" for a in ("0.001", "0.01", "0.1")))
)

AXES = "XYZ"
MOVES = (
    *(f"{axis}{i}" for axis in AXES for i in range(10)),
    *(f"{axis}{what}" for what in ("AVG", "PEAK", "ABSOLDEV", "STANDDEV") for axis in AXES),
    "RESULTANT",
)

SPEAKERS = {"b": "boys", "g": "girls", "m": "men", "w": "women"}
VOWELS = {  # X-SAMPA, a word with it, and the code of the official file
    "3'": ("heard", "er"),
    "A": ("hod", "ah"),
    "E": ("head", "eh"),
    "I": ("hid", "ih"),
    "O": ("hawed", "aw"),
    "U": ("hood", "oo"),
    "V": ("hud", "uh"),
    "e": ("hayed", "ei"),
    "i": ("heed", "iy"),
    "o": ("hoed", "oa"),
    "u": ("who'd", "uw"),
    "{": ("had", "ae"),
}
PITCHES = ("f0", "f1", "f2", "f3")


# -------------------------------------------------------------------------------------------- reading the compact form


def _records(path: Path, width: int) -> list[list[str]]:
    """Fields of each line of a comma-separated file; the line of ``records[i]`` is i + 1."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read ({error}); fetch or import it again") from None
    return _fields(text, width, str(path))


def _fields(text: str, width: int, where: str) -> list[list[str]]:
    records = [[field.strip() for field in row] for row in csv.reader(io.StringIO(text)) if row]
    for number, row in enumerate(records, 1):
        if len(row) != width:
            raise DatasetError(f"{where}, line {number}, has {len(row)} fields, expected {width}; get the file again")
    if not records:
        raise DatasetError(f"{where} is empty; get the file again")
    return records


def _matrix(records: Sequence[Sequence[str]], columns: Mapping[Column, Codes], path: Path, first: int = 1) -> Array:
    """Numbers and codes of levels, NaN for what is missing or outside the bounds; `first` is the line of the first."""
    X = np.full((len(records), len(columns)), np.nan)
    for j, (column, codes) in enumerate(columns.items()):
        for i, record in enumerate(records):
            cell = record[j]
            if cell in MISSING:
                continue
            try:
                value: float | str = float(cell)
            except ValueError:
                value = cell
            known = codes.get(value) if codes else value
            if known is None or isinstance(known, str):
                expected = f"one of {', '.join(map(str, codes))}" if codes else "a number"
                raise DatasetError(
                    f"{path}, line {first + i}: {column.name} is {cell!r}, expected {expected} or {MISSING[0]!r}; "
                    "get the file again"
                )
            X[i, j] = known
        lower, upper = (
            (-np.inf if column.lower is None else column.lower),
            (np.inf if column.upper is None else column.upper),
        )
        X[(X[:, j] < lower) | (X[:, j] > upper), j] = np.nan
    return X


def _dataset(
    source: Source, X: Array, y: Array, clients: Any, columns: Iterable[Column], class_names: Sequence[str], **more: Any
) -> FederatedDataset:
    schema = Schema(tuple(columns))
    about = {"provenance": source.provenance, "licence": source.licence, "citation": source.citation}
    return FederatedDataset(
        X=X,
        y=np.asarray(y, dtype=np.int64),
        clients=np.asarray(clients, dtype=str),
        feature_names=schema.names,
        class_names=tuple(class_names),
        schema=schema,
        **{"name": source.name, "recipe": "standardize"} | about | more,
    )


def _classes(labels: Iterable[str], names: Sequence[str], where: Path) -> Array:
    """Number of each class; `DatasetError` for one that is not known."""
    numbers = {name: k for k, name in enumerate(names)}
    try:
        return np.array([numbers[label] for label in labels], dtype=np.int64)
    except KeyError as error:
        raise DatasetError(f"{where} has a row of class {error}, expected {', '.join(names)}; get it again") from None


def _read_heart(source: Source, folder: Path, *, grades: bool = False) -> FederatedDataset:
    parts, num, clients = [], [], []
    for hospital in HOSPITALS:
        path = folder / f"processed.{hospital}.data"
        records = _records(path, len(HEART) + 1)
        parts.append(_matrix(records, HEART, path))
        num.append(_classes((record[-1] for record in records), "01234", path))
        clients += [hospital] * len(records)
    y, names = np.concatenate(num), tuple(f"num {k}" for k in range(5))
    if not grades:
        y, names = (y > 0).astype(np.int64), ("healthy", "diseased")
    name = source.name + "-grades" * grades
    return _dataset(source, np.concatenate(parts), y, clients, HEART, names, name=name)


def _headed(path: Path, header: Sequence[str]) -> list[list[str]]:
    """Lines after the header."""
    records = _records(path, len(header))
    if records[0] != list(header):
        raise DatasetError(f"{path} has the columns {', '.join(records[0])}, expected {', '.join(header)}")
    return records[1:]


def _read_breast(source: Source, folder: Path) -> FederatedDataset:
    path = folder / source.files[0]
    records = _headed(path, ("client", "id", *GRADES, "label"))
    columns = dict(_number(name, "grade", 1, 10) for name in GRADES)
    X = _matrix([record[2:-1] for record in records], columns, path, first=2)
    y = _classes((record[-1] for record in records), tuple(DIAGNOSES.values()), path)
    return _dataset(source, X, y, [record[0] for record in records], columns, tuple(DIAGNOSES.values()))


def _read_penguins(source: Source, folder: Path, *, island: bool = False) -> FederatedDataset:
    path = folder / source.files[0]
    records = _headed(path, ("client", *PENGUINS, "label"))
    columns = dict(column for column, _ in PENGUINS.values())
    X = _matrix([record[1:-1] for record in records], columns, path, first=2)
    y = _classes((record[-1] for record in records), SPECIES, path)
    kept = [j for j, column in enumerate(columns) if island or column.name != "island"]
    columns_kept = [list(columns)[j] for j in kept]
    name = source.name + "-island" * island
    return _dataset(source, X[:, kept], y, [record[0] for record in records], columns_kept, SPECIES, name=name)


def _stored(source: Source, folder: Path) -> tuple[Array, Array, Array, list[str]]:
    """Rows, names of classes, clients and names of columns of an .npz file that fit together."""
    X, y, clients, names = stored_arrays(source, folder, "client", "feature_names", labels="U")
    if names.shape != X.shape[1:] or len({len(X), len(y), len(clients)}) > 1 or clients.ndim != 1:
        raise DatasetError(
            f"{folder / source.files[0]} is damaged: {X.shape} rows, {y.shape} classes, {clients.shape} clients and "
            f"{names.shape} names of columns do not fit together; get it again"
        )
    return X.astype(np.float64), y, clients, [str(name) for name in names]


def _read_gas(source: Source, folder: Path) -> FederatedDataset:
    X, labels, clients, names = _stored(source, folder)
    missing = [str(k) for k in range(1, BATCHES + 1) if f"batch{k}" not in set(clients.tolist())]
    note = f" Missing from this copy: batch {' and '.join(missing)}." if missing else ""
    classes = tuple(sorted(GASES))
    y = _classes(labels.tolist(), classes, folder / source.files[0])
    columns = (Column(name) for name in names)
    return _dataset(source, X, y, clients, columns, classes, provenance=source.provenance + note)


def _read_wisdm(source: Source, folder: Path, *, min_classes: int = 2) -> FederatedDataset:
    if not 1 <= min_classes <= 6:
        raise InputError(f"min_classes must be from 1 to 6, got {min_classes!r}")
    X, labels, clients, names = _stored(source, folder)
    classes, y = np.unique(labels, return_inverse=True)
    enough = [cid for cid in np.unique(clients) if len(set(y[clients == cid].tolist())) >= min_classes]
    rows = np.isin(clients, enough)
    columns = (Column(name, unit=_move_unit(name)) for name in names)
    mark = "" if min_classes == 2 else f"-min{min_classes}"
    return _dataset(source, X[rows], y[rows], clients[rows], columns, classes.tolist(), name=source.name + mark)


def _move_unit(name: str) -> str:
    if re.fullmatch(r"[XYZ]\d", name):
        return "share of samples"
    return "ms" if name.endswith("PEAK") else "m/s2"


def _read_vowels(source: Source, folder: Path, *, log: bool = True) -> FederatedDataset:
    X, labels, clients, names = _stored(source, folder)
    columns = [Column("duration", unit="ms") if name == "dur" else Column(name, unit="Hz") for name in names]
    if log:
        for j in (j for j, name in enumerate(names) if name in PITCHES):
            X[:, j] = np.log(X[:, j])
            columns[j] = Column(f"log {names[j]}", unit="log Hz")
    classes = tuple(VOWELS)
    y = _classes(labels.tolist(), classes, folder / source.files[0])
    words = [f"{sound} ({word})" for sound, (word, _) in VOWELS.items()]
    return _dataset(source, X, y, clients, columns, words, name=source.name + ("" if log else "-hz"))


def _read_pancreas(source: Source, folder: Path) -> FederatedDataset:
    X, labels, clients, names = _stored(source, folder)
    classes, y = np.unique(labels, return_inverse=True)
    columns = (Column(name, unit="log expression") for name in names)
    return _dataset(source, X, y, clients, columns, classes.tolist(), recipe="none")


# --------------------------------------------------------------------------------------------- the official archives


def _contents(archives: Sequence[Path], pattern: str, what: str) -> Iterator[tuple[re.Match[str], bytes]]:
    """Files whose names match, given as they are or in .zip or .tar.gz archives; an error if there is none."""
    found = False
    for path in archives:
        match = re.fullmatch(pattern, path.name)
        if match:
            found = True
            yield match, path.read_bytes()
            continue
        if path.suffix not in (".zip", ".gz", ".tgz", ".tar"):
            raise DatasetError(f"{path.name} is not {what}")
        for name, content in members(path, wanted=lambda name: bool(re.fullmatch(pattern, name.rpartition("/")[2]))):
            match = re.fullmatch(pattern, name.rpartition("/")[2])
            if match:
                found = True
                yield match, content
    if not found:
        raise DatasetError(f"{', '.join(path.name for path in archives)} holds no file like {what}")


def _single(archives: Sequence[Path], name: str) -> bytes:
    """The one file of this name, given as it is or in an archive."""
    found = [content for _, content in _contents(archives, re.escape(name), name)]
    if len(found) > 1:
        raise DatasetError(f"one file {name} is needed, got {len(found)}")
    return found[0]


def _plain_text(content: bytes) -> str:
    return content.decode("latin-1").replace("\r\n", "\n")


def _convert_heart(archives: tuple[Path, ...], folder: Path) -> None:
    """The four files processed.HOSPITAL.data, or an archive with them."""
    pattern = rf"processed\.({'|'.join(HOSPITALS)})\.data"
    altered = []
    for match, content in _contents(archives, pattern, "processed.cleveland.data"):
        text = content.replace(b"\r\n", b"\n")
        _fields(_plain_text(text), len(HEART) + 1, match[0])
        if sha256(text).hexdigest() != HEART_BYTES[match[1]][1]:
            altered.append(match[0])
        (folder / match[0]).write_bytes(text)
    if altered:
        warnings.warn(
            f"heart_disease: not the official content: {', '.join(altered)}; some copies have 0 for missing cells",
            stacklevel=2,
        )


def _csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    path.write_text("".join(",".join(row) + "\n" for row in (header, *rows)), encoding="utf-8", newline="\n")


def _convert_breast(archives: tuple[Path, ...], folder: Path) -> None:
    """breast-cancer-wisconsin.data, or an archive with it; the order of the rows gives the time of collection."""
    content = _single(archives, "breast-cancer-wisconsin.data")
    records = _fields(_plain_text(content), len(GRADES) + 2, "breast-cancer-wisconsin.data")
    if len(records) != sum(COLLECTED.values()):
        raise DatasetError(
            f"breast-cancer-wisconsin.data has {len(records)} rows, expected {sum(COLLECTED.values())}: the place of a "
            "row says when it was collected"
        )
    odd = sorted({record[-1] for record in records} - set(DIAGNOSES))
    if odd:
        raise DatasetError(f"breast-cancer-wisconsin.data has the class {odd[0]!r}, expected 2 or 4")
    groups = np.repeat(list(COLLECTED), list(COLLECTED.values())).tolist()
    rows = [[group, *record[:-1], DIAGNOSES[record[-1]]] for group, record in zip(groups, records, strict=True)]
    _csv(folder / "breast_wisconsin.csv", ("client", "id", *GRADES, "label"), rows)


def _convert_penguins(archives: tuple[Path, ...], folder: Path) -> None:
    """penguins_raw.csv of the R package palmerpenguins."""
    content = _single(archives, "penguins_raw.csv")
    table = csv.DictReader(io.StringIO(content.decode("utf-8", errors="replace")))
    wanted = ["studyName", "Species", *(name for _, name in PENGUINS.values())]
    missing = [name for name in wanted if name not in (table.fieldnames or ())]
    if missing:
        raise DatasetError(f"penguins_raw.csv lacks the column {missing[0]!r}")
    rows = []
    for record in table:
        season = re.fullmatch(r"PAL(\d\d)\d\d", record["studyName"] or "")
        if season is None:
            raise DatasetError(f"penguins_raw.csv has the study {record['studyName']!r}, expected one like PAL0708")
        cells = []
        for (column, codes), name in PENGUINS.values():
            cell = record[name] or "NA"
            cells.append(cell if cell == "NA" else _penguin(cell, column, codes))
        rows.append([f"year20{season[1]}", *cells, (record["Species"] or "").partition(" ")[0].lower()])
    expect_count("penguins", len(rows), 344, "birds")
    _csv(folder / "penguins.csv", ("client", *PENGUINS, "label"), rows)


def _penguin(cell: str, column: Column, codes: Codes) -> str:
    if not codes:
        try:
            return str(float(cell))
        except ValueError:
            raise DatasetError(f"penguins_raw.csv has {cell!r} for {column.name}, expected a number or NA") from None
    if column.name == "sex":
        cell = cell.lower()
    return cell if cell in codes else "NA"  # one bird has "." for its sex


def _convert_gas(archives: tuple[Path, ...], folder: Path) -> None:
    """batch1.dat to batch10.dat, or the archive with them: lines like ``1;10.000000 1:15596.162100 2:1.868245 ...``."""
    batches: dict[int, tuple[Array, list[str], list[float]]] = {}
    codes = {str(k): gas for k, gas in enumerate(GASES, 1)}
    numbered = tuple(str(j) for j in range(1, len(SENSORS) + 1))
    for match, content in _contents(archives, r"batch(\d+)\.dat", "batch1.dat"):
        rows, labels, amounts = [], [], []
        for number, line in enumerate(_plain_text(content).splitlines(), 1):
            head, *cells = line.split() or [""]
            gas, _, amount = head.partition(";")
            places, _, values = zip(*(cell.partition(":") for cell in cells), strict=True) if cells else ((), (), ())
            try:
                if places != numbered or gas not in codes:
                    raise ValueError
                rows.append([float(value) for value in values])
                amounts.append(float(amount))
            except ValueError:
                raise DatasetError(
                    f"{match[0]}, line {number}, is not a gas from 1 to 6, its concentration and {len(SENSORS)} "
                    "numbered values: '1;10.000000 1:15596.162100 2:1.868245 ...'"
                ) from None
            labels.append(codes[gas])
        batches[int(match[1])] = np.array(rows, dtype=np.float32), labels, amounts
    order = sorted(batches)
    expect_count("gas_drift", sum(len(batches[k][0]) for k in order), 13910, "rows")
    np.savez_compressed(
        folder / "gas_drift.npz",
        X=np.concatenate([batches[k][0] for k in order]),
        y=np.array([label for k in order for label in batches[k][1]]),
        client=np.array([f"batch{k}" for k in order for _ in batches[k][1]]),
        concentration=np.array([amount for k in order for amount in batches[k][2]], dtype=np.float32),
        feature_names=np.array(SENSORS),
    )


def _convert_wisdm(archives: tuple[Path, ...], folder: Path) -> None:
    """WISDM_ar_latest.tar.gz: number, user, 43 features and activity in each line after ``@data`` of its .arff file."""
    name = "WISDM_ar_v1.1_transformed.arff"
    content = _single(archives, name)
    lines = re.split(r"^@data\b.*$", _plain_text(content), flags=re.IGNORECASE | re.MULTILINE)[-1]
    records = _fields(re.sub(r"^(%.*|\s*)\n", "", lines, flags=re.MULTILINE), len(MOVES) + 3, f"{name} after @data")
    X = _matrix([record[2:-1] for record in records], {Column(move): {} for move in MOVES}, Path(name))
    expect_count("wisdm", len(records), 5418, "windows")
    users = [re.sub(r"\D", "", record[1]) for record in records]
    np.savez_compressed(
        folder / "wisdm.npz",
        X=X.astype(np.float32),
        y=np.array([record[-1].strip("\"' ") for record in records]),
        client=np.array([f"user{int(user or 0):02d}" for user in users]),
        feature_names=np.array(MOVES),
    )


def _convert_vowels(archives: tuple[Path, ...], folder: Path) -> None:
    """vowdata.dat: lines like ``m01ae  323 174 663 2012 2659 ...``; a frequency of 0 was not measurable."""
    path = only_archive(archives, "vowdata.dat")
    sounds = {code: sound for sound, (_, code) in VOWELS.items()}
    line = re.compile(rf"^([bgmw]\d\d)({'|'.join(sounds)})\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\b", re.MULTILINE)
    found = line.findall(_plain_text(path.read_bytes()))
    if not found:
        raise DatasetError(f"{path.name} has no line like 'm01ae  323 174 663 2012 2659'")
    expect_count("vowels_h95", len(found), 1668, "vowels")
    numbers = np.array([row[2:] for row in found], dtype=np.float32)
    speakers = list(dict.fromkeys(speaker for speaker, *_ in found))
    np.savez_compressed(
        folder / "vowels_h95.npz",
        X=np.where(numbers > 0, numbers, np.float32(np.nan)),
        y=np.array([sounds[row[1]] for row in found]),
        client=np.array([SPEAKERS[row[0][0]] for row in found]),
        speaker=np.array([speakers.index(row[0]) + 1 for row in found]),
        feature_names=np.array(["dur", *PITCHES]),
    )


# --------------------------------------------------------------------------------------------------- files of R


@dataclass(frozen=True)
class _Thing:
    """A value of R with its attributes."""

    value: Any
    attributes: Mapping[str, Any]


class _Workspace:
    """Reads what R's ``save`` writes in its portable binary form, version 2; enough for lists, texts and matrices."""

    NIL, REF, SYMBOL, PAIRS, TEXT, LOGICAL, INTEGER, REAL, TEXTS, VALUES, S4 = 254, 255, 1, 2, 9, 10, 13, 14, 16, 19, 25

    def __init__(self, content: bytes):
        if content[:7] != b"RDX2\nX\n":
            raise ValueError("it does not begin with RDX2")
        self.content, self.at = memoryview(content), 7 + 12  # after the versions of format and R
        self.symbols: list[str] = []

    def take(self, n: int) -> memoryview:
        if n < 0 or self.at + n > len(self.content):
            raise ValueError("it is truncated")
        self.at += n
        return self.content[self.at - n : self.at]

    def integer(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def count(self) -> int:
        n = self.integer()
        if not 0 <= n <= len(self.content) - self.at:  # each takes a byte or more
            raise ValueError("it is truncated")
        return n

    def read(self, depth: int = 0) -> Any:
        if depth > 50:
            raise ValueError("it is nested too deeply")
        flags = self.integer()
        kind, more = flags & 0xFF, depth + 1
        if kind == self.NIL:
            return None
        if kind == self.REF:
            return self.symbols[(flags >> 8 or self.integer()) - 1]
        if kind == self.SYMBOL:
            self.symbols.append(self.read(more))
            return self.symbols[-1]
        if kind == self.PAIRS:
            return self.pairs(flags, more)
        if kind == self.TEXT:
            n = self.integer()
            return None if n == -1 else bytes(self.take(n)).decode("utf-8")
        value: Any
        if kind == self.S4:
            value = None
        elif kind in (self.LOGICAL, self.INTEGER, self.REAL):
            width = 8 if kind == self.REAL else 4
            value = np.frombuffer(self.take(width * self.count()), f">{'f' if kind == self.REAL else 'i'}{width}")
        elif kind in (self.TEXTS, self.VALUES):
            value = [self.read(more) for _ in range(self.count())]
        else:
            raise ValueError(f"it holds something of kind {kind}, which is not expected")
        return _Thing(value, (self.read(more) or {}) if flags & 0x200 else {})

    def pairs(self, flags: int, depth: int) -> dict[str, Any]:
        """Names and values, up to the end of a linked list."""
        found: dict[str, Any] = {}
        while flags & 0xFF == self.PAIRS:
            if flags & 0x200:
                self.read(depth)
            name = self.read(depth) if flags & 0x400 else str(len(found))
            found[name] = self.read(depth)
            flags = self.integer()
        return found


def _unpacked(content: bytes) -> bytes:
    """Without the compression of R's ``save``: gzip, bzip2 or xz."""
    limit = 2**28
    readers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
    reader = readers.get(content[:2])
    unpacked = content if reader is None else reader(io.BytesIO(content)).read(limit)
    if len(unpacked) == limit:
        raise ValueError(f"it unpacks to {limit:,} bytes or more")
    return unpacked


def _dense(matrix: _Thing) -> tuple[Array, list[str]]:
    """A sparse matrix of R's package Matrix (genes x cells) as cells x genes, and the genes."""
    import scipy.sparse as sp

    parts = matrix.attributes
    i, p, x, shape = (parts[key].value for key in ("i", "p", "x", "Dim"))
    genes = [str(gene) for gene in parts["Dimnames"].value[0].value]
    n_genes, n_cells = map(int, shape)
    if n_genes != len(genes) or n_genes * n_cells > 2**27:
        raise ValueError(f"a matrix of {n_genes} x {n_cells} has {len(genes)} names")
    csc = sp.csc_array((x.astype(np.float64), i.astype(np.int32), p.astype(np.int32)), shape=(n_genes, n_cells))
    csc.check_format(full_check=True)
    return csc.toarray().T, genes


def _convert_pancreas(archives: tuple[Path, ...], folder: Path) -> None:
    """scClassify_example.rda: the genes that both laboratories have, in alphabetical order."""
    path = only_archive(archives, "scClassify_example.rda")
    try:
        example = _Workspace(_unpacked(path.read_bytes())).read()["scClassify_example"]
        things = dict(zip(example.attributes["names"].value, example.value, strict=True))
        tables, genes = [], []
        labels: list[str] = []
        clients: list[str] = []
        for laboratory in ("wang", "xin"):
            X, names = _dense(things[f"exprsMat_{laboratory}_subset"])
            kinds = things[f"{laboratory}_cellTypes"].value
            if len(kinds) != len(X):
                raise ValueError(f"{len(X)} cells of {laboratory} have {len(kinds)} kinds")
            tables.append(X)
            genes.append(names)
            labels += map(str, kinds)
            clients += [laboratory] * len(X)
    except Exception as error:  # a damaged file makes the reader fail in many ways
        raise DatasetError(
            f"{path.name} is not scClassify_example.rda of the R package scClassify, or damaged: {error}"
        ) from None
    shared = sorted(set(genes[0]) & set(genes[1]))
    if not shared:
        raise DatasetError(f"{path.name} has no gene that both laboratories measured")
    expect_count("pancreas", len(labels), 1175, "cells")
    picked = (X[:, [names.index(gene) for gene in shared]] for X, names in zip(tables, genes, strict=True))
    np.savez_compressed(
        folder / "pancreas.npz",
        X=np.concatenate(list(picked)).astype(np.float32),
        y=np.array(labels),
        client=np.array(clients),
        feature_names=np.array(shared),
    )


# -------------------------------------------------------------------------------------------------------- the sources

_UCI = "https://archive.ics.uci.edu"
_CC_BY = "Creative Commons Attribution 4.0 (CC BY 4.0)."
_RAW = "https://raw.githubusercontent.com"

SOURCES: tuple[Source, ...] = (
    Source(
        name="heart_disease",
        title="Heart disease, four hospitals",
        folder="heart_disease",
        files=tuple(f"processed.{hospital}.data" for hospital in HOSPITALS),
        modality="table",
        clients="hospital: Cleveland, Budapest (hungarian), Zurich and Basel (switzerland), Long Beach (va)",
        classes="healthy or diseased (with grades=True the five grades of num)",
        homepage=f"{_UCI}/dataset/45/heart+disease",
        licence=_CC_BY,
        citation=(
            "A. Janosi, W. Steinbrunn, M. Pfisterer and R. Detrano. Heart disease. UCI Machine Learning Repository, "
            "1989. doi:10.24432/C52P4X."
        ),
        provenance=(
            "920 patients with suspected coronary disease, the four processed files (13 columns, of which 7 are "
            "categories). The class is num > 0, a vessel narrowed by more than half; 36 % to 93 % of a hospital's "
            "patients. 1759 cells are missing in the files; columns that one hospital filled (ca, thal, slope, chol) "
            "are nearly empty in another. A blood pressure or cholesterol of 0 was not measured and counts as missing "
            "too: chol of all 123 patients in Switzerland and of 49 at va, trestbps of one."
        ),
        read=_read_heart,
        convert=_convert_heart,
        archives=tuple(
            Archive(f"{_UCI}/ml/machine-learning-databases/heart-disease/processed.{hospital}.data", size, digest)
            for hospital, (size, digest) in HEART_BYTES.items()
        ),
        options={"grades": "five classes, the grade num from 0 to 4, instead of two; by default off"},
    ),
    Source(
        name="breast_wisconsin",
        title="Breast cancer, Wisconsin (original)",
        folder="breast_wisconsin",
        files=("breast_wisconsin.csv",),
        modality="table",
        clients="time of collection, January 1989 to November 1991",
        classes="benign or malignant",
        homepage=f"{_UCI}/dataset/15/breast+cancer+wisconsin+original",
        licence=_CC_BY,
        citation=(
            "W. H. Wolberg and O. L. Mangasarian. Multisurface method of pattern separation for medical diagnosis "
            "applied to breast cytology. Proceedings of the National Academy of Sciences 87(23):9193-9196, 1990."
        ),
        provenance=(
            "699 samples with nine grades from 1 to 10; 16 cells of bare_nuclei are missing. Clients are the eight "
            "times of collection that the description of the set lists, in the order of the rows: one of 367 samples, "
            "the others of 17 to 86. The number of the sample is not a column: some patients occur several times."
        ),
        read=_read_breast,
        convert=_convert_breast,
        archives=(
            Archive(
                f"{_UCI}/ml/machine-learning-databases/breast-cancer-wisconsin/breast-cancer-wisconsin.data",
                size=19889,
                sha256="402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
            ),
        ),
    ),
    Source(
        name="penguins",
        title="Palmer penguins",
        folder="penguins",
        files=("penguins.csv",),
        modality="table",
        clients="season: 2007, 2008, 2009",
        classes="species: adelie, chinstrap, gentoo",
        homepage="https://allisonhorst.github.io/palmerpenguins/",
        licence="Creative Commons Zero (CC0 1.0).",
        citation=(
            "K. B. Gorman, T. D. Williams and W. R. Fraser. Ecological sexual dimorphism and environmental variability "
            "within a community of Antarctic penguins (genus Pygoscelis). PLoS ONE 9(3):e90081, 2014."
        ),
        provenance=(
            "344 birds: four body measures, two isotope ratios of the blood, and sex; 46 cells are missing. The island "
            "is omitted unless asked for: it nearly gives the species away (gentoos live on one, chinstraps on "
            "another)."
        ),
        read=_read_penguins,
        convert=_convert_penguins,
        archives=(
            Archive(
                f"{_RAW}/allisonhorst/palmerpenguins/8957207b78d6ccd1b4654a9dd9c9041b657478ab/inst/extdata/penguins_raw.csv",
                size=53098,
                sha256="144f623143c9360fd77322a4f86acb06dc198814dbd2669724c63e6457b907bd",
            ),
        ),
        options={"island": "keep the column island, which nearly gives the species away; by default omitted"},
    ),
    Source(
        name="gas_drift",
        title="Gas sensor array drift",
        folder="gas_drift",
        files=("gas_drift.npz",),
        modality="table",
        clients="batch of months, 2008 to 2011: the sensors age",
        classes="gas: acetaldehyde, acetone, ammonia, ethanol, ethylene, toluene",
        homepage=f"{_UCI}/dataset/270/gas+sensor+array+drift+dataset+at+different+concentrations",
        licence=_CC_BY,
        citation=(
            "A. Vergara, S. Vembu, T. Ayhan, M. A. Ryan, M. L. Homer and R. Huerta. Chemical gas sensor drift "
            "compensation using classifier ensembles. Sensors and Actuators B: Chemical 166-167:320-329, 2012."
        ),
        provenance=(
            "16 chemical sensors with 8 features each, six gases at different concentrations, ten batches over 36 "
            "months; toluene is rare or absent in five of them. Scales of the columns differ by a factor of 10,000. "
            "Our figures come from a copy without batches 7 and 10 (3613 and 3600 rows), 6697 rows in eight clients; "
            "the official archive has all ten, 13910 rows. The concentration is kept in the file but is not a column."
        ),
        read=_read_gas,
        convert=_convert_gas,
        archives=(
            Archive(
                f"{_UCI}/static/public/270/gas+sensor+array+drift+dataset+at+different+concentrations.zip",
                sha256="98fe3a30981a222dd4518fbcc3dddd45d5c0ce9b03ef6dc6fe5cf7a04cfbff5e",
            ),
        ),
    ),
    Source(
        name="wisdm",
        title="WISDM activity recognition 1.1, transformed",
        folder="wisdm",
        files=("wisdm.npz",),
        modality="table",
        clients="phone user",
        classes="activity: downstairs, jogging, sitting, standing, upstairs, walking",
        homepage="https://www.cis.fordham.edu/wisdm/dataset.php",
        licence="Free for research; cite the paper.",
        citation=(
            "J. R. Kwapisz, G. M. Weiss and S. A. Moore. Activity recognition using cell phone accelerometers. ACM "
            "SIGKDD Explorations Newsletter 12(2):74-82, 2010."
        ),
        provenance=(
            "5418 windows of ten seconds of a phone's accelerometer, 43 features, 36 users with 60 to 273 windows. "
            "Many users lack activities; the one who only walks is omitted by default, since there is nothing to "
            "cluster. 615 cells of XPEAK, YPEAK and ZPEAK are missing, and XAVG is 0 throughout, both as in the "
            "original."
        ),
        read=_read_wisdm,
        convert=_convert_wisdm,
        archives=(Archive("https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz"),),
        options={"min_classes": "omit users with fewer activities, 2 by default; 1 keeps all 36"},
    ),
    Source(
        name="vowels_h95",
        title="American English vowels (Hillenbrand 1995)",
        folder="vowels_h95",
        files=("vowels_h95.npz",),
        modality="table",
        clients="kind of speaker: boys, girls, men, women",
        classes="12 vowels",
        homepage="https://homepages.wmich.edu/~hillenbr/voweldata.html",
        licence="Copyright 1995 James Hillenbrand; free for research, without a licence text.",
        citation=(
            "J. Hillenbrand, L. A. Getty, M. J. Clark and K. Wheeler. Acoustic characteristics of American English "
            "vowels. Journal of the Acoustical Society of America 97(5):3099-3111, 1995."
        ),
        provenance=(
            "12 vowels by each of 139 speakers: duration, pitch f0 and formants f1 to f3 at the steady state. "
            "Logarithms of the four frequencies are taken unless asked otherwise: speakers differ by a factor. Our "
            "figures come from the copy of the R package phonTools, which has no missing cell; in the original file "
            "formants that could not be measured are 0, and become missing."
        ),
        read=_read_vowels,
        convert=_convert_vowels,
        archives=(Archive("http://homepages.wmich.edu/~hillenbr/voweldata/vowdata.dat"),),
        options={"log": "take logarithms of the four frequencies; by default on"},
    ),
    Source(
        name="pancreas",
        title="Human pancreas cells of two laboratories",
        folder="pancreas",
        files=("pancreas.npz",),
        modality="table",
        clients="laboratory: wang (GSE83139), xin (GSE81608)",
        classes="kind of cell: acinar, alpha, beta, delta, ductal, gamma, stellate",
        homepage="https://bioconductor.org/packages/scClassify/",
        licence="The experiments are public in GEO; the R package scClassify, where the tables come from, has GPL-3.",
        citation=(
            "Y. J. Wang et al. Single-cell transcriptomics of the human endocrine pancreas. Diabetes 65(10):3028-3038, "
            "2016; Y. Xin et al. RNA sequencing of single human islet cells reveals type 2 diabetes genes. Cell "
            "Metabolism 24(4):608-615, 2016; Y. Lin et al. scClassify: sample size estimation and multiscale "
            "classification of cells. Molecular Systems Biology 16(6):e9389, 2020."
        ),
        provenance=(
            "Logarithms of the expression of the 219 genes that both tables have: 501 cells of seven kinds (wang) and "
            "674 of four of them (xin), so the clients have different classes. Columns are used as they are: they "
            "share one unit."
        ),
        read=_read_pancreas,
        convert=_convert_pancreas,
        archives=(
            Archive(
                f"{_RAW}/SydneyBioX/scClassify/74fe32784b401492da0fd203736f39bcd6f2a2c5/data/scClassify_example.rda",
                size=1594255,
                sha256="70c52cd4bde15527fffc369ab36fe7724eb15e261bad17982812a15899fcfe94",
            ),
        ),
    ),
)

__all__ = ["SOURCES"]
