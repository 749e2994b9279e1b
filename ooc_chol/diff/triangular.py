"""Solves with triangles of sparse matrices."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from ooc_chol.diff.memory import Array, is_cupy
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.solve_checks import check_finite
from ooc_chol.errors import SingularMatrixError

#: Entries that SuperLU counts.
_MOST_ENTRIES = np.iinfo(np.intc).max


def solved(pattern: Pattern, values: Array, b: Array, *, lower: bool, trans: bool, unit_diagonal: bool) -> Array:
    """Solve with a triangle, or with its transpose; see :func:`ooc_chol.diff.triangular_solve`."""
    check_triangle(pattern, lower, unit_diagonal)
    _check_numbers(pattern, values, unit_diagonal)
    if b.size == 0:
        return b.copy()
    if is_cupy(b):
        return _solved_on_device(pattern, values, b, lower=lower, trans=trans, unit_diagonal=unit_diagonal)
    matrix = _matrix(pattern, np.asarray(values, np.float64), unit_diagonal)
    x = _substituted(matrix, np.asarray(b, np.float64), lower=lower, trans=trans)
    return np.ascontiguousarray(x, dtype=b.dtype)


def _substituted(triangle: Any, b: NDArray[np.float64], *, lower: bool, trans: bool) -> NDArray[np.float64]:
    """Solve with a triangle by rows, its diagonal whole, by SuperLU's substitution.

    SuperLU takes ``L U`` by columns. Rows of a lower triangle are columns of ``U = T.T``, whose diagonal it looks for in L, so
    that nothing is scaled or transposed; an upper triangle is a lower one from behind. SciPy's ``spsolve_triangular`` makes
    unit triangles first, in two to three times the time.
    """
    n, nnz = triangle.shape[0], triangle.nnz
    if nnz > _MOST_ENTRIES:
        raise ValueError(f"the triangle has {nnz} entries, but SuperLU counts them in int32, up to {_MOST_ENTRIES}")
    starts, columns, values = triangle.indptr, triangle.indices, triangle.data
    if not lower:
        starts, columns, values, b = nnz - starts[::-1], (n - 1) - columns[::-1], values[::-1], b[::-1]
    starts, columns = (np.ascontiguousarray(each, np.intc) for each in (starts, columns))
    values, ends = np.array(values), starts[1:] - 1
    diagonal = values[ends]
    values[ends] = 0.0
    each = np.arange(n + 1, dtype=np.intc)
    parts = (n, n, diagonal, each[:-1], each, n, nnz, values, columns, starts)
    x, trouble = import_module("scipy.sparse.linalg._dsolve._superlu").gstrs("N" if trans else "T", *parts, b)
    assert not trouble, "zeros on the diagonal were refused before"
    return np.asarray(x if lower else x[::-1])


def _solved_on_device(pattern: Pattern, values: Array, b: Array, *, lower: bool, trans: bool, unit_diagonal: bool) -> Array:
    """The same by cuSPARSE, which gets a transpose as a matrix of its own."""
    if trans:
        values, pattern = values[pattern.place("transposing", values)], pattern.transposed
    cuda = import_module("ooc_chol.kernels.cuda.direct")
    a = cuda.Csr(pattern.place("indptr", values), pattern.place("indices", values), values, pattern.n_rows)
    return cuda.solve_triangular(a, b, lower=lower != trans, unit_diagonal=unit_diagonal)


def _matrix(pattern: Pattern, values: NDArray[np.float64], unit_diagonal: bool) -> Any:
    """The triangle with its whole diagonal, as SciPy's."""
    if not unit_diagonal:
        return csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)
    places = pattern.diagonal_places
    ones = np.array(values)
    ones[places[places >= 0]] = 1.0
    triangle = csr_array((ones, pattern.indices, pattern.indptr), shape=pattern.shape)
    if (places >= 0).all():
        return triangle
    triangle.data[places[places >= 0]] = 0.0
    return csr_array(triangle + eye_array(pattern.n_rows, format="csr"))


def check_triangle(pattern: Pattern, lower: bool, unit_diagonal: bool) -> None:
    """Refuse what is no triangle, or lacks numbers on its diagonal."""
    n = pattern.n_rows
    if n != pattern.n_columns:
        raise ValueError(f"{pattern.name} is {n} x {pattern.n_columns}: only a square matrix is solved with")
    filled = np.flatnonzero(np.diff(pattern.indptr))
    ends = pattern.indptr[1:][filled] - 1 if lower else pattern.indptr[:-1][filled]
    outermost = pattern.indices[ends]
    beyond = np.flatnonzero(outermost > filled if lower else outermost < filled)
    if beyond.size:
        row, column = filled[beyond[0]], outermost[beyond[0]]
        name, side = ("lower", "tril") if lower else ("upper", "triu")
        raise ValueError(
            f"{pattern.name} has an entry ({row}, {column}), but a triangular solve with lower={lower} takes entries of the "
            f"{name} triangle only: take {side} of the matrix first, or solve"
        )
    if not unit_diagonal:
        missing = np.flatnonzero(pattern.diagonal_places < 0)
        if missing.size:
            row = missing[0]
            raise ValueError(
                f"{pattern.name} has no entry ({row}, {row}) on the diagonal, so that row {row} cannot be solved for: add the "
                "diagonal to the pattern, or give unit_diagonal=True"
            )


def _check_numbers(pattern: Pattern, values: Array, unit_diagonal: bool) -> None:
    """Refuse values that are no numbers, and zeros on the diagonal."""
    check_finite(pattern, values)
    if unit_diagonal or pattern.n_rows == 0:
        return
    zeros = values[pattern.diagonal.on(values)] == 0
    if bool(zeros.any()):
        at = int(zeros.argmax())
        problem, advice = f"its entry ({at}, {at}) is 0", "mend the entry, or give unit_diagonal=True"
        raise SingularMatrixError(pattern.matrix_name, problem, advice, at)
