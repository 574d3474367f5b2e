"""Federated multi-task clustering: personalised clustering for data that may not move."""

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import FmtcError
    from .estimator import FMTC, advise
    from .later import join_later
    from .loading import load
    from .processes import federate
    from .report import write_report
    from .settings import Graph, Mixture, Privacy

__version__ = "0.1.0"

__all__ = [
    "FMTC",
    "FmtcError",
    "Graph",
    "Mixture",
    "Privacy",
    "advise",
    "federate",
    "join_later",
    "load",
    "write_report",
]


def lazy_names(package: str, /, **where: tuple[str, ...]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports its public names when they are first used (PEP 562).

    Modules of the package are found in the same way.

    Parameters
    ----------
    package : str
        Name of the package.
    **where
        Modules of the package, with ``__`` for a dot, and the public names that each of them defines.
    """
    modules = {name: f"{package}.{module.replace('__', '.')}" for module, names in where.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            value = getattr(import_module(modules[name]), name)
        elif name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        else:
            value = import_module(f"{package}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names


__getattr__, __dir__ = lazy_names(
    __name__,
    errors=("FmtcError",),
    estimator=("FMTC", "advise"),
    later=("join_later",),
    loading=("load",),
    processes=("federate",),
    report=("write_report",),
    settings=("Graph", "Mixture", "Privacy"),
)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet unless the program asks for more
