"""A run, described once: the coordinator's command line writes it, and everybody else reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..artifacts.files import check_form, jsonable
from ..errors import RefusedError, TrustError
from ..protocol.method import Method, method_of, view_method

NAME = re.compile("[A-Za-z0-9_-]{1,64}")  # of runs; they name folders of silos
PREFLIGHT = ("no", "first", "only")
# What a silo is told of a run, in the language of `check_form`; the rest is the coordinator's alone.
OF_SILO = {"run": str, "method": str, "settings": dict, "preflight": str, "random_state": (int, None)}
OF_COORDINATOR = ("min_clients", "weights", "deadline", "wait", "accept_units", "client_ids")


@dataclass(frozen=True)
class RunSpec:
    """What is to be run, and how long to wait.

    Parameters
    ----------
    run_id : str
        Names the run in every message; the jobs that resume a run have the same.
    settings : Settings
        Of the method.
    folder : path
        Where the coordinator keeps checkpoint, events and result; nothing to a silo.
    min_clients : int, optional
        The run goes on while this many clients answer; all of them if left out.
    weights : mapping of client id to float, optional
        The paper's omega.
    deadline : float
        Seconds within which an answer must come.
    wait : float
        Seconds to wait for silos that are not there.
    preflight : {"no", "first", "only"}
        Compare the silos' columns: not at all, before the first round (a difference that would spoil the run ends it),
        or without a run.
    accept_units : bool
        Whether most columns of a client may be in other units than the others'.
    client_ids : mapping of silo to client id
        Where a client's id is not the name of its silo.
    random_state : int, optional
        What the seed in the settings was made from, for the silos' models to record.
    method_name : str
        Of a method of `fmtc.protocol.method.METHODS`; left out, FMTC in the view of the settings.
    """

    run_id: str
    settings: Any
    folder: Path = Path()
    min_clients: int | None = None
    weights: Mapping[str, float] | None = None
    deadline: float = 600.0
    wait: float = 600.0
    preflight: str = "no"
    accept_units: bool = False
    client_ids: Mapping[str, str] = field(default_factory=dict)
    random_state: int | None = None
    method_name: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.run_id, str) and NAME.fullmatch(self.run_id)):
            raise RefusedError(f"{self.run_id!r} is not the name of a run")
        if self.preflight not in PREFLIGHT:
            raise RefusedError(f"preflight must be one of {', '.join(PREFLIGHT)}, got {self.preflight!r}")
        if not self.method_name:
            object.__setattr__(self, "method_name", view_method(self.settings.view, self.settings.privacy).name)
        method_of(self.method_name)

    @cached_property
    def method(self) -> Method:
        """The method, of its name."""
        return method_of(self.method_name)

    def check_promise(self) -> None:
        """Refuse a run whose settings promise privacy while its method would send answers in the clear."""
        privacy = getattr(self.settings, "privacy", None)
        if privacy is not None and self.method is not view_method(self.settings.view, privacy):
            raise TrustError(
                f"the run says that it is private, but its method {self.method_name!r} keeps no such promise; nothing "
                "was sent."
            )

    def for_silo(self) -> dict[str, Any]:
        """What a silo is told, as JSON has it."""
        told = {"run": self.run_id, "method": self.method_name, "settings": asdict(self.settings)}
        document: dict[str, Any] = jsonable({**told, "preflight": self.preflight, "random_state": self.random_state})
        return document

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        rest = {name: getattr(self, name) for name in OF_COORDINATOR}
        return {**self.for_silo(), "folder": str(self.folder), **jsonable(rest)}

    @classmethod
    def from_dict(cls, document: Any, what: Any = "the run") -> RunSpec:
        """Undo `to_dict` or `for_silo`."""
        check_form(what, document, OF_SILO)
        settings = method_of(document["method"]).settings_type(**document["settings"])
        rest = {name: document[name] for name in OF_COORDINATOR if name in document}
        return cls(
            document["run"], settings, Path(document.get("folder", ".")), **rest, preflight=document["preflight"],
            random_state=document["random_state"], method_name=document["method"],
        )  # fmt: skip
