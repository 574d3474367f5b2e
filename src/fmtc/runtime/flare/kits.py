"""Kits: the folders that let one party each take part in a federation.

The coordinator's kit holds FLARE's server and the key that may submit jobs. A silo's kit holds its certificate, its
policy (jobs may use one class of fmtc, bring no code and get no shell) and, once it has joined, the state of its runs.
The coordinator's is made here, with the authority that signs certificates; a silo makes its own, see `enrol`.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...artifacts.files import Kind, read_json, tighten, write_file, write_json
from ...artifacts.locks import locked
from ...errors import FederationError, KitError, TrustError
from ...privacy.identity import AUTHORITY, REVOKED, Trust, common_name, is_key_of, load_certificate, validity
from ..kitclient import SALT, read_salt
from . import compat
from .plan import ASK_FOR_ANOTHER, Plan, is_loopback, organisation, plan_in

KIT = Kind("fmtc kit", 2)
KIT_FILE = "kit.json"
WAITING = "waiting.json"  # in a silo's folder: the signing request that has not been answered yet
ROSTER = "roster.json"  # beside a certificate: who was admitted, signed by the authority
LOCK = "in-use.lock"  # in a kit: held by the process that works with the kit
ADMIN = "coordinator@fmtc.local"
CONTROLLER = "fmtc.runtime.flare.adapter.FmtcController"
EXECUTOR = "fmtc.runtime.flare.adapter.FmtcExecutor"
RESOURCES = "resources.json"  # in `local`: which classes a job may use, and FLARE's own components
RESOURCES_TEMPLATE = "resources.template.json"  # the coordinator's, before it is known where the server keeps its jobs
STORE = "{store}"  # in that template: where the server keeps its jobs


@dataclass(frozen=True)
class Kit:
    """A folder that lets one party take part."""

    path: Path
    role: str  # "silo" or "coordinator"
    name: str
    plan: Plan

    @property
    def site(self) -> str:
        """FLARE's name of the party."""
        return "server" if self.role == "coordinator" else self.plan.sites[self.name]

    @property
    def organisation(self) -> str:
        """The organisation that the party's certificate names."""
        return "fmtc" if self.role == "coordinator" else organisation(self.name)

    @property
    def workspace(self) -> Path:
        """Folder that FLARE's process works in."""
        return self.path / "server" if self.role == "coordinator" else self.path

    @property
    def startup(self) -> Path:
        """Folder of certificate and key."""
        return self.workspace / "startup"

    @property
    def credentials(self) -> tuple[Path, Path]:
        """Files of certificate and private key."""
        name = "server" if self.role == "coordinator" else "client"
        return self.startup / f"{name}.crt", self.startup / f"{name}.key"

    @property
    def expires(self) -> datetime:
        """Until when the certificate is valid."""
        return validity(self.credentials[0])[1]

    @property
    def salt(self) -> str:
        """The secret that all silos share and the coordinator does not have."""
        return read_salt(self.path / SALT)

    @classmethod
    def read(cls, path: Path, role: str | None = None) -> Kit:
        """The kit in a folder; raises `KitError` for one that is damaged or, if `role` is given, of another role."""
        path = Path(path).resolve()
        if not path.is_dir():
            raise KitError(
                f"{path} is not a folder; a kit is a folder that `fmtc federation request` made (`init` for the "
                "coordinator)"
            )
        file = path / KIT_FILE
        if not file.exists() and (path / WAITING).exists():
            raise KitError(
                f"{path} waits for its certificate: send its request to the organiser, and take the answer in with "
                "`fmtc federation accept FILE --kit FOLDER`"
            )
        about = read_json(file, {"role": str, "name": str, "plan": dict}, kind=KIT)
        kit = cls(path, about["role"], about["name"], plan_in(file, about["plan"]))
        if (kit.role, kit.name) not in [("coordinator", "coordinator"), *(("silo", silo) for silo in kit.plan.silos)]:
            raise KitError(f"{file} is damaged: {kit.role} {kit.name!r} is not in the plan")
        if role is not None and kit.role != role:
            raise KitError(f"{path} is the kit of a {kit.role}, not of a {role}")
        return kit

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from using the kit while a block runs."""
        return locked(self.path / LOCK, f"the kit {self.path}")

    def check(self) -> None:
        """Raise `KitError` where the certificate is missing, does not belong to this kit, or is not valid now."""
        files = [*self.credentials, *(self.startup / name for name in (AUTHORITY, REVOKED))]
        if self.role == "coordinator":
            files += [self.path / "admin/startup" / name for name in ("client.crt", "client.key", AUTHORITY)]
        for file in files:
            if not file.is_file():
                raise KitError(f"{file} is missing: nobody takes part without a certificate; {ASK_FOR_ANOTHER}")
        if wrong := self.mixed_up():
            raise KitError(f"{wrong}; {ASK_FOR_ANOTHER}")
        now, (begins, ends) = datetime.now(UTC), validity(self.credentials[0])
        if now > ends:
            raise KitError(
                f"the certificate of {self.name!r} expired on {ends:%Y-%m-%d %H:%M} UTC; ask the organiser to renew it "
                "(`fmtc federation renew`)"
            )
        if now < begins:
            raise KitError(
                f"the certificate of {self.name!r} is valid from {begins:%Y-%m-%d %H:%M} UTC, and this machine's clock "
                f"says {now:%Y-%m-%d %H:%M} UTC: set the clock"
            )
        if Trust.read(self.startup).is_revoked(load_certificate(self.credentials[0])):
            raise TrustError(f"the certificate of {self.name!r} was revoked; the organiser can say why")

    def mixed_up(self) -> str:
        """What does not belong together in the kit, in a sentence; empty where everything does."""
        crt, key = self.credentials
        try:
            certificate, authority = load_certificate(crt), load_certificate(self.startup / AUTHORITY)
            fits = is_key_of(key, certificate)
        except KitError as error:
            return f"certificate, key or rootCA.pem in {self.startup} is damaged: {error}"
        if not fits:
            return f"{key.name} is not the key of {crt.name} in {self.startup}"
        if not Trust(authority).signed(certificate):
            return f"{crt.name} in {self.startup} is of another federation: the authority of this kit did not sign it"
        name = common_name(certificate)
        if name != self.site:
            return f"{crt.name} in {self.startup} is for {name!r}, this is the kit of {self.site!r}"
        return ""

    def altered(self) -> list[str]:
        """What differs in FLARE's files from what fmtc writes there, but for where it dials; each in a few words.

        They say which classes a job may use, that it brings no code, and that all connections are of mutual TLS.
        """
        found = []
        with tempfile.TemporaryDirectory() as scratch:
            made = flare_files(self.plan, self.role, self.name, Path(scratch))
            for file in sorted(made.rglob("*.json")):
                name = file.relative_to(made)
                theirs, ours = _rules(self.workspace / name), _rules(file)
                changed = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
                found += [f"{', '.join(changed)} in {self.workspace / name} changed"] if changed else []
        code = self.workspace / "local" / "custom"
        return [*found, f"{code} holds code that FLARE would load"] if code.exists() else found


# ----------------------------------------------------------------------------------------------------- making them


def write_kit(folder: Path, role: str, name: str, plan: Plan) -> Kit:
    """Write what makes a folder with a certificate a kit, and a note on what it is for."""
    for theirs in folder.rglob("readme.txt"):  # FLARE's words about scripts that are not here
        theirs.unlink()
    if role == "coordinator":
        who, command = "the coordinator", "coordinate --kit FOLDER -k 4 --out run"
    else:
        who, command = f"silo {name}", "join --kit FOLDER --data FILE --out ours"
    text = (
        f"The kit of {who} in the federation {plan.name}, which meets at {plan.host}:{plan.port}.\n"
        f"It holds a private key: keep it to yourself.\n\n"
        f"    fmtc {command}\n    fmtc doctor --kit FOLDER\n"
    )
    (folder / "README.txt").write_text(text, encoding="utf-8")
    about = {**KIT.head, "role": role, "name": name, "plan": asdict(plan)}
    write_json(folder / KIT_FILE, about, secret=True)
    return Kit.read(folder)


def make_coordinator(plan: Plan, folder: Path) -> dict[str, str]:
    """Make the coordinator's kit in a new folder, but for its `write_kit`; certificate and key of its new authority."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = flare_files(plan, "coordinator", "", Path(scratch), [*compat.BUILDERS])
        folder.mkdir()
        for part in ("server", "admin"):
            shutil.move(made.parent / part, folder / part)
        state = read_json(made.parents[1] / "state" / "cert.json")
    return {name: str(value) for name, value in state.items() if isinstance(value, str)}


def make_silo(plan: Plan, name: str, folder: Path) -> None:
    """Make FLARE's files and our policy for a silo, here: nobody else decides what a silo's policy allows."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = flare_files(plan, "silo", name, Path(scratch))
        for part in ("startup", "local"):
            shutil.copytree(made / part, folder / part, dirs_exist_ok=True)
        (folder / "transfer").mkdir(exist_ok=True)
    tighten(folder)


def _rules(file: Path) -> dict[str, Any]:
    """What a file of FLARE's says, but for the address of the coordinator."""
    rules: dict[str, Any] = read_json(file, dict)
    if isinstance(rules.get("servers"), list):
        rules["servers"] = [{**one, "service": None} if isinstance(one, dict) else one for one in rules["servers"]]
    return rules


def flare_files(
    plan: Plan, role: str, name: str, folder: Path, builders: Iterable[str] = compat.STATIC_BUILDERS
) -> Path:
    """Have FLARE make its files of a party below a folder, and set our policy in them; the party's workspace.

    Beside the coordinator's lies that of its log-in, ``admin``.
    """
    if role == "coordinator":
        admin = {"name": ADMIN, "type": "admin", "org": "fmtc", "role": "project_admin"}
        workspace = _flare_kits(plan, folder, admin, builders) / "server"
        (workspace.parent / ADMIN).rename(workspace.parent / "admin")
    else:
        client = {"name": plan.sites[name], "type": "client", "org": organisation(name)}
        workspace = _flare_kits(plan, folder, client, builders) / plan.sites[name]
    _set_policy(workspace, plan, role)
    return workspace


def _flare_kits(plan: Plan, folder: Path, party: dict[str, str], builders: Iterable[str]) -> Path:
    """Have FLARE make its startup kits of its server and one more party; the folder that holds them."""
    project = {
        "api_version": 3,
        "name": plan.name,
        "description": plan.name,
        "participants": [
            {"name": "server", "type": "server", "org": "fmtc", "default_host": plan.host, "fed_learn_port": plan.port},
            party,
        ],
        "builders": [{"path": path, "args": compat.BUILDERS[path]} for path in builders],
    }
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        provisioner = compat.Provisioner(str(folder), compat.prepare_builders(project))
        context = provisioner.provision(compat.prepare_project(project))
    if context.get("build_error"):
        raise FederationError(f"FLARE could not make the kits: {said.getvalue()}")
    return folder / plan.name / "prod_00"


def _set_policy(workspace: Path, plan: Plan, role: str) -> None:
    """Allow one class of fmtc in jobs, no code that comes with a job and no shell; send no log away."""
    local = workspace / "local"
    resources = read_json(local / compat.RESOURCES)
    resources[compat.CLASS_ALLOW_LIST] = [CONTROLLER if role == "coordinator" else EXECUTOR]
    resources[compat.CLASS_LIST_ENFORCEMENT_MODE] = "enforce"
    # FLARE's own components, without those that send logs away
    resources["components"] = [c for c in resources["components"] if "logging" not in c["path"]]
    if role == "coordinator":
        if is_loopback(plan.host):  # listen on the loopback only: FLARE's default, "server", means all interfaces
            ours = read_json(workspace / "startup/fed_server.json")
            ours["servers"][0]["service"]["target"] = f"{plan.host}:{plan.port}"
            write_json(workspace / "startup/fed_server.json", ours)
        login = read_json(workspace.parent / "admin/startup/fed_admin.json")
        login["admin"]["host"] = plan.dialled_here
        write_json(workspace.parent / "admin/startup/fed_admin.json", login)
        resources["servers"][0] |= {
            compat.HEARTBEAT_TIMEOUT: plan.lost_after,
            compat.MAX_CLIENTS: max(100, len(plan.silos)),
        }
        text = json.dumps(resources, indent=1).replace(compat.STORE, f"{STORE}/")
        (local / RESOURCES_TEMPLATE).write_text(text, encoding="utf-8")
    else:
        resources[compat.ALLOW_LOG_STREAMING] = False
        write_json(local / RESOURCES, resources)
    rights = dict.fromkeys(compat.RIGHTS, "any") | dict.fromkeys(compat.DENIED, "none")
    authorization = {"format_version": "1.0", "permissions": {"project_admin": rights}}
    write_json(local / "authorization.json", authorization)
    # FLARE's processes of one machine talk to each other: encrypted, and not with other users of the machine
    inside = {"scheme": "tcp", "resources": {"host": "localhost", compat.CONNECTION_SECURITY: "mtls"}}
    write_json(local / compat.COMM_CONFIG, {"internal": inside})
    for template in (compat.RESOURCES, compat.AUTHORIZATION):
        (local / template).unlink(missing_ok=True)
    for script in (workspace / "startup").glob("*.sh"):  # fmtc starts the processes
        script.unlink()


def write_secret(path: Path, text: str) -> None:
    """A line that only the owner of the file can read."""
    write_file(path, f"{text}\n".encode("ascii"), secret=True)
