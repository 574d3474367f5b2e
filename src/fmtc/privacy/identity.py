"""Who signed what: the identity of a client, the keys it has pinned, and certificates that no longer count.

A certificate says that the authority of a federation knows a name. Whoever holds the authority can make one for any
name. Clients therefore pin each other's public keys: the first time a person compares them, afterwards a change is
refused. `roster_code` makes the comparison short enough for the telephone.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from ..artifacts.files import read_file, write_file
from ..errors import KitError, TrustError, listed

SLOW = 2**15  # steps of scrypt for a roster's code: a tenth of a second
PINS = "silos.toml"  # in a client's kit: the fingerprint of each client's public key
REVOKED = "revoked.pem"  # beside a certificate: the certificates that no longer count, signed by the authority
AUTHORITY = "rootCA.pem"  # beside a certificate: the certificate of the authority
SITE = "silo-"  # the common name of a client's certificate begins with it
LEAST_BITS = 2048  # of an RSA key
_PIN = re.compile("[0-9a-f]{64}")
_PINS_TEXT = (
    "# The public keys of the silos of this federation: SHA-256, compared by a person when they were first seen.\n"
    "# A silo with another key is refused. Delete a line to be asked again.\n"
)


class SelfSigned:
    """An identity without certificates, for clients of one process: who they are is not in doubt.

    Parameters
    ----------
    name : str
        The client's.

    Examples
    --------
    >>> from fmtc.privacy.identity import SelfSigned
    >>> north, south = SelfSigned("north"), SelfSigned("south")
    >>> signature = north.sign(b"hello")
    >>> len(south.verify("north", north.certificate, b"hello", signature))
    64
    >>> south.verify("north", north.certificate, b"goodbye", signature)
    Traceback (most recent call last):
    ...
    fmtc.errors.TrustError: the signature of 'north' does not fit what it sent
    """

    def __init__(self, name: str):
        self.name = name
        self._key = Ed25519PrivateKey.generate()
        self.certificate = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """An Ed25519 signature."""
        return self._key.sign(data)

    def verify(self, name: str, certificate: bytes, data: bytes, signature: bytes) -> str:
        """Fingerprint of the key; checks the signature only."""
        try:
            Ed25519PublicKey.from_public_bytes(certificate).verify(signature, data)
        except (InvalidSignature, ValueError, TypeError):
            raise TrustError(f"the signature of {name!r} does not fit what it sent") from None
        return hashlib.sha256(certificate).hexdigest()


class KitIdentity:
    """The identity that a client's kit holds: a certificate of the federation's authority, and pins of the others.

    Parameters
    ----------
    kit : path
        Folder of the kit.
    aliases : mapping of str to str, optional
        Names in certificates of clients that have another name in a run.
    """

    def __init__(self, kit: Path, aliases: Mapping[str, str] | None = None):
        self.folder, self.aliases = Path(kit), dict(aliases or {})
        startup = self.folder / "startup"
        own, self._key = load_certificate(startup / "client.crt"), load_key(startup / "client.key")
        if not is_key_of(startup / "client.key", own):
            raise KitError(f"{startup / 'client.key'} is not the key of client.crt beside it")
        self._trust = Trust.read(startup)
        self.name = common_name(own).removeprefix(SITE)
        self.certificate = own.public_bytes(Encoding.DER)
        self.fingerprint = fingerprint_of(own)

    def sign(self, data: bytes) -> bytes:
        """An RSA-PSS signature."""
        return signature_of(data, self._key)

    def verify(self, name: str, certificate: bytes, data: bytes, signature: bytes) -> str:
        """Fingerprint of who signed, once chain, name, validity, revocation list, signature and pin are right."""
        name = self.aliases.get(name, name)
        shown = self._trust.check(name, certificate, datetime.now(UTC))
        if not is_signed(data, signature, rsa_key(shown)):
            raise TrustError(f"the signature of {name!r} does not fit what it sent")
        found = fingerprint_of(shown)
        if check_pins({name: found}, {**read_pins(self.folder / PINS), self.name: self.fingerprint}):
            raise TrustError(
                f"silo {name!r} (fingerprint {found[:16]}…) is not in {PINS}: nobody has compared its key; "
                "`fmtc join` shows it and asks"
            )
        return found


Identity = SelfSigned | KitIdentity  # a client that can sign, and can tell who signed


# ------------------------------------------------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Trust:
    """What decides whether a certificate counts: the authority's own, and its list of those that no longer do."""

    authority: x509.Certificate
    revoked: x509.CertificateRevocationList | None = None

    @classmethod
    def read(cls, startup: Path) -> Trust:
        """From the folder of a kit's certificate."""
        authority = load_certificate(startup / AUTHORITY)
        file = startup / REVOKED
        if not file.exists():
            return cls(authority)
        return cls(authority, read_file(file, lambda content: read_revoked(content, authority, file)))

    def check(self, name: str, certificate: bytes, now: datetime, site: str | None = None) -> x509.Certificate:
        """The certificate (DER) of a client, or `TrustError`; `site` is its common name, if it is no client's."""
        who = f"the certificate of {name!r}"
        try:
            shown = x509.load_der_x509_certificate(certificate)
            found = common_name(shown)
            is_authority = _is_authority(shown)
        except (ValueError, TypeError):
            raise TrustError(f"{who} cannot be read") from None
        if not self.signed(shown):
            raise TrustError(f"{who} is of another federation: our authority did not sign it")
        site = f"{SITE}{name}" if site is None else site
        if found != site or is_authority:
            raise TrustError(f"{who} is for {found!r}, not for {site!r}")
        for one, whose in ((shown, who), (self.authority, "the certificate of the authority")):
            if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
                raise TrustError(
                    f"{whose} is valid from {one.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                    f"{one.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and now it is {now:%Y-%m-%d %H:%M} UTC"
                )
        if self.is_revoked(shown):
            raise TrustError(f"{who} was revoked; the organiser of the federation can say why")
        rsa_key(shown)
        return shown

    def signed(self, certificate: x509.Certificate) -> bool:
        """Whether a certificate is of the authority."""
        try:
            certificate.verify_directly_issued_by(self.authority)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def is_revoked(self, certificate: x509.Certificate) -> bool:
        """Whether the list names a certificate."""
        if self.revoked is None:
            return False
        return self.revoked.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None


def load_certificate(path: Path) -> x509.Certificate:
    """The certificate in a PEM file."""
    return read_file(path, parse_certificate, "is not a certificate", KitError)


def validity(path: Path) -> tuple[datetime, datetime]:
    """From when to when a certificate is valid."""
    certificate = load_certificate(path)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def parse_certificate(content: bytes) -> x509.Certificate:
    """The certificate in PEM; whatever is wrong in it is found here, and not when a part of it is used."""
    certificate = x509.load_pem_x509_certificate(content)
    common_name(certificate)
    _ = certificate.public_key(), certificate.extensions, certificate.not_valid_before_utc
    return certificate


def load_key(path: Path) -> RSAPrivateKey:
    """The private key in a PEM file."""
    return read_file(path, parse_key, "is not a private key", KitError)


def parse_key(content: bytes) -> RSAPrivateKey:
    """The private key in PEM."""
    key = load_pem_private_key(content, None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("it is not an RSA key")
    return key


def read_revoked(content: bytes, authority: x509.Certificate, where: Any = "the list of revoked certificates") -> Any:
    """A list of revoked certificates (PEM) that the authority signed; raises `TrustError` for any other."""
    try:
        crl = x509.load_pem_x509_crl(content)
        ours = crl.issuer == authority.subject and crl.is_signature_valid(rsa_key(authority))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TrustError(f"{where} is damaged: {str(error).splitlines()[0]}") from None
    if not ours:
        raise TrustError(f"{where} is not signed by the authority of this federation")
    return crl


def revoked_number(crl: x509.CertificateRevocationList | None) -> int:
    """How new a list is: each has a higher number than the one before; -1 for none."""
    if crl is None:
        return -1
    return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def common_name(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The name that a certificate is for; raises `ValueError` unless there is exactly one."""
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def rsa_key(certificate: x509.Certificate) -> RSAPublicKey:
    """The public key of a certificate, which kits have as RSA."""
    key = certificate.public_key()
    if not isinstance(key, RSAPublicKey) or key.key_size < LEAST_BITS:
        raise TrustError(f"the key of {common_name(certificate)!r} is not an RSA key of at least {LEAST_BITS} bits")
    return key


_PADDING = PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH)


def signature_of(data: bytes, key: RSAPrivateKey) -> bytes:
    """RSA-PSS with SHA-256; its salt is as long as the digest."""
    return key.sign(data, _PADDING, SHA256())


def is_signed(data: bytes, signature: bytes, key: RSAPublicKey) -> bool:
    """Whether a signature of `signature_of` is of these data and this key."""
    try:
        key.verify(signature, data, _PADDING, SHA256())
    except (InvalidSignature, TypeError):
        return False
    return True


def is_key_of(file: Path, certificate: x509.Certificate) -> bool:
    """Whether a file holds the private key of a certificate."""
    return load_key(file).public_key() == certificate.public_key()


def fingerprint_of(holder: Any) -> str:
    """SHA-256 of the public key of a certificate or a signing request, in hex: a new certificate leaves it as it is."""
    key = holder.public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


# -------------------------------------------------------------------------------------------------------------- pins


def read_pins(path: Path) -> dict[str, str]:
    """The fingerprints that a client has pinned, by name; empty where there is no file yet."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        pins = document.pop("silos", {})
        fits = not document and isinstance(pins, dict)
        if not fits or not all(isinstance(pin, str) and _PIN.fullmatch(pin) for pin in pins.values()):
            raise ValueError("it has one table, [silos], of names and fingerprints of 64 hex digits")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TrustError(f"{path} is damaged: {error}; restore it, or delete it to be asked about all silos") from None
    return dict(pins)


def write_pins(path: Path, pins: Mapping[str, str]) -> None:
    """Add fingerprints to those that are pinned; one that is pinned already cannot change."""
    known = read_pins(path)
    check_pins(pins, known)
    lines = [f'{name} = "{pin}"\n' for name, pin in sorted({**known, **pins}.items())]
    write_file(path, (_PINS_TEXT + "\n[silos]\n" + "".join(lines)).encode(), secret=True)


def check_pins(shown: Mapping[str, str], pins: Mapping[str, str]) -> list[str]:
    """Names that are not pinned yet; raises `TrustError` where a client shows another key than the pinned one."""
    changed = sorted(name for name, found in shown.items() if pins.get(name, found) != found)
    if changed:
        first = changed[0]
        raise TrustError(
            f"silo {listed(changed)} shows another key than before: {first!r} has the fingerprint {shown[first][:16]}… "
            f"and {PINS} says {pins[first][:16]}…. Ask that silo by telephone whether it made a new key; if so, "
            f"delete its line in {PINS}"
        )
    return sorted(set(shown) - set(pins))


def roster_code(fingerprints: Mapping[str, str]) -> str:
    """Sixteen hex digits that are the same for everybody who sees the same names with the same keys.

    Two people compare it on the telephone. The code is short, so it is made slow: scrypt over the SHA-256 of names and
    fingerprints. Somebody who wants to show two silos different rosters with one code has to try about 2 to the power
    of 32 of them, a tenth of a second and 32 MB each.

    Parameters
    ----------
    fingerprints : mapping of str to str
        Name of each client to the SHA-256 of its public key, in hex.

    Examples
    --------
    >>> from fmtc.privacy.identity import roster_code
    >>> roster_code({"north": "00" * 32, "south": "11" * 32})
    'a5a7-8316-f945-c35f'
    >>> roster_code({"south": "11" * 32, "north": "00" * 32}) == roster_code({"north": "00" * 32, "south": "11" * 32})
    True
    """
    digest = hashlib.sha256()
    for name, found in sorted(fingerprints.items()):
        digest.update(hashlib.sha256(name.encode()).digest() + bytes.fromhex(found))
    code = _stretched(digest.digest(), SLOW)
    return "-".join(code[place : place + 4] for place in range(0, 16, 4))


@cache
def _stretched(digest: bytes, steps: int) -> str:
    return Scrypt(salt=b"fmtc-roster-1", length=8, n=steps, r=8, p=1).derive(digest).hex()


def key_code(fingerprint: str) -> str:
    """The fingerprint of one key in sixteen hex digits, for the telephone.

    Whoever exchanges a request on its way needs another key with this very code. That takes 2 to the power of 64 tries
    as slow as those of `roster_code`: two keys with the same code of one's own, which are easier to find, do not help.

    Examples
    --------
    >>> from fmtc.privacy.identity import key_code
    >>> key_code("00" * 32)
    'e05e-5254-66ea-7ec6'
    """
    return roster_code({"": fingerprint})


def same_code(one: str, other: str) -> bool:
    """Whether two codes are the same, however they were written down."""
    first, second = (re.sub("[^0-9a-f]", "", code.lower()) for code in (one, other))
    return len(first) == 16 and first == second
