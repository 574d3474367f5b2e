"""One client's model as an ONNX file, for programs without fmtc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .files import write_file

if TYPE_CHECKING:
    from ..inference import ClientModel


def export_onnx(model: ClientModel, path: Path, dtype: Any = np.float32) -> Path:
    """Write one client's model as a graph of plain ONNX operators. See `FMTC.export_onnx`.

    Parameters
    ----------
    model : ClientModel
    path : path
        File to write.
    dtype : float32 or float64
        Precision of input and arithmetic.

    Returns
    -------
    Path
    """
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
        rows, width = "kept", "features"  # rows have all columns of the training data; only those kept are used
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


__all__ = ["export_onnx"]
