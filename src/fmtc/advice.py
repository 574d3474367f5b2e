"""How many clusters: what the evidence of all silos comes to, as advice with a range. Never a promise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .errors import InputError
from .mixture.pooling import free_numbers
from .protocol.advice import METHOD, AdviceSettings, advice_settings, range_of
from .protocol.graph.view import PROPOSAL
from .runtime.driver import RunRecord, run
from .runtime.local import LocalTransport

if TYPE_CHECKING:
    from .estimator import FMTC

Array = np.ndarray

RANGE, FEW = "range", "too few rows"
ROWS_FOR_EACH = 5  # cluster, in the smallest silo, below which nothing has been found to work
NEAR_GAP = 0.6  # of the largest step: all numbers with such a step are in the range
CLEAR = 0.5  # of the eigenvalue after the largest step: if that before is at most so much, parts do not count


@dataclass(frozen=True)
class Advice:
    """How many clusters the rows of all silos speak for; what `fmtc.advise` returns. Prints as text.

    Attributes
    ----------
    chosen : int
        The number that was chosen; what ``n_clusters="auto"`` fits.
    low, high : int
        The range of large eigengaps; where rows fall into large parts, that of the silos' parts.
    verdict : {"range", "too few rows"}
        "too few rows": less than five rows for each cluster in the smallest silo, where nothing works. "range": the
        number is somewhere in the range, and never clear.
    signals : dict of str to int
        The number that each signal says: ``parts`` (large parts of the neighbour graph that hardly touch, where most
        silos have several) and ``gap`` (largest eigengap). The advice follows the parts, unless eigenvalues double at
        the gap.
    ks : ndarray of shape (v,)
        Numbers of clusters that were compared.
    eigengap : ndarray of shape (v,)
        Step between eigenvalue k and k + 1 of the Laplacian of a silo's neighbour graph, mean over silos.
    eigengap_of : dict of str to ndarray of shape (v,)
        The same of each silo.
    n_rows : int
        Rows of the smallest silo that were looked at, 1,200 at most.

    Examples
    --------
    >>> import numpy as np
    >>> import fmtc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3, 60)).repeat(30, axis=0) + rng.normal(size=(90, 60))
    >>> advice = fmtc.advise(X, k_range=(2, 6), model=fmtc.FMTC(random_state=0))
    >>> advice.chosen, advice.verdict
    (3, 'range')
    """

    chosen: int
    low: int
    high: int
    verdict: str
    signals: dict[str, int]
    n_rows: int
    ks: Array = field(repr=False)
    eigengap: Array = field(repr=False)
    eigengap_of: dict[str, Array] = field(repr=False)

    @property
    def sentences(self) -> list[str]:
        """The advice in a few sentences, with what it cannot know."""
        span = "" if self.low == self.high else f", in a range of {self.low} to {self.high}"
        verdict = "not clear" if self.verdict == RANGE else self.verdict
        said = [f"Advice: {self.chosen} clusters{span}. Verdict: {verdict}."]
        words = {
            "parts": "the neighbour graph has {} large parts that hardly touch, and may hold clusters of their own",
            "gap": "the eigengap says {}",
        }
        listed = "; ".join(words[name].format(k) for name, k in self.signals.items())
        said.append(f"{listed[0].upper()}{listed[1:]}.")
        if self.verdict == FEW:
            said.append(
                f"The smallest silo has {self.n_rows} rows: with fewer than {ROWS_FOR_EACH} for each cluster no signal "
                "has been found to work. Use what you know of the data."
            )
        if len(self.eigengap_of) == 1:
            said.append("There is one silo, so no other can confirm its structure.")
        if self.chosen == self.ks[-1]:
            said.append(f"{self.chosen} clusters was the most that was compared: there may be more.")
        said.append("Where the number was known, advice was within a fifth of it in four of ten trials.")
        said.append(
            "It is about the strongest structure, which may not be the one that you want: among pictures of faces "
            "it was the side of the lamp, not the person. Look at what the clusters are before you believe it."
        )
        return said

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """All of it in what JSON knows."""
        return {
            "chosen": self.chosen, "low": self.low, "high": self.high, "verdict": self.verdict,
            "signals": dict(self.signals), "n_rows": self.n_rows, "text": str(self),
            "ks": self.ks.tolist(),
            "eigengap": {"mean": self.eigengap.tolist(), "silos": {c: g.tolist() for c, g in self.eigengap_of.items()}},
        }  # fmt: skip


def advice_of(found: Mapping[str, Array], silos: Sequence[str]) -> Advice:
    """The advice that the evidence of all silos comes to.

    Parameters
    ----------
    found : mapping of str to array
        What `fmtc.protocol.advice` has collected: ``ks`` (v,), ``sizes`` and ``parts`` (m,), ``eigenvalues`` (m, e).
    silos : sequence of str
        The silos, in the order of ``sizes``.

    Examples
    --------
    Two silos whose spectra step up after the third eigenvalue:

    >>> import numpy as np
    >>> from fmtc.advice import advice_of
    >>> found = {"ks": np.arange(2, 5), "sizes": np.array([40, 60]), "parts": np.array([1, 1])}
    >>> found["eigenvalues"] = np.array([[0, 0.1, 0.1, 0.6, 0.7], [0, 0.1, 0.2, 0.6, 0.7]])
    >>> advice = advice_of(found, ["north", "south"])
    >>> advice.chosen, advice.verdict
    (3, 'range')
    """
    ks, lam = found["ks"], found["eigenvalues"]
    steps = lam[:, ks] - lam[:, ks - 1]
    gap = steps.mean(axis=0)
    largest = int(ks[gap.argmax()])
    parts = np.sort(found["parts"]).tolist()
    usual = parts[(len(parts) - 1) // 2]
    signals = {"parts": usual} if ks[0] <= usual <= ks[-1] else {}
    before, after = lam.mean(axis=0)[[largest - 1, largest]]
    if signals and before > CLEAR * after:
        several = [count for count in parts if ks[0] <= count <= ks[-1]]
        chosen, low, high = usual, several[0], several[-1]
    else:
        near = ks[gap >= NEAR_GAP * gap.max()]
        chosen, low, high = largest, min(largest, int(near.min())), max(largest, int(near.max()))
    n = int(found["sizes"].min())
    verdict = FEW if n < ROWS_FOR_EACH * low else RANGE
    of_each = dict(zip(silos, steps, strict=True))
    return Advice(chosen, low, high, verdict, signals | {"gap": largest}, n, ks, gap, of_each)


def bic(model: FMTC, X: Any, *, silos: Any = None) -> float:
    """Bayesian information criterion on the rows of fit, lower is better: which number of clusters to take.

    ``-2 log-likelihood + ν log n`` for n rows in the units of X, as in `sklearn.mixture.GaussianMixture`, whose
    tied mixture it equals for one silo. ν counts the shape Σ once, the shares of each silo, and its means as far as
    its own rows decide them: each silo's own where nothing is pooled, one for all silos where all is. Compare
    models of the same rows with the same `scale`.

    The mixture view of at most 50 columns only. For the graph view, which has no likelihood, use `fmtc.advise` or
    ``n_clusters="auto"``.

    Parameters
    ----------
    model : FMTC
        Fitted.
    X, silos
        As in `FMTC.fit`, and the same rows.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> from fmtc.advice import bic
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(6 * np.eye(4), 40, axis=0) + rng.normal(size=(160, 4))
    >>> models = {k: fmtc.FMTC(k, view="mixture", random_state=0).fit(X) for k in (2, 3, 4, 5)}
    >>> min(models, key=lambda k: bic(models[k], X))
    4
    """
    check_is_fitted(model)
    fitted = model._fitted
    common = None if fitted.shared is None else fitted.shared.mixture
    if model.view_ != "mixture" or common is None or next(iter(fitted.models.values())).units.axes is not None:
        raise InputError(
            "bic needs the likelihood of a mixture over at most 50 columns, which this model has not: fit with "
            'view="mixture", or use fmtc.advise() or n_clusters="auto"'
        )
    rows = {cid: Xt for cid, (Xt, _) in model._parts(X, silos, reset=False).items()}
    levels = tuple(size for size in model._settings(model.n_clusters_).levels if size)
    groups: dict[bytes, list[str]] = {}  # silos with one shape; a silo that kept a model of its own has its own
    models: dict[str, Any] = {cid: fitted.models[cid] for cid in rows}
    for cid, one in models.items():
        groups.setdefault(one.covariance.tobytes(), []).append(cid)
    free = 0.0
    for cids in groups.values():
        counts = np.array([models[cid].probabilities(rows[cid]).sum(axis=0) for cid in cids])
        free += free_numbers(counts, replace(common, covariance=models[cids[0]].covariance), levels)
        shares = {models[cid].shares.tobytes(): np.count_nonzero(models[cid].shares) for cid in cids}
        free += sum(shares.values()) - len(shares)
    likelihood = sum(models[cid].log_likelihood(Xt) for cid, Xt in rows.items())
    return -2 * likelihood + free * float(np.log(sum(Xt.shape[0] for Xt in rows.values())))


# ------------------------------------------------------------------------------------------------------ before a fit


def number_of_clusters(
    model: FMTC, rows: Mapping[str, Any], ask: Callable[[AdviceSettings], RunRecord]
) -> tuple[int | None, RunRecord | None]:
    """The number of clusters where it is to be found, and the run that was asked for it by `ask`."""
    if not isinstance(model.n_clusters, str):
        return None, None
    if isinstance(model.clusters_per_silo, Mapping):
        return _proposed(model, rows), None
    asked = ask(advice_settings(model._settings(n_clusters=2), range_of(model.n_clusters)))
    warnings.warn(f"the number of clusters is not clear: {asked.advice}", UserWarning, stacklevel=3)
    return asked.advice.chosen, asked


def ask_locally(model: FMTC, rows: Mapping[str, Any], settings: AdviceSettings) -> RunRecord:
    """A run in this process that looks for the number of clusters, with its advice."""
    transport = LocalTransport(rows, settings, model.n_jobs, method=METHOD, run_id="advice")
    result = run(transport, settings, method=METHOD)
    return replace(result, advice=advice_of(result.common, result.client_ids), ledgers=transport.ledgers)


def _proposed(model: FMTC, rows: Mapping[str, Any]) -> int:
    """The number of clusters of the federation, from the clusters that each silo has."""
    asked = replace(model._settings(n_clusters=max(model.clusters_per_silo.values())), view="graph")
    transport = LocalTransport(rows, asked, model.n_jobs, method=PROPOSAL, device=model.device)
    found: int = run(transport, asked, method=PROPOSAL).server.proposed
    warnings.warn(
        f"the clusters of {len(rows)} silos look like {found} clusters. That is a proposal, and may be off by one or "
        "two; give n_clusters if you know better.",
        UserWarning,
        stacklevel=4,
    )
    return found


def check_search(n_clusters: str, privacy: Any) -> None:
    """Raise an error where the number of clusters cannot be found as it is asked for."""
    if n_clusters != "auto" and ".." not in n_clusters:
        raise TypeError(f'n_clusters must be a whole number, "auto" or a range such as "3..12", got {n_clusters!r}')
    range_of(n_clusters)
    if privacy is not None:
        raise ValueError(
            f"n_clusters={n_clusters!r} shows the server what each silo alone has found, which privacy forbids: give "
            "a number"
        )


__all__ = ["Advice", "advice_of", "ask_locally", "bic", "check_search", "number_of_clusters"]
