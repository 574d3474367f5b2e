"""Commands that measure what leaks: audit members, canary, influence, span and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fmtc.cli import flags
from fmtc.cli.flags import TABLES, free_picture, save_picture
from fmtc.cli.program import Option
from fmtc.cli.settings import bind_bounds, build_model, model_options
from fmtc.cli.words import Words, print_json, size_of
from fmtc.errors import DataError, FileError, listed, plural

from .program import main_group
from .shown import Bar, table_of

if TYPE_CHECKING:
    from fmtc.privacy.rules import Policy
    from fmtc.settings import Settings

BROKEN = 4  # exit code: a claim is false
SLOW = 2.0  # seconds after which a bar is shown


@main_group.group(short_help="Measure what the messages of a run tell of single records.")
def audit() -> None:
    """Measure what the messages of a run tell of single records. Nothing leaves this machine.

    An audit plays the server. It repeats whole runs with and without records, reads what the server would get, and says
    how well that tells who was in. What it finds is a lower bound: a cleverer attacker finds more. Exit code 4 if what
    it finds breaks a claim of the run.
    """


# --------------------------------------------------------------------------------------------------------- what is read


def rows_options(command: Any) -> Any:
    """Files, how they are read, and the model."""
    for option in reversed(
        (
            click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path)),
            flags.n_clusters,
            flags.random_state,
            flags.quiet,
            flags.reading(*TABLES, judge=True),
            model_options,
        )
    ):
        command = option(command)
    return command


def _read(words: Words, files: Sequence[Path], given: dict[str, Any]) -> tuple[dict[str, Any], Settings]:
    """The rows of each silo as a run has them, and the settings; as `fmtc fit` would have them."""
    from fmtc.tables import read_silos

    reading = given.pop("reading")
    model = build_model(given, reading)
    if isinstance(model.n_clusters, str):
        raise click.UsageError(
            f"-k {model.n_clusters} is for `fmtc fit` and `fmtc coordinate`; here, give the number that "
            "`fmtc advise-k` says"
        )
    with words.warnings_as_notes():
        silos = read_silos(files, reading)
        bind_bounds(model, given["bounds"], silos[0].schema)
        rows = {silo.name: silo.encoded for silo in silos}
        data = {cid: X for cid, (X, _) in model._parts(rows, None, reset=True).items()}
    words.say(f"{size_of(silos)}")
    return data, model._settings()


def _chosen(data: Mapping[str, Any], silo: str | None) -> str:
    """The silo that is audited: the one named, else the smallest, which has most to lose."""
    if silo is None:
        return min(sorted(data), key=lambda cid: data[cid].shape[0])
    if silo not in data:
        raise DataError(f"there is no silo {silo!r}; there is {listed(sorted(data))}")
    return silo


# ------------------------------------------------------------------------------------------------------------- members


@audit.command(
    "members",
    short_help="Attack: who was in? Shadow runs, AUC, a bound on epsilon.",
    epilog="""\b
Examples:
  fmtc-bench audit members north.csv south.csv west.csv -k 4
  fmtc-bench audit members *.csv -k 4 --silo north --privacy sums --runs 200
  fmtc-bench audit members *.csv -k 4 --epsilon 1 --bounds bounds.toml
  fmtc-bench audit members *.csv -k 4 --plot roc.png --json""",
)
@rows_options
@click.option("--silo", metavar="NAME", cls=Option, help="The silo to attack.  [default: the smallest]")
@click.option("--runs", type=click.IntRange(8), default=100, show_default=True, cls=Option, help="Shadow runs.")
@click.option(
    "--plot", type=click.Path(path_type=Path), cls=Option, help="Write the curve of the attack: .png, .pdf or .svg."
)
@click.option("--force", is_flag=True, cls=Option, help="Replace --plot.")
@click.pass_context
def members(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    silo: str | None,
    runs: int,
    plot: Path | None,
    force: bool,
    words: Words,
    **given: Any,
) -> None:
    """Measure whether somebody who sees what the server sees can tell that a record was in a silo.

    Repeats the run with a random half of one silo's rows in, and judges each row by what the server got, as LiRA does:
    two Gaussians for each record, fitted to the other runs. Tells AUC (0.5 is guessing), the share of members found
    where 1 % of others are called members, and a lower bound on epsilon. The other silos are the same in all runs: the
    attacker is a strong one. A silo has twice the rows of a shadow run, and leaks less. A sum over silos hides whose
    record it is, not whether it is there. Takes the files and flags of `fmtc fit`.
    """
    from ..audits.attacks import roc
    from ..audits.runs import audit_members

    if plot is not None:
        plot = free_picture(plot, force)
        from ..audits.plots import roc as draw_roc
    data, settings = _read(words, files, given)
    target = _chosen(data, silo)
    with Bar(words, f"shadow runs of {target}", runs, slow=SLOW) as bar:
        found = audit_members(data, settings, target, runs=runs, seed=settings.seed, progress=bar)
    attack = found.attack
    table = table_of("", "measured", "what it means", left=("", "measured", "what it means"))
    bound = f"{attack.epsilon_at_least:.2f}"
    rows = [
        ("AUC", str(attack.auc), "0.5 is guessing, 1 is certain; 95 % interval over records and runs"),
        ("found at 1 % false alarms", str(attack.tpr), "share of members; 0.01 is guessing"),
        ("epsilon at least", bound, "no smaller epsilon fits the guesses that were right (95 %)"),
        ("the same from error rates", f"{attack.epsilon_indication:.2f}", "an indication: records are not independent"),
    ]
    for row in rows:
        table.add_row(*map(Text, row))
    words.say(f"{found.mode}; silo {target}: {found.rows} records, about {found.inside:.0f} of them in each of "
              f"{plural(runs, 'run')}")  # fmt: skip
    words.say(table)
    if plot is not None:
        save_picture(words, draw_roc({found.mode: roc(found.scores, found.members)}).figure, plot)
    if words.as_json:
        print_json(found.to_dict() | {"runs": runs, "plot": None if plot is None else str(plot)})
    if found.broken:
        words.say(f"the claim is broken: epsilon is at least {bound}, and {found.epsilon:g} was claimed", "bold red")
        ctx.exit(BROKEN)
    if found.epsilon is not None:
        words.say(f"nothing here contradicts epsilon = {found.epsilon:g}", "green")


# -------------------------------------------------------------------------------------------------------------- canary


@audit.command(
    "canary",
    short_help="Hold the noise of private runs against their claim.",
    epilog="""\b
Examples:
  fmtc-bench audit canary --epsilon 4
  fmtc-bench audit canary --epsilon 8 --runs 4000 --method mixture --json""",
)
@click.option("--epsilon", type=float, default=4.0, show_default=True, cls=Option, help="The claim to audit.")
@click.option("--delta", type=float, default=1e-5, show_default=True, cls=Option, help="Its delta.")
@click.option("--runs", type=click.IntRange(20), default=1000, show_default=True, cls=Option,
              help="Runs, half of them with the planted record.")  # fmt: skip
@click.option("--method", type=click.Choice(["anchors", "mixture"]), default="anchors", show_default=True, cls=Option,
              help="Which private method.")  # fmt: skip
@click.option("--colluding", type=click.IntRange(0), default=1, show_default=True, cls=Option,
              help="Colluding silos that the noise allows for.")  # fmt: skip
@flags.quiet
@click.pass_context
def canary(
    ctx: click.Context,
    /,
    epsilon: float,
    delta: float,
    runs: int,
    method: str,
    colluding: int,
    words: Words,
) -> None:
    """Hold the noise of private runs against what they claim; needs no data.

    Plants one record in a corner of the bounds, or leaves it out, and lets an adversary who knows all other records and
    every formula decide by the exact likelihood ratio of all noisy sums. The sums go through the code of a private run.
    An epsilon that the adversary's errors rule out, above the claim, proves the claim false: exit code 4. The reverse
    proves nothing; the last line says which faults so many runs would have found.
    """
    from fmtc.settings import Privacy

    from ..audits.runs import audit_canary

    try:
        privacy = Privacy(epsilon=epsilon, delta=delta, bounds=(0, 1), method=method, colluding=colluding)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not privacy.noisy:
        raise click.UsageError("--epsilon must be finite: without noise there is no claim to audit")
    with Bar(words, "private runs", runs, slow=SLOW) as bar:
        found = audit_canary(privacy, runs=runs, clients=max(3, colluding + 1), progress=bar)
    words.say(
        f"claimed: epsilon {epsilon:g} at delta {delta:g} with {plural(colluding, 'colluding silo')} allowed for; so "
        f"{found.epsilon:.2f} against the server alone, which is what is audited"
    )
    words.say(f"AUC of the adversary {found.auc:.3f}; the claim allows at most {found.auc_at_most:.3f}")
    words.say(f"epsilon at least {found.epsilon_at_least:.2f} (95 %) in {plural(found.runs, 'run')}: {found.verdict}",
              "bold red" if found.caught else "green")  # fmt: skip
    if not found.caught:
        words.say(
            f"so many runs are likely to find noise below {100 * found.finds:.0f} % of what is claimed"
            if found.finds > 0
            else "so few runs find nothing: take more, or a larger epsilon, where the code is the same"
        )
    if words.as_json:
        print_json(found.to_dict() | {"claimed": epsilon, "colluding": colluding, "method": method})
    if found.caught:
        ctx.exit(BROKEN)


# -------------------------------------------------------------------------------------------------- influence and span


@audit.command(
    "influence",
    short_help="Find records that move the projection, at fixed embedding.",
    epilog="""\b
Examples:
  fmtc-bench audit influence north.csv south.csv -k 4 --view graph
  fmtc-bench audit influence *.csv -k 4 --view graph --json""",
)
@rows_options
def influence(files: tuple[Path, ...], words: Words, **given: Any) -> None:
    """Which single records move a silo's projection W most, at fixed embedding, in the first and the last round.

    The change of W if the record is left out and the embedding of the others stays, relative to W. A real refit moves
    the embedding, too: the true change was 1.2 to 3 times as large for the top record, and more for a typical one. So
    this finds records that stand out, and understates what everybody else contributes. Rows are counted from 1.
    """
    from fmtc.privacy.rules import Policy

    from ..audits.runs import audit_influence

    data, settings = _read(words, files, given)
    with words.warnings_as_notes():
        found = audit_influence(data, settings)
    table = table_of(
        "silo", "round", "rows", "largest", "99 %", "median", "largest leverage", "top row", "", left=("silo", "")
    )
    policy = Policy()
    for one in found:
        numbers = (f"{value:.2g}" for value in (one.largest, one.q99, one.median, one.leverage))
        pairs = ((one.largest, policy.influence), (one.leverage, policy.leverage))
        level = max(sum(value > limit for limit in limits) for value, limits in pairs)
        words_of = (Text(""), Text("stands out", "yellow"), Text("dominates", "bold red"))
        table.add_row(
            Text(one.client), str(one.round_no), str(one.rows), *numbers, str(one.top_row + 1), words_of[level]
        )
    words.say("influence of single records at fixed embedding, relative to the projection")
    words.say(table)
    if words.as_json:
        print_json({"influence at fixed embedding": [one.to_dict() for one in found]})


@audit.command(
    "span",
    short_help="Reconstruct the span of a silo's rows.",
    epilog="""\b
Examples:
  fmtc-bench audit span north.npz south.npz -k 4 --view graph
  fmtc-bench audit span letters.csv --silo-column office --text-column text -k 4 --json""",
)
@rows_options
def span(files: tuple[Path, ...], words: Words, **given: Any) -> None:
    """Measure how far the server can reconstruct the span of a silo's rows, where they are fewer than its columns.

    Each projection W that leaves, less what the server had sent, is a combination of the rows. A few rounds are enough
    to know all combinations of them: not yet the rows, but with very few or sparse rows not far from them.
    """
    from ..audits.runs import audit_span

    data, settings = _read(words, files, given)
    with words.warnings_as_notes():
        found = audit_span(data, settings)
    table = table_of("silo", "rows", "columns", "rank", "found", "largest angle", "of the rows", "", left=("silo", ""))
    for cid, one in found.items():
        size = (Text(cid), str(one.n_rows), str(one.n_features), str(one.rank))
        if one.n_rows > one.n_features or not one.found:
            why = "as many rows as columns: the span is everything" if one.n_rows > one.n_features else "not compared"
            table.add_row(*size, "–", "–", "–", Text(why))
            continue
        verdict = Text("known, up to rounding", "bold red") if one.exact else Text("known in part", "yellow")
        table.add_row(*size, str(one.found), f"{one.angle:.1g}°", f"{100 * one.energy:.1f} %", verdict)
    words.say(table)
    if words.as_json:
        print_json({"span": {cid: one.to_dict() for cid, one in found.items()}})


# ---------------------------------------------------------------------------------------------------------- of a folder


@audit.command(
    "run",
    short_help="Look at a run's folder: sizes, rules, ledger.",
    epilog="""\b
Examples:
  fmtc-bench audit run run
  fmtc-bench audit run run --rules rules.toml --json""",
)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--rules", type=click.Path(path_type=Path), cls=Option, help="The policy of a silo, a TOML file.")
@click.pass_context
def run_(ctx: click.Context, /, folder: Path, rules: Path | None, words: Words) -> None:
    """What the folder of a run tells about its risks, without the rows: sizes, rows against columns, rules, ledger.

    RUN is the --out folder of `fmtc fit` or `fmtc join`. Exit code 4 if the record of what left was changed, or if the
    policy refuses what the run sent. `fmtc-bench audit members` and the others need the rows.
    """
    from fmtc.artifacts.files import check_form, read_json
    from fmtc.artifacts.runs import REPORT, is_run
    from fmtc.privacy.rules import Policy

    if not is_run(folder):
        raise FileError(f"{folder} is not the --out folder of `fmtc fit` or `fmtc join`; an audit of rows takes files")
    report, policy = read_json(folder / "report.json"), Policy() if rules is None else Policy.read(rules)
    check_form(folder / "report.json", report, REPORT)
    ledger, faults = _record(folder)
    told = [_told(line, int(report["n_features"]), policy) for line in report["silos"]]
    table = table_of("silo", "rows", "columns", "smallest cluster", "rules", left=("silo", "rules"))
    for one in told:
        said = _spoken(one, policy)
        numbers = (str(one[name]) for name in ("rows", "columns", "smallest_cluster"))
        table.add_row(
            Text(one["silo"]), *numbers, Text("; ".join(said) or "none speaks", "yellow" if said else "green")
        )
    deciding = {"few_rows": policy.few_rows, "small_clusters": policy.small_cluster}
    refused = any(one[name] for name, rule in deciding.items() if rule == "refuse" for one in told)
    mode = _mode(report["settings"].get("privacy"))
    words.say(f"{mode}; record of what left: {ledger}")
    words.say(table)
    for fault in faults:
        words.say(fault, "red")
    if words.as_json:
        print_json({"run": str(folder), "mode": mode, "ledger": ledger, "faults": faults, "silos": told,
                    "sent": report.get("sent", []), "refused": refused})  # fmt: skip
    if faults or refused:
        ctx.exit(BROKEN)


def _record(folder: Path) -> tuple[str, list[str]]:
    """How the record of what left is, in a word, and its faults."""
    from fmtc.cli.outbox import find_ledgers
    from fmtc.privacy.ledger import verify

    try:
        faults = [fault for path in find_ledgers(folder) for fault in verify(path)]
    except FileError:
        return "not here", []
    return (plural(len(faults), "fault") if faults else "whole"), faults


def _mode(privacy: Any) -> str:
    if isinstance(privacy, Mapping):
        return f"private: epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g}"
    return "plain: the server saw every answer" if privacy is None else "sums: the server saw totals"


def _told(line: Mapping[str, Any], d: int, policy: Policy) -> dict[str, Any]:
    """What the report of a run says of the sizes of a silo."""
    sizes = [int(size) for size in line["cluster_sizes"] if size]
    return {
        "silo": line["silo"], "rows": line["rows"], "columns": d, "rows_per_column": line["rows"] / d,
        "smallest_cluster": min(sizes), "small_clusters": sum(size < policy.min_cluster for size in sizes),
        "few_rows": line["rows"] < policy.rows_per_column * d, "span_can_show": line["rows"] <= d,
    }  # fmt: skip


def _spoken(one: Mapping[str, Any], policy: Policy) -> list[str]:
    """What the rules say of these sizes."""
    said = []
    if one["few_rows"]:
        said.append("fewer rows than columns: their span shows" if one["span_can_show"] else "few rows for the columns")
    if one["small_clusters"]:
        said.append(f"{plural(one['small_clusters'], 'cluster')} below {policy.min_cluster} rows")
    return said
