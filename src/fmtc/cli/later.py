"""Commands for after a run: publish it, join it later, update it, leave it, merge two."""

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
from ..tables.reading import Reading
from .models import _word_lookup
from .options import data_options, free_path, out_option, quiet_option, random_state_option, text_option
from .program import Option, main_group
from .words import Words, new_table, plural, print_json, show_run

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

    RUN is the --out folder of `fmtc fit`, `fmtc federate local` or `fmtc coordinate`, or a model folder. It must be of
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
@click.option("--no-header", is_flag=True, cls=Option, section="Data", help="The first line of a text file is a row.")
@click.option("--obsm", metavar="NAME", cls=Option, section="Data", help="Of an .h5ad file: what to use instead of X.")
@quiet_option
@data_options
@text_option
def join_later(
    kit_path: Path,
    data: Path,
    out: Path,
    name: str | None,
    guide: str,
    random_state: int,
    force: bool,
    no_header: bool,
    obsm: str | None,
    quiet: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    text_column: str | None,
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
    if client_column is not None:
        raise click.UsageError("you are one silo; --client-column is for `fmtc fit`")
    out = free_path(out, force, runs.is_run)
    kit = read_kit(kit_path)
    with words.warnings_as_notes():
        (silo,) = _read(kit, data, label_column, id_column, drop, missing_codes, no_header, obsm, text_column)
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
    reading: dict[str, Any] = {} if known.text is None else asdict(known.text)
    reading |= {"label_column": label_column, "id_column": id_column, "drop": drop, "missing": "em",
                "missing_codes": missing_codes}  # fmt: skip
    report = runs.report(
        model, results, files=[data], as_published=False, seconds=time.perf_counter() - started, notes=words.notes,
        reading=Reading.from_dict(reading),
    )  # fmt: skip
    report |= {"joined": asdict(model.joined_)}
    lookup = None if known.text is None else _word_lookup([data], known.text, None)
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


def _read(
    known: JoinKit | _Columns,
    file: Path,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    no_header: bool,
    obsm: str | None,
    text_column: str | None,
    client_column: str | None = None,
) -> list[Silo]:
    """The rows of a file, with columns that are known."""
    from ..schema import Schema
    from ..tables import read_silos

    if known.text is None and text_column is not None:
        raise click.UsageError(f"the federation is of {plural(known.n_features, 'column')} of numbers, not of texts")
    reading = {} if known.text is None else asdict(known.text) | ({"text_column": text_column} if text_column else {})
    schema = known.schema
    if schema is None and known.text is None and known.feature_names is not None:
        schema = Schema.of_numbers(known.feature_names)
    how = Reading.from_dict(
        {"client_column": client_column, "label_column": label_column, "id_column": id_column, "drop": drop,
         "missing": "em", "header": False if no_header else None, "obsm": obsm, "missing_codes": missing_codes,
         **reading}
    )  # fmt: skip
    silos = read_silos([file], replace(how, schema=schema, of_model=schema is not None))
    if silos[0].X.shape[1] != known.n_features:
        raise DataError(
            f"{file} has {silos[0].X.shape[1]} columns of numbers, and the federation has {known.n_features}"
        )
    return silos


def _keep_names(out: Path, names: Mapping[int, str]) -> None:
    """Give the clusters of a new run the names that the federation gave them."""
    from ..concepts import Explanation

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
@click.option("--no-header", is_flag=True, cls=Option, section="Data", help="The first line of a text file is a row.")
@click.option("--obsm", metavar="NAME", cls=Option, section="Data", help="Of .h5ad files: what to use instead of X.")
@quiet_option
@data_options
@text_option
def update(
    run: Path,
    files: tuple[Path, ...],
    out: Path,
    client: str | None,
    keep_last: int | None,
    random_state: int,
    force: bool,
    no_header: bool,
    obsm: str | None,
    quiet: bool,
    client_column: str | None,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    missing_codes: tuple[str, ...],
    text_column: str | None,
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
    if client is not None and client_column is not None:
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
            for silo in _read(
                kit, file, label_column, id_column, drop, missing_codes, no_header, obsm, text_column, client_column
            ):
                own = silo.name if client_column is not None else client or stem_of(file)
                if own not in model.client_ids_:
                    raise DataError(f"{file} has rows of {own!r}, and the model is of silos {listed(model.client_ids_)}"
                                    + ("" if client or client_column else "; name the silo with --client"))  # fmt: skip
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
    reading: dict[str, Any] = {} if recipe is None else asdict(recipe)
    reading |= {"label_column": label_column, "id_column": id_column, "drop": drop, "client_column": client_column,
                "missing": "em", "missing_codes": missing_codes}  # fmt: skip
    report = runs.report(
        model, results, files=files, as_published=False, seconds=time.perf_counter() - started, notes=words.notes,
        reading=Reading.from_dict(reading),
    )  # fmt: skip
    lookup = None if recipe is None else _word_lookup(files, recipe, client_column)
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
    cut = [None if part is None else part[-n:] for part in (silo.ids, silo.labels)]
    return replace(silo, X=silo.X[-n:], rows=silo.rows[-n:], ids=cut[0], labels=cut[1])


def _given_names(run: Path) -> dict[int, str]:
    kept = runs.read_explanation(run)
    return {one["cluster"]: one["given"] for one in kept["clusters"] if one["given"]} if kept else {}


def _needs_models(model: FMTC, run: Path) -> None:
    if not model._models:
        raise FileError(f"{run} is a coordinator's run, which holds no models: silos have theirs at home")


# ----------------------------------------------------------------------------------------------------------- leave


@main_group.command(
    short_help="Take one silo out of a run, without its rows or the others'.",
    epilog="""\b
Examples:
  fmtc leave run north --out run-without-north
  fmtc publish run-without-north --out kit""",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("client", metavar="SILO")
@out_option
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
def leave(run: Path, client: str, out: Path, force: bool, as_json: bool) -> None:
    """Take one silo out of a run: one step of the server without its part, and the others' models follow.

    RUN is the --out folder of `fmtc fit` or `fmtc federate local`, or a model folder; it stays as it is. Writes a model
    folder to --out. What the silo did to the rounds before stays in the others' models: where nothing of it may be
    left, fit again without it.
    """
    from ..artifacts.models import MODEL_FILE
    from ..later.models import open_run

    words = Words()
    out = free_path(out, force, lambda path: (path / MODEL_FILE).is_file())
    model = open_run(run)
    _needs_models(model, run)
    after = model.leave(client)
    after.save(out, overwrite=force)
    words.say(f"wrote {out}: {plural(len(after.client_ids_), 'silo')} without {client!r}; {run} still holds its model")
    if as_json:
        print_json({"out": str(out), "left": client, "clients": after.client_ids_})


# ----------------------------------------------------------------------------------------------------------- merge


@main_group.command(
    short_help="Give two federations one numbering of clusters.",
    epilog="""\b
Examples:
  fmtc merge run-a run-b --out merged
  fmtc predict merged new.csv --client north""",
)
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@out_option
@click.option("--force", is_flag=True, cls=Option, help="Replace --out.")
def merge(first: Path, second: Path, out: Path, force: bool, as_json: bool) -> None:
    """Give two federations that trained apart one numbering: the same number means the same concept in both.

    FIRST and SECOND are folders of runs or models, of the same columns and the same view. Clusters are matched by what
    they look like along the columns; those of SECOND without a partner get new numbers. Nothing is fitted. Writes a
    model folder with the silos of both to --out.
    """
    from ..artifacts.models import MODEL_FILE
    from ..later.models import merge as merged
    from ..later.models import open_run

    words = Words()
    out = free_path(out, force, lambda path: (path / MODEL_FILE).is_file())
    models = [open_run(run) for run in (first, second)]
    for model, run in zip(models, (first, second), strict=True):
        _needs_models(model, run)
    both = merged(*models)
    both.save(out, overwrite=force)
    table = new_table()
    for title in ("cluster", f"in {first}", f"in {second}", "likeness"):
        table.add_column(title, justify="right")
    for match in both.merged_:
        cells = ["–" if number is None else str(number) for number in (match.first, match.second)]
        table.add_row(str(match.number), *cells, f"{match.likeness:.2f}" if "–" not in cells else "–")
    words.say(table)
    words.say("")
    words.say(f"wrote {out}: {plural(len(both.client_ids_), 'silo')}, {plural(both.n_clusters, 'cluster')}")
    if as_json:
        print_json(
            {"out": str(out), "clients": both.client_ids_, "concepts": [asdict(match) for match in both.merged_]}
        )
