"""Fitted models that go on: publish, join later and update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..artifacts.files import check_form, read_json
from ..artifacts.published import JoinKit, read_kit, write_kit
from ..artifacts.runs import CONSENSUS_REPORT, model_folder, schema_of
from ..describe import presence_of
from ..errors import DataError, InputError, listed
from ..estimator import FMTC, Fitted
from ..loading import load, read_settings
from ..models.shared import Shared
from ..protocol.home import ALONE, FEDERATED
from ..protocol.method import ClientResult
from ..rows import NAMELESS, silo_name
from ..runtime.conductor import read_record
from ..runtime.driver import RunRecord
from ..schema import Schema
from ..settings import check_number
from ..tables import TextRecipe
from .join import GUIDES, newcomer
from .update import updated

Array = np.ndarray


# --------------------------------------------------------------------------------------------------------- publish


def shared_of(model: FMTC) -> Shared:
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
    shared = shared_of(model)
    settings = replace(model._settings(), view=shared.view)  # as it was chosen
    columns = getattr(model, "feature_names_in_", None)
    given = {} if names is None else {int(j): str(name) for j, name in names.items()}
    unknown = [j for j in given if not 0 <= j < shared.n_clusters]
    if unknown:
        raise InputError(f"there is no cluster {unknown[0]} to name; there are {shared.n_clusters}, the first is 0")
    return JoinKit(
        shared.published(settings),
        model._params() | {"view": shared.view, "coupling": settings.coupling, "n_clusters": shared.n_clusters},
        model.n_features_in_,
        None if columns is None else tuple(map(str, columns)),
        getattr(model, "schema_", None),
        getattr(model, "text_recipe_", None),
        given,
    )


def publish(model: FMTC, path: str | Path, names: Mapping[int, str] | None, overwrite: bool) -> Path:
    """Write `kit_of` a model to a folder."""
    return write_kit(Path(path), kit_of(model, names), overwrite=overwrite)


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
    if (path / "consensus.safetensors").is_file():
        model = _of_coordinator(path, text_column)
    else:
        model = load(model_folder(path))
        if (known := schema_of(model, path)) is not None:
            model.schema_ = known
    if schema is not None:
        model.schema_ = Schema.read(schema)
        if len(model.schema_.columns) != model.n_features_in_:
            raise InputError(f"{schema} is of {len(model.schema_.columns)} columns, {path} of {model.n_features_in_}")
    return model


def _of_coordinator(path: Path, text_column: str | None) -> FMTC:
    """A model that knows what the silos of a run have in common, and none of their own."""
    result, about = read_record(path / "consensus.safetensors")
    report, shared = read_json(path / "report.json"), result.shared
    check_form(path / "report.json", report, CONSENSUS_REPORT)
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


# ------------------------------------------------------------------------------------------------------ join later


def join_later(
    kit: str | Path | JoinKit,
    X: Any,
    *,
    name: str = "newcomer",
    guide: bool | str = "auto",
    random_state: Any = None,
) -> FMTC:
    """Join a federation after its run: fit at home with what it published. Nothing leaves this process.

    The rows are clustered alone, in the federation's units, and by the published model as it is. Where both say much
    the same, the federation can help: the model is fitted again, drawn to what the silos have in common. Elsewhere the
    newcomer keeps its own clusters. In both cases clusters have the federation's numbers, as far as they are the same.

    Parameters
    ----------
    kit : path
        Folder that `FMTC.publish` or ``fmtc publish`` wrote.
    X : array, sparse array or data frame of shape (n_samples, n_features)
        The newcomer's rows, with the columns of the federation.
    name : str, default="newcomer"
        Name of the newcomer in the model.
    guide : {"auto", True, False}, default="auto"
        "auto" follows the federation where both agree: adjusted Rand index of at least 0.5, in the mixture view 0.2.
        True always does, False never.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    FMTC
        Fitted, with one silo. `run_.joined` says how it came about: `agreement`, `guided`, `reason`, `moved` (share of
        rows in another cluster than alone) and `likeness` of each cluster to the common one of its number.

    Raises
    ------
    FileError
        If the kit is damaged, or of another version.
    DataError
        If X does not have the columns of the kit.

    Examples
    --------
    Three clinics train, a fourth joins later:

    >>> import tempfile, numpy as np, fmtc
    >>> rng = np.random.default_rng(0)
    >>> def clinic(n, shift):
    ...     return np.repeat(np.eye(3) * 6, n, axis=0) + shift + rng.normal(size=(3 * n, 3))
    >>> clinics = {name: clinic(30, shift) for name, shift in (("a", 0.0), ("b", 0.3), ("c", -0.3))}
    >>> model = fmtc.FMTC(3, random_state=0).fit(clinics)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kit = model.publish(folder + "/kit")
    ...     late = fmtc.join_later(kit, clinic(10, 0.2), name="d", random_state=0)
    >>> late.run_.joined.guided, late.run_.joined.agreement
    (True, 1.0)
    >>> bool((late.predict(np.eye(3) * 6) == model.predict(np.eye(3) * 6, silos="a")).all())
    True
    """
    if not (isinstance(guide, bool | np.bool_) or (isinstance(guide, str) and guide == "auto")):
        raise ValueError(f"guide must be one of {', '.join(map(repr, GUIDES))}, got {guide!r}")
    name = silo_name(name)
    if name in NAMELESS:
        raise DataError(f"the newcomer has no name: {name!r}")
    where = "the kit" if isinstance(kit, JoinKit) else str(kit)
    kit = kit if isinstance(kit, JoinKit) else read_kit(kit)
    model = _unfitted(where, kit).set_params(random_state=random_state)
    model._fitted = Fitted({name: None})  # type: ignore[dict-item]
    ((rows, _),) = model._parts(X, None, reset=False).values()
    if sp.issparse(rows) and kit.published.is_dense:
        raise DataError("X is sparse, and the federation's rows are not: give a dense array, such as X.toarray()")
    joined, found = newcomer(name, rows, kit.published, model._settings(), guide)
    F = getattr(found.client, "F", None)
    embedding = None if F is None else np.asarray(F)
    result = ClientResult(found.model, found.labels, embedding, choice=FEDERATED if joined.guided else ALONE)
    model._adopt(RunRecord((), None, joined.reason, joined=joined), {name: result}, n_iter=0)
    if kit.text is not None:
        model.text_recipe_ = kit.text
    return model


def _unfitted(where: str, kit: JoinKit) -> FMTC:
    """An estimator with the settings and the columns of a kit."""
    model = read_settings(Path(where), kit.params)
    model.n_features_in_ = kit.n_features
    if kit.feature_names is not None:
        model.feature_names_in_ = np.array(kit.feature_names, dtype=object)
    if kit.schema is not None:
        model.schema_ = kit.schema
    return model


# ---------------------------------------------------------------------------------------------------------- update


def update(model: FMTC, X: Any, silos: Any, keep_last: int | None) -> FMTC:
    """Go on with the rows that count now; see `FMTC.update`."""
    if keep_last is not None:
        check_number("keep_last", keep_last, Integral, "None or a whole number of at least 1", lambda v: v >= 1)
    parts = model._parts(X, silos, reset=False)
    for cid in parts:
        if why := model._models[cid].why_final:
            raise InputError(f"the model of {cid!r} cannot go on: {why}")
    rows = {cid: Xt if keep_last is None else Xt[-int(keep_last) :] for cid, (Xt, _) in parts.items()}
    before, settings = model._fitted, replace(model._settings(), view=model.view_)
    found = updated(rows, {cid: before.models[cid] for cid in rows}, before.shared, settings)
    models = {**before.models, **{cid: one.model for cid, one in found.clients.items()}}
    model.__dict__.pop("embedding_", None)
    model.labels_ = np.empty(sum(Xt.shape[0] for Xt, _ in parts.values()), np.int64)
    presence = dict(before.presence)
    for cid, (Xt, places) in parts.items():
        model.labels_[places] = models[cid].assign(Xt)
        if cid in presence:
            presence[cid] = presence_of(model.labels_[places], model._k)
    sizes = {cid: np.bincount(one.labels, minlength=model._k) for cid, one in found.clients.items()}
    model._fitted = replace(
        before, models=models, presence=presence, shared=found.shared, sizes={**before.sizes, **sizes}, seen=None
    )
    common: dict[str, Any] = {}
    if found.shared is not None:
        known = {"consensus": found.shared.Z, "kappa": found.shared.mixture and found.shared.kappa}
        common = {name: value for name, value in known.items() if value is not None}
    why = f"went on from the model of before, with new rows of {listed(rows)}"
    result = RunRecord((), None, why, common=common, why=model.view_reason_, held=model.run_.held, shared=found.shared)
    model._remember(result, 1, choices={**model.run_.choices, **dict.fromkeys(rows, FEDERATED)})
    return model


__all__ = ["join_later", "kit_of", "publish", "update"]
