"""What one hostile silo does to the others: each attack with and without containment, beside staying alone.

    FMTC_DATA=folder python benchmarks/attacks.py [--only digits] [--view graph] [--seeds 3] [--json]

ACC in percent of the honest silos only, mean of silos, then of seeds. The hostile silo is an honest one whose answers
are changed on their way to the server, in every phase from the first to the last; nothing of the product is changed.
`before` is `Solver(contain=False, exit=False)`, which believes everything. `without it` is the federation of the honest
silos only, `alone` the same model of each honest silo for itself.
A run that ends because the server refuses to go on counts as `alone`: that is what the honest silos are left with.

The last table has nobody hostile: labels with containment against labels without, on all data sets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import views
from fmtc import FMTC, ClientError, Solver
from fmtc.datasets import FederatedDataset
from fmtc.metrics import clustering_accuracy
from fmtc.protocol.base import Message, pack
from fmtc.runtime.driver import Replies
from fmtc.runtime.local import LocalTransport

ATTACKED = ("digits", "heart_disease", "penguins", "breast_wisconsin", "webkb4", "yale")
VIEWS = ("graph", "mixture", "auto")
ROWS, SILOS = 170, 8
STAGES = {  # which phases are attacked
    "rounds": ("round", "em"),
    "ends": ("hello", "moments", "axes", "coordinates", "seed", "probe", "finish", "settle"),
    "all": None,
}
Answer = Any


# ------------------------------------------------------------------------------------------------------------ attacks


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


def poisoned(data: FederatedDataset, hostile: tuple[str, ...], how: str, seed: int) -> FederatedDataset:
    """The same federation with other rows of the hostile silos, which then follow the protocol."""
    X, rng = data.X.copy(), np.random.default_rng([seed, 88])
    levels = () if data.schema is None else data.schema.levels
    numbers = np.array([j for j in range(X.shape[1]) if not (levels and levels[j])])
    for cid in hostile:
        rows = np.flatnonzero(data.clients == cid)
        if how == "wrong_units":
            X[rows] = X[rows] * 1000 if sp.issparse(X) else _with(X[rows], numbers, 1000 * X[rows][:, numbers])
        elif sp.issparse(X):
            order = rng.permutation(X.shape[1])
            X[rows] = X[rows][:, order]
        else:
            own = X[rows][:, numbers]
            noise = np.nanmean(own, axis=0) + np.nanstd(own, axis=0) * rng.normal(size=own.shape)
            X[rows] = _with(X[rows], numbers, noise)
    return replace(data, X=X)


def _with(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    rows = rows.astype(float)
    rows[:, columns] = values
    return rows


POISONS = ("wrong_units", "noise_rows")
ATTACKS = (*POISONS, "scaled", "random", "random_scaled", "rank_one", "flipped", "replayed", "shuffled", "shifted",
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
    from fmtc import estimator

    class Transport(HostileTransport):
        hostile = attacks

    Transport.phases = phases
    honest = estimator.LocalTransport
    estimator.LocalTransport = Transport  # type: ignore[misc]
    try:
        return model.fit(X, clients=clients)
    finally:
        estimator.LocalTransport = honest  # type: ignore[misc]


# ------------------------------------------------------------------------------------------------------------- scores


def honest_score(data: FederatedDataset, labels: np.ndarray, hostile: tuple[str, ...]) -> float:
    """ACC in percent, mean of the honest silos."""
    honest = [cid for cid in data.client_ids if cid not in hostile]
    return 100 * float(
        np.mean([clustering_accuracy(data.y[data.clients == cid], labels[data.clients == cid]) for cid in honest])
    )


def labels_of(data: FederatedDataset, model: FMTC) -> np.ndarray:
    """Labels of all rows in the order of the data; -1 for rows of a silo that the run ended without."""
    found = np.full(len(data.y), -1)
    there = np.isin(data.clients, model.client_ids_)
    found[there] = model.predict(views.for_fmtc(data.take(np.flatnonzero(there))), clients=data.clients[there])
    return found


def alone(data: FederatedDataset, view: str, seed: int) -> np.ndarray:
    """Labels of each silo fitted for itself."""
    found = np.full(len(data.y), -1)
    for cid in data.client_ids:
        mine = np.flatnonzero(data.clients == cid)
        model = FMTC(data.n_clusters, view=view, random_state=seed)
        found[mine] = model.fit(views.for_fmtc(data.take(mine))).labels_
    return found


def attacked(
    data: FederatedDataset, view: str, seed: int, attack: str, stage: str, hostile: tuple[str, ...], contain: bool
) -> tuple[np.ndarray | None, str]:
    """Labels after an attack, and what the run says about it; None where the run ended without a model."""
    model = FMTC(
        data.n_clusters, view=view, random_state=seed, solver=Solver(contain=contain, exit="auto" if contain else False)
    )
    attacks = {} if attack in POISONS else {cid: Attack(attack, seed) for cid in hostile}
    rows = poisoned(data, hostile, attack, seed) if attack in POISONS else data
    try:
        fit_hostile(model, views.for_fmtc(rows), data.clients, attacks, STAGES[stage])
    except (ClientError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, f"{type(error).__name__}: {str(error)[:90]}"
    alone = [cid for cid, choice in getattr(model, "choice_", {}).items() if choice == "alone"]
    capped = sum(bool(record.capped or record.odd) for record in model.history_)
    return labels_of(rows, model), f"{capped}/{len(model.history_)} rounds, {len(alone)} alone"


def measure(
    name: str, view: str, seeds: int, hostile_of: int, attacks: tuple[str, ...], stages: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One row for each attack; the last of `hostile_of` silos is hostile."""
    data, _ = views.read(name)
    data = views.capped(data, ROWS, hostile_of)
    hostile = (str(data.client_ids[-1]),)
    by: dict[tuple[str, str], dict[str, list[float]]] = {}
    notes: dict[tuple[str, str, str], str] = {}
    for seed in range(seeds):
        single = honest_score(data, alone(data, view, seed), hostile)
        without = data.take(np.flatnonzero(~np.isin(data.clients, hostile)))
        calm = FMTC(data.n_clusters, view=view, random_state=seed).fit(views.for_fmtc(without), clients=without.clients)
        for attack, stage in product(attacks, stages):
            if attack in POISONS and stage != stages[0]:  # in all phases anyway
                continue
            row = by.setdefault((attack, stage), {"alone": [], "without it": [], "before": [], "after": []})
            row["alone"].append(single)
            row["without it"].append(honest_score(without, calm.labels_, ()))
            for title, contain in (("before", False), ("after", True)):
                labels, note = attacked(data, view, seed, attack, stage, hostile, contain)
                row[title].append(single if labels is None else honest_score(data, labels, hostile))
                notes[attack, stage, title] = note
    return [
        {"data": name, "view": view, "silos": len(data.client_ids), "attack": attack, "in": stage}
        | {title: round(float(np.mean(found)), 1) for title, found in row.items()}
        | {"note": notes[attack, stage, "after"], "note before": notes[attack, stage, "before"]}
        for (attack, stage), row in by.items()
    ]


def unchanged(name: str, view: str, seed: int) -> dict[str, Any]:
    """Whether containment changes any label where nobody is hostile."""
    data, _ = views.read(name)
    data = views.capped(data, ROWS, SILOS)
    models = [
        FMTC(data.n_clusters, view=view, random_state=seed, solver=Solver(contain=contain)).fit(
            views.for_fmtc(data), clients=data.clients
        )
        for contain in (False, True)
    ]
    first, second = (honest_score(data, model.labels_, ()) for model in models)
    touched = sorted({cid for record in models[1].history_ for cid in (*record.capped, *record.odd)})
    return {
        "data": name, "view": view, "off": round(first, 2), "on": round(second, 2),
        "labels that differ": int((models[0].labels_ != models[1].labels_).sum()), "touched": touched,
    }  # fmt: skip


def show(rows: list[dict[str, Any]]) -> None:
    """A Markdown table."""
    if rows:
        print(f"\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
        for row in rows:
            print(f"| {' | '.join(str(value) for value in row.values())} |")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=ATTACKED, help="data sets that are attacked")
    parser.add_argument("--view", nargs="*", default=VIEWS, choices=VIEWS)
    parser.add_argument("--attack", nargs="*", default=ATTACKS, choices=ATTACKS)
    parser.add_argument("--stage", nargs="*", default=("rounds", "ends"), choices=tuple(STAGES))
    parser.add_argument("--silos", nargs="*", type=int, default=(3, SILOS), help="of which one is hostile")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--calm", action="store_true", help="only the runs where nobody is hostile, on all data sets")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if args.calm:
            for name in (*views.TEN, *views.NINE) if args.only == ATTACKED else args.only:
                for view in args.view:
                    rows.append(unchanged(name, view, 0))
                    print(rows[-1], file=sys.stderr, flush=True)
        else:
            for name in args.only:
                for view in args.view:
                    for silos in args.silos:
                        started = time.perf_counter()
                        rows += measure(name, view, args.seeds, silos, tuple(args.attack), tuple(args.stage))
                        seconds = time.perf_counter() - started
                        print(f"{name}, {view}, {silos} silos: {seconds:.0f} s", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows)


if __name__ == "__main__":
    main()
