"""Traces of ``inv(A) @ D`` for matrices D that are made tile by tile and never stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.factor.inverse import inverse_panels
from ooc_chol.memory.sources_function import FunctionSource
from ooc_chol.memory.store import AbstractStore

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


def check_matrices(matrices: Sequence[FunctionSource], vectors: NDArray[np.float64], n: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless all are tile functions of order ``n``, and the vectors have ``n`` rows.

    Parameters
    ----------
    matrices : sequence of FunctionSource
        From ``from_function``.
    vectors : (n, q) array
        By columns.
    n : int
        Order of the factor.
    """
    for number, matrix in enumerate(matrices):
        if not isinstance(matrix, FunctionSource):
            raise TypeError(f"matrix {number} is a {type(matrix).__name__}; give what from_function makes of a tile function")
        if matrix.n != n:
            raise ValueError(f"matrix {number} has order {matrix.n}, but the factor has order {n}")
    if vectors.ndim != 2 or len(vectors) != n:
        raise ValueError(f"vectors have shape {vectors.shape}, but must have {n} rows")


def row_blocks(columns: range, n: int, height: int) -> list[tuple[range, float]]:
    """Rows of a panel of the inverse from its first column down, in blocks, and what a sum over a symmetric matrix counts them.

    Parameters
    ----------
    columns : range
        Columns of the panel.
    n : int
        Order of the matrix.
    height : int
        Most rows of a block.

    Returns
    -------
    list of (range, float)
        The block on the diagonal is there whole; those below it stand for two.

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
    """Compute the traces on the host, as :meth:`ooc_chol.CholeskyFactor.inverse_traces`.

    Parameters
    ----------
    store : AbstractStore
        Holds L.
    matrices : sequence of FunctionSource
        Symmetric matrices of its order.
    vectors : (n, q) array
        By columns.

    Returns
    -------
    InverseTraces
        Pieces of the matrices are made by several threads and added in order.
    """
    diagonal, sums = np.empty(store.grid.n), np.zeros((len(matrices), 1 + vectors.shape[1]))
    with ThreadPoolExecutor(thread_name_prefix="traces") as pool:
        for columns, panel in inverse_panels(store, None):
            diagonal[columns.start : columns.stop] = np.diagonal(panel[: len(columns)])
            right = vectors[columns.start : columns.stop]
            for part in _pieces(pool, matrices, (columns, panel), (vectors, right)):
                sums += part
    return InverseTraces(diagonal, sums[:, 0], sums[:, 1:])


def _pieces(
    pool: ThreadPoolExecutor,
    matrices: Sequence[FunctionSource],
    inverse: tuple[range, NDArray[np.float64]],
    vectors: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Iterator[NDArray[np.float64]]:
    """Sums over the pieces of one panel."""
    (columns, panel), (left, right) = inverse, vectors

    def of_block(block: tuple[range, float]) -> NDArray[np.float64]:
        rows, weight = block
        part = panel[rows.start - columns.start : rows.stop - columns.start]
        beside = left[rows.start : rows.stop]
        return weight * np.array([_sums(matrix, (rows, columns), part, (beside, right)) for matrix in matrices])

    yield from pool.map(of_block, row_blocks(columns, len(left), _PIECE)) if matrices else ()


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
