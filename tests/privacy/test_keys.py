"""Masks that cancel, and who may take part in a sum."""

import itertools
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fmtc import Privacy
from fmtc.errors import DataError, InputError, RefusedError, TrustError
from fmtc.privacy.accounting import epsilon_of, mu_of, without_colluders
from fmtc.privacy.floor import Floor
from fmtc.privacy.identity import SelfSigned
from fmtc.privacy.keys import Keys, Rosters, isolates, mask
from fmtc.protocol.base import Message, Nothing, Phase, array, number
from fmtc.protocol.sums.cards import Card
from fmtc.protocol.sums.masking import ONLY_SUM, Masked, Masking, encoded, opened
from fmtc.settings import Settings

METHOD = "fmtc-mixture-sums"
SETTINGS = Settings(privacy="sums", view="mixture")


class Toy(Phase):
    """A sum of a matrix and a count."""

    name = "toy"
    doing = "testing"
    protect = ONLY_SUM
    sums = True

    @dataclass(frozen=True, kw_only=True)
    class Answer:
        A: np.ndarray = array("a b", "a matrix")
        n: int = number("a count", kind="count")


class Short(Toy):
    limbs, fraction = 1, 40


TOY, SHORT = Masking(Toy()), Masking(Short())
ASKED = Message("toy", Nothing(), 3, 2, 1)


def party(names, run="run", settings=SETTINGS):
    """Clients that have accepted each other."""
    keys = {name: Keys(SelfSigned(name), run, METHOD, name) for name in names}
    cards = {name: Card(*one.card(settings)) for name, one in keys.items()}
    codes = {one.accept(cards, settings) for one in keys.values()}
    assert len(codes) == 1
    return keys


def answers_of(names, seed=0, shape=(4, 3)):
    rng = np.random.default_rng(seed)
    return {name: Toy.Answer(A=rng.normal(size=shape) * 100, n=int(rng.integers(1000))) for name in names}


@pytest.mark.parametrize("m", [3, 4, 17])
@pytest.mark.parametrize("phase", [TOY, SHORT])
def test_the_sum_of_masked_answers_is_the_sum(m, phase):
    names = [f"client {t}" for t in range(m)]
    keys, plain = party(names), answers_of(names, m)
    sealed = {name: keys[name].seal(phase, ASKED, plain[name], SETTINGS) for name in names}
    total = opened(phase.inner, sealed)
    assert total.n == sum(answer.n for answer in plain.values())
    assert_allclose(total.A, sum(answer.A for answer in plain.values()), rtol=0, atol=m * 2.0**-41)
    backwards = opened(phase.inner, dict(reversed(sealed.items())))
    assert_array_equal(backwards.A, total.A)  # to the bit


def test_a_message_and_all_but_one_look_like_noise():
    names = ["a", "b", "c", "d"]
    keys, phase = party(names), SHORT
    zeros = Toy.Answer(A=np.zeros((50, 40)), n=0)
    sealed = {name: keys[name].seal(phase, ASKED, zeros, SETTINGS).words for name in names}
    partial = sealed["a"] + sealed["b"] + sealed["c"]
    for words in (*sealed.values(), partial):
        counts = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
        chi2 = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
        assert 130 < chi2 < 410  # 255 degrees of freedom; outside by chance less than once in a million
    assert not (partial + sealed["d"])[:-1].any()


def test_another_run_roster_label_question_or_pair_has_another_mask():
    words, secrets = np.zeros((6, 1), np.uint64), {"b": bytes(32), "c": bytes([1] * 32)}
    base = {"own": "a", "secrets": secrets, "run_id": "run", "roster": "r", "label": ("toy", "1", "0", "q")}
    changes = [
        {"run_id": "nur"}, {"roster": "s"}, {"label": ("toy", "2", "0", "q")}, {"label": ("toy", "1", "1", "q")},
        {"label": ("toy", "1", "0", "p")}, {"label": ("to", "y1", "0", "q")}, {"secrets": {"c": bytes([1] * 32)}},
        {"own": "d"},
    ]  # fmt: skip
    found = [mask(words, **base | change).tobytes() for change in ({}, *changes)]
    assert len(set(found)) == len(found)
    assert mask(words, **base).tobytes() == found[0]  # and the same again


def test_the_same_question_gets_the_same_bytes_and_another_none_of_them():
    keys, answer = party(["a", "b", "c"])["a"], answers_of(["a"])["a"]
    first = keys.seal(TOY, ASKED, answer, SETTINGS)
    assert_array_equal(first.words, keys.seal(TOY, ASKED, answer, SETTINGS).words)
    for other in (replace(ASKED, round_no=4), replace(ASKED, turn=2)):
        assert (keys.seal(TOY, other, answer, SETTINGS).words != first.words).all()
    assert (keys.seal(TOY, ASKED, answer, SETTINGS, "other state").words != first.words).all()


def test_masks_that_do_not_cancel_are_noticed():
    names = ["a", "b", "c"]
    keys, plain = party(names), answers_of(names)
    sealed = {name: keys[name].seal(TOY, ASKED, plain[name], SETTINGS) for name in names}
    late = keys["c"].seal(TOY, replace(ASKED, turn=2), plain["c"], SETTINGS)
    for wrong in (sealed | {"c": late}, {name: sealed[name] for name in "ab"}, sealed | {"d": sealed["c"]}):
        with pytest.raises(TrustError, match="do not cancel"):
            opened(TOY.inner, wrong)
    short = Masked(words=sealed["c"].words[2:], layout=sealed["c"].layout)
    with pytest.raises(RefusedError):
        TOY.check_answer(short, Nothing(), {})
    with pytest.raises(DataError, match="disagree"):
        opened(TOY.inner, sealed | {"c": replace(sealed["c"], layout=json.dumps([["A", [3, 4]], ["n", []]]))})


@pytest.mark.parametrize(
    "shape",
    ["[Infinity, 1]", "[1e300, 1]", f"[{10**30}, 1]", f"[{2**40}, {2**40}]", "[-1, 4]", '"ab"', "4", "[" * 10**5],
)
def test_a_layout_of_impossible_sizes_is_refused_as_any_other(shape):
    words = np.zeros(TOY.inner.limbs, np.uint64)
    with pytest.raises(RefusedError):
        TOY.check_answer(Masked(words=words, layout=f'[["A", {shape}], ["n", []]]'), Nothing(), {})


def test_a_number_too_large_for_the_sum_is_refused_and_one_below_is_not():
    bound = 2.0 ** (62 - 40) / 5
    ok, large = (Toy.Answer(A=np.full((1, 1), factor * bound), n=0) for factor in (0.999, 1.001))
    encoded(SHORT.inner, ok, 5)
    with pytest.raises(DataError, match="below"):
        encoded(SHORT.inner, large, 5)


# ------------------------------------------------------------------------------------------------------------- rosters


def test_two_clients_hide_nothing():
    keys = {name: Keys(SelfSigned(name), "run", METHOD, name) for name in "ab"}
    cards = {name: Card(*one.card(SETTINGS)) for name, one in keys.items()}
    with pytest.raises(TrustError, match="at least 3"):
        keys["a"].accept(cards, SETTINGS)


def test_cards_that_are_not_to_be_trusted():
    names = ["a", "b", "c"]
    keys = {name: Keys(SelfSigned(name), "run", METHOD, name) for name in names}
    cards = {name: Card(*one.card(SETTINGS)) for name, one in keys.items()}
    other = Keys(SelfSigned("b"), "run", METHOD, "b").card(SETTINGS)
    elsewhere = Keys(SelfSigned("b"), "another run", METHOD, "b").card(SETTINGS)
    epsilon = Keys(SelfSigned("b"), "run", METHOD, "b").card(replace(SETTINGS, scale="silo"))
    wrong = {
        "own card missing": {**{n: c for n, c in cards.items() if n != "a"}, "d": cards["a"]},
        "own card replaced": cards | {"a": Card(other[0], cards["a"].certificate, cards["a"].signature)},
        "key of somebody else": cards | {"b": Card(other[0], cards["b"].certificate, cards["b"].signature)},
        "card of another run": cards | {"b": Card(*elsewhere)},
        "other settings": cards | {"b": Card(*epsilon)},
        "name of another": {"a": cards["a"], "b": cards["c"], "c": cards["b"]},
    }
    for shown in wrong.values():
        with pytest.raises(TrustError):
            keys["a"].accept(shown, SETTINGS)
    with pytest.raises(RefusedError, match="before the roster"):
        keys["a"].seal(TOY, ASKED, answers_of("a")["a"], SETTINGS)
    assert len(keys["a"].accept(cards, SETTINGS)) == 16


def test_a_roster_code_changes_with_every_party():
    codes = {tuple(names): party(names)["a"].roster for names in (["a", "b", "c"], ["a", "b", "d"])}
    assert len(set(codes.values())) == 2
    assert party(["a", "b", "c"])["a"].roster != codes["a", "b", "c"]  # other keys


def test_isolates_agrees_with_brute_force():
    names = "abcde"
    every = [set(s) for n in range(1, 6) for s in itertools.combinations(names, n)]
    rng = np.random.default_rng(0)
    for _ in range(150):
        rosters = [every[i] for i in rng.choice(len(every), size=int(rng.integers(1, 4)), replace=False)]
        combined = set()
        for weights in itertools.product(range(-3, 4), repeat=len(rosters)):
            total = tuple(sum(w for w, r in zip(weights, rosters, strict=True) if n in r) for n in names)
            if sum(map(bool, total)) == 1:
                combined.add(names[next(i for i, t in enumerate(total) if t)])
        shown = isolates(rosters)
        assert (shown is not None) == bool(combined)
        assert shown is None or shown in combined


def test_sums_that_differ_by_one_client_are_refused(tmp_path):
    path = tmp_path / "rosters.jsonl"

    def rosters(run, data="rows", **options):
        return Rosters(path, run, lambda: data, **options)

    rosters("1").admit(["a", "b", "c", "d"])
    rosters("1").admit(["d", "c", "b", "a"])  # the same run goes on
    with pytest.raises(TrustError, match="never change"):
        rosters("1").admit(["a", "b", "c"])
    with pytest.raises(TrustError, match="'d' alone"):
        rosters("2").admit(["a", "b", "c"])
    rosters("2", data="other rows").admit(["a", "b", "c"])
    rosters("3").admit(["a", "b", "e", "f"])
    rosters("4", accept=True).admit(["a", "b", "c"])
    assert [line["accepted"] for line in rosters("5").lines()] == [None, None, None, "d"]
    assert path.stat().st_mode & 0o077 == 0


def test_a_key_outlives_the_process_and_nobody_else_reads_it(tmp_path):
    first = Keys(SelfSigned("a"), "run", METHOD, "a", tmp_path)
    assert Keys(SelfSigned("a"), "run", METHOD, "a", tmp_path).private() == first.private()
    assert Keys(SelfSigned("a"), "run", METHOD, "a").private() != first.private()
    assert (tmp_path / "key.json").stat().st_mode & 0o077 == 0


# --------------------------------------------------------------------------------------------------------------- floor


def noisy(**privacy):
    return Settings(privacy=Privacy(bounds=(0, 1), **privacy))


def test_a_floor_refuses_less_privacy():
    plain, sums = Settings(), SETTINGS
    for floor, settings, allowed in (
        (None, plain, True), ("none", plain, True), ("sums", plain, False), ("sums", sums, True),
        ("sums", noisy(epsilon=9), True), ("epsilon=2", plain, False), ("epsilon=2", sums, False),
        ("epsilon=2", noisy(epsilon=2.0), True), ("epsilon=2", noisy(epsilon=2.1), False),
        ("epsilon=2", noisy(epsilon=float("inf")), False),
    ):  # fmt: skip
        if allowed:
            Floor.read(floor).check(settings)
        else:
            with pytest.raises(TrustError, match="floor"):
                Floor.read(floor).check(settings)
    for word in (
        "private", "epsilon=", "epsilon=-1", "epsilon=inf", "sums=2", "epsilon=2,delta=0", "epsilon=2,delta=1",
        "epsilon=2,colluding=-1", "epsilon=2,colluding=1.5", "epsilon=2,sigma=1", "epsilon=2,epsilon=3", "delta=1e-5",
        "epsilon=2,", "sums,epsilon=2",
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"a privacy floor is none, sums or epsilon=2,delta=1e-05,colluding=1"):
            Floor.read(word)
    assert Floor.read("epsilon=2") == Floor.read("epsilon=2, delta=1e-5, colluding=1") == Floor(True, 2.0, 1e-5, 1)


def test_a_floor_looks_at_the_noise_and_not_at_the_epsilon_that_is_named():
    """A curve has a small epsilon at a large delta: what counts is its epsilon at the delta of the floor."""
    floor = Floor.read("epsilon=2")
    assert epsilon_of(mu_of(2, 0.0049), 1e-5) > 3
    with pytest.raises(TrustError, match=r"epsilon=2 at delta=0\.0049 .* epsilon=3\.\d+ at delta=1e-05") as caught:
        floor.check(noisy(epsilon=2, delta=0.0049))
    assert "epsilon=2, delta=1e-05 and colluding=1" in str(caught.value)  # what would work
    floor.check(noisy(epsilon=2, delta=1e-5), 3)
    same = epsilon_of(mu_of(2, 1e-5), 1e-8)  # more of one and less of the other
    assert same > 2.5
    floor.check(noisy(epsilon=same * 0.999, delta=1e-8), 3)
    Floor.read("epsilon=2,delta=0.01").check(noisy(epsilon=2, delta=0.0049))


def test_a_floor_counts_silos_that_take_their_noise_off():
    """Where the run allows for fewer than the floor, it depends on how many silos there are; each has a share."""
    floor, trusting = Floor.read("epsilon=2"), noisy(epsilon=2, colluding=0)
    floor.check(trusting)  # how many silos there are is not known yet
    for silos in (3, 10, 1000):
        left = epsilon_of(without_colluders(mu_of(2, 1e-5), silos, 0, 1), 1e-5)
        with pytest.raises(TrustError, match=rf"colluding=0, .* epsilon={left:.4g} .* colluding=1 of {silos} silos"):
            floor.check(trusting, silos)
    least = epsilon_of(mu_of(2, 1e-5) * np.sqrt(2 / 3), 1e-5)
    floor.check(noisy(epsilon=least * 0.999, colluding=0), 3)  # noise enough without the share of one of three
    floor.check(noisy(epsilon=2, colluding=2), 4)
    lone = Floor.read("epsilon=2,colluding=0")
    lone.check(noisy(epsilon=2.4, colluding=1))  # how much its third share gains, the roster tells
    lone.check(noisy(epsilon=2.4, colluding=1), 3)
    with pytest.raises(TrustError, match="floor"):
        lone.check(noisy(epsilon=2.4, colluding=1), 30)
    with pytest.raises(TrustError, match=r"no epsilon .* at least 4 silos"):
        Floor.read("epsilon=2,colluding=3").check(noisy(epsilon=0.1), 3)
