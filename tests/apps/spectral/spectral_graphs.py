"""Graphs that tests of spectral partitions are made with."""

from __future__ import annotations

import numpy as np
from scipy.sparse import block_diag, csr_array, diags_array, eye_array, kron, triu

import ooc_chol as oc
from ooc_chol.apps.spectral import Graph, as_graph
from tests.inside.spectral import components


def path_matrix(n: int) -> csr_array:
    """Adjacency of a path."""
    return csr_array(diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n)))


def grid_matrix(rows: int, columns: int) -> csr_array:
    """Adjacency of a grid, row by row."""
    return csr_array(kron(path_matrix(rows), eye_array(columns)) + kron(eye_array(rows), path_matrix(columns)))


def torus_matrix(*sides: int) -> csr_array:
    """Adjacency of a torus of as many dimensions."""
    number = np.arange(np.prod(sides)).reshape(sides)
    ends = np.hstack([[number.ravel(), np.roll(number, -1, axis).ravel()] for axis in range(len(sides))])
    one_way = csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(number.size, number.size))
    return csr_array(one_way + one_way.T)


def clique_matrix(n: int) -> csr_array:
    """Adjacency of a clique."""
    return csr_array(np.ones((n, n)) - np.eye(n))


def weighted_matrix(n: int, seed: int = 0) -> csr_array:
    """A connected graph with weights of many sizes: a path, and random edges."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n, (2, 3 * n))
    ends = ends[:, ends[0] != ends[1]]
    upper = csr_array((10 ** rng.uniform(-1, 1, ends.shape[1]), (ends.min(axis=0), ends.max(axis=0))), shape=(n, n))
    return csr_array(path_matrix(n) + upper + upper.T)


def affinity_matrix(rows: int, columns: int, seed: int = 0) -> csr_array:
    """A grid with weights of many sizes, as affinities of the pixels of an image have."""
    rng = np.random.default_rng(seed)
    upper = triu(grid_matrix(rows, columns), format="csr")
    upper.data = 10 ** rng.uniform(-3, 1, upper.nnz)
    return csr_array(upper + upper.T)


def irregular_matrix(scale: int) -> csr_array:
    """The largest component of a random graph with hubs: coarse levels of it are dense."""
    with oc.block_csr(oc.testing.rmat(scale)) as packed:
        whole = packed.tocsr()
    labels = components(as_graph(whole))
    kept = np.flatnonzero(labels == np.argmax(np.bincount(labels)))
    return as_graph(whole).subgraph(kept).adjacency


def joined(*parts: csr_array) -> csr_array:
    """Graphs side by side."""
    return csr_array(block_diag(parts, format="csr"))


def graph_of(matrix: csr_array, name: str = "a test's graph") -> Graph:
    """A graph with vertices of weight 1."""
    held = csr_array(matrix, dtype=np.float64)
    held.sort_indices()
    return Graph(held, np.ones(held.shape[0]), name)
