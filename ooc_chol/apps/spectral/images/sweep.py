"""The best normalized cut along a vector: all split points by cumulated sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.apps.spectral.graphs.graph import Graph

#: Entries that are looked at in one go: what is needed beside the affinity is a few times as many bytes.
_RUN_ENTRIES = 1 << 22


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


def best_bipartition(graph: Graph, vectors: NDArray[np.float64], options: SweepOptions) -> Bipartition:
    """The best normalized cut of all directions searched.

    Parameters
    ----------
    graph : Graph
        Connected, of at least two vertices.
    vectors : (n, k) array
        Eigenvectors, lowest first.
    options : SweepOptions
        What is looked at.

    Returns
    -------
    Bipartition
        With its normalized cut, summed anew.

    Notes
    -----
    A direction costs O(nnz + n log n).
    """
    best, label, order, size = np.inf, "", np.arange(0), 0
    for how, direction in _directions(graph, vectors.shape[1], options):
        ranked = np.argsort(vectors @ direction, kind="stable")
        ncuts = ncut_profile(graph, ranked)
        at = _sizes(graph.n, options)
        found = int(at[np.argmin(ncuts[at - 1])])
        if ncuts[found - 1] < best:
            best, label, order, size = float(ncuts[found - 1]), how, ranked, found
    side = np.zeros(graph.n, np.bool_)
    side[order[size:]] = True
    return Bipartition(side, normalized_cut_of(graph, side), label)


def ncut_profile(graph: Graph, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Normalized cuts of the first 1, 2, ..., n - 1 vertices of an order from the others, (n - 1,)."""
    degrees = graph.degrees[order]
    before = _weights_before(graph, order)[order]
    # Sums from either end, so that a small side has small errors: cut and assoc of the first i, and of those after them.
    first, last = np.cumsum(degrees)[:-1], np.cumsum(degrees[::-1])[::-1][1:]
    cut = np.where(
        first <= last,
        np.cumsum(degrees - 2 * before)[:-1],
        np.cumsum((2 * before - degrees)[::-1])[::-1][1:],
    )
    cut = np.maximum(cut, 0)
    return np.asarray(_share(cut, first) + _share(cut, last))


def normalized_cut_of(graph: Graph, side: NDArray[np.bool_]) -> float:
    """``cut / assoc(A) + cut / assoc(B)``, summed from the edges; 0 where no edge is cut."""
    cut = np.array([0.0])
    for rows, columns, data in runs(graph.adjacency):
        ends = np.repeat(side[rows], np.diff(graph.adjacency.indptr[rows.start : rows.stop + 1])) != side[columns]
        cut += data[ends].sum() / 2
    degrees = graph.degrees
    return float((_share(cut, degrees[side].sum()) + _share(cut, degrees[~side].sum()))[0])


def _share(cut: NDArray[np.float64], assoc: NDArray[np.float64]) -> NDArray[np.float64]:
    """``cut / assoc``; 0 where nothing is cut, and 1 of a side whose weights are too small to be summed."""
    shares = np.ones_like(cut)
    np.divide(cut, assoc, out=shares, where=assoc > 0)
    shares[cut == 0] = 0
    return shares


def _weights_before(graph: Graph, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of every vertex, the weights of its edges to vertices before it in the order, (n,)."""
    rank = np.empty(graph.n, graph.adjacency.indices.dtype)
    rank[order] = np.arange(graph.n)
    sums = np.empty(graph.n)
    starts = graph.adjacency.indptr
    for rows, columns, data in runs(graph.adjacency):
        local = starts[rows.start : rows.stop + 1]
        is_before = rank[columns] < np.repeat(rank[rows], np.diff(local))
        run = csr_array((data * is_before, columns, local - local[0]), shape=(rows.stop - rows.start, graph.n))
        sums[rows] = run.sum(axis=1)
    return sums


def runs(matrix: csr_array) -> Iterator[tuple[slice, NDArray[np.int32], NDArray[np.float64]]]:
    """Rows by runs of some four million entries, with their columns and weights."""
    starts = matrix.indptr
    row, n = 0, matrix.shape[0]
    while row < n:
        end = max(row + 1, int(np.searchsorted(starts, starts[row] + _RUN_ENTRIES, side="right")) - 1)
        part = slice(int(starts[row]), int(starts[end]))
        yield slice(row, end), matrix.indices[part], matrix.data[part]
        row = end


def _sizes(n: int, options: SweepOptions) -> NDArray[np.int64]:
    """How many vertices come first, for every split point."""
    least, most = options.min_size, n - options.min_size
    if options.n_splits is None or options.n_splits >= most - least + 1:
        return np.arange(least, most + 1)
    evenly = np.rint(np.arange(1, options.n_splits + 1) * n / (options.n_splits + 1)).astype(np.int64)
    return np.unique(np.clip(evenly, least, most))


def _directions(graph: Graph, count: int, options: SweepOptions) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """The axes, angles between the first two, and random directions where there are more."""
    searched = options.search
    if searched is None:
        searched = min(_DIRECTIONS, _SEARCHED_ENTRIES // max(1, graph.adjacency.nnz))
    for k in range(count):
        yield f"along eigenvector {k + 2}", np.eye(count)[k]
    others = max(0, searched - count) if count > 1 else 0
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
