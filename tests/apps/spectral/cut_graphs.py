"""Graphs for tests of cuts: small ones of hypothesis with all their bisections, and grids."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array, diags_array

from ooc_chol.apps.spectral import Graph
from tests.inside.spectral import Target


def graph_of(dense, vertex_weights=None, name="the graph"):
    """A graph of a symmetric array."""
    adjacency = csr_array(np.asarray(dense, np.float64))
    adjacency.sort_indices()
    n = adjacency.shape[0]
    return Graph(adjacency, np.ones(n) if vertex_weights is None else np.asarray(vertex_weights, np.float64), name)


def half(graph, slack=0.5):
    """Two parts that weigh the same."""
    return Target(graph.total_weight / 2, graph.total_weight, slack)


@st.composite
def small_graphs(draw, most=12, weights=6):
    """Up to a dozen vertices with whole weights of vertices and edges, connected or not."""
    n = draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    upper = np.triu(rng.integers(1, weights + 1, (n, n)) * (rng.random((n, n)) < draw(st.floats(0.1, 1.0))), 1)
    has_weights = draw(st.booleans())
    return graph_of(upper + upper.T, rng.integers(1, weights + 1, n) if has_weights else None)


def all_bisections(graph):
    """Labels (2^n, n), cuts and weights of part 0 of every way to label the vertices."""
    labels = np.array(list(itertools.product((0, 1), repeat=graph.n)), np.int8)
    dense = graph.adjacency.toarray()
    cuts = np.einsum("ai,ij,aj->a", labels, dense, 1 - labels)
    return labels, cuts, (1 - labels) @ graph.vertex_weights


def grid(rows, columns):
    """A grid with edges to the vertices beside, below, and no others; vertices are numbered by rows."""
    n = rows * columns
    right = np.ones(n - 1)
    right[columns - 1 :: columns] = 0
    upper = csr_array(diags_array([right, np.ones(n - columns)], offsets=[1, columns], shape=(n, n), format="csr"))
    adjacency = csr_array(upper + upper.T)
    adjacency.eliminate_zeros()
    adjacency.sort_indices()
    return Graph(adjacency, np.ones(n), f"the grid of {rows} x {columns}")


def dense_vectors(graph, count=3):
    """Lowest nontrivial eigenvectors by LAPACK."""
    return np.linalg.eigh(graph.laplacian().toarray())[1][:, 1 : count + 1]
