"""Commands of a federation, in this process or in their own, and tables to give them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import polars as pl
from click.testing import CliRunner

from fmtc.cli import main_group

NAMES = ("north", "south", "west")
SETTINGS = ("-k", "4", "--max-iter", "5", "--tol", "0", "--set", "n_neighbors=15", "--random-state", "3")


def write_tables(folder, rows, texts=False):
    rng = np.random.default_rng(1)
    vocabulary = [f"{stem}{i}" for stem in ("goal", "vote", "cell", "song") for i in range(12)]
    names = NAMES[: len(rows)]
    for name, X in zip(names, rows.values(), strict=True):
        frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(X.shape[1])})
        if texts:
            topic = rng.integers(4, size=len(X))
            words = [
                " ".join(vocabulary[12 * t + w] if rng.random() < 0.8 else vocabulary[rng.integers(48)] for w in row)
                for t, row in zip(topic, rng.integers(12, size=(len(X), 15)), strict=True)
            ]
            frame = pl.DataFrame({"text": words})
        frame.with_columns(patient=pl.Series([f"{name}-{i}" for i in range(len(X))])).write_csv(folder / f"{name}.csv")
    return [str(folder / f"{name}.csv") for name in names]


def add_holes(file, rng=None):
    """A tenth of the cells of a table goes."""
    rng = np.random.default_rng(5) if rng is None else rng
    frame = pl.read_csv(file)
    for name in [name for name in frame.columns if name != "patient"]:
        cells = [None if rng.random() < 0.1 else cell for cell in frame[name]]
        frame = frame.with_columns(pl.Series(name, cells, dtype=frame.schema[name]))
    frame.write_csv(file)


def add_holes_and_categories(files):
    """A column of words comes, and a tenth of the cells goes."""
    rng = np.random.default_rng(5)
    for file in files:
        frame = pl.read_csv(file)
        words = np.where(frame["x0"] > 0, "surgery", "medicine").tolist()
        frame.with_columns(pl.Series("ward", words)).write_csv(file)
        add_holes(file, rng)


def in_process(*words):
    plain = {"NO_COLOR": "1", "TERM": "dumb", "FMTC_DEBUG": None, "COLUMNS": "200"}
    return CliRunner().invoke(main_group, [str(word) for word in words], prog_name="fmtc", env=plain)


def done_with(*words):
    """What a command that has to work printed as JSON."""
    done = in_process(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def set_up(plan, kits, names=NAMES):
    """A federation, as organiser and silos make it; the roster code that they compare. Files travel in `kits`."""
    done_with("federation", "init", plan, "--out", kits)
    codes = [done_with("federation", "request", "--name", name, "--kit", kits / name)["code"] for name in names]
    requests = [kits / f"{name}.request" for name in names]
    compared = [word for code in codes for word in ("--accept-key", code)]
    told = done_with("federation", "admit", *requests, "--authority", kits / "authority", "--out", kits, *compared)
    for name in names:
        done_with("federation", "accept", kits / f"{name}.admitted", "--kit", kits / name)
    return told["code"]


def start(*words, **options):
    """A command in a process of its own."""
    environment = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", "fmtc.cli", *map(str, words)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def finish(process, patience=120):
    out, err = process.communicate(timeout=patience)
    return process.returncode, out, err


def wait_until(holds, patience=90.0, every=0.1):
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)


def history(run):
    """Its lines, but for the time they took."""
    lines = json.loads((run / "history.json").read_text())
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
