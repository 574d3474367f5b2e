"""What a fitted model shows in Python: a page for the browser, and a table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..artifacts import runs
from ..artifacts.files import jsonable
from ..describe import FEW, percents
from ..describe.words import html_table
from ..tables import Silo
from .page import needs_jinja, write_page
from .rows import POINTS, study
from .run import Run
from .summary import summary_of

if TYPE_CHECKING:
    from ..estimator import FMTC


def write_report(
    model: FMTC,
    path: str | Path,
    X: Any,
    *,
    clients: Any = None,
    names: Mapping[int, str] | None = None,
    gain: bool = False,
) -> Path:
    """Write the page of a fitted model and some rows; `FMTC.report`.

    Parameters
    ----------
    model : FMTC
        Fitted.
    path : path
        File to write; replaced if it exists.
    X, clients
        Rows, as in `FMTC.explain`.
    names : mapping of int to str, optional
        Names of clusters.
    gain : bool
        Whether to fit again on parts of the rows, together and each silo alone, to say what joining changed: two to ten
        fits more.

    Returns
    -------
    Path
    """
    needs_jinja()
    path = Path(path)
    rows, places, flat = model._labelled(X, clients)
    columns = tuple(map(str, model.feature_names_in_)) if hasattr(model, "feature_names_in_") else None
    silos = [Silo(name, Xt, columns, np.arange(Xt.shape[0])) for name, Xt in rows.items()]
    F = getattr(model, "embedding_", None)
    fitted_on = F is not None and np.array_equal(model.labels_, flat)  # its own rows
    embeddings = [np.asarray(F)[places[name]] if fitted_on else None for name in rows]
    model = _with_plain_rows(model)
    results = runs.results(model, silos, POINTS, labels=[flat[places[name]] for name in rows])
    seconds = float(sum(record.seconds for record in model.history_))
    report = runs.report(model, results, files=[], as_published=False, seconds=seconds, notes=[])
    explanation, atlas = runs.told(model, results, report)
    explanation = explanation.renamed(names or {})
    more = {"projection": runs.projection(results),
            "details": study(model, results, embeddings=embeddings, gain=gain)}  # fmt: skip
    history = [asdict(record) for record in model.history_]
    run = Run(path.stem, jsonable(report | more), model, jsonable(history), explanation,
              atlas.renamed(explanation.names), model.n_features_in_, model.n_concepts_)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(summary_of(run), path)
    return path


def _with_plain_rows(model: FMTC) -> FMTC:
    """The same model for rows without column names, which have been compared."""
    plain = copy(model)
    plain.__dict__.pop("feature_names_in_", None)
    return plain


SHOWN = 50  # silos in a notebook
ABOUT = (
    "Columns 0, 1, ... are the share of each cluster in the rows of a silo. "
    "`model.explain()` says what the clusters are."
)


def model_html(model: FMTC) -> str:
    """A fitted model as a notebook shows it: silos, sizes, shares of clusters, how it ended. All text is escaped.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> from fmtc.report import model_html
    >>> model = FMTC(2, random_state=0).fit(np.random.default_rng(0).normal(size=(30, 3)))
    >>> "30 rows" in model_html(model)
    True
    """
    sizes: Mapping[str, Any] = getattr(model, "_sizes", {})
    sizes = {name: sizes[name] for name in model.client_ids_ if name in sizes}
    rows = sum(int(part.sum()) for part in sizes.values())
    m, d = len(model.client_ids_), model.n_features_in_
    of = f", {rows:,} rows" if sizes else ""
    head = f"{m} silo{'s' if m > 1 else ''}{of} of {d:,} columns, {model.n_concepts_} clusters"
    ended = f" How it ended: {html.escape(model.stopped_because_)}." if model.stopped_because_ else ""
    if sizes:
        heads = [("silo", True), ("rows", False), *((str(j), False) for j in range(model.n_concepts_))]
        lines = [[name, f"{int(part.sum()):,}", *_shares(part)] for name, part in list(sizes.items())[:SHOWN]]
        notes = [f"and {len(sizes) - SHOWN} more silos"] if len(sizes) > SHOWN else []
        table = html_table(heads, lines, [*notes, ABOUT])
    else:
        table = f"<p>silos: {html.escape(', '.join(model.client_ids_[:SHOWN]))}</p>"
    return (
        f"<div><p><b>FMTC</b>, fitted: {head}.{ended}</p>{table}"
        f"<details><summary>settings</summary><pre>{html.escape(repr(model))}</pre></details></div>"
    )


def _shares(part: np.ndarray) -> list[str]:
    printed = zip(part, percents(part / max(part.sum(), 1)), strict=True)
    return ["–" if not n else share if n >= FEW else f"< {FEW} rows" for n, share in printed]
