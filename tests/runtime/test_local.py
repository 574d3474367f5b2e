"""Clients in this process: threads, states and what they keep on disk."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from threadpoolctl import threadpool_info

from fmtc import FileError, Hyper, LocalTransport, run
from fmtc.artifacts.files import nbytes, read_tensors
from fmtc.steps import Downlink, downlinks, open_server, preparations

HYPER = Hyper(3, max_iter=2, tol=0, n_init=1)
DATA = {cid: np.random.default_rng(seed).normal(size=(30 + seed, 5)) for seed, cid in enumerate("cab")}


def prepared(data=DATA, **options):
    """A transport ready for its first round, and the messages of that round."""
    transport = LocalTransport(data, HYPER, **options)
    server = open_server(transport.exchange(dict.fromkeys(data, Downlink("hello"))).uplinks, HYPER)
    transport.exchange(preparations(server, HYPER))
    return transport, downlinks(server, HYPER)


def test_clients_are_sorted_and_data_is_not_copied():
    transport = LocalTransport(DATA, HYPER)
    assert transport.client_ids == ("a", "b", "c")
    assert all(transport.clients[cid].rows.X is DATA[cid] for cid in DATA)


def test_exchange_reaches_only_those_it_names_and_counts_the_bytes():
    transport, messages = prepared()
    replies = transport.exchange({cid: messages[cid] for cid in "ca"})
    assert replies.failures == {}
    assert replies.uplinks.keys() == {"a", "c"}
    assert replies.bytes_down == nbytes(messages["a"]) + nbytes(messages["c"])
    assert replies.bytes_up == sum(map(nbytes, replies.uplinks.values())) == 2 * (5 * 3 + 2) * 8
    assert [transport.clients[cid].round_no for cid in "abc"] == [1, 0, 1]


def test_hello_says_three_numbers_and_no_more():
    uplink = LocalTransport(DATA, HYPER).exchange({"a": Downlink("hello")}).uplinks["a"]
    X = DATA["a"]
    assert (uplink.n_samples, uplink.n_features) == X.shape
    assert uplink.energy == pytest.approx(np.square(X - X.mean(axis=0)).sum(), rel=1e-12)
    assert [name for name, value in vars(uplink).items() if value is not None] == ["n_samples", "n_features", "energy"]


def test_a_failure_is_that_clients_alone_and_leaves_its_state():
    transport, messages = prepared()
    before = transport.clients["b"]
    replies = transport.exchange(messages | {"b": replace(messages["b"], phase="dance")})
    assert replies.uplinks.keys() == {"a", "c"}
    assert str(replies.failures["b"]).startswith("unknown phase 'dance'; this client knows moments, rescale, hello")
    assert transport.clients["b"] is before


@pytest.mark.parametrize(("n_jobs", "workers"), [(None, 1), (1, 1), (2, 2), (3, 3), (50, 3)])
def test_rounds_run_in_n_jobs_threads_of_one_thread_each(n_jobs, workers):
    seen = []
    meeting = threading.Barrier(workers, timeout=20)

    class Watched(LocalTransport):
        def _ask(self, cid, message):
            if message.phase == "round":
                if workers in (1, 3):  # all at once, or the barrier breaks
                    meeting.wait()
                seen.append((threading.get_ident(), max(lib["num_threads"] for lib in threadpool_info())))
            return super()._ask(cid, message)

    threads_before = [lib["num_threads"] for lib in threadpool_info()]
    transport, messages = prepared()
    watched = Watched(DATA, HYPER, n_jobs)
    watched.clients = transport.clients
    assert watched.exchange(messages).failures == {}
    assert len({ident for ident, _ in seen}) <= workers
    assert {size for _, size in seen} == {1}
    assert [lib["num_threads"] for lib in threadpool_info()] == threads_before


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_what_a_client_keeps_on_disk(wrap, tmp_path):
    data = {cid: wrap(X) for cid, X in DATA.items()}
    transport = LocalTransport(data, HYPER)
    run(transport, HYPER)
    transport.save_clients(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors", "c.safetensors"]
    for cid in DATA:
        arrays, about = read_tensors(tmp_path / f"{cid}.safetensors")
        assert arrays.keys() == {"F", "W"}
        assert (about["kind"], about["client_id"], about["round_no"]) == ("client checkpoint", cid, 2)
    again = LocalTransport(data, HYPER)
    again.load_clients(tmp_path, again.client_ids)
    for cid, client in again.clients.items():
        assert client.round_no == 2
        assert_array_equal(client.F, transport.clients[cid].F)
        assert_array_equal(client.W, transport.clients[cid].W)
    with pytest.raises(FileError, match="rows of client 'a' are not those"):
        LocalTransport(data | {"a": data["a"] * 2}, HYPER).load_clients(tmp_path, ("a",))
    some = LocalTransport(data, HYPER)
    some.load_clients(tmp_path, ("b", "c"))  # those of the checkpoint, not all there are
    assert [some.clients[cid].round_no for cid in "abc"] == [0, 2, 2]
    assert some.clients["a"].F is None


def test_a_hundred_silos_in_one_process():
    rng = np.random.default_rng(0)
    data = {f"silo{t:03d}": rng.normal(size=(10, 3)) + 3 * rng.integers(2, size=(10, 1)) for t in range(100)}
    hyper = Hyper(n_clusters=2, max_iter=2, tol=0, n_init=1, n_neighbors=9)
    transport = LocalTransport(data, hyper)
    result = run(transport, hyper)
    assert result.server.Z.shape == (3, 2, 100)
    assert all(client.labels is not None for client in transport.clients.values())
