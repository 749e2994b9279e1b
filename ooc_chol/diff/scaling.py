"""Powers of two by which rows and columns of a sparse matrix are scaled, so that its entries are about 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr

from ooc_chol.diff.pattern import Pattern

Vectors = NDArray[np.float64]

#: Matrices are scaled where the largest entries of rows, or of columns, differ by more than this.
_MOST_SPREAD = 2.0**10
#: They are, too, where the largest entry is below this, or one over it.
_LEAST_SIZE = 2.0**-200
#: Accuracy of the least-squares problem of scaling, and most steps of its solution.
_ACCURACY, _SWEEPS = 1e-4, 60


class Scales(NamedTuple):
    """``diag(rows) A diag(columns)`` is well scaled."""

    rows: Vectors
    columns: Vectors


class Norms(NamedTuple):
    """Norms of a matrix: of A, and of its transpose."""

    infinity: float
    one: float


def scales_of(pattern: Pattern, values: Vectors) -> Scales | None:
    """Scales of a matrix each row and column of which has an entry other than 0; None where it needs none.

    Logarithms of entries are brought near 0 by least squares (Curtis and Reid 1972), which undoes units of rows and columns.
    """
    if _is_even(pattern, np.abs(values)):
        return None
    there = np.flatnonzero(values)
    count, n = there.size, pattern.n_rows
    logarithms = np.log2(np.abs(values[there]))
    places = np.stack([pattern.rows[there], n + pattern.indices[there]], axis=1).ravel()
    incidence = csr_array((np.ones(2 * count), places, np.arange(0, 2 * count + 1, 2)), shape=(count, n + pattern.n_columns))
    exponents = np.rint(-lsqr(incidence, logarithms, atol=_ACCURACY, btol=_ACCURACY, iter_lim=_SWEEPS)[0]).astype(int)
    return Scales(np.ldexp(1.0, exponents[:n]), np.ldexp(1.0, exponents[n:]))


def _is_even(pattern: Pattern, magnitudes: Vectors) -> bool:
    """Tell whether the largest entries of rows, and of columns, are of like sizes, and their squares neither 0 nor infinite."""
    if not _LEAST_SIZE <= float(magnitudes.max()) <= 1 / _LEAST_SIZE:
        return False
    return all(float(each.max()) <= _MOST_SPREAD * float(each.min()) for each in _largest(pattern, magnitudes))


def scaled(pattern: Pattern, values: Vectors, scales: Scales | None) -> Vectors:
    """Values of the scaled matrix."""
    return values if scales is None else values * scales.rows[pattern.rows] * scales.columns[pattern.indices]


def norms_of(pattern: Pattern, values: Vectors) -> Norms:
    """Largest sums of magnitudes of rows and columns, none of which is empty."""
    magnitudes = np.abs(values)
    of_rows = np.add.reduceat(magnitudes, pattern.indptr[:-1])
    of_columns = np.add.reduceat(magnitudes[pattern.transposing], pattern.transposed.indptr[:-1])
    return Norms(float(of_rows.max()), float(of_columns.max()))


def has_zero_line(pattern: Pattern, values: Vectors) -> bool:
    """Tell whether some row or column has no entry other than 0."""
    if not (np.diff(pattern.indptr).all() and np.diff(pattern.transposed.indptr).all()):
        return True
    return any(bool((largest == 0).any()) for largest in _largest(pattern, np.abs(values)))


def _largest(pattern: Pattern, magnitudes: Vectors) -> tuple[Vectors, Vectors]:
    """Largest magnitude of each row and column."""
    of_rows = np.maximum.reduceat(magnitudes, pattern.indptr[:-1])
    return of_rows, np.maximum.reduceat(magnitudes[pattern.transposing], pattern.transposed.indptr[:-1])
