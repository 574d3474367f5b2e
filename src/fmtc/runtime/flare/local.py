"""A whole federation on this machine: server and silos in processes of their own, over mutual TLS on loopback."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ...errors import ClientError
from ...privacy.ledger import LEDGER, read_lines
from ..conductor import RESULT, read_record
from ..driver import RunRecord
from ..events import at_silo
from ..kitclient import RESULT as CLIENT_RESULT
from ..kitclient import STATES, ClientSource, read_client_result
from ..spec import RunSpec
from .authority import enrol
from .kits import Kit
from .plan import Plan
from .processes import Process, free_port, stop_all
from .supervise import Coordinator, Listener, supervise

ROWS = "rows"  # in a silo's kit: rows that were given as an array, with the suffix .npy or .npz


class LocalFederation:
    """A whole federation on this machine.

    A context: everything is made in a temporary folder, and nothing is left when it ends, however it ends.

    Parameters
    ----------
    sources : iterable of ClientSource
        One for each client.
    rows : mapping of client id to array, optional
        Rows of clients whose source names no file. Each client's rows go to its own kit, which only this user can read.
    lost_after : float
        Seconds without a sign of life after which a silo counts as lost.
    """

    def __init__(
        self,
        sources: Iterable[ClientSource],
        *,
        rows: Mapping[str, Any] | None = None,
        lost_after: float = 10.0,
    ):
        self.sources = {str(place): source for place, source in enumerate(sources, start=1)}
        self.rows = {} if rows is None else dict(rows)
        self.lost_after = lost_after
        self.processes: dict[str, Process] = {}  # by client id
        self.kits: dict[str, Kit] = {}
        self.party = secrets.token_hex(8)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            made = stack.enter_context(TemporaryDirectory(prefix="fmtc-", ignore_cleanup_errors=True))
            self.folder = Path(made)
            stack.callback(lambda: stop_all(self.processes.values()))
            plan = Plan("local", "localhost", free_port(), tuple(self.sources), self.lost_after)
            first, *others = enrol(plan, self.folder / "kits")
            self.coordinator = Coordinator(first)
            stack.callback(self.coordinator.close)
            sites = {source.client_id: name for name, source in self.sources.items()}
            for kit in others:
                source = replace(self.sources[kit.name], sites=sites)
                if source.client_id in self.rows:
                    source = replace(source, data=str(write_rows(kit.path / ROWS, self.rows[source.client_id])))
                self.sources[kit.name] = source
                source.write(kit.path)
                self.kits[source.client_id] = kit
            for cid in self.kits:
                self.start(cid)
            self._kept = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def start(self, cid: str) -> None:
        """Start the process of a client."""
        self.processes[cid] = Process(self.kits[cid], self.party)

    def _tend(self) -> None:
        for cid, process in self.processes.items():
            if not process.alive:
                self.start(cid)

    def run(self, settings: Any, *, listen: Listener = lambda event: None, **how: Any) -> RunRecord:
        """One run of the federation, to its end; `how` is of `RunSpec`, and `listen` is that of `supervise`."""
        run_id = secrets.token_hex(8)
        folder = self.folder / f"run-{run_id}"
        folder.mkdir()
        ids = {name: source.client_id for name, source in self.sources.items()}
        self.spec = RunSpec(run_id, settings, folder, client_ids=ids, **{"wait": 60.0} | how)
        return self.resume(listen)

    def resume(self, listen: Listener = lambda event: None) -> RunRecord:
        """Resume the last run, from its last round."""
        spec = self.spec
        channels = {cid: at_silo(kit.path) for cid, kit in self.kits.items()}
        try:
            supervise(self.coordinator, spec, listen, tend=self._tend)
        except ClientError as error:  # all silos are ours: what they say about their errors may be shown
            errors = {
                cid: [e["why"] for e in channel.news() if e["event"] == "error"] for cid, channel in channels.items()
            }
            why = [f"{cid!r}: {said[-1]}" for cid, said in errors.items() if said]
            if not why:
                raise
            raise ClientError(f"{error}. Silo {'; '.join(why)}") from error
        record, _ = read_record(spec.folder / RESULT)
        kept = {
            cid: read_client_result(kit.path / STATES / spec.run_id / CLIENT_RESULT)
            for cid, kit in self.kits.items()
            if cid not in record.missing and spec.method.keeps
        }
        lines = {cid: read_lines(kit.path / LEDGER) for cid, kit in self.kits.items()}
        own = {cid: [line for line in all_ if line["run"] == spec.run_id] for cid, all_ in lines.items()}
        return replace(record, kept=kept, ledgers=own)


def write_rows(path: Path, X: Any) -> Path:
    """Write rows to a file that only this user can read: ``.npz`` if sparse, else ``.npy``; the file."""
    path = path.with_suffix(".npz" if sp.issparse(X) else ".npy")
    path.touch(mode=0o600)
    if sp.issparse(X):
        sp.save_npz(path, X, compressed=False)
    else:
        np.save(path, X, allow_pickle=False)
    return path
