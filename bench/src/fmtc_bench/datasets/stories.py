"""Data sets as stories for `fmtc demo`: found through entry points of the group `fmtc.stories`."""

from __future__ import annotations

import numpy as np
import polars as pl

from fmtc.demo import Story
from fmtc.schema import Schema

from . import load


def heart_disease(random_state: int = 0) -> Story:
    """Four real hospitals, where FMTC_DATA or the user's cache has the data set."""
    data = load("heart_disease")
    assert data.schema is not None
    tables = {}
    for hospital, part in data.by_client().items():
        cells: list[pl.Series] = [pl.Series("patient", [f"{hospital}-{i + 1:03}" for i in range(len(part.y))])]
        for column, values in zip(data.schema.columns, part.X.T, strict=True):
            words = [None if np.isnan(x) else column.levels[int(x)] if column.levels else float(x) for x in values]
            cells.append(pl.Series(column.name, words, dtype=pl.String if column.levels else pl.Float64))
        cells.append(pl.Series("diagnosis", [data.class_names[code] for code in part.y]))
        tables[hospital] = pl.DataFrame(cells)
    return Story(
        "920 patients with suspected coronary disease in Cleveland, Budapest (hungarian), Zurich and Basel "
        "(switzerland) and Long Beach (va), as the hospitals recorded them; some hospitals left columns empty.",
        tables,
        "diagnosis",
        2,
        Schema(data.schema.columns, id_column="patient"),
    )
