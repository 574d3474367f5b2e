"""Who takes part in a federation: the plan in `federation.toml`."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...artifacts.files import check_form
from ...errors import FileError, KitError

NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"  # of a host name, between two dots
HOST = re.compile(rf"(?=.{{1,252}}$){_LABEL}([.]{_LABEL})*")
ASK_FOR_ANOTHER = "ask the organiser of the federation for a new one (`fmtc federation request` makes the request)"
RESERVED = ("coordinator", "authority")  # folders that `provision` makes beside the silos' kits


@dataclass(frozen=True)
class Plan:
    """Who takes part, and where they meet.

    Parameters
    ----------
    name : str
        Name of the federation.
    host, port : str, int
        Where the silos reach the coordinator.
    silos : tuple of str
        Names of the silos.
    lost_after : float
        Seconds without a sign of life after which a silo counts as lost.

    Examples
    --------
    >>> Plan("study", "coordinator.example.org", 8002, ("north", "south")).sites
    {'north': 'silo-north', 'south': 'silo-south'}
    """

    name: str
    host: str
    port: int
    silos: tuple[str, ...]
    lost_after: float = 30.0

    def __post_init__(self) -> None:
        if not (isinstance(self.host, str) and HOST.fullmatch(self.host)):
            raise KitError(f"host {self.host!r} is neither a host name nor an IPv4 address")
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise KitError(f"port must be a whole number from 1 to 65535, got {self.port!r}")
        if not (isinstance(self.lost_after, int | float) and 5 <= self.lost_after < float("inf")):
            raise KitError(f"lost_after must be a number of at least 5 seconds, got {self.lost_after!r}")
        self._check_names()

    def _check_names(self) -> None:
        for what, name in [("name", self.name), *(("silo", silo) for silo in self.silos)]:
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                raise KitError(f"{what} {name!r}: a name has 1 to 50 characters, each a letter, a digit, - or _")
        lower = [silo.lower() for silo in self.silos]
        twice = sorted({silo for silo in self.silos if lower.count(silo.lower()) > 1})
        if twice:
            raise KitError(f"silo {', '.join(map(repr, twice))} is named more than once; give each silo its own name")
        reserved = [silo for silo in self.silos if silo.lower() in RESERVED]
        if reserved:
            raise KitError(f"silo {reserved[0]!r}: a folder beside the kits has this name; choose another one")
        if not self.silos:
            raise KitError('no silo is named; write, for example, silos = ["north", "south"]')

    @property
    def sites(self) -> dict[str, str]:
        """FLARE's name of each silo. The prefix keeps FLARE from reading it as a number, a boolean or its server."""
        return {silo: f"silo-{silo}" for silo in self.silos}

    @property
    def dialled_here(self) -> str:
        """Where the coordinator's own session dials: its machine may not know the name that silos use."""
        return self.host if is_loopback(self.host) else "127.0.0.1"


def organisation(silo: str) -> str:
    """The organisation that FLARE's certificate of a silo names; never a number or a boolean."""
    return "org_" + silo.replace("-", "_")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, under a name that no other machine can reach."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def plan_in(what: Path | str, document: Any) -> Plan:
    """The plan in a part of a document that was read from JSON; raises `FileError` where it is damaged."""
    check_form(what, document, {"name": str, "host": str, "port": int, "silos": [str], "lost_after?": float}, "plan")
    try:
        return Plan(**document | {"silos": tuple(document["silos"])})
    except (KitError, TypeError) as error:
        raise FileError(f"{what} is damaged: {error}") from None


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file; raises `KitError` where it cannot be used."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KitError(f"{path} does not exist; `fmtc federation init -h` shows what to write there") from None
    except (OSError, ValueError, RecursionError) as error:
        raise KitError(f"{path} is not TOML: {error}") from None
    known = {"name", "host", "port", "silos", "lost_after"}
    unknown, missing = sorted(set(document) - known), sorted(known - {"lost_after"} - set(document))
    if unknown or missing:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has the unknown {', '.join(unknown)}"] if unknown else []
        raise KitError(f"{path} {' and '.join(wrong)}; it needs name, host, port and silos, and may have lost_after")
    if not isinstance(document["silos"], list):
        raise KitError(f'{path}: silos must be a list of names, such as ["north", "south"], got {document["silos"]!r}')
    return Plan(**document | {"silos": tuple(document["silos"])})
