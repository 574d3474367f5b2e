"""The one door to NVIDIA FLARE: every part of it that fmtc uses, replaces or relies on.

Much of it is not FLARE's public interface: methods that fmtc replaces, configuration keys, a line of its log. fmtc
therefore runs with the versions in `VERIFIED` and no other; ``tests/federation/test_compat.py`` says what another one
would need.

This file imports nothing of fmtc: `serve.py` loads it by its path, in processes that run without fmtc.
"""

# ruff: noqa: E402, F401 (what is imported depends on the version, and is for others)
from __future__ import annotations

from importlib import metadata
from typing import Any

VERIFIED = ("2.9.0",)  # whose inner parts were checked; pyproject.toml allows the same

try:
    import nvflare
    import psutil
except ImportError as error:
    raise ImportError("a federation of processes needs nvflare: pip install 'fmtc[federation]'") from error


if metadata.version("nvflare") not in VERIFIED:
    raise ImportError(
        f"fmtc works with nvflare {' or '.join(VERIFIED)}, and this is nvflare {metadata.version('nvflare')}: "
        "pip install 'fmtc[federation]' installs one that works."
    )

# the two ends of a job
from nvflare.apis.controller_spec import Task
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ConfigVarName, ReturnCode
from nvflare.apis.impl.controller import Controller

# the processes of jobs
from nvflare.app_common.job_launcher import process_launcher

# who may do what
from nvflare.app_common.widgets.component_path_authorizer import CLASS_ALLOW_LIST, CLASS_LIST_ENFORCEMENT_MODE

# connections
from nvflare.fuel.f3.drivers import aio_tcp_driver, net_utils, tcp_driver
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

# the coordinator's session with its server
from nvflare.fuel.flare_api.flare_api import new_secure_session

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
    "clone_job", "byoc", CommandCategory.DOWNLOAD_JOB, CommandCategory.OPERATE, CommandCategory.SHELL_COMMANDS,
)  # fmt: skip

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
    "nvflare.lighter.impl.cert.CertBuilder": {"root_valid_days": 3650},
}
STATIC_BUILDERS = [*BUILDERS][:2]  # those that make no key and no certificate
