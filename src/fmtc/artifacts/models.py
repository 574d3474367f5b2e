"""A fitted model as a folder, and what it publishes for newcomers: JSON and safetensors, and no training row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import DataError, FileError
from ..schema import Schema
from ..tables import TextRecipe
from .files import (
    COUNT,
    NUMBER,
    Kind,
    check_form,
    file_names,
    form_of,
    jsonable,
    new_folder,
    read_json,
    read_tensors,
    well_formed,
    write_json,
    write_tensors,
)
from .states import flatten, unflatten

if TYPE_CHECKING:
    from ..estimator import FMTC
    from ..models import ClientModel, Presence
    from ..models.shared import Published, Shared

MODEL = Kind("fmtc model", 3, oldest=2)  # 2: of 0.1
CLIENT = Kind("fmtc client model", 2)
COMMON = Kind("fmtc common state", 1)
MODEL_FILE = "model.json"
COMMON_FILE = "common.tensors"  # what all clients have in common; a client's file ends in .safetensors
PORTABLE = (bool, int, float, str, dict, type(None))

# What a reader relies on, in the language of `check_form`: of columns, in models and in published kits.
COLUMNS = {
    "n_features_in": COUNT,
    "feature_names_in": ([str], None),
    "columns": (dict, None),
    "text": ({"text_column": str, "salt": str, "n_buckets": range(1, 2**31)}, None),
}

# The same in model.json; `FMTC` checks the parameters.
ROUND = {
    "round_no": COUNT, "objective": NUMBER, "lagrangian": NUMBER, "primal_residual": NUMBER, "dual_residual": NUMBER,
    "rank": COUNT, "bytes_up": COUNT, "bytes_down": COUNT, "seconds": float, "missing": [str], "refused?": COUNT,
    "step?": COUNT, "capped?": [str], "odd?": [str], "affinity?": ({str: float}, None),
}  # fmt: skip
FILE = {"file": str, "sha256": str}
FORM = COLUMNS | {
    "k?": COUNT,
    "n_concepts?": COUNT,  # the same in folders of 0.1
    "params": {"n_clusters": (COUNT, {str: COUNT})},
    "clients": {str: FILE | {"presence?": [NUMBER], "told?": {"cosine": [float], "flags": [str]}}},
    "held": [str],
    "common": (FILE, None),
    "n_iter": COUNT,
    "converged": (bool, None),  # None: a silo of a federation does not know
    "stopped_because": str,
    "history": [ROUND],
}


@dataclass(frozen=True, eq=False)
class KnownColumns:
    """How many columns rows have, what these are called, what they hold, and how texts become columns."""

    number: int
    names: tuple[str, ...] | None = None
    schema: Schema | None = None
    text: TextRecipe | None = None

    @classmethod
    def of(cls, model: FMTC) -> Self:
        """What a fitted estimator knows."""
        names = getattr(model, "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        return cls(model.n_features_in_, names, getattr(model, "schema_", None), getattr(model, "text_recipe_", None))

    def tell(self, model: FMTC) -> None:
        """Undo `of`: the estimator knows the same from now on."""
        model.n_features_in_ = self.number
        if self.names is not None:
            model.feature_names_in_ = np.array(self.names, dtype=object)
        if self.schema is not None:
            model.schema_ = self.schema
        if self.text is not None:
            model.text_recipe_ = self.text

    def to_dict(self) -> dict[str, Any]:
        """As documents of folders have it."""
        return {
            "n_features_in": self.number,
            "feature_names_in": self.names,
            "columns": None if self.schema is None else self.schema.to_dict(),
            "text": None if self.text is None else asdict(self.text),
        }

    @classmethod
    def read(cls, file: Path, about: Mapping[str, Any]) -> Self:
        """Undo `to_dict`, given a document of the form `COLUMNS`; a `FileError` says what does not fit."""
        d, names, columns, text = (about[name] for name in COLUMNS)
        if names is not None and len(names) != d:
            raise FileError(f"{file} is damaged: it has {len(names)} names for {d} features")
        schema = None
        if columns is not None:
            check_form(file, columns, form_of(Schema), "columns")
            try:
                schema = Schema.from_dict(columns)
            except DataError as error:
                raise FileError(f"{file} is damaged: {error}") from None
            if len(schema.columns) != d:
                raise FileError(f"{file} is damaged: it describes {len(schema.columns)} columns of {d}")
        names = None if names is None else tuple(names)
        return cls(d, names, schema, None if text is None else TextRecipe(**text))


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a folder holds of a fitted model: everything that `predict` needs, and how the run ended."""

    about: Mapping[str, Any]  # model.json, whose parameters are those of `FMTC` and of its views, side by side
    columns: KnownColumns
    clients: Mapping[str, ClientModel]
    presence: Mapping[str, Presence]  # share of each cluster in a silo's rows
    told: Mapping[str, list[tuple[float, str]]]  # cosines and flags of a federation
    shared: Shared | None  # what all clients have in common, where the server's end of the run is known


def write_model(path: Path, model: FMTC, *, overwrite: bool = False) -> Path:
    """Write a fitted model to a folder, completely or not at all."""
    found, went = model._fitted, model.run_
    with new_folder(path, overwrite=overwrite) as folder:
        clients: dict[str, Any] = {}
        names = file_names(found.models)
        for cid, client in found.models.items():
            arrays, rest = flatten(client)
            about = {"client_id": cid, "view": client.kind, "model": rest}
            clients[cid] = _write(folder / f"{names[cid]}.safetensors", CLIENT, arrays, about)
            if cid in found.presence:
                clients[cid]["presence"] = found.presence[cid]
            if cid in found.told:
                clients[cid]["told"] = dict(zip(("cosine", "flags"), zip(*found.told[cid], strict=True), strict=True))
        common = None
        if (shared := found.shared) is not None:
            arrays, rest = flatten(shared)
            common = _write(folder / COMMON_FILE, COMMON, arrays, {"shared": rest | {"view": shared.view}})
        model_json = {
            **MODEL.head,
            "params": portable(model._params()),
            "k": model.n_clusters_,
            **KnownColumns.of(model).to_dict(),
            "clients": clients,
            "held": went.held,
            "common": common,
            "n_iter": model.n_iter_,
            "converged": went.converged,
            "stopped_because": went.stopped_because,
            "history": [asdict(record) for record in went.rounds],
        }
        write_json(folder / MODEL_FILE, model_json)
    return path


def _write(path: Path, kind: Kind, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> dict[str, Any]:
    """Write a file of arrays; what model.json says of it."""
    write_tensors(path, arrays, kind.head | dict(about))
    return {"file": path.name, "sha256": _digest(path)}


def portable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that JSON can hold, by name; others are omitted."""
    return {name: value for name, value in jsonable(params).items() if isinstance(value, PORTABLE)}


def read_model(folder: Path) -> SavedModel:
    """Read what `write_model` wrote, or raise a `FileError` that says what is wrong."""
    file = folder / MODEL_FILE
    about = read_json(file, FORM, kind=MODEL)
    d, k = about["n_features_in"], about.get("k") or about.get("n_concepts", 0)
    silos = about["clients"]
    if not silos:
        raise FileError(f"{file} is damaged: it names no silo")
    for cid, entry in silos.items():
        _check_told(file, cid, entry, k)
    told = {cid: entry["told"] for cid, entry in silos.items() if "told" in entry}
    return SavedModel(
        about,
        KnownColumns.read(file, about),
        {cid: _read_client(folder, cid, entry, d, k) for cid, entry in silos.items()},
        {cid: tuple(entry["presence"]) for cid, entry in silos.items() if "presence" in entry},
        {cid: list(zip(said["cosine"], said["flags"], strict=True)) for cid, said in told.items()},
        _read_common(folder, about["common"]),
    )


def _check_told(file: Path, cid: str, entry: Mapping[str, Any], k: int) -> None:
    """Refuse what model.json tells of a silo's clusters where it does not fit k clusters."""
    from ..describe.atlas import FLAGS

    shares, told = entry.get("presence"), entry.get("told")
    if shares is not None and (len(shares) != k or not all(share is None or 0 <= share <= 1 for share in shares)):
        raise FileError(f"{file} is damaged: the presence of silo {cid!r} is not that of {k} clusters")
    if told and not (len(told["cosine"]) == len(told["flags"]) == k and {*told["flags"]} <= {"", *FLAGS}):
        raise FileError(f"{file} is damaged: the flags of silo {cid!r} are not those of {k} clusters")


# Settings that 0.1 has stored and that are no parameters any more: `n_concepts` is what `n_clusters` means now.
GONE = ("solver", "n_concepts", "own_clusters", "client_weights", "calibration")


def current_settings(settings: Mapping[str, Any], k: int | None = None) -> dict[str, Any]:
    """Settings of a file in the names of today: parameters of `FMTC` and of its views, side by side.

    Parameters
    ----------
    settings : mapping
        As they stand in the file; in those of 0.1, settings of a solver under ``solver``.
    k : int, optional
        Clusters of the model, where the settings may not say it.

    Examples
    --------
    >>> from fmtc.artifacts.models import current_settings
    >>> current_settings({"n_clusters": 2, "n_concepts": 5, "view": "mixture", "solver": {"kappa": 1}})
    {'n_clusters': 5, 'view': 'mixture', 'kappa': 1, 'clusters_per_silo': 2}
    """
    values = {**settings, **(settings.get("solver") or {})}
    found = {name: value for name, value in values.items() if name not in GONE}
    if found.get("scale") == "client":
        found["scale"] = "silo"
    if values.get("own_clusters") is not None:
        found["clusters_per_silo"] = values["own_clusters"]
    elif values.get("n_concepts") is not None or isinstance(values["n_clusters"], Mapping):
        found |= {"n_clusters": values.get("n_concepts") or k, "clusters_per_silo": values["n_clusters"]}
    return found


def _read_client(folder: Path, cid: str, entry: Mapping[str, str], d: int, k: int) -> ClientModel:
    from ..models import KINDS

    path, arrays, about = _read(folder, entry, CLIENT, f"of silo {cid!r} ")
    with well_formed(path):
        model: ClientModel = unflatten(KINDS[about["view"]], arrays, about["model"])
        fits = model.fits(d, k)
    if not fits:
        raise FileError(f"{path} is damaged: its arrays do not have the shapes of {d} features and {k} clusters")
    return model


def _read_common(folder: Path, entry: Mapping[str, str] | None) -> Shared | None:
    from ..models.shared import SHARED

    if entry is None:
        return None
    path, arrays, about = _read(folder, entry, COMMON)
    with well_formed(path):
        shared: Shared = unflatten(SHARED[about["shared"]["view"]], arrays, about["shared"])
    return shared


def _read(
    folder: Path, entry: Mapping[str, str], kind: Kind, whose: str = ""
) -> tuple[Path, dict[str, np.ndarray], dict[str, Any]]:
    """A file of arrays that is the one that model.json describes."""
    path = folder / Path(entry["file"]).name  # never outside the folder
    arrays, found = read_tensors(path, kind)
    if _digest(path) != entry["sha256"]:
        raise FileError(f"{path} is not the file {whose}that {MODEL_FILE} describes: its checksum differs")
    return path, arrays, found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---------------------------------------------------------------------------------------------- what newcomers get

KIT = Kind("fmtc join kit", 1)
KIT_FILE = "join.json"
KIT_ARRAYS = "join.safetensors"
AT_HOME = ("random_state", "n_jobs", "device", "verbose", "privacy")  # not for others to know or set

# What a reader relies on in join.json.
KIT_FORM = COLUMNS | {
    "params": {"n_clusters": COUNT},
    "silos": COUNT,
    "concepts": [{"number": COUNT, "name": str}],
    "common": dict,
}


@dataclass(frozen=True, eq=False)
class JoinKit:
    """What a folder of `write_kit` holds."""

    published: Published
    params: Mapping[str, Any]  # of `FMTC` and of its views, side by side
    columns: KnownColumns
    names: Mapping[int, str]  # that were given to concepts


def write_kit(path: Path, kit: JoinKit, *, overwrite: bool = False) -> Path:
    """Write a kit to a folder, completely or not at all."""
    arrays, rest = flatten(kit.published)
    params = {name: value for name, value in portable(kit.params).items() if name not in AT_HOME}
    about = {
        **KIT.head,
        "silos": kit.published.n_silos,
        "params": params,
        **kit.columns.to_dict(),
        "concepts": [{"number": j, "name": kit.names.get(j, "")} for j in range(kit.published.n_clusters)],
        "common": rest,
    }
    with new_folder(path, overwrite=overwrite) as folder:
        write_json(folder / KIT_FILE, about)
        write_tensors(folder / KIT_ARRAYS, arrays, KIT.head)
    return path


def is_kit(path: Path) -> bool:
    """Whether `write_kit` wrote this folder."""
    return (path / KIT_FILE).is_file() and (path / KIT_ARRAYS).is_file()


def read_kit(path: str | Path) -> JoinKit:
    """Read what `write_kit` wrote, or raise a `FileError` that says what is wrong."""
    from ..kernels.scaling import expanded_width
    from ..models.shared import Published

    folder = Path(path)
    file, other = folder / KIT_FILE, folder / KIT_ARRAYS
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder; a kit to join with is a folder that contains {KIT_FILE}")
    about = read_json(file, KIT_FORM, kind=KIT)
    arrays, _ = read_tensors(other, KIT)
    columns = KnownColumns.read(file, about)
    levels = () if columns.schema is None or columns.schema.is_plain else columns.schema.levels
    with well_formed(other):
        published: Published = unflatten(Published, arrays, about["common"])
        fits = published.fits(expanded_width(levels, columns.number))
        fits = fits and published.n_clusters == about["params"]["n_clusters"]
    if not fits:
        raise FileError(f"{other} is damaged: its arrays do not have the shapes that {KIT_FILE} says")
    names = {line["number"]: line["name"] for line in about["concepts"] if line["name"]}
    return JoinKit(published, about["params"], columns, names)
