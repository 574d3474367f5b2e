"""States and models, dataclasses of arrays, as named arrays and a JSON-able rest: what files and checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

_SPARSE = ("data", "indices", "indptr")


def flatten(state: Any, above: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Named arrays and a JSON-able rest of a state.

    Its fields may be arrays, dense or sparse, mappings of arrays, and dataclasses of these.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from fmtc.artifacts.states import flatten
    >>> @dataclass
    ... class Server:
    ...     W: np.ndarray
    ...     turned: dict
    ...     round_no: int
    >>> arrays, rest = flatten(Server(np.zeros(2), {"a": np.ones(1)}, 3))
    >>> sorted(arrays), rest
    (['W', 'turned:a'], {'turned': {}, 'round_no': 3})
    """
    arrays: dict[str, np.ndarray] = {}
    rest: dict[str, Any] = {}
    for f in _saved(state):
        name, value = f"{above}{f.name}", getattr(state, f.name)
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif hasattr(value, "tocsr"):  # sparse; SciPy itself is slow to import, and few states need it
            csr = value.tocsr()
            arrays |= {f"{name}#{part}": getattr(csr, part) for part in _SPARSE}
            rest[f.name] = {"#": list(csr.shape)}
        elif is_dataclass(value):
            inner, values = flatten(value, f"{name}/")
            arrays |= inner
            rest[f.name] = {"": type(value).__name__, **values}
        elif isinstance(value, Mapping) and all(isinstance(item, np.ndarray) for item in value.values()):
            arrays |= {f"{name}:{key}": item for key, item in value.items()}
            rest[f.name] = {}
        else:
            rest[f.name] = value
    return arrays, rest


def _saved(kind: Any) -> list[Any]:
    """Fields of a dataclass that files hold: all but those declared with ``metadata={"saved": False}``."""
    return [f for f in fields(kind) if f.metadata.get("saved", True)]


def _named(kind: type, name: str) -> type:
    """The type itself or, where one has this name, the type derived from it."""
    derived: type
    for derived in kind.__subclasses__():
        found = derived if derived.__name__ == name else _named(derived, name)
        if found.__name__ == name:
            return found
    return kind


def unflatten(state: Any, arrays: Mapping[str, np.ndarray], rest: Mapping[str, Any], above: str = "") -> Any:
    """Undo `flatten`, given a state of the same type, or of one that the type named in `rest` was derived from.

    A field that is missing is an error, unless it was declared with ``metadata={"optional": True}``: it then came later
    than the file, and has its default.
    """
    kind = _named(state if isinstance(state, type) else type(state), rest.get("", ""))
    hints, values = get_type_hints(kind), {}
    for f in _saved(kind):
        name = f"{above}{f.name}"
        if name in arrays:
            values[f.name] = arrays[name]
        elif f.name in rest or not f.metadata.get("optional", False):
            values[f.name] = _value(rest[f.name], name, arrays, hints[f.name])
    return kind(**values)


def _value(value: Any, name: str, arrays: Mapping[str, np.ndarray], hint: Any) -> Any:
    """A field that is not one array, from what the rest has of it; its arrays have names that begin with its own."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, Mapping):
        return value
    if "#" in value:
        from scipy.sparse import csr_array

        return csr_array(tuple(arrays[f"{name}#{part}"] for part in _SPARSE), shape=tuple(value["#"]))
    if "" in value:
        inner = next(t for t in (hint, *get_args(hint)) if is_dataclass(t))
        return unflatten(inner, arrays, value, f"{name}/")
    return {key.partition(":")[2]: item for key, item in arrays.items() if key.startswith(f"{name}:")} or dict(value)
