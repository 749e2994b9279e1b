"""Cholesky of a matrix that is one tile, on the host: the arithmetic of the tile kernels, to the bit."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import Tile
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.host.tiles import MOST_STRIP, factor_tile
from ooc_chol.kernels.interfaces.whole import AbstractWholeKernels, first_imaginary, first_nonfinite, lower_pieces
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.team import ThreadTeam

#: Rows of a band that is copied from what is seen in place, and order of a piece of what is read or made.
_ROWS, _PIECE = 256, 1024


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
        # What a narrower type cannot hold becomes infinite, and is met as such.
        with nullcontext() if tile.dtype == source.dtype else np.errstate(over="ignore"):
            for start in range(0, n, _ROWS):
                stop = min(start + _ROWS, n)
                tile[start:stop, :stop] = source.view(range(start, stop), range(stop))

    def factor(self, tile: Tile) -> int:
        with closing(ThreadTeam(self._threads if len(tile) > MOST_STRIP else 1)) as team:
            return factor_tile(team, tile)

    def first_nonfinite(self, tile: Tile) -> tuple[int, int] | None:
        return first_nonfinite(np, tile)

    def first_imaginary(self, tile: Tile, share: float) -> int | None:
        return first_imaginary(np, tile, share)

    def take_out(self, tile: Tile, out: NDArray[Any]) -> None:
        """Do nothing: L was made where it goes."""


def _read_pieces(source: AbstractSource, tile: NDArray[Any]) -> None:
    """Read or make squares through a buffer: sources fill what is contiguous, of their own type or a wider one."""
    dtype = tile.dtype if np.can_cast(source.dtype, tile.dtype) else source.dtype
    buffer = np.empty(min(len(tile), _PIECE) ** 2, dtype)
    for rows, columns in lower_pieces(len(tile), _PIECE):
        piece = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
        source.read_block(rows, columns, piece)
        with np.errstate(over="ignore"):  # as above
            tile[rows.start : rows.stop, columns.start : columns.stop] = piece
