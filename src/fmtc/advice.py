"""How many clusters: what the evidence of all silos comes to, as advice with a range. Never a promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import InputError
from .kernels.sweep import SMALLEST_AGREED, pooled_gap

Array = np.ndarray

EVIDENCE = ("both", "agreement", "spectrum")
CLEAR, RANGE, FEW = "clear", "range", "too few rows"
CLEAR_RATIO = 1.5  # of the highest number to the lowest, up to which signals say the same
ROWS_FOR_EACH = 5  # cluster, in the smallest silo, below which nothing has been found to work
NEAR_GAP = 0.6  # of the largest step: with the eigengap alone, all numbers with such a step are in the range
TABLE = 50  # columns up to which rows are a table, where structures of several kinds cross
FAINT = 0.1  # agreement below which silos have hardly anything in common


@dataclass(frozen=True)
class Advice:
    """How many clusters the rows of all silos speak for; what `FMTC.advise` returns. Prints as text.

    Attributes
    ----------
    chosen : int
        The number that was chosen; what ``n_clusters="auto"`` fits.
    low, high : int
        The range that the signals span; where rows fall into large parts, that of the silos' parts.
    verdict : {"clear", "range", "too few rows"}
        "clear": all signals say nearly the same, for rows with many columns. "too few rows": less than five rows for
        each cluster in the smallest silo, where nothing works. "range": neither, so it is not clear.
    evidence : {"both", "agreement", "spectrum"}
        What was looked at.
    signals : dict of str to int
        The number that each signal says: ``parts`` (large parts of the neighbour graph, where most silos have several;
        the advice follows it), ``gap`` (largest eigengap), ``agreement`` (fewest clusters at which models of silos
        agree as well as anywhere, to a standard error) and ``many`` (the same, with more weight on many clusters).
    ks : ndarray of shape (v,)
        Numbers of clusters that were compared.
    eigengap : ndarray of shape (v,)
        Step between eigenvalue k and k + 1 of the Laplacian of a silo's neighbour graph, mean over silos.
    eigengap_of : dict of str to ndarray of shape (v,)
        The same of each silo.
    agreement : ndarray of shape (v,)
        Adjusted Rand index of a silo's own labels and of those that the local model of another silo gives its rows;
        mean over silos. Empty with ``evidence="spectrum"``, and for one silo.
    agreement_of : dict of str to ndarray of shape (o, v)
        The same on the rows of each silo, for each of the o other silos whose model it saw.
    agreement_error : ndarray of shape (v,)
        Standard error of `agreement` over silos.
    n_rows : int
        Rows of the smallest silo that were looked at, 1,200 at most.
    is_table : bool
        Whether rows have few columns: advice is weak there, and never clear.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3, 60)).repeat(30, axis=0) + rng.normal(size=(90, 60))
    >>> advice = FMTC(random_state=0).advise(X, k_range=(2, 6))
    >>> advice.chosen, advice.verdict
    (3, 'range')
    """

    chosen: int
    low: int
    high: int
    verdict: str
    evidence: str
    signals: dict[str, int]
    n_rows: int
    is_table: bool
    ks: Array = field(repr=False)
    eigengap: Array = field(repr=False)
    eigengap_of: dict[str, Array] = field(repr=False)
    agreement: Array = field(repr=False)
    agreement_of: dict[str, Array] = field(repr=False)
    agreement_error: Array = field(repr=False)

    @property
    def text(self) -> str:
        """The advice in a few sentences, with what it cannot know."""
        return " ".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The sentences of `text`."""
        span = "" if self.low == self.high else f", in a range of {self.low} to {self.high}"
        verdict = "not clear" if self.verdict == RANGE else self.verdict
        said = [f"Advice: {self._number(self.chosen)}{span}. Verdict: {verdict}."]
        words = {"parts": "the neighbour graph falls into {} large parts, which may hold clusters of their own",
                 "gap": "the eigengap says {}", "agreement": "models of silos agree best at {} (2 is left out)",
                 "many": "and at {} if many clusters count for more"}  # fmt: skip
        listed = "; ".join(words[name].format(k) for name, k in self.signals.items())
        said.append(f"{listed[0].upper()}{listed[1:]}.")
        if self.verdict == FEW:
            said.append(
                f"The smallest silo has {self.n_rows} rows: with fewer than {ROWS_FOR_EACH} for each cluster no signal "
                "has been found to work. Use what you know of the data."
            )
        if len(self.eigengap_of) == 1:
            said.append("There is one silo, so no other can confirm its structure.")
        elif self.evidence == "spectrum":
            said.append("One kind of evidence alone is never clear.")
        elif float(self.agreement.max()) < FAINT:
            said.append(f"Silos hardly agree at any number (at best {self.agreement.max():.2f} of 1).")
        if self.is_table:
            said.append("For tables with few columns this advice is weak: it missed in half of the trials.")
        if self.chosen == self.ks[-1]:
            said.append(f"{self._number(self.chosen)} was the most that was compared: there may be more.")
        said.append(
            "It is about the strongest structure, which may not be the one that you want: among pictures of faces "
            "it was the side of the lamp, not the person. Look at what the clusters are before you believe it."
        )
        return said

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """All of it in what JSON knows."""
        return {
            "chosen": self.chosen, "low": self.low, "high": self.high, "verdict": self.verdict,
            "evidence": self.evidence, "signals": dict(self.signals), "n_rows": self.n_rows, "is_table": self.is_table,
            "text": self.text, "ks": self.ks.tolist(),
            "eigengap": {"mean": self.eigengap.tolist(), "silos": {c: g.tolist() for c, g in self.eigengap_of.items()}},
            "agreement": {
                "mean": self.agreement.tolist(), "error": self.agreement_error.tolist(),
                "silos": {c: x.tolist() for c, x in self.agreement_of.items()},
            },
        }  # fmt: skip

    @staticmethod
    def _number(k: int) -> str:
        return f"{k} clusters"


def advice_of(found: Mapping[str, Array], client_ids: Sequence[str], evidence: str = "both") -> Advice:
    """The advice that the evidence of all silos comes to.

    Parameters
    ----------
    found : mapping of str to array
        What `fmtc.protocol.advice` has collected: ``ks`` (v,), ``sizes`` and ``parts`` (m,), ``eigenvalues`` (m, e),
        ``n_features`` (1,) and, where models were compared, ``agreement`` (s, o, v) of the silos ``seen`` (s,).
    client_ids : sequence of str
        The silos, in the order of ``sizes``.
    evidence : {"both", "agreement", "spectrum"}

    Examples
    --------
    Two silos whose spectra step up after the third eigenvalue:

    >>> import numpy as np
    >>> from fmtc.advice import advice_of
    >>> found = {"ks": np.arange(2, 5), "sizes": np.array([40, 60]), "n_features": np.array([99])}
    >>> found["eigenvalues"] = np.array([[0, 0.1, 0.1, 0.6, 0.7], [0, 0.1, 0.2, 0.6, 0.7]])
    >>> advice = advice_of(found, ["north", "south"], "spectrum")
    >>> advice.chosen, advice.verdict
    (3, 'range')
    """
    ks = found["ks"]
    steps = pooled_gap(found["eigenvalues"], ks.tolist())
    gap, seen = steps.mean(axis=0), found.get("agreement")
    if seen is None and evidence == "agreement":
        raise InputError("one silo has no other to agree with: ask for the spectrum")
    signals: dict[str, int] = {}
    pairs: dict[str, Array] = {}
    mean = error = np.empty(0)
    parts = np.sort(found.get("parts", np.ones(1, np.int64))).tolist()
    usual = parts[(len(parts) - 1) // 2]
    if evidence != "agreement":
        if ks[0] <= usual <= ks[-1]:
            signals["parts"] = usual
        signals["gap"] = int(ks[gap.argmax()])
    if seen is not None:
        pairs = {client_ids[int(t)]: own for t, own in zip(found["seen"], seen, strict=True)}
        mean, error = mean_and_error(seen.mean(axis=1))
        signals["agreement"] = fewest_agreed(ks, mean, error)
        if evidence == "both":
            signals["many"] = int(ks[(np.maximum(mean, 0) ** 2 * np.log(ks)).argmax()])
    said = sorted(signals.values())
    agree = len(said) > 1 and said[-1] <= CLEAR_RATIO * said[0]
    chosen, low, high = said[len(said) // 2], said[0], said[-1]
    if "parts" in signals:
        several = [count for count in parts if ks[0] <= count <= ks[-1]]
        chosen, low, high = usual, several[0], several[-1]
    elif len(said) == 1:
        curve = gap if seen is None else mean
        near = curve >= (NEAR_GAP * curve.max() if seen is None else (curve - error).max())
        low, high = min(chosen, int(ks[near].min())), max(chosen, int(ks[near].max()))
    n, is_table = int(found["sizes"].min()), int(found["n_features"][0]) <= TABLE
    is_faint = seen is not None and float(mean.max()) < FAINT
    verdict = RANGE
    if n < ROWS_FOR_EACH * low:
        verdict = FEW
    elif agree and seen is not None and n >= ROWS_FOR_EACH * high and not (is_table or is_faint):
        verdict = CLEAR
    return Advice(
        chosen, low, high, verdict, "spectrum" if seen is None else evidence, signals, n, is_table, ks, gap,
        dict(zip(client_ids, steps, strict=True)), mean, pairs, error,
    )  # fmt: skip


def mean_and_error(own: Array) -> tuple[Array, Array]:
    """Mean over silos and its standard error; (m, v) -> (v,), (v,). One silo has an error of 0."""
    m = len(own)
    spread = own.std(axis=0, ddof=1) if m > 1 else np.zeros(own.shape[1])
    return own.mean(axis=0), spread / np.sqrt(m)


def fewest_agreed(ks: Array, mean: Array, error: Array) -> int:
    """Fewest clusters at which silos agree as well as anywhere, to one standard error; at least 3 where 3 is compared.

    The maximum is flat: without this rule it wanders to the right with the rows that were drawn.
    """
    able = ks >= min(SMALLEST_AGREED, int(ks[-1]))
    ks, mean, error = ks[able], mean[able], error[able]
    best = int(mean.argmax())
    return int(ks[np.argmax(mean >= mean[best] - error[best])])


__all__ = ["EVIDENCE", "Advice", "advice_of"]
