"""Graphs with known best cuts, and what rectangles cost to cut straight."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np
from scipy.sparse import block_diag, coo_array, csr_array, diags_array, eye_array, kron
from scipy.spatial import KDTree


def from_edges(n, edges, weights=None):
    """A symmetric matrix with these edges."""
    a, b = np.asarray(edges, dtype=int).reshape(-1, 2).T
    values = np.ones(len(a)) if weights is None else np.asarray(weights, float)
    return csr_array(coo_array((np.r_[values, values], (np.r_[a, b], np.r_[b, a])), shape=(n, n)))


def path(n):
    return from_edges(n, [*pairwise(range(n))])


def ring(n):
    return from_edges(n, [(i, (i + 1) % n) for i in range(n)])


def star(n):
    return from_edges(n, [(0, leaf) for leaf in range(1, n)])


def clique(n):
    return csr_array(np.ones((n, n)) - np.eye(n))


def grid(*sides):
    """Neighbours along each axis."""
    whole = csr_array((1, 1))
    for side in sides:
        line = diags_array([1.0, 1.0], offsets=[-1, 1], shape=(side, side)) if side > 1 else csr_array((1, 1))
        whole = csr_array(kron(whole, eye_array(side)) + kron(eye_array(whole.shape[0]), line))
    return whole


def together(*graphs):
    """Graphs beside each other."""
    return csr_array(block_diag(graphs, format="csr"))


def octahedral_sphere(m):
    """A sphere of 4 m^2 + 2 vertices: the faces of an octahedron, in m^2 triangles each, as fe_sphere is with m = 64."""
    points = [point for point in product(range(-m, m + 1), repeat=3) if sum(map(abs, point)) == m]
    number = {point: at for at, point in enumerate(points)}
    steps = [(1, -1, 0), (1, 1, 0), (1, 0, -1), (1, 0, 1), (0, 1, -1), (0, 1, 1)]
    pairs = [(p, (p[0] + dx, p[1] + dy, p[2] + dz)) for p in points for dx, dy, dz in steps]
    edges = [(number[p], number[q]) for p, q in pairs if q in number and _same_face(p, q)]
    return from_edges(len(points), edges)


def _same_face(p, q):
    """Whether no coordinate has another sign."""
    return all(a * b >= 0 for a, b in zip(p, q, strict=True))


def neighbours_in_the_plane(n, seed):
    """Random points in a square, those nearer than about a tenth of it joined."""
    sites = np.random.default_rng(seed).uniform(size=(n, 2))
    return from_edges(n, sorted(KDTree(sites).query_pairs(0.09)))


@cache
def straight_cut(width, height, n_parts):
    """The edges that the best recursion of straight cuts through a rectangle of a grid cuts, as if it could halve edges."""
    if n_parts == 1:
        return 0.0
    cuts = []
    for first in range(1, n_parts // 2 + 1):
        share = first / n_parts
        for w, h in ((width, height), (height, width)):
            cuts.append(h + straight_cut(w * share, h, first) + straight_cut(w * (1 - share), h, n_parts - first))
    return min(cuts)


def recounted(matrix, labels):
    """The cut, counted from the matrix alone."""
    entries = coo_array(matrix)
    rows, columns = entries.coords
    return float(entries.data[(labels[rows] != labels[columns]) & (rows < columns)].sum())
