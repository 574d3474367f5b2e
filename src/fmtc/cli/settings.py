"""Flags for the settings of a model, and the estimator they make."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import click

from ..estimator import FMTC
from ..kernels.consensus import COUPLINGS
from ..linalg.arrays import check_device
from ..steps import ALIGNMENTS, CENTERS, LABEL_SOURCES, SCALES, Hyper
from .program import Option


class _OrAuto(click.ParamType):
    """A number of this kind, or the word auto."""

    def __init__(self, kind: Callable[[str], float], words: str):
        self.kind, self.words, self.name = kind, words, f"{kind.__name__}|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if value == "auto" else self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither {self.words} nor 'auto'", param, ctx)


# Every parameter of FMTC that is a plain value, with its type on the command line and a line of help; the flag has
# its name. A flag that is not given leaves the choice to FMTC or FMTC.as_published.
MODEL_OPTIONS: dict[str, tuple[Any, str]] = {
    "alpha": (float, "How firmly the embedding is held to a linear function of the features."),
    "beta": (
        _OrAuto(float, "a number"),
        "Strength of the coupling; 0 leaves the silos alone, 1 would leave nothing; auto tries four.",
    ),
    "ridge": (float, "Weight of the consensus in a silo's regression."),
    "schatten_p": (float, "Exponent of the Schatten norm, above 0 and at most 1."),
    "coupling": (
        click.Choice(COUPLINGS),
        "What is made low-rank: the tensor of projections, or all side by side; average makes them one.",
    ),
    "align": (click.Choice(ALIGNMENTS), "Turn the silos to a common frame: each round, once, or never."),
    "n_neighbors": (_OrAuto(int, "a whole number"), "Neighbours in each silo's graph; auto: sqrt(rows)/2, 10 to 30."),
    "bandwidth": (float, "Width of the Gaussian edge weights; left out, the mean distance to the neighbours."),
    "one_sided": (float, "Weight of an edge where only one of two rows counts the other as a neighbour; 1: the paper."),
    "n_inner": (int, "Steps on the embedding for each new projection."),
    "accelerate": (click.Choice(["yes", "no"]), "Fewer rounds for the same end; no: the plain loop of the paper."),
    "max_iter": (int, "Largest number of rounds."),
    "tol": (float, "Stop when both residuals are below; 0 runs all rounds."),
    "scale": (
        click.Choice(SCALES),
        "Standardise columns in each silo (client) or over all (global); tfidf weighs counts of words.",
    ),
    "max_features": (int, "Columns that tfidf keeps, those in most rows."),
    "center": (click.Choice(["auto", "yes", "no"]), "Subtract each silo's column means; auto: unless sparse."),
    "reweigh": (int, "Weigh the columns by their use after so many rounds, and go on; 0: never."),
    "labels_from": (click.Choice(LABEL_SOURCES), "Cluster the projected rows, or the embedding (the paper)."),
    "centers": (click.Choice(CENTERS), "Centres of each silo: its own, common ones of all, or the better of the two."),
    "n_init": (int, "Restarts of k-means."),
    "rho": (float, "Switches to the paper's absolute units of alpha, beta and rho."),
    "step_size": (float, "The paper's eta; left out, as long as the objective cannot rise."),
    "message_dtype": (click.Choice(["float32"]), "Round what is sent in each round: half the bytes."),
    "n_jobs": (int, "Silos worked on at the same time; -1 for all cores."),
    "device": (str, "Where silos compute: cpu, or a device of PyTorch such as cuda (pip install 'fmtc[gpu]')."),
}


def model_options(command: Any) -> Any:
    """The settings of the model, for `build_model`: as_published, client_weights and those of MODEL_OPTIONS."""
    for name, (kind, text) in reversed(MODEL_OPTIONS.items()):
        default = inspect.signature(FMTC).parameters[name].default
        text = text if default is None else f"{text}  [default: {default}]"
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=kind, default=None, cls=Option, section="Model", help=text)(command)
    for option in (
        click.option("--client-weight", "client_weights", multiple=True, metavar="SILO=NUMBER", cls=Option,
                     section="Model",
                     help="How much a silo's own data count against the consensus; once for every silo."),
        click.option("--as-published", is_flag=True, cls=Option, section="Model",
                     help="The algorithm as printed in the paper: absolute alpha, beta, rho; no alignment."),
    ):  # fmt: skip
        command = option(command)
    return command


def build_model(settings: Mapping[str, Any], as_published: bool) -> FMTC:
    """The estimator of the flags that were given, its values checked before any file is read.

    Parameters
    ----------
    settings : mapping
        Parameters of `FMTC` as `model_options` reads them: None or an empty tuple where no flag was given, "auto",
        "yes" or "no" for center and accelerate, SILO=NUMBER for each of client_weights.
    as_published : bool
        Whether what was not given comes from `FMTC.as_published`.

    Returns
    -------
    FMTC
        Not fitted.
    """
    given = {name: value for name, value in settings.items() if value not in (None, ())}
    for name in {"center", "accelerate"} & set(given):
        given[name] = {"auto": "auto", "yes": True, "no": False}[given[name]]
    if "client_weights" in given:
        given["client_weights"] = dict(map(_weight, given["client_weights"]))
    model = FMTC.as_published(**given) if as_published else FMTC(**given)
    try:
        Hyper(**{f.name: getattr(model, f.name) for f in fields(Hyper) if f.name != "seed"})
        check_device(model.device)
    except (TypeError, ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from None
    return model


def _weight(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        return name, float(value) if equals and name else float("no")
    except ValueError:
        raise click.UsageError(f"--client-weight {text!r} is not of the form SILO=NUMBER, such as north=2") from None
