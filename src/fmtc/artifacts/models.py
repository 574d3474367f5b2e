"""A fitted model as a folder: JSON and one safetensors file per client, without any training row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, FileError
from ..schema import Schema
from ..tables import TextRecipe
from .files import (
    COUNT,
    NUMBER,
    check_form,
    check_schema,
    file_names,
    jsonable,
    new_folder,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from .states import flatten, unflatten

if TYPE_CHECKING:
    from ..models import ClientModel, Presence
    from ..models.shared import Shared

MODEL_FORMAT = 3
CLIENT_FORMAT = 2
COMMON_FORMAT = 1
MODEL_FILE = "model.json"
COMMON_FILE = "common.tensors"  # what all clients have in common; a client's file ends in .safetensors
PORTABLE = (bool, int, float, str, type(None))

# What a reader relies on in model.json, in the language of `check_form`; `FMTC` checks the parameters.
ROUND = {
    "round_no": COUNT, "objective": NUMBER, "lagrangian": NUMBER, "primal_residual": NUMBER, "dual_residual": NUMBER,
    "rank": COUNT, "bytes_up": COUNT, "bytes_down": COUNT, "seconds": float, "missing": [str], "refused?": COUNT,
    "step?": COUNT, "capped?": [str], "odd?": [str], "affinity?": ({str: float}, None),
}  # fmt: skip
MODEL = {
    "k?": COUNT,
    "n_concepts?": COUNT,  # the same in formats before 3
    "params": {"n_clusters": (COUNT, {str: COUNT})},
    "n_features_in": COUNT,
    "feature_names_in": ([str], None),
    "columns?": (
        {
            "columns": [
                {"name": str, "kind": str, "levels": [str], "unit": str, "lower": (float, None), "upper": (float, None)}
            ],
            "id_column?": str,
        },
        None,
    ),
    "text?": ({"text_column": str, "salt": str, "n_buckets": range(1, 2**31)}, None),
    "clients": {str: {"file": str, "sha256": str, "presence?": [NUMBER], "told?": {"cosine": [float], "flags": [str]}}},
    "held?": [str],
    "common?": ({"file": str, "sha256": str}, None),
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
        clients = {}
        names = file_names(saved.clients)
        for cid, client in saved.clients.items():
            name = f"{names[cid]}.safetensors"
            arrays, rest = flatten(client)
            about = {"kind": "fmtc client model", "schema": CLIENT_FORMAT, "client_id": cid}
            write_tensors(folder / name, arrays, about | {"view": client.kind, "model": rest})
            entry: dict[str, Any] = {"file": name, "sha256": _digest(folder / name)}
            if cid in saved.presence:
                entry["presence"] = list(saved.presence[cid])
            if cid in saved.told:
                cosine, flags = zip(*saved.told[cid], strict=True)
                entry["told"] = {"cosine": list(cosine), "flags": list(flags)}
            clients[cid] = entry
        params = portable(saved.params)
        if isinstance(given := saved.params.get("clusters_per_silo"), Mapping):
            params["clusters_per_silo"] = {str(cid): int(value) for cid, value in given.items()}
        common = None
        if saved.shared is not None:
            write_shared(folder / COMMON_FILE, saved.shared)
            common = {"file": COMMON_FILE, "sha256": _digest(folder / COMMON_FILE)}
        about = {
            "kind": "fmtc model",
            "schema": MODEL_FORMAT,
            "params": params,
            "k": next(iter(saved.clients.values())).k,
            "n_features_in": saved.n_features,
            "feature_names_in": saved.feature_names,
            "columns": None if saved.schema is None else saved.schema.to_dict(),
            "text": None if saved.text is None else asdict(saved.text),
            "clients": clients,
            "held": saved.held,
            "common": common,
            "n_iter": saved.n_iter,
            "converged": saved.converged,
            "stopped_because": saved.stopped_because,
            "history": saved.history,
        }
        write_json(folder / MODEL_FILE, about)
    return path


def portable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that JSON can hold, by name; others are omitted."""
    return {name: value for name, value in jsonable(params).items() if isinstance(value, PORTABLE) or name == "privacy"}


def write_shared(path: Path, shared: Shared) -> None:
    """Keep what all clients of a run have in common."""
    arrays, rest = flatten(shared)
    write_tensors(
        path, arrays, {"kind": "fmtc common state", "schema": COMMON_FORMAT, "shared": rest | {"view": shared.view}}
    )


def read_shared(path: Path) -> Shared:
    """Undo `write_shared`."""
    from ..models.shared import SHARED

    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc common state", COMMON_FORMAT)
    try:
        found: Shared = unflatten(SHARED[about["shared"]["view"]], arrays, about["shared"])
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration) as error:
        raise FileError(f"{path} is damaged: {type(error).__name__} {error}") from None
    return found


def read_model(path: str | Path) -> SavedModel:
    """Read what `write_model` wrote, or raise a `FileError` that says what is wrong."""
    folder = Path(path)
    file = folder / MODEL_FILE
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder; a saved model is a folder that contains {MODEL_FILE}")
    about = read_json(file)
    check_schema(file, about, "fmtc model", MODEL_FORMAT)
    if about["schema"] < 2:
        raise FileError(f"{file} was written before version 0.1: fit the model again")
    check_form(file, about, MODEL)
    d, names = about["n_features_in"], about["feature_names_in"]
    k = about.get(
        "k", about.get("n_concepts", about["params"]["n_clusters"])
    )  # all clients of an older version had as many
    if not about["clients"]:
        raise FileError(f"{file} is damaged: it names no client")
    if names is not None and len(names) != d:
        raise FileError(f"{file} is damaged: it has {len(names)} names for {d} features")
    schema = read_schema(file, about.get("columns"), d)
    return SavedModel(
        params=current_settings(about["params"], k),
        clients={cid: _read_client(folder, cid, entry, d, k) for cid, entry in about["clients"].items()},
        n_features=d,
        feature_names=names,
        text=TextRecipe(**about["text"]) if about.get("text") is not None else None,
        n_iter=about["n_iter"],
        converged=about["converged"],
        stopped_because=about["stopped_because"],
        history=about["history"],
        schema=schema,
        presence=_read_presence(file, about["clients"], k),
        told=_read_told(file, about["clients"], k),
        held=about.get("held", ()),
        shared=_read_common(folder, about.get("common")),
    )


def _read_presence(file: Path, clients: Mapping[str, Any], k: int) -> dict[str, Presence]:
    found = {cid: tuple(entry["presence"]) for cid, entry in clients.items() if "presence" in entry}
    for cid, shares in found.items():
        if len(shares) != k or not all(share is None or 0 <= share <= 1 for share in shares):
            raise FileError(f"{file} is damaged: the presence of client {cid!r} is not that of {k} clusters")
    return found


def _read_told(file: Path, clients: Mapping[str, Any], k: int) -> dict[str, list[tuple[float, str]]]:
    from ..describe import FLAGS

    found = {}
    for cid, entry in clients.items():
        if "told" in entry:
            cosine, flags = entry["told"]["cosine"], entry["told"]["flags"]
            if not len(cosine) == len(flags) == k or not set(flags) <= {"", *FLAGS}:
                raise FileError(f"{file} is damaged: the flags of client {cid!r} are not those of {k} clusters")
            found[cid] = list(zip(cosine, flags, strict=True))
    return found


def _read_common(folder: Path, entry: Mapping[str, str] | None) -> Shared | None:
    if entry is None:
        return None
    path = folder / Path(entry["file"]).name  # never outside the folder
    shared = read_shared(path)
    if _digest(path) != entry["sha256"]:
        raise FileError(f"{path} is not the file that {MODEL_FILE} describes: its checksum differs")
    return shared


def read_schema(file: Path, document: Mapping[str, Any] | None, d: int) -> Schema | None:
    """The schema in a file about d columns, or a `FileError` that says what is wrong with it."""
    if document is None:
        return None
    try:
        schema = Schema.from_dict(document)
    except DataError as error:
        raise FileError(f"{file} is damaged: {error}") from None
    if len(schema.columns) != d:
        raise FileError(f"{file} is damaged: it describes {len(schema.columns)} columns of {d}")
    return schema


# ------------------------------------------------------------------------------------------- files of older versions

# Settings that 0.1 has stored and that are no parameters any more: `n_concepts` is what `n_clusters` means now.
GONE = ("solver", "n_concepts", "own_clusters", "client_weights", "calibration")


def current_settings(settings: Mapping[str, Any], k: int | None = None) -> dict[str, Any]:
    """Settings of a file in the names of today: parameters of `FMTC` and of its views, side by side.

    Parameters
    ----------
    settings : mapping
        As they stand in the file; in format 2, those of a solver under ``solver``.
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


# --------------------------------------------------------------------------------------------------------- one client


def _read_client(folder: Path, cid: str, entry: Mapping[str, str], d: int, k: int) -> ClientModel:
    from ..models import KINDS

    path = folder / Path(entry["file"]).name  # never outside the folder
    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc client model", CLIENT_FORMAT)
    if _digest(path) != entry["sha256"]:
        raise FileError(f"{path} is not the file of client {cid!r} that {MODEL_FILE} describes: its checksum differs")
    try:
        model: ClientModel = unflatten(KINDS[about["view"]], arrays, about["model"])
        fits = model.fits(d, k)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, StopIteration) as error:
        raise FileError(f"{path} is damaged: {type(error).__name__} {error}") from None
    if not fits:
        raise FileError(f"{path} is damaged: its arrays do not have the shapes of {d} features and {k} clusters")
    return model


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


__all__ = ["SavedModel", "current_settings", "read_model", "write_model"]
