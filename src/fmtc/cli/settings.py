"""Flags for the settings of a model and the promise of a private run, and the estimator they make."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..artifacts.files import read_file
from ..errors import DataError, InputError, listed, nearest_names
from ..linalg.arrays import HOST, check_device
from ..schema import NUMBER, Schema
from ..settings import OF_VIEWS, PRIVACIES, SCALES, VIEWS, Graph, Mixture, Privacy, Settings, by_view
from . import flags
from .flags import PATH

if TYPE_CHECKING:
    from ..estimator import FMTC
    from ..tables.reading import Reading


def _value(text: str) -> Any:
    """A number, true, false, none, or the word itself."""
    try:
        return json.loads({"none": "null"}.get(text.lower(), text.lower()))
    except ValueError:
        return text


# Parameters of FMTC that are a plain value, with their type on the command line and a line of help; the flag has the
# name of the parameter. A flag that is not given leaves the value to FMTC or FMTC.as_published.
MODEL_OPTIONS: dict[str, tuple[Any, str]] = {
    "view": (
        click.Choice(VIEWS),
        "mixture for tables, graph for text, pictures and many columns; auto compares them without labels.",
    ),
    "scale": (
        click.Choice(SCALES),
        "Standardise columns in each silo (silo) or over all (global); auto: over all, unless columns share a unit; "
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


NO_NUMBER = (
    "-k (--n-clusters) says how many clusters you want, such as -k 4. -k auto asks the rows, which is advice and no "
    "more (`fmtc advise-k`): try a few and compare what `fmtc explain` says of each (docs/how-to/how-many-clusters.md)"
)


def _with_default(name: str, text: str) -> str:
    defaults = Settings().get_params() | {"n_jobs": None, "device": HOST, "view": "auto", "scale": "auto"}
    return text if defaults[name] is None else f"{text}  [default: {defaults[name]}]"


def model_options(command: Any) -> Any:
    """The settings of a model, for `build_model`."""
    model, promise = partial(flags.option, section="Model"), partial(flags.option, section="Privacy")
    options = [
        model("--as-published", is_flag=True,
              help="The algorithm as printed in the paper: absolute alpha, beta, rho; no alignment."),
        model("--clusters-per-silo", multiple=True, metavar="INTEGER|auto", callback=_read_per_silo,
              help="Where silos may lack clusters: the most that one has, SILO=NUMBER once for each silo, or auto."),
        model("--silo-weight", "silo_weights", multiple=True, metavar="SILO=NUMBER", callback=_read_weights,
              help="How much a silo's own data count against the consensus; once for every silo."),
        promise("--epsilon", type=float,
                help="Differential privacy of every record: noise in everything that leaves; needs --bounds."),
        promise("--delta", type=float, help="Chance that the bound of --epsilon fails; 1e-5 by default."),
        promise("--colluding", type=click.IntRange(0),
                help="Silos that may help the coordinator and still leave --epsilon true; 1 by default."),
        promise("--bounds", type=PATH,
                help="Public bounds of the columns: `fmtc check --write-bounds` writes a file to be filled in."),
        promise("--rows", type=click.IntRange(1),
                help="Rows of all silos together, as announced: too few for --epsilon are refused at once."),
        promise("--yes", "accept_weak", is_flag=True,
                help="Run with half of the rows that --epsilon needs, where a silo alone may do better."),
        *(
            model("--" + name.replace("_", "-"), name, type=kind, default=None, help=_with_default(name, text))
            for name, (kind, text) in MODEL_OPTIONS.items()
        ),
        model("--set", multiple=True, metavar="NAME=VALUE", callback=_read_set,
              help="Any other setting, such as ridge=0.1; may be given many times. --help-set lists them."),
        model("--help-set", is_flag=True, is_eager=True, expose_value=False, callback=_help_set,
              help="List the settings of --set and exit."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


# ------------------------------------------------------------------------------------------- settings of the views


def set_values(texts: Iterable[str]) -> dict[str, Any]:
    """Settings of the views from texts of the form NAME=VALUE; a later text replaces an earlier one.

    A value is a number, true, false, none or a word. `Graph` and `Mixture` check whether they can use it.

    Examples
    --------
    >>> from fmtc.cli.settings import set_values
    >>> set_values(["ridge=0.1", "align=false", "lift=auto", "rho=none"])
    {'ridge': 0.1, 'align': False, 'lift': 'auto', 'rho': None}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (equals and value.strip()):
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE, such as ridge=0.1")
        if name not in OF_VIEWS:
            raise click.BadParameter(f"there is no setting {name!r}; {nearest_names(name, OF_VIEWS)}")
        found[name] = _value(value.strip())
    return found


def _read_set(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Settings of the views: those of a config file, replaced one by one by those of the command line."""
    in_file = (ctx.default_map or {}).get("set", ())
    return set_values([*in_file, *texts])


def _help_set(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the settings of the views: their names, defaults and meaning are those of `Graph` and `Mixture`."""
    if not value or ctx.resilient_parsing:
        return
    formatter = ctx.make_formatter()
    formatter.write_text("Settings of --set NAME=VALUE. The defaults suit most data.")
    with formatter.section("Settings"):
        formatter.write_dl(
            [(name, f"{text}  [default: {_written(default)}]") for name, default, text in settings_table()]
        )
    click.echo(formatter.getvalue().rstrip("\n"))
    ctx.exit()


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def settings_table() -> list[tuple[str, Any, str]]:
    """Name, default and description of every setting of the views, from their docstrings.

    Examples
    --------
    >>> from fmtc.cli.settings import settings_table
    >>> settings_table()[0][:2]
    ('kappa', None)
    """
    documents = (inspect.getdoc(kind) or "" for kind in (Mixture, Graph))
    described = re.findall(r"^(\w+) : .*\n((?: +.*\n|\n)+)", "\n".join(documents), re.MULTILINE)
    texts = {name: " ".join(text.replace("`", "").split()) for name, text in described}
    return [(name, default, texts[name]) for name, default in Graph().get_params().items()]


def build_model(flags: Mapping[str, Any], reading: Reading | None = None) -> FMTC:
    """The estimator of the flags that were given, its values checked before any file is read.

    Parameters
    ----------
    flags : mapping
        As `model_options` reads them: None or an empty tuple where no flag was given, and under ``set`` the settings
        of the views by name.
    reading : Reading, optional
        Of the rows: texts are weighted by how rare their words are, unless another scale was given.

    Returns
    -------
    FMTC
        Not fitted; without --as-published, what was not given is what `FMTC` has.
    """
    from ..estimator import FMTC

    others = {*PROMISE, "set", "as_published", "silo_weights"}
    given = {name: value for name, value in flags.items() if value not in (None, ()) and name not in others}
    if reading is not None and reading.recipe is not None:
        given.setdefault("scale", "tfidf")
    if "n_clusters" not in given:
        if not isinstance(given.get("clusters_per_silo"), dict):
            raise click.UsageError(NO_NUMBER)
        given["n_clusters"] = "auto"
    given |= flags["set"]
    try:
        if (promise := read_privacy(flags)) is not None:
            given["privacy"] = promise
        model = FMTC.as_published(**given) if flags["as_published"] else FMTC(**by_view(given))
        model._settings(n_clusters=2 if isinstance(model.n_clusters, str) else None)
        check_device(model.device)
    except InputError:  # a file of bounds that cannot be used
        raise
    except (TypeError, ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from None
    return model


def _read_per_silo(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
    """One number for all silos, "auto", or a mapping of silo to number; None: not given."""
    if texts == ("auto",):
        return "auto"
    pairs = [text.rpartition("=")[::2] for text in texts]
    found = dict(pairs)
    if len(found) < len(pairs) or ("" in found and len(found) > 1) or not all(map(str.isdecimal, found.values())):
        raise click.BadParameter("give one number for all silos, or SILO=NUMBER once for each, such as north=6")
    numbers = {silo: int(number) for silo, number in found.items()}
    return numbers.get("", numbers or None)


def bind_bounds(model: FMTC, path: Path | None, schema: Schema | None) -> None:
    """Bring the bounds of a file into the order of the columns, once that is known."""
    if path is not None and schema is not None:
        names = [column.name for column in schema.columns if not column.levels]
        model.privacy = replace(model.privacy, bounds=read_bounds(path, names))


def _read_weights(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, float] | None:
    """The weights of silos that were given; None: not given."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            name = ""
        if not name:
            raise click.UsageError(f"--silo-weight {text!r} is not of the form SILO=NUMBER, such as north=2")
    return found or None


# ------------------------------------------------------------------------------------------------------ private runs


PROMISE = ("epsilon", "delta", "colluding", "bounds", "rows", "accept_weak")  # fields of `Privacy` that have a flag
ALL = "*"  # in a file of bounds: every column that is not named
OPENING = """\
# Public bounds of the columns that are numbers, for private runs (--bounds).
# Write the lowest and the highest value that a column can have, from what everybody knows of it: a percentage has
# [0, 100], an age in years [0, 110]. Never look them up in the data: a maximum tells of the person who has it.
# Values beyond are clipped. "*" = [0, 1] stands for all columns that are not named.
"""


def bounds_template(schema: Schema) -> str:
    """A file of bounds to be filled in: names of columns, and bounds where the schema itself has them.

    Examples
    --------
    >>> from fmtc.cli.settings import bounds_template
    >>> from fmtc.schema import Column, Schema
    >>> print(bounds_template(Schema((Column("age", lower=0, upper=110), Column("dose"))))[-42:])
    "age" = [0, 110]
    "dose" = ["low", "high"]
    <BLANKLINE>
    """
    lines = []
    for column in schema.columns:
        if column.kind == NUMBER:
            sides = zip((column.lower, column.upper), ("low", "high"), strict=True)
            pair = ", ".join(json.dumps(word) if side is None else f"{side:g}" for side, word in sides)
            lines.append(f"{json.dumps(column.name)} = [{pair}]\n")
    return OPENING + "".join(lines)


def read_bounds(path: Path, names: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Lower and upper bounds from a file: two numbers where it holds ``"*"`` only, else one for each column.

    Parameters
    ----------
    path : path
    names : sequence of str, optional
        Columns that are numbers, in their order; without, the order of the file.
    """
    document = read_file(path, lambda content: tomllib.loads(content.decode()), "cannot be read as a file of bounds")
    found = {name: _pair(path, name, pair) for name, pair in document.items()}
    rest = found.pop(ALL, None)
    if rest is not None and not found:
        return rest
    names = list(found) if names is None else names
    unknown = [name for name in found if name not in names]
    pairs = {name: pair for name in names if (pair := found.get(name, rest)) is not None}
    if unknown or not pairs or len(pairs) < len(names):
        lacking = [name for name in names if name not in pairs]
        what = f"has no bounds for {listed(lacking)}" if lacking else f"names {listed(unknown)}, which no table has"
        raise DataError(f"{path} {what}; `fmtc check --write-bounds` writes one with all columns")
    low, high = zip(*pairs.values(), strict=True)
    return low, high


def _pair(path: Path, name: str, pair: Any) -> tuple[float, float]:
    """The lowest and the highest value of a column."""
    numbers = isinstance(pair, list) and len(pair) == 2 and {*map(type, pair)} <= {int, float}
    if not numbers or not -inf < pair[0] < pair[1] < inf:
        raise DataError(f"{path}: {name!r} has {pair!r}; write its lowest and highest possible value, such as [0, 100]")
    return float(pair[0]), float(pair[1])


def read_privacy(flags: Mapping[str, Any]) -> Privacy | None:
    """The promise that flags ask for; None where they ask for none."""
    given = {name: flags.get(name) for name in PROMISE}
    if given["epsilon"] is None:
        if stray := [f"--{name}" for name in PROMISE[1:] if given[name] is not None and name != "accept_weak"]:
            raise click.UsageError(f"{', '.join(stray)} belongs to a private run; give --epsilon as well")
        return None
    if flags.get("privacy") is not None:
        raise click.UsageError("--epsilon adds noise to sums already; leave --privacy out")
    if given["bounds"] is None:
        raise click.UsageError(
            "a private run needs --bounds, a file that `fmtc check --write-bounds` writes to be filled in"
        )
    given["bounds"] = read_bounds(given["bounds"])
    return Privacy(**{name: value for name, value in given.items() if value is not None})
