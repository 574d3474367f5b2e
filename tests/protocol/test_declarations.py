"""Every phase as it is declared: what may arrive, everything that may not, and how messages are packed and counted.

Cases are made from the declarations: a new field of a new phase is tested by being there.
"""

import subprocess
import sys
from dataclasses import MISSING, dataclass, fields, replace
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.errors import RefusedError, TrustError
from fmtc.privacy.rules import Rules
from fmtc.protocol.base import (
    DTYPES,
    LETTERS,
    Failure,
    Message,
    Nothing,
    Phase,
    check,
    declared,
    digest,
    entries,
    message_bytes,
    nbytes,
    pack,
    unpack,
)
from fmtc.protocol.common import END, SURVEY, VERDICT
from fmtc.protocol.graph.finish import FINISH, Finish
from fmtc.protocol.graph.number import NUMBER, SHARES, Presence
from fmtc.protocol.graph.opening import HELLO, PREPARE
from fmtc.protocol.graph.round import ROUND
from fmtc.protocol.method import COMMON, METHODS, method_of
from fmtc.protocol.mixture.opening import SEED
from fmtc.protocol.sums.graph import FRAME
from fmtc.protocol.units import MOMENTS, RESCALE

SIZES = {"D": 6, "d": 6, "k": 3, "K": 3, "m": 4}  # what both sides may know of shapes
LENGTH = 2  # of a letter that only the message knows; k at most


PHASES = {phase.name: phase for phase in COMMON}
for method in map(method_of, METHODS):  # views of FMTC have phases in common
    for phase in method.phases:
        phase = getattr(phase, "inner", phase)  # masks are tested in tests/privacy/test_keys.py
        if phase not in PHASES.values():
            PHASES[f"{method.name} {phase.name}"] = phase
SIDES = {f"{name} {side}": (phase, side) for name, phase in PHASES.items() for side in ("Ask", "Answer")}
WITH_FIELDS = {name: (phase, side) for name, (phase, side) in SIDES.items() if entries(getattr(phase, side))}
each_phase = pytest.mark.parametrize("phase", PHASES.values(), ids=PHASES)
each_side = pytest.mark.parametrize(("phase", "side"), SIDES.values(), ids=SIDES)


def each_field(test):
    """Run a test on every field of a message, in one go: there are hundreds. An error names the field."""

    @pytest.mark.parametrize(("phase", "side"), WITH_FIELDS.values(), ids=WITH_FIELDS)
    def on_all(phase, side):
        for name in entries(getattr(phase, side)):
            try:
                test(phase, side, name)
            except BaseException as error:
                error.add_note(f"of the field {name!r}")
                raise

    on_all.__name__, on_all.__doc__ = test.__name__, test.__doc__
    return on_all


def test_every_method_has_the_name_it_is_known_by():
    assert [method_of(name).name for name in METHODS] == list(METHODS)


# ----------------------------------------------------------------------------------------- a good message of any kind


def good_value(entry, offset=0):
    """A value that suits a declaration: the first of some simple ones."""
    if entry.shape is None:
        other = entry.kind == "word" and entry.check is not None and entry.check("OSError", SIZES) is not None
        word = "0" * 16 if other else "OSError"
        return {"float": 0.5 + offset, "count": 5 + offset, "flag": True, "word": word}[entry.kind]
    shape = tuple(int(size) if size.isdigit() else SIZES.get(size, LENGTH) for size in entry.shape)
    dtype = np.dtype(DTYPES[entry.kind][-1])
    n = int(np.prod(shape))
    candidates = [np.ones(shape), np.arange(n).reshape(shape), np.full(shape, 100), 2 + np.arange(n).reshape(shape)]
    if len(shape) >= 2:
        candidates.insert(1, np.broadcast_to(np.eye(*shape[-2:]), shape))
    if shape:
        candidates.append(np.full(shape, 1 / shape[-1]))  # shares
    for value in (candidate.astype(dtype) for candidate in candidates):
        if entry.check is None or entry.check(value, SIZES) is None:
            return value
    raise AssertionError(f"no simple value suits {entry.what!r}: add one")


def good_message(kind, wanted=()):
    """A message with as many fields as fit together, the wanted ones among them."""
    values = {name: good_value(entry) for name, entry in entries(kind).items()}
    free = [name for name, entry in entries(kind).items() if entry.when and name not in wanted]
    for n_left_out in range(len(free) + 1):
        for left_out in combinations(free, n_left_out):
            message = kind(**{name: value for name, value in values.items() if name not in left_out})
            if not hasattr(message, "wrong") or message.wrong() is None:
                return message
    raise AssertionError(f"no message of {kind.__qualname__} is good")


def arrive(phase, side, message):
    """Check a message as its receiver does."""
    if side == "Ask":
        phase.check_ask(message, SIZES)
    else:
        phase.check_answer(message, good_message(phase.Ask), SIZES)


# ------------------------------------------------------------------------------------------------------- declarations


@each_phase
def test_a_phase_says_what_it_is_for(phase):
    assert phase.name.isidentifier()
    assert phase.doing
    assert phase.subject in ("client", "keys", "table", "run")
    assert phase.releases == bool(entries(phase.Answer))


@each_field
def test_every_field_says_what_it_is_and_what_it_tells(phase, side, name):
    entry = entries(getattr(phase, side))[name]
    assert entry.what
    assert entry.tells[-1:] == "."
    assert len(entry.tells.split()) >= 2
    assert not {"|", "\n"} & set(entry.what + entry.tells + entry.when)  # it is a cell of a table
    assert entry.size
    if entry.shape is not None:
        assert entry.kind in DTYPES
        assert {letter for letter in entry.shape if not letter.isdigit()} <= set(LETTERS)


def test_names_of_phases_differ():
    for method in map(method_of, METHODS):
        names = [phase.name for phase in (*COMMON, *method.phases)]
        assert len(set(names)) == len(names)
        assert [method.phase(name).name for name in names] == names
        with pytest.raises(RefusedError):
            method.phase("dance")


def test_a_phase_that_releases_something_says_what_protects_it():
    def releasing(*above, **more):
        return type("Leak", above or (Phase,), {"name": "leak", "Answer": Presence, **more})

    for above in ((), (Finish,)):  # another answer is not covered by the rule of the one it replaces
        with pytest.raises(TypeError, match="phase Leak releases an answer and does not declare `protect`"):
            releasing(*above)
        assert releasing(*above, protect=SHARES).protect is SHARES
    assert releasing(Answer=Nothing)


def test_an_answer_that_needs_a_mask_does_not_leave_without():
    with pytest.raises(TrustError, match="cannot leave without a mask"):
        Rules().protect(FRAME, FRAME.Answer(turned=np.eye(2)), None)


def test_an_unknown_method_is_refused():
    with pytest.raises(RefusedError):
        method_of("dance")


def test_an_undeclared_field_cannot_be_made():
    @dataclass(frozen=True)
    class Note:
        words: str

    with pytest.raises(KeyError):
        entries(Note)


# ------------------------------------------------------------------------------------------------- what may not arrive


@each_side
def test_a_good_message_passes_and_comes_back_from_its_packed_form(phase, side):
    message = good_message(getattr(phase, side))
    arrive(phase, side, message)
    flat = pack(message)
    assert {type(value) for value in flat.values()} <= {np.ndarray, int, float, str, bool}
    again = unpack(type(message), flat)
    arrive(phase, side, again)
    for field in fields(message):
        assert_array_equal(getattr(again, field.name), getattr(message, field.name))
    assert digest(again) == digest(message)


@each_side
def test_a_message_of_another_phase_is_refused(phase, side):
    @dataclass(frozen=True)
    class Stranger:
        pass

    for message in (Stranger(), None, {}, pack(good_message(getattr(phase, side)))):
        with pytest.raises(RefusedError):
            arrive(phase, side, message)


@each_side
def test_fields_that_nobody_agreed_on_are_refused(phase, side):
    kind = getattr(phase, side)
    with pytest.raises(RefusedError, match="labels"):
        unpack(kind, {**pack(good_message(kind)), "labels": np.zeros(3)})


def bad_values(value, entry, sizes):
    """Values that no message may hold in place of a good one."""
    if entry.kind == "word":
        return [3, b"x", None]
    if entry.shape is None:
        numbers = {
            "float": [float("nan"), float("inf"), -float("inf"), "1", True, 1j, 10**400, np.zeros(1)],
            "count": [-1, 1.5, 5.0, True, "3", 2**60, np.zeros(1, int)],
            "flag": [1, 0, "yes", np.zeros(1, bool)],
        }
        return numbers[entry.kind]
    others = [value.astype(dtype) for dtype in ("complex128", "float16", "str", "object", "bool")]
    other_kind = next(kind for kind in ("float64", "int16", "uint8") if kind not in DTYPES[entry.kind])
    found = [value.tolist(), value[None], value.ravel() if value.ndim > 1 else value[:, None], 0.5, "W",
             *others, value.astype(other_kind)]  # fmt: skip
    for axis, letter in enumerate(entry.shape):
        if letter.isdigit() or letter in sizes:  # one row more, one row less
            found += [
                np.concatenate([value, value.take([0], axis)], axis),
                value.take(range(value.shape[axis] - 1), axis),
            ]
    if value.dtype.kind == "f":
        for bad in (np.nan, np.inf):
            found.append(value.copy())
            found[-1].flat[-1] = bad
    return found


@each_field
def test_values_that_do_not_fit_the_declaration_are_refused(phase, side, name):
    kind = getattr(phase, side)
    message = good_message(kind, wanted=(name,))
    arrive(phase, side, message)
    entry, value = entries(kind)[name], getattr(message, name)
    others = {letter for other, e in entries(kind).items() if other != name for letter in e.shape or ()
              if getattr(message, other) is not None}  # fmt: skip
    repeated = {letter for letter in entry.shape or () if entry.shape.count(letter) > 1}
    asked = {letter for e in entries(phase.Ask).values() for letter in e.shape or ()} if side == "Answer" else set()
    for bad in bad_values(value, entry, set(SIZES) | others | repeated | asked):
        with pytest.raises(RefusedError):
            arrive(phase, side, replace(message, **{name: bad}))


@each_field
def test_a_field_may_be_left_out_only_where_the_declaration_says_when(phase, side, name):
    kind = getattr(phase, side)
    message, entry = good_message(kind, wanted=(name,)), entries(kind)[name]
    flat = {field: value for field, value in pack(message).items() if field != name}
    declared_field = next(field for field in fields(kind) if field.name == name)
    if entry.when:
        assert declared_field.default is None
        assert getattr(unpack(kind, flat), name) is None
    else:
        assert declared_field.default is MISSING
        with pytest.raises(RefusedError, match=name):
            unpack(kind, flat)
        with pytest.raises(RefusedError, match=name):
            arrive(phase, side, replace(message, **{name: None}))


def test_required_fields_are_checked_without_assertions_too():
    """Python can be told to leave assertions out."""
    program = """
import sys
import numpy as np
from dataclasses import replace
from fmtc.protocol.state import open_client
from fmtc.errors import RefusedError
from fmtc.settings import Settings
from fmtc.protocol.base import Message, unpack
from fmtc.protocol.graph.view import METHOD
from fmtc.protocol.graph.round import ROUND
from fmtc.runtime.local import LocalTransport
try:
    assert False
except AssertionError:
    sys.exit("assertions are on")
X, settings, refused = np.random.default_rng(0).normal(size=(20, 4)), Settings(2), 0
ask, answer = ROUND.Ask(anchor=np.zeros((4, 2))), ROUND.Answer(W=np.zeros((4, 2)), cut=0.0, misfit=0.0)
node = LocalTransport({"a": X}, settings).nodes["a"]
for attempt in (
    lambda: unpack(ROUND.Answer, {"W": answer.W}),
    lambda: ROUND.check_ask(replace(ask, anchor=None), {"d": 4, "k": 2}),
    lambda: ROUND.check_answer(replace(answer, cut=None), ask, {"d": 4, "k": 2}),
    lambda: ROUND.check_answer(replace(answer, W=[[0.0]]), ask, {"d": 4, "k": 2}),
    lambda: ROUND.reply(open_client("a", X, settings), ask, settings, 1),
    lambda: node.answer(Message("round", ask, 1)),
):
    try:
        attempt()
    except RefusedError:
        refused += 1
print(refused)
"""
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "6\n"


@each_phase
def test_a_failure_takes_the_place_of_any_answer(phase):
    ask = good_message(phase.Ask)
    phase.check_answer(Failure(error="MemoryError"), ask, SIZES)
    for bad in ("rows: 1.5, 2.5", "", "x" * 100, "1st", 3, None):
        with pytest.raises(RefusedError):
            phase.check_answer(Failure(error=bad), ask, SIZES)


# ------------------------------------------------------------------------------------- conditions, phase by phase

ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
SURVEYED = good_message(SURVEY.Answer)
MATTERS = [
    (PREPARE, PREPARE.Ask(scale=0.0, ridge=0.03)),
    (PREPARE, PREPARE.Ask(scale=0.5, ridge=-1.0)),
    (ROUND, ROUND.Ask(anchor=np.ones((6, 3)), rotation=np.ones((3, 3)))),
    (ROUND, ROUND.Ask(anchor=np.ones((6, 3)), rotation=1.001 * ROTATION)),
    (FINISH, FINISH.Ask(rotation=-2 * np.eye(3))),
    (NUMBER, NUMBER.Ask(order=np.array([0, 0, 1]))),
    (NUMBER, NUMBER.Ask(order=np.array([1, 2, 3]))),
    (RESCALE, RESCALE.Ask(stretch=np.array([1.0, 0.0]))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(2), shift=np.zeros(3))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(2), keep=np.array([1, 6]))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(2), keep=np.array([3, 1]))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(2), keep=np.array([1, 1]))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(2), keep=np.array([-1, 1]))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(1), keep=np.array([2**64 - 1], np.uint64))),
    (RESCALE, RESCALE.Ask(stretch=np.ones(0), keep=np.zeros(0, int))),
    (VERDICT, VERDICT.Ask(findings=np.array([[99.0, 0, 0, 0, 0]]))),
    (VERDICT, VERDICT.Ask(findings=np.array([[1.0, 0, 6, 0, 0]]))),
    (VERDICT, VERDICT.Ask(findings=np.array([[1.0, 0, 0, -2, 0]]))),
    (HELLO, HELLO.Answer(n_samples=9, n_features=5, sum_of_squares=-1.0)),
    (MOMENTS, MOMENTS.Answer(n_samples=9)),
    (MOMENTS, MOMENTS.Answer(n_samples=9, squares=np.ones(6), document_counts=np.ones(6))),
    (MOMENTS, MOMENTS.Answer(n_samples=9, means=np.ones(6), document_counts=np.ones(6))),
    (MOMENTS, MOMENTS.Answer(n_samples=9, means=np.ones(5), squares=np.ones(6))),
    (SURVEY, replace(SURVEYED, columns=np.ones(6, np.uint64))),
    (SURVEY, replace(SURVEYED, kinds=np.full(6, 8, np.int8))),
    (SURVEY, replace(SURVEYED, kinds=np.full(6, -1, np.int8))),
    (SURVEY, replace(SURVEYED, counts=np.full(6, 6))),  # of five rows
    (SURVEY, replace(SURVEYED, counts=np.full(6, -1))),
    (SURVEY, replace(SURVEYED, missing=np.full(6, 5))),  # with one that is there
    (SURVEY, replace(SURVEYED, negatives=np.full(6, 2))),  # of one
    (SURVEY, replace(SURVEYED, means=np.full(6, 1e150))),
    (SURVEY, replace(SURVEYED, squares=np.full(6, -1.0))),
    (SURVEY, replace(SURVEYED, squares=np.full(6, 1e300))),
]  # fmt: skip


@pytest.mark.parametrize(("phase", "message"), MATTERS, ids=lambda value: getattr(value, "name", None))
def test_what_cannot_be_true_is_refused(phase, message):
    side = "Ask" if type(message) is phase.Ask else "Answer"
    with pytest.raises(RefusedError):
        arrive(phase, side, message)


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (ROUND, ROUND.Ask(anchor=np.ones((6, 3), np.float32))),
        (ROUND, ROUND.Ask(anchor=np.ones((6, 3)), rotation=ROTATION.astype(np.float32))),
        (ROUND, ROUND.Answer(W=np.ones((6, 3), np.float32), cut=0, misfit=np.float32(0.25))),
        (FINISH, FINISH.Ask()),
        (NUMBER, NUMBER.Ask(order=np.array([2, 0, 1], np.int32))),
        (RESCALE, RESCALE.Ask(stretch=np.ones(2), keep=np.array([1, 5]))),
        (HELLO, HELLO.Answer(n_samples=np.int64(9), n_features=0, sum_of_squares=0.0)),
        (MOMENTS, MOMENTS.Answer(n_samples=9, squares=np.ones(6))),
        (MOMENTS, MOMENTS.Answer(n_samples=9, document_counts=np.arange(6))),
        (VERDICT, VERDICT.Ask(findings=np.zeros((0, 5)))),
        (VERDICT, VERDICT.Ask(findings=np.array([[17.0, 1, -1, -1, -9.5]]))),
        (END, END.Ask(converged=False)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_can_be_true_passes(phase, message):
    arrive(phase, "Ask" if type(message) is phase.Ask else "Answer", message)


def test_a_survey_is_of_one_column_at_least():
    none = {name: value[:0] if isinstance(value, np.ndarray) else value for name, value in pack(SURVEYED).items()}
    with pytest.raises(RefusedError):
        SURVEY.check_answer(SURVEY.Answer(**none), Nothing(), {})


def test_an_answer_must_fit_the_question():
    """The server knows the number of clusters; the number of features it takes from what it asked."""
    ask = ROUND.Ask(anchor=np.zeros((7, 3)))
    ROUND.check_answer(ROUND.Answer(W=np.zeros((7, 3)), cut=0.0, misfit=0.0), ask, {"k": 3})
    for shape in ((6, 3), (3, 7), (7, 4)):
        with pytest.raises(RefusedError):
            ROUND.check_answer(ROUND.Answer(W=np.zeros(shape), cut=0.0, misfit=0.0), ask, {"k": 3})


def test_checking_tells_the_sizes_that_a_message_brings():
    sizes = {"D": 6}
    check(RESCALE.Ask(stretch=np.ones(2), keep=np.array([0, 3])), RESCALE.Ask, "rescale", sizes)
    assert sizes == {"D": 6, "c": 2}


# ------------------------------------------------------------------------------------------------ digests and bytes


def changed(value):
    """The same value but for its last bit, or the nearest thing to it."""
    if not isinstance(value, np.ndarray):
        return {bool: lambda v: not v, str: lambda v: v + "s"}.get(type(value), lambda v: np.nextafter(v, 9).item())(
            value
        )
    other = value.copy()
    other.view(np.uint8).reshape(-1)[-1] ^= 1
    return other


@each_field
def test_a_digest_changes_with_any_bit_shape_and_type(phase, side, name):
    message = good_message(getattr(phase, side), wanted=(name,))
    value = getattr(message, name)
    others = [changed(value)]
    if isinstance(value, np.ndarray):
        swaps = {"float64": "float32", "int64": "uint64", "uint64": "int64", "int8": "uint8", "uint8": "int8"}
        swapped = swaps[value.dtype.name]
        others += [
            value.reshape(-1, 1),
            value.astype(swapped),
            value.view(swapped) if swapped != "float32" else value[::-1][:-1],
        ]
    for other in others:
        assert digest(replace(message, **{name: other})) != digest(message)
    if isinstance(value, np.ndarray):  # how it lies in memory is no difference
        assert digest(replace(message, **{name: np.asfortranarray(value)})) == digest(message)


def test_digests_tell_phases_fields_and_numbers_apart():
    messages = [
        Nothing(), FINISH.Ask(), FINISH.Ask(rotation=np.eye(3)), FINISH.Answer(centers=np.eye(3)),
        SEED.Ask(centers=np.ones((2, 3, 3)), weights=np.ones((2, 3))),
        SEED.Answer(counts=np.ones((2, 3)), sums=np.ones((2, 3, 3))),
        VERDICT.Ask(findings=np.zeros((0, 5))),
        RESCALE.Ask(stretch=np.ones(3)), RESCALE.Ask(stretch=np.ones(3), shift=np.ones(3)),
        PREPARE.Ask(scale=1.0, ridge=2.0), PREPARE.Ask(scale=2.0, ridge=1.0), PREPARE.Ask(scale=1, ridge=2),
    ]  # fmt: skip
    assert len({digest(message) for message in messages}) == len(messages)

    @dataclass(frozen=True)
    class Two:
        one: float | None = None
        other: float | None = None

    assert digest(Two(one=1.0)) != digest(Two(other=1.0))
    # numbers are those of Python, whatever library made them: they are so when they come back from a file
    assert digest(PREPARE.Ask(scale=np.float64(1.0), ridge=2.0)) == digest(PREPARE.Ask(scale=1.0, ridge=2.0))


def test_a_question_is_digested_once_and_afresh_for_each_message():
    message = Message("finish", FINISH.Ask(rotation=np.eye(3)), 4, 3)
    assert message.asked == message.asked == digest(message.ask)
    assert replace(message, ask=FINISH.Ask()).asked == digest(FINISH.Ask())
    assert message.key == ("finish", 4, 0)


@pytest.mark.parametrize(
    ("message", "weight"),
    [
        (Nothing(), 0),
        (HELLO.Answer(n_samples=10, n_features=4, sum_of_squares=2.5), 3 * 8),
        (MOMENTS.Answer(n_samples=10, means=np.ones(5), squares=np.ones(5)), 8 + 2 * 5 * 8),
        (MOMENTS.Answer(n_samples=10, document_counts=np.arange(5)), 8 + 5 * 8),
        (ROUND.Answer(W=np.ones((5, 3)), cut=0.5, misfit=0.25), 5 * 3 * 8 + 2 * 8),
        (ROUND.Answer(W=np.ones((3, 2)), cut=0.5, misfit=0.25), 64),
        (FINISH.Answer(centers=np.ones((3, 3), dtype=np.float32)), 3 * 3 * 4),
        (Failure(error="MemoryError"), 11),
        (Message("hello", Nothing()), 5 + 2 * 8),
        (Message("rescale", RESCALE.Ask(shift=np.zeros(5), stretch=np.ones(5))), 7 + 2 * 8 + 2 * 5 * 8),
        (Message("rescale", RESCALE.Ask(stretch=np.ones(2), keep=np.array([0, 3]))), 7 + 2 * 8 + 2 * 2 * 8),
        (Message("prepare", PREPARE.Ask(scale=2.0, ridge=0.03)), 7 + 4 * 8),
        (Message("round", ROUND.Ask(anchor=np.zeros((5, 3)), rotation=np.eye(3)), 7, 5), 5 + 2 * 8 + (15 + 9) * 8),
        (Message("number", NUMBER.Ask(order=np.arange(3))), 6 + 2 * 8 + 3 * 8),
    ],
    ids=lambda value: type(getattr(value, "ask", value)).__qualname__ if not isinstance(value, int) else None,
)
def test_bytes_of_a_message(message, weight):
    assert (message_bytes(message) if isinstance(message, Message) else nbytes(message)) == weight


# ------------------------------------------------------------------------------------------------------ documentation


def test_declarations_can_be_printed():
    import json

    phases = (*COMMON, *method_of("fmtc").phases)
    listed = declared(phases)
    assert json.loads(json.dumps(listed)) == listed
    assert [each["phase"] for each in listed] == [phase.name for phase in phases]
    (of_round,) = [each for each in listed if each["phase"] == "round"]
    assert [field["name"] for field in of_round["answers"]] == ["W", "cut", "misfit"]
    assert [(field["name"], field["shape"]) for field in of_round["asks"]] == [
        ("anchor", "d × k"),
        ("rotation", "k × k"),
        ("before", "a number"),
    ]
