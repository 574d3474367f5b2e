"""Questions and answers of the last stage of the graph view, for tests of what may be asked and how often."""

import numpy as np

from fmtc.protocol.graph.finish import SETTLE


def settle_ask(shift=0.0, *, k=3, step=0, order=None):
    """A round of the mixture over projections, about unit axes."""
    order = np.arange(k) if order is None else order
    return SETTLE.Ask(
        keep=np.zeros(1, np.int64), means=np.eye(k)[None] + shift, covariance=np.eye(k)[None],
        shares=np.full((1, k), 1 / k), spread=np.full((1, k), 0.1), drift=np.zeros(1), step=step, order=order,
    )  # fmt: skip


def settle_answer(value=1.0, *, k=3):
    """Sums, all of them the same number."""
    shapes = {
        "counts": (1, k), "weights": (1, k), "means": (1, k, k), "scatter": (1, k * (k + 1) // 2),
        "spread": (1, 2, k), "drift": (1, 2), "score": (1, 3),
    }  # fmt: skip
    return SETTLE.Answer(**{name: np.full(shape, float(value)) for name, shape in shapes.items()})
