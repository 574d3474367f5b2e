"""Phases of which the server sees the sum over clients, and nothing of a single one.

`Masking` wraps a phase whose server needs only the sum of its answers. The client replies as ever. On the way out, the
numbers of its answer become integers modulo 2^64 (or a higher power), and a mask is added to each
(`fmtc.privacy.keys`). The masks of all clients cancel in the sum; a single message, or a sum that lacks one, is noise.
The server adds up, and hands the phase one answer in place of many.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ...errors import DataError, RefusedError, TrustError
from ...linalg import fixed
from ...privacy.protection import OnlySum
from ..base import Answers, Array, Content, Failure, Phase, Summed, array, check, digest, entries, number, pack

FEWEST = 3  # clients: of two, each knows the other's part from the sum
ONLY_SUM = OnlySum("A mask: only the sum over all silos can be read.")


class Masked(Content):
    """An answer that only the sum over all clients opens."""

    words: Array = array(
        "w", "the numbers of the answer in fixed point, a mask added to each, and a 1 to check that masks cancel",
        "Nothing by itself, nor together with those of some of the silos; with those of all silos, the sum over "
        "them.", kind="uint64",
    )  # fmt: skip
    layout: str = number(
        "names and shapes of the fields that are added up", "Which fields there are, and how many columns.", kind="word"
    )


AS_INNER = (  # of a phase with masked answers: all but what its answers look like, and how they are added up
    "name", "doing", "Ask", "subject", "resumes", "persists", "pure", "rebuilds", "parallel", "threads", "concludes",
    "times", "limit", "noise", "charge", "reply", "check_ask",
)  # fmt: skip


class Masking(Phase):
    """A phase with masked answers.

    Parameters
    ----------
    inner : Phase
        With ``sums = True``: its server adds answers up, and does nothing else with them.
    """

    Answer = Masked
    protect = ONLY_SUM

    def __init__(self, inner: Phase):
        if not inner.sums:
            raise TypeError(f"phase {inner.name!r} needs more than the sum of its answers")
        self.inner = inner
        for name in AS_INNER:
            setattr(self, name, getattr(inner, name))

    def asks(self, server: Any, settings: Any) -> Mapping[str, Any]:
        """As the phase itself, and the same for all: masks cancel only between clients with the same question."""
        found = self.inner.asks(server, settings)
        first = next(iter(found.values()))
        if any(ask is not first and digest(ask) != digest(first) for ask in found.values()):
            raise RuntimeError(f"phase {self.name!r} asks silos different questions, whose answers do not add up")
        return found

    def check_answer(self, answer: Any, ask: Any, sizes: Mapping[str, int]) -> None:
        """Raise `RefusedError` where a masked answer is not as long as its layout says, or holds other fields."""
        if isinstance(answer, Failure):
            return super().check_answer(answer, ask, sizes)
        check(answer, Masked, self.name, {})
        layout = read_layout(answer.layout, self.inner)
        if len(answer.words) != (n_numbers(layout) + 1) * self.inner.limbs:
            raise RefusedError(f"{self.name}: words does not hold what layout says")

    def reduce(self, server: Any, answers: Answers, settings: Any) -> Any:
        """Open the sum, and hand it to the phase."""
        absent = sorted(set(server.client_ids) - set(answers))
        if absent:
            raise TrustError(f"the sum of {self.name!r} cannot be opened without {', '.join(map(repr, absent))}")
        return self.inner.reduce(server, Summed(opened(self.inner, answers), len(answers)), settings)


# ------------------------------------------------------------------------------------------------------ words, layout

Layout = list[tuple[str, tuple[int, ...]]]


def layout_of(answer: Any) -> Layout:
    """Names and shapes of the fields of an answer."""
    return [(name, np.shape(value)) for name, value in pack(answer).items()]


def read_layout(text: str, phase: Phase) -> Layout:
    """Undo ``json.dumps`` of a layout; refuses fields that the phase does not declare."""
    try:
        layout = [(str(name), tuple(shape)) for name, shape in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        raise RefusedError(f"{phase.name}: layout cannot be read") from None
    declared = entries(phase.Answer)
    for name, shape in layout:
        sizes = all(type(size) is int and size >= 0 for size in shape)
        if name not in declared or len(shape) != len(declared[name].shape or ()) or not sizes:
            raise RefusedError(f"{phase.name}: layout names {name!r} of shape {shape}, which is not declared")
    lacking = [name for name, entry in declared.items() if not entry.when and name not in dict(layout)]
    if lacking or len(dict(layout)) < len(layout):
        raise RefusedError(f"{phase.name}: layout lacks {', '.join(lacking) or 'nothing, and names a field twice'}")
    return layout


def n_numbers(layout: Layout) -> int:
    """How many numbers the fields hold."""
    return sum(prod(shape) for _, shape in layout)


def largest(phase: Phase | type[Phase], n_clients: int) -> float:
    """Numbers of a phase have to be below this, so that their sum over clients fits."""
    return float(2.0 ** (fixed.WORD * phase.limbs - 2 - phase.fraction) / n_clients)


def encoded(phase: Phase, answer: Any, n_clients: int) -> Array:
    """The numbers of an answer as words, and a 1 behind them; (numbers + 1, limbs).

    Raises
    ------
    DataError
        If a number is so large that the sum might not fit.
    """
    values = [np.ravel(np.asarray(value, dtype=np.float64)) for value in pack(answer).values()]
    numbers = np.concatenate([*values, [np.ldexp(1.0, -phase.fraction)]])  # one unit of the last place
    room = largest(phase, n_clients)
    if not (np.abs(numbers) < room).all():
        raise DataError(
            f"a number of {phase.name!r} is {np.abs(numbers).max():.1e}; a sum that only all silos together can open "
            f"takes numbers below {room:.1e}. Rescale the columns of all silos."
        )
    return fixed.encode(numbers, phase.fraction, phase.limbs)


def opened(phase: Phase, answers: Mapping[str, Any]) -> Any:
    """The sum of masked answers, as an answer of the phase; yes-or-no fields count the yes."""
    layouts = {answer.layout for answer in answers.values()}
    if len(layouts) > 1:
        raise DataError(
            f"silos disagree on the columns: their answers to {phase.name!r} have different shapes. Bring every "
            "silo to the same columns."
        )
    layout = read_layout(layouts.pop(), phase)
    words = [answer.words.reshape(-1, phase.limbs) for answer in answers.values()]
    total = words[0]
    for part in words[1:]:
        total = fixed.added(total, part)
    if [int(word) for word in total[-1]] != [len(answers), *[0] * (phase.limbs - 1)]:
        raise TrustError(
            f"the masks of {phase.name!r} do not cancel: an answer was lost, repeated or changed on its way, or "
            "silos were asked different questions. Start a new run."
        )
    answer = phase.Answer(**_fields(fixed.decode(total[:-1], phase.fraction), layout, phase))
    for name, entry in entries(phase.Answer).items():
        value = getattr(answer, name)
        wrong = entry.check(value, {}) if entry.check is not None and value is not None else None
        if wrong:
            raise TrustError(f"{phase.name}: the sum of {name} {wrong}, so one of the silos sent no honest answer")
    return answer


def _fields(numbers: Array, layout: Layout, phase: Phase) -> dict[str, Any]:
    """Fields of an answer from the numbers of all of them."""
    declared, place, found = entries(phase.Answer), 0, dict[str, Any]()
    for name, shape in layout:
        size, kind = prod(shape), declared[name].kind
        part, place = numbers[place : place + size].reshape(shape), place + size
        if declared[name].shape is None:
            found[name] = float(part) if kind == "float" else round(float(part))
        else:
            found[name] = part if kind in ("float", "float64", "real") else np.rint(part).astype(np.int64)
    return found
