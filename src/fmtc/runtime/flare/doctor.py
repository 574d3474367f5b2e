"""What may keep this machine from a federation: each check says what it found and, where it failed, what to do.

The checks change nothing and send nothing of the rows.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import socket
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...artifacts.runs import installed as version_of
from ...errors import FileError, KitError, TrustError
from .connection import TIMEOUT, Check, greet, proxy, shake_hands, where
from .plan import is_loopback

if TYPE_CHECKING:
    from .kits import Kit

PYTHON = (3, 11)
FLARE = ("2.9.0",)  # `compat.VERIFIED`, for machines without FLARE
SOON = timedelta(days=30)  # a certificate that ends within this time gets a warning
DRIFT = timedelta(minutes=5)  # clocks may differ by this much
NEEDED, WANTED = 100 * 10**6, 10**9  # bytes free: without the first nothing works, FLARE's logs may grow to the second
ASK_FOR_ANOTHER = "ask the organiser of the federation for a new one (`fmtc federation request` makes the request)"


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
            yield from _of_kit(kit)
    yield disk("disk for the output", out)


def _of_kit(kit: Kit) -> Iterator[Check]:
    """All checks of a kit that can be used."""
    yield expiry(kit)
    yield permissions(kit)
    yield policy(kit)
    yield roster(kit)
    if kit.role == "coordinator":
        yield own_port(kit)
    else:
        greeting = greet(kit)
        yield from (salt(kit), proxy(kit), *greeting.checks)
        if greeting.date is not None:
            yield clock(greeting.date)
    yield disk("disk of the kit", kit.path)


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
    from .kits import validity

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
    from .kits import altered

    try:
        wrong = altered(kit)
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
        check, _ = shake_hands(kit, "127.0.0.1", timeout)
        if check.ok or check.name == "host name":
            return Check(
                "port", True, f"port {number} is taken by a server of this federation", "one can run at a time"
            )
        return Check("port", False, f"another program listens at port {number}",
                     "end it, or choose another port and make the kits anew")  # fmt: skip
    return Check("port", True, f"port {number} is free here; it has to be open to the silos")


__all__ = ["Check", "examine"]
