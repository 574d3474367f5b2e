"""What is known of each data set without reading it: TOML files in ``facts/``, one for each module."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.resources import files
from typing import Any

from .base import Archive, Source

Code = tuple[Callable[..., Any], Callable[..., None] | None]  # how a set is read, and made from its archives


def text_beside(package: str, name: str) -> str:
    """A text file that lies beside the code of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def facts(name: str) -> dict[str, dict[str, Any]]:
    """Entries of a file by name; an entry that is `like` another has what it does not say itself from there."""
    found: dict[str, dict[str, Any]] = tomllib.loads(text_beside(__package__, f"facts/{name}.toml"))
    for entry in found.values():
        for key, value in found.get(entry.pop("like", ""), {}).items():
            entry.setdefault(key, value)
    return found


def source(name: str, about: Mapping[str, Any], code: Code) -> Source:
    """A source from its entry; what is no field of `Source` is for the code that reads it."""
    read, convert = code
    known = {f.name for f in fields(Source)}
    given = {"folder": name} | {key: value for key, value in about.items() if key in known}
    given["files"] = tuple(given["files"])
    given["archives"] = tuple(Archive(**archive) for archive in about.get("archives", ()))
    return Source(name=name, read=read, convert=convert, **given)
