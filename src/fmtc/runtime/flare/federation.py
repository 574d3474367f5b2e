"""Kits, policies and processes of a federation on NVIDIA FLARE: what `federate`, `join` and `coordinate` do.

A kit is a folder. The coordinator's holds FLARE's server and the key that may submit jobs; a silo's holds its
certificate, its policy (only fmtc's two classes, no code from outside, no shell) and, once it has joined, the state of
its runs. Processes are started here and nowhere else, and end with the process that started them.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import json
import logging
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ...artifacts.files import check_form, check_schema, jsonable, new_folder, read_json, write_json
from ...artifacts.locks import held
from ...errors import ClientError, DifferError, FederationError, KitError, ServerLostError
from ...steps import Hyper
from ..driver import RoundRecord
from . import serve
from .adapter import (
    ASKED,
    ENDED,
    EVENTS,
    PREFLIGHT,
    RESULT,
    SALT,
    SHOWN,
    STATES,
    TASK,
    TROUBLE,
    Site,
    SiteResult,
    finished,
    read_result,
    read_site_result,
)
from .doctor import mixed_up, reachable, refusal

try:
    import psutil
    from cryptography import x509
    from nvflare.fuel.flare_api.flare_api import new_secure_session
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner
except ImportError as error:
    raise ImportError("a federation of processes needs nvflare: pip install 'fmtc[federation]'") from error

logger = logging.getLogger(__name__)

KIT_FORMAT = 1
KIT_FILE = "kit.json"
CONSOLE = "console.log"
DELIVERED = "delivered"  # file in a silo's folder of a run: its result has been written where it was wanted
LOCK = "in-use.lock"  # file in a kit that the command holds which works with it
ADMIN = "coordinator@fmtc.local"
AUTHORITY_DAYS = 3650
CONTROLLER = "fmtc.runtime.flare.adapter.FmtcController"
EXECUTOR = "fmtc.runtime.flare.adapter.FmtcExecutor"
NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
OTHER_FOLDERS = ("coordinator", "authority")  # what `provision` makes beside the silos' kits
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


# ------------------------------------------------------------------------------------------------------------ plans


@dataclass(frozen=True)
class Plan:
    """Who takes part: what `federation.toml` says.

    Examples
    --------
    >>> Plan("study", "coordinator.example.org", 8002, ("north", "south")).sites
    {'north': 'silo-north', 'south': 'silo-south'}
    """

    name: str
    host: str
    port: int
    silos: tuple[str, ...]
    lost_after: float = 30.0  # seconds without a sign of life after which a silo counts as lost

    def __post_init__(self) -> None:
        for what, name in [("name", self.name), *(("silo", silo) for silo in self.silos)]:
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                raise KitError(f"{what} {name!r}: names are of 1 to 50 letters, digits, - and _")
        if not (isinstance(self.host, str) and HOST.fullmatch(self.host)):
            raise KitError(f"host {self.host!r} is neither a host name nor an IPv4 address")
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise KitError(f"port must be a whole number from 1 to 65535, got {self.port!r}")
        twice = sorted({silo for silo in self.silos if [s.lower() for s in self.silos].count(silo.lower()) > 1})
        if twice:
            raise KitError(f"silo {', '.join(map(repr, twice))} is named more than once; give each silo its own name")
        taken = [silo for silo in self.silos if silo.lower() in OTHER_FOLDERS]
        if taken:
            raise KitError(f"silo {taken[0]!r}: a folder beside the kits has this name; give the silo another one")
        if not self.silos:
            raise KitError('no silo is named; write, for example, silos = ["north", "south"]')
        if not (isinstance(self.lost_after, int | float) and 5 <= self.lost_after < float("inf")):
            raise KitError(f"lost_after must be a number of at least 5 seconds, got {self.lost_after!r}")

    @property
    def sites(self) -> dict[str, str]:
        """FLARE's name of each silo: never a number, a truth value or "server", which it takes for something else."""
        return {silo: f"silo-{silo}" for silo in self.silos}


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file, or one clear sentence."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KitError(
            f"{path} does not exist; write one with the lines that `fmtc federation init -h` shows"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise KitError(f"{path} is not TOML: {error}") from None
    known = {"name", "host", "port", "silos", "lost_after"}
    strangers, missing = sorted(set(document) - known), sorted(known - {"lost_after"} - set(document))
    if strangers or missing:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has {', '.join(strangers)}, which means nothing here"] if strangers else []
        raise KitError(f"{path} {' and '.join(wrong)}; it has name, host, port and silos, and may have lost_after")
    if not isinstance(document["silos"], list):
        raise KitError(f'{path}: silos must be a list of names, such as ["north", "south"], got {document["silos"]!r}')
    return Plan(**document | {"silos": tuple(document["silos"])})


# ------------------------------------------------------------------------------------------------------------- kits


@dataclass(frozen=True)
class Kit:
    """A folder that lets one party take part."""

    path: Path
    role: str  # "silo" or "coordinator"
    name: str
    plan: Plan
    expires: datetime

    @property
    def site(self) -> str:
        """FLARE's name of the party."""
        return "server" if self.role == "coordinator" else self.plan.sites[self.name]

    @property
    def workspace(self) -> Path:
        """Folder that FLARE's process works in."""
        return self.path / "server" if self.role == "coordinator" else self.path

    @property
    def startup(self) -> Path:
        """Folder of certificate and key."""
        return self.workspace / "startup"

    @property
    def salt(self) -> str:
        """The silos' common secret, which the coordinator does not have."""
        return (self.path / SALT).read_text(encoding="ascii").strip()

    @classmethod
    def read(cls, path: Path, role: str | None = None) -> Kit:
        """The kit in a folder; refuses one of another role, or one that is damaged or expired."""
        path = Path(path).resolve()
        if not path.is_dir():
            raise KitError(f"{path} is not a folder; a kit is a folder that `fmtc federation init` made")
        file = path / KIT_FILE
        about = read_json(file)
        check_schema(file, about, "fmtc kit", KIT_FORMAT)
        check_form(file, about, {"role": str, "name": str, "plan": {"silos": [str]}, "expires": str})
        try:
            plan = Plan(**about["plan"] | {"silos": tuple(about["plan"]["silos"])})
            kit = cls(path, about["role"], about["name"], plan, datetime.fromisoformat(about["expires"]))
        except (TypeError, ValueError) as error:
            raise KitError(f"{file} is damaged: {error}") from None
        if (kit.role, kit.name) not in [("coordinator", "coordinator"), *(("silo", silo) for silo in plan.silos)]:
            raise KitError(f"{file} is damaged: {kit.role} {kit.name!r} is not in the plan")
        if role is not None and kit.role != role:
            wanted = {"silo": "`fmtc join`", "coordinator": "`fmtc coordinate`"}
            raise KitError(f"{path} is the kit of a {kit.role}, for {wanted[kit.role]}, not for {wanted[role]}")
        return kit

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Keep the kit to this process while a block runs."""
        return held(self.path / LOCK, f"the kit {self.path}")

    def check(self) -> None:
        """Refuse to start with a certificate that is missing, not this kit's, or out of date."""
        name = "server" if self.role == "coordinator" else "client"
        for file in (f"{name}.crt", f"{name}.key", "rootCA.pem"):
            if not (self.startup / file).is_file():
                raise KitError(
                    f"{self.startup / file} is missing: without its certificate nobody takes part. "
                    "Ask the person who made the kits for a new one."
                )
        begins, ends = validity(self.startup / f"{name}.crt")
        wrong = mixed_up(self)
        if wrong:
            raise KitError(f"{wrong}. Ask the person who made the kits for a new one.")
        now = datetime.now(UTC)
        if now > ends:
            raise KitError(
                f"the certificate of {self.name!r} expired on {ends:%Y-%m-%d %H:%M} UTC; ask the person who made the "
                "kits to renew it (`fmtc federation renew`)"
            )
        if now < begins:
            raise KitError(
                f"the certificate of {self.name!r} is valid from {begins:%Y-%m-%d %H:%M} UTC, and this machine's clock "
                f"says {now:%Y-%m-%d %H:%M} UTC: set the clock"
            )


def validity(path: Path) -> tuple[datetime, datetime]:
    """From when to when a certificate holds."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise KitError(f"{path} is not a certificate: {error}") from None
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def provision(plan: Plan, out: Path, *, authority: Path | None = None) -> list[Kit]:
    """Make one kit per silo and one for the coordinator in the folder `out`, whole or not at all.

    Parameters
    ----------
    plan : Plan
    out : path
        Gets ``coordinator/``, one folder per silo, and ``authority/``: the key that signs certificates, which stays
        with the person who runs this and is needed again to renew or to add a silo.
    authority : path, optional
        Folder ``authority/`` of an earlier call: the new kits then belong to the same federation.
    """
    salt = secrets.token_hex(32)
    with (
        new_folder(out, private=True) as folder,
        tempfile.TemporaryDirectory(dir=folder) as scratch,
    ):
        state = Path(scratch) / plan.name / "state"
        if authority is not None:
            salt = _old_authority(authority, state)
        made = _flare_kits(plan, Path(scratch))
        kits = [("coordinator", "coordinator"), *(("silo", silo) for silo in plan.silos)]
        for role, name in kits:
            kit = folder / name
            if role == "coordinator":
                kit.mkdir()
                shutil.move(made / "server", kit / "server")
                shutil.move(made / ADMIN, kit / "admin")
            else:
                shutil.move(made / plan.sites[name], kit)
                _write_secret(kit / SALT, salt)
            workspace = kit / "server" if role == "coordinator" else kit
            _set_policy(workspace, plan, role)
            _write_readme(kit, workspace, plan, role)
            certificate = kit / ("server/startup/server.crt" if role == "coordinator" else "startup/client.crt")
            about = {
                "kind": "fmtc kit",
                "schema": KIT_FORMAT,
                "role": role,
                "name": name,
                "plan": asdict(plan),
                "expires": validity(certificate)[1].isoformat(),
            }
            write_json(kit / KIT_FILE, about)
        shutil.move(state, folder / "authority")
        _write_secret(folder / "authority" / SALT, salt)
    return [Kit.read(out / name) for _, name in kits]


def _old_authority(authority: Path, state: Path) -> str:
    """Bring back the key that signs, without the certificates it signed, so that all are made anew."""
    if not (authority / "cert.json").is_file():
        raise KitError(f"{authority} is not the authority/ folder that `fmtc federation init` made")
    content = read_json(authority / "cert.json")
    state.mkdir(parents=True)
    root = {name: value for name, value in content.items() if isinstance(value, str)}
    (state / "cert.json").write_text(json.dumps(root), encoding="utf-8")
    return (authority / SALT).read_text(encoding="ascii").strip()


def _flare_kits(plan: Plan, folder: Path) -> Path:
    """Let FLARE make its startup kits; the folder that holds them."""
    path = "nvflare.lighter.impl."
    project = {
        "api_version": 3,
        "name": plan.name,
        "description": plan.name,
        "participants": [
            {"name": "server", "type": "server", "org": "fmtc", "default_host": plan.host, "fed_learn_port": plan.port},
            {"name": ADMIN, "type": "admin", "org": "fmtc", "role": "project_admin"},
            *({"name": site, "type": "client", "org": _org(silo)} for silo, site in plan.sites.items()),
        ],
        "builders": [
            {"path": path + "workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": path + "static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": path + "cert.CertBuilder", "args": {"root_valid_days": AUTHORITY_DAYS}},
            {"path": path + "signature.SignatureBuilder"},
        ],
    }
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        context = Provisioner(str(folder), prepare_builders(project)).provision(prepare_project(project))
    if context.get("build_error"):
        raise FederationError(f"FLARE could not make the kits: {said.getvalue()}")
    return folder / plan.name / "prod_00"


def _org(silo: str) -> str:
    return "org_" + silo.replace("-", "_")  # never a number or a truth value


def _set_policy(workspace: Path, plan: Plan, role: str) -> None:
    """What may run here: fmtc's own class, no code that travels with a job, no shell; no log leaves the site."""
    local = workspace / "local"
    resources = read_json(local / "resources.json.default")
    resources["class_allow_list"] = [CONTROLLER if role == "coordinator" else EXECUTOR]
    # FLARE's own components of the site: those that send logs away are left out
    resources["components"] = [c for c in resources["components"] if "logging" not in c["path"]]
    if role == "coordinator":
        if is_loopback(plan.host):  # listen there only; FLARE's own word here, "server", means all interfaces
            target = f"{plan.host}:{plan.port}"
            _edit(workspace / "startup/fed_server.json", ("servers", 0, "service", "target"), target)
        _edit(workspace.parent / "admin/startup/fed_admin.json", ("admin", "host"), _dialled(plan))
        resources["servers"][0] |= {"heart_beat_timeout": plan.lost_after, "max_num_clients": max(100, len(plan.silos))}
        text = json.dumps(resources, indent=1).replace("/tmp/nvflare/", "{store}/")
        (local / "resources.template.json").write_text(text, encoding="utf-8")
    else:
        resources["allow_log_streaming"] = False
        write_json(local / "resources.json", resources)
    rights = dict.fromkeys(("submit_job", "manage_job", "view"), "any")
    rights |= dict.fromkeys(("clone_job", "download_job", "operate", "byoc", "shell_commands"), "none")
    authorization = {"format_version": "1.0", "permissions": {"project_admin": rights}}
    write_json(local / "authorization.json", authorization)
    # FLARE's processes of one machine talk to each other too: not in the clear, and not to other users of the machine
    inside = {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}}
    write_json(local / "comm_config.json", {"internal": inside})
    for template in local.glob("*.default"):
        if template.name in ("resources.json.default", "authorization.json.default"):
            template.unlink()
    for script in (workspace / "startup").glob("*.sh"):  # `fmtc join` and `fmtc coordinate` start the processes
        script.unlink()


def _edit(path: Path, place: tuple[str | int, ...], value: Any) -> None:
    """Replace one value in a JSON file."""
    document = read_json(path)
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    write_json(path, document)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, under a name that nobody else can reach."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _dialled(plan: Plan) -> str:
    """Where the coordinator's own session dials: it may not reach itself by the name silos know."""
    return plan.host if is_loopback(plan.host) else "127.0.0.1"


def _write_readme(kit: Path, workspace: Path, plan: Plan, role: str) -> None:
    """Say what a kit is for, in place of FLARE's words about scripts that are not here."""
    for theirs in workspace.rglob("readme.txt"):
        theirs.unlink()
    if role == "coordinator":
        who, command = "the coordinator", "coordinate --kit FOLDER -k 4 --out run"
    else:
        who, command = f"silo {kit.name}", "join --kit FOLDER --data FILE --out ours"
    text = (
        f"The kit of {who} in the federation {plan.name}, which meets at {plan.host}:{plan.port}.\n"
        f"It holds a private key: keep it to yourself.\n\n"
        f"    fmtc {command}\n    fmtc doctor --kit FOLDER\n"
    )
    (kit / "README.txt").write_text(text, encoding="utf-8")


def _write_secret(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(text + "\n")


# -------------------------------------------------------------------------------------------------------- processes


JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _tidy(kit: Kit) -> None:
    """Throw away what FLARE keeps of jobs that are over, and a log that has grown long."""
    for folder in kit.workspace.iterdir():
        if folder.is_dir() and JOB.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    log = kit.path / CONSOLE
    if log.exists() and log.stat().st_size > 10_000_000:
        log.replace(log.with_suffix(".old.log"))


class Process:
    """FLARE's server or a silo's client, in a process of its own that ends with this one.

    Its words go to ``console.log`` in the kit.

    Parameters
    ----------
    kit : Kit
    party : str
        Under which a silo dials: the server refuses another one while this one is there.
    """

    def __init__(self, kit: Kit, party: str = ""):
        self.kit = kit
        self.log = kit.path / CONSOLE
        _tidy(kit)
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as stream:
            self.process = subprocess.Popen(
                _command(kit, party),
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=kit.path,
                start_new_session=True,  # Ctrl-C is for us; we tell the others
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it and all it started: asked first, then made to."""
        stop_all([self])


def stop_all(processes: Iterable[Process], patience: float = 5.0) -> None:
    """End processes and all they started, together: asked first, then made to."""
    family: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(process.process.pid)
            family += [parent, *parent.children(recursive=True)]
    for ask, seconds in ((psutil.Process.terminate, patience), (psutil.Process.kill, 5.0)):
        for member in family:
            with contextlib.suppress(psutil.Error):
                ask(member)
        _, family = psutil.wait_procs(family, timeout=seconds)
        if not family:
            break
    for process in processes:
        process.process.wait()


def _command(kit: Kit, party: str) -> list[str]:
    """How to start FLARE's server or client for a kit."""
    if kit.role == "coordinator":
        module, config, words = serve.SERVER, "fed_server.json", ["org=fmtc"]
    else:
        module, config = serve.SILO, "fed_client.json"
        beat = max(2, 2 * int(kit.plan.lost_after / 10))  # FLARE sleeps in steps of 2 seconds, and not at all below
        words = [f"uid={kit.site}", f"org={_org(kit.name)}", f"heart_beat_interval={beat}"]
    flags = ["-m", str(kit.workspace), "-s", config, "--set", "secure_train=true", *words, "config_folder=config"]
    name = str(kit.plan.lost_after) if kit.role == "coordinator" else party
    return [sys.executable, "-u", "-P", str(Path(serve.__file__)), str(os.getpid()), name, module, *flags]


# ------------------------------------------------------------------------------------------------------ coordinator


class Coordinator:
    """FLARE's server and our session with it; a context that keeps the kit to itself and leaves no process behind.

    Parameters
    ----------
    kit : Kit
        The coordinator's.
    """

    def __init__(self, kit: Kit):
        self.kit = kit
        self.server: Process | None = None
        self.session: Any = None
        self.store: Path | None = None
        self._heard = _Follower(kit.path / CONSOLE)
        self._kept = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._kept.enter_context(self.kit.held())
        return self

    def __exit__(self, *_: object) -> None:
        with self._kept:
            self.close()

    def open(self, patience: float = 120.0) -> None:
        """Start the server, unless it runs, and log in."""
        if self.server is not None and self.server.alive and self.session is not None:
            return
        self.close()
        self.kit.check()
        _check_port(self.kit.plan.port)
        self.store = Path(tempfile.mkdtemp(prefix=".store-", dir=self.kit.path))  # FLARE would share one for all users
        local = self.kit.workspace / "local"
        text = (local / "resources.template.json").read_text(encoding="utf-8").replace("{store}", str(self.store))
        (local / "resources.json").write_text(text, encoding="utf-8")
        self.server = Process(self.kit)
        end = time.monotonic() + patience
        while True:
            if not self.server.alive:
                raise FederationError(f"the server ended at once; {self.server.log} says why")
            try:
                # a session that begins too early waits longer and longer between its attempts, and one that is given up
                # just as it connects never ends
                socket.create_connection((_dialled(self.kit.plan), self.kit.plan.port), 5.0).close()
                with quiet():
                    self.session = new_secure_session(ADMIN, str(self.kit.path / "admin"), timeout=30.0)
                return
            except Exception as error:
                if time.monotonic() > end:
                    raise FederationError(
                        f"the server does not answer: {error}; {self.server.log} may say why"
                    ) from None
                time.sleep(0.1)

    def close(self) -> None:
        """Log out and end the server and all it started."""
        if self.session is not None:
            with quiet(), contextlib.suppress(Exception):
                self.session.close()
            self.session = None
        if self.server is not None:
            self.server.stop()
            self.server = None
        if self.store is not None:
            shutil.rmtree(self.store, ignore_errors=True)
            self.store = None

    def second_parties(self) -> list[str]:
        """Silos under whose name a second party has dialled, and was refused, since the last call."""
        said = [line.decode(errors="replace") for line in self._heard.lines()]
        names = {line.rpartition(" ")[2] for line in said if line.startswith(serve.MARK + serve.SECOND)}
        return [silo for silo, site in self.kit.plan.sites.items() if site in names]

    def present(self) -> set[str]:
        """Silos that gave a sign of life lately."""
        now = time.time()
        found = self._ask(lambda: self.session.get_system_info(), tries=2)
        seen = {c.name: c.last_connect_time for c in found.client_info}
        sites = self.kit.plan.sites
        return {silo for silo, site in sites.items() if now - seen.get(site, 0) < self.kit.plan.lost_after}

    def submit(self, job: Path) -> str:
        """Hand a job to the server; its id."""
        return str(self._ask(lambda: self.session.submit_job(str(job))))

    def status(self, job_id: str) -> str:
        """FLARE's word for how a job is doing."""
        return str(self._ask(lambda: self.session.get_job_meta(job_id), tries=2)["status"])

    def abort(self, job_id: str) -> None:
        """End a job and wait until it has."""
        with contextlib.suppress(ServerLostError):
            self._ask(lambda: self.session.abort_job(job_id))
            end = time.monotonic() + 30
            while time.monotonic() < end and not self.status(job_id).startswith("FINISHED"):
                time.sleep(0.3)

    def _ask(self, question: Callable[[], Any], tries: int = 1) -> Any:
        """The server's answer; a question that changes nothing may be asked again, of a server that is just busy."""
        for left in reversed(range(tries)):
            if self.server is None or not self.server.alive or self.session is None:
                raise ServerLostError("the server process is gone")
            try:
                with quiet():
                    return question()
            except Exception as error:
                if left == 0:
                    raise ServerLostError(f"{type(error).__name__}: {error}") from error
                time.sleep(1.0)


def _check_port(port: int, patience: float = 3.0) -> None:
    """Refuse to start where the port is taken; processes of a coordinator that was killed need a second to end."""
    end = time.monotonic() + patience
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
                return
            except OSError:
                if time.monotonic() > end:
                    raise FederationError(
                        f"port {port} of this machine is taken by another program, or may not be used; is a "
                        "coordinator running already?"
                    ) from None
        time.sleep(0.2)


@contextmanager
def quiet() -> Iterator[None]:
    """FLARE's session prints, logs and uses what is deprecated; nobody asked for it."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def write_job(folder: Path, order: Order, plan: Plan, present: set[str]) -> Path:
    """The three files of a FLARE job: names of installed classes and their settings, no code."""
    sites = plan.sites
    names = [sites[silo] for silo in sorted(present)]
    hyper = jsonable(asdict(order.hyper))
    controller = {
        "run_id": order.run_id,
        "hyper": hyper,
        "sites": {order.client_ids.get(silo, silo): site for silo, site in sites.items()},
        "folder": str(order.folder),
        "min_clients": order.min_clients,
        "weights": order.weights,
        "deadline": order.deadline,
        "lost_after": plan.lost_after,
        "preflight": order.preflight,
    }
    apps = {"coordinator": ["server"], "silo": names}  # a silo does not get the coordinator's part
    for app in apps:
        (folder / app / "config").mkdir(parents=True)
    write_json(
        folder / "meta.json", {"name": "fmtc", "min_clients": len(names), "resource_spec": {}, "deploy_map": apps}
    )
    write_json(
        folder / "coordinator" / "config" / "config_fed_server.json",
        {
            "format_version": 2,
            **_INLINE,
            "server": {"task_request_interval": polling(len(names))},
            "workflows": [{"id": "fmtc", "path": CONTROLLER, "args": controller}],
            "components": [],
        },
    )
    told = {"run_id": order.run_id, "hyper": hyper, "preflight": order.preflight, "random_state": order.random_state}
    executor = {"path": EXECUTOR, "args": told}
    write_json(
        folder / "silo" / "config" / "config_fed_client.json",
        {
            "format_version": 2,
            **_INLINE,
            "job_heartbeat_interval": plan.lost_after / 10,
            "executors": [{"tasks": [TASK], "executor": executor}],
            "components": [],
        },
    )
    return folder


_INLINE = {"np_download_chunk_size": 0}  # arrays go inside the message; a download each would double the trips


def polling(sites: int) -> float:
    """Seconds between two questions of a silo for work: short with few, longer with many, as each one costs."""
    return min(2.0, max(0.05, 0.01 * sites))


@dataclass(frozen=True)
class Order:
    """What is to be run, and how patient to be."""

    hyper: Hyper
    folder: Path  # of the coordinator
    run_id: str
    min_clients: int | None = None
    weights: Mapping[str, float] | None = None
    deadline: float = 600.0  # for one answer
    wait: float = 600.0  # for silos that are not there
    preflight: str = "no"  # "first": compare the silos' columns before the first round; "only": and leave it at that
    client_ids: Mapping[str, str] = field(default_factory=dict)  # where a client's id is not its silo's name
    random_state: int | None = None  # of which the seed was made, for the silos' models to tell


Event = Callable[[Mapping[str, Any]], None]


def supervise(
    coordinator: Coordinator, order: Order, listen: Event, *, tend: Callable[[], None] = lambda: None
) -> None:
    """See a run through: job after job, each continuing from the checkpoints of the last, until it is done.

    Parameters
    ----------
    coordinator : Coordinator
    order : Order
    listen : callable
        Gets every event of the run, as a dict with at least ``event`` and ``time``.
    tend : callable
        Called several times a second; the place to look after processes of one's own.

    Raises
    ------
    ClientError
        When fewer silos than needed are there for `order.wait` seconds, or fail for another reason than being lost.
    """
    plan = coordinator.kit.plan
    needed = len(plan.silos) if order.min_clients is None else order.min_clients
    follow = _Follower(order.folder / EVENTS)
    barren, begun = 0, False  # jobs in a row that brought no round; whether one has brought any

    def look() -> None:
        tend()
        for silo in coordinator.second_parties():
            listen({"event": "second party", "time": time.time(), "silo": silo})

    while True:
        over = finished(order.folder, order.run_id, order.hyper) is not None
        try:
            coordinator.open()
            if over:  # silos that do not know it yet are told; whoever knows it may have left
                listen({"event": "over", "time": time.time()})
                needed = 0
            patience = min(order.wait, plan.lost_after) if begun or over else order.wait
            present = _gather(coordinator, order, needed, patience, listen, look)
            if not present:
                return
            with tempfile.TemporaryDirectory(prefix="fmtc-job-") as scratch:
                job = coordinator.submit(write_job(Path(scratch) / "job", order, plan, present))
            listen({"event": "submitted", "time": time.time(), "silos": sorted(present)})
            ended, rounds, why = _attend(coordinator, job, follow, present, listen, look)
            if ended == "gone":
                listen({"event": "job gone", "time": time.time(), "why": why})
        except ServerLostError as error:
            listen({"event": "server lost", "time": time.time(), "why": str(error)})
            coordinator.close()
            ended, rounds, why = "lost", 0, str(error)
        if ended in ("done", "agree"):
            return
        if ended == "differ":
            raise DifferError("the silos' columns differ in a way that would stop the run, or spoil it")
        if ended in ("refused data", "failed"):
            raise (ValueError if ended == "refused data" else FederationError)(why)
        if ended == "stopped":
            raise ClientError(why)
        begun = begun or rounds > 0
        barren = 0 if rounds else barren + 1
        if barren >= 3:
            raise ClientError(f"three attempts in a row brought no round: {why}")


_ENDS = ("done", "agree", "differ", "lost", "stopped", "refused data", "failed")


class _Follower:
    """Reads the lines that are added to a file."""

    def __init__(self, path: Path):
        self.path = path
        self.place = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[bytes]:
        """The whole lines since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            if self.path.stat().st_size < self.place:  # another file by now
                self.place = 0
            stream.seek(self.place)
            whole = stream.read().rpartition(b"\n")[0]
        self.place += len(whole) + 1 if whole else 0
        return whole.splitlines()

    def events(self) -> list[dict[str, Any]]:
        """The events in them."""
        return [json.loads(line) for line in self.lines()]


def _gather(
    coordinator: Coordinator, order: Order, needed: int, patience: float, listen: Event, tend: Callable[[], None]
) -> set[str]:
    """Wait for all silos; after `patience` seconds for as many as are needed; after `order.wait` no longer."""
    silos = set(coordinator.kit.plan.silos)
    began = time.monotonic()
    missing: set[str] | None = None
    while True:
        tend()
        present, waited = coordinator.present(), time.monotonic() - began
        if present >= silos or (waited > patience and len(present) >= needed):
            return present
        if silos - present != missing:
            missing = silos - present
            listen({"event": "waiting", "time": time.time(), "missing": sorted(missing)})
        if waited > order.wait:
            raise ClientError(
                f"{len(present)} of {len(silos)} silos are there, {needed} needed; after {order.wait:g} seconds still "
                f"missing: {', '.join(sorted(missing))}. The run can go on later with --resume."
            )
        time.sleep(0.2)


def _attend(
    coordinator: Coordinator,
    job: str,
    follow: _Follower,
    present: set[str],
    listen: Event,
    tend: Callable[[], None],
) -> tuple[str, int, str]:
    """Watch one job: how it ended, how many rounds it brought, and why."""
    rounds, ended, why, over, looked = 0, "", "", False, 0.0
    while not over:
        tend()
        if time.monotonic() - looked > 0.5:
            looked = time.monotonic()
            status = coordinator.status(job)
            over = status.startswith(("FINISHED", "FAILED"))
            here = coordinator.present()
            if not over and not ended and here - present:
                listen({"event": "silo back", "time": time.time(), "silos": sorted(here - present)})
                coordinator.abort(job)
                return "back", max(rounds, 1), "a silo is back"
        for event in follow.events():
            listen(event)
            rounds += event["event"] == "round"
            over = over or event["event"] == "ended"
            if event["event"] == "away":
                present = present - {silo for silo, site in coordinator.kit.plan.sites.items() if site == event["site"]}
            if event["event"] in _ENDS:
                ended, why = event["event"], event.get("why", "")
        time.sleep(0.05)
    if not ended:
        return "gone", rounds, f"a process of the job was lost ({status})"
    return ended, rounds, why


# ------------------------------------------------------------------------------------------------------------ silos


_TWICE = (
    "somebody else takes part as {0!r} already, with a copy of this kit: a silo joins once. End the other `fmtc join`; "
    "if it was on a machine that has failed, try again after {1:g} seconds"
)


class Membership:
    """A silo's part in a federation: its process, kept alive, and what it comes to; a context.

    Parameters
    ----------
    kit : Kit
        The silo's.
    site : Site
        Where its rows are.
    """

    def __init__(self, kit: Kit, site: Site):
        self.kit, self.site = kit, site
        self.party = secrets.token_hex(8)
        self.process: Process | None = None
        self._states = kit.path / STATES
        self._kept = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._kept:
            self._kept.enter_context(self.kit.held())
            self.kit.check()
            self.site.write(self.kit.path)
            # what was there before our process is: `watch` tells of what comes after
            self._delivered = {path.parent.name for path in self._states.glob(f"*/{DELIVERED}")}
            self._compared = {path.parent.name for path in self._states.glob(f"*/{PREFLIGHT}")}
            self._errors = _Follower(self.kit.path / TROUBLE)
            self._start()
            self._kept = self._kept.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._kept:
            if self.process is not None:
                self.process.stop()

    def _start(self) -> None:
        log = self.kit.path / CONSOLE
        self._read = _Follower(log)
        self.process = Process(self.kit, self.party)
        self.connected = False

    def watch(self) -> Iterator[dict[str, Any]]:
        """What happens, as it happens, until it is left.

        Events are connected, restarted, trouble (nobody answers), refused (the coordinator does not take us),
        second party (somebody dialled under our name), asked (the settings of a run), preflight, error (of our own),
        round and ended.
        """
        delivered, compared = self._delivered, self._compared
        newest: dict[str, int] = {}
        began, warned, crashes = time.monotonic(), False, 0
        while True:
            assert self.process is not None
            for line in self._read.lines():
                if b"Successfully registered client" in line and not self.connected:
                    self.connected, warned, crashes = True, False, 0
                    yield {"event": "connected"}
                if line.startswith((serve.MARK + serve.REFUSED).encode()):
                    yield {"event": "refused", "why": _TWICE.format(self.kit.name, self.kit.plan.lost_after)}
                if line.startswith((serve.MARK + serve.SECOND).encode()):
                    yield {"event": "second party"}
            for event in self._errors.events():
                yield event | {"event": "error"}
            if not self.process.alive:
                crashes += 1
                yield {"event": "restarted", "log": str(self.process.log), "attempt": crashes}
                time.sleep(min(30.0, 2.0**crashes))
                self._start()
                began = time.monotonic()
            if not self.connected and not warned and time.monotonic() - began > 10:
                warned = True
                why = refusal(self.kit)
                yield {"event": "refused", "why": why} if why else {"event": "trouble", "why": reachable(self.kit)}
            for path in sorted(self._states.glob("*/*")):
                run_id = path.parent.name
                if path.name == ASKED and not path.with_name(SHOWN).exists():
                    yield {"event": "asked", "run": run_id, **read_json(path)}
                    path.with_name(SHOWN).touch()
                if path.name.startswith("round-") and run_id not in delivered:
                    round_no = int(path.stem.partition("-")[2])
                    if round_no > newest.get(run_id, 0):
                        newest[run_id] = round_no
                        yield {"event": "round", "round": round_no, "run": run_id}
                if path.name == PREFLIGHT and run_id not in compared:
                    compared.add(run_id)
                    yield {"event": "preflight", **read_json(path)}
                if path.name == ENDED and run_id not in delivered:
                    result = read_site_result(path.with_name(RESULT))
                    self._let_go()
                    delivered.add(run_id)  # once, also where it could not be written
                    yield {"event": "ended", "run": run_id, "result": result, **read_json(path)}
            yield {"event": "idle"}
            time.sleep(0.2)

    def deliver(self, run_id: str) -> None:
        """Note that the result of a run has been written where it was wanted."""
        (self._states / run_id / DELIVERED).touch()
        self._delivered.add(run_id)

    def discard(self) -> None:
        """Give up results that could not be written."""
        for path in self._states.glob(f"*/{ENDED}"):
            self.deliver(path.parent.name)

    def _let_go(self, patience: float = 5.0) -> None:
        """Let the process of the job end before ours does, so that its last answer goes out."""
        assert self.process is not None
        with contextlib.suppress(psutil.Error):
            psutil.wait_procs(psutil.Process(self.process.process.pid).children(recursive=True), timeout=patience)


# ------------------------------------------------------------------------------------------- all on this machine


@dataclass(frozen=True)
class Outcome:
    """What a federation on one machine came to."""

    silos: dict[str, SiteResult]
    consensus: Any  # d x k x m
    about: dict[str, Any]  # history, why it stopped, who was missing

    @property
    def history(self) -> tuple[RoundRecord, ...]:
        """One record per round."""
        return tuple(RoundRecord.from_dict(line) for line in self.about["history"])


class LocalFederation:
    """A whole federation on this machine: server and silos in processes of their own, over mutual TLS on loopback.

    A context: everything is made in a temporary folder, and nothing is left when it ends, however it ends.

    Parameters
    ----------
    sites : iterable of Site
        One silo each.
    port : int, optional
        Where the silos dial; left out, one that is free.
    lost_after : float
        Seconds without a sign of life after which a silo counts as lost.
    tend : bool
        Start a silo's process again when it has ended.
    """

    def __init__(self, sites: Iterable[Site], *, port: int | None = None, lost_after: float = 10.0, tend: bool = True):
        self.sites = {str(place): site for place, site in enumerate(sites, start=1)}
        self.port, self.lost_after, self.tends = port, lost_after, tend
        self.processes: dict[str, Process] = {}  # by client id
        self.kits: dict[str, Kit] = {}
        self.party = secrets.token_hex(8)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="fmtc-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        try:
            plan = Plan("local", "localhost", self.port or free_port(), tuple(self.sites), self.lost_after)
            first, *others = provision(plan, self.folder / "kits")
            self.coordinator = Coordinator(first)
            for kit in others:
                site = self.sites[kit.name]
                site.write(kit.path)
                self.kits[site.client_id] = kit
            for cid in self.kits:
                self.start(cid)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if hasattr(self, "coordinator"):
                self.coordinator.close()
        finally:
            stop_all(self.processes.values())
            self._folder.cleanup()

    def start(self, cid: str) -> None:
        """Start the process of a silo."""
        self.processes[cid] = Process(self.kits[cid], self.party)

    def _tend(self) -> None:
        for cid, process in self.processes.items():
            if self.tends and not process.alive:
                self.start(cid)

    def run(
        self,
        hyper: Hyper,
        *,
        weights: Mapping[str, float] | None = None,
        min_clients: int | None = None,
        deadline: float = 600.0,
        wait: float = 60.0,
        listen: Event = lambda event: None,
    ) -> Outcome:
        """One run of the federation, to its end."""
        run_id = secrets.token_hex(8)
        folder = self.folder / f"run-{run_id}"
        folder.mkdir()
        ids = {name: site.client_id for name, site in self.sites.items()}
        self.order = Order(hyper, folder, run_id, min_clients, weights, deadline, wait, client_ids=ids)
        return self.resume(listen)

    def resume(self, listen: Event = lambda event: None) -> Outcome:
        """Go on with the last run, from its last round."""
        order = self.order
        errors = {cid: _Follower(kit.path / TROUBLE) for cid, kit in self.kits.items()}
        try:
            supervise(self.coordinator, order, listen, tend=self._tend)
        except ClientError as error:  # the silos are ours: their own words may be told
            why = [f"{cid!r}: {event['why']}" for cid, follower in errors.items() for event in follower.events()[-1:]]
            if not why:
                raise
            raise ClientError(f"{error}. Silo {'; '.join(why)}") from error
        consensus, about = read_result(order.folder / RESULT)
        results = {
            cid: read_site_result(kit.path / STATES / order.run_id / RESULT)
            for cid, kit in self.kits.items()
            if cid not in about["missing"]
        }
        return Outcome(results, consensus, about)


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


__all__ = [
    "Coordinator", "DifferError", "Kit", "KitError", "LocalFederation", "Membership", "Order", "Outcome", "Plan",
    "Process", "provision", "read_plan", "supervise",
]  # fmt: skip
