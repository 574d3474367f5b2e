"""A newcomer with a published kit: it fits at home, sends nothing, and may decline what the federation offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..artifacts.models import JoinKit, read_kit
from ..errors import DataError
from ..estimator import FMTC, Fitted
from ..linalg.arrays import to_numpy
from ..loading import read_settings
from ..metrics import clustering_accuracy, clustering_scores
from ..models.shared import Published
from ..protocol.home import ALONE, FEDERATED
from ..protocol.method import ClientResult
from ..protocol.state import input_rows
from ..refit import GraphCommon, MixtureCommon, Refitted, Silo, numbered, refit
from ..rows import NAMELESS, silo_name
from ..runtime.driver import RunRecord
from ..settings import Settings, check_flag

Array = np.ndarray

# Adjusted Rand index of own and published labels from which the guide is kept. A mixture follows the common clusters
# only as far as silos are alike (kappa), so that it can be trusted earlier; docs/how-to/join-later.md.
AGREED = {"graph": 0.5, "mixture": 0.2}


@dataclass(frozen=True)
class Joined:
    """How a newcomer came to its model.

    Parameters
    ----------
    agreement : float
        Adjusted Rand index of the newcomer's own clusters and of those that the published model gives its rows.
    guided : bool
        Whether it follows the federation; otherwise it keeps its own clusters, under the federation's numbers.
    reason : str
        Why, in a sentence.
    moved : float
        Share of the rows whose cluster is another one than without the federation, numbers apart; 0 if not guided.
    likeness : tuple of float
        Of each cluster, how like the published cluster of that number it is: rows in common, of all rows in either.
        Low where a silo has something else.
    """

    agreement: float
    guided: bool
    reason: str
    moved: float
    likeness: tuple[float, ...]


def newcomer(
    name: str, X: Any, kit: Published, settings: Settings, guide: bool | str = "auto"
) -> tuple[Joined, Refitted]:
    """Fit alone, compare with the published model, and follow it if both see the same clusters (or if told to).

    Parameters
    ----------
    name : str
    X : array of shape (n, d)
        The newcomer's rows, checked.
    kit : Published
    settings : Settings
        Of the run that was published.
    guide : {"auto", True, False}
    """
    silo, common = Silo(name, kit.n_clusters, replace(settings, view=kit.view)), common_of(kit)
    alone = refit(silo, None, X)  # in units of its own: the federation's may not suit it
    opened, at_home = common.opened(silo, X), silo.at_home(kit.view)
    offered = to_numpy(common.unfitted(opened, at_home).assign(input_rows(opened)))  # by the published model
    agreement = float(clustering_scores(alone.labels, offered)["ari"])
    guided = agreement >= AGREED[kit.view] if guide == "auto" else bool(guide)
    found = refit(silo, common, X) if guided else numbered(alone, offered, silo.k)
    moved = 1 - clustering_accuracy(alone.labels, found.labels) if guided else 0.0
    reason = _reason(agreement, guided, guide)
    return Joined(agreement, guided, reason, moved, _likeness(found.labels, offered, silo.k)), found


def common_of(kit: Published) -> GraphCommon | MixtureCommon:
    """What a newcomer knows of the others."""
    if kit.consensus is not None:
        return GraphCommon(kit, kit.consensus, kit.ridge, kit.scale, kit.is_unit, kit.mixture, kit.centers)
    assert kit.mixture is not None
    return MixtureCommon(kit, kit.mixture)


def _reason(agreement: float, guided: bool, guide: bool | str) -> str:
    said = f"your own clusters and the federation's agree to {agreement:.2f}"
    if guide != "auto":
        return f"{said}; {'joined' if guided else 'kept your own'}, as you asked"
    if guided:
        return f"{said}: joined"
    return f"{said}: kept your own; the federation's clusters are others than yours"


def _likeness(labels: Array, offered: Array, k: int) -> tuple[float, ...]:
    """Of each cluster, the rows it has in common with the published cluster of its number, of all in either."""
    either = [np.count_nonzero((labels == j) | (offered == j)) for j in range(k)]
    both = [np.count_nonzero((labels == j) & (offered == j)) for j in range(k)]
    return tuple(float(b / e) if e else 0.0 for b, e in zip(both, either, strict=True))


# ------------------------------------------------------------------------------------------------------ as an estimator


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
    check_flag("guide", guide, or_auto=True)
    name = silo_name(name)
    if name in NAMELESS:
        raise DataError(f"the newcomer has no name: {name!r}")
    where = "the kit" if isinstance(kit, JoinKit) else str(kit)
    kit = kit if isinstance(kit, JoinKit) else read_kit(kit)
    model = read_settings(Path(where), kit.params).set_params(random_state=random_state)
    kit.columns.tell(model)
    model._fitted = Fitted({name: None})  # type: ignore[dict-item]
    ((rows, _),) = model._parts(X, None, reset=False).values()
    if sp.issparse(rows) and kit.published.is_dense:
        raise DataError("X is sparse, and the federation's rows are not: give a dense array, such as X.toarray()")
    joined, found = newcomer(name, rows, kit.published, model._settings(), guide)
    F = getattr(found.client, "F", None)
    embedding = None if F is None else np.asarray(F)
    result = ClientResult(found.model, found.labels, embedding, choice=FEDERATED if joined.guided else ALONE)
    model._adopt(RunRecord((), None, joined.reason, joined=joined), {name: result}, n_iter=0)
    return model


__all__ = ["Joined", "common_of", "join_later", "newcomer"]
