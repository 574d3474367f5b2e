"""What people do to a federation by mistake, with real processes: files that change, commands given twice."""

from __future__ import annotations

import re
import shutil

import polars as pl
import pytest

from fmtc.artifacts.files import read_json

from .commands import SETTINGS, add_holes, finish, history, in_process, start, wait_until
from .conftest import none_left


def re_export(file, seed=0):
    """The same rows, in another order."""
    pl.read_csv(file).sample(fraction=1.0, shuffle=True, seed=seed).write_csv(file)


def clusters(file):
    return dict(pl.read_csv(file).select("patient", "cluster").iter_rows())


def modes(folder):
    return {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


def noted(word, said):
    return any(word in line for line in said.splitlines() if line.startswith("note: "))


NAMES = ("north", "south")


@pytest.mark.federation
@pytest.mark.parametrize("study", [NAMES], indirect=True)
def test_one_run_and_everything_people_do_to_it(study, misbehave, tmp_path):
    """Join and coordinate; the result is that of `fmtc fit`, to the byte, where anything is written at all.

    Tables with missing cells, the view left open: the coordinator is killed in the middle of a mixture, which resumes.
    """
    for file in study.files:
        add_holes(file)
    misbehave("slow@0:0.5,hold@4")
    assert (
        in_process("fit", *study.files, "--id-column", "patient", *SETTINGS, "--out", tmp_path / "fit").exit_code == 0
    )
    kits, checkpoint = tmp_path / "kits", tmp_path / ".run.checkpoint"
    silos = {name: study(name, "--max-k", "4") for name in NAMES}
    coordinator = start(*study.coordinator)
    events = checkpoint / "events.jsonl"
    wait_until(lambda: events.exists() and '"round"' in events.read_text())

    # a coordinator that is killed in the middle
    coordinator.kill()
    coordinator.communicate()
    assert none_left(kits / "coordinator", 10.0)  # its processes went with it
    refused = in_process(*study.coordinator)
    assert (refused.exit_code, "--resume" in refused.stderr) == (2, True), refused.output
    coordinator = start(*study.coordinator, "--resume")
    study.started.append(coordinator)
    wait_until(lambda: events.read_text().count('"round"') == 3)

    # a second coordinator, plain, forced, and with another kit of the same federation and the same --out
    order = (checkpoint / "order.json").read_bytes()
    for flags in ((), ("--force",), ("--resume",)):
        refused = in_process(*study.coordinator, *flags)
        assert refused.exit_code == 2, refused.output
        assert f"process {coordinator.pid} " in refused.stderr
    copied = shutil.copytree(kits / "coordinator", tmp_path / "copied" / "coordinator")
    refused = in_process("coordinate", "--kit", copied, *SETTINGS, "--out", tmp_path / "run", "--force")
    assert (refused.exit_code, str(tmp_path / "run") in refused.stderr) == (2, True), refused.output
    refused = in_process("coordinate", "--kit", copied, *SETTINGS, "--out", tmp_path / "other")
    assert refused.exit_code == 1, refused.output  # the port is taken
    assert not (tmp_path / ".other.checkpoint").exists()
    assert (checkpoint / "order.json").read_bytes() == order

    # a second join: with the same kit and another file, and with a copy of the kit
    refused = in_process("join", "--kit", kits / "north", "--data", study.files[1], "--out", tmp_path / "twice")
    assert (refused.exit_code, f"process {silos['north'].pid} " in refused.stderr) == (2, True), refused.output
    copy = shutil.copytree(kits / "north", tmp_path / "copied" / "north")
    again = start("join", "--kit", copy, "--data", study.files[1], "--id-column", "patient", "--out", tmp_path / "copy")
    study.started.append(again)
    code, _, said = finish(again, 60)
    assert (code, "'north'" in said) == (3, True), said
    assert not (tmp_path / "copy").exists()

    # a file that is exported anew, in another order
    before = (tmp_path / "north.csv").read_bytes()
    re_export(tmp_path / "north.csv")

    # a coordinator that is killed when all is done, but for writing it down
    for name in NAMES:
        (kits / name / "go").touch()
    wait_until(lambda: '"done"' in events.read_text())
    coordinator.kill()
    _, _, said = finish(coordinator)
    assert noted("'north'", said)  # the second party
    study.started.append(start(*study.coordinator, "--resume"))
    code, _, said = finish(study.started[-1], 180)  # silos may leave just then
    assert code == 0, said
    assert not checkpoint.exists() and not checkpoint.with_suffix(".lock").exists()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "atlas.json", "consensus.safetensors", "history.json", "report.json",
    ]  # fmt: skip
    assert history(tmp_path / "run") == history(tmp_path / "fit")
    assert modes(tmp_path / "run") == {0o700, 0o600}

    screens = {name: finish(process, 30) for name, process in silos.items()}
    code, _, said = screens["south"]
    assert code == 0, said
    assert re.search("4 clusters.* 5 rounds", said)
    ours = tmp_path / "of-south"
    for file in ("labels/south.csv", "model/south.safetensors"):
        assert (ours / file).read_bytes() == (tmp_path / "fit" / file).read_bytes()
    labels = in_process("predict", ours, tmp_path / "south.csv", "--id-column", "patient")
    assert labels.stdout.encode() == (ours / "labels/south.csv").read_bytes()
    assert modes(ours) == {0o700, 0o600}
    code, _, said = screens["north"]
    assert (code, "north.csv" in said) == (3, True), said
    assert noted("'north'", said)
    assert not (tmp_path / "of-north").exists()

    # the labels are not lost: they wait for the file, and for nobody else
    code, _, said = finish(study("north"), 30)
    assert (code, "--discard" in said) == (3, True), said
    (tmp_path / "north.csv").write_bytes(before)
    code, _, said = finish(study("north"), 30)
    assert code == 0, said
    assert clusters(tmp_path / "of-north/labels/north.csv") == clusters(tmp_path / "fit/labels/north.csv")
    report = read_json(tmp_path / "of-north" / "report.json")
    assert (report["converged"], report["settings"]["random_state"], report["n_iter"]) == (False, 3, 20)
    assert (report["view"], report["settings"]["view"]) == ("mixture", "auto")
    for name in NAMES:
        assert none_left(kits / name)
        assert not (kits / name / "in-use.lock").exists()
