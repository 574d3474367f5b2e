"""Blocks of a stack, and memory that a loop uses again."""

import gc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fmtc.linalg import stacks
from fmtc.linalg.stacks import Workspace, blocks


@pytest.mark.parametrize(
    ("shape", "least", "rows"), [((10, 3, 4), 1, 2), ((10, 3, 4), 7, 7), ((10, 50), 1, 1), ((4, 0), 1, 24)]
)
def test_blocks_cover_all_rows_once(monkeypatch, shape, least, rows):
    monkeypatch.setattr(stacks, "BLOCK", 24)
    T = np.zeros(shape)
    found = blocks(T, least)
    assert len(T[found[0]]) == min(rows, shape[0])
    assert_array_equal(np.concatenate([np.arange(shape[0])[b] for b in found]), np.arange(shape[0]))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(stacks, "BLOCK", 4)


@pytest.mark.usefixtures("small_blocks")
def test_memory_is_used_again_only_if_the_workspace_owns_it(rng):
    start = rng.normal(size=(7, 2))
    before, workspace = start.copy(), Workspace()
    assert not workspace.owns(start)
    first = workspace.compute(lambda b: start[b] + 1, over=start)
    assert_array_equal(start, before)  # from elsewhere: not written to
    assert_array_equal(first, before + 1)
    assert workspace.owns(first)
    second = workspace.compute(lambda b: 2 * first[b], over=first)
    assert second is first
    assert_array_equal(second, 2 * (before + 1))
    other = Workspace().compute(lambda b: 3 * second[b], over=second)  # another workspace owns nothing here
    assert not np.shares_memory(other, second)
    assert_array_equal(second, 2 * (before + 1))


def test_equal_arrays_are_not_the_same(rng):
    A = rng.normal(size=(3, 2))
    workspace = Workspace()
    A = workspace.compute(lambda b: A[b], over=A)
    assert workspace.owns(A)
    assert not workspace.owns(A.copy())
    assert not workspace.owns(A[:])  # a view


def test_another_number_format_needs_new_memory(rng):
    workspace = Workspace()
    double = workspace.compute(lambda b: np.ones((7, 2))[b], over=np.zeros((7, 2)))
    single = workspace.compute(lambda b: double[b], over=double, dtype=np.float32)
    assert single.dtype == np.float32
    assert not np.shares_memory(single, double)
    assert workspace.compute(lambda b: single[b], over=single) is single


def test_a_workspace_keeps_no_memory_alive():
    workspace = Workspace()
    stack = workspace.compute(lambda b: 0.0, over=np.zeros((5, 2)))
    gone = weakref.ref(stack)
    del stack
    gc.collect()
    assert gone() is None
    for _ in range(5):  # nor a list that grows
        workspace.compute(lambda b: 0.0, over=np.zeros((5, 2)))
    assert len(workspace._own) == 1


@pytest.mark.torch
def test_tensors_as_arrays():
    torch = pytest.importorskip("torch")
    start = torch.ones((7, 2))
    workspace = Workspace()
    first = workspace.compute(lambda b: start[b] + 1, over=start)
    second = workspace.compute(lambda b: first[b] + 1, over=first)
    assert second is first
    assert second.dtype == start.dtype
    assert float(start.sum()) == 14
    assert float(second.sum()) == 42
