"""Methods of other packages, such as the laboratory's baselines: what the product promises to those who write one.

The baselines themselves are in `bench/`, with their tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.errors import FileError, RefusedError
from fmtc.privacy.protection import Protection
from fmtc.protocol import method as methods
from fmtc.protocol.base import Phase, array
from fmtc.protocol.method import Method, method_of
from fmtc.protocol.state import RoundReport
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:the neighbour graph of silo")


@dataclass(frozen=True)
class Toy:
    n_clusters: int = 2
    max_iter: int = 4
    tol: float = 0.0


@dataclass(frozen=True)
class Walker:
    client_id: str
    X: Any
    at: np.ndarray
    round_no: int = 0
    model: Any = None
    labels: Any = None


@dataclass(frozen=True)
class Meeting:
    client_ids: tuple[str, ...]
    round_no: int = 0
    place: np.ndarray = field(default_factory=lambda: np.zeros(2))
    heard: Mapping[str, np.ndarray] = field(default_factory=dict)


class Walk(Phase):
    """Each client walks half the way to where all met last, seen from its own rows."""

    name = "walk"
    doing = "walking"
    resumes = persists = True
    protect = Protection("A mean over all rows.")

    @dataclass(frozen=True, kw_only=True)
    class Ask:
        place: np.ndarray = array("d", "where all are", "The mean of all clients.")

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        at: np.ndarray = array("d", "where the silo is", "A mean of its rows and of where all were.")

    def asks(self, server, settings):
        return dict.fromkeys(server.client_ids, self.Ask(place=server.place))

    def reply(self, client, ask, settings, round_no):
        at = (client.at + ask.place + client.X.mean(axis=0)) / 3
        return replace(client, at=at, round_no=round_no, model=at, labels=np.zeros(len(client.X))), self.Answer(at=at)

    def reduce(self, server, answers, settings):
        heard = {**server.heard, **{cid: answer.at for cid, answer in answers.items()}}
        place = np.mean([heard[cid] for cid in sorted(heard)], axis=0)
        moved = float(np.abs(place - server.place).max())
        return replace(server, place=place, heard=heard, round_no=server.round_no + 1), RoundReport(moved)


class Walking(Method):
    name = "walking"
    loop = Walk()
    settings_type = Toy
    saved = ("at",)

    def open_client(self, client_id, X, settings, device):
        return Walker(client_id, X, X[0])

    def open_server(self, client_ids, settings, weights):
        return Meeting(tuple(client_ids))

    def without(self, server, absent):
        return replace(server, client_ids=tuple(cid for cid in server.client_ids if cid not in absent))

    def stop_reason(self, history, settings):
        return (False, "enough") if len(history) >= settings.max_iter else None


WALKING = Walking()


class PowerCutError(Exception):
    pass


def power_cut(record):
    """A callback that ends the process after the second round."""
    if record.round_no == 2:
        raise PowerCutError


@pytest.fixture
def data(rng):
    return {cid: rng.normal(size=(5, 2)) for cid in "abc"}


@pytest.fixture
def installed(monkeypatch):
    """A package that offers the method `walking`."""
    point = EntryPoint("walking", f"{__name__}:WALKING", "fmtc.methods")
    monkeypatch.setattr(methods, "entry_points", lambda group: [point] if group == point.group else [])


def walk(data, **options):
    transport = LocalTransport(data, Toy(), method=WALKING)
    return transport, run(transport, Toy(), method=WALKING, **options)


def test_the_loop_drives_any_method(data):
    """One phase, no formula of FMTC: history, bytes and results are the driver's."""
    transport, result = walk(data)
    assert [(record.round_no, record.bytes_up) for record in result.history] == [(r, 3 * 16) for r in (1, 2, 3, 4)]
    assert result.stopped_because == "enough"
    assert set(transport.results()) == {"a", "b", "c"}


def test_any_method_resumes_to_the_same_bytes(data, tmp_path):
    whole, result = walk(data)
    with pytest.raises(PowerCutError):
        walk(data, checkpoint=tmp_path, callbacks=[power_cut])
    again, resumed = walk(data, checkpoint=tmp_path, resume=True)
    assert_array_equal(resumed.server.place, result.server.place)
    for cid in data:
        assert_array_equal(again.clients[cid].at, whole.clients[cid].at)


def test_a_checkpoint_is_of_its_method(data, tmp_path):
    walk(data, checkpoint=tmp_path)
    settings = Settings(n_clusters=2, max_iter=2)
    with pytest.raises(FileError, match="walking"):
        run(LocalTransport(data, settings), settings, checkpoint=tmp_path, resume=True)


def test_what_a_method_releases_is_counted(data):
    transport, result = walk(data)
    (line,) = result.received
    assert (line.phase, line.field, line.shape, line.times) == ("walk", "at", (2,), 4 * len(data))
    assert {entry["phase"] for ledger in transport.ledgers.values() for entry in ledger.lines()} == {"walk"}


def test_a_job_names_a_method_of_an_installed_package(installed):
    assert method_of("walking") is WALKING
    assert RunSpec("r", Toy(), method_name="walking").method is WALKING


def test_a_job_cannot_name_a_method_that_nobody_installed(installed):
    with pytest.raises(RefusedError, match=r"no method 'running'; there are .*fmtc-auto.*walking"):
        RunSpec("r", Toy(), method_name="running")
