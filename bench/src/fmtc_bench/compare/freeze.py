"""What is fixed before the comparison: federations, methods, splits, code. The run checks that nothing changed."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fmtc
from fmtc.artifacts.files import check_form, write_file
from fmtc.artifacts.runs import versions
from fmtc.errors import FileError, InputError

from ..datasets import FederatedDataset
from ..datasets.catalogue import text_beside
from . import evidence, federations, protocol
from .grid import Cell, code_digest
from .methods import METHODS
from .summary import markdown

NAME = "protocol.md"
FORM = {
    "code": str,
    "commit": (str, None),
    "plan": str,
    "data": {str: str},
    "run?": str,
    "versions": {"extras?": {str: (str, None)}},
}
RUN_BEFORE = "PYTHONPATH=frozen/src python -m fmtc_bench.compare paper"  # while this package was part of fmtc
FENCE = "```json\n"


def plan_digest(cells: Iterable[Cell]) -> str:
    """Tells whether two plans have the same cells, settings of the draws included.

    Examples
    --------
    >>> from fmtc_bench.compare.freeze import plan_digest
    >>> from fmtc_bench.compare.grid import cells
    >>> plan_digest(cells(["digits"], ["kmeans", "stsc"])) == plan_digest(cells(["digits"], ["stsc", "kmeans"]))
    True
    """
    return hashlib.sha256("\n".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:16]


def data_digest(data: FederatedDataset) -> str:
    """Tells whether two federations have the same rows, classes and clients in the same order.

    Parameters
    ----------
    data : FederatedDataset

    Returns
    -------
    str
    """
    digest = hashlib.sha256()
    parts = [data.X] if isinstance(data.X, np.ndarray) else [data.X.data, data.X.indices, data.X.indptr]
    for part in (*parts, data.y):
        kind = np.float32 if part.dtype.kind == "f" else np.int64  # the last bit of a logarithm is the processor's
        digest.update(str(part.shape).encode() + np.ascontiguousarray(part, dtype=kind).tobytes())
    digest.update("\n".join([*map(str, data.clients), *data.feature_names, *data.class_names]).encode())
    return digest.hexdigest()[:16]


def commit() -> str | None:
    """The commit that this package's code was checked out from; None where there is none or files were changed."""
    here = Path(__file__).parent
    told = []
    for question in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", Path(fmtc.__file__).parent, here.parent]):
        try:
            answer = subprocess.run(["git", *question], cwd=here, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        told.append(answer.stdout.strip())
    return None if told[1] else told[0]


def fix_protocol(out: Path, progress: Callable[[str], None] = lambda name: None) -> Path:
    """Write ``protocol.md``: what will be run, by which code, on which rows. Nothing is fitted.

    Parameters
    ----------
    out : Path
        Folder of the results.
    progress : callable
        Called with the name of each federation before it is read.

    Returns
    -------
    Path
    """
    path = out / NAME
    if (out / "rows.csv").exists() and path.exists():
        raise InputError(f"{path} belongs to the rows in {out}; take another folder, or remove both to start anew")
    data = {}
    for name in evidence.FEDERATIONS:
        progress(name)
        data[name] = protocol.dataset(name)
    facts = {
        "code": code_digest(),
        "commit": commit(),
        "run": "PYTHONPATH=frozen/src:frozen/bench/src python -m fmtc_bench paper",
        "plan": plan_digest(evidence.plan("all", everywhere=True)),
        "data": {name: data_digest(each) for name, each in data.items()},
        "versions": versions(),
    }
    out.mkdir(parents=True, exist_ok=True)
    write_file(path, _page(facts, data).encode())
    return path


def read_protocol(out: Path) -> dict[str, Any]:
    """The facts in ``protocol.md``: code, commit, plan, data, versions."""
    path = out / NAME
    if not path.is_file():
        raise FileError(
            f"{path} is not there: fix the protocol first, with `fmtc-bench freeze --out {out}`, or run without one: "
            f"`fmtc-bench paper --any-code --out {out}`"
        )
    try:
        facts = json.loads(path.read_text(encoding="utf-8").rpartition(FENCE)[2].partition("```")[0])
    except ValueError:
        raise FileError(f"{path} has no facts to check at its end; write it again with `fmtc-bench freeze`") from None
    check_form(str(path), facts, FORM)
    found: dict[str, Any] = facts
    return found


def check_protocol(out: Path, wanted: Sequence[Cell]) -> None:
    """Refuse to run where code, plan or rows are not those that the protocol was fixed for.

    Parameters
    ----------
    out : Path
        Folder with ``protocol.md``.
    wanted : sequence of Cell
        What is about to run; rows of these federations are compared.

    Raises
    ------
    InputError
        Where something changed.
    """
    facts = read_protocol(out)
    again = "`fmtc-bench paper --any-code --out today` runs this code and says so in every row; "
    if facts["commit"]:
        again += (
            f"what was fixed is run, in a clone, by `git worktree add frozen {facts['commit'][:12]} && mkdir again && "
            f"cp {out / NAME} again && {facts.get('run', RUN_BEFORE)} --out again`; "
        )
    again += "`fmtc-bench freeze --out new` fixes another"
    here = {"code": code_digest(), "plan": plan_digest(evidence.plan("all", everywhere=True))}
    for what, digest in here.items():
        if facts[what] != digest:
            raise InputError(f"{out / NAME} was fixed for {what} {facts[what]}, and this is {what} {digest}; {again}")
    for name in dict.fromkeys(cell.dataset for cell in wanted):
        if name in facts["data"] and data_digest(protocol.dataset(name)) != facts["data"][name]:
            raise InputError(f"the rows of {name} are not those that {out / NAME} was fixed for; fetch them again")


# ------------------------------------------------------------------------------------------------------------ in words


def _page(facts: Mapping[str, Any], data: Mapping[str, FederatedDataset]) -> str:
    lines = []
    for name, each in data.items():
        base = name.partition("?")[0]
        sizes = [int((each.clients == cid).sum()) for cid in each.client_ids]
        largest = 100 * np.bincount(each.y).max() / len(each.y)
        size = (len(sizes), f"{sum(sizes):,}", f"{each.X.shape[1]:,}", each.n_clusters)
        kind = federations.KIND[base]
        lines.append((federations.title(name), kind, *size, f"{largest:.0f}", f"{min(sizes)} to {max(sizes)}"))
    methods = [
        (f"{method.title} (`{name}`)", method.shares, "twelve" if name in evidence.DRAWN else "")
        for name, method in METHODS.items()
        if name not in evidence.SIDE
    ]
    development = "\n".join(f"- {name}: {why}" for name, why in federations.DEVELOPMENT.items())
    return text_beside(__package__, "protocol_page.md").format(
        rows=evidence.ROWS_OF_A_SILO,
        splits=evidence.SPLITS,
        limit=evidence.TIME_LIMIT,
        n_federations=len(data),
        n_datasets=len({name.partition("?")[0] for name in data}),
        federations=markdown(
            "| federation | kind | silos | rows | columns | classes | largest class, % | rows of a silo |", lines
        ),
        methods=markdown("| method | what leaves a silo | draws of its settings |", methods),
        origins="\n".join(f"- {federations.title(found.name)}: {found.origin}" for found in federations.TEST_SETS),
        development=development,
        facts=json.dumps(facts, indent=1, sort_keys=True),
        **{name: facts[name] for name in ("code", "commit", "plan")},
    )
