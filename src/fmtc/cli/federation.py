"""Commands that run a federation: coordinate and join. `kits` has those that set one up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..privacy.floor import Floor
from ..schema import Schema
from ..tables.reading import Reading
from . import flags
from .flags import PATH, SILO, Course, Output, Patience, given
from .program import main_group
from .settings import bind_bounds, build_model, model_options
from .words import Words

kit_option = flags.option("--kit", "kit_path", type=PATH, required=True,
                    help="Your kit: `fmtc federation request` made it; the coordinator's, `init`.")  # fmt: skip


@dataclass(frozen=True)
class Leading(Patience, Course):
    """How a coordinator leads a run."""

    wait: float = given("--wait", type=float, default=600.0, show_default=True,
                        help="Seconds to wait for silos that are not there.")  # fmt: skip
    no_preflight: bool = given("--no-preflight", is_flag=True, help="Do not compare the silos' columns first.")
    calibrate: bool = given("--calibrate", is_flag=True,
                            help="Let every silo calibrate its model, as `fmtc fit --calibrate`.")  # fmt: skip
    schema: Path | None = given("--schema", type=PATH,
                                help="The schema.toml of the silos, where columns are categories.")  # fmt: skip


@main_group.command(short_help="Lead a federation: start the server, run, keep the consensus.")
@kit_option
@flags.n_clusters
@flags.random_state
@flags.takes(how=Leading)
@flags.accept_units
@flags.quiet
@model_options
def coordinate(kit_path: Path, how: Leading, accept_units: bool, words: Words, **settings: Any) -> None:
    """Lead a federation: start the server, wait for the silos, run, survive what happens on the way.

    A silo that is lost, or a process that dies, does not end the run: it resumes from the last round when enough
    silos are back. Writes to --out: consensus.safetensors, history.json and report.json; no row comes here.

    Ends with exit code 5 where a silo has not confirmed that it has its labels. --resume then serves that silo when it
    joins again; nothing is needed from the others.

    Examples:
      fmtc coordinate --kit coordinator -k 4 --out run
      fmtc coordinate --kit coordinator -k 4 --out run --min-silos 3 --wait 300
      fmtc coordinate --kit coordinator -k 4 --out run --resume
    """
    model = build_model(settings)
    if how.schema is not None:
        model.schema_ = Schema.read(how.schema)
        bind_bounds(model, settings["bounds"], model.schema_)
    from .leading import Lead, coordinator_of  # loads NVIDIA FLARE

    Lead(words, model, coordinator_of(kit_path), how, settings).run(accept_units=accept_units)


def _read_floor(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    Floor.read(text)
    return None if text == "none" else text


_limit = partial(given, section="Limits")


@dataclass(frozen=True)
class Limits:
    """What a silo allows a run: for `ClientSource`."""

    max_k: int | None = _limit("--max-k", type=click.IntRange(1),
                               help="Most clusters a run may ask for; any number by default.")  # fmt: skip
    min_rows: int = _limit("--min-rows", type=click.IntRange(1), default=5, show_default=True,
                           help="Fewest rows for each cluster a run may ask for, on average.")  # fmt: skip
    max_runs: int = _limit("--max-runs", type=click.IntRange(1), default=24, show_default=True,
                           help="Most runs within 24 hours, comparisons of columns included.")  # fmt: skip
    epsilon_budget: float | None = _limit(
        "--epsilon-budget", type=click.FloatRange(0, min_open=True),
        help="Most privacy that your rows may spend in private runs, all together; see `fmtc outbox budget`.",
    )  # fmt: skip
    floor: str | None = _limit(
        "--privacy-floor", metavar="FLOOR", callback=_read_floor,
        help="Least privacy of a run: sums, or noise as in epsilon=2,delta=1e-5,colluding=1 (the last two by default): "
        "at most this epsilon at this delta, though so many silos help the coordinator. A run below is refused.",
    )  # fmt: skip
    accept_difference: bool = _limit(
        "--accept-difference", is_flag=True,
        help="Allow sums over other silos than before, though the difference may show one of them.",
    )  # fmt: skip


@dataclass(frozen=True)
class Taking(Output):
    """How a silo takes part, and what its person wants to be asked."""

    data: Path = given("--data", type=PATH, required=True, help="Your rows.")
    n_clusters: int | None = given(
        "--clusters", type=click.IntRange(1),
        help="Clusters of your silo, where the run lets each have its own.  [default: as asked]",
    )  # fmt: skip
    stay: bool = given("--stay", is_flag=True, help="Wait for the next run after one has ended.")
    discard: bool = given("--discard", is_flag=True, help="Give up labels of an earlier run that could not be written.")
    accept_roster: str | None = _limit(
        "--accept-roster", metavar="CODE",
        help="Accept the silos of a roster code that you have compared; otherwise you are asked.",
    )  # fmt: skip
    hold: bool = _limit("--hold", is_flag=True,
                        help="Ask you before the first answer of each kind leaves; needs a terminal.")  # fmt: skip
    rules: Path | None = _limit(
        "--rules", type=PATH, help="Your policy on small clusters and single records.  [default: rules.toml of the kit]"
    )


@main_group.command(short_help="Take part in a federation with your rows, which stay here.")
@kit_option
@flags.takes(taking=Taking, limits=Limits)
@flags.quiet
@flags.reading(*SILO)
def join(kit_path: Path, taking: Taking, limits: Limits, reading: Reading, words: Words) -> None:
    """Take part in a federation with your rows, which stay here.

    Dials the coordinator, waits for a run, and shows what it asks for before it answers. When the run has ended, writes
    to --out what `fmtc fit` would: your labels, your model, a report. Then ends, unless --stay is given.

    Labels go to the rows they were computed from and to no others: where --data has changed since the run began,
    nothing is written and the exit code is 3. The labels stay in the kit until the next run; bring the file back and
    join again to have them.

    The first time you are shown who takes part: names, codes of their keys, and a roster code to compare with
    them by telephone. Later a silo with another key is refused with exit code 4, before anything leaves.

    Examples:
      fmtc join --kit north --data ours.parquet --id-column patient --out ours
      fmtc join --kit north --data ours.parquet --out ours --max-k 10 --min-rows 20
      fmtc join --kit north --data ours.parquet --out ours --hold
      fmtc join --kit north --data ours.parquet --out ours --stay --max-runs 2
      fmtc join --kit north --data ours.parquet --out ours --accept-roster 1f0c-77a2-93be-04d5
    """
    from .joining import take_part  # loads NVIDIA FLARE

    take_part(words, kit_path, taking, limits, reading)
