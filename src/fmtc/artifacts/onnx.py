"""One client's model as an ONNX file, for programs without fmtc."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..inference import NO_ANCHOR, AnchorModel, ClientModel, GraphModel, MixtureModel
from .files import write_file
from .models import view_of

Array = np.ndarray

OPSET = 17
BLOCK = 16  # rows with missing numbers that a mixture works on at a time: r x (r + k) numbers for each of them

INVALID = "a row that has no answer (infinity, or NaN where no cell may be missing) gets label -1 and probability NaN"


def export_onnx(
    model: ClientModel, path: Path, dtype: Any = np.float32, notes: Mapping[str, str] | None = None
) -> Path:
    """Write one client's model as a graph of plain ONNX operators. See `FMTC.export_onnx`.

    Parameters
    ----------
    model : ClientModel
    path : path
        File to write.
    dtype : float32 or float64
        Precision of input and probabilities. Arithmetic is in double precision either way: a label should not depend
        on it.
    notes : mapping of str to str, optional
        Kept in the file's metadata, beside what this function says there.

    Returns
    -------
    Path
    """
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError as error:
        raise ImportError("writing ONNX files needs the onnx package: pip install 'fmtc[onnx]'") from error
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.DOUBLE
    w = _Writer()
    X = w("Cast", "X", to=TensorProto.DOUBLE) if dtype == np.float32 else "X"
    if isinstance(model, AnchorModel):
        scores, columns = _anchor_scores(w, X, model)
        missing = "NaN is a missing number: it counts as the middle of its bounds; a missing category is no level"
    elif isinstance(model, MixtureModel):
        scores, columns = _mixture_scores(w, X, model)
        missing = "NaN is a missing cell: the answer comes from the other cells of the row"
        if model.frame.axes is not None:
            missing = "NaN is a missing number: it counts as the mean of its column; a missing category is no level"
    else:
        scores, columns = _graph_scores(w, X, model)
        missing = "NaN is a missing number: it counts as the mean of its column; a missing category is no level"
        if model.fill is None:
            missing = "no cell may be missing"
    P = w("Softmax", scores, axis=1)
    wrong = w("IsNaN", w("ReduceSum", P, w.integers([1]), keepdims=0))
    w("Where", wrong, w.integers(-1), w("ArgMax", scores, axis=1, keepdims=0), into="label")
    answer = w("Where", w("Unsqueeze", wrong, w.integers([1])), w.numbers(np.nan), P)
    w("Cast", answer, into="probability", to=kind)
    graph = helper.make_graph(
        w.nodes,
        "fmtc",
        [helper.make_tensor_value_info("X", kind, ["rows", columns])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"]),
            helper.make_tensor_value_info("probability", kind, ["rows", model.k]),
        ],
        w.stored,
    )
    opset = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(
        graph, opset_imports=opset, producer_name="fmtc", producer_version=__version__, ir_version=9
    )
    about = {"view": view_of(model), "missing": missing, "invalid": INVALID}
    levels = model.frame.levels if isinstance(model, MixtureModel) else model.levels
    if levels is not None:
        about["levels"] = ",".join(map(str, levels))
        about["categories"] = "levels: of each column, 0 for numbers; a category is the number of its level, from 0"
    helper.set_model_props(proto, {**about, **(notes or {})})
    onnx.checker.check_model(proto)
    write_file(path, proto.SerializeToString())
    return path


class _Writer:
    """Nodes and constants of a graph. A call adds a node and returns the name of its output."""

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self.prefix = prefix

    def __call__(self, operator: str, *inputs: str, into: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = into or f"{self.prefix}{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def numbers(self, array: Any) -> str:
        """A constant in double precision; one in single precision is stored as such and cast."""
        from onnx import TensorProto

        array = np.asarray(array)
        if array.dtype == np.float32:
            return self("Cast", self._constant(array), to=TensorProto.DOUBLE)
        return self._constant(array.astype(np.float64))

    def integers(self, array: Any) -> str:
        """A constant of 64-bit integers."""
        return self._constant(np.asarray(array, dtype=np.int64))

    def _constant(self, array: Array) -> str:
        from onnx import numpy_helper

        name = f"{self.prefix}constant_{len(self.stored)}"
        array = np.array(array, order="C")  # keeps a scalar a scalar
        self.stored.append(numpy_helper.from_array(array, name))
        return name


# ----------------------------------------------------------------------------------------------------- graph view


def _graph_scores(w: _Writer, X: str, model: GraphModel) -> tuple[str, int | str]:
    """Logarithm of the probabilities but for a row's constant; and the number of columns of X."""
    levels = () if model.levels is None else tuple(int(size) for size in model.levels)
    width = len(model.W) if model.lift is None else len(model.lift.frequencies)
    columns: int | str = len(levels) or width
    rows = _expanded(w, X, levels)
    fill = model.fill
    if model.keep is not None:
        rows = w("Gather", rows, w.integers(model.keep), axis=1)
        columns = "features" if fill is None else len(fill)
        fill = None if fill is None else fill[model.keep]
    if fill is not None:
        rows = w("Where", w("IsNaN", rows), w.numbers(fill), rows)
    if model.lift is not None:
        assert model.stretch is not None
        rows = w("Div", rows if fill is None else w("Sub", rows, w.numbers(fill)), w.numbers(model.stretch))
        phase = w("MatMul", w("Sub", rows, w.numbers(model.lift.shift)), w.numbers(model.lift.frequencies))
        half = w.numbers(np.sqrt(model.lift.frequencies.shape[1]))
        rows = w("Div", w("Concat", w("Cos", phase), w("Sin", phase), axis=1), half)
    if model.mean is not None:
        rows = w("Sub", rows, w.numbers(model.mean))
    unit = _unit_rows(w, w("MatMul", rows, w.numbers(model.W)))
    centers = model.centers.astype(np.float64)
    if model.precision is None:
        allowed = model.log_shares
        sharpness = 1 / max(model.spread / np.isfinite(allowed).sum(), 1e-12)
        scores = w("Mul", w("MatMul", unit, w.numbers(centers.T)), w.numbers(sharpness))
        return scores if model.lacks is None else w("Add", scores, w.numbers(allowed)), columns
    return _linear_scores(w, unit, centers, model.precision, model.log_shares), columns


def _expanded(w: _Writer, X: str, levels: tuple[int, ...]) -> str:
    """Numbers, then an indicator for each level of each category; NaN equals no level."""
    from onnx import TensorProto

    if not any(levels):
        return X
    parts = []
    numbers = [j for j, size in enumerate(levels) if not size]
    if numbers:
        parts.append(w("Gather", X, w.integers(numbers), axis=1))
    which = [j for j, size in enumerate(levels) for _ in range(size)]
    level = np.concatenate([np.arange(size) for size in levels])
    found = w("Equal", w("Gather", X, w.integers(which), axis=1), w.numbers(level))
    parts.append(w("Cast", found, to=TensorProto.DOUBLE))
    return w("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def _unit_rows(w: _Writer, rows: str) -> str:
    """Rows of length 1; a zero row stays zero."""
    square = w("ReduceSum", w("Mul", rows, rows), w.integers([1]), keepdims=1)
    return w("Div", rows, w("Sqrt", w("Max", square, w.numbers(np.finfo(np.float64).tiny))))


def _linear_scores(w: _Writer, Z: str, means: Array, precision: Array, log_shares: Array) -> str:
    """Log of share times density of each cluster, all cells filled, but for a row's constant; (n, r) -> (n, k)."""
    V = precision @ means.T
    c = log_shares - 0.5 * (means.T * V).sum(axis=0)
    return w("Add", w("MatMul", Z, w.numbers(V)), w.numbers(c))


# --------------------------------------------------------------------------------------------------- mixture view


def _mixture_scores(w: _Writer, X: str, model: MixtureModel) -> tuple[str, int | str]:
    """Log of share times density of each cluster but for a row's constant; and the number of columns of X."""
    frame = model.frame
    levels = () if frame.levels is None else tuple(int(size) for size in frame.levels)
    precision = np.linalg.inv(model.covariance)
    precision = (precision + precision.T) / 2
    if frame.axes is not None:
        rows = _expanded(w, X, levels)
        columns: int | str = len(levels) or len(frame.axes)
        if frame.keep is not None:
            rows, columns = w("Gather", rows, w.integers(frame.keep), axis=1), "features"
        if frame.shift is not None:
            rows = w("Sub", rows, w.numbers(frame.shift))
        if frame.stretch is not None:
            rows = w("Div", rows, w.numbers(frame.stretch))
        rows = w("Where", w("IsNaN", rows), w.numbers(0.0), rows)
        if frame.keep is not None:
            rows = _unit_rows(w, rows)
        Z = w("MatMul", rows, w.numbers(frame.axes))
        if frame.origin is not None:
            Z = w("Sub", Z, w.numbers(frame.origin))
        return _linear_scores(w, Z, model.means, precision, model.log_shares), columns
    r = model.means.shape[1]
    columns = len(levels) or r
    shape = w("Concat", w("Shape", X, start=0, end=1), w.integers([model.k]), axis=0)
    scores = w("Expand", w.numbers(model.log_shares[None]), shape)
    if r:
        numbers = [j for j, size in enumerate(levels) if not size]
        Z = w("Gather", X, w.integers(numbers), axis=1) if any(levels) else X
        if frame.shift is not None:
            Z = w("Sub", Z, w.numbers(frame.shift[:r]))
        if frame.stretch is not None:
            Z = w("Div", Z, w.numbers(frame.stretch[:r]))
        flat = np.zeros(model.k)
        whole = _linear_scores(w, Z, model.means, precision, flat)
        scores = w("Add", scores, _with_missing(w, Z, whole, model.means, model.covariance))
    if any(levels):
        scores = w("Add", scores, _category_scores(w, X, levels, model.profiles))
    return scores, columns


def _anchor_scores(w: _Writer, X: str, model: AnchorModel) -> tuple[str, int | str]:
    """Minus half the squared distance to the nearest anchor of each cluster, in units of its width."""
    from onnx import TensorProto

    levels = () if model.levels is None else tuple(int(size) for size in model.levels)
    columns = len(levels) or len(model.low)
    numbers = w("Gather", X, w.integers([j for j, size in enumerate(levels) if not size]), axis=1) if levels else X
    middle, half = model.low / 2 + model.high / 2, model.high / 2 - model.low / 2
    Z = w("Div", w("Sub", numbers, w.numbers(middle)), w.numbers(half))
    Z = w("Clip", w("Where", w("IsNaN", Z), w.numbers(0.0), Z), w.numbers(-1.0), w.numbers(1.0))
    parts = [Z]
    for j, size in enumerate(levels):
        if size:
            code = w("Gather", X, w.integers([j]), axis=1)
            parts.append(w("Cast", w("Equal", code, w.numbers(np.arange(float(size))[None])), to=TensorProto.DOUBLE))
    Z = w("Concat", *parts, axis=1) if len(parts) > 1 else Z
    Z = w("Sub", w("Mul", Z, w.numbers(columns**-0.5)), w.numbers(model.mean))
    Y = w("Div", Z, w("Max", w("ReduceL2", Z, axes=[1], keepdims=1), w.numbers(model.radius)))
    E = w("MatMul", Y, w.numbers(model.basis))
    E = w("Div", E, w("Max", w("ReduceL2", E, axes=[1], keepdims=1), w.numbers(model.size)))
    precision = np.eye(len(model.basis[0])) if model.precision is None else model.precision
    V = precision @ model.anchors.T
    own = w("ReduceSum", w("Mul", w("MatMul", E, w.numbers(precision)), E), w.integers([1]), keepdims=1)
    gap = w("Add", w("Sub", own, w("MatMul", E, w.numbers(2 * V))), w.numbers((model.anchors.T * V).sum(axis=0)))
    each = []
    for cluster in range(model.k):
        mine = np.flatnonzero(model.clusters == cluster)
        if len(mine):
            near = w("ReduceMin", w("Gather", gap, w.integers(mine), axis=1), axes=[1], keepdims=1)
            each.append(w("Max", near, w.numbers(0.0)))
        else:
            each.append(w("Add", w("Mul", own, w.numbers(0.0)), w.numbers(NO_ANCHOR)))
    squares = w("Concat", *each, axis=1)
    if model.precision is None:
        scores = w("Mul", squares, w.numbers(-0.5 / model.width**2))
    else:
        scores = w("Add", w("Mul", squares, w.numbers(-0.5)), w.numbers(model.log_shares))
    zeros = w("Mul", w("Where", w("IsNaN", X), w.numbers(0.0), X), w.numbers(0.0))  # NaN where a cell is infinite
    return w("Add", scores, w("ReduceSum", zeros, w.integers([1]), keepdims=1)), columns


def _category_scores(w: _Writer, X: str, levels: tuple[int, ...], profiles: Array) -> str:
    """Log-probability of the categories of each row under each cluster; a missing one adds 0; (n, d) -> (n, k)."""
    from onnx import TensorProto

    sizes = np.array([size for size in levels if size])
    starts = np.cumsum([0, *sizes])[:-1]
    padded = np.vstack([np.log(profiles).T, np.zeros((1, len(profiles)))])
    codes = w("Gather", X, w.integers([j for j, size in enumerate(levels) if size]), axis=1)
    known = w("And", w("GreaterOrEqual", codes, w.numbers(0.0)), w("Less", codes, w.numbers(sizes)))
    inside = w("Cast", w("Where", known, codes, w.numbers(0.0)), to=TensorProto.INT64)
    place = w("Where", known, w("Add", inside, w.integers(starts)), w.integers(len(padded) - 1))
    return w("ReduceSum", w("Gather", w.numbers(padded), place, axis=0), w.integers([1]), keepdims=0)


def _with_missing(w: _Writer, Z: str, whole: str, means: Array, covariance: Array) -> str:
    """The scores of complete rows, with those of rows with missing numbers put in their places.

    The filled cells o of a row have the score ``-(z - m_j)_oᵀ (S_oo)⁻¹ (z - m_j)_o / 2``. Gaussian elimination finds it
    with plain operators: where a cell is missing, row and column of S are those of the unit matrix and the entry of
    z - m_j is 0. In step p all that remains of ``[S | z - m_1, ..., z - m_k]`` loses its part along coordinate p, and
    the squared entries of row p over the pivot add up to the form. As stable as a Cholesky factor. One loop goes over
    blocks of rows, one over coordinates.
    """
    from onnx import TensorProto

    count = w("ReduceSum", w("Cast", w("IsNaN", Z), to=TensorProto.INT64), w.integers([1]), keepdims=0)
    which = w("Squeeze", w("NonZero", count), w.integers([0]))
    rows = w("Gather", Z, which, axis=0)
    blocks = w("Div", w("Add", w("Size", which), w.integers(BLOCK - 1)), w.integers(BLOCK))
    empty = w.numbers(np.zeros((0, len(means))))
    found = w("Loop", blocks, "", empty, body=_block_graph(rows, means, covariance))
    return w("ScatterND", whole, w("Unsqueeze", which, w.integers([1])), found)


def _block_graph(rows: str, means: Array, covariance: Array) -> Any:
    """Body of the loop over blocks of rows with missing numbers; appends their scores to those found before."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    k, r = means.shape
    w = _Writer("block_")
    begin = w("Mul", "block", w.integers([BLOCK]))
    Z = w("Slice", rows, begin, w("Add", begin, w.integers([BLOCK])), w.integers([0]))
    hole = w("IsNaN", Z)
    filled = w("Cast", w("Not", hole), to=TensorProto.DOUBLE)
    across, down = w("Unsqueeze", filled, w.integers([1])), w("Unsqueeze", filled, w.integers([2]))
    missing = w("Sub", w.numbers(1.0), down)
    S = w("Mul", w("Mul", w.numbers(covariance), across), down)
    S = w("Add", S, w("Mul", missing, w.numbers(np.eye(r))))
    known = w("Unsqueeze", w("Where", hole, w.numbers(0.0), Z), w.integers([2]))
    gaps = w("Mul", w("Sub", known, w.numbers(means.T)), down)
    state = w("Concat", S, gaps, axis=2)
    form = w("ReduceSum", w("Mul", gaps, w.numbers(0.0)), w.integers([1]), keepdims=0)
    steps = helper.make_node(
        "Loop", [w.integers(r), "", state, form], ["block_left", "block_form"], body=_step_graph(r, k)
    )
    w.nodes.append(steps)
    w("Concat", "found", w("Mul", "block_form", w.numbers(-0.5)), into="found_next", axis=0)
    w("Identity", "block_go", into="block_go_next")
    return helper.make_graph(
        w.nodes,
        "one_block",
        [
            value("block", TensorProto.INT64, []),
            value("block_go", TensorProto.BOOL, []),
            value("found", TensorProto.DOUBLE, None),
        ],
        [value("block_go_next", TensorProto.BOOL, []), value("found_next", TensorProto.DOUBLE, None)],
        w.stored,
    )


def _step_graph(r: int, k: int) -> Any:
    """Body of the loop over coordinates: one step of the elimination."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    w = _Writer("step_")
    row = w("Gather", "step_state", "step", axis=1)
    scaled = w("Div", row, w("Gather", row, w("Unsqueeze", "step", w.integers([0])), axis=1))
    factor = w("Slice", row, w.integers([0]), w.integers([r]), w.integers([1]))
    outer = w("Mul", w("Unsqueeze", factor, w.integers([2])), w("Unsqueeze", scaled, w.integers([1])))
    w("Sub", "step_state", outer, into="next_state")
    ends = w.integers([r]), w.integers([r + k]), w.integers([1])
    w("Add", "step_form", w("Mul", w("Slice", row, *ends), w("Slice", scaled, *ends)), into="next_form")
    w("Identity", "step_go", into="next_go")
    return helper.make_graph(
        w.nodes,
        "one_coordinate",
        [
            value("step", TensorProto.INT64, []),
            value("step_go", TensorProto.BOOL, []),
            value("step_state", TensorProto.DOUBLE, None),
            value("step_form", TensorProto.DOUBLE, None),
        ],
        [
            value("next_go", TensorProto.BOOL, []),
            value("next_state", TensorProto.DOUBLE, None),
            value("next_form", TensorProto.DOUBLE, None),
        ],
        w.stored,
    )


__all__ = ["export_onnx"]
