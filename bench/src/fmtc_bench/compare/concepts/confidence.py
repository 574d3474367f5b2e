"""Confidence: what abstaining is worth, and whether the test for drift is honest and sees a new class."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fmtc.confidence import combined
from fmtc.estimator import FMTC
from fmtc.metrics import match_classes
from fmtc.schema import Encoded

from ...datasets import FederatedDataset, load
from . import Listener, Row

TITLE = "Confidence, abstaining, drift"

SETS = (
    "digits", "bbcsport", "bbcnews", "reuters", "webkb4", "20newsgroups", "gas_drift", "wisdm", "penguins",
    "breast_wisconsin",
)  # fmt: skip
SILOS, ROWS = 8, 400  # of a set, at most
FEWEST = 60  # rows of a silo
HELD = 0.2  # of rows, for gains
APART = 0.4  # of rows, for batches
BATCH = 40  # rows, at most; a silo with few rows has smaller ones
LEAST = 20  # rows of a batch
TURNS = 4  # batches of each silo and kind, drawn anew from its held-out rows each time
SHARES = (0.1, 0.2, 0.4)  # of a class that nobody knows, in a batch
NOMINAL = 0.05

Array = np.ndarray


def measure(seeds: Sequence[int], listen: Listener, sets: Sequence[str] = SETS) -> list[Row]:
    """Rows of all data sets and seeds.

    Parameters
    ----------
    seeds : sequence of int
    listen : callable
        Told what is being measured.
    sets : sequence of str, optional
    """
    rows = []
    for name in sets:
        for seed in seeds:
            listen(f"{name}, seed {seed}")
            data = _thinned(load(name), np.random.default_rng([seed, 19]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row: Row = {"set": name, "seed": int(seed), **_gains(data, seed)}
                if data.n_clusters > 2:
                    row |= _alarms(data, seed)
            rows.append(row)
    return rows


def _thinned(data: FederatedDataset, rng: np.random.Generator) -> FederatedDataset:
    """Some silos of a set that have rows enough, and some rows of each."""
    ids = [cid for cid in sorted(data.client_ids) if np.count_nonzero(data.clients == cid) >= FEWEST]
    ids = sorted(rng.choice(ids, min(SILOS, len(ids)), replace=False).tolist())
    kept = []
    for cid in ids:
        rows = np.flatnonzero(data.clients == cid)
        kept.append(np.sort(rng.choice(rows, min(ROWS, len(rows)), replace=False)))
    return data.take(np.concatenate(kept))


def _fitted(data: FederatedDataset, n_clusters: int, seed: int) -> FMTC:
    rows = _rows(data)
    return FMTC(n_clusters, random_state=seed).fit(rows, silos=data.clients).calibrate(rows, silos=data.clients)


def _rows(data: FederatedDataset, which: Any = slice(None)) -> Any:
    """Some rows of a set, with what the columns are where that is known."""
    return data.X[which] if data.schema is None else Encoded(data.X[which], data.schema)


# ------------------------------------------------------------------------------------------------------ abstaining


def _gains(data: FederatedDataset, seed: int) -> Row:
    """Accuracy of held-out rows, without the least certain tenth and fifth; clusters are matched on training rows."""
    train, test = data.split(HELD, seed)
    model = _fitted(train, train.n_clusters, seed)
    found, scored, left_out, rows = [], [], 0, 0
    for cid in model.silos_:
        own, new = train.clients == cid, test.clients == cid
        matching = match_classes(train.y[own], model.labels_[own])
        labels = model.predict(_rows(test, new), silos=cid)
        right = np.array([matching.get(label, -1) for label in labels]) == test.y[new]
        order = np.argsort(model.confidence(_rows(test, new), silos=cid), kind="stable")
        n = len(order)
        found.append([right.mean(), *(right[order[round(share * n) :]].mean() for share in (0.1, 0.2))])
        out = model.predict(_rows(test, new), silos=cid, abstain=0.1) < 0
        left_out, rows = left_out + int(out.sum()), rows + n
        scored.append(right[~out].mean() if (~out).any() else right.mean())
    acc, tenth, fifth = 100 * np.mean(found, axis=0)
    return {
        "view": model.view_, "silos": len(model.silos_), "acc": float(acc), "gain_10": float(tenth - acc),
        "gain_20": float(fifth - acc), "abstained": 100 * left_out / rows, "held_out": rows,
        "gain_abstaining": float(100 * np.mean(scored) - acc),
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- drift


def _alarms(data: FederatedDataset, seed: int) -> Row:
    """Alarms in batches of known classes, and in batches partly of a class that no silo had."""
    rng = np.random.default_rng([seed, 20])
    unknown = _unknown_class(data, rng)
    train, test = data.split(APART, seed)
    model = _fitted(train.take(np.flatnonzero(train.y != unknown)), data.n_clusters - 1, seed)
    count = {"batches": 0, "false": 0, "trials": 0, "false_all": 0, "mw_false": 0}
    seen = {f"{kind}_{share:g}": 0 for share in SHARES for kind in ("power", "power_all", "mw_power")}
    fresh = {cid: test.X[(test.clients == cid) & (test.y != unknown)] for cid in model.silos_}
    strange = test.X[test.y == unknown]
    more = train.X[train.y == unknown]  # nobody has seen these either
    sizes = {cid: min(BATCH, X.shape[0]) for cid, X in fresh.items() if X.shape[0] >= LEAST}
    for _ in range(TURNS if sizes else 0):
        orders = {cid: rng.permutation(fresh[cid].shape[0])[:size] for cid, size in sizes.items()}
        for share in (0.0, *SHARES):
            p_values = []
            for cid, size in sizes.items():
                n_new = round(share * size)
                batch = fresh[cid][orders[cid][n_new:]]
                if n_new:
                    batch = _stacked(batch, _drawn(strange, more, n_new, rng))
                found = model.drift(batch if data.schema is None else Encoded(batch, data.schema), silos=cid)
                p_values.append(found.p_value)
                alarm, other = found.p_value <= NOMINAL, _mann_whitney(model, cid, batch) <= NOMINAL
                if share:
                    seen[f"power_{share:g}"] += alarm
                    seen[f"mw_power_{share:g}"] += other
                else:
                    count["batches"] += 1
                    count["false"] += alarm
                    count["mw_false"] += other
            together = combined(p_values)[0] <= NOMINAL
            if share:
                seen[f"power_all_{share:g}"] += together
            else:
                count["trials"] += 1
                count["false_all"] += together
    return {"unknown": int(unknown), **{k: int(v) for k, v in (count | seen).items()}}


def _unknown_class(data: FederatedDataset, rng: np.random.Generator) -> int:
    """A class with rows enough, drawn among all such."""
    counts = np.bincount(data.y, minlength=data.n_clusters)
    large = np.flatnonzero(counts >= np.median(counts))
    return int(rng.choice(large))


def _drawn(first: Any, second: Any, n: int, rng: np.random.Generator) -> Any:
    """Rows of the unknown class, with replacement only where there are too few."""
    rows = _stacked(first, second)
    return rows[rng.choice(rows.shape[0], n, replace=n > rows.shape[0])]


def _stacked(first: Any, second: Any) -> Any:
    import scipy.sparse as sp

    return sp.vstack([first, second]).tocsr() if sp.issparse(first) else np.vstack([first, second])


def _mann_whitney(model: FMTC, cid: str, batch: Any) -> float:
    """p-value of the Mann-Whitney test of the same scores, for comparison."""
    from scipy.stats import mannwhitneyu

    own = model._models[cid]
    known = own.calibrated()
    fit = known.fit(own.row_scores(batch))
    return float(mannwhitneyu(fit, known.fits, alternative="less").pvalue)


# ---------------------------------------------------------------------------------------------------------- table


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of a Markdown table: means over seeds of each set, then of all."""
    head = (
        "| set | view | ACC | without 10 % | without 20 % | abstained at 10 % | false alarms | all silos | "
        "power at 10 / 20 / 40 % | all silos |"
    )
    lines = [head, "|" + "---|" * 10]
    names = list(dict.fromkeys(row["set"] for row in rows))
    lines += [_line(name, [row for row in rows if row["set"] == name]) for name in names]
    if len(names) > 1:
        lines.append(_line("mean, or all batches", rows))
    return lines


def _line(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    def mean(key: str) -> float:
        return float(np.mean([row[key] for row in rows]))

    def total(key: str) -> int:
        return sum(row.get(key, 0) for row in rows)

    abstained = sum(row["abstained"] * row["held_out"] for row in rows) / total("held_out")
    views = "/".join(sorted({row["view"] for row in rows}))
    cells = [
        name,
        views,
        f"{mean('acc'):.1f}",
        f"{mean('gain_10'):+.1f}",
        f"{mean('gain_20'):+.1f}",
        f"{abstained:.1f} %",
    ]
    batches, trials = total("batches"), total("trials")
    if not batches:
        return "| " + " | ".join([*cells, "–", "–", "–", "–"]) + " |"
    power = [" / ".join(f"{total(f'{kind}_{s:g}') / n:.2f}" for s in SHARES)
             for kind, n in (("power", batches), ("power_all", trials))]  # fmt: skip
    false = [f"{total('false')} of {batches}", f"{total('false_all')} of {trials}"]
    return "| " + " | ".join([*cells, *false, *power]) + " |"
