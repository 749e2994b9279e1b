"""What of a graph hangs together in float64: affinities fall so fast that many are 0 beside others.

Eigenvalues of 1e-15 and below are noise, and entries of an eigenvector are inaccurate where the degree is tiny. So parts that
hardly anything joins are found beforehand, and single vertices that nobody notices are left out, to follow their neighbours
afterwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.images.sweep import runs

#: An edge this small beside the degrees of both of its ends joins nothing.
_JOINS = 1e-10
#: A vertex all edges of which are this small beside the degrees of their other ends is noticed by nobody.
_NOTICED = 1e-6


def parts_of(graph: Graph) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The part of every vertex, -1 of one that nobody notices, and the number of vertices of every part.

    Parameters
    ----------
    graph : Graph
        With weights of any size; vertices without edges are parts of their own.

    Returns
    -------
    part : (n,) array of int32
        Parts are numbered by their first vertices.
    sizes : (n_parts,) array of int64
        Vertices of each.

    Notes
    -----
    A cut between parts is below ``2e-10 m`` of the smaller side's edges, m being the most edges of a vertex. Where m is below a
    million, vertices that nobody notices cannot be a cluster of their own: some edge of each vertex is a millionth of its degree.
    """
    matrix, degrees = graph.adjacency, graph.degrees
    if matrix.nnz and matrix.data.min() > _NOTICED * degrees.max():
        joined, is_loose = matrix, np.zeros(graph.n, np.bool_)
    else:
        joined, is_loose = _thinned(graph)
    _, label = connected_components(joined, connection="strong")  # of a symmetric matrix, without its transpose
    label = label.astype(np.int64)
    label[is_loose] = graph.n
    kept, first, part, sizes = np.unique(label, return_index=True, return_inverse=True, return_counts=True)
    if kept[-1] == graph.n:
        kept, first, sizes = kept[:-1], first[:-1], sizes[:-1]
    number = np.full(len(kept) + 1, -1, np.int32)
    order = np.argsort(first)
    number[order] = np.arange(len(kept))
    return number[part], sizes[order]


def _thinned(graph: Graph) -> tuple[csr_array, NDArray[np.bool_]]:
    """The edges that join something, with any weights, and which vertices nobody notices."""
    matrix, degrees, starts = graph.adjacency, graph.degrees, graph.adjacency.indptr
    joins = np.empty(matrix.nnz, np.bool_)
    is_noticed = degrees == 0
    for rows, columns, data in runs(matrix):
        lengths = np.diff(starts[rows.start : rows.stop + 1])
        of_others, of_own = degrees[columns], np.repeat(degrees[rows], lengths)
        joins[starts[rows.start] : starts[rows.stop]] = data > _JOINS * np.minimum(of_own, of_others)
        noticed = data > _NOTICED * of_others
        is_noticed[rows] |= _per_row(noticed, lengths) > 0
    if not is_noticed.all():
        # Two parts are not joined by a vertex that neither notices.
        for rows, columns, _ in runs(matrix):
            lengths = np.diff(starts[rows.start : rows.stop + 1])
            joins[starts[rows.start] : starts[rows.stop]] &= is_noticed[columns] & np.repeat(is_noticed[rows], lengths)
    if joins.all():
        return matrix, ~is_noticed
    ends = np.zeros_like(starts)
    for rows, _, _ in runs(matrix):
        part = slice(rows.start, rows.stop + 1)
        counts = _per_row(joins[starts[rows.start] : starts[rows.stop]], np.diff(starts[part]))
        ends[rows.start + 1 : rows.stop + 1] = ends[rows.start] + np.cumsum(counts)
    # Only where there are edges matters: the first weights stand for all, and are not copied.
    return csr_array((matrix.data[: ends[-1]], matrix.indices[joins], ends), shape=matrix.shape), ~is_noticed


def _per_row(flags: NDArray[np.bool_], lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many entries of each row are true."""
    before = np.concatenate([[0], np.cumsum(flags)])
    ends = np.cumsum(lengths)
    return np.asarray(before[ends] - before[ends - lengths])


def followed(graph: Graph, part: NDArray[np.int32], known: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Sides of all vertices: those without one take that to which their part, or they by themselves, have the larger weights.

    Parameters
    ----------
    graph : Graph
        With n vertices.
    part : (n,) array of int32
        As :func:`parts_of` gives it: the vertices of a part stay together.
    known : (n,) array of int8
        1 and -1 on either side, 0 where it is not known.

    Returns
    -------
    (n,) array of bool
        The sides, true for 1; that of the more vertices where no weights tell.
    """
    pull = np.asarray(graph.adjacency @ known.astype(np.float64))
    of_part = np.bincount(part + 1, np.where(known == 0, pull, 0), part.max() + 2)
    pull = np.where(part >= 0, of_part[part + 1], pull)
    majority = float(np.sign(known.sum(dtype=np.int64)))
    return np.asarray(np.where(known != 0, known, np.where(pull != 0, pull, majority)) > 0)
