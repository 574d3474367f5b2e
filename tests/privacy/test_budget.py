"""The budget of a silo's rows: charged before an answer leaves, refused when spent."""

import json
from concurrent.futures import ThreadPoolExecutor
from math import inf

import numpy as np
import pytest

from fmtc import Privacy
from fmtc.errors import FileError, TrustError
from fmtc.privacy.accounting import mu_of
from fmtc.privacy.budget import Budget, Spent
from fmtc.privacy.ledger import MemoryLedger
from fmtc.privacy.outbox import Outbox, Payloads
from fmtc.protocol.base import Message
from fmtc.protocol.private.view import MEAN, PLAIN, State
from fmtc.settings import Settings

MU2 = mu_of(2, 1e-5) ** 2


def test_a_run_of_epsilon_two_spends_two(tmp_path):
    budget = Budget(tmp_path / "budget.json", epsilon=5)
    for share in (0.04, 0.02, 0.2, 0.115, 0.115, 0.23, 0.28):
        budget.charge("rows", MU2 * share, 1e-5)
    assert budget.spent("rows").epsilon == pytest.approx(2, rel=1e-6)
    assert budget.left("rows") == pytest.approx(3, rel=1e-6)
    assert budget.spent("rows").releases == 7
    assert budget.left("other rows") == 5


def test_what_is_spent_is_refused_and_not_charged(tmp_path):
    budget = Budget(tmp_path / "budget.json", epsilon=2)
    budget.charge("rows", MU2, 1e-5)
    with pytest.raises(TrustError, match="epsilon=2, 2 of it is spent") as caught:
        budget.charge("rows", MU2 / 100, 1e-5)
    assert caught.value.exit_code == 4
    assert Budget(tmp_path / "budget.json", epsilon=2).spent("rows") == Spent(pytest.approx(MU2), 1e-5, 1)
    budget.charge("other rows", MU2, 1e-5)


def test_the_strictest_delta_counts(tmp_path):
    budget = Budget(tmp_path / "budget.json", epsilon=3)
    budget.charge("rows", MU2, 1e-5)
    at_least = budget.spent("rows").epsilon
    budget.charge("rows", 1e-9, 1e-8)
    assert budget.spent("rows").delta == 1e-8
    assert budget.spent("rows").epsilon > at_least
    budget.charge("rows", 1e-9, 1e-3)
    assert budget.spent("rows").delta == 1e-8


def test_without_a_limit_it_only_counts(tmp_path):
    budget = Budget(tmp_path / "budget.json")
    for _ in range(5):
        budget.charge("rows", MU2, 1e-5)
    assert budget.left("rows") == inf
    assert budget.spent("rows").epsilon > 4
    budget.charge("nothing", 0.0, 1e-5)
    assert "nothing" not in budget.all()


def test_runs_at_the_same_time_do_not_lose_a_charge(tmp_path):
    def charge(_):
        Budget(tmp_path / "budget.json").charge("rows", 1e-4, 1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(charge, range(40)))
    assert Budget(tmp_path / "budget.json").spent("rows").releases == 40


def test_a_damaged_file_is_no_new_budget(tmp_path):
    (tmp_path / "budget.json").write_text(json.dumps({"kind": "fmtc budget", "schema": 1, "rows": {"rows": {}}}))
    with pytest.raises(FileError):
        Budget(tmp_path / "budget.json", epsilon=2).charge("rows", 0.1, 1e-5)
    (tmp_path / "budget.json").write_text("{")
    with pytest.raises(FileError):
        Budget(tmp_path / "budget.json", epsilon=2).charge("rows", 0.1, 1e-5)


def outbox(tmp_path, charge):
    return Outbox(MemoryLedger(), "a", "run", Payloads(tmp_path / "sent"), charge=charge)


def test_an_answer_is_charged_once_and_a_replay_is_free(tmp_path):
    given = Settings(n_clusters=2, privacy=Privacy(2, bounds=(0, 1)))
    charged = []
    gate = outbox(tmp_path, lambda mu2, delta: charged.append((mu2, delta)))
    answer = MEAN.Answer(total=np.ones(3))
    for _ in range(3):
        gate.release(MEAN, Message("mean", State()), answer, {}, given)
    assert charged == [(pytest.approx(0.04 * MU2), 1e-5)]


def test_an_answer_that_cannot_be_paid_does_not_leave(tmp_path):
    given = Settings(n_clusters=2, privacy=Privacy(2, bounds=(0, 1)))
    budget = Budget(tmp_path / "budget.json", epsilon=0.01)
    gate = outbox(tmp_path, lambda mu2, delta: budget.charge("rows", mu2, delta))
    with pytest.raises(TrustError, match="nothing was sent"):
        gate.release(MEAN, Message("mean", State()), MEAN.Answer(total=np.ones(3)), {}, given)
    assert not list((tmp_path / "sent").glob("*")) and gate.ledger.lines() == []


def test_every_stage_of_a_run_is_charged(tmp_path):
    from fmtc.runtime.driver import run
    from fmtc.runtime.local import LocalTransport

    rng = np.random.default_rng(0)
    data = {name: rng.uniform(0, 1, size=(150, 4)) for name in "abc"}
    given = Settings(n_clusters=2, scale="auto", privacy=Privacy(8, bounds=(0, 1)))
    transport = LocalTransport(data, given, method=PLAIN)
    budget = Budget(tmp_path / "budget.json", epsilon=9)
    transport.nodes["a"].outbox.charge = lambda mu2, delta: budget.charge("rows of a", mu2, delta)
    run(transport, given, method=PLAIN)
    assert budget.spent("rows of a").epsilon == pytest.approx(8, rel=1e-6)
    with pytest.raises(TrustError, match="8 of it is spent"):
        budget.charge("rows of a", 2 * MU2 * 4, 1e-5)
