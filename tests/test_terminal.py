"""What a terminal gets: names of others without orders, one word at an interrupt, completion without heavy imports."""

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from fmtc.cli import main_group
from fmtc.cli.terminal import printable

ESC = "\x1b"
TERMINAL = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TERM": "xterm-256color", "NO_COLOR": None, "COLUMNS": "100"}


def fmtc_run(*words, **env):
    """As on a terminal: click removes colours elsewhere."""
    words = [str(word) for word in words]
    return CliRunner().invoke(main_group, words, prog_name="fmtc", env=TERMINAL | env, color=True)


# ------------------------------------------------------------------------------------------------- text of others


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("north", "north"),
        ("Größe – 北\n\t", "Größe – 北\n\t"),
        (f"{ESC}[31mred{ESC}[0m", "[31mred[0m"),
        (f"{ESC}]0;title\x07", "]0;title"),
        ("\x9b31mred\r\b\x7f", "31mred"),
        ("abc\u202ecba", "abccba"),
    ],
)
def test_text_loses_what_a_terminal_obeys(text, shown):
    assert printable(text) == shown


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A run with silos whose names would colour the terminal and change its title."""
    home = tmp_path_factory.mktemp("odd")
    X = np.random.default_rng(0).normal(size=(60, 3))
    names = np.repeat([f"{ESC}[35mnorth", f"{ESC}]0;title\x07"], 30)
    pl.DataFrame(X, schema=["a", "b", "c"]).with_columns(pl.Series("site", names)).write_csv(home / "all.csv")
    flags = ("--silo-column", "site", "-k", 2, "--max-iter", 2, "--out", home / "run")
    done = fmtc_run("fit", home / "all.csv", *flags)
    assert done.exit_code == 0, done.output
    return home, done


def test_names_of_silos_cannot_give_orders(odd):
    home, done = odd
    inspected = fmtc_run("explain", "--show", "model", home / "run")
    for said in (
        done.output,
        inspected.output,
        fmtc_run("check", home / "all.csv", "--silo-column", "site").output,
    ):
        assert ESC in said  # colours of our own
        assert "[35mnorth" in said and f"{ESC}[35mnorth" not in said
        assert f"{ESC}]0" not in said and "\x07" not in said
    assert list(json.loads(fmtc_run("explain", "--show", "model", home / "run", "--json").stdout)["silos"]) == [
        f"{ESC}[35mnorth", f"{ESC}]0;title\x07",
    ]  # fmt: skip


def test_errors_and_files_cannot_give_orders(odd, tmp_path):
    home, _ = odd
    there = tmp_path / f"{ESC}[35mhere"
    there.mkdir()
    for words in (
        ("fit", tmp_path / f"{ESC}[35mx.csv", "-k", 2, "--out", tmp_path / "out"),
        ("explain", "--show", "model", tmp_path / f"{ESC}[35mx"),
        ("fit", home / "all.csv", "-k", 2, "--out", there),
        ("fit", home / "all.csv", "-k", 2, "--config", tmp_path / f"{ESC}[35mx", "--out", tmp_path / "out"),
    ):
        done = fmtc_run(*words)
        assert done.exit_code in (2, 3)
        assert f"{ESC}[35m" not in done.output
    model = json.loads((home / "run" / "model" / "model.json").read_text())
    path = tmp_path / "model"
    path.mkdir()
    for file in (home / "run" / "model").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    (path / "model.json").write_text(json.dumps(model | {"stopped_because": f"{ESC}[35mdone"}))
    done = fmtc_run("explain", "--show", "model", path)
    assert "[35mdone" in done.output and f"{ESC}[35mdone" not in done.output


# ------------------------------------------------------------------------------------------------------ interrupts

INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop(1)

class Press:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Press())
from fmtc.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("click", ["--version"]),
        ("rich.console", ["outbox", "show", "."]),
        ("numpy", ["fit", "a.csv", "-k", "2", "--out", "run"]),
        ("fmtc.cli.predict", ["--help"]),  # while the command line is being understood
        ("fmtc.estimator", ["demo", "--out", "demo"]),
    ],
)
def test_an_interrupt_during_an_import_is_one_word(module, words, tmp_path):
    program = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run([*program, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_a_class_is_made_is_one_word(tmp_path):
    """Python 3.11 turns it into a RuntimeError."""
    pressed = """
class Press:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            type("Made", (), {"key": Press()})
import sys
sys.meta_path.insert(0, Finder())
from fmtc.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", pressed], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interrupted_demo_has_nothing_to_resume(tmp_path, monkeypatch):
    def interrupted(self, X, *, checkpoint, **others):
        checkpoint.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("fmtc.estimator.FMTC.fit", interrupted)
    done = fmtc_run("demo", "--out", tmp_path / "demo")
    assert done.exit_code == 130
    assert "interrupted" in done.stderr and "--resume" not in done.stderr
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------------ completion


@pytest.mark.parametrize(
    ("line", "offered", "spared"),
    [
        (["fmtc", "do"], {"doctor"}, set()),
        (["fmtc", "outbox", "b"], {"budget"}, set()),
        (["fmtc", "fit", "--sca"], {"--scale"}, set()),
    ],
)
def test_completion_is_quick(line, offered, spared):
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    code += "from fmtc.cli import main; main()"
    env = os.environ | {
        "_FMTC_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert offered <= {answer.partition(",")[2] for answer in done.stdout.splitlines()}
    heavy = {"joblib", "matplotlib", "nvflare", "onnx", "pandas", "polars", "scipy", "sklearn", "torch"} | spared
    assert heavy.isdisjoint(name.partition(".")[0] for name in done.stderr.split())
