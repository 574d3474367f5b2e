"""Pictures of a fitted model with matplotlib: rows, what sets clusters apart, shares, concepts, rounds, attacks.

Needs ``pip install 'fmtc[plot]'``; matplotlib is imported when a picture is drawn.
"""

from .figures import atlas, embedding, history, profiles, roc, shares

__all__ = ["atlas", "embedding", "history", "profiles", "roc", "shares"]
