"""A summary as one HTML file that needs nothing else: style, script and data inside, no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal

from ..artifacts.files import write_file
from ..describe.words import percents

PAGE = "report.html"
HERE = Path(__file__).parent
COLOURS, SHAPES = 8, 4  # of --c0 … --c7 in common.css, and of the marks that page.js draws
HEIGHT = 26  # of the small pictures of a column


def needs_jinja() -> Any:
    """The module jinja2, or an error that says how to get it."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("a page needs jinja2: pip install 'fmtc[report]'") from error
    return jinja2


def render(summary: Mapping[str, Any]) -> str:
    """The page of a summary: HTML that opens from disk, prints, and loads nothing.

    Parameters
    ----------
    summary : mapping
        Of `summarise`.

    Returns
    -------
    str

    Examples
    --------
    >>> from fmtc.report import render, summarise
    >>> page = render(summarise("run"))  # doctest: +SKIP
    """
    return compose("page", summary, _data(summary))


def compose(name: str, summary: Mapping[str, Any], data: Mapping[str, Any], folder: Path = HERE) -> str:
    """Any page: a template with the common style and script and its own, all inside one HTML file.

    Parameters
    ----------
    name : str
        Of the template, its style and its script: ``name.html``, ``name.css`` and ``name.js``.
    summary : mapping
        What the template shows.
    data : mapping
        What the script needs, in what JSON knows.
    folder : Path
        Where the three files are.

    Returns
    -------
    str
    """
    markup = needs_jinja().utils.markupsafe.Markup
    style, script = (
        "".join(file.read_text(encoding="utf-8") for file in (HERE / f"common.{kind}", folder / f"{name}.{kind}"))
        for kind in ("css", "js")
    )
    whole = {"style": markup(style), "script": markup(script), "data": markup(_embedded(data))}
    template = _templates(folder).get_template(f"{name}.html")
    return str(template.render(**summary, **whole, policy=_policy(style, script)))


@cache
def _templates(folder: Path) -> Any:
    """Those of a folder and of this one: what jinja2 has compiled serves all pages of a process."""
    jinja2 = needs_jinja()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": decimal, "heights": heights, "lasted": lasted, "mark": mark, "spoken": spoken, "stacked": stacked,
        "written": written,
    }  # fmt: skip
    return environment


def write_page(summary: Mapping[str, Any], path: Path, render: Callable[[Mapping[str, Any]], str] = render) -> None:
    """Write the page of a summary, whole or not at all; `render` makes it."""
    write_file(path, render(summary).encode("utf-8", "replace"))


def written(value: float, form: str) -> str:
    """A number as people write it: commas, a true minus sign, and no sign before a zero."""
    text = f"{value:,}" if form == "%d" else form % value
    return text.lstrip("+-") if not text.strip("+-0.") else text.replace("-", "−") if "e" not in text else text


def lasted(seconds: float) -> str:
    """A time in the unit it is read in: such as 12 s, 34 min, 5.6 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def mark(cluster: int) -> str:
    """Classes of the coloured mark of a cluster."""
    return f"c{cluster % COLOURS} s{cluster // COLOURS % SHAPES}"


def heights(counts: Sequence[int]) -> list[float]:
    """Heights of the bars of a small picture; the tallest fills it, and what is not nothing can be seen."""
    most = max(counts, default=0)
    return [round(max(HEIGHT * count / most, 0.8), 1) if count else 0.0 for count in counts]


def stacked(shares: Sequence[float]) -> list[dict[str, Any]]:
    """Parts of a bar of all clusters that have rows, from left to right."""
    left = np.cumsum([0.0, *shares])
    printed = zip(shares, percents(shares), left[:-1].tolist(), strict=True)
    return [
        {"cluster": j, "share": share, "percent": percent, "left": start}
        for j, (share, percent, start) in enumerate(printed)
        if share > 0
    ]


def spoken(shares: Sequence[float]) -> str:
    """Such as: cluster 0 62 %, cluster 2 38 %."""
    return ", ".join(f"cluster {part['cluster']} {part['percent']}" for part in stacked(shares))


def _policy(style: str, script: str) -> str:
    """Nothing may be fetched, and only this style and this script count."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(data: Any) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _data(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the script needs: rounds, clusters and, packed, the points."""
    told = ("round_no", "objective", "primal_residual", "dual_residual", "seconds")
    views, points = _views(summary["points"]), summary["points"]
    return {
        "rounds": [
            {name: line[name] for name in told}
            | {"likelihood": None if line["objective"] is None else -line["objective"]}
            for line in summary["history"]
        ],
        "tol": summary["tol"],
        "found": [{"cluster": c["cluster"], "name": c["name"]} for c in summary["found"]],
        "silos": [
            {name: line[name] for name in ("silo", "rows", "shares")}
            for line in summary["silos"] if line["shares"] is not None
        ],
        "clusters": [
            {name: c[name] for name in ("silo", "cluster", "name", "rows", "size")}
            | {"differences": [f"{d['what']} {d['amounts']}" for d in c["differences"][:3]]}
            for c in summary["clusters"]
        ],
        "view": summary["view"],
        "calibrated": summary["calibrated"],
        "title": summary["title"],
        "points": [
            _point_data(name, shown) | {view: places[name] for view, places in views.items()}
            for name, shown in points.items()
        ],
        "views": list(views),
    }  # fmt: skip


def _point_data(name: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The points of a silo, but for their places."""
    sure = _pack(np.asarray(shown["probability"]) * 100, "<u1") if "probability" in shown else None
    row, cluster = _pack(shown["row"], "<u4"), _pack(shown["cluster"], "<u2")
    return {"silo": name, "n": len(shown["row"]), "row": row, "cluster": cluster, "sure": sure}


def _views(points: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Places of the points of each silo, in each layout that all have."""
    layouts = {"map": ("map_x", "map_y"), "plane": ("x", "y")}
    return {
        view: _packed_places({name: (shown[x], shown[y]) for name, shown in points.items()})
        for view, (x, y) in layouts.items()
        if points and all(x in shown for shown in points.values())
    }


def _packed_places(places: Mapping[str, tuple[Any, Any]]) -> dict[str, str]:
    """Places of the points of all silos on one scale from 0 to 65535, x before y, up is up."""
    whole = {name: np.array(xy, dtype=float) for name, xy in places.items()}
    low = np.min([xy.min(axis=1) for xy in whole.values()], axis=0)
    high = np.max([xy.max(axis=1) for xy in whole.values()], axis=0)
    span = max(float((high - low).max()), 1e-300)
    middle = (high + low) / 2
    return {name: _pack(((xy - middle[:, None]) / span + 0.5) * 65535, "<u2") for name, xy in whole.items()}


def _pack(values: Any, kind: str) -> str:
    """Whole numbers in base64: a hundred thousand points are read in a moment."""
    return base64.b64encode(np.round(np.asarray(values, dtype=float)).astype(kind).tobytes()).decode()
