"""Sparse matrices to be solved with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array, kron, random_array

from ooc_chol.diff import Pattern


def entries(matrix: Any) -> tuple[Pattern, NDArray[np.float64]]:
    """Pattern and values of a matrix; zeros of a dense one have no entry."""
    found = csr_array(matrix)
    found.sort_indices()
    return Pattern(found.indptr, found.indices, found.shape, name="A"), np.array(found.data, np.float64)


def poisson(m: int) -> csr_array:
    """The five-point Laplacian of an m x m grid."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    return csr_array(kron(line, eye_array(m)) + kron(eye_array(m), line))


def closed_grid(m: int) -> csr_array:
    """The Laplacian of an m x m grid as a graph: its rows add to 0, up to rounding after the weights."""
    off = poisson(m) - diags_array(poisson(m).diagonal())
    weights = 1.0 + 0.1 * np.random.default_rng(2).random(m * m)
    off = diags_array(weights) @ off @ diags_array(weights)
    return csr_array(off - diags_array(off.sum(axis=1)))


def random_square(n: int, density: float, seed: int) -> csr_array:
    """Normal numbers in random places, some of them on the diagonal."""
    rng = np.random.default_rng(seed)
    return csr_array(random_array((n, n), density=density, rng=rng, data_sampler=lambda size: rng.standard_normal(size)))


def regular(n: int, density: float, seed: int) -> csr_array:
    """The same with a permutation added, so that pivots are off the diagonal and the matrix is seldom singular."""
    rng = np.random.default_rng(seed)
    moved = csr_array((2.0 + rng.random(n), (np.arange(n), rng.permutation(n))), shape=(n, n))
    return csr_array(random_square(n, density, seed) + moved)


def conditioned(n: int, condition: float, seed: int) -> NDArray[np.float64]:
    """A dense matrix with singular values from 1 down to one over its condition number."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return np.asarray(left * np.geomspace(1.0, 1.0 / condition, n) @ right)


def backward_error(a: Any, x: NDArray[Any], b: NDArray[Any]) -> float:
    """Normwise, in the largest magnitude, of the worst right-hand side."""
    matrix = np.asarray(a, np.longdouble)
    x, b = np.atleast_2d(x.T).T.astype(np.longdouble), np.atleast_2d(b.T).T.astype(np.longdouble)
    left = np.abs(b - matrix @ x).max(axis=0)
    most = np.abs(matrix).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return float((left / most).max())
