"""Norms of tiles, made without a matrix."""

from __future__ import annotations

import numpy as np

from tests.inside.precision import MatrixNorms
from tests.inside.tasks import TileGrid


def norms_of(grid: TileGrid, tiles, *, traces=None, least=1.0, largest=1.0) -> MatrixNorms:
    """Norms with plain diagonals unless told otherwise."""

    def rows(values) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, dtype=float), grid.nt).copy()

    traces = [grid.size(i) for i in range(grid.nt)] if traces is None else traces
    return MatrixNorms(grid, np.asarray(tiles, dtype=float), rows(traces), rows(least), rows(largest))


def _one_below() -> MatrixNorms:
    """Tiles on the diagonal, and one below it, whose squares add up to 256 exactly."""
    grid = TileGrid(32, 4)
    tiles = np.zeros(grid.n_tiles)
    tiles[[grid.packed(i, i) for i in range(grid.nt)]] = [8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0, 2.0]
    tiles[grid.packed(1, 0)] = 2.0
    return norms_of(grid, tiles)


#: ``||A||_F`` is 16, and ``nt ||A_10|| / ||A||_F`` is 1: its format changes where the threshold is a unit roundoff.
ONE_BELOW = _one_below()
#: ``||A||_F`` is 4.
EXACT = norms_of(TileGrid(8, 4), [2.0, 2.0, 2.0])
