"""Neighbours of vertices as lists, which single moves in Python read faster than arrays."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.graphs.graph import Graph

#: Sums of whole weights that float64 has exactly, and int64 holds.
_MOST_WHOLE = 2.0**52


@final
class Rows:
    """Rows of a graph as lists, each made when it is asked for first: several refinements share them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        is_small = float(graph.degrees.max(initial=0.0)) < _MOST_WHOLE
        self.are_whole = is_small and bool(np.all(graph.adjacency.data == np.rint(graph.adjacency.data)))
        self._edges: dict[int, list[tuple[int, float]]] = {}
        self._indptr = graph.adjacency.indptr

    def edges(self, vertex: int) -> list[tuple[int, float]]:
        """The vertices beside one, each with twice the weight of the edge, a whole number where all edges have such."""
        found = self._edges.get(vertex)
        if found is None:
            row = slice(self._indptr[vertex], self._indptr[vertex + 1])
            ends = self.graph.adjacency.indices[row].tolist()
            if self.graph.has_unit_edges:
                found = [(end, 2) for end in ends]
            else:
                found = list(zip(ends, self.numbers(2 * self.graph.adjacency.data[row]), strict=True))
            self._edges[vertex] = found
        return found

    def numbers(self, values: NDArray[np.float64]) -> list[float]:
        """Sums of weights as a list, whole numbers where all edges of the graph have such weights."""
        return list((values.astype(np.int64) if self.are_whole else values).tolist())

    def gains(self, labels: NDArray[np.int8]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """By how much the cut lessens where one vertex moves, and which vertices have neighbours in the other part."""
        signs = 1.0 - 2.0 * labels
        inner = signs * (self.graph.adjacency @ signs)
        slack = 0.0 if self.are_whole else 1e-12
        return -inner, self.graph.degrees - inner > slack * self.graph.degrees
