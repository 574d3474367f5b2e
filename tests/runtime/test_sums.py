"""privacy="sums" between clients that live in kits: cut anywhere, changed by a server that lies, refused by a floor."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.privacy.certificates import Authority, key_of

from fmtc import Privacy
from fmtc.errors import AbortedError, ClientError
from fmtc.privacy.identity import PINS, fingerprint_of, write_pins
from fmtc.privacy.ledger import LEDGER, RELEASE, REPLAY, read_lines
from fmtc.protocol.base import Message
from fmtc.protocol.graph import finish as settle
from fmtc.protocol.method import view_method
from fmtc.protocol.mixture.opening import SEED
from fmtc.protocol.sums.graph import FRAME, MATCH
from fmtc.protocol.sums.masking import Masked
from fmtc.runtime import kitclient
from fmtc.runtime.conductor import RESULT, read_record
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec
from fmtc.settings import Settings

from .kits import Interrupted, KitTransport, assert_sent_the_same_again, conducted, make_kits

GRAPH = Settings(n_clusters=3, max_iter=2, tol=0, n_neighbors=20, coupling="subspace", privacy="sums", n_init=2)
VIEWS = {"fmtc-sums": GRAPH, "fmtc-mixture-sums": replace(GRAPH, view="mixture", scale="auto", max_iter=1)}


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """Runs of few messages: what is tested here is how they travel."""
    monkeypatch.setattr(settle, "SETTLE_STEPS", 2)
    for phase in (SEED, FRAME, MATCH):
        monkeypatch.setattr(phase, "turns", 2)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return {cid: rng.normal(size=(40, 5)) + 4 * rng.integers(3, size=(40, 1)) for cid in "abc"}


def signed_kits(rows, folder, **source):
    """Kits with certificates, in which all clients have pinned each other."""
    authority, kits = Authority(), make_kits(rows, folder, **source)
    for cid, kit in kits.items():
        authority.kit(kit, cid)
        write_pins(kit / PINS, {other: fingerprint_of(key_of(other)) for other in rows})
    return kits


@pytest.mark.parametrize("method", VIEWS)
def test_clients_in_kits_come_to_what_one_process_does(rows, tmp_path, method):
    settings = VIEWS[method]
    transport = KitTransport(signed_kits(rows, tmp_path), settings, method=method)
    local = LocalTransport(rows, settings, method=transport.client("a").method)
    run(transport, settings, method=local.method)
    run(local, settings, method=local.method)
    for cid, expected in local.results().items():
        assert_array_equal(transport.result(cid).client.labels, expected.labels)


@pytest.mark.parametrize(("method", "after"), [("fmtc-sums", False), ("fmtc-mixture-sums", True)])
def test_a_run_that_is_cut_short_anywhere_sends_the_same_bytes_again(rows, tmp_path, method, after):
    settings = VIEWS[method]
    kind = view_method(settings.view, settings.privacy)
    whole = KitTransport(signed_kits(rows, tmp_path / "whole"), settings, method=method)
    (tmp_path / "expected").mkdir()
    spec = RunSpec("r", settings, tmp_path / "expected", method_name=kind.name, preflight="first")
    assert conducted(whole, spec)[-1] == "ended"
    expected, _ = read_record(spec.folder / RESULT)
    places = {message.phase: message.key for cid, message in whole.seen if cid == "b"}  # the last of each phase
    # one run, cut short at all of them: each of its processes begins where the one before ended
    kits = signed_kits(rows, tmp_path / "kits")
    (tmp_path / "run").mkdir()
    spec = RunSpec("r", settings, tmp_path / "run", method_name=kind.name, preflight="first")
    for key in places.values():
        transport = Interrupted(kits, settings, method=method, at=("b", key), after=after)
        with contextlib.suppress(AbortedError):  # at the very end, which is outside the run
            conducted(transport, spec)
        assert transport.cut, f"{key} was not asked again"
    again = KitTransport(kits, settings, method=method)
    assert conducted(again, spec)[-1] == "ended"
    found, _ = read_record(spec.folder / RESULT)
    for name, array in expected.common.items():
        assert_array_equal(found.common[name], array)
    for cid in kits:
        assert_array_equal(again.result(cid).client.labels, whole.result(cid).client.labels)
        assert_sent_the_same_again(kits[cid])


# -------------------------------------------------------------------------------------------------- servers that lie


class Liar(KitTransport):
    """Changes what clients are asked, or loses one of them."""

    def __init__(self, *args, change, **kwargs):
        super().__init__(*args, **kwargs)
        self.change = change

    def exchange(self, messages):
        return super().exchange(self.change(dict(messages)))


def ended(kits, settings, method, change, run_id="r"):
    transport = Liar(kits, settings, run_id, method=method, change=change)
    with pytest.raises((ClientError, Exception)) as caught:
        run(transport, settings, method=transport.client("a").method)
    return transport, caught.value


def sums_sent(kit):
    return [line["phase"] for line in read_lines(kit / LEDGER) if any(f["field"] == "words" for f in line["fields"])]


def without(messages, phase, **changed):
    """The same messages, with other values in one phase."""
    return {cid: replace(m, ask=replace(m.ask, **changed)) if m.phase == phase else m for cid, m in messages.items()}


def test_a_roster_without_one_of_us_opens_nothing(rows, tmp_path):
    """The server leaves out a card: the silo whose card it is, and a roster of two, are refused by all."""
    kits = signed_kits(rows, tmp_path)

    def two(messages):
        roster = {cid: m for cid, m in messages.items() if m.phase == "roster"}
        if not roster:
            return messages
        ask = next(iter(roster.values())).ask
        c, s = ask.lengths[0] + ask.lengths[1]
        return without(
            messages, "roster", names='["a", "b"]', keys=ask.keys[:2], lengths=ask.lengths[:2],
            certificates=ask.certificates[:c], signatures=ask.signatures[:s],
        )  # fmt: skip

    transport, _ = ended(kits, GRAPH, "fmtc-sums", two)
    assert not any(sums_sent(kit) for kit in kits.values())
    assert "at least 3" in transport.trouble("a")[0]


def test_a_silo_that_nobody_has_pinned_ends_the_run(rows, tmp_path):
    kits = signed_kits(rows, tmp_path)
    (kits["a"] / PINS).unlink()
    write_pins(kits["a"] / PINS, {cid: fingerprint_of(key_of(cid)) for cid in "ab"})
    transport, _ = ended(kits, GRAPH, "fmtc-sums", lambda messages: messages)
    assert not any(sums_sent(kit) for kit in kits.values())
    assert "'c'" in transport.trouble("a")[0]
    (kits["a"] / PINS).unlink()
    write_pins(kits["a"] / PINS, {cid: fingerprint_of(key_of("mallory" if cid == "c" else cid)) for cid in "abc"})
    transport, _ = ended(kits, GRAPH, "fmtc-sums", lambda messages: messages, "second")
    assert "key" in transport.trouble("a")[-1]


def test_different_questions_give_noise(rows, tmp_path):
    kits = signed_kits(rows, tmp_path)

    def curious(messages):
        return {
            cid: replace(m, ask=replace(m.ask, before=1)) if m.phase == "round" and cid == "b" else m
            for cid, m in messages.items()
        }

    _, error = ended(kits, GRAPH, "fmtc-sums", curious)
    assert "do not cancel" in str(error)


def test_a_second_sum_without_one_silo_is_refused_within_a_run_and_in_the_next(rows, tmp_path):
    """{a, b, c, d}, then {a, b, c}: the difference would be d's."""
    more = rows | {"d": rows["a"] + 1.0}
    kits = signed_kits(more, tmp_path)
    method = view_method("graph", "sums")
    run(KitTransport(kits, GRAPH, "one", method="fmtc-sums"), GRAPH, method=method)
    three = {cid: kits[cid] for cid in "abc"}
    for name in ("one", "two"):
        transport = KitTransport(three, GRAPH, name, method="fmtc-sums")
        with pytest.raises(ClientError):
            run(transport, GRAPH, method=method)
        assert any(word in transport.trouble("a")[-1] for word in ("never change", "'d' alone", "changed"))
    assert {line["run"] for line in read_lines(kits["a"] / LEDGER) if line["phase"] == "round"} == {"one"}


def test_another_message_under_an_old_label_gets_no_new_numbers(rows, tmp_path):
    kits = signed_kits(rows, tmp_path)
    transport = KitTransport(kits, GRAPH, method="fmtc-sums")
    run(transport, GRAPH, method=transport.client("a").method)
    cid, first = next((cid, m) for cid, m in transport.seen if m.phase == "round" and m.round_no == 2 and cid == "a")
    assert isinstance(transport.tell(cid, first), Masked)
    lines = [line for line in read_lines(kits["a"] / LEDGER) if line["phase"] == "round" and line["round"] == 2]
    assert lines[-1]["kind"] == REPLAY
    assert lines[-1]["fields"] == lines[0]["fields"]


# -------------------------------------------------------------------------------------------------------------- floor


def test_a_floor_refuses_a_run_in_the_clear_and_tells_no_number_before(rows, tmp_path):
    clear = replace(GRAPH, privacy=None)
    kits = signed_kits(rows, tmp_path, floor="sums")
    transport = KitTransport(kits, clear, method="fmtc", preflight="only")
    survey = transport.tell("a", Message("survey", transport.client("a").method.phase("survey").Ask()))
    assert survey.n_samples is None
    assert survey.means is None
    assert survey.kinds is not None
    transport = KitTransport(kits, clear, "second", method="fmtc", preflight="first")
    with pytest.raises(ClientError):
        run(transport, clear, method=transport.client("a").method)
    assert "floor" in transport.trouble("a")[-1]
    assert [line["phase"] for line in read_lines(kits["a"] / LEDGER) if line["kind"] == RELEASE] == ["survey"]
    run(KitTransport(kits, GRAPH, "third", method="fmtc-sums"), GRAPH, method=view_method("graph", "sums"))


@pytest.mark.parametrize(
    ("privacy", "left", "why"),
    [
        ({"delta": 0.01, "colluding": 0}, [], "epsilon=20 at delta=0.01 with colluding=0, which is epsilon="),
        ({"colluding": 0}, ["cards"], "at delta=1e-05 with colluding=1 of 3 silos"),  # known with the roster
        ({}, None, ""),
    ],
)
def test_a_floor_is_held_against_the_noise_that_a_run_adds(rows, tmp_path, privacy, left, why):
    """The coordinator names the epsilon of the floor, with a delta or a trust in all silos that makes it mean less."""
    promised = Privacy(epsilon=20, bounds=(-20, 20), accept_weak=True, **privacy)
    settings = replace(GRAPH, n_clusters=2, privacy=promised)
    kits = signed_kits(rows, tmp_path, floor="epsilon=20")
    transport = KitTransport(kits, settings, method="fmtc-private")
    if left is None:
        run(transport, settings, method=transport.client("a").method)
        return
    with pytest.raises(ClientError):
        run(transport, settings, method=transport.client("a").method)
    assert [line["phase"] for line in read_lines(kits["a"] / LEDGER) if line["kind"] == RELEASE] == left
    assert why in transport.trouble("a")[-1] and "privacy floor" in transport.trouble("a")[-1]


def test_a_run_with_sums_surveys_names_and_types_only(rows, tmp_path):
    kits = signed_kits(rows, tmp_path)
    (tmp_path / "run").mkdir()
    spec = RunSpec("r", GRAPH, tmp_path / "run", method_name="fmtc-sums", preflight="first")
    transport = KitTransport(kits, GRAPH, method="fmtc-sums")
    assert conducted(transport, spec)[-1] == "ended"
    (line,) = [line for line in read_lines(kits["a"] / LEDGER) if line["phase"] == "survey"]
    assert {entry["field"] for entry in line["fields"]} <= {"columns", "aliases", "kinds"}
    assert (kits["a"] / kitclient.ROSTERS).exists()
