"""A run from the coordinator's side, over any transport: compare columns, train, say that it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..artifacts.files import Kind, jsonable, read_tensors, well_formed, write_tensors
from ..artifacts.states import flatten, unflatten
from ..errors import AbortedError, ClientError, DataError, FileError, InputError, OwnError, TrustError
from ..models.shared import SHARED, Shared
from ..privacy.ledger import Total, Totals, add
from ..protocol.base import Message, dropped
from ..protocol.common import END, SURVEY, VERDICT, told
from ..protocol.outcome import shared_by
from .driver import RoundRecord, RunRecord, Transport, add_received, run, with_server
from .events import Channel, at_coordinator
from .spec import RunSpec

CHECKPOINT = "checkpoint"  # folder in the coordinator's folder of a run
RESULT = "result.safetensors"  # in the coordinator's folder of a run: what it came to
LATE = "late.safetensors"  # in the coordinator's folder of a run: what lost clients are asked, to conclude later
CONSENSUS = Kind("fmtc consensus", 2)
# parts of a record that JSON holds as they are
SAVED = ("client_ids", "converged", "stopped_because", "missing", "before", "why", "roster", "held")
SERVER = "server/"  # names of arrays of a server that waits for last answers
GOES_ON = "shared/"  # names of arrays in a result that go on where the run ended


def conduct(transport: Transport, spec: RunSpec, events: Channel) -> None:
    """Run a method to its end, from the last checkpoint if there is one; whatever happens is told on `events`.

    Where the run cannot go on, that is aborted, lost (too few clients are there), stopped (too few clients can answer),
    refused data, trust refused, or failed.
    """
    if finished(spec) is None and not _train(transport, spec, events):
        return
    _conclude(transport, spec)
    _end(transport, spec, events)


def _train(transport: Transport, spec: RunSpec, events: Channel) -> bool:
    """Run a method until its result is written; False where it ends without one."""
    begun = (spec.folder / CHECKPOINT).exists()
    try:
        compare_first = spec.preflight == "only" or (spec.preflight == "first" and not begun)
        if compare_first and _differ(transport, spec, events):
            return False
        record = run(
            transport,
            spec.settings,
            method=spec.method,
            weights=spec.weights,
            callbacks=[lambda done: events.tell("round", record=asdict(done))],
            checkpoint=spec.folder / CHECKPOINT,
            resume=True,
            min_clients=spec.min_clients,
        )
    except AbortedError:
        events.tell("aborted")
    except ClientError as error:
        events.tell("stopped" if isinstance(error.__cause__, OwnError) else "lost", why=str(error))
    except (InputError, TrustError) as error:
        events.tell("trust refused" if isinstance(error, TrustError) else "refused data", why=str(error))
    except Exception as error:
        events.tell("failed", why=f"{type(error).__name__}: {error}")
        raise
    else:
        if record.late:
            _write_late(spec, record.server, record.late)
        write_record(spec, record)
        return True
    return False


def _conclude(transport: Transport, spec: RunSpec) -> None:
    """Ask clients that were lost when all others concluded; the result then says what it would have said."""
    if not (spec.folder / LATE).exists():
        return
    server, late = _read_late(spec, transport.client_ids)
    for cid, messages in list(late.items()):
        heard: Totals = {}
        for message in messages:
            replies = transport.exchange({cid: message})
            if cid not in replies.answers:
                break
            phase = spec.method.phase(message.phase)
            add_received(heard, phase, replies)
        else:
            if not dropped(phase, server, replies.answers, spec.settings):
                server = phase.reduce(server, replies.answers, spec.settings)
            del late[cid]
            _add_late(spec, server, cid, late, heard)
            _write_late(spec, server, late)


def _add_late(spec: RunSpec, server: Any, cid: str, late: Mapping[str, tuple[Message, ...]], heard: Totals) -> None:
    """Write the result again, with a client that has concluded since."""
    record, _ = read_record(spec.folder / RESULT)
    received: Totals = {}
    for line in (*record.received, *heard.values()):
        if line.phase != SURVEY.name:
            add(received, line)
    missing = tuple(other for other in record.missing if other != cid)
    record = replace(record, missing=missing, received=tuple(received.values()), late=late)
    write_record(spec, with_server(record, spec.method, server))


def _end(transport: Transport, spec: RunSpec, events: Channel) -> None:
    """Tell clients how the run ended, and whether others have their clusters; keep who has said to have its labels."""
    about = finished(spec)
    assert about is not None
    events.tell("done", missing=about["missing"])
    done = {*about["client_ids"]} - {*unconfirmed(spec.folder, about), *about["missing"]}
    converged, known = bool(about["converged"]), (about.get("atlas"), about.get("held", ()))
    asks = {
        cid: END.Ask(converged=converged, **told(known[0], cid, known[1]))
        for cid in about["client_ids"]
        if cid not in done
    }
    replies = transport.exchange({cid: Message(END.name, ask) for cid, ask in asks.items()})
    unable = [cid for cid, error in replies.failures.items() if isinstance(error, OwnError)]
    events.tell("ended", confirmed=sorted(replies.answers), unable=unable)


def unconfirmed(folder: Path, about: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Clients of a run that is over which have not said that they have their labels, and can have them.

    `folder` is the coordinator's of the run, `about` what `finished` says of it.
    """
    if about is None:
        return ()
    left = {*about["missing"]} - {*about.get("late", ())}
    left |= {cid for event in at_coordinator(folder).all() for cid in event.get("confirmed", ())}
    return tuple(cid for cid in about["client_ids"] if cid not in left)


def _write_late(spec: RunSpec, server: Any, late: Mapping[str, tuple[Message, ...]]) -> None:
    """Keep what clients that were lost have to be asked, and the server that waits for their last answers."""
    arrays, values = flatten(server, SERVER)
    asked: dict[str, list[Any]] = {}
    for place, (cid, messages) in enumerate(late.items()):
        flat = [flatten(message, f"{place}/{turn}/") for turn, message in enumerate(messages)]
        asked[cid] = [rest for _, rest in flat]
        for inner, _ in flat:
            arrays |= inner
    values = {"": type(server).__name__, **values}
    write_tensors(spec.folder / LATE, arrays, {"server": values, "asked": asked})


def _read_late(spec: RunSpec, client_ids: tuple[str, ...]) -> tuple[Any, dict[str, tuple[Message, ...]]]:
    """Undo `_write_late`."""
    path = spec.folder / LATE
    arrays, about = read_tensors(path)
    with well_formed(path):
        server = spec.method.open_server(client_ids, spec.settings, spec.weights)
        server = unflatten(server, arrays, about["server"], SERVER)
        late = {
            cid: tuple(_message(spec, line, arrays, f"{place}/{turn}/") for turn, line in enumerate(asked))
            for place, (cid, asked) in enumerate(about["asked"].items())
        }
    return server, late


def _message(spec: RunSpec, rest: dict[str, Any], arrays: Mapping[str, Any], above: str) -> Message:
    """A message of `_write_late`; its arrays have names that begin with `above`."""
    values = {name: value for name, value in rest["ask"].items() if name}
    ask = unflatten(spec.method.phase(rest["phase"]).Ask, arrays, values, f"{above}ask/")
    return Message(**rest | {"ask": ask})


def _differ(transport: Transport, spec: RunSpec, events: Channel) -> bool:
    """Compare the clients' columns and tell each what is odd about its own; whether the run ends with that."""
    from ..tables import compare
    from ..tables.findings import ERROR, Kind
    from ..tables.survey import as_numbers

    replies = transport.exchange({cid: Message(SURVEY.name, SURVEY.Ask()) for cid in transport.client_ids})
    if len(replies.answers) < (spec.min_clients or len(transport.client_ids)):
        cid, error = min(replies.failures.items())
        raise ClientError(f"silo {cid!r} failed {SURVEY.doing}: {error}") from error
    received: Totals = {}
    add_received(received, SURVEY, replies)
    scaled = getattr(spec.settings, "scale", "none") != "none"
    findings = compare(
        replies.answers, n_clusters=spec.settings.n_clusters, scaled=scaled, accept_units=spec.accept_units
    )
    verdicts = as_numbers(findings, replies.answers)
    transport.exchange({cid: Message(VERDICT.name, VERDICT.Ask(findings=found)) for cid, found in verdicts.items()})
    events.tell(
        "surveyed", silos=sorted(replies.answers), findings=[finding.to_dict() for finding in findings],
        received=[asdict(line) for line in received.values()],
    )  # fmt: skip
    differ = any(finding.severity == ERROR for finding in findings)
    if differ or spec.preflight == "only":
        events.tell("differ" if differ else "agree")
        events.tell("ended")
        return True
    there = max(int((answer.kinds == Kind.CATEGORY).sum()) for answer in replies.answers.values())
    known = sum(levels > 0 for levels in getattr(spec.settings, "levels", ()))
    if there != known:
        raise DataError(
            f"the silos have {there} column{'s' if there != 1 else ''} of categories, and the coordinator knows of "
            f"{known}: give it the schema that they have (--schema)"
        )
    return False


# -------------------------------------------------------------------------------------- what the coordinator keeps


def write_record(spec: RunSpec, record: RunRecord) -> None:
    """Keep what the coordinator has of a run: common structure, atlas and history, and nothing of a row."""
    server, settings = record.server, spec.settings
    atlas = spec.method.atlas(server, settings)
    surveyed = [event["received"] for event in at_coordinator(spec.folder).all() if event["event"] == "surveyed"][-1:]
    about = {
        **CONSENSUS.head,
        **{name: value for name, value in spec.for_silo().items() if name in ("run", "method", "settings")},
        **{name: getattr(record, name) for name in SAVED},
        "late": sorted(record.late),
        "n_iter": len(record.history) - record.before,
        "view": getattr(server, "view", None),
        "atlas": None if atlas is None else jsonable(atlas.to_dict()),
        "n_features": len(getattr(settings, "levels", ())) or getattr(server, "n_features", 0),
        "history": [asdict(line) for line in record.history],
        "received": [*(line for lines in surveyed for line in lines), *(asdict(line) for line in record.received)],
    }
    arrays = dict(record.common)
    shared = shared_by(server, settings) if spec.method.keeps else None  # advice has nothing to go on from
    if shared is not None:  # Z is there already, as the consensus
        inner, rest = flatten(shared, GOES_ON)
        about["shared"] = rest | {"view": shared.view}
        arrays |= {name: array for name, array in inner.items() if name != f"{GOES_ON}Z"}
    write_tensors(spec.folder / RESULT, arrays, about)


def _shared(arrays: dict[str, Any], rest: dict[str, Any] | None) -> Shared | None:
    if rest is None:
        return None
    if f"{GOES_ON}W" in arrays:
        arrays = arrays | {f"{GOES_ON}Z": arrays["consensus"]}
    found: Shared = unflatten(SHARED[rest["view"]], arrays, rest, GOES_ON)
    return found


def read_record(path: Path) -> tuple[RunRecord, dict[str, Any]]:
    """The record in a file of `write_record`, and the rest of what it says (run, method, settings)."""
    arrays, about = read_tensors(path, CONSENSUS)
    with well_formed(path):
        saved: dict[str, Any] = {
            name: tuple(about[name]) if isinstance(about[name], list) else about[name] for name in SAVED
        }
        record = RunRecord(
            tuple(RoundRecord.from_dict(line) for line in about["history"]),
            **saved,
            common={name: array for name, array in arrays.items() if not name.startswith(GOES_ON)},
            received=tuple(map(Total.from_dict, about["received"])),
            shared=_shared(arrays, about.get("shared")),
        )
    return record, about


def finished(spec: RunSpec) -> dict[str, Any] | None:
    """What the coordinator's folder says of a run that is over; None where it is not over yet."""
    if not (spec.folder / RESULT).exists():
        return None
    _, about = read_record(spec.folder / RESULT)
    same = (spec.run_id, spec.method.name, jsonable(asdict(spec.settings)))
    if (about.get("run"), about.get("method"), about.get("settings")) != same:
        raise FileError(
            f"{spec.folder} holds the result of a run with other settings: give the same settings again to write it "
            "down, or start a new run"
        )
    return about
