"""Columns compared and texts clustered by silos of a federation, with the commands as people give them."""

from __future__ import annotations

import json
import signal

import pytest

from .commands import NAMES, finish, in_process, start, wait_until, write_tables
from .conftest import silo_rows


@pytest.mark.federation
def test_texts_and_a_preflight_over_the_federation(study):
    write_tables(study.folder, silo_rows(), texts=True)
    (study.folder / "south.csv").write_text((study.folder / "south.csv").read_text().replace("text", "Text", 1))
    silos = [study(name, "--text-column", "Text" if name == "south" else "text", "--stay") for name in NAMES]
    kit = study.folder / "kits" / "coordinator"
    code, out, said = finish(start("preflight", "--kit", kit, "-k", "4", "--json"))
    assert code == 0, said
    assert "nothing stops a run, but read the notes about south first" in said
    found = {line["silo"]: [f["code"] for f in line["findings"]] for line in json.loads(out)["silos"]}
    assert found == {"north": [], "south": ["spelling"], "west": []}
    done = finish(start(*study.coordinator, "--scale", "tfidf"))
    assert done[0] == 0, done[2]
    wait_until(lambda: all((study.folder / f"of-{name}" / "report.json").exists() for name in NAMES))
    for name, process in zip(NAMES, silos, strict=True):
        assert process.poll() is None  # it stays
        process.send_signal(signal.SIGINT)
        assert finish(process, 20)[0] == 130
        mine = study.folder / f"of-{name}"
        labels = in_process("predict", mine, study.folder / f"{name}.csv", "--id-column", "patient")
        assert labels.stdout.encode() == (mine / "labels" / f"{name}.csv").read_bytes()
