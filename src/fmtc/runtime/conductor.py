"""A run from the coordinator's side, over any transport: compare columns, train, say that it is over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..artifacts.files import check_schema, jsonable, read_json, read_tensors, write_json, write_tensors
from ..artifacts.states import flatten, unflatten
from ..errors import AbortedError, DataError, FileError, InputError, OwnError, TrustError
from ..protocol.base import Message
from ..protocol.end import END, told
from ..protocol.graph import METHOD
from ..protocol.method import Method
from ..protocol.survey import SURVEY
from ..protocol.verdict import VERDICT
from ..shared import Shared, kept
from .driver import ClientError, Received, Result, RoundRecord, Transport, add_received, run

CHECKPOINT = "checkpoint"  # folder in the coordinator's folder of a run
SURVEYED = "surveyed.json"  # in the coordinator's folder of a run: what a comparison of columns has received
RESULT = "result.safetensors"  # in the coordinator's folder of a run: what it came to
RESULT_FORMAT = 2
SHARED = "shared/"  # names of arrays in a result that go on where the run ended
PREFLIGHT = ("no", "first", "only")

Listen = Callable[..., None]  # an event's name, and facts about it


@dataclass(frozen=True)
class Spec:
    """What is to be run.

    Parameters
    ----------
    run_id : str
        Names the run in every message; attempts that continue a run have the same.
    settings : Settings
        Of the method.
    folder : Path
        Of the coordinator: checkpoint and result.
    method : Method
    weights : mapping of client id to float, optional
    min_clients : int, optional
    preflight : {"no", "first", "only"}
        Whether the clients' columns are compared before the first round; a difference that would spoil the run ends it.
    accept_units : bool
        Whether most columns of a client may be in other units than the others'.
    """

    run_id: str
    settings: Any
    folder: Path
    method: Method = METHOD
    weights: dict[str, float] | None = None
    min_clients: int | None = None
    preflight: str = "no"
    accept_units: bool = False


def conduct(transport: Transport, spec: Spec, listen: Listen) -> None:
    """Run a method to its end, from the last checkpoint if there is one; whatever happens is told to `listen`.

    The events are surveyed, differ, agree, round, done and ended; and, where the run cannot go on: aborted, lost (too
    few clients are there), stopped (too few clients can answer), refused data, trust refused, failed.
    """
    over = finished(spec)
    if over is not None:  # an earlier attempt wrote the result, and was lost before all clients knew
        held = over.get("held", ())
        return _end(transport, over["client_ids"], over["missing"], over["converged"], over.get("atlas"), held, listen)
    begun = (spec.folder / CHECKPOINT).exists()
    try:
        compare_first = spec.preflight == "only" or (spec.preflight == "first" and not begun)
        if compare_first and _differ(transport, spec, listen):
            return None
        result = run(
            transport,
            spec.settings,
            method=spec.method,
            weights=spec.weights,
            callbacks=[lambda record: listen("round", record=asdict(record))],
            checkpoint=spec.folder / CHECKPOINT,
            resume=True,
            min_clients=spec.min_clients,
        )
    except AbortedError:
        return listen("aborted")
    except ClientError as error:
        return listen("stopped" if isinstance(error.__cause__, OwnError) else "lost", why=str(error))
    except InputError as error:
        return listen("refused data", why=str(error))
    except TrustError as error:
        return listen("trust refused", why=str(error))
    except Exception as error:
        listen("failed", why=f"{type(error).__name__}: {error}")
        raise
    atlas = write_result(spec, result)
    held = getattr(result.server, "held", ())
    return _end(transport, result.server.client_ids, result.missing, bool(result.converged), atlas, held, listen)


def _end(
    transport: Transport,
    client_ids: Iterable[str],
    missing: Iterable[str],
    converged: bool,
    atlas: Mapping[str, Any] | None,
    held: Collection[str],
    listen: Listen,
) -> None:
    """Tell the clients that all have their numbers, how the run ended, and whether others have their concepts."""
    listen("done", missing=list(missing))
    asks = {cid: END.Ask(converged=converged, **told(atlas, cid, held)) for cid in client_ids}
    transport.exchange({cid: Message(END.name, ask) for cid, ask in asks.items()})
    listen("ended")


def _differ(transport: Transport, spec: Spec, listen: Listen) -> bool:
    """Compare the clients' columns and tell each what is odd about its own; whether the run ends with that."""
    from ..tables import compare
    from ..tables.findings import ERROR
    from ..tables.kinds import CATEGORY
    from ..tables.survey import as_numbers

    replies = transport.exchange({cid: Message(SURVEY.name, SURVEY.Ask()) for cid in transport.client_ids})
    if len(replies.answers) < (spec.min_clients or len(transport.client_ids)):
        cid, error = min(replies.failures.items())
        raise ClientError(f"client {cid!r} failed {SURVEY.doing}: {error}") from error
    received: dict[tuple[str, str], Received] = {}
    add_received(received, SURVEY, replies)
    write_json(spec.folder / SURVEYED, [asdict(line) for line in received.values()])
    scaled = getattr(spec.settings, "scale", "none") != "none"
    findings = compare(
        replies.answers, n_clusters=spec.settings.n_clusters, scaled=scaled, accept_units=spec.accept_units
    )
    verdicts = as_numbers(findings, replies.answers)
    transport.exchange({cid: Message(VERDICT.name, VERDICT.Ask(findings=found)) for cid, found in verdicts.items()})
    listen("surveyed", silos=sorted(replies.answers), findings=[asdict(finding) for finding in findings])
    differ = any(finding.severity == ERROR for finding in findings)
    if differ or spec.preflight == "only":
        listen("differ" if differ else "agree")
        listen("ended")
        return True
    there = max(int((answer.kinds == CATEGORY).sum()) for answer in replies.answers.values())
    known = sum(levels > 0 for levels in getattr(spec.settings, "levels", ()))
    if there != known:
        raise DataError(
            f"the clients have {there} column{'s' if there != 1 else ''} of categories, and the coordinator knows of "
            f"{known}: give it the schema that they have (`schema`)"
        )
    return False


# -------------------------------------------------------------------------------------- what the coordinator keeps


def write_result(spec: Spec, result: Result) -> dict[str, Any] | None:
    """Keep what the coordinator has of a run: common structure, atlas and history, and nothing of a row.

    Returns the atlas in what JSON knows, if there is one.
    """
    atlas = spec.method.atlas(result.server, spec.settings)
    document = None if atlas is None else jsonable(atlas.to_dict())
    surveyed = read_json(spec.folder / SURVEYED) if (spec.folder / SURVEYED).exists() else []
    about = {
        "kind": "fmtc consensus",
        "schema": RESULT_FORMAT,
        "run": spec.run_id,
        "method": spec.method.name,
        "settings": asdict(spec.settings),
        "client_ids": result.server.client_ids,
        "converged": result.converged,
        "stopped_because": result.stopped_because,
        "missing": result.missing,
        "n_iter": len(result.history) - result.before,
        "before": result.before,
        "why": getattr(result.server, "why", ""),
        "view": getattr(result.server, "view", None),
        "roster": getattr(getattr(result.server, "cards", None), "code", ""),
        "held": getattr(result.server, "held", ()),
        "atlas": document,
        "n_features": len(getattr(spec.settings, "levels", ())) or getattr(result.server, "n_features", 0),
        "history": [asdict(record) for record in result.history],
        "received": [*surveyed, *(asdict(line) for line in result.received)],
    }
    arrays = spec.method.common(result.server)
    shared = kept(result.server, spec.settings) if spec.method.keeps else None  # advice has nothing to go on from
    if shared is not None:  # Z is there already, as the consensus
        inner, about["shared"] = flatten(shared)
        arrays |= {f"{SHARED}{name}": array for name, array in inner.items() if name != "Z"}
    write_tensors(spec.folder / RESULT, arrays, about)
    return document


@dataclass(frozen=True)
class Kept:
    """What `write_result` kept, in the form of a `Result`: the server's common arrays in place of its state."""

    client_ids: tuple[str, ...]
    common: dict[str, Any]
    why: str = ""  # the view was chosen so
    roster: str = ""  # code of the roster, where only sums were seen
    held: tuple[str, ...] = ()  # clients that were capped, set aside or refused
    shared: Shared | None = None  # what all clients have in common; None in files of older versions

    @property
    def Z(self) -> Any:
        """The consensus of the graph view; None where the server saw sums only."""
        return self.common.get("consensus")

    @property
    def kappa(self) -> Any:
        """Pooling strength of each concept; None where a run has none."""
        return self.common.get("kappa")

    @property
    def influence(self) -> Any:
        """Who pulls whom; None where it is not known."""
        return self.common.get("influence")


def _shared(arrays: dict[str, Any], rest: dict[str, Any] | None) -> Shared | None:
    if rest is None:
        return None
    inner = {name.removeprefix(SHARED): array for name, array in arrays.items() if name.startswith(SHARED)}
    if "W" in inner:
        inner["Z"] = arrays["consensus"]
    found: Shared = unflatten(Shared, inner, rest)
    return found


def read_result(path: Path) -> tuple[Result, dict[str, Any]]:
    """The result in a file of `write_result`, and the rest of what it says (run, method, settings)."""
    arrays, about = read_tensors(path)
    check_schema(path, about, "fmtc consensus", RESULT_FORMAT)
    try:
        result = Result(
            Kept(
                tuple(about["client_ids"]),
                {name: array for name, array in arrays.items() if not name.startswith(SHARED)},
                about["why"],
                about.get("roster", ""),
                tuple(about.get("held", ())),
                _shared(arrays, about.get("shared")),
            ),
            tuple(RoundRecord.from_dict(line) for line in about["history"]),
            about["converged"],
            about["stopped_because"],
            tuple(about["missing"]),
            tuple(Received(**line | {"shape": tuple(line["shape"])}) for line in about["received"]),
            about["before"],
        )
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise FileError(f"{path} is damaged: {type(error).__name__} {error}") from None
    return result, about


def finished(spec: Spec) -> dict[str, Any] | None:
    """What the coordinator's folder says of a run that is over; None where it is not over yet."""
    if not (spec.folder / RESULT).exists():
        return None
    _, about = read_result(spec.folder / RESULT)
    same = (spec.run_id, spec.method.name, jsonable(asdict(spec.settings)))
    if (about.get("run"), about.get("method"), about.get("settings")) != same:
        raise FileError(
            f"{spec.folder} holds the result of a run with other settings: give the same settings again to write it "
            "down, or start a new run"
        )
    return about
