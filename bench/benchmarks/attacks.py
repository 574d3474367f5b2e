"""What one hostile silo does to the others: each attack with and without containment, beside staying alone.

    FMTC_DATA=folder python bench/benchmarks/attacks.py [--only digits] [--view graph] [--seeds 3] [--json]

ACC in percent of the honest silos only, mean of silos, then of seeds. The hostile silo is an honest one whose answers
are changed on their way to the server, in every phase from the first to the last; nothing of the product is changed.
`before` is `contain=False, own=False`, which believes everything. `without it` is the federation of the honest
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
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import views
from _attacks import ATTACKS as OF_ANSWERS
from _attacks import Attack, fit_hostile
from fmtc import FMTC
from fmtc.errors import ClientError
from fmtc.metrics import clustering_accuracy
from fmtc.settings import by_view
from fmtc_bench.datasets import FederatedDataset

ATTACKED = ("digits", "heart_disease", "penguins", "breast_wisconsin", "webkb4", "yale")
VIEWS = ("graph", "mixture", "auto")
ROWS, SILOS = 170, 8
STAGES = {  # which phases are attacked
    "rounds": ("round", "em"),
    "ends": ("hello", "moments", "axes", "coordinates", "seed", "probe", "finish", "settle"),
    "all": None,
}


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


POISONS = ("wrong_units", "noise_rows")  # of rows: the silo then follows the protocol
ATTACKS = (*POISONS, *OF_ANSWERS)


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
    there = np.isin(data.clients, model.silos_)
    found[there] = model.predict(views.for_fmtc(data.take(np.flatnonzero(there))), silos=data.clients[there])
    return found


def alone(data: FederatedDataset, view: str, seed: int) -> np.ndarray:
    """Labels of each silo fitted for itself."""
    found = np.full(len(data.y), -1)
    for cid in data.client_ids:
        mine = np.flatnonzero(data.clients == cid)
        model = FMTC(data.n_clusters, view=view, random_state=seed)
        found[mine] = model.fit(views.for_fmtc(data.take(mine))).labels_
    return found


def built(n_clusters: int, view: str, seed: int, **setting: Any) -> FMTC:
    """FMTC in a view; its settings by their own names."""
    return FMTC(n_clusters, random_state=seed, **by_view({"view": view} | setting))


def attacked(
    data: FederatedDataset, view: str, seed: int, attack: str, stage: str, hostile: tuple[str, ...], contain: bool
) -> tuple[np.ndarray | None, str]:
    """Labels after an attack, and what the run says about it; None where the run ended without a model."""
    model = built(data.n_clusters, view, seed, contain=contain, own=contain)
    attacks = {} if attack in POISONS else {cid: Attack(attack, seed) for cid in hostile}
    rows = poisoned(data, hostile, attack, seed) if attack in POISONS else data
    try:
        fit_hostile(model, views.for_fmtc(rows), data.clients, attacks, STAGES[stage])
    except (ClientError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, f"{type(error).__name__}: {str(error)[:90]}"
    alone = [cid for cid, choice in model.run_.choices.items() if choice == "alone"]
    capped = sum(bool(record.capped or record.odd) for record in model.run_.rounds)
    return labels_of(rows, model), f"{capped}/{len(model.run_.rounds)} rounds, {len(alone)} alone"


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
        calm = FMTC(data.n_clusters, view=view, random_state=seed).fit(views.for_fmtc(without), silos=without.clients)
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
        built(data.n_clusters, view, seed, contain=contain).fit(views.for_fmtc(data), silos=data.clients)
        for contain in (False, True)
    ]
    first, second = (honest_score(data, model.labels_, ()) for model in models)
    touched = sorted({cid for record in models[1].run_.rounds for cid in (*record.capped, *record.odd)})
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
