"""The one door to NVIDIA FLARE: every part of it that fmtc uses, replaces or relies on, checked at import.

Much of it is not FLARE's public interface: methods that fmtc replaces, configuration keys, a line of its log. Each is
named here and nowhere else, so that another version of FLARE fails with a sentence and not in the middle of a run.
fmtc was verified with the versions in `VERIFIED`; ``pyproject.toml`` allows the series `SERIES`.

This file imports nothing of fmtc: `serve.py` loads it by its path, in processes that run without fmtc.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from importlib import metadata, resources
from typing import Any

SERIES = "2.9"  # what pyproject.toml allows
VERIFIED = ("2.9.0",)  # whose inner parts were checked

try:
    import nvflare  # noqa: F401
    import psutil
    from cryptography import x509
except ImportError as error:
    raise ImportError("a federation of processes needs nvflare: pip install 'fmtc[federation]'") from error


class UnknownFlareError(ImportError):
    """An installed FLARE that lacks a part fmtc needs, or is of a series that nobody has tried."""


def _unknown(what: str) -> UnknownFlareError:
    return UnknownFlareError(
        f"{what}. fmtc works with nvflare {SERIES}.x (verified with {', '.join(VERIFIED)}) and this is nvflare "
        f"{metadata.version('nvflare')}: pip install 'fmtc[federation]' installs one that works."
    )


if metadata.version("nvflare").split(".")[:2] != SERIES.split("."):
    raise _unknown("the installed FLARE is of another series")

try:
    # the two ends of a job
    from nvflare.apis.controller_spec import Task
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.event_type import EventType
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import ConfigVarName, ReturnCode
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.impl.wf_comm_server import WFCommServer

    # the processes of jobs
    from nvflare.app_common.job_launcher import process_launcher

    # who may do what
    from nvflare.app_common.widgets.component_path_authorizer import CLASS_ALLOW_LIST, CLASS_LIST_ENFORCEMENT_MODE

    # connections
    from nvflare.fuel.f3.drivers import aio_tcp_driver, net_utils, tcp_driver
    from nvflare.fuel.f3.drivers.driver_params import DriverParams
    from nvflare.fuel.f3.endpoint import Endpoint
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager
    from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
    from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
    from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint

    # the coordinator's session with its server
    from nvflare.fuel.flare_api.api_spec import ClientInfo
    from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

    # kits
    from nvflare.lighter.constants import PropKey, ProvFileName
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
    from nvflare.private.fed.client.fed_client_base import FederatedClientBase
    from nvflare.security.security import CommandCategory

    PEER = DriverParams.PEER_CN.value  # a property of a connection: the common name of the other side's certificate
    TLS_USERS = (net_utils, tcp_driver, aio_tcp_driver)  # modules that call `get_ssl_context` by their own name for it

    # keys of configuration files that FLARE has names for
    JOB_HEARTBEAT_INTERVAL = ConfigVarName.JOB_HEARTBEAT_INTERVAL
    INLINE_ARRAYS = {f"np_{ConfigVarName.DOWNLOAD_CHUNK_SIZE}": 0}  # arrays inside the message: no extra trip for each
    ALLOW_LOG_STREAMING = PropKey.ALLOW_LOG_STREAMING
    CONNECTION_SECURITY = PropKey.CONN_SECURITY
    COMM_CONFIG = ProvFileName.COMM_CONFIG
    RESOURCES = ProvFileName.RESOURCES_JSON_DEFAULT
    AUTHORIZATION = ProvFileName.AUTHORIZATION_JSON_DEFAULT
    RIGHTS = ("submit_job", CommandCategory.MANAGE_JOB, CommandCategory.VIEW)  # all that the coordinator may do
    DENIED = (  # what FLARE could grant besides
        "clone_job",
        "byoc",
        CommandCategory.DOWNLOAD_JOB,
        CommandCategory.OPERATE,
        CommandCategory.SHELL_COMMANDS,
    )
except (ImportError, AttributeError) as error:
    raise _unknown(f"a part of FLARE that fmtc needs is missing ({error})") from error

# ------------------------------------------------------------------------------------------- names inside FLARE

CLIENT_MODULE = "nvflare.private.fed.app.client.client_train"  # the program that a silo runs
SERVER_MODULE = "nvflare.private.fed.app.server.server_train"  # the program that the coordinator runs

# The only requests of FLARE's server that a silo answers: accept a job, start it, end it, report on it. FLARE knows
# more, such as `cat` of any file, and asks the silo's policy only where the server says that it should.
ANSWERED = frozenset({
    "AbortAppProcessor", "CancelResourceProcessor", "CheckResourceProcessor", "ClientStatusProcessor",
    "DeployProcessor", "NotifyJobStatusProcessor", "StartJobProcessor",
})  # fmt: skip

JOB_WAITS = "SUBMITTED"  # the status of a job whose processes have not been started
JOB_OVER = ("FINISHED", "FAILED")  # the status of a job that runs no more begins with one of these

# other keys of configuration files, and of the command line of a silo's process
HEARTBEAT_INTERVAL = "heart_beat_interval"
HEARTBEAT_TIMEOUT = "heart_beat_timeout"
MAX_CLIENTS = "max_num_clients"
TASK_REQUEST_INTERVAL = "task_request_interval"
STORE = "/tmp/nvflare/"  # where FLARE's server keeps its jobs, unless another place is configured

# what makes the kits, in this order
TEMPLATE = "master_template.yml"
BUILDERS: dict[str, dict[str, Any]] = {
    "nvflare.lighter.impl.workspace.WorkspaceBuilder": {"template_file": [TEMPLATE]},
    "nvflare.lighter.impl.static_file.StaticFileBuilder": {"config_folder": "config"},
    "nvflare.lighter.impl.cert.CertBuilder": {},
    "nvflare.lighter.impl.signature.SignatureBuilder": {},
}
STATIC_BUILDERS = [*BUILDERS][:2]  # those that make no key and no certificate

# ------------------------------------------------------------------------------------------------------ the check

# methods that fmtc replaces or calls, with the parameters it relies on
METHODS: dict[tuple[Any, str], tuple[str, ...]] = {
    **{(module, "get_ssl_context"): ("params", "ssl_server") for module in TLS_USERS},
    (ConnManager, "update_endpoint"): ("sfm_conn", "data"),
    (SfmConnection, "send_handshake"): ("frame_type",),
    (SfmConnection, "send_dict"): ("frame_type", "stream_id", "data"),
    (FederatedClientBase, "client_register"): ("project_name", "fl_ctx"),
    (process_launcher, "spawn_process"): ("cmd_args", "env"),
    (Endpoint, "set_prop"): ("key", "value"),
    (WFCommServer, "client_is_active"): ("client_name", "reason", "fl_ctx"),
    (WFCommServer, "_cleanup_inflight_tensor_downloads"): ("fl_ctx",),
    (Controller, "send"): ("task", "fl_ctx", "targets"),
    (Controller, "cancel_task"): ("task",),
    (Session, "get_system_info"): (),
    (Session, "submit_job"): ("job_definition_path",),
    (Session, "get_job_meta"): ("job_id",),
    (Session, "abort_job"): ("job_id",),
    (Session, "close"): (),
}

# attributes that an object gets when it is made
ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    (ConnManager, "sfm_endpoints"),
    (ConnManager, "local_endpoint"),
    (SfmConnection, "conn"),
    (SfmConnection, "last_activity"),
    (SfmConnection, "local_endpoint"),
    (SfmEndpoint, "connections"),
    (ClientInfo, "last_connect_time"),
)

# text in the source of a module: keys that it reads and lines that it logs
WORDS = {
    CLIENT_MODULE: (HEARTBEAT_INTERVAL, "config_folder", "uid"),
    SERVER_MODULE: ("config_folder",),
    "nvflare.private.fed.server.fed_server": (HEARTBEAT_TIMEOUT, MAX_CLIENTS),
    "nvflare.private.fed.server.server_json_config": (f"server.{TASK_REQUEST_INTERVAL}",),
    "nvflare.private.fed.utils.app_authz": ('"byoc"',),
    "nvflare.apis.job_def": ('"FINISHED:',),
    "nvflare.apis.fl_constant": ('"submit_job"', '"clone_job"'),
}

# text in the template that kits are made from: keys that fmtc changes there
TEMPLATE_KEYS = (
    STORE, HEARTBEAT_TIMEOUT, MAX_CLIENTS, CLASS_ALLOW_LIST, CLASS_LIST_ENFORCEMENT_MODE, ALLOW_LOG_STREAMING,
    CONNECTION_SECURITY, '"components"', '"servers"',
)  # fmt: skip


def missing() -> list[str]:
    """Parts of FLARE that fmtc relies on and that the installed one lacks; empty where it has them all."""
    lacking = []
    for (owner, name), wanted in METHODS.items():
        method = inspect.getattr_static(owner, name, None)
        if method is None:
            lacking.append(f"{owner.__name__}.{name}")
        elif not set(wanted) <= set(inspect.signature(method).parameters):
            lacking.append(f"{owner.__name__}.{name}({', '.join(wanted)})")
    lacking += [
        f"{owner.__name__}.{name}" for owner, name in ATTRIBUTES if name not in owner.__init__.__code__.co_names
    ]
    found = {type(processor).__name__ for processor in getattr(ClientRequestProcessors, "request_processors", ())}
    lacking += [f"ClientRequestProcessors.{name}" for name in sorted(ANSWERED - found)]
    for path in BUILDERS:
        module, _, name = path.rpartition(".")
        if not hasattr(importlib.import_module(module), name):
            lacking.append(path)
    template = resources.files("nvflare.lighter").joinpath("templates", TEMPLATE).read_text(encoding="utf-8")
    lacking += [f"{key!r} in {TEMPLATE}" for key in TEMPLATE_KEYS if key not in template]
    for module, words in WORDS.items():
        source = _source(module)
        lacking += [module] if source is None else [f"{word!r} in {module}" for word in words if word not in source]
    return lacking


def _source(module: str) -> str | None:
    """The text of a module that need not be loaded; None where there is no such module."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.loader is None else spec.loader.get_source(module)  # type: ignore[attr-defined]


def check() -> None:
    """Raise `UnknownFlareError` where the installed FLARE lacks a part that fmtc relies on."""
    lacking = missing()
    if lacking:
        raise _unknown(f"the installed FLARE lacks {', '.join(lacking)}")


check()

__all__ = [
    "ALLOW_LOG_STREAMING", "ANSWERED", "AUTHORIZATION", "BUILDERS", "CLASS_ALLOW_LIST", "CLASS_LIST_ENFORCEMENT_MODE",
    "CLIENT_MODULE", "COMM_CONFIG", "CONNECTION_SECURITY", "DENIED", "DXO", "HEARTBEAT_INTERVAL", "HEARTBEAT_TIMEOUT",
    "INLINE_ARRAYS", "JOB_HEARTBEAT_INTERVAL", "JOB_OVER", "JOB_WAITS", "MAX_CLIENTS", "PEER",
    "RESOURCES", "RIGHTS", "SERIES", "SERVER_MODULE", "STATIC_BUILDERS", "STORE", "TASK_REQUEST_INTERVAL", "TLS_USERS",
    "VERIFIED", "ClientRequestProcessors",
    "ConnManager", "Controller", "DataKind", "EventType", "Executor", "FederatedClientBase", "HandshakeKeys",
    "Provisioner", "ReturnCode",
    "SfmConnection", "Task", "Types", "UnknownFlareError", "check", "from_shareable", "missing", "new_secure_session",
    "prepare_builders", "prepare_project", "process_launcher", "psutil", "x509",
]  # fmt: skip
