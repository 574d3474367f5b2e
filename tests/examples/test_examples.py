"""Every example runs as a reader would run it: the gallery's scripts, and the code on the pages from top to bottom."""

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import fmtc
from fmtc.cli import main_group
from fmtc.cli.program import leaves

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = sorted((DOCS / "examples").glob("**/*.py"))
COMMANDS = ("cli", "command-line", "README")  # pages whose console blocks are run
PAGES = sorted(
    page
    for page in [*DOCS.glob("**/*.md"), DOCS.parent / "README.md"]
    if not {"_build", "gallery"} & set(page.parts) and (page.stem in COMMANDS or "```py" in page.read_text("utf-8"))
)
QUICK = ("plot_predict",)  # and plot_cells below; `make docs` runs all of them
LOOPS = {"plot_hospitals": "for held_out in range(5):"}  # 25 fits, where ten run the same lines
FLARE_WARNS = "ignore:ssl_context is deprecated:DeprecationWarning"  # how nvflare 2.9 calls aiohttp


def test_there_are_examples():
    names = {"hospitals", "join_later", "missing_classes", "cells", "predict", "two_silos", "as_published", "lost_silo"}
    assert {script.name for script in SCRIPTS} >= {f"plot_{name}.py" for name in names}
    assert {page.name for page in PAGES} >= {"index.md", "first-steps.md", "command-line.md", "cli.md", "README.md"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, id=script.stem, marks=[] if script.stem in QUICK else pytest.mark.long)
        for script in SCRIPTS
        if script.stem != "plot_lost_silo"  # takes a minute, and `make docs` runs it
    ],
)
def test_script_runs(script, tmp_path):
    """In a process of its own, a warning is an error, nothing is left beside the script."""
    before = sorted(script.parent.iterdir())
    if script.stem in LOOPS:
        text, line = script.read_text(encoding="utf-8"), LOOPS[script.stem]
        assert text.count(line) == 1
        script = tmp_path / script.name
        script.write_text(text.replace(line, line.replace("range(5)", "range(2)")), encoding="utf-8")
    assert run_script(script, tmp_path).strip()
    assert sorted((DOCS / "examples").iterdir()) == before


def run_script(script, folder, **variables):
    """What a script prints; run in a folder of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", FLARE_WARNS, script],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_on_cells_says_that_it_simulates_them(tmp_path):
    """Where the data are not at hand, and with the gain that its text tells of."""
    cells = DOCS / "examples" / "plot_cells.py"
    printed = run_script(cells, tmp_path, FMTC_DATA=str(tmp_path / "none"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert printed.startswith("simulated counts")
    lines = re.findall(r"^(k-means|FMTC)[^\d\n]* ([\d.]+) +[\d.]+$", printed, re.MULTILINE)
    acc = {name: float(value) for name, value in lines}
    assert acc["FMTC"] > acc["k-means"] + 5


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_becomes_a_notebook(script, tmp_path):
    """What a reader downloads: text and code in turn, and all of the code."""
    from sphinx_gallery.notebook import python_to_jupyter_cli

    shutil.copy(script, tmp_path)
    python_to_jupyter_cli([str(tmp_path / script.name)])
    cells = json.loads((tmp_path / script.name).with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    code = "".join(line for cell in cells if cell["cell_type"] == "code" for line in [*cell["source"], "\n"])
    compile(code, script.name, "exec")
    assert {cell["cell_type"] for cell in cells} == {"markdown", "code"}
    assert [line for line in code.splitlines() if line.startswith("import ")] == [
        line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("import ")
    ]


# Commands for other machines: their flags must exist, and the tables they read. So must those of a federation of
# processes, which tests/federation runs.
ONLY_READ = {
    "README": ("federation init", "join", "coordinate"),
}


def check_command(words):
    """Read a command line as the program would, without running it."""
    known = {called: command for called, command in leaves(main_group) if list(called) == words[: len(called)]}
    ((called, command),) = known.items()
    command.make_context(" ".join(called), words[len(called) :])
    for word in words:
        assert not word.endswith(".csv") or Path(word).exists(), f"no block before makes {word}"


def code_of(request):
    from fmtc.runtime.flare.enrol import Request

    return Request.check(json.loads(Path(request).read_text(encoding="utf-8"))).code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch, capsys):
    """Blocks marked python are run, pycon are doctests; all of a page share their names and their folder.

    On COMMANDS, console blocks hold commands that succeed; toml blocks are the files study.toml and, with silos,
    federation.toml.
    """
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names = {"__name__": page.stem}
    commands = 0
    for block in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        kind, code = block.groups()
        line = text.count("\n", 0, block.start(2))
        if kind == "python":
            exec(compile("\n" * line + code, page, "exec"), names)
        elif kind == "pycon":
            test = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), line)
            outcome = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(test, clear_globs=False)
            assert outcome.attempted and not outcome.failed, capsys.readouterr().out
            names |= test.globs
        elif kind == "toml" and page.stem in COMMANDS:
            Path("federation.toml" if "silos = " in code else "study.toml").write_text(code, encoding="utf-8")
        elif kind == "console" and page.stem in COMMANDS:
            for command in re.findall(r"^\$ fmtc (.*)$", code, re.MULTILINE):
                words = shlex.split(command, comments=True)
                commands += 1
                if "--processes" in words or command.startswith(ONLY_READ.get(page.stem, ())):
                    check_command(words)
                else:
                    if words[:2] == ["federation", "admit"]:  # a person has compared the codes
                        words += [f"--accept-key={code_of(word)}" for word in words if word.endswith(".request")]
                    done = CliRunner().invoke(main_group, words)
                    assert done.exit_code == 0, f"fmtc {command}: {done.output}"
    assert commands or page.stem not in COMMANDS


def test_what_the_readme_predicts_is_in_a_file(tmp_path, monkeypatch):
    """A shell makes the file behind > before the command has failed; --out makes it when all is done."""
    assert "> labels.csv" not in (DOCS.parent / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main_group, ["predict", "run", "new.csv", "--out", "labels.csv"]).exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_the_page_of_the_command_line_lists_all_commands_and_exit_codes():
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = [" ".join(words) for words, _ in leaves(main_group)]
    assert sorted(re.findall(r"^\| `fmtc ([\w -]+)` \|", page, re.MULTILINE)) == sorted(commands)
    codes = re.findall(r"^  (\d+) ", main_group.epilog, re.MULTILINE)
    page = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \|", page.partition("\n## ")[0], re.MULTILINE) == codes


def test_every_public_name_has_a_page():
    listed = re.findall(r"^   ([\w.]+)$", (DOCS / "api" / "index.rst").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(fmtc.__all__) <= set(listed)
    house = Path(fmtc.__file__).parent
    rooms = {file.stem for file in house.glob("[!_]*.py")} | {file.parent.name for file in house.glob("*/__init__.py")}
    assert rooms - {"cli", "demo", "estimator"} <= set(listed)  # modules inside a room are listed by autosummary


def test_the_readme_is_short():
    assert len((DOCS.parent / "README.md").read_text(encoding="utf-8").split()) <= 700
