"""Flags for the settings of a model, and the estimator they make."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, nearest_names
from ..kernels.couplings import COUPLINGS
from ..linalg.arrays import HOST, check_device
from ..settings import PRIVACIES, SCALES, VIEWS, Settings, Solver, split_solver
from .options import NO_NUMBER
from .program import Option

if TYPE_CHECKING:
    from ..estimator import FMTC
    from ..schema import Schema


class _OrAuto(click.ParamType):
    """A number of this kind, or the word auto."""

    def __init__(self, kind: Callable[[str], float], words: str):
        self.kind, self.words, self.name = kind, words, f"{kind.__name__}|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if value == "auto" else self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither {self.words} nor 'auto'", param, ctx)


# Parameters of FMTC that are a plain value, with their type on the command line and a line of help; the flag has the
# name of the parameter. A flag that is not given leaves the value to FMTC or FMTC.as_published.
MODEL_OPTIONS: dict[str, tuple[Any, str]] = {
    "view": (
        click.Choice(VIEWS),
        "mixture for tables, graph for text, pictures and many columns; auto compares them without labels.",
    ),
    "alpha": (float, "Graph view: how firmly the embedding is held to a linear function of the features."),
    "beta": (float, "Graph view: strength of the coupling; 0 leaves the silos alone, 1 would leave nothing."),
    "coupling": (
        click.Choice(["auto", *COUPLINGS]),
        "Graph view: what is made low-rank, the tensor of projections or all side by side; average makes them one; "
        "auto is tensor, and average for texts.",
    ),
    "n_neighbors": (_OrAuto(int, "a whole number"), "Neighbours in each silo's graph; auto: sqrt(rows)/2, 10 to 30."),
    "scale": (
        click.Choice(SCALES),
        "Standardise columns in each silo (client) or over all (global); auto: over all, unless columns share a unit; "
        "tfidf weighs counts of words.",
    ),
    "max_iter": (int, "Largest number of rounds; the mixture may take four times as many."),
    "tol": (float, "Stop when both residuals are below, or the mixture's likelihood hardly changes; 0: all rounds."),
    "privacy": (
        click.Choice(PRIVACIES),
        "sums: whoever coordinates sees sums over all silos, at least three, and nothing of a single one.",
    ),
    "n_jobs": (int, "Silos processed at the same time; -1 for all cores."),
    "device": (str, "Where silos compute: cpu, or a device of PyTorch such as cuda (pip install 'fmtc[gpu]')."),
}


PRIVACY_FLAGS = ("epsilon", "delta", "colluding", "bounds", "announced", "accept_weak")


def model_options(command: Any) -> Any:
    """The settings of the model, for `build_model`: as_published, client_weights, solver and those of MODEL_OPTIONS."""
    for option in (
        click.option("--help-solver", is_flag=True, is_eager=True, expose_value=False, callback=_help_solver,
                     cls=Option, section="Model", help="List the settings of the solver and exit."),
        click.option("--solver", multiple=True, metavar="NAME=VALUE", callback=_read_solver, cls=Option,
                     section="Model", help="A setting of the solver, such as ridge=0.1; may be given many times."),
    ):  # fmt: skip
        command = option(command)
    defaults = {f.name: f.default for f in (*fields(Settings), *fields(Solver))}
    defaults |= {"n_jobs": None, "device": HOST, "view": "auto", "scale": "auto", "coupling": "auto"}
    for name, (kind, text) in reversed(MODEL_OPTIONS.items()):
        text = text if defaults[name] is None else f"{text}  [default: {defaults[name]}]"
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=kind, default=None, cls=Option, section="Model", help=text)(command)
    for option in reversed((
        click.option("--epsilon", type=float, cls=Option, section="Privacy",
                     help="Differential privacy of every record: noise in everything that leaves; needs --bounds."),
        click.option("--delta", type=float, cls=Option, section="Privacy",
                     help="Chance that the bound of --epsilon fails; 1e-5 by default."),
        click.option("--colluding", type=click.IntRange(0), cls=Option, section="Privacy",
                     help="Silos that may help the coordinator and still leave --epsilon true; 1 by default."),
        click.option("--bounds", type=click.Path(path_type=Path), cls=Option, section="Privacy",
                     help="Public bounds of the columns: `fmtc check --write-bounds` writes a file to be filled in."),
        click.option("--rows", "announced", type=click.IntRange(1), cls=Option, section="Privacy",
                     help="Rows of all silos together, as announced: too few for --epsilon are refused at once."),
        click.option("--yes", "accept_weak", is_flag=True, cls=Option, section="Privacy",
                     help="Run with half of the rows that --epsilon needs, where a silo alone may do better."),
    )):  # fmt: skip
        command = option(command)
    for option in (
        click.option("--client-weight", "client_weights", multiple=True, metavar="SILO=NUMBER", cls=Option,
                     section="Model",
                     help="How much a silo's own data count against the consensus; once for every silo."),
        click.option("--concepts", "n_concepts", type=click.IntRange(1), cls=Option, section="Model",
                     help="Clusters of all silos, where silos may lack some; without -k, each may have all."),
        click.option("--as-published", is_flag=True, cls=Option, section="Model",
                     help="The algorithm as printed in the paper: absolute alpha, beta, rho; no alignment."),
    ):  # fmt: skip
        command = option(command)
    return command


# ----------------------------------------------------------------------------------------- settings of the solver


def solver_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Settings of `Solver` from texts of the form NAME=VALUE; a later text replaces an earlier one.

    A value is a number, true, false, none or a word. `Solver` itself checks whether it is one that it can use.

    Examples
    --------
    >>> from fmtc.cli.settings import solver_settings
    >>> solver_settings(["ridge=0.1", "align=false", "lift=auto", "rho=none"])
    {'ridge': 0.1, 'align': False, 'lift': 'auto', 'rho': None}
    """
    known = [f.name for f in fields(Solver)]
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (equals and value.strip()):
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE, such as ridge=0.1")
        if name not in known:
            raise click.BadParameter(f"the solver has no setting {name!r}; {nearest_names(name, known)}")
        found[name] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    """A number, true, false, none, or the word itself."""
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _read_solver(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Settings of the solver: those of a config file, replaced one by one by those of the command line."""
    in_file = (ctx.default_map or {}).get("solver", ())
    return solver_settings([*in_file, *texts])


def _help_solver(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the settings of the solver: their names, defaults and meaning are those of `Solver`."""
    if not value or ctx.resilient_parsing:
        return
    formatter = ctx.make_formatter()
    formatter.write_text("Settings of the solver, each given as --solver NAME=VALUE. The defaults suit most data.")
    with formatter.section("Settings"):
        formatter.write_dl(
            [(name, f"{text}  [default: {_written(default)}]") for name, default, text in solver_table()]
        )
    click.echo(formatter.getvalue().rstrip("\n"))
    ctx.exit()


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def solver_table() -> list[tuple[str, Any, str]]:
    """Name, default and description of every setting of the solver, from its docstring.

    Examples
    --------
    >>> from fmtc.cli.settings import solver_table
    >>> solver_table()[0][:2]
    ('n_neighbors', 'auto')
    """
    lines = (inspect.getdoc(Solver) or "").split("\n")
    start = lines.index("Parameters") + 2
    texts: dict[str, list[str]] = {}
    for line in lines[start : lines.index("Examples")]:
        if line and not line.startswith(" "):
            texts[line.partition(" : ")[0]] = words = []
        elif line:
            words.append(line.strip())
    return [(f.name, f.default, " ".join(texts[f.name]).replace("`", "")) for f in fields(Solver)]


def build_model(settings: Mapping[str, Any], as_published: bool, *, advises: bool = False) -> FMTC:
    """The estimator of the flags that were given, its values checked before any file is read.

    Parameters
    ----------
    settings : mapping
        Parameters of `FMTC` as `model_options` reads them: None or an empty tuple where no flag was given, SILO=NUMBER
        for each of client_weights, and under ``solver`` the settings of the solver by name.
    as_published : bool
        Whether what was not given comes from `FMTC.as_published`.
    advises : bool
        Whether the command can find the number of clusters.

    Returns
    -------
    FMTC
        Not fitted.
    """
    from ..estimator import FMTC
    from .privacy import read_privacy

    settings = dict(settings)
    flags = [settings.pop(name, None) for name in PRIVACY_FLAGS]
    given = {name: value for name, value in settings.items() if value not in (None, ()) and name != "solver"}
    if "client_weights" in given:
        given["client_weights"] = dict(map(_weight, given["client_weights"]))
    if "n_clusters" not in given:
        if "n_concepts" not in given:
            raise click.UsageError(NO_NUMBER)
        given["n_clusters"] = given["n_concepts"]
    given |= settings.get("solver", {})
    try:
        if (privacy := read_privacy(*flags)) is not None:
            if "privacy" in given:
                raise click.UsageError("--epsilon adds noise to sums already; leave --privacy out")
            given["privacy"] = privacy
        model = FMTC.as_published(**given) if as_published else FMTC(**split_solver(given))
        is_open = isinstance(model.n_clusters, str)
        if is_open and not advises:
            raise ValueError(
                f"-k {model.n_clusters} is for `fmtc fit` and `fmtc coordinate`; here, give the "
                "number that `fmtc advise-k` says"
            )
        model.settings(n_clusters=2 if is_open else None)
        check_device(model.device)
    except InputError:  # a file of bounds that cannot be used
        raise
    except (TypeError, ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from None
    return model


def bind_bounds(model: FMTC, path: Path | None, schema: Schema | None) -> None:
    """Bring the bounds of a file into the order of the columns, once that is known."""
    from .privacy import read_bounds

    if path is not None and schema is not None:
        names = [column.name for column in schema.columns if not column.levels]
        model.privacy = replace(model.privacy, bounds=read_bounds(path, names))


def _weight(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        return name, float(value) if equals and name else float("no")
    except ValueError:
        raise click.UsageError(f"--client-weight {text!r} is not of the form SILO=NUMBER, such as north=2") from None
