"""The best normalized cut along a vector: all split points by cumulated sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.apps.spectral.graphs.runs import map_runs, runs_between
from ooc_chol.apps.spectral.graphs.subgraph import Subgraph
from ooc_chol.apps.spectral.images.gpu_cuts import GpuCuts

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Most directions that are looked at together; numbers in them, unless two have more; and numbers for which one thread is enough.
_TOGETHER, _MANY, _FEW = 16, 1 << 22, 1 << 16


class SweepOptions(NamedTuple):
    """Which split points of which vectors are looked at."""

    n_splits: int | None = None  #: Split points of a vector, evenly spaced in its order; None for all
    min_size: int = 1  #: Fewest vertices of a side
    search: int | None = None  #: Directions in the span of the vectors; None for as many as are cheap
    seed: int = 0  #: Of random directions


class Bipartition(NamedTuple):
    """Vertices on two sides."""

    side: NDArray[np.bool_]  #: (n,)
    ncut: float
    how: str  #: The direction that it was found in, such as "along eigenvector 2"


#: Directions that are searched where their number is not given, and entries of the affinity that they may be looked at in all.
_DIRECTIONS, _SEARCHED_ENTRIES = 12, 50_000_000


def best_bipartition(
    graph: Subgraph, vectors: NDArray[np.float64], options: SweepOptions, gpu: GpuCuts | None = None
) -> Bipartition:
    """The best normalized cut of all directions searched, on a GPU where that takes the segment.

    Shapes: ``vectors`` (n, k). A direction costs O(nnz + n log n).
    """
    best, label, order, size = np.inf, "", np.arange(0), 0
    at = _sizes(graph.n, options)
    if gpu is not None and gpu.takes(graph) and (split := _on_gpu(graph, vectors, options, gpu, at)) is not None:
        return split
    together = min(_TOGETHER, max(2, _MANY // graph.n))
    for some in _batches(_directions(graph, vectors.shape[1], options), together):
        orders = _shared(lambda named: np.argsort(vectors @ named[1], kind="stable"), some, graph.n)
        before = weights_before(graph, orders)
        profiles = _shared(partial(_profile, graph.degrees), list(zip(orders, before, strict=True)), graph.n)
        for (how, _), ranked, ncuts in zip(some, orders, profiles, strict=True):
            found = int(at[np.argmin(ncuts[at - 1])])
            if ncuts[found - 1] < best:
                best, label, order, size = float(ncuts[found - 1]), how, ranked, found
    side = np.zeros(graph.n, np.bool_)
    side[order[size:]] = True
    return Bipartition(side, normalized_cut_of(graph, side), label)


def _on_gpu(
    graph: Subgraph, vectors: NDArray[np.float64], options: SweepOptions, gpu: GpuCuts, at: NDArray[np.int64]
) -> Bipartition | None:
    """The best of these split points of all directions by a GPU; None where it has no room."""
    names, along = zip(*_directions(graph, vectors.shape[1], options), strict=True)
    is_allowed = np.zeros(graph.n, np.bool_)
    is_allowed[at - 1] = True
    found = gpu.best(graph, vectors, np.stack(along), is_allowed)
    return found and Bipartition(found.side, _ncut_of(graph, found.side, found.cut), names[found.direction])


def _batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Items in lists, the last one of which may be short."""
    while some := list(islice(items, size)):
        yield some


def _shared(function: Callable[[Item], Result], items: Sequence[Item], length: int) -> list[Result]:
    """Results of a function for items of some length, by several threads where that pays."""
    if length * len(items) < _FEW:
        return [function(item) for item in items]
    return map_runs(function, items)


def ncut_profile(graph: Subgraph, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Normalized cuts of the first 1, 2, ..., n - 1 vertices of an order from the others, (n - 1,)."""
    return _profile(graph.degrees, (order, weights_before(graph, [order])[0]))


def _profile(degrees: NDArray[np.float64], ranked: tuple[NDArray[np.int64], NDArray[np.float64]]) -> NDArray[np.float64]:
    """The same from an order and, for every vertex, the weights of its edges to vertices before it."""
    order, before = ranked
    degrees, before = degrees[order], before[order]
    # Sums from either end, so that a small side has small errors: cut and assoc of the first i, and of those after them.
    first, last = np.cumsum(degrees)[:-1], np.cumsum(degrees[::-1])[::-1][1:]
    inner = degrees - 2 * before
    cut = np.where(first <= last, np.cumsum(inner)[:-1], np.cumsum(-inner[::-1])[::-1][1:])
    cut = np.maximum(cut, 0)
    return np.asarray(_share(cut, first) + _share(cut, last))


def normalized_cut_of(graph: Subgraph, side: NDArray[np.bool_], gpu: GpuCuts | None = None) -> float:
    """``cut / assoc(A) + cut / assoc(B)``, summed from the edges, which a GPU may find; 0 where no edge is cut."""
    runs, found = runs_between(graph.starts), None if gpu is None else gpu.across(graph, side)
    if found is None:
        return _ncut_of(graph, side, sum(map_runs(_cut_between(graph, side), runs)))
    counts, weights = found
    before = np.concatenate([[0], np.cumsum(counts)])
    return _ncut_of(graph, side, sum(float(weights[before[run.start] : before[run.stop]].sum()) / 2 for run in runs))


def _cut_between(graph: Subgraph, side: NDArray[np.bool_]) -> Callable[[slice], float]:
    """A function that tells the weights between both sides in a run of rows."""
    matrix, vertices = graph.whole.adjacency, graph.vertices
    starts = matrix.indptr
    sides = np.full(graph.whole.n, 2, np.int8)  # of others, which differ from 0 and 1 in another bit
    sides[vertices] = side

    def cut_in(run: slice) -> float:
        rows = slice(vertices[run.start], vertices[run.stop - 1] + 1)
        part = slice(starts[rows.start], starts[rows.stop])
        of_ends = sides.take(matrix.indices[part], mode="clip")
        of_ends ^= np.repeat(sides[rows], np.diff(starts[rows.start : rows.stop + 1]))
        return float(matrix.data[part][of_ends == 1].sum()) / 2

    return cut_in


def _ncut_of(graph: Subgraph, side: NDArray[np.bool_], cut: float) -> float:
    """The normalized cut by the weights between both sides."""
    cuts, degrees = np.array([cut]), graph.degrees
    return float((_share(cuts, degrees[side].sum()) + _share(cuts, degrees[~side].sum()))[0])


def _share(cut: NDArray[np.float64], assoc: NDArray[np.float64]) -> NDArray[np.float64]:
    """``cut / assoc``; 0 where nothing is cut, and 1 of a side whose weights are too small to be summed."""
    shares = np.ones_like(cut)
    np.divide(cut, assoc, out=shares, where=assoc > 0)
    shares[cut == 0] = 0
    return shares


def weights_before(graph: Subgraph, orders: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Weights of the edges of each vertex to vertices before it in each order, (orders, n)."""
    matrix, vertices = graph.whole.adjacency, graph.vertices
    index = matrix.indices.dtype
    ranks, sums = np.full((len(orders), graph.whole.n), np.iinfo(index).max, index), np.zeros((len(orders), graph.whole.n))
    for rank, order in zip(ranks, orders, strict=True):
        rank[vertices[order]] = np.arange(graph.n, dtype=index)

    def add(rows: slice) -> None:
        sums[:, rows] = _before(ranks, matrix, rows, ranks[:, rows])

    map_runs(add, runs_between(matrix.indptr))
    sums = sums if graph.is_all else sums[:, vertices]
    border = graph.border
    if len(border):
        sums[:, border] = _before(ranks, graph.border_rows, slice(0, len(border)), ranks[:, vertices[border]])
    return sums


def _before(ranks: NDArray[Any], matrix: csr_array, rows: slice, own: NDArray[Any]) -> NDArray[np.float64]:
    """The same of some rows of a matrix, whose own ranks are given, by the ranks of all columns, (orders, rows)."""
    starts = matrix.indptr[rows.start : rows.stop + 1]
    columns, data, lengths = matrix.indices[starts[0] : starts[-1]], matrix.data[starts[0] : starts[-1]], np.diff(starts)
    sums, filled = np.zeros(own.shape), np.flatnonzero(lengths)
    if len(filled):
        first = starts[filled] - starts[0]
        for rank, of_rows, of_order in zip(ranks, own, sums, strict=True):
            is_before = rank.take(columns, mode="clip") < np.repeat(of_rows, lengths)
            of_order[filled] = np.add.reduceat(data * is_before, first)
    return sums


def _sizes(n: int, options: SweepOptions) -> NDArray[np.int64]:
    """How many vertices come first, for every split point."""
    least, most = options.min_size, n - options.min_size
    if options.n_splits is None or options.n_splits >= most - least + 1:
        return np.arange(least, most + 1)
    evenly = np.rint(np.arange(1, options.n_splits + 1) * n / (options.n_splits + 1)).astype(np.int64)
    return np.unique(np.clip(evenly, least, most))


def count_directions(n_entries: int, count: int, options: SweepOptions) -> int:
    """How many directions of the span of some vectors are searched."""
    searched = min(_DIRECTIONS, _SEARCHED_ENTRIES // max(1, n_entries)) if options.search is None else options.search
    return max(count, searched) if count > 1 else count


def _directions(graph: Subgraph, count: int, options: SweepOptions) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """The axes, angles between the first two, and random directions where there are more."""
    searched = count_directions(graph.n_entries, count, options)
    for k in range(count):
        yield f"along eigenvector {k + 2}", np.eye(count)[k]
    others = searched - count
    angles = others if count == 2 else others // 2
    for i in range(angles):
        angle = np.pi * (i + 1) / (angles + 1)
        yield f"at {np.degrees(angle):.0f} degrees from eigenvector 2 to 3", _at_angle(angle, count)
    random = np.random.default_rng(options.seed)
    for i in range(others - angles):
        yield f"along random direction {i + 1} of their span", random.standard_normal(count)


def _at_angle(angle: float, count: int) -> NDArray[np.float64]:
    """A direction in the plane of the first two axes."""
    direction = np.zeros(count)
    direction[:2] = np.cos(angle), np.sin(angle)
    return direction
