"""How files become rows: one description, written down and read again, with a flag for each of its fields."""

from dataclasses import fields, replace

import pytest

from fmtc.cli.flags import TABLES
from fmtc.cli.program import commands_of, main_group
from fmtc.schema import Column, Schema
from fmtc.tables import Reading
from fmtc.tables.text import TextRecipe
from fmtc.wording import FLAGS, FRAMES, PARAMETERS

SCHEMA = Schema((Column("age"), Column("sex", "category", ("f", "m"))), "id")


@pytest.mark.parametrize(
    "reading",
    [
        Reading(),
        Reading(silo_column="site", drop=["a", "b"], missing="em", missing_codes=["<5", -999.0], header=False),
        Reading(as_types={"sex": "category"}, columns=("sex",), judge=True, obsm="X_pca"),
        Reading(text_column="note", salt="s", n_buckets=512),
        Reading(schema=SCHEMA, of_model=True),
        Reading(schema="schema.toml"),
    ],
)
def test_what_is_written_is_read_again(reading):
    assert Reading.from_dict(reading.to_dict()) == reading
    assert all(getattr(Reading(), name) != value for name, value in reading.said().items())


def test_what_version_0_1_wrote():
    written = {
        "text_column": "note", "salt": "fmtc", "n_buckets": 2**18, "client_column": "site", "label_column": None,
        "id_column": "id", "drop": [], "missing_codes": ["-9"], "header": False, "missing": "em", "judge": True,
    }  # fmt: skip
    assert Reading.from_dict(written) == Reading(
        silo_column="site", id_column="id", missing="em", missing_codes=("-9",), judge=True, header=False,
        text_column="note",
    )  # fmt: skip


def test_every_field_is_a_flag_of_that_name():
    flags = {flag for option in commands_of(main_group)["fit"].params for flag in option.opts}
    assert {FLAGS.option(name) for name in TABLES} <= flags
    ours = {"of_model", "judge", "salt", "n_buckets", "wording"}  # nobody is asked about these
    assert {one.name for one in fields(Reading)} == {*TABLES} | ours
    assert PARAMETERS.option("silo_column") == "`silo_column`"


def test_what_was_said_of_columns_is_part_of_the_schema():
    reading = Reading(schema=SCHEMA, as_types={"age": "number"}, missing_codes=[-9])
    age, sex = reading.known_schema().columns
    assert (age.words_missing, sex.words_missing, age.missing, sex.missing) == (True, False, ("-9",), ("-9",))
    assert Reading().known_schema() is None
    assert Reading().for_model(SCHEMA, None) == Reading(schema=SCHEMA, of_model=True, missing="em")
    recipe = TextRecipe("note", "s", 99)
    assert Reading().of_texts(recipe).recipe == recipe
    assert Reading(text_column="other").of_texts(recipe).recipe == replace(recipe, text_column="other")


def test_a_way_for_frames_names_the_column():
    ways = [FRAMES.way(option, "number:a b", column="a b") for option in ("drop", "as_types", "silo_column")]
    assert ways == [
        " (X.drop(columns='a b'))", " (pandas.to_numeric(X['a b'], errors='coerce'))", " (silos='a b')",
    ]  # fmt: skip
    assert FLAGS.way("drop", "a b", column="a b") == " (--drop 'a b')"
