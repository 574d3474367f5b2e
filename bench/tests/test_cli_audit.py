"""`fmtc-bench audit`: words, JSON, pictures, and exit code 4 where a claim is broken."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tests.test_cli_outbox import fmtc_run as fmtc

from fmtc_bench.audits import runs as audits
from fmtc_bench.cli.program import main_group


def fmtc_run(*args):
    return CliRunner().invoke(main_group, [str(a) for a in args], prog_name="fmtc-bench", env={"NO_COLOR": "1"})


def fmtc_json(*args):
    done = fmtc_run(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def files(tmp_path, rng):
    found = []
    for name in ("east", "north", "west"):
        X = rng.normal(size=(24, 6)) + 8 * (np.arange(24) % 2)[:, None]
        np.save(tmp_path / f"{name}.npy", X)
        found.append(tmp_path / f"{name}.npy")
    np.save(found[1], np.load(found[1])[:20])  # the smallest
    return found


GRAPH = ("-k", 2, "--view", "graph", "--scale", "none", "--max-iter", 2)


def test_members_in_words_and_as_a_picture(files, tmp_path):
    done = fmtc_run("audit", "members", *files, *GRAPH, "--runs", 16, "--plot", tmp_path / "roc.png")
    assert done.exit_code == 0, done.stderr
    for part in ("silo north: 20 records", "in each of 16 runs", "plain, graph view", "AUC", "epsilon at least"):
        assert part in done.stderr
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")
    again = fmtc_run("audit", "members", *files, *GRAPH, "--runs", 16, "--plot", tmp_path / "roc.png")
    assert again.exit_code == 2
    assert "--force" in again.stderr


def test_members_of_sums(files):
    found = fmtc_json("audit", "members", *files, *GRAPH, "--privacy", "sums", "--silo", "west", "--runs", 16)
    assert found["client"] == "west"
    assert "totals" in found["mode"]
    assert found["attack"]["auc"]["low"] <= found["attack"]["auc"]["value"] <= found["attack"]["auc"]["high"]
    assert found["broken"] is False


def test_members_of_private_runs(files, tmp_path):
    (tmp_path / "bounds.toml").write_text('"*" = [-5, 15]\n')
    flags = ("-k", 2, "--epsilon", 2, "--bounds", tmp_path / "bounds.toml", "--runs", 16)
    found = fmtc_json("audit", "members", *files, *flags)
    assert found["mode"] == "private, epsilon 2: noisy totals"
    assert (found["epsilon"], found["broken"]) == (2, False)


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(files, tmp_path, monkeypatch):
    monkeypatch.setattr(audits, "audit_members", lambda *_, **__: pytest.fail("the work began"))
    done = fmtc_run("audit", "members", *files, *GRAPH, "--runs", 16, "--plot", tmp_path / "attack.txt")
    assert (done.exit_code, ".png, .pdf or .svg" in done.stderr) == (2, True), done.stderr


def test_a_picture_in_a_folder_that_is_not_there_yet(files, tmp_path):
    plot = tmp_path / "new" / "roc.svg"
    done = fmtc_run("audit", "members", *files, *GRAPH, "--runs", 8, "--plot", plot)
    assert done.exit_code == 0, done.stderr
    assert plot.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("flags", "code", "word"),
    [
        (("--silo", "south"), 3, "there is no silo 'south'"),
        (("--runs", 4), 2, "8"),
        (("-k", 9), 3, "need at least 40"),
    ],
)
def test_members_that_cannot_be(files, flags, code, word):
    done = fmtc_run("audit", "members", *files, *GRAPH, *flags)
    assert done.exit_code == code
    assert word in done.stderr


def test_canary_passes_and_broken_noise_ends_with_4(monkeypatch):
    rng = np.random.default_rng(3)
    share = {"of": 1.0}
    draw = lambda sd, size: np.rint(rng.normal(0, share["of"] * sd, size)).astype(np.int64)  # noqa: E731
    stages = audits.PrivateStages
    monkeypatch.setattr(audits, "PrivateStages", lambda *args: stages(*args[:3], draw))
    done = fmtc_run("audit", "canary", "--epsilon", 12, "--runs", 20)
    assert done.exit_code == 0, done.stderr
    assert "consistent" in done.stderr
    share["of"] = 0.0
    done = fmtc_run("audit", "canary", "--epsilon", 12, "--runs", 64, "--json")
    assert done.exit_code == 4
    assert "caught" in done.stderr
    assert json.loads(done.stdout)["caught"] is True


@pytest.mark.parametrize("epsilon", ["-1", "inf"])
def test_canary_needs_a_claim(epsilon):
    assert fmtc_run("audit", "canary", "--epsilon", epsilon).exit_code == 2


def test_influence_names_the_record_that_stands_out(files):
    X = np.load(files[0])
    X[4] = [200, 0, 0, 0, 0, 0]
    np.save(files[0], X)
    done = fmtc_run("audit", "influence", *files, *GRAPH)
    assert done.exit_code == 0, done.stderr
    assert "at fixed embedding" in done.stderr
    assert "dominates" in done.stderr
    found = fmtc_json("audit", "influence", *files, *GRAPH)["influence at fixed embedding"]
    east = [one for one in found if one["client"] == "east"]
    assert [one["round_no"] for one in east] == [1, 2]
    assert east[0]["leverage"] > 0.5


def test_span_is_known_where_rows_are_few(tmp_path, rng):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(9, 30)))
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    flags = ("-k", 2, "--view", "graph", "--scale", "none", "--max-iter", 8)
    done = fmtc_run("audit", "span", *paths, *flags)
    assert done.exit_code == 0, done.stderr
    assert "known, up to rounding" in " ".join(done.stderr.split())
    assert fmtc_json("audit", "span", *paths, *flags)["span"]["a"]["exact"] is True


def test_a_run_folder_is_judged_by_its_sizes_and_its_record(files, tmp_path):
    run = tmp_path / "run"
    assert fmtc("fit", *files, *GRAPH, "--out", run, "-q").exit_code == 0
    done = fmtc_run("audit", "run", run)
    assert done.exit_code == 0, done.stderr
    assert "plain: the server saw every answer; record of what left: whole" in done.stderr
    document = fmtc_json("audit", "run", run)
    assert [silo["rows_per_column"] for silo in document["silos"]] == [4, 20 / 6, 4]
    strict = tmp_path / "rules.toml"
    strict.write_text('rows_per_column = 10\nfew_rows = "refuse"\n')
    assert fmtc_run("audit", "run", run, "--rules", strict).exit_code == 4
    ledger = run / "outbox" / "east.jsonl"
    ledger.write_text(ledger.read_text().replace('"bytes": 8', '"bytes": 9', 1))
    done = fmtc_run("audit", "run", run)
    assert done.exit_code == 4
    assert "was changed" in done.stderr
    assert fmtc_run("audit", "run", tmp_path).exit_code == 3
