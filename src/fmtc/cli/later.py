"""Commands for after a run: publish it, join it later, update it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.filesize import decimal

from ..artifacts import runs
from ..errors import DataError, FileError, listed
from ..tables.reading import EM, Reading
from .models import word_lookup
from .options import ROWS, free_path, out_option, quiet_option, random_state_option, reading_options, text_option
from .program import Option, main_group
from .words import Words, plural, print_json, show_run

if TYPE_CHECKING:
    from ..artifacts.published import JoinKit
    from ..estimator import FMTC
    from ..schema import Schema
    from ..tables import TextRecipe
    from ..tables.silos import Silo

GUIDES: Mapping[str, bool | str] = {"auto": "auto", "always": True, "never": False}


# --------------------------------------------------------------------------------------------------------- publish


@main_group.command(
    short_help="Write a kit with which newcomers join later, sending nothing.",
    epilog="""\b
Examples:
  fmtc publish run --out kit
  fmtc publish consensus --out kit --schema schema.toml     (at the coordinator, which knows no names of columns)
  fmtc publish consensus --out kit --text-column notes""",
)
@click.argument("run", type=click.Path(path_type=Path))
@out_option
@click.option("--schema", type=click.Path(path_type=Path), cls=Option,
              help="The schema.toml of the silos, where the run does not know their columns.")  # fmt: skip
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@text_option
def publish(run: Path, out: Path, schema: Path | None, force: bool, text_column: str | None, as_json: bool) -> None:
    """Write what a newcomer needs: means over all silos, units and names of columns, settings, given names of clusters.

    RUN is the --out folder of `fmtc fit` or `fmtc coordinate`, or a model folder. It must be of
    at least three silos. The kit holds no row and no silo's own model; docs/privacy.md says what it can tell. Hand it
    on to whoever wants to join: see `fmtc join-later`.
    """
    from ..artifacts.published import is_kit
    from ..later.models import open_run

    words = Words()
    out = free_path(out, force, is_kit)
    model = open_run(run, schema, text_column)
    path = model.publish(out, names=_given_names(run), overwrite=force)
    size = sum(file.stat().st_size for file in path.iterdir())
    shared = model._shared
    assert shared is not None
    words.say(
        f"wrote {out} ({decimal(size)}): what {len(shared.client_ids)} silos have in common, {shared.view} view, "
        f"{plural(shared.n_clusters, 'cluster')}, {plural(model.n_features_in_, 'column')}"
    )
    words.say(f"next, at the newcomer: fmtc join-later --kit {out.name} --data ours.csv --out ours")
    if as_json:
        print_json({"out": str(out), "bytes": size, "silos": len(shared.client_ids), "view": shared.view,
                    "n_clusters": shared.n_clusters, "n_features": model.n_features_in_})  # fmt: skip


# ------------------------------------------------------------------------------------------------------ join later


@main_group.command(
    "join-later",
    short_help="Join a federation after its run, at home: nothing is sent.",
    epilog="""\b
Examples:
  fmtc join-later --kit kit --data ours.csv --out ours
  fmtc join-later --kit kit --data ours.csv --id patient --name south --out ours
  fmtc join-later --kit kit --data ours.csv --guide never --out ours""",
)
@click.option("--kit", "kit_path", type=click.Path(path_type=Path), required=True, cls=Option,
              help="The folder that `fmtc publish` wrote.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path), required=True, cls=Option, help="Your rows.")
@out_option
@click.option("--name", metavar="SILO", cls=Option, help="Your name in the result.  [default: that of the file]")
@click.option("--guide", type=click.Choice(list(GUIDES)), default="auto", show_default=True, cls=Option,
              help="Follow the federation: where its clusters are like your own, always or never.")  # fmt: skip
@random_state_option
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@quiet_option
@reading_options(*ROWS, "obsm", missing=EM)
def join_later(
    kit_path: Path,
    data: Path,
    out: Path,
    name: str | None,
    guide: str,
    random_state: int,
    force: bool,
    quiet: bool,
    reading: Reading,
    as_json: bool,
) -> None:
    """Join a federation after its run: fit your rows at home, with what it published. Nothing is sent.

    Your rows are clustered alone and by the published model. Where both see much the same clusters, your model is
    fitted again with the federation's as a guide; elsewhere you keep your own. Either way clusters have the
    federation's numbers. Writes to --out what `fmtc fit` would; `fmtc predict`, `explain` and `report` read it.
    """
    from ..artifacts.published import read_kit
    from ..later.models import join_later as fitted_later

    started = time.perf_counter()
    words = Words(quiet)
    out = free_path(out, force, runs.is_run)
    kit = read_kit(kit_path)
    with words.warnings_as_notes():
        (silo,) = _read(kit, data, reading)
        silo = replace(silo, name=name or silo.name)
        given = silo.encoded if kit.text is None and kit.schema is not None else silo.X
        known, kit = kit, replace(kit, feature_names=None)  # names have been compared
        model = fitted_later(kit, given, name=silo.name, guide=GUIDES[guide], random_state=random_state)
        results = runs.results(model, [silo])
    words.say(model.joined_.reason)
    if model.joined_.guided:
        words.say(f"the federation moved {100 * model.joined_.moved:.0f} % of your rows to another cluster")
    odd = [str(j) for j, like in enumerate(model.joined_.likeness) if like < 0.3]
    if odd:
        words.note(
            f"of your clusters, {', '.join(odd)} {'is' if len(odd) == 1 else 'are'} like none of the federation's"
        )
    reading = reading.of_texts(known.text)
    report = runs.report(
        model, results, files=[data], as_published=False, seconds=time.perf_counter() - started, notes=words.notes,
        reading=reading,
    )  # fmt: skip
    report |= {"joined": asdict(model.joined_)}
    lookup = None if known.text is None else word_lookup([data], reading)
    runs.write_run(out, force, model, results, report, words=lookup)
    if model.joined_.guided:
        _keep_names(out, known.names)
    show_run(words, report, out)
    if as_json:
        print_json({"out": str(out), **report})


class _Columns(NamedTuple):
    """What is known of the columns of a kit or of a model."""

    n_features: int
    feature_names: tuple[str, ...] | None
    schema: Schema | None
    text: TextRecipe | None


def _read(known: JoinKit | _Columns, file: Path, reading: Reading) -> list[Silo]:
    """The rows of a file, with columns that are known."""
    from ..schema import Schema
    from ..tables import read_silos

    if known.text is None and reading.text_column is not None:
        raise click.UsageError(f"the federation is of {plural(known.n_features, 'column')} of numbers, not of texts")
    schema = known.schema
    if schema is None and known.text is None and known.feature_names is not None:
        schema = Schema.of_numbers(known.feature_names)
    silos = read_silos([file], reading.for_model(schema, known.text))
    if silos[0].X.shape[1] != known.n_features:
        raise DataError(
            f"{file} has {silos[0].X.shape[1]} columns of numbers, and the federation has {known.n_features}"
        )
    return silos


def _keep_names(out: Path, names: Mapping[int, str]) -> None:
    """Give the clusters of a new run the names that the federation gave them."""
    from ..describe import Explanation

    kept = runs.read_explanation(out)
    if not names or kept is None:
        return
    explanation = Explanation.from_dict(kept).renamed(dict(names))
    runs.name_labels(out, explanation.to_dict())
    runs.write_explanation(out, explanation.to_dict())


# ---------------------------------------------------------------------------------------------------------- update


@main_group.command(
    short_help="Go on with new rows of a silo, from the model of a run.",
    epilog="""\b
Examples:
  fmtc update run north.csv january.csv --client north --out run-2          (old rows, then new ones)
  fmtc update run north.csv january.csv --client north --keep-last 500 --out run-2
  fmtc update run north.csv south.csv --out run-2                           (files called after their silos)
  fmtc update run all.parquet --client-column site --out run-2""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@out_option
@click.option(
    "--client", metavar="SILO", cls=Option, help="The silo of all FILES; otherwise each is called after its silo."
)
@click.option("--keep-last", type=click.IntRange(1), metavar="N", cls=Option,
              help="Only the last N rows of each silo count: a window that forgets.")  # fmt: skip
@random_state_option
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
@quiet_option
@reading_options("silo_column", *ROWS, "obsm", missing=EM)
def update(
    run: Path,
    files: tuple[Path, ...],
    out: Path,
    client: str | None,
    keep_last: int | None,
    random_state: int,
    force: bool,
    quiet: bool,
    reading: Reading,
    as_json: bool,
) -> None:
    """Go on with new rows: about a tenth of the rounds, and clusters keep their numbers. Nothing is sent.

    A model keeps no rows. FILES are all rows of a silo that count from now on, the oldest first: the old file and the
    new one or, to forget the old rows, the new one alone. Silos without a file keep their models. Writes to --out what
    `fmtc fit` would, with labels of the rows that were given; RUN stays as it is.
    """
    from ..later.models import open_run
    from ..tables.formats import stem_of

    started = time.perf_counter()
    words = Words(quiet)
    divided = reading.silo_column is not None
    if client is not None and divided:
        raise click.UsageError("give --client for all rows or --client-column for each, not both")
    out = free_path(out, force, runs.is_run)
    model = open_run(run)
    _needs_models(model, run)
    model.set_params(random_state=random_state)
    schema, recipe = getattr(model, "schema_", None), getattr(model, "text_recipe_", None)
    kit = _Columns(model.n_features_in_, None, schema, recipe)
    found: dict[str, Any] = {}
    with words.warnings_as_notes():
        for file in files:
            for silo in _read(kit, file, reading):
                own = silo.name if divided else client or stem_of(file)
                if own not in model.client_ids_:
                    raise DataError(f"{file} has rows of {own!r}, and the model is of silos {listed(model.client_ids_)}"
                                    + ("" if client or divided else "; name the silo with --client"))  # fmt: skip
                found[own] = _after(found.get(own), replace(silo, name=own))
        silos = [_last(silo, keep_last) for silo in found.values()]
        names = model.__dict__.pop("feature_names_in_", None)  # they have been compared
        sure = [cid for cid in found if getattr(model._models[cid], "calibration", None) is not None]
        model.partial_fit({silo.name: silo.X if recipe is not None else silo.encoded for silo in silos})
        results = runs.results(model, silos)
        if names is not None:
            model.feature_names_in_ = names
    if gone := [cid for cid in sure if getattr(model._models[cid], "calibration", None) is None]:
        words.note(f"{listed(gone)} {'is' if len(gone) == 1 else 'are'} no longer calibrated, because the model has "
                   "changed: `fmtc fit --calibrate` for --abstain and `fmtc drift`")  # fmt: skip
    if rest := [cid for cid in model.client_ids_ if cid not in found]:
        words.note(f"no rows of {listed(rest)}: models as they were, and no labels in {out}")
    reading = reading.of_texts(recipe)
    report = runs.report(
        model, results, files=files, as_published=False, seconds=time.perf_counter() - started, notes=words.notes,
        reading=reading,
    )  # fmt: skip
    lookup = None if recipe is None else word_lookup(files, reading)
    runs.write_run(out, force, model, results, report, words=lookup)
    _keep_names(out, _given_names(run))
    show_run(words, report, out)
    if as_json:
        print_json({"out": str(out), **report})


def _after(before: Any, silo: Any) -> Any:
    """The rows of two files of one silo, one after the other."""
    if before is None:
        return silo
    import numpy as np
    import scipy.sparse as sp

    is_sparse = sp.issparse(before.X) or sp.issparse(silo.X)
    both = [
        None if one is None or other is None else [*one, *other]
        for one, other in ((before.ids, silo.ids), (before.labels, silo.labels))
    ]
    parts = [before.X, silo.X]
    X = sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts])) if is_sparse else np.vstack(parts)
    return replace(before, X=X, rows=np.arange(X.shape[0]), ids=both[0], labels=both[1])


def _last(silo: Any, n: int | None) -> Any:
    """The last rows of a silo, all of them without a number."""
    if n is None:
        return silo
    return silo.take(range(silo.X.shape[0])[-n:])


def _given_names(run: Path) -> dict[int, str]:
    kept = runs.read_explanation(run)
    return {one["cluster"]: one["given"] for one in kept["clusters"] if one["given"]} if kept else {}


def _needs_models(model: FMTC, run: Path) -> None:
    if not model._models:
        raise FileError(f"{run} is a coordinator's run, which holds no models: silos have theirs at home")
