"""Clients in this process: threads, states and what they keep on disk."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from threadpoolctl import threadpool_info

from fmtc.artifacts.files import read_tensors
from fmtc.errors import FileError, RefusedError
from fmtc.privacy.ledger import verify
from fmtc.protocol.base import Message, Nothing, message_bytes, nbytes
from fmtc.protocol.graph.opening import PREPARE
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.state import with_rows
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

SETTINGS = Settings(n_clusters=3, max_iter=2, tol=0, n_init=1)
DATA = {cid: np.random.default_rng(seed).normal(size=(30 + seed, 5)) for seed, cid in enumerate("cab")}


def ask(transport, server, name):
    """Deliver the messages of a phase; the server's next state and what came back."""
    phase = METHOD.phase(name)
    messages = {cid: Message(name, ask) for cid, ask in phase.asks(server, SETTINGS).items()}
    replies = transport.exchange(messages)
    return phase.reduce(server, replies.answers, SETTINGS), replies


def prepared(data=DATA, kind=LocalTransport, **options):
    """A transport ready for its first round, and the messages of that round."""
    transport = kind(data, SETTINGS, **options)
    server = METHOD.open_server(transport.client_ids, SETTINGS, None)
    for name in ("hello", "prepare"):
        server, replies = ask(transport, server, name)
        assert replies.failures == {}
    asks = METHOD.loop.asks(server, SETTINGS)
    return transport, {cid: Message("round", ask, 1) for cid, ask in asks.items()}


def test_clients_are_sorted_and_data_is_not_copied():
    transport = LocalTransport(DATA, SETTINGS)
    assert transport.client_ids == ("a", "b", "c")
    assert all(with_rows(client, SETTINGS).rows.X is DATA[cid] for cid, client in transport.clients.items())


def test_exchange_reaches_only_those_it_names_and_counts_the_bytes():
    transport, messages = prepared()
    replies = transport.exchange({cid: messages[cid] for cid in "ca"})
    assert replies.failures == {}
    assert replies.answers.keys() == {"a", "c"}
    assert replies.bytes_down == message_bytes(messages["a"]) + message_bytes(messages["c"])
    assert replies.bytes_up == sum(map(nbytes, replies.answers.values())) == 2 * (5 * 3 + 2) * 8
    assert [transport.clients[cid].round_no for cid in "abc"] == [1, 0, 1]


def test_a_failure_is_that_clients_alone_and_leaves_its_state():
    transport, messages = prepared()
    before = transport.clients["b"]
    messages["b"] = replace(messages["b"], ask=replace(messages["b"].ask, anchor=np.zeros((5, 4))))
    replies = transport.exchange(messages)
    assert replies.answers.keys() == {"a", "c"}
    assert isinstance(replies.failures["b"], RefusedError)
    assert transport.clients["b"] is before
    line = transport.ledgers["b"].lines()[-1]
    assert (line["kind"], line["phase"], line["round"]) == ("failure", "round", 1)


def test_a_phase_that_nobody_answers_here_is_refused():
    """The survey is about a file, which clients in this process do not have."""
    replies = LocalTransport(DATA, SETTINGS).exchange({"a": Message("survey", Nothing())})
    assert isinstance(replies.failures["a"], RefusedError)
    with pytest.raises(RefusedError):
        LocalTransport(DATA, SETTINGS).exchange({"a": Message("dance", Nothing())})


@pytest.mark.parametrize(("n_jobs", "workers"), [(None, 1), (2, 2), (50, 3)])
def test_rounds_run_in_n_jobs_threads_of_one_thread_each(n_jobs, workers):
    seen = []
    meeting = threading.Barrier(workers, timeout=20)

    class Watched(LocalTransport):
        def _ask(self, cores, cid, message):
            if message.phase == "round":
                if workers in (1, 3):  # all at once, or the barrier breaks
                    meeting.wait()
                seen.append((threading.get_ident(), max(lib["num_threads"] for lib in threadpool_info())))
            return super()._ask(cores, cid, message)

    threads_before = [lib["num_threads"] for lib in threadpool_info()]
    transport, messages = prepared(kind=Watched, n_jobs=n_jobs)
    assert transport.exchange(messages).failures == {}
    assert len({ident for ident, _ in seen}) <= workers
    assert {size for _, size in seen} == {1}
    assert [lib["num_threads"] for lib in threadpool_info()] == threads_before


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_what_a_client_keeps_on_disk(wrap, tmp_path):
    data = {cid: wrap(X) for cid, X in DATA.items()}
    transport = LocalTransport(data, SETTINGS)
    run(transport, SETTINGS)
    transport.save_clients(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.safetensors",
        "b.safetensors",
        "c.safetensors",
        "outbox.jsonl",
    ]
    for cid in DATA:
        arrays, about = read_tensors(tmp_path / f"{cid}.safetensors")
        assert arrays.keys() == {"F", "W", "anchor"}
        assert (about["kind"], about["client_id"], about["round_no"]) == ("client checkpoint", cid, 2)
    again = LocalTransport(data, SETTINGS)
    again.load_clients(tmp_path, again.client_ids)
    for cid, client in again.clients.items():
        assert client.round_no == 2
        assert_array_equal(client.F, transport.clients[cid].F)
        assert_array_equal(client.W, transport.clients[cid].W)
    with pytest.raises(FileError, match="'a'"):
        LocalTransport(data | {"a": data["a"] * 2}, SETTINGS).load_clients(tmp_path, ("a",))
    some = LocalTransport(data, SETTINGS)
    some.load_clients(tmp_path, ("b", "c"))  # those of the checkpoint, not all there are
    assert [some.clients[cid].round_no for cid in "abc"] == [0, 2, 2]
    assert not hasattr(some.clients["a"], "F")


def test_a_hundred_silos_in_one_process():
    rng = np.random.default_rng(0)
    data = {f"silo{t:03d}": rng.normal(size=(10, 3)) + 3 * rng.integers(2, size=(10, 1)) for t in range(100)}
    settings = Settings(n_clusters=2, max_iter=2, tol=0, n_init=1, n_neighbors=9)
    transport = LocalTransport(data, settings)
    result = run(transport, settings)
    assert result.server.Z.shape == (3, 2, 100)
    assert len(transport.results()) == 100


def test_results_do_not_depend_on_the_number_of_threads():
    found = []
    for n_jobs in (1, 3):
        transport = LocalTransport(DATA, SETTINGS, n_jobs)
        found.append((run(transport, SETTINGS).server.Z, transport.results()))
    (Z, results), (other, others) = found
    assert_array_equal(Z, other)
    for cid in DATA:
        assert_array_equal(results[cid].labels, others[cid].labels)


def test_a_second_run_over_a_transport_begins_from_rest():
    transport = LocalTransport(DATA, SETTINGS)
    assert transport.results() == {}
    first = run(transport, SETTINGS)
    labels = {cid: result.labels for cid, result in transport.results().items()}
    again = run(transport, SETTINGS)
    assert_array_equal(again.server.Z, first.server.Z)
    for cid, result in transport.results().items():
        assert_array_equal(result.labels, labels[cid])
    kinds = [line["kind"] for line in transport.ledgers["a"].lines()]
    assert set(kinds[: len(kinds) // 2]) == {"release"}
    assert set(kinds[len(kinds) // 2 :]) == {"replay"}  # nothing new has left


def test_a_run_over_the_same_transport_can_be_resumed(tmp_path):
    """Also where the transport has been further than the checkpoint."""
    longer = Settings(n_clusters=3, max_iter=4, tol=0, n_init=1)
    transport = LocalTransport(DATA, longer)
    run(transport, SETTINGS, checkpoint=tmp_path / "short")
    whole = run(transport, longer, checkpoint=tmp_path / "long")
    resumed = run(transport, longer, checkpoint=tmp_path / "short", resume=True)
    assert_array_equal(resumed.server.Z, whole.server.Z)
    assert [record.round_no for record in resumed.history] == [1, 2, 3, 4]


def test_what_left_before_a_restart_stays_in_the_ledger(tmp_path):
    """A resumed run has one chain, as if it had not been interrupted; a transport in use keeps its own."""
    longer = Settings(n_clusters=3, max_iter=4, tol=0, n_init=1)
    whole, cut = LocalTransport(DATA, longer), LocalTransport(DATA, SETTINGS)
    run(whole, longer)
    run(cut, SETTINGS, checkpoint=tmp_path)
    resumed = LocalTransport(DATA, longer)
    run(resumed, longer, checkpoint=tmp_path, resume=True)
    for cid in DATA:
        found = [(line["phase"], line["round"], line["fields"]) for line in resumed.ledgers[cid].lines()]
        expected = [(line["phase"], line["round"], line["fields"]) for line in whole.ledgers[cid].lines()]
        assert found == [*expected[:4], (*expected[1][:1], 2, []), *expected[4:]]  # prepare came once more
        resumed.ledgers[cid].write(tmp_path / f"{cid}.jsonl")
        assert verify(tmp_path / f"{cid}.jsonl") == []
    before = len(resumed.ledgers["a"].lines())
    run(resumed, longer, checkpoint=tmp_path, resume=True)
    assert len(resumed.ledgers["a"].lines()) > before


def test_what_one_client_sends_does_not_depend_on_who_else_is_there():
    """The same question gets the same answer: a client knows nothing of the others but what it is asked."""
    alone, all_of_them = (LocalTransport(data, SETTINGS) for data in ({"a": DATA["a"]}, DATA))
    message = {"a": Message("prepare", PREPARE.Ask(scale=0.5, ridge=0.1))}
    lines = []
    for transport in (alone, all_of_them):
        transport.exchange(message)
        replies = transport.exchange({"a": Message("round", METHOD.loop.Ask(anchor=np.zeros((5, 3))), 1)})
        lines.append([line["fields"] for line in transport.ledgers["a"].lines()])
        assert replies.failures == {}
    assert lines[0] == lines[1]
