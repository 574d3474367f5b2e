"""Messages as named arrays, and the file of a client between rounds."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc import FileError, Hyper
from fmtc.artifacts import files as wire
from fmtc.steps import Downlink, Uplink, open_client

# ------------------------------------------------------------------------------------------------------- messages

MESSAGES = [
    (Uplink(), 0),
    (Uplink(n_samples=10, n_features=4, energy=2.5), 3 * 8),
    (Uplink(n_samples=10, means=np.ones(5), squares=np.ones(5)), 8 + 2 * 5 * 8),
    (Uplink(n_samples=10, document_counts=np.arange(5)), 8 + 5 * 8),
    (Uplink(W=np.ones((5, 3)), cut=0.5, misfit=0.25), 5 * 3 * 8 + 2 * 8),
    (Uplink(centers=np.ones((3, 3), dtype=np.float32)), 3 * 3 * 4),
    (Uplink(error="MemoryError"), 11),
    (Downlink("hello"), 5 + 2 * 8),
    (Downlink("rescale", shift=np.zeros(5), stretch=np.ones(5)), 7 + 2 * 8 + 2 * 5 * 8),
    (Downlink("rescale", stretch=np.ones(2), keep=np.array([0, 3])), 7 + 2 * 8 + 2 * 2 * 8),
    (Downlink("prepare", scale=2.0, ridge=0.03), 7 + 4 * 8),
    (Downlink("round", 7, 5, guide=np.zeros((5, 3)), rotation=np.eye(3)), 5 + 2 * 8 + (15 + 9) * 8),
    (Downlink("number", order=np.arange(3)), 6 + 2 * 8 + 3 * 8),
]


@pytest.mark.parametrize(("message", "weight"), MESSAGES, ids=lambda value: getattr(value, "phase", None))
def test_pack_is_flat_and_unpack_undoes_it(message, weight):
    flat = wire.pack(message)
    assert {type(value) for value in flat.values()} <= {np.ndarray, int, float, str}
    again = wire.unpack(type(message), flat)
    for name, value in vars(message).items():
        assert_array_equal(getattr(again, name), value)
    assert wire.nbytes(message) == weight


def test_unpack_refuses_a_field_nobody_agreed_on():
    with pytest.raises(FileError, match=r"a Uplink has no field 'F', 'labels'; it has \['W', .*'centers', .*'cut'"):
        wire.unpack(Uplink, {"W": np.ones((2, 2)), "labels": [1], "F": np.ones(3)})


def test_pack_knows_any_dataclass():
    @dataclass(frozen=True)
    class Note:
        words: str
        number: float | None = None

    assert wire.pack(Note("hi")) == {"words": "hi"}
    assert wire.nbytes(Note("hi", 1.0)) == 10
    assert wire.unpack(Note, {"words": "hi", "number": 1.0}) == Note("hi", 1.0)


# ------------------------------------------------------------------------------------------ a client between rounds


@pytest.mark.parametrize("round_no", [0, 4])
def test_a_client_comes_back_to_its_round(round_no, tmp_path, rng):
    """Before the first round it has an embedding and no W yet."""
    X, path = rng.normal(size=(9, 4)), tmp_path / "a.safetensors"
    fresh = open_client("a", X, Hyper(3))
    W = rng.normal(size=(4, 3)) if round_no else None
    client = replace(fresh, F=rng.normal(size=(9, 3)), W=W, round_no=round_no)
    wire.write_client(path, client)
    again = wire.read_client(path, fresh)
    assert again.round_no == round_no
    assert_array_equal(again.F, client.F)
    if round_no:
        assert_array_equal(again.W, W)
    else:
        assert again.W is None
    for stranger in (open_client("b", X, Hyper(3)), open_client("a", X + 1e-9, Hyper(3))):
        with pytest.raises(FileError, match=f"the rows of client '{stranger.client_id}' are not those"):
            wire.read_client(path, stranger)
