"""Commands for after a run: publish it, join it later, update it, leave it, merge two."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

from ..artifacts import runs
from ..errors import DataError
from .models import _word_lookup
from .options import data_options, free_path, out_option, quiet_option, random_state_option, text_option
from .program import Option, main_group
from .words import Words, plural, print_json, show_run

if TYPE_CHECKING:
    from ..artifacts.published import JoinKit

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
    """Write what a newcomer needs: means over all silos, units and names of columns, settings, names of clusters.

    RUN is the --out folder of `fmtc fit`, `fmtc federate local` or `fmtc coordinate`, or a model folder. It must be of
    at least three silos. The kit holds no row and no silo's own model; docs/privacy.md says what it can tell. Hand it
    on to whoever wants to join: see `fmtc join-later`.
    """
    from ..artifacts.published import is_kit
    from ..later.models import open_run

    words = Words()
    out = free_path(out, force, is_kit)
    model = open_run(run, schema, text_column)
    explained = runs.read_explanation(run)
    of_table = not hasattr(model, "text_recipe_")  # words of texts are for their silos to hand on
    found = {} if explained is None else {one["cluster"]: one for one in explained["clusters"]}
    names = {j: one["given"] or (one["words"] if of_table else "") for j, one in found.items()}
    path = model.publish(out, names={j: name for j, name in names.items() if name}, overwrite=force)
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
        silo = _rows_for(kit, data, label_column, id_column, drop, no_header, obsm, text_column)
        from dataclasses import replace

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
    reading |= {"label_column": label_column, "id_column": id_column, "drop": drop, "missing": "em"}
    report = runs.report(
        model, results, files=[data], as_published=False, seconds=time.perf_counter() - started, notes=words.notes,
        reading=reading,
    )  # fmt: skip
    report |= {"joined": asdict(model.joined_)}
    lookup = None if known.text is None else _word_lookup([data], known.text, None)
    runs.write_run(out, force, model, results, report, words=lookup)
    if model.joined_.guided:
        _keep_names(out, known.names)
    show_run(words, report, out)
    if as_json:
        print_json({"out": str(out), **report})


def _rows_for(
    kit: JoinKit,
    data: Path,
    label_column: str | None,
    id_column: str | None,
    drop: tuple[str, ...],
    no_header: bool,
    obsm: str | None,
    text_column: str | None,
) -> Any:
    """The rows of a file, with the columns of a kit."""
    from ..schema import Schema
    from ..tables import read_silos

    if kit.text is None and text_column is not None:
        raise click.UsageError(f"the kit is of {plural(kit.n_features, 'column')} of numbers, not of texts")
    reading = {} if kit.text is None else asdict(kit.text) | ({"text_column": text_column} if text_column else {})
    schema = kit.schema
    if schema is None and kit.text is None and kit.feature_names is not None:
        schema = Schema.of_numbers(kit.feature_names)
    (silo,) = read_silos(
        [data], label_column=label_column, id_column=id_column, drop=drop, schema=schema,
        features=None if schema is None else schema.names, missing="em", header=False if no_header else None,
        obsm=obsm, **reading,
    )  # fmt: skip
    if silo.X.shape[1] != kit.n_features:
        raise DataError(f"{data} has {silo.X.shape[1]} columns of numbers, and the kit is of {kit.n_features}")
    return silo


def _keep_names(out: Path, names: Mapping[int, str]) -> None:
    """Give the clusters of a new run the names that the federation gave them."""
    from ..concepts import Explanation

    kept = runs.read_explanation(out)
    if not names or kept is None:
        return
    explanation = Explanation.from_dict(kept).renamed(dict(names))
    runs.name_labels(out, {one.cluster: one.given for one in explanation.clusters if one.given})
    runs.write_explanation(out, explanation.to_dict())
