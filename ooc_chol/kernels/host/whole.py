"""Cholesky of a matrix that is one tile, on the host: the arithmetic of the tile kernels, to the bit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import Tile
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.host.tiles import MOST_ALONE, factor_tile
from ooc_chol.kernels.interfaces.whole import AbstractWholeKernels, first_imaginary, first_nonfinite, lower_pieces
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.process.team import ThreadTeam

#: Rows of a band that is copied from what is seen in place, and order of a piece of what is read or made.
_ROWS, _PIECE = 256, 1024


@final
class HostWhole(AbstractWholeKernels):
    """LAPACK on the calling thread; above :data:`MOST_ALONE` rows a team of threads shares copies, products and solves."""

    def __init__(self) -> None:
        self._team = ThreadTeam(host_threads(1))  # as many as there are before the limit of :meth:`current`

    def current(self) -> AbstractContextManager[None]:
        return _Current(self._team)

    def beside(self, out: NDArray[Any]) -> Tile:
        return out

    def read(self, source: AbstractSource, tile: Tile) -> None:
        """Copy rows that are seen in place in bands, up to the diagonal's; read or make pieces of all else."""
        n = len(tile)
        is_shared = n > MOST_ALONE and source.dtype != object  # of objects Python makes numbers, one after the other
        if source.shared_axis != 0 or source.view(range(1), range(1)) is None:
            _read_pieces(source, tile, self._team if is_shared else None)
            return
        # The longest are taken first.
        bands = [partial(_copy_band, source, tile, start) for start in reversed(range(0, n, _ROWS))]
        if is_shared:
            self._team.run(bands)
            return
        for copy in bands:
            copy()

    def factor(self, tile: Tile) -> int:
        return factor_tile(self._team, tile)

    def first_nonfinite(self, tile: Tile) -> tuple[int, int] | None:
        return first_nonfinite(np, tile)

    def first_imaginary(self, tile: Tile, share: float) -> int | None:
        return first_imaginary(np, tile, share)

    def take_out(self, tile: Tile, out: NDArray[Any]) -> None:
        """Do nothing: L was made where it goes."""


@final
class _Current(AbstractContextManager[None]):
    """BLAS calls of one thread, beside a team that ends with the block."""

    def __init__(self, team: ThreadTeam) -> None:
        self._team, self._limited = team, blas_threads(1)

    def __enter__(self) -> None:
        self._limited.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self._team.close()
        finally:
            self._limited.__exit__(*error)


def _copy_band(source: AbstractSource, tile: NDArray[Any], start: int) -> None:
    """Copy rows from ``start`` on, up to the diagonal's columns, of a source that is seen in place."""
    stop = min(start + _ROWS, len(tile))
    rows = source.view(range(start, stop), range(stop))
    assert rows is not None  # it was for the first entry
    put_numbers(rows, tile[start:stop, :stop])


def _read_pieces(source: AbstractSource, tile: NDArray[Any], team: ThreadTeam | None) -> None:
    """Read or make squares through a buffer: sources fill what is contiguous."""
    buffer = np.empty(min(len(tile), _PIECE) ** 2, tile.dtype)
    for rows, columns in lower_pieces(len(tile), _PIECE):
        piece = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
        source.read_block(rows, columns, piece, team=team)
        tile[rows.start : rows.stop, columns.start : columns.stop] = piece
