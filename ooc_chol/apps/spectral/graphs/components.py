"""Connected components."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ooc_chol.apps.spectral.graphs.graph import Graph

#: An edge this small beside the edges of one of its ends joins nothing, nor one between vertices of such different degrees.
_JOINS = 1e-30


def components(graph: Graph) -> NDArray[np.int32]:
    """The component of every vertex by edges that join, numbered in the order of their first vertices.

    Returns (n,): numbers from 0 on.
    """
    count, labels = _connected(joined(graph).adjacency)
    firsts = np.full(count, graph.n, np.int64)
    np.minimum.at(firsts, labels, np.arange(graph.n))
    numbers = np.empty(count, np.int32)
    numbers[np.argsort(firsts)] = np.arange(count, dtype=np.int32)
    found: NDArray[np.int32] = numbers[labels]
    return found


def joined(graph: Graph) -> Graph:
    """The same without edges that are nothing in float64: degrees of a component differ by less than 30 decades."""
    adjacency, degrees = graph.adjacency, graph.degrees
    if not adjacency.nnz or adjacency.data.min() > _JOINS * degrees.max():
        return graph
    columns, rows = adjacency.indices, np.repeat(np.arange(graph.n), np.diff(adjacency.indptr))
    count, labels = _connected(adjacency)
    largest = np.zeros(count)
    np.maximum.at(largest, labels, degrees)
    is_light = degrees <= _JOINS * largest[labels]
    joins = adjacency.data > _JOINS * np.maximum(degrees[rows], degrees[columns])
    joins &= is_light[rows] == is_light[columns]
    if joins.all():
        return graph
    starts = np.concatenate([[0], np.cumsum(joins)])[adjacency.indptr].astype(adjacency.indptr.dtype)
    kept = csr_array((adjacency.data[joins], columns[joins], starts), shape=adjacency.shape)
    kept.has_canonical_format = True
    return joined(replace(graph, adjacency=kept))


def _connected(adjacency: csr_array) -> tuple[int, NDArray[np.int32]]:
    """How many components there are, and that of every vertex."""
    # Adjacency is symmetric: strong components are the same, and are found without its transpose.
    count, labels = connected_components(adjacency, directed=True, connection="strong")
    return int(count), labels
