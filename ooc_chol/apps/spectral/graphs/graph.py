"""An undirected graph with weights of vertices and edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.runs import map_runs, runs_between


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph: symmetric adjacency without loops, positive weights.

    Parameters
    ----------
    adjacency : (n, n) csr_array of float64
        Symmetric to the bit, no diagonal, no stored zeros, columns ascending in every row.
    vertex_weights : (n,) array of float64
        Positive weights; ones where the vertices have none.
    name : str
        Name in messages.
    loops : int
        Self-loops that were dropped.
    names : (n,) tuple or None
        Names of the vertices; None where they are numbers from 0.
    """

    adjacency: csr_array
    vertex_weights: NDArray[np.float64]
    name: str = "the graph"
    loops: int = 0
    names: tuple[Any, ...] | None = None

    @property
    def n(self) -> int:
        """Vertices."""
        return int(self.adjacency.shape[0])

    @property
    def n_edges(self) -> int:
        """Edges, each counted once."""
        return int(self.adjacency.nnz) // 2

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Weights of the edges of every vertex, summed, (n,)."""
        starts, sums = self.adjacency.indptr, np.zeros(self.n)

        def add(rows: slice) -> None:
            some = starts[rows.start : rows.stop + 1]
            sums[rows] = sums_of_rows(self.adjacency.data[some[0] : some[-1]], some - some[0])

        map_runs(add, runs_between(starts))
        return sums

    @cached_property
    def has_unit_edges(self) -> bool:
        """True if all edges weigh 1."""
        return bool(np.all(self.adjacency.data == 1.0))

    @cached_property
    def has_unit_vertices(self) -> bool:
        """True if all vertices weigh 1."""
        return bool(np.all(self.vertex_weights == 1.0))

    @property
    def total_weight(self) -> float:
        """Weights of all vertices, summed."""
        return float(self.vertex_weights.sum())

    def laplacian(self) -> csr_array:
        """``diag(degrees) - adjacency``."""
        return csr_array(diags_array(self.degrees, format="csr") - self.adjacency)

    def subgraph(self, vertices: NDArray[Any]) -> Graph:
        """The graph of some vertices, numbered as they are given."""
        vertices = tb.plain_array("vertices", vertices)
        if np.all(vertices[1:] > vertices[:-1]):
            part = _ascending_part(self.adjacency, vertices)
        else:
            part = csr_array(self.adjacency[vertices][:, vertices])
            part.sort_indices()
        return Graph(part, self.vertex_weights[vertices], self.name)

    def cut(self, labels: NDArray[Any]) -> float:
        """Weights of the edges whose ends have different labels, each edge once."""
        labels = tb.plain_array("labels", labels)
        ends = np.repeat(labels, np.diff(self.adjacency.indptr)) != labels[self.adjacency.indices]
        return float(self.adjacency.data[ends].sum()) / 2

    def part_weights(self, labels: NDArray[Any], n_parts: int) -> NDArray[np.float64]:
        """Weights of the vertices of every part, (n_parts,)."""
        return np.bincount(tb.plain_array("labels", labels), self.vertex_weights, n_parts).astype(np.float64)


def sums_of_rows(values: NDArray[np.float64], starts: NDArray[Any]) -> NDArray[np.float64]:
    """Values summed by rows, whose starts are given with the end of the last one, 0 for an empty one."""
    sums, filled = np.zeros(len(starts) - 1), np.flatnonzero(np.diff(starts))
    if len(filled):
        sums[filled] = np.add.reduceat(values, starts[filled])
    return sums


def _ascending_part(matrix: csr_array, vertices: NDArray[Any]) -> csr_array:
    """Rows and columns of some vertices, in which columns ascend as they did."""
    starts, index = matrix.indptr, matrix.indices.dtype
    number = np.full(matrix.shape[0], -1, index)
    number[vertices] = np.arange(len(vertices), dtype=index)
    begins = starts[vertices]
    before = np.concatenate([[0], np.cumsum(starts[vertices + 1] - begins, dtype=np.int64)])

    def rows_of(run: slice) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.int64]]:
        rows = matrix[vertices[run]]
        ends = number.take(rows.indices, mode="clip")
        is_inside = ends >= 0
        if is_inside.all():
            return rows.data, ends, np.diff(rows.indptr)
        counts, filled = np.zeros(rows.shape[0], np.int64), np.flatnonzero(np.diff(rows.indptr))
        counts[filled] = np.add.reduceat(is_inside, rows.indptr[filled], dtype=np.int64)
        return rows.data[is_inside], ends[is_inside], counts

    found = map_runs(rows_of, runs_between(before))
    lengths = np.concatenate([np.zeros(1, np.int64), *(counts for _, _, counts in found)])
    indptr = np.cumsum(lengths, dtype=np.int64).astype(starts.dtype)
    data, columns = np.empty(indptr[-1]), np.empty(indptr[-1], index)
    places = np.concatenate([[0], np.cumsum([len(weights) for weights, _, _ in found], dtype=np.int64)])

    def place(number: int) -> None:
        there = slice(places[number], places[number + 1])
        data[there], columns[there], _ = found[number]

    map_runs(place, range(len(found)))
    part = csr_array((data, columns, indptr), shape=(len(vertices), len(vertices)))
    part.has_sorted_indices = part.has_canonical_format = True
    return part
