"""Some vertices of a graph where they are: rows of a graph that is much the same are shared, and not copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from ooc_chol.apps.spectral.graphs.graph import Graph, sums_of_rows
from ooc_chol.apps.spectral.graphs.runs import map_runs, runs_between

Result = TypeVar("Result")


class Edges(NamedTuple):
    """Edges of some vertices: those in whose rows they stand, their other ends and weights."""

    begins: NDArray[Any]
    ends: NDArray[Any]
    weights: NDArray[np.float64]


@final
class Subgraph:
    """The graph of some vertices, as of :meth:`Graph.subgraph`, by the rows that they have in the graph which they are part of.

    Shapes: ``vertices`` (n,) ascending, all by default. Sums are those of a copy to the bit: rows with edges to other vertices
    are copied, without these. ``adjacency`` is made when it is asked for.
    """

    def __init__(self, whole: Graph, vertices: NDArray[Any] | None = None) -> None:
        self.whole = whole
        self.is_all = vertices is None or len(vertices) == whole.n
        self.vertices = np.arange(whole.n, dtype=np.int32) if vertices is None else vertices
        self.name = whole.name

    @property
    def n(self) -> int:
        """Vertices."""
        return len(self.vertices)

    @cached_property
    def n_entries(self) -> int:
        """Entries of the adjacency: two for each edge."""
        return int(self.lengths.sum(dtype=np.int64))

    @cached_property
    def number(self) -> NDArray[np.int32]:
        """The number of every vertex of the whole, -1 of others, (whole.n,)."""
        number = np.full(self.whole.n, -1, np.int32)
        number[self.vertices] = np.arange(self.n, dtype=np.int32)
        return number

    @cached_property
    def border(self) -> NDArray[np.int64]:
        """Those with edges to other vertices, ascending."""
        if self.is_all:
            return np.zeros(0, np.int64)
        is_met = np.zeros(self.whole.n, np.bool_)

        def meet(edges: Edges) -> None:
            is_met[edges.ends] = True

        _map_rows(meet, self.whole.adjacency, np.flatnonzero(self.number < 0))
        return np.flatnonzero(is_met[self.vertices])

    @cached_property
    def border_rows(self) -> csr_array:
        """Rows of those, without the edges to others; columns are numbers of the whole."""
        rows = self.whole.adjacency[self.vertices[self.border]]
        is_inside = self.number[rows.indices] >= 0
        before = np.concatenate([[0], np.cumsum(is_inside)])
        inside = csr_array(rows.shape)
        inside.data, inside.indices = rows.data[is_inside], rows.indices[is_inside]
        inside.indptr = before[rows.indptr].astype(rows.indptr.dtype)
        return inside

    @cached_property
    def lengths(self) -> NDArray[Any]:
        """Entries of each row of the adjacency, (n,)."""
        lengths: NDArray[Any] = np.diff(self.whole.adjacency.indptr)[self.vertices]
        lengths[self.border] = np.diff(self.border_rows.indptr)
        return lengths

    @property
    def starts(self) -> NDArray[np.int64]:
        """Starts of the rows of the adjacency, (n + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Weights of the edges of every vertex, summed, (n,)."""
        degrees: NDArray[np.float64] = self.whole.degrees[self.vertices]
        degrees[self.border] = sums_of_rows(self.border_rows.data, self.border_rows.indptr)
        return degrees

    @cached_property
    def adjacency(self) -> csr_array:
        """A copy of the rows and columns of the vertices."""
        matrix: csr_array = self.whole.adjacency if self.is_all else self.whole.subgraph(self.vertices).adjacency
        return matrix

    def laplacian(self) -> csr_array:
        """``diag(degrees) - adjacency``."""
        return csr_array(diags_array(self.degrees, format="csr") - self.adjacency)

    def inside(self, edges: Edges) -> Edges:
        """Those edges of some vertices that lead to others of it; given with numbers of the whole, and returned with its own."""
        if self.is_all:
            return edges
        begins, ends = (self.number.take(side, mode="clip") for side in edges[:2])
        is_inside = ends >= 0
        if is_inside.all():
            return Edges(begins, ends, edges.weights)
        return Edges(begins[is_inside], ends[is_inside], edges.weights[is_inside])

    def map_edges(self, function: Callable[[Edges], Result], vertices: NDArray[np.int64]) -> list[Result]:
        """``function(edges)`` of all edges of some vertices, in runs, by several threads."""
        return _map_rows(lambda edges: function(self.inside(edges)), self.whole.adjacency, self.vertices[vertices])


def _map_rows(function: Callable[[Edges], Result], matrix: csr_array, rows: NDArray[Any]) -> list[Result]:
    """``function(entries)`` of some rows of a matrix, in runs, by several threads."""
    starts = matrix.indptr[rows].astype(np.int64)
    lengths = matrix.indptr[rows + 1] - starts
    before = np.concatenate([[0], np.cumsum(lengths)])

    def entries(part: slice) -> Result:
        at = np.arange(before[part.start], before[part.stop])
        at += np.repeat(starts[part] - before[part.start : part.stop], lengths[part])
        begins = np.repeat(rows[part], lengths[part])
        return function(Edges(begins, matrix.indices.take(at, mode="clip"), matrix.data.take(at, mode="clip")))

    return map_runs(entries, runs_between(before))
