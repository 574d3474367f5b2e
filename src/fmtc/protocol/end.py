"""Phase `end`: the run is over, and how it ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..describe import FLAGS
from .base import Array, Nothing, Phase, array, number

WHEN = "where the server has compared the clients' concepts"


LACKS = len(FLAGS)  # in place of the number of a flag: the silo lacks the concept


def told(atlas: Mapping[str, Any] | None, client: str, held: Collection[str] = ()) -> dict[str, Any]:
    """What `end` says to one silo: cosines and flags of its concepts, as the atlas has them, and whether it is held."""
    concepts = [] if atlas is None else atlas["concepts"]
    if client in held:
        return {"held": True}
    if not any(client in one["flags"] for one in concepts):
        return {}
    flags = [FLAGS.index(one["flags"][client]) if client in one["flags"] else LACKS for one in concepts]
    cosine = [one["cosine"].get(client, 0.0) for one in concepts]
    return {"cosine": np.array(cosine, dtype=np.float64), "flags": np.array(flags, dtype=np.uint8)}


def heard(cosine: Array | None, flags: Array | None) -> dict[str, list[Any]] | None:
    """What a silo keeps of `told`, in what JSON knows; None where it was told nothing."""
    if cosine is None or flags is None:
        return None
    return {"cosine": cosine.tolist(), "flags": ["" if code >= LACKS else FLAGS[code] for code in flags.tolist()]}


class End(Phase):
    """The last message of a run."""

    name = "end"
    doing = "ending the run"
    subject = "run"

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        """How the run ended."""

        converged: bool = number("whether the residuals fell below the tolerance", "Nothing else.", kind="flag")
        cosine: Array | None = array(
            "K", "how alike the client's clusters are to those of the same concepts elsewhere, as a cosine",
            "Whether other clients have what this one has.", when=WHEN,
        )  # fmt: skip
        flags: Array | None = array(
            "K", "0 matched, 1 unsure, 2 unique to this client, 3 a concept that it lacks", "As `cosine`.",
            kind="uint8", when=WHEN,
        )  # fmt: skip
        held: bool | None = number(
            "that the server has capped this client, set it aside or refused an answer of it",
            "That it is unlike the others.", kind="flag", when="where it has",
        )  # fmt: skip

    def reply(self, run: Any, ask: Ask, settings: Any, round_no: int) -> tuple[Any, Nothing]:
        """Note that the run is over."""
        run.end(ask.converged, heard(ask.cosine, ask.flags), bool(ask.held))
        return run, Nothing()


END = End()
