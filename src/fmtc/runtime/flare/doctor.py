"""What may keep this machine from a federation: each check says what was found, and what to do where it failed.

Nothing is changed and nothing of the rows is read out. The coordinator is dialled as FLARE dials it, without a proxy,
with this kit's certificate; it is asked for a page that it does not have, which tells that it accepts us and what its
clock says.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import shutil
import socket
import ssl
import stat
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...artifacts.files import read_json
from ...errors import FileError

if TYPE_CHECKING:
    from cryptography import x509

    from .federation import Kit

PYTHON = (3, 11)
FLARE = (2, 9)  # the series fmtc was tested with
SOON = timedelta(days=30)  # a certificate that ends this soon is worth a word
DRIFT = timedelta(minutes=5)  # clocks may differ this much
NEEDED, WANTED = 100 * 10**6, 10**9  # bytes free: without the first nothing works, FLARE's logs may grow to the second
PROXIES = {f"{kind}_proxy" for kind in ("http", "https", "ws", "wss", "all", "grpc")}
TIMEOUT = 5.0
RIGHTS = ("submit_job", "manage_job", "view")  # all that the coordinator may do in a silo
SERVER = "server"  # the coordinator's name in its certificate


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; with `ok` and advice it is a warning.

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


def examine(
    kit_path: Path | None = None,
    *,
    data: Path | None = None,
    columns: Mapping[str, Any] | None = None,
    out: Path = Path(),
    extras: Mapping[str, str] | None = None,
) -> Iterator[Check]:
    """All checks that can be made, one after the other; what builds on a failed one is left out.

    Parameters
    ----------
    kit_path : path, optional
        A silo's kit or the coordinator's.
    data : path, optional
        The file of rows that a silo is going to join with.
    columns : mapping, optional
        How it is going to be read: keyword arguments of `fmtc.tables.read_silos`.
    out : path
        The folder that is going to be written.
    extras : mapping of extra to package, optional
        Optional packages to report on.
    """
    yield versions(federation=kit_path is not None)
    if extras is not None:
        yield installed(extras)
    kit = None
    if kit_path is not None:
        check, kit = open_kit(kit_path)
        yield check
    if kit is None:
        yield clock()
    else:
        yield expiry(kit)
        yield permissions(kit)
        yield policy(kit)
        if kit.role == "silo":
            yield salt(kit)
        greeting = greet(kit) if kit.role == "silo" else None
        yield proxy(kit)
        yield from (own_name(kit), own_port(kit), store(kit)) if greeting is None else greeting.checks
        yield clock(kit, None if greeting is None else greeting.date)
        yield disk("disk of the kit", kit.path)
    yield disk("disk for the output", out)
    if data is not None:
        yield data_file(data, kit, columns or {})


# ------------------------------------------------------------------------------------------------- this machine


def versions(*, federation: bool = True) -> Check:
    """Python, fmtc and FLARE; FLARE may be missing where no federation is asked for."""
    flare = _version("nvflare")
    found = f"Python {platform.python_version()}, fmtc {_version('fmtc')}, nvflare {flare or 'not installed'}"
    if tuple(map(int, platform.python_version_tuple()[:2])) < PYTHON:
        return Check("versions", False, found, f"fmtc needs Python {'.'.join(map(str, PYTHON))} or later")
    if flare is None and federation:
        return Check("versions", False, found, "install it: pip install 'fmtc[federation]'")
    if flare is not None and tuple(flare.split(".")[:2]) != tuple(map(str, FLARE)):
        return Check("versions", False, found, f"fmtc works with nvflare {'.'.join(map(str, FLARE))}: "
                     "pip install 'fmtc[federation]' brings it")  # fmt: skip
    return Check("versions", True, found)


def installed(extras: Mapping[str, str]) -> Check:
    """Which optional parts are there."""
    there = {extra: _version(package) for extra, package in extras.items()}
    return Check("extras", True, ", ".join(f"{extra} {'yes' if there[extra] else 'no'}" for extra in there))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def disk(name: str, folder: Path) -> Check:
    """Room for states and logs, in a folder or where it is going to be."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 10**9:.1f} GB free in {folder}"
    if free < NEEDED:
        return Check(name, False, found, "make room, or take another disk")
    if free < WANTED:
        return Check(name, True, found, "enough to start; FLARE's logs may grow to a gigabyte")
    return Check(name, True, found)


def data_file(path: Path, kit: Kit | None, columns: Mapping[str, Any]) -> Check:
    """Whether a run can use the rows, as `fmtc join` reads them; `fmtc preflight` says what suits the federation."""
    from ...errors import DataError
    from ...tables import constant_columns, read_silos

    if columns.get("text_column") is not None and kit is not None:
        columns = {**columns, "salt": kit.salt}
    try:
        (silo,) = read_silos([path], **columns)
    except DataError as error:
        return Check("data", False, str(error), "give the file and the flags that `fmtc join` is going to have")
    found = f"{path.name}: {silo.X.shape[0]:,} rows, {silo.X.shape[1]:,} columns that are clustered"
    constant = [] if columns.get("text_column") is not None else [*constant_columns([silo])]
    return Check("data", True, found, f"{len(constant)} have one value in all rows, such as {constant[0]!r}"
                 if constant else "")  # fmt: skip


def clock(kit: Kit | None = None, there: datetime | None = None) -> Check:
    """The clock here against the coordinator's, or against files and certificates, which are older than now."""
    now = datetime.now(UTC)
    if there is not None:
        found = f"{now:%Y-%m-%d %H:%M:%S} UTC here, {there:%H:%M:%S} at the coordinator"
        if abs(now - there) > DRIFT:
            ahead = "ahead of" if now > there else "behind"
            return Check("clock", False, f"{found}: {_span(abs(now - there))} {ahead} it",
                         "set the clock of the machine that is wrong")  # fmt: skip
        return Check("clock", True, found)
    files = [Path(__file__)]
    if kit is not None:
        files = [kit.path / "kit.json", *kit.startup.iterdir()]
        begins = _certificate(kit.startup / _names(kit)[0]).not_valid_before_utc
        if now < begins:
            found = f"{now:%Y-%m-%d %H:%M} UTC, before our certificate begins ({begins:%Y-%m-%d %H:%M})"
            return Check(
                "clock", False, found, "set the clock; if it is right, the clock was wrong where kits are made"
            )
    newest = datetime.fromtimestamp(max(file.stat().st_mtime for file in files), UTC)
    whose = "fmtc" if kit is None else "the kit"
    if now < newest - DRIFT:
        found = f"{now:%Y-%m-%d %H:%M} UTC, before files of {whose} were written ({newest:%Y-%m-%d %H:%M})"
        return Check("clock", False, found, "set the clock")
    older = "files of fmtc" if kit is None else "our certificate and the kit's files"
    return Check("clock", True, f"{now:%Y-%m-%d %H:%M} UTC, later than {older}; compared with nothing else")


def _span(time: timedelta) -> str:
    return str(timedelta(seconds=round(time.total_seconds())))


# -------------------------------------------------------------------------------------------------------- the kit


def open_kit(path: Path) -> tuple[Check, Kit | None]:
    """Whether a folder is a whole kit: its files, and a certificate that belongs to key, authority and name."""
    ask = "ask the person who made the kits for a new one"
    try:
        from ...errors import KitError
        from .federation import Kit
    except ImportError as error:
        return Check("kit", False, f"cannot be looked at: {error}", "install it, then come back"), None
    try:
        kit = Kit.read(path)
    except (KitError, FileError) as error:
        return Check("kit", False, str(error), "give the folder that `fmtc federation init` made for you"), None
    files = [kit.startup / name for name in (*_names(kit), "rootCA.pem")]
    if kit.role == "coordinator":
        files += [kit.path / "admin/startup" / name for name in ("client.crt", "client.key", "rootCA.pem")]
    missing = [str(file.relative_to(kit.path)) for file in files if not file.is_file()]
    if missing:
        return Check("kit", False, f"{', '.join(missing)} missing in {kit.path}", ask), None
    wrong = mixed_up(kit)
    if wrong:
        return Check("kit", False, wrong, ask), None
    whose = "coordinator" if kit.role == "coordinator" else f"silo {kit.name!r}"
    planned, dialled = f"{kit.plan.host}:{kit.plan.port}", _where(kit)
    advice = "" if planned == dialled else f"its fed_client.json was changed to dial {dialled}"
    return Check("kit", True, f"{whose} of federation {kit.plan.name!r} at {planned}", advice), kit


def _names(kit: Kit) -> tuple[str, str]:
    """Files of certificate and key."""
    name = "server" if kit.role == "coordinator" else "client"
    return f"{name}.crt", f"{name}.key"


def _certificate(path: Path) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(path.read_bytes())


def mixed_up(kit: Kit) -> str:
    """What does not belong together in a kit, in a sentence; empty where all does."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import NameOID

    crt, key = _names(kit)
    try:
        certificate, authority = _certificate(kit.startup / crt), _certificate(kit.startup / "rootCA.pem")
        private = load_pem_private_key((kit.startup / key).read_bytes(), None)
    except (OSError, ValueError) as error:
        return f"certificate, key or rootCA.pem in {kit.startup} is damaged: {str(error).splitlines()[0]}"
    if private.public_key() != certificate.public_key():
        return f"{key} is not the key of {crt} in {kit.startup}"
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return f"{crt} in {kit.startup} is of another federation: the authority of this kit did not sign it"
    name = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    if name != kit.site:
        return f"{crt} in {kit.startup} is for {name!r}, this is the kit of {kit.site!r}"
    return ""


def _service(kit: Kit) -> dict[str, Any]:
    """Where and how FLARE dials, or listens."""
    name = "fed_server.json" if kit.role == "coordinator" else "fed_client.json"
    try:
        return dict(read_json(kit.startup / name)["servers"][0]["service"])
    except (FileError, LookupError, TypeError):
        return {}


def _address(kit: Kit) -> tuple[str, int]:
    """Host and port that FLARE dials; those of the plan, unless somebody changed them."""
    host, _, number = str(_service(kit).get("target", "")).rpartition(":")
    return (host, int(number)) if kit.role == "silo" and host and number.isdigit() else (kit.plan.host, kit.plan.port)


def _where(kit: Kit) -> str:
    return "{}:{}".format(*_address(kit))


def expiry(kit: Kit) -> Check:
    """How long our certificates and the authority's hold."""
    ends = {"our certificate": _certificate(kit.startup / _names(kit)[0]).not_valid_after_utc}
    if kit.role == "coordinator":
        log_in = kit.path / "admin/startup/client.crt"
        ends["that of the coordinator's log-in"] = _certificate(log_in).not_valid_after_utc
    ends["the authority's"] = _certificate(kit.startup / "rootCA.pem").not_valid_after_utc
    now = datetime.now(UTC)
    whose, end = min(ends.items(), key=lambda item: item[1])
    renew = "have the kits renewed (`fmtc federation renew`)"
    if whose == "the authority's":
        renew = "have all kits made anew (`fmtc federation init`)"
    if now > end:
        return Check("expiry", False, f"{whose} expired on {end:%Y-%m-%d %H:%M} UTC", renew)
    found = f"{whose} ends first, on {end:%Y-%m-%d}, in {(end - now).days} days"
    return Check("expiry", True, found, renew if end - now < SOON else "")


def permissions(kit: Kit) -> Check:
    """Whether keys, and the folder they are in, are their owner's alone."""
    if os.name != "posix":
        return Check("permissions", True, "not looked at on this system", "see that only you can read the kit")
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
    """Whether the silos' common secret is there and whole; a check word lets silos compare theirs by telephone."""
    ask = "ask the person who made the kits for a new one"
    try:
        secret = kit.salt
    except (OSError, ValueError) as error:
        return Check("salt", False, f"the silos' common secret cannot be read: {error}", ask)
    if not re.fullmatch("[0-9a-f]{64}", secret):
        return Check("salt", False, f"the silos' common secret in {kit.path / 'salt'} is damaged", ask)
    word = hashlib.sha256(f"fmtc check word {secret}".encode()).hexdigest()[:8]
    return Check("salt", True, f"the silos' common secret is there; its check word {word} is the same at every silo")


# ------------------------------------------------------------------------------------------------------ the policy


def policy(kit: Kit) -> Check:
    """Whether the kit still lets fmtc's own class run and nothing else."""
    try:
        wrong = [*_open_doors(kit)]
    except FileError as error:
        wrong = [str(error)]
    except (LookupError, TypeError, AttributeError) as error:
        wrong = [f"a policy file is damaged ({type(error).__name__}: {error})"]
    if wrong:
        return Check("policy", False, "; ".join(wrong), "put it back as it was, or ask for a new kit")
    return Check("policy", True, "fmtc's own class only, no code from outside, no shell, no log leaves, mutual TLS")


def _open_doors(kit: Kit) -> Iterator[str]:
    """What a policy allows that it should not."""
    from .federation import CONTROLLER, EXECUTOR

    coordinator = kit.role == "coordinator"
    local = kit.workspace / "local"
    resources = read_json(local / ("resources.template.json" if coordinator else "resources.json"))
    strangers = set(resources["class_allow_list"]) - {CONTROLLER if coordinator else EXECUTOR}
    if strangers:
        yield f"jobs may use {', '.join(sorted(map(str, strangers)))}"
    if resources["class_list_enforcement_mode"] != "enforce":
        yield "jobs may use any class: the list of classes is not enforced"
    if not coordinator and resources["allow_log_streaming"] is not False:
        yield "logs may be sent to the coordinator"
    for component in resources["components"]:
        if "log" in component["path"].lower():
            yield f"{component['path']} may send logs away"
        elif not component["path"].startswith("nvflare."):
            yield f"{component['path']} is no part of FLARE"
    rights = read_json(local / "authorization.json")["permissions"]
    for role, may in rights.items():
        if isinstance(may, str):
            may = dict.fromkeys(("byoc", "shell_commands"), may)
        for right, whom in may.items():
            if right not in RIGHTS and whom != "none":
                yield f"{role} has the right {right}"
    if (local / "custom").exists():
        yield f"{local / 'custom'} holds code that FLARE would load"
    where, section = ("fed_server.json", "servers") if coordinator else ("fed_client.json", "client")
    config = read_json(kit.startup / where)[section]
    inside = read_json(local / "comm_config.json")["internal"]["resources"]
    for place, connection in (("with others", config[0] if coordinator else config), ("inside this machine", inside)):
        if connection.get("connection_security") != "mtls":
            yield f"connections {place} are of kind {connection.get('connection_security')!r}, not mutual TLS"


# --------------------------------------------------------------------------------------------------- the connection


def proxy(kit: Kit, environment: Mapping[str, str] | None = None) -> Check:
    """Whether a proxy of the environment would come between us and the coordinator: FLARE over gRPC would take it."""
    environment = os.environ if environment is None else environment
    named = [name for name in sorted(environment) if name.lower() in PROXIES and environment[name]]
    if not named:
        return Check("proxy", True, "none in the environment")
    bypassed = {"no": environment.get("no_proxy") or environment.get("NO_PROXY", "")}
    host, _ = _address(kit)
    if urllib.request.proxy_bypass_environment(host, bypassed):  # type: ignore[attr-defined]
        return Check("proxy", True, f"{', '.join(named)} set, and not for {host}")
    scheme = str(_service(kit).get("scheme"))
    if "grpc" in scheme:
        return Check("proxy", False, f"{', '.join(named)} would divert the connection to {host}",
                     f"add the host to no_proxy: export no_proxy={host}")  # fmt: skip
    return Check("proxy", True, f"{', '.join(named)} set, not used: a federation connects directly")


@dataclass(frozen=True)
class Greeting:
    """What came of dialling the coordinator: checks in order, of which the last may have failed, and its clock."""

    checks: tuple[Check, ...]
    date: datetime | None = None


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
    host, number = _address(kit)
    try:
        found = sorted({str(address[4][0]) for address in socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)})
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return Check("address", False, f"no name server answers the question for {host!r}",
                         "check the network and DNS of this machine")  # fmt: skip
        return Check("address", False, f"the name {host!r} of the coordinator is not known here",
                     "check the DNS of this machine, or the host in the plan")  # fmt: skip
    return Check("address", True, f"{host} is {', '.join(found)}")


def port(kit: Kit, timeout: float = TIMEOUT) -> Check:
    """Whether somebody takes connections at the coordinator's port."""
    where = _where(kit)
    try:
        socket.create_connection(_address(kit), timeout).close()
    except TimeoutError:
        return Check("port", False, f"{where} does not answer", f"a firewall may drop what goes to this port; {_OPEN}")
    except ConnectionRefusedError:
        return Check("port", False, f"nobody listens at {where}",
                     "the coordinator may not have started yet, or a firewall refuses for it")  # fmt: skip
    except OSError as error:
        if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return Check("port", False, f"there is no way to {where} from here ({error.strerror})",
                         "check the network of this machine, its VPN and its routes")  # fmt: skip
        return Check("port", False, f"{where} cannot be reached ({error.strerror or error})", _OPEN)
    return Check("port", True, f"{where} takes connections")


_OPEN = "it has to be open to this machine, directly: a federation uses no proxy"


def shake_hands(kit: Kit, host: str | None = None, timeout: float = TIMEOUT) -> tuple[Check, datetime | None]:
    """Whether we trust who answers at the coordinator's port, whether it trusts us, and the time on its clock.

    The check is called ``trust`` where certificates were compared, ``host name`` where they agree but for the host,
    which FLARE does not mind, and ``tls`` where it did not come to that.
    """
    dialled, number = _address(kit)
    host, where = host or dialled, _where(kit)
    context = ssl.create_default_context(cafile=str(kit.startup / "rootCA.pem"))
    context.check_hostname = False  # looked at below, as FLARE does not: it is no reason to stop here
    crt, key = _names(kit)
    context.load_cert_chain(kit.startup / crt, kit.startup / key)
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
            answer = secure.recv(4096)  # with TLS 1.3 the other side says no only now
    except ssl.SSLCertVerificationError as error:
        return _distrust(kit, where, error, timeout), None
    except TimeoutError:
        late = f"{where} {'speaks TLS, but then' if shaken else 'takes connections, but'} says nothing"
        return Check("tls", False, late, f"it may be busy, or not the coordinator: {_ASK}"), None
    except OSError as error:  # the kinds of ssl among them
        refused = shaken or (isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""))
        return (_refused(where) if refused else _no_tls(where)), None
    if not answer:
        return _refused(where), None
    return wrong or Check("trust", True, f"{where} is the coordinator, and takes our certificate"), _date(answer)


_ASK = "check host and port of the plan with the coordinator"


def _no_tls(where: str) -> Check:
    return Check(
        "tls", False, f"who answers at {where} does not speak TLS", f"another program may use this port: {_ASK}"
    )


def _refused(where: str) -> Check:
    return Check("trust", False, f"the coordinator at {where} does not accept the certificate of this kit",
                 "it is of another federation, or expired: ask the person who made the kits for a new one")  # fmt: skip


def _not_the_coordinator(kit: Kit, certificate: Mapping[str, Any]) -> Check | None:
    """A failed check where a certificate of our authority is not the coordinator's, or is for another host."""
    subject = {field: value for part in certificate.get("subject", ()) for field, value in part}
    where = _where(kit)
    if subject.get("commonName") != SERVER:
        return Check("trust", False, f"who answers at {where} is {subject.get('commonName')!r}, not the coordinator",
                     _ASK)  # fmt: skip
    hosts = [str(value) for _, value in certificate.get("subjectAltName", ())]
    if kit.plan.host.lower() not in map(str.lower, hosts):
        return Check("host name", False, f"the coordinator's certificate is for {', '.join(hosts)}, not for "
                     f"{kit.plan.host}", "have the kits made for one host, and hand out all of them")  # fmt: skip
    return None


def _distrust(kit: Kit, where: str, error: ssl.SSLCertVerificationError, timeout: float) -> Check:
    """Why the certificate that was shown to us does not hold."""
    if error.verify_code == _EXPIRED:
        return Check("trust", False, f"the certificate of the coordinator at {where} has expired",
                     "the coordinator needs a renewed kit (`fmtc federation renew`)")  # fmt: skip
    if error.verify_code == _NOT_YET:
        return Check("trust", False, f"the certificate of the coordinator at {where} is not valid yet",
                     "set the clock of this machine")  # fmt: skip
    issuer = ""
    with contextlib.suppress(OSError, ValueError):
        from cryptography import x509

        shown = ssl.get_server_certificate(_address(kit), timeout=timeout)
        issuer = f", signed by {x509.load_pem_x509_certificate(shown.encode()).issuer.rfc4514_string()}"
    return Check("trust", False, f"who answers at {where} has a certificate of another federation{issuer}",
                 "check host and port of the plan, ask for the kit of that federation, or have a firewall that opens "
                 "TLS connections let this one pass")  # fmt: skip


_NOT_YET, _EXPIRED = 9, 10  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED


def _date(answer: bytes) -> datetime | None:
    for line in answer.split(b"\r\n"):
        if line.lower().startswith(b"date:"):
            with contextlib.suppress(ValueError):
                return parsedate_to_datetime(line[5:].decode("ascii", "replace").strip())
    return None


def reachable(kit: Kit, timeout: float = TIMEOUT) -> str:
    """What stands between us and the coordinator's port, in a sentence; empty where nothing does."""
    last = greet(kit, timeout).checks[-1]
    return "" if last.ok or last.name in ("trust", "host name") else last.sentence


def refusal(kit: Kit, timeout: float = TIMEOUT) -> str:
    """Why coordinator and kit do not trust each other, in a sentence; empty where they do, or where nobody answers.

    Asked twice: a server that is just being stopped cuts connections as well.
    """
    for pause in (1.0, 0.0):
        last = greet(kit, timeout).checks[-1]
        if last.ok or last.name != "trust":
            return ""
        time.sleep(pause)
    return last.sentence


# --------------------------------------------------------------------------------------------------- the coordinator


def own_name(kit: Kit) -> Check:
    """The name under which silos dial; where it is not known here, that is worth a word only."""
    check = host_name(kit)
    return check if check.ok else replace(check, ok=True, advice="silos have to know it; the coordinator does not")


def own_port(kit: Kit, timeout: float = TIMEOUT) -> Check:
    """Whether the coordinator's port is free here, or taken by its own server."""
    from .federation import is_loopback

    number = kit.plan.port
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1" if is_loopback(kit.plan.host) else "", number))
            probe.listen()
    except PermissionError:
        return Check("port", False, f"only an administrator may listen at port {number}", "take a port above 1023")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return Check("port", False, f"port {number} cannot be used ({error.strerror})", "take another port")
        check, _ = shake_hands(kit, "127.0.0.1", timeout)
        if check.ok or check.name == "host name":
            return Check(
                "port", True, f"port {number} is taken by a server of this federation", "one can run at a time"
            )
        return Check("port", False, f"another program listens at port {number}",
                     "end it, or take another port and make the kits anew")  # fmt: skip
    return Check("port", True, f"port {number} is free here; it has to be open to the silos")


def store(kit: Kit) -> Check:
    """Whether FLARE's server can keep its jobs in the kit."""
    try:
        with tempfile.TemporaryFile(dir=kit.path):
            pass
    except OSError as error:
        return Check("store", False, f"{kit.path} cannot be written ({error.strerror})",
                     "move the kit, or change its owner")  # fmt: skip
    return Check("store", True, f"{kit.path} can be written")


__all__ = ["Check", "Greeting", "examine", "greet", "reachable", "refusal"]
