"""Sums over ``inv(A)`` and over ``inv(L) @ B`` for matrices that are made piece by piece and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.inverse import PANEL_BYTES, inverse_panels
from ooc_chol.dense.factor.solves import forward_solve
from ooc_chol.dense.stores.file import AbstractStore
from ooc_chol.memory.sources.function import FunctionSource, check_function
from ooc_chol.team import map_in_threads

#: Rows and columns of the pieces of D that the host makes at once.
_PIECE = 512


class InverseTraces(NamedTuple):
    """What one pass over ``inv(A)`` gives.

    Parameters
    ----------
    diagonal : (n,) array
        The diagonal of ``inv(A)``.
    products : (k,) array
        ``tr(inv(A) @ D)`` of each matrix.
    forms : (k, q) array
        ``v' @ D @ v`` of each matrix and vector.
    """

    diagonal: NDArray[np.float64]
    products: NDArray[np.float64]
    forms: NDArray[np.float64]


class HalfSolveSums(NamedTuple):
    """Sums over ``Y = inv(L) @ B``.

    Parameters
    ----------
    squares : (m,) array
        Column sums of ``Y**2``, the diagonal of ``B' @ inv(A) @ B``.
    products : (m, q) array
        ``Y' @ V``.
    """

    squares: NDArray[np.float64]
    products: NDArray[np.float64]


def check_matrices(matrices: Sequence[FunctionSource], n: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless all are tile functions of order ``n``."""
    for number, matrix in enumerate(matrices):
        check_function(matrix, f"matrix {number}")
        if matrix.n != n:
            raise ValueError(f"matrix {number} has order {matrix.n}, but the factor has order {n}")


def check_border(matrix: FunctionSource, columns: range, n: int, width: int | None) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a tile function has ``n`` rows of these columns."""
    check_function(matrix, "matrix")
    if columns.step != 1 or columns.start < 0 or max(columns.stop, n) > matrix.n:
        raise ValueError(f"columns {columns} of {n} rows are not inside a matrix of order {matrix.n}")
    if width is not None and width < 1:
        raise ValueError(f"width is {width}, but at least 1 column is solved for at a time")


def row_blocks(columns: range, n: int, height: int) -> list[tuple[range, float]]:
    """Rows of a panel of the inverse from its first column down, in blocks, and what a sum over a symmetric matrix counts them.

    Examples
    --------
    >>> row_blocks(range(2, 4), 7, 2)
    [(range(2, 4), 1.0), (range(4, 6), 2.0), (range(6, 7), 2.0)]
    """
    parts = ((columns, 1.0), (range(columns.stop, n), 2.0))
    return [
        (range(start, min(start + height, rows.stop)), weight)
        for rows, weight in parts
        for start in range(rows.start, rows.stop, height)
    ]


def inverse_traces(store: AbstractStore, matrices: Sequence[FunctionSource], vectors: NDArray[np.float64]) -> InverseTraces:
    """Compute the traces on the host, as :meth:`ooc_chol.CholeskyFactor.inverse_traces`."""
    diagonal, sums = np.empty(store.grid.n), np.zeros((len(matrices), 1 + vectors.shape[1]))
    for columns, panel in inverse_panels(store, None):
        diagonal[columns.start : columns.stop] = np.diagonal(panel[: len(columns)])
        right = vectors[columns.start : columns.stop]
        for part in _pieces(matrices, (columns, panel), (vectors, right)):
            sums += part
    return InverseTraces(diagonal, sums[:, 0], sums[:, 1:])


def _pieces(
    matrices: Sequence[FunctionSource],
    inverse: tuple[range, NDArray[np.float64]],
    vectors: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> list[NDArray[np.float64]]:
    """Sums over the pieces of one panel."""
    (columns, panel), (left, right) = inverse, vectors

    def of_block(block: tuple[range, float]) -> NDArray[np.float64]:
        rows, weight = block
        part = panel[rows.start - columns.start : rows.stop - columns.start]
        beside = left[rows.start : rows.stop]
        return weight * np.array([_sums(matrix, (rows, columns), part, (beside, right)) for matrix in matrices])

    return map_in_threads(of_block, row_blocks(columns, len(left), _PIECE)) if matrices else []


def _sums(
    matrix: FunctionSource,
    place: tuple[range, range],
    inverse: NDArray[np.float64],
    vectors: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> list[float]:
    """``sum(inverse * D)`` and ``v' D v`` of each vector, over one block, in pieces that stay in the cache."""
    (rows, columns), (left, right) = place, vectors
    total = np.zeros(1 + right.shape[1])
    for start in range(0, len(columns), _PIECE):
        part = slice(start, min(start + _PIECE, len(columns)))
        piece = np.empty((len(rows), part.stop - part.start))
        matrix.read_block(rows, columns[part], piece)
        total[0] += np.vdot(inverse[:, part], piece)
        total[1:] += np.einsum("iq,iq->q", left, piece @ right[part])
    return list(total)


def half_solve_sums(
    store: AbstractStore, matrix: FunctionSource, columns: range, vectors: NDArray[np.float64], width: int | None
) -> HalfSolveSums:
    """Compute the sums on the host, as :meth:`ooc_chol.CholeskyFactor.half_solve_sums`."""
    n = store.grid.n
    step = min(len(columns), width or max(1, PANEL_BYTES // (8 * n)))
    squares, products = np.empty(len(columns)), np.empty((len(columns), vectors.shape[1]))
    buffer = np.empty(n * step)
    rows = [range(first, min(first + _PIECE, n)) for first in range(0, n, _PIECE)]
    for start in range(0, len(columns), step):
        part = columns[start : start + step]
        y = buffer[: n * len(part)].reshape(n, len(part))
        map_in_threads(partial(_fill, matrix, part, y), rows)
        forward_solve(store, y)
        squares[start : start + step] = np.einsum("ij,ij->j", y, y)
        products[start : start + step] = y.T @ vectors
    return HalfSolveSums(squares, products)


def _fill(matrix: FunctionSource, columns: range, y: NDArray[np.float64], rows: range) -> None:
    """Some rows of B."""
    matrix.read_block(rows, columns, y[rows.start : rows.stop])
