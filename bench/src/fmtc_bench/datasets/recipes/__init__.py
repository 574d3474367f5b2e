"""The data sets that come in Python packages, one module for each comparison they were kept for."""

from __future__ import annotations

from ..packaged import sources
from . import first, second

RECIPES = (*first.RECIPES, *second.RECIPES)
SOURCES = sources(RECIPES)

__all__ = ["RECIPES", "SOURCES"]
