"""What any view must pass: the same result in one process and in kits, after restarts, on any number of cores."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.runtime.kits import KitTransport, make_kits

from fmtc.artifacts.states import flatten
from fmtc.protocol.method import view_method
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings
from fmtc.tables import Reading

pytestmark = pytest.mark.filterwarnings("ignore")  # of graphs with several parts

ROUNDS = 3


def table(seed, n, *, missing=0.1, categories=True, columns=4):
    """Rows of three groups, some cells missing; the last two columns are categories."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, columns)) + 3 * np.eye(3, columns)[y]
    X[rng.random(X.shape) < missing] = np.nan
    if categories:
        codes = np.column_stack([(y + (rng.random(n) < 0.2)) % 3, rng.integers(2, size=n)]).astype(float)
        codes[rng.random(codes.shape) < missing] = np.nan
        X = np.hstack([X, codes])
    return X


def rings(seed, n):
    from sklearn.datasets import make_circles

    return make_circles(n, factor=0.4, noise=0.04, random_state=seed)[0]


def but(view, **changed):
    base = {"n_clusters": 3, "view": view, "scale": "auto", "max_iter": ROUNDS, "tol": 0, "n_init": 2}
    return Settings(**base | changed)


MIXED = {cid: table(seed, 40 + 10 * seed) for seed, cid in enumerate("abc")}
PLAIN = {cid: table(seed, 40 + 10 * seed, missing=0, categories=False) for seed, cid in enumerate("abc")}
WIDE = {cid: table(seed, 60 + 10 * seed, missing=0, categories=False, columns=60) for seed, cid in enumerate("ab")}
CASES = {
    "mixture": (but("mixture"), PLAIN),
    "mixture, categories and missing cells": (but("mixture", levels=(0, 0, 0, 0, 3, 2)), MIXED),
    "mixture, many columns": (but("mixture"), WIDE),
    "auto, a table": (but("auto", levels=(0, 0, 0, 0, 3, 2)), MIXED),
    "auto, shapes": (but("auto", n_clusters=2), {cid: rings(seed, 300) for seed, cid in enumerate("ab")}),
    "auto, many columns": (but("auto"), WIDE),
    "graph, categories and missing cells": (but("graph", levels=(0, 0, 0, 0, 3, 2)), MIXED),
    "graph, lifted": (but("graph"), PLAIN),
    "auto, concepts lacking": (but("auto", clusters_per_silo={"a": 2}), WIDE),
    "auto, concepts found lacking": (but("auto", n_clusters=4, clusters_per_silo=4), WIDE),
}
VIEWS = {"auto, a table": "mixture", "auto, shapes": "graph", "auto, many columns": "graph"}
each_case = pytest.mark.parametrize("case", CASES)


@cache
def undisturbed(case):
    """The run of a case that nothing disturbs; nobody changes what it came to."""
    settings, data = CASES[case]
    method = view_method(settings.view)
    transport = LocalTransport(data, settings, method=method)
    return run(transport, settings, method=method), transport.results()


def assert_same(found, expected):
    assert set(found) == set(expected)
    for cid, result in expected.items():
        assert_array_equal(found[cid].labels, result.labels)
        arrays, others = flatten(found[cid].model)
        wanted, rest = flatten(result.model)
        assert others == rest
        assert set(arrays) == set(wanted)
        for name in wanted:
            assert_array_equal(arrays[name], wanted[name])


@each_case
def test_neither_cores_nor_the_order_of_clients_matter(case):
    settings, data = CASES[case]
    method = view_method(settings.view)
    result, expected = undisturbed(case)
    transport = LocalTransport(dict(reversed(data.items())), settings, n_jobs=2, method=method)
    again = run(transport, settings, method=method)
    assert_same(transport.results(), expected)
    assert [r.objective for r in again.history] == [r.objective for r in result.history]
    if case in VIEWS:
        assert result.server.view == VIEWS[case]


def in_kits(case, folder):
    settings, data = CASES[case]
    levels = settings.levels
    schema = None
    if any(levels):
        from fmtc.schema import Column, Schema

        columns = tuple(
            Column(f"c{j}", "category", tuple(map(str, range(size)))) if size else Column(f"c{j}")
            for j, size in enumerate(levels)
        )
        schema = Schema(columns)
    kits = make_kits(data, folder, reading=Reading(schema=schema, missing="em"))
    return settings, kits


@each_case
def test_kits_come_to_the_same_result(case, tmp_path):
    """Also where the server asks every question of a loop again, as if it had not got the answers."""
    settings, kits = in_kits(case, tmp_path)
    method = view_method(settings.view)
    _, expected = undisturbed(case)
    transport = KitTransport(kits, settings, method=method.name)
    exchange = transport.exchange
    loops = {phase.name for phase in method.loops}

    def asking(messages):
        replies = exchange(messages)
        if {message.phase for message in messages.values()} <= loops:
            for cid, message in messages.items():
                transport.tell(cid, message)
        return replies

    transport.exchange = asking
    run(transport, settings, method=method)
    found = {cid: client.node for cid, client in transport.clients.items()}
    assert_same({cid: method.result(node.client) for cid, node in found.items()}, expected)


@each_case
@pytest.mark.parametrize("after", [1, 10, 13])  # after 10 rounds of a mixture, most of its starts are dropped
def test_a_run_resumes_after_any_round(case, after, tmp_path):
    settings, data = CASES[case]
    method = view_method(settings.view)
    result, expected = undisturbed(case)
    if after >= len(result.history):
        pytest.skip("the run has fewer rounds")

    class StopError(Exception):
        pass

    def stop(record):
        if record.round_no == after:
            raise StopError

    with pytest.raises(StopError):
        run(
            LocalTransport(data, settings, method=method),
            settings,
            method=method,
            checkpoint=tmp_path,
            callbacks=[stop],
        )
    transport = LocalTransport(data, settings, method=method)
    again = run(transport, settings, method=method, checkpoint=tmp_path, resume=True)
    assert_same(transport.results(), expected)
    assert [record.objective for record in again.history] == [record.objective for record in result.history]
