"""What may keep this machine from a federation: each check says what it found and, where it failed, what to do.

The checks change nothing and send nothing of the rows.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...artifacts.files import read_json
from ...artifacts.runs import installed as version_of
from ...errors import FileError, KitError, TrustError
from ...tables.reading import Reading
from .connection import TIMEOUT, Check, greet, host_name, proxy, shake_hands, where
from .plan import is_loopback

if TYPE_CHECKING:
    from .kits import Kit

PYTHON = (3, 11)
FLARE = ("2.9.0",)  # `compat.VERIFIED`, for machines without FLARE
SOON = timedelta(days=30)  # a certificate that ends within this time gets a warning
DRIFT = timedelta(minutes=5)  # clocks may differ by this much
NEEDED, WANTED = 100 * 10**6, 10**9  # bytes free: without the first nothing works, FLARE's logs may grow to the second
ASK_FOR_ANOTHER = "ask the organiser of the federation for a new one (`fmtc federation request` makes the request)"


def examine(
    kit_path: Path | None = None,
    *,
    data: Path | None = None,
    reading: Reading | None = None,
    out: Path = Path(),
    extras: Mapping[str, str] | None = None,
) -> Iterator[Check]:
    """All checks that can be made, one after the other; those that need a failed one are omitted.

    Parameters
    ----------
    kit_path : path, optional
        A silo's kit or the coordinator's.
    data : path, optional
        The file of rows that a silo will join with.
    reading : Reading, optional
        How it is going to be read.
    out : path
        The folder to write to later.
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
        yield revoked(kit)
        yield roster(kit)
        if kit.role == "silo":
            yield salt(kit)
        greeting = greet(kit) if kit.role == "silo" else None
        yield proxy(kit)
        yield from (own_name(kit), own_port(kit), store(kit)) if greeting is None else greeting.checks
        yield clock(kit, None if greeting is None else greeting.date)
        yield disk("disk of the kit", kit.path)
    yield disk("disk for the output", out)
    if data is not None:
        yield data_file(data, kit, reading or Reading())


# ------------------------------------------------------------------------------------------------- this machine


def versions(*, federation: bool = True) -> Check:
    """Python, fmtc and FLARE; FLARE may be missing where there is no kit."""
    flare = version_of("nvflare")
    found = f"Python {platform.python_version()}, fmtc {version_of('fmtc')}, nvflare {flare or 'not installed'}"
    if tuple(map(int, platform.python_version_tuple()[:2])) < PYTHON:
        return Check("versions", False, found, f"fmtc needs Python {'.'.join(map(str, PYTHON))} or later")
    if flare is None and federation:
        return Check("versions", False, found, "install it: pip install 'fmtc[federation]'")
    if flare is not None and flare not in FLARE:
        return Check("versions", False, found, f"fmtc works with nvflare {' or '.join(FLARE)}: "
                     "pip install 'fmtc[federation]' installs it")  # fmt: skip
    return Check("versions", True, found)


def installed(extras: Mapping[str, str]) -> Check:
    """Which optional packages are installed."""
    there = {extra: version_of(package) for extra, package in extras.items()}
    return Check("extras", True, ", ".join(f"{extra} {'yes' if there[extra] else 'no'}" for extra in there))


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


def data_file(path: Path, kit: Kit | None, reading: Reading) -> Check:
    """Whether a run can use the rows; `fmtc check` says whether they suit the federation."""
    from ...errors import DataError
    from ...tables import constant_columns, read_silos

    if reading.recipe is not None and kit is not None:
        reading = replace(reading, salt=kit.salt)
    try:
        (silo,) = read_silos([path], reading)
    except DataError as error:
        return Check("data", False, str(error), "give the file, and read it, as for `fmtc join`")
    found = f"{path.name}: {silo.X.shape[0]:,} rows, {silo.X.shape[1]:,} columns that are clustered"
    constant = [] if reading.recipe is not None else [*constant_columns([silo])]
    return Check("data", True, found, f"{len(constant)} have one value in all rows, such as {constant[0]!r}"
                 if constant else "")  # fmt: skip


def clock(kit: Kit | None = None, there: datetime | None = None) -> Check:
    """The clock of this machine, compared with the coordinator's, or with files and certificates made before now."""
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
        begins = _validity(kit.credentials[0])[0]
        if now < begins:
            found = f"{now:%Y-%m-%d %H:%M} UTC, before our certificate begins ({begins:%Y-%m-%d %H:%M})"
            return Check(
                "clock", False, found, "set the clock; if it is right, the clock was wrong where the kits were made"
            )
    newest = datetime.fromtimestamp(max(file.stat().st_mtime for file in files), UTC)
    whose = "fmtc" if kit is None else "the kit"
    if now < newest - DRIFT:
        found = f"{now:%Y-%m-%d %H:%M} UTC, before files of {whose} were written ({newest:%Y-%m-%d %H:%M})"
        return Check("clock", False, found, "set the clock")
    older = "files of fmtc" if kit is None else "our certificate and the kit's files"
    return Check("clock", True, f"{now:%Y-%m-%d %H:%M} UTC, later than {older}; compared with nothing else")


def _span(duration: timedelta) -> str:
    return str(timedelta(seconds=round(duration.total_seconds())))


def _validity(path: Path) -> tuple[datetime, datetime]:
    from .kits import validity

    return validity(path)


# -------------------------------------------------------------------------------------------------------- the kit


def open_kit(path: Path) -> tuple[Check, Kit | None]:
    """Whether a folder is a complete kit: its files, and a certificate that belongs to key, authority and name."""
    try:
        from .kits import Kit, mixed_up
    except ImportError as error:
        return Check("kit", False, f"cannot be checked: {error}", "install it, then try again"), None
    try:
        kit = Kit.read(path)
    except (KitError, FileError) as error:
        waits = "waits for its certificate" in str(error)
        give = "" if waits else "give the folder that `fmtc federation request` made, or `init` for the coordinator"
        return Check("kit", False, str(error), give), None
    files = [*kit.credentials, kit.startup / "rootCA.pem"]
    if kit.role == "coordinator":
        files += [kit.path / "admin/startup" / name for name in ("client.crt", "client.key", "rootCA.pem")]
    missing = [str(file.relative_to(kit.path)) for file in files if not file.is_file()]
    if missing:
        return Check("kit", False, f"{', '.join(missing)} missing in {kit.path}", ASK_FOR_ANOTHER), None
    wrong = mixed_up(kit)
    if wrong:
        return Check("kit", False, wrong, ASK_FOR_ANOTHER), None
    whose = "coordinator" if kit.role == "coordinator" else f"silo {kit.name!r}"
    planned, dialled = f"{kit.plan.host}:{kit.plan.port}", where(kit)
    advice = "" if planned == dialled else f"its fed_client.json was changed to dial {dialled}"
    return Check("kit", True, f"{whose} of federation {kit.plan.name!r} at {planned}", advice), kit


def expiry(kit: Kit) -> Check:
    """How long our certificates and the authority's are valid."""
    ends = {"our certificate": _validity(kit.credentials[0])[1]}
    if kit.role == "coordinator":
        ends["that of the coordinator's log-in"] = _validity(kit.path / "admin/startup/client.crt")[1]
    ends["the authority's"] = _validity(kit.startup / "rootCA.pem")[1]
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
    if os.name != "posix":
        return Check("permissions", True, "not checked on this system", "make sure that only you can read the kit")
    secrets = sorted({*kit.path.rglob("*.key"), *kit.path.rglob("*.box"), *kit.path.glob("salt")})
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
        secret = kit.salt
    except (OSError, ValueError) as error:
        return Check("salt", False, f"the silos' common secret cannot be read: {error}", ASK_FOR_ANOTHER)
    if not re.fullmatch("[0-9a-f]{64}", secret):
        return Check("salt", False, f"the silos' common secret in {kit.path / 'salt'} is damaged", ASK_FOR_ANOTHER)
    word = hashlib.sha256(f"fmtc check word {secret}".encode()).hexdigest()[:8]
    return Check("salt", True, f"the silos' common secret is there; its check word {word} is the same at every silo")


def revoked(kit: Kit) -> Check:
    """The list of certificates that no longer count, and whether ours is on it."""
    from ...privacy.identity import Trust, load_certificate, revoked_number

    try:
        trust = Trust.read(kit.startup)
    except (KitError, TrustError, FileError) as error:
        return Check("revoked", False, str(error), "take in a new roster: `fmtc federation accept FILE --kit FOLDER`")
    if trust.revoked is None:
        return Check("revoked", False, "the list of revoked certificates is missing", ASK_FOR_ANOTHER)
    if trust.is_revoked(load_certificate(kit.credentials[0])):
        return Check("revoked", False, "our certificate was revoked", "ask the organiser why")
    found = f"list {revoked_number(trust.revoked)} of revoked certificates has {len(list(trust.revoked))}, not ours"
    return Check("revoked", True, found)


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
        wrong = [*_open_doors(kit)]
    except FileError as error:
        wrong = [str(error)]
    except (LookupError, TypeError, AttributeError) as error:
        wrong = [f"a policy file is damaged ({type(error).__name__}: {error})"]
    if wrong:
        return Check("policy", False, "; ".join(wrong), "restore it, or ask for a new kit")
    return Check("policy", True, "fmtc's own class only, no code from outside, no shell, no log leaves, mutual TLS")


def _open_doors(kit: Kit) -> Iterator[str]:
    """What a policy allows that it should not."""
    from . import compat
    from .kits import CONTROLLER, EXECUTOR, RESOURCES, RESOURCES_TEMPLATE

    coordinator = kit.role == "coordinator"
    local = kit.workspace / "local"
    resources = read_json(local / (RESOURCES_TEMPLATE if coordinator else RESOURCES))
    others = set(resources[compat.CLASS_ALLOW_LIST]) - {CONTROLLER if coordinator else EXECUTOR}
    if others:
        yield f"jobs may use {', '.join(sorted(map(str, others)))}"
    if resources[compat.CLASS_LIST_ENFORCEMENT_MODE] != "enforce":
        yield "jobs may use any class: the list of classes is not enforced"
    if not coordinator and resources[compat.ALLOW_LOG_STREAMING] is not False:
        yield "logs may be sent to the coordinator"
    for component in resources["components"]:
        if "log" in component["path"].lower():
            yield f"{component['path']} may send logs away"
        elif not component["path"].startswith("nvflare."):
            yield f"{component['path']} is no part of FLARE"
    yield from _rights(read_json(local / "authorization.json")["permissions"])
    if (local / "custom").exists():
        yield f"{local / 'custom'} holds code that FLARE would load"
    file, section = ("fed_server.json", "servers") if coordinator else ("fed_client.json", "client")
    config = read_json(kit.startup / file)[section]
    inside = read_json(local / compat.COMM_CONFIG)["internal"]["resources"]
    for place, connection in (("with others", config[0] if coordinator else config), ("inside this machine", inside)):
        security = connection.get(compat.CONNECTION_SECURITY)
        if security != "mtls":
            yield f"connections {place} are of kind {security!r}, not mutual TLS"


def _rights(permissions: Mapping[str, Any]) -> Iterator[str]:
    """Rights that somebody has and nobody should have."""
    from . import compat

    for role, may in permissions.items():
        for right, whom in (dict.fromkeys(compat.DENIED, may) if isinstance(may, str) else may).items():
            if right not in compat.RIGHTS and whom != "none":
                yield f"{role} has the right {right}"


# --------------------------------------------------------------------------------------------------- the coordinator


def own_name(kit: Kit) -> Check:
    """The name that silos dial; that it is not known here is only worth a warning."""
    check = host_name(kit)
    return check if check.ok else replace(check, ok=True, advice="silos have to know it; the coordinator does not")


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
        check, _ = shake_hands(kit, "127.0.0.1", timeout)
        if check.ok or check.name == "host name":
            return Check(
                "port", True, f"port {number} is taken by a server of this federation", "one can run at a time"
            )
        return Check("port", False, f"another program listens at port {number}",
                     "end it, or choose another port and make the kits anew")  # fmt: skip
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


__all__ = ["Check", "examine"]
