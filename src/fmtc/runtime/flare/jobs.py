"""FLARE jobs: what a run asks for, as three files that name installed classes and carry no code."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ...artifacts.files import write_json
from ..spec import RunSpec
from . import compat
from .adapter import TASK
from .kits import CONTROLLER, EXECUTOR
from .plan import Plan


def write_job(folder: Path, spec: RunSpec, plan: Plan, present: Collection[str]) -> Path:
    """Write a job for the silos that are present; the folder it is in."""
    sites = plan.sites
    names = [sites[silo] for silo in sorted(present)]
    controller = {
        "spec": spec.to_dict(),
        "sites": {spec.client_ids.get(silo, silo): site for silo, site in sites.items()},
        "lost_after": plan.lost_after,
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
            **compat.INLINE_ARRAYS,
            "server": {compat.TASK_REQUEST_INTERVAL: polling(len(names))},
            "workflows": [{"id": "fmtc", "path": CONTROLLER, "args": controller}],
            "components": [],
        },
    )
    write_json(
        folder / "silo" / "config" / "config_fed_client.json",
        {
            "format_version": 2,
            **compat.INLINE_ARRAYS,
            compat.JOB_HEARTBEAT_INTERVAL: plan.lost_after / 10,
            "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {"spec": spec.for_silo()}}}],
            "components": [],
        },
    )
    return folder


def polling(sites: int) -> float:
    """Seconds between two requests of a silo for work: short with few silos, longer with many."""
    return min(2.0, max(0.05, 0.01 * sites))


__all__ = ["polling", "write_job"]
