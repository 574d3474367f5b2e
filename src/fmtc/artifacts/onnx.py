"""One client's model as an ONNX file, for programs without fmtc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..models import ClientModel
from .files import write_file

if TYPE_CHECKING:
    from ..estimator import FMTC

Array = np.ndarray

OPSET = 17
BLOCK = 16  # rows with missing numbers that a mixture works on at a time: r x (r + k) numbers for each of them

INVALID = "a row that has no answer (infinity, or NaN where no cell may be missing) gets label -1 and probability NaN"


def export_onnx(model: FMTC, silo: str, path: str | Path, *, dtype: Any = np.float32) -> Path:
    """Write one silo's model as plain ONNX operators, of either view.

    Input ``X`` (rows x features, categories as codes of `schema_`, NaN where cells are missing); outputs ``label``
    (int64) and ``probability``. Needs ``pip install 'fmtc[onnx]'``.

    Parameters
    ----------
    model : FMTC
        Fitted.
    silo : str
        One of `silos_`.
    path : path
        File to write.
    dtype : float32 or float64
        Precision of input and probabilities. Arithmetic is in double precision either way: a label should not depend
        on it.

    Returns
    -------
    Path
    """
    check_is_fitted(model)
    return write_onnx(model._model_of(silo), Path(path), dtype)


def write_onnx(model: ClientModel, path: Path, dtype: Any = np.float32) -> Path:
    """Write one model; see `export_onnx`."""
    w = Writer()
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    kind = "FLOAT" if dtype == np.float32 else "DOUBLE"
    drawn = model.onnx(w, w.cast("X", "DOUBLE") if dtype == np.float32 else "X")
    P = w("Softmax", drawn.scores, axis=1)
    wrong = w("IsNaN", w("ReduceSum", P, w.integers([1]), keepdims=0))
    w("Where", wrong, w.integers(-1), w("ArgMax", drawn.scores, axis=1, keepdims=0), into="label")
    answer = w("Where", w("Unsqueeze", wrong, w.integers([1])), w.numbers(np.nan), P)
    w.cast(answer, kind, into="probability")
    asked = [w.value("X", kind, ["rows", drawn.columns])]
    answers = [w.value("label", "INT64", ["rows"]), w.value("probability", kind, ["rows", model.k])]
    helper = w.onnx.helper
    proto = helper.make_model(
        w.graph("fmtc", asked, answers), opset_imports=[helper.make_opsetid("", OPSET)], producer_name="fmtc",
        producer_version=__version__, ir_version=9,
    )  # fmt: skip
    about = {"view": model.kind, "missing": drawn.missing, "invalid": INVALID}
    if drawn.levels:
        about["levels"] = ",".join(map(str, drawn.levels))
        about["categories"] = "levels: of each column, 0 for numbers; a category is the number of its level, from 0"
    helper.set_model_props(proto, about)
    w.onnx.checker.check_model(proto)
    write_file(path, proto.SerializeToString())
    return path


class Writer:
    """Nodes and constants of a graph. A call adds a node and returns the name of its output."""

    def __init__(self, prefix: str = "") -> None:
        try:
            import onnx
        except ImportError as error:
            raise ImportError("writing ONNX files needs the onnx package: pip install 'fmtc[onnx]'") from error
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self.prefix = prefix

    def __call__(self, operator: str, *inputs: str, into: str | None = None, **attributes: Any) -> str:
        """Add a node, whose output is called `into` if that is given."""
        name = into or f"{self.prefix}{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def cast(self, array: str, kind: str, into: str | None = None) -> str:
        """An array in numbers of another kind, such as ``"DOUBLE"``."""
        return self("Cast", array, into=into, to=getattr(self.onnx.TensorProto, kind))

    def value(self, name: str, kind: str, shape: list[Any] | None) -> Any:
        """What goes into a graph or comes out of it."""
        return self.onnx.helper.make_tensor_value_info(name, getattr(self.onnx.TensorProto, kind), shape)

    def graph(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        """All nodes and constants, as a graph."""
        return self.onnx.helper.make_graph(self.nodes, name, inputs, outputs, self.stored)

    def numbers(self, array: Any) -> str:
        """A constant in double precision; one in single precision is stored as such and cast."""
        array = np.asarray(array)
        if array.dtype == np.float32:
            return self.cast(self._constant(array), "DOUBLE")
        return self._constant(array.astype(np.float64))

    def integers(self, array: Any) -> str:
        """A constant of 64-bit integers."""
        return self._constant(np.asarray(array, dtype=np.int64))

    def _constant(self, array: Array) -> str:
        name = f"{self.prefix}constant_{len(self.stored)}"
        array = np.array(array, order="C")  # keeps a scalar a scalar
        self.stored.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    # ------------------------------------------------------------------------------------------------- rows

    def expanded(self, X: str, levels: tuple[int, ...]) -> str:
        """Numbers, then an indicator for each level of each category; NaN equals no level."""
        if not any(levels):
            return X
        numbers = [j for j, size in enumerate(levels) if not size]
        found = self.indicators(X, levels)
        return self("Concat", self("Gather", X, self.integers(numbers), axis=1), found, axis=1) if numbers else found

    def indicators(self, X: str, levels: tuple[int, ...]) -> str:
        """An indicator for each level of each category."""
        which = [j for j, size in enumerate(levels) for _ in range(size)]
        level = np.concatenate([np.arange(size) for size in levels])
        found = self("Equal", self("Gather", X, self.integers(which), axis=1), self.numbers(level))
        return self.cast(found, "DOUBLE")

    def unit_rows(self, rows: str) -> str:
        """Rows of length 1; a zero row stays zero."""
        square = self("ReduceSum", self("Mul", rows, rows), self.integers([1]), keepdims=1)
        return self("Div", rows, self("Sqrt", self("Max", square, self.numbers(np.finfo(np.float64).tiny))))

    # ------------------------------------------------------------------------------------------ densities of rows

    def linear_scores(self, Z: str, means: Array, precision: Array, log_shares: Array) -> str:
        """Log of share times density of each cluster, all cells filled, but for a row's constant; (n, r) -> (n, k)."""
        V = precision @ means.T
        c = log_shares - 0.5 * (means.T * V).sum(axis=0)
        return self("Add", self("MatMul", Z, self.numbers(V)), self.numbers(c))

    def category_scores(self, X: str, levels: tuple[int, ...], profiles: Array) -> str:
        """Log-probability of the categories of each row under each cluster; a missing one adds 0; (n, d) -> (n, k)."""
        sizes = np.array([size for size in levels if size])
        starts = np.cumsum([0, *sizes])[:-1]
        padded = np.vstack([np.log(profiles).T, np.zeros((1, len(profiles)))])
        codes = self("Gather", X, self.integers([j for j, size in enumerate(levels) if size]), axis=1)
        known = self("And", self("GreaterOrEqual", codes, self.numbers(0.0)), self("Less", codes, self.numbers(sizes)))
        inside = self.cast(self("Where", known, codes, self.numbers(0.0)), "INT64")
        place = self("Where", known, self("Add", inside, self.integers(starts)), self.integers(len(padded) - 1))
        return self("ReduceSum", self("Gather", self.numbers(padded), place, axis=0), self.integers([1]), keepdims=0)

    def with_missing(self, Z: str, whole: str, means: Array, covariance: Array) -> str:
        """The scores of complete rows, with those of rows with missing numbers put in their places.

        The filled cells o of a row have the score ``-(z - m_j)_oᵀ (S_oo)⁻¹ (z - m_j)_o / 2``. Gaussian elimination
        finds it with plain operators: where a cell is missing, row and column of S are those of the unit matrix and the
        entry of z - m_j is 0. In step p all that remains of ``[S | z - m_1, ..., z - m_k]`` loses its part along
        coordinate p, and the squared entries of row p over the pivot add up to the form. As stable as a Cholesky
        factor. A loop goes over blocks of rows; the steps stand one after the other.
        """
        count = self("ReduceSum", self.cast(self("IsNaN", Z), "INT64"), self.integers([1]), keepdims=0)
        which = self("Squeeze", self("NonZero", count), self.integers([0]))
        rows = self("Gather", Z, which, axis=0)
        blocks = self("Div", self("Add", self("Size", which), self.integers(BLOCK - 1)), self.integers(BLOCK))
        empty = self.numbers(np.zeros((0, len(means))))
        found = self("Loop", blocks, "", empty, body=_block_graph(rows, means, covariance))
        return self("ScatterND", whole, self("Unsqueeze", which, self.integers([1])), found)


def _block_graph(rows: str, means: Array, covariance: Array) -> Any:
    """Body of the loop over blocks of rows with missing numbers; appends their scores to those found before."""
    k, r = means.shape
    w = Writer("block_")
    begin = w("Mul", "block", w.integers([BLOCK]))
    Z = w("Slice", rows, begin, w("Add", begin, w.integers([BLOCK])), w.integers([0]))
    hole = w("IsNaN", Z)
    filled = w.cast(w("Not", hole), "DOUBLE")
    across, down = w("Unsqueeze", filled, w.integers([1])), w("Unsqueeze", filled, w.integers([2]))
    missing = w("Sub", w.numbers(1.0), down)
    S = w("Mul", w("Mul", w.numbers(covariance), across), down)
    S = w("Add", S, w("Mul", missing, w.numbers(np.eye(r))))
    known = w("Unsqueeze", w("Where", hole, w.numbers(0.0), Z), w.integers([2]))
    gaps = w("Mul", w("Sub", known, w.numbers(means.T)), down)
    state = w("Concat", S, gaps, axis=2)
    form = w("ReduceSum", w("Mul", gaps, w.numbers(0.0)), w.integers([1]), keepdims=0)
    left, right = (w.integers([0]), w.integers([r])), (w.integers([r]), w.integers([r + k]))
    columns = w.integers([1])
    for p in range(r):  # steps of the elimination
        row = w("Gather", state, w.integers(p), axis=1)
        scaled = w("Div", row, w("Gather", row, w.integers([p]), axis=1))
        factor = w("Slice", row, *left, columns)
        outer = w("Mul", w("Unsqueeze", factor, w.integers([2])), w("Unsqueeze", scaled, columns))
        state = w("Sub", state, outer)
        form = w("Add", form, w("Mul", w("Slice", row, *right, columns), w("Slice", scaled, *right, columns)))
    w("Concat", "found", w("Mul", form, w.numbers(-0.5)), into="found_next", axis=0)
    w("Identity", "block_go", into="block_go_next")
    before = [w.value("block", "INT64", []), w.value("block_go", "BOOL", []), w.value("found", "DOUBLE", None)]
    after = [w.value("block_go_next", "BOOL", []), w.value("found_next", "DOUBLE", None)]
    return w.graph("one_block", before, after)


__all__ = ["Writer", "export_onnx", "write_onnx"]
