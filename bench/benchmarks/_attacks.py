"""A hostile silo: an honest one whose answers are changed on their way to the server. Nothing of the product changes.

`bench/benchmarks/attacks.py` measures what it does to the others, and the tests see that it is contained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fmtc import FMTC, estimator
from fmtc.protocol.base import Message, pack
from fmtc.runtime.driver import Replies
from fmtc.runtime.local import LocalTransport

Answer = Any


class Attack:
    """What a hostile silo makes of its honest answer; it may know everything that anybody sent."""

    def __init__(self, name: str, seed: int = 0):
        self.name, self.rng, self.first = name, np.random.default_rng([seed, 77]), dict[str, Answer]()
        self.fixed: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """The answer to send."""
        found: Answer = getattr(self, self.name)(phase, answer, others)
        return found

    def _each(self, answer: Answer, change: Callable[[str, np.ndarray], np.ndarray]) -> Answer:
        arrays = {
            name: np.asarray(change(name, value), dtype=value.dtype)
            for name, value in pack(answer).items()
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        }
        return replace(answer, **arrays)

    def scaled(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """All arrays times 1000."""
        return self._each(answer, lambda _, A: 1000 * A)

    def random(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Noise of the same norm, another each time."""
        return self._each(answer, lambda _, A: _noise(self.rng, A))

    def random_scaled(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """The same noise each time, times 1000."""
        return self._each(answer, lambda name, A: 1000 * self._same(phase, name, A))

    def _same(self, phase: str, name: str, A: np.ndarray) -> np.ndarray:
        kept = self.fixed.setdefault((phase, name), _noise(self.rng, A))
        return kept if kept.shape == A.shape else _noise(self.rng, A)

    def rank_one(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Matrices of rank one, times 1000."""

        def flat(name: str, A: np.ndarray) -> np.ndarray:
            if A.ndim < 2:
                return A
            B = self._same(phase, name, A)
            return 1000 * np.broadcast_to(B[..., :1], A.shape)

        return self._each(answer, flat)

    def flipped(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """The opposite sign."""
        return self._each(answer, lambda _, A: -A)

    def replayed(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Its first answer of a phase, for ever."""
        kept = self.first.setdefault(phase, answer)
        same = all(np.shape(a) == np.shape(b) for a, b in zip(pack(kept).values(), pack(answer).values(), strict=True))
        return kept if same else answer

    def shuffled(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Its own answer with the features in another order, times 1.5; in a mixture, means of other features."""
        order = np.random.default_rng(5)

        def mixed(name: str, A: np.ndarray) -> np.ndarray:
            if name == "W":
                return 1.5 * A[order.permutation(len(A))]
            return A[..., order.permutation(A.shape[-1])] if name in ("means", "sums", "centers") else A

        return self._each(answer, mixed)

    def shifted(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Means and sums moved by a hundred times their size in one direction."""

        def moved(name: str, A: np.ndarray) -> np.ndarray:
            if name not in ("W", "means", "sums", "centers"):
                return A
            step = np.random.default_rng(6).normal(size=A.shape[-1])
            return A + 100 * np.abs(A).mean() * step

        return self._each(answer, moved)

    def targeted(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Away from the first honest silo: what all others say, less three times what sets the victim apart."""
        victim, *rest = (others[cid] for cid in sorted(others))
        if not rest:
            rest = [answer]

        def away(name: str, A: np.ndarray) -> np.ndarray:
            own, them = getattr(victim, name), np.mean([getattr(other, name) for other in rest], axis=0)
            return A if own is None else them - 3 * (own - them)

        return self._each(answer, away)

    def not_finite(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """One NaN in each array."""

        def spoiled(name: str, A: np.ndarray) -> np.ndarray:
            A = A.copy()
            A.flat[A.size // 2 : A.size // 2 + 1] = np.nan
            return A

        return self._each(answer, spoiled)

    def huge(self, phase: str, answer: Answer, others: Mapping[str, Answer]) -> Answer:
        """Finite numbers whose squares are not."""
        return self._each(answer, lambda _, A: 1e200 * A)


def _noise(rng: np.random.Generator, A: np.ndarray) -> np.ndarray:
    B = rng.normal(size=A.shape)
    return B * np.linalg.norm(A) / max(float(np.linalg.norm(B)), 1e-300)


ATTACKS = ("scaled", "random", "random_scaled", "rank_one", "flipped", "replayed", "shuffled", "shifted",
           "targeted", "not_finite", "huge")  # fmt: skip


class HostileTransport(LocalTransport):
    """Clients in this process, some of whose answers are changed after they left the outbox."""

    hostile: Mapping[str, Attack] = {}
    phases: tuple[str, ...] | None = None  # that are attacked; None: all

    def exchange(self, messages: Mapping[str, Message]) -> Replies:
        """As the local transport does it, then the attacks."""
        replies = super().exchange(messages)
        (phase,) = {message.phase for message in messages.values()}
        honest = {cid: answer for cid, answer in replies.answers.items() if cid not in self.hostile}
        for cid, attack in self.hostile.items():
            if cid in replies.answers and (self.phases is None or phase in self.phases):
                replies.answers[cid] = attack(phase, replies.answers[cid], honest)
        return replies


def fit_hostile(
    model: FMTC, X: Any, clients: Any, attacks: Mapping[str, Attack], phases: tuple[str, ...] | None = None
) -> FMTC:
    """Fit a model in a federation where these clients attack."""

    class Transport(HostileTransport):
        hostile = attacks

    Transport.phases = phases
    honest = estimator.LocalTransport
    estimator.LocalTransport = Transport  # type: ignore[misc]
    try:
        return model.fit(X, silos=clients)
    finally:
        estimator.LocalTransport = honest  # type: ignore[misc]
