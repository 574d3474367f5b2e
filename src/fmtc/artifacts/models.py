"""A fitted model as a folder: JSON and one safetensors file per client, without any training row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, FileError
from ..schema import Schema
from ..tables import TextRecipe
from .files import (
    COUNT,
    NUMBER,
    check_form,
    check_schema,
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
    from ..models import ClientModel, Presence
    from ..models.shared import Shared

MODEL_FORMAT, OLDEST = 3, 2  # 2: of 0.1
MODEL_FILE = "model.json"
CLIENT: Mapping[str, Any] = {"kind": "fmtc client model", "schema": 2}
COMMON: Mapping[str, Any] = {"kind": "fmtc common state", "schema": 1}
COMMON_FILE = "common.tensors"  # what all clients have in common; a client's file ends in .safetensors
PORTABLE = (bool, int, float, str, dict, type(None))

# What a reader relies on in model.json, in the language of `check_form`; `FMTC` checks the parameters.
ROUND = {
    "round_no": COUNT, "objective": NUMBER, "lagrangian": NUMBER, "primal_residual": NUMBER, "dual_residual": NUMBER,
    "rank": COUNT, "bytes_up": COUNT, "bytes_down": COUNT, "seconds": float, "missing": [str], "refused?": COUNT,
    "step?": COUNT, "capped?": [str], "odd?": [str], "affinity?": ({str: float}, None),
}  # fmt: skip
TEXT = ({"text_column": str, "salt": str, "n_buckets": range(1, 2**31)}, None)
FILE = {"file": str, "sha256": str}
MODEL = {
    "k?": COUNT,
    "n_concepts?": COUNT,  # the same in folders of 0.1
    "params": {"n_clusters": (COUNT, {str: COUNT})},
    "n_features_in": COUNT,
    "feature_names_in": ([str], None),
    "columns": (dict, None),
    "text": TEXT,
    "clients": {str: FILE | {"presence?": [NUMBER], "told?": {"cosine": [float], "flags": [str]}}},
    "held": [str],
    "common": (FILE, None),
    "n_iter": COUNT,
    "converged": (bool, None),  # None: a silo of a federation does not know
    "stopped_because": str,
    "history": [ROUND],
}


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a folder holds of a fitted model: everything that `predict` needs, and how the run ended."""

    params: Mapping[str, Any]  # of `FMTC` and of its views, side by side; what JSON cannot hold is omitted
    clients: Mapping[str, ClientModel]
    n_features: int
    feature_names: Sequence[str] | None
    text: TextRecipe | None
    n_iter: int
    converged: bool | None
    stopped_because: str
    history: Sequence[Mapping[str, Any]]  # the fields of each round
    schema: Schema | None = None  # what the columns hold, where that is known
    presence: Mapping[str, Presence] = field(default_factory=dict)  # share of each concept in a silo's rows
    told: Mapping[str, Sequence[tuple[float, str]]] = field(default_factory=dict)  # cosines and flags of a federation
    held: Sequence[str] = ()  # clients that were capped, set aside or refused
    shared: Shared | None = None  # what all clients have in common, where the server's end of the run is known


def write_model(path: Path, saved: SavedModel, *, overwrite: bool = False) -> Path:
    """Write a model to a folder, completely or not at all."""
    with new_folder(path, overwrite=overwrite) as folder:
        clients: dict[str, Any] = {}
        names = file_names(saved.clients)
        for cid, client in saved.clients.items():
            arrays, rest = flatten(client)
            about = {**CLIENT, "client_id": cid, "view": client.kind, "model": rest}
            clients[cid] = _write(folder / f"{names[cid]}.safetensors", arrays, about)
            if cid in saved.presence:
                clients[cid]["presence"] = saved.presence[cid]
            if cid in saved.told:
                clients[cid]["told"] = dict(zip(("cosine", "flags"), zip(*saved.told[cid], strict=True), strict=True))
        common = None
        if (shared := saved.shared) is not None:
            arrays, rest = flatten(shared)
            common = _write(folder / COMMON_FILE, arrays, {**COMMON, "shared": rest | {"view": shared.view}})
        about = {
            "kind": "fmtc model",
            "schema": MODEL_FORMAT,
            "params": portable(saved.params),
            "k": next(iter(saved.clients.values())).k,
            "n_features_in": saved.n_features,
            **columns_of(saved.feature_names, saved.schema, saved.text),
            "clients": clients,
            "held": saved.held,
            "common": common,
            **{name: getattr(saved, name) for name in ("n_iter", "converged", "stopped_because", "history")},
        }
        write_json(folder / MODEL_FILE, about)
    return path


def _write(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> dict[str, Any]:
    """Write a file of arrays; what model.json says of it."""
    write_tensors(path, arrays, about)
    return {"file": path.name, "sha256": _digest(path)}


def portable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that JSON can hold, by name; others are omitted."""
    return {name: value for name, value in jsonable(params).items() if isinstance(value, PORTABLE)}


def columns_of(names: Sequence[str] | None, schema: Schema | None, text: TextRecipe | None) -> dict[str, Any]:
    """What is known of columns, as models and kits keep it."""
    return {
        "feature_names_in": names,
        "columns": None if schema is None else schema.to_dict(),
        "text": None if text is None else asdict(text),
    }


def read_model(path: str | Path) -> SavedModel:
    """Read what `write_model` wrote, or raise a `FileError` that says what is wrong."""
    folder = Path(path)
    file = folder / MODEL_FILE
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder; a saved model is a folder that contains {MODEL_FILE}")
    about = read_json(file)
    check_schema(file, about, "fmtc model", MODEL_FORMAT, oldest=OLDEST)
    check_form(file, about, MODEL)
    d, k = about["n_features_in"], about.get("k") or about.get("n_concepts", 0)
    if not about["clients"]:
        raise FileError(f"{file} is damaged: it names no silo")
    names, schema, text = read_columns(file, about, d)
    return SavedModel(
        params=about["params"],
        clients={cid: _read_client(folder, cid, entry, d, k) for cid, entry in about["clients"].items()},
        n_features=d,
        feature_names=names,
        text=text,
        schema=schema,
        presence=_read_presence(file, about["clients"], k),
        told=_read_told(file, about["clients"], k),
        held=about["held"],
        shared=_read_common(folder, about["common"]),
        **{name: about[name] for name in ("n_iter", "converged", "stopped_because", "history")},
    )


def _read_presence(file: Path, clients: Mapping[str, Any], k: int) -> dict[str, Presence]:
    found = {cid: tuple(entry["presence"]) for cid, entry in clients.items() if "presence" in entry}
    for cid, shares in found.items():
        if len(shares) != k or not all(share is None or 0 <= share <= 1 for share in shares):
            raise FileError(f"{file} is damaged: the presence of silo {cid!r} is not that of {k} clusters")
    return found


def _read_told(file: Path, clients: Mapping[str, Any], k: int) -> dict[str, list[tuple[float, str]]]:
    from ..describe import FLAGS

    found = {}
    for cid, entry in clients.items():
        if "told" in entry:
            cosine, flags = entry["told"]["cosine"], entry["told"]["flags"]
            if not len(cosine) == len(flags) == k or not set(flags) <= {"", *FLAGS}:
                raise FileError(f"{file} is damaged: the flags of silo {cid!r} are not those of {k} clusters")
            found[cid] = list(zip(cosine, flags, strict=True))
    return found


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


def read_columns(
    file: Path, about: Mapping[str, Any], d: int
) -> tuple[list[str] | None, Schema | None, TextRecipe | None]:
    """Names, schema and recipe of `columns_of`, of d columns; or a `FileError` that says what is wrong with them."""
    names, columns, text = about["feature_names_in"], about["columns"], about["text"]
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
    return names, schema, None if text is None else TextRecipe(**text)


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
    folder: Path, entry: Mapping[str, str], about: Mapping[str, Any], whose: str = ""
) -> tuple[Path, dict[str, np.ndarray], dict[str, Any]]:
    """A file of arrays that is the one that model.json describes."""
    path = folder / Path(entry["file"]).name  # never outside the folder
    arrays, found = read_tensors(path)
    check_schema(path, found, about["kind"], about["schema"])
    if _digest(path) != entry["sha256"]:
        raise FileError(f"{path} is not the file {whose}that {MODEL_FILE} describes: its checksum differs")
    return path, arrays, found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
