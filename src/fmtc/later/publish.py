"""Models of runs, and what they publish for newcomers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..artifacts.files import read_json
from ..artifacts.models import JoinKit, KnownColumns
from ..artifacts.runs import CONSENSUS_REPORT
from ..errors import InputError
from ..estimator import FMTC, Fitted
from ..loading import load_run, read_settings
from ..models.shared import Shared
from ..runtime.conductor import read_record
from ..schema import Schema
from ..tables import TextRecipe


def _shared_of(model: FMTC) -> Shared:
    """What the silos of a model have in common, or an `InputError` that says why it is not known."""
    if any(own.is_public for own in model._models.values()):
        raise InputError("this is the model of a private run, which is public as it is: hand on its folder instead")
    shared = model._fitted.shared
    if shared is None:
        raise InputError(
            "this model does not know what its silos have in common: it is of one silo of a federation or of a "
            "newcomer, or was saved by an older version of fmtc; take the folder of the run, or of its coordinator"
        )
    return shared


def kit_of(model: FMTC, names: Mapping[int, str] | None = None) -> JoinKit:
    """What a newcomer gets of a fitted model."""
    shared = _shared_of(model)
    settings = replace(model._settings(), view=shared.view)  # as it was chosen
    given = {} if names is None else {int(j): str(name) for j, name in names.items()}
    unknown = [j for j in given if not 0 <= j < shared.n_clusters]
    if unknown:
        raise InputError(f"there is no cluster {unknown[0]} to name; there are {shared.n_clusters}, the first is 0")
    return JoinKit(
        shared.published(settings),
        model._params() | {"view": shared.view, "coupling": settings.coupling, "n_clusters": shared.n_clusters},
        KnownColumns.of(model),
        given,
    )


def open_run(path: Path, schema: Path | None = None, text_column: str | None = None) -> FMTC:
    """The model of a run or of a model folder; of a coordinator's, one that knows what its silos have in common only.

    Parameters
    ----------
    path : Path
    schema : Path, optional
        What the columns are, where the run does not know it.
    text_column : str, optional
        Of a coordinator's run of texts: the column of the texts at the silos.
    """
    leads = (path / "consensus.safetensors").is_file()
    model = _of_coordinator(path, text_column) if leads else load_run(path)
    if schema is not None:
        model.schema_ = Schema.read(schema)
        if len(model.schema_.columns) != model.n_features_in_:
            raise InputError(f"{schema} is of {len(model.schema_.columns)} columns, {path} of {model.n_features_in_}")
    return model


def _of_coordinator(path: Path, text_column: str | None) -> FMTC:
    """A model that knows what the silos of a run have in common, and none of their own."""
    result, about = read_record(path / "consensus.safetensors")
    report, shared = read_json(path / "report.json", CONSENSUS_REPORT), result.shared
    params = {name: value for name, value in report["settings"].items() if name != "as_published"}
    model = read_settings(path / "report.json", params)
    model._fitted = Fitted({}, shared=shared)
    model.n_features_in_ = int(about.get("n_features") or 0) or (0 if shared is None else shared.n_columns)
    if text_column is not None:
        model.text_recipe_ = TextRecipe(text_column)
        model.n_features_in_ = model.text_recipe_.n_buckets
    elif shared is not None and shared.keep is not None:
        raise InputError(
            f"{path} is of a run of texts, whose column the coordinator does not know: name it (--text-column)"
        )
    return model


__all__ = ["kit_of", "open_run"]
