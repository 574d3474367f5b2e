"""A whole federation on this machine: server and silos in processes of their own, over mutual TLS on loopback."""

from __future__ import annotations

import secrets
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from ...linalg.arrays import HOST
from ...steps import ClientModel, Hyper
from ..clock import SYSTEM, Clock
from ..driver import ClientError, RoundRecord
from .adapter import RESULT, STATES, TROUBLE, Site, SiteResult, read_result, read_site_result
from .jobs import Order
from .kits import Kit, provision
from .plan import Plan
from .processes import Process, free_port, stop_all
from .supervise import Coordinator, Follower, Listener, supervise

Array = np.ndarray

ROWS = "rows"  # in a silo's kit: rows that were given as an array, with the suffix .npy or .npz


@dataclass(frozen=True)
class Outcome:
    """Result of a federation on one machine: all that a fitted estimator is made of."""

    clients: dict[str, SiteResult]  # what each client that took part to the end came to
    consensus: Array  # d x k x m
    about: dict[str, Any]  # history, why it stopped, which clients are missing

    @property
    def labels(self) -> dict[str, Array]:
        """Cluster of each row, by client."""
        return {cid: result.labels for cid, result in self.clients.items()}

    @property
    def models(self) -> dict[str, ClientModel]:
        """The model of each client."""
        return {cid: result.model for cid, result in self.clients.items()}

    @property
    def history(self) -> tuple[RoundRecord, ...]:
        """One record per round."""
        return tuple(RoundRecord.from_dict(line) for line in self.about["history"])

    @property
    def missing(self) -> tuple[str, ...]:
        """Clients that were lost on the way; they have no model."""
        return tuple(self.about["missing"])


class LocalFederation:
    """A whole federation on this machine.

    A context: everything is made in a temporary folder, and nothing is left when it ends, however it ends.

    Parameters
    ----------
    sites : iterable of Site
        One client each.
    rows : mapping of client id to array, optional
        Rows of clients whose `Site` names no file. Each client's rows go to its own kit, which only this user can read.
    port : int, optional
        Where the silos dial; a free one if left out.
    lost_after : float
        Seconds without a sign of life after which a silo counts as lost.
    tend : bool
        Start a silo's process again when it has ended.
    clock : Clock
        What tells the time.
    """

    def __init__(
        self,
        sites: Iterable[Site],
        *,
        rows: Mapping[str, Any] | None = None,
        port: int | None = None,
        lost_after: float = 10.0,
        tend: bool = True,
        clock: Clock = SYSTEM,
    ):
        self.sites = {str(place): site for place, site in enumerate(sites, start=1)}
        self.rows = {} if rows is None else dict(rows)
        self.port, self.lost_after, self.tends, self.clock = port, lost_after, tend, clock
        self.processes: dict[str, Process] = {}  # by client id
        self.kits: dict[str, Kit] = {}
        self.party = secrets.token_hex(8)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="fmtc-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        try:
            plan = Plan("local", "localhost", self.port or free_port(), tuple(self.sites), self.lost_after)
            first, *others = provision(plan, self.folder / "kits")
            self.coordinator = Coordinator(first, clock=self.clock)
            for kit in others:
                site = self.sites[kit.name]
                if site.client_id in self.rows:
                    site = replace(site, data=str(write_rows(kit.path / ROWS, self.rows[site.client_id])))
                    self.sites[kit.name] = site
                site.write(kit.path)
                self.kits[site.client_id] = kit
            for cid in self.kits:
                self.start(cid)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if hasattr(self, "coordinator"):
                self.coordinator.close()
        finally:
            stop_all(self.processes.values())
            self._folder.cleanup()

    def start(self, cid: str) -> None:
        """Start the process of a client."""
        self.processes[cid] = Process(self.kits[cid], self.party)

    def _tend(self) -> None:
        for cid, process in self.processes.items():
            if self.tends and not process.alive:
                self.start(cid)

    def run(
        self,
        settings: Hyper,
        *,
        weights: Mapping[str, float] | None = None,
        min_clients: int | None = None,
        deadline: float = 600.0,
        wait: float = 60.0,
        listen: Listener = lambda event: None,
    ) -> Outcome:
        """One run of the federation, to its end. Parameters are those of `Order`; `listen` is that of `supervise`."""
        run_id = secrets.token_hex(8)
        folder = self.folder / f"run-{run_id}"
        folder.mkdir()
        ids = {name: site.client_id for name, site in self.sites.items()}
        self.order = Order(settings, folder, run_id, min_clients, weights, deadline, wait, client_ids=ids)
        return self.resume(listen)

    def resume(self, listen: Listener = lambda event: None) -> Outcome:
        """Resume the last run, from its last round."""
        order = self.order
        errors = {cid: Follower(kit.path / TROUBLE) for cid, kit in self.kits.items()}
        try:
            supervise(self.coordinator, order, listen, tend=self._tend)
        except ClientError as error:  # all silos are ours: what they say about their errors may be shown
            why = [f"{cid!r}: {event['why']}" for cid, follower in errors.items() for event in follower.events()[-1:]]
            if not why:
                raise
            raise ClientError(f"{error}. Silo {'; '.join(why)}") from error
        consensus, about = read_result(order.folder / RESULT)
        results = {
            cid: read_site_result(kit.path / STATES / order.run_id / RESULT)
            for cid, kit in self.kits.items()
            if cid not in about["missing"]
        }
        return Outcome(results, consensus, about)


def federate(
    X: Any,
    model: Any,
    *,
    clients: Any = None,
    min_clients: int | None = None,
    deadline: float = 600.0,
    wait: float = 60.0,
    listen: Listener = lambda event: None,
) -> Outcome:
    """Cluster arrays by a federation of processes on this machine; the result is that of `FMTC.fit`, bit for bit.

    Each client's rows are written to a folder of its own, which only this user can read, and are read there by the
    client's process. The processes talk over mutual TLS on the loopback interface. Nothing is left when they end.

    Parameters
    ----------
    X, clients
        As in `FMTC.fit`: a mapping of client to rows, or rows and the client of each. Arrays may be sparse.
    model : FMTC
        What to fit; it is not changed. `n_jobs` has no effect: each client has a process of its own.
    min_clients : int, optional
        The run goes on while this many clients answer; all of them if left out.
    deadline : float
        Seconds within which an answer must come.
    wait : float
        Seconds to wait for processes that are not there.
    listen : callable
        Gets every event of the run, as a dict with at least ``event`` and ``time``.

    Returns
    -------
    Outcome
        Labels and models by client, consensus and history.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> from fmtc.runtime.flare.local import federate
    >>> rng = np.random.default_rng(0)
    >>> silos = {"north": rng.normal(size=(40, 3)), "south": rng.normal(size=(30, 3))}
    >>> outcome = federate(silos, FMTC(n_clusters=2, random_state=0))  # doctest: +SKIP
    >>> outcome.labels["north"].shape  # doctest: +SKIP
    (40,)
    """
    model = clone(model)
    if model.device != HOST:
        raise ValueError(f"a federation of processes computes on the CPU, and the model asks for {model.device!r}")
    parts = model._parts(X, clients, reset=True)
    settings, weights = model._hyper(), model._weights()
    if min_clients is not None and not 1 <= min_clients <= len(parts):
        raise ValueError(f"min_clients must lie between 1 and the {len(parts)} clients there are, got {min_clients}")
    rows = {cid: Xt for cid, (Xt, _) in parts.items()}
    with LocalFederation([Site(cid, "") for cid in rows], rows=rows) as federation:
        outcome = federation.run(
            settings, weights=weights, min_clients=min_clients, deadline=deadline, wait=wait, listen=listen
        )
    for note in dict.fromkeys(note for result in outcome.clients.values() for note in result.notes):
        warnings.warn(note, stacklevel=2)
    return outcome


def write_rows(path: Path, X: Any) -> Path:
    """Write rows to a file that only this user can read: ``.npz`` if sparse, else ``.npy``; the file."""
    path = path.with_suffix(".npz" if sp.issparse(X) else ".npy")
    path.touch(mode=0o600)
    with path.open("wb") as stream:
        if sp.issparse(X):
            sp.save_npz(stream, X, compressed=False)
        else:
            np.save(stream, X, allow_pickle=False)
    return path


__all__ = ["LocalFederation", "Outcome", "federate"]
