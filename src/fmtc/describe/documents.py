"""Dataclasses as JSON has them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Self, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Document:
    """What is kept in a file of a run."""

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return built(cls, document)


def built(kind: Any, value: Any) -> Any:
    """What `asdict` and JSON made of a dataclass, or of what its fields hold, as that again; other names do not count.

    Examples
    --------
    >>> from fmtc.describe import Explanation
    >>> from fmtc.describe.documents import built
    >>> built(Explanation, {"clusters": [], "silos": {}, "likeness": {"a": [None]}, "notes": ["n"]}).likeness
    {'a': (None,)}
    """
    if is_dataclass(kind):
        make: Any = kind
        hints = get_type_hints(kind)
        return make(**{name: built(hint, value[name]) for name, hint in hints.items() if name in value})
    inside = get_args(kind)
    if get_origin(kind) is tuple:
        return tuple(built(inside[0], item) for item in value)
    if get_origin(kind) is dict:
        return {key: built(inside[1], item) for key, item in value.items()}
    return value if value is None or not inside else built(inside[0], value)  # something | None


__all__ = ["Document", "built"]
