"""Who signed what: certificates, pins, revocation lists and the code that two people compare."""

from __future__ import annotations

import stat
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtc.errors import KitError, TrustError
from fmtc.privacy import identity
from fmtc.privacy.identity import (
    PINS,
    KitIdentity,
    SelfSigned,
    Trust,
    check_pins,
    fingerprint_of,
    read_pins,
    read_revoked,
    revoked_number,
    roster_code,
    same_code,
    signature_of,
    write_pins,
)

from .certificates import Authority, key_of

HERE, THERE = "ab" * 32, "cd" * 32


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def pair(authority, tmp_path):
    """North and south, who have pinned each other."""
    north, south = (KitIdentity(authority.kit(tmp_path / name, name)) for name in ("north", "south"))
    write_pins(tmp_path / "north" / PINS, {"south": south.fingerprint})
    write_pins(tmp_path / "south" / PINS, {"north": north.fingerprint})
    return north, south


def der(certificate):
    return certificate.public_bytes(Encoding.DER)


# ---------------------------------------------------------------------------------------------------------- identities


def test_each_implementation_recognises_its_own_kind(pair):
    for one, other in (pair, (SelfSigned("north"), SelfSigned("south"))):
        assert (one.name, other.name) == ("north", "south")
        signature = other.sign(b"card")
        found = one.verify("south", other.certificate, b"card", signature)
        assert len(found) == 64 and int(found, 16)
        assert found == other.verify("south", other.certificate, b"card", signature)  # also of oneself
        assert found != one.verify("north", one.certificate, b"card", one.sign(b"card"))
        for data, shown, given_ in (
            (b"cars", other.certificate, signature),
            (b"card", one.certificate, signature),
            (b"card", other.certificate, signature[:-1] + bytes([signature[-1] ^ 1])),
            (b"card", other.certificate, b""),
            (b"card", other.certificate[:-1], signature),
            (b"card", b"", signature),
        ):
            with pytest.raises(TrustError):
                one.verify("south", shown, data, given_)


def test_a_renewed_certificate_of_the_same_key_changes_nothing(authority, pair):
    north, south = pair
    renewed = authority.sign("silo-south", key_of("south"))
    assert der(renewed) != south.certificate
    assert north.verify("south", der(renewed), b"x", south.sign(b"x")) == south.fingerprint


def test_a_valid_certificate_for_a_known_name_with_another_key_is_refused(authority, pair):
    """Whoever holds the authority can make one; only the pin tells."""
    north, _ = pair
    forged = authority.sign("silo-south", key_of("mallory"))
    with pytest.raises(TrustError, match=r"'south' shows another key than before.*telephone") as caught:
        north.verify("south", der(forged), b"x", signature_of(b"x", key_of("mallory")))
    assert caught.value.exit_code == 4
    forged = authority.sign("silo-north", key_of("mallory"))  # and nobody takes our own name
    with pytest.raises(TrustError, match="'north' shows another key"):
        north.verify("north", der(forged), b"x", signature_of(b"x", key_of("mallory")))


def test_a_silo_nobody_has_compared_is_refused(authority, pair):
    north, _ = pair
    invented = authority.sign("silo-east", key_of("mallory"))
    signature = signature_of(b"x", key_of("mallory"))
    with pytest.raises(TrustError, match=r"'east'.*nobody has compared its key"):
        north.verify("east", der(invented), b"x", signature)
    write_pins(north.folder / PINS, {"east": fingerprint_of(invented)})  # as `fmtc join` does after a yes
    north.verify("east", der(invented), b"x", signature)
    assert set(read_pins(north.folder / PINS)) == {"east", "south"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "silo-west"}, "is for 'silo-west', not for 'silo-south'"),
        ({"name": "south"}, "is for 'south'"),
        ({"name": "silo-south", "ca": True}, "is for 'silo-south'"),
        ({"name": "silo-south", "ends": -0.5}, "is valid from"),
        ({"name": "silo-south", "begins": 1}, "is valid from"),
    ],
)
def test_certificates_of_the_right_key_that_do_not_count(authority, pair, options, why):
    north, south = pair
    wrong = authority.sign(key=key_of("south"), **options)
    with pytest.raises(TrustError, match=why):
        north.verify("south", der(wrong), b"x", south.sign(b"x"))


def test_certificates_of_others(authority, pair):
    north, south = pair
    for stranger in (Authority("strangers"), Authority("south")):  # the second: signed by the silo itself
        wrong = stranger.sign("silo-south", key_of("south"))
        with pytest.raises(TrustError, match="another federation"):
            north.verify("south", der(wrong), b"x", south.sign(b"x"))
    weak = authority.sign("silo-south", key_of("weak", 1024))
    with pytest.raises(TrustError, match="at least 2048 bits"):
        north.verify("south", der(weak), b"x", b"")
    curve = authority.sign("silo-south", Ed25519PrivateKey.generate())
    with pytest.raises(TrustError, match="not an RSA key"):
        north.verify("south", der(curve), b"x", b"")


def test_an_authority_that_has_expired(tmp_path):
    north = KitIdentity(Authority(ends=-0.5).kit(tmp_path / "north", "north"))
    with pytest.raises(TrustError, match="certificate of the authority is valid from"):
        north.verify("north", north.certificate, b"x", north.sign(b"x"))


def test_a_revoked_certificate_is_refused_and_the_next_one_is_not(authority, pair):
    _, south = pair
    (south.folder / "startup" / "revoked.pem").write_bytes(authority.revoke())
    north = KitIdentity(south.folder.with_name("north"))
    renewed = authority.sign("silo-south", key_of("south"))
    old = Trust.read(south.folder / "startup").check("south", south.certificate, datetime.now(UTC))
    (north.folder / "startup" / "revoked.pem").write_bytes(authority.revoke(old, number=2))
    north = KitIdentity(north.folder)
    with pytest.raises(TrustError, match="'south' was revoked"):
        north.verify("south", south.certificate, b"x", south.sign(b"x"))
    assert north.verify("south", der(renewed), b"x", south.sign(b"x")) == south.fingerprint


def test_lists_of_revoked_certificates(authority, pair):
    north, _ = pair
    ours = authority.revoke(number=7)
    assert revoked_number(read_revoked(ours, authority.certificate)) == 7 > revoked_number(None)
    file = north.folder / "startup" / "revoked.pem"
    for content, why in (
        (Authority("strangers").revoke(), "not signed by the authority"),
        (ours[:-60], "damaged"),
        (b"", "damaged"),
    ):
        file.write_bytes(content)
        with pytest.raises(TrustError, match=why):
            KitIdentity(north.folder)


def test_kits_that_cannot_be_used(authority, tmp_path):
    kit = authority.kit(tmp_path / "north", "north")
    (kit / "startup/client.key").write_bytes(
        (authority.kit(tmp_path / "s", "south") / "startup/client.key").read_bytes()
    )
    with pytest.raises(KitError, match=r"not the key of client\.crt"):
        KitIdentity(kit)
    for name in ("client.key", "client.crt", "rootCA.pem"):
        broken = authority.kit(tmp_path / name, "north")
        (broken / "startup" / name).write_bytes(b"nothing")
        with pytest.raises(KitError, match=name):
            KitIdentity(broken)


# --------------------------------------------------------------------------------------------------------------- pins


def test_pins_are_added_and_never_changed(tmp_path):
    file = tmp_path / PINS
    assert read_pins(file) == {}
    write_pins(file, {"north": HERE})
    write_pins(file, {"south": THERE, "north": HERE})
    assert read_pins(file) == {"north": HERE, "south": THERE}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    with pytest.raises(TrustError, match="'north' shows another key"):
        write_pins(file, {"north": THERE, "west": HERE})
    assert file.read_bytes() == before
    assert check_pins({"north": HERE, "west": THERE}, read_pins(file)) == ["west"]


@pytest.mark.parametrize(
    "text", ["[silos", "[silos]\nnorth = 5", '[silos]\nnorth = "AB"', 'silos = "x"', "[other]\n", "\x00"]
)
def test_damaged_pins_are_refused_and_not_forgotten(tmp_path, text):
    (tmp_path / PINS).write_text(text)
    with pytest.raises(TrustError, match=r"silos\.toml is damaged"):
        read_pins(tmp_path / PINS)


# -------------------------------------------------------------------------------------------------------------- codes

NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
PRINTS = st.binary(min_size=32, max_size=32).map(bytes.hex)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, PRINTS, min_size=1, max_size=4), st.data())
def test_the_code_depends_on_names_and_keys_and_on_nothing_else(roster, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "SLOW", 2)
        assert_code_of(roster, data)


def assert_code_of(roster, data):
    code = roster_code(roster)
    assert [len(part) for part in code.split("-")] == [4, 4, 4, 4]
    assert code == roster_code(dict(reversed(roster.items())))
    name = data.draw(st.sampled_from(sorted(roster)))
    others = {other: found for other, found in roster.items() if other != name}
    assert code != roster_code(others)
    assert code != roster_code(roster | {name: data.draw(PRINTS.filter(lambda found: found != roster[name]))})
    assert code != roster_code(roster | {name + "x": roster[name]})


def test_codes_are_compared_as_people_write_them():
    code = roster_code({"north": HERE})
    for written in (code.upper(), code.replace("-", " "), code.replace("-", ""), f" {code} "):
        assert same_code(code, written)
    assert not same_code(code, code[:-1])
    assert not same_code("", "")
