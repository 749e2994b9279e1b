"""Which column of a singular matrix has no pivot; SuperLU only says that there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.sparse.linalg import splu

from ooc_chol.errors import SingularMatrixError

#: Changes of values that give every column a pivot, relative to the largest of its column, and seed of the numbers.
_CHANGES, _SEED = (2.0**-46, 2.0**-40, 2.0**-34), 23

#: How small a pivot of a column that depends on others is, at most, after such changes.
_SMALL = 1e-7

_ADVICE = "remove or mend the column, or add a multiple of the identity"


def singular(name: str, matrix: csc_array) -> SingularMatrixError:
    """The error of a singular matrix, which names a column that depends on others.

    Shapes: ``matrix`` (n, n). The matrix with changes of 2**-46 in its values has pivots everywhere, and the column is that of
    the smallest. Where no choice of n entries covers all rows and columns, what a largest one leaves out (Hopcroft and Karp 1973)
    gets entries first, and the column is one of those that were left out unless others depend on each other, too.
    """
    filled = matrix.copy()
    filled.eliminate_zeros()
    empty = np.flatnonzero(np.diff(filled.indptr) == 0)
    if empty.size:
        return SingularMatrixError(name, f"column {empty[0]} holds zeros only", _ADVICE, int(empty[0]))
    rows = maximum_bipartite_matching(csr_array(filled), perm_type="row")
    left = np.flatnonzero(rows < 0)
    if left.size:
        free = np.setdiff1d(np.arange(filled.shape[0]), rows)
        added = csc_array((_largest(filled)[left], (free, left)), shape=filled.shape)
        filled = csc_array(filled + added)
    column, pivot = _smallest_of_changed(filled)
    if left.size and pivot > _SMALL:
        column = int(left[0])
        problem = f"no pivot is left for column {column}, whatever the values: others take all rows in which it has entries"
        return SingularMatrixError(name, problem, _ADVICE, column)
    return SingularMatrixError(name, f"column {column} depends on others, so that its pivot is 0", _ADVICE, column)


def depends(name: str, column: int, pivot: float, condition: float) -> SingularMatrixError:
    """The error of a matrix whose condition number is too large, ``pivot`` being relative to the largest entry of the column."""
    problem = (
        f"its condition number, rows and columns scaled, is {condition:.2g}, and the smallest pivot, that of column {column}, "
        f"is {pivot:.2g} of the largest entry of its column"
    )
    return SingularMatrixError(name, problem, _ADVICE, column)


def smallest_pivot(factor: Any, matrix: csc_array) -> tuple[int, float]:
    """Column of the smallest pivot of a factor, relative to the largest entry of its column, and that pivot."""
    relative = np.abs(factor.U.diagonal())[factor.perm_c] / _largest(matrix)
    column = int(np.argmin(relative))
    return column, float(relative[column])


def _largest(matrix: csc_array) -> NDArray[np.float64]:
    """Largest magnitude of each column, none of which is empty."""
    return np.asarray(np.maximum.reduceat(np.abs(matrix.data), matrix.indptr[:-1]))


def _smallest_of_changed(matrix: csc_array) -> tuple[int, float]:
    """Column of the smallest pivot, of the values changed a little, so that none is exactly 0; and that pivot."""
    sizes = np.repeat(_largest(matrix), np.diff(matrix.indptr))
    random = np.random.default_rng(_SEED)
    for change in _CHANGES:
        moved = matrix.data + change * sizes * random.uniform(-1.0, 1.0, matrix.nnz)
        changed = csc_array((moved, matrix.indices, matrix.indptr), shape=matrix.shape)
        try:
            return smallest_pivot(splu(changed), changed)
        except RuntimeError:
            continue
    raise AssertionError("a matrix that has a pivot for each column is singular for almost no values")
