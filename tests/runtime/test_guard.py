"""What may arrive, and everything that may not."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from fmtc.errors import RefusedError
from fmtc.runtime.guard import DOWNLINKS, UPLINKS, check_downlink, check_uplink
from fmtc.steps import PHASES, Downlink, Uplink

D, K = 5, 3
ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(K, K)))[0]
ROUND = Downlink("round", round_no=4, last_round=3, guide=np.ones((D, K)), rotation=ROTATION)
ANSWER = Uplink(W=np.ones((D, K)), cut=0.5, misfit=0.25)


def test_every_phase_and_field_is_known():
    assert set(UPLINKS) == set(DOWNLINKS) >= set(PHASES)
    for kind, table, always in (
        (Uplink, UPLINKS, {"error"}),
        (Downlink, DOWNLINKS, {"phase", "round_no", "last_round", "trial"}),
    ):
        named = {name.strip("[]") for names in table.values() for name in names}
        assert named | always == {field.name for field in fields(kind)}


@pytest.mark.parametrize(
    "message",
    [
        Downlink("hello"),
        Downlink("prepare", scale=0.5, ridge=0.03),
        ROUND,
        replace(ROUND, rotation=None, guide=np.ones((D, K), np.float32)),
        replace(ROUND, last_round=1),
        Downlink("finish", round_no=4, last_round=4, rotation=ROTATION.astype(np.float32)),
        Downlink("gather", round_no=1, centers=np.eye(K)),
        Downlink("score", trial=2),
        replace(ROUND, trial=0),
        Downlink("number", order=np.array([2, 0, 1])),
        Downlink("number", order=np.array([2, 0, 1]), centers=np.eye(K)),
        Downlink("moments"),
        Downlink("rescale", shift=np.zeros(D), stretch=np.ones(D)),
        Downlink("rescale", stretch=np.ones(2), keep=np.array([1, 4])),
        Downlink("end", converged=True),
    ],
    ids=lambda message: message.phase,
)
def test_good_downlinks_pass(message):
    check_downlink(message, D, K)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Downlink("dance"), "phase 'dance' is not known here"),
        (Downlink("hello", guide=np.ones((D, K))), "hello carries no guide"),
        (Downlink("prepare", scale=0.5), "prepare lacks ridge"),
        (Downlink("prepare", scale=0.0, ridge=0.03), "scale is 0.0, out of range"),
        (Downlink("prepare", scale=float("nan"), ridge=0.03), "scale is not a finite number"),
        (Downlink("prepare", scale="1", ridge=0.03), "scale is not a finite number"),
        (replace(ROUND, guide=None), "round lacks guide"),
        (replace(ROUND, guide=np.ones((D + 1, K))), r"guide has shape \(6, 3\), not \(5, 3\)"),
        (replace(ROUND, guide=np.ones(D * K)), r"guide has shape \(15,\)"),
        (replace(ROUND, guide=np.full((D, K), np.inf)), "guide holds NaN or infinity"),
        (replace(ROUND, guide=np.ones((D, K), np.float16)), "guide holds float16"),
        (replace(ROUND, guide=np.ones((D, K), object)), "guide holds object"),
        (replace(ROUND, guide=[[1.0] * K] * D), "guide is no array"),
        (replace(ROUND, rotation=np.ones((K, K))), "rotation is not one"),
        (replace(ROUND, rotation=np.eye(K + 1)), "rotation has shape"),
        (replace(ROUND, round_no=3), "round 3 cannot follow round 3"),
        (replace(ROUND, round_no=-1), "round_no is int -1"),
        (replace(ROUND, last_round=True), "last_round is bool"),
        (replace(ROUND, round_no=4.0), "round_no is float"),
        (replace(ROUND, order=np.arange(K)), "round carries no order"),
        (Downlink("gather"), "gather lacks centers"),
        (replace(ROUND, trial=-1), "trial is int -1"),
        (replace(ROUND, trial=True), "trial is bool"),
        (Downlink("moments", trial=0), "moments is no part of a trial"),
        (Downlink("end", converged=True, trial=0), "end is no part of a trial"),
        (Downlink("end", converged=1), "converged is neither true nor false"),
        (Downlink("end"), "end lacks converged"),
        (Downlink("gather", centers=np.eye(K + 1)), r"centers has shape \(4, 4\), not \(3, 3\)"),
        (Downlink("gather", centers=np.full((K, K), np.nan)), "centers holds NaN"),
        (Downlink("number", order=np.array([0, 0, 1])), "order is not one of 3 clusters"),
        (Downlink("number", order=np.array([0.0, 1.0, 2.0])), "order holds float64"),
        (Downlink("rescale", shift=np.array([np.nan]), stretch=np.ones(1)), "shift holds NaN"),
        (Downlink("rescale", stretch=np.ones(2), keep=np.array([1, D])), "keep does not name columns out of 5"),
        (Downlink("rescale", stretch=np.ones(2), keep=np.array([3, 1])), "keep does not name columns out of 5"),
        (Downlink("rescale", stretch=np.ones(2), keep=np.array([-1, 1])), "keep does not name columns out of 5"),
    ],
)
def test_bad_downlinks_are_refused(message, why):
    with pytest.raises(RefusedError, match=why):
        check_downlink(message, D, K)


@pytest.mark.parametrize(
    ("uplink", "asked"),
    [
        (Uplink(n_samples=9, n_features=D, energy=0.0), Downlink("hello")),
        (Uplink(), Downlink("prepare", scale=1.0, ridge=1.0)),
        (ANSWER, ROUND),
        (replace(ANSWER, W=np.ones((D, K), np.float32)), ROUND),
        (Uplink(centers=np.eye(K)), Downlink("finish")),
        (Uplink(score=0.5), Downlink("score", trial=0)),
        (Uplink(sums=np.eye(K) / 9), Downlink("gather", round_no=1, centers=np.eye(K))),
        (Uplink(error="OSError"), ROUND),
        (Uplink(n_samples=9, means=np.ones(D), squares=np.ones(D)), Downlink("moments")),
        (Uplink(n_samples=9, document_counts=np.arange(D)), Downlink("moments")),
    ],
)
def test_good_uplinks_pass(uplink, asked):
    check_uplink(uplink, asked, K)


@pytest.mark.parametrize(
    ("uplink", "asked", "why"),
    [
        (Uplink(n_samples=9, n_features=D), Downlink("hello"), "hello lacks energy"),
        (Uplink(n_samples=-1, n_features=D, energy=1.0), Downlink("hello"), "n_samples is int -1"),
        (Uplink(n_samples=9.5, n_features=D, energy=1.0), Downlink("hello"), "n_samples is float"),
        (Uplink(n_samples=9, n_features=D, energy=-1.0), Downlink("hello"), "energy is -1.0, out of range"),
        (ANSWER, Downlink("prepare", scale=1.0, ridge=1.0), "prepare carries no W, cut, misfit"),
        (replace(ANSWER, W=None), ROUND, "round lacks W"),
        (replace(ANSWER, W=np.ones((K, D))), ROUND, r"W has shape \(3, 5\), not \(5, 3\)"),
        (replace(ANSWER, W=np.full((D, K), np.nan)), ROUND, "W holds NaN or infinity"),
        (replace(ANSWER, W=np.ones((D, K), complex)), ROUND, "W holds complex128"),
        (replace(ANSWER, cut=float("inf")), ROUND, "cut is not a finite number"),
        (replace(ANSWER, centers=np.eye(K)), ROUND, "round carries no centers"),
        (Uplink(centers=np.eye(K + 1)), Downlink("finish"), "centers has shape"),
        (Uplink(score=float("nan")), Downlink("score", trial=0), "score is not a finite number"),
        (Uplink(score=0.5), Downlink("hello", trial=0), "hello carries no score"),
        (Uplink(sums=np.eye(K + 1)), Downlink("gather", round_no=1, centers=np.eye(K)), "sums has shape"),
        (Uplink(), Downlink("gather", round_no=1, centers=np.eye(K)), "gather lacks sums"),
        (Uplink(error="rows: 1.5, 2.5"), ROUND, "error is not the name of a kind"),
        (replace(ANSWER, error="OSError"), ROUND, "an error comes alone"),
        (Uplink(error=3), ROUND, "error is not the name of a kind"),
        (Uplink(n_samples=9, means=np.ones((D, 1)), squares=np.ones(D)), Downlink("moments"), "means has shape"),
    ],
)
def test_bad_uplinks_are_refused(uplink, asked, why):
    with pytest.raises(RefusedError, match=why):
        check_uplink(uplink, asked, K)
