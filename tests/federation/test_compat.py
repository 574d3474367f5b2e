"""FLARE's inner parts: named in one module, and all of them there in each version that fmtc runs with."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.app_common.job_launcher import process_launcher
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint
from nvflare.fuel.flare_api.api_spec import ClientInfo
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fmtc.runtime.flare import compat, doctor, serve

ROOT = Path(__file__).parents[2]

# methods that fmtc replaces or calls, with the parameters it relies on
METHODS = {
    **{(module, "get_ssl_context"): ("params", "ssl_server") for module in compat.TLS_USERS},
    (ConnManager, "update_endpoint"): ("sfm_conn", "data"),
    (SfmConnection, "send_handshake"): ("frame_type",),
    (SfmConnection, "send_dict"): ("frame_type", "stream_id", "data"),
    (compat.FederatedClientBase, "client_register"): ("project_name", "fl_ctx"),
    (process_launcher, "spawn_process"): ("cmd_args", "env"),
    (Endpoint, "set_prop"): ("key", "value"),
    (WFCommServer, "client_is_active"): ("client_name", "reason", "fl_ctx"),
    (WFCommServer, "_cleanup_inflight_tensor_downloads"): ("fl_ctx",),
    (compat.Controller, "send"): ("task", "fl_ctx", "targets"),
    (compat.Controller, "cancel_task"): ("task",),
    (Session, "get_system_info"): (),
    (Session, "submit_job"): ("job_definition_path",),
    (Session, "get_job_meta"): ("job_id",),
    (Session, "abort_job"): ("job_id",),
    (Session, "close"): (),
}

# attributes that an object gets when it is made
ATTRIBUTES = (
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
    compat.CLIENT_MODULE: (compat.HEARTBEAT_INTERVAL, "config_folder", "uid"),
    compat.SERVER_MODULE: ("config_folder",),
    "nvflare.private.fed.server.fed_server": (compat.HEARTBEAT_TIMEOUT, compat.MAX_CLIENTS),
    "nvflare.private.fed.server.server_json_config": (f"server.{compat.TASK_REQUEST_INTERVAL}",),
    "nvflare.private.fed.utils.app_authz": ('"byoc"',),
    "nvflare.apis.job_def": ('"FINISHED:',),
    "nvflare.apis.fl_constant": ('"submit_job"', '"clone_job"'),
}

# text in the template that kits are made from: keys that fmtc changes there
TEMPLATE_KEYS = (
    compat.STORE, compat.HEARTBEAT_TIMEOUT, compat.MAX_CLIENTS, compat.CLASS_ALLOW_LIST,
    compat.CLASS_LIST_ENFORCEMENT_MODE, compat.ALLOW_LOG_STREAMING,
    compat.CONNECTION_SECURITY, '"components"', '"servers"',
)  # fmt: skip


def missing():
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
    lacking += [f"ClientRequestProcessors.{name}" for name in sorted(compat.ANSWERED - found)]
    for path in compat.BUILDERS:
        module, _, name = path.rpartition(".")
        if not hasattr(importlib.import_module(module), name):
            lacking.append(path)
    template = resources.files("nvflare.lighter").joinpath("templates", compat.TEMPLATE).read_text(encoding="utf-8")
    lacking += [f"{key!r} in {compat.TEMPLATE}" for key in TEMPLATE_KEYS if key not in template]
    for module, words in WORDS.items():
        source = _source(module)
        lacking += [module] if source is None else [f"{word!r} in {module}" for word in words if word not in source]
    return lacking


def _source(module):
    """The text of a module that need not be loaded; None where there is no such module."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.loader is None else spec.loader.get_source(module)


def load_anew():
    """Import compat as a process does that has not yet imported it."""
    spec = importlib.util.spec_from_file_location("compat_anew", compat.__file__)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_installed_flare_has_it_all():
    """Where another version fails here, it cannot go into `VERIFIED` before fmtc has changed."""
    assert missing() == []
    load_anew()
    assert metadata.version("nvflare") in compat.VERIFIED


def renamed(manager, connection, data):
    """A method whose parameters have other names."""


MISSING = {
    "ConnManager.update_endpoint": lambda patch: patch.delattr(ConnManager, "update_endpoint"),
    "ConnManager.update_endpoint(sfm_conn, data)": lambda patch: patch.setattr(ConnManager, "update_endpoint", renamed),
    "SfmConnection.last_activity": lambda patch: patch.setattr(SfmConnection, "__init__", lambda self, conn: None),
    "ClientRequestProcessors.DeployProcessor": lambda patch: patch.setattr(
        ClientRequestProcessors,
        "request_processors",
        [p for p in ClientRequestProcessors.request_processors if type(p).__name__ != "DeployProcessor"],
    ),
    "'Welcome, client' in nvflare.private.fed.client.fed_client_base": lambda patch: patch.setitem(
        WORDS, "nvflare.private.fed.client.fed_client_base", ("Welcome, client",)
    ),
    "nvflare.private.fed.client.moved": lambda patch: patch.setitem(WORDS, "nvflare.private.fed.client.moved", ("x",)),
}


@pytest.mark.parametrize("name", MISSING)
def test_the_check_would_find_a_part_that_is_missing(monkeypatch, name):
    MISSING[name](monkeypatch)
    assert name in missing()


@pytest.mark.parametrize("version", ["2.8.3", "2.9.1", "2.10.0", "3.0"])
def test_another_version_is_refused(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda package: version)
    with pytest.raises(ImportError, match=f"works with nvflare 2.9.0, and this is nvflare {re.escape(version)}: pip"):
        load_anew()


@pytest.mark.parametrize("package", ["nvflare", "psutil"])
def test_without_the_extra_one_sentence_says_how_to_install_it(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "for name in ('adapter', 'kits', 'local', 'membership', 'supervise'):\n"
        "    try:\n"
        "        __import__(f'fmtc.runtime.flare.{name}')\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    sentence = "a federation of processes needs nvflare: pip install 'fmtc[federation]'"
    assert done.stdout.splitlines() == 5 * [sentence], done.stderr


def test_versions_are_pinned_alike():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["federation"]
    (pinned,) = re.findall(r"^nvflare==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert [f"nvflare=={version}" for version in compat.VERIFIED] == extra[:1]
    assert compat.VERIFIED == doctor.FLARE == (pinned,)


def test_no_other_module_imports_flare():
    imports = re.compile(r"^\s*(from|import) nvflare", re.MULTILINE)
    found = {path.name for path in (ROOT / "src").rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))}
    assert found == {"compat.py"}


def test_a_process_of_flare_checks_it_without_loading_fmtc():
    code = (
        "import runpy, sys\n"
        f"serve = runpy.run_path({serve.__file__!r})\n"
        "flare = serve['load_compat']()\n"
        "print(flare.VERIFIED, [name for name in sys.modules if name.startswith('fmtc')])\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == f"{compat.VERIFIED} []", done.stderr
