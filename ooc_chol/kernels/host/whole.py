"""Cholesky of a matrix that is one tile, on the host: the arithmetic of the tile kernels, to the bit."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import Tile
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.host.solves import substitute
from ooc_chol.kernels.host.tiles import MOST_STRIP, factor_tile
from ooc_chol.kernels.interfaces.whole import AbstractWholeKernels, check_right_hand_side, nonfinite_error
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.team import ThreadTeam

#: Rows, and columns of what must be made, that are read at a time.
_ROWS, _COLUMNS = 256, 1024


@final
class HostWhole(AbstractWholeKernels):
    """LAPACK on the calling thread; above one strip a team of threads shares products and solves."""

    def __init__(self) -> None:
        self._threads = host_threads(1)  # before the limit of :meth:`current`

    def current(self) -> AbstractContextManager[Any]:
        return blas_threads(1)

    def empty(self, n: int) -> Tile:
        return np.empty((n, n))

    def read(self, source: AbstractSource, tile: Tile) -> None:
        """Copy the lower triangle in bands of rows from what is seen in place, else read or make rectangles of it."""
        n = len(tile)
        if source.view(range(1), range(1)) is None:
            _read_pieces(source, tile)
            return
        for start in range(0, n, _ROWS):
            rows = range(start, min(start + _ROWS, n))
            view = source.view(rows, range(rows.stop))
            assert view is not None  # all of a source is seen in place, or nothing
            _copy_along(tile[rows.start : rows.stop, : rows.stop], view)

    def factor(self, tile: Tile) -> int:
        with closing(ThreadTeam(self._threads if len(tile) > MOST_STRIP else 1)) as team:
            return factor_tile(team, tile)

    def right_hand_side(self, b: Any, n: int) -> Tile:
        raw = np.asarray(b)
        check_right_hand_side(raw.dtype, raw.shape, n)
        x = np.array(raw, np.float64, order="C")
        finite = np.isfinite(x)
        if not finite.all():
            place = np.unravel_index(int(np.argmin(finite)), x.shape)
            raise nonfinite_error(tuple(map(int, place)), x[place])
        return x.reshape(n, -1) if x.size else x.reshape(n, 0)

    def solve(self, tile: Tile, x: Tile, *, transposed: bool) -> None:
        if x.size:
            substitute(tile, x, transposed=transposed)

    def multiply(self, tile: Tile, z: Tile) -> Tile:
        return tile @ z

    def take_out(self, tile: Tile, out: NDArray[np.float64]) -> None:
        np.copyto(out, tile)


def _copy_along(target: NDArray[np.float64], view: NDArray[np.float64]) -> None:
    """Copy a band; of a column-major one by few columns at a time, which stay in the cache until their rows are written."""
    if abs(view.strides[0]) >= abs(view.strides[1]):
        target[...] = view
        return
    for start in range(0, target.shape[1], _NARROW):
        target[:, start : start + _NARROW] = view[:, start : start + _NARROW]


#: Columns of a column-major band that are copied at a time.
_NARROW = 16


def _read_pieces(source: AbstractSource, tile: NDArray[np.float64]) -> None:
    """Rectangles of at most so many columns through a buffer; nothing above the diagonal's rectangles is asked for."""
    n = len(tile)
    buffer = np.empty(min(n, _COLUMNS) ** 2)
    for top in range(0, n, _COLUMNS):
        rows = range(top, min(top + _COLUMNS, n))
        for left in range(0, rows.stop, _COLUMNS):
            columns = range(left, min(left + _COLUMNS, n))
            piece = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            source.read_block(rows, columns, piece)
            tile[rows.start : rows.stop, columns.start : columns.stop] = piece
