"""The record of what left: one chain of lines, and what `verify` finds of changes to it."""

import json
import multiprocessing
import os
import stat

import pytest

from fmtc.artifacts import files
from fmtc.errors import FileError
from fmtc.privacy import ledger as module
from fmtc.privacy.ledger import (
    START,
    FileLedger,
    MemoryLedger,
    Total,
    hash_of,
    head_of,
    read_lines,
    totals,
    verify,
)


def line(number, phase="round", run="r1", **field):
    entry = {"field": "W", "shape": [5, 3], "type": "float64", "bytes": 120, "sha256": f"{number:064d}"} | field
    return {
        "client": "a", "run": run, "phase": phase, "round": number, "turn": 0, "asked": "0", "kind": "release",
        "fields": [entry],
    }  # fmt: skip


def fill(path, n):
    ledger = FileLedger(path)
    for number in range(1, n + 1):
        ledger.append(line(number))
    return ledger


@pytest.fixture
def path(tmp_path):
    """A ledger of six lines."""
    fill(tmp_path / "outbox.jsonl", 6)
    return tmp_path / "outbox.jsonl"


def texts(path):
    return path.read_bytes().splitlines(keepends=True)


# -------------------------------------------------------------------------------------------------------- the chain


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_each_line_has_the_hash_of_the_one_before(kind, tmp_path):
    path = tmp_path / "a.b.jsonl"
    ledger = FileLedger(path) if kind == "file" else MemoryLedger()
    assert ledger.lines() == []
    for number in range(1, 4):
        ledger.append(line(number))
    if kind == "memory":
        ledger.write(path)
        assert ledger.lines() == read_lines(path)
    lines = read_lines(path)
    assert [each["number"] for each in lines] == [1, 2, 3]
    assert [each["before"] for each in lines] == [START, lines[0]["hash"], lines[1]["hash"]]
    assert all(each["hash"] == hash_of(each) for each in lines)
    assert [each["fields"] for each in lines] == [line(number)["fields"] for number in range(1, 4)]
    assert json.loads(head_of(path).read_text()) == {"number": 3, "hash": lines[-1]["hash"]}
    assert verify(path) == []


def test_a_ledger_in_memory_hands_out_copies():
    ledger = MemoryLedger()
    ledger.append(line(1))
    ledger.lines().clear()
    assert len(ledger.lines()) == 1


def test_an_empty_ledger_is_whole(tmp_path):
    MemoryLedger().write(tmp_path / "outbox.jsonl")
    assert verify(tmp_path / "outbox.jsonl") == []
    assert verify(tmp_path / "none.jsonl") == []  # nothing ever left
    assert read_lines(tmp_path / "none.jsonl") == []


def test_files_are_for_their_owner_alone(path, tmp_path):
    memory = MemoryLedger()
    memory.append(line(1))
    memory.write(tmp_path / "b.jsonl")
    for each in (path, tmp_path / "b.jsonl"):
        for file in (each, head_of(each)):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_ledger_outlives_the_object(path):
    FileLedger(path).append(line(7))
    assert [each["number"] for each in FileLedger(path).lines()] == list(range(1, 8))
    assert verify(path) == []


def test_long_lines_are_found_from_the_end(tmp_path):
    """A line may be longer than what is read at once to find the last one."""
    path = tmp_path / "outbox.jsonl"
    ledger = FileLedger(path)
    for number in range(1, 4):
        ledger.append({**line(number), "fields": 1500 * line(number)["fields"]})
    assert len(texts(path)[0]) > 1 << 16
    assert verify(path) == []


# --------------------------------------------------------------------------------------------------- what verify finds


def rewritten(text, **changed):
    """A line with other content and a hash that fits it."""
    content = json.loads(text) | changed
    return (json.dumps(content | {"hash": hash_of(content)}) + "\n").encode()


MANIPULATIONS = {
    "a changed value": lambda t: [*t[:2], t[2].replace(b'"round": 3', b'"round": 9'), *t[3:]],
    "a changed value and hash": lambda t: [*t[:2], rewritten(t[2], round=9), *t[3:]],
    "the last line and its hash": lambda t: [*t[:5], rewritten(t[5], round=9)],
    "a blank inside a line": lambda t: [*t[:2], t[2].replace(b'"round": 3', b'"round":  3'), *t[3:]],
    "a name twice in a line": lambda t: [*t[:2], t[2].replace(b'"round": 3', b'"round": 9, "round": 3'), *t[3:]],
    "one removed in the middle": lambda t: [*t[:2], *t[3:]],
    "the first removed": lambda t: t[1:],
    "the last removed": lambda t: t[:-1],
    "the last three removed": lambda t: t[:-3],
    "all removed": lambda t: [],
    "two swapped": lambda t: [t[0], t[2], t[1], *t[3:]],
    "the last two swapped": lambda t: [*t[:4], t[5], t[4]],
    "one twice": lambda t: [*t[:3], t[2], *t[3:]],
    "the last twice": lambda t: [*t, t[-1]],
    "one inserted": lambda t: [*t[:3], rewritten(t[2], number=4, before=json.loads(t[2])["hash"]), *t[3:]],
    "two added at the end": lambda t: [
        *t,
        one := rewritten(t[5], number=7, before=json.loads(t[5])["hash"]),
        rewritten(one, number=8, before=json.loads(one)["hash"]),
    ],
    "a damaged line": lambda t: [*t[:2], t[2][:40] + b"\xff\xfe" + t[2][42:], *t[3:]],
    "half a line": lambda t: [*t[:2], t[2][:40] + b"\n", *t[3:]],
    "an empty line": lambda t: [*t[:2], b"\n", *t[2:]],
    "another document": lambda t: [*t[:2], b'{"number": 3}\n', *t[3:]],
    "cut short at the end": lambda t: [*t[:5], t[5][:-9]],
}


@pytest.mark.parametrize("how", MANIPULATIONS)
def test_verify_finds(how, path):
    assert verify(path) == []
    path.write_bytes(b"".join(MANIPULATIONS[how](texts(path))))
    assert verify(path)


@pytest.mark.parametrize("how", ["a changed value", "one removed in the middle", "one twice", "a damaged line"])
def test_verify_names_the_first_place_and_not_all_after_it(how, path):
    path.write_bytes(b"".join(MANIPULATIONS[how](texts(path))))
    faults = verify(path)
    assert len(faults) <= 2
    assert any(f"line {place} " in faults[0] for place in (3, 4))


def test_a_missing_or_damaged_head_is_a_fault(path):
    head = head_of(path)
    for content in (b"", b"{}", b'{"number": "6", "hash": ""}', b"\xff"):
        head.write_bytes(content)
        assert len(verify(path)) == 1
    head.unlink()
    assert len(verify(path)) == 1


def test_a_ledger_that_was_taken_away_is_a_fault(path):
    path.unlink()
    assert verify(path)


def test_a_crash_between_line_and_head_is_no_fault(path, monkeypatch):
    """The line is on disk and was not sent, or was: both are fine. The next line follows it."""

    def crash(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "_write_head", crash)
        with pytest.raises(KeyboardInterrupt):
            FileLedger(path).append(line(7))
    assert json.loads(head_of(path).read_text())["number"] == 6
    assert len(read_lines(path)) == 7
    assert verify(path) == []
    FileLedger(path).append(line(8))
    assert [each["number"] for each in read_lines(path)] == list(range(1, 9))
    assert verify(path) == []


def test_lines_removed_at_the_end_show_after_the_next_append_too(path):
    """Numbers continue from the last line there ever was; the gap cannot be written over."""
    path.write_bytes(b"".join(texts(path)[:4]))
    FileLedger(path).append(line(7))
    assert read_lines(path)[-1]["number"] == 7
    assert verify(path)
    path.unlink()
    FileLedger(path).append(line(8))
    assert read_lines(path)[-1]["number"] == 8
    assert verify(path)


# ---------------------------------------------------------------------------------------------- crashes and full disks


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_was_never_sent_and_is_dropped(left, path):
    """A crash in the middle of a write: reading and verifying do without it, and the next line replaces it."""
    whole = path.read_bytes()
    torn = rewritten(texts(path)[5], number=7, before=json.loads(texts(path)[5])["hash"])[:left]
    path.write_bytes(whole + torn)
    assert len(read_lines(path)) == 6
    assert verify(path) == []
    FileLedger(path).append(line(7))
    assert path.read_bytes().startswith(whole)
    assert [each["number"] for each in read_lines(path)] == list(range(1, 8))
    assert verify(path) == []


def test_a_torn_first_line_is_dropped(tmp_path):
    path = tmp_path / "outbox.jsonl"
    path.write_bytes(b'{"number": 1, "ti')
    FileLedger(path).append(line(1))
    assert [each["number"] for each in read_lines(path)] == [1]
    assert verify(path) == []


def test_a_full_disk_raises_an_error(path, monkeypatch):
    """A disk that is nearly full takes a part of a line without a word; only the next write fails."""
    write, calls = os.write, []

    def nearly_full(handle, content):
        calls.append(len(content))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(handle, content[:50])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            FileLedger(path).append(line(7))
    assert len(read_lines(path)) == 6
    FileLedger(path).append(line(7))
    assert verify(path) == []


def test_a_line_is_on_disk_before_append_returns(path, monkeypatch):
    done = []
    for name in ("write", "fsync"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, call=call: (done.append(name), call(*args))[1])
    monkeypatch.setattr(module, "write_file", lambda *a, **b: (done.append("head"), files.write_file(*a, **b)))
    FileLedger(path).append(line(7))
    assert done[:3] == ["write", "fsync", "head"]


@pytest.mark.parametrize("content", [b"no JSON\n", b'{"number": 1}\n', b"[]\n"])
def test_a_damaged_ledger_takes_no_further_line(content, tmp_path):
    """Limits cannot be counted in it: better no answer than one too many."""
    path = tmp_path / "outbox.jsonl"
    path.write_bytes(content)
    with pytest.raises(FileError, match=str(path)):
        read_lines(path)
    with pytest.raises(FileError, match=str(path)):
        FileLedger(path).append(line(1))
    assert path.read_bytes() == content


def _append(path, name, n, together):
    ledger = FileLedger(path)
    together.wait(60)
    for number in range(n):
        ledger.append({**line(number), "client": name})


def test_processes_that_append_at_once_keep_one_chain(tmp_path):
    path = tmp_path / "outbox.jsonl"
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    workers = [context.Process(target=_append, args=(path, name, 100, together)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    lines = read_lines(path)
    assert [each["number"] for each in lines] == list(range(1, 201))
    for name in "ab":
        assert [each["round"] for each in lines if each["client"] == name] == list(range(100))
    assert verify(path) == []


# ------------------------------------------------------------------------------------------------------------ totals


def test_totals_add_up_what_left_by_phase_and_field():
    lines = [line(1), line(2), line(1, "hello", field="n_samples", shape=[], bytes=8), {**line(3), "kind": "replay"}]
    lines.append({**line(4), "fields": []})
    assert totals(lines) == [Total("round", "W", (5, 3), 3, 360), Total("hello", "n_samples", (), 1, 8)]
