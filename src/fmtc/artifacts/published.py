"""A published kit as a folder: what a newcomer needs to join later, as JSON and one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..kernels.encoding import expanded_width
from ..models.shared import Published
from .files import COUNT, Kind, new_folder, read_json, read_tensors, well_formed, write_json, write_tensors
from .models import COLUMNS, KnownColumns, portable
from .states import flatten, unflatten

KIT = Kind("fmtc join kit", 1)
KIT_FILE = "join.json"
KIT_ARRAYS = "join.safetensors"
AT_HOME = ("random_state", "n_jobs", "device", "verbose", "privacy")  # not for others to know or set

# What a reader relies on in join.json, in the language of `check_form`.
FORM = COLUMNS | {
    "params": {"n_clusters": COUNT},
    "silos": COUNT,
    "concepts": [{"number": COUNT, "name": str}],
    "common": dict,
}


@dataclass(frozen=True, eq=False)
class JoinKit:
    """What a folder of `write_kit` holds."""

    published: Published
    params: Mapping[str, Any]  # of `FMTC` and of its views, side by side
    columns: KnownColumns
    names: Mapping[int, str] = field(default_factory=dict)  # that were given to concepts


def write_kit(path: Path, kit: JoinKit, *, overwrite: bool = False) -> Path:
    """Write a kit to a folder, completely or not at all."""
    arrays, rest = flatten(kit.published)
    params = {name: value for name, value in portable(kit.params).items() if name not in AT_HOME}
    about = {
        **KIT.head,
        "silos": kit.published.n_silos,
        "params": params,
        **kit.columns.to_dict(),
        "concepts": [{"number": j, "name": kit.names.get(j, "")} for j in range(kit.published.n_clusters)],
        "common": rest,
    }
    with new_folder(path, overwrite=overwrite) as folder:
        write_json(folder / KIT_FILE, about)
        write_tensors(folder / KIT_ARRAYS, arrays, KIT.head)
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
    about = read_json(file, FORM, kind=KIT)
    arrays, _ = read_tensors(other, KIT)
    columns = KnownColumns.read(file, about)
    levels = () if columns.schema is None or columns.schema.is_plain else columns.schema.levels
    with well_formed(other):
        published: Published = unflatten(Published, arrays, about["common"])
        fits = published.fits(expanded_width(levels, columns.number))
        fits = fits and published.n_clusters == about["params"]["n_clusters"]
    if not fits:
        raise FileError(f"{other} is damaged: its arrays do not have the shapes that {KIT_FILE} says")
    names = {line["number"]: line["name"] for line in about["concepts"] if line["name"]}
    return JoinKit(published, about["params"], columns, names)


__all__ = ["JoinKit", "is_kit", "read_kit", "write_kit"]
