"""Commands that use a model: predict, export and drift; how rows are read for a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.filesize import decimal

from .. import tables
from ..artifacts import runs
from ..artifacts.files import read_json, write_file
from ..artifacts.labels import as_csv, label_table, with_labels, with_names
from ..artifacts.models import KnownColumns
from ..errors import DataError, listed, plural
from ..tables.reading import Reading
from . import flags
from .flags import PATH, ROWS, free_path, given
from .program import main_group
from .terminal import printable
from .words import Words

if TYPE_CHECKING:
    import polars as pl

    from ..estimator import FMTC


@dataclass(frozen=True)
class Answer:
    """What `predict` says of each row besides its cluster, and where."""

    out: Path | None = given("--out", type=PATH, help="File to write instead of standard output.")
    force: bool = given("--force", is_flag=True, help="Replace --out.")
    proba: bool = given("--proba", is_flag=True, help="Add the probability of every cluster.")
    outliers: bool = given("--outliers", is_flag=True, help="Add a column: whether a row is far from all clusters.")
    abstain: float | None = given("--abstain", type=click.FloatRange(0, 1, max_open=True), metavar="SHARE",
                                  help="Cluster -1 for this share of rows, the least certain.")  # fmt: skip
    append: bool = given("--append", is_flag=True, help="Write the whole table, with cluster and probability.")


@main_group.command(short_help="Cluster new rows with a model.")
@click.argument("run", type=PATH)
@click.argument("file", type=PATH)
@flags.silo
@flags.takes(marks=Answer)
@flags.reading("silo_column", *ROWS, "obsm")
def predict(run: Path, file: Path, silo_name: str | None, marks: Answer, reading: Reading, words: Words) -> None:
    """Cluster new rows with a model: CSV to standard output, one line per row of FILE.

    RUN is the --out folder of `fmtc fit`, or a model folder. The columns of the model must be there, in any order;
    others are ignored, and the identifiers that `fmtc fit` set aside label the output. A file called after a silo
    needs no --silo. A model of texts knows the name of their column; --text-column gives another.

    Examples:
      fmtc predict run new.csv --silo north --out labels.csv
      fmtc predict run new.csv --silo north --id patient --proba --outliers
      fmtc predict run new.csv --silo north --append --out new-with-clusters.csv
      fmtc predict run new.csv --silo north --abstain 0.1    (of a run that was fitted with --calibrate)
      fmtc predict run all.parquet --silo-column site --json
    """
    if marks.append and marks.proba:
        raise click.UsageError("--append adds the cluster and its probability; omit --proba")
    if marks.append:
        check_tables([file], "omit --append")
    out = marks.out and free_path(marks.out, marks.force)
    with words.warnings_as_notes():
        model, silos = rows_for_model(words, run, file, silo_name, reading)
        if marks.outliers and model.view_ != "mixture":
            raise click.UsageError("--outliers needs a model of the mixture view: fit with --view mixture")
        labels, P, more = _answers(words, model, silos, marks)
    if marks.append:
        table = with_labels(tables.formats.read_file(file, reading), silos, labels, P, **more)
    else:
        table = label_table(silos, labels, P, named=reading.silo_column is not None, proba=marks.proba, **more)
    if marks.abstain is not None:
        left = _count(sure < marks.abstain for sure in more["confidence"])
        words.note(
            f"{left:,} of {plural(table.height, 'row')} ({left / max(table.height, 1):.0%}) "
            f"{'has' if left == 1 else 'have'} no cluster (-1): confidence below {marks.abstain:g}"
        )
    give_table(words, with_names(table, runs.label_names(runs.read_explanation(run))), out)


def _answers(words: Words, model: FMTC, silos: Sequence[tables.Silo], marks: Answer) -> tuple[Any, Any, dict[str, Any]]:
    """Labels and probabilities of each silo, and what else is asked for; notes rows that are far from all clusters."""

    def of_each(answer: Callable[..., np.ndarray]) -> list[np.ndarray]:
        return [answer(silo.X, silos=silo.name) for silo in silos]

    far = of_each(model.outliers) if model.view_ == "mixture" else []
    if n_far := _count(far):
        words.note(
            f"{n_far:,} of {plural(sum(map(len, far)), 'row')} {'is' if n_far == 1 else 'are'} far from all clusters; "
            "a probability there says which cluster is nearest, not that a row belongs to it"
            + ("" if marks.outliers else " (--outliers marks such rows)")
        )
    more: dict[str, Any] = {"outliers": far if marks.outliers else None}
    if marks.abstain is not None:
        more |= {"confidence": of_each(model.confidence), "abstain": marks.abstain}
    return of_each(model.predict), of_each(model.predict_proba), more


def _count(marked: Iterable[np.ndarray]) -> int:
    return sum(int(rows.sum()) for rows in marked)


def check_tables(files: Sequence[Path], advice: str) -> None:
    """Refuse files that are no tables to append to."""
    for file in files:
        suffix = tables.formats.suffix_of(file)
        if suffix == ".h5ad":
            advice += f", and write clusters into obs afterwards: fmtc explain RUN --join {file} --out NEW.h5ad"
        if suffix in (".npy", ".npz", ".h5ad"):
            raise click.UsageError(f"{file} is a matrix without a table to append to; {advice}")


def give_table(
    words: Words, table: pl.DataFrame, out: Path | None, write: Callable[[Path], None] | None = None
) -> None:
    """Write a table to a file, or to standard output; as JSON, to standard output in any case."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(out) if write is not None else write_file(out, as_csv(table))
        words.say(f"wrote {out}: {plural(table.height, 'row')}")
    document = {"rows": table.height, "notes": words.notes, "columns": table.to_dict(as_series=False)}
    if words.give(document) or out is not None:
        return
    text = as_csv(table)
    click.echo(printable(text.decode()) if sys.stdout.isatty() else text, nl=False)


# -------------------------------------------------------------------------------------------------- rows for a model


def rows_for_model(
    words: Words, run: Path, file: Path, silo_name: str | None, reading: Reading
) -> tuple[FMTC, list[tables.Silo]]:
    """The model of a run, and the silos of a file of new rows."""
    from ..loading import load_run

    model = load_run(run)
    silos = silos_of(model, [file], silo_name, reading)
    known, named = hasattr(model, "feature_names_in_"), silos[0].feature_names is not None
    if named != known:
        words.note(f"{'the model' if named else file.name} has no column names; columns are matched by their order")
    if known:
        del model.feature_names_in_  # names have been compared
    return model, silos


def silos_of(model: FMTC, files: Sequence[Path], silo_name: str | None, reading: Reading) -> list[tables.Silo]:
    """The rows of files, each silo under the name that it has in the model: that of the flag, a column or a file."""
    divided = reading.silo_column is not None
    if silo_name is not None and divided:
        raise click.UsageError("give --silo for all rows or --silo-column for each, not both")
    found: list[tables.Silo] = []
    for file in files:
        own = None if divided else one_silo(model, silo_name, file)
        silos = read_known([file], reading, KnownColumns.of(model))
        found += [replace(silo, name=own or silo.name) for silo in silos]
    if unknown := [silo.name for silo in found if silo.name not in model.silos_]:
        raise DataError(
            f"--silo-column: {files[0]} has rows of {listed(unknown)}, and the model is of silos {listed(model.silos_)}"
        )
    return found


def pooled(silos: Sequence[tables.Silo], keep_last: int | None = None) -> list[tables.Silo]:
    """The rows of each silo in one, or the last of them."""
    together: dict[str, tables.Silo] = {}
    for silo in silos:
        together[silo.name] = _after(together[silo.name], silo) if silo.name in together else silo
    return [silo.take(range(silo.X.shape[0])[-(keep_last or 0) :]) for silo in together.values()]


def _after(before: tables.Silo, silo: tables.Silo) -> tables.Silo:
    """The rows of two files of one silo, one after the other."""
    import scipy.sparse as sp

    parts = [before.X, silo.X]
    is_sparse = any(map(sp.issparse, parts))
    X = sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts])) if is_sparse else np.vstack(parts)
    ids = None if before.ids is None or silo.ids is None else [*before.ids, *silo.ids]
    labels = None if before.labels is None or silo.labels is None else [*before.labels, *silo.labels]
    return replace(before, X=X, rows=np.arange(X.shape[0]), ids=ids, labels=labels)


def text_recipe(model: FMTC) -> tables.TextRecipe | None:
    """How a model makes rows of texts; None where it does not."""
    return getattr(model, "text_recipe_", None)


def read_known(
    files: Sequence[Path], reading: Reading, known: KnownColumns, whose: str = "the model"
) -> list[tables.Silo]:
    """Rows of files, of columns that are known; `whose` says to whom, for messages."""
    if known.text is None and reading.text_column is not None:
        raise click.UsageError(f"{whose} is of {plural(known.number, 'column')} of numbers, not of texts")
    silos = tables.read_silos(files, reading.for_model(known.schema, known.text))
    width = silos[0].X.shape[1]
    if width != known.number:
        raise DataError(f"{files[0]} has {width} columns of numbers, {whose} has {known.number}")
    return silos


def word_lookup(files: Sequence[Path], reading: Reading) -> Callable[[Sequence[int]], Mapping[int, str]] | None:
    """What finds the words of some columns, in the texts that they were made of; None where rows are no texts."""
    if reading.recipe is None:
        return None
    return lambda columns: tables.column_words(
        tables.read_texts(files, reading), columns, reading.salt, reading.n_buckets
    )


def one_silo(model: FMTC, silo_name: str | None, file: Path | None = None) -> str:
    """The silo that is meant: the one that is named, the only one, or the one that a file is called after."""
    if silo_name is None and len(model.silos_) == 1:
        return model.silos_[0]
    if silo_name is None and file is not None and tables.formats.stem_of(file) in model.silos_:
        return tables.formats.stem_of(file)
    if silo_name is None or silo_name not in model.silos_:
        wanted = "give --silo" if silo_name is None else f"it has no {silo_name!r}"
        raise click.UsageError(f"the model is of silos {', '.join(map(repr, model.silos_))}; {wanted}")
    return silo_name


# --------------------------------------------------------------------------------------------------------- export


@main_group.command(short_help="Write one silo's model as an ONNX file.")
@click.argument("run", type=PATH)
@flags.silo
@flags.option("--onnx", type=PATH, required=True, help="File to write.")
@flags.switch("--float64", help="Double precision; otherwise single.")
@flags.switch("--force", help="Replace the file.")
def export(run: Path, silo_name: str | None, onnx: Path, float64: bool, force: bool, words: Words) -> None:
    """Write one silo's model as an ONNX file: from X (rows x features) to label and probability.

    RUN is the --out folder of `fmtc fit`, or a model folder.

    Examples:
      fmtc export run --silo north --onnx north.onnx
      fmtc export run --silo north --onnx north.onnx --float64 --force
    """
    from ..artifacts.onnx import export_onnx
    from ..loading import load

    onnx = free_path(onnx, force)
    model = load(runs.model_folder(run))
    silo_name = one_silo(model, silo_name)
    onnx.parent.mkdir(parents=True, exist_ok=True)
    dtype = np.dtype(np.float64 if float64 else np.float32)
    export_onnx(model, silo_name, onnx, dtype=dtype.type)
    size = onnx.stat().st_size
    words.say(f"wrote {onnx}: silo {silo_name!r}, {plural(model.n_features_in_, 'feature')}, {decimal(size)}")
    words.give({"onnx": str(onnx), "silo": silo_name, "bytes": size, "dtype": dtype.name})


# ---------------------------------------------------------------------------------------------------------- drift

ALARM = 7  # exit code


@main_group.command("drift", short_help="Test whether new rows still are what a model was made for.")
@click.argument("given", metavar="RUN FILE", nargs=-1, required=True)
@flags.silo
@flags.option("--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
        help="Share of false alarms that you accept.")  # fmt: skip
@flags.switch("--combine", help="Combine the p-values of several silos instead: numbers, or files of --json.")
@flags.reading("silo_column", *ROWS, "obsm")
def drift(
    given: tuple[str, ...], silo_name: str | None, level: float, combine: bool, reading: Reading, words: Words
) -> None:
    """Test whether new rows still are what a silo's model was made for; exit code 7 is an alarm.

    RUN is the --out folder of `fmtc fit --calibrate`, or a model folder; FILE a batch of new rows, read as `fmtc
    predict` reads it. The test asks whether rows fit the model less well than the silo's own rows fitted models that
    had not seen them. Nothing leaves the silo. With --combine, silos that agreed to tell one p-value each get one
    verdict: a change that reaches many shows there first.

    Examples:
      fmtc drift run new.csv --silo north
      fmtc drift run all.parquet --silo-column site
      fmtc drift run new.csv --silo north --json > north.json
      fmtc drift --combine north.json south.json 0.21          (one p-value of each silo)
    """
    from ..confidence import Drift, combined, together

    if combine:
        p, verdict = combined([_p_value(text) for text in given], level)
        found = Drift((), p, verdict)
        said = f"{len(given)} silos together: {verdict} (p = {p:.2g})"
    else:
        if len(given) != 2:
            raise click.UsageError("give the folder of a run and a file of new rows; or --combine and p-values")
        with words.warnings_as_notes():
            model, silos = rows_for_model(words, Path(given[0]), Path(given[1]), silo_name, reading)
            each = [model.drift(silo.X, silos=silo.name, level=level) for silo in silos]
        found = together([result.silos[0] for result in each], level)
        said = str(found)
    if not words.give({**found.to_dict(), "level": level, "notes": words.notes}):
        click.echo(said)
    if found.alarm:
        raise click.exceptions.Exit(ALARM)


def _p_value(text: str) -> float:
    """A number, or that of a file of `fmtc drift --json`."""
    try:
        return float(text)
    except ValueError:
        pass
    if not Path(text).is_file():
        raise click.UsageError(f"{text!r} is neither a p-value nor a file of `fmtc drift --json`")
    return float(read_json(Path(text), {"p_value": float})["p_value"])
