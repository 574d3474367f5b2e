"""The package as a whole: what importing it costs, and whether every public name explains itself."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fmtc

# Loaded when they are needed and not before; numpy and click are what remains.
HEAVY = {
    "joblib", "matplotlib", "nvflare", "onnx", "onnxruntime", "pandas", "polars", "rich", "scipy", "sklearn", "torch",
}  # fmt: skip
LIGHT = {
    "import fmtc": "import fmtc",
    "fmtc --version": "import sys; sys.argv = ['fmtc', '--version']; from fmtc.cli import main; main()",
}
SIDE_ROOMS = ("artifacts.files", "artifacts.models", "artifacts.runs", "errors", "tables", "tables.text")

PUBLIC = {name: getattr(fmtc, name, None) for name in fmtc.__all__}
DOCUMENTED = PUBLIC | {
    f"FMTC.{name}": member
    for name, member in vars(fmtc.FMTC).items()
    if not name.startswith("_") and (callable(member) or isinstance(member, property | classmethod))
}


def modules_of(code):
    """Names of the modules that a program has loaded when it ends."""
    end = "import atexit, sys; atexit.register(lambda: print(*sys.modules, sep='\\n'))\n"
    return subprocess.run([sys.executable, "-c", end + code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("name", LIGHT)
def test_starting_loads_nothing_heavy(name):
    loaded = modules_of(LIGHT[name])
    assert "fmtc" in loaded
    assert HEAVY.isdisjoint(module.partition(".")[0] for module in loaded)
    assert "numpy" not in loaded


@pytest.mark.parametrize("words", [[], ["fit"], ["join"], ["outbox", "show"]], ids=" ".join)
def test_help_pages_load_nothing_heavy(words):
    """Flags and their defaults come from the settings, which need no estimator."""
    loaded = modules_of(f"import sys; sys.argv = ['fmtc', *{words}, '--help']; from fmtc.cli import main; main()")
    assert "fmtc.cli.program" in loaded
    assert (HEAVY - {"rich"}).isdisjoint(module.partition(".")[0] for module in loaded)


@pytest.mark.parametrize("room", SIDE_ROOMS)
def test_side_rooms_are_cheap_to_import(room):
    """What a command imports before it knows what it is asked for."""
    loaded = modules_of(f"import fmtc.{room}")
    assert f"fmtc.{room}" in loaded
    assert HEAVY.isdisjoint(module.partition(".")[0] for module in loaded)


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z]+\d+)?", fmtc.__version__)
    assert importlib.metadata.version("fmtc") == fmtc.__version__


def test_public_names_are_imported_when_they_are_used():
    assert set(fmtc.__all__) <= set(dir(fmtc))
    namespace = {}
    exec("from fmtc import *", namespace)
    assert set(fmtc.__all__) <= namespace.keys()
    with pytest.raises(AttributeError, match=r"'fmtc' .*'fmtcc'"):
        fmtc.fmtcc  # noqa: B018
    assert fmtc.tables.read_silos is importlib.import_module("fmtc.tables").read_silos  # a module is found as well
    code = "import fmtc; print(fmtc.load.__module__, fmtc.tables.TextRecipe.__module__)"
    assert {"fmtc.loading", "fmtc.tables.text"} <= set(modules_of(code))


@pytest.mark.parametrize("package", ["fmtc", "fmtc.tables"])
def test_type_checkers_and_users_see_the_same_names(package):
    """The imports for type checkers are those that happen."""
    module = importlib.import_module(package)
    (block,) = [
        node for node in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]  # fmt: skip
    declared = {alias.name: f"{package}.{node.module}" for node in block.body for alias in node.names}
    assert set(declared) == set(module.__all__)
    for name, where in declared.items():
        assert getattr(module, name) is getattr(importlib.import_module(where), name)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_says_what_it_is(name):
    thing = DOCUMENTED[name]
    thing = thing.fget if isinstance(thing, property) else thing.__func__ if isinstance(thing, classmethod) else thing
    doc = thing.__doc__ or ""
    assert len(doc.splitlines()[0]) > 10
    assert not doc.startswith(f"{name.rpartition('.')[2]}(")  # the signature a dataclass writes by itself


@pytest.mark.parametrize(
    "name", [n for n, v in PUBLIC.items() if not (isinstance(v, type) and issubclass(v, Exception))]
)
def test_every_public_name_has_an_example(name):
    assert ">>>" in (PUBLIC[name].__doc__ or "")
