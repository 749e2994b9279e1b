"""An undirected graph with weights of vertices and edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array


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
        What messages call it.
    loops : int
        Self-loops that were dropped.
    """

    adjacency: csr_array
    vertex_weights: NDArray[np.float64]
    name: str = "the graph"
    loops: int = 0

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
        return np.asarray(self.adjacency.sum(axis=1), np.float64).ravel()

    @cached_property
    def has_unit_edges(self) -> bool:
        """Whether all edges weigh 1."""
        return bool(np.all(self.adjacency.data == 1.0))

    @cached_property
    def has_unit_vertices(self) -> bool:
        """Whether all vertices weigh 1."""
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
        part = csr_array(self.adjacency[vertices][:, vertices])
        part.sort_indices()
        return Graph(part, self.vertex_weights[vertices], self.name)

    def cut(self, labels: NDArray[Any]) -> float:
        """Weights of the edges whose ends have different labels, each edge once."""
        ends = np.repeat(labels, np.diff(self.adjacency.indptr)) != labels[self.adjacency.indices]
        return float(self.adjacency.data[ends].sum()) / 2

    def part_weights(self, labels: NDArray[Any], n_parts: int) -> NDArray[np.float64]:
        """Weights of the vertices of every part, (n_parts,)."""
        return np.bincount(labels, self.vertex_weights, n_parts).astype(np.float64)
