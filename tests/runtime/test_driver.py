"""The round loop: history, bytes, failing clients, checkpoints and resuming."""

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_circles

from fmtc.artifacts.files import read_tensors, write_tensors
from fmtc.artifacts.states import flatten, unflatten
from fmtc.errors import ClientError, FileError
from fmtc.privacy.ledger import Total
from fmtc.protocol.graph.finish import SETTLE_STEPS
from fmtc.protocol.graph.state import Embedded, Numbered
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.method import view_method
from fmtc.protocol.state import ServerState, row_weights
from fmtc.runtime.driver import RoundRecord, run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")

D, K, ROUNDS = 6, 3, 5
SIZES = {"a": 40, "b": 30, "c": 35}
SCALARS = 8  # bytes of a number


def but(**changed):
    """The settings of these tests, but for some."""
    return Settings(**{"n_clusters": K, "max_iter": ROUNDS, "tol": 0, "n_init": 2} | changed)


SETTINGS = but()


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = 3 * np.eye(D)[rng.integers(K, size=n)] + rng.normal(size=(n, D))
    return np.where(X > 0, X, 0)


DATA = {cid: rows(n, seed) for seed, (cid, n) in enumerate(SIZES.items())}
STORAGE = {"dense": np.asarray, "sparse": sp.csr_array}


class Gone:
    """A disk that cannot be read any more."""

    def __getattr__(self, name):
        raise OSError("disk gone")

    def __matmul__(self, other):
        raise OSError("disk gone")


class OneFails(LocalTransport):
    """Real clients, one of which cannot read its files in one phase (of some rounds) and recovers after it."""

    def __init__(self, data, settings, *, who="b", phase, round_no=None, **others):
        super().__init__(data, settings, **others)
        self.trap = (who, phase, round_no if isinstance(round_no, tuple) else (round_no,))

    def _ask(self, cores, cid, message):
        who, phase, rounds = self.trap
        if (cid, message.phase) != (who, phase) or not {None, message.round_no} & set(rounds):
            return super()._ask(cores, cid, message)
        node = self.nodes[cid]
        healthy = node.client
        lost = [name for name in ("X", "rows", "own", "cells") if hasattr(healthy, name)]
        node.client = replace(healthy, **dict.fromkeys(lost, Gone()))
        try:
            return super()._ask(cores, cid, message)
        finally:
            node.client = healthy


class PowerCutError(Exception):
    pass


def power_cut_at(round_no):
    def callback(record):
        if record.round_no == round_no:
            raise PowerCutError

    return callback


def outcome(transport, settings=SETTINGS, **options):
    """All that a run leaves behind, as bytes by name; seconds apart."""
    result = run(transport, settings, **options)
    server = result.server
    left = {name: getattr(server, name) for name in ("omega", "W", "Z", "Y", "losses")}
    for cid in server.client_ids:
        client = transport.clients[cid]
        left |= {f"{cid}.F": client.F, f"{cid}.W": client.W}
        if cid not in result.missing:
            left |= {f"{cid}.labels": client.labels, f"{cid}.centers": client.model.centers}
            left |= {f"{cid}.spread": np.array(client.model.spread)}
    history = [{**asdict(record), "seconds": None} for record in result.history]
    words = {"stopped": (result.converged, result.stopped_because), "history": history, "missing": result.missing}
    words["received"] = sorted(result.received, key=lambda line: (line.phase, line.field))
    return words | {name: (array.dtype, array.shape, array.tobytes()) for name, array in left.items()}


# -------------------------------------------------------------------------------------------------- an ordinary run


@pytest.mark.parametrize(("align", "dtype"), [(True, np.float64), (True, np.float32), (False, np.float64)])
def test_history_counts_one_matrix_each_way(align, dtype):
    settings = but(align=align)
    result = run(LocalTransport({cid: X.astype(dtype) for cid, X in DATA.items()}, settings), settings)
    m, size = len(DATA), np.dtype(dtype).itemsize
    turned = range(2, ROUNDS + 1) if align else []
    assert [record.round_no for record in result.history] == list(range(1, ROUNDS + 1))
    for record in result.history:
        assert isinstance(record, RoundRecord)
        assert record.bytes_up == m * (D * K * size + 2 * SCALARS)  # W, cut and misfit
        anchor = D * K * (8 if record.round_no == 1 else size)  # nobody's precision is known before the first W
        rotation = K * K * size if record.round_no in turned else 0
        assert record.bytes_down == m * (anchor + rotation + 2 * SCALARS + len("round"))  # and two numbers of rounds
        assert (record.missing, record.refused) == ((), 0)
        assert record.seconds > 0
        assert 1 <= record.rank <= K
        numbers = (record.objective, record.lagrangian, record.primal_residual, record.dual_residual)
        assert np.isfinite(numbers).all()
        assert min(numbers) >= 0
    assert result.server.round_no == ROUNDS
    assert result.server.client_ids == ("a", "b", "c")
    assert result.missing == ()


def test_rounded_messages_have_half_the_bytes():
    settings = but(message_dtype="float32")
    result = run(LocalTransport(DATA, settings), settings)
    for record, plain in zip(result.history, run(LocalTransport(DATA, SETTINGS), SETTINGS).history, strict=True):
        saved = len(DATA) * D * K * 4
        assert (record.bytes_up, record.bytes_down) == (plain.bytes_up - saved, plain.bytes_down - saved)
        assert record.bytes_up == len(DATA) * (D * K * 4 + 2 * SCALARS)
        assert record.objective == pytest.approx(plain.objective, rel=1e-5)
        assert record.objective != plain.objective


def test_stopping_has_a_reason():
    result = run(LocalTransport(DATA, SETTINGS), SETTINGS)
    last = result.history[-1]
    assert not result.converged
    for number in ("max_iter=5", f"{last.primal_residual:.1e}", f"{last.dual_residual:.1e}", "tol=0"):
        assert number in result.stopped_because
    settings = but(tol=0.25, max_iter=200)
    result = run(LocalTransport(DATA, settings), settings)
    residuals = [max(record.primal_residual, record.dual_residual) for record in result.history]
    assert result.converged
    assert f"tol=0.25 after {len(residuals)} rounds" in result.stopped_because
    assert 1 < len(residuals) < 200
    assert residuals[-1] < 0.25 <= min(residuals[:-1])


def test_every_callback_hears_every_round_in_order():
    heard = []
    result = run(
        LocalTransport(DATA, SETTINGS), SETTINGS, callbacks=(heard.append, lambda r: heard.append(-r.round_no))
    )
    assert heard == [item for record in result.history for item in (record, -record.round_no)]


def test_clients_must_share_their_features():
    for settings in (SETTINGS, but(scale="global")):
        with pytest.raises(ValueError, match="'a' has 6, 'b' has 5, 'c' has 6"):
            run(LocalTransport(DATA | {"b": DATA["b"][:, :5]}, settings), settings)


# -------------------------------------------------------------------------------------------------- failing clients

TRAPS = {
    "hello": {"phase": "hello"},
    "prepare": {"phase": "prepare"},
    "round 1": {"phase": "round", "round_no": 1},
    "round 3": {"phase": "round", "round_no": 3},
    "finish": {"phase": "finish"},
    "settle": {"phase": "settle"},
    "number": {"phase": "number"},
}
LEFT_OUT = ("hello", "prepare", "round 1")  # before its first model
each_trap = pytest.mark.parametrize("trap", TRAPS)


def doing(trap):
    return f"in {trap}" if " " in trap else METHOD.phase(trap).doing


@pytest.mark.parametrize(
    ("trap", "n_jobs"), [(trap, n) for trap in TRAPS for n in ((1, 3) if "round" in trap else (1,))]
)
def test_a_failing_client_is_named_with_its_phase_and_cause(trap, n_jobs):
    with pytest.raises(ClientError, match=rf"'b' failed {doing(trap)}: OSError: disk gone .*2 of 3.* 3 ") as caught:
        run(OneFails(DATA, SETTINGS, **TRAPS[trap], n_jobs=n_jobs), SETTINGS)
    assert isinstance(caught.value.__cause__, OSError)


@each_trap
def test_the_others_continue_when_enough_are_left(trap, caplog):
    transport = OneFails(DATA, SETTINGS, **TRAPS[trap])
    result = run(transport, SETTINGS, min_clients=2)
    assert f"silo 'b' failed {doing(trap)}: OSError: disk gone" in caplog.text
    assert result.missing == (() if trap in ("round 3", "settle") else ("b",))
    assert result.server.client_ids == (("a", "c") if trap in LEFT_OUT else ("a", "b", "c"))
    missing = {"round 1": 1, "round 3": 3}.get(trap)
    assert [record.missing for record in result.history] == [
        ("b",) if record.round_no == missing else () for record in result.history
    ]
    assert np.isfinite(result.server.Z).all()
    for cid in set(DATA) - set(result.missing):
        assert np.bincount(transport.clients[cid].labels, minlength=K).min() > 0
    if trap == "round 3":  # one matrix less went up, and the client was asked again
        up = [record.bytes_up for record in result.history]
        assert [3 * b // max(up) for b in up] == [3, 3, 2, 3, 3]


@pytest.mark.parametrize("phase", ["moments", "rescale", "hello"])
def test_a_client_that_fails_before_the_common_units_is_left_out(phase):
    settings = but(scale="global")
    with pytest.raises(ClientError, match=rf"silo 'b' failed {doing(phase)}: OSError"):
        run(OneFails(DATA, settings, phase=phase), settings)
    transport = OneFails(DATA, settings, phase=phase)
    result = run(transport, settings, min_clients=2)
    assert (result.server.client_ids, result.missing) == (("a", "c"), ("b",))
    whole = np.vstack([DATA[cid] for cid in ("ac" if phase == "moments" else "abc")])  # b's sums, where it sent them
    assert_allclose(result.server.scaling.shift, whole.mean(axis=0), rtol=1e-12)
    assert_allclose(result.server.scaling.stretch, whole.std(axis=0), rtol=1e-12)


RINGS = {
    cid: make_circles(n, factor=0.4, noise=0.04, random_state=n)[0] for cid, n in {"a": 300, "b": 250, "c": 280}.items()
}


@pytest.mark.parametrize("phase", ["em", "probe", "hello", "prepare", "round", "later round", "rescale"])
def test_a_client_that_fails_between_the_views_is_left_out_of_the_second(phase, tmp_path):
    """It has no model there yet, whatever it did in the mixture; a lost opinion on the views costs nothing."""
    settings = but(n_clusters=2, view="auto", scale="auto", max_iter=3, n_init=1)
    method, em = view_method("auto"), 12  # rounds of the mixture
    number = {"em": 5, "round": em + 1, "later round": em + 2}.get(phase)
    transport = OneFails(RINGS, settings, phase=phase.split()[-1], round_no=number, method=method)
    result = run(transport, settings, method=method, min_clients=2, checkpoint=tmp_path)
    left = phase in ("hello", "prepare", "round", "rescale")
    assert result.server.view == "graph"
    assert [record.round_no for record in result.history if record.missing] == ([] if number is None else [number])
    assert result.server.client_ids == (("a", "c") if left else ("a", "b", "c"))
    assert result.missing == (("b",) if left else ())
    assert result.server.W.shape[2] == len(result.server.omega) == len(result.server.client_ids)
    assert np.abs(result.server.W).max(axis=(0, 1)).min() > 0
    for cid in result.server.client_ids:
        assert np.bincount(transport.clients[cid].labels, minlength=2).min() > 100
    again = run(LocalTransport(RINGS, settings, method=method), settings, method=method, min_clients=2,
                checkpoint=tmp_path, resume=True)  # fmt: skip
    assert_array_equal(again.server.Z, result.server.Z)


def test_weights_of_clients_that_are_left_out_are_forgotten():
    """Those of the others stay in proportion."""
    weights = {"a": 1, "b": 5, "c": 3}
    for phase in ("hello", "prepare"):
        result = run(OneFails(DATA, SETTINGS, phase=phase), SETTINGS, weights=weights, min_clients=2)
        assert result.server.client_ids == ("a", "c")
        assert result.server.omega[1] == pytest.approx(3 * result.server.omega[0])
    settings = but(view="mixture", scale="auto")
    transport = OneFails(DATA, settings, phase="coordinates", method=view_method("mixture"))
    result = run(transport, settings, method=view_method("mixture"), weights=weights, min_clients=2)
    assert result.server.weights == {"a": 1, "c": 3}
    assert row_weights(result.server) == {"a": 0.5, "c": 1.5}


def test_a_client_that_never_describes_its_data_might_as_well_not_exist():
    with_it = outcome(OneFails(DATA, SETTINGS, phase="hello"), min_clients=2)
    without = outcome(LocalTransport({cid: DATA[cid] for cid in "ac"}, SETTINGS))
    assert with_it.pop("missing") == ("b",)
    assert without.pop("missing") == ()
    assert with_it == without


def test_a_silent_client_keeps_its_slice():
    earlier = but(max_iter=ROUNDS - 1)
    before = run(LocalTransport(DATA, earlier), earlier).server.W
    after = run(OneFails(DATA, SETTINGS, phase="round", round_no=ROUNDS), SETTINGS, min_clients=2).server.W
    assert_array_equal(after[:, :, 1], before[:, :, 1])
    assert np.abs(after - before).max(axis=(0, 1))[[0, 2]].min() > 1e-6  # the others moved on


def test_a_silent_client_catches_up():
    seen = []

    class Watched(OneFails):
        def exchange(self, messages):
            seen.append({cid: self.clients[cid].round_no for cid in messages})
            return super().exchange(messages)

    transport = Watched(DATA, SETTINGS, phase="round", round_no=3)
    run(transport, SETTINGS, min_clients=2)
    finish = seen[2 + ROUNDS]  # hello, prepare and the rounds come first
    assert [state["b"] for state in seen[2 : 3 + ROUNDS]] == [0, 1, 2, 2, 4, 5]  # before each round and the finish
    assert set(finish.values()) == {ROUNDS}


def test_an_absent_client_is_told_its_last_round_that_counted():
    told = []

    class Watched(OneFails):
        def _ask(self, cores, cid, message):
            if cid == "b" and message.phase in ("round", "finish"):
                told.append((message.phase, message.round_no, message.last_round))
            return super()._ask(cores, cid, message)

    result = run(Watched(DATA, SETTINGS, phase="round", round_no=(3, 4)), SETTINGS, min_clients=2)
    assert [record.missing for record in result.history] == [(), (), ("b",), ("b",), ()]
    asked = [("round", 1, 0), ("round", 2, 1), ("round", 3, 2), ("round", 4, 2), ("round", 5, 2), ("finish", 5, 5)]
    assert told == asked
    told.clear()
    run(Watched(DATA, SETTINGS, phase="round", round_no=ROUNDS), SETTINGS, min_clients=2)
    assert told[-1] == ("finish", ROUNDS, ROUNDS - 1)


@pytest.mark.parametrize("min_clients", [0, -1, 4, 1.5, "all"])
def test_min_clients_must_be_a_number_of_clients(min_clients):
    with pytest.raises((ValueError, TypeError), match="min_silos"):
        run(LocalTransport(DATA, SETTINGS), SETTINGS, min_clients=min_clients)


# ------------------------------------------------------------------------------------------------ crash and resume


@pytest.mark.parametrize(
    ("options", "storage"),
    [
        ({}, "dense"),
        ({"coupling": "subspace"}, "sparse"),
        ({"scale": "silo"}, "dense"),
        ({"scale": "global"}, "sparse"),
        ({"scale": "global"}, "dense"),
        ({"message_dtype": "float32"}, "sparse"),
    ],
    ids=str,
)
def test_crash_and_resume_at_every_round(options, storage, tmp_path):
    settings = but(**options)
    data = {cid: STORAGE[storage](X) for cid, X in DATA.items()}
    undisturbed = outcome(LocalTransport(data, settings), settings)
    for r in range(1, ROUNDS + 1):
        folder = tmp_path / str(r)
        with pytest.raises(PowerCutError):
            run(LocalTransport(data, settings), settings, checkpoint=folder, callbacks=[power_cut_at(r)])
        assert [p.name for p in folder.iterdir()] == [f"round-{r:05d}"]
        seen = []
        resumed = outcome(
            LocalTransport(data, settings), settings, checkpoint=folder, resume=True, callbacks=[seen.append]
        )
        assert [record.round_no for record in seen] == list(range(r + 1, ROUNDS + 1))  # no round twice
        assert resumed == undisturbed


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({"align": False, "rho": 0.1, "labels_from": "embedding"}, np.float64), ({"schatten_p": 0.5}, np.float32)],
    ids=str,
)
def test_crash_in_every_round_and_resume_under_other_settings(options, dtype, tmp_path):
    """One run that stops in each round, because a client does, and is resumed every time."""
    settings = but(**options)
    data = {cid: X.astype(dtype) for cid, X in DATA.items()}
    undisturbed = outcome(LocalTransport(data, settings), settings)
    for r in range(1, ROUNDS + 1):
        with pytest.raises(ClientError, match=f"in round {r}"):
            run(OneFails(data, settings, phase="round", round_no=r), settings, checkpoint=tmp_path, resume=True)
    assert outcome(LocalTransport(data, settings), settings, checkpoint=tmp_path, resume=True) == undisturbed


def test_resume_is_harmless_before_the_first_round_and_after_the_last(tmp_path):
    undisturbed = outcome(LocalTransport(DATA, SETTINGS))
    for folder in (tmp_path / "not there yet", tmp_path):
        assert outcome(LocalTransport(DATA, SETTINGS), checkpoint=folder, resume=True) == undisturbed
        assert outcome(LocalTransport(DATA, SETTINGS), checkpoint=folder, resume=True) == undisturbed


def test_without_resume_a_run_starts_afresh(tmp_path):
    longer = but(max_iter=ROUNDS + 1)
    run(LocalTransport(DATA, longer), longer, checkpoint=tmp_path)
    heard = []
    run(LocalTransport(DATA, SETTINGS), SETTINGS, checkpoint=tmp_path, callbacks=[heard.append])
    assert len(heard) == ROUNDS
    assert [p.name for p in tmp_path.iterdir()] == [f"round-{ROUNDS:05d}"]


def test_a_finished_run_may_be_given_more_rounds(tmp_path):
    short = but(max_iter=2)
    run(LocalTransport(DATA, short), short, checkpoint=tmp_path)
    assert outcome(LocalTransport(DATA, SETTINGS), checkpoint=tmp_path, resume=True) == outcome(
        LocalTransport(DATA, SETTINGS)
    )


@each_trap
def test_checkpoints_and_failing_clients_go_together(trap, tmp_path):
    def transport():
        return OneFails(DATA, SETTINGS, **TRAPS[trap])

    undisturbed = outcome(transport(), min_clients=2)
    assert outcome(transport(), min_clients=2, checkpoint=tmp_path / "whole") == undisturbed
    with pytest.raises(PowerCutError):
        run(transport(), SETTINGS, min_clients=2, checkpoint=tmp_path / "cut", callbacks=[power_cut_at(4)])
    if trap not in LEFT_OUT:
        assert outcome(transport(), min_clients=2, checkpoint=tmp_path / "cut", resume=True) == undisturbed
    else:  # those who stayed continue, whether or not the one who was left out is there again
        shutil.copytree(tmp_path / "cut", tmp_path / "copy")
        stayed = LocalTransport({cid: DATA[cid] for cid in "ac"}, SETTINGS)
        resumed = outcome(stayed, checkpoint=tmp_path / "cut", resume=True)
        assert resumed | {"missing": ("b",)} == undisturbed
        again = LocalTransport(DATA, SETTINGS)
        assert outcome(again, min_clients=2, checkpoint=tmp_path / "copy", resume=True) == undisturbed
        assert not isinstance(again.clients["b"], Embedded)


def test_a_client_that_cannot_prepare_after_a_resume_keeps_its_slice(tmp_path):
    with pytest.raises(PowerCutError):
        run(LocalTransport(DATA, SETTINGS), SETTINGS, checkpoint=tmp_path, callbacks=[power_cut_at(2)])
    before, _ = read_tensors(tmp_path / "round-00002" / "server.safetensors")
    transport = OneFails(DATA, SETTINGS, phase="prepare")
    result = run(transport, SETTINGS, min_clients=2, checkpoint=tmp_path, resume=True)
    assert result.server.client_ids == ("a", "b", "c")
    assert_array_equal(result.server.W[:, :, 1], before["W"][:, :, 1])
    assert np.abs(result.server.W - before["W"]).max(axis=(0, 1))[[0, 2]].min() > 1e-6
    assert [record.missing for record in result.history] == [(), (), ("b",), ("b",), ("b",)]  # asked again each round
    assert transport.clients["b"].round_no == 2
    assert transport.clients["b"].labels is not None  # its model is that of round 2, and it has one


@pytest.mark.parametrize("phase", ["rescale", "prepare"])
def test_common_units_are_those_of_the_first_start(phase, tmp_path):
    """Whoever is missing when the run is resumed: the columns of the others are scaled as before."""
    told = []

    class Watched(OneFails):
        def _ask(self, cores, cid, message):
            if message.phase == "rescale":
                told.append((message.ask.shift.tobytes(), message.ask.stretch.tobytes()))
            return super()._ask(cores, cid, message)

    settings = but(scale="global")
    with pytest.raises(PowerCutError):
        run(Watched(DATA, settings, phase=None), settings, checkpoint=tmp_path, callbacks=[power_cut_at(2)])
    resumed = Watched(DATA, settings, phase=phase)
    result = run(resumed, settings, min_clients=2, checkpoint=tmp_path, resume=True)
    assert len(told) == 6
    assert len(set(told)) == 1
    assert result.server.client_ids == ("a", "b", "c")
    assert [record.missing for record in result.history] == [(), (), ("b",), ("b",), ("b",)]


def test_a_resumed_run_of_too_few_clients_says_so(tmp_path):
    with pytest.raises(PowerCutError):
        run(OneFails(DATA, SETTINGS, phase="hello"), SETTINGS, min_clients=2, checkpoint=tmp_path,
            callbacks=[power_cut_at(2)])  # fmt: skip
    with pytest.raises(ClientError, match=r"2 silos .* 3 needed"):
        run(LocalTransport(DATA, SETTINGS), SETTINGS, checkpoint=tmp_path, resume=True)


def test_a_checkpoint_is_whole_or_not_there(tmp_path):
    class FullDisk(LocalTransport):
        def save_clients(self, folder):
            super().save_clients(folder)
            if self.clients["a"].round_no == 3:
                next(folder.rglob("b.safetensors")).unlink()
                raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        run(FullDisk(DATA, SETTINGS), SETTINGS, checkpoint=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["round-00002"]
    assert sorted(p.stem for p in tmp_path.rglob("*.safetensors")) == ["a", "b", "c", "server"]
    shutil.copytree(tmp_path / "round-00002", tmp_path / ".round-00003-killed")  # a machine that died while writing
    (tmp_path / ".round-00003-killed" / "server.safetensors").unlink()
    assert outcome(LocalTransport(DATA, SETTINGS), checkpoint=tmp_path, resume=True) == outcome(
        LocalTransport(DATA, SETTINGS)
    )


def test_a_client_may_have_any_name_in_a_checkpoint(tmp_path):
    data = dict(zip(("server", "a/b:c", "ü" * 150), DATA.values(), strict=True))
    undisturbed = outcome(LocalTransport(data, SETTINGS))
    with pytest.raises(PowerCutError):
        run(LocalTransport(data, SETTINGS), SETTINGS, checkpoint=tmp_path, callbacks=[power_cut_at(3)])
    assert outcome(LocalTransport(data, SETTINGS), checkpoint=tmp_path, resume=True) == undisturbed


def test_what_else_lies_in_the_folder_is_left_alone(tmp_path):
    (tmp_path / "round-trip").mkdir()
    (tmp_path / "round-trip" / "thesis.txt").write_text("ten years of work")
    (tmp_path / "round-up.csv").write_text("1,2")
    undisturbed = outcome(LocalTransport(DATA, SETTINGS), checkpoint=tmp_path)
    assert outcome(LocalTransport(DATA, SETTINGS), checkpoint=tmp_path, resume=True) == undisturbed
    assert {p.name for p in tmp_path.iterdir()} == {"round-trip", "round-up.csv", f"round-{ROUNDS:05d}"}
    assert (tmp_path / "round-trip" / "thesis.txt").read_text() == "ten years of work"


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two rounds")
    short = but(max_iter=2)
    run(LocalTransport(DATA, short), short, checkpoint=folder)
    return folder


@pytest.fixture
def checkpoint(two_rounds, tmp_path):
    return shutil.copytree(two_rounds, tmp_path / "checkpoint")


def resume(folder, data=DATA, settings=SETTINGS, **options):
    return run(LocalTransport(data, settings), settings, checkpoint=folder, resume=True, **options)


OTHER = {
    "n_clusters": 2, "alpha": 2.0, "beta": 0.3, "coupling": "subspace", "scale": "silo", "seed": 1,
    "view": "mixture", "levels": (0, 0, 0, 0, 0, 2), "n_neighbors": 5, "lift": True,
    "ridge": 0.1, "rho": 1.0, "schatten_p": 0.5, "align": False, "bandwidth": 1.0,
    "nonmutual_weight": 1.0, "step_size": 0.1, "n_inner": 2, "accelerate": False,
    "max_features": 100, "message_dtype": "float32", "center_features": False, "privacy": "sums",
    "contain": False, "own": False, "clusters_per_silo": 2,
}  # fmt: skip
FREE = {
    "max_iter": 3, "tol": 0.5, "n_init": 1, "labels_from": "embedding", "final": "kmeans",
    "kappa": 3.0, "calibrate": True,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_resume_refuses_other_settings(name, checkpoint):
    now = {name: OTHER[name]} | ({"coupling": "subspace"} if name == "privacy" else {})
    with pytest.raises(FileError) as caught:
        resume(checkpoint, settings=but(**now))
    assert re.search(rf"[(; ]{re.escape(name)}=", str(caught.value))  # the whole name, not the end of another
    value = list(OTHER[name]) if isinstance(OTHER[name], tuple) else OTHER[name]
    assert f"{value!r} now)" in str(caught.value)


def test_every_setting_is_either_kept_or_free(checkpoint):
    assert OTHER.keys() | FREE.keys() == asdict(SETTINGS).keys()
    assert FREE.keys() == set(METHOD.changeable)
    assert OTHER.keys() & FREE.keys() == set()
    assert resume(checkpoint, settings=but(**FREE)).server.round_no in (2, 3)


def test_resume_refuses_other_weights(checkpoint):
    with pytest.raises(FileError, match="weights"):
        resume(checkpoint, weights={"a": 1, "b": 2, "c": 1})


@pytest.mark.parametrize(
    "other",
    [DATA["b"] + 1e-12, DATA["b"][::-1], DATA["b"][:-1], DATA["b"].astype(np.float32), sp.csr_array(DATA["b"])],
    ids=["a digit", "order", "a row less", "precision", "storage"],
)
def test_resume_refuses_other_data(other, checkpoint):
    with pytest.raises(FileError, match="silo 'b'"):
        resume(checkpoint, DATA | {"b": other})


@pytest.mark.parametrize("names", ["ab", "abcd", "abx"])
def test_resume_refuses_other_clients(names, checkpoint):
    data = dict(zip(names, [*DATA.values(), DATA["a"]], strict=False))
    with pytest.raises(FileError, match=r"\['a', 'b', 'c'\].*\['a', 'b'"):
        resume(checkpoint, data)


def rewrite(change_arrays=lambda arrays: arrays, **about):
    def damage(path: Path):
        arrays, known = read_tensors(path)
        write_tensors(path, change_arrays(arrays), {k: v for k, v in (known | about).items() if v is not None})

    return damage


def forget_the_round(path: Path):
    arrays, about = read_tensors(path)
    del about.get("server", about)["round_no"]
    write_tensors(path, arrays, about)


DAMAGE = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x01"),
    "other kind": rewrite(kind="recipe"),
    "newer": rewrite(schema=99),
    "older": rewrite(schema=0, method=None),
    "no schema": rewrite(schema=None),
    "no W": rewrite(lambda arrays: {k: v for k, v in arrays.items() if k != "W"}),
    "no round": forget_the_round,
}


@pytest.mark.parametrize("file", ["server", "b"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_resume_refuses_damaged_files(damage, file, checkpoint):
    path = next(checkpoint.rglob(f"{file}.safetensors"))
    DAMAGE[damage](path)
    with pytest.raises(FileError) as caught:
        resume(checkpoint)
    assert str(path) in str(caught.value)
    if damage == "newer":
        assert "99" in str(caught.value)


def test_resume_refuses_swapped_client_files(checkpoint):
    shutil.copy(next(checkpoint.rglob("a.safetensors")), next(checkpoint.rglob("b.safetensors")))
    with pytest.raises(FileError, match="silo 'b'"):
        resume(checkpoint)


def test_history_survives_json():
    record = RoundRecord(1, float("nan"), 2.0, 0.5, 0.25, 3, 10, 20, 0.1, ("b",))
    again = RoundRecord.from_dict(asdict(record) | {"objective": None, "missing": ["b"]})
    assert np.isnan(again.objective)
    assert replace(again, objective=0.0) == replace(record, objective=0.0)
    assert_array_equal(RoundRecord.from_dict(asdict(again)).missing, ("b",))


# ------------------------------------------------------------------------------------------------ the last stage


class Phases(LocalTransport):
    """Notes the phase of every exchange."""

    def exchange(self, messages):
        self.seen = [*getattr(self, "seen", []), next(iter(messages.values())).phase]
        return super().exchange(messages)


@pytest.mark.parametrize("setting", [{"final": "kmeans"}, {"align": False}, {"labels_from": "embedding"}], ids=str)
def test_a_run_may_end_with_k_means(setting):
    settings = but(**setting)
    transport = Phases(DATA, settings)
    run(transport, settings)
    assert transport.seen == ["hello", "prepare", *ROUNDS * ["round"], "finish", "number"]


@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_mixture_of_all_projections_comes_last(names):
    settings = but(kappa=float("inf"))
    transport = Phases({cid: DATA[cid] for cid in names}, settings)
    run(transport, settings)
    settled = transport.seen.count("settle")
    assert 1 < settled <= SETTLE_STEPS
    assert transport.seen == ["hello", "prepare", *ROUNDS * ["round"], "finish", *settled * ["settle"], "number"]
    first, *others = (client.model.centers for client in transport.clients.values())
    for other in others:  # nothing of their own outweighs what all know
        assert_allclose(first, other, atol=1e-9)
    assert all(isinstance(client, Numbered) for client in transport.clients.values())


# ------------------------------------------------------------------------------------------------- what is counted


@pytest.mark.parametrize("names", ["abc", "ab"])
def test_what_was_received_is_counted_by_phase_and_field(names):
    settings = but(scale="global", final="kmeans", lift=False)
    transport = OneFails({cid: DATA[cid] for cid in names}, settings, phase="round", round_no=3)
    result = run(transport, settings, min_clients=1)
    m, rounds = len(names), len(names) * ROUNDS - 1  # one answer was lost
    assert {(line.phase, line.field): (line.shape, line.times, line.bytes) for line in result.received} == {
        ("moments", "n_samples"): ((), m, 8 * m),
        ("moments", "means"): ((D,), m, 8 * D * m),
        ("moments", "squares"): ((D,), m, 8 * D * m),
        ("hello", "n_samples"): ((), m, 8 * m),
        ("hello", "n_features"): ((), m, 8 * m),
        ("hello", "sum_of_squares"): ((), m, 8 * m),
        ("round", "W"): ((D, K), rounds, 8 * D * K * rounds),
        ("round", "cut"): ((), rounds, 8 * rounds),
        ("round", "misfit"): ((), rounds, 8 * rounds),
        ("finish", "centers"): ((K, K), m, 8 * K * K * m),
        ("number", "shares"): ((K,), m, 8 * K * m),
    }
    assert all(isinstance(line, Total) for line in result.received)


def test_the_server_comes_back_from_a_flat_form(rng):
    settings = but(scale="global")
    transport = LocalTransport(DATA, settings)
    server = run(transport, settings, weights={"a": 1, "b": 2, "c": 3}).server
    arrays, rest = flatten(server)
    rest |= {"": type(server).__name__}  # as in a checkpoint
    again = unflatten(ServerState(()), arrays, rest)
    assert again.client_ids == server.client_ids
    assert again.weights == server.weights
    assert_array_equal(again.scaling.stretch, server.scaling.stretch)
    assert again.scaling.keep is None
    assert again.rotations.keys() == server.rotations.keys() == set("abc")
    for name in ("W", "Z", "Y", "losses"):
        assert_array_equal(getattr(again, name), getattr(server, name))
    for name in ("means", "covariance", "shares", "spread"):
        assert_array_equal(getattr(again.mixture, name), getattr(server.mixture, name))
    fresh = unflatten(ServerState(()), *flatten(ServerState(("x",))))
    assert fresh == ServerState(("x",))
    with pytest.raises(KeyError):
        unflatten(ServerState(()), {name: a for name, a in arrays.items() if name != "W"}, rest)
