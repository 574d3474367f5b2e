"""Files that are cut, overwritten or forged: a documented exit code and one sentence, and nothing left half written."""

import copy
import io
import json
import random
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from fmtc.artifacts.files import write_json, write_tensors
from fmtc.cli import main_group
from fmtc.runtime.flare.authority import enrol
from fmtc.runtime.flare.plan import Plan
from fmtc.tables import matrices, read_silos

TRIES = 20  # damaged files of each kind; raise it to look for more
VALUES = (None, [], {}, "x", -1, 1e300, 10**30, 10**400, True, ["x"], [[1]], float("nan"))
REPORT = ("--out", "page.html", "--force")
FIT = ("fit", "-k", "2", "--max-iter", "1", "--set", "n_init=1", "--force", "--out", "out", "-q")


def fmtc(*words: Any) -> Any:
    return CliRunner().invoke(main_group, [str(word) for word in words])


def refused(*words: Any) -> str:
    """The sentence of a command that refuses its data."""
    done = fmtc(*words)
    assert done.exit_code == 3, done.output
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with files of every kind that a command reads."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) + 5 * np.eye(3)[np.arange(60) % 3]
    table = pl.DataFrame(X, schema=["a", "b", "c"])
    table.write_csv(home / "rows.csv")
    table.write_parquet(home / "rows.parquet")
    np.save(home / "rows.npy", X)
    np.savez_compressed(home / "rows.npz", X=X)
    sp.save_npz(home / "sparse.npz", sp.csc_array(np.where(X > 0, X, 0)))
    table.with_columns(pl.Series("site", ["n", "s"] * 30)).write_csv(home / "all.csv")
    done = fmtc("fit", home / "all.csv", "--silo-column", "site", "-k", 3, "--max-iter", 2, "--set",
                "n_init=1", "--report", "--out", home / "run")  # fmt: skip
    assert done.exit_code == 0, done.output

    report = json.loads((home / "run" / "report.json").read_text())
    led = {"kind": "fmtc consensus report", "client_ids": ["n", "s"], "missing": []}
    (home / "led").mkdir()
    write_tensors(home / "led" / "consensus.safetensors", {"consensus": np.zeros((3, 3, 2))}, {"kind": "result"})
    write_json(home / "led" / "history.json", json.loads((home / "run" / "history.json").read_text()))
    kept = ("schema", "versions", "settings", "seconds", "notes", "n_iter", "converged", "stopped_because", "view",
            "sent", "trust")  # fmt: skip
    write_json(home / "led" / "report.json", {name: report[name] for name in kept} | led)

    (home / "federation.toml").write_text('name = "s"\nhost = "localhost"\nport = 8002\nsilos = ["n", "s"]\n')
    enrol(Plan("s", "localhost", 8002, ("n", "s")), home / "given")
    (home / "study.toml").write_text('[inspect]\nrun = "run"\ntop = 3\njson = true\n[fit]\nclient_weight = { a = 1 }\n')
    return home


# ---------------------------------------------------------------------------------------------------- any damage

KINDS: dict[str, list[tuple[Any, ...]]] = {  # a file, and commands that read it
    "run/model/model.json": [
        ("explain", "--show", "model", "run"),
        ("predict", "run", "all.csv", "--silo-column", "site"),
        ("export", "run", "--silo", "n", "--onnx", "n.onnx", "--force"),
    ],
    "run/model/n.safetensors": [("explain", "--show", "model", "run")],
    "run/report.json": [("report", "run", *REPORT)],
    "led/report.json": [("report", "led", *REPORT)],
    "led/history.json": [("report", "led", *REPORT)],
    "led/consensus.safetensors": [("report", "led", *REPORT)],
    "federation.toml": [("federation", "init", "federation.toml", "--out", "kits")],
    "given/n/kit.json": [("join", "--kit", "given/n", "--data", "nowhere.csv", "--out", "ours")],
    "study.toml": [("explain", "--show", "model", "--config", "study.toml")],
    **{f"rows.{kind}": [(*FIT, f"rows.{kind}"), ("check", f"rows.{kind}")] for kind in ("csv", "parquet", "npy")},
    **{name: [(*FIT, name)] for name in ("rows.npz", "sparse.npz")},
}


@pytest.mark.filterwarnings("ignore")  # of values that are odd and no damage
@pytest.mark.parametrize("file", KINDS)
def test_any_damage_ends_in_a_sentence(file, home, monkeypatch):
    monkeypatch.chdir(home)
    try_damage(home, Path(file), KINDS[file], fmtc)


def try_damage(home: Path, path: Path, commands: list[tuple[Any, ...]], run: Callable[..., Any]) -> None:
    """Damage a file in many ways; every command that reads it ends in a sentence, and leaves nothing behind."""
    rng = random.Random(str(path))
    whole = path.read_bytes()
    found = list(damaged(path, rng))
    try:
        for what, content in rng.sample(found, min(TRIES, len(found))):
            path.write_bytes(content)
            for words in commands:
                shutil.rmtree("kits", ignore_errors=True)
                before = sorted(home.rglob("*"))
                done = run(*words)
                assert done.exit_code in (0, 2, 3), f"{what}: {words}: {done.output}"
                assert "internal error" not in done.output, f"{what}: {words}: {done.output}"
                assert done.exit_code == 0 or sorted(home.rglob("*")) == before
    finally:
        path.write_bytes(whole)


def damaged(path: Path, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Names and contents of damaged files: cut, with other bytes, and with other values where they are JSON."""
    whole = path.read_bytes()
    yield "empty", b""
    for _ in range(TRIES):
        end = rng.randrange(len(whole))
        yield f"cut at {end}", whole[:end]
        content = bytearray(whole)
        places = [rng.randrange(rng.choice([len(whole), min(400, len(whole))])) for _ in range(3)]
        for place in places:
            content[place] = rng.randrange(256)
        yield f"bytes {places}", bytes(content)
    if path.suffix in (".json", ".jsonl"):
        first, *others = [whole] if path.suffix == ".json" else whole.splitlines(keepends=True)
        document = json.loads(first)
        for place in places_in(document):
            for value in (*VALUES, "drop"):
                line = json.dumps(replaced(document, place, value)).encode()
                yield f"{place} = {str(value)[:20]}", b"".join([line, b"\n", *others])


def places_in(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value can be replaced; of a list, the first two and the last."""
    yield above
    inside = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in inside if isinstance(document, dict) else sorted({*inside[:2], *inside[-1:]}):
        yield from places_in(document[key], (*above, key))


def replaced(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    other = copy.deepcopy(document)
    part = other
    for step in place[:-1]:
        part = part[step]
    if value == "drop":
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return other


# ------------------------------------------------------------------------------------------------ what users met


@pytest.mark.parametrize(
    ("file", "place", "value", "words"),
    [
        ("model/model.json", ("stopped_because",), None, r"model\.json .*stopped_because .*None"),
        ("model/model.json", ("feature_names_in", 1), ["b"], r"model\.json .*feature_names_in\[1\] .*\['b'\]"),
        ("model/model.json", ("history", 0, "bytes_up"), "x", r"model\.json .*history\[0\]\.bytes_up .*'x'"),
        ("model/model.json", ("params", "alpha"), "x", r"model\.json .*alpha .*'x'"),
        ("history.json", (0, "objective"), "drop", r"history\.json .*\[0\]\.objective"),
        ("report.json", ("silos", 0, "cluster_sizes"), [30], r"report\.json .*cluster sizes"),
        ("report.json", ("projection", "n", "row"), [1], r"report\.json .*points"),
        ("report.json", ("details", "points", "n", "map_y"), "drop", r"report\.json .*points"),
        ("report.json", ("settings", "beta"), "drop", r"report\.json .*settings\.beta"),
        ("report.json", ("settings", "align"), "x", r"report\.json .*align .*'x'"),
        ("report.json", ("seconds",), 10**30, r"report\.json .*seconds is 1000"),
    ],
)
def test_a_file_of_a_run_with_another_value(file, place, value, words, home, monkeypatch):
    monkeypatch.chdir(home)
    path = Path("run") / file
    whole = path.read_text()
    try:
        path.write_text(json.dumps(replaced(json.loads(whole), place, value)))
        assert re.search(words, refused("report", "run", *REPORT))
    finally:
        path.write_text(whole)


@pytest.mark.parametrize(("place", "value"), [(("sent",), []), (("settings", "align"), "drop")])
def test_a_report_with_less_in_it(place, value, home, monkeypatch):
    monkeypatch.chdir(home)
    path = Path("run") / "report.json"
    whole = path.read_text()
    try:
        path.write_text(json.dumps(replaced(json.loads(whole), place, value)))
        done = fmtc("report", "run", *REPORT)
        assert done.exit_code == 0, done.output
        assert place != ("sent",) or "recorded nothing that left" in Path("page.html").read_text()
    finally:
        path.write_text(whole)


def test_json_that_no_parser_finishes(home, tmp_path):
    for text in ("[" * 100_000, "9" * 5000):
        (tmp_path / "model.json").write_text(text)
        assert "model.json" in refused("explain", "--show", "model", tmp_path)
    (tmp_path / "study.toml").write_text("a = " + "[" * 100_000)
    assert "study.toml is not TOML" in " ".join(
        fmtc("explain", "--show", "model", "--config", tmp_path / "study.toml").stderr.split()
    )


# --------------------------------------------------------------------------------------- arrays that claim too much


def array(shape: str, descr: str = "'<f8'", n_bytes: int = 96) -> bytes:
    """An .npy file whose header says what it likes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(n_bytes)


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def npy(values: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("shape", "descr", "words"),
    [
        ("(10**13, 10)", "'<f8'", ""),
        ("(10000000000000, 10)", "'<f8'", "10000000000000 x 10 .*float64, 800.0 TB, .*96 bytes"),
        ("(4, 4)", "'<f8'", "4 x 4 "),
        ("(-1, 3)", "'<f8'", "-1 x 3 "),
        ("(3, 4", "'<f8'", ""),
        ("'no'", "'<f8'", ""),
        ("(3, 4)", "'<q99'", ""),
        ("(3, 4)", "'|O'", ""),
        ("(3, 4)", "[('a', '<f8')]", "'<f8'"),
    ],
)
def test_an_array_whose_header_is_not_true(shape, descr, words, tmp_path):
    path = tmp_path / "rows.npy"
    path.write_bytes(array(shape, descr))
    assert re.search(f"rows.npy .*{words}", refused(*FIT, path))
    packed = archive(tmp_path / "packed.npz", {"X": path.read_bytes()})
    assert re.search(f"packed.npz .*{words}", refused(*FIT, packed))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("shape", [(10**15, 3), (3, 10**15)])
def test_a_sparse_matrix_that_claims_petabytes(kind, shape, tmp_path):
    small = sp.csr_array(np.eye(3)).asformat(kind)
    sp.save_npz(tmp_path / "honest.npz", small)
    with np.load(tmp_path / "honest.npz") as parts:
        members = {name: npy(part) for name, part in parts.items()}
    path = archive(tmp_path / "rows.npz", members | {"shape": npy(np.array(shape))})
    assert "8.0 PB" in refused(*FIT, path)


def test_an_archive_that_inflates(tmp_path, monkeypatch):
    """A small file may not take gigabytes; one that is small in memory, or large on disk, may be read."""
    zeros = np.zeros((50_000, 10))
    zeros[:30] = np.random.default_rng(0).normal(size=(30, 10))
    np.savez_compressed(tmp_path / "small.npz", X=zeros)
    np.savez(tmp_path / "large.npz", X=zeros)
    np.save(tmp_path / "plain.npy", zeros)
    (silo,) = read_silos([tmp_path / "small.npz"])
    assert silo.X.shape == zeros.shape
    monkeypatch.setattr(matrices, "INFLATED", 2**20)
    message = refused(*FIT, tmp_path / "small.npz")
    assert [word for word in ("4.0 MB", "1.0 MB", "100 times", "numpy.save") if word not in message] == []
    for name in ("large.npz", "plain.npy"):
        assert read_silos([tmp_path / name])[0].X.shape == zeros.shape


@pytest.mark.parametrize("told", [200, 5_000_000])
def test_an_archive_whose_directory_is_not_true(told, tmp_path):
    """Its table of contents says that 5 MB are there, or that hardly anything is; the array is of 500 bytes."""
    path = archive(tmp_path / "rows.npz", {"X": array("(50000, 10)", n_bytes=500)})
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02") + 24  # uncompressed size
    content[place : place + 4] = told.to_bytes(4, "little")
    path.write_bytes(content)
    assert "rows.npz" in refused(*FIT, path)


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "sparse.npz", "rows.parquet"])
def test_what_memory_does_not_hold_is_not_read(name, home, tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "_memory", lambda: 1000)
    assert "1.0 kB" in refused(*FIT, home / name)


def test_other_arrays_beside_the_rows_do_not_matter(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.savez(tmp_path / "rows.npz", X=X, names=np.array(["a", None], dtype=object))
    with zipfile.ZipFile(tmp_path / "rows.npz", "a") as file:
        file.writestr("README", "by hand")
    assert np.array_equal(read_silos([tmp_path / "rows.npz"])[0].X, X)
