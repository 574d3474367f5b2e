"""Joining later and uploading nothing: one silo at a time is left out, and comes back with the kit of the others."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmtc.artifacts.models import read_kit
from fmtc.estimator import FMTC
from fmtc.later import join_later
from fmtc.later.join import common_of
from fmtc.metrics import clustering_accuracy
from fmtc.models.shared import Published
from fmtc.protocol.state import input_rows
from fmtc.refit import Silo
from fmtc.schema import Encoded
from fmtc.settings import Settings

from ...datasets import SOURCES, FederatedDataset, load
from ...datasets.base import find
from . import Listener, Row

TITLE = "Joining later"
# sets with at least four silos, so that three are left to publish
DATASETS = (
    "digits", "bbcnews", "bbcsport", "webkb4", "20newsgroups", "enron_spam", "utd_mhad", "coil20", "yaleb",
    "heart_disease", "breast_wisconsin", "vowels_h95", "wisdm", "gas_drift",
)  # fmt: skip
NEWCOMERS = 4  # at most, of each set and seed
ROWS = 400  # at most, of each silo
WAYS = ("alone", "published", "guided", "auto", "member")


def measure(seeds: Sequence[int], listen: Listener, names: Sequence[str] = DATASETS) -> list[Row]:
    """A row for each newcomer: its accuracy alone, with the published model as it is, guided, by "auto", as a member.

    Parameters
    ----------
    seeds : sequence of int
        Of the dealing of rows, of the split, of the choice of newcomers and of all fits.
    listen : callable
    names : sequence of str
        Data sets; those that are not on this machine are left out.
    """
    rows: list[Row] = []
    for name in names:
        if find(SOURCES[name]) is None:
            listen(f"{name} is not here")
            continue
        for seed in seeds:
            listen(f"{name}, seed {seed}")
            rows += _set(name, seed)
    return rows


def _set(name: str, seed: int) -> list[Row]:
    options: dict[str, Any] = {"seed": seed} if "seed" in SOURCES[name].options else {}
    train, _ = load(name, **options).split(0.2, seed)
    silos, truth = _capped(train, seed)
    k, rng = len(train.class_names), np.random.default_rng(seed)
    chosen = sorted(rng.permutation(sorted(silos))[:NEWCOMERS].tolist())
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of rows and graphs, which are as they are
        member = FMTC(k, random_state=seed).fit(silos)
        as_members = member.predict({cid: silos[cid] for cid in chosen})
        found = []
        for cid in chosen:
            rest = FMTC(k, random_state=seed).fit({other: X for other, X in silos.items() if other != cid})
            kit = read_kit(rest.publish(Path(folder) / f"{chosen.index(cid)}"))
            guided = join_later(kit, silos[cid], name=cid, guide=True, random_state=seed)
            auto = join_later(kit, silos[cid], name=cid, random_state=seed)
            labels = {
                "alone": FMTC(k, random_state=seed).fit({cid: silos[cid]}).labels_,
                "published": _as_published(cid, _plain(silos[cid]), kit.published, rest._settings()),
                "guided": guided.labels_,
                "auto": auto.labels_,
                "member": as_members[cid],
            }
            scores = {way: 100 * clustering_accuracy(truth[cid], labels[way]) for way in WAYS}
            found.append(
                {"dataset": name, "seed": seed, "newcomer": cid, "rows": len(truth[cid]), "view": rest.view_,
                 "agreement": auto.run_.joined.agreement, "joined": auto.run_.joined.guided, **scores}
            )  # fmt: skip
    return found


def _as_published(name: str, X: Any, kit: Published, settings: Settings) -> np.ndarray:
    """Labels of a newcomer's rows by the published model, without a fit; (n,)."""
    silo, common = Silo(name, kit.n_clusters, settings), common_of(kit)
    client = common.opened(silo, X)
    return common.unfitted(client, silo.at_home(kit.view)).assign(input_rows(client))


def _capped(train: FederatedDataset, seed: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Some rows of each silo, and their classes."""
    rng, silos, truth = np.random.default_rng(seed), {}, {}
    for cid in sorted(set(train.clients.tolist())):
        rows = np.flatnonzero(train.clients == cid)
        if len(rows) > ROWS:
            rows = np.sort(rng.choice(rows, ROWS, replace=False))
        X = train.X[rows]
        silos[cid] = X if train.schema is None else Encoded(X, train.schema)
        truth[cid] = train.y[rows]
    return silos, truth


def _plain(X: Any) -> Any:
    return X.X if isinstance(X, Encoded) else X


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means of each set over its newcomers and seeds, their mean, and the set that lost most against alone."""
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    sets = {
        name: {way: float(np.mean([row[way] for row in rows if row["dataset"] == name])) for way in WAYS}
        | {"joined": float(np.mean([row["joined"] for row in rows if row["dataset"] == name]))}
        for name in names
    }
    mean = {way: float(np.mean([found[way] for found in sets.values()])) for way in WAYS}
    gains = {name: found["auto"] - found["alone"] for name, found in sets.items()}
    worst = min(gains, key=lambda name: gains[name])
    return {"sets": sets, "mean": mean, "gain": mean["auto"] - mean["alone"], "worst": (worst, gains[worst])}


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each data set: mean accuracy of its newcomers in each way, and how many chose to join."""
    found = summary(rows)
    lines = [
        "| data set | alone | published, no fit | guided | **auto** | full member | joined |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, scores in found["sets"].items():
        cells = [f"{scores[way]:.1f}" for way in WAYS]
        lines.append(f"| {name} | {' | '.join(cells)} | {100 * scores['joined']:.0f} % |")
    mean = " | ".join(f"**{found['mean'][way]:.1f}**" for way in WAYS)
    name, gain = found["worst"]
    return [
        *lines,
        f"| **mean** | {mean} | |",
        "",
        f"Gain of *auto* over *alone*: {found['gain']:+.1f}; the set that gains least: {name} ({gain:+.1f}).",
    ]
