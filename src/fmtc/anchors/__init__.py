"""Private anchors: sums over records with bounded contributions, and clusters made of the noisy totals."""

from .stages import STAGES, Box, Public, Stage

__all__ = ["STAGES", "Box", "Public", "Stage"]
