"""How large the house may be: a ceiling of code lines for each room, and for files, functions and parameters.

Code lines are lines without blank lines, comments and docstrings. Whoever needs more room takes it from somewhere, or
raises a number here and says why in the commit.
"""

import ast
import inspect
import io
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

import click
import pytest

import fmtc
from fmtc import FMTC
from fmtc.cli.program import main_group

ROOT = Path(fmtc.__file__).parent
CEILINGS = {  # of code lines, as measured when they were set; "top" is the files beside the rooms
    "protocol": 4485,
    "runtime": 3540,
    "cli": 3110,
    "top": 2295,
    "tables": 2220,
    "kernels": 1420,
    "artifacts": 1275,
    "privacy": 1235,
    "describe": 995,
    "models": 950,
    "report": 895,
    "mixture": 785,
    "linalg": 745,
    "later": 250,
    "plot": 180,
}
LONGEST_FILE = 500
MOST_PARAMETERS = 8
MOST_BRANCHES = 15
SURFACE = {"names": 10, "parameters": 13, "methods": 15, "commands": 26}  # what users have to know
BESIDES = {"fit_transform", "set_params"}  # methods that scikit-learn asks for

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
BRANCH = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.BoolOp, ast.comprehension, ast.Assert, ast.match_case,
)  # fmt: skip
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text):
    """Lines that hold code."""
    documented = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTION)) and ast.get_docstring(node, clean=False) is not None:
            documented |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def branches(function):
    """Cyclomatic complexity."""
    return 1 + sum(
        len(node.values) - 1 if isinstance(node, ast.BoolOp) else 1
        for node in ast.walk(function)
        if isinstance(node, BRANCH)
    )


@cache
def functions():
    trees = {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    return [(f"{path}: {n.name}", n) for path, tree in trees.items() for n in ast.walk(tree) if isinstance(n, FUNCTION)]


@cache
def files():
    return {path.relative_to(ROOT): code_lines(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


def test_lines_without_code_do_not_count():
    text = '"""Said."""\n\n# noted\nx = 1\n\n\ndef f():\n    """Said."""\n    return (\n        2\n    )\n'
    assert code_lines(text) == 5


def test_every_room_has_a_ceiling():
    rooms = {path.parts[0] if len(path.parts) > 1 else "top" for path in files()}
    assert rooms == set(CEILINGS)


@pytest.mark.parametrize("room", CEILINGS)
def test_a_room_is_below_its_ceiling(room):
    sizes = Counter()
    for path, size in files().items():
        sizes[path.parts[0] if len(path.parts) > 1 else "top"] += size
    assert sizes[room] <= CEILINGS[room]


def test_the_map_of_contributing_shows_every_room():
    """And, at the top, every file."""
    drawn = (
        (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("```text")[2].partition("```")[0]
    )
    there = {f"{path.parts[0]}/" if len(path.parts) > 1 else path.name for path in files()} - {"__init__.py"}
    assert [name for name in sorted(there) if f" {name} " not in drawn] == []


def test_files_are_short():
    assert [str(path) for path, size in files().items() if size > LONGEST_FILE] == []


def test_functions_are_simple():
    assert [name for name, node in functions() if branches(node) > MOST_BRANCHES] == []


def test_functions_have_few_parameters():
    def width(node):
        return len(node.args.args + node.args.kwonlyargs + node.args.posonlyargs)

    assert [name for name, node in functions() if width(node) > MOST_PARAMETERS] == ["estimator.py: __init__"]


def test_the_surface_is_small():
    methods = {name for name, value in vars(FMTC).items() if callable(value) and not name.startswith("_")}
    found = {
        "names": len(fmtc.__all__),
        "parameters": len(inspect.signature(FMTC).parameters),
        "methods": len(methods - BESIDES),
        "commands": len(commands(main_group)),
    }
    assert {name: size for name, size in found.items() if size > SURFACE[name]} == {}


def commands(group):
    """All commands below a group, of its groups too."""
    context = click.Context(group)
    each = [group.get_command(context, name) for name in group.list_commands(context)]
    return [one for some in each for one in (commands(some) if isinstance(some, click.Group) else [some])]
