"""Files of rows: formats, columns and their types, texts, and the comparison of silos before a run."""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .catalogue import explain
    from .findings import Finding
    from .parts import Columns, read_columns
    from .reading import Reading
    from .silos import Silo, read_silos, read_texts
    from .survey import compare
    from .text import TextRecipe, column_words, hashed_counts
    from .values import remarks

__all__ = [
    "Columns",
    "Finding",
    "Reading",
    "Silo",
    "TextRecipe",
    "column_words",
    "compare",
    "explain",
    "hashed_counts",
    "read_columns",
    "read_silos",
    "read_texts",
    "remarks",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    catalogue=("explain",),
    findings=("Finding",),
    parts=("Columns", "read_columns"),
    survey=("compare",),
    reading=("Reading",),
    values=("remarks",),
    silos=("Silo", "read_silos", "read_texts"),
    text=("TextRecipe", "column_words", "hashed_counts"),
)
