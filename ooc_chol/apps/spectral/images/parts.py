"""Parts of a graph that are connected in float64: affinities fall so fast that many are 0 beside others.

Eigenvalues of 1e-15 and below are noise, and entries of an eigenvector are inaccurate where the degree is tiny. So parts that
hardly anything joins are found beforehand, and single vertices that nobody notices are left out, to follow their neighbours
afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ooc_chol.apps.spectral.graphs.runs import map_runs
from ooc_chol.apps.spectral.graphs.subgraph import Edges, Subgraph
from ooc_chol.apps.spectral.images.gpu_cuts import GpuCuts

#: Vertices at both ends of some edges.
_Pairs: TypeAlias = tuple[NDArray[Any], NDArray[Any]]

#: An edge this small beside the degrees of both of its ends joins nothing.
_JOINS = 1e-10
#: A vertex all edges of which are this small beside the degrees of their other ends is noticed by nobody.
_NOTICED = 1e-6
#: Edges of each vertex that are looked at first, which is enough for most; and vertices of which a thread does so in one go.
_SOME, _VERTICES = 2, 1 << 15


def parts_of(graph: Subgraph, gpu: GpuCuts | None = None) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Part of every vertex, (n,) int32 with -1 for one that nobody notices, and the number of vertices of every part.

    Parts are numbered by their first vertices. A cut between parts is below ``2e-10 m`` of the smaller side's edges, m being the
    most edges of a vertex. Where m is below a million, vertices that nobody notices cannot be a cluster of their own: some edge
    of each vertex is a millionth of its degree.
    """
    found = None if gpu is None else gpu.components(graph, _NOTICED, _JOINS)
    label, is_noticed = found or _labels(graph)
    is_loose = ~is_noticed
    sizes = np.bincount(label[~is_loose], minlength=graph.n)
    first = np.full(graph.n, graph.n)
    first[label[::-1]] = np.arange(graph.n)[::-1]
    first[sizes == 0] = graph.n
    kept = np.argsort(first, kind="stable")[: np.count_nonzero(sizes)]
    number = np.full(graph.n, -1, np.int32)
    number[kept] = np.arange(len(kept))
    part = number[label]
    part[is_loose] = -1
    return part, sizes[kept]


def _labels(graph: Subgraph) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """A number of the component of each vertex, and which are noticed."""
    some = map_runs(partial(_some_edges, graph), _equal_shares(graph.n))
    is_noticed = _noticed(graph, some)
    return _components(graph, is_noticed, some), is_noticed


def _noticed(graph: Subgraph, some: Sequence[Edges]) -> NDArray[np.bool_]:
    """Vertices that some edge makes noticed by its other end, and those without edges."""
    is_noticed = np.asarray(graph.degrees == 0)

    def look(edges: Edges) -> None:
        is_seen = edges.weights > _NOTICED * graph.degrees.take(edges.ends, mode="clip")
        is_noticed[edges.begins[is_seen]] = True

    map_runs(look, some)
    graph.map_edges(look, np.flatnonzero(~is_noticed))
    return is_noticed


def _components(graph: Subgraph, is_noticed: NDArray[np.bool_], some: Sequence[Edges]) -> NDArray[np.int32]:
    """Which vertices edges between noticed ones join: by some edges of each, then by all of those that are left over."""
    degrees = graph.degrees

    def joining(edges: Edges) -> _Pairs:
        begins, ends = edges.begins, edges.ends
        joins = edges.weights > _JOINS * np.minimum(degrees.take(begins, mode="clip"), degrees.take(ends, mode="clip"))
        joins &= is_noticed.take(begins, mode="clip") & is_noticed.take(ends, mode="clip")
        return begins[joins], ends[joins]

    label = _joined(graph.n, map_runs(joining, some))

    def bridges(edges: Edges) -> _Pairs:
        begins, ends = (label[side] for side in joining(edges))
        return begins[begins != ends], ends[begins != ends]

    # An edge between two components stands in the rows of both of its ends, one of which is not in the largest component.
    is_left = label != np.argmax(np.bincount(label))
    found = graph.map_edges(bridges, np.flatnonzero(is_left & is_noticed))
    return _joined(int(label.max()) + 1, found)[label]


def _equal_shares(n: int) -> list[slice]:
    """Vertices, some for one thread at a time."""
    return [slice(first, min(n, first + _VERTICES)) for first in range(0, n, _VERTICES)]


def _some_edges(graph: Subgraph, vertices: slice) -> Edges:
    """A few edges of each vertex, evenly spaced in its row; an edge may be among them twice."""
    matrix, rows = graph.whole.adjacency, graph.vertices[vertices]
    starts = matrix.indptr[rows].astype(np.int64)
    lengths = matrix.indptr[rows + 1] - starts
    has_edges = np.flatnonzero(lengths)
    at = (starts[has_edges, None] + lengths[has_edges, None] * np.arange(_SOME) // _SOME).ravel()
    begins = np.repeat(rows[has_edges], _SOME)
    return graph.inside(Edges(begins, matrix.indices.take(at, mode="clip"), matrix.data.take(at, mode="clip")))


def _joined(n: int, edges: Sequence[_Pairs]) -> NDArray[np.int32]:
    """Components of a graph, by the edges between its vertices, in one direction or both."""
    if not sum(len(begins) for begins, _ in edges):
        return np.arange(n, dtype=np.int32)
    begins, ends = (np.concatenate(side) for side in zip(*edges, strict=True))
    matrix = coo_array((np.ones(len(begins)), (begins, ends)), shape=(n, n))
    return np.asarray(connected_components(matrix, directed=False)[1])


def followed(graph: Subgraph, part: NDArray[np.int32], known: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Sides of all vertices: those without one take that to which their part, or they by themselves, have the larger weights.

    Shapes: ``part`` (n,), ``known`` (n,). Returns (n,): the sides, true for 1; that of the more vertices where no weights tell.
    """
    pull, unknown = np.zeros(graph.n), np.flatnonzero(known == 0)
    of_all = np.zeros(graph.whole.n)
    of_all[graph.vertices] = known
    pull[unknown] = graph.whole.adjacency[graph.vertices[unknown]] @ of_all
    of_part = np.bincount(part + 1, pull, part.max() + 2)
    pull = np.where(part >= 0, of_part[part + 1], pull)
    majority = float(np.sign(known.sum(dtype=np.int64)))
    return np.asarray(np.where(known != 0, known, np.where(pull != 0, pull, majority)) > 0)
