"""Matrices at the edges of what FP64 holds and of being positive definite, small enough for all of them to meet every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Matrix = NDArray[np.float64]

#: Scales by which ordinary matrices are multiplied: the last three round their entries to subnormal numbers.
SCALES = (5e307, 1e300, 1e154, 1e-154, 1e-300, 1e-308, 5e-318, 1e-320)


def ordinary(n: int) -> Matrix:
    """A random matrix with all eigenvalues near one; its largest entry is a little over 2."""
    g = np.random.default_rng(18).standard_normal((n, n))
    return 0.5 * (g @ g.T / n + np.eye(n))


def _with(a: Matrix, row: int, col: int, value: float) -> Matrix:
    """The matrix with another entry."""
    a = a.copy()
    a[row, col] = a[col, row] = value
    return a


def _decaying(n: int) -> Matrix:
    t = np.arange(float(n))
    return np.exp(-np.abs(t[:, None] - t) / 20.0)


def _scaled(n: int, scales: Matrix) -> Matrix:
    return ordinary(n) * scales[:, None] * scales


def _duplicated(n: int) -> Matrix:
    """Two equal rows."""
    a = ordinary(n)
    a[n // 2] = a[n // 8]
    a[:, n // 2] = a[:, n // 8]
    a[n // 2, n // 2] = a[n // 8, n // 8]
    return a


def _of_rank(n: int, rank: int) -> Matrix:
    g = np.random.default_rng(2).standard_normal((n, rank))
    return g @ g.T


def _with_smallest(n: int, eigenvalue: float) -> Matrix:
    """A matrix whose smallest eigenvalue is this but for rounding."""
    a = ordinary(n)
    return a + (eigenvalue - np.linalg.eigvalsh(a)[0]) * np.eye(n)


def _blocks_of(n: int, corner: Matrix) -> Matrix:
    a = np.eye(n)
    a[-len(corner) :, -len(corner) :] = corner
    return a


#: Verdicts that are the same for every engine and threshold, the matrix in every scale: far from singular, one way or the other.
CLEAR: dict[str, Callable[[int], Matrix]] = {
    **{f"ordinary times {scale:g}": lambda n, scale=scale: ordinary(n) * scale for scale in SCALES},
    **{f"decaying times {scale:g}": lambda n, scale=scale: (_decaying(n) + np.eye(n)) / 2 * scale for scale in SCALES},
    **{f"identity times {scale:g}": lambda n, scale=scale: np.eye(n) * scale for scale in (1.7e308, 1e-308, 5e-324)},
    "decaying, up to 1.7e308": lambda n: _decaying(n) * 1.7e308,
    "rows from 1e-150 to 1e150": lambda n: _scaled(n, 10.0 ** np.linspace(-150, 150, n)),
    "rows from 1e150 to 1e-150": lambda n: _scaled(n, 10.0 ** np.linspace(150, -150, n)),
    "rows of powers of two": lambda n: _scaled(n, 2.0 ** np.round(np.linspace(-500, 500, n))),
    "rows of 1 and 1e-150": lambda n: _scaled(n, np.where(np.arange(n) % 2, 1.0, 1e-150)),
    "1e-300, and one 1e300": lambda n: _with(np.eye(n) * 1e-300, n // 2, n // 2, 1e300),
    "1e300 first, then 1e-300": lambda n: _with(np.eye(n) * 1e-300, 0, 0, 1e300),
    "1, and one subnormal pivot": lambda n: _with(np.eye(n), n // 2, n // 2, 5e-324),
    "minus zeros": lambda n: np.where(np.eye(n) > 0, 1.0, -0.0),
    "Brownian": lambda n: 0.38889 * np.minimum.outer(np.arange(1.0, n + 1), np.arange(1.0, n + 1)),
    "one 1e200 off the diagonal": lambda n: _with(ordinary(n), n - 1, 0, 1e200),
    "one 1e308 off the diagonal": lambda n: _with(ordinary(n), n - 1, 0, 1e308),
    "one -1e300 off the diagonal": lambda n: _with(ordinary(n), n // 2, 3, -1e300),
    "one 1e20 off the diagonal": lambda n: _with(ordinary(n), n - 2, n // 2, 1e20),
    "two columns of 1e200": lambda n: _with(_with(ordinary(n), n - 1, 0, 1e200), n - 1, 1, -1e200),
    "minus the identity": lambda n: -np.eye(n),
    "zero": lambda n: np.zeros((n, n)),
    "first pivot zero": lambda n: _with(ordinary(n), 0, 0, 0.0),
    "last pivot negative": lambda n: _with(ordinary(n), n - 1, n - 1, -1.0),
    "last pivot -1e-300": lambda n: _with(np.eye(n), n - 1, n - 1, -1e-300),
    "smallest eigenvalue -0.1": lambda n: _with_smallest(n, -0.1),
    "an indefinite corner": lambda n: _blocks_of(n, np.array([[1.0, 2.0], [2.0, 1.0]])),
    "an indefinite corner of 1e300": lambda n: _blocks_of(n, 1e300 * np.array([[1.0, 1.5], [1.5, 1.0]])),
    "an indefinite corner of 1e-300": lambda n: _blocks_of(n, 1e-300 * np.array([[1.0, 2.0], [2.0, 1.0]])),
}

#: Matrices that are singular, or so near to it that rounding decides, of A itself or of a factor: any engine may differ from
#: LAPACK.
SINGULAR: dict[str, Callable[[int], Matrix]] = {
    "two equal rows": _duplicated,
    "ones": lambda n: np.ones((n, n)),
    "ones and 1e-16": lambda n: np.ones((n, n)) + 1e-16 * np.eye(n),
    "ones and 1e-12": lambda n: np.ones((n, n)) + 1e-12 * np.eye(n),
    "of rank n - 1": lambda n: _of_rank(n, n - 1),
    "of rank n / 2": lambda n: _of_rank(n, n // 2),
    "smallest eigenvalue 1e-13": lambda n: _with_smallest(n, 1e-13),
    "smallest eigenvalue -1e-13": lambda n: _with_smallest(n, -1e-13),
    "smallest eigenvalue -1e-7": lambda n: _with_smallest(n, -1e-7),
    "Gaussian and 1e-12": lambda n: np.exp(-((np.subtract.outer(np.arange(n), np.arange(n)) / 20.0) ** 2)) + 1e-12 * np.eye(n),
}


def lapack_accepts(a: Matrix) -> bool:
    """Whether LAPACK's ``dpotrf`` finds the matrix positive definite."""
    return int(lapack.dpotrf(a, lower=1)[1]) == 0


def error_of(a: Matrix, lower: Matrix) -> float:
    """``||A - L L.T||_F / ||A||_F`` in long double, whose exponents hold the squares of all numbers of FP64."""
    wide, factor = a.astype(np.longdouble), np.tril(lower).astype(np.longdouble)
    residual = wide - factor @ factor.T
    return float(np.sqrt(np.square(residual).sum() / np.square(wide).sum()))


def smallest_eigenvalue(a: Matrix) -> float:
    """The smallest eigenvalue as a share of ``||A||_F``, of a matrix of ordinary entries."""
    return float(np.linalg.eigvalsh(a)[0] / np.linalg.norm(a))


def every(families: dict[str, Callable[[int], Matrix]], n: int) -> Iterator[tuple[str, Matrix]]:
    """All matrices of some families, by name."""
    for name, make in families.items():
        yield name, make(n)
