"""How files become rows: one description, for Python, flags, the kit of a silo and the report of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from ..errors import DataError
from ..schema import CATEGORY, NUMBER, Schema
from ..wording import FLAGS, PARAMETERS, Wording
from .text import N_BUCKETS, SALT, TextRecipe

MISSING = EM, DROP, REFUSE = "em", "drop", "refuse"  # what becomes of missing cells


@dataclass(frozen=True)
class Reading:
    """How the rows of silos are read from files.

    Parameters
    ----------
    silo_column, label_column, id_column : str, optional
        Columns that are not features: silo, known class and identifier of each row. With `silo_column`, all silos are
        in a single file.
    drop : tuple of str
        Further columns to omit.
    columns : tuple of str
        The only columns to use; all by default.
    as_types : mapping of column to {"number", "category"}
        What columns hold. Words in a column that is said to hold numbers count as missing.
    missing : {"refuse", "em", "drop"}
        What becomes of missing cells: an error; NaN, for a method that takes it; or their rows are omitted.
    missing_codes : tuple of str or float
        Codes of missing values in all features of tables, such as -999 or "<5", besides those of the schema.
    schema : Schema or path of a schema.toml, optional
        What the columns are; other columns are ignored. A matrix, whose columns have no names, holds a category as the
        codes of its levels, 0, 1, ...
    of_model : bool
        Whether the schema is that of a model, for messages.
    judge : bool
        Without a schema: find out what the columns are. Identifiers are set aside, constant columns dropped, words with
        few levels become categories, and a warning says so. Otherwise only numbers are accepted.
    header : bool, optional
        Of text files and sheets: whether the first line names the columns. None: it must, and numbers are refused.
    obsm : str, optional
        Of AnnData: the representation to use instead of X.
    text_column : str, optional
        Column of texts, whose words are counted: rows are then `fmtc.tables.hashed_counts` of it, and there are no
        other features. A missing text has no words.
    salt, n_buckets
        For the words of texts, as in `hashed_counts`.
    wording : Wording
        How messages call these options.

    Examples
    --------
    >>> from fmtc.tables import Reading
    >>> reading = Reading(id_column="patient", drop=["zip"])
    >>> reading
    Reading(id_column='patient', drop=('zip',))
    >>> Reading.from_dict(reading.to_dict()) == reading
    True
    """

    silo_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    drop: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    as_types: Mapping[str, str] = field(default_factory=dict)
    missing: str = REFUSE
    missing_codes: tuple[str | float, ...] = ()
    schema: Schema | str | Path | None = None
    of_model: bool = False
    judge: bool = False
    header: bool | None = None
    obsm: str | None = None
    text_column: str | None = None
    salt: str = SALT
    n_buckets: int = N_BUCKETS
    wording: Wording = field(default=PARAMETERS, compare=False)

    def __post_init__(self) -> None:
        for name in ("drop", "columns", "missing_codes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.missing not in MISSING:
            named = self.wording.option("missing")
            raise DataError(f"{named} must be one of {', '.join(MISSING)}, got {self.missing!r}")
        for name, kind in self.as_types.items():
            if kind not in (NUMBER, CATEGORY):
                named = self.wording.option("as_types")
                raise DataError(f"{named}: {name!r} cannot be a {kind!r}; say {NUMBER!r} or {CATEGORY!r}")

    @property
    def roles(self) -> dict[str, str]:
        """Columns with a role, by the option that names them."""
        named = {name: getattr(self, name) for name in ("silo_column", "label_column", "id_column", "text_column")}
        return {name: column for name, column in named.items() if column is not None}

    @property
    def others(self) -> set[str]:
        """Columns that are no features."""
        return {*self.roles.values(), *self.drop}

    @property
    def asks(self) -> bool:
        """Whether columns are more than numbers, without a schema."""
        return self.judge or bool(self.as_types or self.columns)

    @property
    def recipe(self) -> TextRecipe | None:
        """How rows are made from texts; None where they are not."""
        return None if self.text_column is None else TextRecipe(self.text_column, self.salt, self.n_buckets)

    def of_texts(self, recipe: TextRecipe | None) -> Self:
        """The same reading, of texts as they were read before; unchanged without a recipe."""
        if recipe is None:
            return self
        own = {} if self.text_column is None else {"text_column": self.text_column}
        return replace(self, **(asdict(recipe) | own))

    def for_model(self, schema: Schema | None, recipe: TextRecipe | None) -> Self:
        """The same reading, of rows for a model that has this schema or is of texts."""
        return replace(self.of_texts(recipe), schema=schema, of_model=schema is not None, missing=EM)

    def known_schema(self) -> Schema | None:
        """The schema that was given, with what else was said about its columns."""
        if self.schema is None:
            return None
        schema = self.schema if isinstance(self.schema, Schema) else Schema.read(self.schema)
        return schema.with_kinds(self.as_types, self.wording).with_missing(self.missing_codes)

    # ------------------------------------------------------------------------------------------------ documents

    def said(self) -> dict[str, Any]:
        """What differs from the defaults."""
        plain = type(self)()
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}

    def __repr__(self) -> str:
        return f"Reading({', '.join(f'{name}={value!r}' for name, value in self.said().items())})"

    def to_dict(self) -> dict[str, Any]:
        """In what JSON knows."""
        said = self.said()
        if isinstance(self.schema, Schema):
            said["schema"] = self.schema.to_dict()
        elif self.schema is not None:
            said["schema"] = str(self.schema)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Undo `to_dict`, of this version or of 0.1; messages are for the command line."""
        known = {one.name for one in fields(cls) if one.compare}
        given = dict(document)
        given.setdefault("silo_column", given.pop("client_column", None))
        if isinstance(given.get("schema"), Mapping):
            given["schema"] = Schema.from_dict(given["schema"])
        said = {name: value for name, value in given.items() if name in known and value is not None}
        return cls(**said, wording=FLAGS)


__all__ = ["Reading"]
