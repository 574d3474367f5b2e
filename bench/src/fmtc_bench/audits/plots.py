"""Pictures of audits; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fmtc.plot.figures import COLOURS, SOFT, _pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray


def roc(curves: Mapping[str, tuple[Array, Array]], *, ax: Axes | None = None) -> Axes:
    """Power of membership attacks: members found against others called members, both on a logarithmic scale.

    Parameters
    ----------
    curves : mapping of str to pair of arrays
        False and true positive rates, as `fmtc_bench.audits.attacks.roc` gives them, by name.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc_bench.audits.plots import roc
    >>> roc({"guessing": (np.array([0, 1]), np.array([0, 1]))}).get_xscale()  # doctest: +SKIP
    'log'
    """
    plt = _pyplot()
    if ax is None:
        _, ax = plt.subplots(figsize=(4.2, 4), layout="constrained")
    least = min((float(fpr[fpr > 0].min(initial=1.0)) for fpr, _ in curves.values()), default=1e-3)
    least = float(np.clip(least, 1e-5, 1e-2))
    ax.plot([least, 1], [least, 1], color=SOFT, linewidth=0.8, linestyle=":", label="guessing")
    for number, (name, (fpr, tpr)) in enumerate(curves.items()):
        ax.plot(np.maximum(fpr, least), np.maximum(tpr, least), color=COLOURS[number % len(COLOURS)], label=name)
    ax.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.05))
    ax.set(xlabel="others called members", ylabel="members found")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower right")
    return ax
