"""A published kit as a folder: what a newcomer needs to join later, as JSON and one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..kernels.encoding import expanded_width
from ..models.shared import Published
from ..schema import Schema
from ..tables import TextRecipe
from .files import (
    COUNT,
    check_form,
    check_schema,
    new_folder,
    read_json,
    read_tensors,
    well_formed,
    write_json,
    write_tensors,
)
from .models import TEXT, columns_of, portable, read_columns
from .states import flatten, unflatten

KIT_FORMAT = 1
KIT_FILE = "join.json"
KIT_ARRAYS = "join.safetensors"
AT_HOME = ("random_state", "n_jobs", "device", "verbose", "privacy")  # not for others to know or set

# What a reader relies on in join.json, in the language of `check_form`.
KIT = {
    "params": {"n_clusters": COUNT},
    "silos": COUNT,
    "n_features_in": COUNT,
    "feature_names_in": ([str], None),
    "columns": (dict, None),
    "text": TEXT,
    "concepts": [{"number": COUNT, "name": str}],
    "common": dict,
}


@dataclass(frozen=True, eq=False)
class JoinKit:
    """What a folder of `write_kit` holds."""

    published: Published
    params: Mapping[str, Any]  # of `FMTC` and of its views, side by side
    n_features: int
    feature_names: tuple[str, ...] | None = None
    schema: Schema | None = None
    text: TextRecipe | None = None
    names: Mapping[int, str] = field(default_factory=dict)  # that were given to concepts

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of the columns that are categories, 0 for numbers; empty where all are numbers."""
        return () if self.schema is None or self.schema.is_plain else self.schema.levels


def write_kit(path: Path, kit: JoinKit, *, overwrite: bool = False) -> Path:
    """Write a kit to a folder, completely or not at all."""
    arrays, rest = flatten(kit.published)
    params = {name: value for name, value in portable(kit.params).items() if name not in AT_HOME}
    about = {
        "kind": "fmtc join kit",
        "schema": KIT_FORMAT,
        "silos": kit.published.n_silos,
        "params": params,
        "n_features_in": kit.n_features,
        **columns_of(kit.feature_names, kit.schema, kit.text),
        "concepts": [{"number": j, "name": kit.names.get(j, "")} for j in range(kit.published.n_clusters)],
        "common": rest,
    }
    with new_folder(path, overwrite=overwrite) as folder:
        write_json(folder / KIT_FILE, about)
        write_tensors(folder / KIT_ARRAYS, arrays, {"kind": "fmtc join kit", "schema": KIT_FORMAT})
    return path


def is_kit(path: Path) -> bool:
    """Whether `write_kit` wrote this folder."""
    return (path / KIT_FILE).is_file() and (path / KIT_ARRAYS).is_file()


def read_kit(path: str | Path) -> JoinKit:
    """Read what `write_kit` wrote, or raise a `FileError` that says what is wrong."""
    folder = Path(path)
    file, other = folder / KIT_FILE, folder / KIT_ARRAYS
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder; a kit to join with is a folder that contains {KIT_FILE}")
    about = read_json(file)
    check_schema(file, about, "fmtc join kit", KIT_FORMAT)
    check_form(file, about, KIT)
    arrays, described = read_tensors(other)
    check_schema(other, described, "fmtc join kit", KIT_FORMAT)
    d, n_clusters = about["n_features_in"], about["params"]["n_clusters"]
    names, schema, text = read_columns(file, about, d)
    levels = () if schema is None or schema.is_plain else schema.levels
    with well_formed(other):
        published: Published = unflatten(Published, arrays, about["common"])
        fits = published.fits(expanded_width(levels, d)) and published.n_clusters == n_clusters
    if not fits:
        raise FileError(f"{other} is damaged: its arrays do not have the shapes that {KIT_FILE} says")
    return JoinKit(
        published,
        about["params"],
        d,
        None if names is None else tuple(names),
        schema,
        text,
        {line["number"]: line["name"] for line in about["concepts"] if line["name"]},
    )


__all__ = ["JoinKit", "is_kit", "read_kit", "write_kit"]
