"""Federated baselines as methods: they resume, lose clients, and send what is declared and nothing else."""

import json
import shutil
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.artifacts.files import FileError
from fmtc.artifacts.states import flatten
from fmtc.errors import ClientError, DataError
from fmtc.privacy.ledger import FileLedger
from fmtc.privacy.outbox import Outbox, Payloads
from fmtc.protocol.base import entries, nbytes, pack
from fmtc.protocol.method import METHODS, method_of
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.node import ClientNode, FolderStore
from fmtc_bench.baselines import FedKMeans, fed_kmeans, fed_spectral, mtsc, sfomvc
from fmtc_bench.baselines.fed_kmeans import FedKMeansSettings
from fmtc_bench.baselines.fed_spectral import FedSpectralSettings
from fmtc_bench.baselines.mtsc import MTSCSettings
from fmtc_bench.baselines.sfomvc import SFOMVCSettings

K = 9  # from 8 on, sums along a row depend on how an array lies in memory
SIZES = {"a": 81, "b": 66, "c": 93}


def rows(n, d, seed):
    rng = np.random.default_rng(seed)
    return 3 * np.random.default_rng(9).normal(size=(K, d))[np.arange(n) % K] + rng.normal(size=(n, d))


ROWS = {cid: rows(n, 12, seed) for seed, (cid, n) in enumerate(SIZES.items())}
CASES = {
    "fed-kmeans": (fed_kmeans.METHOD, FedKMeansSettings(K, n_rounds=5, tol=0), ROWS),
    "fed-mtsc": (mtsc.METHOD, MTSCSettings(K, max_iter=5, tol=0), ROWS),
    "fed-spectral-plus": (fed_spectral.METHOD, FedSpectralSettings(K, max_iter=5, tol=0), ROWS),
    "sfomvc": (sfomvc.METHOD, SFOMVCSettings(K, max_iter=5, tol=0), ROWS),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def finished(case, transport_type=LocalTransport, **how):
    method, settings, data = case
    transport = transport_type(data, settings, method=method)
    return run(transport, settings, method=method, **how), transport


def bits(state):
    """Everything in a state, arrays as bytes."""
    arrays, values = flatten(state)
    return {name: A.tobytes() for name, A in arrays.items()}, repr(values)


def assert_same_run(one, other):
    """Two runs are equal to the last bit: server, history, models and labels."""
    (result, transport), (other_result, other_transport) = one, other
    assert bits(result.server) == bits(other_result.server)
    histories = [[repr(replace(line, seconds=0)) for line in found.history] for found in (result, other_result)]
    assert histories[0] == histories[1]
    assert (result.stopped_because, result.missing) == (other_result.stopped_because, other_result.missing)
    found, other_found = transport.results(), other_transport.results()
    assert list(found) == list(other_found)
    for cid, client in found.items():
        assert_array_equal(client.labels, other_found[cid].labels)
        assert bits(client.model) == bits(other_found[cid].model)


# ------------------------------------------------------------------------------------------------ names and settings


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fmtc"}))
def test_a_job_can_name_the_method(name):
    method = method_of(name)
    assert method.name == name
    assert method.settings_type().n_clusters == (30 if "advice" in name else 8)  # the largest that is compared


def test_settings_travel_as_json_and_are_checked_again(case):
    method, settings, _ = case
    document = json.loads(json.dumps(asdict(settings)))
    assert method.settings_type(**document) == settings
    for name, value in {"n_clusters": 0, "seed": -1, "n_init": 1.5}.items():
        with pytest.raises(ValueError, match=rf"{name}.*{value}"):
            method.settings_type(**document | {name: value})
    with pytest.raises(TypeError):
        method.settings_type(**document, speed=3)


def test_numbers_of_numpy_become_plain_ones():
    settings = FedKMeansSettings(np.int64(3), n_rounds=np.int32(4), personalised=np.bool_(True), tol=np.float64(0.5))
    assert json.loads(json.dumps(asdict(settings))) == asdict(FedKMeansSettings(3, 0, 4, personalised=True, tol=0.5))


def test_what_a_method_cannot_do_is_refused(case):
    method, settings, data = case
    with pytest.raises(ValueError, match="silo_weights"):
        finished(case, weights=dict.fromkeys(data, 1.0))
    with pytest.raises(ValueError, match="cuda"):
        LocalTransport(data, settings, method=method, device="cuda")
    with pytest.raises(ValueError, match=f"'a'.*{K}"):
        LocalTransport({"a": data["a"][: K - 1]}, settings, method=method)


# -------------------------------------------------------------------------------------------------------- what leaves


DECLARED = {  # who adds a field says here where it is, and what it tells where it is declared
    "fed-kmeans": {"start": ["centers", "counts"], "round": ["centers", "counts"]},
    "fed-mtsc": {"round": ["squares", "loss"]},
    "fed-spectral-plus": {
        "centers": ["centers", "counts"], "distances": ["distance", "n_distances"], "mass": ["mass"],
        "round": ["product"], "start": ["centers", "counts"], "lloyd": ["centers", "counts"],
    },
    "sfomvc": {
        "centers": ["centers", "counts"], "distances": ["distance", "n_distances"], "start": ["P"],
        "round": ["P", "gap"],
    },
}  # fmt: skip


def test_the_ledger_lists_the_declared_fields_and_no_others(case):
    method, _, data = case
    declared = {phase.name: list(entries(phase.Answer)) for phase in method.phases if phase.releases}
    assert declared == DECLARED[method.name]
    result, transport = finished(case)
    order = [phase.name for phase in method.phases]
    for cid in data:
        lines = transport.ledgers[cid].lines()
        left = [(line["phase"], [field["field"] for field in line["fields"]]) for line in lines]
        assert all(fields == declared.get(phase, []) for phase, fields in left)
        assert list(dict.fromkeys(phase for phase, _ in left)) == order
        assert all(line["kind"] == "release" for line in lines)
    lines = [line for ledger in transport.ledgers.values() for line in ledger.lines()]
    sent = sum(field["bytes"] for line in lines for field in line["fields"])
    assert sent == sum(line.bytes for line in result.received)


def test_every_field_says_what_it_is_and_what_it_tells(case):
    for phase in case[0].phases:
        for kind in (phase.Ask, phase.Answer):
            assert all(entry.what and entry.tells.endswith(".") for entry in entries(kind).values())


class Copying(LocalTransport):
    """Messages and answers as a wire brings them: arrays are copies, row after row, and the last client is first."""

    def exchange(self, messages):
        replies = super().exchange({cid: replace(m, ask=copied(m.ask)) for cid, m in messages.items()})
        replies.answers = {cid: copied(answer) for cid, answer in reversed(replies.answers.items())}
        return replies


def copied(message):
    return type(message)(
        **{name: v.copy(order="C") if isinstance(v, np.ndarray) else v for name, v in pack(message).items()}
    )


def test_a_wire_and_the_order_of_answers_change_no_bit(case):
    assert_same_run(finished(case), finished(case, Copying))


# -------------------------------------------------------------------------------------------------- interrupted runs


class InterruptedRunError(Exception):
    pass


def interrupt_at(number):
    def callback(record):
        if record.round_no == number:
            raise InterruptedRunError

    return callback


def assert_resumes(case, folder, number):
    undisturbed = finished(case)
    assert len(undisturbed[0].history) > number
    with pytest.raises(InterruptedRunError):
        finished(case, checkpoint=folder, callbacks=[interrupt_at(number)])
    assert_same_run(finished(case, checkpoint=folder, resume=True), undisturbed)
    return undisturbed


def test_a_resumed_run_is_the_undisturbed_one(case, tmp_path):
    undisturbed = assert_resumes(case, tmp_path, 3)
    assert_same_run(finished(case, checkpoint=tmp_path, resume=True), undisturbed)  # from the last round: its end alone


def test_a_resumed_run_of_many_rows_is_the_undisturbed_one(tmp_path, monkeypatch):
    """The eigenvectors of a round start from those of the round before."""
    monkeypatch.setattr(mtsc, "DENSE_UP_TO", 10)
    assert_resumes((mtsc.METHOD, MTSCSettings(4, max_iter=5, tol=0), ROWS), tmp_path, 2)


class Silos(LocalTransport):
    """Clients that keep their own state, answers and ledger on disk, as processes of a federation do."""

    folder = None

    def __init__(self, data, settings, *, method):
        super().__init__(data, settings, method=method)
        for cid, X in data.items():
            (self.folder / cid).mkdir(parents=True, exist_ok=True)
            self.ledgers[cid] = FileLedger(self.folder / cid / "outbox.jsonl")
            outbox = Outbox(self.ledgers[cid], cid, "run", Payloads(self.folder / cid / "payloads"))
            store = FolderStore(self.folder / cid, method)
            client = partial(method.open_client, cid, X, settings, "cpu")
            self.nodes[cid] = ClientNode(method, settings, outbox, {"client": client}, store)

    def save_clients(self, folder):
        pass

    def load_clients(self, folder, client_ids):
        pass


@pytest.mark.parametrize("name", CASES)
def test_silos_that_start_again_continue_and_send_nothing_twice(name, tmp_path, monkeypatch):
    undisturbed = finished(CASES[name])
    monkeypatch.setattr(Silos, "folder", tmp_path / "silos")
    with pytest.raises(InterruptedRunError):
        finished(CASES[name], Silos, checkpoint=tmp_path / "server", callbacks=[interrupt_at(3)])
    shutil.copytree(tmp_path / "server", tmp_path / "as it was")
    with pytest.raises(InterruptedRunError):
        finished(CASES[name], Silos, checkpoint=tmp_path / "server", resume=True, callbacks=[interrupt_at(4)])
    resumed = finished(CASES[name], Silos, checkpoint=tmp_path / "as it was", resume=True)  # asks for round 4 again
    assert_same_run(resumed, undisturbed)
    for ledger in resumed[1].ledgers.values():
        rounds = [(line["round"], line["kind"]) for line in ledger.lines() if line["phase"] == "round"]
        assert rounds == [*((number, "release") for number in (1, 2, 3, 4)), (4, "replay"), (5, "release")]


def test_only_the_same_run_is_resumed(tmp_path):
    method, settings, data = case = CASES["fed-kmeans"]
    finished(case, checkpoint=tmp_path)
    with pytest.raises(FileError, match=r"local_iters=1 .*2"):
        finished((method, replace(settings, local_iters=2), data), checkpoint=tmp_path, resume=True)
    with pytest.raises(FileError, match="'a'"):
        finished((method, settings, data | {"a": data["a"] + 1}), checkpoint=tmp_path, resume=True)
    with pytest.raises(FileError, match="fed-mtsc"):
        finished((mtsc.METHOD, MTSCSettings(K), data), checkpoint=tmp_path, resume=True)
    longer, _ = finished((method, replace(settings, n_rounds=7), data), checkpoint=tmp_path, resume=True)
    assert [record.round_no for record in longer.history] == [1, 2, 3, 4, 5, 6, 7]


# ------------------------------------------------------------------------------------------------------ lost clients


def losing(away):
    """A transport whose clients do not answer where `away` of client, phase and round says so."""

    class Losing(LocalTransport):
        def exchange(self, messages):
            gone = [cid for cid, m in messages.items() if away(cid, m.phase, m.round_no)]
            replies = super().exchange({cid: m for cid, m in messages.items() if cid not in gone})
            replies.failures |= {cid: ConnectionError("is away") for cid in gone}
            return replies

    return Losing


def test_a_client_lost_before_the_first_round_is_done_is_left_out(case):
    transport_type = losing(lambda cid, phase, number: cid == "b" and number == 1)
    with pytest.raises(ClientError):
        finished(case, transport_type)
    result, transport = finished(case, transport_type, min_clients=2)
    assert result.server.client_ids == ("a", "c")
    assert result.history[0].missing == ("b",)
    assert not any(record.missing for record in result.history[1:])
    assert set(transport.results()) <= {"a", "c"}


@pytest.mark.parametrize(("name", "phase"), [("fed-kmeans", "start"), ("fed-mtsc", "prepare"), ("fed-mtsc", "round")])
def test_the_others_then_do_what_they_do_among_themselves(name, phase):
    method, settings, data = CASES[name]
    transport_type = losing(lambda cid, at, number: cid == "b" and at == phase)
    result, transport = finished(CASES[name], transport_type, min_clients=2)
    rest = finished((method, settings, {cid: data[cid] for cid in "ac"}))
    assert flatten(result.server)[0].keys() == flatten(rest[0].server)[0].keys()
    for cid in "ac":
        assert_array_equal(transport.results()[cid].labels, rest[1].results()[cid].labels)
    assert [r.objective for r in result.history] == [r.objective for r in rest[0].history]


@pytest.mark.parametrize("name", CASES)
def test_a_client_that_is_away_for_a_round_is_asked_again(name):
    result, transport = finished(
        CASES[name], losing(lambda cid, phase, number: cid == "b" and (phase, number) == ("round", 3)), min_clients=2
    )
    assert [record.missing for record in result.history] == [(), (), ("b",), (), ()]
    assert result.missing == ()
    assert set(transport.results()) == {"a", "b", "c"}
    assert result.server.client_ids == ("a", "b", "c")


def test_a_client_that_is_away_keeps_its_part_of_a_sum():
    method, settings, data = CASES["fed-mtsc"]
    seen = []
    transport_type = losing(lambda cid, phase, number: cid == "b" and (phase, number) == ("round", 2))
    transport = transport_type(data, settings, method=method)
    reduce = type(method.loop).reduce

    class Watched(type(method.loop)):
        def reduce(self, server, answers, settings):
            server, report = reduce(self, server, answers, settings)
            seen.append(server.squares)
            return server, report

    watching = type("Watching", (type(method),), {"loop": Watched()})()
    transport.method = watching
    for node in transport.nodes.values():
        node.method = watching
    run(transport, settings, method=watching, min_clients=2)
    assert_array_equal(seen[1][1], seen[0][1])
    assert (seen[1][[0, 2]] != seen[0][[0, 2]]).any()
    assert (seen[2][1] != seen[1][1]).any()


def test_a_client_that_stays_away_has_no_labels():
    result, transport = finished(
        CASES["fed-kmeans"], losing(lambda cid, phase, number: cid == "b" and number >= 2), min_clients=2
    )
    assert result.missing == ("b",)
    assert set(transport.results()) == {"a", "c"}
    assert nbytes(fed_kmeans.CentersAsk(centers=result.server.centers)) == 8 * K * 12


def test_baselines_refuse_missing_cells():
    X = np.ones((12, 2))
    X[3, 1] = np.nan
    with pytest.raises(DataError, match=r"NaN.\nFedKMeans does not accept missing values"):
        FedKMeans(2).fit(X)
