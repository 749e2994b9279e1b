"""The pass over A's tiles on the host: norms, the diagonal, and a sample."""

from __future__ import annotations

from functools import partial
from math import frexp, inf, sqrt
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.interfaces import AbstractKernelSet, AbstractSurvey, FinalTile
from ooc_chol.precision.norms import sample_starts
from ooc_chol.tasks.tiling import TileGrid

#: Rows of a diagonal tile that are squared at once.
_ROWS = 64
#: Largest exponent of a scale: its square is a float64, as are those of subnormal numbers that are scaled by it.
_LARGEST_SCALE = 1000


@final
class HostSurvey(AbstractSurvey):
    """Norms, diagonal and sample of A's tiles, in NumPy arrays."""

    def __init__(self, kernels: AbstractKernelSet, grid: TileGrid, step: int | None) -> None:
        self._kernels, self._grid, self._step = kernels, grid, step
        self._off_diagonal = kernels.create_norms(grid.n_tiles)
        self._on_diagonal: NDArray[np.float64] = np.zeros(grid.nt)
        self._diagonal: NDArray[np.float64] = np.zeros(grid.n)
        self._starts = sample_starts(grid, step or grid.nb)
        self._sample: NDArray[np.float64] = np.zeros((0, 0) if step is None else (self._starts[-1], self._starts[-1]))

    def measure(self, stream: AbstractStream, tiles: Tile, rows: range, column: int) -> None:
        for i in rows:
            start = self._grid.start(i) - self._grid.start(rows[0])
            self._measure_tile(stream, tiles[start : start + self._grid.size(i)], i, column)

    def _measure_tile(self, stream: AbstractStream, a_ij: Tile, i: int, j: int) -> None:
        if self._step is not None:
            part = self._sample[self._starts[i] : self._starts[i + 1], self._starts[j] : self._starts[j + 1]]
            enqueue(stream, partial(np.copyto, part, a_ij[:: self._step, :: self._step]))
        if i == j:
            enqueue(stream, partial(self._measure_diagonal, a_ij, i))
        else:
            self._kernels.finish(stream, a_ij, FP64, self._off_diagonal, FinalTile(self._grid.packed(i, j), False))

    def norms(self) -> NDArray[np.float64]:
        norms: NDArray[np.float64] = self._off_diagonal.values()[:, 0].copy()
        norms[[self._grid.packed(k, k) for k in range(self._grid.nt)]] = self._on_diagonal
        return norms

    def diagonal(self) -> NDArray[np.float64]:
        return self._diagonal

    def sample(self) -> NDArray[np.float64]:
        return self._sample

    def _measure_diagonal(self, tile: NDArray[np.float64], k: int) -> None:
        span = self._grid.span(k)
        self._diagonal[span.start : span.stop] = tile.diagonal()
        self._on_diagonal[k] = _norm_of_lower(tile)
        _mirror_lower(tile)


def _mirror_lower(tile: NDArray[np.float64]) -> None:
    """Make a tile the symmetric matrix of its lower triangle, in strips that stay in a core's cache."""
    for start in range(0, len(tile), _ROWS):
        rows = slice(start, start + _ROWS)
        tile[:start, rows] = tile[rows, :start].T
        square = tile[rows, rows]
        square[...] = np.tril(square) + np.tril(square, -1).T


def _norm_of_lower(tile: NDArray[np.float64]) -> float:
    """Frobenius norm of the symmetric matrix whose lower triangle is that of a tile, in strips that stay in a core's cache."""
    diagonal = tile.diagonal()
    largest = float(np.abs(diagonal).max())  # of a positive definite matrix the largest entry of all
    scale = 2.0 ** min(_LARGEST_SCALE, -frexp(largest)[1]) if 0.0 < largest < inf else 1.0
    strip, below = np.empty((min(_ROWS, len(tile)), len(tile))), 0.0
    with np.errstate(all="ignore"):  # what is no number makes a norm that is none
        for start in range(0, len(tile), _ROWS):
            rows = tile[start : start + _ROWS]
            columns = min(start + _ROWS, len(tile))
            scaled = np.multiply(rows[:, :columns], scale, out=strip[: len(rows), :columns])
            scaled[:, start:] = np.tril(scaled[:, start:], -1)
            below += float(np.einsum("ij,ij->", scaled, scaled))
        return sqrt(2.0 * below + float(np.square(diagonal * scale).sum())) / scale
