"""FLARE jobs: what a run asks for, as three files that name installed classes and carry no code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...artifacts.files import jsonable, write_json
from ...protocol.method import method_of, view_method
from ..conductor import Spec
from . import compat
from .adapter import TASK
from .kits import CONTROLLER, EXECUTOR
from .plan import Plan


@dataclass(frozen=True)
class Order:
    """What to run, and how long to wait.

    Parameters
    ----------
    settings : Settings
        Of the method.
    folder : path
        Where the coordinator keeps checkpoint, events and result.
    run_id : str
        Names the run; the jobs that resume a run have the same.
    min_clients : int, optional
        The run goes on while this many clients answer; all of them if left out.
    weights : mapping of client id to float, optional
        The paper's omega.
    deadline : float
        Seconds within which an answer must come.
    wait : float
        Seconds to wait for silos that are not there.
    preflight : {"no", "first", "only"}
        Compare the silos' columns: not at all, before the first round, or without a run.
    accept_units : bool
        As in `Spec`.
    client_ids : mapping of silo to client id
        Where a client's id is not the name of its silo.
    random_state : int, optional
        What the seed in the settings was made from, for the silos' models to record.
    method : str
        Name of a method of `fmtc.protocol.method.METHODS`; left out, FMTC in the view of the settings.
    """

    settings: Any
    folder: Path
    run_id: str
    min_clients: int | None = None
    weights: Mapping[str, float] | None = None
    deadline: float = 600.0
    wait: float = 600.0
    preflight: str = "no"
    accept_units: bool = False
    client_ids: Mapping[str, str] = field(default_factory=dict)
    random_state: int | None = None
    method: str = ""

    def __post_init__(self) -> None:
        if not self.method:
            object.__setattr__(self, "method", view_method(self.settings.view, self.settings.privacy).name)

    @property
    def spec(self) -> Spec:
        """What the coordinator conducts."""
        return Spec(self.run_id, self.settings, self.folder, method_of(self.method))


def write_job(folder: Path, order: Order, plan: Plan, present: Collection[str]) -> Path:
    """Write a job for the silos that are present; the folder it is in."""
    sites = plan.sites
    names = [sites[silo] for silo in sorted(present)]
    settings = jsonable(asdict(order.settings))
    controller = {
        "run_id": order.run_id,
        "method": order.method,
        "settings": settings,
        "sites": {order.client_ids.get(silo, silo): site for silo, site in sites.items()},
        "folder": str(order.folder),
        "min_clients": order.min_clients,
        "weights": order.weights,
        "deadline": order.deadline,
        "lost_after": plan.lost_after,
        "preflight": order.preflight,
        "accept_units": order.accept_units,
    }
    executor = {
        "run_id": order.run_id,
        "method": order.method,
        "settings": settings,
        "preflight": order.preflight,
        "random_state": order.random_state,
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
            "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": executor}}],
            "components": [],
        },
    )
    return folder


def polling(sites: int) -> float:
    """Seconds between two requests of a silo for work: short with few silos, longer with many."""
    return min(2.0, max(0.05, 0.01 * sites))


__all__ = ["Order", "polling", "write_job"]
