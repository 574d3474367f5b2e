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
from typing import Any, ClassVar

import numpy as np

from fmtc.errors import DatasetError, InputError
from fmtc.schema import Column, Schema

from .base import Archive, FederatedDataset, Source
from .catalogue import facts, source
from .download import expect_count, members, only_archive
from .images import stored_arrays

Array = np.ndarray
Codes = Mapping[float | str, int]  # what stands in the file for each level of a category

MISSING = ("?", "NA", "")


# ------------------------------------------------------------------------------------------------- what the columns are


FACTS = facts("tables")


def _columns(name: str) -> dict[Column, Codes]:
    """Columns of a set, and the codes of the levels of each."""
    found: dict[Column, Codes] = {}
    for about in FACTS[name]["columns"]:
        levels = about.get("levels", {})
        numeric = {key: about.get(key) for key in ("lower", "upper")}
        kind = "category" if levels else "number"
        column = Column(about["name"], kind, tuple(levels), unit=about.get("unit", ""), **numeric)
        found[column] = {code: k for k, code in enumerate(levels.values())}
    return found


HEART = _columns("heart_disease")
HOSPITALS: dict[str, list[int]] = FACTS["heart_disease"]["hospitals"]  # rows with num = 0, 1, 2, 3, 4

GRADES: list[str] = FACTS["breast_wisconsin"]["grades"]
COLLECTED: dict[str, int] = FACTS["breast_wisconsin"]["collected"]
DIAGNOSES: dict[str, str] = FACTS["breast_wisconsin"]["diagnoses"]

SPECIES: list[str] = FACTS["penguins"]["species"]
PENGUINS = _columns("penguins")
STORED, OFFICIAL = ([about[name] for about in FACTS["penguins"]["columns"]] for name in ("stored", "official"))

GASES: list[str] = FACTS["gas_drift"]["gases"]  # 1, 2, ... in the official files
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

SPEAKERS: dict[str, str] = FACTS["vowels_h95"]["speakers"]
VOWELS: dict[str, tuple[str, str]] = FACTS["vowels_h95"]["vowels"]  # X-SAMPA: a word with it, and the official code
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
    about: dict[str, Any] = {"feature_names": schema.names, "class_names": tuple(class_names), "schema": schema}
    return source.dataset(X, y, clients, **about | {"recipe": "standardize"} | more)


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
    return _dataset(source, np.concatenate(parts), y, clients, HEART, names, mark="-grades" * grades)


def _headed(path: Path, header: Sequence[str]) -> list[list[str]]:
    """Lines after the header."""
    records = _records(path, len(header))
    if records[0] != list(header):
        raise DatasetError(f"{path} has the columns {', '.join(records[0])}, expected {', '.join(header)}")
    return records[1:]


def _read_breast(source: Source, folder: Path) -> FederatedDataset:
    path = folder / source.files[0]
    records = _headed(path, ("client", "id", *GRADES, "label"))
    columns: dict[Column, Codes] = {Column(name, unit="grade", lower=1, upper=10): {} for name in GRADES}
    X = _matrix([record[2:-1] for record in records], columns, path, first=2)
    y = _classes((record[-1] for record in records), tuple(DIAGNOSES.values()), path)
    return _dataset(source, X, y, [record[0] for record in records], columns, tuple(DIAGNOSES.values()))


def _read_penguins(source: Source, folder: Path, *, island: bool = False) -> FederatedDataset:
    path = folder / source.files[0]
    records = _headed(path, ("client", *STORED, "label"))
    X = _matrix([record[1:-1] for record in records], PENGUINS, path, first=2)
    y = _classes((record[-1] for record in records), SPECIES, path)
    kept = [j for j, column in enumerate(PENGUINS) if island or column.name != "island"]
    columns_kept = [list(PENGUINS)[j] for j in kept]
    clients = [record[0] for record in records]
    return _dataset(source, X[:, kept], y, clients, columns_kept, SPECIES, mark="-island" * island)


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
    note = f"Missing from this copy: batch {' and '.join(missing)}." if missing else ""
    classes = tuple(sorted(GASES))
    y = _classes(labels.tolist(), classes, folder / source.files[0])
    columns = (Column(name) for name in names)
    return _dataset(source, X, y, clients, columns, classes, note=note)


def _read_wisdm(source: Source, folder: Path, *, min_classes: int = 2) -> FederatedDataset:
    if not 1 <= min_classes <= 6:
        raise InputError(f"min_classes must be from 1 to 6, got {min_classes!r}")
    X, labels, clients, names = _stored(source, folder)
    classes, y = np.unique(labels, return_inverse=True)
    enough = [cid for cid in np.unique(clients) if len(set(y[clients == cid].tolist())) >= min_classes]
    rows = np.isin(clients, enough)
    columns = (Column(name, unit=_move_unit(name)) for name in names)
    mark = "" if min_classes == 2 else f"-min{min_classes}"
    return _dataset(source, X[rows], y[rows], clients[rows], columns, classes.tolist(), mark=mark)


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
    return _dataset(source, X, y, clients, columns, words, mark="" if log else "-hz")


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
    official = {Archive(**archive).file_name: archive["sha256"] for archive in FACTS["heart_disease"]["archives"]}
    altered = []
    for match, content in _contents(archives, pattern, "processed.cleveland.data"):
        text = content.replace(b"\r\n", b"\n")
        _fields(_plain_text(text), len(HEART) + 1, match[0])
        if sha256(text).hexdigest() != official[match[0]]:
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
    wanted = ["studyName", "Species", *OFFICIAL]
    missing = [name for name in wanted if name not in (table.fieldnames or ())]
    if missing:
        raise DatasetError(f"penguins_raw.csv lacks the column {missing[0]!r}")
    rows = []
    for record in table:
        season = re.fullmatch(r"PAL(\d\d)\d\d", record["studyName"] or "")
        if season is None:
            raise DatasetError(f"penguins_raw.csv has the study {record['studyName']!r}, expected one like PAL0708")
        cells = []
        for (column, codes), name in zip(PENGUINS.items(), OFFICIAL, strict=True):
            cell = record[name] or "NA"
            cells.append(cell if cell == "NA" else _penguin(cell, column, codes))
        rows.append([f"year20{season[1]}", *cells, (record["Species"] or "").partition(" ")[0].lower()])
    expect_count("penguins", len(rows), 344, "birds")
    _csv(folder / "penguins.csv", ("client", *STORED, "label"), rows)


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
    batches = {}
    for match, content in _contents(archives, r"batch(\d+)\.dat", "batch1.dat"):
        lines = enumerate(_plain_text(content).splitlines(), 1)
        batches[int(match[1])] = [_reading(line, f"{match[0]}, line {number}") for number, line in lines]
    found = [(f"batch{k}", *reading) for k in sorted(batches) for reading in batches[k]]
    expect_count("gas_drift", len(found), 13910, "rows")
    clients, labels, amounts, rows = zip(*found, strict=True)
    np.savez_compressed(
        folder / "gas_drift.npz",
        X=np.array(rows, dtype=np.float32),
        y=np.array(labels),
        client=np.array(clients),
        concentration=np.array(amounts, dtype=np.float32),
        feature_names=np.array(SENSORS),
    )


def _reading(line: str, where: str) -> tuple[str, float, list[float]]:
    """Gas, concentration and values of a line."""
    head, *cells = line.split() or [""]
    gas, _, amount = head.partition(";")
    pairs = [cell.partition(":") for cell in cells]
    try:
        if [place for place, _, _ in pairs] != [str(j) for j in range(1, len(SENSORS) + 1)]:
            raise ValueError
        place = [str(k + 1) for k in range(len(GASES))].index(gas)
        return GASES[place], float(amount), [float(value) for *_, value in pairs]
    except ValueError:
        raise DatasetError(
            f"{where}, is not a gas from 1 to 6, its concentration and {len(SENSORS)} numbered values: "
            "'1;10.000000 1:15596.162100 2:1.868245 ...'"
        ) from None


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

    NIL, REF, SYMBOL, PAIRS, TEXT, TEXTS, VALUES, S4 = 254, 255, 1, 2, 9, 16, 19, 25
    NUMBERS: ClassVar[dict[int, str]] = {10: ">i4", 13: ">i4", 14: ">f8"}  # logical, integer, real

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
        value = self.vector(kind, more)
        return _Thing(value, (self.read(more) or {}) if flags & 0x200 else {})

    def vector(self, kind: int, depth: int) -> Any:
        """Numbers, or a list of texts or values."""
        if kind in self.NUMBERS:
            number = np.dtype(self.NUMBERS[kind])
            return np.frombuffer(self.take(number.itemsize * self.count()), number)
        if kind in (self.TEXTS, self.VALUES):
            return [self.read(depth) for _ in range(self.count())]
        if kind != self.S4:
            raise ValueError(f"it holds something of kind {kind}, which is not expected")
        return None

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

CODE = {
    "heart_disease": (_read_heart, _convert_heart),
    "breast_wisconsin": (_read_breast, _convert_breast),
    "penguins": (_read_penguins, _convert_penguins),
    "gas_drift": (_read_gas, _convert_gas),
    "wisdm": (_read_wisdm, _convert_wisdm),
    "vowels_h95": (_read_vowels, _convert_vowels),
    "pancreas": (_read_pancreas, _convert_pancreas),
}
SOURCES = tuple(source(name, FACTS[name], code) for name, code in CODE.items())

__all__ = ["SOURCES"]
