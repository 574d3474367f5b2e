"""What any transport must do: the same numbers as in one process, and the same with clients lost, late or broken.

A transport joins by a subclass of `TransportSuite` whose `case` runs a federation over it: see test_transports.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.errors import ClientError
from fmtc.privacy.ledger import hash_of, totals
from fmtc.runtime.driver import RoundRecord, RunRecord, run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

KILL, DELAY, CORRUPT, STOP = "kill", "delay", "corrupt", "stop"


@dataclass(frozen=True)
class Fault:
    """What goes wrong, from the question of a round on.

    KILL: the client is gone for good. DELAY: its answer of this round comes after the deadline. CORRUPT: its answer of
    this round is garbage. STOP: the server ends after the round, and with it the processes of all clients.
    """

    kind: str
    round_no: int
    client: str = ""


@dataclass
class Outcome:
    """What a run leaves behind."""

    Z: np.ndarray
    history: tuple[RoundRecord, ...]
    missing: tuple[str, ...]
    received: dict[tuple[str, str], tuple[int, int]]  # phase and field -> how often, how many bytes
    labels: dict[str, np.ndarray] = field(default_factory=dict)  # of the clients that were there at the end
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # ledger of each client

    @classmethod
    def of(cls, result: RunRecord, labels: dict[str, np.ndarray], lines: dict[str, list[dict[str, Any]]]) -> "Outcome":
        received = {(line.phase, line.field): (line.times, line.bytes) for line in result.received}
        return cls(result.common.get("consensus"), result.history, result.missing, received, labels, lines)


class ServerStoppedError(Exception):
    """A run that was stopped by a fault, as the suite asked for."""


class TransportCase(Protocol):
    """A federation over one transport, in a folder of its own."""

    refuses: bool  # whether answers that are late or garbage reach the server, which throws them away and counts them

    def __init__(self, folder: Path, data: dict[str, np.ndarray], settings: Settings): ...

    def run(self, faults: tuple[Fault, ...] = (), min_clients: int | None = None, *, resume: bool = False) -> Outcome:
        """Run to the end, or raise what `fmtc.runtime.driver.run` raises; `ServerStoppedError` for a fault STOP.

        With `resume`, continue a run that was stopped, with new processes on what the old ones left on disk.
        """
        ...


def rows(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 3 * np.eye(5)[rng.integers(3, size=n)] + rng.normal(size=(n, 5))


DATA = {cid: rows(seed, 30 + 5 * seed) for seed, cid in enumerate(("north", "south", "west"))}


LACKING = {
    "n_clusters": 4,
    "clusters_per_silo": {"north": 2, "south": 3, "west": 4},
}  # concepts that not all clients have


def but(**changed: Any) -> Settings:
    return Settings(**{"n_clusters": 3, "max_iter": 5, "tol": 0, "n_init": 2, "n_neighbors": 10} | changed)


class Reference(LocalTransport):
    """In this process, with a client that does not answer in some rounds, or from one on."""

    absent: ClassVar[dict[str, set[int]]] = {}

    def _ask(self, cores: int, cid: str, message: Any) -> Any:
        after = message.phase in ("finish", "settle", "number") and 10**6 in self.absent.get(cid, set())
        if after or (message.phase == "round" and message.round_no in self.absent.get(cid, set())):
            return OSError("away")
        return super()._ask(cores, cid, message)


def reference(settings: Settings, absent: dict[str, set[int]] | None = None, min_clients: int | None = None) -> Outcome:
    """What the run comes to in one process; a client that is absent in round a million is so at the end, too."""
    transport = Reference(DATA, settings)
    transport.absent = absent or {}
    result = run(transport, settings, min_clients=min_clients)
    labels = {cid: found.labels for cid, found in transport.results().items()}
    return Outcome.of(result, labels, {cid: ledger.lines() for cid, ledger in transport.ledgers.items()})


def assert_same(outcome: Outcome, expected: Outcome) -> None:
    """Equal, not close: the same code ran."""
    assert_array_equal(outcome.Z, expected.Z)
    numbers = [
        (r.round_no, r.objective, r.primal_residual, r.dual_residual, r.rank, r.missing) for r in outcome.history
    ]
    assert numbers == [
        (r.round_no, r.objective, r.primal_residual, r.dual_residual, r.rank, r.missing) for r in expected.history
    ]
    assert outcome.missing == expected.missing
    for cid in set(expected.labels) - set(expected.missing):
        assert_array_equal(outcome.labels[cid], expected.labels[cid])


def assert_all_recorded(outcome: Outcome) -> None:
    """Whatever the server received is in the ledger of the client that sent it, and each ledger is one chain."""
    left: dict[tuple[str, str], list[int]] = {}
    for lines in outcome.lines.values():
        assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
        assert all(line["hash"] == hash_of(line) for line in lines)
        for total in totals(line for line in lines if line["kind"] != "failure"):
            times, size = left.setdefault((total.phase, total.field), [0, 0])
            left[total.phase, total.field] = [times + total.times, size + total.bytes]
    for name, (times, size) in outcome.received.items():
        assert left[name][0] >= times
        assert left[name][1] >= size


class TransportSuite:
    """The tests; a subclass gives the case."""

    case: type[TransportCase]

    @pytest.mark.parametrize(
        "changed",
        [{}, {"scale": "global"}, {"message_dtype": "float32", "coupling": "subspace"}, {"final": "kmeans"}, LACKING],
        ids=str,
    )
    def test_parity(self, changed: dict[str, Any], tmp_path: Path) -> None:
        settings = but(**changed)
        outcome, expected = self.case(tmp_path, DATA, settings).run(), reference(settings)
        assert_same(outcome, expected)
        assert [r.bytes_up for r in outcome.history] == [r.bytes_up for r in expected.history]
        assert sum(r.refused for r in outcome.history) == 0
        assert outcome.received == expected.received
        for cid, lines in expected.lines.items():  # what left is the same to the last bit
            ours = [line for line in outcome.lines[cid] if line["phase"] not in ("survey", "verdict", "end")]
            assert [(line["phase"], line["round"], line["turn"], line["fields"]) for line in ours] == [
                (line["phase"], line["round"], line["turn"], line["fields"]) for line in lines
            ]
        assert_all_recorded(outcome)

    def test_a_client_is_lost(self, tmp_path: Path) -> None:
        settings, gone = but(), {"south": {3, 4, 5, 10**6}}
        outcome = self.case(tmp_path, DATA, settings).run((Fault(KILL, 3, "south"),), min_clients=2)
        assert_same(outcome, reference(settings, gone, min_clients=2))
        assert outcome.missing == ("south",)
        assert [record.missing for record in outcome.history] == [(), (), *3 * [("south",)]]
        assert_all_recorded(outcome)

    def test_a_client_is_lost_that_is_needed(self, tmp_path: Path) -> None:
        with pytest.raises(ClientError, match="south"):
            self.case(tmp_path, DATA, but()).run((Fault(KILL, 3, "south"),))

    @pytest.mark.parametrize("kind", [DELAY, CORRUPT])
    def test_a_client_is_late_or_sends_garbage(self, kind: str, tmp_path: Path) -> None:
        """The answer does not count; the client is asked again in the next round, from where the server has it."""
        settings = but()
        outcome = self.case(tmp_path, DATA, settings).run((Fault(kind, 3, "south"),), min_clients=2)
        assert_same(outcome, reference(settings, {"south": {3}}, min_clients=2))
        assert [record.missing for record in outcome.history] == [(), (), ("south",), (), ()]
        assert sum(record.refused for record in outcome.history) == (1 if self.case.refuses else 0)
        assert np.isfinite(outcome.Z).all()
        assert_all_recorded(outcome)

    @pytest.mark.parametrize("changed", [{}, {"scale": "global"}, LACKING], ids=str)
    def test_a_run_is_stopped_and_resumed(self, changed: dict[str, Any], tmp_path: Path) -> None:
        settings = but(**changed)
        case = self.case(tmp_path, DATA, settings)
        with pytest.raises(ServerStoppedError):
            case.run((Fault(STOP, 2),))
        outcome, expected = case.run(resume=True), reference(settings)
        assert_same(outcome, expected)
        assert outcome.received == expected.received
        for lines in outcome.lines.values():
            asked = [(line["phase"], line["round"], line["turn"], line["asked"]) for line in lines
                     if line["kind"] == "release" and line["fields"]]  # fmt: skip
            assert len(set(asked)) == len(asked)  # nothing left twice under two guises
        assert_all_recorded(outcome)
