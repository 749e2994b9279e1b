"""Eigenpairs of a segment from those of one that it is most of: where iterations start, and a cycle that serves both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.subgraph import Subgraph

Vectors = NDArray[np.float64]

#: A segment of a smaller share of the vertices takes nothing over.
LEAST_SHARE = 0.5
#: What is left of a column beside the null vector where it tells something; residuals of columns that are nearly eigenvectors.
_LEFT, _CLOSE = 0.1, 0.01


@final
@dataclass(frozen=True, eq=False)
class Cycle:
    """The preconditioner of a graph, for one that is part of it: zeros for all others."""

    times: Callable[[Vectors], Vectors]
    n: int
    rows: NDArray[np.intp] | None = None  #: Of the vertices of the part; None for all

    def __call__(self, x: Vectors) -> Vectors:
        """The product with (m, b) vectors of the part."""
        if self.rows is None:
            return self.times(x)
        padded = np.zeros((self.n, x.shape[1]))
        padded[self.rows] = x
        return self.times(padded)[self.rows]


class Near(NamedTuple):
    """Approximate eigenvectors of a normalized problem, the lowest first, and its cycle."""

    vectors: Vectors  #: (n, m), as of :class:`Lowest`
    cycle: Cycle | None = None

    def within(self, rows: NDArray[np.intp]) -> Near | None:
        """The same for a part of the vertices; None where it is a small one."""
        if len(rows) < LEAST_SHARE * len(self.vectors):
            return None
        cycle = self.cycle
        if cycle is not None:
            inside = rows if cycle.rows is None else cycle.rows[rows]
            cycle = None if len(inside) < LEAST_SHARE * cycle.n else replace(cycle, rows=inside)
        return Near(self.vectors[rows], cycle)

    def ritz(self, graph: Graph | Subgraph) -> tuple[Vectors, int]:
        """Ritz vectors of the normalized Laplacian in the span, ascending, beside its null vector; how many are close."""
        roots = np.sqrt(graph.degrees)[:, None]
        null, x = roots / np.linalg.norm(roots), self.vectors * roots
        before = np.linalg.norm(x, axis=0)
        x -= null @ (null.T @ x)
        x = np.linalg.qr(x[:, np.linalg.norm(x, axis=0) > _LEFT * before])[0]
        product = x - graph.adjacency @ (x / roots) / roots
        values, turned = np.linalg.eigh(x.T @ product)
        x, off = x @ turned, np.linalg.norm(product @ turned - x @ turned * values, axis=0)
        is_far = off > _CLOSE
        return x, int(np.argmax(is_far)) if is_far.any() else len(values)
