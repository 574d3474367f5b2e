"""Phase `verdict`: each client learns how its columns differ from those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tables.findings import CODES, WIDTH
from .base import Array, Nothing, Phase, array


def _are_findings(found: Any, sizes: Mapping[str, int]) -> str | None:
    code, column, place = found[:, 0], found[:, 2], found[:, 3]
    right = np.isin(code, range(len(CODES))) & np.isin(column, range(-1, sizes["D"])) & (place >= -1)
    return None if right.all() else f"are not about {sizes['D']} columns"


class Verdict(Phase):
    """Findings about one client, as numbers; it puts them into words with its own column names."""

    name = "verdict"
    doing = "reading what was found about its columns"
    subject = "table"

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """Findings about this client."""

        findings: Array = array(
            f"f {WIDTH}", "how this client's columns differ from the others': a code, whether it stops a run, the "
            "column's place here and there, a number",
            "Where its columns stand at the others, which it lacks, and by which factor the others' values differ from "
            "its own.", check=_are_findings,
        )  # fmt: skip

    def reply(self, table: Any, ask: Ask, settings: Any, round_no: int) -> tuple[Any, Nothing]:
        """Keep the findings for the person at the client."""
        table.hear(ask.findings, settings)
        return table, Nothing()


VERDICT = Verdict()
