"""Imports point downwards: which room of the package may know of which."""

import ast
from pathlib import Path

import pytest

import fmtc

# From top to bottom. A room may import the rooms below it; those beside it only where BESIDE says so.
LAYERS = (
    ("cli",),
    ("demo", "plot", "report"),
    ("advice", "estimator", "later", "loading", "processes"),
    ("runtime",),
    ("privacy",),
    ("protocol", "refit"),
    ("describe",),
    ("confidence",),
    ("models",),
    ("kernels", "mixture"),
    ("linalg",),
)
BESIDE = {
    ("demo", "plot"),
    ("estimator", "advice"),
    ("estimator", "report"),  # what a notebook shows: imported when it is called
    ("estimator", "plot"),  # FMTC.plot: imported when it is called
    ("estimator", "later"),  # what a model does after its run: imported when it is called
    ("estimator", "loading"),  # what a folder keeps of a model: imported when it is called
    ("later", "estimator"),
    ("later", "loading"),
    ("processes", "advice"),
    ("processes", "estimator"),
    ("loading", "estimator"),
    ("protocol", "refit"),  # what a silo does at home at the end of a run
    ("refit", "protocol"),  # by the steps of a round
    ("protocol", "privacy"),  # rules that a phase declares; accounting: the noise a sum needs, and what it costs
}
# Side rooms know nothing of runtime: each with all that it may import.
SIDE_ROOMS = {
    "errors": set(),
    "wording": set(),
    "schema": {"errors", "wording"},
    "settings": {"errors", "kernels"},
    "metrics": {"errors"},
    "rows": {"errors", "kernels", "schema", "tables", "wording"},
    "tables": {"errors", "kernels", "schema", "wording"},
    "artifacts": {
        "describe",
        "errors",
        "kernels",
        "linalg",
        "metrics",
        "models",
        "schema",
        "settings",
        "tables",
    },
}
# Rooms of formulas and plumbing get arrays and give arrays: of the side rooms they may import these only.
PURE = {"kernels": {"errors"}, "mixture": {"errors"}, "linalg": {"errors"}}

ROOT = Path(fmtc.__file__).parent
MODULES = {
    ".".join(["fmtc", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imports_of(module, *, anywhere=True, text=None):
    """Modules of the package that a module imports, also inside functions; not those for type checkers only."""
    source = MODULES[module].read_text() if text is None else text
    package = module if module in MODULES and MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    found = set()

    def look(nodes):
        for node in nodes:
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                look(node.orelse)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names if alias.name.partition(".")[0] == "fmtc")
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                origin = ".".join([*above, *([node.module] if node.module else [])])
                if origin.partition(".")[0] == "fmtc":
                    inner = {f"{origin}.{alias.name}" for alias in node.names}
                    found.update({name if name in MODULES else origin for name in inner})
            elif anywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                look(ast.iter_child_nodes(node))

    look(ast.parse(source).body)
    return found - {module}


def room_of(module):
    """The room of a module: what comes after ``fmtc``; empty for the package itself, which imports nothing early."""
    return "cli" if module.endswith(".__main__") else module.partition(".")[2].partition(".")[0]


LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def allowed(importer, imported):
    """Whether one room may import another."""
    if imported in ("", importer) or importer == "":
        return True
    if importer in SIDE_ROOMS:
        return imported in SIDE_ROOMS[importer]
    if imported in SIDE_ROOMS:
        return imported in PURE.get(importer, SIDE_ROOMS)
    return LEVEL[imported] > LEVEL[importer] or (importer, imported) in BESIDE


def violations():
    """Pairs of a module and a room that it must not import."""
    return {
        (module, room_of(imported))
        for module in MODULES
        for imported in imports_of(module)
        if not allowed(room_of(module), room_of(imported))
    }


def test_every_room_has_its_place():
    rooms = {room_of(module) for module in MODULES} - {""}
    assert rooms <= set(LEVEL) | set(SIDE_ROOMS)
    assert set(LEVEL).isdisjoint(SIDE_ROOMS)


def test_imports_point_downwards():
    assert violations() == set()


def test_the_laboratory_is_never_imported():
    assert [module for module, path in MODULES.items() if "fmtc_bench" in path.read_text()] == []


def test_no_module_imports_itself_through_others():
    """Not while modules are loaded; an import inside a function may close a circle inside one room."""
    graph = {module: imports_of(module, anywhere=False) & set(MODULES) for module in MODULES}
    done, circles = set(), []

    def visit(module, path):
        if module in path:
            circles.append([*path[path.index(module) :], module])
        elif module not in done:
            for imported in sorted(graph[module]):
                visit(imported, [*path, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    assert circles == []


@pytest.mark.parametrize(
    ("module", "text", "wrong"),
    [
        ("fmtc.kernels.graph", "from ..runtime import driver", True),
        ("fmtc.kernels.graph", "from ..runtime.driver import run", True),
        ("fmtc.kernels.graph", "import fmtc.runtime.driver", True),
        ("fmtc.kernels.graph", "def f():\n    from ..estimator import FMTC", True),
        (
            "fmtc.kernels.graph",
            "class A:\n    def f(self):\n        if self:\n            from .. import estimator",
            True,
        ),
        ("fmtc.kernels.graph", "try:\n    pass\nexcept ValueError:\n    from ..tables import silos", True),
        ("fmtc.tables", "from ..runtime.local import LocalTransport", True),
        ("fmtc.report.page", "from ..cli.words import Words", True),
        ("fmtc.artifacts.runs", "from ..report.page import PAGE", True),
        ("fmtc.runtime.driver", "from ..estimator import FMTC", True),
        ("fmtc.kernels.graph", "from ..linalg.neighbors import nearest\nfrom .scaling import Scaling", False),
        ("fmtc.kernels.graph", "if TYPE_CHECKING:\n    from ..estimator import FMTC", False),
        ("fmtc.artifacts.runs", "from .. import __version__\nfrom ..errors import FileError", False),
        ("fmtc.tables", "from . import formats\nimport numpy", False),
    ],
)
def test_the_check_finds_what_it_should(module, text, wrong):
    found = imports_of(module, text=text)
    assert any(not allowed(room_of(module), room_of(imported)) for imported in found) == wrong
