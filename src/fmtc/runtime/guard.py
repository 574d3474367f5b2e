"""What may arrive: each message is held against what its phase may carry, before anything computes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import RefusedError
from ..steps import Downlink, Uplink

Array = np.ndarray

# What a phase may carry; a field in brackets may be left out.
UPLINKS = {
    "survey": ("n_samples", "columns", "[aliases]", "kinds", "counts", "missing", "means", "squares", "negatives"),
    "verdict": (),
    "moments": ("n_samples", "[means]", "[squares]", "[document_counts]"),
    "rescale": (),
    "hello": ("n_samples", "n_features", "energy"),
    "prepare": (),
    "round": ("W", "cut", "misfit"),
    "finish": ("centers",),
    "gather": ("sums",),
    "number": (),
    "score": ("score",),
    "end": (),
}
DOWNLINKS = {
    "survey": (),
    "verdict": ("findings",),
    "moments": (),
    "rescale": ("[shift]", "[stretch]", "[keep]"),
    "hello": ("[weights]",),
    "prepare": ("scale", "ridge"),
    "round": ("guide", "[rotation]"),
    "finish": ("[rotation]",),
    "gather": ("centers",),
    "number": ("order", "[centers]"),
    "score": (),
    "end": ("converged",),
}
TRIED = ("hello", "prepare", "round", "finish", "gather", "number", "score")  # phases of a trial


def check_downlink(message: Downlink, d: int, k: int) -> None:
    """Refuse what a client of d features and k clusters cannot have been sent.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.runtime.guard import check_downlink
    >>> from fmtc.steps import Downlink
    >>> check_downlink(Downlink("round", round_no=1, guide=np.zeros((5, 3))), d=5, k=3)
    >>> check_downlink(Downlink("round", round_no=1, guide=np.zeros((5, 2))), d=5, k=3)
    Traceback (most recent call last):
    ...
    fmtc.errors.RefusedError: guide has shape (5, 2), not (5, 3)
    """
    if message.phase not in DOWNLINKS:
        raise RefusedError(f"phase {message.phase!r} is not known here")
    _check_fields(message, message.phase, DOWNLINKS, {"phase", "round_no", "last_round", "trial"})
    if message.trial is not None:
        _check_count("trial", message.trial)
        if message.phase not in TRIED:
            raise RefusedError(f"{message.phase} is no part of a trial")
    for name in ("round_no", "last_round"):
        _check_count(name, getattr(message, name))
    if message.phase == "round" and not message.last_round < message.round_no:
        raise RefusedError(f"round {message.round_no} cannot follow round {message.last_round}")
    for name in ("scale", "ridge"):
        _check_number(name, getattr(message, name), above=0.0)
    _check_array("weights", message.weights, (d,))
    _check_array("guide", message.guide, (d, k))
    _check_array("rotation", message.rotation, (k, k))
    if message.rotation is not None:
        error = float(np.abs(message.rotation.T @ message.rotation - np.eye(k)).max())
        if error > 1e-3:
            raise RefusedError(f"rotation is not one: R'R differs from I by {error:.1e}")
    _check_array("centers", message.centers, (k, k))
    order = message.order
    if order is not None:
        _check_array("order", order, (k,), kinds="iu")
        if not np.array_equal(np.sort(order), np.arange(k)):
            raise RefusedError(f"order is not one of {k} clusters")
    for name in ("shift", "stretch"):
        _check_array(name, getattr(message, name), None)
    keep = message.keep
    if keep is not None:
        _check_array("keep", keep, None, kinds="iu")
        if not (keep.size and np.all(np.diff(keep) > 0) and keep[0] >= 0 and keep[-1] < d):
            raise RefusedError(f"keep does not name columns out of {d}, in order")
    if message.findings is not None:
        _check_findings(message.findings, d)
    if message.converged is not None and not isinstance(message.converged, bool):
        raise RefusedError("converged is neither true nor false")


def check_uplink(uplink: Uplink, asked: Downlink, k: int) -> None:
    """Refuse an answer that does not fit the message it answers."""
    if uplink.error is not None:
        if not (isinstance(uplink.error, str) and uplink.error.isidentifier() and len(uplink.error) < 100):
            raise RefusedError("error is not the name of a kind of error")
        if any(value is not None for name, value in vars(uplink).items() if name != "error"):
            raise RefusedError("an error comes alone")
        return
    _check_fields(uplink, asked.phase, UPLINKS, set())
    for name in ("n_samples", "n_features"):
        value = getattr(uplink, name)
        if value is not None:
            _check_count(name, value)
    _check_number("energy", uplink.energy, above=-1e-300)
    for name in ("cut", "misfit", "score"):
        _check_number(name, getattr(uplink, name))
    _check_array("W", uplink.W, () if asked.guide is None else asked.guide.shape)
    for name in ("centers", "sums"):
        _check_array(name, getattr(uplink, name), (k, k))
    if asked.phase == "survey":
        _check_survey(uplink)
    for name in ("means", "squares", "document_counts"):
        _check_array(name, getattr(uplink, name), None, kinds="fiu")


def _check_survey(uplink: Uplink) -> None:
    """Refuse what no columns can be like: all arrays are of one length, and counts add up."""
    from ..tables.columns import KINDS, LIMIT

    columns = uplink.columns
    if not (isinstance(columns, np.ndarray) and columns.ndim == 1 and columns.size):
        raise RefusedError("columns is no list of hashes")
    d = columns.size
    whole, real = ("counts", "missing", "negatives"), ("means", "squares")
    types = {"columns": "uint64", "aliases": "uint64", "kinds": "int8"}
    for name, kind in (types | dict.fromkeys(whole, "int64") | dict.fromkeys(real, "float64")).items():
        array = getattr(uplink, name)
        if array is not None and not (isinstance(array, np.ndarray) and array.dtype == kind and array.shape == (d,)):
            raise RefusedError(f"{name} is no array of {d} {kind}")
    n, counts, missing, negatives = uplink.n_samples, uplink.counts, uplink.missing, uplink.negatives
    means, squares, kinds = uplink.means, uplink.squares, uplink.kinds
    assert n is not None and counts is not None and missing is not None and negatives is not None
    assert means is not None and squares is not None and kinds is not None
    if len(np.unique(columns)) < d:
        raise RefusedError("columns holds a hash twice")
    if not ((kinds >= 0) & (kinds < len(KINDS))).all():
        raise RefusedError("kinds holds an unknown one")
    for name, low, value, high in (
        ("counts", 0, counts, n),
        ("missing", 0, missing, n - counts),
        ("negatives", 0, negatives, counts),
        ("means", -LIMIT, means, LIMIT),
        ("squares", 0, squares, 4 * LIMIT**2 * np.maximum(counts, 1)),
    ):
        if not ((low <= value) & (value <= high)).all():
            raise RefusedError(f"{name} is out of range")


def _check_findings(findings: Array, d: int) -> None:
    from ..tables.findings import CODES
    from ..tables.survey import WIDTH

    rows = len(findings) if isinstance(findings, np.ndarray) and findings.ndim == 2 else 0
    _check_array("findings", findings, (rows, WIDTH))
    code, column, place = findings[:, 0], findings[:, 2], findings[:, 3]
    if not (np.isin(code, range(len(CODES))) & np.isin(column, range(-1, d)) & (place >= -1)).all():
        raise RefusedError(f"findings are not about {d} columns")


def _check_fields(message: Any, phase: str, table: Mapping[str, tuple[str, ...]], always: set[str]) -> None:
    filled = {name for name, value in vars(message).items() if value is not None} - always
    allowed = {name.strip("[]") for name in table[phase]}
    needed = {name for name in table[phase] if not name.startswith("[")}
    if filled - allowed:
        raise RefusedError(f"{phase} carries no {', '.join(sorted(filled - allowed))}")
    if needed - filled:
        raise RefusedError(f"{phase} lacks {', '.join(sorted(needed - filled))}")


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise RefusedError(f"{name} is {type(value).__name__} {value!r}, not a whole number")


def _check_number(name: str, value: Any, above: float | None = None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating) or not np.isfinite(value):
        raise RefusedError(f"{name} is not a finite number")
    if above is not None and not value > above:
        raise RefusedError(f"{name} is {value!r}, out of range")


def _check_array(name: str, array: Any, shape: tuple[int, ...] | None, kinds: str = "f") -> None:
    """Refuse all but a finite array of this shape, or a vector of any length where it is None."""
    if array is None:
        return
    if not isinstance(array, np.ndarray):
        raise RefusedError(f"{name} is no array")
    if array.dtype.kind not in kinds or array.dtype.itemsize not in (4, 8):
        raise RefusedError(f"{name} holds {array.dtype}")
    if shape is None and array.ndim != 1:
        raise RefusedError(f"{name} has shape {array.shape}, and is no vector")
    if shape is not None and array.shape != shape:
        raise RefusedError(f"{name} has shape {array.shape}, not {shape}")
    if not np.isfinite(array).all():
        raise RefusedError(f"{name} holds NaN or infinity")


__all__ = ["RefusedError", "check_downlink", "check_uplink"]
