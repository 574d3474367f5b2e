"""Fitted models as files: a folder of safetensors and JSON to keep, one ONNX file to carry."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference import ClientModel
from ..runtime.driver import RoundRecord
from ..tables.text import TextRecipe
from .files import (
    COUNT,
    NUMBER,
    FileError,
    check_form,
    check_schema,
    file_names,
    jsonable,
    new_folder,
    read_json,
    read_tensors,
    write_file,
    write_json,
    write_tensors,
)

if TYPE_CHECKING:
    from ..estimator import FMTC

MODEL_FORMAT = 1
MODEL_FILE = "model.json"
OPTIONAL = ("mean", "stretch", "keep")  # arrays of a client that not every model has
PORTABLE = (bool, int, float, str, type(None))

# What a reader relies on in model.json, in the language of `check_form`; the settings of a run check themselves.
ROUND = {
    "round_no": COUNT, "objective": NUMBER, "lagrangian": NUMBER, "primal_residual": NUMBER, "dual_residual": NUMBER,
    "rank": COUNT, "bytes_up": COUNT, "bytes_down": COUNT, "seconds": float, "missing": [str], "refused?": COUNT,
}  # fmt: skip
MODEL = {
    "params": {"n_clusters": COUNT, "client_weights?": ({str: float}, None)},
    "n_features_in": COUNT,
    "feature_names_in": ([str], None),
    "text?": ({"text_column": str, "salt": str, "n_buckets": range(1, 2**31)}, None),
    "clients": {str: {"file": str, "sha256": str}},
    "beta?": NUMBER,
    "n_iter": COUNT,
    "converged": (bool, None),  # None where a silo of a federation was not told
    "stopped_because": str,
    "history": [ROUND],
}


def save_model(model: FMTC, path: Path, *, overwrite: bool = False) -> Path:
    """Write a fitted `FMTC` to a folder, whole or not at all. See `FMTC.save`."""
    with new_folder(path, overwrite=overwrite) as folder:
        clients = {}
        names = file_names(model._models)
        for cid, client in model._models.items():
            name = f"{names[cid]}.safetensors"
            arrays = {"W": client.W, "centers": client.centers, "spread": np.array([client.spread])}
            arrays |= {name: array for name in OPTIONAL if (array := getattr(client, name)) is not None}
            write_tensors(
                folder / name, arrays, {"kind": "fmtc client model", "schema": MODEL_FORMAT, "client_id": cid}
            )
            clients[cid] = {"file": name, "sha256": _digest(folder / name)}
        params: dict[str, Any] = {
            name: value for name, value in jsonable(model.get_params()).items() if isinstance(value, PORTABLE)
        }
        if model.client_weights is not None:
            params["client_weights"] = {str(cid): float(w) for cid, w in model.client_weights.items()}
        about = {
            "kind": "fmtc model",
            "schema": MODEL_FORMAT,
            "params": params,
            "n_features_in": model.n_features_in_,
            "feature_names_in": getattr(model, "feature_names_in_", None),
            "text": asdict(model.text_recipe_) if hasattr(model, "text_recipe_") else None,
            "clients": clients,
            "beta": model.beta_,
            "n_iter": model.n_iter_,
            "converged": model.converged_,
            "stopped_because": model.stopped_because_,
            "history": [asdict(record) for record in model.history_],
        }
        write_json(folder / MODEL_FILE, about)
    return path


def load(path: str | Path) -> FMTC:
    """Read a model that `FMTC.save` wrote; it predicts as it did, and holds no training row or label.

    Parameters
    ----------
    path : path
        Folder of the model.

    Returns
    -------
    FMTC
        Fitted, without `labels_`, `embedding_` and `consensus_`.

    Raises
    ------
    FileError
        Where a file is missing, damaged, cut short, not of fmtc, or from a newer format.

    Examples
    --------
    >>> import tempfile, numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fmtc.FMTC(3, random_state=0).fit(X).save(folder + "/model")
    ...     model = fmtc.load(path)
    >>> model.predict(X).shape
    (60,)
    """
    folder = Path(path)
    file = folder / MODEL_FILE
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder; a saved model is a folder with {MODEL_FILE} in it")
    about = read_json(file)
    check_schema(file, about, "fmtc model", MODEL_FORMAT)
    check_form(file, about, MODEL)
    model = read_settings(file, about["params"])
    d, names = about["n_features_in"], about["feature_names_in"]
    if not about["clients"]:
        raise FileError(f"{file} is damaged: it names no client")
    if names is not None and len(names) != d:
        raise FileError(f"{file} is damaged: it has {len(names)} names for {d} features")
    model._models = {
        cid: _read_client(folder, cid, entry, d, model.n_clusters) for cid, entry in about["clients"].items()
    }
    model.client_ids_ = list(model._models)
    model.n_features_in_ = d
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    if about.get("text") is not None:
        model.text_recipe_ = TextRecipe(**about["text"])
    model.beta_, model.trials_ = about.get("beta"), None
    model.n_iter_, model.converged_ = about["n_iter"], about["converged"]
    model.stopped_because_ = about["stopped_because"]
    model.history_ = [RoundRecord.from_dict(line) for line in about["history"]]
    return model


def read_settings(file: Path, settings: Mapping[str, Any]) -> FMTC:
    """An estimator with the settings of a file, which are checked as `fit` would check them."""
    from ..estimator import FMTC

    try:
        model = FMTC(**settings)
        model._hyper()
    except (TypeError, ValueError) as error:
        raise FileError(f"{file} is damaged: {error}") from None
    return model


def _read_client(folder: Path, cid: str, entry: dict[str, str], d: int, k: int) -> ClientModel:
    path = folder / Path(entry["file"]).name  # never outside the folder
    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc client model", MODEL_FORMAT)
    if _digest(path) != entry["sha256"]:
        raise FileError(f"{path} is not the file of client {cid!r} that {MODEL_FILE} describes: its checksum differs")
    lacking = [name for name in ("W", "centers", "spread") if name not in arrays]
    if lacking:
        raise FileError(f"{path} is damaged: it lacks {', '.join(lacking)}")
    W, centers, spread = arrays["W"], arrays["centers"], arrays["spread"]
    others = {name: arrays.get(name) for name in OPTIONAL}
    keep = others["keep"]
    if keep is not None:
        if keep.dtype.kind != "i" or ((keep < 0) | (keep >= d)).any():
            raise FileError(f"{path} keeps columns that are not among {d} features")
        d = len(keep)
    wide = all(array is None or array.shape == (d,) for array in others.values())
    if W.shape != (d, k) or centers.shape != (k, k) or spread.shape != (1,) or not wide:
        raise FileError(f"{path} holds arrays of other shapes than {d} features and {k} clusters")
    return ClientModel(W, centers, float(spread[0]), **others)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def export_onnx(model: ClientModel, path: Path, dtype: Any = np.float32) -> Path:
    """Write one client's model as a graph of plain ONNX operators. See `FMTC.export_onnx`."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError("writing ONNX files needs the onnx package: pip install 'fmtc[onnx]'") from error
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.DOUBLE
    d, k = model.W.shape
    constants = {
        "W": model.W,
        "centers_T": model.centers.T,
        "sharpness": np.array(k / max(model.spread, 1e-12 * k)),
        "tiny": np.array(np.finfo(dtype).tiny),
    }
    nodes = []
    rows, width = "X", d
    if model.keep is not None:
        nodes.append(helper.make_node("Gather", ["X", "keep"], ["kept"], axis=1))
        rows, width = "kept", "features"  # as many as rows had in training; those not kept are not looked at
    if model.mean is not None:
        constants["mean"] = model.mean
        nodes.append(helper.make_node("Sub", [rows, "mean"], ["centred"]))
        rows = "centred"
    nodes += [
        helper.make_node("MatMul", [rows, "W"], ["projection"]),
        helper.make_node("Mul", ["projection", "projection"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "columns"], ["square_norm"], keepdims=1),
        helper.make_node("Max", ["square_norm", "tiny"], ["guarded"]),
        helper.make_node("Sqrt", ["guarded"], ["norm"]),
        helper.make_node("Div", ["projection", "norm"], ["unit"]),
        helper.make_node("MatMul", ["unit", "centers_T"], ["cosine"]),
        helper.make_node("ArgMax", ["cosine"], ["label"], axis=1, keepdims=0),
        helper.make_node("Mul", ["cosine", "sharpness"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probability"], axis=1),
    ]
    stored = [
        numpy_helper.from_array(np.ascontiguousarray(array.astype(dtype)), name) for name, array in constants.items()
    ]
    stored.append(numpy_helper.from_array(np.array([1], dtype=np.int64), "columns"))
    if model.keep is not None:
        stored.append(numpy_helper.from_array(model.keep.astype(np.int64), "keep"))
    graph = helper.make_graph(
        nodes,
        "fmtc",
        [helper.make_tensor_value_info("X", kind, ["rows", width])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"]),
            helper.make_tensor_value_info("probability", kind, ["rows", k]),
        ],
        stored,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="fmtc", ir_version=9)
    onnx.checker.check_model(proto)
    write_file(path, proto.SerializeToString())
    return path


__all__ = ["export_onnx", "load", "save_model"]
