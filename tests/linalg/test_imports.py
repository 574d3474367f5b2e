"""What the formulas and their plumbing import: little before it is needed, and never upwards."""

import re
import subprocess
import sys
from pathlib import Path

import fmtc

PACKAGE = Path(fmtc.__file__).parent
MODULES = [
    ".".join(("fmtc", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for room in ("kernels", "linalg")
    for file in sorted((PACKAGE / room).rglob("*.py"))
]
LATER = {"sklearn", "faiss", "torch", "joblib", "threadpoolctl", "scipy.linalg", "scipy.optimize", "scipy.spatial"}
IMPORT = """
import sys, types
package = types.ModuleType("fmtc")  # without what the package itself imports
package.__path__ = [sys.argv[1]]
sys.modules["fmtc"] = package
for name in sys.argv[2:]:
    before = set(sys.modules)
    __import__(name)
    print(name, *sorted(set(sys.modules) - before))
"""


def imported(*names):
    """New modules that each of these modules loads, one after the other."""
    command = [sys.executable, "-c", IMPORT, str(PACKAGE), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: set(new) for name, *new in map(str.split, done.stdout.splitlines())}


def test_heavy_libraries_are_imported_when_they_are_needed():
    for name, new in imported(*MODULES).items():
        assert {each for each in new for heavy in LATER if f"{each}.".startswith(f"{heavy}.")} == set(), name


def test_the_registry_of_couplings_needs_numpy_alone():
    """Settings and command line import it."""
    new = imported("numpy", "fmtc.kernels.couplings")["fmtc.kernels.couplings"]
    assert not any(name.startswith("scipy") for name in new)


def test_the_plumbing_does_not_import_the_formulas():
    for file in (PACKAGE / "linalg").glob("*.py"):
        source = file.read_text(encoding="utf-8")
        assert not re.findall(r"^\s*(?:from \.\.|from fmtc|import fmtc).*$", source, re.MULTILINE), file.name
