"""Small sparse matrices of every kind that a pattern can be, and what tests of derivatives share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, kron, random_array

from ooc_chol.diff import Pattern


def random_matrix(shape: tuple[int, int], density: float, seed: int) -> csr_array:
    """Normal numbers in random places."""
    rng = np.random.default_rng(seed)
    return random_array(shape, density=density, rng=rng, format="csr", data_sampler=lambda size: rng.standard_normal(size))


def with_empty_rows() -> csr_array:
    """Rows without entries at the top, in the middle and at the end, and empty columns."""
    a = random_matrix((8, 6), 0.5, 3).toarray()
    a[[0, 3, 4, 7]] = 0
    a[:, [0, 5]] = 0
    return csr_array(a)


#: Every kind of pattern that an operation must take.
MATRICES: dict[str, Callable[[], csr_array]] = {
    "square": lambda: random_matrix((7, 7), 0.4, 1),
    "wide": lambda: random_matrix((5, 9), 0.4, 2),
    "tall": lambda: random_matrix((9, 5), 0.4, 4),
    "empty rows": with_empty_rows,
    "1 x 1": lambda: csr_array(np.array([[-1.5]])),
    "no entries": lambda: csr_array((4, 3)),
    "no rows": lambda: csr_array((0, 3)),
    "dense": lambda: csr_array(np.random.default_rng(5).standard_normal((4, 6))),
}


def entries(name: str, dtype: Any = np.float64) -> tuple[Pattern, NDArray[Any]]:
    """Pattern and values of one of the matrices."""
    pattern, values = Pattern.of(MATRICES[name]())
    return pattern, values.astype(dtype)


def dense(pattern: Pattern, values: NDArray[Any]) -> NDArray[Any]:
    """The matrix with zeros, by assignment of each entry."""
    a = np.zeros(pattern.shape, values.dtype)
    for row in range(pattern.n_rows):
        for place in range(pattern.indptr[row], pattern.indptr[row + 1]):
            a[row, pattern.indices[place]] = values[place]
    return a


def poisson(m: int) -> csr_array:
    """The five-point Laplacian of an m x m grid."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    eye = diags_array([1.0], offsets=[0], shape=(m, m))
    return (kron(line, eye) + kron(eye, line)).tocsr()
