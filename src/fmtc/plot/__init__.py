"""Pictures of a fitted model with matplotlib: rows, what sets clusters apart, shares of silos, rounds.

Needs ``pip install 'fmtc[plot]'``; matplotlib is imported when a picture is drawn.
"""

from .figures import embedding, history, profiles, shares

__all__ = ["embedding", "history", "profiles", "shares"]
