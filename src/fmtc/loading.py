"""Fitted estimators from folders: what `FMTC.save`, `fmtc fit` and a federation have written."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .artifacts.models import MODEL_FILE, current_settings, read_model
from .artifacts.runs import model_folder, read_atlas, read_explanation
from .describe import Atlas
from .errors import FileError
from .estimator import FMTC, Fitted
from .runtime.driver import RoundRecord, RunRecord
from .schema import Schema
from .settings import OF_VIEWS, Graph, Privacy, by_view


def load(path: str | Path) -> FMTC:
    """Read a model that `FMTC.save` wrote. It predicts as it did, and contains no training row or label.

    Parameters
    ----------
    path : path
        Folder of the model, or of a run of `fmtc fit`, which has it in ``model/``.

    Returns
    -------
    FMTC
        Fitted, without `labels_`, `embedding_` and `consensus_`.

    Raises
    ------
    FileError
        If a file is missing, damaged, truncated, not from fmtc, or in a newer format.

    Examples
    --------
    >>> import tempfile, numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fmtc.FMTC(3, random_state=0).fit(X).save(folder + "/model")
    ...     model = fmtc.load(path)
    >>> model.predict(X).shape
    (60,)
    """
    folder = model_folder(Path(path))
    saved = read_model(folder)
    about, k = saved.about, next(iter(saved.clients.values())).k
    model = read_settings(folder / MODEL_FILE, about["params"], k)
    saved.columns.tell(model)
    model._fitted = Fitted(saved.clients, saved.presence, saved.told, saved.shared)
    history = tuple(RoundRecord.from_dict(line) for line in about["history"])
    held, shared = tuple(about["held"]), saved.shared
    result = RunRecord(history, about["converged"], about["stopped_because"], held=held, shared=shared)
    model._remember(result, about["n_iter"])
    return model


def load_run(path: str | Path) -> FMTC:
    """`load` for reading tables: columns that have names, and nothing more is known of them, are numbers."""
    model = load(path)
    if not hasattr(model, "schema_") and hasattr(model, "feature_names_in_"):
        model.schema_ = Schema.of_numbers(model.feature_names_in_.tolist())
    return model


def load_atlas(path: str | Path) -> Atlas:
    """Read the clusters of a run, by the names that its clusters have everywhere else. No row is needed.

    Parameters
    ----------
    path : path
        Folder of a run of `fmtc fit`, `fmtc join` or `fmtc coordinate`, or of a model.

    Returns
    -------
    Atlas
        As the run has kept it; of a model, or a run of an older version, made of the model.

    Raises
    ------
    FileError
        If a file is missing or damaged, or the coordinator of an older version has kept none.

    Examples
    --------
    >>> import tempfile, numpy as np, fmtc
    >>> from fmtc.loading import load_atlas
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fmtc.FMTC(3, random_state=0).fit(X).save(folder + "/model")
    ...     len(load_atlas(path).clusters)
    3
    """
    folder = Path(path)
    atlas = read_atlas(folder)
    if atlas is None and (folder / "consensus.safetensors").is_file():
        raise FileError(f"{folder} has no atlas: it was written by an older version of fmtc, or of a run without one")
    if atlas is None:
        atlas = load_run(folder).atlas_
    kept = read_explanation(folder)
    return atlas.renamed({one.cluster: one.name for one in kept.clusters} if kept else {})


def read_settings(file: Path, settings: Mapping[str, Any], k: int | None = None) -> FMTC:
    """An estimator with the settings that a file holds, or a `FileError` if `fit` would reject them.

    A model of 0.1 may have found the number of its clusters, k.
    """
    try:
        values = current_settings(settings, k)
        if isinstance(values.get("privacy"), Mapping):
            values["privacy"] = Privacy(**values["privacy"])
        default = Graph().get_params()
        known = {*inspect.signature(FMTC).parameters, *(name for name in OF_VIEWS if values.get(name) != default[name])}
        model = FMTC(**by_view({name: value for name, value in values.items() if name in known}))
        model._settings()
    except (TypeError, ValueError) as error:
        raise FileError(f"{file} is damaged: {error}") from None
    return model


__all__ = ["load", "load_atlas", "load_run", "read_settings"]
