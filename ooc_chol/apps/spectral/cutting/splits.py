"""Balanced splits of vertices by their places along directions, and the cuts of many splits at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.cutting.target import Target
from ooc_chol.apps.spectral.graphs.graph import Graph

#: Splits whose cuts are counted together: one bit each of a byte, or a column each of a panel.
BATCH = 8
#: So many sizes of part 0 are counted one by one; where the target allows more, vertices are sorted and all prefixes counted.
FEW_SIZES = 4

#: ``X (n, b) -> A X``.
Product = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@final
class Splits:
    """Splits of one graph: vertices in ascending order of a value, equal ones by their numbers, the first of them part 0."""

    def __init__(self, graph: Graph, target: Target, product: Product | None = None) -> None:
        self.graph, self.target, self.product = graph, target, product
        self._sizes = self._known_sizes()
        if product is None:
            rows = np.repeat(np.arange(graph.n, dtype=graph.adjacency.indices.dtype), np.diff(graph.adjacency.indptr))
            once = rows < graph.adjacency.indices
            self._heads, self._tails = rows[once], graph.adjacency.indices[once]
            self._weights = None if graph.has_unit_edges else graph.adjacency.data[once]

    def best(self, places: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
        """Labels (b, n) and cuts (b,) of the splits along the rows of ``places`` (b, n), b at most ``BATCH``."""
        if self._sizes:
            tried = [(labels := self._of_size(places, size), self._cuts(labels)) for size in self._sizes]
            least = np.argmin([cuts for _, cuts in tried], axis=0)
            rows = np.arange(len(places))
            return np.array([labels for labels, _ in tried])[least, rows], np.array([cuts for _, cuts in tried])[least, rows]
        if self.product is not None:
            nearest = np.array([self._nearest(values) for values in places])
            return nearest, self._cuts(nearest)
        swept = [self._swept(values) for values in places]
        return np.array([labels for labels, _ in swept]), np.array([cut for _, cut in swept])

    def _known_sizes(self) -> list[int]:
        """How many vertices part 0 may have, where that is known beforehand and they are few; else none."""
        if not self.graph.has_unit_vertices:
            return []
        allowed = self._allowed(np.arange(1.0, self.graph.n)) + 1
        return allowed.tolist() if len(allowed) <= FEW_SIZES else []

    def _allowed(self, weights: NDArray[np.float64]) -> NDArray[np.intp]:
        """Which of the ascending weights of part 0 the target allows, or else the one that is nearest."""
        excess = np.abs(weights - self.target.weight) - self.target.slack
        inside = np.flatnonzero(excess <= 0)
        return inside if len(inside) else np.array([np.argmin(excess)])

    def _of_size(self, places: NDArray[np.float64], size: int) -> NDArray[np.int8]:
        """Labels with so many vertices in part 0, (b, n)."""
        borders = np.partition(places, size - 1, axis=1)[:, size - 1 : size]
        labels = (places > borders).astype(np.int8)
        missing = size - np.count_nonzero(places < borders, axis=1)
        for row, first in enumerate(missing.tolist()):
            # Of those at the border, the first by number fill part 0.
            labels[row, np.flatnonzero(places[row] == borders[row])[first:]] = 1
        return labels

    def _prefixes(self, values: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Vertices in order, and the places in it after which the target allows a cut."""
        # Much faster than a stable sort, and the same where no two values are equal.
        order = np.argsort(values)
        if not np.all(np.diff(values[order]) > 0):
            order = np.argsort(values, kind="stable")
        return order, self._allowed(np.cumsum(self.graph.vertex_weights[order])[:-1])

    def _nearest(self, values: NDArray[np.float64]) -> NDArray[np.int8]:
        """Labels of the allowed prefix whose weight is nearest to the target."""
        order, allowed = self._prefixes(values)
        weights = np.cumsum(self.graph.vertex_weights[order])[allowed]
        return self._prefix(order, int(allowed[np.argmin(np.abs(weights - self.target.weight))]))

    def _prefix(self, order: NDArray[np.intp], last: int) -> NDArray[np.int8]:
        """Labels of the vertices up to a place."""
        labels = np.ones(self.graph.n, np.int8)
        labels[order[: last + 1]] = 0
        return labels

    def _swept(self, values: NDArray[np.float64]) -> tuple[NDArray[np.int8], float]:
        """Labels and cut of the allowed prefix of least cut."""
        order, allowed = self._prefixes(values)
        place = np.empty(self.graph.n, np.intp)
        place[order] = np.arange(self.graph.n)
        heads, tails = place[self._heads], place[self._tails]
        # An edge is cut from its first vertex on, until its second is passed.
        change = np.bincount(np.minimum(heads, tails), self._weights, self.graph.n)
        change = change - np.bincount(np.maximum(heads, tails), self._weights, self.graph.n)
        cuts = np.cumsum(change)[allowed]
        least = int(np.argmin(cuts))
        return self._prefix(order, int(allowed[least])), float(cuts[least])

    def _cuts(self, labels: NDArray[np.int8]) -> NDArray[np.float64]:
        """Cuts of at most eight splits, (b, n)."""
        if self.product is not None:
            x = np.ascontiguousarray(labels.T, np.float64)
            return np.asarray(self.graph.degrees @ x - np.einsum("ij,ij->j", x, self.product(x)), np.float64)
        codes = np.packbits(labels.view(np.uint8), axis=0, bitorder="little")[0]
        sums = np.bincount(codes[self._heads] ^ codes[self._tails], self._weights, 256)
        bits = (np.arange(256)[:, None] >> np.arange(len(labels))) & 1
        return np.asarray(sums @ bits, np.float64)
