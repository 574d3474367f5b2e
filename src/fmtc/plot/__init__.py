"""Pictures of a fitted model with matplotlib: rows, what sets clusters apart, shares of silos, rounds, attacks.

Needs ``pip install 'fmtc[plot]'``; matplotlib is imported when a picture is drawn.
"""

from .figures import embedding, history, profiles, roc, shares

__all__ = ["embedding", "history", "profiles", "roc", "shares"]
