"""The folder of a run, read and checked for the page."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts.files import check_form, check_schema, read_json, read_tensors
from ..artifacts.models import ROUND, current_settings
from ..artifacts.runs import ATLAS, CONSENSUS_REPORT, REPORT, REPORT_FORMAT, read_explanation
from ..describe import Atlas, Explanation
from ..errors import FileError
from ..estimator import FMTC, load, load_atlas, read_settings


def read_report(folder: Path) -> dict[str, Any]:
    """The report of a run folder, checked; settings as this version has them."""
    file = folder / "report.json"
    if not file.is_file():
        raise FileError(f"{folder} is not the folder of a run: it has no report.json. Give the folder that a run wrote")
    report = read_json(file)
    leads = isinstance(report, dict) and report.get("kind") == "fmtc consensus report"
    check_schema(file, report, "fmtc consensus report" if leads else "fmtc report", REPORT_FORMAT)
    check_form(file, report, CONSENSUS_REPORT if leads else REPORT)
    settings = current_settings(report["settings"], report["schema"])
    known = inspect.signature(FMTC).parameters
    read_settings(file, {name: value for name, value in settings.items() if name in known})
    return {**report, "settings": settings}


@dataclass(frozen=True)
class Run:
    """What the folder of a run holds."""

    folder: Path
    report: Mapping[str, Any]
    model: FMTC | None  # None at the coordinator
    history: Sequence[Mapping[str, Any]]
    explanation: Explanation | None
    atlas: Atlas | None  # None at the coordinator of an older version
    d: int
    k: int

    @property
    def details(self) -> Mapping[str, Any]:
        """What `fmtc fit --report` adds."""
        return self.report.get("details", {})

    @property
    def view(self) -> str:
        """The view that the run took; a run of an older version knew one only."""
        return str(self.report.get("view") or ("graph" if self.model is None else self.model.view_))

    @property
    def held(self) -> dict[str, str | None]:
        """Silos that the server has limited, whose cluster numbers are not common, and which model each kept."""
        lines = (self.report.get("trust") or {}).get("clients", ())
        return {line["silo"]: line["kept"] for line in lines if line["held"]}

    @property
    def names(self) -> list[str]:
        """Silos, those that were lost included."""
        if self.model is None:
            return sorted({*self.report["client_ids"], *self.report["missing"]})
        return [line["silo"] for line in self.report["silos"]] + list(self.report.get("missing", ()))


def open_run(folder: Path, report: Mapping[str, Any]) -> Run:
    """The folder of a run, or of its coordinator, whose parts fit each other."""
    if report["kind"] == "fmtc consensus report":
        file = folder / "consensus.safetensors"
        arrays, _ = read_tensors(file)
        Z, means = arrays.get("consensus"), arrays.get("means")
        if Z is not None and Z.ndim == 3:
            d, k, _ = Z.shape
        elif means is not None and means.ndim == 2:
            k, d = means.shape
        else:
            raise FileError(f"{file} is damaged: it holds no consensus")
        history = read_json(folder / "history.json")
        check_form(folder / "history.json", history, [ROUND])
        atlas = load_atlas(folder) if (folder / ATLAS).is_file() else None
        return Run(folder, report, None, history, None, atlas, d, k)
    model = load(folder / "model")
    kept = read_explanation(folder)
    explanation = None if kept is None else Explanation.from_dict(kept)
    _check_parts(folder / "report.json", report, model, explanation)
    atlas = load_atlas(folder)
    return Run(folder, report, model, report["history"], explanation, atlas, report["n_features"], model.n_concepts_)


def _check_parts(file: Path, report: Mapping[str, Any], model: FMTC, explanation: Explanation | None) -> None:
    """Refuse a report that does not fit its model, or whose parts do not fit each other."""
    details = report.get("details", {})
    silos = [line["silo"] for line in report["silos"]]
    shown, more = report["projection"], details.get("points", {})
    k = model.n_concepts_
    fits = {
        "silos are not those of the model": sorted(silos) == sorted(model.client_ids_),
        "cluster sizes do not fit": all(
            len(line["cluster_sizes"]) == k and sum(line["cluster_sizes"]) == line["rows"] > 0
            for line in report["silos"]
        ),
        "explanation is of other clusters": explanation is None
        or (len(explanation.clusters) == k and set(explanation.silos) == set(silos)),
        "points do not fit": set(more) <= set(shown) == set(silos)
        and all(
            len({len(column) for column in (*part.values(), *more.get(name, {}).values())}) == 1
            and part["row"] != [] and max(part["cluster"]) < k
            and ("map_x" in more.get(name, {})) == ("map_y" in more.get(name, {}))
            for name, part in shown.items()
        ),
        "probabilities do not fit": all(0 <= p <= 1 for part in more.values() for p in part["probability"]),
    }  # fmt: skip
    for what, is_right in fits.items():
        if not is_right:
            raise FileError(f"{file} is damaged: its {what}")
