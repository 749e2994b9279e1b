"""The inverse of A from its factor, a panel of columns at a time: for traces, derivatives of a likelihood, and its diagonal."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.solves import backward_solve, forward_solve
from ooc_chol.dense.stores.file import AbstractStore
from ooc_chol.tasks.tiling import TileGrid

#: Bytes of a panel when its width is left open, and the share of all columns that it holds at most unless a tile has more: zeros
#: above a panel's first row are left out, those inside are not, which costs ``1.5 width / n`` more flops.
PANEL_BYTES = 256 * 2**20
_LARGEST_SHARE = 16


def panel_width(grid: TileGrid, width: int | None, fitting: int | None = None) -> int:
    """Columns of a panel.

    Examples
    --------
    >>> panel_width(TileGrid(n=100_000, nb=128), None), panel_width(TileGrid(n=1000, nb=128), 300)
    (256, 300)
    """
    if width is not None:
        if width < 1:
            raise ValueError(f"width is {width}, but a panel of the inverse has at least 1 column")
        return min(width, grid.n, fitting or grid.n)
    most = fitting or max(1, PANEL_BYTES // (8 * grid.n))
    whole = min(most, max(grid.nb, grid.n // _LARGEST_SHARE)) // grid.nb * grid.nb
    return min(whole or most, grid.n)


def inverse_panels(store: AbstractStore, width: int | None) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
    """Make the generator behind :meth:`ooc_chol.CholeskyFactor.inverse_panels`."""
    return _inverse_panels(store, panel_width(store.grid, width))


def inverse_diagonal(store: AbstractStore, width: int | None) -> NDArray[np.float64]:
    """Sums of squares of the columns of ``inv(L)``, which are the diagonal of ``inv(A)``."""
    diagonal = np.empty(store.grid.n)
    for columns, _, x in _unit_solves(store, panel_width(store.grid, width)):
        # inv(A)[j, j] = sum_i inv(L)[i, j]**2
        np.einsum("ij,ij->j", x, x, out=diagonal[columns.start : columns.stop])
    return diagonal


def _inverse_panels(store: AbstractStore, width: int) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
    for columns, first, x in _unit_solves(store, width):
        # inv(A)[:, j] = inv(L).T @ inv(L)[:, j]
        backward_solve(store, x, first=first)
        yield columns, x[columns.start - store.grid.start(first) :]


def _unit_solves(store: AbstractStore, width: int) -> Iterator[tuple[range, int, NDArray[np.float64]]]:
    """Columns of ``inv(L)`` from the tile row of the first of them down, with that tile row; all in one buffer."""
    grid = store.grid
    buffer = np.empty(grid.n * width)
    for start in range(0, grid.n, width):
        columns = range(start, min(start + width, grid.n))
        first = start // grid.nb
        top = grid.start(first)
        x = buffer[: (grid.n - top) * len(columns)].reshape(grid.n - top, len(columns))
        x[...] = 0.0
        x[np.arange(columns.start, columns.stop) - top, np.arange(len(columns))] = 1.0
        forward_solve(store, x, first=first)
        yield columns, first, x
