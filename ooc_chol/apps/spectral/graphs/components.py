"""Connected components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ooc_chol.apps.spectral.graphs.graph import Graph


def components(graph: Graph) -> NDArray[np.int32]:
    """The component of every vertex, numbered in the order of their first vertices.

    Parameters
    ----------
    graph : Graph
        Any; a vertex without edges is a component.

    Returns
    -------
    (n,) array of int32
        Numbers from 0 on.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from ooc_chol.apps.spectral.graphs.graph import Graph
    >>> edge = csr_array((np.ones(2), ([0, 2], [2, 0])), shape=(3, 3))
    >>> components(Graph(edge, np.ones(3))).tolist()
    [0, 1, 0]
    """
    # Adjacency is symmetric: strong components are the same, and are found without its transpose.
    count, labels = connected_components(graph.adjacency, directed=True, connection="strong")
    firsts = np.full(count, graph.n, np.int64)
    np.minimum.at(firsts, labels, np.arange(graph.n))
    numbers = np.empty(count, np.int32)
    numbers[np.argsort(firsts)] = np.arange(count, dtype=np.int32)
    found: NDArray[np.int32] = numbers[labels]
    return found
