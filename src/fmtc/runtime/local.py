"""Transport to clients in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifacts.files import file_names, read_json, write_file
from ..linalg.arrays import HOST
from ..linalg.sparse import on_cores
from ..linalg.threads import one_thread
from ..privacy.ledger import LEDGER, MemoryLedger, read_lines, write_lines
from ..privacy.outbox import Outbox
from ..protocol.base import Message, message_bytes, nbytes
from ..protocol.graph.view import METHOD
from ..protocol.method import ClientResult, Method
from .driver import Replies, Transport
from .node import ClientNode, read_state, write_state

if TYPE_CHECKING:
    from ..privacy.keys import Keys

RUN = "local"  # name of a run in this process
KEYS = "keys.json"  # in a checkpoint: the clients' keys of a run with secure sums


class LocalTransport(Transport):
    """Clients that live in this process, answered by `n_jobs` threads.

    Results do not depend on `n_jobs`. Each client computes with one thread, but for the search for neighbours and the
    products with the Laplacian of many rows, which take the cores that clients leave.

    Parameters
    ----------
    data : mapping of client id to array of shape (n_t, d)
    settings : Settings
        Of the method.
    n_jobs : int, optional
        As in scikit-learn: None is 1, -1 all cores.
    method : Method
        FMTC unless another one is given.
    device : str
        Where clients compute: ``"cpu"``, or a device of PyTorch such as ``"cuda"``.
    run_id : str
        Names the run in the ledgers.
    ledgers : mapping of client id to MemoryLedger, optional
        Ledgers to continue, of an earlier run with the same clients; new ones by default.

    Attributes
    ----------
    nodes : dict of client id to ClientNode
    ledgers : dict of client id to MemoryLedger
        What left each client.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc.settings import Settings
    >>> from fmtc.runtime.local import LocalTransport
    >>> rng = np.random.default_rng(0)
    >>> data = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(40, 3))}
    >>> LocalTransport(data, Settings(n_clusters=2)).client_ids
    ('a', 'b')
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        settings: Any,
        n_jobs: int | None = None,
        *,
        method: Method = METHOD,
        device: str = HOST,
        run_id: str = RUN,
        ledgers: Mapping[str, MemoryLedger] | None = None,
    ):
        from joblib import effective_n_jobs

        self.settings, self.method, self.run_id = settings, method, run_id
        self.cores = effective_n_jobs(n_jobs)
        self.pool = ThreadPoolExecutor(self.cores, initializer=_calm)  # no thread before there is work for two
        self.device = device  # other than the processor's, works on one client at a time
        self.ledgers = {cid: MemoryLedger() for cid in data} if ledgers is None else dict(ledgers)
        self.keys = _own_keys(data, run_id, method.name) if method.masks else {}
        self.nodes: dict[str, ClientNode] = {}
        for cid, X in data.items():
            opened = partial(method.open_client, cid, X, settings, device)
            subjects = {"client": opened, "keys": partial(self.keys.get, cid)}
            self.nodes[cid] = ClientNode(method, settings, self._outbox(cid), subjects)
            self.nodes[cid].restore(opened(), 0)

    def _outbox(self, cid: str) -> Outbox:
        return Outbox(self.ledgers[cid], cid, self.run_id, keys=self.keys.get(cid))

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients, sorted."""
        return tuple(sorted(self.nodes))

    @property
    def clients(self) -> dict[str, Any]:
        """The state of each client."""
        return {cid: node.client for cid, node in self.nodes.items()}

    def results(self) -> dict[str, ClientResult]:
        """Model and labels of each client that has been through the run."""
        return {
            cid: self.method.result(client)
            for cid, client in self.clients.items()
            if getattr(client, "model", None) is not None
        }

    def exchange(self, messages: Mapping[str, Message]) -> Replies:
        """Deliver one message to each client named and collect the answers; an exception is that client's failure."""
        alone, searching = self._how(messages)
        each = map if alone else self.pool.map
        spare = self.cores if alone else self.cores // max(1, len(messages))
        replies = Replies(bytes_down=sum(map(message_bytes, messages.values())))
        with one_thread("blas"), _calm() if alone and not searching else nullcontext():
            answers = each(partial(self._ask, spare), messages, messages.values())
            for cid, answer in zip(messages, answers, strict=True):
                if isinstance(answer, Exception):
                    replies.failures[cid] = answer
                else:
                    replies.answers[cid] = answer
                    replies.bytes_up += nbytes(answer)
        return replies

    def _how(self, messages: Mapping[str, Message]) -> tuple[bool, bool]:
        """Whether clients reply one after the other, and whether each of them searches with all cores."""
        phases = [self.method.phase(name) for name in {message.phase for message in messages.values()}]
        few, on_host = self.cores == 1 or len(messages) < self.cores, self.device == HOST
        searching = few and on_host and any(phase.threads for phase in phases)
        alone = self.cores == 1 or not on_host or searching or not all(phase.parallel for phase in phases)
        return alone, searching

    def _ask(self, cores: int, cid: str, message: Message) -> Any:
        node = self.nodes[cid]
        try:
            with on_cores(cores):
                return node.answer(message)
        except Exception as error:  # the driver decides whether the run can continue without this client
            node.outbox.fail(message, error)
            return error

    def save_clients(self, folder: Path) -> None:
        """What each client needs to continue from its last round, in one file per client."""
        names = file_names(self.nodes)
        for cid, client in self.clients.items():
            saved = [getattr(client, name, None) for name in self.method.saved]
            if not saved or any(value is not None for value in saved):  # not left out
                write_state(folder / f"{names[cid]}.safetensors", client, self.method, client.round_no)
        if self.keys:
            private = {cid: keys.private().hex() for cid, keys in self.keys.items()}
            write_file(folder / KEYS, json.dumps(private).encode(), secret=True)
        write_lines(folder / LEDGER, (line for ledger in self.ledgers.values() for line in ledger.lines()))

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """Bring these clients back to the round of the checkpoint; refuses other data."""
        names, left = file_names(self.nodes), read_lines(folder / LEDGER)
        private = read_json(folder / KEYS, dict.fromkeys(client_ids, str)) if self.keys else {}
        for cid in client_ids:
            if not self.ledgers[cid].lines():  # a new process: what left in the old one still counts
                self.ledgers[cid] = MemoryLedger(line for line in left if line["client"] == cid)
                self.nodes[cid].outbox = self._outbox(cid)
            if cid in self.keys:
                self.keys[cid].restore(bytes.fromhex(private[cid]))
            client = read_state(folder / f"{names[cid]}.safetensors", self.nodes[cid].client, self.method)
            self.nodes[cid].restore(client, client.round_no)


def _own_keys(client_ids: Iterable[str], run_id: str, method: str) -> dict[str, Keys]:
    """Keys of clients that need no certificate."""
    from ..privacy.identity import SelfSigned
    from ..privacy.keys import Keys  # cryptography takes a while to load

    return {cid: Keys(SelfSigned(cid), run_id, method, cid) for cid in client_ids}


def _calm() -> AbstractContextManager[Any]:
    """One thread for OpenMP in this thread, which is where it is counted."""
    return one_thread("openmp")
