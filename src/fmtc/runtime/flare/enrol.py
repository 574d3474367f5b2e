"""How a silo becomes a member: it makes a key and a request, the organiser signs, the silo takes the answer in.

Three documents travel, all of them JSON and none of them secret. A *request* leaves a silo: the public key, signed by
the private one. An *admission* comes back: the certificate, the plan, the roster, and the silos' common secret in a
form that only this silo can open. The *roster* says who was admitted and which certificates no longer count; the
authority signs and numbers it, and the coordinator hands it on to every silo that connects.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from ...artifacts.files import check_form, check_schema, read_file, read_json, tighten, write_file, write_json
from ...artifacts.locks import locked
from ...errors import FileError, InputError, KitError, TrustError, UsageError
from ...privacy import identity
from ..kitclient import SALT
from .kits import ADMIN, LOCK, ROSTER, WAITING, Kit, make_silo, write_kit, write_secret
from .plan import NAME, Plan, plan_in
from .serve import ACCEPTED

SUFFIX = ".admitted"  # of the file that goes to a silo
NEXT_KEY = "next.key"  # beside a silo's certificate: the key of a request that waits
_SEAL = OAEP(MGF1(SHA256()), SHA256(), b"fmtc-salt")
COORDINATOR = "coordinator"
# Certificates of a kit, by role, with their common names; a silo's follows from its name.
CERTIFICATES: dict[str, dict[str, str | None]] = {
    "silo": {"startup/client.crt": None},
    COORDINATOR: {"server/startup/server.crt": "server", "admin/startup/client.crt": ADMIN},
}


# ------------------------------------------------------------------------------------------------- signed documents


def _canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document that are signed, whatever its layout."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def signed(document: dict[str, Any], key: RSAPrivateKey) -> dict[str, Any]:
    """The document with a signature of all its other parts."""
    return document | {"signature": base64.b64encode(identity.signature_of(_canonical(document), key)).decode()}


def _check_signature(document: Mapping[str, Any], key: RSAPublicKey, what: str) -> None:
    try:
        signature = base64.b64decode(document["signature"], validate=True)
    except ValueError:
        signature = b""
    if not identity.is_signed(_canonical(document), signature, key):
        raise TrustError(f"{what} was changed after it was signed, or is of somebody else")


def as_pem(thing: Any) -> str:
    """A certificate, a request or a list of revoked certificates as text."""
    return str(thing.public_bytes(Encoding.PEM).decode())


def certificate_in(text: str, what: str) -> x509.Certificate:
    """The certificate in a part of a document."""
    try:
        return identity.parse_certificate(text.encode())
    except Exception as error:  # whatever a parser raises, as in `read_file`
        raise FileError(f"{what} is damaged: {(str(error) or type(error).__name__).splitlines()[0]}") from None


# ---------------------------------------------------------------------------------------------------------- the roster


@dataclass(frozen=True)
class Roster:
    """Who was admitted to a federation, and which certificates no longer count, as the authority says.

    Parameters
    ----------
    document : mapping
        As it was signed.
    """

    document: Mapping[str, Any]

    @property
    def number(self) -> int:
        """Each roster has a higher number than the one before."""
        return int(self.document["number"])

    @property
    def silos(self) -> dict[str, str]:
        """Certificates (PEM) of the silos that were admitted, by name."""
        return dict(self.document["silos"])

    @property
    def planned(self) -> tuple[str, ...]:
        """Names of all silos, also of those that were not admitted yet."""
        return tuple(self.document["planned"])

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of the public key of each silo that was admitted."""
        return {name: identity.fingerprint_of(certificate_in(text, "the roster")) for name, text in self.silos.items()}

    @cached_property
    def code(self) -> str:
        """What two people compare on the telephone; all zeros while nobody is admitted."""
        return identity.roster_code(self.fingerprints) if self.silos else "0000-0000-0000-0000"

    @classmethod
    def check(cls, document: Any, authority: x509.Certificate, what: Any = "the roster") -> Roster:
        """A roster that was read from JSON, or `TrustError` where the authority did not sign it."""
        form = {"number": int, "silos": {str: str}, "planned": [str], "revoked": str, "signature": str}
        check_schema(what, document, "fmtc roster", 1)
        check_form(what, document, form)
        _check_signature(document, identity.rsa_key(authority), str(what))
        roster = cls(document)
        revoked = identity.Trust(authority, identity.read_revoked(document["revoked"].encode(), authority, what))
        for name, text in roster.silos.items():
            one = certificate_in(text, str(what))
            wrong = identity.common_name(one) != identity.SITE + name
            if wrong or revoked.is_revoked(one) or name not in roster.planned:
                raise TrustError(f"{what} contradicts itself about silo {name!r}")
        if identity.revoked_number(revoked.revoked) != roster.number:
            raise TrustError(f"{what} contradicts itself: its list of revoked certificates is of another day")
        return roster

    @classmethod
    def read(cls, startup: Path) -> Roster:
        """The roster that a kit has."""
        path = startup / ROSTER
        return cls.check(read_json(path), identity.load_certificate(startup / identity.AUTHORITY), path)

    def write(self, startup: Path) -> None:
        """Keep it in a kit, with the list of revoked certificates apart, for OpenSSL."""
        write_json(startup / ROSTER, self.document, secret=True)
        self.write_revoked(startup)

    def write_revoked(self, startup: Path) -> None:
        """Keep only the list of revoked certificates."""
        write_file(startup / identity.REVOKED, self.document["revoked"].encode(), secret=True)


def newer(old: Roster, new: Roster) -> bool:
    """Whether a roster replaces the one we have; raises `TrustError` where there are two of one number."""
    if new.number == old.number and new.document != old.document:
        raise TrustError(
            f"there are two rosters with the number {new.number}: somebody shows different silos different members. "
            "Compare the roster codes by telephone"
        )
    return new.number > old.number


def strangers(kit: Kit, roster: Roster, certificate: x509.Certificate | None = None) -> list[str]:
    """Silos of a roster whose keys nobody here has compared; raises `TrustError` where a pinned or our own key changed.

    Parameters
    ----------
    kit : Kit
        A silo's.
    roster : Roster
        One that the authority signed.
    certificate : Certificate, optional
        Ours, where the kit has another one yet.
    """
    shown = dict(roster.fingerprints)
    listed_as = shown.pop(kit.name, None)
    if listed_as != identity.fingerprint_of(certificate or identity.load_certificate(kit.credentials[0])):
        what = "does not name us" if listed_as is None else f"names another key ({listed_as[:16]}…) for us"
        raise TrustError(f"the roster of the federation {what}: ask the organiser what happened to silo {kit.name!r}")
    return identity.check_pins(shown, identity.read_pins(kit.path / identity.PINS))


def pin(kit: Kit, roster: Roster) -> None:
    """Pin the keys of a roster that a person has accepted, and keep the roster."""
    identity.write_pins(
        kit.path / identity.PINS, {name: found for name, found in roster.fingerprints.items() if name != kit.name}
    )
    roster.write(kit.startup)
    write_secret(kit.startup / ACCEPTED, str(roster.number))


def accepted(kit: Kit) -> bool:
    """Whether the person at a silo has accepted the roster that its kit has."""
    file = kit.startup / ACCEPTED
    return file.exists() and read_file(file, bytes.strip) == str(Roster.read(kit.startup).number).encode()


def receive(kit: Kit, document: Any, what: Any = "the roster") -> Roster:
    """Take in a roster that was handed to a kit: the newest one we know.

    What it revokes counts from now on. The coordinator expects the silos it names. A silo keeps it once its person
    accepts its members, see `strangers` and `pin`.
    """
    try:
        roster = Roster.check(document, identity.load_certificate(kit.startup / identity.AUTHORITY), what)
    except InputError as error:
        raise TrustError(f"the roster that came is no roster: {error}") from None
    known = Roster.read(kit.startup)
    if not newer(known, roster):
        return known
    roster.write_revoked(kit.startup)
    if kit.role == COORDINATOR:
        roster.write(kit.startup)
        write_kit(kit.path, kit.role, kit.name, replace(kit.plan, silos=roster.planned))
    elif not strangers(kit, roster):
        pin(kit, roster)
    return roster


# --------------------------------------------------------------------------------------------------------- at a silo


def check_waiting(folder: Path) -> None:
    """Raise `UsageError` where a request of a silo's folder waits for its answer."""
    if (folder / WAITING).exists():
        code = Request.check(read_json(folder / WAITING), folder / WAITING).code
        raise UsageError(
            f"{folder} waits for an answer to its request already. The code of its key is {code}; --force makes "
            "another key"
        )


def request(folder: Path, name: str = "", *, force: bool = False) -> dict[str, Any]:
    """Make a key and the request to have it signed; the request, which may be shown to anybody.

    Parameters
    ----------
    folder : path
        Of the silo: a new one, or its kit, which goes on as it is until the answer is taken in.
    name : str
        The silo's name in the plan of the federation; left out, the organiser says which it is.
    force : bool
        Make another key where a request waits.
    """
    if name and not NAME.fullmatch(name):
        raise KitError(f"silo {name!r}: a name has 1 to 50 characters, each a letter, a digit, - or _")
    if not force:
        check_waiting(folder)
    there = (folder / "kit.json").exists()
    if folder.exists() and not there and not (folder / WAITING).exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} exists and is not a kit; choose another name")
    if there:
        name = name or Kit.read(folder, "silo").name
    startup = folder / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    for place in (folder, startup):
        place.chmod(0o700)
    key = generate_private_key(65537, 2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    write_secret(startup / NEXT_KEY, text.strip())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.SITE + name)])
    asked = x509.CertificateSigningRequestBuilder(subject).sign(key, SHA256())
    document = {"kind": "fmtc request", "schema": 2, "request": as_pem(asked)}
    write_json(folder / WAITING, document)
    return document


@dataclass(frozen=True)
class Request:
    """A request that was read: whoever made it has the private key."""

    name: str
    key: RSAPublicKey
    fingerprint: str

    @cached_property
    def code(self) -> str:
        """What organiser and silo compare on the telephone."""
        return identity.key_code(self.fingerprint)

    @classmethod
    def check(cls, document: Any, what: Any = "the request") -> Request:
        """A request that was read from JSON; raises `TrustError` where its key did not sign it."""
        check_schema(what, document, "fmtc request", 2)
        check_form(what, document, {"request": str})
        try:
            asked = x509.load_pem_x509_csr(document["request"].encode())
            name = identity.common_name(asked).removeprefix(identity.SITE)
        except ValueError as error:
            raise FileError(f"{what} is damaged: {str(error).splitlines()[0]}") from None
        key = asked.public_key()
        if not isinstance(key, RSAPublicKey) or key.key_size < identity.LEAST_BITS:
            raise KitError(f"{what} is for a key that is not RSA of at least {identity.LEAST_BITS} bits")
        if not asked.is_signature_valid:
            raise TrustError(f"{what} is not signed by the key that it names")
        return cls(name, key, identity.fingerprint_of(asked))


def accept(document: Any, folder: Path, what: Any = "the admission") -> Kit:
    """Take in what the organiser made: an admission, renewed certificates, or a roster; the kit.

    Parameters
    ----------
    document : object
        Read from JSON.
    folder : path
        A silo's folder that waits for its certificate, or a kit.
    what : path
        The file it came from, for messages.
    """
    if not folder.is_dir():
        raise KitError(f"{folder} is not a folder; `fmtc federation request --kit {folder}` makes it")
    with locked(folder / LOCK, f"the kit {folder}"):
        if isinstance(document, dict) and document.get("kind") == "fmtc roster":
            kit = Kit.read(folder)
            receive(kit, document, what)
            return Kit.read(folder)
        return _accept_admission(document, folder, what)


def _accept_admission(document: Any, folder: Path, what: Any) -> Kit:
    check_schema(what, document, "fmtc admission", 1)
    check_form(what, document, {
        "role": str, "name": str, "certificates": {str: str}, "authority": str, "plan": dict,
        "roster": dict, "sealed": (str, None), "signature": str,
    })  # fmt: skip
    authority = certificate_in(document["authority"], str(what))
    _check_signature(document, identity.rsa_key(authority), str(what))
    role, name = document["role"], document["name"]
    startup = folder / ("server/startup" if role == COORDINATOR else "startup")
    if (startup / identity.AUTHORITY).exists() and identity.load_certificate(startup / identity.AUTHORITY) != authority:
        raise TrustError(f"{what} is of another authority than the kit {folder}")
    if role not in CERTIFICATES or set(document["certificates"]) != set(CERTIFICATES[role]):
        raise FileError(f"{what} is damaged: it holds other certificates than those of a {role}")
    plan = plan_in(what, document["plan"])
    roster = Roster.check(document["roster"], authority, what)
    trust = identity.Trust(authority, identity.read_revoked(document["roster"]["revoked"].encode(), authority))
    for path, text in document["certificates"].items():
        certificate = certificate_in(text, str(what))
        trust.check(name, certificate.public_bytes(Encoding.DER), datetime.now(UTC), CERTIFICATES[role][path])
        key = _key_file(folder, path, certificate, what)
    if role == COORDINATOR:
        kit = Kit.read(folder, role)
        for path, text in document["certificates"].items():
            write_file(folder / path, text.encode())
        if newer(Roster.read(kit.startup), roster):
            roster.write(kit.startup)
        tighten(folder / "server" / "startup")
        return write_kit(folder, role, name, replace(kit.plan, silos=roster.planned))
    return _accept_as_silo(document, folder, (plan, roster), key, what)


def _key_file(folder: Path, path: str, certificate: x509.Certificate, what: Any) -> Path:
    """The file with the key of a certificate; refuses one for a key that is not here."""
    place = (folder / path).parent
    for file in (place / NEXT_KEY, (folder / path).with_suffix(".key")):
        if file.exists() and identity.is_key_of(file, certificate):
            return file
    raise KitError(
        f"{what} is the answer to another request: its key ({identity.fingerprint_of(certificate)[:16]}…) is not here"
    )


def _accept_as_silo(document: dict[str, Any], folder: Path, told: tuple[Plan, Roster], key: Path, what: Any) -> Kit:
    name, startup, (plan, roster) = document["name"], folder / "startup", told
    waiting = folder / WAITING
    asked = Request.check(read_json(waiting), waiting).name if waiting.exists() else ""
    if asked not in ("", name):
        raise KitError(f"{what} is for silo {name!r}, and this folder asked for {asked!r}")
    if name not in plan.silos or name not in roster.silos:
        raise KitError(f"{what} is damaged: silo {name!r} is not in its plan or roster")
    if (folder / "kit.json").exists():
        kit = Kit.read(folder, "silo")
        if kit.name != name:
            raise KitError(f"{what} is for silo {name!r}, and {folder} is the kit of {kit.name!r}")
        if not newer(known := Roster.read(startup), roster):
            roster = known
    certificate = certificate_in(document["certificates"]["startup/client.crt"], str(what))
    salt = _opened(document["sealed"], key)
    if salt is None and not (folder / SALT).exists():
        raise KitError(f"{what} lacks the silos' common secret; ask the organiser to admit the request again")
    unknown = strangers(Kit(folder, "silo", name, plan), roster, certificate)  # before anything is written
    make_silo(plan, name, folder)
    write_file(startup / identity.AUTHORITY, document["authority"].encode())
    if salt is not None:
        write_secret(folder / SALT, salt)
    if key.name == NEXT_KEY:
        os.replace(key, startup / "client.key")
        waiting.unlink(missing_ok=True)
    write_file(startup / "client.crt", document["certificates"]["startup/client.crt"].encode())
    roster.write(startup)
    kit = write_kit(folder, "silo", name, plan)
    if not unknown:
        pin(kit, roster)
    tighten(folder)
    kit.check()
    return kit


# ------------------------------------------------------------------------------------------ the silos' common secret


def seal(salt: str, key: RSAPublicKey) -> str:
    """The salt, for the holder of one private key alone (RSA-OAEP)."""
    return key.encrypt(salt.encode(), _SEAL).hex()


def _opened(sealed: str | None, key: Path) -> str | None:
    """Undo `seal`; None where nothing was sealed."""
    try:
        return sealed and identity.load_key(key).decrypt(bytes.fromhex(sealed), _SEAL).decode("ascii")
    except ValueError:
        raise TrustError("the silos' common secret in the admission was not made for this silo") from None
