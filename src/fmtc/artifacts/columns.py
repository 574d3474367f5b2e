"""What is known of the columns of rows, as models and published kits keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import DataError, FileError
from ..schema import Schema
from ..tables import TextRecipe
from .files import COUNT, check_form, form_of

if TYPE_CHECKING:
    from ..estimator import FMTC

# What a reader relies on, in the language of `check_form`.
COLUMNS = {
    "n_features_in": COUNT,
    "feature_names_in": ([str], None),
    "columns": (dict, None),
    "text": ({"text_column": str, "salt": str, "n_buckets": range(1, 2**31)}, None),
}


@dataclass(frozen=True, eq=False)
class KnownColumns:
    """How many columns rows have, what these are called, what they hold, and how texts become columns."""

    number: int
    names: tuple[str, ...] | None = None
    schema: Schema | None = None
    text: TextRecipe | None = None

    @classmethod
    def of(cls, model: FMTC) -> Self:
        """What a fitted estimator knows."""
        names = getattr(model, "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        return cls(model.n_features_in_, names, getattr(model, "schema_", None), getattr(model, "text_recipe_", None))

    def tell(self, model: FMTC) -> None:
        """Undo `of`: the estimator knows the same from now on."""
        model.n_features_in_ = self.number
        if self.names is not None:
            model.feature_names_in_ = np.array(self.names, dtype=object)
        if self.schema is not None:
            model.schema_ = self.schema
        if self.text is not None:
            model.text_recipe_ = self.text

    def to_dict(self) -> dict[str, Any]:
        """As documents of folders have it."""
        return {
            "n_features_in": self.number,
            "feature_names_in": self.names,
            "columns": None if self.schema is None else self.schema.to_dict(),
            "text": None if self.text is None else asdict(self.text),
        }

    @classmethod
    def read(cls, file: Path, about: Mapping[str, Any]) -> Self:
        """Undo `to_dict`, given a document of the form `COLUMNS`; a `FileError` says what does not fit."""
        d, names, columns, text = (about[name] for name in COLUMNS)
        if names is not None and len(names) != d:
            raise FileError(f"{file} is damaged: it has {len(names)} names for {d} features")
        schema = None
        if columns is not None:
            check_form(file, columns, form_of(Schema), "columns")
            try:
                schema = Schema.from_dict(columns)
            except DataError as error:
                raise FileError(f"{file} is damaged: {error}") from None
            if len(schema.columns) != d:
                raise FileError(f"{file} is damaged: it describes {len(schema.columns)} columns of {d}")
        names = None if names is None else tuple(names)
        return cls(d, names, schema, None if text is None else TextRecipe(**text))
