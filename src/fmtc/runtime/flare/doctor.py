"""What may keep this machine from a federation: each check says what it found and, where it failed, what to do.

The checks change nothing and send nothing of the rows. The coordinator is dialled as FLARE dials it: without a proxy,
with the certificate of the kit. It is asked for a page that it does not have; the answer shows that it accepts us, and
the time on its clock.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import shutil
import socket
import ssl
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...artifacts.files import read_json
from ...artifacts.runs import installed as version_of
from ...errors import FileError, KitError, TrustError
from ...privacy.identity import validity
from ..clock import SYSTEM, Clock
from .plan import ASK_FOR_ANOTHER, is_loopback
from .serve import honour

if TYPE_CHECKING:
    from .kits import Kit

FLARE = ("2.9.0",)  # `compat.VERIFIED`, for machines without FLARE
SOON = timedelta(days=30)  # a certificate that ends within this time gets a warning
DRIFT = timedelta(minutes=5)  # clocks may differ by this much
NEEDED, WANTED = 100 * 10**6, 10**9  # bytes free: without the first nothing works, FLARE's logs may grow to the second
PROXIES = {f"{kind}_proxy" for kind in ("http", "https", "ws", "wss", "all", "grpc")}
TIMEOUT = 5.0
SERVER = "server"  # the coordinator's name in its certificate
# Why a certificate that our authority signed does not count, by OpenSSL's X509_V_ERR_...: check, what it is, what to do
INVALID = {
    9: ("trust", "is not valid yet", "set the clock of this machine"),
    10: ("trust", "has expired", "the coordinator needs a renewed kit (`fmtc federation renew`)"),
    23: ("revoked", "was revoked", "ask the organiser who the coordinator is now"),
}
_OPEN = "it has to be open to this machine, directly: a federation uses no proxy"
_ASK = "check host and port of the plan with the coordinator"


@dataclass(frozen=True)
class Check:
    """One thing that was checked; with `ok` and advice it is a warning.

    Examples
    --------
    >>> from fmtc.runtime.flare.doctor import Check
    >>> Check("port", False, "nobody listens at localhost:8002", "start the coordinator").sentence
    'nobody listens at localhost:8002; start the coordinator'
    """

    name: str
    ok: bool
    found: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """What was found, and what to do."""
        return f"{self.found}; {self.advice}" if self.advice else self.found


def examine(kit_path: Path | None = None, *, out: Path = Path()) -> Iterator[Check]:
    """All checks that can be made, one after the other; those that need a failed one are omitted.

    Parameters
    ----------
    kit_path : path, optional
        A silo's kit or the coordinator's.
    out : path
        The folder to write to later.
    """
    yield versions(federation=kit_path is not None)
    if kit_path is not None:
        check, kit = open_kit(kit_path)
        yield check
        if kit is not None:
            yield from (expiry(kit), permissions(kit), policy(kit), roster(kit))
            yield from (own_port(kit),) if kit.role == "coordinator" else (salt(kit), proxy(), *greet(kit))
            yield disk("disk of the kit", kit.path)
    yield disk("disk for the output", out)


# ------------------------------------------------------------------------------------------------- this machine


def versions(*, federation: bool = True) -> Check:
    """Python, fmtc and FLARE; FLARE may be missing where there is no kit."""
    flare = version_of("nvflare")
    found = f"Python {platform.python_version()}, fmtc {version_of('fmtc')}, nvflare {flare or 'not installed'}"
    if flare is None and federation:
        return Check("versions", False, found, "install it: pip install 'fmtc[federation]'")
    if flare is not None and flare not in FLARE:
        return Check("versions", False, found, f"fmtc works with nvflare {' or '.join(FLARE)}: "
                     "pip install 'fmtc[federation]' installs it")  # fmt: skip
    return Check("versions", True, found)


def disk(name: str, folder: Path) -> Check:
    """Room for states and logs, in a folder that need not exist yet."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 10**9:.1f} GB free in {folder}"
    if free < NEEDED:
        return Check(name, False, found, "make room, or use another disk")
    if free < WANTED:
        return Check(name, True, found, "enough to start; FLARE's logs may grow to a gigabyte")
    return Check(name, True, found)


def clock(there: datetime) -> Check:
    """The clock of this machine, compared with the coordinator's."""
    now = datetime.now(UTC)
    found = f"{now:%Y-%m-%d %H:%M:%S} UTC here, {there:%H:%M:%S} at the coordinator"
    if abs(now - there) > DRIFT:
        ahead = "ahead of" if now > there else "behind"
        apart = timedelta(seconds=round(abs(now - there).total_seconds()))
        return Check("clock", False, f"{found}: {apart} {ahead} it", "set the clock of the machine that is wrong")
    return Check("clock", True, found)


# -------------------------------------------------------------------------------------------------------- the kit


def open_kit(path: Path) -> tuple[Check, Kit | None]:
    """Whether a folder is a complete kit: its files, and a certificate that counts now, here and for this name."""
    try:
        from .kits import Kit
    except ImportError as error:
        return Check("kit", False, f"cannot be checked: {error}", "install it, then try again"), None
    try:
        kit = Kit.read(path)
        kit.check()
    except (KitError, TrustError, FileError) as error:
        return Check("kit", False, str(error)), None
    whose = "coordinator" if kit.role == "coordinator" else f"silo {kit.name!r}"
    planned, dialled = f"{kit.plan.host}:{kit.plan.port}", where(kit)
    advice = "" if planned == dialled else f"its fed_client.json was changed to dial {dialled}"
    return Check("kit", True, f"{whose} of federation {kit.plan.name!r} at {planned}", advice), kit


def expiry(kit: Kit) -> Check:
    """How long our certificates and the authority's are valid."""
    ends = {"our certificate": validity(kit.credentials[0])[1]}
    if kit.role == "coordinator":
        ends["that of the coordinator's log-in"] = validity(kit.path / "admin/startup/client.crt")[1]
    ends["the authority's"] = validity(kit.startup / "rootCA.pem")[1]
    now = datetime.now(UTC)
    whose, end = min(ends.items(), key=lambda item: item[1])
    renew = "have the certificate renewed (`fmtc federation renew`)"
    if whose == "the authority's":
        renew = "have the federation made anew (`fmtc federation init`)"
    if now > end:
        return Check("expiry", False, f"{whose} expired on {end:%Y-%m-%d %H:%M} UTC", renew)
    found = f"{whose} ends first, on {end:%Y-%m-%d}, in {(end - now).days} days"
    return Check("expiry", True, found, renew if end - now < SOON else "")


def permissions(kit: Kit) -> Check:
    """Whether only this user can read the keys and the folder they are in."""
    secrets = sorted({*kit.path.rglob("*.key"), *kit.path.glob("salt")})
    wrong = []
    for path in (kit.path, *secrets):
        facts = path.stat()
        if facts.st_uid != os.geteuid():
            wrong.append(f"{path} belongs to user {facts.st_uid}, not to you ({os.geteuid()})")
        elif facts.st_mode & 0o077:
            wrong.append(f"{path} has permissions {stat.S_IMODE(facts.st_mode):04o}")
    if wrong:
        return Check("permissions", False, "; ".join(wrong), f"chmod -R go= {kit.path}, as its owner")
    return Check("permissions", True, f"{len(secrets)} secret file{'s' * (len(secrets) != 1)}, for this user alone")


def salt(kit: Kit) -> Check:
    """Whether the silos' common secret is intact; its check word lets silos compare theirs by telephone."""
    try:
        word = hashlib.sha256(f"fmtc check word {kit.salt}".encode()).hexdigest()[:8]
    except FileError as error:
        return Check("salt", False, f"the silos' common secret: {error}", ASK_FOR_ANOTHER)
    return Check("salt", True, f"the silos' common secret is there; its check word {word} is the same at every silo")


def roster(kit: Kit) -> Check:
    """Who was admitted, the code to compare by telephone, and whether the keys are those that were pinned."""
    from .enrol import Roster, strangers

    try:
        members = Roster.read(kit.startup)
        unknown = strangers(kit, members) if kit.role == "silo" else []
    except (KitError, TrustError, FileError) as error:
        return Check("roster", False, str(error), "ask the organiser, and the other silos by telephone")
    found = f"{len(members.silos)} of {len(members.planned)} silos admitted, roster code {members.code}"
    if kit.role == "coordinator":
        missing = [name for name in members.planned if name not in members.silos]
        return Check("roster", True, found, f"not admitted yet: {', '.join(missing)}" if missing else "")
    if unknown:
        return Check("roster", True, found, f"nobody has compared the key of {', '.join(unknown)}; `fmtc join` asks")
    return Check("roster", True, f"{found}; all keys are those in silos.toml")


# ------------------------------------------------------------------------------------------------------ the policy


def policy(kit: Kit) -> Check:
    """Whether the kit still allows fmtc's own class and nothing else."""
    try:
        wrong = kit.altered()
    except FileError as error:
        wrong = [str(error)]
    if wrong:
        return Check("policy", False, "; ".join(wrong), "restore it, or ask for a new kit")
    return Check("policy", True, "fmtc's own class only, no code from outside, no shell, no log leaves, mutual TLS")


# --------------------------------------------------------------------------------------------------- the coordinator


def own_port(kit: Kit, timeout: float = TIMEOUT) -> Check:
    """Whether the coordinator's port is free here, or taken by its own server."""
    number = kit.plan.port
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1" if is_loopback(kit.plan.host) else "", number))
            probe.listen()
    except PermissionError:
        return Check("port", False, f"only an administrator may listen at port {number}", "choose a port above 1023")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return Check("port", False, f"port {number} cannot be used ({error.strerror})", "choose another port")
        check, *_ = shake_hands(kit, "127.0.0.1", timeout)
        if check.ok or check.name == "host name":
            return Check(
                "port", True, f"port {number} is taken by a server of this federation", "one can run at a time"
            )
        return Check("port", False, f"another program listens at port {number}",
                     "end it, or choose another port and make the kits anew")  # fmt: skip
    return Check("port", True, f"port {number} is free here; it has to be open to the silos")


# ------------------------------------------------------------------------------------------ the way to the coordinator


def address(kit: Kit) -> tuple[str, int]:
    """Host and port that FLARE dials: those of the plan, unless somebody changed them."""
    target = ""
    if kit.role == "silo":
        with contextlib.suppress(FileError, LookupError, TypeError):
            target = str(read_json(kit.startup / "fed_client.json")["servers"][0]["service"]["target"])
    host, _, number = target.rpartition(":")
    return (host, int(number)) if host and number.isdigit() else (kit.plan.host, kit.plan.port)


def where(kit: Kit) -> str:
    """The same as ``host:port``."""
    return "{}:{}".format(*address(kit))


def proxy(environment: Mapping[str, str] = os.environ) -> Check:
    """Whether the environment names a proxy: a federation does not use it."""
    named = [name for name in sorted(environment) if name.lower() in PROXIES and environment[name]]
    if not named:
        return Check("proxy", True, "none in the environment")
    return Check("proxy", True, f"{', '.join(named)} set, not used: a federation connects directly")


def greet(kit: Kit, timeout: float = TIMEOUT) -> list[Check]:
    """Dial the coordinator: its name, its port, TLS, whether each side trusts the other's certificate, and its clock.

    Checks in order; those that need a failed one are omitted.
    """
    found = [host_name(kit)]
    if found[-1].ok:
        found.append(port(kit, timeout))
    return [*found, *shake_hands(kit, timeout=timeout)] if found[-1].ok else found


def host_name(kit: Kit) -> Check:
    """Whether the coordinator's name is known here."""
    host, number = address(kit)
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)})
    except (socket.gaierror, UnicodeError) as error:  # the latter for a name with an empty part, or a very long one
        if isinstance(error, OSError) and error.errno == socket.EAI_AGAIN:
            return Check("address", False, f"no name server answers the question for {host!r}",
                         "check the network and DNS of this machine")  # fmt: skip
        return Check("address", False, f"the name {host!r} of the coordinator is not known here",
                     "check the DNS of this machine, or the host in the plan")  # fmt: skip
    return Check("address", True, f"{host} is {', '.join(found)}")


def port(kit: Kit, timeout: float = TIMEOUT) -> Check:
    """Whether the coordinator's port accepts connections."""
    there = where(kit)
    try:
        socket.create_connection(address(kit), timeout).close()
    except TimeoutError:
        return Check("port", False, f"{there} does not answer",
                     f"a firewall may drop what is sent to this port; {_OPEN}")  # fmt: skip
    except ConnectionRefusedError:
        return Check("port", False, f"nobody listens at {there}",
                     "the coordinator may not have started yet, or a firewall refuses for it")  # fmt: skip
    except OSError as error:
        if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return Check("port", False, f"there is no way to {there} from here ({error.strerror})",
                         "check the network of this machine, its VPN and its routes")  # fmt: skip
        return Check("port", False, f"{there} cannot be reached ({error.strerror or error})", _OPEN)
    return Check("port", True, f"{there} accepts connections")


def shake_hands(kit: Kit, host: str | None = None, timeout: float = TIMEOUT) -> list[Check]:
    """Whether we trust who answers at the coordinator's port, whether it trusts us, and the time on its clock.

    The first check is called ``trust`` where certificates were compared, ``revoked`` where one of them no longer
    counts, ``host name`` where they agree except for the host, which FLARE does not check, and ``tls`` where
    certificates could not be compared. The clock is compared where the other side has said its time.
    """
    dialled, number = address(kit)
    host, there = host or dialled, where(kit)
    context = ssl.create_default_context(cafile=str(kit.startup / "rootCA.pem"))
    context.check_hostname = False  # checked below: FLARE does not check it, so it is no reason to stop here
    context.load_cert_chain(*kit.credentials)
    honour(context, kit.startup)
    shaken = False
    try:
        with (
            socket.create_connection((host, number), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            shaken = True
            wrong = _not_the_coordinator(kit, secure.getpeercert() or {})
            if wrong is not None and wrong.name == "trust":
                return [wrong]
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = secure.recv(4096)  # with TLS 1.3 the other side refuses us only now
    except ssl.SSLCertVerificationError as error:
        return [_distrust(kit, there, error, timeout)]
    except TimeoutError:
        late = f"{there} {'speaks TLS, but then' if shaken else 'accepts connections, but'} says nothing"
        return [Check("tls", False, late, f"it may be busy, or not the coordinator: {_ASK}")]
    except OSError as error:  # errors of ssl among them
        if shaken or (isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")):
            return [_refused(kit, there)]
        found = f"the program at {there} does not speak TLS"
        return [Check("tls", False, found, f"another program may use this port: {_ASK}")]
    if not answer:
        return [_refused(kit, there)]
    trust = wrong or Check("trust", True, f"{there} is the coordinator, and accepts our certificate")
    return [trust, *_clock(answer)]


def _refused(kit: Kit, there: str) -> Check:
    """Our certificate was refused: where nothing is wrong with it here, it was most likely revoked."""
    begins, ends = validity(kit.credentials[0])
    if begins <= datetime.now(UTC) <= ends and not kit.mixed_up():
        return Check("revoked", False, f"the coordinator at {there} does not accept our certificate any more",
                     "it was revoked, or the clock there is wrong: ask the organiser")  # fmt: skip
    return Check("trust", False, f"the coordinator at {there} does not accept the certificate of this kit",
                 "it is of another federation, or expired: ask the organiser for a new one")  # fmt: skip


def _not_the_coordinator(kit: Kit, certificate: Mapping[str, Any]) -> Check | None:
    """A failed check where a certificate of our authority is not the coordinator's, or is for another host."""
    subject = {field: value for part in certificate.get("subject", ()) for field, value in part}
    if subject.get("commonName") != SERVER:
        found = f"the program at {where(kit)} is {subject.get('commonName')!r}, not the coordinator"
        return Check("trust", False, found, _ASK)
    hosts = [str(value) for _, value in certificate.get("subjectAltName", ())]
    if kit.plan.host.lower() not in map(str.lower, hosts):
        return Check("host name", False, f"the coordinator's certificate is for {', '.join(hosts)}, not for "
                     f"{kit.plan.host}", "have the kits made for one host, and hand out all of them")  # fmt: skip
    return None


def _distrust(kit: Kit, there: str, error: ssl.SSLCertVerificationError, timeout: float) -> Check:
    """Why the certificate that was shown to us is not valid."""
    if error.verify_code in INVALID:
        name, what, advice = INVALID[error.verify_code]
        return Check(name, False, f"the certificate of the coordinator at {there} {what}", advice)
    issuer = ""
    with contextlib.suppress(OSError, ValueError):
        from cryptography import x509

        shown = ssl.get_server_certificate(address(kit), timeout=timeout)
        issuer = f", signed by {x509.load_pem_x509_certificate(shown.encode()).issuer.rfc4514_string()}"
    return Check("trust", False, f"the program at {there} has a certificate of another federation{issuer}",
                 "check host and port of the plan, ask for the kit of that federation, or have a firewall that opens "
                 "TLS connections let this one pass")  # fmt: skip


def _clock(answer: bytes) -> list[Check]:
    """The check of the clock, where an answer names the time."""
    for line in answer.split(b"\r\n"):
        if line.lower().startswith(b"date:"):
            with contextlib.suppress(ValueError):
                there = parsedate_to_datetime(line[5:].decode("ascii", "replace").strip())
                return [clock(there if there.tzinfo else there.replace(tzinfo=UTC))]  # -0000: of no zone
    return []


def _failed(kit: Kit, timeout: float, names: Collection[str]) -> Check | None:
    """The check of these names that fails when we dial the coordinator."""
    return next((check for check in greet(kit, timeout) if not check.ok and check.name in names), None)


def reachable(kit: Kit, timeout: float = TIMEOUT) -> str:
    """What keeps us from the coordinator's port, in a sentence; empty where nothing does."""
    wrong = _failed(kit, timeout, ("address", "port", "tls"))
    return "" if wrong is None else wrong.sentence


def refusal(kit: Kit, timeout: float = TIMEOUT, *, clock: Clock = SYSTEM) -> str:
    """Why coordinator and kit do not trust each other, in a sentence; empty where they do, or where nobody answers.

    Asked twice, because a server that is just being stopped cuts connections as well. Raises `TrustError` where a
    certificate was revoked, theirs or ours.
    """
    names = ("trust", "revoked")
    if _failed(kit, timeout, names) is None:
        return ""
    clock.sleep(1.0)
    wrong = _failed(kit, timeout, names)
    if wrong is not None and wrong.name == "revoked":
        raise TrustError(wrong.sentence)
    return "" if wrong is None else wrong.sentence
