"""The way to the coordinator: its name, its port, TLS, and whether each side trusts the other's certificate.

The coordinator is dialled as FLARE dials it: without a proxy, with the certificate of the kit. It is asked for a page
that it does not have; the answer shows that it accepts us, and the time on its clock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ...artifacts.files import read_json
from ...errors import FileError, TrustError
from ..clock import SYSTEM, Clock
from .serve import honour

if TYPE_CHECKING:
    from .kits import Kit

PROXIES = {f"{kind}_proxy" for kind in ("http", "https", "ws", "wss", "all", "grpc")}
TIMEOUT = 5.0
SERVER = "server"  # the coordinator's name in its certificate
_NOT_YET, _EXPIRED, _REVOKED = 9, 10, 23  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID, ..._HAS_EXPIRED, ..._REVOKED
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


@dataclass(frozen=True)
class Greeting:
    """What came of dialling the coordinator: checks in order, of which the last may have failed, and its clock."""

    checks: tuple[Check, ...]
    date: datetime | None = None


def service(kit: Kit) -> dict[str, Any]:
    """Where and how FLARE dials, or listens."""
    name = "fed_server.json" if kit.role == "coordinator" else "fed_client.json"
    try:
        return dict(read_json(kit.startup / name)["servers"][0]["service"])
    except (FileError, LookupError, TypeError):
        return {}


def address(kit: Kit) -> tuple[str, int]:
    """Host and port that FLARE dials: those of the plan, unless somebody changed them."""
    host, _, number = str(service(kit).get("target", "")).rpartition(":")
    return (host, int(number)) if kit.role == "silo" and host and number.isdigit() else (kit.plan.host, kit.plan.port)


def where(kit: Kit) -> str:
    """The same as ``host:port``."""
    return "{}:{}".format(*address(kit))


def proxy(kit: Kit, environment: Mapping[str, str] | None = None) -> Check:
    """Whether a proxy of the environment would divert the connection; over gRPC, FLARE would use it."""
    environment = os.environ if environment is None else environment
    named = [name for name in sorted(environment) if name.lower() in PROXIES and environment[name]]
    if not named:
        return Check("proxy", True, "none in the environment")
    bypassed = {"no": environment.get("no_proxy") or environment.get("NO_PROXY", "")}
    host, _ = address(kit)
    if urllib.request.proxy_bypass_environment(host, bypassed):  # type: ignore[attr-defined]
        return Check("proxy", True, f"{', '.join(named)} set, and not for {host}")
    if "grpc" in str(service(kit).get("scheme")):
        return Check("proxy", False, f"{', '.join(named)} would divert the connection to {host}",
                     f"add the host to no_proxy: export no_proxy={host}")  # fmt: skip
    return Check("proxy", True, f"{', '.join(named)} set, not used: a federation connects directly")


def greet(kit: Kit, timeout: float = TIMEOUT) -> Greeting:
    """Dial the coordinator: its name, its port, TLS, and whether each side trusts the other's certificate."""
    name = host_name(kit)
    if not name.ok:
        return Greeting((name,))
    answered = port(kit, timeout)
    if not answered.ok:
        return Greeting((name, answered))
    trust, date = shake_hands(kit, timeout=timeout)
    return Greeting((name, answered, trust), date)


def host_name(kit: Kit) -> Check:
    """Whether the coordinator's name is known here."""
    host, number = address(kit)
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)})
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
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


def shake_hands(kit: Kit, host: str | None = None, timeout: float = TIMEOUT) -> tuple[Check, datetime | None]:
    """Whether we trust who answers at the coordinator's port, whether it trusts us, and the time on its clock.

    The check is called ``trust`` where certificates were compared, ``revoked`` where one of them no longer counts,
    ``host name`` where they agree except for the host, which FLARE does not check, and ``tls`` where certificates could
    not be compared.
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
                return wrong, None
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = secure.recv(4096)  # with TLS 1.3 the other side refuses us only now
    except ssl.SSLCertVerificationError as error:
        return _distrust(kit, there, error, timeout), None
    except TimeoutError:
        late = f"{there} {'speaks TLS, but then' if shaken else 'accepts connections, but'} says nothing"
        return Check("tls", False, late, f"it may be busy, or not the coordinator: {_ASK}"), None
    except OSError as error:  # errors of ssl among them
        refused = shaken or (isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""))
        return (_refused(kit, there) if refused else _no_tls(there)), None
    if not answer:
        return _refused(kit, there), None
    return wrong or Check("trust", True, f"{there} is the coordinator, and accepts our certificate"), _date(answer)


def _no_tls(there: str) -> Check:
    return Check("tls", False, f"the program at {there} does not speak TLS",
                 f"another program may use this port: {_ASK}")  # fmt: skip


def _refused(kit: Kit, there: str) -> Check:
    """Our certificate was refused: where nothing is wrong with it here, it was most likely revoked."""
    from .kits import mixed_up, validity

    begins, ends = validity(kit.credentials[0])
    if begins <= datetime.now(UTC) <= ends and not mixed_up(kit):
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
    if error.verify_code == _EXPIRED:
        return Check("trust", False, f"the certificate of the coordinator at {there} has expired",
                     "the coordinator needs a renewed kit (`fmtc federation renew`)")  # fmt: skip
    if error.verify_code == _REVOKED:
        return Check("revoked", False, f"the certificate of the coordinator at {there} was revoked",
                     "ask the organiser who the coordinator is now")  # fmt: skip
    if error.verify_code == _NOT_YET:
        return Check("trust", False, f"the certificate of the coordinator at {there} is not valid yet",
                     "set the clock of this machine")  # fmt: skip
    issuer = ""
    with contextlib.suppress(OSError, ValueError):
        from cryptography import x509

        shown = ssl.get_server_certificate(address(kit), timeout=timeout)
        issuer = f", signed by {x509.load_pem_x509_certificate(shown.encode()).issuer.rfc4514_string()}"
    return Check("trust", False, f"the program at {there} has a certificate of another federation{issuer}",
                 "check host and port of the plan, ask for the kit of that federation, or have a firewall that opens "
                 "TLS connections let this one pass")  # fmt: skip


def _date(answer: bytes) -> datetime | None:
    for line in answer.split(b"\r\n"):
        if line.lower().startswith(b"date:"):
            with contextlib.suppress(ValueError):
                return parsedate_to_datetime(line[5:].decode("ascii", "replace").strip())
    return None


def reachable(kit: Kit, timeout: float = TIMEOUT) -> str:
    """What keeps us from the coordinator's port, in a sentence; empty where nothing does."""
    last = greet(kit, timeout).checks[-1]
    return "" if last.ok or last.name in ("trust", "revoked", "host name") else last.sentence


def refusal(kit: Kit, timeout: float = TIMEOUT, *, clock: Clock = SYSTEM) -> str:
    """Why coordinator and kit do not trust each other, in a sentence; empty where they do, or where nobody answers.

    Asked twice, because a server that is just being stopped cuts connections as well. Raises `TrustError` where a
    certificate was revoked, theirs or ours.
    """
    for pause in (1.0, 0.0):
        last = greet(kit, timeout).checks[-1]
        if last.ok or last.name not in ("trust", "revoked"):
            return ""
        clock.sleep(pause)
    if last.name == "revoked":
        raise TrustError(last.sentence)
    return last.sentence


__all__ = ["Check", "Greeting", "greet", "reachable", "refusal"]
