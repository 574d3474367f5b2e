"""The k nearest rows of every row: exact by scikit-learn or in tiles, or by faiss for many rows."""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import Array, cast, double, is_tensor, namespace, precision, row_blocks

EXACT_UP_TO = 50_000  # rows; beyond, an approximate search (HNSW) can be cheaper than all distances
MIN_RECALL = 0.99  # share of the nearest rows that the search must find, measured on a sample of the rows
RECALL_SAMPLE = 200  # rows
HNSW_ROWS, ROWS_PER_CANDIDATE = 30_000, 300  # the search pays from so many rows, and so many more per candidate
PILOT = 8  # every eighth row is added first, to see whether the search pays
HNSW_LINKS, BUILD_WIDTH = 16, 40  # links of each row, and candidates while the graph of the search is built
ADD_PARTS, BLOCK = 500, 8_192  # parts in which rows are added to it; rows converted to its precision at a time
ORDER_AXES, ORDER_SAMPLE = 8, 256  # principal axes that rows are sorted by, and rows that these are computed from
SINGLE_FROM, SINGLE_COLUMNS, SINGLE_NEIGHBORS = 16_384, 256, 48  # rows from which tiles in single precision pay; limits
SINGLE_ROWS, SINGLE_WIDTH = 128, 4_096  # of a tile, which fits in the cache
SINGLE_CORES = 4  # on more, threads of Python wait for each other, and scikit-learn's own are faster
PAIRS = 2**16  # differences of entries computed at a time
SPARE = 8  # more candidates than neighbours, so that they are certain in spite of rounding
SPARSE_MEMORY = 8  # MiB of distances at a time: they fit in the cache
GROUP = 32  # rows of a tile that share one maximum
EXTRA_CANDIDATES = 32  # more than neighbours
GPU_TILE, CPU_TILE = 2**30, 2**24  # products in a tile
HALF_PRECISION_ON = ("cuda",)  # devices that are faster in half precision
_one_tree_at_a_time = threading.Lock()  # the tree search sets Python's warning filters, which all threads share


def nearest_neighbors(X: Any, k: int, X_new: Any = None) -> tuple[Array, Array]:
    """Distances and numbers of the k nearest rows of X, of each new row, or of each row of X among the others.

    Parameters
    ----------
    X : array, sparse array or tensor of shape (n, d)
    k : int
        At most n - 1.
    X_new : of the same kind, shape (n_new, d), optional

    Returns
    -------
    distance, neighbor : arrays of shape (n_new, k)
        Exact up to 50,000 rows, for sparse rows and on a device. Beyond, with faiss, at least 99 of 100 are correct
        where a search by its graph is cheaper than all distances; elsewhere they are exact, too.
    """
    if is_tensor(X):
        if X_new is not None:
            raise TypeError("neighbours of new rows are available for NumPy arrays only, not for tensors")
        return _tiled(X, k)
    n, d = X.shape
    is_dense = not sp.issparse(X)
    by_tree = is_dense and d <= 15 and k < n // 2  # scikit-learn's own rule
    if X_new is None and is_dense and (found := _of_many_rows(X, k, by_tree)) is not None:
        return found
    from sklearn import config_context
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k, algorithm="kd_tree" if by_tree else "brute").fit(X)
    # the limit matters for sparse rows, whose distances take a share of n x n
    with _one_tree_at_a_time if by_tree else config_context(working_memory=SPARSE_MEMORY):
        return search.kneighbors(X_new)


def _of_many_rows(X: np.ndarray, k: int, by_tree: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """Neighbours among so many rows that something is faster than scikit-learn; None where nothing is."""
    from joblib import cpu_count

    n, d = X.shape
    if n > EXACT_UP_TO:
        if importlib.util.find_spec("faiss") is None:
            warnings.warn(
                f"the search for the neighbours of {n} rows compares all pairs, which takes long. "
                "A faster search comes with pip install 'fmtc[knn]'.",
                UserWarning,
                stacklevel=3,
            )
        elif (found := _hnsw(X, k)) is not None:
            return found
    fits = n >= SINGLE_FROM and d <= SINGLE_COLUMNS and k <= SINGLE_NEIGHBORS
    return _in_single_precision(X, k) if fits and not by_tree and cpu_count() <= SINGLE_CORES else None


# --------------------------------------------------------------------------- exact on a processor, in single precision


@dataclass(frozen=True)
class _Tiles:
    """Candidates by scores ``x.y - |y|²/2`` in single precision: the nearest rows have the largest."""

    squares: np.ndarray  # n, |y|² in double precision, of rows less their mean
    table: np.ndarray  # d + 1 x n, filled up to whole groups; rows less their mean, and -|y|²/2

    @classmethod
    def of(cls, X: np.ndarray) -> _Tiles:
        """Prepare some rows."""
        (n, d), squares, mean = X.shape, np.empty(len(X)), X.mean(axis=0, dtype=np.float64)
        table = np.zeros((d + 1, -(-n // GROUP) * GROUP), np.float32)
        for part in row_blocks(n, BLOCK):
            centred = X[part] - mean
            table[:d, part] = centred.T
            squares[part] = np.einsum("ij,ij->i", centred, centred)
        table[d, :n] = -squares / 2
        table[d, n:] = -np.inf
        return cls(squares, table)

    def candidates(self, begin: int, end: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs of a row of the block and a candidate, at least `count` of each row; and how near others can be.

        A score is a candidate's if it is not below the largest scores of `count` groups of rows seen so far.
        """
        d, width = len(self.table) - 1, self.table.shape[1]
        left = np.ones((end - begin, d + 1), np.float32)
        left[:, :d] = self.table[:d, begin:end].T
        peaks = np.empty((end - begin, width // GROUP), np.float32)
        scores = np.empty((end - begin) * SINGLE_WIDTH, np.float32)
        limit, found, seen, look = np.empty(0, np.float32), [], 0, 1
        for number, first in enumerate(range(0, width, SINGLE_WIDTH), 1):
            tile = self.table[:, first : first + SINGLE_WIDTH]
            w = tile.shape[1]
            part = np.matmul(left, tile, out=scores[: len(left) * w].reshape(-1, w))
            inside = np.arange(max(begin, first), min(end, first + w))
            part[inside - begin, inside - first] = -np.inf  # the row itself
            part.reshape(-1, GROUP, w // GROUP).max(axis=1, out=peaks[:, seen : seen + w // GROUP])
            seen += w // GROUP
            if number == look or first + w == width:
                limit = np.partition(peaks[:, :seen], seen - count, axis=1)[:, seen - count]
                look *= 2
            high = part >= limit[:, None]
            words = np.flatnonzero(high.reshape(-1).view(np.uint64) != 0)  # eight at a time: hardly any is there
            which, inside = np.nonzero(high.reshape(-1, 8)[words])
            place = 8 * words[which] + inside
            found.append((place // w, place % w + first, part.reshape(-1)[place]))
        row, column, score = (np.concatenate(each) for each in zip(*found, strict=True))
        keep = score >= limit[row]
        return row[keep], column[keep], self.squares[begin:end] - 2 * limit.astype(np.float64)


def _in_single_precision(X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Exact: candidates by products in single precision, ranked by their true distances; of equals the first rows.

    Rows of which it is not certain that no other row is nearer, given the largest rounding error, are left to
    scikit-learn. None if that is every second row, as where one row is far from all others.
    """
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

    (n, d), tiles = X.shape, _Tiles.of(X)
    distance, neighbor, sure = np.empty((n, k), X.dtype), np.empty((n, k), np.int64), np.empty(n, bool)
    norms = np.sqrt(tiles.squares)
    error = (d + 4) * float(np.finfo(np.float32).eps) * (norms + norms.max()) ** 2  # of a squared distance

    def work(part: slice) -> None:
        row, column, reach = tiles.candidates(part.start, part.stop, k + SPARE)
        squared = _squared_gaps(X, part.start + row, column)
        order = np.lexsort((column, squared, row))
        counts = np.bincount(row, minlength=part.stop - part.start)
        nearest = order[(np.cumsum(counts) - counts)[:, None] + np.arange(k)]
        distance[part], neighbor[part] = np.sqrt(squared[nearest]), column[nearest]
        sure[part] = squared[nearest[:, -1]] <= reach - error[part]  # all others are farther

    first, *others = row_blocks(n, SINGLE_ROWS)
    work(first)
    if sure[first].mean() < 0.5:
        return None
    with ThreadPoolExecutor(_openmp_effective_n_threads()) as pool:
        list(pool.map(work, others))
    left = np.flatnonzero(~sure)
    if len(left):
        distance[left], neighbor[left] = _by_scikit_learn(X, k, left)
    return distance, neighbor


def _squared_gaps(X: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Squared distance of each of these rows to the other one of its pair, in double precision; (pairs,)."""
    found = np.empty(len(rows))
    for part in row_blocks(len(rows), max(1, PAIRS // X.shape[1])):
        gap = X[others[part]].astype(np.float64, copy=False)
        gap -= X[rows[part]]
        found[part] = np.einsum("ij,ij->i", gap, gap)
    return found


def _by_scikit_learn(X: np.ndarray, k: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances and neighbours of some of the rows, each without itself."""
    neighbor = _without_itself(nearest_neighbors(X, k + 1, X[rows])[1], rows)
    return _distances(X, neighbor, rows), neighbor


def _without_itself(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Neighbours of these rows, each without the row itself; where copies took its place, without the last one."""
    itself = found == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    return found[~itself].reshape(len(rows), -1)


# ---------------------------------------------------------------------------------------------------- by faiss


def _hnsw(X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray] | None:
    """By a hierarchical navigable small world graph, built in one thread: the same rows give the same result.

    None if all distances are cheaper, as in many dimensions without structure, or with very many copies of one row. A
    graph of every eighth row shows this before the others are added. Rows are added, and looked up, in an order in
    which near rows follow each other, so that most of what is needed is in the cache.
    """
    import faiss

    n, d = X.shape
    limit = (n - HNSW_ROWS) // ROWS_PER_CANDIDATE
    order = _locality_order(X)
    order = np.concatenate([order[::PILOT], np.delete(order, np.s_[::PILOT])])
    few, mean, rows = -(-n // PILOT), X.mean(axis=0), np.empty((n, d), np.float32)
    for part in row_blocks(n, BLOCK):
        rows[part] = X[order[part]] - mean
    index = faiss.IndexHNSWFlat(d, HNSW_LINKS)
    index.hnsw.efConstruction = BUILD_WIDTH
    _add_rows(index, rows[:few])
    if not _widen_search(index, rows[:few], k, limit):
        return None
    _add_rows(index, rows[few:], parts=ADD_PARTS)
    if not _widen_search(index, rows, k, limit):
        return None
    found = index.search(rows, k + 1)[1]
    del rows, index
    if (found < 0).any():  # a part of the graph with fewer rows
        return None
    neighbor = np.empty((n, k), dtype=np.int64)
    neighbor[order] = order[_without_itself(found, np.arange(n))]
    del found
    return _distances(X, neighbor, np.arange(n)), neighbor


def _locality_order(X: np.ndarray) -> np.ndarray:
    """An order of the rows in which near rows follow each other: that of the leaves of a tree over the first axes."""
    from sklearn.neighbors import KDTree

    some = X[:: max(1, X.shape[0] // ORDER_SAMPLE)]
    axes = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2][:ORDER_AXES]
    return KDTree(X @ axes.T).get_arrays()[1]


def _add_rows(index: Any, rows: np.ndarray, parts: int = 1) -> None:
    """Add rows to the graph of a search, in one thread; within a part faiss draws the order."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for part in np.array_split(rows, parts):
            index.add(part)
    finally:
        faiss.omp_set_num_threads(threads)


def _widen_search(index: Any, rows: np.ndarray, k: int, limit: int) -> bool:
    """Widen a search until 99 of 100 rows found for a sample are as near as the exact ones; False if it cannot."""
    from sklearn.neighbors import NearestNeighbors

    drawn = np.linspace(0, len(rows) - 1, RECALL_SAMPLE, dtype=np.int64)
    exact = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(rows).kneighbors(rows[drawn])[1]
    reach = _distances(rows, exact, drawn).max(axis=1, keepdims=True)  # of equally near rows any is correct
    width = 2 * (k + 1)
    while width <= limit:
        index.hnsw.efSearch = width
        found = index.search(rows[drawn], k + 1)[1]
        right = ((found >= 0) & (_distances(rows, found, drawn) <= reach)).sum() - RECALL_SAMPLE  # minus the row itself
        if right >= (MIN_RECALL + 0.002) * k * RECALL_SAMPLE:
            return True
        width = width * 5 // 4
    return False


def _distances(X: Array, neighbor: Array, rows: Array) -> Array:
    """Distance of each of these rows to each of its neighbours, from differences; (rows, k)."""
    xp, step = namespace(X), max(1, _tile(X) // 32 // (neighbor.shape[1] * X.shape[1]))
    blocks = []
    for part in row_blocks(len(rows), step):
        gap = X[neighbor[part]] - X[rows[part]][:, None, :]
        blocks.append(xp.sqrt(xp.einsum("ijk,ijk->ij", gap, gap)))
    return xp.concatenate(blocks)


def _tile(X: Array) -> int:
    return GPU_TILE if is_tensor(X) and X.device.type == "cuda" else CPU_TILE


def _tiled(X: Array, k: int) -> tuple[Array, Array]:
    """Exact, by products of tiles: on a GPU in half precision first, with candidates ranked by true distances.

    A row is finished if no row outside its candidates can be nearer, given the largest rounding error of a product.
    The others are searched again in the precision of X, and at last in double precision.
    """
    xp, n = namespace(X), X.shape[0]
    distance = xp.empty((n, k), dtype=X.dtype, device=X.device)
    neighbor = xp.empty((n, k), dtype=xp.int64, device=X.device)
    left = xp.arange(n, device=X.device)
    formats = [xp.float16] if X.device.type in HALF_PRECISION_ON and n > 4 * k else []
    for dtype in dict.fromkeys([*formats, X.dtype, xp.float64]):
        rows = double(X) if dtype == xp.float64 else X
        with _full_precision_products(xp):
            near, number, sure = _tiled_pass(rows, k, left, dtype)
        distance[left], neighbor[left] = cast(near, X.dtype), number
        left = left[~sure]
        if len(left) == 0:
            break
    return distance, neighbor


@contextmanager
def _full_precision_products(torch: Any) -> Iterator[None]:
    """Switch off reduced precision inside a GPU's products for the ``with`` block; the error bound relies on it."""
    settings = torch.backends.cuda.matmul
    names = ("allow_tf32", "allow_fp16_reduced_precision_reduction")
    kept = {name: getattr(settings, name) for name in names}
    try:
        for name in names:
            setattr(settings, name, False)
        yield
    finally:
        for name in names:
            setattr(settings, name, kept[name])


def _tiled_pass(X: Array, k: int, rows: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Distances, neighbours and whether they are certain, for some rows; products in the given number format.

    The nearest rows have the largest ``x.y - |y|²/2``, one product of [x, 1, 1] and [y, -hi, -lo], where hi + lo is
    half the squared norm. The c largest of n numbers lie in the c groups with the largest maxima: only those groups are
    searched.
    """
    xp, (n, d) = namespace(X), X.shape
    centred = X - xp.mean(X, axis=0)
    squares = xp.einsum("ij,ij->i", centred, centred)
    radius = float(xp.sqrt(xp.amax(squares))) or 1.0
    unit = 64 / radius  # keeps all entries far from the limits of half precision
    groups = -(-n // GROUP)
    A = xp.ones((n, d + 2 + (-d - 2) % 8), dtype=dtype, device=X.device)
    B = xp.zeros((groups * GROUP, A.shape[1]), dtype=dtype, device=X.device)
    A[:, :d] = B[:n, :d] = cast(centred * unit, dtype)
    half = squares * (unit**2 / 2)
    B[:n, d] = -cast(half, dtype)
    B[:n, d + 1] = cast(-half - cast(B[:n, d], half.dtype), dtype)
    B[n:, d] = -xp.finfo(dtype).max / 2  # padding of the last group: never a neighbour
    candidates = min(k + EXTRA_CANDIDATES, n - 1)
    step = max(1, _tile(X) // (groups * GROUP))
    # |computed - true| of one such product: rounding of both factors and of the result
    eps = precision(A)
    error = eps * (3 * 64 * xp.sqrt(squares) * unit + 64**2) + 1e-3 * eps
    found = []
    for block in row_blocks(len(rows), step):
        part = rows[block]
        score = A[part] @ B.T
        score[xp.arange(len(part), device=X.device), part] = -xp.inf
        blocks = score.reshape(len(part), GROUP, groups)  # a group is every `groups`-th row: contiguous reads
        best = xp.topk(xp.amax(blocks, axis=1), min(candidates, groups), sorted=False)[1]
        inside = xp.take_along_dim(blocks, best[:, None, :], 2).reshape(len(part), -1)
        value, place = xp.topk(inside, candidates, sorted=False)
        column = place // best.shape[1] * groups + xp.take_along_dim(best, place % best.shape[1], 1)
        gap = xp.topk(_distances(X, column, part), k, largest=False)
        others = cast(xp.amin(value, axis=1), X.dtype) + error[part]  # no other row has a higher score
        sure = gap[0][:, -1] ** 2 * (unit**2 / 2) <= half[part] - others
        found.append((gap[0], xp.take_along_dim(column, gap[1], 1), sure | (candidates == n - 1)))
    return tuple(xp.concatenate(parts) for parts in zip(*found, strict=True))
