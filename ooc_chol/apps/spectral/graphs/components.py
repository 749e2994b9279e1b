"""Connected components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ooc_chol.apps.spectral.graphs.graph import Graph


def components(graph: Graph) -> NDArray[np.int32]:
    """The component of every vertex, numbered in the order of their first vertices.

    Returns (n,): numbers from 0 on.
    """
    # Adjacency is symmetric: strong components are the same, and are found without its transpose.
    count, labels = connected_components(graph.adjacency, directed=True, connection="strong")
    firsts = np.full(count, graph.n, np.int64)
    np.minimum.at(firsts, labels, np.arange(graph.n))
    numbers = np.empty(count, np.int32)
    numbers[np.argsort(firsts)] = np.arange(count, dtype=np.int32)
    found: NDArray[np.int32] = numbers[labels]
    return found
