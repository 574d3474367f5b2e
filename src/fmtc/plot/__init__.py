"""Pictures with matplotlib: rows, what sets clusters apart, shares, concepts, rounds, attacks, how many clusters.

Needs ``pip install 'fmtc[plot]'``; matplotlib is imported when a picture is drawn.
"""

from .figures import atlas, embedding, history, plot_k, profiles, shares

__all__ = ["atlas", "embedding", "history", "plot_k", "profiles", "shares"]
