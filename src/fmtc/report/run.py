"""The folder of a run, read and checked for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts.files import check_form, check_schema, read_json
from ..artifacts.models import ROUND, current_settings
from ..artifacts.runs import ATLAS, CONSENSUS_REPORT, OF_COORDINATOR, OF_SILOS, REPORT, read_explanation
from ..describe import Atlas, Explanation
from ..describe.words import own_words
from ..errors import FileError
from ..estimator import FMTC
from ..loading import load, load_atlas, read_settings


def _read_report(folder: Path) -> dict[str, Any]:
    """The report of a run folder, checked."""
    file = folder / "report.json"
    if not file.is_file():
        raise FileError(f"{folder} is not the folder of a run: it has no report.json. Give the folder that a run wrote")
    report = read_json(file)
    leads = isinstance(report, dict) and report.get("kind") == OF_COORDINATOR.name
    check_schema(file, report, *(OF_COORDINATOR if leads else OF_SILOS))
    check_form(file, report, CONSENSUS_REPORT if leads else REPORT)
    settings = current_settings(report["settings"])
    read_settings(file, settings)
    return {**report, "settings": settings}


@dataclass(frozen=True)
class Run:
    """What is known of a run."""

    title: str
    report: Mapping[str, Any]
    model: FMTC | None  # None at the coordinator
    history: Sequence[Mapping[str, Any]]
    explanation: Explanation | None  # None at the coordinator
    atlas: Atlas | None
    d: int  # 0: not known, at the coordinator
    k: int

    @property
    def details(self) -> Mapping[str, Any]:
        """What `fmtc fit --report` adds."""
        return self.report.get("details", {})

    @property
    def view(self) -> str:
        """The view that the run took; empty of a method that is none, such as a private one at the coordinator."""
        return str(self.report.get("view", ""))

    @property
    def held(self) -> dict[str, str | None]:
        """Silos that the server has limited, whose cluster numbers are not common, and which model each kept."""
        return {line["silo"]: line["kept"] for line in self.report["trust"]["clients"] if line["held"]}

    @property
    def own(self) -> str:
        """That silos keep clusters of their own, in a sentence; empty where none does."""
        lines = [] if "joined" in self.report else self.report["trust"]["clients"]  # a newcomer's page says more
        return own_words({line["silo"]: line["kept"] for line in lines if not line["held"]})

    @property
    def names(self) -> list[str]:
        """Silos, those that were lost included."""
        if self.model is None:
            return sorted({*self.report["client_ids"], *self.report["missing"]})
        return [line["silo"] for line in self.report["silos"]] + list(self.report.get("missing", ()))


def open_run(folder: Path) -> Run:
    """The folder of a run, or of its coordinator, whose parts fit each other."""
    report = _read_report(folder)
    title, history = folder.resolve().name, read_json(folder / "history.json", [ROUND])
    if report["kind"] == OF_COORDINATOR.name:
        atlas = load_atlas(folder) if (folder / ATLAS).is_file() else None
        d, k = report.get("n_features", 0), report["settings"]["n_clusters"]
        return Run(title, report, None, history, None, atlas, d, k)
    model = load(folder / "model")
    explanation = read_explanation(folder)
    if explanation is None:
        raise FileError(f"{folder} does not say what its clusters are: it was written by an older version; fit again")
    _check_parts(folder / "report.json", report, model, explanation)
    atlas = load_atlas(folder)
    return Run(title, report, model, history, explanation, atlas, report["n_features"], model.n_clusters_)


def _check_parts(file: Path, report: Mapping[str, Any], model: FMTC, explanation: Explanation) -> None:
    """Refuse a report that does not fit its model, or whose parts do not fit each other."""
    silos, k = {line["silo"]: line for line in report["silos"]}, model.n_clusters_
    shown, more = report["projection"], report.get("details", {}).get("points", {})
    sizes = [(line["cluster_sizes"], line["rows"]) for line in report["silos"]]
    fits = {
        "silos are not those of the model": sorted(silos) == sorted(model.silos_),
        "cluster sizes do not fit": all(len(of) == k and sum(of) == rows > 0 for of, rows in sizes),
        "explanation is of other clusters": len(explanation.clusters) == k and set(explanation.silos) == set(silos),
        "points do not fit": set(more) <= set(shown) == set(silos)
        and all(_points_fit(part, more.get(name, {}), k) for name, part in shown.items()),
        "probabilities do not fit": all(0 <= p <= 1 for part in more.values() for p in part["probability"]),
    }
    for what, is_right in fits.items():
        if not is_right:
            raise FileError(f"{file} is damaged: its {what}")


def _points_fit(shown: Mapping[str, Any], more: Mapping[str, Any], k: int) -> bool:
    """Whether the shown rows of a silo have as many of everything."""
    lengths = {len(column) for column in (*shown.values(), *more.values())}
    if len(lengths) != 1 or 0 in lengths:
        return False
    return max(shown["cluster"]) < k and ("map_x" in more) == ("map_y" in more)
