"""Cholesky of a matrix that is one tile, on the host: the arithmetic of the tile kernels, to the bit."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import Tile
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.host.tiles import MOST_STRIP, factor_tile
from ooc_chol.kernels.interfaces.whole import AbstractWholeKernels, first_imaginary, first_nonfinite, lower_pieces
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.team import ThreadTeam

#: Rows of a band that is copied from what is seen in place, and order of a piece of what is read or made.
_ROWS, _PIECE = 256, 1024
#: The calling thread by itself, which has nothing to start or to end.
_ALONE = ThreadTeam(1)


@final
class HostWhole(AbstractWholeKernels):
    """LAPACK on the calling thread; above one strip a team of threads shares products and solves."""

    def __init__(self) -> None:
        self._threads = host_threads(1)  # before the limit of :meth:`current`

    def current(self) -> AbstractContextManager[Any]:
        return blas_threads(1)

    def beside(self, out: NDArray[Any]) -> Tile:
        return out

    def read(self, source: AbstractSource, tile: Tile) -> None:
        """Copy rows that are seen in place in bands, up to the diagonal's; read or make pieces of all else."""
        n = len(tile)
        if source.shared_axis != 0 or source.view(range(1), range(1)) is None:
            _read_pieces(source, tile)
            return
        for start in range(0, n, _ROWS):
            stop = min(start + _ROWS, n)
            rows = source.view(range(start, stop), range(stop))
            assert rows is not None  # as above
            put_numbers(rows, tile[start:stop, :stop])

    def factor(self, tile: Tile) -> int:
        if len(tile) <= MOST_STRIP:
            return factor_tile(_ALONE, tile)
        with closing(ThreadTeam(self._threads)) as team:
            return factor_tile(team, tile)

    def first_nonfinite(self, tile: Tile) -> tuple[int, int] | None:
        return first_nonfinite(np, tile)

    def first_imaginary(self, tile: Tile, share: float) -> int | None:
        return first_imaginary(np, tile, share)

    def take_out(self, tile: Tile, out: NDArray[Any]) -> None:
        """Do nothing: L was made where it goes."""


def _read_pieces(source: AbstractSource, tile: NDArray[Any]) -> None:
    """Read or make squares through a buffer: sources fill what is contiguous."""
    buffer = np.empty(min(len(tile), _PIECE) ** 2, tile.dtype)
    for rows, columns in lower_pieces(len(tile), _PIECE):
        piece = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
        source.read_block(rows, columns, piece)
        tile[rows.start : rows.stop, columns.start : columns.stop] = piece
