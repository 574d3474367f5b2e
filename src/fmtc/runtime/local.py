"""Transport to clients in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from joblib import effective_n_jobs

from ..artifacts.files import file_names, nbytes, read_client, write_client
from ..linalg.arrays import HOST
from ..linalg.sparse import on_cores
from ..linalg.threads import one_thread
from ..steps import client_reply, open_client
from .driver import Replies


class LocalTransport:
    """Clients that live in this process, answered by `n_jobs` threads.

    Results do not depend on `n_jobs`. Each client computes with one thread, but for the search for neighbours and the
    products with the Laplacian of many rows, which take the cores that clients leave.

    Parameters
    ----------
    data : mapping of client id to array of shape (n_t, d)
    hyper : Hyper
    n_jobs : int, optional
        As in scikit-learn: None is 1, -1 all cores.
    device : str
        Where clients compute: ``"cpu"``, or a device of PyTorch such as ``"cuda"``. Each goes there as a whole.
    open_client, client_reply : callables
        How a client starts and how it answers a message; those of FMTC unless another method is to be run.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import Hyper, LocalTransport
    >>> rng = np.random.default_rng(0)
    >>> data = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(40, 3))}
    >>> LocalTransport(data, Hyper(n_clusters=2)).client_ids
    ('a', 'b')
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        hyper: Any,
        n_jobs: int | None = None,
        *,
        device: str = HOST,
        open_client: Callable[..., Any] = open_client,
        client_reply: Callable[..., Any] = client_reply,
    ):
        self.hyper = hyper
        self.n_jobs = n_jobs
        self.cores = effective_n_jobs(n_jobs)
        self.pool = ThreadPoolExecutor(self.cores, initializer=_calm)  # no thread before there is work for two
        self.device = device  # other than the processor's, works on one client at a time
        self.client_reply = client_reply
        where = {} if device == HOST else {"device": device}
        self.clients: dict[str, Any] = {cid: open_client(cid, X, hyper, **where) for cid, X in data.items()}

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients, sorted."""
        return tuple(sorted(self.clients))

    def exchange(self, messages: Mapping[str, Any]) -> Replies:
        """Deliver one message to each client named and collect the answers; an exception is that client's failure."""
        phases = {message.phase for message in messages.values()}
        searching = "prepare" in phases and self.device == HOST and (self.cores == 1 or len(messages) < self.cores)
        alone = self.cores == 1 or searching or self.device != HOST or phases & {"moments", "rescale", "hello"}
        each = map if alone else self.pool.map
        spare = self.cores if alone else self.cores // max(1, len(messages))
        replies = Replies(bytes_down=sum(map(nbytes, messages.values())))

        def answer(cid: str, message: Any) -> tuple[Any, Any] | Exception:
            with on_cores(spare):
                return self._ask(cid, message)

        with one_thread("blas"), _calm() if alone and not searching else nullcontext():
            for cid, said in zip(messages, each(answer, messages, messages.values()), strict=True):
                if isinstance(said, Exception):
                    replies.failures[cid] = said
                else:
                    self.clients[cid], replies.uplinks[cid] = said
                    replies.bytes_up += nbytes(replies.uplinks[cid])
        return replies

    def _ask(self, cid: str, message: Any) -> tuple[Any, Any] | Exception:
        try:
            return self.client_reply(self.clients[cid], message, self.hyper)
        except Exception as error:  # the driver decides whether the run can go on without this client
            return error

    def save_clients(self, folder: Path) -> None:
        """What each client needs to go on from its last round, in one file per client."""
        names = file_names(self.clients)
        for cid, client in self.clients.items():
            if client.F is not None and client.W is not None:  # not left out before its first model
                write_client(folder / f"{names[cid]}.safetensors", client)

    def load_clients(self, folder: Path, client_ids: tuple[str, ...]) -> None:
        """Bring these clients back to the round of the checkpoint; refuses other data."""
        names = file_names(self.clients)
        for cid in client_ids:
            self.clients[cid] = read_client(folder / f"{names[cid]}.safetensors", self.clients[cid])


def _calm() -> AbstractContextManager[Any]:
    """One thread for OpenMP in this thread, which is where it is counted."""
    return one_thread("openmp")
