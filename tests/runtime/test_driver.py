"""The round loop: history, bytes, failing clients, checkpoints and resuming."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fmtc import ClientError, FileError, Hyper, LocalTransport, RoundRecord, run
from fmtc.artifacts.files import read_tensors, write_tensors
from fmtc.runtime.driver import Trials
from fmtc.steps import BETAS, TRIAL_ROUNDS

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of client")

D, K, ROUNDS = 6, 3, 5
HYPER = Hyper(K, max_iter=ROUNDS, tol=0, n_init=2)
SIZES = {"a": 40, "b": 30, "c": 35}
SCALARS = 8  # bytes of a number


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

    def __init__(self, data, hyper, *, who="b", phase, round_no=None, **others):
        super().__init__(data, hyper, **others)
        self.trap = (who, phase, round_no if isinstance(round_no, tuple) else (round_no,))

    def _ask(self, cid, message):
        who, phase, rounds = self.trap
        if (cid, message.phase) != (who, phase) or not {None, message.round_no} & set(rounds):
            return super()._ask(cid, message)
        healthy = self.clients[cid]
        self.clients[cid] = replace(healthy, X=Gone(), rows=Gone(), model=Gone(), E=Gone())
        try:
            return super()._ask(cid, message)
        finally:
            self.clients[cid] = healthy


class PowerCutError(Exception):
    pass


def power_cut_at(round_no):
    def callback(record):
        if record.round_no == round_no:
            raise PowerCutError

    return callback


def outcome(transport, hyper=HYPER, **options):
    """All that a run leaves behind, as bytes by name; seconds apart."""
    result = run(transport, hyper, **options)
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
    return words | {name: (array.dtype, array.shape, array.tobytes()) for name, array in left.items()}


# -------------------------------------------------------------------------------------------------- an ordinary run


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("align", ["loop", "init", "none"])
def test_history_counts_one_matrix_each_way(align, dtype):
    hyper = replace(HYPER, align=align)
    result = run(LocalTransport({cid: X.astype(dtype) for cid, X in DATA.items()}, hyper), hyper)
    m, size = len(DATA), np.dtype(dtype).itemsize
    turned = {"loop": range(2, ROUNDS + 1), "init": [2], "none": []}[align]
    assert [record.round_no for record in result.history] == list(range(1, ROUNDS + 1))
    for record in result.history:
        assert isinstance(record, RoundRecord)
        assert record.bytes_up == m * (D * K * size + 2 * SCALARS)  # W, cut and misfit
        guide = D * K * (8 if record.round_no == 1 else size)  # nobody's precision is known before the first W
        rotation = K * K * size if record.round_no in turned else 0
        assert record.bytes_down == m * (guide + rotation + 2 * SCALARS + len("round"))  # and two numbers of rounds
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
    hyper = replace(HYPER, message_dtype="float32")
    result = run(LocalTransport(DATA, hyper), hyper)
    for record, plain in zip(result.history, run(LocalTransport(DATA, HYPER), HYPER).history, strict=True):
        saved = len(DATA) * D * K * 4
        assert (record.bytes_up, record.bytes_down) == (plain.bytes_up - saved, plain.bytes_down - saved)
        assert record.bytes_up == len(DATA) * (D * K * 4 + 2 * SCALARS)
        assert record.objective == pytest.approx(plain.objective, rel=1e-5)
        assert record.objective != plain.objective


def test_stopping_has_a_reason():
    result = run(LocalTransport(DATA, HYPER), HYPER)
    last = result.history[-1]
    assert not result.converged
    assert result.stopped_because == (
        f"max_iter=5 rounds done; residuals {last.primal_residual:.1e} (primal) and {last.dual_residual:.1e} (dual), "
        "tol=0"
    )
    hyper = replace(HYPER, tol=0.25, max_iter=200)
    result = run(LocalTransport(DATA, hyper), hyper)
    residuals = [max(record.primal_residual, record.dual_residual) for record in result.history]
    assert result.converged
    assert result.stopped_because == f"primal and dual residuals below tol=0.25 after {len(residuals)} rounds"
    assert 1 < len(residuals) < 200
    assert residuals[-1] < 0.25 <= min(residuals[:-1])


def test_every_callback_hears_every_round_in_order():
    heard = []
    result = run(LocalTransport(DATA, HYPER), HYPER, callbacks=(heard.append, lambda r: heard.append(-r.round_no)))
    assert heard == [item for record in result.history for item in (record, -record.round_no)]


def test_clients_must_share_their_features():
    with pytest.raises(ValueError, match=r"'a' has 6, 'b' has 5, 'c' has 6.*one shared feature space"):
        run(LocalTransport(DATA | {"b": DATA["b"][:, :5]}, HYPER), HYPER)
    hyper = replace(HYPER, scale="global")
    with pytest.raises(ValueError, match=r"'a' has 6, 'b' has 5, 'c' has 6.*one shared feature space"):
        run(LocalTransport(DATA | {"b": DATA["b"][:, :5]}, hyper), hyper)


# -------------------------------------------------------------------------------------------------- failing clients

TRAPS = {
    "saying hello": {"phase": "hello"},
    "preparing": {"phase": "prepare"},
    "in round 1": {"phase": "round", "round_no": 1},
    "in round 3": {"phase": "round", "round_no": 3},
    "finishing": {"phase": "finish"},
    "looking for common centres": {"phase": "gather"},
    "numbering its clusters": {"phase": "number"},
}
LEFT_OUT = ("saying hello", "preparing", "in round 1")  # before its first model
each_trap = pytest.mark.parametrize("doing", TRAPS)


@each_trap
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_failing_client_is_named_with_its_phase_and_cause(doing, n_jobs):
    sentence = rf"^client 'b' failed {doing}: OSError: disk gone \(2 of 3 clients answered, 3 needed\)$"
    with pytest.raises(ClientError, match=sentence) as caught:
        run(OneFails(DATA, HYPER, **TRAPS[doing], n_jobs=n_jobs), HYPER)
    assert isinstance(caught.value.__cause__, OSError)


@each_trap
def test_the_others_go_on_when_enough_are_left(doing, caplog):
    transport = OneFails(DATA, HYPER, **TRAPS[doing])
    result = run(transport, HYPER, min_clients=2)
    assert f"client 'b' failed {doing}: OSError: disk gone" in caplog.text
    assert result.missing == (() if doing in ("in round 3", "looking for common centres") else ("b",))
    assert result.server.client_ids == (("a", "c") if doing in LEFT_OUT else ("a", "b", "c"))
    missing = {"in round 1": 1, "in round 3": 3}.get(doing)
    assert [record.missing for record in result.history] == [
        ("b",) if record.round_no == missing else () for record in result.history
    ]
    assert np.isfinite(result.server.Z).all()
    for cid in set(DATA) - set(result.missing):
        assert np.bincount(transport.clients[cid].labels, minlength=K).min() > 0
    if doing == "in round 3":  # one matrix less went up, and the client was asked again
        up = [record.bytes_up for record in result.history]
        assert [3 * b // max(up) for b in up] == [3, 3, 2, 3, 3]


@pytest.mark.parametrize(
    ("phase", "doing"),
    [("moments", "summing up its columns"), ("rescale", "scaling its columns"), ("hello", "saying hello")],
)
def test_a_client_that_fails_before_the_common_units_is_left_out(phase, doing, caplog):
    hyper = replace(HYPER, scale="global")
    with pytest.raises(ClientError, match=rf"client 'b' failed {doing}: OSError: disk gone \(2 of 3"):
        run(OneFails(DATA, hyper, phase=phase), hyper)
    transport = OneFails(DATA, hyper, phase=phase)
    result = run(transport, hyper, min_clients=2)
    assert (result.server.client_ids, result.missing) == (("a", "c"), ("b",))
    whole = np.vstack([DATA[cid] for cid in ("ac" if phase == "moments" else "abc")])  # b's sums, where it sent them
    assert_allclose(result.server.scaling.shift, whole.mean(axis=0), rtol=1e-12)
    assert_allclose(result.server.scaling.stretch, whole.std(axis=0), rtol=1e-12)


def test_a_client_that_never_says_hello_might_as_well_not_exist():
    with_it = outcome(OneFails(DATA, HYPER, phase="hello"), min_clients=2)
    without = outcome(LocalTransport({cid: DATA[cid] for cid in "ac"}, HYPER))
    assert with_it.pop("missing") == ("b",)
    assert without.pop("missing") == ()
    assert with_it == without


def test_a_silent_client_keeps_its_slice():
    earlier = replace(HYPER, max_iter=ROUNDS - 1)
    before = run(LocalTransport(DATA, earlier), earlier).server.W
    after = run(OneFails(DATA, HYPER, phase="round", round_no=ROUNDS), HYPER, min_clients=2).server.W
    assert_array_equal(after[:, :, 1], before[:, :, 1])
    assert np.abs(after - before).max(axis=(0, 1))[[0, 2]].min() > 1e-6  # the others moved on


def test_a_silent_client_catches_up():
    seen = []

    class Watched(OneFails):
        def exchange(self, messages):
            seen.append({cid: self.clients[cid].round_no for cid in messages})
            return super().exchange(messages)

    transport = Watched(DATA, HYPER, phase="round", round_no=3)
    run(transport, HYPER, min_clients=2)
    finish = seen[-5]
    assert [state["b"] for state in seen[2:-4]] == [0, 1, 2, 2, 4, 5]  # before each round and before the finish
    assert set(finish.values()) == {ROUNDS}


def test_an_absent_client_is_told_its_last_round_that_counted():
    told = []

    class Watched(OneFails):
        def _ask(self, cid, message):
            if cid == "b" and message.phase in ("round", "finish"):
                told.append((message.phase, message.round_no, message.last_round))
            return super()._ask(cid, message)

    result = run(Watched(DATA, HYPER, phase="round", round_no=(3, 4)), HYPER, min_clients=2)
    assert [record.missing for record in result.history] == [(), (), ("b",), ("b",), ()]
    asked = [("round", 1, 0), ("round", 2, 1), ("round", 3, 2), ("round", 4, 2), ("round", 5, 2), ("finish", 5, 5)]
    assert told == asked
    assert_array_equal(result.server.answered, [ROUNDS] * 3)
    result = run(OneFails(DATA, HYPER, phase="round", round_no=ROUNDS), HYPER, min_clients=2)
    assert_array_equal(result.server.answered, [ROUNDS, ROUNDS - 1, ROUNDS])


@pytest.mark.parametrize("min_clients", [0, -1, 4, 1.5, "all"])
def test_min_clients_must_be_a_number_of_clients(min_clients):
    with pytest.raises((ValueError, TypeError), match="min_clients"):
        run(LocalTransport(DATA, HYPER), HYPER, min_clients=min_clients)


# ------------------------------------------------------------------------------------------------ crash and resume


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"coupling": "subspace"},
        {"scale": "client"},
        {"scale": "global"},
        {"message_dtype": "float32"},
        {"reweigh": 2},
    ],
    ids=lambda options: "-".join(map(str, options.values())) or "tensor",
)
def test_crash_and_resume_at_every_round(options, storage, tmp_path):
    hyper = replace(HYPER, **options)
    data = {cid: STORAGE[storage](X) for cid, X in DATA.items()}
    undisturbed = outcome(LocalTransport(data, hyper), hyper)
    for r in range(1, ROUNDS + 1):
        folder = tmp_path / str(r)
        with pytest.raises(PowerCutError):
            run(LocalTransport(data, hyper), hyper, checkpoint=folder, callbacks=[power_cut_at(r)])
        assert [p.name for p in folder.iterdir()] == [f"round-{r:05d}"]
        seen = []
        resumed = outcome(LocalTransport(data, hyper), hyper, checkpoint=folder, resume=True, callbacks=[seen.append])
        assert [record.round_no for record in seen] == list(range(r + 1, ROUNDS + 1))  # no round twice
        assert resumed == undisturbed


@pytest.mark.parametrize("options", [{"align": "init"}, {"align": "none", "rho": 0.1, "labels_from": "embedding"},
                                     {"schatten_p": 0.5}])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_crash_in_every_round_and_resume_under_other_settings(options, dtype, tmp_path):
    """One run that falls over in each round, because a client does, and is taken up again every time."""
    hyper = replace(HYPER, **options)
    data = {cid: X.astype(dtype) for cid, X in DATA.items()}
    undisturbed = outcome(LocalTransport(data, hyper), hyper)
    for r in range(1, ROUNDS + 1):
        with pytest.raises(ClientError, match=f"in round {r}"):
            run(OneFails(data, hyper, phase="round", round_no=r), hyper, checkpoint=tmp_path, resume=True)
    assert outcome(LocalTransport(data, hyper), hyper, checkpoint=tmp_path, resume=True) == undisturbed


def test_resume_is_harmless_before_the_first_round_and_after_the_last(tmp_path):
    undisturbed = outcome(LocalTransport(DATA, HYPER))
    for folder in (tmp_path / "not there yet", tmp_path):
        assert outcome(LocalTransport(DATA, HYPER), checkpoint=folder, resume=True) == undisturbed
        assert outcome(LocalTransport(DATA, HYPER), checkpoint=folder, resume=True) == undisturbed


def test_without_resume_a_run_starts_afresh(tmp_path):
    longer = replace(HYPER, max_iter=ROUNDS + 1)
    run(LocalTransport(DATA, longer), longer, checkpoint=tmp_path)
    heard = []
    run(LocalTransport(DATA, HYPER), HYPER, checkpoint=tmp_path, callbacks=[heard.append])
    assert len(heard) == ROUNDS
    assert [p.name for p in tmp_path.iterdir()] == [f"round-{ROUNDS:05d}"]


def test_a_finished_run_may_be_given_more_rounds(tmp_path):
    short = replace(HYPER, max_iter=2)
    run(LocalTransport(DATA, short), short, checkpoint=tmp_path)
    assert outcome(LocalTransport(DATA, HYPER), checkpoint=tmp_path, resume=True) == outcome(
        LocalTransport(DATA, HYPER)
    )


@each_trap
def test_checkpoints_and_failing_clients_go_together(doing, tmp_path):
    def transport():
        return OneFails(DATA, HYPER, **TRAPS[doing])

    undisturbed = outcome(transport(), min_clients=2)
    assert outcome(transport(), min_clients=2, checkpoint=tmp_path / "whole") == undisturbed
    with pytest.raises(PowerCutError):
        run(transport(), HYPER, min_clients=2, checkpoint=tmp_path / "cut", callbacks=[power_cut_at(4)])
    if doing not in LEFT_OUT:
        assert outcome(transport(), min_clients=2, checkpoint=tmp_path / "cut", resume=True) == undisturbed
    else:  # those who stayed go on, whether or not the one who was left out is there again
        shutil.copytree(tmp_path / "cut", tmp_path / "copy")
        stayed = LocalTransport({cid: DATA[cid] for cid in "ac"}, HYPER)
        resumed = outcome(stayed, checkpoint=tmp_path / "cut", resume=True)
        assert resumed | {"missing": ("b",)} == undisturbed
        again = LocalTransport(DATA, HYPER)
        assert outcome(again, min_clients=2, checkpoint=tmp_path / "copy", resume=True) == undisturbed
        assert again.clients["b"].F is None


def test_a_client_that_cannot_prepare_after_a_resume_keeps_its_slice(tmp_path):
    with pytest.raises(PowerCutError):
        run(LocalTransport(DATA, HYPER), HYPER, checkpoint=tmp_path, callbacks=[power_cut_at(2)])
    before, _ = read_tensors(tmp_path / "round-00002" / "server.safetensors")
    transport = OneFails(DATA, HYPER, phase="prepare")
    result = run(transport, HYPER, min_clients=2, checkpoint=tmp_path, resume=True)
    assert result.server.client_ids == ("a", "b", "c")
    assert_array_equal(result.server.W[:, :, 1], before["W"][:, :, 1])
    assert np.abs(result.server.W - before["W"]).max(axis=(0, 1))[[0, 2]].min() > 1e-6
    assert [record.missing for record in result.history] == [(), (), ("b",), ("b",), ("b",)]  # asked again each round
    assert_array_equal(result.server.answered, [ROUNDS, 2, ROUNDS])
    assert transport.clients["b"].round_no == 2
    assert transport.clients["b"].labels is not None  # its model is that of round 2, and it has one


@pytest.mark.parametrize("phase", ["rescale", "prepare"])
def test_common_units_are_those_of_the_first_start(phase, tmp_path):
    """Whoever is missing when the run is resumed: the columns of the others are scaled as before."""
    told = []

    class Watched(OneFails):
        def _ask(self, cid, message):
            if message.phase == "rescale":
                told.append((message.shift.tobytes(), message.stretch.tobytes()))
            return super()._ask(cid, message)

    hyper = replace(HYPER, scale="global")
    with pytest.raises(PowerCutError):
        run(Watched(DATA, hyper, phase=None), hyper, checkpoint=tmp_path, callbacks=[power_cut_at(2)])
    resumed = Watched(DATA, hyper, phase=phase)
    result = run(resumed, hyper, min_clients=2, checkpoint=tmp_path, resume=True)
    assert len(told) == 6
    assert len(set(told)) == 1
    assert result.server.client_ids == ("a", "b", "c")
    assert [record.missing for record in result.history] == [(), (), ("b",), ("b",), ("b",)]


def test_a_resumed_run_of_too_few_clients_says_so(tmp_path):
    with pytest.raises(PowerCutError):
        run(OneFails(DATA, HYPER, phase="hello"), HYPER, min_clients=2, checkpoint=tmp_path,
            callbacks=[power_cut_at(2)])  # fmt: skip
    sentence = "the run goes on with 2 clients, 3 needed: lower min_clients"
    with pytest.raises(ClientError, match=sentence):
        run(LocalTransport(DATA, HYPER), HYPER, checkpoint=tmp_path, resume=True)


def test_a_checkpoint_is_whole_or_not_there(tmp_path):
    class FullDisk(LocalTransport):
        def save_clients(self, folder):
            super().save_clients(folder)
            if self.clients["a"].round_no == 3:
                next(folder.rglob("b.safetensors")).unlink()
                raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        run(FullDisk(DATA, HYPER), HYPER, checkpoint=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["round-00002"]
    assert sorted(p.stem for p in tmp_path.rglob("*.safetensors")) == ["a", "b", "c", "server"]
    shutil.copytree(tmp_path / "round-00002", tmp_path / ".round-00003-killed")  # a machine that died while writing
    (tmp_path / ".round-00003-killed" / "server.safetensors").unlink()
    assert outcome(LocalTransport(DATA, HYPER), checkpoint=tmp_path, resume=True) == outcome(
        LocalTransport(DATA, HYPER)
    )


def test_a_client_may_have_any_name_in_a_checkpoint(tmp_path):
    data = dict(zip(("server", "a/b:c", "ü" * 150), DATA.values(), strict=True))
    undisturbed = outcome(LocalTransport(data, HYPER))
    with pytest.raises(PowerCutError):
        run(LocalTransport(data, HYPER), HYPER, checkpoint=tmp_path, callbacks=[power_cut_at(3)])
    assert outcome(LocalTransport(data, HYPER), checkpoint=tmp_path, resume=True) == undisturbed


def test_what_else_lies_in_the_folder_is_left_alone(tmp_path):
    (tmp_path / "round-trip").mkdir()
    (tmp_path / "round-trip" / "thesis.txt").write_text("ten years of work")
    (tmp_path / "round-up.csv").write_text("1,2")
    undisturbed = outcome(LocalTransport(DATA, HYPER), checkpoint=tmp_path)
    assert outcome(LocalTransport(DATA, HYPER), checkpoint=tmp_path, resume=True) == undisturbed
    assert {p.name for p in tmp_path.iterdir()} == {"round-trip", "round-up.csv", f"round-{ROUNDS:05d}"}
    assert (tmp_path / "round-trip" / "thesis.txt").read_text() == "ten years of work"


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two rounds")
    short = replace(HYPER, max_iter=2)
    run(LocalTransport(DATA, short), short, checkpoint=folder)
    return folder


@pytest.fixture
def checkpoint(two_rounds, tmp_path):
    return shutil.copytree(two_rounds, tmp_path / "checkpoint")


def resume(folder, data=DATA, hyper=HYPER, **options):
    return run(LocalTransport(data, hyper), hyper, checkpoint=folder, resume=True, **options)


OTHER = {
    "n_clusters": 2, "alpha": 2.0, "beta": "auto", "ridge": 0.1, "rho": 1.0, "schatten_p": 0.5, "coupling": "subspace",
    "align": "init", "n_neighbors": 5, "bandwidth": 1.0, "one_sided": 1.0, "step_size": 0.1, "n_inner": 2,
    "accelerate": False, "scale": "client", "max_features": 100, "message_dtype": "float32", "center": False,
    "seed": 1, "reweigh": 5,
}  # fmt: skip
FREE = {"max_iter": 3, "tol": 0.5, "n_init": 1, "labels_from": "embedding", "centers": "own"}


@pytest.mark.parametrize("name", OTHER)
def test_resume_refuses_other_settings(name, checkpoint):
    now, then = OTHER[name], getattr(HYPER, name)
    with pytest.raises(FileError, match="made with other settings") as caught:
        resume(checkpoint, hyper=replace(HYPER, **{name: now}))
    assert f"({name}={then!r} then, {now!r} now)" in str(caught.value)


def test_every_setting_is_either_kept_or_free(checkpoint):
    assert OTHER.keys() | FREE.keys() == asdict(HYPER).keys()
    assert OTHER.keys() & FREE.keys() == set()
    assert resume(checkpoint, hyper=replace(HYPER, **FREE)).server.round_no in (2, 3)


def test_resume_refuses_other_weights(checkpoint):
    with pytest.raises(FileError, match="weights"):
        resume(checkpoint, weights={"a": 1, "b": 2, "c": 1})


@pytest.mark.parametrize(
    "other",
    [DATA["b"] + 1e-12, DATA["b"][::-1], DATA["b"][:-1], DATA["b"].astype(np.float32), sp.csr_array(DATA["b"])],
    ids=["a digit", "order", "a row less", "precision", "storage"],
)
def test_resume_refuses_other_data(other, checkpoint):
    with pytest.raises(FileError, match="rows of client 'b' are not those of the checkpoint"):
        resume(checkpoint, DATA | {"b": other})


@pytest.mark.parametrize("names", ["ab", "abcd", "abx"])
def test_resume_refuses_other_clients(names, checkpoint):
    data = dict(zip(names, [*DATA.values(), DATA["a"]], strict=False))
    with pytest.raises(FileError, match=r"is of clients \['a', 'b', 'c'\], this run has \['a', 'b'"):
        resume(checkpoint, data)


def rewrite(change_arrays=lambda arrays: arrays, **about):
    def damage(path: Path):
        arrays, known = read_tensors(path)
        write_tensors(path, change_arrays(arrays), {k: v for k, v in (known | about).items() if v is not None})

    return damage


FORMATS = {"server": 2, "b": 1}
DAMAGE = {
    "missing": (Path.unlink, "is missing"),
    "empty": (lambda path: path.write_bytes(b""), r"\.safetensors "),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"\.safetensors "),
    "half": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), r"\.safetensors "),
    "a flipped bit": (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x01"), "damaged"),
    "other kind": (rewrite(kind="recipe"), "holds 'recipe', not"),
    "newer": (rewrite(schema=99), "written in format 99; this fmtc reads up to format {format}. Upgrade fmtc"),
    "no schema": (rewrite(schema=None), "written in format None"),
    "no W": (rewrite(lambda arrays: {k: v for k, v in arrays.items() if k != "W"}), "damaged"),
    "no round": (rewrite(round_no=None), "damaged"),
}


@pytest.mark.parametrize("file", ["server", "b"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_resume_refuses_damaged_files(damage, file, checkpoint):
    do, sentence = DAMAGE[damage]
    path = next(checkpoint.rglob(f"{file}.safetensors"))
    do(path)
    with pytest.raises(FileError, match=sentence.format(format=FORMATS[file])) as caught:
        resume(checkpoint)
    assert str(path) in str(caught.value)


def test_resume_refuses_swapped_client_files(checkpoint):
    shutil.copy(next(checkpoint.rglob("a.safetensors")), next(checkpoint.rglob("b.safetensors")))
    with pytest.raises(FileError, match="client 'b'"):
        resume(checkpoint)


def test_history_survives_json():
    record = RoundRecord(1, float("nan"), 2.0, 0.5, 0.25, 3, 10, 20, 0.1, ("b",))
    again = RoundRecord.from_dict(asdict(record) | {"objective": None, "missing": ["b"]})
    assert np.isnan(again.objective)
    assert replace(again, objective=0.0) == replace(record, objective=0.0)
    assert_array_equal(RoundRecord.from_dict(asdict(again)).missing, ("b",))


# ----------------------------------------------------------------------------------------------- weights of columns


class Phases(LocalTransport):
    """Notes the phase of every exchange."""

    def exchange(self, messages):
        self.seen = [*getattr(self, "seen", []), next(iter(messages.values())).phase]
        return super().exchange(messages)


def test_columns_are_weighed_once_after_as_many_rounds(rng):
    hyper = replace(HYPER, reweigh=2, max_iter=4)
    transport = Phases(DATA, hyper)
    result = run(transport, hyper)
    assert transport.seen == [
        "hello", "prepare", "round", "round", "hello", "prepare", "round", "round", "finish", "gather", "gather",
        "gather", "number",
    ]  # fmt: skip
    assert [record.round_no for record in result.history] == [1, 2, 3, 4]
    assert result.server.weights.shape == (next(iter(DATA.values())).shape[1],)


# ------------------------------------------------------------------------------------------------------ beta="auto"

AUTO = replace(HYPER, beta="auto")


class Tried(LocalTransport):
    """Remembers what was asked in trials, by fold and phase, and can answer scores as it likes."""

    def __init__(self, *args, answers=None, **others):
        super().__init__(*args, **others)
        self.seen, self.answers = [], answers

    def exchange(self, messages):
        (message, *_) = messages.values()
        self.seen.append((message.trial, message.phase))
        replies = super().exchange(messages)
        if self.answers is not None and message.phase == "score":
            told = next(self.answers)
            replies.uplinks = {cid: replace(uplink, score=told[cid]) for cid, uplink in replies.uplinks.items()}
        return replies


def test_every_beta_is_tried_on_rows_held_back_and_the_run_is_that_of_the_best():
    answers = iter([{"a": 0.5, "b": 0.6, "c": s} for s in (0.1, 0.7, 0.3, 0.2)])
    data = {cid: np.repeat(X, 3, axis=0) for cid, X in DATA.items()}  # so many that one trial is enough
    transport = Tried(data, AUTO, answers=answers)
    result = run(transport, AUTO)
    assert result.trials.scores == dict(
        zip(BETAS, [{"a": 0.5, "b": 0.6, "c": s} for s in (0.1, 0.7, 0.3, 0.2)], strict=True)
    )
    assert result.trials.chosen == result.server.chosen_beta == BETAS[1]
    one = ["round"] * TRIAL_ROUNDS + ["finish", "gather", "gather", "gather", "number", "score"]
    assert [phase for fold, phase in transport.seen if fold == 0] == ["hello", "prepare", *one * len(BETAS)]
    assert {fold for fold, _ in transport.seen} == {0, None}
    given = replace(HYPER, beta=BETAS[1])
    plain = LocalTransport(data, given)
    same = run(plain, given)
    assert_array_equal(result.server.Z, same.server.Z)
    for cid in data:
        assert_array_equal(transport.clients[cid].labels, plain.clients[cid].labels)
        assert transport.clients[cid].trial is None
    assert [r.bytes_up for r in result.history] == [r.bytes_up for r in same.history]
    assert result.trials.bytes_up > TRIAL_ROUNDS * len(BETAS) * result.history[0].bytes_up


def test_small_clients_are_tried_on_three_fifths_in_turn():
    transport = Tried(DATA, AUTO)
    trials = run(transport, AUTO).trials
    assert {fold for fold, _ in transport.seen} == {0, 1, 2, None}
    assert all(set(of_clients) == set(DATA) for of_clients in trials.scores.values())
    assert all(0 < score < 1 for of_clients in trials.scores.values() for score in of_clients.values())
    assert f"beta={trials.chosen:g} was chosen" in str(trials)


def test_equal_scores_choose_less_coupling():
    assert Trials({0.4: {"a": 0.5}, 0.05: {"a": 0.5}, 0.0: {"a": 0.4}}, 0, 0).chosen == 0.05


def test_one_client_has_nothing_to_choose():
    transport = Tried({"a": DATA["a"]}, AUTO)
    result = run(transport, AUTO)
    assert result.trials is None
    assert {fold for fold, _ in transport.seen} == {None}
    given = replace(HYPER, beta=0.15)
    assert_array_equal(result.server.Z, run(LocalTransport({"a": DATA["a"]}, given), given).server.Z)


def test_a_trial_begins_where_the_last_beta_ended():
    """In small, by hand: the first beta's rounds and then the second's are one run whose beta changes on the way."""
    seen = []

    class Watched(LocalTransport):
        def exchange(self, messages):
            if {(m.trial, m.phase) for m in messages.values()} == {(0, "round")}:
                seen.append({cid: (m.round_no, m.guide, m.rotation) for cid, m in messages.items()})
            return super().exchange(messages)

    run(Watched(DATA, AUTO), AUTO)
    assert [next(iter(each.values()))[0] for each in seen] == list(range(1, TRIAL_ROUNDS * len(BETAS) + 1))
    after_finish = seen[TRIAL_ROUNDS]
    assert all(guide.any() for _, guide, _ in after_finish.values())
    assert all(rotation is None for _, _, rotation in after_finish.values())  # it came with the finish
    assert all(rotation is not None for _, _, rotation in seen[TRIAL_ROUNDS + 1].values())


def test_a_resumed_run_keeps_the_beta_it_chose(tmp_path):
    hyper = replace(AUTO, reweigh=3, max_iter=5)  # beta gets its units anew after the rounds that are resumed
    whole = run(LocalTransport(DATA, hyper), hyper)
    short = replace(hyper, max_iter=2)
    run(LocalTransport(DATA, short), short, checkpoint=tmp_path)
    transport = Tried(DATA, hyper)
    result = run(transport, hyper, checkpoint=tmp_path, resume=True)
    assert {fold for fold, _ in transport.seen} == {None}
    assert result.trials == whole.trials
    assert_array_equal(result.server.Z, whole.server.Z)


@pytest.mark.parametrize("phase", ["hello", "prepare", "round", "gather", "score"])
def test_a_client_that_fails_in_a_trial_is_left_out_of_it_only(phase):
    class FailsInTrial(LocalTransport):
        def _ask(self, cid, message):
            if (cid, message.phase) == ("b", phase) and message.trial is not None:
                return OSError("disk gone")
            return super()._ask(cid, message)

    result = run(FailsInTrial(DATA, AUTO), AUTO, min_clients=2)
    assert result.server.client_ids == ("a", "b", "c")
    assert result.missing == ()
    told = {cid for of_clients in result.trials.scores.values() for cid in of_clients}
    assert told == ({"a", "b", "c"} if phase == "gather" else {"a", "c"})
    with pytest.raises(ClientError, match=r"client 'b' failed .* in a trial of beta: OSError: disk gone"):
        run(FailsInTrial(DATA, AUTO), AUTO)


@pytest.mark.parametrize(
    ("names", "setting"),
    [("a", {}), ("abc", {"centers": "own"}), ("abc", {"align": "none"}), ("abc", {"labels_from": "embedding"})],
    ids=str,
)
def test_nobody_looks_for_common_centres_that_cannot_be(names, setting):
    hyper = replace(HYPER, **setting)
    transport = Phases({cid: DATA[cid] for cid in names}, hyper)
    run(transport, hyper)
    assert transport.seen[-2:] == ["finish", "number"]


def test_all_clients_can_have_the_same_centres():
    hyper = replace(HYPER, centers="common")
    transport = LocalTransport(DATA, hyper)
    run(transport, hyper)
    first, *others = (client.model.centers for client in transport.clients.values())
    assert all(np.array_equal(first, other) for other in others)
    assert all(client.E is None for client in transport.clients.values())


def test_a_run_does_not_end_before_columns_are_weighed_but_for_its_last_round():
    loose = replace(HYPER, tol=1e3, max_iter=9, reweigh=3)
    assert len(run(LocalTransport(DATA, loose), loose).history) == 4
    short = replace(HYPER, max_iter=2, reweigh=2)
    result = run(LocalTransport(DATA, short), short)
    assert len(result.history) == 2
    assert result.server.weights is None


def test_equal_weights_for_all_columns_change_nothing_but_the_unit(monkeypatch):
    """Then the second start is the first one's continuation with an empty consensus."""
    hyper = replace(HYPER, reweigh=2)
    ones, sevens = ((lambda W, w=w: np.full(len(W), w)) for w in (1.0, 7.0))
    found = []
    for weights in (ones, sevens):
        monkeypatch.setattr("fmtc.runtime.driver.feature_weights", weights)
        transport = LocalTransport(DATA, hyper)
        run(transport, hyper)
        found.append(transport.clients)
    for cid in DATA:
        assert_array_equal(found[0][cid].labels, found[1][cid].labels)
        assert_allclose(found[0][cid].model.W, found[1][cid].model.W / 7, rtol=1e-6, atol=1e-9)


def test_a_client_that_cannot_weigh_its_columns_is_left_out():
    hyper = replace(HYPER, reweigh=2, max_iter=4)

    class FailsLater(LocalTransport):
        def _ask(self, cid, message):
            if cid == "b" and message.weights is not None:
                return OSError("gone")
            return super()._ask(cid, message)

    result = run(FailsLater(DATA, hyper), hyper, min_clients=2)
    assert result.missing == ("b",)
    assert "b" not in result.server.client_ids
    with pytest.raises(ClientError, match="client 'b' failed weighing its columns"):
        run(FailsLater(DATA, hyper), hyper)
