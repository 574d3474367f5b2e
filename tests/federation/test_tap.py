"""A tap between FLARE and the network, with real processes: what leaves a silo is in its ledger."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

import msgpack
import numpy as np
import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.decomposers import numpy_decomposers
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.utils import fobs
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from fmtc.artifacts.files import read_json, read_tensors, write_json
from fmtc.privacy.ledger import LEDGER, read_lines
from fmtc.protocol.base import value_digest
from fmtc.runtime.flare.local import LocalFederation
from fmtc.runtime.kitclient import STATES, ClientSource
from fmtc.settings import Settings

from .commands import in_process
from .conftest import silo_rows
from .proxy import Proxy

pytestmark = pytest.mark.federation

NOWHERE = "10.255.255.255"  # FLARE asks the kernel for its own address with a datagram socket, and sends nothing


LEAKING = "c"  # the silo whose software was changed


class Relayed(LocalFederation):
    """A federation whose silos dial through relays that count bytes, one for each silo; one of them is not honest."""

    def start(self, cid):
        if not hasattr(self, "relays"):
            self.relays = {}
        if cid not in self.relays:
            self.relays[cid] = Proxy(self.kits[cid].plan.port)
            file = self.kits[cid].startup / "fed_client.json"
            config = read_json(file)
            config["servers"][0]["service"]["target"] = f"localhost:{self.relays[cid].port}"
            write_json(file, config)
        with pytest.MonkeyPatch.context() as patch:
            if cid == LEAKING:
                patch.setenv("FMTC_TEST_LEAK", "1")
            super().start(cid)

    def __exit__(self, *what):
        super().__exit__(*what)
        for relay in getattr(self, "relays", {}).values():
            relay.__exit__()


@dataclass
class Frame:
    """What FLARE handed to a connection."""

    site: str  # of the process that sent it
    peer: str  # whom the other end's certificate names
    address: str  # of the other end
    content: bytes


@dataclass
class Observed:
    """What one silo did in a run."""

    site: str
    frames: list[Frame]
    dialled: set[tuple]  # stream sockets: host and port
    datagrams: set[str]
    up: int  # bytes at the socket, to the coordinator
    relay: int  # port at which the silo reaches the coordinator
    ledger: list[dict]
    private: dict[str, list[bytes]] = field(default_factory=dict)  # what must not leave, as bytes
    certificate: bytes = b""
    verified: int = 1  # exit code of `fmtc outbox verify`


def read_frames(folder):
    """All frames of all processes, by site; and the processes of each site."""
    frames, processes = defaultdict(list), defaultdict(set)
    for path in folder.glob("*.frames"):
        content, at = path.read_bytes(), 0
        while at < len(content):
            about, length = struct.unpack_from(">II", content, at)
            line = json.loads(content[at + 8 : at + 8 + about])
            at += 8 + about + length
            (site,) = [word.partition("=")[2] for word in line["argv"] if word.startswith("uid=")] or [""]
            of = line["of"]
            frames[site].append(Frame(site, of["peer_cn"], of["peer_addr"], content[at - length : at]))
            processes[site].add(int(path.stem))
    return frames, processes


def pieces(X):
    """Each number of an array, and the array, as they would look in a message."""
    numbers = {struct.pack(order, value) for value in np.ravel(X) if value != 0 for order in ("<d", ">d")}
    return [*numbers, np.ascontiguousarray(X).tobytes(), np.asfortranarray(X).tobytes(order="F")]


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """What three silos did in a run, watched at every connection and at every socket."""
    folder, rows = tmp_path_factory.mktemp("tapped"), silo_rows()
    (folder / "frames").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FMTC_TEST_TAP", str(folder / "frames"))
        patch.setenv("FMTC_TEST_RECORD", str(folder / "record.jsonl"))
        with Relayed([ClientSource(cid, "") for cid in rows], rows=rows) as fed:
            outcome = fed.run(Settings(n_clusters=4, max_iter=3, tol=0, n_neighbors=15))
            kept = {}
            for cid, kit in fed.kits.items():
                states = sorted((kit.path / STATES / fed.spec.run_id).glob("round-*.safetensors"))
                labels = outcome.kept[cid].client.labels
                kept[cid] = {
                    "rows": pieces(rows[cid]),
                    "F": [piece for state in states for piece in pieces(read_tensors(state)[0]["F"])],
                    "labels": [labels.astype(kind).tobytes() for kind in ("<i8", ">i8", "<i4", ">i4", "i1")],
                }
            verified = {cid: in_process("outbox", "verify", kit.path).exit_code for cid, kit in fed.kits.items()}
            ledgers = {cid: read_lines(kit.path / LEDGER) for cid, kit in fed.kits.items()}
            certificates = {cid: (kit.startup / "client.crt").read_bytes() for cid, kit in fed.kits.items()}
            sites = {cid: kit.site for cid, kit in fed.kits.items()}
    frames, processes = read_frames(folder / "frames")
    asked = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    found = {}
    for cid, site in sites.items():
        dials = [
            (tuple(what), kind)
            for event, what, kind, process in asked
            if event in ("socket.connect", "socket.sendto") and process in processes[site]
        ]
        found[cid] = Observed(
            site, frames[site],
            {tuple(what[:2]) for what, kind in dials if kind == "SOCK_STREAM"},
            {what[0] for what, kind in dials if kind != "SOCK_STREAM"},
            fed.relays[cid].up, fed.relays[cid].port, ledgers[cid], kept[cid], certificates[cid], verified[cid],
        )  # fmt: skip
        assert len(processes[site]) == 2  # FLARE's process of the silo, and that of the job
    return found


@pytest.fixture(scope="module")
def silos(observed):
    """What the honest ones did."""
    return {cid: found for cid, found in observed.items() if cid != LEAKING}


# ----------------------------------------------------------------------------------------------------- reading frames


def messages(frames):
    """Contents of the messages that these frames carry, each whole: FLARE cuts what is long into several."""
    nvflare_fobs_initialize()
    numpy_decomposers.register()
    parts = defaultdict(dict)
    for place, frame in enumerate(frames):
        prefix = Prefix.from_bytes(frame.content)
        assert prefix.length == len(frame.content)
        if prefix.type != Types.DATA:  # a greeting, or a sign of life: plain values
            yield msgpack.unpackb(frame.content[PREFIX_LEN:]) if prefix.length > PREFIX_LEN else {}
            continue
        start = PREFIX_LEN + prefix.header_len
        headers = msgpack.unpackb(frame.content[PREFIX_LEN:start])
        yield headers
        # 1 and 2 are pieces of a stream; confirmations and errors bear the number of the stream that they are about
        stream = headers.get("sm__id") if headers.get("sm__dt") in (1, 2) else None
        encoding = headers.get("sm__pe", headers["cn__payload_encoding"])
        piece = encoding, frame.content[start:]
        parts[frame.address, stream or f"frame {place}"][headers.get("sm__sq", 0)] = piece  # once, if sent again
    for pieces in parts.values():
        content = b"".join(piece for _, (_, piece) in sorted(pieces.items()))
        encodings = {encoding for encoding, _ in pieces.values()}
        assert len(encodings) == 1
        if content:
            assert encodings == {"fobs"}, encodings  # or it could not be read here
            yield fobs.loads(content)


def is_answer(message):
    return isinstance(message, dict) and "DXO" in message


def answers(observed):
    """Answers of our own, as they crossed: phase, round, turn and the digest of each field."""
    for message in messages(observed.frames):
        if is_answer(message):
            meta, flat = message["DXO"]["meta"], dict(message["DXO"]["data"])
            assert flat.pop("kind") == meta["kind"]
            yield meta["phase"], meta["round_no"], meta["turn"], {n: value_digest(v) for n, v in flat.items()}


def leaves(value, path=""):
    """All single values inside a message, with the way to each."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}/{name}")
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from leaves(inner, path)
    elif isinstance(value, FLContext):  # of which FLARE sends the properties
        yield from leaves(value.props, path)
    elif isinstance(value, AdminMessage):  # says how a job is doing
        yield from leaves(vars(value), path)
    else:
        yield path, value


PLAIN = (str, int, float, Enum, type(None))  # names, times, numbers of tasks: what FLARE says of itself
PLACE = {"run", "kind", "phase", "round_no", "last_round", "turn"}


def beside_the_outbox(observed):
    """Whatever left the silo that its ledger does not have."""
    recorded = [
        (line["phase"], line["round"], line["turn"], {entry["field"]: entry["sha256"] for entry in line["fields"]})
        for line in observed.ledger
    ]
    crossed = list(answers(observed))
    found = {f"an answer to {answer[0]}" for answer in crossed if answer not in recorded}
    found |= {f"no answer to {answer[0]}" for answer in recorded if answer not in crossed}
    for message in messages(observed.frames):
        if is_answer(message):
            assert set(message["DXO"]) == {"kind", "data", "meta"}
            found |= {f"meta {name}" for name in set(message["DXO"]["meta"]) - PLACE}
            found |= {f"field {name}" for name in set(message) - {"DXO", "__headers__"}}
            message = message["__headers__"]
        for path, value in leaves(message):
            # once, to register
            of_certificate = path == "/signature" or (path, value) == (
                "/cert",
                observed.certificate,
            )
            if not isinstance(value, PLAIN) and not of_certificate:
                found.add(f"{type(value).__name__} in {path}")
    everything = b"".join(frame.content for frame in observed.frames)
    for name, secrets in observed.private.items():
        if any(secret in everything for secret in secrets):
            found.add(f"of {name}")
    return found


# -------------------------------------------------------------------------------------------------------------- tests


def test_what_leaves_a_silo_is_in_its_ledger_and_nothing_else_is(silos):
    for observed in silos.values():
        assert beside_the_outbox(observed) == set()
        phases = {phase for phase, *_ in answers(observed)}
        assert phases >= {"hello", "prepare", "round", "finish", "end"}
        assert observed.verified == 0


def test_the_tap_sees_what_is_on_the_wire(silos):
    """It would find a row: the W of an answer is in the frames as the bytes it has in the silo."""
    for observed in silos.values():
        everything = b"".join(frame.content for frame in observed.frames)
        Ws = [message["DXO"]["data"]["W"] for message in messages(observed.frames)
              if is_answer(message) and "W" in message["DXO"]["data"]]  # fmt: skip
        assert len(Ws) == 3
        assert all(W.tobytes() in everything for W in Ws)
        assert all(observed.private.values())


def test_a_silo_dials_the_coordinator_and_nobody_else(silos):
    """But for its own process of FLARE, to which the process of a job belongs; that one has the silo's certificate."""
    for observed in silos.values():
        peers = {frame.peer for frame in observed.frames}
        assert peers == {"server", observed.site}
        here = {frame.address for frame in observed.frames if frame.peer == observed.site}
        inside = {("localhost", int(address.rpartition(":")[2])) for address in here}
        inside |= {("127.0.0.1", port) for _, port in inside}
        coordinator = {(host, observed.relay) for host in ("localhost", "127.0.0.1")}
        assert observed.dialled & coordinator
        assert observed.dialled <= coordinator | inside
        assert observed.datagrams <= {NOWHERE}


def test_the_socket_carries_what_was_tapped_and_no_more(silos):
    """Encrypted bytes exceed those of the frames by headers, and by a handshake for each connection."""
    for observed in silos.values():
        outside = [frame for frame in observed.frames if frame.peer == "server"]
        tapped = sum(len(frame.content) for frame in outside)
        handshakes = 2 * 10_000  # of two processes: certificates, and the opening of a WebSocket
        assert tapped - 5_000 < observed.up < tapped + 64 * len(outside) + handshakes  # a last frame may be cut off


def test_a_door_beside_the_outbox_is_found(observed):
    """The run goes on, the ledger is whole, and the coordinator ignores it: only the tap sees it."""
    assert beside_the_outbox(observed[LEAKING]) == {"field beside", "of rows"}
    assert observed[LEAKING].verified == 0
