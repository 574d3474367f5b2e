"""The organiser's part: an authority that signs certificates and rosters, and never sees a silo's private key."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from ...artifacts.files import Kind, new_folder, read_file, read_json, write_file, write_json
from ...artifacts.locks import locked
from ...errors import FileError, KitError, nearest_names
from ...privacy import identity
from ..kitclient import SALT, read_salt
from .enrol import (
    CERTIFICATES,
    COORDINATOR,
    Request,
    Roster,
    accept,
    as_pem,
    certificate_in,
    pin,
    receive,
    request,
    seal,
    signed,
)
from .kits import LOCK, ROSTER, Kit, make_coordinator, write_kit, write_secret
from .plan import Plan, organisation, plan_in

DAYS = 360  # that a certificate is valid
MEMBERS = "members.json"  # in the authority's folder: the plan, and all certificates that it signed
BOOK = Kind("fmtc members", 1)


def found(plan: Plan, out: Path) -> Kit:
    """Make a federation in a new folder: its authority and the coordinator's kit; no key of a silo.

    Parameters
    ----------
    plan : Plan
    out : path
        Gets ``coordinator/`` and ``authority/``: the key that signs certificates, which stays with the organiser.
    """
    with new_folder(out, private=True) as folder:
        root = make_coordinator(plan, folder / COORDINATOR)
        home = folder / "authority"
        home.mkdir()
        write_json(home / "cert.json", root)
        write_file(home / identity.AUTHORITY, root["root_cert"].encode())
        write_secret(home / SALT, secrets.token_hex(32))
        made = {path: (folder / COORDINATOR / path).read_text() for path in CERTIFICATES[COORDINATOR]}
        issued = [{"name": COORDINATOR, "path": path, "certificate": text} for path, text in made.items()]
        write_json(home / MEMBERS, {**BOOK.head, "plan": asdict(plan), "issued": issued})
        authority = Authority.read(home)
        authority.publish({}, plan.silos, ())
        authority.roster.write(folder / COORDINATOR / "server" / "startup")
        write_kit(folder / COORDINATOR, COORDINATOR, COORDINATOR, plan)
    return Kit.read(out / COORDINATOR)


@dataclass(frozen=True)
class Authority:
    """The folder ``authority/`` of a federation: it signs certificates and rosters, and knows the silos' secret.

    Parameters
    ----------
    folder : path
    certificate, key
        The authority's own.
    """

    folder: Path
    certificate: x509.Certificate
    key: RSAPrivateKey

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """The authority in a folder; raises `KitError` for another folder."""
        if not (folder / MEMBERS).is_file():
            raise KitError(f"{folder} is not the authority/ folder that `fmtc federation init` made")
        file = folder / "cert.json"
        root = read_json(file, {"root_cert": str, "root_pri_key": str})
        key = read_file(file, lambda _: identity.parse_key(root["root_pri_key"].encode()))
        return cls(folder, certificate_in(root["root_cert"], str(file)), key)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from signing while a block runs."""
        return locked(self.folder / LOCK, f"the authority {self.folder}")

    @property
    def roster(self) -> Roster:
        """The newest roster."""
        return Roster.read(self.folder)

    def _book(self) -> dict[str, Any]:
        path = self.folder / MEMBERS
        form = {"plan": dict, "issued": [{"name": str, "path": str, "certificate": str}]}
        book = read_json(path, form, kind=BOOK)
        return dict(book) | {"plan": plan_in(path, book["plan"])}

    def _enter(self, **parts: Any) -> None:
        """Write into the book of plan and certificates."""
        book = self._book() | parts
        write_json(self.folder / MEMBERS, book | {"plan": asdict(book["plan"])}, secret=True)

    @property
    def _issued(self) -> list[tuple[str, str, x509.Certificate]]:
        """All certificates that were signed: whose, their place in a kit, and themselves."""
        lines = self._book()["issued"]
        return [(line["name"], line["path"], certificate_in(line["certificate"], MEMBERS)) for line in lines]

    @property
    def plan(self) -> Plan:
        """The plan, with the silos it has by now."""
        plan: Plan = self._book()["plan"]
        return plan

    def publish(self, silos: Mapping[str, str], planned: Sequence[str], gone: Sequence[x509.Certificate]) -> Roster:
        """Sign a new roster, with `gone` added to the certificates that no longer count."""
        number, lines, begins = 0, [], datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
        if (self.folder / ROSTER).exists():
            last = identity.read_revoked(self.roster.document["revoked"].encode(), self.certificate)
            number, lines, begins = self.roster.number + 1, list(last), last.last_update_utc
        if gone:  # OpenSSL takes the later of two lists, and counts in seconds
            begins = max(datetime.now(UTC).replace(microsecond=0), begins + timedelta(seconds=1))
            while begins > datetime.now(UTC):
                time.sleep(0.05)
        known = {line.serial_number for line in lines}
        lines += [x509.RevokedCertificateBuilder(one.serial_number, begins).build()
                  for one in gone if one.serial_number not in known]  # fmt: skip
        builder = x509.CertificateRevocationListBuilder(
            self.certificate.subject, begins, self.certificate.not_valid_after_utc, revoked_certificates=lines
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(identity.rsa_key(self.certificate))
        builder = builder.add_extension(x509.CRLNumber(number), False).add_extension(issuer, False)
        document = {
            "kind": "fmtc roster",
            "schema": 1,
            "number": number,
            "planned": list(planned),
            "silos": dict(silos),
            "revoked": as_pem(builder.sign(self.key, SHA256())),
        }
        roster = Roster(signed(document, self.key))
        roster.write(self.folder)
        self._enter(plan=replace(self.plan, silos=tuple(planned)))
        return roster

    def _issue(
        self, name: str, path: str, subject: x509.Name, key: Any, extensions: Iterable[tuple[x509.ExtensionType, bool]]
    ) -> str:
        """Sign a certificate and enter it in the book; PEM."""
        now = datetime.now(UTC)
        ends = min(now + timedelta(days=DAYS), self.certificate.not_valid_after_utc)
        builder = x509.CertificateBuilder(self.certificate.subject, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(ends)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        text = as_pem(builder.sign(self.key, SHA256()))
        self._enter(issued=[*self._book()["issued"], {"name": name, "path": path, "certificate": text}])
        return text

    def check(self, requests: Mapping[str, Request], *, add: bool = False) -> list[str]:
        """Names of the plan with those of requests that can be signed; raises `KitError` for others.

        Parameters
        ----------
        requests : mapping of str to Request
            By the name under which the silo is admitted.
        add : bool
            Names that the plan lacks are added to it.
        """
        planned = list(self.plan.silos)
        for name, asked in requests.items():
            if asked.name not in ("", name):
                raise KitError(f"the request is of silo {asked.name!r}, not of {name!r}")
            if name not in planned and not add:
                raise KitError(
                    f"silo {name!r} is not in the plan; {nearest_names(name, planned)} A new silo needs --add"
                )
            have = self.roster.fingerprints.get(name)
            if have not in (None, asked.fingerprint):
                raise KitError(
                    f"silo {name!r} was admitted with another key ({have[:16]}…); if it made a new one, revoke the "
                    f"old one first: `fmtc federation revoke --name {name}`"
                )
            if asked.fingerprint in self._burnt():
                raise KitError(f"the key of this request ({asked.fingerprint[:16]}…) was revoked; make another one")
        prints = [asked.fingerprint for asked in requests.values()]
        taken = {found: name for name, found in self.roster.fingerprints.items() if name not in requests}
        if len(set(prints)) < len(prints) or set(taken) & set(prints):
            raise KitError("one key under two names: each silo makes its own request")
        planned += [name for name in requests if name not in planned]
        replace(self.plan, silos=tuple(planned))  # checks the names
        return planned

    def admit(self, requests: Mapping[str, Request], *, add: bool = False) -> dict[str, dict[str, Any]]:
        """Sign the keys of requests; an admission for each name. All of them, or none. Parameters as in `check`."""
        planned, silos = self.check(requests, add=add), self.roster.silos
        salt = read_salt(self.folder / SALT)
        sealed = {name: seal(salt, asked.key) for name, asked in requests.items()}
        for name, asked in requests.items():
            subject = x509.Name([
                x509.NameAttribute(NameOID.COMMON_NAME, identity.SITE + name),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation(name)),
            ])  # fmt: skip
            extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
                (x509.BasicConstraints(False, None), True),
                (x509.SubjectKeyIdentifier.from_public_key(asked.key), False),
                (x509.AuthorityKeyIdentifier.from_issuer_public_key(identity.rsa_key(self.certificate)), False),
                (x509.SubjectAlternativeName([x509.DNSName(identity.SITE + name)]), False),
            )
            silos[name] = self._issue(name, "startup/client.crt", subject, asked.key, extensions)
        roster = self.publish(silos, planned, ())
        return {
            name: self._admission("silo", name, {"startup/client.crt": silos[name]}, roster, sealed[name])
            for name in requests
        }

    def _admission(
        self, role: str, name: str, certificates: Mapping[str, str], roster: Roster, sealed: str | None
    ) -> dict[str, Any]:
        return signed({
            "kind": "fmtc admission",
            "schema": 1,
            "role": role,
            "name": name,
            "certificates": dict(certificates),
            "authority": as_pem(self.certificate),
            "plan": asdict(self.plan) | {"silos": list(self.plan.silos)},
            "roster": dict(roster.document),
            "sealed": sealed,
        }, self.key)  # fmt: skip

    def revoke(self, name: str, *, remove: bool = False) -> Roster:
        """Have no certificate of a party count any more; with `remove`, the plan no longer expects it either."""
        gone = [certificate for whose, _, certificate in self._issued if whose == name]
        planned, silos = list(self.plan.silos), self.roster.silos
        if not gone and not (remove and name in planned):
            known = sorted({whose for whose, *_ in self._issued})
            raise KitError(f"{name!r} has no certificate; {nearest_names(name, known)}")
        silos.pop(name, None)
        if remove:
            planned = [other for other in planned if other != name]
            replace(self.plan, silos=tuple(planned))  # refuses to be without silos
        return self.publish(silos, planned, gone)

    def renew(self, names: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
        """New certificates for the same keys, of some parties or of all; an admission for each name.

        Parameters
        ----------
        names : sequence of str
            Of silos that were admitted, and "coordinator"; all of them if left out.
        """
        silos = self.roster.silos
        known = [COORDINATOR, *silos]
        made: dict[str, dict[str, str]] = {}
        for name, path, old in self._to_renew(list(names) or known, known):
            extensions = [(one.value, one.critical) for one in old.extensions]
            new = self._issue(name, path, old.subject, old.public_key(), extensions)
            made.setdefault(name, {})[path] = new
        silos |= {name: texts["startup/client.crt"] for name, texts in made.items() if name != COORDINATOR}
        roster = self.publish(silos, self.plan.silos, ())
        return {name: self._admission(_role(name), name, texts, roster, None) for name, texts in made.items()}

    def _to_renew(self, names: Sequence[str], known: Sequence[str]) -> list[tuple[str, str, x509.Certificate]]:
        """Name, place in the kit and last certificate of parties; refuses those that do not count any more."""
        last = {(whose, path): certificate for whose, path, certificate in self._issued}
        trust, found = identity.Trust.read(self.folder), []
        for name in names:
            if name not in known:
                raise KitError(f"{name!r} has no certificate to renew; {nearest_names(name, known)}")
            for path in CERTIFICATES[_role(name)]:
                if (name, path) not in last:
                    raise FileError(f"{self.folder / MEMBERS} is damaged: it lacks {path} of {name!r}")
                old = last[name, path]
                if trust.is_revoked(old):
                    raise KitError(f"the certificate of {name!r} was revoked; a revoked key is not signed again")
                found.append((name, path, old))
        return found

    def _burnt(self) -> set[str]:
        """Fingerprints of the keys whose certificates were revoked."""
        trust = identity.Trust.read(self.folder)
        return {identity.fingerprint_of(one) for *_, one in self._issued if trust.is_revoked(one)}


def _role(name: str) -> str:
    return COORDINATOR if name == COORDINATOR else "silo"


def enrol(plan: Plan, out: Path) -> list[Kit]:
    """Make a federation whose parties are all here: each silo requests, is admitted, accepts, and pins the others."""
    coordinator = found(plan, out)
    asked = {silo: Request.check(request(out / silo, silo)) for silo in plan.silos}
    authority = Authority.read(out / "authority")
    kits = [accept(document, out / silo) for silo, document in authority.admit(asked).items()]
    receive(coordinator, authority.roster.document)
    for kit in kits:
        pin(kit, Roster.read(kit.startup))
    return [Kit.read(coordinator.path), *kits]
