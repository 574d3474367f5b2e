"""What has left a silo, as the command line shows and verifies it, and answers that wait for a person."""

import json
import shutil

import click
import numpy as np
import pytest
from click.testing import CliRunner

from fmtc.cli import asking, main_group
from fmtc.cli.joining import policy_of
from fmtc.cli.words import Words
from fmtc.privacy.ledger import LEDGER, FileLedger, hash_of, head_of
from fmtc.privacy.outbox import Outbox
from fmtc.privacy.rules import Policy
from fmtc.protocol.base import Message, entries
from fmtc.protocol.graph.opening import HELLO
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.mixture.em import EM
from fmtc.settings import Settings


def fmtc_run(*args, **options):
    return CliRunner().invoke(main_group, [str(a) for a in args], prog_name="fmtc", env={"NO_COLOR": "1"}, **options)


def fmtc_json(*args):
    done = fmtc_run(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a fit of two silos."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    files = []
    for name in ("north", "south"):
        np.save(folder / f"{name}.npy", rng.normal(size=(30, 4)))
        files.append(folder / f"{name}.npy")
    done = fmtc_run(
        "fit", *files, "-k", 2, "--max-iter", 3, "--set", "n_init=2", "--tol", 0, "-q", "--out", folder / "run"
    )
    assert done.exit_code == 0, done.output
    return folder / "run"


def hello(n):
    return HELLO.Answer(n_samples=n, n_features=4, sum_of_squares=1.0)


def answer(outbox, *, n=30, round_no=0):
    """One answer of each of two phases."""
    settings = Settings(n_clusters=2)
    outbox.release(HELLO, Message("hello", HELLO.Ask()), hello(n), {"D": 4, "d": 4, "k": 2}, settings)
    ask = ROUND.Ask(anchor=np.zeros((4, 2)))
    W = ROUND.Answer(W=np.ones((4, 2)), cut=0.5, misfit=0.25)
    outbox.release(ROUND, Message("round", ask, round_no + 1, round_no), W, {"d": 4, "k": 2}, settings)


@pytest.fixture
def kit(tmp_path):
    """The kit of a silo that took part in two runs; in the second it repeated an answer and failed once."""
    kit = tmp_path / "north"
    (kit / "startup").mkdir(parents=True)
    ledger = FileLedger(kit / LEDGER)
    answer(Outbox(ledger, "north", "first"))
    second = Outbox(ledger, "north", "second")
    answer(second)
    answer(second, round_no=1)  # the same greeting again
    second.fail(Message("finish", None, 2), ValueError("a secret"))
    return kit


# ------------------------------------------------------------------------------------------------------------- show


def test_show_adds_up_what_left_by_run_phase_and_field(kit):
    first, second = fmtc_json("outbox", "show", kit)["runs"]
    assert (first["run"], first["silo"], first["answers"], first["replays"], first["failures"]) == (
        "first", "north", 2, 0, 0)  # fmt: skip
    assert (second["answers"], second["replays"], second["failures"]) == (5, 1, 1)
    assert first["first"] <= first["last"] <= second["first"] <= second["last"]
    rows = {(row["phase"], row["field"]): row for row in second["sent"]}
    assert (rows["hello", "n_samples"]["times"], rows["hello", "n_samples"]["bytes"]) == (2, 16)
    assert (rows["round", "W"]["times"], rows["round", "W"]["bytes"], rows["round", "W"]["shape"]) == (2, 128, "d × k")
    assert rows["finish", "error"]["bytes"] == len("ValueError")
    assert all(row["what"] and row["tells"] for row in second["sent"])
    assert second["bytes"] == sum(row["bytes"] for row in second["sent"])
    text = fmtc_run("outbox", "show", kit).stdout
    for run in (first, second):
        assert run["run"] in text
    for phase, field in rows:
        assert phase in text
        assert field in text
    assert "secret" not in text


def test_show_a_run_of_one_process(run):
    document = fmtc_json("outbox", "show", run)
    assert [(line["silo"], line["run"]) for line in document["runs"]] == [("north", "local"), ("south", "local")]
    report = json.loads((run / "report.json").read_text())
    assert document["bytes"] == sum(row["bytes"] for row in report["sent"])
    assert (report["view"], report["n_iter"]) == ("mixture", 12)  # four rounds for each of --max-iter
    for line in document["runs"]:
        fields = [name for name in entries(EM.Answer) if name not in ("level_weights", "levels")]  # no categories
        assert {row["field"]: row["times"] for row in line["sent"] if row["phase"] == "em"} == dict.fromkeys(fields, 12)


def test_a_kit_that_has_not_answered_yet(tmp_path):
    (tmp_path / "startup").mkdir()
    assert fmtc_json("outbox", "show", tmp_path)["runs"] == []
    document = fmtc_json("outbox", "verify", tmp_path)
    assert (document["whole"], document["lines"]) == (True, 0)


@pytest.mark.parametrize("command", ["show", "verify"])
def test_other_folders_are_refused(tmp_path, run, command):
    for folder in (tmp_path, tmp_path / "absent", run / "model"):
        done = fmtc_run("outbox", command, folder)
        assert done.exit_code == 3
        assert str(folder) in " ".join(done.stderr.split())


def test_a_damaged_ledger_cannot_be_shown(kit):
    (kit / LEDGER).write_text("no line\n")
    done = fmtc_run("outbox", "show", kit)
    assert done.exit_code == 3
    assert LEDGER in done.stderr


# ----------------------------------------------------------------------------------------------------------- verify


def changed(lines):
    lines[2] = lines[2].replace(b'"bytes": 8', b'"bytes": 9', 1)


def changed_with_its_hash(lines):
    line = json.loads(lines[2])
    line["run"] = "another"
    lines[2] = json.dumps(line | {"hash": hash_of(line)}).encode()


def deleted(lines):
    del lines[1]


def first_deleted(lines):
    del lines[0]


def swapped(lines):
    lines[1], lines[3] = lines[3], lines[1]


def last_removed(lines):
    lines.pop()


def last_cut(lines):
    lines[-1] = lines[-1][:-20]


def last_changed_with_its_hash(lines):
    line = json.loads(lines[-1])
    line["run"] = "another"
    lines[-1] = json.dumps(line | {"hash": hash_of(line)}).encode()


def doubled(lines):
    lines.insert(2, lines[2])


def added(lines):
    line = json.loads(lines[-1])
    lines.append(json.dumps(line | {"number": line["number"] + 1}).encode())


def two_added(lines):
    """Lines that fit the ones before them: only the head tells that the outbox did not write them."""
    for _ in range(2):
        line = json.loads(lines[-1])
        line |= {"number": line["number"] + 1, "before": line["hash"]}
        lines.append(json.dumps(line | {"hash": hash_of(line)}).encode())


def all_removed(lines):
    lines.clear()


CHANGES = [changed, changed_with_its_hash, deleted, first_deleted, swapped, last_removed, last_cut,
           last_changed_with_its_hash, doubled, added, two_added, all_removed]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("where", ["kit", "run"])
def test_every_change_of_the_record_is_found(kit, run, tmp_path, where, change):
    folder = kit
    if where == "run":
        folder = shutil.copytree(run, tmp_path / "run")
    file = folder / LEDGER if where == "kit" else folder / "outbox" / "south.jsonl"
    whole = fmtc_json("outbox", "verify", folder)
    assert whole["whole"]
    lines = file.read_bytes().splitlines()
    change(lines)
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    done = fmtc_run("outbox", "verify", folder, "--json")
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert not document["whole"]
    assert [ledger["ledger"] for ledger in document["ledgers"] if ledger["faults"]] == [file.name]
    for ledger in document["ledgers"]:
        for fault in ledger["faults"]:
            assert fault in " ".join(done.stderr.split())


@pytest.mark.parametrize("of", [lambda ledger: ledger, head_of], ids=["lines", "head"])
def test_a_file_of_the_record_that_is_missing_is_found(kit, of):
    of(kit / LEDGER).unlink()
    assert fmtc_run("outbox", "verify", kit).exit_code == 3


def test_a_whole_record_says_how_many_lines_it_has(kit, run):
    lines = len((kit / LEDGER).read_bytes().splitlines())
    done = fmtc_run("outbox", "verify", kit)
    assert done.exit_code == 0
    assert f"{lines} lines" in done.stderr
    document = fmtc_json("outbox", "verify", run)
    assert [ledger["ledger"] for ledger in document["ledgers"]] == ["north.jsonl", "south.jsonl"]
    assert document["lines"] == sum(ledger["lines"] for ledger in document["ledgers"]) > 0


# ----------------------------------------------------------------------------------------- answers that wait


EVENT = {
    "event": "to leave", "run": "run-1", "phase": "round", "round": 1,
    "fields": [{"field": "W", "shape": [4, 2], "type": "float64", "bytes": 64, "sha256": "00",
                "what": "the projection", "tells": "A combination of the rows; see [Centres](#centres)."}],
}  # fmt: skip


@pytest.mark.parametrize("allowed", [True, False])
def test_a_person_says_yes_or_no(capsys, monkeypatch, allowed):
    asked, said = [], []
    words = Words(quiet=True)
    monkeypatch.setattr(asking, "confirmed", lambda text, _: asked.append(text) or allowed)
    asking.ask_answer(words, EVENT, lambda *what: said.append(what))
    assert said == [("run-1", "round", allowed)]
    assert len(asked) == 1
    shown = " ".join(capsys.readouterr().err.split())
    for part in ("W", "4 × 2", "64", "the projection", "A combination of the rows."):
        assert part in shown
    assert len(words.notes) == (not allowed)


def test_hold_needs_a_terminal(tmp_path):
    done = fmtc_run("join", "--kit", tmp_path, "--data", tmp_path / "a.csv", "--out", tmp_path / "out", "--ask")
    assert done.exit_code == 2
    assert "--ask" in done.stderr


# ------------------------------------------------------------------------------------------------- rules of a silo


def test_the_policy_of_a_silo_comes_from_a_file_its_kit_or_the_default(tmp_path):
    assert policy_of(None, tmp_path, True) == Policy()
    assert policy_of(None, tmp_path, False) == Policy(dominance="warn")  # nobody can be asked
    (tmp_path / "rules.toml").write_text('dominance = "refuse"\n')
    assert policy_of(None, tmp_path, False).dominance == "refuse"
    other = tmp_path / "other.toml"
    other.write_text('few_rows = "ask"\n')
    assert policy_of(other, tmp_path, True).few_rows == "ask"
    with pytest.raises(click.UsageError, match="no terminal"):
        policy_of(other, tmp_path, False)


def test_a_person_is_told_why_they_are_asked(capsys, monkeypatch):
    event = {"run": "r", "phase": "round", "fields": [], "why": ["one record moves the projection by 40 %"]}
    monkeypatch.setattr(asking, "confirmed", lambda question, _: True)
    asking.ask_answer(Words(quiet=True), event, lambda *said: None)
    assert "why: one record moves the projection" in capsys.readouterr().err
