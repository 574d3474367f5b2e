"""Fit by processes of this machine, one for each silo, which talk as those of a federation do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sklearn.base import clone

from .advice import advice_of, number_of_clusters
from .errors import InputError
from .estimator import FMTC
from .linalg.arrays import HOST
from .privacy.ledger import MemoryLedger
from .protocol.advice import METHOD as ADVICE
from .protocol.advice import AdviceSettings
from .protocol.state import checked_weights
from .runtime.driver import RunRecord
from .runtime.kitclient import ClientSource
from .tables import Reading

WAIT = 60.0  # seconds for processes of this machine that are not there yet: they start within ten


def federate(
    X: Any,
    model: FMTC,
    *,
    silos: Any = None,
    silo_weights: Mapping[Any, float] | None = None,
    calibrate: bool = False,
    min_silos: int | None = None,
    deadline: float = 600.0,
    listen: Callable[[Mapping[str, Any]], None] = lambda event: None,
) -> FMTC:
    """Fit by a federation of processes on this machine; the result is that of `FMTC.fit`, bit for bit.

    Each silo's rows are written to a folder of its own, which only this user can read, and are read there by the
    silo's own process. The processes talk over mutual TLS on the loopback interface, with NVIDIA FLARE (``pip install
    'fmtc[federation]'``). Nothing is left when they end.

    Parameters
    ----------
    X, silos, silo_weights
        As in `FMTC.fit`: a mapping of silo to rows, or rows and the silo of each. Arrays may be sparse.
    model : FMTC
        What to fit; it is not changed. `n_jobs` has no effect: each silo has a process of its own.
    calibrate : bool, default=False
        Calibrate each silo's model after its last message, as `FMTC.calibrate` does.
    min_silos : int, optional
        Continue while this many silos answer; all of them by default.
    deadline : float
        Seconds within which an answer must come.
    listen : callable
        Gets every event of the run, as a dict with at least ``event`` and ``time``.

    Returns
    -------
    FMTC
        A fitted copy of `model`.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC, federate
    >>> rng = np.random.default_rng(0)
    >>> rows = {"north": rng.normal(size=(40, 3)), "south": rng.normal(size=(30, 3))}
    >>> model = federate(rows, FMTC(n_clusters=2, random_state=0))  # doctest: +SKIP
    >>> model.labels_.shape  # doctest: +SKIP
    (70,)
    """
    from .runtime.flare import local  # needs nvflare

    model = clone(model)
    if model.device != HOST:
        raise InputError(f"a federation of processes computes on the CPU, and the model asks for {model.device!r}")
    parts = model._parts(X, silos, reset=True)
    rows = {cid: Xt for cid, (Xt, _) in parts.items()}
    weights = checked_weights(silo_weights, rows)
    model._check_names(rows)
    if min_silos is not None and not 1 <= min_silos <= len(parts):
        raise InputError(f"min_silos must lie between 1 and the {len(parts)} silos there are, got {min_silos}")
    sources = [ClientSource(cid, "", _reading(model)) for cid in rows]
    how: dict[str, Any] = {"min_clients": min_silos, "deadline": deadline, "wait": WAIT, "listen": listen}
    settings = None if isinstance(model.n_clusters, str) else model._settings()  # refused before a process starts
    with local.LocalFederation(sources, rows=rows) as federation:

        def ask(settings: AdviceSettings) -> RunRecord:
            asked: RunRecord = federation.run(settings, method_name=ADVICE.name, **how)
            return replace(asked, advice=advice_of(asked.common, asked.client_ids))

        k, asked = number_of_clusters(model, rows, ask)
        settings = replace(settings or model._settings(k), calibrate=calibrate)
        outcome = federation.run(settings, weights=weights, **how)
    _warn(outcome)
    places = None if outcome.missing else {cid: rows for cid, (_, rows) in parts.items()}
    clients = {cid: kept.client for cid, kept in outcome.kept.items()}
    return model._adopt(_after(outcome, asked), clients, places)


def _warn(outcome: RunRecord) -> None:
    """Warn of what the silos were warned of, of each thing once."""
    for note in dict.fromkeys(note for kept in outcome.kept.values() for note in kept.notes):
        warnings.warn(note, stacklevel=3)


def _reading(model: FMTC) -> Reading:
    """How each process reads its rows, which are numbers and codes of levels."""
    schema = getattr(model, "schema_", None)
    return Reading(schema=None if schema is None or schema.is_plain else schema, missing="em")


def _after(outcome: RunRecord, asked: RunRecord | None) -> RunRecord:
    """A run with one ledger for each silo, that of the run before it included."""
    before = {} if asked is None else asked.ledgers
    ledgers = {cid: MemoryLedger([*before.get(cid, ()), *own]) for cid, own in outcome.ledgers.items()}
    return replace(outcome, ledgers=ledgers).after(asked)


__all__ = ["federate"]
