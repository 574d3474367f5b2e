"""The package as a whole: what importing it costs, and whether every public name explains itself."""

import importlib.metadata
import inspect
import re
import subprocess
import sys

import pytest

import fmtc

# scikit-learn itself may load what lies around (pandas, rich): only what fmtc adds to it counts
IMPORT = """
import sys
import joblib, safetensors.numpy, scipy.optimize, scipy.sparse.linalg, sklearn.cluster, sklearn.metrics, threadpoolctl
before = set(sys.modules)
import fmtc
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""
HEAVY = {"nvflare", "torch", "matplotlib", "onnx", "onnxruntime", "click", "rich", "polars", "pandas", "flwr"}

PUBLIC = {name: getattr(fmtc, name, None) for name in fmtc.__all__}
DOCUMENTED = PUBLIC | {
    f"FMTC.{name}": member
    for name, member in vars(fmtc.FMTC).items()
    if not name.startswith("_") and (callable(member) or isinstance(member, property | classmethod))
}


def test_importing_fmtc_loads_nothing_heavy():
    added = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
    assert "fmtc" in added
    assert HEAVY.isdisjoint(added)


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z]+\d+)?", fmtc.__version__)
    assert importlib.metadata.version("fmtc") == fmtc.__version__


def test_all_is_complete():
    here = {n for n, v in vars(fmtc).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert here == set(fmtc.__all__)
    namespace = {}
    exec("from fmtc import *", namespace)
    assert set(fmtc.__all__) <= namespace.keys()


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
