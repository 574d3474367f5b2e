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
from ..describe.words import FEW, html_table, percents
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
    X: Any = None,
    *,
    silos: Any = None,
    names: Mapping[int, str] | None = None,
    gain: bool = False,
) -> Path:
    """Write a page for the browser: what the clusters are, each silo's share, maps of the rows, how the run went.

    Needs ``pip install 'fmtc[report]'``. The page shows rows as points: keep it where they may be seen.

    Parameters
    ----------
    model : FMTC
        Fitted.
    path : path
        File to write; replaced if it exists.
    X, silos
        As in `FMTC.explain`.
    names : mapping of int to str, optional
        Names of clusters.
    gain : bool
        Whether to fit again on parts of the rows, together and each silo alone, to say what joining changed: two to ten
        fits more.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile, numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = fmtc.write_report(fmtc.FMTC(3, random_state=0).fit(X), folder + "/page.html")
    ...     page.name
    'page.html'
    """
    needs_jinja()
    path = Path(path)
    rows, places, flat = model._labelled(X, silos)
    columns = tuple(map(str, model.feature_names_in_)) if hasattr(model, "feature_names_in_") else None
    tables = [Silo(name, Xt, columns, np.arange(Xt.shape[0])) for name, Xt in rows.items()]
    F = getattr(model, "embedding_", None)
    fitted_on = F is not None and np.array_equal(model.labels_, flat)  # its own rows
    embeddings = [np.asarray(F)[places[name]] if fitted_on else None for name in rows]
    model = copy(model)
    model.__dict__.pop("feature_names_in_", None)  # names have been compared, and rows have none
    if isinstance(model.random_state, np.random.RandomState):  # nobody can begin again where it stood before the fit
        model.random_state = None
    results = runs.results(model, tables, POINTS, labels=[flat[places[name]] for name in rows])
    seconds = float(sum(record.seconds for record in model.run_.rounds))
    report = runs.report(model, results, files=[], as_published=False, seconds=seconds, notes=[])
    explanation, atlas = runs.told(model, results, report)
    explanation = explanation.renamed(names or {})
    report["projection"] = runs.projection(results)
    report["details"] = study(model, results, embeddings=embeddings, gain=gain)
    history = [asdict(record) for record in model.run_.rounds]
    run = Run(path.stem, jsonable(report), model, jsonable(history), explanation, atlas.renamed(explanation.names),
              model.n_features_in_, model.n_clusters_)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(summary_of(run), path)
    return path


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
    sizes: Mapping[str, Any] = model._fitted.sizes
    sizes = {name: sizes[name] for name in model.silos_ if name in sizes}
    rows = sum(int(part.sum()) for part in sizes.values())
    m, d = len(model.silos_), model.n_features_in_
    of = f", {rows:,} rows" if sizes else ""
    head = f"{m} silo{'s' if m > 1 else ''}{of} of {d:,} columns, {model.n_clusters_} clusters"
    ended = f" How it ended: {html.escape(model.run_.stopped_because)}." if model.run_.stopped_because else ""
    if sizes:
        heads = [("silo", True), ("rows", False), *((str(j), False) for j in range(model.n_clusters_))]
        lines = [[name, f"{int(part.sum()):,}", *_shares(part)] for name, part in list(sizes.items())[:SHOWN]]
        notes = [f"and {len(sizes) - SHOWN} more silos"] if len(sizes) > SHOWN else []
        table = html_table(heads, lines, [*notes, ABOUT])
    else:
        table = f"<p>silos: {html.escape(', '.join(model.silos_[:SHOWN]))}</p>"
    return (
        f"<div><p><b>FMTC</b>, fitted: {head}.{ended}</p>{table}"
        f"<details><summary>settings</summary><pre>{html.escape(repr(model))}</pre></details></div>"
    )


def _shares(part: np.ndarray) -> list[str]:
    printed = zip(part, percents(part / max(part.sum(), 1)), strict=True)
    return ["–" if not n else share if n >= FEW else f"< {FEW} rows" for n, share in printed]
