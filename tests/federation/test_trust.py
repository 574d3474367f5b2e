"""Keys of their own: requests, admissions, rosters, pins and revocation, and people who hold more than they should."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import re
import shutil
import ssl
import stat
import subprocess
import sys
import termios
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID
from tests.clock import ManualClock

from fmtc import Privacy
from fmtc.artifacts.files import read_json, write_json
from fmtc.cli import asking
from fmtc.cli.words import Words
from fmtc.errors import ClientError, FileError, KitError, TrustError, UsageError
from fmtc.privacy.identity import PINS, KitIdentity, fingerprint_of, load_certificate, read_pins
from fmtc.privacy.ledger import LEDGER, RELEASE, read_lines
from fmtc.runtime.flare import membership, serve
from fmtc.runtime.flare.authority import Authority, enrol, found
from fmtc.runtime.flare.enrol import (
    Request,
    Roster,
    accept,
    accepted,
    receive,
    request,
    signed,
    strangers,
)
from fmtc.runtime.flare.kits import Kit
from fmtc.runtime.flare.local import LocalFederation
from fmtc.runtime.flare.membership import Membership
from fmtc.runtime.flare.plan import Plan
from fmtc.runtime.flare.processes import Process, free_port
from fmtc.runtime.flare.supervise import Coordinator
from fmtc.runtime.kitclient import ClientSource
from fmtc.settings import Settings

from .commands import NAMES, done_with, in_process, set_up, wait_until, write_tables
from .conftest import none_left, silo_rows
from .papers import dial, https, listening, sign
from .test_security import heard

PLAN = 'name = "study"\nhost = "localhost"\nport = 4711\nsilos = ["north", "south", "west"]\n'

# FLARE 2.9 calls aiohttp in a way that aiohttp is going to drop; its session runs in this process
pytestmark = pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A federation of three silos whose people have compared their keys."""
    folder = tmp_path_factory.mktemp("original")
    enrol(Plan("study", "localhost", 4711, NAMES), folder / "kits")
    return folder


@pytest.fixture
def home(original, tmp_path):
    """The same, to spoil."""
    shutil.copytree(original / "kits", tmp_path / "kits")
    write_tables(tmp_path, silo_rows())
    return tmp_path


@pytest.fixture
def fresh(tmp_path):
    """A federation that nobody has joined yet."""
    found(Plan("study", "localhost", 4711, NAMES), tmp_path / "kits")
    return tmp_path


def authority_of(home):
    return Authority.read(home / "kits/authority")


def stranger(folder):
    """The authority of another federation with the same names."""
    found(Plan("study", "localhost", 4711, NAMES), folder)
    return Authority.read(folder / "authority")


def kit_of(home, name):
    return Kit.read(home / "kits" / name)


def refused(done, code):
    assert done.exit_code == code, done.output
    assert done.stdout == "" and "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


# ----------------------------------------------------------------------------------------------- who holds which key


def forms_of(key):
    """A private key in every form that somebody might keep it in."""
    numbers = key.private_numbers()
    for number in (numbers.d, numbers.p, numbers.q):
        raw = number.to_bytes((number.bit_length() + 7) // 8)
        yield from (raw, raw.hex().encode(), base64.b64encode(raw)[4:-4], str(number).encode())
    for form in (PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8):
        yield key.private_bytes(Encoding.DER, form, NoEncryption())
        yield key.private_bytes(Encoding.PEM, form, NoEncryption()).splitlines()[9]


def test_the_organiser_never_holds_a_silos_private_key(tmp_path):
    """Neither in the authority, nor at the coordinator, nor in a file that travels."""
    (tmp_path / "plan.toml").write_text(PLAN)
    set_up(tmp_path / "plan.toml", tmp_path / "kits")
    kits = tmp_path / "kits"
    keys = {name: load_pem_private_key((kits / name / "startup/client.key").read_bytes(), None) for name in NAMES}
    files = [path for path in kits.rglob("*") if path.is_file()]
    outside = {path: path.read_bytes() for path in files if path.relative_to(kits).parts[0] not in NAMES}
    assert {"north.request", "north.admitted"} <= {path.name for path in outside}
    assert any("authority" in path.parts for path in outside)
    for name, key in keys.items():
        forms = list(forms_of(key))
        held = [path.name for path in files if any(form in path.read_bytes() for form in forms)]
        assert held == ["client.key"]  # the search finds it where it is
        assert stat.S_IMODE((kits / name / "startup/client.key").stat().st_mode) == 0o600
        for path, content in outside.items():
            text = content.replace(b"\\n", b"\n")
            assert not any(form in content or form in text for form in forms), path
    salt = (kits / "north/salt").read_bytes().strip()
    assert [path.name for path, content in outside.items() if salt in content] == ["salt"]  # the authority's


def test_the_common_secret_opens_for_one_silo_only(fresh):
    kits = fresh / "kits"
    asked = {name: Request.check(request(kits / name, name)) for name in ("north", "south")}
    answers = authority_of(fresh).admit(asked)
    swapped = resigned(fresh, answers["south"], sealed=answers["north"]["sealed"])
    with pytest.raises(TrustError, match="not made for this silo"):
        accept(swapped, kits / "south")
    salt = accept(answers["north"], kits / "north").salt
    assert salt == (kits / "authority/salt").read_text().strip()
    assert salt not in json.dumps(answers)


# --------------------------------------------------------------------------- coordinator and authority in one hand


def forged(home, name, key=None):
    """What the holder of the authority can make: a roster with a certificate for any name, signed and numbered."""
    signer = authority_of(home)
    key = key or rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"silo-{name}")])
    text = signer._issue(name, "startup/client.crt", subject, key.public_key(), ())
    return signer.publish(signer.roster.silos | {name: text}, [*dict.fromkeys([*NAMES, name])], ())


class Ended:
    """FLARE's process of a silo: where it is handed a roster to decide about, it keeps it and ends, as in `serve`."""

    def __init__(self, kit, party, roster):
        self.log, self.alive = kit.path / "console.log", True
        if roster is not None and serve.is_news(json.dumps(roster.document), kit.startup):
            self.alive = False

    def stop(self):
        self.alive = False


@pytest.fixture
def join(home, monkeypatch):
    """`fmtc join` of north, whose coordinator hands out a roster; ends by itself when a process goes on."""
    clock = ManualClock(now=time.time(), limit=time.time() + 1_000)
    started = []

    def run(roster, *flags):
        def start(kit, party):
            started.append(kit.name)
            process = Ended(kit, party, roster)
            if process.alive:
                clock.after(1.0, lambda: serve.teller(kit.path)(serve.REFUSED))
            return process

        monkeypatch.setattr(membership, "Membership", partial(Membership, clock=clock, start=start))
        started.clear()
        return in_process("join", "--kit", home / "kits/north", "--data", home / "north.csv", "--id-column", "patient",
                          "--out", home / "ours", *flags)  # fmt: skip

    run.started = started
    return run


WENT_ON = "somebody else takes part"  # how a process that was not stopped ends here


def test_a_silo_whose_key_was_replaced_is_refused(home, join):
    before = read_pins(home / "kits/north" / PINS)
    done = join(forged(home, "south"))
    assert "'south' shows another key than before" in refused(done, 4)
    assert join.started == ["north"]  # not started again
    assert read_pins(home / "kits/north" / PINS) == before
    assert not (home / "kits/north/outbox.jsonl").exists()
    for flags in ((), ("--accept-roster", authority_of(home).roster.code)):  # no flag makes it go away
        done = join(authority_of(home).roster, *flags)
        assert "'south' shows another key" in refused(done, 4)


def test_a_silo_that_was_invented_is_not_accepted_in_silence(home, join):
    code = authority_of(home).roster.code
    roster = forged(home, "east")
    assert roster.code != code
    said = refused(join(roster), 4)
    assert "'east' is new to us" in said and roster.code in said
    assert "not " + code in refused(join(roster, "--accept-roster", code), 4)
    assert set(read_pins(home / "kits/north" / PINS)) == {"south", "west"}
    assert Roster.read(kit_of(home, "north").startup).code == code
    done = join(roster, "--accept-roster", roster.code)  # somebody compared it
    assert WENT_ON in refused(done, 3)
    assert join.started == ["north", "north"]
    assert set(read_pins(home / "kits/north" / PINS)) == {"south", "west", "east"}


def test_our_own_name_with_another_key_is_refused(home, join):
    assert "names another key" in refused(join(forged(home, "north")), 4)
    signer = authority_of(home)
    others = {name: text for name, text in signer.roster.silos.items() if name != "north"}
    assert "does not name us" in refused(join(signer.publish(others, NAMES, ())), 4)


def test_two_rosters_of_one_number_are_noticed(home, join):
    """The holder of the authority shows north one thing and south another."""
    ours = kit_of(home, "north")
    shutil.copytree(home / "kits/authority", home / "second")
    done = join(forged(home, "east"), "--accept-roster", authority_of(home).roster.code)
    assert WENT_ON in refused(done, 3)
    shutil.rmtree(home / "kits/authority")
    shutil.move(home / "second", home / "kits/authority")
    other = forged(home, "east")
    assert other.number == Roster.read(ours.startup).number
    assert "two rosters with the number" in refused(join(other), 4)


@pytest.mark.parametrize("spoil", ["number", "silos", "planned", "revoked", "signature"])
def test_a_roster_that_the_authority_did_not_sign(home, join, spoil):
    document = dict(forged(home, "east").document)
    other = stranger(home / "strange")
    document[spoil] = {
        "number": document["number"] + 1,
        "silos": {name: text for name, text in document["silos"].items() if name != "south"},
        "planned": list(NAMES),
        "revoked": other.roster.document["revoked"],
        "signature": signed(document, other.key)["signature"],
    }[spoil]
    assert "was changed after it was signed" in refused(join(Roster(document)), 4)
    assert accepted(kit_of(home, "north"))


@pytest.mark.parametrize("text", ["", "null", "[1]", '{"number": 99}', '{"kind": "fmtc roster"}', "[" * 5000])
def test_what_is_no_roster(home, text):
    kit = kit_of(home, "north")
    assert serve.is_news(text, kit.startup)
    with pytest.raises(TrustError, match="roster"):
        Membership(kit, ClientSource("north", ""))._receive()
    assert not (kit.startup / serve.ARRIVED).exists()


def test_first_use_asks_and_a_person_may_say_no(fresh, monkeypatch):
    kits = fresh / "kits"
    asked = {name: Request.check(request(kits / name, name)) for name in NAMES}
    for name, answer in authority_of(fresh).admit(asked).items():
        accept(answer, kits / name)
    kit = kit_of(fresh, "north")
    roster = Roster.read(kit.startup)
    assert strangers(kit, roster) == ["south", "west"] and not accepted(kit)
    questions = []
    monkeypatch.setattr(asking, "confirmed", lambda question, _: questions.append(question))
    with pytest.raises(TrustError, match="was not accepted; nothing was sent"):
        asking.ask_roster(Words(), kit, roster, None)
    assert not accepted(kit) and read_pins(kit.path / PINS) == {}
    monkeypatch.setattr(asking, "confirmed", lambda question, _: questions.append(question) or True)
    asking.ask_roster(Words(), kit, roster, None)
    assert accepted(kit) and strangers(kit, roster) == []
    assert all(roster.code in question for question in questions) and len(questions) == 2
    asking.ask_roster(Words(), kit, roster, None)  # nobody is asked twice
    assert len(questions) == 2
    north, south = (KitIdentity(kits / name) for name in ("north", "south"))
    assert north.verify("south", south.certificate, b"x", south.sign(b"x")) == south.fingerprint
    with pytest.raises(TrustError, match=r"'north'.*nobody has compared"):  # south's person has not compared yet
        south.verify("north", north.certificate, b"x", north.sign(b"x"))


def test_a_process_ends_unless_a_person_has_accepted_its_roster(home):
    kit = kit_of(home, "north")
    text = (kit.startup / "roster.json").read_text()
    assert not serve.is_news(text, kit.startup) and not serve.is_news(None, kit.startup)
    older = json.dumps(json.loads(text) | {"number": 0})
    assert not serve.is_news(older, kit.startup)  # an old one changes nothing
    (kit.startup / serve.ACCEPTED).unlink()
    assert serve.is_news(None, kit.startup) and serve.is_news(text, kit.startup) and serve.is_news(older, kit.startup)
    assert receive(kit, json.loads(older) | {"number": 1}).number == 1


def test_a_process_is_not_started_again_where_nobody_accepts(home):
    """Whoever watches may ignore the event; the process stays down all the same."""
    kit, roster, started = kit_of(home, "north"), forged(home, "east"), []

    def start(kit, party):
        started.append(party)
        return Ended(kit, party, roster)

    with Membership(kit, ClientSource("north", ""), clock=ManualClock(), start=start) as member:
        events = member.watch()
        assert next(events)["event"] == "roster"
        with pytest.raises(TrustError, match=r"'east' of the roster .* was not accepted; nothing was sent"):
            next(events)
    assert len(started) == 1


def test_the_server_begins_with_the_roster_for_silos_only(home):
    startup, sent = kit_of(home, "coordinator").startup, []

    class Connection:
        local_endpoint = SimpleNamespace(name="server", properties={"a": 1})

        def __init__(self, peer):
            self.conn = SimpleNamespace(get_conn_properties=lambda: {"peer_cn": peer})

        def send_dict(self, frame_type, stream_id, data):
            sent.append(data)

        def send_handshake(self, frame_type):
            sent.append("plain")

    keys, types = SimpleNamespace(ENDPOINT_NAME="name", TIMESTAMP="time"), SimpleNamespace(READY=5)
    serve.hand_out(SimpleNamespace(SfmConnection=Connection, HandshakeKeys=keys, Types=types, PEER="peer_cn"), startup)
    Connection("silo-north").send_handshake(5)
    assert sent[0] | {"time": 0, serve.MEMBERS: ""} == {"name": "server", "a": 1, "time": 0, serve.MEMBERS: ""}
    assert json.loads(sent[0][serve.MEMBERS]) == read_json(startup / "roster.json")
    for peer, frame in (("coordinator@fmtc.local", 5), (None, 5), ("silo-north", 4)):
        Connection(peer).send_handshake(frame)
    assert sent[1:] == 3 * ["plain"]


# ------------------------------------------------------------------------------------------------- requests


def test_a_request_of_another_hand_is_refused(fresh):
    kits = fresh / "kits"
    ours, _ = request(kits / "north", "north"), request(kits / "other", "north")
    key = load_pem_private_key((kits / "other/startup/next.key").read_bytes(), None)
    csr = x509.load_pem_x509_csr(ours["request"].encode())
    alien = x509.CertificateSigningRequestBuilder(csr.subject).sign(key, hashes.SHA256())
    raw = alien.public_bytes(Encoding.DER)
    swapped = raw.replace(alien.tbs_certrequest_bytes, csr.tbs_certrequest_bytes)  # our key, signed by another
    text = x509.load_der_x509_csr(swapped).public_bytes(Encoding.PEM).decode()
    with pytest.raises(TrustError, match="not signed by the key that it names"):
        Request.check(ours | {"request": text})
    for broken in ({}, ours | {"kind": "fmtc kit"}, ours | {"request": "nothing"}, []):
        with pytest.raises(FileError):
            Request.check(broken)


def test_requests_that_the_organiser_does_not_sign(fresh):
    kits = fresh / "kits"
    north, again = request(kits / "north", "north"), request(kits / "other", "north")
    signer = authority_of(fresh)
    before = signer.roster.number
    for name, document, why in (
        ("south", north, "of silo 'north', not of 'south'"),
        ("nroth", request(kits / "x"), "is not in the plan; did you mean 'north'"),
    ):
        with pytest.raises(KitError, match=why):
            signer.admit({name: Request.check(document)})
    same = request(kits / "y")
    with pytest.raises(KitError, match="one key under two names"):
        signer.admit({"north": Request.check(same), "south": Request.check(same)})
    assert signer.roster.number == before
    signer.admit({"north": Request.check(north)})
    with pytest.raises(KitError, match="'north' was admitted with another key"):  # two kits of one name
        signer.admit({"north": Request.check(again)})
    signer.admit({"north": Request.check(north)})  # the same once more: the first answer was lost
    signer.revoke("north")
    with pytest.raises(KitError, match="was revoked; make another one"):
        signer.admit({"north": Request.check(north)})
    signer.admit({"north": Request.check(again)})
    assert signer.roster.fingerprints == {"north": Request.check(again).fingerprint}
    signer.admit({"east": Request.check(request(kits / "east", "east"))}, add=True)
    assert signer.plan.silos == (*NAMES, "east")


def test_a_second_request_waits_unless_forced(fresh):
    kit = fresh / "kits/north"
    first = request(kit, "north")
    with pytest.raises(KitError, match="waits for its certificate"):
        Kit.read(kit)
    with pytest.raises(UsageError, match="waits for an answer"):
        request(kit, "north")
    second = request(kit, "north", force=True)
    answer = authority_of(fresh).admit({"north": Request.check(first)})["north"]
    assert first["request"] != second["request"]
    with pytest.raises(KitError, match="the answer to another request"):
        accept(answer, kit)
    with pytest.raises(UsageError, match="is not a kit"):
        request(fresh / "kits", "north")
    with pytest.raises(KitError, match="a name has 1 to 50"):
        request(fresh / "new", "no rth")


# ------------------------------------------------------------------------------------------------ admissions


@pytest.fixture
def answered(fresh):
    kit = fresh / "kits/north"
    asked = Request.check(request(kit, "north"))
    return kit, authority_of(fresh).admit({"north": asked})["north"]


def flipped(text):
    place = len(text) // 2
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


@pytest.mark.parametrize(
    "field", ["name", "role", "plan", "certificates", "authority", "roster", "sealed", "signature"]
)
def test_an_admission_that_was_changed_is_refused(answered, field):
    kit, document = answered
    changes = {
        "name": lambda old: "south",
        "role": lambda old: "coordinator",
        "plan": lambda old: old | {"host": "evil.example.org"},
        "certificates": lambda old: {path: flipped(text) for path, text in old.items()},
        "roster": lambda old: old | {"number": 7},
    }
    before = sorted(path.name for path in kit.rglob("*"))
    with pytest.raises((TrustError, FileError)) as caught:
        accept(document | {field: changes.get(field, flipped)(document[field])}, kit)
    if field != "authority":  # a flipped letter may make it no certificate at all
        assert caught.value.exit_code == 4
    assert sorted(path.name for path in kit.rglob("*")) == before
    with pytest.raises(KitError, match="waits"):
        Kit.read(kit)
    accept(document, kit).check()


def resigned(home, document, **changes):
    """The organiser's own hand: changed, and signed again."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return signed(content | changes, authority_of(home).key)


def test_admissions_that_do_not_fit_the_kit(fresh, answered, tmp_path):
    kit, document = answered
    with pytest.raises(TrustError, match="is for 'silo-north', not for 'silo-south'"):
        accept(resigned(fresh, document, name="south"), kit)
    plan = document["plan"] | {"silos": ["south"]}
    with pytest.raises(KitError, match="is not in its plan"):
        accept(resigned(fresh, document, plan=plan), kit)
    with pytest.raises(KitError, match="lacks the silos' common secret"):
        accept(resigned(fresh, document, sealed=None), kit)
    with pytest.raises(FileError, match="other certificates than those of a guest"):
        accept(resigned(fresh, document, role="guest", certificates={}), kit)
    with pytest.raises(KitError, match="is not a folder"):
        accept(document, tmp_path / "nowhere")
    crt = tmp_path / "old.crt"
    crt.write_text(document["certificates"]["startup/client.crt"])
    sign(fresh / "kits/authority", crt, begins=-9, ends=-1)
    with pytest.raises(TrustError, match="is valid from"):
        accept(resigned(fresh, document, certificates={"startup/client.crt": crt.read_text()}), kit)
    other = fresh / "kits/other"
    authority = authority_of(fresh)
    theirs = authority.admit({"south": Request.check(request(other, "south"))})["south"]
    with pytest.raises(KitError, match="the answer to another request"):
        accept(theirs, kit)
    accept(theirs, other)
    with pytest.raises(KitError, match="the answer to another request"):
        accept(document, other)
    accept(document, kit)
    strange = Authority.read(
        found(Plan("study", "localhost", 4711, NAMES), tmp_path / "strange").path.parent / "authority"
    )
    again = Request.check(request(kit))
    with pytest.raises(TrustError, match="of another authority"):
        accept(strange.admit({"north": again})["north"], kit)


def test_a_new_key_for_a_kit(home):
    """The kit goes on with the old key until the answer is there; the others refuse the new one until they ask."""
    kit, signer = kit_of(home, "north"), authority_of(home)
    old = fingerprint_of(load_certificate(kit.credentials[0]))
    asked = Request.check(request(kit.path))
    assert asked.name == "north" and asked.fingerprint != old
    kit.check()
    with pytest.raises(KitError, match="revoke the old one first"):
        signer.admit({"north": asked})
    signer.revoke("north")
    kit = accept(signer.admit({"north": asked})["north"], kit.path)
    assert fingerprint_of(load_certificate(kit.credentials[0])) == asked.fingerprint
    assert not (kit.path / "waiting.json").exists() and accepted(kit)
    south = kit_of(home, "south")
    with pytest.raises(TrustError, match="'north' shows another key"):
        receive(south, signer.roster.document)
    lines = (south.path / PINS).read_text().splitlines()
    (south.path / PINS).write_text("\n".join(line for line in lines if not line.startswith("north")))
    assert strangers(south, receive(south, signer.roster.document)) == ["north"]


def test_commands_say_what_is_wrong(fresh):
    kits = fresh / "kits"
    admit = ("federation", "admit", "--authority", kits / "authority", "--out", fresh)
    write_json(fresh / "a.request", request(kits / "north"))
    assert "names no silo" in refused(in_process(*admit, fresh / "a.request"), 2)
    assert "one for each" in refused(in_process(*admit, fresh / "a.request", "--name", "x", "--name", "y"), 2)
    twice = in_process(*admit, *2 * [fresh / "a.request"], "--name", "north", "--name", "north")
    assert "two requests for one name" in refused(twice, 2)
    assert "is missing" in refused(in_process(*admit, fresh / "nowhere"), 3)
    code = Request.check(read_json(fresh / "a.request")).code
    told = done_with(*admit, fresh / "a.request", "--name", "north", "--accept-key", code)
    assert (set(told["silos"]), told["waiting"]) == ({"north"}, ["south", "west"])
    assert "north.admitted exists" in refused(in_process(*admit, fresh / "a.request", "--name", "north"), 2)
    taken = fresh / "north.admitted"
    taken.write_text(taken.read_text().replace("localhost", "otherhost"))
    said = refused(in_process("federation", "accept", taken, "--kit", kits / "north"), 4)
    assert "was changed after it was signed" in said
    revoke = ("federation", "revoke", "--authority", kits / "authority", "--name")
    assert "'nobody' has no certificate" in refused(in_process(*revoke, "nobody"), 3)
    assert "federation accept" in refused(in_process("doctor", "--kit", kits / "north"), 1)


# ------------------------------------------------------------------------------------ nothing is written before a yes


def content(folder):
    """All files of a folder with their content, but for locks, which are empty of meaning."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"}


def on_a_terminal(answer, *words):
    """A command on a terminal of 80 columns, and a person who types one line; exit code and all that was shown."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 80))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "fmtc.cli", *map(str, words)]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment | {"NO_COLOR": "1"})
    os.close(its)
    said = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(ours, 4096):
            said += part
            if said.rstrip().endswith(b"[y/N]:"):
                os.write(ours, answer)
                answer = b""
    os.close(ours)
    return process.wait(), said.decode().replace("\r\n", "\n")


def test_admit_asks_before_it_signs(fresh):
    kits, name = fresh / "kits", "a-name-of-fifty-characters-" + 23 * "x"
    requested = in_process("federation", "request", "--name", name, "--kit", kits / "long")
    (code,) = re.findall(r"^ *([0-9a-f]{4}(?:-[0-9a-f]{4}){3})  ", requested.stderr, re.MULTILINE)
    again = in_process("federation", "request", "--name", name, "--kit", kits / "long")
    assert code in refused(again, 2)  # for a person who has closed the window
    admit = ("federation", "admit", kits / "long.request", "--add", "--authority", kits / "authority", "--out", fresh)
    before = content(fresh)
    assert code in refused(in_process(*admit), 4)  # no terminal to ask at
    assert f"the code {code}" in refused(in_process(*admit, "--accept-key", "0000-0000-0000-0000"), 4)
    ended, said = on_a_terminal(b"n\n", *admit)
    assert (ended, "nothing was signed" in " ".join(said.split())) == (4, True), said
    assert content(fresh) == before
    ended, said = on_a_terminal(b"y\n", *admit)
    assert ended == 0, said
    assert any(line.startswith(f"  {code}  {name}") for line in said.splitlines())
    assert "…" not in said and max(map(len, said.splitlines())) <= 80
    accept = ("federation", "accept", fresh / f"{name}.admitted", "--kit", kits / "long")
    assert code in in_process(*accept).stderr


def test_another_key_has_another_code(fresh):
    """What is exchanged on its way shows, whatever name it carries."""
    first, second = (Request.check(request(fresh / folder, "north")) for folder in ("one", "two"))
    assert first.code == Request.check(read_json(fresh / "one/waiting.json")).code != second.code


@pytest.mark.parametrize("which", ["nowhere", "a silo's", "another federation's", "newer", "forked"])
@pytest.mark.parametrize("command", ["admit", "revoke", "renew"])
def test_a_coordinators_kit_that_cannot_be_used_is_refused_before_anything_is_signed(home, command, which):
    kits, given = home / "kits", home / "nowhere"
    code = Request.check(request(home / "east", "east")).code if command == "admit" else ""
    if which == "a silo's":
        given = kits / "south"
    elif which == "another federation's":
        stranger(home / "strange")
        given = home / "strange/coordinator"
    elif which == "newer":
        given = kits / "coordinator"
        shutil.copytree(kits / "authority", home / "copy")
        done_with("federation", "revoke", "--name", "south", "--authority", kits / "authority")
        shutil.rmtree(kits / "authority")
        shutil.move(home / "copy", kits / "authority")
    elif which == "forked":
        given = kits / "coordinator"
        shutil.copytree(kits / "authority", home / "copy")
        done_with("federation", "revoke", "--name", "south", "--authority", kits / "authority")
        done_with("federation", "revoke", "--name", "west", "--authority", home / "copy")
        shutil.rmtree(kits / "authority")
        shutil.move(home / "copy", kits / "authority")
    words = {
        "admit": (home / "east/waiting.json", "--add", "--accept-key", code, "--out", home / "new/out"),
        "revoke": ("--name", "north"),
        "renew": ("--out", home / "new/out"),
    }[command]
    before = content(home)
    refused(in_process("federation", command, *words, "--authority", kits / "authority", "--coordinator", given),
            4 if which == "forked" else 3)  # fmt: skip
    assert content(home) == before
    assert not (home / "new").exists()


def test_renew_signs_nothing_where_one_of_the_names_cannot_be_renewed(home):
    signer, kits = authority_of(home), home / "kits"
    renew = ("federation", "renew", "--authority", kits / "authority", "--out", home / "new")
    before = content(home)
    assert "'nobody'" in refused(in_process(*renew, "--name", "north", "--name", "nobody"), 3)
    with kit_of(home, "coordinator").locked():
        assert "in use" in refused(in_process(*renew), 2)
    assert content(home) == before
    book = signer._book()
    certificate = next(line["certificate"] for line in book["issued"] if line["name"] == "south")
    signer.publish(signer.roster.silos, NAMES, [x509.load_pem_x509_certificate(certificate.encode())])
    before = content(home)
    with pytest.raises((KitError, TrustError)):
        signer.renew(["north", "south"])
    assert content(home) == before


def test_request_makes_the_folder_of_its_file(fresh):
    done_with(
        "federation", "request", "--name", "north", "--kit", fresh / "north", "--out", fresh / "to/mail/a.request"
    )
    assert Request.check(read_json(fresh / "to/mail/a.request")).name == "north"


def test_an_admission_beside_which_a_pinned_key_has_changed_is_not_taken_in(home):
    signer, north = authority_of(home), home / "kits/north"
    document = signer.renew(["north"])["north"] | {"roster": dict(forged(home, "south").document)}
    before = content(north)
    with pytest.raises(TrustError, match="'south' shows another key"):
        accept(resigned(home, document), north)
    assert content(north) == before


# ---------------------------------------------------------------------------------------------------- revocation


def served(home):
    """FLARE's server, as far as TLS goes: its context comes from the function that `serve` replaces."""
    startup = home / "kits/coordinator/server/startup"

    def plain(params, ssl_server):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(startup / "rootCA.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(startup / "server.crt", startup / "server.key")
        return context

    module = SimpleNamespace(get_ssl_context=plain)
    serve.refuse_revoked(SimpleNamespace(TLS_USERS=(module,)), startup)
    return module.get_ssl_context({}, True)


def greetings(home, context):
    """Who is greeted by a server with this context."""

    def answer(connection):
        connection.settimeout(5)
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(100)
            secure.sendall(b"hello")

    with listening(answer) as port:
        return {name for name in NAMES if heard(port, home / "kits" / name / "startup", b"hi") == b"hello"}


def test_a_revoked_silo_is_refused_at_its_next_connection(home):
    """By a server that runs already; and all that it learnt before does not help."""
    context = served(home)
    assert greetings(home, context) == set(NAMES)
    told = done_with("federation", "revoke", "--name", "south", "--authority", home / "kits/authority")
    assert set(told["silos"]) == {"north", "west"}
    assert greetings(home, context) == {"north", "west"}
    done_with("federation", "revoke", "--name", "west", "--remove", "--authority", home / "kits/authority")
    assert greetings(home, context) == greetings(home, served(home)) == {"north"}
    assert kit_of(home, "coordinator").plan.silos == ("north", "south")
    assert context.num_tickets == 0


def test_a_revoked_silo_is_told_so(home):
    done_with("federation", "revoke", "--name", "north", "--authority", home / "kits/authority")
    context = served(home)

    def answer(connection):
        connection.settimeout(5)
        context.wrap_socket(connection, server_side=True).close()

    with listening(answer) as port:
        kit = dial(kit_of(home, "north"), port)
        done = in_process("doctor", "--kit", kit.path)
        assert done.exit_code == 1
        assert "does not accept our certificate any more" in done.stderr
        with pytest.raises(TrustError, match="it was revoked, or the clock there is wrong"):
            membership.refusal(kit, clock=ManualClock())
    write_json(home / "roster.json", authority_of(home).roster.document)
    done = in_process("federation", "accept", home / "roster.json", "--kit", kit.path)
    assert "does not name us" in refused(done, 4)
    with pytest.raises(TrustError, match="was revoked"):  # the list counts all the same
        kit.check()


def test_a_revoked_coordinator_is_refused_by_a_silo_that_knows(home):
    north = kit_of(home, "north")
    with listening(https(home / "kits/coordinator/server/startup")) as port:
        north = dial(north, port)
        assert membership.refusal(north, clock=ManualClock()) == ""
        authority_of(home).revoke("coordinator")
        receive(north, authority_of(home).roster.document)
        with pytest.raises(TrustError, match=r"the certificate of the coordinator .* was revoked"):
            membership.refusal(north, clock=ManualClock())


def test_what_was_revoked_stays_revoked(home):
    signer = authority_of(home)
    signer.revoke("south")
    with pytest.raises(KitError, match="'south' has no certificate to renew"):
        signer.renew(["south"])
    renewed = signer.renew(["north"])["north"]
    kit = accept(renewed, home / "kits/north")
    south = (home / "kits/south/startup/client.crt").read_bytes()
    der = x509.load_pem_x509_certificate(south).public_bytes(Encoding.DER)
    with pytest.raises(TrustError, match="was revoked"):
        KitIdentity(kit.path).verify("south", der, b"x", b"")
    older = Roster.read(kit_of(home, "west").startup)
    assert receive(kit, older.document).number == signer.roster.number  # an old list brings nobody back


def test_all_certificates_of_a_silo_are_revoked_with_it(home):
    """Also the one from before a renewal, which would be valid for months."""
    signer = authority_of(home)
    signer.renew(["south"])
    signer.revoke("south")
    receive(kit_of(home, "coordinator"), signer.roster.document)
    assert greetings(home, served(home)) == {"north", "west"}  # the kit of south has the old one


# --------------------------------------------------------------------------------------------- with real processes


@pytest.mark.federation
def test_real_processes_hand_out_the_roster_and_refuse_the_revoked(tmp_path):
    plan = Plan("study", "localhost", free_port(), ("north", "south"), 8.0)
    first, north, south = enrol(plan, tmp_path / "kits")
    for kit in (north, south):
        ClientSource(kit.name, str(tmp_path / "rows.csv")).write(kit.path)
    signer = Authority.read(tmp_path / "kits/authority")
    processes = []

    def start(kit):
        processes.append(Process(kit, "party"))
        return processes[-1]

    try:
        with Coordinator(first) as coordinator:
            coordinator.open()
            one, other = start(north), start(south)
            wait_until(lambda: coordinator.present() == {"north", "south"})
            other.stop()
            signer.revoke("south")
            receive(Kit.read(first.path), signer.roster.document)  # while the server runs
            before = len(other.log.read_text(errors="replace"))
            again = start(south)
            one.stop()
            renewed = start(north)  # is handed the new roster, and ends for it
            wait_until(lambda: not renewed.alive)
            assert (north.startup / serve.ARRIVED).exists()
            with Membership(north, ClientSource("north", str(tmp_path / "rows.csv"))) as member:
                for event in member.watch():  # takes it in, and dials again
                    if event["event"] == "connected":
                        break
                assert Roster.read(north.startup).number == signer.roster.number
                assert accepted(north)
                wait_until(lambda: coordinator.present() == {"north"})
            with pytest.raises(TrustError, match="does not accept our certificate any more"):
                membership.refusal(south)
            said = again.log.read_text(errors="replace")[before:]
            assert "Successfully registered" not in said
    finally:
        for process in processes:
            process.stop()
    assert none_left(tmp_path)


@pytest.mark.federation
def test_real_processes_hold_a_floor_against_the_noise_of_a_run(tmp_path):
    """The coordinator names the epsilon of the floor; the delta it chooses makes that mean less."""
    rng = np.random.default_rng(0)
    for cid in "abc":
        centers = rng.choice([0.2, 0.8], size=(150, 1))
        np.save(tmp_path / f"{cid}.npy", np.clip(centers + rng.normal(0, 0.05, (150, 2)), 0, 1))
    sources = [ClientSource(cid, str(tmp_path / f"{cid}.npy"), floor="epsilon=4") for cid in "abc"]
    honest = Settings(n_clusters=2, privacy=Privacy(epsilon=4, bounds=(0, 1)))
    with LocalFederation(sources) as fed:
        why = r"at delta=0\.0049 .*, which is epsilon=.* at delta=1e-05 .*privacy floor"
        with pytest.raises(ClientError, match=why):
            fed.run(replace(honest, privacy=replace(honest.privacy, delta=0.0049, colluding=0)))
        lines = [line for kit in fed.kits.values() for line in read_lines(kit.path / LEDGER)]
        assert not [line for line in lines if line["kind"] == RELEASE]
        assert set(fed.run(honest).kept) == set("abc")
