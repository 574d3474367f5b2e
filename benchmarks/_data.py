"""Real data sets as federations, read from the folder that FMTC_DATA names (never part of the repository)."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from fmtc.demo import digits_silos, label_skew

N_WORDS = 2000
WORD = r"(?u)\b[a-zA-Z]{3,}\b"


@dataclass(frozen=True)
class Split:
    """One 80/20 split inside each client; vocabulary and idf come from the training rows alone."""

    X: Any
    y: np.ndarray
    clients: np.ndarray
    X_test: Any
    y_test: np.ndarray
    clients_test: np.ndarray

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.y))


def data_home() -> Path:
    """Folder of the data sets; exits with a sentence where there is none."""
    home = Path(os.environ.get("FMTC_DATA", Path.home() / ".cache" / "fmtc"))
    if not home.is_dir():
        raise SystemExit(f"no data sets at {home}: set FMTC_DATA to the folder that holds them")
    return home


def _documents(name: str) -> list[dict[str, Any]]:
    with gzip.open(data_home() / name / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _text(name: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    documents = [d for d in _documents(name) if d.get("label") is not None]
    text = [d["text"] for d in documents]
    if name == "20newsgroups":  # the header names the group: off
        text = [t.partition("\n\n")[2] for t in text]
    if name == "reuters21578":  # one-line briefs have a title only
        text = [d["title"] + "\n" + d["text"] for d in documents]
    labels = np.array([d["label"] for d in documents])
    if name == "bbcnews":  # no client of its own: each class dealt out in Dirichlet(5) shares, seed 0
        return text, labels, label_skew(labels, 4, concentration=5.0, random_state=0)
    return text, labels, np.array([d["client"] for d in documents])


def _pictures(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if name == "yale":
        d = np.load(data_home() / "yale" / "yale.npz")
        return d["X"] / 255.0, d["y"], d["client"].astype(str)
    d = np.load(data_home() / "utd_mhad" / "skeleton.npz")
    return d["X"].astype(float), d["y"], d["client"].astype(str)


DATASETS = {
    "Digits (8 label-skewed silos)": "digits",
    "WebKB4": "webkb4",
    "BBC, four label-skewed clients": "bbcnews",
    "20News without headers": "20newsgroups",
    "Reuters": "reuters21578",
    "Yale (15 persons, 3 conditions)": "yale",
    "UTD-MHAD (27 actions, 8 persons)": "utd_mhad",
}


def _halves(y: np.ndarray, mine: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows of one client."""
    rows = np.flatnonzero(mine)
    _, counts = np.unique(y[rows], return_counts=True)
    by_class = y[rows] if counts.min() >= 2 and len(rows) >= 5 * len(counts) else None
    train, test = train_test_split(rows, test_size=0.2, random_state=seed, stratify=by_class)
    return train, test


def load(name: str, seed: int) -> Split:
    """One data set of `DATASETS`, split 80/20 inside each client, by class where a client has rows enough."""
    if name == "digits":  # as in the demo
        s = digits_silos(seed)
        return Split(*(a[s.train] for a in (s.X, s.y, s.clients)), *(a[s.test] for a in (s.X, s.y, s.clients)))
    raw, y, clients = _pictures(name) if name in ("yale", "utd_mhad") else _text(name)
    train, test = map(np.concatenate, zip(*(_halves(y, clients == c, seed) for c in np.unique(clients)), strict=True))
    if isinstance(raw, list):
        words = TfidfVectorizer(max_features=N_WORDS, stop_words="english", sublinear_tf=True, token_pattern=WORD)
        X = words.fit_transform([raw[i] for i in train])
        X_test = words.transform([raw[i] for i in test])
    else:
        X, X_test = raw[train], raw[test]
        if name == "yale":  # pixels differ in contrast by place in the picture; joints share one unit already
            scaler = StandardScaler().fit(X)
            X, X_test = scaler.transform(X), scaler.transform(X_test)
    return Split(X, y[train], clients[train], X_test, y[test], clients[test])
